/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs (random_graph.h) on random meshes: inputs, variables and outputs are placed at random, with uneven and empty
 * parts, variables and outputs also as partial sums, and the divided graph must give the values of the whole graph. Both are computed by the ops' references. Values that
 * are whole numbers must have the same bits, since no order of sums changes them.
 *
 * tests/conformance/placement_test.c tests the rule of each op by itself. */
#include "core/compile/partition.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/op/element.h"
#include "core/op/ops.h"
#include "core/run/device.h"
#include "strata/ops.h"
#include "tests/compile/random_graph.h"
#include "tests/support/check.h"
#include "tests/support/parts.h"

enum { MOST_DEVICES = 8, MOST_RESULTS = MOST_OUTPUTS + LEAVES };
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "seed %d: %s", (int)seed_now, err.message)
static uint64_t seed_now;

typedef struct division {
    scene graph;
    strata_mesh mesh;
    strata_placement leaves[LEAVES], results[MOST_RESULTS];
    strata_tensor *outputs[MOST_RESULTS + MOST_NODES];
    bool exactly[MOST_RESULTS];
    int n_outputs;
    strata_array arrays[LEAVES];
    /* The variables of the devices. */
    strata_variable parts[VARIABLES][MOST_DEVICES];
    strata_test_lengths lengths;
} division;

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const division *v = user;
    for (int i = 0; i < INPUTS; i++)
        if (v->graph.values[i].tensor == leaf) return &v->leaves[i];
    for (int i = 0; i < VARIABLES; i++)
        if (((const strata_read_attrs *)leaf->attrs)->variable == v->graph.variables[i]) return &v->leaves[INPUTS + i];
    cr_assert_fail("an unknown leaf");
    return NULL;
}

static strata_variable *variable_of(void *user, strata_variable *whole, int device) {
    division *v = user;
    const int i = whole == v->graph.variables[1];
    v->parts[i][device] = strata_test_variable(
        whole->name, whole->dtype, strata_placement_part(&v->mesh, &v->leaves[INPUTS + i], whole->shape, device, NULL));
    return &v->parts[i][device];
}

/* The values of the whole graph: the outputs, and after the run the variables in arrays[INPUTS + i]. */
static void evaluate_whole(const division *v, const strata_test_feed *feeds, strata_array *want) {
    strata_tensor *all[MOST_RESULTS + MOST_NODES];
    strata_array results[MOST_RESULTS + MOST_NODES];
    const int n = v->n_outputs, n_all = n + v->graph.n_updates;
    memcpy(all, v->outputs, (size_t)n * sizeof(*all));
    memcpy(all + n, v->graph.updates, (size_t)v->graph.n_updates * sizeof(*all));
    OK(strata_test_eval(all, n_all, feeds, LEAVES, results, &err));
    for (int i = 0; i < n; i++) want[i] = results[i];
    for (int i = n; i < n_all; i++) strata_array_finish(&results[i]);
}

/* Partial sums of 16-bit values are rounded one by one. */
static double tolerance_of(const strata_graph *graph) {
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->dtype == STRATA_DTYPE_BF16 || graph->nodes[i]->dtype == STRATA_DTYPE_F16) return 1e-2;
    return 1e-5;
}

static void assert_same(const strata_array *got, const strata_array *want, double relative, const char *what, int i) {
    double most = 0;
    for (int64_t e = 0; e < strata_shape_elements(want->shape); e++)
        most = fmax(most, fabs(strata_element_get(want->dtype, want->data, e)));
    const strata_test_result same =
        strata_test_compare(got, want, (strata_test_tolerance){0, relative ? 1e-6 + relative * most : 0});
    cr_assert(same.ok, "seed %d, %s %d: %s", (int)seed_now, what, i, same.text);
}

/* The device whose coordinates are 0 on the axes over which a value is partial, and are d's on the others. */
static int first_of(const strata_mesh *mesh, unsigned partial, int d) {
    for (int a = mesh->n_axes - 1, stride = 1; a >= 0; stride *= mesh->axes[a--].size)
        if (partial >> a & 1) d -= strata_mesh_coordinate(mesh, d, a) * stride;
    return d;
}

static void add_to_each(strata_array *x, const strata_array *y, double factor) {
    for (int64_t e = 0; e < strata_shape_elements(x->shape); e++)
        strata_element_set(x->dtype, x->data, e,
                           strata_element_get(x->dtype, x->data, e) + factor * strata_element_get(x->dtype, y->data, e));
}

