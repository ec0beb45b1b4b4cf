// Forks children one after the other, each of which ends at once.
// usage: fork_many COUNT [files]
// With `files`, every descriptor that the process may have is open.
#include "pattern.h"

#include <fcntl.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    NEED(argc >= 2);
    char *memory = map_pages(64);
    pages_write(memory, 64, 1, 1);
    if (argc > 2) while (open("/dev/null", O_RDONLY) >= 0) {}
    for (long i = 0; i < atol(argv[1]); i++) {
        pid_t child = fork();
        if (child == 0) _exit(i & 63);
        NEED(child > 0);
        int status;
        NEED(waitpid(child, &status, 0) == child);
        if (status != (i & 63) << 8) FAIL("child %ld ended with status 0x%x", i, status);
    }
    pages_check(memory, 64, 1, 1, "memory");
    puts("whole");
    return 0;
}
