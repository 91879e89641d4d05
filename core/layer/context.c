/* SPDX-License-Identifier: Apache-2.0
 *
 * Building layers: the first time to declare their parameters and states, then into the graph of each program. */
#include "core/layer/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/cost.h"
#include "core/graph/graph.h"
#include "core/op/communication.h"

/* spec: as it will be, but for its name and offset. */
static strata_status declare_parameter(strata_parameter_set *set, const char *layer, const char *name, const char *initializer,
                                       strata_parameter_spec spec, strata_error *err) {
    STRATA_TRY(strata_initializer_find(initializer, &spec.initializer, err));
    STRATA_TRY(strata_shape_check(spec.shape, err));
    if (set->n == set->capacity) {
        int capacity = set->capacity ? 2 * set->capacity : 8;
        strata_parameter_spec *parameters = realloc(set->items, (size_t)capacity * sizeof *parameters);
        if (!parameters) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %d parameters", capacity);
        set->items = parameters;
        set->capacity = capacity;
    }
    size_t bytes = strlen(layer) + strlen(name) + 2;
    spec.name = malloc(bytes);
    if (!spec.name) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a parameter's name");
    snprintf(spec.name, bytes, "%s/%s", layer, name);
    set->items[set->n++] = spec;
    return STRATA_OK;
}

int64_t strata_parameter_aligned(int64_t elements) {
    return (elements + STRATA_PARAMETER_ALIGNMENT - 1) / STRATA_PARAMETER_ALIGNMENT * STRATA_PARAMETER_ALIGNMENT;
}

void strata_parameters_lay_out(strata_parameter_set *set) {
    for (int sparse = 0; sparse < 2; sparse++) {
        for (int i = 0; i < set->n; i++) {
            strata_parameter_spec *p = &set->items[i];
            int64_t *end = p->state ? &set->state_size : &set->flat_size;
            if (p->sparse != sparse) continue;
            p->offset = *end;
            *end += strata_parameter_aligned(strata_shape_elements(p->shape));
        }
        if (!sparse) set->dense_size = set->flat_size;
    }
}

static strata_parameter_spec *find_parameter(const strata_parameter_set *set, const char *layer, const char *name) {
    size_t n = strlen(layer);
    for (int i = 0; i < set->n; i++) {
        const char *full = set->items[i].name;
        if (!strncmp(full, layer, n) && full[n] == '/' && !strcmp(full + n + 1, name)) return &set->items[i];
    }
    return NULL;
}

strata_tensor *strata_parameter_view(const strata_parameter_spec *parameter, strata_tensor *range) {
    int64_t begin = parameter->offset, size = strata_shape_elements(parameter->shape);
    return strata_reshape(strata_slice(range, &begin, &size), parameter->shape);
}

static strata_tensor *view_of(const strata_layer_context *context, const strata_parameter_spec *parameter) {
    return strata_parameter_view(parameter, parameter->state ? context->state : context->flat);
}

static strata_tensor *declared(strata_layer_context *context, strata_graph *graph, const char *name, const char *initializer,
                               strata_parameter_spec spec) {
    strata_parameter_set *set = context->parameters;
    const char *layer = context->layer->name;
    if (context->declaring) {
        strata_error err = {0};
        strata_status status = declare_parameter(set, layer, name, initializer, spec, &err);
        if (status) return strata_graph_poison(graph, NULL, status, "%s", err.message);
        return strata_input(graph, set->items[set->n - 1].name, STRATA_DTYPE_F32, spec.shape);
    }
    const strata_parameter_spec *parameter = find_parameter(set, layer, name);
    if (!parameter || parameter->state != spec.state || !strata_shape_equal(parameter->shape, spec.shape))
        return strata_graph_poison(graph, NULL, STRATA_INTERNAL, "%s/%s %s was declared otherwise", layer, name,
                                   strata_shape_text(spec.shape).text);
    return strata_tensor_set_name(view_of(context, parameter), parameter->name);
}

strata_tensor *strata_layer_parameter(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                      const char *initializer, int64_t fan_in, int64_t fan_out) {
    return declared(context, graph, name, initializer,
                    (strata_parameter_spec){.shape = shape, .fan_in = fan_in, .fan_out = fan_out});
}

strata_tensor *strata_layer_sparse_rows(strata_layer_context *context, const char *name, strata_tensor *table,
                                        strata_tensor *x) {
    strata_parameter_spec *p = find_parameter(context->parameters, context->layer->name, name);
    if (context->declaring && p) p->sparse = true;
    if (!context->training || !p) return strata_gather(table, x, 0);
    strata_sparse_rows *rows = &context->rows[p - context->parameters->items];
    rows->x = x;
    if (!context->takes_rows) return strata_gather(table, x, 0);
    strata_tensor *inverse;
    rows->ids = strata_unique(x, p->shape.dims[0], &inverse);
    rows->row = strata_gather(table, rows->ids, 0);
    return strata_gather(rows->row, inverse, 0);
}

strata_tensor *strata_layer_state(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                  const char *initializer) {
    return declared(context, graph, name, initializer, (strata_parameter_spec){.shape = shape, .state = true});
}

void strata_layer_update_state(strata_layer_context *context, const char *name, strata_tensor *value, double rate) {
    const strata_parameter_spec *state = find_parameter(context->parameters, context->layer->name, name);
    if (!context->new_state || !state || !state->state) return;
    context->new_state[state - context->parameters->items] = value;
    context->state_rates[state - context->parameters->items] = rate;
}

