/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums that the metrics of a batch need, in one node: the sum of the losses, and the number of correct rows.
 *   binary_sums: losses (B), outputs (B, K), labels (B, K) f32 -> (2) f32: sum_b losses_b, sum_b mean_k [(outputs_bk >
 *   threshold) = (labels_bk > 1/2)]
 *   classification_sums: losses (B) f32, logits (B, C) f32, labels (B) i32 or i64 -> (2) f32: sum_b losses_b, count_b (argmax_c
 *   logits_bc = label_b) */
#include "core/op/define.h"

enum { LOSSES, SCORES, LABELS };

/* Appends the numbers of rows and columns of the scores, called `name` in messages, and sets the grid. */
static strata_status fill_launch(const strata_tensor *node, const char *name, strata_launch *launch, strata_error *err) {
    enum { LOCAL = 64 };
    const strata_shape scores = node->inputs[SCORES]->shape;
    if (strata_shape_elements(scores) > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s are %s; kernels take at most 2^31 elements at a time", name,
                           strata_shape_text(scores).text);
    STRATA_LAUNCH_INTS(launch, scores.dims[0], scores.dims[1]);
    launch->global[0] = LOCAL;
    launch->grid_stride = true;
    strata_launch_turns(launch, strata_lane_turns(scores.dims[0]) * (double)(scores.dims[1] + 1));
    return STRATA_OK;
}

/* ---- binary_sums ---- */

typedef struct binary_sums_attrs {
    double threshold;
} binary_sums_attrs;

static strata_status binary_shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"losses", "outputs", "labels"};
    const strata_tensor *losses = node->inputs[LOSSES], *outputs = node->inputs[SCORES], *labels = node->inputs[LABELS];
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

static void binary_reference(strata_op_call *call) {
    const binary_sums_attrs *attrs = call->node->attrs;
    const strata_shape outputs = call->node->inputs[SCORES]->shape;
    const float *losses = call->inputs[LOSSES], *x = call->inputs[SCORES], *y = call->inputs[LABELS];
    int64_t right = 0;
    double sum = 0;
    for (int64_t row = 0; row < outputs.dims[0]; row++) sum += (double)losses[row];
    for (int64_t i = 0; i < strata_shape_elements(outputs); i++) right += ((double)x[i] > attrs->threshold) == (y[i] > 0.5f);
    ((float *)call->output)[0] = (float)sum;
    ((float *)call->output)[1] = (float)((double)right / (double)outputs.dims[1]);
}

static strata_status binary_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = strata_launch_of(node, "binary_sums", "f32");
    STRATA_TRY(fill_launch(node, "outputs", &launch, err));
    STRATA_LAUNCH_FLOATS(&launch, ((const binary_sums_attrs *)node->attrs)->threshold);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *binary_compose(strata_tensor *node) {
    strata_tensor *outputs = node->inputs[SCORES], *labels = node->inputs[LABELS];
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
    .flags = STRATA_OP_RESOLVED,
    .attrs_bytes = sizeof(binary_sums_attrs),
    .attrs = {{"threshold", STRATA_ATTR_FLOAT, offsetof(binary_sums_attrs, threshold)}},
    .dims = "b,bC,bC->S",
    .shape = binary_shape,
    .no_gradient = "it is a metric; take the gradient of the losses",
    .reference = binary_reference,
    .compose = binary_compose,
    .lower = binary_lower,
};

strata_tensor *strata_binary_sums(strata_tensor *losses, strata_tensor *outputs, strata_tensor *labels, double threshold) {
    return strata_node(NULL, &strata_op_binary_sums, 3, (strata_tensor *[]){losses, outputs, labels},
                       &(binary_sums_attrs){threshold});
}

/* ---- classification_sums ---- */

static strata_status classification_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *losses = node->inputs[LOSSES], *logits = node->inputs[SCORES], *labels = node->inputs[LABELS];
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

static void classification_reference(strata_op_call *call) {
    const strata_tensor *logits = call->node->inputs[SCORES], *labels = call->node->inputs[LABELS];
    const float *losses = call->inputs[LOSSES], *x = call->inputs[SCORES];
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

static strata_status classification_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const char *variant = strata_floats_by_index_variant(STRATA_DTYPE_F32, node->inputs[LABELS]->dtype);
    strata_launch launch = strata_launch_of(node, "classification_sums", variant);
    STRATA_TRY(fill_launch(node, "logits", &launch, err));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *classification_compose(strata_tensor *node) {
    strata_tensor *labels = node->inputs[LABELS], *answers = strata_argmax(node->inputs[SCORES], -1);
    if (labels->dtype != STRATA_DTYPE_I32) answers = strata_cast(answers, labels->dtype);
    strata_tensor *right = strata_cast(strata_equal(answers, labels), STRATA_DTYPE_F32);
    strata_tensor *sums[] = {strata_reduce_sum(node->inputs[LOSSES], NULL, 0, true), strata_reduce_sum(right, NULL, 0, true)};
    return strata_concat(sums, 2, 0);
}

const strata_op strata_op_classification_sums = {
    .name = "classification_sums",
    .n_inputs = 3,
    .flags = STRATA_OP_RESOLVED,
    .dims = "b,bC,b->S",
    .shape = classification_shape,
    .no_gradient = "it is a metric; take the gradient of the losses",
    .reference = classification_reference,
    .compose = classification_compose,
    .lower = classification_lower,
};

strata_tensor *strata_classification_sums(strata_tensor *losses, strata_tensor *logits, strata_tensor *labels) {
    return strata_node(NULL, &strata_op_classification_sums, 3, (strata_tensor *[]){losses, logits, labels}, NULL);
}
