/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the classifier and its data, which model_case.h describes. */
#include "model_case.h"

#include "tests/support/check.h"

void test_on_device(const char *which, void (*body)(strata_device *device)) {
    strata_error err = {0};
    strata_device *device = NULL;
    strata_status status = strata_device_open(which, &(strata_device_options){.no_tune = true}, &device, &err);
    if (status && strcmp(which, "host")) cr_skip_test("%s cannot be opened here", which);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    body(device);
    strata_device_close(device);
}

void case_arrays(int64_t n, strata_array *x, strata_array *y) {
    strata_error err = {0};
    *x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n, 2, 3), -1, 1, 11);
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), y, &err));
    strata_array scores = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(CASE_CLASSES, CASE_INPUTS), -1, 1, 12);
    for (int64_t i = 0; i < n; i++) {
        double best = -100;
        for (int k = 0; k < CASE_CLASSES; k++) {
            double score = 0;
            for (int j = 0; j < CASE_INPUTS; j++)
                score += ((float *)x->data)[i * CASE_INPUTS + j] * ((float *)scores.data)[k * CASE_INPUTS + j];
            if (score > best) best = score, ((int32_t *)y->data)[i] = k;
        }
    }
    strata_array_finish(&scores);
}

strata_dataset *case_dataset(int64_t n) {
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    strata_array x, y;
    case_arrays(n, &x, &y);
    OK(strata_dataset_take_arrays(&x, &y, 0, &dataset, &err));
    return dataset;
}

strata_model *case_model_uncompiled(void) {
    strata_error err = {0};
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_HIDDEN, .activation = "tanh"});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    return model;
}

strata_model *case_model_with_states(void) {
    strata_error err = {0};
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_HIDDEN, .activation = "tanh"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.3});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    return model;
}

strata_model *case_model(strata_device *device, strata_optimizer optimizer, uint64_t seed) {
    strata_error err = {0};
    strata_model *model = case_model_uncompiled();
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = optimizer, .seed = seed}, &err));
    return model;
}

const char *case_sha(strata_model *model) {
    static char texts[4][65];
    static unsigned next;
    strata_error err = {0};
    char *text = texts[next++ % 4];
    OK(strata_model_sha256(model, text, &err));
    return text;
}
