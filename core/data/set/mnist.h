/* SPDX-License-Identifier: Apache-2.0
 *
 * The MNIST files, from a folder, under their official names. The format is in core/data/format/idx.h. */
#ifndef STRATA_CORE_DATA_MNIST_H
#define STRATA_CORE_DATA_MNIST_H

#include "core/data/set/image_set.h"

typedef enum strata_mnist_split { STRATA_MNIST_TRAIN, STRATA_MNIST_TEST } strata_mnist_split;

/* Reads <folder>/train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-* for the test set. Each name may end in .gz and
 * may be written as train-images.idx3-ubyte. The caller finishes the set.
 * Fails: UNAVAILABLE if the folder or a file is missing (the message lists the names that were tried) or cannot be read; DATA
 * if a file is malformed, if images are not 28x28, if there is not one label for each image, or if a label is 10 or more (the
 * message names the first). */
STRATA_MUST_USE strata_status strata_mnist_load(const char *folder, strata_mnist_split split, strata_image_set *out_set,
                                                strata_error *err);

#endif
