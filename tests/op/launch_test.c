/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches agree with their kernels. For every op and dtype, each launch must name an embedded kernel, have that kernel's
 * number of words and constants and buffers of its element types, and report correctly which buffers it writes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernel/lowering.h"
#include "shaders/shaders.h"
#include "strata/ops.h"

static bool has_constant(const strata_shader *shader, const char *name) {
    for (int i = 0; i < shader->n_constants; i++)
        if (!strcmp(shader->constants[i].name, name)) return true;
    return false;
}

/* Whether the tensor may be bound to a buffer of this dtype. An f32 tensor may be bound to "f32", and to "b32", the dtype
 * of kernels that only move bits. */
static bool holds(const char *buffer_dtype, const strata_tensor *tensor) {
    char bits[8];
    snprintf(bits, sizeof bits, "b%zu", 8 * strata_dtype_bytes(tensor->dtype));
    return !strcmp(buffer_dtype, strata_dtype_name(tensor->dtype)) || !strcmp(buffer_dtype, bits);
}

static void check_launch(const strata_launch *launch) {
    const char *variant = launch->variant ? launch->variant : "";
    const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
    cr_assert(shader, "there is no kernel %s %s", launch->kernel, variant);
    cr_assert_eq(launch->n_buffers, shader->n_buffers, "%s: %d buffers, the kernel has %d", launch->kernel, launch->n_buffers,
                 shader->n_buffers);
    cr_assert_eq(launch->n_buffers + launch->n_words, shader->n_words, "%s: %d words, the kernel has %d", launch->kernel,
                 launch->n_words, shader->n_words - shader->n_buffers);
    for (int i = 0; i < launch->n_constants; i++)
        cr_assert(has_constant(shader, launch->constants[i].name), "%s has no constant %s", launch->kernel,
                  launch->constants[i].name);
    for (int i = 0; i < launch->n_buffers; i++) {
        const strata_shader_buffer *buffer = &shader->buffers[i];
        if (!launch->buffers[i]) continue;
        cr_assert(holds(buffer->dtype, launch->buffers[i]), "%s %s: buffer %s is %s, bound to %s", launch->kernel, variant,
                  buffer->name, buffer->dtype, strata_dtype_name(launch->buffers[i]->dtype));
        cr_assert_eq((launch->writes >> i & 1) != 0, buffer->access != STRATA_SHADER_READ, "%s: buffer %s: written or not?",
                     launch->kernel, buffer->name);
    }
    cr_assert_gt(launch->global[0], 0, "%s: no work-items", launch->kernel);
}

/* Checks every node of the graph that has kernels. */
static void check_graph(strata_graph *graph) {
    strata_error err = {0};
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_OK, "%s", err.message);
    int n_launches = 0;
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        strata_lowering lowering = {0};
        if (!node->op->lower) {
            cr_assert(node->op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW), "%s has no kernels", node->op->name);
            continue;
        }
        cr_assert_eq(node->op->lower(node, &lowering, &err), STRATA_OK, "%s: %s", node->op->name, err.message);
        for (int i = 0; i < lowering.n; i++) check_launch(&lowering.launches[i]);
        n_launches += lowering.n;
        strata_lowering_finish(&lowering);
    }
    cr_assert_gt(n_launches, 0);
    strata_graph_destroy(graph);
}

static strata_graph *new_graph(void) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    return graph;
}

static const strata_dtype floats[3] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16};

Test(launch, of_products_and_their_gradients_fits_the_kernel) {
    for (int d = 0; d < 3; d++) {
        strata_graph *graph = new_graph();
        strata_tensor *x[2] = {strata_input(graph, "a", floats[d], STRATA_SHAPE(2, 5, 4)),
                               strata_input(graph, "b", floats[d], STRATA_SHAPE(2, 4, 3))};
        strata_tensor *dx[2];
        strata_gradients(strata_matmul(x[0], x[1], false, false), NULL, x, 2, dx);
        check_graph(graph);
    }
}

