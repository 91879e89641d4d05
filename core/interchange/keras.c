/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the layers of Keras' config.json. They are written as the JSON of a Strata model, which is then read like any
 * other JSON of a model. keras_classes.c has the Strata layer for each class of Keras. */
#include <stdio.h>

#include "core/interchange/keras_read.h"

enum { MOST_LAYERS = 2000, NAME_BYTES = STRATA_KERAS_NAME_BYTES, WORD_BYTES = STRATA_KERAS_WORD_BYTES };

/* The name of the input of a sequential model, if a layer must name it. */
#define SEQUENTIAL_INPUT "input x"

typedef strata_keras_read_layer keras_layer;
typedef strata_keras_reader reader;

/* ---- what the layers are ---- */

static strata_status class_of(const strata_json *layer, const char **out, strata_error *err) {
    STRATA_TRY(strata_json_expect(layer, STRATA_JSON_OBJECT, err));
    return strata_json_get_string(layer, "class_name", STRATA_JSON_REQUIRED, out, err);
}

/* Finds the layer's config, or, for a Bidirectional, that of the layer inside. The values point to their parents, so
 * *inner and *config must live as long as they are used. */
static strata_status config_of(const strata_json *layer, const keras_layer *own, strata_json *config, strata_json *inner,
                               strata_json *inner_config, const strata_json **out, strata_error *err) {
    STRATA_TRY(strata_json_get(layer, "config", config, err));
    STRATA_TRY(strata_json_expect(config, STRATA_JSON_OBJECT, err));
    *out = config;
    if (!own->both) return STRATA_OK;
    STRATA_TRY(strata_json_get(config, "layer", inner, err));
    STRATA_TRY(strata_json_get(inner, "config", inner_config, err));
    STRATA_TRY(strata_json_expect(inner_config, STRATA_JSON_OBJECT, err));
    *out = inner_config;
    return STRATA_OK;
}

/* Makes the name of the group of a layer's weights: that of its class, with a number from the second layer of the class
 * on. */
static void name_group(reader *r, keras_layer *layer) {
    char base[WORD_BYTES];
    int n = 0;
    if (r->legacy) { /* weights are in the group of the layer's own name */
        snprintf(layer->group, sizeof layer->group, "%.90s", layer->name);
        return;
    }
    strata_keras_group(layer->both ? "Bidirectional" : layer->row.name, base, sizeof base);
    for (int i = 0; i < r->n_layers; i++)
        n += !r->layers[i].input && r->layers[i].both == layer->both &&
             (layer->both || !strcmp(r->layers[i].row.name, layer->row.name));
    snprintf(layer->group, sizeof layer->group, n ? "layers/%s_%d" : "layers/%s", base, n);
}

/* Fills r->layers. Classes for which there is no layer are listed in one error message. */
static strata_status read_classes(reader *r, const strata_json *layers) {
    strata_json item;
    STRATA_FINISHED_BY(strata_text_finish) strata_text unknown = {0};
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item)) {
        const char *class = NULL, *name = "";
        keras_layer *own = &r->layers[r->n_layers];
        strata_json config, inner;
        STRATA_TRY(class_of(&item, &class, r->err));
        STRATA_TRY(strata_json_get(&item, "config", &config, r->err));
        STRATA_TRY(strata_json_get_string(&config, "name", STRATA_JSON_REQUIRED, &name, r->err));
        snprintf(own->name, sizeof own->name, "%s", name);
        if (!strcmp(class, "Bidirectional")) {
            own->both = true;
            STRATA_TRY(strata_json_get(&config, "layer", &inner, r->err));
            STRATA_TRY(class_of(&inner, &class, r->err));
        }
        own->input = !strcmp(class, "InputLayer");
        if (!strcmp(class, "ReLU") && strata_json_find(&config, "max_value", &inner) &&
            strata_json_kind_of(&inner) != STRATA_JSON_NULL)
            class = STRATA_KERAS_LIMITED_RELU;
        own->makes_mask = !r->sequential && (!strcmp(class, "NotEqual") || !strcmp(class, "LogicalOr"));
        own->dropped = r->standardizes && (!strcmp(name, STRATA_KERAS_STANDARDIZE) || !strcmp(name, STRATA_KERAS_RESTORE));
        if (!own->input && !own->dropped && !own->makes_mask &&
            (!strata_keras_find_class(class, &own->row) || (own->both && !strata_keras_is_recurrent(&own->row))))
            strata_text_add(&unknown, "%s%.60s (%.60s)", unknown.n_bytes ? ", " : "", class, name);
        name_group(r, own);
        r->n_layers++;
    }
    if (unknown.failed) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
    if (!unknown.n_bytes) return STRATA_OK;
    return strata_fail(r->err, STRATA_UNSUPPORTED, "%s: there are no layers for: %.800s", r->path, unknown.bytes);
}

