/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds columns by their names and classes by their words, and makes datasets of the numbers in a table. */
#include <math.h>

#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/format/csv.h"
#include "core/data/prepare/preprocessing.h"

/* ---- which columns ---- */

static bool is_among(int index, const int *indices, int n) {
    for (int i = 0; i < n; i++)
        if (indices[i] == index) return true;
    return false;
}

strata_status strata_columns_find(strata_columns *columns, const strata_csv *csv, const strata_column_names *names,
                                  strata_error *err) {
    const int n = names->n_features ? names->n_features : strata_csv_n_columns(csv), n_labels = names->n_labels;
    strata_columns *c = columns;
    *c = (strata_columns){.label = -1, .weight = -1, .n_labels = n_labels};
    STRATA_TRY(STRATA_NEW(c->features, n + n_labels + 1, err, "csv: no host memory for %d columns", n));
    c->labels = c->features + n;
    for (int i = 0; i < n_labels; i++) {
        STRATA_TRY(strata_csv_find(csv, names->labels[i], &c->labels[i], err));
        if (is_among(c->labels[i], c->labels, i))
            return strata_fail(err, STRATA_INVALID, "csv: column \"%s\" is named twice as a label", names->labels[i]);
    }
    if (names->weight) STRATA_TRY(strata_csv_find(csv, names->weight, &c->weight, err));
    if (names->weight && is_among(c->weight, c->labels, n_labels))
        return strata_fail(err, STRATA_INVALID, "csv: column \"%s\" is both the weight and the label", names->weight);
    for (int i = 0, index = 0; i < n; i++) {
        if (names->n_features) STRATA_TRY(strata_csv_find(csv, names->features[i], &index, err));
        if (!names->n_features) index = i;
        const bool used = index == c->weight || is_among(index, c->labels, n_labels);
        if (used && names->n_features)
            return strata_fail(err, STRATA_INVALID, "csv: column \"%s\" is both a feature and the %s", names->features[i],
                               index == c->weight ? "weight" : "label");
        if (!used) c->features[c->n_features++] = index;
    }
    c->labels = memmove(c->features + c->n_features, c->labels, (size_t)n_labels * sizeof *c->labels);
    c->n_all = c->n_features + n_labels;
    if (names->weight) c->features[c->n_all++] = c->weight;
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
    if (n < 1) return strata_fail(err, STRATA_INVALID, "csv: n_features is %d; name at least one column", n);
    if (several && (opts->label || opts->n_classes))
        return strata_fail(err, STRATA_INVALID, "csv: %d labels, which are numbers, and %s too; give one of them",
                           opts->n_labels, opts->label ? "a label" : "classes");
    STRATA_TRY(strata_columns_find(columns, csv, &names, err));
    if (!several) columns->n_labels = 0;
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
    free(columns->classes);
    *columns = (strata_columns){0};
}

/* ---- classes ---- */

strata_status strata_columns_find_classes(strata_columns *columns, const strata_csv *csv, strata_error *err) {
    enum { MOST_CLASSES = 65536 };
    int64_t n = strata_csv_n_rows(csv), distinct = 0;
    if (columns->n_classes) return STRATA_OK;
    if (n == 0) return strata_fail(err, STRATA_DATA, "%s: has no rows", strata_csv_name(csv));
    STRATA_FREED const char **words = NULL;
    STRATA_TRY(STRATA_NEW(words, n, err, "%s: no host memory", strata_csv_name(csv)));
    for (int64_t i = 0; i < n; i++) words[i] = strata_csv_cell(csv, i, columns->label);
    qsort(words, (size_t)n, sizeof *words, strata_by_bytes);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || strcmp(words[i], words[distinct - 1])) words[distinct++] = words[i];
    if (distinct > MOST_CLASSES)
        return strata_fail(err, STRATA_DATA, "%s: column \"%s\" has %lld different words, too many for classes",
                           strata_csv_name(csv), strata_csv_column(csv, columns->label), (long long)distinct);
    columns->n_classes = (int)distinct;
    return strata_names_copy(words, (int)distinct, &columns->classes, err);
}

strata_status strata_columns_class(const strata_columns *columns, const strata_csv *csv, int64_t row, int *out_class,
                                   strata_error *err) {
    const char *word = strata_csv_cell(csv, row, columns->label);
    for (int i = 0; i < columns->n_classes; i++)
        if (!strcmp(word, columns->classes[i])) {
            *out_class = i;
            return STRATA_OK;
        }
    return strata_fail(err, STRATA_DATA, "%s:%lld: the label \"%.64s\" in column \"%s\" is not one of the %d classes%s",
                       strata_csv_name(csv), (long long)strata_csv_line(csv, row), word, strata_csv_column(csv, columns->label),
                       columns->n_classes, strata_nearest_hint(word, columns->classes, columns->n_classes).text);
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

strata_status strata_dataset_from_csv(const strata_csv *csv, const strata_csv_options *opts, strata_dataset **out_dataset,
                                      strata_error *err) {
    STRATA_FINISHED(strata_columns) columns = {0};
    STRATA_FINISHED(strata_array) features = {0}, labels = {0}, weights = {0};
    strata_table_reading reading;
    const int64_t n = strata_csv_n_rows(csv);
    STRATA_TRY(strata_columns_choose(&columns, csv, opts ? opts : &(strata_csv_options){0}, err));
    if (n == 0) return strata_fail(err, STRATA_DATA, "%s: has a header and no rows", strata_csv_name(csv));
    STRATA_TRY(strata_reading_find(csv, columns.features, columns.n_all, &reading, NULL, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, columns.n_features), &features, err));
    STRATA_TRY(fill_numbers(csv, reading.numbers, columns.features, columns.n_features, features.data, err));
    if (columns.label >= 0 || columns.n_labels) STRATA_TRY(fill_labels(&columns, csv, reading.numbers, &labels, err));
    if (columns.weight >= 0) {
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), &weights, err));
        STRATA_TRY(fill_numbers(csv, reading.numbers, &columns.weight, 1, weights.data, err));
    }
    const strata_dataset_facts facts = {.weights = weights.data ? &weights : NULL,
                                        .source = strata_csv_name(csv),
                                        .class_names = (const char *const *)columns.classes,
                                        .n_class_names = columns.n_classes};
    return strata_dataset_take_known(&features, &labels, &facts, out_dataset, err);
}

strata_status strata_dataset_csv(const char *path, const strata_csv_options *opts, strata_dataset **out_dataset,
                                 strata_error *err) {
    STRATA_OWNED(strata_csv) *csv = NULL;
    STRATA_TRY(strata_csv_read_table(path, opts ? &opts->dialect : NULL, NULL, &csv, err));
    return strata_dataset_from_csv(csv, opts, out_dataset, err);
}
