// A process is killed while a write of its pages is on its way, and the next one uses as much memory. Each page
// must be what was written there last, also once that write has been done.
// usage: ends_writing MIB [IN_FLIGHT_FILE DONE_FILE]
// The files are made by whoever runs this, when a write is on its way, and when it has been done. Without them it is
// the process that is to be killed.
#include "pattern.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static int is_there(const char *path) { return access(path, F_OK) == 0; }

static void write_for_ever(size_t pages) {
    char *base = map_pages(pages);
    for (;;) memset(base, 0xA5, pages * PAGE_BYTES);
}

int main(int count, char **arguments) {
    if (count != 2 && count != 4) FAIL("usage: ends_writing MIB [IN_FLIGHT_FILE DONE_FILE]");
    size_t pages = pages_of_mib(arguments[1]);
    if (count == 2) write_for_ever(pages);
    pid_t first = fork();
    NEED(first >= 0);
    if (first == 0) write_for_ever(pages);
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
