/* SPDX-License-Identifier: Apache-2.0
 *
 * A user's program, built against the installed library. It must need nothing from the source tree. */
#include <stdio.h>
#include <strata/status.h>
#include <strata/tensor.h>
#include <strata/version.h>
#include <string.h>

int main(void) {
    strata_error error;
    strata_dtype dtype;
    if (strata_dtype_parse("bf16", &dtype, &error)) {
        fprintf(stderr, "strata_dtype_parse: %s\n", error.message);
        return 1;
    }
    strata_shape_string shape = strata_shape_text(STRATA_SHAPE(64, 784));
    printf("strata %s: %s %s\n", STRATA_VERSION, strata_dtype_name(dtype), shape.text);
    return strcmp(shape.text, "(64,784)") != 0 || dtype != STRATA_DTYPE_BF16;
}
