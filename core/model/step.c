/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a model's step, on one device of its strategy.
 *
 *   training      x (B, ...), y (B), weights (B), step, rng [, example_weights (B)] -> sums;  updates parameters, optimizer
 *                 slots, states, the epoch's sums
 *   accumulation  x, y, weights, step, rng -> nothing;  adds gradients, sums, new states to those that the replica holds
 *   application   step -> sums;  the training step's update from what replicas hold, which are zeros then
 *   evaluation    x, y [, example_weights] -> sums
 *   prediction    x -> outputs, as probabilities where the loss classifies
 *
 * sums: of the examples' losses (times example_weights), of right answers, then the words of the metrics. weights: what each
 * example's loss counts in the gradient, 1 / (batch of all replicas); of batches that are accumulated, 1 / (about all of them),
 * and the update's `step` says what that was to be multiplied by. Training with several replicas, in the order of the nodes:
 *
 *   gradients of the last layers, their exchange; gradients of the layers before, ...    one bucket after the other
 *   exchange of sums, of new states (their mean), of the last bucket
 *   the update, on the devices that make it
 *   new parameters and states to the devices that do not
 *
 * Of a sparse parameter the update changes the rows that were used: they are gathered, as its slots' are, the optimizer's own
 * update runs over them, and they are scattered back. Where one replica makes a batch's update the gradient is that of these
 * rows alone, as many as the batch has indices; else that of all rows, which adds up over replicas and batches, and behind the
 * gradients how often each was used, which says whose turn it is.
 *
 * Where gradients are f16 the host feeds weights and shares times the loss scale; `step` says what undoes it. The update is
 * left out when the gradients are not finite, and the output tells.
 *
 * Every device has the same exchanges in the same order; who gives and who takes is its role's. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/model/model.h"
#include "core/op/communication.h"

/* A step while it is built. */
typedef struct builder {
    strata_graph *graph;
    strata_model *model;
    strata_step *step;
    strata_step_role role;
    strata_layer_context context;
    strata_tensor *words; /* the step's numbers, f32 (STRATA_STEP_WORDS) */
    bool scaled;          /* gradients are to be multiplied by one of them */
    int64_t n_gradients;  /* elements of all parameters' gradients */
    int64_t n_all;        /* with the uses of sparse parameters' rows behind them */
} builder;

static strata_tensor *forward(builder *b) {
    const strata_model *model = b->model;
    strata_shape shape = {.rank = model->input.rank + 1, .dims = {b->role.batch}};
    memcpy(shape.dims + 1, model->input.dims, (size_t)model->input.rank * sizeof(int64_t));
    const float scale = b->role.form.byte_scale;
    strata_tensor *x = strata_input(b->graph, "x", scale != 0 ? STRATA_DTYPE_U8 : model->input_dtype, shape);
    if (scale != 0) x = strata_dequantize(x, (double)scale);
    return strata_model_build_layers(b->model, &b->context, x);
}

static strata_tensor *labels_input(builder *b) {
    const strata_loss *loss = b->model->loss;
    const strata_shape one = strata_loss_label_shape(loss, b->model->output);
    strata_shape shape = {.rank = one.rank + 1, .dims = {b->role.batch}};
    memcpy(shape.dims + 1, one.dims, (size_t)one.rank * sizeof(int64_t));
    return strata_input(b->graph, "y", strata_loss_label_dtype(loss), shape);
}

/* Each example's loss, times what the example weighs. */
static strata_tensor *example_losses(const builder *b, strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *losses = b->model->loss->build(&b->model->loss_options, outputs, labels);
    if (b->role.form.weighted)
        losses = strata_mul(losses, strata_input(b->graph, "example_weights", STRATA_DTYPE_F32, STRATA_SHAPE(b->role.batch)));
    return strata_tensor_set_name(losses, "loss");
}

