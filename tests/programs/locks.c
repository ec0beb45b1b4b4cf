// Locks memory in every way, with and without the right to lock as much as it likes, and prints what the kernel says.
// usage: locks MIB
#include "pattern.h"

#include <errno.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

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

static size_t locked_kib(void) {
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    NEED(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %zu", &kib);
    fclose(status);
    return kib;
}

static int is_resident(char *memory, size_t count) {
    unsigned char resident[4096];
    NEED(mincore(memory, count * PAGE_BYTES, resident) == 0);
    for (size_t i = 0; i < count; i++)
        if (!(resident[i] & 1)) return 0;
    return 1;
}

static void each_mapping(int by_number) {
    static char lines[1000][256];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    NEED(maps);
    while (count < 1000 && fgets(lines[count], sizeof lines[0], maps)) count++;
    fclose(maps);
    for (int i = 0; i < count; i++) {
        size_t start, end;
        NEED(sscanf(lines[i], "%zx-%zx", &start, &end) == 2);
        if (strstr(lines[i], "[vsyscall]")) continue;
        long result = by_number ? syscall(SYS_mlock, start, end - start) : mlock((void *)start, end - start);
        if (result) printf("mlock %d: %s", errno, lines[i]);
        result = munlock((void *)start, end - start);
        if (result) printf("munlock %d: %s", errno, lines[i]);
    }
    say("each mapping was locked and unlocked, kib", locked_kib());
    wash();
}

static void all(const char *name, int flags, int by_number) {
    long result = by_number ? syscall(SYS_mlockall, flags) : mlockall(flags);
    say(name, result);
    char *later = mmap(NULL, 64 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(later != MAP_FAILED);
    say("  base is there", is_resident(base, pages));
    say("  what is mapped later is there", is_resident(later, 64));
    pages_write(later, 64, 2, 1);
    wash();
    pages_check(later, 64, 2, 1, "later memory");
    say("  unlocked", by_number ? syscall(SYS_munlockall) : munlockall());
    say("  kib", locked_kib());
    NEED(munmap(later, 64 * PAGE_BYTES) == 0);
    wash();
}

enum { AS_IT_IS = 1 };

// In a child that may lock `kib` and has no right to more.
static void limited(const char *name, size_t kib, void (*work)(void)) {
    wash();
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {kib << 10, kib << 10};
        NEED(kib == AS_IT_IS || setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        NEED(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        wash();
        work();
        wash();
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    NEED(waitpid(child, &status, 0) == child);
    say(name, status);
    wash();
}

static void say_locked(void) {
    say("  kib", locked_kib());
}

static void some(void) {
    size_t kib = 1024;
    say("mlock of a half", mlock(base, kib / 2 << 10));
    say_locked();
    say("the same once more", mlock(base, kib / 2 << 10));
    say_locked();
    say("a page and more before and behind", mlock(base + PAGE_BYTES * 100, kib / 2 << 10));
    say_locked();
    say("too much", mlock(base, pages * PAGE_BYTES));
    say_locked();
    say("too much by number", syscall(SYS_mlock, base, pages * PAGE_BYTES));
    say("too much on fault", mlock2(base + PAGE_BYTES * 300, kib << 10, MLOCK_ONFAULT));
    say("unknown flags", mlock2(base, PAGE_BYTES, 77));
    say("nothing", mlock(base, 0));
    say("backwards", mlock(base, -PAGE_BYTES * 3));
    say("munlock", munlock(base, kib / 2 << 10));
    say_locked();
    say("not aligned", mlock(base + 100, 8000));
    say_locked();
    char *hole = map_pages(3);
    NEED(munmap(hole + PAGE_BYTES, PAGE_BYTES) == 0);
    say("over a hole", mlock(hole, 3 * PAGE_BYTES));
    say("on fault", mlock2(hole, PAGE_BYTES, MLOCK_ONFAULT));
    say("munlock of a hole", munlock(hole, 3 * PAGE_BYTES));
    say("mlockall", mlockall(MCL_CURRENT));
    say("mlockall of all", mlockall(MCL_CURRENT | MCL_FUTURE));
    say("mlockall on fault", mlockall(MCL_CURRENT | MCL_ONFAULT));
    say("mlockall by number", syscall(SYS_mlockall, MCL_CURRENT));
    say("mlockall of nothing", mlockall(0));
    say("mlockall of MCL_ONFAULT", mlockall(MCL_ONFAULT));
    say("mlockall of unknown flags", mlockall(MCL_CURRENT | 64));
    say("munlockall", munlockall());
    say_locked();
    char *locked = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    say("MAP_LOCKED", locked == MAP_FAILED ? -1 : 0);
    say_locked();
    locked = mmap(NULL, 2 * kib << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    say("too much by MAP_LOCKED", locked == MAP_FAILED ? -1 : 0);
    say("munlockall", munlockall());
}

static void future(void) {
    for (int i = 0; i < 2; i++) {
        say("MCL_FUTURE", mlockall(MCL_FUTURE | (i ? MCL_ONFAULT : 0)));
        char *fits = mmap(NULL, 512 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("what fits", fits == MAP_FAILED ? -1 : 0);
        say("  is there", is_resident(fits, 128));
        say_locked();
        void *more = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("what does not", more == MAP_FAILED ? -1 : 0);
        char *grown = mremap(fits, 512 << 10, 768 << 10, MREMAP_MAYMOVE);
        say("grown", grown == MAP_FAILED ? -1 : 0);
        say("  is there", is_resident(grown, 192));
        say_locked();
        char *before = sbrk(0);
        say("too much by brk", (long)sbrk(1 << 20) == -1 ? -1 : 0);
        say("the break is where it was", sbrk(0) == before);
        say("brk", (long)sbrk(64 << 10) == -1 ? -1 : 0);
        say_locked();
        pid_t child = fork();
        if (child == 0) _exit(locked_kib() != 0);
        int status = -1;
        NEED(waitpid(child, &status, 0) == child);
        say("a child has nothing locked", status);
        NEED(munmap(grown, 768 << 10) == 0);
        say("munlockall", munlockall());
        say_locked();
        more = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("afterwards", more == MAP_FAILED ? -1 : 0);
        wash();
    }
}

static void nothing(void) {
    say("mlock", mlock(base, PAGE_BYTES));
    say("mlock2", mlock2(base, PAGE_BYTES, MLOCK_ONFAULT));
    say("mlockall", mlockall(MCL_CURRENT));
    say("MCL_FUTURE", mlockall(MCL_FUTURE));
    say("munlock", munlock(base, PAGE_BYTES));
    say("munlockall", munlockall());
}

// Less than a limit of 8 MiB, which is usual.
static void everything(void) {
    NEED(munmap(base + pages / 2 * PAGE_BYTES, (pages - pages / 2) * PAGE_BYTES) == 0);
    pages /= 2;
    say("mlockall", mlockall(MCL_CURRENT));
    say("  is there", is_resident(base, pages));
    say("munlockall", munlockall());
    say_locked();
}

int main(int argc, char **argv) {
    NEED(argc >= 2);
    pages = pages_of_mib(argv[1]);
    base = map_pages(pages);
    pages_write(base, pages, 1, version);
    limited("with 1 MiB", 1024, some);
    limited("with 1 MiB, the future", 1024, future);
    limited("with nothing", 0, nothing);
    limited("with what is usual", AS_IT_IS, everything);
    // With the right to do as it likes. What is locked once is left alone for good.
    each_mapping(0);
    each_mapping(1);
    all("MCL_CURRENT", MCL_CURRENT, 0);
    all("MCL_CURRENT and MCL_FUTURE", MCL_CURRENT | MCL_FUTURE, 1);
    all("MCL_FUTURE", MCL_FUTURE, 0);
    all("MCL_FUTURE and MCL_ONFAULT", MCL_FUTURE | MCL_ONFAULT, 1);
    puts("whole");
    return 0;
}
