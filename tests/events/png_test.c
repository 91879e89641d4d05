/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as PNG, read as the standard describes the file: chunks with their lengths and checksums, the header, the rows. */
#include <criterion/criterion.h>
#include <string.h>
#include <zlib.h>

#include "core/events/events.h"

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Checks the chunk at *at, which must be of this type, and moves *at behind it. Returns its bytes. */
static const unsigned char *chunk(const strata_text *file, size_t *at, const char *type, size_t *out_n) {
    const unsigned char *bytes = (const unsigned char *)file->bytes + *at;
    cr_assert_leq(*at + 12, file->n_bytes, "%s is missing", type);
    *out_n = big_endian(bytes);
    cr_assert_leq(*at + 12 + *out_n, file->n_bytes, "%s is cut off", type);
    cr_assert_eq(memcmp(bytes + 4, type, 4), 0, "%.4s instead of %s", (const char *)bytes + 4, type);
    cr_assert_eq(big_endian(bytes + 8 + *out_n), crc32(0, bytes + 4, (uInt)*out_n + 4), "the checksum of %s", type);
    *at += 12 + *out_n;
    return bytes + 8;
}

Test(png, is_a_header_all_rows_and_an_end) {
    enum { ROWS = 3, COLUMNS = 5 };
    static const unsigned char types[] = {[1] = 0, [3] = 2, [4] = 6};
    for (int channels = 1; channels <= 4; channels += 1 + (channels == 1)) {
        unsigned char pixels[ROWS * COLUMNS * 4], rows[ROWS * (COLUMNS * 4 + 1)];
        strata_text file = {0};
        strata_error err = {0};
        size_t at = 8, n = 0;
        for (int i = 0; i < ROWS * COLUMNS * channels; i++) pixels[i] = (unsigned char)(i * 37 + 3);
        cr_assert_eq(strata_png_encode(pixels, ROWS, COLUMNS, channels, &file, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(memcmp(file.bytes, "\x89PNG\r\n\x1A\n", 8), 0);
        const unsigned char *header = chunk(&file, &at, "IHDR", &n);
        cr_assert_eq(n, 13);
        cr_expect(big_endian(header) == COLUMNS && big_endian(header + 4) == ROWS);
        cr_expect(header[8] == 8 && header[9] == types[channels] && !header[10] && !header[11] && !header[12]);
        const unsigned char *packed = chunk(&file, &at, "IDAT", &n);
        uLongf n_rows = sizeof rows;
        cr_assert_eq(uncompress(rows, &n_rows, packed, (uLong)n), Z_OK);
        cr_assert_eq(n_rows, (uLongf)(ROWS * (COLUMNS * channels + 1)));
        for (int r = 0; r < ROWS; r++) {
            const unsigned char *row = rows + r * (COLUMNS * channels + 1);
            cr_expect(!row[0] && !memcmp(row + 1, pixels + r * COLUMNS * channels, (size_t)(COLUMNS * channels)),
                      "row %d of %d channels", r, channels);
        }
        chunk(&file, &at, "IEND", &n);
        cr_expect(n == 0 && at == file.n_bytes, "%zu bytes behind the end", file.n_bytes - at);
        strata_text_finish(&file);
    }
}

Test(png, without_pixels_is_refused) {
    const unsigned char pixel = 1;
    strata_text file = {0};
    strata_error err = {0};
    cr_assert_eq(strata_png_encode(&pixel, 0, 1, 1, &file, &err), STRATA_INVALID);
    cr_assert_eq(strata_png_encode(&pixel, 1, 0, 1, &file, &err), STRATA_INVALID);
    cr_assert_eq(strata_png_encode(&pixel, 1, 1, 1, &file, &err), STRATA_OK, "%s", err.message);
    strata_text_finish(&file);
    strata_text none = {0};
    cr_assert_eq(strata_png_encode(&pixel, 1 << 20, 1 << 12, 1, &none, &err), STRATA_INVALID);
    cr_assert_eq(none.n_bytes, 0);
}
