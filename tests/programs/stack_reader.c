// Threads that wait in system calls are stopped by a signal, as collectors of garbage do it: what they hold on their
// stacks must lie between where the handler runs, or where the signal says that they were, and the end of the stack.
// usage: stack_reader MIB ROUNDS
#include "pattern.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <ucontext.h>

enum { THREADS = 4 };

struct waiting {
    pthread_t thread;
    int index, ends[2];
    char *low, *high;
    volatile uint64_t *root;
};

static struct waiting all[THREADS];
static __thread struct waiting *self;
static sem_t stopped, begun;
static atomic_int is_over;

static void expect_within(const char *what, const char *at) {
    if (at < self->low || at >= self->high)
        FAIL("thread %d: %s is %p, outside of its stack %p-%p", self->index, what, (void *)at, (void *)self->low,
             (void *)self->high);
    if ((const char *)self->root < at) FAIL("thread %d: %s lies above what it holds", self->index, what);
}

static void on_stop(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    char here = 0;
    int before = errno;
    expect_within("where the handler runs", &here);
    expect_within("where it was stopped", (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP]);
    NEED(sem_post(&stopped) == 0);
    errno = before;
}

static void *wait_for_end(void *argument) {
    self = argument;
    pthread_attr_t attributes;
    void *low;
    size_t bytes;
    NEED(pthread_getattr_np(pthread_self(), &attributes) == 0);
    NEED(pthread_attr_getstack(&attributes, &low, &bytes) == 0);
    NEED(pthread_attr_destroy(&attributes) == 0);
    volatile uint64_t root[4] = {mix((uint64_t)self->index)};
    self->low = low, self->high = (char *)low + bytes, self->root = root;
    NEED(sem_post(&begun) == 0);
    char byte;
    // One half waits in read(2), the other in futex(2).
    if (self->index % 2)
        while (read(self->ends[0], &byte, 1) < 0) NEED(errno == EINTR);
    else
        while (!atomic_load(&is_over)) {
            struct timespec until;
            NEED(clock_gettime(CLOCK_REALTIME, &until) == 0);
            until.tv_sec++;
            sem_t never;
            NEED(sem_init(&never, 0, 0) == 0);
            NEED(sem_timedwait(&never, &until) < 0);
        }
    NEED(root[0] == mix((uint64_t)self->index));
    return NULL;
}

static void stop_all(void) {
    for (int i = 0; i < THREADS; i++) NEED(pthread_kill(all[i].thread, SIGUSR2) == 0);
    for (int i = 0; i < THREADS; i++)
        while (sem_wait(&stopped) < 0) NEED(errno == EINTR);
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: stack_reader MIB ROUNDS");
    size_t pages = pages_of_mib(arguments[1]);
    NEED(sem_init(&stopped, 0, 0) == 0 && sem_init(&begun, 0, 0) == 0);
    struct sigaction action = {.sa_sigaction = on_stop, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    NEED(sigaction(SIGUSR2, &action, NULL) == 0);
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    for (int i = 0; i < THREADS; i++) {
        all[i].index = i;
        NEED(pipe(all[i].ends) == 0);
        NEED(pthread_create(&all[i].thread, NULL, wait_for_end, &all[i]) == 0);
        NEED(sem_wait(&begun) == 0);
    }
    for (int round = atoi(arguments[2]); round > 0; round--) {
        pages_check(base, pages, 1, 1, "memory");
        stop_all();
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < THREADS; i++) {
        NEED(write(all[i].ends[1], "x", 1) == 1);
        NEED(pthread_join(all[i].thread, NULL) == 0);
    }
    puts("whole");
    return 0;
}
