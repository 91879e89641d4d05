/* SPDX-License-Identifier: Apache-2.0
 *
 * Keras 3's .keras files: a zip with config.json, which says the layers, and model.weights.h5. The layers are written as the
 * JSON of a Strata model, which is then read as any other; the table says what each class becomes and where its weights lie. */
#include "core/interchange/keras.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/data/format/zip.h"
#include "core/interchange/hdf5.h"
#include "core/model/model.h"
#include "strata/interchange.h"

enum { MOST_CONFIG_BYTES = 16 << 20, MOST_LAYERS = 2000, MOST_FIELDS = 12, MOST_WEIGHTS = 8, NAME_BYTES = 128 };

/* How an option of Keras becomes one of Strata. */
typedef enum field_kind {
    COPY,       /* a number, a text, or a list of numbers */
    FIRST,      /* a list of one number, which becomes the number */
    NEGATED,    /* a flag that is named by its negation */
    ACTIVATION, /* the name of a function; "linear" is none */
    NOT_ZERO,   /* as COPY, but zeros, which are no default, are refused */
    REQUIRED_AS /* must have the value `to`, or be missing or null */
} field_kind;
typedef struct field {
    const char *key, *to;
    field_kind kind;
} field;

typedef struct weight_row {
    /* Below the layer's group: "vars/0". */
    const char *path;
    const char *parameter;
} weight_row;

typedef struct class_row {
    const char *class;
    /* The name of its group of weights, with a number from the second layer of the class on. */
    const char *group;
    const char *kind;
    /* What stands in the JSON besides: "\"op\":\"pad\"". NULL: nothing. */
    const char *fixed;
    field fields[MOST_FIELDS];
    weight_row weights[MOST_WEIGHTS];
} class_row;

#define CHANNELS_LAST \
    { "data_format", "channels_last", REQUIRED_AS }
#define ACTIVATED \
    { "activation", "activation", ACTIVATION }
#define BIASED \
    { "use_bias", "no_bias", NEGATED }
#define WINDOW(copy)                                                            \
    {"strides", "stride", copy}, {"padding", "padding", COPY}, CHANNELS_LAST, { \
        "dilation_rate", "dilation", copy                                       \
    }
#define POOL(copy) \
    { {"pool_size", "size", copy}, {"strides", "stride", copy}, {"padding", "padding", COPY}, CHANNELS_LAST }
#define KERNEL_AND_BIAS         \
    {                           \
        {"vars/0", "kernel"}, { \
            "vars/1", "bias"    \
        }                       \
    }
#define RECURRENT                                                                                                  \
    {                                                                                                              \
        {"units", "units", COPY}, ACTIVATED, {"recurrent_activation", "recurrent_activation", ACTIVATION}, BIASED, \
            {"return_sequences", "return_sequences", COPY}, {"go_backwards", "go_backwards", COPY},                \
            {"dropout", "dropout", COPY}, {"recurrent_dropout", "recurrent_dropout", COPY}, {                      \
            "reset_after", "no_reset_after", NEGATED                                                               \
        }                                                                                                          \
    }
#define RECURRENT_WEIGHTS                                                 \
    {                                                                     \
        {"cell/vars/0", "kernel"}, {"cell/vars/1", "recurrent_kernel"}, { \
            "cell/vars/2", "bias"                                         \
        }                                                                 \
    }

