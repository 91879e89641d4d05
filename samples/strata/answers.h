/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing the answers (predictions) of a model, for strata predict and strata serve. */
#ifndef STRATA_SAMPLES_ANSWERS_H
#define STRATA_SAMPLES_ANSWERS_H

#include "samples.h"
#include "strata/text.h"

/* The output for answers, and its format. */
typedef struct answers {
    strata_text text;
    const strata_model *model;
    const strata_dataset *data; /* whose elements may have names; NULL: they have none */
    const sample *sample;
    const strata_preprocessing *preprocessing;
    bool json, csv, classes, probabilities;
    int64_t width; /* numbers of an answer */
} answers;

/* Adds the names of the columns, if answers are a table. */
void add_header(answers *a);
/* Adds the answer for one example: probabilities of classes, or numbers, or the numbers of several outputs under their names.
 * row: [width]. */
void add_answer(answers *a, const float *row, int64_t index);
/* Computes the model's answers for a dataset, with its outputs concatenated: f32 (n, the numbers of all outputs), or (n, ...)
 * if there is one output. The caller finishes it. */
STRATA_MUST_USE strata_status predict_outputs(strata_model *model, const strata_dataset *data, int64_t batch, strata_array *out,
                                              strata_error *err);

#endif
