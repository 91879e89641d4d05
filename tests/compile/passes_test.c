/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes, seen through executables: how many nodes are left, and that values stay what they were. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "strata/executable.h"
#include "strata/ops.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;

typedef struct scene {
    strata_device *device;
    strata_graph *graph;
    strata_tensor *x;
} scene;

static scene begin(void) {
    scene s = {0};
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", NULL, &s.device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&s.graph, &err), STRATA_OK);
    s.x = strata_input(s.graph, "x", f32, STRATA_SHAPE(4, 4));
    return s;
}

static void end(scene *s) {
    strata_graph_destroy(s->graph);
    strata_device_close(s->device);
}

static int nodes_of(const scene *s, strata_tensor *const *outputs, int n, bool no_fusion) {
    strata_executable *exe = NULL;
    strata_error err = {0};
    strata_executable_options opts = {.no_fusion = no_fusion};
    cr_assert_eq(strata_executable_create(s->device, outputs, n, NULL, 0, &opts, &exe, &err), STRATA_OK, "%s", err.message);
    int nodes = strata_executable_get_stats(exe).n_nodes;
    strata_executable_destroy(exe);
    return nodes;
}

Test(passes, dead_nodes_are_left_out) {
    scene s = begin();
    strata_tensor *y = strata_exp(s.x);
    strata_tanh(strata_neg(y));
    cr_assert_eq(nodes_of(&s, &y, 1, false), 1);
    end(&s);
}

Test(passes, equal_values_are_computed_once) {
    scene s = begin();
    strata_tensor *a = strata_tanh(strata_exp(s.x)), *b = strata_tanh(strata_exp(s.x));
    strata_tensor *y = strata_mul(a, b), *other = strata_mul(a, strata_tanh(strata_neg(s.x)));
    cr_assert_eq(nodes_of(&s, &y, 1, true), 3);
    cr_assert_eq(nodes_of(&s, &other, 1, true), 5);
    strata_tensor *clips = strata_add(strata_clip(s.x, 0, 1), strata_clip(s.x, 0, 2)); /* not the same attributes */
    cr_assert_eq(nodes_of(&s, &clips, 1, true), 3);
    end(&s);
}

/* Each pair has the same inputs, shape and op, and differs in one attribute. */
Test(passes, windows_that_differ_are_not_merged) {
    scene s = begin();
    strata_tensor *x = strata_input(s.graph, "images", f32, STRATA_SHAPE(1, 6, 6, 2));
    strata_tensor *filter = strata_input(s.graph, "filter", f32, STRATA_SHAPE(3, 3, 2, 2));
    const strata_padding same = STRATA_PADDING_SAME, explicit = STRATA_PADDING_EXPLICIT;
    strata_tensor *const pairs[][2] = {
        {strata_avg_pool2d(x, (strata_pool2d_window){.size = {1, 3}, .stride = {1, 1}, .padding = same}),
         strata_avg_pool2d(x, (strata_pool2d_window){.size = {3, 1}, .stride = {1, 1}, .padding = same})},
        {strata_max_pool2d(x, (strata_pool2d_window){.size = {3, 3}, .stride = {1, 1}, .padding = same}),
         strata_max_pool2d(x, (strata_pool2d_window){.size = {5, 5}, .stride = {1, 1}, .padding = same})},
        {strata_conv2d(x, filter, (strata_conv2d_window){.dilation = {1, 2}, .padding = same}),
         strata_conv2d(x, filter, (strata_conv2d_window){.dilation = {2, 1}, .padding = same})},
        {strata_conv2d(x, filter, (strata_conv2d_window){.padding = explicit, .explicit_padding = {2, 0, 1, 1}}),
         strata_conv2d(x, filter, (strata_conv2d_window){.padding = explicit, .explicit_padding = {0, 2, 1, 1}})},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        strata_tensor *both = strata_add(pairs[i][0], pairs[i][1]);
        cr_assert_eq(nodes_of(&s, &both, 1, true), 3, "pair %zu", i);
    }
    strata_tensor *const equal[] = {strata_max_pool2d(x, (strata_pool2d_window){.size = {3, 3}}),
                                    strata_max_pool2d(x, (strata_pool2d_window){.size = {3, 3}})};
    strata_tensor *sum = strata_add(equal[0], equal[1]);
    cr_assert_eq(nodes_of(&s, &sum, 1, true), 2);
    end(&s);
}

