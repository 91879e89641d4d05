/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a model as a .keras file of Keras 3: finds the layers of Keras, and the calls of them, that compute what predict
 * computes. */
#include "core/interchange/keras_export.h"

#include <stdio.h>

#include "strata/formats.h"
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
static int add_layer(strata_keras_export *ex, const char *class_name, const strata_call *layer, bool part, const char *base) {
    strata_keras_layer *own = &ex->layers[ex->n_layers];
    *own = (strata_keras_layer){.layer = layer, .part = part};
    if (!strata_keras_find_class(class_name, &own->row)) {
        own->row = (strata_keras_class){.fields = "", .weights = ""};
        snprintf(own->row.name, sizeof own->row.name, "%s", class_name);
    }
    choose_name(ex, base, own->name);
    return ex->n_layers++;
}

/* y: the call that has its value. */
static int add_call(strata_keras_export *ex, int layer, const int *inputs, int n, const strata_call *y, int mask) {
    strata_keras_call *call = &ex->calls[ex->n_calls];
    *call = (strata_keras_call){.layer = layer, .n_inputs = n, .shape = y->shape, .dtype = y->dtype, .mask = mask};
    call->inputs = ex->links + ex->n_links;
    ex->n_links += n;
    for (int i = 0; i < n; i++) {
        call->inputs[i] = inputs[i];
        ex->calls[inputs[i]].n_uses++;
    }
    const strata_keras_call *of = n ? &ex->calls[inputs[0]] : call;
    ex->layers[layer].shape = of->shape;
    ex->layers[layer].dtype = of->dtype;
    return ex->n_calls++;
}

/* The index of the Keras layer that an earlier call of this layer has made; -1: there is none. */
static int find_made(const strata_keras_export *ex, const strata_call *layer, bool part, const char *class_name) {
    for (int i = 0; i < ex->n_layers; i++)
        if (ex->layers[i].layer == layer && ex->layers[i].part == part && !strcmp(ex->layers[i].row.name, class_name)) return i;
    return -1;
}

