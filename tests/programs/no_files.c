// Closes all file descriptors, as daemons do, and works on. The exit status is the only thing it can say.
// usage: no_files MIB
#include "pattern.h"

int main(int count, char **arguments) {
    size_t pages = pages_of_mib(count > 1 ? arguments[1] : "32");
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    closefrom(0);
    pages_check(base, pages, 1, 1, "before");
    pages_write(base, pages, 1, 2);
    for (int fd = 0; fd < 4096; fd++) close(fd);
    pages_check(base, pages, 1, 2, "after");
    // The numbers are free for the program's own use.
    int ends[2];
    NEED(pipe(ends) == 0 && ends[0] == 0 && ends[1] == 1);
    char *more = map_pages(pages);
    pages_write(more, pages, 2, 1);
    NEED(munmap(base, pages * PAGE_BYTES) == 0);
    pages_check(more, pages, 2, 1, "new memory");
    return 42;
}
