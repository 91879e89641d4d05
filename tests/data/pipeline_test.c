/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages compared with tf.data's results (golden/pipeline.py wrote them), shuffling, positions, failures and threads. */
#include "strata/pipeline.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/data/dataset.h"
#include "core/data/stage/stage.h"

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* ---- sources ---- */

/* A dataset of the i32 scalars first, first + 1, ... end - 1. */
static strata_dataset *range(int first, int end) {
    strata_array x = {0};
    strata_dataset *data = NULL;
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(end - first), &x, &err));
    for (int i = first; i < end; i++) ((int32_t *)x.data)[i - first] = i;
    OK(strata_dataset_take_arrays(&x, NULL, 0, &data, &err));
    return data;
}

/* Element i is the vector 1 .. i, so lengths differ. */
static strata_status next_ragged(void *state, int64_t index, strata_element *out, bool *out_end, strata_error *e) {
    *out_end = index >= *(int *)state;
    if (*out_end) return STRATA_OK;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(index), &out->parts[0], e));
    for (int i = 0; i < index; i++) ((int32_t *)out->parts[0].data)[i] = i + 1;
    return STRATA_OK;
}

static strata_dataset *ragged(int n) {
    static int sizes[32];
    strata_dataset *data = NULL;
    sizes[n] = n;
    OK(strata_dataset_from_generator(
        &(strata_generator){.spec = {.n_parts = 1, .parts = {{STRATA_DTYPE_I32, STRATA_SHAPE(-1)}}},
                            .size = n,
                            .next = next_ragged,
                            .user = &sizes[n]},
        &data, &err));
    return data;
}

/* ---- callbacks ---- */

static strata_status square(strata_element *element, void *user, strata_error *e) {
    int32_t *x = element->parts[0].data;
    (void)user, (void)e;
    for (int64_t i = 0; i < strata_shape_elements(element->parts[0].shape); i++) x[i] *= x[i];
    return STRATA_OK;
}

static strata_status has_remainder(const strata_element *element, void *user, bool *out_keep, strata_error *e) {
    const int *of = user;
    (void)e;
    *out_keep = ((int32_t *)element->parts[0].data)[0] % of[0] == of[1];
    return STRATA_OK;
}

/* A dataset of 10 x, 10 x + 1, ... with *user elements, or x elements when *user is 0. */
static strata_status tens(const strata_element *element, void *user, strata_dataset **out_dataset, strata_error *e) {
    int x = ((int32_t *)element->parts[0].data)[0], n = *(int *)user ? *(int *)user : x;
    strata_array values;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &values, e));
    for (int i = 0; i < n; i++) ((int32_t *)values.data)[i] = 10 * x + i;
    return strata_dataset_take_arrays(&values, NULL, 0, out_dataset, e);
}

static const strata_element_spec scalar_spec = {.n_parts = 1, .parts = {{STRATA_DTYPE_I32, {0}}}};

/* ---- sequences as texts, in the format of the golden file ---- */

static void add_array(char *out, const strata_array *array) {
    int64_t n = strata_shape_elements(array->shape), row = array->shape.rank == 2 ? array->shape.dims[1] : n;
    for (int64_t i = 0; i < n; i++)
        sprintf(out + strlen(out), "%s%d", i == 0 ? "" : i % row == 0 ? "/" : " ", ((int32_t *)array->data)[i]);
}

/* Returns the elements of an epoch, from number `first` on. */
static const char *sequence_from(const strata_dataset *data, uint64_t seed, uint64_t epoch, int64_t first) {
    static char out[4096];
    strata_iterator *it = NULL;
    OK(strata_iterator_create(data, seed, epoch, first, &it, &err));
    out[0] = 0;
    for (int n = 0;; n++) {
        strata_element element;
        bool more;
        OK(strata_iterator_next(it, &element, &more, &err));
        if (!more) break;
        if (n) strcat(out, "|");
        for (int i = 0; i < element.n_parts; i++) {
            if (i) strcat(out, " ");
            add_array(out, &element.parts[i]);
        }
        strata_element_finish(&element);
    }
    strata_iterator_destroy(it);
    return out;
}

static const char *sequence(const strata_dataset *data) {
    return sequence_from(data, 1, 0, 0);
}

