/* SPDX-License-Identifier: Apache-2.0
 *
 * Exif data are a TIFF file, whose header has the byte order and the offset of a directory. Each entry of the directory has 12
 * bytes. A JPEG is a list of segments. Each begins with 0xFF, a marker byte and the segment's length. The segment with the
 * marker APP1 contains "Exif\0\0" and then the Exif data. In a PNG they are the chunk eXIf, in a WebP the chunk EXIF, and a
 * TIFF picture has the same directory itself. */

#include "core/base/bytes.h"
#include "core/data/format/picture_formats.h"

/* The bytes whose numbers are read. */
typedef struct tiff {
    const unsigned char *bytes;
    size_t n;
    bool big_endian;
} tiff;

/* The number of `size` bytes, 2 or 4, at offset `at`; 0 if the TIFF file ends before it. */
static uint32_t number_at(const tiff *t, size_t at, size_t size) {
    if (at > t->n || t->n - at < size) return 0;
    return (uint32_t)(t->big_endian ? strata_big_endian : strata_little_endian)(t->bytes + at, (int)size);
}

/* Reads the directory of a TIFF file. In a BigTIFF (version 43) offsets and numbers of entries have 8 bytes, of which those
 * above the lower 4 are 0 in files that fit into memory. */
static int orientation_of(const unsigned char *bytes, size_t n) {
    enum { ORIENTATION = 0x0112, SHORT = 3, LONG = 4 };
    static const char prefix[6] = "Exif\0"; /* some programs write it where it does not belong */
    if (n >= sizeof prefix && !memcmp(bytes, prefix, sizeof prefix)) bytes += sizeof prefix, n -= sizeof prefix;
    if (n < 8 || bytes[0] != bytes[1] || (bytes[0] != 'I' && bytes[0] != 'M')) return 1;
    const tiff t = {.bytes = bytes, .n = n, .big_endian = bytes[0] == 'M'};
    const uint32_t version = number_at(&t, 2, 2);
    const bool big = version == 43;
    const size_t low = t.big_endian ? 4 : 0, entry_bytes = big ? 20 : 12;
    const size_t directory = number_at(&t, big ? 8 + low : 4, 4);
    const uint32_t n_entries = big ? number_at(&t, directory + low, 4) : number_at(&t, directory, 2);
    if (version != 42 && !big) return 1;
    for (uint32_t i = 0; i < n_entries; i++) {
        const size_t entry = directory + (big ? 8 : 2) + (size_t)i * entry_bytes;
        if (entry >= t.n) return 1;
        const uint32_t type = number_at(&t, entry + 2, 2);
        if (number_at(&t, entry, 2) != ORIENTATION || (type != SHORT && type != LONG)) continue;
        const uint32_t value = number_at(&t, entry + (big ? 12 : 8), type == SHORT ? 2 : 4);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

static int in_jpeg(const unsigned char *jpeg, size_t n_bytes) {
    enum { APP1 = 0xE1, START_OF_SCAN = 0xDA };
    for (size_t at = 2; at + 4 <= n_bytes && jpeg[at] == 0xFF;) {
        const unsigned char marker = jpeg[at + 1], *body = jpeg + at + 4;
        const size_t length = (size_t)jpeg[at + 2] << 8 | jpeg[at + 3]; /* includes these two bytes, but not the marker */
        if (marker == START_OF_SCAN || length < 2 || length > n_bytes - at - 2) return 1;
        if (marker == APP1 && length >= 16 && !memcmp(body, "Exif\0\0", 6)) return orientation_of(body, length - 2);
        at += 2 + length;
    }
    return 1;
}

/* PNG writes a big-endian length before the name and a checksum behind the body; RIFF writes a little-endian length behind the
 * name, and pads the body to an even number of bytes. */
const unsigned char *strata_picture_chunk(const unsigned char *bytes, size_t n_bytes, bool png, const char *name,
                                          size_t *out_n) {
    for (size_t at = png ? 8 : 12; at + 8 <= n_bytes;) {
        const size_t n = (size_t)(png ? strata_big_endian(bytes + at, 4) : strata_little_endian(bytes + at + 4, 4));
        if (n > n_bytes - at - 8) return NULL;
        *out_n = n;
        if (!memcmp(bytes + at + (png ? 4 : 0), name, 4)) return bytes + at + 8;
        at += 8 + n + (png ? 4 : n & 1);
    }
    return NULL;
}

static int in_chunk(const unsigned char *bytes, size_t n_bytes, bool png, const char *name) {
    size_t n = 0;
    const unsigned char *exif = strata_picture_chunk(bytes, n_bytes, png, name, &n);
    return exif ? orientation_of(exif, n) : 1;
}

int strata_exif_orientation(const unsigned char *picture, size_t n_bytes) {
    if (n_bytes < 12) return 1;
    if (picture[0] == 0xFF && picture[1] == 0xD8) return in_jpeg(picture, n_bytes);
    if (!memcmp(picture, "\x89PNG", 4)) return in_chunk(picture, n_bytes, true, "eXIf");
    if (!memcmp(picture, "RIFF", 4)) return in_chunk(picture, n_bytes, false, "EXIF");
    return orientation_of(picture, n_bytes);
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
