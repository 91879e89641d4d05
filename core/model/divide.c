/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of several replicas, divided by the partitioner: a step is built once, for all examples of this worker's replicas,
 * as if there were one device. The mesh is that of the strategy (model_parallel), or it has one axis, "data", with a device for
 * each replica of all workers, and for a device that only stores parameters. Inputs are divided along the examples. Parameters
 * and states are copies on every device, unless the model is in parts (parts.h). So are slots and the epoch's sums, unless one
 * device of each worker makes the update: then they are at its coordinate. With shards, slots are divided, and the partitioner
 * divides the update. What batches accumulate is a partial sum on each device. If replicas have parameters of their own
 * (strata_strategy.average), all variables are each device's own. A worker with servers has a mesh of two devices: it has all
 * examples, and its gradients are at the servers. The all_reduces that the builder adds to the graph (step.c) say where
 * gradients and sums must be complete.
 *
 * The graph has only the examples of this worker, so the parts of other workers are empty in its placements. */
#include "core/compile/partition.h"
#include "core/graph/variable.h"
#include "core/model/shards.h"
#include "core/op/ops.h"

/* The mesh of a worker of parameter_server: the worker, which computes, and the servers, where its gradients are placed. */
enum { N_WITH_SERVERS = 2, SERVERS = 1 };

typedef struct division {
    const strata_model *model;
    strata_mesh mesh;
    /* How the examples are divided; copies on every device; a sum over the devices that have different examples; a sum over all
     * devices among which batches are accumulated; where updates are made; where the epoch's sums are; a sum over all. */
    strata_placement examples, whole, summed, held, update, sums, all;
    /* How what exact metrics need of the examples is divided: (n, examples). */
    strata_placement scores;
    /* There is one share of the examples, and the devices compute from examples of their own. */
    bool apart;
    /* Each device trains with variables of its own, whose placement this is. */
    bool has_own;
    strata_placement own;
    /* Each device also has numbers of its own: how many examples and batches it accumulated. */
    bool own_numbers;
    /* [parameters.n_blocks] How each block is placed, its slots, and its accumulated gradients. */
    struct placed_block {
        strata_placement flat, slots, held;
    } * blocks;
    const strata_step *step;
} division;

/* Whether gradients are placed at servers: small ones are outputs, which the worker pushes in one message. */
static bool gives_away(const strata_model *model) {
    struct strata_gradient_bucket buckets[STRATA_MOST_BUCKETS];
    return model->strategy->trainer->take && strata_model_list_buckets(model, buckets) > 0;
}

static bool is_divided(const strata_model *model, strata_program_kind kind) {
    const strata_strategy *strategy = model->strategy;
    const bool several = strata_strategy_num_replicas_in_sync(strategy) > 1 || strategy->n_devices > 1 ||
                         strata_strategy_mesh_has_workers(strategy);
    if (strategy->trainer) return kind == STRATA_PROGRAM_GRADIENTS && gives_away(model);
    return several && kind != STRATA_PROGRAM_GRADIENTS && kind != STRATA_PROGRAM_AVERAGE;
}

/* ---- placements ---- */

/* How an input of the graph of all replicas is placed: each replica has the rows of its examples, a copy, or a number; the
 * replicas' numbers add up to the input's value. */
typedef enum input_kind { INPUT_EXAMPLES = 0, INPUT_COPIED, INPUT_SUMMED } input_kind;

static input_kind kind_of(const char *name) {
    static const char *const copied[] = {"step", "rng"}, *const summed[] = {"share", "examples", "state_share"};
    for (int i = 0; i < 2; i++)
        if (!strcmp(name, copied[i])) return INPUT_COPIED;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, summed[i])) return INPUT_SUMMED;
    return INPUT_EXAMPLES;
}

/* The variable of a replica that has the same place as one that stands for all; if `placement` is not NULL, also where the
 * variable is. NULL: the replica has no such variable. */
