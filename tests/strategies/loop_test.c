/* SPDX-License-Identifier: Apache-2.0
 *
 * A custom training loop with a model. Under every strategy the parameters must have the bits of fit's. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/run/strategy.h"
#include "strata/strata.h"
#include "strategies/context.h"
#include "tests/strategies/strategies_case.h"
#include "tests/support/check.h"
#include "tests/support/names.h"

enum { FEATURES = 7, CLASSES = 3, N = 53, BATCH = 12, EPOCHS = 3, MOST_DEVICES = 4 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

typedef struct plan {
    const char *strategy, *devices[MOST_DEVICES]; /* the list ends with NULL */
    strata_optimizer optimizer;                   /* name NULL: adam */
    strata_dtype precision;
    bool dropout, penalty, batch_norm, sharded;
    int64_t batch;         /* 0: BATCH */
    const char *recompute; /* of the loop; fit keeps all values */
    const char *json;      /* the JSON file of a model for pictures of ten classes; NULL: a model of dense layers */
} plan;

typedef struct loop {
    strata_model *model;
    strata_distributed_optimizer *optimizer;
    bool penalty;
} loop;

static test_classes classes;

/* The number of examples, which depends on the model. */
static int n_of(const plan *p) {
    return p->json ? 10 : N;
}

static strata_dataset *make_pictures(int n) {
    classes.x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n, 32, 32, 3), -1, 1, 11);
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &classes.y, &err));
    for (int i = 0; i < n; i++) ((int32_t *)classes.y.data)[i] = i * 7 % 10;
    OK(strata_dataset_from_arrays(&classes.x, &classes.y, 0, &classes.dataset, &err));
    return classes.dataset;
}

static strata_dataset *make_dataset(const plan *p) {
    if (p->json) return make_pictures(n_of(p));
    classes = test_classes_make(N, FEATURES);
    return classes.dataset;
}

static strata_model *make_model(const plan *p) {
    strata_model *model = NULL;
    if (p->json) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", STRATA_TEST_SOURCE_DIR, p->json);
        OK(strata_model_read_json(path, &model, &err));
        return model;
    }
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model,
                           (strata_dense_options){.units = 20, .activation = "relu", .kernel_l2 = p->penalty ? 1e-2 : 0});
    if (p->batch_norm) strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    if (p->dropout) strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.3});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
    return model;
}

static strata_strategy *make_strategy(const plan *p) {
    return test_strategy(p->strategy, p->devices, p->sharded);
}

static strata_compile_options options_of(const plan *p, strata_strategy *strategy) {
    return (strata_compile_options){.strategy = strategy, .optimizer = p->optimizer, .seed = 3, .precision = p->precision};
}

static void fit(const plan *p, const strata_dataset *dataset, char sha[65], double *out_loss) {
    strata_strategy *strategy = make_strategy(p);
    strata_model *model = make_model(p);
    const strata_compile_options opts = options_of(p, strategy);
    const strata_fit_options how = {.epochs = EPOCHS, .batch = p->batch ? p->batch : BATCH, .seed = 5};
    strata_history history = {0};
    OK(strata_model_compile(model, NULL, &opts, &err));
    OK(strata_model_fit(model, dataset, &how, &history, &err));
    OK(strata_model_sha256(model, sha, &err));
    *out_loss = history.epochs[EPOCHS - 1].loss;
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

static strata_status train_step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *e) {
    const loop *l = user;
    const strata_variables variables = strata_model_variables(l->model);
    strata_tensor *outputs = strata_model_apply(l->model, replica, inputs[0], true);
    strata_tensor *losses = strata_example_losses("sparse_categorical_crossentropy", NULL, outputs, inputs[1]);
    strata_tensor *loss = strata_replica_average_loss(replica, losses);
    if (l->penalty) loss = strata_add(loss, strata_replica_penalty(replica, l->model));
    strata_optimizer_apply(replica, l->optimizer, strata_replica_gradients(replica, loss, variables), variables);
    strata_replica_return(replica, loss);
    (void)e;
    return STRATA_OK;
}

