/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists how a mesh of devices would train a model, for reports: where the values of a step are, what is exchanged, and what
 * each device has. The choices are those of training (parts.c, divide.c), for a copy of the model whose devices have no
 * memory. */
#include <stdio.h>

#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/compile/partition.h"
#include "core/graph/variable.h"
#include "core/model/data.h"
#include "core/model/mesh_spec.h"
#include "core/model/parts.h"
#include "core/model/recompute.h"
#include "core/op/ops.h"
#include "core/run/schedule.h"

/* ---- the model on the mesh ---- */

/* A copy of the model, whose strategy is model_parallel. */
typedef struct report {
    strata_strategy strategy;
    strata_model model;
    strata_model_program program;
    /* What the copy has for itself, besides the memory of its variables. */
    strata_memory memory;
} report;

static void report_finish(report *r) {
    r->model.replicas = NULL; /* in `memory` */
    strata_model_free_variables(&r->model);
    free(r->model.parameters.blocks);
    free(r->model.parameters.parts);
    strata_memory_finish(&r->memory);
}

static strata_status set_strategy(report *r, const strata_model *model, const strata_strategy_options *opts,
                                  strata_error *err) {
    strata_strategy *strategy = &r->strategy;
    STRATA_TRY(strata_mesh_read_all(opts->mesh, 0, &strategy->mesh, err));
    const int n = strata_mesh_n_devices(&strategy->mesh);
    strategy->name = "model_parallel";
    strategy->layout = (char *)opts->layout;
    strategy->zero = opts->zero;
    strategy->n_devices = strategy->n_replicas = n;
    STRATA_TRY(STRATA_TAKE(&r->memory, strategy->devices, n, err, "mesh: no host memory for %d devices", n));
    for (int d = 0; d < n; d++) strategy->devices[d] = model->strategy->devices[0];
    return STRATA_OK;
}

/* Copies what a choice of placements changes: parameters and the stages of values. */
static strata_status copy_model(report *r, const strata_model *model, strata_error *err) {
    static const char no_memory[] = "mesh: no host memory for a model";
    strata_model *copy = &r->model;
    *copy = *model;
    copy->strategy = &r->strategy;
    copy->optimizer.gradient_accumulation_steps = 0;
    copy->replicas = NULL;
    copy->segments = NULL;
    copy->placements = NULL;
    copy->interrupted = NULL;
    copy->shards = (strata_shards){0};
    copy->memory = (strata_memory){0};
    copy->whole = (strata_model_replica){.device = NULL};
    memset(&copy->custom, 0, sizeof copy->custom);
    strata_parameter_set *set = &copy->parameters;
    set->blocks = NULL;
    set->parts = NULL;
    set->n_blocks = set->n_parts = 0;
    set->items = strata_memory_copy(&r->memory, set->items, (size_t)set->n * sizeof *set->items);
    copy->values = strata_memory_copy(&r->memory, copy->values, (size_t)copy->n_values * sizeof(*copy->values));
    for (int v = 0; copy->values && v < copy->n_values; v++)
        copy->values[v] = strata_memory_copy(&r->memory, copy->values[v], sizeof *copy->values[v]);
    if (r->memory.failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, no_memory);
    return strata_model_make_whole(copy, err);
}

/* A variable of the shape of a device's part of a block, without memory. */
static strata_variable *part_of(report *r, int block, const strata_placement *placement, int device) {
    strata_variable *variable = strata_memory_take(&r->memory, 1, sizeof *variable);
    const strata_model *model = &r->model;
    const strata_shape whole = strata_parameter_block_shape(&model->parameters, block);
    if (variable)
        *variable = (strata_variable){.device = r->strategy.devices[device],
                                      .name = "parameters",
                                      .shape = strata_placement_part(&r->strategy.mesh, placement, whole, device, NULL)};
    return variable;
}

static strata_status make_devices(report *r, strata_error *err) {
    const int n = r->strategy.n_devices, n_blocks = r->model.parameters.n_blocks, n_slots = strata_model_n_slots(&r->model);
    strata_variable *const wholes[] = {r->model.whole.state, r->model.whole.metrics};
    strata_model_replica *replicas;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (wholes[i]) wholes[i]->device = r->strategy.devices[0]; /* which stands for all */
    STRATA_TRY(STRATA_TAKE(&r->memory, replicas, n, err, "mesh: no host memory for %d devices", n));
    for (int d = 0; d < n; d++) {
        replicas[d] = r->model.whole;
        replicas[d].device = r->strategy.devices[d];
        STRATA_TRY(STRATA_TAKE(&r->memory, replicas[d].blocks, n_blocks, err, "mesh: no host memory for %d devices", n));
        for (int k = 0; k < n_blocks; k++) {
            strata_model_block *own = &replicas[d].blocks[k];
            if (!strata_placement_has(&r->strategy.mesh, &r->model.placements[k].parameter, d)) continue;
            own->flat = part_of(r, k, &r->model.placements[k].parameter, d);
            if (strata_model_updates_parts(&r->model, k)) own->shard = part_of(r, k, &r->model.placements[k].slot, d);
            for (int s = 0; s < n_slots; s++) own->slots[s] = part_of(r, k, &r->model.placements[k].slot, d);
        }
    }
    r->model.replicas = replicas;
    return r->memory.failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "mesh: no host memory for %d devices", n) : STRATA_OK;
}

