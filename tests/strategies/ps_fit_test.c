/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_model_fit under parameter_server with models, options and callbacks of real programs. Synchronous training must
 * give the numbers of one device on the same batches (ps_job.h). */
#include <criterion/criterion.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/strategies/ps_job.h"

TestSuite(ps_fit, .init = ps_set_up, .timeout = 300);

/* ---- models ---- */

/* A batch has fewer words than the table has rows, so its gradient contains only the rows of these words. */
static strata_status make_with_many_words(strata_model **out_model, strata_error *err) {
    return ps_make_with_words(300, out_model, err);
}

Test(ps_fit, tables_with_more_rows_than_a_batch_has_words_train_as_on_one_device) {
    ps_job j = {.make_model = make_with_many_words,
                .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 3, .batch = 16},
                .servers = ps_together};
    ps_assert_as_alone(&j);
    j.servers.partitioner = "fixed:2";
    ps_assert_as_alone(&j);
}

Test(ps_fit, several_inputs_and_outputs_train_as_on_one_device) {
    ps_job j = {.make_model = ps_make_functional,
                .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 3, .batch = 16},
                .validation = 20,
                .servers = ps_together};
    j.servers.partitioner = "fixed:2";
    const ps_result *r = ps_assert_as_alone(&j);
    cr_assert_eq(r->train[2].examples, PS_EXAMPLES);
    cr_assert(ps_last_loss(r) < ps_first_loss(r));
    ps_assert_near(r->validation[2].loss, ps_results[PS_MOST_TASKS].validation[2].loss, "validation loss", 2);
    cr_assert(r->train[2].n >= 4, "%d: loss and accuracy of two outputs, and mae", r->train[2].n);
}

Test(ps_fit, several_inputs_and_outputs_train_at_their_own_pace) {
    ps_job j = {.make_model = ps_make_functional,
                .compile.optimizer = {.name = "adam", .learning_rate = 0.02},
                .fit = {.epochs = 8, .batch = 8}};
    const ps_result *r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_steps, 8 * PS_EXAMPLES / 8);
    cr_assert(ps_last_loss(r) < 0.7 * ps_first_loss(r), "%g after %g", ps_last_loss(r), ps_first_loss(r));
}

/* ---- states ---- */

static strata_status make_normalized(strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_model_create(STRATA_SHAPE(6), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 4});
    strata_model_add_batch_norm(*out_model, (strata_batch_norm_options){.momentum = 0.5});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    return STRATA_OK;
}

enum { EQUAL_EXAMPLES = 17 };

/* All examples are equal, so mean and variance of a batch do not depend on how it is divided among workers. */
static strata_status make_equal_data(const char *task, strata_dataset **out_dataset, strata_error *err) {
    strata_array x, y;
    (void)task;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EQUAL_EXAMPLES, 6), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EQUAL_EXAMPLES, 1), &y, err));
    for (int i = 0; i < EQUAL_EXAMPLES * 6; i++) ((float *)x.data)[i] = (float)(i % 6 + 1);
    for (int i = 0; i < EQUAL_EXAMPLES; i++) ((float *)y.data)[i] = 1;
    return strata_dataset_take_arrays(&x, &y, 1, out_dataset, err);
}

/* The second of two accumulated batches has one example, so only one of the workers has a share of it. */
Test(ps_fit, running_statistics_leave_out_batches_of_which_a_worker_has_no_examples) {
    ps_job j = {
        .make_model = make_normalized,
        .make_own_data = make_equal_data,
        .compile = {.optimizer = {.name = "sgd", .learning_rate = 0.01, .gradient_accumulation_steps = 2}, .loss = "mse"},
        .fit = {.epochs = 2, .batch = EQUAL_EXAMPLES - 1},
        .servers = ps_together};
    ps_assert_as_alone(&j);
}

static strata_status make_unequal_data(const char *task, strata_dataset **out_dataset, strata_error *err) {
    (void)task;
    return ps_make_data(EQUAL_EXAMPLES, 0, false, out_dataset, err);
}

