/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of a fit under parameter_server. Batches whose gradients are not finite are skipped and reported, and at every
 * pace each example is used once in an epoch. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/strategies/ps_job.h"

TestSuite(ps_data, .init = ps_set_up, .timeout = 300);

/* ---- gradients that are not finite ---- */

enum { WRONG_EXAMPLE = 40, PER_BATCH = 8, N_BATCHES = PS_EXAMPLES / PER_BATCH };
/* The value that make_wrong_data writes, and its position. */
static float wrong_value;
static enum place { TO_INPUT, TO_INPUTS, TO_TARGET } wrong_place;

/* Like make_data, but one example has a value that makes its gradients not finite, in one input, in all inputs or in the
 * target. */
static strata_status make_wrong_data(const char *task, strata_dataset **out_dataset, strata_error *err) {
    strata_array x, y;
    (void)task;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(PS_EXAMPLES, 6), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(PS_EXAMPLES, 1), &y, err));
    float *inputs = x.data, *targets = y.data;
    for (int64_t i = 0; i < PS_EXAMPLES; i++) {
        for (int k = 0; k < 6; k++) inputs[i * 6 + k] = ps_number(i, k);
        targets[i] = ps_number(i, 0) * 2 - ps_number(i, 3);
    }
    for (int k = 0; k < 6 && wrong_place != TO_TARGET; k++)
        if (k == 2 || wrong_place == TO_INPUTS) inputs[WRONG_EXAMPLE * 6 + k] = wrong_value;
    if (wrong_place == TO_TARGET) targets[WRONG_EXAMPLE] = wrong_value;
    return strata_dataset_take_arrays(&x, &y, 1, out_dataset, err);
}

/* Stores the last notice of the chief and the number of skipped batches. */
static strata_status watch_notices(const strata_progress *p, strata_error *err) {
    const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(ps_hooks.strategy);
    ps_result *r = &ps_results[0];
    (void)err;
    if (!p->epoch_end) return STRATA_OK;
    r->n_refused = totals.refused;
    const strata_parameter_server_notice last = strata_strategy_parameter_server_notice(ps_hooks.strategy, totals.notices - 1);
    snprintf(r->notice, sizeof r->notice, "%.199s", last.text);
    return STRATA_OK;
}

/* The absolute value, computed as a square root. At x = 0 the value is finite, but its gradient is not. */
static strata_tensor *apply_root(strata_tensor *x) {
    return strata_sqrt(strata_square(x));
}

static strata_status make_rooted(strata_model **out_model, strata_error *err) {
    static const char json[] =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 8, \"no_bias\": true, \"activation\": \"root\"}, "
        "{\"layer\": \"dense\", \"units\": 1}], \"loss\": \"mse\"}";
    strata_registry *registry = NULL;
    STRATA_TRY(strata_registry_create(&registry, err));
    STRATA_TRY(strata_activation_register(registry, "root", apply_root, err));
    const strata_status status = strata_model_from_json_with(registry, json, sizeof json - 1, "rooted", out_model, err);
    strata_registry_destroy(registry);
    return status;
}

static const ps_result *run_in_packs_with_wrong_data(float value, enum place place, strata_pace pace, int64_t bytes_per_pack) {
    ps_job j = {.make_model = place == TO_INPUTS ? make_rooted : NULL,
                .make_own_data = make_wrong_data,
                .compile.optimizer = {.name = "sgd", .learning_rate = 0.05},
                .fit = {.epochs = 2, .batch = PER_BATCH},
                .servers.pace = pace,
                .bytes_per_pack = bytes_per_pack};
    wrong_value = value;
    wrong_place = place;
    ps_hooks.callback = watch_notices;
    const ps_result *r = ps_run(&j);
    ps_hooks.callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    cr_assert_eq(r->n_refused, 2, "once an epoch, not %lld times", (long long)r->n_refused);
    cr_assert_not_null(strstr(r->notice, "the gradients of worker:"), "%s", r->notice);
    for (int i = 0; i < r->n_values; i++) cr_assert(isfinite(r->values[i]), "value %d is %g", i, (double)r->values[i]);
    return r;
}

static const ps_result *run_with_wrong_data(float value, enum place place, strata_pace pace) {
    return run_in_packs_with_wrong_data(value, place, pace, 0);
}

Test(ps_data, a_batch_with_nan_is_left_out_although_its_first_bucket_was_pushed) {
    const ps_result *r = run_in_packs_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_ASYNCHRONOUS, 4);
    cr_assert_gt(ps_most_buckets(), 1);
    cr_assert_eq(r->n_steps, 2 * (N_BATCHES - 1), "%lld updates", (long long)r->n_steps);
    run_in_packs_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_SYNCHRONOUS, 4);
}

