/* SPDX-License-Identifier: Apache-2.0
 *
 * Preprocessing: how a user's tables, texts, pictures and arrays are converted to the features and labels that a model learns
 * from. A strata_preprocessing is derived from the training data once, is saved in the model's file, and converts all later
 * data in the same way:
 *
 *     strata_csv_read_table("flowers.csv", NULL, NULL, &csv, &err);
 *     strata_preprocessing_from_csv(csv, NULL, &preprocessing, &err);         finds the kinds of the columns, and the classes
 *     strata_preprocessing_split_csv(preprocessing, csv, 0.2, 0, &train, &test, &err);
 *     strata_model_set_preprocessing(model, preprocessing, &err);             saved inside the model file
 *
 * and later: strata_model_preprocessing(model, &preprocessing, &err); strata_csv_read_table("new.csv", NULL, preprocessing,
 * &csv, &err); strata_preprocessing_apply_csv(preprocessing, csv, NULL, &data, &err); strata_preprocessing_restore after
 * predict.
 *
 * The features of a column, by its kind:
 *   number  (x - mean) / deviation, with the mean and standard deviation of the training rows: 1 feature. A missing value is
 *           replaced by the mean. If the training rows had missing values, a second feature is 1 where the value is missing,
 *           else 0.
 *   words   one feature for each of the at most 1,024 most frequent words (fewer in tables of more than 260,000 rows): 1 for
 *           the word, else 0. All other words of the table share one feature. A word that is not in the table gives zeros. A
 *           missing value counts as a word if the training rows had missing values.
 *   date    the count of days, as a number; the sine and cosine of the time of the year, of the week and, if the column has
 *           times, of the day.
 *   text    tokens of all columns of text, i32 (length). Beside columns of other kinds the dataset has two inputs: "numbers",
 *           f32 (features of those columns), and "text", for a functional model with inputs of these names.
 *
 * A label is either a class, given by a word or a number, or a number, (y - mean) / deviation. Threads: any number of threads
 * may use a preprocessing at a time, as long as none calls a function that takes it without const, which changes it. */
#ifndef STRATA_PREPROCESSING_H
#define STRATA_PREPROCESSING_H

#include "strata/csv.h"
#include "strata/dataset.h"
#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_preprocessing strata_preprocessing;

typedef enum strata_preprocessing_kind {
    STRATA_PREPROCESSING_TABLE,
    STRATA_PREPROCESSING_TEXTS,
    STRATA_PREPROCESSING_PICTURES,
    STRATA_PREPROCESSING_ARRAYS
} strata_preprocessing_kind;

/* Whether labels are classes or numbers. AUTO: words are classes; integers are classes if there are at most 20 different ones
 * with at least 3 rows each on average; all other labels are numbers. */
typedef enum strata_task { STRATA_TASK_AUTO = 0, STRATA_TASK_CLASSIFICATION, STRATA_TASK_REGRESSION } strata_task;

/* Zeros are the defaults. */
typedef struct strata_preprocessing_options {
    /* Names of the label columns. If there are several, their labels are numbers. n_labels 0: the last column. */
    const char *const *labels;
    int n_labels;
    /* Names of the feature columns. n_features 0: all other columns, except row numbers and words that differ in almost every
     * row. */
    const char *const *features;
    int n_features;
    /* The name of the column with the rows' sample weights (strata_dataset_set_weights). NULL: none. */
    const char *weight;
    strata_task task;
    /* All feature columns are text, whatever their cells contain. */
    bool texts;
    /* Texts: length is the number of tokens of an example (0: at least as many as 9 of 10 texts have, at most 400), vocabulary
     * the number of words (0: at most 20,000). subwords splits words into pieces, so that no word is unknown. */
    int64_t length, vocabulary;
    bool subwords;
    /* Pictures: the rows and columns to which all pictures are resized (0: their own size if all have the same, else at most
     * 64), and channels, 1 or 3 (0: 1 if all pictures are grey, else 3). */
    int64_t rows, columns;
    int channels;
} strata_preprocessing_options;

