/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains one program under every strategy. The losses must be those of one device on the same global batches, and the
 * replicas' copies of the parameters must have the same bits. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/run/strategy.h"
#include "strata/strata.h"
#include "tests/strategies/strategies_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/names.h"

enum { FEATURES = 7, CLASSES = 3, MOST_LOSSES = 100, MOST_REPLICAS = 8 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

TestSuite(training, .init = test_folder_make, .fini = test_folder_remove);

/* ---- the program: what a run trains, and its results ---- */

typedef struct plan {
    strata_optimizer optimizer; /* name NULL: adam */
    bool dropout, penalty, batch_norm, synchronized;
    int64_t n, batch; /* number of examples; size of the global batch */
    int epochs;
    const char *metrics;
    strata_dtype precision;
} plan;

typedef struct outcome {
    int n_losses;
    float losses[MOST_LOSSES];
    strata_metrics trained, evaluated;
    double predictions[MOST_LOSSES][CLASSES];
    bool equal;
    char sha[65];
    strata_communication_totals communication;
} outcome;

static test_classes classes; /* the data of the current run */

static strata_dataset *make_dataset(int64_t n) {
    classes = test_classes_make(n, FEATURES);
    return classes.dataset;
}

static strata_model *make_model(const plan *p) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model,
                           (strata_dense_options){.units = 12, .activation = "relu", .kernel_l2 = p->penalty ? 0.01 : 0});
    if (p->batch_norm) strata_model_add_batch_norm(model, (strata_batch_norm_options){.synchronized = p->synchronized});
    if (p->dropout) strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.25});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
    return model;
}

static void compile(strata_model *model, const plan *p, strata_strategy *strategy) {
    const strata_compile_options opts = {
        .optimizer = p->optimizer, .metrics = p->metrics, .seed = 3, .strategy = strategy, .precision = p->precision};
    OK(strata_model_compile(model, NULL, &opts, &err));
}

static void look(strata_model *model, const strata_dataset *dataset, const plan *p, outcome *out) {
    strata_array predictions = {0};
    OK(strata_model_evaluate(model, dataset, p->batch, &out->evaluated, &err));
    OK(strata_model_predict(model, dataset, p->batch, &predictions, &err));
    cr_assert_eq(predictions.shape.dims[0], p->n);
    for (int64_t i = 0; i < p->n && i < MOST_LOSSES; i++)
        for (int c = 0; c < CLASSES; c++) out->predictions[i][c] = (double)((float *)predictions.data)[i * CLASSES + c];
    strata_array_finish(&predictions);
    OK(strata_model_replicas_equal(model, &out->equal, &err));
    OK(strata_model_sha256(model, out->sha, &err));
    out->communication = strata_model_communication(model);
}

/* Takes the strategy. */
static outcome run(const plan *p, strata_strategy *strategy) {
    outcome out = {0};
    strata_history history = {0};
    strata_dataset *dataset = make_dataset(p->n);
    strata_model *model = make_model(p);
    compile(model, p, strategy);
    const strata_fit_options fit = {.epochs = p->epochs, .batch = p->batch, .seed = 5};
    OK(strata_model_fit(model, dataset, &fit, &history, &err));
    out.n_losses = history.n_losses;
    memcpy(out.losses, history.losses, sizeof out.losses);
    out.trained = history.epochs[history.n_epochs - 1];
    look(model, dataset, p, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&classes);
    return out;
}

/* ---- strategies ---- */

static strata_strategy *hosts(int n) {
    strata_device *devices[MOST_REPLICAS];
    strata_strategy *strategy = NULL;
    for (int r = 0; r < n; r++) OK(strata_device_open("host", NULL, &devices[r], &err));
    OK(strata_strategy_from_devices(devices, n, &strategy, &err));
    return strategy;
}

static strata_strategy *named(const char *name, const char *const *devices, int n, const strata_strategy_options *more) {
    strata_strategy *strategy = NULL;
    strata_strategy_options opts = more ? *more : (strata_strategy_options){0};
    opts.devices = devices;
    opts.n_devices = n;
    OK(strata_strategy_create(name, &opts, &strategy, &err));
    return strategy;
}

static bool there_is(const char *device) {
    strata_device *opened = NULL;
    if (strata_device_open(device, NULL, &opened, NULL)) return false;
    strata_device_close(opened);
    return true;
}

/* ---- comparison of results ---- */

