// Forks children one after the other, each of which ends at once.
// usage: fork_many COUNT [files | killed | wide]
// With `files`, every descriptor that the process may have is open. With `killed`, some are killed as soon as they are there.
// With `wide`, four processes do so at a time.
#include "pattern.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    NEED(argc >= 2);
    char *memory = map_pages(64);
    pages_write(memory, 64, 1, 1);
    const char *how = argc > 2 ? argv[2] : "";
    if (!strcmp(how, "files")) while (open("/dev/null", O_RDONLY) >= 0) {}
    int is_wide = !strcmp(how, "wide"), kills = is_wide || !strcmp(how, "killed"), is_first = 1;
    for (int i = 0; is_wide && is_first && i < 3; i++) {
        is_first = fork() != 0;
        kills = i & 1;
    }
    for (long i = 0; i < atol(argv[1]); i++) {
        pid_t child = fork();
        if (child == 0) _exit(i & 63);
        NEED(child > 0);
        int status, is_killed = kills && i % 2 == 0 && kill(child, SIGKILL) == 0;
        NEED(waitpid(child, &status, 0) == child);
        if (is_killed && status == SIGKILL) continue;
        if (status != (i & 63) << 8) FAIL("child %ld ended with status 0x%x", i, status);
    }
    pages_check(memory, 64, 1, 1, "memory");
    if (!is_first) _exit(0);
    int status;
    while (is_wide && wait(&status) > 0) NEED(status == 0);
    puts("whole");
    return 0;
}