strata_tensor *strata_layer_context_new_state(strata_layer_context *context) {
    const strata_parameter_set *set = context->parameters;
    strata_graph *graph = strata_tensor_graph(context->state);
    strata_tensor **values = calloc((size_t)set->n, sizeof *values), *packed;
    int64_t *offsets = calloc((size_t)set->n, sizeof *offsets);
    int n = 0;
    for (int i = 0; i < set->n && values && offsets; i++) {
        const strata_parameter_spec *p = &set->items[i];
        if (!p->state) continue;
        offsets[n] = p->offset;
        values[n++] = context->new_state[i] ? context->new_state[i] : view_of(context, p);
    }
    packed = values && offsets ? strata_pack(values, offsets, n, set->state_size)
                               : strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for states");
    free(values);
    free(offsets);
    return packed;
}

strata_tensor *strata_layer_context_state_rates(strata_layer_context *context, strata_graph *graph) {
    const strata_parameter_set *set = context->parameters;
    float *rates = calloc((size_t)set->state_size, sizeof *rates);
    if (!rates) return strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for states");
    for (int i = 0; i < set->n; i++) {
        const strata_parameter_spec *p = &set->items[i];
        for (int64_t k = 0; p->state && k < strata_shape_elements(p->shape); k++)
            rates[p->offset + k] = (float)context->state_rates[i];
    }
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(set->state_size), rates);
    strata_tensor *constant = strata_constant(graph, &view);
    free(rates);
    return constant;
}

void strata_layer_limit_tokens(strata_layer_context *context, const strata_tensor *x, int64_t n_tokens) {
    while (x != context->input && x->op->flags & STRATA_OP_VIEW) x = x->inputs[0];
    if (x == context->input && (!context->n_tokens || n_tokens < context->n_tokens)) context->n_tokens = n_tokens;
}

bool strata_layer_has_replicas(const strata_layer_context *context) {
    return context->training && context->has_replicas;
}

strata_tensor *strata_layer_sum_over_replicas(strata_layer_context *context, strata_tensor *x) {
    if (!strata_layer_has_replicas(context)) return x;
    context->exchanges_inside = true;
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_communication_attrs common = {.channel = context->replicas, .dtype = x->dtype, .shape = x->shape};
    return strata_all_reduce_among(x->graph, x, (strata_all_reduce_attrs){.common = common});
}

void strata_layer_set_mask(strata_layer_context *context, strata_tensor *mask) {
    context->mask = mask;
}

strata_tensor *strata_layer_mask(const strata_layer_context *context) {
    return context->mask;
}

strata_dtype strata_layer_dtype(const strata_layer_context *context) {
    return context->dtype;
}

bool strata_layer_is_training(const strata_layer_context *context) {
    return context->training;
}

strata_tensor *strata_layer_rng(strata_layer_context *context, uint32_t *out_stream) {
    *out_stream = ++context->n_streams;
    return context->rng;
}

/* Builds one layer for x. */
static strata_tensor *build_layer(strata_layer_context *context, const strata_layer *layer, strata_tensor *x) {
    strata_graph *graph = strata_tensor_graph(x);
    const strata_layer *around = context->layer;
    context->layer = layer;
    strata_tensor *mask = context->mask;
    strata_graph_set_scope(graph, layer->name);
    x = layer->kind->build(layer->options, context, x);
    if (!layer->kind->keeps_mask && context->mask == mask) context->mask = NULL;
    if (!context->declaring) strata_tensor_set_name(x, layer->name);
    strata_graph_set_scope(graph, around ? around->name : NULL);
    context->layer = around;
    return x;
}

strata_tensor *strata_layer_branch(strata_layer_context *context, int branch, strata_tensor *x) {
    const strata_layer_list *list = &context->layer->branches[branch];
    for (int i = 0; i < list->n; i++) x = build_layer(context, &list->layers[i], x);
    return x;
}

strata_status strata_layer_check_penalty(double l1, double l2, strata_error *err) {
    if (l1 >= 0 && l1 <= 1e6 && l2 >= 0 && l2 <= 1e6) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "kernel_l1 is %g, kernel_l2 %g; they must be 0..1e6", l1, l2);
}

void strata_layer_penalize(strata_layer_context *context, strata_tensor *x, double l1, double l2) {
    const struct {
        double factor;
        strata_tensor *(*of)(strata_tensor *x);
    } terms[] = {{l1, strata_abs}, {l2, strata_square}};
    if (context->declaring) return;
    for (int i = 0; i < 2; i++) {
        if (terms[i].factor == 0) continue;
        strata_tensor *sum = strata_reduce_sum(terms[i].of(x), NULL, 0, false);
        sum = strata_mul(sum, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, terms[i].factor));
        context->penalty = context->penalty ? strata_add(context->penalty, sum) : sum;
    }
}

strata_tensor *strata_layers_build(const strata_layer_list *list, strata_layer_context *context, strata_tensor *x) {
    strata_graph *graph = strata_tensor_graph(x);
    context->input = x;
    if (strata_tensor_dtype(x) == STRATA_DTYPE_F32) x = strata_cast(x, context->dtype);
    for (int i = 0; i < list->n; i++) {
        int first = graph->n_nodes;
        x = build_layer(context, &list->layers[i], x);
        if (context->costs) context->costs[i] = (strata_layer_cost){strata_tensor_shape(x), strata_graph_flops(graph, first)};
    }
    return strata_dtype_is_float(strata_tensor_dtype(x)) ? strata_cast(x, STRATA_DTYPE_F32) : x;
}
