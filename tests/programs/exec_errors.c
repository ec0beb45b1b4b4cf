// Programs that cannot be executed: what execve(2) and execveat(2) say of them, with strings in memory that may be far.
// usage: exec_errors MIB DIRECTORY
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char *base;
static size_t pages;
static uint32_t version = 1;
extern char **environ;

static char *bad = (char *)0x7ffffff00000;
static char *kernel = (char *)0xffff800000000000;

// A page each, so that each string and array is fetched by itself.
static char *strings;
static int strings_used;

static void *far_page(void) {
    return strings + PAGE_BYTES * (strings_used++ % 64);
}

static char *far_string(const char *text) {
    return strcpy(far_page(), text);
}

static char **far_array(char *first, char *second) {
    char **array = far_page();
    array[0] = first;
    array[1] = second;
    array[2] = NULL;
    return array;
}

static void wash(void) {
    pages_write(base, pages, 1, ++version);
}

enum way { BY_LIBC, BY_NUMBER, BY_EXECVEAT, BY_EXECVEAT_NUMBER, WAYS };

static int execute(enum way way, char *path, char **arguments, char **environment) {
    switch (way) {
    case BY_LIBC: return execve(path, arguments, environment);
    case BY_NUMBER: return syscall(SYS_execve, path, arguments, environment);
    case BY_EXECVEAT: return execveat(AT_FDCWD, path, arguments, environment, 0);
    default: return syscall(SYS_execveat, AT_FDCWD, path, arguments, environment, 0);
    }
}

static void fails(const char *name, char *path, char **arguments, char **environment) {
    for (enum way way = 0; way < WAYS; way++) {
        wash();
        int result = execute(way, path, arguments, environment);
        printf("%s, %d: %d %d\n", name, way, result, errno);
        fflush(stdout);
        pages_check(base, pages, 1, version, name);
    }
}

// In a child, whose status says that the next program has found its arguments.
static void succeeds(const char *name, char *path, char **arguments, char **environment) {
    for (enum way way = 0; way < WAYS; way++) {
        wash();
        pid_t child = fork();
        if (child == 0) {
            execute(way, path, arguments, environment);
            _exit(errno);
        }
        int status = -1;
        NEED(waitpid(child, &status, 0) == child);
        printf("%s, %d: status %d\n", name, way, status);
        fflush(stdout);
        pages_check(base, pages, 1, version, name);
    }
}

static char *in(const char *directory, const char *name) {
    char *path = far_page();
    snprintf(path, PAGE_BYTES, "%s/%s", directory, name);
    return path;
}

static void write_file(const char *path, const char *text, mode_t mode) {
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0700);
    NEED(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    NEED(fchmod(file, mode) == 0);
    close(file);
}

int main(int argc, char **argv) {
    if (argc < 3) return argc == 0 || !argv[0] || !*argv[0] ? 3 : argc == 2 ? 5 : 4;
    pages = pages_of_mib(argv[1]);
    const char *directory = argv[2];
    strings = map_pages(64);
    base = map_pages(pages);

    char **arguments = far_array(far_string("program"), far_string("argument"));
    char **environment = far_array(far_string("HOME=/"), NULL);
    char *self = realpath("/proc/self/exe", far_page());
    NEED(self);

    fails("not there", in(directory, "nothing"), arguments, environment);
    fails("empty path", far_string(""), arguments, environment);
    fails("a directory", far_string(directory), arguments, environment);
    char *plain = in(directory, "plain");
    write_file(plain, "#!/bin/sh\n", 0600);
    fails("not executable", plain, arguments, environment);
    fails("below a file", in(directory, "plain/below"), arguments, environment);
    char *nonsense = in(directory, "nonsense");
    write_file(nonsense, "nonsense", 0700);
    fails("no program", nonsense, arguments, environment);
    char *empty = in(directory, "empty");
    write_file(empty, "", 0700);
    fails("an empty file", empty, arguments, environment);
    char *short_elf = in(directory, "short");
    write_file(short_elf, "\177ELF\2\1\1", 0700);
    fails("a short program", short_elf, arguments, environment);
    char *script = in(directory, "script");
    write_file(script, "#!/nowhere/interpreter\n", 0700);
    fails("no interpreter", script, arguments, environment);
    char *loop = in(directory, "loop");
    NEED(symlink("loop", loop) == 0);
    fails("a loop", loop, arguments, environment);
    char *itself = in(directory, "itself");
    char line[PATH_MAX + 8];
    snprintf(line, sizeof line, "#!%s\n", itself);
    write_file(itself, line, 0700);
    fails("a script that is its own interpreter", itself, arguments, environment);
    char *long_path = far_page();
    memset(long_path, 'a', PATH_MAX - 1);
    long_path[0] = '/';
    long_path[PATH_MAX - 1] = 0;
    fails("a long name", long_path, arguments, environment);
    char *longer = map_pages(3);
    memset(longer, '/', 2 * PAGE_BYTES);
    fails("a long path", longer, arguments, environment);
    char *busy = in(directory, "busy");
    write_file(busy, "#!/bin/sh\n", 0700);
    int file = open(busy, O_WRONLY);
    fails("a file that is written", busy, arguments, environment);
    close(file);

    fails("no path", NULL, arguments, environment);
    fails("a bad path", bad, arguments, environment);
    fails("a path of the kernel's", kernel, arguments, environment);
    char *unreadable = mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fails("an unreadable path", unreadable, arguments, environment);
    fails("bad arguments", self, (char **)bad, environment);
    fails("arguments of the kernel's", self, (char **)kernel, environment);
    fails("a bad argument", self, far_array(far_string("program"), bad), environment);
    fails("an unreadable argument", self, far_array(far_string("program"), unreadable), environment);
    fails("a bad environment", self, arguments, (char **)bad);
    fails("a bad variable", self, arguments, far_array(far_string("A=B"), bad));
    fails("an unreadable variable", self, arguments, far_array(unreadable, NULL));

    // The array ends with the last page that can be read, and no null.
    char *edge = map_pages(2);
    NEED(mprotect(edge + PAGE_BYTES, PAGE_BYTES, PROT_NONE) == 0);
    char **open_end = (char **)(edge + PAGE_BYTES) - 2;
    open_end[0] = open_end[1] = far_string("A=B");
    fails("an environment without an end", self, arguments, open_end);
    fails("arguments without an end", self, open_end, environment);
    char *unended = edge + PAGE_BYTES - 4;
    memset(unended, 'B', 4);
    fails("a variable without an end", self, arguments, far_array(unended, NULL));
    fails("a path without an end", unended, arguments, environment);

    enum { MANY = 600000 };
    char **many = (char **)map_pages(MANY * sizeof *many / PAGE_BYTES + 1);
    char *same = far_string("0123456789abcdef");
    for (int i = 0; i < MANY; i++) many[i] = same;
    fails("too many arguments", self, many, environment);
    fails("too many variables", self, arguments, many);
    char *huge = map_pages(64);
    memset(huge, 'h', 64 * PAGE_BYTES - 1);
    fails("too long an argument", self, far_array(far_string("program"), huge), environment);
    fails("too long a variable", self, arguments, far_array(huge, NULL));

    succeeds("a program", self, arguments, environment);
    succeeds("no environment", self, arguments, NULL);
    succeeds("no arguments", self, NULL, environment);
    succeeds("a missing program", in(directory, "nothing"), arguments, environment);
    puts("whole");
    return 0;
}
