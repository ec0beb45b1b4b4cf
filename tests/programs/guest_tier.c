// The first program of a guest with two memory nodes: runs a workload under one policy after the other, prints what
// became of it, and powers off.
// usage, as the kernel's parameters: tier_policies=NAME,... tier_mib=MIB tier_seconds=SECONDS tier_local=SHARE
#include "guest.h"

#include <signal.h>

static void run_policy(char *policy) {
    printf("BEGIN workload %s\n", policy);
    char *arguments[] = {"/spillway", "tier", "--policy", policy, "--local", getenv("tier_local"), "--scan-interval", "200",
                         "--telemetry-cpu", "20", "--stats", "/run/stats.json", "--", "/hot_tenth", getenv("tier_mib"),
                         getenv("tier_seconds"), NULL};
    int status = end_of(start(arguments));
    printf("END workload\n");
    if (status != 0) FAIL("policy %s ended with status %d", policy, status);
    printf("BEGIN status %s\n", policy);
    print_file("/run/stats.json");
    printf("END status\n");
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
    char *arguments[] = {"/spillway", "tier", "--pause-kernel", "--local", "25%", "--scan-interval", "100", "--telemetry-cpu", "20",
                         "--", "/hot_tenth", "32", "12", NULL};
    printf("BEGIN killed\n");
    set(NUMA_BALANCING, "1");
    set(DEMOTION, "1");
    pid_t child = start(arguments);
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
    printf("the next daemon ended with status %d\n", end_of(start(arguments)));
    print_settings("at the end:");
    printf("END killed\n");
}

int main(void) {
    mount_file_systems();
    char *doctor[] = {"/spillway", "doctor", "--json", NULL};
    printf("BEGIN doctor\n");
    end_of(start(doctor));
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
