// The only program of a guest: a table of most of the guest's memory, filled, then changed all over in a drawn order, and
// looked at as a whole; prints what it comes to and powers off.
// usage, as the kernel's parameters: table_mib=N changes=N   N changes of each page's worth of the table
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <unistd.h>

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

// The kernel gives init the parameters that it does not know itself as its environment.
static uint64_t parameter(const char *name) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : 0;
}

int main(void) {
    uint64_t bytes = parameter("table_mib") << 20, words = bytes / sizeof(uint64_t);
    uint64_t changes = parameter("changes") * (bytes / 4096), sum = 0;
    uint64_t *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes != 0 && table != MAP_FAILED) {
        for (uint64_t word = 0; word < words; word++) table[word] = word * 0x9e3779b97f4a7c15ull;
        for (uint64_t change = 1; change <= changes; change++) {
            uint64_t draw = mix(change);
            // The lesser of two draws prefers the table's beginning.
            uint64_t a = draw % words, b = (draw >> 20) % words;
            table[a < b ? a : b] += draw;
        }
        for (uint64_t word = 0; word < words; word++) sum = sum * 31 + table[word];
        printf("the table comes to %016lx after %lu changes\n", sum, changes);
    }
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
