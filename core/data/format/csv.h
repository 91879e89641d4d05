/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of CSV files for readers of tables, in addition to strata/csv.h. */
#ifndef STRATA_CORE_DATA_CSV_H
#define STRATA_CORE_DATA_CSV_H

#include "core/base/alloc.h"
#include "strata/csv.h"

STRATA_OWNER(strata_csv)

/* Replaces the table's dialect by a copy. */
STRATA_MUST_USE strata_status strata_csv_set_dialect(strata_csv *csv, const strata_csv_dialect *dialect, strata_error *err);
/* Checks that the characters of the dialect are possible and differ. */
STRATA_MUST_USE strata_status strata_csv_check_dialect(const strata_csv_dialect *dialect, strata_error *err);
/* Whether a cell of this text is missing in the table: it is blank or one of the dialect's words of missing values. */
bool strata_csv_marks_missing(const strata_csv *csv, const char *cell);
/* Like strata_csv_parse, for the first lines of a file. Whether the first line is a header is not known yet, so two of its
 * cells may be equal. The bytes are not decompressed. */
STRATA_MUST_USE strata_status strata_csv_parse_first(const char *name, const void *bytes, size_t n_bytes,
                                                     const strata_csv_dialect *dialect, strata_csv **out_csv,
                                                     strata_error *err);
/* Makes a table of cells that were read from another format. Each cell ends with a NUL; the names of the columns come first,
 * then n_columns cells for each row. Takes the bytes, even on failure. The line of a row is its number, from 1. Fails: DATA for
 * a cell that is not UTF-8, a column named twice. */
STRATA_MUST_USE strata_status strata_csv_take_cells(const char *name, char *cells, size_t n_bytes, int n_columns,
                                                    strata_csv **out_csv, strata_error *err);

#endif
