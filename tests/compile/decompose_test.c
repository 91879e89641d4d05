/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes are replaced by compositions, when, and what stays as it is. That compositions are right is what
 * tests/conformance/ops_test.c shows for each op. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/compile/passes.h"
#include "core/graph/variable.h"
#include "core/op/epilogue.h"
#include "core/op/ops.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* A device by what it answers: the ops that it lacks, or whose parts it runs better, and the dtypes that it has. */
typedef struct device {
    const char *const *lacks, *const *prefers_parts;
    bool f32_only, no_epilogues;
    int asked;
} device;

static bool lists(const char *const *names, const char *name) {
    for (; names && *names; names++)
        if (!strcmp(*names, name)) return true;
    return false;
}

static bool is_narrow(const strata_tensor *x) {
    return x->dtype == STRATA_DTYPE_F16 || x->dtype == STRATA_DTYPE_BF16;
}

static strata_support supports(void *user, const strata_tensor *node) {
    device *d = user;
    d->asked++;
    bool narrow = is_narrow(node);
    for (int i = 0; i < node->n_inputs; i++) narrow = narrow || is_narrow(node->inputs[i]);
    if (d->f32_only && narrow && node->op != &strata_op_cast) return STRATA_SUPPORT_NO;
    if (d->no_epilogues && node->op->epilogue && !strata_epilogue_is_plain(strata_epilogue_of(node))) return STRATA_SUPPORT_NO;
    if (lists(d->lacks, node->op->name)) return STRATA_SUPPORT_NO;
    return lists(d->prefers_parts, node->op->name) ? STRATA_SUPPORT_PARTS : STRATA_SUPPORT_YES;
}

/* The draft of one output after all passes. */
static strata_draft pass(strata_tensor *output, device *d, bool no_fusion) {
    strata_error err = {0};
    strata_draft p;
    const strata_device_query query = {.supports = supports, .user = d, .no_fusion = no_fusion};
    OK(strata_draft_begin(&p, &output, 1, NULL, 0, &err));
    OK(strata_passes_run(&p, &query, true, &err));
    return p;
}

static void mark(const strata_tensor *node, bool *live) {
    live[node->id] = true;
    for (int i = 0; i < node->n_inputs; i++)
        if (!live[node->inputs[i]->id]) mark(node->inputs[i], live);
}

/* Live nodes of the op. */
static int count(const strata_draft *p, const strata_op *op) {
    enum { MOST = 4096 };
    bool live[MOST] = {false};
    int n = 0;
    cr_assert(p->graph->n_nodes <= MOST);
    mark(p->outputs[0], live);
    for (int id = 0; id < p->graph->n_nodes; id++) n += live[id] && p->graph->nodes[id]->op == op;
    return n;
}

static strata_graph *new_graph(void) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    OK(strata_graph_create(&graph, &err));
    return graph;
}

static strata_tensor *input(strata_graph *graph, const char *name, strata_dtype dtype) {
    return strata_input(graph, name, dtype, STRATA_SHAPE(4, 4));
}

Test(decompose, nothing_is_copied_where_the_device_runs_all) {
    strata_error err = {0};
    strata_graph *graph = new_graph();
    strata_draft draft;
    device d = {0};
    const strata_device_query query = {.supports = supports, .user = &d};
    strata_tensor *y = strata_softmax(input(graph, "x", STRATA_DTYPE_F32)), *dead = strata_gelu(y);
    OK(strata_draft_begin(&draft, &y, 1, NULL, 0, &err));
    OK(strata_decompose(&draft, &query, &err));
    cr_expect_eq(draft.graph, graph);
    cr_expect_eq(draft.outputs[0], y);
    strata_draft_finish(&draft);
    cr_expect_eq(d.asked, 1, "leaves and dead nodes are not asked about");
    cr_expect_not_null(dead);
    strata_graph_destroy(graph);
}

