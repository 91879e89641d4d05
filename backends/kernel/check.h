/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the checks that compare kernels with the ops' references:
 *     verdicts.c   the results of checks (verdicts), in memory and on disk
 *     operands.c   the reference result for a node's operands, and the allowed error
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
    /* The largest error, relative to the largest value. */
    double error;
    /* The names of the kernels; for a wrong kernel the message. */
    char *what;
} strata_verdict;

enum { STRATA_CHECK_PATH_BYTES = 640 };

struct strata_checks {
    strata_device *device;
    /* The file of the verdicts; "": they are not stored. */
    char path[STRATA_CHECK_PATH_BYTES];
    char device_name[128], driver[128];
    strata_verdict *verdicts;
    int n, capacity, n_wrong;
    /* The ways of the nodes in the piece of trials, by id, while that piece is compiled. */
    const strata_way *ways;
};

/* The verdict with this key; NULL: the kernels have not been checked. */
const strata_verdict *strata_verdict_find(const strata_checks *checks, uint64_t key);
/* Returns false if memory runs out. */
bool strata_verdict_add(strata_checks *checks, uint64_t key, bool wrong, double error, const char *what);
void strata_verdicts_write(const strata_checks *checks);

/* ---- operands.c ---- */
int64_t strata_check_bytes(const strata_tensor *tensor);
/* The number of operations plus the bytes that are read and written. */
double strata_check_work(const strata_tensor *node);
/* Whether the node writes operand i (updates do), or its own value (i = n_inputs). */
bool strata_check_writes(const strata_tensor *node, int i);
/* Computes the node from data[i], the values of its operands. The result is written to data[n_inputs] or, for an update, in
 * place. Uses the op's reference; for large nodes the fast loops of the host backend, if it has one for the node. */
strata_status strata_check_refer(const strata_tensor *node, void *const *data, strata_error *err);
bool strata_check_is_finite(const strata_tensor *tensor, const void *data);
bool strata_check_has_nan(const strata_tensor *tensor, const void *data);
/* The allowed difference of an element, relative to the tensor's largest value. It is far above rounding errors and far
 * below the errors that a wrong kernel makes. */
double strata_check_tolerance(strata_dtype dtype);
/* The largest difference of an element, relative to the tensor's largest value. */
double strata_check_difference(const strata_tensor *tensor, const void *got, const void *want);
/* Whether `got` differs from `want` by more than rounding explains. `moved` is the reference result for operands that were
 * changed by the tolerance; it shows how sensitive the result is. */
bool strata_check_is_off(const strata_tensor *tensor, const void *got, const void *want, const void *moved);
/* Changes each float of the tensor by at most its dtype's tolerance, relative to the float. */
void strata_check_move(const strata_tensor *tensor, void *data, uint32_t random);

/* ---- trial.c ---- */
/* A node with small operands. */
typedef struct strata_trial {
    const strata_tensor *real;
    /* The places of the real piece's values. */
    const strata_place *places;
    /* The way (choice of kernels) of the real node, and the way of the small node, which uses the same kernels. */
    strata_way way, small_way;
    uint64_t key;
    /* Its kernels have not been checked, and no earlier trial uses the same kernels. */
    bool is_new;
    /* There are no operands that are small enough for a comparison. */
    bool is_too_large;
    /* Its operands are as large as the real ones, so they may share memory in the same way. */
    bool is_full;
    strata_tensor node;
    /* inputs[i] is the small copy of operand i. Where two operands of the real node are the same tensor, or lie in the
     * same bytes, both elements of `pointers` are the first one's copy. */
    strata_tensor *inputs, **pointers;
    void *attrs;
    /* The values of the operands before the run, followed by the node's own value, as the reference computes it. */
    void **data;
} strata_trial;

/* Finds the node's kernels and allocates the arrays for its operands. To be undone by strata_trial_finish, after a
 * failure too. */
strata_status strata_trial_init(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_piece *piece,
                                const strata_tensor *node, strata_trial *t, strata_error *err);
void strata_trial_finish(strata_trial *t);
/* Chooses small operands for which the node keeps its kernels. These are the largest whose cost is negligible, since
 * they test the most boundary cases, or else those of the least cost. Returns false if even the latter are too large
 * for a comparison. */
bool strata_trial_shrink(const strata_kernel_limits *limits, strata_trial *t);
/* Allocates the operands and fills them with generated values, only positive ones if `positive` is set. */
strata_status strata_trial_fill(strata_trial *t, bool positive, uint32_t seed, strata_error *err);
/* Writes the name of the kernel that does the node's work in this way, for example "cpu/matmul f32". */
void strata_check_name_kernels(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node,
                               char out[128]);

/* ---- recheck.c ---- */
/* Compares one node of a step with the reference, on the step's own values. *out_done is false if that is not possible,
 * because the node's operands depend on an update or are too large for the reference. Warns if the node is wrong. */
strata_status strata_checks_step(const strata_kernel_limits *limits, const strata_step_run *step, const strata_tensor *node,
                                 const char *kernels, bool *out_done, strata_error *err);

#endif
