/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates ONNX's ops on shapes: those that move, slice or repeat elements, and those that return sizes and constants. */
#include <inttypes.h>
#include <math.h>

#include "core/interchange/onnx.h"

int strata_onnx_with_ints(strata_onnx_import *im, const char *op, int x, const int64_t *numbers, int n, double value) {
    strata_op_options opts = {.op = op, .value = value, .numbers = {.n = n}};
    if (n > STRATA_MAX_NUMBERS) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "more than %d axes", STRATA_MAX_RANK);
    for (int i = 0; i < n; i++) opts.numbers.values[i] = (double)numbers[i];
    x = strata_onnx_in_front(im, x);
    return strata_onnx_op(im, &opts, &x, 1, false);
}

int strata_onnx_simple(strata_onnx_import *im, const char *op, const int *inputs, int n) {
    int front[STRATA_MAX_LAYER_INPUTS];
    for (int i = 0; i < n; i++) front[i] = strata_onnx_in_front(im, inputs[i]);
    return strata_onnx_op(im, &(strata_op_options){.op = op}, front, n, false);
}

static bool has_batch(const strata_onnx_import *im, int64_t number) {
    return im->batched && !im->folding && number && number % STRATA_ONNX_BATCH == 0;
}

int64_t strata_onnx_product(const int64_t *dims, int n) {
    int64_t product = 1;
    for (int i = 0; i < n; i++) product *= dims[i] > 0 && product < INT64_MAX / dims[i] ? dims[i] : 1;
    return product;
}

int strata_onnx_reshape_to(strata_onnx_import *im, int x, int64_t *to, int n) {
    const strata_shape from = strata_onnx_shape(im, x);
    int open = -1;
    for (int d = 0; d < n; d++) open = to[d] == -1 ? d : open;
    for (int d = 0; d < n; d++) {
        if (!has_batch(im, to[d])) continue;
        if (d < from.rank && to[d] == from.dims[d])
            to[d] = 0;
        else if (open < 0)
            to[open = d] = -1;
        else
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "two of its sizes depend on the batch");
    }
    /* In a file with a fixed batch, this number stands for the batch. */
    if (im->batched && !im->folding && im->fixed_batch && n && to[0] == im->fixed_batch && from.rank &&
        from.dims[0] == STRATA_ONNX_BATCH)
        to[0] = open < 0 && strata_onnx_product(to + 1, n - 1) != strata_onnx_product(from.dims + 1, from.rank - 1) ? -1 : 0;
    return strata_onnx_with_ints(im, "reshape", x, to, n, 0);
}

int strata_onnx_node_reshape(strata_onnx_import *im, const int *in) {
    int64_t to[STRATA_MAX_RANK];
    const int n = strata_onnx_need_ints(im, "shape", 1, STRATA_MAX_RANK, to);
    for (int d = 0; d < n && strata_onnx_int(im, "allowzero", 0); d++)
        if (!to[d]) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "empty tensors are not there");
    return strata_onnx_reshape_to(im, in[0], to, n);
}

int strata_onnx_node_flatten(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t axis = strata_onnx_int(im, "axis", 1);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis > shape.rank) return strata_onnx_reject(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (axis == 1 && !im->folding && !strata_onnx_is_constant(im, in[0]))
        return strata_onnx_layer(im, "flatten", &(strata_flatten_options){0}, sizeof(strata_flatten_options),
                                 strata_onnx_in_front(im, in[0]), false);
    const int64_t to[] = {axis ? -1 : 1, axis ? strata_onnx_product(shape.dims + axis, shape.rank - (int)axis) : -1};
    return strata_onnx_with_ints(im, "reshape", in[0], to, 2, 0);
}

static bool is_among(const int64_t *axes, int n, int64_t axis) {
    for (int i = 0; i < n; i++)
        if (axes[i] == axis) return true;
    return false;
}

