/* SPDX-License-Identifier: Apache-2.0
 *
 * local_sgd: replicas with parameters of their own, which are averaged after every k updates. It is compared with a simulation:
 * a model of one device for each replica, which trains one step on the replica's share of each batch, and means between them.
 * The kinds at the beginning have other averages: by all_gather, and gossip with one neighbour. With a row in strategies.def
 * users could choose them by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/model/model.h"
#include "core/op/communication.h"
#include "strategies/kinds.h"
#include "tests/strategies/strategies_case.h"

/* ---- strategies of one's own ---- */

/* Gathers the parameters of all replicas as rows, and returns the mean of the rows. */
static strata_tensor *mean_of_rows(const strata_step_replica *replica, strata_tensor *own) {
    const int64_t n = strata_tensor_shape(own).dims[0];
    strata_tensor *row = strata_reshape(own, STRATA_SHAPE(1, n));
    return strata_reduce_mean(strata_all_gather_equal(row, 0, replica->n, replica->index), (int[]){0}, 1, false);
}

/* Replica r sends its values to replica r + 1 in channel r, and averages its own with those of r - 1. All replicas send and
 * receive in the order of the channels. If each of them sent first, each would wait for the next one. */
static strata_tensor *gossip(const strata_step_replica *replica, strata_tensor *own) {
    const int self = replica->index, next = (self + 1) % replica->n, before = (self + replica->n - 1) % replica->n;
    strata_graph *graph = strata_tensor_graph(own);
    strata_tensor *theirs = NULL;
    for (int channel = 0; channel < replica->n; channel++) {
        if (channel == self) replica->keep(replica, strata_send(own, channel, self, next));
        if (channel == before) theirs = strata_recv(graph, STRATA_DTYPE_F32, strata_tensor_shape(own), channel, before, self);
    }
    return strata_mul(strata_add(own, theirs), strata_scalar(graph, STRATA_DTYPE_F32, 0.5));
}

/* Claims that there are two more replicas than there are. */
static strata_tensor *row_too_many(const strata_step_replica *replica, strata_tensor *own) {
    strata_step_replica more = *replica;
    more.n += 2;
    return mean_of_rows(&more, own);
}

static const strata_strategy_kind gathering = {.name = "gathering",
                                               .most_devices = -1,
                                               .update = {.own = 1},
                                               .average = mean_of_rows},
                                  gossiping = {.name = "gossip", .most_devices = -1, .update = {.own = 1}, .average = gossip};

/* ---- the simulation ---- */