/* A partial value: all devices but the first ones get small whole numbers, and the sum stays the same. parts: [n_devices] that
 * are equal along the axes. */
static void make_summands(const strata_mesh *mesh, unsigned partial, strata_array *const *parts, uint64_t *state) {
    for (int d = 0; d < strata_mesh_n_devices(mesh); d++) {
        const int first = first_of(mesh, partial, d);
        if (first == d) continue;
        for (int64_t e = 0; e < strata_shape_elements(parts[d]->shape); e++)
            strata_element_set(parts[d]->dtype, parts[d]->data, e, (double)(strata_test_next(state) % 5) - 2);
        add_to_each(parts[first], parts[d], -1);
    }
}

/* Adds the summands to those of the first devices. */
static void add_up(const strata_mesh *mesh, unsigned partial, strata_array *const *parts) {
    for (int d = 0; d < strata_mesh_n_devices(mesh); d++)
        if (first_of(mesh, partial, d) != d) add_to_each(parts[first_of(mesh, partial, d)], parts[d], 1);
}

static void check_parts(division *v, const strata_partition *partition, const strata_array *want, const strata_array *after) {
    strata_test_part parts[MOST_DEVICES];
    strata_array values[MOST_DEVICES][LEAVES], got[MOST_DEVICES][MOST_RESULTS + MOST_NODES];
    strata_test_feed feeds[MOST_DEVICES][LEAVES];
    strata_tensor *all[MOST_DEVICES][MOST_RESULTS + MOST_NODES];
    const int n = v->n_outputs, n_updates = v->graph.n_updates;
    const double tolerance = tolerance_of(v->graph.graph);
    strata_array *same[MOST_DEVICES];
    uint64_t state = seed_now;
    for (int i = 0; i < LEAVES; i++) {
        for (int d = 0; d < partition->n_devices; d++) {
            values[d][i] = strata_test_part_of(&v->mesh, &v->leaves[i], &v->arrays[i], d);
            same[d] = &values[d][i];
        }
        make_summands(&v->mesh, v->leaves[i].partial, same, &state);
    }
    for (int d = 0; d < partition->n_devices; d++) {
        const strata_device_part *part = &partition->parts[d];
        memcpy(all[d], part->outputs, (size_t)n * sizeof(*all[d]));
        memcpy(all[d] + n, part->updates, (size_t)n_updates * sizeof(*all[d]));
        for (int i = 0; i < LEAVES; i++) {
            const void *leaf = i < INPUTS ? NULL : (const void *)&v->parts[i - INPUTS][d];
            for (int k = 0; k < part->graph->n_nodes && i < INPUTS; k++)
                if (part->graph->nodes[k]->op == &strata_op_input &&
                    !strcmp(strata_tensor_name(part->graph->nodes[k]), strata_tensor_name(v->graph.values[i].tensor)))
                    leaf = part->graph->nodes[k];
            feeds[d][i] = (strata_test_feed){leaf, &values[d][i]};
        }
        parts[d] = (strata_test_part){all[d], n + n_updates, feeds[d], LEAVES, got[d]};
    }
    OK(strata_test_eval_parts(parts, partition->n_devices, &err));
    for (int i = 0; i < n + LEAVES; i++) {
        for (int d = 0; d < partition->n_devices; d++) same[d] = i < n ? &got[d][i] : &values[d][i - n];
        add_up(&v->mesh, i < n ? v->results[i].partial : v->leaves[i - n].partial, same);
    }
    for (int d = 0; d < partition->n_devices; d++) {
        for (int i = 0; i < n; i++) {
            if (first_of(&v->mesh, v->results[i].partial, d) != d) continue;
            strata_array part = strata_test_part_of(&v->mesh, &v->results[i], &want[i], d);
            assert_same(&got[d][i], &part, v->exactly[i] ? 0 : tolerance, "output", i);
            strata_array_finish(&part);
        }
        for (int i = INPUTS; i < LEAVES; i++) {
            if (first_of(&v->mesh, v->leaves[i].partial, d) != d) continue;
            strata_array part = strata_test_part_of(&v->mesh, &v->leaves[i], &after[i], d);
            assert_same(&values[d][i], &part, 0, "variable", i - INPUTS);
            strata_array_finish(&part);
        }
        for (int i = 0; i < n + n_updates; i++) strata_array_finish(&got[d][i]);
        for (int i = 0; i < LEAVES; i++) strata_array_finish(&values[d][i]);
    }
}

