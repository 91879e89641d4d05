/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with i32 inputs: tokens in datasets, embeddings, training, evaluation, prediction, JSON and files. */
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"

enum { N = 60, TOKENS = 7, LENGTH = 4 };

/* All tokens of element i are i % TOKENS, except for the first one, which is 0. The label tells whether i % TOKENS is below
 * 3. */
static strata_dataset *token_data(strata_dtype dtype, int64_t last) {
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    strata_array x = strata_test_full(dtype, STRATA_SHAPE(N, LENGTH), 0);
    strata_array y = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(N), 0);
    for (int64_t i = 0; i < N; i++) {
        for (int64_t t = 1; t < LENGTH; t++) strata_element_set(dtype, x.data, i * LENGTH + t, (double)(i % TOKENS));
        ((int32_t *)y.data)[i] = i % TOKENS < 3;
    }
    strata_element_set(dtype, x.data, N * LENGTH - 1, (double)last);
    OK(strata_dataset_take_arrays(&x, &y, 0, &dataset, &err));
    return dataset;
}

static strata_model *token_model(void) {
    strata_error err = {0};
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(LENGTH), &model, &err));
    OK(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = TOKENS, .units = 3});
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    return model;
}

Test(tokens, of_a_model_are_as_many_as_its_first_embedding_has) {
    strata_error err = {0};
    static const char json[] =
        "{\"input\": [4], \"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", "
        "\"vocabulary\": 9, \"units\": 2}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 2}]}";
    strata_model *model = NULL;
    OK(strata_model_from_json(json, sizeof json - 1, "model.json", &model, &err));
    cr_expect_eq(strata_model_n_tokens(model), 9);
    strata_model_destroy(model);
    OK(strata_model_create(STRATA_SHAPE(4), &model, &err));
    cr_expect_eq(strata_model_n_tokens(model), 0);
    strata_model_destroy(model);
}

TEST_ON_DEVICES(tokens, are_learned_and_predicted) {
    strata_error err = {0};
    strata_model *model = token_model();
    strata_dataset *i32 = token_data(STRATA_DTYPE_I32, 4), *i64 = token_data(STRATA_DTYPE_I64, 4);
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.05), .seed = 1},
                            &err));
    OK(strata_model_fit(model, i32, &(strata_fit_options){.epochs = 20, .batch = 16}, NULL, &err));
    strata_metrics metrics, again;
    OK(strata_model_evaluate(model, i32, 0, &metrics, &err));
    OK(strata_model_evaluate(model, i64, 0, &again, &err));
    cr_assert_eq(metrics.accuracy, 1);
    cr_assert_eq(metrics.loss, again.loss);
    strata_array predicted = {0};
    OK(strata_model_predict(model, i64, 0, &predicted, &err));
    for (int i = 0; i < N - 1; i++) cr_assert_eq(((float *)predicted.data)[2 * i + 1] > 0.5f, i % TOKENS < 3, "element %d", i);
    strata_array_finish(&predicted);
    strata_dataset_destroy(i32);
    strata_dataset_destroy(i64);
    strata_model_destroy(model);
}

TEST_ON_HOST(tokens, out_of_range_are_named_with_their_place) {
    strata_error err = {0};
    strata_metrics metrics;
    strata_array predicted = {0};
    strata_model *model = token_model();
    OK(strata_model_compile(model, device, NULL, &err));
    strata_dataset *high = token_data(STRATA_DTYPE_I32, TOKENS), *low = token_data(STRATA_DTYPE_I64, -2);
    FAILS(strata_model_fit(model, high, NULL, NULL, &err), STRATA_DATA,
          "fit: element 59, position 3: the token is 7; those the model knows are 0..6");
    FAILS(strata_model_evaluate(model, high, 0, &metrics, &err), STRATA_DATA, "evaluate: element 59");
    FAILS(strata_model_predict(model, low, 0, &predicted, &err), STRATA_DATA, "the token is -2");
    strata_dataset_destroy(high);
    strata_dataset_destroy(low);
    strata_model_destroy(model);
}

