/* SPDX-License-Identifier: Apache-2.0
 *
 * Images of digits with labels: the files of MNIST, and generated images. */
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

void strata_image_set_finish(strata_image_set *set); /* NULL and a zeroed set are fine */

/* ---- mnist.c ---- */

typedef enum strata_mnist_split { STRATA_MNIST_TRAIN, STRATA_MNIST_TEST } strata_mnist_split;

/* Reads <folder>/train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-* for the test set. Each name may end in .gz and
 * may be written as train-images.idx3-ubyte. The caller finishes the set.
 * Fails: UNAVAILABLE if the folder or a file is missing (the message lists the names that were tried) or cannot be read; DATA
 * if a file is malformed, if images are not 28x28, if there is not one label for each image, or if a label is 10 or more (the
 * message names the first). */
STRATA_MUST_USE strata_status strata_mnist_load(const char *folder, strata_mnist_split split, strata_image_set *out_set,
                                                strata_error *err);

/* ---- digits.c ----
 * Generated images that look like handwritten digits, so that a first training needs no download. Image i depends only on seed
 * and i, so any part of the endless sequence can be generated separately and in any order. */

/* The index of the first test image; training images begin with index 0. */
#define STRATA_DIGITS_TEST_FIRST (UINT64_C(1) << 32)

/* Generates the images first_index to first_index + n_images - 1 of the sequence with this seed. Each label has the same
 * probability. The caller finishes the set. Cost: 7 to 11 us per image on a core of 2.5 GHz. Fails: INVALID for n_images < 1,
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_digits_make(uint64_t seed, uint64_t first_index, int64_t n_images,
                                                 strata_image_set *out_set, strata_error *err);

#endif
