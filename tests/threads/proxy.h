/* SPDX-License-Identifier: Apache-2.0
 *
 * A TCP proxy between ranks that are threads of this program. The program's own connect(), which replaces that of the C
 * library, connects to the proxy instead of the other rank. Callbacks of the test change, delay or drop the bytes. Define
 * _GNU_SOURCE before you include this file. The code is in a header because the programs of tests/threads do not link
 * tests/support. */
#ifndef STRATA_TESTS_THREADS_PROXY_H
#define STRATA_TESTS_THREADS_PROXY_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 64, CHUNK = 16384 };

/* The bytes that the proxy has received in one direction of a connection and not yet sent. */
typedef struct chunk {
    char bytes[CHUNK];
    size_t n;
    /* There are n bytes to send. With n = 0 the sender has closed the connection. */
    bool held;
    /* The time at which they are sent. */
    double due;
    /* The number of bytes that were sent before them. */
    int64_t sent;
} chunk;

typedef struct pipe_pair {
    /* Sockets: to the rank that called connect(), and to the rank to which it wants to connect. */
    int fds[2];
    chunk ways[2];
} pipe_pair;

typedef struct proxy {
    int listener, wake[2];
    uint16_t port;
    /* The port to which connections to the proxy's own port are forwarded. */
    uint16_t target;
    pthread_t thread;
    /* Sends n bytes to the socket `to`, after `before` bytes of the same direction. Direction 0 is from the rank that called
     * connect(). When it returns false, the proxy closes the connection. */
    bool (*hand_on)(void *user, int connection, int direction, int to, char *bytes, size_t n, int64_t before);
    /* Returns for how many seconds n bytes are delayed. n = 0 is the end of the connection. NULL: no delay. Only the proxy's
     * thread calls it. */
    double (*delay)(void *user, size_t n);
    void *user;
    pipe_pair pairs[MOST_CONNECTIONS];
    int n_pairs;
} proxy;

static proxy middle;
/* [local port of the socket that connects] The port to which it wants to connect. */
static atomic_uint targets[65536];
/* Connections of this thread go through the proxy. */
static _Thread_local bool is_behind_proxy;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Replaces the C library's connect(). For a rank behind the proxy it connects to the proxy, and records in `targets` to which
 * port the rank wants to connect. */
int connect(int fd, const struct sockaddr *address, socklen_t size) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, there;
    socklen_t n = sizeof here;
    if (!is_behind_proxy || address->sa_family != AF_INET) return (int)syscall(SYS_connect, fd, address, size);
    memcpy(&there, address, sizeof there);
    if (bind(fd, (struct sockaddr *)&here, n) || getsockname(fd, (struct sockaddr *)&here, &n)) return -1;
    atomic_store(&targets[ntohs(here.sin_port)], ntohs(there.sin_port));
    there.sin_port = htons(middle.port);
    return (int)syscall(SYS_connect, fd, &there, sizeof there);
}

static void close_pair(pipe_pair *p) {
    for (int i = 0; i < 2; i++) {
        if (p->fds[i] >= 0) close(p->fds[i]);
        p->fds[i] = -1;
        p->ways[i].held = false;
    }
}

