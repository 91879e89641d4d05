/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for random numbers and for updates of variables. */
#include "core/op/adam_product.h"
#include "core/op/ops.h"
#include "core/op/rules.h"
#include "tests/conformance/case.h"

#define BUILD(name) static strata_tensor *build_##name(strata_tensor *const *x, const int64_t *p, strata_dtype dtype)
#define UNUSED      (void)p, (void)dtype

BUILD(random_uniform) {
    UNUSED;
    return strata_random_uniform(x[0], 3, STRATA_SHAPE(p[0], p[1]));
}
BUILD(random_normal) {
    UNUSED;
    return strata_random_normal(x[0], 4, STRATA_SHAPE(p[0], p[1]));
}
BUILD(dropout) {
    UNUSED;
    return strata_dropout(x[0], x[1], 5, 0.25);
}
BUILD(sgd) {
    UNUSED;
    return strata_sgd(x[0], NULL, x[1], x[2], NULL, 0, false);
}
/* p: with a gate or without, nesterov. */
BUILD(sgd_momentum) {
    UNUSED;
    return strata_sgd(x[0], x[3], x[1], x[2], p[0] ? x[4] : NULL, 0.9, p[1]);
}
BUILD(adam) {
    UNUSED;
    return strata_adam(x[0], x[3], x[4], x[1], x[2], p[0] ? x[5] : NULL, 0.9, 0.999, 1e-7);
}
BUILD(adamw) {
    UNUSED;
    return strata_adamw(x[0], x[3], x[4], x[1], x[2], p[0] ? x[5] : NULL, 0.9, 0.999, 1e-7, 0.1);
}
/* p: offset of the product in the gradients, decay. */
BUILD(adam_product) {
    UNUSED;
    return strata_adam_product(strata_adamw(x[0], x[3], x[4], x[1], x[2], x[5], 0.9, 0.999, 1e-7, p[1] ? 0.1 : 0), x[6], x[7],
                               p[0]);
}
/* p: offset of the table in the parameters, number of rows of the table, decay. */
BUILD(adam_gather) {
    UNUSED;
    const strata_gather_grad_attrs attrs = {.axis = 0, .size = p[1]};
    return strata_adam_gather(strata_adamw(x[0], x[3], x[4], x[1], x[2], x[5], 0.9, 0.999, 1e-7, p[2] ? 0.1 : 0),
                              strata_node(NULL, &strata_op_gather_grad, 2, x + 6, &attrs), p[0]);
}
BUILD(rmsprop) {
    UNUSED;
    return strata_rmsprop(x[0], x[3], NULL, NULL, x[1], x[2], NULL, 0.9, 0, 1e-5);
}
/* p: with a gate or without, centered, momentum. The ranges of the operands make `squares` larger than the square of
 * `mean`, since the root of a negative difference would be NaN. */
BUILD(rmsprop_more) {
    UNUSED;
    return strata_rmsprop(x[0], x[3], p[1] ? x[4] : NULL, p[2] ? (p[1] ? x[5] : x[4]) : NULL, x[1], x[2], NULL, 0.9,
                          p[2] ? 0.7 : 0, 1e-5);
}
BUILD(adagrad) {
    UNUSED;
    return strata_adagrad(x[0], x[3], x[1], x[2], p[0] ? x[4] : NULL, 1e-7);
}
BUILD(lamb) {
    UNUSED;
    return strata_lamb(x[0], x[3], x[4], x[1], x[5], x[2], NULL, 0.9, 0.999, 1e-6, 0.1);
}
BUILD(segment_sum) {
    UNUSED;
    return strata_segment_sum(x[0], x[1]);
}
/* The gradient of dropout is the dropout of dy with the same mask. */
BUILD(dropout_grad) {
    strata_tensor *dx = NULL;
    UNUSED;
    strata_gradients(strata_dropout(x[0], x[1], 5, 0.25), x[2], x, 1, &dx);
    return dx;
}

/* p[0]: with a gate or without. */
BUILD(moving_average) {
    UNUSED;
    return strata_moving_average(x[0], x[1], x[2], p[0] ? x[3] : NULL);
}