/* Sum of losses and number of right answers (0 where the loss does not classify), f32 (2). */
static strata_tensor *answer_sums(const strata_model *model, strata_tensor *per_example, strata_tensor *outputs,
                                  strata_tensor *labels) {
    switch (model->loss->answers) {
        case STRATA_ANSWERS_CLASS:
            return strata_classification_sums(per_example, outputs, labels);
        case STRATA_ANSWERS_DISTRIBUTION:
            return strata_classification_sums(per_example, outputs, strata_argmax(labels, 1));
        case STRATA_ANSWERS_BINARY:
            outputs = strata_flatten(outputs);
            return strata_binary_sums(per_example, outputs, strata_loss_match(outputs, labels),
                                      model->loss->threshold(&model->loss_options));
        case STRATA_ANSWERS_NONE:
            break;
    }
    strata_tensor *sum = strata_reshape(strata_reduce_sum(per_example, NULL, 0, false), STRATA_SHAPE(1));
    return strata_pad(sum, (int64_t[]){0}, (int64_t[]){1}, 0);
}

/* `value` (one number) added to the sum of losses, sums[0]. */
static strata_tensor *add_to_loss(strata_tensor *sums, strata_tensor *value) {
    int64_t before = 0, after = strata_shape_elements(strata_tensor_shape(sums)) - 1;
    return strata_add(sums, strata_pad(strata_reshape(value, STRATA_SHAPE(1)), &before, &after, 0));
}

static strata_tensor *times(strata_tensor *x, double factor) {
    return strata_mul(x, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, factor));
}

/* What a batch adds to the epoch's sums; its examples' losses have the layers' penalty in them. */
static strata_tensor *batch_sums(const builder *b, strata_tensor *per_example, strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *sums =
        strata_model_metric_sums(b->model, answer_sums(b->model, per_example, outputs, labels), outputs, labels);
    if (!b->context.penalty) return sums;
    return add_to_loss(sums, times(b->context.penalty, (double)strata_tensor_shape(per_example).dims[0]));
}

/* The node of that name; NULL: there is none. */
static strata_tensor *find_named(const strata_graph *graph, const char *name) {
    for (int id = 0; id < graph->n_nodes; id++)
        if (graph->nodes[id]->name && !strcmp(graph->nodes[id]->name, name)) return graph->nodes[id];
    return NULL;
}

/* ---- training ---- */

/* Parameters [first, last) of the model, whose gradients are communicated together: elements [begin, end) of the flat range. */
typedef struct bucket {
    int first, last;
    int64_t begin, end;
} bucket;

static bool has_sparse(const strata_model *model) {
    return model->parameters.dense_size < model->parameters.flat_size;
}

/* Where gradients lie, once the layers have said how many rows they take: as the parameters do, but for rows. */
static void place_gradients(builder *b) {
    const bool rows_only = b->context.takes_rows;
    int64_t end = rows_only ? b->model->parameters.dense_size : b->model->parameters.flat_size;
    b->n_gradients = end;
    for (int i = 0; i < b->model->parameters.n; i++) {
        const strata_parameter_spec *p = &b->model->parameters.items[i];
        strata_sparse_rows *rows = &b->context.rows[i];
        if (!p->sparse) continue;
        rows->place = rows_only ? end : p->offset;
        rows->uses = end;
        end += strata_parameter_aligned(rows_only ? strata_shape_elements(strata_tensor_shape(rows->row)) : p->shape.dims[0]);
    }
    b->n_all = end;
    if (rows_only) b->n_gradients = end;
}

/* Of about the strategy's size, the last layers' first, as their gradients are ready first; at most STRATA_MAX_BUCKETS. One,
 * where gradients
 * need exchanges themselves: each bucket would make those again; and where sparse parameters are not in their order. */
