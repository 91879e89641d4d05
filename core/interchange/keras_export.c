/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a model as a .keras file of Keras 3: finds the layers of Keras, and the calls of them, that compute what predict
 * computes. It also builds a graph, as in the build that declares parameters, so that the shapes are known. */
#include "core/interchange/keras_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/data/format/zip.h"
#include "core/data/prepare/preprocessing.h"
#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "strata/interchange.h"

/* The most Keras layers for one Strata layer: the layer itself and its activation. */
enum { MOST_EACH = 2 };

void strata_keras_refuse(strata_keras_export *ex, const char *kind, const char *name, const char *why) {
    strata_text_add(&ex->unsupported, "%s%.60s (%.60s)%s", ex->unsupported.n_bytes ? ", " : "", kind, name, why);
}

/* ---- layers and calls ---- */

/* Makes a name with '_' instead of '/', which Keras does not allow, and with a number at the end if another layer has the
 * name. */
static void choose_name(const strata_keras_export *ex, const char *base, char *out) {
    int n = 0;
    bool taken = true;
    for (; taken; n++) {
        snprintf(out, STRATA_KERAS_NAME_BYTES, n ? "%.100s_%d" : "%.100s", base, n);
        for (char *at = out; *at; at++)
            if (*at == '/') *at = '_';
        taken = false;
        for (int i = 0; i < ex->n_layers; i++) taken |= !strcmp(ex->layers[i].name, out);
    }
}

/* Adds a layer of a class of Keras, and returns its index. layer NULL: it belongs to the input or the output of the
 * model. */
static int add_layer(strata_keras_export *ex, const char *class_name, const strata_layer *layer, bool part, const char *base) {
    strata_keras_layer *own = &ex->layers[ex->n_layers];
    *own = (strata_keras_layer){.layer = layer, .part = part};
    if (!strata_keras_find_class(class_name, &own->row)) {
        own->row = (strata_keras_class){.fields = "", .weights = ""};
        snprintf(own->row.name, sizeof own->row.name, "%s", class_name);
    }
    choose_name(ex, base, own->name);
    return ex->n_layers++;
}

static int add_call(strata_keras_export *ex, int layer, const int *inputs, int n, strata_tensor *y, int mask) {
    strata_keras_call *call = &ex->calls[ex->n_calls];
    *call = (strata_keras_call){.layer = layer, .n_inputs = n, .y = y, .mask = mask};
    call->inputs = ex->links + ex->n_links;
    ex->n_links += n;
    for (int i = 0; i < n; i++) {
        call->inputs[i] = inputs[i];
        ex->calls[inputs[i]].n_uses++;
    }
    const strata_tensor *of = n ? ex->calls[inputs[0]].y : y;
    ex->layers[layer].shape = strata_tensor_shape(of);
    ex->layers[layer].dtype = strata_tensor_dtype(of);
    return ex->n_calls++;
}

/* The index of the Keras layer that an earlier call of this layer has made; -1: there is none. */
static int find_made(const strata_keras_export *ex, const strata_layer *layer, bool part, const char *class_name) {
    for (int i = 0; i < ex->n_layers; i++)
        if (ex->layers[i].layer == layer && ex->layers[i].part == part && !strcmp(ex->layers[i].row.name, class_name)) return i;
    return -1;
}

/* Adds a call of a Keras layer that does a part of the work of `layer`: its activation, or its sum. */
static int call_part(strata_keras_export *ex, const char *class_name, const strata_layer *layer, const char *function,
                     const int *inputs, int n, strata_tensor *y, int mask) {
    int made = layer ? find_made(ex, layer, true, class_name) : -1;
    if (made < 0) {
        char base[STRATA_KERAS_NAME_BYTES];
        const bool sum = layer && !function;
        snprintf(base, sizeof base, sum ? "%.90s" : "%.90s_activation", layer ? layer->name : "predict");
        made = add_layer(ex, class_name, layer, true, base);
        ex->layers[made].function = function;
        if (function && !strata_keras_has_activation(function))
            strata_keras_refuse(ex, "activation", ex->layers[made].name, function);
    }
    return add_call(ex, made, inputs, n, y, mask);
}

/* The mask of the layer's output, if its inputs have the mask `mask`. Refuses the layer if Keras would compute something
 * else. */
static int output_mask(strata_keras_export *ex, const strata_layer *layer, int mask) {
    const char *kind = layer->kind->name;
    const bool recurrent = !strcmp(kind, "lstm") || !strcmp(kind, "gru");
    const strata_recurrent_layer_options *o = recurrent ? layer->options : NULL;
    const strata_keras_mask behind = strata_keras_mask_behind(kind, o && o->return_sequences, o && o->go_backwards);
    if (mask && (mask < 0 || behind == STRATA_KERAS_MASK_DIFFERS))
        strata_keras_refuse(ex, kind, layer->name, ": behind an embedding with mask_zero");
    return behind == STRATA_KERAS_MASK_GOES_ON ? mask : 0;
}

