/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of several devices are one graph each, which the partitioner divides (core/model/divide.c). They must train as one
 * device with the same batches, for every layer that treats examples in a way of its own: dropout, penalties, recurrent layers,
 * synchronized batch norm; where replicas have no examples; and with the same bits where the optimizer's slots are divided, and
 * where one device makes the update: one of the replicas' devices, as for central_storage and for a group of several kinds, or
 * another one. Batch norm that is not synchronized, and layers of a program's own that compute something of all examples,
 * compute it of each replica's. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/layer/layer.h"
#include "core/model/loop.h"
#include "strategies/kinds.h"
#include "tests/strategies/strategies_case.h"

static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

static const char dense[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 12, \"kernel_l2\": 0.01},"
    "{\"layer\": \"batch_norm\"}, {\"layer\": \"dropout\", \"rate\": 0.25},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
static const char images[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2, 1]}, {\"layer\": \"conv2d\", \"filters\": 4, "
    "\"kernel_size\": 2, \"padding\":"
    "\"same\"}, {\"layer\": \"max_pool2d\", \"size\": 2}, {\"layer\": \"flatten\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}, "
    "\"loss\": \"sparse_categorical_crossentropy\"}";
static const char series[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"lstm\", \"units\": 5}, "
    "{\"layer\": \"layer_norm\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";

static const char synchronized[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"dense\", \"units\": 4},"
    "{\"layer\": \"batch_norm\", \"synchronized\": true}, {\"layer\": \"dropout\", \"rate\": 0.25}, {\"layer\": \"flatten\"},"
    "{\"layer\": \"batch_norm\"}, {\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
/* Adam would divide the gradient of a bias before a batch norm, which is rounding, by itself. */
static const char synchronous[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 6, \"kernel_l2\": 0.01}, {\"layer\": \"batch_norm\","
    "\"synchronized\": true}, {\"layer\": \"dropout\", \"rate\": 0.25}, {\"layer\": \"dense\", \"units\": 3}],"
    "\"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}, \"loss\": \"sparse_categorical_crossentropy\"}";
static const char clipped[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"dense\", \"units\": 4, "
    "\"activation\": \"relu\"}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 3}], "
    "\"optimizer\": {\"name\": \"adam\", \"learning_rate\": 0.01, \"clip_global_norm\": 0.5}, "
    "\"loss\": \"sparse_categorical_crossentropy\"}";

/* Layers that compute something of all examples: each replica computes it of its own, as in tf.distribute. */
static const char centered[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 6}, {\"layer\": \"center\"}, {\"layer\": \"dropout\","
    "\"rate\": 0.25}, {\"layer\": \"dense\", \"units\": 3, \"kernel_l2\": 0.01}],"
    "\"loss\": \"sparse_categorical_crossentropy\"}";
static const char masked[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"padded\"}, {\"layer\": "
    "\"batch_norm\"},"
    "{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
static const char compared[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 6}, {\"layer\": \"compare\"}, {\"layer\": \"dense\", "
    "\"units\": 3}],"
    "\"loss\": \"sparse_categorical_crossentropy\"}";

static strata_tensor *center(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options, (void)context, (void)n;
    return strata_sub(inputs[0], strata_reduce_mean(inputs[0], (int[]){0}, 1, true));
}

/* The same as what three replicas compute, for one device: the mean of each third of the examples is subtracted. */
static strata_tensor *center_thirds(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    const strata_shape shape = strata_tensor_shape(inputs[0]);
    const int64_t batch = shape.dims[0], third = batch % 3 ? 1 : batch / 3;
    strata_tensor *x = strata_reshape(inputs[0], STRATA_SHAPE(batch / third, third, shape.dims[1]));
    (void)options, (void)context, (void)n;
    return strata_reshape(strata_sub(x, strata_reduce_mean(x, (int[]){1}, 1, true)), shape);
}

/* (N, 4, 2): positions whose first channel is not positive are padding. */
static strata_tensor *padded(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    const strata_shape shape = strata_tensor_shape(inputs[0]);
    strata_tensor *first = strata_slice(inputs[0], (int64_t[]){0, 0, 0}, (int64_t[]){shape.dims[0], shape.dims[1], 1});
    strata_tensor *zero = strata_scalar(strata_tensor_graph(first), strata_tensor_dtype(first), 0);
    (void)options, (void)n;
    strata_layer_set_mask(context, strata_greater(strata_reshape(first, STRATA_SHAPE(shape.dims[0], shape.dims[1])), zero));
    return inputs[0];
}

/* x + x x' x: the similarities of all examples, whose rows and columns cannot both be divided. */
static strata_tensor *compare(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    strata_tensor *x = inputs[0];
    (void)options, (void)context, (void)n;
    return strata_add(x, strata_matmul(strata_tanh(strata_matmul(x, x, false, true)), x, false, false));
}

static strata_registry *own_layers(bool one_device) {
    const strata_layer_definition layers[] = {{.name = "center", .build = one_device ? center_thirds : center},
                                              {.name = "padded", .build = padded},
                                              {.name = "compare", .build = compare}};
    strata_registry *registry = NULL;
    OK(strata_registry_create(&registry, &err));
    for (int i = 0; i < 3; i++) OK(strata_layer_register(registry, &layers[i], &err));
    return registry;
}

/* Which of three devices makes the updates, and whether the last one only does that. */
typedef struct layout {
    int updates;
    bool stores;
} layout;

static const layout layouts[] = {{0, false}, {2, false}, {2, true}};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* How a model is trained. */
typedef struct plan {
    const char *json, *recompute;
    /* NULL: each replica makes the updates. */
    const layout *how;
    /* examples 0: 22. */
    int64_t examples, batch, accumulate;
    strata_dtype precision;
    strata_shard_optimizer shards;
    bool norm;
    strata_optimizer optimizer;
    /* One device has all examples; two devices have. */
    bool one_device, two;
} plan;

/* What was trained, as a hash; the losses of the epochs; what the model computes afterwards. */
typedef struct outcome {
    char sha[65];
    double losses[2], evaluated;
    /* The bytes of exchanges in a step. */
    double bytes;
    strata_array predicted;
} outcome;

/* All devices are the host, so the strategy is made as one of mirrored, and then changed. */
static strata_strategy *make_strategy(const plan *p) {
    const layout *how = p->how;
    if (p->one_device) return test_strategy("one_device", (const char *[]){"host", NULL}, false);
    strata_strategy *strategy =
        test_strategy("mirrored", (const char *[]){"host", "host", p->two ? NULL : "host", NULL}, false);
    if (!how) return strategy;
    strategy->update = strata_placement_at(strategy->update, 0, how->updates);
    strategy->n_replicas -= how->stores;
    return strategy;
}

static outcome train(const plan *p) {
    test_classes classes = test_classes_make(p->examples ? p->examples : 22, 8);
    strata_strategy *strategy = make_strategy(p);
    strata_model *model = NULL;
    strata_history history = {0};
    strata_metrics metrics;
    outcome o = {.losses = {0}};
    strata_compile_options opts = {.strategy = strategy,
                                   .seed = 3,
                                   .precision = p->precision,
                                   .optimizer = p->optimizer,
                                   .gradient_norm = p->norm,
                                   .recompute = p->recompute};
    if (!opts.optimizer.name && !strstr(p->json, "\"optimizer\"")) opts.optimizer.name = "adam";
    opts.optimizer.gradient_accumulation_steps = p->accumulate;
    strategy->shard_optimizer = p->shards;
    strategy->bucket_bytes = 256; /* several buckets */
    strata_registry *registry = own_layers(p->one_device);
    OK(strata_model_from_json_with(registry, p->json, strlen(p->json), "the test", &model, &err));
    strata_registry_destroy(registry);
    OK(strata_model_compile(model, NULL, &opts, &err));
    OK(strata_model_fit(model, classes.dataset, &(strata_fit_options){.epochs = 2, .batch = p->batch, .seed = 5}, &history,
                        &err));
    OK(strata_model_evaluate(model, classes.dataset, p->batch, &metrics, &err));
    OK(strata_model_predict(model, classes.dataset, p->batch, &o.predicted, &err));
    o.evaluated = metrics.loss;
    o.bytes = strata_model_communication(model).bytes_per_step;
    for (int e = 0; e < 2; e++) o.losses[e] = history.epochs[e].loss;
    OK(strata_model_sha256(model, o.sha, &err));
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&classes);
    return o;
}

static void expect_same_bits(plan p, plan q) {
    outcome one = train(&p), other = train(&q);
    cr_expect_str_eq(one.sha, other.sha, "batch %d of %s: %s beside %s", (int)p.batch, p.json, one.sha, other.sha);
    for (int e = 0; e < 2; e++)
        cr_expect_eq(one.losses[e], other.losses[e], "batch %d of %s: %.9g beside %.9g", (int)p.batch, p.json, one.losses[e],
                     other.losses[e]);
    cr_expect_eq(one.evaluated, other.evaluated, "%s: %.9g beside %.9g", p.json, one.evaluated, other.evaluated);
    cr_expect_arr_eq(one.predicted.data, other.predicted.data, strata_array_bytes(&other.predicted));
    strata_array_finish(&one.predicted);
    strata_array_finish(&other.predicted);
}

/* Sums over examples have another order than on one device. */
static void expect_like_one_device(plan p) {
    plan q = p;
    q.one_device = true;
    q.how = NULL;
    q.shards = STRATA_SHARD_OPTIMIZER_AUTO;
    outcome one = train(&p), device = train(&q);
    for (int e = 0; e < 2; e++)
        cr_expect_float_eq(one.losses[e], device.losses[e], 1e-5, "batch %d of %s: %.9g beside %.9g", (int)p.batch, p.json,
                           one.losses[e], device.losses[e]);
    cr_expect_float_eq(one.evaluated, device.evaluated, 1e-5, "%s: %.9g beside %.9g", p.json, one.evaluated, device.evaluated);
    const float *a = one.predicted.data, *b = device.predicted.data;
    for (int64_t i = 0; i < strata_shape_elements(one.predicted.shape); i++)
        cr_expect_float_eq(a[i], b[i], 1e-4, "%s: element %d: %.9g beside %.9g", p.json, (int)i, (double)a[i], (double)b[i]);
    strata_array_finish(&one.predicted);
    strata_array_finish(&device.predicted);
}

static void expect_shards_keep_bits(plan p) {
    plan q = p;
    q.shards = STRATA_SHARD_OPTIMIZER_YES;
    expect_same_bits(p, q);
}

/* Batches of 10 are divided into 4, 3 and 3, and the last one of an epoch has 2 examples for 3 replicas. */
Test(divide, trains_as_one_device) {
    const char *const models[] = {images, series, clipped, synchronous};
    for (int i = 0; i < 4; i++) {
        expect_like_one_device((plan){.json = models[i], .batch = 10});
        /* The variance of two examples may be small, and magnifies rounding. */
        expect_like_one_device((plan){.json = models[i], .batch = models[i] == synchronous ? 5 : 2});
        expect_like_one_device((plan){.json = models[i], .batch = 10, .how = &layouts[2]});
    }
    expect_like_one_device((plan){.json = series, .batch = 10, .shards = STRATA_SHARD_OPTIMIZER_YES});
    static const strata_optimizer optimizers[] = {{.name = "lamb"}, {.name = "lars", .momentum = 0.5}};
    for (int i = 0; i < 2; i++)
        expect_like_one_device(
            (plan){.json = series, .batch = 10, .shards = STRATA_SHARD_OPTIMIZER_YES, .optimizer = optimizers[i]});
}

/* The last accumulated batch of an epoch has fewer examples than replicas, so a replica adds nothing to what it has. */
Test(divide, accumulates_as_one_device) {
    expect_like_one_device((plan){.json = images, .batch = 10, .accumulate = 2});
    expect_like_one_device((plan){.json = synchronous, .batch = 5, .accumulate = 3});
    expect_like_one_device((plan){.json = series, .batch = 2, .accumulate = 4, .how = &layouts[1]});
}

/* The partitioner finds reduce_scatter and all_gather. With the norm of all gradients, or for f16, gradients are added up by
 * all_reduce; an optimizer without slots has no shards. Norms of parameters are computed from sums of pieces. */
Test(divide, shards_keep_the_bits) {
    static const strata_optimizer optimizers[] = {{.name = "adam", .weight_decay = 0.01, .clip_value = 0.01},
                                                  {.name = "sgd", .momentum = 0.9},
                                                  {.name = "sgd"},
                                                  {.name = "rmsprop"},
                                                  {.name = "adam", .clip_global_norm = 0.1},
                                                  {.name = "adam", .clip_norm = 0.1},
                                                  {.name = "lamb"},
                                                  {.name = "lars"},
                                                  {.name = "lamb", .clip_norm = 0.1}};
    for (int i = 0; i < 9; i++) expect_shards_keep_bits((plan){.json = dense, .batch = 10, .optimizer = optimizers[i]});
    const char *const models[] = {images, synchronized, centered, masked, compared};
    for (int i = 0; i < 5; i++) expect_shards_keep_bits((plan){.json = models[i], .batch = i ? 2 : 10});
    expect_shards_keep_bits((plan){.json = images, .batch = 10, .norm = true});
    expect_shards_keep_bits((plan){.json = dense, .batch = 4, .accumulate = 3});
    expect_shards_keep_bits((plan){.json = dense, .batch = 10, .precision = STRATA_DTYPE_F16});
}

/* Gradients are received as parts, and norms of parameters do not change that. */
Test(divide, norms_exchange_little) {
    const plan p = {.json = dense, .batch = 10, .shards = STRATA_SHARD_OPTIMIZER_YES};
    plan of_adam = p, of_lars = p;
    of_adam.optimizer.name = "adam";
    of_lars.optimizer.name = "lars";
    outcome adam = train(&of_adam), lars = train(&of_lars);
    cr_expect(lars.bytes <= 1.02 * adam.bytes, "%.9g bytes beside %.9g", lars.bytes, adam.bytes);
    strata_array_finish(&adam.predicted);
    strata_array_finish(&lars.predicted);
}

Test(divide, keeps_the_bits_where_one_device_makes_the_update) {
    const char *const models[] = {dense, images, series, clipped, synchronized, centered, masked, compared};
    for (int k = 0; k < N_LAYOUTS; k++) {
        const bool two = layouts[k].stores;
        for (int i = 0; i < 8; i++)
            expect_same_bits((plan){.how = &layouts[k], .json = models[i], .batch = 10},
                             (plan){.two = two, .json = models[i], .batch = 10});
        static const plan others[] = {{.json = dense, .batch = 1},
                                      {.json = dense, .batch = 10, .precision = STRATA_DTYPE_F16},
                                      {.json = dense, .batch = 5, .accumulate = 3},
                                      {.json = dense, .batch = 1, .accumulate = 2},
                                      {.json = centered, .batch = 5, .accumulate = 3},
                                      {.json = masked, .batch = 2, .precision = STRATA_DTYPE_F16}};
        for (int i = 0; i < 6; i++) {
            plan p = others[i], q = p;
            p.how = &layouts[k];
            q.two = two;
            expect_same_bits(p, q);
        }
    }
}

/* The copies of layers that are computed again are divided as the layers are. Their exchanges are not repeated. */
Test(divide, keeps_the_bits_of_layers_that_are_computed_again) {
    static const plan plans[] = {
        {.json = dense, .batch = 10, .recompute = "dense,batch_norm,dropout,dense_1"},
        {.json = dense, .batch = 2, .recompute = "batch_norm", .precision = STRATA_DTYPE_F16},
        {.json = dense, .batch = 5, .accumulate = 3, .recompute = "auto:1"},
        {.json = images, .batch = 10, .recompute = "conv2d,max_pool2d", .shards = STRATA_SHARD_OPTIMIZER_YES},
        {.json = series, .batch = 10, .recompute = "lstm,layer_norm", .how = &layouts[2]},
        {.json = synchronized, .batch = 10, .recompute = "dense,batch_norm,dropout,batch_norm_1"},
        {.json = centered, .batch = 10, .recompute = "center,dropout"},
        {.json = masked, .batch = 10, .recompute = "padded,batch_norm"},
        {.json = compared, .batch = 10, .recompute = "compare"}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        plan kept = plans[i];
        kept.recompute = NULL;
        expect_same_bits(plans[i], kept);
        if (plans[i].json != synchronized) continue;
        outcome again = train(&plans[i]), once = train(&kept);
        cr_expect_eq(again.bytes, once.bytes, "%g bytes of exchanges, not %g", again.bytes, once.bytes);
        strata_array_finish(&again.predicted);
        strata_array_finish(&once.predicted);
    }
}

Test(divide, layers_of_all_examples_compute_from_each_replicas_own) {
    for (int64_t batch = 6; batch <= 9; batch += 3) {
        const plan p = {.json = centered, .examples = 18, .batch = batch, .optimizer = {.name = "sgd", .momentum = 0.9}};
        plan q = p;
        q.shards = STRATA_SHARD_OPTIMIZER_YES;
        expect_like_one_device(p);
        expect_like_one_device(q);
    }
}

/* ---- gradients that are placed at servers ---- */

/* What a worker's program for a batch computes. */
typedef struct computed {
    int64_t n_sums, n_gradients, n_states;
    float sums[16], gradients[4096], states[256];
    /* How many buckets were taken, and the layout that says where each belongs. */
    int n_taken;
    const strata_gradient_layout *layout;
} computed;

static void take(void *user, int k, const void *value, size_t bytes) {
    computed *c = user;
    cr_assert_eq(k, c->n_taken++);
    const struct strata_gradient_bucket *at = &c->layout->buckets[k];
    cr_assert_eq(bytes, (size_t)(at->end - at->begin) * sizeof(float));
    memcpy(c->gradients + at->begin, value, bytes);
}

static const strata_trainer trainer = {.take = take};

/* The outputs of a worker's program for 10 examples. elsewhere: the gradients are placed at servers. */
static void compute(const char *json, strata_dtype precision, bool elsewhere, computed *c) {
    enum { N = 10 };
    strata_strategy *strategy = test_strategy("mirrored", (const char *[]){"host", NULL}, false);
    strata_compile_options opts = {.strategy = strategy, .seed = 3, .precision = precision};
    strata_model *model = NULL;
    strata_model_program *program = NULL;
    int slot = 0;
    *c = (computed){.n_taken = 0};
    strategy->bucket_bytes = 256;
    OK(strata_model_from_json(json, strlen(json), "the test", &model, &err));
    OK(strata_model_compile(model, NULL, &opts, &err));
    if (elsewhere) strategy->trainer = &trainer, strategy->trainer_data = c;
    OK(strata_model_get_program(model, STRATA_PROGRAM_GRADIENTS, N, (strata_batch_form){0}, &program, &err));
    cr_assert_eq(program->divided, elsewhere);
    c->layout = &program->layout;
    OK(strata_group_acquire(program->group, &slot, &err));
    const strata_program_part *part = &program->parts[0];
    const strata_run_numbers numbers = strata_run_numbers_of(model, 1, strata_loss_scale(model));
    strata_run_write_numbers(&numbers, part, slot, 0, N);
    float *x = strata_executable_input(part->executable, slot, part->x[0]);
    int32_t *y = strata_executable_input(part->executable, slot, part->y[0]);
    for (int i = 0; i < N * 8; i++) x[i] = (float)((i * 37 + 11) % 64) / 32 - 1;
    for (int i = 0; i < N; i++) y[i] = i % 3;
    OK(strata_group_start(program->group, slot, 0, &err));
    OK(strata_group_finish(program->group, slot, NULL, &err));
    OK(strata_group_wait(program->group, slot, &err));
    c->n_sums = model->metrics.n_sums;
    c->n_gradients = model->parameters.flat_size;
    c->n_states = 2 * model->parameters.state_size;
    memcpy(c->sums, strata_executable_output(part->executable, slot, 0), (size_t)c->n_sums * sizeof(float));
    if (!elsewhere)
        memcpy(c->gradients, strata_executable_output(part->executable, slot, 1), (size_t)c->n_gradients * sizeof(float));
    if (c->n_states)
        memcpy(c->states, strata_executable_output(part->executable, slot, 1 + !elsewhere),
               (size_t)c->n_states * sizeof(float));
    c->layout = NULL;
    strategy->trainer = NULL;
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

/* The step is the same one: only the placement of its gradients differs. */
Test(divide, gradients_that_are_placed_at_servers_are_those_of_one_device) {
    static const struct {
        const char *json;
        strata_dtype precision;
    } cases[] = {{dense, STRATA_DTYPE_F32},
                 {dense, STRATA_DTYPE_F16},
                 {images, STRATA_DTYPE_F32},
                 {series, STRATA_DTYPE_F32},
                 {clipped, STRATA_DTYPE_BF16}};
    static computed here, there;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        compute(cases[i].json, cases[i].precision, false, &here);
        compute(cases[i].json, cases[i].precision, true, &there);
        cr_expect_eq(here.n_taken, 0);
        cr_expect_geq(there.n_taken, 2, "case %zu: %d buckets", i, there.n_taken);
        there.n_taken = 0;
        cr_expect_arr_eq(&here, &there, sizeof here, "case %zu", i);
    }
}

/* ---- metrics ---- */

/* Of each replica's examples all outputs' scores are collected. */
Test(divide, exact_metrics_of_several_outputs_are_those_of_one_device) {
    static const char json[] =
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [8]}], \"layers\": ["
        "{\"layer\": \"dense\", \"name\": \"a\", \"inputs\": [\"x\"], \"units\": 1},"
        "{\"layer\": \"dense\", \"name\": \"b\", \"inputs\": [\"x\"], \"units\": 1}], \"outputs\": ["
        "{\"name\": \"a\", \"loss\": \"binary_crossentropy\", \"metrics\": [\"auc\"]},"
        "{\"name\": \"b\", \"loss\": \"binary_crossentropy\", \"metrics\": [\"auc\"]}]}";
    test_classes classes = test_classes_make(22, 8);
    strata_array yes;
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(22), &yes, &err));
    for (int i = 0; i < 22; i++) ((int32_t *)yes.data)[i] = ((int32_t *)classes.y.data)[i] == 1;
    strata_dataset *dataset = NULL;
    OK(strata_dataset_from_columns(&(strata_data_column){"x", &classes.x, 0}, 1,
                                   (strata_data_column[]){{"a", &yes, 0}, {"b", &yes, 0}}, 2, &dataset, &err));
    strata_metrics metrics[2];
    strata_history history[2] = {{0}};
    strata_model *models[2];
    strata_strategy *strategies[] = {make_strategy(&(plan){.two = false}),
                                     test_strategy("one_device", (const char *[]){"host", NULL}, false)};
    for (int k = 0; k < 2; k++) {
        OK(strata_model_from_json(json, strlen(json), "the test", &models[k], &err));
        OK(strata_model_compile(models[k], NULL, &(strata_compile_options){.strategy = strategies[k], .seed = 3}, &err));
        OK(strata_model_fit(models[k], dataset, &(strata_fit_options){.epochs = 1, .batch = 10, .seed = 5}, &history[k], &err));
        OK(strata_model_evaluate(models[k], dataset, 10, &metrics[k], &err));
        cr_assert_eq(metrics[k].n, metrics[0].n);
        for (int i = 0; i < metrics[0].n; i++) {
            cr_expect_float_eq(metrics[k].more[i].value, metrics[0].more[i].value, 1e-5, "%s", metrics[0].more[i].name);
            cr_expect_float_eq(history[k].epochs[0].more[i].value, history[0].epochs[0].more[i].value, 1e-5, "%s",
                               metrics[0].more[i].name);
        }
    }
    for (int k = 0; k < 2; k++) {
        strata_history_finish(&history[k]);
        strata_model_destroy(models[k]);
        strata_strategy_destroy(strategies[k]);
    }
    strata_dataset_destroy(dataset);
    strata_array_finish(&yes);
    test_classes_free(&classes);
}
