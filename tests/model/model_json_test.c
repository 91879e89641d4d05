/* SPDX-License-Identifier: Apache-2.0
 *
 * Models as JSON: reading what was written, and the error messages for malformed texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(model_json, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

static strata_model *read_text(const char *text) {
    strata_model *model = NULL;
    OK(strata_model_from_json(text, strlen(text), "m.json", &model, &err));
    return model;
}

Test(model_json, comes_back_as_it_was_written) {
    static const char *const texts[] = {
        "{\"label\":\"\",\"input\":[3],\"layers\":[{\"layer\":\"dense\",\"name\":\"dense\",\"units\":2}]}",
        "{\"label\":\"my \\\"model\\\"\",\"input\":[2,3],\"layers\":["
        "{\"layer\":\"flatten\",\"name\":\"flatten\"},"
        "{\"layer\":\"dense\",\"name\":\"hidden\",\"units\":5,\"activation\":\"tanh\",\"no_bias\":true,"
        "\"kernel_initializer\":\"he_normal\"},"
        "{\"layer\":\"dropout\",\"name\":\"dropout\",\"rate\":0.25},"
        "{\"layer\":\"dropout\",\"name\":\"dropout_1\",\"rate\":0},"
        "{\"layer\":\"dense\",\"name\":\"dense\",\"units\":3,\"bias_initializer\":\"ones\"},"
        "{\"layer\":\"activation\",\"name\":\"activation\",\"function\":\"relu\"}],"
        "\"loss\":\"sparse_categorical_crossentropy\","
        "\"optimizer\":{\"name\":\"sgd\",\"learning_rate\":0.1,\"momentum\":0.9,\"nesterov\":true}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strata_model *model = read_text(texts[i]);
        char *text = NULL;
        OK(strata_model_to_json(model, &text, &err));
        cr_assert_str_eq(text, texts[i]);
        free(text);
        strata_model_destroy(model);
    }
}

Test(model_json, says_what_the_calls_would) {
    strata_model *model = read_text(
        "{\"label\": \"mine\", \"input\": [2, 3], \"layers\": [{\"layer\": \"flatten\"}, "
        "{\"layer\": \"dense\", \"units\": 5, \"activation\": \"tanh\"}, {\"layer\": \"dense\", "
        "\"units\": 3}], \"optimizer\": {\"name\": \"adam\", \"learning_rate\": 0.01}}");
    cr_assert_str_eq(strata_model_label(model), "mine");
    cr_assert(strata_shape_equal(strata_model_input_shape(model), STRATA_SHAPE(2, 3)));
    cr_assert_str_eq(strata_model_optimizer(model).name, "adam");
    cr_assert_eq(strata_model_optimizer(model).learning_rate, 0.01);
    cr_assert_eq(strata_model_n_parameters(model), 4);
    strata_model *by_name =
        read_text("{\"input\": [3], \"layers\": [{\"layer\": \"dense\", \"units\": 2}], \"optimizer\": \"lamb\"}");
    cr_assert_str_eq(strata_model_optimizer(by_name).name, "lamb");
    strata_model_destroy(by_name);
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_dataset *data = case_dataset(40);
    strata_model *twin = case_model(host, strata_adam_optimizer(0.01), 2);
    OK(strata_model_compile(model, host, &(strata_compile_options){.seed = 2}, &err));
    OK(strata_model_fit(model, data, NULL, NULL, &err));
    OK(strata_model_fit(twin, data, NULL, NULL, &err));
    cr_assert_str_eq(case_sha(model), case_sha(twin));
    strata_model_destroy(model);
    strata_model_destroy(twin);
    strata_dataset_destroy(data);
    strata_device_close(host);
}

/* {"input": [3], "layers": [LAYER]} and more fields */
#define MODEL(layer, more) "{\"input\": [3], \"layers\": [" layer "]" more "}"
#define DENSE              "{\"layer\": \"dense\", \"units\": 2}"