static const char *golden(const char *name) {
    static char lines[16384], out[2048];
    if (!lines[0]) {
        FILE *file = fopen(STRATA_TEST_SOURCE_DIR "/tests/data/golden/pipeline.txt", "rb");
        cr_assert_not_null(file);
        lines[0] = '\n';
        lines[1 + fread(lines + 1, 1, sizeof lines - 2, file)] = 0;
        fclose(file);
    }
    char key[64];
    snprintf(key, sizeof key, "\n%s:", name);
    const char *line = strstr(lines, key);
    cr_assert_not_null(line, "%s is not in the golden file", name);
    line += strlen(key);
    snprintf(out, sizeof out, "%.*s", (int)strcspn(line, "\n"), line);
    return out;
}

/* The dataset must give tf.data's elements, and when it is started at any position, the rest of them. Takes the dataset. */
static void is_golden(const char *name, strata_dataset *data) {
    char whole[4096];
    int n = 0;
    snprintf(whole, sizeof whole, "%s", sequence(data));
    cr_assert_str_eq(whole, golden(name), "%s", name);
    for (const char *rest = whole[0] ? whole : NULL; rest; n++) {
        cr_assert_str_eq(sequence_from(data, 1, 0, n), rest, "%s from %d", name, n);
        rest = strchr(rest, '|');
        if (rest) rest++;
    }
    cr_assert_str_eq(sequence_from(data, 1, 0, n + 3), "", "%s beyond its end", name);
    int64_t size = strata_dataset_size(data);
    cr_assert(size == n || size == STRATA_SIZE_UNKNOWN, "%s: size %d, elements %d", name, (int)size, n);
    strata_dataset_destroy(data);
}

Test(pipeline, batches_are_those_of_tf_data) {
    strata_dataset *d;
    OK(strata_dataset_batch((d = range(0, 10), &d), 4, false, &err));
    is_golden("batch", d);
    OK(strata_dataset_batch((d = range(0, 10), &d), 4, true, &err));
    is_golden("batch_drop", d);
    OK(strata_dataset_batch((d = range(0, 8), &d), 4, false, &err));
    is_golden("batch_whole", d);
    OK(strata_dataset_batch((d = range(0, 9), &d), 2, false, &err));
    OK(strata_dataset_batch(&d, 2, false, &err));
    is_golden("batch_batch", d);
    OK(strata_dataset_padded_batch((d = ragged(6), &d), 4, false, NULL, NULL, &err));
    is_golden("padded", d);
    OK(strata_dataset_padded_batch((d = ragged(5), &d), 3, false, (strata_shape[]){STRATA_SHAPE(5)}, NULL, &err));
    is_golden("padded_to_5", d);
    OK(strata_dataset_padded_batch((d = ragged(4), &d), 3, false, NULL, (double[]){9}, &err));
    is_golden("padded_with_9", d);
    OK(strata_dataset_padded_batch((d = ragged(5), &d), 2, true, NULL, NULL, &err));
    is_golden("padded_drop", d);
}

/* A shard skips elements between those that it returns, also from the end of one pass into the next. */
Test(pipeline, shard_of_repeat_continues_in_the_next_pass) {
    for (int size = 1; size < 6; size++)
        for (int n = 1; n < 8; n++)
            for (int count = 0; count < 4; count++) {
                char expected[256] = "";
                strata_dataset *d = range(0, size);
                OK(strata_dataset_repeat(&d, count, &err));
                OK(strata_dataset_shard(&d, n, n / 2, &err));
                OK(strata_dataset_take(&d, 9, &err));
                for (int i = n / 2, k = 0; k < 9 && (!count || i < count * size); i += n, k++)
                    sprintf(expected + strlen(expected), "%s%d", k ? "|" : "", i % size);
                cr_assert_str_eq(sequence(d), expected, "%d elements, %d times, part %d of %d", size, count, n / 2, n);
                strata_dataset_destroy(d);
            }
}

