/* SPDX-License-Identifier: Apache-2.0
 *
 * A dataset of uniform random numbers, for programs and tests that need data of some shape. */
#include "core/data/dataset.h"
#include "core/data/stage/stage.h"
#include "strata/philox.h"

/* Features and labels have different streams. */
static void fill(strata_array *array, uint64_t seed, uint32_t stream) {
    float *values = array->data;
    const int64_t n = strata_shape_elements(array->shape);
    for (int64_t i = 0; i < n; i += 4) {
        const strata_philox_block counter = {{(uint32_t)i, (uint32_t)((uint64_t)i >> 32), stream, 0}};
        const strata_philox_block random = strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
        for (int64_t k = 0; k < 4 && i + k < n; k++) values[i + k] = (float)(random.words[k] >> 8) / (float)(1 << 24);
    }
}

static strata_status make(strata_shape element, int64_t n, uint64_t seed, uint32_t stream, strata_array *out,
                          strata_error *err) {
    if (n < 1 || element.rank >= STRATA_MAX_RANK)
        return strata_fail(err, STRATA_INVALID,
                           "random dataset: %lld elements of shape %s; it needs at least 1, of at most %d "
                           "dimensions",
                           (long long)n, strata_shape_text(element).text, STRATA_MAX_RANK - 1);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, strata_shape_outer(n, element), out, err));
    fill(out, seed, stream);
    return STRATA_OK;
}

strata_status strata_dataset_random(strata_shape features, strata_shape labels, int64_t n, uint64_t seed,
                                    strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(strata_array) x = {0}, y = {0};
    STRATA_TRY(make(features, n, seed, 0, &x, err));
    STRATA_TRY(make(labels, n, seed, 1, &y, err));
    return strata_dataset_take_arrays(&x, &y, 0, out_dataset, err);
}
