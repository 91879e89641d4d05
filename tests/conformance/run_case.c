/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds and runs a graph, and compares its outputs. */
#include "tests/conformance/run_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/conformance/devices.h"

void run_case_begin(run_case *run, strata_device *device) {
    strata_error err = {0};
    *run = (run_case){.device = device};
    cr_assert_eq(strata_graph_create(&run->graph, &err), STRATA_OK, "%s", err.message);
}

strata_tensor *run_case_leaf(run_case *run, strata_array value, bool variable) {
    strata_error err = {0};
    int i = run->n_leaves++;
    cr_assert(i < RUN_LEAVES);
    run->values[i] = value;
    snprintf(run->names[i], sizeof run->names[i], "x%d", i);
    if (!variable) return run->leaves[i] = strata_input(run->graph, run->names[i], value.dtype, value.shape);
    strata_status status =
        strata_variable_create(run->device, run->names[i], value.dtype, value.shape, &run->variables[i], &err);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return run->leaves[i] = strata_variable_read(run->graph, run->variables[i]);
}

void run_case_output(run_case *run, strata_tensor *output, strata_test_tolerance tolerance) {
    cr_assert(run->n_outputs < RUN_OUTPUTS);
    run->tolerances[run->n_outputs] = tolerance;
    run->outputs[run->n_outputs++] = output;
}

void run_case_end(run_case *run) {
    strata_graph_destroy(run->graph);
    for (int i = 0; i < run->n_leaves; i++) {
        strata_array_finish(&run->values[i]);
        strata_variable_destroy(run->variables[i]);
    }
}

static strata_status run_executable(run_case *run, strata_executable *exe, strata_array *out_values, strata_error *err) {
    const char *names[RUN_LEAVES];
    strata_array inputs[RUN_LEAVES];
    int n = 0;
    for (int i = 0; i < run->n_leaves; i++) {
        if (run->variables[i]) {
            STRATA_TRY(strata_variable_set(run->variables[i], &run->values[i], err));
        } else {
            names[n] = run->names[i];
            inputs[n++] = run->values[i];
        }
    }
    for (int i = 0; i < run->n_outputs; i++)
        STRATA_TRY(strata_array_create(run->outputs[i]->dtype, run->outputs[i]->shape, &out_values[i], err));
    return strata_executable_run(exe, names, inputs, n, out_values, run->n_outputs, err);
}

strata_status run_case_on_device(run_case *run, strata_array *out_values, strata_error *err) {
    strata_executable *exe = NULL;
    strata_executable_options opts = {.no_fusion = !run->fusion, .n_slots = 1};
    for (int i = 0; i < run->n_outputs; i++) out_values[i] = (strata_array){0};
    STRATA_TRY(strata_executable_create(run->device, run->outputs, run->n_outputs, run->outputs,
                                        run->updates ? run->n_outputs : 0, &opts, &exe, err));
    strata_status status = run_executable(run, exe, out_values, err);
    strata_executable_destroy(exe);
    return status;
}

static bool device_has_dtypes(const run_case *run) {
    for (int i = 0; i < run->graph->n_nodes; i++)
        if (!(run->device->info.dtypes >> run->graph->nodes[i]->dtype & 1)) return false;
    return true;
}

/* Returns a node that the device reports as not supported. NULL: it supports all. */
static const strata_tensor *refused_node(const run_case *run) {
    const char *reason = NULL;
    for (int i = 0; i < run->graph->n_nodes; i++)
        if (!(run->graph->nodes[i]->op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW)) &&
            !run->device->api->supports(run->device, run->graph->nodes[i], &reason))
            return run->graph->nodes[i];
    return NULL;
}

static strata_test_result check_unsupported(strata_status status, const strata_error *err) {
    if (status == STRATA_UNSUPPORTED && err->message[0]) return strata_test_ok();
    return strata_test_bad(
        "the device does not have the dtype or op: UNSUPPORTED with a reason was expected, got %s \"%.300s\"",
        strata_status_name(status), err->message);
}

/* Computes the outputs with the reference functions. The updates change the arrays of the variables. */
static strata_status reference(run_case *run, strata_array *out_values, strata_error *err) {
    strata_test_feed feeds[RUN_LEAVES];
    for (int i = 0; i < run->n_leaves; i++)
        feeds[i] = (strata_test_feed){run->variables[i] ? (const void *)run->variables[i] : run->leaves[i], &run->values[i]};
    return strata_test_eval(run->outputs, run->n_outputs, feeds, run->n_leaves, out_values, err);
}

static strata_test_result compare(const run_case *run, const strata_array *got, const strata_array *want,
                                  strata_test_tolerance tolerance) {
    if (!conformance_computes(run->device)) {
        strata_array zeros = strata_test_full(want->dtype, want->shape, 0);
        strata_test_result result = strata_test_same(got, &zeros);
        strata_array_finish(&zeros);
        return result;
    }
    return run->exact ? strata_test_same(got, want) : strata_test_compare(got, want, tolerance);
}

static strata_test_result check_variables(run_case *run) {
    strata_test_result result = strata_test_ok();
    for (int i = 0; i < run->n_leaves && result.ok; i++) {
        strata_array got = {0};
        strata_error err = {0};
        if (!run->variables[i]) continue;
        if (strata_array_create(run->values[i].dtype, run->values[i].shape, &got, &err) ||
            strata_variable_get(run->variables[i], &got, &err))
            result = strata_test_bad("variable %d: %s", i, err.message);
        else
            result = compare(run, &got, &run->values[i], run->tolerances[0]);
        strata_array_finish(&got);
    }
    return result;
}

strata_test_result run_case_check(run_case *run, int *out_output) {
    strata_error err = {0};
    strata_array got[RUN_OUTPUTS] = {0}, want[RUN_OUTPUTS] = {0};
    *out_output = 0;
    if (strata_graph_check(run->graph, &err)) return strata_test_bad("%s", err.message);
    strata_status status = run_case_on_device(run, got, &err);
    strata_test_result result = strata_test_ok();
    /* When a rejected op runs as its composition, the run succeeds, and its values are compared like all others. */
    if (!device_has_dtypes(run) || (conformance_may_refuse(run->device) && status && refused_node(run))) {
        result = check_unsupported(status, &err);
    } else if (status || reference(run, want, &err)) {
        result = strata_test_bad("%s: %s", strata_status_name(err.status), err.message);
    } else {
        for (int i = 0; i < run->n_outputs && result.ok; i++) {
            *out_output = i;
            result = compare(run, &got[i], &want[i], run->tolerances[i]);
        }
        if (result.ok && run->updates && conformance_computes(run->device)) result = check_variables(run);
    }
    for (int i = 0; i < run->n_outputs; i++) {
        strata_array_finish(&got[i]);
        strata_array_finish(&want[i]);
    }
    return result;
}