static void expect_like(const outcome *got, const outcome *wanted, double tolerance, const char *what) {
    cr_assert_eq(got->n_losses, wanted->n_losses);
    for (int i = 0; i < wanted->n_losses; i++)
        cr_assert_float_eq(got->losses[i], wanted->losses[i], tolerance * fabs((double)wanted->losses[i]),
                           "%s: loss %d is %.9g, on one device %.9g", what, i, (double)got->losses[i],
                           (double)wanted->losses[i]);
    cr_assert_eq(got->trained.examples, wanted->trained.examples);
    cr_assert_float_eq(got->trained.loss, wanted->trained.loss, tolerance * wanted->trained.loss, "%s", what);
    cr_assert_float_eq(got->evaluated.loss, wanted->evaluated.loss, 10 * tolerance * wanted->evaluated.loss, "%s: %g, not %g",
                       what, got->evaluated.loss, wanted->evaluated.loss);
    cr_assert_float_eq(got->evaluated.accuracy, wanted->evaluated.accuracy, 1e-9, "%s", what);
    for (int m = 0; m < wanted->evaluated.n; m++)
        cr_assert_float_eq(got->evaluated.more[m].value, wanted->evaluated.more[m].value, 1e-6, "%s", what);
    for (int i = 0; i < MOST_LOSSES; i++)
        for (int c = 0; c < CLASSES; c++)
            cr_assert_float_eq(got->predictions[i][c], wanted->predictions[i][c], 100 * tolerance, "%s: prediction %d", what,
                               i);
    cr_assert(got->equal, "%s: the replicas' parameters differ", what);
}

static void expect_every_number_of_replicas_like_one(const plan *p) {
    static const int counts[] = {2, 3, 5, 8};
    const outcome one = run(p, hosts(1));
    cr_assert_lt(one.losses[one.n_losses - 1], one.losses[0]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char what[32];
        snprintf(what, sizeof what, "%d replicas", counts[i]);
        const outcome many = run(p, hosts(counts[i]));
        expect_like(&many, &one, 1e-5, what);
    }
}

/* ---- equivalence to one device ---- */

Test(training, replicas_train_as_one_device_with_sgd) {
    expect_every_number_of_replicas_like_one(
        &(plan){.optimizer = strata_sgd_optimizer(0.1, 0, false), .n = 80, .batch = 16, .epochs = 10});
}

Test(training, replicas_train_as_one_device_with_momentum) {
    expect_every_number_of_replicas_like_one(
        &(plan){.optimizer = strata_sgd_optimizer(0.05, 0.9, true), .n = 80, .batch = 16, .epochs = 10});
}

Test(training, replicas_train_as_one_device_with_adam_and_dropout) {
    expect_every_number_of_replicas_like_one(
        &(plan){.optimizer = strata_adam_optimizer(0.003), .dropout = true, .n = 80, .batch = 16, .epochs = 10});
}

/* Penalties must be added once, and clipping must use the norm of the gradients of the whole batch. */
Test(training, penalties_and_clipping_are_of_the_whole_batch) {
    strata_optimizer clipped = strata_sgd_optimizer(0.1, 0, false);
    clipped.clip_global_norm = 0.5;
    expect_every_number_of_replicas_like_one(&(plan){.optimizer = clipped, .penalty = true, .n = 80, .batch = 16, .epochs = 5});
}

/* Some replicas have fewer examples than others, or none. 53 = 3 x 16 + 5; 33 = 2 x 16 + 1. */
Test(training, uneven_and_empty_last_batches_are_exact) {
    expect_every_number_of_replicas_like_one(
        &(plan){.optimizer = strata_adam_optimizer(0.003), .n = 53, .batch = 16, .epochs = 5});
    expect_every_number_of_replicas_like_one(
        &(plan){.optimizer = strata_adam_optimizer(0.003), .n = 33, .batch = 16, .epochs = 5});
    expect_every_number_of_replicas_like_one(
        &(plan){.optimizer = strata_sgd_optimizer(0.1, 0, false), .n = 6, .batch = 1, .epochs = 3});
}

Test(training, metrics_and_predictions_do_not_depend_on_the_replicas) {
    expect_every_number_of_replicas_like_one(&(plan){.optimizer = strata_adam_optimizer(0.003),
                                                     .n = 67,
                                                     .batch = 10,
                                                     .epochs = 3,
                                                     .metrics = "precision,recall,confusion_matrix"});
}

/* ---- accumulated gradients: the same as one batch with all examples, under every strategy ---- */

/* Divides the plan's batch into quarters whose gradients are accumulated. */
static plan in_quarters(const plan *p) {
    plan parts = *p;
    parts.batch /= 4;
    parts.optimizer.gradient_accumulation_steps = 4;
    return parts;
}

static void expect_quarters_like_whole(const plan *p) {
    static const int counts[] = {1, 2, 3, 8};
    const outcome whole = run(p, hosts(1));
    const plan parts = in_quarters(p);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char what[48];
        snprintf(what, sizeof what, "accumulated on %d replicas", counts[i]);
        const outcome accumulated = run(&parts, hosts(counts[i]));
        expect_like(&accumulated, &whole, 1e-5, what);
    }
}

Test(training, accumulated_batches_train_as_one_batch) {
    expect_quarters_like_whole(&(plan){.optimizer = strata_sgd_optimizer(0.1, 0.9, false), .n = 80, .batch = 16, .epochs = 5});
    expect_quarters_like_whole(
        &(plan){.optimizer = strata_adam_optimizer(0.003), .dropout = true, .n = 80, .batch = 16, .epochs = 5});
}

/* 53 = 3 x 16 + 4 + 1: the last update has two batches, the second of which has one example. 33: the last update has one
 * example. 6: an epoch has fewer examples than an update. */
