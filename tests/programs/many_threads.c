// Far more threads than CPUs, all at work on far memory at once. usage: many_threads THREADS KIB_EACH
#include "pattern.h"

#include <pthread.h>

static size_t pages_each;
static pthread_barrier_t all_have_written;

static void *work(void *owner) {
    uint64_t id = (uintptr_t)owner;
    char *base = map_pages(pages_each);
    for (uint32_t version = 1; version <= 4; version++) {
        pages_write(base, pages_each, id, version);
        pages_check(base, pages_each, id, version, "a thread's memory");
    }
    pthread_barrier_wait(&all_have_written);
    char *heap = malloc(pages_each * PAGE_BYTES / 2);
    NEED(heap != NULL);
    memset(heap, (int)id, pages_each * PAGE_BYTES / 2);
    pages_check(base, pages_each, id, 4, "a thread's memory, later");
    for (size_t i = 0; i < pages_each * PAGE_BYTES / 2; i++) NEED(heap[i] == (char)id);
    free(heap);
    NEED(munmap(base, pages_each * PAGE_BYTES) == 0);
    return NULL;
}

int main(int count, char **arguments) {
    NEED(count == 3);
    size_t threads = atol(arguments[1]);
    pages_each = (size_t)atol(arguments[2]) >> 2;
    NEED(pthread_barrier_init(&all_have_written, NULL, threads) == 0);
    pthread_t *thread = malloc(threads * sizeof *thread);
    for (size_t i = 0; i < threads; i++) NEED(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    puts("whole");
    return 0;
}
