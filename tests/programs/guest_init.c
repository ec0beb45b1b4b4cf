// The only program of a guest: writes most of its memory in several versions, looks at every word, and powers off.
// usage, as the kernel's parameters: memory_test_mib=MIB
#include "pattern.h"

#include <sys/reboot.h>

enum { VERSIONS = 3 };

static void verify(const char *at, size_t pages, size_t stride, uint32_t version) {
    // Any stride that has no factor in common with the number of pages comes to all of them.
    for (size_t i = 0, page = 0; i < pages; i++, page = (page + stride) % pages) {
        const volatile uint64_t *words = (const void *)(at + page * PAGE_BYTES);
        uint64_t seed = page_seed(1, page, version);
        for (int word = 0; word < PAGE_WORDS; word++)
            if (words[word] != seed + word) FAIL("page %zu, word %d, version %u is wrong", page, word, version);
    }
}

static size_t common_factor(size_t a, size_t b) { return b ? common_factor(b, a % b) : a; }

static size_t far_stride(size_t pages) {
    size_t stride = pages * 5 / 8;
    while (common_factor(stride, pages) != 1) stride++;
    return stride;
}

static void test(size_t mib) {
    size_t pages = (mib << 20) / PAGE_BYTES;
    char *at = map_pages(pages);
    for (uint32_t version = 1; version <= VERSIONS; version++) {
        for (size_t page = 0; page < pages; page++) page_write(at + page * PAGE_BYTES, page_seed(1, page, version));
        verify(at, pages, 1, version);
        verify(at, pages, far_stride(pages), version);
    }
    printf("memory test passed: %zu MiB, %d versions\n", mib, VERSIONS);
}

int main(void) {
    // The kernel gives init the parameters that it does not know itself as its environment.
    const char *mib = getenv("memory_test_mib");
    NEED(mib != NULL);
    // Where it fails, the kernel panics, and QEMU ends without the line that the test waits for.
    test(strtoul(mib, NULL, 10));
    printf("powering off\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