Test(passes, bias_and_activation_go_into_the_product) {
    scene s = begin();
    strata_tensor *w = strata_input(s.graph, "w", f32, STRATA_SHAPE(4, 3));
    strata_tensor *b = strata_input(s.graph, "b", f32, STRATA_SHAPE(3));
    strata_tensor *y = strata_relu(strata_add(strata_matmul(s.x, w, false, false), b));
    cr_assert_eq(nodes_of(&s, &y, 1, true), 3);
    cr_assert_eq(nodes_of(&s, &y, 1, false), 1);
    strata_tensor *product = strata_matmul(s.x, w, false, false), *used_twice = strata_mul(product, strata_relu(product));
    cr_assert_eq(nodes_of(&s, &used_twice, 1, true), 3);
    cr_assert_eq(nodes_of(&s, &used_twice, 1, false), 2, "the product, and a chain of relu and mul");
    end(&s);
}

Test(passes, relus_gradient_goes_into_that_of_a_max_pool_over_its_result) {
    scene s = begin();
    strata_tensor *x = strata_input(s.graph, "image", f32, STRATA_SHAPE(1, 4, 4, 2)), *dx = NULL;
    strata_tensor *y = strata_max_pool2d(strata_relu(x), (strata_pool2d_window){.size = {2, 2}});
    strata_gradients(y, y, &x, 1, &dx);
    cr_assert_eq(nodes_of(&s, &dx, 1, true), 4);
    cr_assert_eq(nodes_of(&s, &dx, 1, false), 3);
    end(&s);
}

/* ---- chains ---- */

Test(passes, element_wise_nodes_become_one_chain) {
    scene s = begin();
    strata_tensor *one = strata_scalar(s.graph, f32, 1);
    strata_tensor *y = strata_div(s.x, strata_add(one, strata_abs(s.x)));
    cr_assert_eq(nodes_of(&s, &y, 1, true), 3);
    cr_assert_eq(nodes_of(&s, &y, 1, false), 1);
    strata_tensor *chosen = strata_where(strata_less(s.x, one), strata_exp(s.x), strata_neg(y));
    cr_assert_eq(nodes_of(&s, &chosen, 1, false), 1, "where takes its comparison along");
    end(&s);
}

Test(passes, a_value_that_others_read_is_not_hidden_in_a_chain) {
    scene s = begin();
    strata_tensor *inner = strata_exp(s.x), *y = strata_neg(inner);
    strata_tensor *outputs[] = {y, inner};
    cr_assert_eq(nodes_of(&s, outputs, 2, false), 2, "an output");
    strata_tensor *sum = strata_reduce_sum(inner, (int[]){1}, 1, true), *both = strata_mul(strata_neg(inner), sum);
    cr_assert_eq(nodes_of(&s, &both, 1, false), 3, "exp, its sum, and a chain of neg and mul");
    strata_tensor *shapes = strata_add(strata_exp(strata_slice(s.x, (int64_t[]){0, 0}, (int64_t[]){1, 4})), s.x);
    cr_assert_eq(nodes_of(&s, &shapes, 1, false), nodes_of(&s, &shapes, 1, true), "steps have one shape");
    end(&s);
}

Test(passes, what_costs_little_is_computed_in_each_chain_that_reads_it) {
    scene s = begin();
    strata_tensor *cheap = strata_abs(s.x), *dear = strata_exp(s.x);
    strata_tensor *twice[] = {strata_neg(cheap), strata_square(cheap)};
    cr_assert_eq(nodes_of(&s, twice, 2, false), 2);
    strata_tensor *once[] = {strata_neg(dear), strata_square(dear)};
    cr_assert_eq(nodes_of(&s, once, 2, false), 3);
    end(&s);
}

Test(passes, a_long_expression_becomes_several_chains) {
    scene s = begin();
    strata_tensor *y = s.x;
    for (int i = 0; i < 33; i++) y = strata_tanh(y);
    cr_assert_eq(nodes_of(&s, &y, 1, false), 3, "16 steps a chain, and one node alone");
    strata_tensor *sum = s.x;
    for (int i = 0; i < 12; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        sum = strata_add(sum, strata_input(s.graph, name, f32, STRATA_SHAPE(4, 4)));
    }
    cr_assert_eq(nodes_of(&s, &sum, 1, false), 2, "7 operands a chain");
    end(&s);
}

Test(passes, a_gathers_gradient_reads_repeated_rows_where_they_are_one) {
    scene s = begin();
    strata_tensor *table = strata_input(s.graph, "table", f32, STRATA_SHAPE(9, 2)), *dx = NULL;
    strata_tensor *tokens = strata_input(s.graph, "tokens", STRATA_DTYPE_I32, STRATA_SHAPE(3, 5));
    strata_tensor *y = strata_reduce_sum(strata_gather(table, tokens, 0), (int[]){1}, 1, true);
    strata_gradients(y, strata_input(s.graph, "dy", f32, STRATA_SHAPE(3, 1, 2)), &table, 1, &dx);
    cr_assert_eq(nodes_of(&s, &dx, 1, true), 2);
    cr_assert_eq(nodes_of(&s, &dx, 1, false), 1);
    end(&s);
}

