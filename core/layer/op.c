/* SPDX-License-Identifier: Apache-2.0
 *
 * op: a layer that is one op of strata/ops.h. The table says how many inputs and numbers each op has. Functions convert
 * the numbers to the op's arguments. */
#include <math.h>

#include "core/graph/graph.h"
#include "core/layer/layer.h"

/* An op with its n inputs. */
typedef struct call {
    const strata_op_options *opts;
    strata_tensor *const *in;
    int n;
} call;

typedef strata_tensor *unary(strata_tensor *x);
typedef strata_tensor *binary(strata_tensor *a, strata_tensor *b);
typedef strata_tensor *special(const call *c);

typedef struct row {
    const char *name;
    int least_inputs, most_inputs;
    int least_numbers, most_numbers;
    unary *one;
    binary *two;
    special *build;
} row;

static strata_tensor *fail(strata_tensor *x, const char *what, strata_shape shape) {
    return strata_graph_poison(strata_tensor_graph(x), NULL, STRATA_INVALID, "%s; x is %s", what,
                               strata_shape_text(shape).text);
}

static int64_t whole(const call *c, int i) {
    return (int64_t)c->opts->numbers.values[i];
}

/* Axis `i` among the numbers, counted from the first axis of a tensor of this rank. */
static int axis_of(const call *c, int i, int rank) {
    const int64_t axis = whole(c, i);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- products ---- */

static strata_tensor *with_leading(strata_tensor *x, const strata_shape *leading) {
    strata_shape shape = strata_tensor_shape(x), wanted = *leading;
    for (int d = 2; d > 0; d--) wanted.dims[wanted.rank++] = shape.dims[shape.rank - d];
    return strata_broadcast_to(x, wanted);
}

/* The shape to which the leading axes, all but the last two, of a and b broadcast. */
static strata_shape broadcast_leading(strata_shape a, strata_shape b) {
    strata_shape out = {.rank = (a.rank > b.rank ? a.rank : b.rank) - 2};
    for (int d = 0; d < out.rank; d++) {
        const int from_a = d - (out.rank - (a.rank - 2)), from_b = d - (out.rank - (b.rank - 2));
        const int64_t size_a = from_a < 0 ? 1 : a.dims[from_a], size_b = from_b < 0 ? 1 : b.dims[from_b];
        out.dims[d] = size_a == 1 ? size_b : size_a;
    }
    return out;
}

static strata_tensor *build_matmul(const call *c) {
    strata_tensor *a = c->in[0], *b = c->in[1];
    if (strata_tensor_is_poison(a) || strata_tensor_is_poison(b)) return strata_tensor_is_poison(a) ? a : b;
    const int rank_a = strata_tensor_shape(a).rank, rank_b = strata_tensor_shape(b).rank;
    if (!rank_a || !rank_b) return fail(a, "matmul of a scalar", strata_tensor_shape(a));
    if (rank_a == 1) a = strata_reshape(a, STRATA_SHAPE(1, strata_tensor_shape(a).dims[0]));
    if (rank_b == 1) b = strata_reshape(b, STRATA_SHAPE(strata_tensor_shape(b).dims[0], 1));
    const strata_shape leading = broadcast_leading(strata_tensor_shape(a), strata_tensor_shape(b));
    if (strata_tensor_shape(b).rank > 2 || rank_a == 1) {
        a = with_leading(a, &leading);
        b = with_leading(b, &leading);
    }
    strata_tensor *y = strata_matmul(a, b, false, false);
    if (rank_a > 1 && rank_b > 1) return y;
    strata_shape shape = strata_tensor_shape(y);
    if (strata_tensor_is_poison(y)) return y;
    if (rank_b == 1) shape.rank--;
    if (rank_a == 1) { /* removes the last axis but one, or the only axis that is left */
        if (rank_b != 1) shape.dims[shape.rank - 2] = shape.dims[shape.rank - 1];
        shape.rank--;
    }
    return strata_reshape(y, shape);
}

/* ---- shapes ---- */

static strata_tensor *build_reshape(const call *c) {
    const strata_shape from = strata_tensor_shape(c->in[0]);
    strata_shape to = {.rank = c->opts->numbers.n};
    for (int d = 0; d < to.rank; d++) {
        to.dims[d] = whole(c, d);
        if (to.dims[d] == 0 && d >= from.rank)
            return fail(c->in[0], "reshape: 0 stands for an axis that x does not have", from);
        if (to.dims[d] == 0) to.dims[d] = from.dims[d];
    }
    return strata_reshape(c->in[0], to);
}

static strata_tensor *build_expand(const call *c) {
    const strata_shape from = strata_tensor_shape(c->in[0]), like = strata_tensor_shape(c->in[1]);
    strata_shape to = {.rank = c->opts->numbers.n};
    if (like.rank < 1) return fail(c->in[0], "expand: like what has no axis", from);
    for (int d = 0; d < to.rank; d++) to.dims[d] = whole(c, d) ? whole(c, d) : like.dims[0];
    return strata_broadcast_to(c->in[0], to);
}

static strata_tensor *build_transpose(const call *c) {
    const int rank = strata_tensor_shape(c->in[0]).rank;
    int axes[STRATA_MAX_NUMBERS];
    if (c->opts->numbers.n != rank)
        return fail(c->in[0], "transpose needs as many axes as x has", strata_tensor_shape(c->in[0]));
    for (int d = 0; d < rank; d++) axes[d] = axis_of(c, d, rank);
    return strata_transpose(c->in[0], axes);
}

static strata_tensor *build_slice(const call *c) {
    const strata_shape shape = strata_tensor_shape(c->in[0]);
    int64_t begin[STRATA_MAX_RANK], size[STRATA_MAX_RANK];
    if (c->opts->numbers.n != 2 * shape.rank) return fail(c->in[0], "slice needs two numbers for each axis", shape);
    for (int d = 0; d < shape.rank; d++) {
        begin[d] = whole(c, d);
        size[d] = whole(c, shape.rank + d);
        if (size[d] == -1) size[d] = shape.dims[d] - begin[d];
    }
    return strata_slice(c->in[0], begin, size);
}

static strata_tensor *build_pad(const call *c) {
    const strata_shape shape = strata_tensor_shape(c->in[0]);
    int64_t around[STRATA_MAX_NUMBERS];
    if (c->opts->numbers.n != 2 * shape.rank) return fail(c->in[0], "pad needs two numbers for each axis", shape);
    for (int i = 0; i < c->opts->numbers.n; i++) around[i] = whole(c, i);
    return strata_pad(c->in[0], around, around + shape.rank, strata_number_shown(c->opts->value));
}

static strata_tensor *build_tile(const call *c) {
    const strata_shape shape = strata_tensor_shape(c->in[0]);
    int64_t times[STRATA_MAX_NUMBERS];
    if (c->opts->numbers.n != shape.rank) return fail(c->in[0], "tile needs a number for each axis", shape);
    for (int i = 0; i < c->opts->numbers.n; i++) times[i] = whole(c, i);
    return strata_tile(c->in[0], times);
}

static strata_tensor *build_gather(const call *c) {
    const strata_shape shape = strata_tensor_shape(c->in[0]);
    const int axis = axis_of(c, 0, shape.rank);
    strata_tensor *indices = c->in[1];
    const strata_dtype dtype = strata_tensor_dtype(indices);
    if (axis < 0 || axis >= shape.rank) return fail(c->in[0], "gather along an axis that x does not have", shape);
    if (dtype == STRATA_DTYPE_I32 || dtype == STRATA_DTYPE_I64) {
        strata_graph *graph = strata_tensor_graph(indices);
        strata_tensor *size = strata_scalar(graph, dtype, (double)shape.dims[axis]);
        indices = strata_where(strata_less(indices, strata_scalar(graph, dtype, 0)), strata_add(indices, size), indices);
    }
    return strata_gather(c->in[0], indices, axis);
}

/* ---- numbers ---- */

/* Ops whose arguments need no conversion. */
#define BUILD(which, expression)                         \
    static strata_tensor *build_##which(const call *c) { \
        return expression;                               \
    }
