/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a TensorProto to an array: floats become f32, integers i64, and bools bool. The elements are in one of several
 * fields of the message, or in another file in the folder of the model. */
#include <math.h>
#include <stdio.h>

#include "core/interchange/onnx.h"

/* The element types, with their numbers in ONNX. */
typedef enum kind { KIND_FLOAT, KIND_SIGNED, KIND_UNSIGNED, KIND_BOOL, KIND_F16, KIND_BF16 } kind;
typedef struct element_type {
    int number;
    kind kind;
    size_t bytes;
} element_type;
static const element_type types[] = {{1, KIND_FLOAT, 4},    {11, KIND_FLOAT, 8}, {10, KIND_F16, 2},     {16, KIND_BF16, 2},
                                     {2, KIND_UNSIGNED, 1}, {3, KIND_SIGNED, 1}, {4, KIND_UNSIGNED, 2}, {5, KIND_SIGNED, 2},
                                     {6, KIND_SIGNED, 4},   {7, KIND_SIGNED, 8}, {9, KIND_BOOL, 1},     {12, KIND_UNSIGNED, 4},
                                     {13, KIND_UNSIGNED, 8}};

static const element_type *find_type(int number) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number) return &types[i];
    return NULL;
}

const char *strata_onnx_type_name(int64_t number) {
    static const char *const names[] = {
        "UNDEFINED", "FLOAT",      "UINT8",      "INT8",         "UINT16",         "INT16",      "INT32",
        "INT64",     "STRING",     "BOOL",       "FLOAT16",      "DOUBLE",         "UINT32",     "UINT64",
        "COMPLEX64", "COMPLEX128", "BFLOAT16",   "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
        "UINT4",     "INT4",       "FLOAT4E2M1", "FLOAT8E8M0",   "UINT2",          "INT2"};
    return number >= 0 && (size_t)number < sizeof names / sizeof *names ? names[number] : "unknown";
}

strata_status strata_onnx_dtype_of(int number, strata_dtype *out, const char *name, strata_error *err) {
    const element_type *type = find_type(number);
    if (!type)
        return strata_fail(err, STRATA_UNSUPPORTED, "\"%.60s\" has the element type %s, which Strata does not have", name,
                           strata_onnx_type_name(number));
    *out = type->kind == KIND_BOOL                                    ? STRATA_DTYPE_BOOL
           : type->kind == KIND_SIGNED || type->kind == KIND_UNSIGNED ? STRATA_DTYPE_I64
                                                                      : STRATA_DTYPE_F32;
    return STRATA_OK;
}

/* Converts one element of raw data, which are little-endian and may be unaligned. */
static void convert(const element_type *type, const unsigned char *at, strata_array *out, int64_t i) {
    uint64_t bits = 0;
    memcpy(&bits, at, type->bytes);
    if (type->kind == KIND_BOOL) {
        ((uint8_t *)out->data)[i] = bits != 0;
    } else if (type->kind == KIND_SIGNED || type->kind == KIND_UNSIGNED) {
        const int shift = 64 - 8 * (int)type->bytes;
        ((int64_t *)out->data)[i] = type->kind == KIND_SIGNED ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
    } else if (type->bytes == 8) {
        double value;
        memcpy(&value, &bits, 8);
        ((float *)out->data)[i] = (float)value;
    } else if (type->bytes == 4) {
        memcpy((float *)out->data + i, at, 4);
    } else {
        ((float *)out->data)[i] =
            type->kind == KIND_F16 ? strata_f16_to_f32((uint16_t)bits) : strata_bf16_to_f32((uint16_t)bits);
    }
}

/* ---- data in another file ---- */

const char *strata_onnx_entry(StrataOnnx__Entry *const *entries, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (entries[i]->key && entries[i]->value && !strcmp(entries[i]->key, key)) return entries[i]->value;
    return NULL;
}

static const char *entry(const StrataOnnx__Tensor *tensor, const char *key) {
    return strata_onnx_entry(tensor->external_data, tensor->n_external_data, key);
}

/* Whether the path is inside of the model's folder: it must be relative and without "..". */
static bool is_inside(const char *path) {
    if (!*path || *path == '/') return false;
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        const size_t n = strcspn(at, "/");
        if (n == 2 && !strncmp(at, "..", 2)) return false;
    }
    return true;
}

