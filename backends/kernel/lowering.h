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

/* One way to compute a node: by a family's candidate, maybe in f32 for a node of 16 bits (widen.c), or by the op's portable
 * kernels. */
typedef struct strata_way {
    /* NULL: the portable kernels. */
    const strata_family *family;
    bool widen;
    strata_candidate candidate;
} strata_way;

/* The first way whose kernels are not known to compute wrongly here: the one of the first family that fits that the tuner
 * prefers, its other candidates, those of the next families, the portable kernels. UNSUPPORTED with the kernel, its error and
 * the driver where all of them are wrong. */
strata_status strata_way_choose(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_tensor *node,
                                strata_way *out_way, strata_error *err);
/* Fills an empty lowering with the launches of the node by this way. */
strata_status strata_way_lower(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node,
                               strata_lowering *lowering, strata_error *err);

/* ---- verdicts (check.c) ---- */
/* Names the kernels of a node's launches with their constants; the op, too. Work-group sizes count as they were asked for. */
uint64_t strata_check_key(const strata_tensor *node, const strata_lowering *lowering);
/* The same of a family: where one of its kernels is wrong, none is used. */
uint64_t strata_check_family_key(const strata_family *family);
/* Why these kernels are not to be used, a text that lives as long as `checks`; NULL: nothing is known against them. */
const char *strata_check_complaint(const strata_checks *checks, uint64_t key);
/* Whether some kernel is wrong: else there is no need to ask. */
bool strata_checks_complain(const strata_checks *checks);
/* The way that a check has chosen for this node of its piece; NULL: no check is going on. */
const strata_way *strata_check_way(const strata_checks *checks, const strata_tensor *node);

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
