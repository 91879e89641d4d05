/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds layers: once to declare their parameters and states, and then into the graph of each program. */
#include "core/layer/context.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "core/op/ops.h"

strata_tensor *strata_layer_context_at_stage(const strata_layer_context *context, strata_tensor *x, int from) {
    if (!context->has_stages || from == context->stage) return x;
    return strata_move_along(x, context->stage_axis, from, context->stage);
}

/* Adds `spec`, which is complete except for its name and offset, to the set. */
static strata_status declare_parameter(strata_parameter_set *set, const char *layer, const char *name, const char *initializer,
                                       strata_parameter_spec spec, strata_error *err) {
    STRATA_TRY(strata_initializer_find(initializer ? initializer : "", &spec.initializer, err));
    STRATA_TRY(strata_shape_check(spec.shape, err));
    if (!spec.fan_in) spec.fan_in = spec.shape.rank > 1 ? spec.shape.dims[spec.shape.rank - 2] : 1;
    if (!spec.fan_out) spec.fan_out = spec.shape.rank > 0 ? spec.shape.dims[spec.shape.rank - 1] : 1;
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

/* The layer's parameter with this name; NULL: there is none. */
static strata_parameter_spec *find_parameter(const strata_parameter_set *set, const char *layer, const char *name) {
    const size_t n = strlen(layer);
    for (int i = 0; i < set->n; i++) {
        const char *full = set->items[i].name;
        if (!strncmp(full, layer, n) && full[n] == '/' && !strcmp(full + n + 1, name)) return &set->items[i];
    }
    return NULL;
}

/* The view of part number `index` of the set, at the stage that is being built. It gets the name of its parameter. */
static strata_tensor *part_view(strata_layer_context *context, int index) {
    const strata_parameter_set *set = context->parameters;
    const strata_parameter_part *part = &set->parts[index];
    const strata_parameter_block *block = &set->blocks[part->block];
    const strata_parameter_spec *p = &set->items[part->parameter];
    if (!context->parts[index]) {
        strata_tensor *view = context->blocks[part->block];
        if (!block->shaped) view = strata_parameter_view(view, part->offset - block->begin, part->shape);
        context->parts[index] = strata_tensor_set_name(view, p->name);
    }
    return strata_layer_context_at_stage(context, context->parts[index], p->stage);
}

/* The value of the state before the step. */
static strata_tensor *state_view(const strata_layer_context *context, const strata_parameter_spec *state) {
    return strata_parameter_view(context->state, state->offset, state->shape);
}

/* Finds the parameter or state `name` of the layer that is being built, or declares it in the build that declares. Checks
 * that its shape is the declared one. On an error it poisons the graph and returns NULL. */
static strata_parameter_spec *declared(strata_layer_context *context, strata_graph *graph, const char *name,
                                       const char *initializer, strata_parameter_spec spec) {
    strata_parameter_set *set = context->parameters;
    spec.state |= context->layer->frozen;
    const char *layer = context->layer->name;
    strata_parameter_spec *parameter = find_parameter(set, layer, name);
    if (context->declaring && parameter && !strata_shape_equal(parameter->shape, spec.shape)) {
        strata_graph_poison(graph, NULL, STRATA_INVALID, "its parameter %s is %s for this input; an earlier call made it %s",
                            name, strata_shape_text(spec.shape).text, strata_shape_text(parameter->shape).text);
        return NULL;
    }
    if (context->declaring && !parameter) {
        strata_error err = {0};
        strata_status status = declare_parameter(set, layer, name, initializer, spec, &err);
        if (!status) return &set->items[set->n - 1];
        strata_graph_poison(graph, NULL, status, "%s", err.message);
        return NULL;
    }
    if (parameter && parameter->state == spec.state && strata_shape_equal(parameter->shape, spec.shape)) return parameter;
    strata_graph_poison(graph, NULL, STRATA_INTERNAL, "%s/%s %s was declared otherwise", layer, name,
                        strata_shape_text(spec.shape).text);
    return NULL;
}

/* In the build that declares, a graph input takes the place of the parameter. All calls that use the parameter get the
 * same input. */
static strata_tensor *stand_in(strata_graph *graph, const strata_parameter_spec *p) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const strata_tensor *node = graph->nodes[i];
        if (node->op == &strata_op_input && !strcmp(((const strata_input_attrs *)node->attrs)->name, p->name))
            return graph->nodes[i];
    }
    return strata_input(graph, p->name, STRATA_DTYPE_F32, p->shape);
}

static strata_tensor *poisoned(strata_graph *graph) {
    /* The graph keeps the first error. */
    return strata_graph_poison(graph, NULL, STRATA_INTERNAL, "a parameter was declared otherwise");
}

strata_tensor *strata_layer_parameter(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                      const char *initializer, int64_t fan_in, int64_t fan_out) {
    const strata_parameter_spec *p = declared(context, graph, name, initializer,
                                              (strata_parameter_spec){.shape = shape, .fan_in = fan_in, .fan_out = fan_out});
    if (!p) return poisoned(graph);
    if (context->declaring) return stand_in(graph, p);
    if (p->state) return strata_tensor_set_name(state_view(context, p), p->name);
    assert(p->n_parts == 1); /* strata_parameters_cut divides only parameters with `splits` */
    return part_view(context, p->first_part);
}

