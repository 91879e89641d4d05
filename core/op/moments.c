/* SPDX-License-Identifier: Apache-2.0
 *
 * moments: mean and (biased) variance of each channel.   x (..., C) floats -> y (2, C) f32: y[0] = mean, y[1] = mean of (x -
 * y[0])^2
 * gradient: dx = (dy[0] + 2 (x - y[0]) dy[1]) / rows. */
#include "core/op/channels.h"
#include "core/op/define.h"

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"x"};
    STRATA_TRY(strata_check_channels(node, 0, 0, names, err));
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(2, strata_channels_of(node->inputs[0]->shape).channels);
    return STRATA_OK;
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *x = node->inputs[0];
    const double rows = (double)strata_channels_of(x->shape).rows;
    strata_tensor *slope = strata_mul(strata_channels_row(dy, 1), strata_scalar(x->graph, STRATA_DTYPE_F32, 2 / rows));
    strata_tensor *constant = strata_mul(strata_channels_row(dy, 0), strata_scalar(x->graph, STRATA_DTYPE_F32, 1 / rows));
    strata_tensor *sum = strata_add(strata_mul(strata_sub(strata_wide(x), strata_channels_row(node, 0)), slope), constant);
    dx[0] = strata_cast(sum, x->dtype);
}

static double element(const strata_op_call *call, const strata_channels *c, int64_t row, int64_t channel) {
    return strata_element_get(call->node->inputs[0]->dtype, call->inputs[0], row * c->channels + channel);
}

/* Adds each row to the sums of all wanted channels, as batch_norm_sums does. */
static void reference(strata_op_call *call) {
    const strata_channels c = strata_channels_of(call->node->inputs[0]->shape);
    float *y = call->output;
    const int64_t n = strata_call_count(call, c.channels);
    double *means = strata_call_alloc(call, 2 * n, sizeof *means);
    if (!means) return;
    double *squares = means + n;
    for (int64_t r = 0; r < c.rows; r++)
        for (int64_t e = 0; e < n; e++) means[e] += element(call, &c, r, strata_call_element(call, e) % c.channels);
    for (int64_t e = 0; e < n; e++) means[e] = c.rows ? means[e] / (double)c.rows : (double)NAN;
    for (int64_t r = 0; r < c.rows; r++)
        for (int64_t e = 0; e < n; e++) {
            const double d = element(call, &c, r, strata_call_element(call, e) % c.channels) - means[e];
            squares[e] += d * d;
        }
    for (int64_t e = 0; e < n; e++) {
        const int64_t k = strata_call_element(call, e) % c.channels;
        y[k] = (float)means[e];
        y[c.channels + k] = (float)(c.rows ? squares[e] / (double)c.rows : (double)NAN);
    }
    free(means);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    return strata_channel_sums_lower(node, node->inputs[0], NULL, NULL, NULL, 0, lowering, err);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_channels c = strata_channels_of(node->inputs[0]->shape);
    strata_tensor *x = strata_reshape(strata_wide(node->inputs[0]), STRATA_SHAPE(c.rows, c.channels));
    strata_tensor *mean = strata_reduce_mean(x, (int[]){0}, 1, true);
    strata_tensor *squares = strata_square(strata_sub(x, mean));
    strata_tensor *both[] = {mean, strata_reduce_mean(squares, (int[]){0}, 1, true)};
    return strata_concat(both, 2, 0);
}

const strata_op strata_op_moments = {.name = "moments",
                                     .n_inputs = 1,
                                     .flags = STRATA_OP_SAMPLES | STRATA_OP_RESOLVED,
                                     .dims = "c->Sc",
                                     .own_dims = "...c->Sc",
                                     .shape = shape,
                                     .gradient = gradient,
                                     .reference = reference,
                                     .compose = compose,
                                     .lower = lower};

strata_tensor *strata_moments(strata_tensor *x) {
    return strata_node(NULL, &strata_op_moments, 1, &x, NULL);
}
