/* SPDX-License-Identifier: Apache-2.0
 *
 * Which columns of a table are features and which is the label, and which classes the label's words are. */
#ifndef STRATA_CORE_DATA_COLUMNS_H
#define STRATA_CORE_DATA_COLUMNS_H

#include "strata/csv.h"

/* Zero-initialize; finish when done. */
typedef struct strata_columns {
    int *features, n_features;
    /* -1: none. */
    int label, weight;
    /* [n_labels] If there are several label columns: their labels are numbers, and `label` is -1. */
    int *labels;
    int n_labels;
    char **classes;
    int n_classes;
} strata_columns;

/* Finds the columns of `opts`; its classes, if given, are copied. */
STRATA_MUST_USE strata_status strata_columns_choose(strata_columns *columns, const strata_csv *csv,
                                                    const strata_csv_options *opts, strata_error *err);
/* Makes the classes from the words in the label column, sorted by bytes, unless the options have classes. */
STRATA_MUST_USE strata_status strata_columns_find_classes(strata_columns *columns, const strata_csv *csv, strata_error *err);
/* The class of a row. Fails with DATA, with the line, if its label is not one of the classes. */
STRATA_MUST_USE strata_status strata_columns_class(const strata_columns *columns, const strata_csv *csv, int64_t row,
                                                   int *out_class, strata_error *err);
void strata_columns_finish(strata_columns *columns);

#endif
