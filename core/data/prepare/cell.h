/* SPDX-License-Identifier: Apache-2.0
 *
 * What a cell of a table says: a number, a date, nothing. */
#ifndef STRATA_CORE_DATA_CELL_H
#define STRATA_CORE_DATA_CELL_H

#include <stdbool.h>

/* Whether the cell says that there is no value: it is blank, or one of NA, N/A, NaN, null, None, ?, -, --, in any case. */
bool strata_cell_is_missing(const char *cell);
/* Whether the whole cell is a finite decimal number, with spaces around it allowed. decimal_comma: "3,14" instead of "3.14".
 * Groups of three digits may stand apart, as in "1,234,567.8" (decimal_comma: "1.234.567,8"), "1 234" and "1'234". The
 * program's locale does not matter. */
bool strata_cell_number(const char *cell, bool decimal_comma, double *out);
/* Whether groups of its digits stand apart by commas. Of a cell that is a number with a decimal point. */
bool strata_cell_has_groups(const char *cell);

/* The orders in which year, month and day are written, by index. Each may be followed by a time of day: "2024-03-01",
 * "2024-03-01T12:30:05+01:00", "01.03.2024 12:30". */
enum { STRATA_DATE_FORMATS = 6 };
/* "YYYY-MM-DD", for messages and model files. */
const char *strata_date_format_name(int format);
/* Whether the whole cell is a date in this format: days since 1970-01-01 UTC, with the time of day as a fraction; *out_time
 * says whether there is a time of day. */
bool strata_cell_date(const char *cell, int format, double *out_days, bool *out_time);

#endif
