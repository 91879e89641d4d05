/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph's outputs on a device against the ops' references. */
#ifndef STRATA_TESTS_CONFORMANCE_RUN_CASE_H
#define STRATA_TESTS_CONFORMANCE_RUN_CASE_H

#include "core/run/device.h"
#include "strata/executable.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

enum { RUN_OUTPUTS = 128, RUN_LEAVES = 512 };

/* A graph under construction with what its leaves are fed. Zero it, set `device`, then strata_graph_create. */
typedef struct run_case {
    strata_device *device;
    strata_graph *graph;
    strata_tensor *outputs[RUN_OUTPUTS];
    strata_test_tolerance tolerances[RUN_OUTPUTS];
    bool exact;
    bool updates; /* the outputs are updates of variables */
    bool fusion;
    int n_outputs;
    strata_tensor *leaves[RUN_LEAVES];
    char names[RUN_LEAVES][16];
    strata_array values[RUN_LEAVES];
    strata_variable *variables[RUN_LEAVES]; /* NULL: an input */
    int n_leaves;
} run_case;

/* A graph for the device; fails the running test when memory runs out. */
void run_case_begin(run_case *run, strata_device *device);
/* A leaf that is fed `value`, which the case takes: an input, or a read of a variable on the device. */
strata_tensor *run_case_leaf(run_case *run, strata_array value, bool variable);
void run_case_output(run_case *run, strata_tensor *output, strata_test_tolerance tolerance);
/* Runs both ways and compares outputs, and variables where the outputs update them. A graph with a dtype that the device does
 * not have must be UNSUPPORTED with a reason. *out_output: which output is wrong. */
strata_test_result run_case_check(run_case *run, int *out_output);
/* The outputs of one run on the device, made here and finished by the caller. */
strata_status run_case_on_device(run_case *run, strata_array *out_values, strata_error *err);
void run_case_end(run_case *run);

#endif
