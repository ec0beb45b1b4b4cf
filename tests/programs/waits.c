// Waits with a mask of signals and a time limit, which are the kernel's to end: by the time, by a signal that the mask lets
// through, or by what was waited for.
// usage: waits MIB
#include "pattern.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static size_t pages;
static char *base;
// Written once: what the handler looks at may not be half-way to its next version.
static char *kept;
static uint32_t version = 1;
static volatile sig_atomic_t caught;
static int ends[2], events;
static struct epoll_event *event;
static struct pollfd *polled;
static struct timespec *limit;
static sigset_t *mask;

static void push_out(void) {
    version++;
    pages_write(base, pages, 1, version);
}

static void *far_page(void) {
    char *at = map_pages(1);
    memset(at, 1, PAGE_BYTES);
    return at;
}

static void on_signal(int signal) {
    (void)signal;
    caught++;
    NEED(page_holds(kept, page_seed(2, 0, 1)));
}

static long milliseconds(void) {
    struct timespec now;
    NEED(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum { EPOLL, EPOLL2, POLL, SELECT, WAYS };

// Waits so long, or without end where it is negative. Returns as the call does.
static int wait_by(int way, int limit_ms, const sigset_t *signals) {
    *limit = (struct timespec){limit_ms / 1000, limit_ms % 1000 * 1000000L};
    *polled = (struct pollfd){ends[0], POLLIN, 0};
    fd_set *set = (fd_set *)(polled + 1);
    FD_ZERO(set);
    FD_SET(ends[0], set);
    // Far for some, there for others.
    static int waited;
    if (waited++ % 8 < 4) push_out();
    const struct timespec *time = limit_ms < 0 ? NULL : limit;
    switch (way) {
    case EPOLL: return epoll_pwait(events, event, 16, limit_ms, signals);
    case EPOLL2: return syscall(SYS_epoll_pwait2, events, event, 16, time, signals, 8);
    case POLL: return ppoll(polled, 1, time, signals);
    default: return pselect(ends[0] + 1, set, NULL, NULL, time, signals);
    }
}

// A child that sends a signal again and again, until it is ended.
static pid_t send_signals(int number) {
    pid_t parent = getpid(), child = fork();
    NEED(child >= 0);
    if (child != 0) return child;
    while (getppid() == parent) {
        usleep(20000);
        kill(parent, number);
    }
    _exit(0);
}

static void end_child(pid_t child) {
    NEED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static void each_way(int way) {
    sigset_t all;
    sigfillset(&all);
    // The time ends it, with the signal blocked meanwhile.
    pid_t child = send_signals(SIGUSR1);
    sigfillset(mask);
    long begun = milliseconds();
    NEED(wait_by(way, 300, mask) == 0 && milliseconds() - begun >= 300);
    // A signal that comes through ends it.
    sigemptyset(mask);
    int had = caught;
    NEED(wait_by(way, 60000, mask) == -1 && errno == EINTR && caught > had);
    had = caught;
    NEED(wait_by(way, -1, NULL) == -1 && errno == EINTR && caught > had);
    // Blocked but in the call.
    NEED(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    had = caught;
    NEED(wait_by(way, -1, mask) == -1 && errno == EINTR && caught > had);
    had = caught;
    NEED(wait_by(way, 100, NULL) == 0 && caught == had);
    end_child(child);
    NEED(wait_by(way, 60000, mask) == -1 && errno == EINTR && caught == had + 1);
    NEED(sigprocmask(SIG_UNBLOCK, &all, NULL) == 0);
    // Nothing, and what was waited for.
    NEED(wait_by(way, 0, mask) == 0 && wait_by(way, 1, NULL) == 0);
    char byte = 'x';
    NEED(write(ends[1], &byte, 1) == 1);
    NEED(wait_by(way, -1, mask) == 1 && wait_by(way, 60000, NULL) == 1);
    NEED(read(ends[0], &byte, 1) == 1 && byte == 'x');
    for (int i = 0; i < 8; i++) NEED(wait_by(way, i % 3, mask) == 0);
}

static void *run(void *argument) {
    (void)argument;
    for (int way = 0; way < WAYS; way++) each_way(way);
    return NULL;
}

static void *pause_forever(void *argument) {
    for (;;) pause();
    return argument;
}

// Whether so much can be left of 60 s: the kernel counts its slack, 50 us by default, to what is left.
static int was_left(const struct timespec *rest) {
    return rest->tv_sec > 0 && (rest->tv_sec < 60 || (rest->tv_sec == 60 && rest->tv_nsec <= 50000));
}

static void sleeps(void) {
    struct timespec *rest = far_page();
    pid_t child = send_signals(SIGUSR1);
    *limit = (struct timespec){60, 0}, *rest = (struct timespec){0, 0};
    push_out();
    NEED(nanosleep(limit, rest) == -1 && errno == EINTR && was_left(rest));
    *rest = (struct timespec){0, 0};
    push_out();
    NEED(clock_nanosleep(CLOCK_MONOTONIC, 0, limit, rest) == EINTR && was_left(rest));
    push_out();
    // Once interrupted there is nowhere to say how much was left.
    NEED(syscall(SYS_nanosleep, limit, (void *)8) == -1 && errno == EFAULT);
    // By number, as some programs do.
    sigfillset(mask);
    uint64_t before = 7, now = 0;
    NEED(syscall(SYS_rt_sigprocmask, SIG_BLOCK, mask, &before, 8) == 0 && before == 0);
    NEED(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8) == 0 && now & 1ULL << (SIGUSR1 - 1));
    end_child(child);
    NEED(kill(getpid(), SIGUSR1) == 0);
    push_out();
    siginfo_t *info = far_page();
    sigemptyset(mask);
    sigaddset(mask, SIGUSR1);
    *limit = (struct timespec){0, 1000000};
    push_out();
    NEED(sigtimedwait(mask, info, limit) == SIGUSR1 && info->si_pid == getpid());
    push_out();
    NEED(sigtimedwait(mask, info, limit) == -1 && errno == EAGAIN);
    sigfillset(mask);
    sigprocmask(SIG_UNBLOCK, mask, NULL);
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: waits MIB");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages);
    kept = map_pages(1);
    page_write(kept, page_seed(2, 0, 1));
    event = far_page(), polled = far_page(), limit = far_page(), mask = far_page();
    push_out();
    events = epoll_create1(0);
    NEED(events >= 0 && pipe(ends) == 0);
    NEED(epoll_ctl(events, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){EPOLLIN, {.u64 = 5}}) == 0);
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL) == 0);
    run(NULL);
    sleeps();
    // Beside a thread that takes no signal.
    sigset_t all, before;
    sigfillset(&all);
    pthread_t thread;
    NEED(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    NEED(pthread_create(&thread, NULL, pause_forever, NULL) == 0);
    NEED(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    run(NULL);
    pages_check(base, pages, 1, version, "memory");
    puts("whole");
    return 0;
}
