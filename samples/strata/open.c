/* SPDX-License-Identifier: Apache-2.0
 *
 * How each sample gets its data: files where --data names them, else data that are made here, always the same ones. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/data/dataset.h"
#include "core/data/text/texts.h"
#include "samples.h"

enum { MADE_SEED = 1, LONGEST_PATH = 4096 };

/* Options that would mean nothing to these data. */
static int check_options(const sample *sample, const data_options *options) {
    const bool numbers = options->path && (sample->open == open_table || sample->open == open_regression);
    const bool table = numbers || sample->open == open_text_table;
    if (options->weight && !numbers)
        return usage_error("--weight-column: only a CSV of numbers has one; give it with --data FILE.csv");
    if ((options->label || options->columns) && !table)
        return usage_error("--%s: only a CSV has columns that can be named; the data of %s are none",
                           options->label ? "label" : "columns", sample->name);
    if (options->subwords && !sample->texts) return usage_error("--subwords: %s does not learn from texts", sample->name);
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
    data->length = shape.rank ? shape.dims[0] : 0;
    data->vocabulary = strata_model_n_tokens(model);
}

int recall_data(const strata_model *model, const sample *sample, sample_data *data) {
    strata_error err = {0};
    describe_inputs(model, data);
    strata_status status = schema_read(model, &data->schema, &err);
    if (!status && sample->texts) status = strata_model_tokenizer(model, &data->tokenizer, &err);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* The model's JSON with another "input", and other "units" of its last layer. */
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
    schema_finish(&data->schema);
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

/* f32 features (n, width) and labels (n, n_labels), or (n) of one each; zeros. */
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

/* ---- CSV ---- */

static strata_status split_columns(const char *list, column_list *out_columns, strata_error *err) {
    char *rest = NULL;
    out_columns->n = 0;
    out_columns->text = list ? strdup(list) : NULL;
    if (!list) return STRATA_OK;
    if (!out_columns->text) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the names of columns");
    for (char *name = strtok_r(out_columns->text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (out_columns->n == MOST_COLUMNS)
            return strata_fail(err, STRATA_INVALID, "more than %d columns are named", MOST_COLUMNS);
        out_columns->names[out_columns->n++] = name;
    }
    return STRATA_OK;
}

void chosen_columns_finish(chosen_columns *chosen) {
    free(chosen->features.text);
    free(chosen->labels.text);
}

static bool is_folder(const char *path) {
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Whether the folder `path` has a file for this part: one of the sample's stems, plain or compressed. */
static bool find_table(const sample *sample, const char *path, const char *split, char out_path[LONGEST_PATH]) {
    static const char *const ends[] = {".csv", ".csv.gz", ".csv.xz"};
    const char *const *stems = sample->tables[strcmp(split, "train") ? 1 : 0];
    for (int i = 0; i < TABLE_STEMS && stems[i]; i++)
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            struct stat info;
            if (snprintf(out_path, LONGEST_PATH, "%s/%s%s", path, stems[i], ends[k]) >= LONGEST_PATH) continue;
            if (!stat(out_path, &info)) return true;
        }
    return false;
}

bool is_table(const char *path) {
    return ends_with(path, ".csv") || ends_with(path, ".csv.gz") || ends_with(path, ".csv.xz");
}

bool has_table(const sample *sample, const char *path) {
    char found[LONGEST_PATH];
    return is_table(path) || find_table(sample, path, "train", found) || find_table(sample, path, "test", found);
}

enum { FIFTH = 5 };

static bool is_test_row(int64_t row) {
    return row % FIFTH == FIFTH - 1;
}

static strata_status too_few_rows(int64_t n, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "there are %lld rows; every fifth is kept for testing, so 5 are needed", (long long)n);
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

static strata_status take_part(const strata_dataset *whole, bool train, strata_dataset **out, strata_error *err) {
    int64_t n = strata_dataset_size(whole), width = strata_shape_elements(strata_dataset_element_shape(whole)), taken = 0;
    strata_array x = {0}, y = {0};
    strata_order *order = NULL;
    char *labels; /* four bytes each, i32 or f32 */
    const int64_t n_labels = strata_shape_elements(strata_dataset_label_shape(whole)), n_test = n / FIFTH,
                  n_part = train ? n - n_test : n_test;
    if (n < FIFTH) return too_few_rows(n, err);
    STRATA_TRY(make_numbers(n_part, width, n_labels, &x, &y, err));
    y.dtype = strata_dataset_label_dtype(whole);
    labels = y.data;
    strata_status status = strata_order_create(n, false, 0, 0, &order, err);
    for (int64_t i = 0; i < n && !status; i++) {
        if (is_test_row(i) == train) continue;
        strata_dataset_fetch(whole, order, i, 1, (float *)x.data + taken * width, labels + 4 * n_labels * taken);
        taken++;
    }
    if (!status) status = strata_dataset_take_arrays(&x, &y, 0, out, err);
    if (!status) status = take_weights(whole, order, train, *out, err);
    strata_order_destroy(order);
    strata_array_finish(&x);
    strata_array_finish(&y);
    return status;
}

strata_status choose_columns(const sample *sample, const data_options *options, const csv_schema *schema,
                             chosen_columns *out_chosen, strata_error *err) {
    const bool recalled = schema->n_columns && !options->columns;
    const char *label = options->label ? options->label : schema->label ? schema->label : sample->label;
    column_list *features = &out_chosen->features, *labels = &out_chosen->labels;
    STRATA_TRY(split_columns(options->columns ? options->columns : recalled ? NULL : sample->columns, features, err));
    STRATA_TRY(split_columns(label, labels, err));
    if (label && !labels->n) return strata_fail(err, STRATA_INVALID, "--label %s: names no column", label);
    out_chosen->csv = (strata_csv_options){.features = recalled      ? (const char *const *)schema->columns
                                                       : features->n ? features->names
                                                                     : NULL,
                                           .n_features = recalled ? schema->n_columns : features->n,
                                           .label = labels->n == 1 ? labels->names[0] : NULL,
                                           .classes = (const char *const *)schema->classes,
                                           .n_classes = schema->n_classes,
                                           .weight = options->weight};
    if (labels->n > 1) {
        out_chosen->csv.labels = labels->names;
        out_chosen->csv.n_labels = labels->n;
    }
    return STRATA_OK;
}

/* A table that `strata train` and `strata evaluate` open. */
typedef struct open_csv {
    strata_csv *csv;
    chosen_columns columns;
    bool only;  /* there is no other one: every fifth row is kept for testing */
    bool train; /* which part is wanted */
} open_csv;

static void close_csv(open_csv *table) {
    strata_csv_destroy(table->csv);
    chosen_columns_finish(&table->columns);
}

static int read_csv(const sample *sample, const data_options *options, const char *split, const sample_data *data,
                    open_csv *out_table) {
    char path[LONGEST_PATH];
    strata_error err = {0};
    *out_table = (open_csv){.only = !is_folder(options->path) && !data->whole, .train = !strcmp(split, "train")};
    if (is_folder(options->path) && !find_table(sample, options->path, split, path)) {
        usage_error("%s: has no %s.csv, .csv.gz or .csv.xz", options->path, sample->tables[strcmp(split, "train") ? 1 : 0][0]);
        return EXIT_DATA;
    }
    if (!options->label && !data->schema.label && !sample->label)
        return usage_error("%s: tell the column to be learned with --label COLUMN", options->path);
    strata_status status = choose_columns(sample, options, &data->schema, &out_table->columns, &err);
    if (!status) status = strata_csv_read(is_folder(options->path) ? path : options->path, 0, &out_table->csv, &err);
    return opened(status, &err);
}

/* Of the first table that is opened. */
static strata_status learn_schema(const open_csv *table, sample_data *data, strata_error *err) {
    return data->schema.n_columns ? STRATA_OK
                                  : schema_create(table->csv, &table->columns.csv, data->dataset, &data->schema, err);
}

/* Where a part came from, for a person. */
static strata_status tell_part(const open_csv *table, strata_dataset *part, strata_error *err) {
    char source[LONGEST_PATH];
    snprintf(source, sizeof source, "%s: every fifth row is kept for testing", strata_csv_name(table->csv));
    return strata_dataset_set_source(part, source, err);
}

static strata_status take_numbers(const open_csv *table, sample_data *data, strata_error *err) {
    strata_dataset *part = NULL;
    STRATA_TRY(strata_dataset_from_csv(table->csv, &table->columns.csv, &data->dataset, err));
    STRATA_TRY(learn_schema(table, data, err));
    if (!table->only) return STRATA_OK;
    STRATA_TRY(take_part(data->dataset, table->train, &part, err));
    strata_dataset_destroy(data->dataset);
    data->dataset = part;
    STRATA_TRY(tell_part(table, part, err));
    return strata_dataset_set_class_names(part, (const char *const *)data->schema.classes, data->schema.n_classes, err);
}

int open_table(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    open_csv table;
    int code = read_csv(sample, options, split, data, &table);
    if (!code) code = opened(take_numbers(&table, data, &err), &err);
    close_csv(&table);
    return code;
}

int open_regression(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    return options->path ? open_table(sample, options, split, data) : make_regression(!strcmp(split, "train"), data);
}

/* ---- text ---- */

/* Rows of tokens from documents, by the tokenizer that is there or a new one. */
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

/* The documents of one part of those that are all there are. */
static strata_status part_of_texts(const strata_texts *whole, bool train, strata_texts **out, strata_error *err) {
    if (strata_texts_size(whole) < FIFTH) return too_few_rows(strata_texts_size(whole), err);
    STRATA_TRY(strata_texts_create(whole->source, (const char *const *)whole->class_names, whole->n_classes, out, err));
    for (int64_t i = 0; i < strata_texts_size(whole); i++) {
        const char *text = strata_texts_get(whole, i);
        if (is_test_row(i) == train) continue;
        STRATA_TRY(strata_texts_add(*out, &text, 1, strata_texts_label(whole, i), whole->documents[i].line, err));
    }
    return STRATA_OK;
}

static strata_status take_texts(const open_csv *table, const data_options *options, sample_data *data, strata_error *err) {
    strata_texts *texts = NULL, *part = NULL;
    strata_status status = strata_texts_from_csv(table->csv, &table->columns.csv, &texts, err);
    if (!status && table->only) status = part_of_texts(texts, table->train, &part, err);
    if (!status) status = to_tokens(options, part ? part : texts, data, err);
    if (!status && part) status = tell_part(table, data->dataset, err);
    if (!status) status = learn_schema(table, data, err);
    strata_texts_destroy(part);
    strata_texts_destroy(texts);
    return status;
}

int open_text_table(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    open_csv table;
    int code = read_csv(sample, options, split, data, &table);
    if (!code) code = opened(take_texts(&table, options, data, &err), &err);
    close_csv(&table);
    return code;
}
