/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the text of each op (hlo.h). */
#include "backends/pjrt/hlo.h"

#include <inttypes.h>
#include <stdio.h>
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

/* ---- an op's text ---- */

static void add_value(strata_text *text, hlo_value x) {
    if (x.id < 0)
        strata_text_add(text, "%%arg%d", -x.id - 1);
    else
        strata_text_add(text, "%%%d", x.id);
}

/* Writes the attributes. In the format, %d is an int, %l an int64_t, %s a text, %a an int n and n numbers (const int64_t *),
 * and %t, without an argument, the type of the result. */
static void add_attributes(hlo *h, hlo_value result, const char *format, va_list arguments) {
    for (const char *at = format; *at; at++) {
        if (*at != '%') {
            strata_text_add_bytes(&h->text, at, 1);
            continue;
        }
        switch (*++at) {
            case 'd':
                strata_text_add(&h->text, "%d", va_arg(arguments, int));
                break;
            case 'l':
                strata_text_add(&h->text, "%" PRId64, va_arg(arguments, int64_t));
                break;
            case 's':
                strata_text_add(&h->text, "%s", va_arg(arguments, const char *));
                break;
            case 't':
                strata_hlo_add_type(&h->text, result.type, result.shape);
                break;
            default: {
                const int n = va_arg(arguments, int);
                const int64_t *numbers = va_arg(arguments, const int64_t *);
                strata_text_add(&h->text, "array<i64");
                for (int i = 0; i < n; i++) strata_text_add(&h->text, "%s %" PRId64, i ? "," : ":", numbers[i]);
                strata_text_add(&h->text, ">");
            }
        }
    }
}

/* Writes `%7 = "stablehlo.name"(%a, %b) {attributes} : (types) -> type`. */
static hlo_value op(hlo *h, const char *name, const hlo_value *x, int n, int type, strata_shape shape, const char *attributes,
                    ...) {
    const hlo_value result = {h->n_values++, type, shape};
    va_list arguments;
    strata_text_add(&h->text, "    %%%d = \"stablehlo.%s\"(", result.id, name);
    for (int i = 0; i < n; i++) {
        if (i) strata_text_add(&h->text, ", ");
        add_value(&h->text, x[i]);
    }
    strata_text_add(&h->text, ")");
    va_start(arguments, attributes);
    add_attributes(h, result, attributes, arguments);
    va_end(arguments);
    strata_text_add(&h->text, " : (");
    for (int i = 0; i < n; i++) {
        if (i) strata_text_add(&h->text, ", ");
        strata_hlo_add_type(&h->text, x[i].type, x[i].shape);
    }
    strata_text_add(&h->text, ") -> ");
    strata_hlo_add_type(&h->text, type, shape);
    strata_text_add(&h->text, "\n");
    return result;
}

enum { TEXT_BYTES = 400 };

/* "0, 1": the axes [0, n) without [but, but + n_but). */
static void write_axes(char out[TEXT_BYTES], int n, int but, int n_but) {
    int used = 0;
    *out = '\0';
    for (int i = 0; i < n; i++)
        if (i < but || i >= but + n_but) used += snprintf(out + used, TEXT_BYTES - (size_t)used, "%s%d", used ? ", " : "", i);
}

/* A region that folds two scalars by an op. */
static void write_fold(char out[TEXT_BYTES], const char *name, int type) {
    const char *t = type_names[type];
    snprintf(out, TEXT_BYTES,
             "{\n      ^bb0(%%l: tensor<%s>, %%r: tensor<%s>):\n"
             "        %%t = \"stablehlo.%s\"(%%l, %%r) : (tensor<%s>, tensor<%s>) -> tensor<%s>\n"
             "        \"stablehlo.return\"(%%t) : (tensor<%s>) -> ()\n    }",
             t, t, name, t, t, t, t);
}

/* ---- constants ---- */

