// Devices and pipes that work on the program's memory while it is evicted: what they deliver must be right.
// usage: fault_direct direct|registered|protected|idle|splice DIRECTORY MIB PRESSURE_MIB
//   direct      O_DIRECT reads of a file into memory that other threads' pressure evicts
//   registered  io_uring's registered buffers of MIB, read into while pinned; says "refused" where they cannot be pinned
//   protected   the same where the buffers are made read-only once they are registered
//   idle        the same buffers left alone, while 2 MiB are in use all the time and the pressure's pages come and go
//   splice      pages given to a pipe by vmsplice(2), and read from it after they were evicted
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { CHUNK_PAGES = 64, CHUNK_BYTES = CHUNK_PAGES * PAGE_BYTES, ROUNDS = 3 };

static size_t pressure_pages;
static volatile int stop;

// Writes and reads more memory than may be local, again and again.
static void *press(void *number) {
    uint64_t owner = 1000 + (uintptr_t)number;
    char *base = map_pages(pressure_pages);
    for (uint32_t version = 1; !stop; version++) {
        pages_write(base, pressure_pages, owner, version);
        pages_check(base, pressure_pages, owner, version, "pressure");
    }
    return NULL;
}

static void press_once(void) {
    char *base = map_pages(pressure_pages);
    for (uint32_t version = 1; version <= 2; version++) {
        pages_write(base, pressure_pages, 77, version);
        pages_check(base, pressure_pages, 77, version, "pressure");
    }
    NEED(munmap(base, pressure_pages * PAGE_BYTES) == 0);
}

static int make_file(const char *directory, size_t pages) {
    char path[4096];
    snprintf(path, sizeof path, "%s/direct", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0 && unlink(path) == 0);
    static uint64_t page[PAGE_WORDS];
    for (size_t i = 0; i < pages; i++) {
        page_write(page, page_seed(7, i, 1));
        NEED(write(fd, page, PAGE_BYTES) == PAGE_BYTES);
    }
    NEED(fsync(fd) == 0);
    NEED(fcntl(fd, F_SETFL, O_DIRECT) == 0);
    return fd;
}

struct reader {
    int fd;
    size_t pages;
    unsigned number;
};

static void *read_directly(void *argument) {
    struct reader *reader = argument;
    char *base = map_pages(reader->pages);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < reader->pages; at += CHUNK_PAGES) {
            char *to = base + at * PAGE_BYTES;
            // What was there before must not come back.
            pages_write(to, CHUNK_PAGES, 5, round + 1);
            ssize_t got = pread(reader->fd, to, CHUNK_BYTES, at * PAGE_BYTES);
            if (got != CHUNK_BYTES) FAIL("direct read: %zd, %m", got);
            if (reader->number % 2)
                for (size_t i = 0; i < CHUNK_PAGES; i++)
                    if (!page_holds(to + i * PAGE_BYTES, page_seed(7, at + i, 1))) FAIL("page %zu was read wrong", at + i);
        }
        pages_check(base, reader->pages, 7, 1, "after the direct reads");
    }
    return NULL;
}