static strata_status parse_size(const char *text, size_t otherwise, size_t *out) {
    char *end;
    *out = otherwise;
    if (!text) return STRATA_OK;
    if (*text < '0' || *text > '9') return STRATA_DATA;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*end || value > SIZE_MAX / 2) return STRATA_DATA;
    *out = (size_t)value;
    return STRATA_OK;
}

/* Whether the file is really, after following symbolic links, in the folder that is named by the first folder_bytes of
 * `full`. */
static bool lies_inside(const char *full, size_t folder_bytes) {
    STRATA_FREED char *folder = folder_bytes ? strndup(full, folder_bytes) : strdup(".");
    STRATA_FREED char *real_folder = folder ? realpath(folder, NULL) : NULL, *real = realpath(full, NULL);
    const size_t n = real_folder ? strlen(real_folder) : 0;
    return n && real && !strncmp(real, real_folder, n) && (real[n] == '/' || real_folder[n - 1] == '/');
}

static strata_status read_external(const StrataOnnx__Tensor *tensor, const char *path, const char *name, size_t wanted,
                                   unsigned char **out, strata_error *err) {
    const char *location = entry(tensor, "location"), *slash = path ? strrchr(path, '/') : NULL;
    size_t offset, length;
    if (!path)
        return strata_fail(err, STRATA_DATA, "tensor \"%.60s\" has its data in another file, and there is no folder", name);
    if (!location || !is_inside(location))
        return strata_fail(err, STRATA_DATA,
                           "%s: tensor \"%.60s\" has its data in \"%.200s\"; only files in the model's own folder are read",
                           path, name, location ? location : "");
    if (parse_size(entry(tensor, "offset"), 0, &offset) || parse_size(entry(tensor, "length"), wanted, &length))
        return strata_fail(err, STRATA_DATA, "%s: tensor \"%.60s\": offset or length of its data is no number", path, name);
    if (length != wanted)
        return strata_fail(err, STRATA_DATA, "%s: tensor \"%.60s\" has %zu bytes of data; its shape and type need %zu", path,
                           name, length, wanted);
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0, bytes = folder + strlen(location) + 1;
    STRATA_FREED char *full = malloc(bytes);
    STRATA_FREED unsigned char *data = malloc(wanted + 1);
    if (!full || !data) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %zu bytes", path, wanted);
    memcpy(full, path, folder);
    memcpy(full + folder, location, bytes - folder);
    FILE *file = fopen(full, "rb");
    strata_status status = STRATA_OK;
    if (file && !lies_inside(full, folder))
        status = strata_fail(err, STRATA_DATA,
                             "%s: the data of tensor \"%.60s\" are in %.300s, a link to outside of the model's own folder",
                             path, name, full);
    else if (!file)
        status = strata_fail(err, STRATA_UNAVAILABLE, "%s: the data of tensor \"%.60s\" are in %.300s, which cannot be opened",
                             path, name, full);
    else if (fseeko(file, (off_t)offset, SEEK_SET) || fread(data, 1, wanted, file) != wanted)
        status = strata_fail(err, STRATA_DATA, "%s: %.300s ends before the data of tensor \"%.60s\" (%zu bytes from %zu on)",
                             path, full, name, wanted, offset);
    if (file) fclose(file);
    if (!status) *out = strata_released(&data);
    return status;
}

/* ---- data in the message ---- */

/* The number of elements in the fields of the message. */
static size_t count_fields(const StrataOnnx__Tensor *t) {
    return t->n_float_data + t->n_double_data + t->n_int64_data + t->n_int32_data + t->n_uint64_data;
}

/* Copies the elements from the one field that has them. */
static void copy_fields(const StrataOnnx__Tensor *t, const element_type *type, strata_array *out) {
    const int64_t n = strata_shape_elements(out->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t whole = t->n_int64_data ? t->int64_data[i] : t->n_int32_data ? t->int32_data[i] : 0;
        if (t->n_uint64_data) whole = (int64_t)t->uint64_data[i];
        if (type->kind == KIND_F16 || type->kind == KIND_BF16) {
            const uint16_t bits = (uint16_t)whole;
            ((float *)out->data)[i] = type->kind == KIND_F16 ? strata_f16_to_f32(bits) : strata_bf16_to_f32(bits);
        } else if (t->n_float_data || t->n_double_data) {
            strata_element_set(out->dtype, out->data, i, t->n_float_data ? (double)t->float_data[i] : t->double_data[i]);
        } else if (out->dtype == STRATA_DTYPE_I64) {
            ((int64_t *)out->data)[i] = whole;
        } else {
            strata_element_set(out->dtype, out->data, i, (double)whole);
        }
    }
}

