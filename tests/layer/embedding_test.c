/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding: rows by tokens, what it refuses. */
#include <math.h>

#include "core/model/build.h"
#include "layer_case.h"

static strata_model *token_model(strata_shape input) {
    strata_error err = {0};
    strata_model *model = layer_model(input);
    cr_assert_eq(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err), STRATA_OK, "%s", err.message);
    return model;
}

Test(embedding, gives_the_rows_of_the_tokens) {
    strata_model *model = token_model(STRATA_SHAPE(3));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 2});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2, 3), (double[]){0, 3, 3, 1, 2, 0});
    layer_gives(model, &x, (double[]){1, 2, 3, 4, 5, 6, 7, 8}, STRATA_SHAPE(2, 3, 2),
                (double[]){1, 2, 7, 8, 7, 8, 3, 4, 5, 6, 1, 2});
    cr_assert_str_eq(strata_model_parameter(model, 0).name, "embedding/embeddings");
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(embedding, tells_the_model_how_many_tokens_there_are) {
    strata_error err = {0};
    strata_model *model = token_model(STRATA_SHAPE(3));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 2});
    cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(model->inputs[0].n_tokens, 4);
    strata_model_destroy(model);
}

Test(embedding, refuses_wrong_options_and_numbers_that_are_no_tokens) {
    const strata_embedding_options wrong[] = {
        {.units = 2}, {.vocabulary = 2}, {.vocabulary = 2, .units = 2, .initializer = "x"}};
    const char *const messages[] = {"embedding: vocabulary is 0", "units is 0", "no initializer \"x\""};
    for (int i = 0; i < 3; i++) {
        strata_model *model = token_model(STRATA_SHAPE(3));
        strata_model_add_embedding(model, wrong[i]);
        layer_refuses(model, messages[i]);
    }
    strata_model *floats = layer_model(STRATA_SHAPE(3));
    strata_model_add_embedding(floats, (strata_embedding_options){.vocabulary = 4, .units = 2});
    layer_refuses(floats, "set the model's input_dtype to i32");
}

/* ---- padding ---- */

static const double rows[] = {100, 100, 3, -4, 5, 6, 7, -8}; /* that of token 0 is never seen */
static const double padded[] = {1, 3, 0, 0, 2, 0, 3, 1, 0, 0, 0, 0};

Test(embedding, padding_is_left_out_of_the_average) {
    strata_model *model = token_model(STRATA_SHAPE(4));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 2, .mask_zero = true});
    strata_model_add_activation(model, (strata_activation_options){.function = "relu"});
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(3, 4), padded);
    layer_gives(model, &x, rows, STRATA_SHAPE(3, 2), (double[]){5, 0, 5, 2, 0, 0});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(embedding, padding_is_left_out_of_the_largest) {
    strata_model *model = token_model(STRATA_SHAPE(4));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 2, .mask_zero = true});
    strata_model_add_global_max_pool(model, (strata_global_max_pool_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(3, 4), padded);
    layer_gives(model, &x, rows, STRATA_SHAPE(3, 2), (double[]){7, -4, 7, 6, 0, 0});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

/* A window of one place mixes nothing, but a convolution does not promise it. */
Test(embedding, padding_counts_behind_a_layer_that_mixes_places) {
    strata_model *model = token_model(STRATA_SHAPE(4));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 1, .mask_zero = true});
    strata_model_add_avg_pool1d(model, (strata_avg_pool1d_options){.size = 1});
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 4), padded);
    layer_gives(model, &x, (double[]){8, 3, 5, 7}, STRATA_SHAPE(1, 1), (double[]){(3 + 7 + 8 + 8) / 4.0});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

/* As in Keras. The norm of each channel is over all positions, padding included; the average behind it is not. */
Test(embedding, group_norm_keeps_the_padding) {
    strata_model *model = token_model(STRATA_SHAPE(4));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 1, .mask_zero = true});
    strata_model_add_group_norm(model, (strata_group_norm_options){.groups = 1, .epsilon = 0.25});
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 4), padded);
    /* The rows are 1, 7, 3, 3: the mean is 3.5, and the variance 4.75. */
    layer_gives(model, &x, (double[]){3, 1, 5, 7, 1, 0}, STRATA_SHAPE(1, 1), (double[]){(1 + 7 - 7) / 2.0 / sqrt(5)});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

/* Example 2 is only padding, and takes no part in the mean (3 + 7 + 5 + 7 + 3) / 5 = 5 and the variance 3.2 of channel 0, nor
 * in -3.6 and 26.24 of channel 1. */
Test(embedding, padding_is_left_out_of_the_statistics_of_batch_norm) {
    strata_model *model = token_model(STRATA_SHAPE(4));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 2, .mask_zero = true});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.epsilon = 0.8});
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    double parameters[16] = {100, 100, 3, -4, 5, 6, 7, -8, 1, 1, 0, 0, 0, 0, 1, 1};
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(3, 4), padded);
    strata_array y = layer_run(model, &x, parameters, true);
    const double of_channel[] = {sqrt(3.2 + 0.8), sqrt(26.24 + 0.8)};
    const double want[] = {0, (-6 + 3.6) / of_channel[1], 0, (-2 + 3.6) / of_channel[1], 0, 0};
    for (int i = 0; i < 6; i++)
        cr_assert_float_eq(((float *)y.data)[i], want[i], 1e-6, "%d: %g", i, (double)((float *)y.data)[i]);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(model);
}

/* As in Keras, where the layer Bidirectional sets zero_output_for_mask. */
Test(embedding, padding_is_zero_behind_a_bidirectional_layer) {
    strata_model *model = token_model(STRATA_SHAPE(4));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 4, .units = 1, .mask_zero = true});
    strata_model_add_lstm(model, (strata_lstm_options){.units = 1, .return_sequences = true, .bidirectional = "concat"});
    double parameters[28];
    for (int i = 0; i < 28; i++) parameters[i] = 0.5;
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 4), (double[]){1, 0, 2, 0});
    strata_array y = layer_run(model, &x, parameters, false);
    const float *of_step = y.data;
    for (int i = 0; i < 8; i++) cr_assert_eq(of_step[i] == 0, i / 2 % 2 == 1, "%d: %g", i, (double)of_step[i]);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(model);
}
