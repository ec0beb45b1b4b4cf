// Reads memory at random by one function that two others call, one of them seven times as often. No function has a
// frame pointer. Ends at SIGUSR1.
// usage: callers MIB
// With -DMANGLED its functions have the names that compilers of C++ and Rust would write.
#include "pattern.h"

#include <signal.h>

static volatile sig_atomic_t told_to_end;

static void end_soon(int signal) {
    told_to_end = signal;
}

// Neither inlined nor called last, so that each has a frame.
#define OWN_FRAME __attribute__((noinline, noclone))
#define AND_GO_ON __asm__ volatile("" ::: "memory")

#ifdef MANGLED
uint64_t reads_a_page(const char *at) __asm__("_ZN4book5pages4readEPKc");
uint64_t calls_often(const char *at) __asm__("_ZN4book5often17h05af221e174051e9E");
uint64_t calls_seldom(const char *at) __asm__("_RNvCs15kBYyAo9fc_4book6seldom");
#endif

OWN_FRAME uint64_t reads_a_page(const char *at) {
    uint64_t value = *(const volatile uint64_t *)at;
    AND_GO_ON;
    return value;
}

OWN_FRAME uint64_t calls_often(const char *at) {
    uint64_t value = reads_a_page(at);
    AND_GO_ON;
    return value + 1;
}

OWN_FRAME uint64_t calls_seldom(const char *at) {
    uint64_t value = reads_a_page(at);
    AND_GO_ON;
    return value + 2;
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: callers MIB");
    size_t pages = pages_of_mib(arguments[1]);
    NEED(signal(SIGUSR1, end_soon) != SIG_ERR);
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    puts("ready");
    fflush(stdout);
    uint64_t sum = 0;
    for (uint64_t random = 1; !told_to_end; random = mix(random + 1)) {
        const char *at = base + random % pages * PAGE_BYTES;
        sum += random >> 60 & 7 ? calls_often(at) : calls_seldom(at);
    }
    pages_check(base, pages, 1, 1, "everything");
    puts(sum ? "whole" : "nothing was read");
    return 0;
}
