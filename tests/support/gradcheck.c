/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes derivatives with the five-point central difference formula, from values of the reference functions. With step h the
 * error of the formula is h^4 f'''''/30. The rounding of y to f32 adds an error of about 1.5 x 2^-24 / h, relative to the sum
 * of the absolute values. With h = 2^-5 these errors are 3e-8 and 3e-6, far below the tolerance. */
#include "tests/support/gradcheck.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tests/support/eval.h"

#define STEP      0x1p-5
#define TOLERANCE 3e-4 /* relative to 1 + |gradient|; `allowed` below adds a share for the rounding of y */

typedef struct check {
    strata_tensor *y, *c;
    strata_test_feed feeds[STRATA_TEST_GRADCHECK_INPUTS + 1];
    int n_feeds;
} check;

/* Computes sum(y * c) in double precision. *out_size is sum |y * c|, to which its rounding errors are proportional. */
static strata_status value(const check *k, double *out_value, double *out_size, strata_error *err) {
    strata_array y;
    STRATA_TRY(strata_test_eval((strata_tensor *const *)&k->y, 1, k->feeds, k->n_feeds, &y, err));
    const float *weights = k->feeds[k->n_feeds - 1].value->data;
    *out_value = *out_size = 0;
    for (int64_t i = 0; i < strata_shape_elements(y.shape); i++) {
        double term = strata_element_get(y.dtype, y.data, i) * weights[i];
        *out_value += term;
        *out_size += fabs(term);
    }
    strata_array_finish(&y);
    return STRATA_OK;
}

/* The partial derivative with respect to *x, which is one element of an input. */
static strata_status difference(const check *k, float *x, double *out_derivative, double *out_size, strata_error *err) {
    static const double steps[4] = {-2, -1, 1, 2}, weights[4] = {1, -8, 8, -1};
    const float before = *x;
    strata_status status = STRATA_OK;
    *out_derivative = 0;
    for (int i = 0; i < 4 && !status; i++) {
        double v = 0;
        *x = (float)(before + steps[i] * STEP);
        status = value(k, &v, out_size, err);
        *out_derivative += weights[i] * v / (12 * STEP);
    }
    *x = before;
    return status;
}

static strata_test_result check_input(const check *k, int index, const strata_array *x, const strata_array *dx) {
    strata_error err = {0};
    for (int64_t e = 0; e < strata_shape_elements(x->shape); e++) {
        double want = 0, size = 0, got = strata_element_get(dx->dtype, dx->data, e);
        if (difference(k, (float *)x->data + e, &want, &size, &err)) return strata_test_bad("%s", err.message);
        double allowed = TOLERANCE * (1 + fabs(want)) + 0x1p-24 / STEP * size;
        if (fabs(got - want) <= allowed) continue; /* false for NaN */
        return strata_test_bad("d/dx[%d], element %" PRId64
                               " of %s: the gradient is %.9g, finite differences give %.9g (allowed %.2g)",
                               index, e, strata_shape_text(x->shape).text, got, want, allowed);
    }
    return strata_test_ok();
}

static strata_test_result check_all(strata_graph *graph, check *k, strata_tensor *const *leaves, strata_array *inputs, int n) {
    strata_error err = {0};
    strata_tensor *wanted[STRATA_TEST_GRADCHECK_INPUTS], *dx[STRATA_TEST_GRADCHECK_INPUTS];
    int of[STRATA_TEST_GRADCHECK_INPUTS], n_wanted = 0;
    for (int i = 0; i < n; i++)
        if (inputs[i].dtype == STRATA_DTYPE_F32) of[n_wanted] = i, wanted[n_wanted++] = leaves[i];
    strata_gradients(k->y, k->c, wanted, n_wanted, dx);
    if (strata_graph_check(graph, &err)) return strata_test_bad("%s", err.message);

    strata_array gradients[STRATA_TEST_GRADCHECK_INPUTS];
    if (strata_test_eval(dx, n_wanted, k->feeds, k->n_feeds, gradients, &err)) return strata_test_bad("%s", err.message);
    strata_test_result result = strata_test_ok();
    for (int i = 0; i < n_wanted && result.ok; i++) {
        if (!strata_shape_equal(gradients[i].shape, inputs[of[i]].shape))
            result = strata_test_bad("d/dx[%d] is %s, x is %s", of[i], strata_shape_text(gradients[i].shape).text,
                                     strata_shape_text(inputs[of[i]].shape).text);
        else
            result = check_input(k, of[i], &inputs[of[i]], &gradients[i]);
    }
    for (int i = 0; i < n_wanted; i++) strata_array_finish(&gradients[i]);
    return result;
}

strata_test_result strata_test_gradcheck(strata_test_build build, const void *user, const strata_array *x, int n_x) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    if (n_x > STRATA_TEST_GRADCHECK_INPUTS) return strata_test_bad("%d inputs; at most %d", n_x, STRATA_TEST_GRADCHECK_INPUTS);
    if (strata_graph_create(&graph, &err)) return strata_test_bad("%s", err.message);
    check k = {.n_feeds = n_x + 1};
    strata_tensor *leaves[STRATA_TEST_GRADCHECK_INPUTS];
    strata_array inputs[STRATA_TEST_GRADCHECK_INPUTS];
    for (int i = 0; i < n_x; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        inputs[i] = x[i];
        leaves[i] = strata_input(graph, name, x[i].dtype, x[i].shape);
        k.feeds[i] = (strata_test_feed){leaves[i], &inputs[i]};
    }
    k.y = build(leaves, user);
    k.c = strata_input(graph, "c", STRATA_DTYPE_F32, strata_tensor_shape(k.y));
    strata_array c = strata_test_random(STRATA_DTYPE_F32, strata_tensor_shape(k.y), -1, 1, 77);
    k.feeds[n_x] = (strata_test_feed){k.c, &c};
    strata_test_result result =
        strata_graph_check(graph, &err) ? strata_test_bad("%s", err.message) : check_all(graph, &k, leaves, inputs, n_x);
    strata_array_finish(&c);
    strata_graph_destroy(graph);
    return result;
}
