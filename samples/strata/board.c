/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the numbers of a training for TensorBoard. */
#include "board.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "strata/option.h"
#include "strata/text.h"

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

/* Adds the model as a text in Markdown: a block of code with a line for each value. */
static strata_status add_model(const board *b, const strata_model *model, strata_error *err) {
    strata_text text = {0};
    char *json = NULL, *block = NULL;
    STRATA_TRY(strata_model_to_json(model, &json, err));
    cJSON *tree = cJSON_Parse(json);
    char *lines = cJSON_Print(tree);
    strata_text_add(&text, "```json\n%s\n```", lines ? lines : json);
    cJSON_free(lines);
    cJSON_Delete(tree);
    free(json);
    STRATA_TRY(strata_text_take(&text, &block, NULL, err));
    const strata_status status = strata_events_text(b->train, "model", 0, block, err);
    free(block);
    return status;
}

/* Makes the nodes of the graph: one for each layer, and one for each input of the model, which is a name that no earlier layer
 * has. Returns how many nodes there are. */
static int make_nodes(const strata_model_summary *summary, const char **names, strata_event_node *nodes) {
    static const char *const only_input[] = {"input"};
    int n = 0;
    for (int i = 0; i < summary->n_layers; i++) {
        const strata_layer_summary *layer = &summary->layers[i];
        const int known = n;
        strata_event_node own = {.name = layer->name, .op = layer->kind, .shape = layer->output};
        own.n_inputs = layer->n_inputs < STRATA_MAX_SUMMARY_INPUTS ? layer->n_inputs : STRATA_MAX_SUMMARY_INPUTS;
        own.inputs = layer->inputs;
        if (!layer->n_inputs) { /* in a sequential model the input is the output of the layer before */
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

/* ---- the first examples as one picture ---- */

/* The picture is a grid of SIDE x SIDE examples, with lines of GAP pixels between them. */
enum { SIDE = 5, GAP = 2, LEAST_PIXELS = 8, MOST_PIXELS = 256 };

static bool is_side(int64_t pixels) {
    return pixels >= LEAST_PIXELS && pixels <= MOST_PIXELS;
}

/* Whether the data's inputs are pictures, (rows, columns) or (rows, columns, channels), which one grid can show. */
static bool has_pictures(const strata_dataset *dataset, strata_shape *out_shape) {
    const strata_element_spec spec = strata_dataset_element_spec(dataset);
    const strata_shape whole = spec.parts[0].shape;
    const int from = spec.is_batch ? 1 : 0, rank = whole.rank - from;
    const strata_dtype dtype = spec.parts[0].dtype;
    if ((rank != 2 && rank != 3) || (dtype != STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_U8)) return false;
    const int64_t *dims = &whole.dims[from];
    *out_shape = STRATA_SHAPE(dims[0], dims[1], rank == 3 ? dims[2] : 1);
    return is_side(dims[0]) && is_side(dims[1]) && (out_shape->dims[2] == 1 || out_shape->dims[2] == 3);
}

/* Copies one example to its place in the grid, whose pixels are f32. */
static void put_picture(strata_array *grid, strata_shape one, int place, const strata_array *from, int64_t first) {
    const int64_t row = one.dims[1] * one.dims[2], n = one.dims[0] * row;
    const int64_t top = place / SIDE * (one.dims[0] + GAP), left = place % SIDE * (one.dims[1] + GAP);
    for (int64_t i = 0; i < n; i++) {
        float *to = (float *)grid->data + (top + i / row) * grid->shape.dims[1] * one.dims[2] + left * one.dims[2] + i % row;
        *to = from->dtype == STRATA_DTYPE_U8 ? (float)((const unsigned char *)from->data)[first * n + i] / 255
                                             : ((const float *)from->data)[first * n + i];
    }
}

/* Scales the pixels to 0..1 if a stage of the pipeline has moved some of them out of this range. */
static void scale_pixels(strata_array *grid) {
    float *pixels = grid->data, least = 0, most = 1;
    const int64_t n = strata_shape_elements(grid->shape);
    for (int64_t i = 0; i < n; i++) {
        if (pixels[i] < least) least = pixels[i];
        if (pixels[i] > most) most = pixels[i];
    }
    for (int64_t i = 0; i < n; i++) pixels[i] = (pixels[i] - least) / (most - least);
}

/* Adds a picture of the first examples of an epoch as the model sees them: shuffled and augmented, if the data are. */
static strata_status add_pictures(const board *b, strata_error *err) {
    strata_iterator *iterator = NULL;
    strata_array grid = {0};
    strata_shape one;
    if (!has_pictures(b->dataset, &one)) return STRATA_OK;
    STRATA_TRY(strata_array_create(
        STRATA_DTYPE_F32, STRATA_SHAPE(SIDE * (one.dims[0] + GAP) - GAP, SIDE * (one.dims[1] + GAP) - GAP, one.dims[2]), &grid,
        err));
    strata_status status = strata_iterator_create(b->dataset, 0, 0, 0, &iterator, err);
    bool more = true;
    for (int n = 0; !status && more && n < SIDE * SIDE;) {
        strata_element element = {0};
        status = strata_iterator_next(iterator, &element, &more, err);
        const int64_t picture = strata_shape_elements(one);
        const int64_t there = !status && more ? strata_shape_elements(element.parts[0].shape) / picture : 0;
        for (int64_t i = 0; i < there && n < SIDE * SIDE; i++) put_picture(&grid, one, n++, &element.parts[0], i);
        strata_element_finish(&element);
    }
    strata_iterator_destroy(iterator);
    scale_pixels(&grid);
    if (!status) status = strata_events_image(b->train, "examples", 0, &grid, err);
    strata_array_finish(&grid);
    return status;
}

int board_open(board *b, const char *folder, strata_model *model, const strata_optimizer *optimizer,
               const strata_dataset *dataset, int64_t batch, bool classifies) {
    strata_error err = {0};
    const int64_t size = strata_dataset_size(dataset); /* below 0: the size of the pipeline is not known */
    *b = (board){.folder = folder, .classifies = classifies, .dataset = dataset, .batch = size < batch ? size : batch};
    strata_status status = open_part(b, "train", &b->train, &err);
    if (!status) status = add_model(b, model, &err);
    if (!status) status = add_graph(b, model, &err);
    if (!status) status = add_pictures(b, &err);
    const double rate = strata_number_or(optimizer->learning_rate, strata_optimizer_default_rate(optimizer->name));
    const strata_hyperparameter parameters[] = {{.name = "optimizer", .text = optimizer->name},
                                                {.name = "learning rate", .number = rate},
                                                {.name = "batch", .number = (double)batch}};
    const char *const metrics[] = {"epoch_loss"};
    if (!status) status = strata_events_hyperparameters(b->train, parameters, 3, metrics, 1, &err);
    if (!status) status = strata_events_flush(b->train, &err); /* a folder that cannot be written is reported now */
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
