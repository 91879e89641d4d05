/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for products, reductions, softmax and its losses. matmul_test.c tests all shapes, transposes and epilogues of
 * matmul. */
#include "core/op/ops.h"
#include "core/op/rules.h"
#include "tests/conformance/case.h"

#define BUILD(name) static strata_tensor *build_##name(strata_tensor *const *x, const int64_t *p, strata_dtype dtype)
#define UNUSED      (void)p, (void)dtype

BUILD(matmul) {
    UNUSED;
    return strata_matmul(x[0], x[1], p[0], p[1]);
}
/* p: keep_dims, the number of axes, the axes. */
#define REDUCE(name)                                                 \
    BUILD(name) {                                                    \
        int axes[STRATA_MAX_RANK];                                   \
        UNUSED;                                                      \
        for (int i = 0; i < (int)p[1]; i++) axes[i] = (int)p[2 + i]; \
        return strata_##name(x[0], axes, (int)p[1], p[0]);           \
    }
REDUCE(reduce_sum)
REDUCE(reduce_mean)
REDUCE(reduce_max)
REDUCE(reduce_min)
BUILD(argmax) {
    UNUSED;
    return strata_argmax(x[0], (int)p[0]);
}
BUILD(top_k) {
    strata_tensor *indices;
    UNUSED;
    strata_top_k(x[0], p[0], &indices);
    return indices;
}
BUILD(top_k_values) {
    UNUSED;
    return strata_top_k(x[0], p[0], NULL);
}
/* p[0] is 0 for the gradient with respect to the logits, and 1 with respect to the labels. */
BUILD(softmax_cross_entropy_grad) {
    strata_tensor *dx[2] = {NULL, NULL};
    UNUSED;
    strata_gradients(strata_softmax_cross_entropy(x[0], x[1]), x[2], x, 2, dx);
    return dx[p[0]];
}

static const case_instance products[] = {
    {.shapes = {{2, {1, 1}}, {2, {1, 1}}}},
    {.shapes = {{2, {7, 5}}, {2, {5, 13}}}, .terms = 5},
    {.shapes = {{2, {5, 7}}, {2, {13, 5}}}, .p = {1, 1}, .terms = 5},
    {.shapes = {{2, {0, 5}}, {2, {5, 3}}}},
    {.shapes = {{2, {2, 0}}, {2, {0, 3}}}},
    {.shapes = {{3, {2, 9, 17}}, {3, {2, 17, 10}}}, .terms = 17},
};
/* The shapes make the kernel divide the reduced axis into short runs, into runs of which the last one is shorter, and into
 * one part, several parts and 64 parts. Some have more than 32 columns. */
