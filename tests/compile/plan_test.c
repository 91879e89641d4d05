/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan: nothing that is needed is written over, arenas keep to their limit, and bytes are reused. */
#include "core/compile/plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;

static strata_graph *new_graph(void) {
    strata_graph *graph = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    return graph;
}

static strata_status plan_of(strata_graph *graph, strata_tensor *output, int64_t limit, strata_plan *plan, strata_error *err) {
    return strata_plan_create(&(strata_draft){.graph = graph, .outputs = &output, .n_outputs = 1}, limit, plan, err);
}

static strata_plan make_plan(strata_graph *graph, strata_tensor *output, int64_t limit) {
    strata_plan plan;
    strata_error err = {0};
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(plan_of(graph, output, limit, &plan, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_plan_check(&plan, &err), STRATA_OK, "%s", err.message);
    return plan;
}

static bool same_place(const strata_plan *plan, const strata_tensor *a, const strata_tensor *b) {
    strata_place x = plan->places[a->id], y = plan->places[b->id];
    return x.arena == y.arena && x.offset == y.offset;
}

Test(plan, an_element_wise_chain_runs_in_place) {
    strata_graph *graph = new_graph();
    strata_tensor *a = strata_exp(strata_input(graph, "x", f32, STRATA_SHAPE(1000))), *b = strata_neg(a), *c = strata_tanh(b);
    strata_plan plan = make_plan(graph, strata_reduce_sum(c, NULL, 0, false), INT64_MAX);
    cr_assert(same_place(&plan, a, b) && same_place(&plan, b, c));
    cr_assert_eq(strata_plan_bytes(&plan, STRATA_ARENA_WORK), 4096);
    strata_graph_destroy(graph);
}

Test(plan, a_value_that_is_needed_later_is_not_written_over) {
    strata_graph *graph = new_graph();
    strata_tensor *a = strata_exp(strata_input(graph, "x", f32, STRATA_SHAPE(1000))), *b = strata_neg(a);
    strata_plan plan = make_plan(graph, strata_reduce_sum(strata_mul(a, b), NULL, 0, false), INT64_MAX);
    cr_assert(!same_place(&plan, a, b));
    strata_graph_destroy(graph);
}

Test(plan, an_operand_that_is_also_read_through_a_part_of_it_is_not_written_over) {
    strata_graph *graph = new_graph();
    strata_tensor *a = strata_exp(strata_input(graph, "x", f32, STRATA_SHAPE(64)));
    strata_tensor *b = strata_add(a, strata_slice(a, (int64_t[]){0}, (int64_t[]){1}));
    strata_plan plan = make_plan(graph, strata_reduce_sum(b, NULL, 0, false), INT64_MAX);
    cr_assert(!same_place(&plan, a, b), "element 1 of the sum would read an element that is the sum already");
    strata_graph_destroy(graph);
}

Test(plan, views_lie_in_their_operand) {
    strata_graph *graph = new_graph();
    strata_tensor *a = strata_exp(strata_input(graph, "x", f32, STRATA_SHAPE(8, 10)));
    strata_tensor *flat = strata_reshape(a, STRATA_SHAPE(80)), *rows = strata_slice(a, (int64_t[]){3, 0}, (int64_t[]){2, 10});
    strata_tensor *y = strata_add(strata_reduce_sum(flat, NULL, 0, false), strata_reduce_sum(rows, NULL, 0, false));
    strata_plan plan = make_plan(graph, y, INT64_MAX);
    cr_assert(same_place(&plan, a, flat));
    cr_assert_eq(plan.places[rows->id].arena, plan.places[a->id].arena);
    cr_assert_eq(plan.places[rows->id].offset, plan.places[a->id].offset + 3 * 10 * 4);
    strata_graph_destroy(graph);
}

Test(plan, a_pack_is_computed_in_place) {
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(64)), *a = strata_exp(x), *b = strata_tanh(x);
    strata_tensor *pack = strata_pack((strata_tensor *[]){a, b}, (int64_t[]){64, 128}, 2, 256);
    strata_plan plan = make_plan(graph, strata_reduce_sum(pack, NULL, 0, false), INT64_MAX);
    cr_assert_eq(plan.places[a->id].arena, plan.places[pack->id].arena);
    cr_assert_eq(plan.places[a->id].offset, plan.places[pack->id].offset + 256);
    cr_assert_eq(plan.places[b->id].offset, plan.places[pack->id].offset + 512);
    strata_graph_destroy(graph);
}