strata_status strata_onnx_read_tensor(const StrataOnnx__Tensor *tensor, const char *path, strata_array *out,
                                      strata_error *err) {
    const char *name = tensor->name ? tensor->name : "";
    strata_shape shape = {.rank = (int)tensor->n_dims};
    strata_dtype dtype = STRATA_DTYPE_F32;
    strata_error reason = {0};
    *out = (strata_array){0};
    if (tensor->n_dims > STRATA_MAX_RANK)
        return strata_fail(err, STRATA_UNSUPPORTED, "tensor \"%.60s\" has %zu axes; at most %d", name, tensor->n_dims,
                           STRATA_MAX_RANK);
    for (int d = 0; d < shape.rank; d++) shape.dims[d] = tensor->dims[d];
    if (strata_shape_check(shape, &reason)) return strata_fail(err, STRATA_DATA, "tensor \"%.60s\": %s", name, reason.message);
    STRATA_TRY(strata_onnx_dtype_of(tensor->data_type, &dtype, name, err));
    const element_type *type = find_type(tensor->data_type);
    const int64_t elements = strata_shape_elements(shape);
    if ((uint64_t)elements > SIZE_MAX / 16)
        return strata_fail(err, STRATA_DATA, "tensor \"%.60s\" %s is too large", name, strata_shape_text(shape).text);
    const size_t bytes = (size_t)elements * type->bytes, fields = count_fields(tensor);
    const bool external = tensor->data_location == 1 || tensor->n_external_data;
    const bool raw = tensor->has_raw_data && (tensor->raw_data.len || !elements);
    /* A damaged file may contain any shape, so it is compared with the size of the data before memory is allocated. */
    if (!external && raw && tensor->raw_data.len != bytes)
        return strata_fail(err, STRATA_DATA, "tensor \"%.60s\" has %zu bytes; its shape %s needs %zu", name,
                           tensor->raw_data.len, strata_shape_text(shape).text, bytes);
    if (!external && !raw && fields &&
        (tensor->n_float_data != fields && tensor->n_double_data != fields && tensor->n_int64_data != fields &&
         tensor->n_int32_data != fields && tensor->n_uint64_data != fields))
        return strata_fail(err, STRATA_DATA, "tensor \"%.60s\" has elements of several types", name);
    if (!external && !raw && fields != (size_t)elements)
        return strata_fail(err, STRATA_DATA, "tensor \"%.60s\" has %zu elements; its shape %s needs %lld", name, fields,
                           strata_shape_text(shape).text, (long long)elements);
    STRATA_FREED unsigned char *data = NULL;
    if (external) STRATA_TRY(read_external(tensor, path, name, bytes, &data, err));
    STRATA_TRY(strata_array_create(dtype, shape, out, err));
    const unsigned char *from = external ? data : raw ? tensor->raw_data.data : NULL;
    for (int64_t i = 0; i < elements && from; i++) convert(type, from + (size_t)i * type->bytes, out, i);
    if (!from) copy_fields(tensor, type, out);
    return STRATA_OK;
}

strata_status strata_onnx_convert(const strata_array *array, strata_dtype dtype, strata_array *out, strata_error *err) {
    const int64_t n = strata_shape_elements(array->shape);
    STRATA_TRY(strata_array_create(dtype, array->shape, out, err));
    if (n && dtype == array->dtype) memcpy(out->data, array->data, strata_array_bytes(array));
    for (int64_t i = 0; i < n && dtype != array->dtype; i++) {
        const double number = strata_element_get(array->dtype, array->data, i);
        if (dtype == STRATA_DTYPE_I64)
            ((int64_t *)out->data)[i] = (int64_t)number;
        else
            strata_element_set(dtype, out->data, i, number);
    }
    return STRATA_OK;
}