Test(pipeline, repeat_take_skip_shard_filter_are_those_of_tf_data) {
    strata_dataset *d;
    OK(strata_dataset_repeat((d = range(0, 3), &d), 3, &err));
    is_golden("repeat", d);
    OK(strata_dataset_repeat((d = range(0, 5), &d), 2, &err));
    OK(strata_dataset_batch(&d, 3, false, &err));
    is_golden("repeat_batch", d);
    OK(strata_dataset_batch((d = range(0, 5), &d), 3, false, &err));
    OK(strata_dataset_repeat(&d, 2, &err));
    is_golden("batch_repeat", d);
    OK(strata_dataset_take((d = range(0, 10), &d), 3, &err));
    is_golden("take", d);
    OK(strata_dataset_take((d = range(0, 3), &d), 10, &err));
    is_golden("take_more", d);
    OK(strata_dataset_take((d = range(0, 3), &d), 0, &err));
    is_golden("take_none", d);
    OK(strata_dataset_skip((d = range(0, 10), &d), 7, &err));
    is_golden("skip", d);
    OK(strata_dataset_skip((d = range(0, 3), &d), 5, &err));
    is_golden("skip_more", d);
    OK(strata_dataset_skip((d = range(0, 10), &d), 2, &err));
    OK(strata_dataset_take(&d, 3, &err));
    is_golden("skip_take", d);
    OK(strata_dataset_repeat((d = range(0, 3), &d), 0, &err));
    cr_assert_eq(strata_dataset_size(d), STRATA_SIZE_INFINITE);
    OK(strata_dataset_take(&d, 8, &err));
    is_golden("repeat_take", d);
    OK(strata_dataset_repeat((d = range(0, 3), &d), 0, &err));
    OK(strata_dataset_skip(&d, 7, &err));
    OK(strata_dataset_take(&d, 4, &err));
    is_golden("repeat_skip_take", d);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "shard_%d", i);
        OK(strata_dataset_shard((d = range(0, 10), &d), 3, i, &err));
        is_golden(name, d);
    }
    OK(strata_dataset_shard((d = range(0, 2), &d), 4, 3, &err));
    is_golden("shard_beyond", d);
    OK(strata_dataset_shard((d = range(0, 10), &d), 2, 1, &err));
    OK(strata_dataset_batch(&d, 2, false, &err));
    is_golden("shard_batch", d);
    OK(strata_dataset_batch((d = range(0, 10), &d), 2, false, &err));
    OK(strata_dataset_shard(&d, 2, 1, &err));
    is_golden("batch_shard", d);
    static int third[] = {3, 1}, even[] = {2, 0};
    OK(strata_dataset_filter((d = range(0, 10), &d), has_remainder, third, &err));
    is_golden("filter", d);
    OK(strata_dataset_filter((d = range(0, 10), &d), has_remainder, even, &err));
    OK(strata_dataset_batch(&d, 2, false, &err));
    is_golden("filter_batch", d);
}

Test(pipeline, map_cache_prefetch_zip_interleave_are_those_of_tf_data) {
    strata_dataset *d;
    OK(strata_dataset_map((d = range(0, 6), &d), square, NULL, NULL, &err));
    is_golden("map", d);
    OK(strata_dataset_map((d = range(0, 40), &d), square, NULL, &(strata_map_options){.threads = 4}, &err));
    is_golden("map_parallel", d);
    OK(strata_dataset_map((d = range(0, 6), &d), square, NULL, NULL, &err));
    OK(strata_dataset_batch(&d, 4, false, &err));
    OK(strata_dataset_map(&d, square, NULL, &(strata_map_options){.threads = 2}, &err));
    is_golden("map_batch_map", d);
    OK(strata_dataset_cache((d = range(0, 4), &d), &err));
    OK(strata_dataset_repeat(&d, 2, &err));
    is_golden("cache_repeat", d);
    OK(strata_dataset_prefetch((d = range(0, 6), &d), 2, &err));
    is_golden("prefetch", d);
    strata_dataset *two[] = {range(0, 5), range(10, 13)};
    OK(strata_dataset_zip(two, 2, &d, &err));
    is_golden("zip", d);
    cr_assert(!two[0] && !two[1]);
    static int sizes[] = {0, 3, 4, 5, 6};
    const struct {
        const char *name;
        int first, end, *inner, cycle;
        int64_t block;
    } cases[] = {{"interleave_1_1", 1, 4, &sizes[2], 1, 1},     {"interleave_2_1", 1, 6, &sizes[1], 2, 1},
                 {"interleave_2_2", 1, 5, &sizes[3], 2, 2},     {"interleave_3_4", 1, 6, &sizes[4], 3, 4},
                 {"interleave_growing", 0, 6, &sizes[0], 3, 2}, {"interleave_wide", 1, 3, &sizes[1], 7, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OK(strata_dataset_interleave((d = range(cases[i].first, cases[i].end), &d), tens, cases[i].inner,
                                     &(strata_interleave_options){cases[i].cycle, cases[i].block, scalar_spec}, &err));
        is_golden(cases[i].name, d);
    }
}

/* A dataset of two examples with inputs of these names, 1 and 2 columns wide, and targets, 3 and 2 columns wide. */
static strata_dataset *named(const char *const *inputs, int n_inputs, const char *const *targets, int n_targets) {
    static float values[6];
    static strata_array arrays[4];
    strata_data_column columns[4];
    strata_dataset *data = NULL;
    for (int i = 0; i < 4; i++) {
        arrays[i] = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, i < 2 ? 1 + i : 5 - i), values);
        columns[i] = (strata_data_column){.array = &arrays[i]};
    }
    for (int i = 0; i < n_inputs; i++) columns[i].name = inputs[i];
    for (int i = 0; i < n_targets; i++) columns[2 + i].name = targets[i];
    OK(strata_dataset_from_columns(columns, n_inputs, columns + 2, n_targets, &data, &err));
    return data;
}