BUILD(leaky_relu, strata_leaky_relu(c->in[0], c->opts->numbers.values[0]))
BUILD(elu, strata_elu(c->in[0], c->opts->numbers.values[0]))
BUILD(clip, strata_clip(c->in[0], c->opts->numbers.values[0], c->opts->numbers.values[1]))
BUILD(where, strata_where(c->in[0], c->in[1], c->in[2]))
BUILD(one_hot, strata_one_hot(c->in[0], whole(c, 0), STRATA_DTYPE_F32))
BUILD(argmax, strata_argmax(c->in[0], (int)whole(c, 0)))
BUILD(top_k, strata_top_k(c->in[0], whole(c, 0), NULL))
BUILD(concat, strata_concat(c->in, c->n, axis_of(c, 0, strata_tensor_shape(c->in[0]).rank)))
BUILD(layer_norm, strata_layer_norm(c->in[0], c->in[1], c->in[2], strata_number_shown(c->opts->value)))

static strata_tensor *build_cast(const call *c) {
    strata_dtype dtype;
    strata_error err = {0};
    if (strata_dtype_parse(c->opts->dtype ? c->opts->dtype : "", &dtype, &err))
        return strata_graph_poison(strata_tensor_graph(c->in[0]), NULL, STRATA_INVALID, "cast: %s", err.message);
    return strata_cast(c->in[0], dtype);
}