static strata_variable *find(const division *v, const strata_variable *whole, const strata_model_replica *to,
                             const strata_placement **placement) {
    const strata_model_replica *from = &v->model->whole;
    const strata_placement *ignored;
    if (!placement) placement = &ignored;
    *placement = &v->whole;
    if (whole == from->state) return to->state;
    *placement = &v->sums;
    if (whole == from->metrics) return to->metrics;
    *placement = &v->held;
    if (whole == from->accumulated_sums) return to->accumulated_sums;
    if (whole == from->accumulated_states) return to->accumulated_states;
    for (int k = 0; k < v->model->parameters.n_blocks; k++) {
        const strata_model_block *own = &from->blocks[k], *other = &to->blocks[k];
        *placement = &v->blocks[k].flat;
        if (whole == own->flat) return other->flat;
        *placement = &v->blocks[k].held;
        if (whole == own->accumulated) return other->accumulated;
        *placement = &v->blocks[k].slots;
        for (int s = 0; s < STRATA_MAX_OPTIMIZER_SLOTS; s++)
            if (whole == own->slots[s]) return other->slots[s];
    }
    return NULL;
}

static const strata_placement *place_variable(const division *v, const strata_variable *variable) {
    const strata_placement *placement;
    (void)find(v, variable, &v->model->whole, &placement);
    return placement;
}

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const division *v = user;
    if (leaf->op == &strata_op_read && v->has_own) return &v->own;
    if (leaf->op == &strata_op_read) return place_variable(v, ((const strata_read_attrs *)leaf->attrs)->variable);
    const input_kind kind = kind_of(((const strata_input_attrs *)leaf->attrs)->name);
    return kind == INPUT_EXAMPLES                                                 ? &v->examples
           : v->own_numbers || ((v->has_own || v->apart) && kind != INPUT_COPIED) ? &v->own
           : kind == INPUT_COPIED                                                 ? &v->whole
                                                                                  : &v->summed;
}

static strata_variable *variable_of(void *user, strata_variable *whole, int device) {
    const division *v = user;
    return find(v, whole, &v->model->replicas[device - v->model->strategy->workers.first_replica], NULL);
}

/* With shards: the replica's shard of the parameters. */
static strata_variable *shard_of(void *user, strata_variable *whole, int device) {
    const division *v = user;
    const strata_model *model = v->model;
    for (int k = 0; k < model->parameters.n_blocks; k++)
        if (whole == model->whole.blocks[k].flat)
            return model->replicas[device - model->strategy->workers.first_replica].blocks[k].shard;
    return NULL;
}

/* lengths[r]: how many of the elements [begin, end) of the flat range are in shard r. */
static void cut(const strata_shards *shards, int64_t begin, int64_t end, int64_t *lengths) {
    for (int r = 0; r < shards->n; r++) {
        const int64_t first = begin > shards->begins[r] ? begin : shards->begins[r];
        const int64_t last = end < shards->begins[r + 1] ? end : shards->begins[r + 1];
        lengths[r] = last > first ? last - first : 0;
    }
}

/* Sets how the slots of each block are divided into shards, in memory of the step's graph. */
static strata_status place_shards(division *v, strata_error *err) {
    const strata_shards *shards = &v->model->shards;
    const int n = v->model->parameters.n_blocks;
    if (!shards->n) return STRATA_OK;
    int64_t *lengths = strata_graph_alloc(v->step->graph, (size_t)n * (size_t)shards->n * sizeof *lengths);
    if (!lengths) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for shards");
    for (int k = 0; k < n; k++, lengths += shards->n) {
        const strata_parameter_block *at = &v->model->parameters.blocks[k];
        cut(shards, at->begin, at->end, lengths);
        v->blocks[k].slots = (strata_placement){.dims = {{.n_axes = 1, .axes = {0}, .lengths = lengths}}};
    }
    return STRATA_OK;
}

/* The axes that the placement mentions. */
static unsigned axes_of(const strata_placement *placement) {
    unsigned axes = placement->at;
    for (int d = 0; d < STRATA_MAX_RANK; d++)
        for (int k = 0; k < placement->dims[d].n_axes; k++) axes |= 1u << placement->dims[d].axes[k];
    return axes;
}

static strata_status place_blocks(division *v, strata_error *err) {
    const int n = v->model->parameters.n_blocks;
    v->blocks = strata_graph_alloc(v->step->graph, (size_t)n * sizeof *v->blocks);
    if (!v->blocks) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %d blocks", n);
    for (int k = 0; k < n; k++) {
        struct placed_block *block = &v->blocks[k];
        block->slots = v->sums;
        block->held = v->summed;
        if (!v->model->placements) continue;
        const strata_zero_placements *own = &v->model->placements[k];
        block->flat = own->parameter;
        block->slots = own->slot;
        block->held = own->gradient;
        block->slots.own = v->sums.own & ~axes_of(&own->slot);
        block->held.partial = v->summed.partial & ~axes_of(&own->gradient);
    }
    return place_shards(v, err);
}

