/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's life: layers are added, parameters declared by building the layers once, variables made at compile. */
#include "core/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cost.h"
#include "core/graph.h"
#include "core/model/notes.h"
#include "core/sha256.h"

/* ---- create, destroy ---- */

strata_status strata_model_create(strata_shape input_shape, strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_shape_check(input_shape, err));
    if (input_shape.rank >= STRATA_MAX_RANK || strata_shape_elements(input_shape) < 1)
        return strata_fail(err, STRATA_INVALID, "model: input shape %s; it needs at least one element and at most %d axes",
                           strata_shape_text(input_shape).text, STRATA_MAX_RANK - 1);
    strata_model *model = calloc(1, sizeof *model);
    if (model) model->label = strdup("");
    if (!model || !model->label) {
        free(model);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory");
    }
    model->input = input_shape;
    *out_model = model;
    return STRATA_OK;
}

static char **option_string(void *options, const strata_option *option) {
    return (char **)((char *)options + option->offset);
}

static void free_list(strata_layer_list *list);

static void free_layer(strata_model_layer *layer) {
    for (const strata_option *option = layer->kind->options; layer->options && option->name; option++)
        if (option->kind == STRATA_OPTION_STRING) free(*option_string(layer->options, option));
    for (int b = 0; b < STRATA_MAX_BRANCHES; b++) free_list(&layer->branches[b]);
    free(layer->options);
    free(layer->name);
}

static void free_list(strata_layer_list *list) {
    for (int i = 0; i < list->n; i++) free_layer(&list->layers[i]);
    free(list->layers);
    *list = (strata_layer_list){0};
}

static void free_parameters(strata_model *model) {
    for (int i = 0; i < model->n_parameters; i++) free(model->parameters[i].name);
    free(model->parameters);
    model->parameters = NULL;
    model->n_parameters = model->parameters_capacity = 0;
    model->flat_size = model->state_size = model->n_tokens = 0;
}

strata_status strata_model_set_input_dtype(strata_model *model, strata_dtype dtype, strata_error *err) {
    if (dtype != STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_I32)
        return strata_fail(err, STRATA_INVALID, "model: inputs of %s; they are f32 or i32", strata_dtype_name(dtype));
    if (model->device) return strata_fail(err, STRATA_INVALID, "model: it is compiled; the input's dtype is set before that");
    model->input_dtype = dtype;
    free_parameters(model); /* declared anew with it */
    return STRATA_OK;
}

strata_dtype strata_model_input_dtype(const strata_model *model) {
    return model->input_dtype;
}

static void free_variables(strata_model *model) {
    strata_variable_destroy(model->flat);
    strata_variable_destroy(model->metrics);
    strata_variable_destroy(model->state);
    for (int i = 0; i < STRATA_MAX_OPTIMIZER_SLOTS; i++) strata_variable_destroy(model->slots[i]);
    model->flat = model->metrics = model->state = NULL;
    memset(model->slots, 0, sizeof model->slots);
    free(model->segment_ends);
    free(model->segment_owner);
    model->segment_ends = model->segment_owner = NULL;
    model->segments = (strata_segments){0};
}

void strata_model_destroy(strata_model *model) {
    if (!model) return;
    strata_model_free_programs(model);
    free_variables(model);
    free_parameters(model);
    free_list(&model->list);
    free(model->loaded);
    free(model->label);
    free(model->metric_names);
    free(model->sums);
    strata_model_free_notes(model);
    free(model);
}

