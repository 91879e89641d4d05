/* SPDX-License-Identifier: Apache-2.0
 *
 * The graphs of a model's steps, and their executables, one for each kind and batch size.
 *
 *   training      x (B, ...), y (B), weights (B), step, rng -> sums;  updates parameters, optimizer slots, the epoch's sums
 *   evaluation    x, y -> sums
 *   prediction    x -> outputs, as probabilities where the loss classifies
 *
 * sums (2): of the examples' losses, and of right answers. weights: what each example's loss counts in the gradient, 1 / B for
 * the mean of a batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/executable.h"
#include "core/graph.h"
#include "core/model/model.h"

/* A step's graph while it is built. */
typedef struct step_graph {
    strata_graph *graph;
    strata_layer_context context;
    strata_tensor *x, *y, *step;
    strata_tensor *outputs[2];
    int n_outputs;
    strata_tensor *updates[3];
    int n_updates;
} step_graph;

static strata_tensor *forward(step_graph *s, strata_model *model, int64_t batch) {
    strata_shape shape = {.rank = model->input.rank + 1, .dims = {batch}};
    memcpy(shape.dims + 1, model->input.dims, (size_t)model->input.rank * sizeof(int64_t));
    s->x = strata_input(s->graph, "x", model->input_dtype, shape);
    s->context.flat = strata_variable_read(s->graph, model->flat);
    strata_tensor_set_name(s->context.flat, "parameters");
    if (model->state) s->context.state = strata_tensor_set_name(strata_variable_read(s->graph, model->state), "states");
    return strata_model_build_layers(&s->context, s->x);
}

static strata_tensor *labels_input(step_graph *s, const strata_model *model, int64_t batch) {
    strata_shape one = strata_loss_label_shape(model->loss, model->output), shape = {.rank = one.rank + 1, .dims = {batch}};
    memcpy(shape.dims + 1, one.dims, (size_t)one.rank * sizeof(int64_t));
    return s->y = strata_input(s->graph, "y", strata_loss_label_dtype(model->loss), shape);
}

/* Sum of losses and number of right answers (0 where the loss does not classify), f32 (2). */
static strata_tensor *answer_sums(const strata_model *model, strata_tensor *per_example, strata_tensor *outputs,
                                  strata_tensor *labels) {
    switch (model->loss->answers) {
        case STRATA_ANSWERS_CLASS:
            return strata_classification_sums(per_example, outputs, labels);
        case STRATA_ANSWERS_DISTRIBUTION:
            return strata_classification_sums(per_example, outputs, strata_argmax(labels, 1));
        case STRATA_ANSWERS_BINARY:
            outputs = strata_flatten(outputs);
            return strata_binary_sums(per_example, outputs, strata_loss_match(outputs, labels),
                                      model->loss->threshold(&model->loss_options));
        case STRATA_ANSWERS_NONE:
            break;
    }
    strata_tensor *sum = strata_reshape(strata_reduce_sum(per_example, NULL, 0, false), STRATA_SHAPE(1));
    return strata_pad(sum, (int64_t[]){0}, (int64_t[]){1}, 0);
}

/* `value` (one number) added to the sum of losses, sums[0]. */
static strata_tensor *add_to_loss(strata_tensor *sums, strata_tensor *value) {
    int64_t before = 0, after = strata_shape_elements(strata_tensor_shape(sums)) - 1;
    return strata_add(sums, strata_pad(strata_reshape(value, STRATA_SHAPE(1)), &before, &after, 0));
}

static strata_tensor *times(strata_tensor *x, double factor) {
    return strata_mul(x, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, factor));
}

/* What a batch adds to the epoch's sums; its examples' losses have the layers' penalty in them. */
static strata_tensor *batch_sums(const step_graph *s, const strata_model *model, strata_tensor *per_example,
                                 strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *sums = strata_model_metric_sums(model, answer_sums(model, per_example, outputs, labels), outputs, labels);
    if (!s->context.penalty) return sums;
    return add_to_loss(sums, times(s->context.penalty, (double)strata_tensor_shape(per_example).dims[0]));
}

