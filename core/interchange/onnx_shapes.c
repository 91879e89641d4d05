/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates ONNX's ops on shapes: those that move, slice or repeat elements, and those that return sizes and constants. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/interchange/onnx.h"

strata_status strata_onnx_with_ints(strata_onnx_import *im, const char *op, int x, const int64_t *numbers, int n, double value,
                                    int *out) {
    strata_op_options opts = {.op = op, .value = value, .numbers = {.n = n}};
    if (n > STRATA_MAX_NUMBERS) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than %d axes", STRATA_MAX_RANK);
    for (int i = 0; i < n; i++) opts.numbers.values[i] = (double)numbers[i];
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    return strata_onnx_op(im, &opts, &x, 1, false, out);
}

static bool has_batch(const strata_onnx_import *im, int64_t number) {
    return im->batched && !im->folding && number && number % STRATA_ONNX_BATCH == 0;
}

int64_t strata_onnx_product(const int64_t *dims, int n) {
    int64_t product = 1;
    for (int i = 0; i < n; i++) product *= dims[i] > 0 && product < INT64_MAX / dims[i] ? dims[i] : 1;
    return product;
}

strata_status strata_onnx_reshape_to(strata_onnx_import *im, int x, int64_t *to, int n, int *out) {
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
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "two of its sizes depend on the batch");
    }
    /* In a file with a fixed batch, this number stands for the batch. */
    if (im->batched && !im->folding && im->fixed_batch && n && to[0] == im->fixed_batch && from.rank &&
        from.dims[0] == STRATA_ONNX_BATCH) {
        if (open < 0 && strata_onnx_product(to + 1, n - 1) != strata_onnx_product(from.dims + 1, from.rank - 1)) {
            to[0] = -1;
        } else {
            to[0] = 0;
        }
    }
    return strata_onnx_with_ints(im, "reshape", x, to, n, 0, out);
}

static strata_status reshape(strata_onnx_import *im) {
    int64_t to[STRATA_MAX_RANK];
    int x, n, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need_ints(im, "shape", 1, STRATA_MAX_RANK, to, &n));
    for (int d = 0; d < n && strata_onnx_int(im, "allowzero", 0); d++)
        if (!to[d]) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "empty tensors are not there");
    STRATA_TRY(strata_onnx_reshape_to(im, x, to, n, &y));
    return strata_onnx_give(im, y);
}

static strata_status flatten(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 1), to[2];
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis > shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (axis == 1 && !im->folding && !strata_onnx_is_constant(im, x)) {
        STRATA_TRY(strata_onnx_in_front(im, x, &x));
        STRATA_TRY(strata_onnx_layer(im, &strata_layer_flatten, &(strata_flatten_options){0}, x, false, &y));
        return strata_onnx_give(im, y);
    }
    to[0] = axis ? -1 : 1;
    to[1] = axis ? strata_onnx_product(shape.dims + axis, shape.rank - (int)axis) : -1;
    STRATA_TRY(strata_onnx_with_ints(im, "reshape", x, to, 2, 0, &y));
    return strata_onnx_give(im, y);
}

strata_status strata_onnx_axes(strata_onnx_import *im, int input, int rank, int64_t *axes, int *out_n) {
    STRATA_TRY(strata_onnx_ints(im, "axes", input, STRATA_MAX_RANK, axes, out_n));
    for (int i = 0; i < *out_n; i++) {
        if (axes[i] < 0) axes[i] += rank;
        if (axes[i] < 0 || axes[i] >= rank)
            return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there; there are %d", axes[i], rank);
    }
    return STRATA_OK;
}

static bool is_among(const int64_t *axes, int n, int64_t axis) {
    for (int i = 0; i < n; i++)
        if (axes[i] == axis) return true;
    return false;
}

