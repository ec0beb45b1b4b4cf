// hog MIB: takes so much memory, says so, and keeps it until it is ended.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    size_t bytes = (size_t)atol(argv[1]) << 20;
    // Volatile, or the compiler leaves out what nobody reads.
    volatile char *memory = malloc(bytes);
    if (!memory || argc != 2) return 1;
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    puts("holds");
    fflush(stdout);
    for (;;) pause();
}
