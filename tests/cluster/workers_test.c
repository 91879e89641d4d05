/* SPDX-License-Identifier: Apache-2.0
 *
 * fit with several workers. They must end in the same step with the same parameters, also with a sharded optimizer.
 * Differences between their settings must be reported. */
#include "tests/cluster/workers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/data/dataset.h"
#include "core/data/stage/stage.h"
#include "core/model/model.h"
#include "strategies/kinds.h"
#include "tests/support/folder.h"

/* ---- fit ---- */

typedef struct fitting {
    strata_auto_shard policy;
    bool share_cores;
    strata_dataset *dataset; /* shared by all workers */
    int64_t n_steps[MOST_WORKERS];
    float losses[MOST_WORKERS][100];
    char sha[MOST_WORKERS][65];
    int64_t examples[MOST_WORKERS];
} fitting;

/* Opens a file of y = 2 x with 2, 4, 6, ... points. */
static strata_status open_points(const char *path, void *user, strata_dataset **out, strata_error *err) {
    const int n = 2 * (path[0] - '0') + 2;
    strata_array x = {0}, y = {0};
    (void)user;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, 1), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &y, err));
    for (int i = 0; i < n; i++) {
        ((float *)x.data)[i] = (float)(i - n / 2) / 8;
        ((float *)y.data)[i] = 2 * ((float *)x.data)[i];
    }
    return strata_dataset_take_arrays(&x, &y, 0, out, err);
}

