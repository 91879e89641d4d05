/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums that a classifier's metrics need for a batch, in one node instead of seven: the sum of its losses and the number of
 * correct predictions.
 *   losses (B) f32, logits (B, C) f32, labels (B) i32 or i64 -> (2) f32: sum_b losses_b, count_b (argmax_c logits_bc =
 *   label_b) */
#include <math.h>

#include "core/op/define.h"

enum { LOSSES, LOGITS, LABELS };

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *losses = node->inputs[LOSSES], *logits = node->inputs[LOGITS], *labels = node->inputs[LABELS];
    if (losses->dtype != STRATA_DTYPE_F32 || logits->dtype != STRATA_DTYPE_F32 ||
        (labels->dtype != STRATA_DTYPE_I32 && labels->dtype != STRATA_DTYPE_I64))
        return strata_fail(err, STRATA_INVALID, "losses are %s, logits %s, labels %s; they must be f32, f32 and i32 or i64",
                           strata_dtype_name(losses->dtype), strata_dtype_name(logits->dtype),
                           strata_dtype_name(labels->dtype));
    if (losses->shape.rank != 1 || !strata_shape_equal(losses->shape, labels->shape) || logits->shape.rank != 2 ||
        logits->shape.dims[0] != losses->shape.dims[0] || logits->shape.dims[1] < 1)
        return strata_fail(err, STRATA_INVALID, "losses are %s, logits %s, labels %s; they must be (B), (B,C) and (B)",
                           strata_shape_text(losses->shape).text, strata_shape_text(logits->shape).text,
                           strata_shape_text(labels->shape).text);
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(2);
    return STRATA_OK;
}

static void reference(strata_op_call *call) {
    const strata_tensor *logits = call->node->inputs[LOGITS], *labels = call->node->inputs[LABELS];
    const float *losses = call->inputs[LOSSES], *x = call->inputs[LOGITS];
    int64_t rows = logits->shape.dims[0], classes = logits->shape.dims[1], right = 0;
    double sum = 0;
    for (int64_t row = 0; row < rows; row++, x += classes) {
        int64_t best = 0;
        for (int64_t i = 1; i < classes; i++)
            if (!isnan(x[best]) && (isnan(x[i]) || x[i] > x[best])) best = i;
        sum += losses[row];
        right += (int64_t)strata_element_get(labels->dtype, call->inputs[LABELS], row) == best;
    }
    ((float *)call->output)[0] = (float)sum;
    ((float *)call->output)[1] = (float)right;
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    enum { LOCAL = 64 };
    const strata_tensor *logits = node->inputs[LOGITS];
    if (strata_shape_elements(logits->shape) > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "logits are %s; kernels take at most 2^31 elements at a time",
                           strata_shape_text(logits->shape).text);
    strata_launch launch = strata_launch_of(node, "classification_sums",
                                            strata_floats_by_index_variant(STRATA_DTYPE_F32, node->inputs[LABELS]->dtype));
    STRATA_LAUNCH_INTS(&launch, logits->shape.dims[0], logits->shape.dims[1]);
    launch.global[0] = LOCAL;
    launch.grid_stride = true;
    strata_launch_turns(&launch, strata_lane_turns(logits->shape.dims[0]) * (double)(logits->shape.dims[1] + 1));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *labels = node->inputs[LABELS], *answers = strata_argmax(node->inputs[LOGITS], -1);
    if (labels->dtype != STRATA_DTYPE_I32) answers = strata_cast(answers, labels->dtype);
    strata_tensor *right = strata_cast(strata_equal(answers, labels), STRATA_DTYPE_F32);
    strata_tensor *sums[] = {strata_reduce_sum(node->inputs[LOSSES], NULL, 0, true), strata_reduce_sum(right, NULL, 0, true)};
    return strata_concat(sums, 2, 0);
}

const strata_op strata_op_classification_sums = {
    .name = "classification_sums",
    .n_inputs = 3,
    .dims = "b,bC,b->S",
    .shape = shape,
    .no_gradient = "it is a metric; take the gradient of the losses",
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

strata_tensor *strata_classification_sums(strata_tensor *losses, strata_tensor *logits, strata_tensor *labels) {
    return strata_node(NULL, &strata_op_classification_sums, 3, (strata_tensor *[]){losses, logits, labels}, NULL);
}