/* Where the model's moving mean begins in ps_result.values. */
static int place_of_moving_mean(void) {
    strata_model *model = NULL;
    strata_error err = {0};
    int place = 0, i = 0;
    strata_device *device = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(make_normalized(&model, &err), STRATA_OK);
    const strata_compile_options opts = {.optimizer = {.name = "sgd"}, .loss = "mse"};
    cr_assert_eq(strata_model_compile(model, device, &opts, &err), STRATA_OK, "%s", err.message);
    for (; !strstr(strata_model_parameter(model, i).name, "moving_mean"); i++)
        place += (int)strata_shape_elements(strata_model_parameter(model, i).shape);
    strata_model_destroy(model);
    strata_device_close(device);
    return place;
}

/* The shares of the first batch have 8 examples each, so the mean of their means is the batch's. The second batch has one. */
Test(ps_fit, each_accumulated_batch_moves_the_running_mean_whatever_the_number_of_its_shares) {
    ps_job j = {.make_model = make_normalized,
                .make_own_data = make_unequal_data,
                .compile = {.optimizer = {.name = "sgd", .learning_rate = STRATA_ZERO, .gradient_accumulation_steps = 2},
                            .loss = "mse"},
                .fit = {.epochs = 1, .batch = EQUAL_EXAMPLES - 1},
                .servers = ps_together};
    const int place = place_of_moving_mean();
    const ps_result *alone = ps_run_alone(&j), *r = ps_run(&j);
    cr_assert(!alone->status && !r->status, "%s%s", alone->message, r->message);
    for (int i = place; i < place + 4; i++) ps_assert_near(r->values[i], alone->values[i], "moving mean", i);
}

/* ---- buckets ---- */

static void assert_buckets(void) {
    cr_assert_gt(ps_most_buckets(), 1, "%d", ps_most_buckets());
}

Test(ps_fit, gradients_in_buckets_train_as_on_one_device) {
    ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 2, .batch = 16},
                .servers = ps_together,
                .bytes_per_pack = 4};
    ps_assert_as_alone(&j);
    assert_buckets();
    j.servers.partitioner = "fixed:2";
    ps_assert_as_alone(&j);
    j.compile.optimizer.gradient_accumulation_steps = 2;
    ps_assert_as_alone(&j);
}

Test(ps_fit, buckets_reach_the_copies_of_shards) {
    ps_job j = {.compile.optimizer = {.name = "sgd", .momentum = 0.9, .learning_rate = 0.01},
                .fit = {.epochs = 2, .batch = 16},
                .servers = ps_together,
                .bytes_per_pack = 4};
    j.servers.replicas = 1;
    ps_assert_as_alone(&j);
    assert_buckets();
}

Test(ps_fit, buckets_travel_as_bf16_at_each_workers_pace) {
    ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.02},
                .fit = {.epochs = 6, .batch = 8},
                .bytes_per_pack = 4,
                .compress = STRATA_DTYPE_BF16};
    const ps_result *r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_steps, 6 * PS_EXAMPLES / 8);
    cr_assert(ps_last_loss(r) < 0.9 * ps_first_loss(r), "%g after %g", ps_last_loss(r), ps_first_loss(r));
    assert_buckets();
}

/* A part is a range of a server's gradients; shards of an odd number of bf16 are followed by padding. */
Test(ps_fit, buckets_and_one_push_give_the_same_bits) {
    static float whole[PS_MOST_VALUES];
    ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 2, .batch = 16},
                .servers = ps_together,
                .compress = STRATA_DTYPE_BF16};
    j.servers.partitioner = "fixed:3";
    const ps_result *r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    const int n = r->n_values;
    memcpy(whole, r->values, (size_t)n * sizeof *whole);
    j.bytes_per_pack = 4;
    r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    assert_buckets();
    cr_assert_eq(r->n_values, n);
    cr_assert_arr_eq(r->values, whole, (size_t)n * sizeof *whole);
}

enum { ROWS = 256, UNITS = 8 };

/* Closes all connections of this process a few times. */
static void *cut_connections(void *unused) {
    for (int n = 0; n < 150; n++) {
        nanosleep(&(struct timespec){.tv_nsec = (2 + n % 3) * 1000 * 1000}, NULL);
        for (int fd = 3; fd < 100; fd++) {
            struct sockaddr_in peer;
            socklen_t bytes = sizeof peer;
            if (!getpeername(fd, (struct sockaddr *)&peer, &bytes) && peer.sin_family == AF_INET) shutdown(fd, SHUT_RDWR);
        }
    }
    return unused;
}

