/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes random graphs (random_graph.h). */
#include "tests/compile/random_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/check.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;
#define OK(call) \
    if (call) fprintf(stderr, "%s\n", err.message), abort()

static int64_t between(uint64_t parameter, int64_t low, int64_t high) {
    return low + (int64_t)(parameter % (uint64_t)(high - low + 1));
}

static value exact(strata_tensor *tensor, double most) {
    return (value){.tensor = tensor, .most = most};
}

static value smooth(strata_tensor *tensor) {
    return (value){.tensor = tensor};
}

static const value nothing = {0};

static int64_t elements_of(const value *v) {
    return strata_shape_elements(v->tensor->shape);
}

/* The value as an image (N, H, W, C), whose sizes depend on `how`. */
static strata_tensor *image_of(const value *v, uint64_t how) {
    const int64_t n = elements_of(v);
    const int64_t c = n % 4 ? 1 : how % 2 ? 4 : 2, w = n / c % 5 == 0 ? 5 : n / c % 3 == 0 ? 3 : 1;
    return strata_reshape(v->tensor, STRATA_SHAPE(1, n / c / w, w, c));
}

/* The value as a matrix. */
static strata_tensor *matrix_of(const value *v) {
    const int64_t n = elements_of(v), columns = n % 6 == 0 ? 6 : n % 4 == 0 ? 4 : n % 5 == 0 ? 5 : 1;
    return strata_reshape(v->tensor, STRATA_SHAPE(n / columns, columns));
}

/* n elements of the value, repeated where it has fewer; in the shape `shape`. */
static strata_tensor *cut_of(const value *v, strata_shape shape) {
    const int64_t n = strata_shape_elements(shape), have = elements_of(v), times = (n + have - 1) / have;
    strata_tensor *flat = strata_reshape(v->tensor, STRATA_SHAPE(have));
    if (times > 1) flat = strata_tile(flat, &times);
    return strata_reshape(strata_slice(flat, (int64_t[]){0}, &n), shape);
}

/* ---- makers; each returns `nothing` where its operands do not fit ---- */

static value make_unary(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *t = x[0]->tensor;
    if (x[0]->most == 0) {
        switch (p[0] % 8) {
            case 0:
                return smooth(strata_neg(t));
            case 1:
                return smooth(strata_tanh(t));
            case 2:
                return smooth(strata_sigmoid(t));
            case 3:
                return smooth(strata_gelu(strata_tanh(t)));
            case 4:
                return smooth(strata_softplus(strata_tanh(t)));
            case 5:
                return smooth(strata_sin(strata_tanh(t)));
            case 6:
                return smooth(strata_exp(strata_tanh(t)));
            default:
                return smooth(strata_silu(strata_tanh(t)));
        }
    }
    switch (p[0] % 7) {
        case 0:
            return exact(strata_neg(t), x[0]->most);
        case 1:
            return exact(strata_abs(t), x[0]->most);
        case 2:
            return exact(strata_sign(t), 1);
        case 3:
            return exact(strata_relu(t), x[0]->most);
        case 4:
            return smooth(strata_tanh(strata_mul(t, strata_scalar(s->graph, f32, 0.125))));
        case 5:
            return smooth(strata_leaky_relu(t, 0.25 * (double)between(p[1], 0, 3)));
        default:
            return exact(strata_square(strata_clip(t, -9, 9)), 81);
    }
}

static value make_elu(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    if (x[0]->most == 0) return nothing;
    return smooth(strata_elu(strata_tanh(x[0]->tensor), (double)between(p[0], 1, 3)));
}

static value make_clip(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    if (x[0]->most == 0) return nothing;
    const int64_t low = between(p[0], -4, 1), high = low + between(p[1], 0, 6);
    return exact(strata_clip(x[0]->tensor, (double)low, (double)high), 7);
}

/* Operands of a binary op: of one shape, or b broadcast to a, or both along another axis. */
static void pair(const value *const *x, const uint64_t *p, strata_tensor **a, strata_tensor **b) {
    strata_shape shape = x[0]->tensor->shape;
    *a = x[0]->tensor;
    if (strata_shape_equal(shape, x[1]->tensor->shape)) {
        *b = x[1]->tensor;
        return;
    }
    for (int d = 0; d < shape.rank; d++)
        if (p[9] >> d & 1) shape.dims[d] = 1;
    *b = cut_of(x[1], shape);
}

static value make_binary(scene *s, const value *const *x, const uint64_t *p) {
    strata_tensor *a, *b;
    pair(x, p, &a, &b);
    const double m = x[0]->most, n = x[1]->most;
    if (m == 0 || n == 0) {
        switch (p[0] % 4) {
            case 0:
                return smooth(strata_add(a, b));
            case 1:
                return smooth(strata_sub(a, b));
            case 2:
                return smooth(strata_mul(strata_tanh(a), b));
            default:
                return smooth(strata_div(a, strata_add(strata_square(b), strata_scalar(s->graph, f32, 1))));
        }
    }
    switch (p[0] % 6) {
        case 0:
            return exact(strata_add(a, b), m + n);
        case 1:
            return exact(strata_sub(a, b), m + n);
        case 2:
            return exact(strata_mul(a, b), m * n);
        case 3:
            return exact(strata_min(a, b), fmax(m, n));
        case 4:
            return exact(strata_max(a, b), fmax(m, n));
        default:
            return exact(strata_pow(strata_clip(a, -3, 3), strata_scalar(s->graph, f32, (double)between(p[1], 1, 3))), 27);
    }
}

