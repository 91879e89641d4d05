/* SPDX-License-Identifier: Apache-2.0
 *
 * The rounding errors of Winograd's convolutions compared with those of direct ones, on every OpenCL CPU; the option that
 * disables Winograd; and that results repeat to the bit. tests/conformance tests that results are right for all shapes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if STRATA_WITH_OPENCL
#include "backends/opencl/opencl.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/check.h"

enum { IMAGES = 3, SIDE = 13, CHANNELS = 36, OUT = 32, KERNEL = 3 };
typedef enum product { FORWARD, BY_INPUT, BY_FILTER } product;

/* Opens the first OpenCL CPU whose kernels have enough memory for Winograd's. The test is skipped when there is none. */
static strata_device *open_cpu(bool direct) {
    strata_device_info *rows;
    strata_error err;
    strata_device *device = NULL;
    int n;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < n && !device; i++) {
        if (strcmp(rows[i].backend, "opencl") || rows[i].skipped[0] || rows[i].device_class != STRATA_DEVICE_CPU) continue;
        const strata_device_options opts = {.direct = direct, .no_tune = true};
        cr_assert_eq(strata_device_open(rows[i].id, &opts, &device, &err), STRATA_OK, "%s", err.message);
        if (rows[i].local_bytes >= 1 << 19) break;
        strata_device_close(device);
        device = NULL;
    }
    strata_devices_free(rows);
    if (!device) cr_skip_test("no OpenCL CPU");
    return device;
}

/* One of the three products of a convolution: y, its gradient by the input, and its gradient by the filter. x is
 * (IMAGES,SIDE,SIDE,channels), dy (IMAGES,SIDE,SIDE,OUT), the filter (3,3,channels,OUT), and the padding "same". Operands
 * are uniform in -1..1: a is x or dy, b is the filter or dy. The caller finishes all arrays. */
typedef struct trial {
    product what;
    int64_t channels;
    strata_array a, b, y;
} trial;

static trial run(strata_device *device, product what, int64_t channels) {
    const strata_shape x = STRATA_SHAPE(IMAGES, SIDE, SIDE, channels), y = STRATA_SHAPE(IMAGES, SIDE, SIDE, OUT);
    const strata_shape filter = STRATA_SHAPE(KERNEL, KERNEL, channels, OUT);
    const strata_conv2d_window same = {.padding = STRATA_PADDING_SAME};
    strata_graph *graph;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *in[3] = {strata_input(graph, "x", STRATA_DTYPE_F32, x), strata_input(graph, "f", STRATA_DTYPE_F32, filter),
                            strata_input(graph, "dy", STRATA_DTYPE_F32, y)};
    strata_tensor *forward = strata_conv2d(in[0], in[1], same), *gradients[2];
    strata_gradients(forward, in[2], in, 2, gradients);
    strata_tensor *result = what == FORWARD ? forward : gradients[what == BY_FILTER];
    trial t = {.what = what, .channels = channels};
    t.a = strata_test_random(STRATA_DTYPE_F32, what == BY_INPUT ? y : x, -1, 1, 1);
    t.b = strata_test_random(STRATA_DTYPE_F32, what == BY_FILTER ? y : filter, -1, 1, 2);
    t.y = strata_test_full(STRATA_DTYPE_F32, strata_tensor_shape(result), -1);
    const char *const names[] = {what == BY_INPUT ? "dy" : "x", what == BY_FILTER ? "dy" : "f"};
    const strata_array inputs[] = {t.a, t.b};
    strata_executable *exe;
    cr_assert_eq(strata_executable_create(device, &result, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, names, inputs, 2, &t.y, 1, &err), STRATA_OK, "%s", err.message);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    return t;
}

static void finish(trial *t) {
    strata_array_finish(&t->a);
    strata_array_finish(&t->b);
    strata_array_finish(&t->y);
}

/* The element of an image at (n,h,w,c). It is 0 outside of the image. */
static double pixel(const strata_array *a, int64_t n, int64_t h, int64_t w, int64_t channels, int64_t c) {
    if (h < 0 || h >= SIDE || w < 0 || w >= SIDE) return 0;
    return ((const float *)a->data)[((n * SIDE + h) * SIDE + w) * channels + c];
}

static double weight(const strata_array *f, int64_t kh, int64_t kw, int64_t channels, int64_t c, int64_t k) {
    return ((const float *)f->data)[((kh * KERNEL + kw) * channels + c) * OUT + k];
}

