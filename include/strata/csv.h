/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV tables (RFC 4180: commas, "quoted" cells that may contain commas, line breaks and doubled quotes) with a header, which
 * are read into memory as a whole. strata_dataset_csv and strata_dataset_from_csv in dataset.h make datasets of their numbers;
 * strata_texts_csv and strata_texts_from_csv in tokenizer.h make documents of their texts. */
#ifndef STRATA_CSV_H
#define STRATA_CSV_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_csv strata_csv;

/* Reads a file, plain, .gz or .xz (told apart by its first bytes). The first record names the columns. Empty lines and a
 * byte-order mark are skipped.
 *   separator  0: ','
 * Fails: DATA with line and column for a record with another number of cells than the header, a quote inside a bare cell, text
 * behind a closing quote, an open quote, a NUL, bytes that are not UTF-8, a column named twice; UNAVAILABLE when the file can't
 * be read. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_read(const char *path, char separator, strata_csv **out_csv,
                                                         strata_error *err);
/* The same from memory; messages show `name` as the file's name. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_parse(const char *name, const void *bytes, size_t n_bytes, char separator,
                                                          strata_csv **out_csv, strata_error *err);
/* The same for rows without a header. `columns` are the names of the columns, which are copied; NULL: as strata_csv_parse. It
 * also fails with INVALID for less than one column. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_parse_rows(const char *name, const void *bytes, size_t n_bytes,
                                                               char separator, const char *const *columns, int n_columns,
                                                               strata_csv **out_csv, strata_error *err);
STRATA_API void strata_csv_destroy(strata_csv *csv); /* NULL is fine */

/* The number of rows, without the header. */
STRATA_API int64_t strata_csv_n_rows(const strata_csv *csv);
STRATA_API int strata_csv_n_columns(const strata_csv *csv);
/* The name of a column. */
STRATA_API const char *strata_csv_column(const strata_csv *csv, int column);
/* The name of the file, for messages. */
STRATA_API const char *strata_csv_name(const strata_csv *csv);
/* The index of the column with this name. If there is none, it fails with DATA and a message that has the most similar name, or
 * all names. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_find(const strata_csv *csv, const char *column, int *out_column,
                                                         strata_error *err);
/* The text of a cell without quotes: NUL-terminated UTF-8, valid as long as the table. */
STRATA_API const char *strata_csv_cell(const strata_csv *csv, int64_t row, int column);
/* The line of the file in which the row begins, counted from 1. */
STRATA_API int64_t strata_csv_line(const strata_csv *csv, int64_t row);

/* Which columns are used. Zero-initialize. */
typedef struct strata_csv_options {
    /* column names, in this order; NULL: every column but the label's and the weight's. */
    const char *const *features;
    int n_features;
    /* column name; NULL: no labels. */
    const char *label;
    /* Several columns that are learned together, instead of one: numbers, f32 (n, n_labels). For strata_dataset_csv;
     * n_labels 0: none. */
    const char *const *labels;
    int n_labels;
    /* The words that a label may be, in the order of their classes; NULL: see strata_dataset_csv. */
    const char *const *classes;
    int n_classes;
    const char
        /* strata_dataset_csv: the column that says what a row weighs (strata_dataset_set_weights); NULL: none. */
        *weight;
    /* 0: ','. */
    char separator;
} strata_csv_options;

#ifdef __cplusplus
}
#endif
#endif