/* ---- the step ---- */

/* The number of examples for which a part is compiled: at least one, unless the program reads no batch. */
static int64_t compiled_examples(const strata_model_program *program, int part) {
    const int64_t n = program->parts[part].n;
    return n || program->kind == STRATA_PROGRAM_APPLY ? n : 1;
}

/* The devices of all workers. */
static strata_mesh mesh_of(const strata_strategy *strategy) {
    const int n = strata_strategy_num_replicas_in_sync(strategy) + strategy->n_devices - strategy->n_replicas;
    if (strata_strategy_has_mesh(strategy)) return strategy->mesh;
    return (strata_mesh){.n_axes = 1, .axes = {{"data", strategy->trainer ? N_WITH_SERVERS : n}}};
}

/* Those of these axes that have several coordinates. */
static unsigned several(const strata_mesh *mesh, unsigned axes) {
    unsigned larger = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        if (mesh->axes[a].size > 1) larger |= 1u << a;
    return axes & larger;
}

/* One device of each worker makes the update, or each device does. If workers have devices of several kinds, their updates may
 * differ, and those of the first worker count. */
static void place_update(division *v) {
    const strata_strategy *strategy = v->model->strategy;
    v->update = strategy->update;
    if (v->update.at) v->update.coordinates[0] += strategy->workers.first_replica;
    if (strategy->trainer) v->update = strata_placement_at(v->whole, 0, SERVERS);
    v->sums = v->update;
    v->update.own = strategy->workers.mixed;
    if (strata_strategy_has_mesh(strategy)) v->update.own = strategy->update.own;
    if (!strategy->update.at) v->sums.own = v->update.own;
}

/* Predictions are those of the device's examples. The sums of an evaluation are added up by the host. */
static strata_placement output_of(const division *v, strata_program_kind kind) {
    const bool own = v->has_own || (v->apart && kind == STRATA_PROGRAM_EVALUATE);
    const strata_placement apart = {.own = v->own.own, .partial = v->all.partial & ~v->own.own};
    return own                               ? apart
           : kind == STRATA_PROGRAM_PREDICT  ? v->examples
           : kind == STRATA_PROGRAM_EVALUATE ? v->all
           : v->model->strategy->update.at   ? v->sums
                                             : v->whole;
}

/* How the outputs of a step are placed: its output, and the scores of its examples; or its sums, the gradients of its block,
 * and the changes of its states. */
static void place_outputs(const division *v, strata_program_kind kind, strata_placement placements[3]) {
    const bool gradients = kind == STRATA_PROGRAM_GRADIENTS;
    int n = 0;
    if (gradients || v->step->outputs[0] != v->step->scores) placements[n++] = gradients ? v->summed : output_of(v, kind);
    placements[n++] = gradients ? v->update : v->scores;
    placements[n] = v->own;
}

/* Divides the step among the program's parts [first, first + n). */
static strata_status divide(const division *given, const strata_model_program *program, int first, int n,
                            strata_partition **out_partition, strata_error *err) {
    division v = *given;
    const strata_model *model = v.model;
    const strata_strategy *strategy = model->strategy;
    const strata_step *step = v.step;
    bool *idle = strata_graph_alloc(step->graph, (size_t)n);
    if (!idle) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    for (int r = 0; r < n; r++) idle[r] = first + r >= strategy->n_replicas;
    const bool no_batch = strata_program_is_without_batch(program->kind);
    place_update(&v);
    STRATA_TRY(place_blocks(&v, err));
    strata_placement placements[3];
    place_outputs(&v, program->kind, placements);
    const strata_partition_options opts = {
        .mesh = &v.mesh,
        .first = strategy->workers.first_replica + first,
        .n = n,
        .own_statistics = true,
        .own_sums = v.has_own,
        .counts = no_batch ? NULL : program->contributes + first,
        .place = place,
        .variable = variable_of,
        .part_variable = model->shards.n || strategy->zero ? shard_of : NULL,
        .update = v.has_own ? NULL : &v.update,
        .each_worker_updates = strata_strategy_has_workers(strategy) && !strata_strategy_has_mesh(strategy),
        .idle = idle,
        .user = &v,
        .whole_sums = strata_step_needs_all_gradients(model),
        .outputs = step->outputs,
        .placements = placements,
        .n_outputs = step->n_outputs,
        .updates = step->updates,
        .n_updates = step->n_updates};
    return strata_partition_create(&opts, out_partition, err);
}

