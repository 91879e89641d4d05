/* SPDX-License-Identifier: Apache-2.0
 *
 * netpbm: P1 and P4 are black and white, P2 and P5 grey, P3 and P6 colours. P1 to P3 are text. Samples of 8 or 16 bits are
 * scaled to 0..255. */
#include "core/data/format/picture_formats.h"

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static bool is_blank(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_blanks(cursor *c) {
    while (c->at < c->end && (is_blank(*c->at) || *c->at == '#'))
        if (*c->at++ == '#')
            while (c->at < c->end && *c->at != '\n') c->at++;
}

/* Reads the next number, after skipping white space and comments. Returns -1 if there is none. */
static int64_t next_number(cursor *c) {
    skip_blanks(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9') return -1;
    int64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && value <= INT32_MAX; c->at++) value = 10 * value + (*c->at - '0');
    return value;
}

/* Reads the next sample, which is text or 1 or 2 big-endian bytes. Returns -1 if there is none. */
static int64_t next_sample(cursor *c, bool text, int64_t most) {
    if (text) return next_number(c);
    int64_t bytes = most > 255 ? 2 : 1, value = 0;
    if (c->end - c->at < bytes) return -1;
    while (bytes--) value = value << 8 | *c->at++;
    return value;
}

typedef struct header {
    /* The digit after the P. */
    char kind;
    int64_t columns, rows, most;
} header;

/* Reads the header and moves the cursor to the pixels. */
static strata_status read_header(const strata_picture_file *file, header *out, cursor *c, strata_error *err) {
    *c = (cursor){file->bytes + 2, file->bytes + file->n_bytes};
    out->kind = (char)file->bytes[1];
    out->columns = next_number(c);
    out->rows = next_number(c);
    out->most = out->kind == '1' || out->kind == '4' ? 1 : next_number(c);
    const bool sized = out->columns >= 0 && out->columns <= INT32_MAX && out->rows >= 0 && out->rows <= INT32_MAX;
    if (!sized || out->most < 1 || out->most > 65535 || c->at == c->end)
        return strata_fail(err, STRATA_DATA, "%s: its header has no width, height and largest value (1..65535)", file->name);
    c->at++; /* exactly one white-space character ends the header */
    return STRATA_OK;
}

/* Black and white: 1 is black. In P1 each pixel is a digit, and digits need no space between them; in P4 it is a bit, and each
 * row begins with a new byte. */
static strata_status decode_bits(const strata_picture_file *file, const header *h, cursor *c, uint8_t *pixels,
                                 strata_error *err) {
    const int64_t row_bytes = (h->columns + 7) / 8;
    if (h->kind == '4' && c->end - c->at < row_bytes * h->rows)
        return strata_fail(err, STRATA_DATA, "%s: has %lld of %lld bytes of pixels: it is cut off", file->name,
                           (long long)(c->end - c->at), (long long)(row_bytes * h->rows));
    for (int64_t y = 0; y < h->rows; y++)
        for (int64_t x = 0; x < h->columns; x++) {
            int bit;
            if (h->kind == '4') {
                bit = c->at[y * row_bytes + x / 8] >> (7 - x % 8) & 1;
            } else {
                skip_blanks(c);
                if (c->at == c->end || (*c->at != '0' && *c->at != '1'))
                    return strata_fail(err, STRATA_DATA, "%s: pixel %lld of %lld is neither 0 nor 1: it is cut off or damaged",
                                       file->name, (long long)(y * h->columns + x), (long long)(h->rows * h->columns));
                bit = *c->at++ == '1';
            }
            *pixels++ = bit ? 0 : 255;
        }
    return STRATA_OK;
}

strata_status strata_picture_read_netpbm(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                         strata_error *err) {
    header h;
    cursor c;
    STRATA_TRY(read_header(file, &h, &c, err));
    const bool text = h.kind < '4';
    const int64_t n = h.rows * h.columns;
    const int channels = h.kind == '3' || h.kind == '6' ? 3 : 1;
    if (!pixels) {
        *size = (strata_picture_size){h.rows, h.columns, channels};
        return STRATA_OK;
    }
    if (h.kind == '1' || h.kind == '4') return decode_bits(file, &h, &c, pixels, err);
    for (int64_t i = 0; i < n * channels; i++) {
        const int64_t value = next_sample(&c, text, h.most);
        if (value < 0 || value > h.most)
            return strata_fail(err, STRATA_DATA, "%s: pixel %lld of %lld is missing or above %lld: it is cut off or damaged",
                               file->name, (long long)(i / channels), (long long)n, (long long)h.most);
        pixels[i] = (uint8_t)((value * 255 + h.most / 2) / h.most);
    }
    if (text || c.at == c.end) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: %zu bytes too many after its %lld x %lld pixels", file->name,
                       (size_t)(c.end - c.at), (long long)h.columns, (long long)h.rows);
}

/* White space, and then a number or a comment: a table may have a column P2. */
bool strata_picture_is_netpbm(const unsigned char *head, size_t n) {
    if (n < 3 || head[0] != 'P' || head[1] < '1' || head[1] > '6' || !is_blank(head[2])) return false;
    size_t at = 2;
    while (at < n && is_blank(head[at])) at++;
    return at == n || head[at] == '#' || (head[at] >= '0' && head[at] <= '9');
}
