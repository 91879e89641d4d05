/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which columns of a table are features and which is the label, and to which classes the words of the label belong. */
#ifndef STRATA_CORE_DATA_COLUMNS_H
#define STRATA_CORE_DATA_COLUMNS_H

#include "strata/csv.h"

/* The names of columns that a caller chose. */
typedef struct strata_column_names {
    const char *const *labels;
    int n_labels;
    /* NULL: there is none. */
    const char *weight;
    /* n_features 0: all other columns are features. */
    const char *const *features;
    int n_features;
} strata_column_names;

/* Zero-initialize it, and call strata_columns_finish at the end. */
typedef struct strata_columns {
    /* [n_all] The indices of all columns that are used: n_features features, the labels, which begin at `labels`, the weight. */
    int *features, n_features, n_all;
    int *labels, n_labels;
    /* -1: there is none. */
    int weight;
    /* Of strata_columns_choose: the only label, whose words may be classes; -1: there is none, or there are several, which are
     * numbers. n_labels is 0 unless there are several. */
    int label;
    char **classes;
    int n_classes;
} strata_columns;

/* Finds the indices of these columns. Fails: DATA if no column has a name, INVALID if one is named twice. */
STRATA_MUST_USE strata_status strata_columns_find(strata_columns *columns, const strata_csv *csv,
                                                  const strata_column_names *names, strata_error *err);
/* Finds the columns that `opts` names. If `opts` contains classes, they are copied. */
STRATA_MUST_USE strata_status strata_columns_choose(strata_columns *columns, const strata_csv *csv,
                                                    const strata_csv_options *opts, strata_error *err);
/* Makes the classes from the words in the label column, sorted by bytes, unless the options have classes. */
STRATA_MUST_USE strata_status strata_columns_find_classes(strata_columns *columns, const strata_csv *csv, strata_error *err);
/* The class of a row. Fails with DATA, with the line, if its label is not one of the classes. */
STRATA_MUST_USE strata_status strata_columns_class(const strata_columns *columns, const strata_csv *csv, int64_t row,
                                                   int *out_class, strata_error *err);
void strata_columns_finish(strata_columns *columns);

#endif
