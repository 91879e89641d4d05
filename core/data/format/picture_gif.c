/* SPDX-License-Identifier: Apache-2.0
 *
 * GIF, through giflib. The first picture of an animation is read. What it leaves free has the colour that is marked as
 * transparent, or else that of index 0. */
#if STRATA_WITH_GIF
#include <gif_lib.h>
#endif

#include "core/data/format/picture_formats.h"

#if STRATA_WITH_GIF
typedef struct reader {
    const unsigned char *at;
    size_t n_left;
} reader;

static int read_bytes(GifFileType *gif, GifByteType *out, int n) {
    reader *r = gif->UserData;
    const size_t some = (size_t)n < r->n_left ? (size_t)n : r->n_left;
    memcpy(out, r->at, some);
    r->at += some;
    r->n_left -= some;
    return (int)some;
}

/* Reads an extension. A graphics control extension names the transparent colour. Returns false if it is damaged. */
static bool read_extension(GifFileType *gif, int *out_transparent) {
    int code = 0;
    GifByteType *block = NULL;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return false;
    if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= 4 && block[1] & 1) *out_transparent = block[4];
    while (block)
        if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return false;
    return true;
}

/* Reads up to the first picture's pixels. transparent: the index of this colour, or -1. Returns false if there is none. */
static bool find_picture(GifFileType *gif, int *out_transparent) {
    GifRecordType type;
    *out_transparent = -1;
    while (DGifGetRecordType(gif, &type) == GIF_OK && type != TERMINATE_RECORD_TYPE) {
        if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
        if (type != EXTENSION_RECORD_TYPE || !read_extension(gif, out_transparent)) return false;
    }
    return false;
}

/* The colours of all 256 indexes. Those that the file does not list are grey. Returns whether all are grey. */
static bool list_colours(const GifFileType *gif, uint8_t colours[256][3]) {
    const ColorMapObject *map = gif->Image.ColorMap ? gif->Image.ColorMap : gif->SColorMap;
    bool grey = true;
    for (int i = 0; i < 256; i++) memset(colours[i], i, 3);
    for (int i = 0; map && i < map->ColorCount && i < 256; i++) {
        const GifColorType *c = &map->Colors[i];
        memcpy(colours[i], (uint8_t[]){c->Red, c->Green, c->Blue}, 3);
        grey &= c->Red == c->Green && c->Red == c->Blue;
    }
    return grey;
}

/* The picture may be larger than the screen that the header describes. */
static strata_picture_size size_of(const GifFileType *gif, bool grey) {
    const int64_t bottom = (int64_t)gif->Image.Top + gif->Image.Height, right = (int64_t)gif->Image.Left + gif->Image.Width;
    return (strata_picture_size){bottom > gif->SHeight ? bottom : gif->SHeight, right > gif->SWidth ? right : gif->SWidth,
                                 grey ? 1 : 3};
}

/* Reads the indexes of the picture's pixels, row by row. The rows of an interlaced picture come in four passes. */
static bool read_indexes(GifFileType *gif, strata_picture_size size, uint8_t *indexes) {
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    const int n_passes = gif->Image.Interlace ? 4 : 1;
    for (int pass = 0; pass < n_passes; pass++)
        for (int y = n_passes == 4 ? first[pass] : 0; y < gif->Image.Height; y += n_passes == 4 ? step[pass] : 1)
            if (DGifGetLine(gif, indexes + (gif->Image.Top + y) * size.columns + gif->Image.Left, gif->Image.Width) ==
                GIF_ERROR)
                return false;
    return true;
}

static strata_status read_pixels(const strata_picture_file *file, GifFileType *gif, strata_picture_size size, int transparent,
                                 uint8_t *pixels, strata_error *err) {
    uint8_t colours[256][3];
    const int64_t n = size.rows * size.columns;
    STRATA_FREED uint8_t *indexes = NULL;
    STRATA_TRY(STRATA_NEW(indexes, n, err, "%s: no host memory", file->name));
    list_colours(gif, colours);
    memset(indexes, transparent < 0 ? 0 : transparent, (size_t)n);
    const bool whole = read_indexes(gif, size, indexes);
    for (int64_t i = 0; i < n; i++) memcpy(pixels + i * size.channels, colours[indexes[i]], (size_t)size.channels);
    return whole ? STRATA_OK : strata_picture_damaged(file, "GIF data", GifErrorString(gif->Error), err);
}

/* Reads the header and, if pixels is not NULL, the pixels. */
strata_status strata_picture_read_gif(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                      strata_error *err) {
    reader r = {file->bytes, file->n_bytes};
    uint8_t colours[256][3];
    int error = 0, transparent;
    GifFileType *gif = DGifOpen(&r, read_bytes, &error);
    if (!gif) return strata_picture_damaged(file, "GIF header", GifErrorString(error), err);
    strata_status status = STRATA_OK;
    if (!find_picture(gif, &transparent))
        status = strata_picture_damaged(file, "GIF data", gif->Error ? GifErrorString(gif->Error) : "it has no picture", err);
    else if (pixels)
        status = read_pixels(file, gif, *size, transparent, pixels, err);
    else
        *size = size_of(gif, list_colours(gif, colours));
    DGifCloseFile(gif, &error);
    return status;
}
#endif