/* The node of that name; NULL: there is none. */
static strata_tensor *find_named(const strata_graph *graph, const char *name) {
    for (int id = 0; id < graph->n_nodes; id++)
        if (graph->nodes[id]->name && !strcmp(graph->nodes[id]->name, name)) return graph->nodes[id];
    return NULL;
}

/* Gradients of the sum of `per_example` times `weights` (B), and of the layers' penalty for the step's share, laid out as the parameters are. */
static strata_tensor *flat_gradients(step_graph *s, strata_model *model, strata_tensor *per_example, strata_tensor *weights) {
    strata_graph *graph = strata_tensor_graph(per_example);
    strata_tensor **views = calloc(2 * (size_t)model->n_parameters, sizeof *views), **gradients = views + model->n_parameters;
    int64_t *offsets = calloc((size_t)model->n_parameters, sizeof *offsets);
    strata_tensor *flat = NULL;
    int n = 0;
    for (int i = 0; i < model->n_parameters && views && offsets && !flat; i++) {
        const strata_parameter_spec *p = &model->parameters[i];
        if (p->state) continue;
        offsets[n] = p->offset;
        views[n] = find_named(graph, p->name);
        if (!views[n++] && !graph->status)
            flat = strata_graph_poison(graph, NULL, STRATA_INTERNAL, "parameter %s is not in the graph", p->name);
    }
    if (!views || !offsets) {
        flat = strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for gradients");
    } else if (!flat) {
        strata_tensor *y = per_example, *dy = weights;
        if (s->context.penalty) {
            int64_t first = STRATA_STEP_SHARE, one = 1;
            strata_tensor *share = strata_reshape(strata_slice(s->step, &first, &one), STRATA_SHAPE());
            y = strata_reduce_sum(strata_mul(per_example, weights), NULL, 0, false);
            y = strata_add(y, strata_mul(s->context.penalty, share));
            dy = NULL;
        }
        strata_gradients(y, dy, views, n, gradients);
        flat = strata_pack(gradients, offsets, n, model->flat_size);
    }
    free(views);
    free(offsets);
    return flat;
}

static strata_tensor *build_loss(const strata_model *model, strata_tensor *outputs, strata_tensor *labels) {
    return model->loss->build(&model->loss_options, outputs, labels);
}

static void build_train(step_graph *s, strata_model *model, int64_t batch) {
    s->context.training = true;
    s->context.rng = strata_input(s->graph, "rng", STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS));
    strata_tensor *outputs = forward(s, model, batch), *labels = labels_input(s, model, batch);
    strata_tensor *per_example = strata_tensor_set_name(build_loss(model, outputs, labels), "loss");
    s->step = strata_input(s->graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    strata_tensor *weights = strata_input(s->graph, "weights", STRATA_DTYPE_F32, STRATA_SHAPE(batch));
    strata_tensor *sums = strata_tensor_set_name(batch_sums(s, model, per_example, outputs, labels), "sums");

    strata_tensor *slots[STRATA_MAX_OPTIMIZER_SLOTS] = {NULL};
    for (int i = 0; i < model->optimizer_kind->n_slots(&model->optimizer); i++)
        slots[i] = strata_variable_read(s->graph, model->slots[i]);
    strata_tensor *square = NULL;
    strata_update update = {.parameters = s->context.flat, .step = s->step, .segments = &model->segments};
    memcpy(update.slots, slots, sizeof slots);
    update.gradients =
        strata_clip_gradients(&model->optimizer, flat_gradients(s, model, per_example, weights), &model->segments, &square);
    /* Where the norm of all gradients is known anyway, one that is not finite spoils the loss, and so closes the gate. */
    if (square) sums = add_to_loss(sums, times(square, 0));
    /* The gate is the epoch's sum, not the batch's: steps submitted behind one whose loss is not finite change nothing either. */
    s->updates[1] = strata_assign_add(strata_variable_read(s->graph, model->metrics), sums);
    int64_t first = 0, one = 1;
    update.gate = strata_reshape(strata_slice(s->updates[1], &first, &one), STRATA_SHAPE());
    s->updates[0] = model->optimizer_kind->build(&model->optimizer, &update);
    s->n_updates = 2;
    if (model->state) s->updates[s->n_updates++] = strata_model_update_state(&s->context, update.gate);
    s->outputs[0] = sums;
    s->n_outputs = 1;
}

