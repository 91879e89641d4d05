/* SPDX-License-Identifier: Apache-2.0
 *
 * How answers of a model are written, for strata predict and strata serve. */
#ifndef STRATA_SAMPLES_ANSWERS_H
#define STRATA_SAMPLES_ANSWERS_H

#include "core/base/text.h"
#include "samples.h"

/* Where answers go, and how they are written. */
typedef struct answers {
    strata_text text;
    const strata_model *model;
    const strata_dataset *data; /* whose elements may have names; NULL: they have none */
    const sample *sample;
    const strata_preprocessing *preprocessing;
    bool json, csv, classes, probabilities;
    int64_t width; /* numbers of an answer */
} answers;

/* The names of the columns, where answers are a table. */
void add_header(answers *a);
/* The answer to one example: probabilities of classes, or numbers, or the numbers of several outputs under their names. row:
 * [width]. */
void add_answer(answers *a, const float *row, int64_t index);
/* The model's answers to a dataset, with its outputs side by side: f32 (n, the numbers of all outputs), or, of one output, (n,
 * ...). The caller finishes it. */
STRATA_MUST_USE strata_status predict_outputs(strata_model *model, const strata_dataset *data, int64_t batch, strata_array *out,
                                              strata_error *err);

#endif
