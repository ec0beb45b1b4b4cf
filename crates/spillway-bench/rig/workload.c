// The workloads of the rig: real algorithms on real memory, all of it in one area, whose results are checked.
// usage: workload NAME MIB WARM_S MEASURED_S [FAR_NS COUNTERS]   prints one line of JSON
//        workload NAME MIB WARM_S MEASURED_S steps=N   time passes with its steps, N a second; to be recorded
//
// Time passes with the instructions that the guest's processor carries out, so that a run is the same on any host. The
// processor waits for no memory; so the program sleeps as long as the modelled memory would have kept it waiting.
#include "counters.h"
#include "link.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unistd.h>

#define FAIL(...)                     \
    do {                              \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr);          \
        exit(1);                      \
    } while (0)

enum { PAGE_BYTES = 4096, LINE_BYTES = 64 };

static uint64_t area_bytes, area_used;
static uint64_t random_state = 88172645463325252u;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

// Below `limit`, which has at most 32 bits.
static uint64_t random_below(uint64_t limit) { return (next_random() >> 32) * limit >> 32; }

static double clock_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double now_s(void) { return clock_s(CLOCK_MONOTONIC); }

static void *allocate(uint64_t bytes) {
    char *at = (char *)AREA_START + area_used;
    area_used += (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (area_used > area_bytes) FAIL("the area is too small: %lu of %lu bytes", area_used, area_bytes);
    return at;
}

// A store of values by number, found through a table of hashes. Where the traffic is not uniform, one page of each ten
// is hot.

enum { VALUE_WORDS = 128, READ_WORDS = 32, WRITES_PCT = 10, HOT_PCT = 90, GROUP_PAGES = 10 };
enum { VALUES_PER_PAGE = PAGE_BYTES / (VALUE_WORDS * 8) };

static struct {
    uint64_t values, buckets;
    uint64_t *table;
    uint64_t (*data)[VALUE_WORDS];
} store;

static uint64_t *bucket_of(uint64_t key) {
    uint64_t at = mix(key) % store.buckets;
    while (store.table[at] != 0 && store.table[at] >> 24 != key) at = (at + 1) % store.buckets;
    return store.table + at;
}

static void fill_store(void) {
    enum { GROUP_VALUES = GROUP_PAGES * VALUES_PER_PAGE };
    store.values = (area_bytes - (area_bytes >> 4)) / sizeof *store.data / GROUP_VALUES * GROUP_VALUES;
    store.buckets = store.values * 2;
    store.table = allocate(store.buckets * 8);
    store.data = allocate(store.values * sizeof *store.data);
    for (uint64_t value = 0; value < store.values; value++) {
        *bucket_of(value + 1) = (value + 1) << 24 | value;
        for (int i = 0; i < VALUE_WORDS; i++) store.data[value][i] = value + 1;
    }
}

static void access_value(uint64_t value) {
    uint64_t *words = store.data[*bucket_of(value + 1) & 0xffffff];
    unsigned first = random_below(VALUE_WORDS / READ_WORDS) * READ_WORDS;
    int write = random_below(100) < WRITES_PCT;
    // A word of each cache line.
    for (unsigned i = first; i < first + READ_WORDS; i += 8) {
        if (words[i] != value + 1) FAIL("value %lu is wrong", value);
        if (write) *(volatile uint64_t *)(words + i) = value + 1;
    }
}

static void uniform_step(double since_s) {
    (void)since_s;
    for (int i = 0; i < 256; i++) access_value(random_below(store.values));
}

// In each group of pages the hot one is the next in the next phase.
static uint64_t hot_value(unsigned phase) {
    uint64_t group = random_below(store.values / VALUES_PER_PAGE / GROUP_PAGES);
    uint64_t page = group * GROUP_PAGES + (mix(group) + phase) % GROUP_PAGES;
    return page * VALUES_PER_PAGE + random_below(VALUES_PER_PAGE);
}

static void traffic(unsigned phase) {
    for (int i = 0; i < 256; i++)
        access_value(random_below(100) < HOT_PCT ? hot_value(phase) : random_below(store.values));
}

static void hot_step(double since_s) {
    (void)since_s;
    traffic(0);
}

static double phase_s;

static void phases_step(double since_s) { traffic((unsigned)(since_s / phase_s)); }

// A graph in rows: edges of a vertex lie side by side. A few vertices have most of the edges that come in.

enum { MEAN_DEGREE = 12 };

struct graph {
    uint32_t vertices;
    uint32_t *first;
    uint32_t *edges;
};

static struct graph graph;

static void make_graph(uint64_t bytes_beside) {
    graph.vertices = (uint32_t)((area_bytes - 16 * PAGE_BYTES) / (4 + MEAN_DEGREE * 4 + bytes_beside));
    graph.first = allocate((graph.vertices + 1ull) * 4);
    graph.edges = allocate(graph.vertices * (uint64_t)MEAN_DEGREE * 4);
    uint32_t edge = 0;
    for (uint32_t vertex = 0; vertex < graph.vertices; vertex++) {
        graph.first[vertex] = edge;
        uint64_t room = graph.vertices * (uint64_t)MEAN_DEGREE - edge;
        uint64_t degree = 1 + random_below(2 * MEAN_DEGREE - 1);
        if (degree > room) degree = room;
        for (uint64_t i = 0; i < degree; i++) {
            // The product of two even distributions favours small numbers; the factor scatters them.
            uint64_t rank = (next_random() >> 32) * (next_random() >> 32) >> 32;
            uint64_t popular = rank * graph.vertices >> 32;
            graph.edges[edge++] = (uint32_t)(popular * 2654435761u % graph.vertices);
        }
    }
    graph.first[graph.vertices] = edge;
}

// Breadth first, from one root after the other.

static uint32_t *distance, *queue;
static uint64_t queue_head, queue_tail, searches;
static uint32_t search_base;

static void fill_bfs(void) {
    make_graph(8);
    distance = allocate(graph.vertices * 4ull);
    queue = allocate(graph.vertices * 4ull);
    memset(distance, 0, graph.vertices * 4ull);
    memset(queue, 0, graph.vertices * 4ull);
}

// Distances count up from a base of their own in each search, so that none must be cleared.
static void begin_search(void) {
    uint32_t root = (uint32_t)random_below(graph.vertices);
    search_base += 1000;
    distance[root] = search_base;
    queue[0] = root;
    queue_head = 0;
    queue_tail = 1;
    searches++;
}

static void bfs_step(double since_s) {
    (void)since_s;
    for (int i = 0; i < 64; i++) {
        if (queue_head == queue_tail) begin_search();
        uint32_t vertex = queue[queue_head++], beyond = distance[vertex] + 1;
        for (uint32_t edge = graph.first[vertex]; edge < graph.first[vertex + 1]; edge++) {
            uint32_t neighbour = graph.edges[edge];
            if (distance[neighbour] >= search_base) continue;
            distance[neighbour] = beyond;
            queue[queue_tail++] = neighbour;
        }
    }
}

static void check_bfs(void) {
    for (uint64_t at = 0; at < queue_head; at++)
        for (uint32_t edge = graph.first[queue[at]]; edge < graph.first[queue[at] + 1]; edge++) {
            uint32_t found = distance[graph.edges[edge]];
            if (found < search_base || found > distance[queue[at]] + 1) FAIL("a distance is wrong");
        }
}

// PageRank by pushes along the edges.

static float *rank, *next_rank;
static uint32_t rank_vertex;
static uint64_t rank_rounds;

static void fill_pagerank(void) {
    make_graph(8);
    rank = allocate(graph.vertices * 4ull);
    next_rank = allocate(graph.vertices * 4ull);
    for (uint32_t vertex = 0; vertex < graph.vertices; vertex++) {
        rank[vertex] = 1.0f;
        next_rank[vertex] = 0.15f;
    }
}

static void check_pagerank(void) {
    double sum = 0;
    for (uint32_t vertex = 0; vertex < graph.vertices; vertex++) sum += rank[vertex];
    // Every vertex has an edge that goes out, so that no rank is lost.
    if (sum < 0.98 * graph.vertices || sum > 1.02 * graph.vertices) FAIL("ranks sum to %f of %u", sum, graph.vertices);
}

static void pagerank_step(double since_s) {
    (void)since_s;
    for (int i = 0; i < 64; i++, rank_vertex++) {
        if (rank_vertex == graph.vertices) {
            float *done = next_rank;
            next_rank = rank;
            rank = done;
            for (uint32_t vertex = 0; vertex < graph.vertices; vertex++) next_rank[vertex] = 0.15f;
            rank_vertex = 0;
            rank_rounds++;
        }
        uint32_t from = graph.first[rank_vertex], to = graph.first[rank_vertex + 1];
        if (from == to) continue;
        float share = 0.85f * rank[rank_vertex] / (float)(to - from);
        for (uint32_t edge = from; edge < to; edge++) next_rank[graph.edges[edge]] += share;
    }
}

static void check_nothing(void) {}

static const struct {
    const char *name;
    void (*fill)(void);
    void (*step)(double since_s);
    void (*check)(void);
} workloads[] = {
    {"bfs", fill_bfs, bfs_step, check_bfs},
    {"pagerank", fill_pagerank, pagerank_step, check_pagerank},
    {"kv-hot-tenth", fill_store, hot_step, check_nothing},
    {"phases", fill_store, phases_step, check_nothing},
    {"uniform", fill_store, uniform_step, check_nothing},
};

static volatile struct counters *counters;
// What a far miss takes at present.
static double far_ns;
// What far misses took so far, all together, as the link was at the time.
static double far_waited_ns;

static volatile struct counters *open_counters(const char *path) {
    static struct counters none;
    if (path == NULL) return &none;
    int file = open(path, O_RDWR);
    void *memory = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) FAIL("%s: %m", path);
    return memory;
}

