/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies models to tensors outside of fit: in a replica's function, or in any graph. A function keeps the layers' context of
 * each model between applications, so that all applications use the same views of the parameters. */
#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "core/model/loop.h"
#include "core/model/parts.h"
#include "core/op/communication.h"
#include "strategies/context.h"

strata_variables strata_model_variables(strata_model *model) {
    return (strata_variables){.items = model->custom.list, .n = model->strategy ? model->parameters.n_blocks : 0};
}

/* ---- the layers' context ---- */

/* The random numbers of the layers go on from stream n_streams. */
static bool begin(strata_layer_context *context, strata_graph *graph, strata_model *model, int replica, uint32_t n_streams) {
    *context = (strata_layer_context){.parameters = &model->parameters,
                                      .dtype = model->precision,
                                      .n_streams = n_streams,
                                      .has_stages = strata_model_has_stages(model),
                                      .stage_axis = STRATA_STAGE_AXIS};
    strata_model_begin_layers(model, replica, graph, context);
    return !strata_graph_check(graph, NULL);
}

/* The model's use, also one before an update of its parameters. */
static strata_model_use *find(const strata_replica_context *replica, const strata_model *model) {
    for (strata_model_use *use = replica->uses; use; use = use->next)
        if (use->model == model) return use;
    return NULL;
}

strata_model_use *strata_model_use_find(const strata_replica_context *replica, const strata_model *model) {
    strata_model_use *use = find(replica, model);
    return use && !use->forgotten ? use : NULL;
}

void strata_model_use_forget(strata_replica_context *replica, const strata_model *model) {
    strata_model_use *use = find(replica, model);
    if (use) use->forgotten = true;
}

static void list_model(strata_replica_context *replica, const strata_model *model) {
    for (int i = 0; i < replica->n_models; i++)
        if (replica->models[i] == model) return;
    if (replica->n_models < STRATA_MAX_FEEDS) replica->models[replica->n_models++] = model;
}

static strata_model_use *use_of(strata_replica_context *replica, strata_model *model) {
    strata_model_use *use = find(replica, model);
    if (use && !use->forgotten) return use;
    if (!use) {
        use = strata_graph_alloc(replica->graph, sizeof *use);
        if (!use) return NULL;
        use->model = model;
        use->next = replica->uses;
        replica->uses = use;
        list_model(replica, model);
    }
    use->forgotten = false;
    const int index = strata_replica_index(replica);
    return begin(&use->context, replica->graph, model, index, use->context.n_streams) ? use : NULL;
}

strata_tensor *strata_model_use_pack(strata_model_use *use, int block, strata_tensor *const *gradients) {
    const strata_parameter_set *set = &use->model->parameters;
    const strata_parameter_block *at = &set->blocks[block];
    if (at->shaped) return gradients[at->first_part]; /* it is one parameter */
    strata_graph *graph = strata_tensor_graph(use->context.blocks[block]);
    strata_tensor **parts = strata_graph_alloc(graph, (size_t)at->n_parts * sizeof *parts);
    int64_t *offsets = strata_graph_alloc(graph, (size_t)at->n_parts * sizeof *offsets);
    int n = 0;
    if (!parts || !offsets) return NULL;
    for (int i = at->first_part; i < at->first_part + at->n_parts; i++) {
        if (!gradients[i]) continue;
        parts[n] = gradients[i];
        offsets[n++] = set->parts[i].offset - at->begin;
    }
    return strata_pack(parts, offsets, n, at->end - at->begin);
}

/* ---- applying ---- */

