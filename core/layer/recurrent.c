/* SPDX-License-Identifier: Apache-2.0
 *
 * lstm and gru. The product of the inputs of all steps with the kernel is one matmul; core/op/recurrent.c computes the
 * steps.
 * x (N, T, C) -> (N, U), or (N, T, U). */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

static const struct {
    const char *name;
    strata_recurrent_activation activation;
} activations[] = {{"tanh", STRATA_RECURRENT_TANH},
                   {"sigmoid", STRATA_RECURRENT_SIGMOID},
                   {"relu", STRATA_RECURRENT_RELU},
                   {"linear", STRATA_RECURRENT_LINEAR}};

/* How the outputs of the two directions are merged. "concat" joins them; the others combine them element by element. */
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

static strata_status check_rate(const char *option, double rate, strata_error *err) {
    if (rate >= 0 && rate < 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %g; it must be at least 0 and below 1", option, rate);
}

static strata_status check(const void *options, strata_error *err) {
    const strata_recurrent_layer_options *opts = options;
    const strata_initializer *ignored;
    bool known = !opts->bidirectional;
    STRATA_TRY(check_activation("activation", opts->activation, err));
    STRATA_TRY(check_activation("recurrent_activation", opts->recurrent_activation, err));
    for (size_t i = 0; !known && i < sizeof merges / sizeof *merges; i++) known = !strcmp(merges[i], opts->bidirectional);
    if (!known)
        return strata_fail(err, STRATA_INVALID, "bidirectional is \"%s\"; it must be concat, sum, mul or ave",
                           opts->bidirectional);
    if (opts->bidirectional && opts->go_backwards)
        return strata_fail(err, STRATA_INVALID, "a bidirectional layer goes both ways; leave go_backwards out");
    STRATA_TRY(check_rate("dropout", opts->dropout, err));
    STRATA_TRY(check_rate("recurrent_dropout", opts->recurrent_dropout, err));
    if (opts->kernel_initializer) STRATA_TRY(strata_initializer_find(opts->kernel_initializer, &ignored, err));
    return opts->recurrent_initializer ? strata_initializer_find(opts->recurrent_initializer, &ignored, err) : STRATA_OK;
}

/* The factors of dropout for a tensor of this shape, which broadcasts along the steps, so that they are the same in each
 * step. NULL: nothing is dropped. */
static strata_tensor *drawn(strata_layer_context *context, strata_graph *graph, strata_dtype dtype, strata_shape shape,
                            double rate) {
    if (!strata_layer_is_training(context) || rate == 0) return NULL;
    uint32_t stream = 0;
    strata_tensor *rng = strata_layer_rng(context, &stream);
    return strata_dropout(strata_broadcast_to(strata_scalar(graph, dtype, 1), shape), rng, stream, rate);
}

/* The parameter's name in one direction: `name` for the backward one, and without its prefix "backward_" for the other. */
static const char *named(bool backward, const char *name) {
    static const char prefix[] = "backward_";
    return backward ? name : name + sizeof prefix - 1;
}

/* Computes one direction. y is (N, U) or (N, T, U), in the order of the steps of x. */
static strata_tensor *direction(const strata_recurrent_layer_options *opts, strata_layer_context *context, strata_tensor *x,
                                strata_tensor *mask, bool lstm, bool second) {
    strata_graph *graph = strata_tensor_graph(x);
    const strata_dtype dtype = strata_tensor_dtype(x);
    const bool two_biases = !lstm && !opts->no_reset_after;
    const int64_t examples = strata_tensor_shape(x).dims[0];
    const int64_t channels = strata_tensor_shape(x).dims[2], units = opts->units, width = (lstm ? 4 : 3) * units;
    strata_recurrent_options run = {.activation = activation_of(opts->activation),
                                    .recurrent_activation = activation_of(opts->recurrent_activation),
                                    .reverse = opts->go_backwards || second,
                                    .last = !opts->return_sequences,
                                    .reset_first = opts->no_reset_after};
    const char *kernel_initializer = opts->kernel_initializer ? opts->kernel_initializer : "glorot_uniform";
    const char *recurrent_initializer = opts->recurrent_initializer ? opts->recurrent_initializer : "orthogonal";
    const char *bias_initializer = lstm && !opts->no_unit_forget_bias ? "unit_forget_bias" : "zeros";
    strata_tensor *kernel = strata_layer_parameter(context, graph, named(second, "backward_kernel"),
                                                   STRATA_SHAPE(channels, width), kernel_initializer, channels, width);
    strata_tensor *matrix = strata_layer_parameter(context, graph, named(second, "backward_recurrent_kernel"),
                                                   STRATA_SHAPE(units, width), recurrent_initializer, units, width);
    strata_tensor *of_x = drawn(context, graph, dtype, STRATA_SHAPE(examples, 1, channels), opts->dropout);
    if (of_x) x = strata_mul(x, of_x);
    run.factors = drawn(context, graph, STRATA_DTYPE_F32, STRATA_SHAPE(examples, units), opts->recurrent_dropout);
    strata_tensor *z = strata_cast(strata_matmul(x, strata_cast(kernel, dtype), false, false), STRATA_DTYPE_F32);
    strata_tensor *bias = strata_broadcast_to(strata_scalar(graph, STRATA_DTYPE_F32, 0), STRATA_SHAPE(width));
    if (!opts->no_bias) {
        const strata_shape shape = two_biases ? STRATA_SHAPE(2, width) : STRATA_SHAPE(width);
        bias = strata_layer_parameter(context, graph, named(second, "backward_bias"), shape, bias_initializer, units, width);
    }
    if (!opts->no_bias && two_biases) {
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

/* x (N, T, ...) with its steps in reverse order. */
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
    if (opts->bidirectional && opts->return_sequences && mask) {
        strata_tensor *each = strata_reshape(mask, STRATA_SHAPE(shape.dims[0], shape.dims[1], 1));
        y = strata_mul(y, strata_cast(each, strata_tensor_dtype(y)));
    }
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
        {"bidirectional", STRATA_OPTION_STRING, AT(bidirectional), 0, 0, false},                 \
        {"dropout", STRATA_OPTION_NUMBER, AT(dropout), 0, 1, false}, {                           \
        "recurrent_dropout", STRATA_OPTION_NUMBER, AT(recurrent_dropout), 0, 1, false            \
    }

const strata_layer_kind strata_layer_lstm = {
    .name = "lstm",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_lstm_options),
    .options = {UNITS, OTHERS, {"no_unit_forget_bias", STRATA_OPTION_BOOL, AT(no_unit_forget_bias), 0, 0, false}},
    .check = check,
    .build = build_lstm,
};

const strata_layer_kind strata_layer_gru = {
    .name = "gru",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_gru_options),
    .options = {UNITS, OTHERS, {"no_reset_after", STRATA_OPTION_BOOL, AT(no_reset_after), 0, 0, false}},
    .check = check,
    .build = build_gru,
};
