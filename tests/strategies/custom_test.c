/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom training loops: scopes and contexts, functions of replicas, communication between replicas, distributed variables,
 * values and data. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "core/run/device.h"
#include "strata/distribute.h"
#include "tests/support/check.h"

enum { MOST = 8 };
static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)
#define FAILS(call, text)                                                                                \
    do {                                                                                                 \
        err = (strata_error){0};                                                                         \
        cr_assert_eq((call), STRATA_INVALID);                                                            \
        cr_assert_not_null(strstr(err.message, (text)), "\"%s\" is not in \"%s\"", (text), err.message); \
    } while (0)

static strata_strategy *hosts(int n) {
    strata_device *devices[MOST];
    strata_strategy *strategy = NULL;
    for (int r = 0; r < n; r++) OK(strata_device_open("host", NULL, &devices[r], &err));
    OK(strata_strategy_from_devices(devices, n, &strategy, &err));
    return strategy;
}

/* Makes a value for each of n replicas. That of replica r has r + 1 elements; element k is 10 r + k. */
static strata_per_replica uneven(int n) {
    strata_per_replica values = {0};
    OK(strata_per_replica_create(n, &values, &err));
    for (int r = 0; r < n; r++) {
        OK(strata_array_create(f32, STRATA_SHAPE(r + 1), &values.arrays[r], &err));
        for (int k = 0; k <= r; k++) ((float *)values.arrays[r].data)[k] = (float)(10 * r + k);
    }
    return values;
}

static float first(const strata_array *array) {
    return ((const float *)array->data)[0];
}

/* ---- scopes and contexts ---- */

Test(custom, scopes_of_one_strategy_nest_and_of_two_do_not) {
    strata_strategy *a = hosts(1), *b = hosts(2);
    cr_assert_null(strata_strategy_current());
    OK(strata_strategy_enter(a, &err));
    OK(strata_strategy_enter(a, &err));
    FAILS(strata_strategy_enter(b, &err), "another strategy");
    FAILS(strata_strategy_exit(b, &err), "not in the scope");
    OK(strata_strategy_exit(a, &err));
    cr_assert_eq(strata_strategy_current(), a);
    OK(strata_strategy_exit(a, &err));
    cr_assert_null(strata_strategy_current());
    FAILS(strata_strategy_exit(a, &err), "not in the scope");
    strata_strategy_destroy(a);
    strata_strategy_destroy(b);
}

static void *other_thread(void *scope) {
    *(strata_strategy **)scope = strata_strategy_current();
    return NULL;
}

Test(custom, a_scope_is_its_threads_own) {
    strata_strategy *strategy = hosts(1), *seen = strategy;
    pthread_t thread;
    OK(strata_strategy_enter(strategy, &err));
    cr_assert_eq(pthread_create(&thread, NULL, other_thread, &seen), 0);
    pthread_join(thread, NULL);
    cr_assert_null(seen);
    OK(strata_strategy_exit(strategy, &err));
    strata_strategy_destroy(strategy);
}

static strata_status calls_of_the_other_context(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                                strata_error *inner) {
    strata_strategy *strategy = user;
    strata_per_replica values = {0};
    strata_array out = {0};
    strata_distributed_variable *variable = NULL;
    strata_function *function = NULL;
    (void)inner;
    cr_assert_not(strata_in_cross_replica_context());
    FAILS(strata_strategy_enter(strategy, &err), "cross-replica");
    FAILS(strata_distributed_create("v", f32, STRATA_SHAPE(1), NULL, &variable, &err), "cross-replica");
    FAILS(strata_function_create(strategy, calls_of_the_other_context, NULL, &function, &err), "cross-replica");
    FAILS(strata_strategy_reduce(strategy, &values, STRATA_REDUCE_SUM, STRATA_NO_AXIS, &out, &err),
          "strata_replica_all_reduce");
    FAILS(strata_strategy_gather(strategy, &values, 0, &out, &err), "strata_replica_all_gather");
    strata_replica_return(replica, inputs[0]);
    return STRATA_OK;
}

Test(custom, each_call_says_which_context_it_needs) {
    strata_strategy *strategy = hosts(1);
    strata_function *function = NULL;
    strata_distributed_variable *variable = NULL;
    float number = 1;
    strata_array value = strata_array_view(f32, STRATA_SHAPE(1), &number);
    strata_per_replica inputs = {.n = 1, .arrays = &value}, outputs = {0};
    OK(strata_function_create(strategy, calls_of_the_other_context, strategy, &function, &err));
    OK(strata_strategy_run(function, &inputs, 1, &outputs, 1, &err));
    cr_assert(strata_in_cross_replica_context());
    FAILS(strata_distributed_create("v", f32, STRATA_SHAPE(1), NULL, &variable, &err), "strata_strategy_enter");
    strata_per_replica_finish(&outputs);
    strata_function_destroy(function);
    strata_strategy_destroy(strategy);
}

