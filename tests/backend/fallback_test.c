/* SPDX-License-Identifier: Apache-2.0
 *
 * A device for which the host runs the nodes that it lacks. Tests which side has the newest bytes of a variable, programs
 * whose parts alternate between the sides, variables that both sides change, slots, and which bytes are copied. */
#include "backends/fallback/fallback.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/restricted.h"

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* ---- which side has the newest bytes ---- */

enum { BYTES = 64 };

/* The bytes of both sides, and the object under test, which records which side wrote which bytes last. */
typedef struct model {
    unsigned char sides[2][BYTES];
    fallback_freshness freshness;
    int n_copies;
} model;

static strata_status copy(void *user, int64_t begin, int64_t end, fallback_side to, strata_error *err) {
    model *m = user;
    (void)err;
    cr_assert(begin >= 0 && begin < end && end <= BYTES);
    memcpy(m->sides[to] + begin, m->sides[!to] + begin, (size_t)(end - begin));
    m->n_copies++;
    return STRATA_OK;
}

Test(fallback, each_side_reads_what_was_written_last) {
    model m = {0};
    unsigned char newest[BYTES] = {0};
    strata_error err = {0};
    uint64_t random = 3;
    for (int step = 0; step < 4000; step++) {
        const int64_t a = (int64_t)(strata_test_next(&random) % (BYTES + 1)),
                      b = (int64_t)(strata_test_next(&random) % (BYTES + 1));
        const int64_t begin = a < b ? a : b, end = a < b ? b : a;
        const fallback_side side = strata_test_next(&random) % 2 ? FALLBACK_HOST : FALLBACK_DEVICE;
        if (strata_test_next(&random) % 2) {
            for (int64_t i = begin; i < end; i++) m.sides[side][i] = newest[i] = (unsigned char)strata_test_next(&random);
            OK(strata_fallback_written(&m.freshness, begin, end, side, &err));
        } else {
            OK(strata_fallback_needed(&m.freshness, begin, end, side, copy, &m, &err));
            cr_assert(!memcmp(m.sides[side] + begin, newest + begin, (size_t)(end - begin)), "step %d", step);
        }
        for (int i = 0; i < m.freshness.n; i++) {
            const fallback_interval *at = &m.freshness.intervals[i];
            cr_assert(at->begin < at->end && (!i || at[-1].end <= at->begin));
        }
    }
    free(m.freshness.intervals);
}

Test(fallback, what_both_sides_have_is_not_copied_again) {
    model m = {0};
    strata_error err = {0};
    OK(strata_fallback_written(&m.freshness, 8, 24, FALLBACK_HOST, &err));
    OK(strata_fallback_needed(&m.freshness, 0, BYTES, FALLBACK_HOST, copy, &m, &err));
    cr_expect_eq(m.n_copies, 0);
    OK(strata_fallback_needed(&m.freshness, 0, BYTES, FALLBACK_DEVICE, copy, &m, &err));
    OK(strata_fallback_needed(&m.freshness, 0, BYTES, FALLBACK_DEVICE, copy, &m, &err));
    cr_expect_eq(m.n_copies, 1);
    free(m.freshness.intervals);
}

/* ---- programs ---- */

static strata_device *device_without(const char *which, const char *const *missing) {
    strata_error err = {0};
    strata_device *inner = NULL, *device = NULL;
    if (strata_device_open(which, &(strata_device_options){.no_tune = true}, &inner, &err))
        cr_skip_test("%s: %s", which, err.message);
    strata_test_restrict(inner, (strata_test_restriction){.ops = missing, .answer = STRATA_SUPPORT_NO});
    OK(strata_fallback_create(inner, &device, &err));
    return device;
}

static strata_variable *variable(strata_device *device, const char *name, int64_t n, double value) {
    strata_error err = {0};
    strata_variable *v = NULL;
    strata_array array = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(n), value);
    OK(strata_variable_create(device, name, STRATA_DTYPE_F32, STRATA_SHAPE(n), &v, &err));
    OK(strata_variable_set(v, &array, &err));
    strata_array_finish(&array);
    return v;
}

