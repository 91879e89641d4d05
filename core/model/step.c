/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a model's step, for all examples of a worker, as if there were one device.
 *
 * x and y stand for the inputs and labels of the model, of which there may be several (x, x1, ...; y, y1, ...).
 *
 *   training      x (B, ...), y (B), weights (B), step, rng [, example_weights (B)] -> sums;  updates parameters, optimizer
 *                 slots, states, the epoch's sums
 *   accumulation  x, y, weights, step, rng -> nothing;  adds gradients, sums and new states to variables of the replica
 *   gradients     x, y, weights, step, rng -> sums, gradients, changes of states, rows that are used;  updates nothing
 *   application   step -> sums;  makes the update from these variables and sets them to zero
 *   average       -> nothing;  averages parameters and states of replicas with their own (strata_strategy.average)
 *   evaluation    x, y [, example_weights] -> sums
 *   prediction    x -> outputs, as probabilities where the loss takes logits; a model without a loss has its outputs
 * The graph that is divided among the replicas (divide.c) also has the inputs share and examples, if layers have penalties or
 * count examples, and state_share, if states are accumulated.
 * sums: the sum of the examples' losses (times example_weights), the number of right answers, then the numbers of the metrics.
 * weights: the factor of each example's loss in the gradient, which is 1 / (examples in the batch of all replicas). For
 * accumulated batches it is 1 / (examples that the step is expected to have), and the input `step` of the update contains the
 * factor that corrects this. Training with several replicas, in the order of the nodes:
 *
 *   gradients of the last layers, their exchange; gradients of the layers before, ...    one bucket after the other
 *   exchange of sums, of new states (their mean), of the last bucket
 *   the update
 * The exchanges are all_reduces; divide.c says where values and the update are placed, and the partitioner makes each device's
 * part. If the parameters have several blocks, this is done for each block; sums and states are exchanged with the first.
 *
 * If the optimizer is sharded, the partitioner makes a reduce_scatter of the all_reduce of gradients: each device updates the
 * shard of the parameters that it owns, and an all_gather sends the new parameters to all devices. If an update needs all
 * gradients (their norm, or f16's check for overflow), or gradients are sent in a smaller dtype, the all_reduce remains, so
 * that the sums have the same bits.
 *
 * The update of a sparse parameter changes only the rows that the batch used: these rows of the parameter and of its slots are
 * gathered, the optimizer's op updates them, and they are scattered back. If a single replica updates after each batch and the
 * parameter is in one buffer, the gradient has only these rows, as many as the batch has indices. Otherwise it has all rows, so
 * that it can be added up over replicas and batches, and the gradients are followed by counts of how often each row was used.
 *
 * With f16 the host multiplies weights and shares by the loss scale, and `step` contains the factor that undoes this. If the
 * gradients are not finite, nothing is updated, and the output tells the host so.
 *
 * Replicas with parameters of their own exchange nothing in these programs except in the average. A replica without examples
 * changes nothing that it has: the partitioner makes no update for it, and where only the host knows, its gate is closed. */
#include "core/compile/walk.h"
#include "core/graph/graph.h"
#include "core/graph/variable.h"
#include "core/metric/metric.h"
#include "core/model/loop.h"
#include "core/model/metrics.h"
#include "core/model/parts.h"
#include "core/model/recompute.h"
#include "core/op/communication.h"
#include "core/op/ops.h"

/* A step that is being built. */
typedef struct strata_step_builder {
    strata_graph *graph;
    strata_model *model;
    strata_step *step;
    strata_step_options opts;
    /* The graph has all_reduces over the devices. */
    bool exchanges;
    strata_layer_context context;
    /* The input "step": the numbers that change from step to step, f32 (STRATA_STEP_WORDS). */
    strata_tensor *words;
    /* share_of, when it was used; NULL: not yet. */
    strata_tensor *share;
    /* The host can find the rows of sparse parameters that the batch uses, where they are the elements of an input. */
    bool host_knows_rows;
    /* Gradients must be multiplied by words[STRATA_STEP_SCALE] before the update. */
    bool scaled;
    /* The sums or predictions; NULL: there are none. */
    strata_tensor *output;
    /* Set by place_gradients. [parameters.n_blocks] The number of elements of each block's gradients, and the same plus the
     * counts that follow them: how often each row of the block's sparse parameters is used. */
    int64_t *n_gradients, *n_all;
    /* [parameters.n_parts] The first element of each part's gradient within its block's gradients, and of its counts; -1: it
     * has none. */
    int64_t *gradient_at, *uses_at;
    /* [parameters.n_parts] The gradients of blocks of their own shape; NULL: not computed yet. */
    strata_tensor **all_gradients;
} builder;

/* What the device computes from its examples; every pointer is NULL if it has no examples. */
typedef struct computed {
    /* Gradients are those of y; dy is the gradient of y (strata_gradients). */
    strata_tensor *y, *dy;
    /* [parameters.n_blocks] The accumulated gradients; used instead of y. */
    strata_tensor **gradients;
    strata_tensor *sums, *state;
    /* How far the states move to `state`, as for strata_moving_average; NULL: by the layers' rates. */
    strata_tensor *rates;
    /* Sums and states have been added up over the replicas. */
    bool reduced;
} computed;

static const strata_model_replica *variables_of(const builder *b) {
    return strata_model_replica_of(b->model, b->opts.replica);
}

/* Adds a node to the updates of the program, so that it is computed, and returns it. */
static strata_tensor *add_update(builder *b, strata_tensor *update) {
    strata_step *step = b->step;
    if (step->n_updates == step->most_updates) {
        const int most = step->most_updates ? 2 * step->most_updates : 16;
        strata_tensor **updates = strata_graph_alloc(b->graph, (size_t)most * sizeof *updates);
        if (!updates) return update;
        if (step->n_updates) memcpy(updates, step->updates, (size_t)step->n_updates * sizeof *updates);
        step->updates = updates;
        step->most_updates = most;
    }
    return step->updates[step->n_updates++] = update;
}

static void add_output(builder *b, strata_tensor *output) {
    b->step->outputs[b->step->n_outputs++] = output;
}

/* Lists the outputs of a step other than GRADIENTS. */
static void list_outputs(builder *b) {
    if (b->step->outputs) return;
    b->step->outputs = strata_graph_alloc(b->graph, 2 * sizeof *b->step->outputs);
    if (b->output && b->step->outputs) add_output(b, b->output);
    if (b->step->scores && b->step->outputs) add_output(b, b->step->scores);
}

/* Elements [first, first + n) of `flat`. */
static strata_tensor *slice(strata_tensor *flat, int64_t first, int64_t n) {
    return strata_slice(flat, &first, &n);
}

/* A word of the step, as a scalar. */
static strata_tensor *word_of(const builder *b, int64_t word) {
    return strata_reshape(slice(b->words, word, 1), STRATA_SHAPE());
}

/* The sums after adding `value` (one number) to the sum of losses, sums[0]. */
static strata_tensor *add_to_loss(strata_tensor *sums, strata_tensor *value) {
    int64_t before = 0, after = strata_shape_elements(strata_tensor_shape(sums)) - 1;
    return strata_add(sums, strata_pad(strata_reshape(value, STRATA_SHAPE(1)), &before, &after, 0));
}

/* An input of the graph of all replicas: a scalar whose values on the replicas add up to its value. In the graph of one
 * replica it is a word of the step, or a constant. */
static strata_tensor *summed_input(const builder *b, const char *name) {
    return strata_input(b->graph, name, STRATA_DTYPE_F32, STRATA_SHAPE());
}

/* The outputs of the model's layers, [n_outputs]. */
static void forward(builder *b, strata_tensor **outputs) {
    const strata_model *model = b->model;
    if (b->opts.divided) b->context.examples = summed_input(b, "examples");
    const float scale = b->opts.form.byte_scale;
    strata_tensor *inputs[STRATA_MAX_INPUTS];
    for (int i = 0; i < model->n_inputs; i++) {
        const strata_dtype dtype = scale != 0 ? STRATA_DTYPE_U8 : model->inputs[i].dtype;
        inputs[i] = strata_model_make_input(model, b->graph, i, dtype, b->opts.batch);
        if (scale != 0) inputs[i] = strata_dequantize(inputs[i], (double)scale);
    }
    strata_model_build_calls(b->model, &b->context, inputs, outputs);
}

static strata_tensor *labels_input(const builder *b, int output) {
    const strata_output_spec *spec = &b->model->outputs[output];
    const strata_shape one = strata_loss_label_shape(spec->loss, spec->shape);
    strata_shape shape = {.rank = one.rank + 1, .dims = {b->opts.batch}};
    memcpy(shape.dims + 1, one.dims, (size_t)one.rank * sizeof(int64_t));
    return strata_input(b->graph, strata_slot_name("y", output).text, strata_loss_label_dtype(spec->loss), shape);
}

static strata_tensor *times(strata_tensor *x, double factor) {
    return strata_mul(x, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, factor));
}

