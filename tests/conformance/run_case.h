/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a graph on a device and compares its outputs with those of the ops' reference functions. */
#ifndef STRATA_TESTS_CONFORMANCE_RUN_CASE_H
#define STRATA_TESTS_CONFORMANCE_RUN_CASE_H

#include "core/run/device.h"
#include "strata/executable.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

enum { RUN_OUTPUTS = 128, RUN_LEAVES = 512 };

/* A graph that is being built, and the values of its leaves. run_case_begin initializes it. */
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
    strata_variable *variables[RUN_LEAVES]; /* NULL: the leaf is an input */
    int n_leaves;
} run_case;

/* Starts a graph for the device. It fails the running test when memory runs out. */
void run_case_begin(run_case *run, strata_device *device);
/* Adds a leaf with this value, of which the case takes ownership: an input, or a read of a variable on the device. */
strata_tensor *run_case_leaf(run_case *run, strata_array value, bool variable);
void run_case_output(run_case *run, strata_tensor *output, strata_test_tolerance tolerance);
/* Runs the graph on the device and with the references, and compares the outputs and, where the outputs are updates, the
 * variables. A graph with a dtype that the device lacks must be UNSUPPORTED, with a reason. *out_output is the index of the
 * output that differs. */
strata_test_result run_case_check(run_case *run, int *out_output);
/* Runs the graph once on the device and creates the outputs. The caller finishes them. */
strata_status run_case_on_device(run_case *run, strata_array *out_values, strata_error *err);
void run_case_end(run_case *run);

#endif