static strata_status squeeze(strata_onnx_import *im) {
    const bool add = !strcmp(im->node->op_type, "Unsqueeze");
    int64_t axes[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    int x, n, y, rank, k = 0;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY((add ? strata_onnx_need_ints : strata_onnx_ints)(im, "axes", 1, STRATA_MAX_RANK, axes, &n));
    rank = add ? shape.rank + n : shape.rank;
    if (rank > STRATA_MAX_RANK) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than %d axes", STRATA_MAX_RANK);
    STRATA_TRY(strata_onnx_axes(im, 1, rank, axes, &n));
    const bool all = !add && !n;
    rank = 0;
    for (int d = 0; d < (add ? shape.rank + n : shape.rank); d++) {
        const bool named = is_among(axes, n, d) || (all && shape.dims[d] == 1);
        if (!add && named && shape.dims[d] != 1)
            return strata_onnx_fail(im, STRATA_DATA, "axis %d has size %" PRId64 ", not 1", d, shape.dims[d]);
        if (add && !named && k >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "an axis is named twice");
        if (add || !named) to[rank++] = add && named ? 1 : shape.dims[add ? k++ : d];
    }
    STRATA_TRY(strata_onnx_reshape_to(im, x, to, rank, &y));
    return strata_onnx_give(im, y);
}

/* Makes x, as it is stored, the node's output, which has the given order of axes. */
static strata_status give_in_order(strata_onnx_import *im, int x, bool behind) {
    STRATA_TRY(strata_onnx_give(im, x));
    const int named = im->node->n_output ? strata_onnx_find(im, im->node->output[0]) : -1;
    if (named < 0) return STRATA_OK; /* the output has no name, so nothing uses it */
    im->values[named].behind = behind;
    im->values[named].other = 0;
    return STRATA_OK;
}

static strata_status transpose(strata_onnx_import *im) {
    int64_t perm[STRATA_MAX_RANK];
    int axes[STRATA_MAX_RANK], x, n, y;
    bool seen[STRATA_MAX_RANK] = {0};
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const int rank = strata_onnx_shape(im, x).rank;
    STRATA_TRY(strata_onnx_ints(im, "perm", -1, STRATA_MAX_RANK, perm, &n));
    if (n && n != rank) return strata_onnx_fail(im, STRATA_DATA, "perm has %d axes; its input has %d", n, rank);
    for (int d = 0; d < rank; d++) {
        const int64_t axis = n ? perm[d] : rank - 1 - d;
        if (axis < 0 || axis >= rank || seen[axis]) return strata_onnx_fail(im, STRATA_DATA, "perm is no order of its axes");
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
    if (to_behind && !constant && im->values[x].behind) return give_in_order(im, x, false);
    if (to_front && !constant && !im->values[x].behind) return give_in_order(im, x, true);
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    STRATA_TRY(strata_onnx_permute(im, x, axes, &y));
    return strata_onnx_give(im, y);
}

static strata_status concat(strata_onnx_import *im) {
    int inputs[STRATA_MAX_LAYER_INPUTS], y;
    const size_t n = im->node->n_input;
    if (n > STRATA_MAX_LAYER_INPUTS)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %zu inputs; at most %d", n, STRATA_MAX_LAYER_INPUTS);
    for (size_t i = 0; i < n; i++) {
        STRATA_TRY(strata_onnx_need(im, (int)i, &inputs[i]));
        STRATA_TRY(strata_onnx_in_front(im, inputs[i], &inputs[i]));
    }
    if (!n) return strata_onnx_fail(im, STRATA_DATA, "it has no inputs");
    const int rank = strata_onnx_shape(im, inputs[0]).rank;
    int64_t axis = strata_onnx_int(im, "axis", 1);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank)
        return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there; there are %d", axis, rank);
    strata_op_options opts = {.op = "concat", .numbers = {.n = 1, .values = {(double)axis}}};
    STRATA_TRY(strata_onnx_op(im, &opts, inputs, (int)n, false, &y));
    return strata_onnx_give(im, y);
}

/* Slices elements [begin, begin + size) along an axis; size -1: all elements from begin on. */
static strata_status slice_axis(strata_onnx_import *im, int x, int axis, int64_t begin, int64_t size, int *out) {
    const int rank = strata_onnx_shape(im, x).rank;
    int64_t numbers[2 * STRATA_MAX_RANK];
    for (int d = 0; d < rank; d++) numbers[d] = d == axis ? begin : 0;
    for (int d = 0; d < rank; d++) numbers[rank + d] = d == axis ? size : -1;
    return strata_onnx_with_ints(im, "slice", x, numbers, 2 * rank, 0, out);
}

static strata_status split(strata_onnx_import *im) {
    int64_t sizes[64], begin = 0;
    int x, n, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 0);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    STRATA_TRY(strata_onnx_ints(im, "split", 1, 64, sizes, &n));
    const int64_t parts = (int64_t)im->node->n_output;
    if (!n) {
        if (parts < 1 || parts > 64) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "%" PRId64 " parts; 1 to 64", parts);
        const int64_t each = (shape.dims[axis] + parts - 1) / parts;
        for (n = 0; n < parts; n++) sizes[n] = n + 1 < parts ? each : shape.dims[axis] - each * (parts - 1);
    }
    if (n != parts) return strata_onnx_fail(im, STRATA_DATA, "%d sizes for %" PRId64 " outputs", n, parts);
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 1) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "part %d has size %" PRId64, i, sizes[i]);
        if (axis == 0 && shape.dims[0] == STRATA_ONNX_BATCH && im->batched)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it divides the batch");
        STRATA_TRY(slice_axis(im, x, (int)axis, begin, sizes[i], &y));
        STRATA_TRY(strata_onnx_output(im, i, y));
        begin += sizes[i];
    }
    return STRATA_OK;
}

