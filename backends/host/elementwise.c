/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops on the host: one plain f32 loop for each row of core/op/elementwise.def (elementwise_loops.h). If
 * both operands have the same shape, or the second one's shape is the end of the first one's (a bias, a scalar), one
 * loop runs over the memory. Other broadcasts, and chains of ops, are evaluated block by block (core/op/chain.h), with
 * these loops for f32 and with the ops' references otherwise. */
#include <math.h>

#include "backends/host/host.h"
#include "core/op/chain.h"
#include "core/op/ops.h"

#define ABS(x)       fabsf(x)
#define EXP(x)       expf(x)
#define LOG(x)       logf(x)
#define SQRT(x)      sqrtf(x)
#define RSQRT(x)     (1.0f / sqrtf(x))
#define TANH(x)      tanhf(x)
#define SIN(x)       sinf(x)
#define COS(x)       cosf(x)
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

#define EQUAL(a, b) ((a) == (b))
#define LESS(a, b)  ((a) < (b))

typedef struct unary_row {
    const strata_op *op;
    void (*run)(const float *x, float *y, int64_t n);
} unary_row;

typedef struct binary_row {
    const strata_op *op;
    void (*run)(const float *a, const float *b, float *y, int64_t n);
    void (*run_scalar)(const float *a, float b, float *y, int64_t n);
} binary_row;

typedef struct compare_row {
    const strata_op *op;
    void (*run)(const float *a, const float *b, uint8_t *y, int64_t n);
} compare_row;

#if defined(__x86_64__)
#define TARGET      __attribute__((target("avx2")))
#define NAMED(name) avx2_##name
#include "backends/host/elementwise_loops.h"
#endif
#define TARGET
#define NAMED(name) portable_##name
#include "backends/host/elementwise_loops.h"

typedef struct loop_tables {
    const unary_row *unary;
    const binary_row *binary;
    const compare_row *compare;
    void (*choose)(const uint8_t *conditions, const float *as, const float *bs, float *ys, int64_t n);
} loop_tables;

enum {
    N_UNARY = sizeof portable_unary_rows / sizeof *portable_unary_rows,
    N_BINARY = sizeof portable_binary_rows / sizeof *portable_binary_rows,
    N_COMPARE = sizeof portable_compare_rows / sizeof *portable_compare_rows
};

/* The loops for this processor. Their bits are the same: wider vectors change no rounding, and AVX2 alone has no
 * multiply-add. */
static loop_tables tables(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return (loop_tables){avx2_unary_rows, avx2_binary_rows, avx2_compare_rows, avx2_choose};
#endif
    return (loop_tables){portable_unary_rows, portable_binary_rows, portable_compare_rows, portable_choose};
}

