/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's own data: finds the kind of a path, and its parts for training and testing. */
#include "own.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "strata/dataset.h"
#include "strata/file.h"
#include "strata/formats.h"
#include "strata/preprocessing.h"

enum { LONGEST_PATH = 4096 };
static const double USUAL_TEST_SPLIT = 0.2;
static const size_t MOST_BYTES = STRATA_BYTES_LIMIT(36);

static bool is_folder(const char *path) {
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static bool exists(const char *path) {
    struct stat info;
    return !stat(path, &info);
}

bool is_table(const char *path) {
    static const char *const ends[] = {".csv",    ".csv.gz", ".csv.xz", ".tsv",     ".tsv.gz",
                                       ".tsv.xz", ".data",   ".txt",    ".parquet", ".zip"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, ends[i])) return true;
    return false;
}

bool is_own_data(const char *name) {
    if (!strcmp(name, "-") || is_table(name) || ends_with(name, ".npz") || ends_with(name, ".npy")) return true;
    if (find_sample(name)) return false;
    return exists(name) && !ends_with(name, ".json") && !ends_with(name, ".strata") && !ends_with(name, ".onnx") &&
           !ends_with(name, ".safetensors") && !ends_with(name, ".keras") && !ends_with(name, ".h5") && !foreign_model(name);
}

static int opened(strata_status status, const strata_error *err) {
    return status ? report(FAILING_DATA, status, err) : EXIT_OK;
}

/* ---- options ---- */

/* Ends the first name of a list at its comma, and returns the rest of the list; NULL: there is none. A comma after a backslash
 * belongs to the name; the backslash is removed. */
static char *end_name(char *name) {
    char *to = name;
    for (; *name && *name != ','; *to++ = *name++)
        if (name[0] == '\\' && name[1] == ',') name++;
    char *next = *name ? name + 1 : NULL;
    *to = 0;
    return next;
}

strata_status split_names(const char *list, column_list *out, strata_error *err) {
    out->n = 0;
    out->text = list ? strdup(list) : NULL;
    if (!list) return STRATA_OK;
    if (!out->text) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the names of columns");
    for (char *name = out->text, *next; name; name = next) {
        next = end_name(name);
        if (!*name) continue;
        if (out->n == MOST_COLUMNS) return strata_fail(err, STRATA_INVALID, "more than %d columns are named", MOST_COLUMNS);
        out->names[out->n++] = name;
    }
    return out->n ? STRATA_OK : strata_fail(err, STRATA_INVALID, "\"%s\" names no column", list);
}

/* Reads an option of one character, or one of these words, which stand for the characters of `meanings`. *out stays 0 if text
 * is NULL. */
static strata_status read_character(const char *option, const char *text, const char *const *words, const char *meanings,
                                    const char *example, char *out, strata_error *err) {
    if (!text) return STRATA_OK;
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i])) return *out = meanings[i], STRATA_OK;
    if (strlen(text) == 1 && *text != '\n') return *out = *text, STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "--%s \"%s\": it must be %s", option, text, example);
}

static strata_status read_choice(const char *option, const char *text, const char *const *words, int *out, strata_error *err) {
    if (!text) return STRATA_OK;
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i])) return *out = i + 1, STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "--%s \"%s\": it must be %s or %s%s%s", option, text, words[0], words[1],
                       words[2] ? " or " : "", words[2] ? words[2] : "");
}

strata_status read_dialect(const table_flags *flags, column_list *na, strata_csv_dialect *out, strata_error *err) {
    static const char *const separators[] = {"tab", "\\t", "space", "comma", "semicolon", NULL},
                             *const quotes[] = {"none", NULL}, *const no_words[] = {NULL},
                             *const thousands[] = {"none", "space", NULL}, *const answers[] = {"yes", "no", NULL},
                             *const orders[] = {"dmy", "mdy", "ymd", NULL};
    static const char none[] = {STRATA_CSV_NONE, ' '};
    int header = 0, order = 0;
    *out = (strata_csv_dialect){0};
    STRATA_TRY(read_character("separator", flags->separator, separators, "\t\t ,;",
                              "one character, such as ; or |, or the word tab or space", &out->separator, err));
    STRATA_TRY(read_character("quote", flags->quote, quotes, none, "one character, such as ', or none", &out->quote, err));
    STRATA_TRY(read_character("decimal", flags->decimal, no_words, "", ". or ,", &out->decimal, err));
    STRATA_TRY(read_character("thousands", flags->thousands, thousands, none, "one of , . ' space none", &out->thousands, err));
    STRATA_TRY(read_choice("header", flags->header, answers, &header, err));
    STRATA_TRY(read_choice("dates", flags->dates, orders, &order, err));
    out->header = (strata_csv_header)header;
    out->dates = (strata_date_order)order;
    if (!flags->na) return STRATA_OK;
    if (*flags->na) STRATA_TRY(split_names(flags->na, na, err));
    out->na = na->names;
    out->n_na = na->n;
    return STRATA_OK;
}

