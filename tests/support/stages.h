/* SPDX-License-Identifier: Apache-2.0
 *
 * A small pipeline for tests of groups: a chain of stages, each of one or two devices, with a forward and a backward pass, a
 * loss at the last stage, and gradients that are added up over micro-batches. */
#ifndef STRATA_TESTS_SUPPORT_STAGES_H
#define STRATA_TESTS_SUPPORT_STAGES_H

#include "core/run/group.h"

enum { TEST_STAGES_MOST = 8, TEST_STAGES_SIDE = 4, TEST_STAGES_MICROBATCHES = 12 };

typedef struct test_stages_options {
    /* width: the devices of a stage, 1 or 2; they add up their products. Replica s * width + t is part t of stage s. */
    int n_stages, width;
    /* The first stage also sends its result to the last one. */
    bool skips;
    /* [n_stages * width], or those of this worker. */
    strata_device *const *devices;
    /* n_carried: of each replica. 0: as many as stages from its own one on, which is what 1f1b needs. */
    int n_slots, n_carried;
    /* The workers that have a part of the replicas each; NULL: this one has all. */
    const strata_workers *workers;
} test_stages_options;

/* Zeroed before test_stages_create; destroyed also after a failure. */
typedef struct test_stages {
    test_stages_options opts;
    /* The replicas of this worker: the first one's number, and how many. */
    int first, n;
    int stages[TEST_STAGES_MOST];
    strata_variable *weights[TEST_STAGES_MOST], *sums[TEST_STAGES_MOST];
    strata_group *group;
    /* [m * n] Whether replica r has examples in micro-batch m, at index m * n + r; NULL: all. */
    const bool *contributes;
} test_stages;

/* What m micro-batches computed: the output of each replica of this worker, and the sums of gradients. */
typedef struct test_stages_result {
    float outputs[TEST_STAGES_MICROBATCHES][TEST_STAGES_MOST];
    float sums[TEST_STAGES_MOST][TEST_STAGES_SIDE * TEST_STAGES_SIDE];
} test_stages_result;

strata_status test_stages_create(const test_stages_options *opts, test_stages *t, strata_error *err);
void test_stages_destroy(test_stages *t);
/* Writes the actions of gpipe or 1f1b, a row a replica; returns how many. There is room for 2 * m * n. */
int test_stages_actions(const test_stages *t, bool gpipe, int m, strata_group_action *actions);
/* Runs m micro-batches, one after the other. */
strata_status test_stages_run_alone(test_stages *t, int m, test_stages_result *result, strata_error *err);
/* Runs them as the actions say, in n_slots slots. */
strata_status test_stages_run(test_stages *t, const strata_group_action *actions, int n_actions, int m, int n_slots,
                              test_stages_result *result, strata_error *err);

#endif
