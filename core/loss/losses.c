/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of losses, and functions that several losses use. */
#include <string.h>

#include "core/graph/graph.h"
#include "core/loss/loss.h"

static const strata_loss *const losses[] = {
#define STRATA_LOSS(name) &strata_loss_##name,
#include "core/loss/losses.def"

#undef STRATA_LOSS
};
enum { N_LOSSES = sizeof losses / sizeof *losses };

strata_status strata_loss_find(const char *name, const strata_loss **out_loss, strata_error *err) {
    char names[256] = "";
    for (int i = 0; i < N_LOSSES; i++) {
        if (!strcmp(losses[i]->name, name)) {
            *out_loss = losses[i];
            return STRATA_OK;
        }
        if (i) strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, losses[i]->name, sizeof names - strlen(names) - 1);
    }
    return strata_fail(err, STRATA_INVALID, "there is no loss \"%s\"; there are: %s", name, names);
}

strata_dtype strata_loss_label_dtype(const strata_loss *loss) {
    return loss->answers == STRATA_ANSWERS_CLASS ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32;
}

strata_shape strata_loss_label_shape(const strata_loss *loss, strata_shape output) {
    if (loss->answers == STRATA_ANSWERS_CLASS) return STRATA_SHAPE();
    bool one = loss->answers != STRATA_ANSWERS_DISTRIBUTION && strata_shape_elements(output) == 1;
    return one ? STRATA_SHAPE() : output;
}

strata_status strata_loss_check_output(const strata_loss *loss, strata_shape output, strata_error *err) {
    bool classes = loss->answers == STRATA_ANSWERS_CLASS || loss->answers == STRATA_ANSWERS_DISTRIBUTION;
    if (!classes || (output.rank == 1 && output.dims[0] > 1)) return STRATA_OK;
    if (output.rank == 1)
        return strata_fail(
            err, STRATA_INVALID,
            "model: it has one output; %s needs one for each class (a single yes or no is binary_crossentropy's)", loss->name);
    return strata_fail(err, STRATA_INVALID, "model: its outputs are %s an example; %s needs one axis, the classes",
                       strata_shape_text(output).text, loss->name);
}

strata_tensor *strata_loss_match(strata_tensor *outputs, strata_tensor *labels) {
    return strata_reshape(labels, strata_tensor_shape(outputs));
}

strata_tensor *strata_loss_mean(strata_tensor *each) {
    strata_shape shape = strata_tensor_shape(each);
    if (strata_shape_elements(shape) == shape.dims[0]) return strata_reshape(each, STRATA_SHAPE(shape.dims[0]));
    return strata_reduce_mean(strata_flatten(each), (int[]){1}, 1, false);
}

strata_tensor *strata_loss_one_hot(strata_tensor *labels, int64_t classes) {
    strata_tensor *each = strata_one_hot(labels, classes, STRATA_DTYPE_F32);
    return strata_div(each, strata_reduce_sum(each, (int[]){1}, 1, true)); /* 0 / 0 for a label out of range */
}

strata_tensor *strata_loss_smooth(strata_tensor *labels, double smoothing, int64_t classes) {
    if (smoothing == 0) return labels;
    strata_graph *graph = strata_tensor_graph(labels);
    strata_tensor *kept = strata_scalar(graph, STRATA_DTYPE_F32, 1 - smoothing);
    return strata_add(strata_mul(labels, kept), strata_scalar(graph, STRATA_DTYPE_F32, smoothing / (double)classes));
}

strata_status strata_loss_check_smoothing(strata_loss_options *opts, strata_error *err) {
    if (opts->label_smoothing >= 0 && opts->label_smoothing < 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "label_smoothing is %g; it must be at least 0 and below 1", opts->label_smoothing);
}

/* ---- in any graph ---- */

strata_tensor *strata_loss_convert_labels(const strata_loss *loss, strata_tensor *outputs, strata_tensor *labels) {
    const strata_shape shape = strata_tensor_shape(outputs);
    const bool classes = strata_tensor_shape(labels).rank == 1 && !strata_dtype_is_float(strata_tensor_dtype(labels));
    if (loss->answers == STRATA_ANSWERS_DISTRIBUTION && classes) return strata_loss_one_hot(labels, shape.dims[shape.rank - 1]);
    return strata_cast(labels, strata_loss_label_dtype(loss));
}

strata_tensor *strata_example_losses(const char *name, const strata_loss_options *opts, strata_tensor *outputs,
                                     strata_tensor *labels) {
    const strata_loss *loss = NULL;
    strata_loss_options settings = opts ? *opts : (strata_loss_options){0};
    strata_error err = {0};
    if (!outputs || strata_tensor_is_poison(outputs)) return outputs;
    if (!labels || strata_tensor_is_poison(labels)) return labels;
    const strata_shape all = strata_tensor_shape(outputs);
    strata_shape output = {.rank = all.rank > 0 ? all.rank - 1 : 0}; /* the shape for one example */
    for (int i = 0; i < output.rank; i++) output.dims[i] = all.dims[i + 1];
    strata_status status = strata_loss_find(name, &loss, &err);
    if (!status && loss->check) status = loss->check(&settings, &err);
    if (!status && all.rank < 1) status = strata_fail(&err, STRATA_INVALID, "losses: outputs have no axis of examples");
    if (!status) status = strata_loss_check_output(loss, output, &err);
    if (status) return strata_graph_poison(strata_tensor_graph(outputs), NULL, status, "%s", err.message);
    outputs = strata_loss_logits(loss, &settings, outputs);
    if (strata_tensor_is_poison(outputs)) return outputs;
    return loss->build(&settings, outputs, strata_loss_convert_labels(loss, outputs, labels));
}