/* The losses of an output's examples. The result of a user's loss function is checked. */
static strata_tensor *output_losses(const builder *b, int output, strata_tensor *outputs, strata_tensor *labels) {
    const strata_output_spec *spec = &b->model->outputs[output];
    strata_tensor *losses = spec->loss->build(&spec->loss_options, outputs, labels);
    const strata_shape wanted = STRATA_SHAPE(b->opts.batch);
    if (!losses)
        return strata_graph_poison(b->graph, NULL, STRATA_INVALID, "loss %s: its build function returned NULL",
                                   spec->loss->name);
    if (strata_tensor_is_poison(losses)) return losses;
    if (losses->graph != b->graph || losses->dtype != STRATA_DTYPE_F32 || !strata_shape_equal(losses->shape, wanted))
        return strata_graph_poison(b->graph, NULL, STRATA_INVALID,
                                   "loss %s: its build function returned %s %s; it must be f32 %s, a number for each example",
                                   spec->loss->name, strata_dtype_name(losses->dtype), strata_shape_text(losses->shape).text,
                                   strata_shape_text(wanted).text);
    return losses;
}

/* The loss of each example: the weighted sum over the outputs, times the example's weight. */
static strata_tensor *example_losses(const builder *b, strata_tensor *const *outputs, strata_tensor *const *labels) {
    strata_tensor *losses = NULL;
    for (int i = 0; i < b->model->n_outputs; i++) {
        strata_tensor *own = output_losses(b, i, outputs[i], labels[i]);
        if (b->model->outputs[i].weight != 1) own = times(own, b->model->outputs[i].weight);
        losses = losses ? strata_add(losses, own) : own;
    }
    if (b->opts.form.weighted)
        losses = strata_mul(losses, strata_input(b->graph, "example_weights", STRATA_DTYPE_F32, STRATA_SHAPE(b->opts.batch)));
    return strata_tensor_set_name(losses, "loss");
}

/* This device's share of the batch, or of its own examples where it makes an update of its own, times the loss scale; 0: it has
 * no examples. */
static strata_tensor *share_of(builder *b) {
    if (!b->share) b->share = b->opts.divided ? summed_input(b, "share") : word_of(b, STRATA_STEP_SHARE);
    return b->share;
}

static strata_tensor *times_examples(const builder *b, strata_tensor *x) {
    return b->opts.divided ? strata_mul(x, b->context.examples) : times(x, (double)b->opts.batch);
}

