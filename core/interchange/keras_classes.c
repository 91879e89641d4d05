/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of Keras' classes. Its rows are text, which needs a fifth of the memory of structs with as many pointers. */
#include "core/interchange/keras_classes.h"

#include <stdio.h>
#include <string.h>

#define BIASED        " !use_bias=no_bias "
#define PENALIZED     " *kernel_regularizer=kernel_l "
#define CHANNELS_LAST " ?data_format=channels_last "
#define WINDOW(sign) \
    " " sign "strides=stride padding " sign "dilation_rate=dilation " sign "kernel_size @activation" BIASED CHANNELS_LAST
#define POOL(sign)  " " sign "pool_size=size " sign "strides=stride padding " CHANNELS_LAST
#define GLOBAL_POOL " ?keepdims=false " CHANNELS_LAST
#define SCALED      " ?center=true ?scale=true "
#define RECURRENT                                                                                       \
    " units @activation @recurrent_activation return_sequences go_backwards dropout recurrent_dropout " \
    "!reset_after=no_reset_after" BIASED "| cell/vars/0=kernel cell/vars/1=recurrent_kernel cell/vars/2=bias"
#define KERNEL_AND_BIAS "| vars/0=kernel vars/1=bias"

/* If several classes are of one kind, the export writes the first one whose name has the number of axes of the input
 * ("1D"). */
