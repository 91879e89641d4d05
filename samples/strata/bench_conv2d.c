/* SPDX-License-Identifier: Apache-2.0
 *
 * strata bench conv2d: the convolutions of the sample models, forward and both gradients. Before they are timed, elements of
 * the result are checked against sums of doubles, and the gradients against the result: conv2d is linear in both operands, so
 * with any dy
 *     sum y dy = sum x dx = sum filter dfilter. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

enum { OUTPUTS = 3, CHECKED = 16 };
static const char *const output_names[OUTPUTS] = {"forward", "input grad", "filter grad"};

/* A convolution of a model: pictures of height x width x channels, `filters` of size x size. */
typedef struct layer {
    const char *name;
    int64_t height, width, channels, size, filters, stride;
    bool same;      /* padding */
    bool has_input; /* its input is computed by another layer, so that the gradient with respect to it is needed */
} layer;

static const layer layers[] = {
    {"cifar10 1", 32, 32, 3, 3, 32, 1, false, false},   {"cifar10 2", 15, 15, 32, 3, 64, 1, false, true},
    {"mnist_cnn 1", 28, 28, 1, 3, 32, 1, false, false}, {"mnist_cnn 2", 13, 13, 32, 3, 64, 1, false, true},
    {"resnet 1", 32, 32, 3, 3, 32, 1, true, false},     {"resnet 2", 32, 32, 32, 3, 64, 2, true, true},
    {"resnet 3", 16, 16, 64, 3, 64, 1, true, true},     {"resnet 4", 16, 16, 64, 3, 128, 2, true, true},
    {"resnet 5", 8, 8, 128, 3, 128, 1, true, true},     {"resnet 1x1", 32, 32, 32, 1, 64, 2, true, true}};

/* The number of pixels of y along an axis on which x has `size` pixels. */
static int64_t pixels_of(const layer *l, int64_t size) {
    return l->same ? (size + l->stride - 1) / l->stride : (size - l->size) / l->stride + 1;
}

static int64_t padding_of(const layer *l, int64_t size) {
    const int64_t missing = (pixels_of(l, size) - 1) * l->stride + l->size - size;
    return l->same && missing > 0 ? missing / 2 : 0;
}

typedef struct convolution {
    const layer *layer;
    strata_shape x_shape, filter_shape, y_shape;
    float *x_values, *filter_values, *dy_values;
    strata_variable *x[BENCH_CHAIN], *dy[BENCH_CHAIN], *filter;
    strata_graph *graph;
    strata_executable *one, *many;
    double flops;
} convolution;

static void finish(convolution *c) {
    strata_executable_destroy(c->one);
    strata_executable_destroy(c->many);
    strata_graph_destroy(c->graph);
    for (int i = 0; i < BENCH_CHAIN; i++) {
        strata_variable_destroy(c->x[i]);
        strata_variable_destroy(c->dy[i]);
    }
    strata_variable_destroy(c->filter);
    free(c->x_values);
    free(c->filter_values);
    free(c->dy_values);
}

static int64_t elements(strata_shape shape) {
    return shape.dims[0] * shape.dims[1] * shape.dims[2] * shape.dims[3];
}

static strata_status open_convolution(bench *b, convolution *c, strata_error *err) {
    const layer *l = c->layer;
    const int64_t batch = b->options.batch;
    c->x_shape = STRATA_SHAPE(batch, l->height, l->width, l->channels);
    c->filter_shape = STRATA_SHAPE(l->size, l->size, l->channels, l->filters);
    c->y_shape = STRATA_SHAPE(batch, pixels_of(l, l->height), pixels_of(l, l->width), l->filters);
    c->flops = 2.0 * (double)elements(c->y_shape) * (double)(l->size * l->size * l->channels);
    c->x_values = bench_random(elements(c->x_shape), 1, 2, err);
    c->filter_values = bench_random(elements(c->filter_shape), 0.1, 3, err);
    c->dy_values = bench_random(elements(c->y_shape), 1, 4, err);
    for (int i = 0; i < BENCH_CHAIN; i++) {
        STRATA_TRY(bench_variable(b, c->x_shape, c->x_values, &c->x[i], err));
        STRATA_TRY(bench_variable(b, c->y_shape, c->dy_values, &c->dy[i], err));
    }
    STRATA_TRY(bench_variable(b, c->filter_shape, c->filter_values, &c->filter, err));
    return strata_graph_create(&c->graph, err);
}

/* Builds y, dx and dfilter of the i-th x and dy. */
static void build(const convolution *c, int i, strata_tensor *out[OUTPUTS]) {
    strata_tensor *x = strata_variable_read(c->graph, c->x[i]), *filter = strata_variable_read(c->graph, c->filter);
    strata_tensor *dy = strata_variable_read(c->graph, c->dy[i]);
    const strata_conv2d_window opts = {.stride = {c->layer->stride, c->layer->stride},
                                       .padding = c->layer->same ? STRATA_PADDING_SAME : STRATA_PADDING_VALID};
    out[0] = strata_conv2d(x, filter, opts);
    strata_gradients(out[0], dy, (strata_tensor *[]){x, filter}, 2, out + 1);
}

