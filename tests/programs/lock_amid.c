// Threads write all over memory while another locks and unlocks pieces of it. usage: lock_amid MIB THREADS
#include "pattern.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PIECE_PAGES = 4, ROUNDS = 12 };

static size_t pages_each;
static _Atomic size_t at_work;

static void *work(void *base) {
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        pages_write(base, pages_each, (uintptr_t)base, version);
        pages_check(base, pages_each, (uintptr_t)base, version, "memory of which parts are locked");
    }
    at_work--;
    return NULL;
}

int main(int count, char **arguments) {
    NEED(count == 3);
    size_t threads = atol(arguments[2]), pages = pages_of_mib(arguments[1]);
    pages_each = pages / threads;
    char *base = map_pages(pages);
    pthread_t thread[threads];
    at_work = threads;
    for (size_t i = 0; i < threads; i++)
        NEED(pthread_create(&thread[i], NULL, work, base + i * pages_each * PAGE_BYTES) == 0);
    // Every other piece, so that enough stays for the limit to matter.
    for (size_t piece = 0; at_work > 0; piece += 2) {
        if ((piece + 1) * PIECE_PAGES > pages) break;
        char *start = base + piece * PIECE_PAGES * PAGE_BYTES;
        NEED(mlock(start, PIECE_PAGES * PAGE_BYTES) == 0);
        NEED(munlock(start, PIECE_PAGES * PAGE_BYTES) == 0);
        usleep(200);
    }
    for (size_t i = 0; i < threads; i++) NEED(pthread_join(thread[i], NULL) == 0);
    puts("whole");
    return 0;
}