static bool send_all(int fd, const char *bytes, size_t n) {
    while (n) {
        const ssize_t done = send(fd, bytes, n, MSG_NOSIGNAL);
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

static void take(proxy *p, pipe_pair *pair, int direction) {
    chunk *way = &pair->ways[direction];
    const ssize_t n = recv(pair->fds[direction], way->bytes, sizeof way->bytes, 0);
    way->n = n > 0 ? (size_t)n : 0;
    way->held = true;
    way->due = p->delay ? now() + p->delay(p->user, way->n) : 0;
}

/* Sends the bytes that were held. Returns false when the connection must be closed. */
static bool give(proxy *p, int connection, int direction) {
    pipe_pair *pair = &p->pairs[connection];
    chunk *way = &pair->ways[direction];
    const int64_t before = way->sent;
    way->held = false;
    way->sent += (int64_t)way->n;
    return way->n && p->hand_on(p->user, connection, direction, pair->fds[!direction], way->bytes, way->n, before);
}

/* Accepts a connection and opens the one to the other rank. Returns false where nothing listens there yet; the connection then
 * gets no number. */
static bool accept_pair(proxy *p) {
    struct sockaddr_in from, to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof from;
    pipe_pair *out = &p->pairs[p->n_pairs];
    out->ways[0].held = out->ways[1].held = false;
    out->ways[0].sent = out->ways[1].sent = 0;
    out->fds[0] = accept(p->listener, (struct sockaddr *)&from, &n);
    out->fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    const uint16_t target = (uint16_t)atomic_exchange(&targets[ntohs(from.sin_port)], 0);
    to.sin_port = htons(target ? target : p->target);
    for (int i = 0; i < 2; i++) setsockopt(out->fds[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (out->fds[0] >= 0 && !connect(out->fds[1], (struct sockaddr *)&to, sizeof to)) return true;
    close_pair(out);
    return false;
}

/* Fills `fds` with the sockets to poll: for new connections, and for bytes in each direction in which none are held. Returns
 * the timeout in ms. */
static int list_sources(const proxy *p, struct pollfd *fds) {
    double due = -1;
    fds[0] = (struct pollfd){.fd = p->wake[0], .events = POLLIN};
    fds[1] = (struct pollfd){.fd = p->n_pairs < MOST_CONNECTIONS ? p->listener : -1, .events = POLLIN};
    for (int i = 0; i < 2 * p->n_pairs; i++) {
        const chunk *way = &p->pairs[i / 2].ways[i % 2];
        fds[2 + i] = (struct pollfd){.fd = way->held ? -1 : p->pairs[i / 2].fds[i % 2], .events = POLLIN};
        if (way->held && (due < 0 || way->due < due)) due = way->due;
    }
    const double left = due - now();
    return due < 0 ? -1 : left > 60 ? 60000 : left > 0 ? (int)(left * 1000) + 1 : 0;
}

static void *run_proxy(void *user) {
    proxy *p = user;
    struct pollfd fds[2 + 2 * MOST_CONNECTIONS];
    for (;;) {
        poll(fds, (nfds_t)(2 + 2 * p->n_pairs), list_sources(p, fds));
        char order = 0;
        if (fds[0].revents && (read(p->wake[0], &order, 1) != 1 || order != 'c')) break;
        const int known = p->n_pairs;
        for (int i = 0; order && i < known; i++) close_pair(&p->pairs[i]);
        if (fds[1].revents) p->n_pairs += accept_pair(p);
        for (int i = 0; i < 2 * known; i++) {
            pipe_pair *pair = &p->pairs[i / 2];
            if (pair->fds[0] >= 0 && fds[2 + i].revents) take(p, pair, i % 2);
            if (pair->ways[i % 2].held && pair->ways[i % 2].due <= now() && !give(p, i / 2, i % 2)) close_pair(pair);
        }
    }
    while (p->n_pairs) close_pair(&p->pairs[--p->n_pairs]);
    return NULL;
}

static int bind_here(uint16_t *out_port) {
    const int yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) || bind(fd, (struct sockaddr *)&address, n) ||
        getsockname(fd, (struct sockaddr *)&address, &n)) {
        printf("skipped: no sockets here: %s\n", strerror(errno));
        exit(77);
    }
    *out_port = ntohs(address.sin_port);
    return fd;
}

/* Starts the proxy `middle`, whose callbacks the caller has set. It runs until stop_proxy. */
static void start_proxy(void) {
    middle.listener = bind_here(&middle.port);
    if (listen(middle.listener, 64) || pipe(middle.wake) || pthread_create(&middle.thread, NULL, run_proxy, &middle)) abort();
}

/* Closes all connections. The proxy still accepts new ones. */
static inline void cut_proxy(void) {
    if (write(middle.wake[1], "c", 1) != 1) abort();
}

static void stop_proxy(void) {
    if (write(middle.wake[1], "", 1) != 1) abort();
    pthread_join(middle.thread, NULL);
    close(middle.wake[0]);
    close(middle.wake[1]);
    close(middle.listener);
}

#endif
