/* SPDX-License-Identifier: Apache-2.0
 *
 * What readers of tables need of CSV beside strata/csv.h. */
#ifndef STRATA_CORE_DATA_CSV_H
#define STRATA_CORE_DATA_CSV_H

#include "strata/csv.h"

/* What stands between its cells. */
char strata_csv_separator(const strata_csv *csv);
/* As strata_csv_parse, of a file's first lines: what they are is not known yet, so two cells of the first may be the same. The
 * bytes are not expanded. */
STRATA_MUST_USE strata_status strata_csv_parse_first(const char *name, const void *bytes, size_t n_bytes, char separator,
                                                     strata_csv **out_csv, strata_error *err);
/* A table of cells that another format had, each ended by a NUL: the names of the columns, then row by row, n_columns in each.
 * Takes the n_bytes, even on failure. A row's line is its number, from 1. Fails: DATA for a cell that is not UTF-8, a column
 * named twice. */
STRATA_MUST_USE strata_status strata_csv_take_cells(const char *name, char *cells, size_t n_bytes, int n_columns,
                                                    strata_csv **out_csv, strata_error *err);

#endif