/* Reads a table: a file, plain, .gz or .xz, a .zip that has one table, or with "-" the standard input. A Parquet file is read
 * by the module libstrata_parquet.so; its columns always have names, and messages give the row instead of the line.
 *   dialect  What its fields leave open, and all if it is NULL, the file shows:
 *            separator  the one of , ; tab | that divides the first lines into the same number of cells, of which the fewest
 *                       contain another of these characters without being numbers; if two are equal, that of `known`
 *            header     whether the first line contains the columns' names is found from the first 200 lines: a name is a
 *                       word above numbers or dates, a word that is not among words that repeat, or one of the numbers 0, 1,
 *                       2, ... by which pandas names columns, above other numbers. Without a header the names are "column 1",
 *                       "column 2", ...
 *            decimal, thousands, dates  are found by strata_preprocessing_from_csv; see there
 *   known    NULL: a table to learn from. Not NULL: a later table. The first line contains the columns' names if it has those
 *            of the feature columns of `known`. Otherwise the cells are in the order of those columns, or in the order of the
 *            whole table from which `known` was derived. The words of missing values are those of the training table.
 * Fails: as strata_csv_read; UNSUPPORTED for Parquet where the module cannot be opened; DATA for Parquet with lists or structs
 * in its cells; DATA for another binary file (the message names the format if it is recognized); DATA if two separators divide
 * the lines equally well; DATA for a table of one column that has another separator; DATA for rows without column names whose
 * number of cells does not fit `known`. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_read_table(const char *path, const strata_csv_dialect *dialect,
                                                               const strata_preprocessing *known, strata_csv **out_csv,
                                                               strata_error *err);
/* The same from memory. `name` is used in messages. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_parse_table(const char *name, const void *bytes, size_t n_bytes,
                                                                const strata_csv_dialect *dialect,
                                                                const strata_preprocessing *known, strata_csv **out_csv,
                                                                strata_error *err);

/* Finds the kinds of a table's columns, and how their cells are written. The decimal character is one for the whole table: a
 * cell such as "0.5" or "1,234.5" has one meaning only and decides for all columns. If there is none, a column in which only
 * the numbers from 1000 on have groups decides, and then the separator: with ';', "1,234" is 1.234. Dates whose day and month
 * could be exchanged have the order of other columns of dates, otherwise the month comes first in 1/2/2024, and the day in
 * 1.2.2024 and 1-2-2024. The dialect is saved with the preprocessing. Means, deviations and the vocabulary are not known before
 * strata_preprocessing_split_csv has computed them. opts NULL: the defaults. Fails: DATA for a table without rows, labels or
 * features; for a label with one class or with almost as many classes as rows; for a column of numbers with a cell that is not
 * a number, and a column of dates with a cell that is not a date (the message gives the line); for columns of which some have a
 * decimal point and some a decimal comma; for an unknown column (the message gives the most similar name). */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_csv(const strata_csv *csv,
                                                                       const strata_preprocessing_options *opts,
                                                                       strata_preprocessing **out_preprocessing,
                                                                       strata_error *err);
/* The same for arrays. features (n, d) are d columns of numbers, where NaN is a missing value. features with more axes are
 * pictures: u8 is divided by 255, other types are standardised with one mean and one deviation. The type of the training data
 * decides this for all later arrays, whatever their type. labels are (n) or (n, k). */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_arrays(const strata_array *features,
                                                                          const strata_array *labels,
                                                                          const strata_preprocessing_options *opts,
                                                                          strata_preprocessing **out_preprocessing,
                                                                          strata_error *err);
/* The same for pictures in <path>/<class>/, also in folders in it and behind links: PNG, JPEG, WebP, GIF, TIFF, BMP, PBM, PGM
 * and PPM. Hidden files are left out. strata_preprocessing_found counts what was left out. Reads only the headers of the files.
 * Fails: UNAVAILABLE if there are no pictures; DATA for a class whose folder has no pictures, for a single class, and for a
 * damaged picture. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_pictures(const char *path,
                                                                            const strata_preprocessing_options *opts,
                                                                            strata_preprocessing **out_preprocessing,
                                                                            strata_error *err);
STRATA_API void strata_preprocessing_destroy(strata_preprocessing *preprocessing); /* NULL is fine */

