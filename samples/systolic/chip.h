/* SPDX-License-Identifier: Apache-2.0
 *
 * The properties of a chip, and how many cycles its units need for a piece of work. */
#ifndef SYSTOLIC_CHIP_H
#define SYSTOLIC_CHIP_H

#include <stdint.h>

/* The properties of one core. */
typedef struct chip {
    const char *name, *title;
    double hertz;
    /* Rows and columns of a systolic array, and how many arrays a core has. */
    int side, arrays;
    /* Operations per cycle of the vector unit. */
    int lanes;
    int64_t onchip_bytes, hbm_bytes;
    double hbm_bytes_per_second;
    /* Cycles from the start of a copy between HBM and on-chip memory until its first byte is there. */
    double hbm_latency;
    /* Cycles from the request for a run until its first copy or step begins. */
    double launch;
    /* Copies are made in windows of this many bytes. A step can begin when the first window of its operands is on the chip. */
    double window_bytes;
    /* Operations of the vector unit that move one element of a product's result from the arrays to the on-chip memory. The
     * arrays wait meanwhile. */
    double drain_ops;
    /* The bandwidth of one link of the ring, in one direction; and the cycles until a byte arrives at the neighbour. */
    double link_bytes_per_second, link_latency;
    /* Cycles that each step costs in addition, for the scalar unit's bookkeeping. */
    double step_overhead;
} chip;

/* Returns NULL if there is no chip with this name. *out_names: a list of the names of all chips. */
const chip *chip_find(const char *name, const char **out_names);

/* Cycles of the arrays for `batch` products of (rows x depth) and (depth x columns). */
double chip_matrix_cycles(const chip *chip, int64_t rows, int64_t columns, int64_t depth, int64_t batch);
double chip_vector_cycles(const chip *chip, double ops);
/* Cycles to move n elements of a product's result from the arrays to the on-chip memory. */
double chip_drain_cycles(const chip *chip, double n);
/* Cycles to send `bytes`, divided into a part for each core, `rounds` times around a ring of `members` cores. */
double chip_ring_cycles(const chip *chip, double bytes, int members, int rounds);
double chip_hbm_cycles(const chip *chip, double bytes);

#endif
