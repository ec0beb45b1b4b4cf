// The first program of a guest whose kernel knows a slower memory tier: runs a workload under each telemetry source that is
// named, kills daemons at moments of chance while a program checks its memory, prints what became of it all, and powers off.
// usage, as the kernel's parameters: sources=NAME,... sources_mib=MIB sources_seconds=SECONDS sources_kills=COUNT
// usage, as a program: guest_sources again COUNT   fills memory, checks it, and executes itself COUNT times
#include "guest.h"

#include <signal.h>
#include <time.h>

enum { AGAIN_PAGES = 2048, AGAIN_ROUNDS = 30, PAUSE_MS = 20, AWAITED = 4 };

static void wait_ms(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

// What a file holds, on one line; nothing where it is not there.
static const char *value_of(const char *path) {
    static char text[256];
    FILE *file = fopen(path, "r");
    if (file == NULL) return "none";
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

#define BALANCING "/proc/sys/kernel/numa_balancing"
#define KDAMONDS "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds"

static void print_settings(const char *when) {
    printf("%s: balancing %s", when, value_of(BALANCING));
    printf(" limit %s", value_of("/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps"));
    printf(" kdamonds %s\n", value_of(KDAMONDS));
}

// Waits until a daemon has changed what its source needs changed; not for ever.
static void await_change(void) {
    for (int i = 0; i < 600 && strcmp(value_of(BALANCING), "0") == 0 && strcmp(value_of(KDAMONDS), "0") == 0; i++)
        wait_ms(100);
}

static void run_source(char *source) {
    printf("BEGIN workload %s\n", source);
    char *arguments[] = {"/spillway", "tier", "--source", source, "--policy", "hotbox", "--local", "25%", "--scan-interval", "200",
                         "--telemetry-cpu", "20", "--stats", "/run/stats.json", "--", "/hot_tenth", getenv("sources_mib"),
                         getenv("sources_seconds"), NULL};
    pid_t daemon = start(arguments);
    await_change();
    print_settings("while it runs");
    int status = end_of(daemon);
    print_settings("when it has ended");
    printf("END workload\n");
    if (status != 0) FAIL("under source %s it ended with status %d", source, status);
    printf("BEGIN status %s\n", source);
    print_file("/run/stats.json");
    printf("END status\n");
}

// Daemons come and are killed at moments of chance; the program that they manage checks all of its memory meanwhile.
static void kill_daemons(char *sources[], int count) {
    int kills = atoi(getenv("sources_kills"));
    printf("BEGIN killed\n");
    char *workload[] = {"/hot_tenth", "32", "100", NULL};
    pid_t program = start(workload);
    char number[16];
    snprintf(number, sizeof number, "%d", program);
    char *daemon[] = {"/spillway", "tier", "--source", NULL, "--local", "25%", "--scan-interval", "50", "--telemetry-cpu", "50",
                      "--pid", number, NULL};
    srandom(kills);
    for (int i = 0; i < kills; i++) {
        daemon[3] = sources[i % count];
        pid_t killed = start(daemon);
        // Some are killed with settings changed, however slow the guest is; the others whenever it comes.
        if (i < AWAITED) await_change();
        long after_ms = random() % 3000;
        wait_ms(after_ms);
        NEED(kill(killed, SIGKILL) == 0);
        printf("%s, killed after %ld ms: ended with status %d\n", daemon[3], after_ms, end_of(killed));
        print_settings("after it was killed");
    }
    printf("the program ended with status %d\n", end_of(program));
    char *next[] = {"/spillway", "tier", "--source", "page-tables", "--", "/hot_tenth", "8", "2", NULL};
    printf("the next daemon ended with status %d\n", end_of(start(next)));
    print_settings("at the end");
    printf("END killed\n");
}

// The program under the daemon executes itself again and again, while pages of it are on their way.
static void execute_again(char *source) {
    printf("BEGIN again\n");
    char *arguments[] = {"/spillway", "tier", "--source", source, "--local", "25%", "--scan-interval", "20", "--telemetry-cpu", "50",
                         "--stats", "/run/stats.json", "--", "/init", "again", "8", NULL};
    printf("it ended with status %d\n", end_of(start(arguments)));
    printf("END again\n");
}

static int again(int count) {
    char *at = map_pages(AGAIN_PAGES);
    for (size_t page = 0; page < AGAIN_PAGES; page++) page_write(at + page * PAGE_BYTES, page_seed(count, page, 1));
    for (int round = 0; round < AGAIN_ROUNDS; round++) {
        for (size_t page = round % 3; page < AGAIN_PAGES; page += 3)
            if (!page_holds(at + page * PAGE_BYTES, page_seed(count, page, 1))) FAIL("page %zu is wrong", page);
        wait_ms(PAUSE_MS);
    }
    if (count == 0) return 0;
    char number[16];
    snprintf(number, sizeof number, "%d", count - 1);
    execl("/proc/self/exe", "/init", "again", number, NULL);
    FAIL("cannot execute itself: %m");
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "again") == 0) return again(atoi(argv[2]));
    mount_file_systems();
    // The kernel's scan goes by the CPU time of the program, of which a guest without KVM has little to give.
    NEED(mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL) == 0);
    set("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "50");
    set("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", "50");
    char *doctor[] = {"/spillway", "doctor", "--json", NULL};
    printf("BEGIN doctor\n");
    end_of(start(doctor));
    printf("END doctor\n");
    char *sources[8];
    int count = 0;
    for (char *source = strtok(getenv("sources"), ","); source != NULL && count < 8; source = strtok(NULL, ","))
        sources[count++] = source;
    NEED(count > 0);
    print_settings("at first");
    for (int i = 0; i < count; i++) run_source(sources[i]);
    execute_again(sources[0]);
    kill_daemons(sources, count);
    printf("all sources ran\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