/* ---- parameters in parts ---- */

int strata_layer_split_parameter(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                 const char *initializer, int64_t fan_in, int64_t fan_out) {
    const strata_parameter_spec *p =
        declared(context, graph, name, initializer,
                 (strata_parameter_spec){.shape = shape, .fan_in = fan_in, .fan_out = fan_out, .splits = true});
    return p && !context->declaring && !p->state ? p->n_parts : 1;
}

strata_tensor *strata_layer_part(strata_layer_context *context, strata_graph *graph, const char *name, int part,
                                 int64_t *out_first_row) {
    const strata_parameter_spec *p = find_parameter(context->parameters, context->layer->name, name);
    *out_first_row = 0;
    if (!p) return poisoned(graph);
    if (context->declaring) return stand_in(graph, p);
    if (p->state) return strata_tensor_set_name(state_view(context, p), p->name);
    const int index = p->first_part + part;
    *out_first_row = context->parameters->parts[index].first_row;
    return part_view(context, index);
}

static strata_tensor *gather_rows(strata_layer_context *context, const strata_parameter_spec *p, strata_tensor *indices) {
    strata_tensor *rows = NULL;
    for (int i = p->first_part; i < p->first_part + p->n_parts; i++) {
        strata_tensor *own = strata_parameter_rows_of(&context->parameters->parts[i], indices);
        own = strata_gather(part_view(context, i), own, 0);
        rows = rows ? strata_add(rows, own) : own;
    }
    return rows;
}

strata_tensor *strata_layer_rows(strata_layer_context *context, strata_graph *graph, const char *name, strata_tensor *x,
                                 bool sparse) {
    strata_parameter_spec *p = find_parameter(context->parameters, context->layer->name, name);
    if (!p) return poisoned(graph);
    if (context->declaring) {
        p->sparse = sparse && !p->state;
        return strata_gather(stand_in(graph, p), x, 0);
    }
    if (p->state) return strata_gather(state_view(context, p), x, 0);
    if (!context->training || !sparse) return gather_rows(context, p, x);
    strata_sparse_rows *rows = &context->rows[p - context->parameters->items];
    if (rows->x && context->call > 1)
        return strata_graph_poison(
            graph, NULL, STRATA_UNSUPPORTED,
            "it is sparse and is called %d times; only one call can say which rows change: leave out sparse", context->call);
    rows->x = x;
    /* With at least as many indices as the table has rows, the gradient of the whole table is no larger than one row for
     * each index, and the search for repeated indices is not needed. */
    const bool few_rows = strata_shape_elements(strata_tensor_shape(x)) >= p->shape.dims[0];
    if (!context->takes_rows || few_rows) return gather_rows(context, p, x);
    strata_tensor *inverse;
    rows->ids = strata_unique(x, p->shape.dims[0], &inverse);
    rows->row = gather_rows(context, p, rows->ids);
    return strata_gather(rows->row, inverse, 0);
}

strata_tensor *strata_layer_state(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                  const char *initializer) {
    const strata_parameter_spec *p =
        declared(context, graph, name, initializer, (strata_parameter_spec){.shape = shape, .state = true});
    if (!p) return poisoned(graph);
    if (context->declaring) return stand_in(graph, p);
    return strata_tensor_set_name(state_view(context, p), p->name);
}

void strata_layer_update_state(strata_layer_context *context, const char *name, strata_tensor *value, double rate) {
    const strata_parameter_spec *state = find_parameter(context->parameters, context->layer->name, name);
    if (!context->new_state || !state || !state->state || context->layer->frozen) return;
    strata_tensor **new_state = &context->new_state[state - context->parameters->items];
    double *all = &context->state_rates[state - context->parameters->items];
    /* Two updates s += A (V - s) and s += a (v - s), one after the other, are s += R (W - s) with R = 1 - (1 - A) (1 - a) and
     * W = ((1 - a) A V + a v) / R. */
    const double both = *new_state && context->call > 1 ? 1 - (1 - *all) * (1 - rate) : 0;
    if (both > 0) {
        strata_graph *graph = strata_tensor_graph(value);
        strata_tensor *before = strata_scalar(graph, STRATA_DTYPE_F32, (1 - rate) * *all / both);
        strata_tensor *now = strata_scalar(graph, STRATA_DTYPE_F32, rate / both);
        value = strata_add(strata_mul(*new_state, before), strata_mul(value, now));
        rate = both;
    }
    *new_state = value;
    *all = rate;
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
        values[n++] = context->new_state[i] ? context->new_state[i] : state_view(context, p);
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
    for (int i = 0; i < context->n_inputs; i++) {
        const strata_tensor *at = x;
        while (at != context->inputs[i] && at->op->flags & STRATA_OP_VIEW) at = at->inputs[0];
        int64_t *limit = &context->n_tokens[i];
        if (at == context->inputs[i] && (!*limit || n_tokens < *limit)) *limit = n_tokens;
    }
}

