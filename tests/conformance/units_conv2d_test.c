/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions and their gradients computed by matrix units (the kernel families gpu/units_conv2d and so on), on every
 * device that has matrix units, including a CPU that emulates them. Results are compared with those of double precision,
 * within the bound of shaders/README.md, *Matrix units' errors*. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/conv2d.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "strata/ops.h"
#include "tests/conformance/run_case.h"
#include "tests/conformance/units.h"

typedef struct convolution {
    const char *what;
    int64_t x[4], filter[4]; /* (N,H,W,C), (KH,KW,C/groups,K) */
    strata_conv2d_window window;
} convolution;

#define SAME STRATA_PADDING_SAME
static const convolution convolutions[] = {
    {"of one element", {1, 1, 1, 1}, {1, 1, 1, 8}, {.groups = 1}},
    {"1 x 1, of primes", {2, 4, 3, 17}, {1, 1, 17, 13}, {.groups = 1}},
    {"1 x 1 with strides, pixels that nobody reads", {2, 6, 7, 16}, {1, 1, 16, 16}, {.stride = {3, 2}}},
    {"of 3 channels", {2, 9, 8, 3}, {3, 3, 3, 16}, {.padding = SAME}},
    {"of an odd number of channels", {2, 4, 29, 9}, {2, 3, 9, 37}, {.padding = SAME}},
    {"with strides", {3, 7, 9, 16}, {3, 3, 16, 48}, {.stride = {2, 2}, .padding = SAME}},
    {"with strides of two sizes", {2, 8, 11, 11}, {4, 3, 11, 10}, {.stride = {3, 2}, .padding = SAME}},
    {"dilated", {2, 9, 8, 18}, {3, 2, 18, 20}, {.dilation = {2, 3}}},
    {"dilated, with strides", {2, 12, 13, 9}, {3, 3, 9, 8}, {.stride = {2, 3}, .dilation = {2, 2}, .padding = SAME}},
    {"in groups", {2, 6, 7, 27}, {3, 3, 9, 33}, {.groups = 3, .padding = SAME}},
    {"in groups, with strides", {2, 9, 6, 32}, {3, 3, 16, 16}, {.stride = {2, 1}, .groups = 2, .padding = SAME}},
    {"with wide padding",
     {2, 5, 6, 10},
     {3, 3, 10, 12},
     {.stride = {3, 2}, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {3, 1, 0, 4}}},
    {"over the whole image", {5, 4, 5, 8}, {4, 5, 8, 9}, {.groups = 1}},
    {"of one row", {2, 1, 23, 16}, {1, 5, 16, 32}, {.padding = SAME}},
    {"of long sums, in parts", {5, 17, 19, 24}, {3, 3, 24, 40}, {.padding = SAME}},
    {"of no images", {0, 4, 4, 9}, {3, 3, 9, 8}, {.groups = 1}},
};
enum { N_CONVOLUTIONS = sizeof convolutions / sizeof *convolutions };

static strata_shape shape_of(const int64_t dims[4]) {
    return STRATA_SHAPE(dims[0], dims[1], dims[2], dims[3]);
}

/* The convolution, its gradient by the input and its gradient by the filter. */
enum { N_PRODUCTS = 3 };
static const char *const names[N_PRODUCTS] = {"conv2d", "conv2d_input_grad", "conv2d_filter_grad"};

static void build(const convolution *c, strata_tensor *x, strata_tensor *filter, strata_tensor *dy,
                  strata_tensor *out[N_PRODUCTS]) {
    out[0] = strata_conv2d(x, filter, c->window);
    strata_gradients(out[0], dy, (strata_tensor *[]){x, filter}, 2, out + 1);
}

/* Makes the operands x, filter and dy in the dtype. */
static void make_operands(const convolution *c, strata_dtype dtype, strata_array out[3]) {
    strata_graph *graph = NULL;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", dtype, shape_of(c->x));
    strata_tensor *y = strata_conv2d(x, strata_input(graph, "f", dtype, shape_of(c->filter)), c->window);
    cr_assert_eq(strata_graph_check(graph, NULL), STRATA_OK, "%s", c->what);
    out[0] = strata_test_random(dtype, shape_of(c->x), -1, 1, 1);
    out[1] = strata_test_random(dtype, shape_of(c->filter), -1, 1, 2);
    out[2] = strata_test_random(dtype, y->shape, -1, 1, 3);
    strata_graph_destroy(graph);
}

/* ---- expected results ---- */

/* Returns the same values in f32. absolute: their absolute values. */
static strata_array as_f32(const strata_array *from, bool absolute) {
    strata_array to = strata_test_full(STRATA_DTYPE_F32, from->shape, 0);
    for (int64_t i = 0; i < strata_shape_elements(from->shape); i++) {
        const double v = strata_element_get(from->dtype, from->data, i);
        ((float *)to.data)[i] = (float)(absolute ? fabs(v) : v);
    }
    return to;
}

