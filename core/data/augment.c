/* SPDX-License-Identifier: Apache-2.0
 *
 * Random changes of pictures, as map functions. What is drawn is a function of the element's key. */
#include <stdlib.h>
#include <string.h>

#include "core/data/stage.h"

typedef struct picture {
    int64_t rows, columns, channels;
} picture;

/* out(r, c) = in(r + down, from column c + right, mirrored when flip), 0 beyond the edge. */
static void move_and_flip(const uint32_t *in, picture p, int64_t down, int64_t right, bool flip, uint32_t *out) {
    size_t pixel = (size_t)p.channels * sizeof *in;
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t c = 0; c < p.columns; c++) {
            int64_t from_row = r + down, from_column = (flip ? p.columns - 1 - c : c) + right;
            uint32_t *to = out + (r * p.columns + c) * p.channels;
            if (from_row < 0 || from_row >= p.rows || from_column < 0 || from_column >= p.columns)
                memset(to, 0, pixel);
            else
                memcpy(to, in + (from_row * p.columns + from_column) * p.channels, pixel);
        }
}

strata_status strata_augment_flip_crop(strata_element *element, void *user, strata_error *err) {
    const strata_flip_crop *options = user;
    strata_array *image = &element->parts[0], moved;
    if (image->shape.rank != 3 || strata_dtype_bytes(image->dtype) != sizeof(uint32_t))
        return strata_fail(err, STRATA_DATA, "augment: the element is %s %s; it must be f32 or i32 (rows, columns, channels)",
                           strata_dtype_name(image->dtype), strata_shape_text(image->shape).text);
    if (options->padding < 0)
        return strata_fail(err, STRATA_INVALID, "augment: padding is %d; it must be at least 0", options->padding);
    int64_t choices = 2 * (int64_t)options->padding + 1;
    int64_t down = strata_random_below(strata_key_random(&element->key, 0), choices) - options->padding;
    int64_t right = strata_random_below(strata_key_random(&element->key, 1), choices) - options->padding;
    bool flip = options->flip && strata_key_random(&element->key, 2) >> 31;
    if (!down && !right && !flip) return STRATA_OK;
    STRATA_TRY(strata_array_create(image->dtype, image->shape, &moved, err));
    const picture p = {image->shape.dims[0], image->shape.dims[1], image->shape.dims[2]};
    move_and_flip(image->data, p, down, right, flip, moved.data);
    strata_array_finish(image);
    *image = moved;
    return STRATA_OK;
}
