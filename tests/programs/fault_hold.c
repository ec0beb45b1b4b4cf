// Fills memory, says where it lies, then reads and rewrites it at random and verifies what it reads, until SIGTERM
// comes; then checks everything once more. Tells how far it is, so that a test sees whether it goes on.
// usage: fault_hold MIB [CHILDREN]
#include "pattern.h"

#include <signal.h>
#include <sys/wait.h>

enum { VISITS_PER_LINE = 512 };

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int signal) {
    (void)signal;
    asked_to_end = 1;
}

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

static void work(char *base, uint32_t *version, size_t pages, uint64_t seed) {
    uint64_t visits = 0;
    for (uint64_t random = mix(seed + 1); !asked_to_end; random = mix(random + 1)) {
        size_t page = random % pages;
        char *at = base + page * PAGE_BYTES;
        if (!page_holds(at, page_seed(1, page, version[page]))) FAIL("page %zu is wrong", page);
        if (random >> 61 & 1) page_write(at, page_seed(1, page, ++version[page]));
        if (++visits % VISITS_PER_LINE == 0) say("on");
    }
    for (size_t page = 0; page < pages; page++)
        if (!page_holds(base + page * PAGE_BYTES, page_seed(1, page, version[page]))) FAIL("page %zu is wrong", page);
    say("whole");
}

int main(int count, char **arguments) {
    if (count < 2) FAIL("usage: fault_hold MIB [CHILDREN]");
    size_t pages = pages_of_mib(arguments[1]);
    int children = count > 2 ? atoi(arguments[2]) : 0;
    struct sigaction action = {.sa_handler = ask_to_end};
    NEED(sigaction(SIGTERM, &action, NULL) == 0);
    char *base = map_pages(pages);
    uint32_t *version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    pages_write(base, pages, 1, 1);
    for (size_t page = 0; page < pages; page++) version[page] = 1;
    printf("ready %#lx %zu\n", (unsigned long)base, pages * PAGE_BYTES);
    fflush(stdout);
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            work(base, version, pages, 100 + i);
            _exit(0);
        }
    }
    work(base, version, pages, 1);
    for (int status; wait(&status) > 0;)
        if (status != 0) FAIL("a child ended with %#x", status);
    return 0;
}
