/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants and taps for compositions (compose.h). A tap with a stride is a reshape that gives the stride an axis of its own,
 * and a slice of that axis. */
#include "core/op/compose.h"

#include "core/graph/launch.h"

strata_tensor *strata_filled(strata_graph *graph, strata_dtype dtype, strata_shape shape, double value) {
    strata_array array = {0};
    if (strata_shape_elements(shape) > STRATA_MOST_COMPOSED) return NULL;
    if (strata_array_create(dtype, shape, &array, NULL))
        return strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "no host memory for a constant %s",
                                   strata_shape_text(shape).text);
    for (int64_t i = 0; i < strata_shape_elements(shape); i++) strata_element_set(dtype, array.data, i, value);
    strata_tensor *constant = strata_constant(graph, &array);
    strata_array_finish(&array);
    return constant;
}

strata_tensor *strata_wide(strata_tensor *x) {
    return strata_cast(x, STRATA_DTYPE_F32);
}

/* ---- taps ---- */

bool strata_taps_init(strata_taps *taps, const strata_window *window, strata_shape image) {
    *taps = (strata_taps){.window = *window, .n = image.dims[0], .in = {image.dims[1], image.dims[2]}, .c = image.dims[3]};
    if (window->size[0] > STRATA_MOST_TAPS || window->size[1] > STRATA_MOST_TAPS / window->size[0]) return false;
    strata_window_outputs(window, taps->in[0], taps->in[1], taps->out);
    for (int d = 0; d < 2; d++)
        taps->padded[d] = (window->size[d] - 1) * window->dilation[d] + taps->out[d] * window->stride[d];
    return true;
}

/* before: how many rows (d = 0) or columns (d = 1) of padding come before the image. kept: how many rows or columns of
 * the image are used. */
static int64_t before(const strata_taps *t, int d) {
    const int64_t padding = t->window.padding[2 * d];
    return padding < t->padded[d] ? padding : t->padded[d];
}

static int64_t kept(const strata_taps *t, int d) {
    const int64_t room = t->padded[d] - before(t, d);
    return t->in[d] < room ? t->in[d] : room;
}

/* Pads x with rows and columns of `value` to the sizes `wanted`. Returns x itself if nothing is added. */
static strata_tensor *pad(strata_tensor *x, const int64_t before_image[2], const int64_t wanted[2], double value) {
    int64_t front[STRATA_MAX_RANK] = {0}, back[STRATA_MAX_RANK] = {0};
    bool any = false;
    for (int d = 0; d < 2; d++) {
        front[1 + d] = before_image[d];
        back[1 + d] = wanted[d] - before_image[d] - x->shape.dims[1 + d];
        any = any || front[1 + d] || back[1 + d];
    }
    return any ? strata_pad(x, front, back, value) : x;
}

/* The size[0] rows and size[1] columns of x from `begin` on. Returns x itself if these are all of its rows and columns. */
static strata_tensor *cut(strata_tensor *x, const int64_t begin[2], const int64_t size[2]) {
    const int64_t *dims = x->shape.dims;
    if (size[0] == dims[1] && size[1] == dims[2]) return x;
    return strata_slice(x, (int64_t[]){0, begin[0], begin[1], 0}, (int64_t[]){dims[0], size[0], size[1], dims[3]});
}

strata_tensor *strata_taps_pad(const strata_taps *t, strata_tensor *x, double value) {
    const int64_t origin[2] = {0, 0}, keep[2] = {kept(t, 0), kept(t, 1)}, front[2] = {before(t, 0), before(t, 1)};
    return pad(cut(x, origin, keep), front, t->padded, value);
}

strata_tensor *strata_tap(const strata_taps *t, strata_tensor *padded, int64_t kh, int64_t kw) {
    const int64_t *s = t->window.stride, begin[2] = {kh * t->window.dilation[0], kw * t->window.dilation[1]};
    const int64_t size[2] = {t->out[0] * s[0], t->out[1] * s[1]};
    strata_tensor *x = cut(padded, begin, size);
    if (s[0] == 1 && s[1] == 1) return x;
    x = strata_reshape(x, STRATA_SHAPE(t->n, t->out[0], s[0], t->out[1], s[1], t->c));
    x = strata_slice(x, (int64_t[]){0, 0, 0, 0, 0, 0}, (int64_t[]){t->n, t->out[0], 1, t->out[1], 1, t->c});
    return strata_reshape(x, STRATA_SHAPE(t->n, t->out[0], t->out[1], t->c));
}

strata_tensor *strata_untap(const strata_taps *t, strata_tensor *y, int64_t kh, int64_t kw) {
    const int64_t *s = t->window.stride, begin[2] = {kh * t->window.dilation[0], kw * t->window.dilation[1]};
    if (s[0] > 1 || s[1] > 1) {
        y = strata_reshape(y, STRATA_SHAPE(t->n, t->out[0], 1, t->out[1], 1, t->c));
        y = strata_pad(y, (int64_t[]){0, 0, 0, 0, 0, 0}, (int64_t[]){0, 0, s[0] - 1, 0, s[1] - 1, 0}, 0);
        y = strata_reshape(y, STRATA_SHAPE(t->n, t->out[0] * s[0], t->out[1] * s[1], t->c));
    }
    return pad(y, begin, t->padded, 0);
}

strata_tensor *strata_taps_crop(const strata_taps *t, strata_tensor *padded) {
    const int64_t origin[2] = {0, 0}, keep[2] = {kept(t, 0), kept(t, 1)}, front[2] = {before(t, 0), before(t, 1)};
    return pad(cut(padded, front, keep), origin, t->in, 0);
}