/* Sets how values are placed. lengths: those of the shares of the examples. apart: as for `build`. */
static void place_values(division *v, const int64_t *lengths, bool apart) {
    const strata_placement own = {.own = several(&v->mesh, 1u << STRATA_DATA_AXIS)};
    const strata_dim_split split = {.n_axes = own.own ? 1 : 0, .axes = {STRATA_DATA_AXIS}, .lengths = lengths};
    v->own = own;
    v->examples = apart ? own : (strata_placement){.dims = {split}};
    v->scores = apart ? own : (strata_placement){.dims = {{0}, split}};
    v->summed = (strata_placement){.partial = own.own};
    v->held = (strata_placement){.partial = several(&v->mesh, 1u << STRATA_DATA_AXIS | 1u << STRATA_STAGE_AXIS)};
    v->all = (strata_placement){.partial = several(&v->mesh, ~0u >> (32 - v->mesh.n_axes))};
}

/* Builds the step of the parts [first, first + n) and divides it among them. apart: they have one share of the examples, which
 * are its own; else the examples of all shares are divided. */
static strata_status build(strata_model *model, const strata_model_program *program, int first, int n, bool apart,
                           strata_layer_cost *layers, strata_step *step, strata_partition **out_partition, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    const bool has_own = strata_strategy_has_own(strategy);
    strata_step_options opts = {.replica = STRATA_WHOLE_MODEL,
                                .form = program->form,
                                .divided = true,
                                .has_replicas = !strategy->trainer && strata_strategy_num_replicas_in_sync(strategy) > 1,
                                .layers = layers};
    STRATA_FREED int64_t *lengths = NULL;
    division v = {.model = model,
                  .mesh = mesh_of(strategy),
                  .apart = apart,
                  .has_own = has_own && !strata_program_computes_only(program->kind),
                  .own_numbers = has_own && program->kind == STRATA_PROGRAM_APPLY,
                  .step = step};
    STRATA_TRY(STRATA_NEW(lengths, strata_mesh_n_devices(&v.mesh), err, "model: no host memory for a program"));
    for (int r = first; r < first + n; r++) {
        const bool computes = r < strategy->n_replicas;
        const int share = strata_strategy_global_share(strategy, r);
        if ((computes || apart) && (r == first || strata_strategy_is_first_of_share(strategy, r)))
            opts.batch += lengths[share] = compiled_examples(program, r);
    }
    STRATA_TRY(strata_step_build(step, model, program->kind, &opts, err));
    /* Placements of the partition point to the lengths. */
    const size_t bytes = (size_t)strata_mesh_n_devices(&v.mesh) * sizeof *lengths;
    int64_t *kept = strata_graph_alloc(step->graph, bytes);
    if (kept) place_values(&v, memcpy(kept, lengths, bytes), apart);
    const strata_status status = kept ? divide(&v, program, first, n, out_partition, err)
                                      : strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    if (status) strata_graph_destroy(step->graph);
    return status;
}

strata_status strata_model_partition(strata_model *model, const strata_model_program *program, strata_step *out_step,
                                     strata_partition **out_partition, strata_error *err) {
    return build(model, program, 0, program->n_parts, false, NULL, out_step, out_partition, err);
}

/* Whether the node wants the sum of the devices' values: an all_reduce, or an update of a sum that is accumulated in parts. */
static bool completes(const strata_tensor *reader) {
    return reader->op == &strata_op_all_reduce || reader->op->flags & STRATA_OP_UPDATE;
}

/* Whether the step exchanges values of examples other than by its all_reduces: layers compute something of all examples, such
 * as their mean. Exchanges of an update's values begin at what an all_reduce has made complete. */