/* Makes a placement partial over axes that divide no dimension. */
static void make_partial(const strata_mesh *mesh, strata_placement *placement, strata_dtype dtype, uint64_t *state) {
    unsigned divided = 0;
    if (dtype != STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_I32) return;
    for (int d = 0; d < STRATA_MAX_RANK; d++)
        for (int a = 0; a < placement->dims[d].n_axes; a++) divided |= 1u << placement->dims[d].axes[a];
    for (int a = 0; a < mesh->n_axes; a++)
        if (!(divided >> a & 1) && strata_test_next(state) % 2) placement->partial |= 1u << a;
}

static void place_values(division *v, uint64_t *state) {
    v->mesh = strata_test_random_mesh(MOST_DEVICES, state);
    for (int i = 0; i < LEAVES; i++)
        v->leaves[i] = strata_test_random_placement(&v->mesh, v->arrays[i].shape, state, &v->lengths);
    for (int i = 0; i < v->n_outputs; i++)
        if (strata_test_next(state) % 4 == 0) {
            v->results[i] = strata_test_random_placement(&v->mesh, v->outputs[i]->shape, state, &v->lengths);
            make_partial(&v->mesh, &v->results[i], v->outputs[i]->dtype, state);
        }
    for (int i = INPUTS; i < LEAVES; i++)
        if (strata_test_next(state) % 2) make_partial(&v->mesh, &v->leaves[i], v->arrays[i].dtype, state);
}

static void check_division(strata_device *device, uint64_t seed, bool differentiable) {
    division *v = calloc(1, sizeof *v);
    strata_test_feed feeds[LEAVES];
    strata_array want[MOST_RESULTS], after[LEAVES];
    strata_partition *partition = NULL;
    uint64_t state = seed * 977;
    cr_assert(v);
    seed_now = seed;
    v->graph.differentiable = differentiable;
    random_graph_begin(&v->graph, device, seed, v->arrays, feeds);
    v->n_outputs = random_graph_outputs(&v->graph, v->outputs);
    for (int i = 0; i < v->n_outputs; i++)
        for (int k = 0; k < v->graph.n; k++)
            if (v->graph.values[k].tensor == v->outputs[i]) v->exactly[i] = v->graph.values[k].most != 0;
    if (differentiable) v->n_outputs += random_graph_gradients(&v->graph, v->outputs, v->n_outputs, v->outputs + v->n_outputs);
    OK(strata_graph_check(v->graph.graph, &err));
    place_values(v, &state);
    for (int i = 0; i < LEAVES; i++) {
        OK(strata_array_create(v->arrays[i].dtype, v->arrays[i].shape, &after[i], &err));
        memcpy(after[i].data, v->arrays[i].data, strata_array_bytes(&after[i]));
        feeds[i].value = &after[i];
    }
    const strata_partition_options opts = {.mesh = &v->mesh,
                                           .place = place,
                                           .variable = variable_of,
                                           .user = v,
                                           .outputs = v->outputs,
                                           .placements = v->results,
                                           .n_outputs = v->n_outputs,
                                           .updates = v->graph.updates,
                                           .n_updates = v->graph.n_updates};
    OK(strata_partition_create(&opts, &partition, &err));
    evaluate_whole(v, feeds, want);
    check_parts(v, partition, want, after);
    strata_partition_destroy(partition);
    for (int i = 0; i < v->n_outputs; i++) strata_array_finish(&want[i]);
    for (int i = 0; i < LEAVES; i++) {
        strata_array_finish(&after[i]);
        strata_array_finish(&v->arrays[i]);
    }
    strata_graph_destroy(v->graph.graph);
    for (int i = 0; i < VARIABLES; i++) strata_variable_destroy(v->graph.variables[i]);
    strata_test_lengths_finish(&v->lengths);
    free(v);
}

static void check_divisions(uint64_t last, bool differentiable) {
    strata_device *device = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    for (uint64_t seed = 1; seed <= last; seed++) check_division(device, seed, differentiable);
    strata_device_close(device);
}

Test(partition, divided_graphs_compute_the_values_of_the_whole_graph) {
    check_divisions(7500, false);
}

Test(partition, divided_gradients_are_those_of_the_whole_graph) {
    check_divisions(2500, true);
}