/* ---- the layers ---- */

static int export_layer(strata_keras_export *ex, const strata_layer *layer, int number, const int *inputs, int n);

static int export_residual(strata_keras_export *ex, const strata_layer *layer, int input, strata_tensor *y, int mask) {
    const char *function = ((const strata_residual_options *)layer->options)->activation;
    int ends[2] = {input, input};
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < layer->branches[b].n; i++)
            ends[b] = export_layer(ex, &layer->branches[b].layers[i], 1, &ends[b], 1);
    int sum = call_part(ex, "Add", layer, NULL, ends, 2, y, mask);
    return function ? call_part(ex, "Activation", layer, function, &sum, 1, y, mask) : sum;
}

/* Exports a call of the layer for n inputs. Returns the Keras call that has the same value. */
static int export_layer(strata_keras_export *ex, const strata_layer *layer, int number, const int *inputs, int n) {
    strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
    strata_keras_class row;
    const char *kind = layer->kind->name;
    int mask = ex->calls[inputs[0]].mask;
    for (int i = 0; i < n; i++) {
        tensors[i] = ex->calls[inputs[i]].y;
        mask = strata_keras_common_mask(mask, ex->calls[inputs[i]].mask);
    }
    strata_tensor *y = strata_layer_build(&ex->context, layer, number, layer->name, tensors, n, NULL);
    if (strata_tensor_is_poison(y)) return inputs[0];
    const int rank = strata_tensor_shape(tensors[0]).rank;
    mask = output_mask(ex, layer, mask);
    if (!layer->kind->own && !strcmp(kind, "residual")) return export_residual(ex, layer, inputs[0], y, mask);
    if (layer->kind->own || !strata_keras_find_kind(kind, rank, &row)) {
        if (number == 1) strata_keras_refuse(ex, kind, layer->name, "");
        row = (strata_keras_class){.fields = "", .weights = ""};
    }
    int made = find_made(ex, layer, false, row.name);
    if (made < 0) {
        made = add_layer(ex, row.name, layer, false, layer->name);
        ex->layers[made].both =
            strata_keras_is_recurrent(&row) && ((const strata_recurrent_layer_options *)layer->options)->bidirectional;
    }
    if (!strcmp(row.kind, "embedding") && ((const strata_embedding_options *)layer->options)->mask_zero) mask = ex->n_calls + 1;
    const int call = add_call(ex, made, inputs, n, y, mask);
    if (strcmp(row.kind, "batch_norm")) return call;
    const char *function = ((const strata_batch_norm_options *)layer->options)->activation;
    return function ? call_part(ex, "Activation", layer, function, &call, 1, y, mask) : call;
}

/* ---- the input and the output ---- */

/* The preprocessing of numbers: the Keras model standardises its input, and converts its output back. Columns of words,
 * dates and texts cannot be exported. */
typedef struct ends {
    strata_preprocessing *p;
    bool standardizes, restores;
} ends;

static void find_ends(strata_keras_export *ex, ends *e) {
    const strata_preprocessing *p = e->p;
    const bool numbers = p->kind == STRATA_PREPROCESSING_TABLE || p->kind == STRATA_PREPROCESSING_ARRAYS;
    for (int i = 0; i < p->n_columns && numbers; i++) {
        static const char *const kinds[] = {"numbers, some of which are missing", "words", "dates", "text"};
        const strata_column *column = &p->columns[i];
        if (column->kind != STRATA_COLUMN_NUMBER || column->has_missing)
            strata_keras_refuse(ex, "the column", column->name ? column->name : "x", ": ");
        if (column->kind != STRATA_COLUMN_NUMBER || column->has_missing)
            strata_text_add(&ex->unsupported, "%s", kinds[column->kind]);
    }
    e->standardizes = numbers && p->n_columns;
    e->restores = p->n_labels && p->labels[0].kind != STRATA_COLUMN_WORDS;
}

static void add_numbers(strata_json_writer *w, const char *key, const strata_column *columns, int n, bool deviations,
                        bool squared) {
    strata_json_key(w, key);
    if (n > 1) strata_json_begin_array(w);
    for (int i = 0; i < n; i++) {
        const double d = columns[i].deviation;
        strata_json_write_double(w, !deviations ? columns[i].mean : squared ? d * d : d);
    }
    if (n > 1) strata_json_end_array(w);
}

