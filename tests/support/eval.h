/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes tensors of a graph with the ops' reference functions, in host memory. It uses no device, no passes of the compiler
 * and no memory plan. With one device, the value of a communication node is its operand. */
#ifndef STRATA_TESTS_SUPPORT_EVAL_H
#define STRATA_TESTS_SUPPORT_EVAL_H

#include "core/graph/graph.h"
#include "core/run/device.h"

/* The value of a leaf of the graph. `leaf` is the tensor that strata_input returned, or a strata_variable, which stands for all
 * reads of this variable. The array has the leaf's dtype and shape. Ops that update a variable write into its array. A test
 * needs no device for a variable: strata_test_variable makes one. */
typedef struct strata_test_feed {
    const void *leaf;
    strata_array *value;
} strata_test_feed;

/* A variable without a device, for graphs that only strata_test_eval runs. `name` must live as long as the variable. */
strata_variable strata_test_variable(const char *name, strata_dtype dtype, strata_shape shape);

/* Computes outputs[0..n_outputs). The function creates out_values[i]; the caller finishes them. On failure all are zeroed.
 * An update runs when it is among the outputs, or when an output depends on it. Fails with the error that building the graph
 * caused, with INVALID for a leaf without a value in `feeds`, and with the error of a reference function. */
strata_status strata_test_eval(strata_tensor *const *outputs, int n_outputs, const strata_test_feed *feeds, int n_feeds,
                               strata_array *out_values, strata_error *err);

/* The graph of one of several devices, with the same meaning as the parameters of strata_test_eval. An output may be NULL; its
 * value is then zeroed. */
typedef struct strata_test_part {
    strata_tensor *const *outputs;
    int n_outputs;
    const strata_test_feed *feeds;
    int n_feeds;
    strata_array *out_values;
    /* Called with each value that was computed, in order to change it. NULL: none is changed. */
    void (*change)(strata_array *value, void *context);
    void *context;
} strata_test_part;

/* Evaluates the graphs of n devices, which exchange values among the members of a channel: all_reduce and reduce_to (a sum),
 * broadcast, reduce_scatter and all_gather. Every exchange must be needed by the outputs of all its members. */
strata_status strata_test_eval_parts(const strata_test_part *parts, int n, strata_error *err);

#endif
