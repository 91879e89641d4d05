/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that end in softmax or sigmoid, with a cross-entropy, which takes logits: the activation is moved into the loss, as
 * in Keras. The loss then gets the activation's input, so that log and exp cancel and no gradient vanishes, and predictions
 * are the outputs of the activation, which is applied once. */
#include <stddef.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/loss/loss.h"
#include "core/op/ops.h"

const char *strata_loss_activation(const strata_loss *loss, const strata_loss_options *opts) {
    return loss && !opts->from_probabilities ? loss->activation : NULL;
}

static bool is_activation(const strata_tensor *x) {
    return x->op == &strata_op_sigmoid || x->op == &strata_op_softmax;
}

static double number_of(const strata_tensor *x, const char *name) {
    double number = 0;
    for (size_t i = 0; i < sizeof x->op->attrs / sizeof *x->op->attrs && x->op->attrs[i].name; i++)
        if (!strcmp(x->op->attrs[i].name, name))
            memcpy(&number, (const char *)x->attrs + x->op->attrs[i].offset, sizeof number);
    return number;
}

/* Whether all elements are probabilities, since they come from softmax, sigmoid or a clip to 0..1 by ops that only move,
 * select, average or multiply them. *steps limits how many tensors are visited. */
static bool is_probability(const strata_tensor *x, int *steps) {
    static const strata_op *const of_first[] = {
        &strata_op_reshape,    &strata_op_transpose,  &strata_op_cast,        &strata_op_slice,      &strata_op_broadcast_to,
        &strata_op_dropout,    &strata_op_gather,     &strata_op_max_pool2d,  &strata_op_avg_pool2d, &strata_op_print,
        &strata_op_reduce_max, &strata_op_reduce_min, &strata_op_reduce_mean, &strata_op_clip};
    static const strata_op *const of_all[] = {&strata_op_concat, &strata_op_mul, &strata_op_min, &strata_op_max};
    if (--*steps < 0) return false;
    if (is_activation(x)) return true;
    if (x->op == &strata_op_clip && number_of(x, "low") >= 0 && number_of(x, "high") <= 1) return true;
    for (size_t i = 0; i < sizeof of_first / sizeof *of_first; i++)
        if (x->op == of_first[i]) return is_probability(x->inputs[0], steps);
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++) {
        if (x->op != of_all[i]) continue;
        for (int k = 0; k < x->n_inputs; k++)
            if (!is_probability(x->inputs[k], steps)) return false;
        return true;
    }
    return false;
}

bool strata_loss_are_probabilities(const strata_tensor *outputs) {
    int steps = 1000;
    return is_probability(outputs, &steps);
}

/* Whether the transpose moves only axes of one element, so that it is a reshape. */
static bool keeps_order(const strata_tensor *x) {
    const strata_shape from = x->inputs[0]->shape, to = x->shape;
    const int64_t *axes = x->attrs; /* the first field of the transpose's attributes */
    int last = -1;
    for (int i = 0; i < to.rank; i++) {
        const int axis = (int)(axes[i] < 0 ? axes[i] + from.rank : axes[i]);
        if (to.dims[i] == 1) continue;
        if (axis < last) return false;
        last = axis;
    }
    return true;
}

/* The activation that the outputs end in; after it elements are at most moved or cast. NULL: there is none. */
static strata_tensor *ending(strata_tensor *outputs) {
    strata_tensor *x = outputs;
    bool moved = false;
    while (!is_activation(x)) {
        const bool views = x->op == &strata_op_reshape || x->op == &strata_op_cast;
        const bool moves = x->op == &strata_op_slice || (x->op == &strata_op_transpose && !keeps_order(x));
        if (!views && !moves && x->op != &strata_op_transpose) return NULL;
        moved |= moves;
        x = x->inputs[0];
    }
    /* The classes of the outputs (B, C) must be those over which the softmax is computed. */
    const int64_t classes = outputs->shape.rank ? outputs->shape.dims[outputs->shape.rank - 1] : 0;
    return x->op == &strata_op_sigmoid || (!moved && x->shape.dims[x->shape.rank - 1] == classes) ? x : NULL;
}

/* What y would be without the activation that it ends in. */
static strata_tensor *without(strata_tensor *y, const strata_tensor *activation) {
    if (y == activation) return y->inputs[0];
    strata_tensor *x = without(y->inputs[0], activation);
    return y->op == &strata_op_reshape ? strata_reshape(x, y->shape) : strata_node(NULL, y->op, 1, &x, y->attrs);
}

const char *strata_loss_ending(strata_tensor *outputs) {
    const strata_tensor *end = strata_tensor_is_poison(outputs) ? NULL : ending(outputs);
    return end ? end->op->name : NULL;
}

strata_tensor *strata_loss_logits(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *outputs) {
    const char *function = strata_loss_activation(loss, opts);
    if (!function || strata_tensor_is_poison(outputs)) return outputs;
    strata_tensor *end = ending(outputs);
    if (end && !strcmp(end->op->name, function)) return without(outputs, end);
    if (!strata_loss_are_probabilities(outputs)) return outputs;
    const bool sigmoid = !strcmp(function, "sigmoid");
    const char *instead =
        sigmoid ? "train with categorical_crossentropy, or set \"from_probabilities\": true" : "train with binary_crossentropy";
    if (end)
        return strata_graph_poison(outputs->graph, NULL, STRATA_INVALID,
                                   "the model ends in %s, and %s takes logits, to which it applies %s: let the model end in %s "
                                   "or without an activation, or %s",
                                   end->op->name, loss->name, function, function, instead);
    return strata_graph_poison(outputs->graph, NULL, STRATA_INVALID,
                               "the model's outputs are probabilities already, and %s takes logits, to which it applies %s. "
                               "Only a %s that is the model's last layer%s can be moved into the loss: leave out the "
                               "activation or what comes after it%s",
                               loss->name, function, function, sigmoid ? "" : ", over the classes,",
                               sigmoid ? ", or set \"from_probabilities\": true" : "");
}

strata_tensor *strata_loss_predict(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *outputs) {
    if (!loss || !loss->predict || strata_tensor_is_poison(outputs)) return outputs;
    if (loss->activation && strata_loss_are_probabilities(outputs)) return outputs;
    strata_tensor *predictions = loss->predict(opts, outputs);
    if (predictions) return predictions;
    return strata_graph_poison(outputs->graph, NULL, STRATA_INVALID, "loss %s: its predict function returned NULL", loss->name);
}
