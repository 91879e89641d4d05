/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets of arrays and files, the order of the elements in an epoch, and the contents of a batch. */
#include "strata/dataset.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/data/dataset.h"
#include "core/data/format/npy.h"
#include "strata/pipeline.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/npy.h"

TestSuite(dataset, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static void fails(strata_status got, strata_status wanted, const char *text) {
    cr_assert_eq(got, wanted, "%s: %s", strata_status_name(got), err.message);
    cr_assert_not_null(strstr(err.message, text), "\"%s\" lacks \"%s\"", err.message, text);
}

/* ---- order ---- */

/* Writes the order as indices, which are the values of the elements of a dataset 0, 1, ... n - 1. */
static void order_of(int64_t n, bool shuffle, uint64_t seed, uint64_t epoch, float *out) {
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(n), 0);
    for (int64_t i = 0; i < n; i++) ((float *)x.data)[i] = (float)i;
    OK(strata_dataset_take_arrays(&x, NULL, 0, &data, &err));
    OK(strata_order_create(n, shuffle, seed, epoch, &order, &err));
    strata_dataset_fetch(data, order, 0, n, out, NULL);
    strata_order_destroy(order);
    strata_dataset_destroy(data);
}

static int same_places(const float *a, const float *b, int n) {
    int same = 0;
    for (int i = 0; i < n; i++) same += a[i] == b[i];
    return same;
}

Test(dataset, order_is_a_permutation) {
    const int sizes[] = {1, 2, 3, 5, 64, 1000, 1237};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        float order[1237];
        bool seen[1237] = {false};
        order_of(sizes[k], true, 7, 1, order);
        for (int i = 0; i < sizes[k]; i++) {
            cr_assert(order[i] >= 0 && order[i] < (float)sizes[k] && !seen[(int)order[i]], "%d of %d", i, sizes[k]);
            seen[(int)order[i]] = true;
        }
    }
}

Test(dataset, order_is_keyed_by_seed_and_epoch) {
    enum { N = 1000 };
    static float first[N], other[N];
    order_of(N, true, 7, 1, first);
    order_of(N, true, 7, 1, other);
    cr_assert_eq(same_places(first, other, N), N);
    const struct {
        uint64_t seed, epoch;
    } keys[] = {{8, 1}, {7, 2}, {1, 7}, {7 + (UINT64_C(1) << 32), 1}, {7, 1 + (UINT64_C(1) << 32)}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        order_of(N, true, keys[k].seed, keys[k].epoch, other);
        cr_assert_lt(same_places(first, other, N), 10, "key %zu: of two shuffles about one place is the same", k);
    }
    order_of(N, false, 7, 1, other);
    for (int i = 0; i < N; i++) cr_assert_eq(other[i], (float)i);
}

/* In 5000 epochs each of 5 elements must come to each position about 1000 times, within five standard deviations. */
Test(dataset, order_is_uniform) {
    int counts[5][5] = {{0}};
    for (uint64_t epoch = 0; epoch < 5000; epoch++) {
        float order[5];
        order_of(5, true, 3, epoch, order);
        for (int i = 0; i < 5; i++) counts[i][(int)order[i]]++;
    }
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++) cr_assert(abs(counts[i][k] - 1000) < 142, "element %d at %d: %d times", k, i, counts[i][k]);
}

Test(dataset, order_refuses_impossible_sizes) {
    strata_order *order = NULL;
    fails(strata_order_create(-1, true, 0, 0, &order, &err), STRATA_INVALID, "-1");
    fails(strata_order_create(INT64_C(1) << 32, false, 0, 0, &order, &err), STRATA_INVALID, "4294967296");
    OK(strata_order_create(0, true, 0, 0, &order, &err));
    strata_order_destroy(order);
    strata_order_destroy(NULL);
}

/* ---- arrays ---- */

