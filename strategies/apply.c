/* SPDX-License-Identifier: Apache-2.0
 *
 * Models in graphs that are not fit's: applied to a tensor in a replica's function, or in any graph. A function keeps the
 * layers' context of each model from one application to the next, so that all of them use the same views of the parameters. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "strategies/context.h"

struct strata_model_use {
    strata_model *model;
    strata_layer_context context;
    strata_model_use *next;
};

strata_variables strata_model_variables(strata_model *model) {
    return (strata_variables){.items = model->custom.list, .n = model->strategy ? model->parameters.n_blocks : 0};
}

/* ---- the layers' context ---- */

static bool begin(strata_layer_context *context, strata_graph *graph, strata_model *model, int replica) {
    const strata_parameter_set *set = &model->parameters;
    *context = (strata_layer_context){.parameters = &model->parameters, .dtype = model->precision};
    context->blocks = strata_trace_alloc(graph, (size_t)set->n_blocks, sizeof *context->blocks);
    context->parts = strata_trace_alloc(graph, (size_t)set->n_parts, sizeof *context->parts);
    context->rows = strata_trace_alloc(graph, (size_t)set->n, sizeof *context->rows);
    context->new_state = strata_trace_alloc(graph, (size_t)set->n, sizeof *context->new_state);
    context->state_rates = strata_trace_alloc(graph, (size_t)set->n, sizeof *context->state_rates);
    if (!context->blocks || !context->parts || !context->rows || !context->new_state || !context->state_rates) return false;
    const strata_model_replica *own = &model->replicas[replica];
    for (int k = 0; k < set->n_blocks; k++)
        context->blocks[k] = strata_tensor_set_name(strata_variable_read(graph, own->blocks[k].flat), "parameters");
    if (own->state) context->state = strata_variable_read(graph, own->state);
    return true;
}

strata_model_use *strata_model_use_find(const strata_replica_context *replica, const strata_model *model) {
    for (strata_model_use *use = replica->uses; use; use = use->next)
        if (use->model == model) return use;
    return NULL;
}

strata_tensor *const *strata_model_use_parts(const strata_model_use *use) {
    return use->context.parts;
}

void strata_model_use_forget(strata_replica_context *replica, const strata_model *model) {
    for (strata_model_use **at = &replica->uses; *at; at = &(*at)->next)
        if ((*at)->model == model) {
            *at = (*at)->next;
            return;
        }
}

static strata_model_use *use_of(strata_replica_context *replica, strata_model *model) {
    strata_model_use *use = strata_model_use_find(replica, model);
    if (use) return use;
    use = strata_trace_alloc(replica->graph, 1, sizeof *use);
    if (!use || !begin(&use->context, replica->graph, model, replica->id)) return NULL;
    use->model = model;
    use->next = replica->uses;
    replica->uses = use;
    return use;
}

strata_tensor *strata_model_use_pack(strata_model_use *use, int block, strata_tensor *const *gradients) {
    const strata_parameter_set *set = &use->model->parameters;
    const strata_parameter_block *at = &set->blocks[block];
    strata_graph *graph = strata_tensor_graph(use->context.blocks[block]);
    strata_tensor **parts = strata_trace_alloc(graph, (size_t)at->n_parts + 1, sizeof *parts);
    int64_t *offsets = strata_trace_alloc(graph, (size_t)at->n_parts + 1, sizeof *offsets);
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

/* Moving averages follow the mean of what the replicas with examples found, as in fit. */
static void update_states(strata_replica_context *replica, strata_model_use *use, bool has_examples) {
    strata_layer_context *context = &use->context;
    const int64_t n = use->model->parameters.state_size, one = 1;
    if (!n) return;
    strata_tensor *value = strata_layer_context_new_state(context);
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
    strata_variable *own = use->model->replicas[replica->id].state;
    strata_replica_update_copy(replica, own, strata_moving_average(context->state, value, rates, NULL));
    context->state = strata_variable_read(replica->graph, own);
    memset(context->new_state, 0, (size_t)use->model->parameters.n * sizeof *context->new_state);
}

static strata_tensor *apply(strata_model *model, strata_layer_context *context, strata_tensor *x, bool training) {
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x);
    strata_shape wanted = {.rank = model->input.rank + 1, .dims = {shape.rank ? shape.dims[0] : 0}};
    memcpy(wanted.dims + 1, model->input.dims, (size_t)model->input.rank * sizeof *wanted.dims);
    const bool pictures = strata_tensor_dtype(x) == STRATA_DTYPE_U8 && model->input_dtype == STRATA_DTYPE_F32;
    if (shape.rank < 1 || strata_shape_elements(shape) != strata_shape_elements(wanted) ||
        (strata_tensor_dtype(x) != model->input_dtype && !pictures))
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "strata_model_apply: x is %s %s; the model takes %s (n,...%s",
                                   strata_dtype_name(strata_tensor_dtype(x)), strata_shape_text(shape).text,
                                   strata_dtype_name(model->input_dtype), strata_shape_text(model->input).text);
    if (pictures) x = strata_cast(x, STRATA_DTYPE_F32);
    context->training = training;
    context->mask = NULL;
    return strata_model_build_layers(model, context, strata_reshape(x, wanted));
}

static strata_tensor *apply_in_any_graph(strata_model *model, strata_tensor *x, bool training) {
    strata_graph *graph = strata_tensor_graph(x);
    strata_layer_context context;
    if (training)
        return strata_graph_poison(graph, NULL, STRATA_INVALID,
                                   "strata_model_apply: training needs a replica's function; give it its context");
    return begin(&context, graph, model, strata_model_root(model)) ? apply(model, &context, x, false) : x;
}

strata_tensor *strata_model_apply(strata_model *model, strata_replica_context *replica, strata_tensor *x, bool training) {
    if (!x || strata_tensor_is_poison(x)) return x;
    strata_graph *graph = strata_tensor_graph(x);
    strata_error err = {0};
    const strata_status status = strata_model_check_built(model, "strata_model_apply", &err);
    if (status) return strata_graph_poison(graph, NULL, status, "%s", err.message);
    if (!replica) return apply_in_any_graph(model, x, training);
    if (!strata_need_replica(replica, "strata_model_apply")) return x;
    if (model->strategy != replica->strategy)
        return strata_graph_poison(graph, NULL, STRATA_INVALID,
                                   "strata_model_apply: the model is on the devices of another strategy (%s)",
                                   model->strategy->name);
    strata_model_use *use = use_of(replica, model);
    if (!use) return x;
    if (training) {
        use->context.rng = strata_replica_feed(replica, (strata_feed){.kind = STRATA_FEED_RANDOM, .model = model});
        use->context.has_replicas = strata_replica_num_in_sync(replica) > 1;
        use->context.replicas = strata_channel_of_first(replica->strategy->n_replicas);
    }
    strata_tensor *outputs = apply(model, &use->context, x, training);
    if (training) update_states(replica, use, strata_tensor_shape(x).dims[0] > 0);
    return outputs;
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
