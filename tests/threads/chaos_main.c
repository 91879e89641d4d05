/* SPDX-License-Identifier: Apache-2.0
 *
 * A proxy between two ranks flips, drops, repeats or delays one byte, or closes the connection at one byte. Each job has one
 * such fault. The faults cover every offset of a frame's header, many offsets of its payload, the frames of the store, messages
 * and the handshake, with and without TLS. A rank may fail in time or compute the right sum. It must never return a wrong sum.
 * Both ranks must detect a fault after the handshake. The ranks are threads of this program, see proxy.h.
 *   STRATA_TEST_CHAOS   number of offsets of a payload (1000; 100 under ThreadSanitizer) */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "strata/cluster.h"
#include "tests/support/certificate.h"
#include "tests/support/patience.h"
#include "tests/threads/proxy.h"

#if defined(__SANITIZE_THREAD__)
enum { DEFAULT_OFFSETS = 100 };
#else
enum { DEFAULT_OFFSETS = 1000 };
#endif
enum {
    ELEMENTS = 5000,
    PAYLOAD = ELEMENTS * 4,
    HEADER = 56,
    STORE = 0, /* these are the connections, in the order in which rank 1 makes them */
    LINK = 1,
    MESSAGES = 2,
    WORKERS = 4 /* processes that run jobs at the same time, since jobs mostly wait */
};
/* Bytes of the handshake, which precede the frames: from the rank that connects, and to it. See cluster/wire/handshake.h. */
static const int handshake_bytes[2] = {40 + 48, 40 + 32};
static const double MOST_SECONDS =
    15 * TEST_PATIENCE / 10; /* longer than the timeouts of 10 s, which a dropped byte may cause */

typedef enum damage_kind { NONE, FLIP, DROP, REPEAT, DELAY, CUT } damage_kind;
static const char *const kinds[] = {"nothing", "flip", "drop", "repeat", "delay", "cut"};

typedef struct damage {
    damage_kind kind;
    int connection, direction; /* direction 0 is from rank 1 */
    int64_t offset;
} damage;

typedef struct outcome {
    strata_status status;
    strata_error err;
    bool wrong; /* a collective or message succeeded with wrong values */
} outcome;

static damage damaged;
static atomic_bool applied;
static char certificate[TEST_CERTIFICATE_BYTES];
static int failures;
static long jobs;
static int worker; /* the number of this process among WORKERS processes, each of which runs every WORKERS-th job */

/* ---- the proxy ---- */

/* Sends n bytes on, with the fault if its offset is among them. Returns false to close the connection. */
static bool hand_on(void *user, int connection, int direction, int to, char *bytes, size_t n, int64_t before) {
    const damage *what = user;
    const int64_t at = what->offset - before;
    const bool here =
        what->kind && connection == what->connection && direction == what->direction && at >= 0 && at < (int64_t)n;
    if (!here) return send_all(to, bytes, n);
    atomic_store(&applied, true);
    if (what->kind == CUT) return send_all(to, bytes, (size_t)at) && false;
    if (what->kind == FLIP) bytes[at] = (char)(bytes[at] ^ 1 << (what->offset % 8));
    if (what->kind == FLIP) return send_all(to, bytes, n);
    if (!send_all(to, bytes, (size_t)at)) return false;
    if (what->kind == DELAY) usleep(40000);
    if (what->kind == REPEAT && !send_all(to, bytes + at, 1)) return false;
    const size_t skip = what->kind == DROP;
    return send_all(to, bytes + at + skip, n - (size_t)at - skip);
}

/* ---- a job of two ranks ---- */

typedef struct rank {
    pthread_t thread;
    strata_communicator_options opts;
    outcome out;
} rank;

/* Two all_reduces. For the first one, each rank sends a header and PAYLOAD bytes; the second one is small. */
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

/* Rank 1 sends a large message and a small one. */
static strata_status pass_messages(strata_communicator *comm, outcome *out, strata_error *err) {
    static const int counts[] = {ELEMENTS, 10};
    float data[ELEMENTS];
    for (int k = 0; k < 2; k++) {
        const size_t bytes = (size_t)counts[k] * sizeof *data;
        for (int i = 0; i < counts[k]; i++) data[i] = (float)i;
        if (strata_communicator_rank(comm)) {
            STRATA_TRY(strata_message_send(comm, data, bytes, 0, k, 10, err));
            continue;
        }
        memset(data, 0, sizeof data);
        STRATA_TRY(strata_message_receive(comm, data, bytes, 1, k, 10, NULL, err));
        for (int i = 0; i < counts[k]; i++) out->wrong |= data[i] != (float)i;
    }
    return STRATA_OK;
}

static void *run_rank(void *user) {
    rank *r = user;
    strata_communicator *comm = NULL;
    is_behind_proxy = r->opts.rank == 1;
    r->out.status = strata_communicator_create(&r->opts, &comm, &r->out.err);
    if (!r->out.status) r->out.status = reduce(comm, &r->out, &r->out.err);
    if (!r->out.status) r->out.status = pass_messages(comm, &r->out, &r->out.err);
    strata_communicator_destroy(comm);
    return NULL;
}

