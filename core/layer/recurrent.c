/* SPDX-License-Identifier: Apache-2.0
 *
 * lstm and gru: the inputs of all steps times the kernel are one product; the steps are the op in core/op/recurrent.c.
 * x (N, T, C) -> (N, U), or (N, T, U). */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/layer/layer.h"

static const struct {
    const char *name;
    strata_recurrent_activation activation;
} activations[] = {{"tanh", STRATA_RECURRENT_TANH},
                   {"sigmoid", STRATA_RECURRENT_SIGMOID},
                   {"relu", STRATA_RECURRENT_RELU},
                   {"linear", STRATA_RECURRENT_LINEAR}};

/* How the outputs of two directions become one; "concat" is no function of two elements. */
static const char *const merges[] = {"concat", "sum", "mul", "ave"};

static strata_recurrent_activation activation_of(const char *name) {
    for (size_t i = 0; name && i < sizeof activations / sizeof *activations; i++)
        if (!strcmp(activations[i].name, name)) return activations[i].activation;
    return STRATA_RECURRENT_DEFAULT;
}

static strata_status check_activation(const char *option, const char *name, strata_error *err) {
    if (!name || activation_of(name) != STRATA_RECURRENT_DEFAULT) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is \"%s\"; it must be tanh, sigmoid, relu or linear", option, name);
}

static strata_status check(const void *options, strata_error *err) {
    const strata_recurrent_layer_options *opts = options;
    const strata_initializer *ignored;
    bool known = !opts->bidirectional;
    if (opts->units < 1)
        return strata_fail(err, STRATA_INVALID, "units is %lld; it must be at least 1", (long long)opts->units);
    STRATA_TRY(check_activation("activation", opts->activation, err));
    STRATA_TRY(check_activation("recurrent_activation", opts->recurrent_activation, err));
    for (size_t i = 0; !known && i < sizeof merges / sizeof *merges; i++) known = !strcmp(merges[i], opts->bidirectional);
    if (!known)
        return strata_fail(err, STRATA_INVALID, "bidirectional is \"%s\"; it must be concat, sum, mul or ave",
                           opts->bidirectional);
    if (opts->bidirectional && opts->go_backwards)
        return strata_fail(err, STRATA_INVALID, "a bidirectional layer goes both ways; leave go_backwards out");
    if (!(opts->dropout >= 0 && opts->dropout < 1))
        return strata_fail(err, STRATA_INVALID, "dropout is %g; it must be at least 0 and below 1", opts->dropout);
    if (opts->kernel_initializer) STRATA_TRY(strata_initializer_find(opts->kernel_initializer, &ignored, err));
    return opts->recurrent_initializer ? strata_initializer_find(opts->recurrent_initializer, &ignored, err) : STRATA_OK;
}

/* x without some of its channels, the same ones at each step of an example. */
static strata_tensor *drop_channels(strata_layer_context *context, strata_tensor *x, double rate) {
    const strata_shape shape = strata_tensor_shape(x);
    if (!strata_layer_is_training(context) || rate == 0) return x;
    uint32_t stream = 0;
    strata_tensor *rng = strata_layer_rng(context, &stream);
    strata_tensor *one = strata_scalar(strata_tensor_graph(x), strata_tensor_dtype(x), 1);
    one = strata_broadcast_to(one, STRATA_SHAPE(shape.dims[0], 1, shape.dims[2]));
    return strata_mul(x, strata_dropout(one, rng, stream, rate));
}

/* The name of a parameter of a direction. */
static const char *named(bool backward, const char *name) {
    static const char prefix[] = "backward_";
    return backward ? name : name + sizeof prefix - 1;
}

/* One direction; y is (N, U) or (N, T, U), in the order of x. */
static strata_tensor *direction(const strata_recurrent_layer_options *opts, strata_layer_context *context, strata_tensor *x,
                                strata_tensor *mask, bool lstm, bool second) {
    strata_graph *graph = strata_tensor_graph(x);
    const int64_t channels = strata_tensor_shape(x).dims[2], units = opts->units, width = (lstm ? 4 : 3) * units;
    const strata_recurrent_options run = {.activation = activation_of(opts->activation),
                                          .recurrent_activation = activation_of(opts->recurrent_activation),
                                          .reverse = opts->go_backwards || second,
                                          .last = !opts->return_sequences};
    const char *kernel_initializer = opts->kernel_initializer ? opts->kernel_initializer : "glorot_uniform";
    const char *recurrent_initializer = opts->recurrent_initializer ? opts->recurrent_initializer : "orthogonal";
    const char *bias_initializer = lstm && !opts->no_unit_forget_bias ? "unit_forget_bias" : "zeros";
    strata_tensor *kernel = strata_layer_parameter(context, graph, named(second, "backward_kernel"),
                                                   STRATA_SHAPE(channels, width), kernel_initializer, channels, width);
    strata_tensor *matrix = strata_layer_parameter(context, graph, named(second, "backward_recurrent_kernel"),
                                                   STRATA_SHAPE(units, width), recurrent_initializer, units, width);
    const strata_dtype dtype = strata_tensor_dtype(x);
    x = drop_channels(context, x, opts->dropout);
    strata_tensor *z = strata_cast(strata_matmul(x, strata_cast(kernel, dtype), false, false), STRATA_DTYPE_F32);
    strata_tensor *bias = strata_broadcast_to(strata_scalar(graph, STRATA_DTYPE_F32, 0), STRATA_SHAPE(width));
    if (!opts->no_bias) {
        const strata_shape shape = lstm ? STRATA_SHAPE(width) : STRATA_SHAPE(2, width);
        bias = strata_layer_parameter(context, graph, named(second, "backward_bias"), shape, bias_initializer, units, width);
    }
    if (!opts->no_bias && !lstm) {
        strata_tensor *rows[2];
        strata_split(bias, 2, 0, rows);
        z = strata_add(z, strata_reshape(rows[0], STRATA_SHAPE(width)));
        bias = strata_reshape(rows[1], STRATA_SHAPE(width));
    }
    return strata_cast((lstm ? strata_lstm : strata_gru)(z, matrix, bias, mask, run), dtype);
}

