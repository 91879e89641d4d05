/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for ops that work element by element. */
#include "core/op/chain.h"
#include "core/op/ops.h"
#include "core/op/rules.h"
#include "tests/conformance/case.h"

/* ---- one operand ---- */
static const case_instance flat[] = {
    {.shapes = {{1, {1}}}},    {.shapes = {{1, {7}}}},      {.shapes = {{1, {257}}}},
    {.shapes = {{2, {0, 3}}}}, {.shapes = {{2, {33, 65}}}}, {.shapes = {{1, {10007}}}, .big = true},
};
/* Functions such as exp and pow may have more rounding errors than arithmetic. */
static const case_instance function[] = {
    {.shapes = {{1, {1}}}, .terms = 16},
    {.shapes = {{1, {257}}}, .terms = 16},
    {.shapes = {{2, {0, 3}}}, .terms = 16},
    {.shapes = {{2, {33, 65}}}, .terms = 16, .big = true},
};

#define UNARY(name, values, low, high, set, list)                                      \
    {                                                                                  \
        .op = #name, .generic = &strata_op_##name, .dtypes = set, .n_operands = 1,     \
        .operands = {{values, low, high, 0, false}}, .instances = CASE_INSTANCES(list) \
    }

static strata_tensor *build_clip(strata_tensor *const *x, const int64_t *p, strata_dtype dtype) {
    (void)p;
    (void)dtype;
    return strata_clip(x[0], -1, 2);
}

static strata_tensor *build_fma_chain(strata_tensor *const *x, const int64_t *p, strata_dtype dtype) {
    (void)dtype;
    return strata_fma_chain(x[0], p[0]);
}

static const case_instance chains[] = {
    {.shapes = {{1, {1}}}, .p = {3}, .terms = 3},
    {.shapes = {{1, {0}}}, .p = {3}, .terms = 1},
    {.shapes = {{2, {13, 31}}}, .p = {0}, .terms = 1},
    {.shapes = {{1, {769}}}, .p = {13}, .terms = 13},
};

static const case_instance smooth[] = {
    {.shapes = {{1, {1}}}, .terms = 256},
    {.shapes = {{1, {257}}}, .terms = 256},
    {.shapes = {{2, {33, 31}}}, .terms = 256},
    {.shapes = {{1, {0}}}},
};
static const op_row unary[] = {
    UNARY(neg, CASE_SPECIAL, -9, 9, STRATA_NUMBERS, flat),
    UNARY(abs, CASE_SPECIAL, -9, 9, STRATA_NUMBERS, flat),
    UNARY(sign, CASE_WHOLE, -2, 3, STRATA_NUMBERS, flat),
    UNARY(square, CASE_SPECIAL, -9, 9, STRATA_NUMBERS, flat),
    UNARY(relu, CASE_SPECIAL, -9, 9, STRATA_FLOATS, flat),
    UNARY(gelu, CASE_UNIFORM, -3, 5, STRATA_FLOATS, smooth),
    UNARY(gelu_tanh, CASE_UNIFORM, -3, 5, STRATA_FLOATS, smooth),
    UNARY(silu, CASE_UNIFORM, -9, 9, STRATA_FLOATS, smooth),
    UNARY(softplus, CASE_UNIFORM, -30, 30, STRATA_FLOATS, smooth),
    UNARY(erf, CASE_SPECIAL, -5, 5, STRATA_FLOATS, function),
    UNARY(sin, CASE_SPECIAL, -30000, 30000, STRATA_FLOATS, function),
    UNARY(cos, CASE_SPECIAL, -9, 9, STRATA_FLOATS, function),
    UNARY(cos, CASE_UNIFORM, -1e30, 1e30, 1 << STRATA_DTYPE_F32 | 1 << STRATA_DTYPE_BF16, function),
    UNARY(exp, CASE_SPECIAL, -5, 5, STRATA_FLOATS, function),
    UNARY(log, CASE_SPECIAL, 0.01, 9, STRATA_FLOATS, function),
    UNARY(sqrt, CASE_SPECIAL, 0.01, 9, STRATA_FLOATS, function),
    UNARY(rsqrt, CASE_UNIFORM, 0.01, 9, STRATA_FLOATS, function),
    UNARY(tanh, CASE_SPECIAL, -5, 5, STRATA_FLOATS, function),
    UNARY(sigmoid, CASE_SPECIAL, -9, 9, STRATA_FLOATS, function),
    {.op = "clip",
     .build = build_clip,
     .dtypes = STRATA_FLOATS | 1 << STRATA_DTYPE_I32,
     .n_operands = 1,
     .operands = {{CASE_SPECIAL, -5, 5, 0, false}},
     .instances = CASE_INSTANCES(flat)},
    {.op = "fma_chain",
     .build = build_fma_chain,
     .dtypes = 1 << STRATA_DTYPE_F32,
     .n_operands = 1,
     .operands = {{CASE_UNIFORM, -3, 3, 0, false}},
     .instances = CASE_INSTANCES(chains)},
};
const op_table case_unary = {"unary", unary, (int)(sizeof unary / sizeof *unary)};

