/* SPDX-License-Identifier: Apache-2.0
 *
 * TIFF, through libtiff: the first picture of a file. Grey, colours, palettes and inks (CMYK) of up to 16 bits are converted
 * here. Samples of 16 bits lose their lower byte, and transparency is ignored. libtiff itself converts the other kinds of
 * colours, such as YCbCr and CIE L*a*b*. */
#if STRATA_WITH_TIFF
#include <tiffio.h>
#endif

#include "core/base/locale.h"
#include "core/data/format/picture_formats.h"

#if STRATA_WITH_TIFF
enum {
    /* More samples of a pixel are not read. */
    MOST_SAMPLES = 4,
    MOST_BLOCK_BYTES = 1 << 29,
    /* A tile may be larger than the picture, but not by more pixels in a direction. */
    MOST_BEYOND = 4096
};

/* The file in memory, and the first message of libtiff about it. */
typedef struct source {
    const strata_picture_file *file;
    size_t at;
    char message[96];
} source;

static tmsize_t read_bytes(thandle_t handle, void *out, tmsize_t n) {
    source *s = handle;
    const size_t n_left = s->at < s->file->n_bytes ? s->file->n_bytes - s->at : 0;
    const size_t some = n < 0 ? 0 : (size_t)n < n_left ? (size_t)n : n_left;
    memcpy(out, s->file->bytes + s->at, some);
    s->at += some;
    return (tmsize_t)some;
}

static tmsize_t write_bytes(thandle_t handle, void *bytes, tmsize_t n) {
    (void)handle, (void)bytes, (void)n;
    return 0;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence) {
    source *s = handle;
    const toff_t from = whence == SEEK_CUR ? s->at : whence == SEEK_END ? s->file->n_bytes : 0;
    s->at = (size_t)(from + offset);
    return s->at;
}

static int close_nothing(thandle_t handle) {
    (void)handle;
    return 0;
}

static toff_t size_of_file(thandle_t handle) {
    return ((source *)handle)->file->n_bytes;
}

/* Keeps the first error, and stops libtiff from printing it. */
static int keep_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    source *s = user;
    (void)tiff, (void)module;
    if (!s->message[0]) strata_format_v(s->message, sizeof s->message, format, arguments);
    return 1;
}

static int ignore_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    (void)tiff, (void)user, (void)module, (void)format, (void)arguments;
    return 1;
}

static TIFF *open_source(source *s) {
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) return NULL;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_BLOCK_BYTES);
    TIFFOpenOptionsSetErrorHandlerExtR(options, keep_error, s);
    TIFFOpenOptionsSetWarningHandlerExtR(options, ignore_warning, s);
    /* "m": libtiff must not map the file. */
    TIFF *tiff = TIFFClientOpenExt(s->file->name, "rm", s, read_bytes, write_bytes, seek, close_nothing, size_of_file, NULL,
                                   NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
}

typedef struct layout {
    uint32_t columns, rows;
    uint16_t bits, n_samples, photometric, planes, sample_format;
    /* Samples that are read: those of a grey value, palette index, colour or ink, and then transparency. */
    int n_used;
    /* Colours were multiplied by the transparency, which is sample n_colours. */
    bool multiplied;
    int n_colours;
    uint16_t *palette[3];
    /* libtiff converts the pixels. */
    bool by_libtiff;
} layout;

