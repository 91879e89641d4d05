/* SPDX-License-Identifier: Apache-2.0
 *
 * A proxy between two ranks that flips, drops, repeats and delays bytes and cuts connections, at every offset of a frame's header, many of its payload,
 * of the store's messages and of the handshake; plain and under TLS. A rank may fail, in time, or sum right; never sum wrong. What is damaged after
 * the handshake must be noticed by both. Ranks are threads; the proxy gets between them as this program's connect() dials it.
 *   STRATA_TEST_CHAOS   how many offsets of a payload (1000; 100 under ThreadSanitizer) */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strata/cluster.h"
#include "tests/support/certificate.h"

#if defined(__SANITIZE_THREAD__)
enum { DEFAULT_OFFSETS = 100 };
#else
enum { DEFAULT_OFFSETS = 1000 };
#endif
enum {
    ELEMENTS = 5000,
    PAYLOAD = ELEMENTS * 4,
    HEADER = 56,
    MOST_CONNECTIONS = 64,
    STORE = 0, /* connections, in the order in which rank 1 makes them */
    LINK = 1,
    WORKERS = 4 /* they mostly wait for each other */
};
/* Bytes before the frames, from the rank that dials and to it: wire/handshake.h. */
static const int handshake_bytes[2] = {40 + 48, 40 + 32};
static const double MOST_SECONDS = 8;

typedef enum damage_kind { NONE, FLIP, DROP, REPEAT, DELAY, CUT } damage_kind;
static const char *const kinds[] = {"nothing", "flip", "drop", "repeat", "delay", "cut"};

typedef struct damage {
    damage_kind kind;
    int connection, direction; /* 0: from rank 1 */
    int64_t offset;
} damage;

typedef struct outcome {
    strata_status status;
    strata_error err;
    bool wrong; /* a sum that was given as right */
} outcome;

typedef struct proxy {
    int listener, wake[2];
    uint16_t port;
    damage what;
    atomic_bool applied;
} proxy;

static proxy middle;
static atomic_uint targets[65536]; /* by the port that dials */
static _Thread_local bool is_behind_proxy;
static char certificate[TEST_CERTIFICATE_BYTES];
static int failures;
static long jobs;
static int worker; /* of WORKERS processes, which share the jobs */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the proxy ---- */

/* The library's connect(): a rank behind the proxy reaches it instead, and the proxy knows by its port whom it wanted. */
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

typedef struct pipe_pair {
    int fds[2]; /* of the rank that dialled, of the one that it wanted */
    int64_t moved[2];
} pipe_pair;

