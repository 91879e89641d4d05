/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions under a mesh: each worker traces the same function, as if there were one device, and the partitioner divides its
 * graph among the devices. A model's parameters and the optimizer's slots are placed as in a fit (core/model/parts.h). All
 * other variables are copies, and inputs with as many rows as the first one are divided over the axis data. */
#include "core/graph/variable.h"
#include "core/op/ops.h"
#include "strategies/context.h"

bool strata_function_divides(strata_shape input, strata_shape batch) {
    return input.rank && batch.rank && batch.dims[0] && input.dims[0] == batch.dims[0];
}

typedef struct division {
    const strata_replica_context *replica;
    strata_shape batch;
    strata_placement examples, whole;
} division;

/* ---- variables ---- */

/* Where a variable of the graph is, and the part of a device of this worker; NULL: the device has none. */
typedef struct variable_place {
    const strata_placement *placement;
    strata_variable *part;
} variable_place;

static bool find_in_model(const division *v, const strata_model *model, const strata_variable *whole, int device,
                          variable_place *out) {
    const strata_model_replica *own = &model->replicas[device];
    if (whole == model->whole.state) *out = (variable_place){&v->whole, own->state};
    for (int k = 0; k < model->parameters.n_blocks; k++)
        if (whole == model->whole.blocks[k].flat) *out = (variable_place){&model->placements[k].parameter, own->blocks[k].flat};
    return out->placement != NULL;
}

static bool find_in_optimizer(const strata_distributed_optimizer *optimizer, const strata_variable *whole, int device,
                              variable_place *out) {
    for (const strata_optimizer_memory *m = optimizer->memories; m; m = m->next)
        for (int s = 0; s <= STRATA_MAX_OPTIMIZER_SLOTS; s++) {
            const struct strata_optimizer_part *own = &m->parts[device];
            if (whole != &m->whole[s]) continue;
            *out = (variable_place){&m->placement, s < STRATA_MAX_OPTIMIZER_SLOTS ? own->slots[s] : own->shard};
            return true;
        }
    return false;
}

static variable_place find(const division *v, const strata_variable *whole, int device) {
    variable_place out = {0};
    for (const strata_model_use *use = v->replica->uses; use; use = use->next)
        if (find_in_model(v, use->model, whole, device, &out)) return out;
    for (int i = 0; i < v->replica->n_feeds; i++) {
        const strata_distributed_optimizer *optimizer = v->replica->feeds[i].optimizer;
        if (optimizer && find_in_optimizer(optimizer, whole, device, &out)) return out;
    }
    for (const strata_replica_reading *r = v->replica->readings; r; r = r->next) {
        if (r->variable->whole != whole) continue;
        if (r->variable->model)
            find_in_model(v, r->variable->model, whole, device, &out);
        else
            out = (variable_place){&v->whole, r->variable->copies[device]};
        return out;
    }
    return out;
}

static strata_variable *variable_of(void *user, strata_variable *whole, int device) {
    const division *v = user;
    return find(v, whole, device - v->replica->strategy->workers.first_replica).part;
}

/* ---- the graph ---- */

/* Inputs are those of the function, and feeds, which are copies. */
static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const division *v = user;
    if (leaf->op == &strata_op_read) return find(v, ((const strata_read_attrs *)leaf->attrs)->variable, 0).placement;
    const bool is_feed = !strncmp(((const strata_input_attrs *)leaf->attrs)->name, "feed", 4);
    return !is_feed && strata_function_divides(leaf->shape, v->batch) ? &v->examples : &v->whole;
}

/* Each device has another variable in the place of one that the function reads. */
static strata_status check_reads(const division *v, strata_error *err) {
    for (int id = 0; id < v->replica->graph->n_nodes; id++) {
        const strata_tensor *node = v->replica->graph->nodes[id];
        if (node->op != &strata_op_read) continue;
        const strata_variable *variable = ((const strata_read_attrs *)node->attrs)->variable;
        if (!find(v, variable, 0).placement)
            return strata_fail(err, STRATA_INVALID,
                               "variable %s of one device is read in a function of all devices of strategy %s; read a variable "
                               "of the strategy with strata_replica_read",
                               variable->name, v->replica->strategy->name);
    }
    return STRATA_OK;
}

static bool takes_norms(const strata_replica_context *replica) {
    for (int i = 0; i < replica->n_feeds; i++)
        if (replica->feeds[i].optimizer && strata_optimizer_takes_norms(&replica->feeds[i].optimizer->settings)) return true;
    return false;
}

strata_status strata_function_divide(const strata_replica_context *replica, strata_shape batch,
                                     strata_partition **out_partition, strata_error *err) {
    const strata_strategy *strategy = replica->strategy;
    const strata_mesh *mesh = &strategy->mesh;
    division v = {.replica = replica, .batch = batch};
    STRATA_TRY(check_reads(&v, err));
    const int n_shares = mesh->axes[STRATA_DATA_AXIS].size;
    const int64_t n = batch.rank ? batch.dims[0] : 0;
    int64_t *lengths = strata_graph_alloc(replica->graph, (size_t)n_shares * sizeof *lengths);
    if (!lengths) return strata_fail(err, STRATA_OUT_OF_MEMORY, "function: no host memory for %d shares", n_shares);
    for (int s = 0; s < n_shares; s++) lengths[s] = n / n_shares + (s < n % n_shares); /* as strata_strategy_share */
    if (n_shares > 1) v.examples.dims[0] = (strata_dim_split){.n_axes = 1, .axes = {STRATA_DATA_AXIS}, .lengths = lengths};
    const strata_partition_options opts = {.mesh = mesh,
                                           .first = strategy->workers.first_replica,
                                           .n = strategy->n_devices,
                                           .place = place,
                                           .variable = variable_of,
                                           .user = &v,
                                           .update = &strategy->update,
                                           .whole_sums = takes_norms(replica) || strategy->workers.wire != STRATA_DTYPE_F32,
                                           .outputs = replica->outputs,
                                           .n_outputs = replica->n_outputs,
                                           .updates = replica->updates,
                                           .n_updates = replica->n_updates};
    return strata_partition_create(&opts, out_partition, err);
}