static strata_status make_program(report *r, int64_t batch, strata_error *err) {
    const int n = r->strategy.n_devices;
    strata_model_program *program = &r->program;
    *program = (strata_model_program){.kind = STRATA_PROGRAM_TRAIN, .batch = batch, .n_parts = n};
    STRATA_TRY(STRATA_TAKE(&r->memory, program->parts, n, err, "mesh: no host memory for %d devices", n));
    STRATA_TRY(STRATA_TAKE(&r->memory, program->contributes, n, err, "mesh: no host memory for %d devices", n));
    for (int d = 0; d < n; d++) {
        strata_strategy_local_share(&r->strategy, batch, d, &program->parts[d].first, &program->parts[d].n);
        program->contributes[d] = program->parts[d].n > 0;
    }
    return STRATA_OK;
}

/* ---- rows ---- */

static strata_value_placement placed(const report *r, const char *name, const char *op, strata_dtype dtype, strata_shape shape,
                                     const strata_placement *placement) {
    strata_value_placement row = {.op = op, .dtype = dtype, .shape = shape};
    strata_format(row.name, sizeof row.name, "%s", name);
    strata_format(row.placement, sizeof row.placement, "%s", strata_placement_text(&r->strategy.mesh, placement, shape).text);
    return row;
}

static strata_status add_values(const report *r, const strata_graph *graph, const strata_partition *partition,
                                strata_model_mesh *out, strata_error *err) {
    STRATA_TRY(STRATA_NEW(out->values, graph->n_nodes, err, "mesh: no host memory for %d values", graph->n_nodes));
    for (int i = 0; i < graph->n_nodes; i++) {
        const strata_tensor *node = graph->nodes[i];
        const strata_placement *placement = partition->placements[i];
        if (placement && node->op != &strata_op_constant)
            out->values[out->n_values++] =
                placed(r, strata_tensor_name(node), node->op->name, node->dtype, node->shape, placement);
    }
    return STRATA_OK;
}

static strata_status add_exchanges(const report *r, const strata_partition *partition, strata_model_mesh *out,
                                   strata_error *err) {
    const strata_mesh *mesh = &r->strategy.mesh;
    const int n = partition->n_exchanges;
    STRATA_TRY(STRATA_NEW(out->exchanges, n, err, "mesh: no host memory for %d exchanges", n));
    for (int i = 0; i < n; i++) {
        const strata_partition_exchange *x = &partition->exchanges[i];
        strata_mesh_exchange *row = &out->exchanges[out->n_exchanges++];
        const char *name = strata_tensor_name(x->value);
        *row = (strata_mesh_exchange){.op = x->op, .reader = x->reader ? x->reader->op->name : NULL, .bytes = x->bytes};
        strata_format(row->value, sizeof row->value, "%s", *name ? name : x->value->op->name);
        for (int a = 0, used = 0; a < mesh->n_axes; a++)
            if (x->axes >> a & 1)
                used += strata_format(row->axes + used, sizeof row->axes - (size_t)used, "%s%s", used ? "," : "",
                                      mesh->axes[a].name);
    }
    return STRATA_OK;
}

static strata_status add_parameters(const report *r, strata_model_mesh *out, strata_error *err) {
    const strata_parameter_set *set = &r->model.parameters;
    STRATA_TRY(STRATA_NEW(out->parameters, set->n, err, "mesh: no host memory for %d parameters", set->n));
    for (int i = 0; i < set->n; i++) {
        const strata_parameter_spec *p = &set->items[i];
        if (!p->state)
            out->parameters[out->n_parameters++] = placed(r, p->name, strata_op_read.name, STRATA_DTYPE_F32, p->shape,
                                                          &r->model.placements[set->parts[p->first_part].block].parameter);
    }
    return STRATA_OK;
}