Test(launch, of_reductions_fits_the_kernel_in_every_dtype_whole_or_cut) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32,
                                          STRATA_DTYPE_I64};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        for (int n = 3; n <= 30000; n *= 100) {
            strata_graph *graph = new_graph();
            strata_tensor *x = strata_input(graph, "x", dtypes[d], STRATA_SHAPE(n, 2));
            for (int axis = 0; axis < 2; axis++) {
                strata_reduce_sum(x, &axis, 1, false);
                strata_reduce_max(x, &axis, 1, false);
                strata_reduce_min(x, &axis, 1, true);
                strata_argmax(x, axis);
                if (strata_dtype_is_float(dtypes[d])) strata_reduce_mean(x, &axis, 1, false);
            }
            strata_reduce_sum(x, NULL, 0, false);
            check_graph(graph);
        }
    }
}

Test(launch, of_gradients_of_reductions_fits_the_kernels) {
    for (int d = 0; d < 3; d++) {
        strata_graph *graph = new_graph();
        strata_tensor *x = strata_input(graph, "x", floats[d], STRATA_SHAPE(3, 4, 5)), *dx;
        int axes[2] = {0, 2};
        strata_gradients(strata_reduce_mean(x, axes, 2, false), NULL, &x, 1, &dx);
        strata_gradients(strata_reduce_max(x, axes, 2, true), NULL, &x, 1, &dx);
        check_graph(graph);
    }
}

Test(launch, of_softmax_and_losses_fits_the_kernels_for_short_and_long_rows) {
    for (int d = 0; d < 3; d++) {
        for (int64_t c = 10; c <= 100; c *= 10) {
            strata_graph *graph = new_graph();
            strata_tensor *x[2] = {strata_input(graph, "x", floats[d], STRATA_SHAPE(6, c)),
                                   strata_input(graph, "dense", floats[d], STRATA_SHAPE(6, c))};
            strata_tensor *dx[2];
            strata_gradients(strata_softmax(x[0]), NULL, x, 1, dx);
            strata_gradients(strata_log_softmax(x[0]), NULL, x, 1, dx);
            strata_gradients(strata_softmax_cross_entropy(x[0], x[1]), NULL, x, 2, dx);
            strata_tensor *labels = strata_input(graph, "i32", STRATA_DTYPE_I32, STRATA_SHAPE(6));
            strata_gradients(strata_sparse_softmax_cross_entropy(x[0], labels), NULL, x, 1, dx);
            labels = strata_input(graph, "i64", STRATA_DTYPE_I64, STRATA_SHAPE(6));
            strata_gradients(strata_sparse_softmax_cross_entropy(x[0], labels), NULL, x, 1, dx);
            check_graph(graph);
        }
    }
}

Test(launch, of_random_numbers_fits_the_kernels) {
    strata_graph *graph = new_graph();
    strata_tensor *state = strata_input(graph, "state", STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS));
    strata_random_uniform(state, 1, STRATA_SHAPE(3, 5));
    strata_random_normal(state, 2, STRATA_SHAPE(1));
    for (int d = 0; d < 3; d++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", d);
        strata_tensor *x = strata_input(graph, name, floats[d], STRATA_SHAPE(7)), *dx;
        strata_gradients(strata_dropout(x, state, 3, 0.5), NULL, &x, 1, &dx);
    }
    check_graph(graph);
}

Test(launch, of_optimizers_fits_the_kernels_with_and_without_slots_and_gate) {
    strata_graph *graph = new_graph();
    strata_variable variables[3];
    strata_tensor *reads[3];
    for (int i = 0; i < 3; i++) {
        variables[i] = (strata_variable){.name = "v", .dtype = STRATA_DTYPE_F32, .shape = STRATA_SHAPE(9)};
        reads[i] = strata_variable_read(graph, &variables[i]);
    }
    strata_tensor *gradients = strata_input(graph, "g", STRATA_DTYPE_F32, STRATA_SHAPE(9));
    strata_tensor *step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    strata_tensor *gates[2] = {NULL, strata_input(graph, "gate", STRATA_DTYPE_F32, STRATA_SHAPE())};
    for (int i = 0; i < 2; i++) {
        strata_sgd(reads[0], NULL, gradients, step, gates[i], 0, false);
        strata_sgd(reads[0], reads[1], gradients, step, gates[i], 0.9, i != 0);
        strata_adam(reads[0], reads[1], reads[2], gradients, step, gates[i], 0.9, 0.999, 1e-7);
    }
    check_graph(graph);
}