static void direct(const char *directory, size_t pages) {
    struct reader readers[4];
    pthread_t threads[4], pressing;
    int fd = make_file(directory, pages);
    NEED(pthread_create(&pressing, NULL, press, NULL) == 0);
    for (unsigned i = 0; i < 4; i++) {
        readers[i] = (struct reader){fd, pages, i};
        NEED(pthread_create(&threads[i], NULL, read_directly, &readers[i]) == 0);
    }
    for (unsigned i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    stop = 1;
    pthread_join(pressing, NULL);
    puts("right");
}

struct ring {
    int fd;
    unsigned *tail, *mask, *array, *done_head, *done_tail, *done_mask;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *results;
};

static struct ring ring_open(void) {
    struct io_uring_params params = {0};
    int fd = syscall(SYS_io_uring_setup, 8, &params);
    NEED(fd >= 0 && params.features & IORING_FEAT_SINGLE_MMAP);
    size_t bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t more = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    if (more > bytes) bytes = more;
    char *queues = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    NEED(queues != MAP_FAILED);
    struct io_uring_sqe *requests = mmap(NULL, params.sq_entries * sizeof *requests, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    NEED(requests != MAP_FAILED);
    return (struct ring){
        .fd = fd,
        .tail = (unsigned *)(queues + params.sq_off.tail),
        .mask = (unsigned *)(queues + params.sq_off.ring_mask),
        .array = (unsigned *)(queues + params.sq_off.array),
        .done_head = (unsigned *)(queues + params.cq_off.head),
        .done_tail = (unsigned *)(queues + params.cq_off.tail),
        .done_mask = (unsigned *)(queues + params.cq_off.ring_mask),
        .requests = requests,
        .results = (struct io_uring_cqe *)(queues + params.cq_off.cqes),
    };
}

static void ring_read(struct ring *ring, int fd, char *to, size_t offset) {
    unsigned at = *ring->tail & *ring->mask;
    ring->requests[at] = (struct io_uring_sqe){
        .opcode = IORING_OP_READ_FIXED, .fd = fd, .off = offset, .addr = (uintptr_t)to, .len = CHUNK_BYTES};
    ring->array[at] = at;
    __atomic_store_n(ring->tail, *ring->tail + 1, __ATOMIC_RELEASE);
    NEED(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    unsigned head = *ring->done_head;
    NEED(head != __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE));
    int result = ring->results[head & *ring->done_mask].res;
    __atomic_store_n(ring->done_head, head + 1, __ATOMIC_RELEASE);
    if (result != CHUNK_BYTES) FAIL("fixed read: %d (%s)", result, strerror(-result));
}

static void registered(const char *directory, size_t pages, int protect) {
    struct ring ring = ring_open();
    int fd = make_file(directory, pages);
    char *base = map_pages(pages);
    pages_write(base, pages, 5, 1);
    struct iovec buffer = {base, pages * PAGE_BYTES};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
        // Said with a buffer that is there already: memory may be short.
        fprintf(stderr, "refused: %m\n");
        pages_check(base, pages / 8, 5, 1, "after the refusal");
        puts("refused");
        return;
    }
    if (protect) NEED(mprotect(base, pages * PAGE_BYTES, PROT_READ) == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        press_once();
        for (size_t at = 0; at < pages; at += CHUNK_PAGES)
            ring_read(&ring, fd, base + at * PAGE_BYTES, at * PAGE_BYTES);
        pages_check(base, pages, 7, 1, "after the fixed reads");
        press_once();
        pages_check(base, pages, 7, 1, "after the fixed reads and more pressure");
        if (!protect) pages_write(base, pages, 5, round + 2);
    }
    puts("right");
}

static void idle(size_t pages) {
    enum { HOT_PAGES = 512, TURNS = 40 };
    struct ring ring = ring_open();
    char *base = map_pages(pages), *hot = map_pages(HOT_PAGES), *cold = map_pages(pressure_pages);
    pages_write(base, pages, 5, 1);
    pages_write(hot, HOT_PAGES, 6, 1);
    pages_write(cold, pressure_pages, 7, 1);
    struct iovec buffer = {base, pages * PAGE_BYTES};
    NEED(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1) == 0);
    for (uint64_t i = 0; i < TURNS * pressure_pages; i++) {
        size_t seldom = mix(i) % pressure_pages;
        if (!page_holds(cold + seldom * PAGE_BYTES, page_seed(7, seldom, 1))) FAIL("page %zu is wrong", seldom);
        for (uint64_t j = 0; j < 8; j++) {
            size_t often = mix(8 * i + j) % HOT_PAGES;
            if (!page_holds(hot + often * PAGE_BYTES, page_seed(6, often, 1))) FAIL("page %zu is wrong", often);
        }
    }
    pages_check(base, pages, 5, 1, "pinned and left alone");
    puts("right");
}

static void splice_pages(size_t pages) {
    int ends[2];
    NEED(pipe2(ends, O_NONBLOCK) == 0);
    NEED(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
    char *base = map_pages(pages);
    static uint64_t copy[PAGE_WORDS];
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        pages_write(base, pages, 3, round);
        for (size_t at = 0; at < pages; at += CHUNK_PAGES) {
            struct iovec piece = {base + at * PAGE_BYTES, CHUNK_BYTES};
            ssize_t gave = vmsplice(ends[1], &piece, 1, 0);
            if (gave != CHUNK_BYTES) FAIL("vmsplice: %zd, %m", gave);
            press_once();
            for (size_t i = 0; i < CHUNK_PAGES; i++) {
                NEED(read(ends[0], copy, PAGE_BYTES) == PAGE_BYTES);
                if (!page_holds(copy, page_seed(3, at + i, round))) FAIL("page %zu came wrong out of the pipe", at + i);
            }
        }
        pages_check(base, pages, 3, round, "after the splices");
    }
    puts("right");
}

int main(int count, char **arguments) {
    if (count != 5) FAIL("usage: fault_direct direct|registered|protected|idle|splice DIRECTORY MIB PRESSURE_MIB");
    const char *how = arguments[1], *directory = arguments[2];
    size_t pages = pages_of_mib(arguments[3]);
    pressure_pages = pages_of_mib(arguments[4]);
    if (strcmp(how, "direct") == 0) direct(directory, pages);
    else if (strcmp(how, "registered") == 0) registered(directory, pages, 0);
    else if (strcmp(how, "protected") == 0) registered(directory, pages, 1);
    else if (strcmp(how, "idle") == 0) idle(pages);
    else if (strcmp(how, "splice") == 0) splice_pages(pages);
    else FAIL("%s?", how);
    return 0;
}
