// Asks for syscall user dispatch in each way that a program has, and uses its memory then. Says whether it has got it.
// usage: user_dispatch MIB WAYS
// WAYS: 3 with a call past libc, 2 without.
#include "pattern.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { DISPATCH = 59, OFF = 0, ON = 1 };

// Every call is let through, so that nothing is delivered.
static volatile char selector;

static long past_libc(long operation, long mode, long offset, long bytes, long at) {
    register long r10 __asm__("r10") = bytes;
    register long r8 __asm__("r8") = at;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(SYS_prctl), "D"(operation), "S"(mode), "d"(offset), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    if (result < 0) {
        errno = -result;
        return -1;
    }
    return result;
}

static long ask(int way, long mode, long at) {
    if (way == 0) return prctl(DISPATCH, mode, 0, 0, at);
    if (way == 1) return syscall(SYS_prctl, DISPATCH, mode, 0L, 0L, at);
    return past_libc(DISPATCH, mode, 0, 0, at);
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: user_dispatch MIB WAYS");
    size_t pages = pages_of_mib(arguments[1]);
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    int granted = 0, ways = atoi(arguments[2]);
    for (int way = 0; way < ways; way++) {
        long answer = ask(way, ON, (long)&selector);
        NEED(answer == 0 || errno == EINVAL);
        granted += answer == 0;
        pages_check(base, pages, 1, way + 1, "memory with it");
        NEED(ask(way, OFF, 0) == 0);
        NEED(ask(way, OFF, (long)&selector) == -1 && errno == EINVAL);
        pages_write(base, pages, 1, way + 2);
    }
    pages_check(base, pages, 1, ways + 1, "memory in the end");
    // What else the call does is done.
    char name[16] = "";
    NEED(prctl(PR_SET_NAME, "another") == 0 && prctl(PR_GET_NAME, name) == 0);
    NEED(strcmp(name, "another") == 0);
    puts(granted == ways ? "granted" : granted == 0 ? "refused" : "both");
    return 0;
}
