/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files: parameters keep all bits, other tools can read the files, and damaged files are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/data/format/safetensors.h"
#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(model_file, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

TEST_ON_DEVICES(model_file, loads_what_was_saved) {
    test_folder_make();
    const char *path = test_path("model.strata");
    strata_dataset *data = case_dataset(60);
    strata_model *model = case_model(device, strata_sgd_optimizer(0.1, 0.9, true), 1), *loaded = NULL;
    strata_metrics before, after;
    OK(strata_model_set_label(model, "case", &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2}, NULL, &err));
    OK(strata_model_evaluate(model, data, 0, &before, &err));
    OK(strata_model_save(model, path, &err));
    OK(strata_model_load(path, &loaded, &err));
    cr_assert_str_eq(strata_model_label(loaded), "case");
    cr_assert_str_eq(strata_model_optimizer(loaded).name, "sgd");
    cr_assert_eq(strata_model_optimizer(loaded).momentum, 0.9);
    OK(strata_model_save(loaded, test_path("copy.strata"), &err)); /* a loaded model can be saved before it is compiled */
    strata_model *copy = NULL;
    OK(strata_model_load(test_path("copy.strata"), &copy, &err));
    OK(strata_model_compile(loaded, device, &(strata_compile_options){.seed = 99}, &err));
    cr_assert_str_eq(case_sha(model), case_sha(loaded));
    OK(strata_model_compile(copy, device, &(strata_compile_options){.seed = 98}, &err));
    cr_assert_str_eq(case_sha(model), case_sha(copy));
    strata_model_destroy(copy);
    OK(strata_model_evaluate(loaded, data, 0, &after, &err));
    cr_assert(before.loss == after.loss && before.accuracy == after.accuracy, "%g %g", before.loss, after.loss);
    OK(strata_model_save(loaded, test_path("again.strata"), &err));
    strata_model_destroy(model);
    strata_model_destroy(loaded);
    strata_dataset_destroy(data);
    test_folder_remove();
}

Test(model_file, is_safetensors_with_the_model_inside) {
    strata_device *host = NULL;
    strata_safetensors file = {0};
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = case_model(host, strata_adam_optimizer(0), 1);
    OK(strata_model_save(model, test_path("model.strata"), &err));
    cr_assert_eq(test_folder_count(), 1, "a temporary file was left");
    OK(strata_safetensors_read(test_path("model.strata"), &file, &err));
    cr_assert_eq(file.n_tensors, 4);
    const char *const names[] = {"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"};
    for (int i = 0; i < 4; i++) {
        strata_array saved, own;
        OK(strata_safetensors_load(&file, names[i], &saved, &err));
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &own, &err));
        OK(strata_model_get_parameter(model, i, &own, &err));
        cr_assert(saved.dtype == own.dtype && strata_shape_equal(saved.shape, own.shape));
        cr_assert_arr_eq(saved.data, own.data, strata_array_bytes(&own));
        strata_array_finish(&saved);
        strata_array_finish(&own);
    }
    char *json = NULL;
    OK(strata_model_to_json(model, &json, &err));
    cr_assert_str_eq(strata_safetensors_metadata(&file, "strata.model"), json);
    free(json);
    strata_safetensors_finish(&file);
    strata_model_destroy(model);
    strata_device_close(host);
}

/* ---- files that the test writes: input (2), dense with 1 unit and no bias ---- */

static const char json[] =
    "{\"input\": [2], \"layers\": [{\"layer\": \"dense\", \"units\": 1, \"no_bias\": true}], \"loss\": \"mse\"}";

static void refused(const strata_named_array *tensors, size_t n, const char *model_json, const char *message) {
    strata_metadata metadata = {"strata.model", model_json};
    strata_model *model = NULL;
    const char *path = test_path("made.strata");
    OK(strata_safetensors_write(path, tensors, n, &metadata, model_json ? 1 : 0, NULL, &err));
    FAILS(strata_model_load(path, &model, &err), STRATA_DATA, message);
    cr_assert_not_null(strstr(err.message, "made.strata"), "%s", err.message);
    cr_assert_null(model);
}

Test(model_file, must_hold_the_parameters_and_nothing_else) {
    float values[4] = {1, 2, 3, 4};
    strata_named_array kernel = {"dense/kernel", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), values)};
    strata_named_array turned = {"dense/kernel", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), values)};
    strata_named_array integers = {"dense/kernel", strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(2, 1), values)};
    strata_named_array spare = {"spare", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1), values)};
    strata_model *model = NULL;
    strata_metadata metadata = {"strata.model", json};
    OK(strata_safetensors_write(test_path("good"), &kernel, 1, &metadata, 1, NULL, &err));
    OK(strata_model_load(test_path("good"), &model, &err));
    strata_model_destroy(model);

    refused(&spare, 1, json, "has no tensor \"dense/kernel\" among its 1");
    refused(NULL, 0, json, "has no tensor \"dense/kernel\" among its 0");
    refused((strata_named_array[]){kernel, spare}, 2, json, "the model has no parameter \"spare\"");
    refused(&turned, 1, json, "tensor \"dense/kernel\" is f32 (1,2), but f32 (2,1) is needed");
    refused(&integers, 1, json, "is i32 (2,1), but f32 (2,1) is needed");
    refused(&kernel, 1, NULL, "a safetensors file without a model in it");
    refused(&kernel, 1, "{\"input\": [2], \"layers\": [{\"layer\": \"capsule\"}]}",
            "there is no layer \"capsule\"; there are: dense, activation, dropout, flatten");
    refused(&kernel, 1, "{\"input\": [2]", "strata.model");
    refused(&kernel, 1, "", "strata.model");
    refused(&kernel, 1, "{\"input\": [2147483647], \"layers\": [{\"layer\": \"dense\", \"units\": 16777216}]}",
            sizeof(size_t) < 8 ? "shape (2147483647) is too large"
                               : "f32 (2147483647,16777216) is needed"); /* memory of 128 PiB must not be requested */
}

Test(model_file, every_cut_is_refused) {
    strata_device *host = NULL;
    strata_model *model = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    OK(strata_model_compile(model, host, &(strata_compile_options){.loss = "mse"}, &err));
    OK(strata_model_save(model, test_path("whole"), &err));
    strata_model_destroy(model);
    strata_device_close(host);
    char bytes[4096];
    FILE *file = fopen(test_path("whole"), "rb");
    cr_assert_not_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    cr_assert(n > 100 && n < sizeof bytes);
    for (size_t cut = 0; cut < n; cut++) {
        model = NULL;
        FAILS(strata_model_load(test_file("cut", bytes, cut), &model, &err), STRATA_DATA, "cut");
        cr_assert_null(model);
    }
    FAILS(strata_model_load(test_path("missing"), &model, &err), STRATA_UNAVAILABLE, "missing");
}

Test(model_file, a_save_that_fails_leaves_the_old_file) {
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = case_model(host, strata_adam_optimizer(0), 1);
    FAILS(strata_model_save(model, test_path("nowhere/model"), &err), STRATA_UNAVAILABLE, "nowhere");
    FAILS(strata_model_save(model, test_folder(), &err), STRATA_INVALID, "name of a file");
    cr_assert_eq(test_folder_count(), 0);
    strata_model_destroy(model);
    strata_device_close(host);
}