static value make_where(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *(*const compare[])(strata_tensor *, strata_tensor *) = {
        strata_less, strata_less_equal, strata_equal, strata_greater, strata_not_equal, strata_greater_equal};
    if (x[0]->most == 0 || x[1]->most == 0) return nothing;
    strata_tensor *a, *b;
    pair(x, p, &a, &b);
    strata_tensor *y = strata_where(compare[p[0] % 6](a, b), a, cut_of(x[2], a->shape));
    return x[2]->most == 0 ? smooth(y) : exact(y, fmax(x[0]->most, x[2]->most));
}

static value make_reduce(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *t = x[0]->tensor;
    const int rank = t->shape.rank;
    int axes[STRATA_MAX_RANK], n_axes = 0;
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        if (p[0] >> d & 1) {
            axes[n_axes++] = p[1] >> d & 1 ? d - rank : d;
            n *= t->shape.dims[d];
        }
    if (!n_axes) n = elements_of(x[0]);
    const bool keep = p[2] & 1;
    if (x[0]->most == 0)
        return smooth(p[3] % 2 ? strata_reduce_sum(t, axes, n_axes, keep) : strata_reduce_mean(t, axes, n_axes, keep));
    switch (p[3] % 4) {
        case 0:
            return exact(strata_reduce_sum(t, axes, n_axes, keep), x[0]->most * (double)n);
        case 1:
            return smooth(strata_reduce_mean(t, axes, n_axes, keep));
        case 2:
            return exact(strata_reduce_max(t, axes, n_axes, keep), x[0]->most);
        default:
            return exact(strata_reduce_min(t, axes, n_axes, keep), x[0]->most);
    }
}

static value make_matmul(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const bool transpose_a = p[0] & 1, transpose_b = p[1] & 1;
    strata_tensor *a = matrix_of(x[0]);
    const int64_t k = a->shape.dims[!transpose_a], m = a->shape.dims[transpose_a], n = between(p[2], 1, 7);
    if (k > 40 || m > 60) return nothing;
    strata_tensor *b = cut_of(x[1], transpose_b ? STRATA_SHAPE(n, k) : STRATA_SHAPE(k, n));
    if (p[3] % 4 == 0) { /* the leading axes of a */
        if (a->shape.dims[0] % 2) return nothing;
        a = strata_reshape(a, STRATA_SHAPE(2, a->shape.dims[0] / 2, a->shape.dims[1]));
        if (transpose_a) return nothing;
    }
    strata_tensor *y = strata_matmul(a, b, transpose_a, transpose_b);
    return x[0]->most == 0 || x[1]->most == 0 ? smooth(strata_tanh(y)) : exact(y, x[0]->most * x[1]->most * (double)k);
}

/* A square product, whose transposes change no shape. */
static value make_square_matmul(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *y = strata_matmul(cut_of(x[0], STRATA_SHAPE(5, 5)), cut_of(x[1], STRATA_SHAPE(5, 5)), p[0] & 1, p[1] & 1);
    return x[0]->most == 0 || x[1]->most == 0 ? smooth(strata_tanh(y)) : exact(y, x[0]->most * x[1]->most * 5);
}

static value make_conv(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *t = image_of(x[0], p[8]);
    const int64_t c = t->shape.dims[3], h = t->shape.dims[1], w = t->shape.dims[2];
    strata_conv2d_window opts = {.padding = (strata_padding)(p[0] % 3), .groups = p[1] % 2 && c % 2 == 0 ? 2 : 1};
    int64_t size[2];
    for (int d = 0; d < 2; d++) {
        size[d] = between(p[2 + d], 1, 3);
        opts.stride[d] = between(p[4 + d], 0, 3);
        opts.dilation[d] = between(p[6 + d], 0, 2);
        for (int i = 0; i < 2 && opts.padding == STRATA_PADDING_EXPLICIT; i++)
            opts.explicit_padding[2 * d + i] = between(p[9] >> 2 * (2 * d + i), 0, 3);
        const int64_t span = (size[d] - 1) * (opts.dilation[d] ? opts.dilation[d] : 1) + 1;
        if (opts.padding != STRATA_PADDING_SAME &&
            span > (d ? w : h) + opts.explicit_padding[2 * d] + opts.explicit_padding[2 * d + 1])
            return nothing;
    }
    strata_tensor *filter = cut_of(x[1], STRATA_SHAPE(size[0], size[1], c / opts.groups, 2 * between(p[8] >> 4, 1, 2)));
    strata_tensor *y = strata_conv2d(t, filter, opts);
    return x[0]->most == 0 || x[1]->most == 0
               ? smooth(strata_tanh(y))
               : exact(y, x[0]->most * x[1]->most * (double)(size[0] * size[1] * c / opts.groups));
}

