/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for ops that move elements: ops that change shapes, and ops that read or write by index. */
#include "core/op/gather.h"
#include "core/op/ops.h"
#include "core/op/rules.h"
#include "tests/conformance/case.h"

#define BUILD(name) static strata_tensor *build_##name(strata_tensor *const *x, const int64_t *p, strata_dtype dtype)
#define UNUSED      (void)p, (void)dtype

BUILD(reshape) {
    UNUSED;
    return strata_reshape(x[0], STRATA_SHAPE(-1));
}
BUILD(print) {
    UNUSED;
    return strata_print(x[0], NULL);
}
BUILD(transpose) {
    int axes[STRATA_MAX_RANK];
    UNUSED;
    for (int i = 0; i < STRATA_MAX_RANK; i++) axes[i] = (int)p[i];
    return strata_transpose(x[0], axes);
}
BUILD(broadcast_to) {
    strata_shape shape = {.rank = (int)p[0]};
    UNUSED;
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = p[1 + i];
    return strata_broadcast_to(x[0], shape);
}
BUILD(concat) {
    UNUSED;
    return strata_concat(x, 3, (int)p[0]);
}
BUILD(slice) {
    UNUSED;
    return strata_slice(x[0], p, p + 8);
}
BUILD(pad) {
    UNUSED;
    return strata_pad(x[0], p, p + 8, dtype == STRATA_DTYPE_BOOL ? 1 : 3);
}
BUILD(gather) {
    UNUSED;
    return strata_gather(x[0], x[1], (int)p[0]);
}
BUILD(gather_mean) {
    (void)p, (void)dtype;
    return strata_node(NULL, &strata_op_gather_mean, 2, x, NULL);
}
BUILD(gather_grad) {
    strata_tensor *dx = NULL;
    UNUSED;
    strata_gradients(strata_gather(x[0], x[1], (int)p[0]), x[2], x, 1, &dx);
    return dx;
}
/* dy is a tensor that is broadcast along the last axis of the indices. The kernel reads that tensor instead of the result
 * of the broadcast. */
BUILD(gather_grad_unrepeated) {
    UNUSED;
    strata_tensor *dx = NULL, *y = strata_gather(x[0], x[1], (int)p[0]);
    strata_gradients(y, strata_broadcast_to(x[2], strata_tensor_shape(y)), x, 1, &dx);
    return strata_gather_grad_unrepeated(dx);
}
BUILD(one_hot) {
    UNUSED;
    return strata_one_hot(x[0], p[0], (strata_dtype)p[1]);
}
BUILD(pack) {
    UNUSED;
    return strata_pack(x, p, 3, p[3]);
}
/* The parts of the pack are computed directly at their positions in the result. */
BUILD(pack_computed) {
    UNUSED;
    strata_tensor *y[3] = {strata_exp(x[0]), strata_reshape(strata_neg(x[1]), STRATA_SHAPE(-1)), strata_square(x[2])};
    return strata_add(strata_pack(y, p, 3, p[3]), strata_scalar(x[0]->graph, STRATA_DTYPE_F32, 1));
}

static const case_instance reshapes[] = {
    {.shapes = {{2, {3, 5}}}}, {.shapes = {{0}}}, {.shapes = {{2, {0, 3}}}}, {.shapes = {{1, {257}}}}};