Test(pipeline, zip_keeps_the_names_and_roles_of_all_parts) {
    static const char *const a[] = {"left", "right"}, *const b[] = {"price"}, *const c[] = {"colour"},
                             *const d[] = {"size", "age"};
    static const struct {
        const char *name;
        strata_part_role role;
        int64_t width;
    } wanted[] = {{"left", STRATA_PART_INPUT, 1},   {"price", STRATA_PART_TARGET, 3}, {"right", STRATA_PART_INPUT, 2},
                  {"colour", STRATA_PART_INPUT, 1}, {"size", STRATA_PART_TARGET, 3},  {"age", STRATA_PART_TARGET, 2}};
    strata_dataset *two[] = {named(a, 2, b, 1), named(c, 1, d, 2)}, *joined = NULL;
    OK(strata_dataset_zip(two, 2, &joined, &err));
    const strata_element_spec spec = strata_dataset_element_spec(joined);
    cr_assert_eq(spec.n_parts, 6);
    for (int i = 0; i < 6; i++) {
        cr_expect_str_eq(spec.names[i], wanted[i].name);
        cr_expect_eq(spec.roles[i], wanted[i].role, "%s", spec.names[i]);
        cr_expect_eq(spec.parts[i].shape.dims[0], wanted[i].width, "%s", spec.names[i]);
    }
    strata_dataset_destroy(joined);
}

/* ---- shuffle ---- */

static void numbers_of(const strata_dataset *data, uint64_t seed, uint64_t epoch, int *out, int n) {
    strata_iterator *it = NULL;
    OK(strata_iterator_create(data, seed, epoch, 0, &it, &err));
    for (int i = 0; i <= n; i++) {
        strata_element element;
        bool more;
        OK(strata_iterator_next(it, &element, &more, &err));
        cr_assert_eq(more, i < n);
        if (more) out[i] = ((int32_t *)element.parts[0].data)[0];
        strata_element_finish(&element);
    }
    strata_iterator_destroy(it);
}

Test(pipeline, a_shuffle_is_a_permutation_within_its_buffer) {
    enum { N = 200 };
    const int64_t buffers[] = {0, 1, 2, 7, 50, 200, 1000};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++) {
        strata_dataset *d = range(0, N);
        int order[N], again[N], other[N], seen[N] = {0}, moved = 0;
        OK(strata_dataset_shuffle(&d, &(strata_shuffle_options){.buffer = buffers[k]}, &err));
        numbers_of(d, 5, 3, order, N);
        numbers_of(d, 5, 3, again, N);
        cr_assert(!memcmp(order, again, sizeof order));
        for (int i = 0; i < N; i++) {
            seen[order[i]]++;
            cr_assert(!buffers[k] || order[i] < i + buffers[k], "element %d at %d from a buffer of %d", order[i], i,
                      (int)buffers[k]);
            moved += order[i] != i;
        }
        for (int i = 0; i < N; i++) cr_assert_eq(seen[i], 1);
        cr_assert(buffers[k] == 1 ? moved == 0 : moved > N / 4, "buffer %d: %d moved", (int)buffers[k], moved);
        numbers_of(d, 5, 4, other, N);
        cr_assert(buffers[k] == 1 || memcmp(order, other, sizeof order), "another epoch has another order");
        numbers_of(d, 6, 3, other, N);
        cr_assert(buffers[k] == 1 || memcmp(order, other, sizeof order), "another seed has another order");
        char rest[4096];
        snprintf(rest, sizeof rest, "%s", sequence_from(d, 5, 3, 0));
        const char *at = rest;
        for (int i = 0; i < 100; i++) at = strchr(at, '|') + 1;
        char tail[4096];
        snprintf(tail, sizeof tail, "%s", at);
        cr_assert_str_eq(sequence_from(d, 5, 3, 100), tail);
        strata_dataset_destroy(d);
    }
}