static value make_pool(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *t = image_of(x[0], p[8]);
    strata_pool2d_window opts = {.padding = (strata_padding)(p[0] % 3)};
    const bool is_max = p[1] % 2 && x[0]->most != 0;
    for (int d = 0; d < 2; d++) {
        const int64_t in = t->shape.dims[1 + d];
        opts.size[d] = between(p[2 + d], 1, 3);
        opts.stride[d] = between(p[4 + d], 0, 3);
        for (int i = 0; i < 2 && opts.padding == STRATA_PADDING_EXPLICIT; i++)
            opts.explicit_padding[2 * d + i] = between(p[6 + d] >> 2 * i, 0, opts.size[d] - 1);
        if (opts.padding != STRATA_PADDING_SAME &&
            opts.size[d] > in + opts.explicit_padding[2 * d] + opts.explicit_padding[2 * d + 1])
            return nothing;
    }
    return is_max ? exact(strata_max_pool2d(t, opts), x[0]->most) : smooth(strata_avg_pool2d(t, opts));
}

static value make_rows(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *t = x[0]->most == 0 ? x[0]->tensor : strata_mul(x[0]->tensor, strata_scalar(s->graph, f32, 0.25));
    if (t->shape.rank == 0) return nothing;
    const strata_shape channels = STRATA_SHAPE(t->shape.dims[t->shape.rank - 1]);
    const double epsilon = 0.25 * (double)between(p[1], 1, 4);
    strata_tensor *scale = cut_of(x[1], channels), *shift = cut_of(x[2], channels), *mean, *variance;
    scale = strata_tanh(scale);
    switch (p[0] % 6) {
        case 0:
            return smooth(strata_softmax(t));
        case 1:
            return smooth(strata_log_softmax(t));
        case 2:
            return smooth(strata_layer_norm(t, scale, shift, epsilon));
        case 3:
            return smooth(strata_batch_norm_training(t, scale, shift, epsilon, &mean, &variance));
        case 4:
            return smooth(strata_batch_norm(t, shift, strata_square(scale), scale, shift, epsilon));
        default:
            return smooth(strata_softmax_cross_entropy(t, strata_square(strata_tanh(cut_of(x[1], t->shape)))));
    }
}

static value make_gather(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const int rank = x[0]->tensor->shape.rank;
    if (!rank || x[1]->most == 0) return nothing;
    const strata_shape shape = p[0] & 1 ? STRATA_SHAPE(2, 3) : STRATA_SHAPE(4);
    strata_tensor *indices = strata_cast(strata_abs(cut_of(x[1], shape)), p[1] & 1 ? STRATA_DTYPE_I64 : STRATA_DTYPE_I32);
    return (value){.tensor = strata_gather(x[0]->tensor, indices, (int)between(p[2], -rank, rank - 1)), .most = x[0]->most};
}

static value make_first(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const int rank = x[0]->tensor->shape.rank;
    if (!rank || x[0]->most == 0) return nothing;
    strata_tensor *indices;
    const int axis = (int)between(p[1], -rank, rank - 1);
    const int64_t last = x[0]->tensor->shape.dims[rank - 1];
    switch (p[0] % 3) {
        case 0:
            return exact(strata_cast(strata_argmax(x[0]->tensor, axis), f32), 400);
        case 1:
            return exact(strata_top_k(x[0]->tensor, between(p[2], 1, last < 4 ? last : 4), &indices), x[0]->most);
        default: {
            if (elements_of(x[0]) > 60) return nothing;
            strata_tensor *whole = strata_cast(strata_abs(x[0]->tensor), STRATA_DTYPE_I32);
            return exact(strata_cast(strata_one_hot(whole, between(p[2], 1, 4), p[3] & 1 ? f32 : STRATA_DTYPE_I32), f32), 1);
        }
    }
}

static value make_concat(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const strata_shape shape = x[0]->tensor->shape;
    if (!shape.rank) return nothing;
    strata_tensor *parts[] = {x[0]->tensor, cut_of(x[1], shape), cut_of(x[2], shape)};
    const double most =
        x[0]->most == 0 || x[1]->most == 0 || x[2]->most == 0 ? 0 : fmax(x[0]->most, fmax(x[1]->most, x[2]->most));
    const int axis = (int)between(p[0], -shape.rank, shape.rank - 1);
    if (p[1] % 4 == 0) return (value){.tensor = strata_stack(parts, 3, axis), .most = most};
    return (value){.tensor = strata_concat(parts, (int)between(p[2], 1, 3), axis), .most = most};
}

static value make_slice(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const strata_shape shape = x[0]->tensor->shape;
    int64_t begin[STRATA_MAX_RANK], size[STRATA_MAX_RANK];
    for (int d = 0; d < shape.rank; d++) {
        size[d] = between(p[d % 4], (shape.dims[d] + 1) / 2, shape.dims[d]);
        begin[d] = between(p[4 + d % 4], 0, shape.dims[d] - size[d]);
    }
    return (value){.tensor = strata_slice(x[0]->tensor, begin, size), .most = x[0]->most};
}

static value make_pad(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    int64_t before[STRATA_MAX_RANK] = {0}, after[STRATA_MAX_RANK] = {0};
    for (int d = 0; d < x[0]->tensor->shape.rank; d++) {
        before[d] = between(p[d % 3], 0, 2);
        after[d] = 2 - before[d];
    }
    return (value){.tensor = strata_pad(x[0]->tensor, before, after, (double)between(p[4], -2, 2)),
                   .most = x[0]->most == 0 ? 0 : fmax(x[0]->most, 2)};
}

