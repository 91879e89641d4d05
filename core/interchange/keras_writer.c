/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the layers of a Keras model: their configs, by using the table of keras_classes.c in the reverse direction,
 * their calls, and the weights under the names that Keras gives to their groups. */
#include <stdio.h>

#include "core/interchange/hdf5.h"
#include "core/interchange/keras_export.h"

/* ---- pieces ---- */

/* Writes {"module": .., "class_name": .., "config": { and the name, if there is one. */
static void begin_object(strata_json_writer *w, const char *module, const char *class_name, const char *name) {
    strata_json_begin_object(w);
    strata_json_write_string(strata_json_key(w, "module"), module);
    strata_json_write_string(strata_json_key(w, "class_name"), class_name);
    strata_json_begin_object(strata_json_key(w, "config"));
    if (name) strata_json_write_string(strata_json_key(w, "name"), name);
}

/* Writes }, "registered_name": null. The object stays open. */
static void end_config(strata_json_writer *w) {
    strata_json_end_object(w);
    strata_json_write_null(strata_json_key(w, "registered_name"));
}

/* Writes a shape, for example [null, 28, 28]. */
static void write_shape(strata_json_writer *w, const char *key, strata_shape shape) {
    strata_json_begin_array(strata_json_key(w, key));
    strata_json_write_null(w);
    for (int d = 1; d < shape.rank; d++) strata_json_write_int(w, shape.dims[d]);
    strata_json_end_array(w);
}

static const char *dtype_name(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_I32 ? "int32" : "float32";
}

/* ---- configs ---- */

/* Whether the option is not written as a field: a Keras model does not need it (how parameters are initialised and
 * updated), or it is written in another place. */
static bool is_elsewhere(const strata_keras_layer *own, const char *key) {
    static const char *const keys[] = {"kernel_initializer",    "bias_initializer", "recurrent_initializer", "initializer",
                                       "depthwise_initializer", "sparse",           "pointwise_initializer", "bidirectional",
                                       "no_unit_forget_bias",   "causal",           "explicit_padding",      "no_average",
                                       "synchronized"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return !strcmp(key, "activation") && !strcmp(own->row.kind, "batch_norm"); /* a separate layer */
}

/* Whether the table has a field for the option, or the option needs none. */
static bool has_field(const strata_keras_layer *own, const char *key) {
    strata_keras_field f;
    for (const char *at = own->row.fields; strata_keras_next_field(&at, &f);) {
        const bool penalty = f.way == STRATA_KERAS_PENALTY;
        if (f.way != STRATA_KERAS_FIXED && !strncmp(key, f.to, penalty ? strlen(f.to) : sizeof f.to)) return true;
    }
    return is_elsewhere(own, key);
}

static void refuse_option(strata_keras_export *ex, const strata_keras_layer *own, const char *what, const char *value) {
    char why[STRATA_KERAS_NAME_BYTES];
    snprintf(why, sizeof why, ": %.40s%s%.60s", what, *value ? " " : "", value);
    strata_keras_refuse(ex, own->layer->kind, own->layer->name, why);
}

static strata_status write_penalty(const strata_json *options, const strata_keras_field *f, strata_json_writer *w,
                                   strata_error *err) {
    double l[2] = {0};
    char key[STRATA_KERAS_WORD_BYTES + 2];
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s%d", f->to, i + 1);
        STRATA_TRY(strata_json_get_number(options, key, STRATA_JSON_OPTIONAL, 0, 1e30, &l[i], err));
    }
    if (l[0] == 0 && l[1] == 0) return STRATA_OK;
    strata_json_key(w, f->key);
    begin_object(w, "keras.regularizers", "L1L2", NULL);
    strata_json_write_double(strata_json_key(w, "l1"), l[0]);
    strata_json_write_double(strata_json_key(w, "l2"), l[1]);
    end_config(w);
    strata_json_end_object(w);
    return STRATA_OK;
}

