// Eight threads write patterns and check them, while each also discards, moves, unmaps, protects, locks and
// forks what it has. usage: threads MIB_PER_THREAD ROUNDS
#include "pattern.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 8, SHARED_PAGES_EACH = 256, MAX_RUN = 64 };

// One thread's memory, and what each page of it must hold.
struct area {
    uint64_t owner, random;
    char *base;
    size_t pages;
    uint32_t *version;
};

static size_t pages_each;
static int rounds;
static char *shared; // Page i belongs to thread i % THREADS, so that neighbours are in other hands.

static uint64_t next_random(struct area *a) {
    return a->random = mix(a->random + 0x9e3779b97f4a7c15ULL);
}

static char *page_at(struct area *a, size_t page) {
    return a->base + page * PAGE_BYTES;
}

static void check(struct area *a, size_t page, const char *after) {
    if (!page_holds(page_at(a, page), page_seed(a->owner, page, a->version[page])))
        FAIL("thread %lu: page %zu of %zu is not version %u, after %s", a->owner, page, a->pages, a->version[page], after);
}

static void rewrite(struct area *a, size_t page) {
    a->version[page]++;
    page_write(page_at(a, page), page_seed(a->owner, page, a->version[page]));
}

static void check_run(struct area *a, size_t first, size_t count, const char *after) {
    for (size_t i = first; i < first + count; i++) check(a, i, after);
}

static void now_zero(struct area *a, size_t first, size_t count) {
    memset(a->version + first, 0, count * sizeof *a->version);
}

// The operations: each works on `count` pages from `first` and leaves the area whole.

static void discard(struct area *a, size_t first, size_t count) {
    NEED(madvise(page_at(a, first), count * PAGE_BYTES, MADV_DONTNEED) == 0);
    now_zero(a, first, count);
    check_run(a, first, count, "MADV_DONTNEED");
}

// A freed page holds either all it held or zeros, until it is written.
static void lazily_free(struct area *a, size_t first, size_t count) {
    NEED(madvise(page_at(a, first), count * PAGE_BYTES, MADV_FREE) == 0);
    for (size_t i = first; i < first + count; i++) {
        int zero = page_holds(page_at(a, i), 0);
        if (!zero) check(a, i, "MADV_FREE");
        rewrite(a, i);
        check(a, i, "a write after MADV_FREE");
    }
}