static value make_shape(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    strata_tensor *t = x[0]->tensor, *y;
    const int rank = t->shape.rank;
    const int64_t n = elements_of(x[0]);
    int axes[STRATA_MAX_RANK];
    for (int d = 0; d < rank; d++) axes[d] = d;
    for (int d = rank - 1; d > 0; d--) {
        const int other = (int)(p[d % 4] % (uint64_t)(d + 1)), axis = axes[d];
        axes[d] = axes[other];
        axes[other] = axis;
    }
    if (p[5] % 3 == 0)
        y = n % 3 == 0 ? strata_reshape(t, p[6] & 1 ? STRATA_SHAPE(3, -1) : STRATA_SHAPE(-1, 3))
                       : strata_reshape(t, STRATA_SHAPE(n));
    else if (p[5] % 3 == 1 && n < 60 && rank < 4)
        y = strata_broadcast_to(t, rank == 0   ? STRATA_SHAPE(between(p[6], 1, 4))
                                   : rank == 1 ? STRATA_SHAPE(between(p[6], 1, 4), n)
                                   : rank == 2 ? STRATA_SHAPE(3, t->shape.dims[0], t->shape.dims[1])
                                               : STRATA_SHAPE(2, t->shape.dims[0], t->shape.dims[1], t->shape.dims[2]));
    else
        y = strata_transpose(t, axes);
    return (value){.tensor = y, .most = x[0]->most};
}

static value make_pack(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const bool is_exact = x[0]->most != 0 && x[1]->most != 0;
    const int64_t first = between(p[0], 0, 3), second = first + elements_of(x[0]) + between(p[1], 0, 3);
    strata_tensor *parts[] = {x[0]->tensor, x[1]->tensor};
    strata_tensor *y = strata_pack(parts, (int64_t[]){first, second}, 2, elements_of(x[0]) + elements_of(x[1]) + 6);
    return is_exact ? exact(y, fmax(x[0]->most, x[1]->most)) : smooth(y);
}

/* Element-wise work in another dtype, in which the numbers are exact too. */
static value make_cast(scene *s, const value *const *x, const uint64_t *p) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    static const double limits[] = {1000, 100, 1000000, 1000000};
    const uint64_t which = p[0] % 4;
    if (x[0]->most == 0 || (s->differentiable && which > 1)) return nothing;
    strata_tensor *t = strata_clip(x[0]->tensor, -9, 9), *y = strata_cast(t, dtypes[which]);
    if (x[0]->most > limits[which]) return nothing;
    y = strata_add(y, strata_scalar(s->graph, dtypes[which], (double)between(p[1], -3, 3)));
    if (p[2] & 1) y = strata_mul(y, strata_neg(y));
    if (p[3] & 1) y = strata_max(y, strata_scalar(s->graph, dtypes[which], 2));
    return exact(strata_cast(y, f32), 144);
}

/* What a layer does after a product: a bias, an activation, a residual. */
static value make_layer(scene *s, const value *const *x, const uint64_t *p) {
    if (x[0]->most == 0 || x[1]->most == 0 || x[2]->most == 0) return nothing;
    const value product = p[9] % 2 ? make_conv(s, x, p) : make_square_matmul(s, (const value *const[]){x[0], x[1], x[2]}, p);
    if (!product.tensor) return nothing;
    const strata_shape shape = product.tensor->shape;
    strata_tensor *y = product.tensor;
    double most = product.most;
    if (p[2] & 4) y = strata_add(y, cut_of(x[2], STRATA_SHAPE(shape.dims[shape.rank - 1]))), most += x[2]->most;
    if (p[3] & 4) y = strata_relu(y);
    if (p[4] & 4) y = strata_add(cut_of(x[0], shape), y), most += x[0]->most;
    return exact(y, most);
}

/* Adds to a variable or replaces it. */
static value make_update(scene *s, const value *const *x, const uint64_t *p) {
    strata_variable *variable = s->variables[p[0] % VARIABLES];
    strata_tensor *read = strata_variable_read(s->graph, variable);
    if (x[0]->most == 0) return nothing;
    strata_tensor *new = strata_clip(cut_of(x[0], read->shape), -2, 2);
    if (p[1] % 3 == 0) new = strata_add(new, read);
    strata_tensor *update = p[1] % 3 == 1 ? strata_assign_add(read, new) : strata_assign(read, strata_clip(new, -9, 9));
    s->updates[s->n_updates++] = update;
    if (s->differentiable || p[2] % 2) update = strata_variable_read(s->graph, variable);
    return exact(strata_clip(update, -9, 9), 9);
}

static value make_read(scene *s, const value *const *x, const uint64_t *p) {
    (void)x;
    return exact(strata_clip(strata_variable_read(s->graph, s->variables[p[0] % VARIABLES]), -9, 9), 9);
}

static value make_view_of_variable(scene *s, const value *const *x, const uint64_t *p) {
    (void)x;
    strata_tensor *read = strata_variable_read(s->graph, s->variables[p[0] % VARIABLES]);
    const int64_t half = read->shape.dims[0] / 2, columns = read->shape.dims[1];
    strata_tensor *rows = strata_slice(read, (int64_t[]){between(p[1], 0, half), 0}, (int64_t[]){half, columns});
    /* The variables stay below 200 in a graph of this size. */
    return exact(p[2] & 1 ? strata_reshape(rows, STRATA_SHAPE(half * columns)) : rows, 200);
}

