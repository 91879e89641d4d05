/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of sparse parameters in the strategy parameter_server: sets of rows, and how a server updates and copies rows of
 * different widths. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "strata/strata.h"
#include "strategies/parameter_server/rows.h"
#include "strategies/parameter_server/stock.h"

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static uint32_t next_random(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

/* Expects that the set contains exactly the rows for which `used` is true, in ascending order. */
static void assert_set_is(const strata_ps_row_set *set, const bool *used) {
    int64_t n = 0;
    for (int64_t row = 0; row < set->n_rows; row++) {
        cr_assert_eq(set->places[row], used[row] ? n : -1, "row %lld of %lld", (long long)row, (long long)set->n_rows);
        if (used[row]) cr_assert_eq(set->ids[n++], row);
    }
    cr_assert_eq(set->n, n);
    cr_assert(set->ascending);
}

Test(ps_rows, many_rows_are_listed_once_in_ascending_order) {
    const int64_t sizes[] = {1, 2, 3, 4, 5, 31, 64, 1009};
    uint32_t state = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n_rows = sizes[s], n_ids = 2 * n_rows;
        const strata_parameter_spec spec = {.shape = STRATA_SHAPE(n_rows, 3)};
        strata_ps_row_set set;
        int32_t *ids = calloc((size_t)n_ids, sizeof *ids);
        bool *used = calloc((size_t)n_rows, sizeof *used);
        OK(strata_ps_row_set_make(&set, &spec, &err));
        for (uint32_t round = 0; round < 20; round++) {
            memset(used, 0, (size_t)n_rows * sizeof *used);
            /* Some ids are out of range. In later rounds the ids are from a smaller range. */
            for (int64_t i = 0; i < n_ids; i++) {
                ids[i] = (int32_t)(next_random(&state) >> 8) % (int32_t)(n_rows / (1 + round / 4) + 2) - 1;
                if (ids[i] >= 0 && ids[i] < n_rows) used[ids[i]] = true;
            }
            strata_ps_row_set_add_all(&set, ids, n_ids);
            assert_set_is(&set, used);
            strata_ps_row_set_clear(&set);
            for (int64_t row = 0; row < n_rows; row++) cr_assert_eq(set.places[row], -1);
        }
        strata_ps_row_set_finish(&set);
        free(ids);
        free(used);
    }
}

Test(ps_rows, few_rows_are_listed_in_their_order) {
    const strata_parameter_spec spec = {.shape = STRATA_SHAPE(1000, 2)};
    const int32_t ids[] = {7, 999, -1, 7, 0, 1000};
    strata_ps_row_set set;
    OK(strata_ps_row_set_make(&set, &spec, &err));
    strata_ps_row_set_add_all(&set, ids, sizeof ids / sizeof *ids);
    cr_assert_eq(set.n, 3);
    cr_assert_eq(set.ids[0], 7);
    cr_assert_eq(set.ids[1], 999);
    cr_assert_eq(set.ids[2], 0);
    cr_assert_not(set.ascending);
    strata_ps_row_set_finish(&set);
}

/* ---- rows on a server ---- */

enum { WORDS = 19, WIDEST = 130 };

/* A server with one embedding, whose elements are 0, 1, 2 ... Its other parameters are 0. */
typedef struct one_table {
    strata_model *model;
    strata_ps_plan plan;
    strata_ps_stock *store;
    int64_t n, at, width;
} one_table;

static one_table make_table(strata_device *device, int64_t width, bool sparse) {
    one_table t = {.width = width};
    const strata_partitioner whole = {0};
    OK(strata_model_create(STRATA_SHAPE(2), &t.model, &err));
    OK(strata_model_set_input_dtype(t.model, STRATA_DTYPE_I32, &err));
    strata_model_add_embedding(t.model, (strata_embedding_options){.vocabulary = WORDS, .units = width, .sparse = sparse});
    strata_model_add_flatten(t.model, (strata_flatten_options){0});
    strata_model_add_dense(t.model, (strata_dense_options){.units = 2});
    OK(strata_model_compile(t.model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01)}, &err));
    OK(strata_ps_plan_make(t.model, &whole, 1, &t.plan, &err));
    OK(strata_ps_stock_create(t.model, &t.plan, 0, device, &(strata_ps_stock_options){0}, &t.store, &err));
    t.n = strata_ps_plan_elements(&t.plan, 0);
    for (int i = 0; i < t.plan.n_shards; i++)
        if (t.plan.shards[i].n == WORDS * width && t.plan.shards[i].n_rows == WORDS)
            t.at = strata_ps_plan_value(&t.plan, &t.plan.shards[i], 0);
    float *values = calloc((size_t)t.n, sizeof *values);
    for (int64_t i = 0; i < WORDS * width; i++) values[t.at + i] = (float)i;
    OK(strata_ps_stock_set(t.store, values, 0, 0, &err));
    free(values);
    return t;
}