static const case_instance reductions[] = {
    {.shapes = {{1, {1}}}, .p = {0, 0}},
    {.shapes = {{1, {257}}}, .p = {0, 0}, .terms = 257},
    /* Rows of one vector of 16: too few for runs, and with a shorter last run. */
    {.shapes = {{3, {3, 9, 16}}}, .p = {0, 1, 1}, .terms = 9},
    {.shapes = {{3, {5, 250, 16}}}, .p = {0, 1, 1}, .terms = 250},
    {.shapes = {{2, {13, 31}}}, .p = {1, 1, 0}, .terms = 13},
    {.shapes = {{2, {13, 31}}}, .p = {0, 1, 1}, .terms = 31},
    {.shapes = {{4, {3, 4, 5, 6}}}, .p = {0, 2, 1, 2}, .terms = 20},
    {.shapes = {{4, {3, 4, 5, 6}}}, .p = {1, 2, 0, 3}, .terms = 18},
    {.shapes = {{2, {0, 3}}}, .p = {0, 1, 1}},
    {.shapes = {{1, {10007}}}, .p = {0, 0}, .terms = 10007, .big = true},
    {.shapes = {{2, {3, 1031}}}, .p = {0, 1, 1}, .terms = 1031, .big = true},
    {.shapes = {{3, {2, 67, 35}}}, .p = {0, 1, 1}, .terms = 67},
    {.shapes = {{2, {4099, 9}}}, .p = {0, 1, 0}, .terms = 4099, .big = true},
    {.shapes = {{2, {32801, 3}}}, .p = {0, 1, 0}, .terms = 32801, .big = true},
};
static const case_instance empty_sums[] = {{.shapes = {{2, {0, 3}}}, .p = {0, 1, 0}}};
static const case_instance argmaxes[] = {
    {.shapes = {{1, {1}}}, .p = {0}},         {.shapes = {{2, {13, 31}}}, .p = {-1}}, {.shapes = {{2, {13, 31}}}, .p = {0}},
    {.shapes = {{3, {3, 257, 5}}}, .p = {1}}, {.shapes = {{2, {0, 3}}}, .p = {1}},
};
/* The 300 largest of 4099 elements take two launches. */
static const case_instance top_ks[] = {
    {.shapes = {{1, {1}}}, .p = {1}},
    {.shapes = {{2, {13, 31}}}, .p = {5}},
    {.shapes = {{2, {13, 31}}}, .p = {31}},
    {.shapes = {{3, {2, 3, 257}}}, .p = {7}},
    {.shapes = {{1, {300}}}, .p = {300}},
    {.shapes = {{2, {0, 3}}}, .p = {2}},
    {.shapes = {{2, {2, 4099}}}, .p = {300}, .big = true},
};

#define FLOAT \
    { CASE_UNIFORM, -2, 2, 0, false }
#define ROW(name, set, list, ...)                                                                                     \
    {                                                                                                                 \
        .op = #name, .build = build_##name, .dtypes = set, .operands = {__VA_ARGS__},                                 \
        .n_operands = sizeof((case_operand[]){__VA_ARGS__}) / sizeof(case_operand), .instances = CASE_INSTANCES(list) \
    }

static const op_row product[] = {
    ROW(matmul, STRATA_FLOATS, products, FLOAT, FLOAT),
    ROW(reduce_sum, STRATA_NUMBERS, reductions, {CASE_UNIFORM, -9, 9, 0, false}),
    ROW(reduce_sum, STRATA_NUMBERS, empty_sums, {CASE_UNIFORM, -9, 9, 0, false}),
    ROW(reduce_mean, STRATA_FLOATS, reductions, {CASE_UNIFORM, -9, 9, 0, false}),
    ROW(reduce_mean, STRATA_FLOATS, empty_sums, {CASE_UNIFORM, -9, 9, 0, false}),
    ROW(reduce_max, STRATA_NUMBERS, reductions, {CASE_SPECIAL, -9, 9, 0, false}),
    ROW(reduce_min, STRATA_NUMBERS, reductions, {CASE_SPECIAL, -9, 9, 0, false}),
    ROW(argmax, STRATA_NUMBERS, argmaxes, {CASE_WHOLE, -3, 3, 0, false}),
    ROW(argmax, STRATA_FLOATS, argmaxes, {CASE_EXTREME, -3, 3, 0, false}),
    ROW(top_k, STRATA_ANY_DTYPE, top_ks, {CASE_WHOLE, -3, 3, 0, false}),
    ROW(top_k, STRATA_FLOATS, top_ks, {CASE_EXTREME, -3, 3, 0, false}),
    {.op = "top_k",
     .variant = "values",
     .build = build_top_k_values,
     .dtypes = STRATA_FLOATS,
     .n_operands = 1,
     .operands = {{CASE_SPECIAL, -3, 3, 0, false}},
     .instances = CASE_INSTANCES(top_ks),
     .exact = true},
};
const op_table case_products = {"products and reductions", product, (int)(sizeof product / sizeof *product)};

