/* SPDX-License-Identifier: Apache-2.0
 *
 * How a server corrects old gradients when each push is an update. With W workers at their own pace a gradient is about
 * s = W - 1 updates old when it is applied, because each other worker has pushed once in the meantime; s = 3 with two workers,
 * which pull ahead (strata_ps_task.pulls_late). With such a delay an optimizer with momentum oscillates where it would converge
 * without. Two changes damp that, for the dense shards:
 *
 * 1. s + 1 updates decay the momentum beta (Adam's beta1) as much as one update would: beta' = beta^(1 / (s + 1)). So momentum
 *    lasts for as many examples as if their batches were one (Busbridge and others, How to Scale Your EMA, 2023). An optimizer
 *    that adds up gradients instead of averaging them (sgd, rmsprop and lars) gets rate (1 - beta') / (1 - beta), so that the
 *    sum of a gradient's effects stays the same.
 * 2. A pull returns extrapolated parameters:  w + 2 (w - w') (beta' + beta'^2 + ... + beta'^s)
 *    w' are the parameters before the last update. Without the factor 2 they are those to which momentum alone will have moved
 *    them when the gradient is applied (Kosson and others, Pipelined Backpropagation at Scale, 2021). The factor 2 extrapolates
 *    twice as far, which damps oscillations.
 *
 * For a quadratic function, beta = 0.9 and s = 3, the bound on rate * curvature is 38 without a delay, 0.34 with it, and 1.9
 * with both changes; with one of them it is at most 0.7. With one worker no bit changes, nor for an optimizer without momentum.
 * Rows of sparse tables are not changed: a row is used too seldom for its last update to predict the next ones. */
#include <math.h>

#include "strategies/parameter_server/stock_parts.h"

/* The optimizer's momentum; 0: it has none. */
static double momentum_of(const strata_optimizer *optimizer) {
    return optimizer->beta1 > 0 ? optimizer->beta1 : optimizer->momentum;
}

void strata_ps_stock_prepare_for_delay(strata_ps_stock *stock) {
    const double beta = momentum_of(&stock->optimizer), s = stock->opts.staleness;
    stock->dense.optimizer = stock->optimizer;
    stock->dense.rate_factor = 1;
    if (!(s > 0) || !(beta > 0)) return;
    const double slower = pow(beta, 1 / (1 + s));
    if (stock->optimizer.beta1 > 0) {
        stock->dense.optimizer.beta1 = slower;
    } else {
        stock->dense.optimizer.momentum = slower;
        stock->dense.rate_factor = (1 - slower) / (1 - beta);
    }
    stock->dense.look_ahead = (float)(2 * slower * (1 - pow(slower, s)) / (1 - slower));
}

strata_status strata_ps_stock_keep_before(strata_ps_stock *stock, strata_error *err) {
    if (stock->dense.look_ahead == 0) return STRATA_OK;
    if (!stock->before) stock->before = malloc((size_t)(stock->bundle->dense_elements + 1) * sizeof *stock->before);
    if (!stock->before) return strata_ps_stock_no_memory(stock, err);
    return strata_ps_stock_read_dense(stock, stock->before, err);
}

void strata_ps_stock_look_ahead(const strata_ps_stock *stock, float *values) {
    const float by = stock->dense.look_ahead;
    if (!stock->before) return;
    for (int64_t i = 0; i < stock->bundle->dense_elements; i++) values[i] += by * (values[i] - stock->before[i]);
}