static const class_row classes[] = {
    {"Dense", "dense", "dense", NULL, {{"units", "units", COPY}, ACTIVATED, BIASED}, KERNEL_AND_BIAS},
    {"Conv2D",
     "conv2d",
     "conv2d",
     NULL,
     {{"filters", "filters", COPY}, {"kernel_size", "kernel_size", COPY}, WINDOW(COPY), ACTIVATED, BIASED},
     KERNEL_AND_BIAS},
    {"Conv1D",
     "conv1d",
     "conv1d",
     NULL,
     {{"filters", "filters", COPY}, {"kernel_size", "kernel_size", FIRST}, WINDOW(FIRST), ACTIVATED, BIASED},
     KERNEL_AND_BIAS},
    {"Conv2DTranspose",
     "conv2d_transpose",
     "conv2d_transpose",
     NULL,
     {{"filters", "filters", COPY},
      {"kernel_size", "kernel_size", COPY},
      WINDOW(COPY),
      {"output_padding", "output_padding", NOT_ZERO},
      ACTIVATED,
      BIASED},
     KERNEL_AND_BIAS},
    {"DepthwiseConv2D",
     "depthwise_conv2d",
     "depthwise_conv2d",
     NULL,
     {{"depth_multiplier", "depth_multiplier", COPY}, {"kernel_size", "kernel_size", COPY}, WINDOW(COPY), ACTIVATED, BIASED},
     KERNEL_AND_BIAS},
    {"SeparableConv2D",
     "separable_conv2d",
     "separable_conv2d",
     NULL,
     {{"filters", "filters", COPY}, {"kernel_size", "kernel_size", COPY}, WINDOW(COPY), ACTIVATED, BIASED},
     {{"vars/0", "depthwise_kernel"}, {"vars/1", "pointwise_kernel"}, {"vars/2", "bias"}}},
    {"BatchNormalization",
     "batch_normalization",
     "batch_norm",
     NULL,
     {{"momentum", "momentum", COPY},
      {"epsilon", "epsilon", COPY},
      {"center", "true", REQUIRED_AS},
      {"scale", "true", REQUIRED_AS},
      {"axis", "-1", REQUIRED_AS}},
     {{"vars/0", "gamma"}, {"vars/1", "beta"}, {"vars/2", "moving_mean"}, {"vars/3", "moving_variance"}}},
    {"LayerNormalization",
     "layer_normalization",
     "layer_norm",
     NULL,
     {{"epsilon", "epsilon", COPY},
      {"center", "true", REQUIRED_AS},
      {"scale", "true", REQUIRED_AS},
      {"axis", "-1", REQUIRED_AS}},
     {{"vars/0", "gamma"}, {"vars/1", "beta"}}},
    {"GroupNormalization",
     "group_normalization",
     "group_norm",
     NULL,
     {{"groups", "groups", COPY},
      {"epsilon", "epsilon", COPY},
      {"center", "true", REQUIRED_AS},
      {"scale", "true", REQUIRED_AS},
      {"axis", "-1", REQUIRED_AS}},
     {{"vars/0", "gamma"}, {"vars/1", "beta"}}},
    {"RMSNormalization",
     "rms_normalization",
     "rms_norm",
     NULL,
     {{"epsilon", "epsilon", COPY}, {"axis", "-1", REQUIRED_AS}},
     {{"vars/0", "gamma"}}},
    {"Embedding",
     "embedding",
     "embedding",
     NULL,
     {{"input_dim", "vocabulary", COPY}, {"output_dim", "units", COPY}, {"mask_zero", "mask_zero", COPY}},
     {{"vars/0", "embeddings"}}},
    {"LSTM", "lstm", "lstm", NULL, RECURRENT, RECURRENT_WEIGHTS},
    {"GRU", "gru", "gru", NULL, RECURRENT, RECURRENT_WEIGHTS},
    {"MultiHeadAttention",
     "multi_head_attention",
     "multi_head_attention",
     NULL,
     {{"num_heads", "heads", COPY}, {"key_dim", "key_dim", COPY}, BIASED, {"output_shape", "", REQUIRED_AS}},
     {{"query_dense/vars/0", "query_kernel"},
      {"query_dense/vars/1", "query_bias"},
      {"key_dense/vars/0", "key_kernel"},
      {"key_dense/vars/1", "key_bias"},
      {"value_dense/vars/0", "value_kernel"},
      {"value_dense/vars/1", "value_bias"},
      {"output_dense/vars/0", "output_kernel"},
      {"output_dense/vars/1", "output_bias"}}},
    {"Dropout", "dropout", "dropout", NULL, {{"rate", "rate", COPY}}, {{0}}},
    {"Flatten", "flatten", "flatten", NULL, {CHANNELS_LAST}, {{0}}},
    {"Reshape", "reshape", "reshape", NULL, {{"target_shape", "shape", COPY}}, {{0}}},
    {"MaxPooling2D", "", "max_pool2d", NULL, POOL(COPY), {{0}}},
    {"AveragePooling2D", "", "avg_pool2d", NULL, POOL(COPY), {{0}}},
    {"MaxPooling1D", "", "max_pool1d", NULL, POOL(FIRST), {{0}}},
    {"AveragePooling1D", "", "avg_pool1d", NULL, POOL(FIRST), {{0}}},
    {"GlobalAveragePooling2D", "", "global_average_pool", NULL, {CHANNELS_LAST, {"keepdims", "false", REQUIRED_AS}}, {{0}}},
    {"GlobalAveragePooling1D", "", "global_average_pool", NULL, {CHANNELS_LAST, {"keepdims", "false", REQUIRED_AS}}, {{0}}},
    {"GlobalMaxPooling2D", "", "global_max_pool", NULL, {CHANNELS_LAST, {"keepdims", "false", REQUIRED_AS}}, {{0}}},
    {"GlobalMaxPooling1D", "", "global_max_pool", NULL, {CHANNELS_LAST, {"keepdims", "false", REQUIRED_AS}}, {{0}}},
    {"Activation", "", "activation", NULL, {{"activation", "function", ACTIVATION}}, {{0}}},
    {"ReLU",
     "",
     "activation",
     "\"function\":\"relu\"",
     {{"max_value", "", REQUIRED_AS}, {"negative_slope", "0", REQUIRED_AS}, {"threshold", "0", REQUIRED_AS}},
     {{0}}},
    {"Softmax", "", "activation", "\"function\":\"softmax\"", {{"axis", "-1", REQUIRED_AS}}, {{0}}},
    {"ELU", "", "activation", "\"function\":\"elu\"", {{"alpha", "1", REQUIRED_AS}}, {{0}}},
    {"Add", "", "add", NULL, {{0}}, {{0}}},
    {"Multiply", "", "multiply", NULL, {{0}}, {{0}}},
    {"Concatenate", "", "concat", NULL, {{"axis", "-1", REQUIRED_AS}}, {{0}}},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

typedef struct keras_layer {
    const class_row *row;
    /* The layer around `row` is Bidirectional. */
    bool both;
    char name[NAME_BYTES], group[NAME_BYTES];
    /* How many of its calls were written. */
    int calls;
} keras_layer;

typedef struct reader {
    const char *path;
    strata_json root;
    bool sequential;
    keras_layer *layers;
    int n_layers;
    strata_json_writer w;
    strata_error *err;
} reader;

/* ---- what the layers are ---- */

static const class_row *find_class(const char *name) {
    for (int i = 0; i < N_CLASSES; i++)
        if (!strcmp(classes[i].class, name)) return &classes[i];
    return NULL;
}

static strata_status class_of(const strata_json *layer, const char **out, strata_error *err) {
    STRATA_TRY(strata_json_expect(layer, STRATA_JSON_OBJECT, err));
    return strata_json_get_string(layer, "class_name", STRATA_JSON_REQUIRED, out, err);
}

/* The layer's config, and of a Bidirectional that of the layer inside. Values borrow their parents, so *inner and *config must
 * live as long as they are used. */
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

/* The name of the group of a layer's weights: its class's, with a number for the second and later ones. */
static void name_group(reader *r, keras_layer *layer) {
    const char *base = layer->both ? "bidirectional" : layer->row->group;
    int n = 0;
    for (int i = 0; i < r->n_layers; i++)
        n += r->layers[i].row && r->layers[i].both == layer->both &&
             (layer->both || !strcmp(r->layers[i].row->group, layer->row->group));
    snprintf(layer->group, sizeof layer->group, n ? "layers/%s_%d" : "layers/%s", base, n);
}

/* Fills r->layers; classes that there are none for are listed in one message. Inputs have no row. */
static strata_status read_classes(reader *r, const strata_json *layers) {
    strata_json item;
    strata_text unknown = {0};
    strata_status status = STRATA_OK;
    for (bool more = strata_json_first(layers, &item); more && !status; more = strata_json_next(&item)) {
        const char *class = NULL, *name = "";
        keras_layer *own = &r->layers[r->n_layers];
        strata_json config, inner;
        status = class_of(&item, &class, r->err);
        if (!status) status = strata_json_get(&item, "config", &config, r->err);
        if (!status) status = strata_json_get_string(&config, "name", STRATA_JSON_REQUIRED, &name, r->err);
        if (status) break;
        snprintf(own->name, sizeof own->name, "%s", name);
        if (!strcmp(class, "Bidirectional")) {
            own->both = true;
            status = strata_json_get(&config, "layer", &inner, r->err);
            if (!status) status = class_of(&inner, &class, r->err);
            if (status) break;
        }
        own->row = find_class(class);
        const bool known =
            own->row ? !own->both || !strcmp(class, "LSTM") || !strcmp(class, "GRU") : !strcmp(class, "InputLayer");
        if (!known) strata_text_add(&unknown, "%s%.60s (%.60s)", unknown.n_bytes ? ", " : "", class, name);
        if (own->row) name_group(r, own);
        r->n_layers++;
    }
    if (!status && unknown.failed) status = strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
    if (!status && unknown.n_bytes)
        status = strata_fail(r->err, STRATA_UNSUPPORTED, "%s: there are no layers for: %.800s", r->path, unknown.bytes);
    strata_text_finish(&unknown);
    return status;
}

/* ---- options ---- */

static strata_status wrong(const strata_json *value, const field *f, strata_error *err) {
    return strata_json_fail(value, err, STRATA_UNSUPPORTED, "is not what a layer here has%s%s", *f->to ? ": " : "", f->to);
}

/* Whether the value is the row's text: a string, a number, a flag, or a list of one of these. null is always right. */
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
            return !strata_json_to_number(value, -1e9, 1e9, &number, err) && number == atof(text);
        case STRATA_JSON_BOOL:
            return !strata_json_to_bool(value, &flag, err) && flag == !strcmp(text, "true");
        case STRATA_JSON_ARRAY:
            return strata_json_length(value) == 1 && strata_json_first(value, &item) && is_as(&item, text, err);
        default:
            return false;
    }
}

