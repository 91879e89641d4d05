/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes each allocation fail in turn in the calls of a model. After a failure the call is made once more with enough
 * memory, and must succeed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "strata/strata.h"
#include "tests/alloc/shim.h"
#include "tests/support/folder.h"

TestSuite(alloc_model, .init = test_folder_make, .fini = test_folder_remove);

enum { EXAMPLES = 10, FEATURES = 6, CLASSES = 3 };

typedef struct fixture {
    strata_device *device;
    strata_dataset *dataset;
    strata_model *model;
} fixture;

static float features[EXAMPLES * FEATURES];
static int32_t labels[EXAMPLES];

static strata_status make_dataset(strata_dataset **out, strata_error *err) {
    for (int i = 0; i < EXAMPLES * FEATURES; i++) features[i] = (float)(i * 7 % 13) / 13;
    for (int i = 0; i < EXAMPLES; i++) labels[i] = i % CLASSES;
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, 2, 3), features);
    strata_array y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(EXAMPLES), labels);
    return strata_dataset_from_arrays(&x, &y, 0, out, err);
}

static void add_layers(strata_model *model) {
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 5, .activation = "relu", .name = "hidden"});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.25});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
}

/* ---- calls on a model that chooses layers to compute again, in the order in which a program makes them ---- */
static strata_status call_compile(fixture *f, strata_error *err) {
    return strata_model_compile(f->model, f->device, &(strata_compile_options){.seed = 3, .recompute = "auto:1K"}, err);
}
static strata_status call_fit(fixture *f, strata_error *err) {
    strata_history history = {0};
    strata_status status = strata_model_fit(f->model, f->dataset, &(strata_fit_options){.batch = 4}, &history, err);
    strata_history_finish(&history);
    return status;
}
static strata_status call_evaluate(fixture *f, strata_error *err) {
    strata_metrics metrics;
    return strata_model_evaluate(f->model, f->dataset, 4, &metrics, err);
}
static strata_status call_fit_validated(fixture *f, strata_error *err) {
    strata_history history = {0};
    const strata_fit_options opts = {.epochs = 2, .batch = 4, .validation = f->dataset, .patience = 5, .restore_best = true};
    strata_status status = strata_model_fit(f->model, f->dataset, &opts, &history, err);
    strata_history_finish(&history);
    return status;
}
static strata_status save_best(const strata_progress *p, void *user, strata_error *err) {
    fixture *f = user;
    return p->epoch_end ? strata_model_save_checkpoint(f->model, p->epoch + 1, test_path("checkpoint"), err) : STRATA_OK;
}
static strata_status call_checkpoint(fixture *f, strata_error *err) {
    const strata_fit_options opts = {
        .batch = 4, .validation = f->dataset, .restore_best = true, .on_progress = save_best, .user = f};
    return strata_model_fit(f->model, f->dataset, &opts, NULL, err);
}
static strata_status call_load_checkpoint(fixture *f, strata_error *err) {
    int epochs = 0;
    return strata_model_load_checkpoint(f->model, test_path("checkpoint"), &epochs, err);
}
static strata_status call_summarize(fixture *f, strata_error *err) {
    strata_model_summary summary = {0};
    strata_status status = strata_model_summarize(f->model, 4, &summary, err);
    strata_model_summary_finish(&summary);
    return status;
}
static strata_status call_predict(fixture *f, strata_error *err) {
    strata_array predictions = {0};
    strata_status status = strata_model_predict(f->model, f->dataset, 4, &predictions, err);
    strata_array_finish(&predictions);
    return status;
}
static strata_status call_sha256(fixture *f, strata_error *err) {
    char hex[65];
    return strata_model_sha256(f->model, hex, err);
}
static strata_status call_label(fixture *f, strata_error *err) {
    return strata_model_set_label(f->model, "a label", err);
}
static strata_status call_to_json(fixture *f, strata_error *err) {
    char *text = NULL;
    strata_status status = strata_model_to_json(f->model, &text, err);
    free(text);
    return status;
}
static strata_status call_save(fixture *f, strata_error *err) {
    return strata_model_save(f->model, test_path("model.strata"), err);
}