/* Divides the rows at random by `seed`: *out_test gets round(n * fraction) of them, *out_train the others. If labels are
 * classes, each class is divided in this proportion (strata_dataset_split). Means, deviations and the vocabulary become those
 * of the training rows. Rows without a label are left out. fraction 0: all rows are for training, and *out_test is NULL. Fails:
 * DATA for a cell that does not fit its column's kind; INVALID for a fraction that leaves one of the two parts empty. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_split_csv(strata_preprocessing *preprocessing,
                                                                        const strata_csv *csv, double fraction, uint64_t seed,
                                                                        strata_dataset **out_train, strata_dataset **out_test,
                                                                        strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_split_arrays(strata_preprocessing *preprocessing,
                                                                           const strata_array *features,
                                                                           const strata_array *labels, double fraction,
                                                                           uint64_t seed, strata_dataset **out_train,
                                                                           strata_dataset **out_test, strata_error *err);

/* A user's examples: a table or arrays. All pointers are borrowed. */
typedef struct strata_examples {
    /* The table, and how it is written (strata_reading_find); NULL: the examples are the arrays x and y. */
    const strata_csv *csv;
    strata_table_reading reading;
    const strata_array *x;
    /* The labels; NULL: there are none. */
    const strata_array *y;
    /* The values of x and y in double, where the file has them; NULL: those of the arrays are exact. */
    const double *exact_x, *exact_y;
    /* The name of the data in messages. */
    const char *name;
} strata_examples;
/* As strata_preprocessing_from_arrays, _split_arrays and _apply_arrays, for examples whose exact_x and exact_y may be given. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_examples(const strata_examples *examples,
                                                                            const strata_preprocessing_options *opts,
                                                                            strata_preprocessing **out_preprocessing,
                                                                            strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_split_examples(strata_preprocessing *p,
                                                                             const strata_examples *examples, double fraction,
                                                                             uint64_t seed, strata_dataset **out_train,
                                                                             strata_dataset **out_test, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_examples(const strata_preprocessing *p,
                                                                             const strata_examples *examples,
                                                                             strata_dataset **out_dataset, strata_error *err);
/* The deviation of a label that is a number: a difference of 1 between two predictions is this many of the label's units. */
STRATA_API double strata_preprocessing_label_unit(const strata_preprocessing *p, int label);

/* What strata_preprocessing_apply_csv found in the table that the training data did not have, and what
 * strata_preprocessing_apply_pictures left out. */
typedef struct strata_preprocessing_report {
    /* Rows without a label, which were left out. */
    int64_t n_unlabelled;
    /* How many cells have unknown words, and the first of these words with its column. */
    int64_t n_unknown;
    char word[64], column[64];
    /* The decimal character of the table, if it differs from that of the training data; else 0. */
    char decimal;
    /* Files of a folder of pictures that were left out: "left out 1 broken link (cats/1.png)"; "": none. */
    char left_out[512];
} strata_preprocessing_report;

/* Zeros are the defaults. */
typedef struct strata_apply_options {
    /* The columns of the table that correspond, in this order, to the feature columns of the preprocessing; n_columns 0: the
     * columns with the same names. */
    const char *const *columns;
    int n_columns;
    /* Labels are not read, and the dataset has none. For predictions. */
    bool unlabelled;
    /* Filled by the call; NULL: no report. */
    strata_preprocessing_report *report;
} strata_apply_options;

/* Converts all rows to examples, in their order. The table may have further columns, and its columns may be in any order. Its
 * numbers may be written otherwise than those of the training data if its cells show it ("0,5"). Fails: DATA if they do not
 * ("1,234" where the training data had a decimal point and no groups); for a missing column, for a cell that does not fit its
 * column's kind (the message gives the line), and for a label that is not one of the classes; INVALID before
 * strata_preprocessing_split_csv. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_csv(const strata_preprocessing *preprocessing,
                                                                        const strata_csv *csv, const strata_apply_options *opts,
                                                                        strata_dataset **out_dataset, strata_error *err);
/* labels NULL: the dataset has none. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_arrays(const strata_preprocessing *preprocessing,
                                                                           const strata_array *features,
                                                                           const strata_array *labels,
                                                                           strata_dataset **out_dataset, strata_error *err);
/* path: a folder with a folder for each class, whose name is the label; with opts->unlabelled, a picture or a folder of
 * pictures. Pictures in folders below and behind links are used, too. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_pictures(const strata_preprocessing *preprocessing,
                                                                             const char *path, const strata_apply_options *opts,
                                                                             strata_dataset **out_dataset, strata_error *err);
/* Converts predictions, f32 (n, ...), of labels that are numbers back to the unit of the labels, in place: y * deviation +
 * mean. Does nothing if labels are classes. */
