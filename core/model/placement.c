/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes as text where the variables, nodes and exchanges of a training step are, and what its exchanges have cost so
 * far. */
#include "core/base/text.h"
#include "core/model/data.h"
#include "core/model/pipeline.h"
#include "core/run/exchange.h"

static const char *device_id(const strata_model *model, int replica) {
    return strata_device_get_info(model->replicas[replica].device)->id;
}

/* Under a mesh: where the parts of a parameter are. */
static const strata_placement *placement_of(const strata_model *model, const strata_parameter_spec *parameter) {
    return &model->placements[model->parameters.parts[parameter->first_part].block].parameter;
}

static void list_variables(const strata_model *model, strata_text *text) {
    const strata_mesh *mesh = &model->strategy->mesh;
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_placement *placement = model->placements && !p->state ? placement_of(model, p) : &(strata_placement){0};
        strata_text_add(
            text, "variable  %s f32 %s:", p->name,
            model->placements ? strata_placement_text(mesh, placement, p->shape).text : strata_shape_text(p->shape).text);
        for (int r = 0; r < model->strategy->n_devices; r++)
            if (strata_placement_has(mesh, placement, model->strategy->workers.first_replica + r))
                strata_text_add(text, " %s", device_id(model, r));
        strata_text_add(text, "\n");
    }
    const int n_slots = strata_model_n_slots(model);
    for (int k = 0; k < model->parameters.n_blocks; k++)
        for (int r = 0; r < model->strategy->n_devices && n_slots; r++) {
            const strata_model_block *own = &model->replicas[r].blocks[k];
            if (own->slots[0])
                strata_text_add(text, "variable  %d optimizer slots f32 (%lld): %s\n", n_slots,
                                (long long)strata_shape_elements(own->slots[0]->shape), device_id(model, r));
        }
}

static void list_nodes(const strata_model *model, const strata_model_program *program, strata_text *text) {
    for (int r = 0; r < program->n_parts; r++) {
        const strata_executable *exe = program->parts[r].executable;
        for (int i = 0; i < exe->plan.n_schedule; i++) {
            const strata_executable_node n = strata_executable_get_node(exe, i);
            strata_text_add(text, "node      replica %d, segment %d: %s %s %s: %s\n", r, n.segment, strata_tensor_name(n.node),
                            strata_dtype_name(n.node->dtype), strata_shape_text(n.node->shape).text, device_id(model, r));
        }
    }
}

/* Writes one line for each exchange: "exchange  0: sum f32 (101888): from opencl:0.0 opencl:0.1, on the host, to
 * opencl:0.0 opencl:0.1". */
static void list_exchanges(const strata_model *model, const strata_model_program *program, strata_text *text) {
    for (int e = 0; e < strata_group_n_exchanges(program->group); e++) {
        const strata_communication *any = NULL;
        for (int r = 0; r < program->n_parts && !any; r++) any = strata_group_communication(program->group, r, e);
        const strata_tensor *node = any->node;
        const strata_communication_attrs *attrs = node->attrs;
        strata_text_add(text, "exchange  %d: %s %s %s: from", e, strata_exchange_name(node), strata_dtype_name(attrs->dtype),
                        strata_shape_text(attrs->shape).text);
        for (int r = 0; r < program->n_parts; r++) {
            const strata_communication *own = strata_group_communication(program->group, r, e);
            if (own && own->after >= 0) strata_text_add(text, " %s", device_id(model, r));
        }
        strata_text_add(text, ", on the host, to");
        for (int r = 0; r < program->n_parts; r++) {
            const strata_communication *own = strata_group_communication(program->group, r, e);
            if (own && ((const strata_communication_attrs *)own->node->attrs)->takes)
                strata_text_add(text, " %s", device_id(model, r));
        }
        strata_text_add(text, "\n");
    }
}

strata_status strata_model_placement(strata_model *model, int64_t batch, char **out_text, strata_error *err) {
    const bool accumulates = strata_model_accumulates(model) > 1;
    const strata_batch_form form = {0};
    strata_model_program *programs[3] = {NULL};
    int n = 0;
    strata_text text = {0};
    STRATA_TRY(strata_model_check_compiled(model, "placement", err));
    if (batch < 1) return strata_fail(err, STRATA_INVALID, "placement: batch is %lld; it must be at least 1", (long long)batch);
    int64_t first, own;
    strata_strategy_worker_share(model->strategy, batch, model->strategy->workers.rank, &first, &own);
    STRATA_TRY(strata_model_get_program(model, accumulates ? STRATA_PROGRAM_ACCUMULATE : STRATA_PROGRAM_TRAIN, own ? own : 1,
                                        form, &programs[n++], err));
    if (accumulates) STRATA_TRY(strata_model_get_program(model, STRATA_PROGRAM_APPLY, 0, form, &programs[n++], err));
    if (strata_strategy_has_own(model->strategy))
        STRATA_TRY(strata_model_get_program(model, STRATA_PROGRAM_AVERAGE, 0, form, &programs[n++], err));
    list_variables(model, &text);
    for (int i = 0; i < n; i++) {
        list_nodes(model, programs[i], &text);
        list_exchanges(model, programs[i], &text);
    }
    return strata_text_take(&text, out_text, NULL, err);
}

strata_communication_totals strata_model_communication(const strata_model *model) {
    strata_group_totals totals = model->communicated;
    for (const strata_model_program *p = model->programs; p; p = p->next) strata_model_count(model, p, &totals);
    strata_communication_totals out = strata_group_total(&totals);
    strata_model_report_stages(model, &out);
    return out;
}
