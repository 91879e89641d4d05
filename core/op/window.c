/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows over images (window.h): their padding, their output sizes, and checks. */
#include "core/op/window.h"

#include <inttypes.h>

static const char *const axis_names[2] = {"height", "width"};

/* The number of input elements from the first to the last tap of a window. */
static int64_t span(const strata_window *window, int d) {
    return (window->size[d] - 1) * window->dilation[d] + 1;
}

/* Pads as TensorFlow does: the total padding is (outputs - 1) strides plus the span of a window, minus the input. If it
 * is odd, the larger half comes after the input. */
static void pad_same(strata_window *window, int d, int64_t in) {
    int64_t outputs = (in + window->stride[d] - 1) / window->stride[d];
    int64_t total = (outputs - 1) * window->stride[d] + span(window, d) - in;
    if (total < 0) total = 0;
    window->padding[2 * d] = total / 2;
    window->padding[2 * d + 1] = total - total / 2;
}

/* Checks that a size is below 2^31. Then no sum or product of two sizes exceeds 64 bits. */
static bool is_small(int64_t value) {
    return value >= 0 && value <= INT32_MAX;
}

strata_window strata_window_over(strata_shape x, strata_window_wish wish) {
    strata_window window = {0};
    for (int d = 0; d < 2; d++) {
        window.size[d] = wish.size[d];
        window.stride[d] = wish.stride[d] ? wish.stride[d] : 1;
        window.dilation[d] = wish.dilation[d] ? wish.dilation[d] : 1;
    }
    for (int i = 0; i < 4 && wish.padding == STRATA_PADDING_EXPLICIT; i++) window.padding[i] = wish.explicit_padding[i];
    for (int d = 0; d < 2 && wish.padding == STRATA_PADDING_SAME && x.rank == 4; d++) {
        bool valid = window.stride[d] > 0 && is_small(window.stride[d]) && window.size[d] > 0 && is_small(window.size[d]) &&
                     window.dilation[d] > 0 && is_small(window.dilation[d]) && is_small(x.dims[1 + d]);
        if (valid) pad_same(&window, d, x.dims[1 + d]);
    }
    return window;
}

static strata_status check_numbers(const strata_window *window, strata_error *err) {
    for (int d = 0; d < 2; d++) {
        const int64_t before = window->padding[2 * d], after = window->padding[2 * d + 1];
        if (window->size[d] < 1 || !is_small(window->size[d]))
            return strata_fail(err, STRATA_INVALID, "the window's %s is %" PRId64 "; it must be 1 to %d", axis_names[d],
                               window->size[d], INT32_MAX);
        if (window->stride[d] < 1 || !is_small(window->stride[d]))
            return strata_fail(err, STRATA_INVALID, "the stride along the %s is %" PRId64 "; it must be 1 to %d", axis_names[d],
                               window->stride[d], INT32_MAX);
        if (window->dilation[d] < 1 || !is_small(window->dilation[d]))
            return strata_fail(err, STRATA_INVALID, "the dilation along the %s is %" PRId64 "; it must be 1 to %d",
                               axis_names[d], window->dilation[d], INT32_MAX);
        if (!is_small(before) || !is_small(after))
            return strata_fail(err, STRATA_INVALID,
                               "the padding along the %s is %" PRId64 " before and %" PRId64 " after; both must be 0 to %d",
                               axis_names[d], before, after, INT32_MAX);
    }
    return STRATA_OK;
}

void strata_window_outputs(const strata_window *window, int64_t in_h, int64_t in_w, int64_t out_size[2]) {
    const int64_t in[2] = {in_h, in_w};
    for (int d = 0; d < 2; d++) {
        int64_t room = in[d] + window->padding[2 * d] + window->padding[2 * d + 1] - span(window, d);
        out_size[d] = room < 0 ? 0 : room / window->stride[d] + 1;
    }
}

strata_status strata_window_check(const strata_window *window, strata_shape x, const char *name, int64_t out_size[2],
                                  strata_error *err) {
    if (x.rank != 4)
        return strata_fail(err, STRATA_INVALID, "%s is %s; it must be (images, height, width, channels)", name,
                           strata_shape_text(x).text);
    STRATA_TRY(check_numbers(window, err));
    strata_window_outputs(window, x.dims[1], x.dims[2], out_size);
    for (int d = 0; d < 2; d++) {
        const int64_t before = window->padding[2 * d], after = window->padding[2 * d + 1];
        if (!is_small(x.dims[1 + d]) || x.dims[1 + d] + before + after > INT32_MAX || span(window, d) > INT32_MAX)
            return strata_fail(err, STRATA_INVALID,
                               "%s is %s, padded by %" PRId64 " and %" PRId64
                               " along the %s, under a window that spans %" PRId64
                               "; a padded image has at most %d rows and columns",
                               name, strata_shape_text(x).text, before, after, axis_names[d], span(window, d), INT32_MAX);
        if (x.dims[1 + d] == 0 || out_size[d] == 0)
            return strata_fail(err, STRATA_INVALID,
                               "the output is empty: %s is %s, its %s %" PRId64 " padded by %" PRId64 " and %" PRId64
                               " is less than the %" PRId64 " that the window spans (%" PRId64 ", dilation %" PRId64 ")",
                               name, strata_shape_text(x).text, axis_names[d], x.dims[1 + d], before, after, span(window, d),
                               window->size[d], window->dilation[d]);
    }
    return STRATA_OK;
}

void strata_window_taps(const strata_window *window, int d, int64_t o, int64_t in, int64_t *out_first, int64_t *out_end,
                        int64_t *out_at) {
    const int64_t at = o * window->stride[d] - window->padding[2 * d], step = window->dilation[d];
    int64_t first = at < 0 ? (-at + step - 1) / step : 0, end = at < in ? (in - 1 - at) / step + 1 : 0;
    *out_first = first;
    *out_end = end < window->size[d] ? end : window->size[d];
    *out_at = at;
}

strata_status strata_check_countable(const strata_tensor *node, strata_error *err) {
    for (int i = 0; i <= node->n_inputs; i++) {
        const strata_tensor *tensor = i < node->n_inputs ? node->inputs[i] : node;
        const int64_t n = strata_shape_elements(tensor->shape), most = INT64_C(1) << 31;
        if (n > most)
            return strata_fail(err, STRATA_UNSUPPORTED, "%s has %" PRId64 " elements; kernels count at most %" PRId64,
                               strata_shape_text(tensor->shape).text, n, most);
    }
    return STRATA_OK;
}
