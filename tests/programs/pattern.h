// Memory that knows what it must hold: every page carries words derived from its number and its version.
#ifndef PATTERN_H
#define PATTERN_H

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, PAGE_WORDS = PAGE_BYTES / 8, WORD_STEP = 73 };

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}

// Ends the program: the data is wrong, or a call that must succeed has failed.
#define FAIL(...)                     \
    do {                              \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr);          \
        _exit(99);                    \
    } while (0)

#define NEED(condition)                                                   \
    do {                                                                  \
        if (!(condition)) FAIL("line %d: %s: %m", __LINE__, #condition); \
    } while (0)

// The first word of page `page` in its `version`, of the memory of `owner`. Version 0 is a page of zeros.
static inline uint64_t page_seed(uint64_t owner, uint64_t page, uint32_t version) {
    return version ? mix(owner * 0x9e3779b97f4a7c15ULL + page * 31 + version) | 1 : 0;
}

static inline void page_write(void *at, uint64_t seed) {
    volatile uint64_t *words = at;
    for (int i = 0; i < PAGE_WORDS; i++) words[i] = seed ? seed + i : 0;
}

// Looks at every 73rd word and the last one.
static inline int page_holds(const void *at, uint64_t seed) {
    const volatile uint64_t *words = at;
    for (int i = 0; i < PAGE_WORDS; i += WORD_STEP)
        if (words[i] != (seed ? seed + i : 0)) return 0;
    return words[PAGE_WORDS - 1] == (seed ? seed + PAGE_WORDS - 1 : 0);
}

static inline char *map_pages(size_t pages) {
    char *at = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

static inline void pages_write(char *at, size_t pages, uint64_t owner, uint32_t version) {
    for (size_t i = 0; i < pages; i++) page_write(at + i * PAGE_BYTES, page_seed(owner, i, version));
}

static inline void pages_check(const char *at, size_t pages, uint64_t owner, uint32_t version, const char *what) {
    for (size_t i = 0; i < pages; i++)
        if (!page_holds(at + i * PAGE_BYTES, page_seed(owner, i, version)))
            FAIL("%s: page %zu does not hold version %u", what, i, version);
}

static inline size_t pages_of_mib(const char *text) {
    return (size_t)atol(text) << 20 >> 12;
}

#endif
