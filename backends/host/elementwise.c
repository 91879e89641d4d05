/* SPDX-License-Identifier: Apache-2.0
 *
 * f32 element-wise ops on the host, one plain loop each, read from core/op/elementwise.def. Operands of one shape, or a second
 * operand whose shape is the tail of the first's (a bias, a scalar); other broadcasts are left to the reference. */
#include <math.h>
#include <string.h>

#include "backends/host/host.h"

#define ABS(x)       fabsf(x)
#define EXP(x)       expf(x)
#define LOG(x)       logf(x)
#define SQRT(x)      sqrtf(x)
#define RSQRT(x)     (1.0f / sqrtf(x))
#define TANH(x)      tanhf(x)
#define SIGMOID(x)   (1.0f / (1.0f + expf(-(x))))
#define POW(a, b)    powf(a, b)
#define DIVIDE(a, b) ((a) / (b))
#define MIN(a, b)    (isnan(a) ? (a) : (b) < (a) || isnan(b) ? (b) : (a))
#define MAX(a, b)    (isnan(a) ? (a) : (b) > (a) || isnan(b) ? (b) : (a))
#define SIGN(x)      (isnan(x) ? (x) : (float)(((x) > 0) - ((x) < 0)))
#define RELU(x)      ((x) < 0 ? 0 : (x))
#define ZERO         0.0f
#define ERF(x)       erff(x)
#define EXPM1(x)     expm1f(x)
#define LOG1P(x)     log1pf(x)

typedef struct unary_row {
    const char *name;
    void (*run)(const float *x, float *y, int64_t n);
} unary_row;

typedef struct binary_row {
    const char *name;
    void (*run)(const float *a, const float *b, float *y, int64_t n);
    void (*run_scalar)(const float *a, float b, float *y, int64_t n);
} binary_row;

#define UNARY_NUMBER(code, name, expression)                          \
    static void unary_##name(const float *xs, float *ys, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                             \
            float x = xs[i];                                          \
            ys[i] = (expression);                                     \
        }                                                             \
    }
#define UNARY_FLOAT UNARY_NUMBER
#define BINARY_NUMBER(code, name, expression)                                           \
    static void binary_##name(const float *as, const float *bs, float *ys, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                                               \
            float a = as[i], b = bs[i];                                                 \
            ys[i] = (expression);                                                       \
        }                                                                               \
    }                                                                                   \
    static void binary_scalar_##name(const float *as, float b, float *ys, int64_t n) {  \
        for (int64_t i = 0; i < n; i++) {                                               \
            float a = as[i];                                                            \
            ys[i] = (expression);                                                       \
        }                                                                               \
    }
#define BINARY_FLOAT BINARY_NUMBER
#include "core/op/elementwise.def"

#define UNARY_NUMBER(code, name, expression) {#name, unary_##name},
#define UNARY_FLOAT                          UNARY_NUMBER
static const unary_row unary_rows[] = {
#include "core/op/elementwise.def"
};
#define BINARY_NUMBER(code, name, expression) {#name, binary_##name, binary_scalar_##name},
#define BINARY_FLOAT                          BINARY_NUMBER
static const binary_row binary_rows[] = {
#include "core/op/elementwise.def"
};

static const unary_row *find_unary(const strata_op *op) {
    for (size_t i = 0; i < sizeof unary_rows / sizeof *unary_rows; i++)
        if (!strcmp(unary_rows[i].name, op->name)) return &unary_rows[i];
    return NULL;
}

static const binary_row *find_binary(const strata_op *op) {
    for (size_t i = 0; i < sizeof binary_rows / sizeof *binary_rows; i++)
        if (!strcmp(binary_rows[i].name, op->name)) return &binary_rows[i];
    return NULL;
}

bool host_unary_takes(const strata_tensor *node) {
    return node->n_inputs == 1 && node->dtype == STRATA_DTYPE_F32 && node->inputs[0]->dtype == STRATA_DTYPE_F32 &&
           find_unary(node->op);
}

void host_unary(const host_call *host) {
    const strata_op_call *call = &host->call;
    find_unary(call->node->op)->run(call->inputs[0], call->output, strata_shape_elements(call->node->shape));
}

/* Whether b's elements repeat as whole blocks along a's: leading axes of size 1 in b are nothing. */
static bool is_tail(strata_shape b, strata_shape a) {
    int skip = 0;
    while (skip < b.rank && b.dims[skip] == 1) skip++;
    int rank = b.rank - skip;
    for (int i = 0; i < rank; i++)
        if (b.dims[skip + i] != a.dims[a.rank - rank + i]) return false;
    return true;
}

bool host_binary_takes(const strata_tensor *node) {
    if (node->n_inputs != 2 || node->dtype != STRATA_DTYPE_F32 || node->inputs[1]->dtype != STRATA_DTYPE_F32) return false;
    return find_binary(node->op) && strata_shape_equal(node->inputs[0]->shape, node->shape) &&
           is_tail(node->inputs[1]->shape, node->shape);
}

void host_binary(const host_call *host) {
    const strata_op_call *call = &host->call;
    const binary_row *row = find_binary(call->node->op);
    int64_t n = strata_shape_elements(call->node->shape), block = strata_shape_elements(call->node->inputs[1]->shape);
    const float *a = call->inputs[0], *b = call->inputs[1];
    float *y = call->output;
    if (n && block == 1) row->run_scalar(a, b[0], y, n);
    if (block > 1)
        for (int64_t at = 0; at < n; at += block) row->run(a + at, b, y + at, block);
}