static double waiting_ns(const struct counters *since, const struct counters *until) {
    double local = until->local - since->local, far = until->far - since->far;
    double accesses = until->accesses - since->accesses;
    far_waited_ns += far * far_ns;
    // Samples stop the program, too: each stands for itself.
    double samples = until->samples.written + until->samples.lost - since->samples.written - since->samples.lost;
    return (accesses * CACHE_NS + local * LOCAL_NS + far * far_ns) * until->sample + samples * until->samples.sample_ns;
}

// Pages that moved while the neighbour was away and while it was there, and how long each was.
static double moved_pages[2], passed_s[2];

// Pages that the kernel has moved so far, whoever asked it.
static uint64_t migrated_pages(void) {
    static const char name[] = "\npgmigrate_success ";
    static char text[1 << 15];
    static int file = -1;
    if (file < 0) file = open("/proc/vmstat", O_RDONLY);
    ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    if (bytes < 0) FAIL("/proc/vmstat: %m");
    text[bytes] = '\0';
    char *line = strstr(text, name);
    if (line == NULL) FAIL("/proc/vmstat: no pgmigrate_success");
    return strtoull(line + sizeof name - 1, NULL, 10);
}

// Lets the link know what the program did since the last step, and the daemon what the link carries.
static void step_link(void) {
    static const double STEP_S = 0.01;
    static struct link link;
    static double last_s;
    static uint64_t far_seen, migrated_seen;
    volatile struct link_counters *told = &counters->link;
    if (!told->is_shared) return;
    double at_s = now_s(), step_s = at_s - last_s;
    if (last_s > 0 && step_s < STEP_S) return;
    uint64_t far = counters->far, migrated = migrated_pages();
    if (last_s > 0) {
        double pages = migrated - migrated_seen;
        double bytes = (double)(far - far_seen) * counters->sample * LINE_BYTES + pages * PAGE_BYTES;
        link_pass(&link, at_s, step_s, bytes);
        moved_pages[neighbour_is_there(at_s)] += pages;
        passed_s[neighbour_is_there(at_s)] += step_s;
        told->carried_bytes += (uint64_t)(link.share * link.bytes_per_s * step_s);
        told->own_bytes += (uint64_t)(bytes * CORES);
        told->latency_ns = (uint64_t)link.latency_ns;
        far_ns = link.latency_ns;
    } else {
        link_begin(&link, told->bytes_per_s, told->idle_ns, told->neighbour_pct / 100.0);
    }
    last_s = at_s, far_seen = far, migrated_seen = migrated;
}