static int make_buckets(const builder *b, bucket buckets[STRATA_MAX_BUCKETS]) {
    const strata_model *model = b->model;
    const int64_t share = model->parameters.flat_size / STRATA_MAX_BUCKETS, asked = model->strategy->bucket_bytes / 4;
    const int64_t least = asked > share ? asked : share;
    int n = 0;
    if (has_sparse(model)) {
        buckets[0] = (bucket){0, model->parameters.n, 0, b->n_all};
        return 1;
    }
    bucket next = {model->parameters.n, model->parameters.n, model->parameters.flat_size, model->parameters.flat_size};
    for (int i = model->parameters.n - 1; i >= 0; i--) {
        next.first = i;
        if (!model->parameters.items[i].state) next.begin = model->parameters.items[i].offset;
        const bool enough = next.end - next.begin > least || next.begin == 0;
        if (!b->role.exchanges || b->context.exchanges_inside || !enough || (n == STRATA_MAX_BUCKETS - 1 && next.begin))
            continue;
        if (next.end > next.begin) buckets[n++] = next;
        next = (bucket){i, i, next.begin, next.begin};
    }
    if (next.end > next.begin) buckets[n++] = (bucket){0, next.last, 0, next.end};
    return n;
}

/* How often x has each of n_rows, f32. */
static strata_tensor *count_uses(strata_tensor *x, int64_t n_rows) {
    const int64_t n = strata_shape_elements(strata_tensor_shape(x));
    strata_tensor *one = strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, 1);
    return strata_unsorted_segment_sum(strata_broadcast_to(one, STRATA_SHAPE(n, 1)), strata_reshape(x, STRATA_SHAPE(n)),
                                       n_rows);
}

/* Gradients of y, with dy, by the bucket's parameters, laid out as place_gradients says. */
static strata_tensor *bucket_gradients(const builder *b, const bucket *range, strata_tensor *y, strata_tensor *dy) {
    const strata_model *model = b->model;
    const size_t most = (size_t)(range->last - range->first);
    strata_tensor **views = calloc(3 * most, sizeof *views), **gradients = views + most, *flat = NULL;
    int64_t *offsets = calloc(2 * most, sizeof *offsets);
    int n = 0, n_uses = 0;
    for (int k = 0; k < 2 * (range->last - range->first) && views && offsets && !flat; k++) { /* the sparse ones lie last */
        const int i = range->first + k % (range->last - range->first);
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (p->state || p->sparse != (k >= range->last - range->first)) continue;
        offsets[n] = (p->sparse ? b->context.rows[i].place : p->offset) - range->begin;
        views[n] = p->sparse && b->context.takes_rows ? b->context.rows[i].row : find_named(b->graph, p->name);
        if (!views[n++] && !b->graph->status)
            flat = strata_graph_poison(b->graph, NULL, STRATA_INTERNAL, "parameter %s is not in the graph", p->name);
    }
    if (!views || !offsets) {
        flat = strata_graph_poison(b->graph, NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for gradients");
    } else if (!flat) {
        strata_gradients(y, dy, views, n, gradients);
        for (int i = range->first; i < range->last && !b->context.takes_rows; i++) {
            const strata_sparse_rows *rows = &b->context.rows[i];
            if (!model->parameters.items[i].sparse) continue;
            offsets[n + n_uses] = rows->uses;
            gradients[n + n_uses++] = count_uses(rows->x, model->parameters.items[i].shape.dims[0]);
        }
        flat = strata_pack(gradients, offsets, n + n_uses, range->end - range->begin);
    }
    free(views);
    free(offsets);
    return flat;
}

/* Keeps an empty node alive. */
static void keep(builder *b, strata_tensor *node) {
    b->step->updates[b->step->n_updates++] = node;
}

/* x of this device, f32 (n), becomes the replicas' fold on those that update. Without other replicas nothing happens. */
static strata_tensor *sum_over_replicas(builder *b, strata_tensor *x, int64_t n, strata_reduction reduction, bool gradients) {
    if (!b->role.exchanges) return x;
    const strata_all_reduce_attrs attrs = {
        .common = {.dtype = STRATA_DTYPE_F32, .shape = STRATA_SHAPE(n), .takes = b->role.updates},
        .reduction = reduction,
        .gradients = gradients};
    if (b->model->strategy->updater < 0) return strata_all_reduce_among(b->graph, x, attrs);
    strata_tensor *node = strata_reduce_to(b->graph, x, attrs);
    if (!b->role.updates) keep(b, node);
    return node;
}

/* What replicas compute; NULL each where this one computes nothing. */
typedef struct computed {
    strata_tensor *y, *dy;    /* the gradients are of y, with dy */
    strata_tensor *gradients; /* instead, where they are held */
    strata_tensor *sums, *state;
} computed;

static strata_tensor *step_word(const builder *b, int64_t word) {
    const int64_t one = 1;
    return strata_reshape(strata_slice(b->words, &word, &one), STRATA_SHAPE());
}

static computed compute(builder *b) {
    computed c = {0};
    b->context.training = true;
    b->context.rng = strata_input(b->graph, "rng", STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS));
    if (!b->role.batch) { /* its layers say how states move, and are left out of the program */
        b->role.batch = 1;
        if (b->model->parameters.state_size) forward(b);
        b->role.batch = 0;
        return c;
    }
    strata_tensor *outputs = forward(b), *labels = labels_input(b);
    c.y = example_losses(b, outputs, labels);
    c.dy = strata_input(b->graph, "weights", STRATA_DTYPE_F32, STRATA_SHAPE(b->role.batch));
    c.sums = strata_tensor_set_name(batch_sums(b, c.y, outputs, labels), "sums");
    if (b->model->parameters.state_size) c.state = strata_layer_context_new_state(&b->context);
    if (!b->context.penalty) return c;
    /* The layers' penalty counts by the step's share of the whole batch. */
    c.y = strata_reduce_sum(strata_mul(c.y, c.dy), NULL, 0, false);
    c.y = strata_add(c.y, strata_mul(b->context.penalty, step_word(b, STRATA_STEP_SHARE)));
    c.dy = NULL;
    return c;
}

