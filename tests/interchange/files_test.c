/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of other programs, against what these programs answered (golden.py): infinities, open bounds, recurrent layers, tokens,
 * tables. What is written is read back and predicts the same, and what cannot be read back is not written. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/model/model.h"
#include "strata/describe.h"
#include "strata/formats.h"
#include "strata/interchange.h"
#include "strata/preprocessing.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(files, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call)    cr_assert_eq((call), STRATA_OK, "%s", err.message)
#define SAYS(words) cr_assert(strstr(err.message, words), "it says: %s", err.message)

typedef struct path {
    char text[512];
} path;

static path golden(const char *name, const char *ending) {
    path out;
    snprintf(out.text, sizeof out.text, STRATA_TEST_SOURCE_DIR "/tests/interchange/golden/%s%s", name, ending);
    return out;
}

/* An array of NAME.npz. Integers become i32, the type of tokens. */
static strata_array array_of(const char *name, const char *array) {
    const path file = golden(name, ".npz");
    unsigned char *bytes;
    size_t n_bytes;
    strata_array out, tokens;
    OK(strata_file_read(file.text, 1 << 20, &bytes, &n_bytes, &err));
    OK(strata_npz_parse(file.text, bytes, n_bytes, array, &out, &err));
    free(bytes);
    if (out.dtype != STRATA_DTYPE_I64) return out;
    OK(strata_array_create(STRATA_DTYPE_I32, out.shape, &tokens, &err));
    for (int64_t i = 0; i < strata_shape_elements(out.shape); i++)
        ((int32_t *)tokens.data)[i] = (int32_t)((int64_t *)out.data)[i];
    strata_array_finish(&out);
    return tokens;
}

static strata_array predict(strata_model *model, const char *name) {
    strata_device *host = NULL;
    strata_dataset *data = NULL;
    strata_array x = array_of(name, "x"), y;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_compile(model, host, &(strata_compile_options){.loss = "mse"}, &err));
    OK(strata_dataset_take_arrays(&x, NULL, 0, &data, &err));
    OK(strata_model_predict(model, data, 0, &y, &err));
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_device_close(host);
    return y;
}

static void same(const strata_array *got, const strata_array *want, double tolerance, const char *what) {
    cr_assert(strata_shape_equal(got->shape, want->shape), "%s: %s", what, strata_shape_text(got->shape).text);
    const float *a = got->data, *b = want->data;
    for (int64_t i = 0; i < strata_shape_elements(got->shape); i++)
        cr_assert(a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) || fabs((double)(a[i] - b[i])) <= tolerance,
                  "%s: element %d is %g, not %g", what, (int)i, (double)a[i], (double)b[i]);
}

/* ONNX and Keras are optional in a build, and libhdf5 at run time. */
static strata_model *load(const char *file) {
    strata_model *model = NULL;
    const bool onnx = strstr(file, ".onnx");
    const strata_status status = onnx ? strata_model_load_onnx(file, (strata_onnx_options){0}, &model, &err)
                                 : strstr(file, ".keras") || strstr(file, ".h5") ? strata_model_load_keras(file, &model, &err)
                                                                                 : strata_model_load(file, &model, &err);
    if (status == STRATA_UNSUPPORTED && (strstr(err.message, "this build") || strstr(err.message, "libhdf5")))
        cr_skip_test("%s", err.message);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return model;
}

/* Reads the golden file, and what each format makes of it. */
static void round_trips(const char *name, const char *ending) {
    const path file = golden(name, ending);
    strata_array want = array_of(name, "y"), got = predict(load(file.text), name);
    strata_model *model = load(file.text);
    same(&got, &want, 2e-6, name);
    OK(strata_model_save(model, test_path("model.strata"), &err));
    OK(strata_model_save_onnx(model, test_path("model.onnx"), &err));
    OK(strata_model_save_c(model, test_path("model.c"), (strata_c_options){0}, &err));
    strata_model_destroy(model);
    for (int i = 0; i < 2; i++) {
        strata_array again = predict(load(test_path(i ? "model.onnx" : "model.strata")), name);
        same(&again, &got, 0, i ? "read back from ONNX" : "read back");
        strata_array_finish(&again);
    }
    strata_array_finish(&want);
    strata_array_finish(&got);
}

