// Memory that was mapped before the first library began, as an allocator's may be. Filled then, too, and found by a
// child, where that is asked for.
// usage: early ROUNDS [fork]
#include "pattern.h"

#include <sys/wait.h>

enum { PAGES = 32 << 8 };

static char *memory;

static void map_early(int count, char **arguments) {
    (void)arguments;
    memory = map_pages(PAGES);
    if (count > 2) pages_write(memory, PAGES, 1, 1);
}

__attribute__((section(".preinit_array"), used)) static void (*const map_first)(int, char **) = map_early;

static void check_in_child(uint32_t version) {
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        pages_check(memory, PAGES, 1, version, "in the child");
        pages_write(memory, PAGES, 2, version);
        pages_check(memory, PAGES, 2, version, "written in the child");
        _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child);
    if (status != 0) FAIL("the child ended with %d", status);
}

int main(int count, char **arguments) {
    uint32_t rounds = count > 1 ? (uint32_t)atoi(arguments[1]) : 1;
    uint32_t version = count > 2;
    pages_check(memory, PAGES, 1, version, "what was written before main");
    while (version <= rounds) {
        pages_write(memory, PAGES, 1, ++version);
        pages_check(memory, PAGES, 1, version, "what main wrote");
    }
    if (count > 2) check_in_child(version);
    // As an allocator gives back what it needs no more.
    NEED(munmap(memory, PAGES / 2 * PAGE_BYTES) == 0);
    NEED(madvise(memory + PAGES / 2 * PAGE_BYTES, PAGES / 4 * PAGE_BYTES, MADV_DONTNEED) == 0);
    pages_check(memory + PAGES / 2 * PAGE_BYTES, PAGES / 4, 1, 0, "given back");
    puts("whole");
    return 0;
}
