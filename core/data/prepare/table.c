/* SPDX-License-Identifier: Apache-2.0
 *
 * Converting the rows of tables and arrays to datasets, as a preprocessing describes. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/prepare/cell.h"
#include "core/data/prepare/preprocessing.h"
#include "core/data/text/texts.h"

static strata_status no_memory(const strata_examples *examples, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", examples->name);
}

static int64_t count_rows(const strata_examples *examples) {
    return examples->csv ? strata_csv_n_rows(examples->csv) : examples->x->shape.dims[0];
}

/* ---- finding columns ---- */

static strata_status find_indices(const strata_preprocessing *p, const strata_examples *examples,
                                  const strata_apply_options *opts, int **out_indices, strata_error *err) {
    *out_indices = calloc((size_t)p->n_columns + 1, sizeof **out_indices);
    if (!*out_indices) return no_memory(examples, err);
    if (!examples->csv) return STRATA_OK;
    if (opts->n_columns && opts->n_columns != p->n_columns)
        return strata_fail(err, STRATA_INVALID, "csv: %d column%s named; the model takes %d", opts->n_columns,
                           opts->n_columns == 1 ? " is" : "s are", p->n_columns);
    for (int i = 0; i < p->n_columns; i++)
        STRATA_TRY(
            strata_csv_find(examples->csv, opts->n_columns ? opts->columns[i] : p->columns[i].name, &(*out_indices)[i], err));
    return STRATA_OK;
}

static strata_status find_label_indices(const strata_preprocessing *p, const strata_examples *examples, int **out_indices,
                                        strata_error *err) {
    *out_indices = calloc((size_t)p->n_labels + 1, sizeof **out_indices);
    if (!*out_indices) return no_memory(examples, err);
    for (int i = 0; i < p->n_labels && examples->csv; i++)
        STRATA_TRY(strata_csv_find(examples->csv, p->labels[i].name, &(*out_indices)[i], err));
    return STRATA_OK;
}

/* Finds how the numbers of the table are written, from its columns of numbers that the preprocessing uses. */
static strata_status find_reading(const strata_preprocessing *p, const strata_apply_options *opts, strata_examples *examples,
                                  strata_error *err) {
    int *features = NULL, *labels = NULL, *used = NULL, n = 0, weight = 0;
    strata_status status = find_indices(p, examples, opts, &features, err);
    if (!status && !opts->unlabelled) status = find_label_indices(p, examples, &labels, err);
    if (!status && !opts->unlabelled && p->weight) status = strata_csv_find(examples->csv, p->weight, &weight, err);
    used = calloc((size_t)(p->n_columns + p->n_labels + 1), sizeof *used);
    if (!status && !used) status = no_memory(examples, err);
    for (int i = 0; i < p->n_columns && !status; i++)
        if (p->columns[i].kind == STRATA_COLUMN_NUMBER) used[n++] = features[i];
    for (int i = 0; i < p->n_labels && !status && labels; i++)
        if (p->labels[i].kind == STRATA_COLUMN_NUMBER || p->labels[i].numeric) used[n++] = labels[i];
    if (!status && !opts->unlabelled && p->weight) used[n++] = weight;
    if (!status) status = strata_reading_of_later(p, examples->csv, used, n, &examples->reading, err);
    free(features);
    free(labels);
    free(used);
    return status;
}

/* ---- labels ---- */

/* Element i of the features or labels of arrays. */
static double feature_at(const strata_examples *examples, int64_t i) {
    return examples->exact_x ? examples->exact_x[i] : strata_element_get(examples->x->dtype, examples->x->data, i);
}
static double label_at(const strata_examples *examples, int64_t i) {
    return examples->exact_y ? examples->exact_y[i] : strata_element_get(examples->y->dtype, examples->y->data, i);
}

static bool has_label(const strata_preprocessing *p, const strata_examples *examples, const int *indices, int64_t row) {
    for (int i = 0; i < p->n_labels; i++)
        if (examples->csv ? strata_column_is_missing(&p->labels[i], examples->csv, row, indices[i])
                          : isnan(label_at(examples, row * p->n_labels + i)))
            return false;
    return true;
}

