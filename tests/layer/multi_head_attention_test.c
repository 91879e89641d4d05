/* SPDX-License-Identifier: Apache-2.0
 *
 * multi_head_attention and layer_norm: values by hand where they are plain, parameters, what is refused. */
#include <math.h>

#include "core/model/build.h"
#include "layer_case.h"

Test(multi_head_attention, of_equal_places_is_the_mean_of_their_values) {
    strata_model *model = layer_model(STRATA_SHAPE(2, 2));
    strata_model_add_multi_head_attention(model, (strata_multi_head_attention_options){.heads = 2, .no_bias = true});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 2), (double[]){1, 2, 3, 6});
    /* Queries are 0, so both places count alike; values are x, the output doubles. */
    const double parameters[] = {0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 2, 0, 0, 2};
    layer_gives(model, &x, parameters, STRATA_SHAPE(1, 2, 2), (double[]){4, 8, 4, 8});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(multi_head_attention, that_is_causal_looks_back_only) {
    strata_model *model = layer_model(STRATA_SHAPE(2, 2));
    strata_model_add_multi_head_attention(model,
                                          (strata_multi_head_attention_options){.heads = 1, .no_bias = true, .causal = true});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 2), (double[]){1, 2, 3, 6});
    const double parameters[] = {0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 2, 0, 0, 2};
    layer_gives(model, &x, parameters, STRATA_SHAPE(1, 2, 2), (double[]){2, 4, 4, 8});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(multi_head_attention, has_a_kernel_and_a_bias_for_each_product) {
    strata_error err = {0};
    strata_model *model = layer_model(STRATA_SHAPE(5, 6));
    strata_model_add_multi_head_attention(model, (strata_multi_head_attention_options){.heads = 4, .key_dim = 3});
    cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_n_parameters(model), 8);
    cr_assert_str_eq(strata_model_parameter(model, 0).name, "multi_head_attention/query_kernel");
    cr_assert(strata_shape_equal(strata_model_parameter(model, 0).shape, STRATA_SHAPE(6, 12)));
    cr_assert(strata_shape_equal(strata_model_parameter(model, 6).shape, STRATA_SHAPE(12, 6)));
    strata_model_destroy(model);
}

Test(multi_head_attention, refuses_heads_that_do_not_divide_and_wrong_ranks) {
    strata_model *uneven = layer_model(STRATA_SHAPE(5, 7));
    strata_model_add_multi_head_attention(uneven, (strata_multi_head_attention_options){.heads = 2});
    layer_refuses(uneven, "x has 7 channels and there are 2 heads; they do not divide");
    strata_model *flat = layer_model(STRATA_SHAPE(7));
    strata_model_add_multi_head_attention(flat, (strata_multi_head_attention_options){.heads = 1});
    layer_refuses(flat, "x is (1,7); it must be (N, places, channels)");
    strata_model *none = layer_model(STRATA_SHAPE(5, 7));
    strata_model_add_multi_head_attention(none, (strata_multi_head_attention_options){0});
    layer_refuses(none, "heads is 0");
}

Test(layer_norm, normalises_each_row) {
    strata_model *model = layer_model(STRATA_SHAPE(2));
    strata_model_add_layer_norm(model, (strata_layer_norm_options){.epsilon = 0.5});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), (double[]){1, 3, 10, 6});
    const double a = 1 / sqrt(1.5), b = 2 / sqrt(4.5);
    layer_gives(model, &x, (double[]){2, 1, 0, 5}, STRATA_SHAPE(2, 2), (double[]){-2 * a, a + 5, 2 * b, -b + 5});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

/* ---- padding ---- */

static strata_model *masked_model(int64_t places, bool residual, bool causal) {
    strata_error err = {0};
    strata_model *model = layer_model(STRATA_SHAPE(places));
    cr_assert_eq(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err), STRATA_OK, "%s", err.message);
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 5, .units = 2, .mask_zero = true});
    if (residual) strata_model_begin_residual(model, (strata_residual_options){0});
    strata_model_add_multi_head_attention(model, (strata_multi_head_attention_options){.heads = 2, .causal = causal});
    if (residual) strata_model_end_residual(model);
    return model;
}