strata_status read_table(const char *path, const table_flags *flags, const strata_preprocessing *known, strata_csv **out_csv,
                         strata_error *err) {
    column_list na = {0};
    strata_csv_dialect dialect;
    strata_status status = read_dialect(flags, &na, &dialect, err);
    if (!status) status = strata_csv_read_table(path, &dialect, known, out_csv, err);
    free(na.text);
    return status;
}

static strata_status read_task(const char *text, strata_task *out, strata_error *err) {
    if (!text) return STRATA_OK;
    if (!strcmp(text, "classification"))
        *out = STRATA_TASK_CLASSIFICATION;
    else if (!strcmp(text, "regression"))
        *out = STRATA_TASK_REGRESSION;
    else
        return strata_fail(err, STRATA_INVALID, "--learn %s: it must be classification or regression", text);
    return STRATA_OK;
}

/* Makes the options of a preprocessing from those of the command. They borrow both lists, whose text the caller frees. */
static strata_status read_options_of(const sample *sample, const data_options *options, const sample_data *data,
                                     column_list *labels, column_list *features, strata_preprocessing_options *out,
                                     strata_error *err) {
    STRATA_TRY(split_names(options->label ? options->label : sample->label, labels, err));
    STRATA_TRY(split_names(options->columns ? options->columns : sample->columns, features, err));
    *out = (strata_preprocessing_options){.labels = labels->names,
                                          .n_labels = labels->n,
                                          .features = features->names,
                                          .n_features = features->n,
                                          .weight = options->weight,
                                          .task = data->task,
                                          .texts = data->vocabulary > 0 && !data->text_beside_numbers,
                                          .length = data->vocabulary > 0 ? data->length : 0,
                                          .vocabulary = data->vocabulary,
                                          .subwords = options->subwords,
                                          .rows = options->size,
                                          .columns = options->size,
                                          .channels = 0};
    if (data->picture.rank == 3) {
        out->rows = data->picture.dims[0];
        out->columns = data->picture.dims[1];
        out->channels = (int)data->picture.dims[2];
    }
    return read_task(options->task, &out->task, err);
}

double test_fraction(const data_options *options) {
    return options->no_test ? 0 : options->test_split > 0 ? options->test_split : USUAL_TEST_SPLIT;
}

typedef enum data_kind { DATA_TABLE, DATA_ARRAY, DATA_ARCHIVE, DATA_PICTURES } data_kind;

/* Fails if an option says how to read another kind of data than these. */
static strata_status check_options(const data_options *o, data_kind kind, const char *path, strata_error *err) {
    static const char *const kinds[] = {"a table", "an array", "an archive of arrays", "pictures"};
    const struct {
        const char *name;
        bool given;
        data_kind kind;
    } options[] = {{"label", o->label, DATA_TABLE},
                   {"columns", o->columns, DATA_TABLE},
                   {"weight-column", o->weight, DATA_TABLE},
                   {"header", o->table.header, DATA_TABLE},
                   {"separator", o->table.separator, DATA_TABLE},
                   {"quote", o->table.quote, DATA_TABLE},
                   {"decimal", o->table.decimal, DATA_TABLE},
                   {"thousands", o->table.thousands, DATA_TABLE},
                   {"dates", o->table.dates, DATA_TABLE},
                   {"na", o->table.na, DATA_TABLE},
                   {"labels", o->labels, DATA_ARRAY},
                   {"size", o->size, DATA_PICTURES}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && options[i].kind != kind)
            return strata_fail(err, STRATA_INVALID, "--%s is for %s, and %s is %s%s", options[i].name, kinds[options[i].kind],
                               path, kinds[kind],
                               kind == DATA_PICTURES && options[i].kind == DATA_TABLE ? ", whose folders are the classes" : "");
    return STRATA_OK;
}

/* ---- reports ---- */

