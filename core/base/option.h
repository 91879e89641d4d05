/* SPDX-License-Identifier: Apache-2.0
 *
 * Options in a model's JSON. A table describes the fields of a plain struct; each kind of layer, loss, optimizer and
 * schedule has a table. Zero or false means the default, which the comment of the struct's field names, and is not
 * written to JSON. A number 0 that JSON gives is stored as STRATA_ZERO, which is written as 0. */
#ifndef STRATA_CORE_OPTION_H
#define STRATA_CORE_OPTION_H

#include "strata/optimizers.h"
#include "strata/option.h"

struct strata_json;
struct strata_json_writer;

/* Reads the number `key` in least..most. A 0 that is written is stored as STRATA_ZERO; without the key, which only an optional
 * one may lack, *out is unchanged. */
STRATA_MUST_USE strata_status strata_option_read_number(const struct strata_json *object, const char *key, bool required,
                                                        double least, double most, double *out, strata_error *err);
/* Reads the object's keys into `options`. Keys that are neither in the table nor among also[0..n_also) are errors, and
 * the message names the most similar key. Strings live as long as the document. */
STRATA_MUST_USE strata_status strata_options_read(const struct strata_json *object, const strata_option *table,
                                                  const char *const *also, size_t n_also, void *options, strata_error *err);
/* Checks options that are already in the struct: those that are required or not zero must be in their ranges. Fails:
 * INVALID, with the option's name. */
STRATA_MUST_USE strata_status strata_options_check(const strata_option *table, const void *options, strata_error *err);
/* The bytes of an option's field. */
size_t strata_option_bytes(strata_option_kind kind);
/* Whether the option's field is a text. */
bool strata_option_is_text(strata_option_kind kind);
/* Whether at least one of the options is not zero. */
bool strata_options_given(const strata_option *table, const void *options);

#endif
