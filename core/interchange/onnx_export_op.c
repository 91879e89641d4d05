/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates the layer `op` to nodes of ONNX, by the name of its op. */
#include <math.h>
#include <string.h>

#include "core/interchange/onnx_export.h"

/* The ops that become one ONNX node with the same inputs, and have no numbers. */
static const struct {
    const char *op, *onnx;
} same_ops[] = {
#define STRATA_ONNX_BOTH(onnx, n_needed, function, op) {#op, #onnx},
#include "core/interchange/onnx.def"
};
/* The ops whose numbers become an attribute, which is a list or one number. */
static const struct {
    const char *op, *onnx, *attribute;
    char form;
} attribute_ops[] = {{"leaky_relu", "LeakyRelu", "alpha", 'f'}, {"elu", "Elu", "alpha", 'f'},
                     {"transpose", "Transpose", "perm", 'l'},   {"gather", "Gather", "axis", 'i'},
                     {"concat", "Concat", "axis", 'i'},         {"reduce_mean", "ReduceMean", "axes", 'r'},
                     {"reduce_max", "ReduceMax", "axes", 'r'},  {"reduce_min", "ReduceMin", "axes", 'r'}};

static const char *op_window(strata_onnx_export *ex, const strata_op_options *o, const int64_t *numbers) {
    const bool back = strstr(o->op, "transpose");
    const strata_shape kernel = strata_onnx_shape_of(ex, 1), in = strata_onnx_shape_of(ex, 0), out = ex->call->shape;
    const int64_t pads[] = {numbers[4], numbers[6], numbers[5], numbers[7]};
    int64_t more[2];
    const char *x = strata_onnx_moved(ex, strata_onnx_x(ex, 0), 4, true);
    const char *w = strata_onnx_transposed(ex, strata_onnx_x(ex, 1), (const int64_t[]){3, 2, 0, 1}, 4);
    const char *t = strata_onnx_two(ex, back ? "ConvTranspose" : "Conv", x, w);
    strata_onnx_set_window(ex, kernel.dims, numbers, numbers + 2, pads, 2);
    strata_onnx_set_int(ex, "group", numbers[8]);
    for (int d = 0; d < 2; d++)
        more[d] = out.dims[1 + d] -
                  ((in.dims[1 + d] - 1) * numbers[d] + (kernel.dims[d] - 1) * numbers[2 + d] + 1 - pads[d] - pads[2 + d]);
    if (back) strata_onnx_set_ints(ex, "output_padding", more, 2);
    return strata_onnx_moved(ex, t, 4, false);
}

/* A number of the type of x. Integers are limited to those that f32 has. */
static const char *number_like(strata_onnx_export *ex, double number) {
    const strata_dtype dtype = ex->structure.calls[ex->call->inputs[0]].dtype;
    if (strata_dtype_is_float(dtype)) return strata_onnx_put_number(ex, number);
    if (dtype != STRATA_DTYPE_I32 || fabs(number) > 1 << 24)
        strata_onnx_refuse(ex, ": numbers that are not f32, or i32 up to 2^24");
    return strata_onnx_converted(ex, strata_onnx_put_number(ex, number), STRATA_ONNX_TYPE_INT32);
}

