/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model keeps of the CSV that it learned from, so that the columns and the label's words of other files mean to it what
 * they meant then: by name and not by place. It is saved with the model, as its note "csv". */
#ifndef STRATA_SAMPLES_SCHEMA_H
#define STRATA_SAMPLES_SCHEMA_H

#include <strata/csv.h>
#include <strata/model.h>

/* Zero-initialize; all zero where no CSV was learned from. Finish when done. */
typedef struct csv_schema {
    char **columns; /* the features, in the order in which the model takes them */
    int n_columns;
    char *label;    /* several, that are learned together: "a,b" */
    char **classes; /* the label's words, in the order of their classes */
    int n_classes;  /* 0: the label is a number */
} csv_schema;

/* What opts mean in the table; `made`: the dataset made of it, which knows the words of classes. */
STRATA_MUST_USE strata_status schema_create(const strata_csv *csv, const strata_csv_options *opts, const strata_dataset *made,
                                            csv_schema *out_schema, strata_error *err);
void schema_finish(csv_schema *schema);
/* Into the model's notes, and out of them. */
STRATA_MUST_USE strata_status schema_write(const csv_schema *schema, strata_model *model, strata_error *err);
STRATA_MUST_USE strata_status schema_read(const strata_model *model, csv_schema *out_schema, strata_error *err);
/* The word of a class; NULL: it has none. */
const char *schema_class_name(const csv_schema *schema, int64_t label);

#endif
