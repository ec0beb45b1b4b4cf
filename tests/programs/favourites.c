// Uses a few of its pages all the time and the others seldom: seven accesses in eight are to the first HOT_MIB.
// usage: favourites MIB HOT_MIB ACCESSES
#include "pattern.h"

int main(int count, char **arguments) {
    if (count != 4) FAIL("usage: favourites MIB HOT_MIB ACCESSES");
    size_t pages = pages_of_mib(arguments[1]), hot = pages_of_mib(arguments[2]);
    size_t accesses = strtoull(arguments[3], NULL, 10);
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    for (uint64_t i = 0; i < accesses; i++) {
        uint64_t random = mix(i + 1);
        size_t page = random % (random >> 61 ? hot : pages);
        if (!page_holds(base + page * PAGE_BYTES, page_seed(1, page, 1))) FAIL("page %zu is wrong", page);
    }
    puts("whole");
    return 0;
}
