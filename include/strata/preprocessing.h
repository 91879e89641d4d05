/* SPDX-License-Identifier: Apache-2.0
 *
 * Preprocessing: how tables, texts, pictures and arrays of a user's own become what a model learns from. It is found from the
 * data once, travels in the model's file, and does the same to all data that come later:
 *
 *     strata_csv_read_table("flowers.csv", 0, NULL, &csv, &err);
 *     strata_preprocessing_from_csv(csv, NULL, &preprocessing, &err);         which columns there are, what the classes are
 *     strata_preprocessing_split_csv(preprocessing, csv, 0.2, 0, &train, &test, &err);
 *     strata_model_set_preprocessing(model, preprocessing, &err);             saved inside the model file
 *
 * and later: strata_model_preprocessing(model, &preprocessing, &err); strata_csv_read_table("new.csv", 0, preprocessing, &csv,
 * &err); strata_preprocessing_apply_csv(preprocessing, csv, NULL, &data, &err); strata_preprocessing_restore after predict.
 *
 * What becomes of a column, by its kind:
 *   number  (x - mean) / deviation, of the training rows: 1 feature; where training had missing values there is a second
 *           feature, 1 for a missing one, else 0. A missing value is the mean.
 *   words   one feature for each of the at most 64 most frequent words: 1 for the word, else 0. A word that training did not
 *           have gives zeros. Missing is a word of its own if training had it.
 *   date    the days, as a number; sine and cosine of the time of year, of the week and, where there are times, of the day.
 *   text    tokens of all columns of text, i32 (length). Beside columns of other kinds the dataset has two inputs: "numbers",
 *           f32 (features of those columns), and "text", for a functional model with inputs of these names.
 *
 * The label is a class, by its word or number, or a number, (y - mean) / deviation. Thread: a preprocessing is read by any
 * number of threads at a time; the functions that take one without const change it. */
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

/* What the label is learned as. AUTO: words are classes; whole numbers are classes if there are at most 20 different ones, with
 * at least 3 rows each on average; other numbers are numbers. */
typedef enum strata_task { STRATA_TASK_AUTO = 0, STRATA_TASK_CLASSIFICATION, STRATA_TASK_REGRESSION } strata_task;

/* Zeros are the defaults. */
typedef struct strata_preprocessing_options {
    /* Names of the columns to be learned; several are numbers. n_labels 0: the last column. */
    const char *const *labels;
    int n_labels;
    /* Names of the columns to learn from. n_features 0: all others, without those that say nothing: row numbers, and words
     * that are different in almost every row. */
    const char *const *features;
    int n_features;
    /* The name of a column that says what a row weighs (strata_dataset_set_weights). NULL: none. */
    const char *weight;
    strata_task task;
    /* All columns to learn from are text, whatever they look like. */
    bool texts;
    /* Texts: tokens of an example (0: as many as 9 of 10 texts have, at most 400), words of the vocabulary (0: at most 20,000),
     * and whether words are cut into pieces, so that none is unknown. */
    int64_t length, vocabulary;
    bool subwords;
    /* Pictures: rows and columns that all are brought to (0: their own where all have the same, else at most 64), and channels,
     * 1 or 3 (0: 1 where all are grey). */
    int64_t rows, columns;
    int channels;
} strata_preprocessing_options;

/* Reads a table: a file, plain, .gz or .xz, or with "-" the standard input. A Parquet file is read by the module
 * libstrata_parquet.so; its columns have names, and messages say the row for the line.
 *   separator  0: the one of , ; tab | that divides the first lines into the same number of cells
 *   known      NULL: the first line names the columns, unless there is a number in it where the second line has one too; the
 *              columns are then "column 1", "column 2", ... Else the first line names the columns if one of its cells is the
 *              name of a column that `known` learned from; if none is, the cells are in the order of those columns, or in that
 *              of the whole table that `known` was found from.
 * Fails: as strata_csv_read; UNSUPPORTED for Parquet where the module cannot be opened; DATA for Parquet with lists or structs
 * in its cells; for another binary file, with what it is where that is known; for a table of a single column that another
 * character may separate; for rows without names that are not as wide as what `known` takes. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_read_table(const char *path, char separator,
                                                               const strata_preprocessing *known, strata_csv **out_csv,
                                                               strata_error *err);
/* The same from memory; `name` stands in messages. */
STRATA_API STRATA_MUST_USE strata_status strata_csv_parse_table(const char *name, const void *bytes, size_t n_bytes,
                                                                char separator, const strata_preprocessing *known,
                                                                strata_csv **out_csv, strata_error *err);

/* Finds what the columns of a table are. Their means, deviations and vocabulary are not known before
 * strata_preprocessing_split_csv has measured them. opts NULL: the defaults. Fails: DATA for a table without rows, labels or
 * features, a label of one class or of almost as many classes as rows, a column of numbers with a cell that is none (with its
 * line), an unknown column (with the nearest name). */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_csv(const strata_csv *csv,
                                                                       const strata_preprocessing_options *opts,
                                                                       strata_preprocessing **out_preprocessing,
                                                                       strata_error *err);
/* The same of arrays: features (n, d) are d columns of numbers, where NaN is missing; features of more axes are pictures,
 * where u8 is divided by 255 and other types are standardised with one mean and deviation; labels (n) or (n, k). */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_arrays(const strata_array *features,
                                                                          const strata_array *labels,
                                                                          const strata_preprocessing_options *opts,
                                                                          strata_preprocessing **out_preprocessing,
                                                                          strata_error *err);
