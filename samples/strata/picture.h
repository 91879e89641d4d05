/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a user's picture as a model's input, resized to the size of the training data. core/data/format/picture.c lists the
 * formats. */
#ifndef STRATA_SAMPLES_PICTURE_H
#define STRATA_SAMPLES_PICTURE_H

#include "strata/tensor.h"

/* Reads the picture as f32, 0 to 1, of shape (1, element...), which the caller finishes.
 *   element  (H, W), (H, W, 1) or (H, W, 3). Colours are converted to grey, and grey to colours, as it needs. The picture is
 *            resized to H x W without keeping its aspect ratio (strata_picture_resize).
 *   invert   1 - value, for a dark drawing on white if the model was trained on bright ones on black
 * Fails: UNAVAILABLE for a file that cannot be read; DATA for a damaged one; INVALID for an element that is not a picture;
 * UNSUPPORTED for a format whose library this build does not have. */
STRATA_MUST_USE strata_status picture_read(const char *path, strata_shape element, bool invert, strata_array *out_features,
                                           strata_error *err);

#endif