unknown_words describe_unknown(const strata_preprocessing_report *r) {
    unknown_words words;
    if (!*r->word)
        snprintf(words.text, sizeof words.text,
                 "%lld cell%s a value that the training data did not have (column \"%s\" is empty%s); it counts as none of the "
                 "known ones",
                 (long long)r->n_unknown, r->n_unknown == 1 ? " has" : "s have", r->column, r->n_unknown == 1 ? "" : ", ...");
    else
        snprintf(words.text, sizeof words.text,
                 "%lld cell%s a word that the training data did not have (\"%s\" in column \"%s\"%s); it counts as none of the "
                 "known "
                 "ones",
                 (long long)r->n_unknown, r->n_unknown == 1 ? " has" : "s have", r->word, r->column,
                 r->n_unknown == 1 ? "" : ", ...");
    for (char *c = words.text; *c; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
    return words;
}

void print_report(const strata_preprocessing_report *r) {
    if (r->n_unlabelled)
        fprintf(stderr, "strata: %lld row%s without a label %s left out\n", (long long)r->n_unlabelled,
                r->n_unlabelled == 1 ? "" : "s", r->n_unlabelled == 1 ? "is" : "are");
    if (r->n_unknown) fprintf(stderr, "strata: %s\n", describe_unknown(r).text);
    if (r->decimal)
        fprintf(stderr, "strata: the numbers are read with a decimal %s, although the training data had a decimal %s\n",
                r->decimal == ',' ? "comma" : "point", r->decimal == ',' ? "point" : "comma");
    if (r->left_out[0]) fprintf(stderr, "strata: %s\n", r->left_out);
}

void print_own(FILE *to, const data_options *options, const sample_data *data, const strata_dataset *train,
               const strata_dataset *test) {
    const strata_preprocessing *p = data->preprocessing;
    const char *found = strata_preprocessing_found(p), *more = strchr(found, '\n');
    const int length = more ? (int)(more - found) : (int)strlen(found);
    fprintf(to, "%.*s%s%lld train / %lld test", length, found, length ? "; " : "", (long long)strata_dataset_size(train),
            (long long)strata_dataset_size(test));
    if (data->split)
        fprintf(to, ", shuffled%s, seed %lld", strata_preprocessing_n_classes(p) ? " and stratified" : "",
                (long long)options->seed);
    if (more) fputs(more, to);
}

/* ---- tables ---- */

strata_status split_dataset(const data_options *options, strata_dataset *whole, sample_data *data, strata_error *err) {
    const strata_split_options opts = {.seed = (uint64_t)options->seed};
    data->split = true;
    data->dataset = NULL;
    strata_status status = strata_dataset_split(whole, test_fraction(options), &opts, &data->dataset, &data->rest, err);
    strata_dataset_destroy(whole);
    return status;
}

/* Makes data->dataset of a dataset, which it takes. parts: some examples are kept for testing. */
static strata_status keep_part(const data_options *options, strata_dataset *whole, bool parts, sample_data *data,
                               strata_error *err) {
    if (parts && test_fraction(options) > 0) return split_dataset(options, whole, data, err);
    data->dataset = whole;
    return STRATA_OK;
}

/* Reports how many of the n rows are in neither part, since they have no label. */
static void print_unlabelled(int64_t n, const sample_data *data) {
    const int64_t used = strata_dataset_size(data->dataset) + (data->rest ? strata_dataset_size(data->rest) : 0);
    print_report(&(strata_preprocessing_report){.n_unlabelled = n - used});
}

/* Makes the datasets of a table for training. Its preprocessing is made from the table, unless the model has one. parts: some
 * rows are kept for testing. */
static strata_status open_training_table(const sample *sample, const data_options *options, const strata_csv *csv, bool parts,
                                         sample_data *data, strata_error *err) {
    column_list labels = {0}, features = {0};
    strata_preprocessing_options opts;
    strata_dataset *whole = NULL;
    strata_preprocessing_report report;
    strata_status status = STRATA_OK;
    if (data->preprocessing) {
        STRATA_TRY(
            strata_preprocessing_apply_csv(data->preprocessing, csv, &(strata_apply_options){.report = &report}, &whole, err));
        print_report(&report);
        return keep_part(options, whole, parts, data, err);
    }
    STRATA_TRY_GOTO(read_options_of(sample, options, data, &labels, &features, &opts, err));
    STRATA_TRY_GOTO(strata_preprocessing_from_csv(csv, &opts, &data->preprocessing, err));
    STRATA_TRY_GOTO(strata_preprocessing_split_csv(data->preprocessing, csv, parts ? test_fraction(options) : 0,
                                                   (uint64_t)options->seed, &data->dataset, &data->rest, err));
    data->split = data->rest != NULL;
    print_unlabelled(strata_csv_n_rows(csv), data);
    STRATA_TRY_GOTO(strata_dataset_set_source(data->dataset, strata_csv_name(csv), err));
cleanup:
    free(labels.text);
    free(features.text);
    return status;
}

/* ---- data for a model without preprocessing, as they are ---- */

typedef struct array_pair {
    strata_array x, y;
    /* The numbers in double, of which those of x and y are rounded; NULL: they are not. */
    double *exact_x, *exact_y;
} array_pair;

static strata_examples examples_of(const array_pair *pair) {
    return (strata_examples){.x = &pair->x,
                             .y = pair->y.data ? &pair->y : NULL,
                             .exact_x = pair->exact_x,
                             .exact_y = pair->exact_y,
                             .name = "arrays"};
}

static void finish_pair(array_pair *pair) {
    strata_array_finish(&pair->x);
    strata_array_finish(&pair->y);
    free(pair->exact_x);
    free(pair->exact_y);
}

/* Converts an array to the type and the shape of the model's input: (n, ...), one example, or rows of as many numbers as an
 * example has. u8 are pixels, which are divided by 255. */
static strata_status fit_to_input(const strata_model *model, const char *name, strata_array *x, strata_error *err) {
    const strata_shape element = strata_model_input_shape(model);
    const int64_t size = strata_shape_elements(element), all = strata_shape_elements(x->shape);
    const strata_shape given = x->shape;
    strata_shape shape = {.rank = element.rank + 1, .dims = {all / size}};
    memcpy(shape.dims + 1, element.dims, (size_t)element.rank * sizeof(int64_t));
    if (all < 1 || all % size || (!strata_shape_equal(given, element) && given.dims[0] != all / size))
        return strata_fail(err, STRATA_DATA, "%s: the features are %s; the model takes %s, or (n, ...) of them", name,
                           strata_shape_text(given).text, strata_shape_text(element).text);
    const bool tokens = strata_model_input_dtype(model) == STRATA_DTYPE_I32;
    if (tokens || x->dtype == STRATA_DTYPE_U8 || x->dtype == STRATA_DTYPE_F32) {
        x->shape = shape;
        return STRATA_OK;
    }
    strata_array numbers;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, shape, &numbers, err));
    for (int64_t i = 0; i < all; i++)
        strata_element_set(STRATA_DTYPE_F32, numbers.data, i, strata_element_get(x->dtype, x->data, i));
    strata_array_finish(x);
    *x = numbers;
    return STRATA_OK;
}

