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
    const sample *sample;
    const strata_preprocessing *preprocessing;
    bool json, csv, classes, probabilities;
    int64_t width; /* numbers of an answer */
} answers;

/* The names of the columns, where answers are a table. */
void add_header(answers *a);
/* The answer to one example: probabilities of classes, or numbers. row: [width]. */
void add_answer(answers *a, const float *row, int64_t index);

#endif