Test(model_json, wrong_texts_are_told_where_and_why) {
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "m.json"},
        {"[]", "m.json"},
        {"{\"input\": [3], \"layers\": [" DENSE "]", "m.json"},
        {"{\"layers\": [" DENSE "]}", "input"},
        {"{\"input\": [3]}", "layers"},
        {"{\"input\": 3, \"layers\": [" DENSE "]}", "input"},
        {"{\"input\": [0], \"layers\": [" DENSE "]}", "input"},
        {"{\"input\": [1.5], \"layers\": [" DENSE "]}", "input"},
        {"{\"input\": [1,1,1,1,1,1,1,1], \"layers\": [" DENSE "]}", "has 8 axes; at most 7"},
        {"{\"input\": [2147483647,2147483647,2147483647], \"layers\": [" DENSE "]}", "(2147483647,2147483647,2147483647)"},
        {"{\"input\": [3], \"layers\": []}", "has 0 layers"},
        {"{\"input\": [3], \"layers\": {}}", "layers"},
        {"{\"inputs\": [3], \"layers\": [" DENSE "]}", "inputs"},
        {MODEL("7", ""), "layers[0]"},
        {MODEL(DENSE ", {\"units\": 2}", ""), "layers[1]"},
        {MODEL("{\"layer\": \"convolve\"}", ""),
         "there is no layer \"convolve\"; there are: dense, activation, dropout, flatten"},
        {MODEL("{\"layer\": \"dense\"}", ""), "units"},
        {MODEL("{\"layer\": \"dense\", \"units\": 0}", ""), "units"},
        {MODEL("{\"layer\": \"dense\", \"units\": 2.5}", ""), "units"},
        {MODEL("{\"layer\": \"dense\", \"units\": \"2\"}", ""), "units"},
        {MODEL("{\"layer\": \"dense\", \"units\": 2, \"activaton\": \"relu\"}", ""), "activaton"},
        {MODEL("{\"layer\": \"dense\", \"units\": 2, \"activation\": \"gelo\"}", ""), "no activation \"gelo\""},
        {MODEL("{\"layer\": \"dense\", \"units\": 2, \"kernel_initializer\": \"x\"}", ""), "no initializer \"x\""},
        {MODEL("{\"layer\": \"dense\", \"units\": 2, \"no_bias\": 1}", ""), "no_bias"},
        {MODEL("{\"layer\": \"dropout\", \"rate\": 1}, " DENSE, ""), "rate"},
        {MODEL("{\"layer\": \"dropout\", \"rate\": 1.5}, " DENSE, ""), "rate"},
        {MODEL("{\"layer\": \"flatten\"}", ""), "nothing to train"},
        {MODEL("{\"layer\": \"dense\", \"units\": 2, \"name\": \"a\"}, {\"layer\": \"flatten\", \"name\": \"a\"}", ""),
         "two layers called \"a\""},
        {MODEL(DENSE, ", \"loss\": \"hinge\""),
         "no loss \"hinge\"; there are: sparse_categorical_crossentropy, categorical_crossentropy, binary_crossentropy, mse"},
        {MODEL(DENSE, ", \"loss\": 1"), "loss"},
        {MODEL(DENSE, ", \"loss\": {\"delta\": 1}"), "loss"},
        {MODEL(DENSE, ", \"loss\": {\"name\": \"huber\", \"delt\": 1}"), "delta"},
        {MODEL(DENSE, ", \"loss\": {\"name\": \"mse\", \"delta\": 1}"), "delta"},
        {MODEL(DENSE, ", \"loss\": {\"name\": \"huber\", \"delta\": -1}"), "delta"},
        {MODEL(DENSE, ", \"optimizer\": 3"), "optimizer"},
        {MODEL(DENSE, ", \"optimizer\": \"lion\""), "no optimizer \"lion\""},
        {MODEL(DENSE, ", \"optimizer\": {}"), "name"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"lion\"}"),
         "no optimizer \"lion\"; there are: sgd, adam, adamw, rmsprop, adagrad, lars, lamb"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"sgd\", \"momentum\": 1}"), "momentum is 1"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"sgd\", \"nesterov\": true}"), "nesterov needs a momentum"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": -1}"), "learning_rate"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"rate\": 1}"), "rate"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"momentum\": 0.5}"), "momentum"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": \"x\"}"), "learning_rate"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": {\"initial\": 1}}"), "schedule"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": {\"schedule\": \"linear\"}}"),
         "no schedule \"linear\""},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": {\"schedule\": \"cosine\", \"step\": 3}}"),
         "steps"},
        {MODEL(DENSE, ", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": {\"schedule\": \"step\", \"values\": []}}"),
         "boundaries"},
        {MODEL("{\"layer\": \"dense\", \"units\": 2, \"kernel_l2\": -1}", ""), "kernel_l2"},
        {MODEL(DENSE, ", \"label\": 3"), "label"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = NULL;
        err = (strata_error){0};
        strata_status status = strata_model_from_json(wrong[i].text, strlen(wrong[i].text), "m.json", &model, &err);
        cr_assert_eq(status, STRATA_DATA, "%s: %s: %s", wrong[i].text, strata_status_name(status), err.message);
        cr_assert_null(model);
        cr_assert_not_null(strstr(err.message, wrong[i].message), "%s: \"%s\" lacks \"%s\"", wrong[i].text, err.message,
                           wrong[i].message);
        cr_assert_not_null(strstr(err.message, "m.json"), "\"%s\" does not name the file", err.message);
    }
}