/* This device's gradients of a bucket's parameters; NULL: it has none. */
static strata_tensor *own_gradients(const builder *b, const computed *c, const bucket *range) {
    const int64_t size = range->end - range->begin;
    if (c->gradients) return strata_slice(c->gradients, &range->begin, &size);
    return c->y ? bucket_gradients(b, range, c->y, c->dy) : NULL;
}

/* Gradients of all parameters and the other sums over replicas. */
static strata_tensor *reduce(builder *b, computed *c) {
    const bool updates = b->role.updates;
    bucket buckets[STRATA_MAX_BUCKETS];
    strata_tensor *parts[STRATA_MAX_BUCKETS] = {NULL};
    const int n = make_buckets(b, buckets);
    for (int k = 0; k < n; k++) {
        strata_tensor *own = own_gradients(b, c, &buckets[k]);
        if (k == n - 1) {
            c->sums = sum_over_replicas(b, c->sums, b->model->n_sums, STRATA_REDUCE_SUM, false);
            if (b->model->parameters.state_size)
                c->state = sum_over_replicas(b, c->state, b->model->parameters.state_size, STRATA_REDUCE_MEAN, false);
        }
        /* By place: the last bucket has the first parameters. */
        parts[n - 1 - k] = b->model->strategy->rewrite
                               ? own
                               : sum_over_replicas(b, own, buckets[k].end - buckets[k].begin, STRATA_REDUCE_SUM, true);
    }
    if (!updates) return NULL;
    strata_tensor *all = n > 1 ? strata_concat(parts, n, 0) : parts[0];
    if (!b->model->strategy->rewrite) return all;
    strata_tensor *share = step_word(b, STRATA_STEP_SHARE);
    if (b->scaled) share = strata_mul(share, step_word(b, STRATA_STEP_SCALE)); /* as it is without the loss scale */
    return b->model->strategy->rewrite->gradients(all, share);
}

