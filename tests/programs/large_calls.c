// One system call that uses more memory than may be local, by each way to make one: sockets, vectors that lie
// all over it, random bytes. What comes is checked byte by byte. usage: large_calls MIB [with-a-descriptor]
#define _GNU_SOURCE
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { VECTORS = 512, VECTOR_BYTES = 2000, CONTROL_BYTES = CMSG_SPACE(sizeof(int)) };

static size_t bytes;
static char *from, *to;

static char byte_at(size_t index) {
    return (char)(mix(index / 8) >> index % 8 * 8);
}

static void fill(char *area) {
    for (size_t i = 0; i < bytes; i++)
        area[i] = byte_at(i);
}

static void check(const char *area, size_t first, size_t count, const char *after) {
    for (size_t i = 0; i < count; i++)
        if (area[i] != byte_at(first + i))
            FAIL("byte %zu of %zu is wrong after %s", i, count, after);
}

// Parts of an area, of which no two neighbours are close.
static size_t scatter(struct iovec *vectors, char *area) {
    for (size_t i = 0; i < VECTORS; i++)
        vectors[i] = (struct iovec){area + (i * 167 + 255) % VECTORS * (bytes / VECTORS), VECTOR_BYTES};
    return VECTORS;
}

static size_t whole(struct iovec *vectors, char *area) {
    vectors[0] = (struct iovec){area, bytes / 3};
    vectors[1] = (struct iovec){area + bytes / 3, bytes - bytes / 3};
    return 2;
}

struct transfer {
    int socket, flags;
    ssize_t (*call)(int socket, int flags);
    ssize_t result;
    int error;
};

static ssize_t send_plain(int socket, int flags) {
    return send(socket, from, bytes, flags);
}

static ssize_t write_plain(int socket, int flags) {
    (void)flags;
    return write(socket, from, bytes);
}

static ssize_t send_message(int socket, int flags) {
    struct iovec vectors[2];
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = whole(vectors, from)};
    return sendmsg(socket, &message, flags);
}

// With a descriptor, which belongs to the first byte.
static ssize_t send_descriptor(int socket, int flags) {
    struct iovec vectors[2];
    char control[CONTROL_BYTES] = {0};
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = whole(vectors, from), .msg_control = control};
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &(int){1}, sizeof(int));
    return sendmsg(socket, &message, flags);
}

static ssize_t receive_plain(int socket, int flags) {
    return recv(socket, to, bytes, flags);
}

static ssize_t receive_message(int socket, int flags) {
    struct iovec vectors[2];
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = whole(vectors, to), .msg_flags = -1};
    ssize_t result = recvmsg(socket, &message, flags);
    if (result >= 0 && message.msg_flags != 0)
        FAIL("flags %#x", message.msg_flags);
    return result;
}

// What came with a descriptor ends a call.
static ssize_t receive_repeatedly(int socket, int flags) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t result = recv(socket, to + done, bytes - done, flags);
        if (result <= 0)
            return result;
        done += (size_t)result;
    }
    return (ssize_t)done;
}

static void *perform(void *argument) {
    struct transfer *transfer = argument;
    transfer->result = transfer->call(transfer->socket, transfer->flags);
    transfer->error = transfer->result < 0 ? errno : 0;
    return NULL;
}

static void pair(int type, int *sockets) {
    if (socketpair(AF_UNIX, type, 0, sockets) != 0)
        FAIL("socketpair: %s", strerror(errno));
}

// All that one thread sends another receives by one call that waits for all of it.
static void transfer(const char *name, ssize_t (*sending)(int, int), ssize_t (*receiving)(int, int)) {
    int sockets[2];
    pair(SOCK_STREAM, sockets);
    memset(to, 0, bytes);
    struct transfer sender = {.socket = sockets[0], .call = sending};
    struct transfer receiver = {.socket = sockets[1], .flags = MSG_WAITALL, .call = receiving};
    pthread_t thread;
    if (pthread_create(&thread, NULL, perform, &sender) != 0)
        FAIL("no thread");
    perform(&receiver);
    pthread_join(thread, NULL);
    check(to, 0, bytes, name);
    check(from, 0, bytes, name);
    printf("%s: sent %zd, received %zd, errors %d %d\n", name, sender.result, receiver.result, sender.error,
           receiver.error);
    close(sockets[0]);
    close(sockets[1]);
}