/* Returns the mean loss of the last epoch, in which each batch is weighted by its number of examples. */
static double run_epochs(const plan *p, strata_strategy *strategy, const strata_dataset *dataset, strata_function *function) {
    strata_distributed_batches *batches = NULL;
    strata_per_replica inputs[2] = {{0}}, losses = {0};
    const strata_distributed_batches_options opts = {.global_batch = p->batch ? p->batch : BATCH, .shuffle = true, .seed = 5};
    double total = 0;
    OK(strata_distributed_batches_create(strategy, dataset, &opts, &batches, &err));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        total = 0;
        OK(strata_distributed_batches_set_epoch(batches, (uint64_t)epoch, &err));
        for (;;) {
            int64_t n;
            double loss;
            OK(strata_distributed_batches_next(batches, inputs, &n, &err));
            if (!n) break;
            OK(strata_strategy_run(function, inputs, 2, &losses, 1, &err));
            OK(strata_strategy_reduce_scalar(strategy, &losses, STRATA_REDUCE_SUM, &loss, &err));
            total += loss * (double)n;
        }
    }
    strata_per_replica_finish(&losses);
    strata_distributed_batches_destroy(batches);
    return total / n_of(p);
}

/* With a sharded optimizer each element of a variable is updated by one replica only. */
static void expect_shards(const strata_distributed_optimizer *optimizer, int n_replicas) {
    for (const strata_optimizer_memory *m = optimizer->memories; m; m = m->next) {
        const int64_t size = strata_shape_elements(m->variable->copies[0]->shape);
        int64_t sum = 0;
        for (int r = 0; r < n_replicas; r++) sum += m->parts[r].end - m->parts[r].begin;
        cr_assert_eq(sum, size, "%lld elements are updated, the variable has %lld", (long long)sum, (long long)size);
        for (int r = 0; r < n_replicas; r++)
            cr_assert_eq(strata_shape_elements(m->parts[r].slots[0]->shape), m->parts[r].end - m->parts[r].begin);
    }
}

static void run_loop(const plan *p, const strata_dataset *dataset, char sha[65], double *out_loss) {
    strata_strategy *strategy = make_strategy(p);
    strata_function *function = NULL;
    loop l = {.model = make_model(p), .penalty = p->penalty || p->json};
    strata_compile_options opts = options_of(p, strategy);
    const strata_optimizer optimizer = p->json ? strata_model_optimizer(l.model) : p->optimizer;
    bool equal = false;
    opts.recompute = p->recompute;
    OK(strata_model_build(l.model, NULL, &opts, &err));
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_optimizer_create(&optimizer, &l.optimizer, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_function_create(strategy, train_step, &l, &function, &err));
    *out_loss = run_epochs(p, strategy, dataset, function);
    OK(strata_model_sha256(l.model, sha, &err));
    OK(strata_model_replicas_equal(l.model, &equal, &err));
    cr_assert(equal);
    if (p->sharded) expect_shards(l.optimizer, strategy->n_replicas);
    const int64_t batch = p->batch ? p->batch : BATCH;
    cr_assert_eq(strata_distributed_optimizer_steps(l.optimizer), EPOCHS * ((n_of(p) + batch - 1) / batch));
    strata_function_destroy(function);
    strata_distributed_optimizer_destroy(l.optimizer);
    strata_model_destroy(l.model);
    strata_strategy_destroy(strategy);
}

static bool are_there(const plan *p) {
    for (int i = 0; i < MOST_DEVICES && p->devices[i]; i++) {
        strata_device *device = NULL;
        const strata_status status = strata_device_open(p->devices[i], NULL, &device, &err);
        strata_device_close(device);
        if (status) return false;
    }
    return true;
}