static strata_status write_value(reader *r, const strata_json *value) {
    const char *string = NULL;
    double number = 0;
    bool flag = false;
    strata_json item;
    switch (strata_json_kind_of(value)) {
        case STRATA_JSON_STRING:
            STRATA_TRY(strata_json_to_string(value, &string, r->err));
            strata_json_write_string(&r->w, string);
            return STRATA_OK;
        case STRATA_JSON_NUMBER:
            STRATA_TRY(strata_json_to_number(value, -1e15, 1e15, &number, r->err));
            strata_json_write_double(&r->w, number);
            return STRATA_OK;
        case STRATA_JSON_BOOL:
            STRATA_TRY(strata_json_to_bool(value, &flag, r->err));
            strata_json_write_bool(&r->w, flag);
            return STRATA_OK;
        case STRATA_JSON_ARRAY:
            strata_json_begin_array(&r->w);
            for (bool more = strata_json_first(value, &item); more; more = strata_json_next(&item))
                STRATA_TRY(write_value(r, &item));
            strata_json_end_array(&r->w);
            return STRATA_OK;
        default:
            return strata_json_fail(value, r->err, STRATA_UNSUPPORTED, "is an object; a layer here has a number or a name");
    }
}

/* Whether it is 0, or a list of zeros. */
static bool is_zero(const strata_json *value) {
    strata_json item;
    double number = 1;
    if (strata_json_kind_of(value) != STRATA_JSON_ARRAY)
        return !strata_json_to_number(value, -1e15, 1e15, &number, NULL) && number == 0;
    for (bool more = strata_json_first(value, &item); more; more = strata_json_next(&item))
        if (strata_json_to_number(&item, -1e15, 1e15, &number, NULL) || number != 0) return false;
    return true;
}