static void map_over(struct area *a, size_t first, size_t count) {
    char *at = page_at(a, first);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    NEED(mmap(at, count * PAGE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
    now_zero(a, first, count);
    check_run(a, first, count, "mmap MAP_FIXED");
}

// Maps inaccessible memory over a run, so that nobody else gets the addresses, unmaps within, and maps anew.
static void unmap_and_map(struct area *a, size_t first, size_t count) {
    char *at = page_at(a, first);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    NEED(mmap(at, count * PAGE_BYTES, PROT_NONE, flags, -1, 0) == at);
    NEED(mprotect(at, count * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    now_zero(a, first, count);
    for (size_t i = first; i < first + count; i += 2) rewrite(a, i);
    check_run(a, first, count, "mmap PROT_NONE and mprotect");
}

static void protect(struct area *a, size_t first, size_t count) {
    NEED(mprotect(page_at(a, first), count * PAGE_BYTES, PROT_READ) == 0);
    check_run(a, first, count, "mprotect PROT_READ");
    NEED(mprotect(page_at(a, first), count * PAGE_BYTES, PROT_NONE) == 0);
    NEED(mprotect(page_at(a, first), count * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    for (size_t i = first; i < first + count; i += 3) rewrite(a, i);
    check_run(a, first, count, "mprotect back");
}

static void lock(struct area *a, size_t first, size_t count) {
    if (mlock(page_at(a, first), count * PAGE_BYTES) != 0) NEED(errno == ENOMEM || errno == EPERM);
    check_run(a, first, count, "mlock");
    rewrite(a, first);
    NEED(munlock(page_at(a, first), count * PAGE_BYTES) == 0);
    check_run(a, first, count, "munlock");
}

static void advise(struct area *a, size_t first, size_t count) {
    static const int advice[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WILLNEED, MADV_SEQUENTIAL, MADV_RANDOM,
                                 MADV_COLD, MADV_PAGEOUT, MADV_NORMAL};
    int chosen = advice[next_random(a) % (sizeof advice / sizeof *advice)];
    if (madvise(page_at(a, first), count * PAGE_BYTES, chosen) != 0) NEED(errno == EINVAL);
    check_run(a, first, count, "advice");
}

static char *reserve(size_t pages) {
    char *at = mmap(NULL, pages * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

// Moves a run out of the area and back.
static void move_run(struct area *a, size_t first, size_t count) {
    size_t bytes = count * PAGE_BYTES;
    char *home = page_at(a, first), *away = reserve(count);
    NEED(mremap(home, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
    for (size_t i = 0; i < count; i++)
        if (!page_holds(away + i * PAGE_BYTES, page_seed(a->owner, first + i, a->version[first + i])))
            FAIL("thread %lu: page %zu is wrong where mremap moved it", a->owner, first + i);
    NEED(mremap(away, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, home) == home);
    check_run(a, first, count, "mremap there and back");
}

// Grows memory of its own, shrinks it and moves it elsewhere. (The area may consist of several mappings by now,
// which cannot grow.)
static void resize(struct area *a, size_t first, size_t count) {
    (void)first;
    uint64_t owner = a->owner + THREADS;
    size_t bytes = count * PAGE_BYTES;
    char *at = map_pages(count), *elsewhere = reserve(2 * count);
    pages_write(at, count, owner, 1);
    char *grown = mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE);
    NEED(grown != MAP_FAILED);
    pages_check(grown, count, owner, 1, "mremap that grows");
    pages_check(grown + bytes, count, owner, 0, "what mremap has added");
    pages_write(grown + bytes, count, owner, 2);
    NEED(mremap(grown, 2 * bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
    pages_check(elsewhere, count, owner, 1, "mremap that moves");
    pages_check(elsewhere + bytes, count, owner, 2, "mremap that moves");
    NEED(mremap(elsewhere, 2 * bytes, bytes, 0) == elsewhere);
    pages_check(elsewhere, count, owner, 1, "mremap that shrinks");
    NEED(munmap(elsewhere, bytes) == 0);
}

// Whether the kernel can read the byte for this process.
static int is_readable(int to, const char *at) {
    return write(to, at, 1) == 1;
}

// The child sees what its parent had, and keeps it while both write.
static void fork_child(struct area *a, size_t first, size_t count, const char *wiped, const char *absent) {
    const char *inherited = absent + PAGE_BYTES;
    int ends[2];
    NEED(pipe(ends) == 0);
    check_run(a, first, count, "fork, in the child");
    for (size_t i = first; i < first + count; i++) rewrite(a, i);
    for (size_t i = 0; i < a->pages; i += 97) check(a, i, "fork, in the child");
    check_run(a, first, count, "fork and writes, in the child");
    if (!page_holds(wiped, 0)) FAIL("MADV_WIPEONFORK: the child sees its parent's data");
    if (!page_holds(inherited, 0)) FAIL("MADV_DOFORK: the child sees data that MADV_WIPEONFORK keeps from it");
    // Another mapping of the child's, one of the pager's say, may have come to lie where the page is absent.
    if (is_readable(ends[1], absent) && page_holds(absent, 7)) FAIL("MADV_DONTFORK: the child has its parent's page");
    _exit(0);
}

static void fork_once(struct area *a, size_t first, size_t count) {
    char *wiped = map_pages(3), *absent = wiped + PAGE_BYTES, *inherited = absent + PAGE_BYTES;
    page_write(wiped, 7);
    page_write(absent, 7);
    page_write(inherited, 7);
    NEED(madvise(wiped, PAGE_BYTES, MADV_WIPEONFORK) == 0);
    NEED(madvise(absent, PAGE_BYTES, MADV_DONTFORK) == 0);
    NEED(madvise(inherited, PAGE_BYTES, MADV_WIPEONFORK) == 0);
    NEED(madvise(inherited, PAGE_BYTES, MADV_DONTFORK) == 0);
    NEED(madvise(inherited, PAGE_BYTES, MADV_DOFORK) == 0);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) fork_child(a, first, count, wiped, absent);
    for (size_t i = first; i < first + count; i += 2) rewrite(a, i);
    check_run(a, first, count, "fork, in the parent");
    int status;
    NEED(waitpid(child, &status, 0) == child);
    if (status != 0) FAIL("thread %lu: a forked child ended with status 0x%x", a->owner, status);
    NEED(page_holds(wiped, 7) && page_holds(absent, 7) && page_holds(inherited, 7));
    NEED(munmap(wiped, 3 * PAGE_BYTES) == 0);
    check_run(a, first, count, "fork, after the child");
}

struct operation {
    void (*run)(struct area *, size_t first, size_t count);
    unsigned once_in; // page visits
};

static const struct operation operations[] = {
    {discard, 1000}, {lazily_free, 2000}, {map_over, 3000}, {unmap_and_map, 3000}, {protect, 3000},
    {advise, 5000},  {move_run, 5000},    {resize, 5000},   {lock, 20000},         {fork_once, 20000},
};

static void visit(struct area *a) {
    size_t page = next_random(a) % a->pages;
    check(a, page, "nothing in particular");
    if (next_random(a) % 2) rewrite(a, page);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (next_random(a) % operations[i].once_in) continue;
        size_t first = next_random(a) % a->pages, count = next_random(a) % MAX_RUN + 1;
        operations[i].run(a, first, first + count > a->pages ? a->pages - first : count);
    }
}

// One page of the shared area: checked, and then rewritten or discarded.
static void visit_shared(struct area *a, uint32_t *version) {
    size_t mine = next_random(a) % SHARED_PAGES_EACH;
    char *at = shared + (mine * THREADS + a->owner) * PAGE_BYTES;
    if (!page_holds(at, page_seed(a->owner, mine, version[mine])))
        FAIL("thread %lu: shared page %zu is not version %u", a->owner, mine, version[mine]);
    if (next_random(a) % 16) {
        page_write(at, page_seed(a->owner, mine, ++version[mine]));
    } else {
        NEED(madvise(at, PAGE_BYTES, MADV_DONTNEED) == 0);
        version[mine] = 0;
    }
}

static void *work(void *argument) {
    struct area a = {.owner = (uintptr_t)argument, .random = (uintptr_t)argument, .pages = pages_each};
    uint32_t shared_version[SHARED_PAGES_EACH] = {0};
    a.base = map_pages(a.pages);
    a.version = calloc(a.pages, sizeof *a.version);
    NEED(a.version != NULL);
    for (size_t visits = 0; visits < a.pages * rounds; visits++) {
        visit(&a);
        if (visits % 4 == 0) visit_shared(&a, shared_version);
    }
    check_run(&a, 0, a.pages, "the end");
    NEED(munmap(a.base, a.pages * PAGE_BYTES) == 0);
    free(a.version);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: threads MIB_PER_THREAD ROUNDS");
    pages_each = pages_of_mib(arguments[1]);
    rounds = atoi(arguments[2]);
    shared = map_pages(SHARED_PAGES_EACH * THREADS);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) NEED(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("whole");
    return 0;
}
