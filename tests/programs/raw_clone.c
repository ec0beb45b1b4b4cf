// Makes processes and threads by clone(2) and clone3(2) with their flags one by one, with everything that the kernel
// reads and writes in memory that may be far. Prints what each was like, which must not depend on who manages memory.
// usage: raw_clone MIB [CASE]
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char *base;
static size_t pages;
static uint32_t version = 1;
static const char *wanted;

// What the kernel writes, each in a page of its own between pages of the pattern.
struct cells {
    volatile int parent_tid;
    volatile int child_tid;
    volatile int pidfd;
    volatile int shared;
    struct clone_args arguments;
    pid_t set_tid[2];
};
static struct cells *cells;
// Cleared when a child that shares this memory ends, which has used all other memory before: it is far by then.
static volatile int *ended_tid;
static char *stack;
enum { STACK_PAGES = 16 };

// Writes all of the pattern's pages, so that what was used before goes far.
static void wash(void) {
    pages_write(base, pages, 1, ++version);
}

static void check(void) {
    pages_check(base, pages, 1, version, "memory");
}

static int is_wanted(const char *name) {
    return !wanted || !strcmp(wanted, name);
}

static void say(const char *name, const char *what, long value) {
    printf("%s: %s %ld\n", name, what, value);
    fflush(stdout);
}

static void say_end(const char *name, pid_t child, int options) {
    int status = -1;
    pid_t waited = waitpid(child, &status, options);
    say(name, "waited", waited == child ? 0 : -errno);
    say(name, "status", status);
}

// What every child does: it finds its parent's memory, writes its own, and has a child of its own.
static int child_work(void) {
    check();
    wash();
    check();
    pid_t grandchild = fork();
    if (grandchild == 0) {
        check();
        _exit(7);
    }
    int status;
    if (waitpid(grandchild, &status, 0) != grandchild || status != 7 << 8) return 90;
    check();
    return 11;
}

static pid_t raw_clone(unsigned long flags) {
    return syscall(SYS_clone, flags, NULL, &cells->parent_tid, &cells->child_tid, 0);
}

static void forget_cells(void) {
    cells->parent_tid = cells->child_tid = cells->pidfd = -1;
    cells->shared = 0;
}

static void forks(const char *name, unsigned long flags) {
    if (!is_wanted(name)) return;
    forget_cells();
    wash();
    pid_t child = raw_clone(flags);
    if (child == 0) {
        if (flags & CLONE_CHILD_SETTID && cells->child_tid != syscall(SYS_gettid)) _exit(80);
        _exit(child_work());
    }
    if (child < 0) return say(name, "refused", errno);
    if (flags & CLONE_PARENT_SETTID) say(name, "parent tid is the child's", cells->parent_tid == child);
    say(name, "child tid is", cells->child_tid);
    if (flags & CLONE_PIDFD) {
        siginfo_t info = {0};
        struct pollfd polled = {.fd = cells->parent_tid, .events = POLLIN};
        say(name, "ends", poll(&polled, 1, -1));
        say(name, "waited by descriptor", waitid(P_PIDFD, cells->parent_tid, &info, WEXITED | __WALL));
        say(name, "status", info.si_status);
        close(cells->parent_tid);
        return check();
    }
    say_end(name, child, __WALL);
    check();
}

static volatile sig_atomic_t signals_seen;
static void on_signal(int number) {
    signals_seen += number;
}

static void forks_signal(const char *name, int number) {
    if (!is_wanted(name)) return;
    signals_seen = 0;
    wash();
    if (number) signal(number, on_signal);
    pid_t child = raw_clone(number);
    if (child == 0) _exit(child_work());
    say_end(name, child, __WALL);
    say(name, "signals", signals_seen);
}

// The child's child is ours.
static void is_parent(const char *name) {
    if (!is_wanted(name)) return;
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    pid_t child = fork();
    if (child == 0) {
        pid_t sibling = raw_clone(CLONE_PARENT | SIGCHLD);
        if (sibling == 0) _exit(child_work());
        _exit(sibling > 0 ? 12 : errno);
    }
    int sum = 0;
    for (int i = 0; i < 2; i++) {
        int status;
        pid_t waited = waitpid(-1, &status, 0);
        if (waited < 0) say(name, "wait failed", errno);
        sum += status;
    }
    say(name, "statuses", sum);
    check();
}

static void shares_files(const char *name, unsigned long flags) {
    if (!is_wanted(name)) return;
    int file = open("/dev/null", O_RDONLY);
    char before[4096], after[4096];
    NEED(getcwd(before, sizeof before));
    pid_t child = raw_clone(flags | SIGCHLD);
    if (child == 0) {
        close(file);
        NEED(chdir("/") == 0);
        _exit(child_work());
    }
    say_end(name, child, 0);
    NEED(getcwd(after, sizeof after));
    say(name, "file is closed", close(file) < 0);
    say(name, "directory is another", strcmp(before, after) != 0);
    NEED(chdir(before) == 0);
}