strata_status strata_model_set_label(strata_model *model, const char *label, strata_error *err) {
    char *copy = strdup(label ? label : "");
    if (!copy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its label");
    free(model->label);
    model->label = copy;
    return STRATA_OK;
}

const char *strata_model_label(const strata_model *model) {
    return model->label;
}

strata_shape strata_model_input_shape(const strata_model *model) {
    return model->input;
}

strata_optimizer strata_model_optimizer(const strata_model *model) {
    return model->optimizer;
}

/* ---- layers ---- */

static void remember_error(strata_model *model, strata_status status, const strata_error *err) {
    if (model->status) return;
    model->status = status;
    model->error = *err;
}

/* Where layers are added now, and the layer that this is inside of (NULL: none). */
static strata_layer_list *open_list(strata_model *model, const strata_model_layer **out_parent) {
    strata_layer_list *list = &model->list;
    *out_parent = NULL;
    for (int i = 0; i < model->n_open; i++) {
        *out_parent = &list->layers[list->n - 1];
        list = &list->layers[list->n - 1].branches[model->open[i]];
    }
    return list;
}

/* Both branches of a layer share its name, so names are unique among all layers in it. */
static bool name_taken(const strata_layer_list *list, const strata_model_layer *parent, const char *name) {
    for (int b = 0; b < (parent ? STRATA_MAX_BRANCHES : 1); b++) {
        const strata_layer_list *siblings = parent ? &parent->branches[b] : list;
        for (int i = 0; i < siblings->n; i++)
            if (!strcmp(siblings->layers[i].name, name)) return true;
    }
    return false;
}

/* The given name, or "dense", "dense_1", ...; behind the parent's. */
static strata_status choose_name(const strata_layer_list *list, const strata_model_layer *parent, const strata_layer_kind *kind,
                                 const char *given, char **out_name, strata_error *err) {
    enum { LONGEST = 127 };
    if (given && (!*given || strlen(given) > LONGEST || strchr(given, '/')))
        return strata_fail(err, STRATA_INVALID, "layer name \"%.40s\": it must have 1 to %d characters and no '/'", given,
                           LONGEST);
    const char *prefix = parent ? parent->name : "", *slash = parent ? "/" : "", *last = given ? given : kind->name;
    size_t bytes = strlen(prefix) + strlen(last) + 16;
    char *name = malloc(bytes);
    if (!name) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a layer's name");
    snprintf(name, bytes, "%s%s%s", prefix, slash, last);
    if (given && name_taken(list, parent, name)) {
        strata_status status = strata_fail(err, STRATA_INVALID, "there are two layers called \"%s\"", name);
        free(name);
        return status;
    }
    for (int number = 1; !given && name_taken(list, parent, name); number++)
        snprintf(name, bytes, "%s%s%s_%d", prefix, slash, last, number);
    *out_name = name;
    return STRATA_OK;
}

/* Copies the options; on failure what was copied is in *layer for free_layer. */
static strata_status copy_options(strata_model_layer *layer, const void *options, strata_error *err) {
    layer->options = calloc(1, layer->kind->options_bytes);
    if (!layer->options) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a layer");
    memcpy(layer->options, options, layer->kind->options_bytes);
    bool complete = true;
    for (const strata_option *option = layer->kind->options; option->name; option++) {
        if (option->kind != STRATA_OPTION_STRING) continue;
        char **text = option_string(layer->options, option);
        *text = *text && complete ? strdup(*text) : NULL;
        if (*option_string((void *)options, option) && !*text) complete = false;
    }
    *(const char **)((char *)layer->options + layer->kind->name_offset) = layer->name;
    return complete ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a layer's options");
}

/* Half a pair would be written as something else than it means. */
static strata_status check_pairs(const strata_layer_kind *kind, const void *options, strata_error *err) {
    for (const strata_option *option = kind->options; option->name; option++) {
        if (option->kind != STRATA_OPTION_PAIR) continue;
        const int64_t *pair = (const int64_t *)(const void *)((const char *)options + option->offset);
        if ((pair[0] == 0) != (pair[1] == 0))
            return strata_fail(err, STRATA_INVALID, "%s is [%lld, %lld]; give both, or neither", option->name,
                               (long long)pair[0], (long long)pair[1]);
    }
    return STRATA_OK;
}

static strata_status add_layer(strata_model *model, const strata_layer_kind *kind, const void *options, strata_error *err) {
    const strata_model_layer *parent;
    strata_layer_list *list = open_list(model, &parent);
    if (model->device) return strata_fail(err, STRATA_INVALID, "model: it is compiled; layers are added before that");
    if (list->n == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 8;
        strata_model_layer *layers = realloc(list->layers, (size_t)capacity * sizeof *layers);
        if (!layers) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %d layers", capacity);
        list->layers = layers;
        list->capacity = capacity;
    }
    strata_model_layer layer = {.kind = kind};
    const char *given = *(const char *const *)((const char *)options + kind->name_offset);
    strata_status status = choose_name(list, parent, kind, given, &layer.name, err);
    if (!status) status = copy_options(&layer, options, err);
    if (!status) {
        status = check_pairs(kind, layer.options, err);
        if (!status && kind->check) status = kind->check(layer.options, err);
        if (status) strata_fail_in(err, status, "%s", layer.name);
    }
    if (status)
        free_layer(&layer);
    else
        list->layers[list->n++] = layer;
    free_parameters(model); /* declared anew with the layer */
    return status;
}

void strata_model_add(strata_model *model, const strata_layer_kind *kind, const void *options) {
    strata_error err = {0};
    strata_status status = model->status ? model->status : add_layer(model, kind, options, &err);
    if (status) remember_error(model, status, &err);
}

void strata_model_open_branch(strata_model *model, int branch) {
    const strata_model_layer *parent;
    strata_error err = {0};
    if (model->status) return;
    strata_layer_list *list = open_list(model, &parent);
    const char *name = list->n ? list->layers[list->n - 1].name : "model";
    if (!list->n || !list->layers[list->n - 1].kind->branches[branch])
        remember_error(model, strata_fail(&err, STRATA_INVALID, "%s: there is no layer to begin a branch of", name), &err);
    else if (model->n_open == STRATA_MAX_NESTING)
        remember_error(
            model, strata_fail(&err, STRATA_INVALID, "%s: layers are nested at most %d deep", name, STRATA_MAX_NESTING), &err);
    else
        model->open[model->n_open++] = branch;
}

void strata_model_close_branch(strata_model *model) {
    const strata_model_layer *parent;
    strata_error err = {0};
    if (model->status) return;
    const strata_layer_list *list = open_list(model, &parent);
    if (!parent)
        remember_error(model, strata_fail(&err, STRATA_INVALID, "model: no branch was begun that could end"), &err);
    else if (!list->n)
        remember_error(model, strata_fail(&err, STRATA_INVALID, "%s: there is no layer in it", parent->name), &err);
    else
        model->n_open--;
}

void strata_model_begin_residual(strata_model *model, strata_residual_options opts) {
    strata_model_add(model, &strata_layer_residual, &opts);
    strata_model_open_branch(model, 0);
}

void strata_model_begin_shortcut(strata_model *model) {
    strata_model_close_branch(model);
    strata_model_open_branch(model, 1);
}

void strata_model_end_residual(strata_model *model) {
    strata_model_close_branch(model);
}

#define ADD(name)                                                                     \
    void strata_model_add_##name(strata_model *model, strata_##name##_options opts) { \
        strata_model_add(model, &strata_layer_##name, &opts);                         \
    }
#define STRATA_LAYER(name) ADD(name)
#include "core/layer/layers.def"
#undef STRATA_LAYER

/* ---- building layers ---- */

/* spec: as it will be, but for its name and offset. */
static strata_status declare_parameter(strata_model *model, const char *layer, const char *name, const char *initializer,
                                       strata_parameter_spec spec, strata_error *err) {
    STRATA_TRY(strata_initializer_find(initializer, &spec.initializer, err));
    STRATA_TRY(strata_shape_check(spec.shape, err));
    if (model->n_parameters == model->parameters_capacity) {
        int capacity = model->parameters_capacity ? 2 * model->parameters_capacity : 8;
        strata_parameter_spec *parameters = realloc(model->parameters, (size_t)capacity * sizeof *parameters);
        if (!parameters) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %d parameters", capacity);
        model->parameters = parameters;
        model->parameters_capacity = capacity;
    }
    size_t bytes = strlen(layer) + strlen(name) + 2;
    spec.name = malloc(bytes);
    if (!spec.name) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a parameter's name");
    snprintf(spec.name, bytes, "%s/%s", layer, name);
    int64_t *end = spec.state ? &model->state_size : &model->flat_size;
    spec.offset = *end;
    model->parameters[model->n_parameters++] = spec;
    int64_t n = strata_shape_elements(spec.shape);
    *end += (n + STRATA_PARAMETER_ALIGNMENT - 1) / STRATA_PARAMETER_ALIGNMENT * STRATA_PARAMETER_ALIGNMENT;
    return STRATA_OK;
}

static const strata_parameter_spec *find_parameter(const strata_model *model, const char *layer, const char *name) {
    size_t n = strlen(layer);
    for (int i = 0; i < model->n_parameters; i++) {
        const char *full = model->parameters[i].name;
        if (!strncmp(full, layer, n) && full[n] == '/' && !strcmp(full + n + 1, name)) return &model->parameters[i];
    }
    return NULL;
}

/* The part of its range that a parameter or state is. */
static strata_tensor *view_of(const strata_layer_context *context, const strata_parameter_spec *parameter) {
    int64_t begin = parameter->offset, size = strata_shape_elements(parameter->shape);
    return strata_reshape(strata_slice(parameter->state ? context->state : context->flat, &begin, &size), parameter->shape);
}

static strata_tensor *declared(strata_layer_context *context, strata_graph *graph, const char *name, const char *initializer,
                               strata_parameter_spec spec) {
    strata_model *model = context->model;
    const char *layer = context->layer->name;
    if (context->declaring) {
        strata_error err = {0};
        strata_status status = declare_parameter(model, layer, name, initializer, spec, &err);
        if (status) return strata_graph_poison(graph, NULL, status, "%s", err.message);
        return strata_input(graph, model->parameters[model->n_parameters - 1].name, STRATA_DTYPE_F32, spec.shape);
    }
    const strata_parameter_spec *parameter = find_parameter(model, layer, name);
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

strata_tensor *strata_layer_state(strata_layer_context *context, strata_graph *graph, const char *name, strata_shape shape,
                                  const char *initializer) {
    return declared(context, graph, name, initializer, (strata_parameter_spec){.shape = shape, .state = true});
}

void strata_layer_update_state(strata_layer_context *context, const char *name, strata_tensor *value, double rate) {
    const strata_parameter_spec *state = find_parameter(context->model, context->layer->name, name);
    if (!context->new_state || !state || !state->state) return;
    context->new_state[state - context->model->parameters] = value;
    context->state_rates[state - context->model->parameters] = rate;
}

strata_tensor *strata_model_update_state(strata_layer_context *context, strata_tensor *gate) {
    const strata_model *model = context->model;
    strata_graph *graph = strata_tensor_graph(gate);
    int n = 0;
    strata_tensor **values = calloc((size_t)model->n_parameters, sizeof *values), *update;
    int64_t *offsets = calloc((size_t)model->n_parameters, sizeof *offsets);
    float *rates = calloc((size_t)model->state_size, sizeof *rates);
    if (values && offsets && rates) {
        for (int i = 0; i < model->n_parameters; i++) {
            const strata_parameter_spec *p = &model->parameters[i];
            if (!p->state) continue;
            offsets[n] = p->offset;
            values[n++] = context->new_state[i] ? context->new_state[i] : view_of(context, p);
            for (int64_t k = 0; k < strata_shape_elements(p->shape); k++) rates[p->offset + k] = (float)context->state_rates[i];
        }
        strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->state_size), rates);
        update = strata_moving_average(context->state, strata_pack(values, offsets, n, model->state_size),
                                       strata_constant(graph, &view), gate);
    } else {
        update = strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for states");
    }
    free(values);
    free(offsets);
    free(rates);
    return update;
}

