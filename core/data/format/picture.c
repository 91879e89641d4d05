/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading pictures. The table `signatures` finds the format by the first bytes of a file, whatever the file is called. */

#include "core/base/ascii.h"
#include "core/data/format/picture_formats.h"

/* What is read. library: that which reads the format, and its Debian package; NULL: this library reads it by itself. read NULL:
 * this build lacks the library. */
static const struct {
    const char *name, *library, *package;
    strata_picture_reader *read;
} readers[] = {{"PNG", "libpng", "libpng-dev", STRATA_WITH_PNG ? strata_picture_read_png : NULL},
               {"JPEG", "libturbojpeg", "libturbojpeg0-dev", STRATA_WITH_JPEG ? strata_picture_read_jpeg : NULL},
               {"WebP", "libwebp", "libwebp-dev", STRATA_WITH_WEBP ? strata_picture_read_webp : NULL},
               {"GIF", "giflib", "libgif-dev", STRATA_WITH_GIF ? strata_picture_read_gif : NULL},
               {"TIFF", "libtiff", "libtiff-dev (4.5 or newer)", STRATA_WITH_TIFF ? strata_picture_read_tiff : NULL},
               {"BMP", NULL, NULL, strata_picture_read_bmp},
               {"PBM, PGM or PPM", NULL, NULL, strata_picture_read_netpbm}};

/* The first bytes of a file, from `offset` on, and the name of its format; also of formats that are not read. */
static const struct {
    const char *name;
    int offset;
    const char *bytes;
    int n_bytes;
} signatures[] = {{"PNG", 0, "\x89PNG\r\n\x1A\n", 8},
                  {"JPEG", 0, "\xFF\xD8\xFF", 3},
                  {"GIF", 0, "GIF87a", 6},
                  {"GIF", 0, "GIF89a", 6},
                  {"TIFF", 0, "II*\0", 4},
                  {"TIFF", 0, "MM\0*", 4},
                  {"TIFF", 0, "II+\0", 4},
                  {"TIFF", 0, "MM\0+", 4},
                  {"AVIF", 4, "ftypavif", 8},
                  {"AVIF", 4, "ftypavis", 8},
                  {"HEIC", 4, "ftyphei", 7},
                  {"HEIC", 4, "ftyphev", 7},
                  {"HEIC", 4, "ftypmif1", 8},
                  {"HEIC", 4, "ftypmsf1", 8},
                  {"JPEG XL", 0, "\xFF\x0A", 2},
                  {"JPEG XL", 0, "\0\0\0\x0CJXL ", 8},
                  {"JPEG 2000", 0, "\0\0\0\x0CjP  ", 8},
                  {"JPEG 2000", 0, "\xFF\x4F\xFF\x51", 4},
                  {"Photoshop (PSD)", 0, "8BPS", 4},
                  {"a Windows icon (ICO)", 0, "\0\0\1\0", 4},
                  {"SVG", 0, "<svg", 4},
                  {"PDF", 0, "%PDF-", 5},
                  {"PostScript", 0, "%!PS", 4},
                  {"DDS", 0, "DDS ", 4},
                  {"OpenEXR", 0, "\x76\x2F\x31\x01", 4},
                  {"Radiance HDR", 0, "#?RADIANCE", 10},
                  {"PAM", 0, "P7\nWIDTH", 8}};

static bool ends_in(const char *path, const char *const *endings, size_t n) {
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending && i < n; i++)
        if (strata_ascii_same(ending + 1, endings[i])) return true;
    return false;
}

bool strata_picture_is_named(const char *path) {
    static const char *const endings[] = {"png", "apng", "jpg", "jpeg", "jpe", "jfif", "webp", "gif",
                                          "tif", "tiff", "bmp", "dib",  "pbm", "pgm",  "ppm",  "pnm"};
    return ends_in(path, endings, sizeof endings / sizeof *endings);
}

bool strata_picture_is_foreign(const char *path) {
    static const char *const endings[] = {"heic", "heif", "avif", "jxl", "jp2", "j2k", "psd", "ico", "svg",
                                          "svgz", "tga",  "dds",  "exr", "hdr", "eps", "pcx", "raw", "dng",
                                          "cr2",  "nef",  "arw",  "pam", "pfm", "xcf", "pdf", "dcm"};
    return ends_in(path, endings, sizeof endings / sizeof *endings);
}

static strata_status check_size(const char *name, int64_t columns, int64_t rows, strata_error *err) {
    enum { MOST_SIDE = STRATA_PICTURE_MOST_SIDE, MOST_PIXELS = STRATA_PICTURE_MOST_PIXELS };
    if (columns >= 1 && rows >= 1 && columns <= MOST_SIDE && rows <= MOST_SIDE && columns * rows <= MOST_PIXELS)
        return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: is %lld x %lld pixels; a picture has 1 to %d a side and at most %d in all", name,
                       (long long)columns, (long long)rows, MOST_SIDE, MOST_PIXELS);
}