/* Lists the rows that have a value for each label. The caller frees the list. Fails: DATA if there are none. */
static strata_status labelled_rows(const strata_preprocessing *p, const strata_examples *examples, int64_t **out_rows,
                                   int64_t *out_n, strata_error *err) {
    const int64_t n = count_rows(examples);
    int *indices = NULL;
    int64_t *rows = malloc(((size_t)n + 1) * sizeof *rows);
    strata_status status = rows ? find_label_indices(p, examples, &indices, err) : no_memory(examples, err);
    *out_n = 0;
    for (int64_t row = 0; row < n && !status; row++)
        if (has_label(p, examples, indices, row)) rows[(*out_n)++] = row;
    if (!status && !*out_n)
        status = strata_fail(err, STRATA_DATA, "%s: has no row with a label in \"%s\"", examples->name, p->labels[0].name);
    free(indices);
    if (status) {
        free(rows);
        return status;
    }
    *out_rows = rows;
    return STRATA_OK;
}

static strata_status unknown_class(const strata_column *label, const strata_examples *examples, int64_t row, const char *word,
                                   strata_error *err) {
    char where[32] = "";
    const char *nearest = strata_nearest_name(word, (const char *const *)label->words, (size_t)label->n_words);
    if (examples->csv) snprintf(where, sizeof where, ":%lld", (long long)strata_csv_line(examples->csv, row));
    return strata_fail(err, STRATA_DATA, "%s%s: the label \"%.64s\" in column \"%s\" is not one of the %d classes%s%s%s",
                       examples->name, where, word, label->name, label->n_words, nearest ? "; the nearest is \"" : "",
                       nearest ? nearest : "", nearest ? "\"" : "");
}

/* The class of a row, or its label i as a standardised number. */
static strata_status label_of(const strata_preprocessing *p, const strata_examples *examples, const int *indices, int64_t row,
                              int i, double *out, strata_error *err) {
    const strata_column *label = &p->labels[i];
    char text[32];
    const char *word = examples->csv ? strata_csv_cell(examples->csv, row, indices[i]) : text;
    double value = 0;
    if (!examples->csv) {
        value = label_at(examples, row * p->n_labels + i);
        strata_format(text, sizeof text, "%.15g", value);
    }
    if (label->kind == STRATA_COLUMN_WORDS) {
        const int class = strata_column_word(label, word, examples->csv ? &examples->reading.numbers : NULL);
        *out = class;
        return class < 0 ? unknown_class(label, examples, row, word, err) : STRATA_OK;
    }
    if (examples->csv) STRATA_TRY(strata_column_value(label, examples->csv, &examples->reading, indices[i], row, &value, err));
    *out = (value - label->mean) / label->deviation;
    return STRATA_OK;
}

static strata_status fill_labels(const strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n,
                                 strata_array *out, strata_error *err) {
    int *indices = NULL;
    const strata_dtype dtype = strata_preprocessing_n_classes(p) ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32;
    strata_status status = find_label_indices(p, examples, &indices, err);
    strata_shape shape = STRATA_SHAPE(n, p->n_labels);
    if (p->n_labels == 1) shape.rank = 1;
    if (!status) status = strata_array_create(dtype, shape, out, err);
    for (int64_t r = 0; r < n && !status; r++)
        for (int i = 0; i < p->n_labels && !status; i++) {
            double value = 0;
            status = label_of(p, examples, indices, rows[r], i, &value, err);
            if (!status) strata_element_set(dtype, out->data, r * p->n_labels + i, value);
        }
    if (status) strata_array_finish(out);
    free(indices);
    return status;
}

/* ---- features ---- */

static strata_status value_of(const strata_column *column, const strata_examples *examples, int index, int64_t row, double *out,
                              strata_error *err) {
    if (examples->csv) return strata_column_value(column, examples->csv, &examples->reading, index, row, out, err);
    *out = feature_at(examples, row * examples->x->shape.dims[1] + index);
    return STRATA_OK;
}

static void count_unknown(const strata_column *column, const char *cell, strata_preprocessing_report *report) {
    if (!report) return;
    if (!report->n_unknown++) {
        snprintf(report->word, sizeof report->word, "%.60s", cell);
        snprintf(report->column, sizeof report->column, "%.60s", column->name);
    }
}

