/* SPDX-License-Identifier: Apache-2.0
 *
 * Every optimizer, clipping and learning rate schedule compared with Keras (LARS, and LAMB with decay, with their papers),
 * on the host and on devices; and errors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/optimizer/optimizer.h"
#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"
#include "tests/support/golden.h"
#include "tests/support/names.h"

static strata_error err;

/* ---- optimizers: two parameters, of 15 and 4 elements, each of which is a chunk of the flat parameters ---- */

enum { STEPS = 4, SIZE = 2 * STRATA_SEGMENT_CHUNK, MAX_VARIABLES = 1 + STRATA_MAX_OPTIMIZER_SLOTS };
static const int64_t sizes[] = {15, 4};
static const int32_t ends[] = {1, 2}, owner[] = {0, 1};

/* Copies both parameters of a golden array to the flat array. */
static void take_parts(const strata_golden *golden, const char *format, int t, float *flat) {
    char name[64];
    memset(flat, 0, SIZE * sizeof *flat);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, format, i, t);
        memcpy(flat + i * STRATA_SEGMENT_CHUNK, strata_golden_get(golden, name)->data, (size_t)sizes[i] * sizeof *flat);
    }
}

/* Computes the parameters after STEPS updates with the reference functions of the ops. */
static void train(const strata_golden *golden, strata_optimizer settings, float *out_flat) {
    const strata_optimizer_kind *kind = NULL;
    const strata_segments segments = {.n = 2, .n_chunks = 2, .ends = ends, .owner = owner};
    strata_variable variables[MAX_VARIABLES];
    strata_array values[MAX_VARIABLES], gradients = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(SIZE), 0),
                                        words = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), 0);
    strata_graph *graph = NULL;
    OK(strata_optimizer_check(&settings, &kind, &err));
    OK(strata_graph_create(&graph, &err));
    strata_update update = {.segments = &segments};
    strata_test_feed feeds[MAX_VARIABLES + 2];
    int n_slots = strata_optimizer_n_slots(kind, &settings), n_feeds = 0;
    for (int i = 0; i <= n_slots; i++) {
        variables[i] = strata_test_variable("v", STRATA_DTYPE_F32, STRATA_SHAPE(SIZE));
        values[i] =
            strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(SIZE), i && kind->slot_begins ? kind->slot_begins(&settings) : 0);
        *(i ? &update.slots[i - 1] : &update.parameters) = strata_variable_read(graph, &variables[i]);
        feeds[n_feeds++] = (strata_test_feed){&variables[i], &values[i]};
    }
    take_parts(golden, "parameter_%d", 0, values[0].data);
    strata_tensor *given = strata_input(graph, "gradients", STRATA_DTYPE_F32, STRATA_SHAPE(SIZE)), *square = NULL;
    update.step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    update.gradients = given;
    strata_clip_gradients(&settings, &update.gradients, &segments, 1, &square);
    strata_tensor *updated = kind->build(&settings, &update);
    OK(strata_graph_check(graph, &err));
    feeds[n_feeds++] = (strata_test_feed){given, &gradients};
    feeds[n_feeds++] = (strata_test_feed){update.step, &words};
    for (int t = 0; t < STEPS; t++) {
        strata_array result;
        take_parts(golden, "gradient_%d_%d", t, gradients.data);
        strata_optimizer_step(kind, &settings, t + 1, words.data);
        OK(strata_test_eval(&updated, 1, feeds, n_feeds, &result, &err));
        strata_array_finish(&result);
    }
    memcpy(out_flat, values[0].data, SIZE * sizeof *out_flat);
    for (int i = 0; i <= n_slots; i++) strata_array_finish(&values[i]);
    strata_array_finish(&gradients);
    strata_array_finish(&words);
    strata_graph_destroy(graph);
}

