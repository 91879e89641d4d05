/* SPDX-License-Identifier: Apache-2.0
 *
 * activation: an element-wise function, or softmax over the last axis. Every layer with an `activation` option finds its
 * function in this file's table. */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

/* The slopes and the scale are Keras' defaults. */
static strata_tensor *leaky_relu(strata_tensor *x) {
    return strata_leaky_relu(x, 0.2);
}
static strata_tensor *elu(strata_tensor *x) {
    return strata_elu(x, 1);
}

/* x / (1 + |x|). These three ops become one kernel, because a chain fuses them. */
static strata_tensor *softsign(strata_tensor *x) {
    return strata_div(x, strata_add(strata_scalar(strata_tensor_graph(x), strata_tensor_dtype(x), 1), strata_abs(x)));
}

static const struct {
    const char *name;
    strata_tensor *(*apply)(strata_tensor *x);
} functions[] = {{"relu", strata_relu},         {"tanh", strata_tanh},           {"sigmoid", strata_sigmoid},
                 {"softmax", strata_softmax},   {"gelu", strata_gelu},           {"silu", strata_silu},
                 {"swish", strata_silu},        {"leaky_relu", leaky_relu},      {"elu", elu},
                 {"softplus", strata_softplus}, {"gelu_tanh", strata_gelu_tanh}, {"softsign", softsign}};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static strata_status list_functions(const char *wrong, strata_error *err) {
    char names[256] = "";
    for (int i = 0; i < N_FUNCTIONS; i++) {
        if (i) strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, functions[i].name, sizeof names - strlen(names) - 1);
    }
    if (!wrong) return strata_fail(err, STRATA_INVALID, "function is missing; there are: %s", names);
    return strata_fail(err, STRATA_INVALID, "there is no activation \"%s\"; there are: %s", wrong, names);
}

strata_status strata_activation_check(const char *function, strata_error *err) {
    if (!function || !*function) return STRATA_OK;
    for (int i = 0; i < N_FUNCTIONS; i++)
        if (!strcmp(functions[i].name, function)) return STRATA_OK;
    return list_functions(function, err);
}

strata_tensor *strata_activation_apply(const char *function, strata_tensor *x) {
    if (!function || !*function || strata_tensor_is_poison(x)) return x;
    for (int i = 0; i < N_FUNCTIONS; i++)
        if (!strcmp(functions[i].name, function)) return functions[i].apply(x);
    for (const strata_own_activation *own = x->graph->activations; own; own = own->next) {
        if (strcmp(own->name, function)) continue;
        strata_tensor *y = own->apply(x);
        return y ? y : strata_graph_poison(x->graph, NULL, STRATA_INVALID, "activation %s returned NULL", function);
    }
    return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "there is no activation \"%s\" in this graph", function);
}

static strata_status activation_check(const void *options, strata_error *err) {
    const strata_activation_options *opts = options;
    if (!opts->function || !*opts->function) return list_functions(NULL, err);
    return strata_activation_check(opts->function, err);
}

static strata_tensor *activation_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    (void)context;
    return strata_activation_apply(((const strata_activation_options *)options)->function, x);
}

const strata_layer_kind strata_layer_activation = {
    .name = "activation",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_activation_options),
    .options = {{"function", STRATA_OPTION_ACTIVATION, offsetof(strata_activation_options, function), 0, 0, true}},
    .check = activation_check,
    .build = activation_build,
};