TEST_ON_HOST(tokens, and_numbers_are_not_mixed_up) {
    strata_error err = {0};
    strata_model *tokens = token_model(), *numbers = NULL;
    strata_dataset *data = token_data(STRATA_DTYPE_I32, 0);
    OK(strata_model_create(STRATA_SHAPE(LENGTH), &numbers, &err));
    strata_model_add_dense(numbers, (strata_dense_options){.units = 2});
    OK(strata_model_compile(numbers, device, NULL, &err));
    FAILS(strata_model_fit(numbers, data, NULL, NULL, &err), STRATA_DATA, "features are i32, the model takes f32");
    FAILS(strata_model_set_input_dtype(numbers, STRATA_DTYPE_I32, &err), STRATA_INVALID, "compiled");
    FAILS(strata_model_set_input_dtype(tokens, STRATA_DTYPE_I64, &err), STRATA_INVALID, "inputs of i64");
    strata_dataset_destroy(data);
    strata_model_destroy(numbers);
    strata_model_destroy(tokens);
}

Test(tokens, stay_tokens_in_json) {
    strata_error err = {0};
    strata_model *model = token_model(), *read = NULL, *wrong = NULL;
    char *text = NULL;
    OK(strata_model_to_json(model, &text, &err));
    cr_assert_not_null(strstr(text, "\"input_dtype\":\"i32\""), "%s", text);
    cr_assert_not_null(strstr(text, "\"layer\":\"embedding\",\"name\":\"embedding\",\"vocabulary\":7,\"units\":3"), "%s", text);
    OK(strata_model_from_json(text, strlen(text), "model", &read, &err));
    cr_assert_eq(strata_model_input_dtype(read), STRATA_DTYPE_I32);
    const char f16[] = "{\"input\":[2],\"input_dtype\":\"f16\",\"layers\":[{\"layer\":\"dense\",\"units\":1}]}";
    FAILS(strata_model_from_json(f16, strlen(f16), "model", &wrong, &err), STRATA_DATA, "input_dtype: model: inputs of f16");
    free(text);
    strata_model_destroy(read);
    strata_model_destroy(model);
}

/* ---- padding ---- */

/* Writes the losses of three epochs on 24 texts of 2 to 3 words, padded to `length`. */
static void fit_padded(strata_device *device, int64_t length, strata_dtype precision, float out_losses[9], float out_row[4]) {
    enum { TEXTS = 24, WORDS = 3, VOCABULARY = 8, UNITS = 4 };
    strata_error err = {0};
    strata_array x, y, row = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(VOCABULARY, UNITS), NULL);
    float table[VOCABULARY * UNITS];
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(TEXTS, length), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(TEXTS), &y, &err));
    memset(x.data, 0, strata_array_bytes(&x));
    for (int i = 0; i < TEXTS; i++) {
        for (int k = 0; k < WORDS - i % 2; k++) ((int32_t *)x.data)[i * length + k] = 1 + (5 * i + 3 * k) % (VOCABULARY - 1);
        ((int32_t *)y.data)[i] = ((int32_t *)x.data)[i * length] > 3;
    }
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(length), &model, &err));
    OK(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = VOCABULARY, .units = UNITS, .mask_zero = true});
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    const strata_compile_options opts = {.optimizer = strata_sgd_optimizer(2, 0, false), .seed = 3, .precision = precision};
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 3, .batch = 8, .seed = 1}, &history, &err));
    memcpy(out_losses, history.losses, 9 * sizeof *out_losses);
    row.data = table;
    OK(strata_model_get_parameter(model, 0, &row, &err));
    memcpy(out_row, table, UNITS * sizeof *out_row);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(tokens, padding_changes_no_loss_and_is_not_learned) {
    for (int k = 0; k < 2; k++) {
        float few[9], many[9], row[2][4];
        const strata_dtype precision = k ? STRATA_DTYPE_F16 : STRATA_DTYPE_F32;
        fit_padded(device, 3, precision, few, row[0]);
        fit_padded(device, 11, precision, many, row[1]);
        for (int i = 0; i < 9; i++)
            cr_assert_float_eq(many[i], few[i], k ? 1e-3 : 1e-6, "loss %d: %g, not %g", i, (double)many[i], (double)few[i]);
        cr_assert_lt(few[6] + few[7] + few[8], few[0] + few[1] + few[2], "%g %g %g", (double)few[6], (double)few[7],
                     (double)few[8]);
        /* the row of the padding token keeps its initial values, however much padding there is */
        cr_assert(!memcmp(row[0], row[1], sizeof row[0]));
    }
}
