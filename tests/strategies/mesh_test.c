/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains small models under model_parallel. Losses, metrics, predictions and final parameters must be those of one device on
 * the same global batches; with micro-batches they must have the bits of one device that accumulates as many batches. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/strata.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

enum { MOST_COLUMNS = 2, MOST_LOSSES = 60, MOST_DEVICES = 8 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s: %s", #call, err.message)

TestSuite(mesh, .init = test_folder_make, .fini = test_folder_remove);

/* ---- what is trained ---- */

/* An input or a target: random numbers from -1 to 1, or, with n_classes, from 0 to n_classes - 1. */
typedef struct column {
    const char *name;
    strata_shape shape; /* of one example */
    int64_t n_classes;
    double scale; /* of the random numbers; 0: 1 */
} column;

typedef struct job {
    const char *model; /* JSON */
    column inputs[MOST_COLUMNS], targets[MOST_COLUMNS];
    strata_optimizer optimizer;
    const char *metrics;
    strata_dtype precision;
    bool weighted; /* examples and classes have weights */
    int64_t n, batch;
    int epochs;
} job;

/* One dense layer after another. y: 4 classes. */
#define CLASSES \
    { .name = "y", .n_classes = 4 }
static const job dense = {.model =
                              "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\"},"
                              "{\"layer\": \"dense\", \"units\": 9, \"activation\": \"tanh\"}, {\"layer\": \"layer_norm\"},"
                              "{\"layer\": \"dense\", \"units\": 7, \"activation\": \"relu\"}, {\"layer\": \"dense\", "
                              "\"units\": 4, \"name\": \"y\"}]}",
                          .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {6}}}},
                          .optimizer = {.name = "adam", .learning_rate = 0.003},
                          .targets = {CLASSES},
                          .n = 40,
                          .batch = 8,
                          .epochs = 3};

static const job pictures = {
    .model =
        "{\"input\": [6, 6, 3], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": "
        "\"same\"},"
        "{\"layer\": \"batch_norm\", \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", \"size\": 2}, {\"layer\": "
        "\"dropout\", "
        "\"rate\": 0.25},"
        "{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 3, \"activation\": \"relu\"},"
        "{\"layer\": \"batch_norm\"}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 3, .dims = {6, 6, 3}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 32,
    .batch = 8,
    .epochs = 3};

#define TOKENS                                                                                                            \
    "\"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 12, \"units\": 8, \"mask_zero\": " \
    "true},"
static const job recurrent = {.model =
                                  "{\"input\": [5], " TOKENS
                                  "{\"layer\": \"lstm\", \"units\": 6, \"return_sequences\": true},"
                                  "{\"layer\": \"gru\", \"units\": 5}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
                              .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {5}}, .n_classes = 12}},
                              .optimizer = {.name = "adam", .learning_rate = 0.003},
                              .targets = {CLASSES},
                              .n = 32,
                              .batch = 8,
                              .epochs = 3};

static const job attention = {
    .model = "{\"input\": [5], " TOKENS
             "{\"layer\": \"residual\", \"layers\": [{\"layer\": \"layer_norm\"},"
             "{\"layer\": \"multi_head_attention\", \"heads\": 4}, {\"layer\": \"dropout\", \"rate\": 0.1}]},"
             "{\"layer\": \"dense\", \"units\": 8, \"activation\": \"relu\"}, {\"layer\": \"global_average_pool\"},"
             "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {5}}, .n_classes = 12}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 32,
    .batch = 8,
    .epochs = 3};

/* Two inputs, two outputs, a value that is added again some calls later, and a layer that is called at the beginning and near
 * the end. */
static const job functional = {
    .model =
        "{\"inputs\": [{\"name\": \"left\", \"shape\": [6]}, {\"name\": \"right\", \"shape\": [6]}], \"layers\": ["
        "{\"layer\": \"dense\", \"name\": \"tied\", \"units\": 6, \"activation\": \"tanh\", \"inputs\": [\"left\"]},"
        "{\"layer\": \"dense\", \"name\": \"a\", \"units\": 6, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"name\": \"b\", \"units\": 6, \"inputs\": [\"right\"]},"
        "{\"layer\": \"multiply\", \"name\": \"c\", \"inputs\": [\"a\", \"b\"]},"
        "{\"layer\": \"dense\", \"name\": \"d\", \"units\": 6, \"activation\": \"relu\"},"
        "{\"layer\": \"add\", \"name\": \"e\", \"inputs\": [\"d\", \"tied\"]},"
        "{\"call\": \"tied\", \"name\": \"f\", \"inputs\": [\"e\"]},"
        "{\"layer\": \"dense\", \"name\": \"y\", \"units\": 4, \"inputs\": [\"f\"]},"
        "{\"layer\": \"dense\", \"name\": \"z\", \"units\": 2, \"inputs\": [\"a\"]}],"
        "\"outputs\": [{\"name\": \"y\", \"loss\": \"sparse_categorical_crossentropy\"},"
        "{\"name\": \"z\", \"loss\": \"mse\", \"weight\": 0.5}]}",
    .inputs = {{.name = "left", .shape = {.rank = 1, .dims = {6}}}, {.name = "right", .shape = {.rank = 1, .dims = {6}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES, {.name = "z", .shape = {.rank = 1, .dims = {2}}}},
    .n = 32,
    .batch = 8,
    .epochs = 3};

/* L2 penalties of several layers, which are at several stages. */
static const job penalized = {
    .model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\", \"kernel_l2\": 0.02},"
        "{\"layer\": \"dense\", \"units\": 9, \"activation\": \"tanh\", \"kernel_l2\": 0.01},"
        "{\"layer\": \"dense\", \"units\": 7, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\", \"kernel_l2\": 0.03}]}",
    .inputs = {{.name = "x", .shape = {.rank = 1, .dims = {6}}}},
    .optimizer = {.name = "adam", .learning_rate = 0.003},
    .targets = {CLASSES},
    .n = 40,
    .batch = 8,
    .epochs = 3};

/* ---- data ---- */

typedef struct data {
    strata_array arrays[2 * MOST_COLUMNS];
    int n_arrays;
    strata_dataset *dataset;
} data;

static int make_columns(data *d, const column *columns, int64_t n, uint64_t seed, strata_data_column *out) {
    int count = 0;
    for (; count < MOST_COLUMNS && columns[count].name; count++) {
        const column *c = &columns[count];
        strata_shape shape = {.rank = c->shape.rank + 1, .dims = {n}};
        memcpy(shape.dims + 1, c->shape.dims, (size_t)c->shape.rank * sizeof *shape.dims);
        strata_array *array = &d->arrays[d->n_arrays++];
        *array = c->n_classes
                     ? strata_test_random(STRATA_DTYPE_I32, shape, 0, (double)c->n_classes, seed + (uint64_t)d->n_arrays)
                     : strata_test_random(STRATA_DTYPE_F32, shape, -1, 1, seed + (uint64_t)d->n_arrays);
        out[count] = (strata_data_column){.name = c->name, .array = array, .scale = c->scale};
    }
    return count;
}

static data make_data(const job *j, int64_t n, uint64_t seed) {
    data d = {0};
    strata_data_column inputs[MOST_COLUMNS], targets[MOST_COLUMNS];
    const int n_inputs = make_columns(&d, j->inputs, n, seed, inputs),
              n_targets = make_columns(&d, j->targets, n, seed, targets);
    OK(strata_dataset_from_columns(inputs, n_inputs, targets, n_targets, &d.dataset, &err));
    if (j->weighted) {
        strata_array weights = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n), 0, 2, seed);
        OK(strata_dataset_set_weights(d.dataset, &weights, &err));
        strata_array_finish(&weights);
    }
    return d;
}