void strata_layer_limit_tokens(strata_layer_context *context, const strata_tensor *x, int64_t n_tokens) {
    strata_model *model = context->model;
    while (x != context->input && x->op->flags & STRATA_OP_VIEW) x = x->inputs[0];
    if (x == context->input && (!model->n_tokens || n_tokens < model->n_tokens)) model->n_tokens = n_tokens;
}

bool strata_layer_is_training(const strata_layer_context *context) {
    return context->training;
}

strata_tensor *strata_layer_rng(strata_layer_context *context, uint32_t *out_stream) {
    *out_stream = ++context->n_streams;
    return context->rng;
}

static strata_tensor *build_layer(strata_layer_context *context, const strata_model_layer *layer, strata_tensor *x) {
    strata_graph *graph = strata_tensor_graph(x);
    const strata_model_layer *around = context->layer;
    context->layer = layer;
    strata_graph_set_scope(graph, layer->name);
    x = layer->kind->build(layer->options, context, x);
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

strata_tensor *strata_model_build_layers(strata_layer_context *context, strata_tensor *x) {
    strata_graph *graph = strata_tensor_graph(x);
    context->input = x;
    for (int i = 0; i < context->model->list.n; i++) {
        int first = graph->n_nodes;
        x = build_layer(context, &context->model->list.layers[i], x);
        if (context->costs) context->costs[i] = (strata_layer_cost){strata_tensor_shape(x), strata_graph_flops(graph, first)};
    }
    return x;
}

/* (batch, shape...) */
static strata_shape with_batch(strata_shape shape, int64_t batch) {
    strata_shape result = {.rank = shape.rank + 1, .dims = {batch}};
    memcpy(result.dims + 1, shape.dims, (size_t)shape.rank * sizeof(int64_t));
    return result;
}

strata_status strata_model_declare(strata_model *model, strata_error *err) {
    if (model->status) return strata_fail(err, model->status, "%s", model->error.message);
    if (!model->list.n) return strata_fail(err, STRATA_INVALID, "model: it has no layers");
    const strata_model_layer *parent;
    open_list(model, &parent);
    if (parent) return strata_fail(err, STRATA_INVALID, "%s: it is begun and does not end", parent->name);
    if (model->n_parameters) return STRATA_OK;
    strata_graph *graph = NULL;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_layer_context context = {.model = model, .declaring = true};
    strata_tensor *outputs =
        strata_model_build_layers(&context, strata_input(graph, "x", model->input_dtype, with_batch(model->input, 1)));
    strata_status status = strata_graph_check(graph, err);
    if (!status) {
        strata_shape shape = strata_tensor_shape(outputs);
        model->output.rank = shape.rank - 1;
        memcpy(model->output.dims, shape.dims + 1, (size_t)model->output.rank * sizeof(int64_t));
        if (!model->n_parameters)
            status = strata_fail(err, STRATA_INVALID, "model: no layer has parameters; there is nothing to train");
    }
    if (status) free_parameters(model);
    strata_graph_destroy(graph);
    return status;
}

/* ---- compile ---- */

/* Takes the settings over only when all of them are right. */
static strata_status choose_settings(strata_model *model, const strata_compile_options *opts, strata_error *err) {
    strata_optimizer optimizer = opts && opts->optimizer.name ? opts->optimizer : model->optimizer;
    const strata_optimizer_kind *kind = NULL;
    const strata_loss *loss = model->loss;
    strata_loss_options loss_options = opts && opts->loss ? opts->loss_options : model->loss_options;
    if (!optimizer.name) optimizer = strata_adam_optimizer(0);
    STRATA_TRY(strata_optimizer_check(&optimizer, &kind, err));
    if ((opts && opts->loss) || !loss)
        STRATA_TRY(strata_loss_find(opts && opts->loss ? opts->loss : "sparse_categorical_crossentropy", &loss, err));
    if (loss->check) STRATA_TRY(loss->check(&loss_options, err));
    STRATA_TRY(strata_loss_check_output(loss, model->output, err));
    const struct {
        strata_optimizer optimizer;
        const strata_optimizer_kind *kind;
        const strata_loss *loss;
        strata_loss_options loss_options;
    } before = {model->optimizer, model->optimizer_kind, model->loss, model->loss_options};
    model->optimizer = optimizer;
    model->optimizer_kind = kind;
    model->loss = loss;
    model->loss_options = loss_options;
    strata_status status = strata_model_choose_metrics(model, opts && opts->metrics ? opts->metrics : model->metric_names, err);
    if (!status && opts && opts->metrics) status = strata_model_set_metrics(model, opts->metrics, err);
    if (!status) return STRATA_OK;
    model->optimizer = before.optimizer;
    model->optimizer_kind = before.kind;
    model->loss = before.loss;
    model->loss_options = before.loss_options;
    return status;
}

int64_t strata_model_all_size(const strata_model *model) {
    return model->flat_size + model->state_size;
}

int64_t strata_model_place(const strata_model *model, const strata_parameter_spec *parameter) {
    return parameter->offset + (parameter->state ? model->flat_size : 0);
}

strata_status strata_model_read_all(strata_model *model, float *values, strata_error *err) {
    strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->flat_size), values);
    strata_array state = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->state_size), values + model->flat_size);
    STRATA_TRY(strata_variable_get(model->flat, &flat, err));
    return model->state ? strata_variable_get(model->state, &state, err) : STRATA_OK;
}