/* A model of two outputs whose losses have options other than the defaults, with a label and notes. */
static strata_model *annotated(strata_device *host) {
    static const char json[] =
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [3]}], \"layers\": ["
        "{\"layer\": \"dense\", \"name\": \"kind\", \"units\": 4, \"inputs\": [\"x\"]}, "
        "{\"layer\": \"dense\", \"name\": \"size\", \"units\": 2, \"inputs\": [\"x\"]}], \"outputs\": ["
        "{\"name\": \"kind\", \"loss\": {\"name\": \"sparse_categorical_crossentropy\", \"label_smoothing\": 0.125}, "
        "\"weight\": 0.25, \"metrics\": [\"top_2_accuracy\"]}, {\"name\": \"size\", \"loss\": {\"name\": \"huber\", \"delta\": "
        "0.375}}]}";
    strata_model *model = NULL;
    OK(strata_model_from_json(json, strlen(json), "annotated", &model, &err));
    OK(strata_model_set_label(model, "a label \xC3\xA9", &err));
    OK(strata_model_set_note(model, "plain", "a text", &err));
    OK(strata_model_set_note(model, "odd", "\"quotes\", \\ and\n\ta line, \xE2\x82\xAC", &err));
    OK(strata_model_set_note(model, "empty", "", &err));
    OK(strata_model_set_note(model, "loss", "not the loss", &err));
    OK(strata_model_set_note(model, "label", "not the label", &err));
    OK(strata_model_set_note(model, "a_key_of_as_many_letters_as_a_key_may_have_which_are_sixty_four", "long", &err));
    OK(strata_model_compile(model, host, NULL, &err));
    return model;
}

Test(files, the_label_the_losses_and_every_note_come_back_from_each_format) {
    static const char *const endings[] = {"m.strata", "m.onnx", "m.keras"};
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        strata_model *model = annotated(host);
        char *losses = NULL, *again = NULL;
        const char *file = test_path(endings[i]);
        OK(strata_model_losses_text(model, &losses, &err));
        cr_assert(
            losses && strstr(losses, "0.125") && strstr(losses, "0.375") && strstr(losses, "0.25") && strstr(losses, "top_2"),
            "%s", losses);
        OK(strstr(file, ".onnx")    ? strata_model_save_onnx(model, file, &err)
           : strstr(file, ".keras") ? strata_model_save_keras(model, file, &err)
                                    : strata_model_save(model, file, &err));
        strata_model *back = load(file);
        OK(strata_model_losses_text(back, &again, &err));
        cr_expect(again && !strcmp(again, losses), "%s: the losses are %s, not %s", endings[i], again ? again : "not there",
                  losses);
        cr_expect_str_eq(back->label, model->label);
        cr_expect_eq(back->notes.n, model->notes.n, "%s: %d notes", endings[i], back->notes.n);
        for (int k = 0; k < model->notes.n; k++) {
            const char *key = model->notes.items[k].key + strlen("strata."), *text = strata_model_note(back, key);
            cr_expect(text && !strcmp(text, model->notes.items[k].text), "%s: note %s is \"%s\"", endings[i], key, text);
        }
        free(losses);
        free(again);
        strata_model_destroy(back);
        strata_model_destroy(model);
    }
    strata_device_close(host);
}

Test(files, infinities_nan_and_open_bounds_are_read_and_written) {
    static const char *const names[] = {"clip_below", "clip_above", "clip_open",    "clip_infinite",
                                        "mask",       "nan",        "elu_infinite", "pad_infinite"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) round_trips(names[i], ".onnx");
}

Test(files, recurrent_layers_of_pytorch_take_a_batch_of_any_size) {
    static const char *const names[] = {"lstm_states", "lstm_expanded", "gru_states", "gru_expanded"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) round_trips(names[i], ".onnx");
}

Test(files, tokens_of_keras_may_be_floats_in_the_file) {
    round_trips("tokens", ".keras");
}