/* The batch's contribution to the epoch's sums. The layers' penalty is added to the loss of each example. */
static strata_tensor *batch_sums(const builder *b, strata_tensor *per_example, strata_tensor *const *outputs,
                                 strata_tensor *const *labels) {
    static const strata_loss without_answers = {.answers = STRATA_ANSWERS_NONE};
    const strata_output_spec *first = &b->model->outputs[0];
    const strata_loss *loss = b->model->n_outputs == 1 ? first->loss : &without_answers;
    strata_tensor *sums = strata_model_metric_sums(
        b->model, strata_metric_answer_sums(loss, &first->loss_options, per_example, outputs[0], labels[0]), outputs, labels);
    if (!b->context.penalty) return sums;
    return add_to_loss(sums, times_examples(b, b->context.penalty));
}

/* The losses of the examples, with the batch's sums and what exact metrics need of the examples. Losses that take logits get
 * them. */
static strata_tensor *forward_to_losses(builder *b, strata_tensor **out_sums) {
    strata_tensor *outputs[STRATA_MAX_OUTPUTS], *labels[STRATA_MAX_OUTPUTS];
    forward(b, outputs);
    for (int i = 0; i < b->model->n_outputs; i++) {
        const strata_output_spec *spec = &b->model->outputs[i];
        outputs[i] = strata_loss_logits(spec->loss, &spec->loss_options, outputs[i]);
    }
    for (int i = 0; i < b->model->n_outputs; i++) labels[i] = labels_input(b, i);
    strata_tensor *losses = example_losses(b, outputs, labels);
    *out_sums = batch_sums(b, losses, outputs, labels);
    b->step->scores = strata_model_metric_scores(b->model, outputs, labels);
    return losses;
}

/* ---- the forward pass of a training step ---- */

static computed compute(builder *b) {
    computed c = {0};
    b->context.training = true;
    b->context.rng = strata_input(b->graph, "rng", STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS));
    if (!b->opts.batch) { /* the layers are built only to learn how states change; the passes remove them */
        strata_tensor *outputs[STRATA_MAX_OUTPUTS];
        b->opts.batch = 1;
        if (b->model->parameters.state_size) forward(b, outputs);
        b->opts.batch = 0;
        return c;
    }
    c.y = forward_to_losses(b, &c.sums);
    c.dy = strata_input(b->graph, "weights", STRATA_DTYPE_F32, STRATA_SHAPE(b->opts.batch));
    strata_tensor_set_name(c.sums, "sums");
    if (b->model->parameters.state_size) c.state = strata_layer_context_new_state(&b->context);
    if (!b->context.penalty) return c;
    /* The layers' penalty is multiplied by this replica's share of the whole batch. */
    c.y = strata_reduce_sum(strata_mul(c.y, c.dy), NULL, 0, false);
    c.y = strata_add(c.y, strata_mul(b->context.penalty, share_of(b)));
    c.dy = NULL;
    return c;
}

/* ---- gradients: their layout ---- */

/* The model's input that is this tensor; -1: none. */
static int input_of(const builder *b, const strata_tensor *x) {
    for (int i = 0; i < b->model->n_inputs; i++)
        if (b->context.inputs[i] == x) return i;
    return -1;
}

/* Parts [first, last) of the parameters, whose gradients are communicated together: elements [begin, end) of the block's
 * gradients. */
typedef struct bucket {
    int first, last;
    int64_t begin, end;
} bucket;

static bool has_sparse(const strata_model *model) {
    return model->parameters.dense_size < model->parameters.flat_size;
}

/* Whether a block can be updated only after the gradients of all blocks are known. */
static bool needs_all_blocks(const strata_model *model) {
    return strata_optimizer_takes_norms(&model->optimizer) || model->scale.value > 0 || model->measures_norm;
}

bool strata_step_needs_all_gradients(const strata_model *model) {
    return needs_all_blocks(model) || model->strategy->workers.wire != STRATA_DTYPE_F32;
}

static const strata_parameter_spec *parameter_of(const builder *b, int part) {
    return &b->model->parameters.items[b->model->parameters.parts[part].parameter];
}

/* The number of elements of the gradient of a sparse parameter's part, which has all rows or only those that the batch uses. */
static int64_t sparse_gradient_size(const builder *b, int part) {
    const strata_parameter_part *p = &b->model->parameters.parts[part];
    const strata_tensor *row = b->context.rows[p->parameter].row;
    return strata_parameter_aligned(strata_shape_elements(row ? strata_tensor_shape(row) : p->shape));
}

/* Whether the device counts how often each row of a sparse parameter's part is used. */
static bool counts_uses(const builder *b, int part) {
    const strata_sparse_rows *rows = &b->context.rows[b->model->parameters.parts[part].parameter];
    return parameter_of(b, part)->sparse && !rows->row && !(b->host_knows_rows && input_of(b, rows->x) >= 0);
}

/* Computes the layout of the gradients, after the layers were built, when the number of rows that they use is known. Gradients
 * are in the order of the parameters; for a sparse parameter there may be gradients of the used rows only. */
static bool place_gradients(builder *b) {
    const strata_parameter_set *set = &b->model->parameters;
    const size_t n = (size_t)(set->n_blocks + set->n_parts);
    int64_t *sizes = strata_graph_alloc(b->graph, 2 * n * sizeof *sizes);
    if (!sizes) return false;
    b->n_gradients = sizes;
    b->n_all = sizes + set->n_blocks;
    b->gradient_at = b->n_all + set->n_blocks;
    b->uses_at = b->gradient_at + set->n_parts;
    for (int k = 0; k < set->n_blocks; k++) {
        const strata_parameter_block *at = &set->blocks[k];
        b->n_gradients[k] =
            at->shaped ? strata_shape_elements(strata_parameter_block_shape(set, k)) : at->dense_end - at->begin;
        for (int i = at->first_part; i < at->first_part + at->n_parts; i++) {
            b->gradient_at[i] = parameter_of(b, i)->sparse ? b->n_gradients[k] : set->parts[i].offset - at->begin;
            if (parameter_of(b, i)->sparse) b->n_gradients[k] += sparse_gradient_size(b, i);
        }
        b->n_all[k] = b->n_gradients[k];
        for (int i = at->first_part; i < at->first_part + at->n_parts; i++) {
            b->uses_at[i] = counts_uses(b, i) ? b->n_all[k] : -1;
            if (counts_uses(b, i)) b->n_all[k] += strata_parameter_aligned(set->parts[i].shape.dims[0]);
        }
    }
    return true;
}

