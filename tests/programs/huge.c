// Fills a part of its memory, waits until some of it lies in huge pages, then fills the rest and checks everything.
// usage: huge MIB FIRST_MIB
#include "pattern.h"

#include <time.h>

static long huge_kib(const char *at) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    NEED(maps);
    char line[512];
    long found = 0, kib;
    unsigned long from = 0, to = 0, next_from, next_to;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &next_from, &next_to) == 2) from = next_from, to = next_to;
        if ((unsigned long)at >= from && (unsigned long)at < to && sscanf(line, "AnonHugePages: %ld", &kib) == 1) found = kib;
    }
    fclose(maps);
    return found;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: huge MIB FIRST_MIB");
    size_t pages = pages_of_mib(arguments[1]), first = pages_of_mib(arguments[2]);
    char *base = map_pages(pages);
    pages_write(base, first, 1, 1);
    time_t end = time(NULL) + 100;
    while (huge_kib(base + first * PAGE_BYTES / 2) == 0) {
        if (time(NULL) >= end) FAIL("no huge page within 100 s");
        struct timespec moment = {0, 50000000};
        nanosleep(&moment, NULL);
    }
    pages_check(base, first, 1, 1, "in huge pages");
    pages_write(base + first * PAGE_BYTES, pages - first, 2, 1);
    pages_check(base, first, 1, 1, "evicted from huge pages");
    pages_check(base + first * PAGE_BYTES, pages - first, 2, 1, "the rest");
    puts("whole");
    return 0;
}
