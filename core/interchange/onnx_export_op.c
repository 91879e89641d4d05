/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates the layer `op` to nodes of ONNX, by the name of its op. */
#include <math.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/interchange/onnx_export.h"

/* The ops that become one ONNX node with the same inputs, and have no numbers. */
static const struct {
    const char *op, *onnx;
} same_ops[] = {{"neg", "Neg"},
                {"abs", "Abs"},
                {"sign", "Sign"},
                {"exp", "Exp"},
                {"log", "Log"},
                {"sqrt", "Sqrt"},
                {"sin", "Sin"},
                {"cos", "Cos"},
                {"erf", "Erf"},
                {"tanh", "Tanh"},
                {"sigmoid", "Sigmoid"},
                {"relu", "Relu"},
                {"add", "Add"},
                {"sub", "Sub"},
                {"mul", "Mul"},
                {"div", "Div"},
                {"pow", "Pow"},
                {"min", "Min"},
                {"max", "Max"},
                {"equal", "Equal"},
                {"less", "Less"},
                {"less_equal", "LessOrEqual"},
                {"greater", "Greater"},
                {"greater_equal", "GreaterOrEqual"},
                {"where", "Where"},
                {"matmul", "MatMul"},
                {"softplus", "Softplus"},
                {"softmax", "Softmax"},
                {"log_softmax", "LogSoftmax"}};
/* The ops whose numbers become an attribute, which is a list or one number. */
static const struct {
    const char *op, *onnx, *attribute;
    char form;
} attribute_ops[] = {{"leaky_relu", "LeakyRelu", "alpha", 'f'}, {"elu", "Elu", "alpha", 'f'},
                     {"transpose", "Transpose", "perm", 'l'},   {"gather", "Gather", "axis", 'i'},
                     {"concat", "Concat", "axis", 'i'},         {"reduce_mean", "ReduceMean", "axes", 'r'},
                     {"reduce_max", "ReduceMax", "axes", 'r'},  {"reduce_min", "ReduceMin", "axes", 'r'}};

static const char *op_window(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x,
                             const strata_onnx_val *y, const strata_op_options *o, const int64_t *numbers) {
    const bool back = strstr(o->op, "transpose");
    const strata_shape kernel = strata_tensor_shape(x[1].tensor), in = strata_tensor_shape(x[0].tensor),
                       out = strata_tensor_shape(y->tensor);
    const int64_t pads[] = {numbers[4], numbers[6], numbers[5], numbers[7]};
    int64_t more[2];
    const char *base = layer->name, *t = strata_onnx_moved(ex, base, x[0].name, 4, true);
    const char *w = strata_onnx_transposed(ex, base, x[1].name, (const int64_t[]){3, 2, 0, 1}, 4);
    t = strata_onnx_emit(ex, base, back ? "ConvTranspose" : "Conv", t, w, NULL);
    strata_onnx_set_window(ex, strata_onnx_last_node(ex), kernel.dims, numbers, numbers + 2, pads, 2);
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "group", numbers[8]);
    for (int d = 0; d < 2; d++)
        more[d] = out.dims[1 + d] -
                  ((in.dims[1 + d] - 1) * numbers[d] + (kernel.dims[d] - 1) * numbers[2 + d] + 1 - pads[d] - pads[2 + d]);
    if (back) strata_onnx_set_ints(ex, strata_onnx_last_node(ex), "output_padding", more, 2);
    return strata_onnx_moved(ex, base, t, 4, false);
}

/* A number of the type of x. Integers are limited to those that f32 has. */
static const char *number_like(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, double number) {
    const strata_dtype dtype = strata_tensor_dtype(x->tensor);
    if (strata_dtype_is_float(dtype)) return strata_onnx_put_number(ex, layer->name, number);
    if (dtype != STRATA_DTYPE_I32 || fabs(number) > 1 << 24)
        strata_onnx_refuse(ex, layer, ": numbers that are not f32, or i32 up to 2^24");
    const char *whole = strata_onnx_emit(ex, layer->name, "Cast", strata_onnx_put_number(ex, layer->name, number), NULL, NULL);
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "to", STRATA_ONNX_TYPE_INT32);
    return whole;
}

