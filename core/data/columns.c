/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds columns by their names and classes by their words, and makes datasets of the numbers in a table. */
#include "core/data/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/prepare/cell.h"
#include "core/data/prepare/preprocessing.h"

/* ---- which columns ---- */

static bool is_among(int index, const int *indices, int n) {
    for (int i = 0; i < n; i++)
        if (indices[i] == index) return true;
    return false;
}

strata_status strata_columns_find(const strata_csv *csv, const strata_column_names *names, int *labels, int *out_weight,
                                  int *out_features, int *out_n_features, strata_error *err) {
    int index = -1;
    *out_weight = -1;
    *out_n_features = 0;
    for (int i = 0; i < names->n_labels && names->labels; i++) {
        STRATA_TRY(strata_csv_find(csv, names->labels[i], &labels[i], err));
        if (is_among(labels[i], labels, i))
            return strata_fail(err, STRATA_INVALID, "csv: column \"%s\" is named twice as a label", names->labels[i]);
    }
    if (names->weight) STRATA_TRY(strata_csv_find(csv, names->weight, out_weight, err));
    if (names->weight && is_among(*out_weight, labels, names->n_labels))
        return strata_fail(err, STRATA_INVALID, "csv: column \"%s\" is both the weight and the label", names->weight);
    for (int i = 0; i < names->n_features; i++) {
        STRATA_TRY(strata_csv_find(csv, names->features[i], &index, err));
        if (index == *out_weight || is_among(index, labels, names->n_labels))
            return strata_fail(err, STRATA_INVALID, "csv: column \"%s\" is both a feature and the %s", names->features[i],
                               index == *out_weight ? "weight" : "label");
        out_features[(*out_n_features)++] = index;
    }
    for (int i = 0; i < strata_csv_n_columns(csv) && !names->n_features; i++)
        if (i != *out_weight && !is_among(i, labels, names->n_labels)) out_features[(*out_n_features)++] = i;
    return STRATA_OK;
}

strata_status strata_columns_choose(strata_columns *columns, const strata_csv *csv, const strata_csv_options *opts,
                                    strata_error *err) {
    const bool several = opts->n_labels > 0;
    const strata_column_names names = {.labels = several ? opts->labels : &opts->label,
                                       .n_labels = several ? opts->n_labels : opts->label != NULL,
                                       .weight = opts->weight,
                                       .features = opts->features,
                                       .n_features = opts->features ? opts->n_features : 0};
    const int n = opts->features ? opts->n_features : strata_csv_n_columns(csv);
    *columns = (strata_columns){.label = -1, .weight = -1};
    if (n < 1) return strata_fail(err, STRATA_INVALID, "csv: n_features is %d; name at least one column", n);
    if (several && (opts->label || opts->n_classes))
        return strata_fail(err, STRATA_INVALID, "csv: %d labels, which are numbers, and %s too; give one of them",
                           opts->n_labels, opts->label ? "a label" : "classes");
    columns->features = calloc((size_t)n, sizeof *columns->features);
    columns->labels = calloc((size_t)names.n_labels + 1, sizeof *columns->labels);
    if (!columns->features || !columns->labels)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "csv: no host memory for %d columns", n);
    STRATA_TRY(
        strata_columns_find(csv, &names, columns->labels, &columns->weight, columns->features, &columns->n_features, err));
    if (several) columns->n_labels = opts->n_labels;
    if (opts->label) columns->label = columns->labels[0];
    if (opts->label && opts->n_classes > 0) {
        STRATA_TRY(strata_names_copy(opts->classes, opts->n_classes, &columns->classes, err));
        columns->n_classes = opts->n_classes;
    }
    if (columns->n_features) return STRATA_OK;
    if (several) return strata_fail(err, STRATA_DATA, "%s: has no column but the labels", strata_csv_name(csv));
    return strata_fail(err, STRATA_DATA, "%s: has no column but the label \"%s\"%s", strata_csv_name(csv),
                       columns->label < 0 ? "" : strata_csv_column(csv, columns->label),
                       columns->weight < 0 ? "" : " and the weight");
}

void strata_columns_finish(strata_columns *columns) {
    free(columns->features);
    free(columns->labels);
    strata_names_free(columns->classes, columns->n_classes);
    *columns = (strata_columns){0};
}

/* ---- classes ---- */

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