/* Labels that are whole numbers are classes if the model has several outputs and an example one label; others are f32. */
static strata_status fit_to_output(const strata_model *model, strata_array *y, strata_error *err) {
    const int64_t n = strata_shape_elements(y->shape);
    const bool several = strata_shape_elements(strata_model_output_port(model, 0).shape) > 1;
    bool classes = several && y->shape.rank == 1;
    const bool floats = y->dtype == STRATA_DTYPE_F32 || y->dtype == STRATA_DTYPE_F64 || y->dtype == STRATA_DTYPE_F16;
    for (int64_t i = 0; i < n && classes; i++) {
        const double label = strata_element_get(y->dtype, y->data, i);
        classes = label >= 0 && label < INT32_MAX && label == (double)(int64_t)label;
    }
    if (!floats || (y->dtype == STRATA_DTYPE_F32 && !classes)) return STRATA_OK;
    strata_array labels;
    STRATA_TRY(strata_array_create(classes ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32, y->shape, &labels, err));
    for (int64_t i = 0; i < n; i++) strata_element_set(labels.dtype, labels.data, i, strata_element_get(y->dtype, y->data, i));
    strata_array_finish(y);
    *y = labels;
    return STRATA_OK;
}

/* labels without data: the dataset has none. */
static strata_status plain_arrays(const strata_model *model, const char *name, array_pair *pair, strata_dataset **out,
                                  strata_error *err) {
    const bool labelled = pair->y.data != NULL;
    STRATA_TRY(fit_to_input(model, name, &pair->x, err));
    if (labelled) STRATA_TRY(fit_to_output(model, &pair->y, err));
    const double scale = pair->x.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0;
    STRATA_TRY(strata_dataset_take_arrays(&pair->x, labelled ? &pair->y : NULL, scale, out, err));
    return strata_dataset_set_source(*out, name, err);
}

/* The columns are used in their order, or in that of --columns. If the model has a tokenizer, they are texts. */
static strata_status plain_table(const data_options *options, const sample_data *data, const strata_csv *csv, bool labelled,
                                 strata_dataset **out, strata_error *err) {
    column_list labels = {0}, features = {0};
    strata_texts *texts = NULL;
    strata_status status = split_names(labelled ? options->label : NULL, &labels, err);
    if (!status) status = split_names(options->columns, &features, err);
    strata_csv_options opts = {.features = features.n ? features.names : NULL, .n_features = features.n};
    if (labelled) {
        opts.weight = options->weight;
        opts.label = labels.n ? labels.names[0] : strata_csv_column(csv, strata_csv_n_columns(csv) - 1);
        if (labels.n > 1) opts.label = NULL, opts.labels = labels.names, opts.n_labels = labels.n;
    }
    if (!status && data->tokenizer) {
        status = strata_texts_from_csv(csv, &opts, &texts, err);
        if (!status) status = strata_dataset_from_texts(texts, data->tokenizer, data->length, out, err);
    } else if (!status) {
        status = strata_dataset_from_csv(csv, &opts, out, err);
    }
    strata_texts_destroy(texts);
    free(labels.text);
    free(features.text);
    return status;
}

static strata_status apply_table(const strata_csv *csv, sample_data *data, strata_error *err) {
    strata_preprocessing_report report;
    STRATA_TRY(strata_preprocessing_apply_csv(data->preprocessing, csv, &(strata_apply_options){.report = &report},
                                              &data->dataset, err));
    print_report(&report);
    return STRATA_OK;
}

/* Finds the table for training or testing in a folder: a plain or compressed file with one of the sample's names, or with the
 * name train or test. */
static bool find_table(const sample *sample, const char *path, const char *split, char out_path[LONGEST_PATH]) {
    static const char *const ends[] = {".csv", ".csv.gz", ".csv.xz", ".tsv", ".parquet"}, *const usual[2][TABLE_STEMS] = {
                                                                                              {"train"}, {"test"}};
    const int part = strcmp(split, "train") ? 1 : 0;
    const char *const *stems = sample->tables[part][0] ? sample->tables[part] : usual[part];
    for (int i = 0; i < TABLE_STEMS && stems[i]; i++)
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            if (snprintf(out_path, LONGEST_PATH, "%s/%s%s", path, stems[i], ends[k]) >= LONGEST_PATH) continue;
            if (exists(out_path)) return true;
        }
    return false;
}

static bool find_folder(const char *path, const char *const *names, char out[LONGEST_PATH]) {
    for (; *names; names++)
        if (snprintf(out, LONGEST_PATH, "%s/%s", path, *names) < LONGEST_PATH && is_folder(out)) return true;
    return false;
}

