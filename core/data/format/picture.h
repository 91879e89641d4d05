/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as bytes: PNG through libpng, JPEG through libturbojpeg, WebP through libwebp, netpbm (P2, P5 grey, P3, P6 colours,
 * up to 16 bits) by hand; and another size. */
#ifndef STRATA_CORE_DATA_PICTURE_H
#define STRATA_CORE_DATA_PICTURE_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

/* u8 (rows, columns, channels), which the caller finishes; channels 1 (colours become grey) or 3 (grey becomes colours).
 * Transparent pixels are drawn on white.
 * name: used in messages.
 * Fails: DATA for a damaged one; UNSUPPORTED for other formats, and for those whose library this build does not have. */
STRATA_MUST_USE strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels,
                                                   strata_array *out_pixels, strata_error *err);
/* Whether the first bytes of a file are a picture's. */
bool strata_picture_matches(const void *head, size_t n);
typedef struct strata_picture_size {
    int64_t rows, columns;
    /* 1: grey, 3: colours. */
    int channels;
} strata_picture_size;
/* What the header says. Fails as strata_picture_parse. */
STRATA_MUST_USE strata_status strata_picture_measure(const char *name, const void *bytes, size_t n_bytes,
                                                     strata_picture_size *out_size, strata_error *err);
/* u8 (height, width, channels) -> u8 (rows, columns, channels), which the caller finishes: each pixel is a weighted mean of the
 * pixels around its position. The weights are a triangle whose width is the ratio of the sizes, at least one pixel. */
STRATA_MUST_USE strata_status strata_picture_resize(const strata_array *pixels, int64_t rows, int64_t columns,
                                                    strata_array *out_pixels, strata_error *err);
/* By the ending: .png, .jpg, .jpeg, .webp, .pgm, .ppm, in either case. */
bool strata_picture_is_named(const char *path);

STRATA_EXPORT_END

#endif