Test(decompose, a_missing_op_becomes_a_composition_with_its_name) {
    static const char *const lacks[] = {"softmax", "div", NULL};
    static const char *const lacks_softmax[] = {"softmax", NULL};
    strata_graph *graph = new_graph();
    device d = {.lacks = lacks_softmax};
    strata_tensor *y = strata_tensor_set_name(strata_softmax(input(graph, "x", STRATA_DTYPE_F32)), "answer");
    strata_draft p = pass(y, &d, true);
    cr_expect_eq(count(&p, &strata_op_softmax), 0);
    cr_expect_eq(count(&p, &strata_op_div), 1);
    cr_expect_eq(count(&p, &strata_op_exp), 1);
    cr_expect_str_eq(p.outputs[0]->name, "answer");
    strata_draft_finish(&p);
    /* A composition of which a part is missing is none. */
    d.lacks = lacks;
    p = pass(y, &d, true);
    cr_expect_eq(count(&p, &strata_op_softmax), 1);
    cr_expect_eq(count(&p, &strata_op_exp), 0);
    const strata_device_query query = {.supports = supports, .user = &d};
    cr_expect_str_eq(strata_decompose_obstacle(p.outputs[0], &query), "div");
    d.lacks = lacks_softmax;
    cr_expect_null(strata_decompose_obstacle(p.outputs[0], &query));
    strata_draft_finish(&p);
    strata_graph_destroy(graph);
}

Test(decompose, compositions_are_composed_in_turn) {
    static const char *const lacks[] = {"softmax_cross_entropy", "log_softmax", "reduce_max", "reduce_sum", "max", "sub", "neg",
                                        "greater_equal",         "less_equal",  NULL};
    strata_graph *graph = new_graph();
    device d = {.lacks = lacks};
    strata_tensor *y = strata_softmax_cross_entropy(input(graph, "x", STRATA_DTYPE_F32), input(graph, "y", STRATA_DTYPE_F32));
    strata_draft p = pass(y, &d, true);
    for (const char *const *name = lacks; *name; name++)
        for (int i = 0; i < strata_n_ops; i++)
            if (!strcmp(strata_ops[i]->name, *name)) cr_expect_eq(count(&p, strata_ops[i]), 0, "%s", *name);
    cr_expect_gt(count(&p, &strata_op_matmul), 0, "sums are products with ones");
    strata_draft_finish(&p);
    strata_graph_destroy(graph);
}

Test(decompose, parts_are_taken_where_the_device_runs_them_better) {
    static const char *const silu[] = {"silu", NULL}, *const exp_alone[] = {"exp", NULL};
    strata_graph *graph = new_graph();
    device d = {.prefers_parts = silu};
    strata_tensor *x = input(graph, "x", STRATA_DTYPE_F32);
    strata_draft p = pass(strata_silu(x), &d, true);
    cr_expect_eq(count(&p, &strata_op_silu), 0);
    strata_draft_finish(&p);
    d.prefers_parts = exp_alone; /* it has no composition */
    p = pass(strata_exp(x), &d, true);
    cr_expect_eq(count(&p, &strata_op_exp), 1);
    strata_draft_finish(&p);
    strata_graph_destroy(graph);
}

Test(decompose, fused_forms_are_made_where_the_device_has_them) {
    static const char *const lacks[] = {"chain", NULL};
    strata_graph *graph = new_graph();
    strata_tensor *x = input(graph, "x", STRATA_DTYPE_F32), *w = input(graph, "w", STRATA_DTYPE_F32);
    strata_tensor *bias = strata_input(graph, "b", STRATA_DTYPE_F32, STRATA_SHAPE(4));
    strata_tensor *y = strata_relu(strata_add(strata_matmul(x, w, false, false), bias));
    strata_tensor *z = strata_mul(strata_tanh(strata_add(x, w)), x);
    device all = {0}, few = {.no_epilogues = true, .lacks = lacks};
    strata_draft p = pass(y, &all, false);
    cr_expect_eq(count(&p, &strata_op_relu), 0);
    strata_draft_finish(&p);
    p = pass(y, &few, false);
    cr_expect_eq(count(&p, &strata_op_relu), 1);
    cr_expect_eq(count(&p, &strata_op_add), 1);
    cr_expect(strata_epilogue_is_plain(strata_epilogue_of(p.outputs[0]->inputs[0]->inputs[0])));
    strata_draft_finish(&p);
    p = pass(z, &all, false);
    cr_expect_eq(count(&p, &strata_op_chain), 1);
    strata_draft_finish(&p);
    p = pass(z, &few, false);
    cr_expect_eq(count(&p, &strata_op_chain), 0);
    strata_draft_finish(&p);
    strata_graph_destroy(graph);
}

