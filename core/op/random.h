/* SPDX-License-Identifier: Apache-2.0
 *
 * The random numbers of random_uniform, random_normal and dropout, for references. */
#ifndef STRATA_CORE_OP_RANDOM_H
#define STRATA_CORE_OP_RANDOM_H

#include "core/graph/launch.h"
#include "strata/philox.h"

/* A sequence of random numbers. Words of the state tensor and the op's stream identify it. */
typedef struct strata_random_sequence {
    /* The seed. */
    uint32_t key[2];
    uint32_t step, stream;
    /* The number of this part's element 0 in the whole tensor. It is not 0 if several replicas generate parts of one
     * tensor. */
    uint64_t first;
} strata_random_sequence;

/* The shape rule for the operand `state` and the attribute `stream`. */
STRATA_MUST_USE strata_status strata_check_random(const strata_tensor *state, int64_t stream, strata_error *err);
strata_random_sequence strata_random_sequence_of(const int32_t *state, int64_t stream, strata_shape shape);
/* The uniform number of element `index` of this part. */
double strata_random_uniform_at(const strata_random_sequence *sequence, int64_t index);

/* Converts the first 24 bits of a word to a number in [0, 1), which is exact in f32. */
static inline double strata_uniform_from_word(uint32_t word) {
    return (double)(word >> 8) * 0x1p-24;
}

/* Appends the words n, stream and row (the number of elements in a row), and sets a grid of one work-item for each four
 * elements. */
STRATA_MUST_USE strata_status strata_random_grid(strata_launch *launch, strata_shape shape, int64_t stream, strata_error *err);

/* The state from which a part along the first axis is drawn: its first row is that of the part. */
strata_tensor *strata_random_state_part(const strata_node_part *part, strata_tensor *state);

#endif