static strata_test_result fit(strata_communicator *comm, const void *user) {
    fitting *f = (fitting *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    bool equal = false;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    strategy->workers.share_cores = f->share_cores;
    TEST_TRY(strata_model_create(STRATA_SHAPE(1), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_adam_optimizer(0.3), .loss = "mse", .seed = (uint64_t)w, .strategy = strategy};
    TEST_TRY(strata_model_compile(model, NULL, &compile, &err));
    const strata_fit_options opts = {.epochs = 3, .batch = 6, .auto_shard = f->policy};
    TEST_TRY(strata_model_fit(model, f->dataset, &opts, &history, &err));
    TEST_TRY(strata_model_replicas_equal(model, &equal, &err));
    TEST_TRY(strata_model_sha256(model, f->sha[w], &err));
    if (!equal) return strata_test_bad("the workers' parameters differ");
    f->n_steps[w] = history.n_steps;
    f->examples[w] = history.epochs[2].examples;
    memcpy(f->losses[w], history.losses, sizeof history.losses);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

/* Files of 2, 4, 6, 8 and 10 points are divided among 3 workers, which get 10, 14 and 6 points. A global batch of 6 lasts
 * for 3 steps. */
Test(over_workers, fit_over_uneven_files_trains_all_points_and_ends_together) {
    static const char *const paths[] = {"0", "1", "2", "3", "4"};
    const strata_element_spec spec = {.n_parts = 2,
                                      .parts = {{STRATA_DTYPE_F32, STRATA_SHAPE(1)}, {STRATA_DTYPE_F32, STRATA_SHAPE()}}};
    static fitting f;
    f = (fitting){.policy = STRATA_SHARD_FILE};
    cr_assert_eq(strata_dataset_from_files(paths, 5, open_points, NULL, &spec, &f.dataset, NULL), STRATA_OK);
    RUN(3, fit, &f);
    for (int w = 0; w < 3; w++) {
        cr_assert_eq(f.n_steps[w], 3 * 8); /* 3 epochs of 8 steps, the number of the worker with most points */
        cr_assert_eq(f.examples[w], 30);
        cr_assert_str_eq(f.sha[w], f.sha[0]);
    }
    float first = 0, last = 0;
    for (int i = 0; i < 8; i++) first += f.losses[0][i], last += f.losses[0][16 + i];
    cr_assert_lt(last, first / 2, "%g became %g", (double)first, (double)last);
    strata_dataset_destroy(f.dataset);
}

Test(over_workers, fit_with_data_has_the_losses_of_one_worker) {
    static fitting one, many;
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points("9", NULL, &dataset, &err), STRATA_OK);
    one = many = (fitting){.policy = STRATA_SHARD_DATA, .dataset = dataset};
    RUN(1, fit, &one);
    RUN(3, fit, &many);
    cr_assert_eq(one.n_steps[0], 3 * 4);
    cr_assert_eq(many.n_steps[0], one.n_steps[0]);
    for (int i = 0; i < 12; i++)
        cr_assert_float_eq(many.losses[2][i], one.losses[0][i], 1e-5f * fabsf(one.losses[0][i]) + 1e-9f);
    strata_dataset_destroy(dataset);
}

/* Such workers have one slot, so the inputs of a step must not be written before the exchanges of the step before it. */
Test(over_workers, workers_that_share_cores_train_as_those_with_their_own) {
    static fitting own, shared;
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points("9", NULL, &dataset, NULL), STRATA_OK);
    own = (fitting){.policy = STRATA_SHARD_DATA, .dataset = dataset};
    shared = (fitting){.policy = STRATA_SHARD_DATA, .dataset = dataset, .share_cores = true};
    RUN(2, fit, &own);
    RUN(2, fit, &shared);
    cr_assert_str_eq(own.sha[1], shared.sha[1]);
    for (int i = 0; i < 12; i++) cr_assert_eq(own.losses[1][i], shared.losses[1][i], "step %d", i);
    strata_dataset_destroy(dataset);
}

/* ---- replicas with parameters of their own ---- */

typedef struct averaging {
    strata_dataset *dataset;
    /* How many replicas each worker has. */
    int replicas;
    strata_dtype precision;
    char sha[MOST_WORKERS][65];
    double loss[MOST_WORKERS];
} averaging;

static strata_status open_averaging(strata_communicator *comm, int n, strata_strategy **out, strata_error *err) {
    strata_device *devices[MOST_WORKERS] = {NULL};
    for (int i = 0; i < n; i++) STRATA_TRY(strata_device_open("host", NULL, &devices[i], err));
    const strata_strategy_options opts = {.communicator = comm, .every = 3};
    return strata_strategy_of_devices(&strata_strategy_local_sgd, devices, n, &opts, out, err);
}

static strata_status compile_averaging(const averaging *a, strata_strategy *strategy, strata_model **out, strata_error *err) {
    STRATA_TRY(strata_model_create(STRATA_SHAPE(1), out, err));
    strata_model_add_dense(*out, (strata_dense_options){.units = 4, .activation = "tanh"});
    strata_model_add_batch_norm(*out, (strata_batch_norm_options){0});
    strata_model_add_dense(*out, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_adam_optimizer(0.05), .loss = "mse", .seed = 7, .strategy = strategy, .precision = a->precision};
    return strata_model_compile(*out, NULL, &compile, err);
}

static strata_test_result fit_averaging(strata_communicator *comm, const void *user) {
    averaging *a = (averaging *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    const strata_fit_options opts = {.epochs = 2, .batch = 7, .seed = 3};
    TEST_TRY(open_averaging(comm, a->replicas, &strategy, &err));
    TEST_TRY(compile_averaging(a, strategy, &model, &err));
    TEST_TRY(strata_model_fit(model, a->dataset, &opts, &history, &err));
    a->loss[w] = history.epochs[1].loss;
    strata_history_finish(&history);
    TEST_TRY(strata_model_sha256(model, a->sha[w], &err));
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

/* 29 points in batches of 7, so that the last step of an epoch has one example: all replicas but one have none, and two of
 * three workers do not know its loss. */
static void try_averaging(int workers, int replicas, strata_dtype precision) {
    static averaging one, many;
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points(">", NULL, &dataset, &err), STRATA_OK); /* 30 points */
    cr_assert_eq(strata_dataset_take(&dataset, 29, &err), STRATA_OK);
    one = many = (averaging){.dataset = dataset, .replicas = replicas, .precision = precision};
    one.replicas = workers * replicas;
    RUN(1, fit_averaging, &one);
    RUN(workers, fit_averaging, &many);
    for (int w = 0; w < workers; w++) {
        cr_expect_str_eq(many.sha[w], many.sha[0]);
        cr_expect_float_eq(many.loss[w], one.loss[0], 1e-5 * fabs(one.loss[0]));
    }
    if (replicas == 1) cr_expect_str_eq(many.sha[0], one.sha[0], "replicas of one process train something else");
    strata_dataset_destroy(dataset);
}

Test(over_workers, replicas_with_parameters_of_their_own_train_as_in_one_process) {
    try_averaging(3, 1, STRATA_DTYPE_F32);
    try_averaging(2, 2, STRATA_DTYPE_F32);
    try_averaging(2, 1, STRATA_DTYPE_F16);
}

/* ---- the sharded optimizer ---- */

typedef struct sharding {
    strata_shard_optimizer first, then; /* for the epochs before the checkpoint, and for those after it */
    strata_dtype wire;
    int replicas; /* for each worker */
    strata_dataset *dataset;
    const char *path; /* the checkpoint's */
    char sha[MOST_WORKERS][65];
} sharding;

static strata_status make_sharded(strata_communicator *comm, const sharding *s, strata_shard_optimizer choice,
                                  strata_strategy **out_strategy, strata_model **out_model, strata_error *err) {
    STRATA_TRY(open_strategy(comm, s->replicas, out_strategy, err));
    (*out_strategy)->shard_optimizer = choice;
    (*out_strategy)->workers.wire = s->wire;
    STRATA_TRY(strata_model_create(STRATA_SHAPE(1), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 70, .activation = "tanh"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_adam_optimizer(0.01), .loss = "mse", .seed = 7, .strategy = *out_strategy};
    return strata_model_compile(*out_model, NULL, &compile, err);
}

/* Trains two epochs with one choice, writes a checkpoint, and trains two more epochs with a new model and the other choice. */
static strata_test_result fit_sharded(strata_communicator *comm, const void *user) {
    sharding *s = (sharding *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    for (int half = 0; half < 2; half++) {
        strata_strategy *strategy = NULL;
        strata_model *model = NULL;
        bool equal = false;
        strata_fit_options opts = {.epochs = 2 + 2 * half, .batch = 9};
        TEST_TRY(make_sharded(comm, s, half ? s->then : s->first, &strategy, &model, &err));
        if (half) TEST_TRY(strata_model_load_checkpoint(model, s->path, &opts.first_epoch, &err));
        if (opts.first_epoch != 2 * half) return strata_test_bad("%d epochs are in the checkpoint", opts.first_epoch);
        TEST_TRY(strata_model_fit(model, s->dataset, &opts, NULL, &err));
        if (!half) TEST_TRY(strata_model_save_checkpoint(model, 2, w ? NULL : s->path, &err));
        TEST_TRY(strata_model_replicas_equal(model, &equal, &err));
        if (!equal) return strata_test_bad("the workers' parameters differ");
        TEST_TRY(strata_model_sha256(model, s->sha[w], &err));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    return strata_test_ok();
}

static void expect_shards_over_workers(int n_workers, int replicas, strata_dtype wire) {
    static const strata_shard_optimizer choices[][2] = {{STRATA_SHARD_OPTIMIZER_NO, STRATA_SHARD_OPTIMIZER_NO},
                                                        {STRATA_SHARD_OPTIMIZER_YES, STRATA_SHARD_OPTIMIZER_YES},
                                                        {STRATA_SHARD_OPTIMIZER_NO, STRATA_SHARD_OPTIMIZER_YES},
                                                        {STRATA_SHARD_OPTIMIZER_YES, STRATA_SHARD_OPTIMIZER_NO}};
    static sharding s;
    char wanted[65] = "";
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points("9", NULL, &dataset, &err), STRATA_OK);
    for (int i = 0; i < 4; i++) {
        s = (sharding){.first = choices[i][0],
                       .then = choices[i][1],
                       .wire = wire,
                       .replicas = replicas,
                       .dataset = dataset,
                       .path = test_path("workers.checkpoint")};
        RUN(n_workers, fit_sharded, &s);
        if (!i) memcpy(wanted, s.sha[0], sizeof wanted);
        for (int w = 0; w < n_workers; w++)
            cr_assert_str_eq(s.sha[w], wanted, "%d workers of %d replicas, run %d, worker %d", n_workers, replicas, i, w);
    }
    strata_dataset_destroy(dataset);
}

/* The parameters have 256 elements, so each of 6 replicas owns 0 or 64 of them. */
Test(over_workers, shards_have_the_bits_of_replicated_updates, .init = test_folder_make, .fini = test_folder_remove) {
    expect_shards_over_workers(3, 1, STRATA_DTYPE_F32);
    expect_shards_over_workers(3, 2, STRATA_DTYPE_F32);
    expect_shards_over_workers(2, 1, STRATA_DTYPE_BF16);
}

/* ---- checkpoints of a sharded optimizer, in a folder that the workers share, and in folders of their own ---- */

typedef struct saving {
    sharding s;
    bool local; /* each worker has a folder of its own, as with local disks */
    char folders[MOST_WORKERS][200];
    int warnings;
    char warning[400];
    char whole[65]; /* rank 0's model after training in one piece */
} saving;

static void take_warning(const char *text, void *user) {
    saving *s = user;
    s->warnings++;
    snprintf(s->warning, sizeof s->warning, "%s", text);
}

/* Trains two epochs with checkpoints, and two more from the last of them; or four epochs without checkpoints. */
static strata_test_result save_sharded(strata_communicator *comm, const void *user) {
    saving *s = (saving *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    for (int part = 0; part < 3; part++) {
        const strata_checkpoint_options checkpoint = {
            .folder = s->folders[s->local ? w : 0], .on_warning = take_warning, .user = s};
        strata_fit_options opts = {.epochs = part ? 4 : 2, .batch = 9, .checkpoint = part < 2 ? &checkpoint : NULL};
        strata_strategy *strategy = NULL;
        strata_model *model = NULL;
        TEST_TRY(make_sharded(comm, &s->s, STRATA_SHARD_OPTIMIZER_YES, &strategy, &model, &err));
        if (part == 1) TEST_TRY(strata_model_load_checkpoint(model, checkpoint.folder, &opts.first_epoch, &err));
        if (opts.first_epoch != (part == 1 ? 2 : 0)) return strata_test_bad("%d epochs in the checkpoint", opts.first_epoch);
        TEST_TRY(strata_model_fit(model, s->s.dataset, &opts, NULL, &err));
        TEST_TRY(strata_model_sha256(model, part == 2 && !w ? s->whole : s->s.sha[w], &err));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
    return strata_test_ok();
}

Test(over_workers, a_sharded_optimizer_is_saved_on_local_disks_too, .init = test_folder_make, .fini = test_folder_remove) {
    static saving s;
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(open_points("9", NULL, &dataset, &err), STRATA_OK);
    for (int local = 0; local <= 1; local++) {
        const double began = strata_clock_seconds();
        s = (saving){.s = {.replicas = 1, .dataset = dataset}, .local = local};
        for (int w = 0; w < 3; w++) snprintf(s.folders[w], sizeof s.folders[w], "%s%d", test_path("points"), 3 * local + w);
        RUN(3, save_sharded, &s);
        cr_assert_str_eq(s.s.sha[0], s.whole);
        cr_assert_eq(s.warnings, local ? 2 : 0, "%d warnings: %s", s.warnings, s.warning);
        if (local) cr_assert(strstr(s.warning, "2 of 3 workers do not reach rank 0's folder"), "%s", s.warning);
        cr_assert_lt(strata_clock_seconds() - began, TEST_PATIENCE);
    }
    strata_dataset_destroy(dataset);
}

/* ---- workers with different settings ---- */

/* Opens the points of `path`, "9"; with more letters, "9 labels", one thing is different. */
static strata_status open_other_points(const char *path, strata_dataset **out, strata_error *err) {
    float weights[20];
    STRATA_TRY(open_points(path, NULL, out, err));
    strata_dataset *d = *out;
    float *x = d->features.data, *y = d->labels.data;
    if (strstr(path, "labels")) y[13] += 1;
    if (strstr(path, "rows")) {
        const float x0 = x[3], y0 = y[3];
        x[3] = x[4], y[3] = y[4], x[4] = x0, y[4] = y0;
    }
    for (int i = 0; i < 20; i++) weights[i] = 1 + (float)(i == 7);
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(20), weights);
    if (strstr(path, "weights")) STRATA_TRY(strata_dataset_set_weights(d, &array, err));
    return strstr(path, "stage") ? strata_dataset_take(out, 20, err) : STRATA_OK;
}

typedef struct difference {
    const char *text; /* in the message on every worker; NULL: they do not fail */
    strata_fit_options fit;
    double rate;
    const char *points;
    /* The rest of the model. */
    int64_t hidden;
    const char *freeze, *preprocessing;
    strata_dtype precision;
    bool validates;
    const char *validation; /* points for validation; NULL: those of training */
    double parameters;      /* set after the model was compiled; 0: they are not set */
} difference;

static strata_status make_otherwise(const difference *own, strata_strategy *strategy, strata_model **out, strata_error *err) {
    STRATA_TRY(strata_model_create(STRATA_SHAPE(1), out, err));
    strata_model_add_dense(*out, (strata_dense_options){.units = own->hidden ? own->hidden : 2, .name = "a"});
    strata_model_add_dense(*out, (strata_dense_options){.units = 2, .name = "b"});
    strata_model_add_dense(*out, (strata_dense_options){.units = 1});
    if (own->freeze) STRATA_TRY(strata_model_freeze(*out, own->freeze, err));
    if (own->preprocessing) STRATA_TRY(strata_model_set_note(*out, "preprocessing", own->preprocessing, err));
    const strata_compile_options compile = {.optimizer = strata_sgd_optimizer(own->rate, 0, false),
                                            .loss = "mse",
                                            .strategy = strategy,
                                            .precision = own->precision};
    STRATA_TRY(strata_model_compile(*out, NULL, &compile, err));
    float value[2] = {(float)own->parameters, 1};
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), value);
    return own->parameters ? strata_model_set_parameter(*out, 0, &array, err) : STRATA_OK;
}

/* Trains, where worker 1 has other settings than the others. */
static strata_test_result fit_otherwise(strata_communicator *comm, const void *user) {
    static const difference same = {.fit = {.epochs = 1, .batch = 6, .seed = 1}, .rate = 0.1, .points = "9"};
    const difference *wrong = user, *own = strata_communicator_rank(comm) == 1 ? wrong : &same;
    strata_error err = {0}, why = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *dataset = NULL, *validation = NULL;
    strata_fit_options opts = own->fit;
    TEST_TRY(open_other_points(own->points, &dataset, &err));
    TEST_TRY(open_other_points(own->validation ? own->validation : "9", &validation, &err));
    if (wrong->validates) opts.validation = validation;
    TEST_TRY(open_strategy(comm, 1, &strategy, &err));
    TEST_TRY(make_otherwise(own, strategy, &model, &err));
    const strata_status status = strata_model_fit(model, dataset, &opts, NULL, &why);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
    strata_dataset_destroy(validation);
    if (!wrong->text) return status ? strata_test_bad("%s", why.message) : strata_test_ok();
    if (status == STRATA_INVALID && strstr(why.message, wrong->text)) return strata_test_ok();
    return strata_test_bad("\"%s\" is not in: %s %s", wrong->text, strata_status_name(status), why.message);
}

#define FIT .fit = {.epochs = 1, .batch = 6, .seed = 1}, .rate = 0.1
Test(over_workers, fit_tells_what_differs_on_every_worker) {
    static const difference rows[] = {
        {NULL, FIT, .points = "9"},
        {"the batch is 4 on worker 1 and 6 on worker 0", .fit = {.epochs = 1, .batch = 4, .seed = 1}, .rate = 0.1,
         .points = "9"},
        {"the number of epochs is 2 on worker 1", .fit = {.epochs = 2, .batch = 6, .seed = 1}, .rate = 0.1, .points = "9"},
        {"the seed of the shuffles is 2 on worker 1", .fit = {.epochs = 1, .batch = 6, .seed = 2}, .rate = 0.1, .points = "9"},
        {"the shuffling is off on worker 1", .fit = {.epochs = 1, .batch = 6, .seed = 1, .no_shuffle = true}, .rate = 0.1,
         .points = "9"},
        {"the auto_shard policy for the training data is OFF on worker 1 and DATA on worker 0",
         .fit = {.epochs = 1, .batch = 6, .seed = 1, .auto_shard = STRATA_SHARD_OFF}, .rate = 0.1, .points = "9"},
        {"the number of examples of the training data is 18 on worker 1 and 20 on", FIT, .points = "8"},
        {"the learning rate is 0.5 on worker 1", .fit = {.epochs = 1, .batch = 6, .seed = 1}, .rate = 0.5, .points = "9"},
        {"the example 13 of the training data is (0.375; 1.75) on worker 1 and (0.375; 0.75) on worker 0", FIT,
         .points = "9 labels"},
        {"the example 3 of the training data is (-0.75; -1.5) on worker 1 and (-0.875; -1.75) on worker 0", FIT,
         .points = "9 rows"},
        {"of an example of the training data is f32 () on worker 1, and there is none on worker 0", FIT, .points = "9 weights"},
        {"the pipeline of the training data is take of arrays on worker 1 and arrays on worker 0", FIT, .points = "9 stage"},
        {"layers[0].units is 3 on worker 1 and 2 on worker 0", FIT, .points = "9", .hidden = 3},
        {"the training of layer \"a\" is off on worker 1 and on on worker 0", FIT, .points = "9", .freeze = "a"},
        {"the model's preprocessing is {} on worker 1, and there is none on worker 0", FIT, .points = "9",
         .preprocessing = "{}"},
        {"the precision is f16 on worker 1 and f32 on worker 0", FIT, .points = "9", .precision = STRATA_DTYPE_F16},
        {"the example 13 of the validation data is (0.375; 1.75) on worker 1", FIT, .points = "9", .validates = true,
         .validation = "9 labels"},
        {"their models have different parameters", FIT, .points = "9", .parameters = 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) RUN(3, fit_otherwise, &rows[i]);
}

/* ---- the other settings, one at a time ---- */

/* What a worker trains with, before anything is made of it. */
typedef struct settings {
    strata_strategy *strategy;
    strata_compile_options compile;
    strata_fit_options fit;
    int64_t steps_before;
    float *x, *y; /* of POINTS points */
} settings;

enum { POINTS = 100 };

static void other_strategy(settings *s) {
    s->strategy->name = "tpu";
}
static void other_wire(settings *s) {
    s->strategy->workers.wire = STRATA_DTYPE_BF16;
}
static void other_packs(settings *s) {
    s->strategy->bucket_bytes = 4096;
}
static void shards(settings *s) {
    s->strategy->shard_optimizer = STRATA_SHARD_OPTIMIZER_YES;
}
static void other_optimizer(settings *s) {
    s->compile.optimizer = strata_adam_optimizer(0.1);
}
static void momentum(settings *s) {
    s->compile.optimizer.momentum = 0.5;
}
static void clip(settings *s) {
    s->compile.optimizer.clip_global_norm = 1;
}
static void accumulation(settings *s) {
    s->compile.optimizer.gradient_accumulation_steps = 2;
}
static void other_loss(settings *s) {
    s->compile.loss = "mae";
}
static void other_metrics(settings *s) {
    s->compile.metrics = "mae";
}
static void steps_before(settings *s) {
    s->steps_before = 7;
}
static void first_epoch(settings *s) {
    s->fit.first_epoch = 1;
}
static void steps_per_epoch(settings *s) {
    s->fit.steps_per_epoch = 2;
}
static void no_validation(settings *s) {
    s->fit.validation = NULL;
    s->fit.patience = 0;
}
static void patience(settings *s) {
    s->fit.patience = 3;
}
static void min_delta(settings *s) {
    s->fit.min_delta = 0.25;
}
static void restore_best(settings *s) {
    s->fit.restore_best = true;
}
static void wait_each_step(settings *s) {
    s->fit.wait_each_step = true;
}
static void trace(settings *s) {
    s->fit.trace = "trace.json";
}
static void checkpoints(settings *s) {
    static const strata_checkpoint_options options = {.folder = "folder"};
    s->fit.checkpoint = &options;
}
static void an_input_between_samples(settings *s) {
    s->x[50] += 1; /* 32 of 100 points are samples, and this is none of them */
}
static void a_label_between_samples(settings *s) {
    s->y[50] += 1;
}

typedef struct setting {
    const char *text;
    void (*change)(settings *s);
} setting;

static strata_status fit_settings(settings *s, strata_error *err) {
    strata_model *model = NULL;
    strata_dataset *dataset = NULL, *validation = NULL;
    const strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(POINTS, 1), s->x),
                       y = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(POINTS), s->y);
    STRATA_TRY(strata_dataset_from_arrays(&x, &y, 0, &dataset, err));
    STRATA_TRY(open_points("9", NULL, &validation, err));
    STRATA_TRY(strata_model_create(STRATA_SHAPE(1), &model, err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    s->compile.strategy = s->strategy;
    if (s->fit.patience) s->fit.validation = validation;
    STRATA_TRY(strata_model_compile(model, NULL, &s->compile, err));
    model->optimizer_steps = s->steps_before;
    const strata_status status = strata_model_fit(model, dataset, &s->fit, NULL, err);
    strata_model_destroy(model);
    strata_dataset_destroy(dataset);
    strata_dataset_destroy(validation);
    return status;
}

static strata_test_result fit_with_setting(strata_communicator *comm, const void *user) {
    const setting *row = user;
    float x[POINTS], y[POINTS];
    strata_error err = {0}, why = {0};
    settings s = {.compile = {.optimizer = strata_sgd_optimizer(0.01, 0, false), .loss = "mse"},
                  .fit = {.epochs = 2, .batch = 50, .patience = 2},
                  .x = x,
                  .y = y};
    for (int i = 0; i < POINTS; i++) x[i] = (float)i / POINTS, y[i] = 2 * x[i];
    TEST_TRY(open_strategy(comm, 1, &s.strategy, &err));
    if (strata_communicator_rank(comm) == 1 && row->change) row->change(&s);
    const strata_status status = fit_settings(&s, &why);
    strata_strategy_destroy(s.strategy);
    if (!row->text) return status ? strata_test_bad("%s", why.message) : strata_test_ok();
    if (status == STRATA_INVALID && strstr(why.message, row->text)) return strata_test_ok();
    return strata_test_bad("\"%s\" is not in: %s %s", row->text, strata_status_name(status), why.message);
}

/* A worker that differs in one thing is refused before the first step, and all workers tell the thing and both values. */
Test(over_workers, each_setting_that_differs_is_refused_on_every_worker) {
    static const setting rows[] = {
        {NULL, NULL},
        {"the strategy is tpu on worker 1 and mirrored on worker 0", other_strategy},
        {"the type of gradients on the wire is bf16 on worker 1 and f32 on worker 0", other_wire},
        {"the bytes_per_pack is 4096 on worker 1 and ", other_packs},
        {"the sharding of the optimizer is on on worker 1 and off on worker 0", shards},
        {"the optimizer is adam on worker 1 and sgd on worker 0", other_optimizer},
        {"optimizer.momentum is 0.5 on worker 1 and nothing on worker 0", momentum},
        {"optimizer.clip_global_norm is 1 on worker 1 and nothing on worker 0", clip},
        {"the number of accumulated batches is 2 on worker 1 and 1 on worker 0", accumulation},
        {"loss is \"mae\" on worker 1 and \"mse\" on worker 0", other_loss},
        {"metrics", other_metrics},
        {"the number of steps before is 7 on worker 1 and 0 on worker 0", steps_before},
        {"the first epoch is 1 on worker 1 and 0 on worker 0", first_epoch},
        {"the number of steps an epoch may have is 2 on worker 1 and 0 on worker 0", steps_per_epoch},
        {"the validation data is none on worker 1 and given on worker 0", no_validation},
        {"the patience is 3 on worker 1 and 2 on worker 0", patience},
        {"the min_delta is 0.25 on worker 1 and 0 on worker 0", min_delta},
        {"the restored epoch is the best one on worker 1 and none on worker 0", restore_best},
        {"the wait for each step is on on worker 1 and off on worker 0", wait_each_step},
        {"the trace is written on worker 1 and none on worker 0", trace},
        {"the folder of checkpoints is given on worker 1 and none on worker 0", checkpoints},
        {"the inputs of the example 50 of the training data are others on worker 1 than on worker 0", an_input_between_samples},
        {"the labels of the example 50 of the training data are others on worker 1 than on worker 0", a_label_between_samples},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) RUN(2, fit_with_setting, &rows[i]);
}
