// Threads write to words of their own in pages that they share, in random order, more than may be local, while
// one of them forks and another reads a file past the page cache. usage: scattered MIB THREADS ROUNDS DIRECTORY
#include "pattern.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { MOST_THREADS = 64, FILE_PAGES = 64, FORK_ONE_IN = 8 };

static size_t pages, threads, rounds;
static volatile uint64_t (*memory)[PAGE_WORDS];
static int file;

// What word `thread` of a page holds after `version` rounds; nothing was written before the first.
static uint64_t word_of(size_t thread, size_t page, size_t version) {
    return version ? mix(thread * 1000003 + page * 31 + version) | 1 : 0;
}

static void check(size_t thread, size_t page, size_t version, const char *what) {
    if (memory[page][thread] != word_of(thread, page, version))
        FAIL("%s: word %zu of page %zu does not hold version %zu", what, thread, page, version);
}

static void fork_and_check(size_t thread, size_t version) {
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        for (size_t page = 0; page < pages; page += 5) {
            check(thread, page, version, "child");
            memory[page][thread] = 0;
        }
        _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

// A device writes to whole pages, so this thread has some to itself: every so many of a mapping of its own.
static void read_file(char *own, size_t round) {
    for (size_t i = 0; i < FILE_PAGES; i++) {
        char *to = own + (i * 7 + round) % (FILE_PAGES * 7) * PAGE_BYTES;
        NEED(pread(file, to, PAGE_BYTES, i * PAGE_BYTES) == PAGE_BYTES);
        if (!page_holds(to, page_seed(7, i, 1))) FAIL("page %zu of the file was read wrong", i);
    }
}

static void *work(void *number) {
    size_t thread = (uintptr_t)number;
    char *own = thread == 1 ? map_pages(FILE_PAGES * 8) : NULL;
    for (size_t version = 1; version <= rounds; version++) {
        // An odd step over a power of two meets every page once.
        size_t step = mix(thread * 77 + version) | 1, page = mix(version + thread) % pages;
        for (size_t i = 0; i < pages; i++, page = (page + step) % pages) {
            check(thread, page, version - 1, "thread");
            memory[page][thread] = word_of(thread, page, version);
        }
        if (thread == 0 && version % FORK_ONE_IN == 1) fork_and_check(thread, version);
        if (thread == 1) read_file(own, version);
    }
    return NULL;
}

int main(int count, char **arguments) {
    NEED(count == 5);
    threads = atol(arguments[2]);
    rounds = atol(arguments[3]);
    for (pages = 1; pages * 2 <= pages_of_mib(arguments[1]);) pages *= 2;
    NEED(threads >= 2 && threads <= MOST_THREADS);
    memory = (void *)map_pages(pages);
    char path[4096];
    snprintf(path, sizeof path, "%s/scattered", arguments[4]);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(file >= 0 && unlink(path) == 0);
    static uint64_t page[PAGE_WORDS];
    for (size_t i = 0; i < FILE_PAGES; i++) {
        page_write(page, page_seed(7, i, 1));
        NEED(write(file, page, PAGE_BYTES) == PAGE_BYTES);
    }
    NEED(fsync(file) == 0 && fcntl(file, F_SETFL, O_DIRECT) == 0);
    pthread_t thread[MOST_THREADS];
    for (size_t i = 0; i < threads; i++) NEED(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < threads; i++) NEED(pthread_join(thread[i], NULL) == 0);
    for (size_t i = 0; i < threads; i++)
        for (size_t at = 0; at < pages; at++) check(i, at, rounds, "end");
    puts("whole");
    return 0;
}
