/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing a picture: first its rows, then its columns. */
#include <math.h>

#include "core/base/alloc.h"
#include "strata/formats.h"

/* Resizes one line of n_in samples, in_step apart, to n_out samples, out_step apart. */
static void resample(const float *in, int64_t n_in, int64_t in_step, float *out, int64_t n_out, int64_t out_step) {
    const double scale = (double)n_in / (double)n_out, reach = scale > 1 ? scale : 1;
    for (int64_t o = 0; o < n_out; o++) {
        const double center = ((double)o + 0.5) * scale - 0.5;
        const int64_t first = (int64_t)ceil(center - reach), last = (int64_t)floor(center + reach);
        double sum = 0, total = 0;
        for (int64_t i = first < 0 ? 0 : first; i <= last && i < n_in; i++) {
            const double weight = 1 - fabs((double)i - center) / reach;
            if (weight <= 0) continue;
            sum += weight * (double)in[i * in_step];
            total += weight;
        }
        out[o * out_step] = (float)(sum / total);
    }
}

strata_status strata_picture_resize(const strata_array *pixels, int64_t rows, int64_t columns, strata_array *out_pixels,
                                    strata_error *err) {
    const int64_t height = pixels->shape.dims[0], width = pixels->shape.dims[1], channels = pixels->shape.dims[2];
    const int64_t n_in = height * width * channels, n_out = rows * columns * channels, n_between = height * columns * channels;
    const bool same = rows == height && columns == width;
    STRATA_FREED float *values = NULL;
    *out_pixels = (strata_array){0};
    if (!same) STRATA_TRY(STRATA_NEW(values, n_in + n_between + n_out, err, "no host memory for a picture of another size"));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(rows, columns, channels), out_pixels, err));
    if (same) {
        memcpy(out_pixels->data, pixels->data, (size_t)n_in);
        return STRATA_OK;
    }
    float *between = values + n_in, *out = between + n_between;
    for (int64_t i = 0; i < n_in; i++) values[i] = ((const uint8_t *)pixels->data)[i];
    for (int64_t y = 0; y < height; y++)
        for (int64_t c = 0; c < channels; c++)
            resample(values + y * width * channels + c, width, channels, between + y * columns * channels + c, columns,
                     channels);
    for (int64_t x = 0; x < columns * channels; x++)
        resample(between + x, height, columns * channels, out + x, rows, columns * channels);
    for (int64_t i = 0; i < n_out; i++) ((uint8_t *)out_pixels->data)[i] = (uint8_t)(out[i] + 0.5F);
    return STRATA_OK;
}
