/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: an 8-byte little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, ...,
 * "__metadata__": {string: string}}, then the tensors, little-endian and row-major, without holes. Format: the README of
 * github.com/huggingface/safetensors. The meaning of the tensors is defined by the model. */
#ifndef STRATA_CORE_DATA_SAFETENSORS_H
#define STRATA_CORE_DATA_SAFETENSORS_H

#include "core/base/file.h"
#include "core/base/json.h"
#include "strata/formats.h"

enum { STRATA_SAFETENSORS_MAX_HEADER = 16 << 20 };

/* The name of a dtype in files; NULL: it is not known. */
const char *strata_safetensors_dtype_name(strata_dtype dtype);
/* Finds a dtype by its name in files, and how many bits an element has. *out_dtype is STRATA_DTYPE_COUNT for one that Strata
 * does not have. Returns false if the format has none of this name. */
bool strata_safetensors_find_dtype(const char *name, strata_dtype *out_dtype, int *out_bits);

/* Checks all of bytes[0..n_bytes), which are borrowed until finish.
 * Fails: DATA, with file, tensor and numbers, if the header is longer than the file or 16 MiB, the JSON is malformed, a name
 * occurs twice, a rank is above 8, a dimension is 2^48 or more, the byte ranges of tensors overlap or leave a gap, a byte range
 * does not fit its shape and dtype, or the last one does not end with the file; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_safetensors_parse(const char *name, const void *bytes, size_t n_bytes,
                                                       strata_safetensors *out_file, strata_error *err);

/* ---- writing ---- */

typedef struct strata_metadata {
    const char *key, *value;
} strata_metadata;

/* How a file is written; each field may be NULL. */
typedef struct strata_safetensors_writing {
    /* Reads the temporary file back before it is renamed. */
    const strata_file_check *check;
    /* Receive the SHA-256 and the length of the bytes that were written. */
    char *sha256;
    int64_t *bytes;
} strata_safetensors_writing;

/* Writes a temporary file and renames it (core/base/file.h), so that `path` is always either the old or the new file. Tensors
 * are sorted by decreasing element size, then by name, as in the format's own library, so each is aligned to its elements. The
 * same content gives the same bytes. how: may be NULL.
 * Fails: INVALID for a duplicate or reserved name or key; OUT_OF_DISK, UNAVAILABLE, OUT_OF_MEMORY as core/base/file.h. */
STRATA_MUST_USE strata_status strata_safetensors_write(const char *path, const strata_named_array *tensors, size_t n_tensors,
                                                       const strata_metadata *metadata, size_t n_metadata,
                                                       const strata_safetensors_writing *how, strata_error *err);

#endif