/* Gathers x[indices] along an axis. The indices are constant. */
static strata_status pick(strata_onnx_import *im, int x, int axis, int indices, int *out) {
    const strata_op_options opts = {.op = "gather", .numbers = {.n = 1, .values = {axis}}};
    int inputs[2] = {x, indices};
    STRATA_TRY(strata_onnx_in_front(im, x, &inputs[0]));
    return strata_onnx_op(im, &opts, inputs, 2, false, out);
}

static strata_status slice(strata_onnx_import *im) {
    int64_t starts[STRATA_MAX_RANK], ends[STRATA_MAX_RANK], axes[STRATA_MAX_RANK], steps[STRATA_MAX_RANK];
    int x, n, n_ends, n_axes, n_steps, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY(strata_onnx_need_ints(im, "starts", 1, STRATA_MAX_RANK, starts, &n));
    STRATA_TRY(strata_onnx_need_ints(im, "ends", 2, STRATA_MAX_RANK, ends, &n_ends));
    STRATA_TRY(strata_onnx_axes(im, 3, shape.rank, axes, &n_axes));
    STRATA_TRY(strata_onnx_ints(im, "steps", 4, STRATA_MAX_RANK, steps, &n_steps));
    if (n_ends != n || (n_axes && n_axes != n) || (n_steps && n_steps != n) || n > shape.rank)
        return strata_onnx_fail(im, STRATA_DATA, "%d starts, %d ends, %d axes and %d steps do not belong together", n, n_ends,
                                n_axes, n_steps);
    y = x;
    for (int i = 0; i < n; i++) {
        const int axis = n_axes ? (int)axes[i] : i;
        const int64_t size = shape.dims[axis], step = n_steps ? steps[i] : 1;
        int64_t from = starts[i], to = ends[i];
        if (!step || step > INT32_MAX || step < -INT32_MAX) return strata_onnx_fail(im, STRATA_DATA, "step %" PRId64, step);
        const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
        if (from < 0) from = from < -size ? least : from + size;
        if (to < 0) to = to < -size ? least : to + size;
        from = from < 0 ? 0 : from > most ? most : from;
        to = to < least ? least : to > most ? most : to;
        const int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
        if (count < 1)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it leaves nothing of axis %d; empty tensors are not there", axis);
        if (step == 1 && from == 0 && to == size) continue;
        if (im->batched && !im->folding && size == STRATA_ONNX_BATCH)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it takes some examples of the batch");
        if (step == 1) {
            STRATA_TRY(slice_axis(im, y, axis, from, to == size ? -1 : count, &y));
            continue;
        }
        if (count > 1 << 20) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "steps over more than 2^20 elements");
        strata_array list;
        int indices;
        STRATA_TRY(strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(count), &list, im->err));
        for (int64_t k = 0; k < count; k++) ((int64_t *)list.data)[k] = from + k * step;
        STRATA_TRY(strata_onnx_constant(im, &list, false, &indices));
        STRATA_TRY(pick(im, y, axis, indices, &y));
    }
    return strata_onnx_give(im, y);
}