Test(pipeline, a_full_shuffle_of_arrays_is_the_order_of_fit) {
    strata_dataset *d = range(0, 100);
    strata_order *order = NULL;
    int numbers[100];
    int32_t fetched[100];
    OK(strata_order_create(100, true, 7, 2, &order, &err));
    strata_dataset_fetch(d, order, 0, 100, fetched, NULL);
    OK(strata_dataset_shuffle(&d, NULL, &err));
    numbers_of(d, 7, 2, numbers, 100);
    for (int i = 0; i < 100; i++) cr_assert_eq(numbers[i], fetched[i]);
    /* another shuffle stage uses other random numbers */
    OK(strata_dataset_shuffle(&d, &(strata_shuffle_options){.buffer = 10}, &err));
    numbers_of(d, 7, 2, numbers, 100);
    strata_order_destroy(order);
    strata_dataset_destroy(d);
    d = range(0, 100);
    OK(strata_dataset_shuffle(&d, &(strata_shuffle_options){.same_each_epoch = true}, &err));
    int other[100];
    numbers_of(d, 7, 2, numbers, 100);
    numbers_of(d, 7, 5, other, 100);
    cr_assert(!memcmp(numbers, other, sizeof numbers));
    strata_dataset_destroy(d);
}

/* If shuffle comes before repeat, each pass contains every element once, in an order of its own. If it comes after repeat,
 * it mixes the passes. */
Test(pipeline, repeat_keeps_or_mixes_epochs) {
    strata_dataset *d = range(0, 20);
    int order[60], seen[20];
    OK(strata_dataset_shuffle(&d, NULL, &err));
    OK(strata_dataset_repeat(&d, 3, &err));
    numbers_of(d, 1, 0, order, 60);
    for (int pass = 0; pass < 3; pass++) {
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < 20; i++) seen[order[20 * pass + i]]++;
        for (int i = 0; i < 20; i++) cr_assert_eq(seen[i], 1);
    }
    cr_assert(memcmp(order, order + 20, 20 * sizeof *order) && memcmp(order + 20, order + 40, 20 * sizeof *order));
    strata_dataset_destroy(d);
    d = range(0, 20);
    OK(strata_dataset_repeat(&d, 3, &err));
    OK(strata_dataset_shuffle(&d, NULL, &err));
    numbers_of(d, 1, 0, order, 60);
    int twice = 0;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 20; i++) twice += seen[order[i]]++ > 0;
    cr_assert_gt(twice, 0);
    strata_dataset_destroy(d);
}

/* ---- keys ---- */

static strata_status stamp(strata_element *element, void *user, strata_error *e) {
    (void)user, (void)e;
    ((int32_t *)element->parts[0].data)[0] = (int32_t)(strata_key_random(&element->key, 0) >> 2);
    return STRATA_OK;
}

/* The random numbers of a map depend on the element, and not on shuffle, shard or threads. They change with the epoch, also
 * when there is a cache below. */
Test(pipeline, what_a_map_draws_is_keyed_by_the_element) {
    enum { N = 30 };
    int plain[N], threaded[N], next_epoch[N], sharded[N / 2], cached[N], n = 0;
    strata_dataset *d = range(0, N);
    OK(strata_dataset_map(&d, stamp, NULL, NULL, &err));
    numbers_of(d, 9, 1, plain, N);
    numbers_of(d, 9, 2, next_epoch, N);
    strata_dataset_destroy(d);
    for (int i = 0; i < N; i++) n += plain[i] == next_epoch[i];
    cr_assert_eq(n, 0);
    d = range(0, N);
    OK(strata_dataset_map(&d, stamp, NULL, &(strata_map_options){.threads = 3}, &err));
    numbers_of(d, 9, 1, threaded, N);
    cr_assert(!memcmp(plain, threaded, sizeof plain));
    strata_dataset_destroy(d);
    d = range(0, N);
    OK(strata_dataset_shard(&d, 2, 1, &err));
    OK(strata_dataset_map(&d, stamp, NULL, NULL, &err));
    numbers_of(d, 9, 1, sharded, N / 2);
    for (int i = 0; i < N / 2; i++) cr_assert_eq(sharded[i], plain[2 * i + 1]);
    strata_dataset_destroy(d);
    d = range(0, N);
    OK(strata_dataset_cache(&d, &err));
    OK(strata_dataset_map(&d, stamp, NULL, NULL, &err));
    numbers_of(d, 9, 1, cached, N);
    cr_assert(!memcmp(plain, cached, sizeof plain));
    numbers_of(d, 9, 2, cached, N);
    cr_assert(!memcmp(next_epoch, cached, sizeof cached));
    strata_dataset_destroy(d);
}

