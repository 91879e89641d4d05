/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products computed by matrix units (the kernel family gpu/units_matmul), on every device that has them, including a
 * CPU that emulates them: sizes that are no multiples of a tile, transposes, batches, epilogues, k = 0, and all tile sizes.
 * Products of f32, whose operands are split into f16, are compared with those of double precision. */
#include "tests/conformance/units.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "strata/ops.h"
#include "tests/conformance/run_case.h"

TestSuite(conformance_units, .timeout = 600);

/* ---- products ---- */
typedef struct product {
    int64_t m, k, n, batch; /* batch 0: the operands have two axes */
} product;

static strata_array values(const product *p, bool is_b, bool transposed, strata_dtype dtype, uint64_t seed) {
    const int64_t rows = is_b ? p->k : p->m, columns = is_b ? p->n : p->k;
    strata_shape shape = {.rank = 2, .dims = {rows, columns}};
    if (p->batch) shape = (strata_shape){.rank = 3, .dims = {p->batch, rows, columns}};
    if (transposed) {
        shape.dims[shape.rank - 1] = rows;
        shape.dims[shape.rank - 2] = columns;
    }
    return strata_test_random(dtype, shape, -1, 1, seed);
}

static void check(run_case *run, strata_dtype dtype, const product *p, const char *what) {
    int wrong = 0;
    const strata_test_result result = run_case_check(run, &wrong);
    cr_expect(result.ok, "%s: %s %s %dx%dx%d, output %d: %s", run->device->info.id, what, strata_dtype_name(dtype), (int)p->m,
              (int)p->k, (int)p->n, wrong, result.text);
    run_case_end(run);
}

/* From k = 192 on, k is divided into parts. */
static const product products[] = {{1, 1, 1, 0}, {7, 5, 13, 0},    {33, 17, 65, 0},  {2, 19, 77, 0}, {64, 32, 64, 0},
                                   {5, 0, 9, 0}, {130, 70, 66, 0}, {20, 401, 70, 0}, {9, 17, 10, 3}, {1, 200, 130, 2}};
enum { N_PRODUCTS = sizeof products / sizeof *products };

static void run_products(strata_device *device, strata_kernel_limits *limits) {
    for (strata_dtype dtype = STRATA_DTYPE_F16; dtype <= STRATA_DTYPE_BF16; dtype++)
        for (int i = 0; i < N_PRODUCTS && units_has(limits, dtype); i++) {
            const product *p = &products[i];
            limits->compute_units = units_of_device[i % 3];
            run_case run;
            run_case_begin(&run, device);
            for (int flags = 0; flags < 4; flags++) {
                const bool ta = flags & 1, tb = flags & 2;
                strata_tensor *a = run_case_leaf(&run, values(p, false, ta, dtype, 1), false);
                strata_tensor *b = run_case_leaf(&run, values(p, true, tb, dtype, 2), false);
                strata_tensor *c = strata_matmul(a, b, ta, tb);
                cr_assert_not_null(c);
                cr_expect_str_eq(units_family_of(limits, c), "gpu/units_matmul");
                run_case_output(&run, c, strata_test_tolerance_of(dtype, p->k));
            }
            check(&run, dtype, p, "every transpose");
        }
}

Test(conformance_units, every_transpose_and_tail) {
    units_each_device(run_products);
}

/* Runs with every tile size that some device would choose. The size must not change a bit. */
static void run_tiles(strata_device *device, strata_kernel_limits *limits) {
    const product p = {70, 150, 90, 0};
    for (strata_dtype dtype = STRATA_DTYPE_F16; dtype <= STRATA_DTYPE_BF16; dtype++) {
        strata_array first = {0};
        for (uint32_t units = 1; units <= 256 && units_has(limits, dtype); units *= 4) {
            limits->compute_units = units == 1 ? 2 : units;
            run_case run;
            strata_array value;
            strata_error err = {0};
            run_case_begin(&run, device);
            strata_tensor *a = run_case_leaf(&run, values(&p, false, false, dtype, 1), false);
            run_case_output(&run, strata_matmul(a, run_case_leaf(&run, values(&p, true, true, dtype, 2), false), false, true),
                            strata_test_tolerance_of(dtype, p.k));
            cr_assert_eq(run_case_on_device(&run, &value, &err), STRATA_OK, "%s", err.message);
            if (units == 1) {
                first = value;
            } else {
                const strata_test_result result = strata_test_same(&value, &first);
                cr_expect(result.ok, "%s: with %u compute units: %s", device->info.id, units, result.text);
                strata_array_finish(&value);
            }
            run_case_end(&run);
        }
        strata_array_finish(&first);
    }
}

