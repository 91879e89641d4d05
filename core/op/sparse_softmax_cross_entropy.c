/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy with an integer label for each row: loss = L - logits[label], L = log sum exp logits. A label out of
 * range makes the row's loss and gradient NaN, so that the error is noticed. Dense labels: softmax_cross_entropy.c. */
#include "core/op/define.h"
#include "core/op/softmax.h"

extern const strata_op strata_op_sparse_softmax_cross_entropy_grad;

enum { LOGITS, LABELS, DY };

static strata_status check_operands(const strata_tensor *node, strata_error *err) {
    const strata_tensor *logits = node->inputs[LOGITS], *labels = node->inputs[LABELS];
    STRATA_TRY(strata_check_rows(logits, "logits", err));
    STRATA_TRY(strata_check_dtype(labels, "labels", STRATA_INDICES, err));
    return strata_check_per_row(labels, "labels", logits, err);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    STRATA_TRY(check_operands(node, err));
    node->shape = node->inputs[LABELS]->shape;
    return STRATA_OK;
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[LOGITS] = strata_node(NULL, &strata_op_sparse_softmax_cross_entropy_grad, 3,
                             (strata_tensor *[]){node->inputs[LOGITS], node->inputs[LABELS], dy}, NULL);
}

/* The label of a row, or -1 when it is out of range. */
static int64_t label_of(const strata_op_call *call, int64_t row, int64_t c) {
    int64_t label = strata_integer_get(call->node->inputs[LABELS]->dtype, call->inputs[LABELS], row);
    return label >= 0 && label < c ? label : -1;
}

static void reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const void *logits = call->inputs[LOGITS];
    strata_channels c = strata_channels_of(call->node->inputs[LOGITS]->shape);
    for (int64_t row = 0; row < c.rows; row++) {
        int64_t label = label_of(call, row, c.channels);
        double loss = NAN;
        if (label >= 0)
            loss = strata_row_log_sum_exp(dtype, logits, row, c.channels) -
                   strata_element_get(dtype, logits, row * c.channels + label);
        strata_element_set(dtype, call->output, row, loss);
    }
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    return strata_cross_entropy_lower(node, "softmax_cross_entropy_sparse",
                                      strata_floats_by_index_variant(node->dtype, node->inputs[LABELS]->dtype),
                                      node->n_inputs > DY, 3, lowering, err);
}

/* A mask that is true where the column is the label of the row. */
static strata_tensor *is_label(const strata_tensor *node) {
    const strata_shape shape = node->inputs[LOGITS]->shape;
    strata_tensor *labels = node->inputs[LABELS], *columns = strata_arange(node->graph, shape.dims[shape.rank - 1]);
    if (labels->dtype != STRATA_DTYPE_I32) columns = strata_cast(columns, labels->dtype);
    return strata_equal(strata_column_of(labels, shape), columns);
}

/* A number for each label: 1 if it is a class, else NaN. */
static strata_tensor *one_or_nan(const strata_tensor *node) {
    strata_tensor *labels = node->inputs[LABELS];
    const strata_shape shape = node->inputs[LOGITS]->shape;
    strata_tensor *zero = strata_scalar(node->graph, labels->dtype, 0);
    strata_tensor *classes = strata_scalar(node->graph, labels->dtype, (double)shape.dims[shape.rank - 1]);
    strata_tensor *valid = strata_mul(strata_cast(strata_greater_equal(labels, zero), node->dtype),
                                      strata_cast(strata_less(labels, classes), node->dtype));
    return strata_div(valid, valid);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *hits = is_label(node), *zero = strata_scalar(node->graph, node->dtype, 0);
    strata_tensor *taken = strata_where(hits, strata_log_softmax(node->inputs[LOGITS]), zero);
    strata_tensor *loss = strata_neg(strata_reduce_sum(taken, (int[]){-1}, 1, false));
    return strata_mul(loss, one_or_nan(node));
}

const strata_op strata_op_sparse_softmax_cross_entropy = {
    .name = "sparse_softmax_cross_entropy",
    .n_inputs = 2,
    .flags = STRATA_OP_RESOLVED,
    .dims = "...C,...->...",
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

/* ---- sparse_softmax_cross_entropy_grad(logits, labels, dy), dy one value a row: dy (softmax(logits) - (column == label))
 * ---- */

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *logits = node->inputs[LOGITS], *dy = node->inputs[DY];
    STRATA_TRY(check_operands(node, err));
    STRATA_TRY(strata_check_same_dtype(logits, "logits", dy, "dy", err));
    return strata_check_per_row(dy, "dy", logits, err);
}

static void grad_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    strata_channels c = strata_channels_of(call->node->shape);
    for (int64_t row = 0; row < c.rows; row++) {
        int64_t label = label_of(call, row, c.channels);
        double log_sum = strata_row_log_sum_exp(dtype, call->inputs[LOGITS], row, c.channels);
        double dy = label >= 0 ? strata_element_get(dtype, call->inputs[DY], row) : NAN;
        for (int64_t i = 0; i < c.channels; i++) {
            double p = exp(strata_element_get(dtype, call->inputs[LOGITS], row * c.channels + i) - log_sum);
            strata_element_set(dtype, call->output, row * c.channels + i, dy * (p - (i == label)));
        }
    }
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *logits = node->inputs[LOGITS], *hits = is_label(node);
    strata_tensor *dy = strata_column_of(strata_mul(node->inputs[DY], one_or_nan(node)), logits->shape);
    return strata_mul(dy, strata_sub(strata_softmax(logits), strata_cast(hits, node->dtype)));
}

const strata_op strata_op_sparse_softmax_cross_entropy_grad = {
    .name = "sparse_softmax_cross_entropy_grad",
    .n_inputs = 3,
    .flags = STRATA_OP_RESOLVED,
    .dims = "...C,...,...->...C",
    .shape = grad_shape,
    .no_gradient = "for second derivatives build the loss from strata_log_softmax",
    .reference = grad_reference,
    .compose = grad_compose,
    .lower = lower,
};

strata_tensor *strata_sparse_softmax_cross_entropy(strata_tensor *logits, strata_tensor *labels) {
    return strata_node(NULL, &strata_op_sparse_softmax_cross_entropy, 2, (strata_tensor *[]){logits, labels}, NULL);
}
