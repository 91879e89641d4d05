/* SPDX-License-Identifier: Apache-2.0
 *
 * The training step of several replicas, divided by the partitioner: the step is built once, for all examples of this worker's
 * replicas, as if there were one device. The mesh has one axis, "data", with a device for each replica of all workers, and for
 * a device that only stores parameters. Inputs are divided along the examples. Parameters and states are copies on every
 * device. So are slots and the epoch's sums, unless one device of each worker makes the update: then they are at its
 * coordinate. The all_reduces that the builder adds to the graph (gradients.c) say where gradients and sums must be complete.
 *
 * The graph has only the examples of this worker, so the parts of other workers are empty in its placements. */
#include <stdlib.h>
#include <string.h>

#include "core/compile/partition.h"
#include "core/model/model.h"
#include "core/op/ops.h"

typedef struct division {
    const strata_model *model;
    strata_mesh mesh;
    /* How the examples are divided; copies on every device; a sum over the devices; where updates are made; where slots and the
     * epoch's sums are. */
    strata_placement examples, whole, partial, update, slots;
} division;

bool strata_model_is_divided(const strata_model *model, strata_program_kind kind) {
    const strata_strategy *strategy = model->strategy;
    const bool several = strata_strategy_num_replicas_in_sync(strategy) > 1 || strategy->n_devices > 1;
    return kind == STRATA_PROGRAM_TRAIN && several && !strategy->rewrite && !model->shards.n && !strategy->trainer &&
           !strategy->by_roles;
}

/* ---- placements ---- */

strata_input_kind strata_model_input_kind(const char *name) {
    static const char *const copied[] = {"step", "rng"}, *const summed[] = {"share", "examples"};
    for (int i = 0; i < 2; i++) {
        if (!strcmp(name, copied[i])) return STRATA_INPUT_COPIED;
        if (!strcmp(name, summed[i])) return STRATA_INPUT_SUMMED;
    }
    return STRATA_INPUT_EXAMPLES;
}

/* Whether every device that computes has a copy of the variable, which the forward pass reads. */
static bool is_copied(const strata_model *model, const strata_variable *variable) {
    const strata_model_replica *own = &model->replicas[strata_strategy_root(model->strategy)];
    for (int k = 0; k < model->parameters.n_blocks; k++)
        if (variable == own->blocks[k].flat) return true;
    return variable == own->state;
}

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const division *v = user;
    if (leaf->op == &strata_op_read)
        return is_copied(v->model, ((const strata_read_attrs *)leaf->attrs)->variable) ? &v->whole : &v->slots;
    const strata_input_kind kind = strata_model_input_kind(((const strata_input_attrs *)leaf->attrs)->name);
    return kind == STRATA_INPUT_COPIED ? &v->whole : kind == STRATA_INPUT_SUMMED ? &v->partial : &v->examples;
}

/* The variable of another replica that has the same place as one of the replica that makes updates. */
static strata_variable *counterpart(const strata_model *model, const strata_variable *own, int replica) {
    const strata_model_replica *from = &model->replicas[strata_strategy_root(model->strategy)], *to = &model->replicas[replica];
    if (own == from->state) return to->state;
    if (own == from->metrics) return to->metrics;
    for (int k = 0; k < model->parameters.n_blocks; k++) {
        if (own == from->blocks[k].flat) return to->blocks[k].flat;
        for (int s = 0; s < STRATA_MAX_OPTIMIZER_SLOTS; s++)
            if (own == from->blocks[k].slots[s]) return to->blocks[k].slots[s];
    }
    return NULL;
}

static strata_variable *variable_of(void *user, strata_variable *whole, int device) {
    const division *v = user;
    return counterpart(v->model, whole, device - v->model->strategy->workers.first_replica);
}

/* ---- the step ---- */

/* The number of examples for which a part is compiled: at least one. */
static int64_t compiled_examples(const strata_program_part *part) {
    return part->n ? part->n : 1;
}

/* The devices of all workers. */
static int n_devices(const strata_strategy *strategy) {
    return strata_strategy_num_replicas_in_sync(strategy) + strategy->n_devices - strategy->n_replicas;
}

/* One device of each worker makes the update, or each device does. If workers have devices of several kinds, their updates may
 * differ, and those of the first worker count. */
