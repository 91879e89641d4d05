/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of a training on their way to TensorBoard. */
#include "board.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/base/text.h"

static strata_status add_scalar(strata_events *events, const char *prefix, const char *name, int64_t step, double value,
                                strata_error *err) {
    char tag[128];
    snprintf(tag, sizeof tag, "%s_%s", prefix, name);
    return strata_events_scalar(events, tag, step, value, err);
}

static strata_status add_metrics(const board *b, strata_events *events, int64_t epoch, const strata_metrics *m,
                                 strata_error *err) {
    STRATA_TRY(add_scalar(events, "epoch", "loss", epoch, m->loss, err));
    if (b->classifies) STRATA_TRY(add_scalar(events, "epoch", "accuracy", epoch, m->accuracy, err));
    for (int i = 0; i < m->n; i++) STRATA_TRY(add_scalar(events, "epoch", m->more[i].name, epoch, m->more[i].value, err));
    return STRATA_OK;
}

static strata_status open_part(const board *b, const char *part, strata_events **out, strata_error *err) {
    strata_text path = {0};
    char *folder = NULL;
    strata_text_add(&path, "%s/%s", b->folder, part);
    STRATA_TRY(strata_text_take(&path, &folder, NULL, err));
    const strata_status status = strata_events_create(folder, out, err);
    free(folder);
    return status;
}

/* As Markdown: a block of code. */
static strata_status add_model(const board *b, const strata_model *model, strata_error *err) {
    strata_text text = {0};
    char *json = NULL, *block = NULL;
    STRATA_TRY(strata_model_to_json(model, &json, err));
    strata_text_add(&text, "```json\n%s\n```", json);
    free(json);
    STRATA_TRY(strata_text_take(&text, &block, NULL, err));
    const strata_status status = strata_events_text(b->train, "model", 0, block, err);
    free(block);
    return status;
}

/* The inputs are nodes too: each name that no layer before has. Returns how many nodes there are. */
static int make_nodes(const strata_model_summary *summary, const char **names, strata_event_node *nodes) {
    static const char *const only_input[] = {"input"};
    int n = 0;
    for (int i = 0; i < summary->n_layers; i++) {
        const strata_layer_summary *layer = &summary->layers[i];
        const int known = n;
        strata_event_node own = {.name = layer->name, .op = layer->kind, .shape = layer->output};
        own.n_inputs = layer->n_inputs < STRATA_MAX_SUMMARY_INPUTS ? layer->n_inputs : STRATA_MAX_SUMMARY_INPUTS;
        own.inputs = layer->inputs;
        if (!layer->n_inputs) { /* sequential: what the layer before gives */
            own.n_inputs = 1;
            names[i] = i ? summary->layers[i - 1].name : only_input[0];
            own.inputs = &names[i];
        }
        for (int k = 0; k < own.n_inputs; k++) {
            int found = 0;
            while (found < known && strcmp(nodes[found].name, own.inputs[k])) found++;
            if (found == known) nodes[n++] = (strata_event_node){.name = own.inputs[k], .op = "input"};
        }
        nodes[n++] = own;
    }
    return n;
}

static strata_status add_graph(const board *b, strata_model *model, strata_error *err) {
    strata_model_summary summary = {0};
    STRATA_TRY(strata_model_summarize(model, b->batch < 1 ? 1 : b->batch, &summary, err));
    const size_t n = (size_t)summary.n_layers;
    const char **names = calloc(n + 1, sizeof *names);
    strata_event_node *nodes = calloc(n * (STRATA_MAX_SUMMARY_INPUTS + 1) + 1, sizeof *nodes);
    strata_status status = STRATA_OK;
    if (names && nodes)
        status = strata_events_graph(b->train, nodes, make_nodes(&summary, names, nodes), err);
    else
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a graph of %d layers", summary.n_layers);
    free(nodes);
    free(names);
    strata_model_summary_finish(&summary);
    return status;
}

