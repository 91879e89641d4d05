/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of options describes the fields of a plain struct, so that the library can read the struct from JSON, write it to
 * JSON, and check it. A field that is 0, false or NULL is an option that is not given. A number that JSON gives as 0 is
 * STRATA_ZERO (strata/numbers.h) in the struct. */
#ifndef STRATA_OPTION_H
#define STRATA_OPTION_H

#include <stddef.h>

#include "strata/numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_option_kind {
    STRATA_OPTION_INT,        /* int64_t in least..most                                       */
    STRATA_OPTION_PAIR,       /* int64_t[2], each in least..most; in JSON [a, b], or one number for both */
    STRATA_OPTION_BORDER_1D,  /* int64_t[2], each in least..most; in JSON [before, after], or one number for both */
    STRATA_OPTION_BORDER_2D,  /* int64_t[4], each in least..most; in JSON [top, bottom, left, right], or one number for all */
    STRATA_OPTION_NUMBER,     /* double in least..most                                        */
    STRATA_OPTION_BOOL,       /* bool                                                         */
    STRATA_OPTION_STRING,     /* const char *; NULL: not given                                */
    STRATA_OPTION_NUMBERS,    /* strata_numbers, each in least..most                          */
    STRATA_OPTION_SHAPE,      /* strata_shape, each dimension in least..most; in JSON [a, b, c] */
    STRATA_OPTION_ACTIVATION, /* const char *, the name of an activation function            */
    STRATA_OPTION_COUNT       /* int64_t in least..most, but not 0, which is only the field's value when it is not given */
} strata_option_kind;

/* One option. A table of them ends at one whose name is NULL. */
typedef struct strata_option {
    /* The key in JSON. */
    const char *name;
    strata_option_kind kind;
    /* offsetof(the struct, the field). */
    size_t offset;
    double least, most;
    bool required;
} strata_option;

/* Writes the options that are not zero, and the required ones, into the JSON object that is open. */
struct strata_json_writer;
STRATA_API void strata_options_write(struct strata_json_writer *writer, const strata_option *table, const void *options);

#ifdef __cplusplus
}
#endif
#endif
