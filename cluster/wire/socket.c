/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets. The caller's thread connects, with poll and a deadline. Who accepts connections continues their handshakes: the
 * loop of a process (store/loop.h), and the threads of a server (rpc/server.c). */
#define _GNU_SOURCE
#include "cluster/wire/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/locale.h"

enum {
    BACKLOG = 1024, /* connections that may wait to be accepted */
    GONE_MS = 8000, /* after so long without an acknowledgement the other side is lost (TCP_USER_TIMEOUT) */
    RESOLVE_PAUSE_MS = 250,
    HANDSHAKE_MS = 5000, /* the time limit of one handshake */
    MOST_REFUSALS = 5,   /* so many in a row mean that the secret is wrong */
    TLS_HANDSHAKE = 0x16 /* the first byte of a side that begins TLS */
};

/* The longest attempt to connect; it is shorter than STRATA_PATIENCE_AWAY. */
static const double ATTEMPT_SECONDS = 4.9;

strata_status strata_credentials_init(strata_credentials *c, const strata_communicator_options *opts, strata_error *err) {
    *c = (strata_credentials){.secret_bytes = opts->secret_bytes};
    if (opts->secret_bytes && !opts->secret)
        return strata_fail(err, STRATA_INVALID, "secret_bytes is %zu without a secret", opts->secret_bytes);
    if (!(opts->heartbeat_seconds >= 0) || !(opts->connect_seconds >= 0))
        return strata_fail(err, STRATA_INVALID, "heartbeat_seconds is %g and connect_seconds %g; they must be at least 0",
                           opts->heartbeat_seconds, opts->connect_seconds);
    STRATA_TRY(strata_tls_create(opts, &c->tls, err));
    c->secret = malloc(opts->secret_bytes + 1);
    if (c->secret && opts->secret_bytes) memcpy(c->secret, opts->secret, opts->secret_bytes);
    if (c->secret) return STRATA_OK;
    strata_credentials_finish(c);
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a secret of %zu bytes", opts->secret_bytes);
}

void strata_credentials_finish(strata_credentials *c) {
    strata_tls_destroy(c->tls);
    free(c->secret);
    *c = (strata_credentials){0};
}

strata_status strata_address_split(const char *address, char out_host[256], char out_port[8], strata_error *err) {
    const char *colon = address ? strrchr(address, ':') : NULL, *host = address, *end = colon;
    if (colon && *address == '[' && colon > address && colon[-1] == ']') {
        host = address + 1;
        end = colon - 1;
    } else if (colon && memchr(address, ':', (size_t)(colon - address))) {
        colon = NULL; /* an IPv6 address without brackets: it is unclear which colon precedes the port */
    }
    const size_t n_host = colon ? (size_t)(end - host) : 0, n_port = colon ? strlen(colon + 1) : 0;
    const bool fits = n_host && n_host < 256 && n_port && n_port < 6 && strspn(colon + 1, "0123456789") == n_port;
    if (!fits || atoi(colon + 1) > 65535)
        return strata_fail(err, STRATA_INVALID, "\"%s\" is no address; write host:port, as 10.0.0.1:2222 or [fd00::1]:2222",
                           address ? address : "");
    memcpy(out_host, host, n_host);
    out_host[n_host] = 0;
    memcpy(out_port, colon + 1, n_port + 1);
    return STRATA_OK;
}

static strata_status resolve(const char *host, const char *port, int flags, struct addrinfo **out_list, strata_error *err) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    const int code = getaddrinfo(host, port, &hints, out_list);
    return code ? strata_fail(err, STRATA_UNAVAILABLE, "the address of \"%s\" is not known: %s", host, gai_strerror(code))
                : STRATA_OK;
}

/* ---- listening ---- */

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

/* Returns a listening socket, or -1 with errno. */
static int listen_on(const struct sockaddr *address, socklen_t size) {
    const int yes = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!bind(fd, address, size) && !listen(fd, BACKLOG)) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Returns the error of a socket that cannot listen. What the user has to change is named, if the system's error shows it. */
static strata_status cannot_listen(const char *host, const char *port, int error, strata_error *err) {
    const char *what = error == EADDRINUSE
                           ? "another process listens there (ss -ltnp shows which). End it, or give this task another port, in "
                             "the list of the tasks (--cluster, TF_CONFIG) or with --port of strata launch"
                       : error == EADDRNOTAVAIL ? "no interface of this host has this address. Does the list of the tasks "
                                                  "name another host for this task?"
                       : error == EACCES        ? "the system does not allow it. Ports below 1024 are for root"
                                                : NULL;
    const char *left = strchr(host, ':') ? "[" : "", *right = *left ? "]" : "";
    return strata_fail(err, what ? STRATA_INVALID : STRATA_UNAVAILABLE, "cannot listen on %s%s%s:%s: %s%s%s", left, host, right,
                       port, strata_errno_text(error), what ? ": " : "", what ? what : "");
}

