/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides batches among replicas, so that the shares add up for any number of examples, and adapts the replicas'
 * weights to their measured speeds. */
#include "core/run/strategy.h"

#include <stdarg.h>

#include "core/run/device.h"

/* A replica's share is the floor of its exact share. The examples that are left go to the replicas with the largest
 * remainders, one for each; among equal remainders to the first replicas. */
static int64_t weighted_share(const strata_strategy *strategy, int64_t global, int replica) {
    const int n = strategy->n_replicas;
    int64_t total = 0, given = 0;
    for (int r = 0; r < n; r++) total += strategy->weights[r];
    for (int r = 0; r < n; r++) given += global * strategy->weights[r] / total;
    const int64_t own = global * strategy->weights[replica] % total;
    int64_t ahead = 0; /* replicas that get one more example before this one does */
    for (int r = 0; r < n; r++) {
        const int64_t other = global * strategy->weights[r] % total;
        ahead += other > own || (other == own && r < replica);
    }
    return global * strategy->weights[replica] / total + (ahead < global - given);
}

/* Without weights a share is the floor or the ceiling of the exact share; the first replicas have the larger ones. */
static int64_t size_of_share(const strata_strategy *strategy, int64_t global, int replica) {
    const int n = strata_strategy_n_shares(strategy);
    if (strategy->weights) return weighted_share(strategy, global, replica);
    return global / n + (replica < global % n);
}

void strata_strategy_local_share(const strata_strategy *strategy, int64_t batch, int replica, int64_t *out_first,
                                 int64_t *out_n) {
    const int share = strata_strategy_share_of(strategy, replica);
    *out_first = 0;
    for (int s = 0; s < share; s++) *out_first += size_of_share(strategy, batch, s);
    *out_n = size_of_share(strategy, batch, share);
}

/* The number of examples of all replicas before replica `id`, if shares are equal. The first replicas have the larger
 * shares. */
static int64_t before(int64_t global, int64_t id, int64_t n) {
    const int64_t least = global / n, larger = global % n;
    return id * least + (id < larger ? id : larger);
}

/* The number of shares of all workers' examples. */
static int n_all_shares(const strata_strategy *strategy) {
    return strata_strategy_has_mesh(strategy) ? strategy->mesh.axes[STRATA_DATA_AXIS].size : strategy->workers.n_replicas;
}

void strata_strategy_share(const strata_strategy *strategy, int64_t global_batch, int replica, int64_t *out_first,
                           int64_t *out_n) {
    if (!strata_strategy_has_workers(strategy)) {
        strata_strategy_local_share(strategy, global_batch, replica, out_first, out_n);
        return;
    }
    const int64_t n = n_all_shares(strategy), id = strata_strategy_global_share(strategy, replica);
    *out_first = before(global_batch, id, n);
    *out_n = before(global_batch, id + 1, n) - *out_first;
}

void strata_strategy_worker_share(const strata_strategy *strategy, int64_t global_batch, int worker, int64_t *out_first,
                                  int64_t *out_n) {
    *out_first = 0;
    *out_n = global_batch;
    if (!strata_strategy_has_workers(strategy)) return;
    const int own = strategy->workers.first_replica, n = n_all_shares(strategy);
    const int *firsts = strategy->workers.first_replicas;
    const int first = strata_strategy_global_share(strategy, firsts[worker] - own),
              last = strata_strategy_global_share(strategy, firsts[worker + 1] - 1 - own);
    *out_first = before(global_batch, first, n);
    *out_n = before(global_batch, last + 1, n) - *out_first;
}

strata_status strata_workers_gather(const strata_workers *workers, const void *own, void *out_all, size_t bytes,
                                    strata_error *err) {
    STRATA_FREED size_t *each = NULL;
    STRATA_TRY(STRATA_NEW(each, workers->n, err, "no host memory for %d workers", workers->n));
    for (int w = 0; w < workers->n; w++) each[w] = bytes;
    return workers->all_gather(workers, own, out_all, each, err);
}

strata_status strata_workers_gather_parts(const strata_workers *workers, const void *own, size_t bytes, void *out_all,
                                          int64_t *sizes, strata_error *err) {
    const int64_t mine = (int64_t)bytes;
    STRATA_FREED size_t *each = NULL;
    STRATA_FREED char *all = NULL;
    size_t total = 0;
    STRATA_TRY(STRATA_NEW(each, workers->n, err, "no host memory for %d workers", workers->n));
    STRATA_TRY(strata_workers_gather(workers, &mine, sizes, sizeof mine, err));
    for (int w = 0; w < workers->n; w++) total += each[w] = (size_t)sizes[w];
    STRATA_TRY(STRATA_NEW(all, total, err, "no host memory for %zu bytes of %d workers", total, workers->n));
    if (total) STRATA_TRY(workers->all_gather(workers, own, all, each, err));
    *(char **)out_all = all;
    all = NULL;
    return STRATA_OK;
}

strata_status strata_workers_share_status(const strata_workers *workers, strata_status status, strata_error *err,
                                          const char *format, ...) {
    int32_t of_rank_0 = (int32_t)status;
    strata_error lost = {0}; /* `err` may contain rank 0's error */
    va_list arguments;
    if (workers->n <= 1) return status;
    const strata_status sent = workers->broadcast(workers, STRATA_DTYPE_I32, &of_rank_0, 1, &lost);
    if (status || (!sent && !of_rank_0)) return status;
    if (sent) return strata_fail(err, sent, "%s", lost.message);
    va_start(arguments, format);
    status = strata_fail_v(err, (strata_status)of_rank_0, format, arguments);
    va_end(arguments);
    return status;
}

