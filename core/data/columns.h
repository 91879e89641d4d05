/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which columns of a table are features and which is the label, and to which classes the words of the label belong. */
#ifndef STRATA_CORE_DATA_COLUMNS_H
#define STRATA_CORE_DATA_COLUMNS_H

#include "strata/csv.h"

/* The names of columns that a caller chose. */
typedef struct strata_column_names {
    /* NULL: the indices of the labels are known. */
    const char *const *labels;
    int n_labels;
    /* NULL: there is none. */
    const char *weight;
    /* n_features 0: all other columns are features. */
    const char *const *features;
    int n_features;
} strata_column_names;
/* Finds their indices. *out_weight -1: there is none. Fails: DATA if no column has a name, INVALID if one is named twice. */
STRATA_MUST_USE strata_status strata_columns_find(const strata_csv *csv, const strata_column_names *names, int *labels,
                                                  int *out_weight, int *out_features, int *out_n_features, strata_error *err);

/* Zero-initialize it, and call strata_columns_finish at the end. */
typedef struct strata_columns {
    int *features, n_features;
    /* The indices of the columns; -1: there is none. */
    int label, weight;
    /* [n_labels] The indices of several label columns. Their labels are numbers, and `label` is then -1. */
    int *labels;
    int n_labels;
    char **classes;
    int n_classes;
} strata_columns;

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
