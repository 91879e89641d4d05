/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines of a model's stages (pipeline.h). */
#include "core/model/pipeline.h"

#include <math.h>

#include "core/run/schedule.h"

bool strata_model_has_pipeline(const strata_model *model) {
    return strata_model_has_stages(model) && strata_model_n_microbatches(model) > 1;
}

static strata_status make_schedule(const strata_model *model, int n, strata_pipeline_schedule **out, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    return strata_pipeline_schedule_create(strategy->schedule, strategy->mesh.axes[STRATA_STAGE_AXIS].size, n, out, err);
}

strata_status strata_model_count_flights(const strata_model *model, strata_program_kind kind, int replica, int *out_slots,
                                         int *out_kept, strata_error *err) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    strata_pipeline_prediction prediction = {0};
    *out_slots = *out_kept = 1;
    if (kind != STRATA_PROGRAM_ACCUMULATE || !strata_model_has_pipeline(model)) return STRATA_OK;
    STRATA_TRY(make_schedule(model, strata_model_n_microbatches(model), &schedule, err));
    STRATA_TRY(strata_pipeline_schedule_simulate(schedule, NULL, &prediction, err));
    *out_slots = prediction.n_slots;
    *out_kept = prediction
                    .stages[strata_mesh_coordinate(&model->strategy->mesh, model->strategy->workers.first_replica + replica,
                                                   STRATA_STAGE_AXIS)]
                    .n_in_flight;
    free(prediction.stages);
    return STRATA_OK;
}

/* The segments of a replica that an action runs. */
static strata_group_action segments_of(const strata_action *action, strata_group_phases phases, bool has_weights) {
    const int weights = has_weights ? phases.weights : phases.n_segments;
    switch (action->kind) {
        case STRATA_ACTION_FORWARD:
            return (strata_group_action){.first = 0, .end = phases.backward};
        case STRATA_ACTION_BACKWARD:
            return (strata_group_action){.first = phases.backward, .end = weights};
        default:
            return (strata_group_action){.first = weights, .end = phases.n_segments};
    }
}

static strata_status acquire_slots(const strata_model_program *program, strata_model_flights *flights, strata_error *err) {
    const int n = strata_group_n_slots(program->group);
    int *slots;
    STRATA_TRY(STRATA_TAKE(&flights->memory, slots, n, err, "fit: no host memory for %d micro-batches", n));
    flights->schedule.n_slots = flights->schedule.n_microbatches < n ? flights->schedule.n_microbatches : n;
    for (int k = 0; k < flights->schedule.n_slots; k++) STRATA_TRY(strata_group_acquire(program->group, &slots[k], err));
    flights->schedule.slots = slots;
    return STRATA_OK;
}

