/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of a chip, and what its units take for a piece of work. */
#ifndef SYSTOLIC_CHIP_H
#define SYSTOLIC_CHIP_H

#include <stdint.h>

/* One core. */
typedef struct chip {
    const char *name, *title;
    double hertz;
    /* Rows and columns of a systolic array, and how many arrays a core has. */
    int side, arrays;
    /* Operations of the vector unit a cycle. */
    int lanes;
    int64_t onchip_bytes, hbm_bytes;
    double hbm_bytes_per_second;
    /* Cycles from the start of a copy between HBM and on-chip memory until its first byte is there. */
    double hbm_latency;
    /* Cycles from when a run is asked for until its first copy or step begins. */
    double launch;
    /* Copies come and go in windows of so many bytes; a step begins when its operands' first window is there. */
    double window_bytes;
    /* Operations of the vector unit that take one element of a product's result from the arrays to the on-chip memory, while
     * the arrays wait. */
    double drain_ops;
    /* Of one link of the ring, in one direction; cycles until a neighbour sees a byte. */
    double link_bytes_per_second, link_latency;
    /* Cycles that every step costs: the scalar unit's bookkeeping. */
    double step_overhead;
} chip;

/* NULL: there is none of that name. *out_names lists those that there are. */
const chip *chip_find(const char *name, const char **out_names);

/* Cycles of the arrays for `batch` products of (rows x depth) and (depth x columns). */
double chip_matrix_cycles(const chip *chip, int64_t rows, int64_t columns, int64_t depth, int64_t batch);
double chip_vector_cycles(const chip *chip, double ops);
/* Cycles in which `n` elements of a product's result leave the arrays. */
double chip_drain_cycles(const chip *chip, double n);
/* Cycles to pass `bytes` around a ring of `members` cores `rounds` times, in parts. */
double chip_ring_cycles(const chip *chip, double bytes, int members, int rounds);
double chip_hbm_cycles(const chip *chip, double bytes);

#endif