static strata_replica_context *first_replica;

/* While replica 1 is traced, the function uses the context of replica 0. */
static strata_status speak_for_another(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                       strata_error *inner) {
    (void)user;
    (void)inner;
    if (strata_replica_id(replica) == 0)
        first_replica = replica;
    else
        strata_replica_all_reduce(first_replica, inputs[0], STRATA_REDUCE_SUM);
    strata_replica_return(replica, inputs[0]);
    return STRATA_OK;
}

Test(custom, a_replicas_call_in_another_ones_context_fails_the_run) {
    strata_strategy *strategy = hosts(2);
    strata_function *function = NULL;
    float number = 1;
    strata_array value = strata_array_view(f32, STRATA_SHAPE(1), &number);
    strata_per_replica inputs = {.n = 1, .arrays = &value}, outputs = {0};
    OK(strata_function_create(strategy, speak_for_another, NULL, &function, &err));
    FAILS(strata_strategy_run(function, &inputs, 1, &outputs, 1, &err), "in another replica's");
    cr_assert_not_null(strstr(err.message, "strata_replica_all_reduce"), "%s", err.message);
    strata_function_destroy(function);
    strata_strategy_destroy(strategy);
}

/* ---- run ---- */

static strata_status scale_by_id(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                 strata_error *inner) {
    strata_tensor *id = strata_scalar(strata_replica_graph(replica), f32, strata_replica_id(replica));
    (void)inner;
    ++*(int *)user;
    strata_replica_return(replica, strata_mul(strata_reduce_sum(inputs[0], NULL, 0, false), inputs[1]));
    strata_replica_return(replica, id);
    return STRATA_OK;
}

Test(custom, run_gives_each_replica_its_part_and_all_what_is_shared) {
    enum { N = 3 };
    int traced = 0;
    strata_strategy *strategy = hosts(N);
    strata_function *function = NULL;
    float factor = 2;
    strata_array shared = strata_array_view(f32, STRATA_SHAPE(), &factor);
    strata_per_replica inputs[2] = {uneven(N), {.n = 1, .arrays = &shared}}, outputs[2] = {{0}};
    OK(strata_function_create(strategy, scale_by_id, &traced, &function, &err));
    for (int run = 0; run < 3; run++) {
        OK(strata_strategy_run(function, inputs, 2, outputs, 2, &err));
        for (int r = 0; r < N; r++) {
            float sum = 0;
            for (int k = 0; k <= r; k++) sum += (float)(10 * r + k);
            cr_assert_float_eq(first(&outputs[0].arrays[r]), 2 * sum, 1e-4);
            cr_assert_eq(first(&outputs[1].arrays[r]), (float)r);
        }
    }
    cr_assert_eq(traced, N, "once for each replica, not for each run");
    FAILS(
        strata_strategy_run(function, (strata_per_replica[]){{.n = 2, .arrays = inputs[0].arrays}, {.n = 1, .arrays = &shared}},
                            2, outputs, 2, &err),
        "there are 3 replicas");
    FAILS(strata_strategy_run(function, inputs, 2, outputs, 3, &err), "returns 2");
    for (int i = 0; i < 2; i++) strata_per_replica_finish(&outputs[i]);
    strata_per_replica_finish(&inputs[0]);
    strata_function_destroy(function);
    strata_strategy_destroy(strategy);
}

/* ---- reduce and gather ---- */

static strata_per_replica rows(const float *numbers, const int64_t *lengths, int n) {
    strata_per_replica values = {0};
    OK(strata_per_replica_create(n, &values, &err));
    for (int r = 0; r < n; r++) {
        OK(strata_array_create(f32, STRATA_SHAPE(lengths[r]), &values.arrays[r], &err));
        memcpy(values.arrays[r].data, numbers, (size_t)lengths[r] * sizeof *numbers);
        numbers += lengths[r];
    }
    return values;
}

static void expect_reduced(strata_strategy *strategy, const strata_per_replica *values, strata_reduction reduction, int axis,
                           double wanted) {
    strata_array out = {0};
    OK(strata_strategy_reduce(strategy, values, reduction, axis, &out, &err));
    cr_assert_float_eq(first(&out), wanted, 1e-5, "%g, not %g", (double)first(&out), wanted);
    strata_array_finish(&out);
}

