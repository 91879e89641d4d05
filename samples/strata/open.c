/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the data of each sample: files if --data names them, else data that are generated here and are always the same. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"

enum { MADE_SEED = 1 };

/* Rejects options that have no effect on these data. */
static int check_options(const sample *sample, const data_options *options) {
    const bool table = sample->open == open_own || (options->path && sample->open == open_regression);
    if (options->weight && !(table && options->path))
        return usage_error("--weight-column: only a CSV of numbers has weights; give --data FILE.csv");
    if ((options->label || options->columns) && !table)
        return usage_error("--%s: only a CSV has columns with names, and the data of %s are not a CSV",
                           options->label ? "label" : "columns", sample->name);
    if (options->subwords && !sample->texts && sample->open != open_own)
        return usage_error("--subwords: %s does not learn from texts", sample->name);
    return EXIT_OK;
}

int open_data(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    const int code = check_options(sample, options);
    if (code) return code;
    if (options->path || sample->made) return sample->open(sample, options, split, data);
    if (sample->fetch)
        usage_error("%s needs --data DIR; strata data fetch %s --to DIR gets the originals", sample->name, sample->fetch);
    else
        usage_error("a model that takes tokens needs --data FILE.csv of texts, and --label COLUMN");
    return EXIT_DATA;
}

void describe_inputs(const strata_model *model, sample_data *data) {
    const strata_shape shape = strata_model_input_shape(model);
    data->model = model;
    data->text_beside_numbers = takes_table_with_texts(model);
    const int of_text = data->text_beside_numbers ? 1 : 0;
    data->length = shape.rank ? strata_model_input_port(model, of_text).shape.dims[0] : 0;
    data->vocabulary = strata_model_input_port(model, of_text).n_tokens;
    /* The labels determine the loss of a single number without a sigmoid. */
    const bool open = strata_model_n_outputs(model) == 1 && !strata_model_output_port(model, 0).has_loss && !classifies(model);
    data->task = open ? STRATA_TASK_AUTO : classifies(model) ? STRATA_TASK_CLASSIFICATION : STRATA_TASK_REGRESSION;
    data->picture = shape;
}

strata_status recall_preprocessing(const strata_model *model, strata_preprocessing **out, strata_error *err) {
    *out = NULL;
    return strata_model_note(model, "preprocessing") ? strata_model_preprocessing(model, out, err) : STRATA_OK;
}

int recall_data(const strata_model *model, const sample *sample, sample_data *data) {
    strata_error err = {0};
    describe_inputs(model, data);
    strata_status status = recall_preprocessing(model, &data->preprocessing, &err);
    data->as_they_are = !status && !data->preprocessing && !sample->texts && sample == own_sample();
    const bool tokens = sample->texts || (data->as_they_are && strata_model_note(model, "tokenizer"));
    if (!status && !data->preprocessing && tokens) status = strata_model_tokenizer(model, &data->tokenizer, &err);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* Makes a model with another "input" and other "units" of the last layer. */
static strata_status with_widths(const strata_model *model, int64_t width, int64_t n_outputs, strata_model **out_model,
                                 strata_error *err) {
    char *text = NULL, *changed = NULL;
    STRATA_TRY(strata_model_to_json(model, &text, err));
    cJSON *json = cJSON_Parse(text);
    cJSON *input = cJSON_CreateIntArray((int[]){(int)width}, 1);
    cJSON *layers = cJSON_GetObjectItemCaseSensitive(json, "layers");
    cJSON *units = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(layers, cJSON_GetArraySize(layers) - 1), "units");
    free(text);
    if (units) cJSON_SetNumberValue(units, (double)n_outputs);
    if (json && input && cJSON_ReplaceItemInObjectCaseSensitive(json, "input", input)) changed = cJSON_PrintUnformatted(json);
    strata_status status = changed ? strata_model_from_json(changed, strlen(changed), strata_model_label(model), out_model, err)
                                   : strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the model");
    cJSON_free(changed);
    cJSON_Delete(json);
    return status;
}

int fit_model_to_data(const sample *sample, const sample_data *data, strata_model **model) {
    strata_error err = {0};
    strata_shape element = strata_dataset_element_shape(data->dataset);
    const int64_t n_labels = strata_shape_elements(strata_dataset_label_shape(data->dataset));
    strata_model *wider = NULL;
    if (!sample->any_width || element.rank != 1) return EXIT_OK;
    if (n_labels == 1 && strata_shape_equal(element, strata_model_input_shape(*model))) return EXIT_OK;
    strata_status status = with_widths(*model, element.dims[0], n_labels, &wider, &err);
    if (!status) status = strata_model_set_note(wider, "precision", strata_model_note(*model, "precision"), &err);
    if (status) {
        strata_model_destroy(wider);
        return report(FAILING_DATA, status, &err);
    }
    strata_model_destroy(*model);
    *model = wider;
    return EXIT_OK;
}