static strata_status write_field(reader *r, const strata_json *config, const field *f, bool drop_activation) {
    strata_json value, first;
    const char *name = NULL;
    bool flag = false;
    if (!strata_json_find(config, f->key, &value)) return STRATA_OK;
    if (f->kind == REQUIRED_AS) return is_as(&value, f->to, r->err) ? STRATA_OK : wrong(&value, f, r->err);
    if (strata_json_kind_of(&value) == STRATA_JSON_NULL) return STRATA_OK;
    if (f->kind == ACTIVATION) {
        STRATA_TRY(strata_json_to_string(&value, &name, r->err));
        const bool function = !strcmp(f->to, "function");
        if (drop_activation || (!strcmp(name, "linear") && (!function && strcmp(f->to, "recurrent_activation"))))
            return STRATA_OK;
    }
    if (f->kind == NOT_ZERO && is_zero(&value)) return wrong(&value, f, r->err);
    strata_json_key(&r->w, f->to);
    if (f->kind == NEGATED) {
        STRATA_TRY(strata_json_to_bool(&value, &flag, r->err));
        strata_json_write_bool(&r->w, !flag);
        return STRATA_OK;
    }
    if (f->kind == FIRST && strata_json_kind_of(&value) == STRATA_JSON_ARRAY) {
        if (strata_json_length(&value) != 1 || !strata_json_first(&value, &first)) return wrong(&value, f, r->err);
        return write_value(r, &first);
    }
    return write_value(r, &value);
}

