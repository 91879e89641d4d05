/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a user's picture as a model's input: PNG, PGM or PPM (netpbm, binary or text), resized to the size of the training
 * data. */
#ifndef STRATA_SAMPLES_PICTURE_H
#define STRATA_SAMPLES_PICTURE_H

#include "strata/tensor.h"

/* Reads the picture into f32 0..1 of shape (1, element...), which the caller finishes. element: (H, W), (H, W, 1) or (H, W, 3);
 * colours become grey or grey becomes colours as it needs; another size is filtered to this one (a triangle as wide as the
 * pixels that are merged), each axis by itself, without keeping the aspect ratio. `invert`: 1 - value, for dark ink where
 * bright was trained.
 * Fails: UNAVAILABLE for a file that can't be read, DATA for a damaged one, INVALID for an element that is no picture,
 * UNSUPPORTED for PNG in a build without libpng. */
STRATA_MUST_USE strata_status picture_read(const char *path, strata_shape element, bool invert, strata_array *out_features,
                                           strata_error *err);

#endif
