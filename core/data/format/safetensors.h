/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: an 8-byte little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, ...,
 * "__metadata__": {string: string}}, then the tensors, little-endian and row-major, without holes. Format: the README of
 * github.com/huggingface/safetensors. The meaning of the tensors is defined by the model. */
#ifndef STRATA_CORE_DATA_SAFETENSORS_H
#define STRATA_CORE_DATA_SAFETENSORS_H

#include "core/base/export.h"
#include "core/base/json.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

enum { STRATA_SAFETENSORS_MAX_HEADER = 16 << 20 };

/* One tensor of a file. */
typedef struct strata_safetensor {
    const char *name;
    /* As in the file: "F32". */
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
    /* Of the file, borrowed, for messages. */
    const char *name;
    strata_safetensor *tensors;
    size_t n_tensors;
    /* The same, sorted by name. */
    strata_safetensor **by_name;
    strata_json header;
    /* The file's bytes; NULL when they are borrowed. */
    unsigned char *owned;
} strata_safetensors;

/* Checks all of bytes[0..n_bytes), which are borrowed until finish.
 * Fails: DATA naming file, tensor and numbers for a header longer than the file or 16 MiB, malformed JSON, duplicate names,
 * rank above 8, a dimension of 2^48 or more, spans that overlap, leave a hole, don't fit shape and dtype, or don't end with the
 * file; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_safetensors_parse(const char *name, const void *bytes, size_t n_bytes,
                                                       strata_safetensors *out_file, strata_error *err);
/* The same on a file, which is read into memory whole; borrows `path`. Fails also: UNAVAILABLE when it can't be read. */
STRATA_MUST_USE strata_status strata_safetensors_read(const char *path, strata_safetensors *out_file, strata_error *err);
void strata_safetensors_finish(strata_safetensors *file); /* NULL and a zeroed file are fine */

/* NULL when there is none of this name. */
const strata_safetensor *strata_safetensors_find(const strata_safetensors *file, const char *tensor_name);
/* A value of __metadata__, NULL when there is none. Lives as long as the file. */
const char *strata_safetensors_metadata(const strata_safetensors *file, const char *key);

/* Copies a tensor's elements into memory of the caller, which states the expected dtype and shape.
 * Fails: DATA when there is no such tensor, or it has another dtype or shape, or a bool that is neither 0 nor 1; UNSUPPORTED
 * when Strata has no such dtype. */
STRATA_MUST_USE strata_status strata_safetensors_copy(const strata_safetensors *file, const char *tensor_name,
                                                      strata_dtype dtype, strata_shape shape, void *out_data,
                                                      strata_error *err);
/* The tensor as a new array, which the caller finishes. Fails as copy does, and with OUT_OF_MEMORY. */
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
/* The same; also returns the SHA-256 and the length of the bytes that were written. */
STRATA_MUST_USE strata_status strata_safetensors_write_hashed(const char *path, const strata_named_array *tensors,
                                                              size_t n_tensors, const strata_metadata *metadata,
                                                              size_t n_metadata, char *out_sha256, int64_t *out_bytes,
                                                              strata_error *err);

STRATA_EXPORT_END

#endif