/* Writes the features of one column for all rows. `width` is the number of features of a row. */
static strata_status fill_column(const strata_column *column, const strata_examples *examples, int index, const int64_t *rows,
                                 int64_t n, int64_t width, float *out, strata_preprocessing_report *report, strata_error *err) {
    for (int64_t r = 0; r < n; r++, out += width) {
        double value = 0;
        if (column->kind != STRATA_COLUMN_WORDS) {
            STRATA_TRY(value_of(column, examples, index, rows[r], &value, err));
            strata_column_encode_value(column, value, out);
            continue;
        }
        const bool missing = strata_column_is_missing(column, examples->csv, rows[r], index);
        const char *cell = missing ? "" : strata_csv_cell(examples->csv, rows[r], index);
        const int word = strata_column_word(column, cell, NULL);
        memset(out, 0, (size_t)strata_column_width(column) * sizeof *out);
        if (word >= 0)
            out[word] = 1;
        else
            count_unknown(column, cell, report);
    }
    return STRATA_OK;
}

static strata_status fill_table(const strata_preprocessing *p, const strata_examples *examples,
                                const strata_apply_options *opts, const int64_t *rows, int64_t n, strata_array *out,
                                strata_error *err) {
    int *indices = NULL;
    const int64_t width = strata_preprocessing_element(p).dims[0];
    strata_status status = find_indices(p, examples, opts, &indices, err);
    if (!status) status = strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, width), out, err);
    float *to = out->data;
    for (int i = 0; i < p->n_columns && !status; i++) {
        if (p->columns[i].kind == STRATA_COLUMN_TEXT) continue;
        status = fill_column(&p->columns[i], examples, examples->csv ? indices[i] : i, rows, n, width, to, opts->report, err);
        to += strata_column_width(&p->columns[i]);
    }
    free(indices);
    return status;
}

/* The mean and the deviation of examples of several axes if the training data are u8: such numbers are divided by 255. */
static const double BYTES_MEAN = 0, BYTES_DEVIATION = 255;

/* Copies examples of several axes. If the model learned from arrays of u8, those of u8 stay u8. All others are standardised by
 * the numbers of the training data. So an array of another type has the same features. */
static strata_status fill_elements(const strata_preprocessing *p, const strata_examples *examples, const int64_t *rows,
                                   int64_t n, strata_array *out, strata_error *err) {
    const strata_array *x = examples->x;
    strata_shape shape = x->shape;
    const int64_t size = strata_shape_elements(p->element);
    const bool stays_u8 =
        x->dtype == STRATA_DTYPE_U8 && p->columns[0].mean == BYTES_MEAN && p->columns[0].deviation == BYTES_DEVIATION;
    shape.dims[0] = n;
    STRATA_TRY(strata_array_create(stays_u8 ? STRATA_DTYPE_U8 : STRATA_DTYPE_F32, shape, out, err));
    for (int64_t r = 0; r < n; r++) {
        if (stays_u8) {
            memcpy((uint8_t *)out->data + r * size, (const uint8_t *)x->data + rows[r] * size, (size_t)size);
            continue;
        }
        float *to = (float *)out->data + r * size;
        for (int64_t i = 0; i < size; i++) {
            const double value = feature_at(examples, rows[r] * size + i);
            to[i] = isnan(value) ? 0 : (float)((value - p->columns[0].mean) / p->columns[0].deviation);
        }
    }
    return STRATA_OK;
}

/* ---- texts ---- */

static strata_status join_texts(const strata_preprocessing *p, const strata_examples *examples,
                                const strata_apply_options *opts, const int64_t *rows, int64_t n, strata_texts **out,
                                strata_error *err) {
    int *indices = NULL;
    const char **parts = calloc((size_t)p->n_columns, sizeof *parts);
    strata_status status = parts ? find_indices(p, examples, opts, &indices, err) : no_memory(examples, err);
    if (!status) status = strata_texts_create(examples->name, NULL, 0, out, err);
    for (int64_t r = 0; r < n && !status; r++) {
        int n_parts = 0;
        for (int i = 0; i < p->n_columns; i++)
            if (p->columns[i].kind == STRATA_COLUMN_TEXT)
                parts[n_parts++] = strata_csv_cell(examples->csv, rows[r], indices[i]);
        status = strata_texts_add(*out, parts, n_parts, -1, strata_csv_line(examples->csv, rows[r]), err);
    }
    free(indices);
    free(parts);
    return status;
}