static strata_status read_layout(TIFF *tiff, const source *s, layout *l, strata_error *err) {
    uint16_t compression = 0, n_extra = 0, *extra = NULL;
    *l = (layout){0};
    if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &l->columns) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &l->rows))
        return strata_picture_damaged(s->file, "TIFF header", "it has no width and height", err);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &l->bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &l->n_samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &l->planes);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &l->sample_format);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &n_extra, &extra);
    if (!TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &l->photometric))
        l->photometric = l->n_samples < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB;
    if (compression == COMPRESSION_JPEG && l->photometric == PHOTOMETRIC_YCBCR) {
        TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
        l->photometric = PHOTOMETRIC_RGB;
    }
    const bool whole = l->sample_format == SAMPLEFORMAT_UINT || l->sample_format == SAMPLEFORMAT_VOID;
    const bool wide = l->bits == 8 || l->bits == 16, narrow = l->bits == 1 || l->bits == 2 || l->bits == 4;
    const bool grey = l->photometric == PHOTOMETRIC_MINISBLACK || l->photometric == PHOTOMETRIC_MINISWHITE;
    const bool indexed = l->photometric == PHOTOMETRIC_PALETTE && l->bits <= 8 &&
                         TIFFGetField(tiff, TIFFTAG_COLORMAP, &l->palette[0], &l->palette[1], &l->palette[2]);
    l->n_colours = grey || indexed ? 1 : l->photometric == PHOTOMETRIC_RGB ? 3 : 4;
    l->multiplied = n_extra && extra[0] == EXTRASAMPLE_ASSOCALPHA && l->n_samples > l->n_colours && !indexed &&
                    l->photometric != PHOTOMETRIC_SEPARATED;
    l->n_used = l->n_colours + l->multiplied;
    const bool colours = l->photometric == PHOTOMETRIC_RGB || l->photometric == PHOTOMETRIC_SEPARATED;
    if (whole && l->n_samples >= l->n_used && (grey || indexed ? wide || narrow : colours && wide)) return STRATA_OK;
    char reason[1024];
    l->by_libtiff = true;
    if (whole && TIFFRGBAImageOK(tiff, reason)) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: is TIFF with %u samples of %u bits a pixel%s, colours of kind %u and compression %u, which is not "
                       "read; save it as PNG, or as TIFF with 8 bits",
                       s->file->name, l->n_samples, l->bits,
                       whole                                     ? ""
                       : l->sample_format == SAMPLEFORMAT_IEEEFP ? " (floating-point)"
                       : l->sample_format == SAMPLEFORMAT_INT    ? " (signed)"
                                                                 : " (complex)",
                       l->photometric, compression);
}

/* Sample number i of a row, as 8 bits; an index of a palette is returned as it is. */
static uint8_t sample_of(const uint8_t *row, size_t i, int bits, bool index) {
    if (bits == 8) return row[i];
    if (bits == 16) {
        uint16_t value;
        memcpy(&value, row + 2 * i, sizeof value);
        return (uint8_t)(value >> 8);
    }
    const int most = (1 << bits) - 1, value = row[i * (size_t)bits / 8] >> (8 - bits - (int)(i * (size_t)bits % 8)) & most;
    return (uint8_t)(index ? value : value * 255 / most);
}

/* A strip or a tile, whose samples are those of all pixels, or of the plane `plane`. */
typedef struct block {
    uint32_t x, y, columns, rows;
    int plane;
    size_t row_bytes;
    const uint8_t *bytes;
} block;

/* Copies the samples of a block to samples[row][column][n_used]. */
static void place_block(const layout *l, const block *b, uint8_t *samples) {
    const bool index = l->photometric == PHOTOMETRIC_PALETTE, apart = l->planes == PLANARCONFIG_SEPARATE;
    for (uint32_t y = 0; y < b->rows && b->y + y < l->rows; y++)
        for (uint32_t x = 0; x < b->columns && b->x + x < l->columns; x++) {
            uint8_t *to = samples + ((size_t)(b->y + y) * l->columns + b->x + x) * (size_t)l->n_used;
            const uint8_t *row = b->bytes + y * b->row_bytes;
            if (apart)
                to[b->plane] = sample_of(row, x, l->bits, index);
            else
                for (int k = 0; k < l->n_used; k++)
                    to[k] = sample_of(row, (size_t)x * l->n_samples + (size_t)k, l->bits, index);
        }
}

static strata_status damaged(const source *s, strata_error *err) {
    return strata_picture_damaged(s->file, "TIFF data", s->message[0] ? s->message : NULL, err);
}

