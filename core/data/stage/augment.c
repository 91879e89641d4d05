/* SPDX-License-Identifier: Apache-2.0
 *
 * Random changes of pictures, as map functions. The random numbers are a function of the element's key. */

#include "core/data/stage/stage.h"

typedef struct picture {
    int64_t rows, columns, channels;
} picture;

/* Mirrors a row of `columns` pixels of `pixel` bytes each. The compiler makes a version for each common size of a pixel. */
static inline __attribute__((always_inline)) void mirror(const char *last, int64_t columns, size_t pixel, char *to) {
    for (int64_t c = 0; c < columns; c++) memcpy(to + (size_t)c * pixel, last - (size_t)c * pixel, pixel);
}
static void mirror_row(const char *last, int64_t columns, size_t pixel, char *to) {
    if (pixel == 3)
        mirror(last, columns, 3, to);
    else if (pixel == 12)
        mirror(last, columns, 12, to);
    else
        mirror(last, columns, pixel, to);
}

/* out(r, c) = in(r + down, c + right), or 0 if that is outside of the picture. With `flip` the rows of `in` are mirrored
 * first. */
static void move_and_flip(const char *in, picture p, size_t pixel, int64_t down, int64_t right, bool flip, char *out) {
    const int64_t shift = flip ? right : -right, begin = shift > 0 ? shift : 0;
    const int64_t end = shift > 0 ? p.columns : p.columns + shift; /* after the last column that is inside of the picture */
    const size_t row = (size_t)p.columns * pixel;
    for (int64_t r = 0; r < p.rows; r++) {
        const int64_t from_row = r + down;
        char *to = out + (size_t)r * row, *first = to + (size_t)begin * pixel;
        if (from_row < 0 || from_row >= p.rows || begin >= end) {
            memset(to, 0, row);
            continue;
        }
        const char *from = in + (size_t)from_row * row;
        memset(to, 0, (size_t)begin * pixel);
        if (flip)
            mirror_row(from + (size_t)(p.columns - 1 - begin + right) * pixel, end - begin, pixel, first);
        else
            memcpy(first, from + (size_t)(begin + right) * pixel, (size_t)(end - begin) * pixel);
        memset(to + (size_t)end * pixel, 0, (size_t)(p.columns - end) * pixel);
    }
}

strata_status strata_augment_flip_crop(strata_element *element, void *user, strata_error *err) {
    const strata_flip_crop *options = user;
    strata_array *image = &element->parts[0], moved;
    if (image->shape.rank != 3)
        return strata_fail(err, STRATA_DATA, "augment: the element is %s; it must be (rows, columns, channels)",
                           strata_shape_text(image->shape).text);
    if (options->padding < 0)
        return strata_fail(err, STRATA_INVALID, "augment: padding is %d; it must be at least 0", options->padding);
    int64_t choices = 2 * (int64_t)options->padding + 1;
    int64_t down = strata_random_below(strata_key_random(&element->key, 0), choices) - options->padding;
    int64_t right = strata_random_below(strata_key_random(&element->key, 1), choices) - options->padding;
    bool flip = options->flip && strata_key_random(&element->key, 2) >> 31;
    if (!down && !right && !flip) return STRATA_OK;
    STRATA_TRY(strata_array_create(image->dtype, image->shape, &moved, err));
    const picture p = {image->shape.dims[0], image->shape.dims[1], image->shape.dims[2]};
    const size_t pixel = (size_t)p.channels * strata_dtype_bytes(image->dtype);
    if (strata_array_bytes(&moved)) move_and_flip(image->data, p, pixel, down, right, flip, moved.data);
    strata_array_finish(image);
    *image = moved;
    return STRATA_OK;
}
