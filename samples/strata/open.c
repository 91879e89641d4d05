/* SPDX-License-Identifier: Apache-2.0
 *
 * How each sample gets its data: files where --data names them, else data that are made here, always the same ones. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "samples.h"

enum { MADE_SEED = 1, LONGEST_PATH = 4096 };

int open_data(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    const bool table = options->path && (sample->open == open_table || sample->open == open_regression);
    if (options->weight && !table)
        return usage_error("--weight-column: only a CSV of numbers has one; give it with --data FILE.csv");
    if (options->path || sample->made) return sample->open(sample, options, split, data);
    usage_error("%s needs --data DIR; strata data fetch %s --to DIR gets the originals", sample->name, sample->fetch);
    return EXIT_DATA;
}

int model_tokenizer(const strata_model *model, const sample *sample, strata_tokenizer **out_tokenizer) {
    strata_error err = {0};
    if (!sample->vocabulary) return EXIT_OK;
    strata_status status = strata_model_tokenizer(model, out_tokenizer, &err);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* The model's JSON with another "input". */
static strata_status with_input(const strata_model *model, int64_t width, strata_model **out_model, strata_error *err) {
    char *text = NULL, *changed = NULL;
    STRATA_TRY(strata_model_to_json(model, &text, err));
    cJSON *json = cJSON_Parse(text);
    cJSON *input = cJSON_CreateIntArray((int[]){(int)width}, 1);
    free(text);
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
    strata_model *wider = NULL;
    if (!sample->any_width || element.rank != 1 || strata_shape_equal(element, strata_model_input_shape(*model)))
        return EXIT_OK;
    strata_status status = with_input(*model, element.dims[0], &wider, &err);
    if (status) return report(FAILING_DATA, status, &err);
    strata_model_destroy(*model);
    *model = wider;
    return EXIT_OK;
}

void close_data(sample_data *data) {
    strata_dataset_destroy(data->dataset);
    strata_tokenizer_destroy(data->tokenizer);
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

/* f32 features (n, width) and labels (n), zeros. */
static strata_status make_numbers(int64_t n, int64_t width, strata_array *x, strata_array *y, strata_error *err) {
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, width), x, err));
    strata_status status = strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), y, err);
    if (status) strata_array_finish(x);
    return status;
}

int open_linear(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    enum { POINTS = 100 };
    strata_error err = {0};
    strata_array x = {0}, y = {0};
    (void)split;
    if (options->path) return usage_error("%s learns one point and takes no --data", sample->name);
    strata_status status = make_numbers(POINTS, 1, &x, &y, &err);
    for (int i = 0; i < POINTS && !status; i++) ((float *)x.data)[i] = ((float *)y.data)[i] = 1;
    if (!status) status = strata_dataset_take_arrays(&x, &y, 0, &data->dataset, &err);
    return opened(status, &err);
}

/* splitmix64 (Steele, Lea, Flood 2014), as a number in -1..1. */
static double next_number(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

/* Ten numbers x in -1..1; y = sin(3 x0) + 2 x1 x2 + x3^2 + 0.5 x4 - x5 and a little noise; the other four do not matter. */
static int make_regression(bool train, sample_data *data) {
    enum { WIDTH = 10, TRAIN = 4000, TEST = 1000 };
    strata_error err = {0};
    strata_array features = {0}, labels = {0};
    int64_t n = train ? TRAIN : TEST;
    uint64_t state = train ? MADE_SEED : ~(uint64_t)MADE_SEED;
    strata_status status = make_numbers(n, WIDTH, &features, &labels, &err);
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

/* ---- CSV ---- */

strata_status column_list_split(const char *list, column_list *out_columns, strata_error *err) {
    char *rest = NULL;
    out_columns->n = 0;
    out_columns->text = list ? strdup(list) : NULL;
    if (!list) return STRATA_OK;
    if (!out_columns->text) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the names of columns");
    for (char *name = strtok_r(out_columns->text, ",", &rest); name && out_columns->n < MOST_COLUMNS;
         name = strtok_r(NULL, ",", &rest))
        out_columns->names[out_columns->n++] = name;
    return STRATA_OK;
}

void column_list_finish(column_list *columns) {
    free(columns->text);
}

static bool is_folder(const char *path) {
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* The file of this part in the folder `path`: one of the sample's stems, plain or compressed. */
static int find_table(const sample *sample, const char *path, const char *split, char out_path[LONGEST_PATH]) {
    static const char *const ends[] = {".csv", ".csv.gz", ".csv.xz"};
    const char *const *stems = sample->tables[strcmp(split, "train") ? 1 : 0];
    for (int i = 0; i < TABLE_STEMS && stems[i]; i++)
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            struct stat info;
            if (snprintf(out_path, LONGEST_PATH, "%s/%s%s", path, stems[i], ends[k]) >= LONGEST_PATH) continue;
            if (!stat(out_path, &info)) return EXIT_OK;
        }
    usage_error("%s: has no %s.csv, .csv.gz or .csv.xz", path, stems[0]);
    return EXIT_DATA;
}

enum { FIFTH = 5 };

static bool is_test_row(int64_t row) {
    return row % FIFTH == FIFTH - 1;
}

/* Weights of the rows that x and y are made of, in order. */
static strata_status take_weights(const strata_dataset *whole, const strata_order *order, bool train, strata_dataset *part,
                                  strata_error *err) {
    strata_array weights = {0};
    int64_t taken = 0;
    if (!strata_dataset_has_weights(whole)) return STRATA_OK;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(strata_dataset_size(part)), &weights, err));
    for (int64_t i = 0; i < strata_dataset_size(whole); i++)
        if (is_test_row(i) != train) strata_dataset_fetch_weights(whole, order, i, 1, (float *)weights.data + taken++);
    strata_status status = strata_dataset_set_weights(part, &weights, err);
    strata_array_finish(&weights);
    return status;
}