static void expect_like_fit(plan p, const char *what) {
    char fitted[65], looped[65];
    double fit_loss, loop_loss;
    if (!are_there(&p)) return;
    strata_dataset *dataset = make_dataset(&p);
    fit(&p, dataset, fitted, &fit_loss);
    run_loop(&p, dataset, looped, &loop_loss);
    cr_assert_str_eq(looped, fitted, "%s, %s on %s: losses %.9g and %.9g", what, p.strategy, p.devices[0], loop_loss, fit_loss);
    cr_assert_float_eq(loop_loss, fit_loss, 1e-6, "%s: %.9g is not %.9g", what, loop_loss, fit_loss);
    test_classes_free(&classes);
}

Test(loop, has_the_bits_of_fit_where_layers_are_computed_again) {
    const plan plans[] = {{.strategy = "one_device", .devices = {"host"}},
                          {.strategy = "mirrored", .devices = {"host", "host"}}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        plan p = plans[i];
        p.dropout = p.penalty = p.batch_norm = true;
        p.recompute = "dense,batch_norm,dropout";
        expect_like_fit(p, "recompute");
    }
}

/* Applies the model to zeros. */
static strata_status apply_to_zeros(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                    strata_error *e) {
    strata_tensor *zero = strata_scalar(strata_replica_graph(replica), STRATA_DTYPE_F32, 0);
    strata_replica_return(replica,
                          strata_model_apply(user, replica, strata_broadcast_to(zero, STRATA_SHAPE(2, FEATURES)), true));
    (void)inputs, (void)e;
    return STRATA_OK;
}

Test(loop, cannot_choose_the_layers_that_are_computed_again) {
    const plan p = {.strategy = "one_device", .devices = {"host"}};
    strata_strategy *strategy = make_strategy(&p);
    strata_function *function = NULL;
    strata_per_replica outputs = {0};
    strata_model *model = make_model(&p);
    OK(strata_model_build(model, NULL, &(strata_compile_options){.strategy = strategy, .recompute = "auto"}, &err));
    OK(strata_function_create(strategy, apply_to_zeros, model, &function, &err));
    cr_assert_eq(strata_strategy_run(function, NULL, 0, &outputs, 1, &err), STRATA_UNSUPPORTED, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "name the layers"), "%s", err.message);
    strata_function_destroy(function);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

/* With central_storage the parameter device is the host. If the replicas' devices are of another kind, fit makes the
 * updates there. */
Test(loop, has_the_bits_of_fit_under_every_strategy) {
    const plan plans[] = {{.strategy = "one_device", .devices = {"host"}},
                          {.strategy = "one_device", .devices = {"opencl:0"}},
                          {.strategy = "one_device", .devices = {"vulkan:0"}},
                          {.strategy = "mirrored", .devices = {"host", "host"}},
                          {.strategy = "mirrored", .devices = {"host", "host", "host"}},
                          {.strategy = "mirrored", .devices = {"opencl:0.0", "opencl:0.1"}},
                          {.strategy = "mirrored", .devices = {"host", "vulkan:0"}},
                          {.strategy = "central_storage", .devices = {"host", "host"}}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        plan p = plans[i];
        p.penalty = true;
        expect_like_fit(p, "penalty");
        p.dropout = p.batch_norm = true;
        expect_like_fit(p, "dropout and batch norm");
    }
}

Test(loop, has_the_bits_of_fit_with_every_optimizer_and_clipping) {
    plan p = {.strategy = "mirrored", .devices = {"host", "host"}};
    for (int i = 0; i < TEST_OPTIMIZERS; i++) {
        p.optimizer = (strata_optimizer){.name = test_optimizers[i], .learning_rate = 0.01, .momentum = i ? 0 : 0.9};
        expect_like_fit(p, test_optimizers[i]);
    }
    p.optimizer = strata_adam_optimizer(0.01);
    p.optimizer.clip_value = 1e-3;
    expect_like_fit(p, "clip_value");
    p.optimizer.clip_value = 0;
    p.optimizer.clip_norm = 1e-2;
    expect_like_fit(p, "clip_norm");
    p.optimizer.clip_norm = 0;
    p.optimizer.clip_global_norm = 1e-2;
    expect_like_fit(p, "clip_global_norm");
    p.optimizer.schedule = (strata_schedule){.name = "cosine", .steps = 10};
    expect_like_fit(p, "a schedule");
}