/* The indices of all rows of a sparse parameter's part, with -1 for rows that the batch does not use. gradients: those of its
 * block, followed by the counts. */
static strata_tensor *used_rows(const builder *b, int part, strata_tensor *gradients) {
    const int64_t n = b->model->parameters.parts[part].shape.dims[0];
    strata_tensor *zero = strata_scalar(b->graph, STRATA_DTYPE_F32, 0), *none = strata_scalar(b->graph, STRATA_DTYPE_I32, -1);
    strata_tensor *uses = slice(gradients, b->uses_at[part], n);
    return strata_where(strata_greater(uses, zero), strata_arange(b->graph, n), none);
}

/* Divides the `end` elements of a block's gradients into at most STRATA_MOST_BUCKETS buckets of about the strategy's size. The
 * last layers' gradients come first, since they are computed first. */
static int make_buckets(const strata_model *model, int block, int64_t end, bool whole, bucket buckets[STRATA_MOST_BUCKETS]) {
    const strata_parameter_set *set = &model->parameters;
    const strata_parameter_block *at = &set->blocks[block];
    const int64_t share = set->flat_size / STRATA_MOST_BUCKETS, asked = model->strategy->bucket_bytes / 4;
    const int64_t least = asked > share ? asked : share;
    int n = 0, last = at->first_part + at->n_parts;
    for (int i = last - 1; i > at->first_part && !whole && n < STRATA_MOST_BUCKETS - 1; i--) {
        const int64_t begin = set->parts[i].offset - at->begin;
        if (end - begin <= least) continue;
        buckets[n++] = (bucket){i, last, begin, end};
        last = i;
        end = begin;
    }
    buckets[n++] = (bucket){at->first_part, last, 0, end};
    return n;
}

/* There is only one bucket if computing gradients needs exchanges itself, which each bucket would repeat, and if there are
 * sparse parameters, which have another order. */
static int buckets_of(const builder *b, int block, bucket buckets[STRATA_MOST_BUCKETS]) {
    const bool whole = !b->exchanges || b->context.exchanges_inside || has_sparse(b->model) || b->model->placements;
    return make_buckets(b->model, block, b->n_all[block], whole, buckets);
}

int strata_model_list_buckets(const strata_model *model, struct strata_gradient_bucket out_buckets[STRATA_MOST_BUCKETS]) {
    bucket buckets[STRATA_MOST_BUCKETS];
    const strata_parameter_block *first = &model->parameters.blocks[0];
    if (model->parameters.n_blocks != 1 || first->begin || has_sparse(model)) return 0;
    const int n = make_buckets(model, 0, first->dense_end, false, buckets);
    for (int k = 0; k < n; k++) out_buckets[k] = (struct strata_gradient_bucket){buckets[k].begin, buckets[k].end};
    return n > 1 ? n : 0;
}

/* ---- gradients of this device's examples ---- */

/* Counts how often each of the row indices 0 .. n_rows - 1 occurs in x, as f32 (n_rows). */
static strata_tensor *count_uses(strata_tensor *x, int64_t n_rows) {
    const int64_t n = strata_shape_elements(strata_tensor_shape(x));
    strata_tensor *one = strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, 1);
    return strata_unsorted_segment_sum(strata_broadcast_to(one, STRATA_SHAPE(n, 1)), strata_reshape(x, STRATA_SHAPE(n)),
                                       n_rows);
}

/* The tensor with respect to which the part's gradient is computed: the gathered rows, or the part itself. */
static strata_tensor *source_of(const builder *b, int part) {
    strata_tensor *row = b->context.rows[b->model->parameters.parts[part].parameter].row;
    return row ? row : b->context.parts[part];
}

/* The gradients of y with respect to the parts [first, last); dy is the gradient of y. There is room for as many more. */
static strata_tensor **part_gradients(const builder *b, int first, int last, strata_tensor *y, strata_tensor *dy) {
    const size_t n = (size_t)(last - first);
    strata_tensor **sources = strata_graph_alloc(b->graph, 3 * n * sizeof *sources);
    for (int i = first; i < last && sources; i++) {
        sources[i - first] = source_of(b, i);
        if (!sources[i - first])
            strata_graph_poison(b->graph, NULL, STRATA_INTERNAL, "parameter %s is not in the graph", parameter_of(b, i)->name);
    }
    if (!sources || b->graph->status) return NULL;
    strata_gradients(y, dy, sources, (int)n, sources + n);
    return sources + n;
}

/* Under a mesh the backward pass has exchanges, so the gradients of all parts are computed together. */
static strata_tensor *shaped_gradient(builder *b, int part, strata_tensor *y, strata_tensor *dy) {
    if (!b->all_gradients) b->all_gradients = part_gradients(b, 0, b->model->parameters.n_parts, y, dy);
    return b->all_gradients ? b->all_gradients[part] : &b->graph->poison;
}

