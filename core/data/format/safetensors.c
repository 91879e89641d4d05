/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading safetensors: all values of the header are checked against the file before any tensor can be read.
 * Writing is in core/data/format/safetensors_write.c. */
#include "core/data/format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/format/kind.h"
#include "core/data/format/safetensors_dtypes.h"

enum { LENGTH_BYTES = 8 };

static const char metadata_key[] = "__metadata__";

/* ---- one entry of the header ---- */

static strata_status parse_dtype(const strata_json *entry, strata_safetensor *tensor, int *out_bits, strata_error *err) {
    STRATA_TRY(strata_json_get_string(entry, "dtype", STRATA_JSON_REQUIRED, &tensor->dtype_name, err));
    for (size_t i = 0; i < N_SAFETENSORS_DTYPES; i++) {
        if (strcmp(tensor->dtype_name, safetensors_dtypes[i].name) != 0) continue;
        tensor->dtype = safetensors_dtypes[i].dtype;
        *out_bits = safetensors_dtypes[i].bits;
        return STRATA_OK;
    }
    return strata_json_fail(entry, err, STRATA_DATA, "the format has no dtype \"%.40s\"", tensor->dtype_name);
}

static strata_status parse_shape(const strata_json *entry, strata_safetensor *tensor, strata_error *err) {
    const int64_t most_dim = (INT64_C(1) << 48) - 1;
    strata_json dims, dim;
    STRATA_TRY(strata_json_get(entry, "shape", &dims, err));
    STRATA_TRY(strata_json_expect(&dims, STRATA_JSON_ARRAY, err));
    tensor->shape.rank = 0;
    for (bool more = strata_json_first(&dims, &dim); more; more = strata_json_next(&dim)) {
        if (tensor->shape.rank == STRATA_MAX_RANK) {
            return strata_json_fail(&dims, err, STRATA_DATA, "has rank %" PRId64 "; at most %d is possible",
                                    strata_json_length(&dims), STRATA_MAX_RANK);
        }
        STRATA_TRY(strata_json_to_int(&dim, 0, most_dim, &tensor->shape.dims[tensor->shape.rank++], err));
    }
    strata_error why;
    if (strata_shape_check(tensor->shape, &why)) return strata_json_fail(&dims, err, STRATA_DATA, "%s", why.message);
    return STRATA_OK;
}

static strata_status parse_offsets(const strata_json *entry, int64_t n_data, int64_t *out_begin, int64_t *out_end,
                                   strata_error *err) {
    strata_json offsets, offset;
    STRATA_TRY(strata_json_get(entry, "data_offsets", &offsets, err));
    STRATA_TRY(strata_json_expect(&offsets, STRATA_JSON_ARRAY, err));
    if (strata_json_length(&offsets) != 2) {
        return strata_json_fail(&offsets, err, STRATA_DATA, "must be [begin, end], has %" PRId64 " elements",
                                strata_json_length(&offsets));
    }
    strata_json_first(&offsets, &offset);
    STRATA_TRY(strata_json_to_int(&offset, 0, n_data, out_begin, err));
    strata_json_next(&offset);
    return strata_json_to_int(&offset, *out_begin, n_data, out_end, err);
}

static strata_status parse_entry(const strata_json *entry, const unsigned char *data, size_t n_data, strata_safetensor *tensor,
                                 strata_error *err) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int bits = 0;
    int64_t begin = 0, end = 0;
    STRATA_TRY(strata_json_check_keys(entry, keys, 3, err));
    STRATA_TRY(parse_dtype(entry, tensor, &bits, err));
    STRATA_TRY(parse_shape(entry, tensor, err));
    STRATA_TRY(parse_offsets(entry, (int64_t)n_data, &begin, &end, err));
    int64_t elements = strata_shape_elements(tensor->shape), all_bits;
    if (__builtin_mul_overflow(elements, bits, &all_bits) || all_bits % 8 != 0 || all_bits / 8 != end - begin) {
        return strata_json_fail(
            entry, err, STRATA_DATA,
            "%s %s has %" PRId64 " elements of %d bits, but data_offsets [%" PRId64 ", %" PRId64 "] have %" PRId64 " bytes",
            tensor->dtype_name, strata_shape_text(tensor->shape).text, elements, bits, begin, end, end - begin);
    }
    tensor->name = entry->name;
    tensor->data = data + begin;
    tensor->n_bytes = (size_t)(end - begin);
    return STRATA_OK;
}

static strata_status check_metadata(const strata_json *metadata, strata_error *err) {
    STRATA_TRY(strata_json_expect(metadata, STRATA_JSON_OBJECT, err));
    strata_json item;
    for (bool more = strata_json_first(metadata, &item); more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_expect(&item, STRATA_JSON_STRING, err));
    }
    return STRATA_OK;
}