/* Computes element `at` of the product in double precision. */
static double exact(const trial *t, int64_t at) {
    const int64_t c_n = t->channels;
    double sum = 0;
    if (t->what == BY_FILTER) {
        const int64_t k = at % OUT, c = at / OUT % c_n, kw = at / OUT / c_n % KERNEL, kh = at / OUT / c_n / KERNEL;
        for (int64_t n = 0; n < IMAGES; n++)
            for (int64_t h = 0; h < SIDE; h++)
                for (int64_t w = 0; w < SIDE; w++)
                    sum += pixel(&t->a, n, h + kh - 1, w + kw - 1, c_n, c) * pixel(&t->b, n, h, w, OUT, k);
        return sum;
    }
    const int64_t outs = t->what == FORWARD ? OUT : c_n, ins = t->what == FORWARD ? c_n : OUT;
    const int64_t to = at % outs, w = at / outs % SIDE, h = at / outs / SIDE % SIDE, n = at / outs / SIDE / SIDE;
    for (int64_t kh = 0; kh < KERNEL; kh++)
        for (int64_t kw = 0; kw < KERNEL; kw++)
            for (int64_t from = 0; from < ins; from++)
                sum += t->what == FORWARD
                           ? pixel(&t->a, n, h + kh - 1, w + kw - 1, ins, from) * weight(&t->b, kh, kw, c_n, from, to)
                           : pixel(&t->a, n, h + 1 - kh, w + 1 - kw, ins, from) * weight(&t->b, kh, kw, c_n, to, from);
    return sum;
}

/* Returns the root mean square of the errors. *out_most is the largest error. */
static double error_of(const trial *t, double *out_most) {
    const int64_t n = strata_shape_elements(t->y.shape);
    double squares = 0, most = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i += 3, counted++) { /* every third element */
        const double error = ((const float *)t->y.data)[i] - exact(t, i);
        squares += error * error;
        most = fmax(most, fabs(error));
    }
    *out_most = most;
    return sqrt(squares / (double)counted);
}

/* The bound of any error for operands in -1..1, from shaders/README.md. */
static double bound_of(const trial *t) {
    const double u = ldexp(1, -24), tiles = IMAGES * 4 * 4;
    if (t->what == BY_FILTER) return (tiles + 20) * u * 1096 * tiles;
    const double depth = t->what == FORWARD ? (double)t->channels : OUT;
    return (depth + 20) * u * 752 * depth;
}

/* The root mean square of Winograd's errors is 2.4 times that of direct sums. For the gradient by the filter it is 4 times,
 * because a direct kernel computes that gradient in short partial sums, whose errors are smaller. */
Test(winograd, errors_are_a_few_times_those_of_direct_sums, .timeout = 300) {
    static const double most_ratio[] = {[FORWARD] = 3, [BY_INPUT] = 3, [BY_FILTER] = 5};
    strata_device *fast = open_cpu(false), *slow = open_cpu(true);
    for (int which = FORWARD; which <= BY_FILTER; which++) {
        trial winograd = run(fast, (product)which, CHANNELS), direct = run(slow, (product)which, CHANNELS);
        double most_winograd, most_direct;
        const double a = error_of(&winograd, &most_winograd), b = error_of(&direct, &most_direct);
        cr_assert_gt(a, 0);
        cr_assert_lt(a, most_ratio[which] * b, "product %d: %g, direct %g", which, a, b);
        cr_assert_lt(most_winograd, bound_of(&winograd), "product %d: %g", which, most_winograd);
        cr_assert_neq(memcmp(winograd.y.data, direct.y.data, strata_array_bytes(&direct.y)), 0,
                      "options.direct changes nothing");
        finish(&winograd);
        finish(&direct);
    }
    strata_device_close(fast);
    strata_device_close(slow);
}

Test(winograd, bits_repeat_from_run_to_run, .timeout = 300) {
    strata_device *device = open_cpu(false);
    for (int which = FORWARD; which <= BY_FILTER; which++) {
        trial first = run(device, (product)which, CHANNELS), second = run(device, (product)which, CHANNELS);
        const strata_test_result same = strata_test_same(&first.y, &second.y);
        cr_assert(same.ok, "%s", same.text);
        finish(&first);
        finish(&second);
    }
    strata_device_close(device);
}
#endif
