// Reads more than it writes, so that pages are evicted unchanged: each read must find the last write, whatever the
// process did in between: writes by other threads, forks, moves, changes of protection, discards past libc.
// usage: reread MIB ROUNDS
#include "pattern.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS = 2, WRITES_ONE_IN = 16 };

static char *base;
static size_t pages;
static uint32_t *version;
static int rounds;

static void step(size_t page, uint64_t random) {
    char *at = base + page * PAGE_BYTES;
    if (!page_holds(at, page_seed(1, page, version[page]))) FAIL("page %zu does not hold version %u", page, version[page]);
    if (random % WRITES_ONE_IN == 0) page_write(at, page_seed(1, page, ++version[page]));
}

// Pages are divided among the threads.
static void *reader(void *argument) {
    uint64_t number = (uintptr_t)argument;
    for (uint64_t i = 0; i < (uint64_t)rounds * pages; i++) {
        uint64_t random = mix(number << 40 | i);
        step(random % (pages / THREADS) * THREADS + number, random >> 40);
    }
    return NULL;
}

static void by_threads(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) NEED(!pthread_create(&threads[i], NULL, reader, (void *)i));
    for (int i = 0; i < THREADS; i++) NEED(!pthread_join(threads[i], NULL));
}

static void in_parent_and_child(void) {
    pid_t child = fork();
    NEED(child >= 0);
    for (uint64_t i = 0; i < pages; i++) step(mix(i ^ (child ? 0 : 77)) % pages, mix(i + 5));
    if (child == 0) _exit(0);
    int status;
    NEED(waitpid(child, &status, 0) == child);
    if (status != 0) FAIL("the child ended with status 0x%x", status);
}

static void moved_and_protected(void) {
    char *there = mremap(base, pages * PAGE_BYTES, pages * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, map_pages(pages));
    NEED(there != MAP_FAILED);
    base = there;
    for (size_t page = 0; page < pages; page++) step(page, page);
    NEED(!mprotect(base, pages * PAGE_BYTES, PROT_READ));
    for (size_t page = 0; page < pages; page++) step(page, 1);
    NEED(!mprotect(base, pages * PAGE_BYTES, PROT_READ | PROT_WRITE));
    for (size_t page = 0; page < pages; page++) step(page, page + 3);
}

static void discarded_past_libc(void) {
    size_t some = pages / 8;
    for (size_t page = 0; page < some; page++) step(page, 1);
    long result, number = SYS_madvise;
    register long advice __asm__("rdx") = MADV_DONTNEED;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(base), "S"(some * PAGE_BYTES), "r"(advice) : "rcx", "r11", "memory");
    NEED(result == 0);
    // What was local reads as zeros; what was far when it was discarded comes back, as past our hooks it must.
    for (size_t page = 0; page < some; page++)
        if (page_holds(base + page * PAGE_BYTES, 0)) version[page] = 0;
    for (size_t page = some; page < pages; page++) step(page, 1);
    for (size_t page = 0; page < some; page++) step(page, 1);
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: reread MIB ROUNDS");
    pages = pages_of_mib(arguments[1]);
    rounds = atoi(arguments[2]);
    base = map_pages(pages);
    version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    for (size_t page = 0; page < pages; page++) page_write(base + page * PAGE_BYTES, page_seed(1, page, version[page] = 1));
    by_threads();
    in_parent_and_child();
    by_threads();
    moved_and_protected();
    discarded_past_libc();
    by_threads();
    puts("whole");
    return 0;
}