Test(loop, has_the_bits_of_fit_with_a_sharded_optimizer) {
    plan p = {.strategy = "mirrored", .devices = {"host", "host", "host"}, .sharded = true, .batch_norm = true};
    expect_like_fit(p, "shards");
    p.optimizer = strata_adam_optimizer(0.01);
    p.optimizer.clip_global_norm = 1e-2;
    expect_like_fit(p, "shards and a norm");
}

/* Shards then end where parameters end. */
Test(loop, shards_optimizers_that_take_norms_of_whole_parameters_as_fit_does) {
    static const char *const names[] = {"lars", "lamb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const plan p = {.strategy = "mirrored",
                        .devices = {"host", "host", "host"},
                        .sharded = true,
                        .batch_norm = true,
                        .optimizer = {.name = names[i], .learning_rate = 0.01}};
        expect_like_fit(p, names[i]);
    }
}

Test(loop, refuses_shards_where_fit_refuses_them) {
    const plan p = {.strategy = "central_storage", .devices = {"host", "host"}, .sharded = true};
    strata_strategy *strategy = make_strategy(&p);
    strata_distributed_optimizer *optimizer = NULL;
    const strata_optimizer adam = strata_adam_optimizer(0.01);
    OK(strata_strategy_enter(strategy, &err));
    cr_assert_eq(strata_distributed_optimizer_create(&adam, &optimizer, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "shard_optimizer is YES, but one device makes the update for all"), "%s", err.message);
    OK(strata_strategy_exit(strategy, &err));
    strata_strategy_destroy(strategy);
}

Test(loop, has_the_bits_of_fit_in_bf16) {
    const plan p = {.strategy = "mirrored", .devices = {"host", "host"}, .precision = STRATA_DTYPE_BF16};
    expect_like_fit(p, "bf16");
}

/* With batches of 2 examples, one of 3 replicas has no examples in each step. */
Test(loop, has_the_bits_of_fit_where_replicas_have_no_examples) {
    const plan p = {.strategy = "mirrored", .devices = {"host", "host", "host"}, .batch = 2, .batch_norm = true};
    expect_like_fit(p, "idle replicas");
}

/* The sample's model has batch norm, residual branches, weight decay and a learning rate schedule. */
Test(loop, trains_a_residual_network_as_fit_does) {
    plan p = {.strategy = "mirrored", .devices = {"host", "host"}, .json = "samples/cifar10_resnet/model.json", .batch = 4};
    expect_like_fit(p, "cifar10_resnet");
}

/* ---- parts of a loop ---- */

/* Applies the model before and after an update that changes nothing. */
static strata_status step_twice(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *e) {
    const loop *l = user;
    strata_tensor *before = strata_model_apply(l->model, replica, inputs[0], true);
    strata_optimizer_minimize(replica, l->optimizer, strata_reduce_sum(before, NULL, 0, false),
                              strata_model_variables(l->model));
    strata_replica_return(replica, before);
    strata_replica_return(replica, strata_model_apply(l->model, replica, inputs[0], true));
    (void)e;
    return STRATA_OK;
}

