/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of matrix products and convolutions of floats. Products are computed in f32 if the operands and the result do not have
 * one dtype. */
#include <inttypes.h>

#include "core/frontend/pjrt/lowering.h"

static bool is_product_dtype(const lower_call *call, strata_dtype *out) {
    const strata_dtype a = strata_tensor_dtype(call->in[0]->tensor), b = strata_tensor_dtype(call->in[1]->tensor);
    *out = a == b && a == call->out_dtypes[0] ? a : STRATA_DTYPE_F32;
    return strata_dtype_is_float(a) && strata_dtype_is_float(b) && strata_dtype_is_float(call->out_dtypes[0]);
}

static strata_status refuse_integers(strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED, "products of integers are not supported; convert the operands to f32");
}

/* ---- dot_general ---- */

/* An operand as (batch, rows, K), or (batch, K, rows) if its axes are in this order already. */
typedef struct factor {
    int n_batch, n_summed, batch[STRATA_MAX_RANK], summed[STRATA_MAX_RANK];
    strata_tensor *tensor;
    bool is_transposed;
} factor;

static strata_status read_factor(const lower_call *call, const char *batch, const char *summed, int operand, factor *f,
                                 strata_error *err) {
    const int rank = call->in[operand]->shape.rank;
    STRATA_TRY(strata_lower_axes(call, batch, rank, f->batch, &f->n_batch, err));
    STRATA_TRY(strata_lower_axes(call, summed, rank, f->summed, &f->n_summed, err));
    for (int i = 0; i < f->n_batch; i++)
        for (int k = 0; k < f->n_summed; k++)
            if (f->batch[i] == f->summed[k])
                return strata_fail(err, STRATA_DATA, "axis %d is both summed and a batch axis", f->batch[i]);
    return STRATA_OK;
}

/* The axes in the order batch, others, summed, or, with `transposed`, batch, summed, others. True: nothing moves. */
static bool order_axes(const factor *f, int rank, bool transposed, int *order) {
    bool is_same = true;
    int n = 0;
    for (int i = 0; i < f->n_batch; i++) order[n++] = f->batch[i];
    for (int i = 0; i < f->n_summed && transposed; i++) order[n++] = f->summed[i];
    for (int d = 0; d < rank; d++) {
        bool is_other = true;
        for (int i = 0; i < f->n_batch; i++) is_other &= f->batch[i] != d;
        for (int i = 0; i < f->n_summed; i++) is_other &= f->summed[i] != d;
        if (is_other) order[n++] = d;
    }
    for (int i = 0; i < f->n_summed && !transposed; i++) order[n++] = f->summed[i];
    for (int d = 0; d < rank; d++) is_same &= order[d] == d;
    return is_same;
}

static void arrange(factor *f, const lowered *value, strata_dtype dtype) {
    int order[STRATA_MAX_RANK];
    const strata_shape shape = value->shape;
    int64_t batch = 1, summed = 1, others = 1;
    f->tensor = strata_cast(strata_lower_whole(value), dtype);
    f->is_transposed = order_axes(f, shape.rank, true, order);
    if (!f->is_transposed && !order_axes(f, shape.rank, false, order)) f->tensor = strata_transpose(f->tensor, order);
    for (int i = 0; i < f->n_batch; i++) batch *= shape.dims[f->batch[i]];
    for (int i = 0; i < f->n_summed; i++) summed *= shape.dims[f->summed[i]];
    for (int d = 0; d < shape.rank; d++) others *= shape.dims[d];
    others = batch && summed ? others / (batch * summed) : 0;
    const int64_t rows = f->is_transposed ? summed : others, columns = f->is_transposed ? others : summed;
    f->tensor = strata_reshape(f->tensor, f->n_batch ? STRATA_SHAPE(batch, rows, columns) : STRATA_SHAPE(rows, columns));
}

