// Calls that act on a process or its memory as a whole, beside memory that is far. Prints what they say.
// usage: odd_calls MIB
#include "pattern.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { SYS_MSEAL = 462 };

static char *base;
static size_t pages;
static uint32_t version = 1;

static void wash(void) {
    pages_check(base, pages, 1, version, "memory");
    pages_write(base, pages, 1, ++version);
}

static void say(const char *what, long result) {
    int error = errno;
    printf("%s: %ld %d\n", what, result, result < 0 ? error : 0);
    fflush(stdout);
}

// In a child: what it ends with.
static void in_child(const char *what, int (*work)(void)) {
    wash();
    pid_t child = fork();
    if (child == 0) {
        wash();
        int result = work();
        wash();
        _exit(result);
    }
    int status = -1;
    NEED(child > 0 && waitpid(child, &status, 0) == child);
    say(what, status);
    wash();
}

static int exits_alone(void) {
    syscall(SYS_exit, 21);
    return 1;
}

static void *exits_later(void *argument) {
    (void)argument;
    return NULL;
}

static int exits_after_a_thread(void) {
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, exits_later, NULL) == 0 && pthread_join(thread, NULL) == 0);
    syscall(SYS_exit, 22);
    return 1;
}

static int seals(void) {
    char *sealed = map_pages(256);
    pages_write(sealed, 256, 2, 1);
    wash();
    if (syscall(SYS_MSEAL, sealed, 256 * PAGE_BYTES, 0)) return errno == ENOSYS ? 77 : 1;
    if (munmap(sealed, 256 * PAGE_BYTES) == 0 || errno != EPERM) return 2;
    if (mprotect(sealed, 256 * PAGE_BYTES, PROT_READ) == 0 || errno != EPERM) return 3;
    if (mmap(sealed, PAGE_BYTES, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) return 4;
    if (mremap(sealed, 256 * PAGE_BYTES, 512 * PAGE_BYTES, MREMAP_MAYMOVE) != MAP_FAILED) return 5;
    wash();
    pages_check(sealed, 256, 2, 1, "sealed memory");
    pages_write(sealed, 256, 2, 2);
    return 0;
}

static int discards(void) {
    char *memory = map_pages(512);
    pages_write(memory, 512, 3, 1);
    wash();
    struct iovec ranges[] = {{memory, 100 * PAGE_BYTES}, {memory + 200 * PAGE_BYTES, 50 * PAGE_BYTES}};
    int process = syscall(SYS_pidfd_open, getpid(), 0);
    long done = syscall(SYS_process_madvise, process, ranges, 2, MADV_DONTNEED, 0);
    // Before Linux 6.13 other advice than for reclaim is refused.
    uint32_t expected = done < 0 ? 1 : 0;
    if (done >= 0 && done != 150 * PAGE_BYTES) return 1;
    wash();
    for (size_t i = 0; i < 512; i++) {
        uint32_t holds = i < 100 || (i >= 200 && i < 250) ? expected : 1;
        if (!page_holds(memory + i * PAGE_BYTES, page_seed(3, i, holds))) FAIL("page %zu after process_madvise", i);
    }
    if (syscall(SYS_process_madvise, process, (void *)8, 1, MADV_DONTNEED, 0) != -1) return 2;
    if (syscall(SYS_process_madvise, -1, ranges, 2, MADV_DONTNEED, 0) != -1 || errno != EBADF) return 3;
    if (syscall(SYS_process_madvise, process, ranges, 2, MADV_PAGEOUT, 0) != 150 * PAGE_BYTES) return 4;
    return expected;
}

static int protects(void) {
    wash();
    for (int round = 0; round < 3; round++) {
        NEED(mprotect(base, pages / 2 * PAGE_BYTES, PROT_NONE) == 0);
        char *other = map_pages(pages);
        pages_write(other, pages, 4, 1);
        NEED(munmap(other, pages * PAGE_BYTES) == 0);
        NEED(mprotect(base, pages / 2 * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
        wash();
    }
    return 0;
}

static int unshares(void) {
    if (unshare(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM)) return 1;
    wash();
    if (unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS)) return 2;
    if (unshare(CLONE_NEWNET) || unshare(CLONE_NEWPID)) return 3;
    pid_t child = fork();
    if (child == 0) {
        wash();
        pid_t second = fork();
        if (second == 0) _exit(getpid() > 1 && getpid() < 100 ? 0 : 4);
        int status = 1;
        waitpid(second, &status, 0);
        _exit(status ? 5 : 0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 6;
}

static int is_traced(void) {
    pid_t child = fork();
    if (child == 0) {
        NEED(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        raise(SIGSTOP);
        wash();
        _exit(9);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    // Signals are handed on, of which inline mode has some of its own.
    for (long signal = 0; WIFSTOPPED(status); signal = WSTOPSIG(status)) {
        NEED(ptrace(PTRACE_CONT, child, NULL, signal) == 0);
        NEED(waitpid(child, &status, 0) == child);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 9 ? 0 : 1;
}

static int is_another(void) {
    if (personality(0xffffffff) == -1 || personality(ADDR_NO_RANDOMIZE) == -1) return 1;
    if (prctl(PR_SET_DUMPABLE, 0)) return 2;
    pid_t child = fork();
    if (child == 0) {
        wash();
        _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 3;
}

int main(int argc, char **argv) {
    NEED(argc == 2);
    pages = pages_of_mib(argv[1]);
    base = map_pages(pages);
    pages_write(base, pages, 1, version);
    in_child("exit(2)", exits_alone);
    in_child("exit(2) after a thread", exits_after_a_thread);
    in_child("mseal", seals);
    in_child("process_madvise", discards);
    in_child("mprotect", protects);
    in_child("unshare", unshares);
    in_child("ptrace", is_traced);
    in_child("personality", is_another);
    puts("whole");
    return 0;
}