/* Adds a call of a Keras layer that does a part of the work of `layer`: its activation, or its sum. */
static int call_part(strata_keras_export *ex, const char *class_name, const strata_call *layer, const char *function,
                     const int *inputs, int n, const strata_call *y, int mask) {
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
static int output_mask(strata_keras_export *ex, const strata_call *layer, int mask) {
    const char *kind = layer->kind;
    const bool recurrent = !strcmp(kind, "lstm") || !strcmp(kind, "gru");
    const strata_recurrent_layer_options *o = recurrent ? layer->options : NULL;
    const strata_keras_mask behind = strata_keras_mask_behind(kind, o && o->return_sequences, o && o->go_backwards);
    if (mask && (mask < 0 || behind == STRATA_KERAS_MASK_DIFFERS))
        strata_keras_refuse(ex, kind, layer->name, ": behind an embedding with mask_zero");
    return behind == STRATA_KERAS_MASK_GOES_ON ? mask : 0;
}

/* ---- the layers ---- */

/* Exports a call of a layer. Returns the Keras call that has the same value. */
static int export_call(strata_keras_export *ex, const strata_call *call, const int *values) {
    const strata_call *layer = &ex->structure.calls[call->first];
    strata_keras_class row;
    const char *function = NULL;
    int inputs[STRATA_MAX_LAYER_INPUTS], mask = ex->calls[values[call->inputs[0]]].mask, y;
    for (int i = 0; i < call->n_inputs; i++) {
        inputs[i] = values[call->inputs[i]];
        mask = strata_keras_common_mask(mask, ex->calls[inputs[i]].mask);
    }
    mask = output_mask(ex, layer, mask);
    if (!call->own && !strcmp(call->kind, "residual")) {
        function = ((const strata_residual_options *)call->options)->activation;
        y = call_part(ex, "Add", layer, NULL, inputs, 2, call, mask);
        return function ? call_part(ex, "Activation", layer, function, &y, 1, call, mask) : y;
    }
    if (call->own || !strata_keras_find_kind(call->kind, ex->calls[inputs[0]].shape.rank, &row)) {
        if (call == layer) strata_keras_refuse(ex, call->kind, call->name, "");
        row = (strata_keras_class){.fields = "", .weights = ""};
    }
    int made = find_made(ex, layer, false, row.name);
    if (made < 0) {
        made = add_layer(ex, row.name, layer, false, layer->name);
        ex->layers[made].both =
            strata_keras_is_recurrent(&row) && ((const strata_recurrent_layer_options *)call->options)->bidirectional;
    }
    if (!strcmp(row.kind, "embedding") && ((const strata_embedding_options *)call->options)->mask_zero) mask = ex->n_calls + 1;
    y = add_call(ex, made, inputs, call->n_inputs, call, mask);
    if (!strcmp(row.kind, "batch_norm")) function = ((const strata_batch_norm_options *)call->options)->activation;
    return function ? call_part(ex, "Activation", layer, function, &y, 1, call, mask) : y;
}

/* ---- the order of Keras ---- */

/* Visits a call and, recursively, the calls that compute its inputs. after: the visited calls, each after those of its
 * inputs. */
static void reach(strata_keras_export *ex, int index, int *n_reached, int *after, int *n_after) {
    strata_keras_call *call = &ex->calls[index];
    strata_keras_layer *layer = &ex->layers[call->layer];
    if (call->reached) return;
    call->reached = true;
    if (layer->reached < 0) layer->reached = (*n_reached)++;
    for (int i = 0; i < call->n_inputs; i++) reach(ex, call->inputs[i], n_reached, after, n_after);
    after[(*n_after)++] = index;
}

/* Computes the depths. In `after` each call comes after its inputs, so the calls at the end are nearest to the outputs. */
static void measure_depths(strata_keras_export *ex, const int *after, int n_after) {
    for (int i = n_after - 1; i >= 0; i--) {
        strata_keras_call *call = &ex->calls[after[i]];
        strata_keras_layer *layer = &ex->layers[call->layer];
        call->depth = layer->depth = call->depth > layer->depth ? call->depth : layer->depth;
        for (int k = 0; k < call->n_inputs; k++) {
            int *before = &ex->calls[call->inputs[k]].depth;
            if (*before <= call->depth) *before = call->depth + 1;
        }
    }
}

/* Whether layer a comes before layer b. */
static bool in_front(const strata_keras_export *ex, int a, int b) {
    const strata_keras_layer *x = &ex->layers[a], *y = &ex->layers[b];
    return x->depth > y->depth || (x->depth == y->depth && x->reached < y->reached);
}

/* Sorts the layers and calls that the outputs need into the order in which Keras lists them after reading the file: by
 * decreasing depth, and layers of equal depth in the order in which a walk from the outputs reaches them. The names of the
 * groups of weights follow this order ("layers/dense_1" is the second layer of its class). */
static void put_in_order(strata_keras_export *ex) {
    int n_reached = 0, n_after = 0, *after = ex->order; /* this array has room for all calls */
    for (int i = 0; i < ex->n_layers; i++) ex->layers[i].reached = -1;
    for (int i = 0; i < strata_model_n_outputs(ex->model); i++) reach(ex, ex->outputs[i], &n_reached, after, &n_after);
    measure_depths(ex, after, n_after);
    for (int i = 0; i < ex->n_calls; i++)
        if (ex->calls[i].reached) ex->calls[i].number = ex->layers[ex->calls[i].layer].n_calls++;
    ex->n_order = 0;
    for (int i = 0; i < ex->n_layers; i++) {
        int place = ex->n_order;
        if (ex->layers[i].layer && ex->layers[i].reached < 0) continue; /* inputs that no output needs are kept */
        for (; place > 0 && in_front(ex, i, ex->order[place - 1]); place--) ex->order[place] = ex->order[place - 1];
        ex->order[place] = i;
        ex->n_order++;
    }
}

/* ---- the input and the output ---- */

/* Columns of words, dates and texts cannot be exported. */
static void check_columns(strata_keras_export *ex, const strata_preprocessing *p) {
    for (int i = 0; strata_takes_numbers(p) && i < strata_preprocessing_n_columns(p); i++) {
        static const char *const kinds[] = {"numbers, some of which are missing", "words", "dates", "text"};
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_NUMBER && !column.has_missing) continue;
        strata_keras_refuse(ex, "the column", column.name ? column.name : "x", ": ");
        strata_text_add(&ex->unsupported, "%s", kinds[column.kind]);
    }
}

