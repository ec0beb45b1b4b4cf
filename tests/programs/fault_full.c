// Writes pages that do not compress until memory is refused, then reads everything that was written: a full store may
// refuse what is new, but must keep what it has. Says what it found.
// usage: fault_full MIB
#include "pattern.h"

#include <setjmp.h>
#include <signal.h>

// What the handler needs is in one page and not zeros: a page of zeros would be new memory, refused like any other.
static struct {
    void *volatile caught_at;
    sigjmp_buf out;
} handler __attribute__((aligned(1024))) = {.caught_at = &handler};

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    handler.caught_at = info->si_addr;
    siglongjmp(handler.out, 1);
}

static uint64_t noise(uint64_t page, int word) {
    return mix(page * PAGE_WORDS + word + 1);
}

// False when the page was refused before anything was written.
static int write_noise(char *at, uint64_t page) {
    volatile uint64_t *words = (volatile uint64_t *)at;
    if (sigsetjmp(handler.out, 1)) {
        if (handler.caught_at != at) FAIL("SIGBUS tells %p where %p was written", handler.caught_at, (void *)at);
        return 0;
    }
    for (int i = 0; i < PAGE_WORDS; i++) words[i] = noise(page, i);
    return 1;
}

// 1 when the page is right, 0 when it is refused. Ends the program when it is wrong.
static int holds_noise(const char *at, uint64_t page) {
    const volatile uint64_t *words = (const volatile uint64_t *)at;
    if (sigsetjmp(handler.out, 1)) return 0;
    for (int i = 0; i < PAGE_WORDS; i += WORD_STEP)
        if (words[i] != noise(page, i)) FAIL("page %lu is wrong", (unsigned long)page);
    return 1;
}

// dprintf would need new memory when there is none.
static void say(const char *format, size_t first, size_t second) {
    char line[100];
    int length = snprintf(line, sizeof line, format, first, second);
    NEED(write(1, line, length) == length);
}

int main(int count, char **arguments) {
    if (count != 2) FAIL("usage: fault_full MIB");
    size_t pages = pages_of_mib(arguments[1]), written = 0, refused = 0, right = 0, lost = 0;
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGBUS, &action, NULL) == 0);
    char *base = map_pages(pages);
    // A few refusals say as much as many.
    for (size_t page = 0; page < pages && refused < 8; page++) {
        if (write_noise(base + page * PAGE_BYTES, page)) {
            if (refused == 0) written++;
        } else {
            refused++;
        }
    }
    say("written %zu refused %zu\n", written, refused);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < written; i++) {
            size_t page = round ? mix(i) % written : i;
            if (holds_noise(base + page * PAGE_BYTES, page)) right++;
            else lost++;
        }
    say("right %zu lost %zu\n", right, lost);
    return 0;
}
