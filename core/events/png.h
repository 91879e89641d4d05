/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as PNG (W3C PNG, third edition), by zlib. */
#ifndef STRATA_CORE_EVENTS_PNG_H
#define STRATA_CORE_EVENTS_PNG_H

#include <stdint.h>

#include "core/base/text.h"

/* The file of a picture (rows, columns, channels) u8, channels 1 (grey), 3 (red, green, blue) or 4 (and opacity).
 * Fails: OUT_OF_MEMORY; INVALID for a picture without pixels or with rows of more than 2^31 bytes. */
STRATA_MUST_USE strata_status strata_png_encode(const unsigned char *pixels, int64_t rows, int64_t columns, int channels,
                                                strata_text *out_file, strata_error *err);

#endif