bool has_table(const sample *sample, const char *path) {
    char found[LONGEST_PATH];
    return is_table(path) || find_table(sample, path, "train", found) || find_table(sample, path, "test", found);
}

/* Opens a table. parts: there is no other file, so some rows of this one are kept for testing. */
static strata_status open_csv(const sample *sample, const data_options *options, const char *path, bool train, bool parts,
                              sample_data *data, strata_error *err) {
    strata_csv *csv = NULL;
    STRATA_TRY(check_options(options, DATA_TABLE, path, err));
    STRATA_TRY(read_table(path, &options->table, data->preprocessing, &csv, err));
    strata_status status = STRATA_OK;
    if (data->as_they_are) {
        strata_dataset *whole = NULL;
        status = plain_table(options, data, csv, true, &whole, err);
        if (!status) status = keep_part(options, whole, train && parts, data, err);
    } else if (train || !data->preprocessing) {
        status = open_training_table(sample, options, csv, parts, data, err);
    } else {
        status = apply_table(csv, data, err);
    }
    strata_csv_destroy(csv);
    return status;
}

/* ---- arrays ---- */

/* The names of the features and of the labels in archives, one pair in each row. */
static const char *const array_names[][2] = {
    {"x", "y"},         {"X", "y"},           {"X", "Y"},           {"features", "labels"},
    {"data", "target"}, {"data", "labels"},   {"images", "labels"}, {"inputs", "targets"},
    {"x", "label"},     {"features", "label"}};
enum { N_PAIRS = sizeof array_names / sizeof *array_names, MOST_ENTRIES = 64, NAME_BYTES = 64 };

typedef struct entries {
    char names[MOST_ENTRIES][NAME_BYTES];
    int n;
} entries;

static void add_entry(const strata_npz_entry *entry, void *user) {
    entries *list = user;
    if (list->n < MOST_ENTRIES) snprintf(list->names[list->n++], NAME_BYTES, "%.60s", entry->name);
}

static bool has_entry(const entries *list, const char *name) {
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->names[i], name)) return true;
    return false;
}

/* The ends of names of arrays for each use of a part, the preferred ones first. Where nothing is for testing, the part for
 * validation is. */
enum { N_SUFFIXES = 4 };
static const char *const train_suffixes[N_SUFFIXES] = {"_train"},
                         *const test_suffixes[N_SUFFIXES] = {"_test", "_val", "_valid", "_validation"},
                         *const validation_suffixes[N_SUFFIXES] = {"_val", "_valid", "_validation", "_test"};

/* Whether the archive has features and labels with one of these suffixes. *out_pair is their row of array_names, and `out`
 * their names. */
static bool find_pair(const entries *list, const char *const *suffixes, int *out_pair, char out[2][NAME_BYTES]) {
    for (int s = 0; s < N_SUFFIXES && suffixes[s]; s++)
        for (int i = 0; i < N_PAIRS; i++) {
            for (int k = 0; k < 2; k++) snprintf(out[k], NAME_BYTES, "%.30s%s", array_names[i][k], suffixes[s]);
            *out_pair = i;
            if (has_entry(list, out[0]) && has_entry(list, out[1])) return true;
        }
    return false;
}

/* Whether features or labels of this row of array_names have this name, in any part of the archive. */
static bool is_of_pair(const char *name, int pair) {
    for (int k = 0; k < 2; k++) {
        const size_t n = strlen(array_names[pair][k]);
        if (strncmp(name, array_names[pair][k], n)) continue;
        if (!name[n] || !strcmp(name + n, train_suffixes[0])) return true;
        for (int s = 0; s < N_SUFFIXES; s++)
            if (!strcmp(name + n, test_suffixes[s])) return true;
    }
    return false;
}

static void print_unused(const char *path, const entries *list, int pair) {
    char names[512] = "";
    size_t n = 0;
    for (int i = 0; i < list->n && n < sizeof names - 80; i++)
        if (!is_of_pair(list->names[i], pair))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", list->names[i]);
    if (n) fprintf(stderr, "strata: %s: these of its arrays are not used: %s\n", path, names);
}

