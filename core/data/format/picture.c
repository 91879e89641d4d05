/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading pictures. The table `formats` at the end finds the format by the first bytes of a file. */
#include "core/data/format/picture.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#if STRATA_WITH_PNG
#include <png.h>
#endif
#if STRATA_WITH_JPEG
#include <turbojpeg.h>
#endif
#if STRATA_WITH_WEBP
#include <webp/decode.h>
#endif

#include "core/data/format/exif.h"

enum { MOST_SIDE = 1 << 15, MOST_PIXELS = 1 << 26 };

bool strata_picture_is_named(const char *path) {
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".webp", ".pgm", ".ppm"};
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending && i < sizeof endings / sizeof *endings; i++)
        if (!strcasecmp(ending, endings[i])) return true;
    return false;
}

static strata_status check_size(const char *name, int64_t columns, int64_t rows, strata_error *err) {
    if (columns >= 1 && rows >= 1 && columns <= MOST_SIDE && rows <= MOST_SIDE && columns * rows <= MOST_PIXELS)
        return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: is %lld x %lld pixels; a picture has 1 to %d a side and at most %d in all", name,
                       (long long)columns, (long long)rows, MOST_SIDE, MOST_PIXELS);
}

static strata_status make_pixels(const char *name, int64_t columns, int64_t rows, int channels, strata_array *out,
                                 strata_error *err) {
    STRATA_TRY(check_size(name, columns, rows, err));
    return strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(rows, columns, channels), out, err);
}

/* ---- netpbm: P2 and P5 are grey, P3 and P6 are colours; samples of 8 or 16 bits are scaled to 0..255 ---- */

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static bool is_blank(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads the next number, after skipping white space and comments. Returns -1 if there is none. */
static int64_t next_number(cursor *c) {
    while (c->at < c->end && (is_blank(*c->at) || *c->at == '#'))
        if (*c->at++ == '#')
            while (c->at < c->end && *c->at != '\n') c->at++;
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

/* Luminance by the weights of ITU-R BT.601, in units of 1/256. */
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
    c.at++; /* exactly one white-space character ends the header */
    STRATA_TRY(make_pixels(name, columns, rows, channels, out, err));
    strata_status status = read_samples(name, &c, text, given, most, channels, out, err);
    if (!status && !text && c.at != c.end)
        status = strata_fail(err, STRATA_DATA, "%s: %zu bytes too many after its %lld x %lld pixels", name,
                             (size_t)(c.end - c.at), (long long)columns, (long long)rows);
    if (status) strata_array_finish(out);
    return status;
}

static strata_status size_netpbm(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                                 strata_error *err) {
    cursor c = {bytes + 2, bytes + n_bytes};
    out->columns = next_number(&c);
    out->rows = next_number(&c);
    out->channels = bytes[1] == '3' || bytes[1] == '6' ? 3 : 1;
    if (out->columns >= 0 && out->rows >= 0) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: its header has no width and height", name);
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
    /* Without this flag libpng treats samples of 16 bits as linear light, and the pixels become brighter. */
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    if (!status && !png_image_finish_read(&image, &white, out->data, 0, NULL))
        status = strata_fail(err, STRATA_DATA, "%s: its PNG data is damaged: %s", name, image.message);
    png_image_free(&image);
    if (status) strata_array_finish(out);
    return status;
}

static strata_status size_png(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                              strata_error *err) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, n_bytes))
        return strata_fail(err, STRATA_DATA, "%s: its PNG header is damaged: %s", name, image.message);
    *out = (strata_picture_size){image.height, image.width, image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1};
    png_image_free(&image);
    return STRATA_OK;
}
#else
static strata_status parse_png(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                               strata_error *err) {
    (void)bytes, (void)n_bytes, (void)channels, (void)out;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: is PNG, and this build has no libpng; build with libpng-dev, or convert it to PGM or PPM", name);
}