hlo_value strata_hlo_fill(hlo *h, int type, strata_shape shape, double value) {
    const float single = (float)value;
    uint32_t bits;
    char number[32] = "";
    memcpy(&bits, &single, sizeof bits);
    if (strata_shape_elements(shape) == 0) return op(h, "constant", NULL, 0, type, shape, " {value = dense<> : %t}");
    if (type == STRATA_DTYPE_F32)
        snprintf(number, sizeof number, "0x%08" PRIX32, bits);
    else if (type == STRATA_DTYPE_F16 || type == STRATA_DTYPE_BF16)
        snprintf(number, sizeof number, "0x%04X",
                 (unsigned)(type == STRATA_DTYPE_F16 ? strata_f16_from_f32(single) : strata_bf16_from_f32(single)));
    else if (type == HLO_I1)
        snprintf(number, sizeof number, "%s", value != 0 ? "true" : "false");
    else if (type == HLO_UI64)
        snprintf(number, sizeof number, "%" PRIu64, (uint64_t)value);
    else
        snprintf(number, sizeof number, "%" PRId64, (int64_t)value);
    return op(h, "constant", NULL, 0, type, shape, " {value = dense<%s> : %t}", number);
}

hlo_value strata_hlo_scalar(hlo *h, int type, double value) {
    return strata_hlo_fill(h, type, STRATA_SHAPE(), value);
}

hlo_value strata_hlo_data(hlo *h, int type, strata_shape shape, const void *elements) {
    const size_t bytes = (size_t)strata_shape_elements(shape) * strata_dtype_bytes((strata_dtype)type);
    strata_text digits = {0};
    if (!bytes) return strata_hlo_fill(h, type, shape, 0);
    for (size_t i = 0; i < bytes; i++) strata_text_add(&digits, "%02X", ((const unsigned char *)elements)[i]);
    h->text.failed |= digits.failed;
    const hlo_value value =
        op(h, "constant", NULL, 0, type, shape, " {value = dense<\"0x%s\"> : %t}", digits.failed ? "" : digits.bytes);
    strata_text_finish(&digits);
    return value;
}

hlo_value strata_hlo_iota(hlo *h, int type, strata_shape shape, int axis) {
    return op(h, "iota", NULL, 0, type, shape, " {iota_dimension = %d : i64}", axis);
}

/* ---- element-wise ---- */

hlo_value strata_hlo_unary(hlo *h, const char *name, hlo_value x) {
    return op(h, name, &x, 1, x.type, x.shape, "");
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
    return op(h, name, x, 2, a.type, shape, "");
}

hlo_value strata_hlo_compare(hlo *h, const char *direction, hlo_value a, hlo_value b) {
    const strata_shape shape = common_shape(a.shape, b.shape);
    const hlo_value x[] = {strata_hlo_broadcast(h, a, shape), strata_hlo_broadcast(h, b, shape)};
    return op(h, "compare", x, 2, HLO_I1, shape, " {comparison_direction = #stablehlo<comparison_direction %s>}", direction);
}

hlo_value strata_hlo_select(hlo *h, hlo_value condition, hlo_value a, hlo_value b) {
    const strata_shape shape = common_shape(condition.shape, common_shape(a.shape, b.shape));
    const hlo_value x[] = {strata_hlo_broadcast(h, condition, shape), strata_hlo_broadcast(h, a, shape),
                           strata_hlo_broadcast(h, b, shape)};
    return op(h, "select", x, 3, a.type, shape, "");
}

hlo_value strata_hlo_compare_with(hlo *h, const char *direction, hlo_value x, double number) {
    return strata_hlo_compare(h, direction, x, strata_hlo_scalar(h, x.type, number));
}

hlo_value strata_hlo_keep(hlo *h, hlo_value condition, hlo_value x) {
    return strata_hlo_select(h, condition, x, strata_hlo_scalar(h, x.type, 0));
}

hlo_value strata_hlo_convert(hlo *h, hlo_value x, int type) {
    return x.type == type ? x : op(h, "convert", &x, 1, type, x.shape, "");
}

hlo_value strata_hlo_bitcast(hlo *h, hlo_value x, int type) {
    return op(h, "bitcast_convert", &x, 1, type, x.shape, "");
}

hlo_value strata_hlo_with(hlo *h, const char *name, hlo_value x, double number) {
    return strata_hlo_binary(h, name, x, strata_hlo_fill(h, x.type, x.shape, number));
}

/* ---- shapes and places ---- */

hlo_value strata_hlo_reshape(hlo *h, hlo_value x, strata_shape shape) {
    return strata_shape_equal(x.shape, shape) ? x : op(h, "reshape", &x, 1, x.type, shape, "");
}