/* ---- two operands ---- */
static const case_instance pairs[] = {
    {.shapes = {{1, {1}}, {1, {1}}}},
    {.shapes = {{1, {257}}, {1, {257}}}},
    {.shapes = {{1, {0}}, {1, {0}}}},
    {.shapes = {{2, {13, 31}}, {0}}},
    {.shapes = {{2, {13, 31}}, {1, {31}}}},
    {.shapes = {{2, {1, 31}}, {2, {13, 1}}}},
    {.shapes = {{3, {4, 1, 5}}, {2, {3, 1}}}},
    {.shapes = {{6, {2, 1, 3, 1, 2, 3}}, {6, {1, 2, 3, 2, 1, 3}}}},
    {.shapes = {{2, {64, 130}}, {2, {64, 130}}}, .big = true},
};
static const case_instance powers[] = {
    {.shapes = {{1, {257}}, {1, {257}}}, .terms = 256},
    {.shapes = {{2, {13, 31}}, {1, {31}}}, .terms = 256},
};

/* (a - b) |a| where that is at least b, otherwise b. */
static strata_tensor *build_chain(strata_tensor *const *x, const int64_t *p, strata_dtype dtype) {
    enum { A, B, FIRST_STEP = STRATA_CHAIN_OPERANDS };
    strata_chain_attrs attrs = {0};
    (void)p;
    (void)dtype;
    strata_chain_add(&attrs, &strata_op_sub, (int[]){A, B, 0});
    strata_chain_add(&attrs, &strata_op_abs, (int[]){A, 0, 0});
    strata_chain_add(&attrs, &strata_op_mul, (int[]){FIRST_STEP, FIRST_STEP + 1, 0});
    strata_chain_add(&attrs, &strata_op_less, (int[]){FIRST_STEP + 2, B, 0});
    strata_chain_add(&attrs, &strata_op_where, (int[]){FIRST_STEP + 3, B, FIRST_STEP + 2});
    return strata_chain(2, x, &attrs);
}
static const case_instance chained[] = {
    {.shapes = {{1, {1}}, {1, {1}}}},
    {.shapes = {{1, {257}}, {1, {257}}}},
    {.shapes = {{2, {0, 3}}, {1, {3}}}},
    {.shapes = {{2, {33, 65}}, {1, {65}}}},
    {.shapes = {{2, {33, 65}}, {2, {33, 1}}}},
    {.shapes = {{3, {3, 5, 7}}, {3, {3, 1, 7}}}},
    {.shapes = {{1, {10007}}, {0}}, .big = true},
};

#define BINARY(name, values, low, high, set)                                                                           \
    {                                                                                                                  \
        .op = #name, .generic = &strata_op_##name, .dtypes = set, .n_operands = 2,                                     \
        .operands = {{values, low, high, 0, false}, {values, low, high, 0, false}}, .instances = CASE_INSTANCES(pairs) \
    }
