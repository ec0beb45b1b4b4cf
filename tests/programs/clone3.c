// clone3(2) and clone(2) by number, flag by flag, and with arguments that must be refused.
// usage: clone3 MIB [CGROUP]
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

struct arguments {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
    uint64_t later[8];
};
enum { SIZE = 88 };

static size_t pages;
static char *base;
static uint32_t version = 1;
static struct arguments *arguments;
static int *numbers;

static void push_out(void) {
    version++;
    pages_write(base, pages, 1, version);
}

static long clone3(size_t size) {
    push_out();
    return syscall(SYS_clone3, arguments, size);
}

static void blank(uint64_t flags) {
    memset(arguments, 0, sizeof *arguments);
    *arguments = (struct arguments){.flags = flags, .exit_signal = SIGCHLD};
    for (int i = 0; i < 4; i++) numbers[i] = -1;
}

static void end(pid_t child, int expected) {
    int status;
    NEED(waitpid(child, &status, __WALL) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) FAIL("the child ended by %x, not %d", status, expected);
}

static void in_child(int status) {
    pages_check(base, pages, 1, version, "memory in the child");
    push_out();
    _exit(status);
}

static void with_pidfd(void) {
    blank(CLONE_PIDFD);
    arguments->pidfd = (uintptr_t)numbers;
    pid_t child = clone3(SIZE);
    if (child == 0) in_child(5);
    NEED(child > 0 && numbers[0] >= 0);
    NEED(fcntl(numbers[0], F_GETFD) == FD_CLOEXEC);
    NEED(syscall(SYS_pidfd_send_signal, numbers[0], 0, NULL, 0) == 0);
    struct pollfd polled = {numbers[0], POLLIN, 0};
    NEED(poll(&polled, 1, 60000) == 1);
    end(child, 5);
    NEED(close(numbers[0]) == 0);
    // The same by clone(2).
    numbers[0] = -1;
    push_out();
    child = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, numbers, NULL, NULL);
    if (child == 0) in_child(6);
    NEED(child > 0 && numbers[0] >= 0 && close(numbers[0]) == 0);
    end(child, 6);
}

static void with_tids(void) {
    blank(CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID);
    arguments->parent_tid = (uintptr_t)numbers, arguments->child_tid = (uintptr_t)(numbers + 1);
    pid_t child = clone3(SIZE);
    if (child == 0) in_child(numbers[1] == getpid() ? 7 : 8);
    NEED(child > 0 && numbers[0] == child && numbers[1] == -1);
    end(child, 7);
    uint64_t flags[] = {0, CLONE_FS, CLONE_SYSVSEM, CLONE_PARENT_SETTID, CLONE_VFORK,
                        CLONE_CLEAR_SIGHAND, CLONE_NEWUTS, CLONE_IO};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        blank(flags[i]);
        arguments->parent_tid = (uintptr_t)numbers;
        child = clone3(i % 2 ? SIZE : 64);
        if (child == 0) _exit(9);
        if (child < 0) FAIL("flags %llx: %m", (unsigned long long)flags[i]);
        end(child, 9);
    }
    pages_check(base, pages, 1, version, "memory");
}

static void with_signal(void) {
    signal(SIGUSR2, SIG_IGN);
    blank(CLONE_CLEAR_SIGHAND);
    pid_t child = clone3(SIZE);
    if (child == 0) {
        struct sigaction action;
        NEED(sigaction(SIGUSR2, NULL, &action) == 0);
        // An ignored signal stays ignored.
        in_child(action.sa_handler == SIG_IGN ? 3 : 4);
    }
    NEED(child > 0);
    end(child, 3);
    blank(0);
    arguments->exit_signal = SIGUSR2;
    child = clone3(SIZE);
    if (child == 0) in_child(2);
    NEED(child > 0 && waitpid(child, NULL, 0) == -1 && errno == ECHILD);
    end(child, 2);
    // No signal at its end.
    blank(0);
    arguments->exit_signal = 0;
    child = clone3(SIZE);
    if (child == 0) in_child(2);
    NEED(child > 0);
    end(child, 2);
}