int strata_onnx_node_squeeze(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t axes[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    const int n = strata_onnx_axes(im, 1, shape.rank, axes);
    int rank = 0;
    for (int d = 0; d < shape.rank; d++) {
        const bool named = is_among(axes, n, d) || (!n && shape.dims[d] == 1);
        if (named && shape.dims[d] != 1)
            return strata_onnx_reject(im, STRATA_DATA, "axis %d has size %" PRId64 ", not 1", d, shape.dims[d]);
        if (!named) to[rank++] = shape.dims[d];
    }
    return strata_onnx_reshape_to(im, in[0], to, rank);
}

int strata_onnx_node_unsqueeze(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t axes[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    const int rank = shape.rank + strata_onnx_need_ints(im, "axes", 1, STRATA_MAX_RANK, axes);
    if (rank > STRATA_MAX_RANK) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "more than %d axes", STRATA_MAX_RANK);
    const int n = strata_onnx_axes(im, 1, rank, axes);
    for (int d = 0, k = 0; d < rank; d++) {
        const bool named = is_among(axes, n, d);
        if (!named && k >= shape.rank) return strata_onnx_reject(im, STRATA_DATA, "an axis is named twice");
        to[d] = named ? 1 : shape.dims[k++];
    }
    return strata_onnx_reshape_to(im, in[0], to, rank);
}

/* x, as it is stored, as a value with the given order of axes. */
static int in_order(strata_onnx_import *im, int x, bool behind) {
    strata_onnx_value copy = im->values[x];
    copy.name = NULL;
    copy.behind = behind;
    copy.other = 0;
    return strata_onnx_add_value(im, copy);
}

int strata_onnx_node_transpose(strata_onnx_import *im, const int *in) {
    const int x = in[0], rank = strata_onnx_shape(im, x).rank;
    int64_t perm[STRATA_MAX_RANK];
    int axes[STRATA_MAX_RANK] = {0};
    bool seen[STRATA_MAX_RANK] = {0};
    const int n = strata_onnx_ints(im, "perm", -1, STRATA_MAX_RANK, perm);
    if (n && n != rank) return strata_onnx_reject(im, STRATA_DATA, "perm has %d axes; its input has %d", n, rank);
    for (int d = 0; d < rank; d++) {
        const int64_t axis = n ? perm[d] : rank - 1 - d;
        if (axis < 0 || axis >= rank || seen[axis]) return strata_onnx_reject(im, STRATA_DATA, "perm is no order of its axes");
        seen[axis] = true;
        axes[d] = (int)axis;
    }
    /* If the transpose moves the channels to the end or back, the result is the same value in the other order, which may
     * already exist. */
    bool to_behind = rank >= 3 && axes[0] == 0 && axes[rank - 1] == 1,
         to_front = rank >= 3 && axes[0] == 0 && axes[1] == rank - 1;
    for (int d = 1; d < rank - 1; d++) {
        to_behind = to_behind && axes[d] == d + 1;
        to_front = to_front && axes[d + 1] == d;
    }
    const bool constant = strata_onnx_is_constant(im, x);
    if (to_behind && !constant && im->values[x].behind) return in_order(im, x, false);
    if (to_front && !constant && !im->values[x].behind) return in_order(im, x, true);
    return strata_onnx_permute(im, strata_onnx_in_front(im, x), axes);
}

int strata_onnx_node_concat(strata_onnx_import *im, const int *in) {
    int inputs[STRATA_MAX_LAYER_INPUTS];
    const size_t n = im->node->n_input;
    (void)in;
    if (n > STRATA_MAX_LAYER_INPUTS)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "it has %zu inputs; at most %d", n, STRATA_MAX_LAYER_INPUTS);
    if (!n) return strata_onnx_reject(im, STRATA_DATA, "it has no inputs");
    for (size_t i = 0; i < n; i++) inputs[i] = strata_onnx_in_front(im, strata_onnx_need(im, (int)i));
    const double axis = strata_onnx_axis(im, 1, strata_onnx_shape(im, inputs[0]).rank);
    const strata_op_options opts = {.op = "concat", .numbers = {.n = 1, .values = {axis}}};
    return strata_onnx_op(im, &opts, inputs, (int)n, false);
}

/* Slices elements [begin, begin + size) along an axis; size -1: all elements from begin on. */
static int slice_axis(strata_onnx_import *im, int x, int axis, int64_t begin, int64_t size) {
    const int rank = strata_onnx_shape(im, x).rank;
    int64_t numbers[2 * STRATA_MAX_RANK];
    for (int d = 0; d < rank; d++) numbers[d] = d == axis ? begin : 0;
    for (int d = 0; d < rank; d++) numbers[rank + d] = d == axis ? size : -1;
    return strata_onnx_with_ints(im, "slice", x, numbers, 2 * rank, 0);
}