static void build_evaluate(step_graph *s, strata_model *model, int64_t batch) {
    strata_tensor *outputs = forward(s, model, batch), *labels = labels_input(s, model, batch);
    s->outputs[0] = batch_sums(s, model, build_loss(model, outputs, labels), outputs, labels);
    s->n_outputs = 1;
}

static void build_predict(step_graph *s, strata_model *model, int64_t batch) {
    strata_tensor *outputs = forward(s, model, batch);
    s->outputs[0] = model->loss->predict ? model->loss->predict(&model->loss_options, outputs) : outputs;
    s->n_outputs = 1;
}

/* layers: [n_layers], filled with what each costs; NULL: not asked for. */
static strata_status build_traced(step_graph *s, strata_model *model, strata_program_kind kind, int64_t batch,
                                  strata_layer_cost *layers, strata_error *err) {
    static void (*const builders[])(step_graph *, strata_model *, int64_t) = {[STRATA_PROGRAM_TRAIN] = build_train,
                                                                              [STRATA_PROGRAM_EVALUATE] = build_evaluate,
                                                                              [STRATA_PROGRAM_PREDICT] = build_predict};
    *s = (step_graph){.context = {.model = model, .costs = layers}};
    STRATA_TRY(strata_graph_create(&s->graph, err));
    s->context.new_state = calloc((size_t)model->n_parameters, sizeof(*s->context.new_state));
    s->context.state_rates = calloc((size_t)model->n_parameters, sizeof(*s->context.state_rates));
    strata_status status = STRATA_OK;
    if (s->context.new_state && s->context.state_rates)
        builders[kind](s, model, batch);
    else
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for states");
    if (!status) status = strata_graph_check(s->graph, err);
    free(s->context.new_state);
    free(s->context.state_rates);
    s->context.new_state = NULL;
    s->context.state_rates = NULL;
    if (status) strata_graph_destroy(s->graph);
    return status;
}

static strata_status build(step_graph *s, strata_model *model, strata_program_kind kind, int64_t batch, strata_error *err) {
    return build_traced(s, model, kind, batch, NULL, err);
}

strata_status strata_model_measure(strata_model *model, strata_program_kind kind, int64_t batch, strata_layer_cost *out_layers,
                                   strata_program_cost *out_cost, strata_error *err) {
    step_graph s;
    STRATA_TRY(build_traced(&s, model, kind, batch, out_layers, err));
    strata_status status =
        strata_executable_measure(model->device, s.outputs, s.n_outputs, s.updates, s.n_updates, out_cost, err);
    strata_graph_destroy(s.graph);
    return status;
}

/* Device bytes that the program needs. */
static strata_status measure(strata_model *model, strata_program_kind kind, int64_t batch, int64_t *out_bytes,
                             strata_error *err) {
    strata_program_cost cost = {0};
    strata_status status = strata_model_measure(model, kind, batch, NULL, &cost, err);
    *out_bytes = cost.device_bytes;
    return status;
}

static int64_t free_bytes(const strata_model *model) {
    uint64_t all = strata_device_get_info(model->device)->memory_bytes;
    uint64_t used = strata_device_get_counters(model->device).allocated_bytes;
    if (!all) return INT64_MAX; /* the device does not say */
    return all > used ? (int64_t)(all - used) : 0;
}