/* Reads all strips or tiles. */
static strata_status read_samples(TIFF *tiff, const source *s, const layout *l, uint8_t *samples, strata_error *err) {
    const bool tiled = TIFFIsTiled(tiff);
    block b = {.columns = l->columns};
    b.row_bytes = (size_t)(tiled ? TIFFTileRowSize(tiff) : TIFFScanlineSize(tiff));
    if (tiled) {
        TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &b.columns);
        TIFFGetField(tiff, TIFFTAG_TILELENGTH, &b.rows);
    } else {
        TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &b.rows);
        if (b.rows > l->rows) b.rows = l->rows;
    }
    const size_t n_row_samples = (size_t)b.columns * (l->planes == PLANARCONFIG_SEPARATE ? 1 : l->n_samples);
    const tmsize_t n_bytes = tiled ? TIFFTileSize(tiff) : TIFFStripSize(tiff);
    if (!b.columns || !b.rows || b.columns > l->columns + MOST_BEYOND || b.rows > l->rows + MOST_BEYOND || n_bytes <= 0 ||
        n_bytes > MOST_BLOCK_BYTES || b.row_bytes < (n_row_samples * l->bits + 7) / 8 || (size_t)n_bytes / b.row_bytes < b.rows)
        return damaged(s, err);
    STRATA_FREED uint8_t *bytes = NULL;
    STRATA_TRY(STRATA_NEW(bytes, n_bytes, err, "%s: no host memory", s->file->name));
    b.bytes = bytes;
    const int n_planes = l->planes == PLANARCONFIG_SEPARATE ? l->n_used : 1;
    bool whole = true;
    for (b.plane = 0; b.plane < n_planes && whole; b.plane++)
        for (b.y = 0; b.y < l->rows && whole; b.y += b.rows)
            for (b.x = 0; b.x < l->columns && whole; b.x += b.columns) {
                const uint16_t plane = (uint16_t)b.plane;
                const tmsize_t got = tiled
                                         ? TIFFReadEncodedTile(tiff, TIFFComputeTile(tiff, b.x, b.y, 0, plane), bytes, n_bytes)
                                         : TIFFReadEncodedStrip(tiff, TIFFComputeStrip(tiff, b.y, plane), bytes, n_bytes);
                const size_t n_rows = tiled || l->rows - b.y > b.rows ? b.rows : l->rows - b.y;
                whole = got >= 0 && (size_t)got >= n_rows * b.row_bytes;
                if (whole) place_block(l, &b, samples);
            }
    return whole ? STRATA_OK : damaged(s, err);
}

static void convert(const layout *l, const uint8_t *samples, uint8_t *pixels) {
    const int64_t n = (int64_t)l->rows * l->columns;
    if (l->photometric == PHOTOMETRIC_SEPARATED) {
        strata_picture_from_cmyk(samples, n, pixels);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *from = samples + i * l->n_used;
        if (l->photometric == PHOTOMETRIC_PALETTE) {
            for (int k = 0; k < 3; k++) *pixels++ = (uint8_t)(l->palette[k][from[0]] >> 8);
            continue;
        }
        for (int k = 0; k < l->n_colours; k++) {
            int value = l->photometric == PHOTOMETRIC_MINISWHITE ? 255 - from[k] : from[k];
            if (l->multiplied) value = from[l->n_colours] ? value * 255 / from[l->n_colours] : 0;
            *pixels++ = (uint8_t)(value > 255 ? 255 : value);
        }
    }
}

/* Asks libtiff for the rows as the file orders them, so that it turns nothing. */
static strata_status read_by_libtiff(TIFF *tiff, const source *s, const layout *l, uint8_t *pixels, strata_error *err) {
    uint16_t orientation = ORIENTATION_TOPLEFT;
    const size_t n = (size_t)l->rows * l->columns;
    STRATA_FREED uint32_t *raster = NULL;
    STRATA_TRY(STRATA_NEW(raster, n, err, "%s: no host memory", s->file->name));
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
    const bool whole = TIFFReadRGBAImageOriented(tiff, l->columns, l->rows, raster, orientation, 1);
    for (size_t i = 0; i < n && whole; i++) {
        *pixels++ = (uint8_t)TIFFGetR(raster[i]);
        *pixels++ = (uint8_t)TIFFGetG(raster[i]);
        *pixels++ = (uint8_t)TIFFGetB(raster[i]);
    }
    return whole ? STRATA_OK : damaged(s, err);
}

static strata_status read_pixels(TIFF *tiff, const source *s, const layout *l, uint8_t *pixels, strata_error *err) {
    if (l->by_libtiff) return read_by_libtiff(tiff, s, l, pixels, err);
    STRATA_FREED uint8_t *samples = NULL;
    STRATA_TRY(STRATA_NEW(samples, (size_t)l->rows * l->columns * (size_t)l->n_used, err, "%s: no host memory", s->file->name));
    STRATA_TRY(read_samples(tiff, s, l, samples, err));
    convert(l, samples, pixels);
    return STRATA_OK;
}

/* Reads the header and, if pixels is not NULL, the pixels. */
strata_status strata_picture_read_tiff(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                       strata_error *err) {
    source s = {.file = file};
    layout l;
    TIFF *tiff = open_source(&s);
    if (!tiff) return strata_picture_damaged(file, "TIFF header", s.message[0] ? s.message : NULL, err);
    strata_status status = read_layout(tiff, &s, &l, err);
    if (!status && pixels)
        status = read_pixels(tiff, &s, &l, pixels, err);
    else if (!status)
        *size = (strata_picture_size){l.rows, l.columns,
                                      l.n_colours == 1 && !l.by_libtiff && l.photometric != PHOTOMETRIC_PALETTE ? 1 : 3};
    TIFFClose(tiff);
    return status;
}
#endif