Test(custom, reduce_adds_elements_or_goes_over_an_axis_too) {
    const float numbers[] = {4, 6, 8, 10, 1, 1};
    strata_strategy *strategy = hosts(1);
    strata_per_replica even = rows(numbers, (int64_t[]){2, 2}, 2), unequal = rows(numbers, (int64_t[]){4, 2}, 2);
    strata_array out = {0};
    expect_reduced(strategy, &even, STRATA_REDUCE_SUM, STRATA_NO_AXIS, 12);
    expect_reduced(strategy, &even, STRATA_REDUCE_MEAN, STRATA_NO_AXIS, 6);
    expect_reduced(strategy, &even, STRATA_REDUCE_SUM, 0, 28);
    expect_reduced(strategy, &even, STRATA_REDUCE_MEAN, -1, 7);
    expect_reduced(strategy, &unequal, STRATA_REDUCE_MEAN, 0, 30.0 / 6); /* the mean over all 6 elements */
    FAILS(strata_strategy_reduce(strategy, &unequal, STRATA_REDUCE_SUM, STRATA_NO_AXIS, &out, &err), "(2)");
    FAILS(strata_strategy_reduce(strategy, &even, STRATA_REDUCE_SUM, 1, &out, &err), "axis is 1");
    FAILS(strata_strategy_reduce(strategy, &even, STRATA_REDUCE_SUM, -2, &out, &err), "axis is -2");
    strata_per_replica_finish(&even);
    strata_per_replica_finish(&unequal);
    strata_strategy_destroy(strategy);
}

Test(custom, integers_are_reduced_exactly) {
    const int64_t large[2][2] = {{INT64_C(1) << 60, 1}, {2, -(INT64_C(1) << 40)}},
                  wanted = (INT64_C(1) << 60) + 3 - (INT64_C(1) << 40);
    const int32_t small[2][2] = {{INT32_MAX, 5}, {7, 0}};
    strata_strategy *strategy = hosts(1);
    strata_per_replica i64s = {0}, i32s = {0};
    strata_array out = {0};
    OK(strata_per_replica_create(2, &i64s, &err));
    OK(strata_per_replica_create(2, &i32s, &err));
    for (int r = 0; r < 2; r++) {
        OK(strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(2), &i64s.arrays[r], &err));
        OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(2), &i32s.arrays[r], &err));
        memcpy(i64s.arrays[r].data, large[r], sizeof large[r]);
        memcpy(i32s.arrays[r].data, small[r], sizeof small[r]);
    }
    OK(strata_strategy_reduce(strategy, &i64s, STRATA_REDUCE_SUM, 0, &out, &err));
    cr_assert_eq(*(int64_t *)out.data, wanted, "%lld", (long long)*(int64_t *)out.data);
    strata_array_finish(&out);
    OK(strata_strategy_reduce(strategy, &i32s, STRATA_REDUCE_SUM, -1, &out, &err));
    cr_assert_eq(*(int32_t *)out.data, INT32_MIN + 11, "%d; it wraps like a sum of elements", *(int32_t *)out.data);
    strata_array_finish(&out);
    strata_per_replica_finish(&i64s);
    strata_per_replica_finish(&i32s);
    strata_strategy_destroy(strategy);
}

Test(custom, gather_puts_uneven_values_end_to_end) {
    strata_strategy *strategy = hosts(1);
    strata_per_replica values = {0};
    strata_array out = {0};
    OK(strata_per_replica_create(2, &values, &err));
    values.arrays[0] = strata_test_random(f32, STRATA_SHAPE(1, 2, 3), 0, 1, 1);
    values.arrays[1] = strata_test_random(f32, STRATA_SHAPE(1, 3, 3), 0, 1, 2);
    OK(strata_strategy_gather(strategy, &values, 1, &out, &err));
    cr_assert(strata_shape_equal(out.shape, STRATA_SHAPE(1, 5, 3)));
    cr_assert_arr_eq(out.data, values.arrays[0].data, 6 * sizeof(float));
    cr_assert_arr_eq((float *)out.data + 6, values.arrays[1].data, 9 * sizeof(float));
    strata_array_finish(&out);
    FAILS(strata_strategy_gather(strategy, &values, 0, &out, &err), "all other axes");
    strata_per_replica_finish(&values);
    strata_strategy_destroy(strategy);
}

/* ---- communication in a replica's function: all_reduce, all_gather, merge_call ---- */

static strata_status gather_and_weigh(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                      strata_error *inner) {
    strata_tensor *all = strata_replica_all_gather(replica, inputs[0], 0), *dx;
    (void)user;
    (void)inner;
    strata_gradients(strata_reduce_sum(strata_square(all), NULL, 0, false), NULL, inputs, 1, &dx);
    strata_replica_return(replica, all);
    strata_replica_return(replica, dx);
    strata_replica_return(replica,
                          strata_replica_all_reduce(replica, strata_reduce_sum(inputs[0], NULL, 0, false), STRATA_REDUCE_MEAN));
    return STRATA_OK;
}

