/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an ONNX file, with the batch in front and without: a model that can be written as JSON, or an error. */
#include <stdlib.h>

#include "strata/interchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int whole = 0; whole < 2; whole++) {
        strata_model *model = NULL;
        strata_error err = {0};
        char *text = NULL;
        const strata_onnx_options opts = {.whole = whole};
        const strata_status status = strata_model_parse_onnx(NULL, data, size, opts, &model, &err);
        if (status && (status != err.status || !*err.message || model)) abort();
        if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY &&
            status != STRATA_INVALID)
            abort();
        if (!status && strata_model_to_json(model, &text, NULL)) abort();
        free(text);
        strata_model_destroy(model);
    }
    return 0;
}
