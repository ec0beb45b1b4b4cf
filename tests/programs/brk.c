// An allocator that knows only the break: it grows by pieces, shrinks and grows again. usage: brk MIB
#include <sys/syscall.h>

#include "pattern.h"

int main(int count, char **arguments) {
    size_t pages = pages_of_mib(count > 1 ? arguments[1] : "64");
    char *start = sbrk(0);
    size_t odd = -(uintptr_t)start % PAGE_BYTES;
    NEED(sbrk(odd) == start);
    char *base = start + odd;
    for (size_t grown = 0; grown < pages; grown += 100) NEED(sbrk(100 * PAGE_BYTES) == base + grown * PAGE_BYTES);
    pages_check(base, pages, 1, 0, "a new break");
    pages_write(base, pages, 1, 1);
    pages_check(base, pages, 1, 1, "below the break");

    char *half = base + pages / 2 * PAGE_BYTES;
    NEED(brk(half) == 0);
    NEED(sbrk(0) == half);
    NEED(brk(base + pages * PAGE_BYTES) == 0);
    pages_check(half, pages - pages / 2, 1, 0, "what was given back");
    pages_check(base, pages / 2, 1, 1, "what was kept");

    // The kernel refuses a break below the heap, which libc does not tell: nothing goes.
    char *end = sbrk(0);
    NEED(brk((void *)PAGE_BYTES) == 0);
    NEED(sbrk(0) == end);
    NEED((char *)syscall(SYS_brk, PAGE_BYTES) == end);
    pages_check(base, pages / 2, 1, 1, "what a refused break leaves");
    puts("whole");
    return 0;
}