static strata_status size_png(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                              strata_error *err) {
    (void)out;
    return parse_png(name, bytes, n_bytes, 1, NULL, err);
}
#endif

/* ---- JPEG ---- */

#if STRATA_WITH_JPEG
static strata_status damaged_jpeg(const char *name, tjhandle decoder, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "%s: its JPEG data is damaged: %s", name, tjGetErrorStr2(decoder));
}

/* Reads the size from the header with the caller's decoder. */
static strata_status read_jpeg_header(const char *name, const unsigned char *bytes, size_t n_bytes, tjhandle decoder,
                                      strata_picture_size *out, strata_error *err) {
    int width = 0, height = 0, sampling = 0, space = 0;
    if (tjDecompressHeader3(decoder, bytes, (unsigned long)n_bytes, &width, &height, &sampling, &space) || width < 1 ||
        height < 1)
        return damaged_jpeg(name, decoder, err);
    if (space == TJCS_CMYK || space == TJCS_YCCK)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: is JPEG for print (CMYK); save it in RGB", name);
    *out = (strata_picture_size){height, width, space == TJCS_GRAY ? 1 : 3};
    return STRATA_OK;
}

static strata_status size_jpeg(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                               strata_error *err) {
    tjhandle decoder = tjInitDecompress();
    if (!decoder) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    strata_status status = read_jpeg_header(name, bytes, n_bytes, decoder, out, err);
    tjDestroy(decoder);
    if (strata_exif_orientation(bytes, n_bytes) >= 5)
        *out = (strata_picture_size){.rows = out->columns, .columns = out->rows, .channels = out->channels};
    return status;
}

static strata_status parse_jpeg(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                                strata_error *err) {
    strata_picture_size size = {0};
    tjhandle decoder = tjInitDecompress();
    if (!decoder) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    strata_status status = read_jpeg_header(name, bytes, n_bytes, decoder, &size, err);
    if (!status) status = make_pixels(name, size.columns, size.rows, channels, out, err);
    if (!status && tjDecompress2(decoder, bytes, (unsigned long)n_bytes, out->data, (int)size.columns, 0, (int)size.rows,
                                 channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT))
        status = damaged_jpeg(name, decoder, err);
    tjDestroy(decoder);
    if (!status) status = strata_exif_turn(name, strata_exif_orientation(bytes, n_bytes), out, err);
    if (status) strata_array_finish(out);
    return status;
}
#else
static strata_status size_jpeg(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                               strata_error *err) {
    (void)bytes, (void)n_bytes, (void)out;
    return strata_fail(
        err, STRATA_UNSUPPORTED,
        "%s: is JPEG, and this build has no libturbojpeg; build with libturbojpeg0-dev, or convert it to PGM or PPM", name);
}

static strata_status parse_jpeg(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                                strata_error *err) {
    (void)channels, (void)out;
    return size_jpeg(name, bytes, n_bytes, NULL, err);
}
#endif

/* ---- WebP ---- */

#if STRATA_WITH_WEBP
static strata_status size_webp(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                               strata_error *err) {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(bytes, n_bytes, &features) != VP8_STATUS_OK)
        return strata_fail(err, STRATA_DATA, "%s: its WebP header is damaged or cut off", name);
    if (features.has_animation)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: is an animation; extract single pictures", name);
    *out = (strata_picture_size){features.height, features.width, 3};
    return STRATA_OK;
}

