/* SPDX-License-Identifier: Apache-2.0
 *
 * Options in a model's JSON: a table over a plain struct. Layers, losses, optimizers and schedules each have one; zero or false
 * means the default that the comment of the struct's field names, and is not written to JSON. */
#ifndef STRATA_CORE_OPTION_H
#define STRATA_CORE_OPTION_H

#include "strata/optimizers.h"
#include "strata/tensor.h"

typedef enum strata_option_kind {
    STRATA_OPTION_INT,       /* int64_t in least..most                                       */
    STRATA_OPTION_PAIR,      /* int64_t[2], each in least..most; in JSON [a, b], or one number for both */
    STRATA_OPTION_BORDER_1D, /* int64_t[2], each in least..most; in JSON [before, after], or one number for both */
    STRATA_OPTION_BORDER_2D, /* int64_t[4], each in least..most; in JSON [top, bottom, left, right], or one number for all */
    STRATA_OPTION_NUMBER,    /* double in least..most                                        */
    STRATA_OPTION_BOOL,      /* bool                                                         */
    STRATA_OPTION_STRING,    /* const char *; NULL: not given                                */
    STRATA_OPTION_NUMBERS,   /* strata_numbers, each in least..most                          */
    STRATA_OPTION_SHAPE      /* strata_shape, each dimension in least..most; in JSON [a, b, c] */
} strata_option_kind;

typedef struct strata_option {
    const char *name;
    strata_option_kind kind;
    size_t offset;
    double least, most;
    bool required;
} strata_option;

struct strata_json;
struct strata_json_writer;

/* Reads the object's keys into `options`. Keys that are neither in the table nor among also[0..n_also) are errors that name the
 * nearest. Strings live as long as the document. */
STRATA_MUST_USE strata_status strata_options_read(const struct strata_json *object, const strata_option *table,
                                                  const char *const *also, size_t n_also, void *options, strata_error *err);
/* Whether one of them is not zero. */
bool strata_options_given(const strata_option *table, const void *options);
/* Writes the options that are not zero, and the required ones, into the object that is open. */
void strata_options_write(struct strata_json_writer *writer, const strata_option *table, const void *options);

#endif
