/* SPDX-License-Identifier: Apache-2.0
 *
 * The executables of a model's steps: one group of replicas for each kind of program and batch size; and the memory that they
 * would need. */
#include <stdio.h>

#include "core/graph/graph.h"
#include "core/model/pipeline.h"
#include "core/model/recompute.h"
#include "core/op/ops.h"
#include "core/run/executable.h"

/* How many devices run a program of this kind. A device that only stores parameters takes part only in updates. */
static int n_parts(const strata_model *model, strata_program_kind kind) {
    const bool updates = kind == STRATA_PROGRAM_TRAIN || strata_program_is_without_batch(kind);
    return updates ? model->strategy->n_devices : model->strategy->n_replicas;
}

void strata_program_clear_steps(strata_model_program *program) {
    for (int r = 0; program->steps && r < program->n_parts; r++) {
        strata_graph_destroy(program->steps[r].graph);
        program->steps[r] = (strata_step){0};
    }
}

static void destroy_steps(strata_model_program *program) {
    strata_program_clear_steps(program);
    free(program->steps);
    program->steps = NULL;
}

static void strata_model_program_destroy(strata_model_program *program) {
    if (!program) return;
    for (int r = 0; !program->group && program->parts && r < program->n_parts; r++)
        strata_executable_destroy(program->parts[r].executable);
    strata_group_destroy(program->group);
    destroy_steps(program);
    free(program->parts);
    free(program->contributes);
    strata_graph_destroy(program->graph);
    free(program);
}
STRATA_OWNER(strata_model_program)

/* Creates a program with its steps, which is not compiled. *out_program is to be destroyed after a failure too. layers: as for
 * strata_model_divide. */
static strata_status create(strata_model *model, strata_program_kind kind, int64_t batch, strata_batch_form form,
                            strata_layer_cost *layers, strata_model_program **out_program, strata_error *err) {
    static const char no_memory[] = "model: no host memory for a program";
    const int n = n_parts(model, kind);
    strata_model_program *program;
    STRATA_TRY(STRATA_NEW(*out_program, 1, err, no_memory));
    program = *out_program;
    *program = (strata_model_program){.kind = kind, .batch = batch, .form = form, .n_parts = n};
    STRATA_TRY(STRATA_NEW(program->parts, n, err, no_memory));
    STRATA_TRY(STRATA_NEW(program->contributes, n, err, no_memory));
    STRATA_TRY(STRATA_NEW(program->steps, n, err, no_memory));
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        strata_program_part *part = &program->parts[r];
        strata_strategy_local_share(model->strategy, batch, r, &part->first, &part->n);
        program->contributes[r] = part->n > 0 || kind == STRATA_PROGRAM_AVERAGE;
    }
    return model->recompute.most_bytes && strata_program_has_gradients(kind)
               ? strata_recompute_choose(model, program, layers, err)
               : strata_model_divide(model, program, layers, err);
}

strata_status strata_model_build_step(strata_model *model, strata_program_kind kind, int64_t batch, int replica,
                                      strata_layer_cost *layers, strata_step *out_step, strata_error *err) {
    STRATA_OWNED(strata_model_program) *program = NULL;
    STRATA_TRY(create(model, kind, batch, (strata_batch_form){0}, layers, &program, err));
    *out_step = program->steps[replica];
    program->steps[replica].graph = NULL;
    return STRATA_OK;
}

/* ---- whether a program fits in memory ---- */

static int64_t free_bytes(const strata_device *device) {
    uint64_t all = strata_device_get_info(device)->memory_bytes;
    uint64_t used = strata_device_get_counters(device).allocated_bytes;
    if (!all) return INT64_MAX; /* the device does not report its memory */
    return all > used ? (int64_t)(all - used) : 0;
}

strata_status strata_program_measure(const strata_model *model, const strata_model_program *program, int64_t most_bytes,
                                     strata_program_lack *out_lack, strata_error *err) {
    *out_lack = (strata_program_lack){.bytes = INT64_MIN};
    for (int r = 0; r < program->n_parts; r++) {
        const strata_step *s = &program->steps[r];
        strata_device *device = model->replicas[r].device;
        const int64_t all = free_bytes(device);
        strata_program_cost cost = {0};
        const strata_status status =
            strata_executable_measure(device, s->outputs, s->n_outputs, s->updates, s->n_updates, &cost, err);
        const int64_t lacks = cost.device_bytes - (all < most_bytes ? all : most_bytes);
        if (status || lacks > out_lack->bytes) *out_lack = (strata_program_lack){lacks, cost.device_bytes, device};
        STRATA_TRY(status);
    }
    return STRATA_OK;
}

