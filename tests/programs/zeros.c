// Reads memory that was never written before it writes to it, from the program and through the kernel, before and after a
// fork: what was not written reads as zeros, and what was written stays.
// usage: zeros MIB
#include "pattern.h"

#include <sys/wait.h>

static char *base;
static size_t pages;
static uint32_t *version;

static void check(const char *what) {
    for (size_t i = 0; i < pages; i++)
        if (!page_holds(base + i * PAGE_BYTES, page_seed(1, i, version[i]))) FAIL("%s: page %zu is wrong", what, i);
}

static void write_every(size_t nth, size_t first) {
    for (size_t i = first; i < pages; i += nth) page_write(base + i * PAGE_BYTES, page_seed(1, i, ++version[i]));
}

// The kernel writes to pages that were read only.
static void write_by_the_kernel(size_t nth, size_t first) {
    int ends[2];
    NEED(!pipe(ends));
    uint64_t words[PAGE_WORDS];
    for (size_t i = first; i < pages; i += nth) {
        page_write(words, page_seed(1, i, ++version[i]));
        NEED(write(ends[1], words, sizeof words) == sizeof words);
        NEED(read(ends[0], base + i * PAGE_BYTES, PAGE_BYTES) == PAGE_BYTES);
    }
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: zeros MIB");
    pages = pages_of_mib(arguments[1]);
    version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    for (size_t i = 0; i < pages; i++) version[i] = 0;
    base = map_pages(pages);
    check("never written");
    check("read twice");
    write_every(7, 3);
    check("one in seven written");
    write_by_the_kernel(11, 5);
    check("one in eleven written by the kernel");
    pid_t child = fork();
    NEED(child >= 0);
    write_every(child ? 13 : 17, child ? 1 : 2);
    check(child ? "the parent after a fork" : "the child");
    if (child == 0) _exit(0);
    int status;
    NEED(waitpid(child, &status, 0) == child);
    if (status != 0) FAIL("the child ended with status 0x%x", status);
    size_t half = pages / 2;
    NEED(!madvise(base, half * PAGE_BYTES, MADV_DONTNEED));
    for (size_t i = 0; i < half; i++) version[i] = 0;
    check("half of it discarded");
    write_every(1, 0);
    check("all of it written");
    puts("whole");
    return 0;
}