static const case_instance transposes[] = {
    {.shapes = {{2, {3, 5}}}, .p = {1, 0}},
    {.shapes = {{2, {33, 65}}}, .p = {1, 0}},
    {.shapes = {{2, {0, 3}}}, .p = {1, 0}},
    {.shapes = {{3, {4, 3, 17}}}, .p = {0, 2, 1}},
    {.shapes = {{4, {2, 3, 4, 5}}}, .p = {3, 1, 0, 2}},
    {.shapes = {{6, {2, 3, 2, 3, 2, 3}}}, .p = {5, 3, 1, 4, 2, 0}},
    {.shapes = {{2, {257, 31}}}, .p = {1, 0}, .big = true},
};
static const case_instance broadcasts[] = {
    {.shapes = {{0}}, .p = {1, 257}},
    {.shapes = {{2, {3, 1}}}, .p = {2, 3, 7}},
    {.shapes = {{1, {5}}}, .p = {3, 2, 3, 5}},
    {.shapes = {{1, {1}}}, .p = {2, 0, 3}},
    {.shapes = {{6, {2, 1, 3, 1, 2, 1}}}, .p = {6, 2, 2, 3, 2, 2, 3}},
};
static const case_instance concats[] = {
    {.shapes = {{1, {3}}, {1, {0}}, {1, {257}}}, .p = {0}},
    {.shapes = {{2, {2, 3}}, {2, {2, 1}}, {2, {2, 17}}}, .p = {1}},
    {.shapes = {{3, {2, 3, 5}}, {3, {2, 1, 5}}, {3, {2, 7, 5}}}, .p = {-2}},
};
static const case_instance slices[] = {
    {.shapes = {{1, {257}}}, .p = {3, [8] = 250}},
    {.shapes = {{2, {7, 5}}}, .p = {2, 0, [8] = 3, 5}},
    {.shapes = {{2, {7, 5}}}, .p = {1, 2, [8] = 5, 2}},
    {.shapes = {{2, {7, 5}}}, .p = {1, 2, [8] = 0, 2}},
    {.shapes = {{4, {3, 4, 5, 6}}}, .p = {1, 1, 2, 3, [8] = 2, 2, 3, 2}},
};
static const case_instance pads[] = {
    {.shapes = {{1, {255}}}, .p = {1, [8] = 1}},
    {.shapes = {{2, {3, 5}}}, .p = {0, 2, [8] = 1, 0}},
    {.shapes = {{2, {0, 5}}}, .p = {2, 0, [8] = 1, 1}},
    {.shapes = {{4, {2, 3, 2, 3}}}, .p = {1, 0, 2, 1, [8] = 0, 1, 1, 2}},
};
static const case_instance gathers[] = {
    {.shapes = {{1, {7}}, {1, {257}}}, .p = {0}},     {.shapes = {{2, {7, 5}}, {2, {3, 2}}}, .p = {0}},
    {.shapes = {{3, {3, 7, 5}}, {1, {4}}}, .p = {1}}, {.shapes = {{2, {3, 7}}, {0}}, .p = {-1}},
    {.shapes = {{2, {7, 3}}, {1, {0}}}, .p = {0}},    {.shapes = {{2, {0, 3}}, {1, {4}}}, .p = {0}},
};
static const case_instance gather_means[] = {
    {.shapes = {{2, {7, 16}}, {2, {3, 250}}}, .terms = 256},
    {.shapes = {{2, {9, 32}}, {3, {2, 17, 5}}}, .terms = 8},
    {.shapes = {{3, {8, 2, 5}}, {1, {33}}}, .terms = 64},
    {.shapes = {{1, {7}}, {2, {4, 1}}}},
    {.shapes = {{2, {7, 16}}, {2, {0, 3}}}},
};
static const case_instance gather_grads[] = {
    {.shapes = {{1, {7}}, {1, {257}}, {1, {257}}}, .p = {0}, .terms = 64},
    {.shapes = {{2, {7, 5}}, {2, {3, 2}}, {3, {3, 2, 5}}}, .p = {0}, .terms = 6},
    {.shapes = {{3, {3, 7, 5}}, {1, {4}}, {3, {3, 4, 5}}}, .p = {1}, .terms = 4},
    {.shapes = {{2, {7, 3}}, {1, {0}}, {2, {0, 3}}}, .p = {0}},
    /* instances for the kernel that divides the rows into ranges; the first rows occur often in the indices, the last ones
     * never */
    {.shapes = {{2, {67, 16}}, {2, {13, 257}}, {3, {13, 257, 16}}}, .p = {0}, .terms = 512},
    {.shapes = {{2, {1031, 5}}, {1, {2049}}, {2, {2049, 5}}}, .p = {0}, .terms = 512},
    {.shapes = {{2, {5, 300}}, {1, {1025}}, {2, {1025, 300}}}, .p = {0}, .terms = 256},
    {.shapes = {{1, {9}}, {1, {12001}}, {1, {12001}}}, .p = {0}, .terms = 4096},
    {.shapes = {{2, {131, 48}}, {2, {3, 257}}, {3, {3, 257, 48}}}, .p = {0}, .terms = 512},
};
/* Indices are spread over all rows, and some are out of range. */
static const case_instance gather_grads_wide[] = {
    {.shapes = {{2, {1031, 16}}, {2, {13, 257}}, {3, {13, 257, 16}}}, .p = {0}, .terms = 64},
    {.shapes = {{2, {1000, 1}}, {1, {1024}}, {2, {1024, 1}}}, .p = {0}, .terms = 64},
    {.shapes = {{3, {997, 3, 7}}, {1, {5000}}, {3, {5000, 3, 7}}}, .p = {0}, .terms = 64},
};
static const case_instance gather_grads_unrepeated[] = {
    {.shapes = {{2, {7, 5}}, {2, {3, 4}}, {3, {3, 1, 5}}}, .p = {0}, .terms = 16},
    {.shapes = {{3, {3, 7, 5}}, {1, {4}}, {3, {3, 1, 5}}}, .p = {1}, .terms = 8},
    {.shapes = {{2, {1031, 16}}, {2, {13, 257}}, {3, {13, 1, 16}}}, .p = {0}, .terms = 65536},
    {.shapes = {{2, {5, 300}}, {1, {1025}}, {2, {1, 300}}}, .p = {0}, .terms = 4096},
    {.shapes = {{2, {1009, 3}}, {2, {5, 3001}}, {3, {5, 1, 3}}}, .p = {0}, .terms = 16384},
    {.shapes = {{2, {99, 32}}, {2, {7, 301}}, {3, {7, 1, 32}}}, .p = {0}, .terms = 16384},
};
static const case_instance one_hots[] = {
    {.shapes = {{1, {257}}}, .p = {7, STRATA_DTYPE_F32}}, {.shapes = {{2, {3, 5}}}, .p = {3, STRATA_DTYPE_F32}},
    {.shapes = {{1, {0}}}, .p = {7, STRATA_DTYPE_F32}},   {.shapes = {{1, {31}}}, .p = {7, STRATA_DTYPE_F16}},
    {.shapes = {{1, {31}}}, .p = {7, STRATA_DTYPE_I64}},  {.shapes = {{1, {31}}}, .p = {7, STRATA_DTYPE_BOOL}},
};
static const case_instance packs[] = {
    {.shapes = {{1, {3}}, {2, {5, 7}}, {1, {1}}}, .p = {0, 64, 128, 192}},
    {.shapes = {{1, {3}}, {2, {5, 7}}, {1, {257}}}, .p = {1, 5, 41, 300}},
    {.shapes = {{1, {0}}, {2, {1, 1}}, {1, {0}}}, .p = {0, 2, 4, 4}},
};

