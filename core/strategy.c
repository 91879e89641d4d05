/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares of a batch, exact for any number of examples. */
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

void strata_strategy_share(const strata_strategy *strategy, int64_t global_batch, int replica, int64_t *out_first,
                           int64_t *out_n) {
    *out_first = 0;
    for (int r = 0; r < replica; r++) *out_first += share(strategy, global_batch, r);
    *out_n = share(strategy, global_batch, replica);
}
