/* SPDX-License-Identifier: Apache-2.0
 *
 * The orientation of a picture from the Exif data of a JPEG, PNG or WebP, or from a TIFF (tag Orientation, 0x0112; Exif 2.32,
 * section 4.6.4). No other Exif data are read. */
#ifndef STRATA_CORE_DATA_EXIF_H
#define STRATA_CORE_DATA_EXIF_H

#include "strata/tensor.h"

/* The orientation, 1 to 8, in Exif's numbering. 1 means that the picture should be shown as it is stored, and is also returned
 * if the file has no Exif data or damaged ones. From 5 on, rows and columns are exchanged. */
int strata_exif_orientation(const unsigned char *picture, size_t n_bytes);
/* Rotates or mirrors u8 pixels (rows, columns, channels) to the orientation in which the picture should be shown. Fails:
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_exif_turn(const char *name, int orientation, strata_array *pixels, strata_error *err);

#endif
