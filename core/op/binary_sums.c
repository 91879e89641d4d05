/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums that the metrics of binary outputs need for a batch, in one node: the sum of the losses, and the sum over the
 * rows of each row's fraction of correct outputs.
 *   losses (B), outputs (B, K), labels (B, K) f32 -> (2) f32: sum_b losses_b, sum_b mean_k [(outputs_bk > threshold) =
 *   (labels_bk > 1/2)] */
#include "core/op/define.h"

enum { LOSSES, OUTPUTS, LABELS };

typedef struct binary_sums_attrs {
    double threshold;
} binary_sums_attrs;

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"losses", "outputs", "labels"};
    const strata_tensor *losses = node->inputs[LOSSES], *outputs = node->inputs[OUTPUTS], *labels = node->inputs[LABELS];
    for (int i = 0; i < 3; i++) STRATA_TRY(strata_check_dtype(node->inputs[i], names[i], 1u << STRATA_DTYPE_F32, err));
    if (losses->shape.rank != 1 || outputs->shape.rank != 2 || outputs->shape.dims[0] != losses->shape.dims[0] ||
        outputs->shape.dims[1] < 1 || !strata_shape_equal(outputs->shape, labels->shape))
        return strata_fail(err, STRATA_INVALID, "losses are %s, outputs %s, labels %s; they must be (B), (B,K) and (B,K)",
                           strata_shape_text(losses->shape).text, strata_shape_text(outputs->shape).text,
                           strata_shape_text(labels->shape).text);
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(2);
    return STRATA_OK;
}

static void reference(strata_op_call *call) {
    const binary_sums_attrs *attrs = call->node->attrs;
    const strata_shape outputs = call->node->inputs[OUTPUTS]->shape;
    const float *losses = call->inputs[LOSSES], *x = call->inputs[OUTPUTS], *y = call->inputs[LABELS];
    int64_t right = 0;
    double sum = 0;
    for (int64_t row = 0; row < outputs.dims[0]; row++) sum += (double)losses[row];
    for (int64_t i = 0; i < strata_shape_elements(outputs); i++) right += ((double)x[i] > attrs->threshold) == (y[i] > 0.5f);
    ((float *)call->output)[0] = (float)sum;
    ((float *)call->output)[1] = (float)((double)right / (double)outputs.dims[1]);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    enum { LOCAL = 64 };
    const binary_sums_attrs *attrs = node->attrs;
    const strata_tensor *outputs = node->inputs[OUTPUTS];
    if (strata_shape_elements(outputs->shape) > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "outputs are %s; kernels take at most 2^31 elements at a time",
                           strata_shape_text(outputs->shape).text);
    strata_launch launch = strata_launch_of(node, "binary_sums", "f32");
    STRATA_LAUNCH_INTS(&launch, outputs->shape.dims[0], outputs->shape.dims[1]);
    STRATA_LAUNCH_FLOATS(&launch, attrs->threshold);
    launch.global[0] = LOCAL;
    launch.grid_stride = true;
    strata_launch_turns(&launch, strata_lane_turns(outputs->shape.dims[0]) * (double)(outputs->shape.dims[1] + 1));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *outputs = node->inputs[OUTPUTS], *labels = node->inputs[LABELS];
    const double threshold = ((const binary_sums_attrs *)node->attrs)->threshold;
    strata_tensor *said = strata_greater(outputs, strata_scalar(node->graph, STRATA_DTYPE_F32, threshold));
    strata_tensor *is = strata_greater(labels, strata_scalar(node->graph, STRATA_DTYPE_F32, 0.5));
    strata_tensor *right = strata_reduce_sum(strata_cast(strata_equal(said, is), STRATA_DTYPE_F32), NULL, 0, false);
    strata_tensor *share = strata_mul(right, strata_scalar(node->graph, STRATA_DTYPE_F32, 1 / (double)outputs->shape.dims[1]));
    strata_tensor *sums[] = {strata_reduce_sum(node->inputs[LOSSES], NULL, 0, true), strata_reshape(share, STRATA_SHAPE(1))};
    return strata_concat(sums, 2, 0);
}

const strata_op strata_op_binary_sums = {
    .name = "binary_sums",
    .n_inputs = 3,
    .attrs_bytes = sizeof(binary_sums_attrs),
    .attrs = {{"threshold", STRATA_ATTR_FLOAT, offsetof(binary_sums_attrs, threshold)}},
    .dims = "b,bC,bC->S",
    .shape = shape,
    .no_gradient = "it is a metric; take the gradient of the losses",
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

strata_tensor *strata_binary_sums(strata_tensor *losses, strata_tensor *outputs, strata_tensor *labels, double threshold) {
    return strata_node(NULL, &strata_op_binary_sums, 3, (strata_tensor *[]){losses, outputs, labels},
                       &(binary_sums_attrs){threshold});
}