static void place_update(division *v) {
    const strata_strategy *strategy = v->model->strategy;
    if (strategy->updater >= 0)
        v->update = strata_placement_at(v->whole, 0, strategy->workers.first_replica + strategy->updater);
    v->slots = v->update;
    v->update.own = strategy->workers.mixed;
    if (strategy->updater < 0) v->slots.own = v->update.own;
}

/* idle: [devices of this worker] whether the device only stores parameters. */
static strata_status divide(const strata_model *model, strata_step *step, const int64_t *lengths, const bool *idle,
                            strata_partition **out_partition, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    const strata_dim_split split = {.n_axes = 1, .axes = {0}, .lengths = lengths};
    division v = {.model = model,
                  .mesh = {.n_axes = 1, .axes = {{"data", n_devices(strategy)}}},
                  .examples = {.dims = {split}},
                  .partial = {.partial = 1}};
    place_update(&v);
    strata_tensor *outputs[2] = {step->output};
    strata_placement placements[2] = {strategy->updater < 0 ? v.whole : v.slots, v.examples};
    int n = step->output != NULL;
    if (step->scores) {
        placements[n] = v.examples;
        outputs[n++] = step->scores;
    }
    const strata_partition_options opts = {.mesh = &v.mesh,
                                           .first = strategy->workers.first_replica,
                                           .n = strategy->n_devices,
                                           .own_statistics = true,
                                           .place = place,
                                           .variable = variable_of,
                                           .update = &v.update,
                                           .each_worker_updates = strata_strategy_has_workers(strategy),
                                           .idle = idle,
                                           .user = &v,
                                           .outputs = outputs,
                                           .placements = placements,
                                           .n_outputs = n,
                                           .updates = step->updates,
                                           .n_updates = step->n_updates};
    return strata_partition_create(&opts, out_partition, err);
}

/* Whether the only exchanges are those that the builder asked for, and those that send new values of parameters and states.
 * Others come from layers that compute something of all examples, such as their mean. Each replica computes it of its own
 * examples, as in tf.distribute, so such a step is built by roles. */
static bool has_only_sums(const strata_partition *partition) {
    for (int i = 0; i < partition->n_exchanges; i++) {
        const strata_partition_exchange *x = &partition->exchanges[i];
        const bool sends = x->reader == x->value && x->reader && x->reader->op->flags & STRATA_OP_UPDATE;
        if (!sends && (!x->reader || x->reader->op != &strata_op_all_reduce)) return false;
    }
    return true;
}

/* Layers that exchange values themselves are built for one replica, and so are the scores of several metrics, which follow each
 * other. */
static bool can_divide(const strata_step *step, int64_t batch) {
    return !step->exchanges_inside && (!step->scores || strata_tensor_shape(step->scores).dims[0] == batch);
}

strata_status strata_model_divide(strata_model *model, const strata_model_program *program, strata_step *step,
                                  strata_partition **out_partition, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    strata_step_role role = {.replica = strata_strategy_root(model->strategy),
                             .form = program->form,
                             .updates = true,
                             .exchanges = true,
                             .has_replicas = strata_strategy_num_replicas_in_sync(model->strategy) > 1,
                             .whole = true};
    *out_partition = NULL;
    const size_t n = (size_t)n_devices(model->strategy);
    int64_t *lengths = calloc(n, sizeof *lengths);
    bool *idle = calloc(n, sizeof *idle);
    if (!lengths || !idle) {
        free(lengths);
        free(idle);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    }
    for (int r = 0; r < program->n_parts; r++) {
        idle[r] = r >= model->strategy->n_replicas;
        if (!idle[r]) role.batch += lengths[workers->first_replica + r] = compiled_examples(&program->parts[r]);
    }
    strata_status status = strata_step_build(step, model, program->kind, role, NULL, err);
    if (!status && can_divide(step, role.batch)) {
        status = divide(model, step, lengths, idle, out_partition, err);
        if (status) strata_graph_destroy(step->graph);
        if (!status && !has_only_sums(*out_partition)) {
            strata_partition_destroy(*out_partition);
            *out_partition = NULL;
        }
    }
    free(lengths);
    free(idle);
    return status;
}
