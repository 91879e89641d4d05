/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the text of each op (hlo.h). */
#include "backends/pjrt/hlo.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const type_names[] = {
    [STRATA_DTYPE_F32] = "f32", [STRATA_DTYPE_F16] = "f16", [STRATA_DTYPE_BF16] = "bf16",
    [STRATA_DTYPE_I32] = "i32", [STRATA_DTYPE_I64] = "i64", [STRATA_DTYPE_U8] = "ui8",
    [STRATA_DTYPE_BOOL] = "i1", [HLO_UI32] = "ui32",        [HLO_UI64] = "ui64",
};

void strata_hlo_add_type(strata_text *text, int type, strata_shape shape) {
    strata_text_add(text, "tensor<");
    for (int d = 0; d < shape.rank; d++) strata_text_add(text, "%" PRId64 "x", shape.dims[d]);
    strata_text_add(text, "%s>", type_names[type]);
}

/* ---- parts of an op's text ---- */

static void add_value(strata_text *text, hlo_value x) {
    if (x.id < 0)
        strata_text_add(text, "%%arg%d", -x.id - 1);
    else
        strata_text_add(text, "%%%d", x.id);
}

/* Writes `%7 = "stablehlo.name"(%a, %b)`. The caller writes the attributes and calls end(). */
static hlo_value begin(hlo *h, const char *name, const hlo_value *x, int n, int type, strata_shape shape) {
    const hlo_value result = {h->n_values++, type, shape};
    strata_text_add(&h->text, "    %%%d = \"stablehlo.%s\"(", result.id, name);
    for (int i = 0; i < n; i++) {
        if (i) strata_text_add(&h->text, ", ");
        add_value(&h->text, x[i]);
    }
    strata_text_add(&h->text, ")");
    return result;
}

/* Writes ` : (types) -> type` and the end of the line. */
static hlo_value end(hlo *h, const hlo_value *x, int n, hlo_value result) {
    strata_text_add(&h->text, " : (");
    for (int i = 0; i < n; i++) {
        if (i) strata_text_add(&h->text, ", ");
        strata_hlo_add_type(&h->text, x[i].type, x[i].shape);
    }
    strata_text_add(&h->text, ") -> ");
    strata_hlo_add_type(&h->text, result.type, result.shape);
    strata_text_add(&h->text, "\n");
    return result;
}

/* "array<i64: 1, 2>" */
static void add_array(hlo *h, const char *name, const int64_t *numbers, int n) {
    strata_text_add(&h->text, "%s = array<i64", name);
    for (int i = 0; i < n; i++) strata_text_add(&h->text, "%s %" PRId64, i ? "," : ":", numbers[i]);
    strata_text_add(&h->text, ">");
}

static void add_axes(hlo *h, const char *name, const int *axes, int n) {
    int64_t numbers[STRATA_MAX_RANK + 1];
    for (int i = 0; i < n; i++) numbers[i] = axes[i];
    add_array(h, name, numbers, n);
}

/* "[0, 1]": the axes [first, first + n), without those of [but, but + n_but). */
static void add_list(hlo *h, const char *name, int first, int n, int but, int n_but) {
    const char *comma = "";
    strata_text_add(&h->text, "%s = [", name);
    for (int i = first; i < first + n; i++) {
        if (i >= but && i < but + n_but) continue;
        strata_text_add(&h->text, "%s%d", comma, i);
        comma = ", ";
    }
    strata_text_add(&h->text, "]");
}

/* Writes a region that folds two scalars by an op. */
static void add_fold(hlo *h, const char *name, int type) {
    const char *t = type_names[type];
    strata_text_add(&h->text,
                    " ({\n      ^bb0(%%a: tensor<%s>, %%b: tensor<%s>):\n"
                    "        %%c = \"stablehlo.%s\"(%%a, %%b) : (tensor<%s>, tensor<%s>) -> tensor<%s>\n"
                    "        \"stablehlo.return\"(%%c) : (tensor<%s>) -> ()\n    })",
                    t, t, name, t, t, t, t);
}

/* ---- constants ---- */