static double first_of(strata_variable *v, int64_t n) {
    strata_error err = {0};
    strata_array array = {0};
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &array, &err));
    OK(strata_variable_get(v, &array, &err));
    const double value = strata_element_get(STRATA_DTYPE_F32, array.data, 0);
    strata_array_finish(&array);
    return value;
}

enum { N = 8 };

/* b = 2 b, by the op sgd, which a device may support although it does not support assign. */
static strata_tensor *doubled(strata_tensor *b) {
    strata_graph *graph = strata_tensor_graph(b);
    strata_array words = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), 1);
    strata_tensor *step = strata_constant(graph, &words);
    strata_array_finish(&words);
    return strata_sgd(b, NULL, strata_neg(b), step, NULL, 0, false);
}

/* The device lacks exp and assign_add. The program computes y = sqrt(exp(x + 1)), a = a + y (on the host), b = 2 b (on the
 * device) and z = pack(exp(x), x + 1). Several runs of one executable are in flight at a time, one in each slot. */
static void alternates(const char *which) {
    static const char *const missing[] = {"exp", "assign", "assign_add", "chain", NULL};
    enum { RUNS = 7, SLOTS = 3 };
    strata_error err = {0};
    strata_device *device = device_without(which, missing);
    strata_variable *va = variable(device, "a", N, 1), *vb = variable(device, "b", N, 1);
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N));
    strata_tensor *a = strata_variable_read(graph, va), *b = strata_variable_read(graph, vb);
    strata_tensor *moved = strata_add(x, strata_scalar(graph, STRATA_DTYPE_F32, 1));
    strata_tensor *y = strata_sqrt(strata_exp(moved));
    strata_tensor *z = strata_pack((strata_tensor *[]){strata_exp(x), moved}, (int64_t[]){0, N + 1}, 2, 2 * N + 1);
    strata_tensor *outputs[] = {y, z, a};
    strata_tensor *updates[] = {strata_assign_add(a, y), doubled(b)};
    OK(strata_executable_create(device, outputs, 3, updates, 2, &(strata_executable_options){.n_slots = SLOTS}, &exe, &err));
    double sum = 1, before[RUNS];
    int slots[RUNS];
    strata_device_counters counters[RUNS];
    for (int run = 0; run < RUNS; run++) {
        float *in;
        before[run] = sum;
        OK(strata_executable_acquire(exe, &slots[run], &err));
        in = strata_executable_input(exe, slots[run], 0);
        for (int i = 0; i < N; i++) in[i] = (float)run / 4 + (float)i;
        OK(strata_executable_submit(exe, slots[run], &err));
        counters[run] = strata_device_get_counters(device);
        sum += sqrt(exp((double)run / 4 + 1));
        if (run < SLOTS - 1) continue;
        const int of = run - (SLOTS - 1); /* the oldest run whose results are still in a slot */
        OK(strata_executable_wait(exe, slots[of], &err));
        const float *out_y = strata_executable_output(exe, slots[of], 0), *out_z = strata_executable_output(exe, slots[of], 1);
        const float *out_a = strata_executable_output(exe, slots[of], 2);
        for (int i = 0; i < N; i++) {
            const double at = (double)of / 4 + i;
            cr_expect_float_eq(out_y[i], sqrt(exp(at + 1)), 1e-5 * sqrt(exp(at + 1)), "run %d: y[%d] = %g", of, i,
                               (double)out_y[i]);
            cr_expect_float_eq(out_z[i], exp(at), 1e-5 * exp(at), "run %d: z[%d] = %g", of, i, (double)out_z[i]);
            cr_expect_float_eq(out_z[N + 1 + i], at + 1, 1e-5, "run %d: z[%d] = %g", of, N + 1 + i, (double)out_z[N + 1 + i]);
        }
        cr_expect_eq(out_z[N], 0);
        cr_expect_float_eq(out_a[0], before[of], 1e-5 * before[of], "run %d: a was %g", of, (double)out_a[0]);
    }
    cr_expect_float_eq(first_of(va, N), sum, 1e-4);
    cr_expect_eq(first_of(vb, N), 1 << RUNS);

    const strata_device_counters *last = &counters[RUNS - 1], *third = &counters[2], *fourth = &counters[3];
    cr_expect_gt(last->host_nodes, 0);
    cr_expect_eq(last->host_nodes, RUNS * (third->host_nodes / 3));
    cr_expect_eq(last->allocations, third->allocations, "a run allocates");
    cr_expect_eq(last->compilations, third->compilations, "a run compiles");
    const uint64_t a_run = fourth->copies - third->copies;
    cr_expect_gt(a_run, 0);
    cr_expect_eq(last->copies - fourth->copies, a_run * (RUNS - 4), "each run copies as much");
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_variable_destroy(va);
    strata_variable_destroy(vb);
    strata_device_close(device);
}