/* ---- softmax ---- */
static const case_instance rows[] = {
    {.shapes = {{1, {1}}, {1, {1}}}, .terms = 16},
    {.shapes = {{2, {7, 10}}, {2, {7, 10}}}, .terms = 64},
    {.shapes = {{2, {3, 257}}, {2, {3, 257}}}, .terms = 512},
    {.shapes = {{2, {0, 10}}, {2, {0, 10}}}},
    {.shapes = {{3, {2, 65, 3}}, {3, {2, 65, 3}}}, .terms = 64},
};
static const case_instance losses[] = {
    {.shapes = {{2, {1, 1}}, {1, {1}}, {1, {1}}}, .terms = 16},
    {.shapes = {{2, {65, 10}}, {1, {65}}, {1, {65}}}, .terms = 64},
    {.shapes = {{2, {3, 257}}, {1, {3}}, {1, {3}}}, .terms = 512},
    {.shapes = {{2, {0, 10}}, {1, {0}}, {1, {0}}}},
    {.shapes = {{3, {2, 5, 3}}, {2, {2, 5}}, {2, {2, 5}}}, .terms = 64},
};
/* The second row has an infinity of each sign. Several instances, so that each of them is the label in one. */
static const case_instance special_losses[] = {
    {.shapes = {{2, {5, 2}}, {1, {5}}, {1, {5}}}, .terms = 16},
    {.shapes = {{2, {6, 2}}, {1, {6}}, {1, {6}}}, .terms = 16},
    {.shapes = {{2, {7, 2}}, {1, {7}}, {1, {7}}}, .terms = 16},
    {.shapes = {{2, {8, 2}}, {1, {8}}, {1, {8}}}, .terms = 16},
};
#define SPECIAL \
    { CASE_SPECIAL, -3, 3, 0, false }
#define SHORT_LABEL \
    { CASE_WHOLE, 0, 2, CASE_DTYPE(STRATA_DTYPE_I32), false }