Test(training, accumulation_weighs_examples_at_the_end_of_an_epoch) {
    static const int64_t sizes[] = {53, 33, 6};
    for (int i = 0; i < 3; i++)
        expect_quarters_like_whole(
            &(plan){.optimizer = strata_sgd_optimizer(0.1, 0, false), .n = sizes[i], .batch = 16, .epochs = 3});
}

Test(training, accumulation_counts_penalties_once_and_clips_the_sum) {
    strata_optimizer clipped = strata_sgd_optimizer(0.1, 0, false);
    clipped.clip_global_norm = 0.5;
    expect_quarters_like_whole(&(plan){.optimizer = clipped,
                                       .penalty = true,
                                       .n = 53,
                                       .batch = 16,
                                       .epochs = 3,
                                       .metrics = "precision,recall,confusion_matrix"});
}

Test(training, accumulation_works_with_a_parameter_device_and_a_mixed_group) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .n = 53, .batch = 16, .epochs = 3}, parts = in_quarters(&p);
    static const char *const devices[] = {"opencl:0", "host", "vulkan:0"};
    if (!there_is("opencl:0") || !there_is("vulkan:0")) cr_skip_test("opencl:0 or vulkan:0 is not there");
    const outcome whole = run(&p, hosts(1));
    const outcome alone = run(&parts, named("one_device", devices + 2, 1, NULL));
    expect_like(&alone, &whole, 1e-5, "vulkan:0");
    const outcome central = run(&parts, named("central_storage", devices, 2, NULL));
    expect_like(&central, &whole, 1e-5, "central_storage");
    const outcome mixed = run(&parts, named("mirrored", devices, 3, NULL));
    expect_like(&mixed, &whole, 1e-5, "a mixed group");
    const outcome measured = run(&parts, named("mirrored", devices, 3, &(strata_strategy_options){.auto_split = true}));
    expect_like(&measured, &whole, 1e-5, "auto");
}

/* The communication of an update does not depend on the number of accumulated batches. */
Test(training, accumulation_communicates_once_an_update) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .batch_norm = true, .n = 64, .batch = 16, .epochs = 2};
    const plan parts = in_quarters(&p);
    const outcome whole = run(&p, hosts(3)), accumulated = run(&parts, hosts(3));
    cr_assert_gt(whole.communication.bytes_per_step, 0);
    cr_assert_eq(accumulated.communication.bytes_per_step, whole.communication.bytes_per_step);
    cr_assert(accumulated.equal);
}

/* ---- copies of the parameters ---- */

Test(training, copies_stay_identical_for_200_steps) {
    const plan p = {
        .optimizer = strata_adam_optimizer(0.003), .dropout = true, .batch_norm = true, .n = 80, .batch = 16, .epochs = 40};
    const outcome out = run(&p, hosts(8));
    cr_assert(out.equal);
}

Test(training, the_same_run_gives_the_same_bits) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .dropout = true, .n = 80, .batch = 16, .epochs = 4};
    const outcome a = run(&p, hosts(3)), b = run(&p, hosts(3));
    cr_assert_str_eq(a.sha, b.sha);
}

/* Each replica rounds its share of the gradients to f16. The update is in f32. */
Test(training, copies_stay_identical_in_mixed_precision) {
    plan p = {.optimizer = strata_adam_optimizer(0.003), .dropout = true, .n = 53, .batch = 16, .epochs = 5};
    const outcome one = run(&p, hosts(1));
    const strata_dtype halves[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    for (int i = 0; i < 2; i++) {
        p.precision = halves[i];
        const outcome out = run(&p, hosts(3));
        cr_assert(out.equal);
        for (int k = 0; k < one.n_losses; k++)
            cr_assert_float_eq(out.losses[k], one.losses[k], 0.02 * fabs((double)one.losses[k]), "loss %d", k);
        static const char *const host[] = {"host"};
        const outcome central = run(&p, named("central_storage", host, 1, NULL));
        cr_assert(central.equal);
        cr_assert_float_eq(central.trained.loss, one.trained.loss, 0.02 * one.trained.loss);
    }
}

/* ---- central storage ---- */

Test(training, central_storage_is_like_mirrored_and_moves_only_what_it_must) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .n = 53, .batch = 16, .epochs = 5, .batch_norm = false};
    if (!there_is("opencl:0")) cr_skip_test("opencl:0 is not there");
    const char *devices[] = {"opencl:0"};
    const outcome one = run(&p, named("one_device", devices, 1, NULL));
    const outcome central = run(&p, named("central_storage", devices, 1, NULL));
    expect_like(&central, &one, 1e-4, "central_storage on one device");
    /* Expected communication: the gradients of the padded parameters and two sums to the host, and the new parameters back.
     * Each is read and written once. */
    const double flat = central.communication.bytes_per_step / (2 * sizeof(float));
    cr_assert_geq(flat, 2 * (FEATURES * 12 + 12 + 12 * CLASSES + CLASSES) + 2);
    cr_assert_leq(flat, 2 * (FEATURES * 12 + 12 + 12 * CLASSES + CLASSES + 4 * 64) + 2);
}

/* ---- devices of several backends ---- */