void close_data(sample_data *data) {
    strata_dataset_destroy(data->dataset);
    strata_tokenizer_destroy(data->tokenizer);
    strata_dataset_destroy(data->rest);
    strata_preprocessing_destroy(data->preprocessing);
    for (int i = 0; i < MOST_ARRAYS; i++) strata_array_finish(&data->arrays[i]);
    *data = (sample_data){0};
}

static int opened(strata_status status, const strata_error *err) {
    return status ? report(FAILING_DATA, status, err) : EXIT_OK;
}

/* ---- pictures ---- */

int open_mnist(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    (void)sample;
    return opened(strata_dataset_mnist(options->path, split, MADE_SEED, &data->dataset, &err), &err);
}

int open_cifar10(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    (void)sample;
    return opened(strata_dataset_cifar10(options->path, split, &data->dataset, &err), &err);
}

/* ---- numbers ---- */

/* Allocates f32 features (n, width) and labels (n, n_labels), or (n) if n_labels is 1, filled with 0. */
static strata_status make_numbers(int64_t n, int64_t width, int64_t n_labels, strata_array *x, strata_array *y,
                                  strata_error *err) {
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, width), x, err));
    strata_status status = strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, n_labels), y, err);
    if (n_labels == 1) y->shape.rank = 1;
    if (status) strata_array_finish(x);
    return status;
}

int open_linear(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    enum { POINTS = 100 };
    strata_error err = {0};
    strata_array x = {0}, y = {0};
    (void)split;
    if (options->path) return usage_error("%s learns one point and takes no --data", sample->name);
    strata_status status = make_numbers(POINTS, 1, 1, &x, &y, &err);
    for (int i = 0; i < POINTS && !status; i++) ((float *)x.data)[i] = ((float *)y.data)[i] = 1;
    if (!status) status = strata_dataset_take_arrays(&x, &y, 0, &data->dataset, &err);
    return opened(status, &err);
}

/* The next number of splitmix64 (Steele, Lea, Flood 2014), in -1..1. */
static double next_number(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

/* Generates examples with ten numbers x in -1..1 and the label y = sin(3 x0) + 2 x1 x2 + x3^2 + 0.5 x4 - x5 plus a little
 * noise. y does not depend on the other four numbers. */
static int make_regression(bool train, sample_data *data) {
    enum { WIDTH = 10, TRAIN = 4000, TEST = 1000 };
    strata_error err = {0};
    strata_array features = {0}, labels = {0};
    int64_t n = train ? TRAIN : TEST;
    uint64_t state = train ? MADE_SEED : ~(uint64_t)MADE_SEED;
    strata_status status = make_numbers(n, WIDTH, 1, &features, &labels, &err);
    for (int64_t i = 0; i < n && !status; i++) {
        float *x = (float *)features.data + i * WIDTH;
        for (int k = 0; k < WIDTH; k++) x[k] = (float)next_number(&state);
        double noise = 0.1 * next_number(&state);
        ((float *)labels.data)[i] = (float)(sin(3.0 * (double)x[0]) + 2.0 * (double)x[1] * (double)x[2] +
                                            (double)x[3] * (double)x[3] + 0.5 * (double)x[4] - (double)x[5] + noise);
    }
    if (!status) status = strata_dataset_take_arrays(&features, &labels, 0, &data->dataset, &err);
    return opened(status, &err);
}

int open_regression(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    return options->path ? open_own(sample, options, split, data) : make_regression(!strcmp(split, "train"), data);
}

/* ---- text ---- */

/* Converts documents to tokens, with data->tokenizer, or with a new one if that is NULL. */
static strata_status to_tokens(const data_options *options, const strata_texts *texts, sample_data *data, strata_error *err) {
    strata_tokenizer_options opts = {.kind = options->subwords ? STRATA_TOKENIZER_SUBWORDS : STRATA_TOKENIZER_WORDS,
                                     .vocabulary = data->vocabulary};
    if (!data->tokenizer) STRATA_TRY(strata_tokenizer_train(texts, &opts, &data->tokenizer, err));
    return strata_dataset_from_texts(texts, data->tokenizer, data->length, &data->dataset, err);
}

int open_imdb(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    strata_texts *texts = NULL;
    (void)sample;
    strata_status status = strata_texts_imdb(options->path, split, &texts, &err);
    if (!status) status = to_tokens(options, texts, data, &err);
    strata_texts_destroy(texts);
    return opened(status, &err);
}
