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
 * gradients.c builds the buckets and exchanges, update.c the update. The exchanges are all_reduces; divide.c says where values
 * and the update are placed, and the partitioner makes each device's part. If the parameters have several blocks, this is done
 * for each block; sums and states are exchanged with the first.
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
#include "core/model/step.h"

#include "core/graph/graph.h"
#include "core/metric/metric.h"
#include "core/model/build.h"
#include "core/model/loop.h"
#include "core/model/metrics.h"
#include "core/op/ops.h"

typedef strata_step_builder builder;
typedef strata_step_computed computed;

strata_tensor *strata_step_add(builder *b, strata_tensor *update) {
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

strata_tensor *strata_step_part(strata_tensor *flat, int64_t first, int64_t n) {
    return strata_slice(flat, &first, &n);
}

strata_tensor *strata_step_word(const builder *b, int64_t word) {
    return strata_reshape(strata_step_part(b->words, word, 1), STRATA_SHAPE());
}

strata_tensor *strata_step_add_to_loss(strata_tensor *sums, strata_tensor *value) {
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

/* As forward, with logits instead of probabilities for losses that take logits. */
static void forward_to_losses(builder *b, strata_tensor **outputs) {
    forward(b, outputs);
    for (int i = 0; i < b->model->n_outputs; i++) {
        const strata_output_spec *spec = &b->model->outputs[i];
        outputs[i] = strata_loss_logits(spec->loss, &spec->loss_options, outputs[i]);
    }
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

strata_tensor *strata_step_share(builder *b) {
    if (!b->share) b->share = b->opts.divided ? summed_input(b, "share") : strata_step_word(b, STRATA_STEP_SHARE);
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
    return strata_step_add_to_loss(sums, times_examples(b, b->context.penalty));
}

/* ---- training ---- */

static computed compute(builder *b) {
    computed c = {0};
    strata_tensor *outputs[STRATA_MAX_OUTPUTS], *labels[STRATA_MAX_OUTPUTS];
    b->context.training = true;
    b->context.rng = strata_input(b->graph, "rng", STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS));
    if (!b->opts.batch) { /* the layers are built only to learn how states change; the passes remove them */
        b->opts.batch = 1;
        if (b->model->parameters.state_size) forward(b, outputs);
        b->opts.batch = 0;
        return c;
    }
    forward_to_losses(b, outputs);
    for (int i = 0; i < b->model->n_outputs; i++) labels[i] = labels_input(b, i);
    c.y = example_losses(b, outputs, labels);
    c.dy = strata_input(b->graph, "weights", STRATA_DTYPE_F32, STRATA_SHAPE(b->opts.batch));
    c.sums = strata_tensor_set_name(batch_sums(b, c.y, outputs, labels), "sums");
    b->step->scores = strata_model_metric_scores(b->model, outputs, labels);
    if (b->model->parameters.state_size) c.state = strata_layer_context_new_state(&b->context);
    if (!b->context.penalty) return c;
    /* The layers' penalty is multiplied by this replica's share of the whole batch. */
    c.y = strata_reduce_sum(strata_mul(c.y, c.dy), NULL, 0, false);
    c.y = strata_add(c.y, strata_mul(b->context.penalty, strata_step_share(b)));
    c.dy = NULL;
    return c;
}

static void build_train(builder *b) {
    computed c = compute(b);
    strata_step_place_gradients(b);
    strata_step_update(b, &c);
}

/* ---- accumulation ---- */

/* The replica whose accumulated variables the graph has. */
static const strata_model_replica *accumulating(const builder *b) {
    return &b->model->replicas[b->opts.divided ? 0 : b->opts.replica];
}

static void add_to(builder *b, strata_variable *accumulated, strata_tensor *value) {
    if (accumulated) strata_step_add(b, strata_assign_add(strata_variable_read(b->graph, accumulated), value));
}

/* A batch moves the states towards the mean of the states of the replicas that have examples of it. Each replica adds its part
 * of this mean, so that the sum of `accumulated` over the replicas is that of one device. An idle replica adds 0: what it has
 * accumulated from earlier batches becomes older by one batch all the same. */
static void accumulate_states(builder *b, strata_variable *accumulated, strata_tensor *state) {
    strata_tensor *rates = strata_layer_context_state_rates(&b->context, b->graph);
    strata_tensor *share = b->opts.divided ? summed_input(b, "state_share") : strata_step_word(b, STRATA_STEP_STATE_SHARE);
    strata_tensor *part = strata_mul(state, share);
    strata_step_add(b, strata_moving_average(strata_variable_read(b->graph, accumulated), part, rates, NULL));
}

static void build_accumulate(builder *b) {
    const strata_model_replica *own = accumulating(b);
    const computed c = compute(b);
    strata_step_place_gradients(b);
    for (int k = 0; k < b->model->parameters.n_blocks; k++)
        add_to(b, own->blocks[k].accumulated, strata_step_own_gradients(b, &c, k));
    add_to(b, own->accumulated_sums, c.sums);
    if (own->accumulated_states) accumulate_states(b, own->accumulated_states, c.state);
}

/* The moving averages change as if each batch had updated them, one after the other. Those of n batches x_i that begin with 0
 * are A = sum r (1 - r)^(n - 1 - i) x_i, whose weights add up to w = 1 - (1 - r)^n. With them a state s becomes
 * (1 - r)^n s + A = s + w (A / w - s). */
static void average_states(builder *b, strata_tensor *accumulated, computed *c) {
    strata_tensor *rates = strata_layer_context_state_rates(&b->context, b->graph);
    strata_tensor *one = strata_scalar(b->graph, STRATA_DTYPE_F32, 1);
    c->rates = strata_sub(one, strata_pow(strata_sub(one, rates), strata_step_word(b, STRATA_STEP_BATCHES)));
    if (accumulated) c->state = strata_div(accumulated, c->rates);
}

static strata_tensor *read_accumulated(builder *b, strata_variable *accumulated) {
    return accumulated ? strata_variable_read(b->graph, accumulated) : NULL;
}

static void clear_accumulated(builder *b, strata_tensor *accumulated) {
    strata_tensor *zero = strata_scalar(b->graph, STRATA_DTYPE_F32, 0);
    if (accumulated)
        strata_step_add(b, strata_assign(accumulated, strata_broadcast_to(zero, strata_tensor_shape(accumulated))));
}

static void build_apply(builder *b) {
    const strata_model_replica *own = accumulating(b);
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
    strata_step_place_gradients(b);
    strata_step_update(b, &c);
    for (int k = 0; k < n; k++) clear_accumulated(b, accumulated[k]);
    clear_accumulated(b, sums);
    clear_accumulated(b, states);
}

/* ---- averages ---- */

static strata_tensor *keep(const strata_step_replica *replica, strata_tensor *node) {
    return strata_step_add(replica->builder, node);
}

static void average(builder *b, const strata_step_replica *replica, strata_tensor *own) {
    strata_step_add(b, strata_assign(own, b->model->strategy->average(replica, own)));
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

int strata_step_input_of(const builder *b, const strata_tensor *x) {
    for (int i = 0; i < b->model->n_inputs; i++)
        if (b->context.inputs[i] == x) return i;
    return -1;
}

/* Whether x is used as row indices of the part's table and for nothing else. */
static bool names_rows_only(const builder *b, const strata_tensor *x, const strata_tensor *table) {
    int n_gathers = 0;
    for (int i = 0; i < b->graph->n_nodes; i++) {
        const strata_tensor *node = b->graph->nodes[i];
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->inputs[k] != x) continue;
            const bool gathers = node->op == &strata_op_gather && node->inputs[0] == table;
            if (k != 1 || (!gathers && node->op != &strata_op_gather_grad)) return false;
            n_gathers += gathers;
        }
    }
    return n_gathers == 1;
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
        const int input = strata_step_input_of(b, rows->x), block = set->parts[p->first_part].block;
        const bool all = !rows->row && input >= 0;
        strata_tensor *ids = rows->row ? rows->ids
                             : all     ? NULL
                                       : strata_step_used_rows(b, p->first_part, b->step->outputs[1 + block]);
        layout->sparse[layout->n_sparse++] =
            (struct strata_sparse_gradient){.parameter = i,
                                            .ids = all ? -1 : b->step->n_outputs,
                                            .n_ids = all ? p->shape.dims[0] : strata_shape_elements(strata_tensor_shape(ids)),
                                            .block = block,
                                            .place = strata_step_gradient_place(b, p->first_part),
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
    strata_step_place_gradients(b);
    b->step->outputs = strata_graph_alloc(b->graph, (size_t)(2 + set->n_blocks + set->n) * sizeof *b->step->outputs);
    b->step->layout.sparse = strata_graph_alloc(b->graph, ((size_t)set->n + 1) * sizeof *b->step->layout.sparse);
    if (!b->step->outputs || !b->step->layout.sparse) return;
    add_output(b, c.sums);
    if (b->exchanges) b->step->layout.n_buckets = strata_model_list_buckets(b->model, b->step->layout.buckets);
    for (int k = 0; k < set->n_blocks; k++) add_output(b, strata_step_reduce(b, &c, k));
    if (c.state) add_output(b, state_changes(b, &c));
    list_sparse(b);
}

/* ---- the others ---- */

static void build_evaluate(builder *b) {
    strata_tensor *outputs[STRATA_MAX_OUTPUTS], *labels[STRATA_MAX_OUTPUTS];
    forward_to_losses(b, outputs);
    for (int i = 0; i < b->model->n_outputs; i++) labels[i] = labels_input(b, i);
    b->output = batch_sums(b, example_losses(b, outputs, labels), outputs, labels);
    b->step->scores = strata_model_metric_scores(b->model, outputs, labels);
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
    /* A channel says that all devices that compute need a sum, not only where updates are made. */
    b.context.replicas = strata_channel_of_first(b.graph, model->strategy->n_replicas);
    strata_status status = begin(&b, err);
    if (!status) {
        builders[kind](&b);
        list_outputs(&b);
        status = strata_graph_check(b.graph, err);
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