enum { FEATURES = 8, MOST_REPLICAS = 4, MOST_VALUES = 4096, EXAMPLES = 46, MOST_STEPS = 40 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static const char dense[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 6, \"activation\": \"tanh\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
static const char with_states[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 12, \"kernel_l2\": 0.01},"
    "{\"layer\": \"batch_norm\"}, {\"layer\": \"reshape\", \"shape\": [6, 2]}, {\"layer\": \"lstm\", \"units\": 5},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";

static const char sparse[] =
    "{\"input\": [8], \"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 20, \"units\": 4, "
    "\"sparse\": true}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 3}], "
    "\"loss\": \"sparse_categorical_crossentropy\"}";

/* What is trained, and how. */
typedef struct trial {
    const char *json;
    strata_optimizer optimizer;
    strata_dtype precision;
    int replicas;
    int64_t batch, every, epochs;
    const strata_strategy_kind *kind;
    /* The features are tokens. */
    bool tokens;
    /* The devices of the replicas; NULL: the host. */
    const char *const *devices;
    double tolerance;
} trial;

static strata_strategy *open(const trial *t) {
    static const char *const hosts[MOST_REPLICAS] = {"host", "host", "host", "host"};
    strata_strategy *strategy = NULL;
    const strata_strategy_options opts = {
        .devices = t->devices ? t->devices : hosts, .n_devices = t->replicas, .every = t->every};
    OK(strata_strategy_of_kind(t->kind ? t->kind : &strata_strategy_local_sgd, &opts, &strategy, &err));
    return strategy;
}

static strata_model *compile(const trial *t, strata_strategy *strategy, strata_device *device) {
    strata_model *model = NULL;
    const strata_compile_options opts = {.optimizer = t->optimizer, .seed = 3, .strategy = strategy, .precision = t->precision};
    OK(strata_model_from_json(t->json, strlen(t->json), "the test", &model, &err));
    OK(strata_model_compile(model, device, &opts, &err));
    return model;
}

static strata_model *fit(const trial *t, strata_strategy *strategy, const strata_dataset *dataset) {
    strata_model *model = compile(t, strategy, NULL);
    const strata_fit_options opts = {.epochs = (int)t->epochs, .batch = t->batch, .no_shuffle = true};
    OK(strata_model_fit(model, dataset, &opts, NULL, &err));
    return model;
}

static void get_all(strata_model *model, float *out_values) {
    cr_assert_leq(strata_model_all_size(model), MOST_VALUES);
    OK(strata_model_read_all(model, out_values, &err));
}

/* Sets all models to the mean of their parameters and states, in double. */
static void average(strata_model *const *models, int n) {
    static float values[MOST_REPLICAS][MOST_VALUES];
    const int64_t size = strata_model_all_size(models[0]);
    for (int r = 0; r < n; r++) get_all(models[r], values[r]);
    for (int64_t i = 0; i < size; i++) {
        double sum = 0;
        for (int r = 0; r < n; r++) sum += (double)values[r][i];
        values[0][i] = (float)(sum / n);
    }
    for (int r = 0; r < n; r++) OK(strata_model_write_all(models[r], values[0], &err));
}

/* One update of a replica's model with its rows of the batches [first, first + n) of the epoch. */
static void step_alone(const trial *t, const strata_strategy *strategy, strata_model *model, int r, const test_classes *data,
                       int64_t first, int64_t n, int64_t step) {
    static float x[EXAMPLES][FEATURES];
    static int32_t y[EXAMPLES];
    int64_t rows = 0, batch = 0;
    for (int64_t k = first; k < first + n; k++) {
        const int64_t begin = k * t->batch, size = begin + t->batch < EXAMPLES ? t->batch : EXAMPLES - begin;
        int64_t from, own;
        if (size <= 0) break;
        strata_strategy_share(strategy, size, r, &from, &own);
        if (!batch) batch = own;
        memcpy(x[rows], (const float *)data->x.data + (begin + from) * FEATURES, (size_t)own * sizeof x[0]);
        memcpy(y + rows, (const int32_t *)data->y.data + begin + from, (size_t)own * sizeof *y);
        rows += own;
    }
    model->optimizer_steps = step; /* a replica without examples counts the step too */
    if (!rows) return;
    const strata_array a = strata_array_view(data->x.dtype, STRATA_SHAPE(rows, FEATURES), x),
                       b = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(rows), y);
    strata_dataset *own = NULL;
    OK(strata_dataset_from_arrays(&a, &b, 0, &own, &err));
    OK(strata_model_fit(model, own, &(strata_fit_options){.epochs = 1, .batch = batch, .no_shuffle = true}, NULL, &err));
    strata_dataset_destroy(own);
}

static void simulate(const trial *t, const strata_strategy *strategy, const test_classes *data, float *out_values) {
    strata_device *device = NULL;
    strata_model *models[MOST_REPLICAS] = {NULL};
    OK(strata_device_open("host", NULL, &device, &err));
    for (int r = 0; r < t->replicas; r++) models[r] = compile(t, NULL, device);
    const int64_t together = strata_model_accumulates(models[0]), n_batches = (EXAMPLES + t->batch - 1) / t->batch;
    for (int64_t epoch = 0, step = 0; epoch < t->epochs; epoch++) {
        for (int64_t k = 0; k < n_batches; k += together, step++) {
            for (int r = 0; r < t->replicas; r++) step_alone(t, strategy, models[r], r, data, k, together, step);
            if ((step + 1) % t->every == 0) average(models, t->replicas);
        }
        average(models, t->replicas);
    }
    get_all(models[0], out_values);
    for (int r = 0; r < t->replicas; r++) strata_model_destroy(models[r]);
    strata_device_close(device);
}

static void expect_close(const strata_model *model, const float *got, const float *want, double tolerance, const char *what) {
    for (int64_t i = 0; i < strata_model_all_size(model); i++)
        cr_assert_float_eq(got[i], want[i], tolerance, "%s: element %lld is %.9g, not %.9g", what, (long long)i, (double)got[i],
                           (double)want[i]);
}

/* Makes tokens 0 to 19 of the features, in the same memory. */
static void make_tokens(test_classes *data) {
    strata_dataset_destroy(data->dataset);
    for (int64_t i = 0; i < EXAMPLES * FEATURES; i++)
        ((int32_t *)data->x.data)[i] = (int32_t)((((float *)data->x.data)[i] + 1) * 9.9f);
    data->x.dtype = STRATA_DTYPE_I32;
    OK(strata_dataset_from_arrays(&data->x, &data->y, 0, &data->dataset, &err));
}

static void try(const char *what, trial t) {
    static float got[MOST_VALUES], want[MOST_VALUES];
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    if (t.tokens) make_tokens(&data);
    strata_strategy *strategy = open(&t);
    strata_model *model = fit(&t, strategy, data.dataset);
    bool equal = false, divided = false;
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_expect(equal || t.kind == &gossiping, "%s: the end of a fit averages", what);
    for (const strata_model_program *p = model->programs; p; p = p->next) divided |= p->divided;
    cr_expect(divided, "%s: the step is not divided", what);
    get_all(model, got);
    if (!t.epochs) t.epochs = 1;
    simulate(&t, strategy, &data, want);
    expect_close(model, got, want, t.tolerance > 0 ? t.tolerance : 1e-6, what);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
}

/* ---- tests ---- */

/* 46 examples in batches of 10 make 5 steps, the last one with 6 examples; in batches of 9 the last one has 1, so that two of
 * three replicas have none. */
Test(local_sgd, is_the_simulation_of_replicas_that_are_averaged) {
    const strata_optimizer sgd = strata_sgd_optimizer(0.3, 0, false), momentum = strata_sgd_optimizer(0.1, 0.9, true),
                           adam = strata_adam_optimizer(0.01);
    strata_optimizer accumulated = momentum, clipped = adam;
    accumulated.gradient_accumulation_steps = 2;
    clipped.clip_global_norm = 0.1;
    try("every step", (trial){.json = dense, .optimizer = sgd, .replicas = 3, .batch = 10, .every = 1, .epochs = 2});
    try("every third step", (trial){.json = dense, .optimizer = adam, .replicas = 3, .batch = 10, .every = 3, .epochs = 3});
    try("only at ends of epochs",
        (trial){.json = dense, .optimizer = sgd, .replicas = 2, .batch = 10, .every = 99, .epochs = 2});
    try("idle replicas", (trial){.json = dense, .optimizer = adam, .replicas = 3, .batch = 9, .every = 2, .epochs = 2});
    try("fewer examples than replicas",
        (trial){.json = dense, .optimizer = momentum, .replicas = 4, .batch = 2, .every = 3, .epochs = 1});
    try("states and penalties",
        (trial){.json = with_states, .optimizer = momentum, .replicas = 3, .batch = 10, .every = 2, .epochs = 2});
    try("idle replicas with states and penalties",
        (trial){.json = with_states, .optimizer = momentum, .replicas = 3, .batch = 9, .every = 2, .epochs = 2});
    try("accumulated gradients",
        (trial){.json = dense, .optimizer = accumulated, .replicas = 3, .batch = 10, .every = 2, .epochs = 2});
    try("accumulated states, idle replicas",
        (trial){.json = with_states, .optimizer = accumulated, .replicas = 3, .batch = 9, .every = 2, .epochs = 2});
    try("rows of a sparse embedding",
        (trial){.json = sparse, .tokens = true, .optimizer = adam, .replicas = 3, .batch = 9, .every = 2, .epochs = 2});
    try("a clipped norm", (trial){.json = dense, .optimizer = clipped, .replicas = 2, .batch = 10, .every = 3, .epochs = 1});
    try("f16", (trial){.json = dense,
                       .optimizer = sgd,
                       .precision = STRATA_DTYPE_F16,
                       .replicas = 2,
                       .batch = 10,
                       .every = 2,
                       .epochs = 2,
                       .tolerance = 1e-5});
}

/* The mean loss of y = w x, by hand: w changes by the rate times the mean gradient of each replica's own examples. */
Test(local_sgd, every_step_is_the_mean_of_the_replicas_models) {
    enum { N = 14, BATCH = 5, REPLICAS = 3 };
    float x[N], y[N];
    double w = 0;
    for (int i = 0; i < N; i++) x[i] = (float)(i * 5 % 7) / 4 - 1, y[i] = 2 * x[i] + (float)(i % 3);
    const trial t = {.replicas = REPLICAS, .every = 1};
    strata_strategy *strategy = open(&t);
    strata_model *model = NULL;
    strata_dataset *dataset = NULL;
    OK(strata_model_create(STRATA_SHAPE(1), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1, .no_bias = true});
    const strata_compile_options compiled = {
        .optimizer = strata_sgd_optimizer(0.1, 0, false), .loss = "mse", .strategy = strategy};
    OK(strata_model_compile(model, NULL, &compiled, &err));
    float zero = 0, got;
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1), &zero);
    OK(strata_model_set_parameter(model, 0, &value, &err));
    const strata_array a = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), x),
                       b = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), y);
    OK(strata_dataset_from_arrays(&a, &b, 0, &dataset, &err));
    OK(strata_model_fit(model, dataset, &(strata_fit_options){.batch = BATCH, .no_shuffle = true}, NULL, &err));
    for (int begin = 0; begin < N; begin += BATCH) {
        double sum = 0;
        for (int r = 0; r < REPLICAS; r++) {
            int64_t first, n;
            double gradient = 0;
            strata_strategy_share(strategy, N - begin < BATCH ? N - begin : BATCH, r, &first, &n);
            for (int64_t i = begin + first; i < begin + first + n; i++)
                gradient += 2 * (w * (double)x[i] - (double)y[i]) * (double)x[i];
            sum += n ? w - 0.1 * gradient / (double)n : w;
        }
        w = sum / REPLICAS;
    }
    value.data = &got;
    OK(strata_model_get_parameter(model, 0, &value, &err));
    cr_expect_float_eq((double)got, w, 1e-6, "%.9g, not %.9g", (double)got, w);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
}

