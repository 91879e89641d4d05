/* SPDX-License-Identifier: Apache-2.0
 *
 * The pooling layers: values, what they refuse. */
#include "layer_case.h"

Test(pool_layer, takes_the_largest_or_the_mean_of_windows) {
    const double values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3, 3, 1), values);
    strata_model *most = layer_model(STRATA_SHAPE(3, 3, 1)), *mean = layer_model(STRATA_SHAPE(3, 3, 1));
    strata_model_add_max_pool2d(most, (strata_max_pool2d_options){.size = {2, 2}, .padding = "same"});
    strata_model_add_avg_pool2d(mean, (strata_avg_pool2d_options){.size = {2, 2}, .stride = {1, 1}});
    layer_gives(most, &x, NULL, STRATA_SHAPE(1, 2, 2, 1), (double[]){5, 6, 8, 9});
    layer_gives(mean, &x, NULL, STRATA_SHAPE(1, 2, 2, 1), (double[]){3, 4, 6, 7});
    strata_array_finish(&x);
    strata_model_destroy(most);
    strata_model_destroy(mean);
}

Test(pool_layer, takes_padding_as_it_is_given) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 2, 1), (double[]){1, 2, 3, 4});
    strata_array sequence = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3, 1), (double[]){1, 5, 3});
    strata_model *most = layer_model(STRATA_SHAPE(2, 2, 1)), *mean = layer_model(STRATA_SHAPE(3, 1));
    strata_model_add_max_pool2d(
        most,
        (strata_max_pool2d_options){.size = {2, 2}, .stride = {1, 1}, .padding = "explicit", .explicit_padding = {1, 0, 0, 1}});
    strata_model_add_avg_pool1d(
        mean, (strata_avg_pool1d_options){.size = 2, .stride = 2, .padding = "explicit", .explicit_padding = {1, 0}});
    layer_gives(most, &x, NULL, STRATA_SHAPE(1, 2, 2, 1), (double[]){2, 2, 4, 4});
    layer_gives(mean, &sequence, NULL, STRATA_SHAPE(1, 2, 1), (double[]){1, 4});
    strata_array_finish(&x);
    strata_array_finish(&sequence);
    strata_model_destroy(most);
    strata_model_destroy(mean);
}

Test(pool_layer, slides_along_one_axis) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 4, 1), (double[]){1, 5, 2, 8});
    strata_model *most = layer_model(STRATA_SHAPE(4, 1)), *mean = layer_model(STRATA_SHAPE(4, 1));
    strata_model_add_max_pool1d(most, (strata_max_pool1d_options){.size = 2, .stride = 1});
    strata_model_add_avg_pool1d(mean, (strata_avg_pool1d_options){.size = 2});
    layer_gives(most, &x, NULL, STRATA_SHAPE(1, 3, 1), (double[]){5, 5, 8});
    layer_gives(mean, &x, NULL, STRATA_SHAPE(1, 2, 1), (double[]){3, 5});
    strata_array_finish(&x);
    strata_model_destroy(most);
    strata_model_destroy(mean);
}

Test(pool_layer, over_all_between_leaves_examples_and_channels) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 2, 2), (double[]){1, 10, 2, 20, 3, 30, 6, 0});
    strata_array sequence = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 1), (double[]){1, 3, 5, 6});
    strata_model *mean = layer_model(STRATA_SHAPE(2, 2, 2)), *most = layer_model(STRATA_SHAPE(2, 1));
    strata_model_add_global_average_pool(mean, (strata_global_average_pool_options){0});
    strata_model_add_global_max_pool(most, (strata_global_max_pool_options){0});
    layer_gives(mean, &x, NULL, STRATA_SHAPE(1, 2), (double[]){3, 15});
    layer_gives(most, &sequence, NULL, STRATA_SHAPE(2, 1), (double[]){3, 6});
    strata_array_finish(&x);
    strata_array_finish(&sequence);
    strata_model_destroy(mean);
    strata_model_destroy(most);
}

Test(pool_layer, refuses_what_does_not_fit) {
    strata_model *large = layer_model(STRATA_SHAPE(3, 3, 1));
    strata_model_add_max_pool2d(large, (strata_max_pool2d_options){.size = {4, 2}});
    layer_refuses(large, "the output is empty");
    strata_model *none = layer_model(STRATA_SHAPE(3, 3, 1));
    strata_model_add_avg_pool2d(none, (strata_avg_pool2d_options){.size = {2, 0}});
    layer_refuses(none, "avg_pool2d: size is [2, 0]; give both, or neither");
    strata_model *zero = layer_model(STRATA_SHAPE(3, 1));
    strata_model_add_max_pool1d(zero, (strata_max_pool1d_options){0});
    layer_refuses(zero, "max_pool1d: size is 0");
    strata_model *full = layer_model(STRATA_SHAPE(3, 1));
    strata_model_add_avg_pool1d(full, (strata_avg_pool1d_options){.size = 2, .padding = "full"});
    layer_refuses(full, "no padding \"full\"");
    strata_model *unheard = layer_model(STRATA_SHAPE(3, 1));
    strata_model_add_avg_pool1d(unheard, (strata_avg_pool1d_options){.size = 2, .padding = "same", .explicit_padding = {0, 1}});
    layer_refuses(unheard, "explicit_padding is for padding \"explicit\", not \"same\"");
    strata_model *negative = layer_model(STRATA_SHAPE(3, 1));
    strata_model_add_avg_pool1d(negative,
                                (strata_avg_pool1d_options){.size = 2, .padding = "explicit", .explicit_padding = {-1, 0}});
    layer_refuses(negative, "explicit_padding is -1; it must be 0..1048576");
    strata_model *flat = layer_model(STRATA_SHAPE(3));
    strata_model_add_global_average_pool(flat, (strata_global_average_pool_options){0});
    layer_refuses(flat, "it needs axes between");
}