Test(loop, an_application_after_an_update_drops_other_elements) {
    enum { ROWS = 4, UNITS = 64 };
    const plan p = {.strategy = "one_device", .devices = {"host"}};
    strata_strategy *strategy = make_strategy(&p);
    strata_function *function = NULL;
    strata_per_replica x = {0}, outputs[2] = {{0}};
    loop l = {0};
    const strata_optimizer sgd = strata_sgd_optimizer(STRATA_ZERO, 0, false);
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &l.model, &err));
    strata_model_add_dense(l.model, (strata_dense_options){.units = UNITS});
    strata_model_add_dropout(l.model, (strata_dropout_options){.rate = 0.5});
    OK(strata_model_build(l.model, NULL, &(strata_compile_options){.strategy = strategy, .seed = 3}, &err));
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_optimizer_create(&sgd, &l.optimizer, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_function_create(strategy, step_twice, &l, &function, &err));
    OK(strata_per_replica_create(1, &x, &err));
    x.arrays[0] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, FEATURES), -1, 1, 11);
    OK(strata_strategy_run(function, &x, 1, outputs, 2, &err));
    const float *before = outputs[0].arrays[0].data, *after = outputs[1].arrays[0].data;
    int n_same = 0, n_both = 0;
    for (int i = 0; i < ROWS * UNITS; i++) {
        n_same += (before[i] == 0) == (after[i] == 0);
        n_both += before[i] != 0 && before[i] == after[i];
    }
    cr_assert_lt(n_same, ROWS * UNITS * 3 / 4, "%d of %d elements", n_same, ROWS * UNITS);
    cr_assert_gt(n_both, ROWS * UNITS / 8, "the parameters are the same");
    for (int i = 0; i < 2; i++) strata_per_replica_finish(&outputs[i]);
    strata_per_replica_finish(&x);
    strata_function_destroy(function);
    strata_distributed_optimizer_destroy(l.optimizer);
    strata_model_destroy(l.model);
    strata_strategy_destroy(strategy);
}

typedef struct two {
    strata_distributed_variable *a, *b;
    strata_distributed_optimizer *optimizer;
} two;

/* A variable that is read twice gets the sum of both gradients. Here the loss is sum(a a b). */
static strata_status step_two(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *e) {
    two *t = user;
    strata_distributed_variable *items[] = {t->a, t->b};
    const strata_variables variables = {items, 2};
    strata_tensor *a = strata_replica_read(replica, t->a), *again = strata_replica_read(replica, t->a);
    strata_tensor *b = strata_replica_read(replica, t->b);
    strata_tensor *loss = strata_reduce_sum(strata_mul(strata_mul(a, again), b), NULL, 0, false);
    strata_tensor *const *gradients = strata_replica_gradients(replica, loss, variables);
    strata_optimizer_apply(replica, t->optimizer, gradients, variables);
    strata_replica_return(replica, gradients[0]);
    strata_replica_return(replica, gradients[1]);
    (void)inputs, (void)e;
    return STRATA_OK;
}

Test(loop, variables_of_ones_own_are_updated_by_an_optimizer) {
    const plan p = {.strategy = "mirrored", .devices = {"host", "host"}};
    strata_strategy *strategy = make_strategy(&p);
    strata_function *function = NULL;
    strata_per_replica outputs[2] = {{0}};
    two t = {0};
    float a[2] = {2, 3}, b[2] = {5, -1};
    strata_array a_value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), a),
                 b_value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), b);
    const strata_optimizer sgd = strata_sgd_optimizer(0.5, 0, false);
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_create("a", STRATA_DTYPE_F32, STRATA_SHAPE(2), NULL, &t.a, &err));
    OK(strata_distributed_create("b", STRATA_DTYPE_F32, STRATA_SHAPE(2), NULL, &t.b, &err));
    OK(strata_distributed_optimizer_create(&sgd, &t.optimizer, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_distributed_set(t.a, &a_value, &err));
    OK(strata_distributed_set(t.b, &b_value, &err));
    OK(strata_function_create(strategy, step_two, &t, &function, &err));
    OK(strata_strategy_run(function, NULL, 0, outputs, 2, &err));
    const float *da = outputs[0].arrays[1].data, *db = outputs[1].arrays[0].data;
    cr_assert(da[0] == 20 && da[1] == -6 && db[0] == 4 && db[1] == 9, "%g %g %g %g", da[0], da[1], db[0], db[1]);
    OK(strata_distributed_get(t.a, &a_value, &err)); /* the two replicas have the same gradient: a - 0.5 (da + da) */
    cr_assert(a[0] == -18 && a[1] == 9, "%g %g", a[0], a[1]);
    strata_per_replica_finish(&outputs[0]);
    strata_per_replica_finish(&outputs[1]);
    strata_function_destroy(function);
    strata_distributed_optimizer_destroy(t.optimizer);
    strata_distributed_destroy(t.a);
    strata_distributed_destroy(t.b);
    strata_strategy_destroy(strategy);
}

