/* SPDX-License-Identifier: Apache-2.0
 *
 * A node alone on a device: where its operands lie, and that it runs there. */
#include "core/run/bench.h"

#include <criterion/criterion.h>

#include "core/compile/plan.h"
#include "strata/ops.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_device *device;
static strata_graph *graph;
static strata_variable *variable;
static strata_error err;

static void begin(void) {
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    cr_assert_eq(strata_variable_create(device, "v", f32, STRATA_SHAPE(16), &variable, &err), STRATA_OK);
}

static void end(void) {
    strata_variable_destroy(variable);
    strata_graph_destroy(graph);
    strata_device_close(device);
}

TestSuite(bench, .init = begin, .fini = end);

/* The node as the plan of `root` lays it out, compiled and timed. */
static strata_bench run_alone(strata_tensor *root, bool updates, const strata_tensor *node) {
    strata_plan plan;
    strata_bench bench;
    strata_program *program = NULL;
    double us = 0;
    const strata_draft draft = {
        .graph = graph, .outputs = &root, .updates = &root, .n_outputs = !updates, .n_updates = updates};
    cr_assert_eq(strata_plan_create(&draft, INT64_MAX, &plan, &err), STRATA_OK);
    cr_assert_eq(strata_bench_init(&bench, device, node, plan.places, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(device->api->compile(device, &bench.piece, &program, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_bench_time(&bench, program, 1, &us, &err), STRATA_OK, "%s", err.message);
    cr_assert_gt(us, 0);
    device->api->program_destroy(program);
    return bench;
}

static bool same_place(const strata_bench *bench, const strata_tensor *a, const strata_tensor *b) {
    const strata_place *x = &bench->places[a->id], *y = &bench->places[b->id];
    return x->arena == y->arena && x->offset == y->offset;
}

Test(bench, what_a_node_writes_in_place_in_its_program_it_writes_in_place_alone) {
    strata_tensor *value = strata_variable_read(graph, variable), *added = strata_input(graph, "x", f32, STRATA_SHAPE(16));
    strata_tensor *update = strata_assign_add(value, added);
    strata_bench bench = run_alone(update, true, update);
    cr_assert(same_place(&bench, update, value));
    cr_assert_neq(bench.places[added->id].arena, bench.places[value->id].arena);
    strata_bench_finish(&bench);
    float values[16] = {1};
    strata_array array = {.dtype = f32, .shape = STRATA_SHAPE(16), .data = values};
    cr_assert_eq(strata_variable_get(variable, &array, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 16; i++) cr_assert_eq(values[i], 0, "the variable itself stays as it was");
}

Test(bench, parts_that_are_computed_into_a_pack_are_in_it_alone_too) {
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(16));
    strata_tensor *parts[] = {strata_neg(x), strata_exp(x)};
    strata_tensor *pack = strata_pack(parts, (int64_t[]){0, 64}, 2, 128);
    strata_bench bench = run_alone(strata_neg(pack), false, pack);
    cr_assert(same_place(&bench, pack, parts[0]));
    cr_assert_eq(bench.places[parts[1]->id].arena, bench.places[pack->id].arena);
    cr_assert_eq(bench.places[parts[1]->id].offset - bench.places[pack->id].offset, 64 * sizeof(float));
    strata_bench_finish(&bench);
}

Test(bench, without_a_plan_each_operand_has_its_own_memory_and_the_same_one_twice_has_one) {
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(3)), *y = strata_input(graph, "y", f32, STRATA_SHAPE(3));
    strata_tensor *twice = strata_add(x, x), *sum = strata_add(x, y);
    strata_bench bench;
    cr_assert_eq(strata_bench_init(&bench, device, twice, NULL, &err), STRATA_OK);
    cr_assert_eq(bench.piece.n_arenas, 2 + 2);
    strata_bench_finish(&bench);
    cr_assert_eq(strata_bench_init(&bench, device, sum, NULL, &err), STRATA_OK);
    cr_assert_eq(bench.piece.n_arenas, 2 + 3);
    cr_assert_eq(bench.piece.n_nodes, 1);
    strata_bench_finish(&bench);
    const strata_device_class own = device->info.device_class;
    device->info.device_class = STRATA_DEVICE_DISCRETE_GPU;
    cr_assert_eq(strata_bench_init(&bench, device, sum, NULL, &err), STRATA_OK);
    cr_assert_gt(bench.piece.n_nodes, 1, "a submission of so little would be most of its time");
    device->info.device_class = own;
    strata_bench_finish(&bench);
}

Test(bench, a_large_node_is_once_in_its_piece_and_indices_are_zeros) {
    strata_tensor *table = strata_input(graph, "table", f32, STRATA_SHAPE(1000, 1000));
    strata_tensor *rows = strata_gather(table, strata_input(graph, "i", STRATA_DTYPE_I32, STRATA_SHAPE(2000)), 0);
    strata_tensor *large = strata_matmul(rows, rows, false, true);
    strata_bench bench;
    const strata_device_class own = device->info.device_class;
    device->info.device_class = STRATA_DEVICE_DISCRETE_GPU;
    cr_assert_eq(strata_bench_init(&bench, device, large, NULL, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(bench.piece.n_nodes, 1);
    device->info.device_class = own;
    strata_bench_finish(&bench);
    cr_assert_eq(strata_bench_init(&bench, device, rows, NULL, &err), STRATA_OK, "%s", err.message);
    int32_t indices[2000] = {1};
    const strata_place *place = &bench.places[rows->inputs[1]->id];
    cr_assert_eq(device->api->download(device, bench.arenas[place->arena].buffer, 0, indices, sizeof indices, &err), STRATA_OK);
    for (int i = 0; i < 2000; i++) cr_assert_eq(indices[i], 0);
    strata_bench_finish(&bench);
}
