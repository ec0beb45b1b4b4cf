// A shared mapping of a file on a file system that fills up: the SIGBUS is the program's own, and so is its default.
// usage: small_disk MIB DIRECTORY
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

static size_t pages;
static char *base;
static uint32_t version = 1;
static sigjmp_buf out;
static char *volatile bus_at;

static void push_out(void) {
    version++;
    pages_write(base, pages, 1, version);
}

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    bus_at = info->si_addr;
    siglongjmp(out, 1);
}

// Writes to the mapping until there is no room; returns how many pages there was room for.
static volatile size_t filled;

static void fill(char *at, size_t most) {
    for (filled = 0; filled < most; filled++) {
        if (filled % 64 == 0) push_out();
        // Read first: the kernel shows a hole as zeros, and only the write wants room.
        volatile char *byte = at + filled * PAGE_BYTES;
        NEED(*byte == 0);
        *byte = 1;
    }
}

static void once(const char *directory) {
    char name[4096];
    snprintf(name, sizeof name, "%s/file-XXXXXX", directory);
    int file = mkstemp(name);
    size_t most = 4096;
    NEED(file >= 0 && unlink(name) == 0 && ftruncate(file, most * PAGE_BYTES) == 0);
    char *at = mmap(NULL, most * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    NEED(at != MAP_FAILED);
    bus_at = NULL;
    if (!sigsetjmp(out, 1)) {
        fill(at, most);
        FAIL("the file system has room for %zu pages", most);
    }
    NEED(filled > 100 && bus_at == at + filled * PAGE_BYTES);
    pages_check(base, pages, 1, version, "memory");
    // By default it ends the program.
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        at[filled * PAGE_BYTES] = 1;
        _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    // In a call it is an error.
    int ends[2];
    NEED(pipe(ends) == 0 && write(ends[1], "xxxx", 4) == 4);
    NEED(read(ends[0], at + filled * PAGE_BYTES, 4) == -1 && errno == EFAULT);
    NEED(close(ends[0]) == 0 && close(ends[1]) == 0);
    NEED(munmap(at, most * PAGE_BYTES) == 0 && close(file) == 0);
}

static void *in_thread(void *directory) {
    once(directory);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: small_disk MIB DIRECTORY");
    pages = pages_of_mib(arguments[1]);
    base = map_pages(pages);
    push_out();
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGBUS, &action, NULL) == 0);
    once(arguments[2]);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, in_thread, arguments[2]) == 0 && pthread_join(thread, NULL) == 0);
    puts("whole");
    return 0;
}
