/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares of a batch, exact for any number of examples, and weights by measured speed. */
#include "core/strategy.h"

/* Equal: floor or ceil, the first ones larger. By weights: floors of the exact shares, then one more for each of those with the largest remainders. */
static int64_t weighted_share(const strata_strategy *strategy, int64_t global, int replica) {
    const int n = strategy->n_replicas;
    int64_t total = 0, given = 0;
    for (int r = 0; r < n; r++) total += strategy->weights[r];
    for (int r = 0; r < n; r++) given += global * strategy->weights[r] / total;
    const int64_t own = global * strategy->weights[replica] % total;
    int64_t ahead = 0; /* replicas that get one more before this one */
    for (int r = 0; r < n; r++) {
        const int64_t other = global * strategy->weights[r] % total;
        ahead += other > own || (other == own && r < replica);
    }
    return global * strategy->weights[replica] / total + (ahead < global - given);
}

static int64_t share(const strata_strategy *strategy, int64_t global, int replica) {
    if (strategy->weights) return weighted_share(strategy, global, replica);
    return global / strategy->n_replicas + (replica < global % strategy->n_replicas);
}

void strata_strategy_local_share(const strata_strategy *strategy, int64_t batch, int replica, int64_t *out_first,
                                 int64_t *out_n) {
    *out_first = 0;
    for (int r = 0; r < replica; r++) *out_first += share(strategy, batch, r);
    *out_n = share(strategy, batch, replica);
}

void strata_strategy_share(const strata_strategy *strategy, int64_t global_batch, int replica, int64_t *out_first,
                           int64_t *out_n) {
    if (!strata_strategy_has_workers(strategy)) {
        strata_strategy_local_share(strategy, global_batch, replica, out_first, out_n);
        return;
    }
    const int64_t n = strategy->workers.n_replicas, id = strategy->workers.first_replica + replica;
    const int64_t least = global_batch / n, larger = global_batch % n;
    *out_n = least + (id < larger);
    *out_first = id * least + (id < larger ? id : larger);
}

bool strata_strategy_balance(strata_strategy *strategy, int64_t global_batch, const double *seconds) {
    enum { WHOLE = 1000 };
    const double patience = 1.1;
    const int n = strategy->n_replicas;
    double sum = 0, slowest = 0, speeds = 0;
    if (!strategy->auto_split) return false;
    for (int r = 0; r < n; r++) {
        int64_t own = share(strategy, global_batch, r);
        if (seconds[r] <= 0 || own < 1) return false;
        sum += seconds[r];
        slowest = seconds[r] > slowest ? seconds[r] : slowest;
        speeds += (double)own / seconds[r];
    }
    if (slowest * n < patience * sum) return false;
    bool changed = false;
    for (int r = 0; r < n; r++) { /* all shares are read before any weight is set */
        strategy->measured[r] = (int64_t)(WHOLE * (double)share(strategy, global_batch, r) / seconds[r] / speeds + 0.5);
        if (strategy->measured[r] < 1) strategy->measured[r] = 1;
    }
    for (int r = 0; r < n; r++) {
        changed |= strategy->weights[r] != strategy->measured[r];
        strategy->weights[r] = strategy->measured[r];
    }
    return changed;
}
