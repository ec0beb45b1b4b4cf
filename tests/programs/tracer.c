// Runs a program as a debugger does: traced from its beginning, made by vfork(2). Says which signals it was
// told of on the way, but for that of the exec, and how the program ended. usage: tracer PROGRAM [ARGUMENT...]
#include "pattern.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int count, char **arguments) {
    NEED(count >= 2);
    pid_t child = vfork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(97);
        execvp(arguments[1], arguments + 1);
        _exit(98);
    }
    NEED(child > 0);
    int status, execs = 0, others = 0;
    for (;;) {
        NEED(waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status)) break;
        int signal = WSTOPSIG(status);
        if (signal == SIGTRAP && execs++ == 0) signal = 0;
        if (signal) others++, fprintf(stderr, "told of signal %d\n", signal);
        NEED(ptrace(PTRACE_CONT, child, 0, signal) == 0);
    }
    NEED(WIFEXITED(status));
    printf("execs %d others %d status %d\n", execs, others, WEXITSTATUS(status));
    return 0;
}