Test(local_sgd, an_average_may_be_a_strategys_own) {
    const trial gathered = {.json = with_states,
                            .optimizer = strata_adam_optimizer(0.01),
                            .kind = &gathering,
                            .replicas = 3,
                            .batch = 10,
                            .every = 2,
                            .epochs = 2};
    trial neighbours = gathered;
    try("all_gather", gathered);
    neighbours.kind = &gossiping;
    neighbours.replicas = 2; /* the mean of two neighbours is that of all */
    try("gossip of two replicas", neighbours);
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    neighbours.replicas = 3;
    strata_strategy *strategy = open(&neighbours);
    strata_model *model = fit(&neighbours, strategy, data.dataset);
    bool equal = true;
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_expect_not(equal, "gossip of three replicas leaves them apart");
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
}

Test(local_sgd, runs_on_unlike_devices) {
    strata_device *opened = NULL;
    if (strata_device_open("opencl:0", NULL, &opened, NULL)) cr_skip_test("opencl:0 is not there");
    strata_device_close(opened);
    try("host and OpenCL", (trial){.json = dense,
                                   .optimizer = strata_sgd_optimizer(0.1, 0.9, false),
                                   .devices = (const char *[]){"host", "opencl:0"},
                                   .replicas = 2,
                                   .batch = 10,
                                   .every = 3,
                                   .epochs = 1,
                                   .tolerance = 1e-5});
}

