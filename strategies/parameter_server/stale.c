/* SPDX-License-Identifier: Apache-2.0
 *
 * How a server corrects old gradients when each push is an update. The staleness s of a push is the number of updates that were
 * made between the worker's pull and its push.
 *
 * The learning rate of an update becomes rate / (1 + s) (Zhang and others, Staleness-aware async-SGD, 2016).
 *
 * A pull returns extrapolated parameters (linear weight prediction: Kosson and others, Pipelined Backpropagation at Scale,
 * 2021):
 *     w + (w - w') (beta + beta^2 + ... + beta^s)
 * w' are the parameters before the last update, beta is the optimizer's momentum (Adam's beta1), s the mean staleness of the
 * last pushes. They are the parameters to which momentum alone will have moved them when the gradient arrives. Both are needed:
 * with a delay an optimizer with momentum is stable only at much lower curvatures. For a quadratic function with Adam's beta1
 * of 0.9 the bound on rate * curvature is 38 without delay, 1.0 with s = 1 and 0.27 with s = 4; extrapolation raises it to 2.5
 * and 0.49.
 *
 * Without staleness, and so with one worker, no bit changes. Rows of sparse tables are not extrapolated. */
#include <math.h>
#include <stdlib.h>

#include "strategies/parameter_server/store_parts.h"

strata_status strata_ps_store_keep_before(strata_ps_store *store, strata_error *err) {
    if (!store->before) store->before = malloc((size_t)(store->n_dense_elements + 1) * sizeof *store->before);
    if (!store->before) return strata_ps_store_no_memory(store, err);
    for (int i = 0; i < store->n_dense; i++)
        STRATA_TRY(strata_ps_store_read_range(store->dense.parameters, store->dense.places[i],
                                              store->before + store->shards[i].before, store->shards[i].n, err));
    return STRATA_OK;
}

void strata_ps_store_follow_staleness(strata_ps_store *store, int64_t staleness) {
    const double share = 0.05; /* of the newest push in the mean */
    store->staleness += share * ((double)staleness - store->staleness);
    if (!staleness) return;
    const float by = (float)(1 / (1 + (double)staleness));
    store->words[STRATA_STEP_LEARNING_RATE] *= by;
    store->words[STRATA_STEP_PLAIN_RATE] *= by;
}

void strata_ps_store_look_ahead(const strata_ps_store *store, float *values) {
    const strata_optimizer *own = &store->optimizer;
    const double beta = own->beta1 > 0 ? own->beta1 : own->momentum;
    if (!store->before || !(store->staleness > 0) || !(beta > 0)) return;
    const float by = (float)(beta * (1 - pow(beta, store->staleness)) / (1 - beta));
    for (int64_t i = 0; i < store->n_dense_elements; i++) values[i] += by * (values[i] - store->before[i]);
}
