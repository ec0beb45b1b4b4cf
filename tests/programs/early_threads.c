// Threads that are there before any library begins, as a library's constructor makes them: they are in the midst of system calls then.
// usage: early_threads MIB
#include "pattern.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 3 };

static pthread_t threads[THREADS];
static volatile int stop;

// Of a thread's own, written and looked at again and again between short calls.
static void *work(void *number) {
    uint64_t owner = 100 + (uintptr_t)number;
    size_t pages = 512;
    char *memory = map_pages(pages);
    for (uint32_t version = 1; !stop; version++) {
        for (int i = 0; i < 100; i++) {
            sched_yield();
            struct timespec time;
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000}, NULL);
            NEED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
        }
        pages_write(memory, pages, owner, version);
        pages_check(memory, pages, owner, version, "a thread's own");
        NEED(munmap(memory, pages * PAGE_BYTES) == 0);
        memory = map_pages(pages);
    }
    return NULL;
}

static void start_early(int count, char **arguments) {
    (void)count, (void)arguments;
    for (uintptr_t i = 0; i < THREADS; i++) NEED(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
}

__attribute__((section(".preinit_array"), used)) static void (*const start_first)(int, char **) = start_early;

int main(int count, char **arguments) {
    NEED(count == 2);
    size_t pages = pages_of_mib(arguments[1]);
    char *memory = map_pages(pages);
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        pages_write(memory, pages, 1, version);
        pages_check(memory, pages, 1, version, "main's");
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) NEED(pthread_join(threads[i], NULL) == 0);
    puts("whole");
    return 0;
}