static void expect_mixed(const char *const *devices, int n) {
    for (int i = 0; i < n; i++)
        if (!there_is(devices[i])) cr_skip_test("%s is not there", devices[i]);
    const plan p = {
        .optimizer = strata_adam_optimizer(0.003), .dropout = true, .batch_norm = true, .n = 80, .batch = 16, .epochs = 40};
    const outcome mixed = run(&p, named("mirrored", devices, n, NULL));
    cr_assert(mixed.equal, "after 200 steps the copies differ");
    plan plain = {.optimizer = strata_sgd_optimizer(0.1, 0, false), .n = 53, .batch = 16, .epochs = 5};
    const outcome one = run(&plain, hosts(1)), many = run(&plain, named("mirrored", devices, n, NULL));
    expect_like(&many, &one, 1e-5, "a mixed group");
    const outcome central = run(&plain, named("central_storage", devices, n, NULL));
    expect_like(&central, &one, 1e-5, "central_storage over a mixed group");
}

Test(training, host_and_opencl_train_together) {
    expect_mixed((const char *[]){"opencl:0", "host"}, 2);
}

Test(training, host_opencl_and_vulkan_train_together) {
    expect_mixed((const char *[]){"vulkan:0", "opencl:0", "host"}, 3);
}

Test(training, halves_of_a_cpu_train_together) {
    expect_mixed((const char *[]){"opencl:0.0", "opencl:0.1"}, 2);
}

/* In the reversed order, and with other cross-device ops, the host performs the exchanges. */
Test(training, halves_of_a_cpu_add_up_by_themselves_with_the_bits_of_the_host) {
    const char *devices[] = {"opencl:0.0", "opencl:0.1"}, *reversed[] = {"opencl:0.1", "opencl:0.0"};
    if (!there_is("opencl:0.1")) cr_skip_test("opencl:0.1 is not there");
    const strata_shard_optimizer sharded[] = {STRATA_SHARD_OPTIMIZER_NO, STRATA_SHARD_OPTIMIZER_YES};
    for (size_t i = 0; i < sizeof sharded / sizeof *sharded; i++) {
        const plan p = {.optimizer = strata_adam_optimizer(0.003), .dropout = true, .n = 53, .batch = 16, .epochs = 3};
        const strata_strategy_options opts = {.shard_optimizer = sharded[i]};
        strata_strategy *inside = named("mirrored", devices, 2, &opts), *outside = named("mirrored", reversed, 2, &opts);
        cr_expect_eq(inside->cores.n, strstr(strata_strategy_choice(inside), "add up by themselves") ? 2 : 0);
        cr_expect_eq(outside->cores.n, 0);
        const outcome one = run(&p, inside), other = run(&p, outside);
        cr_expect_str_eq(one.sha, other.sha);
        cr_expect(one.equal && other.equal);
    }
}

/* The programs of two connected pairs could wait for each other, since they share the driver's threads. */
Test(training, halves_of_a_cpu_are_connected_once_at_a_time) {
    const char *devices[] = {"opencl:0.0", "opencl:0.1"};
    if (!there_is("opencl:0.1")) cr_skip_test("opencl:0.1 is not there");
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .n = 32, .batch = 16, .epochs = 2};
    strata_strategy *first = named("mirrored", devices, 2, NULL), *second = named("mirrored", devices, 2, NULL);
    if (first->cores.n < 2) cr_skip_test("this driver's halves do not add up by themselves");
    cr_expect_eq(second->cores.n, 0);
    const outcome outside = run(&p, second), inside = run(&p, first);
    cr_expect_str_eq(inside.sha, outside.sha);
    strata_strategy *third = named("mirrored", devices, 2, NULL);
    cr_expect_eq(third->cores.n, 2, "the first pair was closed");
    strata_strategy_destroy(third);
}

/* ---- packing of gradients ---- */

Test(training, the_size_of_packs_changes_no_bit) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .penalty = true, .n = 32, .batch = 16, .epochs = 3};
    if (!there_is("opencl:0.1")) cr_skip_test("opencl:0.1 is not there");
    const char *devices[] = {"opencl:0.0", "opencl:0.1"};
    const outcome whole = run(&p, named("mirrored", devices, 2, NULL));
    const int64_t sizes[] = {1, 50000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const outcome parts = run(&p, named("mirrored", devices, 2, &(strata_strategy_options){.bytes_per_pack = sizes[i]}));
        cr_assert_str_eq(parts.sha, whole.sha, "bytes_per_pack %lld", (long long)sizes[i]);
        cr_assert(parts.equal);
    }
}

/* ---- the sharded optimizer ---- */

static strata_strategy *sharded(strata_strategy *strategy) {
    strategy->shard_optimizer = STRATA_SHARD_OPTIMIZER_YES;
    return strategy;
}

static void expect_same_bits(const outcome *got, const outcome *wanted, const char *what, int n) {
    cr_assert_eq(got->n_losses, wanted->n_losses, "%s, %d replicas", what, n);
    for (int i = 0; i < got->n_losses; i++)
        cr_assert_eq(got->losses[i], wanted->losses[i], "%s, %d replicas, step %d: %.9g beside %.9g", what, n, i,
                     (double)got->losses[i], (double)wanted->losses[i]);
    cr_assert_str_eq(got->sha, wanted->sha, "%s, %d replicas", what, n);
    cr_assert(got->equal, "%s, %d replicas", what, n);
    cr_assert_eq(got->evaluated.loss, wanted->evaluated.loss, "%s, %d replicas", what, n);
}

