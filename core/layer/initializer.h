/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values of parameters. The host draws them by Philox with the key (seed, stream), so they are the same for every
 * device. */
#ifndef STRATA_CORE_INITIALIZER_H
#define STRATA_CORE_INITIALIZER_H

#include "strata/layers.h"

typedef struct strata_initializer strata_initializer;

/* Finds the initializer with this name. Fails with INVALID and the list of names if there is none. */
STRATA_MUST_USE strata_status strata_initializer_find(const char *name, const strata_initializer **out_initializer,
                                                      strata_error *err);
const char *strata_initializer_name(const strata_initializer *initializer);

/* Sets values[0..n). fan_in and fan_out: the number of inputs of an output, and of outputs of an input; at least 1. The
 * normal initializers he_normal and glorot_normal are truncated at two standard deviations by drawing again, as in Keras. */
void strata_initializer_fill(const strata_initializer *initializer, uint64_t seed, uint32_t stream, int64_t fan_in,
                             int64_t fan_out, float *values, int64_t n);

#endif
