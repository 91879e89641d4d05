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

/* Whether the first line has the names of the columns. FOUND: it is found from the cells. */
typedef enum strata_csv_header { STRATA_CSV_HEADER_FOUND = 0, STRATA_CSV_HEADER_YES, STRATA_CSV_HEADER_NO } strata_csv_header;

/* The order of day, month and year in dates. */
typedef enum strata_date_order { STRATA_DATE_FOUND = 0, STRATA_DATE_DMY, STRATA_DATE_MDY, STRATA_DATE_YMD } strata_date_order;

/* For strata_csv_dialect: there are no quotes, or there is no separator of thousands. */
#define STRATA_CSV_NONE '\1'

/* How the text of a table is written. Zeros: what the file shows (strata_csv_read_table in preprocessing.h), or the usual. */
typedef struct strata_csv_dialect {
    /* The character between cells: one of , ; tab | in any file, or another one. */
    char separator;
    /* The character around cells that contain separators, line ends or quotes; STRATA_CSV_NONE: quotes are characters like
     * others. 0: '"'. */
    char quote;
    strata_csv_header header;
    /* The character before the fraction of numbers, '.' or ','. It is the same in all columns. */
    char decimal;
    /* The character between groups of three digits: ',', '.', ' ' or '\''; STRATA_CSV_NONE: there are no groups with ',' or
     * '.'. */
    char thousands;
    strata_date_order dates;
    /* The words of missing values. An empty cell is always missing. NULL: NA, N/A, NaN, null, None, ?, - and --, in lower or
     * upper case; these eight are words like others in a column of labels that are words. */
    const char *const *na;
    int n_na;
} strata_csv_dialect;

/* Reads a file, plain, .gz or .xz (told apart by its first bytes). The first record names the columns
 * unless dialect->header is STRATA_CSV_HEADER_NO; they are then called "column 1", "column 2", ... Empty lines and a byte-order
 * mark are skipped.
 *   dialect  NULL, and zeros: ',' between cells, '"' around them, a header. It is copied.
 * Fails: DATA with line and column for a record with another number of cells than the header, a quote inside a bare cell, text
 * behind a closing quote, an open quote, a NUL, bytes that are not UTF-8, a column named twice; UNAVAILABLE when the file can't
 * be read; INVALID for a dialect that contradicts itself. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_read(const char *path, const strata_csv_dialect *dialect,
                                                         strata_csv **out_csv, strata_error *err);
/* The same from memory; messages show `name` as the file's name. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_parse(const char *name, const void *bytes, size_t n_bytes,
                                                          const strata_csv_dialect *dialect, strata_csv **out_csv,
                                                          strata_error *err);
/* The same for rows without a header. `columns` are the names of the columns, which are copied; NULL: as strata_csv_parse. It
 * also fails with INVALID for less than one column. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_parse_rows(const char *name, const void *bytes, size_t n_bytes,
                                                               const strata_csv_dialect *dialect, const char *const *columns,
                                                               int n_columns, strata_csv **out_csv, strata_error *err);
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
/* The dialect with which the table was read. Its lists live as long as the table. */
STRATA_API const strata_csv_dialect *strata_csv_get_dialect(const strata_csv *csv);
/* Whether the cell has no value: it is blank or one of the words of missing values of the table's dialect. */
STRATA_API bool strata_csv_is_missing(const strata_csv *csv, int64_t row, int column);
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
    /* strata_dataset_csv: the column that says what a row weighs (strata_dataset_set_weights); NULL: none. */
    const char *weight;
    /* How the table is written; zeros: what the file shows. */
    strata_csv_dialect dialect;
} strata_csv_options;

/* How numbers are written. */
typedef struct strata_number_format {
    /* The character before the fraction: '.' or ','. */
    char decimal;
    /* The character between groups of three digits: ',' or '.'. 0: neither of them is. Spaces and apostrophes between groups
     * are read in any format, since they have no other meaning. */
    char thousands;
} strata_number_format;
/* Parses a finite decimal number. Returns false if the cell is not a number in this format. Spaces before and after it are
 * allowed. Digits may be in groups of three. A currency ($, €, £, ¥, ₹) may stand before or after the number, and % after it;
 * both are ignored, so "50 %" is 50. The program's locale is not used. */
STRATA_API bool strata_cell_number(const char *cell, strata_number_format format, double *out);

/* How the cells of one table are read. */
typedef struct strata_table_reading {
    strata_number_format numbers;
    /* The order of dates that the user gave; FOUND: that of each column. */
    strata_date_order dates;
} strata_table_reading;
/* What strata_reading_find found. */
typedef struct strata_reading_facts {
    /* Numbers of the table depend on the decimal character; some have a fraction, some have groups of digits. */
    bool decided, has_fractions, has_groups;
    /* A cell that is another number with the other decimal character, if only the separator decided; NULL otherwise. */
    const char *doubt;
} strata_reading_facts;
/* Finds how the numbers of a table's columns `indices` are written, from the cells that have one meaning only, from columns in
 * which only larger numbers have groups, and from the separator. facts: NULL: not needed. Fails: DATA if columns contradict
 * each other. */
STRATA_API STRATA_MUST_USE strata_status strata_reading_find(const strata_csv *csv, const int *indices, int n,
                                                             strata_table_reading *out, strata_reading_facts *facts,
                                                             strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