Test(plan, arenas_split_at_the_limit) {
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(1024)), *values[6], *sum = NULL;
    for (int i = 0; i < 6; i++) values[i] = strata_mul(x, strata_scalar(graph, f32, i));
    for (int i = 0; i < 6; i++) sum = sum ? strata_add(sum, values[i]) : values[i];
    strata_plan plan = make_plan(graph, strata_reduce_sum(sum, NULL, 0, false), 8192);
    int arenas = 0;
    for (int i = 0; i < plan.n_arenas; i++) {
        cr_assert_leq(plan.arenas[i].bytes, 8192);
        arenas += plan.arenas[i].kind == STRATA_ARENA_WORK;
    }
    cr_assert_geq(arenas, 3, "6 values of 4096 bytes live at once, 2 fit into an arena: %d arenas", arenas);
    strata_graph_destroy(graph);
}

/* Three values lie side by side and are freed in each order, so that each joins the free range before it, the one behind it,
 * both or none. A value of their whole size then lies where they were. */
Test(plan, free_ranges_that_touch_become_one_in_whatever_order_they_are_freed) {
    enum { N = 256 };
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        strata_graph *graph = new_graph();
        strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(1, N)), *sum = strata_exp(x), *parts[3];
        for (int i = 0; i < 3; i++) parts[i] = strata_exp(x);
        for (int i = 0; i < 3; i++) sum = strata_add(sum, parts[orders[o][i]]);
        strata_tensor *whole = strata_broadcast_to(sum, STRATA_SHAPE(3, N));
        strata_plan plan = make_plan(graph, strata_reduce_sum(whole, NULL, 0, false), INT64_MAX);
        cr_expect_eq(strata_plan_bytes(&plan, STRATA_ARENA_WORK), 4 * N * (int64_t)sizeof(float), "order %zu: %lld bytes", o,
                     (long long)strata_plan_bytes(&plan, STRATA_ARENA_WORK));
        strata_graph_destroy(graph);
    }
}

Test(plan, a_tensor_beyond_the_limit_is_unsupported_and_named) {
    strata_graph *graph = new_graph();
    strata_plan plan;
    strata_error err = {0};
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(64));
    strata_tensor *large = strata_tensor_set_name(strata_exp(strata_broadcast_to(x, STRATA_SHAPE(64, 64))), "giant");
    strata_tensor *y = strata_reduce_sum(large, NULL, 0, false);
    strata_tensor_set_name(large->inputs[0], "giant"); /* as large: whichever is placed first */
    cr_assert_eq(plan_of(graph, y, 8192, &plan, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "giant") && strstr(err.message, "16384") && strstr(err.message, "8192"), "%s", err.message);
    strata_graph_destroy(graph);
}

Test(plan, inputs_that_do_not_fit_together_are_unsupported) {
    strata_graph *graph = new_graph();
    strata_plan plan;
    strata_error err = {0};
    strata_tensor *a = strata_input(graph, "a", f32, STRATA_SHAPE(64)), *b = strata_input(graph, "b", f32, STRATA_SHAPE(64));
    strata_tensor *y = strata_add(a, b);
    cr_assert_eq(plan_of(graph, y, 300, &plan, &err), STRATA_UNSUPPORTED);
    cr_assert_not_null(strstr(err.message, "256 bytes beside 256 of other inputs"), "%s", err.message);
    strata_graph_destroy(graph);
}

Test(plan, the_checker_finds_a_planted_overlap) {
    strata_graph *graph = new_graph();
    strata_error err = {0};
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(256)), *a = strata_exp(x), *b = strata_tanh(x);
    strata_plan plan = make_plan(
        graph, strata_matmul(strata_reshape(a, STRATA_SHAPE(16, 16)), strata_reshape(b, STRATA_SHAPE(16, 16)), false, false),
        INT64_MAX);
    cr_assert_geq(plan.n_storages, 2);
    strata_storage before = plan.storages[1];
    plan.storages[1].offset = plan.storages[0].offset + 256;
    cr_assert_eq(strata_plan_check(&plan, &err), STRATA_INTERNAL);
    cr_assert_not_null(strstr(err.message, "share bytes"), "%s", err.message);
    plan.storages[1] = before;
    cr_assert_eq(strata_plan_check(&plan, &err), STRATA_OK);
    plan.storages[1].offset = plan.arenas[before.arena].bytes;
    cr_assert_eq(strata_plan_check(&plan, &err), STRATA_INTERNAL);
    strata_graph_destroy(graph);
}

/* ---- random graphs ---- */