/* The layer's kind, name and options; what it takes is written by the caller. */
static strata_status write_layer(reader *r, const strata_json *layer, const keras_layer *own, bool drop_activation) {
    strata_json config, inner, inner_config;
    const strata_json *options;
    const char *merge = "concat";
    STRATA_TRY(config_of(layer, own, &config, &inner, &inner_config, &options, r->err));
    strata_json_key(&r->w, "layer");
    strata_json_write_string(&r->w, own->row->kind);
    strata_json_key(&r->w, "name");
    strata_json_write_string(&r->w, own->name);
    if (own->row->fixed) { /* the text of some members */
        strata_text_add(&r->w.text, ",%s", own->row->fixed);
    }
    for (int i = 0; i < MOST_FIELDS && own->row->fields[i].key; i++)
        STRATA_TRY(write_field(r, options, &own->row->fields[i], drop_activation));
    if (!own->both) return STRATA_OK;
    STRATA_TRY(strata_json_get_string(&config, "merge_mode", STRATA_JSON_REQUIRED, &merge, r->err));
    strata_json_key(&r->w, "bidirectional");
    strata_json_write_string(&r->w, merge);
    return STRATA_OK;
}

/* The shape of an input without the batch, and its type. */
static strata_status write_input(reader *r, const strata_json *layer, const char *shape_key, const char *dtype_key) {
    strata_json config, shape, item;
    const char *dtype = "float32";
    STRATA_TRY(strata_json_get(layer, "config", &config, r->err));
    if (!strata_json_find(&config, "batch_shape", &shape))
        STRATA_TRY(strata_json_get(&config, "batch_input_shape", &shape, r->err));
    STRATA_TRY(strata_json_expect(&shape, STRATA_JSON_ARRAY, r->err));
    STRATA_TRY(strata_json_get_string(&config, "dtype", STRATA_JSON_OPTIONAL, &dtype, r->err));
    strata_json_key(&r->w, shape_key);
    strata_json_begin_array(&r->w);
    bool batch = true;
    for (bool more = strata_json_first(&shape, &item); more; more = strata_json_next(&item), batch = false) {
        int64_t size;
        if (batch) continue;
        if (strata_json_kind_of(&item) == STRATA_JSON_NULL)
            return strata_json_fail(&item, r->err, STRATA_UNSUPPORTED, "is open; give the model's input all its sizes");
        STRATA_TRY(strata_json_to_int(&item, 1, INT32_MAX, &size, r->err));
        strata_json_write_int(&r->w, size);
    }
    strata_json_end_array(&r->w);
    strata_json_key(&r->w, dtype_key);
    strata_json_write_string(&r->w, !strncmp(dtype, "int", 3) ? "i32" : "f32");
    return STRATA_OK;
}

/* ---- the model ---- */

/* A softmax or sigmoid of the last layer is what predict does for a loss of logits: NULL, or that loss. */
static const char *loss_of(const strata_json *layer, const keras_layer *own) {
    strata_json config;
    const char *activation = "";
    if (!own->row || strcmp(own->row->kind, "dense") || strata_json_get(layer, "config", &config, NULL) ||
        strata_json_get_string(&config, "activation", STRATA_JSON_OPTIONAL, &activation, NULL))
        return NULL;
    if (!strcmp(activation, "softmax")) return "sparse_categorical_crossentropy";
    return !strcmp(activation, "sigmoid") ? "binary_crossentropy" : NULL;
}

static strata_status write_sequential(reader *r, const strata_json *config, const strata_json *layers) {
    strata_json item, input;
    bool found = false;
    const char *loss = NULL;
    (void)config;
    int last = r->n_layers - 1, i = 0;
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
        if (!r->layers[i].row && !found) {
            input = item;
            found = true;
        }
        if (i == last) loss = loss_of(&item, &r->layers[i]);
    }
    if (!found)
        return strata_fail(r->err, STRATA_UNSUPPORTED, "%s: the model was not built, so its input has no shape", r->path);
    STRATA_TRY(write_input(r, &input, "input", "input_dtype"));
    strata_json_key(&r->w, "layers");
    strata_json_begin_array(&r->w);
    i = 0;
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
        if (!r->layers[i].row) continue;
        strata_json_begin_object(&r->w);
        STRATA_TRY(write_layer(r, &item, &r->layers[i], loss && i == last));
        strata_json_end_object(&r->w);
    }
    strata_json_end_array(&r->w);
    strata_json_key(&r->w, "loss");
    strata_json_write_string(&r->w, loss ? loss : "mse");
    return STRATA_OK;
}

static keras_layer *find_layer(const reader *r, const char *name) {
    for (int i = 0; i < r->n_layers; i++)
        if (!strcmp(r->layers[i].name, name)) return &r->layers[i];
    return NULL;
}

