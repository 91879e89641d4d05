/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocating and freeing a set of images with labels. */
#include "core/data/set/image_set.h"

strata_status strata_image_set_create(int64_t n_images, strata_image_set *out_set, strata_error *err) {
    *out_set = (strata_image_set){0};
    if (n_images < 1)
        return strata_fail(err, STRATA_INVALID, "a set of %lld images; it must have at least 1", (long long)n_images);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(n_images, STRATA_DIGIT_SIDE, STRATA_DIGIT_SIDE),
                                   &out_set->images, err));
    strata_status status = strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(n_images), &out_set->labels, err);
    if (status) strata_image_set_finish(out_set);
    return status;
}

void strata_image_set_finish(strata_image_set *set) {
    if (!set) return;
    strata_array_finish(&set->images);
    strata_array_finish(&set->labels);
}