static strata_status fill_tokens(const strata_preprocessing *p, const strata_examples *examples,
                                 const strata_apply_options *opts, const int64_t *rows, int64_t n, strata_array *out,
                                 strata_error *err) {
    strata_texts *texts = NULL;
    strata_status status = join_texts(p, examples, opts, rows, n, &texts, err);
    if (!status) status = strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n, p->length), out, err);
    for (int64_t r = 0; r < n && !status; r++) {
        int32_t *ids = (int32_t *)out->data + r * p->length;
        int64_t n_tokens = 0;
        const char *text = strata_texts_get(texts, r);
        status = strata_tokenizer_encode(p->tokenizer, text, strlen(text), p->length, ids, &n_tokens, err);
        /* A text without words gets one token, so that its row is kept and has a prediction. */
        if (!n_tokens) ids[0] = STRATA_TOKEN_UNKNOWN;
    }
    strata_texts_destroy(texts);
    return status;
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Trains the tokenizer on these rows. If the number of tokens of an example is not given, it is chosen so that nine of
 * ten rows fit. */
static strata_status make_vocabulary(strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n,
                                     strata_error *err) {
    enum { LEAST = 8, MOST = 400, WORDS = 20000 };
    strata_texts *texts = NULL;
    strata_tokenizer *tokenizer = NULL;
    const strata_tokenizer_options opts = {.kind = p->subwords ? STRATA_TOKENIZER_SUBWORDS : STRATA_TOKENIZER_WORDS,
                                           .vocabulary = p->vocabulary ? p->vocabulary : WORDS,
                                           .least_count = n > 1000 && !p->subwords ? 2 : 1};
    int64_t *sizes = calloc((size_t)n, sizeof *sizes);
    if (!sizes) return no_memory(examples, err);
    strata_status status = join_texts(p, examples, &(strata_apply_options){0}, rows, n, &texts, err);
    if (!status) status = strata_tokenizer_train(texts, &opts, &tokenizer, err);
    for (int64_t r = 0; r < n && !status && !p->length; r++) {
        const char *text = strata_texts_get(texts, r);
        status = strata_tokenizer_encode(tokenizer, text, strlen(text), 0, NULL, &sizes[r], err);
    }
    if (!status && !p->length) {
        qsort(sizes, (size_t)n, sizeof *sizes, by_size);
        const int64_t size = sizes[n * 9 / 10];
        p->length = size < LEAST ? LEAST : size > MOST ? MOST : size;
    }
    if (!status) {
        strata_tokenizer_destroy(p->tokenizer);
        p->tokenizer = tokenizer;
        tokenizer = NULL;
    }
    strata_tokenizer_destroy(tokenizer);
    strata_texts_destroy(texts);
    free(sizes);
    return status;
}

/* ---- means and deviations ---- */

static strata_status measure_column(strata_column *column, const strata_examples *examples, int index, const int64_t *rows,
                                    int64_t n, double *values, strata_error *err) {
    for (int64_t r = 0; r < n; r++) STRATA_TRY(value_of(column, examples, index, rows[r], &values[r], err));
    strata_column_measure(column, values, n);
    return STRATA_OK;
}

static strata_status measure_features(strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n,
                                      double *values, strata_error *err) {
    int *indices = NULL;
    strata_status status = find_indices(p, examples, &(strata_apply_options){0}, &indices, err);
    for (int i = 0; i < p->n_columns && !status; i++)
        if (p->columns[i].kind == STRATA_COLUMN_NUMBER || p->columns[i].kind == STRATA_COLUMN_DATE)
            status = measure_column(&p->columns[i], examples, examples->csv ? indices[i] : i, rows, n, values, err);
    free(indices);
    return status;
}

/* Examples of several axes have one mean and one deviation for all their numbers. For u8 they are constants. */
static void measure_elements(strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n) {
    const strata_array *x = examples->x;
    strata_column *all = &p->columns[0];
    const int64_t size = strata_shape_elements(p->element);
    double sum = 0, squares = 0;
    int64_t found = 0;
    if (x->dtype == STRATA_DTYPE_U8) {
        all->mean = BYTES_MEAN;
        all->deviation = BYTES_DEVIATION;
        return;
    }
    for (int64_t i = 0; i < n * size; i++) {
        const double value = feature_at(examples, rows[i / size] * size + i % size);
        if (!isnan(value)) sum += value, found++;
    }
    all->mean = found ? sum / (double)found : 0;
    /* The squares are those of the differences to the mean; the difference of two large squares would have no correct digit. */
    for (int64_t i = 0; i < n * size; i++) {
        const double away = feature_at(examples, rows[i / size] * size + i % size) - all->mean;
        if (!isnan(away)) squares += away * away;
    }
    all->deviation = found ? sqrt(squares / (double)found) : 0;
    if (!(all->deviation > 1e-12 * fabs(all->mean))) all->deviation = 1; /* all are equal, except for rounding */
}

