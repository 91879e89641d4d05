/* SPDX-License-Identifier: Apache-2.0
 *
 * Building the update of a training step. For each block, beginning with that of the last layers, it adds up the
 * gradients over replicas and runs the optimizer. If an update needs the gradients of all blocks (their norm, or f16's check
 * for overflow), all sums come before the first update. */
#include "core/graph/graph.h"
#include "core/graph/variable.h"
#include "core/model/shards.h"
#include "core/model/step.h"
#include "core/op/communication.h"

typedef strata_step_builder builder;
typedef strata_step_computed computed;

/* The tensors of a block's update. */
typedef struct block_update {
    /* The sum of the gradients over replicas, followed by the counts of used rows. */
    strata_tensor *used;
    strata_update update;
} block_update;

static int n_slots(const builder *b) {
    return strata_model_n_slots(b->model);
}

static const strata_model_block *own_block(const builder *b, int block) {
    return &b->model->replicas[b->opts.replica].blocks[block];
}

/* ---- rows of sparse parameters ---- */

/* Gathers the rows `ids` of a part of a parameter from a variable with the layout of the part's block. */
static strata_tensor *gather(const builder *b, int part, strata_tensor *block, strata_tensor *ids) {
    const strata_parameter_set *set = &b->model->parameters;
    const strata_parameter_part *own = &set->parts[part];
    return strata_gather(strata_parameter_view(block, own->offset - set->blocks[own->block].begin, own->shape), ids, 0);
}

/* Updates the rows `ids` of a part (-1: no row) by the optimizer; `rows` are the gradients of these rows. */
static void update_rows(builder *b, block_update *blocks, int part, strata_tensor *ids, strata_tensor *rows) {
    const strata_parameter_set *set = &b->model->parameters;
    const strata_parameter_part *own = &set->parts[part];
    const int64_t first = own->offset - set->blocks[own->block].begin, n_rows = own->shape.dims[0];
    const strata_shape shape = strata_tensor_shape(rows);
    strata_update *all = &blocks[own->block].update, step = *all;
    strata_tensor *gradients =
        strata_step_part(all->gradients, strata_step_gradient_place(b, part), strata_shape_elements(shape));
    step.parameters = rows;
    step.gradients = strata_reshape(gradients, shape);
    for (int s = 0; s < n_slots(b); s++) step.slots[s] = gather(b, part, all->slots[s], ids);
    strata_tensor *changed = b->model->optimizer_kind->build(&b->model->optimizer, &step);
    all->parameters = strata_scatter_update(all->parameters, first, n_rows, ids, changed, NULL);
    for (int s = 0; s < n_slots(b); s++)
        all->slots[s] = strata_scatter_update(all->slots[s], first, n_rows, ids, step.slots[s], changed);
}

/* Updates the used rows of a part whose gradient has all rows and is followed by counts of the uses. */
static void update_used_rows(builder *b, block_update *blocks, int part) {
    const block_update *block = &blocks[b->model->parameters.parts[part].block];
    strata_tensor *ids = strata_step_used_rows(b, part, block->used);
    update_rows(b, blocks, part, ids, gather(b, part, block->update.parameters, ids));
}

static void update_sparse(builder *b, block_update *blocks, int k) {
    const strata_parameter_set *set = &b->model->parameters;
    for (int i = set->blocks[k].first_part; i < set->blocks[k].first_part + set->blocks[k].n_parts; i++) {
        const strata_sparse_rows *rows = &b->context.rows[set->parts[i].parameter];
        if (!set->items[set->parts[i].parameter].sparse) continue;
        if (rows->row)
            update_rows(b, blocks, i, rows->ids, rows->row);
        else
            update_used_rows(b, blocks, i);
    }
}

/* ---- a block ---- */

/* The optimizer's slot of a block. In a graph that is divided it is that of the whole block. */
static strata_variable *slot_of(builder *b, int block, int slot) {
    const strata_parameter_block *at = &b->model->parameters.blocks[block];
    strata_variable *own = own_block(b, block)->slots[slot];
    if (!b->opts.divided || !own || !b->model->shards.n) return own;
    const size_t n = (size_t)b->model->parameters.n_blocks * STRATA_MAX_OPTIMIZER_SLOTS;
    if (!b->step->slots) b->step->slots = strata_graph_alloc(b->graph, n * sizeof *b->step->slots);
    if (!b->step->slots) return NULL;
    strata_variable *whole = &b->step->slots[block * STRATA_MAX_OPTIMIZER_SLOTS + slot];
    *whole = (strata_variable){.name = own->name, .dtype = own->dtype, .shape = STRATA_SHAPE(at->end - at->begin)};
    return whole;
}

/* Sets the operands of the optimizer's node, except the gate. */
static void begin_block(builder *b, block_update *block, int k, strata_tensor *gradients) {
    const strata_step_place *place = &b->places[k];
    block->used = gradients;
    block->update = (strata_update){
        .parameters = b->step->blocks[k], .gradients = gradients, .step = b->words, .segments = &b->model->segments[k]};
    for (int s = 0; s < n_slots(b); s++) block->update.slots[s] = strata_variable_read(b->graph, slot_of(b, k, s));
    if (place->n_gradients < place->n_all) block->update.gradients = strata_step_part(gradients, 0, place->n_gradients);
    if (b->scaled) block->update.gradients = strata_mul(block->update.gradients, strata_step_word(b, STRATA_STEP_SCALE));
}