Test(dataset, fetch_gathers_scales_and_converts) {
    uint8_t pixels[5 * 2] = {0, 1, 2, 3, 100, 200, 254, 255, 7, 8};
    int64_t labels[5] = {4, 0, 2, 1, 3};
    strata_array x = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(5, 1, 2), pixels);
    strata_array y = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(5), labels);
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    OK(strata_dataset_from_arrays(&x, &y, 1.0 / 255, &data, &err));
    cr_assert(strata_dataset_size(data) == 5 && strata_dataset_has_labels(data) && strata_dataset_n_classes(data) == 5);
    cr_assert(strata_shape_equal(strata_dataset_element_shape(data), STRATA_SHAPE(1, 2)));
    cr_assert_eq(strata_dataset_label_dtype(data), STRATA_DTYPE_I32);
    OK(strata_order_create(5, false, 0, 0, &order, &err));
    float features[7];
    int32_t classes[4] = {-1, -1, -1, -1};
    features[6] = -5;
    strata_dataset_fetch(data, order, 1, 3, features, classes);
    for (int i = 0; i < 6; i++) cr_assert_eq(features[i], (float)pixels[2 + i] * (float)(1.0 / 255), "%d", i);
    cr_assert(classes[0] == 0 && classes[1] == 2 && classes[2] == 1);
    cr_assert(features[6] == -5 && classes[3] == -1, "it wrote behind what was asked for");
    strata_dataset_fetch(data, order, 4, 1, features, NULL);
    cr_assert(features[0] == 7 * (float)(1.0 / 255) && features[1] == 8 * (float)(1.0 / 255));
    strata_order_destroy(order);

    OK(strata_order_create(5, true, 1, 1, &order, &err));
    float all[10];
    int32_t all_labels[5];
    strata_dataset_fetch(data, order, 0, 5, all, all_labels);
    for (int i = 0; i < 5; i++) { /* each feature has its own label */
        int element = 0;
        while (labels[element] != all_labels[i]) element++;
        cr_assert_eq(all[2 * i], (float)pixels[2 * element] * (float)(1.0 / 255));
    }
    /* a range of the order gives the same as that range of the whole */
    strata_dataset_fetch(data, order, 3, 2, features, classes);
    cr_assert(!memcmp(features, all + 6, 4 * sizeof *all) && !memcmp(classes, all_labels + 3, 2 * sizeof *classes));
    strata_order_destroy(order);
    strata_dataset_destroy(data);
}

Test(dataset, labels_of_every_kind) {
    float x_values[3] = {1, 2, 3}, got_x[3];
    const struct {
        strata_dtype given, fetched;
        int64_t n_classes;
    } kinds[] = {{STRATA_DTYPE_U8, STRATA_DTYPE_I32, 8},
                 {STRATA_DTYPE_I32, STRATA_DTYPE_I32, 8},
                 {STRATA_DTYPE_I64, STRATA_DTYPE_I32, 8},
                 {STRATA_DTYPE_F32, STRATA_DTYPE_F32, 0}};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), x_values);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        strata_array y = strata_test_array(kinds[k].given, STRATA_SHAPE(3), (double[]){7, 0, 3});
        strata_dataset *data = NULL;
        strata_order *order = NULL;
        uint32_t got[3];
        OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
        cr_assert_eq(strata_dataset_label_dtype(data), kinds[k].fetched);
        cr_assert_eq(strata_dataset_n_classes(data), kinds[k].n_classes);
        OK(strata_order_create(3, false, 0, 0, &order, &err));
        strata_dataset_fetch(data, order, 0, 3, got_x, got);
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(strata_element_get(kinds[k].fetched, got, i), strata_element_get(kinds[k].given, y.data, i));
            cr_assert_eq(got_x[i], x_values[i], "a scale of 0 is 1");
        }
        strata_order_destroy(order);
        strata_dataset_destroy(data);
        strata_array_finish(&y);
    }
}

Test(dataset, without_labels_has_none) {
    float x_values[2] = {1, 2};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), x_values);
    strata_dataset *data = NULL;
    OK(strata_dataset_from_arrays(&x, NULL, 0, &data, &err));
    cr_assert(!strata_dataset_has_labels(data) && strata_dataset_n_classes(data) == 0);
    cr_assert_eq(strata_dataset_element_shape(data).rank, 0);
    strata_dataset_destroy(data);
    strata_dataset_destroy(NULL);
}

