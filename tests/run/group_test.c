/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas in step: segments and what crosses them, folds, and a regression that N replicas train as one does. */
#include "core/run/group.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "strata/ops.h"
#include "tests/support/check.h"

enum { MOST_REPLICAS = 8, FEATURES = 5, GLOBAL_BATCH = 16 };
static const strata_dtype f32 = STRATA_DTYPE_F32;

static strata_device *devices[MOST_REPLICAS];

static void open_devices(void) {
    strata_error err = {0};
    for (int r = 0; r < MOST_REPLICAS; r++)
        cr_assert_eq(strata_device_open("host", NULL, &devices[r], &err), STRATA_OK, "%s", err.message);
}

static void close_devices(void) {
    for (int r = 0; r < MOST_REPLICAS; r++) strata_device_close(devices[r]);
}

TestSuite(group, .init = open_devices, .fini = close_devices);

static strata_graph *new_graph(void) {
    strata_graph *graph = NULL;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    return graph;
}

static strata_executable *compile(strata_graph *graph, int replica, strata_tensor *const *outputs, int n_outputs,
                                  strata_tensor *const *updates, int n_updates) {
    strata_executable *exe = NULL;
    strata_error err = {0};
    cr_assert_eq(
        strata_executable_create_replica(devices[replica], outputs, n_outputs, updates, n_updates, NULL, NULL, &exe, &err),
        STRATA_OK, "%s", err.message);
    strata_graph_destroy(graph);
    return exe;
}

static strata_group *make_group(strata_executable *const *replicas, int n) {
    strata_group *group = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_group_create(replicas, n, NULL, NULL, &group, &err), STRATA_OK, "%s", err.message);
    return group;
}

static int acquire(strata_group *group) {
    int slot = -1;
    strata_error err = {0};
    cr_assert_eq(strata_group_acquire(group, &slot, &err), STRATA_OK, "%s", err.message);
    return slot;
}

