// Has the kernel read and write memory that is far, in every way that comes to mind, and be interrupted at it.
// usage: kernel MIB
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

extern char **environ;

static size_t pages;
static char *base;
static uint32_t version = 1;

// Writes everything anew, so that what was used last is far.
static void push_out(void) {
    version++;
    pages_write(base, pages, 1, version);
}

static void check_all(void) {
    pages_check(base, pages, 1, version, "memory");
}

// A buffer on pages of its own, filled and pushed out.
static char *far_buffer(size_t bytes, uint64_t owner) {
    size_t count = (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    char *at = map_pages(count);
    pages_write(at, count, owner, 1);
    push_out();
    return at;
}

static void files(void) {
    enum { BYTES = 24 << 20, COUNT = BYTES / PAGE_BYTES };
    char name[] = "/tmp/kernel-XXXXXX";
    int file = mkstemp(name);
    NEED(file >= 0 && unlink(name) == 0);
    char *from = far_buffer(BYTES, 2), *to = map_pages(COUNT);
    NEED(write(file, from, BYTES) == BYTES);
    NEED(pread(file, to, BYTES, 0) == BYTES);
    pages_check(to, COUNT, 2, 1, "what was read");
    struct iovec parts[40];
    for (int i = 0; i < 40; i++) parts[i] = (struct iovec){from + (39 - i) * 3 * PAGE_BYTES, PAGE_BYTES};
    push_out();
    NEED(pwritev(file, parts, 40, 0) == 40 * PAGE_BYTES);
    push_out();
    NEED(preadv(file, parts, 40, 0) == 40 * PAGE_BYTES);
    for (int i = 0; i < 40; i++) NEED(page_holds(parts[i].iov_base, page_seed(2, (39 - i) * 3, 1)));
    struct stat *status = (struct stat *)far_buffer(PAGE_BYTES, 3);
    NEED(fstat(file, status) == 0 && status->st_size == BYTES);
    char *path = far_buffer(PAGE_BYTES, 4);
    strcpy(path, "/proc/self/status");
    push_out();
    int opened = open(path, O_RDONLY);
    NEED(opened >= 0 && close(opened) == 0 && close(file) == 0);
    NEED(munmap(from, BYTES) == 0 && munmap(to, BYTES) == 0);
}

static void sockets(void) {
    int pair[2];
    NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    char *buffer = far_buffer(16 * PAGE_BYTES, 5), *back = far_buffer(16 * PAGE_BYTES, 6);
    struct iovec *parts = (struct iovec *)far_buffer(PAGE_BYTES, 7), *into = parts + 8;
    struct msghdr *message = (struct msghdr *)far_buffer(PAGE_BYTES, 8);
    for (int i = 0; i < 8; i++) {
        parts[i] = (struct iovec){buffer + i * 2 * PAGE_BYTES, PAGE_BYTES};
        into[i] = (struct iovec){back + i * 2 * PAGE_BYTES, PAGE_BYTES};
    }
    memset(message, 0, sizeof *message);
    *message = (struct msghdr){.msg_iov = parts, .msg_iovlen = 8};
    push_out();
    NEED(sendmsg(pair[0], message, 0) == 8 * PAGE_BYTES);
    message->msg_iov = into;
    push_out();
    NEED(recvmsg(pair[1], message, 0) == 8 * PAGE_BYTES);
    for (int i = 0; i < 8; i++) NEED(page_holds(back + i * 2 * PAGE_BYTES, page_seed(5, i * 2, 1)));
    NEED(close(pair[0]) == 0 && close(pair[1]) == 0);
}

struct reader {
    int fd;
    char *into;
    size_t bytes;
    ssize_t got;
};

static void *read_late(void *argument) {
    struct reader *reader = argument;
    reader->got = recv(reader->fd, reader->into, reader->bytes, MSG_WAITALL);
    return NULL;
}

// What a call waits to fill must not go while it waits.
static void waiting(void) {
    enum { COUNT = 64 };
    int pair[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *from = far_buffer(COUNT * PAGE_BYTES, 9);
    struct reader reader = {pair[1], far_buffer(COUNT * PAGE_BYTES, 10), COUNT * PAGE_BYTES, 0};
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, read_late, &reader) == 0);
    for (int i = 0; i < 4; i++) {
        push_out();
        NEED(write(pair[0], from + i * PAGE_BYTES, PAGE_BYTES) == PAGE_BYTES);
    }
    NEED(write(pair[0], from + 4 * PAGE_BYTES, (COUNT - 4) * PAGE_BYTES) == (COUNT - 4) * PAGE_BYTES);
    NEED(pthread_join(thread, NULL) == 0);
    NEED(reader.got == COUNT * PAGE_BYTES);
    pages_check(reader.into, COUNT, 9, 1, "what came late");
    struct pollfd *polled = (struct pollfd *)far_buffer(PAGE_BYTES, 11);
    polled[0] = (struct pollfd){pair[1], POLLIN, 0};
    push_out();
    NEED(poll(polled, 1, 1) == 0);
    int events = epoll_create1(0);
    struct epoll_event *event = (struct epoll_event *)far_buffer(PAGE_BYTES, 12);
    *event = (struct epoll_event){EPOLLIN, {.u64 = 77}};
    push_out();
    NEED(epoll_ctl(events, EPOLL_CTL_ADD, pair[1], event) == 0 && write(pair[0], "x", 1) == 1);
    push_out();
    NEED(epoll_wait(events, event, 100, 1000) == 1 && event->data.u64 == 77);
    fd_set *set = (fd_set *)far_buffer(PAGE_BYTES, 13);
    FD_ZERO(set);
    FD_SET(pair[1], set);
    push_out();
    sigset_t none;
    sigfillset(&none);
    NEED(pselect(pair[1] + 1, set, NULL, NULL, NULL, &none) == 1);
    NEED(close(events) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
    // The handler's own memory may be far too.
    NEED(page_holds(base + (alarms * 37 % pages) * PAGE_BYTES, page_seed(1, alarms * 37 % pages, version)));
}

// Signals that come while a call waits, and while everything is blocked.
static void signals(void) {
    int ends[2];
    NEED(pipe(ends) == 0);
    push_out();
    struct sigaction action = {.sa_handler = on_alarm};
    sigfillset(&action.sa_mask);
    NEED(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval soon = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    char byte;
    NEED(read(ends[0], &byte, 1) == -1 && errno == EINTR);
    while (alarms < 20) check_all();
    sigset_t all, before;
    sigfillset(&all);
    NEED(sigprocmask(SIG_BLOCK, &all, &before) == 0);
    check_all();
    push_out();
    sigset_t but_alarm = all;
    sigdelset(&but_alarm, SIGALRM);
    int had = alarms;
    NEED(sigsuspend(&but_alarm) == -1 && errno == EINTR && alarms > had);
    NEED(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    NEED(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static sigjmp_buf out;
static void *volatile bus_at;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    bus_at = info->si_addr;
    siglongjmp(out, 1);
}

// The program's own SIGBUS is still its own.
static void own_bus(void) {
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO}, before, there;
    NEED(sigaction(SIGBUS, &action, &before) == 0 && before.sa_handler == SIG_DFL);
    NEED(sigaction(SIGBUS, NULL, &there) == 0 && there.sa_sigaction == on_bus);
    char name[] = "/tmp/kernel-XXXXXX";
    int file = mkstemp(name);
    NEED(file >= 0 && unlink(name) == 0 && ftruncate(file, PAGE_BYTES) == 0);
    char *at = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    NEED(at != MAP_FAILED && ftruncate(file, 0) == 0);
    if (!sigsetjmp(out, 1)) FAIL("a file that is gone holds %d", *(volatile char *)at);
    NEED(bus_at == at);
    check_all();
    NEED(sigaction(SIGBUS, &before, NULL) == 0 && munmap(at, PAGE_BYTES) == 0 && close(file) == 0);
}

static void *wait_forever(void *argument) {
    char byte;
    NEED(read(*(int *)argument, &byte, 1) == 1);
    return NULL;
}

static void *ends_at_once(void *argument) {
    push_out();
    return argument;
}

static void threads(void) {
    int ends[2];
    NEED(pipe(ends) == 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, wait_forever, &ends[0]) == 0);
    usleep(20000);
    NEED(pthread_cancel(thread) == 0);
    void *result;
    NEED(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    for (int i = 0; i < 20; i++) {
        NEED(pthread_create(&thread, NULL, ends_at_once, &ends) == 0);
        NEED(pthread_join(thread, &result) == 0 && result == &ends);
    }
    NEED(close(ends[0]) == 0 && close(ends[1]) == 0);
    check_all();
}

static ucontext_t caller, coroutine;

static void run_coroutine(void) {
    for (int i = 0; i < 3; i++) {
        push_out();
        swapcontext(&coroutine, &caller);
        check_all();
    }
}

// A stack in memory that may be far.
static void coroutines(void) {
    enum { STACK_PAGES = 64 };
    NEED(getcontext(&coroutine) == 0);
    coroutine.uc_stack = (stack_t){.ss_sp = map_pages(STACK_PAGES), .ss_size = STACK_PAGES * PAGE_BYTES};
    coroutine.uc_link = &caller;
    makecontext(&coroutine, run_coroutine, 0);
    for (int i = 0; i < 4; i++) {
        NEED(swapcontext(&caller, &coroutine) == 0);
        push_out();
    }
}

static void programs(void) {
    char **arguments = (char **)far_buffer(PAGE_BYTES, 14);
    char *text = far_buffer(PAGE_BYTES, 15);
    strcpy(text, "exit 7");
    arguments[0] = "sh", arguments[1] = "-c", arguments[2] = text, arguments[3] = NULL;
    push_out();
    pid_t pid;
    int status;
    NEED(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    NEED(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    push_out();
    if ((pid = vfork()) == 0) {
        execv("/bin/sh", arguments);
        _exit(1);
    }
    NEED(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
    push_out();
    if ((pid = fork()) == 0) {
        check_all();
        closefrom(3);
        check_all();
        push_out();
        execv("/bin/sh", arguments);
        _exit(1);
    }
    NEED(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
    NEED(WEXITSTATUS(system(text)) == 7);
    check_all();
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: kernel MIB");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages);
    push_out();
    void (*steps[])(void) = {files, sockets, waiting, signals, own_bus, threads, coroutines, programs};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        steps[i]();
        check_all();
    }
    puts("whole");
    return 0;
}