/* The gradients of y with respect to the bucket's parameters, in the layout of place_gradients. */
static strata_tensor *bucket_gradients(builder *b, const bucket *range, strata_tensor *y, strata_tensor *dy) {
    const strata_parameter_set *set = &b->model->parameters;
    const size_t most = (size_t)(range->last - range->first);
    if (set->blocks[set->parts[range->first].block].shaped) return shaped_gradient(b, range->first, y, dy);
    strata_tensor **gradients = part_gradients(b, range->first, range->last, y, dy);
    int64_t *offsets = strata_graph_alloc(b->graph, 2 * most * sizeof *offsets);
    int n = 0, n_uses = 0;
    if (!gradients || !offsets)
        return strata_graph_poison(b->graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for gradients");
    for (int i = range->first; i < range->last; i++) offsets[n++] = b->gradient_at[i] - range->begin;
    for (int i = range->first; i < range->last; i++) {
        const strata_parameter_part *part = &set->parts[i];
        if (b->uses_at[i] < 0) continue;
        strata_tensor *x = strata_parameter_rows_of(part, b->context.rows[part->parameter].x);
        offsets[n + n_uses] = b->uses_at[i];
        gradients[n + n_uses++] = count_uses(x, part->shape.dims[0]);
    }
    return strata_pack(gradients, offsets, n + n_uses, range->end - range->begin);
}

static strata_tensor *own_gradients(builder *b, const computed *c, int block, const bucket *range) {
    if (c->gradients && b->model->parameters.blocks[block].shaped) return c->gradients[block];
    if (c->gradients) return slice(c->gradients[block], range->begin, range->end - range->begin);
    return c->y ? bucket_gradients(b, range, c->y, c->dy) : NULL;
}

/* This device's gradients of a block, (n_all[block]). NULL: it has none. */
static strata_tensor *all_own_gradients(builder *b, const computed *c, int block) {
    const strata_parameter_block *at = &b->model->parameters.blocks[block];
    const bucket all = {at->first_part, at->first_part + at->n_parts, 0, b->n_all[block]};
    return own_gradients(b, c, block, &all);
}

/* ---- over replicas ---- */

/* Adds up x, f32 of this shape, over the replicas; devices that update get the result. Without other replicas x is returned. */
static strata_tensor *sum_over_replicas(builder *b, strata_tensor *x, strata_shape shape, strata_reduction reduction,
                                        bool gradients) {
    if (!b->exchanges) return x;
    const strata_all_reduce_attrs attrs = {
        .common = {.dtype = STRATA_DTYPE_F32, .shape = shape}, .reduction = reduction, .gradients = gradients};
    return strata_all_reduce_among(b->graph, x, attrs);
}

static void reduce_sums(builder *b, computed *c) {
    const strata_model *model = b->model;
    c->reduced = true;
    c->sums = sum_over_replicas(b, c->sums, STRATA_SHAPE(model->metrics.n_sums), STRATA_REDUCE_SUM, false);
    /* Accumulated states are parts of a mean already. */
    const strata_reduction states = c->rates ? STRATA_REDUCE_SUM : STRATA_REDUCE_MEAN;
    if (!model->parameters.state_size) return;
    /* Each stage has the new states of its own layers; all get them before the mean over the replicas. */
    if (b->context.has_stages)
        c->state = strata_move_along(c->state, b->context.stage_axis, STRATA_EVERY_STAGE, STRATA_EVERY_STAGE);
    c->state = sum_over_replicas(b, c->state, STRATA_SHAPE(model->parameters.state_size), states, false);
}

/* The sum over replicas of a block's gradients. The first call also adds up c's sums and states. */
static strata_tensor *reduce(builder *b, computed *c, int block) {
    bucket buckets[STRATA_MOST_BUCKETS];
    strata_tensor *parts[STRATA_MOST_BUCKETS] = {NULL};
    const int n = buckets_of(b, block, buckets);
    const bool shaped = b->model->parameters.blocks[block].shaped;
    for (int k = 0; k < n; k++) {
        strata_tensor *own = own_gradients(b, c, block, &buckets[k]);
        if (k == n - 1 && !c->reduced) reduce_sums(b, c);
        /* In the order of the parameters: the last bucket has the first ones. */
        const strata_shape shape = shaped ? strata_parameter_block_shape(&b->model->parameters, block)
                                          : STRATA_SHAPE(buckets[k].end - buckets[k].begin);
        parts[n - 1 - k] = sum_over_replicas(b, own, shape, STRATA_REDUCE_SUM, true);
    }
    return n > 1 ? strata_concat(parts, n, 0) : parts[0];
}

/* ---- the update ---- */

/* The tensors of a block's update. */
typedef struct block_update {
    /* The sum of the gradients over replicas, followed by the counts of used rows. */
    strata_tensor *used;
    strata_update update;
} block_update;

static int n_slots(const builder *b) {
    return strata_model_n_slots(b->model);
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
    strata_tensor *gradients = slice(all->gradients, b->gradient_at[part], strata_shape_elements(shape));
    step.parameters = rows;
    step.gradients = strata_reshape(gradients, shape);
    for (int s = 0; s < n_slots(b); s++) step.slots[s] = gather(b, part, all->slots[s], ids);
    strata_tensor *changed = b->model->optimizer_kind->build(&b->model->optimizer, &step);
    all->parameters = strata_scatter_update(all->parameters, first, n_rows, ids, changed, NULL);
    for (int s = 0; s < n_slots(b); s++)
        all->slots[s] = strata_scatter_update(all->slots[s], first, n_rows, ids, step.slots[s], changed);
}

static void update_sparse(builder *b, block_update *blocks, int k) {
    const strata_parameter_set *set = &b->model->parameters;
    for (int i = set->blocks[k].first_part; i < set->blocks[k].first_part + set->blocks[k].n_parts; i++) {
        const strata_sparse_rows *rows = &b->context.rows[set->parts[i].parameter];
        if (!set->items[set->parts[i].parameter].sparse) continue;
        strata_tensor *ids = rows->row ? rows->ids : used_rows(b, i, blocks[k].used);
        update_rows(b, blocks, i, ids, rows->row ? rows->row : gather(b, i, blocks[k].update.parameters, ids));
    }
}

/* ---- a block ---- */

/* Sets the operands of the optimizer's node, except the gate. */
static void begin_block(builder *b, block_update *block, int k, strata_tensor *gradients) {
    block->used = gradients;
    block->update = (strata_update){
        .parameters = b->step->blocks[k], .gradients = gradients, .step = b->words, .segments = &b->model->segments[k]};
    for (int s = 0; s < n_slots(b); s++)
        block->update.slots[s] = strata_variable_read(b->graph, variables_of(b)->blocks[k].slots[s]);
    if (b->n_gradients[k] < b->n_all[k]) block->update.gradients = slice(gradients, 0, b->n_gradients[k]);
    if (b->scaled) block->update.gradients = strata_mul(block->update.gradients, word_of(b, STRATA_STEP_SCALE));
}

/* Adds the optimizer's node for a block's dense parameters. */
static void update_block(builder *b, block_update *block, int k) {
    const strata_model *model = b->model;
    const strata_parameter_block *at = &model->parameters.blocks[k];
    strata_update *u = &block->update;
    if (at->dense_end < at->end) u->gradients = slice(u->gradients, 0, at->dense_end - at->begin);
    if (at->dense_end > at->begin) {
        add_update(b, model->optimizer_kind->build(&model->optimizer, u));
        return;
    }
    for (int s = 0; s < n_slots(b); s++) add_update(b, u->slots[s]);
    add_update(b, u->parameters);
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
    strata_tensor *share = may_be_idle(b) ? share_of(b) : NULL;
    int n = 1;
    if (share) sums = strata_where(strata_greater(share, times_zero(share)), sums, times_zero(share));
    if (b->model->scale.value > 0) {
        overflow = times_zero(square);
        output[n++] = strata_reshape(overflow, STRATA_SHAPE(1));
    } else if (square) {
        /* If the norm of all gradients is computed anyway, a norm that is not finite is added to the loss, which closes the
         * gate. */
        sums = add_to_loss(sums, times_zero(square));
    }
    if (b->model->measures_norm) output[n++] = strata_reshape(square, STRATA_SHAPE(1));
    output[0] = sums;
    b->output = n > 1 ? strata_concat(output, n, 0) : sums;
    strata_variable *metrics = variables_of(b)->metrics;
    strata_tensor *epoch = add_update(b, strata_assign_add(strata_variable_read(b->graph, metrics), sums));
    strata_tensor *gate = strata_reshape(slice(epoch, 0, 1), STRATA_SHAPE());
    if (share) gate = strata_add(gate, strata_div(times_zero(share), share)); /* 0, or NaN without examples */
    return overflow ? strata_add(gate, overflow) : gate;
}

static void update_state(builder *b, const computed *c, strata_tensor *gate) {
    if (!b->model->parameters.state_size) return;
    strata_tensor *rates = c->rates ? c->rates : strata_layer_context_state_rates(&b->context, b->graph);
    add_update(b, strata_moving_average(b->context.state, c->state, rates, gate));
}

/* Adds up the gradients over replicas, and updates parameters, slots, states and the epoch's sums. For each block, beginning
 * with that of the last layers, it adds up the gradients and runs the optimizer. If an update needs the gradients of all blocks
 * (their norm, or f16's check for overflow), all sums come before the first update. */
static void update(builder *b, computed *c) {
    const int n = b->model->parameters.n_blocks;
    const bool together = needs_all_blocks(b->model);
    block_update *blocks = strata_graph_alloc(b->graph, (size_t)n * sizeof *blocks);
    strata_tensor *gate = NULL;
    if (!blocks) return;
    for (int k = n - 1; k >= 0 && together; k--) begin_block(b, &blocks[k], k, reduce(b, c, k));
    for (int k = n - 1; k >= 0; k--) {
        const bool first = k == n - 1;
        strata_tensor *square = NULL;
        if (!together) begin_block(b, &blocks[k], k, reduce(b, c, k));
        if (!together || first) square = together ? clip(b, blocks, 0, n) : clip(b, blocks, k, 1);
        if (first) gate = open_gate(b, c, square);
        if (first) update_state(b, c, gate);
        for (int i = 0; i < n; i++) blocks[i].update.gate = gate;
        update_sparse(b, blocks, k);
        update_block(b, &blocks[k], k);
    }
}

/* ---- training ---- */

static void build_train(builder *b) {
    computed c = compute(b);
    if (place_gradients(b)) update(b, &c);
}

/* ---- accumulation ---- */

static void add_to(builder *b, strata_variable *accumulated, strata_tensor *value) {
    if (accumulated) add_update(b, strata_assign_add(strata_variable_read(b->graph, accumulated), value));
}

/* A batch moves the states towards the mean of the states of the replicas that have examples of it. Each replica adds its part
 * of this mean, so that the sum of `accumulated` over the replicas is that of one device. An idle replica adds 0: what it has
 * accumulated from earlier batches becomes older by one batch all the same. */
static void accumulate_states(builder *b, strata_variable *accumulated, strata_tensor *state) {
    strata_tensor *rates = strata_layer_context_state_rates(&b->context, b->graph);
    strata_tensor *share = b->opts.divided ? summed_input(b, "state_share") : word_of(b, STRATA_STEP_STATE_SHARE);
    strata_tensor *part = strata_mul(state, share);
    add_update(b, strata_moving_average(strata_variable_read(b->graph, accumulated), part, rates, NULL));
}

static void build_accumulate(builder *b) {
    const strata_model_replica *own = variables_of(b);
    const computed c = compute(b);
    if (!place_gradients(b)) return;
    for (int k = 0; k < b->model->parameters.n_blocks; k++) add_to(b, own->blocks[k].accumulated, all_own_gradients(b, &c, k));
    add_to(b, own->accumulated_sums, c.sums);
    if (own->accumulated_states) accumulate_states(b, own->accumulated_states, c.state);
}

/* The moving averages change as if each batch had updated them, one after the other. Those of n batches x_i that begin with 0
 * are A = sum r (1 - r)^(n - 1 - i) x_i, whose weights add up to w = 1 - (1 - r)^n. With them a state s becomes
 * (1 - r)^n s + A = s + w (A / w - s). */
static void average_states(builder *b, strata_tensor *accumulated, computed *c) {
    strata_tensor *rates = strata_layer_context_state_rates(&b->context, b->graph);
    strata_tensor *one = strata_scalar(b->graph, STRATA_DTYPE_F32, 1);
    c->rates = strata_sub(one, strata_pow(strata_sub(one, rates), word_of(b, STRATA_STEP_BATCHES)));
    if (accumulated) c->state = strata_div(accumulated, c->rates);
}

static strata_tensor *read_accumulated(builder *b, strata_variable *accumulated) {
    return accumulated ? strata_variable_read(b->graph, accumulated) : NULL;
}

static void clear_accumulated(builder *b, strata_tensor *accumulated) {
    strata_tensor *zero = strata_scalar(b->graph, STRATA_DTYPE_F32, 0);
    if (accumulated) add_update(b, strata_assign(accumulated, strata_broadcast_to(zero, strata_tensor_shape(accumulated))));
}

static void build_apply(builder *b) {
    const strata_model_replica *own = variables_of(b);
    const int n = b->model->parameters.n_blocks;
    strata_tensor **accumulated = strata_graph_alloc(b->graph, (size_t)n * sizeof *accumulated);
    if (!accumulated) return;
    for (int k = 0; k < n; k++) accumulated[k] = read_accumulated(b, own->blocks[k].accumulated);
    strata_tensor *sums = read_accumulated(b, own->accumulated_sums), *states = read_accumulated(b, own->accumulated_states);
    computed c = compute(b);
    c.gradients = accumulated[0] ? accumulated : NULL;
    c.sums = sums;
    if (b->model->parameters.state_size) average_states(b, states, &c);
    b->scaled = true;
    if (!place_gradients(b)) return;
    update(b, &c);
    for (int k = 0; k < n; k++) clear_accumulated(b, accumulated[k]);
    clear_accumulated(b, sums);
    clear_accumulated(b, states);
}

/* ---- averages ---- */

static strata_tensor *keep(const strata_step_replica *replica, strata_tensor *node) {
    return add_update(replica->builder, node);
}

static void average(builder *b, const strata_step_replica *replica, strata_tensor *own) {
    add_update(b, strata_assign(own, b->model->strategy->average(replica, own)));
}

static void build_average(builder *b) {
    const strata_step_replica replica = {.index = b->model->strategy->workers.first_replica + b->opts.replica,
                                         .n = strata_strategy_num_replicas_in_sync(b->model->strategy),
                                         .keep = keep,
                                         .builder = b};
    for (int k = 0; k < b->model->parameters.n_blocks; k++) average(b, &replica, b->step->blocks[k]);
    if (b->context.state) average(b, &replica, b->context.state);
}

/* ---- gradients as outputs ---- */

/* The changes of the states by this batch, which are added to the states later, and the states' rates. A state with the rate 0
 * does not change, even if it is infinite. */
static strata_tensor *state_changes(builder *b, const computed *c) {
    strata_tensor *rates = strata_layer_context_state_rates(&b->context, b->graph);
    strata_tensor *none = strata_scalar(b->graph, STRATA_DTYPE_F32, 0);
    strata_tensor *changes = strata_mul(rates, strata_sub(c->state, b->context.state));
    strata_tensor *both[] = {strata_where(strata_equal(rates, none), none, changes), rates};
    return strata_concat(both, 2, 0);
}

static bool views(const strata_tensor *x, const strata_tensor *of) {
    while (x != of && strata_is_view(x, NULL)) x = x->inputs[0];
    return x == of;
}

/* Whether x is used as row indices of the part's table and for nothing else. Gathers of a layer that is computed again read an
 * alias of the table. */
static bool names_rows_only(const builder *b, const strata_tensor *x, const strata_tensor *table) {
    int n_gathers = 0;
    for (int i = 0; i < b->graph->n_nodes; i++) {
        const strata_tensor *node = b->graph->nodes[i];
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->inputs[k] != x) continue;
            const bool gathers = node->op == &strata_op_gather && views(node->inputs[0], table);
            if (k != 1 || (!gathers && node->op != &strata_op_gather_grad)) return false;
            n_gathers += gathers;
        }
    }
    return n_gathers > 0;
}

