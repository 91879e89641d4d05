/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs (random_graph.h) on random meshes: inputs, variables and outputs are placed at random, with uneven and empty
 * parts, at one coordinate, variables and outputs also as partial sums, and the divided graph must give the values of the whole
 * graph. Both are computed by the ops' references. Values that are whole numbers must have the same bits, since no order of
 * sums changes them.
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

/* The last leaf is no leaf of the graph: it holds the devices' parts of the weights of which they have copies. */
enum { MOST_DEVICES = 8, MOST_RESULTS = MOST_OUTPUTS + LEAVES, MOST_KEPT = 512, PARTS_OF_WEIGHTS = WIDE_LEAVES, MOST_LEAVES };
/* Leaves of wide graphs (random_graph.c): two variables of sgd, three of adam, a table. */
enum { WEIGHTS = LEAVES, VELOCITY, ADAM_WEIGHTS, ADAM_M, ADAM_V, TABLE };
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "seed %d: %s", (int)seed_now, err.message)
static uint64_t seed_now;

typedef struct division {
    scene graph;
    strata_mesh mesh;
    strata_placement leaves[MOST_LEAVES], results[MOST_RESULTS], update;
    strata_tensor *outputs[MOST_RESULTS + MOST_NODES];
    bool exactly[MOST_RESULTS];
    int n_outputs;
    int n_leaves;
    strata_array arrays[MOST_LEAVES];
    /* The variables of the devices. */
    strata_variable parts[MOST_LEAVES][MOST_DEVICES];
    strata_test_lengths lengths;
} division;

static int leaf_of(const division *v, const strata_variable *variable) {
    for (int i = 0; i < VARIABLES; i++)
        if (variable == v->graph.variables[i]) return INPUTS + i;
    for (int i = 0; i < MORE_VARIABLES; i++)
        if (variable == v->graph.more[i]) return LEAVES + i;
    cr_assert_fail("an unknown leaf");
    return -1;
}

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const division *v = user;
    for (int i = 0; i < INPUTS; i++)
        if (v->graph.values[i].tensor == leaf) return &v->leaves[i];
    return &v->leaves[leaf_of(v, ((const strata_read_attrs *)leaf->attrs)->variable)];
}

static strata_variable *part_of(division *v, int leaf, int device) {
    v->parts[leaf][device] =
        strata_test_variable("a part", v->arrays[leaf].dtype,
                             strata_placement_part(&v->mesh, &v->leaves[leaf], v->arrays[leaf].shape, device, NULL));
    return &v->parts[leaf][device];
}

static strata_variable *variable_of(void *user, strata_variable *whole, int device) {
    return part_of(user, leaf_of(user, whole), device);
}

static strata_variable *part_of_weights(void *user, strata_variable *whole, int device) {
    cr_assert_eq(leaf_of(user, whole), ADAM_WEIGHTS);
    return part_of(user, PARTS_OF_WEIGHTS, device);
}