/* p: the number of rows, n. */
BUILD(first_index) {
    UNUSED;
    return strata_first_index(x[0], p[0]);
}
/* p: the first element, the number of rows. The indices differ from each other. */
BUILD(scatter_update) {
    strata_tensor *inverse;
    UNUSED;
    return strata_scatter_update(x[0], p[0], p[1], strata_unique(x[1], p[1], &inverse), x[2], NULL);
}
/* p: the number of rows. An optimizer's step for some rows of the variables, all of which are written back. */
BUILD(scatter_adam) {
    UNUSED;
    strata_tensor *inverse, *ids = strata_unique(x[5], p[0], &inverse), *rows[3], *variables[3] = {x[0], x[3], x[4]},
                            *sum = NULL;
    for (int i = 0; i < 3; i++) rows[i] = strata_gather(variables[i], ids, 0);
    strata_tensor *step = strata_adam(rows[0], rows[1], rows[2], x[1], x[2], NULL, 0.9, 0.999, 1e-7);
    for (int i = 0; i < 3; i++) {
        strata_tensor *y = strata_scatter_update(variables[i], 0, p[0], ids, i ? rows[i] : step, i ? step : NULL);
        sum = sum ? strata_add(sum, y) : y;
    }
    return sum;
}
/* There are fewer gradients than parameters. */
BUILD(adagrad_of_the_first) {
    UNUSED;
    return strata_adagrad(x[0], x[3], x[1], x[2], NULL, 1e-7);
}

static const case_instance draws[] = {
    {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {1, 1}},
    {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {1, 257}},
    {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {33, 31}},
    {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {0, 31}},
};
static const case_instance normal_draws[] = {
    {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {1, 257}, .terms = 256},
    {.shapes = {{1, {STRATA_RNG_WORDS}}}, .p = {33, 31}, .terms = 256},
};
static const case_instance dropouts[] = {
    {.shapes = {{1, {257}}, {1, {STRATA_RNG_WORDS}}, {1, {257}}}},
    {.shapes = {{2, {3, 7}}, {1, {STRATA_RNG_WORDS}}, {2, {3, 7}}}},
    {.shapes = {{2, {0, 7}}, {1, {STRATA_RNG_WORDS}}, {2, {0, 7}}}},
};
static const case_instance assigns[] = {
    {.shapes = {{1, {1}}, {1, {1}}}},
    {.shapes = {{1, {257}}, {1, {257}}}},
    {.shapes = {{2, {33, 31}}, {2, {33, 31}}}},
};
/* operands: parameters, gradients, step, velocity or m, gate or v, gate */
static const case_instance steps[] = {
    {.shapes = {{1, {257}}, {1, {257}}, {1, {STRATA_STEP_WORDS}}, {1, {257}}, {0}}, .p = {0, 0}, .terms = 16},
    {.shapes = {{1, {64}}, {1, {64}}, {1, {STRATA_STEP_WORDS}}, {1, {64}}, {0}}, .p = {1, 1}, .terms = 16},
};
/* 20011 elements: several work-groups on a CPU, of which the last one is shorter and has no whole number of vectors */
static const case_instance adam_steps[] = {
    {.shapes = {{1, {20011}}, {1, {20011}}, {1, {STRATA_STEP_WORDS}}, {1, {20011}}, {1, {20011}}, {0}}, .p = {0}, .terms = 64},
    {.shapes = {{1, {257}}, {1, {257}}, {1, {STRATA_STEP_WORDS}}, {1, {257}}, {1, {257}}, {0}}, .p = {0}, .terms = 64},
    {.shapes = {{1, {64}}, {1, {64}}, {1, {STRATA_STEP_WORDS}}, {1, {64}}, {1, {64}}, {0}}, .p = {1}, .terms = 64},
};

/* operands: parameters, gradients, step, m, v, gate, a, b. Instances: the product is at the beginning, in the middle and at
 * the end of the gradients; it has one row; it has fewer rows than a tile; its sizes are no multiples of a tile's, so the
 * last tile is moved up and to the left; a or b is empty. */
