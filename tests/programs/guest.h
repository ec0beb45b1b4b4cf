// What the first programs of guests have in common.
#ifndef GUEST_H
#define GUEST_H

#include "pattern.h"

#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>

static inline void mount_file_systems(void) {
    static const char *const directories[] = {"/proc", "/sys", "/run"};
    static const char *const types[] = {"proc", "sysfs", "tmpfs"};
    for (int i = 0; i < 3; i++) {
        mkdir(directories[i], 0755);
        NEED(mount(types[i], directories[i], types[i], 0, NULL) == 0);
    }
}

static inline pid_t start(char *const arguments[]) {
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        execv(arguments[0], arguments);
        _exit(127);
    }
    return child;
}

static inline int end_of(pid_t child) {
    int status = 0;
    NEED(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void print_file(const char *path) {
    FILE *file = fopen(path, "r");
    NEED(file != NULL);
    for (int c; (c = getc(file)) != EOF;) putchar(c);
    fclose(file);
}

static inline void set(const char *path, const char *value) {
    FILE *file = fopen(path, "w");
    NEED(file != NULL && fputs(value, file) >= 0 && fclose(file) == 0);
}

#endif
