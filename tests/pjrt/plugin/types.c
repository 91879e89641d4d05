/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of tensors in the text of StableHLO. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static const struct {
    const char *name;
    size_t bytes;
} types[N_TYPES] = {[F32] = {"f32", 4}, [F16] = {"f16", 2}, [BF16] = {"bf16", 2}, [I32] = {"i32", 4},  [I64] = {"i64", 8},
                    [UI8] = {"ui8", 1}, [I1] = {"i1", 1},   [UI32] = {"ui32", 4}, [UI64] = {"ui64", 8}};

size_t element_bytes(element_type type) {
    return types[type].bytes;
}

int64_t n_elements(const tensor_type *type) {
    int64_t n = 1;
    for (int d = 0; d < type->rank; d++) n *= type->dims[d];
    return n;
}

int read_type(const char **at, tensor_type *out_type) {
    *out_type = (tensor_type){0};
    if (strncmp(*at, "tensor<", 7) != 0) return 1;
    const char *c = *at + 7;
    while (*c >= '0' && *c <= '9') {
        char *end;
        if (out_type->rank == MOST_RANK) return 1;
        out_type->dims[out_type->rank++] = strtoll(c, &end, 10);
        if (*end != 'x') return 1;
        c = end + 1;
    }
    const size_t n = strcspn(c, ">");
    for (int t = 0; t < N_TYPES; t++)
        if (strlen(types[t].name) == n && !strncmp(c, types[t].name, n)) {
            out_type->type = (element_type)t;
            *at = c + n + 1;
            return 0;
        }
    return 1;
}