/* Two outputs, so that there are two buckets. */
static strata_status make_two_tables(strata_model **out_model, strata_error *err) {
    static const char *const names[] = {"a", "b"};
    STRATA_TRY(strata_model_create_functional(out_model, err));
    const strata_value *x = strata_model_input(*out_model, "x", STRATA_SHAPE(ROWS), STRATA_DTYPE_F32);
    for (int i = 0; i < 2; i++) {
        strata_model_add_dense(
            *out_model,
            (strata_dense_options){.units = UNITS, .no_bias = true, .kernel_initializer = "zeros", .name = names[i]});
        strata_model_output(*out_model, strata_layer_call(*out_model, NULL, &x, 1), (strata_output_options){.loss = "mse"});
    }
    return STRATA_OK;
}

/* Example i selects row i of the tables, and its targets are i + 1. So each row is updated by one batch alone. */
static strata_status make_rows(const char *task, strata_dataset **out_dataset, strata_error *err) {
    strata_array x, a, b;
    pthread_t cutter;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, ROWS), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, UNITS), &a, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, UNITS), &b, err));
    for (int i = 0; i < ROWS * ROWS; i++) ((float *)x.data)[i] = i / ROWS == i % ROWS;
    for (int i = 0; i < ROWS * UNITS; i++) ((float *)a.data)[i] = ((float *)b.data)[i] = (float)(1 + i / UNITS);
    if (task && !strcmp(task, "worker:0")) pthread_create(&cutter, NULL, cut_connections, NULL);
    const strata_data_column inputs[] = {{.name = "x", .array = &x}},
                             targets[] = {{.name = "a", .array = &a}, {.name = "b", .array = &b}};
    return strata_dataset_from_columns(inputs, 1, targets, 2, out_dataset, err);
}

/* A push is sent again on the next connection. Meanwhile the gradients of the next batch must not replace those in it. */
Test(ps_fit, a_lost_connection_does_not_mix_gradients_of_two_batches) {
    ps_job j = {.make_model = make_two_tables,
                .make_own_data = make_rows,
                .compile.optimizer = {.name = "sgd", .learning_rate = UNITS / 2., .clip_global_norm = 1e30},
                .fit = {.epochs = 1, .batch = 1},
                .servers.old_gradients = STRATA_OLD_GRADIENTS_PLAIN,
                .n_workers = 1,
                .n_servers = 1,
                .bytes_per_pack = 4};
    for (int run = 0; run < 4; run++) {
        const ps_result *r = ps_run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_values, 2 * ROWS * UNITS);
        assert_buckets();
        for (int i = 0; i < r->n_values; i++) ps_assert_near(r->values[i], 1 + i / UNITS % ROWS, "value", i);
    }
}

/* ---- clipping ---- */

Test(ps_fit, gradients_of_synchronous_steps_are_clipped_as_on_one_device) {
    static const strata_optimizer optimizers[] = {{.name = "sgd", .learning_rate = 0.3, .clip_global_norm = 0.05},
                                                  {.name = "sgd", .learning_rate = 0.3, .clip_norm = 0.03},
                                                  {.name = "sgd", .learning_rate = 0.3, .clip_value = 0.01}};
    ps_job plain = {.compile.optimizer = {.name = "sgd", .learning_rate = 0.3}, .fit = {.epochs = 1, .batch = 16}};
    const float unclipped = ps_run_alone(&plain)->values[0];
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        ps_job j = {.compile.optimizer = optimizers[o], .fit = {.epochs = 2, .batch = 16}, .servers = ps_together};
        if (!optimizers[o].clip_norm) j.servers.partitioner = "fixed:2";
        ps_assert_as_alone(&j);
        j.fit.epochs = 1;
        cr_assert(fabsf(ps_run_alone(&j)->values[0] - unclipped) > 1e-4f, "nothing was clipped");
    }
}

Test(ps_fit, the_norm_of_all_gradients_includes_rows_and_goes_to_copies) {
    ps_job j = {.make_model = ps_make_functional,
                .compile.optimizer = {.name = "sgd", .learning_rate = 0.3, .clip_global_norm = 0.1},
                .fit = {.epochs = 2, .batch = 16},
                .servers = {.pace = STRATA_PACE_SYNCHRONOUS, .replicas = 1, .partitioner = "fixed:3"},
                .n_workers = 3,
                .n_servers = 3};
    ps_assert_as_alone(&j);
}

