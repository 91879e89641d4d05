/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights with their axes in another order. */
#include "core/interchange/permute.h"

#include <string.h>

static int axis_of(const int *axes, int d) {
    return axes ? axes[d] : d;
}

strata_status strata_permuted(const strata_array *array, const int *axes, strata_array *out, strata_error *err) {
    const int rank = array->shape.rank;
    strata_shape shape = {.rank = rank};
    int64_t strides[STRATA_MAX_RANK], place[STRATA_MAX_RANK] = {0}, stride = 1;
    const size_t bytes = strata_dtype_bytes(array->dtype);
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= array->shape.dims[d];
    }
    for (int d = 0; d < rank; d++) shape.dims[d] = array->shape.dims[axis_of(axes, d)];
    STRATA_TRY(strata_array_create(array->dtype, shape, out, err));
    const int64_t n = strata_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (int d = 0; d < rank; d++) from += place[d] * strides[axis_of(axes, d)];
        memcpy((char *)out->data + (size_t)i * bytes, (const char *)array->data + (size_t)from * bytes, bytes);
        for (int d = rank - 1; d >= 0 && ++place[d] == shape.dims[d]; d--) place[d] = 0;
    }
    return STRATA_OK;
}
