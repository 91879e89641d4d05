/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes (lanes.h). The state of a step is under one lock, which no thread has while it performs an exchange. */
#include "core/run/lanes.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "core/base/alloc.h"

typedef struct helper {
    pthread_t thread;
    strata_lanes *lanes;
    int lane;
} helper;

struct strata_lanes {
    strata_lanes_options opts;
    /* [n_members] The exchange that is the member's next one; n_exchanges: it has performed all; -1: it performs one. */
    int *next;
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

static bool takes_part(const strata_lanes_options *opts, int exchange, int member) {
    return opts->exchanges[exchange].own[member] >= 0;
}

/* ---- how many lanes ---- */

static bool same_members(const strata_lanes_options *opts, int a, int b) {
    for (int m = 0; m < opts->n_members; m++)
        if (takes_part(opts, a, m) != takes_part(opts, b, m)) return false;
    return true;
}

/* A bound of how many exchanges can be due at once: they have no member in common. */
static int count_lanes(const strata_lanes_options *opts) {
    int n_sets = 0, smallest = opts->n_members;
    for (int e = 0; e < opts->n_exchanges; e++) {
        bool known = false;
        int n = 0;
        for (int other = 0; other < e && !known; other++) known = same_members(opts, e, other);
        for (int m = 0; m < opts->n_members; m++) n += takes_part(opts, e, m);
        n_sets += !known;
        if (n && n < smallest) smallest = n;
    }
    const int most = opts->n_members / (smallest ? smallest : 1);
    return opts->in_order || n_sets < 2 || most < 2 ? 1 : n_sets < most ? n_sets : most;
}

/* ---- create and destroy ---- */

strata_status strata_lanes_create(const strata_lanes_options *opts, strata_lanes **out_lanes, strata_error *err) {
    static const char no_memory[] = "no host memory for %d communications";
    const int n = opts->n_exchanges;
    strata_lanes *lanes;
    STRATA_TRY(STRATA_NEW(lanes, 1, err, no_memory, n));
    lanes->opts = *opts;
    lanes->n_lanes = count_lanes(opts);
    strata_status status = STRATA_NEW(lanes->next, opts->n_members, err, no_memory, n);
    if (!status) status = STRATA_NEW(lanes->helpers, lanes->n_lanes, err, no_memory, n);
    if (status) {
        strata_lanes_destroy(lanes);
        return status;
    }
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
    free(lanes->next);
    free(lanes->helpers);
    free(lanes);
}

int strata_lanes_n(const strata_lanes *lanes) {
    return lanes->n_lanes;
}

/* ---- a run ---- */

/* The member's first exchange from number e on. */
static int following(const strata_lanes *lanes, int member, int e) {
    while (e < lanes->opts.n_exchanges && !takes_part(&lanes->opts, e, member)) e++;
    return e;
}

/* The first exchange that the lane can begin: the next one of all its members. -1: there is none. */
static int next_for(const strata_lanes *lanes, int lane) {
    const strata_lanes_options *opts = &lanes->opts;
    for (int e = 0; e < opts->n_exchanges; e++) {
        bool due = true, whole = true;
        for (int m = 0; m < opts->n_members && due; m++) {
            due = !takes_part(opts, e, m) || lanes->next[m] == e;
            whole &= takes_part(opts, e, m);
        }
        if (due && (lane == 0 || !whole)) return e;
    }
    return -1;
}

/* Performs an exchange. The caller has the lock. */
static void perform(strata_lanes *lanes, int lane, int e) {
    const strata_lanes_options *opts = &lanes->opts;
    strata_error err = {0};
    for (int m = 0; m < opts->n_members; m++)
        if (takes_part(opts, e, m)) lanes->next[m] = -1;
    lanes->n_busy++;
    pthread_mutex_unlock(&lanes->lock);
    const strata_status status = opts->perform(opts->user, lane, e, &err);
    pthread_mutex_lock(&lanes->lock);
    lanes->n_busy--;
    lanes->n_done++;
    for (int m = 0; m < opts->n_members; m++)
        if (takes_part(opts, e, m)) lanes->next[m] = following(lanes, m, e + 1);
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
    for (int m = 0; m < opts->n_members; m++) lanes->next[m] = following(lanes, m, 0);
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