static strata_status measure_labels(strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n,
                                    double *values, strata_error *err) {
    int *indices = NULL;
    strata_status status = find_label_indices(p, examples, &indices, err);
    for (int i = 0; i < p->n_labels && !status; i++) {
        if (p->labels[i].kind == STRATA_COLUMN_WORDS) continue;
        p->labels[i].mean = 0;
        p->labels[i].deviation = 1;
        for (int64_t r = 0; r < n && !status; r++) status = label_of(p, examples, indices, rows[r], i, &values[r], err);
        if (!status) strata_column_measure(&p->labels[i], values, n);
    }
    free(indices);
    return status;
}

/* Computes means, deviations and vocabulary from these rows. */
static strata_status measure_rows(strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n,
                                  strata_error *err) {
    double *values = malloc(((size_t)n + 1) * sizeof *values);
    if (!values) return no_memory(examples, err);
    strata_status status = measure_labels(p, examples, rows, n, values, err);
    if (!status && strata_preprocessing_has_texts(p)) status = make_vocabulary(p, examples, rows, n, err);
    if (!status && p->kind == STRATA_PREPROCESSING_ARRAYS && p->element.rank > 1)
        measure_elements(p, examples, rows, n);
    else if (!status)
        status = measure_features(p, examples, rows, n, values, err);
    free(values);
    p->measured = !status;
    return status;
}

/* ---- datasets ---- */

/* Sets the weights of the examples. */
static strata_status take_weights(const strata_preprocessing *p, const strata_examples *examples, const int64_t *rows,
                                  int64_t n, strata_dataset *dataset, strata_error *err) {
    strata_array weights = {0};
    const strata_csv *csv = examples->csv;
    int index = 0;
    if (!p->weight) return STRATA_OK;
    STRATA_TRY(strata_csv_find(csv, p->weight, &index, err));
    const strata_column column = {.kind = STRATA_COLUMN_NUMBER};
    strata_status status = strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &weights, err);
    for (int64_t r = 0; r < n && !status; r++) {
        double value = 0;
        status = strata_column_value(&column, csv, &examples->reading, index, rows[r], &value, err);
        if (!status && !(value >= 0 && value <= FLT_MAX))
            status = strata_fail(err, STRATA_DATA,
                                 "%s:%lld: the weight in column \"%s\" is \"%.64s\"; it must be a number of at least 0",
                                 strata_csv_name(csv), (long long)strata_csv_line(csv, rows[r]), p->weight,
                                 strata_csv_cell(csv, rows[r], index));
        if (!status) ((float *)weights.data)[r] = (float)value;
    }
    if (!status) status = strata_dataset_set_weights(dataset, &weights, err);
    strata_array_finish(&weights);
    return status;
}

static strata_status to_dataset(const strata_preprocessing *p, const strata_examples *examples,
                                const strata_apply_options *opts, const int64_t *rows, int64_t n, strata_dataset **out_dataset,
                                strata_error *err) {
    strata_array x = {0}, y = {0}, tokens = {0};
    strata_dataset *dataset = NULL;
    strata_status status = STRATA_OK;
    const bool mixed = p->kind == STRATA_PREPROCESSING_TABLE && strata_preprocessing_has_texts(p);
    if (p->kind == STRATA_PREPROCESSING_TEXTS)
        STRATA_TRY_GOTO(fill_tokens(p, examples, opts, rows, n, &x, err));
    else if (p->kind == STRATA_PREPROCESSING_ARRAYS && p->element.rank > 1)
        STRATA_TRY_GOTO(fill_elements(p, examples, rows, n, &x, err));
    else
        STRATA_TRY_GOTO(fill_table(p, examples, opts, rows, n, &x, err));
    if (mixed) STRATA_TRY_GOTO(fill_tokens(p, examples, opts, rows, n, &tokens, err));
    if (!opts->unlabelled) STRATA_TRY_GOTO(fill_labels(p, examples, rows, n, &y, err));
    STRATA_TRY_GOTO(strata_dataset_take_arrays(&x, opts->unlabelled ? NULL : &y, x.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0,
                                               &dataset, err));
    if (mixed) STRATA_TRY_GOTO(strata_dataset_take_input(dataset, "numbers", "text", &tokens, err));
    if (!opts->unlabelled) STRATA_TRY_GOTO(take_weights(p, examples, rows, n, dataset, err));
    if (strata_preprocessing_n_classes(p))
        STRATA_TRY_GOTO(strata_dataset_set_class_names(dataset, (const char *const *)p->labels[0].words,
                                                       strata_preprocessing_n_classes(p), err));
    *out_dataset = dataset;
    dataset = NULL;
cleanup:
    strata_dataset_destroy(dataset);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_array_finish(&tokens);
    return status;
}

