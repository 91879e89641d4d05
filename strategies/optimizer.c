/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers for custom loops: they sum gradients over replicas and make the same update as fit, by the same kernels. */
#include "core/graph/graph.h"
#include "core/model/shards.h"
#include "core/op/communication.h"
#include "core/run/device.h"
#include "strategies/context.h"

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
    STRATA_TRY(strata_shards_decide(strategy, strata_optimizer_n_slots(made.kind, &made.settings), false, &made.sharded, err));
    strata_distributed_optimizer *optimizer = malloc(sizeof *optimizer);
    if (!optimizer) return strata_fail(err, STRATA_OUT_OF_MEMORY, "optimizer: no host memory");
    *optimizer = made;
    strata_strategy_own(strategy, &optimizer->owned, destroy_owned, optimizer);
    *out_optimizer = optimizer;
    return STRATA_OK;
}

static void destroy_memory(strata_optimizer_memory *memory, int n) {
    for (int r = 0; r < n; r++) {
        for (int s = 0; s < STRATA_MAX_OPTIMIZER_SLOTS; s++) strata_variable_destroy(memory->parts[r].slots[s]);
        strata_variable_destroy(memory->parts[r].shard);
        strata_shards_free_segments(&memory->parts[r].segments);
    }
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

/* The first element of the part of replica r of all workers' replicas. */
static int64_t cut_at(const strata_distributed_optimizer *o, const strata_distributed_variable *variable, int r) {
    const strata_segments *segments = variable->model ? &variable->model->segments[variable->block] : NULL;
    return strata_shards_cut_at(strata_shape_elements(variable->whole->shape), r,
                                strata_strategy_num_replicas_in_sync(o->strategy), o->kind->whole_parameters ? segments : NULL);
}

/* Under a mesh: the slots of a model's block are placed as fit places them (core/model/zero.h); those of another variable are
 * copies. */
static strata_status fill_mesh(const strata_distributed_optimizer *o, strata_optimizer_memory *memory, strata_error *err) {
    const strata_distributed_variable *variable = memory->variable;
    const strata_mesh *mesh = &o->strategy->mesh;
    const strata_shape whole = variable->whole->shape;
    strata_zero_placements own = {.parameter = {.partial = 0}};
    if (variable->model) own = variable->model->placements[variable->block];
    memory->in_parts = !strata_placement_equal(mesh, whole.rank, &own.parameter, &own.slot);
    memory->placement = own.slot;
    for (int s = 0; s <= STRATA_MAX_OPTIMIZER_SLOTS; s++)
        memory->whole[s] = (strata_variable){.name = (char *)"optimizer slot", .dtype = STRATA_DTYPE_F32, .shape = whole};
    for (int d = 0; d < o->strategy->n_replicas; d++) {
        struct strata_optimizer_part *part = &memory->parts[d];
        strata_device *device = o->strategy->devices[d];
        const int id = o->strategy->workers.first_replica + d;
        const strata_shape shape = strata_placement_part(mesh, &own.slot, whole, id, NULL);
        if (!strata_placement_has(mesh, &own.slot, id)) continue;
        if (memory->in_parts)
            STRATA_TRY(strata_variable_create(device, "parameter shard", STRATA_DTYPE_F32, shape, &part->shard, err));
        for (int s = 0; s < strata_optimizer_n_slots(o->kind, &o->settings); s++)
            STRATA_TRY(strata_optimizer_make_slot(o->kind, &o->settings, s, device, shape, &part->slots[s], err));
    }
    return STRATA_OK;
}

static strata_status fill_memory(const strata_distributed_optimizer *o, strata_optimizer_memory *memory, strata_error *err) {
    const strata_distributed_variable *variable = memory->variable;
    const strata_model *model = variable->model;
    for (int r = 0; r < o->strategy->n_replicas; r++) {
        const int id = o->strategy->workers.first_replica + r;
        struct strata_optimizer_part *part = &memory->parts[r];
        strata_device *device = o->strategy->devices[r];
        strata_shape shape = variable->copies[r]->shape;
        part->end = strata_shape_elements(shape);
        if (o->sharded) {
            part->begin = cut_at(o, variable, id);
            part->end = cut_at(o, variable, id + 1);
            const int64_t first = model ? model->parameters.blocks[variable->block].begin : 0;
            shape = STRATA_SHAPE(part->end - part->begin);
            STRATA_TRY(strata_variable_create(device, "parameter shard", STRATA_DTYPE_F32, shape, &part->shard, err));
            if (model) STRATA_TRY(strata_shards_segments(model, first + part->begin, first + part->end, &part->segments, err));
        }
        for (int s = 0; s < strata_optimizer_n_slots(o->kind, &o->settings); s++)
            STRATA_TRY(strata_optimizer_make_slot(o->kind, &o->settings, s, device, shape, &part->slots[s], err));
    }
    return STRATA_OK;
}

static strata_optimizer_memory *memory_of(strata_distributed_optimizer *o, const strata_distributed_variable *variable,
                                          strata_graph *graph) {
    for (strata_optimizer_memory *m = o->memories; m; m = m->next)
        if (m->number == variable->number) return m;
    strata_error err = {0};
    const int n = o->strategy->n_replicas;
    strata_optimizer_memory *memory = calloc(1, sizeof *memory + (size_t)n * sizeof *memory->parts);
    if (!memory) {
        strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "optimizer: no host memory");
        return NULL;
    }
    memory->variable = variable;
    memory->number = variable->number;
    const strata_status status = (strata_strategy_has_mesh(o->strategy) ? fill_mesh : fill_memory)(o, memory, &err);
    if (status) {
        destroy_memory(memory, n);
        strata_graph_poison(graph, NULL, status, "%s", err.message);
        return NULL;
    }
    memory->next = o->memories;
    return o->memories = memory;
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
    return strata_optimizer_takes_norms(&o->settings) || o->strategy->workers.wire != STRATA_DTYPE_F32;
}

