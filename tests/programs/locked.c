// Locks memory, which is then no business of Spillway's, beside memory that is. usage: locked MIB_LOCKED MIB_FREE [all]
#include "pattern.h"

#include <sys/wait.h>

static void lock_all(const char *memory, size_t pages) {
    NEED(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    char *later = map_pages(256);
    pages_write(later, 256, 3, 1);
    pages_check(memory, pages, 2, 1, "memory locked by mlockall");
    pages_check(later, 256, 3, 1, "memory mapped under MCL_FUTURE");
    NEED(munlockall() == 0);
}

int main(int count, char **arguments) {
    NEED(count >= 3);
    size_t locked_pages = pages_of_mib(arguments[1]), free_pages = pages_of_mib(arguments[2]);
    char *locked = map_pages(locked_pages), *free_memory = map_pages(free_pages);
    pages_write(locked, locked_pages, 1, 1);
    NEED(mlock(locked, locked_pages * PAGE_BYTES) == 0);
    pages_write(free_memory, free_pages, 2, 1);
    pages_check(locked, locked_pages, 1, 1, "locked memory");
    pages_check(free_memory, free_pages, 2, 1, "other memory");
    unsigned char *resident = malloc(locked_pages);
    NEED(mincore(locked, locked_pages * PAGE_BYTES, resident) == 0);
    for (size_t i = 0; i < locked_pages; i++)
        if (!(resident[i] & 1)) FAIL("locked page %zu is not resident", i);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        pages_check(locked, locked_pages, 1, 1, "locked memory, in a forked child");
        pages_check(free_memory, free_pages, 2, 1, "other memory, in a forked child");
        _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    NEED(munlock(locked, locked_pages * PAGE_BYTES) == 0);
    pages_check(locked, locked_pages, 1, 1, "memory that was locked");
    if (count > 3) lock_all(free_memory, free_pages);
    puts("whole");
    return 0;
}