static strata_status count_call(strata_element *element, void *user, strata_error *e) {
    (void)element, (void)e;
    ++*(int *)user;
    return STRATA_OK;
}

Test(pipeline, a_cache_calls_what_is_below_once) {
    int calls = 0, numbers[10];
    strata_dataset *d = range(0, 10);
    OK(strata_dataset_map(&d, count_call, &calls, NULL, &err));
    OK(strata_dataset_cache(&d, &err));
    for (uint64_t epoch = 3; epoch < 6; epoch++) numbers_of(d, 1, epoch, numbers, 10);
    cr_assert_eq(calls, 10);
    strata_dataset_destroy(d);
}

/* ---- failures and threads ---- */

static strata_status fail_at_13(strata_element *element, void *user, strata_error *e) {
    (void)user;
    usleep(element->key.index % 3 * 300);
    if (element->key.index == 13) return strata_fail(e, STRATA_DATA, "unlucky");
    return STRATA_OK;
}

Test(pipeline, a_failing_map_is_reported_after_the_elements_before_it) {
    for (int threads = 0; threads <= 8; threads += 4) {
        strata_dataset *d = range(0, 40);
        strata_iterator *it = NULL;
        OK(strata_dataset_map(&d, fail_at_13, NULL, &(strata_map_options){.threads = threads}, &err));
        OK(strata_dataset_prefetch(&d, 3, &err));
        OK(strata_iterator_create(d, 1, 4, 0, &it, &err));
        strata_element element;
        bool more;
        for (int i = 0; i < 13; i++) {
            OK(strata_iterator_next(it, &element, &more, &err));
            cr_assert_eq(((int32_t *)element.parts[0].data)[0], i);
            strata_element_finish(&element);
        }
        for (int again = 0; again < 2; again++) {
            cr_assert_eq(strata_iterator_next(it, &element, &more, &err), STRATA_DATA);
            cr_assert_str_eq(err.message, "map: element 13, epoch 4: unlucky");
        }
        strata_iterator_destroy(it);
        strata_dataset_destroy(d);
    }
}

Test(pipeline, an_iterator_may_be_left_at_any_time) {
    for (int taken = 0; taken < 12; taken++) {
        strata_dataset *d = range(0, 10);
        strata_iterator *it = NULL;
        OK(strata_dataset_map(&d, fail_at_13, NULL, &(strata_map_options){.threads = 3}, &err));
        OK(strata_dataset_shuffle(&d, &(strata_shuffle_options){.buffer = 4}, &err));
        OK(strata_dataset_prefetch(&d, 2, &err));
        OK(strata_iterator_create(d, 1, 0, 0, &it, &err));
        for (int i = 0; i < taken; i++) {
            strata_element element;
            bool more;
            OK(strata_iterator_next(it, &element, &more, &err));
            cr_assert_eq(more, i < 10);
            strata_element_finish(&element);
        }
        strata_iterator_destroy(it);
        strata_dataset_destroy(d);
    }
}

static strata_status wrong_shape(strata_element *element, void *user, strata_error *e) {
    (void)user;
    strata_array_finish(&element->parts[0]);
    return strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(2), &element->parts[0], e);
}

static void next_fails(strata_dataset *d, strata_status status, const char *part) {
    strata_iterator *it = NULL;
    strata_element element;
    bool more = true;
    OK(strata_iterator_create(d, 1, 0, 0, &it, &err));
    strata_status got = STRATA_OK;
    while (!got && more) {
        got = strata_iterator_next(it, &element, &more, &err);
        strata_element_finish(&element);
    }
    cr_assert_eq(got, status, "%s", err.message);
    cr_assert(strstr(err.message, part), "%s", err.message);
    strata_iterator_destroy(it);
    strata_dataset_destroy(d);
}

static strata_status no_more(void *state, int64_t index, strata_element *out, bool *out_end, strata_error *e) {
    (void)state, (void)out, (void)out_end;
    return index < 2 ? strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(), &out->parts[0], e)
                     : strata_fail(e, STRATA_UNAVAILABLE, "gone");
}