/* ---- the whole file ---- */

static int by_offset(const void *a, const void *b) {
    const strata_safetensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    /* an empty tensor is sorted before the tensor that begins at the same position */
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static int by_name(const void *a, const void *b) {
    const strata_safetensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Checks the tensors, which are sorted by offset: each must begin where the one before it ended, and the last must end with the
 * file. */
static strata_status check_offsets(const strata_safetensors *file, const unsigned char *data, size_t n_data,
                                   strata_error *err) {
    const unsigned char *end = data;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const strata_safetensor *tensor = &file->tensors[i];
        if (tensor->data != end) {
            return strata_fail(err, STRATA_DATA,
                               "%s: tensor \"%.100s\" begins at data byte %td, but the one before it%s%.100s%s ends at %td: %s",
                               file->name, tensor->name, tensor->data - data, i ? " (\"" : "",
                               i ? file->tensors[i - 1].name : "", i ? "\")" : "", end - data,
                               tensor->data < end ? "they overlap" : "there is a gap");
        }
        end = tensor->data + tensor->n_bytes;
    }
    if (end != data + n_data) {
        return strata_fail(err, STRATA_DATA, "%s: the tensors end at data byte %td, but the file has %zu bytes of data",
                           file->name, end - data, n_data);
    }
    return STRATA_OK;
}

static strata_status parse_entries(strata_safetensors *file, const unsigned char *data, size_t n_data, strata_error *err) {
    STRATA_TRY(strata_json_expect(&file->header, STRATA_JSON_OBJECT, err));
    size_t n_entries = (size_t)strata_json_length(&file->header);
    file->tensors = calloc(n_entries + 1, sizeof *file->tensors);
    file->by_name = calloc(n_entries + 1, sizeof *file->by_name);
    if (!file->tensors || !file->by_name) {
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for the names of %zu tensors", file->name, n_entries);
    }
    strata_json entry;
    for (bool more = strata_json_first(&file->header, &entry); more; more = strata_json_next(&entry)) {
        if (strcmp(entry.name, metadata_key) == 0) {
            STRATA_TRY(check_metadata(&entry, err));
        } else {
            STRATA_TRY(parse_entry(&entry, data, n_data, &file->tensors[file->n_tensors++], err));
        }
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_offset);
    STRATA_TRY(check_offsets(file, data, n_data, err));
    for (size_t i = 0; i < file->n_tensors; i++) file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->n_tensors, sizeof *file->by_name, by_name);
    return STRATA_OK;
}

/* Reads the length of the header, and checks that the header ends within the file and begins with '{'. */
static strata_status parse_length(const char *name, const unsigned char *bytes, size_t n_bytes, size_t *out_n_header,
                                  strata_error *err) {
    if (n_bytes < LENGTH_BYTES) {
        return strata_fail(err, STRATA_DATA, "%s: has %zu bytes; a safetensors file begins with %d bytes of length", name,
                           n_bytes, LENGTH_BYTES);
    }
    uint64_t n_header = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) n_header = n_header << 8 | bytes[i];
    if (n_header > STRATA_SAFETENSORS_MAX_HEADER) {
        return strata_fail(err, STRATA_DATA, "%s: says that its header has %" PRIu64 " bytes; at most %d are allowed", name,
                           n_header, STRATA_SAFETENSORS_MAX_HEADER);
    }
    if (n_header > n_bytes - LENGTH_BYTES) {
        return strata_fail(err, STRATA_DATA,
                           "%s: says that its header has %" PRIu64 " bytes, but only %zu follow: it is cut off", name, n_header,
                           n_bytes - LENGTH_BYTES);
    }
    if (n_header == 0 || bytes[LENGTH_BYTES] != '{') {
        return strata_fail(err, STRATA_DATA, "%s: its header of %" PRIu64 " bytes does not begin with '{'", name, n_header);
    }
    *out_n_header = (size_t)n_header;
    return STRATA_OK;
}

strata_status strata_safetensors_parse(const char *name, const void *bytes, size_t n_bytes, strata_safetensors *out_file,
                                       strata_error *err) {
    *out_file = (strata_safetensors){.name = name};
    const unsigned char *header = (const unsigned char *)bytes + LENGTH_BYTES;
    size_t n_header = 0;
    strata_status status;
    STRATA_TRY_GOTO(parse_length(name, bytes, n_bytes, &n_header, err));
    STRATA_TRY_GOTO(strata_json_parse(name, header, n_header, STRATA_SAFETENSORS_MAX_HEADER, &out_file->header, err));
    STRATA_TRY_GOTO(parse_entries(out_file, header + n_header, n_bytes - LENGTH_BYTES - n_header, err));
    return STRATA_OK;
cleanup:
    strata_safetensors_finish(out_file);
    return status;
}

