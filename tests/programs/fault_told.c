// Uses its memory in one way until SIGTERM comes, which it notes and heeds as soon as it can: a test has it hang first.
// usage: fault_told MIB WAY, where WAY is touch, copy or fork
#include "pattern.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int signal) {
    (void)signal;
    asked_to_end = 1;
}

int main(int argc, char **argv) {
    NEED(argc == 3);
    size_t pages = pages_of_mib(argv[1]);
    int zero = open("/dev/zero", O_RDONLY);
    struct sigaction action = {.sa_handler = ask_to_end, .sa_flags = SA_RESTART};
    NEED(zero >= 0 && sigaction(SIGTERM, &action, NULL) == 0);
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    for (uint64_t round = 0, random = 1; !asked_to_end; random = mix(random + 1)) {
        char *at = base + random % pages * PAGE_BYTES;
        if (!strcmp(argv[2], "touch")) {
            page_write(at, random | 1);
        } else if (!strcmp(argv[2], "copy")) {
            NEED(read(zero, at, PAGE_BYTES) == PAGE_BYTES);
        } else {
            page_write(at, random | 1);
            pid_t child = fork();
            if (child == 0) _exit(0);
            NEED(child > 0 && waitpid(child, NULL, 0) == child);
        }
        if (++round % 64 == 0) {
            puts("on");
            fflush(stdout);
        }
    }
    puts("told");
    return 0;
}