strata_status strata_lower_dot_general(const lower_call *call, strata_error *err) {
    factor a = {0}, b = {0};
    strata_dtype dtype;
    STRATA_TRY(strata_lower_operands(call, 2, err));
    STRATA_TRY(read_factor(call, "lhs_batching_dimensions", "lhs_contracting_dimensions", 0, &a, err));
    STRATA_TRY(read_factor(call, "rhs_batching_dimensions", "rhs_contracting_dimensions", 1, &b, err));
    if (!is_product_dtype(call, &dtype)) return refuse_integers(err);
    bool fits = a.n_batch == b.n_batch && a.n_summed == b.n_summed;
    const strata_shape a_shape = call->in[0]->shape, b_shape = call->in[1]->shape;
    for (int i = 0; i < a.n_batch && fits; i++) fits = a_shape.dims[a.batch[i]] == b_shape.dims[b.batch[i]];
    for (int i = 0; i < a.n_summed && fits; i++) fits = a_shape.dims[a.summed[i]] == b_shape.dims[b.summed[i]];
    if (!fits) return strata_fail(err, STRATA_DATA, "its operands have not the same batch or summed axes");
    if (!strata_shape_elements(a_shape) || !strata_shape_elements(b_shape)) { /* sums of nothing */
        const strata_array zero =
            strata_array_view(call->out_dtypes[0], strata_lower_ones(call->out[0].shape.rank), &(double){0});
        call->out[0].tensor = strata_constant(call->graph, &zero);
        return STRATA_OK;
    }
    arrange(&a, call->in[0], dtype);
    arrange(&b, call->in[1], dtype);
    strata_tensor *y = strata_matmul(a.tensor, b.tensor, a.is_transposed, !b.is_transposed);
    call->out[0].tensor = strata_cast(strata_reshape(y, call->out[0].shape), call->out_dtypes[0]);
    return STRATA_OK;
}

/* ---- convolution ---- */

/* The numbers of a convolution over one or two axes; one is seen as the width of an image of one row. */
typedef struct convolution {
    int n;
    int64_t batch, feature, kernel_in, kernel_out, out_batch, out_feature, groups, batch_groups;
    int64_t in[2], kernel[2], out[2];
    int64_t stride[2], in_dilation[2], dilation[2], before[2], after[2], reversed[2];
} convolution;

static strata_status read_convolution(const lower_call *call, convolution *c, strata_error *err) {
    int64_t padding[4];
    STRATA_TRY(strata_lower_operands(call, 2, err));
    c->n = call->in[0]->shape.rank - 2;
    if (c->n < 1 || c->n > 2 || call->in[1]->shape.rank != c->n + 2 || call->out[0].shape.rank != c->n + 2)
        return strata_fail(err, STRATA_UNSUPPORTED, "only convolutions over one or two axes are supported");
    STRATA_TRY(strata_lower_integer(call, "input_batch_dimension", &c->batch, err));
    STRATA_TRY(strata_lower_integer(call, "input_feature_dimension", &c->feature, err));
    STRATA_TRY(strata_lower_integer(call, "kernel_input_feature_dimension", &c->kernel_in, err));
    STRATA_TRY(strata_lower_integer(call, "kernel_output_feature_dimension", &c->kernel_out, err));
    STRATA_TRY(strata_lower_integer(call, "output_batch_dimension", &c->out_batch, err));
    STRATA_TRY(strata_lower_integer(call, "output_feature_dimension", &c->out_feature, err));
    STRATA_TRY(strata_lower_integer(call, "feature_group_count", &c->groups, err));
    STRATA_TRY(strata_lower_integer(call, "batch_group_count", &c->batch_groups, err));
    STRATA_TRY(strata_lower_integers(call, "input_spatial_dimensions", c->n, c->in, err));
    STRATA_TRY(strata_lower_integers(call, "kernel_spatial_dimensions", c->n, c->kernel, err));
    STRATA_TRY(strata_lower_integers(call, "output_spatial_dimensions", c->n, c->out, err));
    STRATA_TRY(strata_lower_integers(call, "window_strides", c->n, c->stride, err));
    STRATA_TRY(strata_lower_integers(call, "lhs_dilation", c->n, c->in_dilation, err));
    STRATA_TRY(strata_lower_integers(call, "rhs_dilation", c->n, c->dilation, err));
    STRATA_TRY(strata_lower_integers(call, "window_reversal", c->n, c->reversed, err));
    STRATA_TRY(strata_lower_integers(call, "padding", 2 * c->n, padding, err));
    for (int i = 0; i < c->n; i++) {
        c->before[i] = padding[2 * i];
        c->after[i] = padding[2 * i + 1];
        if (c->stride[i] < 1 || c->in_dilation[i] < 1 || c->dilation[i] < 1)
            return strata_fail(err, STRATA_DATA, "a stride or a dilation is below 1");
    }
    if (c->groups < 1 || c->batch_groups < 1) return strata_fail(err, STRATA_DATA, "its number of groups is below 1");
    if (c->batch_groups > 1)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "groups of the batch, as in the gradient of a grouped convolution's filter, are not supported");
    return STRATA_OK;
}