static strata_status write_field(strata_keras_export *ex, const strata_keras_layer *own, const strata_json *options,
                                 const strata_keras_field *f, strata_json_writer *w) {
    strata_json value;
    const char *text = "";
    bool flag = false;
    if (f->way == STRATA_KERAS_FIXED || f->way == STRATA_KERAS_REQUIRED) return STRATA_OK;
    if (f->way == STRATA_KERAS_PENALTY) return write_penalty(options, f, w, ex->err);
    if (f->way == STRATA_KERAS_ACTIVATION && own->function) {
        strata_json_write_string(strata_json_key(w, f->key), own->function);
        return STRATA_OK;
    }
    if (!strata_json_find(options, f->to, &value)) return STRATA_OK;
    if (strata_json_kind_of(&value) == STRATA_JSON_STRING) STRATA_TRY(strata_json_to_string(&value, &text, ex->err));
    if ((f->way == STRATA_KERAS_ACTIVATION && !strata_keras_has_activation(text)) || !strcmp(text, "explicit"))
        refuse_option(ex, own, f->to, text);
    strata_json_key(w, f->key);
    if (f->way != STRATA_KERAS_NEGATED) return strata_keras_copy_value(&value, w, ex->err);
    STRATA_TRY(strata_json_to_bool(&value, &flag, ex->err));
    strata_json_write_bool(w, !flag);
    return STRATA_OK;
}

/* Writes the fields of a layer from its options, which are JSON. */
static strata_status write_fields(strata_keras_export *ex, const strata_keras_layer *own, const strata_json *options,
                                  strata_json_writer *w) {
    strata_keras_field f;
    strata_json item, found;
    for (const char *at = own->row.fields; strata_keras_next_field(&at, &f);) STRATA_TRY(write_field(ex, own, options, &f, w));
    if (own->part || !*own->row.kind) return STRATA_OK; /* a layer without a kind was refused before */
    for (bool more = strata_json_first(options, &item); more; more = strata_json_next(&item))
        if (!has_field(own, item.name)) refuse_option(ex, own, item.name, "");
    if (!strcmp(own->row.kind, "multi_head_attention") && !strata_json_find(options, "key_dim", &found))
        strata_json_write_int(strata_json_key(w, "key_dim"),
                              own->shape.dims[2] / ((const strata_multi_head_attention_options *)own->layer->options)->heads);
    if (strata_json_find(options, "no_average", &found)) strata_json_write_int(strata_json_key(w, "momentum"), 0);
    if (own->layer->frozen) strata_json_write_bool(strata_json_key(w, "trainable"), false);
    return STRATA_OK;
}

static strata_status write_options(strata_keras_export *ex, const strata_keras_layer *own, strata_json_writer *w) {
    strata_json_writer text = {0};
    STRATA_FINISHED_BY(strata_json_finish) strata_json options = {0};
    STRATA_FREED char *bytes = NULL;
    size_t n = 0;
    strata_json_begin_object(&text);
    if (!own->part) strata_options_write(&text, own->layer->fields, own->layer->options);
    strata_json_end_object(&text);
    STRATA_TRY(strata_json_take(&text, &bytes, &n, ex->err));
    STRATA_TRY(strata_json_parse(ex->path, bytes, n, n, &options, ex->err));
    return write_fields(ex, own, &options, w);
}

/* Writes "build_config" for a layer with weights. */
static void write_build(const strata_keras_layer *own, strata_json_writer *w) {
    if (!*own->row.weights) return;
    const bool attention = !strcmp(own->row.kind, "multi_head_attention");
    strata_json_begin_object(strata_json_key(w, "build_config"));
    if (attention) {
        strata_json_begin_object(strata_json_key(w, "shapes_dict"));
        write_shape(w, "query_shape", own->shape);
        write_shape(w, "value_shape", own->shape);
        strata_json_end_object(w);
    } else {
        write_shape(w, "input_shape", own->shape);
    }
    strata_json_end_object(w);
}