/* Computes the three results with sums in double precision, rounded to f32. */
static void reference(const convolution *c, const strata_array operands[3], bool absolute, strata_array out[N_PRODUCTS]) {
    strata_array values[3];
    strata_tensor *leaves[3], *outputs[N_PRODUCTS];
    strata_test_feed feeds[3];
    strata_graph *graph = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    for (int i = 0; i < 3; i++) {
        values[i] = as_f32(&operands[i], absolute);
        leaves[i] = strata_input(graph, (const char *[]){"x", "f", "dy"}[i], STRATA_DTYPE_F32, values[i].shape);
        feeds[i] = (strata_test_feed){leaves[i], &values[i]};
    }
    build(c, leaves[0], leaves[1], leaves[2], outputs);
    cr_assert_eq(strata_test_eval(outputs, N_PRODUCTS, feeds, 3, out, &err), STRATA_OK, "%s", err.message);
    strata_graph_destroy(graph);
    for (int i = 0; i < 3; i++) strata_array_finish(&values[i]);
}

/* The largest number of products that are summed for one element. */
static int64_t terms_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return node->op == &strata_op_conv2d_filter_grad  ? s.n * s.out_h * s.out_w
           : node->op == &strata_op_conv2d_input_grad ? s.kernel_h * s.kernel_w * s.group_out
                                                      : s.kernel_h * s.kernel_w * s.group_in;
}

/* Returns the largest ratio of an element's error to the allowed error. For f16 and bf16 u |sum| + K 2^-23 sum |a b| is
 * allowed, with u = 2^-11 (f16) or 2^-8 (bf16), plus the error of f16 below its smallest normal number. For f32 see
 * UNITS_MOST_ERROR. */
static double share_of(const strata_array *got, const strata_array *want, const strata_array *sums, int64_t terms,
                       double largest) {
    const double unit = got->dtype == STRATA_DTYPE_F16 ? 0x1p-11 : got->dtype == STRATA_DTYPE_BF16 ? 0x1p-8 : 0x1p-24;
    const bool split = got->dtype == STRATA_DTYPE_F32;
    double worst = 0;
    for (int64_t i = 0; i < strata_shape_elements(got->shape); i++) {
        const double w = ((const float *)want->data)[i], sum = ((const float *)sums->data)[i];
        const double chain = split ? UNITS_MOST_ERROR * 0x1p-24 : (double)terms * 0x1p-23;
        const double floor = split ? (double)terms * ldexp(largest, -38) : 0x1p-25;
        const double off = fabs(strata_element_get(got->dtype, got->data, i) - w);
        const double allowed = unit * fabs(w) + chain * sum + floor;
        worst = fmax(worst, isnan(off) ? INFINITY : off / allowed);
    }
    return worst;
}

/* ---- runs ---- */

static void run_one(strata_device *device, const strata_kernel_limits *limits, const convolution *c, strata_dtype dtype) {
    run_case run;
    strata_error err = {0};
    strata_array operands[3], got[N_PRODUCTS], want[N_PRODUCTS], sums[N_PRODUCTS];
    strata_tensor *leaves[3], *outputs[N_PRODUCTS];
    double largest[3];
    make_operands(c, dtype, operands);
    reference(c, operands, false, want);
    reference(c, operands, true, sums);
    run_case_begin(&run, device);
    for (int i = 0; i < 3; i++) {
        strata_array values = as_f32(&operands[i], true);
        largest[i] = units_largest_of(values.data, strata_shape_elements(values.shape));
        strata_array_finish(&values);
        leaves[i] = run_case_leaf(&run, operands[i], false);
    }
    build(c, leaves[0], leaves[1], leaves[2], outputs);
    for (int i = 0; i < N_PRODUCTS; i++) {
        const strata_conv2d_sizes s = strata_conv2d_sizes_of(outputs[i]);
        const bool by_units = (i == 1 ? s.group_in : s.group_out) >= 8 && (i != 2 || s.n > 0);
        char family[64];
        snprintf(family, sizeof family, "gpu/units_%s", names[i]);
        cr_expect_eq(!strcmp(units_family_of(limits, outputs[i]), family), by_units, "%s of a convolution %s: %s", names[i],
                     c->what, units_family_of(limits, outputs[i]));
        run_case_output(&run, outputs[i], (strata_test_tolerance){0});
    }
    cr_assert_eq(run_case_on_device(&run, got, &err), STRATA_OK, "%s: %s", c->what, err.message);
    for (int i = 0; i < N_PRODUCTS; i++) {
        const double most = largest[i == 1 ? 2 : 0] * largest[i == 2 ? 2 : 1];
        const double share = share_of(&got[i], &want[i], &sums[i], terms_of(outputs[i]), most);
        cr_log_info("%s: %s %s %s: %.2f of the error that is allowed", device->info.id, strata_dtype_name(dtype), names[i],
                    c->what, share);
        cr_expect_leq(share, 1, "%s: %s %s %s: %.2f times the error that is allowed", device->info.id, strata_dtype_name(dtype),
                      names[i], c->what, share);
        strata_array_finish(&got[i]);
        strata_array_finish(&want[i]);
        strata_array_finish(&sums[i]);
    }
    run_case_end(&run);
}

