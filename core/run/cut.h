/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides a chain of calls of layers into the stages of a pipeline. */
#ifndef STRATA_CORE_CUT_H
#define STRATA_CORE_CUT_H

#include <stdint.h>

#include "strata/status.h"

/* Borrowed arrays, none of whose numbers is below 0. Stages are in the order of the chain, and each has at least one call. */
typedef struct strata_chain_calls {
    int n_calls, n_stages;
    /* [n_calls] of one micro-batch, on a device of speed 1. */
    const double *seconds;
    /* [n_calls] what is sent for one micro-batch if a stage begins at this call; that of call 0 is not read. */
    const int64_t *cut_bytes;
    /* [n_calls] memory of parameters and slots. */
    const int64_t *held_bytes;
    /* [n_calls] memory of the values that one micro-batch keeps from its forward to its backward. NULL: 0. */
    const int64_t *kept_bytes;
    /* [n_stages] how many micro-batches are in flight (strata_pipeline_prediction). NULL: 1. */
    const int *n_in_flight;
    /* [n_stages] above 0; a call takes seconds / speed. NULL: 1. */
    const double *speeds;
    /* [n_stages] bytes of memory. NULL: there is no limit. */
    const int64_t *limits;
} strata_chain_calls;

/* Finds the cut that fits into the limits and whose slowest stage takes the least time, exactly; among those that are equal in
 * this up to rounding, one that sends the fewest bytes. out_first: [n_stages] the first call of each stage.
 * Cost: n_stages n_calls^2 at most, and about n_calls^2 for stages of similar length.
 * Fails: INVALID if there are fewer calls than stages, or for a number out of range; OUT_OF_MEMORY if no cut fits into the
 * limits: the message names the stages that need more in the cut in which the fewest bytes are missing, and how many. */
STRATA_MUST_USE strata_status strata_chain_cut(const strata_chain_calls *chain, int *out_first, strata_error *err);

#endif
