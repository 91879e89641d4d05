/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an IDX file, plain or gzip: an array whose size follows from the input, or an error. */
#include <stdlib.h>

#include "core/data/format/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_array array;
    strata_error err = {0};
    strata_status status = strata_idx_parse("input", data, size, &array, &err);
    if (status && (status != err.status || !err.message[0] || array.data)) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    if (!status && (array.shape.rank < 1 || strata_array_bytes(&array) == 0 || strata_array_bytes(&array) > size * 16384))
        abort();
    strata_array_finish(&array);
    return 0;
}
