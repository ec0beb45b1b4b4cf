// Forks again and again while threads fault, one of them alone at times, so that the pager is at every point of its
// work when a process is made. Each child uses its memory and goes.
// usage: fork_storm MIB FORKS
#include "pattern.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 3, TURN_ACCESSES = 300 };

static char *base;
static size_t pages;
static atomic_int over;
static atomic_uint turn;

// The first thread always reads; the others every second turn.
static void *reader(void *argument) {
    uint64_t number = (uintptr_t)argument;
    for (uint64_t i = 0; !atomic_load(&over); i++) {
        if (number == 0 && i % TURN_ACCESSES == 0) atomic_fetch_add(&turn, 1);
        if (number > 0 && atomic_load(&turn) % 2) {
            usleep(100);
            continue;
        }
        size_t page = mix(number * 1000003 + i) % pages;
        if (!page_holds(base + page * PAGE_BYTES, page_seed(1, page, 1))) FAIL("page %zu is wrong", page);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: fork_storm MIB FORKS");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) NEED(!pthread_create(&threads[i], NULL, reader, (void *)i));
    for (int i = 0; i < atoi(arguments[2]); i++) {
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            size_t page = mix(i) % pages;
            if (!page_holds(base + page * PAGE_BYTES, page_seed(1, page, 1))) _exit(98);
            _exit(0);
        }
        int status;
        NEED(waitpid(child, &status, 0) == child);
        if (status != 0) FAIL("child %d ended with status 0x%x", i, status);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++) NEED(!pthread_join(threads[i], NULL));
    pages_check(base, pages, 1, 1, "everything");
    puts("whole");
    return 0;
}
