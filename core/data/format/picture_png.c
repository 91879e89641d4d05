/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG, through libpng. Samples of 16 bits lose their lower byte. Colours are not corrected by the file's gamma value, and
 * transparency is ignored, as Pillow's convert("RGB") and TensorFlow's decode_png do. An animation's first picture is read. */
#include <setjmp.h>
#include <stdio.h>
#if STRATA_WITH_PNG
#include <png.h>
#endif

#include "core/data/format/picture_formats.h"

#if STRATA_WITH_PNG
enum { MOST_CHUNK_BYTES = 8 << 20 };

typedef struct reader {
    const unsigned char *at;
    size_t n_left;
    jmp_buf failed;
    char message[96];
} reader;

static void read_bytes(png_structp png, png_bytep out, png_size_t n) {
    reader *r = png_get_io_ptr(png);
    if (n > r->n_left) png_error(png, "it ends too early");
    memcpy(out, r->at, n);
    r->at += n;
    r->n_left -= n;
}

static void fail(png_structp png, png_const_charp message) {
    reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    longjmp(r->failed, 1);
}

static void ignore(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

/* Reads the header and, if pixels is not NULL, the pixels. libpng leaves this function by longjmp when it fails. */
static void read_all(png_structp png, png_infop info, reader *r, strata_picture_size *size, uint8_t *pixels) {
    png_set_read_fn(png, r, read_bytes);
    png_set_user_limits(png, STRATA_PICTURE_MOST_SIDE, STRATA_PICTURE_MOST_SIDE);
    png_set_chunk_malloc_max(png, MOST_CHUNK_BYTES);
    png_read_info(png, info);
    const int type = png_get_color_type(png, info);
    if (!pixels) {
        *size = (strata_picture_size){png_get_image_height(png, info), png_get_image_width(png, info),
                                      type & PNG_COLOR_MASK_COLOR ? 3 : 1};
        return;
    }
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    const int n_passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const size_t row_bytes = (size_t)(size->columns * size->channels);
    if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "its rows have another length than its header says");
    for (int pass = 0; pass < n_passes; pass++)
        for (int64_t y = 0; y < size->rows; y++) png_read_row(png, pixels + (size_t)y * row_bytes, NULL);
}

strata_status strata_picture_read_png(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                      strata_error *err) {
    reader r = {.at = file->bytes, .n_left = file->n_bytes};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, ignore);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    strata_status status = STRATA_OK;
    if (!info)
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", file->name);
    else if (setjmp(r.failed))
        status = strata_picture_damaged(file, pixels ? "PNG data" : "PNG header", r.message, err);
    else
        read_all(png, info, &r, size, pixels);
    png_destroy_read_struct(&png, &info, NULL);
    return status;
}
#endif