static strata_status parse_webp(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                                strata_error *err) {
    strata_picture_size size = {0};
    int width = 0, height = 0;
    STRATA_TRY(size_webp(name, bytes, n_bytes, &size, err));
    STRATA_TRY(make_pixels(name, size.columns, size.rows, channels, out, err));
    uint8_t *rgba = WebPDecodeRGBA(bytes, n_bytes, &width, &height);
    if (!rgba || width != size.columns || height != size.rows) {
        WebPFree(rgba);
        strata_array_finish(out);
        return strata_fail(err, STRATA_DATA, "%s: its WebP data is damaged or cut off", name);
    }
    uint8_t *to = out->data;
    for (int64_t i = 0; i < size.rows * size.columns; i++) {
        uint8_t pixel[3];
        const int opaque = rgba[4 * i + 3];
        for (int k = 0; k < 3; k++) pixel[k] = (uint8_t)((rgba[4 * i + k] * opaque + 255 * (255 - opaque) + 127) / 255);
        for (int k = 0; k < channels; k++) *to++ = channels == 1 ? grey_of(pixel) : pixel[k];
    }
    WebPFree(rgba);
    return STRATA_OK;
}
#else
static strata_status size_webp(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                               strata_error *err) {
    (void)bytes, (void)n_bytes, (void)out;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: is WebP, and this build has no libwebp; build with libwebp-dev, or convert it to PGM or PPM", name);
}

static strata_status parse_webp(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                                strata_error *err) {
    (void)channels, (void)out;
    return size_webp(name, bytes, n_bytes, NULL, err);
}
#endif

/* ---- finding the format ---- */

static bool is_png(const unsigned char *head, size_t n) {
    return n >= sizeof png_magic && !memcmp(head, png_magic, sizeof png_magic);
}

static bool is_netpbm(const unsigned char *head, size_t n) {
    return n >= 3 && head[0] == 'P' && (head[1] == '2' || head[1] == '3' || head[1] == '5' || head[1] == '6') &&
           is_blank(head[2]);
}

static bool is_jpeg(const unsigned char *head, size_t n) {
    return n >= 3 && head[0] == 0xFF && head[1] == 0xD8 && head[2] == 0xFF;
}

static bool is_webp(const unsigned char *head, size_t n) {
    return n >= 12 && !memcmp(head, "RIFF", 4) && !memcmp(head + 8, "WEBP", 4);
}

static const struct {
    bool (*matches)(const unsigned char *head, size_t n);
    strata_status (*size)(const char *name, const unsigned char *bytes, size_t n_bytes, strata_picture_size *out,
                          strata_error *err);
    strata_status (*parse)(const char *name, const unsigned char *bytes, size_t n_bytes, int channels, strata_array *out,
                           strata_error *err);
} formats[] = {{is_png, size_png, parse_png},
               {is_jpeg, size_jpeg, parse_jpeg},
               {is_webp, size_webp, parse_webp},
               {is_netpbm, size_netpbm, parse_netpbm}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* The index of the format in `formats`; N_FORMATS: it is none of these. */
static int format_of(const unsigned char *head, size_t n) {
    int f = 0;
    while (f < N_FORMATS && !formats[f].matches(head, n)) f++;
    return f;
}

bool strata_picture_matches(const void *head, size_t n) {
    return format_of(head, n) < N_FORMATS;
}

static strata_status unknown_format(const char *name, strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED, "%s: is neither PNG, JPEG, WebP, PGM nor PPM: it is damaged, or not a picture",
                       name);
}

strata_status strata_picture_measure(const char *name, const void *bytes, size_t n_bytes, strata_picture_size *out_size,
                                     strata_error *err) {
    const int f = format_of(bytes, n_bytes);
    *out_size = (strata_picture_size){0};
    if (f == N_FORMATS) return unknown_format(name, err);
    STRATA_TRY(formats[f].size(name, bytes, n_bytes, out_size, err));
    return check_size(name, out_size->columns, out_size->rows, err);
}

strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels, strata_array *out_pixels,
                                   strata_error *err) {
    const int f = format_of(bytes, n_bytes);
    *out_pixels = (strata_array){0};
    if (channels != 1 && channels != 3)
        return strata_fail(err, STRATA_INVALID, "pictures: %d channels; 1 or 3 are possible", channels);
    return f < N_FORMATS ? formats[f].parse(name, bytes, n_bytes, channels, out_pixels, err) : unknown_format(name, err);
}
