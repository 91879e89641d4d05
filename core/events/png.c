/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a PNG with one chunk of pixels. Before the pixels of each row there is a byte 0 (no filter), and all rows are
 * one zlib stream. */
#include <zlib.h>

#include "core/events/events.h"

static void big_endian(unsigned char out[4], uint32_t value) {
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* Appends a chunk: its length, its type, its bytes, and the CRC of type and bytes. */
static void add_chunk(strata_text *file, const char *type, const unsigned char *bytes, size_t n_bytes) {
    unsigned char word[4];
    big_endian(word, (uint32_t)n_bytes);
    strata_text_add_bytes(file, word, 4);
    strata_text_add_bytes(file, type, 4);
    strata_text_add_bytes(file, bytes, n_bytes);
    uLong crc = crc32(crc32(0, (const Bytef *)type, 4), bytes, (uInt)n_bytes);
    if (!n_bytes) crc = crc32(0, (const Bytef *)type, 4);
    big_endian(word, (uint32_t)crc);
    strata_text_add_bytes(file, word, 4);
}

strata_status strata_png_encode(const unsigned char *pixels, int64_t rows, int64_t columns, int channels, strata_text *out_file,
                                strata_error *err) {
    static const unsigned char colour_types[] = {[1] = 0, [3] = 2, [4] = 6};
    const int64_t most = INT32_MAX;
    if (rows < 1 || columns < 1 || columns > most / channels - 1 || rows > most / (columns * channels + 1))
        return strata_fail(err, STRATA_INVALID, "a picture of (%lld,%lld,%d) cannot be a PNG: it is empty or larger than 2 GiB",
                           (long long)rows, (long long)columns, channels);
    size_t row_bytes = (size_t)columns * (size_t)channels, n_bytes = (size_t)rows * (row_bytes + 1);
    uLong bound = compressBound((uLong)n_bytes);
    STRATA_FREED unsigned char *plain = malloc(n_bytes), *packed = malloc(bound);
    if (!plain || !packed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "a picture of %zu bytes", n_bytes);
    for (int64_t r = 0; r < rows; r++) {
        unsigned char *row = plain + (size_t)r * (row_bytes + 1);
        row[0] = 0;
        memcpy(row + 1, pixels + (size_t)r * row_bytes, row_bytes);
    }
    if (compress2(packed, &bound, plain, (uLong)n_bytes, Z_BEST_SPEED) != Z_OK || bound > UINT32_MAX)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "a picture of %zu bytes was not compressed", n_bytes);
    /* width, height, 8 bits for each channel, and the colour type; compression, filter method and interlacing stay 0 */
    unsigned char header[13] = {[8] = 8, [9] = colour_types[channels]};
    big_endian(header, (uint32_t)columns);
    big_endian(header + 4, (uint32_t)rows);
    strata_text_add_bytes(out_file, "\x89PNG\r\n\x1A\n", 8);
    add_chunk(out_file, "IHDR", header, sizeof header);
    add_chunk(out_file, "IDAT", packed, bound);
    add_chunk(out_file, "IEND", NULL, 0);
    return out_file->failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "a picture of %zu bytes", n_bytes) : STRATA_OK;
}
