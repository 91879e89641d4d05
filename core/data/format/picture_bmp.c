/* SPDX-License-Identifier: Apache-2.0
 *
 * BMP, the bitmaps of Windows and OS/2: 1, 2, 4 or 8 bits with a palette, 16, 24 or 32 bits with colours; plain, or with
 * lengths of runs (RLE4, RLE8). Transparency is ignored. */

#include "core/base/bytes.h"
#include "core/data/format/picture_formats.h"

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40 };
enum { PLAIN = 0, RLE8 = 1, RLE4 = 2, MASKS = 3, MASKS_WITH_ALPHA = 6 };

static uint32_t number_at(const unsigned char *at, int n) {
    return (uint32_t)strata_little_endian(at, n);
}

/* The first bytes could also be text. So the two lower bytes of the second header's size are compared as well. */
bool strata_picture_is_bmp(const unsigned char *head, size_t n) {
    static const uint32_t sizes[] = {CORE_HEADER, INFO_HEADER, 52, 56, 64, 108, 124};
    bool known = false;
    if (n < 16 || head[0] != 'B' || head[1] != 'M') return false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) known |= number_at(head + FILE_HEADER, 2) == sizes[i];
    return known;
}

typedef struct bitmap {
    int64_t columns, rows;
    bool from_top;
    int bits;
    uint32_t compression;
    /* Where the pixels begin. */
    size_t offset;
    /* Colours that the file does not list are black. */
    uint8_t palette[256][3];
    bool grey;
    /* The bits of red, green and blue in a pixel of 16 or 32 bits. */
    uint32_t masks[3];
} bitmap;

static strata_status unsupported(const strata_picture_file *file, const bitmap *b, strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: is BMP with %d bits a pixel and compression %u, which is not read; save it as PNG", file->name,
                       b->bits, (unsigned)b->compression);
}

static void read_palette(const strata_picture_file *file, size_t at, uint32_t n, size_t entry, bitmap *b) {
    b->grey = true;
    for (uint32_t i = 0; i < n && i < 256 && at + entry <= file->n_bytes; i++, at += entry) {
        const unsigned char *c = file->bytes + at;
        memcpy(b->palette[i], (uint8_t[]){c[2], c[1], c[0]}, 3);
        b->grey &= c[0] == c[1] && c[0] == c[2];
    }
}

static strata_status read_header(const strata_picture_file *file, bitmap *b, strata_error *err) {
    const unsigned char *info = file->bytes + FILE_HEADER;
    const size_t n_info = file->n_bytes - FILE_HEADER;
    *b = (bitmap){.offset = number_at(file->bytes + 10, 4)};
    const uint32_t n_header = n_info >= CORE_HEADER ? number_at(info, 4) : UINT32_MAX;
    uint32_t n_colours = 0;
    if (n_header > n_info || (n_header != CORE_HEADER && n_header < INFO_HEADER))
        return strata_picture_damaged(file, "BMP header", NULL, err);
    if (n_header == CORE_HEADER) {
        b->columns = number_at(info + 4, 2), b->rows = number_at(info + 6, 2);
        b->bits = (int)number_at(info + 10, 2);
    } else {
        b->columns = (int32_t)number_at(info + 4, 4), b->rows = (int32_t)number_at(info + 8, 4);
        b->bits = (int)number_at(info + 14, 2);
        b->compression = number_at(info + 16, 4);
        n_colours = number_at(info + 32, 4);
    }
    b->from_top = b->rows < 0;
    if (b->from_top) b->rows = -b->rows;
    const bool masked = b->compression == MASKS || b->compression == MASKS_WITH_ALPHA;
    const bool indexed = b->bits == 1 || b->bits == 2 || b->bits == 4 || b->bits == 8;
    if (indexed ? b->compression != PLAIN && b->compression != (b->bits == 8 ? RLE8 : RLE4)
                : !(b->bits == 24 && b->compression == PLAIN) &&
                      !((b->bits == 16 || b->bits == 32) && (b->compression == PLAIN || masked)))
        return unsupported(file, b, err);
    if (indexed && b->compression == RLE4 && b->bits != 4) return unsupported(file, b, err);
    if (indexed) {
        const uint32_t all = 1U << b->bits;
        read_palette(file, FILE_HEADER + n_header, n_colours && n_colours < all ? n_colours : all,
                     n_header == CORE_HEADER ? 3 : 4, b);
    }
    const uint32_t usual[2][3] = {{0x7C00, 0x3E0, 0x1F}, {0xFF0000, 0xFF00, 0xFF}};
    memcpy(b->masks, usual[b->bits == 32], sizeof b->masks);
    if (!masked) return STRATA_OK;
    if (n_info < INFO_HEADER + 12) return strata_picture_damaged(file, "BMP header", NULL, err);
    for (int k = 0; k < 3; k++) b->masks[k] = number_at(info + INFO_HEADER + 4 * k, 4);
    return STRATA_OK;
}