Test(custom, a_variable_is_colocated_with_another) {
    strata_strategy *strategy = hosts(3), *other = hosts(1);
    strata_distributed_variable *weights = NULL, *slots = NULL;
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_create("weights", f32, STRATA_SHAPE(2), NULL, &weights, &err));
    OK(strata_strategy_exit(strategy, &err));
    const strata_distributed_options beside = {.synchronization = STRATA_ON_READ, .colocate_with = weights};
    OK(strata_distributed_create("slots", f32, STRATA_SHAPE(5), &beside, &slots, &err)); /* outside of any scope */
    for (int r = 0; r < 3; r++)
        cr_assert_eq(strata_distributed_copy(slots, r)->device, strata_distributed_copy(weights, r)->device);
    cr_assert_null(strata_distributed_copy(slots, 3));
    OK(strata_strategy_enter(other, &err));
    FAILS(strata_distributed_create("astray", f32, STRATA_SHAPE(5), &beside, &slots, &err), "of another strategy");
    OK(strata_strategy_exit(other, &err));
    strata_distributed_destroy(slots);
    strata_distributed_destroy(weights);
    strata_strategy_destroy(strategy);
    strata_strategy_destroy(other);
}

/* ---- sparse gradients ---- */

enum { SPARSE_ROWS = 11, SPARSE_COLUMNS = 3 };

static strata_status sum_rows(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *error) {
    (void)user, (void)error;
    strata_replica_return(replica, strata_replica_all_reduce_rows(replica, inputs[0], inputs[1], SPARSE_ROWS));
    return STRATA_OK;
}

/* Replica r has (5 r + 4) % 8 rows, so replica 4 has none. Some indices occur several times. */
Test(custom, rows_of_sparse_gradients_are_added_where_they_belong) {
    for (int n = 1; n <= 6; n++) {
        strata_strategy *strategy = hosts(n);
        strata_function *function = NULL;
        strata_per_replica inputs[2] = {{0}}, outputs = {0};
        float dense[SPARSE_ROWS][SPARSE_COLUMNS] = {{0}};
        uint32_t seed = 7;
        for (int i = 0; i < 2; i++) OK(strata_per_replica_create(n, &inputs[i], &err));
        for (int r = 0; r < n; r++) {
            const int64_t m = (5 * r + 4) % 8;
            OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(m, SPARSE_COLUMNS), &inputs[0].arrays[r], &err));
            OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(m), &inputs[1].arrays[r], &err));
            for (int64_t k = 0; k < m; k++) {
                seed = seed * 1664525u + 1013904223u;
                const int row = (int)(seed >> 16) % SPARSE_ROWS;
                ((int32_t *)inputs[1].arrays[r].data)[k] = row;
                for (int c = 0; c < SPARSE_COLUMNS; c++) {
                    /* whole numbers, whose sum does not depend on the order */
                    const float value = (float)(((int)(seed >> 8) + 31 * c) % 97) - 48;
                    ((float *)inputs[0].arrays[r].data)[k * SPARSE_COLUMNS + c] = value;
                    dense[row][c] += value;
                }
            }
        }
        OK(strata_function_create(strategy, sum_rows, NULL, &function, &err));
        OK(strata_strategy_run(function, inputs, 2, &outputs, 1, &err));
        for (int r = 0; r < n; r++) cr_assert_arr_eq(outputs.arrays[r].data, dense, sizeof dense, "replica %d of %d", r, n);
        strata_per_replica_finish(&outputs);
        for (int i = 0; i < 2; i++) strata_per_replica_finish(&inputs[i]);
        strata_function_destroy(function);
        strata_strategy_destroy(strategy);
    }
}

Test(custom, all_gather_knows_the_others_lengths_and_has_a_gradient) {
    for (int n = 1; n <= 4; n++) {
        strata_strategy *strategy = hosts(n);
        strata_function *function = NULL;
        strata_per_replica inputs = uneven(n), outputs[3] = {{0}};
        double mean = 0;
        OK(strata_function_create(strategy, gather_and_weigh, NULL, &function, &err));
        OK(strata_strategy_run(function, &inputs, 1, outputs, 3, &err));
        for (int r = 0, at = 0; r < n; r++)
            for (int k = 0; k <= r; k++, at++) {
                mean += (10.0 * r + k) / n;
                for (int other = 0; other < n; other++)
                    cr_assert_eq(((float *)outputs[0].arrays[other].data)[at], (float)(10 * r + k));
                /* the loss of every replica depends on all values, so each value gets gradients from all replicas */
                cr_assert_float_eq(((float *)outputs[1].arrays[r].data)[k], (float)n * 2 * (float)(10 * r + k), 1e-3);
            }
        for (int r = 0; r < n; r++) cr_assert_float_eq(first(&outputs[2].arrays[r]), mean, 1e-4);
        for (int i = 0; i < 3; i++) strata_per_replica_finish(&outputs[i]);
        strata_per_replica_finish(&inputs);
        strata_function_destroy(function);
        strata_strategy_destroy(strategy);
    }
}

static int merged;

/* results[r] is the sum of all values, plus r. */
static strata_status add_up(strata_strategy *strategy, const strata_per_replica *values, strata_per_replica *results,
                            void *user, strata_error *inner) {
    float sum = 0;
    merged++;
    cr_assert(strata_in_cross_replica_context());
    if (user) return strata_fail(inner, STRATA_DATA, "the merge function does not want to");
    for (int r = 0; r < values->n; r++) sum += first(&values->arrays[r]);
    for (int r = 0; r < strata_strategy_num_replicas_in_sync(strategy); r++) *(float *)results->arrays[r].data = sum + (float)r;
    return STRATA_OK;
}