/* ---- options ---- */

static strata_status wrong(const strata_json *value, const strata_keras_field *f, strata_error *err) {
    return strata_json_fail(value, err, STRATA_UNSUPPORTED, "is not what a layer here has%s%s", *f->to ? ": " : "", f->to);
}

/* Whether the value equals the text of the table's row. The value is a string, a number, a flag, or a list of one of
 * these; null equals every text. */
static bool is_as(const strata_json *value, const char *text, strata_error *err) {
    const char *string = NULL;
    double number = 0;
    bool flag = false;
    strata_json item;
    switch (strata_json_kind_of(value)) {
        case STRATA_JSON_NULL:
            return true;
        case STRATA_JSON_STRING:
            return !strata_json_to_string(value, &string, err) && !strcmp(string, text);
        case STRATA_JSON_NUMBER:
            return !strata_json_to_number(value, -1e9, 1e9, &number, err) && number == (double)strtol(text, NULL, 10);
        case STRATA_JSON_BOOL:
            return !strata_json_to_bool(value, &flag, err) && flag == !strcmp(text, "true");
        case STRATA_JSON_ARRAY:
            return strata_json_length(value) == 1 && strata_json_first(value, &item) && is_as(&item, text, err);
        default:
            return false;
    }
}

/* Whether the value is 0 or a list of zeros. */
static bool is_zero(const strata_json *value) {
    strata_json item;
    double number = 1;
    if (strata_json_kind_of(value) != STRATA_JSON_ARRAY)
        return !strata_json_to_number(value, -1e15, 1e15, &number, NULL) && number == 0;
    for (bool more = strata_json_first(value, &item); more; more = strata_json_next(&item))
        if (strata_json_to_number(&item, -1e15, 1e15, &number, NULL) || number != 0) return false;
    return true;
}

bool strata_keras_is_last_axis(const strata_json *layer, const strata_json *value) {
    strata_json build, all, first, shape, nodes, node, arguments, tensor, config, item = *value;
    int64_t axis = 0;
    if (strata_json_kind_of(value) == STRATA_JSON_ARRAY && (strata_json_length(value) != 1 || !strata_json_first(value, &item)))
        return false;
    if (strata_json_find(layer, "build_config", &build) && strata_json_find(&build, "input_shape", &all)) {
        shape = strata_json_first(&all, &first) && strata_json_kind_of(&first) == STRATA_JSON_ARRAY ? first : all;
    } else if (!strata_json_find(layer, "inbound_nodes", &nodes) || !strata_json_first(&nodes, &node) ||
               !strata_json_find(&node, "args", &arguments) || !strata_json_first(&arguments, &tensor) ||
               !strata_json_find(&tensor, "config", &config) || !strata_json_find(&config, "shape", &shape)) {
        return false;
    }
    return !strata_json_to_int(&item, 1, 64, &axis, NULL) && axis == strata_json_length(&shape) - 1;
}

/* Writes {"class_name": "L1L2", "config": {"l1": .., "l2": ..}} as kernel_l1 and kernel_l2. */
static strata_status write_penalty(reader *r, const strata_json *value, const strata_keras_field *f) {
    strata_json config, number;
    if (strata_json_kind_of(value) != STRATA_JSON_OBJECT || !strata_json_find(value, "config", &config)) return STRATA_OK;
    for (int i = 1; i <= 2; i++) {
        char key[WORD_BYTES + 2];
        if (!strata_json_find(&config, i == 1 ? "l1" : "l2", &number) || is_zero(&number)) continue;
        snprintf(key, sizeof key, "%s%d", f->to, i);
        strata_json_key(&r->w, key);
        STRATA_TRY(strata_keras_copy_value(&number, &r->w, r->err));
    }
    return STRATA_OK;
}

