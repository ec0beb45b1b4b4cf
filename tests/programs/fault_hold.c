// Fills memory, says where it lies, then reads and rewrites it at random and verifies what it reads, until SIGTERM
// comes; then checks everything once more. Tells how far it is, so that a test sees whether it goes on.
// A fork for which there is no room is told, and done without.
// usage: fault_hold MIB [CHILDREN]
#include "pattern.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <sys/wait.h>

enum { VISITS_PER_LINE = 512, MOST_CHILDREN = 64, ENVIRONMENT_PAGES = 64 };

extern char **environ;

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int signal) {
    (void)signal;
    asked_to_end = 1;
}

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

// Tells an older version from a page that was never this one.
static void wrong(const uint64_t *words, size_t page, uint32_t version) {
    for (uint32_t older = 0; older < version; older++)
        if (page_holds(words, page_seed(1, page, older))) FAIL("page %zu holds version %u of %u", page, older, version);
    FAIL("page %zu is wrong: version %u begins with %#lx, not %#lx", page, version, (unsigned long)words[0],
         (unsigned long)page_seed(1, page, version));
}

static void work(char *base, uint32_t *version, size_t pages, uint64_t seed) {
    uint64_t visits = 0;
    for (uint64_t random = mix(seed + 1); !asked_to_end; random = mix(random + 1)) {
        size_t page = random % pages;
        char *at = base + page * PAGE_BYTES;
        if (!page_holds(at, page_seed(1, page, version[page]))) wrong((uint64_t *)at, page, version[page]);
        if (random >> 61 & 1) page_write(at, page_seed(1, page, ++version[page]));
        if (++visits % VISITS_PER_LINE == 0) say("on");
    }
    for (size_t page = 0; page < pages; page++) {
        char *at = base + page * PAGE_BYTES;
        if (!page_holds(at, page_seed(1, page, version[page]))) wrong((uint64_t *)at, page, version[page]);
    }
    say("whole");
}

// As PostgreSQL does: the environment lies in memory of the program's own, and there is a locale whose texts are
// looked for by it. Whoever says what went wrong with a store must need none of it.
static void move_environment(void) {
    NEED(setlocale(LC_ALL, "C.UTF-8"));
    char **moved = (char **)map_pages(ENVIRONMENT_PAGES), **at = moved;
    char *text = (char *)moved + ENVIRONMENT_PAGES * PAGE_BYTES / 4;
    for (char **old = environ; *old; old++) {
        *at++ = text;
        text = stpcpy(text, *old) + 1;
    }
    environ = moved;
}

int main(int count, char **arguments) {
    if (count < 2 || (count > 2 && atoi(arguments[2]) > MOST_CHILDREN)) FAIL("usage: fault_hold MIB [CHILDREN]");
    size_t pages = pages_of_mib(arguments[1]);
    int children = count > 2 ? atoi(arguments[2]) : 0;
    struct sigaction action = {.sa_handler = ask_to_end};
    NEED(sigaction(SIGTERM, &action, NULL) == 0);
    move_environment();
    char *base = map_pages(pages);
    uint32_t *version = (uint32_t *)map_pages(pages * sizeof *version / PAGE_BYTES + 1);
    pages_write(base, pages, 1, 1);
    for (size_t page = 0; page < pages; page++) version[page] = 1;
    printf("ready %#lx %zu\n", (unsigned long)base, pages * PAGE_BYTES);
    fflush(stdout);
    pid_t child[MOST_CHILDREN];
    for (int i = 0; i < children; i++) {
        child[i] = fork();
        if (child[i] < 0) {
            // Where there is no room for a child, a program goes on without.
            if (errno != ENOMEM) FAIL("fork: %m");
            perror("fork");
            children = i;
            break;
        }
        if (child[i] == 0) {
            work(base, version, pages, 100 + i);
            _exit(0);
        }
    }
    work(base, version, pages, 1);
    for (int i = 0; i < children; i++) NEED(kill(child[i], SIGTERM) == 0);
    for (int status; wait(&status) > 0;)
        if (status != 0) FAIL("a child ended with %#x", status);
    return 0;
}