static strata_status unknown_arrays(const char *path, const entries *list, strata_error *err) {
    char names[512] = "";
    size_t n = 0;
    for (int i = 0; i < list->n && n < sizeof names - 80; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", list->names[i]);
    return strata_fail(err, STRATA_DATA,
                       "%s: its arrays are %s; name the features x (or x_train and x_test) and the labels y (or y_train and "
                       "y_test), or give two .npy files: data.npy --labels y.npy",
                       path, list->n ? names : "none");
}

/* If the file is not called .npz, its first member must be called .npy, since a zip archive may also contain a table. Its
 * local header has the length of the name at offset 26, and the name at 30. */
bool is_npz(const char *path) {
    enum { LENGTH_AT = 26, NAME_AT = 30, LONGEST_NAME = 256 };
    unsigned char head[NAME_AT + LONGEST_NAME] = {0};
    size_t n = 0;
    if (strata_stream_peek_file(path, head, sizeof head, &n, NULL) || n < 4 || memcmp(head, "PK\3\4", 4)) return false;
    if (ends_with(path, ".npz")) return true;
    const size_t length = head[LENGTH_AT] + 256u * head[LENGTH_AT + 1];
    return length > LONGEST_NAME || NAME_AT + length > n || length < 4 || !memcmp(head + NAME_AT + length - 4, ".npy", 4);
}

static strata_status list_npz(const char *path, const unsigned char *bytes, size_t n, entries *out, strata_error *err) {
    out->n = 0;
    return strata_npz_list(path, bytes, n, add_entry, out, err);
}

/* *out_parts: the archive has separate arrays for training and testing. */
static strata_status read_npz(const char *path, const char *const *suffixes, bool labelled, array_pair *out, bool *out_parts,
                              strata_error *err) {
    static const char *const whole[N_SUFFIXES] = {""};
    unsigned char *bytes = NULL;
    size_t n = 0;
    entries list = {.n = 0};
    char names[2][NAME_BYTES] = {"", ""};
    int pair = 0;
    STRATA_TRY(strata_file_read(path, MOST_BYTES, &bytes, &n, err));
    strata_status status = list_npz(path, bytes, n, &list, err);
    *out_parts = !status && find_pair(&list, suffixes, &pair, names);
    if (!status && (*out_parts || find_pair(&list, whole, &pair, names))) {
        if (labelled && suffixes == train_suffixes) print_unused(path, &list, pair);
    } else if (!status) {
        names[0][0] = names[1][0] = 0;
        if (!labelled && list.n == 1)
            snprintf(names[0], NAME_BYTES, "%s", list.names[0]);
        else if (!labelled && has_entry(&list, "x"))
            snprintf(names[0], NAME_BYTES, "x");
        else
            status = unknown_arrays(path, &list, err);
    }
    if (!status) status = strata_npz_parse_exact(path, bytes, n, names[0], &out->x, &out->exact_x, err);
    if (!status && labelled) status = strata_npz_parse_exact(path, bytes, n, names[1], &out->y, &out->exact_y, err);
    free(bytes);
    return status;
}

/* Pictures (n, rows, columns) become (n, rows, columns, 1) for a preprocessing. */
static void add_channel(strata_shape *x) {
    if (x->rank == 3) x->dims[x->rank++] = 1;
}

static strata_status read_arrays(const data_options *options, const char *path, const char *const *suffixes, bool labelled,
                                 array_pair *out, bool *out_parts, strata_error *err) {
    strata_status status;
    const bool archive = is_npz(path);
    *out_parts = false;
    STRATA_TRY(check_options(options, archive ? DATA_ARCHIVE : DATA_ARRAY, path, err));
    if (archive) {
        status = read_npz(path, suffixes, labelled, out, out_parts, err);
    } else {
        if (labelled && !options->labels)
            return strata_fail(err, STRATA_INVALID, "%s: has only features; give their labels with --labels y.npy", path);
        status = strata_npy_read_exact(path, &out->x, &out->exact_x, err);
        if (!status && labelled) status = strata_npy_read_exact(options->labels, &out->y, &out->exact_y, err);
    }
    strata_shape *y = &out->y.shape;
    if (!status && out->y.data && y->rank == 2 && y->dims[1] == 1) y->rank = 1;
    return status;
}

static strata_status open_training_arrays(const sample *sample, const data_options *options, array_pair *pair, bool parts,
                                          sample_data *data, strata_error *err) {
    add_channel(&pair->x.shape);
    column_list labels = {0}, features = {0};
    strata_preprocessing_options opts;
    const strata_examples examples = examples_of(pair);
    strata_dataset *whole = NULL;
    strata_status status = STRATA_OK;
    if (data->preprocessing) {
        STRATA_TRY(strata_preprocessing_apply_examples(data->preprocessing, &examples, &whole, err));
        return keep_part(options, whole, parts, data, err);
    }
    STRATA_TRY_GOTO(read_options_of(sample, options, data, &labels, &features, &opts, err));
    STRATA_TRY_GOTO(strata_preprocessing_from_examples(&examples, &opts, &data->preprocessing, err));
    STRATA_TRY_GOTO(strata_preprocessing_split_examples(data->preprocessing, &examples, parts ? test_fraction(options) : 0,
                                                        (uint64_t)options->seed, &data->dataset, &data->rest, err));
    data->split = data->rest != NULL;
    print_unlabelled(pair->x.shape.dims[0], data);
cleanup:
    free(labels.text);
    free(features.text);
    return status;
}

static strata_status apply_arrays(const strata_preprocessing *p, array_pair *pair, strata_dataset **out, strata_error *err) {
    add_channel(&pair->x.shape);
    const strata_examples examples = examples_of(pair);
    return strata_preprocessing_apply_examples(p, &examples, out, err);
}

static strata_status open_arrays(const sample *sample, const data_options *options, const char *split, sample_data *data,
                                 strata_error *err) {
    array_pair pair = {0};
    bool apart = false;
    const bool train = !strcmp(split, "train");
    const char *const *suffixes = train ? train_suffixes : data->for_validation ? validation_suffixes : test_suffixes;
    strata_status status = read_arrays(options, options->path, suffixes, true, &pair, &apart, err);
    if (!status && data->as_they_are) {
        strata_dataset *whole = NULL;
        status = plain_arrays(data->model, options->path, &pair, &whole, err);
        if (!status) status = keep_part(options, whole, train && !apart, data, err);
    } else if (!status) {
        status = train || !data->preprocessing ? open_training_arrays(sample, options, &pair, train && !apart, data, err)
                                               : apply_arrays(data->preprocessing, &pair, &data->dataset, err);
        if (status) strata_fail_in(err, status, "%s", options->path);
    }
    finish_pair(&pair);
    return status;
}

/* ---- pictures ---- */

/* Finds the folder of this part, if the folder has both train/ and test/. */
static bool find_part(const char *path, const char *split, char out[LONGEST_PATH]) {
    static const char *const train[] = {"train", "training", NULL}, *const test[] = {"test", "val", "valid", "validation",
                                                                                     NULL};
    const bool is_train = !strcmp(split, "train");
    char other[LONGEST_PATH];
    return find_folder(path, is_train ? train : test, out) && find_folder(path, is_train ? test : train, other);
}

static bool has_pictures(const char *path) {
    bool found = false;
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && !found; entry = readdir(folder))
        found = strata_picture_is_named(entry->d_name);
    if (folder) closedir(folder);
    return found;
}

