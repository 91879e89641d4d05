/* SPDX-License-Identifier: Apache-2.0
 *
 * The executables of a model's steps: one group of replicas for each kind of program and batch size; and the memory that they
 * would need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/partition.h"
#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/op/ops.h"
#include "core/run/executable.h"

/* The role of a device in a program for a batch of this worker's replicas. A replica without examples runs the program for one
 * example, whose results are ignored. */
static strata_step_role role_of(const strata_model *model, strata_program_kind kind, int replica, int64_t batch,
                                strata_batch_form form) {
    const strata_strategy *strategy = model->strategy;
    strata_step_role role = {.replica = replica, .form = form};
    if (replica < strategy->n_replicas && !strata_program_is_without_batch(kind)) {
        int64_t first;
        strata_strategy_local_share(strategy, batch, replica, &first, &role.batch);
        role.idle = !role.batch;
        if (role.idle) role.batch = 1;
    }
    role.sends = kind == STRATA_PROGRAM_GRADIENTS && strategy->sink;
    if (kind == STRATA_PROGRAM_TRAIN || kind == STRATA_PROGRAM_ACCUMULATE)
        role.has_replicas = strata_strategy_num_replicas_in_sync(strategy) > 1;
    if (kind != STRATA_PROGRAM_TRAIN && !strata_program_is_without_batch(kind)) return role;
    role.updates = strata_strategy_updates(strategy, replica);
    role.exchanges = kind == STRATA_PROGRAM_AVERAGE ||
                     (!strata_strategy_has_own(strategy) && (strategy->n_devices > 1 || strata_strategy_has_workers(strategy)));
    return role;
}

/* How many devices run a program of this kind. A device that only stores parameters takes part only in updates. */
static int n_parts(const strata_model *model, strata_program_kind kind) {
    const bool updates = kind == STRATA_PROGRAM_TRAIN || strata_program_is_without_batch(kind);
    return updates ? model->strategy->n_devices : model->strategy->n_replicas;
}

strata_status strata_model_build_step(strata_model *model, strata_program_kind kind, int replica, int64_t batch,
                                      strata_step *out_step, strata_error *err) {
    return strata_step_build(out_step, model, kind, role_of(model, kind, replica, batch, (strata_batch_form){0}), NULL, err);
}

/* ---- what a program would need ---- */

static strata_status measure(strata_model *model, strata_program_kind kind, int replica, int64_t batch,
                             strata_layer_cost *layers, strata_program_cost *out_cost, strata_error *err) {
    strata_step s;
    STRATA_TRY(strata_step_build(&s, model, kind, role_of(model, kind, replica, batch, (strata_batch_form){0}), layers, err));
    strata_status status = strata_executable_measure(model->replicas[replica].device, &s.output, s.output != NULL, s.updates,
                                                     s.n_updates, out_cost, err);
    strata_graph_destroy(s.graph);
    return status;
}

strata_status strata_model_visit(strata_model *model, strata_program_kind kind, int replica, int64_t batch,
                                 strata_node_support_visit *visit, void *user, strata_error *err) {
    strata_step s;
    STRATA_TRY(strata_step_build(&s, model, kind, role_of(model, kind, replica, batch, (strata_batch_form){0}), NULL, err));
    strata_status status = strata_executable_place(model->replicas[replica].device, &s.output, s.output != NULL, s.updates,
                                                   s.n_updates, visit, user, err);
    strata_graph_destroy(s.graph);
    return status;
}

strata_status strata_model_visit_peak(strata_model *model, strata_program_kind kind, int64_t batch, strata_peak_visit *visit,
                                      void *user, strata_error *err) {
    strata_step s;
    STRATA_TRY(strata_step_build(&s, model, kind, role_of(model, kind, 0, batch, (strata_batch_form){0}), NULL, err));
    strata_status status = strata_executable_visit_peak(model->replicas[0].device, &s.output, s.output != NULL, s.updates,
                                                        s.n_updates, visit, user, err);
    strata_graph_destroy(s.graph);
    return status;
}

strata_status strata_model_measure(strata_model *model, strata_program_kind kind, int64_t batch, strata_layer_cost *out_layers,
                                   strata_program_cost *out_cost, strata_error *err) {
    return measure(model, kind, 0, batch, out_layers, out_cost, err);
}

static int64_t free_bytes(const strata_device *device) {
    uint64_t all = strata_device_get_info(device)->memory_bytes;
    uint64_t used = strata_device_get_counters(device).allocated_bytes;
    if (!all) return INT64_MAX; /* the device does not report its memory */
    return all > used ? (int64_t)(all - used) : 0;
}

