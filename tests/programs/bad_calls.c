// Calls whose arguments are wrong on purpose, while the program's memory is far: each must fail as the kernel has it,
// at once, and do nothing else.
// usage: bad_calls MIB vectors|addresses
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

static size_t pages;
static char *base, *nowhere, *closed, *edge;
static uint32_t version = 1;

static void push_out(void) {
    version++;
    pages_write(base, pages, 1, version);
}

static char *far_page(void) {
    char *at = map_pages(1);
    memset(at, 1, PAGE_BYTES);
    return at;
}

// The call must fail with this error.
#define FAILS(error, ...)                                                                              \
    do {                                                                                               \
        errno = 0;                                                                                     \
        long result = (__VA_ARGS__);                                                                   \
        if (result != -1 || errno != (error))                                                          \
            FAIL("line %d: %s: %ld, %s", __LINE__, #__VA_ARGS__, result, strerror(errno));             \
    } while (0)

static void vectors(void) {
    char name[] = "/tmp/bad-calls-XXXXXX";
    int file = mkstemp(name), ends[2], pair[2];
    NEED(file >= 0 && unlink(name) == 0 && pipe(ends) == 0);
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *buffer = far_page(), *second = far_page();
    memset(buffer, 'x', PAGE_BYTES);
    NEED(write(file, buffer, PAGE_BYTES) == PAGE_BYTES);
    struct iovec *parts = (struct iovec *)far_page();
    void *bad[] = {nowhere, closed, (void *)-1L, (void *)8, edge + PAGE_BYTES};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        parts[0] = (struct iovec){bad[i], 64}, parts[1] = (struct iovec){second, 64};
        NEED(lseek(file, 0, SEEK_SET) == 0);
        push_out();
        FAILS(EFAULT, preadv(file, parts, 2, 0));
        FAILS(EFAULT, pwritev(file, parts, 2, 0));
        FAILS(EFAULT, preadv2(file, parts, 2, 0, 0));
        FAILS(EFAULT, pwritev2(file, parts, 2, 0, 0));
        FAILS(EFAULT, readv(file, parts, 2));
        FAILS(EFAULT, writev(file, parts, 2));
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        FAILS(EFAULT, sendmsg(pair[0], &message, MSG_DONTWAIT));
        // The vectors themselves.
        FAILS(EFAULT, preadv(file, bad[i], 2, 0));
        FAILS(EFAULT, pwritev(file, bad[i], 2, 0));
        FAILS(EFAULT, readv(file, bad[i], 2));
        FAILS(EFAULT, writev(file, bad[i], 2));
        FAILS(EFAULT, vmsplice(ends[1], bad[i], 1, SPLICE_F_NONBLOCK));
        FAILS(EFAULT, process_vm_readv(getpid(), parts + 1, 1, bad[i], 1, 0));
        FAILS(EFAULT, process_vm_readv(getpid(), bad[i], 1, parts + 1, 1, 0));
        FAILS(EFAULT, process_vm_writev(getpid(), bad[i], 1, parts + 1, 1, 0));
        message.msg_iov = bad[i];
        FAILS(EFAULT, sendmsg(pair[0], &message, MSG_DONTWAIT));
        FAILS(EFAULT, recvmsg(pair[0], &message, MSG_DONTWAIT));
        FAILS(EFAULT, sendmsg(pair[0], bad[i], MSG_DONTWAIT));
        FAILS(EFAULT, recvmsg(pair[0], bad[i], MSG_DONTWAIT));
        FAILS(EFAULT, syscall(SYS_sendmmsg, pair[0], bad[i], 1, MSG_DONTWAIT));
    }
    // What is right before the first wrong address is done.
    parts[0] = (struct iovec){second, 64}, parts[1] = (struct iovec){closed, 64};
    push_out();
    NEED(preadv(file, parts, 2, 0) == 64 && second[63] == 'x');
    NEED(lseek(file, 0, SEEK_SET) == 0 && readv(file, parts, 2) == 64);
    NEED(pwritev(file, parts, 2, 0) == 64);
    NEED(lseek(file, 0, SEEK_CUR) == 64);
    parts[1].iov_base = second;
    // Wrong counts and lengths.
    int counts[] = {-1, IOV_MAX + 1, INT_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        push_out();
        FAILS(EINVAL, preadv(file, parts, counts[i], 0));
        FAILS(EINVAL, pwritev(file, parts, counts[i], 0));
        FAILS(EINVAL, readv(file, parts, counts[i]));
        FAILS(EINVAL, writev(file, parts, counts[i]));
        FAILS(EINVAL, syscall(SYS_vmsplice, ends[1], parts, (long)counts[i], SPLICE_F_NONBLOCK));
        FAILS(EINVAL, syscall(SYS_process_vm_readv, getpid(), parts, (long)counts[i], parts, 1L, 0L));
        FAILS(EINVAL, syscall(SYS_process_vm_writev, getpid(), parts, 1L, parts, (long)counts[i], 0L));
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = counts[i]};
        FAILS(EMSGSIZE, sendmsg(pair[0], &message, MSG_DONTWAIT));
        FAILS(EMSGSIZE, recvmsg(pair[0], &message, MSG_DONTWAIT));
    }
    size_t lengths[] = {-1, (size_t)SSIZE_MAX + 1, (size_t)1 << 63 | 64};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        parts[0] = (struct iovec){second, lengths[i]};
        push_out();
        FAILS(EINVAL, preadv(file, parts, 1, 0));
        FAILS(EINVAL, pwritev(file, parts, 1, 0));
        FAILS(EINVAL, readv(file, parts, 1));
        FAILS(EINVAL, writev(file, parts, 1));
        FAILS(EINVAL, process_vm_readv(getpid(), parts, 1, parts + 1, 1, 0));
    }
    parts[0] = (struct iovec){second, 64};
    FAILS(EINVAL, preadv(file, parts, 1, -1));
    FAILS(EINVAL, pwritev(file, parts, 1, -2));
    FAILS(ESPIPE, preadv(ends[0], parts, 1, 0));
    FAILS(EBADF, preadv(-1, parts, 1, 0));
    NEED(preadv(file, parts, 0, 0) == 0 && readv(file, NULL, 0) == 0);
    // As many as there may be, and more than is held at once.
    struct iovec many[IOV_MAX];
    for (int i = 0; i < IOV_MAX; i++) many[i] = (struct iovec){base + i % pages * PAGE_BYTES, PAGE_BYTES};
    NEED(pwritev(file, many, IOV_MAX, 0) == (ssize_t)IOV_MAX * PAGE_BYTES);
    NEED(preadv(file, many, IOV_MAX, 0) == (ssize_t)IOV_MAX * PAGE_BYTES);
    pages_check(base, pages, 1, version, "what went through a file");
    parts[0] = (struct iovec){base, pages * PAGE_BYTES};
    NEED(pwritev(file, parts, 1, 0) == (ssize_t)(pages * PAGE_BYTES));
    uint32_t written = version;
    push_out();
    NEED(lseek(file, 0, SEEK_SET) == 0 && readv(file, parts, 1) == (ssize_t)(pages * PAGE_BYTES));
    pages_check(base, pages, 1, version = written, "one long vector");
    NEED(close(file) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    NEED(close(pair[0]) == 0 && close(pair[1]) == 0);
}