/* The classes of the rows, by which the split is stratified; *out NULL: the labels are numbers. */
static strata_status classes_of(const strata_preprocessing *p, const strata_examples *examples, const int64_t *rows, int64_t n,
                                int32_t **out, strata_error *err) {
    strata_array classes = {0};
    *out = NULL;
    if (!strata_preprocessing_n_classes(p)) return STRATA_OK;
    STRATA_TRY(fill_labels(p, examples, rows, n, &classes, err));
    *out = malloc((size_t)n * sizeof **out);
    if (*out) memcpy(*out, classes.data, (size_t)n * sizeof **out);
    strata_array_finish(&classes);
    return *out ? STRATA_OK : no_memory(examples, err);
}

strata_status strata_preprocessing_split_examples(strata_preprocessing *p, const strata_examples *examples, double fraction,
                                                  uint64_t seed, strata_dataset **out_train, strata_dataset **out_test,
                                                  strata_error *err) {
    int64_t *rows = NULL, *order = NULL, n = 0, first = 0;
    int32_t *classes = NULL;
    const strata_apply_options opts = {0};
    strata_status status = STRATA_OK;
    *out_train = *out_test = NULL;
    STRATA_TRY_GOTO(labelled_rows(p, examples, &rows, &n, err));
    order = malloc((size_t)n * sizeof *order);
    if (!order) STRATA_TRY_GOTO(no_memory(examples, err));
    STRATA_TRY_GOTO(classes_of(p, examples, rows, n, &classes, err));
    STRATA_TRY_GOTO(strata_split_order(classes, n, fraction, seed, order, &first, err));
    for (int64_t i = 0; i < n; i++) order[i] = rows[order[i]];
    STRATA_TRY_GOTO(measure_rows(p, examples, order, first, err));
    STRATA_TRY_GOTO(to_dataset(p, examples, &opts, order, first, out_train, err));
    if (first < n) STRATA_TRY_GOTO(to_dataset(p, examples, &opts, order + first, n - first, out_test, err));
cleanup:
    if (status) {
        strata_dataset_destroy(*out_train);
        *out_train = NULL;
    }
    free(classes);
    free(order);
    free(rows);
    return status;
}

strata_status strata_preprocessing_split_csv(strata_preprocessing *p, const strata_csv *csv, double fraction, uint64_t seed,
                                             strata_dataset **out_train, strata_dataset **out_test, strata_error *err) {
    strata_examples examples = {.csv = csv, .name = strata_csv_name(csv)};
    STRATA_TRY(find_reading(p, &(strata_apply_options){0}, &examples, err));
    return strata_preprocessing_split_examples(p, &examples, fraction, seed, out_train, out_test, err);
}

strata_status strata_preprocessing_split_arrays(strata_preprocessing *p, const strata_array *features,
                                                const strata_array *labels, double fraction, uint64_t seed,
                                                strata_dataset **out_train, strata_dataset **out_test, strata_error *err) {
    const strata_examples examples = {.x = features, .y = labels, .name = "arrays"};
    return strata_preprocessing_split_examples(p, &examples, fraction, seed, out_train, out_test, err);
}

/* Makes a dataset of all rows, or of those with labels unless opts->unlabelled. */
static strata_status apply(const strata_preprocessing *p, const strata_examples *examples, const strata_apply_options *opts,
                           strata_dataset **out_dataset, strata_error *err) {
    int64_t *rows = NULL, n = count_rows(examples);
    if (opts->report) *opts->report = (strata_preprocessing_report){0};
    if (!p->measured)
        return strata_fail(err, STRATA_INVALID,
                           "preprocessing: its means and vocabulary are not computed yet; call strata_preprocessing_split_csv "
                           "or _split_arrays");
    if (n < 1) return strata_fail(err, STRATA_DATA, "%s: has no rows", examples->name);
    if (!opts->unlabelled) {
        STRATA_TRY(labelled_rows(p, examples, &rows, &n, err));
        if (opts->report) opts->report->n_unlabelled = count_rows(examples) - n;
    } else if (!(rows = malloc((size_t)n * sizeof *rows))) {
        return no_memory(examples, err);
    }
    for (int64_t i = 0; i < n && opts->unlabelled; i++) rows[i] = i;
    strata_status status = to_dataset(p, examples, opts, rows, n, out_dataset, err);
    if (!status) {
        status = strata_dataset_set_source(*out_dataset, examples->name, err);
        if (status) {
            strata_dataset_destroy(*out_dataset);
            *out_dataset = NULL;
        }
    }
    free(rows);
    return status;
}

