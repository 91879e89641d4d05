/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes StableHLO as text: one function for each op that the lowerings use. Ops are written in MLIR's generic form,
 * which changes least between versions: %3 = "stablehlo.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>.
 *
 * Operands of different shapes are broadcast as in NumPy, since StableHLO itself has no implicit broadcasting. No
 * function here fails: if memory for the text runs out, this is reported when the module is finished. */
#ifndef STRATA_BACKENDS_PJRT_HLO_H
#define STRATA_BACKENDS_PJRT_HLO_H

#include "core/base/text.h"
#include "strata/tensor.h"

/* Element types: those of strata_dtype with the same numbers, and the unsigned types in which random bits are computed. */
typedef enum hlo_type {
    HLO_F32 = STRATA_DTYPE_F32,
    HLO_I32 = STRATA_DTYPE_I32,
    HLO_I64 = STRATA_DTYPE_I64,
    HLO_UI8 = STRATA_DTYPE_U8,
    HLO_I1 = STRATA_DTYPE_BOOL,
    HLO_UI32 = STRATA_DTYPE_COUNT,
    HLO_UI64
} hlo_type;

/* An SSA value: %id, or the parameter %arg(-id - 1) if id is negative. `type` is a hlo_type or a strata_dtype. */
typedef struct hlo_value {
    int id;
    int type;
    strata_shape shape;
} hlo_value;

typedef struct hlo {
    strata_text text;
    int n_values;
    /* "HIGHEST": products of f32 keep f32's precision. "DEFAULT": the compiler may multiply in its own precision. */
    const char *precision;
} hlo;

/* Writes a type, for example tensor<4x5xf32>. */
void strata_hlo_add_type(strata_text *text, int type, strata_shape shape);

/* ---- constants ---- */
/* Every element is `value`, rounded to the type. */
hlo_value strata_hlo_fill(hlo *h, int type, strata_shape shape, double value);
hlo_value strata_hlo_scalar(hlo *h, int type, double value);
/* Elements in row-major order, unchanged. The type must not be bool. */
hlo_value strata_hlo_data(hlo *h, int type, strata_shape shape, const void *elements);
hlo_value strata_hlo_iota(hlo *h, int type, strata_shape shape, int axis);

/* ---- element-wise ---- */
hlo_value strata_hlo_unary(hlo *h, const char *name, hlo_value x);
hlo_value strata_hlo_binary(hlo *h, const char *name, hlo_value a, hlo_value b);
/* direction: EQ NE LT LE GT GE. strata_hlo_compare_with: with a number in x's type. */
hlo_value strata_hlo_compare(hlo *h, const char *direction, hlo_value a, hlo_value b);
hlo_value strata_hlo_compare_with(hlo *h, const char *direction, hlo_value x, double number);
hlo_value strata_hlo_select(hlo *h, hlo_value condition, hlo_value a, hlo_value b);
/* x where the condition is true, else 0. */
hlo_value strata_hlo_keep(hlo *h, hlo_value condition, hlo_value x);
/* Returns x itself if it has the type already. */
hlo_value strata_hlo_convert(hlo *h, hlo_value x, int type);
hlo_value strata_hlo_bitcast(hlo *h, hlo_value x, int type);
/* Computes `x op number`, with the number in x's type. */
hlo_value strata_hlo_with(hlo *h, const char *name, hlo_value x, double number);

/* ---- shapes and places ---- */
/* Returns x itself if it has the shape already. */
hlo_value strata_hlo_reshape(hlo *h, hlo_value x, strata_shape shape);
/* Broadcasts x: its axis i becomes axis axis + i of the result. */
hlo_value strata_hlo_spread(hlo *h, hlo_value x, strata_shape shape, int axis);
/* Broadcasts x, aligned at the last axes. Returns x itself if it has the shape already. */
hlo_value strata_hlo_broadcast(hlo *h, hlo_value x, strata_shape shape);
hlo_value strata_hlo_transpose(hlo *h, hlo_value x, const int64_t *axes);
/* size[d] elements along axis d: begin[d], begin[d] + strides[d], ...; strides NULL: all are 1. */
hlo_value strata_hlo_slice(hlo *h, hlo_value x, const int64_t *begin, const int64_t *size, const int64_t *strides);
/* x[begin .. begin + size) along its only axis. */
hlo_value strata_hlo_part(hlo *h, hlo_value x, int64_t begin, int64_t size);
/* Also inserts `between[d]` elements between neighbours; NULL: none. Negative numbers in before and after remove elements. */
hlo_value strata_hlo_pad(hlo *h, hlo_value x, double value, const int64_t *before, const int64_t *after,
                         const int64_t *between);
hlo_value strata_hlo_concat(hlo *h, const hlo_value *x, int n, int axis);
hlo_value strata_hlo_reverse(hlo *h, hlo_value x, int n_axes, const int64_t *axes);
/* `size` elements of x, which has one axis, beginning with the element whose index is the scalar `begin`. */
hlo_value strata_hlo_dynamic_part(hlo *h, hlo_value x, hlo_value begin, int64_t size);

/* ---- folds ---- */
/* Folds the axes [first, first + n), whose sizes become 1. name: add, maximum or minimum. start: the initial value. */
hlo_value strata_hlo_fold(hlo *h, const char *name, hlo_value x, double start, int first, int n);

/* A window over (N, H, W, C). The numbers are for H and W. */
typedef struct hlo_window {
    int64_t size[2], stride[2], dilation[2];
    /* The distance of neighbouring elements after zeros (in a fold: start values) were inserted between them. 1 inserts
     * none. */
    int64_t spacing[2];
    /* The padding before and after each axis; it may be negative. */
    int64_t padding[2][2];
} hlo_window;
hlo_value strata_hlo_reduce_window(hlo *h, const char *name, hlo_value x, double start, const hlo_window *window,
                                   strata_shape shape);

/* Adds each dy to the element of x that is the first largest one of its window; NaN is larger than all numbers. The
 * windows must not overlap and must not contain padding: otherwise it depends on the implementation which one of equal
 * elements is chosen. */
hlo_value strata_hlo_max_scatter(hlo *h, hlo_value x, hlo_value dy, const hlo_window *window);

/* ---- products ---- */
typedef struct hlo_dot {
    int n_batch;
    /* The axes [0, n_batch) of both are batches. The sum is over these axes of a and b. */
    int lhs_axis, rhs_axis;
} hlo_dot;
/* The result is f32, of shape (batch..., other axes of a, other axes of b). */
hlo_value strata_hlo_dot_general(hlo *h, hlo_value a, hlo_value b, hlo_dot dot);
/* dimensions: "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]". `window->size` is not read. The result is f32. */
hlo_value strata_hlo_convolution(hlo *h, hlo_value x, hlo_value filter, const char *dimensions, const hlo_window *window,
                                 int64_t feature_groups, int64_t batch_groups, strata_shape shape);

/* ---- gather and scatter ---- */
/* Slices of size 1 along `axis` of x at the indices (J...), which are clamped. The result is (outer..., J..., inner...). */
hlo_value strata_hlo_gather(hlo *h, hlo_value x, hlo_value indices, int axis);
/* x with the updates (outer..., J..., inner...) folded in along `axis` at the indices (J...). Updates whose index is
 * out of range are ignored. name: "add" or "minimum"; NULL: the update replaces the element. */
hlo_value strata_hlo_scatter(hlo *h, const char *name, hlo_value x, hlo_value indices, hlo_value updates, int axis);

/* ---- between replicas ---- */
hlo_value strata_hlo_all_reduce(hlo *h, hlo_value x, int n_replicas);

#endif