/* The values of the whole graph: the outputs, and after the run the variables in arrays[INPUTS + i]. */
static void evaluate_whole(const division *v, const strata_test_feed *feeds, strata_array *want) {
    strata_tensor *all[MOST_RESULTS + MOST_NODES];
    strata_array results[MOST_RESULTS + MOST_NODES];
    const int n = v->n_outputs, n_all = n + v->graph.n_updates;
    memcpy(all, v->outputs, (size_t)n * sizeof(*all));
    memcpy(all + n, v->graph.updates, (size_t)v->graph.n_updates * sizeof(*all));
    OK(strata_test_eval(all, n_all, feeds, v->graph.wide ? WIDE_LEAVES : LEAVES, results, &err));
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
static void make_summands(const strata_mesh *mesh, const strata_placement *placement, strata_array *const *parts,
                          uint64_t *state) {
    for (int d = 0; d < strata_mesh_n_devices(mesh); d++) {
        const int first = first_of(mesh, placement->partial, d);
        if (first == d || !strata_placement_has(mesh, placement, d)) continue;
        for (int64_t e = 0; e < strata_shape_elements(parts[d]->shape); e++)
            strata_element_set(parts[d]->dtype, parts[d]->data, e, (double)(strata_test_next(state) % 5) - 2);
        add_to_each(parts[first], parts[d], -1);
    }
}

/* Adds the summands to those of the first devices. */
static void add_up(const strata_mesh *mesh, const strata_placement *placement, strata_array *const *parts) {
    for (int d = 0; d < strata_mesh_n_devices(mesh); d++) {
        const int first = first_of(mesh, placement->partial, d);
        if (first != d && strata_placement_has(mesh, placement, d)) add_to_each(parts[first], parts[d], 1);
    }
}

static void check_parts(division *v, const strata_partition *partition, const strata_array *want, const strata_array *after) {
    strata_test_part parts[MOST_DEVICES];
    static strata_array got[MOST_DEVICES][MOST_RESULTS + MOST_NODES + MOST_KEPT];
    static strata_tensor *all[MOST_DEVICES][MOST_RESULTS + MOST_NODES + MOST_KEPT];
    strata_array values[MOST_DEVICES][MOST_LEAVES];
    strata_test_feed feeds[MOST_DEVICES][MOST_LEAVES];
    const int n = v->n_outputs, n_leaves = v->n_leaves;
    const double tolerance = tolerance_of(v->graph.graph);
    strata_array *same[MOST_DEVICES];
    uint64_t state = seed_now;
    for (int i = 0; i < n_leaves; i++) {
        for (int d = 0; d < partition->n_devices; d++) {
            values[d][i] = strata_test_part_of(&v->mesh, &v->leaves[i], &v->arrays[i], d);
            same[d] = &values[d][i];
        }
        make_summands(&v->mesh, &v->leaves[i], same, &state);
    }
    for (int d = 0; d < partition->n_devices; d++) {
        const strata_device_part *part = &partition->parts[d];
        memcpy(all[d], part->outputs, (size_t)n * sizeof(*all[d]));
        cr_assert_leq(part->n_updates, MOST_NODES + MOST_KEPT);
        if (part->n_updates) memcpy(all[d] + n, part->updates, (size_t)part->n_updates * sizeof(*all[d]));
        for (int i = 0; i < n_leaves; i++) {
            const void *leaf = i < INPUTS ? NULL : (const void *)&v->parts[i][d];
            for (int k = 0; k < part->graph->n_nodes && i < INPUTS; k++)
                if (part->graph->nodes[k]->op == &strata_op_input &&
                    !strcmp(strata_tensor_name(part->graph->nodes[k]), strata_tensor_name(v->graph.values[i].tensor)))
                    leaf = part->graph->nodes[k];
            feeds[d][i] = (strata_test_feed){leaf, &values[d][i]};
        }
        parts[d] = (strata_test_part){all[d], n + part->n_updates, feeds[d], n_leaves, got[d], NULL, NULL};
    }
    OK(strata_test_eval_parts(parts, partition->n_devices, &err));
    for (int i = 0; i < n + n_leaves; i++) {
        for (int d = 0; d < partition->n_devices; d++) same[d] = i < n ? &got[d][i] : &values[d][i - n];
        add_up(&v->mesh, i < n ? &v->results[i] : &v->leaves[i - n], same);
    }
    for (int d = 0; d < partition->n_devices; d++) {
        for (int i = 0; i < n; i++) {
            const bool has = strata_placement_has(&v->mesh, &v->results[i], d);
            cr_assert_eq(all[d][i] != NULL, has, "seed %d, output %d", (int)seed_now, i);
            if (!has || first_of(&v->mesh, v->results[i].partial, d) != d) continue;
            strata_array part = strata_test_part_of(&v->mesh, &v->results[i], &want[i], d);
            assert_same(&got[d][i], &part, v->exactly[i] ? 0 : tolerance, "output", i);
            strata_array_finish(&part);
        }
        for (int i = INPUTS; i < n_leaves; i++) {
            if (!strata_placement_has(&v->mesh, &v->leaves[i], d)) continue;
            if (first_of(&v->mesh, v->leaves[i].partial, d) != d) continue;
            strata_array part = strata_test_part_of(&v->mesh, &v->leaves[i], &after[i], d);
            assert_same(&values[d][i], &part, 0, "variable", i - INPUTS);
            strata_array_finish(&part);
        }
        for (int i = 0; i < parts[d].n_outputs; i++) strata_array_finish(&got[d][i]);
        for (int i = 0; i < n_leaves; i++) strata_array_finish(&values[d][i]);
    }
}

/* Makes a placement partial over axes that it does not mention. */
static void make_partial(const strata_mesh *mesh, strata_placement *placement, strata_dtype dtype, uint64_t *state) {
    unsigned divided = placement->at;
    if (dtype != STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_I32) return;
    for (int d = 0; d < STRATA_MAX_RANK; d++)
        for (int a = 0; a < placement->dims[d].n_axes; a++) divided |= 1u << placement->dims[d].axes[a];
    for (int a = 0; a < mesh->n_axes; a++)
        if (!(divided >> a & 1) && strata_test_next(state) % 2) placement->partial |= 1u << a;
}

/* The variables of sgd are divided alike, and so are those of adam, except that each device may have a copy of the weights. A
 * table is not divided, since rows of it are gathered. */
static void place_slots(division *v, uint64_t *state) {
    v->leaves[WEIGHTS] = v->leaves[VELOCITY] =
        strata_test_random_placement(&v->mesh, v->arrays[WEIGHTS].shape, state, &v->lengths);
    v->leaves[ADAM_M] = v->leaves[ADAM_V] = v->leaves[ADAM_WEIGHTS] =
        strata_test_random_placement(&v->mesh, v->arrays[ADAM_M].shape, state, &v->lengths);
    if (strata_test_next(state) % 4 == 0) return;
    v->leaves[PARTS_OF_WEIGHTS] = v->leaves[ADAM_M];
    v->leaves[ADAM_WEIGHTS] = (strata_placement){.partial = 0};
}

static void place_values(division *v, uint64_t *state) {
    v->mesh = strata_test_random_mesh(MOST_DEVICES, state);
    for (int i = 0; i < LEAVES; i++)
        v->leaves[i] = strata_test_random_placement(&v->mesh, v->arrays[i].shape, state, &v->lengths);
    if (v->graph.wide) place_slots(v, state);
    for (int i = 0; i < v->n_outputs; i++)
        if (strata_test_next(state) % 4 == 0) {
            v->results[i] = strata_test_random_placement(&v->mesh, v->outputs[i]->shape, state, &v->lengths);
            make_partial(&v->mesh, &v->results[i], v->outputs[i]->dtype, state);
        }
    for (int i = INPUTS; i < LEAVES; i++)
        if (strata_test_next(state) % 2) make_partial(&v->mesh, &v->leaves[i], v->arrays[i].dtype, state);
    /* Updates are made by all devices that have the variable, at one coordinate of one axis, or by all devices along an axis,
     * which then take the value of the first one. */
    const int axis = (int)(strata_test_next(state) % (uint64_t)v->mesh.n_axes);
    const int coordinate = (int)(strata_test_next(state) % (uint64_t)v->mesh.axes[axis].size);
    const uint64_t draw = strata_test_next(state) % 4;
    if (v->graph.wide) return;
    if (draw % 3 == 0) v->update = strata_placement_at(v->update, axis, coordinate);
    if (draw > 1) v->update.own = 1u << axis;
}

static void finish(division *v, strata_array *after) {
    for (int i = 0; i < v->n_leaves; i++) {
        strata_array_finish(&after[i]);
        strata_array_finish(&v->arrays[i]);
    }
    strata_graph_destroy(v->graph.graph);
    for (int i = 0; i < VARIABLES; i++) strata_variable_destroy(v->graph.variables[i]);
    for (int i = 0; i < MORE_VARIABLES; i++) strata_variable_destroy(v->graph.more[i]);
    strata_test_lengths_finish(&v->lengths);
    free(v);
}

/* Returns false if an update has fewer gradients than variables that are divided, which the partitioner refuses. */
static bool check_division(strata_device *device, uint64_t seed, bool differentiable, bool wide) {
    division *v = calloc(1, sizeof *v);
    strata_test_feed feeds[MOST_LEAVES];
    strata_array want[MOST_RESULTS], after[MOST_LEAVES];
    strata_partition *partition = NULL;
    uint64_t state = seed * 977;
    cr_assert(v);
    seed_now = seed;
    v->graph.differentiable = differentiable;
    v->graph.wide = wide;
    v->n_leaves = wide ? MOST_LEAVES : LEAVES;
    random_graph_begin(&v->graph, device, seed, v->arrays, feeds);
    v->n_outputs = random_graph_outputs(&v->graph, v->outputs);
    for (int i = 0; i < v->n_outputs; i++)
        for (int k = 0; k < v->graph.n; k++)
            if (v->graph.values[k].tensor == v->outputs[i]) v->exactly[i] = v->graph.values[k].most != 0;
    if (differentiable) v->n_outputs += random_graph_gradients(&v->graph, v->outputs, v->n_outputs, v->outputs + v->n_outputs);
    OK(strata_graph_check(v->graph.graph, &err));
    if (wide) {
        const strata_array *weights = &v->arrays[ADAM_WEIGHTS];
        OK(strata_array_create(weights->dtype, weights->shape, &v->arrays[PARTS_OF_WEIGHTS], &err));
        memcpy(v->arrays[PARTS_OF_WEIGHTS].data, weights->data, strata_array_bytes(weights));
    }
    place_values(v, &state);
    for (int i = 0; i < v->n_leaves; i++) {
        OK(strata_array_create(v->arrays[i].dtype, v->arrays[i].shape, &after[i], &err));
        memcpy(after[i].data, v->arrays[i].data, strata_array_bytes(&after[i]));
        feeds[i].value = &after[i];
    }
    const strata_partition_options opts = {.mesh = &v->mesh,
                                           .place = place,
                                           .variable = variable_of,
                                           .part_variable = part_of_weights,
                                           .update = v->update.at | v->update.own ? &v->update : NULL,
                                           .user = v,
                                           .outputs = v->outputs,
                                           .placements = v->results,
                                           .n_outputs = v->n_outputs,
                                           .updates = v->graph.updates,
                                           .n_updates = v->graph.n_updates};
    const strata_status status = strata_partition_create(&opts, &partition, &err);
    if (status == STRATA_UNSUPPORTED && wide && strstr(err.message, "the op's rule does not allow")) {
        finish(v, after);
        return false;
    }
    OK(status);
    evaluate_whole(v, feeds, want);
    if (wide && v->leaves[PARTS_OF_WEIGHTS].dims[0].n_axes)
        memcpy(after[PARTS_OF_WEIGHTS].data, after[ADAM_WEIGHTS].data, strata_array_bytes(&after[ADAM_WEIGHTS]));
    check_parts(v, partition, want, after);
    strata_partition_destroy(partition);
    for (int i = 0; i < v->n_outputs; i++) strata_array_finish(&want[i]);
    finish(v, after);
    return true;
}

static void check_divisions(uint64_t last, bool differentiable, bool wide) {
    strata_device *device = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    uint64_t n = 0;
    for (uint64_t seed = 1; seed <= last; seed++) n += check_division(device, seed, differentiable, wide);
    cr_assert_geq(n, wide ? last / 2 : last);
    strata_device_close(device);
}

Test(partition, divided_graphs_compute_the_values_of_the_whole_graph) {
    check_divisions(5000, false, false);
}

/* With optimizers, of which some have slots that are divided and parameters that are not, tables and sequences. */
Test(partition, divided_updates_are_those_of_the_whole_graph) {
    check_divisions(2500, false, true);
}

Test(partition, divided_gradients_are_those_of_the_whole_graph) {
    check_divisions(2500, true, false);
}

/* ---- exchanges ---- */

static const strata_placement *place_input(void *user, const strata_tensor *leaf) {
    const strata_placement *placements = user;
    return &placements[!strcmp(strata_tensor_name(leaf), "c")];
}

/* Rows are divided among the devices, except the last one, which only has c. Their sum times c is wanted where c is. */
Test(partition, sums_go_to_the_coordinate_where_they_are_wanted_and_idle_devices_compute_nothing) {
    static const int64_t lengths[] = {2, 1, 0};
    strata_graph *graph = NULL;
    strata_partition *partition = NULL;
    const strata_mesh mesh = {.n_axes = 1, .axes = {{"data", 3}}};
    strata_placement placements[2] = {{.partial = 0}};
    placements[0].dims[0] = (strata_dim_split){.n_axes = 1, .axes = {0}, .lengths = lengths};
    placements[1] = strata_placement_at(placements[1], 0, 2);
    OK(strata_graph_create(&graph, &err));
    strata_tensor *rows = strata_relu(strata_input(graph, "rows", STRATA_DTYPE_F32, STRATA_SHAPE(3, 4)));
    strata_tensor *sum = strata_reduce_sum(rows, (int[]){0}, 1, false);
    strata_tensor *product = strata_mul(sum, strata_input(graph, "c", STRATA_DTYPE_F32, STRATA_SHAPE(4)));
    const strata_partition_options opts = {.mesh = &mesh,
                                           .place = place_input,
                                           .user = placements,
                                           .outputs = &product,
                                           .placements = &placements[1],
                                           .n_outputs = 1};
    OK(strata_partition_create(&opts, &partition, &err));
    cr_assert_eq(partition->n_exchanges, 1);
    cr_expect_str_eq(partition->exchanges[0].op, "reduce_to");
    cr_expect(!partition->parts[0].outputs[0] && !partition->parts[1].outputs[0] && partition->parts[2].outputs[0]);
    for (int d = 0; d < 3; d++) {
        const strata_graph *part = partition->parts[d].graph;
        int n_relu = 0, n_mul = 0;
        for (int i = 0; i < part->n_nodes; i++) {
            n_relu += !strcmp(part->nodes[i]->op->name, "relu");
            n_mul += !strcmp(part->nodes[i]->op->name, "mul");
        }
        cr_expect_eq(n_relu, d < 2, "device %d has %d relu", d, n_relu);
        cr_expect_eq(n_mul, d == 2, "device %d has %d mul", d, n_mul);
        cr_expect_eq(partition->parts[d].n_updates, d < 2, "device %d takes part in the exchange", d);
    }
    strata_partition_destroy(partition);
    strata_graph_destroy(graph);
}