static strata_status wrong_kind(const strata_preprocessing *p, const char *name, const char *what, strata_error *err) {
    static const char *const takes[] = {"tables", "texts", "pictures", "arrays"};
    return strata_fail(err, STRATA_DATA, "%s: is %s, but the model was trained on %s", name, what, takes[p->kind]);
}

strata_status strata_preprocessing_apply_csv(const strata_preprocessing *p, const strata_csv *csv,
                                             const strata_apply_options *opts, strata_dataset **out_dataset,
                                             strata_error *err) {
    const strata_apply_options defaults = {0};
    strata_examples examples = {.csv = csv, .name = strata_csv_name(csv)};
    if (!opts) opts = &defaults;
    if (p->kind != STRATA_PREPROCESSING_TABLE && p->kind != STRATA_PREPROCESSING_TEXTS)
        return wrong_kind(p, strata_csv_name(csv), "a table", err);
    STRATA_TRY(find_reading(p, opts, &examples, err));
    STRATA_TRY(apply(p, &examples, opts, out_dataset, err));
    if (opts->report && p->dialect.decimal && p->dialect.decimal != examples.reading.numbers.decimal)
        opts->report->decimal = examples.reading.numbers.decimal;
    return STRATA_OK;
}

strata_status strata_preprocessing_apply_examples(const strata_preprocessing *p, const strata_examples *examples,
                                                  strata_dataset **out_dataset, strata_error *err) {
    const strata_array *x = examples->x, *y = examples->y;
    const strata_apply_options opts = {.unlabelled = !y};
    strata_shape shape = x->shape;
    if (p->kind != STRATA_PREPROCESSING_ARRAYS) return wrong_kind(p, "arrays", "an array", err);
    const int64_t n_labels = y ? (y->shape.rank == 2 ? y->shape.dims[1] : 1) : 0;
    bool same = shape.rank == p->element.rank + 1;
    for (int i = 0; same && i < p->element.rank; i++)
        same = shape.dims[i + 1] == (p->element.rank == 1 ? p->n_columns : p->element.dims[i]);
    if (!same)
        return strata_fail(err, STRATA_DATA, "the features are %s; the model takes (n, ...) of %s",
                           strata_shape_text(shape).text,
                           strata_shape_text(p->element.rank == 1 ? STRATA_SHAPE(p->n_columns) : p->element).text);
    const bool labels_fit =
        !y || ((y->shape.rank == 1 || y->shape.rank == 2) && n_labels == p->n_labels && y->shape.dims[0] == shape.dims[0]);
    if (!labels_fit)
        return strata_fail(err, STRATA_DATA, "the features are %s, the labels %s; the model has %d label%s for each example",
                           strata_shape_text(shape).text, strata_shape_text(y->shape).text, p->n_labels,
                           p->n_labels == 1 ? "" : "s");
    return apply(p, examples, &opts, out_dataset, err);
}

strata_status strata_preprocessing_apply_arrays(const strata_preprocessing *p, const strata_array *x, const strata_array *y,
                                                strata_dataset **out_dataset, strata_error *err) {
    return strata_preprocessing_apply_examples(p, &(strata_examples){.x = x, .y = y, .name = "arrays"}, out_dataset, err);
}

double strata_preprocessing_label_unit(const strata_preprocessing *p, int label) {
    return p->labels[label].deviation;
}

void strata_preprocessing_restore(const strata_preprocessing *p, strata_array *predictions) {
    const int64_t n = strata_shape_elements(predictions->shape);
    float *values = predictions->data;
    if (strata_preprocessing_n_classes(p) || !p->n_labels) return;
    for (int64_t i = 0; i < n; i++) {
        const strata_column *label = &p->labels[i % p->n_labels];
        values[i] = (float)((double)values[i] * label->deviation + label->mean);
    }
}
