// Two threads walk through memory of their own in strides: every so many pages, backwards, and in rounds of distances, as
// matrices whose rows are no whole number of pages do. Each page is checked as it is reached, and some are written.
// usage: strides MIB ROUNDS
#include "pattern.h"

#include <pthread.h>

enum { THREADS = 2, WRITES_ONE_IN = 16 };

static const int walks[][3] = {{7, 7, 7}, {3, 4, 3}, {11, -4, 9}};

static char *base;
static size_t pages;
static uint32_t *version;
static int rounds;

static void step(size_t page, uint64_t random) {
    char *at = base + page * PAGE_BYTES;
    if (!page_holds(at, page_seed(1, page, version[page]))) FAIL("page %zu does not hold version %u", page, version[page]);
    if (random % WRITES_ONE_IN == 0) page_write(at, page_seed(1, page, ++version[page]));
}

static void *walker(void *argument) {
    size_t number = (uintptr_t)argument, first = number * (pages / THREADS), end = first + pages / THREADS;
    uint64_t random = number;
    for (int round = 0; round < rounds; round++) {
        for (size_t page = end; page-- > first;) step(page, random = mix(random + 1));
        const int *walk = walks[round % 3];
        for (int start = 0; start < 4; start++) {
            size_t page = first + start;
            for (int i = 0; page < end; page += walk[i++ % 3]) step(page, random = mix(random + 1));
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: strides MIB ROUNDS");
    pages = pages_of_mib(arguments[1]);
    rounds = atoi(arguments[2]);
    base = map_pages(pages);
    version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    pages_write(base, pages, 1, 1);
    for (size_t i = 0; i < pages; i++) version[i] = 1;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) NEED(!pthread_create(&threads[i], NULL, walker, (void *)i));
    for (int i = 0; i < THREADS; i++) NEED(!pthread_join(threads[i], NULL));
    puts("whole");
    return 0;
}