static void add_number(hlo *h, int type, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (type) {
        case STRATA_DTYPE_F32:
            strata_text_add(&h->text, "0x%08" PRIX32, bits);
            break;
        case STRATA_DTYPE_F16:
            strata_text_add(&h->text, "0x%04X", (unsigned)strata_f16_from_f32(single));
            break;
        case STRATA_DTYPE_BF16:
            strata_text_add(&h->text, "0x%04X", (unsigned)strata_bf16_from_f32(single));
            break;
        case HLO_I1:
            strata_text_add(&h->text, "%s", value != 0 ? "true" : "false");
            break;
        case HLO_UI64:
            strata_text_add(&h->text, "%" PRIu64, (uint64_t)value);
            break;
        default:
            strata_text_add(&h->text, "%" PRId64, (int64_t)value);
            break;
    }
}

hlo_value strata_hlo_fill(hlo *h, int type, strata_shape shape, double value) {
    const hlo_value result = begin(h, "constant", NULL, 0, type, shape);
    const bool empty = strata_shape_elements(shape) == 0;
    strata_text_add(&h->text, " {value = dense<");
    if (!empty) add_number(h, type, value);
    strata_text_add(&h->text, "> : ");
    strata_hlo_add_type(&h->text, type, shape);
    strata_text_add(&h->text, "}");
    return end(h, NULL, 0, result);
}

hlo_value strata_hlo_scalar(hlo *h, int type, double value) {
    return strata_hlo_fill(h, type, STRATA_SHAPE(), value);
}

hlo_value strata_hlo_data(hlo *h, int type, strata_shape shape, const void *elements) {
    static const char digits[] = "0123456789ABCDEF";
    const size_t bytes = (size_t)strata_shape_elements(shape) * strata_dtype_bytes((strata_dtype)type);
    if (!bytes) return strata_hlo_fill(h, type, shape, 0);
    const hlo_value result = begin(h, "constant", NULL, 0, type, shape);
    strata_text_add(&h->text, " {value = dense<\"0x");
    for (size_t i = 0; i < bytes; i++) {
        const unsigned byte = ((const unsigned char *)elements)[i];
        strata_text_add_bytes(&h->text, (const char[]){digits[byte >> 4], digits[byte & 15]}, 2);
    }
    strata_text_add(&h->text, "\"> : ");
    strata_hlo_add_type(&h->text, type, shape);
    strata_text_add(&h->text, "}");
    return end(h, NULL, 0, result);
}

hlo_value strata_hlo_iota(hlo *h, int type, strata_shape shape, int axis) {
    const hlo_value result = begin(h, "iota", NULL, 0, type, shape);
    strata_text_add(&h->text, " {iota_dimension = %d : i64}", axis);
    return end(h, NULL, 0, result);
}

/* ---- element-wise ---- */

hlo_value strata_hlo_unary(hlo *h, const char *name, hlo_value x) {
    return end(h, &x, 1, begin(h, name, &x, 1, x.type, x.shape));
}

static strata_shape common_shape(strata_shape a, strata_shape b) {
    strata_shape shape = a.rank >= b.rank ? a : b;
    const strata_shape other = a.rank >= b.rank ? b : a;
    for (int d = 0; d < other.rank; d++) {
        int64_t *dim = &shape.dims[shape.rank - other.rank + d];
        if (*dim == 1) *dim = other.dims[d];
    }
    return shape;
}

hlo_value strata_hlo_binary(hlo *h, const char *name, hlo_value a, hlo_value b) {
    const strata_shape shape = common_shape(a.shape, b.shape);
    const hlo_value x[] = {strata_hlo_broadcast(h, a, shape), strata_hlo_broadcast(h, b, shape)};
    return end(h, x, 2, begin(h, name, x, 2, a.type, shape));
}

hlo_value strata_hlo_compare(hlo *h, const char *direction, hlo_value a, hlo_value b) {
    const strata_shape shape = common_shape(a.shape, b.shape);
    const hlo_value x[] = {strata_hlo_broadcast(h, a, shape), strata_hlo_broadcast(h, b, shape)};
    const hlo_value result = begin(h, "compare", x, 2, HLO_I1, shape);
    strata_text_add(&h->text, " {comparison_direction = #stablehlo<comparison_direction %s>}", direction);
    return end(h, x, 2, result);
}

