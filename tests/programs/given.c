// Memory that is given to a device to keep: what the device reads must be what the program wrote last, whatever else is evicted.
// usage: given frames|written|requests MIB PRESSURE_MIB
//   frames     the frames of an AF_XDP socket, sent over the loopback device of a network of its own
//   written    the same, where the frames are written just before: they are there, and the driver counts nowhere that it holds them
//   requests   what drivers are asked with to keep memory (VFIO, iommufd, NVIDIA), put to a device that refuses: the memory is there
//              when the device is asked, and stays
#include "pattern.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { RING = 64, ROUNDS = 6 };

static size_t pressure_pages;
static char *pressure;

// Everything else wants room.
static void press(uint32_t version) {
    pages_write(pressure, pressure_pages, 77, version);
    pages_check(pressure, pressure_pages, 77, version, "pressure");
}

struct ring {
    uint32_t *producer, *consumer;
    void *entries;
};

static struct ring map_ring(int socket, uint64_t at, const struct xdp_ring_offset *offsets, size_t entry_bytes) {
    char *base = mmap(NULL, offsets->desc + RING * entry_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, (off_t)at);
    NEED(base != MAP_FAILED);
    return (struct ring){(void *)(base + offsets->producer), (void *)(base + offsets->consumer), base + offsets->desc};
}

static void bring_loopback_up(void) {
    NEED(unshare(CLONE_NEWNET) == 0);
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq device = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    NEED(any >= 0 && ioctl(any, SIOCSIFFLAGS, &device) == 0 && close(any) == 0);
}

static int listen_to(unsigned device) {
    int listener = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)device};
    NEED(listener >= 0 && bind(listener, (void *)&address, sizeof address) == 0);
    return listener;
}

// What comes in by the loopback device.
static void receive(int listener, void *page) {
    struct sockaddr_ll from;
    socklen_t bytes = sizeof from;
    do NEED(recvfrom(listener, page, PAGE_BYTES, 0, (void *)&from, &bytes) == PAGE_BYTES);
    while (from.sll_pkttype == PACKET_OUTGOING);
}

static void send_frames(char *frames, size_t pages) {
    bring_loopback_up();
    int xdp = socket(AF_XDP, SOCK_RAW, 0), count = RING;
    NEED(xdp >= 0);
    struct xdp_umem_reg all = {.addr = (uintptr_t)frames, .len = pages * PAGE_BYTES, .chunk_size = PAGE_BYTES};
    NEED(setsockopt(xdp, SOL_XDP, XDP_UMEM_REG, &all, sizeof all) == 0);
    for (int ring = XDP_TX_RING; ring <= XDP_UMEM_COMPLETION_RING; ring++)
        if (ring != XDP_UMEM_REG) NEED(setsockopt(xdp, SOL_XDP, ring, &count, sizeof count) == 0);
    struct xdp_mmap_offsets offsets;
    socklen_t bytes = sizeof offsets;
    NEED(getsockopt(xdp, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &bytes) == 0);
    struct ring sent = map_ring(xdp, XDP_PGOFF_TX_RING, &offsets.tx, sizeof(struct xdp_desc));
    struct ring done = map_ring(xdp, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, sizeof(uint64_t));
    unsigned device = if_nametoindex("lo");
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY, .sxdp_ifindex = device};
    NEED(bind(xdp, (void *)&address, sizeof address) == 0);
    int listener = listen_to(device);
    static uint64_t page[PAGE_WORDS];
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        if (version > 1) pages_write(frames, pages, 5, version);
        press(version);
        for (size_t i = 0; i < pages; i++) {
            uint32_t at = *sent.producer;
            ((struct xdp_desc *)sent.entries)[at % RING] = (struct xdp_desc){.addr = i * PAGE_BYTES, .len = PAGE_BYTES};
            __atomic_store_n(sent.producer, at + 1, __ATOMIC_RELEASE);
            NEED(sendto(xdp, NULL, 0, MSG_DONTWAIT, NULL, 0) >= 0);
            receive(listener, page);
            if (!page_holds(page, page_seed(5, i, version))) FAIL("round %u: the device does not send what was written to frame %zu", version, i);
            __atomic_store_n(done.consumer, __atomic_load_n(done.producer, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
        }
        pages_check(frames, pages, 5, version, "frames");
    }
}

static void need_present(const char *memory, size_t pages, const char *when) {
    int map = open("/proc/self/pagemap", O_RDONLY);
    NEED(map >= 0);
    for (size_t i = 0; i < pages; i++) {
        uint64_t entry;
        NEED(pread(map, &entry, sizeof entry, (off_t)(((uintptr_t)memory / PAGE_BYTES + i) * sizeof entry)) == sizeof entry);
        if (!(entry >> 63)) FAIL("%s: page %zu is not there", when, i);
    }
    NEED(close(map) == 0);
}

static void ask(char *memory, size_t pages, unsigned long request, uint64_t *words, const char *what) {
    pages_write(memory, pages, 9, 1);
    press(1);
    int device = open("/dev/null", O_RDWR);
    NEED(device >= 0 && ioctl(device, request, words) == -1 && errno == ENOTTY);
    need_present(memory, pages, what);
    press(2);
    need_present(memory, pages, what);
    pages_check(memory, pages, 9, 1, what);
    NEED(close(device) == 0);
}

static void ask_all(size_t pages) {
    const uint64_t class = 0x71ULL << 32;
    size_t bytes = pages * PAGE_BYTES;
    char *memory[5];
    for (int i = 0; i < 5; i++) memory[i] = map_pages(pages);
    uint64_t at[5];
    for (int i = 0; i < 5; i++) at[i] = (uintptr_t)memory[i];
    ask(memory[0], pages, 0x3B71, (uint64_t[]){32, at[0], 0, bytes}, "VFIO_IOMMU_MAP_DMA");
    ask(memory[1], pages, 0x3B85, (uint64_t[]){40, 1, at[1], bytes, 0}, "IOMMU_IOAS_MAP");
    ask(memory[2], pages, 0xC0384627, (uint64_t[]){1, class, 0, at[2], bytes - 1, 0, 0}, "NV_ESC_RM_ALLOC_MEMORY");
    ask(memory[3], pages, 0xC0B8464A, (uint64_t[23]){0, 27, [8] = at[3], bytes - 1}, "NV_ESC_RM_VID_HEAP_CONTROL");
    uint64_t parameters[5] = {0, 0, at[4], bytes - 1, 0};
    ask(memory[4], pages, 0xC030462B, (uint64_t[]){1, class, (uintptr_t)parameters, 0, 0, 0}, "NV_ESC_RM_ALLOC");
}

int main(int count, char **arguments) {
    NEED(count == 4);
    size_t pages = pages_of_mib(arguments[2]);
    pressure_pages = pages_of_mib(arguments[3]);
    pressure = map_pages(pressure_pages);
    if (strcmp(arguments[1], "requests") == 0) {
        ask_all(pages);
    } else {
        char *frames = map_pages(pages);
        pages_write(frames, pages, 5, 1);
        press(1);
        if (strcmp(arguments[1], "written") == 0) pages_write(frames, pages, 5, 1);
        send_frames(frames, pages);
    }
    puts("right");
    return 0;
}
