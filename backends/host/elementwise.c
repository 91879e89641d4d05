/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops on the host: one f32 loop for each row of core/op/elementwise.def. If both operands have the same shape, or
 * the second one's shape is the end of the first one's (a bias, a scalar), one loop runs over the memory. Other broadcasts, and
 * chains of ops, are evaluated block by block (core/op/chain.h), with these loops for f32 and with the ops' references
 * otherwise. */
#include <math.h>

#include "backends/host/host.h"
#include "core/op/chain.h"
#include "core/op/ops.h"

#define ABS(x)     fabsf(x)
#define EXP(x)     expf(x)
#define LOG(x)     logf(x)
#define SQRT(x)    sqrtf(x)
#define RSQRT(x)   (1.0f / sqrtf(x))
#define TANH(x)    tanhf(x)
#define SIN(x)     sinf(x)
#define COS(x)     cosf(x)
#define SIGMOID(x) (1.0f / (1.0f + expf(-(x))))
#define POW(a, b)  powf(a, b)
#define MIN(a, b)  (isnan(a) ? (a) : (b) < (a) || isnan(b) ? (b) : (a))
#define MAX(a, b)  (isnan(a) ? (a) : (b) > (a) || isnan(b) ? (b) : (a))
#define SIGN(x)    (isnan(x) ? (x) : (float)(((x) > 0) - ((x) < 0)))
#define RELU(x)    ((x) < 0 ? 0 : (x))
#define ZERO       0.0f
#define ERF(x)     erff(x)
#define EXPM1(x)   expm1f(x)
#define LOG1P(x)   log1pf(x)

#define EQUAL(a, b) ((a) == (b))
#define LESS(a, b)  ((a) < (b))

/* Computes n elements from those of the operands. */
typedef void element_loop(const void *const *inputs, void *output, int64_t n);

#define ELEMENT_LOOP(name) HOST_LOOP(name, "avx2", (const void *const *inputs, void *output, int64_t n), (inputs, output, n))

#define UNARY_NUMBER(code, name, expression)                                                   \
    HOST_INLINE void name##_element_loop(const void *const *inputs, void *output, int64_t n) { \
        const float *xs = inputs[0];                                                           \
        float *ys = output;                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                      \
            float x = xs[i];                                                                   \
            ys[i] = (expression);                                                              \
        }                                                                                      \
    }                                                                                          \
    ELEMENT_LOOP(name##_element)
#define UNARY_FLOAT UNARY_NUMBER
/* step 0: there is one b for all elements. */
#define BINARY_LOOP(name, expression, type, step)                                      \
    HOST_INLINE void name##_loop(const void *const *inputs, void *output, int64_t n) { \
        const float *as = inputs[0], *bs = inputs[1];                                  \
        const float only = n ? bs[0] : 0;                                              \
        type *ys = output;                                                             \
        for (int64_t i = 0; i < n; i++) {                                              \
            float a = as[i], b = (step) ? bs[i] : only;                                \
            ys[i] = (expression);                                                      \
        }                                                                              \
    }                                                                                  \
    ELEMENT_LOOP(name)