Test(files, infinity_in_the_json_of_keras_is_a_number) {
    round_trips("infinite", ".keras");
}

Test(files, h5_files_of_keras_are_read) {
    round_trips("legacy", ".h5");
}

Test(files, options_of_a_model_may_be_infinite) {
    static const char json[] =
        "{\"input\": [3], \"loss\": \"mse\", \"layers\": [{\"layer\": \"dense\", \"units\": 3}, {\"layer\": \"op\", \"op\": "
        "\"clip\", \"numbers\": [\"-inf\", 1]}, {\"layer\": \"op\", \"op\": \"pad\", \"numbers\": [0, 1, 0, 0], \"value\": "
        "\"nan\"}]}";
    strata_model *model = NULL;
    strata_device *host = NULL;
    char *text = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_from_json(json, strlen(json), "json", &model, &err));
    OK(strata_model_to_json(model, &text, &err));
    cr_assert(strstr(text, "\"numbers\":[\"-inf\",1]") && strstr(text, "\"value\":\"nan\""), "%s", text);
    OK(strata_model_compile(model, host, NULL, &err));
    OK(strata_model_save(model, test_path("m.strata"), &err));
    strata_model_destroy(model);
    strata_device_close(host);
    strata_model_destroy(load(test_path("m.strata")));
    static const char wrong[] = "{\"input\": [3], \"layers\": [{\"layer\": \"dropout\", \"rate\": \"inf\"}]}";
    cr_assert_eq(strata_model_from_json(wrong, strlen(wrong), "json", &model, &err), STRATA_DATA);
    SAYS("rate: must be a number");
    free(text);
}

static strata_status refuse(const char *file, void *context, strata_error *e) {
    (void)context;
    return strata_fail(e, STRATA_DATA, "%s: layers[0]: it is odd", file);
}

Test(files, what_cannot_be_read_back_does_not_replace_a_file) {
    const char *file = test_file("model", "old", 3);
    unsigned char *bytes;
    size_t n;
    cr_assert_eq(strata_file_write_checked(file, "new", 3, &(strata_file_check){refuse, NULL}, &err), STRATA_UNSUPPORTED);
    SAYS("model: it is not written, because it could not be read back: layers[0]: it is odd");
    OK(strata_file_read(file, 100, &bytes, &n, &err));
    cr_assert_str_eq((char *)bytes, "old");
    cr_assert_eq(test_folder_count(), 1, "a temporary file was left");
    free(bytes);
}

/* ---- PyTorch's names ---- */

static strata_model *recurrent_model(const char *kind) {
    char json[256];
    strata_model *model = NULL;
    snprintf(json, sizeof json,
             "{\"input\": [4, 3], \"loss\": \"mse\", \"layers\": [{\"layer\": \"%s\", \"units\": 2, \"bidirectional\": "
             "\"concat\"}, {\"layer\": \"dense\", \"units\": 2}]}",
             kind);
    OK(strata_model_from_json(json, strlen(json), "json", &model, &err));
    return model;
}

/* A map without the lines that contain `without`, and with the line `more`. */
static const char *map_of(const char *kind, const char *without, const char *more) {
    static const char *const lines[][2] = {
        {"weight_ih_l0", "kernel"}, {"weight_hh_l0", "recurrent_kernel"}, {"bias_hh_l0", "bias"}, {"bias_ih_l0", "bias"}};
    char text[2048] = "o.weight dense/kernel\no.bias dense/bias\n", line[128];
    for (int backward = 0; backward < 2; backward++)
        for (int i = 0; i < 4; i++) {
            snprintf(line, sizeof line, "r.%s%s %s/%s%s\n", lines[i][0], backward ? "_reverse" : "", kind,
                     backward ? "backward_" : "", lines[i][1]);
            if (!without || !strstr(line, without)) strcat(text, line);
        }
    strcat(text, more);
    return test_file("map.txt", text, strlen(text));
}

