// What a program may see of a system call that libc makes, while its memory comes and goes: registers, the red
// zone, errno, signals, cancellation, children, bad addresses. jumped_calls MIB; writes "whole".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            fflush(stdout); \
            _exit(1); \
        } \
    } while (0)

extern char **environ;
static char *far;
static size_t bytes;
static int ends[2], pipes[2];

static void fill(void) {
    for (size_t i = 0; i < bytes; i += 64) memset(far + i, (int)(i >> 6) * 7 + 1, 64);
}

static int is_right(size_t from, size_t length, const char *found) {
    for (size_t i = 0; i < length; i++) {
        if (found[i] != (char)((int)((from + i) >> 6) * 7 + 1)) return 0;
    }
    return 1;
}

// Registers: `function` is called with these arguments and everything else set; 0 when all of it is kept.
struct state {
    uint64_t general[9];
    uint8_t vectors[32 * 64];
    uint64_t masks[8];
};
static struct state before, after;

#define EACH_16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH_HIGH(X) \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define LOAD_ZMM(n) "vmovdqu64 " #n "*64+72(%[from]), %%zmm" #n "\n"
#define STORE_ZMM(n) "vmovdqu64 %%zmm" #n ", " #n "*64+72(%%rbx)\n"
#define LOAD_YMM(n) "vmovdqu " #n "*64+72(%[from]), %%ymm" #n "\n"
#define STORE_YMM(n) "vmovdqu %%ymm" #n ", " #n "*64+72(%%rbx)\n"
#define LOAD_XMM(n) "movdqu " #n "*64+72(%[from]), %%xmm" #n "\n"
#define STORE_XMM(n) "movdqu %%xmm" #n ", " #n "*64+72(%%rbx)\n"
#define LOAD_MASK(n) "kmovw " #n "*8+2120(%[from]), %%k" #n "\n"
#define STORE_MASK(n) "kmovw %%k" #n ", " #n "*8+2120(%%rbx)\n"
#define EACH_MASK(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

// The red zone of the called function, and the registers that neither it nor the kernel changes.
#define CALL(LOAD, STORE) \
    __asm__ volatile( \
        LOAD "mov %[from], %%rbx\n" \
             "lea -272(%%rsp), %%rsp\n" \
             "mov $0x5eed, %%r12\n mov $16, %%ecx\n" \
             "1: mov %%r12, -144(%%rsp,%%rcx,8)\n dec %%ecx\n jnz 1b\n" \
             "mov %[a], %%rdi\n mov %[b], %%rsi\n mov %[c], %%rdx\n mov %[d], %%rcx\n" \
             "mov %[into], %%rbx\n mov $0x1111, %%r8\n mov $0x2222, %%r9\n mov $0x3333, %%r12\n" \
             "mov $0x4444, %%r13\n mov $0x5555, %%r14\n" \
             "call *%[function]\n" \
             "mov %%rdi, (%%rbx)\n mov %%rsi, 8(%%rbx)\n mov %%rdx, 16(%%rbx)\n" \
             "mov %%r12, 40(%%rbx)\n mov %%r13, 48(%%rbx)\n mov %%r14, 56(%%rbx)\n" \
             STORE \
             "mov $15, %%ecx\n xor %%edx, %%edx\n" \
             "2: mov -144(%%rsp,%%rcx,8), %%r8\n cmp $0x5eed, %%r8\n je 3f\n inc %%edx\n" \
             "3: dec %%ecx\n jnz 2b\n" \
             "mov %%rdx, 64(%%rbx)\n" \
             "lea 272(%%rsp), %%rsp\n" \
        : "=a"(result) \
        : [from] "r"(&before), [into] "m"(into), [a] "m"(a), [b] "m"(b), [c] "m"(c), [d] "m"(d), \
          [function] "m"(function) \
        : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "memory", "cc", "xmm0", \
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
          "xmm14", "xmm15")

// Not on the stack, whose pointer is moved.
static struct state *into = &after;
static void *function;
static long a, b, c, d;