/* The largest batch below `batch`, by halving, whose program fits in what is free; 0: none does. */
static int64_t batch_that_fits(strata_model *model, strata_program_kind kind, int64_t batch) {
    for (batch /= 2; batch >= 1; batch /= 2) {
        int64_t bytes = 0;
        if (!measure(model, kind, batch, &bytes, NULL) && bytes <= free_bytes(model)) return batch;
    }
    return 0;
}

/* Adds to an error of memory what batch would fit. */
static strata_status explain_memory(strata_model *model, strata_program_kind kind, int64_t batch, strata_status status,
                                    strata_error *err) {
    bool memory = status == STRATA_OUT_OF_MEMORY || status == STRATA_UNSUPPORTED || status == STRATA_INVALID;
    int64_t fits = memory && batch > 1 ? batch_that_fits(model, kind, batch) : 0;
    if (!fits) return status;
    strata_error reason = {0};
    if (err) reason = *err;
    return strata_fail(err, STRATA_OUT_OF_MEMORY,
                       "batch %lld does not fit on %s, where %.1f MiB are free (%s); a batch of %lld does", (long long)batch,
                       strata_device_get_info(model->device)->id, (double)free_bytes(model) / 1048576, reason.message,
                       (long long)fits);
}

strata_status strata_model_check_batch(strata_model *model, strata_program_kind kind, int64_t batch, strata_error *err) {
    int64_t bytes = 0, left = free_bytes(model);
    strata_error reason = {0};
    strata_status status = measure(model, kind, batch, &bytes, &reason);
    if (!status && bytes > left)
        status = strata_fail(&reason, STRATA_OUT_OF_MEMORY, "the program needs %.1f MiB", (double)bytes / 1048576);
    if (!status) return STRATA_OK;
    status = explain_memory(model, kind, batch, status, &reason);
    return strata_fail(err, status, "%s", reason.message);
}

static strata_status compile(strata_model *model, strata_model_program *program, strata_error *err) {
    step_graph s;
    STRATA_TRY(build(&s, model, program->kind, program->batch, err));
    strata_status status = strata_executable_create(model->device, s.outputs, s.n_outputs, s.updates, s.n_updates, NULL,
                                                    &program->executable, err);
    strata_graph_destroy(s.graph);
    if (status) return status;
    program->x = strata_executable_input_index(program->executable, "x");
    program->y = strata_executable_input_index(program->executable, "y");
    program->step = strata_executable_input_index(program->executable, "step");
    program->weights = strata_executable_input_index(program->executable, "weights");
    program->rng = strata_executable_input_index(program->executable, "rng");
    return STRATA_OK;
}

strata_status strata_model_get_program(strata_model *model, strata_program_kind kind, int64_t batch,
                                       strata_model_program **out_program, strata_error *err) {
    for (strata_model_program *p = model->programs; p; p = p->next)
        if (p->kind == kind && p->batch == batch) {
            *out_program = p;
            return STRATA_OK;
        }
    strata_model_program *program = calloc(1, sizeof *program);
    if (!program) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    program->kind = kind;
    program->batch = batch;
    strata_status status = compile(model, program, err);
    if (status) {
        free(program);
        return explain_memory(model, kind, batch, status, err);
    }
    program->next = model->programs;
    model->programs = program;
    *out_program = program;
    return STRATA_OK;
}

void strata_model_free_programs(strata_model *model) {
    for (strata_model_program *p = model->programs, *next; p; p = next) {
        next = p->next;
        strata_executable_destroy(p->executable);
        free(p);
    }
    model->programs = NULL;
}

/* ---- which tensor is not finite ---- */