// Sleeps off what memory has kept the program waiting for since the last call.
static void wait_for_memory(void) {
    enum { LEAST_NS = 200000 };
    static struct counters seen;
    static double owed_ns;
    struct counters now = *counters;
    if (now.accesses == 0) return;
    step_link();
    owed_ns += waiting_ns(&seen, &now);
    seen = now;
    if (owed_ns < LEAST_NS) return;
    double from_s = now_s();
    struct timespec wait = {(time_t)(owed_ns / 1e9), (long)owed_ns % 1000000000};
    nanosleep(&wait, NULL);
    owed_ns -= (now_s() - from_s) * 1e9;
}

// All pages, each of which was touched, and those on node 0. Of a page that NUMA balancing has marked the kernel does not say
// where it lies.
static void count_pages(uint64_t *pages, uint64_t *local_pages) {
    enum { QUERY = 512 };
    void *addresses[QUERY];
    int nodes[QUERY];
    *pages = area_used / PAGE_BYTES;
    *local_pages = 0;
    for (uint64_t first = 0; first < area_used / PAGE_BYTES; first += QUERY) {
        uint64_t count = area_used / PAGE_BYTES - first < QUERY ? area_used / PAGE_BYTES - first : QUERY;
        for (uint64_t i = 0; i < count; i++) addresses[i] = (char *)AREA_START + (first + i) * PAGE_BYTES;
        if (syscall(SYS_move_pages, 0, count, addresses, NULL, nodes, 0) != 0) FAIL("move_pages: %m");
        for (uint64_t i = 0; i < count; i++) *local_pages += nodes[i] == 0;
    }
}