static int on_stack(void *argument) {
    (void)argument;
    return child_work();
}

static void clones(const char *name, int flags) {
    if (!is_wanted(name)) return;
    forget_cells();
    wash();
    pid_t child = clone(on_stack, stack + STACK_PAGES * PAGE_BYTES, flags, NULL, &cells->parent_tid, NULL,
                        &cells->child_tid);
    if (child < 0) return say(name, "refused", errno);
    if (flags & CLONE_PARENT_SETTID) say(name, "parent tid is the child's", cells->parent_tid == child);
    say_end(name, child, __WALL);
    say(name, "child tid is", cells->child_tid);
    check();
}

// With this memory, and no thread-local storage of its own.
static int beside(void *argument) {
    (void)argument;
    for (int pass = 0; pass < 4; pass++)
        for (size_t i = 0; i < pages; i++)
            if (!page_holds(base + i * PAGE_BYTES, page_seed(1, i, version))) syscall(SYS_exit, 91);
    cells->shared = 5;
    syscall(SYS_exit, 13);
    return 0;
}

static void shares_memory(const char *name, int flags) {
    if (!is_wanted(name)) return;
    forget_cells();
    *ended_tid = 1;
    wash();
    pid_t child = clone(beside, stack + STACK_PAGES * PAGE_BYTES, flags | CLONE_VM, NULL, &cells->parent_tid, NULL,
                        (pid_t *)ended_tid);
    if (child < 0) return say(name, "refused", errno);
    if (flags & CLONE_PARENT_SETTID) say(name, "parent tid is the child's", cells->parent_tid == child);
    if (flags & CLONE_CHILD_CLEARTID) {
        for (int tid; (tid = *ended_tid) != 0;) syscall(SYS_futex, ended_tid, FUTEX_WAIT, tid, NULL, NULL, 0);
    }
    if (!(flags & CLONE_THREAD)) say_end(name, child, __WALL);
    say(name, "shared", cells->shared);
    check();
}

static long clone3(size_t bytes) {
    return syscall(SYS_clone3, &cells->arguments, bytes);
}

static void extended(const char *name, struct clone_args arguments, size_t bytes) {
    if (!is_wanted(name)) return;
    forget_cells();
    if (arguments.flags & CLONE_PIDFD) arguments.pidfd = (uintptr_t)&cells->pidfd;
    if (arguments.flags & CLONE_PARENT_SETTID) arguments.parent_tid = (uintptr_t)&cells->parent_tid;
    if (arguments.flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)) arguments.child_tid = (uintptr_t)&cells->child_tid;
    if (arguments.set_tid_size) arguments.set_tid = (uintptr_t)cells->set_tid;
    cells->arguments = arguments;
    wash();
    pid_t child = clone3(bytes);
    if (child == 0) {
        if (arguments.flags & CLONE_CHILD_SETTID && cells->child_tid != syscall(SYS_gettid)) _exit(80);
        _exit(child_work());
    }
    if (child < 0) return say(name, "refused", errno);
    if (arguments.set_tid_size) say(name, "is the wanted", child == cells->set_tid[0]);
    if (arguments.flags & CLONE_PARENT_SETTID) say(name, "parent tid is the child's", cells->parent_tid == child);
    if (arguments.flags & CLONE_PIDFD) {
        say(name, "has a descriptor", fcntl(cells->pidfd, F_GETFD));
        close(cells->pidfd);
    }
    say_end(name, child, __WALL);
    check();
}

// A pid that nobody has.
static pid_t free_pid(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    NEED(waitpid(pid, NULL, 0) == pid);
    return pid;
}

