/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a picture to a model's input. */
#include "picture.h"

#include <stdlib.h>

#include "strata/formats.h"

enum { MOST_FILE_BYTES = 256 << 20, MOST_SIDE = 1 << 15 };

/* pixels: u8 (height, width, channels). */
static strata_status convert(const strata_array *pixels, strata_shape element, bool invert, strata_array *out,
                             strata_error *err) {
    strata_array sized = {0};
    STRATA_TRY(strata_picture_resize(pixels, element.dims[0], element.dims[1], &sized, err));
    strata_shape shape = {.rank = 4, .dims = {1, element.dims[0], element.dims[1], sized.shape.dims[2]}};
    strata_status status = strata_array_create(STRATA_DTYPE_F32, shape, out, err);
    for (int64_t i = 0; i < strata_shape_elements(shape) && !status; i++) {
        const uint8_t value = ((const uint8_t *)sized.data)[i];
        ((float *)out->data)[i] = (float)(invert ? 255 - value : value) / 255;
    }
    strata_array_finish(&sized);
    return status;
}

strata_status picture_read(const char *path, strata_shape element, bool invert, strata_array *out_features, strata_error *err) {
    const int channels = element.rank == 3 ? (int)element.dims[2] : 1;
    if (element.rank < 2 || element.rank > 3 || (channels != 1 && channels != 3) || element.dims[0] > MOST_SIDE ||
        element.dims[1] > MOST_SIDE)
        return strata_fail(err, STRATA_INVALID, "%s: is a picture, but the model takes %s", path,
                           strata_shape_text(element).text);
    unsigned char *bytes = NULL;
    size_t n = 0;
    strata_array pixels = {0};
    STRATA_TRY(strata_stream_read_file(path, MOST_FILE_BYTES, &bytes, &n, err));
    strata_status status = strata_picture_parse(path, bytes, n, channels, &pixels, err);
    free(bytes);
    if (!status) status = convert(&pixels, element, invert, out_features, err);
    strata_array_finish(&pixels);
    return status;
}
