// Ends as it is told, after it has used some memory. usage: ends exit STATUS | signal NUMBER | null
#include "pattern.h"

#include <signal.h>
#include <sys/resource.h>

int main(int count, char **arguments) {
    NEED(count >= 2);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    char *base = map_pages(8 << 8);
    pages_write(base, 8 << 8, 1, 1);
    if (!strcmp(arguments[1], "exit")) return atoi(arguments[2]);
    if (!strcmp(arguments[1], "signal")) raise(atoi(arguments[2]));
    if (!strcmp(arguments[1], "null")) *(volatile char *)NULL = 1;
    return 98;
}
