// A server that appends received data to its pool: server poll|select|epoll|accept|threads POOL
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEN = 1 << 20 };

static char *pool;
static size_t used = 8;
static int connections;
static const char *way;

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("failed: %s, %d\n", what, errno);
        exit(1);
    }
}

static void at_end(void)
{
    printf("end after %d connections, %zu bytes\n", connections, used - 8);
}

// Reads once; returns whether the connection has ended.
static int serve(int fd)
{
    static char answer[200000];
    char buffer[1000];
    ssize_t count = recv(fd, buffer, sizeof buffer, 0);
    check(count >= 0, "recv");
    if (count == 0) {
        pool[used++] = '#';
        close(fd);
        return 1;
    }
    memcpy(pool + used, buffer, count);
    used += count;
    check(send(fd, answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer, "send");
    check(write(fd, "ok\n", 3) == 3, "write");
    return 0;
}

static int greet(int listener)
{
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    int fd = accept4(listener, (struct sockaddr *)&address, &len, SOCK_CLOEXEC);
    check(fd >= 0, "accept4");
    check(len == sizeof address && address.sin_family == AF_INET, "address of the client");
    len = sizeof address;
    check(getpeername(fd, (struct sockaddr *)&address, &len) == 0, "getpeername");
    int yes = 1;
    check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0, "TCP_NODELAY");
    int error = -1;
    len = sizeof error;
    check(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0, "SO_ERROR");
    connections++;
    return fd;
}

static void *serve_all(void *fd)
{
    while (!serve((int)(long)fd))
        ;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    way = argv[1];
    // Like real servers.
    close(0);
    check(open("/dev/null", O_RDONLY) == 0, "descriptor 0");
    int file = open(argv[2], O_RDWR | O_CREAT, 0600);
    check(ftruncate(file, LEN) == 0, "ftruncate");
    pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    atexit(at_end);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(listener >= 0, "socket");
    int yes = 1;
    check(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0, "SO_REUSEADDR");
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(80) };
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    socklen_t len = sizeof address;
    check(getsockname(listener, (struct sockaddr *)&address, &len) == 0, "getsockname");
    check(ntohs(address.sin_port) == 80, "port");

    int open_now = -1;
    int set = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN, .data.fd = listener };
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        if (strcmp(way, "accept") == 0) {
            int fd = greet(listener);
            serve_all((void *)(long)fd);
            continue;
        }
        if (strcmp(way, "threads") == 0) {
            struct pollfd polled = { .fd = listener, .events = POLLIN };
            check(poll(&polled, 1, -1) == 1, "poll");
            int fd = greet(listener);
            pthread_t thread;
            check(pthread_create(&thread, NULL, serve_all, (void *)(long)fd) == 0, "thread");
            pthread_detach(thread);
            continue;
        }
        int new_one = 0, ready = 0;
        if (strcmp(way, "poll") == 0) {
            struct pollfd polled[2] = { { .fd = listener, .events = POLLIN }, { .fd = open_now, .events = POLLIN } };
            check(poll(polled, 2, 60000) > 0, "poll");
            new_one = polled[0].revents & POLLIN;
            ready = open_now >= 0 && polled[1].revents & POLLIN;
        } else if (strcmp(way, "select") == 0) {
            fd_set read;
            FD_ZERO(&read);
            FD_SET(listener, &read);
            if (open_now >= 0)
                FD_SET(open_now, &read);
            int most = open_now > listener ? open_now : listener;
            check(select(most + 1, &read, NULL, NULL, NULL) > 0, "select");
            new_one = FD_ISSET(listener, &read);
            ready = open_now >= 0 && FD_ISSET(open_now, &read);
        } else {
            struct epoll_event events[4];
            int count = epoll_wait(set, events, 4, -1);
            check(count > 0, "epoll_wait");
            for (int at = 0; at < count; at++) {
                new_one |= events[at].data.fd == listener;
                ready |= events[at].data.fd == open_now;
            }
        }
        if (ready && serve(open_now))
            open_now = -1;
        if (new_one) {
            check(open_now < 0, "one after the other");
            open_now = greet(listener);
            event.data.fd = open_now;
            epoll_ctl(set, EPOLL_CTL_ADD, open_now, &event);
        }
    }
}
