/* SPDX-License-Identifier: Apache-2.0
 *
 * Parquet files as tables. Apache Arrow, a C++ library, reads them; with its Parquet library it has some 60 MB. The code that
 * calls Arrow, parquet_module.cc, is therefore a separate module, libstrata_parquet.so, which parquet.c loads when the first
 * Parquet file is read. */
#ifndef STRATA_CORE_DATA_PARQUET_H
#define STRATA_CORE_DATA_PARQUET_H

#include "strata/csv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first bytes of a Parquet file. */
#define STRATA_PARQUET_MAGIC "PAR1"

/* Whether the file begins with STRATA_PARQUET_MAGIC. */
bool strata_is_parquet(const char *path);
/* Reads a Parquet file. Fails: UNSUPPORTED if the module or Arrow's libraries cannot be loaded; DATA, with column and row, for
 * a damaged file, nested columns and text that is not UTF-8. max_bytes limits the size of all cells together, as text. */
STRATA_MUST_USE strata_status strata_csv_read_parquet(const char *path, size_t max_bytes, strata_csv **out_csv,
                                                      strata_error *err);

/* ---- the function that the module exports ---- */

/* Receives the next n bytes of the cells. If it returns a status other than STRATA_OK, reading ends with that status. */
typedef strata_status (*strata_parquet_take)(void *user, const char *bytes, size_t n, strata_error *err);
/* Passes a file's cells to `take`, a few thousand rows at a time: first the names of the columns, then the rows. Each cell ends
 * with a NUL, and *out_n_columns cells are a row. The number in the function's name is raised when its arguments change. */
#define STRATA_PARQUET_READ "strata_parquet_read_1"
typedef strata_status strata_parquet_read_function(const char *path, strata_parquet_take take, void *user, int *out_n_columns,
                                                   strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