/* Moving averages are updated with the mean of the values of all replicas that have examples, as in fit. */
static void update_states(strata_replica_context *replica, strata_model_use *use, bool has_examples) {
    strata_layer_context *context = &use->context;
    const int64_t n = use->model->parameters.state_size, one = 1;
    if (!n) return;
    strata_tensor *value = strata_layer_context_new_state(context);
    if (context->has_stages) /* each stage has the new states of its own layers */
        value = strata_move_along(value, context->stage_axis, STRATA_EVERY_STAGE, STRATA_EVERY_STAGE);
    if (strata_replica_num_in_sync(replica) > 1) {
        strata_tensor *zero = strata_scalar(replica->graph, STRATA_DTYPE_F32, 0);
        strata_tensor *own = has_examples ? value : strata_broadcast_to(zero, STRATA_SHAPE(n));
        strata_tensor *count = strata_scalar(replica->graph, STRATA_DTYPE_F32, has_examples);
        strata_tensor *sums = strata_all_reduce(
            strata_concat((strata_tensor *[]){own, strata_reshape(count, STRATA_SHAPE(1))}, 2, 0), STRATA_REDUCE_SUM);
        const int64_t first = 0;
        value = strata_div(strata_slice(sums, &first, &n), strata_slice(sums, &n, &one));
    }
    strata_tensor *rates = strata_layer_context_state_rates(context, replica->graph);
    strata_variable *own = strata_model_replica_of(use->model, strata_replica_index(replica))->state;
    strata_replica_update_copy(replica, own, strata_moving_average(context->state, value, rates, NULL));
    context->state = strata_variable_read(replica->graph, own);
    memset(context->new_state, 0, (size_t)use->model->parameters.n * sizeof *context->new_state);
}

/* Converts an input to the form that the model takes. If the input does not fit, the graph records an error. */
static strata_tensor *as_input(const strata_model *model, int index, strata_tensor *x) {
    const strata_input_spec *input = &model->inputs[index];
    const strata_shape shape = strata_tensor_shape(x);
    strata_shape wanted = {.rank = input->shape.rank + 1, .dims = {shape.rank ? shape.dims[0] : 0}};
    memcpy(wanted.dims + 1, input->shape.dims, (size_t)input->shape.rank * sizeof *wanted.dims);
    const bool pictures = strata_tensor_dtype(x) == STRATA_DTYPE_U8 && input->dtype == STRATA_DTYPE_F32;
    if (shape.rank < 1 || strata_shape_elements(shape) != strata_shape_elements(wanted) ||
        (strata_tensor_dtype(x) != input->dtype && !pictures))
        return strata_graph_poison(
            strata_tensor_graph(x), NULL, STRATA_INVALID, "strata_model_apply: %s is %s %s; the model takes %s (n,...%s",
            strata_model_input_port(model, index).name, strata_dtype_name(strata_tensor_dtype(x)),
            strata_shape_text(shape).text, strata_dtype_name(input->dtype), strata_shape_text(input->shape).text);
    if (pictures) x = strata_cast(x, STRATA_DTYPE_F32);
    return strata_reshape(x, wanted);
}

static void apply(strata_model *model, strata_layer_context *context, strata_tensor *const *inputs, strata_tensor **outputs,
                  bool training) {
    strata_tensor *taken[STRATA_MAX_INPUTS];
    for (int i = 0; i < model->n_inputs; i++) taken[i] = as_input(model, i, inputs[i]);
    context->training = training;
    context->mask = NULL;
    strata_model_build_calls(model, context, taken, outputs);
}

static void apply_in_any_graph(strata_model *model, strata_tensor *const *inputs, strata_tensor **outputs, bool training) {
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    strata_layer_context context;
    if (training)
        strata_graph_poison(graph, NULL, STRATA_INVALID,
                            "strata_model_apply: training needs a replica's function; give it its context");
    else if (begin(&context, graph, model, strata_model_root(model), 0))
        apply(model, &context, inputs, outputs, false);
}

