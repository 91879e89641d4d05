/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists how the partitioner places the values of a model's training step on a mesh, for reports. */
#include <stdio.h>

#include "core/base/locale.h"
#include "core/compile/partition.h"
#include "core/model/data.h"
#include "core/model/mesh_spec.h"
#include "core/op/ops.h"

typedef struct report {
    strata_mesh mesh;
    strata_placement examples, whole, partial;
    int64_t *lengths;
} report;

static void report_finish(report *r) {
    free(r->lengths);
}

/* ---- the leaves ---- */

/* Divides the examples evenly over the axis "data". */
static strata_status place_examples(report *r, int64_t batch, strata_error *err) {
    const int a = strata_mesh_find(&r->mesh, "data"), n = strata_mesh_size(&r->mesh, "data");
    if (a < 0) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(r->lengths, n, err, "mesh: no host memory for %d devices", n));
    for (int i = 0; i < n; i++) r->lengths[i] = batch / n + (i < batch % n);
    r->examples.dims[0] = (strata_dim_split){.n_axes = 1, .axes = {a}, .lengths = r->lengths};
    r->partial.partial = 1u << a;
    return STRATA_OK;
}

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const report *r = user;
    if (leaf->op == &strata_op_read) return &r->whole;
    const strata_input_kind kind = strata_model_input_kind(((const strata_input_attrs *)leaf->attrs)->name);
    return kind == STRATA_INPUT_COPIED ? &r->whole : kind == STRATA_INPUT_SUMMED ? &r->partial : &r->examples;
}

/* The report has no memory on other devices: a copy of a variable is the variable. */
static strata_variable *same_variable(void *user, strata_variable *whole, int device) {
    (void)user, (void)device;
    return whole;
}

/* ---- rows ---- */

static strata_status add_values(const report *r, const strata_graph *graph, const strata_partition *partition,
                                strata_model_mesh *out, strata_error *err) {
    STRATA_TRY(STRATA_NEW(out->values, graph->n_nodes, err, "mesh: no host memory for %d values", graph->n_nodes));
    for (int i = 0; i < graph->n_nodes; i++) {
        const strata_tensor *node = graph->nodes[i];
        const strata_placement *placement = partition->placements[i];
        if (!placement || node->op == &strata_op_constant) continue;
        strata_value_placement *row = &out->values[out->n_values++];
        *row = (strata_value_placement){.op = node->op->name, .dtype = node->dtype, .shape = node->shape};
        strata_format(row->name, sizeof row->name, "%s", strata_tensor_name(node));
        strata_format(row->placement, sizeof row->placement, "%s",
                      strata_placement_text(&r->mesh, placement, node->shape).text);
    }
    return STRATA_OK;
}

static strata_status add_exchanges(const report *r, const strata_partition *partition, strata_model_mesh *out,
                                   strata_error *err) {
    const int n = partition->n_exchanges;
    STRATA_TRY(STRATA_NEW(out->exchanges, n, err, "mesh: no host memory for %d exchanges", n));
    for (int i = 0; i < n; i++) {
        const strata_partition_exchange *x = &partition->exchanges[i];
        strata_mesh_exchange *row = &out->exchanges[out->n_exchanges++];
        const char *name = strata_tensor_name(x->value);
        *row = (strata_mesh_exchange){.op = x->op, .reader = x->reader ? x->reader->op->name : NULL, .bytes = x->bytes};
        strata_format(row->value, sizeof row->value, "%s", *name ? name : x->value->op->name);
        for (int a = 0, used = 0; a < r->mesh.n_axes; a++)
            if (x->axes >> a & 1)
                used += strata_format(row->axes + used, sizeof row->axes - (size_t)used, "%s%s", used ? "," : "",
                                      r->mesh.axes[a].name);
    }
    return STRATA_OK;
}

static strata_status list(report *r, const strata_step *step, strata_model_mesh *out, strata_error *err) {
    STRATA_OWNED(strata_partition) *partition = NULL;
    const strata_partition_options opts = {.mesh = &r->mesh,
                                           .n = 1,
                                           .own_statistics = true,
                                           .place = place,
                                           .variable = same_variable,
                                           .user = r,
                                           .outputs = step->outputs,
                                           .n_outputs = step->outputs[0] != step->scores,
                                           .updates = step->updates,
                                           .n_updates = step->n_updates};
    STRATA_TRY(strata_partition_create(&opts, &partition, err));
    STRATA_TRY(add_values(r, step->graph, partition, out, err));
    return add_exchanges(r, partition, out, err);
}

strata_status strata_model_list_mesh(strata_model *model, int64_t batch, const char *mesh, strata_model_mesh *out_mesh,
                                     strata_error *err) {
    STRATA_FINISHED(report) r = {.mesh = {.n_axes = 0}};
    strata_step step;
    *out_mesh = (strata_model_mesh){0};
    STRATA_TRY(strata_model_check_report(model, "mesh", "mesh", true, &batch, err));
    const strata_step_options opts = {.batch = batch, .divided = true, .has_replicas = true};
    STRATA_TRY(strata_mesh_read(mesh, 0, &r.mesh, err));
    STRATA_TRY(place_examples(&r, opts.batch, err));
    STRATA_TRY(strata_step_build(&step, model, STRATA_PROGRAM_TRAIN, &opts, err));
    STRATA_OWNED(strata_graph) *graph = step.graph;
    out_mesh->n_devices = strata_mesh_n_devices(&r.mesh);
    const strata_status status = list(&r, &step, out_mesh, err);
    if (status) strata_model_mesh_finish(out_mesh);
    return status;
}

void strata_model_mesh_finish(strata_model_mesh *mesh) {
    if (!mesh) return;
    free(mesh->values);
    free(mesh->exchanges);
    *mesh = (strata_model_mesh){0};
}