static void expect_shards_like_whole(const plan *p, const char *what) {
    const int replicas[] = {2, 3, 8};
    for (size_t i = 0; i < sizeof replicas / sizeof *replicas; i++) {
        strata_strategy *whole = hosts(replicas[i]);
        whole->shard_optimizer = STRATA_SHARD_OPTIMIZER_NO;
        const outcome wanted = run(p, whole), got = run(p, sharded(hosts(replicas[i])));
        expect_same_bits(&got, &wanted, what, replicas[i]);
    }
}

/* With 8 replicas there are more shards than parameters, and shards begin and end within parameters. */
Test(training, shards_have_the_bits_of_replicated_updates_with_every_optimizer) {
    for (int i = 0; i < TEST_OPTIMIZERS; i++) {
        const plan p = {.optimizer = {.name = test_optimizers[i], .learning_rate = 0.01, .momentum = i ? 0 : 0.9},
                        .penalty = true,
                        .n = 53,
                        .batch = 12,
                        .epochs = 3};
        expect_shards_like_whole(&p, test_optimizers[i]);
    }
}

Test(training, shards_have_the_bits_of_replicated_updates_with_clipping_and_accumulation) {
    plan p = {.optimizer = strata_adam_optimizer(0.01), .batch_norm = true, .n = 53, .batch = 12, .epochs = 3};
    p.optimizer.clip_value = 0.01;
    expect_shards_like_whole(&p, "clip_value");
    p.optimizer.clip_value = 0;
    p.optimizer.clip_norm = 0.05;
    expect_shards_like_whole(&p, "clip_norm");
    p.optimizer.clip_norm = 0;
    p.optimizer.clip_global_norm = 0.1;
    expect_shards_like_whole(&p, "clip_global_norm");
    p.optimizer.clip_global_norm = 0;
    p.optimizer.gradient_accumulation_steps = 3;
    expect_shards_like_whole(&p, "accumulation");
}

Test(training, shards_have_the_bits_of_replicated_updates_in_mixed_precision) {
    plan p = {.optimizer = strata_adam_optimizer(0.01), .n = 53, .batch = 12, .epochs = 3};
    p.precision = STRATA_DTYPE_F16;
    expect_shards_like_whole(&p, "f16");
    p.precision = STRATA_DTYPE_BF16;
    expect_shards_like_whole(&p, "bf16");
}

Test(training, shards_work_over_halves_of_a_cpu_in_packs_of_any_size) {
    const char *devices[] = {"opencl:0.0", "opencl:0.1"};
    if (!there_is("opencl:0.1")) cr_skip_test("opencl:0.1 is not there");
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .n = 53, .batch = 16, .epochs = 3};
    strata_strategy_options opts = {.shard_optimizer = STRATA_SHARD_OPTIMIZER_NO};
    const outcome whole = run(&p, named("mirrored", devices, 2, &opts));
    const int64_t sizes[] = {1, 50000000};
    opts.shard_optimizer = STRATA_SHARD_OPTIMIZER_YES;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        opts.bytes_per_pack = sizes[i];
        const outcome parts = run(&p, named("mirrored", devices, 2, &opts));
        expect_same_bits(&parts, &whole, "halves", 2);
    }
}