#define ROW(name, set, list, ...)                                                                                     \
    {                                                                                                                 \
        .op = #name, .build = build_##name, .dtypes = set, .operands = {__VA_ARGS__},                                 \
        .n_operands = sizeof((case_operand[]){__VA_ARGS__}) / sizeof(case_operand), .instances = CASE_INSTANCES(list) \
    }
#define GATHER_GRAD(set, list, builder, highest, dtype)                                                                  \
    {                                                                                                                    \
        .op = "gather_grad", .variant = #list, .build = build_##builder, .dtypes = set,                                  \
        .operands = {FLOAT, {CASE_WHOLE, -1, highest, CASE_DTYPE(STRATA_DTYPE_##dtype), false}, FLOAT}, .n_operands = 3, \
        .instances = CASE_INSTANCES(list), .not_oclgrind = true                                                          \
    }
#define ANY_VALUE \
    { CASE_SPECIAL, 0, 100, 0, false }
#define INDEX(dtype) \
    { CASE_WHOLE, -1, 9, CASE_DTYPE(STRATA_DTYPE_##dtype), false }
#define FLOAT \
    { CASE_UNIFORM, -2, 2, 0, false }

static const op_row shape[] = {
    ROW(reshape, STRATA_ANY_DTYPE, reshapes, ANY_VALUE),
    ROW(print, STRATA_ANY_DTYPE, reshapes, ANY_VALUE),
    ROW(transpose, STRATA_ANY_DTYPE, transposes, ANY_VALUE),
    ROW(broadcast_to, STRATA_ANY_DTYPE, broadcasts, ANY_VALUE),
    ROW(concat, STRATA_ANY_DTYPE, concats, ANY_VALUE, ANY_VALUE, ANY_VALUE),
    ROW(slice, STRATA_ANY_DTYPE, slices, ANY_VALUE),
    ROW(pad, STRATA_ANY_DTYPE, pads, ANY_VALUE),
    ROW(gather, STRATA_ANY_DTYPE, gathers, ANY_VALUE, INDEX(I32)),
    ROW(gather, STRATA_ANY_DTYPE, gathers, ANY_VALUE, INDEX(I64)),
    ROW(gather_mean, STRATA_FLOATS, gather_means, FLOAT, INDEX(I32)),
    ROW(gather_mean, STRATA_FLOATS, gather_means, FLOAT, INDEX(I64)),
    GATHER_GRAD(STRATA_FLOATS, gather_grads, gather_grad, 9, I32),
    GATHER_GRAD(STRATA_FLOATS, gather_grads, gather_grad, 9, I64),
    GATHER_GRAD(1u << STRATA_DTYPE_F32, gather_grads_wide, gather_grad, 1030, I32),
    GATHER_GRAD(1u << STRATA_DTYPE_F32, gather_grads_wide, gather_grad, 1030, I64),
    GATHER_GRAD(STRATA_FLOATS, gather_grads_unrepeated, gather_grad_unrepeated, 9, I32),
    GATHER_GRAD(1u << STRATA_DTYPE_F32, gather_grads_unrepeated, gather_grad_unrepeated, 9, I64),
    ROW(one_hot, STRATA_INDICES, one_hots, {CASE_WHOLE, -1, 9, 0, false}),
    ROW(pack, 1u << STRATA_DTYPE_F32, packs, FLOAT, FLOAT, FLOAT),
    {.op = "pack",
     .variant = "computed in place",
     .build = build_pack_computed,
     .dtypes = 1u << STRATA_DTYPE_F32,
     .n_operands = 3,
     .operands = {FLOAT, FLOAT, FLOAT},
     .instances = CASE_INSTANCES(packs)},
};
const op_table case_shape = {"shape", shape, (int)(sizeof shape / sizeof *shape)};
