/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading pictures as arrays of u8, and resizing them: PNG, JPEG, WebP, GIF, TIFF, BMP and netpbm (PBM, PGM, PPM). The pixels
 * are those of Pillow's convert("RGB"), except that 16 bits are scaled to 8. picture_formats.h has an entry for each format. */
#ifndef STRATA_CORE_DATA_PICTURE_H
#define STRATA_CORE_DATA_PICTURE_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

/* Reads a picture as u8 (rows, columns, channels), which the caller finishes.
 *   channels  1: colours are converted to grey; 3: grey is copied to red, green and blue
 *   name      the picture's name in messages
 * Transparency is ignored. A picture is turned as its Exif data describe. The first picture of an animation, or of a file with
 * several pages, is read.
 * Fails: DATA for a damaged picture; UNSUPPORTED, with the name of the format, for other formats, and for those whose library
 * this build does not have. */
STRATA_MUST_USE strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels,
                                                   strata_array *out_pixels, strata_error *err);
/* Whether head[0..n), the first bytes of a file, are those of a picture, also of a format that is not read. n: at least 16, or
 * the whole file. */
bool strata_picture_matches(const void *head, size_t n);
typedef struct strata_picture_size {
    int64_t rows, columns;
    /* 1: grey, 3: colours. */
    int channels;
} strata_picture_size;
/* Reads only the picture's header; the size is that of the upright picture. Fails as strata_picture_parse. */
STRATA_MUST_USE strata_status strata_picture_measure(const char *name, const void *bytes, size_t n_bytes,
                                                     strata_picture_size *out_size, strata_error *err);
/* Resizes u8 (height, width, channels) to u8 (rows, columns, channels), which the caller finishes. Each pixel is a weighted
 * mean of the pixels around its position. The weights fall linearly with the distance and are 0 from max(1, old size / new
 * size) pixels on, in each direction. */
STRATA_MUST_USE strata_status strata_picture_resize(const strata_array *pixels, int64_t rows, int64_t columns,
                                                    strata_array *out_pixels, strata_error *err);
/* What is read, for messages. */
#define STRATA_PICTURE_FORMATS "PNG, JPEG, WebP, GIF, TIFF, BMP, PBM, PGM, PPM"
/* The endings of strata_picture_is_named, for messages. */
#define STRATA_PICTURE_ENDINGS ".png, .jpg, .jpeg, .webp, .gif, .tif, .tiff, .bmp, .pbm, .pgm, .ppm"
/* Whether the path ends in one of these, or in .jpe, .jfif, .dib, .apng or .pnm, in lower or upper case. */
bool strata_picture_is_named(const char *path);
/* Whether the path ends as pictures of a format do that is not read, such as .heic. */
bool strata_picture_is_foreign(const char *path);

STRATA_EXPORT_END

#endif
