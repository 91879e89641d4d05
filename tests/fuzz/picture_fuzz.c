/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a picture, in grey and in colours: both can be read, or neither, and their size is that of the header. A few
 * bytes can stand for millions of equal pixels, which take the target seconds to decode, so pictures with more than MOST_PIXELS
 * are left out. */
#include <stdlib.h>

#include "strata/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_PIXELS = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_array grey, colours;
    strata_picture_size header;
    strata_error err = {0};
    const bool measured = !strata_picture_measure("input", data, size, &header, &err);
    if (measured && header.rows * header.columns > MOST_PIXELS) return 0;
    strata_status first = strata_picture_parse("input", data, size, 1, &grey, &err);
    strata_status second = strata_picture_parse("input", data, size, 3, &colours, &err);
    if (first != second && first != STRATA_OUT_OF_MEMORY && second != STRATA_OUT_OF_MEMORY) abort();
    if (first && (grey.data || colours.data || !err.message[0])) abort();
    if (!first && (!measured || grey.shape.dims[0] * grey.shape.dims[1] != header.rows * header.columns)) abort();
    strata_array_finish(&grey);
    strata_array_finish(&colours);
    return 0;
}