static strata_status upload_parameters(strata_model *model, strata_error *err) {
    int64_t size = strata_model_all_size(model);
    float *values = model->loaded ? model->loaded : calloc((size_t)size, sizeof *values);
    if (!values) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %lld parameters", (long long)size);
    for (int i = 0, trained = 0; i < model->n_parameters && !model->loaded; i++) {
        const strata_parameter_spec *p = &model->parameters[i];
        strata_initializer_fill(p->initializer, model->seed, p->state ? 0 : (uint32_t)++trained, p->fan_in, p->fan_out,
                                values + strata_model_place(model, p), strata_shape_elements(p->shape));
    }
    strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->flat_size), values);
    strata_array state = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->state_size), values + model->flat_size);
    strata_status status = strata_variable_set(model->flat, &flat, err);
    if (!status && model->state) status = strata_variable_set(model->state, &state, err);
    if (!model->loaded) free(values);
    return status;
}

/* A new variable is zeros. */
static strata_status make_slot(strata_model *model, const char *name, strata_variable **out_slot, strata_error *err) {
    strata_shape flat = STRATA_SHAPE(model->flat_size);
    STRATA_TRY(strata_variable_create(model->device, name, STRATA_DTYPE_F32, flat, out_slot, err));
    if (!model->optimizer_kind->slot_begins) return STRATA_OK;
    strata_array values;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, flat, &values, err));
    float begin = (float)model->optimizer_kind->slot_begins(&model->optimizer);
    for (int64_t i = 0; i < model->flat_size; i++) ((float *)values.data)[i] = begin;
    strata_status status = strata_variable_set(*out_slot, &values, err);
    strata_array_finish(&values);
    return status;
}

