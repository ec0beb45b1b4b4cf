// The sampler's end of the ring of samples. Nobody waits for anybody: what finds it full is lost, and counted.
#ifndef SAMPLES_H
#define SAMPLES_H

#include "counters.h"

enum { SAMPLES_VERSION = 1 };
#define SAMPLE_STORE (1ull << 32)
#define SAMPLE_FAR (1ull << 33)
// What PEBS takes for a sample: chosen, as in the lab (`sample_ns`).
#define SAMPLE_NS 200

static inline void samples_begin(volatile struct sample_words *words) {
    words->version = SAMPLES_VERSION;
    words->ring_at = SAMPLES_AT;
    words->records = MOST_SAMPLES;
    words->sample_ns = SAMPLE_NS;
    __atomic_store_n(&words->magic, SAMPLES_MAGIC, __ATOMIC_RELEASE);
}

// Whether the miss is a sample, of which each that is seen stands for `misses`.
static inline int samples_is_next(volatile struct sample_words *words, uint64_t misses, uint64_t *since) {
    uint64_t period = words->period;
    if (period == 0) return 0;
    *since += misses;
    if (*since < period) return 0;
    *since = *since - period < period ? *since - period : 0;
    return 1;
}

// The ring is where this program knows it to be, whatever the other end may have written into the words.
static inline void samples_push(volatile struct sample_words *words, volatile struct sample_record *ring, uint64_t address,
                                uint64_t flags) {
    uint64_t written = words->written;
    if (written - __atomic_load_n(&words->read, __ATOMIC_ACQUIRE) >= MOST_SAMPLES) {
        words->lost++;
        return;
    }
    volatile struct sample_record *record = ring + written % MOST_SAMPLES;
    record->address = address;
    record->process_and_flags = (uint32_t)words->process | flags;
    __atomic_store_n(&words->written, written + 1, __ATOMIC_RELEASE);
}

#endif
