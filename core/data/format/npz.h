/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npz files: zip archives of .npy files, stored (savez) or deflated (savez_compressed). core/data/format/zip.h lists
 * which zip archives can be read. */
#ifndef STRATA_CORE_DATA_NPZ_H
#define STRATA_CORE_DATA_NPZ_H

#include "core/base/export.h"
#include "core/data/format/safetensors.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

/* Reads the array called `array_name` (with or without .npy), which the caller finishes.
 *   name   the archive's name in messages
 * Fails: DATA for a damaged archive, with the offset, for a wrong checksum, and if there is no such array (the message then
 * suggests the nearest name or lists all); UNSUPPORTED for other compression methods; as core/data/format/npy.h. */
STRATA_MUST_USE strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                                               strata_array *out_array, strata_error *err);

/* An array of an archive, as strata_npy_describe describes it. */
typedef struct strata_npz_entry {
    /* Without .npy. Valid until the visitor returns. */
    const char *name;
    const char *type;
    strata_shape shape;
    size_t n_bytes;
} strata_npz_entry;
typedef void (*strata_npz_visitor)(const strata_npz_entry *entry, void *user);
/* Calls `visit` for each array, in the archive's order. All members are unpacked and their checksums compared before the first
 * call, so that no array of a damaged archive is visited. visit NULL: the archive is only checked. Fails as
 * strata_npz_parse. */
STRATA_MUST_USE strata_status strata_npz_list(const char *name, const void *bytes, size_t n_bytes, strata_npz_visitor visit,
                                              void *user, strata_error *err);

/* Writes an archive of n arrays, at most STRATA_ZIP_MOST_CONTENTS, without compression. Fails: UNSUPPORTED for bf16; as
 * strata_zip_write. */
STRATA_MUST_USE strata_status strata_npz_write(const char *path, const strata_named_array *arrays, int n, strata_error *err);

STRATA_EXPORT_END

#endif