/* The loss is sum(a): its gradient is 1 on each replica. */
static strata_status step_sum(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *e) {
    two *t = user;
    strata_optimizer_minimize(replica, t->optimizer, strata_reduce_sum(strata_replica_read(replica, t->a), NULL, 0, false),
                              (strata_variables){&t->a, 1});
    (void)inputs, (void)e;
    return STRATA_OK;
}

/* A new variable gets new slots, even where it has the memory of one that was destroyed. */
Test(loop, a_new_variable_has_new_slots) {
    const plan p = {.strategy = "mirrored", .devices = {"host", "host"}};
    strata_strategy *strategy = make_strategy(&p);
    const strata_optimizer sgd = strata_sgd_optimizer(0.5, 0.5, false);
    two t = {0};
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_optimizer_create(&sgd, &t.optimizer, &err));
    OK(strata_strategy_exit(strategy, &err));
    for (int i = 0; i < 3; i++) {
        strata_function *function = NULL;
        float a[2] = {0};
        strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), a);
        OK(strata_strategy_enter(strategy, &err));
        OK(strata_distributed_create("a", STRATA_DTYPE_F32, STRATA_SHAPE(2), NULL, &t.a, &err));
        OK(strata_strategy_exit(strategy, &err));
        OK(strata_function_create(strategy, step_sum, &t, &function, &err));
        OK(strata_strategy_run(function, NULL, 0, NULL, 0, &err));
        OK(strata_distributed_get(t.a, &value, &err));
        cr_assert(a[0] == -1 && a[1] == -1, "variable %d: %g %g", i, a[0], a[1]); /* with old momentum: -1.5 */
        strata_function_destroy(function);
        strata_distributed_destroy(t.a);
    }
    strata_distributed_optimizer_destroy(t.optimizer);
    strata_strategy_destroy(strategy);
}

/* In any graph a model computes what predict returns. */
Test(loop, a_model_can_be_applied_in_any_graph) {
    const plan p = {.batch_norm = true, .dropout = true};
    strata_device *host = NULL;
    strata_dataset *dataset = make_dataset(&p);
    strata_model *model = make_model(&p);
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_array want = {0}, got = {0};
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_compile(model, host, &(strata_compile_options){.seed = 3, .loss = "mse"}, &err));
    OK(strata_graph_create(&graph, &err));
    strata_tensor *in = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N, FEATURES));
    strata_tensor *out = strata_model_apply(model, NULL, in, false);
    OK(strata_graph_check(graph, &err));
    OK(strata_executable_create(host, &out, 1, NULL, 0, NULL, &exe, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(N, CLASSES), &got, &err));
    const char *name = "x";
    OK(strata_executable_run(exe, &name, &classes.x, 1, &got, 1, &err));
    OK(strata_model_predict(model, dataset, 0, &want, &err));
    cr_assert_eq(memcmp(got.data, want.data, strata_array_bytes(&got)), 0);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_array_finish(&want);
    strata_array_finish(&got);
    strata_model_destroy(model);
    strata_device_close(host);
    test_classes_free(&classes);
}