static void keeps(void *called, long la, long lb, long lc, long ld, long expected) {
    function = called;
    a = la, b = lb, c = lc, d = ld;
    long result;
    memset(&after, 0, sizeof after);
    size_t width;
    if (__builtin_cpu_supports("avx512f")) {
        width = 64;
        CALL(EACH_16(LOAD_ZMM) EACH_HIGH(LOAD_ZMM) EACH_MASK(LOAD_MASK),
             EACH_16(STORE_ZMM) EACH_HIGH(STORE_ZMM) EACH_MASK(STORE_MASK) "vzeroupper\n");
    } else if (__builtin_cpu_supports("avx2")) {
        width = 32;
        CALL(EACH_16(LOAD_YMM), EACH_16(STORE_YMM) "vzeroupper\n");
    } else {
        width = 16;
        CALL(EACH_16(LOAD_XMM), EACH_16(STORE_XMM));
    }
    CHECK(result == expected);
    CHECK(after.general[0] == (uint64_t)a && after.general[1] == (uint64_t)b);
    CHECK(after.general[5] == 0x3333 && after.general[6] == 0x4444 && after.general[7] == 0x5555);
    CHECK(after.general[8] == 0);
    for (int i = 0; i < (width == 64 ? 32 : 16); i++) {
        CHECK(memcmp(before.vectors + i * 64, after.vectors + i * 64, width) == 0);
    }
    if (width == 64) CHECK(memcmp(before.masks + 1, after.masks + 1, 7 * 8) == 0);
}

static void registers(void) {
    for (size_t i = 0; i < sizeof before.vectors; i++) before.vectors[i] = (uint8_t)(i * 37 + 11);
    for (int i = 1; i < 8; i++) before.masks[i] = 0x1234 + i;
    char small[64], control[64];
    struct iovec parts[] = {{small, 32}, {far, 32}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = control, .msg_controllen = 64};
    struct epoll_event event = {.events = EPOLLIN}, events[4];
    int epoll = epoll_create1(0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event) == 0);
    for (size_t round = 0; round < 200; round++) {
        // Far in some of the rounds.
        char *buffer = far + round * 7919 * 64 % (bytes - 4096);
        keeps(getppid, 1, 2, 3, 4, getppid());
        keeps(write, pipes[1], (long)buffer, 64, 0, 64);
        keeps(read, pipes[0], (long)buffer, 64, 0, 64);
        keeps(writev, pipes[1], (long)parts, 2, 0, 64);
        keeps(readv, pipes[0], (long)parts, 2, 0, 64);
        CHECK(send(ends[0], buffer, 64, 0) == 64);
        keeps(epoll_wait, epoll, (long)events, 4, 0, 1);
        message.msg_controllen = 64;
        keeps(recvmsg, ends[1], (long)&message, 0, 0, 64);
        keeps(sendmsg, ends[0], (long)&message, 0, 0, 64);
        CHECK(recv(ends[1], small, 64, 0) == 64);
    }
    close(epoll);
}

static void errors(void) {
    char *closed = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec wrong[] = {{closed, 8}};
    errno = 0;
    CHECK(read(-1, far, 8) == -1 && errno == EBADF);
    CHECK(write(pipes[1], closed, 8) == -1 && errno == EFAULT);
    char *volatile nowhere = (char *)8;
    CHECK(write(pipes[1], nowhere, 8) == -1 && errno == EFAULT);
    CHECK(writev(pipes[1], wrong, 1) == -1 && errno == EFAULT);
    CHECK(writev(pipes[1], (struct iovec *)closed, 1) == -1 && errno == EFAULT);
    CHECK(sendmsg(ends[0], (struct msghdr *)closed, 0) == -1 && errno == EFAULT);
    CHECK(recvmsg(ends[1], (struct msghdr *)closed, MSG_DONTWAIT) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_futex, closed, 0, 1, 0) == -1 && errno == EFAULT);
    CHECK(fcntl(999999, F_GETFD) == -1 && errno == EBADF);
    errno = 77;
    CHECK(write(pipes[1], far, 8) == 8 && read(pipes[0], far, 8) == 8 && errno == 77);
    munmap(closed, 8192);
}

