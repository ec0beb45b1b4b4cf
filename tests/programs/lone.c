// One thread whose pages leave from where they lie: signals that come meanwhile, memory that cannot be read, and at last
// a second thread must not spoil any.
// usage: lone MIB
#include "pattern.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SCRIBBLED = 64, ROUNDS = 6, PATIENCE = 2000 };

static size_t pages;
static char *base, *scribbled;
static uint32_t *versions;
static volatile uint32_t scribbles;

static uint64_t random_state = 88172645463325252ULL;

static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void write_page(size_t page, uint32_t version) {
    versions[page] = version;
    page_write(base + page * PAGE_BYTES, page_seed(1, page, version));
}

static void check_page(size_t page) {
    if (!page_holds(base + page * PAGE_BYTES, page_seed(1, page, versions[page])))
        FAIL("page %zu does not hold version %u", page, versions[page]);
}

static void check_all(void) {
    for (size_t page = 0; page < pages; page++) check_page(page);
}

// Reads, writes, and pages of zeros, all over the place.
static void churn(size_t steps) {
    for (size_t i = 0; i < steps; i++) {
        size_t page = draw() % pages;
        check_page(page);
        uint64_t what = draw() % 8;
        if (what < 4) write_page(page, what == 0 ? 0 : versions[page] + 1);
    }
}

static void on_signal(int signal) {
    (void)signal;
    // In inline mode a thread cannot block all of them.
    if (gettid() != getpid()) return;
    uint32_t count = ++scribbles;
    page_write(scribbled + count % SCRIBBLED * PAGE_BYTES, page_seed(2, count % SCRIBBLED, count));
}

static void check_scribbled(void) {
    sigset_t all, before;
    sigfillset(&all);
    NEED(sigprocmask(SIG_BLOCK, &all, &before) == 0);
    for (uint32_t count = scribbles > SCRIBBLED ? scribbles - SCRIBBLED + 1 : 1; count <= scribbles; count++)
        // In inline mode two of the signals still come, and a later one may have written over this one's page by right.
        if (!page_holds(scribbled + count % SCRIBBLED * PAGE_BYTES, page_seed(2, count % SCRIBBLED, count)) &&
            scribbles < count + SCRIBBLED)
            FAIL("what signal %u of %u wrote is lost", count, scribbles);
    NEED(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static const int SIGNALS[] = {SIGBUS, SIGSYS, SIGUSR1};

// A child that sends signals all the time, those too that faults and system calls come by.
static pid_t pest(void) {
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        NEED(sigaction(SIGNALS[i], &action, NULL) == 0);
    }
    pid_t parent = getpid(), child = fork();
    NEED(child >= 0);
    if (child == 0) {
        for (unsigned i = 0; getppid() == parent; i++) {
            kill(parent, SIGNALS[i % 3]);
            usleep(100);
        }
        _exit(0);
    }
    return child;
}

static void no_more(pid_t child) {
    NEED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    check_scribbled();
    for (int i = 0; i < 3; i++) NEED(signal(SIGNALS[i], SIG_IGN) == on_signal);
}

static void pestered(void) {
    pid_t child = pest();
    uint32_t before = scribbles;
    for (int i = 0; scribbles < before + 300; i++) {
        if (i == PATIENCE) FAIL("%u signals came", scribbles - before);
        churn(pages / 4);
        check_scribbled();
    }
    no_more(child);
}

// Local pages that cannot be read any more leave all the same.
static void hidden(void) {
    enum { HIDDEN = 512 };
    size_t first = pages - HIDDEN;
    for (size_t page = first; page < pages; page++) write_page(page, versions[page] + 1);
    NEED(mprotect(base + first * PAGE_BYTES, HIDDEN * PAGE_BYTES, PROT_NONE) == 0);
    size_t all = pages;
    pages = first;
    for (int i = 0; i < ROUNDS; i++) churn(pages);
    pages = all;
    NEED(mprotect(base + first * PAGE_BYTES, HIDDEN * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    check_all();
}

static char *others;
static size_t other_pages;

static void *write_others(void *argument) {
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        pages_write(others, other_pages, 3, version);
        pages_check(others, other_pages, 3, version, "the other thread's");
    }
    return argument;
}

static void in_company(void) {
    other_pages = pages / 2;
    others = map_pages(other_pages);
    sigset_t all, before;
    sigfillset(&all);
    NEED(sigprocmask(SIG_BLOCK, &all, &before) == 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, write_others, NULL) == 0);
    NEED(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    pestered();
    NEED(pthread_join(thread, NULL) == 0);
    pages_check(others, other_pages, 3, ROUNDS, "the other thread's");
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: lone MIB");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages);
    scribbled = map_pages(SCRIBBLED);
    versions = calloc(pages, sizeof *versions);
    NEED(versions);
    for (size_t page = 0; page < pages; page++) write_page(page, 1);
    void (*steps[])(void) = {pestered, hidden, in_company};
    for (int i = 0; i < ROUNDS; i++) churn(pages);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        check_all();
        steps[i]();
    }
    check_all();
    puts("whole");
    return 0;
}