/* As the plugin bridge sees them: a fused node's composition is what it was made of. */
Test(decompose, a_fused_product_falls_apart_into_what_it_was_made_of) {
    strata_error err = {0};
    static const strata_epilogue_aux forms[] = {STRATA_EPILOGUE_NO_AUX, STRATA_EPILOGUE_RELU_GRAD, STRATA_EPILOGUE_TANH_GRAD,
                                                STRATA_EPILOGUE_SIGMOID_GRAD, STRATA_EPILOGUE_ADD};
    for (int activation = STRATA_EPILOGUE_LINEAR; activation <= STRATA_EPILOGUE_SIGMOID; activation++)
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            strata_graph *graph = new_graph();
            strata_tensor *leaves[] = {input(graph, "a", STRATA_DTYPE_F32), input(graph, "b", STRATA_DTYPE_F32),
                                       strata_input(graph, "bias", STRATA_DTYPE_F32, STRATA_SHAPE(4)),
                                       input(graph, "aux", STRATA_DTYPE_F32)};
            strata_array values[4], want = {0}, got = {0};
            strata_test_feed feeds[4];
            for (int i = 0; i < 4; i++) {
                values[i] = strata_test_random(STRATA_DTYPE_F32, leaves[i]->shape, -1, 1, (uint64_t)i + 1);
                feeds[i] = (strata_test_feed){leaves[i], &values[i]};
            }
            strata_tensor *fused =
                strata_epilogue_fused(strata_matmul(leaves[0], leaves[1], false, true), leaves[2],
                                      (strata_epilogue_activation)activation, forms[k], forms[k] ? leaves[3] : NULL);
            strata_tensor *parts = fused->op->compose(fused);
            cr_assert_not_null(parts);
            OK(strata_test_eval(&fused, 1, feeds, 4, &want, &err));
            OK(strata_test_eval(&parts, 1, feeds, 4, &got, &err));
            strata_test_result result = strata_test_compare(&got, &want, strata_test_tolerance_of(STRATA_DTYPE_F32, 8));
            cr_expect(result.ok, "activation %d, form %d: %s", activation, (int)forms[k], result.text);
            for (int i = 0; i < 4; i++) strata_array_finish(&values[i]);
            strata_array_finish(&want);
            strata_array_finish(&got);
            strata_graph_destroy(graph);
        }
}

Test(decompose, values_of_16_bits_are_computed_in_f32_where_the_device_has_no_other) {
    strata_graph *graph = new_graph();
    device d = {.f32_only = true};
    strata_tensor *x = input(graph, "x", STRATA_DTYPE_BF16), *w = input(graph, "w", STRATA_DTYPE_BF16);
    strata_draft p = pass(strata_matmul(x, w, false, false), &d, true);
    cr_expect_eq(count(&p, &strata_op_matmul), 1);
    cr_expect_eq(count(&p, &strata_op_cast), 3);
    cr_expect_eq(p.outputs[0]->dtype, STRATA_DTYPE_BF16);
    cr_expect_eq(p.outputs[0]->inputs[0]->dtype, STRATA_DTYPE_F32);
    strata_draft_finish(&p);
    strata_graph_destroy(graph);
}

