/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of numbers that say by their place alone which columns they are. */
#ifndef STRATA_SAMPLES_ROWS_H
#define STRATA_SAMPLES_ROWS_H

#include "schema.h"

/* The file's table. Where its first line is numbers alone, and not the names of the model's columns, it has no header: its rows
 * are taken in the order of the columns that the model learned from. DATA when they are not as many. */
STRATA_MUST_USE strata_status rows_read(const char *path, const strata_model *model, const csv_schema *schema,
                                        strata_csv **out_csv, strata_error *err);
/* The one row "0.5,1,2"; `name` stands in messages. */
STRATA_MUST_USE strata_status rows_parse(const char *name, const char *text, const strata_model *model,
                                         const csv_schema *schema, strata_csv **out_csv, strata_error *err);

#endif
