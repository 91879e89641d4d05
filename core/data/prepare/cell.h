/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing a cell of a table, which can be a number, a date, words or missing. */
#ifndef STRATA_CORE_DATA_CELL_H
#define STRATA_CORE_DATA_CELL_H

#include "strata/csv.h"

/* Whether the cell is blank: it has no character, or only spaces. */
bool strata_cell_is_blank(const char *cell);
/* Whether the cell is one of NA, N/A, NaN, null, None, ?, -, --, in lower or upper case. These words mark missing values unless
 * the user lists others. */
bool strata_cell_is_usual_marker(const char *cell);
/* Whether the cell, without spaces around it, is one of these n words, or the same number as one of them. */
bool strata_cell_is_listed(const char *cell, const char *const *words, int n);

/* Both formats that use points and commas: "1,234.5" and "1.234,5". */
extern const strata_number_format strata_decimal_point, strata_decimal_comma;

/* Whether the number has groups of digits with this character between them, as "1.234" has with '.'. */
bool strata_cell_has_groups(const char *cell, char thousands);
/* Whether the number contains a point or a comma, so that its value depends on the format. */
bool strata_cell_has_mark(const char *cell);

/* For each strata_date_order its name, "dmy", in options and model files. */
extern const char *const strata_date_orders[];

/* Date formats are numbered from 0. Each is an order of year, month and day, and the character between them; the year has four
 * digits. A time of day may follow the date: "2024-03-01", "2024-03-01T12:30:05+01:00", "01.03.2024 12:30". A cell may fit two
 * formats; the one with the lower number is more usual. */
enum { STRATA_DATE_FORMATS = 9 };
/* For example "YYYY-MM-DD". The names are used in messages and in model files. */
const char *strata_date_format_name(int format);
/* The order of year, month and day in this format. */
strata_date_order strata_date_format_order(int format);
/* The format with this order and the separator of `format`. */
int strata_date_format_with_order(int format, strata_date_order order);
/* Parses a date in this format. Returns false if the cell is none. *out_days: days since 1970-01-01 UTC, with the time of day
 * as a fraction. *out_time: whether the cell has a time of day. */
bool strata_cell_date(const char *cell, int format, double *out_days, bool *out_time);
/* Whether the cell has the form of a date in this format. It may be a day that does not exist, such as 2023-02-30. */
bool strata_cell_is_like_date(const char *cell, int format);

#endif
