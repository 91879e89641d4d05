/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of backends/kernel: the launches of one node before they are placed, the families that replace an op's portable
 * kernels on a class of devices, and the choice among a family's candidates. Backends see kernel.h only. */
#ifndef STRATA_BACKENDS_KERNEL_LOWERING_H
#define STRATA_BACKENDS_KERNEL_LOWERING_H

#include "backends/kernel/kernel.h"

/* Fills an empty lowering (core/graph/launch.h) with the launches of `node` on a device with these limits: those of the first
 * family that fits, else those of op->lower. */
strata_status strata_lowering_run(strata_lowering *lowering, const strata_kernel_limits *limits, strata_tuner *tuner,
                                  const strata_tensor *node, strata_error *err);

/* ---- families ---- */
/* One way to do an op. What the values mean is the family's own; the name says it in the tuning file ("rows=14,groups=2"). */
typedef struct strata_candidate {
    char name[48];
    /* Same bits as the first candidate, which always is; others only with strata_device_options.fast. */
    bool exact;
    int values[6];
} strata_candidate;

enum { STRATA_CANDIDATES = 8 };

typedef struct strata_family {
    /* "cpu/matmul". */
    const char *name;
    /* The name of the op that is lowered. */
    const char *op;
    bool (*fits)(const strata_kernel_limits *limits, const strata_tensor *node);
    /* Writes 1 to STRATA_CANDIDATES candidates for the node, the one to take untuned first; returns how many. */
    int (*candidates)(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out);
    strata_status (*lower)(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err);
} strata_family;

extern const strata_family *const strata_families[]; /* first fit wins; ends with NULL; families.c */

/* Index of the candidate to take: as remembered, or timed now (tuner.c). 0 without a tuner. */
int strata_tuner_choose(strata_tuner *tuner, const strata_family *family, const strata_tensor *node,
                        const strata_candidate *candidates, int n);

/* ---- nodes of 16-bit storage by families of f32 (widen.c) ---- */
enum { STRATA_WIDENED_INPUTS = 8 };
/* A node as it were in f32, made of copies: node.inputs points into the struct, which must not be moved. */
typedef struct strata_widened {
    const strata_tensor *from;
    strata_tensor node, inputs[STRATA_WIDENED_INPUTS], *pointers[STRATA_WIDENED_INPUTS];
} strata_widened;

/* False where the node is not of f16 or bf16, or its operands in f32 are more than scratch can hold. */
bool strata_widen(const strata_kernel_limits *limits, const strata_tensor *node, strata_widened *out);
/* Conversions, the family's launches for the node in f32, the conversion of the result. */
strata_status strata_widened_lower(const strata_kernel_limits *limits, const strata_widened *widened,
                                   const strata_family *family, const strata_candidate *candidate, strata_lowering *lowering,
                                   strata_error *err);

/* ---- hazards (hazards.c) ---- */
/* What launches have touched since the last barrier. */
typedef struct strata_hazards {
    strata_kernel_range *reads, *writes;
    int n_reads, n_writes, reads_capacity, writes_capacity;
} strata_hazards;

/* Adds a launch; *out_barrier: it must wait for what was added before (and the slate is clean but for this launch). */
strata_status strata_hazards_add(strata_hazards *hazards, const strata_kernel_range *ranges, int n, unsigned writes,
                                 bool *out_barrier, strata_error *err);
void strata_hazards_finish(strata_hazards *hazards);

#endif