/* Adds the means or deviations of n columns, of features or labels, to the config of a layer. */
static void add_numbers(strata_json_writer *w, const char *key, const strata_preprocessing *p,
                        strata_column_info of(const strata_preprocessing *p, int index), int n, bool deviations) {
    strata_json_key(w, key);
    if (n > 1) strata_json_begin_array(w);
    for (int i = 0; i < n; i++) {
        const double d = of(p, i).deviation;
        strata_json_write_double(w, !deviations ? of(p, i).mean : !strcmp(key, "variance") ? d * d : d);
    }
    if (n > 1) strata_json_end_array(w);
}

/* Adds the layer with this config, and its call with the value of an earlier call. */
static int add_scale(strata_keras_export *ex, const char *class_name, const char *name, strata_json_writer *w, int input) {
    const strata_call y = {.shape = ex->calls[input].shape, .dtype = ex->calls[input].dtype};
    const int made = add_layer(ex, class_name, NULL, true, name);
    if (strata_json_take(w, &ex->layers[made].config, NULL, NULL)) ex->unsupported.failed = true;
    return add_call(ex, made, &input, 1, &y, 0);
}

/* Adds the Normalization of the input: (x - mean) / sqrt(variance). */
static int standardize(strata_keras_export *ex, const strata_preprocessing *p, int input) {
    strata_json_writer w = {0};
    const int n = strata_preprocessing_n_columns(p);
    strata_json_key(&w, "axis");
    if (n > 1)
        strata_json_write_int(&w, -1);
    else
        strata_json_write_null(&w);
    add_numbers(&w, "mean", p, strata_preprocessing_column, n, false);
    add_numbers(&w, "variance", p, strata_preprocessing_column, n, true);
    return add_scale(ex, "Normalization", STRATA_KERAS_STANDARDIZE, &w, input);
}

/* Adds the Rescaling of the output: y deviation + mean. */
static int restore(strata_keras_export *ex, const strata_preprocessing *p, int output) {
    strata_json_writer w = {0};
    const int n = strata_preprocessing_n_labels(p);
    add_numbers(&w, "scale", p, strata_preprocessing_label_column, n, true);
    add_numbers(&w, "offset", p, strata_preprocessing_label_column, n, false);
    return add_scale(ex, "Rescaling", STRATA_KERAS_RESTORE, &w, output);
}

/* Adds what predict applies to an output, which follows from its loss. It becomes the activation of the dense layer that
 * computes the output, or a layer of its own. */
static int predicted(strata_keras_export *ex, const char *function, int call) {
    strata_keras_layer *own = &ex->layers[ex->calls[call].layer];
    if (!function) return call;
    int n_calls = 0;
    for (int i = 0; i < ex->n_calls; i++) n_calls += ex->calls[i].layer == ex->calls[call].layer;
    if (!strcmp(own->row.kind, "dense") && !own->function && !((const strata_dense_options *)own->layer->options)->activation &&
        n_calls == 1 && ex->calls[call].n_uses == 1) {
        own->function = function;
        return call;
    }
    const strata_call y = {.shape = ex->calls[call].shape, .dtype = ex->calls[call].dtype};
    return call_part(ex, "Activation", NULL, function, &call, 1, &y, 0);
}

static void walk(strata_keras_export *ex, int *values) {
    const strata_model_structure *s = &ex->structure;
    const strata_preprocessing *p = ex->preprocessing;
    const int n_inputs = strata_model_n_inputs(ex->model), n_outputs = strata_model_n_outputs(ex->model);
    for (int i = 0; i < n_inputs; i++) {
        const int made = add_layer(ex, "InputLayer", NULL, false, s->calls[i].name);
        values[i] = add_call(ex, made, NULL, 0, &s->calls[i], 0);
        if (s->calls[i].dtype != STRATA_DTYPE_F32 && s->calls[i].dtype != STRATA_DTYPE_I32)
            strata_keras_refuse(ex, "input", ex->layers[made].name, ": its type");
    }
    if (strata_takes_numbers(p)) values[0] = standardize(ex, p, values[0]);
    for (int i = n_inputs; i < s->n_calls; i++) values[i] = export_call(ex, &s->calls[i], values);
    for (int i = 0; i < n_outputs; i++) ex->calls[values[s->outputs[i]]].n_uses++;
    for (int i = 0; i < n_outputs; i++) ex->outputs[i] = predicted(ex, s->activations[i], values[s->outputs[i]]);
    if (strata_restores_label(p)) ex->outputs[0] = restore(ex, p, ex->outputs[0]);
    put_in_order(ex);
    ex->chain = s->sequential;
    for (int i = 0; i < ex->n_calls; i++)
        ex->chain &= ex->calls[i].n_inputs < 2 && strcmp(ex->layers[ex->calls[i].layer].row.kind, "multi_head_attention");
}