/* Checks that every device has enough free memory for its part. *out_device: the device with the least memory left, or the one
 * whose part fails. */
static strata_status check_parts(strata_model *model, strata_program_kind kind, int64_t batch, const strata_device **out_device,
                                 strata_error *err) {
    STRATA_OWNED(strata_model_program) *program = NULL;
    strata_program_lack lack;
    *out_device = model->replicas[0].device;
    STRATA_TRY(create(model, kind, batch, (strata_batch_form){0}, NULL, &program, err));
    const strata_status status = strata_program_measure(model, program, INT64_MAX, &lack, err);
    *out_device = lack.device;
    if (status || lack.bytes <= 0) return status;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "the program needs %.1f MiB", (double)lack.needed / 1048576);
}

/* Halves the batch, at least once, until its program fits in the free memory. Returns the batch; 0: no batch fits. */
static int64_t batch_that_fits(strata_model *model, strata_program_kind kind, int64_t batch) {
    const strata_device *device;
    for (batch /= 2; batch >= 1; batch /= 2)
        if (!check_parts(model, kind, batch, &device, NULL)) return batch;
    return 0;
}

/* Whether the program would fit if layers were computed again, of a model that has no such layers. */
static bool fits_recomputed(strata_model *model, strata_program_kind kind, int64_t batch) {
    const strata_device *device;
    if (!strata_program_has_gradients(kind) || model->recompute.text ||
        strata_recompute_set(model, "auto", model->strategy, NULL))
        return false;
    const bool fits = !check_parts(model, kind, batch, &device, NULL);
    return !strata_recompute_set(model, NULL, NULL, NULL) && fits;
}

