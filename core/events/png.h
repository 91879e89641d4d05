/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes pictures as PNG (W3C PNG, third edition), with zlib. */
#ifndef STRATA_CORE_EVENTS_PNG_H
#define STRATA_CORE_EVENTS_PNG_H

#include <stdint.h>

#include "core/base/text.h"

/* Encodes a picture (rows, columns, channels) of u8. It has 1 channel (grey), 3 (red, green, blue) or 4 (red, green,
 * blue, opacity). Fails: OUT_OF_MEMORY; INVALID for a picture without pixels or with rows of more than 2^31 bytes. */
STRATA_MUST_USE strata_status strata_png_encode(const unsigned char *pixels, int64_t rows, int64_t columns, int channels,
                                                strata_text *out_file, strata_error *err);

#endif