Test(dataset, refuses_arrays_that_do_not_fit) {
    double zeros[12] = {0};
    float bytes[12] = {0};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), bytes);
    strata_array y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(3), bytes);
    strata_array scalar = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), bytes);
    strata_array bools = strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(3, 2), bytes);
    strata_array negative = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(-3, 2), bytes);
    strata_array many = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(INT64_C(1) << 33), bytes);
    strata_array fewer = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(2), bytes);
    strata_array no_axis = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(), bytes);
    strata_array halves = strata_array_view(STRATA_DTYPE_F16, STRATA_SHAPE(3), zeros);
    const struct {
        const strata_array *x, *y;
        strata_status status;
        const char *message;
    } wrong[] = {
        {&scalar, NULL, STRATA_INVALID, "features are f32 ()"},
        {&bools, &y, STRATA_INVALID, "features are bool (3,2); they must be u8, f32, i32 or i64 (n, ...)"},
        {&negative, NULL, STRATA_INVALID, "negative"},
        {&many, NULL, sizeof(size_t) == 8 ? STRATA_UNSUPPORTED : STRATA_INVALID, "8589934592"},
        {&x, &fewer, STRATA_INVALID, "features are (3,2), labels (2); there must be one label an element"},
        {&x, &no_axis, STRATA_INVALID, "labels ()"},
        {&x, &halves, STRATA_INVALID, "labels are f16"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_dataset *data = NULL;
        fails(strata_dataset_from_arrays(wrong[i].x, wrong[i].y, 0, &data, &err), wrong[i].status, wrong[i].message);
        cr_assert_null(data);
    }
}

Test(dataset, refuses_labels_that_are_no_classes) {
    float x_values[3] = {0};
    int64_t labels[3] = {1, -1, 2};
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), x_values);
    strata_array y = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), labels);
    strata_dataset *data = NULL;
    fails(strata_dataset_from_arrays(&x, &y, 0, &data, &err), STRATA_DATA, "label 1 is -1");
    labels[1] = INT64_C(1) << 31;
    fails(strata_dataset_from_arrays(&x, &y, 0, &data, &err), STRATA_DATA, "label 1 is 2147483648");
    labels[1] = INT32_MAX;
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    cr_assert_eq(strata_dataset_n_classes(data), INT64_C(1) << 31);
    strata_dataset_destroy(data);
}

Test(dataset, takes_arrays_even_on_failure) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), 1);
    strata_array y = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 1);
    strata_dataset *data = NULL;
    fails(strata_dataset_take_arrays(&x, &y, 0, &data, &err), STRATA_INVALID, "one label an element");
    cr_assert(!x.data && !x.owned && !y.data && !y.owned);
    x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), 1);
    y = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 1);
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    cr_assert(!x.data && !y.data);
    strata_dataset_destroy(data);
}

/* ---- files ---- */

/* Makes an IDX file of n elements (2,2) with the numbers 0, 1, 2 ... */
static size_t make_idx(unsigned char *out, int n) {
    const unsigned char header[] = {0, 0, 8, 3, 0, 0, 0, (unsigned char)n, 0, 0, 0, 2, 0, 0, 0, 2};
    memcpy(out, header, sizeof header);
    for (int i = 0; i < 4 * n; i++) out[sizeof header + (size_t)i] = (unsigned char)i;
    return sizeof header + (size_t)(4 * n);
}

/* Expects that the file contains n elements (2,2) with the numbers 0, 1, 2 ... times scale. */
static void holds(const char *path, int64_t n, float scale) {
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    float features[64];
    OK(strata_dataset_from_file(path, STRATA_SHAPE(2, 2), &data, &err));
    cr_assert_eq(strata_dataset_size(data), n);
    cr_assert(!strata_dataset_has_labels(data));
    cr_assert(strata_shape_equal(strata_dataset_element_shape(data), STRATA_SHAPE(2, 2)));
    OK(strata_order_create(n, false, 0, 0, &order, &err));
    strata_dataset_fetch(data, order, 0, n, features, NULL);
    for (int i = 0; i < 4 * n; i++) cr_assert_eq(features[i], (float)i * scale, "%s: %d", path, i);
    strata_order_destroy(order);
    strata_dataset_destroy(data);
}