Test(local_sgd, with_one_replica_is_one_device) {
    const trial t = {.json = with_states, .optimizer = strata_adam_optimizer(0), .replicas = 1, .batch = 10, .epochs = 2};
    char one[65], alone[65];
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    strata_strategy *strategies[] = {open(&t), NULL};
    OK(strata_strategy_create("one_device", &(strata_strategy_options){.devices = (const char *[]){"host"}, .n_devices = 1},
                              &strategies[1], &err));
    OK(strata_model_sha256(fit(&t, strategies[0], data.dataset), one, &err));
    OK(strata_model_sha256(fit(&t, strategies[1], data.dataset), alone, &err));
    cr_expect_str_eq(one, alone);
    for (int i = 0; i < 2; i++) strata_strategy_destroy(strategies[i]);
    test_classes_free(&data);
}

/* ---- within a period ---- */

/* What a callback does at the end of step `at` of the fit. */
typedef struct observer {
    int64_t at;
    bool stops;
    strata_dataset *dataset;
    double loss;
    float values[MOST_VALUES];
} observer;

static strata_status observe(const strata_progress *progress, void *user, strata_error *e) {
    observer *o = user;
    strata_metrics metrics;
    if (progress->epoch_end || progress->total_step != o->at) return STRATA_OK;
    if (o->stops) *progress->stop_now = true;
    if (!o->dataset) return STRATA_OK;
    STRATA_TRY(strata_model_evaluate(progress->model, o->dataset, 10, &metrics, e));
    o->loss = metrics.loss;
    return strata_model_read_all(progress->model, o->values, e);
}