/* Computes y[at] in double. *out_magnitude: the sum of the absolute values of the terms. */
static double reference(const convolution *c, int64_t at, double *out_magnitude) {
    const int64_t *x = c->x_shape.dims, *f = c->filter_shape.dims, *y = c->y_shape.dims;
    const int64_t k = at % y[3], ow = at / y[3] % y[2], oh = at / y[3] / y[2] % y[1], n = at / y[3] / y[2] / y[1];
    const int64_t stride = c->layer->stride, pad_h = padding_of(c->layer, x[1]), pad_w = padding_of(c->layer, x[2]);
    double sum = 0;
    *out_magnitude = 0;
    for (int64_t i = 0; i < f[0] * f[1] * f[2]; i++) {
        const int64_t h = oh * stride + i / f[2] / f[1] - pad_h, w = ow * stride + i / f[2] % f[1] - pad_w;
        if (h < 0 || w < 0 || h >= x[1] || w >= x[2]) continue;
        double term =
            (double)c->x_values[((n * x[1] + h) * x[2] + w) * x[3] + i % f[2]] * (double)c->filter_values[i * f[3] + k];
        sum += term;
        *out_magnitude += fabs(term);
    }
    return sum;
}

static double dot(const float *a, const float *b, int64_t n, double *out_magnitude) {
    double sum = 0;
    *out_magnitude = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        *out_magnitude += fabs((double)a[i] * (double)b[i]);
    }
    return sum;
}

static strata_status check(bench *b, convolution *c, strata_error *err) {
    strata_tensor *outputs[OUTPUTS];
    double seconds, magnitude, magnitudes[OUTPUTS], dots[OUTPUTS];
    build(c, 0, outputs);
    STRATA_TRY(bench_compile(b, outputs, OUTPUTS, &c->one, err));
    STRATA_TRY(bench_run(c->one, 1, &seconds, err));
    const float *y = strata_executable_output(c->one, 0, 0);
    const int64_t n_y = elements(c->y_shape);
    for (int64_t i = 0; i < CHECKED; i++) {
        const int64_t at = (n_y - 1) / (CHECKED - 1) * i;
        const double want = reference(c, at, &magnitude);
        if (!(fabs((double)y[at] - want) <= magnitude * 1e-5))
            return strata_fail(err, STRATA_INTERNAL, "%s: element %lld is %.9g; it should be %.9g", c->layer->name,
                               (long long)at, (double)y[at], want);
    }
    dots[0] = dot(y, c->dy_values, n_y, &magnitudes[0]);
    dots[1] = dot(strata_executable_output(c->one, 0, 1), c->x_values, elements(c->x_shape), &magnitudes[1]);
    dots[2] = dot(strata_executable_output(c->one, 0, 2), c->filter_values, elements(c->filter_shape), &magnitudes[2]);
    for (int o = 1; o < OUTPUTS; o++)
        if (!(fabs(dots[o] - dots[0]) <= 1e-5 * (magnitudes[o] + magnitudes[0])))
            return strata_fail(err, STRATA_INTERNAL, "%s, %s: its product with the operand is %.9g; that of y with dy is %.9g",
                               c->layer->name, output_names[o], dots[o], dots[0]);
    return STRATA_OK;
}

static void print_rates(const bench *b, const convolution *c, int output, const bench_rates *r) {
    if (!b->options.json) {
        printf("%-16s %-11s %9.1f %10.1f %10.1f %7.3f %8.3f\n", c->layer->name, output_names[output], c->flops * 1e-6,
               r->gflops, r->best_gflops, r->gflops / b->peak, r->paired_ratio);
    } else {
        printf("{\"device\":");
        print_json_string(strata_device_get_info(b->device)->id);
        const layer *l = c->layer;
        printf(",\"layer\":\"%s\",\"output\":\"%s\",\"batch\":%lld,\"mflop\":%.3f", l->name, output_names[output],
               (long long)b->options.batch, c->flops * 1e-6);
        printf(",\"x\":[%lld,%lld,%lld,%lld]", (long long)b->options.batch, (long long)l->height, (long long)l->width,
               (long long)l->channels);
        printf(",\"filter\":[%lld,%lld,%lld,%lld],\"stride\":%lld,\"same\":%s", (long long)l->size, (long long)l->size,
               (long long)l->channels, (long long)l->filters, (long long)l->stride, l->same ? "true" : "false");
        printf(",\"gflops\":%.3f,\"best_gflops\":%.3f,\"peak_gflops\":%.3f", r->gflops, r->best_gflops, b->peak);
        printf(",\"ratio\":%.4f,\"paired_ratio\":%.4f}\n", r->gflops / b->peak, r->paired_ratio);
    }
    fflush(stdout);
}

/* Measures one of the three outputs, of which a run computes BENCH_CHAIN. Their operands are equal, but in different memory,
 * since otherwise they would be computed only once. */
static strata_status time_output(bench *b, convolution *c, int output, strata_error *err) {
    strata_tensor *firsts[BENCH_CHAIN], *outputs[OUTPUTS];
    bench_rates rates;
    int n = 0;
    for (int i = 0; i < BENCH_CHAIN; i++) {
        build(c, i, outputs);
        firsts[n++] = bench_first_element(outputs[output]);
    }
    STRATA_TRY(bench_compile(b, firsts, n, &c->many, err));
    STRATA_TRY(bench_time(b, c->many, c->flops * n, &rates, err));
    strata_executable_destroy(c->many);
    c->many = NULL;
    print_rates(b, c, output, &rates);
    return STRATA_OK;
}

strata_status bench_conv2d(bench *b, strata_error *err) {
    strata_status status = STRATA_OK;
    if (!b->options.json)
        printf("%-16s %-11s %9s %10s %10s %7s %8s\n", "layer", "output", "MFLOP", "GFLOP/s", "best", "of peak", "paired");
    for (size_t i = 0; !status && i < sizeof layers / sizeof *layers; i++) {
        convolution c = {.layer = &layers[i]};
        status = open_convolution(b, &c, err);
        if (!status) status = check(b, &c, err);
        for (int o = 0; !status && o < OUTPUTS; o++)
            if (o != 1 || c.layer->has_input) status = time_output(b, &c, o, err);
        finish(&c);
    }
    return status;
}
