// Writes memory, checks it, and says so; then goes on reading and writing it at random for a while, or until SIGUSR1.
// usage: hold MIB SECONDS
#include "pattern.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t told_to_end;

static void end_soon(int signal) {
    told_to_end = signal;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: hold MIB SECONDS");
    size_t pages = pages_of_mib(arguments[1]);
    NEED(signal(SIGUSR1, end_soon) != SIG_ERR);
    time_t end = time(NULL) + atoi(arguments[2]);
    char *base = map_pages(pages);
    uint32_t *version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    pages_write(base, pages, 1, 1);
    pages_check(base, pages, 1, 1, "everything");
    for (size_t i = 0; i < pages; i++) version[i] = 1;
    puts("ready");
    fflush(stdout);
    for (uint64_t random = 1; time(NULL) < end && !told_to_end; random = mix(random + 1)) {
        size_t page = random % pages;
        char *at = base + page * PAGE_BYTES;
        if (!page_holds(at, page_seed(1, page, version[page]))) FAIL("page %zu is wrong", page);
        if (random >> 60 & 1) page_write(at, page_seed(1, page, ++version[page]));
    }
    puts("whole");
    return 0;
}