Test(conformance_units, tiles_do_not_change_a_bit) {
    units_each_device(run_tiles);
}

static void run_epilogues(strata_device *device, strata_kernel_limits *limits) {
    static const product shapes[] = {{7, 5, 13, 0}, {33, 300, 66, 0}};
    for (strata_dtype dtype = STRATA_DTYPE_F16; dtype <= STRATA_DTYPE_BF16; dtype++)
        for (int s = 0; s < 2 && units_has(limits, dtype); s++) {
            const product *p = &shapes[s];
            run_case run;
            run_case_begin(&run, device);
            run.fusion = true;
            strata_tensor *bias = run_case_leaf(&run, strata_test_random(dtype, STRATA_SHAPE(p->n), -1, 1, 3), false);
            strata_tensor *aux = run_case_leaf(&run, strata_test_random(dtype, STRATA_SHAPE(p->m, p->n), -1, 1, 4), false);
            for (int i = 0; i < 4; i++) {
                strata_tensor *a = run_case_leaf(&run, values(p, false, false, dtype, 10 + i), false);
                strata_tensor *b = run_case_leaf(&run, values(p, true, false, dtype, 20 + i), false);
                strata_tensor *y = strata_matmul(a, b, false, false);
                if (i != 3) y = strata_add(y, bias);
                if (i == 1) y = strata_node(NULL, &strata_op_relu, 1, &y, NULL);
                if (i == 2) y = strata_node(NULL, &strata_op_tanh, 1, &y, NULL);
                if (i == 3) y = strata_node(NULL, &strata_op_relu_grad, 2, (strata_tensor *[]){y, aux}, NULL);
                strata_test_tolerance tolerance = strata_test_tolerance_of(dtype, 9 * p->k);
                tolerance.absolute += 4 * tolerance.relative; /* the separate nodes round after each op */
                run_case_output(&run, y, tolerance);
            }
            check(&run, dtype, p, "with epilogues");
        }
}

Test(conformance_units, fused_epilogues) {
    units_each_device(run_epilogues);
}

/* ---- f32 by splitting each operand into f16 ---- */

/* Products of f32 with scaled operands: row i of a is multiplied by a_scale[i % 3], and index k of both operands by
 * k_scale^(k - K/2). */
typedef struct split_case {
    const char *what;
    product p;
    double a_scale[3], k_scale;
} split_case;

static const split_case split_cases[] = {
    {"of one scale", {33, 300, 66, 0}, {1, 1, 1}, 1},
    {"of small values", {33, 100, 40, 0}, {1e-12, 1e-12, 1e-12}, 1},
    {"of large values", {33, 100, 40, 0}, {1e12, 1e12, 1e12}, 1},
    {"of rows far apart", {30, 100, 40, 0}, {1, 1e-3, 1e3}, 1},
    {"that grow along k", {30, 180, 40, 0}, {1, 1, 1}, 1.2},
    {"that shrink along k", {30, 180, 40, 0}, {1, 1, 1}, 1 / 1.2},
};

static void rescale(const split_case *c, bool is_b, strata_array *array) {
    float *x = array->data;
    const int64_t columns = is_b ? c->p.n : c->p.k, rows = is_b ? c->p.k : c->p.m;
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = i / columns, k = is_b ? row : i % columns;
        x[i] = (float)(x[i] * (is_b ? 1 : c->a_scale[row % 3]) * pow(c->k_scale, (double)(k - c->p.k / 2)));
    }
}

/* Returns the largest error in units of 2^-24 times the sum of |a b|. It first subtracts the error that the range of f16
 * causes for small values, which is 2^-38 of the product of the largest |a| and |b| for each term. */