strata_status strata_columns_find_classes(strata_columns *columns, const strata_csv *csv, strata_error *err) {
    enum { MOST_CLASSES = 65536 };
    int64_t n = strata_csv_n_rows(csv), distinct = 0;
    if (columns->n_classes) return STRATA_OK;
    if (n == 0) return strata_fail(err, STRATA_DATA, "%s: has no rows", strata_csv_name(csv));
    const char **words = malloc((size_t)n * sizeof *words);
    if (!words) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", strata_csv_name(csv));
    for (int64_t i = 0; i < n; i++) words[i] = strata_csv_cell(csv, i, columns->label);
    qsort(words, (size_t)n, sizeof *words, by_bytes);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || strcmp(words[i], words[distinct - 1])) words[distinct++] = words[i];
    strata_status status;
    if (distinct > MOST_CLASSES)
        status = strata_fail(err, STRATA_DATA, "%s: column \"%s\" has %lld different words, too many for classes",
                             strata_csv_name(csv), strata_csv_column(csv, columns->label), (long long)distinct);
    else
        status = strata_names_copy(words, (int)distinct, &columns->classes, err);
    if (!status) columns->n_classes = (int)distinct;
    free(words);
    return status;
}

strata_status strata_columns_class(const strata_columns *columns, const strata_csv *csv, int64_t row, int *out_class,
                                   strata_error *err) {
    const char *word = strata_csv_cell(csv, row, columns->label);
    for (int i = 0; i < columns->n_classes; i++)
        if (!strcmp(word, columns->classes[i])) {
            *out_class = i;
            return STRATA_OK;
        }
    const char *nearest = strata_nearest_name(word, (const char *const *)columns->classes, (size_t)columns->n_classes);
    return strata_fail(err, STRATA_DATA, "%s:%lld: the label \"%.64s\" in column \"%s\" is not one of the %d classes%s%s%s",
                       strata_csv_name(csv), (long long)strata_csv_line(csv, row), word, strata_csv_column(csv, columns->label),
                       columns->n_classes, nearest ? "; the nearest is \"" : "", nearest ? nearest : "", nearest ? "\"" : "");
}

/* ---- numbers ---- */

/* Converts the cells of these columns to numbers, row by row. */
static strata_status fill_numbers(const strata_csv *csv, strata_number_format format, const int *columns, int n, float *out,
                                  strata_error *err) {
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++)
        for (int i = 0; i < n; i++) {
            const char *cell = strata_csv_cell(csv, row, columns[i]);
            double value = 0;
            if (!strata_cell_number(cell, format, &value) || !isfinite((float)value))
                return strata_fail(
                    err, STRATA_DATA, "%s:%lld: column \"%s\" has the cell \"%.64s\", which is not a finite f32 number",
                    strata_csv_name(csv), (long long)strata_csv_line(csv, row), strata_csv_column(csv, columns[i]), cell);
            *out++ = (float)value;
        }
    return STRATA_OK;
}

typedef enum label_kind { LABEL_CLASSES, LABEL_NUMBERS, LABEL_WORDS } label_kind;

/* Words, if the caller named classes or if a cell is not a number. Classes, if all cells are integers that are at least
 * 0. */
static label_kind find_kind(const strata_columns *columns, const strata_csv *csv, strata_number_format format) {
    label_kind kind = columns->n_classes ? LABEL_WORDS : LABEL_CLASSES;
    for (int64_t row = 0; kind != LABEL_WORDS && row < strata_csv_n_rows(csv); row++) {
        double value;
        if (!strata_cell_number(strata_csv_cell(csv, row, columns->label), format, &value))
            kind = LABEL_WORDS;
        else if (value < 0 || value > INT32_MAX || value != floor(value))
            kind = LABEL_NUMBERS;
    }
    return kind;
}

