// Several threads use far memory, by themselves and through the kernel, while one does what inline mode cannot
// serve: again and again, each time in a child of its own.
// usage: leave_amid MIB THREADS CHILDREN
#include "pattern.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { MOST_THREADS = 16, LOOKS_AFTER = 3000 };

static size_t pages_each;
static atomic_int is_left;
static atomic_long looks;
static atomic_int caught;
static volatile uint64_t *ticks;

struct user {
    char *base;
    uint64_t owner;
    uint32_t *versions;
};

static void on_sent(int number) {
    (void)number;
    atomic_fetch_add(&caught, 1);
}

static void on_tick(int number) {
    (void)number;
    ++*ticks;
}

// The kernel reads one page and writes another.
static void through_the_kernel(struct user *user, int *ends, size_t from, size_t to) {
    NEED(write(ends[1], user->base + from * PAGE_BYTES, PAGE_BYTES) == PAGE_BYTES);
    size_t done = 0;
    while (done < PAGE_BYTES) {
        ssize_t got = read(ends[0], user->base + to * PAGE_BYTES + done, PAGE_BYTES - done);
        if (got < 0 && errno == EINTR) continue;
        NEED(got > 0);
        done += got;
    }
    if (!page_holds(user->base + to * PAGE_BYTES, page_seed(user->owner, from, user->versions[from])))
        FAIL("page %zu is not what the kernel was given as page %zu", to, from);
    user->versions[to]++;
    page_write(user->base + to * PAGE_BYTES, page_seed(user->owner, to, user->versions[to]));
}

static void *use(void *argument) {
    struct user *user = argument;
    uint64_t draw = user->owner;
    int ends[2];
    NEED(pipe(ends) == 0);
    for (int after = 0; after < LOOKS_AFTER; after += atomic_load(&is_left)) {
        size_t page = (draw = mix(draw + 1)) % pages_each;
        if (!page_holds(user->base + page * PAGE_BYTES, page_seed(user->owner, page, user->versions[page])))
            FAIL("page %zu of thread %lu is wrong in version %u", page, user->owner, user->versions[page]);
        if (draw >> 32 & 1) page_write(user->base + page * PAGE_BYTES, page_seed(user->owner, page, ++user->versions[page]));
        if ((draw >> 33) % 8 == 0) through_the_kernel(user, ends, page, (page + 7) % pages_each);
        if ((draw >> 36) % 64 == 0) {
            // Memory that nobody has touched.
            char *fresh = map_pages(4);
            pages_check(fresh, 4, 1, 0, "new memory");
            pages_write(fresh, 4, 1, 1);
            pages_check(fresh, 4, 1, 1, "new memory");
            NEED(munmap(fresh, 4 * PAGE_BYTES) == 0);
        }
        atomic_fetch_add(&looks, 1);
    }
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

// What inline mode cannot serve.
static void leave(int how) {
    if (how % 3 == 2) {
        struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog program = {1, &allow};
        NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        NEED(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, how % 2 ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0);
        return;
    }
    aio_context_t context = 0;
    NEED(syscall(SYS_io_setup, 4, &context) == 0);
    NEED(syscall(SYS_io_destroy, context) == 0);
}

static int child(int number, int threads) {
    pthread_t started[MOST_THREADS];
    static struct user users[MOST_THREADS];
    ticks = (volatile uint64_t *)map_pages(1);
    struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    NEED(sigaction(SIGALRM, &tick, NULL) == 0);
    struct sigaction sent = {.sa_handler = on_sent};
    NEED(sigaction(SIGBUS, &sent, NULL) == 0 && sigaction(SIGSYS, &sent, NULL) == 0);
    struct itimerval each = {{0, 700}, {0, 700}};
    for (int i = 0; i < threads; i++) {
        users[i] = (struct user){map_pages(pages_each), number * 100 + i + 1, calloc(pages_each, sizeof(uint32_t))};
        NEED(users[i].versions != NULL);
    }
    NEED(setitimer(ITIMER_REAL, &each, NULL) == 0);
    for (int i = 0; i < threads; i++) NEED(pthread_create(&started[i], NULL, use, &users[i]) == 0);
    while (atomic_load(&looks) < (long)(threads * (pages_each + number * 37))) sched_yield();
    leave(number);
    atomic_store(&is_left, 1);
    for (int i = 0; i < threads; i++) NEED(pthread_join(started[i], NULL) == 0);
    NEED(*ticks > 0);
    // Its handlers are its own, now as before.
    NEED(raise(SIGBUS) == 0 && raise(SIGSYS) == 0 && atomic_load(&caught) == 2);
    return 0;
}

int main(int count, char **arguments) {
    NEED(count == 4);
    int threads = atoi(arguments[2]), children = atoi(arguments[3]);
    NEED(threads > 0 && threads <= MOST_THREADS);
    pages_each = pages_of_mib(arguments[1]) / threads;
    for (int number = 0; number < children; number++) {
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0) _exit(child(number, threads));
        int status;
        NEED(waitpid(pid, &status, 0) == pid);
        if (status != 0) FAIL("child %d ended with %#x", number, status);
    }
    puts("whole");
    return 0;
}