Test(files, both_biases_of_pytorch_have_a_place) {
    static const char *const kinds[] = {"lstm", "gru"};
    for (int k = 0; k < 2; k++) {
        const path weights = golden(kinds[k], ".safetensors");
        const char *map = map_of(kinds[k], NULL, "");
        strata_model *model = recurrent_model(kinds[k]), *again = recurrent_model(kinds[k]);
        OK(strata_model_take_state_dict(model, weights.text, map, &err));
        OK(strata_model_save_state_dict(model, test_path("back.safetensors"), map, &err));
        OK(strata_model_take_state_dict(again, test_path("back.safetensors"), map, &err));
        strata_array want = array_of(kinds[k], "y"), got = predict(model, kinds[k]), back = predict(again, kinds[k]);
        same(&got, &want, 1e-6, kinds[k]);
        same(&back, &got, 0, "written and read again");
        strata_array_finish(&want);
        strata_array_finish(&got);
        strata_array_finish(&back);
    }
}

Test(files, a_map_that_leaves_a_tensor_out_says_so) {
    const path weights = golden("gru", ".safetensors");
    strata_model *model = recurrent_model("gru");
    cr_assert_eq(strata_model_take_state_dict(model, weights.text, map_of("gru", "bias_hh", ""), &err), STRATA_DATA);
    SAYS("no line uses 2 tensors");
    SAYS("r.bias_hh_l0, r.bias_hh_l0_reverse");
    OK(strata_model_take_state_dict(model, weights.text, map_of("gru", "bias_hh", "r.bias_hh* -\n"), &err));
    const char *twice = map_of("gru", NULL, "r.bias_ih_l0 gru/bias\n");
    cr_assert_eq(strata_model_take_state_dict(model, weights.text, twice, &err), STRATA_DATA);
    SAYS("\"gru/bias\" is in the map twice");
    cr_assert_eq(strata_model_save_state_dict(model, test_path("x.safetensors"), map_of("gru", "bias_hh", ""), &err),
                 STRATA_DATA);
    SAYS("has two rows");
    strata_model_destroy(model);
}

/* A name that was cut could be that of another tensor. Comments may be long. */
Test(files, a_map_with_a_name_that_is_too_long_says_so) {
    const path weights = golden("gru", ".safetensors");
    strata_model *model = recurrent_model("gru");
    char line[800];
    for (int n = 255; n <= 256; n++) {
        snprintf(line, sizeof line, "%0*d -\n# %0300d\n", n, 0, 0);
        const strata_status status = strata_model_take_state_dict(model, weights.text, map_of("gru", NULL, line), &err);
        cr_assert_eq(status, n > 255 ? STRATA_DATA : STRATA_OK, "%s", err.message);
    }
    SAYS("a name has 256 bytes, and 255 are the most");
    strata_model_destroy(model);
}

Test(files, a_state_dict_that_does_not_fit_sets_no_parameter) {
    static const char *const more[] = {"r.nowhere gru/bias\n", "r.bias_hh_l0 gru/kernel\n", "o.weight\n"};
    const path weights = golden("gru", ".safetensors");
    strata_model *model = recurrent_model("gru");
    strata_array value;
    for (int i = 0; i <= 3; i++) { /* at last all parameters have a line, and a tensor is left over */
        const char *map = map_of("gru", i < 3 ? NULL : "bias_hh", i < 3 ? more[i] : "");
        cr_assert_eq(strata_model_take_state_dict(model, weights.text, map, &err), STRATA_DATA);
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, 0).shape, &value, &err));
        cr_assert_eq(strata_model_get_parameter(model, 0, &value, &err), STRATA_INVALID, "line %d", i);
        strata_array_finish(&value);
    }
    strata_model_destroy(model);
}

/* ---- messages ---- */

static void fails(const char *name, const char *ending, const char *words) {
    const path file = golden(name, ending);
    strata_model *model = NULL;
    const strata_status status = strstr(ending, "onnx")
                                     ? strata_model_load_onnx(file.text, (strata_onnx_options){0}, &model, &err)
                                     : strata_model_load_keras(file.text, &model, &err);
    cr_assert_neq(status, STRATA_OK, "%s", name);
    if (strstr(err.message, "this build")) cr_skip_test("%s", err.message);
    SAYS(words);
}