/* Runs a job. Returns false, and prints why, after a wrong sum or when a rank took too long. */
static bool run_once(damage what, bool tls, double connect_seconds, outcome outcomes[2]) {
    static const char secret[] = "between the two";
    char store[32];
    uint16_t port;
    rank ranks[2] = {0};
    const int kept = bind_here(&port); /* it reserves the port for the store, without listening */
    snprintf(store, sizeof store, "127.0.0.1:%u", port);
    damaged = what;
    atomic_store(&applied, false);
    middle.hand_on = hand_on;
    middle.user = &damaged;
    start_proxy();
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
    stop_proxy();
    close(kept);
    for (int r = 0; r < 2; r++) outcomes[r] = ranks[r].out;
    if (!ranks[0].out.wrong && !ranks[1].out.wrong && took < MOST_SECONDS) return true;
    fprintf(stderr, "%s of byte %lld, connection %d, direction %d%s: %s after %.1f s (%s; %s)\n", kinds[what.kind],
            (long long)what.offset, what.connection, what.direction, tls ? ", TLS" : "",
            took < MOST_SECONDS ? "a wrong sum" : "too late", took, ranks[0].out.err.message, ranks[1].out.err.message);
    failures++;
    return false;
}

/* Runs the job as run_once does, if it is a job of this process. Otherwise it returns false. */
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

/* Both ranks must fail, and not because of a timeout. */
static void must_be_noticed(damage what, bool tls) {
    outcome o[2];
    if (!run_job(what, tls, 10, o)) return;
    if (!atomic_load(&applied)) bad(what, tls, o, "this byte was never sent");
    if (!o[0].status || !o[1].status) bad(what, tls, o, "a rank did not detect it");
    /* The receiver waits for a dropped byte. It detects the fault when the next frame arrives, or by the timeout. */
    if (what.kind != DROP && (o[0].status == STRATA_TIMEOUT || o[1].status == STRATA_TIMEOUT))
        bad(what, tls, o, "it was detected only by a timeout");
}

/* The receiver must fail. The sender of a message may succeed, because its part is done when the socket has the bytes. */
static void must_be_noticed_by_rank_0(damage what) {
    outcome o[2];
    if (!run_job(what, false, 10, o)) return;
    if (!atomic_load(&applied)) bad(what, false, o, "this byte was never sent");
    if (!o[0].status) bad(what, false, o, "the receiver did not detect it");
    if (o[0].status == STRATA_TIMEOUT) bad(what, false, o, "it was detected only by a timeout");
}

static void must_not_matter(damage what, bool tls) {
    outcome o[2];
    if (run_job(what, tls, 10, o) && (o[0].status || o[1].status)) bad(what, tls, o, "it failed");
}

/* ---- the faults ---- */

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

static void damage_messages(int n) {
    const int begin = handshake_bytes[0];
    for (int offset = 0; offset < HEADER; offset++) {
        must_be_noticed_by_rank_0((damage){FLIP, MESSAGES, 0, begin + offset});
        must_be_noticed_by_rank_0((damage){offset % 2 ? CUT : REPEAT, MESSAGES, 0, begin + offset});
    }
    for (int i = 0; i < n; i++) {
        const int64_t at = begin + HEADER + (int64_t)i * PAYLOAD / n;
        must_be_noticed_by_rank_0((damage){i % 3 ? FLIP : i % 2 ? CUT : DROP, MESSAGES, 0, at});
    }
    must_not_matter((damage){DELAY, MESSAGES, 0, begin + HEADER + PAYLOAD / 2}, false);
}

/* After a fault in the handshake the rank connects again, or fails with the reason. It must not accept the connection. When a
 * link to a rank fails, all ranks fail before connect_seconds have passed. */
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
    for (int i = 0; i < n; i++) /* in the handshake of TLS, in Strata's handshake, and in the first frames */
        run_job((damage){i % 3 ? FLIP : i % 2 ? REPEAT : CUT, i % 2, i / 2 % 2, i * 37}, true, 0.5, o);
    for (int i = 0; i < n; i++) /* in the large message */
        must_be_noticed((damage){i % 4 ? FLIP : i % 8 ? REPEAT : CUT, LINK, i / 4 % 2, 5000 + (int64_t)i * 15000 / n}, true);
    must_not_matter((damage){DELAY, LINK, 0, 5000}, true);
}

static int run_worker(int n) {
    must_not_matter((damage){0}, false);
    must_not_matter((damage){0}, true);
    damage_headers();
    damage_payloads(n);
    damage_messages(n / 5);
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
    for (int i = 0; i < WORKERS; i++) {
        if (wait(&ended) >= 0 && !ended) continue;
        fprintf(stderr, "a worker ended with %s %d\n", WIFSIGNALED(ended) ? "signal" : "exit code",
                WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended));
        code = 1;
    }
    unlink(certificate);
    return code;
}