static void run(strata_group *group, int slot, const bool *contributes) {
    strata_error err = {0};
    cr_assert_eq(strata_group_start(group, slot, 0, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_group_finish(group, slot, contributes, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_group_wait(group, slot, &err), STRATA_OK, "%s", err.message);
}

static float *input(strata_group *group, int replica, int slot, const char *name) {
    strata_executable *exe = strata_group_replica(group, replica);
    return strata_executable_input(exe, slot, strata_executable_input_index(exe, name));
}

static const float *output(strata_group *group, int replica, int slot, int index) {
    return strata_executable_output(strata_group_replica(group, replica), slot, index);
}

/* ---- what crosses segments ---- */

/* x is used before and after a sum over replicas, directly and through a view; so is the sum itself; an output is used later
 * too. */
static strata_executable *crossing(int replica) {
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(2, 3)), *flat = strata_reshape(x, STRATA_SHAPE(6));
    strata_tensor *early = strata_square(flat);                                         /* also an output */
    strata_tensor *sum = strata_all_reduce(early, STRATA_REDUCE_SUM);                   /* of an output that is used later */
    strata_tensor *mean = strata_all_reduce(strata_add(sum, flat), STRATA_REDUCE_MEAN); /* of something of the second segment */
    strata_tensor *of_input = strata_all_reduce(x, STRATA_REDUCE_SUM);                  /* of a leaf */
    strata_tensor *late = strata_add(strata_add(mean, sum), strata_add(flat, early));   /* all of it, in the last segment */
    strata_tensor *last = strata_add(late, strata_reshape(of_input, STRATA_SHAPE(6)));
    strata_tensor *outputs[] = {last, early, sum, strata_all_reduce(sum, STRATA_REDUCE_SUM)};
    return compile(graph, replica, outputs, 4, NULL, 0);
}

Test(group, values_cross_segments) {
    enum { N = 3 };
    strata_executable *replicas[N];
    for (int r = 0; r < N; r++) replicas[r] = crossing(r);
    cr_assert_geq(replicas[0]->plan.n_segments, 3);
    strata_group *group = make_group(replicas, N);
    for (int step = 0; step < 5; step++) { /* more than there are slots */
        int slot = acquire(group);
        float x[N][6];
        for (int r = 0; r < N; r++) {
            for (int i = 0; i < 6; i++) x[r][i] = (float)(step + r * 6 + i) / 4;
            memcpy(input(group, r, slot, "x"), x[r], sizeof x[r]);
        }
        run(group, slot, NULL);
        for (int i = 0; i < 6; i++) {
            float sum = 0, mean = 0, of_input = 0;
            for (int r = 0; r < N; r++) sum += x[r][i] * x[r][i];
            for (int r = 0; r < N; r++) mean += (sum + x[r][i]) / N;
            for (int r = 0; r < N; r++) of_input += x[r][i];
            for (int r = 0; r < N; r++) {
                const float square = x[r][i] * x[r][i];
                cr_assert_float_eq(output(group, r, slot, 0)[i], mean + sum + x[r][i] + square + of_input, 1e-3);
                cr_assert_float_eq(output(group, r, slot, 1)[i], square, 1e-6);
                cr_assert_float_eq(output(group, r, slot, 2)[i], sum, 1e-4);
                cr_assert_float_eq(output(group, r, slot, 3)[i], N * sum, 1e-3);
            }
        }
    }
    strata_group_destroy(group);
}

Test(group, totals_add_up_what_groups_communicated) {
    enum { N = 3 };
    strata_group *groups[2];
    strata_group_totals totals = {0}, none = {0};
    strata_group_counters counters[2];
    double slowest = 0, sum = 0;
    for (int g = 0; g < 2; g++) {
        strata_executable *replicas[N];
        for (int r = 0; r < N; r++) replicas[r] = crossing(r);
        groups[g] = make_group(replicas, N);
        for (int step = 0; step < (g ? 4 : 7); step++) {
            const int slot = acquire(groups[g]);
            for (int r = 0; r < N; r++) memset(input(groups[g], r, slot, "x"), 0, 6 * sizeof(float));
            run(groups[g], slot, NULL);
        }
        counters[g] = strata_group_get_counters(groups[g]);
        /* The steps of the second group are no steps of a training, and its exchanges are counted. */
        strata_group_add(groups[g], N, !g, &totals);
    }
    cr_expect_eq(counters[0].steps, 7);
    cr_expect_eq(totals.sum.steps, 7);
    cr_expect_eq(totals.most_steps, 7, "the group with most steps shows the imbalance");
    cr_expect_eq(totals.sum.bytes_read, counters[0].bytes_read + counters[1].bytes_read);
    cr_expect_eq(totals.sum.bytes_written, counters[0].bytes_written + counters[1].bytes_written);
    cr_expect_eq(counters[0].bytes_read * 4, counters[1].bytes_read * 7, "each step reads as many bytes");
    for (int r = 0; r < N; r++) {
        const double spent = strata_group_replica_seconds(groups[0], r);
        cr_expect_gt(spent, 0, "replica %d was waited for first in some step", r);
        slowest = spent > slowest ? spent : slowest;
        sum += spent;
    }
    const strata_communication_totals all = strata_group_total(&totals);
    cr_expect_float_eq(all.seconds, counters[0].fold_seconds + counters[1].fold_seconds, 1e-12);
    cr_expect_float_eq(all.hidden * all.seconds, counters[0].hidden_seconds + counters[1].hidden_seconds, 1e-12);
    cr_expect_float_eq(all.bytes_per_step, (double)(totals.sum.bytes_read + totals.sum.bytes_written) / 7, 1e-6);
    cr_expect_eq(all.wire_bytes_per_step, 0);
    cr_expect_float_eq(all.imbalance, slowest * N / sum, 1e-9);
    /* Groups without replicas that compute examples, and no groups, are balanced. */
    strata_group_add(groups[0], 0, false, &none);
    cr_expect_eq(none.sum.steps, 0);
    cr_expect_eq(none.sum.bytes_read, counters[0].bytes_read);
    cr_expect_eq(strata_group_total(&none).imbalance, 1);
    cr_expect_eq(strata_group_total(&none).bytes_per_step, 0);
    for (int g = 0; g < 2; g++) strata_group_destroy(groups[g]);
}

/* ---- a regression ---- */

typedef struct replica_model {
    strata_variable *weights, *velocity;
} replica_model;

/* Two buckets, so that the first is folded while the second is computed: the gradients of the two halves of the weights. */
static strata_executable *regression(int replica, int64_t batch, replica_model *model) {
    strata_graph *graph = new_graph();
    cr_assert_eq(strata_variable_create(devices[replica], "weights", f32, STRATA_SHAPE(FEATURES, 1), &model->weights, NULL),
                 STRATA_OK);
    cr_assert_eq(strata_variable_create(devices[replica], "velocity", f32, STRATA_SHAPE(FEATURES), &model->velocity, NULL),
                 STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(batch, FEATURES));
    strata_tensor *y = strata_input(graph, "y", f32, STRATA_SHAPE(batch, 1));
    strata_tensor *weight = strata_input(graph, "weight", f32, STRATA_SHAPE(batch, 1)); /* 1 / global batch */
    strata_tensor *step = strata_input(graph, "step", f32, STRATA_SHAPE(STRATA_STEP_WORDS));
    strata_tensor *w = strata_variable_read(graph, model->weights);
    strata_tensor *squares = strata_square(strata_sub(strata_matmul(x, w, false, false), y));
    strata_tensor *loss = strata_reduce_sum(strata_mul(squares, weight), NULL, 0, false), *dw = NULL;
    strata_gradients(loss, NULL, &w, 1, &dw);
    const int64_t zero = 0, two = 2, rest = FEATURES - 2;
    strata_tensor *flat = strata_reshape(dw, STRATA_SHAPE(FEATURES));
    strata_tensor *late = strata_all_reduce(strata_slice(flat, &two, &rest), STRATA_REDUCE_SUM);
    strata_tensor *early = strata_all_reduce(strata_slice(flat, &zero, &two), STRATA_REDUCE_SUM);
    strata_tensor *both[] = {early, late};
    strata_tensor *update =
        strata_sgd(strata_reshape(strata_variable_read(graph, model->weights), STRATA_SHAPE(FEATURES, 1)), NULL,
                   strata_reshape(strata_concat(both, 2, 0), STRATA_SHAPE(FEATURES, 1)), step, NULL, 0, false);
    strata_tensor *total = strata_all_reduce(loss, STRATA_REDUCE_SUM);
    return compile(graph, replica, &total, 1, &update, 1);
}

/* The balanced split: the first global % n replicas have one more. */
static int64_t share(int64_t global, int n, int replica) {
    return global / n + (replica < global % n);
}

/* Losses of 50 steps of n replicas on the same global batches, and their weights at the end, which all must have. */
static void train(int n, int64_t global, double losses[50], float weights[FEATURES]) {
    strata_executable *replicas[MOST_REPLICAS];
    replica_model models[MOST_REPLICAS] = {{0}};
    bool contributes[MOST_REPLICAS];
    for (int r = 0; r < n; r++) {
        int64_t batch = share(global, n, r);
        contributes[r] = batch > 0;
        replicas[r] = regression(r, batch > 0 ? batch : 1, &models[r]);
    }
    strata_group *group = make_group(replicas, n);
    for (int s = 0; s < 50; s++) {
        strata_array x = strata_test_random(f32, STRATA_SHAPE(global, FEATURES), -1, 1, (uint64_t)s + 1);
        const float *rows = x.data;
        int slot = acquire(group);
        int64_t first = 0;
        for (int r = 0; r < n; r++) {
            float *in = input(group, r, slot, "x"), *y = input(group, r, slot, "y"), *weight = input(group, r, slot, "weight");
            for (int64_t i = 0; i < share(global, n, r); i++, first++) {
                y[i] = 0;
                weight[i] = 1 / (float)global;
                for (int f = 0; f < FEATURES; f++) y[i] += (float)(f + 1) * rows[first * FEATURES + f];
                memcpy(in + i * FEATURES, rows + first * FEATURES, FEATURES * sizeof *in);
            }
            input(group, r, slot, "step")[STRATA_STEP_LEARNING_RATE] = 0.1f;
        }
        run(group, slot, contributes);
        losses[s] = *output(group, 0, slot, 0);
        for (int r = 1; r < n; r++) cr_assert_eq(*output(group, r, slot, 0), *output(group, 0, slot, 0));
        strata_array_finish(&x);
    }
    for (int r = 0; r < n; r++) {
        float own[FEATURES];
        strata_array view = strata_array_view(f32, STRATA_SHAPE(FEATURES, 1), own);
        cr_assert_eq(strata_variable_get(models[r].weights, &view, NULL), STRATA_OK);
        if (r == 0) memcpy(weights, own, sizeof own);
        cr_assert_arr_eq(own, weights, sizeof own, "replica %d's weights", r);
    }
    cr_assert_gt(strata_group_get_counters(group).bytes_read, 0);
    strata_group_destroy(group);
    for (int r = 0; r < n; r++) {
        strata_variable_destroy(models[r].weights);
        strata_variable_destroy(models[r].velocity);
    }
}

static void expect_equal_to_one(int n, int64_t global) {
    double one[50], many[50];
    float weights_of_one[FEATURES], weights_of_many[FEATURES];
    train(1, global, one, weights_of_one);
    train(n, global, many, weights_of_many);
    cr_assert_lt(one[49], one[0] / 4);
    for (int s = 0; s < 50; s++)
        cr_assert_float_eq(many[s], one[s], 1e-5 * one[0], "%d replicas, step %d: %g, one replica: %g", n, s, many[s], one[s]);
    for (int f = 0; f < FEATURES; f++) cr_assert_float_eq(weights_of_many[f], weights_of_one[f], 1e-4);
}

Test(group, replicas_train_as_one_device_does) {
    const int counts[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) expect_equal_to_one(counts[i], GLOBAL_BATCH);
}

Test(group, uneven_and_empty_shares_are_exact) {
    expect_equal_to_one(3, 7);
    expect_equal_to_one(8, 5);
    expect_equal_to_one(8, 1);
}

/* ---- what it refuses ---- */

static strata_executable *summing(int replica, int64_t n, strata_reduction reduction, int times) {
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_exp(strata_input(graph, "x", f32, STRATA_SHAPE(n)));
    for (int i = 0; i < times; i++) x = strata_neg(strata_all_reduce(x, reduction));
    return compile(graph, replica, &x, 1, NULL, 0);
}

static void expect_mismatch(strata_executable *a, strata_executable *b, const char *words) {
    strata_group *group = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_group_create((strata_executable *[]){a, b}, 2, NULL, NULL, &group, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    cr_assert_null(group);
}

Test(group, replicas_that_differ_are_refused) {
    expect_mismatch(summing(0, 3, STRATA_REDUCE_SUM, 1), summing(1, 4, STRATA_REDUCE_SUM, 1), "(4)");
    expect_mismatch(summing(0, 3, STRATA_REDUCE_SUM, 1), summing(1, 3, STRATA_REDUCE_MEAN, 1), "communication 0");
    expect_mismatch(summing(0, 3, STRATA_REDUCE_SUM, 1), summing(1, 3, STRATA_REDUCE_SUM, 2), "replica 1 has communication 1");
    strata_error err = {0};
    strata_group *group = NULL;
    cr_assert_eq(strata_group_create(NULL, 0, NULL, NULL, &group, &err), STRATA_INVALID);
}

Test(group, a_replica_alone_is_not_submitted) {
    strata_executable *exe = summing(0, 3, STRATA_REDUCE_SUM, 1);
    strata_error err = {0};
    int slot = 0;
    cr_assert_eq(strata_executable_acquire(exe, &slot, &err), STRATA_OK);
    cr_assert_eq(strata_executable_submit(exe, slot, &err), STRATA_INVALID);
    strata_executable_destroy(exe);
}

Test(group, with_one_replica_communication_goes) {
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(3));
    strata_tensor *y = strata_neg(strata_all_reduce(strata_exp(x), STRATA_REDUCE_MEAN));
    strata_executable *exe = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_executable_create(devices[0], &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(exe->plan.n_communications, 0);
    cr_assert_eq(exe->plan.n_segments, 1);
    float in[3] = {0, 0, 0}, out[3];
    strata_array from = strata_array_view(f32, STRATA_SHAPE(3), in), to = strata_array_view(f32, STRATA_SHAPE(3), out);
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x"}, &from, 1, &to, 1, &err), STRATA_OK, "%s", err.message);
    cr_assert_float_eq(out[1], -1, 1e-6);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
}