static void run_convolutions(strata_device *device, strata_kernel_limits *limits) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_F32};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_CONVOLUTIONS && units_has(limits, dtypes[d]); i++) {
            limits->compute_units = units_of_device[i % 3];
            limits->fast = dtypes[d] == STRATA_DTYPE_F32;
            run_one(device, limits, &convolutions[i], dtypes[d]);
        }
    limits->fast = false;
}

Test(conformance_units, convolutions_and_gradients_stay_within_their_error) {
    units_each_device(run_convolutions);
}

/* Runs with every tile size that some device would choose. */
static void run_conv2d_tiles(strata_device *device, strata_kernel_limits *limits) {
    const convolution c = {"in many tiles", {3, 13, 11, 20}, {3, 3, 20, 72}, {.stride = {1, 2}, .padding = SAME}};
    for (strata_dtype dtype = STRATA_DTYPE_F16; dtype <= STRATA_DTYPE_BF16; dtype++) {
        strata_array first[N_PRODUCTS] = {{0}};
        for (uint32_t units = 1; units <= 256 && units_has(limits, dtype); units *= 4) {
            run_case run;
            strata_error err = {0};
            strata_array operands[3], values[N_PRODUCTS];
            strata_tensor *leaves[3], *outputs[N_PRODUCTS];
            limits->compute_units = units == 1 ? 2 : units;
            make_operands(&c, dtype, operands);
            run_case_begin(&run, device);
            for (int i = 0; i < 3; i++) leaves[i] = run_case_leaf(&run, operands[i], false);
            build(&c, leaves[0], leaves[1], leaves[2], outputs);
            for (int i = 0; i < N_PRODUCTS; i++) run_case_output(&run, outputs[i], (strata_test_tolerance){0});
            cr_assert_eq(run_case_on_device(&run, values, &err), STRATA_OK, "%s", err.message);
            for (int i = 0; i < N_PRODUCTS; i++) {
                if (units == 1) {
                    first[i] = values[i];
                    continue;
                }
                const strata_test_result result = strata_test_same(&values[i], &first[i]);
                cr_expect(result.ok, "%s: %s with %u compute units: %s", device->info.id, names[i], units, result.text);
                strata_array_finish(&values[i]);
            }
            run_case_end(&run);
        }
        for (int i = 0; i < N_PRODUCTS; i++) strata_array_finish(&first[i]);
    }
}

Test(conformance_units, tiles_of_convolutions_do_not_change_a_bit) {
    units_each_device(run_conv2d_tiles);
}

/* The sum of the first convolution has one part. That of the second one has several, and the kernel that adds the parts
 * applies the epilogue. */
static void run_conv2d_epilogues(strata_device *device, strata_kernel_limits *limits) {
    static const convolution cs[] = {{"small", {2, 5, 6, 5}, {3, 3, 5, 19}, {.padding = SAME}},
                                     {"in parts", {2, 5, 6, 40}, {3, 3, 40, 24}, {.padding = SAME}}};
    for (strata_dtype dtype = STRATA_DTYPE_F16; dtype <= STRATA_DTYPE_BF16; dtype++)
        for (int s = 0; s < 2 && units_has(limits, dtype); s++) {
            run_case run;
            int wrong = 0;
            run_case_begin(&run, device);
            run.fusion = true;
            strata_array shapes[3];
            make_operands(&cs[s], dtype, shapes);
            strata_tensor *x = run_case_leaf(&run, shapes[0], false), *filter = run_case_leaf(&run, shapes[1], false);
            strata_tensor *other = run_case_leaf(&run, shapes[2], false);
            strata_tensor *bias =
                run_case_leaf(&run, strata_test_random(dtype, STRATA_SHAPE(cs[s].filter[3]), -1, 1, 5), false);
            for (int i = 0; i < 4; i++) {
                strata_tensor *y = strata_conv2d(x, filter, cs[s].window);
                if (i != 3) y = strata_add(y, bias);
                if (i == 1) y = strata_relu(y);
                if (i == 2) y = strata_tanh(y);
                if (i == 3) y = strata_node(NULL, &strata_op_relu_grad, 2, (strata_tensor *[]){y, other}, NULL);
                strata_test_tolerance tolerance = strata_test_tolerance_of(dtype, 9 * 9 * cs[s].x[3]);
                tolerance.absolute += 4 * tolerance.relative; /* the separate nodes round after each op */
                run_case_output(&run, y, tolerance);
            }
            const strata_test_result result = run_case_check(&run, &wrong);
            cr_expect(result.ok, "%s: %s %s with epilogue %d: %s", device->info.id, strata_dtype_name(dtype), cs[s].what, wrong,
                      result.text);
            run_case_end(&run);
        }
}

Test(conformance_units, fused_epilogues_of_convolutions) {
    units_each_device(run_conv2d_epilogues);
}
