/* SPDX-License-Identifier: Apache-2.0
 *
 * Bringing a picture to a model's size. */
#include "picture.h"

#include <math.h>
#include <stdlib.h>

#include "core/data/format/picture.h"
#include "core/data/format/stream.h"

enum { MOST_FILE_BYTES = 256 << 20, MOST_SIDE = 1 << 15 };

/* ---- size ---- */

/* One line of n_in samples, `in_step` apart, as n_out of them: each is the mean around its place under a triangle, which is as
 * wide as the pixels that come together in it, and at least as one. */
static void resample(const float *in, int n_in, int64_t in_step, float *out, int n_out, int64_t out_step) {
    double scale = (double)n_in / n_out, reach = scale > 1 ? scale : 1;
    for (int o = 0; o < n_out; o++) {
        double center = (o + 0.5) * scale - 0.5, sum = 0, total = 0;
        int first = (int)ceil(center - reach), last = (int)floor(center + reach);
        for (int i = first; i <= last; i++) {
            double weight = 1 - fabs(i - center) / reach;
            if (i < 0 || i >= n_in || weight <= 0) continue;
            sum += weight * (double)in[i * in_step];
            total += weight;
        }
        out[o * out_step] = (float)(sum / total);
    }
}

/* values (height, width, channels) -> out (h, w, channels). */
static strata_status resize(const float *values, int height, int width, int channels, int h, int w, float *out,
                            strata_error *err) {
    float *rows = malloc((size_t)height * (size_t)w * (size_t)channels * sizeof *rows);
    if (!rows) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a picture of another size");
    for (int y = 0; y < height; y++)
        for (int c = 0; c < channels; c++)
            resample(values + (int64_t)y * width * channels + c, width, channels, rows + (int64_t)y * w * channels + c, w,
                     channels);
    for (int x = 0; x < w * channels; x++) resample(rows + x, height, (int64_t)w * channels, out + x, h, (int64_t)w * channels);
    free(rows);
    return STRATA_OK;
}

/* ---- all of it ---- */

/* pixels: u8 (height, width, channels). */
static strata_status convert(const strata_array *pixels, strata_shape element, bool invert, strata_array *out,
                             strata_error *err) {
    const int height = (int)pixels->shape.dims[0], width = (int)pixels->shape.dims[1], channels = (int)pixels->shape.dims[2];
    const int64_t n = strata_shape_elements(pixels->shape);
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a picture");
    for (int64_t i = 0; i < n; i++) {
        const uint8_t value = ((const uint8_t *)pixels->data)[i];
        values[i] = (float)(invert ? 255 - value : value) / 255;
    }
    strata_shape shape = {.rank = element.rank + 1, .dims = {1, element.dims[0], element.dims[1], channels}};
    strata_status status = strata_array_create(STRATA_DTYPE_F32, shape, out, err);
    if (!status) status = resize(values, height, width, channels, (int)element.dims[0], (int)element.dims[1], out->data, err);
    if (status) strata_array_finish(out);
    free(values);
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
