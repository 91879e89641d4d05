/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy with dense labels: loss = -sum_c labels log softmax(logits), which is sum_c labels (L - logits) with
 * L = log sum exp logits. Integer labels: sparse_softmax_cross_entropy.c. */
#include "core/op/define.h"
#include "core/op/softmax.h"

extern const strata_op strata_op_softmax_cross_entropy_grad;

/* The operand with respect to which the gradient is taken; the values are those of the kernel's GRADIENT. */
enum { OF_LOSS = 0, OF_LOGITS = 1, OF_LABELS = 2 };

typedef struct grad_attrs {
    int64_t of;
} grad_attrs;

enum { LOGITS, LABELS, DY };

static strata_status shape(strata_tensor *node, strata_error *err) {
    STRATA_TRY(strata_check_rows_pair(node, "logits", "labels", err));
    node->shape = strata_shape_of_rows(node->inputs[LOGITS]->shape);
    return STRATA_OK;
}

static strata_tensor *grad(strata_tensor *node, strata_tensor *dy, int of) {
    grad_attrs attrs = {.of = of};
    return strata_node(NULL, &strata_op_softmax_cross_entropy_grad, 3,
                       (strata_tensor *[]){node->inputs[LOGITS], node->inputs[LABELS], dy}, &attrs);
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[LOGITS] = grad(node, dy, OF_LOGITS);
    dx[LABELS] = grad(node, dy, OF_LABELS);
}

static void reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const void *logits = call->inputs[LOGITS], *labels = call->inputs[LABELS];
    strata_channels c = strata_channels_of(call->node->inputs[LOGITS]->shape);
    for (int64_t row = 0; row < c.rows; row++) {
        double log_sum = strata_row_log_sum_exp(dtype, logits, row, c.channels), loss = 0;
        for (int64_t i = row * c.channels; i < (row + 1) * c.channels; i++)
            loss += strata_element_get(dtype, labels, i) * (log_sum - strata_element_get(dtype, logits, i));
        strata_element_set(dtype, call->output, row, loss);
    }
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const grad_attrs *attrs = node->attrs;
    return strata_cross_entropy_lower(node, "softmax_cross_entropy", strata_dtype_name(node->dtype),
                                      attrs ? (int)attrs->of : OF_LOSS, 4, lowering, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *terms = strata_mul(node->inputs[LABELS], strata_log_softmax(node->inputs[LOGITS]));
    return strata_neg(strata_reduce_sum(terms, (int[]){-1}, 1, false));
}

const strata_op strata_op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .n_inputs = 2,
    .flags = STRATA_OP_RESOLVED,
    .dims = "...C,...C->...",
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

/* ---- softmax_cross_entropy_grad(logits, labels, dy), dy one value a row:
 * of the logits   dy (softmax(logits) sum_c labels - labels)
 * of the labels   dy (L - logits) ---- */

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    int64_t of = ((const grad_attrs *)node->attrs)->of;
    if (of != OF_LOGITS && of != OF_LABELS)
        return strata_fail(err, STRATA_INVALID, "of is %" PRId64 "; it must be %d (logits) or %d (labels)", of, OF_LOGITS,
                           OF_LABELS);
    STRATA_TRY(strata_check_rows_pair(node, "logits", "labels", err));
    STRATA_TRY(strata_check_same_dtype(node->inputs[LOGITS], "logits", node->inputs[DY], "dy", err));
    return strata_check_per_row(node->inputs[DY], "dy", node->inputs[LOGITS], err);
}

static void grad_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const void *logits = call->inputs[LOGITS], *labels = call->inputs[LABELS];
    const bool of_logits = ((const grad_attrs *)call->node->attrs)->of == OF_LOGITS;
    strata_channels c = strata_channels_of(call->node->shape);
    for (int64_t row = 0; row < c.rows; row++) {
        double log_sum = strata_row_log_sum_exp(dtype, logits, row, c.channels), weight = 0;
        double dy = strata_element_get(dtype, call->inputs[DY], row);
        int64_t first = row * c.channels, end = first + c.channels;
        for (int64_t i = first; i < end; i++) weight += strata_element_get(dtype, labels, i);
        for (int64_t i = first; i < end; i++) {
            double minus_log_p = log_sum - strata_element_get(dtype, logits, i);
            double slope = of_logits ? exp(-minus_log_p) * weight - strata_element_get(dtype, labels, i) : minus_log_p;
            strata_element_set(dtype, call->output, i, dy * slope);
        }
    }
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *logits = node->inputs[LOGITS], *labels = node->inputs[LABELS],
                  *dy = strata_column_of(node->inputs[DY], node->shape);
    if (((const grad_attrs *)node->attrs)->of == OF_LABELS) return strata_neg(strata_mul(dy, strata_log_softmax(logits)));
    strata_tensor *weighted = strata_mul(strata_softmax(logits), strata_sum_of_rows(labels));
    return strata_mul(dy, strata_sub(weighted, labels));
}

const strata_op strata_op_softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .n_inputs = 3,
    .flags = STRATA_OP_RESOLVED,
    .attrs_bytes = sizeof(grad_attrs),
    .attrs = {{"of", STRATA_ATTR_INT, offsetof(grad_attrs, of)}},
    .words = (const strata_attr_words[]){{"of", (const char *const[]){"loss", "logits", "labels", NULL}}, {NULL, NULL}},
    .dims = "...C,...C,...->...C",
    .shape = grad_shape,
    .no_gradient = "for second derivatives build the loss from strata_log_softmax",
    .reference = grad_reference,
    .compose = grad_compose,
    .lower = lower,
};

strata_tensor *strata_softmax_cross_entropy(strata_tensor *logits, strata_tensor *labels) {
    return strata_node(NULL, &strata_op_softmax_cross_entropy, 2, (strata_tensor *[]){logits, labels}, NULL);
}
