/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG, through libturbojpeg. Pictures for print (CMYK and YCCK) are converted to red, green and blue. */
#if STRATA_WITH_JPEG
#include <turbojpeg.h>
#endif

#include "core/data/format/picture_formats.h"

#if STRATA_WITH_JPEG
/* Whether the marker that ends a picture is behind the start of its pixels. Exif data before them may contain another one. */
static bool has_end(const strata_picture_file *file) {
    enum { START_OF_SCAN = 0xDA, END_OF_IMAGE = 0xD9 };
    const unsigned char *bytes = file->bytes;
    size_t start = 2;
    while (start + 4 <= file->n_bytes && bytes[start] == 0xFF && bytes[start + 1] != START_OF_SCAN)
        start += 2 + ((size_t)bytes[start + 2] << 8 | bytes[start + 3]);
    for (size_t at = file->n_bytes; at-- > start + 1;)
        if (bytes[at] == END_OF_IMAGE && bytes[at - 1] == 0xFF) return true;
    return false;
}

/* Other readers ignore what the decoder warns of, such as bytes that belong to no segment; a cut picture is none. */
static bool is_readable(const strata_picture_file *file, tjhandle decoder) {
    return tjGetErrorCode(decoder) == TJERR_WARNING && has_end(file);
}

/* Reads the header with the caller's decoder. out_cmyk: whether the pixels have four inks. */
static strata_status read_header(const strata_picture_file *file, tjhandle decoder, strata_picture_size *out, bool *out_cmyk,
                                 strata_error *err) {
    int width = 0, height = 0, sampling = 0, space = 0;
    if ((tjDecompressHeader3(decoder, file->bytes, (unsigned long)file->n_bytes, &width, &height, &sampling, &space) &&
         tjGetErrorCode(decoder) != TJERR_WARNING) ||
        width < 1 || height < 1)
        return strata_picture_damaged(file, "JPEG data", tjGetErrorStr2(decoder), err);
    *out = (strata_picture_size){height, width, space == TJCS_GRAY ? 1 : 3};
    *out_cmyk = space == TJCS_CMYK || space == TJCS_YCCK;
    return STRATA_OK;
}

static strata_status read_pixels(const strata_picture_file *file, tjhandle decoder, strata_picture_size size, int format,
                                 uint8_t *pixels, strata_error *err) {
    if (tjDecompress2(decoder, file->bytes, (unsigned long)file->n_bytes, pixels, (int)size.columns, 0, (int)size.rows, format,
                      TJFLAG_ACCURATEDCT) &&
        !is_readable(file, decoder))
        return strata_picture_damaged(file, "JPEG data", tjGetErrorStr2(decoder), err);
    return STRATA_OK;
}

/* Files of four inks store 255 minus the ink, which is Adobe's convention. */
static strata_status read_cmyk(const strata_picture_file *file, tjhandle decoder, strata_picture_size size, uint8_t *pixels,
                               strata_error *err) {
    const int64_t n = size.rows * size.columns;
    STRATA_FREED uint8_t *inks = NULL;
    STRATA_TRY(STRATA_NEW(inks, 4 * n, err, "%s: no host memory", file->name));
    STRATA_TRY(read_pixels(file, decoder, size, TJPF_CMYK, inks, err));
    for (int64_t i = 0; i < 4 * n; i++) inks[i] = (uint8_t)(255 - inks[i]);
    strata_picture_from_cmyk(inks, n, pixels);
    return STRATA_OK;
}

strata_status strata_picture_read_jpeg(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                       strata_error *err) {
    bool cmyk = false;
    strata_picture_size found;
    tjhandle decoder = tjInitDecompress();
    if (!decoder) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", file->name);
    strata_status status = read_header(file, decoder, &found, &cmyk, err);
    if (!status && !pixels)
        *size = found;
    else if (!status)
        status = cmyk ? read_cmyk(file, decoder, *size, pixels, err)
                      : read_pixels(file, decoder, *size, size->channels == 1 ? TJPF_GRAY : TJPF_RGB, pixels, err);
    tjDestroy(decoder);
    return status;
}
#endif