/* The address of a pixel, where row 0 is the first in the file. */
static uint8_t *pixel_at(const bitmap *b, uint8_t *pixels, int64_t row, int64_t column) {
    return pixels + ((b->from_top ? row : b->rows - 1 - row) * b->columns + column) * (b->grey ? 1 : 3);
}

static void put_index(const bitmap *b, uint8_t *pixels, int64_t row, int64_t column, int index) {
    if (row < b->rows && column < b->columns)
        memcpy(pixel_at(b, pixels, row, column), b->palette[index & 255], b->grey ? 1 : 3);
}

/* The value of the bits in a mask, scaled to 0..255. */
static uint8_t masked_value(uint32_t pixel, uint32_t mask) {
    if (!mask) return 0;
    while (!(mask & 1)) mask >>= 1, pixel >>= 1;
    return (uint8_t)((uint64_t)(pixel & mask) * 255 / mask);
}

static strata_status decode_plain(const strata_picture_file *file, const bitmap *b, uint8_t *pixels, strata_error *err) {
    const size_t row_bytes = (size_t)(b->columns * b->bits + 31) / 32 * 4, used = (size_t)(b->columns * b->bits + 7) / 8;
    for (int64_t y = 0; y < b->rows; y++) {
        const size_t at = b->offset + (size_t)y * row_bytes;
        if (at > file->n_bytes || file->n_bytes - at < used) return strata_picture_damaged(file, "BMP data", NULL, err);
        const unsigned char *row = file->bytes + at;
        for (int64_t x = 0; x < b->columns; x++) {
            uint8_t *to = pixel_at(b, pixels, y, x);
            if (b->bits <= 8) {
                const int64_t bit = x * b->bits;
                put_index(b, pixels, y, x, row[bit / 8] >> (8 - b->bits - bit % 8) & ((1 << b->bits) - 1));
            } else if (b->bits == 24) {
                memcpy(to, (uint8_t[]){row[3 * x + 2], row[3 * x + 1], row[3 * x]}, 3);
            } else {
                const uint32_t pixel = number_at(row + x * b->bits / 8, b->bits / 8);
                for (int k = 0; k < 3; k++) to[k] = masked_value(pixel, b->masks[k]);
            }
        }
    }
    return STRATA_OK;
}

/* Pairs of bytes. The first is the length of a run of the second, or 0. Then the second is 0 at the end of a row, 1 at the end
 * of the picture, 2 before a move (columns, rows), or a number of indexes that follow, padded to an even number of bytes. In
 * RLE4 a byte has two indexes. What is not written has index 0. */
static strata_status decode_runs(const strata_picture_file *file, const bitmap *b, uint8_t *pixels, strata_error *err) {
    const bool half = b->compression == RLE4;
    int64_t x = 0, y = 0;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t c = 0; c < b->columns; c++) put_index(b, pixels, r, c, 0);
    for (size_t at = b->offset; y < b->rows;) {
        if (at > file->n_bytes || file->n_bytes - at < 2) return strata_picture_damaged(file, "BMP data", NULL, err);
        const int length = file->bytes[at], value = file->bytes[at + 1];
        at += 2;
        if (length) {
            for (int i = 0; i < length; i++) put_index(b, pixels, y, x++, !half ? value : i % 2 ? value & 15 : value >> 4);
        } else if (value == 0) {
            x = 0, y++;
        } else if (value == 1) {
            break;
        } else if (value == 2) {
            if (file->n_bytes - at < 2) return strata_picture_damaged(file, "BMP data", NULL, err);
            x += file->bytes[at], y += file->bytes[at + 1];
            at += 2;
        } else {
            const size_t n = half ? ((size_t)value + 1) / 2 : (size_t)value;
            if (file->n_bytes - at < n) return strata_picture_damaged(file, "BMP data", NULL, err);
            for (int i = 0; i < value; i++) {
                const int byte = file->bytes[at + (size_t)(half ? i / 2 : i)];
                put_index(b, pixels, y, x++, !half ? byte : i % 2 ? byte & 15 : byte >> 4);
            }
            at += n + (n & 1);
        }
    }
    return STRATA_OK;
}

strata_status strata_picture_read_bmp(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                      strata_error *err) {
    bitmap b;
    STRATA_TRY(read_header(file, &b, err));
    if (!pixels) {
        *size = (strata_picture_size){b.rows, b.columns, b.grey ? 1 : 3};
        return STRATA_OK;
    }
    const bool runs = b.bits <= 8 && b.compression != PLAIN;
    return runs ? decode_runs(file, &b, pixels, err) : decode_plain(file, &b, pixels, err);
}
