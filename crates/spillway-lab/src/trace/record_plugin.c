// Plugin for QEMU's user mode (plugin API version 1): sends what the program does to memory down a pipe, eight bytes
// each: 48 bits address, instructions or pages, 2 bits kind, 4 bits size, 10 bits task. Memory that is given back comes
// as two: its address, of size 0, then its pages, of size 1.
//
// What the kernel reads and writes for the program in the plain calls of reading and writing is the program's doing.
// What a tiny first-level cache of this thread would catch is left out. Another process that the program forks sends
// nothing.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What we use of the API; Debian packages no header for it.
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int,
                                      int, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t,
                                                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                              uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, int64_t));
void qemu_plugin_register_vcpu_exit_cb(plugin_id, void (*)(plugin_id, unsigned));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
bool qemu_plugin_mem_is_store(uint32_t);
unsigned qemu_plugin_mem_size_shift(uint32_t);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { RECORDS = 512, FILTER_LINES = 64, LINE_SHIFT = 6, INSTRUCTIONS_LEAST = 64, FD_LEAST = 900 };
enum { KIND_READ = 0, KIND_WRITE = 1, KIND_INSTRUCTIONS = 2, KIND_RELEASE = 3 };
enum { RELEASE_ADDRESS = 0, RELEASE_PAGES = 1 };
enum { PAGE_SHIFT = 12, LARGEST_SHIFT = 12 };
// System calls of x86-64, and what they are asked for.
enum {
    CALL_READ = 0, CALL_WRITE = 1, CALL_MMAP = 9, CALL_MUNMAP = 11, CALL_BRK = 12, CALL_PREAD = 17, CALL_PWRITE = 18,
    CALL_MREMAP = 25, CALL_MADVISE = 28, CALL_SENDTO = 44, CALL_RECVFROM = 45, CALL_GETRANDOM = 318
};
enum { ASKS_FIXED = 0x10, ADVISES_DONTNEED = 4, ADVISES_FREE = 8, ADVISES_REMOVE = 9 };
#define VALUE_MASK ((UINT64_C(1) << 48) - 1)

struct thread {
    struct thread *next;
    uint64_t task;
    uint64_t instructions;
    // The system call that is under way.
    uint64_t arguments[4];
    size_t count;
    uint64_t records[RECORDS];
    // A line and whether it was written, for each slot; 0 for none.
    uint64_t filter[FILTER_LINES];
};

static __thread struct thread *self;
static struct thread *threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile bool stopped;
static int out = -1;
static pid_t recorded;

// With the lock held.
static void send_records(struct thread *thread) {
    const char *bytes = (const char *)thread->records;
    size_t left = thread->count * sizeof(thread->records[0]);
    thread->count = 0;
    if (getpid() != recorded) {
        stopped = true;
    }
    while (left > 0 && !stopped) {
        ssize_t sent = write(out, bytes, left);
        if (sent < 0 && errno != EINTR) {
            stopped = true;
        } else if (sent > 0) {
            bytes += sent;
            left -= (size_t)sent;
        }
    }
}

static void put(struct thread *thread, uint64_t value, uint64_t kind, uint64_t size_shift) {
    if (thread->count == RECORDS) {
        pthread_mutex_lock(&lock);
        send_records(thread);
        pthread_mutex_unlock(&lock);
    }
    thread->records[thread->count++] = (value & VALUE_MASK) | kind << 48 | size_shift << 50 | thread->task << 54;
}

static struct thread *this_thread(unsigned vcpu) {
    if (self == NULL && !stopped) {
        struct thread *made = calloc(1, sizeof(*made));
        if (made == NULL) {
            stopped = true;
            return NULL;
        }
        made->task = vcpu & 1023;
        pthread_mutex_lock(&lock);
        made->next = threads;
        threads = made;
        pthread_mutex_unlock(&lock);
        self = made;
    }
    return stopped ? NULL : self;
}

static void on_block(unsigned vcpu, void *instructions) {
    struct thread *thread = this_thread(vcpu);
    if (thread != NULL) {
        thread->instructions += (uintptr_t)instructions;
    }
}

static void on_access(unsigned vcpu, uint32_t info, uint64_t address, void *unused) {
    (void)unused;
    struct thread *thread = this_thread(vcpu);
    if (thread == NULL) {
        return;
    }
    bool store = qemu_plugin_mem_is_store(info);
    unsigned size_shift = qemu_plugin_mem_size_shift(info);
    uint64_t line = address >> LINE_SHIFT;
    bool one_line = (address + (UINT64_C(1) << size_shift) - 1) >> LINE_SHIFT == line;
    uint64_t *slot = &thread->filter[line % FILTER_LINES];
    uint64_t clean = (line + 1) << 1;
    if (one_line && (*slot == (clean | 1) || (!store && *slot == clean))) {
        return;
    }
    *slot = clean | store;
    if (thread->instructions >= INSTRUCTIONS_LEAST) {
        put(thread, thread->instructions, KIND_INSTRUCTIONS, 0);
        thread->instructions = 0;
    }
    put(thread, address, store ? KIND_WRITE : KIND_READ, size_shift);
}

