/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the checks that compare kernels with the ops' references:
 *     verdicts.c   the results of checks (verdicts), in memory and on disk
 *     operands.c   the reference result for a node's operands
 *     check.c      the nodes of a program, each on what it really reads
 * core/run/compare.h has the allowed error, and the values of a program that has not run yet. */
#ifndef STRATA_BACKENDS_KERNEL_CHECK_H
#define STRATA_BACKENDS_KERNEL_CHECK_H

#include "backends/kernel/lowering.h"
#include "core/run/compare.h"

/* ---- verdicts.c ---- */
/* Kernels that compute wrongly. */
typedef struct strata_verdict {
    uint64_t key;
    /* The largest error, relative to the largest value. */
    double error;
    /* When it was found last, in seconds since 1970, and at how many starts. */
    int64_t found;
    int starts;
    /* It is of an earlier start and is tried again: the kernels are used. */
    bool is_suspect;
    /* The message. */
    char *what;
} strata_verdict;

struct strata_checks {
    strata_device *device;
    strata_records file;
    char driver[128];
    strata_verdict *verdicts;
    /* The user was told that kernels are not used because of earlier starts. */
    bool told;
    /* n_wrong: those that are no suspects. */
    int n, n_wrong;
    int64_t capacity;
};

/* Returns false if memory runs out. */
bool strata_verdict_add(strata_checks *checks, uint64_t key, double error, const char *what);
/* Removes a suspect. Returns whether there was one. */
bool strata_verdict_drop(strata_checks *checks, uint64_t key);
/* Whether there are suspects. */
bool strata_checks_suspect(const strata_checks *checks);
void strata_verdicts_write(const strata_checks *checks);

/* ---- operands.c ---- */
/* The number of operations plus the bytes that are read and written. */
double strata_check_work(const strata_tensor *node);
/* Whether the node writes operand i (updates do), or its own value (i = n_inputs). */
bool strata_check_writes(const strata_tensor *node, int i);
/* Chooses the elements of `written`, which the node writes: all, unless the reference takes long for them. */
strata_status strata_sample_choose(const strata_tensor *node, const strata_tensor *written, uint32_t random, strata_sample *out,
                                   strata_error *err);
void strata_sample_finish(strata_sample *sample); /* a zeroed one is fine */

/* Computes the node from data[i], the values of its operands. The sample's elements of the result are written to data[n_inputs]
 * or, for an update, in place. Uses the op's reference, in double; for large nodes of which all elements are compared the fast
 * loops of the host backend, if it has any for the node. */
strata_status strata_check_refer(const strata_tensor *node, const strata_sample *sample, void *const *data, strata_error *err);

#endif