static const char *make_npy(const char *name, strata_dtype dtype, strata_shape shape) {
    strata_array array = strata_test_full(dtype, shape, 0);
    const char *path = test_path(name);
    for (int64_t i = 0; i < strata_shape_elements(shape); i++) strata_element_set(dtype, array.data, i, (double)i);
    OK(test_write_npy(path, &array, &err));
    strata_array_finish(&array);
    return path;
}

Test(dataset, reads_npy_of_one_of_many_and_of_rows) {
    holds(make_npy("many.npy", STRATA_DTYPE_F32, STRATA_SHAPE(3, 2, 2)), 3, 1);
    holds(make_npy("one.npy", STRATA_DTYPE_F32, STRATA_SHAPE(2, 2)), 1, 1);
    holds(make_npy("rows.npy", STRATA_DTYPE_F32, STRATA_SHAPE(3, 4)), 3, 1);
    holds(make_npy("bytes.npy", STRATA_DTYPE_U8, STRATA_SHAPE(3, 2, 2)), 3, (float)(1.0 / 255));
}

Test(dataset, reads_idx_plain_and_gzip) {
    unsigned char bytes[64];
    size_t n = make_idx(bytes, 3);
    holds(test_file("plain", bytes, n), 3, (float)(1.0 / 255));
    const char *path = test_path("packed.gz");
    gzFile file = gzopen(path, "wb");
    cr_assert(file && gzwrite(file, bytes, (unsigned)n) == (int)n && gzclose(file) == Z_OK);
    holds(path, 3, (float)(1.0 / 255));
}

Test(dataset, refuses_files_that_do_not_fit) {
    strata_dataset *data = NULL;
    unsigned char bytes[64];
    size_t n = make_idx(bytes, 3);
    const char *idx = test_file("idx", bytes, n);
    fails(strata_dataset_from_file(idx, STRATA_SHAPE(3, 2), &data, &err), STRATA_DATA,
          "its shape is (3,2,2); the model takes (3,2)");
    fails(strata_dataset_from_file(make_npy("a.npy", STRATA_DTYPE_F32, STRATA_SHAPE(3, 4)), STRATA_SHAPE(3), &data, &err),
          STRATA_DATA, "its shape is (3,4); the model takes (3)");
    fails(strata_dataset_from_file(make_npy("b.npy", STRATA_DTYPE_F32, STRATA_SHAPE(4, 1, 1)), STRATA_SHAPE(2, 2), &data, &err),
          STRATA_DATA, "its shape is (4,1,1)");
    fails(
        strata_dataset_from_file(make_npy("c.npy", STRATA_DTYPE_BOOL, STRATA_SHAPE(3, 2, 2)), STRATA_SHAPE(2, 2), &data, &err),
        STRATA_DATA, "elements are bool; u8 pixels, f32, or i32 or i64 tokens are taken");
    fails(strata_dataset_from_file(test_file("cut", bytes, n - 1), STRATA_SHAPE(2, 2), &data, &err), STRATA_DATA, "cut off");
    fails(strata_dataset_from_file(test_file("short", "\x93NU", 3), STRATA_SHAPE(2, 2), &data, &err), STRATA_DATA, "short");
    fails(strata_dataset_from_file(test_file("empty", "", 0), STRATA_SHAPE(2, 2), &data, &err), STRATA_DATA, "empty");
    fails(strata_dataset_from_file(test_path("missing"), STRATA_SHAPE(2, 2), &data, &err), STRATA_UNAVAILABLE, "missing");
    fails(strata_dataset_from_file(test_folder(), STRATA_SHAPE(2, 2), &data, &err), STRATA_DATA, "folder");
    fails(strata_dataset_from_file(idx, STRATA_SHAPE(2, 0), &data, &err), STRATA_INVALID, "(2,0)");
    fails(strata_dataset_from_file(idx, STRATA_SHAPE(2, -1), &data, &err), STRATA_INVALID, "negative");
    cr_assert_null(data);
}

/* ---- the digits ---- */