static strata_status make_segments(strata_model *model, strata_error *err) {
    strata_segments *s = &model->segments;
    s->n = model->n_parameters;
    s->n_chunks = model->flat_size / STRATA_SEGMENT_CHUNK;
    s->ends = model->segment_ends = calloc((size_t)s->n, sizeof *model->segment_ends);
    s->owner = model->segment_owner = calloc((size_t)s->n_chunks, sizeof *model->segment_owner);
    if (!s->ends || !s->owner || s->n_chunks > INT32_MAX)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for the places of %d parameters", s->n);
    int n = 0;
    for (int i = 0; i < model->n_parameters; i++) {
        const strata_parameter_spec *p = &model->parameters[i];
        if (p->state) continue;
        int64_t chunk = p->offset / STRATA_SEGMENT_CHUNK;
        int64_t end = (p->offset + strata_shape_elements(p->shape) + STRATA_SEGMENT_CHUNK - 1) / STRATA_SEGMENT_CHUNK;
        for (; chunk < end; chunk++) model->segment_owner[chunk] = n;
        model->segment_ends[n++] = (int32_t)end;
    }
    s->n = n;
    return STRATA_OK;
}

static strata_status make_variables(strata_model *model, strata_error *err) {
    static const char *const slot_names[STRATA_MAX_OPTIMIZER_SLOTS] = {"optimizer slot 0", "optimizer slot 1",
                                                                       "optimizer slot 2"};
    strata_shape flat = STRATA_SHAPE(model->flat_size);
    STRATA_TRY(strata_variable_create(model->device, "parameters", STRATA_DTYPE_F32, flat, &model->flat, err));
    STRATA_TRY(
        strata_variable_create(model->device, "metrics", STRATA_DTYPE_F32, STRATA_SHAPE(model->n_sums), &model->metrics, err));
    if (model->state_size)
        STRATA_TRY(strata_variable_create(model->device, "states", STRATA_DTYPE_F32, STRATA_SHAPE(model->state_size),
                                          &model->state, err));
    for (int i = 0; i < model->optimizer_kind->n_slots(&model->optimizer); i++)
        STRATA_TRY(make_slot(model, slot_names[i], &model->slots[i], err));
    STRATA_TRY(make_segments(model, err));
    return upload_parameters(model, err);
}