STRATA_API void strata_preprocessing_restore(const strata_preprocessing *preprocessing, strata_array *predictions);

STRATA_API strata_preprocessing_kind strata_preprocessing_get_kind(const strata_preprocessing *preprocessing);
/* The shape of an example's features. For a table with text and other columns, it is the shape of the input "numbers". */
STRATA_API strata_shape strata_preprocessing_element(const strata_preprocessing *preprocessing);
/* How many classes there are; 0: the labels are numbers. */
STRATA_API int strata_preprocessing_n_classes(const strata_preprocessing *preprocessing);
/* The name of a class; NULL if index is out of range. The text lives as long as the preprocessing, and so do the names
 * below. */
STRATA_API const char *strata_preprocessing_class_name(const strata_preprocessing *preprocessing, int64_t index);
STRATA_API int strata_preprocessing_n_labels(const strata_preprocessing *preprocessing);
STRATA_API const char *strata_preprocessing_label(const strata_preprocessing *preprocessing, int index);
/* How many tokens of text an example has, including padding; 0: no column is text. */
STRATA_API int64_t strata_preprocessing_n_tokens(const strata_preprocessing *preprocessing);
/* The size of the vocabulary; 0: no column is text. */
STRATA_API int64_t strata_preprocessing_vocabulary(const strata_preprocessing *preprocessing);
/* A description such as "4 numbers, 0 missing, 3 classes", followed by lines with the columns and their kinds, the dialect as
 * options of the command, what could be read otherwise, words without a feature of their own, and columns that were left out
 * and why. "" for a preprocessing that was loaded. */
STRATA_API const char *strata_preprocessing_found(const strata_preprocessing *preprocessing);

typedef enum strata_column_kind {
    STRATA_COLUMN_NUMBER,
    STRATA_COLUMN_WORDS,
    STRATA_COLUMN_DATE,
    STRATA_COLUMN_TEXT
} strata_column_kind;

/* A column of features or of labels. All texts live as long as the preprocessing. */
typedef struct strata_column_info {
    /* NULL for arrays. */
    const char *name;
    strata_column_kind kind;
    /* WORDS: those with a feature each; "" stands for a missing value. `rare`: those that share one feature. */
    const char *const *words, *const *rare;
    int n_words, n_rare;
    /* The words are numbers, and how these are written. */
    bool numeric;
    strata_number_format format;
    /* NUMBER and DATE: the feature is (x - mean) / deviation. */
    double mean, deviation;
    /* A second feature marks missing values. */
    bool has_missing;
    /* DATE: it has features of the time of day. */
    bool has_time;
} strata_column_info;
/* How many columns of features there are. */
STRATA_API int strata_preprocessing_n_columns(const strata_preprocessing *preprocessing);
/* A column of features. */
STRATA_API strata_column_info strata_preprocessing_column(const strata_preprocessing *preprocessing, int index);
/* The same of a label. WORDS: the words are the classes. */
STRATA_API strata_column_info strata_preprocessing_label_column(const strata_preprocessing *preprocessing, int index);
/* How many columns the whole table of the training data had, and the name of one of them. */
STRATA_API int strata_preprocessing_n_header(const strata_preprocessing *preprocessing);
STRATA_API const char *strata_preprocessing_header(const strata_preprocessing *preprocessing, int index);
/* How that table was written; decimal 0: none of its numbers has a fraction. */
STRATA_API const strata_csv_dialect *strata_preprocessing_dialect(const strata_preprocessing *preprocessing);

/* Converts to JSON and back without loss. The caller frees the text with free(). The text does not contain the tokenizer.
 * from_json fails: DATA; the message gives the path of the wrong field. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_to_json(const strata_preprocessing *preprocessing,
                                                                      char **out_text, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_json(const char *text, size_t n_bytes, const char *source,
                                                                        strata_preprocessing **out_preprocessing,
                                                                        strata_error *err);

/* Copies the preprocessing, and for texts its tokenizer, into the model. They are saved and loaded with the model, as its notes
 * "preprocessing" and "tokenizer". NULL removes them. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_preprocessing(strata_model *model,
                                                                        const strata_preprocessing *preprocessing,
                                                                        strata_error *err);
/* Returns a copy of the model's preprocessing, which the caller destroys. Fails: UNAVAILABLE if the model has none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_preprocessing(const strata_model *model,
                                                                    strata_preprocessing **out_preprocessing,
                                                                    strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