Test(ps_data, a_batch_with_nan_is_left_out_counted_and_told) {
    const ps_result *r = run_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (input "), "%s", r->notice);
    cr_assert_eq(r->train[1].examples, PS_EXAMPLES - PER_BATCH, "the batch is not among the epoch's: %lld",
                 (long long)r->train[1].examples);
    cr_assert_eq(r->n_steps, 2 * (N_BATCHES - 1), "%lld updates", (long long)r->n_steps);
    cr_assert(r->train[1].loss < r->train[0].loss);
}

Test(ps_data, the_message_names_a_target_that_is_not_finite) {
    const ps_result *r = run_with_wrong_data(INFINITY, TO_TARGET, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (target "), "%s", r->notice);
}

Test(ps_data, the_message_names_a_parameter_where_data_and_loss_are_finite) {
    const ps_result *r = run_with_wrong_data(0, TO_INPUTS, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "kernel) and were left out"), "%s", r->notice);
}

Test(ps_data, the_message_names_a_loss_that_overflows) {
    const ps_result *r = run_with_wrong_data(3e38f, TO_TARGET, STRATA_PACE_ASYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (the loss)"), "the data are finite: %s", r->notice);
}

Test(ps_data, a_share_with_nan_is_left_out_of_a_synchronous_step) {
    const ps_result *r = run_with_wrong_data(NAN, TO_INPUT, STRATA_PACE_SYNCHRONOUS);
    cr_assert_not_null(strstr(r->notice, "are not finite (input "), "%s", r->notice);
    cr_assert_eq(r->n_steps, 2 * N_BATCHES, "the other worker's share makes the step: %lld", (long long)r->n_steps);
    cr_assert_eq(r->train[1].examples, PS_EXAMPLES - PER_BATCH / 2);
    cr_assert(r->train[1].loss < r->train[0].loss);
}

/* The loss scale of the only worker after a training in f16. The rate is so small that the gradients stay the same. */
static double scale_after(float value, enum place place, int epochs) {
    const ps_job j = {.make_model = place == TO_INPUTS ? make_rooted : NULL,
                      .make_own_data = make_wrong_data,
                      .compile = {.optimizer = {.name = "sgd", .learning_rate = 1e-7}, .precision = STRATA_DTYPE_F16},
                      .fit = {.epochs = epochs, .batch = PER_BATCH},
                      .n_workers = 1};
    wrong_value = value;
    wrong_place = place;
    ps_hooks.callback = watch_notices;
    const ps_result *r = ps_run(&j);
    ps_hooks.callback = NULL;
    cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
    return ps_results[1].loss_scale;
}

/* No smaller scale would make such a loss finite. */
Test(ps_data, a_loss_that_is_not_finite_leaves_the_loss_scale_as_it_is) {
    const double usual = scale_after(0.5f, TO_INPUT, 3);
    cr_assert_eq(ps_results[0].n_refused, 0);
    const double after_nan = scale_after(NAN, TO_INPUT, 3);
    cr_assert_eq(ps_results[0].n_refused, 3);
    cr_assert_eq(after_nan, usual, "%g, not %g", after_nan, usual);
}

/* The gradient of one batch is infinite in every epoch, which halves the scale from 32768 to 1. */
Test(ps_data, the_loss_scale_never_falls_below_1) {
    const double scale = scale_after(0, TO_INPUTS, 18);
    cr_assert_eq(scale, 1, "%g", scale);
    cr_assert_geq(ps_results[0].n_refused, 3, "%lld", (long long)ps_results[0].n_refused);
}

/* ---- which examples are used, and how often ---- */

static strata_tensor *build_label_sum(strata_tensor *outputs, strata_tensor *labels) {
    (void)outputs;
    return strata_reshape(strata_reduce_sum(labels, NULL, 0, false), STRATA_SHAPE(1));
}

/* A model with a metric that shows which labels were used. */
static strata_status make_counting(strata_model **out_model, strata_error *err) {
    static const char json[] =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 1}], \"loss\": \"mse\", "
        "\"metrics\": [\"label\"]}";
    strata_registry *registry = NULL;
    STRATA_TRY(strata_registry_create(&registry, err));
    STRATA_TRY(strata_metric_register(registry, &(strata_metric_definition){"label", 1, build_label_sum, NULL}, err));
    const strata_status status = strata_model_from_json_with(registry, json, sizeof json - 1, "counting", out_model, err);
    strata_registry_destroy(registry);
    return status;
}

static double mean_label(void) {
    double sum = 0;
    for (int64_t i = 0; i < PS_EXAMPLES; i++) sum += (double)(ps_number(i, 0) * 2 - ps_number(i, 3));
    return sum / PS_EXAMPLES;
}

Test(ps_data, each_example_counts_once_an_epoch_at_every_pace) {
    static const strata_pace paces[] = {STRATA_PACE_SYNCHRONOUS, STRATA_PACE_BOUNDED, STRATA_PACE_ASYNCHRONOUS};
    for (int p = 0; p < 3; p++) {
        ps_job j = {.make_model = make_counting,
                    .compile.optimizer = {.name = "sgd"},
                    .fit = {.epochs = 2, .batch = 7}, /* the last batch has 5 examples */
                    .servers = {.pace = paces[p], .staleness = paces[p] == STRATA_PACE_BOUNDED ? 2 : 0},
                    .n_workers = 3};
        const ps_result *r = ps_run(&j);
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        for (int e = 0; e < 2; e++) {
            cr_assert_eq(r->train[e].examples, PS_EXAMPLES);
            cr_assert_float_eq(r->labels[e], mean_label(), 1e-5, "pace %d, epoch %d: %g, not %g", p, e, r->labels[e],
                               mean_label());
        }
    }
}

/* A pipeline of unknown length. On worker:1 it needs 2 ms for each element. */
static bool is_slow;

static strata_status next_element(void *state, int64_t index, strata_element *out, bool *out_end, strata_error *err) {
    (void)state;
    if (is_slow) usleep(2000);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(6), &out->parts[0], err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), &out->parts[1], err));
    for (int k = 0; k < 6; k++) ((float *)out->parts[0].data)[k] = ps_number(index, k);
    *(float *)out->parts[1].data = ps_number(index, 0) * 2 - ps_number(index, 3);
    *out_end = false;
    return STRATA_OK;
}