static strata_status merging(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *inner) {
    (void)inner;
    strata_tensor *doubled = strata_add(inputs[0], inputs[0]);
    strata_replica_return(replica, strata_neg(strata_replica_merge_call(replica, add_up, user, doubled)));
    return STRATA_OK;
}

Test(custom, merge_call_runs_once_and_sees_all_replicas) {
    enum { N = 3 };
    const float numbers[N] = {1, 2, 3};
    strata_strategy *strategy = hosts(N);
    strata_function *function = NULL;
    strata_per_replica inputs = rows(numbers, (int64_t[]){1, 1, 1}, N), outputs = {0};
    merged = 0;
    OK(strata_function_create(strategy, merging, NULL, &function, &err));
    OK(strata_strategy_run(function, &inputs, 1, &outputs, 1, &err));
    cr_assert_eq(merged, 1);
    for (int r = 0; r < N; r++) cr_assert_eq(first(&outputs.arrays[r]), -(12 + (float)r));
    strata_function_destroy(function);
    OK(strata_function_create(strategy, merging, strategy, &function, &err));
    cr_assert_eq(strata_strategy_run(function, &inputs, 1, &outputs, 1, &err), STRATA_DATA);
    cr_assert_not_null(strstr(err.message, "merge_call: the merge function does not want to"), "%s", err.message);
    strata_function_destroy(function);
    strata_per_replica_finish(&inputs);
    strata_per_replica_finish(&outputs);
    strata_strategy_destroy(strategy);
}

/* ---- variables ---- */

static strata_status assign_input(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                  strata_error *inner) {
    (void)inner;
    strata_replica_assign(replica, user, inputs[0]);
    strata_replica_return(replica, strata_neg(inputs[0]));
    return STRATA_OK;
}

/* Replicas 0 to 3 assign 1, 2, 3 and 6. Returns the new value of the variable, or NAN if the run is refused. */
static double assigned(strata_synchronization synchronization, strata_aggregation aggregation) {
    enum { N = 4 };
    const float numbers[N] = {1, 2, 3, 6};
    strata_strategy *strategy = hosts(N);
    strata_distributed_variable *variable = NULL;
    strata_function *function = NULL;
    float result = NAN;
    strata_array value = strata_array_view(f32, STRATA_SHAPE(1), &result);
    strata_per_replica inputs = rows(numbers, (int64_t[]){1, 1, 1, 1}, N);
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_create("v", f32, STRATA_SHAPE(1),
                                 &(strata_distributed_options){.synchronization = synchronization, .aggregation = aggregation},
                                 &variable, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_function_create(strategy, assign_input, variable, &function, &err));
    if (!strata_strategy_run(function, &inputs, 1, NULL, 0, &err) && strata_distributed_get(variable, &value, &err))
        result = NAN;
    for (int r = 0; r < N && synchronization == STRATA_ON_WRITE && !isnan(result); r++) {
        float copy = 0;
        strata_array view = strata_array_view(f32, STRATA_SHAPE(1), &copy);
        OK(strata_variable_get(strata_distributed_copy(variable, r), &view, &err));
        cr_assert_eq(copy, result, "copy %d", r);
    }
    strata_per_replica_finish(&inputs);
    strata_function_destroy(function);
    strata_distributed_destroy(variable);
    strata_strategy_destroy(strategy);
    return (double)result;
}

Test(custom, what_replicas_write_is_aggregated_as_the_variable_says) {
    cr_assert(isnan(assigned(STRATA_ON_WRITE, STRATA_AGGREGATION_NONE)));
    cr_assert_not_null(strstr(err.message, "no aggregation"), "%s", err.message);
    cr_assert_float_eq(assigned(STRATA_ON_WRITE, STRATA_AGGREGATION_SUM), 12, 1e-6);
    cr_assert_float_eq(assigned(STRATA_ON_WRITE, STRATA_AGGREGATION_MEAN), 3, 1e-6);
    cr_assert_float_eq(assigned(STRATA_ON_WRITE, STRATA_AGGREGATION_ONLY_FIRST_REPLICA), 1, 1e-6);
    cr_assert(isnan(assigned(STRATA_ON_READ, STRATA_AGGREGATION_NONE)));
    cr_assert_not_null(strstr(err.message, "its own value"), "%s", err.message);
    cr_assert_float_eq(assigned(STRATA_ON_READ, STRATA_AGGREGATION_SUM), 12, 1e-6);
    cr_assert_float_eq(assigned(STRATA_ON_READ, STRATA_AGGREGATION_MEAN), 3, 1e-6);
    cr_assert_float_eq(assigned(STRATA_ON_READ, STRATA_AGGREGATION_ONLY_FIRST_REPLICA), 1, 1e-6);
}