static void free_data(data *d) {
    strata_dataset_destroy(d->dataset);
    for (int i = 0; i < d->n_arrays; i++) strata_array_finish(&d->arrays[i]);
}

/* ---- strategies ---- */

/* A mesh, and how it computes; mesh NULL: one device. devices NULL: all are the host. */
typedef struct setup {
    const char *mesh;
    int microbatches;
    const char *schedule, *layout;
    const char *const *devices;
} setup;

/* The product of the numbers in the text. */
static int devices_of(const char *mesh) {
    int n = 1;
    for (const char *at = mesh; at && (at = strchr(at, '=')); at++) n *= atoi(at + 1);
    return n;
}

static strata_status try_strategy(const setup *s, strata_strategy **out) {
    static const char *const hosts[MOST_DEVICES] = {"host", "host", "host", "host", "host", "host", "host", "host"};
    const strata_strategy_options opts = {.devices = s->devices ? s->devices : hosts,
                                          .n_devices = devices_of(s->mesh),
                                          .mesh = s->mesh,
                                          .microbatches = s->microbatches,
                                          .schedule = s->schedule,
                                          .layout = s->layout};
    return strata_strategy_create(s->mesh ? "model_parallel" : "one_device", &opts, out, &err);
}

static strata_strategy *strategy_of(const setup *s) {
    strata_strategy *strategy = NULL;
    OK(try_strategy(s, &strategy));
    return strategy;
}

static strata_model *make_model(const job *j, strata_strategy *strategy) {
    strata_model *model = NULL;
    const strata_compile_options opts = {
        .optimizer = j->optimizer, .metrics = j->metrics, .seed = 3, .strategy = strategy, .precision = j->precision};
    OK(strata_model_from_json(j->model, strlen(j->model), "test", &model, &err));
    OK(strata_model_compile(model, NULL, &opts, &err));
    return model;
}

static bool there_is(const char *device) {
    strata_device *opened = NULL;
    if (strata_device_open(device, NULL, &opened, NULL)) return false;
    strata_device_close(opened);
    return true;
}

/* ---- runs and their results ---- */

/* Numbers that a run ends with. */
typedef struct numbers {
    float *values;
    int64_t n;
} numbers;

static void append(numbers *to, const float *values, int64_t n) {
    to->values = realloc(to->values, (size_t)(to->n + n + 1) * sizeof *to->values);
    cr_assert_not_null(to->values);
    memcpy(to->values + to->n, values, (size_t)n * sizeof *values);
    to->n += n;
}

typedef struct outcome {
    int n_losses;
    float losses[MOST_LOSSES];
    int64_t n_skipped;
    strata_metrics trained, evaluated;
    numbers predictions, parameters;
    bool equal;
} outcome;

static void free_outcome(outcome *o) {
    free(o->predictions.values);
    free(o->parameters.values);
}

static numbers read_parameters(strata_model *model) {
    numbers all = {0};
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array value = {0};
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &value, &err));
        OK(strata_model_get_parameter(model, i, &value, &err));
        append(&all, value.data, strata_shape_elements(value.shape));
        strata_array_finish(&value);
    }
    return all;
}

/* Evaluates, predicts and reads the parameters. */
static void look(strata_model *model, const data *d, outcome *out) {
    const int64_t batch = 8;
    strata_array predictions[MOST_COLUMNS] = {{0}};
    OK(strata_model_evaluate(model, d->dataset, batch, &out->evaluated, &err));
    OK(strata_model_predict_all(model, d->dataset, batch, predictions, &err));
    for (int i = 0; i < strata_model_n_outputs(model); i++) {
        append(&out->predictions, predictions[i].data, strata_shape_elements(predictions[i].shape));
        strata_array_finish(&predictions[i]);
    }
    OK(strata_model_replicas_equal(model, &out->equal, &err));
    out->parameters = read_parameters(model);
}

static strata_fit_options fit_of(const job *j) {
    static const double class_weights[] = {0.5, 2, 1, 1.5};
    return (strata_fit_options){
        .epochs = j->epochs,
        .batch = j->batch,
        .seed = 5,
        .wait_each_step = j->precision == STRATA_DTYPE_F16, /* so that the loss scale follows each step */
        .class_weights = j->weighted ? class_weights : NULL,
        .n_class_weights = j->weighted ? 4 : 0};
}