/* The axes in the order first, spatial, last; false: they are not each axis once. */
static bool arranged(int n, int64_t first, const int64_t *spatial, int64_t last, int *order) {
    unsigned seen = 0;
    order[0] = (int)first;
    for (int i = 0; i < n; i++) order[1 + i] = (int)spatial[i];
    order[n + 1] = (int)last;
    for (int i = 0; i < n + 2; i++) {
        if (order[i] < 0 || order[i] >= n + 2) return false;
        seen |= 1u << order[i];
    }
    return seen == (1u << (n + 2)) - 1;
}

/* A convolution over one axis gets a height of 1. */
static void add_height(convolution *c) {
    if (c->n == 2) return;
    int64_t *const numbers[] = {c->stride, c->in_dilation, c->dilation, c->before, c->after, c->reversed};
    for (int i = 0; i < 6; i++) {
        numbers[i][1] = numbers[i][0];
        numbers[i][0] = i < 3;
    }
}

static strata_tensor *image_of(strata_tensor *x, const int *order, int n) {
    strata_shape shape = strata_tensor_shape(x = strata_transpose(x, order));
    return n == 2 ? x : strata_reshape(x, STRATA_SHAPE(shape.dims[0], 1, shape.dims[1], shape.dims[2]));
}

/* The filter (KH, KW, I / groups, O), reversed along the axes of which `reversed` is not 0. */
static strata_tensor *filter_of(const convolution *c, strata_tensor *x, const int64_t *reversed) {
    int order[4];
    for (int i = 0; i < c->n; i++) order[i] = (int)c->kernel[i];
    order[c->n] = (int)c->kernel_in;
    order[c->n + 1] = (int)c->kernel_out;
    strata_shape shape = strata_tensor_shape(x = strata_transpose(x, order));
    if (c->n == 1) x = strata_reshape(x, shape = STRATA_SHAPE(1, shape.dims[0], shape.dims[1], shape.dims[2]));
    for (int d = 0; d < 2; d++)
        if (reversed[d]) x = strata_lower_take(x, d, shape.dims[d] - 1, -1, shape.dims[d]);
    return x;
}

/* Where padding is negative, the image is cut instead. */
static strata_tensor *forward(const convolution *c, strata_tensor *x, strata_tensor *filter) {
    const int64_t cut_before[] = {0, c->before[0] < 0 ? c->before[0] : 0, c->before[1] < 0 ? c->before[1] : 0, 0};
    const int64_t cut_after[] = {0, c->after[0] < 0 ? c->after[0] : 0, c->after[1] < 0 ? c->after[1] : 0, 0};
    strata_conv2d_window window = {.groups = c->groups, .padding = STRATA_PADDING_EXPLICIT};
    for (int i = 0; i < 2; i++) {
        window.stride[i] = c->stride[i];
        window.dilation[i] = c->dilation[i];
        window.explicit_padding[2 * i] = c->before[i] > 0 ? c->before[i] : 0;
        window.explicit_padding[2 * i + 1] = c->after[i] > 0 ? c->after[i] : 0;
    }
    return strata_conv2d(strata_lower_pad_by(x, cut_before, cut_after, NULL, 0), filter, window);
}