int strata_onnx_node_split(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    const int axis = strata_onnx_axis(im, 0, shape.rank);
    const int64_t parts = (int64_t)im->node->n_output;
    int64_t sizes[64], begin = 0;
    int n = strata_onnx_ints(im, "split", 1, 64, sizes);
    if (!n) {
        if (parts < 1 || parts > 64) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "%" PRId64 " parts; 1 to 64", parts);
        const int64_t each = (shape.dims[axis] + parts - 1) / parts;
        for (; n < parts; n++) sizes[n] = n + 1 < parts ? each : shape.dims[axis] - each * (parts - 1);
    }
    if (n != parts) return strata_onnx_reject(im, STRATA_DATA, "%d sizes for %" PRId64 " outputs", n, parts);
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 1) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "part %d has size %" PRId64, i, sizes[i]);
        if (axis == 0 && shape.dims[0] == STRATA_ONNX_BATCH && im->batched)
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "it divides the batch");
        strata_onnx_output(im, i, slice_axis(im, in[0], axis, begin, sizes[i]));
        begin += sizes[i];
    }
    return 0;
}

/* Gathers x[indices] along an axis. */
static int pick(strata_onnx_import *im, int x, int axis, int indices) {
    const strata_op_options opts = {.op = "gather", .numbers = {.n = 1, .values = {axis}}};
    return strata_onnx_op(im, &opts, (const int[]){strata_onnx_in_front(im, x), indices}, 2, false);
}

int strata_onnx_node_slice(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t starts[STRATA_MAX_RANK], ends[STRATA_MAX_RANK], axes[STRATA_MAX_RANK], steps[STRATA_MAX_RANK];
    const int n = strata_onnx_need_ints(im, "starts", 1, STRATA_MAX_RANK, starts);
    const int n_ends = strata_onnx_need_ints(im, "ends", 2, STRATA_MAX_RANK, ends);
    const int n_axes = strata_onnx_axes(im, 3, shape.rank, axes);
    const int n_steps = strata_onnx_ints(im, "steps", 4, STRATA_MAX_RANK, steps);
    int y = in[0];
    if (n_ends != n || (n_axes && n_axes != n) || (n_steps && n_steps != n) || n > shape.rank)
        return strata_onnx_reject(im, STRATA_DATA, "%d starts, %d ends, %d axes and %d steps do not belong together", n, n_ends,
                                  n_axes, n_steps);
    for (int i = 0; i < n; i++) {
        const int axis = n_axes ? (int)axes[i] : i;
        const int64_t size = shape.dims[axis], step = n_steps ? steps[i] : 1;
        int64_t from = starts[i], to = ends[i], *list;
        if (!step || step > INT32_MAX || step < -INT32_MAX) return strata_onnx_reject(im, STRATA_DATA, "step %" PRId64, step);
        const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
        if (from < 0) from = from < -size ? least : from + size;
        if (to < 0) to = to < -size ? least : to + size;
        from = from < 0 ? 0 : from > most ? most : from;
        to = to < least ? least : to > most ? most : to;
        const int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
        if (count < 1)
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "it leaves nothing of axis %d; empty tensors are not there",
                                      axis);
        if (step == 1 && from == 0 && to == size) continue;
        if (im->batched && !im->folding && size == STRATA_ONNX_BATCH)
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "it takes some examples of the batch");
        if (step == 1) {
            y = slice_axis(im, y, axis, from, to == size ? -1 : count);
            continue;
        }
        if (count > 1 << 20) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "steps over more than 2^20 elements");
        const int indices = strata_onnx_new_constant(im, STRATA_DTYPE_I64, STRATA_SHAPE(count), &list);
        for (int64_t k = 0; indices && k < count; k++) list[k] = from + k * step;
        y = pick(im, y, axis, indices);
    }
    return y;
}

