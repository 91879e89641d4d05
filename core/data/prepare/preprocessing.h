/* SPDX-License-Identifier: Apache-2.0
 *
 * What a preprocessing consists of, and what its files do for each other. Users see strata/preprocessing.h. */
#ifndef STRATA_CORE_DATA_PREPROCESSING_H
#define STRATA_CORE_DATA_PREPROCESSING_H

#include "strata/preprocessing.h"
#include "strata/tokenizer.h"

typedef enum strata_column_kind {
    STRATA_COLUMN_NUMBER,
    STRATA_COLUMN_WORDS,
    STRATA_COLUMN_DATE,
    STRATA_COLUMN_TEXT
} strata_column_kind;

/* A column, or a label: a label of words is a class, by its place among the words. */
typedef struct strata_column {
    char *name;
    strata_column_kind kind;
    /* NUMBER: "3,14". */
    bool decimal_comma;
    /* DATE: which format (cell.h), and whether some have a time of day. */
    int date_format;
    bool has_time;
    /* Training rows had missing values: there is a feature for them. */
    bool has_missing;
    /* NUMBER and DATE: of the training rows that have a value. */
    double mean, deviation;
    /* WORDS: [n_words], "" for a missing one. `numeric`: they are numbers, so that "1" and "1.0" are the same class. */
    char **words;
    int n_words;
    bool numeric;
    /* A label that is learned as a number, though its whole numbers could be classes. */
    bool whole;
} strata_column;

struct strata_preprocessing {
    strata_preprocessing_kind kind;
    /* The names of all columns of the table that it was found from, in their order. */
    char **header;
    int n_header;
    strata_column *columns;
    int n_columns;
    strata_column *labels;
    int n_labels;
    /* The column of weights; NULL: none. */
    char *weight;
    /* Of columns of text, in TEXTS or in a TABLE: length 0 and tokenizer NULL until they are made from the training rows. */
    int64_t length, vocabulary;
    bool subwords;
    strata_tokenizer *tokenizer;
    /* PICTURES and ARRAYS: of one example. ARRAYS are standardised by columns[0]. */
    strata_shape element;
    /* What was found, for a person; NULL: nothing. */
    char *found;
    /* Means, deviations and vocabulary are those of training rows. */
    bool measured;
};

/* Where examples come from: a table, or arrays. Borrowed. */
typedef struct strata_examples {
    /* NULL: arrays. */
    const strata_csv *csv;
    const strata_array *x;
    /* NULL: no labels. */
    const strata_array *y;
    /* For messages. */
    const char *name;
} strata_examples;

/* Whether there is a column of text: in TEXTS there is no other, and in a TABLE it is beside others. */
bool strata_preprocessing_has_texts(const strata_preprocessing *p);

/* ---- column.c: one column ---- */

/* What the cells of column `place` of a table look like. */
typedef struct strata_column_look {
    int64_t n_rows, n_missing, n_numbers, n_decimal_commas, n_whole;
    /* Whether the numbers have a comma for a point. What fits both, "1,234" say, is told by the table's separator: a ; stands
     * where commas are needed for numbers. */
    bool decimal_comma;
    /* Of each format. */
    int64_t n_dates[6];
    /* Different words among those that are not missing; words in a cell, on average. */
    int64_t n_different;
    double words_each;
    /* Whole numbers that count the rows, from any number on. */
    bool counts_rows;
} strata_column_look;
STRATA_MUST_USE strata_status strata_column_look_at(const strata_csv *csv, int place, strata_column_look *out,
                                                    strata_error *err);
/* Fills in the column's words: the `most` most frequent ones, in the order of bytes or, if numeric, of numbers. *out_others:
 * how many there are besides. */
STRATA_MUST_USE strata_status strata_column_find_words(strata_column *column, const strata_csv *csv, int place,
                                                       bool keep_missing, int most, int64_t *out_others, strata_error *err);
/* The place of a cell's word among the column's; -1: it is none of them. */
int strata_column_word(const strata_column *column, const char *cell);
/* A number or date as a number; NaN for a missing one. DATA, with the line, for a cell that is neither. */
STRATA_MUST_USE strata_status strata_column_value(const strata_column *column, const strata_csv *csv, int place, int64_t row,
                                                  double *out, strata_error *err);
/* How many features it has; 0 for text, whose tokens are an input of their own. */
int64_t strata_column_width(const strata_column *column);
/* Writes the features of a number or date; NaN is a missing one. */
void strata_column_encode_value(const strata_column *column, double value, float *out);
/* Mean and deviation of n values, NaN left out; sets has_missing too. */
void strata_column_measure(strata_column *column, const double *values, int64_t n);
void strata_column_finish(strata_column *column);

/* ---- label.c ---- */

/* Finds what the labels are: of csv the columns `places`, of arrays y. */
STRATA_MUST_USE strata_status strata_labels_find(strata_preprocessing *p, const strata_examples *examples, const int *places,
                                                 strata_task task, strata_error *err);

/* ---- table.c: rows as datasets ---- */

/* The rows that have labels, of n in all; the caller frees them. */
STRATA_MUST_USE strata_status strata_labelled_rows(const strata_preprocessing *p, const strata_examples *examples,
                                                   int64_t **out_rows, int64_t *out_n, strata_error *err);
/* Means, deviations and vocabulary, from these rows. */
STRATA_MUST_USE strata_status strata_preprocessing_measure(strata_preprocessing *p, const strata_examples *examples,
                                                           const int64_t *rows, int64_t n, strata_error *err);

/* ---- core/data/split.c ---- */

/* Puts 0..n-1 into `order`, shuffled by the seed, those of the first part before the others: *out_first = n - round(n *
 * fraction) of them. Where `classes` is not NULL, each class is divided so, as nearly as whole numbers allow. */
STRATA_MUST_USE strata_status strata_split_order(const int32_t *classes, int64_t n, double fraction, uint64_t seed,
                                                 int64_t *order, int64_t *out_first, strata_error *err);

#endif