const char *strata_onnx_export_op(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                                  const strata_onnx_val *y) {
    const strata_op_options *o = layer->options;
    const char *names[STRATA_MAX_LAYER_INPUTS], *base = layer->name, *t;
    int64_t numbers[2 * STRATA_MAX_NUMBERS] = {0}, axes[STRATA_MAX_RANK];
    const int count = o->numbers.n, rank = strata_tensor_shape(x->tensor).rank;
    for (int i = 0; i < n; i++) names[i] = x[i].name;
    for (int i = 0; i < count; i++) numbers[i] = fabs(o->numbers.values[i]) < 1e15 ? (int64_t)o->numbers.values[i] : 0;
    for (int d = 0; d < STRATA_MAX_RANK; d++) axes[d] = d;
    for (size_t i = 0; i < sizeof same_ops / sizeof *same_ops; i++)
        if (!strcmp(same_ops[i].op, o->op)) {
            t = strata_onnx_new_name(ex, base);
            StrataOnnx__Node *node = strata_onnx_add_node(ex, same_ops[i].onnx, names, n, t);
            if (strstr(o->op, "softmax")) strata_onnx_set_int(ex, node, "axis", -1);
            return t;
        }
    for (size_t i = 0; i < sizeof attribute_ops / sizeof *attribute_ops; i++)
        if (!strcmp(attribute_ops[i].op, o->op)) {
            t = strata_onnx_new_name(ex, base);
            StrataOnnx__Node *node = strata_onnx_add_node(ex, attribute_ops[i].onnx, names, n, t);
            const char form = attribute_ops[i].form, *attribute = attribute_ops[i].attribute;
            for (int d = 0; d < count && form == 'l'; d++) numbers[d] += numbers[d] < 0 ? rank : 0; /* ONNX counts from 0 */
            if (form == 'f') strata_onnx_set_float(ex, node, attribute, o->numbers.values[0]);
            if (form == 'i') strata_onnx_set_int(ex, node, attribute, numbers[0]);
            if (form == 'l' || (form == 'r' && count)) strata_onnx_set_ints(ex, node, attribute, numbers, count);
            if (form == 'r') strata_onnx_set_int(ex, node, "keepdims", o->value == 1);
            return t;
        }
    if (!strcmp(o->op, "square")) return strata_onnx_emit(ex, base, "Mul", x->name, x->name, NULL);
    if (!strcmp(o->op, "rsqrt"))
        return strata_onnx_emit(ex, base, "Reciprocal", strata_onnx_emit(ex, base, "Sqrt", x->name, NULL, NULL), NULL, NULL);
    if (!strcmp(o->op, "not_equal"))
        return strata_onnx_emit(ex, base, "Not", strata_onnx_emit(ex, base, "Equal", x[0].name, x[1].name, NULL), NULL, NULL);
    if (!strncmp(o->op, "gelu", 4) || !strcmp(o->op, "silu")) return strata_onnx_activate(ex, layer, o->op, x->name);
    if (!strcmp(o->op, "clip")) {
        const double low = o->numbers.values[0], high = o->numbers.values[1];
        const char *inputs[] = {x->name, isinf(low) ? "" : number_like(ex, layer, x, low),
                                isinf(high) ? "" : number_like(ex, layer, x, high)};
        t = strata_onnx_new_name(ex, base);
        strata_onnx_add_node(ex, "Clip", inputs, !isinf(high) ? 3 : !isinf(low) ? 2 : 1, t);
        return t;
    }
    if (!strcmp(o->op, "cast")) {
        t = strata_onnx_emit(ex, base, "Cast", x->name, NULL, NULL);
        const bool whole = o->dtype && *o->dtype == 'i', yes_no = o->dtype && !strcmp(o->dtype, "bool");
        if (!whole && !yes_no && o->dtype && strcmp(o->dtype, "f32"))
            strata_onnx_refuse(ex, layer, ": a cast to another type than f32, i32, i64 and bool");
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "to",
                            yes_no  ? STRATA_ONNX_TYPE_BOOL
                            : whole ? STRATA_ONNX_TYPE_INT32
                                    : STRATA_ONNX_TYPE_FLOAT);
        return t;
    }
    if (!strcmp(o->op, "reshape")) return strata_onnx_reshaped(ex, base, x->name, numbers, count);
    if (!strcmp(o->op, "expand")) {
        const char *size = strata_onnx_emit(ex, base, "Shape", x[1].name, NULL, NULL), *sizes[STRATA_MAX_RANK];
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "start", 0);
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "end", 1);
        for (int d = 0; d < count; d++) sizes[d] = numbers[d] ? strata_onnx_put_ints(ex, base, &numbers[d], 1) : size;
        t = strata_onnx_new_name(ex, base);
        strata_onnx_set_int(ex, strata_onnx_add_node(ex, "Concat", sizes, count, t), "axis", 0);
        return strata_onnx_emit(ex, base, "Expand", x->name, t, NULL);
    }
    if (!strcmp(o->op, "slice")) {
        int64_t ends[STRATA_MAX_RANK];
        for (int d = 0; d < rank; d++) ends[d] = numbers[rank + d] == -1 ? INT64_MAX : numbers[d] + numbers[rank + d];
        const char *inputs[] = {x->name, strata_onnx_put_ints(ex, base, numbers, rank),
                                strata_onnx_put_ints(ex, base, ends, rank), strata_onnx_put_ints(ex, base, axes, rank)};
        t = strata_onnx_new_name(ex, base);
        strata_onnx_add_node(ex, "Slice", inputs, 4, t);
        return t;
    }
    if (!strcmp(o->op, "pad"))
        return strata_onnx_emit(ex, base, "Pad", x->name, strata_onnx_put_ints(ex, base, numbers, count),
                                number_like(ex, layer, x, o->value));
    if (!strcmp(o->op, "tile"))
        return strata_onnx_emit(ex, base, "Tile", x->name, strata_onnx_put_ints(ex, base, numbers, count), NULL);
    if (!strcmp(o->op, "reduce_sum")) {
        t = strata_onnx_emit(ex, base, "ReduceSum", x->name,
                             strata_onnx_put_ints(ex, base, count ? numbers : axes, count ? count : rank), NULL);
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "keepdims", o->value == 1);
        return t;
    }
    if (!strcmp(o->op, "argmax")) {
        t = strata_onnx_emit(ex, base, "ArgMax", x->name, NULL, NULL);
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "axis", numbers[0]);
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "keepdims", 0);
        t = strata_onnx_emit(ex, base, "Cast", t, NULL, NULL);
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "to", STRATA_ONNX_TYPE_INT32);
        return t;
    }
    if (!strcmp(o->op, "layer_norm")) {
        t = strata_onnx_emit(ex, base, "LayerNormalization", x[0].name, x[1].name, x[2].name);
        strata_onnx_set_int(ex, strata_onnx_last_node(ex), "axis", -1);
        strata_onnx_set_float(ex, strata_onnx_last_node(ex), "epsilon", o->value);
        return t;
    }
    if (!strncmp(o->op, "conv2d", 6)) return op_window(ex, layer, x, y, o, numbers);
    strata_onnx_refuse(ex, layer, o->op);
    return x->name;
}
