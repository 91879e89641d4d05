/* SPDX-License-Identifier: Apache-2.0
 *
 * How the checks of devices compare results with references (compare.c), and the values on which a program runs that has not
 * run yet (generate.c). */
#ifndef STRATA_CORE_COMPARE_H
#define STRATA_CORE_COMPARE_H

#include "core/compile/piece.h"

/* The elements of a tensor that are compared. */
typedef struct strata_sample {
    /* NULL: all. */
    int64_t *elements;
    int64_t n;
} strata_sample;

bool strata_check_is_finite(const strata_tensor *tensor, const strata_sample *sample, const void *data);
/* The allowed difference of an element, relative to the tensor's largest value. It is far above rounding errors and far
 * below the errors that a wrong kernel makes. */
double strata_check_tolerance(strata_dtype dtype);
/* The largest difference of an element, relative to the tensor's largest value. */
double strata_check_difference(const strata_tensor *tensor, const strata_sample *sample, const void *got, const void *want);
/* Whether `got` differs from `want` by more than rounding explains. tolerance: relative to the largest value; rounding: of one
 * element, absolute. `moved` is the reference result for operands that were changed by the tolerance; it shows how sensitive
 * the result is. */
bool strata_check_is_off(const strata_tensor *tensor, const strata_sample *sample, double tolerance, double rounding,
                         const void *got, const void *want, const void *moved);

/* How many elements differ, over several tensors; zeroed at the beginning. */
typedef struct strata_excess {
    int64_t n;
    /* Elements of `got`, and of `moved`, that differ from `want` by more than rounding explains. */
    int64_t n_beyond, n_moved;
    /* The largest differences, relative to the largest value of the tensor. */
    double most, most_moved;
} strata_excess;

/* Adds the elements of a tensor. The operands are those of strata_check_is_off. */
void strata_check_count(strata_excess *excess, const strata_tensor *tensor, const strata_sample *sample, double tolerance,
                        double rounding, const void *got, const void *want, const void *moved);
/* Whether more elements differ than `allowed` and a few, or some by more than moved operands explain. */
bool strata_check_exceeds(const strata_excess *excess, int64_t allowed);

/* Changes each float of the tensor by at most this part of it. */
void strata_check_move(const strata_tensor *tensor, double part, void *data, uint32_t random);

/* Writes values that the tensor may have to `data`: floats between 0.25 and 1, and integers that are valid indices and labels
 * for the nodes of the piece that read them. */
void strata_check_generate(const strata_piece *piece, const strata_tensor *tensor, uint32_t random, void *data);

#endif