#define PRODUCT_STEP(size, gradients, k, m, n, ...)                                                        \
    {                                                                                                      \
        .shapes = {{1, {size}}, {1, {gradients}}, {1, {STRATA_STEP_WORDS}}, {1, {size}}, {1, {size}}, {0}, \
                   {2, {k, m}}, {2, {k, n}}},                                                              \
        .p = {__VA_ARGS__}, .terms = 64                                                                    \
    }
static const case_instance product_steps[] = {
    PRODUCT_STEP(1100, 1100, 5, 17, 64, 0, 0),   PRODUCT_STEP(1100, 1090, 2, 13, 80, 32, 1),
    PRODUCT_STEP(16, 16, 1, 1, 16, 0, 0),        PRODUCT_STEP(133, 133, 7, 4, 32, 5, 0),
    PRODUCT_STEP(40, 40, 3, 5, 7, 3, 1),         PRODUCT_STEP(20, 20, 0, 2, 8, 1, 0),
    PRODUCT_STEP(9, 9, 4, 0, 8, 9, 0),           PRODUCT_STEP(5000, 5000, 33, 47, 96, 488, 0),
    PRODUCT_STEP(1472, 1472, 129, 23, 64, 0, 1),
};

/* operands: parameters, gradients, step, m, v, gate, dy, indices. Instances: dy is broadcast along the indices' last axis,
 * or not; rows of one vector, of several, and of less than one; more indices per row of dy than a block; more rows than a
 * block of the table; one row; no indices. */
#define GATHER_STEP(size, j, t, dy_t, rows, inner, ...)                              \
    {                                                                                \
        .shapes = {{1, {size}}, {1, {size}}, {1, {STRATA_STEP_WORDS}}, {1, {size}},  \
                   {1, {size}}, {0},         {3, {j, dy_t, inner}},    {2, {j, t}}}, \
        .p = {__VA_ARGS__}, .terms = 64                                              \
    }
static const case_instance gather_steps[] = {
    GATHER_STEP(700, 3, 50, 1, 40, 16, 8, 40, 0),
    GATHER_STEP(648, 7, 3, 3, 40, 16, 0, 40, 1),
    GATHER_STEP(1300, 2, 1501, 1, 27, 48, 4, 27, 0),
    GATHER_STEP(864, 41, 1, 1, 27, 32, 0, 27, 0),
    GATHER_STEP(410, 5, 9, 1, 80, 5, 3, 80, 1),
    GATHER_STEP(176, 3, 4, 1, 1, 144, 32, 1, 0),
    GATHER_STEP(272005, 6, 250, 1, 17000, 16, 5, 17000, 0),
    GATHER_STEP(70, 0, 5, 5, 4, 16, 6, 4, 0),
    GATHER_STEP(64, 1, 20, 1, 4, 16, 0, 4, 0),
    GATHER_STEP(1224, 2, 300, 300, 51, 24, 0, 51, 0),
};

static const case_instance averages[] = {
    {.shapes = {{1, {257}}, {1, {257}}, {1, {257}}, {0}}, .p = {1}, .terms = 4},
    {.shapes = {{2, {3, 7}}, {2, {3, 7}}, {2, {3, 7}}, {0}}, .p = {0}, .terms = 4},
};
static const case_instance lamb_steps[] = {
    {.shapes = {{1, {257}}, {1, {257}}, {1, {STRATA_STEP_WORDS}}, {1, {257}}, {1, {257}}, {1, {257}}}, .terms = 256},
};
static const case_instance rmsprop_steps[] = {
    {.shapes = {{1, {257}}, {1, {257}}, {1, {STRATA_STEP_WORDS}}, {1, {257}}, {1, {257}}, {1, {257}}},
     .p = {0, 1, 0},
     .terms = 256},
    {.shapes = {{1, {64}}, {1, {64}}, {1, {STRATA_STEP_WORDS}}, {1, {64}}, {1, {64}}, {1, {64}}}, .p = {0, 0, 1}, .terms = 256},
    {.shapes = {{1, {61}}, {1, {61}}, {1, {STRATA_STEP_WORDS}}, {1, {61}}, {1, {61}}, {1, {61}}}, .p = {0, 1, 1}, .terms = 256},
};
/* operands: x, ends (in any order). Some segments are empty, and some ends are outside of x. */
static const case_instance segments[] = {
    {.shapes = {{1, {1}}, {1, {1}}}, .terms = 8},
    {.shapes = {{1, {1009}}, {1, {7}}}, .terms = 1024},
    {.shapes = {{1, {300}}, {1, {61}}}, .terms = 300},
    {.shapes = {{1, {0}}, {1, {3}}}},
    {.shapes = {{1, {5}}, {1, {0}}}},
};
/* More elements than iterations of a loop on some devices. */
static const case_instance long_segments[] = {{.shapes = {{1, {6000000}}, {1, {2}}}, .terms = 6000000, .big = true}};

