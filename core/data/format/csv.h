/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of CSV files for readers of tables, in addition to strata/csv.h. */
#ifndef STRATA_CORE_DATA_CSV_H
#define STRATA_CORE_DATA_CSV_H

#include "core/base/alloc.h"
#include "strata/csv.h"

STRATA_OWNER(strata_csv)

/* Replaces the table's dialect by a copy. */
STRATA_MUST_USE strata_status strata_csv_set_dialect(strata_csv *csv, const strata_csv_dialect *dialect, strata_error *err);
/* Checks that the characters of the dialect are possible and differ. */
STRATA_MUST_USE strata_status strata_csv_check_dialect(const strata_csv_dialect *dialect, strata_error *err);
/* Whether a cell of this text is missing in the table: it is blank or one of the dialect's words of missing values. */
bool strata_csv_marks_missing(const strata_csv *csv, const char *cell);
/* Like strata_csv_parse, for the first lines of a file. Whether the first line is a header is not known yet, so two of its
 * cells may be equal. The bytes are not decompressed. */
STRATA_MUST_USE strata_status strata_csv_parse_first(const char *name, const void *bytes, size_t n_bytes,
                                                     const strata_csv_dialect *dialect, strata_csv **out_csv,
                                                     strata_error *err);
/* Makes a table of cells that were read from another format. Each cell ends with a NUL; the names of the columns come first,
 * then n_columns cells for each row. Takes the bytes, even on failure. The line of a row is its number, from 1. Fails: DATA for
 * a cell that is not UTF-8, a column named twice. */
STRATA_MUST_USE strata_status strata_csv_take_cells(const char *name, char *cells, size_t n_bytes, int n_columns,
                                                    strata_csv **out_csv, strata_error *err);

/* ---- core/data/columns.c: which columns are features and which is the label, and to which classes its words belong ---- */

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
    /* [n_all] The indices of all columns that are used: n_features features, the labels (`labels`), the weight. */
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