static void close_pair(pipe_pair *p) {
    for (int i = 0; i < 2; i++) {
        if (p->fds[i] >= 0) close(p->fds[i]);
        p->fds[i] = -1;
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

/* Hands n bytes on, damaged where it is their turn. False: the connection is to be cut. */
static bool hand_on(proxy *p, int connection, int direction, int to, char *bytes, size_t n, int64_t before) {
    const int64_t at = p->what.offset - before;
    const bool here =
        p->what.kind && connection == p->what.connection && direction == p->what.direction && at >= 0 && at < (int64_t)n;
    if (!here) return send_all(to, bytes, n);
    atomic_store(&p->applied, true);
    if (p->what.kind == CUT) return send_all(to, bytes, (size_t)at) && false;
    if (p->what.kind == FLIP) bytes[at] = (char)(bytes[at] ^ 1 << (p->what.offset % 8));
    if (p->what.kind == FLIP) return send_all(to, bytes, n);
    if (!send_all(to, bytes, (size_t)at)) return false;
    if (p->what.kind == DELAY) usleep(40000);
    if (p->what.kind == REPEAT && !send_all(to, bytes + at, 1)) return false;
    const size_t skip = p->what.kind == DROP;
    return send_all(to, bytes + at + skip, n - (size_t)at - skip);
}

static bool relay(proxy *p, pipe_pair *pair, int connection, int direction) {
    char bytes[16384];
    const ssize_t n = recv(pair->fds[direction], bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    const int64_t before = pair->moved[direction];
    pair->moved[direction] += n;
    return hand_on(p, connection, direction, pair->fds[!direction], bytes, (size_t)n, before);
}

/* False where nobody listens there yet: such a connection does not count. */
static bool accept_pair(proxy *p, pipe_pair *out) {
    struct sockaddr_in from, to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof from;
    *out = (pipe_pair){.fds = {accept(p->listener, (struct sockaddr *)&from, &n), socket(AF_INET, SOCK_STREAM, 0)}};
    to.sin_port = htons((uint16_t)atomic_load(&targets[ntohs(from.sin_port)]));
    for (int i = 0; i < 2; i++) setsockopt(out->fds[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (out->fds[0] >= 0 && !connect(out->fds[1], (struct sockaddr *)&to, sizeof to)) return true;
    close_pair(out);
    return false;
}

static void *run_proxy(void *user) {
    proxy *p = user;
    pipe_pair pairs[MOST_CONNECTIONS];
    struct pollfd fds[2 + 2 * MOST_CONNECTIONS];
    int n = 0;
    for (;;) {
        fds[0] = (struct pollfd){.fd = p->wake[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = n < MOST_CONNECTIONS ? p->listener : -1, .events = POLLIN};
        for (int i = 0; i < 2 * n; i++) fds[2 + i] = (struct pollfd){.fd = pairs[i / 2].fds[i % 2], .events = POLLIN};
        poll(fds, (nfds_t)(2 + 2 * n), -1);
        if (fds[0].revents) break;
        const int known = n;
        if (fds[1].revents) n += accept_pair(p, &pairs[n]);
        for (int i = 0; i < 2 * known; i++)
            if (fds[2 + i].revents && pairs[i / 2].fds[0] >= 0 && !relay(p, &pairs[i / 2], i / 2, i % 2))
                close_pair(&pairs[i / 2]);
    }
    for (int i = 0; i < n; i++) close_pair(&pairs[i]);
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

/* ---- a job of two ranks ---- */

typedef struct rank {
    pthread_t thread;
    strata_communicator_options opts;
    outcome out;
} rank;

/* One message each way of a header and PAYLOAD bytes, then a small one behind it. */
static strata_status reduce(strata_communicator *comm, outcome *out, strata_error *err) {
    static const int counts[] = {ELEMENTS, 10};
    float data[ELEMENTS];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < counts[k]; i++) data[i] = (float)(i + strata_communicator_rank(comm));
        STRATA_TRY(strata_communicator_all_reduce(comm, data, (size_t)counts[k], STRATA_DTYPE_F32, STRATA_REDUCER_SUM, err));
        for (int i = 0; i < counts[k]; i++) out->wrong |= data[i] != (float)(2 * i + 1);
    }
    return STRATA_OK;
}

static void *run_rank(void *user) {
    rank *r = user;
    strata_communicator *comm = NULL;
    is_behind_proxy = r->opts.rank == 1;
    r->out.status = strata_communicator_create(&r->opts, &comm, &r->out.err);
    if (!r->out.status) r->out.status = reduce(comm, &r->out, &r->out.err);
    strata_communicator_destroy(comm);
    return NULL;
}

/* False, after saying so, for a wrong sum or a rank that took too long. */
static bool run_once(damage what, bool tls, double connect_seconds, outcome outcomes[2]) {
    static const char secret[] = "between the two";
    char store[32];
    uint16_t port;
    pthread_t thread;
    rank ranks[2] = {0};
    const int kept = bind_here(&port); /* bound and not listening: the store may listen there, and nobody else gets the port */
    snprintf(store, sizeof store, "127.0.0.1:%u", port);
    middle.listener = bind_here(&middle.port);
    middle.what = what;
    atomic_store(&middle.applied, false);
    if (listen(middle.listener, 64) || pipe(middle.wake) || pthread_create(&thread, NULL, run_proxy, &middle)) abort();
    const double began = now();
    for (int r = 0; r < 2; r++) {
        ranks[r].opts = (strata_communicator_options){.rank = r,
                                                      .world = 2,
                                                      .store = store,
                                                      .transport = "tcp",
                                                      .algorithm = "one_shot",
                                                      .secret = secret,
                                                      .secret_bytes = sizeof secret,
                                                      .tls_cert = tls ? certificate : NULL,
                                                      .tls_ca = tls ? certificate : NULL,
                                                      .connect_seconds = connect_seconds,
                                                      .stall_seconds = 10};
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r])) abort();
    }
    for (int r = 0; r < 2; r++) pthread_join(ranks[r].thread, NULL);
    const double took = now() - began;
    if (write(middle.wake[1], "", 1) != 1) abort();
    pthread_join(thread, NULL);
    close(middle.wake[0]);
    close(middle.wake[1]);
    close(middle.listener);
    close(kept);
    for (int r = 0; r < 2; r++) outcomes[r] = ranks[r].out;
    if (!ranks[0].out.wrong && !ranks[1].out.wrong && took < MOST_SECONDS) return true;
    fprintf(stderr, "%s of byte %lld, connection %d, direction %d%s: %s after %.1f s (%s; %s)\n", kinds[what.kind],
            (long long)what.offset, what.connection, what.direction, tls ? ", TLS" : "",
            took < MOST_SECONDS ? "a wrong sum" : "too late", took, ranks[0].out.err.message, ranks[1].out.err.message);
    failures++;
    return false;
}

/* Runs it, where it is this process's turn; as run_once. */
static bool run_job(damage what, bool tls, double connect_seconds, outcome outcomes[2]) {
    return jobs++ % WORKERS == worker && run_once(what, tls, connect_seconds, outcomes);
}

static void bad(damage what, bool tls, const outcome *o, const char *how) {
    failures++;
    if (failures > 20) return;
    fprintf(stderr, "%s of byte %lld, connection %d, direction %d%s: %s (rank 0: %s: %s; rank 1: %s: %s)\n", kinds[what.kind],
            (long long)what.offset, what.connection, what.direction, tls ? ", TLS" : "", how, strata_status_name(o[0].status),
            o[0].err.message, strata_status_name(o[1].status), o[1].err.message);
}

/* Both ranks must fail, by the damage and not by a deadline. */
static void must_be_noticed(damage what, bool tls) {
    outcome o[2];
    if (!run_job(what, tls, 10, o)) return;
    if (!atomic_load(&middle.applied)) bad(what, tls, o, "that byte never came");
    if (!o[0].status || !o[1].status) bad(what, tls, o, "not noticed by both");
    /* A byte that lacks is one that is waited for: noticed where the next frame follows, or as a stall. */
    if (what.kind != DROP && (o[0].status == STRATA_TIMEOUT || o[1].status == STRATA_TIMEOUT))
        bad(what, tls, o, "noticed late");
}

static void must_not_matter(damage what, bool tls) {
    outcome o[2];
    if (run_job(what, tls, 10, o) && (o[0].status || o[1].status)) bad(what, tls, o, "it failed");
}

/* ---- what is damaged ---- */

static void damage_headers(void) {
    for (int offset = 0; offset < HEADER; offset++)
        for (int direction = 0; direction < 2; direction++) {
            const int64_t at = handshake_bytes[direction] + HEADER /* of the barrier in create */ + offset;
            must_be_noticed((damage){FLIP, LINK, direction, at}, false);
            must_be_noticed((damage){FLIP, STORE, direction, at - HEADER}, false);
            if (offset % 2 != direction) continue;
            must_be_noticed((damage){CUT, LINK, direction, at}, false);
            must_be_noticed((damage){REPEAT, LINK, direction, at}, false);
            if (offset % 8 == 0) must_be_noticed((damage){DROP, LINK, direction, at}, false);
        }
}

static void damage_payloads(int n) {
    for (int i = 0; i < n; i++) {
        const int direction = i % 2;
        const int64_t at = handshake_bytes[direction] + 2 * HEADER + (int64_t)i * PAYLOAD / n;
        must_be_noticed((damage){FLIP, LINK, direction, at}, false);
        if (i % 20 == 0) must_be_noticed((damage){CUT, LINK, direction, at}, false);
        if (i % 20 == 1) must_be_noticed((damage){REPEAT, LINK, direction, at}, false);
        if (i % 200 == 2) must_be_noticed((damage){DROP, LINK, direction, at}, false);
        if (i % 50 == 3) must_not_matter((damage){DELAY, LINK, direction, at}, false);
    }
}

/* A connection that fails before both know each other is made again, or given up with a reason: never believed. A link that is given up is
 * told to all, and nobody waits out the time for connecting. */
static void damage_handshakes(void) {
    outcome o[2];
    for (int direction = 0; direction < 2; direction++)
        for (int64_t at = 0; at < handshake_bytes[direction]; at++)
            for (int connection = STORE; connection <= LINK; connection++)
                run_job((damage){(at + connection) % 4 ? FLIP : CUT, connection, direction, at}, false,
                        connection == LINK ? 10 : 0.5, o);
}

static void damage_tls(int n) {
    outcome o[2];
    for (int i = 0; i < n; i++) /* the TLS handshake, ours within it, frames */
        run_job((damage){i % 3 ? FLIP : i % 2 ? REPEAT : CUT, i % 2, i / 2 % 2, i * 37}, true, 0.5, o);
    for (int i = 0; i < n; i++) /* the large message alone */
        must_be_noticed((damage){i % 4 ? FLIP : i % 8 ? REPEAT : CUT, LINK, i / 4 % 2, 5000 + (int64_t)i * 15000 / n}, true);
    must_not_matter((damage){DELAY, LINK, 0, 5000}, true);
}

static int run_worker(int n) {
    must_not_matter((damage){0}, false);
    must_not_matter((damage){0}, true);
    damage_headers();
    damage_payloads(n);
    damage_handshakes();
    damage_tls(n / 5);
    if (!worker) printf("%ld jobs\n", jobs);
    fflush(stdout);
    return failures ? 1 : 0;
}

int main(void) {
    const char *given = getenv("STRATA_TEST_CHAOS");
    const int n = given && atoi(given) > 0 ? atoi(given) : DEFAULT_OFFSETS;
    int code = 0, ended;
    test_certificate_make(certificate);
    for (; worker < WORKERS; worker++)
        if (!fork()) _exit(run_worker(n));
    for (int i = 0; i < WORKERS; i++)
        if (wait(&ended) < 0 || ended) code = 1;
    unlink(certificate);
    return code;
}
