/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: y = u >= rate ? x / (1 - rate) : 0, where u is the result of random_uniform for the same state and stream. The mask
 * is not stored: the gradient is the same op applied to dy. */
#include <string.h>

#include "core/op/define.h"
#include "core/op/random.h"

extern const strata_op strata_op_dropout;

typedef struct dropout_attrs {
    int64_t stream;
    double rate;
} dropout_attrs;

static strata_status shape(strata_tensor *node, strata_error *err) {
    const dropout_attrs *attrs = node->attrs;
    STRATA_TRY(strata_check_dtype(node->inputs[0], "x", STRATA_FLOATS, err));
    STRATA_TRY(strata_check_rate(attrs->rate, "rate", err));
    return strata_check_random(node->inputs[1], attrs->stream, err);
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = strata_node(NULL, &strata_op_dropout, 2, (strata_tensor *[]){dy, node->inputs[1]}, node->attrs);
}

/* Rounds the rate to f32, as the kernels receive it, so that every device drops the same elements. */
static float rate_of(const strata_tensor *node) {
    return (float)((const dropout_attrs *)node->attrs)->rate;
}

static float scale_of(const strata_tensor *node) {
    return (float)(1 / (1 - ((const dropout_attrs *)node->attrs)->rate));
}

static void reference(strata_op_call *call) {
    const strata_tensor *node = call->node;
    const int64_t stream = ((const dropout_attrs *)node->attrs)->stream;
    strata_random_sequence sequence = strata_random_sequence_of(call->inputs[1], stream, node->shape);
    const double rate = rate_of(node), scale = scale_of(node);
    int64_t n = strata_shape_elements(node->shape);
    for (int64_t i = 0; i < n; i++) {
        bool kept = strata_random_uniform_at(&sequence, i) >= rate;
        strata_element_set(node->dtype, call->output, i,
                           kept ? strata_element_get(node->dtype, call->inputs[0], i) * scale : 0);
    }
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const dropout_attrs *attrs = node->attrs;
    strata_launch launch = strata_launch_of(node, "dropout", strata_dtype_name(node->dtype));
    STRATA_TRY(strata_random_grid(&launch, node->shape, attrs->stream, err));
    STRATA_LAUNCH_FLOATS(&launch, rate_of(node), scale_of(node));
    return strata_lowering_add(lowering, &launch, err);
}

/* The composition uses where(), not x times a mask of 0 or 1 / (1 - rate): an infinity that is dropped would become NaN. */
static strata_tensor *dropped(const strata_tensor *node, strata_tensor *x, strata_tensor *u) {
    strata_tensor *kept = strata_greater_equal(u, strata_scalar(x->graph, STRATA_DTYPE_F32, (double)rate_of(node)));
    strata_tensor *scaled = strata_mul(x, strata_scalar(x->graph, x->dtype, (double)scale_of(node)));
    return strata_cast(strata_where(kept, scaled, strata_scalar(x->graph, x->dtype, 0)), node->dtype);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x = node->inputs[0];
    const int64_t stream = ((const dropout_attrs *)node->attrs)->stream;
    return dropped(node, x, strata_random_uniform(node->inputs[1], (uint32_t)stream, x->shape));
}

static void factors(const strata_tensor *node, strata_factors *factors) {
    for (int d = 0; d < node->shape.rank; d++)
        for (int i = 0; i < 3; i += 2) strata_factors_set(factors, node, i, d, d);
}

/* The elements are numbered along the first axis, so a part of this axis is drawn from the same sequence. For a part of another
 * axis the numbers of whole rows are drawn. */
static strata_tensor *part_of(const strata_node_part *part) {
    const dropout_attrs *attrs = part->node->attrs;
    strata_tensor *x = part->inputs[0], *state = strata_random_state_part(part, part->inputs[1]);
    strata_shape rows = part->node->shape;
    int64_t begin[STRATA_MAX_RANK];
    if (rows.rank) rows.dims[0] = part->shape.dims[0];
    if (strata_shape_equal(rows, part->shape))
        return strata_node(part->graph, part->node->op, 2, (strata_tensor *[]){x, state}, attrs);
    memcpy(begin, part->begin, sizeof begin);
    begin[0] = 0;
    strata_tensor *u = strata_slice(strata_random_uniform(state, (uint32_t)attrs->stream, rows), begin, part->shape.dims);
    return dropped(part->node, strata_wide(x), u);
}

const strata_op strata_op_dropout = {
    .name = "dropout",
    .n_inputs = 2,
    .attrs_bytes = sizeof(dropout_attrs),
    .attrs = {{"stream", STRATA_ATTR_INT, offsetof(dropout_attrs, stream)},
              {"rate", STRATA_ATTR_FLOAT, offsetof(dropout_attrs, rate)}},
    .factors = factors,
    .part = part_of,
    .linearity = STRATA_LINEAR_FIRST,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

strata_tensor *strata_dropout(strata_tensor *x, strata_tensor *state, uint32_t stream, double rate) {
    dropout_attrs attrs = {.stream = stream, .rate = rate};
    return strata_node(NULL, &strata_op_dropout, 2, (strata_tensor *[]){x, state}, &attrs);
}