static double error_of(const split_case *c, const float *a, const float *b, const float *got) {
    const product *p = &c->p;
    const double floor = (double)p->k * ldexp(units_largest_of(a, p->m * p->k) * units_largest_of(b, p->k * p->n), -38);
    double worst = 0;
    for (int64_t m = 0; m < p->m; m++)
        for (int64_t n = 0; n < p->n; n++) {
            double want = 0, sum = 0;
            for (int64_t k = 0; k < p->k; k++) {
                const double v = (double)a[m * p->k + k] * (double)b[k * p->n + n];
                want += v;
                sum += fabs(v);
            }
            const double off = fabs((double)got[m * p->n + n] - want) - floor;
            worst = fmax(worst, isnan(off) ? INFINITY : off / ldexp(sum, -24));
        }
    return worst;
}

static void run_splits(strata_device *device, strata_kernel_limits *limits) {
    if (!units_has(limits, STRATA_DTYPE_F32)) return;
    for (size_t i = 0; i < sizeof split_cases / sizeof *split_cases; i++)
        for (int fast = 0; fast < 2; fast++) {
            const split_case *c = &split_cases[i];
            run_case run;
            strata_array value, a = values(&c->p, false, false, STRATA_DTYPE_F32, 1);
            strata_array b = values(&c->p, true, false, STRATA_DTYPE_F32, 2);
            strata_error err = {0};
            limits->fast = fast;
            limits->compute_units = units_of_device[i % 3];
            rescale(c, false, &a);
            rescale(c, true, &b);
            run_case_begin(&run, device);
            strata_tensor *x = run_case_leaf(&run, a, false), *y = run_case_leaf(&run, b, false);
            strata_tensor *product = strata_matmul(x, y, false, false);
            cr_expect_str_eq(units_family_of(limits, product), fast ? "gpu/units_matmul" : "gpu/matmul");
            run_case_output(&run, product, (strata_test_tolerance){0});
            cr_assert_eq(run_case_on_device(&run, &value, &err), STRATA_OK, "%s", err.message);
            const double error = error_of(c, a.data, b.data, value.data);
            cr_log_info("%s: f32 %s%s: largest error %.2f x 2^-24 of the sum of |a b|", device->info.id, c->what,
                        fast ? ", split" : "", error);
            cr_expect_leq(error, fast ? UNITS_MOST_ERROR : (double)c->p.k,
                          "%s: f32 %s: off by %.2f x 2^-24 of the sum of |a b|", device->info.id, c->what, error);
            strata_array_finish(&value);
            run_case_end(&run);
        }
    limits->fast = false;
}

Test(conformance_units, f32_is_split_with_options_fast_only_and_stays_f32) {
    units_each_device(run_splits);
}

/* A row with NaN or infinities makes the results of this row NaN or infinite, and no others. */
static void run_not_finite(strata_device *device, strata_kernel_limits *limits) {
    const product p = {20, 40, 24, 0};
    if (!units_has(limits, STRATA_DTYPE_F32)) return;
    run_case run;
    strata_error err = {0};
    strata_array value, a = values(&p, false, false, STRATA_DTYPE_F32, 1), b = values(&p, true, false, STRATA_DTYPE_F32, 2);
    ((float *)a.data)[3 * p.k + 7] = INFINITY;
    ((float *)a.data)[5 * p.k + 38] = NAN;
    limits->fast = true;
    run_case_begin(&run, device);
    strata_tensor *x = run_case_leaf(&run, a, false);
    run_case_output(&run, strata_matmul(x, run_case_leaf(&run, b, false), false, false), (strata_test_tolerance){0});
    cr_assert_eq(run_case_on_device(&run, &value, &err), STRATA_OK, "%s", err.message);
    for (int64_t i = 0; i < p.m * p.n; i++) {
        const bool finite = isfinite(((const float *)value.data)[i]);
        cr_expect_eq(finite, i / p.n != 3 && i / p.n != 5, "%s: row %d", device->info.id, (int)(i / p.n));
    }
    strata_array_finish(&value);
    run_case_end(&run);
    limits->fast = false;
}

Test(conformance_units, what_is_not_finite_stays_in_its_row) {
    units_each_device(run_not_finite);
}
