// A set-associative cache with least-recently-used replacement, of line numbers.
#ifndef CACHE_H
#define CACHE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64, MOST_WAYS = 64 };

struct cache {
    uint64_t sets;
    unsigned ways;
    // By set, the most recently used first; a line number plus one, 0 where there is none.
    uint64_t *lines;
};

// 0 where the geometry makes no sense or memory is short.
static int cache_init(struct cache *cache, uint64_t bytes, unsigned ways) {
    if (ways == 0 || ways > MOST_WAYS || bytes == 0 || bytes % (LINE_BYTES * (uint64_t)ways) != 0) return 0;
    cache->ways = ways;
    cache->sets = bytes / (LINE_BYTES * (uint64_t)ways);
    cache->lines = calloc(cache->sets * ways, sizeof *cache->lines);
    return cache->lines != NULL;
}

// Whether the line was there; it is now.
static inline int cache_access(struct cache *cache, uint64_t line) {
    uint64_t *set = cache->lines + line % cache->sets * cache->ways;
    uint64_t wanted = line + 1;
    if (set[0] == wanted) return 1;
    unsigned way = 1;
    while (way < cache->ways && set[way] != wanted) way++;
    int hit = way < cache->ways;
    if (!hit) way = cache->ways - 1;
    memmove(set + 1, set, way * sizeof *set);
    set[0] = wanted;
    return hit;
}

#endif