Test(dataset, mnist_made_by_the_program_is_the_same_each_time) {
    strata_dataset *data[2] = {NULL};
    strata_order *order = NULL;
    static float x[2][3 * 784];
    int32_t y[2][3];
    OK(strata_order_create(10000, false, 0, 0, &order, &err));
    for (int i = 0; i < 2; i++) {
        OK(strata_dataset_mnist(NULL, "test", 5, &data[i], &err));
        strata_dataset_fetch(data[i], order, 0, 3, x[i], y[i]);
    }
    cr_assert(strata_dataset_size(data[0]) == 10000 && strata_dataset_n_classes(data[0]) == 10);
    cr_assert(strata_shape_equal(strata_dataset_element_shape(data[0]), STRATA_SHAPE(28, 28)));
    cr_assert(!memcmp(x[0], x[1], sizeof x[0]) && !memcmp(y[0], y[1], sizeof y[0]));
    float largest = 0;
    for (int i = 0; i < 784; i++) {
        cr_assert(x[0][i] >= 0 && x[0][i] <= 1);
        largest = x[0][i] > largest ? x[0][i] : largest;
    }
    cr_assert_gt(largest, 0.5f);
    strata_order_destroy(order);
    for (int i = 0; i < 2; i++) strata_dataset_destroy(data[i]);
    fails(strata_dataset_mnist(NULL, "validation", 0, &data[0], &err), STRATA_INVALID, "there are: train, test");
    fails(strata_dataset_mnist(test_path("nowhere"), "train", 0, &data[0], &err), STRATA_UNAVAILABLE, "nowhere");
}

Test(dataset, integer_features_are_tokens) {
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    const strata_dtype dtypes[] = {STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    for (int d = 0; d < 2; d++) {
        int32_t got[6] = {0};
        strata_array x = strata_test_array(dtypes[d], STRATA_SHAPE(3, 2), (double[]){1, -2, 3, 4, 2147483647, 6});
        OK(strata_dataset_from_arrays(&x, NULL, 0, &data, &err));
        cr_assert_eq(strata_dataset_feature_dtype(data), STRATA_DTYPE_I32);
        OK(strata_order_create(3, false, 0, 0, &order, &err));
        strata_dataset_fetch(data, order, 1, 2, got, NULL);
        cr_assert_arr_eq(got, ((int32_t[]){3, 4, 2147483647, 6}), 16);
        fails(strata_dataset_check_tokens(data, 7, &err), STRATA_DATA, "element 0, position 1: the token is -2");
        strata_order_destroy(order);
        strata_dataset_destroy(data);
        fails(strata_dataset_from_arrays(&x, NULL, 0.5, &data, &err), STRATA_INVALID, "integers are not scaled");
        strata_array_finish(&x);
    }
    strata_array wide = strata_test_array(STRATA_DTYPE_I64, STRATA_SHAPE(2, 2), (double[]){0, 1, 2, 1e10});
    fails(strata_dataset_from_arrays(&wide, NULL, 0, &data, &err), STRATA_DATA,
          "element 1, position 1: the token is 10000000000");
    strata_array_finish(&wide);
    strata_array known = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2), (double[]){0, 6});
    OK(strata_dataset_from_arrays(&known, NULL, 1, &data, &err));
    OK(strata_dataset_check_tokens(data, 7, &err));
    fails(strata_dataset_check_tokens(data, 6, &err), STRATA_DATA, "the token is 6; those the model knows are 0..5");
    strata_dataset_destroy(data);
    strata_array_finish(&known);
}

/* ---- splitting ---- */

/* Ten elements (i, -i) with the label i % 3 and the weight i. The last two come from a second file. */
static strata_dataset *ten(void) {
    enum { TEN = 10 };
    strata_dataset *data = NULL;
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(TEN, 2), 0);
    strata_array y = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(TEN), 0);
    strata_array weights = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(TEN), 0);
    for (int i = 0; i < TEN; i++) {
        ((float *)x.data)[2 * i] = (float)i;
        ((float *)x.data)[2 * i + 1] = (float)-i;
        ((int32_t *)y.data)[i] = i % 3;
        ((float *)weights.data)[i] = (float)i;
    }
    OK(strata_dataset_take_arrays(&x, &y, 2, &data, &err));
    OK(strata_dataset_set_weights(data, &weights, &err));
    const strata_dataset_facts facts = {.class_names = (const char *const[]){"none", "one", "two", "never"},
                                        .n_class_names = 4,
                                        .file_ends = (int64_t[]){8, 10},
                                        .n_files = 2};
    OK(strata_dataset_set_facts(data, &facts, &err));
    strata_array_finish(&weights);
    return data;
}

