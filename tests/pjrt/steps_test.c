/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains each sample for 100 steps on generated data, through the bridge and on the host. The interpreter runs the small
 * samples. jaxlib runs all of them, where STRATA_TEST_JAX_PYTHON is the path of a Python that has it.
 *
 *     step by step   Each step starts with the host's parameters, states and optimizer slots, and must end with the host's.
 *     a hundred      Both train on their own. Their losses must agree within the bounds that README.md explains. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/pjrt/lower.h"
#include "core/model/shards.h"
#include "strata/strata.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/samples.h"

enum { STEPS = 100 };

/* The largest difference of a loss from the host's after training on its own (FREE_LOSS), and after one step from the
 * host's state (STEP_LOSS); and that of parameters and states after such a step (STEP_STATE). All are relative to max(1,
 * the host's number). */
static const double FREE_LOSS = 1e-4, STEP_LOSS = 1e-5, STEP_STATE = 1e-4;
/* The largest difference of optimizer slots after such a step, relative to the largest number of the slot. It is large
 * because rounding may move a pre-activation across the kink of relu, which changes single gradients. */
static const double STEP_SLOT = 1e-2;
/* Some trainings differ by more than FREE_LOSS within a hundred steps because of rounding alone. They may differ by CHAOS
 * times as much as two trainings on the host, in one of which each parameter is changed by NUDGE before each step. NUDGE is
 * about the rounding error of one step: Adam divides gradients by their size, and so makes the rounding errors of small
 * ones as large as those of others. */
static const double CHAOS = 3;
static const float NUDGE = 1e-6f;

typedef strata_test_sample step_case;
typedef strata_test_trained trained;

static trained open_model(const step_case *c, const char *which) {
    strata_error err = {0};
    trained t;
    cr_assert_eq(strata_test_sample_open(c, which, &t, &err), STRATA_OK, "%s", err.message);
    return t;
}

static void fit(const trained *t, const step_case *c, const strata_dataset *data, float *losses) {
    strata_error err = {0};
    cr_assert_eq(strata_test_sample_fit(t, c, data, losses, &err), STRATA_OK, "%s", err.message);
}

/* Changes each parameter and state by NUDGE, up or down at random. */
static void nudge_all(const trained *t, uint64_t *state) {
    strata_error err = {0};
    const int64_t n = strata_model_all_size(t->model);
    float *values = calloc((size_t)n, sizeof *values);
    cr_assert(values);
    cr_assert_eq(strata_model_read_all(t->model, values, &err), STRATA_OK, "%s", err.message);
    for (int64_t i = 0; i < n; i++) values[i] += strata_test_next(state) & 1 ? NUDGE : -NUDGE;
    cr_assert_eq(strata_model_write_all(t->model, values, &err), STRATA_OK, "%s", err.message);
    free(values);
}

/* How the 100 steps are made: in one fit, or each in its own fit. In the latter case the parameters may be changed by NUDGE
 * before each step, to simulate an implementation with other rounding. */
typedef enum course { TOGETHER, ONE_BY_ONE, NUDGED } course;

static void train(const step_case *c, const char *which, course course, float losses[STEPS]) {
    strata_array x, y;
    uint64_t state = 5;
    trained t = open_model(c, which);
    strata_test_sample_arrays(c, STEPS, &x, &y);
    const int each = course == TOGETHER ? STEPS : 1;
    for (int k = 0; k < STEPS; k += each) {
        strata_dataset *data = strata_test_sample_batches(c, &x, &y, k, each);
        if (course == NUDGED) nudge_all(&t, &state);
        fit(&t, c, data, losses + k);
        strata_dataset_destroy(data);
    }
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_test_sample_close(&t);
}

/* Reads the parameters and states of layers (part 0), or optimizer slot part - 1. Returns an array (strata_model_all_size),
 * which the caller frees. */
static float *read_part(const trained *t, int part) {
    strata_error err = {0};
    float *values = calloc((size_t)strata_model_all_size(t->model), sizeof *values);
    cr_assert(values);
    const strata_status status =
        part ? strata_shards_read_slot(t->model, part - 1, values, &err) : strata_model_read_all(t->model, values, &err);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return values;
}

/* ---- the tests ---- */

static double largest_distance(const float *a, const float *b, int64_t n, int64_t *out_at) {
    double largest = 0;
    *out_at = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = strata_test_distance((double)a[i], (double)b[i]);
        if (d <= largest) continue;
        largest = d; /* a NaN stays, because no number is larger */
        *out_at = i;
        if (isnan(d)) break;
    }
    return largest;
}

/* Compares a part (see read_part) after step k, and returns its largest difference from the host's. */
static double compare_part(const step_case *c, int k, int part, const trained *host, const trained *other) {
    const int64_t n = strata_model_all_size(host->model);
    int64_t at;
    double scale = 0;
    float *want = read_part(host, part), *got = read_part(other, part);
    for (int64_t i = 0; i < n && part; i++) scale = fmax(scale, fabs((double)want[i]));
    for (int64_t i = 0; i < n && scale > 0; i++) {
        want[i] /= (float)scale;
        got[i] /= (float)scale;
    }
    const double d = largest_distance(got, want, n, &at), tolerance = part ? STEP_SLOT : STEP_STATE;
    cr_assert(d <= tolerance, "%s, step %d: %s %lld is %.9g, on the host %.9g", c->name, k,
              part ? "number of a slot, relative to its largest," : "parameter", (long long)at, (double)got[at],
              (double)want[at]);
    free(want);
    free(got);
    return d;
}