static const case_instance first_indices[] = {
    {.shapes = {{1, {1}}}, .p = {3}},    {.shapes = {{2, {13, 257}}}, .p = {1031}},
    {.shapes = {{1, {3001}}}, .p = {5}}, {.shapes = {{1, {70001}}}, .p = {5003}, .big = true},
    {.shapes = {{1, {0}}}, .p = {7}},    {.shapes = {{1, {7}}}, .p = {0}},
    {.shapes = {{0}}, .p = {1}},
};
/* operands: variable, indices, rows */
static const case_instance scatters[] = {
    {.shapes = {{1, {7}}, {1, {3}}, {1, {3}}}, .p = {0, 7}},
    {.shapes = {{1, {200}}, {1, {41}}, {2, {41, 5}}}, .p = {64, 27}},
    {.shapes = {{2, {67, 16}}, {2, {3, 50}}, {3, {3, 50, 16}}}, .p = {0, 67}},
    {.shapes = {{2, {5, 300}}, {1, {9}}, {2, {9, 300}}}, .p = {300, 3}},
    {.shapes = {{1, {7}}, {1, {0}}, {2, {0, 3}}}, .p = {0, 2}},
    {.shapes = {{1, {7}}, {1, {3}}, {2, {3, 0}}}, .p = {7, 2}},
};
/* operands: parameters, gradients, step, m, v, indices */
static const case_instance row_steps[] = {
    {.shapes = {{2, {31, 5}}, {2, {17, 5}}, {1, {STRATA_STEP_WORDS}}, {2, {31, 5}}, {2, {31, 5}}, {1, {17}}},
     .p = {31},
     .terms = 64},
    {.shapes = {{2, {7, 64}}, {2, {100, 64}}, {1, {STRATA_STEP_WORDS}}, {2, {7, 64}}, {2, {7, 64}}, {1, {100}}},
     .p = {7},
     .terms = 64},
};
static const case_instance first_steps[] = {
    {.shapes = {{1, {257}}, {1, {67}}, {1, {STRATA_STEP_WORDS}}, {1, {257}}}, .terms = 16},
    {.shapes = {{1, {64}}, {1, {0}}, {1, {STRATA_STEP_WORDS}}, {1, {64}}}, .terms = 16},
};

#define F32 (1u << STRATA_DTYPE_F32)
#define INDEX(dtype) \
    { CASE_WHOLE, -3, 80, CASE_DTYPE(dtype), false }
#define FLOAT \
    { CASE_UNIFORM, -2, 2, 0, false }
#define STEP \
    { CASE_UNIFORM, 0.001, 0.1, 0, false }
#define STATE \
    { CASE_STATE, 0, 0, CASE_DTYPE(STRATA_DTYPE_I32), false }
#define VARIABLE(low, high) \
    { CASE_UNIFORM, low, high, 0, true }
/* A quarter of the elements is 0. */
#define ZEROS \
    { CASE_WHOLE, 0, 4, 0, false }
#define STATE_WITH_ZEROS \
    { CASE_WHOLE, 0, 4, 0, true }