static strata_status write_field(reader *r, const strata_json *layer, const keras_layer *own, const strata_json *config,
                                 const strata_keras_field *f) {
    strata_json value, first;
    const char *name = NULL;
    bool flag = false;
    if (f->way == STRATA_KERAS_FIXED) {
        strata_json_write_string(strata_json_key(&r->w, f->key), f->to);
        return STRATA_OK;
    }
    if (!strata_json_find(config, f->key, &value)) return STRATA_OK;
    if (f->way == STRATA_KERAS_REQUIRED) {
        /* Files of Keras 2 do not say how many axes there are. The sizes of the weights are compared in any case, and a Softmax
         * has none. */
        const bool open = r->legacy && strcmp(own->row.name, "Softmax") != 0;
        const bool last = !strcmp(f->key, "axis") && (open || strata_keras_is_last_axis(layer, &value));
        return is_as(&value, f->to, r->err) || last ? STRATA_OK : wrong(&value, f, r->err);
    }
    if (strata_json_kind_of(&value) == STRATA_JSON_NULL) return STRATA_OK;
    if (f->way == STRATA_KERAS_AXIS && (is_as(&value, "-1", r->err) || strata_keras_is_last_axis(layer, &value)))
        return STRATA_OK;
    if (f->way == STRATA_KERAS_PENALTY) return write_penalty(r, &value, f);
    if (f->way == STRATA_KERAS_ACTIVATION) {
        STRATA_TRY(strata_json_to_string(&value, &name, r->err));
        if (!strcmp(name, "linear") && strcmp(f->to, "function") && !strata_keras_is_recurrent(&own->row)) return STRATA_OK;
    }
    if (f->way == STRATA_KERAS_NOT_ZERO && is_zero(&value)) return wrong(&value, f, r->err);
    strata_json_key(&r->w, f->to);
    if (f->way == STRATA_KERAS_NEGATED) {
        STRATA_TRY(strata_json_to_bool(&value, &flag, r->err));
        strata_json_write_bool(&r->w, !flag);
        return STRATA_OK;
    }
    if (f->way == STRATA_KERAS_FIRST && strata_json_kind_of(&value) == STRATA_JSON_ARRAY) {
        if (strata_json_length(&value) != 1 || !strata_json_first(&value, &first)) return wrong(&value, f, r->err);
        return strata_keras_copy_value(&first, &r->w, r->err);
    }
    return strata_keras_copy_value(&value, &r->w, r->err);
}

/* Checks that the backward layer of a Bidirectional, if the file describes it, has the same option as the forward layer. The
 * directions are opposite. */
static strata_status check_backward(const strata_json *config, const strata_json *options, const strata_keras_field *f,
                                    strata_error *err) {
    strata_json layer, own, a, b;
    char text[128];
    if (!strata_json_find(config, "backward_layer", &layer) || strata_json_kind_of(&layer) != STRATA_JSON_OBJECT)
        return STRATA_OK;
    STRATA_TRY(strata_json_get(&layer, "config", &own, err));
    if (!strata_json_find(options, f->key, &a) || !strata_json_find(&own, f->key, &b)) return STRATA_OK;
    if (strcmp(f->key, "go_backwards") == 0 || !strata_json_difference(&a, &b, text, sizeof text)) return STRATA_OK;
    return strata_json_fail(&b, err, STRATA_UNSUPPORTED, "is not that of the forward layer; here both directions have one");
}

strata_status strata_keras_fail_in_layer(const reader *r, const keras_layer *own, strata_status status) {
    if (!status || !r->err) return status;
    const size_t n = strlen(r->path);
    const strata_error reason = *r->err;
    const char *why = reason.message;
    if (!strncmp(why, r->path, n)) why += n + strspn(why + n, ": ");
    return strata_fail(r->err, status, "%s: layer \"%.80s\" (%s): %s", r->path, own->name,
                       own->both ? "Bidirectional" : own->row.name, why);
}

