/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: an 8-byte little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, ...,
 * "__metadata__": {string: string}}, then the tensors, little-endian and row-major, without holes. Format: the README of
 * github.com/huggingface/safetensors. The meaning of the tensors is defined by the model. */
#ifndef STRATA_CORE_DATA_SAFETENSORS_H
#define STRATA_CORE_DATA_SAFETENSORS_H

#include "core/base/export.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

enum { STRATA_SAFETENSORS_MAX_HEADER = 16 << 20 };

/* One tensor of a file. */
typedef struct strata_safetensor {
    const char *name;
    /* The name of the dtype in the file, for example "F32". */
    const char *dtype_name;
    /* STRATA_DTYPE_COUNT if Strata does not have the dtype ("F64"); reading such a tensor fails with UNSUPPORTED. */
    strata_dtype dtype;
    strata_shape shape;
    /* The data in the file's memory, which may be unaligned. */
    const unsigned char *data;
    size_t n_bytes;
} strata_safetensor;

/* A checked file. Tensors are in the order of their data. Names live as long as the file. */
typedef struct strata_safetensors {
    /* The name of the file, for messages; borrowed. */
    const char *name;
    strata_safetensor *tensors;
    size_t n_tensors;
    /* Pointers to the elements of `tensors`, sorted by name. */
    strata_safetensor **by_name;
    strata_json header;
    /* The file's bytes, if strata_safetensors_read read them; NULL: the bytes are the caller's. */
    unsigned char *owned;
} strata_safetensors;

/* Checks all of bytes[0..n_bytes), which are borrowed until finish.
 * Fails: DATA, with file, tensor and numbers, if the header is longer than the file or 16 MiB, the JSON is malformed, a name
 * occurs twice, a rank is above 8, a dimension is 2^48 or more, the byte ranges of tensors overlap or leave a gap, a byte range
 * does not fit its shape and dtype, or the last one does not end with the file; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_safetensors_parse(const char *name, const void *bytes, size_t n_bytes,
                                                       strata_safetensors *out_file, strata_error *err);
/* Reads a whole file into memory and parses it; borrows `path`. Fails as strata_safetensors_parse, and with UNAVAILABLE if the
 * file cannot be read. */
STRATA_MUST_USE strata_status strata_safetensors_read(const char *path, strata_safetensors *out_file, strata_error *err);
void strata_safetensors_finish(strata_safetensors *file); /* NULL and a zeroed file are fine */

/* Finds a tensor by its name; NULL: there is none. */
const strata_safetensor *strata_safetensors_find(const strata_safetensors *file, const char *tensor_name);
/* A value of __metadata__; NULL: the key is missing. Lives as long as the file. */
const char *strata_safetensors_metadata(const strata_safetensors *file, const char *key);

/* Copies the elements of a tensor to out_data. dtype and shape are those that the caller expects.
 * Fails: DATA if there is no such tensor, if its dtype or shape is another, or if a bool is neither 0 nor 1; UNSUPPORTED if
 * Strata does not have the dtype. */
STRATA_MUST_USE strata_status strata_safetensors_copy(const strata_safetensors *file, const char *tensor_name,
                                                      strata_dtype dtype, strata_shape shape, void *out_data,
                                                      strata_error *err);
/* Copies a tensor to a new array, which the caller finishes. Fails as strata_safetensors_copy, and with OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_safetensors_load(const strata_safetensors *file, const char *tensor_name,
                                                      strata_array *out_array, strata_error *err);

/* ---- writing ---- */

typedef struct strata_named_array {
    const char *name;
    /* Borrowed. */
    strata_array array;
} strata_named_array;

typedef struct strata_metadata {
    const char *key, *value;
} strata_metadata;

/* Writes a temporary file and renames it (core/base/file.h), so that `path` is always either the old or the new file. Tensors
 * are sorted by decreasing element size, then by name, as in the format's own library, so each is aligned to its elements. The
 * same content gives the same bytes.
 * Fails: INVALID for a duplicate or reserved name or key; OUT_OF_DISK, UNAVAILABLE, OUT_OF_MEMORY as core/base/file.h. */
STRATA_MUST_USE strata_status strata_safetensors_write(const char *path, const strata_named_array *tensors, size_t n_tensors,
                                                       const strata_metadata *metadata, size_t n_metadata, strata_error *err);
/* The same; `check` reads the temporary file back before it is renamed. */
STRATA_MUST_USE strata_status strata_safetensors_write_checked(const char *path, const strata_named_array *tensors,
                                                               size_t n_tensors, const strata_metadata *metadata,
                                                               size_t n_metadata, const strata_file_check *check,
                                                               strata_error *err);
/* The same, without reading it back; also returns the SHA-256 and the length of the bytes that were written. */
STRATA_MUST_USE strata_status strata_safetensors_write_hashed(const char *path, const strata_named_array *tensors,
                                                              size_t n_tensors, const strata_metadata *metadata,
                                                              size_t n_metadata, char *out_sha256, int64_t *out_bytes,
                                                              strata_error *err);

STRATA_EXPORT_END

#endif
