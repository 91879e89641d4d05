/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as bytes: PNG through libpng, netpbm (P2, P5 grey, P3, P6 colours, up to 16 bits) by hand. */
#ifndef STRATA_CORE_DATA_PICTURE_H
#define STRATA_CORE_DATA_PICTURE_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

/* u8 (rows, columns, channels), which the caller finishes; channels 1 (colours become grey) or 3 (grey becomes colours). What
 * is transparent lies on white.
 *   name   stands in messages
 * Fails: DATA for a damaged one; UNSUPPORTED for other formats, and for PNG in a build without libpng. */
STRATA_MUST_USE strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels,
                                                   strata_array *out_pixels, strata_error *err);
/* Whether the first bytes of a file are a picture's. */
bool strata_picture_matches(const void *head, size_t n);
/* By the ending: .png, .pgm, .ppm, in either case. */
bool strata_picture_is_named(const char *path);

STRATA_EXPORT_END

#endif
