/* SPDX-License-Identifier: Apache-2.0
 *
 * One node alone on a device, to be timed: a piece of it with buffers of its own, made through the device's own table, so that
 * this works for every device without knowing any. Floats are made up, in [-1, 1), the same each time; integers are 0, which
 * every op takes. */
#ifndef STRATA_CORE_BENCH_H
#define STRATA_CORE_BENCH_H

#include "core/run/device.h"

enum { STRATA_BENCH_ROUNDS = 10 }; /* for people to read; the tuner takes fewer */

typedef struct strata_bench {
    strata_device *device;
    const strata_tensor *node;
    /* To compile: on a GPU the node so many times that what a submission costs counts little. */
    strata_piece piece;
    const strata_tensor **nodes;
    strata_place *places;
    strata_arena *arenas;
} strata_bench;

/* planned: the places of a program with the node, by tensor id: operands that share bytes there do so here too. NULL: each has
 * its own. To be finished even after a failure. */
STRATA_MUST_USE strata_status strata_bench_init(strata_bench *bench, strata_device *device, const strata_tensor *node,
                                                const strata_place *planned, strata_error *err);
void strata_bench_finish(strata_bench *bench); /* a zeroed one is fine; no program of its piece may be left */

/* Microseconds of one run of the node by a program made of the piece: the fastest of so many rounds. */
STRATA_MUST_USE strata_status strata_bench_time(const strata_bench *bench, strata_program *program, int rounds, double *out_us,
                                                strata_error *err);

/* What `run` does, `n` times, is over when it returns. */
typedef strata_status strata_bench_run(void *context, int n, strata_error *err);
/* Microseconds of one: the fastest of so many rounds of about a millisecond, behind some that are not counted. */
STRATA_MUST_USE strata_status strata_bench_fastest(strata_bench_run *run, void *context, int rounds, double *out_us,
                                                   strata_error *err);

#endif