hlo_value strata_hlo_spread(hlo *h, hlo_value x, strata_shape shape, int axis) {
    int64_t axes[STRATA_MAX_RANK];
    for (int d = 0; d < x.shape.rank; d++) axes[d] = axis + d;
    return op(h, "broadcast_in_dim", &x, 1, x.type, shape, " {broadcast_dimensions = %a}", x.shape.rank, axes);
}

hlo_value strata_hlo_broadcast(hlo *h, hlo_value x, strata_shape shape) {
    return strata_shape_equal(x.shape, shape) ? x : strata_hlo_spread(h, x, shape, shape.rank - x.shape.rank);
}

hlo_value strata_hlo_transpose(hlo *h, hlo_value x, const int64_t *axes) {
    strata_shape shape = x.shape;
    for (int d = 0; d < shape.rank; d++) shape.dims[d] = x.shape.dims[axes[d]];
    return op(h, "transpose", &x, 1, x.type, shape, " {permutation = %a}", shape.rank, axes);
}

hlo_value strata_hlo_slice(hlo *h, hlo_value x, const int64_t *begins, const int64_t *sizes, const int64_t *strides) {
    int64_t limits[STRATA_MAX_RANK], steps[STRATA_MAX_RANK];
    strata_shape shape = x.shape;
    for (int d = 0; d < shape.rank; d++) {
        shape.dims[d] = sizes[d];
        steps[d] = strides ? strides[d] : 1;
        limits[d] = begins[d] + (sizes[d] ? (sizes[d] - 1) * steps[d] + 1 : 0);
    }
    if (strata_shape_equal(shape, x.shape)) return x;
    return op(h, "slice", &x, 1, x.type, shape, " {start_indices = %a, limit_indices = %a, strides = %a}", shape.rank, begins,
              shape.rank, limits, shape.rank, steps);
}

hlo_value strata_hlo_part(hlo *h, hlo_value x, int64_t first, int64_t size) {
    return strata_hlo_slice(h, x, &first, &size, NULL);
}

hlo_value strata_hlo_pad(hlo *h, hlo_value x, double value, const int64_t *before, const int64_t *after,
                         const int64_t *between) {
    static const int64_t none[STRATA_MAX_RANK] = {0};
    const hlo_value operands[] = {x, strata_hlo_scalar(h, x.type, value)};
    strata_shape shape = x.shape;
    if (!between) between = none;
    for (int d = 0; d < shape.rank; d++)
        shape.dims[d] += before[d] + after[d] + (shape.dims[d] ? (shape.dims[d] - 1) * between[d] : 0);
    return op(h, "pad", operands, 2, x.type, shape, " {edge_padding_low = %a, edge_padding_high = %a, interior_padding = %a}",
              shape.rank, before, shape.rank, after, shape.rank, between);
}

hlo_value strata_hlo_concat(hlo *h, const hlo_value *x, int n, int axis) {
    if (n == 1) return x[0];
    strata_shape shape = x[0].shape;
    for (int i = 1; i < n; i++) shape.dims[axis] += x[i].shape.dims[axis];
    return op(h, "concatenate", x, n, x[0].type, shape, " {dimension = %d : i64}", axis);
}

hlo_value strata_hlo_reverse(hlo *h, hlo_value x, int n, const int64_t *axes) {
    return op(h, "reverse", &x, 1, x.type, x.shape, " {dimensions = %a}", n, axes);
}

hlo_value strata_hlo_dynamic_part(hlo *h, hlo_value x, hlo_value first, int64_t size) {
    const hlo_value operands[] = {x, first};
    return op(h, "dynamic_slice", operands, 2, x.type, STRATA_SHAPE(size), " {slice_sizes = %a}", 1, &size);
}

/* ---- folds ---- */

