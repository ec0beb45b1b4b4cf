// The first program of the rig's guest: makes the far node slower memory for the kernel, runs one workload under one
// policy, prints what became of it, and powers off.
// usage, as the kernel's parameters: rig_workload=NAME rig_policy=NAME rig_local_pct=N rig_mib=N rig_warm_s=N
//   rig_measured_s=N rig_far_ns=N rig_scan_ms=N rig_telemetry_cpu=PCT rig_scan_pace=NAME rig_source=NAME
//   rig_settings=KEY=VALUE[,...] rig_start=N
//   policies beyond the daemon's: none, kernel, all-local
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, BIND = 2, CLOSE_PAGES = 64, START_US = 37139 };

static void power_off(void) {
    fflush(stdout);
    reboot(RB_POWER_OFF);
    for (;;) pause();
}

#define NEED(condition)                                                           \
    do {                                                                          \
        if (!(condition)) {                                                       \
            printf("rig: init.c:%d: %s: %m\n", __LINE__, #condition);             \
            power_off();                                                          \
        }                                                                         \
    } while (0)

static void set(const char *path, const char *value) {
    int file = open(path, O_WRONLY);
    NEED(file >= 0 && write(file, value, strlen(value)) == (ssize_t)strlen(value));
    close(file);
}

static void read_file(const char *path, char *to, size_t bytes) {
    FILE *file = fopen(path, "r");
    NEED(file != NULL);
    to[fread(to, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static void print_file(const char *path) {
    static char text[1 << 16];
    read_file(path, text, sizeof text);
    fputs(text, stdout);
}

// Runs a program to its end.
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
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void load_module(const char *path) {
    int file = open(path, O_RDONLY);
    NEED(file >= 0 && syscall(SYS_finit_module, file, "", 0) == 0);
    close(file);
}

// The far node's memory is given to the kernel as a DAX device: what the kernel gets so is in a slower tier.
static void add_far_node(void) {
    char name[256];
    load_module("/modules/dax_hmem.ko");
    load_module("/modules/kmem.ko");
    set("/sys/devices/system/memory/auto_online_blocks", "online_movable");
    DIR *devices = opendir("/sys/bus/dax/devices");
    NEED(devices != NULL);
    for (struct dirent *entry; (entry = readdir(devices)) != NULL;)
        if (entry->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s", entry->d_name);
            set("/sys/bus/dax/drivers/kmem/new_id", name);
        }
    closedir(devices);
}

// The device through which the emulator shows its counters, as a file that can be mapped.
static void find_counters(void) {
    char path[300], vendor[16], device[16];
    DIR *devices = opendir("/sys/bus/pci/devices");
    NEED(devices != NULL);
    for (struct dirent *entry; (entry = readdir(devices)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", entry->d_name);
        read_file(path, vendor, sizeof vendor);
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/device", entry->d_name);
        read_file(path, device, sizeof device);
        if (strncmp(vendor, "0x1af4", 6) != 0 || strncmp(device, "0x1110", 6) != 0) continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/enable", entry->d_name);
        set(path, "1");
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/resource2", entry->d_name);
        NEED(symlink(path, "/run/counters") == 0);
    }
    closedir(devices);
}

// A number of the largest zone of node 0, in pages.
static uint64_t zone_pages(const char *what) {
    static char text[1 << 16];
    read_file("/proc/zoneinfo", text, sizeof text);
    char *zone = strstr(text, "Node 0, zone    DMA32");
    NEED(zone != NULL);
    char *next = strstr(zone + 1, "\nNode ");
    if (next != NULL) *next = '\0';
    char *found = strstr(zone, what);
    NEED(found != NULL);
    return strtoull(found + strlen(what), NULL, 10);
}

// Takes node 0's memory until only `left_pages` are free, so that the kernel has as little of it as a policy of ours.
static void take_all_but(uint64_t left_pages) {
    static const unsigned long node_0 = 1;
    fflush(stdout);
    int ready[2];
    NEED(pipe(ready) == 0);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        for (uint64_t free; (free = zone_pages(" pages free")) > left_pages + CLOSE_PAGES;) {
            size_t bytes = (free - left_pages) / 2 * PAGE_BYTES;
            char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            NEED(at != MAP_FAILED && syscall(SYS_mbind, at, bytes, BIND, &node_0, 64, 0) == 0);
            NEED(mlock(at, bytes) == 0);
        }
        NEED(write(ready[1], "", 1) == 1);
        for (;;) pause();
    }
    char done;
    NEED(read(ready[0], &done, 1) == 1);
}

static void print_counts(const char *when) {
    static char text[1 << 16];
    static const char *const names[] = {"pgpromote_success", "pgdemote_kswapd", "pgdemote_direct", "numa_hint_faults "};
    read_file("/proc/vmstat", text, sizeof text);
    printf("BEGIN vmstat-%s\n", when);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *line = strstr(text, names[i]);
        if (line != NULL) printf("%.*s\n", (int)strcspn(line, "\n"), line);
    }
    printf("END\n");
}

// The kernel's times in proportion. By default it marks 256 MiB in each second that a program runs: 10 GiB in 40 s, so 32 MiB in
// an eighth of a second. The workloads run 5 to 23% of the time, as they sleep while they would wait for memory, so that is
// about a hundredth of a second of their running: the least period that the kernel takes for a scan of this size. A page is hot
// when it is used within a second of its mark; of 10 GiB, so within 3 ms of 32 MiB.
static void scale_scans(void) {
    NEED(mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL) == 0);
    set("/sys/kernel/debug/sched/numa_balancing/scan_size_mb", "32");
    set("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "12");
    set("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", "12");
    // 750 ms at 750 ns; the longer the workload waits, the less it runs.
    char longest_ms[16];
    snprintf(longest_ms, sizeof longest_ms, "%d", 562500 / atoi(getenv("rig_far_ns")));
    set("/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms", longest_ms);
    set("/sys/kernel/debug/sched/numa_balancing/hot_threshold_ms", "3");
}

int main(void) {
    static const char *const directories[] = {"/proc", "/sys", "/run"};
    static const char *const types[] = {"proc", "sysfs", "tmpfs"};
    for (int i = 0; i < 3; i++) {
        mkdir(directories[i], 0755);
        NEED(mount(types[i], directories[i], types[i], 0, NULL) == 0);
    }
    const char *policy = getenv("rig_policy");
    uint64_t local_pages = (uint64_t)(atof(getenv("rig_local_pct")) / 100 * atof(getenv("rig_mib")) * 256);
    int by_kernel = strcmp(policy, "kernel") == 0, nobody = strcmp(policy, "none") == 0;
    add_far_node();
    find_counters();
    set("/proc/sys/kernel/numa_balancing", by_kernel ? "2" : "0");
    set("/sys/kernel/mm/numa/demotion_enabled", by_kernel ? "true" : "false");
    if (by_kernel || strcmp(getenv("rig_source"), "hint-faults") == 0) scale_scans();
    // Below its low watermark the kernel gives programs no more of a node.
    if (by_kernel || nobody) take_all_but(local_pages + zone_pages("\n        low"));

    char *arguments[64] = {0}, local[16], *setting = getenv("rig_settings");
    int count = 0;
    int daemon = !by_kernel && !nobody && strcmp(policy, "all-local") != 0;
    if (daemon) {
        snprintf(local, sizeof local, "%s%%", getenv("rig_local_pct"));
        char *own[] = {"/spillway", "tier", "--policy", (char *)policy, "--local", local, "--scan-interval", getenv("rig_scan_ms"),
                       "--telemetry-cpu", getenv("rig_telemetry_cpu"), "--scan-pace", getenv("rig_scan_pace"), "--counters", "/run/counters", "--stats", "/run/stats.json",
                       "--source", getenv("rig_source")};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) arguments[count++] = own[i];
        for (setting = setting ? strtok(setting, ",") : NULL; setting != NULL; setting = strtok(NULL, ",")) {
            arguments[count++] = "--set";
            arguments[count++] = setting;
        }
        arguments[count++] = "--";
    }
    char *own[] = {"/workload", getenv("rig_workload"), getenv("rig_mib"), getenv("rig_warm_s"),
                   getenv("rig_measured_s"), getenv("rig_far_ns"), "/run/counters"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) arguments[count++] = own[i];
    // The same run begun at another time, as far as the kernel's clocks and scans are concerned.
    usleep(START_US * (useconds_t)atoi(getenv("rig_start")));
    print_counts("before");
    printf("BEGIN workload\n");
    int status = run(arguments);
    printf("END\n");
    print_counts("after");
    if (daemon && status == 0) {
        printf("BEGIN stats\n");
        print_file("/run/stats.json");
        printf("END\n");
    }
    printf("rig: the workload ended with status %d\n", status);
    power_off();
}