/* A convolution of an image with zeros between its elements, with the stride 1, is the transpose of a convolution with that
 * stride, whose filter is reversed and has inputs and outputs exchanged. NULL: it has no such form. */
static strata_tensor *transposed(const convolution *c, strata_tensor *x, strata_tensor *filter, strata_shape out) {
    const strata_shape in = strata_tensor_shape(x), f = strata_tensor_shape(filter);
    strata_conv2d_window window = {.groups = c->groups, .padding = STRATA_PADDING_EXPLICIT};
    const int64_t each = f.dims[3] / c->groups;
    for (int i = 0; i < 2; i++) {
        const int64_t span = (f.dims[i] - 1) * c->dilation[i], top = span - c->before[i];
        const int64_t bottom = (in.dims[1 + i] - 1) * c->in_dilation[i] + span + 1 - out.dims[1 + i] - top;
        const int64_t padded = (in.dims[1 + i] - 1) * c->in_dilation[i] + 1 + c->before[i] + c->after[i];
        if (c->stride[i] != 1 || top < 0 || bottom <= -c->in_dilation[i] || padded - span != out.dims[1 + i]) return NULL;
        window.stride[i] = c->in_dilation[i];
        window.dilation[i] = c->dilation[i];
        window.explicit_padding[2 * i] = top;
        window.explicit_padding[2 * i + 1] = bottom > 0 ? bottom : 0;
    }
    if (f.dims[3] % c->groups) return NULL;
    filter = strata_reshape(filter, STRATA_SHAPE(f.dims[0], f.dims[1], f.dims[2], c->groups, each));
    filter = strata_transpose(filter, (int[]){0, 1, 4, 3, 2});
    filter = strata_reshape(filter, STRATA_SHAPE(f.dims[0], f.dims[1], each, c->groups * f.dims[2]));
    return strata_conv2d_transpose(x, filter, window, out.dims[1], out.dims[2]);
}

strata_status strata_lower_convolution(const lower_call *call, strata_error *err) {
    convolution c = {0};
    int in_order[4], kernel_order[4], out_order[4], back[4];
    strata_dtype dtype;
    STRATA_TRY(read_convolution(call, &c, err));
    if (!is_product_dtype(call, &dtype)) return refuse_integers(err);
    if (!arranged(c.n, c.batch, c.in, c.feature, in_order) ||
        !arranged(c.n, c.kernel_in, c.kernel, c.kernel_out, kernel_order) ||
        !arranged(c.n, c.out_batch, c.out, c.out_feature, out_order))
        return strata_fail(err, STRATA_DATA, "its dimension numbers are not each axis once");
    strata_shape out = STRATA_SHAPE(1, 1, 1, 1);
    for (int i = 0; i < c.n + 2; i++) {
        back[out_order[i]] = i;
        out.dims[i && c.n == 1 ? i + 1 : i] = call->out[0].shape.dims[out_order[i]];
    }
    add_height(&c);
    const bool is_transposed = c.in_dilation[0] > 1 || c.in_dilation[1] > 1;
    const int64_t reversed[] = {(bool)c.reversed[0] != is_transposed, (bool)c.reversed[1] != is_transposed};
    strata_tensor *x = image_of(strata_cast(strata_lower_whole(call->in[0]), dtype), in_order, c.n);
    strata_tensor *filter = filter_of(&c, strata_cast(strata_lower_whole(call->in[1]), dtype), reversed);
    strata_tensor *y = is_transposed ? transposed(&c, x, filter, out) : forward(&c, x, filter);
    if (!y)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "a dilated operand is supported with the stride 1 and padding of less than the filter's extent");
    const strata_shape shape = strata_tensor_shape(y);
    if (c.n == 1) y = strata_reshape(y, STRATA_SHAPE(shape.dims[0], shape.dims[2], shape.dims[3]));
    call->out[0].tensor = strata_cast(strata_transpose(y, back), call->out_dtypes[0]);
    return STRATA_OK;
}