/* Checks that every device has enough free memory for its part. *out_device: the first device that does not have enough,
 * else the last one that was checked. */
static strata_status check_parts(strata_model *model, strata_program_kind kind, int64_t batch, const strata_device **out_device,
                                 strata_error *err) {
    for (int r = 0; r < n_parts(model, kind); r++) {
        strata_program_cost cost = {0};
        const strata_device *device = *out_device = model->replicas[r].device;
        STRATA_TRY(measure(model, kind, r, batch, NULL, &cost, err));
        if (cost.device_bytes > free_bytes(device))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "the program needs %.1f MiB", (double)cost.device_bytes / 1048576);
    }
    return STRATA_OK;
}

/* Halves the batch, at least once, until its program fits in the free memory. Returns the batch; 0: no batch fits. */
static int64_t batch_that_fits(strata_model *model, strata_program_kind kind, int64_t batch) {
    const strata_device *device;
    for (batch /= 2; batch >= 1; batch /= 2)
        if (!check_parts(model, kind, batch, &device, NULL)) return batch;
    return 0;
}

/* Adds the batch size that would fit to an out-of-memory error of the device. */
static strata_status explain_memory(strata_model *model, strata_program_kind kind, int64_t batch, const strata_device *device,
                                    strata_status status, strata_error *err) {
    const strata_device *too_small;
    /* A node may be too large for a buffer of the device. If the program passes the check, its size is not the reason, but, for
     * example, a kernel that the driver does not compile. */
    bool memory = status == STRATA_OUT_OF_MEMORY || ((status == STRATA_UNSUPPORTED || status == STRATA_INVALID) &&
                                                     check_parts(model, kind, batch, &too_small, NULL));
    int64_t fits = memory && batch > 1 ? batch_that_fits(model, kind, batch) : 0;
    if (!fits) return status;
    strata_error reason = {0};
    if (err) reason = *err;
    return strata_fail(
        err, STRATA_OUT_OF_MEMORY, "batch %lld%s does not fit on %s, where %.1f MiB are free (%s); a batch of %lld does",
        (long long)batch, strata_strategy_has_workers(model->strategy) ? ", this worker's part," : "",
        strata_device_get_info(device)->id, (double)free_bytes(device) / 1048576, reason.message, (long long)fits);
}

strata_status strata_model_check_batch(strata_model *model, strata_program_kind kind, int64_t batch, strata_error *err) {
    const strata_device *device = NULL;
    strata_error reason = {0};
    strata_status status = check_parts(model, kind, batch, &device, &reason);
    if (!status) return STRATA_OK;
    status = explain_memory(model, kind, batch, device, status, &reason);
    return strata_fail(err, status, "%s", reason.message);
}

/* ---- programs ---- */

/* The outputs and updates of a graph. */
typedef struct graph_ends {
    strata_tensor *const *outputs;
    int n_outputs;
    strata_tensor *const *updates;
    int n_updates;
} graph_ends;

/* Copies the layout from the graph's memory, since the program outlives the graph. */
static strata_status keep_layout(const strata_step *step, strata_model_program *program, strata_error *err) {
    const strata_gradient_layout *layout = &step->layout;
    memcpy(program->layout.buckets, layout->buckets, sizeof layout->buckets);
    program->layout.n_buckets = layout->n_buckets;
    if (!layout->n_sparse || program->layout.sparse) return STRATA_OK;
    program->layout.sparse = malloc((size_t)layout->n_sparse * sizeof *layout->sparse);
    if (!program->layout.sparse) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    memcpy(program->layout.sparse, layout->sparse, (size_t)layout->n_sparse * sizeof *layout->sparse);
    program->layout.n_sparse = layout->n_sparse;
    return STRATA_OK;
}

