// What the guest and the emulator share: a memory file, in the guest the BAR of an ivshmem device.
#ifndef COUNTERS_H
#define COUNTERS_H

#include <stdint.h>

#define COUNTERS_MAGIC 0x52544e43574c5053ull // "SPLWCNTR"

enum { CONTROL_COUNT = 1, CONTROL_COUNT_PAGES = 2 };
enum { COUNTERS_BYTES = 1 << 20, PAGE_COUNTS_AT = 4096, MOST_PAGES = 1 << 16 };

// Misses of the last-level cache since the start, by who served them; `docs/operate/tier.md` has the first three words for
// any device.
struct counters {
    uint64_t magic;
    uint64_t local;
    uint64_t far;
    // The workload's accesses to the cache: those to the line that it accessed just before are left out.
    uint64_t accesses;
    // One access of so many is counted.
    uint64_t sample;
    // The guest's: what is counted at present.
    uint64_t control;
};

// Where the workload's memory lies, all of it; misses of its page n are counted in word n of the page counts.
#define AREA_START 0x300000000ull
// Where the workload's code lies: only this is modelled.
#define CODE_START 0x20000000ull
#define CODE_END 0x20400000ull

// HotBox, Table 1, at 2.6 GHz: 30 cycles for any access, and the rest of 210 for one that local memory serves.
#define CACHE_NS 11.5
#define LOCAL_NS 70.0

#endif