/* The same of pictures, <path>/<class>/<name>.png, .jpg, .jpeg, .webp, .pgm or .ppm. Reads their headers. Fails: UNAVAILABLE
 * where there are none; DATA for a folder of a class without pictures, a single class, a damaged picture. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_pictures(const char *path,
                                                                            const strata_preprocessing_options *opts,
                                                                            strata_preprocessing **out_preprocessing,
                                                                            strata_error *err);
STRATA_API void strata_preprocessing_destroy(strata_preprocessing *preprocessing); /* NULL is fine */

/* Divides the rows at random by `seed`: *out_test gets round(n * fraction) of them, *out_train the others. Where labels are
 * classes, each class is divided so (strata_dataset_split). Means, deviations and the vocabulary become those of the training
 * rows. Rows without a label are left out. fraction 0: all rows are for training, and *out_test is NULL. Fails: DATA for a
 * cell that does not fit; INVALID for a fraction that leaves a part empty. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_split_csv(strata_preprocessing *preprocessing,
                                                                        const strata_csv *csv, double fraction, uint64_t seed,
                                                                        strata_dataset **out_train, strata_dataset **out_test,
                                                                        strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_split_arrays(strata_preprocessing *preprocessing,
                                                                           const strata_array *features,
                                                                           const strata_array *labels, double fraction,
                                                                           uint64_t seed, strata_dataset **out_train,
                                                                           strata_dataset **out_test, strata_error *err);

/* What applying met that the training data did not have. */
typedef struct strata_preprocessing_report {
    /* Rows without a label, which were left out. */
    int64_t n_unlabelled;
    /* Cells with words that are unknown, and the first of them with its column. */
    int64_t n_unknown;
    char word[64], column[64];
} strata_preprocessing_report;

/* Zeros are the defaults. */
typedef struct strata_apply_options {
    /* Columns of the table, in the order of those that the model learned from; n_columns 0: those of the same names. */
    const char *const *columns;
    int n_columns;
    /* The label is not read, and the dataset has none: to predict. */
    bool unlabelled;
    /* NULL: it is not wanted. */
    strata_preprocessing_report *report;
} strata_apply_options;

/* All rows as examples, in their order. A table may have other columns besides, and its columns in any order. Fails: DATA for a
 * column that is missing, a cell that does not fit its column (with its line), a label that is none of the classes; INVALID
 * before the columns were measured. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_csv(const strata_preprocessing *preprocessing,
                                                                        const strata_csv *csv, const strata_apply_options *opts,
                                                                        strata_dataset **out_dataset, strata_error *err);
/* labels NULL: the dataset has none. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_arrays(const strata_preprocessing *preprocessing,
                                                                           const strata_array *features,
                                                                           const strata_array *labels,
                                                                           strata_dataset **out_dataset, strata_error *err);
/* A folder of class folders, whose names are the labels; or, unlabelled, a picture or a folder of pictures. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_apply_pictures(const strata_preprocessing *preprocessing,
                                                                             const char *path, const strata_apply_options *opts,
                                                                             strata_dataset **out_dataset, strata_error *err);
/* Predictions f32 (n, ...) of a label that is a number become numbers in its own unit, in place: y * deviation + mean. Does
 * nothing where labels are classes. */
STRATA_API void strata_preprocessing_restore(const strata_preprocessing *preprocessing, strata_array *predictions);

STRATA_API strata_preprocessing_kind strata_preprocessing_get_kind(const strata_preprocessing *preprocessing);
/* The shape of an example's features; in a table with text beside other columns, of the input "numbers". */
STRATA_API strata_shape strata_preprocessing_element(const strata_preprocessing *preprocessing);
/* How many classes there are; 0: the labels are numbers. */
STRATA_API int strata_preprocessing_n_classes(const strata_preprocessing *preprocessing);
/* The word of a class; NULL out of range. Lives as long as the preprocessing, as do the names below. */
STRATA_API const char *strata_preprocessing_class_name(const strata_preprocessing *preprocessing, int64_t index);
STRATA_API int strata_preprocessing_n_labels(const strata_preprocessing *preprocessing);
STRATA_API const char *strata_preprocessing_label(const strata_preprocessing *preprocessing, int index);
/* How many tokens of text an example has, those of padding included; 0: no column is text. */
STRATA_API int64_t strata_preprocessing_n_tokens(const strata_preprocessing *preprocessing);
/* How many different tokens there may be; 0: no column is text. */
STRATA_API int64_t strata_preprocessing_vocabulary(const strata_preprocessing *preprocessing);
/* "4 numbers, 0 missing, 3 classes", and further lines on what was left out and why. "" for one that was loaded. */
STRATA_API const char *strata_preprocessing_found(const strata_preprocessing *preprocessing);

/* As JSON and back, exactly; the text is the caller's to free(). The tokenizer of texts is not in it. from_json fails: DATA
 * with the path of the field. */
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_to_json(const strata_preprocessing *preprocessing,
                                                                      char **out_text, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_preprocessing_from_json(const char *text, size_t n_bytes, const char *source,
                                                                        strata_preprocessing **out_preprocessing,
                                                                        strata_error *err);

/* Copies are saved with the model and loaded with it: its notes "preprocessing" and, for texts, "tokenizer". NULL takes them
 * away. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_preprocessing(strata_model *model,
                                                                        const strata_preprocessing *preprocessing,
                                                                        strata_error *err);
/* The model's, which the caller destroys. UNAVAILABLE when it has none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_preprocessing(const strata_model *model,
                                                                    strata_preprocessing **out_preprocessing,
                                                                    strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
