// Reads its memory from the last page to the first, again and again, and writes some of it. Each page is checked
// as it is reached.
// usage: downwards MIB ROUNDS
#include "pattern.h"

enum { WRITES_ONE_IN = 16 };

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: downwards MIB ROUNDS");
    size_t pages = pages_of_mib(arguments[1]);
    char *base = map_pages(pages);
    uint32_t *version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    pages_write(base, pages, 1, 1);
    for (size_t page = 0; page < pages; page++) version[page] = 1;
    uint64_t random = 1;
    for (int round = 0; round < atoi(arguments[2]); round++) {
        for (size_t page = pages; page-- > 0;) {
            char *at = base + page * PAGE_BYTES;
            if (!page_holds(at, page_seed(1, page, version[page]))) FAIL("page %zu does not hold version %u", page, version[page]);
            random = mix(random + 1);
            if (random % WRITES_ONE_IN == 0) page_write(at, page_seed(1, page, ++version[page]));
        }
    }
    puts("whole");
    return 0;
}