/* A single worker that does not pull ahead must make the updates of one device. */
Test(ps_fit, at_its_own_pace_each_workers_gradients_are_clipped) {
    ps_job j = {
        .compile = {.optimizer = {.name = "sgd", .learning_rate = 0.3, .clip_global_norm = 0.05}, .gradient_norm = true},
        .fit = {.epochs = 2, .batch = 16, .wait_each_step = true},
        .n_workers = 1};
    const ps_result *r = ps_assert_as_alone(&j);
    for (int i = 0; i < r->callbacks; i++) ps_assert_near(r->norms[i], ps_results[PS_MOST_TASKS].norms[i], "norm", i);
    cr_assert_gt(r->norms[0], 0.05);
}

/* ---- layers that are computed again ---- */

Test(ps_fit, layers_may_be_computed_again) {
    ps_job j = {.make_model = ps_make_functional,
                .compile = {.optimizer = {.name = "sgd", .learning_rate = 0.3}, .recompute = "embedding,dense,shared"},
                .fit = {.epochs = 2, .batch = 16},
                .servers = ps_together};
    ps_assert_as_alone(&j);
    j.compile.recompute = "auto:1K";
    ps_assert_as_alone(&j);
}

/* ---- learning rates ---- */

static strata_status halve_at_epochs(const strata_progress *p, strata_error *err) {
    if (!p->epoch_end) return STRATA_OK;
    return strata_model_set_learning_rate(p->model, strata_model_learning_rate(p->model) / 2, err);
}

static strata_status change_at_steps(const strata_progress *p, strata_error *err) {
    return p->epoch_end ? STRATA_OK : strata_model_set_learning_rate(p->model, 0.02 / (double)(1 + p->total_step % 4), err);
}

/* Like Keras' ReduceLROnPlateau with patience 0: divides the rate by 10 when the loss has not fallen by 0.5. */
static strata_status reduce_on_plateau(const strata_progress *p, strata_error *err) {
    static double best = INFINITY;
    if (!p->epoch_end) return STRATA_OK;
    const bool better = p->validation.loss < best - 0.5;
    if (better) best = p->validation.loss;
    return better ? STRATA_OK : strata_model_set_learning_rate(p->model, 0.1 * strata_model_learning_rate(p->model), err);
}

Test(ps_fit, rates_that_callbacks_set_reach_the_servers) {
    static strata_status (*const callbacks[])(const strata_progress *, strata_error *) = {halve_at_epochs, reduce_on_plateau,
                                                                                          change_at_steps};
    for (int i = 0; i < 3; i++) {
        ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.02},
                    .fit = {.epochs = 4, .batch = 16, .wait_each_step = i == 2},
                    .validation = 20,
                    .servers = ps_together};
        ps_hooks.callback = callbacks[i];
        const ps_result *r = ps_assert_as_alone(&j);
        for (int k = 0; k < r->callbacks; k++)
            ps_assert_near(r->rates[k], ps_results[PS_MOST_TASKS].rates[k], "the reported rate of step", k);
        cr_assert(r->rates[r->callbacks - 1] < 0.019, "it was never changed");
    }
    ps_hooks.callback = NULL;
}

Test(ps_fit, schedules_count_the_servers_updates) {
    ps_job j = {.compile.optimizer = {.name = "sgd", .learning_rate = 0.2, .schedule = {.name = "cosine", .steps = 10}},
                .fit = {.epochs = 2, .batch = 16},
                .servers = ps_together};
    ps_assert_as_alone(&j);
}

static strata_status set_within_an_epoch(const strata_progress *p, strata_error *err) {
    return p->epoch_end ? STRATA_OK : strata_model_set_learning_rate(p->model, 0, err);
}

