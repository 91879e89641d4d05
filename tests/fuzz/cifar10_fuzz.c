/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a CIFAR-10 batch, plain, gzip or xz. */
#include <stdlib.h>

#include "strata/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_array images, labels;
    strata_error err = {0};
    strata_status status = strata_cifar10_parse("input", data, size, &images, &labels, &err);
    if (status && (status != err.status || !err.message[0] || images.data || labels.data)) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    for (int64_t i = 0; !status && i < labels.shape.dims[0]; i++)
        if (((const uint8_t *)labels.data)[i] > 9) abort();
    strata_array_finish(&images);
    strata_array_finish(&labels);
    return 0;
}