/* All shards of the slots together have the size of the slots on one device. */
Test(training, shards_divide_the_slots) {
    const plan p = {.optimizer = strata_adam_optimizer(0.01), .n = 12, .batch = 12};
    strata_strategy *strategy = sharded(hosts(3));
    strata_model *model = make_model(&p);
    char *text = NULL;
    compile(model, &p, strategy);
    OK(strata_model_placement(model, 12, &text, &err));
    cr_assert_null(strstr(text, "2 optimizer slots f32 (320)"), "%s", text);
    cr_assert_not_null(strstr(text, "2 optimizer slots f32 (64)"), "%s", text);
    cr_assert_not_null(strstr(text, "2 optimizer slots f32 (128)"), "%s", text);
    cr_assert_not_null(strstr(text, "reduce_scatter f32"), "%s", text);
    cr_assert_not_null(strstr(text, "all_gather f32 (320)"), "%s", text);
    free(text);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

static strata_history train_on(strata_model *model, const strata_dataset *dataset, int first_epoch, int epochs) {
    strata_history history = {0};
    const strata_fit_options fit = {.epochs = epochs, .first_epoch = first_epoch, .batch = 12, .seed = 5};
    OK(strata_model_fit(model, dataset, &fit, &history, &err));
    return history;
}

/* A checkpoint contains all slots, so training can be resumed with any number of shards. */
Test(training, a_checkpoint_of_shards_is_whole) {
    const plan p = {.optimizer = strata_adam_optimizer(0.01), .n = 48, .batch = 12};
    strata_dataset *dataset = make_dataset(p.n);
    const char *path = test_path("shards.checkpoint");
    char shas[4][65];
    /* Trainings on 3 replicas: not interrupted and not sharded; sharded, then sharded; not sharded, then sharded; sharded,
     * then not sharded. */
    for (int i = 0; i < 4; i++) {
        strata_strategy *strategies[2] = {hosts(3), hosts(3)};
        if (i == 1 || i == 3) sharded(strategies[0]);
        if (i == 1 || i == 2) sharded(strategies[1]);
        strata_model *begun = make_model(&p), *resumed = make_model(&p);
        compile(begun, &p, strategies[0]);
        compile(resumed, &p, strategies[1]);
        strata_history history = train_on(begun, dataset, 0, i ? 2 : 4);
        strata_history_finish(&history);
        int epochs = 0;
        if (i) {
            OK(strata_model_save_checkpoint(begun, 2, path, &err));
            OK(strata_model_load_checkpoint(resumed, path, &epochs, &err));
            history = train_on(resumed, dataset, epochs, 4);
            strata_history_finish(&history);
        }
        OK(strata_model_sha256(i ? resumed : begun, shas[i], &err));
        cr_assert_str_eq(shas[i], shas[0], "run %d", i);
        strata_model_destroy(begun);
        strata_model_destroy(resumed);
        for (int s = 0; s < 2; s++) strata_strategy_destroy(strategies[s]);
    }
    test_classes_free(&classes);
}

/* When a parameter is set, the shards must get the new value, from which the next update starts. */
Test(training, a_parameter_that_is_set_reaches_the_shards) {
    const plan p = {.optimizer = strata_adam_optimizer(0.01), .n = 48, .batch = 12};
    strata_dataset *dataset = make_dataset(p.n);
    char shas[2][65];
    for (int i = 0; i < 2; i++) {
        strata_strategy *strategy = i ? sharded(hosts(3)) : hosts(3);
        strata_model *model = make_model(&p);
        compile(model, &p, strategy);
        strata_array kernel = strata_test_random(STRATA_DTYPE_F32, strata_model_parameter(model, 0).shape, -1, 1, 4);
        OK(strata_model_set_parameter(model, 0, &kernel, &err));
        strata_history history = train_on(model, dataset, 0, 1);
        strata_history_finish(&history);
        OK(strata_model_sha256(model, shas[i], &err));
        strata_array_finish(&kernel);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    cr_assert_str_eq(shas[0], shas[1]);
    test_classes_free(&classes);
}

static void expect_no_shards(strata_model *model, strata_strategy *strategy, const char *reason) {
    const strata_compile_options opts = {.strategy = strategy};
    cr_assert_eq(strata_model_compile(model, NULL, &opts, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, reason), "%s", err.message);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

Test(training, what_cannot_be_sharded_is_said) {
    const plan p = {0};
    const char *devices[] = {"host", "host"};
    strata_model *sparse = NULL;
    const strata_strategy_options yes = {.shard_optimizer = STRATA_SHARD_OPTIMIZER_YES};
    expect_no_shards(make_model(&p), named("central_storage", devices, 2, &yes), "one device makes the update");
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &sparse, &err));
    OK(strata_model_set_input_dtype(sparse, STRATA_DTYPE_I32, &err));
    strata_model_add_embedding(sparse, (strata_embedding_options){.vocabulary = 10, .units = 4, .sparse = true});
    strata_model_add_flatten(sparse, (strata_flatten_options){0});
    strata_model_add_dense(sparse, (strata_dense_options){.units = CLASSES});
    expect_no_shards(sparse, named("mirrored", devices, 2, &yes), "sparse parameters");
    strata_strategy *strategy = NULL;
    const strata_strategy_options bad = {.devices = devices, .n_devices = 2, .shard_optimizer = (strata_shard_optimizer)7};
    cr_assert_eq(strata_strategy_create("mirrored", &bad, &strategy, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "shard_optimizer is 7"), "%s", err.message);
}

/* ---- devices of different speed ---- */

/* Cross-device ops differ in speed only. The losses must be those of one device. */
Test(training, every_cross_device_op_trains_as_one_device) {
    const plan p = {.n = 130, .batch = 24, .epochs = 3}; /* in the last batch some replicas have no examples */
    const char *const devices[] = {"host"};
    const outcome alone = run(&p, named("one_device", devices, 1, NULL));
    for (int i = 0; strata_cross_device_names[i]; i++) {
        strata_strategy *strategy = hosts(5);
        OK(strata_cross_device_find(strata_cross_device_names[i], &strategy->cross_device, &err));
        const outcome got = run(&p, strategy);
        expect_like(&got, &alone, 1e-5, strata_cross_device_names[i]);
        cr_assert(got.equal);
    }
}

Test(training, a_split_by_weights_is_exact) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .dropout = true, .n = 53, .batch = 16, .epochs = 5};
    if (!there_is("opencl:0.1")) cr_skip_test("opencl:0.1 is not there");
    const char *devices[] = {"opencl:0.0", "opencl:0.1"};
    const int64_t split[] = {1, 5};
    const outcome one = run(&p, named("one_device", devices, 1, NULL));
    const outcome uneven = run(&p, named("mirrored", devices, 2, &(strata_strategy_options){.split = split, .n_split = 2}));
    expect_like(&uneven, &one, 1e-5, "1:5");
}