/* Lengths of all replicas' parts of a variable. */
static int64_t *lengths_of(const application *a, const strata_distributed_variable *variable) {
    const int n = strata_replica_num_in_sync(a->replica);
    int64_t *lengths = strata_graph_alloc(a->replica->graph, (size_t)n * sizeof *lengths);
    for (int r = 0; lengths && r < n; r++)
        lengths[r] = cut_at(a->optimizer, variable, r + 1) - cut_at(a->optimizer, variable, r);
    return lengths;
}

static strata_tensor *flat(strata_tensor *x) {
    return strata_reshape(x, STRATA_SHAPE(strata_shape_elements(strata_tensor_shape(x))));
}

/* Sums a gradient over the replicas. With a sharded optimizer, each replica gets only the sum of its own part, unless it needs
 * all of it (needs_all_gradients). */
static strata_tensor *sum_over_replicas(const application *a, const strata_distributed_variable *variable,
                                        strata_tensor *gradient) {
    const int n = strata_replica_num_in_sync(a->replica);
    const int64_t size = strata_shape_elements(strata_tensor_shape(gradient));
    if (n == 1 && !strata_strategy_has_mesh(a->replica->strategy)) return gradient;
    if (!a->optimizer->sharded || needs_all_gradients(a->optimizer)) {
        const strata_communication_attrs common = {
            .dtype = STRATA_DTYPE_F32, .shape = strata_tensor_shape(gradient), .takes = true};
        return strata_all_reduce_among(a->replica->graph, gradient,
                                       (strata_all_reduce_attrs){.common = common, .gradients = true});
    }
    const int64_t *lengths = lengths_of(a, variable);
    if (!lengths) return gradient;
    return strata_reduce_scatter_parts(a->replica->graph, gradient, STRATA_DTYPE_F32, STRATA_SHAPE(size), (strata_team){0},
                                       STRATA_REDUCE_SUM, true, lengths, n, strata_replica_id(a->replica));
}