Test(fallback, parts_alternate_on_the_host) {
    alternates("host");
}
Test(fallback, parts_alternate_on_opencl) {
    alternates("opencl:0");
}
Test(fallback, parts_alternate_on_vulkan) {
    alternates("vulkan:0");
}

/* A program that runs on the device alone reads what the host's part of another program has written, and vice versa. */
Test(fallback, programs_share_variables) {
    static const char *const missing[] = {"exp", "assign", NULL};
    strata_error err = {0};
    strata_device *device = device_without("host", missing);
    strata_variable *v = variable(device, "v", N, 0);
    strata_graph *graph = NULL;
    strata_executable *mixed = NULL, *whole = NULL;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *read = strata_variable_read(graph, v);
    strata_tensor *grown = strata_assign(read, strata_exp(read));
    OK(strata_executable_create(device, NULL, 0, &grown, 1, NULL, &mixed, &err));
    strata_graph_destroy(graph);
    OK(strata_graph_create(&graph, &err));
    read = strata_variable_read(graph, v);
    strata_tensor *twice = doubled(read);
    OK(strata_executable_create(device, NULL, 0, &twice, 1, NULL, &whole, &err));
    double want = 0;
    for (int i = 0; i < 3; i++) {
        const uint64_t host_nodes = strata_device_get_counters(device).host_nodes;
        OK(strata_executable_run(mixed, NULL, NULL, 0, NULL, 0, &err));
        cr_expect_gt(strata_device_get_counters(device).host_nodes, host_nodes);
        OK(strata_executable_run(whole, NULL, NULL, 0, NULL, 0, &err));
        want = 2 * exp(want);
        cr_expect_float_eq(first_of(v, N), want, 1e-4 * want);
    }
    strata_executable_destroy(mixed);
    strata_executable_destroy(whole);
    strata_graph_destroy(graph);
    strata_variable_destroy(v);
    strata_device_close(device);
}

Test(fallback, a_device_that_lacks_nothing_copies_nothing) {
    static const char *const missing[] = {NULL};
    strata_error err = {0};
    strata_device *device = device_without("host", missing);
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N)), *y = strata_exp(x);
    strata_array in = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N), 0),
                 out = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N), 0);
    OK(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err));
    OK(strata_executable_run(exe, (const char *[]){"x"}, &in, 1, &out, 1, &err));
    cr_expect_eq(((float *)out.data)[N - 1], 1);
    cr_expect_eq(strata_device_get_counters(device).copies, 0);
    cr_expect_eq(strata_device_get_counters(device).host_nodes, 0);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_array_finish(&in);
    strata_array_finish(&out);
    strata_device_close(device);
}

Test(fallback, the_option_of_a_device_opens_one) {
    strata_error err = {0};
    strata_device *device = NULL;
    OK(strata_device_open("host", &(strata_device_options){.fallback_to_host = true}, &device, &err));
    cr_expect_str_eq(strata_device_get_info(device)->id, "host");
    cr_expect_not_null(((fallback_device *)device)->sides[FALLBACK_HOST]);
    strata_device_close(device);
}
