/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates tensors of a graph by the ops' references, in host memory: no device, no passes, no plan. */
#ifndef STRATA_TESTS_SUPPORT_EVAL_H
#define STRATA_TESTS_SUPPORT_EVAL_H

#include "core/graph/graph.h"
#include "core/run/device.h"

/* Memory for a leaf. `leaf` is a strata_input's tensor, or a strata_variable (for all its reads), of the array's dtype and
 * shape; updates write a variable's array in place. A test needs no device for a variable: strata_test_variable makes one. */
typedef struct strata_test_feed {
    const void *leaf;
    strata_array *value;
} strata_test_feed;

/* A variable without a device, for graphs that only strata_test_eval runs. `name` must live as long. */
strata_variable strata_test_variable(const char *name, strata_dtype dtype, strata_shape shape);

/* Computes outputs[0..n_outputs): out_values[i] is created, and finished by the caller; on failure all are zeroed.
 * An update runs when it is among the outputs or an output needs it. Fails with the graph's building error, INVALID for a leaf
 * that is not fed, and whatever a reference says. */
strata_status strata_test_eval(strata_tensor *const *outputs, int n_outputs, const strata_test_feed *feeds, int n_feeds,
                               strata_array *out_values, strata_error *err);

#endif
