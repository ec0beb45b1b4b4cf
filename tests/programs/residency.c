// What mincore(2) tells of memory of which most is far: pages that hold something count as resident.
// usage: residency MIB
#include "pattern.h"

#include <errno.h>
#include <sys/wait.h>

static void expect(char *base, size_t pages, unsigned char *told, size_t from, size_t to, const char *what) {
    memset(told, 0x55, pages);
    NEED(mincore(base, pages * PAGE_BYTES, told) == 0);
    for (size_t i = 0; i < pages; i++)
        if ((told[i] & 1) != (from <= i && i < to)) FAIL("%s: page %zu is told as %d", what, i, told[i]);
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: residency MIB");
    size_t pages = pages_of_mib(arguments[1]);
    char *base = map_pages(pages);
    unsigned char *told = (unsigned char *)map_pages(pages / PAGE_BYTES + 1);
    expect(base, pages, told, 0, 0, "nothing was touched");
    pages_write(base, pages / 2, 1, 1);
    expect(base, pages, told, 0, pages / 2, "half was written");
    pages_write(base + pages / 2 * PAGE_BYTES, pages - pages / 2, 2, 1);
    expect(base, pages, told, 0, pages, "all was written");
    pages_check(base, pages / 2, 1, 1, "the first half");
    expect(base, pages, told, 0, pages, "half was read");
    NEED(madvise(base, 16 * PAGE_BYTES, MADV_DONTNEED) == 0);
    expect(base, pages, told, 16, pages, "some was discarded");
    int status;
    pid_t child = fork();
    if (child == 0) {
        expect(base, pages, told, 16, pages, "in a child");
        _exit(3);
    }
    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    NEED(mincore(base + 1, PAGE_BYTES, told) == -1 && errno == EINVAL);
    NEED(mincore(base, PAGE_BYTES, (unsigned char *)8) == -1 && errno == EFAULT);
    NEED(mincore(base, (size_t)1 << 62, told) == -1 && errno == ENOMEM);
    NEED(munmap(base + 32 * PAGE_BYTES, PAGE_BYTES) == 0);
    NEED(mincore(base, 64 * PAGE_BYTES, told) == -1 && errno == ENOMEM);
    NEED(mincore(base, 0, told) == 0);
    puts("whole");
    return 0;
}
