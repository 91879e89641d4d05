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

#endif