int board_open(board *b, const char *folder, strata_model *model, const strata_optimizer *optimizer,
               const strata_dataset *dataset, int64_t batch, bool classifies) {
    strata_error err = {0};
    const int64_t size = strata_dataset_size(dataset); /* below 0: a pipeline that does not know it */
    *b = (board){.folder = folder, .classifies = classifies, .dataset = dataset, .batch = size < batch ? size : batch};
    strata_status status = open_part(b, "train", &b->train, &err);
    if (!status) status = add_model(b, model, &err);
    if (!status) status = add_graph(b, model, &err);
    const double rate =
        optimizer->learning_rate > 0 ? optimizer->learning_rate : strata_optimizer_default_rate(optimizer->name);
    const strata_hyperparameter parameters[] = {{.name = "optimizer", .text = optimizer->name},
                                                {.name = "learning rate", .number = rate},
                                                {.name = "batch", .number = (double)batch}};
    const char *const metrics[] = {"epoch_loss"};
    if (!status) status = strata_events_hyperparameters(b->train, parameters, 3, metrics, 1, &err);
    if (!status) status = strata_events_flush(b->train, &err); /* a folder that cannot be written is told now */
    return status ? report(FAILING_DATA, strata_fail_in(&err, status, "--tensorboard"), &err) : EXIT_OK;
}

static strata_status add_weights(const board *b, int64_t epoch, strata_model *model, strata_error *err) {
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        const strata_parameter parameter = strata_model_parameter(model, i);
        strata_array value = {0};
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, parameter.shape, &value, err));
        strata_status status = strata_model_get_parameter(model, i, &value, err);
        if (!status) status = strata_events_histogram(b->train, parameter.name, epoch, &value, err);
        strata_array_finish(&value);
        STRATA_TRY(status);
    }
    return STRATA_OK;
}

static double norm_of(const strata_array *array) {
    double squares = 0;
    for (int64_t i = 0; i < strata_shape_elements(array->shape); i++)
        squares += (double)((const float *)array->data)[i] * (double)((const float *)array->data)[i];
    return sqrt(squares);
}

static strata_status add_gradients(const board *b, int64_t epoch, strata_model *model, strata_error *err) {
    const int n = strata_model_n_parameters(model);
    char tag[200];
    if (b->batch < 1) return STRATA_OK;
    strata_array *gradients = calloc((size_t)n + 1, sizeof *gradients);
    strata_status status = gradients ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for gradients");
    for (int i = 0; i < n && !status; i++)
        status = strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &gradients[i], err);
    if (!status) status = strata_model_get_gradients(model, b->dataset, b->batch, gradients, err);
    for (int i = 0; i < n && !status; i++) {
        const strata_parameter parameter = strata_model_parameter(model, i);
        if (parameter.state) continue;
        snprintf(tag, sizeof tag, "gradients/%.180s", parameter.name);
        status = strata_events_histogram(b->train, tag, epoch, &gradients[i], err);
        snprintf(tag, sizeof tag, "gradient_norms/%.180s", parameter.name);
        if (!status) status = strata_events_scalar(b->train, tag, epoch, norm_of(&gradients[i]), err);
    }
    for (int i = 0; gradients && i < n; i++) strata_array_finish(&gradients[i]);
    free(gradients);
    return status;
}

strata_status board_add(board *b, const strata_progress *p, strata_model *model, strata_error *err) {
    if (!b->train) return STRATA_OK;
    if (!p->epoch_end) {
        STRATA_TRY(add_scalar(b->train, "batch", "loss", p->total_step, p->loss, err));
        return add_scalar(b->train, "batch", "learning_rate", p->total_step, p->learning_rate, err);
    }
    STRATA_TRY(add_metrics(b, b->train, p->epoch, &p->metrics, err));
    STRATA_TRY(add_weights(b, p->epoch, model, err));
    STRATA_TRY(add_gradients(b, p->epoch, model, err));
    if (!p->validation.examples) return STRATA_OK;
    if (!b->validation) STRATA_TRY(open_part(b, "validation", &b->validation, err));
    return add_metrics(b, b->validation, p->epoch, &p->validation, err);
}

int board_close(board *b, const strata_metrics *test) {
    strata_error err = {0};
    strata_status status = STRATA_OK;
    if (b->train && test->examples) status = strata_events_scalar(b->train, "test_loss", 0, test->loss, &err);
    if (!status && b->train && test->examples && b->classifies)
        status = strata_events_scalar(b->train, "test_accuracy", 0, test->accuracy, &err);
    if (!status && b->train) status = strata_events_flush(b->train, &err);
    if (!status && b->validation) status = strata_events_flush(b->validation, &err);
    strata_events_destroy(b->train);
    strata_events_destroy(b->validation);
    *b = (board){0};
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}
