/* SPDX-License-Identifier: Apache-2.0
 *
 * Parquet files as tables. Apache Arrow reads them, which is C++ and some 60 MB with its Parquet library. The code that calls
 * Arrow, parquet_module.cc, is a separate module, libstrata_parquet.so, which parquet.c opens when the first Parquet file is
 * read. */
#ifndef STRATA_CORE_DATA_PARQUET_H
#define STRATA_CORE_DATA_PARQUET_H

#include "strata/csv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first bytes of a Parquet file. */
#define STRATA_PARQUET_MAGIC "PAR1"

/* Whether a file begins so. */
bool strata_is_parquet(const char *path);
/* Reads a file whose first bytes are STRATA_PARQUET_MAGIC. Fails: UNSUPPORTED where the module or Arrow's libraries cannot be
 * opened; DATA, with column and row, for a damaged file, nested columns, bytes that are no text in UTF-8. */
STRATA_MUST_USE strata_status strata_csv_read_parquet(const char *path, size_t max_bytes, strata_csv **out_csv,
                                                      strata_error *err);

/* ---- what the module exports ---- */

/* Receives n bytes that follow those of the previous call. A status other than STRATA_OK ends the reading. */
typedef strata_status (*strata_parquet_take)(void *user, const char *bytes, size_t n, strata_error *err);
/* Passes a file's cells to `take`, a few thousand rows at a time: first the names of the columns, then row by row, each cell
 * ended by a NUL; *out_n_columns of them are a row. The number in the name changes when the arguments do. */
#define STRATA_PARQUET_READ "strata_parquet_read_1"
typedef strata_status strata_parquet_read_function(const char *path, strata_parquet_take take, void *user, int *out_n_columns,
                                                   strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
