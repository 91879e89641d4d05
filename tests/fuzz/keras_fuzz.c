/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a .keras file: a model that can be written as JSON, or an error. Weights are left out: HDF5 is read by libhdf5,
 * which is fuzzed by its own project. */
#include <stdlib.h>

#include "core/interchange/keras_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_model *model = NULL;
    strata_error err = {0};
    char *text = NULL;
    const strata_status status = strata_keras_parse("input.keras", data, size, false, &model, &err);
    if (status && (status != err.status || !*err.message || model)) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    if (!status && strata_model_to_json(model, &text, NULL)) abort();
    free(text);
    strata_model_destroy(model);
    return 0;
}