/* Listens on all addresses. Returns a socket, or -1 with errno. */
static int listen_anywhere(const char *port) {
    const uint16_t number = htons((uint16_t)atoi(port));
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = number};
    const struct sockaddr_in any_v4 = {.sin_family = AF_INET, .sin_port = number}; /* for systems without IPv6 */
    const int fd = listen_on((const struct sockaddr *)&any, sizeof any);
    return fd < 0 && errno == EAFNOSUPPORT ? listen_on((const struct sockaddr *)&any_v4, sizeof any_v4) : fd;
}

/* Whether the host is a name that other hosts may resolve to another address. */
static bool is_name(const char *host) {
    unsigned char any[16];
    return strcmp(host, "localhost") != 0 && inet_pton(AF_INET, host, any) != 1 && inet_pton(AF_INET6, host, any) != 1;
}

static strata_status listen_at(const char *host, const char *port, strata_listen where, double deadline, int *out_fd,
                               bool *out_beyond, strata_error *err) {
    struct addrinfo *list;
    strata_status status;
    if (where == STRATA_LISTEN_NAME && is_name(host)) {
        *out_beyond = true;
        *out_fd = listen_anywhere(port);
        if (*out_fd >= 0) return STRATA_OK;
        return cannot_listen("*", port, errno, err);
    }
    /* A pod often runs before its own name can be resolved. */
    while ((status = resolve(host, port, AI_PASSIVE, &list, err)) && strata_clock_seconds() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = RESOLVE_PAUSE_MS * 1000000}, NULL);
    STRATA_TRY(status);
    *out_fd = -1;
    for (struct addrinfo *a = list; a && *out_fd < 0; a = a->ai_next) {
        *out_fd = listen_on(a->ai_addr, a->ai_addrlen);
        *out_beyond = !is_loopback(a->ai_addr);
    }
    if (*out_fd < 0 && errno == EADDRNOTAVAIL && where != STRATA_LISTEN_HOST) {
        *out_fd = listen_anywhere(port);
        *out_beyond = true;
    }
    const int error = errno;
    freeaddrinfo(list);
    if (*out_fd >= 0) return STRATA_OK;
    return cannot_listen(host, port, error, err);
}

strata_status strata_interface_address(const char *name, char out_host[256], strata_error *err) {
    struct ifaddrs *list;
    unsigned char any[16];
    if (inet_pton(AF_INET, name, any) == 1 || inet_pton(AF_INET6, name, any) == 1 || getifaddrs(&list)) {
        snprintf(out_host, 256, "%s", name);
        return STRATA_OK;
    }
    char names[200] = "";
    *out_host = 0;
    for (struct ifaddrs *a = list; a; a = a->ifa_next) {
        const int family = a->ifa_addr ? a->ifa_addr->sa_family : 0;
        if (family != AF_INET && family != AF_INET6) continue;
        const size_t used = strlen(names);
        if (!strstr(names, a->ifa_name)) snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", a->ifa_name);
        /* an IPv4 address is preferred */
        if (strcmp(a->ifa_name, name) != 0 || (*out_host && family == AF_INET6)) continue;
        getnameinfo(a->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6), out_host, 256,
                    NULL, 0, NI_NUMERICHOST);
    }
    freeifaddrs(list);
    if (*out_host) return STRATA_OK;
    return strata_fail(err, STRATA_UNAVAILABLE, "there is no network interface \"%s\" with an address; there are: %s", name,
                       names);
}

strata_status strata_socket_listen(const strata_communicator_options *opts, const char *host, const char *port,
                                   strata_listen where, double deadline, int *out_fd, strata_error *err) {
    const bool open = opts->secret_bytes || opts->insecure;
    char own[256];
    bool beyond = false;
    snprintf(own, sizeof own, "%s", host);
    if (opts->interface) STRATA_TRY(strata_interface_address(opts->interface, own, err));
    if (where == STRATA_LISTEN_NAME && !open) where = STRATA_LISTEN_SERVICE;
    STRATA_TRY(listen_at(own, port, where, deadline, out_fd, &beyond, err));
    if (!beyond || open) return STRATA_OK;
    close(*out_fd);
    *out_fd = -1;
    return strata_fail(err, STRATA_INVALID,
                       "listening on %s without a secret: anyone who reaches it could take part. Give all processes a secret "
                       "(STRATA_SECRET), or say that it is insecure on purpose (--insecure)",
                       own);
}

