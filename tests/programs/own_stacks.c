// Threads on stacks that the program has allocated itself. At their upper ends lies what the kernel writes to whenever a
// thread has lost its CPU (rseq) and when it ends, while the thread works far below. usage: own_stacks MIB THREADS
#include "pattern.h"

#include <alloca.h>
#include <pthread.h>
#include <stdatomic.h>

enum { STACK_BYTES = 1 << 20, BELOW_BYTES = 256 << 10 };

static atomic_int stop;

static void *work(void *argument) {
    volatile char *far_below = alloca(BELOW_BYTES);
    far_below[0] = 1;
    volatile uint64_t turns = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) turns++;
    return argument;
}

static void one_round(size_t pages, size_t threads, uint32_t version) {
    pthread_t thread[threads];
    char *stack[threads];
    atomic_store(&stop, 0);
    for (size_t i = 0; i < threads; i++) {
        stack[i] = i % 2 ? malloc(STACK_BYTES) : map_pages(STACK_BYTES / PAGE_BYTES);
        NEED(stack[i] != NULL);
        memset(stack[i], 0, STACK_BYTES);
        pthread_attr_t attributes;
        NEED(pthread_attr_init(&attributes) == 0);
        NEED(pthread_attr_setstack(&attributes, stack[i], STACK_BYTES) == 0);
        NEED(pthread_create(&thread[i], &attributes, work, (void *)i) == 0);
    }
    char *memory = map_pages(pages);
    for (uint32_t pass = 0; pass < 3; pass++) {
        pages_write(memory, pages, 7, version + pass);
        pages_check(memory, pages, 7, version + pass, "memory beside threads");
    }
    NEED(munmap(memory, pages * PAGE_BYTES) == 0);
    atomic_store(&stop, 1);
    for (size_t i = 0; i < threads; i++) {
        void *result;
        NEED(pthread_join(thread[i], &result) == 0 && result == (void *)i);
        if (i % 2) free(stack[i]);
        else NEED(munmap(stack[i], STACK_BYTES) == 0);
    }
}

int main(int count, char **arguments) {
    NEED(count == 3);
    size_t pages = (size_t)atol(arguments[1]) << 8, threads = atol(arguments[2]);
    for (uint32_t round = 0; round < 2; round++) one_round(pages, threads, 1 + 3 * round);
    puts("whole");
    return 0;
}
