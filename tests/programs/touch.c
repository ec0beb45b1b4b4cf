// Touches memory for the first time, and nothing else: `read` it, `write` it, `add` to what is read, or write a sixteenth
// of it and give that back again and again.
// usage: touch MIB read|write|add|again [ROUNDS]
#include "pattern.h"

int main(int count, char **arguments) {
    if (count < 3) FAIL("usage: touch MIB read|write|add|again [ROUNDS]");
    size_t pages = pages_of_mib(arguments[1]);
    int rounds = count > 3 ? atoi(arguments[3]) : 1;
    char *base = map_pages(pages);
    if (strcmp(arguments[2], "again") == 0) pages /= 16;
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < pages; i++) {
            volatile uint64_t *word = (uint64_t *)(base + i * PAGE_BYTES);
            if (strcmp(arguments[2], "add") == 0) word[1] += i + 1;
            else if (strcmp(arguments[2], "read") != 0) word[1] = i + 1;
            if (word[0] != 0) FAIL("page %zu is not zero", i);
        }
        for (size_t i = 0; i < pages && strcmp(arguments[2], "read") != 0; i++)
            if (((volatile uint64_t *)(base + i * PAGE_BYTES))[1] != i + 1) FAIL("page %zu is wrong", i);
        if (strcmp(arguments[2], "again") == 0) NEED(!madvise(base, pages * PAGE_BYTES, MADV_DONTNEED));
    }
    puts("whole");
    return 0;
}