/* The name of what call `node` of a layer gives. */
static void value_name(const keras_layer *layer, int64_t node, char *out, size_t bytes) {
    snprintf(out, bytes, node ? "%.100s_call_%lld" : "%.100s", layer->name, (long long)node);
}

enum { MOST_TAKEN = 64 };
typedef struct taken {
    char names[MOST_TAKEN][NAME_BYTES];
    int n;
    /* All of them are written already. */
    bool ready;
} taken;

/* ["layer", node, tensor] */
static strata_status take_history(const reader *r, const strata_json *history, taken *out) {
    strata_json item;
    const char *name = NULL;
    int64_t node = 0;
    STRATA_TRY(strata_json_expect(history, STRATA_JSON_ARRAY, r->err));
    if (strata_json_length(history) != 3 || !strata_json_first(history, &item))
        return strata_json_fail(history, r->err, STRATA_DATA, "must be [layer, node, tensor]");
    STRATA_TRY(strata_json_to_string(&item, &name, r->err));
    if (strata_json_next(&item)) STRATA_TRY(strata_json_to_int(&item, 0, 1 << 20, &node, r->err));
    const keras_layer *layer = find_layer(r, name);
    if (!layer) return strata_json_fail(history, r->err, STRATA_DATA, "there is no layer \"%.60s\"", name);
    if (out->n == MOST_TAKEN) return strata_json_fail(history, r->err, STRATA_UNSUPPORTED, "more than %d inputs", MOST_TAKEN);
    value_name(layer, node, out->names[out->n++], NAME_BYTES);
    out->ready = out->ready && (!layer->row || layer->calls > node);
    return STRATA_OK;
}

/* Tensors anywhere in the arguments of a call, in their order. */
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
    for (bool more = strata_json_first(arguments, &item); more; more = strata_json_next(&item))
        STRATA_TRY(take_tensors(r, &item, out));
    return STRATA_OK;
}

static void write_names(reader *r, const taken *inputs) {
    strata_json_key(&r->w, "inputs");
    strata_json_begin_array(&r->w);
    for (int i = 0; i < inputs->n; i++) strata_json_write_string(&r->w, inputs->names[i]);
    strata_json_end_array(&r->w);
}

/* The calls of a layer whose inputs are written, in their order. */
static strata_status write_calls(reader *r, const strata_json *layer, keras_layer *own, bool drop_activation, bool *progress) {
    strata_json nodes, node;
    int k = 0;
    STRATA_TRY(strata_json_get(layer, "inbound_nodes", &nodes, r->err));
    for (bool more = strata_json_first(&nodes, &node); more; more = strata_json_next(&node), k++) {
        taken *inputs = calloc(1, sizeof *inputs);
        char name[NAME_BYTES];
        if (!inputs) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
        inputs->ready = true;
        strata_status status = k < own->calls ? STRATA_OK : take_tensors(r, &node, inputs);
        const bool attention = !strcmp(own->row->kind, "multi_head_attention");
        for (int i = 1; i < inputs->n && attention && !status; i++)
            if (strcmp(inputs->names[i], inputs->names[0]))
                status = strata_json_fail(&node, r->err, STRATA_UNSUPPORTED, "attention here is of a sequence with itself");
        if (attention && inputs->n) inputs->n = 1;
        if (k < own->calls || status || !inputs->ready) {
            const bool stop = status || (k >= own->calls && !inputs->ready);
            free(inputs);
            STRATA_TRY(status);
            if (stop) return STRATA_OK;
            continue;
        }
        strata_json_begin_object(&r->w);
        if (!k) {
            status = write_layer(r, layer, own, drop_activation);
        } else {
            strata_json_key(&r->w, "call");
            strata_json_write_string(&r->w, own->name);
            strata_json_key(&r->w, "name");
            value_name(own, k, name, sizeof name);
            strata_json_write_string(&r->w, name);
        }
        write_names(r, inputs);
        strata_json_end_object(&r->w);
        free(inputs);
        STRATA_TRY(status);
        own->calls++;
        *progress = true;
    }
    return STRATA_OK;
}