static strata_status gather(strata_onnx_import *im) {
    int x, indices, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need(im, 1, &indices));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 0);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    const bool table = !im->folding && axis == 0 && strata_onnx_is_matrix(im, x) && !strata_onnx_is_constant(im, indices);
    STRATA_TRY(strata_onnx_in_front(im, indices, &indices));
    if (table && strata_onnx_dtype(im, indices) == STRATA_DTYPE_I32) {
        const strata_embedding_options opts = {.vocabulary = shape.dims[0], .units = shape.dims[1]};
        const strata_array *rows = &im->values[x].array;
        strata_array copy;
        STRATA_TRY(strata_onnx_permute_array(rows, (const int[]){0, 1}, &copy, im->err));
        strata_status status = strata_onnx_layer(im, &strata_layer_embedding, &opts, indices, false, &y);
        if (!status) status = strata_onnx_weight_of(im, "embeddings", &copy);
        strata_array_finish(&copy);
        return status ? status : strata_onnx_give(im, y);
    }
    STRATA_TRY(pick(im, x, (int)axis, indices, &y));
    return strata_onnx_give(im, y);
}

/* Expands x to the shape `to`. A size that is the batch is 0 in the op, which then takes the size of axis 0 of an input
 * of the model. */
static strata_status expand_to(strata_onnx_import *im, int x, const int64_t *to, int n, int *out) {
    strata_op_options opts = {.op = "expand", .numbers = {.n = n}};
    int inputs[2] = {x, -1};
    if (im->folding) {
        STRATA_TRY(strata_onnx_integers(im, (const int64_t[]){0}, 1, &inputs[1]));
    } else {
        for (int i = 0; i < im->n_values && inputs[1] < 0; i++)
            if (!im->values[i].constant && im->values[i].value && im->values[i].value->layer < 0) inputs[1] = i;
    }
    for (int d = 0; d < n; d++) {
        if (has_batch(im, to[d]) && to[d] != STRATA_ONNX_BATCH)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "a size is a multiple of the batch");
        opts.numbers.values[d] = has_batch(im, to[d]) ? 0 : (double)to[d];
    }
    STRATA_TRY(strata_onnx_in_front(im, x, &inputs[0]));
    return strata_onnx_op(im, &opts, inputs, 2, false, out);
}

static strata_status expand(strata_onnx_import *im) {
    int64_t wanted[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    int x, n, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need_ints(im, "shape", 1, STRATA_MAX_RANK, wanted, &n));
    const strata_shape shape = strata_onnx_shape(im, x);
    const int rank = n > shape.rank ? n : shape.rank;
    for (int d = 0; d < rank; d++) {
        const int64_t a = d < rank - shape.rank ? 1 : shape.dims[d - (rank - shape.rank)],
                      b = d < rank - n ? 1 : wanted[d - (rank - n)];
        to[d] = b == 1 || (b == im->fixed_batch && a == STRATA_ONNX_BATCH) ? a : b;
        if (to[d] < 1) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "to a size of %" PRId64, to[d]);
    }
    STRATA_TRY(expand_to(im, x, to, rank, &y));
    return strata_onnx_give(im, y);
}