strata_status strata_picture_damaged(const strata_picture_file *file, const char *what, const char *reason, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "%s: its %s is damaged or cut off%s%s", file->name, what, reason ? ": " : "",
                       reason ? reason : "");
}

void strata_picture_from_cmyk(const uint8_t *cmyk, int64_t n, uint8_t *rgb) {
    for (int64_t i = 0; i < n; i++, cmyk += 4)
        for (int k = 0; k < 3; k++) {
            /* black's share times the ink, divided by 255 and rounded */
            const int light = 255 - cmyk[3], product = cmyk[k] * light + 128, ink = (product + (product >> 8)) >> 8;
            *rgb++ = (uint8_t)(light > ink ? light - ink : 0);
        }
}

/* ---- finding the format ---- */

/* The name of the format; NULL: it is none of these. */
static const char *format_of(const unsigned char *head, size_t n) {
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const size_t offset = (size_t)signatures[i].offset, n_bytes = (size_t)signatures[i].n_bytes;
        if (n >= offset + n_bytes && !memcmp(head + offset, signatures[i].bytes, n_bytes)) return signatures[i].name;
    }
    if (n >= 12 && !memcmp(head, "RIFF", 4) && !memcmp(head + 8, "WEBP", 4)) return "WebP";
    return strata_picture_is_bmp(head, n) ? "BMP" : strata_picture_is_netpbm(head, n) ? "PBM, PGM or PPM" : NULL;
}

bool strata_picture_matches(const void *head, size_t n) {
    return format_of(head, n) != NULL;
}

/* Finds the reader of the picture, and reads its header. */
static strata_status measure(const strata_picture_file *file, strata_picture_reader **out, strata_picture_size *size,
                             strata_error *err) {
    const char *name = format_of(file->bytes, file->n_bytes);
    const size_t n = sizeof readers / sizeof *readers;
    size_t r = 0;
    while (name && r < n && strcmp(readers[r].name, name)) r++;
    if (!name && !file->n_bytes) return strata_fail(err, STRATA_UNSUPPORTED, "%s: is empty", file->name);
    if (!name)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s: is none of " STRATA_PICTURE_FORMATS ": it is damaged, or not a picture", file->name);
    if (r == n)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: is %s, which is not read; convert it to PNG or JPEG", file->name,
                           name);
    if (!readers[r].read)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s: is %s, and this build has no %s; build with %s, or convert it to a format that is built in",
                           file->name, name, readers[r].library, readers[r].package);
    *out = readers[r].read;
    STRATA_TRY(readers[r].read(file, size, NULL, err));
    return check_size(file->name, size->columns, size->rows, err);
}

/* ---- reading ---- */

/* Luminance by the weights of ITU-R BT.601, in units of 1/65536, as Pillow computes it. */
static uint8_t grey_of(const uint8_t *rgb) {
    return (uint8_t)((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16);
}

/* Converts grey pixels to colours, or colours to grey. */
static strata_status change_channels(strata_array *pixels, int channels, strata_error *err) {
    const int64_t rows = pixels->shape.dims[0], columns = pixels->shape.dims[1];
    strata_array changed;
    if (pixels->shape.dims[2] == channels) return STRATA_OK;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(rows, columns, channels), &changed, err));
    const uint8_t *from = pixels->data;
    uint8_t *to = changed.data;
    for (int64_t i = 0; i < rows * columns; i++) {
        if (channels == 1)
            to[i] = grey_of(from + 3 * i);
        else
            memset(to + 3 * i, from[i], 3);
    }
    strata_array_finish(pixels);
    *pixels = changed;
    return STRATA_OK;
}

strata_status strata_picture_measure(const char *name, const void *bytes, size_t n_bytes, strata_picture_size *out_size,
                                     strata_error *err) {
    const strata_picture_file file = {name, bytes, n_bytes};
    strata_picture_reader *read;
    strata_picture_size size = {0};
    *out_size = size;
    STRATA_TRY(measure(&file, &read, &size, err));
    const bool turned = strata_exif_orientation(bytes, n_bytes) >= 5;
    *out_size = (strata_picture_size){turned ? size.columns : size.rows, turned ? size.rows : size.columns, size.channels};
    return STRATA_OK;
}

strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels, strata_array *out_pixels,
                                   strata_error *err) {
    const strata_picture_file file = {name, bytes, n_bytes};
    strata_picture_reader *read;
    strata_picture_size size;
    STRATA_FINISHED(strata_array) pixels = {0};
    *out_pixels = pixels;
    if (channels != 1 && channels != 3)
        return strata_fail(err, STRATA_INVALID, "pictures: %d channels; 1 or 3 are possible", channels);
    STRATA_TRY(measure(&file, &read, &size, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(size.rows, size.columns, size.channels), &pixels, err));
    STRATA_TRY(read(&file, &size, pixels.data, err));
    STRATA_TRY(strata_exif_turn(name, strata_exif_orientation(bytes, n_bytes), &pixels, err));
    STRATA_TRY(change_channels(&pixels, channels, err));
    *out_pixels = pixels;
    pixels.owned = NULL;
    return STRATA_OK;
}