Test(files, messages_of_onnx_name_what_a_user_knows) {
    fails("float8", ".onnx", "to the element type FLOAT8E4M3FN");
    fails("multiple", ".onnx", "288 N");
    cr_assert(!strstr(err.message, "287995104") && !strstr(err.message, "999983"), "%s", err.message);
    fails("no_batch", ".onnx", "give --whole (in Python whole=True)");
}

Test(files, messages_of_keras_name_the_layer) {
    fails("permute", ".keras", "Permute (turned)");
    fails("channels", ".keras", "layer \"turned\" (Conv2D): config.layers[1].config.data_format");
}

/* ---- graphs that are evaluated as they are ---- */

Test(files, a_graph_without_weights_is_evaluated) {
    const path file = golden("weightless", ".onnx");
    static const char *const inputs[] = {"a", "shape", "flag"};
    strata_onnx_graph *graph = NULL;
    if (strata_onnx_graph_open(file.text, &graph, &err)) cr_skip_test("%s", err.message);
    for (int i = 0; i < 3; i++) {
        strata_array array = array_of("weightless", inputs[i]);
        cr_assert_str_eq(strata_onnx_graph_input(graph, i), inputs[i]);
        if (i == 2) cr_assert_eq(strata_onnx_graph_run(graph, &err), STRATA_DATA);
        if (i == 2) SAYS("there is no array for its input \"flag\"");
        OK(strata_onnx_graph_set(graph, inputs[i], &array, &err));
        strata_array_finish(&array);
    }
    OK(strata_onnx_graph_run(graph, &err));
    strata_array want = array_of("weightless", "r");
    strata_onnx_result r = strata_onnx_graph_output(graph, 0), s = strata_onnx_graph_output(graph, 1),
                       not = strata_onnx_graph_output(graph, 2);
    cr_assert(!strcmp(r.name, "r") && !strcmp(s.type, "INT64") && !strcmp(not .type, "BOOL"));
    cr_assert_null(strata_onnx_graph_output(graph, 3).name);
    same(&r.array, &want, 0, "r");
    cr_assert(((int64_t *)s.array.data)[0] == 3 && ((int64_t *)s.array.data)[1] == 4);
    cr_assert(!((uint8_t *)not .array.data)[0] && ((uint8_t *)not .array.data)[1]);
    strata_array wrong = want;
    cr_assert_eq(strata_onnx_graph_set(graph, "b", &want, &err), STRATA_INVALID);
    SAYS("its inputs are \"a\", \"shape\", \"flag\"");
    OK(strata_onnx_graph_set(graph, "a", &wrong, &err));
    cr_assert_eq(strata_onnx_graph_run(graph, &err), STRATA_DATA);
    SAYS("input \"a\" is (2,6); its array is (3,4)");
    strata_array_finish(&want);
    strata_onnx_graph_destroy(graph);
}

/* ---- tables ---- */

static const char table[] =
    "size,price,rooms,city\n"
    "1.5,1200,1,a\n2.5,1400,2,b\n,1900,3,a\n4.5,2500,2,b\n5.5,2600,1,a\n6.0,3000,3,b\n"
    "1.0,1100,1,a\n2.0,1500,2,b\n3.0,1800,3,a\n4.0,2200,2,b\n";