int strata_onnx_node_gather(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    const int axis = strata_onnx_axis(im, 0, shape.rank), indices = strata_onnx_in_front(im, in[1]);
    const bool table = !im->folding && axis == 0 && strata_onnx_is_matrix(im, in[0]) && !strata_onnx_is_constant(im, in[1]);
    if (!table || strata_onnx_dtype(im, indices) != STRATA_DTYPE_I32) return pick(im, in[0], axis, indices);
    const strata_embedding_options opts = {.vocabulary = shape.dims[0], .units = shape.dims[1]};
    const int y = strata_onnx_layer(im, "embedding", &opts, sizeof opts, indices, false);
    strata_onnx_weight_of(im, "embeddings", in[0], NULL);
    return y;
}

/* Expands x to the shape `to`. A size that is the batch is 0 in the op, which then takes the size of axis 0 of an input
 * of the model. */
static int expand_to(strata_onnx_import *im, int x, const int64_t *to, int n) {
    strata_op_options opts = {.op = "expand", .numbers = {.n = n}};
    const int like = im->folding ? strata_onnx_integers(im, (const int64_t[]){0}, 1) : strata_onnx_first_input(im);
    for (int d = 0; d < n; d++) {
        if (has_batch(im, to[d]) && to[d] != STRATA_ONNX_BATCH)
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "a size is a multiple of the batch");
        opts.numbers.values[d] = has_batch(im, to[d]) ? 0 : (double)to[d];
    }
    return strata_onnx_op(im, &opts, (const int[]){strata_onnx_in_front(im, x), like}, 2, false);
}

int strata_onnx_node_expand(strata_onnx_import *im, const int *in) {
    int64_t wanted[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    const int n = strata_onnx_need_ints(im, "shape", 1, STRATA_MAX_RANK, wanted);
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    const int rank = n > shape.rank ? n : shape.rank;
    for (int d = 0; d < rank; d++) {
        const int64_t a = d < rank - shape.rank ? 1 : shape.dims[d - (rank - shape.rank)],
                      b = d < rank - n ? 1 : wanted[d - (rank - n)];
        to[d] = b == 1 || (b == im->fixed_batch && a == STRATA_ONNX_BATCH) ? a : b;
        if (to[d] < 1) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "to a size of %" PRId64, to[d]);
    }
    return expand_to(im, in[0], to, rank);
}

int strata_onnx_node_tile(strata_onnx_import *im, const int *in) {
    int64_t times[STRATA_MAX_RANK];
    const int n = strata_onnx_need_ints(im, "repeats", 1, STRATA_MAX_RANK, times);
    if (n != strata_onnx_shape(im, in[0]).rank) return strata_onnx_reject(im, STRATA_DATA, "it has %d repeats", n);
    for (int i = 0; i < n; i++)
        if (times[i] < 1 || has_batch(im, times[i]))
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "repeats of %" PRId64, times[i]);
    return strata_onnx_with_ints(im, "tile", in[0], times, n, 0);
}

int strata_onnx_node_pad(strata_onnx_import *im, const int *in) {
    int64_t given[2 * STRATA_MAX_RANK], pads[2 * STRATA_MAX_RANK] = {0}, axes[STRATA_MAX_RANK];
    const int rank = strata_onnx_shape(im, in[0]).rank;
    if (!strata_onnx_text_is(im, "mode", "constant", true))
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "only the mode \"constant\" is there");
    const int n = strata_onnx_need_ints(im, "pads", 1, 2 * STRATA_MAX_RANK, given);
    const int n_axes = strata_onnx_axes(im, 3, rank, axes), count = n_axes ? n_axes : rank;
    const double value = strata_onnx_number(im, 2, strata_onnx_float(im, "value", 0));
    if (n != 2 * count) return strata_onnx_reject(im, STRATA_DATA, "it has %d pads for %d axes", n, count);
    bool cuts = false;
    for (int i = 0; i < n; i++) {
        const int axis = n_axes ? (int)axes[i % count] : i % count;
        pads[(i < count ? 0 : rank) + axis] = given[i];
        cuts |= given[i] < 0;
        if (given[i] > INT32_MAX) return strata_onnx_reject(im, STRATA_DATA, "a pad of %" PRId64, given[i]);
    }
    if (cuts) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "pads below 0 are not there");
    return strata_onnx_with_ints(im, "pad", in[0], pads, 2 * rank, value);
}