strata_status strata_workers_share_double(const strata_workers *workers, double *value, strata_error *err) {
    int64_t bits;
    if (workers->n <= 1) return STRATA_OK;
    memcpy(&bits, value, sizeof bits);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &bits, 1, err));
    memcpy(value, &bits, sizeof bits);
    return STRATA_OK;
}

strata_status strata_workers_compare_clocks(const strata_workers *workers, double (*now)(void), double *out_ahead,
                                            strata_error *err) {
    enum { CLOCK_TEAM = 0x636c6f63, TIMES = 8 };
    double there = 0;
    *out_ahead = 0;
    if (workers->rank > 0) {
        for (int i = 0; i < TIMES; i++) {
            STRATA_TRY(workers->receive(workers, 0, CLOCK_TEAM, &there, sizeof there, err));
            there = now();
            STRATA_TRY(workers->send(workers, 0, CLOCK_TEAM, &there, sizeof there, err));
        }
        return workers->receive(workers, 0, CLOCK_TEAM, out_ahead, sizeof *out_ahead, err);
    }
    for (int w = 1; w < workers->n; w++) {
        double ahead = 0, least = 0;
        for (int i = 0; i < TIMES; i++) {
            const double sent = now();
            STRATA_TRY(workers->send(workers, w, CLOCK_TEAM, &sent, sizeof sent, err));
            STRATA_TRY(workers->receive(workers, w, CLOCK_TEAM, &there, sizeof there, err));
            const double took = now() - sent;
            if (i && took >= least) continue;
            least = took;
            ahead = there - sent - took / 2;
        }
        STRATA_TRY(workers->send(workers, w, CLOCK_TEAM, &ahead, sizeof ahead, err));
    }
    return STRATA_OK;
}

bool strata_strategy_balance(strata_strategy *strategy, int64_t global_batch, const double *seconds) {
    enum { WHOLE = 1000 };
    const double patience = 1.1;
    const int n = strategy->n_replicas;
    double sum = 0, slowest = 0, speeds = 0;
    STRATA_FREED int64_t *measured = strategy->auto_split ? calloc((size_t)n, sizeof *measured) : NULL;
    if (!measured) return false;
    for (int r = 0; r < n; r++) {
        int64_t own = size_of_share(strategy, global_batch, r);
        if (seconds[r] <= 0 || own < 1) return false;
        sum += seconds[r];
        slowest = seconds[r] > slowest ? seconds[r] : slowest;
        speeds += (double)own / seconds[r];
    }
    if (slowest * n < patience * sum) return false;
    bool changed = false;
    for (int r = 0; r < n; r++) { /* all shares are read before any weight is set */
        measured[r] = (int64_t)(WHOLE * (double)size_of_share(strategy, global_batch, r) / seconds[r] / speeds + 0.5);
        if (measured[r] < 1) measured[r] = 1;
    }
    for (int r = 0; r < n; r++) {
        changed |= strategy->weights[r] != measured[r];
        strategy->weights[r] = measured[r];
    }
    return changed;
}

/* ---- what a strategy is ---- */

const char *strata_strategy_name(const strata_strategy *strategy) {
    return strategy->name;
}

const char *strata_strategy_choice(const strata_strategy *strategy) {
    return strategy->choice;
}

int strata_strategy_num_replicas_in_sync(const strata_strategy *strategy) {
    if (strategy->trainer) return strategy->n_in_sync;
    if (strata_strategy_has_mesh(strategy)) return strategy->mesh.axes[STRATA_DATA_AXIS].size;
    return strata_strategy_has_workers(strategy) ? strategy->workers.n_replicas : strategy->n_replicas;
}

bool strata_strategy_has_own(const strata_strategy *strategy) {
    return strategy->average && strata_strategy_num_replicas_in_sync(strategy) > 1;
}

int strata_strategy_num_local_replicas(const strata_strategy *strategy) {
    return strategy->n_replicas;
}

int strata_strategy_num_workers(const strata_strategy *strategy) {
    return strata_strategy_has_workers(strategy) ? strategy->workers.n : 1;
}

bool strata_strategy_mesh_has_workers(const strata_strategy *strategy) {
    return strata_strategy_has_mesh(strategy) && strata_strategy_has_workers(strategy);
}

strata_device *strata_strategy_device(const strata_strategy *strategy, int replica) {
    return replica >= 0 && replica < strategy->n_replicas ? strategy->devices[replica] : NULL;
}

/* ---- what was made with a strategy ---- */

void strata_strategy_own(strata_strategy *strategy, strata_owned *owned, void (*destroy)(void *object), void *object) {
    *owned = (strata_owned){.next = strategy->owned, .link = &strategy->owned, .destroy = destroy, .object = object};
    if (owned->next) owned->next->link = &owned->next;
    strategy->owned = owned;
}

void strata_owned_forget(strata_owned *owned) {
    if (!owned->link) return;
    *owned->link = owned->next;
    if (owned->next) owned->next->link = owned->link;
    *owned = (strata_owned){0};
}

int strata_strategy_steps_per_call(const strata_strategy *strategy, int64_t asked) {
    int most = strata_strategy_has_workers(strategy) || asked < 1 ? 1
               : asked < STRATA_MAX_SLOTS                         ? (int)asked
                                                                  : STRATA_MAX_SLOTS;
    for (int r = 0; r < strategy->n_devices; r++) {
        const int own = strata_device_most_runs(strategy->devices[r]);
        most = own < most ? own : most;
    }
    return most > 1 ? most : 1;
}
