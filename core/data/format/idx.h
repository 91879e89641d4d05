/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX, the format of the MNIST files: 0 0 type rank, then the dimensions as big-endian u32, then big-endian elements in C
 * order. The file may be plain or gzip-compressed, which is detected by its first bytes and not by its name. */
#ifndef STRATA_CORE_DATA_IDX_H
#define STRATA_CORE_DATA_IDX_H

#include "strata/formats.h"

/* Parses bytes[0..n_bytes) into an array that the caller finishes. Types u8, i32 and f32; rank 1 to 4; at most 2^40 elements,
 * no dimension 0. The size must be exactly that of the header, and no more than this size is decompressed from a gzip stream.
 * name: used in messages.
 * Fails: DATA with name, offset and the two numbers that disagree; UNSUPPORTED for the types i8, i16, f64; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_idx_parse(const char *name, const void *bytes, size_t n_bytes, strata_array *out_array,
                                               strata_error *err);

#endif