static strata_tensor *add_update(builder *b, strata_tensor *update) {
    return b->step->updates[b->step->n_updates++] = update;
}

static strata_tensor *part_of(strata_tensor *flat, int64_t first, int64_t n) {
    return strata_slice(flat, &first, &n);
}

/* The update of sparse parameter i's rows that were used; puts the variables as they are after it in `all`. `used`: the
 * gradients with what is behind them. */
static void update_rows(builder *b, int i, strata_tensor *used, strata_update *all) {
    const strata_parameter_spec *p = &b->model->parameters.items[i];
    const strata_sparse_rows *rows = &b->context.rows[i];
    const int64_t n_rows = p->shape.dims[0];
    const int n_slots = b->model->optimizer_kind->n_slots(&b->model->optimizer);
    strata_tensor *ids = rows->ids;
    strata_update one = *all;
    one.parameters = rows->row;
    if (!b->context.takes_rows) {
        strata_tensor *zero = strata_scalar(b->graph, STRATA_DTYPE_F32, 0),
                      *none = strata_scalar(b->graph, STRATA_DTYPE_I32, -1);
        ids = strata_where(strata_greater(part_of(used, rows->uses, n_rows), zero), strata_arange(b->graph, n_rows), none);
        one.parameters = strata_gather(strata_parameter_view(p, all->parameters), ids, 0);
    }
    const strata_shape shape = strata_tensor_shape(one.parameters);
    one.gradients = strata_reshape(part_of(all->gradients, rows->place, strata_shape_elements(shape)), shape);
    for (int k = 0; k < n_slots; k++) one.slots[k] = strata_gather(strata_parameter_view(p, all->slots[k]), ids, 0);
    strata_tensor *changed = b->model->optimizer_kind->build(&b->model->optimizer, &one);
    all->parameters = strata_scatter_update(all->parameters, p->offset, n_rows, ids, changed, NULL);
    for (int k = 0; k < n_slots; k++)
        all->slots[k] = strata_scatter_update(all->slots[k], p->offset, n_rows, ids, one.slots[k], changed);
}

/* The update of all parameters. */
static strata_tensor *update_parameters(builder *b, strata_tensor *used, strata_update *u) {
    const strata_model *model = b->model;
    for (int i = 0; i < model->parameters.n; i++)
        if (model->parameters.items[i].sparse) update_rows(b, i, used, u);
    if (has_sparse(model)) u->gradients = part_of(u->gradients, 0, model->parameters.dense_size);
    if (model->parameters.dense_size) return add_update(b, model->optimizer_kind->build(&model->optimizer, u));
    for (int k = 0; k < model->optimizer_kind->n_slots(&model->optimizer); k++) add_update(b, u->slots[k]);
    return add_update(b, u->parameters);
}