/* Adds the optimizer's node for a block's dense parameters. */
static void update_block(builder *b, block_update *block, int k) {
    const strata_model *model = b->model;
    const strata_parameter_block *at = &model->parameters.blocks[k];
    strata_update *u = &block->update;
    if (at->dense_end < at->end) u->gradients = strata_step_part(u->gradients, 0, at->dense_end - at->begin);
    if (at->dense_end > at->begin) {
        strata_step_add(b, model->optimizer_kind->build(&model->optimizer, u));
        return;
    }
    for (int s = 0; s < n_slots(b); s++) strata_step_add(b, u->slots[s]);
    strata_step_add(b, u->parameters);
}

/* ---- all blocks together ---- */

static strata_tensor *sum_of_squares(strata_tensor *const *gradients, int n) {
    strata_tensor *square = NULL;
    for (int k = 0; k < n; k++) {
        strata_tensor *own = strata_reduce_sum(strata_square(gradients[k]), NULL, 0, false);
        square = square ? strata_add(square, own) : own;
    }
    return square;
}

/* Clips the gradients of blocks [first, first + n). Returns the sum of their squares before clipping, if the update needs it;
 * else NULL. */
static strata_tensor *clip(builder *b, block_update *blocks, int first, int n) {
    const strata_model *model = b->model;
    strata_tensor **gradients = strata_graph_alloc(b->graph, 2 * (size_t)n * sizeof *gradients), *square = NULL;
    if (!gradients) return NULL;
    strata_tensor **clipped = gradients + n;
    for (int k = 0; k < n; k++) gradients[k] = clipped[k] = blocks[first + k].update.gradients;
    strata_clip_gradients(&model->optimizer, clipped, &model->segments[first], n, &square);
    if (!square && (model->scale.value > 0 || model->measures_norm)) square = sum_of_squares(gradients, n);
    for (int k = 0; k < n; k++) blocks[first + k].update.gradients = clipped[k];
    return square;
}

static strata_tensor *times_zero(strata_tensor *x) { /* 0, or NaN where x is not finite */
    return strata_mul(x, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, 0));
}

/* Whether a replica that makes updates of its own may have no examples in a run of this program. It then changes nothing. */
static bool may_be_idle(const builder *b) {
    return strata_strategy_has_own(b->model->strategy) && !b->opts.batch;
}

/* Adds the batch's sums to the epoch's sums, and returns the gate: a scalar; if it is not finite, the update changes nothing.
 * The gate is the epoch's sum of losses, not the batch's, so that after a loss that is not finite the steps that were submitted
 * later change nothing either. square: the sum of the squares of all gradients; NULL: not known. */
static strata_tensor *open_gate(builder *b, const computed *c, strata_tensor *square) {
    strata_tensor *sums = c->sums, *overflow = NULL, *output[3];
    strata_tensor *share = may_be_idle(b) ? strata_step_share(b) : NULL;
    int n = 1;
    if (share) sums = strata_where(strata_greater(share, times_zero(share)), sums, times_zero(share));
    if (b->model->scale.value > 0) {
        overflow = times_zero(square);
        output[n++] = strata_reshape(overflow, STRATA_SHAPE(1));
    } else if (square) {
        /* If the norm of all gradients is computed anyway, a norm that is not finite is added to the loss, which closes the
         * gate. */
        sums = strata_step_add_to_loss(sums, times_zero(square));
    }
    if (b->model->measures_norm) output[n++] = strata_reshape(square, STRATA_SHAPE(1));
    output[0] = sums;
    b->output = n > 1 ? strata_concat(output, n, 0) : sums;
    strata_variable *metrics = b->model->replicas[b->opts.replica].metrics;
    strata_tensor *epoch = strata_step_add(b, strata_assign_add(strata_variable_read(b->graph, metrics), sums));
    strata_tensor *gate = strata_reshape(strata_step_part(epoch, 0, 1), STRATA_SHAPE());
    if (share) gate = strata_add(gate, strata_div(times_zero(share), share)); /* 0, or NaN without examples */
    return overflow ? strata_add(gate, overflow) : gate;
}

static void update_state(builder *b, const computed *c, strata_tensor *gate) {
    if (!b->model->parameters.state_size) return;
    strata_tensor *rates = c->rates ? c->rates : strata_layer_context_state_rates(&b->context, b->graph);
    strata_step_add(b, strata_moving_average(b->context.state, c->state, rates, gate));
}

/* Whether a block can be updated only after the gradients of all blocks are known. */
static bool needs_all_blocks(const strata_model *model) {
    return strata_optimizer_takes_norms(&model->optimizer) || model->scale.value > 0 || model->measures_norm;
}

static void reduce_block(builder *b, computed *c, block_update *blocks, int k) {
    begin_block(b, &blocks[k], k, strata_step_reduce(b, c, k));
}

void strata_step_update(builder *b, computed *c) {
    const int n = b->model->parameters.n_blocks;
    const bool together = needs_all_blocks(b->model);
    block_update *blocks = strata_graph_alloc(b->graph, (size_t)n * sizeof *blocks);
    strata_tensor *gate = NULL;
    if (!blocks) return;
    for (int k = n - 1; k >= 0 && together; k--) reduce_block(b, c, blocks, k);
    for (int k = n - 1; k >= 0; k--) {
        const bool first = k == n - 1;
        strata_tensor *square = NULL;
        if (!together) reduce_block(b, c, blocks, k);
        if (!together || first) square = together ? clip(b, blocks, 0, n) : clip(b, blocks, k, 1);
        if (first) gate = open_gate(b, c, square);
        if (first) update_state(b, c, gate);
        for (int i = 0; i < n; i++) blocks[i].update.gate = gate;
        update_sparse(b, blocks, k);
        update_block(b, &blocks[k], k);
    }
}
