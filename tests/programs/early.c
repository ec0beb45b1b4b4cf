// Memory that was mapped before the first library began, as an allocator's may be. Filled then, too, and found by a
// child, where that is asked for.
// usage: early ROUNDS [fork | locked | reserved]
#include "pattern.h"

#include <sys/wait.h>

enum { PAGES = 32 << 8 };

static char *memory;

// Beyond what is taken for memory in use; a page in so many is.
enum { RESERVED_GIB = 65, RESERVED_STEP = (RESERVED_GIB << 18) / PAGES };

static char *reserved;

static char *reserved_page(size_t page) {
    return reserved + page * RESERVED_STEP * PAGE_BYTES;
}

static void map_early(int count, char **arguments) {
    const char *mode = count > 2 ? arguments[2] : "";
    if (!strcmp(mode, "reserved")) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        reserved = mmap(NULL, (size_t)RESERVED_GIB << 30, PROT_READ | PROT_WRITE, flags, -1, 0);
        NEED(reserved != MAP_FAILED && madvise(reserved, (size_t)RESERVED_GIB << 30, MADV_NOHUGEPAGE) == 0);
        for (size_t i = 0; i < PAGES; i++) page_write(reserved_page(i), page_seed(3, i, 1));
        return;
    }
    memory = map_pages(PAGES);
    if (count > 2) pages_write(memory, PAGES, 1, 1);
    if (!strcmp(mode, "locked")) NEED(mlock(memory, PAGES * PAGE_BYTES) == 0);
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

// What is left alone holds what it held.
static int check_left_alone(void) {
    for (size_t i = 0; i < PAGES; i++) {
        const char *at = reserved ? reserved_page(i) : memory + i * PAGE_BYTES;
        if (!page_holds(at, page_seed(reserved ? 3 : 1, i, 1))) FAIL("page %zu is wrong", i);
    }
    puts("whole");
    return 0;
}

int main(int count, char **arguments) {
    if (count > 2 && strcmp(arguments[2], "fork")) return check_left_alone();
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