static const struct {
    const char *name;
    strata_status (*call)(fixture *f, strata_error *err);
} calls[] = {{"compile", call_compile},
             {"fit", call_fit},
             {"fit with validation", call_fit_validated},
             {"checkpoint", call_checkpoint},
             {"load_checkpoint", call_load_checkpoint},
             {"evaluate", call_evaluate},
             {"predict", call_predict},
             {"summarize", call_summarize},
             {"sha256", call_sha256},
             {"label", call_label},
             {"to_json", call_to_json},
             {"save", call_save}};
enum { CALLS = sizeof calls / sizeof *calls };

static void fixture_make(fixture *f, int n_calls) {
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", NULL, &f->device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(make_dataset(&f->dataset, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_create(STRATA_SHAPE(2, 3), &f->model, &err), STRATA_OK, "%s", err.message);
    add_layers(f->model);
    for (int i = 0; i < n_calls; i++) cr_assert_eq(calls[i].call(f, &err), STRATA_OK, "%s: %s", calls[i].name, err.message);
}

static void fixture_finish(fixture *f) {
    strata_model_destroy(f->model);
    strata_dataset_destroy(f->dataset);
    strata_device_close(f->device);
}

/* Makes the call with its k-th allocation failing. Returns false when the call makes fewer than k allocations. */
static bool fail_in_call(int c, int64_t k) {
    fixture f;
    strata_error err = {0};
    int64_t before = shim_live();
    fixture_make(&f, c);
    shim_fail_at(k);
    strata_status status = calls[c].call(&f, &err);
    bool failed = shim_failed();
    shim_fail_at(0);
    cr_assert(status == STRATA_OK || (failed && status == STRATA_OUT_OF_MEMORY), "%s, allocation %d: %s \"%s\"", calls[c].name,
              (int)k, strata_status_name(status), err.message);
    cr_assert(status == STRATA_OK || (err.status == status && err.message[0]));
    if (status) {
        status = calls[c].call(&f, &err);
        cr_assert_eq(status, STRATA_OK, "%s failed at allocation %d, and again with enough memory: %s", calls[c].name, (int)k,
                     err.message);
    }
    fixture_finish(&f);
    cr_assert_eq(shim_live(), before, "%s, allocation %d: %d blocks leak", calls[c].name, (int)k, (int)(shim_live() - before));
    return failed;
}

Test(alloc_model, every_call_can_be_made_again) {
    for (int c = 0; c < CALLS; c++)
        for (int64_t k = 1; fail_in_call(c, k); k++) cr_assert_lt(k, 20000);
}

/* ---- calls that make a model ---- */
static strata_status add_scenario(strata_error *err) {
    strata_model *model = NULL;
    strata_device *device = NULL;
    STRATA_TRY(strata_model_create(STRATA_SHAPE(2, 3), &model, err));
    add_layers(model);
    strata_status status = strata_device_open("host", NULL, &device, err);
    if (!status) status = strata_model_compile(model, device, NULL, err);
    strata_model_destroy(model);
    strata_device_close(device);
    return status;
}

static strata_status json_scenario(strata_error *err) {
    static const char text[] =
        "{\"input\": [2, 3], \"layers\": [{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"activation\": "
        "\"tanh\", "
        "\"name\": \"first\"}, {\"layer\": \"dense\", \"units\": 3}], \"optimizer\": {\"name\": \"sgd\", \"learning_rate\": "
        "0.1}}";
    strata_model *model = NULL;
    STRATA_TRY(strata_model_from_json(text, sizeof text - 1, "story", &model, err));
    strata_model_destroy(model);
    return STRATA_OK;
}

