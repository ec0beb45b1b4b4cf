// Large .bss and .data, read and written at random. usage: segments ROUNDS
#include "pattern.h"

enum { PAGES = 48 << 8 };

static char zeroed[PAGES * PAGE_BYTES] __attribute__((aligned(4096)));
// Initialised in the file: word i of page p holds p * PAGE_WORDS + i + 1 only where the initialiser says so.
static uint64_t initialised[PAGES * PAGE_WORDS] __attribute__((aligned(4096))) = {
    [0] = 11, [PAGES * PAGE_WORDS / 2] = 22, [PAGES * PAGE_WORDS - 1] = 33};

static void check_initialised(void) {
    for (size_t i = 0; i < PAGES * (size_t)PAGE_WORDS; i++) {
        uint64_t want = i == 0 ? 11 : i == PAGES * PAGE_WORDS / 2 ? 22 : i == PAGES * PAGE_WORDS - 1 ? 33 : 0;
        if (initialised[i] != want) FAIL(".data: word %zu holds %lu, not %lu", i, initialised[i], want);
    }
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    pages_check(zeroed, PAGES, 1, 0, ".bss at the start");
    check_initialised();
    for (int round = 1; round <= rounds; round++) {
        pages_write(zeroed, PAGES, 1, round);
        pages_write((char *)initialised, PAGES, 2, round);
        pages_check(zeroed, PAGES, 1, round, ".bss");
        pages_check((char *)initialised, PAGES, 2, round, ".data");
    }
    puts("whole");
    return 0;
}
