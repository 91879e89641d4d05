/* SPDX-License-Identifier: Apache-2.0
 *
 * The MNIST files, from a folder, under their official names. The format is in core/data/format/idx.h. */
#ifndef STRATA_CORE_DATA_MNIST_H
#define STRATA_CORE_DATA_MNIST_H

#include "core/data/set/image_set.h"

typedef enum strata_mnist_split { STRATA_MNIST_TRAIN, STRATA_MNIST_TEST } strata_mnist_split;

/* Reads <folder>/train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-* for the test set; each may end in .gz and may
 * have the spelling train-images.idx3-ubyte. The caller finishes the set.
 * Fails: UNAVAILABLE when the folder or a file is missing (says which names were looked for) or can't be read; DATA when a file
 * is malformed, not 28x28, has other than one label an image, or a label of 10 or more (says which is the first). */
STRATA_MUST_USE strata_status strata_mnist_load(const char *folder, strata_mnist_split split, strata_image_set *out_set,
                                                strata_error *err);

#endif