static sigjmp_buf back;
static atomic_int came;
static void count(int number) {
    (void)number;
    int kept = errno;
    char small[8] = {0};
    // A call within a call.
    CHECK(write(ends[0], small, 8) == 8 && read(ends[1], small, 8) == 8);
    if (came++ % 2 == 1) CHECK(write(pipes[1], "wake", 4) == 4);
    errno = kept;
}
static void jump(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static void in_a_moment(long us) {
    struct itimerval timer = {.it_value = {.tv_usec = us}};
    CHECK(setitimer(ITIMER_REAL, &timer, 0) == 0);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = count};
    char *buffer = far + bytes / 2;
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    for (int i = 0; i < 20; i++) {
        came = 0;
        in_a_moment(1000);
        CHECK(read(pipes[0], buffer, 4) == -1 && errno == EINTR && came == 1);
    }
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    for (int i = 0; i < 20; i++) {
        came = 1;
        in_a_moment(1000);
        CHECK(read(pipes[0], buffer, 4) == 4 && memcmp(buffer, "wake", 4) == 0 && came == 2);
    }
    action.sa_handler = jump;
    action.sa_flags = SA_NODEFER;
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    // More often than there are places for what calls hold.
    for (int i = 0; i < 700; i++) {
        if (sigsetjmp(back, 1) == 0) {
            in_a_moment(300);
            CHECK(read(pipes[0], far + (size_t)i * 4096 % bytes, 4) == 4);
        }
    }
    sigset_t all, old;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &old) == 0 && !sigismember(&old, SIGALRM));
    in_a_moment(100);
    usleep(2000);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGALRM));
    action.sa_handler = SIG_IGN;
    CHECK(sigaction(SIGALRM, &action, 0) == 0 && sigprocmask(SIG_SETMASK, &old, 0) == 0);
}

static atomic_int cleaned;
static void clean(void *what) {
    (void)what;
    cleaned++;
}
static void leave_scope(int *what) {
    (void)what;
    cleaned += 100;
}
static void *blocked(void *buffer) {
    __attribute__((cleanup(leave_scope))) int scope = 0;
    pthread_cleanup_push(clean, 0);
    int only[2];
    CHECK(pipe(only) == 0);
    (void)!read(only[0], buffer, 4);
    pthread_cleanup_pop(0);
    return &cleaned;
}
static atomic_int is_busy;
static int loop[2];
static void *busy(void *buffer) {
    __attribute__((cleanup(leave_scope))) int scope = 0;
    is_busy = 1;
    for (;;) CHECK(write(loop[1], buffer, 64) == 64 && read(loop[0], buffer, 64) == 64);
    return 0;
}
// Wherever in a call a thread is.
static void cancellation_amid_calls(void) {
    unsigned state = 1;
    CHECK(pipe(loop) == 0);
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        void *result;
        cleaned = is_busy = 0;
        CHECK(pthread_create(&thread, 0, busy, far + (size_t)i * 8192 % (bytes - 8192)) == 0);
        while (!is_busy) sched_yield();
        state = state * 1664525 + 1013904223;
        for (volatile unsigned wait = state >> 18; wait > 0; wait--) {}
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED && cleaned == 100);
    }
}
static void cancellation(void) {
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        void *result;
        cleaned = 0;
        CHECK(pthread_create(&thread, 0, blocked, far + i * 8192) == 0);
        if (i % 3) usleep(1000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED && (cleaned == 101 || (i % 3 == 0 && cleaned == 0)));
    }
}