Test(training, an_automatic_split_is_exact) {
    const plan p = {.optimizer = strata_sgd_optimizer(0.1, 0, false), .n = 80, .batch = 16, .epochs = 10};
    if (!there_is("vulkan:0")) cr_skip_test("vulkan:0 is not there");
    const char *devices[] = {"host", "vulkan:0"};
    const outcome one = run(&p, hosts(1));
    const outcome uneven = run(&p, named("mirrored", devices, 2, &(strata_strategy_options){.auto_split = true}));
    expect_like(&uneven, &one, 1e-5, "auto");
}

/* ---- batch norm: each replica uses the moments of its share; moving averages use the mean of these moments ---- */

Test(training, batch_norm_normalizes_by_replica_and_keeps_the_mean_of_statistics) {
    plan p = {.optimizer = strata_sgd_optimizer(1e-12, 0, false), .batch_norm = true, .n = 16, .batch = 16, .epochs = 1};
    strata_dataset *dataset = make_dataset(p.n);
    double mean[2] = {0};
    for (int replicas = 1; replicas <= 2; replicas++) {
        strata_strategy *strategy = hosts(replicas);
        strata_model *model = make_model(&p);
        compile(model, &p, strategy);
        OK(strata_model_fit(model, dataset, &(strata_fit_options){.batch = p.batch, .seed = 5}, NULL, &err));
        for (int i = 0; i < strata_model_n_parameters(model); i++) {
            const strata_parameter parameter = strata_model_parameter(model, i);
            float values[12];
            strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12), values);
            if (!parameter.state || !strstr(parameter.name, "mean")) continue;
            OK(strata_model_get_parameter(model, i, &view, &err));
            for (int k = 0; k < 12; k++) mean[replicas - 1] += (double)values[k];
        }
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    cr_assert_gt(mean[0], 0);
    /* shares have equal sizes, so the mean of their means is the mean of the batch */
    cr_assert_float_eq(mean[1], mean[0], 1e-5 * mean[0]);
    test_classes_free(&classes);
}

Test(training, a_parameter_device_keeps_the_statistics) {
    static const char *const host[] = {"host"};
    const plan p = {.optimizer = strata_sgd_optimizer(0.1, 0, false), .batch_norm = true, .n = 53, .batch = 16, .epochs = 4};
    const outcome one = run(&p, hosts(1)), central = run(&p, named("central_storage", host, 1, NULL));
    expect_like(&central, &one, 1e-5, "central_storage");
}

/* Each accumulated batch moves the averages by itself (tests/model/state_test.c), also where some shares of batches are
 * empty. */
Test(training, synchronized_batch_norm_sees_each_whole_batch_that_is_accumulated) {
    plan p = {.optimizer = strata_sgd_optimizer(0.1, 0, false),
              .batch_norm = true,
              .synchronized = true,
              .n = 53,
              .batch = 6,
              .epochs = 3};
    p.optimizer.gradient_accumulation_steps = 2;
    for (int64_t n_examples = 53; n_examples > 0; n_examples -= 42) { /* 53; 11: the last step has batches of 6 and 5 */
        p.n = n_examples;
        const outcome one = run(&p, hosts(1));
        for (int n = 2; n <= 8; n += 3) { /* 5 and 8 are more replicas than the last batch has examples, or as many */
            const outcome many = run(&p, hosts(n));
            expect_like(&many, &one, 1e-5, "synchronized and accumulated");
        }
    }
}

/* The averages of the plan's model after it was trained on n host devices, with a learning rate that changes no parameter. */
static void train_averages(plan p, int replicas, int64_t accumulated, float out[2][12]) {
    strata_dataset *dataset = make_dataset(p.n);
    strata_strategy *strategy = hosts(replicas);
    strata_model *model = make_model(&p);
    int n = 0;
    p.optimizer.gradient_accumulation_steps = accumulated;
    compile(model, &p, strategy);
    OK(strata_model_fit(model, dataset, &(strata_fit_options){.epochs = p.epochs, .batch = p.batch, .seed = 5}, NULL, &err));
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12), out[n]);
        if (!strata_model_parameter(model, i).state) continue;
        OK(strata_model_get_parameter(model, i, &view, &err));
        n++;
    }
    cr_assert_eq(n, 2);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&classes);
}

/* The batches of a step have 6, 6 and 1 examples, so of the last one only one replica has an example. */
Test(training, averages_are_moved_by_each_accumulated_batch_on_any_number_of_replicas) {
    plan p = {.optimizer = {.name = "sgd", .learning_rate = STRATA_ZERO}, .batch_norm = true, .n = 13, .batch = 6, .epochs = 1};
    float each[2][12], together[2][12];
    for (int synchronized = 0; synchronized <= 1; synchronized++)
        for (int n = 1; n <= 4; n++) {
            p.synchronized = synchronized;
            train_averages(p, n, 1, each);
            train_averages(p, n, 3, together);
            for (int i = 0; i < 24; i++)
                cr_assert_float_eq(together[i / 12][i % 12], each[i / 12][i % 12], 2e-6, "%d replicas, %d: %g and %g", n, i,
                                   (double)together[i / 12][i % 12], (double)each[i / 12][i % 12]);
        }
}