#define REDUCE(which)                                                                \
    static strata_tensor *build_##which(const call *c) {                             \
        const int rank = strata_tensor_shape(c->in[0]).rank, n = c->opts->numbers.n; \
        int axes[STRATA_MAX_NUMBERS];                                                \
        for (int i = 0; i < n; i++) axes[i] = axis_of(c, i, rank);                   \
        return strata_##which(c->in[0], axes, n, c->opts->value == 1);               \
    }
REDUCE(reduce_sum)
REDUCE(reduce_mean)
REDUCE(reduce_max)
REDUCE(reduce_min)

static strata_tensor *build_top_k_indices(const call *c) {
    strata_tensor *indices = NULL;
    strata_tensor *values = strata_top_k(c->in[0], whole(c, 0), &indices);
    return indices ? indices : values;
}

/* ---- windows ---- */

static strata_conv2d_window window_of(const call *c) {
    strata_conv2d_window window = {.padding = STRATA_PADDING_EXPLICIT, .groups = whole(c, 8)};
    for (int i = 0; i < 2; i++) window.stride[i] = whole(c, i);
    for (int i = 0; i < 2; i++) window.dilation[i] = whole(c, 2 + i);
    for (int i = 0; i < 4; i++) window.explicit_padding[i] = whole(c, 4 + i);
    return window;
}

static strata_tensor *build_conv2d(const call *c) {
    return strata_conv2d(c->in[0], c->in[1], window_of(c));
}

static strata_tensor *build_conv2d_transpose(const call *c) {
    return strata_conv2d_transpose(c->in[0], c->in[1], window_of(c), whole(c, 9), whole(c, 10));
}

