// A link to far memory that others use too: how long a read takes by how much of the link is in use.
//
// It stands for a machine of as many cores as INDIGO's (6.1: 32 on 12.5 GB/s), each of which does what the one program does:
// what that sends counts so many times. A neighbour takes a share of the link in every other second (in the paper a STREAM
// copy, which left 8 of 12.5 GB/s).
#ifndef LINK_H
#define LINK_H

#include <stdint.h>

// Cores for each 10 GB/s.
#define CORES 25
// A read takes twice as long when four fifths are in use: chosen, and what the daemon takes it for.
#define RISE 0.25
// More is never in use: who waits for memory sends less.
#define MOST_SHARE 0.95
// What is new counts for half in what the program itself uses.
#define NEW_WEIGHT 0.5

static inline double loaded_ns(double idle_ns, double share) {
    if (share > MOST_SHARE) share = MOST_SHARE;
    return idle_ns * (1 + RISE * share / (1 - share));
}

static inline int neighbour_is_there(double at_s) { return (uint64_t)at_s % 2 == 1; }

struct link {
    double bytes_per_s, idle_ns, neighbour_share;
    // What the program used of late, and all that is in use.
    double own_share, share;
    double latency_ns;
};

static inline void link_begin(struct link *link, double bytes_per_s, double idle_ns, double neighbour_share) {
    *link = (struct link){bytes_per_s, idle_ns, neighbour_share, 0, 0, idle_ns};
}

// The program sent and received so many bytes in `passed_s` seconds up to `at_s`.
static inline void link_pass(struct link *link, double at_s, double passed_s, double bytes) {
    double own = bytes * CORES / passed_s / link->bytes_per_s;
    link->own_share += NEW_WEIGHT * (own - link->own_share);
    link->share = link->own_share + (neighbour_is_there(at_s) ? link->neighbour_share : 0);
    if (link->share > MOST_SHARE) link->share = MOST_SHARE;
    link->latency_ns = loaded_ns(link->idle_ns, link->share);
}

#endif
