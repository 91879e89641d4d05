/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a preprocessing, and the functions that the files of this folder share. The public header is
 * strata/preprocessing.h. */
#ifndef STRATA_CORE_DATA_PREPROCESSING_H
#define STRATA_CORE_DATA_PREPROCESSING_H

#include "core/base/alloc.h"
#include "core/data/prepare/cell.h"
#include "strata/preprocessing.h"
#include "strata/tokenizer.h"

/* "number", "words", ...: in model files and in the report for the user. */
extern const char *const strata_column_kinds[];

/* A column of features or labels. The class of a label with kind WORDS is the index of its word in `words`. */
typedef struct strata_column {
    char *name;
    strata_column_kind kind;
    /* DATE: the index of the format (cell.h), and whether any cell has a time of day. */
    int date_format;
    bool has_time;
    /* Some training rows have no value in this column. A feature then marks missing values. */
    bool has_missing;
    /* NUMBER and DATE: mean and standard deviation of the training rows that have a value. */
    double mean, deviation;
    /* WORDS: [n_words], sorted, which have a feature each; "" stands for a missing value. [n_rare], sorted: rarer words, which
     * share one feature. `numeric`: they are numbers in this format, so that "1" and "1.0" are the same class. */
    char **words, **rare;
    int n_words, n_rare;
    bool numeric;
    strata_number_format format;
    /* A label of words: "NA", "-" and the like are classes, unless the table's dialect lists them; only blank cells are
     * missing. */
    bool only_blank;
    /* A label of kind NUMBER whose values are whole numbers, which could also be learned as classes. */
    bool whole;
} strata_column;

struct strata_preprocessing {
    strata_preprocessing_kind kind;
    /* The names of all columns of the user's table, in its order. */
    char **header;
    int n_header;
    strata_column *columns;
    int n_columns;
    strata_column *labels;
    int n_labels;
    /* The name of the column with the weights; NULL: there are no weights. */
    char *weight;
    /* For columns of text: tokens per example, ids of the vocabulary, and the kind of tokenizer. The length may be 0 and the
     * tokenizer is NULL until they are computed from the training rows. */
    int64_t length, vocabulary;
    bool subwords;
    strata_tokenizer *tokenizer;
    /* TABLE and TEXTS: how the training table was written. decimal 0: none of its numbers has a fraction.
     * dialect.na is the list `na`. */
    strata_csv_dialect dialect;
    char **na;
    /* PICTURES and ARRAYS: the shape of one example. Arrays of rank above 2 use the mean and deviation of columns[0]. */
    strata_shape element;
    /* The text that strata_preprocessing_found returns; NULL: there is none. */
    char *found;
    /* Means, deviations and vocabulary were computed from the training rows. */
    bool measured;
};

STRATA_OWNER(strata_preprocessing)
/* Whether any column is text. If the kind is TEXTS, all columns are. */
bool strata_preprocessing_has_texts(const strata_preprocessing *p);

/* ---- reading.c: how numbers are written ---- */

/* Finds how a later table is written whose columns `indices` have numbers: as its own cells show, otherwise as the training
 * table was. Fails: DATA, with the line, if neither decides what a cell means. */
STRATA_MUST_USE strata_status strata_reading_of_later(const strata_preprocessing *p, const strata_csv *csv, const int *indices,
                                                      int n, strata_table_reading *out, strata_error *err);

/* ---- column.c: one column ---- */

/* Counts of a column's cells, from which the kind of the column is found. */
typedef struct strata_column_stats {
    /* The numbers of all cells, and of cells that are missing, that are numbers as the table is read, that are numbers with a
     * decimal point or comma, and that are whole numbers. */
    int64_t n_rows, n_missing, n_numbers, n_any, n_whole;
    /* How many cells are dates in each of the date formats, and how many have the form of such a date. */
    int64_t n_dates[STRATA_DATE_FORMATS], n_like[STRATA_DATE_FORMATS];
    /* n_different: how many different cells there are. words_each: how many words a cell has on average. Both ignore
     * missing cells, and are 0 if all cells are numbers. */
    int64_t n_different;
    double words_each;
    /* Each number is larger by 1 than the one in the row before. */
    bool counts_rows;
} strata_column_stats;
STRATA_MUST_USE strata_status strata_column_examine(const strata_csv *csv, int index, strata_number_format format,
                                                    strata_column_stats *out, strata_error *err);
/* Sets the column's words to the `most` most frequent ones, sorted by bytes or, if the column is numeric, by value, and its
 * rare words to the others. *out_rare: how many cells have rare words. */
STRATA_MUST_USE strata_status strata_column_find_words(strata_column *column, const strata_csv *csv, int index,
                                                       bool keep_missing, int most, int64_t *out_rare, strata_error *err);
/* Whether the cell has no value for this column. */
bool strata_column_is_missing(const strata_column *column, const strata_csv *csv, int64_t row, int index);
/* The index of the word in the column's words, n_words for a rare word; -1: it is none of them. "" is a missing value. format:
 * how it is written if it is a number; NULL: as the column's words. */
int strata_column_word(const strata_column *column, const char *word, const strata_number_format *format);
/* The value of a number, or a date in days since 1970-01-01; NaN for a missing one. Fails: DATA, with the line, if the cell is
 * neither. */
STRATA_MUST_USE strata_status strata_column_value(const strata_column *column, const strata_csv *csv,
                                                  const strata_table_reading *reading, int index, int64_t row, double *out,
                                                  strata_error *err);
/* The number of the column's features; 0 for text, whose tokens are a separate input. */
int64_t strata_column_width(const strata_column *column);
/* Writes the features of a number or date; NaN stands for a missing one. */
void strata_column_encode_value(const strata_column *column, double value, float *out);
/* Sets the column's mean and deviation to those of n values, ignoring NaN, and sets has_missing. */
void strata_column_measure(strata_column *column, const double *values, int64_t n);
void strata_column_finish(strata_column *column);

/* ---- label.c ---- */

/* Finds the kind of each label, and its classes. The labels are the columns `indices` of the table, or the array y. */
STRATA_MUST_USE strata_status strata_labels_find(strata_preprocessing *p, const strata_examples *examples, const int *indices,
                                                 strata_task task, strata_error *err);

/* ---- core/data/split.c ---- */

/* Writes the numbers 0..n-1 to `order`, shuffled by the seed. The first *out_first = n - round(n * fraction) of them are the
 * first part. If `classes` is not NULL, both parts have the same proportion of each class, as nearly as whole numbers allow. */
STRATA_MUST_USE strata_status strata_split_order(const int32_t *classes, int64_t n, double fraction, uint64_t seed,
                                                 int64_t *order, int64_t *out_first, strata_error *err);

#endif