static strata_status tile(strata_onnx_import *im) {
    int64_t times[STRATA_MAX_RANK];
    int x, n, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need_ints(im, "repeats", 1, STRATA_MAX_RANK, times, &n));
    if (n != strata_onnx_shape(im, x).rank) return strata_onnx_fail(im, STRATA_DATA, "it has %d repeats", n);
    for (int i = 0; i < n; i++)
        if (times[i] < 1 || has_batch(im, times[i]))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "repeats of %" PRId64, times[i]);
    STRATA_TRY(strata_onnx_with_ints(im, "tile", x, times, n, 0, &y));
    return strata_onnx_give(im, y);
}

static strata_status pad(strata_onnx_import *im) {
    int64_t given[2 * STRATA_MAX_RANK], pads[2 * STRATA_MAX_RANK] = {0}, axes[STRATA_MAX_RANK];
    int x, n, n_axes, y;
    double value = strata_onnx_float(im, "value", 0);
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const int rank = strata_onnx_shape(im, x).rank;
    if (!strata_onnx_text_is(im, "mode", "constant", true))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "only the mode \"constant\" is there");
    STRATA_TRY(strata_onnx_need_ints(im, "pads", 1, 2 * STRATA_MAX_RANK, given, &n));
    STRATA_TRY(strata_onnx_axes(im, 3, rank, axes, &n_axes));
    if (strata_onnx_input(im, 2) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 2), &value));
    const int count = n_axes ? n_axes : rank;
    if (n != 2 * count) return strata_onnx_fail(im, STRATA_DATA, "it has %d pads for %d axes", n, count);
    y = x;
    bool cuts = false;
    for (int i = 0; i < n; i++) {
        const int axis = n_axes ? (int)axes[i % count] : i % count;
        pads[(i < count ? 0 : rank) + axis] = given[i];
        cuts |= given[i] < 0;
        if (given[i] > INT32_MAX) return strata_onnx_fail(im, STRATA_DATA, "a pad of %" PRId64, given[i]);
    }
    if (cuts) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "pads below 0 are not there");
    STRATA_TRY(strata_onnx_with_ints(im, "pad", x, pads, 2 * rank, value, &y));
    return strata_onnx_give(im, y);
}

static strata_status shape_of(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t start = strata_onnx_int(im, "start", 0), end = strata_onnx_int(im, "end", shape.rank);
    start = start < 0 ? start + shape.rank : start;
    end = end < 0 ? end + shape.rank : end;
    start = start < 0 ? 0 : start > shape.rank ? shape.rank : start;
    end = end < start ? start : end > shape.rank ? shape.rank : end;
    STRATA_TRY(strata_onnx_integers(im, shape.dims + start, (int)(end - start), &y));
    return strata_onnx_give(im, y);
}

static strata_status size_of(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_I64, (double)strata_shape_elements(strata_onnx_shape(im, x)), &y));
    return strata_onnx_give(im, y);
}

static strata_status constant(strata_onnx_import *im) {
    const StrataOnnx__Attribute *a = im->node->n_attribute == 1 ? im->node->attribute[0] : NULL;
    const char *name = a && a->name ? a->name : "";
    strata_array array;
    int y;
    if (!strcmp(name, "value") && a->t) {
        STRATA_TRY(strata_onnx_read_tensor(a->t, im->path, &array, im->err));
        STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
    } else if (!strcmp(name, "value_float")) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, a->f, &y));
    } else if (!strcmp(name, "value_int")) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_I64, 0, &y));
        ((int64_t *)im->values[y].array.data)[0] = a->i;
    } else if (!strcmp(name, "value_ints")) {
        if (a->n_ints > 1 << 24) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than 2^24 integers");
        STRATA_TRY(strata_onnx_integers(im, a->ints, (int)a->n_ints, &y));
    } else if (!strcmp(name, "value_floats")) {
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE((int64_t)a->n_floats), &array, im->err));
        if (a->n_floats) memcpy(array.data, a->floats, a->n_floats * sizeof *a->floats);
        STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
    } else {
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its value is no tensor and no number");
    }
    return strata_onnx_give(im, y);
}