/* Adds what would fit to an out-of-memory error of the device: a smaller batch, layers that are computed again. */
static strata_status explain_memory(strata_model *model, strata_program_kind kind, int64_t batch, const strata_device *device,
                                    strata_status status, strata_error *err) {
    const strata_device *too_small;
    /* A node may be too large for a buffer of the device. If the program passes the check, its size is not the reason, but, for
     * example, a kernel that the driver does not compile. */
    bool memory = status == STRATA_OUT_OF_MEMORY || ((status == STRATA_UNSUPPORTED || status == STRATA_INVALID) &&
                                                     check_parts(model, kind, batch, &too_small, NULL));
    const int64_t fits = memory && batch > 1 ? batch_that_fits(model, kind, batch) : 0;
    const bool recomputed = memory && fits_recomputed(model, kind, batch);
    if (!fits && !recomputed) return status;
    char smaller[48] = "";
    strata_error reason = {0};
    if (err) reason = *err;
    if (fits) snprintf(smaller, sizeof smaller, "a batch of %lld does", (long long)fits);
    return strata_fail(
        err, STRATA_OUT_OF_MEMORY, "batch %lld%s does not fit on %s, where %.1f MiB are free (%s); %s%s%s", (long long)batch,
        strata_strategy_has_workers(model->strategy) ? ", this worker's part," : "", strata_device_get_info(device)->id,
        (double)free_bytes(device) / 1048576, reason.message, smaller, fits && recomputed ? ", and " : "",
        recomputed ? "it does with recompute \"auto\", which computes values again in the backward pass (--recompute auto)"
                   : "");
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

void strata_program_find_inputs(const strata_model *model, strata_program_part *part) {
    const strata_executable *exe = part->executable;
    for (int i = 0; i < STRATA_MAX_INPUTS; i++)
        part->x[i] = i < model->n_inputs ? strata_executable_input_index(exe, strata_slot_name("x", i).text) : -1;
    for (int i = 0; i < STRATA_MAX_OUTPUTS; i++)
        part->y[i] = i < model->n_outputs ? strata_executable_input_index(exe, strata_slot_name("y", i).text) : -1;
    part->step = strata_executable_input_index(exe, "step");
    part->weights = strata_executable_input_index(exe, "weights");
    part->example_weights = strata_executable_input_index(exe, "example_weights");
    part->rng = strata_executable_input_index(exe, "rng");
    part->share = strata_executable_input_index(exe, "share");
    part->examples = strata_executable_input_index(exe, "examples");
    part->state_share = strata_executable_input_index(exe, "state_share");
}

/* Compiles a part's step and finds the executable's inputs. */
static strata_status compile_part(strata_model *model, strata_model_program *program, int replica, const strata_step *step,
                                  strata_error *err) {
    strata_program_part *part = &program->parts[replica];
    strata_device *device = model->replicas[replica].device;
    strata_executable_options opts = {.n_slots = program->form.n_slots};
    int n_in_flight, n_kept;
    STRATA_TRY(strata_model_count_flights(model, program->kind, replica, &n_in_flight, &n_kept, err));
    if (n_in_flight > 1 && n_in_flight > opts.n_slots) opts.n_slots = n_in_flight;
    const strata_core_place place = strata_strategy_core_place(model->strategy, replica, program->contributes);
    /* The set of replicas that have accumulated gradients differs from update to update, so the host performs the
     * exchanges of APPLY. */
    const bool inside = place.cores && program->kind != STRATA_PROGRAM_APPLY;
    const strata_strategy *strategy = model->strategy;
    const bool of_group = (!strata_program_computes_only(program->kind) || strata_strategy_has_mesh(strategy)) &&
                          (strategy->n_devices > 1 || strata_strategy_has_workers(strategy) || step->layout.n_buckets);
    strata_executable **exe = &part->executable;
    strata_tensor *const *outputs = step->outputs;
    const int n = step->n_outputs;
    part->scores = step->scores && strata_strategy_is_first_of_share(strategy, replica) ? n - 1 : -1;
    STRATA_TRY(n_in_flight > 1 ? strata_executable_create_in_flight(device, outputs, n, step->updates, step->n_updates, &opts,
                                                                    n_kept, exe, err)
               : of_group      ? strata_executable_create_replica(device, outputs, n, step->updates, step->n_updates, &opts,
                                                             inside ? &place : NULL, exe, err)
                               : strata_executable_create(device, outputs, n, step->updates, step->n_updates, &opts, exe, err));
    program->compared_seconds += (*exe)->compared_seconds;
    strata_program_find_inputs(model, part);
    return STRATA_OK;
}

static strata_status make_group(const strata_model *model, strata_model_program *program, strata_error *err) {
    STRATA_FREED strata_executable **executables = NULL;
    STRATA_TRY(STRATA_NEW(executables, program->n_parts, err, "model: no host memory for a program"));
    for (int r = 0; r < program->n_parts; r++) executables[r] = program->parts[r].executable;
    const strata_strategy *strategy = model->strategy;
    strata_status status =
        strata_group_create(executables, program->n_parts, &strategy->workers, strategy->cross_device, &program->group, err);
    if (!status && strategy->trainer)
        strata_group_set_receiver(program->group, strategy->trainer->take, strategy->trainer_data);
    for (int r = 0; status && r < program->n_parts; r++)
        program->parts[r].executable = NULL; /* the group owns them, even after a failure */
    return status;
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

strata_status strata_model_get_program(strata_model *model, strata_program_kind kind, int64_t batch, strata_batch_form form,
                                       strata_model_program **out_program, strata_error *err) {
    for (strata_model_program *p = model->programs; p; p = p->next)
        if (p->kind == kind && p->batch == batch && p->form.weighted == form.weighted &&
            p->form.byte_scale == form.byte_scale && p->form.n_slots >= form.n_slots) {
            *out_program = p;
            return STRATA_OK;
        }
    STRATA_OWNED(strata_model_program) *program = NULL;
    const strata_status created = create(model, kind, batch, form, NULL, &program, err);
    if (created) return program ? explain(model, program, 0, created, err) : created;
    for (int r = 0; r < program->n_parts; r++)
        STRATA_TRY(explain(model, program, r, compile_part(model, program, r, &program->steps[r], err), err));
    program->layout = program->steps[0].layout;
    if (kind == STRATA_PROGRAM_GRADIENTS) {
        program->graph = program->steps[0].graph;
        program->steps[0].graph = NULL;
    }
    destroy_steps(program);
    STRATA_TRY(make_group(model, program, err));
    program->next = model->programs;
    *out_program = model->programs = program;
    program = NULL;
    return STRATA_OK;
}

void strata_model_slots(const strata_model *model, const strata_program_part *part, int slot, void **out_inputs,
                        void **out_labels) {
    for (int i = 0; i < model->n_inputs; i++) out_inputs[i] = strata_executable_input(part->executable, slot, part->x[i]);
    for (int i = 0; i < model->n_outputs; i++) out_labels[i] = strata_executable_input(part->executable, slot, part->y[i]);
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
        strata_model_program_destroy(p);
    }
    model->programs = NULL;
}