static void destroy_table(one_table *t) {
    strata_ps_stock_destroy(t->store);
    strata_ps_plan_finish(&t->plan);
    strata_model_destroy(t->model);
}

static float gradient(int64_t i, int step) {
    return (float)((i * 37 + step * 11) % 101 - 50) / 64;
}

/* Pushes gradients for all rows. */
static void push_all(one_table *t, int step) {
    const strata_ps_bundle *group = &t->plan.bundles[0];
    static const int32_t order[WORDS] = {3, 4, 5, 0, 18, 17, 1, 2, 6, 16, 8, 7, 9, 10, 11, 12, 15, 13, 14};
    float *rows = calloc((size_t)(WORDS * t->width), sizeof *rows),
          *dense = calloc((size_t)group->dense_elements + 1, sizeof *dense);
    const strata_ps_rows table = {WORDS, order, rows};
    int64_t staleness = 0;
    for (int64_t i = 0; i < WORDS; i++)
        for (int64_t c = 0; c < t->width; c++) rows[i * t->width + c] = gradient(order[i] * t->width + c, step);
    for (int k = 0; k < group->n_dense; k++)
        if (t->plan.shards[k].n == WORDS * t->width && t->plan.shards[k].n_rows == WORDS)
            for (int64_t i = 0; i < WORDS * t->width; i++) dense[t->plan.shards[k].before + i] = gradient(i, step);
    const strata_ps_gradients g = {
        .unit = {0, step, 0}, .version = step, .rate = STRATA_SCHEDULED_RATE, .dense = dense, .tables = &table};
    OK(strata_ps_stock_push(t->store, &g, &staleness, &err));
    free(rows);
    free(dense);
}

static const int64_t widths[] = {1, 3, 4, 15, 16, 17, 20, 64, 128, WIDEST};

Test(ps_rows, updates_of_rows_have_the_bits_of_a_dense_update) {
    strata_device *device = NULL;
    OK(strata_device_open("host", NULL, &device, &err));
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        one_table sparse = make_table(device, widths[w], true), dense = make_table(device, widths[w], false);
        float *a = calloc((size_t)sparse.n, sizeof *a), *b = calloc((size_t)dense.n, sizeof *b);
        int64_t t = 0;
        for (int step = 0; step < 5; step++) {
            push_all(&sparse, step);
            push_all(&dense, step);
        }
        OK(strata_ps_stock_get(sparse.store, a, &t, &err));
        OK(strata_ps_stock_get(dense.store, b, &t, &err));
        cr_assert_arr_eq(a + sparse.at, b + dense.at, (size_t)(WORDS * widths[w]) * sizeof *a, "rows of %lld elements",
                         (long long)widths[w]);
        cr_assert_neq(a[sparse.at + WORDS * widths[w] - 1], (float)(WORDS * widths[w] - 1), "nothing was updated");
        free(a);
        free(b);
        destroy_table(&sparse);
        destroy_table(&dense);
    }
    strata_device_close(device);
}

Test(ps_rows, a_pull_has_the_rows_that_were_asked_for) {
    static const int32_t ids[] = {18, 0, 1, 2, 7, 8, 5};
    enum { N = sizeof ids / sizeof *ids };
    static float rows[N * WIDEST + 1];
    strata_device *device = NULL;
    OK(strata_device_open("host", NULL, &device, &err));
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        one_table t = make_table(device, widths[w], true);
        const strata_ps_rows ask = {N, ids, rows};
        float *room = calloc((size_t)t.n, sizeof *room);
        int64_t version = -1;
        rows[N * widths[w]] = -7;
        OK(strata_ps_stock_pull(t.store, &ask, false, room, &version, &err));
        for (int64_t i = 0; i < N; i++)
            for (int64_t c = 0; c < widths[w]; c++)
                cr_assert_eq(rows[i * widths[w] + c], (float)(ids[i] * widths[w] + c), "rows of %lld elements",
                             (long long)widths[w]);
        cr_assert_eq(rows[N * widths[w]], -7, "it wrote past the last row");
        free(room);
        destroy_table(&t);
    }
    strata_device_close(device);
}