strata_status strata_model_compile(strata_model *model, strata_device *device, const strata_compile_options *opts,
                                   strata_error *err) {
    if (model->device) return strata_fail(err, STRATA_INVALID, "model: it is compiled already");
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(choose_settings(model, opts, err));
    model->device = device;
    model->seed = opts ? opts->seed : 0;
    strata_status status = make_variables(model, err);
    if (status) {
        free_variables(model);
        model->device = NULL;
        return status;
    }
    free(model->loaded);
    model->loaded = NULL;
    return STRATA_OK;
}

size_t strata_model_element_bytes(const strata_model *model) {
    return (size_t)strata_shape_elements(model->input) * strata_dtype_bytes(model->input_dtype);
}

strata_status strata_model_check_compiled(const strata_model *model, const char *verb, strata_error *err) {
    if (model->device) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s: the model is not compiled; call strata_model_compile first", verb);
}

/* Pictures (H, W) are pictures (H, W, 1). */
static bool same_elements(strata_shape data, strata_shape model) {
    if (model.rank == 3 && data.rank == 2 && model.dims[2] == 1) model.rank = 2;
    return strata_shape_equal(data, model);
}

int64_t strata_model_n_classes(const strata_model *model) {
    if (model->loss->answers == STRATA_ANSWERS_CLASS) return model->output.dims[0];
    return model->loss->answers == STRATA_ANSWERS_BINARY ? 2 : 0;
}