static void extendeds(void) {
    size_t whole = sizeof(struct clone_args);
    struct clone_args plain = {.exit_signal = SIGCHLD};
    struct clone_args with = plain;
    extended("clone3", plain, whole);
    extended("clone3 of the first version", plain, CLONE_ARGS_SIZE_VER0);
    with.flags = CLONE_PIDFD;
    extended("clone3 CLONE_PIDFD", with, whole);
    with.flags = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID;
    extended("clone3 with tids", with, whole);
    with.flags = CLONE_CLEAR_SIGHAND;
    extended("clone3 CLONE_CLEAR_SIGHAND", with, whole);
    with = plain;
    with.set_tid_size = 1;
    cells->set_tid[0] = free_pid();
    extended("clone3 with set_tid", with, whole);
    cells->set_tid[0] = getpid();
    extended("clone3 with a taken set_tid", with, whole);
    with.set_tid_size = 99;
    extended("clone3 with too many set_tid", with, whole);
    with = plain;
    with.flags = CLONE_SIGHAND;
    extended("clone3 CLONE_SIGHAND alone", with, whole);
    with.flags = CLONE_THREAD;
    extended("clone3 CLONE_THREAD alone", with, whole);
    with.flags = CLONE_FS | CLONE_NEWNS;
    extended("clone3 CLONE_FS and CLONE_NEWNS", with, whole);
    with.flags = CLONE_INTO_CGROUP;
    with.cgroup = 99999;
    extended("clone3 into no cgroup", with, whole);
    with = plain;
    with.exit_signal = 0x1ff;
    extended("clone3 with no signal", with, whole);
    with = plain;
    with.stack = 0x1000;
    extended("clone3 with a stack of no length", with, whole);
    extended("clone3 too short", plain, 1);
    extended("clone3 too long", plain, 8192);
    if (is_wanted("clone3 at no address")) {
        long result = syscall(SYS_clone3, NULL, whole);
        if (result == 0) _exit(1);
        say("clone3 at no address", "refused", errno);
    }
    if (is_wanted("clone3 at a wrong address")) {
        long result = syscall(SYS_clone3, (void *)0x7ffffff00000, whole);
        if (result == 0) _exit(1);
        say("clone3 at a wrong address", "refused", errno);
    }
}

int main(int argc, char **argv) {
    NEED(argc >= 2);
    wanted = argc > 2 ? argv[2] : NULL;
    pages = pages_of_mib(argv[1]);
    cells = (struct cells *)map_pages(1);
    ended_tid = (volatile int *)map_pages(1);
    base = map_pages(pages);
    stack = map_pages(STACK_PAGES);
    setvbuf(stdout, NULL, _IOLBF, 4096);

    forks("SIGCHLD", SIGCHLD);
    forks("CLONE_CHILD_SETTID", CLONE_CHILD_SETTID | SIGCHLD);
    forks("CLONE_PARENT_SETTID", CLONE_PARENT_SETTID | SIGCHLD);
    forks("CLONE_CHILD_CLEARTID", CLONE_CHILD_CLEARTID | SIGCHLD);
    forks("all tids", CLONE_CHILD_SETTID | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD);
    forks("CLONE_PIDFD", CLONE_PIDFD | SIGCHLD);
    forks("CLONE_VFORK", CLONE_VFORK | SIGCHLD);
    forks("CLONE_IO", CLONE_IO | SIGCHLD);
    forks("CLONE_SYSVSEM", CLONE_SYSVSEM | SIGCHLD);
    forks("CLONE_UNTRACED", CLONE_UNTRACED | SIGCHLD);
    forks("CLONE_SIGHAND", CLONE_SIGHAND | SIGCHLD);
    forks("CLONE_THREAD", CLONE_THREAD);
    forks("CLONE_NEWNS", CLONE_NEWNS | SIGCHLD);
    forks("CLONE_NEWUTS", CLONE_NEWUTS | SIGCHLD);
    forks("CLONE_NEWIPC", CLONE_NEWIPC | SIGCHLD);
    forks("CLONE_NEWNET", CLONE_NEWNET | SIGCHLD);
    forks("CLONE_NEWPID", CLONE_NEWPID | SIGCHLD);
    forks("CLONE_NEWUSER", CLONE_NEWUSER | SIGCHLD);
    forks("CLONE_NEWCGROUP", CLONE_NEWCGROUP | SIGCHLD);
    forks("CLONE_NEWPID and CLONE_PARENT", CLONE_NEWPID | CLONE_PARENT_SETTID | SIGCHLD);
    forks_signal("no signal", 0);
    forks_signal("SIGUSR1", SIGUSR1);
    is_parent("CLONE_PARENT");
    shares_files("own files", 0);
    shares_files("CLONE_FILES", CLONE_FILES);
    shares_files("CLONE_FS", CLONE_FS);
    clones("clone", SIGCHLD);
    clones("clone with tids", CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD);
    clones("clone CLONE_VFORK", CLONE_VFORK | SIGCHLD);
    clones("clone CLONE_FILES", CLONE_FILES | SIGCHLD);
    shares_memory("CLONE_VM", SIGCHLD);
    shares_memory("CLONE_VM CLONE_VFORK", CLONE_VFORK | SIGCHLD);
    shares_memory("CLONE_VM and all", CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD);
    shares_memory("CLONE_VM with tids", CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD);
    shares_memory("CLONE_THREAD of clone", CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                                               CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID);
    extendeds();
    puts("whole");
}