static int in_child(void *number) {
    char buffer[16];
    for (int i = 0; i < 100; i++) {
        if (write(pipes[1], "child", 5) != 5 || read(pipes[0], buffer, 5) != 5) _exit(99);
    }
    _exit((int)(intptr_t)number);
}
static void ends_with(pid_t child, int status) {
    int found;
    CHECK(child > 0 && waitpid(child, &found, __WALL) == child);
    CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
}
static void children(void) {
    for (volatile int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) in_child((void *)3);
        ends_with(child, 3);
        child = vfork();
        if (child == 0) _exit(write(pipes[1], "v", 1) == 1 ? 4 : 99);
        ends_with(child, 4);
        char byte;
        CHECK(read(pipes[0], &byte, 1) == 1);
        char *arguments[] = {"sh", "-c", "exit 5", 0};
        CHECK(posix_spawn(&child, "/bin/sh", 0, 0, arguments, environ) == 0);
        ends_with(child, 5);
        static char stack[65536] __attribute__((aligned(16)));
        for (int flags = 0; flags < 2; flags++) {
            int how = flags ? CLONE_VM | CLONE_VFORK : 0;
            ends_with(clone(in_child, stack + sizeof stack, how | SIGCHLD, (void *)6), 6);
        }
        CHECK(write(pipes[1], far, 64) == 64 && read(pipes[0], far, 64) == 64);
    }
    // One that shares this thread's storage and runs beside it.
    static char stack[65536] __attribute__((aligned(16)));
    pid_t beside = clone(in_child, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)7);
    for (int i = 0; i < 100; i++) CHECK(write(ends[0], far, 64) == 64 && read(ends[1], far, 64) == 64);
    ends_with(beside, 7);
}

static void by_own_instruction(void) {
    for (int i = 0; i < 100; i++) {
        long result = SYS_getppid;
        __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
        CHECK(result == getppid());
        char *from = far + (size_t)i * 4096 * 13 % (bytes - 4096);
        result = SYS_write;
        __asm__ volatile("syscall" : "+a"(result) : "D"(pipes[1]), "S"(from), "d"(64) : "rcx", "r11", "memory");
        char small[64];
        CHECK(result == 64 && read(pipes[0], small, 64) == 64 && memcmp(small, from, 64) == 0);
    }
}

static ucontext_t outside, inside;
static void on_small_stack(void) {
    for (int i = 0; i < 50; i++) {
        char small[256];
        CHECK(write(pipes[1], far + (size_t)i * 65536 % (bytes - 4096), 256) == 256);
        CHECK(read(pipes[0], small, 256) == 256 && is_right((size_t)i * 65536 % (bytes - 4096), 256, small));
        swapcontext(&inside, &outside);
    }
}
static void coroutines(void) {
    // Far, at times.
    size_t stack_bytes = 16384;
    char *stack = mmap(0, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = stack_bytes;
    inside.uc_link = &outside;
    makecontext(&inside, on_small_stack, 0);
    fill();
    for (int i = 0; i < 51; i++) {
        swapcontext(&outside, &inside);
        if (i % 10 == 0) fill();
    }
}

static void *transfers(void *seed) {
    uint64_t state = (uint64_t)(uintptr_t)seed;
    int own[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, own) == 0);
    char *to = malloc(65536);
    for (int i = 0; i < 3000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t from = (state >> 20) % (bytes - 20000), length = 1 + (state >> 50);
        CHECK(write(own[0], far + from, length) == (ssize_t)length);
        struct iovec parts[] = {{to, length / 2}, {to + length / 2, length - length / 2}};
        size_t found = 0;
        while (found < length) {
            ssize_t part = found ? read(own[1], to + found, length - found) : readv(own[1], parts, 2);
            CHECK(part > 0);
            found += (size_t)part;
        }
        CHECK(is_right(from, length, to));
    }
    free(to);
    close(own[0]);
    close(own[1]);
    return 0;
}

int main(int count, char **arguments) {
    bytes = (size_t)atoi(count > 1 ? arguments[1] : "24") << 20;
    far = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(far != MAP_FAILED && pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    // Some of it is the kernel's still.
    registers();
    fill();
    registers();
    errors();
    fill();
    transfers((void *)1);
    coroutines();
    by_own_instruction();
    signals();
    children();
    fill();
    cancellation();
    cancellation_amid_calls();
    fill();
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], 0, transfers, (void *)(i + 2)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], 0) == 0);
    children();
    puts("whole");
    return 0;
}