Test(custom, a_sum_that_is_set_is_shared_out) {
    strata_strategy *strategy = hosts(2);
    strata_distributed_variable *variable = NULL;
    const strata_distributed_options summed = {.synchronization = STRATA_ON_READ, .aggregation = STRATA_AGGREGATION_SUM};
    float six = 6, copy = 0;
    strata_array value = strata_array_view(f32, STRATA_SHAPE(1), &six), view = strata_array_view(f32, STRATA_SHAPE(1), &copy);
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_create("v", f32, STRATA_SHAPE(1), &summed, &variable, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_distributed_set(variable, &value, &err));
    OK(strata_variable_get(strata_distributed_copy(variable, 1), &view, &err));
    cr_assert_eq(copy, 3);
    OK(strata_distributed_get(variable, &view, &err));
    cr_assert_eq(copy, 6);
    strata_distributed_destroy(variable);
    strata_strategy_destroy(strategy);
}

/* ---- devices of several kinds: only the first replica makes the update ---- */

static strata_status descend(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *inner) {
    strata_distributed_variable *w = user;
    strata_tensor *read = strata_replica_read(replica, w), *dw;
    (void)inner;
    strata_tensor *loss = strata_reduce_sum(strata_square(strata_sub(strata_exp(read), inputs[0])), NULL, 0, false);
    strata_gradients(loss, NULL, &read, 1, &dw);
    dw = strata_replica_all_reduce(replica, dw, STRATA_REDUCE_MEAN);
    strata_replica_update(replica, w, strata_sgd(strata_replica_read(replica, w), NULL, dw, inputs[1], NULL, 0, false));
    return STRATA_OK;
}

Test(custom, a_mixed_group_keeps_the_same_bits_for_200_steps) {
    const char *devices[] = {"opencl:0", "host"};
    const strata_strategy_options opts = {.devices = devices, .n_devices = 2};
    strata_strategy *strategy = NULL;
    strata_distributed_variable *w = NULL;
    strata_function *function = NULL;
    float words[STRATA_STEP_WORDS] = {[STRATA_STEP_LEARNING_RATE] = 0.01f}, copies[2][5];
    strata_array shared = strata_array_view(f32, STRATA_SHAPE(STRATA_STEP_WORDS), words);
    strata_per_replica inputs[2] = {{0}, {.n = 1, .arrays = &shared}};
    if (strata_strategy_create("mirrored", &opts, &strategy, NULL)) cr_skip_test("opencl:0 is not there");
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_create("w", f32, STRATA_SHAPE(5), NULL, &w, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_per_replica_create(2, &inputs[0], &err));
    for (int r = 0; r < 2; r++) inputs[0].arrays[r] = strata_test_random(f32, STRATA_SHAPE(5), 1, 3, (uint64_t)r + 1);
    OK(strata_function_create(strategy, descend, w, &function, &err));
    for (int s = 0; s < 200; s++) OK(strata_strategy_run(function, inputs, 2, NULL, 0, &err));
    for (int r = 0; r < 2; r++) {
        strata_array view = strata_array_view(f32, STRATA_SHAPE(5), copies[r]);
        OK(strata_variable_get(strata_distributed_copy(w, r), &view, &err));
    }
    cr_assert_arr_eq(copies[0], copies[1], sizeof copies[0]);
    for (int i = 0; i < 5; i++) {
        const float mean = (((float *)inputs[0].arrays[0].data)[i] + ((float *)inputs[0].arrays[1].data)[i]) / 2;
        cr_assert_float_eq(expf(copies[0][i]), mean, 1e-3);
    }
    strata_per_replica_finish(&inputs[0]);
    strata_function_destroy(function);
    strata_distributed_destroy(w);
    strata_strategy_destroy(strategy);
}

/* ---- data ---- */

static strata_dataset *numbers_dataset(float *numbers, int32_t *labels, int n, strata_array *x, strata_array *y) {
    strata_dataset *dataset = NULL;
    for (int i = 0; i < n; i++) numbers[i] = (float)(labels[i] = i);
    *x = strata_array_view(f32, STRATA_SHAPE(n, 1), numbers);
    *y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(n), labels);
    OK(strata_dataset_from_arrays(x, y, 0, &dataset, &err));
    return dataset;
}