Test(passes, outputs_that_are_inputs_views_constants_or_twice_the_same) {
    scene s = begin();
    strata_executable *exe = NULL;
    strata_error err = {0};
    strata_tensor *y = strata_neg(s.x), *seven = strata_scalar(s.graph, f32, 7);
    strata_tensor *outputs[] = {s.x,
                                strata_reshape(s.x, STRATA_SHAPE(16)),
                                y,
                                y,
                                strata_reshape(y, STRATA_SHAPE(2, 8)),
                                seven,
                                strata_slice(s.x, (int64_t[]){1, 0}, (int64_t[]){1, 4})};
    enum { N = sizeof outputs / sizeof *outputs };
    float in[16], out[N][16];
    strata_array input = strata_array_view(f32, STRATA_SHAPE(4, 4), in), arrays[N];
    for (int i = 0; i < 16; i++) in[i] = (float)i + 1;
    for (int i = 0; i < N; i++) arrays[i] = strata_array_view(f32, strata_tensor_shape(outputs[i]), out[i]);
    cr_assert_eq(strata_executable_create(s.device, outputs, N, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x"}, &input, 1, arrays, N, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 16; i++) {
        cr_assert(out[0][i] == in[i] && out[1][i] == in[i]);
        cr_assert(out[2][i] == -in[i] && out[3][i] == -in[i] && out[4][i] == -in[i]);
    }
    cr_assert_eq(out[5][0], 7);
    cr_assert_arr_eq(out[6], in + 4, 4 * sizeof(float));
    strata_executable_destroy(exe);
    end(&s);
}

/* v is 10 at first; every tensor is asked for after all updates. */
static void expect_history(strata_tensor *(*use)(strata_tensor *value), bool of_update, float want) {
    scene s = begin();
    strata_variable *v = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    float ten = 10, got = 0;
    strata_array array = strata_array_view(f32, STRATA_SHAPE(1), &ten), result = strata_array_view(f32, STRATA_SHAPE(1), &got);
    cr_assert_eq(strata_variable_create(s.device, "v", f32, STRATA_SHAPE(1), &v, &err), STRATA_OK);
    cr_assert_eq(strata_variable_set(v, &array, &err), STRATA_OK);
    strata_tensor *old = strata_variable_read(s.graph, v),
                  *one = strata_broadcast_to(strata_scalar(s.graph, f32, 1), STRATA_SHAPE(1));
    strata_tensor *first = strata_assign_add(old, one),
                  *second = strata_assign(strata_variable_read(s.graph, v), strata_neg(one));
    strata_tensor *y = use(of_update ? first : old), *updates[] = {first, second};
    cr_assert_eq(strata_executable_create(s.device, &y, 1, updates, 2, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, NULL, NULL, 0, &result, 1, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(got, want, "got %g, not %g", got, want);
    cr_assert_eq(strata_variable_get(v, &result, &err), STRATA_OK);
    cr_assert_eq(got, -1, "the variable is %g, not -1", got);
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
    end(&s);
}

static strata_tensor *negated(strata_tensor *value) {
    return strata_neg(value);
}
static strata_tensor *itself(strata_tensor *value) {
    return value;
}
static strata_tensor *slice_of_view(strata_tensor *value) {
    strata_tensor *view = strata_reshape(value, STRATA_SHAPE(1, 1));
    return strata_neg(strata_reshape(strata_slice(view, (int64_t[]){0, 0}, (int64_t[]){1, 1}), STRATA_SHAPE(1)));
}

Test(passes, a_read_used_after_updates_sees_the_value_before_them) {
    expect_history(negated, false, -10);
    expect_history(itself, false, 10);
    expect_history(slice_of_view, false, -10);
}

Test(passes, the_value_of_an_update_used_after_another_is_what_the_first_made) {
    expect_history(negated, true, -11);
    expect_history(itself, true, 11);
    expect_history(slice_of_view, true, -11);
}

Test(passes, a_chain_reads_a_variable_as_it_was_before_an_update) {
    scene s = begin();
    strata_variable *v = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    float ten = 10, got = 0;
    strata_array array = strata_array_view(f32, STRATA_SHAPE(1), &ten), result = strata_array_view(f32, STRATA_SHAPE(1), &got);
    cr_assert_eq(strata_variable_create(s.device, "v", f32, STRATA_SHAPE(1), &v, &err), STRATA_OK);
    cr_assert_eq(strata_variable_set(v, &array, &err), STRATA_OK);
    strata_tensor *value = strata_variable_read(s.graph, v), *one = strata_scalar(s.graph, f32, 1);
    strata_tensor *view = strata_reshape(value, STRATA_SHAPE(1, 1));
    strata_tensor *before = strata_add(strata_neg(view), one);
    strata_tensor *update = strata_assign(value, strata_broadcast_to(one, STRATA_SHAPE(1)));
    strata_tensor *y = strata_square(before);
    cr_assert_eq(strata_executable_create(s.device, &y, 1, &update, 1, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, NULL, NULL, 0, &result, 1, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(got, 81, "got %g, not (1 - 10)^2", got);
    cr_assert_eq(strata_variable_get(v, &result, &err), STRATA_OK);
    cr_assert_eq(got, 1, "the variable is %g, not 1", got);
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
    end(&s);
}

/* What could be fused with a node that is created after an update. */
typedef enum unfinished { PRODUCT, COMPARISON, GATHERED, REPEATED, ROWS, UNFINISHED } unfinished;

/* v: (4,4). Creates a part of an expression, an update of what this part reads, and the rest of the expression. */
static strata_tensor *split_by_update(const scene *s, unfinished what, strata_tensor *v, strata_tensor **out_update) {
    strata_tensor *indices = strata_cast(strata_slice(s->x, (int64_t[]){0, 0}, (int64_t[]){2, 3}), STRATA_DTYPE_I32);
    strata_tensor *flat_indices = strata_reshape(indices, STRATA_SHAPE(6)), *one = strata_scalar(s->graph, f32, 1);
    strata_tensor *row = strata_slice(v, (int64_t[]){0, 0}, (int64_t[]){1, 4}), *start = NULL;
    strata_tensor *rows = strata_gather(v, flat_indices, 0), *step = strata_broadcast_to(one, STRATA_SHAPE(STRATA_STEP_WORDS));
    if (what == PRODUCT) start = strata_matmul(s->x, v, false, false);
    if (what == COMPARISON) start = strata_less(v, s->x);
    if (what == GATHERED) start = strata_gather(v, indices, 0);
    if (what == REPEATED) start = strata_broadcast_to(row, STRATA_SHAPE(6, 4));
    if (what == ROWS) start = strata_neg(rows);
    *out_update = what == ROWS ? strata_sgd(rows, NULL, strata_broadcast_to(one, STRATA_SHAPE(6, 4)), step, NULL, 0, false)
                               : strata_assign(v, strata_neg(s->x));
    if (what == PRODUCT) return strata_relu(start);
    if (what == COMPARISON) return strata_where(start, s->x, strata_exp(s->x));
    if (what == GATHERED) return strata_reduce_mean(start, (int[]){1}, 1, false);
    if (what == REPEATED) return strata_unsorted_segment_sum(start, flat_indices, 3);
    return strata_square(strata_add(start, one));
}

static void run_split(unfinished what, bool no_fusion, float *out) {
    scene s = begin();
    strata_variable *v = NULL;
    strata_executable *exe = NULL;
    strata_tensor *update = NULL;
    strata_error err = {0};
    float in[16], values[16];
    for (int i = 0; i < 16; i++) in[i] = (float)(i % 3), values[i] = (float)(i % 5) - 1.5F;
    strata_array input = strata_array_view(f32, STRATA_SHAPE(4, 4), in),
                 value = strata_array_view(f32, STRATA_SHAPE(4, 4), values);
    cr_assert_eq(strata_variable_create(s.device, "v", f32, STRATA_SHAPE(4, 4), &v, &err), STRATA_OK);
    cr_assert_eq(strata_variable_set(v, &value, &err), STRATA_OK);
    strata_tensor *y = split_by_update(&s, what, strata_variable_read(s.graph, v), &update);
    strata_array result = strata_array_view(f32, strata_tensor_shape(y), out);
    const strata_executable_options opts = {.no_fusion = no_fusion};
    cr_assert_eq(strata_executable_create(s.device, &y, 1, &update, 1, &opts, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x"}, &input, 1, &result, 1, &err), STRATA_OK, "%s", err.message);
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
    end(&s);
}

Test(passes, fusion_moves_no_node_behind_an_update_of_what_it_reads) {
    for (int what = 0; what < UNFINISHED; what++) {
        float fused[24] = {0}, apart[24] = {0};
        run_split((unfinished)what, false, fused);
        run_split((unfinished)what, true, apart);
        for (int i = 0; i < 24; i++) cr_expect_float_eq(fused[i], apart[i], 1e-5, "case %d, element %d", what, i);
    }
}