Test(ps_fit, a_rate_set_within_an_epoch_is_that_of_later_batches) {
    ps_job j = {
        .compile.optimizer = {.name = "sgd", .learning_rate = 0.2}, .fit = {.epochs = 3, .batch = 8}, .servers = ps_together};
    ps_hooks.callback = set_within_an_epoch;
    const ps_result *r = ps_run(&j);
    cr_assert_eq(r->status, STRATA_INVALID, "workers are at the next step already");
    cr_assert(strstr(r->message, "wait_each_step"), "%s", r->message);
    j.servers.pace = STRATA_PACE_ASYNCHRONOUS;
    r = ps_run(&j);
    ps_hooks.callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->rates[r->callbacks - 1], 0);
    /* The rate is 0, so the losses of the last epochs are equal. */
    const double second = r->train[1].loss, third = r->train[2].loss;
    ps_assert_near(third, second, "the loss of an epoch without learning", 2);
}

/* ---- functions that programs register ---- */

static strata_tensor *build_wave(const void *options, strata_layer_context *context, strata_tensor *const *x, int n) {
    strata_graph *graph = strata_tensor_graph(x[n - 1]);
    strata_tensor *gain =
        strata_layer_parameter(context, graph, "gain", STRATA_SHAPE(strata_tensor_shape(x[0]).dims[1]), "ones", 0, 0);
    (void)options;
    return strata_mul(strata_sin(x[0]), gain);
}

/* Labels may have the shape (B), while outputs have (B, 1). */
static strata_tensor *error_of(strata_tensor *outputs, strata_tensor *labels) {
    return strata_sub(outputs, strata_reshape(labels, strata_tensor_shape(outputs)));
}

static strata_tensor *build_quartic(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    const int axis = 1;
    (void)opts;
    return strata_reduce_sum(strata_square(strata_square(error_of(outputs, labels))), &axis, 1, false);
}

/* The last batch of the validation data has REST examples, a size that does not occur in training. */
enum { REST = 5 };

static strata_tensor *build_bias(strata_tensor *outputs, strata_tensor *labels) {
    ps_hooks.n_built++;
    if (ps_hooks.ends_at_rest && strata_tensor_shape(outputs).dims[0] == REST && ps_results[PS_MOST_TASKS].epoch_ends++ == 0)
        raise(SIGKILL);
    return strata_reshape(strata_reduce_sum(error_of(outputs, labels), NULL, 0, false), STRATA_SHAPE(1));
}

static strata_tensor *apply_cube(strata_tensor *x) {
    return strata_mul(x, strata_square(x));
}

static strata_status make_own(strata_model **out_model, strata_error *err) {
    static const char json[] =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 8, \"activation\": \"cube\"}, "
        "{\"layer\": \"wave\"}, {\"layer\": \"dense\", \"units\": 1}], \"loss\": \"quartic\", "
        "\"metrics\": [\"bias\"]}";
    strata_registry *registry = NULL;
    STRATA_TRY(strata_registry_create(&registry, err));
    STRATA_TRY(strata_layer_register(registry, &(strata_layer_definition){.name = "wave", .build = build_wave}, err));
    STRATA_TRY(strata_loss_register(registry, &(strata_loss_definition){.name = "quartic", .build = build_quartic}, err));
    STRATA_TRY(strata_metric_register(registry, &(strata_metric_definition){"bias", 1, build_bias, NULL}, err));
    STRATA_TRY(strata_activation_register(registry, "cube", apply_cube, err));
    const strata_status status = strata_model_from_json_with(registry, json, sizeof json - 1, "own", out_model, err);
    strata_registry_destroy(registry);
    return status;
}

Test(ps_fit, layers_losses_metrics_and_activations_of_ones_own_train) {
    ps_job j = {.make_model = make_own,
                .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 2, .batch = 16},
                .validation = 33,
                .servers = ps_together};
    const ps_result *r = ps_assert_as_alone(&j);
    ps_assert_near(r->more[1], ps_results[PS_MOST_TASKS].more[1], "the own metric of the validation data", 1);
    cr_assert_neq(r->more[1], 0);
}

/* ---- epochs: steps, callbacks, validation ---- */

