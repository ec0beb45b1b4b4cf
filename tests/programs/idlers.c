// Children that have written memory and wait, beside a parent that uses its own all the time.
// usage: idlers CHILDREN IDLE_MIB BUSY_MIB ROUNDS
#include <sys/wait.h>

#include "pattern.h"

static void idle(size_t pages, uint64_t owner, int ready, int go) {
    char *base = map_pages(pages), byte = 0;
    pages_write(base, pages, owner, 1);
    NEED(write(ready, &byte, 1) == 1);
    NEED(read(go, &byte, 1) == 0);
    for (size_t page = 0; page < pages; page++)
        if (!page_holds(base + page * PAGE_BYTES, page_seed(owner, page, 1))) FAIL("child %lu: page %zu", owner, page);
    _exit(0);
}

int main(int count, char **arguments) {
    if (count != 5) FAIL("usage: idlers CHILDREN IDLE_MIB BUSY_MIB ROUNDS");
    uint64_t children = strtoull(arguments[1], NULL, 10), rounds = strtoull(arguments[4], NULL, 10);
    size_t idle_pages = pages_of_mib(arguments[2]), pages = pages_of_mib(arguments[3]);
    int ready[2], go[2];
    NEED(pipe(ready) == 0 && pipe(go) == 0);
    for (uint64_t child = 1; child <= children; child++) {
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0) {
            close(go[1]);
            idle(idle_pages, child, ready[1], go[0]);
        }
        char byte;
        NEED(read(ready[0], &byte, 1) == 1);
    }
    char *base = map_pages(pages);
    pages_write(base, pages, 100, 1);
    for (uint64_t i = 0; i < rounds * pages; i++) {
        size_t page = mix(i + 1) % pages;
        if (!page_holds(base + page * PAGE_BYTES, page_seed(100, page, 1))) FAIL("page %zu is wrong", page);
    }
    close(go[1]);
    for (uint64_t child = 0; child < children; child++) {
        int status;
        NEED(wait(&status) > 0);
        if (status != 0) FAIL("a child ended with %d", status);
    }
    puts("whole");
    return 0;
}
