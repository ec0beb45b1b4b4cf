// Where frames lie: pins itself to a CPU, writes memory, reads it again out of order and in order, and prints how many of its pages
// then lie on which node. With more threads each does so on a CPU of its own, all at once.
// usage: placement MIB CPU...
#include "pattern.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

enum { MOST_THREADS = 8, MOST_NODES = 8 };

static uint64_t pages;

struct part {
    pthread_t thread;
    int cpu;
    uint64_t *memory;
    long on_node[MOST_NODES];
};

static uint64_t *page_at(struct part *part, uint64_t page) { return part->memory + page * PAGE_WORDS; }

static void count_nodes(struct part *part) {
    for (uint64_t page = 0; page < pages; page++) {
        void *address = page_at(part, page);
        int node = -1;
        NEED(syscall(SYS_move_pages, 0, 1, &address, NULL, &node, 0) == 0);
        if (node >= 0 && node < MOST_NODES) part->on_node[node]++;
    }
}

static void *work(void *argument) {
    struct part *part = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(part->cpu, &set);
    NEED(sched_setaffinity(0, sizeof set, &set) == 0);
    for (uint64_t page = 0; page < pages; page++) *page_at(part, page) = mix(page) | 1;
    for (uint64_t step = 0; step < pages; step++) {
        // An odd factor passes over all pages of a power of two.
        uint64_t page = step * 0x9e3779b1 % pages;
        if (*page_at(part, page) != (mix(page) | 1)) FAIL("page %lu is wrong", page);
    }
    count_nodes(part);
    for (uint64_t page = 0; page < pages; page++)
        if (*page_at(part, page) != (mix(page) | 1)) FAIL("page %lu is wrong", page);
    count_nodes(part);
    return NULL;
}

int main(int argc, char **argv) {
    NEED(argc > 2 && argc - 2 <= MOST_THREADS);
    int count = argc - 2;
    pages = strtoul(argv[1], NULL, 10) * 256;
    static struct part parts[MOST_THREADS];
    for (int i = 0; i < count; i++) {
        parts[i].cpu = atoi(argv[i + 2]);
        parts[i].memory = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(parts[i].memory != MAP_FAILED);
    }
    // One works on the first thread: a process of one thread.
    for (int i = 1; i < count; i++) NEED(pthread_create(&parts[i].thread, NULL, work, &parts[i]) == 0);
    work(&parts[0]);
    for (int i = 1; i < count; i++) NEED(pthread_join(parts[i].thread, NULL) == 0);
    for (int i = 0; i < count; i++) {
        printf("cpu %d:", parts[i].cpu);
        for (int node = 0; node < 2; node++) printf(" %ld", parts[i].on_node[node]);
        printf("\n");
    }
    return 0;
}
