// Fills memory, waits for a line on standard input, and then looks at every page, prepared for some to be lost: those
// must raise SIGBUS at the address that was read, and must not be read by the kernel either; all others must be right.
// A lost range can be mapped anew, where there is room. Says what it found.
// What else it uses is locked, so that it can tell.
// usage: fault_catch MIB
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf out;
static void *volatile caught_at;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    caught_at = info->si_addr;
    siglongjmp(out, 1);
}

// Reads a byte of a page; false when the page is lost.
static int can_read(const char *at) {
    if (sigsetjmp(out, 1)) {
        if (caught_at != at) FAIL("SIGBUS tells %p where %p was read", caught_at, (void *)at);
        return 0;
    }
    *(const volatile char *)at;
    return 1;
}

// The kernel must refuse a lost page, and give nothing where data was.
static void kernel_must_refuse(int pipe_in, int pipe_out, char *at) {
    char byte;
    ssize_t wrote = write(pipe_in, at, PAGE_BYTES);
    if (wrote >= 0 || errno != EFAULT) FAIL("write(2) of a lost page at %p: %zd, %m", (void *)at, wrote);
    NEED(read(pipe_out, &byte, 1) < 0 && errno == EAGAIN);
}

// A write that begins in a page that is there ends, at the latest, where the lost one begins.
static void kernel_must_stop_at(int pipe_in, int pipe_out, char *at, uint64_t seed_before) {
    uint64_t copy[2 * PAGE_WORDS];
    ssize_t wrote = write(pipe_in, at - PAGE_BYTES, 2 * PAGE_BYTES);
    if (wrote > PAGE_BYTES) FAIL("write(2) went %zd bytes into a lost page", wrote - PAGE_BYTES);
    if (wrote < 0 && errno != EFAULT) FAIL("write(2) up to a lost page: %m");
    ssize_t got = read(pipe_out, copy, sizeof copy);
    NEED(got == (wrote > 0 ? wrote : -1));
    for (ssize_t i = 0; i < got / 8; i++)
        if (copy[i] != seed_before + i) FAIL("write(2) before a lost page wrote something else");
}

// Local memory may be full of pages that can leave no more: a new page has the room of one that is given back.
static void map_anew(char *at, char *given_back) {
    if (given_back) NEED(munmap(given_back, PAGE_BYTES) == 0);
    NEED(munmap(at, PAGE_BYTES) == 0);
    NEED(mmap(at, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
    if (!can_read(at) || !page_holds(at, 0)) FAIL("a page that was mapped anew is not zeros");
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: fault_catch MIB");
    size_t pages = pages_of_mib(arguments[1]), right = 0, lost = 0, refused = 0;
    int ends[2];
    NEED(pipe2(ends, O_NONBLOCK) == 0);
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGBUS, &action, NULL) == 0);
    NEED(mlockall(MCL_CURRENT) == 0);
    char *base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    dprintf(1, "ready\n");
    char line[16];
    NEED(read(0, line, sizeof line) > 0);
    char *first_lost = NULL, *last_right = NULL;
    int before = 0;
    for (size_t page = 0; page < pages; page++) {
        char *at = base + page * PAGE_BYTES;
        // Each page somewhere else, so that the address that the signal tells is a byte's and not the page's.
        if (can_read(at + mix(page) % PAGE_BYTES)) {
            if (!page_holds(at, page_seed(1, page, 1))) FAIL("page %zu is wrong", page);
            right++;
            last_right = at;
            before = 1;
            continue;
        }
        lost++;
        if (!first_lost) first_lost = at;
        if (can_read(at)) FAIL("page %zu is lost, and then not", page);
        if (refused < 64) {
            kernel_must_refuse(ends[1], ends[0], at);
            if (before) kernel_must_stop_at(ends[1], ends[0], at, page_seed(1, page - 1, 1));
            refused++;
        }
        before = 0;
    }
    if (first_lost) map_anew(first_lost, last_right);
    dprintf(1, "right %zu lost %zu refused %zu\n", right, lost, refused);
    return 0;
}
