// close_range(2) over everything and over parts, with every flag: the program goes on with memory that is far.
// usage: close_all MIB
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char *base;
static size_t pages;
static uint32_t version = 1;

static void wash(const char *what) {
    pages_check(base, pages, 1, version, what);
    pages_write(base, pages, 1, ++version);
    pages_check(base, pages, 1, version, what);
}

// The descriptors open below 1100, and how many of those are closed on exec. Leaves out the few by whose numbers inline mode
// has its own.
static int count_open(int *marked) {
    int count = 0;
    *marked = 0;
    for (int fd = 0; fd < 1100; fd++) {
        int flags = fd >= 900 && fd < 950 ? -1 : fcntl(fd, F_GETFD);
        count += flags >= 0;
        *marked += flags >= 0 && flags & FD_CLOEXEC;
    }
    return count;
}

static void open_some(void) {
    for (int i = 0; i < 20; i++) NEED(open("/dev/null", O_RDONLY) >= 0);
    NEED(dup2(0, 500) == 500 && dup2(0, 1000) == 1000);
}

static long range(unsigned first, unsigned last, unsigned flags) {
    return syscall(SYS_close_range, first, last, flags);
}

// In a child, so that each begins with the same descriptors; what it finds goes through a pipe by a number that stays.
static void closes(const char *name, unsigned first, unsigned last, unsigned flags, int by_libc) {
    int ends[2];
    NEED(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char said[256];
        int report = fcntl(ends[1], F_DUPFD, 700);
        NEED(report == 700);
        int parts = first <= 700 && 700 <= last && !(flags & CLOSE_RANGE_CLOEXEC);
        wash(name);
        long result = by_libc ? close_range(first, parts ? 699 : last, flags) : range(first, parts ? 699 : last, flags);
        int error = errno;
        if (parts && result == 0) {
            result = by_libc ? close_range(701, last, flags) : range(701, last, flags);
            error = errno;
        }
        wash(name);
        int marked, open_left = count_open(&marked);
        int fresh = open("/dev/null", O_RDONLY);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            wash(name);
            _exit(8);
        }
        int status = -1;
        waitpid(grandchild, &status, 0);
        wash(name);
        int length = snprintf(said, sizeof said, "%s: %ld %d, %d open, %d marked, next %d, child %d\n", name, result,
                              result ? error : 0, open_left, marked, fresh, status);
        if (write(report, said, length) != length) _exit(1);
        _exit(0);
    }
    NEED(child > 0);
    close(ends[1]);
    char said[256];
    ssize_t length;
    while ((length = read(ends[0], said, sizeof said)) > 0) NEED(write(1, said, length) == length);
    close(ends[0]);
    int status;
    NEED(waitpid(child, &status, 0) == child);
    dprintf(1, "%s: status %d\n", name, status);
}

// A child that shares the table, by clone3(2): with CLOSE_RANGE_UNSHARE it takes a copy first, without it they go for both.
static void closes_shared(const char *name, unsigned flags) {
    int fd = open("/dev/null", O_RDONLY);
    NEED(fd >= 0);
    struct clone_args arguments = {.flags = CLONE_FILES, .exit_signal = SIGCHLD};
    pid_t child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) {
        wash(name);
        long result = range(fd, ~0U, flags);
        wash(name);
        _exit(result == 0 ? (fcntl(fd, F_GETFD) & FD_CLOEXEC) + 2 * (fcntl(fd, F_GETFD) < 0) : 50);
    }
    int status = -1;
    NEED(child > 0 && waitpid(child, &status, 0) == child);
    wash(name);
    int left = fcntl(fd, F_GETFD);
    dprintf(1, "%s: status %d, left %d\n", name, status, left);
    close(fd);
}

int main(int argc, char **argv) {
    NEED(argc >= 2);
    pages = pages_of_mib(argv[1]);
    base = map_pages(pages);
    pages_write(base, pages, 1, version);
    open_some();
    static const unsigned flags[] = {0, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE,
                                     CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC};
    for (int i = 0; i < 4; i++) {
        char name[64];
        unsigned flag = flags[i];
        int by_libc = i & 1;
        snprintf(name, sizeof name, "all, flags %u, %d", flag, by_libc);
        closes(name, 0, ~0U, flag, by_libc);
        snprintf(name, sizeof name, "from 3, flags %u, %d", flag, by_libc);
        closes(name, 3, ~0U, flag, by_libc);
        snprintf(name, sizeof name, "3 to 10, flags %u, %d", flag, by_libc);
        closes(name, 3, 10, flag, by_libc);
        snprintf(name, sizeof name, "to 1023, flags %u, %d", flag, by_libc);
        closes(name, 900, 1023, flag, by_libc);
        snprintf(name, sizeof name, "nothing, flags %u, %d", flag, by_libc);
        closes(name, 1500, ~0U, flag, by_libc);
    }
    closes_shared("shared", 0);
    closes_shared("shared, marked", CLOSE_RANGE_CLOEXEC);
    closes_shared("unshared", CLOSE_RANGE_UNSHARE);
    closes_shared("unshared, marked", CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC);
    closes("backwards", 10, 3, 0, 0);
    closes("unknown flag", 3, 10, 8, 0);
    closefrom(3);
    wash("closefrom");
    int marked;
    NEED(count_open(&marked) == 3);

    // At last in this process, the standard streams too.
    int said = dup(1);
    NEED(said == 3);
    NEED(close_range(0, 2, 0) == 0 && close_range(4, ~0U, CLOSE_RANGE_UNSHARE) == 0);
    wash("no streams");
    NEED(dup2(said, 1) == 1);
    dprintf(1, "whole\n");
    NEED(close_range(0, ~0U, 0) == 0);
    wash("nothing at all");
    return 0;
}