#define SAME_SHAPE(name)                                                                                                   \
    {                                                                                                                      \
        .op = #name, .generic = &strata_op_##name, .dtypes = STRATA_FLOATS, .n_operands = 2,                               \
        .operands = {{CASE_UNIFORM, -2, 2, 0, false}, {CASE_UNIFORM, -1, 1, 0, false}}, .instances = CASE_INSTANCES(alike) \
    }
static const case_instance alike[] = {
    {.shapes = {{1, {1}}, {1, {1}}}},
    {.shapes = {{1, {257}}, {1, {257}}}},
    {.shapes = {{2, {0, 2}}, {2, {0, 2}}}},
};

static const case_instance smooth_alike[] = {
    {.shapes = {{1, {1}}, {1, {1}}}, .terms = 256},
    {.shapes = {{2, {13, 31}}, {2, {13, 31}}}, .terms = 256},
    {.shapes = {{2, {0, 2}}, {2, {0, 2}}}},
};
#define WITH_OPERAND(name, values, low, high, list)                                                                     \
    {                                                                                                                   \
        .op = #name, .generic = &strata_op_##name, .dtypes = STRATA_FLOATS, .n_operands = 2,                            \
        .operands = {{CASE_UNIFORM, -3, 3, 0, false}, {values, low, high, 0, false}}, .instances = CASE_INSTANCES(list) \
    }

static const op_row binary[] = {
    {.op = "chain",
     .build = build_chain,
     .dtypes = STRATA_NUMBERS,
     .n_operands = 2,
     .operands = {{CASE_UNIFORM, -9, 9, 0, false}, {CASE_UNIFORM, -9, 9, 0, false}},
     .instances = CASE_INSTANCES(chained),
     .exact = true},
    BINARY(add, CASE_SPECIAL, -9, 9, STRATA_NUMBERS),
    BINARY(sub, CASE_SPECIAL, -9, 9, STRATA_NUMBERS),
    BINARY(mul, CASE_SPECIAL, -9, 9, STRATA_NUMBERS),
    BINARY(div, CASE_UNIFORM, 0.5, 9, STRATA_FLOATS),
    BINARY(min, CASE_SPECIAL, -3, 3, STRATA_NUMBERS),
    BINARY(max, CASE_SPECIAL, -3, 3, STRATA_NUMBERS),
    {.op = "pow",
     .generic = &strata_op_pow,
     .dtypes = STRATA_FLOATS,
     .n_operands = 2,
     .operands = {{CASE_UNIFORM, 0.1, 4, 0, false}, {CASE_UNIFORM, -3, 3, 0, false}},
     .instances = CASE_INSTANCES(powers)},
    {.op = "sigmoid_cross_entropy",
     .generic = &strata_op_sigmoid_cross_entropy,
     .dtypes = STRATA_FLOATS,
     .n_operands = 2,
     .operands = {{CASE_UNIFORM, -9, 9, 0, false}, {CASE_UNIFORM, 0, 1, 0, false}},
     .instances = CASE_INSTANCES(powers)},
    {.op = "sigmoid_sub",
     .generic = &strata_op_sigmoid_sub,
     .dtypes = STRATA_FLOATS,
     .n_operands = 2,
     .operands = {{CASE_UNIFORM, -9, 9, 0, false}, {CASE_UNIFORM, 0, 1, 0, false}},
     .instances = CASE_INSTANCES(powers)},
    SAME_SHAPE(relu_grad),
    SAME_SHAPE(tanh_grad),
    SAME_SHAPE(sigmoid_grad),
    WITH_OPERAND(gelu_grad, CASE_UNIFORM, -3, 3, smooth_alike),
    WITH_OPERAND(gelu_tanh_grad, CASE_UNIFORM, -3, 3, smooth_alike),
    WITH_OPERAND(silu_grad, CASE_UNIFORM, -6, 6, smooth_alike),
    WITH_OPERAND(leaky_relu, CASE_UNIFORM, 0, 1, pairs),
    WITH_OPERAND(elu, CASE_UNIFORM, 0.5, 2, smooth_alike),
};
const op_table case_binary = {"binary", binary, (int)(sizeof binary / sizeof *binary)};