/* Compiles a part's graph and finds the executable's inputs. of_group: the graph may have exchanges. */
static strata_status compile_graph(strata_model *model, strata_model_program *program, int replica, const graph_ends *ends,
                                   bool of_group, strata_error *err) {
    strata_program_part *part = &program->parts[replica];
    strata_device *device = model->replicas[replica].device;
    const strata_executable_options opts = {.n_slots = program->form.n_slots};
    const strata_core_place place = strata_strategy_core_place(model->strategy, replica, program->contributes);
    /* The set of replicas that have accumulated gradients differs from update to update, so the host performs the
     * exchanges of APPLY. */
    const bool inside = place.cores && program->kind != STRATA_PROGRAM_APPLY;
    strata_executable **exe = &part->executable;
    STRATA_TRY(of_group ? strata_executable_create_replica(device, ends->outputs, ends->n_outputs, ends->updates,
                                                           ends->n_updates, &opts, inside ? &place : NULL, exe, err)
                        : strata_executable_create(device, ends->outputs, ends->n_outputs, ends->updates, ends->n_updates,
                                                   &opts, exe, err));
    program->compared_seconds += strata_executable_compared_seconds(*exe);
    for (int i = 0; i < STRATA_MAX_INPUTS; i++)
        part->x[i] = i < model->n_inputs ? strata_executable_input_index(*exe, strata_slot_name("x", i).text) : -1;
    for (int i = 0; i < STRATA_MAX_OUTPUTS; i++)
        part->y[i] = i < model->n_outputs ? strata_executable_input_index(*exe, strata_slot_name("y", i).text) : -1;
    part->step = strata_executable_input_index(*exe, "step");
    part->weights = strata_executable_input_index(*exe, "weights");
    part->example_weights = strata_executable_input_index(*exe, "example_weights");
    part->rng = strata_executable_input_index(*exe, "rng");
    part->share = strata_executable_input_index(*exe, "share");
    part->examples = strata_executable_input_index(*exe, "examples");
    part->state_share = strata_executable_input_index(*exe, "state_share");
    return STRATA_OK;
}

/* Builds and compiles the graph of a part by the role of its device. */
static strata_status compile_part(strata_model *model, strata_model_program *program, int replica, strata_error *err) {
    strata_step s;
    const strata_step_role role = role_of(model, program->kind, replica, program->batch, program->form);
    STRATA_TRY(strata_step_build(&s, model, program->kind, role, NULL, err));
    strata_tensor *own[2];
    graph_ends ends = {s.outputs ? s.outputs : own, s.outputs ? s.n_outputs : 0, s.updates, s.n_updates};
    program->parts[replica].scores = -1;
    if (!s.outputs && s.output) own[ends.n_outputs++] = s.output;
    if (!s.outputs && s.scores) own[program->parts[replica].scores = ends.n_outputs++] = s.scores;
    strata_status status =
        compile_graph(model, program, replica, &ends, role.exchanges || role.has_replicas || s.layout.n_buckets, err);
    if (!status) status = keep_layout(&s, program, err);
    strata_graph_destroy(s.graph);
    return status;
}

static void destroy_program(strata_model_program *program) {
    for (int r = 0; !program->group && program->parts && r < program->n_parts; r++)
        strata_executable_destroy(program->parts[r].executable);
    strata_group_destroy(program->group);
    free(program->parts);
    free(program->contributes);
    free(program->layout.sparse);
    free(program);
}

static strata_status make_group(const strata_model *model, strata_model_program *program, strata_error *err) {
    const size_t n_parts = program->n_parts > 0 ? (size_t)program->n_parts : 1;
    strata_executable **executables = calloc(n_parts, sizeof(*executables));
    if (!executables) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    for (int r = 0; r < program->n_parts; r++) executables[r] = program->parts[r].executable;
    const bool sends = program->layout.n_buckets > 0;
    strata_status status =
        strata_group_create(executables, program->n_parts, sends ? model->strategy->sink : &model->strategy->workers,
                            model->strategy->cross_device, &program->group, err);
    for (int r = 0; status && r < program->n_parts; r++)
        program->parts[r].executable = NULL; /* the group owns them, even after a failure */
    free(executables);
    return status;
}

static strata_status make_parts(const strata_strategy *strategy, strata_model_program *program, strata_error *err) {
    const size_t n = (size_t)program->n_parts;
    program->parts = calloc(n, sizeof *program->parts);
    program->contributes = calloc(n, sizeof *program->contributes);
    if (!program->parts || !program->contributes)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    for (int r = 0; r < strategy->n_replicas; r++) {
        strata_program_part *part = &program->parts[r];
        strata_strategy_local_share(strategy, program->batch, r, &part->first, &part->n);
        program->contributes[r] = part->n > 0 || program->kind == STRATA_PROGRAM_AVERAGE;
    }
    return STRATA_OK;
}

