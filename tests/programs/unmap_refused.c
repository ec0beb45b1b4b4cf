// Unmaps a page amid its memory when it has as many mappings as the kernel grants, which is refused: the
// memory stays whole. usage: unmap_refused MIB
#include <errno.h>

#include "pattern.h"

int main(int count, char **arguments) {
    size_t pages = pages_of_mib(count > 1 ? arguments[1] : "1");
    char *base = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(base != MAP_FAILED);
    pages_write(base, pages, 1, 1);

    // Every second page of a mapping with another protection: as many mappings as there are pages.
    size_t most = 1 << 20;
    char *many = mmap(NULL, most * PAGE_BYTES, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(many != MAP_FAILED);
    size_t page = 1;
    while (page < most && mprotect(many + page * PAGE_BYTES, PAGE_BYTES, PROT_READ) == 0) page += 2;
    NEED(page < most && errno == ENOMEM);

    NEED(munmap(base + pages / 2 * PAGE_BYTES, PAGE_BYTES) == -1 && errno == ENOMEM);
    NEED(munmap(many, most * PAGE_BYTES) == 0);
    pages_check(base, pages, 1, 1, "what could not be unmapped");
    puts("whole");
    return 0;
}