Test(pipeline, what_does_not_fit_is_named) {
    strata_dataset *d = range(0, 5);
    OK(strata_dataset_map(&d, wrong_shape, NULL, NULL, &err));
    next_fails(d, STRATA_DATA, "map: part 0 of element 0 is i32 (2), but the spec has i32 ()");
    d = ragged(4);
    OK(strata_dataset_batch(&d, 3, false, &err));
    next_fails(d, STRATA_DATA, "batch: part 0 of element 1 is i32 (1), the first of the batch (0); use padded_batch");
    d = ragged(6);
    OK(strata_dataset_padded_batch(&d, 6, false, (strata_shape[]){STRATA_SHAPE(3)}, NULL, &err));
    next_fails(d, STRATA_DATA, "padded_batch: part 0 of element 4 is i32 (4), the batch's (3); it must fit");
    OK(strata_dataset_from_generator(&(strata_generator){.spec = scalar_spec, .size = STRATA_SIZE_UNKNOWN, .next = no_more}, &d,
                                     &err));
    OK(strata_dataset_prefetch(&d, 2, &err));
    next_fails(d, STRATA_UNAVAILABLE, "generator: element 2, epoch 0: gone");
}

Test(pipeline, refuses_wrong_options_and_leaves_the_dataset) {
    strata_dataset *d = range(0, 5), *before = d, *none = NULL;
    cr_assert_eq(strata_dataset_batch(&d, 0, false, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_take(&d, -1, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_skip(&d, -1, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_repeat(&d, -1, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_shard(&d, 3, 3, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_shuffle(&d, &(strata_shuffle_options){.buffer = -1}, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_map(&d, NULL, NULL, NULL, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_map(&d, square, NULL, &(strata_map_options){.threads = 65}, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_filter(&d, NULL, NULL, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_prefetch(&d, 0, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_interleave(&d, NULL, NULL, NULL, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_padded_batch(&d, 2, false, (strata_shape[]){STRATA_SHAPE(2)}, NULL, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_from_generator(&(strata_generator){.spec = scalar_spec}, &none, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_zip(&d, 0, &none, &err), STRATA_INVALID);
    cr_assert(d == before && !none);
    OK(strata_dataset_repeat(&d, 0, &err));
    cr_assert_eq(strata_dataset_cache(&d, &err), STRATA_INVALID);
    cr_assert_eq(strata_dataset_shuffle(&d, NULL, &err), STRATA_INVALID);
    strata_dataset_destroy(d);
}

Test(pipeline, two_pipelines_may_share_a_source) {
    strata_dataset *train = range(0, 10), *held_out = strata_dataset_retain(train);
    OK(strata_dataset_take(&train, 8, &err));
    OK(strata_dataset_skip(&held_out, 8, &err));
    cr_assert_str_eq(sequence(train), "0|1|2|3|4|5|6|7");
    strata_dataset_destroy(train);
    cr_assert_str_eq(sequence(held_out), "8|9");
    strata_dataset_destroy(held_out);
}

/* ---- augmentation ---- */

enum { SIDE = 6, PICTURES = 200 };

/* Returns the pixel's value in the second channel of the picture. */
static double second_channel(const strata_array *picture, int row, int column) {
    return strata_element_get(picture->dtype, picture->data, (row * SIDE + column) * 2 + 1);
}

static bool is_moved(const strata_array *out, const strata_array *in, int flip, int down, int right) {
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SIDE; c++) {
            const int from_r = r + down, from_c = (flip ? SIDE - 1 - c : c) + right;
            const bool inside = from_r >= 0 && from_r < SIDE && from_c >= 0 && from_c < SIDE;
            if (second_channel(out, r, c) != (inside ? second_channel(in, from_r, from_c) : 0)) return false;
        }
    return true;
}

static void check_moves(strata_dataset *d, const strata_array *picture) {
    strata_iterator *it = NULL;
    strata_flip_crop options = {.flip = true, .padding = 2};
    int flips = 0, shifts[5][5] = {{0}};
    OK(strata_dataset_map(&d, strata_augment_flip_crop, &options, &(strata_map_options){.threads = 2}, &err));
    OK(strata_iterator_create(d, 4, 1, 0, &it, &err));
    for (int i = 0; i < PICTURES; i++) {
        strata_element e;
        bool more;
        OK(strata_iterator_next(it, &e, &more, &err));
        int found = 0;
        for (int way = 0; way < 50; way++) {
            const int flip = way / 25, down = way / 5 % 5 - 2, right = way % 5 - 2;
            if (is_moved(&e.parts[0], picture, flip, down, right)) found++, flips += flip, shifts[down + 2][right + 2]++;
        }
        cr_assert_eq(found, 1, "picture %d is %d of the allowed ones", i, found);
        strata_element_finish(&e);
    }
    strata_iterator_destroy(it);
    strata_dataset_destroy(d);
    cr_assert(flips > PICTURES / 2 - 40 && flips < PICTURES / 2 + 40, "%d flips", flips);
    for (int i = 0; i < 25; i++) cr_assert_gt(shifts[i / 5][i % 5], 0);
}

/* All pictures are equal. They are f32 or bytes. */
Test(pipeline, flip_and_crop_move_pixels_by_the_key) {
    enum { SIZE = SIDE * SIDE * 2 };
    static float numbers[PICTURES * SIZE];
    static uint8_t bytes[PICTURES * SIZE];
    for (int i = 0; i < PICTURES * SIZE; i++) numbers[i] = bytes[i] = (uint8_t)(i % SIZE + 1);
    const strata_shape shape = STRATA_SHAPE(PICTURES, SIDE, SIDE, 2);
    const strata_array all[] = {strata_array_view(STRATA_DTYPE_F32, shape, numbers),
                                strata_array_view(STRATA_DTYPE_U8, shape, bytes)};
    for (int i = 0; i < 2; i++) {
        strata_dataset *d = NULL;
        OK(strata_dataset_from_arrays(&all[i], NULL, 0, &d, &err));
        if (i) OK(strata_dataset_keep_bytes(d, &err));
        check_moves(d, &all[i]);
    }
}

/* ---- what a stage keeps ---- */

static strata_status same_element(strata_element *element, void *user, strata_error *e) {
    (void)element, (void)user, (void)e;
    return STRATA_OK;
}

static strata_status keep_all(const strata_element *element, void *user, bool *out_keep, strata_error *e) {
    (void)element, (void)user, (void)e;
    *out_keep = true;
    return STRATA_OK;
}

/* Each stage passes on what the dataset before it says about its classes, its file and its labels, so that training through any
 * pipeline names them as training on the dataset itself. */
Test(stages, each_keeps_classes_source_and_labels) {
    enum { SHUFFLE, TAKE, SKIP, REPEAT, SHARD, MAP, FILTER, CACHE, PREFETCH, BATCH, HINT, N_STAGES };
    for (int stage = 0; stage < N_STAGES; stage++) {
        strata_array x, y;
        strata_dataset *data = NULL;
        OK(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(6, 2), &x, &err));
        OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(6), &y, &err));
        for (int i = 0; i < 6; i++) ((int32_t *)y.data)[i] = i % 3;
        memset(x.data, 7, 12);
        OK(strata_dataset_take_arrays(&x, &y, 0.5, &data, &err));
        const char *const names[] = {"ant", "bee", "cow"};
        OK(strata_dataset_set_facts(data, &(strata_dataset_facts){.class_names = names, .n_class_names = 3}, &err));
        data->source = strdup("animals.csv");
        OK(strata_dataset_keep_bytes(data, &err));
        OK(stage == SHUFFLE    ? strata_dataset_shuffle(&data, &(strata_shuffle_options){.buffer = 3}, &err)
           : stage == TAKE     ? strata_dataset_take(&data, 6, &err)
           : stage == SKIP     ? strata_dataset_skip(&data, 0, &err)
           : stage == REPEAT   ? strata_dataset_repeat(&data, 1, &err)
           : stage == SHARD    ? strata_dataset_shard(&data, 1, 0, &err)
           : stage == MAP      ? strata_dataset_map(&data, same_element, NULL, NULL, &err)
           : stage == FILTER   ? strata_dataset_filter(&data, keep_all, NULL, &err)
           : stage == CACHE    ? strata_dataset_cache(&data, &err)
           : stage == PREFETCH ? strata_dataset_prefetch(&data, 2, &err)
           : stage == BATCH    ? strata_dataset_batch(&data, 2, false, &err)
                               : strata_dataset_shard_hint(&data, &err));
        cr_expect(strata_dataset_has_labels(data), "stage %d", stage);
        cr_expect_eq(strata_dataset_n_classes(data), 3, "stage %d: %d classes", stage, (int)strata_dataset_n_classes(data));
        for (int c = 0; c < 4; c++) {
            const char *name = strata_dataset_class_name(data, c);
            cr_expect(c < 3 ? name && !strcmp(name, (const char *[]){"ant", "bee", "cow"}[c]) : !name, "stage %d, class %d: %s",
                      stage, c, name ? name : "none");
        }
        const char *source = strata_dataset_source(data);
        cr_expect(source && !strcmp(source, "animals.csv"), "stage %d: %s", stage, source ? source : "none");
        cr_expect_eq(data->scale, 0.5, "stage %d: scale %g", stage, data->scale);
        strata_dataset_destroy(data);
    }
}
