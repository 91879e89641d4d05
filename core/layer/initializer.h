/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values of parameters, drawn on the host by Philox keyed by (seed, stream): the same for every device. */
#ifndef STRATA_CORE_INITIALIZER_H
#define STRATA_CORE_INITIALIZER_H

#include "strata/layers.h"

typedef struct strata_initializer strata_initializer;

/* The initializer of that name; INVALID, with the list of names, when there is none. */
STRATA_MUST_USE strata_status strata_initializer_find(const char *name, const strata_initializer **out_initializer,
                                                      strata_error *err);
const char *strata_initializer_name(const strata_initializer *initializer);

/* Fills values[0..n). fan_in and fan_out: number of inputs and outputs that one weight joins; at least 1.
 * Normal initializers cut at two standard deviations by drawing anew (he_normal, glorot_normal), as Keras does. */
void strata_initializer_fill(const strata_initializer *initializer, uint64_t seed, uint32_t stream, int64_t fan_in,
                             int64_t fan_out, float *values, int64_t n);

#endif
