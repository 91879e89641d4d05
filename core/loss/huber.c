/* SPDX-License-Identifier: Apache-2.0
 *
 * huber (Huber 1964): e^2 / 2 for errors with |e| <= delta, else delta (|e| - delta / 2). */
#include <math.h>
#include <stddef.h>

#include "core/loss/loss.h"

static strata_status huber_check(strata_loss_options *opts, strata_error *err) {
    opts->delta = strata_number_or(opts->delta, 1);
    if (opts->delta > 0 && isfinite(opts->delta)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "huber: delta is %g; it must be above 0", strata_number_shown(opts->delta));
}

/* With q = min(|e|, delta) both branches are q (|e| - q / 2). */
static strata_tensor *huber_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    strata_graph *graph = strata_tensor_graph(outputs);
    strata_tensor *error = strata_abs(strata_sub(outputs, strata_loss_match(outputs, labels)));
    strata_tensor *near = strata_min(error, strata_scalar(graph, STRATA_DTYPE_F32, opts->delta));
    strata_tensor *half = strata_mul(near, strata_scalar(graph, STRATA_DTYPE_F32, 0.5));
    return strata_loss_mean(strata_mul(near, strata_sub(error, half)));
}

const strata_loss strata_loss_huber = {
    .name = "huber",
    .options = {{"delta", STRATA_OPTION_NUMBER, offsetof(strata_loss_options, delta), 0, 1e30, false}},
    .check = huber_check,
    .build = huber_build,
};