static outcome run(const job *j, const setup *s) {
    outcome out = {0};
    strata_history history = {0};
    data d = make_data(j, j->n, 20);
    strata_strategy *strategy = strategy_of(s);
    strata_model *model = make_model(j, strategy);
    const strata_fit_options fit = fit_of(j);
    OK(strata_model_fit(model, d.dataset, &fit, &history, &err));
    out.n_losses = history.n_losses < MOST_LOSSES ? history.n_losses : MOST_LOSSES;
    memcpy(out.losses, history.losses, (size_t)out.n_losses * sizeof *out.losses);
    out.n_skipped = history.n_skipped;
    out.trained = history.epochs[history.n_epochs - 1];
    look(model, &d, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    free_data(&d);
    return out;
}

static bool near(double got, double wanted, double tolerance) {
    return got == wanted || fabs(got - wanted) <= tolerance * (fabs(wanted) + 1) || (isnan(got) && isnan(wanted));
}

static void expect_numbers(const numbers *got, const numbers *wanted, double tolerance, const char *what, const char *kind) {
    cr_assert_eq(got->n, wanted->n, "%s: %lld %s, not %lld", what, (long long)got->n, kind, (long long)wanted->n);
    for (int64_t i = 0; i < wanted->n; i++)
        cr_assert(near((double)got->values[i], (double)wanted->values[i], tolerance), "%s: %s: number %lld is %.9g, not %.9g",
                  what, kind, (long long)i, (double)got->values[i], (double)wanted->values[i]);
}

static void expect_metrics(const strata_metrics *got, const strata_metrics *wanted, double tolerance, const char *what) {
    cr_assert_eq(got->examples, wanted->examples, "%s", what);
    cr_assert(near(got->loss, wanted->loss, tolerance), "%s: loss %.9g, not %.9g", what, got->loss, wanted->loss);
    cr_assert_float_eq(got->accuracy, wanted->accuracy, 1e-6, "%s: accuracy %g, not %g", what, got->accuracy, wanted->accuracy);
    cr_assert_eq(got->n, wanted->n, "%s", what);
    for (int m = 0; m < wanted->n; m++)
        cr_assert(near(got->more[m].value, wanted->more[m].value, tolerance + 1e-6), "%s: metric %d is %g, not %g", what, m,
                  got->more[m].value, wanted->more[m].value);
}

/* tolerance 0: the same bits. */
static void expect_like(const outcome *got, const outcome *wanted, double tolerance, const char *what) {
    cr_assert_eq(got->n_losses, wanted->n_losses, "%s: %d losses, not %d", what, got->n_losses, wanted->n_losses);
    for (int i = 0; i < wanted->n_losses; i++)
        cr_assert(near((double)got->losses[i], (double)wanted->losses[i], tolerance), "%s: loss %d is %.9g, not %.9g", what, i,
                  (double)got->losses[i], (double)wanted->losses[i]);
    cr_assert_eq(got->n_skipped, wanted->n_skipped, "%s: %lld steps skipped, not %lld", what, (long long)got->n_skipped,
                 (long long)wanted->n_skipped);
    expect_numbers(&got->parameters, &wanted->parameters, 2 * tolerance, what, "parameters");
    expect_metrics(&got->trained, &wanted->trained, tolerance, what);
    expect_metrics(&got->evaluated, &wanted->evaluated, 2 * tolerance, what);
    expect_numbers(&got->predictions, &wanted->predictions, 10 * tolerance, what, "predictions");
    cr_assert(got->equal, "%s: copies of the parameters differ", what);
}

/* The mesh trains as one device. */
static void expect_like_one(const job *j, const setup *s, double tolerance) {
    char what[96];
    snprintf(what, sizeof what, "%s, %d micro-batches", s->mesh, s->microbatches);
    outcome one = run(j, &(setup){0}), got = run(j, s);
    expect_like(&got, &one, tolerance, what);
    free_outcome(&one);
    free_outcome(&got);
}

/* With micro-batches, the mesh has the bits of one device that accumulates. */
static void expect_bits_of_accumulation(const job *j, const char *mesh, int microbatches, const char *schedule) {
    char what[96];
    job alone = *j;
    const int64_t own = j->optimizer.gradient_accumulation_steps;
    alone.batch /= microbatches;
    alone.optimizer.gradient_accumulation_steps = microbatches * (own ? own : 1);
    snprintf(what, sizeof what, "%s, %d micro-batches, %s", mesh, microbatches, schedule ? schedule : "no schedule");
    outcome one = run(&alone, &(setup){0}),
            got = run(j, &(setup){.mesh = mesh, .microbatches = microbatches, .schedule = schedule});
    expect_like(&got, &one, 0, what);
    free_outcome(&one);
    free_outcome(&got);
}

/* ---- one device's results on every mesh ---- */

static const char *const meshes[] = {"stage=2",        "stage=4",         "tensor=2",         "tensor=3",
                                     "data=2,stage=2", "data=2,tensor=2", "stage=2,tensor=2", "data=2,stage=2,tensor=2"};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

static void expect_every_mesh_like_one(const job *j) {
    for (int i = 0; i < N_MESHES; i++) expect_like_one(j, &(setup){.mesh = meshes[i]}, 1e-5);
}

Test(mesh, dense_layers_train_as_on_one_device) {
    expect_every_mesh_like_one(&dense);
}

/* Without batch norm, whose statistics are those of each device's examples. */
Test(mesh, convolutions_train_as_on_one_device) {
    job plain = pictures;
    plain.model =
        "{\"input\": [6, 6, 3], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3},"
        "{\"layer\": \"batch_norm\", \"synchronized\": true, \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", \"size\": "
        "2},"
        "{\"layer\": \"dropout\", \"rate\": 0.25}, {\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 2},"
        "{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    plain.optimizer = strata_sgd_optimizer(0.1, 0.9, false);
    expect_every_mesh_like_one(&plain);
}

Test(mesh, batch_norm_has_the_statistics_of_one_device) {
    job j = pictures;
    j.optimizer = strata_sgd_optimizer(0.1, 0.9, false);
    expect_like_one(&j, &(setup){.mesh = "stage=2"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=4"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "tensor=2"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=2,tensor=2"}, 1e-5);
}

Test(mesh, lstm_and_gru_train_as_on_one_device) {
    expect_every_mesh_like_one(&recurrent);
}

Test(mesh, attention_with_masks_trains_as_on_one_device) {
    expect_every_mesh_like_one(&attention);
}

Test(mesh, two_inputs_two_outputs_and_a_tied_layer_train_as_on_one_device) {
    expect_every_mesh_like_one(&functional);
}

/* ---- micro-batches ---- */

Test(mesh, micro_batches_have_the_bits_of_accumulated_batches) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zero_bubble"};
    for (int i = 0; i < 3; i++) {
        expect_bits_of_accumulation(&dense, "stage=2", 4, schedules[i]);
        expect_bits_of_accumulation(&dense, "stage=4", 8, schedules[i]);
        expect_bits_of_accumulation(&functional, "stage=2", 4, schedules[i]);
    }
}