/* What the device's parameters and states become. `gradients`: with what is behind them. */
static void update(builder *b, const computed *c, strata_tensor *gradients, strata_tensor **out_flat,
                   strata_tensor **out_state) {
    strata_model *model = b->model;
    const strata_model_replica *own = &model->replicas[b->role.replica];
    strata_tensor *square = NULL, *sums = c->sums, *overflow = NULL, *used = gradients;
    strata_update u = {.parameters = b->step->flat, .step = b->words, .segments = &model->segments};
    for (int i = 0; i < model->optimizer_kind->n_slots(&model->optimizer); i++)
        u.slots[i] = strata_variable_read(b->graph, own->slots[i]);
    if (b->n_gradients < b->n_all) gradients = part_of(gradients, 0, b->n_gradients);
    if (b->scaled) gradients = strata_mul(gradients, step_word(b, STRATA_STEP_SCALE));
    u.gradients = strata_clip_gradients(&model->optimizer, gradients, &model->segments, &square);
    b->step->output = sums;
    if (model->loss_scale > 0) { /* 0, or NaN */
        if (!square) square = strata_reduce_sum(strata_square(gradients), NULL, 0, false);
        overflow = times(square, 0);
        b->step->output = strata_concat((strata_tensor *[]){sums, strata_reshape(overflow, STRATA_SHAPE(1))}, 2, 0);
    } else if (square) {
        /* where the norm of all gradients is known anyway, one that is not finite spoils the loss, and so closes the
             * gate */
        b->step->output = sums = add_to_loss(sums, times(square, 0));
    }
    /* The gate is the epoch's sum, not the batch's: steps submitted behind one whose loss is not finite change nothing
     * either. */
    strata_tensor *epoch = add_update(b, strata_assign_add(strata_variable_read(b->graph, own->metrics), sums));
    const int64_t first = 0, one = 1;
    u.gate = strata_reshape(strata_slice(epoch, &first, &one), STRATA_SHAPE());
    if (overflow) u.gate = strata_add(u.gate, overflow);
    *out_flat = update_parameters(b, used, &u);
    if (model->strategy->rewrite)
        *out_flat = add_update(b, strata_assign(*out_flat, model->strategy->rewrite->parameters(*out_flat)));
    if (model->parameters.state_size)
        *out_state = add_update(b, strata_moving_average(b->context.state, c->state,
                                                         strata_layer_context_state_rates(&b->context, b->graph), u.gate));
}

/* New parameters or states travel from the device that made them. */
static void send(builder *b, strata_tensor *variable, strata_tensor *updated, int64_t n) {
    const strata_workers *workers = &b->model->strategy->workers;
    strata_communication_attrs attrs = {.dtype = STRATA_DTYPE_F32, .shape = STRATA_SHAPE(n), .takes = true};
    if (workers->mixed) { /* rank 0's count on all workers */
        strata_tensor *chiefs = strata_broadcast(b->graph, workers->rank ? NULL : updated, attrs);
        add_update(b, strata_assign(updated ? updated : variable, chiefs));
        return;
    }
    if (!b->role.gives_new && !b->role.receives) return;
    attrs.channel.local = true;
    attrs.takes = b->role.receives;
    strata_tensor *taken = strata_broadcast(b->graph, updated, attrs);
    if (b->role.receives)
        add_update(b, strata_assign(variable, taken));
    else
        keep(b, taken);
}

static void update_all(builder *b, const computed *c, strata_tensor *gradients) {
    strata_tensor *flat = NULL, *state = NULL;
    if (b->role.updates) update(b, c, gradients, &flat, &state);
    send(b, b->step->flat, flat, b->model->parameters.flat_size);
    if (b->model->parameters.state_size) send(b, b->context.state, state, b->model->parameters.state_size);
}

static void build_train(builder *b) {
    computed c = compute(b);
    place_gradients(b);
    update_all(b, &c, reduce(b, &c));
}

/* ---- accumulation ---- */

/* A replica without examples adds nothing: its gradients are there for the exchanges of layers in them. */
static void build_accumulate(builder *b) {
    const strata_model_replica *own = &b->model->replicas[b->role.replica];
    const computed c = compute(b);
    place_gradients(b);
    const bucket all = {0, b->model->parameters.n, 0, b->n_all};
    if (b->role.idle) {
        b->step->output = strata_reduce_sum(own_gradients(b, &c, &all), NULL, 0, false);
        return;
    }
    strata_tensor *const values[STRATA_N_HELD] = {
        [STRATA_HELD_GRADIENTS] = own_gradients(b, &c, &all), [STRATA_HELD_SUMS] = c.sums, [STRATA_HELD_STATES] = c.state};
    for (int i = 0; i < STRATA_N_HELD; i++)
        if (own->held[i]) add_update(b, strata_assign_add(strata_variable_read(b->graph, own->held[i]), values[i]));
}