static bool mixes_examples(const strata_step *step, const strata_partition *partition) {
    const strata_graph *graph = step->graph;
    bool *of_examples = strata_graph_alloc(step->graph, (size_t)graph->n_nodes), mixes = false;
    for (int id = 0; id < graph->n_nodes && of_examples; id++) {
        const strata_tensor *node = graph->nodes[id];
        if (node->op == &strata_op_input)
            of_examples[id] = kind_of(((const strata_input_attrs *)node->attrs)->name) == INPUT_EXAMPLES;
        for (int i = 0; i < node->n_inputs && node->op != &strata_op_all_reduce; i++)
            of_examples[id] |= of_examples[node->inputs[i]->id];
    }
    for (int i = 0; i < partition->n_exchanges && of_examples; i++) {
        const strata_partition_exchange *x = &partition->exchanges[i];
        mixes |= of_examples[x->value->id] && x->reader && !completes(x->reader) && x->axes >> STRATA_DATA_AXIS & 1;
    }
    return mixes;
}

/* Makes a step of the graph of a part, which keeps the graph of the whole step alive. A device without examples may have
 * nothing to compute, but a program needs an output. */
static strata_status take_part(const strata_step *whole, strata_device_part *part, strata_step *out, strata_error *err) {
    const int n = whole->n_outputs;
    *out = (strata_step){.graph = part->graph, .layout = whole->layout, .n_updates = part->n_updates};
    part->graph = NULL;
    out->updates = strata_graph_alloc(out->graph, ((size_t)part->n_updates + 1) * sizeof(*out->updates));
    out->outputs = strata_graph_alloc(out->graph, ((size_t)n + 1) * sizeof(*out->outputs));
    if (!out->updates || !out->outputs) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    if (part->n_updates) memcpy(out->updates, part->updates, (size_t)part->n_updates * sizeof(*out->updates));
    for (int i = 0; i < n; i++) {
        if (!part->outputs[i]) continue;
        out->outputs[out->n_outputs++] = part->outputs[i];
        if (whole->outputs[i] == whole->scores) out->scores = part->outputs[i];
    }
    if (!out->n_outputs && !out->n_updates) out->outputs[out->n_outputs++] = strata_scalar(out->graph, STRATA_DTYPE_F32, 0);
    return strata_graph_check(out->graph, err);
}

/* Builds the steps of the parts [first, first + n). *out_apart: it was not done, since each part needs a step of its own. */
static strata_status add(strata_model *model, const strata_model_program *program, int first, int n, bool apart,
                         strata_layer_cost *layers, bool *out_apart, strata_error *err) {
    strata_step whole;
    STRATA_OWNED(strata_graph) *graph = NULL;
    STRATA_OWNED(strata_partition) *partition = NULL;
    STRATA_TRY(build(model, program, first, n, apart, layers, &whole, &partition, err));
    graph = whole.graph;
    *out_apart = !apart && mixes_examples(&whole, partition);
    STRATA_TRY(strata_graph_check(graph, err)); /* whether there was memory to find it out */
    for (int r = 0; r < n && !*out_apart; r++)
        STRATA_TRY(take_part(&whole, &partition->parts[r], &program->steps[first + r], err));
    return STRATA_OK;
}

/* Builds the step of one part, whose device exchanges nothing, or builds its exchanges itself (strata_strategy.average). */
static strata_status build_alone(strata_model *model, const strata_model_program *program, int part, strata_layer_cost *layers,
                                 strata_step *out_step, strata_error *err) {
    const bool no_batch = strata_program_is_without_batch(program->kind);
    const strata_step_options opts = {
        .replica = part, .batch = no_batch ? 0 : compiled_examples(program, part), .form = program->form, .layers = layers};
    return strata_step_build(out_step, model, program->kind, &opts, err);
}

strata_status strata_model_divide(strata_model *model, strata_model_program *program, strata_layer_cost *layers,
                                  strata_error *err) {
    const bool several = is_divided(model, program->kind);
    bool apart = true, again;
    if (several) STRATA_TRY(add(model, program, 0, program->n_parts, false, layers, &apart, err));
    /* The parts that have the same examples. */
    const bool has_mesh = strata_strategy_has_mesh(model->strategy);
    const int n_alike = has_mesh ? program->n_parts / strata_strategy_n_shares(model->strategy) : 1;
    for (int r = 0; r < program->n_parts && apart; r += n_alike)
        STRATA_TRY(several ? add(model, program, r, n_alike, true, layers, &again, err)
                           : build_alone(model, program, r, layers, &program->steps[r], err));
    program->divided = !apart;
    return STRATA_OK;
}
