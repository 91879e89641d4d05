/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes (lanes.h). The state of a step is under one lock, which no thread has while it performs an exchange. */
#include "core/run/lanes.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "core/base/alloc.h"

typedef struct exchange {
    /* How many of its members have an exchange before it, and how many of these were not performed yet in this step. */
    int n_before, n_missing;
    bool begun;
    /* All members take part. */
    bool whole;
} exchange;

typedef struct helper {
    pthread_t thread;
    strata_lanes *lanes;
    int lane;
} helper;

struct strata_lanes {
    strata_lanes_options opts;
    exchange *exchanges;
    /* [n_exchanges * n_members] The member's exchange after this one; -1: it is the last one, or the member takes no part. */
    int *following;
    int n_lanes;
    /* [n_lanes - 1] They are started by the first run of a process, since a child of fork does not have its parent's threads.
     * process 0: there was no run. */
    helper *helpers;
    int n_helpers;
    pid_t process;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a run began, or a lane has come further */
    /* The number of the run; it changes when a run begins. */
    uint64_t run;
    bool ends;
    int n_done, n_busy;
    strata_status failed;
    strata_error error;
};

/* ---- how many lanes ---- */

static bool same_members(const strata_lanes_options *opts, int a, int b) {
    for (int m = 0; m < opts->n_members; m++)
        if (opts->takes_part(opts->user, a, m) != opts->takes_part(opts->user, b, m)) return false;
    return true;
}

/* A bound of how many exchanges can be due at once: they have no member in common. */
static int count_lanes(const strata_lanes_options *opts) {
    int n_sets = 0, smallest = opts->n_members;
    for (int e = 0; e < opts->n_exchanges; e++) {
        bool known = false;
        int n = 0;
        for (int other = 0; other < e && !known; other++) known = same_members(opts, e, other);
        for (int m = 0; m < opts->n_members; m++) n += opts->takes_part(opts->user, e, m);
        n_sets += !known;
        if (n && n < smallest) smallest = n;
    }
    const int most = opts->n_members / (smallest ? smallest : 1);
    return opts->in_order || n_sets < 2 || most < 2 ? 1 : n_sets < most ? n_sets : most;
}

/* ---- create and destroy ---- */

static void find_order(strata_lanes *lanes) {
    const strata_lanes_options *opts = &lanes->opts;
    for (int m = 0; m < opts->n_members; m++)
        for (int e = opts->n_exchanges - 1, next = -1; e >= 0; e--) {
            lanes->following[e * opts->n_members + m] = -1;
            if (!opts->takes_part(opts->user, e, m)) continue;
            lanes->following[e * opts->n_members + m] = next;
            if (next >= 0) lanes->exchanges[next].n_before++;
            next = e;
        }
    for (int e = 0; e < opts->n_exchanges; e++) {
        lanes->exchanges[e].whole = true;
        for (int m = 0; m < opts->n_members; m++) lanes->exchanges[e].whole &= opts->takes_part(opts->user, e, m);
    }
}

strata_status strata_lanes_create(const strata_lanes_options *opts, strata_lanes **out_lanes, strata_error *err) {
    static const char no_memory[] = "no host memory for %d communications";
    const int n = opts->n_exchanges;
    strata_lanes *lanes;
    STRATA_TRY(STRATA_NEW(lanes, 1, err, no_memory, n));
    lanes->opts = *opts;
    lanes->n_lanes = count_lanes(opts);
    strata_status status = STRATA_NEW(lanes->exchanges, n, err, no_memory, n);
    if (!status) status = STRATA_NEW(lanes->following, n * opts->n_members, err, no_memory, n);
    if (!status) status = STRATA_NEW(lanes->helpers, lanes->n_lanes, err, no_memory, n);
    if (status) {
        strata_lanes_destroy(lanes);
        return status;
    }
    find_order(lanes);
    *out_lanes = lanes;
    return STRATA_OK;
}

void strata_lanes_destroy(strata_lanes *lanes) {
    if (!lanes) return;
    if (lanes->process == getpid()) {
        pthread_mutex_lock(&lanes->lock);
        lanes->ends = true;
        pthread_cond_broadcast(&lanes->moved);
        pthread_mutex_unlock(&lanes->lock);
        for (int h = 0; h < lanes->n_helpers; h++) pthread_join(lanes->helpers[h].thread, NULL);
        pthread_cond_destroy(&lanes->moved);
        pthread_mutex_destroy(&lanes->lock);
    }
    free(lanes->exchanges);
    free(lanes->following);
    free(lanes->helpers);
    free(lanes);
}