static value make_exchange(scene *s, const value *const *x, const uint64_t *p) {
    if (!s->divided) return nothing;
    return (value){.tensor = strata_all_reduce(x[0]->tensor, (strata_reduction)(p[0] % 2)), .most = x[0]->most};
}

/* ---- makers of wide graphs; their operands have any dtype ---- */

/* The largest whole numbers of each dtype, of which sums are exact as well. */
static double limit_of(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BOOL ? 1 : dtype == STRATA_DTYPE_BF16 ? 100 : dtype == STRATA_DTYPE_U8 ? 200 : 1000;
}

static strata_tensor *as(strata_tensor *t, strata_dtype dtype) {
    return t->dtype == dtype ? t : strata_cast(t, dtype);
}

/* A value of another dtype, which stays in it. */
static value make_other_dtype(scene *s, const value *const *x, const uint64_t *p) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32,
                                          STRATA_DTYPE_I64, STRATA_DTYPE_BOOL, STRATA_DTYPE_U8};
    (void)s;
    const strata_dtype dtype = dtypes[p[0] % 6];
    if (x[0]->most == 0) return nothing;
    strata_tensor *t = x[0]->tensor;
    if (t->dtype == STRATA_DTYPE_U8) t = strata_cast(t, f32); /* u8 is only stored and compared */
    if (dtype == STRATA_DTYPE_U8 && t->dtype != STRATA_DTYPE_BOOL) t = strata_abs(t);
    const double most = fmin(x[0]->most, limit_of(dtype));
    if (x[0]->most > most && dtype != STRATA_DTYPE_BOOL) t = strata_clip(t, -5, 5);
    return exact(as(t, dtype), x[0]->most > most && dtype != STRATA_DTYPE_BOOL ? 5 : most);
}

/* Element-wise work of two operands in the dtype of the first. */
static value make_arithmetic(scene *s, const value *const *x, const uint64_t *p) {
    strata_tensor *(*const compare[])(strata_tensor *, strata_tensor *) = {
        strata_less, strata_less_equal, strata_equal, strata_greater, strata_not_equal, strata_greater_equal};
    (void)s;
    const strata_dtype dtype = x[0]->tensor->dtype;
    if (x[0]->most == 0 || x[1]->most == 0) return nothing;
    if (x[1]->most > limit_of(dtype) && dtype != STRATA_DTYPE_BOOL) return nothing;
    strata_tensor *a, *b;
    pair(x, p, &a, &b);
    if (dtype == STRATA_DTYPE_U8 && b->dtype != STRATA_DTYPE_BOOL && b->dtype != STRATA_DTYPE_U8) b = strata_abs(b);
    b = as(b, dtype);
    const double m = x[0]->most, n = fmin(x[1]->most, limit_of(dtype));
    if (p[0] % 3 == 0 || dtype == STRATA_DTYPE_BOOL || dtype == STRATA_DTYPE_U8) return exact(compare[p[1] % 6](a, b), 1);
    switch (p[1] % 5) {
        case 0:
            return m + n > limit_of(dtype) ? nothing : exact(strata_add(a, b), m + n);
        case 1:
            return m + n > limit_of(dtype) ? nothing : exact(strata_sub(a, b), m + n);
        case 2:
            return m * n > limit_of(dtype) ? nothing : exact(strata_mul(a, b), m * n);
        case 3:
            return exact(strata_min(a, b), fmax(m, n));
        default:
            return exact(strata_max(strata_neg(a), b), fmax(m, n));
    }
}

static value make_choice(scene *s, const value *const *x, const uint64_t *p) {
    (void)s;
    const strata_dtype dtype = x[0]->tensor->dtype;
    if (x[0]->most == 0 || x[1]->most == 0 || x[2]->most == 0 || x[2]->most > limit_of(dtype)) return nothing;
    strata_tensor *a, *b, *other = cut_of(x[2], x[0]->tensor->shape);
    pair(x, p, &a, &b);
    if (dtype == STRATA_DTYPE_U8 && other->dtype != STRATA_DTYPE_BOOL && other->dtype != STRATA_DTYPE_U8)
        other = strata_abs(other);
    return exact(strata_where(as(b, STRATA_DTYPE_BOOL), a, as(other, dtype)), fmax(x[0]->most, x[2]->most));
}

/* Moves elements of any dtype. */
static value make_moved(scene *s, const value *const *x, const uint64_t *p) {
    const strata_shape shape = x[0]->tensor->shape;
    if (!shape.rank) return nothing;
    const int64_t rows = shape.dims[0];
    strata_tensor *parts[8];
    switch (p[8] % 4) {
        case 0:
            return make_slice(s, x, p);
        case 1:
            return make_shape(s, x, p);
        case 2:
            if (rows % 2 || rows > 8) return nothing;
            strata_split(x[0]->tensor, 2, 0, parts);
            return (value){.tensor = parts[p[0] % 2], .most = x[0]->most};
        default:
            parts[0] = x[0]->tensor;
            parts[1] = as(cut_of(x[0], shape), x[0]->tensor->dtype);
            return (value){.tensor = strata_concat(parts, 2, (int)between(p[0], -shape.rank, shape.rank - 1)),
                           .most = x[0]->most};
    }
}

/* ---- makers of wide graphs; their operands are f32 ---- */