// What there is comes at once, though more was asked for; a look at it takes nothing.
static void receive_what_there_is(int type, const char *name) {
    int sockets[2];
    pair(type, sockets);
    if (send(sockets[0], from, 5000, 0) != 5000)
        FAIL("send: %s", strerror(errno));
    for (int flags = MSG_PEEK;; flags = 0) {
        memset(to, 0, 5000);
        ssize_t result = flags ? receive_message(sockets[1], flags) : receive_plain(sockets[1], flags);
        check(to, 0, 5000, name);
        printf("%s, flags %d: %zd\n", name, flags, result);
        if (flags == 0)
            break;
    }
    ssize_t result = receive_plain(sockets[1], MSG_DONTWAIT);
    printf("%s, nothing there: %zd, error %d\n", name, result, errno);
    close(sockets[0]);
    close(sockets[1]);
}

// What has no room is not sent; who reads no more is told of, once.
static void send_what_there_is_room_for(void) {
    int sockets[2];
    pair(SOCK_STREAM, sockets);
    ssize_t sent = send_plain(sockets[0], MSG_DONTWAIT);
    ssize_t received = receive_plain(sockets[1], MSG_DONTWAIT | MSG_WAITALL);
    check(to, 0, (size_t)received, "a send that does not wait");
    printf("sent as far as there is room: %d, the same received: %d\n", sent > 0 && (size_t)sent < bytes, received == sent);
    close(sockets[1]);
    ssize_t result = send_message(sockets[0], MSG_NOSIGNAL);
    printf("to nobody: %zd, error %d\n", result, errno);
    close(sockets[0]);
}

static void vectors_all_over(void) {
    struct iovec vectors[VECTORS];
    FILE *file = tmpfile();
    if (file == NULL)
        FAIL("no file: %s", strerror(errno));
    printf("writev: %zd\n", writev(fileno(file), vectors, scatter(vectors, from)));
    memset(to, 0, bytes);
    printf("preadv: %zd\n", preadv(fileno(file), vectors, scatter(vectors, to), 0));
    for (size_t i = 0; i < VECTORS; i++) {
        char *part = vectors[i].iov_base;
        check(part, part - to, VECTOR_BYTES, "preadv");
    }
    fclose(file);
    int sockets[2];
    pair(SOCK_STREAM, sockets);
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 64};
    scatter(vectors, from);
    printf("sendmsg: %zd\n", sendmsg(sockets[0], &message, 0));
    memset(to, 0, bytes);
    scatter(vectors, to);
    printf("recvmsg: %zd\n", recvmsg(sockets[1], &message, MSG_WAITALL));
    for (size_t i = 0; i < 64; i++) {
        char *part = vectors[i].iov_base;
        check(part, part - to, VECTOR_BYTES, "recvmsg");
    }
    close(sockets[0]);
    close(sockets[1]);
}

static void others(void) {
    struct iovec all = {to, bytes};
    ssize_t result = process_vm_readv(getpid(), &all, 1, &all, 1, ~0UL);
    printf("flags that there are not: %zd, error %d\n", result, errno);
    result = send_plain(-1, 0);
    printf("no socket: %zd, error %d\n", result, errno);
    memset(to, 0, bytes);
    printf("random: %zd\n", getrandom(to, bytes, 0));
    size_t zeros = 0;
    for (size_t i = 0; i < bytes; i++)
        zeros += to[i] == 0;
    printf("of 256 random bytes about one is zero: %d\n", zeros > bytes / 300 && zeros < bytes / 220);
}

int main(int argc, char **argv) {
    bytes = strtoul(argv[1], NULL, 10) << 20;
    from = map_pages(bytes / PAGE_BYTES);
    to = map_pages(bytes / PAGE_BYTES);
    fill(from);
    receive_what_there_is(SOCK_STREAM, "stream");
    receive_what_there_is(SOCK_DGRAM, "datagram");
    send_what_there_is_room_for();
    vectors_all_over();
    others();
    transfer("write and recv", write_plain, receive_plain);
    transfer("send and recvmsg", send_plain, receive_message);
    transfer("sendmsg and recv", send_message, receive_plain);
    // The call's parts would not add up to it, so a process in inline mode leaves that.
    if (argc > 2)
        transfer("sendmsg with a descriptor", send_descriptor, receive_repeatedly);
    puts("whole");
}
