// A thread ends with a robust mutex that it holds, whose page has gone far since: who locks it next is told.
// usage: robust MIB
#include "pattern.h"

#include <errno.h>
#include <pthread.h>

static char *base;
static size_t pages;
static pthread_mutex_t *mutex;

static void *hold_and_end(void *argument) {
    NEED(pthread_mutex_lock(mutex) == 0);
    for (int pass = 0; pass < 4; pass++) pages_check(base, pages, 1, 1, "memory");
    return argument;
}

int main(int argc, char **argv) {
    NEED(argc == 2);
    pages = pages_of_mib(argv[1]);
    mutex = (pthread_mutex_t *)map_pages(1);
    base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    pthread_mutexattr_t attributes;
    pthread_t thread;
    NEED(pthread_mutexattr_init(&attributes) == 0);
    NEED(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    NEED(pthread_mutex_init(mutex, &attributes) == 0);
    NEED(pthread_create(&thread, NULL, hold_and_end, NULL) == 0);
    NEED(pthread_join(thread, NULL) == 0);
    NEED(pthread_mutex_lock(mutex) == EOWNERDEAD);
    NEED(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    puts("whole");
}