/* Writes the layer's module, class, config and build_config. The object stays open. */
static strata_status begin_layer(strata_keras_export *ex, const strata_keras_layer *own, strata_json_writer *w) {
    static const char module[] = "keras.layers";
    if (!own->layer && !own->part) {
        begin_object(w, module, "InputLayer", own->name);
        write_shape(w, "batch_shape", own->shape);
        strata_json_write_string(strata_json_key(w, "dtype"), dtype_name(own->dtype));
        end_config(w);
        return STRATA_OK;
    }
    if (own->both) {
        char inner[STRATA_KERAS_NAME_BYTES];
        snprintf(inner, sizeof inner, "forward_%.100s", own->name);
        begin_object(w, module, "Bidirectional", own->name);
        strata_json_write_string(strata_json_key(w, "merge_mode"),
                                 ((const strata_recurrent_layer_options *)own->layer->options)->bidirectional);
        strata_json_key(w, "layer");
        begin_object(w, module, own->row.name, inner);
    } else {
        begin_object(w, module, own->row.name, own->name);
    }
    STRATA_TRY(write_options(ex, own, w));
    if (own->config) strata_text_add(&w->text, ",%s", own->config);
    end_config(w);
    if (own->both) {
        strata_json_end_object(w);
        end_config(w);
    }
    write_build(own, w);
    return STRATA_OK;
}

/* ---- calls ---- */

/* Writes a reference to the value of a call: [layer, call, tensor]. */
static void write_history(const strata_keras_export *ex, const strata_keras_call *call, strata_json_writer *w) {
    strata_json_begin_array(w);
    strata_json_write_string(w, ex->layers[call->layer].name);
    strata_json_write_int(w, call->number);
    strata_json_write_int(w, 0);
    strata_json_end_array(w);
}

static void write_tensor(const strata_keras_export *ex, const strata_keras_call *call, strata_json_writer *w) {
    strata_json_begin_object(w);
    strata_json_write_string(strata_json_key(w, "class_name"), "__keras_tensor__");
    strata_json_begin_object(strata_json_key(w, "config"));
    write_shape(w, "shape", call->shape);
    strata_json_write_string(strata_json_key(w, "dtype"), dtype_name(call->dtype));
    strata_json_key(w, "keras_history");
    write_history(ex, call, w);
    strata_json_end_object(w);
    strata_json_end_object(w);
}

/* Writes the arguments of a call. A layer with several inputs takes them as a list; attention takes its input as query
 * and as value. */
static void write_call(const strata_keras_export *ex, const strata_keras_call *call, strata_json_writer *w) {
    const strata_keras_layer *own = &ex->layers[call->layer];
    const bool attention = !strcmp(own->row.kind, "multi_head_attention"), list = call->n_inputs > 1;
    strata_json_begin_object(w);
    strata_json_begin_array(strata_json_key(w, "args"));
    if (list) strata_json_begin_array(w);
    for (int i = 0; i < call->n_inputs; i++) write_tensor(ex, &ex->calls[call->inputs[i]], w);
    if (attention) write_tensor(ex, &ex->calls[call->inputs[0]], w);
    if (list) strata_json_end_array(w);
    strata_json_end_array(w);
    strata_json_begin_object(strata_json_key(w, "kwargs"));
    if (attention && ((const strata_multi_head_attention_options *)own->layer->options)->causal)
        strata_json_write_bool(strata_json_key(w, "use_causal_mask"), true);
    strata_json_end_object(w);
    strata_json_end_object(w);
}

static strata_status write_layer(strata_keras_export *ex, int index, strata_json_writer *w) {
    const strata_keras_layer *own = &ex->layers[index];
    STRATA_TRY(begin_layer(ex, own, w));
    if (!ex->chain) {
        strata_json_write_string(strata_json_key(w, "name"), own->name);
        strata_json_begin_array(strata_json_key(w, "inbound_nodes"));
        for (int i = 0; i < ex->n_calls; i++)
            if (ex->calls[i].layer == index && ex->calls[i].reached && ex->calls[i].n_inputs) write_call(ex, &ex->calls[i], w);
        strata_json_end_array(w);
    }
    strata_json_end_object(w);
    return STRATA_OK;
}

/* Writes one reference, or a list of them. */
static void write_ends(const strata_keras_export *ex, const char *key, const int *calls, int n, strata_json_writer *w) {
    strata_json_key(w, key);
    if (n > 1) strata_json_begin_array(w);
    for (int i = 0; i < n; i++) write_history(ex, &ex->calls[calls[i]], w);
    if (n > 1) strata_json_end_array(w);
}

