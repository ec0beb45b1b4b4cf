/* A program whose pages are marked while it runs: two threads use scattered hot pages of large memory, system calls go
 * to and from them, children are forked. It checks whatever it reads, goes on until its standard input ends, and then
 * checks all of its memory. Exit status 0: everything was as it was written.
 * usage: marked MIB PAGES   PAGES: how many of the pages are hot */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, THREADS = 2 };

static unsigned char *memory;
static size_t pages, hot_pages, hot_every;
static atomic_int ends;
static uint64_t rounds[THREADS];

static void fail(const char *what, size_t page) {
    fprintf(stderr, "marked: %s: page %zu is not as it was written\n", what, page);
    _exit(1);
}

static uint64_t *word(size_t page) { return (uint64_t *)(memory + page * PAGE + 1024); }

static uint64_t pattern(size_t page, uint64_t round) { return page * 0x9E3779B97F4A7C15u + round; }

static void through_a_pipe(size_t page) {
    int ends_of[2];
    unsigned char before[PAGE];
    if (pipe(ends_of) != 0) fail("pipe", page);
    memcpy(before, memory + page * PAGE, PAGE);
    if (write(ends_of[1], memory + page * PAGE, PAGE) != PAGE) fail("write(2)", page);
    if (read(ends_of[0], memory + page * PAGE, PAGE) != PAGE) fail("read(2)", page);
    if (memcmp(before, memory + page * PAGE, PAGE) != 0) fail("through a pipe", page);
    close(ends_of[0]);
    close(ends_of[1]);
}

static void *use(void *argument) {
    size_t thread = (size_t)argument;
    for (uint64_t round = 0; !ends; round++) {
        for (size_t hot = thread; hot < hot_pages; hot += THREADS) {
            size_t page = hot * hot_every;
            if (*word(page) != pattern(page, round)) fail("used", page);
            *word(page) = pattern(page, round + 1);
        }
        through_a_pipe((thread + round * THREADS) % hot_pages / THREADS * THREADS * hot_every + thread * hot_every);
        rounds[thread] = round + 1;
        usleep(500);
    }
    return NULL;
}

static void *short_lived(void *argument) { return argument; }

static void fork_and_check(void) {
    pid_t child = fork();
    if (child == 0) {
        /* What the other threads use changes; the cold pages do not. */
        for (size_t page = 0; page < pages; page++) {
            if (page % hot_every != 0 && page % 97 == 0 && *word(page) != pattern(page, 0)) fail("in a child", page);
        }
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("child", 0);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    pages = strtoul(arguments[1], NULL, 10) * 256;
    hot_pages = strtoul(arguments[2], NULL, 10);
    hot_every = pages / hot_pages;
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (size_t page = 0; page < pages; page++) *word(page) = pattern(page, 0);
    pthread_t threads[THREADS];
    for (size_t thread = 0; thread < THREADS; thread++) pthread_create(&threads[thread], NULL, use, (void *)thread);
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (int turn = 0; poll(&input, 1, 50) == 0; turn++) {
        pthread_t thread;
        pthread_create(&thread, NULL, short_lived, NULL);
        pthread_join(thread, NULL);
        if (turn % 4 == 0) fork_and_check();
    }
    ends = 1;
    for (size_t thread = 0; thread < THREADS; thread++) pthread_join(threads[thread], NULL);
    for (size_t page = 0; page < pages; page++) {
        size_t hot = page / hot_every;
        int is_hot = page % hot_every == 0 && hot < hot_pages;
        uint64_t round = is_hot ? rounds[hot % THREADS] : 0;
        if (*word(page) != pattern(page, round)) fail("in the end", page);
    }
    printf("%llu rounds\n", (unsigned long long)(rounds[0] + rounds[1]));
    return 0;
}