static void list_sparse(builder *b) {
    const strata_parameter_set *set = &b->model->parameters;
    strata_gradient_layout *layout = &b->step->layout;
    for (int i = 0; i < set->n; i++) {
        const strata_parameter_spec *p = &set->items[i];
        const strata_sparse_rows *rows = &b->context.rows[i];
        if (!p->sparse) continue;
        if (!rows->x || p->n_parts > 1) {
            strata_graph_poison(
                b->graph, NULL, STRATA_UNSUPPORTED,
                "parameter %s is sparse, and is larger than the device binds in one piece or not used by its layer; "
                "leave out sparse",
                p->name);
            return;
        }
        const int input = input_of(b, rows->x), block = set->parts[p->first_part].block;
        const bool all = !rows->row && input >= 0;
        strata_tensor *ids = rows->row ? rows->ids : all ? NULL : used_rows(b, p->first_part, b->step->outputs[1 + block]);
        layout->sparse[layout->n_sparse++] =
            (struct strata_sparse_gradient){.parameter = i,
                                            .ids = all ? -1 : b->step->n_outputs,
                                            .n_ids = all ? p->shape.dims[0] : strata_shape_elements(strata_tensor_shape(ids)),
                                            .block = block,
                                            .place = b->gradient_at[p->first_part],
                                            .input = input,
                                            .renumbers = all && names_rows_only(b, rows->x, b->context.parts[p->first_part])};
        if (!all) add_output(b, ids);
    }
}

