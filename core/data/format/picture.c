/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading pictures. */
#include "core/data/format/picture.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#if STRATA_WITH_PNG
#include <png.h>
#endif

enum { MOST_SIDE = 1 << 15, MOST_PIXELS = 1 << 26 };

bool strata_picture_is_named(const char *path) {
    static const char *const endings[] = {".png", ".pgm", ".ppm"};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (length > 4 && !strcasecmp(path + length - 4, endings[i])) return true;
    return false;
}

static strata_status make_pixels(const char *name, int64_t columns, int64_t rows, int channels, strata_array *out,
                                 strata_error *err) {
    if (columns >= 1 && rows >= 1 && columns <= MOST_SIDE && rows <= MOST_SIDE && columns * rows <= MOST_PIXELS)
        return strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(rows, columns, channels), out, err);
    return strata_fail(err, STRATA_DATA, "%s: is %lld x %lld pixels; a picture has 1 to %d a side and at most %d in all", name,
                       (long long)columns, (long long)rows, MOST_SIDE, MOST_PIXELS);
}

/* ---- netpbm: P2, P5 grey, P3, P6 colours; samples of 8 or 16 bits are brought to 0..255 ---- */

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static bool is_blank(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next number; blanks and comments before it are passed over. -1: there is none. */
static int64_t next_number(cursor *c) {
    while (c->at < c->end && (is_blank(*c->at) || *c->at == '#'))
        if (*c->at++ == '#')
            while (c->at < c->end && *c->at != '\n') c->at++;
    if (c->at == c->end || *c->at < '0' || *c->at > '9') return -1;
    int64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && value <= INT32_MAX; c->at++) value = 10 * value + (*c->at - '0');
    return value;
}

/* The next sample; -1: there is none. */
static int64_t next_sample(cursor *c, bool text, int64_t most) {
    if (text) return next_number(c);
    int64_t bytes = most > 255 ? 2 : 1, value = 0;
    if (c->end - c->at < bytes) return -1;
    while (bytes--) value = value << 8 | *c->at++;
    return value;
}

/* The usual weights of luminance (ITU-R BT.601), in 1/256. */
static uint8_t grey_of(const uint8_t *rgb) {
    return (uint8_t)((77 * rgb[0] + 150 * rgb[1] + 29 * rgb[2] + 128) >> 8);
}

static strata_status read_samples(const char *name, cursor *c, bool text, int given, int64_t most, int channels,
                                  const strata_array *out, strata_error *err) {
    const int64_t n = out->shape.dims[0] * out->shape.dims[1];
    uint8_t *to = out->data;
    for (int64_t i = 0; i < n; i++) {
        uint8_t pixel[3];
        for (int k = 0; k < given; k++) {
            const int64_t value = next_sample(c, text, most);
            if (value < 0 || value > most)
                return strata_fail(err, STRATA_DATA,
                                   "%s: pixel %lld of %lld is missing or above %lld: it is cut off or damaged", name,
                                   (long long)i, (long long)n, (long long)most);
            pixel[k] = (uint8_t)((value * 255 + most / 2) / most);
        }
        for (int k = 0; k < channels; k++) *to++ = given == channels ? pixel[k] : given == 1 ? pixel[0] : grey_of(pixel);
    }
    return STRATA_OK;
}

static strata_status parse_netpbm(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                                  strata_error *err) {
    cursor c = {bytes + 2, bytes + n_bytes};
    const bool text = bytes[1] < '4';
    const int given = bytes[1] == '3' || bytes[1] == '6' ? 3 : 1;
    const int64_t columns = next_number(&c), rows = next_number(&c), most = next_number(&c);
    if (columns < 0 || rows < 0 || most < 1 || most > 65535 || c.at == c.end)
        return strata_fail(err, STRATA_DATA, "%s: its header has no width, height and largest value (1..65535)", name);
    c.at++; /* the one blank behind the header */
    STRATA_TRY(make_pixels(name, columns, rows, channels, out, err));
    strata_status status = read_samples(name, &c, text, given, most, channels, out, err);
    if (!status && !text && c.at != c.end)
        status = strata_fail(err, STRATA_DATA, "%s: %zu bytes too many behind its %lld x %lld pixels", name,
                             (size_t)(c.end - c.at), (long long)columns, (long long)rows);
    if (status) strata_array_finish(out);
    return status;
}

/* ---- PNG ---- */

static const unsigned char png_magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

#if STRATA_WITH_PNG
static strata_status parse_png(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                               strata_error *err) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    png_color white = {255, 255, 255};
    if (!png_image_begin_read_from_memory(&image, bytes, n_bytes))
        return strata_fail(err, STRATA_DATA, "%s: its PNG header is damaged: %s", name, image.message);
    strata_status status = make_pixels(name, image.width, image.height, channels, out, err);
    image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    image.flags |=
        PNG_IMAGE_FLAG_16BIT_sRGB; /* without it samples of 16 bits are taken for linear light, and come out brighter */
    if (!status && !png_image_finish_read(&image, &white, out->data, 0, NULL))
        status = strata_fail(err, STRATA_DATA, "%s: its PNG data is damaged: %s", name, image.message);
    png_image_free(&image);
    if (status) strata_array_finish(out);
    return status;
}
#else
static strata_status parse_png(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                               strata_error *err) {
    (void)bytes, (void)n_bytes, (void)channels, (void)out;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: is PNG, and this build has no libpng; build with libpng-dev, or give PGM or PPM", name);
}
#endif

static bool is_png(const unsigned char *head, size_t n) {
    return n >= sizeof png_magic && !memcmp(head, png_magic, sizeof png_magic);
}

static bool is_netpbm(const unsigned char *head, size_t n) {
    return n >= 3 && head[0] == 'P' && (head[1] == '2' || head[1] == '3' || head[1] == '5' || head[1] == '6') &&
           is_blank(head[2]);
}

bool strata_picture_matches(const void *head, size_t n) {
    return is_png(head, n) || is_netpbm(head, n);
}

strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels, strata_array *out_pixels,
                                   strata_error *err) {
    *out_pixels = (strata_array){0};
    if (channels != 1 && channels != 3)
        return strata_fail(err, STRATA_INVALID, "pictures: %d channels; 1 or 3 are possible", channels);
    if (is_png(bytes, n_bytes)) return parse_png(name, bytes, n_bytes, channels, out_pixels, err);
    if (is_netpbm(bytes, n_bytes)) return parse_netpbm(name, bytes, n_bytes, channels, out_pixels, err);
    return strata_fail(err, STRATA_UNSUPPORTED, "%s: is neither PNG nor PGM or PPM", name);
}
