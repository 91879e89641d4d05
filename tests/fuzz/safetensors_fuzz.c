/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file: tensors that tile the data and can each be loaded, or an error. */
#include <stdlib.h>

#include "core/data/format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void load_all(const strata_safetensors *file, const uint8_t *data, size_t size) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const strata_safetensor *tensor = &file->tensors[i];
        if (tensor->data < data || tensor->data + tensor->n_bytes > data + size) abort();
        if (strata_safetensors_find(file, tensor->name) != tensor) abort();
        n_bytes += tensor->n_bytes;
        strata_array array;
        if (!strata_safetensors_load(file, tensor->name, &array, NULL) && strata_array_bytes(&array) != tensor->n_bytes)
            abort();
        strata_array_finish(&array);
    }
    if (n_bytes > size) abort();
    strata_safetensors_metadata(file, "model");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_safetensors file;
    strata_error err = {0};
    strata_status status = strata_safetensors_parse("input", data, size, &file, &err);
    if (status && ((status != STRATA_DATA && status != STRATA_OUT_OF_MEMORY) || status != err.status || file.tensors)) abort();
    if (!status) load_all(&file, data, size);
    strata_safetensors_finish(&file);
    return 0;
}