/* "output_layers": one history, or a list of them. */
static strata_status take_outputs(const reader *r, const strata_json *outputs, taken *out) {
    strata_json first, item;
    STRATA_TRY(strata_json_expect(outputs, STRATA_JSON_ARRAY, r->err));
    if (strata_json_first(outputs, &first) && strata_json_kind_of(&first) == STRATA_JSON_STRING)
        return take_history(r, outputs, out);
    for (bool more = strata_json_first(outputs, &item); more; more = strata_json_next(&item))
        STRATA_TRY(take_history(r, &item, out));
    return STRATA_OK;
}

static strata_status write_functional(reader *r, const strata_json *config, const strata_json *layers) {
    strata_json item, outputs;
    int i = 0;
    bool progress = true;
    const char *loss = NULL;
    taken *ends = calloc(1, sizeof *ends);
    if (!ends) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
    strata_status status = strata_json_get(config, "output_layers", &outputs, r->err);
    if (!status) status = take_outputs(r, &outputs, ends);
    if (status) goto cleanup;
    strata_json_key(&r->w, "inputs");
    strata_json_begin_array(&r->w);
    for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
        if (r->layers[i].row) continue;
        strata_json_begin_object(&r->w);
        strata_json_key(&r->w, "name");
        strata_json_write_string(&r->w, r->layers[i].name);
        STRATA_TRY_GOTO(write_input(r, &item, "shape", "dtype"));
        strata_json_end_object(&r->w);
    }
    strata_json_end_array(&r->w);
    strata_json_key(&r->w, "layers");
    strata_json_begin_array(&r->w);
    while (progress) { /* layers are listed before what they take where they are shared */
        progress = false;
        i = 0;
        for (bool more = strata_json_first(layers, &item); more; more = strata_json_next(&item), i++) {
            keras_layer *own = &r->layers[i];
            const bool last = ends->n == 1 && !strcmp(ends->names[0], own->name);
            if (!own->row) continue;
            if (last) loss = loss_of(&item, own);
            STRATA_TRY_GOTO(write_calls(r, &item, own, last && loss, &progress));
        }
    }
    strata_json_end_array(&r->w);
    strata_json_key(&r->w, "outputs");
    strata_json_begin_array(&r->w);
    for (int k = 0; k < ends->n; k++) {
        strata_json_begin_object(&r->w);
        strata_json_key(&r->w, "name");
        strata_json_write_string(&r->w, ends->names[k]);
        strata_json_key(&r->w, "loss");
        strata_json_write_string(&r->w, loss ? loss : "mse");
        strata_json_end_object(&r->w);
    }
    strata_json_end_array(&r->w);
cleanup:
    free(ends);
    return status;
}

static strata_status make_model(reader *r, strata_model **out) {
    const char *class = NULL;
    strata_json config, layers;
    char *text = NULL;
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
    r->layers = calloc((size_t)n, sizeof *r->layers);
    if (!r->layers) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
    STRATA_TRY(read_classes(r, &layers));
    strata_json_begin_object(&r->w);
    STRATA_TRY((r->sequential ? write_sequential : write_functional)(r, &config, &layers));
    strata_json_end_object(&r->w);
    STRATA_TRY(strata_json_take(&r->w, &text, &bytes, r->err));
    const strata_status status = strata_model_from_json(text, bytes, r->path, out, r->err);
    free(text);
    return status;
}

/* ---- weights ---- */

/* Where weights come from: HDF5, or a safetensors file with the same names. */
typedef struct source {
    strata_hdf5 *hdf5;
    strata_safetensors *tensors;
} source;

static strata_status read_weight(const source *from, const char *path, strata_shape shape, float *out, strata_error *err) {
    const int64_t n = strata_shape_elements(shape);
    if (from->hdf5) return strata_hdf5_read(from->hdf5, path, n, out, err);
    const strata_safetensor *tensor = strata_safetensors_find(from->tensors, path);
    return strata_safetensors_copy(from->tensors, path, STRATA_DTYPE_F32,
                                   tensor && strata_shape_elements(tensor->shape) == n ? tensor->shape : shape, out, err);
}

/* Keras' shapes are Strata's, but for heads, which are an axis of their own there with the same order of elements. */
static strata_status read_layer_weights(const reader *r, strata_model *model, const keras_layer *layer, const source *from) {
    const size_t n = strlen(layer->name);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (strncmp(p->name, layer->name, n) || p->name[n] != '/') continue;
        const char *own = p->name + n + 1, *way = "";
        char path[2 * NAME_BYTES];
        const weight_row *row = layer->row->weights;
        if (layer->both) {
            const bool second = !strncmp(own, "backward_", 9);
            way = second ? "backward_layer/" : "forward_layer/";
            own += second ? 9 : 0;
        }
        while (row < layer->row->weights + MOST_WEIGHTS && row->path && strcmp(row->parameter, own)) row++;
        if (row == layer->row->weights + MOST_WEIGHTS || !row->path)
            return strata_fail(r->err, STRATA_INTERNAL, "%s: no weights are known for %s", r->path, p->name);
        snprintf(path, sizeof path, "%s/%s%s", layer->group, way, row->path);
        STRATA_TRY(read_weight(from, path, p->shape, model->loaded + strata_model_place(model, p), r->err));
    }
    return STRATA_OK;
}

