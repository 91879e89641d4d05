/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs (random_graph.h). The compiled program, with all passes and without fusion, must compute what the references of
 * the nodes compute one after the other without any pass.
 *
 * Some graphs have exchanges between replicas, which divide a program into segments. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/run/group.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/compile/random_graph.h"
#include "tests/support/check.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_device *device;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* The largest error of an element in units of the largest element. */
static strata_test_result compare(const strata_array *got, const strata_array *want, bool exactly) {
    double most = 0;
    for (int64_t i = 0; i < strata_shape_elements(want->shape); i++)
        most = fmax(most, fabs(strata_element_get(want->dtype, want->data, i)));
    return strata_test_compare(got, want, (strata_test_tolerance){0, exactly ? 0 : 1e-5 + 1e-4 * most});
}

/* One run. `group` NULL: of the executable alone. */
static void run(strata_executable *exe, strata_group *group, const strata_array *inputs, strata_array *got, int n) {
    static const char *const names[] = {"a", "b", "c"};
    strata_error err = {0};
    int slot = 0;
    if (!group) {
        OK(strata_executable_run(exe, names, inputs, INPUTS, got, n, &err));
        return;
    }
    OK(strata_group_acquire(group, &slot, &err));
    for (int i = 0; i < INPUTS; i++)
        strata_executable_feed(exe, slot, names[i], inputs[i].data, strata_array_bytes(&inputs[i]));
    OK(strata_group_start(group, slot, 0, &err));
    OK(strata_group_finish(group, slot, NULL, &err));
    OK(strata_group_wait(group, slot, &err));
    for (int i = 0; i < n; i++) memcpy(got[i].data, strata_executable_output(exe, slot, i), strata_array_bytes(&got[i]));
}

/* What the references computed. */
typedef struct expected {
    const strata_array *outputs;
    /* Whether the bits must be the same. */
    const bool *exactly;
    /* [VARIABLES] */
    const strata_array *variables;
} expected;

static void check_values(const scene *s, const expected *want, const strata_array *got, int n, int seed, const char *how) {
    strata_error err = {0};
    for (int i = 0; i < n; i++) {
        const strata_test_result same = compare(&got[i], &want->outputs[i], want->exactly[i]);
        cr_assert(same.ok, "seed %d, %s, output %d: %s", seed, how, i, same.text);
    }
    for (int i = 0; i < VARIABLES; i++) {
        strata_array now;
        OK(strata_array_create(f32, want->variables[i].shape, &now, &err));
        OK(strata_variable_get(s->variables[i], &now, &err));
        const strata_test_result same = strata_test_same(&now, &want->variables[i]);
        cr_assert(same.ok, "seed %d, %s, variable %d: %s", seed, how, i, same.text);
        strata_array_finish(&now);
    }
}

/* Runs the program twice from the same values of the variables. */
static void check_runs(scene *s, strata_tensor *const *outputs, int n, const strata_array *arrays, const expected *want,
                       bool no_fusion, int seed) {
    const strata_executable_options opts = {.no_fusion = no_fusion, .n_slots = 1};
    strata_executable *exe = NULL;
    strata_group *group = NULL;
    strata_error err = {0};
    strata_array got[MOST_OUTPUTS + LEAVES];
    if (s->divided) {
        OK(strata_executable_create_replica(device, outputs, n, s->updates, s->n_updates, &opts, NULL, &exe, &err));
        OK(strata_group_create(&exe, 1, NULL, NULL, &group, &err));
    } else {
        OK(strata_executable_create(device, outputs, n, s->updates, s->n_updates, &opts, &exe, &err));
    }
    for (int i = 0; i < n; i++) OK(strata_array_create(want->outputs[i].dtype, want->outputs[i].shape, &got[i], &err));
    for (int times = 0; times < 2; times++) {
        for (int i = 0; i < VARIABLES; i++) OK(strata_variable_set(s->variables[i], &arrays[INPUTS + i], &err));
        run(exe, group, arrays, got, n);
        check_values(s, want, got, n, seed, no_fusion ? "without fusion" : "with fusion");
    }
    for (int i = 0; i < n; i++) strata_array_finish(&got[i]);
    if (group)
        strata_group_destroy(group);
    else
        strata_executable_destroy(exe);
}

static void check_graph(uint64_t seed, bool differentiable, bool divided) {
    scene s = {.differentiable = differentiable, .divided = divided};
    strata_array arrays[LEAVES], copies[LEAVES], want[MOST_OUTPUTS + LEAVES + MOST_NODES];
    strata_tensor *outputs[MOST_OUTPUTS + LEAVES + MOST_NODES];
    strata_test_feed feeds[LEAVES];
    bool exactly[MOST_OUTPUTS + LEAVES] = {false};
    strata_error err = {0};
    random_graph_begin(&s, device, seed, arrays, feeds);
    int n = random_graph_outputs(&s, outputs);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < s.n; k++)
            if (s.values[k].tensor == outputs[i]) exactly[i] = s.values[k].most != 0;
    if (differentiable) {
        const int n_gradients = random_graph_gradients(&s, outputs, n, outputs + n);
        for (int i = 0; i < n_gradients; i++) exactly[n + i] = false;
        n += n_gradients;
    }
    cr_assert_eq(strata_graph_check(s.graph, &err), STRATA_OK, "seed %d: %s", (int)seed, err.message);
    for (int i = 0; i < LEAVES; i++) {
        OK(strata_array_create(f32, arrays[i].shape, &copies[i], &err));
        memcpy(copies[i].data, arrays[i].data, strata_array_bytes(&arrays[i]));
        feeds[i].value = &copies[i];
    }
    for (int i = 0; i < s.n_updates; i++) outputs[n + i] = s.updates[i];
    cr_assert_eq(strata_test_eval(outputs, n + s.n_updates, feeds, LEAVES, want, &err), STRATA_OK, "seed %d: %s", (int)seed,
                 err.message);
    const expected all = {want, exactly, copies + INPUTS};
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) check_runs(&s, outputs, n, arrays, &all, no_fusion, (int)seed);
    for (int i = 0; i < n + s.n_updates; i++) strata_array_finish(&want[i]);
    for (int i = 0; i < LEAVES; i++) {
        strata_array_finish(&arrays[i]);
        strata_array_finish(&copies[i]);
    }
    strata_graph_destroy(s.graph);
    for (int i = 0; i < VARIABLES; i++) strata_variable_destroy(s.variables[i]);
}

static void check_graphs(uint64_t last, bool differentiable, bool divided) {
    strata_error err = {0};
    OK(strata_device_open("host", NULL, &device, &err));
    for (uint64_t seed = 1; seed <= last; seed++) check_graph(seed, differentiable, divided);
    strata_device_close(device);
}

Test(random_graphs, compiled_values_are_those_of_the_references) {
    check_graphs(2500, false, false);
}

Test(random_graphs, compiled_gradients_are_those_of_the_references) {
    check_graphs(600, true, false);
}

Test(random_graphs, programs_of_several_segments_compute_the_values_of_the_references) {
    check_graphs(600, false, true);
    check_graphs(200, true, true);
}