bool strata_layer_has_replicas(const strata_layer_context *context) {
    return strata_layer_is_training(context) && context->has_replicas;
}

strata_tensor *strata_layer_count_rows(strata_layer_context *context, strata_tensor *x, int64_t rows) {
    strata_graph *graph = strata_tensor_graph(x);
    const int64_t batch = strata_tensor_shape(x).rank ? strata_tensor_shape(x).dims[0] : 0;
    if (!context->examples || batch < 1) return strata_scalar(graph, STRATA_DTYPE_F32, (double)rows);
    return strata_mul(context->examples, strata_scalar(graph, STRATA_DTYPE_F32, (double)(rows / batch)));
}

strata_tensor *strata_layer_sum_over_replicas(strata_layer_context *context, strata_tensor *x) {
    if (!strata_layer_has_replicas(context)) return x;
    context->exchanges_inside = true;
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_communication_attrs common = {.team = context->replicas, .dtype = x->dtype, .shape = x->shape};
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
    return context->training && !context->layer->frozen;
}

strata_tensor *strata_layer_rng(strata_layer_context *context, uint32_t *out_stream) {
    *out_stream = ++context->n_streams;
    return context->rng;
}

/* Calls the build function of the layer's kind, and checks its result if the kind is the user's. */
static strata_tensor *call_kind(strata_layer_context *context, const strata_layer *layer, strata_tensor *const *inputs, int n) {
    const strata_layer_kind *kind = layer->kind;
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    const int least = kind->build_many ? kind->least_inputs : 1, most = kind->build_many ? kind->most_inputs : 1;
    if (n < least || n > most)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "%s takes %s%d input%s; it was given %d", kind->name,
                                   least < most ? "at least " : "", n > most ? most : least,
                                   least < most || most > 1 ? "s" : "", n);
    strata_tensor *y = kind->build_many ? kind->build_many(layer->options, context, inputs, n)
                                        : kind->build(layer->options, context, inputs[0]);
    if (!kind->own) return y;
    if (!y) return strata_graph_poison(graph, NULL, STRATA_INVALID, "its build function returned NULL");
    if (strata_tensor_graph(y) != graph)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "its build function returned a tensor of another graph");
    if (!strata_tensor_is_poison(y) && strata_tensor_shape(y).rank < 1)
        return strata_graph_poison(graph, NULL, STRATA_INVALID,
                                   "its build function returned a scalar; it must return (N, ...)");
    return y;
}

/* Builds one layer in its scope, and updates the mask. */
static strata_tensor *build_layer(strata_layer_context *context, const strata_layer *layer, const char *name,
                                  strata_tensor *const *inputs, int n) {
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    const strata_layer *around = context->layer;
    const int first = graph->n_nodes;
    context->layer = layer;
    strata_tensor *mask = context->mask;
    strata_graph_set_scope(graph, name);
    strata_tensor *y = call_kind(context, layer, inputs, n);
    if (!layer->kind->keeps_mask && context->mask == mask) context->mask = NULL;
    if (!context->declaring) strata_tensor_set_name(y, name);
    if (layer->recomputed && context->training) strata_graph_recompute(graph, first);
    strata_graph_set_scope(graph, around ? around->name : NULL);
    context->layer = around;
    return y;
}

strata_tensor *strata_layer_build(strata_layer_context *context, const strata_layer *layer, int call, const char *name,
                                  strata_tensor *const *inputs, int n, strata_tensor *mask) {
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    const int first = graph->n_nodes;
    context->call = call;
    context->mask = mask;
    strata_tensor *y = build_layer(context, layer, name, inputs, n);
    if (context->costs)
        *context->costs++ = (strata_layer_cost){.output = strata_tensor_shape(y),
                                                .flops = strata_graph_flops(graph, first),
                                                .first = first,
                                                .end = graph->n_nodes,
                                                .y = y};
    return y;
}

strata_tensor *strata_layer_branch(strata_layer_context *context, int branch, strata_tensor *x) {
    const strata_layer_list *list = &context->layer->branches[branch];
    for (int i = 0; i < list->n; i++) x = build_layer(context, &list->layers[i], list->layers[i].name, &x, 1);
    return x;
}

void strata_layer_penalize(strata_layer_context *context, strata_tensor *x, double l1, double l2) {
    const struct {
        double factor;
        strata_tensor *(*of)(strata_tensor *x);
    } terms[] = {{l1, strata_abs}, {l2, strata_square}};
    if (context->declaring || context->layer->frozen || context->call > 1) return; /* a shared parameter counts once */
    for (int i = 0; i < 2; i++) {
        if (terms[i].factor == 0) continue;
        strata_tensor *sum = strata_reduce_sum(terms[i].of(x), NULL, 0, false);
        sum = strata_mul(sum, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, terms[i].factor));
        context->penalty = context->penalty ? strata_add(context->penalty, sum) : sum;
    }
}