static strata_tensor *double_it(const void *options, strata_layer_context *context, strata_tensor *const *inputs, int n) {
    (void)options;
    (void)context;
    return strata_add(inputs[0], inputs[n - 1]);
}

/* A functional model with a layer that the program registered, and a dataset with two inputs that is divided into parts. */
static strata_status calls_scenario(strata_error *err) {
    static const char text[] =
        "{\"inputs\": [{\"name\": \"a\", \"shape\": [2]}, {\"name\": \"b\", \"shape\": [2]}], \"layers\": [{\"layer\": "
        "\"dense\", "
        "\"name\": \"h\", \"units\": 2, \"inputs\": [\"a\"]}, {\"call\": \"h\", \"inputs\": [\"b\"]}, {\"layer\": \"twice\", "
        "\"name\": "
        "\"y\", \"inputs\": [\"h\", \"h_1\"]}], \"outputs\": [{\"name\": \"one\", \"value\": \"y\", \"loss\": \"mse\", "
        "\"metrics\": "
        "[\"mae\"]}, {\"name\": \"h\", \"loss\": \"mse\"}]}";
    static float x[8][2];
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(8, 2), x);
    const strata_data_column inputs[] = {{"a", &array, 0}, {"b", &array, 0}},
                             targets[] = {{"one", &array, 0}, {"h", &array, 0}};
    const strata_layer_definition twice = {.name = "twice", .n_inputs = 2, .build = double_it};
    strata_registry *registry = NULL;
    strata_model *model = NULL;
    strata_dataset *whole = NULL, *first = NULL, *last = NULL;
    char *json = NULL;
    strata_status status = STRATA_OK;
    STRATA_TRY_GOTO(strata_registry_create(&registry, err));
    STRATA_TRY_GOTO(strata_layer_register(registry, &twice, err));
    STRATA_TRY_GOTO(strata_model_from_json_with(registry, text, sizeof text - 1, "story", &model, err));
    STRATA_TRY_GOTO(strata_model_to_json(model, &json, err));
    STRATA_TRY_GOTO(strata_dataset_from_columns(inputs, 2, targets, 2, &whole, err));
    STRATA_TRY_GOTO(strata_dataset_split(whole, 0.5, NULL, &first, &last, err));
cleanup:
    free(json);
    strata_dataset_destroy(whole);
    strata_dataset_destroy(first);
    strata_dataset_destroy(last);
    strata_model_destroy(model);
    strata_registry_destroy(registry);
    return status;
}

static strata_status split_scenario(strata_error *err) {
    strata_dataset *whole = NULL, *first = NULL, *last = NULL;
    STRATA_TRY(make_dataset(&whole, err));
    strata_status status = strata_dataset_split(whole, 0.3, NULL, &first, &last, err);
    strata_dataset_destroy(whole);
    strata_dataset_destroy(first);
    strata_dataset_destroy(last);
    return status;
}

static strata_status rows_scenario(strata_error *err) {
    strata_csv *csv = NULL;
    strata_dataset *dataset = NULL;
    static const char *const columns[] = {"a", "b", "c"};
    STRATA_TRY(strata_csv_parse_rows("rows", "1,2,3\n3,4,5\n", 12, 0, columns, 3, &csv, err));
    const strata_csv_options opts = {.labels = columns, .n_labels = 2};
    strata_status status = strata_dataset_from_csv(csv, &opts, &dataset, err);
    strata_dataset_destroy(dataset);
    strata_csv_destroy(csv);
    return status;
}

