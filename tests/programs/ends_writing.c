// A process is killed while a write of its pages is on its way, and the next one uses as much memory. Each page
// must be what was written there last, also once that write has been done.
// usage: ends_writing MIB IN_FLIGHT_FILE DONE_FILE
// The files are made by whoever runs this, when a write is on its way, and when it has been done.
#include "pattern.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static int is_there(const char *path) { return access(path, F_OK) == 0; }

int main(int count, char **arguments) {
    if (count != 4) FAIL("usage: ends_writing MIB IN_FLIGHT_FILE DONE_FILE");
    size_t pages = pages_of_mib(arguments[1]);
    pid_t first = fork();
    NEED(first >= 0);
    if (first == 0) {
        char *base = map_pages(pages);
        for (;;) memset(base, 0xA5, pages * PAGE_BYTES);
    }
    while (!is_there(arguments[2])) usleep(1000);
    NEED(!kill(first, SIGKILL));
    NEED(waitpid(first, NULL, 0) == first);
    pid_t second = fork();
    NEED(second >= 0);
    if (second == 0) {
        char *base = map_pages(pages);
        pages_write(base, pages, 2, 1);
        int is_done;
        do {
            is_done = is_there(arguments[3]);
            pages_check(base, pages, 2, 1, "memory of the second process");
        } while (!is_done);
        _exit(0);
    }
    int status;
    NEED(waitpid(second, &status, 0) == second);
    if (status != 0) FAIL("the second process ended with status 0x%x", status);
    puts("whole");
    return 0;
}