int main(int argc, char **argv) {
    double steps_per_s = 0;
    if (argc < 5) FAIL("usage: workload NAME MIB WARM_S MEASURED_S [FAR_NS COUNTERS]");
    size_t at = 0;
    while (at < sizeof workloads / sizeof *workloads && strcmp(workloads[at].name, argv[1]) != 0) at++;
    if (at == sizeof workloads / sizeof *workloads) FAIL("'%s' is no workload", argv[1]);
    area_bytes = strtoull(argv[2], NULL, 10) << 20;
    double warm_s = strtod(argv[3], NULL), measured_s = strtod(argv[4], NULL);
    phase_s = measured_s / 2;
    if (argc > 5 && strncmp(argv[5], "steps=", 6) == 0)
        steps_per_s = strtod(argv[5] + 6, NULL);
    else if (argc > 5)
        far_ns = strtod(argv[5], NULL);
    counters = open_counters(argc > 6 ? argv[6] : NULL);
    counters->samples.process = (uint64_t)getpid();
    prctl(PR_SET_TIMERSLACK, 1);
    void *area = mmap((void *)AREA_START, area_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (area != (void *)AREA_START) FAIL("mmap: %m");
    madvise(area, area_bytes, MADV_NOHUGEPAGE);
    double began_s = now_s();
    workloads[at].fill();
    if (steps_per_s > 0) {
        double steps = (warm_s + measured_s) * steps_per_s;
        for (double step = 0; step < steps; step++) workloads[at].step(step / steps_per_s);
        return 0;
    }
    double filled_s = now_s();
    counters->control = CONTROL_COUNT;
    struct counters before = {0}, after;
    uint64_t steps = 0;
    double ran_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    for (double since_s = 0; since_s < warm_s + measured_s; since_s = now_s() - filled_s) {
        if (since_s >= warm_s && counters->control == CONTROL_COUNT) {
            before = *counters;
            steps = 0;
            far_waited_ns = 0;
            memset(moved_pages, 0, sizeof moved_pages);
            memset(passed_s, 0, sizeof passed_s);
            ran_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
            counters->control = CONTROL_COUNT | CONTROL_COUNT_PAGES;
        }
        workloads[at].step(since_s);
        wait_for_memory();
        steps++;
    }
    after = *counters;
    counters->control = 0;
    ran_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - ran_s;
    workloads[at].check();
    uint64_t pages, local_pages;
    count_pages(&pages, &local_pages);
    printf("{\"fill_s\": %.3f, \"steps\": %lu, \"accesses\": %lu, \"local_misses\": %lu, \"far_misses\": %lu, "
           "\"pages\": %lu, \"local_pages\": %lu, \"ran_s\": %.3f, \"far_waited_ns\": %.0f, "
           "\"moved_alone\": %.0f, \"alone_s\": %.3f, \"moved_beside\": %.0f, \"beside_s\": %.3f}\n",
           filled_s - began_s, steps, after.accesses - before.accesses, after.local - before.local,
           after.far - before.far, pages, local_pages, ran_s, far_waited_ns, moved_pages[0], passed_s[0],
           moved_pages[1], passed_s[1]);
    return 0;
}
