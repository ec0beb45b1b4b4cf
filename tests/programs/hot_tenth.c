// Accesses memory of which a scattered tenth is hot, for a while, at a steady rate; finds what it wrote; then says which
// share of its accesses goes to node 0, by where its pages lie.
// usage: hot_tenth MIB SECONDS
#include "pattern.h"

#include <sys/syscall.h>
#include <time.h>

enum { HOT_ONE_IN = 10, HOT_AT = 3, HOT_PERCENT = 90, BATCH = 500, PAUSE_NS = 10 * 1000 * 1000, QUERY = 512 };

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static int is_hot(size_t page) { return page % HOT_ONE_IN == HOT_AT; }

static size_t pick(size_t pages) {
    uint64_t random = next_random() >> 8;
    if (next_random() % 100 < HOT_PERCENT) return random % (pages / HOT_ONE_IN) * HOT_ONE_IN + HOT_AT;
    return random % pages;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// Pages on node 0: of the hot ones, and of all.
static void count_local(char *at, size_t pages, size_t *hot_local, size_t *all_local) {
    void *addresses[QUERY];
    int nodes[QUERY];
    for (size_t first = 0; first < pages; first += QUERY) {
        size_t count = pages - first < QUERY ? pages - first : QUERY;
        for (size_t i = 0; i < count; i++) addresses[i] = at + (first + i) * PAGE_BYTES;
        NEED(syscall(SYS_move_pages, 0, count, addresses, NULL, nodes, 0) == 0);
        for (size_t i = 0; i < count; i++) {
            *all_local += nodes[i] == 0;
            *hot_local += nodes[i] == 0 && is_hot(first + i);
        }
    }
}

int main(int argc, char **argv) {
    NEED(argc == 3);
    size_t pages = (strtoul(argv[1], NULL, 10) << 20) / PAGE_BYTES;
    char *at = map_pages(pages);
    for (size_t page = 0; page < pages; page++) *(volatile uint64_t *)(at + page * PAGE_BYTES) = page;
    double end_s = now_s() + strtod(argv[2], NULL);
    uint64_t accesses = 0;
    while (now_s() < end_s) {
        for (int i = 0; i < BATCH; i++, accesses++) {
            size_t page = pick(pages);
            if (*(volatile uint64_t *)(at + page * PAGE_BYTES) != page) FAIL("page %zu is wrong", page);
        }
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
    }
    for (size_t page = 0; page < pages; page++)
        if (*(volatile uint64_t *)(at + page * PAGE_BYTES) != page) FAIL("page %zu is wrong at the end", page);
    size_t hot_local = 0, all_local = 0, hot = (pages + HOT_ONE_IN - 1 - HOT_AT) / HOT_ONE_IN;
    count_local(at, pages, &hot_local, &all_local);
    double ratio = (HOT_PERCENT * (double)hot_local / hot + (100 - HOT_PERCENT) * (double)all_local / pages) / 100;
    printf("{\"pages\": %zu, \"pages_local\": %zu, \"hot_local\": %zu, \"accesses\": %llu, \"local_hit_ratio\": %.4f}\n",
           pages, all_local, hot_local, (unsigned long long)accesses, ratio);
    return 0;
}