static const struct {
    const char *golden;
    strata_optimizer settings;
} rows[] = {
    {"sgd", {.name = "sgd", .learning_rate = 0.05}},
    {"momentum", {.name = "sgd", .learning_rate = 0.05, .momentum = 0.8}},
    {"nesterov", {.name = "sgd", .learning_rate = 0.05, .momentum = 0.8, .nesterov = true}},
    {"adam", {.name = "adam", .learning_rate = 0.02, .beta1 = 0.85, .beta2 = 0.99, .epsilon = 1e-5}},
    {"adamw", {.name = "adamw", .learning_rate = 0.02, .weight_decay = 0.1}},
    {"rmsprop", {.name = "rmsprop", .learning_rate = 0.02}},
    {"rmsprop_momentum", {.name = "rmsprop", .learning_rate = 0.02, .rho = 0.8, .momentum = 0.7}},
    {"rmsprop_centered", {.name = "rmsprop", .learning_rate = 0.02, .centered = true}},
    {"rmsprop_both", {.name = "rmsprop", .learning_rate = 0.02, .momentum = 0.7, .centered = true, .epsilon = 1e-4}},
    {"adagrad", {.name = "adagrad", .learning_rate = 0.05}},
    {"lamb", {.name = "lamb", .learning_rate = 0.02}},
    {"lamb_decay", {.name = "lamb", .learning_rate = 0.02, .weight_decay = 0.1}},
    {"lars", {.name = "lars", .learning_rate = 0.5, .momentum = 0.9, .trust = 0.01, .weight_decay = 0.1}},
    {"clip_value", {.name = "sgd", .learning_rate = 0.05, .clip_value = 0.5}},
    {"clip_norm", {.name = "sgd", .learning_rate = 0.05, .clip_norm = 1.5}},
    {"clip_global_norm", {.name = "sgd", .learning_rate = 0.05, .clip_global_norm = 1.5}},
    {"cosine", {.name = "sgd", .learning_rate = 0.5, .schedule = {.name = "cosine", .steps = 3, .end = 0.1}}},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

Test(optimizers, four_steps_of_each_equal_keras) {
    strata_golden *golden = strata_golden_load("optimizers");
    for (int r = 0; r < N_ROWS; r++) {
        float flat[SIZE], want[SIZE];
        char format[64];
        snprintf(format, sizeof format, "%s_%%d", rows[r].golden);
        train(golden, rows[r].settings, flat);
        take_parts(golden, format, 0, want);
        for (int i = 0; i < SIZE; i++)
            cr_assert_float_eq((double)flat[i], (double)want[i], 2e-6, "%s: element %d is %.9g, not %.9g", rows[r].golden, i,
                               (double)flat[i], (double)want[i]);
    }
    strata_golden_destroy(golden);
}

/* ---- defaults ---- */

/* The defaults of Keras 3.15's constructors. Keras has no LARS; its defaults are those of optimizers.h. */
Test(optimizers, defaults_are_those_of_keras) {
    static const strata_optimizer defaults[] = {
        {.name = "sgd", .learning_rate = 0.01},
        {.name = "adam", .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7},
        {.name = "adamw", .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7, .weight_decay = 0.004},
        {.name = "rmsprop", .learning_rate = 0.001, .rho = 0.9, .epsilon = 1e-7},
        {.name = "adagrad", .learning_rate = 0.001, .accumulator = 0.1, .epsilon = 1e-7},
        {.name = "lamb", .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7},
        {.name = "lars", .learning_rate = 0.01, .momentum = 0.9, .trust = 0.001, .weight_decay = 1e-4},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        strata_optimizer got = {.name = defaults[i].name}, want = defaults[i];
        const strata_optimizer_kind *kind;
        OK(strata_optimizer_check(&got, &kind, &err));
        const double pairs[][2] = {{got.learning_rate, want.learning_rate},
                                   {got.momentum, want.momentum},
                                   {got.beta1, want.beta1},
                                   {got.beta2, want.beta2},
                                   {got.epsilon, want.epsilon},
                                   {got.rho, want.rho},
                                   {got.accumulator, want.accumulator},
                                   {got.weight_decay, want.weight_decay},
                                   {got.trust, want.trust}};
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            cr_expect_eq(pairs[k][0], pairs[k][1], "%s: setting %zu is %g, not %g", want.name, k, pairs[k][0], pairs[k][1]);
    }
}

/* Each optimizer with all its settings STRATA_ZERO keeps them, however often they are checked. */
Test(optimizers, a_setting_of_zero_is_zero) {
    for (int i = 0; i < TEST_OPTIMIZERS; i++) {
        strata_optimizer zero = {.name = test_optimizers[i],
                                 .learning_rate = STRATA_ZERO,
                                 .momentum = STRATA_ZERO,
                                 .beta1 = STRATA_ZERO,
                                 .beta2 = STRATA_ZERO,
                                 .epsilon = STRATA_ZERO,
                                 .rho = STRATA_ZERO,
                                 .accumulator = STRATA_ZERO,
                                 .weight_decay = STRATA_ZERO,
                                 .trust = STRATA_ZERO};
        const strata_optimizer_kind *kind;
        for (int again = 0; again < 2; again++) OK(strata_optimizer_check(&zero, &kind, &err));
        const double values[] = {zero.learning_rate, zero.momentum,    zero.beta1,        zero.beta2, zero.epsilon,
                                 zero.rho,           zero.accumulator, zero.weight_decay, zero.trust};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            cr_expect_eq(values[k], 0, "%s: setting %zu is %g", test_optimizers[i], k, values[k]);
        cr_expect_not(signbit(strata_schedule_rate(&zero.schedule, zero.learning_rate, 3)));
    }
}

/* ---- schedules ---- */

Test(optimizers, learning_rates_equal_keras) {
    static const struct {
        const char *golden;
        double rate;
        strata_schedule schedule;
    } rates[] = {
        {"step", 0.1, {.name = "step", .boundaries = {2, {5, 11}}, .values = {2, {0.05, 0.01}}}},
        {"exponential", 0.1, {.name = "exponential", .steps = 7, .factor = 0.5}},
        {"staircase", 0.1, {.name = "exponential", .steps = 7, .factor = 0.5, .staircase = true}},
        {"cosine", 0.1, {.name = "cosine", .steps = 20}},
        {"cosine_end", 0.1, {.name = "cosine", .steps = 20, .end = 0.2}},
        {"cosine_warmup", 0.1, {.name = "cosine", .steps = 15, .end = 0.05, .warmup_steps = 6, .warmup_from = 0.01}},
        {"polynomial", 0.1, {.name = "polynomial", .steps = 15, .end = 0.001}},
        {"polynomial_power", 0.1, {.name = "polynomial", .steps = 15, .end = 0.001, .power = 2.5}},
        {"polynomial_cycle", 0.1, {.name = "polynomial", .steps = 8, .end = 0.001, .power = 2, .cycle = true}},
    };
    strata_golden *golden = strata_golden_load("schedules");
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        strata_schedule schedule = rates[i].schedule;
        const strata_array *want = strata_golden_get(golden, rates[i].golden);
        OK(strata_schedule_check(&schedule, &err));
        for (int64_t t = 0; t < want->shape.dims[0]; t++) {
            double rate = strata_schedule_rate(&schedule, rates[i].rate, t), golden_rate = (double)((float *)want->data)[t];
            cr_assert_float_eq(rate, golden_rate, 2e-7 * rates[i].rate + 2e-6 * golden_rate, "%s at %lld: %.9g, not %.9g",
                               rates[i].golden, (long long)t, rate, golden_rate);
        }
    }
    strata_golden_destroy(golden);
}

