/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading pictures as arrays of u8, and resizing them: PNG, JPEG, WebP, GIF, TIFF, BMP and netpbm (PBM, PGM, PPM). The pixels
 * are those of Pillow's convert("RGB"), except that 16 bits are scaled to 8. picture_formats.h has an entry for each format. */
#ifndef STRATA_CORE_DATA_PICTURE_H
#define STRATA_CORE_DATA_PICTURE_H

#include "strata/formats.h"

/* Whether the path ends as pictures of a format do that is not read, such as .heic. */
bool strata_picture_is_foreign(const char *path);

#endif