Test(model_json, reads_a_file_and_names_it) {
    static const char text[] = MODEL(DENSE, "");
    strata_model *model = NULL;
    OK(strata_model_read_json(test_file("model.json", text, sizeof text - 1), &model, &err));
    strata_model_destroy(model);
    model = NULL;
    FAILS(strata_model_read_json(test_file("cut.json", text, sizeof text - 3), &model, &err), STRATA_DATA, "cut.json");
    FAILS(strata_model_read_json(test_path("missing.json"), &model, &err), STRATA_UNAVAILABLE, "missing.json");
    size_t n = (4 << 20) + 1;
    char *large = malloc(n);
    cr_assert_not_null(large);
    memset(large, ' ', n);
    FAILS(strata_model_read_json(test_file("large.json", large, n), &model, &err), STRATA_DATA, "large.json");
    free(large);
    cr_assert_null(model);
}

/* What is written can be read, also of as many layers as a model may have. */
Test(model_json, a_model_of_many_layers_is_read_back) {
    strata_model *model = NULL, *back = NULL;
    char *text = NULL, *again = NULL, name[100];
    OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    for (int i = 1; i < 10000; i++) {
        snprintf(name, sizeof name, "an activation whose name is as long as the %050d", i);
        strata_model_add_activation(model, (strata_activation_options){.name = name, .function = "relu"});
    }
    OK(strata_model_to_json(model, &text, &err));
    cr_assert_gt(strlen(text), 1 << 20);
    OK(strata_model_from_json(text, strlen(text), "many", &back, &err));
    OK(strata_model_to_json(back, &again, &err));
    cr_assert(!strcmp(text, again));
    free(text);
    free(again);
    strata_model_destroy(model);
    strata_model_destroy(back);
}

/* Constants alone: there are parameters, but none that training changes. */
Test(model_json, a_model_without_anything_to_train_is_not_compiled) {
    static const char text[] =
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [3]}], \"layers\": ["
        "{\"layer\": \"weights\", \"shape\": [3], \"constant\": true, \"name\": \"w\", \"inputs\": [\"x\"]}, "
        "{\"layer\": \"op\", \"op\": \"add\", \"name\": \"y\", \"inputs\": [\"x\", \"w\"]}], "
        "\"outputs\": [{\"name\": \"y\", \"loss\": \"mse\"}]}";
    strata_device *host = NULL;
    strata_model *model = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_model_from_json(text, sizeof text - 1, "test", &model, &err));
    FAILS(strata_model_compile(model, host, NULL, &err), STRATA_INVALID, "no layer has parameters to train");
    strata_model_destroy(model);
    strata_device_close(host);
}

Test(model_json, writing_a_wrong_model_says_why) {
    strata_model *model = NULL;
    char *text = NULL;
    OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = -1});
    FAILS(strata_model_to_json(model, &text, &err), STRATA_INVALID, "units is -1");
    cr_assert_null(text);
    strata_model_destroy(model);
}

Test(model_json, optimizers_are_checked_at_compile) {
    const struct {
        strata_optimizer optimizer;
        const char *message;
    } wrong[] = {
        {{.name = "lion"}, "no optimizer \"lion\""},       {{.name = "sgd", .learning_rate = -1}, "learning_rate is -1"},
        {{.name = "sgd", .momentum = 1}, "momentum is 1"}, {{.name = "sgd", .nesterov = true}, "nesterov needs a momentum"},
        {{.name = "adam", .beta1 = 1}, "beta1 is 1"},      {{.name = "adam", .beta2 = -0.5}, "beta2 is -0.5"},
        {{.name = "adam", .epsilon = -1}, "epsilon is -1"}};
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_model *model = case_model_uncompiled();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(strata_model_compile(model, host, &(strata_compile_options){.optimizer = wrong[i].optimizer}, &err),
              STRATA_INVALID, wrong[i].message);
    FAILS(strata_model_compile(model, host, &(strata_compile_options){.loss = "hinge"}, &err), STRATA_INVALID,
          "no loss \"hinge\"");
    strata_model *flat = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &flat, &err));
    strata_model_add_dense(flat, (strata_dense_options){.units = 3});
    FAILS(strata_model_compile(flat, host, &(strata_compile_options){.loss = "categorical_crossentropy"}, &err), STRATA_INVALID,
          "its outputs are (2,3) an example; categorical_crossentropy needs one axis");
    strata_model_destroy(flat);
    OK(strata_model_compile(model, host, NULL, &err)); /* the failed calls have not changed the model */
    FAILS(strata_model_compile(model, host, NULL, &err), STRATA_INVALID, "compiled already");
    strata_model_add_flatten(model, (strata_flatten_options){0});
    char *text = NULL;
    FAILS(strata_model_to_json(model, &text, &err), STRATA_INVALID, "layers are added before that");
    strata_model_destroy(model);
    strata_device_close(host);
}