static strata_status add_bytes(const report *r, strata_model_mesh *out, strata_error *err) {
    const int n = r->strategy.n_devices, n_slots = strata_model_n_slots(&r->model);
    STRATA_TRY(STRATA_NEW(out->device_bytes, n, err, "mesh: no host memory for %d devices", n));
    for (int d = 0; d < n; d++) {
        int64_t elements = r->model.parameters.state_size;
        for (int k = 0; k < r->model.parameters.n_blocks; k++) {
            const strata_model_block *own = &r->model.replicas[d].blocks[k];
            if (own->flat) elements += strata_shape_elements(own->flat->shape);
            if (own->shard) elements += strata_shape_elements(own->shard->shape);
            for (int s = 0; s < n_slots && own->flat; s++) elements += strata_shape_elements(own->slots[s]->shape);
        }
        out->device_bytes[d] = elements * (int64_t)sizeof(float);
    }
    return STRATA_OK;
}

/* Divides the step again, into the graphs of its parts, and measures them. */
static strata_status add_step_bytes(report *r, strata_model_mesh *out, strata_error *err) {
    const int n = r->strategy.n_devices;
    strata_model_program *program = &r->program;
    STRATA_TRY(STRATA_NEW(out->step_bytes, n, err, "mesh: no host memory for %d devices", n));
    STRATA_TRY(STRATA_TAKE(&r->memory, program->steps, n, err, "mesh: no host memory for %d devices", n));
    strata_status status = strata_model_divide(&r->model, program, NULL, err);
    for (int d = 0; d < n && !status; d++) {
        const strata_step *s = &program->steps[d];
        strata_program_cost cost = {0};
        status =
            strata_executable_measure(r->strategy.devices[d], s->outputs, s->n_outputs, s->updates, s->n_updates, &cost, err);
        out->step_bytes[d] = cost.device_bytes;
    }
    strata_program_clear_steps(program);
    return status;
}

static strata_status add_schedule(const report *r, const strata_strategy_options *opts, strata_model_mesh *out,
                                  strata_error *err) {
    const int n_stages = r->strategy.mesh.axes[STRATA_STAGE_AXIS].size;
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    strata_pipeline_prediction prediction = {0};
    strata_text text = {0};
    STRATA_TRY(strata_pipeline_schedule_create(opts->schedule ? opts->schedule : "1f1b", n_stages,
                                               opts->microbatches ? opts->microbatches : 1, &schedule, err));
    if (n_stages == 1) return STRATA_OK;
    STRATA_TRY(strata_pipeline_schedule_simulate(schedule, NULL, &prediction, err));
    out->bubble = prediction.bubble;
    free(prediction.stages);
    strata_pipeline_schedule_write(schedule, &text);
    return strata_text_take(&text, &out->schedule, NULL, err);
}

static strata_status list(report *r, const strata_strategy_options *opts, strata_model_mesh *out, strata_error *err) {
    strata_step step;
    strata_partition *partition;
    STRATA_TRY(strata_model_partition(&r->model, &r->program, &step, &partition, err));
    strata_status status = add_values(r, step.graph, partition, out, err);
    if (!status) status = add_exchanges(r, partition, out, err);
    if (!status) status = add_parameters(r, out, err);
    if (!status) status = add_bytes(r, out, err);
    if (!status && opts->microbatches <= 1) status = add_step_bytes(r, out, err);
    if (!status) status = add_schedule(r, opts, out, err);
    strata_partition_destroy(partition);
    strata_graph_destroy(step.graph);
    return status;
}

strata_status strata_model_list_mesh(strata_model *model, int64_t batch, const strata_strategy_options *strategy,
                                     strata_model_mesh *out_mesh, strata_error *err) {
    STRATA_FINISHED(report) r = {.memory = {0}};
    *out_mesh = (strata_model_mesh){0};
    STRATA_TRY(strata_model_check_report(model, "mesh", "mesh", true, &batch, err));
    STRATA_TRY(set_strategy(&r, model, strategy, err));
    STRATA_TRY(copy_model(&r, model, err));
    STRATA_TRY(make_devices(&r, err));
    STRATA_TRY(make_program(&r, batch, err));
    out_mesh->n_devices = r.strategy.n_devices;
    const strata_status status = list(&r, strategy, out_mesh, err);
    if (status) strata_model_mesh_finish(out_mesh);
    return status;
}

void strata_model_mesh_finish(strata_model_mesh *mesh) {
    if (!mesh) return;
    free(mesh->values);
    free(mesh->exchanges);
    free(mesh->parameters);
    free(mesh->device_bytes);
    free(mesh->step_bytes);
    free(mesh->schedule);
    *mesh = (strata_model_mesh){0};
}