/* Adds the Normalization of the input: (x - mean) / sqrt(variance). */
static int standardize(strata_keras_export *ex, const strata_preprocessing *p, int input) {
    strata_json_writer w = {0};
    const int made = add_layer(ex, "Normalization", NULL, true, STRATA_KERAS_STANDARDIZE);
    const bool each = p->n_columns > 1;
    strata_json_key(&w, "axis");
    if (each)
        strata_json_write_int(&w, -1);
    else
        strata_json_write_null(&w);
    add_numbers(&w, "mean", p->columns, p->n_columns, false, false);
    add_numbers(&w, "variance", p->columns, p->n_columns, true, true);
    if (strata_json_take(&w, &ex->layers[made].config, NULL, NULL)) ex->unsupported.failed = true;
    return add_call(ex, made, &input, 1, ex->calls[input].y, 0);
}

/* Adds the Rescaling of the output: y deviation + mean. */
static int restore(strata_keras_export *ex, const strata_preprocessing *p, int output) {
    strata_json_writer w = {0};
    const int made = add_layer(ex, "Rescaling", NULL, true, STRATA_KERAS_RESTORE);
    add_numbers(&w, "scale", p->labels, p->n_labels, true, false);
    add_numbers(&w, "offset", p->labels, p->n_labels, false, false);
    if (strata_json_take(&w, &ex->layers[made].config, NULL, NULL)) ex->unsupported.failed = true;
    return add_call(ex, made, &output, 1, ex->calls[output].y, 0);
}

/* Adds what predict applies to an output, which follows from its loss. It becomes the activation of the dense layer that
 * computes the output, or a layer of its own. */
static int predicted(strata_keras_export *ex, const strata_output_spec *output, int call) {
    const char *function = strata_output_activation(output);
    strata_keras_layer *own = &ex->layers[ex->calls[call].layer];
    if (!function) return call;
    int n_calls = 0;
    for (int i = 0; i < ex->n_calls; i++) n_calls += ex->calls[i].layer == ex->calls[call].layer;
    if (!strcmp(own->row.kind, "dense") && !own->function && !((const strata_dense_options *)own->layer->options)->activation &&
        n_calls == 1 && ex->calls[call].n_uses == 1) {
        own->function = function;
        return call;
    }
    return call_part(ex, "Activation", NULL, function, &call, 1, ex->calls[call].y, 0);
}

static strata_status walk(strata_keras_export *ex, int *values, const ends *e) {
    strata_model *model = ex->model;
    for (int i = 0; i < model->n_inputs; i++) {
        const strata_input_spec *input = &model->inputs[i];
        const int made = add_layer(ex, "InputLayer", NULL, false, strata_model_input_port(model, i).name);
        strata_tensor *x = strata_model_make_input(model, ex->graph, i, input->dtype, 1);
        ex->context.inputs[ex->context.n_inputs++] = x;
        values[input->value] = add_call(ex, made, NULL, 0, x, 0);
        if (input->dtype != STRATA_DTYPE_F32 && input->dtype != STRATA_DTYPE_I32)
            strata_keras_refuse(ex, "input", ex->layers[made].name, ": its type");
    }
    if (e->standardizes) values[model->inputs[0].value] = standardize(ex, e->p, values[model->inputs[0].value]);
    for (int v = 0; v < model->n_values; v++) {
        const strata_value *value = model->values[v];
        int taken[STRATA_MAX_LAYER_INPUTS] = {0};
        if (value->layer < 0) continue;
        for (int i = 0; i < value->n_inputs; i++) taken[i] = values[value->inputs[i]];
        values[v] = export_layer(ex, &model->list.layers[value->layer], value->number, taken, value->n_inputs);
    }
    STRATA_TRY(strata_graph_check(ex->graph, ex->err));
    for (int i = 0; i < model->n_outputs; i++) ex->calls[values[model->outputs[i].value]].n_uses++;
    for (int i = 0; i < model->n_outputs; i++)
        ex->outputs[i] = predicted(ex, &model->outputs[i], values[model->outputs[i].value]);
    if (e->restores) ex->outputs[0] = restore(ex, e->p, ex->outputs[0]);
    strata_keras_put_in_order(ex);
    ex->chain = !model->functional;
    for (int i = 0; i < ex->n_calls; i++)
        ex->chain &= ex->calls[i].n_inputs < 2 && strcmp(ex->layers[ex->calls[i].layer].row.kind, "multi_head_attention");
    return STRATA_OK;
}

/* ---- the file ---- */

/* Writes metadata.json. Keras does not need its contents; label, loss and notes are for reading the file back. */
static strata_status write_metadata(const strata_keras_export *ex, char **out_text, size_t *out_bytes) {
    const strata_model *model = ex->model;
    char *losses = NULL;
    STRATA_TRY(strata_model_losses_text(model, &losses, ex->err));
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    strata_json_write_string(strata_json_key(&w, "keras_version"), "3.0.0");
    strata_json_begin_object(strata_json_key(&w, STRATA_KERAS_METADATA));
    strata_json_write_string(strata_json_key(&w, "label"), model->label);
    if (losses) {
        strata_json_write_string(strata_json_key(&w, "loss"), losses);
    }
    free(losses);
    strata_json_begin_object(strata_json_key(&w, "notes"));
    for (int i = 0; i < model->notes.n; i++) {
        const char *key = model->notes.items[i].key;
        strata_json_write_string(strata_json_key(&w, !strncmp(key, "strata.", 7) ? key + 7 : key), model->notes.items[i].text);
    }
    strata_json_end_object(&w);
    strata_json_end_object(&w);
    strata_json_end_object(&w);
    return strata_json_take(&w, out_text, out_bytes, ex->err);
}

