// The first program of a guest with two memory nodes, each with a CPU: measures memory that the host has not given yet, and the first
// touch from node to node, and prints where the frames of a program come to lie whose memory is mostly far.
#include "guest.h"

static void section(const char *name, char *const arguments[]) {
    printf("BEGIN %s\n", name);
    int status = end_of(start(arguments));
    printf("END %s\n", strtok(strdup(name), " "));
    if (status != 0) FAIL("%s ended with status %d", name, status);
}

static void place(const char *name, char *mode, char *first_cpu, char *second_cpu) {
    char *arguments[] = {"/spillway", "run", "--local", "8M", "--store", "ram:", "--fault-mode", mode, "--",
                         "/placement", "32", first_cpu, second_cpu, NULL};
    section(name, arguments);
}

int main(void) {
    mount_file_systems();
    char *uses[] = {"/spillway", "bench", "physical", "guest", "--quick", "--memory", "256M", "--json", NULL};
    section("uses", uses);
    char *locality[] = {"/spillway", "bench", "physical", "locality", "--quick", "--memory", "16M", "--json", NULL};
    section("locality", locality);
    place("placement thread", "thread", "1", NULL);
    place("placement inline", "inline", "1", NULL);
    place("placement crowd", "thread", "0", "1");
    printf("all ran\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