/* A tensor of one number. If its shape depends on the batch, the number is expanded; else the tensor is a constant. */
static strata_status constant_of_shape(strata_onnx_import *im) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, "value");
    int64_t to[STRATA_MAX_RANK];
    strata_array number;
    int n, one, y;
    bool open = false, empty = false;
    STRATA_TRY(strata_onnx_need_ints(im, "shape", 0, STRATA_MAX_RANK, to, &n));
    if (a && a->t)
        STRATA_TRY(strata_onnx_read_tensor(a->t, im->path, &number, im->err));
    else
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(), &number, im->err));
    if (!(a && a->t)) *(float *)number.data = 0;
    if (strata_shape_elements(number.shape) != 1) {
        strata_array_finish(&number);
        return strata_onnx_fail(im, STRATA_DATA, "its value must be one number");
    }
    number.shape = STRATA_SHAPE();
    STRATA_TRY(strata_onnx_constant(im, &number, false, &one));
    for (int d = 0; d < n; d++) {
        if (to[d] < 0) return strata_onnx_fail(im, STRATA_DATA, "a size of %" PRId64, to[d]);
        open |= im->batched && to[d] && to[d] % STRATA_ONNX_BATCH == 0;
        empty |= !to[d];
    }
    if (!open && strata_onnx_product(to, n) > 1 << 28)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than 2^28 elements");
    if (empty) { /* the op expand has no sizes of 0 */
        strata_array array;
        strata_shape shape = {.rank = n};
        memcpy(shape.dims, to, (size_t)n * sizeof *to);
        STRATA_TRY(strata_array_create(im->values[one].array.dtype, shape, &array, im->err));
        STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
        return strata_onnx_give(im, y);
    }
    STRATA_TRY(expand_to(im, one, to, n, &y));
    if (open) im->values[y].zeros = strata_onnx_is_zeros(im, one);
    return strata_onnx_give(im, y);
}

static strata_status range(strata_onnx_import *im) {
    double from, to, by;
    int y, in[3];
    strata_array array;
    for (int i = 0; i < 3; i++) STRATA_TRY(strata_onnx_need(im, i, &in[i]));
    STRATA_TRY(strata_onnx_number(im, in[0], &from));
    STRATA_TRY(strata_onnx_number(im, in[1], &to));
    STRATA_TRY(strata_onnx_number(im, in[2], &by));
    const strata_dtype dtype = strata_onnx_dtype(im, in[0]);
    const double n = by == 0 ? -1 : ceil((to - from) / by);
    if (!(n >= 0 && n < 1 << 24))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                "from %g to %g by %g: up to 2^24 numbers that do not depend on the batch", from, to, by);
    if (im->batched && fabs(to) >= STRATA_ONNX_BATCH)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its end depends on the batch");
    STRATA_TRY(strata_array_create(dtype, STRATA_SHAPE((int64_t)n), &array, im->err));
    for (int64_t i = 0; i < (int64_t)n; i++) strata_element_set(dtype, array.data, i, from + (double)i * by);
    STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
    return strata_onnx_give(im, y);
}

/* The part of x above or below a diagonal: x where a constant mask is true, 0 elsewhere. */
static strata_status trilu(strata_onnx_import *im) {
    const bool upper = strata_onnx_int(im, "upper", 1);
    double k = 0;
    int inputs[3], y;
    strata_array mask;
    STRATA_TRY(strata_onnx_need(im, 0, &inputs[1]));
    if (strata_onnx_input(im, 1) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 1), &k));
    STRATA_TRY(strata_onnx_in_front(im, inputs[1], &inputs[1]));
    const strata_shape shape = strata_onnx_shape(im, inputs[1]);
    if (shape.rank < 2) return strata_onnx_fail(im, STRATA_DATA, "its input is no matrix");
    const int64_t rows = shape.dims[shape.rank - 2], columns = shape.dims[shape.rank - 1];
    if (rows > 1 << 14 || columns > 1 << 14) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than 2^14 rows or columns");
    STRATA_TRY(strata_array_create(STRATA_DTYPE_BOOL, STRATA_SHAPE(rows, columns), &mask, im->err));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            ((uint8_t *)mask.data)[i * columns + j] = upper ? (double)(j - i) >= k : (double)(j - i) <= k;
    STRATA_TRY(strata_onnx_constant(im, &mask, false, &inputs[0]));
    STRATA_TRY(strata_onnx_scalar(
        im, strata_onnx_dtype(im, inputs[1]) == STRATA_DTYPE_I32 ? STRATA_DTYPE_I64 : strata_onnx_dtype(im, inputs[1]), 0,
        &inputs[2]));
    STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "where"}, inputs, 3, false, &y));
    return strata_onnx_give(im, y);
}