Test(mesh, micro_batches_of_every_kind_of_layer_have_the_bits_of_accumulated_batches) {
    expect_bits_of_accumulation(&pictures, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&pictures, "stage=3", 2, NULL);
    expect_bits_of_accumulation(&recurrent, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&attention, "stage=3", 4, NULL);
    expect_bits_of_accumulation(&functional, "stage=4", 2, NULL);
    /* The penalties of a stage are added before those of other stages. */
    expect_like_one(&penalized, &(setup){.mesh = "stage=3", .microbatches = 4, .schedule = "zero_bubble"}, 1e-6);
}

Test(mesh, batches_can_be_accumulated_besides_micro_batches) {
    job j = dense;
    j.optimizer = strata_adam_optimizer(0.003);
    j.optimizer.gradient_accumulation_steps = 2;
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&j, "stage=4", 2, "zero_bubble");
}

/* 43 = 5 x 8 + 3: the last batch has fewer examples than micro-batches. 45 = 5 x 8 + 5: their sizes differ. */
Test(mesh, micro_batches_need_not_divide_a_batch) {
    static const int64_t sizes[] = {43, 45, 41};
    for (int i = 0; i < 3; i++) {
        job j = dense;
        j.n = sizes[i];
        expect_like_one(&j, &(setup){.mesh = "stage=2", .microbatches = 4}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "data=2,stage=2", .microbatches = 3, .schedule = "gpipe"}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "tensor=2", .microbatches = 3}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "data=4", .microbatches = 1}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3, .schedule = "zero_bubble"}, 1e-5);
    }
}

Test(mesh, five_rows_over_four_devices_train_as_on_one_device) {
    job j = dense;
    j.n = j.batch = 5;
    j.epochs = 10;
    expect_like_one(&j, &(setup){.mesh = "data=4"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "data=4,stage=2"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "data=4,stage=2", .microbatches = 2}, 1e-5);
    j.n = j.batch = 2;
    expect_like_one(&j, &(setup){.mesh = "data=2,stage=2", .microbatches = 2}, 1e-5);
}

/* ---- optimizers, clipping, weights, precision ---- */

Test(mesh, every_optimizer_trains_as_on_one_device) {
    const strata_optimizer optimizers[] = {strata_sgd_optimizer(0.1, 0.9, true),
                                           strata_adam_optimizer(0.003),
                                           {.name = "adamw", .learning_rate = 0.003},
                                           {.name = "lars", .learning_rate = 0.5},
                                           {.name = "lamb", .learning_rate = 0.01, .weight_decay = 0.01},
                                           {.name = "rmsprop", .learning_rate = 0.003},
                                           {.name = "adagrad", .learning_rate = 0.03}};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        job j = dense;
        j.optimizer = optimizers[i];
        expect_like_one(&j, &(setup){.mesh = "data=2,stage=2,tensor=2"}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "tensor=3"}, 1e-5);
        /* Norms of whole parameters are added up in another order than in the range of all parameters. */
        const bool has_norms = j.optimizer.name[0] == 'l';
        if (has_norms) expect_like_one(&j, &(setup){.mesh = "stage=2", .microbatches = 4}, 1e-5);
        if (!has_norms) expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
    }
}

Test(mesh, clipping_uses_the_norms_of_whole_gradients) {
    for (int i = 0; i < 3; i++) {
        job j = penalized;
        j.optimizer = strata_sgd_optimizer(0.1, 0, false);
        *(i == 0 ? &j.optimizer.clip_value : i == 1 ? &j.optimizer.clip_norm : &j.optimizer.clip_global_norm) = i ? 0.2 : 0.02;
        expect_like_one(&j, &(setup){.mesh = "data=2,stage=2,tensor=2"}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "stage=4"}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "tensor=3", .microbatches = 3}, 1e-5);
        expect_like_one(&j, &(setup){.mesh = "stage=2,tensor=2", .microbatches = 4, .schedule = "zero_bubble"}, 1e-5);
    }
}

