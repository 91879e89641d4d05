/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs ranks as threads, over the in-process transport and over TCP. They use collectives, asynchronous requests, messages at
 * the same time, a split communicator, the store, and abort. ThreadSanitizer reports data races between them. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strata/cluster.h"
#include "tests/support/ports.h"

enum { RANKS = 4, ELEMENTS = 30000, ROUNDS = 5, MESSAGES = 60 };

typedef struct rank {
    pthread_t thread;
    int rank;
    const char *store; /* the address of the store; NULL: `comm` exists already */
    strata_communicator *comm;
    float data[ELEMENTS], more[ELEMENTS];
    strata_error err;
    const char *wrong, *unsent; /* error of the rank's own thread, and of its thread for messages */
    atomic_int *behind;         /* number of ranks that have left the last barrier or failed */
} rank;

static strata_status sum_twice(rank *r, strata_communicator *comm) {
    strata_request *request;
    for (int i = 0; i < ELEMENTS; i++) r->data[i] = r->more[i] = (float)(i % 100 + r->rank);
    const strata_collective what = {STRATA_ALL_REDUCE, .out = r->more, .count = ELEMENTS, .dtype = STRATA_DTYPE_F32};
    STRATA_TRY(strata_communicator_start(comm, &what, &request, &r->err));
    strata_status status =
        strata_communicator_all_reduce(comm, r->data, ELEMENTS, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &r->err);
    strata_status waited = STRATA_OK;
    for (bool done = false; !done;) waited = strata_request_wait_for(request, 0.001, &done, &r->err);
    if (memcmp(r->data, r->more, sizeof r->data) != 0) r->wrong = "a request and a call differ";
    return status ? status : waited;
}

/* Sends messages to the next rank and receives those of the previous one, while another thread runs collectives. */
static void *pass_messages(void *user) {
    static const size_t sizes[] = {0, 4, 1000, 300000, 700001};
    rank *r = user;
    static char data[700001]; /* zeros, which all threads read */
    char *room = malloc(sizeof data);
    strata_error err = {0};
    for (int i = 0; i < MESSAGES && !r->unsent; i++) {
        strata_request *request = NULL;
        strata_message message = {0};
        const size_t bytes = sizes[i % 5];
        const int64_t tag = i % 3;
        strata_status status = strata_message_start_receive(
            r->comm, room, sizeof data, i % 2 ? (r->rank + RANKS - 1) % RANKS : STRATA_ANY, tag, &message, &request, &err);
        if (!status) status = strata_message_send(r->comm, data, bytes, (r->rank + 1) % RANKS, tag, 20, &err);
        if (!status) status = strata_request_wait(request, &err);
        if (status || message.bytes != bytes || message.tag != tag) r->unsent = "a message did not come";
    }
    free(room);
    return NULL;
}

static strata_status use(rank *r) {
    strata_communicator *half = NULL;
    int64_t sum;
    pthread_t messages;
    if (pthread_create(&messages, NULL, pass_messages, r)) return strata_fail(&r->err, STRATA_UNAVAILABLE, "no thread");
    for (int i = 0; i < ROUNDS; i++) {
        STRATA_TRY(sum_twice(r, r->comm));
        for (int j = 0; j < ELEMENTS; j++)
            if (r->data[j] != (float)(RANKS * (j % 100) + RANKS * (RANKS - 1) / 2)) r->wrong = "the sum is wrong";
    }
    STRATA_TRY(strata_communicator_add(r->comm, "visits", 1, &sum, &r->err));
    STRATA_TRY(strata_communicator_split(r->comm, r->rank % 2, 0, &half, &r->err));
    strata_status status = sum_twice(r, half);
    if (!status) status = strata_communicator_barrier(r->comm, &r->err);
    strata_communicator_destroy(half);
    pthread_join(messages, NULL);
    if (r->unsent) r->wrong = r->unsent;
    STRATA_TRY(status);
    /* When one rank has left the barrier, another one may still be in it, and an abort would make its barrier fail. So rank 1
     * waits until all ranks have left it. */
    atomic_fetch_add(r->behind, 1);
    while (r->rank == 1 && atomic_load(r->behind) < RANKS) sched_yield();
    if (r->rank == 1) strata_communicator_abort(r->comm, "enough");
    if (strata_communicator_barrier(r->comm, &r->err) != STRATA_INTERRUPTED) r->wrong = "the end of one rank was not seen";
    return STRATA_OK;
}

static void *start(void *user) {
    rank *r = user;
    const strata_communicator_options opts = {
        .rank = r->rank, .world = RANKS, .store = r->store, .transport = "tcp", .secret = "s", .secret_bytes = 1};
    strata_status status = r->store ? strata_communicator_create(&opts, &r->comm, &r->err) : STRATA_OK;
    if (!status) status = use(r);
    if (status) r->wrong = r->err.message, atomic_fetch_add(r->behind, RANKS);
    strata_communicator_destroy(r->comm);
    return NULL;
}

static int run(const char *store) {
    static rank ranks[RANKS];
    strata_communicator *comms[RANKS] = {0};
    int failed = 0;
    atomic_int behind = 0;
    if (!store && strata_communicator_create_local(RANKS, NULL, comms, NULL)) return 1;
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank){.rank = r, .store = store, .comm = comms[r], .behind = &behind};
        if (pthread_create(&ranks[r].thread, NULL, start, &ranks[r])) return 1;
    }
    for (int r = 0; r < RANKS; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        if (!ranks[r].wrong) continue;
        fprintf(stderr, "%s, rank %d: %s\n", store ? "tcp" : "inproc", r, ranks[r].wrong);
        failed = 1;
    }
    return failed;
}

int main(void) {
    char store[32];
    unsigned next = 0;
    const uint16_t port = test_port(&next);
    if (!port) return 77;
    snprintf(store, sizeof store, "127.0.0.1:%u", port);
    return run(NULL) | run(store);
}
