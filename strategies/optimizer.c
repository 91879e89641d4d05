/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers for custom loops: they sum gradients over replicas and make the same update as fit, by the same kernels. */
#include "strategies/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "core/run/device.h"

/* ---- the object ---- */

static void destroy_owned(void *optimizer) {
    strata_distributed_optimizer_destroy(optimizer);
}

strata_status strata_distributed_optimizer_create(const strata_optimizer *settings,
                                                  strata_distributed_optimizer **out_optimizer, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_optimizer_create", "make optimizers before the run", err));
    strata_strategy *strategy = strata_strategy_current();
    strata_distributed_optimizer made = {.strategy = strategy, .settings = *settings};
    if (!strategy)
        return strata_fail(err, STRATA_INVALID,
                           "optimizer: strata_distributed_optimizer_create needs a strategy's scope; call "
                           "strata_strategy_enter first");
    if (!made.settings.name) made.settings = strata_adam_optimizer(settings->learning_rate);
    STRATA_TRY(strata_optimizer_check(&made.settings, &made.kind, err));
    if (made.settings.gradient_accumulation_steps > 1)
        return strata_fail(
            err, STRATA_INVALID,
            "optimizer %s: gradient_accumulation_steps is %lld; a loop of one's own adds gradients up itself, in "
            "variables",
            made.settings.name, (long long)made.settings.gradient_accumulation_steps);
    strata_distributed_optimizer *optimizer = malloc(sizeof *optimizer);
    if (!optimizer) return strata_fail(err, STRATA_OUT_OF_MEMORY, "optimizer: no host memory");
    *optimizer = made;
    strata_strategy_own(strategy, &optimizer->owned, destroy_owned, optimizer);
    *out_optimizer = optimizer;
    return STRATA_OK;
}

static void destroy_copies(strata_variable **copies, int n) {
    for (int r = 0; copies && r < n; r++) strata_variable_destroy(copies[r]);
    free(copies);
}

static void destroy_memory(strata_optimizer_memory *memory, int n) {
    for (int s = 0; s < STRATA_MAX_OPTIMIZER_SLOTS; s++) destroy_copies(memory->slots[s], n);
    destroy_copies(memory->shards, n);
    free(memory->begins);
    free(memory->ends);
    free(memory);
}

void strata_distributed_optimizer_destroy(strata_distributed_optimizer *optimizer) {
    if (!optimizer) return;
    strata_owned_forget(&optimizer->owned);
    for (strata_optimizer_memory *m = optimizer->memories, *next; m; m = next) {
        next = m->next;
        destroy_memory(m, optimizer->strategy->n_replicas);
    }
    free(optimizer);
}

int64_t strata_distributed_optimizer_steps(const strata_distributed_optimizer *optimizer) {
    return optimizer->steps;
}

/* ---- the state of a variable ---- */

static bool is_sharded(const strata_distributed_optimizer *o) {
    return o->strategy->shard_optimizer == STRATA_SHARD_OPTIMIZER_YES && o->strategy->updater < 0 &&
           strata_strategy_num_replicas_in_sync(o->strategy) > 1 && !o->kind->whole_parameters;
}

/* The first element of the part of replica r of n among `size` elements. Parts begin at multiples of the alignment. */
static int64_t cut_at(int64_t size, int r, int n) {
    return r == n ? size : size / STRATA_PARAMETER_ALIGNMENT * r / n * STRATA_PARAMETER_ALIGNMENT;
}

static strata_status make_copies(const strata_distributed_optimizer *o, const strata_optimizer_memory *memory, const char *name,
                                 float begin, strata_variable ***out_copies, strata_error *err) {
    const strata_strategy *strategy = o->strategy;
    strata_variable **copies = *out_copies = calloc((size_t)strategy->n_replicas, sizeof(*copies));
    if (!copies) return strata_fail(err, STRATA_OUT_OF_MEMORY, "optimizer: no host memory");
    for (int r = 0; r < strategy->n_replicas; r++) {
        const strata_shape own = STRATA_SHAPE(memory->ends[r] - memory->begins[r]);
        const strata_shape shape = is_sharded(o) ? own : memory->variable->copies[r]->shape;
        STRATA_TRY(strata_variable_create(strategy->devices[r], name, STRATA_DTYPE_F32, shape, &copies[r], err));
        if (begin == 0) continue; /* a new variable is zeros */
        strata_array values;
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, shape, &values, err));
        for (int64_t i = 0; i < strata_shape_elements(shape); i++) ((float *)values.data)[i] = begin;
        const strata_status status = strata_variable_set(copies[r], &values, err);
        strata_array_finish(&values);
        STRATA_TRY(status);
    }
    return STRATA_OK;
}

