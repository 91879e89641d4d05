/* SPDX-License-Identifier: Apache-2.0
 *
 * Images with labels, as the reader of MNIST and the generator of digits return them. */
#ifndef STRATA_CORE_DATA_IMAGE_SET_H
#define STRATA_CORE_DATA_IMAGE_SET_H

#include "strata/tensor.h"

enum { STRATA_DIGIT_SIDE = 28, STRATA_DIGIT_CLASSES = 10 };

typedef struct strata_image_set {
    /* u8 (N, 28, 28), 0 background to 255 ink. */
    strata_array images;
    /* u8 (N), 0 to 9. */
    strata_array labels;
} strata_image_set;

/* Allocates both arrays, filled with 0. The caller finishes the set. Fails: INVALID for n_images < 1, OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_image_set_create(int64_t n_images, strata_image_set *out_set, strata_error *err);
void strata_image_set_finish(strata_image_set *set); /* NULL and a zeroed set are fine */

#endif
