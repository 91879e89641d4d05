/* SPDX-License-Identifier: Apache-2.0
 *
 * WebP, through libwebp. The first picture of an animation is read. Transparency is ignored. */
#if STRATA_WITH_WEBP
#include <webp/decode.h>
#endif

#include "core/base/bytes.h"
#include "core/data/format/picture_formats.h"

#if STRATA_WITH_WEBP
/* A rectangle of the picture, and the bytes of a still picture that fills it. */
typedef struct frame {
    const unsigned char *bytes;
    size_t n_bytes;
    int64_t x, y;
} frame;

/* Finds the first frame of an animation: a chunk "ANMF", whose header of 16 bytes begins with half the position. Returns false
 * if there is none. */
static bool find_frame(const strata_picture_file *file, frame *out) {
    enum { FRAME_HEADER = 16 };
    size_t n = 0;
    const unsigned char *body = strata_picture_chunk(file->bytes, file->n_bytes, false, "ANMF", &n);
    if (!body || n <= FRAME_HEADER) return false;
    *out = (frame){body + FRAME_HEADER, n - FRAME_HEADER, 2 * (int64_t)strata_little_endian(body, 3),
                   2 * (int64_t)strata_little_endian(body + 3, 3)};
    return true;
}

strata_status strata_picture_read_webp(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                       strata_error *err) {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(file->bytes, file->n_bytes, &features) != VP8_STATUS_OK)
        return strata_picture_damaged(file, "WebP header", NULL, err);
    if (!pixels) {
        *size = (strata_picture_size){features.height, features.width, 3};
        return STRATA_OK;
    }
    frame f = {.bytes = file->bytes, .n_bytes = file->n_bytes};
    int width = 0, height = 0;
    const size_t row_bytes = (size_t)size->columns * 3;
    if ((features.has_animation && !find_frame(file, &f)) || !WebPGetInfo(f.bytes, f.n_bytes, &width, &height) ||
        f.x + width > size->columns || f.y + height > size->rows)
        return strata_picture_damaged(file, "WebP data", NULL, err);
    memset(pixels, 0, (size_t)size->rows * row_bytes);
    uint8_t *start = pixels + (size_t)f.y * row_bytes + (size_t)f.x * 3;
    /* The last row has only as many bytes as the frame is wide. */
    const size_t room = (size_t)(height - 1) * row_bytes + (size_t)width * 3;
    if (!WebPDecodeRGBInto(f.bytes, f.n_bytes, start, room, (int)row_bytes))
        return strata_picture_damaged(file, "WebP data", NULL, err);
    return STRATA_OK;
}
#endif