#define BINARY_NUMBER(code, name, expression)         \
    BINARY_LOOP(name##_element, expression, float, 1) \
    BINARY_LOOP(name##_scalar, expression, float, 0)
#define BINARY_FLOAT                    BINARY_NUMBER
#define COMPARE(code, name, expression) BINARY_LOOP(name##_element, expression, uint8_t, 1)
#include "core/op/elementwise.def"

HOST_INLINE void where_element_loop(const void *const *inputs, void *output, int64_t n) {
    const uint8_t *conditions = inputs[0];
    const float *as = inputs[1], *bs = inputs[2];
    float *ys = output;
    for (int64_t i = 0; i < n; i++) ys[i] = conditions[i] ? as[i] : bs[i];
}
ELEMENT_LOOP(where_element)

typedef struct loop_row {
    const strata_op *op;
    element_loop *run, *run_scalar;
} loop_row;

static const loop_row rows[] = {
#define UNARY_NUMBER(code, name, expression)  {&strata_op_##name, name##_element, NULL},
#define UNARY_FLOAT                           UNARY_NUMBER
#define BINARY_NUMBER(code, name, expression) {&strata_op_##name, name##_element, name##_scalar},
#define BINARY_FLOAT                          BINARY_NUMBER
#define COMPARE                               UNARY_NUMBER
#include "core/op/elementwise.def"
    {&strata_op_where, where_element, NULL}};

static const loop_row *find(const strata_op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

int64_t strata_host_elementwise_work(const strata_tensor *node) {
    return strata_shape_elements(node->shape);
}

static bool unary_takes(const strata_tensor *node) {
    return node->n_inputs == 1 && strata_host_is_f32(node) && find(node->op);
}

/* The elements of the operands and of the result from element `first` on, n of them. The second operand begins at b. */
static void run_row(element_loop *run, const strata_op_call *call, int64_t first, const float *b, int64_t n) {
    run((const void *const[]){(const float *)call->inputs[0] + first, b}, (float *)call->output + first, n);
}

static void unary(const host_call *host) {
    const host_share share = strata_host_share(host, strata_shape_elements(host->call.node->shape), 16);
    run_row(find(host->call.node->op)->run, &host->call, share.first, NULL, share.end - share.first);
}

/* Whether b is repeated as a whole along a's leading axes. Leading axes of size 1 in b are ignored. */
static bool is_tail(strata_shape b, strata_shape a) {
    int skip = 0;
    while (skip < b.rank && b.dims[skip] == 1) skip++;
    int rank = b.rank - skip;
    for (int i = 0; i < rank; i++)
        if (b.dims[skip + i] != a.dims[a.rank - rank + i]) return false;
    return true;
}

static bool binary_takes(const strata_tensor *node) {
    return node->n_inputs == 2 && strata_host_is_f32(node) && find(node->op) &&
           strata_shape_equal(node->inputs[0]->shape, node->shape) && is_tail(node->inputs[1]->shape, node->shape);
}

static void binary(const host_call *host) {
    const strata_op_call *call = &host->call;
    const loop_row *row = find(call->node->op);
    const int64_t n = strata_shape_elements(call->node->shape), block = strata_shape_elements(call->node->inputs[1]->shape);
    const bool repeats = block > 1 && block < n;
    const host_share share = strata_host_share(host, n, repeats ? block : 16);
    const float *b = call->inputs[1];
    if (repeats)
        for (int64_t at = share.first; at < share.end; at += block) run_row(row->run, call, at, b, block);
    else if (block == 1 && n)
        run_row(row->run_scalar, call, share.first, b, share.end - share.first);
    else if (block == n)
        run_row(row->run, call, share.first, b + share.first, share.end - share.first);
}

/* ---- by blocks ---- */

/* The loop of a step. NULL: the reference is used. */
static const loop_row *find_loop(const strata_tensor *step) {
    return strata_dtype_is_float(step->inputs[step->n_inputs - 1]->dtype) ? find(step->op) : NULL;
}

static strata_status run_step(const void *user, int step, const strata_op_call *call, strata_error *err) {
    enum { MOST_INPUTS = 3 };
    const loop_row *loop = ((const loop_row *const *)user)[step];
    const strata_tensor *node = call->node;
    const int64_t n = node->shape.dims[0];
    const void *inputs[MOST_INPUTS] = {0};
    float rooms[MOST_INPUTS + 1][STRATA_CHAIN_BLOCK_BYTES / sizeof(uint16_t)];
    if (!loop) return strata_reference(*call, err);
    for (int i = 0; i < node->n_inputs && i < MOST_INPUTS; i++) {
        inputs[i] = call->inputs[i];
        if (strata_host_to_f32(node->inputs[i]->dtype, call->inputs[i], rooms[i], n)) inputs[i] = rooms[i];
    }
    const bool narrow = strata_host_is_narrow(node->dtype);
    loop->run(inputs, narrow ? rooms[MOST_INPUTS] : call->output, n);
    if (narrow) strata_host_from_f32(node->dtype, rooms[MOST_INPUTS], call->output, n);
    return STRATA_OK;
}

static bool chain_takes(const strata_tensor *node) {
    if (node->op == &strata_op_chain) return true;
    if (node->op == &strata_op_where) return node->dtype == STRATA_DTYPE_F32;
    return node->n_inputs == 2 && node->inputs[0]->dtype == STRATA_DTYPE_F32 && find(node->op) &&
           (node->dtype == STRATA_DTYPE_BOOL || strata_host_is_f32(node));
}

static void chain(const host_call *host) {
    strata_chain_run run;
    const loop_row *loops[STRATA_CHAIN_STEPS];
    strata_chain_run_init(&run, host->call.node);
    for (int s = 0; s < run.n_steps; s++) loops[s] = find_loop(&run.steps[s]);
    (void)!strata_chain_run_blocks(&run, &host->call, run_step, loops, NULL); /* references of element-wise ops do not fail */
}

const host_fast_op strata_host_elementwise[] = {{NULL, unary_takes, NULL, unary, strata_host_elementwise_work},
                                                {NULL, binary_takes, NULL, binary, strata_host_elementwise_work},
                                                {NULL, chain_takes, NULL, chain, NULL},
                                                {0}};
