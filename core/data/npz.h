/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npz files: zip archives of .npy files, stored (savez) or deflated (savez_compressed). Format: PKWARE's APPNOTE, without encryption, several disks, or
 * archives beyond 4 GiB. */
#ifndef STRATA_CORE_DATA_NPZ_H
#define STRATA_CORE_DATA_NPZ_H

#include "strata/tensor.h"

/* The array called `array_name` (with or without .npy), which the caller finishes.
 *   name   stands in messages
 * Fails: DATA for a damaged archive, with the offset, a wrong checksum, or no such array (shows the nearest, or all); UNSUPPORTED
 * for other ways of compression; as core/data/npy.h. */
STRATA_MUST_USE strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                                               strata_array *out_array, strata_error *err);

#endif
