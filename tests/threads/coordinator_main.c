/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the coordinator for data races, under ThreadSanitizer. Workers are threads of this program, which serve, end and serve
 * again. Several threads schedule closures, fetch values and join. Some closures fail. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "strata/coordinator.h"
#include "tests/support/patience.h"
#include "tests/support/ports.h"

enum { WORKERS = 2, THREADS = 3, CLOSURES = 120, ROUNDS = 3 };
static atomic_int failures, n_run;
/* hesitates: an interrupted worker serves again only after half a second. */
static atomic_bool interrupted[WORKERS], hesitates;
static atomic_int n_interruptions;
static char addresses[WORKERS][32];

static void check(bool ok, const char *what, const char *more) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, more);
    atomic_fetch_add(&failures, 1);
}

/* Returns twice its argument. It fails for a negative argument. */
static strata_status twice(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    const int32_t value = *(int32_t *)call->inputs[0].array.data;
    (void)n;
    atomic_fetch_add(&n_run, 1);
    if (value < 0) return strata_fail(err, STRATA_DATA, "%d is below 0", value);
    if (call->n_inputs > 1) ++*(int *)call->inputs[1].object;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(), &results[0], err));
    *(int32_t *)results[0].data = 2 * value;
    return STRATA_OK;
}

static strata_status make(const strata_remote_call *call, void **out_object, strata_error *err) {
    (void)call;
    *out_object = calloc(1, sizeof(int));
    return *out_object ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory");
}

static void unmake(void *object, void *user) {
    (void)user;
    free(object);
}

static const strata_remote_function functions[] = {{.name = "twice", .run = twice, .n_results = 1},
                                                   {.name = "count", .make = make, .unmake = unmake}};
static const strata_communicator_options cluster = {
    .secret = "threads", .secret_bytes = 7, .connect_seconds = TEST_PATIENCE, .heartbeat_seconds = TEST_CALM_HEARTBEAT};

static bool is_interrupted(void *user) {
    return atomic_load((atomic_bool *)user);
}

/* Serves until the coordinator ends. After an interruption it serves again. */
static void *be_worker(void *user) {
    const int number = (int)(intptr_t)user;
    const strata_coordinator_worker_options opts = {.worker = number,
                                                    .n_workers = WORKERS,
                                                    .address = addresses[number],
                                                    .cluster = &cluster,
                                                    .functions = functions,
                                                    .n_functions = 2,
                                                    .stop_now = is_interrupted,
                                                    .user = &interrupted[number],
                                                    .coordinator_seconds = TEST_PATIENCE};
    strata_error err = {0};
    strata_status status;
    while ((status = strata_coordinator_serve(&opts, &err)) == STRATA_INTERRUPTED) {
        atomic_store(&interrupted[number], false);
        atomic_fetch_add(&n_interruptions, 1);
        if (atomic_load(&hesitates)) usleep(500000);
    }
    check(!status, "a worker", err.message);
    return NULL;
}

typedef struct crew {
    pthread_t thread;
    strata_coordinator *coordinator;
    strata_per_worker *object;
    int first;
} crew;

static void *schedule_many(void *user) {
    const crew *c = user;
    strata_error err = {0};
    for (int i = 0; i < CLOSURES; i++) {
        int32_t number = c->first + i;
        const strata_array array = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(), &number);
        const strata_remote_arg args[] = {{.array = &array}, {.per_worker = c->object}};
        strata_remote_value *value = NULL;
        strata_array result = {0};
        if (strata_coordinator_schedule(c->coordinator, "twice", args, 2, &value, &err)) {
            check(false, "schedule", err.message);
            return NULL;
        }
        if (i % 3 == 0) {
            check(!strata_remote_value_fetch(value, &result, 1, &err) && *(int32_t *)result.data == 2 * number, "fetch",
                  err.message);
            strata_array_finish(&result);
        }
        strata_remote_value_release(value);
        if (i % 40 == 39) check(!strata_coordinator_join(c->coordinator, &err), "join", err.message);
    }
    return NULL;
}

static void fail_once(strata_coordinator *coordinator) {
    int32_t number = -1;
    const strata_array array = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(), &number);
    strata_error err = {0};
    check(!strata_coordinator_schedule(coordinator, "twice", &(strata_remote_arg){.array = &array}, 1, NULL, &err),
          "a closure that fails", err.message);
    check(strata_coordinator_join(coordinator, &err) == STRATA_DATA && strstr(err.message, "-1 is below 0"),
          "a closure that fails", err.message);
    check(!strata_coordinator_join(coordinator, &err), "after a closure that failed", err.message);
}

int main(void) {
    pthread_t workers[WORKERS];
    const char *names[WORKERS];
    strata_coordinator *coordinator = NULL;
    strata_error err = {0};
    unsigned next = 0;
    if (!test_addresses(&next, WORKERS, addresses)) {
        puts("skipped: no sockets here");
        return 77;
    }
    for (int i = 0; i < WORKERS; i++) {
        names[i] = addresses[i];
        pthread_create(&workers[i], NULL, be_worker, (void *)(intptr_t)i);
    }
    const strata_coordinator_options opts = {.workers = names,
                                             .n_workers = WORKERS,
                                             .cluster = &cluster,
                                             .functions = functions,
                                             .n_functions = 2,
                                             .queue_bound = 8};
    if (strata_coordinator_create(&opts, &coordinator, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        crew crews[THREADS];
        strata_per_worker *object = NULL;
        check(!strata_per_worker_create(coordinator, "count", NULL, 0, &object, &err), "an object", err.message);
        for (int i = 0; i < THREADS; i++) {
            crews[i] = (crew){.coordinator = coordinator, .object = object, .first = 1000 * i};
            pthread_create(&crews[i].thread, NULL, schedule_many, &crews[i]);
        }
        if (round == 1) atomic_store(&interrupted[0], true); /* interrupts a worker, which then serves again */
        for (int i = 0; i < THREADS; i++) pthread_join(crews[i].thread, NULL);
        fail_once(coordinator);
    }
    /* The interrupted worker may be connected again only a moment later. */
    strata_coordinator_counts counts = strata_coordinator_count(coordinator);
    for (int tries = 0; tries < 3000 && (counts.workers < WORKERS || counts.lost < 1); tries++) {
        usleep(100000);
        counts = strata_coordinator_count(coordinator);
    }
    check(counts.ended == ROUNDS * (THREADS * CLOSURES + 1) && counts.workers == WORKERS && counts.lost >= 1, "counts",
          "are wrong");
    check(atomic_load(&n_run) >= counts.ended, "closures", "were lost");
    /* A worker that starts again while the coordinator ends is told the end, and does not wait for another coordinator. */
    const int before = atomic_load(&n_interruptions);
    atomic_store(&hesitates, true);
    atomic_store(&interrupted[0], true);
    while (atomic_load(&n_interruptions) == before) usleep(1000);
    strata_coordinator_destroy(coordinator);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    if (!atomic_load(&failures)) puts("closures come back");
    return atomic_load(&failures) != 0;
}