static void into_cgroup(const char *path) {
    blank(CLONE_INTO_CGROUP);
    int group = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NEED(group >= 0);
    arguments->cgroup = group;
    int hold[2];
    NEED(pipe(hold) == 0);
    pid_t child = clone3(SIZE);
    if (child == 0) {
        char byte;
        NEED(close(hold[1]) == 0 && read(hold[0], &byte, 1) == 0);
        in_child(4);
    }
    NEED(child > 0);
    char name[4096], line[64], pid[64];
    snprintf(name, sizeof name, "%s/cgroup.procs", path), snprintf(pid, sizeof pid, "%d\n", child);
    FILE *members = fopen(name, "r");
    NEED(members != NULL);
    int is_there = 0;
    while (fgets(line, sizeof line, members)) is_there |= strcmp(line, pid) == 0;
    NEED(is_there && fclose(members) == 0 && close(hold[0]) == 0 && close(hold[1]) == 0);
    end(child, 4);
    NEED(close(group) == 0);
    arguments->cgroup = 1u << 20;
    NEED(clone3(SIZE) == -1 && errno == EBADF);
}

static void refused(const char *what, size_t size, int error) {
    errno = 0;
    long result = clone3(size);
    if (result == 0) _exit(99);
    if (result != -1 || errno != error) FAIL("%s: %ld, %s", what, result, strerror(errno));
}

static void refusals(void) {
    blank(0);
    refused("no size", 0, EINVAL);
    refused("less than the first version", 63, EINVAL);
    refused("more than a page", PAGE_BYTES + 1, E2BIG);
    arguments->later[1] = 1;
    refused("something that no kernel knows", sizeof *arguments, E2BIG);
    struct { const char *what; uint64_t flags, exit_signal, stack, stack_size; } wrong[] = {
        {"an unknown flag", 1ULL << 63, SIGCHLD, 0, 0},
        {"a signal among the flags", SIGCHLD, 0, 0, 0},
        {"a signal that is none", 0, 256, 0, 0},
        {"a negative signal", 0, -1, 0, 0},
        {"a thread without signal handlers", CLONE_THREAD, 0, 0, 0},
        {"a thread with memory alone", CLONE_THREAD | CLONE_VM, 0, 0, 0},
        {"signal handlers without memory", CLONE_SIGHAND, SIGCHLD, 0, 0},
        {"handlers shared and cleared", CLONE_SIGHAND | CLONE_VM | CLONE_CLEAR_SIGHAND, SIGCHLD, 0, 0},
        {"a namespace and its root shared", CLONE_NEWNS | CLONE_FS, SIGCHLD, 0, 0},
        {"a stack without length", 0, SIGCHLD, (uintptr_t)base, 0},
        {"a length without stack", 0, SIGCHLD, 0, PAGE_BYTES},
        {"a thread with a signal at its end", CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, SIGCHLD, 0, 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        blank(wrong[i].flags);
        arguments->exit_signal = wrong[i].exit_signal;
        arguments->stack = wrong[i].stack, arguments->stack_size = wrong[i].stack_size;
        refused(wrong[i].what, SIZE, EINVAL);
    }
    blank(0);
    arguments->set_tid = (uintptr_t)numbers, arguments->set_tid_size = 100;
    refused("more numbers than namespaces", SIZE, EINVAL);
    arguments->set_tid_size = 0;
    refused("numbers without count", SIZE, EINVAL);
    arguments->set_tid = 8, arguments->set_tid_size = 1;
    refused("numbers that are nowhere", SIZE, EFAULT);
    blank(CLONE_PIDFD);
    arguments->pidfd = 8;
    refused("a descriptor's place that is nowhere", SIZE, EFAULT);
    NEED(syscall(SYS_clone3, NULL, SIZE) == -1 && errno == EFAULT);
    NEED(syscall(SYS_clone3, (void *)-1L, SIZE) == -1 && errno == EFAULT);
    NEED(syscall(SYS_clone, CLONE_THREAD, NULL, NULL, NULL, NULL) == -1 && errno == EINVAL);
    NEED(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
}

int main(int count, char **words) {
    if (count < 2) FAIL("usage: clone3 MIB [CGROUP]");
    pages = pages_of_mib(words[1]);
    base = map_pages(pages);
    arguments = (struct arguments *)map_pages(2), numbers = (int *)map_pages(1);
    void (*steps[])(void) = {with_pidfd, with_tids, with_signal, refusals};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        steps[i]();
        pages_check(base, pages, 1, version, "memory");
    }
    if (count > 2) into_cgroup(words[2]);
    puts("whole");
    return 0;
}
