// Says what is preloaded, as it finds it in its environment.
#include "pattern.h"

int main(void) {
    const char *names = getenv("LD_PRELOAD");
    puts(names ? names : "nothing");
    return 0;
}