static const unary_row *find_unary(const strata_op *op) {
    const unary_row *rows = tables().unary;
    for (int i = 0; i < N_UNARY; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

static const binary_row *find_binary(const strata_op *op) {
    const binary_row *rows = tables().binary;
    for (int i = 0; i < N_BINARY; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

static const compare_row *find_compare(const strata_op *op) {
    const compare_row *rows = tables().compare;
    for (int i = 0; i < N_COMPARE; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

int64_t strata_host_elementwise_work(const strata_tensor *node) {
    return strata_shape_elements(node->shape);
}

bool strata_host_unary_takes(const strata_tensor *node) {
    return node->n_inputs == 1 && node->dtype == STRATA_DTYPE_F32 && node->inputs[0]->dtype == STRATA_DTYPE_F32 &&
           find_unary(node->op);
}

void strata_host_unary(const host_call *host) {
    const strata_op_call *call = &host->call;
    const host_share share = strata_host_share(host, strata_shape_elements(call->node->shape), 16);
    find_unary(call->node->op)
        ->run((const float *)call->inputs[0] + share.first, (float *)call->output + share.first, share.end - share.first);
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

static bool is_loop(const strata_tensor *node) {
    return strata_shape_equal(node->inputs[0]->shape, node->shape) && is_tail(node->inputs[1]->shape, node->shape);
}

bool strata_host_binary_takes(const strata_tensor *node) {
    return node->n_inputs == 2 && strata_host_is_f32(node) && find_binary(node->op) && is_loop(node);
}

void strata_host_binary(const host_call *host) {
    const strata_op_call *call = &host->call;
    const binary_row *row = find_binary(call->node->op);
    int64_t n = strata_shape_elements(call->node->shape), block = strata_shape_elements(call->node->inputs[1]->shape);
    const float *a = call->inputs[0], *b = call->inputs[1];
    float *y = call->output;
    if (block == 1) {
        const host_share share = strata_host_share(host, n, 16);
        if (n) row->run_scalar(a + share.first, b[0], y + share.first, share.end - share.first);
    } else if (block == n) {
        const host_share share = strata_host_share(host, n, 16);
        row->run(a + share.first, b + share.first, y + share.first, share.end - share.first);
    } else if (block > 1) {
        const host_share share = strata_host_share(host, n, block);
        for (int64_t at = share.first; at < share.end; at += block) row->run(a + at, b, y + at, block);
    }
}

/* ---- by blocks ---- */

/* The loop of a step: the member that is not NULL. If all are NULL, the reference is used. */
typedef struct step_loop {
    const unary_row *unary;
    const binary_row *binary;
    const compare_row *compare;
    void (*choose)(const uint8_t *conditions, const float *as, const float *bs, float *ys, int64_t n);
} step_loop;

static step_loop find_loop(const strata_tensor *step) {
    if (!strata_dtype_is_float(step->inputs[step->n_inputs - 1]->dtype)) return (step_loop){0};
    if (step->op == &strata_op_where) return (step_loop){.choose = tables().choose};
    if (step->n_inputs == 1) return (step_loop){.unary = find_unary(step->op)};
    return (step_loop){.binary = find_binary(step->op), .compare = find_compare(step->op)};
}

/* Computes a block in f32. Returns false if there is no loop. */
static bool run_loop(const step_loop *loop, const void *const *inputs, void *output, int64_t n) {
    if (loop->unary)
        loop->unary->run(inputs[0], output, n);
    else if (loop->binary)
        loop->binary->run(inputs[0], inputs[1], output, n);
    else if (loop->compare)
        loop->compare->run(inputs[0], inputs[1], output, n);
    else if (loop->choose)
        loop->choose(inputs[0], inputs[1], inputs[2], output, n);
    else
        return false;
    return true;
}

static strata_status run_step(const void *user, int step, const strata_op_call *call, strata_error *err) {
    enum { MOST_INPUTS = 3 };
    const step_loop *loop = (const step_loop *)user + step;
    const strata_tensor *node = call->node;
    const int64_t n = node->shape.dims[0];
    const void *inputs[MOST_INPUTS] = {0};
    float rooms[MOST_INPUTS + 1][STRATA_CHAIN_BLOCK_BYTES / sizeof(uint16_t)];
    for (int i = 0; i < node->n_inputs && i < MOST_INPUTS; i++) {
        inputs[i] = call->inputs[i];
        if (strata_host_to_f32(node->inputs[i]->dtype, call->inputs[i], rooms[i], n)) inputs[i] = rooms[i];
    }
    const bool narrow = strata_host_is_narrow(node->dtype);
    if (!run_loop(loop, inputs, narrow ? rooms[MOST_INPUTS] : call->output, n)) return strata_reference(*call, err);
    if (narrow) strata_host_from_f32(node->dtype, rooms[MOST_INPUTS], call->output, n);
    return STRATA_OK;
}

bool strata_host_chain_takes(const strata_tensor *node) {
    if (node->op == &strata_op_chain) return true;
    if (node->op == &strata_op_where) return node->dtype == STRATA_DTYPE_F32;
    if (node->n_inputs != 2 || node->inputs[0]->dtype != STRATA_DTYPE_F32) return false;
    return find_compare(node->op) || (strata_host_is_f32(node) && find_binary(node->op));
}

void strata_host_chain(const host_call *host) {
    strata_chain_run run;
    step_loop loops[STRATA_CHAIN_STEPS];
    strata_chain_run_init(&run, host->call.node);
    for (int s = 0; s < run.n_steps; s++) loops[s] = find_loop(&run.steps[s]);
    (void)!strata_chain_run_blocks(&run, &host->call, run_step, loops, NULL); /* references of element-wise ops do not fail */
}
