/* SPDX-License-Identifier: Apache-2.0
 *
 * LARS (You et al. 2017): the gradient g + decay w of each parameter w is multiplied by trust |w| / (|g| + decay |w|), or
 * by 1 if a norm is 0. Then follows SGD with momentum. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static strata_tensor *lars_build(const strata_optimizer *settings, const strata_update *u) {
    strata_graph *graph = strata_tensor_graph(u->parameters);
    strata_tensor *decay = strata_scalar(graph, STRATA_DTYPE_F32, settings->weight_decay);
    strata_tensor *trust = strata_scalar(graph, STRATA_DTYPE_F32, settings->trust);
    strata_tensor *zero = strata_scalar(graph, STRATA_DTYPE_F32, 0), *one = strata_scalar(graph, STRATA_DTYPE_F32, 1);
    strata_tensor *w = strata_sqrt(strata_segment_squares(u->segments, u->parameters));
    strata_tensor *g = strata_sqrt(strata_segment_squares(u->segments, u->gradients));
    strata_tensor *rate = strata_div(strata_mul(trust, w), strata_add(g, strata_mul(decay, w)));
    rate = strata_where(strata_greater(strata_min(w, g), zero), rate, one);
    strata_tensor *decayed = strata_add(u->gradients, strata_mul(decay, u->parameters));
    return strata_sgd(u->parameters, settings->momentum > 0 ? u->slots[0] : NULL,
                      strata_segment_scale(u->segments, decayed, rate), u->step, u->gate, settings->momentum, false);
}

const strata_optimizer_kind strata_optimizer_lars = {
    .name = "lars",
    .options = {STRATA_OPTIMIZER_NUMBER(momentum, 1), STRATA_OPTIMIZER_NUMBER(trust, 1e6),
                STRATA_OPTIMIZER_NUMBER(weight_decay, 1e6), STRATA_OPTIMIZER_COMMON},
    .numbers = {STRATA_OPTIMIZER_SHARE(momentum, 0.9), STRATA_OPTIMIZER_POSITIVE(trust, 0.001),
                STRATA_OPTIMIZER_POSITIVE(weight_decay, 1e-4)},
    .learning_rate = 0.01,
    .whole_parameters = true,
    .more_slots = strata_optimizer_momentum_slots,
    .build = lars_build,
};