static strata_status fit_observed(strata_model *model, const strata_dataset *dataset, observer *o, int first_epoch,
                                  strata_history *history) {
    const strata_fit_options opts = {.epochs = 2,
                                     .batch = 10,
                                     .seed = 5,
                                     .first_epoch = first_epoch,
                                     .first_step = strata_model_epoch_steps(model),
                                     .wait_each_step = true,
                                     .on_progress = observe,
                                     .user = o};
    return strata_model_fit(model, dataset, &opts, history, &err);
}

static const trial within = {.json = with_states, .replicas = 3, .batch = 10, .every = 3, .epochs = 2};

static trial with_adam(void) {
    trial t = within;
    t.optimizer = strata_adam_optimizer(0.01);
    return t;
}

/* The hash of a training that is not observed, and the loss of its last epoch. */
static void train_plainly(const strata_dataset *dataset, char out_sha[65], double *out_loss) {
    const trial t = with_adam();
    strata_strategy *strategy = open(&t);
    strata_model *model = compile(&t, strategy, NULL);
    strata_history history = {0};
    observer nothing = {.at = -1};
    OK(fit_observed(model, dataset, &nothing, 0, &history));
    *out_loss = history.epochs[1].loss;
    OK(strata_model_sha256(model, out_sha, &err));
    strata_history_finish(&history);
    strata_strategy_destroy(strategy);
}

Test(local_sgd, an_evaluation_between_averages_is_that_of_the_mean_and_changes_nothing) {
    const trial t = with_adam();
    static observer o;
    static float mean[MOST_VALUES];
    char plain[65], observed[65];
    double ignored;
    strata_metrics metrics;
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    strata_device *device = NULL;
    train_plainly(data.dataset, plain, &ignored);
    strata_strategy *strategy = open(&t);
    strata_model *model = compile(&t, strategy, NULL);
    o = (observer){.at = 2, .dataset = data.dataset};
    OK(fit_observed(model, data.dataset, &o, 0, NULL));
    OK(strata_model_sha256(model, observed, &err));
    cr_expect_str_eq(observed, plain);
    OK(strata_device_open("host", NULL, &device, &err));
    strata_model *alone = compile(&t, NULL, device);
    memcpy(mean, o.values, sizeof mean);
    OK(strata_model_write_all(alone, mean, &err));
    OK(strata_model_evaluate(alone, data.dataset, 10, &metrics, &err));
    cr_expect_float_eq(o.loss, metrics.loss, 1e-6, "%.9g, not %.9g", o.loss, metrics.loss);
    strata_model_destroy(alone);
    strata_device_close(device);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
}

