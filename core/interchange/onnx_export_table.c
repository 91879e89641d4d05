/* SPDX-License-Identifier: Apache-2.0
 *
 * The preprocessing of numbers as nodes of ONNX. The file of a model that learned from a table takes rows of the table's own
 * numbers, and that of a model that learned from arrays takes the arrays' own numbers. A number that is missing is NaN. The
 * nodes compute the features from them; behind the model they convert labels that are numbers back. When Strata reads the file
 * again, it leaves these nodes out, since its own preprocessing does their work (onnx_import.c). */
#include <math.h>
#include <string.h>

#include "core/interchange/onnx_export.h"

/* The column of features, or of labels, with this index. */
typedef strata_column_info column_of(const strata_preprocessing *p, int index);

/* Adds a list of numbers, one for each of n columns from `first` on, or one number. */
static const char *put_numbers(strata_onnx_export *ex, column_of *of, int first, int n, bool deviations) {
    const char *name = strata_onnx_new_name(ex);
    float *memory =
        strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, n > 1 ? STRATA_SHAPE(n) : STRATA_SHAPE(), NULL);
    for (int i = 0; memory && i < n; i++) {
        const strata_column_info column = of(ex->preprocessing, first + i);
        memory[i] = (float)(deviations ? column.deviation : column.mean);
    }
    return name;
}

/* isnan(x) ? 0 : (x - mean) / deviation */
static const char *scaled(strata_onnx_export *ex, int first, int n, const char *x) {
    const char *y = strata_onnx_two(ex, "Sub", x, put_numbers(ex, strata_preprocessing_column, first, n, false));
    y = strata_onnx_two(ex, "Div", y, put_numbers(ex, strata_preprocessing_column, first, n, true));
    const char *missing = strata_onnx_one(ex, "IsNaN", x);
    return strata_onnx_add_node(ex, "Where", (const char *[]){missing, strata_onnx_put_number(ex, 0), y}, 3, NULL);
}

/* Joins n values along axis 1. */
static const char *joined(strata_onnx_export *ex, const char *const *parts, int n) {
    const char *y = strata_onnx_add_node(ex, "Concat", parts, n, NULL);
    strata_onnx_set_int(ex, "axis", 1);
    return y;
}

/* A column of classes that are numbers: whether x is each of them. "" is a missing number. */
static const char *one_hot(strata_onnx_export *ex, const strata_column_info *column, const char *x) {
    const char **flags = strata_onnx_take(ex, (size_t)(column->n_words + 1) * sizeof(*flags));
    for (int k = 0; flags && k < column->n_words; k++) {
        double number = 0;
        const bool missing = !strata_cell_number(column->words[k], column->format, &number);
        flags[k] =
            missing ? strata_onnx_one(ex, "IsNaN", x) : strata_onnx_two(ex, "Equal", x, strata_onnx_put_number(ex, number));
        flags[k] = strata_onnx_converted(ex, flags[k], STRATA_ONNX_TYPE_FLOAT);
    }
    return flags ? joined(ex, flags, column->n_words) : x;
}

/* The features of a table whose columns are not all numbers without missing values. */
static const char *by_column(strata_onnx_export *ex, const char *x) {
    const int n_columns = strata_preprocessing_n_columns(ex->preprocessing);
    const char **parts = strata_onnx_take(ex, (size_t)(2 * n_columns + 1) * sizeof(*parts));
    int n = 0;
    for (int i = 0; parts && i < n_columns; i++) {
        const strata_column_info column = strata_preprocessing_column(ex->preprocessing, i);
        const int64_t place = i;
        const char *cell = strata_onnx_two(ex, "Gather", x, strata_onnx_put_ints(ex, &place, 1));
        strata_onnx_set_int(ex, "axis", 1);
        parts[n++] = column.kind == STRATA_COLUMN_WORDS ? one_hot(ex, &column, cell) : scaled(ex, i, 1, cell);
        if (column.kind != STRATA_COLUMN_WORDS && column.has_missing)
            parts[n++] = strata_onnx_converted(ex, strata_onnx_one(ex, "IsNaN", cell), STRATA_ONNX_TYPE_FLOAT);
    }
    return parts ? joined(ex, parts, n) : x;
}

bool strata_onnx_takes_numbers(const strata_preprocessing *p) {
    const strata_preprocessing_kind kind = p ? strata_preprocessing_get_kind(p) : STRATA_PREPROCESSING_TEXTS;
    return (kind == STRATA_PREPROCESSING_TABLE || kind == STRATA_PREPROCESSING_ARRAYS) && strata_preprocessing_n_columns(p);
}

bool strata_onnx_restores(const strata_preprocessing *p) {
    return p && strata_preprocessing_n_labels(p) && strata_preprocessing_label_column(p, 0).kind != STRATA_COLUMN_WORDS;
}

void strata_onnx_check_columns(strata_onnx_export *ex, const strata_preprocessing *p) {
    static const char *const kinds[] = {"numbers", "words", "dates", "text"};
    for (int i = 0; strata_onnx_takes_numbers(p) && i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_NUMBER || (column.kind == STRATA_COLUMN_WORDS && column.numeric && !column.n_rare))
            continue;
        strata_text_add(&ex->unsupported, "%sthe column \"%.60s\" of %s", ex->unsupported.n_bytes ? ", " : "",
                        column.name ? column.name : "x", kinds[column.kind]);
        ex->columns = true;
    }
}

const char *strata_onnx_features(strata_onnx_export *ex, const strata_preprocessing *p, const char *x) {
    const int n = strata_preprocessing_n_columns(p);
    bool plain = true;
    ex->base = STRATA_ONNX_FEATURES;
    for (int i = 0; i < n; i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        plain &= column.kind == STRATA_COLUMN_NUMBER && !column.has_missing;
    }
    return plain ? scaled(ex, 0, n, x) : by_column(ex, x);
}

const char *strata_onnx_restored(strata_onnx_export *ex, const strata_preprocessing *p, const char *y) {
    const int n = strata_preprocessing_n_labels(p);
    ex->base = STRATA_ONNX_FEATURES;
    y = strata_onnx_two(ex, "Mul", y, put_numbers(ex, strata_preprocessing_label_column, 0, n, true));
    return strata_onnx_two(ex, "Add", y, put_numbers(ex, strata_preprocessing_label_column, 0, n, false));
}