strata_status strata_keras_write_config(strata_keras_export *ex, char **out_text, size_t *out_bytes) {
    strata_json_writer w = {0};
    strata_status status = STRATA_OK;
    const char *name = *strata_model_label(ex->model) ? strata_model_label(ex->model) : "model";
    const int n_inputs = strata_model_n_inputs(ex->model);
    int inputs[STRATA_MAX_INPUTS];
    begin_object(&w, ex->chain ? "keras" : "keras.src.models.functional", ex->chain ? "Sequential" : "Functional", name);
    strata_json_begin_array(strata_json_key(&w, "layers"));
    for (int i = 0; i < ex->n_order && !status; i++) status = write_layer(ex, ex->order[i], &w);
    strata_json_end_array(&w);
    for (int i = 0; i < n_inputs; i++) inputs[i] = i;
    if (!ex->chain) {
        write_ends(ex, "input_layers", inputs, n_inputs, &w);
        write_ends(ex, "output_layers", ex->outputs, strata_model_n_outputs(ex->model), &w);
    }
    strata_json_end_object(&w);
    strata_json_write_string(strata_json_key(&w, "registered_name"), ex->chain ? "Sequential" : "Functional");
    strata_json_end_object(&w);
    if (!status) return strata_json_take(&w, out_text, out_bytes, ex->err);
    strata_text_finish(&w.text);
    return status;
}

/* ---- weights ---- */

/* Makes the name of a layer's group: "layers/dense_1" for the second layer of its class. */
static void group_of(const strata_keras_export *ex, int place, char *out, size_t bytes) {
    const strata_keras_layer *own = &ex->layers[ex->order[place]];
    char base[STRATA_KERAS_WORD_BYTES];
    int n = 0;
    for (int i = 0; i < place; i++) {
        const strata_keras_layer *other = &ex->layers[ex->order[i]];
        n += other->both == own->both && (own->both || !strcmp(other->row.name, own->row.name));
    }
    strata_keras_group(own->both ? "Bidirectional" : own->row.name, base, sizeof base);
    snprintf(out, bytes, n ? "layers/%s_%d" : "layers/%s", base, n);
}

/* The shape that the parameter has in Keras, where attention heads are a separate axis. name: "query_kernel", for
 * example. */
static strata_shape shape_of(const strata_keras_layer *own, const char *name, strata_shape shape) {
    if (strcmp(own->row.kind, "multi_head_attention")) return shape;
    const int64_t heads = ((const strata_multi_head_attention_options *)own->layer->options)->heads;
    const bool output = *name == 'o';
    if (shape.rank == 1) return output ? shape : STRATA_SHAPE(heads, shape.dims[0] / heads);
    return output ? STRATA_SHAPE(heads, shape.dims[0] / heads, shape.dims[1])
                  : STRATA_SHAPE(shape.dims[0], heads, shape.dims[1] / heads);
}

static strata_status write_layer_weights(const strata_keras_export *ex, int place, strata_hdf5 *file) {
    const strata_keras_layer *own = &ex->layers[ex->order[place]];
    if (!own->layer || own->part) return STRATA_OK;
    char group[STRATA_KERAS_NAME_BYTES], below[STRATA_KERAS_NAME_BYTES], path[2 * STRATA_KERAS_NAME_BYTES];
    group_of(ex, place, group, sizeof group);
    for (int i = 0; i < ex->weights.n; i++) {
        const strata_array *array = &ex->weights.arrays[i];
        const char *name = strata_name_in(strata_model_parameter(ex->model, i).name, own->layer->name);
        if (!name || !strata_keras_weight_path(&own->row, own->both, name, below, sizeof below)) continue;
        snprintf(path, sizeof path, "%s%s", group, below);
        STRATA_TRY(strata_hdf5_write(file, path, shape_of(own, name, array->shape), array->data, ex->err));
    }
    return STRATA_OK;
}

strata_status strata_keras_write_weights(const strata_keras_export *ex, void **out_bytes, size_t *out_n_bytes) {
    strata_hdf5 *file = NULL;
    STRATA_TRY(strata_hdf5_open(ex->path, NULL, 0, &file, ex->err));
    strata_status status = STRATA_OK;
    for (int i = 0; i < ex->n_order && !status; i++) status = write_layer_weights(ex, i, file);
    if (!status) status = strata_hdf5_take(file, out_bytes, out_n_bytes, ex->err);
    strata_hdf5_close(file);
    return status;
}
