// A plugin for QEMU's translator: models the last-level cache for what one program of the guest does with its
// memory, and counts which memory node serves each miss, by physical address.
// arguments: counters=PATH llc_bytes=N ways=N far_from=PHYSICAL_ADDRESS
//   sample=N   one line of each N in a page is modelled
//   Of the misses one in so many is a sample, as the counters' reader asks.
//   link_bytes_per_s=N far_ns=N shared=0|1 neighbour_pct=N   what the link's counters begin with; the workload, which knows
//     the time, goes on with them
//
// Lines of a page have the same place in every page, so that a sample of them is a sample of the cache's sets.
#include "cache.h"
#include "counters.h"
#include "qemu_abi.h"
#include "samples.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

EXPORTED int qemu_plugin_version = QEMU_PLUGIN_ABI;

// HotBox, Table 1.
static uint64_t llc_bytes = 6 << 20, ways = 8;
static uint64_t far_from, sample = 1;
static uint64_t link_bytes_per_s, far_ns, is_shared, neighbour_pct;
static struct cache cache;
static volatile struct counters *counters;
static volatile uint32_t *page_counts;
static volatile struct sample_record *sample_ring;
static uint64_t last_line;

static void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)cpu, (void)data;
    uint64_t control = counters->control, line = address / LINE_BYTES, page = (address - AREA_START) >> 12;
    if (!(control & CONTROL_COUNT) || page >= MOST_PAGES || line % sample != 0 || line == last_line) return;
    const struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, address);
    if (where == NULL || qemu_plugin_hwaddr_is_io(where)) return;
    last_line = line;
    counters->accesses++;
    uint64_t physical = qemu_plugin_hwaddr_phys_addr(where);
    if (cache_access(&cache, physical / LINE_BYTES)) return;
    int is_far = physical >= far_from;
    if (is_far)
        counters->far++;
    else
        counters->local++;
    static uint64_t since_sample;
    if (samples_is_next(&counters->samples, sample, &since_sample))
        samples_push(&counters->samples, sample_ring, address,
                     (qemu_plugin_mem_is_store(info) ? SAMPLE_STORE : 0) | (is_far ? SAMPLE_FAR : 0));
    if (control & CONTROL_COUNT_PAGES) page_counts[page]++;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    uint64_t address = qemu_plugin_tb_vaddr(block);
    if (address < CODE_START || address >= CODE_END) return;
    for (size_t i = 0, count = qemu_plugin_tb_n_insns(block); i < count; i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), on_access, QEMU_CB_NO_REGS, QEMU_MEM_RW,
                                         NULL);
}

static int refuse(const char *what) {
    fprintf(stderr, "memory model: %s\n", what);
    return -1;
}

static int map_counters(const char *path) {
    int file = open(path, O_RDWR);
    if (file < 0) return 0;
    char *memory = mmap(NULL, COUNTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return 0;
    counters = (volatile struct counters *)memory;
    page_counts = (volatile uint32_t *)(memory + PAGE_COUNTS_AT);
    sample_ring = (volatile struct sample_record *)(memory + SAMPLES_AT);
    samples_begin(&counters->samples);
    counters->magic = COUNTERS_MAGIC;
    return 1;
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc, char **argv) {
    (void)info;
    const char *file = NULL;
    struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"llc_bytes=", &llc_bytes}, {"ways=", &ways}, {"far_from=", &far_from}, {"sample=", &sample},
                   {"link_bytes_per_s=", &link_bytes_per_s}, {"far_ns=", &far_ns}, {"shared=", &is_shared},
                   {"neighbour_pct=", &neighbour_pct}};
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "counters=", 9) == 0) file = argv[i] + 9;
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            if (strncmp(argv[i], numbers[n].name, strlen(numbers[n].name)) == 0)
                *numbers[n].value = strtoull(argv[i] + strlen(numbers[n].name), NULL, 0);
    }
    if (!cache_init(&cache, llc_bytes, ways)) return refuse("llc_bytes must be a multiple of 64 bytes times ways");
    if (sample == 0 || 64 % sample != 0 || (cache.sets % 64 != 0 && sample > 1))
        return refuse("sample must divide 64, and 64 the number of sets");
    if (file == NULL || !map_counters(file)) return refuse("counters must name a memory file of 1 MiB");
    counters->sample = sample;
    counters->link = (struct link_counters){LINK_MAGIC, link_bytes_per_s, far_ns, far_ns, 0, 0, is_shared, neighbour_pct};
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
