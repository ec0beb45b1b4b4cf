// Half a million system calls by libc, on memory that is there. Writes "whole".
#include "pattern.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { ROUNDS = 50000 };

int main(void) {
    int ends[2], pipes[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && pipe(pipes) == 0);
    char *heap = calloc(1, 1 << 20), stack[64] = {0};
    memset(heap, 1, 1 << 20);
    struct epoll_event event = {.events = EPOLLIN}, events[8];
    int epoll = epoll_create1(0);
    NEED(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    struct iovec parts[] = {{heap, 32}, {stack, 32}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    for (int i = 0; i < ROUNDS; i++) {
        size_t at = (size_t)i * 64 % (1 << 20);
        NEED(getppid() > 0);
        NEED(write(pipes[1], heap + at, 64) == 64);
        NEED(epoll_wait(epoll, events, 8, -1) == 1);
        NEED(read(pipes[0], stack, 64) == 64);
        NEED(send(ends[0], stack, 64, 0) == 64);
        NEED(recv(ends[1], heap + at, 64, 0) == 64);
        NEED(sendmsg(ends[0], &message, 0) == 64);
        NEED(recvmsg(ends[1], &message, 0) == 64);
        NEED(writev(pipes[1], parts, 2) == 64 && readv(pipes[0], parts, 2) == 64);
        sigset_t mask;
        NEED(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
    }
    puts("whole");
    return 0;
}
