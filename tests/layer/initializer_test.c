/* SPDX-License-Identifier: Apache-2.0
 *
 * Initializers: bounds, moments, the fans they look at, and that a value depends on (seed, stream, place) alone. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/layer/layer.h"

enum { N = 40000, FAN_IN = 300, FAN_OUT = 100 };

static float values[N], others[N];

static void fill(const char *name, uint64_t seed, uint32_t stream, float *out, int64_t n) {
    const strata_initializer *found = NULL;
    cr_assert_eq(strata_initializer_find(name, &found, NULL), STRATA_OK);
    cr_assert_str_eq(strata_initializer_name(found), name);
    strata_initializer_fill(found, seed, stream, FAN_IN, FAN_OUT, out, n);
}

Test(initializer, moments_and_bounds_are_the_papers) {
    /* A normal cut at two standard deviations and scaled back to its variance ends at 2 / 0.8796. */
    const double cut = 2 / 0.87962566103423978;
    const struct {
        const char *name;
        double variance, bound; /* bound in standard deviations; 0: none. kurtosis: of the shape */
        double kurtosis;
    } rows[] = {
        {"normal", 0.05 * 0.05, 0, 3},
        {"uniform", 0.05 * 0.05 / 3, 1.7320508, 1.8},
        {"glorot_uniform", 2.0 / (FAN_IN + FAN_OUT), 1.7320508, 1.8},
        {"glorot_normal", 2.0 / (FAN_IN + FAN_OUT), cut, 2.37},
        {"he_uniform", 2.0 / FAN_IN, 1.7320508, 1.8},
        {"he_normal", 2.0 / FAN_IN, cut, 2.37},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double deviation = sqrt(rows[r].variance), mean = 0, square = 0, fourth = 0, largest = 0;
        fill(rows[r].name, 3, 1, values, N);
        for (int i = 0; i < N; i++) {
            double z = (double)values[i] / deviation;
            mean += z / N;
            square += z * z / N;
            fourth += z * z * z * z / N;
            largest = fmax(largest, fabs(z));
        }
        cr_assert_float_eq(mean, 0, 5 / sqrt(N), "%s: mean %g", rows[r].name, mean);
        cr_assert_float_eq(square, 1, 0.04, "%s: variance %g", rows[r].name, square);
        cr_assert_float_eq(fourth, rows[r].kurtosis, 0.15, "%s: kurtosis %g", rows[r].name, fourth);
        if (rows[r].bound > 0)
            cr_assert(largest <= rows[r].bound * (1 + 1e-6) && largest > 0.99 * rows[r].bound, "%s: largest %g of %g",
                      rows[r].name, largest, rows[r].bound);
        else
            cr_assert_gt(largest, 3.5);
    }
}

Test(initializer, constants_are_constant) {
    fill("zeros", 1, 1, values, 100);
    fill("ones", 1, 1, others, 100);
    for (int i = 0; i < 100; i++) cr_assert(values[i] == 0 && others[i] == 1);
}

Test(initializer, same_seed_and_stream_give_the_same_values) {
    for (int k = 2; strata_initializer_names[k]; k++) {
        const char *name = strata_initializer_names[k];
        fill(name, 3, 1, values, 1000);
        fill(name, 3, 1, others, 1000);
        cr_assert_arr_eq(values, others, sizeof(float) * 1000, "%s", name);
        memset(others, 0, sizeof others);
        fill(name, 3, 1, others, 37); /* the first of fewer are the same, but of a matrix that is made orthogonal */
        if (strcmp(name, "orthogonal")) cr_assert_arr_eq(values, others, sizeof(float) * 37, "%s", name);
        const struct {
            uint64_t seed;
            uint32_t stream;
        } different[] = {{4, 1}, {3, 2}, {3 + (UINT64_C(1) << 32), 1}};
        for (int d = 0; d < 3; d++) {
            int equal = 0;
            fill(name, different[d].seed, different[d].stream, others, 1000);
            for (int i = 0; i < 1000; i++) equal += values[i] == others[i];
            cr_assert_leq(equal, 2, "%s: %d of 1000 values are the same under another key", name, equal);
        }
    }
}

/* Wide: its rows; tall: its columns. */
Test(initializer, orthogonal_is_orthonormal) {
    const strata_initializer *orthogonal = NULL;
    cr_assert_eq(strata_initializer_find("orthogonal", &orthogonal, NULL), STRATA_OK);
    static const int64_t sizes[][2] = {{24, 96}, {96, 24}, {1, 1}, {7, 7}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t rows = sizes[s][0], columns = sizes[s][1], n = rows < columns ? rows : columns;
        const int64_t step = n == rows ? columns : 1, stride = n == rows ? 1 : columns;
        strata_initializer_fill(orthogonal, 3, 1, rows, columns, values, rows * columns);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double product = 0;
                for (int64_t k = 0; k < rows * columns / n; k++)
                    product += (double)values[i * step + k * stride] * (double)values[j * step + k * stride];
                cr_assert_float_eq(product, i == j, 1e-6, "%d x %d, vectors %d and %d: %g", (int)rows, (int)columns, (int)i,
                                   (int)j, product);
            }
    }
}

Test(initializer, values_do_not_repeat) {
    fill("glorot_uniform", 0, 0, values, 2000);
    int equal = 0;
    for (int i = 0; i < 2000; i++)
        for (int k = 0; k < i; k++) equal += values[i] == values[k];
    cr_assert_leq(equal, 3);
}

Test(initializer, unknown_names_list_what_there_is) {
    const strata_initializer *found = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_initializer_find("lecun_uniform", &found, &err), STRATA_INVALID);
    cr_assert_null(found);
    int n = 0;
    for (; strata_initializer_names[n]; n++) cr_assert_not_null(strstr(err.message, strata_initializer_names[n]));
    cr_assert_eq(n, 9);
}