enum { WEIGHTS, VELOCITY, ADAM_WEIGHTS, ADAM_M, ADAM_V, TABLE, FLAT = 24, TABLE_ROWS = 6 };

/* NULL, a finite number, or one that stops the update. */
static strata_tensor *gate_of(scene *s, const value *x, uint64_t how) {
    if (how % 4 == 0) return NULL;
    strata_tensor *sum = strata_reduce_sum(x->tensor, NULL, 0, false);
    return how % 4 < 3 ? sum : strata_div(sum, strata_scalar(s->graph, f32, 0));
}

/* A step of an optimizer. With a learning rate and a momentum of 1, sgd is exact. */
static value make_step(scene *s, const value *const *x, const uint64_t *p) {
    if (x[0]->most == 0 || x[1]->most == 0) return nothing;
    const bool adam = p[0] % 3 == 0;
    strata_tensor *reads[MORE_VARIABLES];
    for (int i = 0; i < MORE_VARIABLES; i++) reads[i] = strata_variable_read(s->graph, s->more[i]);
    strata_tensor *step = strata_broadcast_to(strata_scalar(s->graph, f32, 1), STRATA_SHAPE(STRATA_STEP_WORDS));
    strata_tensor *gate = gate_of(s, x[1], p[1]);
    strata_tensor *gradients = strata_clip(cut_of(x[0], STRATA_SHAPE(p[2] % 3 ? FLAT : 17)), -2, 2);
    if (p[3] % 3 == 0) { /* gradients in parts, as those of layers */
        strata_tensor *parts[] = {strata_clip(cut_of(x[0], STRATA_SHAPE(3, 4)), -2, 2),
                                  strata_clip(cut_of(x[1], STRATA_SHAPE(5)), -1, 1)};
        gradients = strata_pack(parts, (int64_t[]){0, between(p[4], 12, 19)}, 2, FLAT);
    }
    strata_tensor *update =
        adam       ? strata_adam(reads[ADAM_WEIGHTS], reads[ADAM_M], reads[ADAM_V], gradients, step, gate, 0.5, 0.75, 0.125)
        : p[5] % 2 ? strata_sgd(reads[WEIGHTS], NULL, gradients, step, gate, 0, false)
                   : strata_sgd(reads[WEIGHTS], reads[VELOCITY], gradients, step, gate, 1, p[6] % 2);
    s->updates[s->n_updates++] = update;
    if (p[7] % 2) update = strata_variable_read(s->graph, s->more[adam ? ADAM_WEIGHTS : WEIGHTS]);
    return adam ? smooth(strata_tanh(update)) : exact(strata_clip(update, -9, 9), 9);
}

static value make_average(scene *s, const value *const *x, const uint64_t *p) {
    if (x[0]->most == 0 || x[1]->most == 0 || x[2]->most == 0) return nothing;
    strata_tensor *state = strata_variable_read(s->graph, s->more[WEIGHTS]);
    strata_tensor *rates = strata_cast(strata_greater(cut_of(x[1], STRATA_SHAPE(FLAT)), strata_scalar(s->graph, f32, 0)), f32);
    strata_tensor *update =
        strata_moving_average(state, strata_clip(cut_of(x[0], STRATA_SHAPE(FLAT)), -9, 9), rates, gate_of(s, x[2], p[1]));
    s->updates[s->n_updates++] = update;
    return exact(strata_clip(update, -9, 9), 9);
}

/* Sets some rows of a table, and reads others. */
static value make_rows_of_table(scene *s, const value *const *x, const uint64_t *p) {
    strata_tensor *table = strata_variable_read(s->graph, s->more[TABLE]);
    const int64_t first = between(p[0], 0, 4), n = 3;
    if (x[0]->most == 0) return nothing;
    strata_tensor *indices = strata_slice(strata_arange(s->graph, 8), &first, &n);
    if (p[1] % 2) indices = strata_cast(indices, STRATA_DTYPE_I64);
    if (p[2] % 3 == 0) return exact(strata_clip(strata_gather(table, indices, 0), -9, 9), 9);
    strata_tensor *rows = strata_clip(cut_of(x[0], STRATA_SHAPE(n, 4)), -9, 9);
    if (p[2] % 3 == 1) rows = strata_clip(strata_add(rows, strata_gather(table, indices, 0)), -9, 9);
    strata_tensor *update = strata_scatter_update(table, 0, TABLE_ROWS, indices, rows, NULL);
    s->updates[s->n_updates++] = update;
    if (p[3] % 2) update = strata_variable_read(s->graph, s->more[TABLE]);
    return exact(update, 9);
}

/* A value that is not whole, between -1 and 1. */
static strata_tensor *mild(scene *s, const value *v, strata_shape shape) {
    strata_tensor *t = cut_of(v, shape);
    return strata_tanh(v->most == 0 ? t : strata_mul(t, strata_scalar(s->graph, f32, 0.125)));
}