const char *strata_onnx_layer_op(strata_onnx_export *ex) {
    const strata_op_options *o = ex->call->options;
    const char *names[STRATA_MAX_LAYER_INPUTS], *x = strata_onnx_x(ex, 0), *t;
    int64_t numbers[2 * STRATA_MAX_NUMBERS] = {0}, axes[STRATA_MAX_RANK];
    const int count = o->numbers.n, rank = strata_onnx_shape_of(ex, 0).rank, n = ex->call->n_inputs;
    for (int i = 0; i < n; i++) names[i] = strata_onnx_x(ex, i);
    for (int i = 0; i < count; i++) numbers[i] = fabs(o->numbers.values[i]) < 1e15 ? (int64_t)o->numbers.values[i] : 0;
    for (int d = 0; d < STRATA_MAX_RANK; d++) axes[d] = d;
    for (size_t i = 0; i < sizeof same_ops / sizeof *same_ops; i++)
        if (!strcmp(same_ops[i].op, o->op)) {
            t = strata_onnx_add_node(ex, same_ops[i].onnx, names, n, NULL);
            if (strstr(o->op, "softmax")) strata_onnx_set_int(ex, "axis", -1);
            return t;
        }
    for (size_t i = 0; i < sizeof attribute_ops / sizeof *attribute_ops; i++)
        if (!strcmp(attribute_ops[i].op, o->op)) {
            t = strata_onnx_add_node(ex, attribute_ops[i].onnx, names, n, NULL);
            const char form = attribute_ops[i].form, *attribute = attribute_ops[i].attribute;
            for (int d = 0; d < count && form == 'l'; d++) numbers[d] += numbers[d] < 0 ? rank : 0; /* ONNX counts from 0 */
            if (form == 'f') strata_onnx_set_float(ex, attribute, o->numbers.values[0]);
            if (form == 'i') strata_onnx_set_int(ex, attribute, numbers[0]);
            if (form == 'l' || (form == 'r' && count)) strata_onnx_set_ints(ex, attribute, numbers, count);
            if (form == 'r') strata_onnx_set_int(ex, "keepdims", o->value == 1);
            return t;
        }
    if (!strcmp(o->op, "square")) return strata_onnx_two(ex, "Mul", x, x);
    if (!strcmp(o->op, "rsqrt")) return strata_onnx_one(ex, "Reciprocal", strata_onnx_one(ex, "Sqrt", x));
    if (!strcmp(o->op, "not_equal")) return strata_onnx_one(ex, "Not", strata_onnx_add_node(ex, "Equal", names, 2, NULL));
    if (!strncmp(o->op, "gelu", 4) || !strcmp(o->op, "silu")) return strata_onnx_activate(ex, o->op, x);
    if (!strcmp(o->op, "clip")) {
        const double low = o->numbers.values[0], high = o->numbers.values[1];
        const bool below = !isinf(low), above = !isinf(high);
        const char *inputs[] = {x, below ? number_like(ex, low) : "", above ? number_like(ex, high) : ""};
        return strata_onnx_add_node(ex, "Clip", inputs, above ? 3 : below ? 2 : 1, NULL);
    }
    if (!strcmp(o->op, "cast")) {
        const bool whole = o->dtype && *o->dtype == 'i', yes_no = o->dtype && !strcmp(o->dtype, "bool");
        if (!whole && !yes_no && o->dtype && strcmp(o->dtype, "f32"))
            strata_onnx_refuse(ex, ": a cast to another type than f32, i32, i64 and bool");
        return strata_onnx_converted(ex, x,
                                     yes_no  ? STRATA_ONNX_TYPE_BOOL
                                     : whole ? STRATA_ONNX_TYPE_INT32
                                             : STRATA_ONNX_TYPE_FLOAT);
    }
    if (!strcmp(o->op, "reshape")) return strata_onnx_reshaped(ex, x, numbers, count);
    if (!strcmp(o->op, "expand")) {
        const char *size = strata_onnx_one(ex, "Shape", names[1]), *sizes[STRATA_MAX_RANK];
        strata_onnx_set_int(ex, "start", 0);
        strata_onnx_set_int(ex, "end", 1);
        for (int d = 0; d < count; d++) sizes[d] = numbers[d] ? strata_onnx_put_ints(ex, &numbers[d], 1) : size;
        t = strata_onnx_add_node(ex, "Concat", sizes, count, NULL);
        strata_onnx_set_int(ex, "axis", 0);
        return strata_onnx_two(ex, "Expand", x, t);
    }
    if (!strcmp(o->op, "slice")) {
        int64_t ends[STRATA_MAX_RANK];
        for (int d = 0; d < rank; d++) ends[d] = numbers[rank + d] == -1 ? INT64_MAX : numbers[d] + numbers[rank + d];
        const char *inputs[] = {x, strata_onnx_put_ints(ex, numbers, rank), strata_onnx_put_ints(ex, ends, rank),
                                strata_onnx_put_ints(ex, axes, rank)};
        return strata_onnx_add_node(ex, "Slice", inputs, 4, NULL);
    }
    if (!strcmp(o->op, "pad")) {
        const char *inputs[] = {x, strata_onnx_put_ints(ex, numbers, count), number_like(ex, strata_number_shown(o->value))};
        return strata_onnx_add_node(ex, "Pad", inputs, 3, NULL);
    }
    if (!strcmp(o->op, "tile")) return strata_onnx_two(ex, "Tile", x, strata_onnx_put_ints(ex, numbers, count));
    if (!strcmp(o->op, "reduce_sum")) {
        t = strata_onnx_two(ex, "ReduceSum", x, strata_onnx_put_ints(ex, count ? numbers : axes, count ? count : rank));
        strata_onnx_set_int(ex, "keepdims", o->value == 1);
        return t;
    }
    if (!strcmp(o->op, "argmax")) {
        t = strata_onnx_one(ex, "ArgMax", x);
        strata_onnx_set_int(ex, "axis", numbers[0]);
        strata_onnx_set_int(ex, "keepdims", 0);
        return strata_onnx_converted(ex, t, STRATA_ONNX_TYPE_INT32);
    }
    if (!strcmp(o->op, "layer_norm")) {
        t = strata_onnx_add_node(ex, "LayerNormalization", names, 3, NULL);
        strata_onnx_set_int(ex, "axis", -1);
        strata_onnx_set_float(ex, "epsilon", strata_number_shown(o->value));
        return t;
    }
    if (!strncmp(o->op, "conv2d", 6)) return op_window(ex, o, numbers);
    strata_onnx_refuse(ex, o->op);
    return x;
}
