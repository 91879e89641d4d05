/* SPDX-License-Identifier: Apache-2.0
 *
 * Times one node alone on a device. It makes a piece of the node with separate buffers. It only uses functions of the
 * device's table, so it works for every device. Floats are pseudo-random in [-1, 1), the same each time; integers are
 * 0, which every op accepts. */
#ifndef STRATA_CORE_BENCH_H
#define STRATA_CORE_BENCH_H

#include "core/run/device.h"

/* Rounds for times that people read; the tuner uses fewer. */
enum { STRATA_BENCH_ROUNDS = 10 };

typedef struct strata_bench {
    strata_device *device;
    const strata_tensor *node;
    /* The piece to compile. On a GPU it contains the node so many times that the cost of a submission matters
     * little. */
    strata_piece piece;
    const strata_tensor **nodes;
    strata_place *places;
    strata_arena *arenas;
} strata_bench;

/* planned: the places, by tensor id, in a program that contains the node. Operands that share bytes there also share
 * them here. NULL: each operand has separate memory. Call strata_bench_finish even after a failure. */
STRATA_MUST_USE strata_status strata_bench_init(strata_bench *bench, strata_device *device, const strata_tensor *node,
                                                const strata_place *planned, strata_error *err);
void strata_bench_finish(strata_bench *bench); /* a zeroed struct is fine; destroy programs of its piece before */

/* Measures the microseconds of one run of the node, in a program that was compiled from the piece. The fastest of
 * `rounds` rounds counts. */
STRATA_MUST_USE strata_status strata_bench_time(const strata_bench *bench, strata_program *program, int rounds, double *out_us,
                                                strata_error *err);

/* Makes n runs, and returns when they have ended. */
typedef strata_status strata_bench_run(void *context, int n, strata_error *err);
/* Measures the microseconds of one run. Runs that are not counted come first. Then the fastest of `rounds` rounds, of
 * about a millisecond each, counts. */
STRATA_MUST_USE strata_status strata_bench_fastest(strata_bench_run *run, void *context, int rounds, double *out_us,
                                                   strata_error *err);

#endif