int strata_onnx_node_shape(strata_onnx_import *im, const int *in) {
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t start = strata_onnx_int(im, "start", 0), end = strata_onnx_int(im, "end", shape.rank);
    start = start < 0 ? start + shape.rank : start;
    end = end < 0 ? end + shape.rank : end;
    start = start < 0 ? 0 : start > shape.rank ? shape.rank : start;
    end = end < start ? start : end > shape.rank ? shape.rank : end;
    return strata_onnx_integers(im, shape.dims + start, (int)(end - start));
}

int strata_onnx_node_size(strata_onnx_import *im, const int *in) {
    return strata_onnx_scalar(im, STRATA_DTYPE_I64, (double)strata_shape_elements(strata_onnx_shape(im, in[0])));
}

/* The constant that is stored in a tensor of the file. */
static int stored(strata_onnx_import *im, const StrataOnnx__Tensor *tensor) {
    strata_array array;
    strata_error reason = {0};
    const strata_status status = strata_onnx_read_tensor(tensor, im->path, &array, &reason);
    return status ? strata_onnx_take_error(im, status, &reason) : strata_onnx_constant(im, &array, false);
}

int strata_onnx_node_constant(strata_onnx_import *im, const int *in) {
    const StrataOnnx__Attribute *a = im->node->n_attribute == 1 ? im->node->attribute[0] : NULL;
    const char *name = a && a->name ? a->name : "";
    float *floats;
    (void)in;
    if (!strcmp(name, "value") && a->t) return stored(im, a->t);
    if (!strcmp(name, "value_float")) return strata_onnx_scalar(im, STRATA_DTYPE_F32, a->f);
    if (!strcmp(name, "value_int")) return strata_onnx_constant_as(im, strata_onnx_integers(im, &a->i, 1), STRATA_SHAPE());
    if (!strcmp(name, "value_ints") && a->n_ints > 1 << 24)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "more than 2^24 integers");
    if (!strcmp(name, "value_ints")) return strata_onnx_integers(im, a->ints, (int)a->n_ints);
    if (strcmp(name, "value_floats") != 0)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its value is no tensor and no number");
    const int y = strata_onnx_new_constant(im, STRATA_DTYPE_F32, STRATA_SHAPE((int64_t)a->n_floats), &floats);
    if (y && a->n_floats) memcpy(floats, a->floats, a->n_floats * sizeof *floats);
    return y;
}

/* A tensor of one number. If its shape depends on the batch, the number is expanded; else the tensor is a constant. */
int strata_onnx_node_constant_of_shape(strata_onnx_import *im, const int *in) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, "value");
    strata_shape to = {0};
    void *zeros;
    bool open = false, empty = false;
    (void)in;
    to.rank = strata_onnx_need_ints(im, "shape", 0, STRATA_MAX_RANK, to.dims);
    const int given = a && a->t ? stored(im, a->t) : strata_onnx_scalar(im, STRATA_DTYPE_F32, 0);
    if (strata_shape_elements(strata_onnx_shape(im, given)) != 1)
        return strata_onnx_reject(im, STRATA_DATA, "its value must be one number");
    const int number = strata_onnx_constant_as(im, given, STRATA_SHAPE());
    for (int d = 0; d < to.rank; d++) {
        if (to.dims[d] < 0) return strata_onnx_reject(im, STRATA_DATA, "a size of %" PRId64, to.dims[d]);
        open |= im->batched && to.dims[d] && to.dims[d] % STRATA_ONNX_BATCH == 0;
        empty |= !to.dims[d];
    }
    if (!open && strata_onnx_product(to.dims, to.rank) > 1 << 28)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "more than 2^28 elements");
    /* The op expand has no sizes of 0. */
    if (empty) return strata_onnx_new_constant(im, strata_onnx_dtype(im, number), to, &zeros);
    const int y = expand_to(im, number, to.dims, to.rank);
    if (open) im->values[y].zeros = strata_onnx_is_zeros(im, number);
    return y;
}