/* Sets up the plugin and its engine. Skips the test when the engine is not available. */
static void choose_engine(const step_case *c) {
    char path[4096];
    const char *build = getenv("STRATA_BUILD_DIR"), *python = getenv("STRATA_TEST_JAX_PYTHON");
    if (!build) cr_skip_test("STRATA_BUILD_DIR does not say where the plugin was built");
    if (c->large && !python) cr_skip_test("jaxlib is not here: STRATA_TEST_JAX_PYTHON names a Python that has it");
    snprintf(path, sizeof path, "pjrt:%s/suites/pjrt_plugin.so", build);
    setenv("STRATA_PLUGINS", path, 1);
    if (python) setenv("STRATA_TEST_PJRT_ENGINE", "jaxlib", 1);
}

TestSuite(pjrt_steps, .init = test_folder_make, .fini = test_folder_remove);

ParameterizedTestParameters(pjrt_steps, each_step_from_the_hosts_state_is_the_hosts) {
    return cr_make_param_array(step_case, (void *)strata_test_samples, STRATA_TEST_SAMPLES);
}

ParameterizedTest(step_case *c, pjrt_steps, each_step_from_the_hosts_state_is_the_hosts) {
    choose_engine(c);
    strata_error err = {0};
    strata_array x, y;
    trained host = open_model(c, "host"), other = open_model(c, "pjrt:0");
    strata_test_sample_arrays(c, STEPS, &x, &y);
    double loss_distance = 0, state_distance = 0, slot_distance = 0;
    for (int k = 0; k < STEPS; k++) {
        int epochs;
        float want, got;
        strata_dataset *data = strata_test_sample_batches(c, &x, &y, k, 1);
        const char *checkpoint = test_path("state");
        if (k) {
            cr_assert_eq(strata_model_save_checkpoint(host.model, k, checkpoint, &err), STRATA_OK, "%s", err.message);
            cr_assert_eq(strata_model_load_checkpoint(other.model, checkpoint, &epochs, &err), STRATA_OK, "%s", err.message);
        }
        fit(&host, c, data, &want);
        fit(&other, c, data, &got);
        const double d = strata_test_distance((double)got, (double)want);
        cr_assert(d <= STEP_LOSS, "%s, step %d: the loss is %.9g, on the host %.9g", c->name, k, (double)got, (double)want);
        loss_distance = fmax(loss_distance, d);
        state_distance = fmax(state_distance, compare_part(c, k, 0, &host, &other));
        for (int i = 0; i < strata_model_n_slots(host.model); i++)
            slot_distance = fmax(slot_distance, compare_part(c, k, 1 + i, &host, &other));
        strata_dataset_destroy(data);
    }
    cr_log_info("%s: losses differ by %.1e, parameters by %.1e, slots by %.1e at most", c->name, loss_distance, state_distance,
                slot_distance);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_test_sample_close(&host);
    strata_test_sample_close(&other);
}

ParameterizedTestParameters(pjrt_steps, a_hundred_losses_are_the_hosts) {
    return cr_make_param_array(step_case, (void *)strata_test_samples, STRATA_TEST_SAMPLES);
}

ParameterizedTest(step_case *c, pjrt_steps, a_hundred_losses_are_the_hosts) {
    choose_engine(c);
    float want[STEPS], got[STEPS], nudged[STEPS];
    double tolerance = FREE_LOSS;
    int64_t at;
    train(c, "host", TOGETHER, want);
    train(c, "pjrt:0", TOGETHER, got);
    const double d = largest_distance(got, want, STEPS, &at);
    if (d > FREE_LOSS) {
        int64_t ignored;
        float plain[STEPS];
        train(c, "host", ONE_BY_ONE, plain);
        train(c, "host", NUDGED, nudged);
        tolerance = CHAOS * largest_distance(nudged, plain, STEPS, &ignored);
    }
    cr_log_info("%s: losses differ by %.1e at most, of %.1e", c->name, d, tolerance);
    cr_assert(d <= tolerance, "%s, step %d: the loss is %.9g, on the host %.9g; they may differ by %.1e", c->name, (int)at,
              (double)got[at], (double)want[at], tolerance);
}

Test(pjrt_steps, training_evaluation_and_prediction_of_each_sample_are_lowered) {
    for (int i = 0; i < STRATA_TEST_SAMPLES; i++) {
        trained t = open_model(&strata_test_samples[i], "null");
        static const strata_program_kind kinds[] = {STRATA_PROGRAM_TRAIN, STRATA_PROGRAM_EVALUATE, STRATA_PROGRAM_PREDICT};
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            strata_error err = {0};
            strata_step step;
            pjrt_module module;
            cr_assert_eq(strata_model_build_step(t.model, kinds[k], 4, 0, NULL, &step, &err), STRATA_OK, "%s", err.message);
            const strata_status status = strata_pjrt_lower_graph(step.outputs, step.outputs[0] != step.scores, step.updates,
                                                                 step.n_updates, (pjrt_lower_options){0}, &module, &err);
            cr_expect_eq(status, STRATA_OK, "%s, program %zu: %s", strata_test_samples[i].name, k, err.message);
            cr_expect_gt(module.n_results, 0);
            strata_pjrt_module_finish(&module);
            strata_graph_destroy(step.graph);
        }
        strata_test_sample_close(&t);
    }
}
