/* SPDX-License-Identifier: Apache-2.0 */
#include "core/interchange/weights.h"

strata_status strata_weights_create(strata_model *model, strata_weights *out, strata_error *err) {
    *out = (strata_weights){.model = model};
    STRATA_TRY(strata_model_declare(model, err));
    const int n = strata_model_n_parameters(model);
    STRATA_TRY(STRATA_NEW(out->arrays, n, err, "model: no host memory for its parameters"));
    for (; out->n < n; out->n++) {
        strata_array *array = &out->arrays[out->n];
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, out->n).shape, array, err));
        if (strata_array_bytes(array)) memset(array->data, 0, strata_array_bytes(array));
    }
    return STRATA_OK;
}

strata_status strata_weights_read(strata_model *model, const char *caller, strata_weights *out, strata_error *err) {
    strata_error reason = {0};
    STRATA_TRY(strata_weights_create(model, out, err));
    for (int i = 0; i < out->n; i++) {
        const strata_status status = strata_model_get_parameter(model, i, &out->arrays[i], &reason);
        const char *why = strstr(reason.message, "the model is not compiled");
        if (status) return strata_fail(err, status, "%s: %s", caller, why ? why : reason.message);
    }
    return STRATA_OK;
}

void strata_weights_finish(strata_weights *weights) {
    for (int i = 0; i < weights->n; i++) strata_array_finish(&weights->arrays[i]);
    free(weights->arrays);
    *weights = (strata_weights){0};
}

const char *strata_name_in(const char *parameter, const char *layer) {
    const size_t n = strlen(layer);
    return !strncmp(parameter, layer, n) && parameter[n] == '/' ? parameter + n + 1 : NULL;
}

int strata_parameter_find(const strata_model *model, const char *layer, const char *name) {
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        const char *full = strata_model_parameter(model, i).name, *own = layer ? strata_name_in(full, layer) : full;
        if (own && !strcmp(own, name)) return i;
    }
    return -1;
}

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

bool strata_takes_numbers(const strata_preprocessing *p) {
    const strata_preprocessing_kind kind = p ? strata_preprocessing_get_kind(p) : STRATA_PREPROCESSING_TEXTS;
    return (kind == STRATA_PREPROCESSING_TABLE || kind == STRATA_PREPROCESSING_ARRAYS) && strata_preprocessing_n_columns(p);
}

bool strata_restores_label(const strata_preprocessing *p) {
    return p && strata_preprocessing_n_labels(p) && strata_preprocessing_label_column(p, 0).kind != STRATA_COLUMN_WORDS;
}