static strata_status check_labels(const strata_model *model, const strata_dataset *dataset, const char *verb,
                                  strata_error *err) {
    strata_dtype given = strata_dataset_label_dtype(dataset), wanted = strata_loss_label_dtype(model->loss);
    strata_shape shape = strata_dataset_label_shape(dataset),
                 wanted_shape = strata_loss_label_shape(model->loss, model->output);
    int64_t classes = strata_model_n_classes(model);
    if (given != wanted && given != STRATA_DTYPE_I32) /* integers are taken as numbers too */
        return strata_fail(err, STRATA_DATA, "%s: the labels are %s; %s takes %s", verb, strata_dtype_name(given),
                           model->loss->name, strata_dtype_name(wanted));
    if (!strata_shape_equal(shape, wanted_shape) && strata_shape_elements(shape) != 1)
        return strata_fail(err, STRATA_DATA, "%s: the labels are %s an example; %s takes %s for outputs of %s", verb,
                           strata_shape_text(shape).text, model->loss->name, strata_shape_text(wanted_shape).text,
                           strata_shape_text(model->output).text);
    if (strata_shape_elements(shape) != strata_shape_elements(wanted_shape))
        return strata_fail(err, STRATA_DATA,
                           "%s: there is one label an example; the model has outputs of %s, and %s takes as many", verb,
                           strata_shape_text(model->output).text, model->loss->name);
    if (classes && strata_dataset_n_classes(dataset) > classes)
        return strata_fail(err, STRATA_DATA, "%s: the largest label is %lld; the model's classes are 0..%lld", verb,
                           (long long)strata_dataset_n_classes(dataset) - 1, (long long)classes - 1);
    return STRATA_OK;
}

strata_status strata_model_check_dataset(const strata_model *model, const strata_dataset *dataset, bool labels,
                                         const char *verb, strata_error *err) {
    strata_shape element = strata_dataset_element_shape(dataset), fixed = element;
    for (int i = 0; i < fixed.rank && i < model->input.rank; i++) /* what a pipeline leaves open is seen batch by batch */
        if (fixed.dims[i] < 0) fixed.dims[i] = model->input.dims[i];
    if (!same_elements(fixed, model->input))
        return strata_fail(err, STRATA_DATA, "%s: the data's elements are %s, the model takes %s", verb,
                           strata_shape_text(element).text, strata_shape_text(model->input).text);
    strata_dtype dtype = strata_dataset_feature_dtype(dataset);
    if (dtype != model->input_dtype)
        return strata_fail(err, STRATA_DATA, "%s: the data's features are %s, the model takes %s (its input_dtype)", verb,
                           strata_dtype_name(dtype), strata_dtype_name(model->input_dtype));
    if (model->n_tokens) {
        strata_status status = strata_dataset_check_tokens(dataset, model->n_tokens, err);
        if (status) return strata_fail_in(err, status, "%s", verb);
    }
    if (!labels) return STRATA_OK;
    if (!strata_dataset_has_labels(dataset)) return strata_fail(err, STRATA_DATA, "%s: the data has no labels", verb);
    return check_labels(model, dataset, verb, err);
}