/* Sums and states stay on the device, so only gradients are added up where they are placed. */
static void build_gradients(builder *b) {
    const strata_parameter_set *set = &b->model->parameters;
    computed c = compute(b);
    c.reduced = true;
    b->host_knows_rows = true;
    b->step->outputs = strata_graph_alloc(b->graph, (size_t)(2 + set->n_blocks + set->n) * sizeof *b->step->outputs);
    b->step->layout.sparse = strata_graph_alloc(b->graph, ((size_t)set->n + 1) * sizeof *b->step->layout.sparse);
    if (!place_gradients(b) || !b->step->outputs || !b->step->layout.sparse) return;
    add_output(b, c.sums);
    if (b->exchanges) b->step->layout.n_buckets = strata_model_list_buckets(b->model, b->step->layout.buckets);
    for (int k = 0; k < set->n_blocks; k++) add_output(b, reduce(b, &c, k));
    if (c.state) add_output(b, state_changes(b, &c));
    list_sparse(b);
}

/* ---- the others ---- */

static void build_evaluate(builder *b) {
    forward_to_losses(b, &b->output);
}

/* The predictions of several outputs are concatenated for each example: (B, all). */
static void build_predict(builder *b) {
    strata_tensor *outputs[STRATA_MAX_OUTPUTS];
    const int n = b->model->n_outputs;
    forward(b, outputs);
    for (int i = 0; i < n; i++) {
        const strata_output_spec *spec = &b->model->outputs[i];
        outputs[i] = strata_loss_predict(spec->loss, &spec->loss_options, outputs[i]);
        const strata_shape given = strata_tensor_shape(outputs[i]);
        if (!strata_tensor_is_poison(outputs[i]) &&
            strata_shape_elements(given) != b->opts.batch * strata_shape_elements(spec->shape))
            strata_graph_poison(b->graph, NULL, STRATA_INVALID,
                                "loss %s: its predict function made %s of outputs (%lld, ...) of %s", spec->loss->name,
                                strata_shape_text(given).text, (long long)b->opts.batch, strata_shape_text(spec->shape).text);
        if (n > 1) outputs[i] = strata_reshape(outputs[i], STRATA_SHAPE(b->opts.batch, strata_shape_elements(spec->shape)));
    }
    b->output = n > 1 ? strata_concat(outputs, n, 1) : outputs[0];
}