void strata_socket_address(int fd, bool with_port, char out[STRATA_ADDRESS_BYTES]) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[64] = "", port[8] = "";
    if (!getsockname(fd, (struct sockaddr *)&address, &size))
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    if (!with_port)
        snprintf(out, STRATA_ADDRESS_BYTES, "%s", host);
    else
        snprintf(out, STRATA_ADDRESS_BYTES, strchr(host, ':') ? "[%.63s]:%.7s" : "%.63s:%.7s", host, port);
}

void strata_socket_peer(int fd, char out[STRATA_ADDRESS_BYTES]) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &size) ||
        getnameinfo((struct sockaddr *)&address, size, out, STRATA_ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST))
        snprintf(out, STRATA_ADDRESS_BYTES, "?");
}

/* ---- connecting ---- */

void strata_socket_prepare(int fd) {
    const int yes = 1, idle = 2, every = 1, times = 6, gone = GONE_MS;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone, sizeof gone);
}

/* Waits until the socket is ready. Returns false, with errno, when the deadline has passed. */
static bool ready(int fd, short events, double deadline) {
    const double left = deadline - strata_clock_seconds();
    struct pollfd p = {.fd = fd, .events = events};
    const int n = poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
    if (n == 0) errno = ETIMEDOUT;
    return n > 0 || (n < 0 && errno == EINTR && left > 0);
}

strata_status strata_shaking_begin(strata_shaking *s, strata_stream *stream, const strata_hello *hello, const char *host,
                                   const strata_credentials *credentials, strata_error *err) {
    s->n_in = s->n_out = s->n_sent = 0;
    if (credentials->tls) STRATA_TRY(strata_tls_begin(credentials->tls, stream, host, err));
    return strata_handshake_begin(&s->handshake, hello, credentials->secret, credentials->secret_bytes, s->out, &s->n_out, err);
}

/* Sends or receives a part of [from, end). Returns 1 if it did, 0 if nothing is possible now, -1 with the error. */
static int move(strata_stream *stream, unsigned char *bytes, size_t *at, size_t end, bool out, strata_error *err) {
    const struct iovec rest = {bytes + *at, end - *at};
    const ssize_t n = out ? strata_stream_send(stream, &rest, 1) : strata_stream_recv(stream, &rest, 1);
    if (n > 0) *at += (size_t)n;
    if (n > 0 || (n < 0 && errno == EINTR)) return 1;
    if (n < 0 && errno == EAGAIN) return 0;
    if (n < 0 && errno == EPROTO)
        strata_fail(err, STRATA_UNAVAILABLE, "%s", strata_stream_problem(stream, EPROTO));
    else
        strata_fail(err, STRATA_PEER_LOST, "%s", strata_errno_text(n ? errno : ECONNRESET));
    return -1;
}

strata_status strata_shaking_continue(strata_shaking *s, strata_stream *stream, short *out_events, strata_error *err) {
    strata_handshake *h = &s->handshake;
    strata_error why = {0};
    strata_status status = STRATA_OK;
    *out_events = 0;
    while (!status && (s->n_sent < s->n_out || !h->done)) {
        const bool out = s->n_sent < s->n_out;
        const int moved = out ? move(stream, s->out, &s->n_sent, s->n_out, true, &why)
                              : move(stream, s->in, &s->n_in, h->wanted, false, &why);
        if (!moved) {
            *out_events = strata_stream_events(stream, out ? POLLOUT : POLLIN);
            return STRATA_OK;
        }
        if (moved < 0) status = why.status;
        if (moved < 0 || out || s->n_in < h->wanted) continue;
        s->n_in = s->n_sent = 0;
        status = strata_handshake_step(h, s->in, s->out, &s->n_out, &why);
        if (status == STRATA_DATA && h->server && !stream->tls && s->in[0] == TLS_HANDSHAKE) {
            const struct iovec alert = {(void *)(uintptr_t)strata_tls_alert, STRATA_TLS_ALERT_BYTES};
            status = strata_fail(&why, STRATA_UNAVAILABLE, "it uses TLS and this process does not: all must");
            if (strata_stream_send(stream, &alert, 1) < 0) continue; /* it learns nothing then */
        }
    }
    return status ? strata_fail(err, status, "%s", why.message) : STRATA_OK;
}

/* Returns the error for a handshake in which the connection ended. *out_again: whether to try again, since the other side may
 * only be too busy. A peer closes the connection both when it refuses the secret and when it has too many connections, so only
 * several refusals in a row mean that the secret is wrong. */