/* ---- a model that was saved under one strategy can be loaded under any other one ---- */

/* Batches have 12 examples and the last one 5, so shares differ in size, and with 8 replicas some are empty. */
Test(training, synchronized_batch_norm_normalizes_the_whole_batch) {
    expect_every_number_of_replicas_like_one(&(plan){.optimizer = strata_sgd_optimizer(0.1, 0.9, false),
                                                     .batch_norm = true,
                                                     .synchronized = true,
                                                     .penalty = true,
                                                     .n = 53,
                                                     .batch = 12,
                                                     .epochs = 5});
}

Test(training, synchronized_batch_norm_works_with_a_parameter_device_and_a_mixed_group) {
    plan p = {.optimizer = strata_sgd_optimizer(0.1, 0, false),
              .batch_norm = true,
              .synchronized = true,
              .n = 53,
              .batch = 12,
              .epochs = 3};
    const char *devices[] = {"opencl:0.0", "opencl:0.1", "host"};
    const outcome one = run(&p, hosts(1));
    if (!there_is("opencl:0.1")) cr_skip_test("opencl:0.1 is not there");
    const outcome central = run(&p, named("central_storage", devices, 2, NULL));
    expect_like(&central, &one, 1e-4, "a parameter device");
    const outcome mixed = run(&p, named("mirrored", devices, 3, NULL));
    expect_like(&mixed, &one, 1e-4, "a mixed group");
    /* each batch is normalized by itself, so the results are those of one device with the same option */
    p.optimizer.gradient_accumulation_steps = 2;
    const outcome accumulated = run(&p, hosts(1)), shared = run(&p, named("central_storage", devices, 2, NULL));
    expect_like(&shared, &accumulated, 1e-4, "accumulated");
}

Test(training, a_model_file_does_not_know_its_strategy) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .batch_norm = true, .n = 53, .batch = 16, .epochs = 2};
    const char *host[] = {"host"};
    const char *path = test_path("model.strata");
    for (int from = 0; from < 3; from++) {
        strata_strategy *first =
            from == 0 ? hosts(3) : named(from == 1 ? "default" : "central_storage", from == 1 ? NULL : host, from != 1, NULL);
        strata_dataset *dataset = make_dataset(p.n);
        strata_model *model = make_model(&p);
        outcome saved = {0};
        compile(model, &p, first);
        OK(strata_model_fit(model, dataset, &(strata_fit_options){.batch = 16}, NULL, &err));
        look(model, dataset, &p, &saved);
        OK(strata_model_save(model, path, &err));
        strata_model_destroy(model);
        strata_strategy_destroy(first);
        for (int n = 1; n <= 5; n += 2) {
            strata_strategy *second = hosts(n);
            outcome loaded = {0};
            OK(strata_model_load(path, &model, &err));
            compile(model, &p, second);
            look(model, dataset, &p, &loaded);
            cr_assert_str_eq(loaded.sha, saved.sha);
            cr_assert_float_eq(loaded.evaluated.loss, saved.evaluated.loss, 1e-5);
            cr_assert(loaded.equal);
            strata_model_destroy(model);
            strata_strategy_destroy(second);
        }
        test_classes_free(&classes);
    }
}

/* ---- later steps allocate and compile nothing, and wait no more often than the first ones ---- */

static void expect_no_later_allocation(plan p) {
    strata_strategy *strategy = hosts(3);
    strata_dataset *dataset = make_dataset(p.n);
    strata_model *model = make_model(&p);
    strata_device_counters before[3];
    compile(model, &p, strategy);
    OK(strata_model_fit(model, dataset, &(strata_fit_options){.batch = p.batch}, NULL, &err));
    for (int r = 0; r < 3; r++) before[r] = strata_device_get_counters(strata_strategy_device(strategy, r));
    OK(strata_model_fit(model, dataset, &(strata_fit_options){.batch = p.batch, .epochs = 3}, NULL, &err));
    for (int r = 0; r < 3; r++) {
        const strata_device_counters after = strata_device_get_counters(strata_strategy_device(strategy, r));
        cr_assert_eq(after.allocations, before[r].allocations, "replica %d", r);
        cr_assert_eq(after.compilations, before[r].compilations, "replica %d", r);
    }
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&classes);
}

Test(training, later_steps_allocate_and_compile_nothing_on_any_replica) {
    const plan p = {.optimizer = strata_adam_optimizer(0.003), .n = 64, .batch = 16, .epochs = 1};
    expect_no_later_allocation(p);
    expect_no_later_allocation(in_quarters(&p));
}

/* ---- errors ---- */

Test(training, compile_takes_a_device_or_a_strategy) {
    const plan p = {.n = 4};
    strata_strategy *strategy = hosts(1);
    strata_model *model = make_model(&p);
    strata_compile_options opts = {.strategy = strategy};
    cr_assert_eq(strata_model_compile(model, strata_strategy_device(strategy, 0), &opts, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "both"), "%s", err.message);
    cr_assert_eq(strata_model_compile(model, NULL, NULL, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "neither"), "%s", err.message);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}
