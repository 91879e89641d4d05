/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program writes after setlocale(LC_ALL, "de_DE.UTF-8") has the same bytes as before, and is read again: the model as C,
 * ONNX, Keras' and JSON, the names of classes that are numbers, and the log of a training. tests/run.sh makes the locale. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/model_case.h"
#include "tests/support/folder.h"

TestSuite(locale, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

static const char *path_of(const char *locale, const char *file) {
    char name[64];
    snprintf(name, sizeof name, "%c-%s", *locale, file);
    return test_path(name);
}

static char *read_text(const char *path, size_t *out_n) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    cr_assert(file && text, "%s", path);
    *out_n = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

/* Trains a model whose classes are 0.5 and 1.5, and writes it in all formats. out_keras: whether there is libhdf5. */
static void write_all(const char *locale, bool *out_keras) {
    strata_array x, y;
    strata_preprocessing *p = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_device *device = NULL;
    strata_model *model = NULL, *again = NULL;
    char *json = NULL;
    const char *keras = path_of(locale, "m.keras");
    cr_assert_str_eq(setlocale(LC_ALL, locale), locale);
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(32, 2), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(32), &y, &err));
    for (int i = 0; i < 32; i++) {
        ((float *)x.data)[2 * i] = (float)i / 7;
        ((float *)x.data)[2 * i + 1] = (float)(i % 5) / 3;
        ((float *)y.data)[i] = i < 16 ? 0.5f : 1.5f;
    }
    const strata_preprocessing_options opts = {.task = STRATA_TASK_CLASSIFICATION};
    OK(strata_preprocessing_from_arrays(&x, &y, &opts, &p, &err));
    OK(strata_preprocessing_split_arrays(p, &x, &y, 0.25, 1, &train, &test, &err));
    cr_assert_str_eq(strata_preprocessing_class_name(p, 1), "1.5");
    OK(strata_device_open("host", NULL, &device, &err));
    OK(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 3, .activation = "tanh"});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.25});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    OK(strata_model_set_preprocessing(model, p, &err));
    OK(strata_model_compile(model, device, &(strata_compile_options){.seed = 1}, &err));
    OK(strata_model_add_callback(model, strata_csv_log(path_of(locale, "log.csv")), &err));
    OK(strata_model_fit(model, train, &(strata_fit_options){.epochs = 2, .batch = 8, .seed = 1, .validation = test}, NULL,
                        &err));
    OK(strata_model_save_c(model, path_of(locale, "m.c"), (strata_c_options){.name = "m"}, &err));
    strata_status status = strata_model_save_onnx(model, path_of(locale, "m.onnx"), &err);
    cr_assert(status == STRATA_OK || status == STRATA_UNSUPPORTED, "%s", err.message);
    OK(strata_model_to_json(model, &json, &err));
    test_file(strrchr(path_of(locale, "m.json"), '/') + 1, json, strlen(json));
    status = strata_model_save_keras(model, keras, &err);
    *out_keras = status != STRATA_UNSUPPORTED;
    if (*out_keras) {
        cr_assert_eq(status, STRATA_OK, "%s", err.message);
        OK(strata_model_load_keras(keras, &again, &err));
    }
    free(json);
    strata_model_destroy(again);
    strata_model_destroy(model);
    strata_device_close(device);
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_preprocessing_destroy(p);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

Test(locale, a_decimal_comma_changes_no_byte_of_what_is_written) {
    static const char german[] = "de_DE.UTF-8";
    bool keras;
    if (!setlocale(LC_ALL, german)) cr_skip_test("the locale %s is not installed, and localedef did not make it", german);
    write_all(german, &keras);
    write_all("C", &keras);
    static const char *const files[] = {"log.csv", "m.c", "m.json", "m.onnx"};
    for (int i = 0; i < (STRATA_WITH_ONNX ? 4 : 3); i++) {
        size_t n, n_wanted;
        char *text = read_text(path_of(german, files[i]), &n), *wanted = read_text(path_of("C", files[i]), &n_wanted);
        cr_assert(n == n_wanted && n > 0 && !memcmp(text, wanted, n), "%s differs: %.300s", files[i], text);
        free(text);
        free(wanted);
    }
}
