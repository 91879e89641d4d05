/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a CSV file: a table whose every cell can be read, or an error with a place. */
#include <stdlib.h>
#include <string.h>

#include "strata/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_csv *csv = NULL;
    strata_error err = {0};
    strata_status status = strata_csv_parse("input", data, size, 0, &csv, &err);
    if (status && (status != err.status || !err.message[0] || csv)) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    if (status) return 0;
    size_t n = 0;
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++)
        for (int i = 0; i < strata_csv_n_columns(csv); i++) n += strlen(strata_csv_cell(csv, row, i));
    if (n > size * 16384) abort();
    int column;
    if (strata_csv_find(csv, strata_csv_column(csv, strata_csv_n_columns(csv) - 1), &column, &err)) abort();
    strata_csv_destroy(csv);
    return 0;
}