static void clip(const application *a, strata_tensor **sums, strata_variables variables) {
    strata_tensor *square = NULL;
    strata_segments *segments = strata_graph_alloc(a->replica->graph, (size_t)variables.n * sizeof *segments);
    if (!segments) return;
    for (int i = 0; i < variables.n; i++)
        if (variables.items[i]->model) segments[i] = variables.items[i]->model->segments[variables.items[i]->block];
    strata_clip_gradients(&a->optimizer->settings, sums, segments, variables.n, &square);
}

/* Builds the optimizer's step for one variable. gradient: the sum over all replicas. */
static void update(const application *a, strata_distributed_variable *variable, strata_optimizer_memory *memory,
                   strata_tensor *gradient) {
    const strata_distributed_optimizer *o = a->optimizer;
    strata_graph *graph = a->replica->graph;
    const struct strata_optimizer_part *part = &memory->parts[a->replica->id];
    const bool in_mesh = strata_strategy_has_mesh(o->strategy), in_parts = in_mesh ? memory->in_parts : o->sharded;
    const int64_t begin = part->begin, own = part->end - begin;
    strata_tensor *parameters = strata_replica_read(a->replica, variable);
    const strata_shape shape = strata_tensor_shape(parameters);
    strata_update u = {.parameters = parameters, .gradients = gradient, .step = a->words};
    if (variable->model) u.segments = o->sharded ? &part->segments : &variable->model->segments[variable->block];
    for (int s = 0; s < strata_optimizer_n_slots(o->kind, &o->settings); s++)
        u.slots[s] = strata_variable_read(graph, in_mesh ? &memory->whole[s] : part->slots[s]);
    if (!in_parts) {
        strata_replica_update(a->replica, variable, o->kind->build(&o->settings, &u));
        return;
    }
    if (in_mesh) {
        u.parameters = strata_assign(strata_variable_read(graph, &memory->whole[STRATA_MAX_OPTIMIZER_SLOTS]), parameters);
        strata_tensor *parts = o->kind->build(&o->settings, &u);
        strata_replica_keep(a->replica, parts);
        strata_replica_keep(a->replica, strata_assign(parameters, parts));
        return;
    }
    const int64_t given = strata_shape_elements(strata_tensor_shape(gradient));
    u.gradients = flat(gradient);
    if (given > own || needs_all_gradients(o)) u.gradients = strata_slice(u.gradients, &begin, &own);
    u.parameters = strata_assign(strata_variable_read(graph, part->shard), strata_slice(flat(parameters), &begin, &own));
    strata_tensor *updated = o->kind->build(&o->settings, &u);
    strata_replica_keep(a->replica, updated);
    const int64_t *lengths = lengths_of(a, variable);
    if (!lengths) return;
    strata_tensor *all = strata_all_gather_parts(updated, (strata_team){0}, 0, lengths, strata_replica_num_in_sync(a->replica),
                                                 strata_replica_id(a->replica));
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
        model && model->trains && (model->shards.n || strata_strategy_root(model->strategy) >= model->strategy->n_replicas);
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
    strata_tensor **sums = strata_graph_alloc(replica->graph, (size_t)variables.n * sizeof *sums);
    int before = 0;
    if (!sums) return;
    for (int i = 0; i < replica->n_feeds; i++) before += replica->feeds[i].optimizer == optimizer;
    a.words = strata_replica_feed(replica, (strata_feed){.kind = STRATA_FEED_STEP, .optimizer = optimizer, .before = before});
    for (int i = variables.n - 1; i >= 0; i--) { /* the last layers' gradients are computed first */
        if (!gradients[i] || strata_tensor_is_poison(gradients[i]) || !check(&a, variables.items[i])) return;
        sums[i] = sum_over_replicas(&a, variables.items[i], gradients[i]);
    }
    clip(&a, sums, variables);
    for (int i = variables.n - 1; i >= 0; i--) {
        strata_optimizer_memory *memory = memory_of(optimizer, variables.items[i], replica->graph);
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