Test(custom, batches_are_divided_and_every_example_is_seen_once) {
    float numbers[20];
    int32_t labels[20];
    strata_array x, y;
    strata_dataset *dataset = numbers_dataset(numbers, labels, 20, &x, &y);
    for (int n = 1; n <= 5; n++)
        for (int batch = 1; batch <= 20; batch++) {
            strata_strategy *strategy = hosts(n);
            strata_distributed_batches *batches = NULL;
            strata_per_replica values[2];
            int64_t size = 0, next = 0;
            const strata_distributed_batches_options opts = {.global_batch = batch};
            OK(strata_distributed_batches_create(strategy, dataset, &opts, &batches, &err));
            for (;;) {
                OK(strata_distributed_batches_next(batches, values, &size, &err));
                if (!size) break;
                for (int r = 0; r < n; r++)
                    for (int64_t i = 0; i < values[0].arrays[r].shape.dims[0]; i++, next++) {
                        cr_assert_eq(((float *)values[0].arrays[r].data)[i], (float)next);
                        cr_assert_eq(((int32_t *)values[1].arrays[r].data)[i], next);
                    }
            }
            cr_assert_eq(next, 20);
            strata_distributed_batches_destroy(batches);
            strata_strategy_destroy(strategy);
        }
    strata_dataset_destroy(dataset);
}

typedef struct made {
    strata_dataset *source;
    int calls;
} made;

static strata_status make_input(const strata_input_context *context, void *user, strata_dataset **out, strata_error *inner) {
    made *m = user;
    int64_t batch;
    m->calls++;
    cr_assert_eq(context->num_input_pipelines, 1);
    STRATA_TRY(strata_input_context_per_replica_batch(context, 8, &batch, inner));
    *out = strata_dataset_retain(m->source);
    return strata_dataset_batch(out, batch, false, inner);
}

Test(custom, a_function_makes_a_workers_input_once) {
    float numbers[20];
    int32_t labels[20];
    strata_array x, y;
    made m = {.source = numbers_dataset(numbers, labels, 20, &x, &y)};
    strata_strategy *four = hosts(4), *three = hosts(3);
    strata_distributed_batches *batches = NULL;
    strata_per_replica values[2];
    int64_t n = 0;
    const int64_t wanted[] = {8, 8, 4, 0};
    OK(strata_distributed_batches_from_function(four, make_input, &m, 0, 0, &batches, &err));
    for (int i = 0; i < 4; i++) {
        OK(strata_distributed_batches_next(batches, values, &n, &err));
        cr_assert_eq(n, wanted[i]);
        if (i == 2) {
            cr_assert_eq(values[0].arrays[1].shape.dims[0], 2);
            cr_assert_eq(values[0].arrays[3].shape.dims[0], 0, "the last replicas have none");
        }
    }
    cr_assert_eq(m.calls, 1);
    strata_distributed_batches_destroy(batches);
    FAILS(strata_distributed_batches_from_function(three, make_input, &m, 0, 0, &batches, &err), "does not divide");
    strata_strategy_destroy(four);
    strata_strategy_destroy(three);
    strata_dataset_destroy(m.source);
}

static strata_status ids(const strata_value_context *context, void *user, strata_array *out, strata_error *inner) {
    (void)user;
    STRATA_TRY(strata_array_create(f32, STRATA_SHAPE(1), out, inner));
    *(float *)out->data = (float)context->replica_id_in_sync_group;
    return STRATA_OK;
}

Test(custom, values_are_made_for_each_replica) {
    strata_strategy *strategy = hosts(3);
    strata_per_replica values = {0};
    int n = 0;
    OK(strata_strategy_distribute_values(strategy, ids, NULL, &values, &err));
    const strata_array *local = strata_strategy_local_results(&values, &n);
    cr_assert_eq(n, 3);
    for (int r = 0; r < n; r++) cr_assert_eq(first(&local[r]), (float)r);
    strata_per_replica_finish(&values);
    strata_strategy_destroy(strategy);
}

/* ---- ownership ---- */

/* Returns the mean of the batch's features over all replicas. */
static strata_status mean_of_inputs(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                    strata_error *inner) {
    (void)user, (void)inner;
    strata_replica_return(replica, strata_replica_average_loss(replica, strata_reduce_mean(inputs[0], (int[]){1}, 1, false)));
    return STRATA_OK;
}

/* Destroys the objects in different orders. The sanitizers report what is destroyed twice or not at all. */
Test(custom, what_was_made_with_a_strategy_goes_with_it) {
    for (int destroyed = 0; destroyed < 32; destroyed++) {
        strata_strategy *strategy = hosts(2);
        strata_model *model = NULL;
        strata_distributed_variable *variable = NULL;
        strata_distributed_optimizer *optimizer = NULL;
        strata_dataset *dataset = NULL;
        strata_distributed_batches *batches = NULL;
        strata_function *function = NULL;
        strata_per_replica inputs[2];
        int64_t n = 0;
        double loss = 0;
        OK(strata_strategy_enter(strategy, &err));
        OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
        strata_model_add_dense(model, (strata_dense_options){.units = 2});
        OK(strata_model_build(model, NULL, &(strata_compile_options){.strategy = strategy}, &err));
        OK(strata_distributed_create("v", f32, STRATA_SHAPE(2), NULL, &variable, &err));
        OK(strata_distributed_optimizer_create(&(strata_optimizer){.name = "adam"}, &optimizer, &err));
        OK(strata_strategy_exit(strategy, &err));
        OK(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(), 10, 7, &dataset, &err));
        OK(strata_distributed_batches_create(strategy, dataset, NULL, &batches, &err));
        OK(strata_function_create(strategy, mean_of_inputs, NULL, &function, &err));
        OK(strata_distributed_batches_next(batches, inputs, &n, &err));
        OK(strata_strategy_run_scalar(function, inputs, 1, STRATA_REDUCE_SUM, &loss, &err));
        cr_assert(n == 10 && loss > 0.2 && loss < 0.8, "%d numbers, their mean is %g", (int)n, loss);
        if (destroyed & 1) strata_function_destroy(function);
        if (destroyed & 2) strata_distributed_batches_destroy(batches);
        if (destroyed & 4) strata_distributed_optimizer_destroy(optimizer);
        if (destroyed & 8) strata_distributed_destroy(variable);
        if (destroyed & 16) strata_model_destroy(model);
        strata_strategy_destroy(strategy);
        strata_dataset_destroy(dataset);
    }
}