static strata_tensor *merged(const char *how, strata_tensor *a, strata_tensor *b) {
    if (!strcmp(how, "concat")) return strata_concat((strata_tensor *[]){a, b}, 2, -1);
    if (!strcmp(how, "mul")) return strata_mul(a, b);
    strata_tensor *sum = strata_add(a, b);
    return !strcmp(how, "sum") ? sum : strata_mul(sum, strata_scalar(strata_tensor_graph(a), strata_tensor_dtype(a), 0.5));
}

/* x (N, T, ...) with its steps from the last to the first. */
static strata_tensor *reversed(strata_tensor *x) {
    strata_graph *graph = strata_tensor_graph(x);
    const int64_t steps = strata_tensor_shape(x).dims[1];
    strata_tensor *last = strata_scalar(graph, STRATA_DTYPE_I32, (double)(steps - 1));
    return strata_gather(x, strata_sub(last, strata_arange(graph, steps)), 1);
}

static strata_tensor *build(const void *options, strata_layer_context *context, strata_tensor *x, bool lstm) {
    const strata_recurrent_layer_options *opts = options;
    const strata_shape shape = strata_tensor_shape(x);
    strata_tensor *mask = strata_layer_mask(context);
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank != 3 || shape.dims[1] < 1)
        return strata_graph_poison(strata_tensor_graph(x), NULL, STRATA_INVALID,
                                   "x is %s; it must be (examples, time steps, channels), with at least one step",
                                   strata_shape_text(shape).text);
    if (!strata_dtype_is_float(strata_tensor_dtype(x)))
        return strata_graph_poison(strata_tensor_graph(x), NULL, STRATA_INVALID,
                                   "x is %s; it must be floats, as an embedding gives",
                                   strata_dtype_name(strata_tensor_dtype(x)));
    if (!opts->return_sequences || opts->go_backwards) strata_layer_set_mask(context, NULL);
    if (mask) mask = strata_cast(mask, STRATA_DTYPE_F32);
    strata_tensor *y = direction(opts, context, x, mask, lstm, false);
    if (opts->bidirectional) y = merged(opts->bidirectional, y, direction(opts, context, x, mask, lstm, true));
    return opts->go_backwards && opts->return_sequences ? reversed(y) : y;
}

static strata_tensor *build_lstm(const void *options, strata_layer_context *context, strata_tensor *x) {
    return build(options, context, x, true);
}

static strata_tensor *build_gru(const void *options, strata_layer_context *context, strata_tensor *x) {
    return build(options, context, x, false);
}

#define AT(field) offsetof(strata_recurrent_layer_options, field)
#define UNITS \
    { "units", STRATA_OPTION_INT, AT(units), 1, 1 << 20, true }
#define OTHERS                                                                                   \
    {"activation", STRATA_OPTION_STRING, AT(activation), 0, 0, false},                           \
        {"recurrent_activation", STRATA_OPTION_STRING, AT(recurrent_activation), 0, 0, false},   \
        {"no_bias", STRATA_OPTION_BOOL, AT(no_bias), 0, 0, false},                               \
        {"kernel_initializer", STRATA_OPTION_STRING, AT(kernel_initializer), 0, 0, false},       \
        {"recurrent_initializer", STRATA_OPTION_STRING, AT(recurrent_initializer), 0, 0, false}, \
        {"return_sequences", STRATA_OPTION_BOOL, AT(return_sequences), 0, 0, false},             \
        {"go_backwards", STRATA_OPTION_BOOL, AT(go_backwards), 0, 0, false},                     \
        {"bidirectional", STRATA_OPTION_STRING, AT(bidirectional), 0, 0, false}, {               \
        "dropout", STRATA_OPTION_NUMBER, AT(dropout), 0, 1, false                                \
    }

const strata_layer_kind strata_layer_lstm = {
    .name = "lstm",
    .keeps_mask = true,
    .options_bytes = sizeof(strata_lstm_options),
    .name_offset = AT(name),
    .options = {UNITS, OTHERS, {"no_unit_forget_bias", STRATA_OPTION_BOOL, AT(no_unit_forget_bias), 0, 0, false}},
    .check = check,
    .build = build_lstm,
};

const strata_layer_kind strata_layer_gru = {
    .name = "gru",
    .keeps_mask = true,
    .options_bytes = sizeof(strata_gru_options),
    .name_offset = AT(name),
    .options = {UNITS, OTHERS},
    .check = check,
    .build = build_gru,
};