/* ---- the file ---- */

/* Writes metadata.json. Keras does not need its contents; label, loss and notes are for reading the file back. */
static strata_status write_metadata(const strata_keras_export *ex, char **out_text, size_t *out_bytes) {
    const strata_model *model = ex->model;
    STRATA_FREED char *losses = NULL;
    STRATA_TRY(strata_model_losses_text(model, &losses, ex->err));
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    strata_json_write_string(strata_json_key(&w, "keras_version"), "3.0.0");
    strata_json_begin_object(strata_json_key(&w, STRATA_KERAS_METADATA));
    strata_json_write_string(strata_json_key(&w, "label"), strata_model_label(model));
    if (losses) strata_json_write_string(strata_json_key(&w, "loss"), losses);
    strata_json_begin_object(strata_json_key(&w, "notes"));
    for (int i = 0; strata_model_note_key(model, i); i++) {
        const char *key = strata_model_note_key(model, i);
        strata_json_write_string(strata_json_key(&w, key), strata_model_note(model, key));
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
    STRATA_FREED char *metadata = NULL, *config = NULL;
    STRATA_FREED void *weights = NULL;
    size_t n_metadata = 0, n_config = 0, n_weights = 0;
    STRATA_TRY(strata_keras_write_config(ex, &config, &n_config));
    if (ex->unsupported.failed) return strata_fail(ex->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", ex->path);
    if (ex->unsupported.n_bytes)
        return strata_fail(
            ex->err, STRATA_UNSUPPORTED, "%s: Keras has no counterpart of: %.800s%s", ex->path, ex->unsupported.bytes,
            strstr(ex->unsupported.bytes, "the column") ? ". strata export --c writes a program that takes such columns" : "");
    STRATA_TRY(write_metadata(ex, &metadata, &n_metadata));
    STRATA_TRY(strata_keras_write_weights(ex, &weights, &n_weights));
    const strata_zip_content members[] = {
        {"metadata.json", metadata, n_metadata}, {"config.json", config, n_config}, {"model.weights.h5", weights, n_weights}};
    return strata_zip_write(ex->path, members, 3, &(strata_file_check){read_back, NULL}, ex->err);
}

/* Allocates memory for each call of each layer with its parts, and for the input and the output. */
static strata_status make_room(strata_keras_export *ex, strata_error *err) {
    const size_t most = 2 * (STRATA_MAX_INPUTS + STRATA_MAX_OUTPUTS) + MOST_EACH * (size_t)ex->structure.n_calls;
    size_t links = 2 * most;
    for (int i = 0; i < ex->structure.n_calls; i++) links += (size_t)ex->structure.calls[i].n_inputs;
    STRATA_TRY(STRATA_NEW(ex->layers, most, err, "%s: no host memory", ex->path));
    STRATA_TRY(STRATA_NEW(ex->calls, most, err, "%s: no host memory", ex->path));
    STRATA_TRY(STRATA_NEW(ex->order, most, err, "%s: no host memory", ex->path));
    return STRATA_NEW(ex->links, links, err, "%s: no host memory", ex->path);
}

static void finish(strata_keras_export *ex) {
    strata_preprocessing_destroy(ex->preprocessing);
    strata_weights_finish(&ex->weights);
    strata_text_finish(&ex->unsupported);
    for (int i = 0; i < ex->n_layers; i++) free(ex->layers[i].config);
    free(ex->structure.calls);
    free(ex->layers);
    free(ex->calls);
    free(ex->order);
    free(ex->links);
}

strata_status strata_model_save_keras(strata_model *model, const char *path, strata_error *err) {
    STRATA_FINISHED_BY(finish) strata_keras_export ex = {.model = model, .path = path, .err = err};
    STRATA_FREED int *values = NULL;
    STRATA_TRY(strata_weights_read(model, "save_keras", &ex.weights, err));
    STRATA_TRY(strata_model_describe(model, &ex.structure, err));
    STRATA_TRY(STRATA_NEW(values, ex.structure.n_calls, err, "%s: no host memory", path));
    STRATA_TRY(make_room(&ex, err));
    if (strata_model_note(model, "preprocessing")) STRATA_TRY(strata_model_preprocessing(model, &ex.preprocessing, err));
    check_columns(&ex, ex.preprocessing);
    walk(&ex, values);
    return write_file(&ex);
}