/* Writes the layer's kind, name and options. The caller writes its inputs. */
static strata_status write_layer(reader *r, const strata_json *layer, const keras_layer *own) {
    strata_json config, inner, inner_config;
    const strata_json *options;
    strata_keras_field field;
    const char *merge = "concat";
    STRATA_TRY(config_of(layer, own, &config, &inner, &inner_config, &options, r->err));
    strata_json_write_string(strata_json_key(&r->w, "layer"), own->row.kind);
    strata_json_write_string(strata_json_key(&r->w, "name"), own->name);
    for (const char *at = own->row.fields; strata_keras_next_field(&at, &field);) {
        if (own->both) STRATA_TRY(check_backward(&config, options, &field, r->err));
        STRATA_TRY(write_field(r, layer, own, options, &field));
    }
    STRATA_TRY(strata_keras_write_numbers(r, own, &config));
    if (!own->both) return STRATA_OK;
    STRATA_TRY(strata_json_get_string(&config, "merge_mode", STRATA_JSON_REQUIRED, &merge, r->err));
    strata_json_write_string(strata_json_key(&r->w, "bidirectional"), merge);
    return STRATA_OK;
}

/* Finds the mask of the layer's output; the inputs have the mask `mask`. */
static strata_status follow_mask(const reader *r, const strata_json *layer, keras_layer *own, int mask) {
    strata_json config, inner, inner_config;
    const strata_json *options;
    bool begins = false, sequences = false, backwards = false;
    if (own->input) return STRATA_OK;
    own->mask = mask;
    if (own->dropped) return STRATA_OK;
    STRATA_TRY(config_of(layer, own, &config, &inner, &inner_config, &options, r->err));
    STRATA_TRY(strata_json_get_bool(options, "mask_zero", STRATA_JSON_OPTIONAL, &begins, r->err));
    STRATA_TRY(strata_json_get_bool(options, "return_sequences", STRATA_JSON_OPTIONAL, &sequences, r->err));
    STRATA_TRY(strata_json_get_bool(options, "go_backwards", STRATA_JSON_OPTIONAL, &backwards, r->err));
    const strata_keras_mask behind = strata_keras_mask_behind(own->row.kind, sequences, backwards);
    if (mask && (mask < 0 || behind == STRATA_KERAS_MASK_DIFFERS))
        return strata_json_fail(
            layer, r->err, STRATA_UNSUPPORTED,
            "is a %s behind an Embedding with mask_zero; there it does not compute what the layer here does", own->row.name);
    if (behind != STRATA_KERAS_MASK_GOES_ON) own->mask = 0;
    if (begins) own->mask = (int)(own - r->layers) + 1;
    return STRATA_OK;
}

/* Writes the shape of an input, without the batch, and its type. tokens: an Embedding takes it. Keras accepts tokens as floats,
 * and a Sequential model that begins with an Embedding has an input of float32. */
static strata_status write_input(reader *r, const strata_json *layer, bool tokens, const char *shape_key,
                                 const char *dtype_key) {
    strata_json config, shape, item;
    const char *dtype = "float32";
    STRATA_TRY(strata_json_get(layer, "config", &config, r->err));
    if (!strata_json_find(&config, "batch_shape", &shape))
        STRATA_TRY(strata_json_get(&config, "batch_input_shape", &shape, r->err));
    STRATA_TRY(strata_json_expect(&shape, STRATA_JSON_ARRAY, r->err));
    STRATA_TRY(strata_json_get_string(&config, "dtype", STRATA_JSON_OPTIONAL, &dtype, r->err));
    strata_json_begin_array(strata_json_key(&r->w, shape_key));
    bool batch = true;
    for (bool more = strata_json_first(&shape, &item); more; more = strata_json_next(&item), batch = false) {
        int64_t size;
        if (batch) continue;
        if (strata_json_kind_of(&item) == STRATA_JSON_NULL)
            return strata_json_fail(&item, r->err, STRATA_UNSUPPORTED,
                                    "is open; only the batch may be: save the model with an Input that has all its sizes");
        STRATA_TRY(strata_json_to_int(&item, 1, INT32_MAX, &size, r->err));
        strata_json_write_int(&r->w, size);
    }
    strata_json_end_array(&r->w);
    strata_json_write_string(strata_json_key(&r->w, dtype_key),
                             tokens || !strncmp(dtype, "int", 3) || !strncmp(dtype, "uint", 4) ? "i32" : "f32");
    return STRATA_OK;
}

/* ---- the model ---- */

static bool is_kind(const keras_layer *own, const char *kind) {
    return !own->input && !own->dropped && !strcmp(own->row.kind, kind);
}

static keras_layer *find_layer(const reader *r, const char *name) {
    for (int i = 0; i < r->n_layers; i++)
        if (!strcmp(r->layers[i].name, name)) return &r->layers[i];
    return NULL;
}

