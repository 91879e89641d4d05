/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections: a thread accepts them, and each has a thread that reads its requests one after the other and sends the answers.
 * Heads and chunks are read by http_head.c. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* A body that is too large is read and discarded, since many clients do not read an answer before they have sent all of the
 * request; but only up to so many times the largest size. */
enum { MOST_DISCARDED = 16, LONGEST_CHUNK_LINE = 256, MOST_TRAILERS = 64 };
static const double LINGER_SECONDS = 2;

typedef struct connection {
    http_server *server;
    int socket;
    /* Bytes that were received and are not read yet: bytes[begin..end). */
    char bytes[HTTP_LONGEST_HEAD];
    size_t begin, end;
    /* A request is being read or answered. */
    bool busy;
    /* heard: it has sent the head of a request. ended: it was shut to make room for another one. */
    bool heard, ended;
    struct connection *next, **link;
} connection;

struct http_server {
    http_options opts;
    http_functions functions;
    int listening, port;
    /* A byte that is written to wake[1] ends the thread that accepts connections. */
    int wake[2];
    pthread_t acceptor;
    atomic_bool stopping;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a connection has ended or is no longer busy */
    connection *connections;
    int n_connections;
};

/* ---- receiving ---- */

/* Receives more bytes. Returns false if there are none within the time, if the connection has ended, or if there is no room. */
static bool receive(connection *c) {
    if (c->begin) memmove(c->bytes, c->bytes + c->begin, c->end - c->begin);
    c->end -= c->begin;
    c->begin = 0;
    if (c->end == sizeof c->bytes) return false;
    ssize_t n;
    do {
        n = recv(c->socket, c->bytes + c->end, sizeof c->bytes - c->end, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) return false;
    c->end += (size_t)n;
    return true;
}

static size_t waiting_bytes(const connection *c) {
    return c->end - c->begin;
}

static bool send_all(const connection *c, const char *bytes, size_t n) {
    while (n) {
        const ssize_t sent = send(c->socket, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* How reading a part of a request has ended. */
typedef enum reading { READ_OK, READ_WRONG, READ_CLOSED } reading;

static reading wrong(http_request *r, unsigned code, const char *why) {
    r->code = code;
    r->why = why;
    r->keep_alive = false;
    return READ_WRONG;
}

static reading read_head(connection *c, http_request *r) {
    for (;;) {
        const int64_t n = http_find_head(c->bytes + c->begin, waiting_bytes(c));
        if (n < 0)
            return wrong(r, 400,
                         "this is no request of HTTP/1.1: each line must end with CR LF and have no control characters");
        if (n > 0) {
            http_read_head(c->bytes + c->begin, (size_t)n, r);
            c->begin += (size_t)n;
            return r->code ? READ_WRONG : READ_OK;
        }
        if (waiting_bytes(c) == sizeof c->bytes) return wrong(r, 431, "the request's header fields are too large");
        if (!receive(c)) return READ_CLOSED;
    }
}

/* Adds to the body, or discards it if it becomes too large. */
static reading add_to_body(const connection *c, http_request *r, const char *bytes, size_t n, int64_t *total) {
    const size_t most = c->server->opts.most_body_bytes;
    *total += (int64_t)n;
    if ((uint64_t)*total / MOST_DISCARDED > most) return wrong(r, 413, "the request is too large");
    if ((uint64_t)*total > most)
        strata_text_finish(&r->body);
    else
        strata_text_add_bytes(&r->body, bytes, n);
    return READ_OK;
}

/* Reads n bytes of the body. */
static reading read_bytes(connection *c, http_request *r, int64_t n, int64_t *total) {
    while (n) {
        if (!waiting_bytes(c) && !receive(c)) return READ_CLOSED;
        const size_t part = (int64_t)waiting_bytes(c) < n ? waiting_bytes(c) : (size_t)n;
        const reading added = add_to_body(c, r, c->bytes + c->begin, part, total);
        if (added) return added;
        c->begin += part;
        n -= (int64_t)part;
    }
    return READ_OK;
}

/* Finds a line of at most `most` bytes: *out_line, *out_n without its CR LF. It is valid until the next bytes are received. */
static reading read_line(connection *c, http_request *r, size_t most, const char **out_line, size_t *out_n) {
    for (;;) {
        const char *begin = c->bytes + c->begin, *lf = memchr(begin, '\n', waiting_bytes(c));
        const size_t n = lf ? (size_t)(lf - begin) : waiting_bytes(c);
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)begin[i] < 0x20 && begin[i] != '\t' && !(begin[i] == '\r' && i + 1 == n))
                return wrong(r, 400, "a line between chunks has control characters");
        if (lf && (!n || lf[-1] != '\r')) return wrong(r, 400, "a line between chunks must end with CR LF");
        if (n > most) return wrong(r, 400, "a line between chunks is too long");
        if (lf) {
            *out_line = begin;
            *out_n = n - 1;
            c->begin += n + 1;
            return READ_OK;
        }
        if (!receive(c)) return READ_CLOSED;
    }
}

static reading read_trailers(connection *c, http_request *r) {
    for (int i = 0; i < MOST_TRAILERS; i++) {
        const char *line;
        size_t n;
        const reading read = read_line(c, r, HTTP_LONGEST_HEAD / 2, &line, &n);
        if (read || !n) return read;
        if (!http_is_trailer(line, n)) return wrong(r, 400, "a field after the last chunk is wrong there");
    }
    return wrong(r, 431, "there are too many fields after the last chunk");
}

static reading read_chunks(connection *c, http_request *r, int64_t *total) {
    for (;;) {
        const char *line;
        size_t n;
        int64_t size = 0;
        reading read = read_line(c, r, LONGEST_CHUNK_LINE, &line, &n);
        if (!read && !http_read_chunk_size(line, n, &size))
            read = wrong(r, 400, "a chunk must begin with its size in hexadecimal digits");
        if (!read && !size) return read_trailers(c, r);
        if (!read) read = read_bytes(c, r, size, total);
        if (!read) read = read_line(c, r, 2, &line, &n);
        if (!read && n) read = wrong(r, 400, "a chunk is longer than its size says");
        if (read) return read;
    }
}

static reading read_body(connection *c, http_request *r) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const size_t most = c->server->opts.most_body_bytes;
    int64_t total = 0;
    /* A client that waits for leave to send its body, or whose body is far too large, is refused at once. */
    if ((uint64_t)r->length > most && (r->expects_continue || (uint64_t)r->length / MOST_DISCARDED > most))
        return wrong(r, 413, "the request is too large");
    if (r->expects_continue && r->minor_version && (r->chunked || r->length) && !waiting_bytes(c) &&
        !send_all(c, go_on, sizeof go_on - 1))
        return READ_CLOSED;
    const reading read = r->chunked ? read_chunks(c, r, &total) : read_bytes(c, r, r->length, &total);
    if (!read && (uint64_t)total > most) return wrong(r, 413, "the request is too large");
    return read;
}

/* ---- answering ---- */

static const char *reason_of(unsigned code) {
    static const struct {
        unsigned code;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {417, "Expectation Failed"},
                   {431, "Request Header Fields Too Large"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code) return reasons[i].reason;
    return "Internal Server Error";
}

/* Adds the Date, whose words do not depend on the locale. */
static void add_date(strata_text *head) {
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t))
        strata_text_add(head, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
                        1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

static bool send_answer(const connection *c, const http_request *r, const http_answer *answer) {
    const size_t n = answer->text ? strlen(answer->text) : 0;
    strata_text message = {0};
    char *bytes = NULL;
    size_t n_bytes = 0;
    strata_text_add(&message, "HTTP/1.1 %u %s\r\n", answer->code, reason_of(answer->code));
    add_date(&message);
    strata_text_add(&message, "Content-Type: %s\r\nContent-Length: %zu\r\n", answer->type, n);
    if (answer->code == 503) strata_text_add(&message, "Retry-After: 1\r\n");
    if (answer->code == 405) strata_text_add(&message, "Allow: %s\r\n", strcmp(r->path, "/predict") ? "GET, HEAD" : "POST");
    if (!r->keep_alive)
        strata_text_add(&message, "Connection: close\r\n");
    else if (!r->minor_version)
        strata_text_add(&message, "Connection: keep-alive\r\n");
    strata_text_add(&message, "\r\n");
    if (n && strcmp(r->method, "HEAD") != 0) strata_text_add_bytes(&message, answer->text, n);
    if (strata_text_take(&message, &bytes, &n_bytes, NULL)) return false;
    const bool sent = send_all(c, bytes, n_bytes);
    free(bytes);
    return sent;
}

/* Ends the connection so that the client can read the answer. A socket that is closed before all bytes were read is reset, and
 * the client may then lose the answer. */
static void linger(const connection *c) {
    static const struct timeval patience = {.tv_usec = 200000};
    char ignored[4096];
    const double until = now_seconds() + LINGER_SECONDS;
    shutdown(c->socket, SHUT_WR);
    setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (now_seconds() < until && recv(c->socket, ignored, sizeof ignored, 0) > 0) continue;
}

/* ---- connections ---- */

static void set_busy(connection *c, bool busy) {
    pthread_mutex_lock(&c->server->mutex);
    c->busy = busy;
    c->heard = true;
    pthread_cond_broadcast(&c->server->changed);
    pthread_mutex_unlock(&c->server->mutex);
}

/* Reads a request and answers it. Returns whether the connection stays open. */
static bool serve_one(connection *c) {
    const http_functions *f = &c->server->functions;
    http_request r = {.keep_alive = false};
    reading read = read_head(c, &r);
    if (read == READ_CLOSED) return false;
    r.began = now_seconds();
    set_busy(c, true);
    f->on_head(f->user, &r);
    if (!read) read = read_body(c, &r);
    bool goes_on = false;
    if (read != READ_CLOSED) {
        http_answer answer = {.code = 500, .type = "text/plain"};
        f->answer(f->user, &r, &answer);
        r.keep_alive = r.keep_alive && !c->server->stopping;
        goes_on = send_answer(c, &r, &answer) && r.keep_alive;
        free(answer.text);
        if (!goes_on) linger(c);
    }
    f->on_end(f->user, &r);
    strata_text_finish(&r.body);
    set_busy(c, false);
    return goes_on;
}

static void *serve_connection(void *argument) {
    connection *c = argument;
    http_server *s = c->server;
    while (!s->stopping && serve_one(c)) continue;
    pthread_mutex_lock(&s->mutex);
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    s->n_connections--;
    close(c->socket);
    free(c);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Starts the thread of a connection, or closes the socket if that is not possible. */
static void add_connection(http_server *s, int fd) {
    const double idle = s->opts.idle_seconds;
    const struct timeval patience = {.tv_sec = (time_t)idle, .tv_usec = (suseconds_t)((idle - (double)(time_t)idle) * 1e6)};
    const int one = 1;
    pthread_t thread;
    connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->socket = fd;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_mutex_lock(&s->mutex);
    c->next = s->connections;
    c->link = &s->connections;
    if (c->next) c->next->link = &c->next;
    s->connections = c;
    s->n_connections++;
    const bool failed = pthread_create(&thread, NULL, serve_connection, c) != 0;
    if (failed) {
        s->connections = c->next;
        if (c->next) c->next->link = &s->connections;
        s->n_connections--;
    } else {
        pthread_detach(thread);
    }
    pthread_mutex_unlock(&s->mutex);
    if (!failed) return;
    close(fd);
    free(c);
}

/* Ends a connection to make room for another one: the oldest of those that never sent a request or, if there is none, of those
 * that wait for the next request. If all are busy, none is ended. The caller has the mutex. */
static void make_room(http_server *s) {
    connection *silent = NULL, *idle = NULL;
    for (connection *c = s->connections; c; c = c->next) { /* the newest first */
        if (c->ended) return;                              /* its thread will make room */
        if (c->busy) continue;
        idle = c;
        if (!c->heard) silent = c;
    }
    if (silent) idle = silent;
    if (!idle) return;
    idle->ended = true;
    shutdown(idle->socket, SHUT_RDWR);
}

/* Accepts connections. While the most are open and busy, further ones wait in the system's queue. */
static void *accept_connections(void *argument) {
    http_server *s = argument;
    while (!s->stopping) {
        struct pollfd events[] = {{.fd = s->listening, .events = POLLIN}, {.fd = s->wake[0], .events = POLLIN}};
        if (poll(events, 2, -1) < 0 || !(events[0].revents & POLLIN)) continue;
        pthread_mutex_lock(&s->mutex);
        while (s->n_connections >= s->opts.connections && !s->stopping) {
            make_room(s);
            pthread_cond_wait(&s->changed, &s->mutex);
        }
        pthread_mutex_unlock(&s->mutex);
        const int fd = accept(s->listening, NULL, NULL);
        if (fd >= 0)
            add_connection(s, fd);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return NULL;
}

/* ---- the server ---- */

/* Converts an IP address to a sockaddr. Returns its size; 0: `host` is no address. */
static socklen_t read_address(const char *host, int port, struct sockaddr_storage *out) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (!strcmp(host, "localhost")) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1) return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    return sizeof *v6;
}

static strata_status listen_at(http_server *s, strata_error *err) {
    struct sockaddr_storage address;
    const int one = 1;
    socklen_t size = read_address(s->opts.host, s->opts.port, &address);
    if (!size)
        return strata_fail(err, STRATA_INVALID, "--host: \"%s\" is not an address; give for example 127.0.0.1, 0.0.0.0 or ::1",
                           s->opts.host);
    s->listening = socket(address.ss_family, SOCK_STREAM, 0);
    if (s->listening >= 0) {
        fcntl(s->listening, F_SETFD, FD_CLOEXEC);
        fcntl(s->listening, F_SETFL, O_NONBLOCK); /* a client may have left between poll and accept */
        setsockopt(s->listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    }
    if (s->listening < 0 || bind(s->listening, (struct sockaddr *)&address, size) || listen(s->listening, SOMAXCONN) ||
        getsockname(s->listening, (struct sockaddr *)&address, &size))
        return strata_fail(err, STRATA_UNAVAILABLE, "cannot listen on %s, port %d: %s; choose another port (--port)",
                           s->opts.host, s->opts.port, strerror(errno));
    s->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                  : ((struct sockaddr_in *)&address)->sin_port);
    return STRATA_OK;
}

static void destroy(http_server *s) {
    if (s->listening >= 0) close(s->listening);
    for (int i = 0; i < 2; i++)
        if (s->wake[i] >= 0) close(s->wake[i]);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    free(s);
}

strata_status http_server_start(const http_options *options, const http_functions *functions, http_server **out_server,
                                strata_error *err) {
    http_server *s = calloc(1, sizeof *s);
    *out_server = NULL;
    if (!s) return strata_fail(err, STRATA_OUT_OF_MEMORY, "serve: no host memory");
    *s = (http_server){.opts = *options, .functions = *functions, .listening = -1, .wake = {-1, -1}};
    pthread_mutex_init(&s->mutex, NULL);
    condition_init(&s->changed);
    strata_status status = listen_at(s, err);
    if (!status && pipe(s->wake)) status = strata_fail(err, STRATA_UNAVAILABLE, "serve: no pipe: %s", strerror(errno));
    const int failed = status ? 0 : pthread_create(&s->acceptor, NULL, accept_connections, s);
    if (failed) status = strata_fail(err, STRATA_UNAVAILABLE, "serve: the system cannot start a thread: %s", strerror(failed));
    if (status)
        destroy(s);
    else
        *out_server = s;
    return status;
}

int http_server_port(const http_server *server) {
    return server->port;
}

/* Waits until no connection is busy, or none is left if `all`; at most until `deadline`, if it is given. */
static void await_connections(http_server *s, bool all, const struct timespec *deadline) {
    for (bool waits = true; waits;) {
        bool any = all && s->n_connections;
        for (const connection *c = s->connections; c; c = c->next) any |= c->busy;
        waits = any;
        if (waits && deadline) waits = pthread_cond_timedwait(&s->changed, &s->mutex, deadline) != ETIMEDOUT;
        if (waits && !deadline) pthread_cond_wait(&s->changed, &s->mutex);
    }
}

void http_server_stop(http_server *s, double seconds) {
    if (!s) return;
    const struct timespec deadline = time_after(seconds);
    s->stopping = true;
    if (write(s->wake[1], "", 1) != 1) shutdown(s->listening, SHUT_RDWR); /* a pipe that is new and empty has room */
    pthread_mutex_lock(&s->mutex);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->acceptor, NULL);
    pthread_mutex_lock(&s->mutex);
    await_connections(s, false, &deadline);
    for (const connection *c = s->connections; c; c = c->next) shutdown(c->socket, SHUT_RDWR);
    await_connections(s, true, NULL);
    pthread_mutex_unlock(&s->mutex);
    destroy(s);
}
