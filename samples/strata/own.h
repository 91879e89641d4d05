/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's own data: tables, texts, folders of pictures, arrays (own.c); models for them (own_models.c); changes to a model's
 * JSON (settings.c). */
#ifndef STRATA_SAMPLES_OWN_H
#define STRATA_SAMPLES_OWN_H

#include <stdio.h>

#include "samples.h"

/* ---- own.c ---- */
/* Whether `strata train NAME` names data: "-", a folder, or a file that is no model. */
bool is_own_data(const char *name);
/* The open function of a sample. split "train": opens the training part of a table, a folder or arrays, and stores the part for
 * testing in data->rest. split "test": returns data->rest, or, if that is NULL and the model's preprocessing is in
 * data->preprocessing, all examples. */
int open_own(const sample *sample, const data_options *options, const char *split, sample_data *data);
/* Opens examples without labels, for predictions. */
int open_unlabelled(const strata_preprocessing *preprocessing, const data_options *options, strata_dataset **out);
/* Opens examples without labels for predictions of a model without preprocessing: a table, a row, or arrays. */
STRATA_MUST_USE strata_status open_as_they_are(const strata_model *model, const data_options *options, strata_dataset **out,
                                               strata_error *err);
/* Prints for example "4 numbers, 0 missing, 3 classes; 120 train / 30 test, shuffled and stratified, seed 0". */
void print_own(FILE *to, const data_options *options, const sample_data *data, const strata_dataset *train,
               const strata_dataset *test);
/* The row of the table of samples that stands for the user's own data. */
const sample *own_sample(void);
/* Reads --separator: one character, or "tab", "\t", "space". *out is 0 if `text` is NULL: the separator is then detected. */
strata_status read_separator(const char *text, char *out, strata_error *err);
/* Describes, in one line, the cells whose words the training data did not have. */
typedef struct unknown_words {
    char text[320];
} unknown_words;
unknown_words describe_unknown(const strata_preprocessing_report *report);
/* Prints on stderr how many rows had no label, and how many words the training data did not have. */
void print_report(const strata_preprocessing_report *report);

/* Whether the first bytes of a file are those of an .npz archive. */
bool is_npz(const char *path);
/* The share of the examples that is kept for testing (--test-split). */
double test_fraction(const data_options *options);
/* Divides a dataset, which it takes, into data->dataset, for training, and data->rest, for testing. */
strata_status split_dataset(const data_options *options, strata_dataset *whole, sample_data *data, strata_error *err);

/* ---- named_arrays.c ---- */
/* Whether the model has several inputs or outputs. */
bool has_several_ports(const strata_model *model);
/* Whether its inputs are "numbers" and "text", those of a table with a column of texts. */
bool takes_table_with_texts(const strata_model *model);
/* The open function of a sample: reads the arrays of an .npz that have the names of the inputs and outputs of data->model. */
int open_columns(const sample *sample, const data_options *options, const char *split, sample_data *data);
/* As open_columns; labelled false: reads only the inputs, for predictions. */
int open_named_arrays(const data_options *options, const char *split, bool labelled, sample_data *data);

/* ---- own_models.c ---- */
/* Makes a model for these data, of which there are n training examples. kind: as --model; NULL: the default for the data.
 * Returns an exit code. */
int make_own_model(const char *kind, const strata_preprocessing *preprocessing, int64_t n, strata_model **out_model);
/* The default epochs and batch for n examples. */
void own_defaults(const strata_preprocessing *preprocessing, int64_t n, int64_t *out_epochs, int64_t *out_batch);

/* ---- settings.c ---- */
/* Replaces the model by one with changed settings, for example "layers.0.units=64". Returns an exit code. */
int apply_settings(const text_list *settings, strata_model **model);
/* Writes the model's JSON, indented. */
int write_model_json(const strata_model *model, const char *path);

#endif