/* The name of the result of call number `node` of a layer. */
static void value_name(const keras_layer *layer, int64_t node, char *out, size_t bytes) {
    if (layer->dropped)
        snprintf(out, bytes, "%s", layer->alias);
    else
        snprintf(out, bytes, node ? "%.100s_call_%lld" : "%.100s", layer->name, (long long)node);
}

enum { MOST_TAKEN = 64 };
typedef struct taken {
    char names[MOST_TAKEN][NAME_BYTES];
    int n;
    /* Whether all of these inputs are already written. */
    bool ready;
    /* The mask that the inputs have in common, and whether the call has a mask as an argument. */
    int mask;
    bool given_mask;
} taken;

/* Reads a reference to a result of a call: ["layer", node, tensor]. */
static strata_status take_history(const reader *r, const strata_json *history, taken *out) {
    strata_json item;
    const char *name = NULL;
    int64_t node = 0, tensor = 0;
    STRATA_TRY(strata_json_expect(history, STRATA_JSON_ARRAY, r->err));
    const int64_t length = strata_json_length(history);
    if ((length != 3 && length != 4) || !strata_json_first(history, &item))
        return strata_json_fail(history, r->err, STRATA_DATA, "must be [layer, node, tensor]");
    STRATA_TRY(strata_json_to_string(&item, &name, r->err));
    if (strata_json_next(&item)) STRATA_TRY(strata_json_to_int(&item, 0, 1 << 20, &node, r->err));
    if (strata_json_next(&item)) STRATA_TRY(strata_json_to_int(&item, 0, 1 << 20, &tensor, r->err));
    if (tensor)
        return strata_json_fail(history, r->err, STRATA_UNSUPPORTED,
                                "takes result %lld of %.60s; a layer here has only the first one, without states or scores",
                                (long long)tensor, name);
    const keras_layer *layer = find_layer(r, name);
    if (!layer) return strata_json_fail(history, r->err, STRATA_DATA, "there is no layer \"%.60s\"", name);
    if (out->n == MOST_TAKEN) return strata_json_fail(history, r->err, STRATA_UNSUPPORTED, "more than %d inputs", MOST_TAKEN);
    if (layer->makes_mask)
        return strata_json_fail(history, r->err, STRATA_UNSUPPORTED,
                                "takes what %.60s gives, which here is a mask and no value", name);
    out->mask = out->n ? strata_keras_common_mask(out->mask, layer->mask) : layer->mask;
    value_name(layer, node, out->names[out->n++], NAME_BYTES);
    out->ready = out->ready && (layer->input || layer->calls > node);
    return STRATA_OK;
}

static bool is_history(const strata_json *value) {
    strata_json item;
    if (strata_json_kind_of(value) != STRATA_JSON_ARRAY || !strata_json_first(value, &item) ||
        strata_json_kind_of(&item) != STRATA_JSON_STRING)
        return false;
    return strata_json_next(&item) && strata_json_kind_of(&item) == STRATA_JSON_NUMBER;
}

/* Collects the tensors in the arguments of a call, in their order, at any depth. Masks of embeddings are not collected. */
static strata_status take_tensors(const reader *r, const strata_json *arguments, taken *out) {
    strata_json item, config, history;
    const char *class = "";
    if (strata_json_kind_of(arguments) == STRATA_JSON_OBJECT &&
        !strata_json_get_string(arguments, "class_name", STRATA_JSON_OPTIONAL, &class, NULL) &&
        !strcmp(class, "__keras_tensor__")) {
        STRATA_TRY(strata_json_get(arguments, "config", &config, r->err));
        STRATA_TRY(strata_json_get(&config, "keras_history", &history, r->err));
        return take_history(r, &history, out);
    }
    const strata_json_kind kind = strata_json_kind_of(arguments);
    if (kind != STRATA_JSON_ARRAY && kind != STRATA_JSON_OBJECT) return STRATA_OK;
    if (is_history(arguments)) { /* Keras 2: ["layer", node, tensor, {other arguments}] */
        STRATA_TRY(take_history(r, arguments, out));
        (void)!strata_json_first(arguments, &item);
        for (int i = 0; i < 3; i++)
            if (!strata_json_next(&item)) return STRATA_OK;
        return take_tensors(r, &item, out);
    }
    for (bool more = strata_json_first(arguments, &item); more; more = strata_json_next(&item)) {
        const size_t n = kind == STRATA_JSON_OBJECT ? strlen(item.name) : 0;
        const bool mask = n >= 4 && !strcmp(item.name + n - 4, "mask") && strcmp(item.name, "attention_mask");
        out->given_mask |= mask && strata_json_kind_of(&item) == STRATA_JSON_OBJECT;
        if (!mask) STRATA_TRY(take_tensors(r, &item, out));
    }
    return STRATA_OK;
}