Test(ps_fit, workers_evaluate_each_validation_example_once) {
    for (int i = 0; i < 2; i++) {
        ps_job j = {.make_model = make_own,
                    .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                    .fit = {.epochs = 2, .batch = 16},
                    .validation = 3 * 16 + REST,
                    .servers = ps_together,
                    .n_workers = 3};
        ps_hooks.ends_at_rest = false;
        const ps_result *alone = ps_run_alone(&j);
        const double losses[] = {alone->validation[0].loss, alone->validation[1].loss}, own = alone->more[1];
        ps_results[PS_MOST_TASKS].epoch_ends = 0;
        ps_hooks.ends_at_rest = i == 1; /* a worker is killed while it evaluates this batch, so another one must evaluate it */
        const ps_result *r = ps_run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_built, 0, "the chief has evaluated itself");
        cr_assert_eq(r->epoch_ends, 2);
        for (int e = 0; e < 2; e++) {
            cr_assert_eq(r->validation[e].examples, 3 * 16 + REST);
            ps_assert_near(r->validation[e].loss, losses[e], "validation loss", e);
        }
        ps_assert_near(r->more[1], own, "the own metric", 1);
        if (i == 1) cr_assert_geq(ps_results[PS_MOST_TASKS].epoch_ends, 2, "no worker was killed");
    }
    ps_hooks.ends_at_rest = false;
}

Test(ps_fit, validation_decides_as_on_one_device) {
    ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.02},
                .fit = {.epochs = 40, .batch = 16, .patience = 2, .min_delta = 0.2, .restore_best = true},
                .validation = 20,
                .servers = ps_together};
    const ps_result *r = ps_assert_as_alone(&j), *alone = &ps_results[PS_MOST_TASKS];
    cr_assert(r->n_epochs < 40 && r->n_epochs == alone->n_epochs && r->best_epoch == alone->best_epoch,
              "%d epochs, the best %d; alone %d, the best %d", r->n_epochs, r->best_epoch, alone->n_epochs, alone->best_epoch);
}

Test(ps_fit, an_epoch_has_its_steps_and_calls_back_after_each) {
    static const strata_pace paces[] = {STRATA_PACE_SYNCHRONOUS, STRATA_PACE_BOUNDED, STRATA_PACE_ASYNCHRONOUS};
    for (int p = 0; p < 3; p++) {
        ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                    .fit = {.epochs = 3, .batch = 16, .steps_per_epoch = 4},
                    .servers = {.pace = paces[p], .staleness = paces[p] == STRATA_PACE_BOUNDED ? 2 : 0}};
        const ps_result *r = p ? ps_run(&j) : ps_assert_as_alone(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_steps, 3 * 4);
        cr_assert_eq(r->callbacks, 3 * 4);
        cr_assert_eq(r->epoch_ends, 3);
        for (int e = 0; e < 3; e++) cr_assert_eq(r->train[e].examples, 4 * 16);
    }
}

static strata_status stop_in_second_epoch(const strata_progress *p, strata_error *err) {
    (void)err;
    if (p->epoch == 1) *p->stop = true;
    return STRATA_OK;
}

static strata_status fail_in_second_epoch(const strata_progress *p, strata_error *err) {
    return p->epoch == 1 && p->epoch_end ? strata_fail(err, STRATA_INTERRUPTED, "the callback has had enough") : STRATA_OK;
}

Test(ps_fit, callbacks_end_the_training_of_all_tasks) {
    ps_job j = {.compile.optimizer = {.name = "adam"}, .fit = {.epochs = 9, .batch = 16}};
    ps_hooks.callback = stop_in_second_epoch;
    const ps_result *r = ps_run(&j);
    cr_assert(r->status == STRATA_OK && r->n_epochs == 2 && r->n_steps == 12, "%s: %d", r->message, r->n_epochs);
    ps_hooks.callback = fail_in_second_epoch;
    r = ps_run(&j); /* all tasks must end with the callback's status */
    ps_hooks.callback = NULL;
    cr_assert(r->status == STRATA_INTERRUPTED && strstr(r->message, "had enough"), "%s", r->message);
}

Test(ps_fit, steps_per_execution_changes_only_how_often_the_callback_is_called) {
    static const int64_t together_[] = {1, 2, 7};
    static float first[PS_MOST_VALUES];
    for (int i = 0; i < 3; i++) {
        ps_job j = {.compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                    .fit = {.epochs = 2, .batch = 8, .steps_per_execution = together_[i]},
                    .servers = ps_together};
        const ps_result *r = ps_run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_steps, 2 * 12);
        cr_assert_eq(r->callbacks, 2 * (12 / together_[i]));
        if (i)
            cr_assert_arr_eq(r->values, first, (size_t)r->n_values * sizeof(float));
        else
            memcpy(first, r->values, sizeof first);
    }
}