/* Moves blocks of channels to spatial positions, or back, by a reshape, a transpose and another reshape. */
static strata_status depth_space(strata_onnx_import *im) {
    const bool to_space = !strcmp(im->node->op_type, "DepthToSpace");
    const bool crd = strata_onnx_text_is(im, "mode", "CRD", false);
    const int64_t b = strata_onnx_int(im, "blocksize", 0);
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const strata_shape s = strata_onnx_shape(im, x);
    if (s.rank != 4 || b < 1 || b > 1 << 10 || (to_space ? s.dims[1] % (b * b) : s.dims[2] % b || s.dims[3] % b))
        return strata_onnx_fail(im, STRATA_DATA, "%s does not divide into blocks of %" PRId64, strata_shape_text(s).text, b);
    const int64_t c = s.dims[1], h = s.dims[2], w = s.dims[3];
    int64_t first[6] = {0, b, b, c / (b * b), h, w}, last[4] = {0, c / (b * b), h * b, w * b};
    const int dcr[] = {0, 3, 4, 1, 5, 2}, crd_axes[] = {0, 1, 4, 2, 5, 3}, back[] = {0, 3, 5, 1, 2, 4},
              crd_back[] = {0, 1, 3, 5, 2, 4};
    const int *axes = to_space ? (crd ? crd_axes : dcr) : crd ? crd_back : back;
    if (crd && to_space) first[1] = c / (b * b), first[3] = b;
    if (!to_space) {
        const int64_t split_places[6] = {0, c, h / b, b, w / b, b}, deep[4] = {0, c * b * b, h / b, w / b};
        memcpy(first, split_places, sizeof first);
        memcpy(last, deep, sizeof last);
    }
    STRATA_TRY(strata_onnx_with_ints(im, "reshape", x, first, 6, 0, &y));
    STRATA_TRY(strata_onnx_permute(im, y, axes, &y));
    STRATA_TRY(strata_onnx_with_ints(im, "reshape", y, last, 4, 0, &y));
    return strata_onnx_give(im, y);
}

/* ---- the table ---- */

static const strata_onnx_row rows[] = {{"Reshape", reshape, NULL},
                                       {"Flatten", flatten, NULL},
                                       {"Squeeze", squeeze, NULL},
                                       {"Unsqueeze", squeeze, NULL},
                                       {"Transpose", transpose, NULL},
                                       {"Concat", concat, NULL},
                                       {"Split", split, NULL},
                                       {"Slice", slice, NULL},
                                       {"Gather", gather, NULL},
                                       {"Expand", expand, NULL},
                                       {"Tile", tile, NULL},
                                       {"Pad", pad, NULL},
                                       {"Shape", shape_of, NULL},
                                       {"Size", size_of, NULL},
                                       {"Constant", constant, NULL},
                                       {"ConstantOfShape", constant_of_shape, NULL},
                                       {"Range", range, NULL},
                                       {"Trilu", trilu, NULL},
                                       {"DepthToSpace", depth_space, NULL},
                                       {"SpaceToDepth", depth_space, NULL}};

const strata_onnx_rows strata_onnx_shape_rows = {rows, sizeof rows / sizeof *rows};