/* Stops after step 4, one step after an average. */
static strata_model *stop_within_a_period(const trial *t, strata_strategy *strategy, const strata_dataset *dataset) {
    strata_model *model = compile(t, strategy, NULL);
    static observer o;
    o = (observer){.at = 4, .stops = true};
    OK(fit_observed(model, dataset, &o, 0, NULL));
    cr_assert_eq(strata_model_epoch_steps(model), 4);
    return model;
}

static void expect_end(strata_model *model, const strata_dataset *dataset, const char *sha, double loss, const char *what) {
    char resumed[65];
    strata_history history = {0};
    observer nothing = {.at = -1};
    OK(fit_observed(model, dataset, &nothing, 0, &history));
    OK(strata_model_sha256(model, resumed, &err));
    cr_expect_str_eq(resumed, sha, "%s", what);
    cr_expect_eq(history.epochs[1].loss, loss, "%s: %.17g, not %.17g", what, history.epochs[1].loss, loss);
    strata_history_finish(&history);
}

Test(local_sgd, a_training_that_was_stopped_within_a_period_goes_on_with_the_same_bits) {
    const trial t = with_adam();
    const char path[] = "local_sgd_checkpoint.safetensors";
    char plain[65];
    double loss;
    int epochs;
    bool equal;
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    train_plainly(data.dataset, plain, &loss);
    strata_strategy *strategies[] = {open(&t), open(&t)};
    strata_model *model = stop_within_a_period(&t, strategies[0], data.dataset);
    OK(strata_model_replicas_equal(model, &equal, &err));
    cr_expect(equal, "a stopped fit has averaged, so that the model can be saved");
    OK(strata_model_save_checkpoint(model, 0, path, &err));
    expect_end(model, data.dataset, plain, loss, "the same model");
    strata_model *loaded = compile(&t, strategies[1], NULL);
    OK(strata_model_load_checkpoint(loaded, path, &epochs, &err));
    OK(strata_model_replicas_equal(loaded, &equal, &err));
    cr_expect_not(equal, "each replica has what it had");
    expect_end(loaded, data.dataset, plain, loss, "a checkpoint");
    for (int i = 0; i < 2; i++) strata_strategy_destroy(strategies[i]);
    remove(path);
    test_classes_free(&data);
}

/* Another number of replicas, and another strategy, continue from the mean. */
Test(local_sgd, a_checkpoint_can_be_continued_by_other_replicas_from_the_mean) {
    trial t = with_adam();
    const char path[] = "local_sgd_mean.safetensors";
    static float want[MOST_VALUES], got[MOST_VALUES];
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    strata_strategy *strategies[] = {open(&t), NULL, NULL};
    strata_model *model = stop_within_a_period(&t, strategies[0], data.dataset);
    OK(strata_model_save_checkpoint(model, 0, path, &err));
    get_all(model, want);
    t.replicas = 2;
    strategies[1] = open(&t);
    t.kind = &strata_strategy_mirrored;
    t.every = 0;
    strategies[2] = open(&t);
    for (int i = 1; i < 3; i++) {
        int epochs;
        bool equal;
        strata_model *loaded = compile(&t, strategies[i], NULL);
        OK(strata_model_load_checkpoint(loaded, path, &epochs, &err));
        OK(strata_model_replicas_equal(loaded, &equal, &err));
        cr_expect(equal);
        get_all(loaded, got);
        expect_close(loaded, got, want, 0, i == 1 ? "two replicas" : "mirrored");
        observer nothing = {.at = -1};
        OK(fit_observed(loaded, data.dataset, &nothing, 0, NULL));
    }
    for (int i = 0; i < 3; i++) strata_strategy_destroy(strategies[i]);
    remove(path);
    test_classes_free(&data);
}