Test(optimizers, rates_scale_with_replicas_and_warm_up_in_front_of_any) {
    strata_schedule s = {
        .name = "exponential", .steps = 1, .factor = 0.5, .warmup_steps = 4, .warmup_from = 0.2, .replicas = 8};
    OK(strata_schedule_check(&s, &err));
    const double want[] = {0.2, 0.4, 0.6, 0.8, 1, 0.5, 0.25};
    for (int t = 0; t < 7; t++) cr_assert_float_eq(strata_schedule_rate(&s, 1, t), 8 * want[t], 1e-12);
    cr_assert_eq(strata_schedule_rate(&(strata_schedule){.name = NULL}, 0.3, 1000), 0.3);
}

Test(optimizers, what_is_wrong_says_so) {
    static const struct {
        const char *text;
        strata_optimizer settings;
    } wrong[] = {
        {"no optimizer \"lion\"; there are: sgd, adam, adamw, rmsprop, adagrad, lars, lamb", {.name = "lion"}},
        {"rmsprop: rho is 1", {.name = "rmsprop", .rho = 1}},
        {"rmsprop: momentum is 1", {.name = "rmsprop", .momentum = 1}},
        {"adagrad: accumulator is -1", {.name = "adagrad", .accumulator = -1}},
        {"adamw: weight_decay is -1", {.name = "adamw", .weight_decay = -1}},
        {"lars: trust is -1", {.name = "lars", .trust = -1}},
        {"lamb: beta1 is 1", {.name = "lamb", .beta1 = 1}},
        {"clip_norm is -1", {.name = "sgd", .clip_norm = -1}},
        {"clip_value is nan", {.name = "sgd", .clip_value = NAN}},
        {"at most one of clip_value", {.name = "adam", .clip_norm = 1, .clip_value = 1}},
        {"no schedule \"linear\"; there are: constant, step,", {.name = "sgd", .schedule = {.name = "linear"}}},
        {"cosine: steps is 0", {.name = "sgd", .schedule = {.name = "cosine"}}},
        {"factor is 0", {.name = "sgd", .schedule = {.name = "exponential", .steps = 3}}},
        {"0 boundaries and 0 values", {.name = "sgd", .schedule = {.name = "step"}}},
        {"2 boundaries and 1 values",
         {.name = "sgd", .schedule = {.name = "step", .boundaries = {2, {1, 2}}, .values = {1, {1}}}}},
        {"boundary 1 comes after 3",
         {.name = "sgd", .schedule = {.name = "step", .boundaries = {2, {3, 1}}, .values = {2, {1, 2}}}}},
        {"warmup_steps is -1", {.name = "sgd", .schedule = {.warmup_steps = -1}}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_optimizer settings = wrong[i].settings;
        const strata_optimizer_kind *kind = NULL;
        FAILS(strata_optimizer_check(&settings, &kind, &err), STRATA_INVALID, wrong[i].text);
    }
}

/* Each setting that an optimizer uses, below 0, without end and without a value. */
Test(optimizers, no_setting_of_any_is_taken_out_of_its_range) {
    static const struct {
        const char *optimizer, *settings;
    } uses[] = {{"sgd", "learning_rate momentum"},
                {"adam", "learning_rate beta1 beta2 epsilon"},
                {"adamw", "learning_rate beta1 beta2 epsilon weight_decay"},
                {"rmsprop", "learning_rate rho momentum epsilon"},
                {"adagrad", "learning_rate accumulator epsilon"},
                {"lars", "learning_rate momentum trust weight_decay"},
                {"lamb", "learning_rate beta1 beta2 epsilon weight_decay"}};
    static const struct {
        const char *name;
        size_t offset;
    } settings[] = {{"learning_rate", offsetof(strata_optimizer, learning_rate)},
                    {"momentum", offsetof(strata_optimizer, momentum)},
                    {"beta1", offsetof(strata_optimizer, beta1)},
                    {"beta2", offsetof(strata_optimizer, beta2)},
                    {"epsilon", offsetof(strata_optimizer, epsilon)},
                    {"rho", offsetof(strata_optimizer, rho)},
                    {"accumulator", offsetof(strata_optimizer, accumulator)},
                    {"weight_decay", offsetof(strata_optimizer, weight_decay)},
                    {"trust", offsetof(strata_optimizer, trust)}};
    const double wrong[] = {-1, NAN, INFINITY, -INFINITY};
    for (size_t o = 0; o < sizeof uses / sizeof *uses; o++)
        for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
            for (size_t w = 0; strstr(uses[o].settings, settings[s].name) && w < sizeof wrong / sizeof *wrong; w++) {
                strata_optimizer given = {.name = uses[o].optimizer};
                const strata_optimizer_kind *kind = NULL;
                memcpy((char *)&given + settings[s].offset, &wrong[w], sizeof *wrong);
                err = (strata_error){0};
                cr_expect_eq(strata_optimizer_check(&given, &kind, &err), STRATA_INVALID, "%s: %s is %g", uses[o].optimizer,
                             settings[s].name, wrong[w]);
                cr_expect(strstr(err.message, settings[s].name), "%s: %s", settings[s].name, err.message);
            }
}

Test(optimizers, the_ends_of_what_is_allowed_are_allowed) {
    static const strata_optimizer right[] = {
        {.name = "sgd", .momentum = STRATA_ZERO},
        {.name = "rmsprop", .rho = STRATA_ZERO, .momentum = STRATA_ZERO},
        {.name = "adam", .beta1 = STRATA_ZERO, .beta2 = STRATA_ZERO},
        {.name = "adagrad", .accumulator = STRATA_ZERO},
        {.name = "adamw", .weight_decay = STRATA_ZERO},
        {.name = "sgd", .schedule = {.name = "cosine", .steps = 1}},
        {.name = "sgd", .schedule = {.name = "polynomial", .steps = 1}},
        {.name = "sgd", .schedule = {.name = "exponential", .steps = 1, .factor = 1e-9}},
        {.name = "sgd", .schedule = {.name = "step", .boundaries = {1, {0}}, .values = {1, {0}}}},
        {.name = "sgd",
         .schedule = {.name = "step",
                      .boundaries = {STRATA_MAX_NUMBERS, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
                      .values = {STRATA_MAX_NUMBERS, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.25}}}},
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        strata_optimizer settings = right[i];
        const strata_optimizer_kind *kind = NULL;
        cr_expect_eq(strata_optimizer_check(&settings, &kind, &err), STRATA_OK, "%zu: %s", i, err.message);
        if (i + 1 == sizeof right / sizeof *right) cr_expect_eq(strata_schedule_rate(&settings.schedule, 1, 17), 0.25);
    }
}

/* ---- in a model ---- */

static strata_model *compiled(strata_device *device, strata_optimizer settings, double l1, double l2) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 17, .activation = "tanh", .kernel_l1 = l1, .kernel_l2 = l2});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = settings, .seed = 2}, &err));
    return model;
}