/* One file is all there is: every fifth row is kept for testing. */
static strata_status take_part(const strata_dataset *whole, bool train, strata_dataset **out, strata_error *err) {
    int64_t n = strata_dataset_size(whole), width = strata_shape_elements(strata_dataset_element_shape(whole)), taken = 0;
    strata_array x = {0}, y = {0};
    strata_order *order = NULL;
    char *labels; /* four bytes each, i32 or f32 */
    int64_t n_test = n / FIFTH;
    if (n < FIFTH)
        return strata_fail(err, STRATA_DATA, "there are %lld rows; every fifth is kept for testing, so 5 are needed",
                           (long long)n);
    STRATA_TRY(make_numbers(train ? n - n_test : n_test, width, &x, &y, err));
    y.dtype = strata_dataset_label_dtype(whole);
    labels = y.data;
    strata_status status = strata_order_create(n, false, 0, 0, &order, err);
    for (int64_t i = 0; i < n && !status; i++) {
        if (is_test_row(i) == train) continue;
        strata_dataset_fetch(whole, order, i, 1, (float *)x.data + taken * width, labels + 4 * taken);
        taken++;
    }
    if (!status) status = strata_dataset_take_arrays(&x, &y, 0, out, err);
    if (!status) status = take_weights(whole, order, train, *out, err);
    strata_order_destroy(order);
    strata_array_finish(&x);
    strata_array_finish(&y);
    return status;
}

int open_table(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    column_list columns;
    char path[LONGEST_PATH];
    bool folder = is_folder(options->path);
    if (folder && find_table(sample, options->path, split, path)) return EXIT_DATA;
    strata_error err = {0};
    strata_csv_options csv = {.label = options->label ? options->label : sample->label};
    if (!csv.label) return usage_error("%s: tell the column to be learned with --label COLUMN", options->path);
    strata_dataset *whole = NULL;
    strata_status status = column_list_split(options->columns, &columns, &err);
    if (status) return opened(status, &err);
    csv.n_features = columns.n;
    csv.features = columns.n ? columns.names : NULL;
    csv.weight = options->weight;
    status = strata_dataset_csv(folder ? path : options->path, &csv, &whole, &err);
    column_list_finish(&columns);
    if (!status && folder) {
        data->dataset = whole;
        return EXIT_OK;
    }
    if (!status) status = take_part(whole, !strcmp(split, "train"), &data->dataset, &err);
    strata_dataset_destroy(whole);
    return opened(status, &err);
}

int open_regression(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    return options->path ? open_table(sample, options, split, data) : make_regression(!strcmp(split, "train"), data);
}

/* ---- text ---- */

/* Rows of tokens from documents, by the tokenizer that is there or a new one. Takes the texts. */
static int to_tokens(const sample *sample, const data_options *options, strata_texts *texts, sample_data *data) {
    strata_error err = {0};
    strata_tokenizer_options opts = {.kind = options->subwords ? STRATA_TOKENIZER_SUBWORDS : STRATA_TOKENIZER_WORDS,
                                     .vocabulary = sample->vocabulary};
    strata_status status = data->tokenizer ? STRATA_OK : strata_tokenizer_train(texts, &opts, &data->tokenizer, &err);
    if (!status) status = strata_dataset_from_texts(texts, data->tokenizer, data->length, &data->dataset, &err);
    strata_texts_destroy(texts);
    return opened(status, &err);
}

int open_imdb(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    strata_texts *texts = NULL;
    strata_status status = strata_texts_imdb(options->path, split, &texts, &err);
    return status ? opened(status, &err) : to_tokens(sample, options, texts, data);
}

int open_text_table(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    column_list columns;
    char path[LONGEST_PATH];
    bool folder = is_folder(options->path);
    if (folder && find_table(sample, options->path, split, path)) return EXIT_DATA;
    strata_error err = {0};
    strata_texts *texts = NULL;
    strata_csv_options csv = {.label = options->label ? options->label : sample->label};
    strata_status status = column_list_split(options->columns ? options->columns : sample->columns, &columns, &err);
    if (status) return opened(status, &err);
    csv.n_features = columns.n;
    csv.features = columns.names;
    status = strata_texts_csv(folder ? path : options->path, &csv, &texts, &err);
    column_list_finish(&columns);
    return status ? opened(status, &err) : to_tokens(sample, options, texts, data);
}