Test(local_sgd, the_loss_of_an_epoch_is_that_of_all_examples) {
    /* With a rate of almost 0 the loss of the epoch is that of an evaluation. */
    const trial t = {.json = dense, .optimizer = strata_sgd_optimizer(1e-12, 0, false), .replicas = 3, .batch = 9, .every = 2};
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    strata_history history = {0};
    strata_metrics metrics;
    strata_strategy *strategy = open(&t);
    strata_model *model = compile(&t, strategy, NULL);
    OK(strata_model_fit(model, data.dataset, &(strata_fit_options){.batch = 9}, &history, &err));
    OK(strata_model_evaluate(model, data.dataset, 10, &metrics, &err));
    cr_expect_float_eq(history.epochs[0].loss, metrics.loss, 1e-6);
    cr_expect_float_eq(history.epochs[0].accuracy, metrics.accuracy, 1e-9);
    cr_expect_eq(history.epochs[0].examples, EXAMPLES);
    strata_history_finish(&history);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
}

/* ---- what is refused ---- */

Test(local_sgd, options_that_need_exchanged_gradients_are_refused) {
    static const struct {
        const char *name;
        strata_strategy_options opts;
        const char *text;
    } rows[] = {{"local_sgd",
                 {.shard_optimizer = STRATA_SHARD_OPTIMIZER_YES},
                 "shard_optimizer is YES, but no gradients are exchanged"},
                {"local_sgd", {.compress = STRATA_DTYPE_BF16}, "compress is given, but no gradients are exchanged"},
                {"local_sgd", {.bytes_per_pack = 1000}, "bytes_per_pack is given, but no gradients are exchanged"},
                {"local_sgd", {.every = -2}, "every is -2; it must be a number of steps from 1 on"},
                {"mirrored", {.every = 8}, "every is 8, but no parameters are averaged after some steps; local_sgd does this"},
                {"parameter_server", {.every = 8}, "every is 8, but no parameters are averaged"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strata_strategy *strategy = NULL;
        strata_strategy_options opts = rows[i].opts;
        opts.devices = (const char *[]){"host"};
        opts.n_devices = 1;
        cr_expect_eq(strata_strategy_create(rows[i].name, &opts, &strategy, &err), STRATA_INVALID);
        cr_expect_not_null(strstr(err.message, rows[i].text), "%s", err.message);
    }
    const strata_strategy_kind both = {.name = "both", .most_devices = -1, .update = {.at = 1}, .average = mean_of_rows};
    strata_strategy *strategy = NULL;
    cr_expect_eq(strata_strategy_of_kind(&both, NULL, &strategy, &err), STRATA_INTERNAL);
}

Test(local_sgd, a_gather_has_a_part_for_each_device) {
    const strata_strategy_kind wrong = {.name = "wrong", .most_devices = -1, .update = {.own = 1}, .average = row_too_many};
    const trial t = {.json = dense, .kind = &wrong, .replicas = 2};
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    strata_strategy *strategy = open(&t);
    strata_model *model = compile(&t, strategy, NULL);
    cr_expect_eq(strata_model_fit(model, data.dataset, NULL, NULL, &err), STRATA_INVALID);
    cr_expect_not_null(strstr(err.message, "4 parts and 2 devices"), "%s", err.message);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
}

Test(local_sgd, a_strategy_says_what_it_is) {
    static const struct {
        const char *name;
        bool spans, averages;
    } rows[] = {{"local_sgd", true, true},
                {"multi_worker_mirrored", true, false},
                {"tpu", true, false},
                {"mirrored", false, false},
                {"central_storage", false, false},
                {"default", false, false},
                {"parameter_server", false, false},
                {"local_sg", false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_eq(strata_strategy_spans_processes(rows[i].name), rows[i].spans, "%s", rows[i].name);
        cr_expect_eq(strata_strategy_averages(rows[i].name), rows[i].averages, "%s", rows[i].name);
    }
}

Test(local_sgd, synchronized_batch_norm_is_refused) {
    const char json[] =
        "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 4}, {\"layer\": \"batch_norm\", \"synchronized\": "
        "true},"
        "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
    const trial t = {.json = json, .replicas = 2};
    test_classes data = test_classes_make(EXAMPLES, FEATURES);
    strata_strategy *strategy = open(&t);
    strata_model *model = compile(&t, strategy, NULL);
    cr_expect_eq(strata_model_fit(model, data.dataset, NULL, NULL, &err), STRATA_UNSUPPORTED);
    cr_expect_not_null(strstr(err.message, "synchronized batch norm"), "%s", err.message);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
}
