/* SPDX-License-Identifier: Apache-2.0
 *
 * Slow links with jitter must not be treated as failures. A proxy delays the bytes of two of three ranks. Each piece takes 0 to
 * 200 ms plus the time of a link with 1 Mbit/s, and a few pieces take 1.5 s. All sums must be right. Links that transmit
 * nothing for longer than five heartbeats, not even that they are closed, are a failure, and every rank must report the lost
 * rank in time. */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "strata/cluster.h"
#include "tests/support/patience.h"
#include "tests/threads/proxy.h"

enum { RANKS = 3, MOST_ELEMENTS = 3000, BYTES_PER_SECOND = 125000, PAUSED = 50 /* every 50th piece takes PAUSE */ };
static const int counts[] = {10, MOST_ELEMENTS, 1, 777}; /* numbers of elements of the all_reduces */
static const double MOST_DELAY = 0.2, PAUSE = 1.5;

/* The state of the slow links. Only the proxy's thread uses it, except for `cut`. */
typedef struct slow_links {
    unsigned seed;
    int n_delayed, n_paused;
    atomic_bool cut;
} slow_links;

typedef struct rank {
    pthread_t thread;
    strata_communicator_options opts;
    bool is_behind_proxy;
    /* After the first sums the links of rank 1 transmit nothing any more, and this rank sums until it fails. */
    bool cuts;
    slow_links *links;
    strata_status status;
    strata_error err;
    bool wrong;
} rank;

static bool hand_on(void *user, int connection, int direction, int to, char *bytes, size_t n, int64_t before) {
    (void)user, (void)connection, (void)direction, (void)before;
    return send_all(to, bytes, n);
}

static double delay(void *user, size_t n) {
    slow_links *w = user;
    if (atomic_load(&w->cut)) return 1e6;
    if (++w->n_delayed % PAUSED == 0) return w->n_paused++, PAUSE;
    return MOST_DELAY * rand_r(&w->seed) / RAND_MAX + (double)n / BYTES_PER_SECOND;
}

static strata_status reduce(strata_communicator *comm, int count, bool *wrong, strata_error *err) {
    float data[MOST_ELEMENTS];
    for (int i = 0; i < count; i++) data[i] = (float)(i + strata_communicator_rank(comm));
    STRATA_TRY(strata_communicator_all_reduce(comm, data, (size_t)count, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, err));
    for (int i = 0; i < count; i++) *wrong |= data[i] != (float)(RANKS * i + RANKS * (RANKS - 1) / 2);
    return STRATA_OK;
}

static strata_status use(rank *r, strata_communicator *comm) {
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) STRATA_TRY(reduce(comm, counts[i], &r->wrong, &r->err));
    if (!r->cuts) return STRATA_OK;
    if (r->opts.rank == 1) atomic_store(&r->links->cut, true);
    strata_status status = STRATA_OK;
    while (!status) status = reduce(comm, 10, &r->wrong, &r->err); /* bytes that the proxy has sent already still arrive */
    return status;
}

static void *run_rank(void *user) {
    rank *r = user;
    strata_communicator *comm = NULL;
    is_behind_proxy = r->is_behind_proxy;
    r->status = strata_communicator_create(&r->opts, &comm, &r->err);
    if (!r->status) r->status = use(r, comm);
    strata_communicator_destroy(comm);
    return NULL;
}

/* Ranks 1 to most_behind connect through the proxy, both to the store and to lower ranks. */
static void run_job(rank ranks[RANKS], slow_links *links, int most_behind, bool cuts) {
    static const char secret[] = "a secret of three";
    char store[32];
    uint16_t port;
    const int kept = bind_here(&port); /* it reserves the port for the store, without listening */
    snprintf(store, sizeof store, "127.0.0.1:%u", port);
    middle.hand_on = hand_on;
    middle.delay = delay;
    middle.user = links;
    start_proxy();
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank){.is_behind_proxy = r > 0 && r <= most_behind, .cuts = cuts, .links = links};
        ranks[r].opts = (strata_communicator_options){.rank = r,
                                                      .world = RANKS,
                                                      .store = store,
                                                      .transport = "tcp",
                                                      .secret = secret,
                                                      .secret_bytes = sizeof secret,
                                                      .heartbeat_seconds = cuts ? 1 : 3,
                                                      .connect_seconds = TEST_PATIENCE};
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r])) abort();
    }
    for (int r = 0; r < RANKS; r++) pthread_join(ranks[r].thread, NULL);
    stop_proxy();
    close(kept);
}

static int failures;
static void check(bool ok, const char *what, const rank *r) {
    if (ok) return;
    failures++;
    fprintf(stderr, "rank %d: this check failed: %s (%s: %s)\n", r->opts.rank, what, strata_status_name(r->status),
            r->err.message);
}

static void slow_links_are_no_failure(void) {
    slow_links links = {.seed = 1};
    rank ranks[RANKS];
    const double began = now();
    run_job(ranks, &links, RANKS, false);
    for (int r = 0; r < RANKS; r++) {
        check(!ranks[r].status, "it sums over slow links", &ranks[r]);
        check(!ranks[r].wrong, "its sums are right", &ranks[r]);
    }
    check(links.n_paused > 0, "a link paused", &ranks[0]);
    printf("%d pieces were delayed, %d of them for %g s: %.1f s\n", links.n_delayed, links.n_paused, PAUSE, now() - began);
}

static bool is_silence(const rank *r) {
    return strstr(r->err.message, "no sign of life") != NULL;
}

/* The links of rank 1 to rank 0 and to the store transmit nothing any more. Rank 1 must report that it lost rank 0, and the
 * others that they lost rank 1. Ranks 0 and 1 reach the timeout at the same time. When rank 1 is first, it leaves and closes
 * its link to rank 2, which works; then rank 2 reports to rank 0 that this connection was closed. */
static void cut_links_are_reported(void) {
    slow_links links = {.seed = 2};
    rank ranks[RANKS];
    run_job(ranks, &links, 1, true);
    for (int r = 0; r < RANKS; r++) {
        check(ranks[r].status == STRATA_PEER_LOST, "a rank is lost", &ranks[r]);
        check(strstr(ranks[r].err.message, r == 1 ? "rank 0" : "rank 1 (host") != NULL, "the lost rank is named", &ranks[r]);
    }
    check(is_silence(&ranks[0]) || is_silence(&ranks[1]), "rank 0 or rank 1 reports that no heartbeat came", &ranks[1]);
    check(is_silence(&ranks[0]) || strstr(ranks[0].err.message, "its connection closed"), "the message contains the reason",
          &ranks[0]);
    check(!strcmp(ranks[0].err.message, ranks[2].err.message), "ranks 0 and 2 report the same message", &ranks[2]);
}

int main(void) {
    /* Both run at the same time, since they mostly wait. */
    static void (*const jobs[])(void) = {slow_links_are_no_failure, cut_links_are_reported};
    int code = 0, ended;
    for (int i = 0; i < 2; i++)
        if (!fork()) {
            jobs[i]();
            fflush(stdout);
            _exit(failures ? 1 : 0);
        }
    for (int i = 0; i < 2; i++)
        if (wait(&ended) < 0 || ended) code = WIFEXITED(ended) && WEXITSTATUS(ended) == 77 ? 77 : 1;
    return code;
}