/* Why the model cannot be applied there. */
static strata_status check_apply(const strata_model *model, const strata_replica_context *replica, bool training,
                                 strata_error *err) {
    STRATA_TRY(strata_model_check_built(model, "strata_model_apply", err));
    if (training && model->recompute.most_bytes)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "strata_model_apply: recompute \"%s\" chooses layers for the programs of fit; name the layers",
                           model->recompute.text);
    if (!replica) STRATA_TRY(strata_model_check_whole(model, "strata_model_apply outside of a function", err));
    if (!replica || model->strategy == replica->strategy) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "strata_model_apply: the model is on the devices of another strategy (%s)",
                       model->strategy->name);
}

void strata_model_apply_all(strata_model *model, strata_replica_context *replica, strata_tensor *const *inputs,
                            strata_tensor **out_outputs, bool training) {
    strata_error err = {0};
    strata_tensor *given = inputs[0];
    for (int i = 1; i < model->n_inputs && !given; i++) given = inputs[i];
    for (int i = 0; i < model->n_outputs; i++) out_outputs[i] = given; /* placeholders, in case building the model fails */
    for (int i = 0; i < model->n_inputs; i++) {
        if (!inputs[i] && given)
            strata_graph_poison(strata_tensor_graph(given), NULL, STRATA_INVALID, "strata_model_apply: input %d is NULL", i);
        if (strata_tensor_is_poison(inputs[i])) return;
    }
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    const strata_status status = check_apply(model, replica, training, &err);
    if (status) {
        out_outputs[0] = strata_graph_poison(graph, NULL, status, "%s", err.message);
        return;
    }
    if (!replica) {
        apply_in_any_graph(model, inputs, out_outputs, training);
        return;
    }
    if (!strata_need_replica(replica, "strata_model_apply")) return;
    strata_model_use *use = use_of(replica, model);
    if (!use) return;
    if (training) {
        use->context.rng = strata_replica_feed(replica, (strata_feed){.kind = STRATA_FEED_RANDOM, .model = model});
        use->context.has_replicas = strata_strategy_num_replicas_in_sync(replica->strategy) > 1;
        use->context.replicas = strata_strategy_replicas(replica->strategy, replica->graph);
    }
    apply(model, &use->context, inputs, out_outputs, training);
    if (training) update_states(replica, use, strata_tensor_shape(inputs[0]).dims[0] > 0);
}

strata_tensor *strata_model_apply(strata_model *model, strata_replica_context *replica, strata_tensor *x, bool training) {
    strata_tensor *outputs[STRATA_MAX_OUTPUTS];
    if (!x || strata_tensor_is_poison(x)) return x;
    if (model->n_inputs > 1 || model->n_outputs > 1)
        return strata_graph_poison(
            strata_tensor_graph(x), NULL, STRATA_INVALID,
            "strata_model_apply: the model has %d inputs and %d outputs; strata_model_apply_all takes and "
            "gives all of them",
            model->n_inputs, model->n_outputs);
    strata_model_apply_all(model, replica, &x, outputs, training);
    return outputs[0];
}

/* ---- losses ---- */

static strata_tensor *batch_word(strata_replica_context *replica, int64_t word) {
    strata_tensor *words = strata_replica_feed(replica, (strata_feed){.kind = STRATA_FEED_BATCH});
    const int64_t one = 1;
    return strata_reshape(strata_slice(words, &word, &one), STRATA_SHAPE());
}

strata_tensor *strata_replica_average_loss(strata_replica_context *replica, strata_tensor *losses) {
    if (!losses || strata_tensor_is_poison(losses) || !strata_need_replica(replica, "strata_replica_average_loss"))
        return losses;
    return strata_reduce_sum(strata_mul(losses, batch_word(replica, 0)), NULL, 0, false);
}

strata_tensor *strata_replica_penalty(strata_replica_context *replica, const strata_model *model) {
    const strata_model_use *use = strata_model_use_find(replica, model);
    strata_tensor *zero = strata_scalar(replica->graph, STRATA_DTYPE_F32, 0);
    if (!strata_need_replica(replica, "strata_replica_penalty") || !use || !use->context.penalty) return zero;
    return strata_mul(use->context.penalty, batch_word(replica, 1));
}
