// process_vm_readv(2) and process_vm_writev(2) on a child whose memory is far, and on one that has the same memory.
// usage: remote MIB
#include "pattern.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>

static size_t pages;
static char *base, *copy;

static void expect_byte(int fd) {
    char byte;
    NEED(read(fd, &byte, 1) == 1);
}

// A child that writes its version of the memory, says so, and looks at what it finds once it is told to.
static pid_t start(int *said, int *told) {
    int to[2], from[2];
    NEED(pipe(to) == 0 && pipe(from) == 0);
    pid_t child = fork();
    NEED(child >= 0);
    if (child != 0) {
        NEED(close(to[0]) == 0 && close(from[1]) == 0);
        *said = from[0], *told = to[1];
        return child;
    }
    NEED(close(to[1]) == 0 && close(from[0]) == 0);
    pages_write(base, pages, 1, 2);
    NEED(write(from[1], "x", 1) == 1);
    expect_byte(to[0]);
    pages_check(base, pages, 1, 3, "what another process wrote");
    NEED(write(from[1], "x", 1) == 1);
    expect_byte(to[0]);
    _exit(7);
}

static void move(pid_t child, int way, size_t bytes) {
    struct iovec own[2] = {{copy, bytes / 2}, {copy + bytes / 2, bytes - bytes / 2}}, theirs = {base, bytes};
    ssize_t moved = way ? process_vm_writev(child, own, 2, &theirs, 1, 0)
                        : process_vm_readv(child, own, 2, &theirs, 1, 0);
    if (moved != (ssize_t)bytes) FAIL("%zd of %zu bytes were %s: %m", moved, bytes, way ? "written" : "read");
}

// Two processes with one memory: each reads it by the other's number.
static int read_parent(void *unused) {
    (void)unused;
    move(getppid(), 0, pages * PAGE_BYTES);
    kill(getpid(), SIGSTOP);
    return 5;
}

static void read_each_other(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    pages_write(copy, pages, 9, 9);
    pid_t child = clone(read_parent, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    NEED(child > 0);
    int status;
    NEED(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    pages_check(copy, pages, 1, 1, "what a process with the same memory read");
    for (int i = 0; i < 3; i++) {
        pages_write(copy, pages, 9, 9);
        move(child, 0, pages * PAGE_BYTES);
        pages_check(copy, pages, 1, 1, "what was read of a process with the same memory");
    }
    pages_write(copy, pages, 1, 4);
    move(child, 1, pages * PAGE_BYTES);
    pages_check(base, pages, 1, 4, "what was written to a process with the same memory");
    NEED(kill(child, SIGCONT) == 0);
    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: remote MIB");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages), copy = map_pages(pages);
    pages_write(base, pages, 1, 1);
    int said, told;
    pid_t child = start(&said, &told);
    expect_byte(said);
    for (int i = 0; i < 3; i++) {
        pages_write(copy, pages, 9, 9);
        move(child, 0, pages * PAGE_BYTES);
        pages_check(copy, pages, 1, 2, "what was read of a child");
    }
    pages_check(base, pages, 1, 1, "memory");
    pages_write(copy, pages, 1, 3);
    move(child, 1, pages * PAGE_BYTES);
    NEED(write(told, "x", 1) == 1);
    expect_byte(said);
    // Wrong addresses and processes.
    // Where nobody's memory lies by itself: the child has none there, nor what serves it.
    char *nowhere = mmap((void *)(1ul << 40), PAGE_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    NEED(nowhere == (void *)(1ul << 40));
    struct iovec own = {copy, 64}, theirs = {nowhere, 64}, wrong = {NULL, 64};
    NEED(process_vm_readv(child, &own, 1, &theirs, 1, 0) == -1 && errno == EFAULT);
    NEED(process_vm_writev(child, &own, 1, &theirs, 1, 0) == -1 && errno == EFAULT);
    theirs.iov_base = base;
    NEED(process_vm_readv(child, &wrong, 1, &theirs, 1, 0) == -1 && errno == EFAULT);
    NEED(process_vm_readv(child, &own, 1, &theirs, 1, 1) == -1 && errno == EINVAL);
    NEED(write(told, "x", 1) == 1);
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    NEED(process_vm_readv(child, &own, 1, &theirs, 1, 0) == -1 && errno == ESRCH);
    // Its own process too.
    move(getpid(), 0, pages * PAGE_BYTES);
    pages_check(copy, pages, 1, 1, "what was read of itself");
    pages_check(base, pages, 1, 1, "memory");
    read_each_other();
    puts("whole");
    return 0;
}