static strata_status fill_labels(strata_columns *columns, const strata_csv *csv, strata_number_format format,
                                 strata_array *out_labels, strata_error *err) {
    if (columns->n_labels) {
        const strata_shape shape = STRATA_SHAPE(strata_csv_n_rows(csv), columns->n_labels);
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, shape, out_labels, err));
        return fill_numbers(csv, format, columns->labels, columns->n_labels, out_labels->data, err);
    }
    label_kind kind = find_kind(columns, csv, format);
    int64_t n = strata_csv_n_rows(csv);
    if (kind == LABEL_WORDS) STRATA_TRY(strata_columns_find_classes(columns, csv, err));
    STRATA_TRY(
        strata_array_create(kind == LABEL_NUMBERS ? STRATA_DTYPE_F32 : STRATA_DTYPE_I32, STRATA_SHAPE(n), out_labels, err));
    for (int64_t row = 0; row < n; row++) {
        double value = 0;
        int label = 0;
        if (kind == LABEL_WORDS) {
            STRATA_TRY(strata_columns_class(columns, csv, row, &label, err));
            value = label;
        } else {
            strata_cell_number(strata_csv_cell(csv, row, columns->label), format, &value);
        }
        strata_element_set(out_labels->dtype, out_labels->data, row, value);
    }
    return STRATA_OK;
}

/* Finds how the numbers of all these columns are written. */
static strata_status find_reading(const strata_columns *columns, const strata_csv *csv, strata_table_reading *out,
                                  strata_error *err) {
    int n = 0, *all = calloc((size_t)(columns->n_features + columns->n_labels + 2), sizeof *all);
    if (!all) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", strata_csv_name(csv));
    for (int i = 0; i < columns->n_features; i++) all[n++] = columns->features[i];
    for (int i = 0; i < columns->n_labels; i++) all[n++] = columns->labels[i];
    if (columns->label >= 0) all[n++] = columns->label;
    if (columns->weight >= 0) all[n++] = columns->weight;
    strata_status status = strata_reading_find(csv, all, n, out, NULL, err);
    free(all);
    return status;
}

static strata_status to_dataset(strata_columns *columns, const strata_csv *csv, strata_dataset **out_dataset,
                                strata_error *err) {
    strata_array features = {0}, labels = {0}, weights = {0};
    strata_dataset *dataset = NULL;
    strata_status status = STRATA_OK;
    int64_t n = strata_csv_n_rows(csv);
    const bool labelled = columns->label >= 0 || columns->n_labels;
    strata_table_reading reading;
    if (n == 0) return strata_fail(err, STRATA_DATA, "%s: has a header and no rows", strata_csv_name(csv));
    STRATA_TRY(find_reading(columns, csv, &reading, err));
    STRATA_TRY_GOTO(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, columns->n_features), &features, err));
    STRATA_TRY_GOTO(fill_numbers(csv, reading.numbers, columns->features, columns->n_features, features.data, err));
    if (labelled) STRATA_TRY_GOTO(fill_labels(columns, csv, reading.numbers, &labels, err));
    STRATA_TRY_GOTO(strata_dataset_take_arrays(&features, labelled ? &labels : NULL, 0, &dataset, err));
    if (columns->weight >= 0) {
        STRATA_TRY_GOTO(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &weights, err));
        STRATA_TRY_GOTO(fill_numbers(csv, reading.numbers, &columns->weight, 1, weights.data, err));
        STRATA_TRY_GOTO(strata_dataset_set_weights(dataset, &weights, err));
    }
    STRATA_TRY_GOTO(strata_dataset_set_source(dataset, strata_csv_name(csv), err));
    STRATA_TRY_GOTO(strata_dataset_set_class_names(dataset, (const char *const *)columns->classes, columns->n_classes, err));
cleanup:
    strata_array_finish(&features);
    strata_array_finish(&labels);
    strata_array_finish(&weights);
    return strata_dataset_give(status, dataset, out_dataset);
}

strata_status strata_dataset_from_csv(const strata_csv *csv, const strata_csv_options *opts, strata_dataset **out_dataset,
                                      strata_error *err) {
    strata_columns columns = {0};
    strata_status status = strata_columns_choose(&columns, csv, opts ? opts : &(strata_csv_options){0}, err);
    if (!status) status = to_dataset(&columns, csv, out_dataset, err);
    strata_columns_finish(&columns);
    return status;
}

strata_status strata_dataset_csv(const char *path, const strata_csv_options *opts, strata_dataset **out_dataset,
                                 strata_error *err) {
    strata_csv *csv = NULL;
    STRATA_TRY(strata_csv_read_table(path, opts ? &opts->dialect : NULL, NULL, &csv, err));
    strata_status status = strata_dataset_from_csv(csv, opts, out_dataset, err);
    strata_csv_destroy(csv);
    return status;
}