hlo_value strata_hlo_fold(hlo *h, const char *name, hlo_value x, double start, int first, int n) {
    if (n == 0) return x;
    const hlo_value operands[] = {x, strata_hlo_scalar(h, x.type, start)};
    strata_shape shape = {.rank = x.shape.rank - n}, kept = x.shape;
    int64_t axes[STRATA_MAX_RANK];
    char fold[TEXT_BYTES];
    for (int d = 0, to = 0; d < x.shape.rank; d++)
        if (d < first || d >= first + n) shape.dims[to++] = x.shape.dims[d];
    for (int i = 0; i < n; i++) axes[i] = first + i, kept.dims[first + i] = 1;
    write_fold(fold, name, x.type);
    return strata_hlo_reshape(h, op(h, "reduce", operands, 2, x.type, shape, " (%s) {dimensions = %a}", fold, n, axes), kept);
}

/* Two numbers for H and W as four numbers for (N, H, W, C). */
#define SPATIAL(numbers)                 \
    4, (const int64_t[]) {               \
        1, (numbers)[0], (numbers)[1], 1 \
    }

hlo_value strata_hlo_reduce_window(hlo *h, const char *name, hlo_value x, double start, const hlo_window *w,
                                   strata_shape shape) {
    const hlo_value operands[] = {x, strata_hlo_scalar(h, x.type, start)};
    char fold[TEXT_BYTES];
    write_fold(fold, name, x.type);
    return op(h, "reduce_window", operands, 2, x.type, shape,
              " (%s) {window_dimensions = %a, window_strides = %a, base_dilations = %a, window_dilations = %a, "
              "padding = dense<[[0, 0], [%l, %l], [%l, %l], [0, 0]]> : tensor<4x2xi64>}",
              fold, SPATIAL(w->size), SPATIAL(w->stride), SPATIAL(w->spacing), SPATIAL(w->dilation), w->padding[0][0],
              w->padding[0][1], w->padding[1][0], w->padding[1][1]);
}

hlo_value strata_hlo_max_scatter(hlo *h, hlo_value x, hlo_value dy, const hlo_window *w) {
    const hlo_value operands[] = {x, dy, strata_hlo_scalar(h, x.type, 0)};
    const char *t = type_names[x.type];
    char keeps[2 * TEXT_BYTES], fold[TEXT_BYTES];
    /* The first region decides whether the element found so far is kept: if it is at least the other one, or NaN. */
    snprintf(keeps, sizeof keeps,
             "{\n      ^bb0(%%l: tensor<%s>, %%r: tensor<%s>):\n"
             "        %%t = \"stablehlo.compare\"(%%l, %%r) {comparison_direction = #stablehlo<comparison_direction GE>} "
             ": (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
             "        %%u = \"stablehlo.compare\"(%%l, %%l) {comparison_direction = #stablehlo<comparison_direction NE>} "
             ": (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
             "        %%v = \"stablehlo.or\"(%%t, %%u) : (tensor<i1>, tensor<i1>) -> tensor<i1>\n"
             "        \"stablehlo.return\"(%%v) : (tensor<i1>) -> ()\n    }",
             t, t, t, t, t, t);
    write_fold(fold, "add", x.type);
    return op(h, "select_and_scatter", operands, 3, x.type, x.shape,
              " (%s, %s) {window_dimensions = %a, window_strides = %a, "
              "padding = dense<[[0, 0], [%l, %l], [%l, %l], [0, 0]]> : tensor<4x2xi64>}",
              keeps, fold, SPATIAL(w->size), SPATIAL(w->stride), w->padding[0][0], w->padding[0][1], w->padding[1][0],
              w->padding[1][1]);
}

/* ---- products ---- */

hlo_value strata_hlo_dot_general(hlo *h, hlo_value a, hlo_value b, hlo_dot dot) {
    const hlo_value operands[] = {a, b};
    strata_shape shape = {0};
    char batch[TEXT_BYTES], both[3 * TEXT_BYTES] = "";
    for (int d = 0; d < a.shape.rank; d++)
        if (d != dot.lhs_axis) shape.dims[shape.rank++] = a.shape.dims[d];
    for (int d = dot.n_batch; d < b.shape.rank; d++)
        if (d != dot.rhs_axis) shape.dims[shape.rank++] = b.shape.dims[d];
    write_axes(batch, dot.n_batch, 0, 0);
    if (dot.n_batch)
        snprintf(both, sizeof both, "lhs_batching_dimensions = [%s], rhs_batching_dimensions = [%s], ", batch, batch);
    return op(h, "dot_general", operands, 2, HLO_F32, shape,
              " {dot_dimension_numbers = #stablehlo.dot<%slhs_contracting_dimensions = [%d], rhs_contracting_dimensions = "
              "[%d]>, precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]}",
              both, dot.lhs_axis, dot.rhs_axis, h->precision, h->precision);
}