static const case_instance soft_losses[] = {
    {.shapes = {{2, {65, 10}}, {2, {65, 10}}, {1, {65}}}, .p = {0}, .terms = 128},
    {.shapes = {{2, {65, 10}}, {2, {65, 10}}, {1, {65}}}, .p = {1}, .terms = 128},
    {.shapes = {{2, {3, 257}}, {2, {3, 257}}, {1, {3}}}, .p = {0}, .terms = 1024},
    {.shapes = {{2, {3, 257}}, {2, {3, 257}}, {1, {3}}}, .p = {1}, .terms = 1024},
    {.shapes = {{2, {0, 10}}, {2, {0, 10}}, {1, {0}}}},
};
#define LABEL(dtype) \
    { CASE_WHOLE, 0, 12, CASE_DTYPE(STRATA_DTYPE_##dtype), false }
#define GENERIC(name, list, ...)                                                                                      \
    {                                                                                                                 \
        .op = #name, .generic = &strata_op_##name, .dtypes = STRATA_FLOATS, .operands = {__VA_ARGS__},                \
        .n_operands = sizeof((case_operand[]){__VA_ARGS__}) / sizeof(case_operand), .instances = CASE_INSTANCES(list) \
    }
#define PROBABILITY \
    { CASE_UNIFORM, 0, 1, 0, false }

/* operands: losses, logits (with ties), labels */
static const case_instance metrics[] = {
    {.shapes = {{1, {1}}, {2, {1, 1}}, {1, {1}}}},
    {.shapes = {{1, {65}}, {2, {65, 10}}, {1, {65}}}, .terms = 65},
    {.shapes = {{1, {257}}, {2, {257, 3}}, {1, {257}}}, .terms = 257},
    {.shapes = {{1, {0}}, {2, {0, 10}}, {1, {0}}}},
    {.shapes = {{1, {600}}, {2, {600, 10000}}, {1, {600}}}, .terms = 600, .big = true},
};
#define METRICS(dtype)                                                                                                         \
    {                                                                                                                          \
        .op = "classification_sums", .generic = &strata_op_classification_sums, .dtypes = 1u << STRATA_DTYPE_F32,              \
        .n_operands = 3,                                                                                                       \
        .operands = {PROBABILITY, {CASE_WHOLE, 0, 4, 0, false}, {CASE_WHOLE, 0, 10, CASE_DTYPE(STRATA_DTYPE_##dtype), false}}, \
        .instances = CASE_INSTANCES(metrics)                                                                                   \
    }

/* operands: losses, outputs (some exactly at the threshold), labels */
static const case_instance yes_or_no[] = {
    {.shapes = {{1, {1}}, {2, {1, 1}}, {2, {1, 1}}}},
    {.shapes = {{1, {65}}, {2, {65, 1}}, {2, {65, 1}}}, .terms = 65},
    {.shapes = {{1, {257}}, {2, {257, 3}}, {2, {257, 3}}}, .terms = 257},
    {.shapes = {{1, {0}}, {2, {0, 1}}, {2, {0, 1}}}},
};
static strata_tensor *build_binary_sums(strata_tensor *const *x, const int64_t *p, strata_dtype dtype) {
    (void)p, (void)dtype;
    return strata_binary_sums(x[0], x[1], x[2], 0);
}

/* Logits far from 0, of which the largest is to be subtracted before anything is rounded. */
#define FAR \
    { CASE_UNIFORM, -4004, -3996, 0, false }

static const op_row softmax[] = {
    {.op = "binary_sums",
     .build = build_binary_sums,
     .dtypes = 1u << STRATA_DTYPE_F32,
     .n_operands = 3,
     .operands = {PROBABILITY, {CASE_WHOLE, -2, 2, 0, false}, PROBABILITY},
     .instances = CASE_INSTANCES(yes_or_no)},
    GENERIC(softmax, rows, {CASE_UNIFORM, -5, 5, 0, false}),
    GENERIC(log_softmax, rows, {CASE_UNIFORM, -5, 5, 0, false}),
    GENERIC(softmax, rows, {CASE_UNIFORM, -250, -200, 0, false}),
    GENERIC(log_softmax, rows, {CASE_UNIFORM, -250, -200, 0, false}),
    GENERIC(softmax, rows, SPECIAL),
    GENERIC(log_softmax, rows, SPECIAL),
    GENERIC(softmax_grad, rows, PROBABILITY, FLOAT),
    GENERIC(log_softmax_grad, rows, {CASE_UNIFORM, -5, 0, 0, false}, FLOAT),
    GENERIC(sparse_softmax_cross_entropy, losses, FLOAT, LABEL(I32)),
    GENERIC(sparse_softmax_cross_entropy, losses, FLOAT, LABEL(I64)),
    GENERIC(sparse_softmax_cross_entropy_grad, losses, FLOAT, LABEL(I32), FLOAT),
    GENERIC(sparse_softmax_cross_entropy_grad, losses, FLOAT, LABEL(I64), FLOAT),
    GENERIC(sparse_softmax_cross_entropy, losses, FAR, LABEL(I32)),
    GENERIC(sparse_softmax_cross_entropy_grad, losses, FAR, LABEL(I32), FLOAT),
    GENERIC(sparse_softmax_cross_entropy, special_losses, SPECIAL, SHORT_LABEL),
    GENERIC(sparse_softmax_cross_entropy_grad, special_losses, SPECIAL, SHORT_LABEL, FLOAT),
    GENERIC(softmax_cross_entropy, soft_losses, FLOAT, PROBABILITY),
    GENERIC(softmax_cross_entropy, soft_losses, FAR, PROBABILITY),
    METRICS(I32),
    METRICS(I64),
    ROW(softmax_cross_entropy_grad, STRATA_FLOATS, soft_losses, FLOAT, PROBABILITY, FLOAT),
    ROW(softmax_cross_entropy_grad, STRATA_FLOATS, soft_losses, FAR, PROBABILITY, FLOAT),
};
const op_table case_softmax = {"softmax", softmax, (int)(sizeof softmax / sizeof *softmax)};