static const op_row update[] = {
    {.op = "random_uniform",
     .build = build_random_uniform,
     .dtypes = F32,
     .n_operands = 1,
     .operands = {STATE},
     .instances = CASE_INSTANCES(draws),
     .exact = true},
    {.op = "random_normal",
     .build = build_random_normal,
     .dtypes = F32,
     .n_operands = 1,
     .operands = {STATE},
     .instances = CASE_INSTANCES(normal_draws)},
    {.op = "dropout",
     .build = build_dropout,
     .dtypes = STRATA_FLOATS,
     .n_operands = 2,
     .operands = {FLOAT, STATE},
     .instances = CASE_INSTANCES(dropouts)},
    {.op = "dropout",
     .variant = "gradient",
     .build = build_dropout_grad,
     .dtypes = STRATA_FLOATS,
     .n_operands = 3,
     .operands = {FLOAT, STATE, FLOAT},
     .instances = CASE_INSTANCES(dropouts)},
    {.op = "assign",
     .generic = &strata_op_assign,
     .dtypes = STRATA_ANY_DTYPE,
     .n_operands = 2,
     .operands = {{CASE_WHOLE, 0, 2, 0, true}, {CASE_SPECIAL, 0, 9, 0, false}},
     .instances = CASE_INSTANCES(assigns)},
    {.op = "assign_add",
     .generic = &strata_op_assign_add,
     .dtypes = F32 | STRATA_INDICES,
     .n_operands = 2,
     .operands = {VARIABLE(-9, 9), {CASE_UNIFORM, -9, 9, 0, false}},
     .instances = CASE_INSTANCES(assigns)},
    {.op = "moving_average",
     .build = build_moving_average,
     .dtypes = F32,
     .n_operands = 4,
     .operands = {VARIABLE(-2, 2), FLOAT, {CASE_WHOLE, 0, 2, 0, false}, FLOAT},
     .instances = CASE_INSTANCES(averages)},
    {.op = "sgd",
     .build = build_sgd,
     .dtypes = F32,
     .n_operands = 3,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP},
     .instances = CASE_INSTANCES(steps)},
    {.op = "sgd",
     .variant = "momentum",
     .build = build_sgd_momentum,
     .dtypes = F32,
     .n_operands = 5,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), FLOAT},
     .instances = CASE_INSTANCES(steps)},
    {.op = "adam",
     .build = build_adam,
     .dtypes = F32,
     .n_operands = 6,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), VARIABLE(0.1, 1), FLOAT},
     .instances = CASE_INSTANCES(adam_steps)},
    {.op = "adam",
     .variant = "decay",
     .build = build_adamw,
     .dtypes = F32,
     .n_operands = 6,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), VARIABLE(0, 1), FLOAT},
     .instances = CASE_INSTANCES(adam_steps)},
    {.op = "adam_product",
     .build = build_adam_product,
     .dtypes = F32,
     .n_operands = 8,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), VARIABLE(0.1, 1), FLOAT, FLOAT, FLOAT},
     .instances = CASE_INSTANCES(product_steps)},
    {.op = "adam_gather",
     .build = build_adam_gather,
     .dtypes = F32,
     .n_operands = 8,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), VARIABLE(0.1, 1), FLOAT, FLOAT, INDEX(STRATA_DTYPE_I32)},
     .instances = CASE_INSTANCES(gather_steps)},
    /* Elements whose gradients were always 0 are not changed: each update's root and quotient of zeros is 0. */
    {.op = "adam",
     .variant = "of zeros",
     .build = build_adam,
     .dtypes = F32,
     .n_operands = 6,
     .operands = {VARIABLE(-2, 2), ZEROS, STEP, STATE_WITH_ZEROS, STATE_WITH_ZEROS, FLOAT},
     .instances = CASE_INSTANCES(adam_steps)},
    {.op = "adam_gather",
     .variant = "of zeros",
     .build = build_adam_gather,
     .dtypes = F32,
     .n_operands = 8,
     .operands = {VARIABLE(-2, 2), ZEROS, STEP, STATE_WITH_ZEROS, STATE_WITH_ZEROS, FLOAT, ZEROS, INDEX(STRATA_DTYPE_I32)},
     .instances = CASE_INSTANCES(gather_steps)},
    {.op = "rmsprop",
     .variant = "of zeros",
     .build = build_rmsprop,
     .dtypes = F32,
     .n_operands = 4,
     .operands = {VARIABLE(-2, 2), ZEROS, STEP, STATE_WITH_ZEROS},
     .instances = CASE_INSTANCES(steps)},
    {.op = "adagrad",
     .variant = "of zeros",
     .build = build_adagrad,
     .dtypes = F32,
     .n_operands = 5,
     .operands = {VARIABLE(-2, 2), ZEROS, STEP, STATE_WITH_ZEROS, FLOAT},
     .instances = CASE_INSTANCES(steps)},
    {.op = "rmsprop",
     .build = build_rmsprop,
     .dtypes = F32,
     .n_operands = 4,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(0.1, 1)},
     .instances = CASE_INSTANCES(steps)},
    {.op = "rmsprop",
     .variant = "centered or with momentum",
     .build = build_rmsprop_more,
     .dtypes = F32,
     .n_operands = 6,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(1, 2), VARIABLE(-0.5, 0.5), VARIABLE(-1, 1)},
     .instances = CASE_INSTANCES(rmsprop_steps)},
    {.op = "adagrad",
     .build = build_adagrad,
     .dtypes = F32,
     .n_operands = 5,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(0.1, 1), FLOAT},
     .instances = CASE_INSTANCES(steps)},
    {.op = "lamb",
     .build = build_lamb,
     .dtypes = F32,
     .n_operands = 6,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), VARIABLE(0.1, 1), FLOAT},
     .instances = CASE_INSTANCES(lamb_steps)},
    {.op = "adagrad",
     .variant = "of the first",
     .build = build_adagrad_of_the_first,
     .dtypes = F32,
     .n_operands = 4,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(0.1, 1)},
     .instances = CASE_INSTANCES(first_steps)},
    {.op = "first_index",
     .build = build_first_index,
     .dtypes = STRATA_INDICES,
     .n_operands = 1,
     .operands = {{CASE_WHOLE, -3, 1100, 0, false}},
     .instances = CASE_INSTANCES(first_indices)},
    {.op = "first_index",
     .variant = "of few",
     .build = build_first_index,
     .dtypes = STRATA_INDICES,
     .n_operands = 1,
     .operands = {{CASE_WHOLE, 2, 3, 0, false}},
     .instances = CASE_INSTANCES(first_indices)},
    {.op = "scatter_update",
     .build = build_scatter_update,
     .dtypes = STRATA_ANY_DTYPE,
     .n_operands = 3,
     .operands = {{CASE_WHOLE, 0, 2, 0, true}, INDEX(STRATA_DTYPE_I32), {CASE_SPECIAL, 0, 9, 0, false}},
     .instances = CASE_INSTANCES(scatters)},
    {.op = "scatter_update",
     .variant = "i64",
     .build = build_scatter_update,
     .dtypes = STRATA_ANY_DTYPE,
     .n_operands = 3,
     .operands = {{CASE_WHOLE, 0, 2, 0, true}, INDEX(STRATA_DTYPE_I64), {CASE_SPECIAL, 0, 9, 0, false}},
     .instances = CASE_INSTANCES(scatters)},
    {.op = "scatter_update",
     .variant = "of adam's rows",
     .build = build_scatter_adam,
     .dtypes = F32,
     .n_operands = 6,
     .operands = {VARIABLE(-2, 2), FLOAT, STEP, VARIABLE(-1, 1), VARIABLE(0.1, 1), INDEX(STRATA_DTYPE_I32)},
     .instances = CASE_INSTANCES(row_steps)},
    {.op = "segment_sum",
     .build = build_segment_sum,
     .dtypes = F32,
     .n_operands = 2,
     .operands = {FLOAT, {CASE_WHOLE, -5, 1100, CASE_DTYPE(STRATA_DTYPE_I32), false}},
     .instances = CASE_INSTANCES(segments)},
    {.op = "segment_sum",
     .variant = "long",
     .build = build_segment_sum,
     .dtypes = F32,
     .n_operands = 2,
     .operands = {FLOAT, {CASE_WHOLE, 5900000, 6000000, CASE_DTYPE(STRATA_DTYPE_I32), false}},
     .instances = CASE_INSTANCES(long_segments)},
};
const op_table case_update = {"random and updates", update, (int)(sizeof update / sizeof *update)};