int strata_lanes_n(const strata_lanes *lanes) {
    return lanes->n_lanes;
}

/* ---- a run ---- */

/* The first exchange that the lane can begin; -1: there is none. */
static int next_for(const strata_lanes *lanes, int lane) {
    for (int e = 0; e < lanes->opts.n_exchanges; e++) {
        const exchange *x = &lanes->exchanges[e];
        if (!x->begun && !x->n_missing && (lane == 0 || !x->whole)) return e;
    }
    return -1;
}

/* Performs an exchange. The caller has the lock. */
static void perform(strata_lanes *lanes, int lane, int e) {
    const strata_lanes_options *opts = &lanes->opts;
    strata_error err = {0};
    lanes->exchanges[e].begun = true;
    lanes->n_busy++;
    pthread_mutex_unlock(&lanes->lock);
    const strata_status status = opts->perform(opts->user, lane, e, &err);
    pthread_mutex_lock(&lanes->lock);
    lanes->n_busy--;
    lanes->n_done++;
    for (int m = 0; m < opts->n_members; m++) {
        const int next = lanes->following[e * opts->n_members + m];
        if (next >= 0) lanes->exchanges[next].n_missing--;
    }
    if (status && !lanes->failed) {
        lanes->failed = status;
        lanes->error = err;
    }
    pthread_cond_broadcast(&lanes->moved);
}

/* Performs exchanges until none of this run is left. The caller has the lock. */
static void work(strata_lanes *lanes, int lane) {
    while (lanes->n_done < lanes->opts.n_exchanges && !lanes->failed) {
        const int e = next_for(lanes, lane);
        if (e >= 0)
            perform(lanes, lane, e);
        else
            pthread_cond_wait(&lanes->moved, &lanes->lock);
    }
}

static void *help(void *user) {
    const helper *own = user;
    strata_lanes *lanes = own->lanes;
    pthread_mutex_lock(&lanes->lock);
    for (uint64_t seen = 0; !lanes->ends;) {
        if (seen == lanes->run) {
            pthread_cond_wait(&lanes->moved, &lanes->lock);
            continue;
        }
        seen = lanes->run;
        work(lanes, own->lane);
    }
    pthread_mutex_unlock(&lanes->lock);
    return NULL;
}

static strata_status start_helpers(strata_lanes *lanes, strata_error *err) {
    sigset_t all, before;
    if (lanes->process == getpid()) return STRATA_OK;
    pthread_mutex_init(&lanes->lock, NULL);
    pthread_cond_init(&lanes->moved, NULL);
    lanes->process = getpid();
    lanes->n_helpers = 0;
    lanes->run = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int code = 0;
    for (int h = 0; h < lanes->n_lanes - 1 && !code; h++) {
        lanes->helpers[h] = (helper){.lanes = lanes, .lane = h + 1};
        code = pthread_create(&lanes->helpers[h].thread, NULL, help, &lanes->helpers[h]);
        lanes->n_helpers += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "exchanges of %d sets of devices need a thread each; the system started %d",
                       lanes->n_lanes, lanes->n_helpers + 1);
}

strata_status strata_lanes_run(strata_lanes *lanes, strata_error *err) {
    const strata_lanes_options *opts = &lanes->opts;
    for (int e = 0; e < opts->n_exchanges && lanes->n_lanes == 1; e++) STRATA_TRY(opts->perform(opts->user, 0, e, err));
    if (lanes->n_lanes == 1) return STRATA_OK;
    STRATA_TRY(start_helpers(lanes, err));
    pthread_mutex_lock(&lanes->lock);
    for (int e = 0; e < opts->n_exchanges; e++) {
        lanes->exchanges[e].n_missing = lanes->exchanges[e].n_before;
        lanes->exchanges[e].begun = false;
    }
    lanes->n_done = 0;
    lanes->failed = STRATA_OK;
    lanes->run++;
    pthread_cond_broadcast(&lanes->moved);
    work(lanes, 0);
    while (lanes->n_busy) pthread_cond_wait(&lanes->moved, &lanes->lock);
    const strata_status status = lanes->failed;
    if (status && err) *err = lanes->error;
    pthread_mutex_unlock(&lanes->lock);
    return status;
}