static strata_status broke_off(const strata_shaking *s, const strata_stream *stream, const char *address, const char *how,
                               bool *out_again, int *n_refused, strata_error *err) {
    const int step = s->handshake.step;
    if (!stream->tls && s->n_in == STRATA_TLS_ALERT_BYTES && !memcmp(s->in, strata_tls_alert, 2))
        return strata_fail(err, STRATA_UNAVAILABLE, "%s uses TLS and this rank does not: all ranks must", address);
    *n_refused += step > 0;
    *out_again = *n_refused < MOST_REFUSALS;
    if (step) return strata_fail(err, STRATA_UNAVAILABLE, "%s refuses this rank: is its secret another one?", address);
    return strata_fail(err, STRATA_TIMEOUT, "%s does not shake hands: %s", address, how);
}

static strata_status shake_hands(strata_stream *stream, const char *address, const char *host, const strata_hello *hello,
                                 const strata_credentials *credentials, double deadline, bool *out_again, int *n_refused,
                                 strata_error *err) {
    strata_shaking s;
    strata_error why;
    short events = 0;
    *out_again = false;
    STRATA_TRY(strata_shaking_begin(&s, stream, hello, host, credentials, err));
    for (;;) {
        const strata_status status = strata_shaking_continue(&s, stream, &events, &why);
        if (status == STRATA_PEER_LOST) return broke_off(&s, stream, address, why.message, out_again, n_refused, err);
        if (status) return strata_fail(err, STRATA_UNAVAILABLE, "%s: %s", address, why.message);
        if (!events) return STRATA_OK;
        if (ready(stream->fd, events, deadline)) continue;
        *out_again = true; /* a peer that is stopped refuses nobody */
        return strata_fail(err, STRATA_TIMEOUT, "%s does not shake hands: %s", address, strata_errno_text(errno));
    }
}

/* Connects to one of the addresses; returns -1 with errno on failure. */
static int connect_to(const struct addrinfo *list, double deadline) {
    int error = ECONNREFUSED;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        socklen_t size = sizeof error;
        const bool started = !connect(fd, a->ai_addr, a->ai_addrlen) || errno == EINPROGRESS;
        error = errno;
        if (started && ready(fd, POLLOUT, deadline) && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error)
            return fd;
        if (started && errno == ETIMEDOUT) error = ETIMEDOUT;
        close(fd);
    }
    errno = error;
    return -1;
}

/* Tries once to connect. *out_again: whether another attempt may succeed. */
static strata_status try_once(const char *address, const char *host, const char *port, const strata_hello *hello,
                              const strata_credentials *credentials, double deadline, strata_stream *out_stream,
                              bool *out_again, int *n_refused, strata_error *err) {
    struct addrinfo *list;
    *out_again = true;
    STRATA_TRY(resolve(host, port, 0, &list, err));
    out_stream->fd = connect_to(list, deadline);
    const int error = errno;
    freeaddrinfo(list);
    if (out_stream->fd < 0)
        return strata_fail(err, STRATA_TIMEOUT, "%s does not answer: %s", address, strata_errno_text(error));
    strata_socket_prepare(out_stream->fd);
    const double limit = strata_clock_seconds() + HANDSHAKE_MS / 1000.0;
    return shake_hands(out_stream, address, host, hello, credentials, limit < deadline ? limit : deadline, out_again, n_refused,
                       err);
}

strata_status strata_socket_connect(const char *address, const strata_hello *hello, const strata_credentials *credentials,
                                    double deadline, strata_stream *out_stream, strata_error *err) {
    char host[256], port[8];
    *out_stream = (strata_stream){.fd = -1};
    STRATA_TRY(strata_address_split(address, host, port, err));
    int n_refused = 0;
    strata_patience patience = strata_patience_of(deadline - strata_clock_seconds());
    for (int tries = 0;; tries++) {
        bool again;
        const double left = patience.left < ATTEMPT_SECONDS ? patience.left : ATTEMPT_SECONDS;
        const double until = strata_clock_seconds() + (left > 0 ? left : 0);
        const strata_status status =
            try_once(address, host, port, hello, credentials, until, out_stream, &again, &n_refused, err);
        if (!status) return STRATA_OK;
        strata_stream_close(out_stream);
        if (!again || strata_patience_left(&patience) <= 0) return status;
        /* If nobody listens yet, pauses from 5 ms up to half a second, and by a different time for each rank, so that ranks
         * do not connect at the same moment. */
        const long pause_ms = (tries < 7 ? 5L << tries : 500) + hello->rank * 7 % 50;
        nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    }
}
