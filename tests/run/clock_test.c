/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the clocks of workers are apart: three workers are threads with clocks of their own, and messages are pipes. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "core/base/trace.h"
#include "core/run/strategy.h"

enum { N = 3 };
static const double ahead[N] = {1000, 1250.5, -3600};
static int pipes[N][N][2]; /* from, to */
static _Thread_local int own_rank;

static double now(void) {
    return strata_trace_now() + ahead[own_rank];
}

static strata_status send_to(const strata_workers *workers, int to, int64_t tag, const void *data, size_t bytes,
                             strata_error *err) {
    (void)tag;
    return write(pipes[workers->rank][to][1], data, bytes) == (ssize_t)bytes ? STRATA_OK
                                                                             : strata_fail(err, STRATA_PEER_LOST, "pipe");
}

static strata_status receive_from(const strata_workers *workers, int from, int64_t tag, void *data, size_t bytes,
                                  strata_error *err) {
    (void)tag;
    return read(pipes[from][workers->rank][0], data, bytes) == (ssize_t)bytes ? STRATA_OK
                                                                              : strata_fail(err, STRATA_PEER_LOST, "pipe");
}

typedef struct worker {
    int rank;
    strata_status status;
    double ahead;
} worker;

static void *compare(void *argument) {
    worker *own = argument;
    const strata_workers workers = {.rank = own->rank, .n = N, .send = send_to, .receive = receive_from};
    own_rank = own->rank;
    own->status = strata_workers_compare_clocks(&workers, now, &own->ahead, NULL);
    return NULL;
}

Test(clock, workers_learn_how_far_their_clocks_are_ahead) {
    pthread_t threads[N];
    worker workers[N];
    for (int i = 0; i < N * N; i++) cr_assert_eq(pipe(pipes[i / N][i % N]), 0);
    for (int w = 0; w < N; w++) {
        workers[w] = (worker){.rank = w, .ahead = NAN};
        cr_assert_eq(pthread_create(&threads[w], NULL, compare, &workers[w]), 0);
    }
    for (int w = 0; w < N; w++) {
        cr_assert_eq(pthread_join(threads[w], NULL), 0);
        cr_assert_eq(workers[w].status, STRATA_OK);
        /* A machine that does other things may hold up each of the messages. */
        cr_assert(fabs(workers[w].ahead - (ahead[w] - ahead[0])) < 0.25, "worker %d: %g", w, workers[w].ahead);
    }
    cr_assert_eq(workers[0].ahead, 0);
}
