/* SPDX-License-Identifier: Apache-2.0
 *
 * A JPEG is a list of segments. Each begins with 0xFF, a marker byte and the segment's length. Exif data are a segment with the
 * marker APP1. It contains "Exif\0\0" and then a TIFF file, whose header has the byte order and the offset of a directory. Each
 * entry of the directory has 12 bytes. */
#include "core/data/format/exif.h"

#include <string.h>

/* The TIFF file that a segment contains. */
typedef struct tiff {
    const unsigned char *bytes;
    size_t n;
    bool big_endian;
} tiff;

/* The number of `size` bytes, 2 or 4, at offset `at`; 0 if the TIFF file ends before it. */
static uint32_t number_at(const tiff *t, size_t at, size_t size) {
    uint32_t value = 0;
    if (at > t->n || t->n - at < size) return 0;
    for (size_t i = 0; i < size; i++) value = value << 8 | t->bytes[at + (t->big_endian ? i : size - 1 - i)];
    return value;
}

static int orientation_of(const tiff *t) {
    enum { ORIENTATION = 0x0112, SHORT = 3, ENTRY = 12 };
    const size_t directory = number_at(t, 4, 4);
    const uint32_t n_entries = number_at(t, directory, 2);
    if (number_at(t, 2, 2) != 42) return 1;
    for (uint32_t i = 0; i < n_entries; i++) {
        const size_t entry = directory + 2 + (size_t)i * ENTRY;
        if (entry >= t->n) return 1;
        if (number_at(t, entry, 2) != ORIENTATION || number_at(t, entry + 2, 2) != SHORT) continue;
        const uint32_t value = number_at(t, entry + 8, 2);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

int strata_exif_orientation(const unsigned char *jpeg, size_t n_bytes) {
    enum { APP1 = 0xE1, START_OF_SCAN = 0xDA };
    for (size_t at = 2; at + 4 <= n_bytes && jpeg[at] == 0xFF;) {
        const unsigned char marker = jpeg[at + 1], *body = jpeg + at + 4;
        const size_t length = (size_t)jpeg[at + 2] << 8 | jpeg[at + 3]; /* includes these two bytes, but not the marker */
        if (marker == START_OF_SCAN || length < 2 || length > n_bytes - at - 2) return 1;
        if (marker == APP1 && length >= 16 && !memcmp(body, "Exif\0\0", 6)) {
            const tiff t = {.bytes = body + 6, .n = length - 8, .big_endian = body[6] == 'M'};
            return orientation_of(&t);
        }
        at += 2 + length;
    }
    return 1;
}

strata_status strata_exif_turn(const char *name, int orientation, strata_array *pixels, strata_error *err) {
    const int64_t height = pixels->shape.dims[0], width = pixels->shape.dims[1], channels = pixels->shape.dims[2];
    const bool transposed = orientation >= 5; /* rows become columns */
    const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const int64_t rows = transposed ? width : height, columns = transposed ? height : width;
    strata_array upright;
    if (orientation == 1) return STRATA_OK;
    const strata_status status = strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(rows, columns, channels), &upright, err);
    if (status) return strata_fail_in(err, status, "%s", name);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t y = transposed ? c : r, x = transposed ? r : c;
            const int64_t from = (from_below ? height - 1 - y : y) * width + (from_right ? width - 1 - x : x);
            memcpy((uint8_t *)upright.data + (r * columns + c) * channels, (const uint8_t *)pixels->data + from * channels,
                   (size_t)channels);
        }
    strata_array_finish(pixels);
    *pixels = upright;
    return STRATA_OK;
}