static value make_sequence(scene *s, const value *const *x, const uint64_t *p) {
    const int64_t b = between(p[0], 1, 3), t = between(p[1], 1, 4), u = between(p[2], 1, 3), d = between(p[3], 1, 4);
    const strata_recurrent_options opts = {.reverse = p[4] % 2, .last = p[5] % 2, .reset_first = p[8] % 2};
    if (x[1]->most == 0) return nothing;
    strata_tensor *mask =
        p[6] % 2 ? as(strata_greater(cut_of(x[1], STRATA_SHAPE(b, t)), strata_scalar(s->graph, f32, 0)), f32) : NULL;
    if (p[7] % 3 == 0) {
        strata_tensor *q = mild(s, x[0], STRATA_SHAPE(b, t, d)), *k = mild(s, x[1], STRATA_SHAPE(b, t, d)),
                      *v = mild(s, x[2], STRATA_SHAPE(b, t, u));
        return smooth(strata_attention(q, k, v, NULL, 0.5));
    }
    const bool gru = p[7] % 3 == 1;
    const int64_t width = (gru ? 3 : 4) * u;
    strata_tensor *z = mild(s, x[0], STRATA_SHAPE(b, t, width)), *matrix = mild(s, x[2], STRATA_SHAPE(u, width)),
                  *bias = mild(s, x[1], STRATA_SHAPE(width));
    return smooth(gru ? strata_gru(z, matrix, bias, mask, opts) : strata_lstm(z, matrix, bias, mask, opts));
}

static value make_more(scene *s, const value *const *x, const uint64_t *p) {
    const int64_t m = between(p[1], 1, 6), n = between(p[2], 1, 5), times[] = {between(p[3], 1, 3), between(p[4], 1, 2)};
    if (x[0]->most == 0 || x[1]->most == 0) return nothing;
    strata_tensor *matrix = cut_of(x[0], STRATA_SHAPE(m, n));
    strata_tensor *indices =
        strata_cast(strata_abs(cut_of(x[1], STRATA_SHAPE(m))), p[5] % 2 ? STRATA_DTYPE_I32 : STRATA_DTYPE_I64);
    switch (p[0] % 6) {
        case 0:
            return exact(strata_unsorted_segment_sum(matrix, indices, between(p[6], 1, 5)), x[0]->most * (double)m);
        case 1:
            return exact(strata_tile(matrix, times), x[0]->most);
        case 2:
            return smooth(strata_sqrt(strata_add(strata_square(strata_clip(matrix, -9, 9)), strata_scalar(s->graph, f32, 1))));
        case 3:
            return smooth(strata_erf(mild(s, x[0], x[0]->tensor->shape)));
        case 4:
            return exact(strata_cast(strata_first_index(indices, between(p[6], 1, 5)), f32), 6);
        default:
            return smooth(strata_sparse_softmax_cross_entropy(mild(s, x[0], STRATA_SHAPE(m, n)),
                                                              strata_clip(indices, 0, (double)(n - 1))));
    }
}

typedef value maker(scene *s, const value *const *x, const uint64_t *p);
static maker *const makers[] = {make_unary, make_elu, make_clip, make_binary, make_binary, make_where, make_reduce, make_matmul,
                                make_square_matmul, make_conv, make_pool, make_pool, make_rows, make_rows, make_gather,
                                make_first, make_concat, make_slice, make_pad, make_shape, make_cast, make_layer, make_layer,
                                make_update, make_read, make_pack, make_view_of_variable, make_exchange, make_exchange,
                                make_exchange,
                                /* of wide graphs only */
                                make_step, make_step, make_average, make_rows_of_table, make_sequence, make_more, make_more,
                                /* and with operands of any dtype */
                                make_other_dtype, make_other_dtype, make_arithmetic, make_arithmetic, make_choice, make_moved};
enum { MAKERS = sizeof makers / sizeof *makers, WIDE_MAKERS = 13, ANY_DTYPE_MAKERS = 6 };

/* ---- graphs ---- */

static bool too_large(const value *v) {
    return v->tensor && (elements_of(v) > 300 || elements_of(v) == 0 || v->tensor->shape.rank > 5);
}

/* Makes a node of the recipe. Returns whether it is possible. */
static bool add(scene *s, const recipe *r) {
    const value *x[3];
    value floats[3];
    for (int i = 0; i < 3; i++) {
        x[i] = &s->values[r->operands[i]];
        if (r->maker >= MAKERS - ANY_DTYPE_MAKERS || x[i]->tensor->dtype == f32) continue;
        floats[i] = (value){.tensor = strata_cast(x[i]->tensor, f32), .most = x[i]->most};
        x[i] = &floats[i];
    }
    value v = makers[r->maker](s, x, r->parameters);
    if (!v.tensor || too_large(&v)) return false;
    if (v.most > 1000) v = exact(strata_clip(v.tensor, -5, 5), 5); /* so that products stay exact */
    for (int i = 0; i < 3; i++) s->values[r->operands[i]].used = true;
    s->recipes[s->n] = *r;
    s->values[s->n++] = v;
    return true;
}

static recipe random_recipe(scene *s) {
    recipe r = {.maker = (int)(strata_test_next(&s->state) % (uint64_t)(s->wide ? MAKERS : MAKERS - WIDE_MAKERS))};
    for (int i = 0; i < 3; i++) {
        const uint64_t any = strata_test_next(&s->state);
        r.operands[i] = any >> 60 < 6 ? s->n - 1 : (int)(any % (uint64_t)s->n);
    }
    for (int i = 0; i < PARAMETERS; i++) r.parameters[i] = strata_test_next(&s->state) >> 8;
    return r;
}