static strata_status read_weights(const reader *r, strata_model *model, const source *from) {
    model->loaded = calloc((size_t)strata_model_all_size(model) + 1, sizeof *model->loaded);
    if (!model->loaded) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its weights", r->path);
    for (int i = 0; i < r->n_layers; i++)
        if (r->layers[i].row) STRATA_TRY(read_layer_weights(r, model, &r->layers[i], from));
    return STRATA_OK;
}

/* "model.safetensors" for "model.keras", where there is one. */
static strata_status open_tensors(const reader *r, strata_safetensors *out, bool *found) {
    const size_t n = strlen(r->path), cut = n > 6 && !strcmp(r->path + n - 6, ".keras") ? n - 6 : n;
    char *path = malloc(cut + sizeof ".safetensors");
    if (!path) return strata_fail(r->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", r->path);
    memcpy(path, r->path, cut);
    strcpy(path + cut, ".safetensors");
    FILE *file = fopen(path, "rb");
    *found = file != NULL;
    strata_status status = STRATA_OK;
    if (file) {
        fclose(file);
        status = strata_safetensors_read(path, out, r->err);
        out->name = r->path;
    }
    free(path);
    return status;
}

static strata_status take_weights(const reader *r, const strata_zip *zip, strata_model *model) {
    const strata_zip_member *member = strata_zip_find(zip, "model.weights.h5");
    const unsigned char *bytes = NULL;
    unsigned char *expanded = NULL;
    strata_safetensors tensors = {0};
    source from = {0};
    bool beside = false;
    STRATA_TRY(open_tensors(r, &tensors, &beside));
    if (beside) {
        from.tensors = &tensors;
        const strata_status read = read_weights(r, model, &from);
        strata_safetensors_finish(&tensors);
        return read;
    }
    if (!member) return strata_fail(r->err, STRATA_DATA, "%s: it has no model.weights.h5", r->path);
    strata_status status = strata_zip_unpack(zip, member, &bytes, &expanded);
    if (!status) status = strata_hdf5_open(r->path, bytes, member->size, &from.hdf5, r->err);
    if (!status) status = read_weights(r, model, &from);
    strata_hdf5_close(from.hdf5);
    free(expanded);
    return status;
}

static strata_status parse(reader *r, const strata_zip *zip, bool weights, strata_model **out) {
    const strata_zip_member *member = strata_zip_find(zip, "config.json");
    const unsigned char *bytes = NULL;
    unsigned char *expanded = NULL;
    if (!member) return strata_fail(r->err, STRATA_DATA, "%s: it has no config.json, so it is no .keras file", r->path);
    strata_status status = strata_zip_unpack(zip, member, &bytes, &expanded);
    if (!status) status = strata_json_parse(r->path, bytes, member->size, MOST_CONFIG_BYTES, &r->root, r->err);
    free(expanded);
    if (!status) status = make_model(r, out);
    if (!status && weights) status = take_weights(r, zip, *out);
    return status;
}

strata_status strata_keras_parse(const char *path, const void *bytes, size_t n_bytes, bool weights, strata_model **out_model,
                                 strata_error *err) {
    reader r = {.path = path, .err = err};
    strata_zip zip;
    strata_model *model = NULL;
    STRATA_TRY(strata_zip_open(path, bytes, n_bytes, &zip, err));
    const strata_status status = parse(&r, &zip, weights, &model);
    strata_json_finish(&r.root);
    strata_text_finish(&r.w.text);
    free(r.layers);
    strata_zip_finish(&zip);
    if (status)
        strata_model_destroy(model);
    else
        *out_model = model;
    return status;
}

strata_status strata_model_load_keras(const char *path, strata_model **out_model, strata_error *err) {
    unsigned char *bytes;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(32), &bytes, &n_bytes, err));
    const strata_status status = strata_keras_parse(path, bytes, n_bytes, true, out_model, err);
    free(bytes);
    return status;
}