static bool all_finite(const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* The f32 tensors of the graph before its updates, in order; every one becomes an output of the program that looks. */
static int float_tensors(const strata_graph *graph, strata_tensor **out_tensors) {
    int n = 0;
    for (int id = 0; id < graph->n_nodes; id++) {
        strata_tensor *node = graph->nodes[id];
        if (node->op->flags & STRATA_OP_UPDATE) break;
        if (node->op != &strata_op_constant && node->dtype == STRATA_DTYPE_F32 && strata_shape_elements(node->shape))
            out_tensors[n++] = node;
    }
    return n;
}

static strata_status run_and_look(strata_model *model, strata_tensor **tensors, int n, const void *x, const void *y,
                                  int64_t batch, const float *step, const int32_t *rng, int *out_first, strata_error *err) {
    strata_executable *exe = NULL;
    strata_executable_options opts = {.n_slots = 1, .no_fusion = true};
    STRATA_TRY(strata_executable_create(model->device, tensors, n, NULL, 0, &opts, &exe, err));
    int slot = 0;
    strata_status status = strata_executable_acquire(exe, &slot, err);
    const struct {
        const char *name;
        const void *data;
        size_t bytes;
    } feeds[] = {{"x", x, (size_t)batch * strata_model_element_bytes(model)},
                 {"y", y, (size_t)batch * strata_model_label_bytes(model)},
                 {"step", step, STRATA_STEP_WORDS * sizeof(float)},
                 {"rng", rng, STRATA_RNG_WORDS * sizeof(int32_t)}};
    int weights = strata_executable_input_index(exe, "weights");
    for (int64_t i = 0; i < batch && weights >= 0 && !status; i++)
        ((float *)strata_executable_input(exe, slot, weights))[i] = 1.0f / (float)batch;
    for (size_t i = 0; i < sizeof feeds / sizeof *feeds && !status; i++) {
        int index = strata_executable_input_index(exe, feeds[i].name);
        if (index >= 0) memcpy(strata_executable_input(exe, slot, index), feeds[i].data, feeds[i].bytes);
    }
    if (!status) status = strata_executable_submit(exe, slot, err);
    if (!status) status = strata_executable_wait(exe, slot, err);
    for (int i = 0; i < n && !status && *out_first < 0; i++)
        if (!all_finite(strata_executable_output(exe, slot, i), strata_shape_elements(tensors[i]->shape))) *out_first = i;
    strata_executable_destroy(exe);
    return status;
}

strata_status strata_model_diagnose(strata_model *model, const void *x, const void *y, int64_t batch, const float *step,
                                    const int32_t *rng, const char *where, strata_error *err) {
    step_graph s;
    STRATA_TRY(build(&s, model, STRATA_PROGRAM_TRAIN, batch, err));
    int first = -1;
    strata_error reason = {0};
    strata_tensor **tensors = calloc((size_t)s.graph->n_nodes, sizeof *tensors);
    strata_status status =
        tensors ? run_and_look(model, tensors, float_tensors(s.graph, tensors), x, y, batch, step, rng, &first, &reason)
                : strata_fail(&reason, STRATA_OUT_OF_MEMORY, "no host memory");
    if (!status && first >= 0 && tensors[first] == s.context.flat)
        status = strata_fail(err, STRATA_DATA,
                             "the loss is not finite at %s; the first tensor that is not is %s %s: in an earlier step the loss "
                             "was finite, but its gradient was not. A smaller learning rate, or checking the data, may help",
                             where, strata_tensor_name(tensors[first]), strata_shape_text(tensors[first]->shape).text);
    else if (!status && first >= 0)
        status = strata_fail(err, STRATA_DATA,
                             "the loss is not finite at %s; the first tensor that is not is %s %s. A smaller learning rate, or "
                             "checking the data, may help",
                             where, strata_tensor_name(tensors[first]), strata_shape_text(tensors[first]->shape).text);
    else if (!status)
        status = strata_fail(err, STRATA_DATA, "the loss was not finite at %s, but is when the batch is run again", where);
    else
        status = strata_fail(err, STRATA_DATA, "the loss is not finite at %s; where that began was not found: %s", where,
                             reason.message);
    free(tensors);
    strata_graph_destroy(s.graph);
    return status;
}