strata_status strata_safetensors_read(const char *path, strata_safetensors *out_file, strata_error *err) {
    *out_file = (strata_safetensors){0};
    unsigned char *bytes;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(46), &bytes, &n_bytes, err));
    strata_status status = strata_safetensors_parse(path, bytes, n_bytes, out_file, err);
    status = strata_file_explain(path, bytes, n_bytes, STRATA_FILE_UNKNOWN, status, err);
    if (status) {
        free(bytes);
    } else {
        out_file->owned = bytes;
    }
    return status;
}

void strata_safetensors_finish(strata_safetensors *file) {
    if (!file) return;
    strata_json_finish(&file->header);
    free(file->by_name);
    free(file->tensors);
    free(file->owned);
    *file = (strata_safetensors){0};
}

/* ---- reading tensors ---- */

static int name_of_tensor(const void *key, const void *element) {
    const strata_safetensor *const *tensor = element;
    return strcmp(key, (*tensor)->name);
}

const strata_safetensor *strata_safetensors_find(const strata_safetensors *file, const char *tensor_name) {
    if (file->n_tensors == 0) return NULL;
    strata_safetensor **found = bsearch(tensor_name, file->by_name, file->n_tensors, sizeof *file->by_name, name_of_tensor);
    return found ? *found : NULL;
}

const char *strata_safetensors_metadata(const strata_safetensors *file, const char *key) {
    strata_json metadata, value;
    const char *text = NULL;
    if (!strata_json_find(&file->header, metadata_key, &metadata) || !strata_json_find(&metadata, key, &value)) return NULL;
    return strata_json_to_string(&value, &text, NULL) ? NULL : text;
}

static strata_status get_tensor(const strata_safetensors *file, const char *tensor_name, const strata_safetensor **out_tensor,
                                strata_error *err) {
    const strata_safetensor *tensor = strata_safetensors_find(file, tensor_name);
    if (!tensor) {
        return strata_fail(err, STRATA_DATA, "%s: has no tensor \"%.100s\" among its %zu", file->name, tensor_name,
                           file->n_tensors);
    }
    if (tensor->dtype == STRATA_DTYPE_COUNT) {
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s: tensor \"%.100s\" has dtype %s, which Strata does not have; convert it to F32", file->name,
                           tensor_name, tensor->dtype_name);
    }
    *out_tensor = tensor;
    return STRATA_OK;
}

static strata_status copy_elements(const strata_safetensors *file, const strata_safetensor *tensor, void *out_data,
                                   strata_error *err) {
    for (size_t i = 0; tensor->dtype == STRATA_DTYPE_BOOL && i < tensor->n_bytes; i++) {
        if (tensor->data[i] > 1) {
            return strata_fail(err, STRATA_DATA, "%s: element %zu of tensor \"%.100s\" is %d; a bool must be 0 or 1",
                               file->name, i, tensor->name, tensor->data[i]);
        }
    }
    if (tensor->n_bytes) memcpy(out_data, tensor->data, tensor->n_bytes);
    return STRATA_OK;
}

strata_status strata_safetensors_copy(const strata_safetensors *file, const char *tensor_name, strata_dtype dtype,
                                      strata_shape shape, void *out_data, strata_error *err) {
    const strata_safetensor *tensor = NULL;
    STRATA_TRY(get_tensor(file, tensor_name, &tensor, err));
    if (tensor->dtype != dtype || !strata_shape_equal(tensor->shape, shape)) {
        return strata_fail(err, STRATA_DATA, "%s: tensor \"%.100s\" is %s %s, but %s %s is needed", file->name, tensor_name,
                           strata_dtype_name(tensor->dtype), strata_shape_text(tensor->shape).text, strata_dtype_name(dtype),
                           strata_shape_text(shape).text);
    }
    return copy_elements(file, tensor, out_data, err);
}

strata_status strata_safetensors_load(const strata_safetensors *file, const char *tensor_name, strata_array *out_array,
                                      strata_error *err) {
    *out_array = (strata_array){0};
    const strata_safetensor *tensor = NULL;
    STRATA_TRY(get_tensor(file, tensor_name, &tensor, err));
    STRATA_TRY(strata_array_create(tensor->dtype, tensor->shape, out_array, err));
    strata_status status = copy_elements(file, tensor, out_array->data, err);
    if (status) strata_array_finish(out_array);
    return status;
}