/* With a driver, which takes seconds to compile each optimizer, only optimizers that consist of several kernels are tested. */
TEST_ON_DEVICES(optimizers, each_learns_and_does_so_again) {
    bool host = !strcmp(strata_device_get_info(device)->id, "host");
    strata_dataset *data = case_dataset(120);
    for (int r = 0; r < N_ROWS; r++) {
        if (!host && strcmp(rows[r].golden, "lamb_decay") && strcmp(rows[r].golden, "lars")) continue;
        strata_history history = {0};
        const char *shas[2];
        for (int again = 0; again < 2; again++) {
            strata_model *model = compiled(device, rows[r].settings, 0, 0);
            OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 3, .batch = 16}, &history, &err));
            shas[again] = case_sha(model);
            strata_model_destroy(model);
            cr_assert_lt(history.epochs[2].loss, history.epochs[0].loss, "%s does not learn", rows[r].golden);
            strata_history_finish(&history);
        }
        cr_assert_str_eq(shas[0], shas[1]);
    }
    strata_dataset_destroy(data);
}

/* d loss / d w, computed from differences of evaluate, whose loss includes the penalty, must equal the change by one step
 * of SGD. */
TEST_ON_DEVICES(optimizers, penalties_are_in_the_loss_and_in_the_gradient) {
    enum { N = 6 * 17, BATCH = 30 };
    strata_dataset *data = case_dataset(BATCH);
    strata_model *plain = compiled(device, strata_sgd_optimizer(1, 0, false), 0, 0);
    strata_model *model = compiled(device, strata_sgd_optimizer(1, 0, false), 0.01, 0.1);
    strata_metrics with, without;
    float before[N], after[N], after_plain[N];
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(6, 17), before);
    OK(strata_model_get_parameter(model, 0, &view, &err));
    double penalty = 0;
    for (int i = 0; i < N; i++) penalty += 0.01 * fabs((double)before[i]) + 0.1 * (double)before[i] * (double)before[i];
    OK(strata_model_evaluate(plain, data, 0, &without, &err));
    OK(strata_model_evaluate(model, data, 7, &with, &err));
    cr_assert_float_eq(with.loss, without.loss + penalty, 1e-5);
    strata_history history = {0};
    strata_fit_options opts = {.epochs = 1, .batch = BATCH, .no_shuffle = true};
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_assert_float_eq((double)history.losses[0], without.loss + penalty, 1e-5);
    strata_history_finish(&history);
    OK(strata_model_fit(plain, data, &opts, NULL, &err));
    view.data = after;
    OK(strata_model_get_parameter(model, 0, &view, &err));
    view.data = after_plain;
    OK(strata_model_get_parameter(plain, 0, &view, &err));
    for (int i = 0; i < N; i++) {
        double w = (double)before[i], slope = (w > 0 ? 0.01 : w < 0 ? -0.01 : 0) + 0.2 * w;
        cr_assert_float_eq((double)after[i], (double)after_plain[i] - slope, 1e-5, "weight %d", i);
    }
    strata_model_destroy(plain);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* tanh keeps the loss finite when a pixel is infinite. But the optimizer computes the norm of all gradients, which is not
 * finite, so the gate prevents the update. */