static strata_status fill_memory(const strata_distributed_optimizer *o, strata_optimizer_memory *memory, strata_error *err) {
    static const char *const names[STRATA_MAX_OPTIMIZER_SLOTS] = {"optimizer slot 0", "optimizer slot 1", "optimizer slot 2"};
    const strata_strategy *strategy = o->strategy;
    const int64_t size = strata_shape_elements(memory->variable->copies[0]->shape);
    const int n_all = strata_strategy_num_replicas_in_sync(strategy);
    for (int r = 0; r < strategy->n_replicas; r++) {
        const int id = strategy->workers.first_replica + r;
        memory->begins[r] = is_sharded(o) ? cut_at(size, id, n_all) : 0;
        memory->ends[r] = is_sharded(o) ? cut_at(size, id + 1, n_all) : size;
    }
    const float begin = o->kind->slot_begins ? (float)o->kind->slot_begins(&o->settings) : 0;
    for (int s = 0; s < o->kind->n_slots(&o->settings); s++)
        STRATA_TRY(make_copies(o, memory, names[s], begin, &memory->slots[s], err));
    return is_sharded(o) ? make_copies(o, memory, "parameter shard", 0, &memory->shards, err) : STRATA_OK;
}

static strata_optimizer_memory *memory_of(strata_distributed_optimizer *o, const strata_distributed_variable *variable,
                                          strata_graph *graph) {
    for (strata_optimizer_memory *m = o->memories; m; m = m->next)
        if (m->number == variable->number) return m;
    strata_error err = {0};
    const size_t n = (size_t)o->strategy->n_replicas;
    strata_optimizer_memory *memory = calloc(1, sizeof *memory);
    if (memory) {
        *memory = (strata_optimizer_memory){.variable = variable,
                                            .number = variable->number,
                                            .begins = calloc(n, sizeof *memory->begins),
                                            .ends = calloc(n, sizeof *memory->ends)};
    }
    strata_status status = memory && memory->begins && memory->ends
                               ? fill_memory(o, memory, &err)
                               : strata_fail(&err, STRATA_OUT_OF_MEMORY, "optimizer: no host memory");
    if (!status) {
        memory->next = o->memories;
        return o->memories = memory;
    }
    if (memory) destroy_memory(memory, o->strategy->n_replicas);
    strata_graph_poison(graph, NULL, status, "%s", err.message);
    return NULL;
}

/* ---- an update ---- */

/* The state of one call of apply while it is traced. */
typedef struct application {
    strata_replica_context *replica;
    strata_distributed_optimizer *optimizer;
    strata_tensor *words;
} application;

/* Whether each replica needs the sum of all gradients: norms are computed over all gradients, and only all_reduce supports a
 * smaller dtype between workers. */
static bool needs_all_gradients(const strata_distributed_optimizer *o) {
    return o->settings.clip_norm > 0 || o->settings.clip_global_norm > 0 || o->strategy->workers.wire != STRATA_DTYPE_F32;
}

/* Lengths of all replicas' parts of a variable. */
static int64_t *lengths_of(const application *a, int64_t size) {
    const int n = strata_replica_num_in_sync(a->replica);
    int64_t *lengths = strata_trace_alloc(a->replica->graph, (size_t)n, sizeof *lengths);
    for (int r = 0; lengths && r < n; r++) lengths[r] = cut_at(size, r + 1, n) - cut_at(size, r, n);
    return lengths;
}

static strata_tensor *flat(strata_tensor *x) {
    return strata_reshape(x, STRATA_SHAPE(strata_shape_elements(strata_tensor_shape(x))));
}

/* Sums a gradient over the replicas. With a sharded optimizer, each replica gets only the sum of its own part, unless it needs
 * all of it (needs_all_gradients). */
static strata_tensor *sum_over_replicas(const application *a, strata_tensor *gradient) {
    const int n = strata_replica_num_in_sync(a->replica);
    const int64_t size = strata_shape_elements(strata_tensor_shape(gradient));
    if (n == 1) return gradient;
    if (!is_sharded(a->optimizer) || needs_all_gradients(a->optimizer)) {
        const strata_communication_attrs common = {
            .dtype = STRATA_DTYPE_F32, .shape = strata_tensor_shape(gradient), .takes = true};
        return strata_all_reduce_among(a->replica->graph, gradient,
                                       (strata_all_reduce_attrs){.common = common, .gradients = true});
    }
    const int64_t *lengths = lengths_of(a, size);
    if (!lengths) return gradient;
    return strata_reduce_scatter_parts(a->replica->graph, gradient, STRATA_DTYPE_F32, STRATA_SHAPE(size), (strata_channel){0},
                                       STRATA_REDUCE_SUM, true, lengths, n, strata_replica_id(a->replica));
}

static void clip(const application *a, strata_tensor **sums, strata_variables variables) {
    strata_tensor *square = NULL;
    strata_segments *segments = strata_trace_alloc(a->replica->graph, (size_t)variables.n, sizeof *segments);
    if (!segments) return;
    for (int i = 0; i < variables.n; i++)
        if (variables.items[i]->model) segments[i] = variables.items[i]->model->segments[variables.items[i]->block];
    strata_clip_gradients(&a->optimizer->settings, sums, segments, variables.n, &square);
}

