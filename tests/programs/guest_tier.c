// The first program of a guest with two memory nodes: runs a workload under one policy after the other, prints what
// became of it, and powers off.
// usage, as the kernel's parameters: tier_policies=NAME[:KEY=VALUE],... tier_mib=MIB tier_seconds=SECONDS tier_local=SHARE
#include "pattern.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int run(char *const arguments[]) {
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        execv(arguments[0], arguments);
        _exit(127);
    }
    int status = 0;
    NEED(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void print_file(const char *path) {
    FILE *file = fopen(path, "r");
    NEED(file != NULL);
    for (int c; (c = getc(file)) != EOF;) putchar(c);
    fclose(file);
}

// A policy may bring a setting along: NAME:KEY=VALUE.
static void run_policy(char *policy) {
    char *setting = strchr(policy, ':');
    printf("BEGIN workload %s\n", policy);
    if (setting != NULL) *setting++ = '\0';
    char *arguments[24] = {"/spillway", "tier", "--policy", policy, "--local", getenv("tier_local"), "--look", "200",
                           "--telemetry-cpu", "20", "--stats", "/run/stats.json"};
    int count = 12;
    if (setting != NULL) {
        arguments[count++] = "--set";
        arguments[count++] = setting;
    }
    arguments[count++] = "--";
    arguments[count++] = "/hot_tenth";
    arguments[count++] = getenv("tier_mib");
    arguments[count++] = getenv("tier_seconds");
    int status = run(arguments);
    printf("END workload\n");
    if (status != 0) FAIL("policy %s ended with status %d", policy, status);
    printf("BEGIN status %s\n", policy);
    print_file("/run/stats.json");
    printf("END status\n");
}

static void set(const char *path, const char *value) {
    FILE *file = fopen(path, "w");
    NEED(file != NULL && fputs(value, file) >= 0 && fclose(file) == 0);
}

#define NUMA_BALANCING "/proc/sys/kernel/numa_balancing"
#define DEMOTION "/sys/kernel/mm/numa/demotion_enabled"

static void print_settings(const char *when) {
    printf("%s\n", when);
    print_file(NUMA_BALANCING);
    print_file(DEMOTION);
}

// A daemon that has changed settings is killed; its program goes on, and the next daemon puts the settings back.
static void kill_daemon(void) {
    char *arguments[] = {"/spillway", "tier", "--pause-kernel", "--local", "25%", "--look", "100", "--telemetry-cpu", "20",
                         "--", "/hot_tenth", "32", "12", NULL};
    printf("BEGIN killed\n");
    set(NUMA_BALANCING, "1");
    set(DEMOTION, "1");
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        execv(arguments[0], arguments);
        _exit(127);
    }
    sleep(6);
    print_settings("while it runs:");
    NEED(kill(child, SIGKILL) == 0);
    print_settings("after it was killed:");
    // The program is init's child now.
    int status = 0;
    pid_t ended;
    while ((ended = wait(&status)) > 0)
        if (ended != child) printf("the program ended with status %d\n", status);
    arguments[11] = "8";
    arguments[12] = "2";
    printf("the next daemon ended with status %d\n", run(arguments));
    print_settings("at the end:");
    printf("END killed\n");
}

int main(void) {
    static const char *const directories[] = {"/proc", "/sys", "/run"};
    static const char *const types[] = {"proc", "sysfs", "tmpfs"};
    for (int i = 0; i < 3; i++) {
        mkdir(directories[i], 0755);
        NEED(mount(types[i], directories[i], types[i], 0, NULL) == 0);
    }
    char *doctor[] = {"/spillway", "doctor", "--json", NULL};
    printf("BEGIN doctor\n");
    run(doctor);
    printf("END doctor\n");
    // What its caller set stays, and what it starts finds it.
    char *policies = getenv("tier_policies");
    for (char *policy = strtok(policies, ","); policy != NULL; policy = strtok(NULL, ",")) run_policy(policy);
    kill_daemon();
    printf("all policies ran\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