hlo_value strata_hlo_select(hlo *h, hlo_value condition, hlo_value a, hlo_value b) {
    const strata_shape shape = common_shape(condition.shape, common_shape(a.shape, b.shape));
    const hlo_value x[] = {strata_hlo_broadcast(h, condition, shape), strata_hlo_broadcast(h, a, shape),
                           strata_hlo_broadcast(h, b, shape)};
    return end(h, x, 3, begin(h, "select", x, 3, a.type, shape));
}

hlo_value strata_hlo_convert(hlo *h, hlo_value x, int type) {
    if (x.type == type) return x;
    return end(h, &x, 1, begin(h, "convert", &x, 1, type, x.shape));
}

hlo_value strata_hlo_bitcast(hlo *h, hlo_value x, int type) {
    return end(h, &x, 1, begin(h, "bitcast_convert", &x, 1, type, x.shape));
}

hlo_value strata_hlo_with(hlo *h, const char *name, hlo_value x, double number) {
    return strata_hlo_binary(h, name, x, strata_hlo_fill(h, x.type, x.shape, number));
}

/* ---- shapes and places ---- */

hlo_value strata_hlo_reshape(hlo *h, hlo_value x, strata_shape shape) {
    if (strata_shape_equal(x.shape, shape)) return x;
    return end(h, &x, 1, begin(h, "reshape", &x, 1, x.type, shape));
}

hlo_value strata_hlo_spread(hlo *h, hlo_value x, strata_shape shape, const int *axes) {
    const hlo_value result = begin(h, "broadcast_in_dim", &x, 1, x.type, shape);
    strata_text_add(&h->text, " {");
    add_axes(h, "broadcast_dimensions", axes, x.shape.rank);
    strata_text_add(&h->text, "}");
    return end(h, &x, 1, result);
}

hlo_value strata_hlo_broadcast(hlo *h, hlo_value x, strata_shape shape) {
    int axes[STRATA_MAX_RANK];
    if (strata_shape_equal(x.shape, shape)) return x;
    for (int d = 0; d < x.shape.rank; d++) axes[d] = shape.rank - x.shape.rank + d;
    return strata_hlo_spread(h, x, shape, axes);
}

hlo_value strata_hlo_transpose(hlo *h, hlo_value x, const int *axes) {
    strata_shape shape = x.shape;
    for (int d = 0; d < shape.rank; d++) shape.dims[d] = x.shape.dims[axes[d]];
    const hlo_value result = begin(h, "transpose", &x, 1, x.type, shape);
    strata_text_add(&h->text, " {");
    add_axes(h, "permutation", axes, shape.rank);
    strata_text_add(&h->text, "}");
    return end(h, &x, 1, result);
}

hlo_value strata_hlo_slice(hlo *h, hlo_value x, const int64_t *begins, const int64_t *sizes) {
    int64_t ones[STRATA_MAX_RANK];
    bool whole = true;
    for (int d = 0; d < x.shape.rank; d++) {
        ones[d] = 1;
        whole = whole && sizes[d] == x.shape.dims[d];
    }
    return whole ? x : strata_hlo_strided_slice(h, x, begins, sizes, ones);
}

hlo_value strata_hlo_strided_slice(hlo *h, hlo_value x, const int64_t *begins, const int64_t *sizes, const int64_t *strides) {
    int64_t limits[STRATA_MAX_RANK];
    strata_shape shape = x.shape;
    for (int d = 0; d < shape.rank; d++) {
        shape.dims[d] = sizes[d];
        limits[d] = begins[d] + (sizes[d] ? (sizes[d] - 1) * strides[d] + 1 : 0);
    }
    const hlo_value result = begin(h, "slice", &x, 1, x.type, shape);
    strata_text_add(&h->text, " {");
    add_array(h, "start_indices", begins, shape.rank);
    strata_text_add(&h->text, ", ");
    add_array(h, "limit_indices", limits, shape.rank);
    strata_text_add(&h->text, ", ");
    add_array(h, "strides", strides, shape.rank);
    strata_text_add(&h->text, "}");
    return end(h, &x, 1, result);
}

