/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading pictures as arrays of u8, and resizing them. PNG is read through libpng, JPEG through libturbojpeg, WebP through
 * libwebp. For netpbm (P2 and P5 are grey, P3 and P6 colours; up to 16 bits) no library is needed. */
#ifndef STRATA_CORE_DATA_PICTURE_H
#define STRATA_CORE_DATA_PICTURE_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

/* Reads a picture as u8 (rows, columns, channels), which the caller finishes.
 *   channels  1: colours are converted to grey; 3: grey is copied to red, green and blue
 *   name      the picture's name in messages
 * Transparent pixels are drawn on white. A JPEG is rotated as its Exif data describe.
 * Fails: DATA for a damaged picture; UNSUPPORTED for other formats, and for those whose library this build does not have. */
STRATA_MUST_USE strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels,
                                                   strata_array *out_pixels, strata_error *err);
/* Whether head[0..n), the first bytes of a file, are those of a picture. */
bool strata_picture_matches(const void *head, size_t n);
typedef struct strata_picture_size {
    int64_t rows, columns;
    /* 1: grey, 3: colours. */
    int channels;
} strata_picture_size;
/* Reads only the picture's header. Fails as strata_picture_parse. */
STRATA_MUST_USE strata_status strata_picture_measure(const char *name, const void *bytes, size_t n_bytes,
                                                     strata_picture_size *out_size, strata_error *err);
/* Resizes u8 (height, width, channels) to u8 (rows, columns, channels), which the caller finishes. Each pixel is a weighted
 * mean of the pixels around its position. The weights fall linearly with the distance and are 0 from max(1, old size / new
 * size) pixels on, in each direction. */
STRATA_MUST_USE strata_status strata_picture_resize(const strata_array *pixels, int64_t rows, int64_t columns,
                                                    strata_array *out_pixels, strata_error *err);
/* Whether the path ends in .png, .jpg, .jpeg, .webp, .pgm or .ppm, in lower or upper case. */
bool strata_picture_is_named(const char *path);

STRATA_EXPORT_END

#endif