static strata_status read_back(const char *path, void *context, strata_error *err) {
    strata_model *model = NULL;
    (void)context;
    const strata_status status = strata_model_load_keras(path, &model, err);
    strata_model_destroy(model);
    return status;
}

static strata_status write_file(strata_keras_export *ex) {
    char *metadata = NULL, *config = NULL;
    void *weights = NULL;
    size_t n_metadata = 0, n_config = 0, n_weights = 0;
    strata_status status = strata_keras_write_config(ex, &config, &n_config);
    if (!status && ex->unsupported.failed) status = strata_fail(ex->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", ex->path);
    if (!status && ex->unsupported.n_bytes)
        status = strata_fail(
            ex->err, STRATA_UNSUPPORTED, "%s: Keras has no counterpart of: %.800s%s", ex->path, ex->unsupported.bytes,
            strstr(ex->unsupported.bytes, "the column") ? ". strata export --c writes a program that takes such "
                                                          "columns"
                                                        : "");
    if (!status) status = write_metadata(ex, &metadata, &n_metadata);
    if (!status) status = strata_keras_write_weights(ex, &weights, &n_weights);
    if (!status) {
        const strata_zip_content members[] = {{"metadata.json", metadata, n_metadata},
                                              {"config.json", config, n_config},
                                              {"model.weights.h5", weights, n_weights}};
        status = strata_zip_write(ex->path, members, 3, &(strata_file_check){read_back, NULL}, ex->err);
    }
    free(metadata);
    free(config);
    free(weights);
    return status;
}

/* The number of layers, including those inside of other layers. */
static size_t count_layers(const strata_layer_list *list) {
    size_t n = (size_t)list->n;
    for (int i = 0; i < list->n; i++)
        for (int b = 0; b < STRATA_MAX_BRANCHES; b++) n += count_layers(&list->layers[i].branches[b]);
    return n;
}

/* Allocates memory for each call of each layer with its parts, and for the input and the output. */
static bool make_room(strata_keras_export *ex) {
    const strata_model *model = ex->model;
    size_t most = 2 * (STRATA_MAX_INPUTS + STRATA_MAX_OUTPUTS), links = 0;
    for (int v = 0; v < model->n_values; v++) {
        const strata_value *value = model->values[v];
        if (value->layer < 0) continue;
        const strata_layer_list one = {&model->list.layers[value->layer], 1};
        most += MOST_EACH * count_layers(&one);
        links += (size_t)value->n_inputs;
    }
    ex->layers = calloc(most, sizeof *ex->layers);
    ex->calls = calloc(most, sizeof *ex->calls);
    ex->order = calloc(most, sizeof *ex->order);
    ex->links = calloc(links + 2 * most, sizeof *ex->links);
    ex->values = calloc((size_t)strata_model_all_size(model) + 1, sizeof *ex->values);
    return ex->layers && ex->calls && ex->order && ex->links && ex->values;
}

strata_status strata_model_save_keras(strata_model *model, const char *path, strata_error *err) {
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_model_check_readable(model, "save_keras", err));
    strata_keras_export ex = {.model = model, .path = path, .err = err};
    ends e = {0};
    int *values = calloc((size_t)model->n_values, sizeof *values);
    ex.context = (strata_layer_context){.declaring = true, .parameters = &ex.parameters};
    strata_status status = values && make_room(&ex) ? strata_model_read_all(model, ex.values, err)
                                                    : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    if (!status && strata_model_note(model, "preprocessing")) {
        status = strata_model_preprocessing(model, &e.p, err);
        if (!status) find_ends(&ex, &e);
    }
    if (!status) status = strata_graph_create(&ex.graph, err);
    if (!status) ex.graph->activations = model->registry ? model->registry->activations : NULL;
    if (!status) status = walk(&ex, values, &e);
    if (!status) status = write_file(&ex);
    strata_preprocessing_destroy(e.p);
    strata_graph_destroy(ex.graph);
    strata_parameters_finish(&ex.parameters);
    strata_text_finish(&ex.unsupported);
    for (int i = 0; i < ex.n_layers; i++) free(ex.layers[i].config);
    free(ex.layers);
    free(ex.calls);
    free(ex.order);
    free(ex.links);
    free(ex.values);
    free(values);
    return status;
}
