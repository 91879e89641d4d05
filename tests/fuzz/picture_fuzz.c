/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a picture, in grey and in colours: both can be read, or neither. */
#include <stdlib.h>

#include "core/data/format/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_array grey, colours;
    strata_error err = {0};
    strata_status first = strata_picture_parse("input", data, size, 1, &grey, &err);
    strata_status second = strata_picture_parse("input", data, size, 3, &colours, &err);
    if (first != second && first != STRATA_OUT_OF_MEMORY && second != STRATA_OUT_OF_MEMORY) abort();
    if (first && (grey.data || colours.data || !err.message[0])) abort();
    strata_array_finish(&grey);
    strata_array_finish(&colours);
    return 0;
}
