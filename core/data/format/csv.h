/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of CSV files for readers of tables, in addition to strata/csv.h. */
#ifndef STRATA_CORE_DATA_CSV_H
#define STRATA_CORE_DATA_CSV_H

#include "strata/csv.h"

/* The character that separates cells. */
char strata_csv_separator(const strata_csv *csv);
/* Like strata_csv_parse, for the first lines of a file. Whether the first line is a header is not known yet, so two of its
 * cells may be equal. The bytes are not decompressed. */
STRATA_MUST_USE strata_status strata_csv_parse_first(const char *name, const void *bytes, size_t n_bytes, char separator,
                                                     strata_csv **out_csv, strata_error *err);
/* Makes a table of cells that were read from another format. Each cell ends with a NUL; the names of the columns come first,
 * then n_columns cells for each row. Takes the bytes, even on failure. The line of a row is its number, from 1. Fails: DATA for
 * a cell that is not UTF-8, a column named twice. */
STRATA_MUST_USE strata_status strata_csv_take_cells(const char *name, char *cells, size_t n_bytes, int n_columns,
                                                    strata_csv **out_csv, strata_error *err);

#endif
