// Descriptors up to the last: by dup2(2) and its kin, and a child that is forked while every one is open.
// usage: descriptors MIB LIMIT dup|full
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static size_t pages;
static char *base;
static uint32_t version = 1;

static void push_out(void) {
    version++;
    pages_write(base, pages, 1, version);
}

static void check_all(void) {
    pages_check(base, pages, 1, version, "memory");
}

static void dup_everywhere(int limit) {
    for (int fd = 3; fd < limit; fd++) {
        if (dup2(1, fd) != fd) FAIL("dup2 to %d: %m", fd);
        if (fd % 64 == 0) push_out();
    }
    NEED(dup2(1, limit) == -1 && errno == EBADF);
    NEED(dup(1) == -1 && errno == EMFILE);
    NEED(fcntl(1, F_DUPFD, 0) == -1 && errno == EMFILE);
    NEED(fcntl(1, F_DUPFD, limit) == -1 && errno == EINVAL);
    for (int fd = 3; fd < limit; fd++) {
        NEED(dup3(1, fd, O_CLOEXEC) == fd && fcntl(fd, F_GETFD) == FD_CLOEXEC);
        NEED(close(fd) == 0);
        NEED(close(fd) == -1 && errno == EBADF);
        NEED(fcntl(1, F_DUPFD, fd) == fd && close(fd) == 0);
    }
    push_out();
    // What is not the program's is not there for it.
    for (int fd = 3; fd < limit + 200; fd++) {
        NEED(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
        NEED(dup(fd) == -1 && errno == EBADF);
        NEED(close(fd) == -1 && errno == EBADF);
        NEED(dup2(fd, 3) == -1 && errno == EBADF);
    }
    NEED(dup2(1, limit - 1) == limit - 1);
    NEED(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    NEED(syscall(SYS_close_range, 4, 3, 0) == -1 && errno == EINVAL);
    check_all();
    push_out();
}

static void fork_when_full(int limit) {
    int count = 0;
    while (dup(1) >= 0) count++;
    NEED(errno == EMFILE && count >= limit - 8);
    for (int i = 0; i < 3; i++) {
        push_out();
        pid_t child = fork();
        if (child == 0) {
            check_all();
            push_out();
            NEED(dup(1) == -1 && errno == EMFILE);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                check_all();
                push_out();
                _exit(8);
            }
            int status;
            NEED(waitpid(grandchild, &status, 0) == grandchild && WIFEXITED(status) && WEXITSTATUS(status) == 8);
            check_all();
            _exit(7);
        }
        NEED(child > 0);
        int status;
        NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        check_all();
    }
    // With room for fewer than are open.
    struct rlimit few;
    NEED(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = 64;
    NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
    pid_t child = fork();
    if (child == 0) {
        check_all();
        push_out();
        _exit(7);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(int count, char **arguments) {
    if (count != 4) FAIL("usage: descriptors MIB LIMIT dup|full");
    pages = pages_of_mib(arguments[1]);
    int limit = atoi(arguments[2]);
    // With the limit from its start on, of which some may be taken.
    struct rlimit now, wanted = {limit, limit};
    NEED(getrlimit(RLIMIT_NOFILE, &now) == 0);
    if (now.rlim_max != wanted.rlim_max) {
        NEED(setrlimit(RLIMIT_NOFILE, &wanted) == 0);
        execv("/proc/self/exe", arguments);
        FAIL("exec: %m");
    }
    NEED(now.rlim_cur <= now.rlim_max && now.rlim_cur >= now.rlim_max - 16);
    limit = now.rlim_cur;
    base = map_pages(pages);
    push_out();
    if (strcmp(arguments[3], "dup") == 0) dup_everywhere(limit);
    else fork_when_full(limit);
    check_all();
    puts("whole");
    return 0;
}