TEST_ON_DEVICES(optimizers, gradient_that_is_not_finite_changes_nothing_where_norms_are_known) {
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(64, &x, &y);
    ((float *)x.data)[11 * CASE_INPUTS] = INFINITY;
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    strata_optimizer settings = strata_adam_optimizer(0.01);
    settings.clip_global_norm = 1;
    strata_model *model = compiled(device, settings, 0, 0);
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.batch = 8, .no_shuffle = true}, NULL, &err), STRATA_DATA,
          "epoch 1, step 2;");
    float bias[CASE_CLASSES];
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(CASE_CLASSES), bias);
    OK(strata_model_get_parameter(model, 3, &view, &err));
    for (int i = 0; i < CASE_CLASSES; i++) cr_assert(isfinite(bias[i]));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

Test(optimizers, json_reads_a_schedule_and_writes_it) {
    static const char text[] =
        "{\"label\":\"\",\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"name\":\"dense\",\"units\":2,\"kernel_l2\":0.5}],"
        "\"optimizer\":{\"name\":\"adamw\",\"learning_rate\":{\"schedule\":\"step\",\"initial\":0.25,\"boundaries\":[10,20],"
        "\"values\":[0.5,0.125],\"warmup_steps\":5},\"weight_decay\":0.5,\"clip_norm\":2}}";
    strata_model *model = NULL;
    char *again = NULL;
    OK(strata_model_from_json(text, sizeof text - 1, "m.json", &model, &err));
    strata_optimizer optimizer = strata_model_optimizer(model);
    cr_assert(optimizer.learning_rate == 0.25 && optimizer.schedule.values.values[1] == 0.125 && optimizer.clip_norm == 2);
    OK(strata_model_to_json(model, &again, &err));
    cr_assert_not_null(strstr(again,
                              "{\"schedule\":\"step\",\"initial\":0.25,\"boundaries\":[10,20],\"values\":[0.5,0.125],"
                              "\"warmup_steps\":5}"),
                       "%s", again);
    cr_assert_not_null(strstr(again, "\"weight_decay\":0.5,\"clip_norm\":2}"), "%s", again);
    free(again);
    strata_model_destroy(model);
}