int strata_onnx_node_range(strata_onnx_import *im, const int *in) {
    const double from = strata_onnx_number(im, 0, 0), to = strata_onnx_number(im, 1, 0), by = strata_onnx_number(im, 2, 0);
    const strata_dtype dtype = strata_onnx_dtype(im, in[0]);
    const double n = by == 0 ? -1 : ceil((to - from) / by);
    void *data;
    if (!(n >= 0 && n < 1 << 24))
        return strata_onnx_reject(im, STRATA_UNSUPPORTED,
                                  "from %g to %g by %g: up to 2^24 numbers that do not depend on the batch", from, to, by);
    if (im->batched && fabs(to) >= STRATA_ONNX_BATCH)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its end depends on the batch");
    const int y = strata_onnx_new_constant(im, dtype, STRATA_SHAPE((int64_t)n), &data);
    for (int64_t i = 0; y && i < (int64_t)n; i++) strata_element_set(dtype, data, i, from + (double)i * by);
    return y;
}

/* The part of x above or below a diagonal: x where a constant mask is true, 0 elsewhere. */
int strata_onnx_node_trilu(strata_onnx_import *im, const int *in) {
    const bool upper = strata_onnx_int(im, "upper", 1);
    const double k = strata_onnx_number(im, 1, 0);
    const int x = strata_onnx_in_front(im, in[0]);
    const strata_shape shape = strata_onnx_shape(im, x);
    const strata_dtype dtype = strata_onnx_dtype(im, x);
    uint8_t *places;
    if (shape.rank < 2) return strata_onnx_reject(im, STRATA_DATA, "its input is no matrix");
    const int64_t rows = shape.dims[shape.rank - 2], columns = shape.dims[shape.rank - 1];
    if (rows > 1 << 14 || columns > 1 << 14)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "more than 2^14 rows or columns");
    const int mask = strata_onnx_new_constant(im, STRATA_DTYPE_BOOL, STRATA_SHAPE(rows, columns), &places);
    for (int64_t i = 0; mask && i < rows; i++)
        for (int64_t j = 0; j < columns; j++) places[i * columns + j] = upper ? (double)(j - i) >= k : (double)(j - i) <= k;
    const int zero = strata_onnx_scalar(im, dtype == STRATA_DTYPE_I32 ? STRATA_DTYPE_I64 : dtype, 0);
    return strata_onnx_simple(im, "where", (const int[]){mask, x, zero}, 3);
}

/* Moves blocks of channels to spatial positions, or back, by a reshape, a transpose and another reshape. */
static int move_blocks(strata_onnx_import *im, int value, bool to_space) {
    static const int orders[2][2][6] = {{{0, 3, 5, 1, 2, 4}, {0, 1, 3, 5, 2, 4}}, {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}}};
    const bool crd = strata_onnx_text_is(im, "mode", "CRD", false);
    const int64_t b = strata_onnx_int(im, "blocksize", 0);
    const int x = strata_onnx_in_front(im, value);
    const strata_shape s = strata_onnx_shape(im, x);
    if (s.rank != 4 || b < 1 || b > 1 << 10 || (to_space ? s.dims[1] % (b * b) : s.dims[2] % b || s.dims[3] % b))
        return strata_onnx_reject(im, STRATA_DATA, "%s does not divide into blocks of %" PRId64, strata_shape_text(s).text, b);
    const int64_t c = s.dims[1], h = s.dims[2], w = s.dims[3], deep = c / (b * b);
    const int64_t first[2][6] = {{0, c, h / b, b, w / b, b}, {0, crd ? deep : b, b, crd ? b : deep, h, w}};
    const int64_t last[2][4] = {{0, c * b * b, h / b, w / b}, {0, deep, h * b, w * b}};
    const int split = strata_onnx_with_ints(im, "reshape", x, first[to_space], 6, 0);
    const int moved = strata_onnx_permute(im, split, orders[to_space][crd]);
    return strata_onnx_with_ints(im, "reshape", moved, last[to_space], 4, 0);
}

int strata_onnx_node_depth_to_space(strata_onnx_import *im, const int *in) {
    return move_blocks(im, in[0], true);
}

int strata_onnx_node_space_to_depth(strata_onnx_import *im, const int *in) {
    return move_blocks(im, in[0], false);
}