/* Prepares the layers' context: arrays that layers fill in, and reads of the variables that they use. */
static strata_status begin(builder *b, strata_error *err) {
    strata_model_begin_layers(b->model, b->opts.replica, b->graph, &b->context);
    STRATA_TRY(strata_graph_check(b->graph, err));
    b->step->blocks = b->context.blocks;
    b->words = strata_input(b->graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    return STRATA_OK;
}

/* Whether gradients of sparse parameters have only the rows that the batch uses: if no other replica and no other batch
 * contributes to the update, and each of these parameters is in one buffer. */
static bool takes_rows(const strata_model *model, strata_program_kind kind, bool divided) {
    for (int i = 0; i < model->parameters.n; i++)
        if (model->parameters.items[i].sparse && model->parameters.items[i].n_parts > 1) return false;
    return (kind == STRATA_PROGRAM_TRAIN || kind == STRATA_PROGRAM_GRADIENTS) && !divided;
}

strata_status strata_step_build(strata_step *step, strata_model *model, strata_program_kind kind,
                                const strata_step_options *opts, strata_error *err) {
    static void (*const builders[])(builder *) = {
        [STRATA_PROGRAM_TRAIN] = build_train,         [STRATA_PROGRAM_ACCUMULATE] = build_accumulate,
        [STRATA_PROGRAM_APPLY] = build_apply,         [STRATA_PROGRAM_AVERAGE] = build_average,
        [STRATA_PROGRAM_GRADIENTS] = build_gradients, [STRATA_PROGRAM_EVALUATE] = build_evaluate,
        [STRATA_PROGRAM_PREDICT] = build_predict};
    builder b = {.model = model,
                 .step = step,
                 .opts = *opts,
                 .exchanges = opts->divided && !strata_strategy_has_own(model->strategy),
                 .context = {.dtype = model->precision,
                             .has_replicas = opts->has_replicas,
                             .costs = opts->layers,
                             .takes_rows = takes_rows(model, kind, opts->divided)},
                 .scaled = model->scale.value > 0};
    *step = (strata_step){0};
    STRATA_TRY(strata_graph_create(&b.graph, err));
    step->graph = b.graph;
    b.context.has_stages = opts->divided && strata_model_has_stages(model);
    b.context.stage_axis = STRATA_STAGE_AXIS;
    /* A team says that all devices that compute need a sum, not only where updates are made. */
    b.context.replicas = strata_team_of_first(b.graph, model->strategy->n_replicas);
    strata_status status = begin(&b, err);
    if (!status) {
        builders[kind](&b);
        list_outputs(&b);
        status = strata_graph_check(b.graph, err);
        if (!status && opts->layers && strata_program_has_gradients(kind))
            status = strata_recompute_weigh(step, opts->layers, strata_model_n_calls(model), err);
        if (!status && b.context.exchanges_inside && strata_strategy_has_own(model->strategy))
            status =
                strata_fail(err, STRATA_UNSUPPORTED,
                            "strategy %s: a layer exchanges values of all replicas in each step (synchronized batch norm), "
                            "but each replica trains on its own; leave out synchronized, or use another strategy",
                            model->strategy->name);
    }
    if (status) {
        strata_graph_destroy(b.graph);
        *step = (strata_step){0};
    }
    return status;
}