/* ---- errors ---- */

typedef enum fault { TRAINING_ELSEWHERE, WRONG_LOSS, WRONG_SHAPE, UNREAD, OTHER_STRATEGY } fault;

typedef struct faulty {
    fault fault;
    strata_model *model, *other;
    strata_distributed_optimizer *optimizer;
} faulty;

static strata_status faulty_step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *e) {
    const faulty *f = user;
    const strata_variables variables = strata_model_variables(f->model);
    strata_tensor *in = inputs[0];
    if (f->fault == WRONG_SHAPE) in = strata_reshape(in, STRATA_SHAPE(FEATURES, 4));
    strata_tensor *out = f->fault == UNREAD ? in
                                            : strata_model_apply(f->fault == OTHER_STRATEGY ? f->other : f->model,
                                                                 f->fault == TRAINING_ELSEWHERE ? NULL : replica, in, true);
    strata_tensor *losses = strata_example_losses(f->fault == WRONG_LOSS ? "nonsense" : "mse", NULL, out, out);
    strata_tensor *loss = strata_replica_average_loss(replica, losses);
    strata_optimizer_apply(replica, f->optimizer, strata_replica_gradients(replica, loss, variables), variables);
    strata_replica_return(replica, loss);
    (void)e;
    return STRATA_OK;
}

Test(loop, what_goes_wrong_is_said) {
    static const char *const says[] = {[TRAINING_ELSEWHERE] = "training needs a replica's function",
                                       [WRONG_LOSS] = "there is no loss \"nonsense\"",
                                       [WRONG_SHAPE] = "the model takes f32",
                                       [UNREAD] = "has not read variable",
                                       [OTHER_STRATEGY] = "on the devices of another strategy"};
    const plan p = {.strategy = "mirrored", .devices = {"host", "host"}};
    strata_strategy *strategy = make_strategy(&p), *other = make_strategy(&p);
    faulty f = {.model = make_model(&p), .other = make_model(&p)};
    strata_array values = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(4, FEATURES), -1, 1, 2);
    strata_per_replica inputs = {.n = 1, .arrays = &values}, outputs = {0};
    OK(strata_model_build(f.model, NULL, &(strata_compile_options){.strategy = strategy}, &err));
    OK(strata_model_build(f.other, NULL, &(strata_compile_options){.strategy = other}, &err));
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_optimizer_create(&p.optimizer, &f.optimizer, &err));
    strata_distributed_optimizer *none = NULL;
    const strata_optimizer accumulating = {.name = "adam", .gradient_accumulation_steps = 2};
    cr_assert_eq(strata_distributed_optimizer_create(&accumulating, &none, &err), STRATA_INVALID);
    OK(strata_strategy_exit(strategy, &err));
    cr_assert_eq(strata_distributed_optimizer_create(&p.optimizer, &none, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "needs a strategy's scope"), "%s", err.message);
    cr_assert_eq(strata_model_fit(f.model, NULL, NULL, NULL, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "built, without an optimizer and a loss"), "%s", err.message);
    for (int i = 0; i < (int)(sizeof says / sizeof *says); i++) {
        strata_function *function = NULL;
        f.fault = (fault)i;
        OK(strata_function_create(strategy, faulty_step, &f, &function, &err));
        cr_assert_eq(strata_strategy_run(function, &inputs, 1, &outputs, 1, &err), STRATA_INVALID, "%d", i);
        cr_assert_not_null(strstr(err.message, says[i]), "\"%s\" lacks \"%s\"", err.message, says[i]);
        strata_function_destroy(function);
    }
    strata_array_finish(&values);
    strata_per_replica_finish(&outputs);
    strata_distributed_optimizer_destroy(f.optimizer);
    strata_model_destroy(f.model);
    strata_model_destroy(f.other);
    strata_strategy_destroy(strategy);
    strata_strategy_destroy(other);
}
