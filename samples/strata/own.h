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
/* A sample's open function: the training part of a table, a folder or arrays, or the part kept for testing, which the training
 * part left in data->rest; or, with data->preprocessing of a model and nothing in rest, all of the examples. */
int open_own(const sample *sample, const data_options *options, const char *split, sample_data *data);
/* Examples without labels, to predict. */
int open_unlabelled(const strata_preprocessing *preprocessing, const data_options *options, strata_dataset **out);
/* "4 numbers, 0 missing, 3 classes; 120 train / 30 test, shuffled and stratified, seed 0" */
void print_own(FILE *to, const data_options *options, const sample_data *data, const strata_dataset *train,
               const strata_dataset *test);
/* The row of data of the user's own. */
const sample *own_sample(void);
/* What a later file had that the training data did not, on stderr. */
void print_report(const strata_preprocessing_report *report);

/* Whether a file is an .npz archive, by its first bytes. */
bool is_npz(const char *path);
/* The share of the examples that is kept for testing, as --test-split says. */
double test_fraction(const data_options *options);
/* Divides all of the examples, which it takes, into data->dataset and data->rest. */
strata_status split_dataset(const data_options *options, strata_dataset *whole, sample_data *data, strata_error *err);

/* ---- named_arrays.c ---- */
/* Whether the model has several inputs or outputs. */
bool has_several_ports(const strata_model *model);
/* Whether it has the inputs that a table with a column of texts becomes: "numbers" and "text". */
bool takes_table_with_texts(const strata_model *model);
/* A sample's open function: the arrays of an .npz that are named as the inputs and outputs of data->model. */
int open_columns(const sample *sample, const data_options *options, const char *split, sample_data *data);
/* The same; not labelled: the inputs alone, to predict. */
int open_named_arrays(const data_options *options, const char *split, bool labelled, sample_data *data);

/* ---- own_models.c ---- */
/* A model for these data. kind NULL: the usual one. Returns an exit code. */
int make_own_model(const char *kind, const strata_preprocessing *preprocessing, int64_t n, strata_model **out_model);
/* Epochs and batch that suit n examples. */
void own_defaults(const strata_preprocessing *preprocessing, int64_t n, int64_t *out_epochs, int64_t *out_batch);

/* ---- settings.c ---- */
/* Replaces the model by one whose JSON has other values: "layers.0.units=64". Returns an exit code. */
int apply_settings(const text_list *settings, strata_model **model);
/* Writes the model's JSON, indented. */
int write_model_json(const strata_model *model, const char *path);

#endif