int64_t strata_model_label_size(const strata_model *model) {
    return strata_shape_elements(strata_loss_label_shape(model->loss, model->output));
}

size_t strata_model_label_bytes(const strata_model *model) {
    return (size_t)strata_model_label_size(model) * strata_dtype_bytes(strata_loss_label_dtype(model->loss));
}

void strata_model_convert_labels(const strata_model *model, const strata_dataset *dataset, int64_t n, void *labels) {
    if (strata_dataset_label_dtype(dataset) == strata_loss_label_dtype(model->loss)) return;
    int64_t numbers = n * strata_shape_elements(strata_loss_label_shape(model->loss, model->output));
    for (int64_t i = 0; i < numbers; i++) {
        int32_t label;
        memcpy(&label, (char *)labels + i * 4, sizeof label);
        float number = (float)label;
        memcpy((char *)labels + i * 4, &number, sizeof number);
    }
}

/* ---- parameters ---- */

int strata_model_n_parameters(const strata_model *model) {
    return model->n_parameters;
}

strata_parameter strata_model_parameter(const strata_model *model, int index) {
    if (index < 0 || index >= model->n_parameters) return (strata_parameter){0};
    const strata_parameter_spec *p = &model->parameters[index];
    return (strata_parameter){.name = p->name, .shape = p->shape, .state = p->state};
}

static strata_status check_parameter(const strata_model *model, int index, const strata_array *value, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "parameter", err));
    if (index < 0 || index >= model->n_parameters)
        return strata_fail(err, STRATA_INVALID, "parameter %d: the model has %d", index, model->n_parameters);
    const strata_parameter_spec *p = &model->parameters[index];
    if (value->dtype == STRATA_DTYPE_F32 && strata_shape_elements(value->shape) == strata_shape_elements(p->shape))
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "parameter %s is f32 %s, the value is %s %s", p->name,
                       strata_shape_text(p->shape).text, strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
}

static int64_t float_bytes(int64_t elements) {
    return elements * (int64_t)sizeof(float);
}

strata_status strata_model_get_parameter(strata_model *model, int index, strata_array *value, strata_error *err) {
    STRATA_TRY(check_parameter(model, index, value, err));
    const strata_parameter_spec *p = &model->parameters[index];
    return strata_variable_get_range(p->state ? model->state : model->flat, float_bytes(p->offset), value, err);
}

strata_status strata_model_set_parameter(strata_model *model, int index, const strata_array *value, strata_error *err) {
    STRATA_TRY(check_parameter(model, index, value, err));
    const strata_parameter_spec *p = &model->parameters[index];
    return strata_variable_set_range(p->state ? model->state : model->flat, float_bytes(p->offset), value, err);
}

static int by_name(const void *a, const void *b) {
    const strata_parameter_spec *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static strata_status hash_parameters(strata_model *model, const strata_parameter_spec **order, float *values, char out_hex[65],
                                     strata_error *err) {
    STRATA_TRY(strata_model_read_all(model, values, err));
    for (int i = 0; i < model->n_parameters; i++) order[i] = &model->parameters[i];
    qsort(order, (size_t)model->n_parameters, sizeof *order, by_name);
    strata_sha256 sha = {0};
    strata_status status = strata_sha256_init(&sha, err);
    for (int i = 0; i < model->n_parameters && !status; i++)
        status = strata_sha256_update(&sha, values + strata_model_place(model, order[i]),
                                      (size_t)float_bytes(strata_shape_elements(order[i]->shape)), err);
    if (!status) status = strata_sha256_final(&sha, out_hex, err);
    strata_sha256_finish(&sha);
    return status;
}

strata_status strata_model_sha256(strata_model *model, char out_hex[65], strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "sha256", err));
    const strata_parameter_spec **order = calloc((size_t)model->n_parameters, sizeof *order);
    float *values = malloc((size_t)float_bytes(strata_model_all_size(model)));
    strata_status status = order && values ? hash_parameters(model, order, values, out_hex, err)
                                           : strata_fail(err, STRATA_OUT_OF_MEMORY, "sha256: no host memory");
    free(order);
    free(values);
    return status;
}