static void write_names(reader *r, const taken *inputs) {
    strata_json_begin_array(strata_json_key(&r->w, "inputs"));
    for (int i = 0; i < inputs->n; i++) strata_json_write_string(&r->w, inputs->names[i]);
    strata_json_end_array(&r->w);
}

/* Begins the object of a layer. If the layer scales by constants, it first writes the layers that compute its inputs. */
static strata_status begin_with_scale(reader *r, const strata_json *layer, const keras_layer *own, taken *inputs) {
    if (strata_keras_scales(own) && inputs->n == 1) {
        STRATA_TRY(strata_keras_write_scale(r, layer, own, inputs->names[0], inputs->names[0], inputs->names[1]));
        inputs->n = 2;
    }
    strata_json_begin_object(&r->w);
    return STRATA_OK;
}

static strata_status write_named_input(reader *r, const strata_json *layer, bool tokens, const char *name) {
    strata_json_begin_object(&r->w);
    strata_json_write_string(strata_json_key(&r->w, "name"), name);
    STRATA_TRY(write_input(r, layer, tokens, "shape", "dtype"));
    strata_json_end_object(&r->w);
    return STRATA_OK;
}

static void write_output(reader *r, const char *name) {
    strata_json_begin_object(&r->w);
    strata_json_write_string(strata_json_key(&r->w, "name"), name);
    strata_json_end_object(&r->w);
}

static strata_status write_sequential(reader *r, const strata_json *config, const strata_json *layers) {
    strata_json item, input;
    bool scaled = false;
    const char *before = SEQUENTIAL_INPUT;
    (void)config;
    int i = 0;
    bool found = strata_json_first(layers, &input);
    for (; found && !r->layers[i].input; i++) found = strata_json_next(&input);
    if (!found)
        return strata_fail(r->err, STRATA_UNSUPPORTED, "%s: the model was not built, so its input has no shape", r->path);
    for (int k = 0; k < r->n_layers; k++) scaled |= strata_keras_scales(&r->layers[k]);
    int first = 0;
    while (first < r->n_layers && (r->layers[first].input || r->layers[first].dropped)) first++;
    const bool tokens = first < r->n_layers && is_kind(&r->layers[first], "embedding");
    if (scaled) {
        strata_json_begin_array(strata_json_key(&r->w, "inputs"));
        STRATA_TRY(write_named_input(r, &input, tokens, before));
        strata_json_end_array(&r->w);
    } else {
        STRATA_TRY(write_input(r, &input, tokens, "input", "input_dtype"));
    }
    strata_json_begin_array(strata_json_key(&r->w, "layers"));
    i = 0;
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
        keras_layer *own = &r->layers[i];
        STRATA_TRY(strata_keras_fail_in_layer(r, own, follow_mask(r, &item, own, i ? r->layers[i - 1].mask : 0)));
        if (own->input || own->dropped) continue;
        taken inputs = {.n = 1};
        snprintf(inputs.names[0], NAME_BYTES, "%s", before);
        STRATA_TRY(strata_keras_fail_in_layer(r, own, begin_with_scale(r, &item, own, &inputs)));
        STRATA_TRY(strata_keras_fail_in_layer(r, own, write_layer(r, &item, own)));
        if (scaled) write_names(r, &inputs);
        strata_json_end_object(&r->w);
        before = own->name;
    }
    strata_json_end_array(&r->w);
    if (!scaled) return STRATA_OK;
    strata_json_begin_array(strata_json_key(&r->w, "outputs"));
    write_output(r, before);
    strata_json_end_array(&r->w);
    return STRATA_OK;
}

/* Whether the node is a call of MultiHeadAttention with use_causal_mask. */
static bool is_causal(const strata_json *node) {
    strata_json arguments;
    bool causal = false;
    return strata_json_find(node, "kwargs", &arguments) &&
           !strata_json_get_bool(&arguments, "use_causal_mask", STRATA_JSON_OPTIONAL, &causal, NULL) && causal;
}

