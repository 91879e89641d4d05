/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of integers, and the first difference of two JSON values. The public header, strata/json.h, has the reader and the
 * writer. The nodes of a tree are cJSON's. */
#ifndef STRATA_CORE_JSON_H
#define STRATA_CORE_JSON_H

#include "core/base/text.h"
#include "strata/json.h"

/* Writes an array of integers. */
void strata_json_write_ints(strata_json_writer *writer, const int64_t *values, int n);

/* The first difference of two values: its path, "layers[1].units", and the shortened text of both sides, "nothing" where a side
 * has no such value. */
typedef struct strata_json_change {
    char path[256], left[80], right[80];
} strata_json_change;
/* Whether two values differ, and where. */
bool strata_json_find_change(const strata_json *a, const strata_json *b, strata_json_change *out_change);
/* The same as text: "layers[1].units is 64, not 128". */
bool strata_json_difference(const strata_json *a, const strata_json *b, char *out_text, size_t room);

#endif