static strata_status open_pictures(const sample *sample, const data_options *options, const char *split, sample_data *data,
                                   strata_error *err) {
    char part[LONGEST_PATH], other[LONGEST_PATH + 8];
    column_list labels = {0}, features = {0};
    strata_preprocessing_options opts;
    const bool train = !strcmp(split, "train"), apart = find_part(options->path, split, part);
    const char *path = apart ? part : options->path;
    strata_dataset *whole = NULL;
    strata_preprocessing_report report = {0};
    const bool known = data->preprocessing;
    STRATA_TRY(check_options(options, DATA_PICTURES, path, err));
    snprintf(other, sizeof other, "%s/%s", path, split);
    if (!apart && is_folder(other) && !has_pictures(other))
        return strata_fail(
            err, STRATA_DATA,
            "%s: has a folder %s, and none that is called %s; rename the folder of the other part, or train on %s, of which "
            "some pictures are then kept for testing",
            path, split, train ? "test" : "train", other);
    if (!data->preprocessing) {
        STRATA_TRY(read_options_of(sample, options, data, &labels, &features, &opts, err));
        STRATA_TRY(strata_preprocessing_from_pictures(path, &opts, &data->preprocessing, err));
    }
    STRATA_TRY(strata_preprocessing_apply_pictures(data->preprocessing, path, &(strata_apply_options){.report = &report},
                                                   &whole, err));
    if (known) print_report(&report); /* otherwise the description of the data contains it */
    return keep_part(options, whole, train && !apart, data, err);
}

/* ---- validation data beside those for training ---- */

/* Whether the file is an archive with arrays for training, testing and validation. */
static bool has_validation_arrays(const char *path) {
    static const char *const test[N_SUFFIXES] = {"_test"}, *const validation[N_SUFFIXES] = {"_val", "_valid", "_validation"};
    unsigned char *bytes = NULL;
    size_t n = 0;
    entries list = {.n = 0};
    char names[2][NAME_BYTES];
    int pair;
    if (!strcmp(path, "-") || !is_npz(path) || strata_file_read(path, MOST_BYTES, &bytes, &n, NULL)) return false;
    const bool listed = !list_npz(path, bytes, n, &list, NULL);
    free(bytes);
    return listed && find_pair(&list, train_suffixes, &pair, names) && find_pair(&list, test, &pair, names) &&
           find_pair(&list, validation, &pair, names);
}

char *find_validation(const char *path) {
    static const sample beside = {.tables = {{NULL}, {"val", "validation", "valid"}}};
    static const char *const train[] = {"train", "training", NULL}, *const test[] = {"test", NULL},
                             *const validation[] = {"val", "valid", "validation", NULL};
    char found[LONGEST_PATH], other[LONGEST_PATH];
    if (!is_folder(path)) return has_validation_arrays(path) ? strdup(path) : NULL;
    if (find_table(own_sample(), path, "train", other)) return find_table(&beside, path, "test", found) ? strdup(found) : NULL;
    const bool three =
        find_folder(path, train, other) && find_folder(path, test, other) && find_folder(path, validation, found);
    return three ? strdup(found) : NULL;
}

/* ---- data of any kind ---- */

static bool is_npy(const char *path) {
    unsigned char head[6] = {0};
    size_t n = 0;
    return !strata_stream_peek_file(path, head, sizeof head, &n, NULL) && n == 6 && !memcmp(head, "\x93NUMPY", 6);
}

static strata_status no_table_in(const sample *sample, const char *path, const char *split, strata_error *err) {
    const char *const *stems = sample->tables[strcmp(split, "train") ? 1 : 0];
    return strata_fail(err, STRATA_DATA, "%s: has no %s.csv, .csv.gz, .csv.xz, .tsv or .parquet", path,
                       stems[0] ? stems[0] : split);
}

