// Ways to make processes, each of which must see its parent's memory and keep its own.
// usage: families WAY MIB, where WAY is deep, wide, vfork, spawn, thread, clone or daemon FILE
#include "pattern.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static char *base;
static size_t pages;
extern char **environ;

static void expect_zero(pid_t child, const char *what) {
    int status;
    NEED(child > 0);
    NEED(waitpid(child, &status, 0) == child);
    if (status != 0) FAIL("%s: a child ended with status 0x%x", what, status);
}

// Each generation checks its parent's pages, writes its own, and has one child.
static void deep(uint32_t generation) {
    pages_check(base, pages, 1, generation, "a parent's memory");
    if (generation == 12) return;
    pid_t child = fork();
    if (child == 0) {
        pages_write(base, pages, 1, generation + 1);
        deep(generation + 1);
        _exit(0);
    }
    expect_zero(child, "deep");
    pages_check(base, pages, 1, generation, "own memory, after a child");
}

// Several children at once; the first of each generation has children too.
static void wide(uint32_t generation) {
    enum { CHILDREN = 4 };
    pid_t children[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        NEED(children[i] >= 0);
        if (children[i]) continue;
        pages_check(base, pages, 1, generation, "a parent's memory");
        pages_write(base, pages, 1, generation + 1 + i);
        if (i == 0 && generation < 3) wide(generation + 1);
        pages_check(base, pages, 1, generation + 1 + i, "own memory");
        _exit(0);
    }
    for (int i = 0; i < CHILDREN; i++) expect_zero(children[i], "wide");
    pages_check(base, pages, 1, generation, "own memory, after children");
}

static void by_vfork(const char *program) {
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl(program, program, "check", "4", NULL);
            _exit(97);
        }
        expect_zero(child, "vfork");
    }
}

static void by_spawn(char *program) {
    char *arguments[] = {program, "check", "4", NULL};
    for (int i = 0; i < 20; i++) {
        pid_t child;
        NEED(posix_spawn(&child, program, NULL, NULL, arguments, i % 2 ? environ : (char *[]){NULL}) == 0);
        expect_zero(child, "posix_spawn");
    }
    NEED(system("exit 0") == 0);
    FILE *said = popen("echo said", "r");
    char line[16];
    NEED(said && fgets(line, sizeof line, said) && !strcmp(line, "said\n") && pclose(said) == 0);
}

static void *fork_in_thread(void *seed) {
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            pages_check(base, pages, 1, 1, "the parent's memory, after a fork in a thread");
            pages_write(base, 64, 1, (uintptr_t)seed);
            pages_check(base, 64, 1, (uintptr_t)seed, "own memory");
            _exit(0);
        }
        expect_zero(child, "fork in a thread");
    }
    return NULL;
}

static void by_thread(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) NEED(pthread_create(&threads[i], NULL, fork_in_thread, (void *)(i + 2)) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static int in_clone(void *ignored) {
    (void)ignored;
    pages_check(base, pages, 1, 1, "the parent's memory, after clone");
    pages_write(base, pages, 1, 2);
    pages_check(base, pages, 1, 2, "own memory, after clone");
    return 0;
}

static void by_clone(void) {
    enum { STACK = 256 << 10 };
    char *stack = malloc(STACK);
    NEED(stack != NULL);
    expect_zero(clone(in_clone, stack + STACK, SIGCHLD, NULL), "clone");
    free(stack);
}

// The parent is gone when the daemon works; what it has to say is in a file.
static void by_daemon(const char *file) {
    NEED(daemon(1, 0) == 0);
    usleep(300000);
    pages_check(base, pages, 1, 1, "a daemon's memory");
    pages_write(base, pages, 1, 2);
    pages_check(base, pages, 1, 2, "a daemon's memory");
    char made[4096];
    snprintf(made, sizeof made, "%s.new", file);
    FILE *out = fopen(made, "w");
    NEED(out && fprintf(out, "whole %d\n", getpid()) > 0 && fclose(out) == 0);
    NEED(rename(made, file) == 0);
}

int main(int count, char **arguments) {
    NEED(count >= 3);
    const char *way = arguments[1];
    pages = pages_of_mib(arguments[2]);
    base = map_pages(pages);
    pages_write(base, pages, 1, 1);
    if (!strcmp(way, "deep")) deep(1);
    else if (!strcmp(way, "wide")) wide(1);
    else if (!strcmp(way, "vfork")) by_vfork(arguments[0]);
    else if (!strcmp(way, "spawn")) by_spawn(arguments[0]);
    else if (!strcmp(way, "thread")) by_thread();
    else if (!strcmp(way, "clone")) by_clone();
    else if (!strcmp(way, "daemon")) by_daemon(arguments[3]);
    else if (strcmp(way, "check")) FAIL("no such way: %s", way);
    // A child that only checks what it has written itself, and a parent after all its children.
    if (strcmp(way, "daemon")) pages_check(base, pages, 1, 1, "own memory at the end");
    if (strcmp(way, "check")) puts("whole");
    return 0;
}