/* The recipe of an earlier node, with one other parameter. */
static recipe twin_recipe(scene *s) {
    const int first = LEAVES;
    recipe r = s->recipes[first + (int)(strata_test_next(&s->state) % (uint64_t)(s->n - first))];
    r.parameters[strata_test_next(&s->state) % PARAMETERS] = strata_test_next(&s->state) >> 8;
    return r;
}

/* Makes the variables of optimizers, and a table. The second moments of Adam are not negative. */
static void begin_more(scene *s, strata_device *device, uint64_t seed, strata_array *arrays, strata_test_feed *feeds) {
    static const char *const names[] = {"weights", "velocity", "adam weights", "adam m", "adam v", "table"};
    strata_error err = {0};
    for (int i = 0; i < MORE_VARIABLES; i++) {
        const strata_shape shape = i == TABLE ? STRATA_SHAPE(TABLE_ROWS, 4) : STRATA_SHAPE(FLAT);
        strata_array *array = &arrays[LEAVES + i];
        *array = strata_test_random(f32, shape, i == ADAM_V ? 0 : -4, 5, seed * 16 + LEAVES + (uint64_t)i);
        for (int64_t e = 0; e < strata_shape_elements(shape); e++)
            ((float *)array->data)[e] = floorf(((float *)array->data)[e]);
        OK(strata_variable_create(device, names[i], f32, shape, &s->more[i], &err));
        feeds[LEAVES + i] = (strata_test_feed){s->more[i], array};
    }
}

/* Makes the nodes of another scene again. */
static void repeat(scene *s) {
    strata_error err = {0};
    for (int i = LEAVES; i < s->of->n; i++) {
        const recipe *r = &s->of->recipes[i];
        s->is_output[i] = s->of->is_output[i];
        if (!s->of->off[i] && add(s, r)) {
            OK(strata_graph_check(s->graph, &err));
            continue;
        }
        s->recipes[i] = *r;
        s->off[i] = true;
        s->values[s->n++] = s->values[r->operands[0]];
    }
}

void random_graph_begin(scene *s, strata_device *device, uint64_t seed, strata_array *arrays, strata_test_feed *feeds) {
    static const char *const names[] = {"a", "b", "c", "u", "v"};
    const strata_shape shapes[] = {STRATA_SHAPE(2, 5, 4), STRATA_SHAPE(6, 6), STRATA_SHAPE(24), STRATA_SHAPE(4, 6),
                                   STRATA_SHAPE(4, 6)};
    strata_error err = {0};
    OK(strata_graph_create(&s->graph, &err));
    s->state = seed;
    for (int i = 0; i < LEAVES; i++) {
        arrays[i] = strata_test_random(f32, shapes[i], -4, 5, seed * 16 + (uint64_t)i);
        float *data = arrays[i].data;
        for (int64_t e = 0; e < strata_shape_elements(shapes[i]); e++) data[e] = floorf(data[e]);
        if (i < INPUTS) {
            s->values[i] = exact(strata_input(s->graph, names[i], f32, shapes[i]), 5);
        } else {
            strata_variable **variable = &s->variables[i - INPUTS];
            OK(strata_variable_create(device, names[i], f32, shapes[i], variable, &err));
            s->values[i] = exact(strata_variable_read(s->graph, *variable), 5);
        }
        s->n++;
        feeds[i] = (strata_test_feed){i < INPUTS ? (const void *)s->values[i].tensor : s->variables[i - INPUTS], &arrays[i]};
    }
    if (s->wide) begin_more(s, device, seed, arrays, feeds);
    if (s->of) {
        repeat(s);
        return;
    }
    const int most = s->most_nodes ? s->most_nodes : MOST_NODES, most_tries = most - LEAVES - 2;
    const int n_nodes = (int)between(strata_test_next(&s->state), most_tries < 12 ? most_tries : 12, most_tries);
    for (int tries = 0; tries < n_nodes && s->n < most; tries++) {
        const recipe r = s->n > LEAVES + 2 && strata_test_next(&s->state) % 3 == 0 ? twin_recipe(s) : random_recipe(s);
        add(s, &r);
        OK(strata_graph_check(s->graph, &err));
    }
}

int random_graph_outputs(scene *s, strata_tensor **outputs) {
    int n = 0;
    for (int i = s->n - 1; i >= LEAVES && n < MOST_OUTPUTS; i--) {
        if (!s->of) s->is_output[i] = !s->values[i].used || strata_test_next(&s->state) % 16 == 0;
        if (s->is_output[i]) outputs[n++] = s->values[i].tensor;
    }
    return n;
}

int random_graph_gradients(scene *s, strata_tensor *const *outputs, int n, strata_tensor **gradients) {
    strata_tensor *loss = strata_scalar(s->graph, f32, 0), *of[LEAVES];
    strata_tensor *ramp = strata_cast(strata_arange(s->graph, 512), f32);
    for (int i = 0; i < n; i++) {
        const int64_t elements = strata_shape_elements(outputs[i]->shape), first = i;
        strata_tensor *weights = strata_sin(strata_slice(ramp, &first, &elements));
        strata_tensor *flat = strata_reshape(outputs[i], STRATA_SHAPE(elements));
        loss = strata_add(loss, strata_reduce_sum(strata_mul(flat, weights), NULL, 0, false));
    }
    for (int i = 0; i < LEAVES; i++) of[i] = s->values[i].tensor;
    strata_gradients(loss, NULL, of, LEAVES, gradients);
    return LEAVES;
}