#define BINARY(which) \
    { #which, 2, 2, 0, 0, NULL, strata_##which, NULL }
#define SPECIAL(which, least_in, most_in, least_numbers, most_numbers) \
    { #which, least_in, most_in, least_numbers, most_numbers, NULL, NULL, build_##which }
static const row rows[] = {
#define UNARY_NUMBER(code, which, expression) {#which, 1, 1, 0, 0, strata_##which, NULL, NULL},
#define UNARY_FLOAT(code, which, expression)  UNARY_NUMBER(code, which, expression)
#define COMPARE(code, which, expression)      BINARY(which),
#include "core/op/elementwise.def"
    {"softmax", 1, 1, 0, 0, strata_softmax, NULL, NULL},
    {"log_softmax", 1, 1, 0, 0, strata_log_softmax, NULL, NULL},
    BINARY(add),
    BINARY(sub),
    BINARY(mul),
    BINARY(div),
    BINARY(pow),
    BINARY(min),
    BINARY(max),
    SPECIAL(where, 3, 3, 0, 0),
    SPECIAL(matmul, 2, 2, 0, 0),
    SPECIAL(leaky_relu, 1, 1, 1, 1),
    SPECIAL(elu, 1, 1, 1, 1),
    SPECIAL(clip, 1, 1, 2, 2),
    SPECIAL(cast, 1, 1, 0, 0),
    SPECIAL(reshape, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(expand, 2, 2, 0, STRATA_MAX_RANK),
    SPECIAL(transpose, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(slice, 1, 1, 0, STRATA_MAX_NUMBERS),
    SPECIAL(pad, 1, 1, 0, STRATA_MAX_NUMBERS),
    SPECIAL(tile, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(gather, 2, 2, 1, 1),
    SPECIAL(one_hot, 1, 1, 1, 1),
    SPECIAL(concat, 1, STRATA_MAX_LAYER_INPUTS, 1, 1),
    SPECIAL(reduce_sum, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(reduce_mean, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(reduce_max, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(reduce_min, 1, 1, 0, STRATA_MAX_RANK),
    SPECIAL(argmax, 1, 1, 1, 1),
    SPECIAL(top_k, 1, 1, 1, 1),
    SPECIAL(top_k_indices, 1, 1, 1, 1),
    SPECIAL(conv2d, 2, 2, 9, 9),
    SPECIAL(conv2d_transpose, 2, 2, 11, 11),
    SPECIAL(layer_norm, 3, 3, 0, 0)};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const row *find_row(const char *name) {
    for (int i = 0; i < N_ROWS; i++)
        if (name && !strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

static strata_status op_check(const void *options, strata_error *err) {
    const strata_op_options *opts = options;
    const row *found = find_row(opts->op);
    if (!found)
        return strata_fail(err, STRATA_INVALID, "there is no op \"%.40s\" for a layer; strata/layers.h lists those there are",
                           opts->op ? opts->op : "");
    if (opts->numbers.n < found->least_numbers || opts->numbers.n > found->most_numbers)
        return strata_fail(err, STRATA_INVALID, "%s has %d numbers; it takes %d to %d", found->name, opts->numbers.n,
                           found->least_numbers, found->most_numbers);
    const bool any = found->build == build_leaky_relu || found->build == build_elu || found->build == build_clip;
    for (int i = 0; i < opts->numbers.n && !any; i++)
        if (opts->numbers.values[i] != floor(opts->numbers.values[i]) || fabs(opts->numbers.values[i]) > INT32_MAX)
            return strata_fail(err, STRATA_INVALID, "%s: number %d is %g; it must be whole and below 2^31", found->name, i,
                               opts->numbers.values[i]);
    return STRATA_OK;
}

strata_tensor *strata_op_apply(const strata_op_options *opts, strata_tensor *const *inputs, int n) {
    const row *found = find_row(opts->op);
    strata_error err = {0};
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    for (int i = 0; i < n; i++)
        if (strata_tensor_is_poison(inputs[i])) return inputs[i];
    if (op_check(opts, &err)) return strata_graph_poison(graph, NULL, STRATA_INVALID, "%s", err.message);
    if (n < found->least_inputs || n > found->most_inputs)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "%s takes %d to %d inputs; it was given %d", found->name,
                                   found->least_inputs, found->most_inputs, n);
    if (found->one) return found->one(inputs[0]);
    return found->two ? found->two(inputs[0], inputs[1]) : found->build(&(call){opts, inputs, n});
}

static strata_tensor *op_build(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)context;
    return strata_op_apply(options, inputs, n);
}

#define AT(field) offsetof(strata_op_options, field)
const strata_layer_kind strata_layer_op = {
    .name = "op",
    STRATA_LAYER_OPTIONS(strata_op_options),
    .options = {{"op", STRATA_OPTION_STRING, AT(op), 0, 0, true},
                {"numbers", STRATA_OPTION_NUMBERS, AT(numbers), -HUGE_VAL, HUGE_VAL, false},
                {"value", STRATA_OPTION_NUMBER, AT(value), -HUGE_VAL, HUGE_VAL, false},
                {"dtype", STRATA_OPTION_STRING, AT(dtype), 0, 0, false}},
    .least_inputs = 1,
    .most_inputs = STRATA_MAX_LAYER_INPUTS,
    .check = op_check,
    .build_many = op_build,
};
