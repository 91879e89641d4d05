/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing a cell of a table, which can be a number, a date, words or missing. */
#ifndef STRATA_CORE_DATA_CELL_H
#define STRATA_CORE_DATA_CELL_H

#include <stdbool.h>

/* Whether the value is missing: the cell is blank or one of NA, N/A, NaN, null, None, ?, -, --, in lower or upper case. */
bool strata_cell_is_missing(const char *cell);
/* Parses a finite decimal number. Returns false if the cell is not a number. Spaces before and after it are allowed.
 * decimal_comma: the number is written as "3,14" instead of "3.14". Digits may be in groups of three, as in "1,234,567.8"
 * (with decimal_comma: "1.234.567,8"), "1 234" and "1'234". A currency ($, €, £, ¥, ₹) may stand before or after the
 * number, and % after it; both are ignored, so "50 %" is 50. The program's locale is not used. */
bool strata_cell_number(const char *cell, bool decimal_comma, double *out);
/* Whether a number with a decimal point has groups of digits with commas between them. */
bool strata_cell_has_groups(const char *cell);

/* The number of date formats, which are numbered from 0. A time of day may follow the date: "2024-03-01",
 * "2024-03-01T12:30:05+01:00", "01.03.2024 12:30". */
enum { STRATA_DATE_FORMATS = 6 };
/* For example "YYYY-MM-DD". The names are used in messages and in model files. */
const char *strata_date_format_name(int format);
/* Parses a date in this format. Returns false if the cell is none. *out_days: days since 1970-01-01 UTC, with the time of day
 * as a fraction. *out_time: whether the cell has a time of day. */
bool strata_cell_date(const char *cell, int format, double *out_days, bool *out_time);

#endif
