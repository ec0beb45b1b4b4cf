// Uses memory that fits in every way in which it may change, then wants more than fits, and checks all of it.
// usage: native FITS_MIB MORE_MIB
#include "pattern.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int over;

// Writes its pages again and again while they are taken over.
static void *writer(void *argument) {
    char *at = argument;
    for (uint32_t version = 2; !atomic_load(&over); version++) {
        pages_write(at, 64, 5, version);
        pages_check(at, 64, 5, version, "written meanwhile");
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: native FITS_MIB MORE_MIB");
    size_t quarter = pages_of_mib(arguments[1]) / 4, more = pages_of_mib(arguments[2]);

    // Grown by mremap, as realloc does it: first where it is or elsewhere, at last beyond what fits.
    char *grown = map_pages(quarter / 2);
    pages_write(grown, quarter / 2, 1, 1);
    grown = mremap(grown, quarter / 2 * PAGE_BYTES, quarter * PAGE_BYTES, MREMAP_MAYMOVE);
    NEED(grown != MAP_FAILED);
    pages_check(grown, quarter / 2, 1, 1, "grown");
    pages_check(grown + quarter / 2 * PAGE_BYTES, quarter / 2, 1, 0, "grown by");

    // With a hole, a part that is discarded and one that may be.
    char *holed = map_pages(quarter);
    size_t part = quarter / 8;
    pages_write(holed, quarter, 2, 1);
    NEED(!munmap(holed + part * PAGE_BYTES, part * PAGE_BYTES));
    NEED(!madvise(holed + 2 * part * PAGE_BYTES, part * PAGE_BYTES, MADV_DONTNEED));
    NEED(!madvise(holed + 3 * part * PAGE_BYTES, part * PAGE_BYTES, MADV_FREE));
    pages_check(holed, part, 2, 1, "before the hole");
    pages_check(holed + 2 * part * PAGE_BYTES, part, 2, 0, "discarded");

    // Hardly used at all.
    char *sparse = map_pages(quarter);
    page_write(sparse + 7 * PAGE_BYTES, 11);

    char *busy = map_pages(64);
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, writer, busy));

    // More than fits: the rest is taken over meanwhile.
    char *large = map_pages(more);
    pages_write(large, more, 3, 1);
    grown = mremap(grown, quarter * PAGE_BYTES, 2 * quarter * PAGE_BYTES, MREMAP_MAYMOVE);
    NEED(grown != MAP_FAILED);

    pid_t child = fork();
    NEED(child >= 0);
    pages_check(grown, quarter / 2, 1, 1, "grown again");
    pages_check(grown + quarter / 2 * PAGE_BYTES, 3 * quarter / 2, 1, 0, "grown by again");
    pages_check(holed, part, 2, 1, "before the hole, later");
    pages_check(holed + 2 * part * PAGE_BYTES, part, 2, 0, "discarded, later");
    for (size_t i = 3 * part; i < 4 * part; i++)
        if (!page_holds(holed + i * PAGE_BYTES, page_seed(2, i, 1)) && !page_holds(holed + i * PAGE_BYTES, 0))
            FAIL("freed: page %zu is neither as it was nor zeros", i);
    for (size_t i = 4 * part; i < quarter; i++)
        if (!page_holds(holed + i * PAGE_BYTES, page_seed(2, i, 1))) FAIL("behind the hole: page %zu", i);
    NEED(page_holds(sparse + 7 * PAGE_BYTES, 11));
    pages_check(sparse + 8 * PAGE_BYTES, quarter - 8, 4, 0, "sparse");
    pages_check(large, more, 3, 1, "large");
    if (child == 0) _exit(0);
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);

    atomic_store(&over, 1);
    NEED(!pthread_join(thread, NULL));
    puts("whole");
    return 0;
}