/* Writes call number k of a layer, whose inputs are written. */
static strata_status write_call(reader *r, const strata_json *layer, keras_layer *own, const strata_json *node, int k,
                                taken *inputs) {
    const bool attention = is_kind(own, "multi_head_attention");
    char name[NAME_BYTES];
    for (int i = 1; i < inputs->n && attention; i++)
        if (strcmp(inputs->names[i], inputs->names[0]))
            return strata_json_fail(node, r->err, STRATA_UNSUPPORTED, "attention here is of a sequence with itself");
    if (attention && inputs->n) inputs->n = 1;
    STRATA_TRY(follow_mask(r, layer, own, inputs->mask));
    if (inputs->given_mask && !inputs->mask)
        return strata_json_fail(node, r->err, STRATA_UNSUPPORTED, "has a mask that is not of an Embedding with mask_zero");
    if (own->dropped) {
        snprintf(own->alias, sizeof own->alias, "%s", inputs->n ? inputs->names[0] : "");
        return STRATA_OK;
    }
    if (k && strata_keras_scales(own))
        return strata_json_fail(node, r->err, STRATA_UNSUPPORTED, "is shared; a layer that scales is called once");
    STRATA_TRY(begin_with_scale(r, layer, own, inputs));
    if (!k) {
        STRATA_TRY(write_layer(r, layer, own));
        if (attention && is_causal(node)) strata_json_write_bool(strata_json_key(&r->w, "causal"), true);
    } else {
        strata_json_write_string(strata_json_key(&r->w, "call"), own->name);
        value_name(own, k, name, sizeof name);
        strata_json_write_string(strata_json_key(&r->w, "name"), name);
    }
    write_names(r, inputs);
    strata_json_end_object(&r->w);
    return STRATA_OK;
}

/* Writes the calls of a layer, in their order, up to the first call that has an input which is not yet written. */
static strata_status write_calls(reader *r, const strata_json *layer, keras_layer *own, bool *progress) {
    strata_json nodes, node;
    int k = 0;
    STRATA_TRY(strata_json_get(layer, "inbound_nodes", &nodes, r->err));
    for (bool more = strata_json_first(&nodes, &node); more; more = strata_json_next(&node), k++) {
        taken inputs = {.ready = true};
        if (k < own->calls) continue;
        STRATA_TRY(take_tensors(r, &node, &inputs));
        if (!inputs.ready) return STRATA_OK;
        STRATA_TRY(write_call(r, layer, own, &node, k, &inputs));
        own->calls++;
        *progress = true;
    }
    return STRATA_OK;
}

/* Reads "input_layers" or "output_layers", which is one reference or a list of them. */
static strata_status take_ends(const reader *r, const strata_json *ends, taken *out) {
    strata_json first, item;
    STRATA_TRY(strata_json_expect(ends, STRATA_JSON_ARRAY, r->err));
    if (strata_json_first(ends, &first) && strata_json_kind_of(&first) == STRATA_JSON_STRING) return take_history(r, ends, out);
    for (bool more = strata_json_first(ends, &item); more; more = strata_json_next(&item))
        STRATA_TRY(take_history(r, &item, out));
    return STRATA_OK;
}

/* Whether an Embedding takes the value of the input. */
static strata_status feeds_embedding(const reader *r, const strata_json *layers, const char *input, bool *out) {
    strata_json item, nodes;
    int i = 0;
    *out = false;
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
        taken inputs = {.ready = true};
        if (!is_kind(&r->layers[i], "embedding")) continue;
        STRATA_TRY(strata_json_get(&item, "inbound_nodes", &nodes, r->err));
        STRATA_TRY(take_tensors(r, &nodes, &inputs));
        for (int k = 0; k < inputs.n; k++) *out |= !strcmp(inputs.names[k], input);
    }
    return STRATA_OK;
}

/* Writes the inputs in the order of "input_layers", which is the order of the model's arguments. `layers` may list them in
 * another order. A model whose inputs have names instead of an order has an object there. */