// Each call by number, since libc's wrappers look at some addresses themselves.
static void addresses(void) {
    char name[] = "/tmp/bad-calls-XXXXXX";
    int file = mkstemp(name), pair[2], events = epoll_create1(0);
    NEED(file >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && events >= 0);
    NEED(write(file, name, sizeof name) > 0);
    char *far = far_page();
    struct timespec *moment = (struct timespec *)far_page();
    *moment = (struct timespec){0, 1000};
    void *bad[] = {nowhere, closed, (void *)-1L, (void *)8};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *at = bad[i];
        push_out();
        FAILS(EFAULT, syscall(SYS_read, file, at, lseek(file, 0, SEEK_SET) + 10));
        FAILS(EFAULT, syscall(SYS_write, file, at, 10));
        FAILS(EFAULT, syscall(SYS_pread64, file, at, 10, 0));
        FAILS(EFAULT, syscall(SYS_pwrite64, file, at, 10, 0));
        FAILS(EFAULT, syscall(SYS_open, at, O_RDONLY));
        FAILS(EFAULT, syscall(SYS_openat, AT_FDCWD, at, O_RDONLY));
        FAILS(EFAULT, syscall(SYS_stat, at, far));
        FAILS(EFAULT, syscall(SYS_stat, name, at));
        FAILS(EFAULT, syscall(SYS_fstat, file, at));
        FAILS(EFAULT, syscall(SYS_access, at, R_OK));
        FAILS(EFAULT, syscall(SYS_rename, at, far));
        FAILS(EFAULT, syscall(SYS_readlink, "/proc/self/exe", at, 100));
        FAILS(EFAULT, syscall(SYS_readlink, at, far, 100));
        FAILS(EFAULT, syscall(SYS_getcwd, at, 100));
        FAILS(EFAULT, syscall(SYS_pipe, at));
        FAILS(EFAULT, syscall(SYS_pipe2, at, 0));
        FAILS(EFAULT, syscall(SYS_poll, at, 1, 0));
        FAILS(EFAULT, syscall(SYS_ppoll, at, 1, moment, NULL, 8));
        FAILS(EFAULT, syscall(SYS_ppoll, NULL, 0, at, NULL, 8));
        FAILS(EFAULT, syscall(SYS_ppoll, NULL, 0, moment, at, 8));
        FAILS(EFAULT, syscall(SYS_select, 64, at, NULL, NULL, NULL));
        FAILS(EFAULT, syscall(SYS_select, 0, NULL, NULL, NULL, at));
        FAILS(EFAULT, syscall(SYS_pselect6, 0, NULL, NULL, NULL, at, NULL));
        FAILS(EFAULT, syscall(SYS_pselect6, 0, NULL, NULL, NULL, moment, at));
        void *pair_of_words[2] = {at, (void *)8};
        FAILS(EFAULT, syscall(SYS_pselect6, 0, NULL, NULL, NULL, moment, pair_of_words));
        FAILS(EFAULT, syscall(SYS_epoll_pwait, events, far, 1, 0, at, 8));
        FAILS(EFAULT, syscall(SYS_epoll_pwait2, events, far, 1, at, NULL, 8));
        FAILS(EFAULT, syscall(SYS_epoll_pwait2, events, far, 1, moment, at, 8));
        FAILS(EFAULT, syscall(SYS_epoll_ctl, events, EPOLL_CTL_ADD, pair[0], at));
        FAILS(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, at, NULL, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, NULL, at, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigaction, SIGBUS, at, NULL, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigaction, SIGBUS, NULL, at, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigprocmask, SIG_BLOCK, at, NULL, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, at, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigpending, at, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigtimedwait, at, NULL, moment, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigsuspend, at, 8));
        FAILS(EFAULT, syscall(SYS_sigaltstack, at, NULL));
        FAILS(EFAULT, syscall(SYS_sigaltstack, NULL, at));
        FAILS(EFAULT, syscall(SYS_nanosleep, at, NULL));
        FAILS(EFAULT, syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, at, NULL));
        FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, at));
        FAILS(EFAULT, syscall(SYS_clock_getres, CLOCK_PROCESS_CPUTIME_ID, at));
        FAILS(EFAULT, syscall(SYS_gettimeofday, at, NULL));
        FAILS((uintptr_t)at % 4 ? EINVAL : EFAULT, syscall(SYS_futex, at, FUTEX_WAIT, 0, NULL, NULL, 0));
        FAILS(EFAULT, syscall(SYS_futex, far, FUTEX_WAIT, 0x01010101, at, NULL, 0));
        FAILS(EFAULT, syscall(SYS_getrlimit, RLIMIT_NOFILE, at));
        FAILS(EFAULT, syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, at));
        FAILS(EFAULT, syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, at, NULL));
        FAILS(EFAULT, syscall(SYS_getrusage, RUSAGE_SELF, at));
        FAILS(EFAULT, syscall(SYS_times, at));
        FAILS(EFAULT, syscall(SYS_uname, at));
        FAILS(EFAULT, syscall(SYS_sysinfo, at));
        FAILS(EFAULT, syscall(SYS_getrandom, at, 16, 0));
        FAILS(EFAULT, syscall(SYS_sched_getaffinity, 0, 128, at));
        FAILS(EFAULT, syscall(SYS_sched_setaffinity, 0, 128, at));
        FAILS(EFAULT, syscall(SYS_getitimer, ITIMER_REAL, at));
        FAILS(EFAULT, syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, at));
        FAILS(EFAULT, syscall(SYS_connect, pair[0], at, 16));
        FAILS(EFAULT, syscall(SYS_bind, pair[0], at, 16));
        FAILS(EFAULT, syscall(SYS_getsockname, pair[0], at, far));
        FAILS(EFAULT, syscall(SYS_getsockname, pair[0], far, at));
        FAILS(EFAULT, syscall(SYS_setsockopt, pair[0], SOL_SOCKET, SO_SNDBUF, at, 4));
        FAILS(EFAULT, syscall(SYS_getsockopt, pair[0], SOL_SOCKET, SO_SNDBUF, far, at));
        FAILS(EFAULT, syscall(SYS_sendto, pair[0], at, 16, MSG_DONTWAIT, NULL, 0));
        FAILS(EFAULT, syscall(SYS_statfs, "/", at));
        FAILS(EFAULT, syscall(SYS_statx, AT_FDCWD, "/", 0, STATX_ALL, at));
        FAILS(EFAULT, syscall(SYS_ioctl, pair[0], 0x541B /* FIONREAD */, at));
        FAILS(EFAULT, syscall(SYS_execve, at, NULL, NULL));
        FAILS(EFAULT, syscall(SYS_mincore, base, PAGE_BYTES, at));
        pid_t child = fork();
        if (child == 0) _exit(3);
        FAILS(EFAULT, syscall(SYS_wait4, child, at, 0, NULL));
        NEED(waitpid(child, NULL, 0) == -1 && errno == ECHILD);
    }
    // Counts that are wrong, or that no memory could have.
    struct pollfd polled = {pair[0], POLLOUT, 0};
    FAILS(EINVAL, syscall(SYS_poll, &polled, -1L, 0));
    FAILS(EINVAL, syscall(SYS_epoll_wait, events, far, -1L, 0));
    FAILS(EINVAL, syscall(SYS_epoll_pwait, events, far, (long)INT_MAX, 0, NULL, 8));
    FAILS(EINVAL, syscall(SYS_select, -1L, NULL, NULL, NULL, NULL));
    FAILS(EINVAL, syscall(SYS_epoll_pwait, events, far, 1, 0, far, 7));
    FAILS(EINVAL, syscall(SYS_rt_sigsuspend, far, 7));
    FAILS(ENOMEM, syscall(SYS_mincore, base, (size_t)1 << 62, far));
    FAILS(EINVAL, syscall(SYS_mincore, base + 1, PAGE_BYTES, far));
    FAILS(EINVAL, syscall(SYS_setgroups, -1L, far));
    FAILS(EINVAL, syscall(SYS_setxattr, "/", "user.x", far, (size_t)-1, 9));
    NEED(unlink(name) == 0 && close(file) == 0 && close(events) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: bad_calls MIB vectors|addresses");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages);
    // Nobody is given so low an address.
    nowhere = (char *)0x200000;
    closed = mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    edge = map_pages(2);
    NEED(closed != MAP_FAILED && mprotect(edge + PAGE_BYTES, PAGE_BYTES, PROT_NONE) == 0);
    push_out();
    if (strcmp(arguments[2], "vectors") == 0) vectors();
    else addresses();
    pages_check(base, pages, 1, version, "memory");
    puts("whole");
    return 0;
}