static const case_instance triples[] = {
    {.shapes = {{1, {1}}, {1, {1}}, {1, {1}}}},
    {.shapes = {{1, {257}}, {1, {257}}, {1, {257}}}},
    {.shapes = {{1, {0}}, {1, {0}}, {1, {0}}}},
    {.shapes = {{2, {13, 1}}, {2, {13, 31}}, {1, {31}}}},
    {.shapes = {{0}, {6, {2, 1, 3, 1, 2, 3}}, {6, {1, 2, 3, 2, 1, 3}}}},
};
#define COMPARE(name) BINARY(name, CASE_SPECIAL, -2, 3, STRATA_ANY_DTYPE)

static const op_row compare[] = {
    COMPARE(equal),
    COMPARE(not_equal),
    COMPARE(less),
    COMPARE(less_equal),
    COMPARE(greater),
    COMPARE(greater_equal),
    {.op = "where",
     .generic = &strata_op_where,
     .dtypes = STRATA_ANY_DTYPE,
     .n_operands = 3,
     .operands = {{CASE_WHOLE, 0, 2, CASE_DTYPE(STRATA_DTYPE_BOOL), false},
                  {CASE_SPECIAL, 0, 9, 0, false},
                  {CASE_SPECIAL, 0, 9, 0, false}},
     .instances = CASE_INSTANCES(triples)},
};
const op_table case_compare = {"compare", compare, (int)(sizeof compare / sizeof *compare)};

/* ---- conversions: the row's dtype to each of the others ---- */
static strata_tensor *build_cast(strata_tensor *const *x, const int64_t *p, strata_dtype dtype) {
    (void)dtype;
    return strata_cast(x[0], (strata_dtype)p[0]);
}
#define TO(dtype)                                             \
    {                                                         \
        .shapes = {{1, {257}}}, .p = { STRATA_DTYPE_##dtype } \
    }
#define CAST_FROM(from, low, high, ...)                                                                            \
    {                                                                                                              \
        .op = "cast", .variant = #from, .build = build_cast, .dtypes = 1u << STRATA_DTYPE_##from, .n_operands = 1, \
        .operands = {{CASE_SPECIAL, low, high, 0, false}}, .instances = (const case_instance[]){__VA_ARGS__},      \
        .n_instances = sizeof((const case_instance[]){__VA_ARGS__}) / sizeof(case_instance)                        \
    }
static strata_tensor *build_dequantize(strata_tensor *const *x, const int64_t *p, strata_dtype dtype) {
    (void)p;
    (void)dtype;
    return strata_dequantize(x[0], 1.0 / 255);
}
static const op_row cast[] = {
    {.op = "dequantize",
     .build = build_dequantize,
     .dtypes = 1u << STRATA_DTYPE_U8,
     .n_operands = 1,
     .operands = {{CASE_WHOLE, 0, 256, 0, false}},
     .instances = CASE_INSTANCES(flat),
     .exact = true},
    CAST_FROM(F32, -400, 400, TO(F16), TO(BF16), TO(I32), TO(I64), TO(U8), TO(BOOL),
              {.shapes = {{1, {0}}}, .p = {STRATA_DTYPE_I32}}),
    CAST_FROM(F16, -400, 400, TO(F32), TO(BF16), TO(I32), TO(I64), TO(U8), TO(BOOL)),
    CAST_FROM(BF16, -400, 400, TO(F32), TO(F16), TO(I32), TO(I64), TO(U8), TO(BOOL)),
    CAST_FROM(I32, -400, 400, TO(F32), TO(F16), TO(BF16), TO(I64), TO(U8), TO(BOOL)),
    CAST_FROM(I64, -4e9, 4e9, TO(F32), TO(BF16), TO(I32), TO(U8), TO(BOOL)),
    CAST_FROM(U8, 0, 256, TO(F32), TO(F16), TO(BF16), TO(I32), TO(I64), TO(BOOL)),
    CAST_FROM(BOOL, 0, 2, TO(F32), TO(F16), TO(BF16), TO(I32), TO(I64), TO(U8)),
};
const op_table case_cast = {"cast", cast, (int)(sizeof cast / sizeof *cast)};