/* One more node over earlier ones, all of 32 elements or their sum broadcast. */
static strata_tensor *random_node(uint64_t *state, strata_tensor **pool, int n) {
    strata_tensor *a = pool[strata_test_next(state) % (uint64_t)n], *b = pool[strata_test_next(state) % (uint64_t)n];
    static const strata_shape flat = {.rank = 1, .dims = {32}};
    switch (strata_test_next(state) % 9) {
        case 0:
            return strata_neg(a);
        case 1:
            return strata_tanh(a);
        case 2:
            return strata_add(a, b);
        case 3:
            return strata_mul(a, strata_slice(b, (int64_t[]){(int64_t)(strata_test_next(state) % 32)}, (int64_t[]){1}));
        case 4:
            return strata_reshape(strata_transpose(strata_reshape(a, STRATA_SHAPE(4, 8)), NULL), flat);
        case 5: {
            strata_tensor *parts[] = {strata_slice(a, (int64_t[]){8}, (int64_t[]){16}),
                                      strata_slice(b, (int64_t[]){0}, (int64_t[]){16})};
            return strata_pack(parts, (int64_t[]){0, 16}, 2, 32);
        }
        case 6:
            return strata_pack((strata_tensor *[]){strata_slice(a, (int64_t[]){0}, (int64_t[]){16}),
                                                   strata_neg(strata_slice(b, (int64_t[]){4}, (int64_t[]){9}))},
                               (int64_t[]){0, 20}, 2, 32);
        case 7:
            return strata_softmax(a);
        default:
            return strata_where(strata_less(a, b), a, b);
    }
}

static void *address(const strata_plan *plan, char **arenas, const strata_tensor *tensor) {
    strata_place place = plan->places[tensor->id];
    return arenas[place.arena] + place.offset;
}

/* Runs the schedule by the references in the planned places. */
static void run_plan(const strata_plan *plan, char **arenas) {
    for (int s = 0; s < plan->n_schedule; s++) {
        const strata_tensor *node = plan->schedule[s];
        const void *inputs[8];
        strata_error err = {0};
        for (int i = 0; i < node->n_inputs; i++) inputs[i] = address(plan, arenas, node->inputs[i]);
        strata_op_call call = {.node = node, .inputs = inputs, .output = address(plan, arenas, node)};
        cr_assert_eq(strata_reference(call, &err), STRATA_OK, "%s", err.message);
    }
}

static void check_random_graph(uint64_t seed) {
    enum { INPUTS = 3, NODES = 40 };
    uint64_t state = seed;
    strata_graph *graph = new_graph();
    strata_tensor *pool[INPUTS + NODES];
    strata_array values[INPUTS], want;
    strata_test_feed feeds[INPUTS];
    static const char *const names[INPUTS] = {"a", "b", "c"};
    strata_error err = {0};
    for (int i = 0; i < INPUTS; i++) {
        pool[i] = strata_input(graph, names[i], f32, STRATA_SHAPE(32));
        values[i] = strata_test_random(f32, STRATA_SHAPE(32), -1, 1, seed + (uint64_t)i);
        feeds[i] = (strata_test_feed){pool[i], &values[i]};
    }
    for (int i = INPUTS; i < INPUTS + NODES; i++) pool[i] = random_node(&state, pool, i);
    strata_tensor *y = strata_add(strata_add(pool[INPUTS + NODES - 1], pool[INPUTS + NODES / 2]), pool[INPUTS + NODES / 3]);
    strata_plan plan = make_plan(graph, y, seed % 3 ? 768 : INT64_MAX);
    char *arenas[64] = {0};
    cr_assert_lt(plan.n_arenas, 64);
    for (int i = 0; i < plan.n_arenas; i++) arenas[i] = calloc(1, (size_t)plan.arenas[i].bytes + 1);
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        if (plan.places[id].arena < 0 || node->n_inputs) continue;
        for (int i = 0; i < INPUTS; i++)
            if (node == pool[i]) memcpy(address(&plan, arenas, node), values[i].data, 32 * sizeof(float));
    }
    run_plan(&plan, arenas);
    cr_assert_eq(strata_test_eval(&y, 1, feeds, INPUTS, &want, &err), STRATA_OK, "%s", err.message);
    strata_array got = strata_array_view(f32, want.shape, address(&plan, arenas, y));
    strata_test_result same = strata_test_same(&got, &want);
    cr_assert(same.ok, "seed %d: %s", (int)seed, same.text);
    for (int i = 0; i < plan.n_arenas; i++) free(arenas[i]);
    for (int i = 0; i < INPUTS; i++) strata_array_finish(&values[i]);
    strata_array_finish(&want);
    strata_graph_destroy(graph);
}

Test(plan, random_graphs_give_the_same_bits_in_shared_memory_as_in_memory_of_their_own) {
    for (uint64_t seed = 1; seed <= 300; seed++) check_random_graph(seed);
}