strata_status strata_model_plan_flights(const strata_model *model, const strata_model_program *program, int n,
                                        strata_model_flights *out, strata_error *err) {
    static const char no_memory[] = "fit: no host memory for %d micro-batches";
    const strata_mesh *mesh = &model->strategy->mesh;
    const int n_replicas = program->n_parts, n_stages = mesh->axes[STRATA_STAGE_AXIS].size;
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    STRATA_FREED strata_action *order = NULL;
    strata_group_action *actions;
    strata_group_phases *phases;
    bool *contributes, has_weights = false;
    int *stages, n_order;
    STRATA_TRY(make_schedule(model, n, &schedule, err));
    STRATA_TRY(strata_pipeline_schedule_order(schedule, NULL, &order, &n_order, err));
    STRATA_TRY(STRATA_TAKE(&out->memory, stages, strata_mesh_n_devices(mesh), err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(&out->memory, phases, n_replicas, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(&out->memory, contributes, (int64_t)n * n_replicas, err, no_memory, n));
    STRATA_TRY(STRATA_TAKE(&out->memory, actions, (int64_t)n_order * n_replicas, err, no_memory, n));
    for (int d = 0; d < strata_mesh_n_devices(mesh); d++) stages[d] = strata_mesh_coordinate(mesh, d, STRATA_STAGE_AXIS);
    for (int r = 0; r < n_replicas; r++) phases[r] = strata_group_find_phases(program->group, r, stages);
    for (int i = 0; i < n * n_replicas; i++) contributes[i] = program->contributes[i % n_replicas];
    for (int i = 0; i < n_order; i++) has_weights |= order[i].kind == STRATA_ACTION_WEIGHTS;
    out->schedule = (strata_group_schedule){.actions = actions, .n_microbatches = n, .contributes = contributes};
    for (int i = 0; i < n_order; i++)
        for (int r = 0; r < n_replicas; r++) {
            if (stages[model->strategy->workers.first_replica + r] != order[i].chunk % n_stages) continue;
            strata_group_action action = segments_of(&order[i], phases[r], has_weights);
            action.replica = r;
            action.microbatch = order[i].microbatch;
            if (action.first < action.end) actions[out->schedule.n_actions++] = action;
        }
    return acquire_slots(program, out, err);
}

/* ---- times ---- */

static int n_stages_of(const strata_model *model) {
    return model->strategy->mesh.axes[STRATA_STAGE_AXIS].size;
}

strata_status strata_model_begin_stages(strata_model *model, strata_error *err) {
    if (!strata_model_has_pipeline(model)) return STRATA_OK;
    const int n = n_stages_of(model);
    if (!model->stages)
        STRATA_TRY(STRATA_TAKE(&model->memory, model->stages, n, err, "fit: no host memory for the times of %d stages", n));
    memset(model->stages, 0, (size_t)n * sizeof *model->stages);
    return STRATA_OK;
}

void strata_model_time_stages(strata_model *model, const strata_model_program *program) {
    const strata_strategy *strategy = model->strategy;
    for (int r = 0; r < program->n_parts; r++) {
        const int device = strategy->workers.first_replica + r;
        struct strata_stage_times *own = &model->stages[strata_mesh_coordinate(&strategy->mesh, device, STRATA_STAGE_AXIS)];
        double all;
        own->waited += strata_group_take_idle(program->group, r, &all);
        own->all += all;
    }
}

strata_status strata_model_share_stages(strata_model *model, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    STRATA_FREED struct strata_stage_times *each = NULL;
    if (!strata_model_has_pipeline(model) || !strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    const int n = n_stages_of(model);
    STRATA_TRY(STRATA_NEW(each, (int64_t)n * workers->n, err, "fit: no host memory for the times of %d stages", n));
    STRATA_TRY(strata_workers_gather(workers, model->stages, each, (size_t)n * sizeof *each, err));
    memset(model->stages, 0, (size_t)n * sizeof *model->stages);
    for (int i = 0; i < n * workers->n; i++) {
        model->stages[i % n].all += each[i].all;
        model->stages[i % n].waited += each[i].waited;
    }
    return STRATA_OK;
}

void strata_model_report_stages(const strata_model *model, strata_communication_totals *totals) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    strata_pipeline_prediction prediction = {0};
    double waited = 0, all = 0, longest = 0;
    const int n = model->stages ? n_stages_of(model) : 0;
    for (int s = 0; s < n; s++) {
        const struct strata_stage_times *own = &model->stages[s];
        waited += own->waited;
        all += own->all;
        if (own->all - own->waited > longest) totals->slowest_stage = s;
        longest = fmax(longest, own->all - own->waited);
    }
    if (!(all > waited)) return;
    totals->bubble = waited / all;
    totals->stage_imbalance = longest * n / (all - waited);
    if (make_schedule(model, strata_model_n_microbatches(model), &schedule, NULL) ||
        strata_pipeline_schedule_simulate(schedule, NULL, &prediction, NULL))
        return;
    totals->planned_bubble = prediction.bubble;
    free(prediction.stages);
}
