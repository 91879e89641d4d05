/* SPDX-License-Identifier: Apache-2.0
 *
 * multi_head_attention and layer_norm: values by hand where they are plain, parameters, what is refused. */
#include <math.h>

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