// Whole pages of a range are given back: what they held is gone.
static void put_release(struct thread *thread, uint64_t start, uint64_t bytes) {
    uint64_t first = (start + (UINT64_C(1) << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
    uint64_t end = (start + bytes + (UINT64_C(1) << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
    if (first < end) {
        put(thread, first << PAGE_SHIFT, KIND_RELEASE, RELEASE_ADDRESS);
        put(thread, end - first, KIND_RELEASE, RELEASE_PAGES);
    }
}

// In pieces of a power of two, as records have them.
static void put_range(struct thread *thread, uint64_t start, uint64_t bytes, uint64_t kind) {
    while (bytes > 0) {
        unsigned shift = LARGEST_SHIFT;
        while (UINT64_C(1) << shift > bytes) {
            shift--;
        }
        put(thread, start, kind, shift);
        start += UINT64_C(1) << shift;
        bytes -= UINT64_C(1) << shift;
    }
}

static void on_call(plugin_id id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                    uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)number, (void)a5, (void)a6, (void)a7, (void)a8;
    struct thread *thread = this_thread(vcpu);
    if (thread != NULL) {
        uint64_t arguments[] = {a1, a2, a3, a4};
        memcpy(thread->arguments, arguments, sizeof(arguments));
    }
}

// The heap's end has moved, with the lock held for other threads that move it.
static void after_brk(struct thread *thread, uint64_t end) {
    static uint64_t last_end;
    pthread_mutex_lock(&lock);
    uint64_t before = last_end;
    last_end = end;
    pthread_mutex_unlock(&lock);
    if (end < before) {
        put_release(thread, end, before - end);
    }
}

static void on_return(plugin_id id, unsigned vcpu, int64_t number, int64_t result) {
    (void)id;
    struct thread *thread = this_thread(vcpu);
    // The kernel's errors.
    if (thread == NULL || (result < 0 && result >= -4095)) {
        return;
    }
    const uint64_t *a = thread->arguments;
    switch (number) {
    case CALL_READ:
    case CALL_PREAD:
    case CALL_RECVFROM:
        put_range(thread, a[1], (uint64_t)result < a[2] ? (uint64_t)result : a[2], KIND_WRITE);
        break;
    case CALL_GETRANDOM:
        put_range(thread, a[0], (uint64_t)result, KIND_WRITE);
        break;
    case CALL_WRITE:
    case CALL_PWRITE:
    case CALL_SENDTO:
        put_range(thread, a[1], (uint64_t)result, KIND_READ);
        break;
    case CALL_MMAP:
        if ((a[3] & ASKS_FIXED) != 0) {
            put_release(thread, (uint64_t)result, a[1]);
        }
        break;
    case CALL_MUNMAP:
        put_release(thread, a[0], a[1]);
        break;
    case CALL_MREMAP:
        if ((uint64_t)result != a[0]) {
            put_release(thread, a[0], a[1]);
        } else if (a[2] < a[1]) {
            put_release(thread, a[0] + a[2], a[1] - a[2]);
        }
        break;
    case CALL_MADVISE:
        if (a[2] == ADVISES_DONTNEED || a[2] == ADVISES_FREE || a[2] == ADVISES_REMOVE) {
            put_release(thread, a[0], a[1]);
        }
        break;
    case CALL_BRK:
        after_brk(thread, (uint64_t)result);
        break;
    default:
        break;
    }
}

static void on_translate(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t instructions = qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, NO_REGISTERS, (void *)instructions);
    for (size_t index = 0; index < instructions; index++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, index);
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, NO_REGISTERS, READS_AND_WRITES, NULL);
    }
}

static void on_thread_exit(plugin_id id, unsigned vcpu) {
    (void)id;
    (void)vcpu;
    if (self == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    send_records(self);
    for (struct thread **link = &threads; *link != NULL; link = &(*link)->next) {
        if (*link == self) {
            *link = self->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    free(self);
    self = NULL;
}

static void on_exit_of_program(plugin_id id, void *unused) {
    (void)id;
    (void)unused;
    pthread_mutex_lock(&lock);
    for (struct thread *thread = threads; thread != NULL; thread = thread->next) {
        send_records(thread);
    }
    stopped = true;
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    if (argc != 1 || strncmp(argv[0], "fd=", 3) != 0) {
        fprintf(stderr, "spillway: the recorder's plugin wants fd=NUMBER\n");
        return -1;
    }
    // Out of the way of the program's own descriptors, and of programs that it starts.
    int given = atoi(argv[0] + 3);
    out = fcntl(given, F_DUPFD_CLOEXEC, FD_LEAST);
    if (out < 0) {
        out = fcntl(given, F_DUPFD_CLOEXEC, 64);
    }
    if (out < 0) {
        perror("spillway: the recorder's pipe");
        return -1;
    }
    close(given);
    recorded = getpid();
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
    qemu_plugin_register_vcpu_exit_cb(id, on_thread_exit);
    qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
    return 0;
}
