/* SPDX-License-Identifier: Apache-2.0
 *
 * StableHLO as text, one function for each op that the lowerings use. Ops are written in MLIR's generic form, which changes
 * least from version to version: %3 = "stablehlo.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>.
 *
 * Operands of unequal shapes broadcast as NumPy's do: StableHLO itself has no implicit broadcasting. Nothing here fails: text
 * that found no memory is noticed when the module is finished. */
#ifndef STRATA_BACKENDS_PJRT_HLO_H
#define STRATA_BACKENDS_PJRT_HLO_H

#include "core/base/text.h"
#include "strata/tensor.h"

/* Element types: those of strata_dtype with their numbers, and the unsigned ones that random bits are computed in. */
typedef enum hlo_type {
    HLO_F32 = STRATA_DTYPE_F32,
    HLO_I32 = STRATA_DTYPE_I32,
    HLO_I64 = STRATA_DTYPE_I64,
    HLO_UI8 = STRATA_DTYPE_U8,
    HLO_I1 = STRATA_DTYPE_BOOL,
    HLO_UI32 = STRATA_DTYPE_COUNT,
    HLO_UI64
} hlo_type;

/* An SSA value: %id, or %arg<-id - 1> below 0. `type` is a hlo_type or a strata_dtype. */
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

/* tensor<4x5xf32> */
void strata_hlo_add_type(strata_text *text, int type, strata_shape shape);

/* ---- constants ---- */
/* Every element is `value`, rounded to the type. */
hlo_value strata_hlo_fill(hlo *h, int type, strata_shape shape, double value);
hlo_value strata_hlo_scalar(hlo *h, int type, double value);
/* Row-major elements as they are; not of bool. */
hlo_value strata_hlo_data(hlo *h, int type, strata_shape shape, const void *elements);
hlo_value strata_hlo_iota(hlo *h, int type, strata_shape shape, int axis);

/* ---- element by element ---- */
hlo_value strata_hlo_unary(hlo *h, const char *name, hlo_value x);
hlo_value strata_hlo_binary(hlo *h, const char *name, hlo_value a, hlo_value b);
/* direction: EQ NE LT LE GT GE. */
hlo_value strata_hlo_compare(hlo *h, const char *direction, hlo_value a, hlo_value b);
hlo_value strata_hlo_select(hlo *h, hlo_value condition, hlo_value a, hlo_value b);
/* x itself where it has the type. */
hlo_value strata_hlo_convert(hlo *h, hlo_value x, int type);
hlo_value strata_hlo_bitcast(hlo *h, hlo_value x, int type);
/* x op number, the number in x's type. */
hlo_value strata_hlo_with(hlo *h, const char *name, hlo_value x, double number);

/* ---- places ---- */
/* x itself where it has the shape. */
hlo_value strata_hlo_reshape(hlo *h, hlo_value x, strata_shape shape);
/* x's axis i becomes axis axes[i]. */
hlo_value strata_hlo_spread(hlo *h, hlo_value x, strata_shape shape, const int *axes);
/* Aligned at the last axes; x itself where it has the shape. */
hlo_value strata_hlo_broadcast(hlo *h, hlo_value x, strata_shape shape);
hlo_value strata_hlo_transpose(hlo *h, hlo_value x, const int *axes);
hlo_value strata_hlo_slice(hlo *h, hlo_value x, const int64_t *begin, const int64_t *size);
/* Every strides[d]-th element from begin[d] on, size[d] of them. */
hlo_value strata_hlo_strided_slice(hlo *h, hlo_value x, const int64_t *begin, const int64_t *size, const int64_t *strides);
/* x[begin .. begin + size) along its only axis. */
hlo_value strata_hlo_part(hlo *h, hlo_value x, int64_t begin, int64_t size);
hlo_value strata_hlo_pad(hlo *h, hlo_value x, double value, const int64_t *before, const int64_t *after);
/* Also `between` elements between neighbours; before and after may be negative, which takes away. */
hlo_value strata_hlo_pad_between(hlo *h, hlo_value x, double value, const int64_t *before, const int64_t *after,
                                 const int64_t *between);
hlo_value strata_hlo_concat(hlo *h, const hlo_value *x, int n, int axis);
hlo_value strata_hlo_reverse(hlo *h, hlo_value x, const int *axes, int n_axes);
/* `size` elements of x, which has one axis, from the element that `begin` (a scalar) says on. */
hlo_value strata_hlo_dynamic_part(hlo *h, hlo_value x, hlo_value begin, int64_t size);

/* ---- folds ---- */
/* name: add, maximum, minimum, which fold axes [first, first + n) away; `start` is the fold of nothing. */
hlo_value strata_hlo_reduce(hlo *h, const char *name, hlo_value x, double start, int first, int n);

/* A window over (N, H, W, C): numbers for H and W. */
typedef struct hlo_window {
    int64_t size[2], stride[2], dilation[2];
    /* Zeros (of a fold: its start) between neighbours: 1 puts none. */
    int64_t spacing[2];
    /* Before and after; may be negative. */
    int64_t padding[2][2];
} hlo_window;
hlo_value strata_hlo_reduce_window(hlo *h, const char *name, hlo_value x, double start, const hlo_window *window,
                                   strata_shape shape);

/* dy added where x is the first largest of its window; NaN is above all. The windows do not overlap and reach no padding: in
 * others it depends on the implementation which of equals is taken. */
hlo_value strata_hlo_max_scatter(hlo *h, hlo_value x, hlo_value dy, const hlo_window *window);

/* ---- products ---- */
typedef struct hlo_dot {
    int n_batch;
    /* The axes [0, n_batch) of both are batches; these are summed over. */
    int lhs_axis, rhs_axis;
} hlo_dot;
/* The result is f32, of shape (batch..., other axes of a, other axes of b). */
hlo_value strata_hlo_dot_general(hlo *h, hlo_value a, hlo_value b, hlo_dot dot);
/* dimensions: "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]". `window->size` is not read. The result is f32. */
hlo_value strata_hlo_convolution(hlo *h, hlo_value x, hlo_value filter, const char *dimensions, const hlo_window *window,
                                 int64_t feature_groups, int64_t batch_groups, strata_shape shape);

/* ---- by index ---- */
/* Slices of 1 along `axis` of x, where indices (J...) say; y (outer..., J..., inner...). Indices are clamped. */
hlo_value strata_hlo_gather(hlo *h, hlo_value x, hlo_value indices, int axis);
/* x with updates (outer..., J..., inner...) folded in where indices (J...) say, along `axis`; those out of range are left out.
 * name: "add" or "minimum"; NULL: the update takes the place. */
hlo_value strata_hlo_scatter(hlo *h, const char *name, hlo_value x, hlo_value indices, hlo_value updates, int axis);

/* ---- between replicas ---- */
hlo_value strata_hlo_all_reduce(hlo *h, hlo_value x, int n_replicas);

#endif