Test(mesh, weights_of_classes_and_examples_count_as_on_one_device) {
    job j = dense;
    j.weighted = true;
    j.n = 43;
    expect_like_one(&j, &(setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=4", .microbatches = 4}, 1e-5);
    j.n = 40;
    expect_bits_of_accumulation(&j, "stage=2", 4, "zero_bubble");
}

Test(mesh, metrics_are_those_of_one_device) {
    job j = dense;
    j.metrics = "precision,recall,confusion_matrix,top_2_accuracy";
    j.n = 43;
    expect_like_one(&j, &(setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=2"}, 1e-5);
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 5, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 1, \"name\": \"y\"}], \"loss\": \"binary_crossentropy\"}";
    j.targets[0] = (column){.name = "y", .n_classes = 2};
    j.metrics = "auc,precision,confusion_matrix";
    expect_like_one(&j, &(setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "tensor=2"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=3", .microbatches = 4}, 1e-5);
    j.n = 40;
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
}

/* Inputs are large and the loss is multiplied by 2^15 at first, so gradients of the first layer are too large for f16. */
Test(mesh, an_overflow_at_one_stage_skips_the_update_of_all) {
    job j = dense;
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 9}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.precision = STRATA_DTYPE_F16;
    j.optimizer = strata_sgd_optimizer(0.05, 0, false);
    j.inputs[0].scale = 30;
    outcome one = run(&j, &(setup){0}), two = run(&j, &(setup){.mesh = "stage=2"});
    cr_assert_gt(one.n_skipped, 0);
    expect_like(&two, &one, 1e-3, "f16");
    free_outcome(&one);
    free_outcome(&two);
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
}

Test(mesh, devices_of_several_kinds_train_as_one) {
    static const char *const mixed[] = {"host", "opencl:0", "vulkan:0", "host"};
    if (!there_is("opencl:0") || !there_is("vulkan:0")) cr_skip_test("opencl:0 or vulkan:0 is not there");
    job j = dense;
    j.optimizer = strata_adam_optimizer(0.003);
    expect_like_one(&j, &(setup){.mesh = "stage=3", .devices = mixed}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "tensor=3", .devices = mixed}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "data=2,stage=2", .devices = mixed, .microbatches = 4}, 1e-5);
    expect_like_one(&functional, &(setup){.mesh = "stage=2,tensor=2", .devices = mixed, .microbatches = 2}, 1e-5);
}

/* ---- parameters, files and checkpoints ---- */

Test(mesh, parameters_are_read_and_set_whole) {
    for (int i = 0; i < N_MESHES; i++) {
        strata_strategy *strategy = strategy_of(&(setup){.mesh = meshes[i]});
        strata_model *model = make_model(&functional, strategy);
        for (int k = 0; k < strata_model_n_parameters(model); k++) {
            const strata_parameter parameter = strata_model_parameter(model, k);
            strata_array value = strata_test_random(STRATA_DTYPE_F32, parameter.shape, -1, 1, (uint64_t)k), got = {0};
            OK(strata_array_create(STRATA_DTYPE_F32, parameter.shape, &got, &err));
            OK(strata_model_set_parameter(model, k, &value, &err));
            OK(strata_model_get_parameter(model, k, &got, &err));
            const strata_test_result r = strata_test_same(&got, &value);
            cr_assert(r.ok, "%s: %s: %s", meshes[i], parameter.name, r.text);
            strata_array_finish(&value);
            strata_array_finish(&got);
        }
        bool equal = false;
        OK(strata_model_replicas_equal(model, &equal, &err));
        cr_assert(equal, "%s", meshes[i]);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
    }
}

/* Compiles the model in the file under the setup, and looks at it. */
static outcome look_at_file(const char *path, const setup *s, const job *j, const data *d) {
    outcome out = {0};
    strata_model *model = NULL;
    strata_strategy *strategy = strategy_of(s);
    const strata_compile_options opts = {.optimizer = j->optimizer, .strategy = strategy};
    OK(strata_model_load(path, &model, &err));
    OK(strata_model_compile(model, NULL, &opts, &err));
    look(model, d, &out);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    return out;
}

Test(mesh, a_saved_model_loads_under_every_mesh_and_on_one_device) {
    const char *path = test_path("model.strata");
    const job *jobs[] = {&functional, &pictures};
    for (int i = 0; i < 2; i++) {
        data d = make_data(jobs[i], jobs[i]->n, 20);
        outcome saved = {0};
        strata_strategy *strategy = strategy_of(&(setup){.mesh = "data=2,stage=2,tensor=2"});
        strata_model *model = make_model(jobs[i], strategy);
        const strata_fit_options fit = fit_of(jobs[i]);
        OK(strata_model_fit(model, d.dataset, &fit, NULL, &err));
        look(model, &d, &saved);
        OK(strata_model_save(model, path, &err));
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        for (int k = -1; k < N_MESHES; k++) {
            outcome loaded = look_at_file(path, &(setup){.mesh = k < 0 ? NULL : meshes[k]}, jobs[i], &d);
            const char *what = k < 0 ? "one device" : meshes[k];
            expect_numbers(&loaded.parameters, &saved.parameters, 0, what, "parameters");
            expect_numbers(&loaded.predictions, &saved.predictions, 1e-5, what, "predictions");
            expect_metrics(&loaded.evaluated, &saved.evaluated, 1e-5, what);
            cr_assert(loaded.equal, "%s", what);
            free_outcome(&loaded);
        }
        free_outcome(&saved);
        free_data(&d);
    }
}

static strata_status stop_at_10(const strata_progress *p, void *user, strata_error *error) {
    (void)user;
    (void)error;
    if (p->total_step >= 10) *p->stop_now = true;
    return STRATA_OK;
}

/* Trains under one setup, stops in the middle of an epoch, and goes on from the checkpoint under another. */
static outcome resume(const job *j, const setup *from, const setup *to) {
    const char *path = test_path("checkpoint.strata");
    outcome out = {0};
    strata_history history = {0};
    data d = make_data(j, j->n, 20);
    strata_fit_options fit = fit_of(j);
    strata_strategy *strategy = strategy_of(from);
    strata_model *model = make_model(j, strategy);
    fit.on_progress = stop_at_10;
    OK(strata_model_fit(model, d.dataset, &fit, &history, &err));
    cr_assert(history.stopped);
    cr_assert_gt(strata_model_epoch_steps(model), 0);
    OK(strata_model_save_checkpoint(model, history.n_epochs, path, &err));
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    fit.on_progress = NULL;
    strategy = strategy_of(to);
    model = make_model(j, strategy);
    OK(strata_model_load_checkpoint(model, path, &fit.first_epoch, &err));
    fit.first_step = strata_model_epoch_steps(model);
    OK(strata_model_fit(model, d.dataset, &fit, &history, &err));
    out.trained = history.epochs[history.n_epochs - 1];
    look(model, &d, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    free_data(&d);
    return out;
}

static void expect_resumed_like(const job *j, const setup *from, const setup *to, const setup *whole, double tolerance) {
    char what[128];
    snprintf(what, sizeof what, "from %s to %s", from->mesh ? from->mesh : "one device", to->mesh ? to->mesh : "one device");
    outcome wanted = run(j, whole), got = resume(j, from, to);
    expect_numbers(&got.parameters, &wanted.parameters, tolerance, what, "parameters");
    expect_metrics(&got.trained, &wanted.trained, tolerance, what);
    expect_metrics(&got.evaluated, &wanted.evaluated, tolerance, what);
    free_outcome(&wanted);
    free_outcome(&got);
}

Test(mesh, a_checkpoint_within_an_epoch_goes_on_under_any_mesh) {
    const setup one = {0}, pipeline = {.mesh = "stage=2", .microbatches = 4}, cube = {.mesh = "data=2,stage=2,tensor=2"},
                parts = {.mesh = "tensor=3"};
    job j = functional, moving = pictures;
    j.n = moving.n = 64; /* 8 steps an epoch; the fit ends a few steps after the tenth */
    expect_resumed_like(&j, &pipeline, &pipeline, &pipeline, 0);
    expect_resumed_like(&j, &cube, &cube, &cube, 0);
    expect_resumed_like(&j, &parts, &parts, &parts, 0);
    expect_resumed_like(&j, &cube, &one, &one, 2e-5);
    expect_resumed_like(&j, &one, &cube, &one, 2e-5);
    expect_resumed_like(&j, &pipeline, &parts, &one, 2e-5);
    expect_resumed_like(&j, &parts, &cube, &one, 2e-5);
    expect_resumed_like(&moving, &pipeline, &pipeline, &pipeline, 0);
}

/* The parameters of the best epoch of a fit whose rate is so high that the last one is not it. */
static outcome train_with_validation(const job *j, const setup *s) {
    outcome out = {0};
    strata_history history = {0};
    data d = make_data(j, j->n, 20), other = make_data(j, 16, 40);
    strata_strategy *strategy = strategy_of(s);
    strata_model *model = make_model(j, strategy);
    strata_fit_options fit = fit_of(j);
    fit.validation = other.dataset;
    fit.restore_best = true;
    OK(strata_model_fit(model, d.dataset, &fit, &history, &err));
    out.trained = history.epochs[history.n_epochs - 1];
    look(model, &other, &out);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    free_data(&d);
    free_data(&other);
    return out;
}

Test(mesh, the_best_epoch_is_restored_as_on_one_device) {
    job j = dense;
    j.epochs = 5;
    j.optimizer = strata_sgd_optimizer(0.3, 0, false);
    outcome one = train_with_validation(&j, &(setup){0});
    static const setup setups[] = {{.mesh = "stage=2", .microbatches = 4}, {.mesh = "data=2,stage=2,tensor=2"}};
    for (int i = 0; i < 2; i++) {
        outcome got = train_with_validation(&j, &setups[i]);
        expect_numbers(&got.parameters, &one.parameters, 2e-5, setups[i].mesh, "parameters");
        expect_metrics(&got.evaluated, &one.evaluated, 2e-5, setups[i].mesh);
        cr_assert(got.equal);
        free_outcome(&got);
    }
    free_outcome(&one);
}

/* ---- sparse embeddings, and layouts by hand ---- */

Test(mesh, a_sparse_embedding_trains_at_its_stage) {
    job j = recurrent;
    j.model =
        "{\"input\": [5], \"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 12,"
        "\"units\": 8, \"sparse\": true}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 7,"
        "\"activation\": \"relu\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.optimizer = strata_sgd_optimizer(0.1, 0, false);
    for (int i = 0; i < N_MESHES; i++) expect_like_one(&j, &(setup){.mesh = meshes[i]}, 1e-5);
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
}

Test(mesh, a_layout_by_hand_trains_as_one_device) {
    static const char layout[] = "{\"^(a|d|tied)/kernel\": [null, \"tensor\"], \"^(a|d|tied)/bias\": [\"tensor\"]}";
    expect_like_one(&functional, &(setup){.mesh = "tensor=2", .layout = layout}, 1e-5);
    expect_like_one(&functional, &(setup){.mesh = "stage=2,tensor=2", .layout = layout}, 1e-5);
    expect_like_one(&functional, &(setup){.mesh = "data=2,stage=2,tensor=2", .layout = layout, .microbatches = 2}, 1e-5);
}

/* ---- errors ---- */

#define FAILS(call, status, text)                                                                         \
    do {                                                                                                  \
        const strata_status got_status = (call);                                                          \
        cr_assert_eq(got_status, status, "%s: status %d: %s", #call, (int)got_status, err.message);       \
        cr_assert_not_null(strstr(err.message, text), "%s: \"%s\" without %s", #call, err.message, text); \
    } while (0)

Test(mesh, a_mesh_that_cannot_be_is_an_error_of_create) {
    static const char *const hosts[] = {"host", "host", "host", "host"};
    static const int64_t split[] = {1, 2, 3, 4};
    static const struct {
        strata_strategy_options opts;
        strata_status status;
        const char *text;
    } cases[] = {{{.mesh = "stage=3"}, STRATA_INVALID, "mesh stage=3 is for 3 devices, but there are 4"},
                 {{.mesh = "data=2,row=2"}, STRATA_INVALID, "axis row"},
                 {{.mesh = "stage=0"}, STRATA_INVALID, "stage"},
                 {{.mesh = "stage"}, STRATA_INVALID, "mesh is \"stage\""},
                 {{.mesh = ""}, STRATA_INVALID, "mesh is \"\""},
                 {{.mesh = "stage=2,stage=2"}, STRATA_INVALID, "stage"},
                 {{.mesh = "stage=4", .microbatches = -1}, STRATA_INVALID, "microbatches is -1"},
                 {{.mesh = "stage=4", .microbatches = 1 << 30}, STRATA_INVALID, "microbatches is 1073741824"},
                 {{.mesh = "stage=4", .schedule = "1f1c"}, STRATA_INVALID, "1f1c"},
                 {{.mesh = "stage=4", .schedule = ""}, STRATA_INVALID, "schedule"},
                 {{.mesh = "stage=4", .microbatches = 4, .schedule = "interleaved:2"}, STRATA_UNSUPPORTED, "interleaved:2"},
                 {{.mesh = "stage=4", .parameter_device = "host"}, STRATA_INVALID, "no parameter device"},
                 {{.mesh = "stage=4", .compress = STRATA_DTYPE_F16}, STRATA_INVALID, "compress"},
                 {{.mesh = "stage=4", .every = 2}, STRATA_INVALID, "every"},
                 {{.mesh = "stage=4", .split = split, .n_split = 4}, STRATA_INVALID, "split"},
                 {{.mesh = "stage=4", .auto_split = true}, STRATA_INVALID, "split"},
                 {{.mesh = "stage=4", .shard_optimizer = STRATA_SHARD_OPTIMIZER_YES}, STRATA_INVALID, "shard_optimizer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_strategy *strategy = NULL;
        strata_strategy_options opts = cases[i].opts;
        opts.devices = hosts;
        opts.n_devices = 4;
        FAILS(strata_strategy_create("model_parallel", &opts, &strategy, &err), cases[i].status, cases[i].text);
        cr_assert_null(strategy);
    }
    static const strata_strategy_options others[] = {
        {.mesh = "data=1"}, {.microbatches = 2}, {.schedule = "gpipe"}, {.layout = "{}"}};
    static const char *const options[] = {"mesh", "microbatches", "schedule", "layout"};
    for (int i = 0; i < 4; i++) {
        strata_strategy *strategy = NULL;
        strata_strategy_options opts = others[i];
        opts.devices = hosts;
        opts.n_devices = 2;
        FAILS(strata_strategy_create("mirrored", &opts, &strategy, &err), STRATA_INVALID, options[i]);
        FAILS(strata_strategy_create("local_sgd", &opts, &strategy, &err), STRATA_INVALID, options[i]);
        FAILS(strata_strategy_create("auto", &opts, &strategy, &err), STRATA_INVALID, options[i]);
        opts.n_devices = 1;
        FAILS(strata_strategy_create("one_device", &opts, &strategy, &err), STRATA_INVALID, options[i]);
        FAILS(strata_strategy_create("parameter_server", &opts, &strategy, &err), STRATA_INVALID, options[i]);
    }
}

static void expect_no_compile(const job *j, const setup *s, strata_status status, const char *text) {
    strata_strategy *strategy = strategy_of(s);
    strata_model *model = NULL;
    const strata_compile_options opts = {.strategy = strategy};
    OK(strata_model_from_json(j->model, strlen(j->model), "test", &model, &err));
    FAILS(strata_model_compile(model, NULL, &opts, &err), status, text);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}

Test(mesh, a_mesh_that_does_not_fit_the_model_is_an_error_of_compile) {
    expect_no_compile(&dense, &(setup){.mesh = "stage=6"}, STRATA_INVALID, "5 calls of layers for 6 stages");
    expect_no_compile(&dense, &(setup){.mesh = "tensor=2", .layout = "{\"dence/kernel\": [null, \"tensor\"]}"}, STRATA_INVALID,
                      "dence/kernel");
    expect_no_compile(&dense, &(setup){.mesh = "tensor=2", .layout = "{\"y/kernel\": [null, \"rows\"]}"}, STRATA_INVALID,
                      "rows");
    expect_no_compile(&dense, &(setup){.mesh = "tensor=2", .layout = "{\"y/kernel\": [null, null, \"tensor\"]}"},
                      STRATA_INVALID, "y/kernel");
    expect_no_compile(&dense, &(setup){.mesh = "tensor=2", .layout = "not JSON"}, STRATA_DATA, "layout");
}

Test(mesh, more_micro_batches_than_examples_are_an_error_of_fit) {
    data d = make_data(&dense, 8, 20);
    strata_strategy *strategy = strategy_of(&(setup){.mesh = "stage=2", .microbatches = 9});
    strata_model *model = make_model(&dense, strategy);
    const strata_fit_options fit = fit_of(&dense);
    FAILS(strata_model_fit(model, d.dataset, &fit, NULL, &err), STRATA_INVALID, "batch is 8, but");
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    free_data(&d);
}

static strata_status do_nothing(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                strata_error *error) {
    (void)user;
    strata_replica_return(replica, inputs[0]);
    return strata_graph_check(strata_replica_graph(replica), error);
}

Test(mesh, custom_loops_are_refused) {
    data d = make_data(&dense, 8, 20);
    strata_strategy *strategy = strategy_of(&(setup){.mesh = "stage=2,tensor=2"});
    strata_function *function = NULL;
    strata_distributed_batches *batches = NULL;
    FAILS(strata_function_create(strategy, do_nothing, NULL, &function, &err), STRATA_UNSUPPORTED, "strata_model_fit");
    FAILS(strata_distributed_batches_create(strategy, d.dataset, NULL, &batches, &err), STRATA_UNSUPPORTED, "strata_model_fit");
    strata_strategy_destroy(strategy);
    free_data(&d);
}

/* A model that is only built has no optimizer; it can be compiled later, and keeps its parameters. */
Test(mesh, a_model_that_is_only_built_predicts) {
    const setup setups[] = {{0}, {.mesh = "stage=4", .microbatches = 2}, {.mesh = "data=2,stage=2,tensor=2"}};
    data d = make_data(&functional, 19, 20);
    outcome out[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        strata_strategy *strategy = strategy_of(&setups[i]);
        strata_model *model = NULL;
        strata_array predictions[MOST_COLUMNS] = {{0}};
        const strata_compile_options opts = {.seed = 3, .strategy = strategy};
        OK(strata_model_from_json(functional.model, strlen(functional.model), "test", &model, &err));
        OK(strata_model_build(model, NULL, &opts, &err));
        OK(strata_model_predict_all(model, d.dataset, 8, predictions, &err));
        for (int k = 0; k < MOST_COLUMNS; k++) strata_array_finish(&predictions[k]);
        OK(strata_model_compile(model, NULL, &opts, &err));
        look(model, &d, &out[i]);
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        expect_numbers(&out[i].parameters, &out[0].parameters, 0, "built", "parameters");
        expect_numbers(&out[i].predictions, &out[0].predictions, 1e-5, "built", "predictions");
    }
    for (int i = 0; i < 3; i++) free_outcome(&out[i]);
    free_data(&d);
}

/* What needs the whole model on one device says so. */
Test(mesh, what_needs_the_whole_model_says_so) {
    data d = make_data(&dense, 8, 20);
    strata_strategy *strategy = strategy_of(&(setup){.mesh = "stage=2,tensor=2"});
    strata_model *model = make_model(&dense, strategy);
    strata_model_summary summary = {0};
    strata_model_memory memory = {0};
    strata_status status = strata_model_summarize(model, 8, &summary, &err);
    cr_assert(!status || status == STRATA_UNSUPPORTED, "%s", err.message);
    strata_model_summary_finish(&summary);
    for (int part = STRATA_PART_TRAINING; part <= STRATA_PART_PREDICTION; part++) {
        status = strata_model_list_memory(model, (strata_model_part)part, 8, &memory, &err);
        cr_assert(!status || status == STRATA_UNSUPPORTED, "%s", err.message);
        if (!status) strata_model_memory_finish(&memory);
    }
    strata_fit_options fit = fit_of(&dense);
    fit.check_repeats = true;
    FAILS(strata_model_fit(model, d.dataset, &fit, NULL, &err), STRATA_UNSUPPORTED, "a part of the model only");
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    free_data(&d);
}

/* ---- other layers ---- */

Test(mesh, other_layers_train_as_on_one_device) {
    job j = pictures;
    j.model =
        "{\"input\": [6, 6, 4], \"layers\": [{\"layer\": \"depthwise_conv2d\", \"kernel_size\": 3, \"padding\": \"same\"},"
        "{\"layer\": \"group_norm\", \"groups\": 2}, {\"layer\": \"separable_conv2d\", \"filters\": 6, \"kernel_size\": 3},"
        "{\"layer\": \"avg_pool2d\", \"size\": 2},"
        "{\"layer\": \"conv2d_transpose\", \"filters\": 4, \"kernel_size\": 2, \"stride\": 2, \"activation\": \"relu\"},"
        "{\"layer\": \"reshape\", \"shape\": [16, 4]}, {\"layer\": \"conv1d\", \"filters\": 6, \"kernel_size\": 3},"
        "{\"layer\": \"rms_norm\"}, {\"layer\": \"max_pool1d\", \"size\": 2}, {\"layer\": \"global_max_pool\"},"
        "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.inputs[0].shape.dims[2] = 4;
    expect_every_mesh_like_one(&j);
    expect_bits_of_accumulation(&j, "stage=4", 4, "zero_bubble");
    job tokens = recurrent;
    tokens.model =
        "{\"input\": [5], " TOKENS
        "{\"layer\": \"lstm\", \"units\": 6, \"return_sequences\": true, \"bidirectional\": \"concat\","
        "\"dropout\": 0.1, \"recurrent_dropout\": 0.1}, {\"layer\": \"multi_head_attention\", \"heads\": 3, \"causal\": true},"
        "{\"layer\": \"gru\", \"units\": 5, \"no_reset_after\": true}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    expect_every_mesh_like_one(&tokens);
    expect_bits_of_accumulation(&tokens, "stage=3", 2, NULL);
}

/* A residual network, whose residuals are one call each. */
Test(mesh, a_residual_network_trains_as_on_one_device) {
    job j = pictures;
    j.model =
        "{\"input\": [6, 6, 4], \"layers\": [{\"layer\": \"residual\", \"activation\": \"relu\", \"layers\": ["
        "{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": \"same\"}, {\"layer\": \"batch_norm\"}]},"
        "{\"layer\": \"residual\", \"layers\": [{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 3, \"padding\": "
        "\"same\"},"
        "{\"layer\": \"batch_norm\"}], \"shortcut\": [{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 1}]},"
        "{\"layer\": \"global_average_pool\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.inputs[0].shape.dims[2] = 4;
    expect_like_one(&j, &(setup){.mesh = "stage=2"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=4"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "tensor=2"}, 1e-5);
    expect_like_one(&j, &(setup){.mesh = "stage=2,tensor=2"}, 1e-5);
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&j, "stage=3", 4, "zero_bubble");
}

/* bf16 rounds sums of parts in another order. */
Test(mesh, half_precision_trains_nearly_as_on_one_device) {
    job j = dense;
    j.precision = STRATA_DTYPE_BF16;
    expect_bits_of_accumulation(&j, "stage=2", 4, "zero_bubble");
    outcome one = run(&j, &(setup){0}), got = run(&j, &(setup){.mesh = "data=2,stage=2,tensor=2"});
    for (int i = 0; i < one.n_losses; i++) cr_assert_float_eq(got.losses[i], one.losses[i], 0.03, "loss %d", i);
    cr_assert(got.equal);
    free_outcome(&one);
    free_outcome(&got);
}

/* ---- the rest of a fit ---- */

typedef struct seen {
    double norms[MOST_LOSSES];
    int n;
} seen;

static strata_status note_norm(const strata_progress *p, void *user, strata_error *error) {
    seen *s = user;
    (void)error;
    if (!p->epoch_end && s->n < MOST_LOSSES) s->norms[s->n++] = p->gradient_norm;
    return STRATA_OK;
}

/* Fits twice, with norms, frozen parameters, a trace and checkpoints. */
static seen fit_twice(const setup *s, numbers *parameters) {
    seen norms = {0};
    job j = penalized;
    data d = make_data(&j, j.n, 20);
    strata_strategy *strategy = strategy_of(s);
    strata_model *model = NULL;
    const strata_compile_options opts = {.optimizer = j.optimizer, .seed = 3, .strategy = strategy, .gradient_norm = true};
    OK(strata_model_from_json(j.model, strlen(j.model), "test", &model, &err));
    OK(strata_model_freeze(model, "dense_1", &err));
    OK(strata_model_compile(model, NULL, &opts, &err));
    strata_fit_options fit = fit_of(&j);
    fit.on_progress = note_norm;
    fit.user = &norms;
    fit.trace = test_path("trace.json");
    fit.steps_per_execution = 1;
    OK(strata_model_fit(model, d.dataset, &fit, NULL, &err));
    OK(strata_model_set_learning_rate(model, 0.001, &err));
    fit.trace = NULL;
    fit.checkpoint = &(strata_checkpoint_options){.folder = test_path("checkpoints"), .every_steps = 4};
    OK(strata_model_fit(model, d.dataset, &fit, NULL, &err));
    *parameters = read_parameters(model);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    free_data(&d);
    return norms;
}

Test(mesh, norms_frozen_parameters_traces_and_second_fits_are_as_on_one_device) {
    static const setup setups[] = {{.mesh = "stage=2"},
                                   {.mesh = "stage=4", .microbatches = 4},
                                   {.mesh = "tensor=3"},
                                   {.mesh = "data=2,stage=2,tensor=2", .microbatches = 2}};
    numbers wanted, got;
    const seen one = fit_twice(&(setup){0}, &wanted);
    for (int i = 0; i < 4; i++) {
        test_folder_remove();
        test_folder_make();
        const seen here = fit_twice(&setups[i], &got);
        cr_assert_eq(here.n, one.n);
        for (int k = 0; k < one.n; k++)
            cr_assert(near(here.norms[k], one.norms[k], 1e-5), "%s: norm %d is %.9g, not %.9g", setups[i].mesh, k,
                      here.norms[k], one.norms[k]);
        expect_numbers(&got, &wanted, 2e-5, setups[i].mesh, "parameters");
        free(got.values);
    }
    free(wanted.values);
}

Test(mesh, a_loss_that_is_not_finite_says_so) {
    static const setup setups[] = {{.mesh = "stage=2"}, {.mesh = "stage=4", .microbatches = 4}, {.mesh = "tensor=2"}};
    job j = dense;
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11}, {\"layer\": \"dense\", \"units\": 9},"
        "{\"layer\": \"dense\", \"units\": 5}, {\"layer\": \"dense\", \"units\": 1, \"name\": \"y\"}], \"loss\": \"mse\"}";
    j.targets[0] = (column){.name = "y", .shape = {.rank = 1, .dims = {1}}};
    j.inputs[0].scale = 1e30;
    j.optimizer = strata_sgd_optimizer(0.1, 0, false);
    for (int i = 0; i < 3; i++) {
        data d = make_data(&j, j.n, 20);
        strata_strategy *strategy = strategy_of(&setups[i]);
        strata_model *model = make_model(&j, strategy);
        const strata_fit_options fit = fit_of(&j);
        FAILS(strata_model_fit(model, d.dataset, &fit, NULL, &err), STRATA_DATA, "not finite at epoch 1, step 1");
        strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        free_data(&d);
    }
}
