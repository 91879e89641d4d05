/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of what compares kernels with the reference:
 *     verdicts.c   what is known of kernels, on disk too
 *     operands.c   what the reference makes of a node's operands, and how far a result may be from it
 *     trial.c      one node with small operands
 *     check.c      all nodes of a piece on first use
 *     recheck.c    one node of a step while a model trains */
#ifndef STRATA_BACKENDS_KERNEL_CHECK_H
#define STRATA_BACKENDS_KERNEL_CHECK_H

#include "backends/kernel/lowering.h"

/* ---- verdicts.c ---- */
typedef struct strata_verdict {
    uint64_t key;
    bool wrong;
    /* The largest, as a part of the largest value. */
    double error;
    /* The kernels; of a wrong one the complaint. */
    char *what;
} strata_verdict;

enum { STRATA_CHECK_PATH_BYTES = 640 };

struct strata_checks {
    strata_device *device;
    /* "" when nothing is kept. */
    char path[STRATA_CHECK_PATH_BYTES];
    char device_name[128], driver[128];
    strata_verdict *verdicts;
    int n, capacity, n_wrong;
    /* Of the nodes of the piece of trials, by id, while it is compiled. */
    const strata_way *ways;
};

/* NULL: nothing is known. */
const strata_verdict *strata_verdict_find(const strata_checks *checks, uint64_t key);
/* False where memory runs out. */
bool strata_verdict_add(strata_checks *checks, uint64_t key, bool wrong, double error, const char *what);
void strata_verdicts_write(const strata_checks *checks);

/* ---- operands.c ---- */
int64_t strata_check_bytes(const strata_tensor *tensor);
/* Operations and moved bytes. */
double strata_check_work(const strata_tensor *node);
/* Whether the node writes operand i (of an update), or its own value (i: n_inputs). */
bool strata_check_writes(const strata_tensor *node, int i);
/* What the node computes from data[i], values of its operands: into data[n_inputs] or, of an update, in place. By the op's
 * reference; large ones by the host backend's own loops, where it has some for the node. */
strata_status strata_check_refer(const strata_tensor *node, void *const *data, strata_error *err);
bool strata_check_is_finite(const strata_tensor *tensor, const void *data);
bool strata_check_has_nan(const strata_tensor *tensor, const void *data);
/* What an element may differ by, as a part of the tensor's largest: far above roundings, far below what a wrong kernel does. */
double strata_check_tolerance(strata_dtype dtype);
/* The largest difference as a part of the largest value. */
double strata_check_difference(const strata_tensor *tensor, const void *got, const void *want);
/* Whether `got` is as far from `want` as no rounding brings it, where `moved` is what the reference makes of operands that were
 * moved by as much as a result may differ. */
bool strata_check_is_off(const strata_tensor *tensor, const void *got, const void *want, const void *moved);
/* Moves each float of the tensor by at most its dtype's tolerance, as a part of itself. */
void strata_check_move(const strata_tensor *tensor, void *data, uint32_t random);

/* ---- trial.c ---- */
/* A node with small operands. */
typedef struct strata_trial {
    const strata_tensor *real;
    /* Of the real piece. */
    const strata_place *places;
    /* The real node's way, and the small one's, which has the same kernels. */
    strata_way way, small_way;
    uint64_t key;
    /* Nothing is known of its kernels, and no trial before has the same. */
    bool is_new;
    /* It has no operands that are small enough to compare. */
    bool is_too_large;
    /* Its operands are as large as the real ones: they may lie in each other as those do. */
    bool is_full;
    strata_tensor node;
    /* One for each operand; where the real node has a tensor, or two in the same bytes, twice, so has this. */
    strata_tensor *inputs, **pointers;
    void *attrs;
    /* What operands hold before the run, and the node's own value behind them, as the reference leaves them. */
    void **data;
} strata_trial;

/* Its kernels, and room for operands. strata_trial_finish undoes it, after a failure too. */
strata_status strata_trial_init(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_piece *piece,
                                const strata_tensor *node, strata_trial *t, strata_error *err);
void strata_trial_finish(strata_trial *t);
/* Small operands with which the node has the kernels that it has: the largest that cost next to nothing, as they have the most
 * ends and rests, else those that cost least; false where even those are too large to compare. */
bool strata_trial_shrink(const strata_kernel_limits *limits, strata_trial *t);
/* Memory of the operands, filled with made-up values, positive ones on request. */
strata_status strata_trial_fill(strata_trial *t, bool positive, uint32_t seed, strata_error *err);
/* "cpu/matmul f32": the kernel that does the node's work in this way. */
void strata_check_name_kernels(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node,
                               char out[128]);

/* ---- recheck.c ---- */
/* Compares one node of a step with the reference, on the step's own values. *out_done: false where they are not to be had (the
 * node's operands come after an update, or are too large for the reference). A node that is wrong is a warning. */
strata_status strata_checks_step(const strata_kernel_limits *limits, const strata_step_run *step, const strata_tensor *node,
                                 const char *kernels, bool *out_done, strata_error *err);

#endif