/* Builds the optimizer's step for one variable. gradient: the sum over all replicas. */
static void update(const application *a, strata_distributed_variable *variable, const strata_optimizer_memory *memory,
                   strata_tensor *gradient) {
    const strata_distributed_optimizer *o = a->optimizer;
    strata_graph *graph = a->replica->graph;
    const int id = a->replica->id;
    const int64_t size = strata_shape_elements(variable->copies[id]->shape), begin = memory->begins[id],
                  own = memory->ends[id] - begin;
    strata_tensor *parameters = strata_variable_read(graph, variable->copies[id]);
    const strata_shape shape = strata_tensor_shape(parameters);
    strata_update u = {.parameters = parameters, .gradients = gradient, .step = a->words};
    if (variable->model) u.segments = &variable->model->segments[variable->block];
    for (int s = 0; s < o->kind->n_slots(&o->settings); s++) u.slots[s] = strata_variable_read(graph, memory->slots[s][id]);
    if (!memory->shards) {
        strata_replica_update(a->replica, variable, o->kind->build(&o->settings, &u));
        return;
    }
    const int64_t given = strata_shape_elements(strata_tensor_shape(gradient));
    u.gradients = flat(gradient);
    if (given > own || needs_all_gradients(o)) u.gradients = strata_slice(u.gradients, &begin, &own);
    u.parameters = strata_assign(strata_variable_read(graph, memory->shards[id]), strata_slice(flat(parameters), &begin, &own));
    strata_tensor *updated = o->kind->build(&o->settings, &u);
    strata_replica_keep(a->replica, updated);
    const int64_t *lengths = lengths_of(a, size);
    if (!lengths) return;
    strata_tensor *all = strata_all_gather_parts(updated, (strata_channel){0}, 0, lengths,
                                                 strata_replica_num_in_sync(a->replica), strata_replica_id(a->replica));
    strata_replica_keep(a->replica, strata_assign(parameters, strata_reshape(all, shape)));
}

/* Whether the optimizer can update the variable; if not, the graph records the reason as its error. */
static bool check(const application *a, const strata_distributed_variable *variable) {
    const strata_distributed_optimizer *o = a->optimizer;
    strata_graph *graph = a->replica->graph;
    const strata_model *model = variable->model;
    if (variable->strategy != a->replica->strategy || o->strategy != a->replica->strategy) {
        strata_graph_poison(graph, NULL, STRATA_INVALID,
                            "strata_optimizer_apply: the optimizer and the variables must be of the function's strategy");
        return false;
    }
    if (o->kind->whole_parameters && !model) {
        strata_graph_poison(
            graph, NULL, STRATA_INVALID,
            "strata_optimizer_apply: %s takes norms of a model's parameters; variables of one's own have another "
            "optimizer",
            o->settings.name);
        return false;
    }
    const bool elsewhere =
        model && model->trains && (model->shards.n || model->strategy->updater >= model->strategy->n_replicas);
    if (elsewhere)
        strata_graph_poison(graph, NULL, STRATA_INVALID,
                            "strata_optimizer_apply: the compiled model keeps parameters where functions do not run (%s); make "
                            "it with strata_model_build for a loop of one's own",
                            model->shards.n ? "shards of its optimizer" : "the parameter device");
    return !elsewhere;
}

void strata_optimizer_apply(strata_replica_context *replica, strata_distributed_optimizer *optimizer,
                            strata_tensor *const *gradients, strata_variables variables) {
    if (!strata_need_replica(replica, "strata_optimizer_apply") || !gradients) return;
    application a = {.replica = replica, .optimizer = optimizer};
    strata_tensor **sums = strata_trace_alloc(replica->graph, (size_t)variables.n, sizeof *sums);
    int before = 0;
    if (!sums) return;
    for (int i = 0; i < replica->n_feeds; i++) before += replica->feeds[i].optimizer == optimizer;
    a.words = strata_replica_feed(replica, (strata_feed){.kind = STRATA_FEED_STEP, .optimizer = optimizer, .before = before});
    for (int i = variables.n - 1; i >= 0; i--) { /* the last layers' gradients are computed first */
        if (!gradients[i] || strata_tensor_is_poison(gradients[i]) || !check(&a, variables.items[i])) return;
        sums[i] = sum_over_replicas(&a, gradients[i]);
    }
    clip(&a, sums, variables);
    for (int i = variables.n - 1; i >= 0; i--) {
        const strata_optimizer_memory *memory = memory_of(optimizer, variables.items[i], replica->graph);
        if (!memory) return;
        update(&a, variables.items[i], memory, sums[i]);
    }
    for (int i = 0; i < variables.n; i++)
        if (variables.items[i]->model) strata_model_use_forget(replica, variables.items[i]->model);
}

void strata_optimizer_minimize(strata_replica_context *replica, strata_distributed_optimizer *optimizer, strata_tensor *loss,
                               strata_variables variables) {
    strata_optimizer_apply(replica, optimizer, strata_replica_gradients(replica, loss, variables), variables);
}