/* A model for the columns, with random weights. */
static strata_model *model_of_table(const char *const *features, int n, const char *label, strata_device *host,
                                    strata_dataset **out_data) {
    strata_csv *csv = NULL;
    strata_preprocessing *p = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    char json[256];
    const strata_preprocessing_options opts = {.features = features, .n_features = n, .labels = &label, .n_labels = 1};
    OK(strata_csv_parse("table", table, strlen(table), 0, &csv, &err));
    OK(strata_preprocessing_from_csv(csv, &opts, &p, &err));
    OK(strata_preprocessing_split_csv(p, csv, 0, 0, &train, &test, &err));
    OK(strata_preprocessing_apply_csv(p, csv, &(strata_apply_options){.unlabelled = true}, out_data, &err));
    snprintf(json, sizeof json, "{\"input\": [%d], \"loss\": \"%s\", \"layers\": [{\"layer\": \"dense\", \"units\": %d}]}",
             (int)strata_dataset_element_shape(train).dims[0],
             strcmp(label, "city") ? "mse" : "sparse_categorical_crossentropy", strcmp(label, "city") ? 1 : 2);
    OK(strata_model_from_json(json, strlen(json), "json", &model, &err));
    OK(strata_model_set_preprocessing(model, p, &err));
    OK(strata_model_compile(model, host, NULL, &err));
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_preprocessing_destroy(p);
    strata_csv_destroy(csv);
    return model;
}

/* The file's answer to the rows of the table, of which `columns` are used. */
static strata_array answer(const char *file, const int *columns, int n) {
    static const float rows[10][3] = {{1.5f, 1200, 1}, {2.5f, 1400, 2}, {NAN, 1900, 3}, {4.5f, 2500, 2}, {5.5f, 2600, 1},
                                      {6, 3000, 3},    {1, 1100, 1},    {2, 1500, 2},   {3, 1800, 3},    {4, 2200, 2}};
    strata_onnx_graph *graph = NULL;
    strata_array x, y;
    OK(strata_onnx_graph_open(file, &graph, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(10, n), &x, &err));
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < n; k++) ((float *)x.data)[i * n + k] = rows[i][columns[k]];
    OK(strata_onnx_graph_set(graph, strata_onnx_graph_input(graph, 0), &x, &err));
    OK(strata_onnx_graph_run(graph, &err));
    const strata_array result = strata_onnx_graph_output(graph, 0).array;
    OK(strata_array_create(STRATA_DTYPE_F32, result.shape, &y, &err));
    memcpy(y.data, result.data, strata_array_bytes(&result));
    strata_array_finish(&x);
    strata_onnx_graph_destroy(graph);
    return y;
}

static void check_table(const char *const *features, const int *columns, int n, const char *label) {
    strata_device *host = NULL;
    strata_dataset *data = NULL;
    strata_array want, got, back;
    strata_preprocessing *p = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = model_of_table(features, n, label, host, &data), *again = NULL;
    const strata_status status = strata_model_save_onnx(model, test_path("table.onnx"), &err);
    if (status && strstr(err.message, "this build")) cr_skip_test("%s", err.message);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    OK(strata_model_predict(model, data, 0, &want, &err));
    again = load(test_path("table.onnx"));
    OK(strata_model_compile(again, host, NULL, &err));
    OK(strata_model_predict(again, data, 0, &back, &err));
    same(&back, &want, 0, "read back");
    OK(strata_model_preprocessing(again, &p, &err)); /* it still prepares a table */
    strata_preprocessing_restore(p, &want);
    got = answer(test_path("table.onnx"), columns, n);
    same(&got, &want, strcmp(label, "city") ? 2e-3 : 1e-5, "rows of the table");
    strata_preprocessing_destroy(p);
    strata_array_finish(&want);
    strata_array_finish(&got);
    strata_array_finish(&back);
    strata_model_destroy(model);
    strata_model_destroy(again);
    strata_dataset_destroy(data);
    strata_device_close(host);
}

Test(files, an_onnx_file_of_a_table_takes_its_rows) {
    check_table((const char *const[]){"price", "rooms"}, (const int[]){1, 2}, 2, "city");
    check_table((const char *const[]){"size", "rooms"}, (const int[]){0, 2}, 2, "city"); /* a number is missing */
    check_table((const char *const[]){"size", "rooms"}, (const int[]){0, 2}, 2, "price");
}

Test(files, columns_that_a_file_cannot_hold_are_named) {
    strata_device *host = NULL;
    strata_dataset *data = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = model_of_table((const char *const[]){"size", "city"}, 2, "price", host, &data);
    cr_assert_eq(strata_model_save_onnx(model, test_path("table.onnx"), &err), STRATA_UNSUPPORTED);
    if (strstr(err.message, "this build")) cr_skip_test("%s", err.message);
    SAYS("the column \"city\" of words");
    SAYS("strata export --c");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(host);
}

