/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: the header as JSON, padded with spaces to 8 bytes, then the tensors' bytes. Reading is in
 * core/data/format/safetensors.c. */
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/format/safetensors.h"
#include "core/data/format/safetensors_dtypes.h"
#include "strata/sha256.h"

static const char *file_dtype(strata_dtype dtype) {
    for (size_t i = 0; i < N_SAFETENSORS_DTYPES; i++) {
        if (safetensors_dtypes[i].dtype == dtype) return safetensors_dtypes[i].name;
    }
    return NULL;
}

static int in_file_order(const void *a, const void *b) {
    const strata_named_array *const *x = a, *const *y = b;
    size_t x_bytes = strata_dtype_bytes((*x)->array.dtype), y_bytes = strata_dtype_bytes((*y)->array.dtype);
    if (x_bytes != y_bytes) return x_bytes > y_bytes ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b) {
    const strata_metadata *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static void add_metadata(strata_json_writer *writer, const strata_metadata *const *sorted, size_t n_metadata) {
    if (n_metadata == 0) return;
    strata_json_key(writer, "__metadata__");
    strata_json_begin_object(writer);
    for (size_t i = 0; i < n_metadata; i++) {
        strata_json_key(writer, sorted[i]->key);
        strata_json_write_string(writer, sorted[i]->value);
    }
    strata_json_end_object(writer);
}

static size_t add_tensor(strata_json_writer *writer, const strata_named_array *tensor, size_t begin) {
    size_t end = begin + strata_array_bytes(&tensor->array);
    strata_json_key(writer, tensor->name);
    strata_json_begin_object(writer);
    strata_json_key(writer, "dtype");
    strata_json_write_string(writer, file_dtype(tensor->array.dtype));
    strata_json_key(writer, "shape");
    strata_json_begin_array(writer);
    for (int d = 0; d < tensor->array.shape.rank; d++) strata_json_write_int(writer, tensor->array.shape.dims[d]);
    strata_json_end_array(writer);
    strata_json_key(writer, "data_offsets");
    strata_json_begin_array(writer);
    strata_json_write_int(writer, (int64_t)begin);
    strata_json_write_int(writer, (int64_t)end);
    strata_json_end_array(writer);
    strata_json_end_object(writer);
    return end;
}

static strata_status check_names(const char *path, const strata_named_array *const *tensors, size_t n_tensors,
                                 const strata_metadata *const *metadata, size_t n_metadata, strata_error *err) {
    for (size_t i = 0; i < n_metadata; i++) {
        if (!strata_utf8_valid(metadata[i]->key) || !strata_utf8_valid(metadata[i]->value)) {
            return strata_fail(err, STRATA_INVALID, "%s: metadata \"%.100s\" is not valid UTF-8", path, metadata[i]->key);
        }
    }
    for (size_t i = 0; i < n_tensors; i++) {
        const char *name = tensors[i]->name;
        if (strcmp(name, "__metadata__") == 0) {
            return strata_fail(err, STRATA_INVALID, "%s: a tensor can't be named \"%s\"; the format uses that name", path,
                               name);
        }
        if (!strata_utf8_valid(name)) {
            return strata_fail(err, STRATA_INVALID, "%s: the name \"%.100s\" of a tensor is not valid UTF-8", path, name);
        }
        if (!file_dtype(tensors[i]->array.dtype)) {
            return strata_fail(err, STRATA_INVALID, "%s: tensor \"%.100s\" has dtype %d, which is not known", path, name,
                               (int)tensors[i]->array.dtype);
        }
    }
    return STRATA_OK;
}

/* Makes the 8 bytes of length and the padded header. The caller frees the text. */
static strata_status make_header(const char *path, const strata_named_array *const *tensors, size_t n_tensors,
                                 const strata_metadata *const *metadata, size_t n_metadata, char **out_text,
                                 size_t *out_n_bytes, strata_error *err) {
    strata_json_writer writer = {0};
    strata_text_add_bytes(&writer.text, "........", 8); /* room for the length */
    strata_json_begin_object(&writer);
    add_metadata(&writer, metadata, n_metadata);
    size_t end = 0;
    for (size_t i = 0; i < n_tensors; i++) end = add_tensor(&writer, tensors[i], end);
    strata_json_end_object(&writer);
    strata_text_add_bytes(&writer.text, "       ", (8 - writer.text.n_bytes % 8) % 8);
    STRATA_TRY(strata_json_take(&writer, out_text, out_n_bytes, err));
    uint64_t n_header = *out_n_bytes - 8;
    if (n_header > STRATA_SAFETENSORS_MAX_HEADER) {
        return strata_fail(err, STRATA_INVALID, "%s: names, shapes and metadata need %llu bytes; at most %d are possible", path,
                           (unsigned long long)n_header, STRATA_SAFETENSORS_MAX_HEADER);
    }
    for (int i = 0; i < 8; i++) (*out_text)[i] = (char)(n_header >> 8 * i & 0xFF);
    return STRATA_OK;
}

/* Parses the header as a reader will, so that no file is written that a reader would refuse, for example because of two equal
 * names. */
static strata_status check_header(const char *path, const char *header, size_t n_header, strata_error *err) {
    strata_json root;
    strata_error why;
    strata_status status = strata_json_parse("header", header + 8, n_header - 8, STRATA_SAFETENSORS_MAX_HEADER, &root, &why);
    strata_json_finish(&root);
    if (status == STRATA_DATA) status = STRATA_INVALID;
    return status ? strata_fail(err, status, "%s: can't be written: %s", path, why.message) : STRATA_OK;
}

typedef struct output {
    strata_file_writer *file;
    strata_sha256 sha; /* context NULL: the hash is not computed */
    int64_t n_bytes;
} output;

static strata_status add_bytes(output *to, const void *bytes, size_t n_bytes, strata_error *err) {
    if (to->sha.context) STRATA_TRY(strata_sha256_update(&to->sha, bytes, n_bytes, err));
    to->n_bytes += (int64_t)n_bytes;
    return strata_file_writer_add(to->file, bytes, n_bytes, err);
}

static strata_status write_all(const char *path, const char *header, size_t n_header, const strata_named_array *const *tensors,
                               size_t n_tensors, const strata_file_check *check, char *out_sha256, int64_t *out_bytes,
                               strata_error *err) {
    output to = {0};
    strata_status status = STRATA_OK;
    STRATA_TRY_GOTO(strata_file_writer_create(path, &to.file, err));
    if (out_sha256) STRATA_TRY_GOTO(strata_sha256_init(&to.sha, err));
    STRATA_TRY_GOTO(add_bytes(&to, header, n_header, err));
    for (size_t i = 0; i < n_tensors; i++) {
        const strata_array *array = &tensors[i]->array;
        STRATA_TRY_GOTO(add_bytes(&to, array->data, strata_array_bytes(array), err));
    }
    if (out_sha256) STRATA_TRY_GOTO(strata_sha256_final(&to.sha, out_sha256, err));
    if (out_bytes) *out_bytes = to.n_bytes;
    status = strata_file_writer_commit_checked(to.file, check, err);
cleanup:
    strata_sha256_finish(&to.sha);
    strata_file_writer_destroy(to.file);
    return status;
}

strata_status strata_safetensors_write_hashed(const char *path, const strata_named_array *tensors, size_t n_tensors,
                                              const strata_metadata *metadata, size_t n_metadata,
                                              const strata_file_check *check, char *out_sha256, int64_t *out_bytes,
                                              strata_error *err) {
    char *header = NULL;
    size_t n_header = 0;
    strata_status status = STRATA_OUT_OF_MEMORY;
    const strata_named_array **sorted = calloc(n_tensors + 1, sizeof *sorted);
    const strata_metadata **sorted_metadata = calloc(n_metadata + 1, sizeof *sorted_metadata);
    if (!sorted || !sorted_metadata) {
        strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory to write %zu tensors", path, n_tensors);
        goto cleanup;
    }
    for (size_t i = 0; i < n_tensors; i++) sorted[i] = &tensors[i];
    for (size_t i = 0; i < n_metadata; i++) sorted_metadata[i] = &metadata[i];
    qsort(sorted, n_tensors, sizeof *sorted, in_file_order);
    qsort(sorted_metadata, n_metadata, sizeof *sorted_metadata, by_key);
    STRATA_TRY_GOTO(check_names(path, sorted, n_tensors, sorted_metadata, n_metadata, err));
    STRATA_TRY_GOTO(make_header(path, sorted, n_tensors, sorted_metadata, n_metadata, &header, &n_header, err));
    STRATA_TRY_GOTO(check_header(path, header, n_header, err));
    status = write_all(path, header, n_header, sorted, n_tensors, check, out_sha256, out_bytes, err);
cleanup:
    free(header);
    free(sorted_metadata);
    free(sorted);
    return status;
}

strata_status strata_safetensors_write(const char *path, const strata_named_array *tensors, size_t n_tensors,
                                       const strata_metadata *metadata, size_t n_metadata, strata_error *err) {
    return strata_safetensors_write_hashed(path, tensors, n_tensors, metadata, n_metadata, NULL, NULL, NULL, err);
}

strata_status strata_safetensors_write_checked(const char *path, const strata_named_array *tensors, size_t n_tensors,
                                               const strata_metadata *metadata, size_t n_metadata,
                                               const strata_file_check *check, strata_error *err) {
    return strata_safetensors_write_hashed(path, tensors, n_tensors, metadata, n_metadata, check, NULL, NULL, err);
}