typedef struct late {
    strata_model *model;
    strata_distributed_variable *variable;
} late;

static strata_status use_late(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *inner) {
    const late *l = user;
    (void)inner;
    strata_tensor *y = strata_model_apply(l->model, replica, inputs[0], true);
    strata_tensor *more = strata_reduce_sum(strata_replica_read(replica, l->variable), NULL, 0, false);
    strata_replica_return(replica, strata_add(strata_reduce_sum(y, NULL, 0, false), more));
    return STRATA_OK;
}

/* The function uses variables that were created after it and are destroyed before it. */
static void destroy_in_order_of_age(const char *device) {
    strata_strategy *strategy = NULL;
    late l = {0};
    strata_function *function = NULL;
    float numbers[6] = {1, 2, 3, 4, 5, 6};
    strata_array x = strata_array_view(f32, STRATA_SHAPE(2, 3), numbers);
    const strata_per_replica inputs = {.n = 1, .arrays = &x, .n_rows = 2};
    double sum = 0;
    OK(strata_strategy_create("one_device", &(strata_strategy_options){.devices = &device, .n_devices = 1}, &strategy, &err));
    OK(strata_function_create(strategy, use_late, &l, &function, &err));
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_model_create(STRATA_SHAPE(3), &l.model, &err));
    strata_model_add_dense(l.model, (strata_dense_options){.units = 2});
    OK(strata_model_build(l.model, NULL, &(strata_compile_options){.strategy = strategy}, &err));
    OK(strata_distributed_create("v", f32, STRATA_SHAPE(2), NULL, &l.variable, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_strategy_run_scalar(function, &inputs, 1, STRATA_REDUCE_SUM, &sum, &err));
    strata_strategy_destroy(strategy);
}

Test(custom, a_function_may_be_older_than_what_it_uses) {
    static const char *const devices[] = {"host", "opencl:0", "vulkan:0"};
    for (int i = 0; i < 3; i++) {
        strata_device *device = NULL;
        if (strata_device_open(devices[i], NULL, &device, NULL)) continue;
        strata_device_close(device);
        destroy_in_order_of_age(devices[i]);
    }
}

/* ---- epochs ---- */

/* Writes the first feature of each batch of two epochs. asked: the second epoch is started by set_epoch, instead of by the
 * end of the first one. */
static int first_features(strata_strategy *strategy, strata_dataset *dataset, bool asked, float *out) {
    const strata_distributed_batches_options opts = {.global_batch = 4, .shuffle = true, .seed = 3, .epoch = 5};
    strata_distributed_batches *batches = NULL;
    strata_per_replica values[2];
    int64_t size = 0;
    int n = 0;
    OK(strata_distributed_batches_create(strategy, dataset, &opts, &batches, &err));
    for (uint64_t epoch = 5; epoch < 7; epoch++) {
        if (asked) OK(strata_distributed_batches_set_epoch(batches, epoch, &err));
        for (;;) {
            OK(strata_distributed_batches_next(batches, values, &size, &err));
            if (!size) break;
            out[n++] = *(const float *)values[0].arrays[0].data;
        }
    }
    strata_distributed_batches_destroy(batches);
    return n;
}

Test(custom, the_next_epoch_follows_the_end_of_one) {
    strata_strategy *strategy = hosts(2);
    strata_dataset *dataset = NULL;
    float asked[8], followed[8];
    OK(strata_dataset_random(STRATA_SHAPE(2), STRATA_SHAPE(), 10, 7, &dataset, &err));
    cr_assert_eq(first_features(strategy, dataset, true, asked), 6);
    cr_assert_eq(first_features(strategy, dataset, false, followed), 6);
    cr_assert_arr_eq(asked, followed, 6 * sizeof(float));
    cr_assert_neq(memcmp(followed, followed + 3, 3 * sizeof(float)), 0, "epochs are shuffled differently");
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
}