hlo_value strata_hlo_part(hlo *h, hlo_value x, int64_t first, int64_t size) {
    return strata_hlo_slice(h, x, &first, &size);
}

hlo_value strata_hlo_pad(hlo *h, hlo_value x, double value, const int64_t *before, const int64_t *after) {
    static const int64_t none[STRATA_MAX_RANK] = {0};
    return strata_hlo_pad_between(h, x, value, before, after, none);
}

hlo_value strata_hlo_pad_between(hlo *h, hlo_value x, double value, const int64_t *before, const int64_t *after,
                                 const int64_t *between) {
    const hlo_value operands[] = {x, strata_hlo_scalar(h, x.type, value)};
    strata_shape shape = x.shape;
    for (int d = 0; d < shape.rank; d++)
        shape.dims[d] += before[d] + after[d] + (shape.dims[d] ? (shape.dims[d] - 1) * between[d] : 0);
    const hlo_value result = begin(h, "pad", operands, 2, x.type, shape);
    strata_text_add(&h->text, " {");
    add_array(h, "edge_padding_low", before, shape.rank);
    strata_text_add(&h->text, ", ");
    add_array(h, "edge_padding_high", after, shape.rank);
    strata_text_add(&h->text, ", ");
    add_array(h, "interior_padding", between, shape.rank);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

hlo_value strata_hlo_concat(hlo *h, const hlo_value *x, int n, int axis) {
    if (n == 1) return x[0];
    strata_shape shape = x[0].shape;
    for (int i = 1; i < n; i++) shape.dims[axis] += x[i].shape.dims[axis];
    const hlo_value result = begin(h, "concatenate", x, n, x[0].type, shape);
    strata_text_add(&h->text, " {dimension = %d : i64}", axis);
    return end(h, x, n, result);
}

hlo_value strata_hlo_reverse(hlo *h, hlo_value x, const int *axes, int n_axes) {
    const hlo_value result = begin(h, "reverse", &x, 1, x.type, x.shape);
    strata_text_add(&h->text, " {");
    add_axes(h, "dimensions", axes, n_axes);
    strata_text_add(&h->text, "}");
    return end(h, &x, 1, result);
}

hlo_value strata_hlo_dynamic_part(hlo *h, hlo_value x, hlo_value first, int64_t size) {
    const hlo_value operands[] = {x, first};
    const hlo_value result = begin(h, "dynamic_slice", operands, 2, x.type, STRATA_SHAPE(size));
    strata_text_add(&h->text, " {");
    add_array(h, "slice_sizes", &size, 1);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

/* ---- folds ---- */

hlo_value strata_hlo_reduce(hlo *h, const char *name, hlo_value x, double start, int first, int n) {
    if (n == 0) return x;
    const hlo_value operands[] = {x, strata_hlo_scalar(h, x.type, start)};
    strata_shape shape = {.rank = x.shape.rank - n};
    int axes[STRATA_MAX_RANK];
    for (int d = 0, to = 0; d < x.shape.rank; d++)
        if (d < first || d >= first + n) shape.dims[to++] = x.shape.dims[d];
    for (int i = 0; i < n; i++) axes[i] = first + i;
    const hlo_value result = begin(h, "reduce", operands, 2, x.type, shape);
    add_fold(h, name, x.type);
    strata_text_add(&h->text, " {");
    add_axes(h, "dimensions", axes, n);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

/* Writes two numbers for H and W as four numbers for (N, H, W, C). */
static void add_spatial(hlo *h, const char *name, const int64_t *numbers) {
    add_array(h, name, (const int64_t[]){1, numbers[0], numbers[1], 1}, 4);
}

static void add_window_padding(hlo *h, const hlo_window *w) {
    strata_text_add(
        &h->text, "padding = dense<[[0, 0], [%" PRId64 ", %" PRId64 "], [%" PRId64 ", %" PRId64 "], [0, 0]]> : tensor<4x2xi64>",
        w->padding[0][0], w->padding[0][1], w->padding[1][0], w->padding[1][1]);
}

hlo_value strata_hlo_reduce_window(hlo *h, const char *name, hlo_value x, double start, const hlo_window *w,
                                   strata_shape shape) {
    const hlo_value operands[] = {x, strata_hlo_scalar(h, x.type, start)};
    const hlo_value result = begin(h, "reduce_window", operands, 2, x.type, shape);
    add_fold(h, name, x.type);
    strata_text_add(&h->text, " {");
    add_spatial(h, "window_dimensions", w->size);
    strata_text_add(&h->text, ", ");
    add_spatial(h, "window_strides", w->stride);
    strata_text_add(&h->text, ", ");
    add_spatial(h, "base_dilations", w->spacing);
    strata_text_add(&h->text, ", ");
    add_spatial(h, "window_dilations", w->dilation);
    strata_text_add(&h->text, ", ");
    add_window_padding(h, w);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

hlo_value strata_hlo_max_scatter(hlo *h, hlo_value x, hlo_value dy, const hlo_window *w) {
    const hlo_value operands[] = {x, dy, strata_hlo_scalar(h, x.type, 0)};
    const hlo_value result = begin(h, "select_and_scatter", operands, 3, x.type, x.shape);
    const char *t = type_names[x.type];
    /* The first region decides whether the element found so far is kept: if it is at least the other one, or NaN. */
    strata_text_add(
        &h->text,
        " ({\n      ^bb0(%%a: tensor<%s>, %%b: tensor<%s>):\n"
        "        %%c = \"stablehlo.compare\"(%%a, %%b) {comparison_direction = #stablehlo<comparison_direction GE>} "
        ": (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
        "        %%d = \"stablehlo.compare\"(%%a, %%a) {comparison_direction = #stablehlo<comparison_direction NE>} "
        ": (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
        "        %%e = \"stablehlo.or\"(%%c, %%d) : (tensor<i1>, tensor<i1>) -> tensor<i1>\n"
        "        \"stablehlo.return\"(%%e) : (tensor<i1>) -> ()\n    }, {\n"
        "      ^bb0(%%a: tensor<%s>, %%b: tensor<%s>):\n"
        "        %%c = \"stablehlo.add\"(%%a, %%b) : (tensor<%s>, tensor<%s>) -> tensor<%s>\n"
        "        \"stablehlo.return\"(%%c) : (tensor<%s>) -> ()\n    }) {",
        t, t, t, t, t, t, t, t, t, t, t, t);
    add_spatial(h, "window_dimensions", w->size);
    strata_text_add(&h->text, ", ");
    add_spatial(h, "window_strides", w->stride);
    strata_text_add(&h->text, ", ");
    add_window_padding(h, w);
    strata_text_add(&h->text, "}");
    return end(h, operands, 3, result);
}

/* ---- products ---- */

static void add_precision(hlo *h) {
    strata_text_add(&h->text, "precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]", h->precision,
                    h->precision);
}

hlo_value strata_hlo_dot_general(hlo *h, hlo_value a, hlo_value b, hlo_dot dot) {
    const hlo_value operands[] = {a, b};
    strata_shape shape = {0};
    for (int d = 0; d < a.shape.rank; d++)
        if (d != dot.lhs_axis) shape.dims[shape.rank++] = a.shape.dims[d];
    for (int d = dot.n_batch; d < b.shape.rank; d++)
        if (d != dot.rhs_axis) shape.dims[shape.rank++] = b.shape.dims[d];
    const hlo_value result = begin(h, "dot_general", operands, 2, HLO_F32, shape);
    strata_text_add(&h->text, " {dot_dimension_numbers = #stablehlo.dot<");
    if (dot.n_batch) {
        add_list(h, "lhs_batching_dimensions", 0, dot.n_batch, 0, 0);
        strata_text_add(&h->text, ", ");
        add_list(h, "rhs_batching_dimensions", 0, dot.n_batch, 0, 0);
        strata_text_add(&h->text, ", ");
    }
    strata_text_add(&h->text, "lhs_contracting_dimensions = [%d], rhs_contracting_dimensions = [%d]>, ", dot.lhs_axis,
                    dot.rhs_axis);
    add_precision(h);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

hlo_value strata_hlo_convolution(hlo *h, hlo_value x, hlo_value filter, const char *dimensions, const hlo_window *w,
                                 int64_t feature_groups, int64_t batch_groups, strata_shape shape) {
    const hlo_value operands[] = {x, filter};
    const hlo_value result = begin(h, "convolution", operands, 2, HLO_F32, shape);
    strata_text_add(&h->text, " {dimension_numbers = #stablehlo.conv<%s>, ", dimensions);
    add_array(h, "window_strides", w->stride, 2);
    strata_text_add(&h->text, ", padding = dense<[[%" PRId64 ", %" PRId64 "], [%" PRId64 ", %" PRId64 "]]> : tensor<2x2xi64>, ",
                    w->padding[0][0], w->padding[0][1], w->padding[1][0], w->padding[1][1]);
    add_array(h, "lhs_dilation", w->spacing, 2);
    strata_text_add(&h->text, ", ");
    add_array(h, "rhs_dilation", w->dilation, 2);
    strata_text_add(&h->text, ", feature_group_count = %" PRId64 " : i64, batch_group_count = %" PRId64 " : i64, ",
                    feature_groups, batch_groups);
    add_precision(h);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

/* ---- gather and scatter ---- */

hlo_value strata_hlo_gather(hlo *h, hlo_value x, hlo_value indices, int axis) {
    const hlo_value operands[] = {x, indices};
    const int n = indices.shape.rank, rank = x.shape.rank - 1 + n;
    strata_shape shape = {.rank = rank};
    int64_t sizes[STRATA_MAX_RANK];
    for (int d = 0; d < axis; d++) shape.dims[d] = x.shape.dims[d];
    for (int d = 0; d < n; d++) shape.dims[axis + d] = indices.shape.dims[d];
    for (int d = axis + 1; d < x.shape.rank; d++) shape.dims[d - 1 + n] = x.shape.dims[d];
    for (int d = 0; d < x.shape.rank; d++) sizes[d] = d == axis ? 1 : x.shape.dims[d];
    const hlo_value result = begin(h, "gather", operands, 2, x.type, shape);
    strata_text_add(&h->text, " {dimension_numbers = #stablehlo.gather<");
    add_list(h, "offset_dims", 0, rank, axis, n);
    strata_text_add(
        &h->text, ", collapsed_slice_dims = [%d], start_index_map = [%d], index_vector_dim = %d>, indices_are_sorted = false, ",
        axis, axis, n);
    add_array(h, "slice_sizes", sizes, x.shape.rank);
    strata_text_add(&h->text, "}");
    return end(h, operands, 2, result);
}

hlo_value strata_hlo_scatter(hlo *h, const char *name, hlo_value x, hlo_value indices, hlo_value updates, int axis) {
    const hlo_value operands[] = {x, indices, updates};
    const char *t = type_names[x.type];
    const hlo_value result = begin(h, "scatter", operands, 3, x.type, x.shape);
    if (name)
        add_fold(h, name, x.type);
    else
        strata_text_add(&h->text,
                        " ({\n      ^bb0(%%a: tensor<%s>, %%b: tensor<%s>):\n"
                        "        \"stablehlo.return\"(%%b) : (tensor<%s>) -> ()\n    })",
                        t, t, t);
    strata_text_add(&h->text, " {scatter_dimension_numbers = #stablehlo.scatter<");
    add_list(h, "update_window_dims", 0, updates.shape.rank, axis, indices.shape.rank);
    strata_text_add(&h->text,
                    ", inserted_window_dims = [%d], scatter_dims_to_operand_dims = [%d], index_vector_dim = %d>, "
                    "indices_are_sorted = false, unique_indices = false}",
                    axis, axis, indices.shape.rank);
    return end(h, operands, 3, result);
}

/* ---- between replicas ---- */

hlo_value strata_hlo_all_reduce(hlo *h, hlo_value x, int n_replicas) {
    const hlo_value result = begin(h, "all_reduce", &x, 1, x.type, x.shape);
    add_fold(h, "add", x.type);
    strata_text_add(&h->text, " {replica_groups = dense<[[");
    for (int i = 0; i < n_replicas; i++) strata_text_add(&h->text, "%s%d", i ? ", " : "", i);
    strata_text_add(&h->text, "]]> : tensor<1x%dxi64>}", n_replicas);
    return end(h, &x, 1, result);
}