/* A replica gives the mean of its new states. */
static void build_apply(builder *b) {
    const strata_model_replica *own = &b->model->replicas[b->role.replica];
    strata_tensor *held[STRATA_N_HELD] = {NULL};
    for (int i = 0; i < STRATA_N_HELD; i++)
        if (own->held[i]) held[i] = strata_variable_read(b->graph, own->held[i]);
    computed c = compute(b);
    if (b->model->strategy->rewrite)
        strata_graph_poison(b->graph, NULL, STRATA_UNSUPPORTED, "strategy %s does not accumulate gradients",
                            b->model->strategy->name);
    c.gradients = held[STRATA_HELD_GRADIENTS];
    c.sums = held[STRATA_HELD_SUMS];
    if (held[STRATA_HELD_STATES]) c.state = strata_mul(held[STRATA_HELD_STATES], step_word(b, STRATA_STEP_STATE_SHARE));
    b->scaled = true;
    place_gradients(b);
    update_all(b, &c, reduce(b, &c));
    strata_tensor *zero = strata_scalar(b->graph, STRATA_DTYPE_F32, 0);
    for (int i = 0; i < STRATA_N_HELD; i++)
        if (held[i]) add_update(b, strata_assign(held[i], strata_broadcast_to(zero, strata_tensor_shape(held[i]))));
}

/* ---- the others ---- */

static void build_evaluate(builder *b) {
    strata_tensor *outputs = forward(b), *labels = labels_input(b);
    b->step->output = batch_sums(b, example_losses(b, outputs, labels), outputs, labels);
}

static void build_predict(builder *b) {
    const strata_loss *loss = b->model->loss;
    strata_tensor *outputs = forward(b);
    b->step->output = loss->predict ? loss->predict(&b->model->loss_options, outputs) : outputs;
}

strata_status strata_step_build(strata_step *step, strata_model *model, strata_program_kind kind, strata_step_role role,
                                strata_layer_cost *layers, strata_error *err) {
    static void (*const builders[])(builder *) = {[STRATA_PROGRAM_TRAIN] = build_train,
                                                  [STRATA_PROGRAM_ACCUMULATE] = build_accumulate,
                                                  [STRATA_PROGRAM_APPLY] = build_apply,
                                                  [STRATA_PROGRAM_EVALUATE] = build_evaluate,
                                                  [STRATA_PROGRAM_PREDICT] = build_predict};
    const strata_model_replica *own = &model->replicas[role.replica];
    builder b = {.model = model,
                 .step = step,
                 .role = role,
                 .context = {.dtype = model->precision,
                             .has_replicas = role.has_replicas,
                             .replicas = strata_channel_of_first(model->strategy->n_replicas),
                             .costs = layers,
                             .takes_rows = kind == STRATA_PROGRAM_TRAIN && !role.exchanges && !model->strategy->rewrite},
                 .scaled = model->loss_scale > 0};
    *step = (strata_step){0};
    STRATA_TRY(strata_graph_create(&b.graph, err));
    step->graph = b.graph;
    b.context.new_state = calloc((size_t)model->parameters.n, sizeof(*b.context.new_state));
    b.context.state_rates = calloc((size_t)model->parameters.n, sizeof(*b.context.state_rates));
    b.context.rows = calloc((size_t)model->parameters.n, sizeof *b.context.rows);
    strata_status status = STRATA_OK;
    if (b.context.new_state && b.context.state_rates && b.context.rows) {
        step->flat = b.context.flat = strata_tensor_set_name(strata_variable_read(b.graph, own->flat), "parameters");
        if (own->state) b.context.state = strata_tensor_set_name(strata_variable_read(b.graph, own->state), "states");
        b.words = strata_input(b.graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
        builders[kind](&b);
    } else {
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for states");
    }
    if (!status) status = strata_graph_check(b.graph, err);
    free(b.context.new_state);
    free(b.context.state_rates);
    free(b.context.rows);
    if (status) strata_graph_destroy(b.graph);
    return status;
}