/* Rows of a variable that an optimizer changes in place are its memory: no composition may take their place. */
Test(decompose, what_an_update_changes_in_place_stays) {
    static const char *const lacks[] = {"gather", NULL};
    strata_error err = {0};
    strata_graph *graph = new_graph();
    strata_draft draft;
    strata_variable w = strata_test_variable("w", STRATA_DTYPE_F32, STRATA_SHAPE(6, 4));
    device d = {.lacks = lacks};
    const strata_device_query query = {.supports = supports, .user = &d};
    strata_tensor *read = strata_variable_read(graph, &w);
    strata_tensor *ids = strata_input(graph, "ids", STRATA_DTYPE_I32, STRATA_SHAPE(4));
    strata_tensor *step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    strata_tensor *rows = strata_gather(read, ids, 0), *other = strata_gather(input(graph, "x", STRATA_DTYPE_F32), ids, 0);
    strata_tensor *changed = strata_sgd(rows, NULL, other, step, NULL, 0, false);
    strata_tensor *update = strata_scatter_update(read, 0, 6, ids, changed, NULL);
    OK(strata_draft_begin(&draft, NULL, 0, &update, 1, &err));
    OK(strata_decompose(&draft, &query, &err));
    cr_assert_neq(draft.graph, graph);
    const strata_tensor *sgd = draft.updates[0]->inputs[2];
    cr_expect_eq(sgd->op, &strata_op_sgd);
    cr_expect_eq(sgd->inputs[0]->op, &strata_op_gather);
    cr_expect_neq(sgd->inputs[2]->op, &strata_op_gather);
    strata_draft_finish(&draft);
    strata_graph_destroy(graph);
}

/* ---- an op whose composition is wrong ---- */

static strata_status shape(strata_tensor *node, strata_error *err) {
    (void)err;
    node->dtype = node->inputs[0]->dtype;
    node->shape = node->inputs[0]->shape;
    return STRATA_OK;
}
static strata_tensor *of_itself(strata_tensor *node) {
    return strata_node(NULL, node->op, 1, node->inputs, NULL);
}
static strata_tensor *of_another_shape(strata_tensor *node) {
    return strata_reduce_sum(node->inputs[0], NULL, 0, false);
}
static strata_tensor *that_cannot_be_built(strata_tensor *node) {
    return strata_matmul(node->inputs[0], strata_scalar(node->graph, STRATA_DTYPE_I32, 1), false, false);
}

static strata_status try_op(strata_tensor *(*compose)(strata_tensor *), strata_error *err) {
    static const char *const lacks[] = {"odd", NULL};
    const strata_op odd = {.name = "odd", .n_inputs = 1, .shape = shape, .compose = compose};
    strata_graph *graph = new_graph();
    device d = {.lacks = lacks};
    const strata_device_query query = {.supports = supports, .user = &d};
    strata_tensor *x = input(graph, "x", STRATA_DTYPE_F32), *y = strata_node(NULL, &odd, 1, &x, NULL);
    strata_draft draft;
    cr_assert_eq(strata_draft_begin(&draft, &y, 1, NULL, 0, err), STRATA_OK);
    const strata_status status = strata_passes_run(&draft, &query, true, err);
    strata_draft_finish(&draft);
    strata_graph_destroy(graph);
    return status;
}

Test(decompose, wrong_compositions_are_errors_and_impossible_ones_are_none) {
    strata_error err = {0};
    cr_expect_eq(try_op(of_itself, &err), STRATA_INTERNAL);
    cr_expect_not_null(strstr(err.message, "composed of itself"), "%s", err.message);
    cr_expect_eq(try_op(of_another_shape, &err), STRATA_INTERNAL);
    cr_expect_not_null(strstr(err.message, "its composition is f32 ()"), "%s", err.message);
    cr_expect_eq(try_op(that_cannot_be_built, &err), STRATA_OK, "%s", err.message);
}