int open_own(const sample *sample, const data_options *options, const char *split, sample_data *data) {
    strata_error err = {0};
    char table[LONGEST_PATH], other[LONGEST_PATH];
    const bool train = !strcmp(split, "train"), input = !strcmp(options->path, "-");
    if (!train && data->rest) {
        data->dataset = data->rest;
        data->rest = NULL;
        return EXIT_OK;
    }
    if (!train && options->no_test) return EXIT_OK;
    if (!input && (is_npz(options->path) || is_npy(options->path)))
        return opened(open_arrays(sample, options, split, data, &err), &err);
    if (!is_folder(options->path))
        return opened(open_csv(sample, options, options->path, train, train && !data->whole, data, &err), &err);
    if (find_table(sample, options->path, split, table)) {
        const bool alone = !find_table(sample, options->path, "test", other);
        return opened(open_csv(sample, options, table, train, train && alone, data, &err), &err);
    }
    if (sample->tables[0][0] || has_table(sample, options->path))
        return opened(no_table_in(sample, options->path, split, &err), &err);
    return opened(open_pictures(sample, options, split, data, &err), &err);
}

strata_status parse_row(const char *row, const table_flags *flags, const strata_preprocessing *known, strata_csv **out_csv,
                        strata_error *err) {
    column_list na = {0};
    strata_csv_dialect dialect;
    strata_status status = read_dialect(flags, &na, &dialect, err);
    dialect.header = STRATA_CSV_HEADER_NO;
    if (!status) status = strata_csv_parse_table("--row", row, strlen(row), &dialect, known, out_csv, err);
    free(na.text);
    return status;
}

static strata_status read_unlabelled_csv(const strata_preprocessing *p, const data_options *options, strata_dataset **out,
                                         strata_error *err) {
    strata_csv *csv = NULL;
    column_list columns = {0};
    strata_preprocessing_report report;
    strata_status status = split_names(options->columns, &columns, err);
    if (!status)
        status = options->row ? parse_row(options->row, &options->table, p, &csv, err)
                              : read_table(options->path, &options->table, options->columns ? NULL : p, &csv, err);
    const strata_apply_options opts = {.columns = columns.names, .n_columns = columns.n, .unlabelled = true, .report = &report};
    if (!status) status = strata_preprocessing_apply_csv(p, csv, &opts, out, err);
    if (!status) print_report(&report);
    strata_csv_destroy(csv);
    free(columns.text);
    return status;
}

static strata_status read_unlabelled_arrays(const strata_preprocessing *p, const data_options *options, strata_dataset **out,
                                            strata_error *err) {
    array_pair pair = {0};
    bool apart;
    strata_status status = read_arrays(options, options->path, test_suffixes, false, &pair, &apart, err);
    if (!status) {
        status = apply_arrays(p, &pair, out, err);
        if (status) strata_fail_in(err, status, "%s", options->path);
    }
    finish_pair(&pair);
    return status;
}

static bool is_picture(const char *path) {
    unsigned char head[16] = {0};
    size_t n = 0;
    return !strata_stream_peek_file(path, head, sizeof head, &n, NULL) && strata_picture_matches(head, n);
}

strata_status open_as_they_are(const strata_model *model, const data_options *options, strata_dataset **out,
                               strata_error *err) {
    const char *path = options->path;
    const sample_data data = {.model = model};
    if (path && strcmp(path, "-") && (is_npz(path) || is_npy(path))) {
        array_pair pair = {0};
        bool apart;
        strata_status status = read_arrays(options, path, test_suffixes, false, &pair, &apart, err);
        if (!status) status = plain_arrays(model, path, &pair, out, err);
        finish_pair(&pair);
        return status;
    }
    strata_csv *csv = NULL;
    strata_status status = options->row ? parse_row(options->row, &options->table, NULL, &csv, err)
                                        : read_table(path, &options->table, NULL, &csv, err);
    if (!status) status = plain_table(options, &data, csv, false, out, err);
    strata_csv_destroy(csv);
    return status;
}

int open_unlabelled(const strata_preprocessing *p, const data_options *options, strata_dataset **out) {
    strata_error err = {0};
    const char *path = options->path;
    const bool file = path && strcmp(path, "-");
    if (file && exists(path) && access(path, R_OK)) return opened(strata_file_fail(&err, errno, path, "open"), &err);
    if (file && (is_npz(path) || is_npy(path))) return opened(read_unlabelled_arrays(p, options, out, &err), &err);
    if (file && (is_folder(path) || is_picture(path))) {
        strata_preprocessing_report report = {0};
        const strata_apply_options opts = {.unlabelled = true, .report = &report};
        strata_status status = check_options(options, DATA_PICTURES, path, &err);
        if (!status) status = strata_preprocessing_apply_pictures(p, path, &opts, out, &err);
        if (!status) print_report(&report);
        return opened(status, &err);
    }
    if (file && strata_preprocessing_get_kind(p) == STRATA_PREPROCESSING_PICTURES && exists(path)) {
        usage_error("%s: is not a picture (" STRATA_PICTURE_FORMATS "), but the model was trained on pictures", path);
        return EXIT_DATA;
    }
    return opened(read_unlabelled_csv(p, options, out, &err), &err);
}