static void has_elements(const strata_dataset *part, int64_t first, int64_t n) {
    float x[20], weights[10];
    int32_t y[10];
    strata_order *order = NULL;
    cr_assert_eq(strata_dataset_size(part), n);
    OK(strata_order_create(n, false, 0, 0, &order, &err));
    strata_dataset_fetch(part, order, 0, n, x, y);
    strata_dataset_fetch_weights(part, order, 0, n, weights);
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(x[2 * i], (float)(2 * (first + i)));
        cr_assert_eq(x[2 * i + 1], (float)(-2 * (first + i)));
        cr_assert_eq(y[i], (int)(first + i) % 3);
        cr_assert_eq(weights[i], (float)(first + i));
    }
    cr_assert_eq(strata_dataset_n_classes(part), 4);
    strata_order_destroy(order);
}

static const strata_split_options in_order = {.in_order = true};

Test(dataset, split_in_order_takes_the_last_elements_and_outlives_the_whole) {
    const struct {
        double fraction;
        int64_t first; /* Keras: floor(10 * (1 - fraction)) */
    } cases[] = {{0.2, 8}, {0.25, 7}, {0.5, 5}, {0.95, 0}, {0.9, 0}, {0.89, 1}, {0.1, 9}, {0.01, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_dataset *whole = ten(), *first = NULL, *last = NULL;
        if (!cases[i].first) {
            fails(strata_dataset_split(whole, cases[i].fraction, &in_order, &first, &last, &err), STRATA_INVALID,
                  "neither may be empty");
            strata_dataset_destroy(whole);
            continue;
        }
        OK(strata_dataset_split(whole, cases[i].fraction, &in_order, &first, &last, &err));
        strata_dataset_destroy(whole);
        has_elements(first, 0, cases[i].first);
        cr_assert_str_eq(strata_dataset_class_name(first, 2), "two");
        has_elements(last, cases[i].first, 10 - cases[i].first);
        strata_dataset_destroy(first);
        has_elements(last, cases[i].first, 10 - cases[i].first);
        strata_dataset_destroy(last);
    }
}

Test(dataset, parts_know_the_files_that_they_come_from) {
    strata_dataset *whole = ten(), *first = NULL, *last = NULL, *own = NULL;
    OK(strata_dataset_split(whole, 0.5, &in_order, &first, &last, &err));
    OK(strata_dataset_auto_shard(last, STRATA_SHARD_FILE, 2, 1, &own, &err)); /* the elements of the second file, 8 and 9 */
    has_elements(own, 8, 2);
    strata_dataset_destroy(own);
    OK(strata_dataset_auto_shard(last, STRATA_SHARD_FILE, 2, 0, &own, &err));
    has_elements(own, 5, 3);
    strata_dataset_destroy(own);
    fails(strata_dataset_auto_shard(first, STRATA_SHARD_FILE, 2, 0, &own, &err), STRATA_INVALID, "divides 1 files");
    strata_dataset_destroy(first);
    strata_dataset_destroy(last);
    strata_dataset_destroy(whole);
}

/* The elements are sorted by class, as in a folder with a folder for each class. Each part must get its share of each
 * class, and each element must be in one part. */
Test(dataset, split_divides_each_class_at_random) {
    enum { N = 60 };
    float x[N], fetched[N];
    int32_t y[N], labels[N];
    bool seen[N] = {false};
    int64_t first_numbers[2][4];
    /* 30 of class 0, 20 of class 1, 10 of class 2 */
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = i < 30 ? 0 : i < 50 ? 1 : 2;
    const strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), x);
    const strata_array classes = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), y);
    for (uint64_t seed = 0; seed < 2; seed++) {
        strata_dataset *whole = NULL, *parts[2] = {NULL, NULL};
        memset(seen, 0, sizeof seen);
        OK(strata_dataset_from_arrays(&features, &classes, 0, &whole, &err));
        OK(strata_dataset_split(whole, 0.2, &(strata_split_options){.seed = seed}, &parts[0], &parts[1], &err));
        strata_dataset_destroy(whole);
        for (int part = 0; part < 2; part++) {
            const int64_t n = strata_dataset_size(parts[part]), factor = part ? 1 : 4;
            int64_t counts[3] = {0};
            strata_order *order = NULL;
            cr_assert_eq(n, 12 * factor);
            OK(strata_order_create(n, false, 0, 0, &order, &err));
            strata_dataset_fetch(parts[part], order, 0, n, fetched, labels);
            for (int64_t i = 0; i < n; i++) {
                const int element = (int)fetched[i];
                cr_assert(!seen[element]);
                seen[element] = true;
                cr_assert_eq(labels[i], y[element]);
                counts[labels[i]]++;
                if (part && i < 4) first_numbers[seed][i] = element;
            }
            cr_assert(counts[0] == 6 * factor && counts[1] == 4 * factor && counts[2] == 2 * factor);
            strata_order_destroy(order);
            strata_dataset_destroy(parts[part]);
        }
    }
    cr_assert(memcmp(first_numbers[0], first_numbers[1], sizeof first_numbers[0]));
}