hlo_value strata_hlo_convolution(hlo *h, hlo_value x, hlo_value filter, const char *dimensions, const hlo_window *w,
                                 int64_t feature_groups, int64_t batch_groups, strata_shape shape) {
    const hlo_value operands[] = {x, filter};
    return op(h, "convolution", operands, 2, HLO_F32, shape,
              " {dimension_numbers = #stablehlo.conv<%s>, window_strides = %a, padding = dense<[[%l, %l], [%l, %l]]> : "
              "tensor<2x2xi64>, lhs_dilation = %a, rhs_dilation = %a, feature_group_count = %l : i64, batch_group_count = %l : "
              "i64, precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]}",
              dimensions, 2, w->stride, w->padding[0][0], w->padding[0][1], w->padding[1][0], w->padding[1][1], 2, w->spacing,
              2, w->dilation, feature_groups, batch_groups, h->precision, h->precision);
}

/* ---- gather and scatter ---- */

hlo_value strata_hlo_gather(hlo *h, hlo_value x, hlo_value indices, int axis) {
    const hlo_value operands[] = {x, indices};
    const int n = indices.shape.rank, rank = x.shape.rank - 1 + n;
    strata_shape shape = {.rank = rank};
    int64_t sizes[STRATA_MAX_RANK];
    char axes[TEXT_BYTES];
    for (int d = 0; d < axis; d++) shape.dims[d] = x.shape.dims[d];
    for (int d = 0; d < n; d++) shape.dims[axis + d] = indices.shape.dims[d];
    for (int d = axis + 1; d < x.shape.rank; d++) shape.dims[d - 1 + n] = x.shape.dims[d];
    for (int d = 0; d < x.shape.rank; d++) sizes[d] = d == axis ? 1 : x.shape.dims[d];
    write_axes(axes, rank, axis, n);
    return op(
        h, "gather", operands, 2, x.type, shape,
        " {dimension_numbers = #stablehlo.gather<offset_dims = [%s], collapsed_slice_dims = [%d], start_index_map = [%d], "
        "index_vector_dim = %d>, indices_are_sorted = false, slice_sizes = %a}",
        axes, axis, axis, n, x.shape.rank, sizes);
}

hlo_value strata_hlo_scatter(hlo *h, const char *name, hlo_value x, hlo_value indices, hlo_value updates, int axis) {
    const hlo_value operands[] = {x, indices, updates};
    const char *t = type_names[x.type];
    char fold[TEXT_BYTES], axes[TEXT_BYTES];
    if (name)
        write_fold(fold, name, x.type);
    else
        snprintf(fold, sizeof fold,
                 "{\n      ^bb0(%%l: tensor<%s>, %%r: tensor<%s>):\n"
                 "        \"stablehlo.return\"(%%r) : (tensor<%s>) -> ()\n    }",
                 t, t, t);
    write_axes(axes, updates.shape.rank, axis, indices.shape.rank);
    return op(
        h, "scatter", operands, 3, x.type, x.shape,
        " (%s) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [%s], inserted_window_dims = [%d], "
        "scatter_dims_to_operand_dims = [%d], index_vector_dim = %d>, indices_are_sorted = false, unique_indices = false}",
        fold, axes, axis, axis, indices.shape.rank);
}

/* ---- between replicas ---- */

hlo_value strata_hlo_all_reduce(hlo *h, hlo_value x, int n_replicas) {
    char fold[TEXT_BYTES];
    strata_text replicas = {0};
    for (int i = 0; i < n_replicas; i++) strata_text_add(&replicas, "%s%d", i ? ", " : "", i);
    h->text.failed |= replicas.failed;
    write_fold(fold, "add", x.type);
    const hlo_value sum =
        op(h, "all_reduce", &x, 1, x.type, x.shape, " (%s) {replica_groups = dense<[[%s]]> : tensor<1x%dxi64>}", fold,
           replicas.failed ? "" : replicas.bytes, n_replicas);
    strata_text_finish(&replicas);
    return sum;
}