static const char *const rows[] = {
    "Dense dense units @activation" BIASED PENALIZED KERNEL_AND_BIAS,
    "Conv2D conv2d filters groups" WINDOW("") PENALIZED KERNEL_AND_BIAS,
    "Conv1D conv1d filters groups" WINDOW("[") PENALIZED KERNEL_AND_BIAS,
    "Conv2DTranspose conv2d_transpose filters ~output_padding" WINDOW("") PENALIZED KERNEL_AND_BIAS,
    "DepthwiseConv2D depthwise_conv2d depth_multiplier" WINDOW("") KERNEL_AND_BIAS,
    "SeparableConv2D separable_conv2d filters depth_multiplier" WINDOW(
        "") "| vars/0=depthwise_kernel vars/1=pointwise_kernel vars/2=bias",
    "BatchNormalization batch_norm momentum epsilon ?axis=-1" SCALED
    "| vars/0=gamma vars/1=beta vars/2=moving_mean vars/3=moving_variance",
    "LayerNormalization layer_norm epsilon ?axis=-1 ?rms_scaling=false" SCALED "| vars/0=gamma vars/1=beta",
    "GroupNormalization group_norm groups epsilon ?axis=-1" SCALED "| vars/0=gamma vars/1=beta",
    "RMSNormalization rms_norm epsilon ?axis=-1 | vars/0=gamma",
    "Embedding embedding input_dim=vocabulary output_dim=units mask_zero | vars/0=embeddings",
    "LSTM lstm" RECURRENT,
    "GRU gru" RECURRENT,
    "MultiHeadAttention multi_head_attention num_heads=heads key_dim ?output_shape=" BIASED
    "| query_dense/vars/0=query_kernel query_dense/vars/1=query_bias key_dense/vars/0=key_kernel key_dense/vars/1=key_bias "
    "value_dense/vars/0=value_kernel value_dense/vars/1=value_bias output_dense/vars/0=output_kernel "
    "output_dense/vars/1=output_bias",
    "Dropout dropout rate",
    "Flatten flatten" CHANNELS_LAST,
    "Reshape reshape target_shape=shape",
    "MaxPooling2D max_pool2d" POOL(""),
    "AveragePooling2D avg_pool2d" POOL(""),
    "MaxPooling1D max_pool1d" POOL("["),
    "AveragePooling1D avg_pool1d" POOL("["),
    "GlobalAveragePooling2D global_average_pool" GLOBAL_POOL,
    "GlobalAveragePooling1D global_average_pool" GLOBAL_POOL,
    "GlobalMaxPooling2D global_max_pool" GLOBAL_POOL,
    "GlobalMaxPooling1D global_max_pool" GLOBAL_POOL,
    "Activation activation @activation=function",
    "ReLU activation +function=relu ?negative_slope=0 ?threshold=0",
    STRATA_KERAS_LIMITED_RELU " op +op=clip ?negative_slope=0 ?threshold=0",
    "LeakyReLU op +op=leaky_relu",
    "ZeroPadding1D op +op=pad" CHANNELS_LAST,
    "ZeroPadding2D op +op=pad" CHANNELS_LAST,
    "Softmax activation +function=softmax ?axis=-1",
    "ELU activation +function=elu ?alpha=1",
    "Add add",
    "Multiply multiply",
    "Concatenate concat #axis",
    "Normalization op +op=div ?invert=false",
    "Rescaling op +op=add",
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Copies the next word of a row, at most `bytes` - 1 characters of it. Returns false at the end of the row. */
static bool next_word(const char **at, char *out, size_t bytes) {
    *at += strspn(*at, " ");
    const size_t n = strcspn(*at, " ");
    snprintf(out, bytes, "%.*s", (int)n, *at);
    *at += n;
    return n != 0;
}

static void open_row(const char *row, strata_keras_class *out) {
    out->fields = row;
    next_word(&out->fields, out->name, sizeof out->name);
    next_word(&out->fields, out->kind, sizeof out->kind);
    const char *bar = strchr(row, '|');
    out->weights = bar ? bar + 1 : "";
}

bool strata_keras_find_class(const char *name, strata_keras_class *out) {
    for (int i = 0; i < N_ROWS; i++) {
        open_row(rows[i], out);
        if (!strcmp(out->name, name)) return true;
    }
    return false;
}

bool strata_keras_find_kind(const char *kind, int rank, strata_keras_class *out) {
    for (int i = 0; i < N_ROWS; i++) {
        open_row(rows[i], out);
        const char *axes = strstr(out->name, "Global") ? strpbrk(out->name, "12") : NULL;
        if (!strcmp(out->kind, kind) && strcmp(kind, "op") && (!axes || *axes - '0' + 2 == rank)) return true;
    }
    return false;
}

/* Divides "a=b" into its two parts. Without a '=' both parts are the whole word. */
static void divide(const char *word, char *key, char *to) {
    const size_t n = strcspn(word, "=");
    snprintf(key, STRATA_KERAS_WORD_BYTES, "%.*s", (int)n, word);
    snprintf(to, STRATA_KERAS_WORD_BYTES, "%s", word[n] ? word + n + 1 : word);
}

static bool is_small(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_capital(char c) {
    return c >= 'A' && c <= 'Z';
}

bool strata_keras_next_field(const char **at, strata_keras_field *out) {
    char word[2 * STRATA_KERAS_WORD_BYTES];
    if (!next_word(at, word, sizeof word) || *word == '|') return false;
    const bool sign = !is_small(*word) && !is_capital(*word);
    out->way = sign ? (strata_keras_way)*word : STRATA_KERAS_COPY;
    divide(word + sign, out->key, out->to);
    return true;
}

/* Makes the name in the way Keras does: a '_' is inserted before each capital that is followed by, or that follows, a
 * small letter. */
void strata_keras_group(const char *class_name, char *out, size_t bytes) {
    size_t n = 0;
    for (const char *at = class_name; *at && n + 2 < bytes; at++) {
        if (at > class_name && is_capital(*at) && (is_small(at[1]) || is_small(at[-1]))) out[n++] = '_';
        out[n++] = is_capital(*at) ? (char)(*at - 'A' + 'a') : *at;
    }
    out[n] = 0;
}

bool strata_keras_weight_path(const strata_keras_class *row, bool both, const char *parameter, char *out, size_t bytes) {
    static const char back[] = "backward_";
    char word[2 * STRATA_KERAS_WORD_BYTES], path[STRATA_KERAS_WORD_BYTES], name[STRATA_KERAS_WORD_BYTES];
    const bool second = both && !strncmp(parameter, back, sizeof back - 1);
    if (second) parameter += sizeof back - 1;
    for (const char *at = row->weights; next_word(&at, word, sizeof word);) {
        divide(word, path, name);
        if (strcmp(name, parameter)) continue;
        snprintf(out, bytes, "/%s%s", !both ? "" : second ? "backward_layer/" : "forward_layer/", path);
        return true;
    }
    return false;
}

bool strata_keras_weight_name(const strata_keras_class *row, int index, char *out, size_t bytes) {
    char word[2 * STRATA_KERAS_WORD_BYTES], path[STRATA_KERAS_WORD_BYTES], name[STRATA_KERAS_WORD_BYTES];
    for (const char *at = row->weights; next_word(&at, word, sizeof word); index--) {
        if (index) continue;
        divide(word, path, name);
        snprintf(out, bytes, "%s", name);
        return true;
    }
    return false;
}

bool strata_keras_is_recurrent(const strata_keras_class *row) {
    return !strcmp(row->kind, "lstm") || !strcmp(row->kind, "gru");
}

/* Whether the list, in which each word has a space before and after it, contains the word. */
static bool has_word(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; n && (at = strstr(at, word)); at += n)
        if (at > list && at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

strata_keras_mask strata_keras_mask_behind(const char *kind, bool return_sequences, bool go_backwards) {
    if (has_word(" lstm gru ", kind) && !return_sequences) return STRATA_KERAS_MASK_ENDS;
    if (has_word(" lstm gru ", kind) && go_backwards) return STRATA_KERAS_MASK_DIFFERS;
    if (has_word(
            " lstm gru dense activation dropout batch_norm layer_norm group_norm multi_head_attention add multiply residual ",
            kind))
        return STRATA_KERAS_MASK_GOES_ON;
    return has_word(" rms_norm global_max_pool concat ", kind) ? STRATA_KERAS_MASK_DIFFERS : STRATA_KERAS_MASK_ENDS;
}

int strata_keras_common_mask(int a, int b) {
    return a == b ? a : a && b ? -1 : 0;
}

bool strata_keras_has_activation(const char *function) {
    return !*function ||
           has_word(" linear relu tanh sigmoid softmax gelu silu swish leaky_relu elu softplus softsign ", function);
}

strata_status strata_keras_copy_value(const strata_json *value, strata_json_writer *w, strata_error *err) {
    const char *string = NULL;
    double number = 0;
    bool flag = false;
    strata_json item;
    switch (strata_json_kind_of(value)) {
        case STRATA_JSON_STRING:
            STRATA_TRY(strata_json_to_string(value, &string, err));
            strata_json_write_string(w, string);
            return STRATA_OK;
        case STRATA_JSON_NUMBER:
            STRATA_TRY(strata_json_to_number(value, -1e15, 1e15, &number, err));
            strata_json_write_double(w, number);
            return STRATA_OK;
        case STRATA_JSON_BOOL:
            STRATA_TRY(strata_json_to_bool(value, &flag, err));
            strata_json_write_bool(w, flag);
            return STRATA_OK;
        case STRATA_JSON_ARRAY:
            strata_json_begin_array(w);
            for (bool more = strata_json_first(value, &item); more; more = strata_json_next(&item))
                STRATA_TRY(strata_keras_copy_value(&item, w, err));
            strata_json_end_array(w);
            return STRATA_OK;
        default:
            return strata_json_fail(value, err, STRATA_UNSUPPORTED, "is an object; a layer here has a number or a name");
    }
}