static strata_status make_pipeline(const char *task, strata_dataset **out_dataset, strata_error *err) {
    const strata_generator endless = {
        .spec = {.n_parts = 2, .parts = {{STRATA_DTYPE_F32, STRATA_SHAPE(6)}, {STRATA_DTYPE_F32, STRATA_SHAPE(1)}}},
        .size = STRATA_SIZE_UNKNOWN,
        .next = next_element};
    is_slow = task && !strcmp(task, "worker:1");
    return strata_dataset_from_generator(&endless, out_dataset, err);
}

Test(ps_data, a_pipeline_of_unknown_length_trains_so_many_steps_an_epoch) {
    ps_job j = {.make_own_data = make_pipeline,
                .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 2, .batch = 8, .steps_per_epoch = 5},
                .servers = ps_together};
    const ps_result *r = ps_assert_as_alone(&j);
    cr_assert(r->n_steps == 10 && r->train[1].examples == 40);
    j.fit.steps_per_epoch = 0;
    r = ps_run(&j);
    cr_assert(r->status == STRATA_INVALID && strstr(r->message, "give steps_per_epoch"), "%s", r->message);
}

static strata_status watch_spread(const strata_progress *p, strata_error *err) {
    const int64_t spread = strata_strategy_parameter_server_totals(ps_hooks.strategy).spread;
    (void)p, (void)err;
    if (spread > ps_results[0].spread) ps_results[0].spread = spread;
    return STRATA_OK;
}

static strata_status make_endless(const char *task, strata_dataset **out_dataset, strata_error *err) {
    (void)task;
    STRATA_TRY(ps_make_data(PS_EXAMPLES, 0, false, out_dataset, err));
    STRATA_TRY(strata_dataset_shuffle(out_dataset, NULL, err));
    return strata_dataset_repeat(out_dataset, 0, err);
}

/* TensorFlow's programs repeat the data without end, and steps_per_epoch defines the length of an epoch. */
Test(ps_data, data_that_repeat_for_ever_train_so_many_steps_an_epoch) {
    ps_job j = {.make_own_data = make_endless,
                .compile.optimizer = {.name = "adam", .learning_rate = 0.01},
                .fit = {.epochs = 2, .batch = 20, .steps_per_epoch = 7}, /* more than one pass over the data */
                .servers = ps_together};
    const ps_result *r = ps_assert_as_alone(&j);
    cr_assert(r->n_steps == 14 && r->train[1].examples == 140, "%lld", (long long)r->train[1].examples);
    j.servers.pace = STRATA_PACE_ASYNCHRONOUS;
    r = ps_run(&j);
    cr_assert(r->status == STRATA_OK && r->n_steps == 14 && r->train[1].examples == 140, "%s", r->message);
}

/* worker:1 needs 20 ms for a batch, the others much less. */
Test(ps_data, nobody_is_further_ahead_of_a_slow_worker_than_the_bound) {
    static const int64_t bounds[] = {1, 3, 0};
    for (int i = 0; i < 3; i++) {
        ps_job j = {.make_own_data = make_pipeline,
                    .compile.optimizer = {.name = "sgd"},
                    .fit = {.epochs = 1, .batch = 10, .steps_per_epoch = 60, .no_shuffle = true},
                    .servers = {.pace = bounds[i] ? STRATA_PACE_BOUNDED : STRATA_PACE_ASYNCHRONOUS, .staleness = bounds[i]},
                    .n_workers = 3};
        ps_hooks.callback = watch_spread;
        const ps_result *r = ps_run(&j);
        ps_hooks.callback = NULL;
        cr_assert_eq(r->status, STRATA_OK, "%s", r->message);
        cr_assert_eq(r->n_steps, 60);
        if (bounds[i]) /* + 1 for the step that is being finished */
            cr_assert_leq(r->spread, bounds[i] + 1, "%lld steps", (long long)r->spread);
        else
            cr_assert_gt(r->spread, 4, "%lld steps", (long long)r->spread);
    }
}