static strata_status write_inputs(reader *r, const strata_json *config, const strata_json *layers) {
    strata_json item, inputs;
    taken order = {0};
    if (strata_json_find(config, "input_layers", &inputs) && strata_json_kind_of(&inputs) == STRATA_JSON_ARRAY)
        STRATA_TRY(take_ends(r, &inputs, &order));
    for (int k = 0; k < (order.n ? order.n : 1); k++) {
        int i = 0;
        for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
            bool tokens = false;
            if (!r->layers[i].input || (order.n && strcmp(order.names[k], r->layers[i].name))) continue;
            STRATA_TRY(feeds_embedding(r, layers, r->layers[i].name, &tokens));
            STRATA_TRY(write_named_input(r, &item, tokens, r->layers[i].name));
        }
    }
    return STRATA_OK;
}

static strata_status write_functional(reader *r, const strata_json *config, const strata_json *layers) {
    strata_json item, outputs;
    bool progress = true;
    taken ends = {0};
    STRATA_TRY(strata_json_get(config, "output_layers", &outputs, r->err));
    strata_json_begin_array(strata_json_key(&r->w, "inputs"));
    STRATA_TRY(write_inputs(r, config, layers));
    strata_json_end_array(&r->w);
    strata_json_begin_array(strata_json_key(&r->w, "layers"));
    while (progress) { /* a shared layer may be listed before the layers whose results it uses */
        int i = 0;
        progress = false;
        for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
            keras_layer *own = &r->layers[i];
            if (!own->input && !own->makes_mask)
                STRATA_TRY(strata_keras_fail_in_layer(r, own, write_calls(r, &item, own, &progress)));
        }
    }
    strata_json_end_array(&r->w);
    STRATA_TRY(take_ends(r, &outputs, &ends));
    strata_json_begin_array(strata_json_key(&r->w, "outputs"));
    for (int k = 0; k < ends.n; k++) write_output(r, ends.names[k]);
    strata_json_end_array(&r->w);
    return STRATA_OK;
}

/* Adds the name of the layer to a message about "layers[3]" of the JSON that was made of the file. */
static strata_status name_layer(reader *r, const char *text, size_t bytes, strata_status status) {
    strata_json root, layers, item;
    const char *at = r->err ? strstr(r->err->message, "layers[") : NULL, *name = "";
    if (!at || strata_json_parse(r->path, text, bytes, bytes, &root, NULL)) return status;
    int64_t index = strtoll(at + 7, NULL, 10);
    bool more = strata_json_find(&root, "layers", &layers) && strata_json_first(&layers, &item);
    for (; more && index; index--) more = strata_json_next(&item);
    if (more && !strata_json_get_string(&item, "name", STRATA_JSON_REQUIRED, &name, NULL))
        for (int i = 0; i < r->n_layers; i++)
            if (!strcmp(r->layers[i].name, name)) {
                status = strata_keras_fail_in_layer(r, &r->layers[i], status);
                break;
            }
    strata_json_finish(&root);
    return status;
}

strata_status strata_keras_make_model(reader *r, strata_model **out) {
    const char *class = NULL;
    strata_json config, layers;
    STRATA_FREED char *text = NULL;
    size_t bytes = 0;
    STRATA_TRY(class_of(&r->root, &class, r->err));
    r->sequential = !strcmp(class, "Sequential");
    if (!r->sequential && strcmp(class, "Functional") && strcmp(class, "Model"))
        return strata_fail(r->err, STRATA_UNSUPPORTED, "%s: the model is a %.60s; it must be Sequential or Functional", r->path,
                           class);
    STRATA_TRY(strata_json_get(&r->root, "config", &config, r->err));
    STRATA_TRY(strata_json_get(&config, "layers", &layers, r->err));
    STRATA_TRY(strata_json_expect(&layers, STRATA_JSON_ARRAY, r->err));
    const int64_t n = strata_json_length(&layers);
    if (n < 1 || n > MOST_LAYERS)
        return strata_json_fail(&layers, r->err, STRATA_DATA, "has %lld layers; 1..%d", (long long)n, MOST_LAYERS);
    STRATA_TRY(STRATA_NEW(r->layers, n, r->err, "%s: no host memory", r->path));
    STRATA_TRY(read_classes(r, &layers));
    strata_json_begin_object(&r->w);
    STRATA_TRY((r->sequential ? write_sequential : write_functional)(r, &config, &layers));
    strata_json_end_object(&r->w);
    STRATA_TRY(strata_json_take(&r->w, &text, &bytes, r->err));
    const strata_status status = strata_model_from_json(text, bytes, r->path, out, r->err);
    return status ? name_layer(r, text, bytes, status) : STRATA_OK;
}
