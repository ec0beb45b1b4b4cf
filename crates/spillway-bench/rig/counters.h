// What the guest and the emulator share: a memory file, in the guest the BAR of an ivshmem device.
#ifndef COUNTERS_H
#define COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#define COUNTERS_MAGIC 0x52544e43574c5053ull // "SPLWCNTR"

enum { CONTROL_COUNT = 1, CONTROL_COUNT_PAGES = 2 };
enum { COUNTERS_BYTES = 1 << 20, PAGE_COUNTS_AT = 4096, MOST_PAGES = 1 << 16 };
// The ring of samples lies behind the page counts: to the end of the file.
enum { SAMPLES_AT = 1 << 19, MOST_SAMPLES = 1 << 15 };

#define LINK_MAGIC 0x4b4e494c574c5053ull // "SPLWLINK"

// The link to far memory. `docs/operate/tier.md` has the first six words for any device.
struct link_counters {
    uint64_t magic;
    // All that it can carry.
    uint64_t bytes_per_s;
    // A read of far memory: over the idle link, and at present.
    uint64_t idle_ns, latency_ns;
    // What it has carried so far: all of it, and this machine's part.
    uint64_t carried_bytes, own_bytes;
    // 1: its latency rises with what it carries, as link.h says.
    uint64_t is_shared;
    // What a neighbour takes of it while it is there, in percent.
    uint64_t neighbour_pct;
};

#define SAMPLES_MAGIC 0x504d4153574c5053ull // "SPLWSAMP"

// Samples of the misses, as PEBS would take them; `docs/operate/tier.md` has all of it for any device.
struct sample_words {
    uint64_t magic, version;
    // Where the ring begins, in bytes, and how many records it has.
    uint64_t ring_at, records;
    // What a sample costs the program.
    uint64_t sample_ns;
    // The reader's: one miss in so many is sampled; records taken so far.
    uint64_t period, read;
    // The sampler's: records written so far, and samples for which there was no room.
    uint64_t written, lost;
    // The workload's: its process.
    uint64_t process;
};

struct sample_record {
    uint64_t address;
    // The process in the lower half; above it what kind of access it was.
    uint64_t process_and_flags;
};

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
    uint64_t unused[2];
    struct link_counters link;
    struct sample_words samples;
};

_Static_assert(offsetof(struct counters, link) == 64, "docs/operate/tier.md says where the link's counters begin");
_Static_assert(offsetof(struct counters, samples) == 128, "docs/operate/tier.md says where the samples begin");
_Static_assert(SAMPLES_AT + MOST_SAMPLES * sizeof(struct sample_record) == COUNTERS_BYTES, "the ring fits");
_Static_assert(PAGE_COUNTS_AT + MOST_PAGES * 4 <= SAMPLES_AT, "the ring lies behind the page counts");

// Where the workload's memory lies, all of it; misses of its page n are counted in word n of the page counts.
#define AREA_START 0x300000000ull
// Where the workload's code lies: only this is modelled.
#define CODE_START 0x20000000ull
#define CODE_END 0x20400000ull

// HotBox, Table 1, at 2.6 GHz: 30 cycles for any access, and the rest of 210 for one that local memory serves.
#define CACHE_NS 11.5
#define LOCAL_NS 70.0

#endif