static strata_status explain(strata_model *model, const strata_model_program *program, int replica, strata_status status,
                             strata_error *err) {
    const strata_device_info *info = strata_device_get_info(model->replicas[replica].device);
    if (status == STRATA_OUT_OF_MEMORY && program->form.n_slots && info->device_class != STRATA_DEVICE_CPU)
        return strata_fail_in(err, status,
                              "%d steps in one call of %s take the memory of %d batches; fewer steps per execution take less",
                              program->form.n_slots / 2, info->id, program->form.n_slots);
    return status ? explain_memory(model, program->kind, program->batch, model->replicas[replica].device, status, err) : status;
}

static strata_status compile_by_roles(strata_model *model, strata_model_program *program, strata_error *err) {
    for (int r = 0; r < program->n_parts; r++)
        STRATA_TRY(explain(model, program, r, compile_part(model, program, r, err), err));
    return STRATA_OK;
}

/* Compiles the graphs into which the partitioner divides the step of all replicas. */
static strata_status compile_divided(strata_model *model, strata_model_program *program, strata_error *err) {
    strata_step s;
    strata_partition *partition;
    const bool computes_only = program->kind == STRATA_PROGRAM_EVALUATE || program->kind == STRATA_PROGRAM_PREDICT;
    strata_tensor *own[2];
    STRATA_TRY(strata_model_divide(model, program, &s, &partition, err));
    strata_status status = STRATA_OK;
    for (int r = 0; partition && r < program->n_parts && !status; r++) {
        const strata_device_part *part = &partition->parts[r];
        const int n_outputs = (s.output != NULL) + (s.scores != NULL);
        graph_ends ends = {own, 0, part->updates, part->n_updates};
        program->parts[r].scores = -1;
        for (int i = 0; i < n_outputs; i++) {
            if (!part->outputs[i]) continue;
            if (s.scores && i == n_outputs - 1) program->parts[r].scores = ends.n_outputs;
            own[ends.n_outputs++] = part->outputs[i];
        }
        status = explain(model, program, r, compile_graph(model, program, r, &ends, !computes_only, err), err);
    }
    program->divided = partition != NULL;
    strata_partition_destroy(partition);
    strata_graph_destroy(s.graph);
    return status;
}

static strata_status compile(strata_model *model, strata_model_program *program, strata_error *err) {
    STRATA_TRY(make_parts(model->strategy, program, err));
    if (strata_model_is_divided(model, program->kind)) STRATA_TRY(compile_divided(model, program, err));
    if (!program->divided) STRATA_TRY(compile_by_roles(model, program, err));
    return make_group(model, program, err);
}

strata_status strata_model_get_program(strata_model *model, strata_program_kind kind, int64_t batch, strata_batch_form form,
                                       strata_model_program **out_program, strata_error *err) {
    for (strata_model_program *p = model->programs; p; p = p->next)
        if (p->kind == kind && p->batch == batch && p->form.weighted == form.weighted &&
            p->form.byte_scale == form.byte_scale && p->form.n_slots >= form.n_slots) {
            *out_program = p;
            return STRATA_OK;
        }
    strata_model_program *program = calloc(1, sizeof *program);
    if (!program) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for a program");
    program->kind = kind;
    program->batch = batch;
    program->form = form;
    program->n_parts = n_parts(model, kind);
    strata_status status = compile(model, program, err);
    if (status) {
        destroy_program(program);
        return status;
    }
    program->next = model->programs;
    model->programs = program;
    *out_program = program;
    return STRATA_OK;
}

void strata_model_slots(const strata_model *model, const strata_program_part *part, int slot, void **out_inputs,
                        void **out_labels) {
    for (int i = 0; i < model->n_inputs; i++) out_inputs[i] = strata_executable_input(part->executable, slot, part->x[i]);
    for (int i = 0; out_labels && i < model->n_outputs; i++)
        out_labels[i] = strata_executable_input(part->executable, slot, part->y[i]);
}

void strata_model_count(const strata_model *model, const strata_model_program *program, strata_group_totals *totals) {
    const bool updates = program->kind == STRATA_PROGRAM_TRAIN || program->kind == STRATA_PROGRAM_APPLY;
    const bool computes = program->kind == STRATA_PROGRAM_TRAIN || program->kind == STRATA_PROGRAM_ACCUMULATE;
    strata_group_add(program->group, computes ? model->strategy->n_replicas : 0, updates, totals);
}

void strata_model_free_programs(strata_model *model) {
    for (strata_model_program *p = model->programs, *next; p; p = next) {
        next = p->next;
        strata_model_count(model, p, &model->communicated);
        destroy_program(p);
    }
    model->programs = NULL;
}