static strata_tensor *half(strata_tensor *x) {
    return strata_mul(x, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, 0.5));
}

Test(files, a_function_of_the_program_is_no_op_of_the_same_name) {
    const char *const names[] = {"exp", "gather"};
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    for (int i = 0; i < 2; i++) {
        strata_model *model = NULL;
        strata_registry *registry = NULL;
        OK(strata_registry_create(&registry, &err));
        OK(strata_activation_register(registry, names[i], half, &err));
        OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
        OK(strata_model_set_registry(model, registry, &err));
        strata_model_add_dense(model, (strata_dense_options){.units = 2, .activation = names[i]});
        OK(strata_model_build(model, host, NULL, &err));
        cr_assert_eq(strata_model_save_onnx(model, test_path("own.onnx"), &err), STRATA_UNSUPPORTED);
        if (!strstr(err.message, "this build")) SAYS("dense (dense: a function of the program's own)");
        strata_model_destroy(model);
        strata_registry_destroy(registry);
    }
    strata_device_close(host);
}

/* The embedding's mask belongs to "words" only: the layer over "numbers", which is built next, has none. */
Test(files, padding_of_one_input_is_no_padding_of_another) {
    static const char json[] =
        "{\"inputs\": [{\"name\": \"words\", \"shape\": [1], \"dtype\": \"i32\"}, {\"name\": \"numbers\", \"shape\": [2, 3]}], "
        "\"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 4, \"units\": 2, \"mask_zero\": true, \"name\": \"e\", "
        "\"inputs\": [\"words\"]}, {\"layer\": \"lstm\", \"units\": 2, \"name\": \"r\", \"inputs\": [\"numbers\"]}], "
        "\"outputs\": [{\"name\": \"e\", \"loss\": \"mse\"}, {\"name\": \"r\", \"loss\": \"mse\"}]}";
    strata_model *model = NULL;
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_from_json(json, strlen(json), "json", &model, &err));
    OK(strata_model_build(model, host, NULL, &err));
    cr_assert_eq(strata_model_save_onnx(model, test_path("masked.onnx"), &err), STRATA_UNSUPPORTED);
    SAYS("mask_zero");
    const strata_status status = strata_model_save_keras(model, test_path("masked.keras"), &err);
    if (status == STRATA_UNSUPPORTED && strstr(err.message, "libhdf5")) cr_skip_test("%s", err.message);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    strata_model_destroy(load(test_path("masked.keras")));
    strata_model_destroy(model);
    strata_device_close(host);
}

/* The file lists the input b before a, since the first layer takes it. Keras' order of arguments is that of "input_layers". */
Test(files, inputs_of_a_keras_file_keep_their_order) {
    strata_model *model = NULL;
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_create_functional(&model, &err));
    const strata_value *a = strata_model_input(model, "a", STRATA_SHAPE(2), STRATA_DTYPE_F32);
    const strata_value *b = strata_model_input(model, "b", STRATA_SHAPE(2), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 2, .name = "first"});
    const strata_value *both[] = {strata_layer_call(model, "first", &b, 1), a};
    strata_model_add_concat(model, (strata_concat_options){0});
    strata_model_output(model, strata_layer_call(model, NULL, both, 2), (strata_output_options){0});
    OK(strata_model_build(model, host, NULL, &err));
    const strata_status status = strata_model_save_keras(model, test_path("order.keras"), &err);
    if (status == STRATA_UNSUPPORTED && strstr(err.message, "libhdf5")) cr_skip_test("%s", err.message);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    strata_model *loaded = load(test_path("order.keras"));
    cr_assert_eq(strata_model_n_inputs(loaded), 2);
    cr_assert_str_eq(strata_model_input_port(loaded, 0).name, "a");
    cr_assert_str_eq(strata_model_input_port(loaded, 1).name, "b");
    strata_model_destroy(loaded);
    strata_model_destroy(model);
    strata_device_close(host);
}