/* Of the embedding (5, 2), then of query, key, value and output, each a kernel (2, 2) and a bias. */
static const double masked_parameters[] = {50,  -70, 1,    2,    3,   -1,   -2,    0.5,  0.25, 1,    0.5,  -0.3,
                                           0.2, 0.7, 0.1,  -0.2, 0.4, -0.6, 0.9,   0.35, 0.05, 0.15, -0.5, 0.8,
                                           1.1, 0.3, -0.1, 0.2,  0.6, 0.4,  -0.45, 0.75, 0.3,  -0.7};

/* A text with padding gives at its places, from element `first` on, what it gives without. Takes the models. */
static void gives_the_same(strata_model *padded, strata_array x, int64_t first, strata_model *plain, strata_array y) {
    strata_array got = layer_run(padded, &x, masked_parameters, false), want = layer_run(plain, &y, masked_parameters, false);
    const float *with = (const float *)got.data + first, *without = want.data;
    for (int64_t i = 0; i < strata_shape_elements(want.shape); i++)
        cr_assert_float_eq(with[i], without[i], 1e-6, "element %d: %g, without padding %g", (int)i, (double)with[i],
                           (double)without[i]);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_array_finish(&got);
    strata_array_finish(&want);
    strata_model_destroy(padded);
    strata_model_destroy(plain);
}

static void padding_changes_nothing(bool residual, bool causal) {
    gives_the_same(
        masked_model(5, residual, causal), strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 5), (double[]){2, 1, 4, 0, 0}),
        0, masked_model(3, residual, causal), strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 3), (double[]){2, 1, 4}));
}

Test(multi_head_attention, looks_at_no_padding) {
    padding_changes_nothing(false, false);
}

Test(multi_head_attention, that_is_causal_looks_at_no_padding) {
    padding_changes_nothing(false, true);
}

Test(multi_head_attention, in_a_residual_looks_at_no_padding) {
    padding_changes_nothing(true, false);
}

/* Padding before a text, of which the causal mask alone would let all be seen. */
Test(multi_head_attention, looks_at_no_padding_before_the_text) {
    gives_the_same(masked_model(4, false, true),
                   strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 4), (double[]){0, 0, 3, 1}), 4,
                   masked_model(2, false, true), strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 2), (double[]){3, 1}));
}

static void pool_behind(strata_model *model, const double *tokens, int64_t n, float *out_y) {
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, n), tokens);
    strata_array y = layer_run(model, &x, masked_parameters, false);
    for (int i = 0; i < 2; i++) out_y[i] = ((float *)y.data)[i];
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(model);
}

Test(multi_head_attention, and_a_residual_pass_padding_on_to_the_pool) {
    for (int residual = 0; residual < 2; residual++) {
        float got[2], want[2];
        pool_behind(masked_model(5, residual, false), (double[]){2, 1, 4, 0, 0}, 5, got);
        pool_behind(masked_model(3, residual, false), (double[]){2, 1, 4}, 3, want);
        for (int i = 0; i < 2; i++)
            cr_assert_float_eq(got[i], want[i], 1e-6, "%g, without padding %g", (double)got[i], (double)want[i]);
    }
}

Test(residual, of_a_path_that_mixes_places_ends_the_mask) {
    strata_error err = {0};
    strata_model *model = layer_model(STRATA_SHAPE(3));
    cr_assert_eq(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err), STRATA_OK, "%s", err.message);
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 3, .units = 1, .mask_zero = true});
    strata_model_begin_residual(model, (strata_residual_options){0});
    strata_model_add_avg_pool1d(model, (strata_avg_pool1d_options){.size = 1});
    strata_model_end_residual(model);
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 3), (double[]){1, 2, 0});
    layer_gives(model, &x, (double[]){6, 1, 2}, STRATA_SHAPE(1, 1), (double[]){2 * (1 + 2 + 6) / 3.0});
    strata_array_finish(&x);
    strata_model_destroy(model);
}