/* The preprocessing of a table: it is found, measured, written into a model and read from it. */
static strata_status preprocessing_scenario(strata_error *err) {
    static const char text[] =
        "n,w,when,note,kind\n1,red,2024-01-01,x,a\n,blue,2024-01-02,x,b\n3,red,2024-01-03,x,a\n4,red,,x,b\n";
    strata_csv *csv = NULL;
    strata_preprocessing *p = NULL, *kept = NULL;
    strata_dataset *train = NULL, *test = NULL, *all = NULL;
    strata_model *model = NULL;
    strata_status status = STRATA_OK;
    STRATA_TRY_GOTO(strata_csv_parse_table("story", text, sizeof text - 1, 0, NULL, &csv, err));
    STRATA_TRY_GOTO(strata_preprocessing_from_csv(csv, NULL, &p, err));
    STRATA_TRY_GOTO(strata_preprocessing_split_csv(p, csv, 0.5, 1, &train, &test, err));
    STRATA_TRY_GOTO(strata_model_create(STRATA_SHAPE(2), &model, err));
    STRATA_TRY_GOTO(strata_model_set_preprocessing(model, p, err));
    STRATA_TRY_GOTO(strata_model_preprocessing(model, &kept, err));
    STRATA_TRY_GOTO(strata_preprocessing_apply_csv(kept, csv, NULL, &all, err));
cleanup:
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_dataset_destroy(all);
    strata_preprocessing_destroy(p);
    strata_preprocessing_destroy(kept);
    strata_model_destroy(model);
    strata_csv_destroy(csv);
    return status;
}

static strata_status texts_scenario(strata_error *err) {
    static const char text[] =
        "text,kind\nthe first of them has words,a\nthe second one has more words,b\nand so does this one,a\n";
    strata_csv *csv = NULL;
    strata_preprocessing *p = NULL;
    strata_dataset *train = NULL, *test = NULL;
    STRATA_TRY(strata_csv_parse_table("story", text, sizeof text - 1, 0, NULL, &csv, err));
    strata_status status = strata_preprocessing_from_csv(csv, NULL, &p, err);
    if (!status) status = strata_preprocessing_split_csv(p, csv, 0, 1, &train, &test, err);
    strata_dataset_destroy(train);
    strata_preprocessing_destroy(p);
    strata_csv_destroy(csv);
    return status;
}

static strata_status freeze_scenario(strata_error *err) {
    strata_model *model = NULL;
    STRATA_TRY(strata_model_load(test_path("model.strata"), &model, err));
    strata_status status = strata_model_freeze(model, "dense", err);
    strata_model_destroy(model);
    return status;
}

static strata_status load_scenario(strata_error *err) {
    strata_model *model = NULL;
    STRATA_TRY(strata_model_load(test_path("model.strata"), &model, err));
    strata_model_destroy(model);
    return STRATA_OK;
}

static void fail_each_allocation(const char *name, strata_status (*scenario)(strata_error *err)) {
    strata_error err = {0};
    cr_assert_eq(scenario(&err), STRATA_OK, "%s: %s", name, err.message);
    bool failed = true;
    for (int64_t k = 1; failed; k++) {
        int64_t before = shim_live();
        err = (strata_error){0};
        shim_fail_at(k);
        strata_status status = scenario(&err);
        failed = shim_failed();
        shim_fail_at(0);
        cr_assert_eq(shim_live(), before, "%s, allocation %d: %d blocks leak", name, (int)k, (int)(shim_live() - before));
        cr_assert_eq(status, failed ? STRATA_OUT_OF_MEMORY : STRATA_OK, "%s, allocation %d: %s \"%s\"", name, (int)k,
                     strata_status_name(status), err.message);
    }
}

Test(alloc_model, layers_json_and_files) {
    fixture f;
    fixture_make(&f, CALLS); /* CALLS: the model has been through all calls, so it can be saved */
    fixture_finish(&f);
    fail_each_allocation("add", add_scenario);
    fail_each_allocation("json", json_scenario);
    fail_each_allocation("calls", calls_scenario);
    fail_each_allocation("split", split_scenario);
    fail_each_allocation("rows", rows_scenario);
    fail_each_allocation("load", load_scenario);
    fail_each_allocation("freeze", freeze_scenario);
    fail_each_allocation("preprocessing", preprocessing_scenario);
    fail_each_allocation("texts", texts_scenario);
}
