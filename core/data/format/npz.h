/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npz files: zip archives of .npy files, stored (savez) or deflated (savez_compressed). Format: PKWARE's APPNOTE,
 * without encryption, several disks, or archives beyond 4 GiB. */
#ifndef STRATA_CORE_DATA_NPZ_H
#define STRATA_CORE_DATA_NPZ_H

#include "strata/tensor.h"

/* The array called `array_name` (with or without .npy), which the caller finishes.
 *   name   stands in messages
 * Fails: DATA for a damaged archive, with the offset, a wrong checksum, or no such array (shows the nearest, or all);
 * UNSUPPORTED for other ways of compression; as core/data/format/npy.h. */
STRATA_MUST_USE strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                                               strata_array *out_array, strata_error *err);

/* What an archive stores under a name (without .npy), as strata_npy_describe says it. */
typedef struct strata_npz_entry {
    /* The data, valid until the visit ends. */
    const char *name;
    const char *type;
    strata_shape shape;
    size_t n_bytes;
} strata_npz_entry;
typedef void (*strata_npz_visitor)(const strata_npz_entry *entry, void *user);
/* Visits all arrays in the archive's order, once each was unpacked and its checksum found right: none where one is not. NULL:
 * only looks. Fails as strata_npz_parse. */
STRATA_MUST_USE strata_status strata_npz_list(const char *name, const void *bytes, size_t n_bytes, strata_npz_visitor visit,
                                              void *user, strata_error *err);

#endif