Test(dataset, split_refuses_nonsense) {
    strata_dataset *whole = ten(), *first = NULL, *last = NULL;
    const double wrong[] = {0, 1, -0.1, 1.5, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        fails(strata_dataset_split(whole, wrong[i], NULL, &first, &last, &err), STRATA_INVALID, "it must be between 0 and 1");
    OK(strata_dataset_batch(&whole, 2, false, &err));
    fails(strata_dataset_split(whole, 0.5, NULL, &first, &last, &err), STRATA_INVALID,
          "split: the dataset is batch; it must be arrays");
    strata_dataset_destroy(whole);
}

Test(dataset, random_numbers_are_uniform_and_the_seeds) {
    enum { N = 5001 };
    strata_dataset *datasets[3] = {NULL};
    static float rows[3][N * 3], labels[3][N * 2];
    strata_error err = {0};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(2), N, i < 2 ? 1 : 2, &datasets[i], &err), STRATA_OK,
                     "%s", err.message);
        cr_assert_eq(strata_dataset_size(datasets[i]), N);
        strata_iterator *iterator = NULL;
        strata_element batch = {0};
        bool more = false;
        cr_assert_eq(strata_dataset_batch(&datasets[i], N, false, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_iterator_create(datasets[i], 0, 0, 0, &iterator, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_iterator_next(iterator, &batch, &more, &err), STRATA_OK, "%s", err.message);
        cr_assert(more && strata_shape_equal(batch.parts[1].shape, STRATA_SHAPE(N, 2)));
        memcpy(rows[i], batch.parts[0].data, sizeof rows[i]);
        memcpy(labels[i], batch.parts[1].data, sizeof labels[i]);
        strata_element_finish(&batch);
        strata_iterator_destroy(iterator);
    }
    cr_assert_arr_eq(rows[0], rows[1], sizeof rows[0]);
    cr_assert_arr_eq(labels[0], labels[1], sizeof labels[0]);
    cr_assert_neq(memcmp(rows[0], rows[2], sizeof rows[0]), 0);
    cr_assert_neq(memcmp(rows[0], labels[0], 100), 0, "labels are others than features");
    double sum = 0, squares = 0;
    for (int i = 0; i < N * 3; i++) {
        cr_assert(rows[0][i] >= 0 && rows[0][i] < 1);
        sum += (double)rows[0][i];
        squares += (double)rows[0][i] * (double)rows[0][i];
    }
    cr_assert_float_eq(sum / (N * 3), 0.5, 0.01);
    cr_assert_float_eq(squares / (N * 3), 1.0 / 3, 0.01);
    for (int i = 0; i < 3; i++) strata_dataset_destroy(datasets[i]);
    cr_assert_eq(strata_dataset_random(STRATA_SHAPE(3), STRATA_SHAPE(), 0, 1, &datasets[0], &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "0 elements"), "%s", err.message);
}
