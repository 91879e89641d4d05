/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes f32 data sets of HDF5 files in memory. It loads libhdf5 at run time, so that only programs that use
 * Keras' files need the library. */
#ifndef STRATA_CORE_INTERCHANGE_HDF5_H
#define STRATA_CORE_INTERCHANGE_HDF5_H

#include "strata/tensor.h"

typedef struct strata_hdf5 strata_hdf5;

/* Opens a file in memory: that of these bytes, which are borrowed until strata_hdf5_close, or, if bytes is NULL, a new one.
 * Fails: UNSUPPORTED if there is no libhdf5; DATA; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_hdf5_open(const char *name, const void *bytes, size_t n_bytes, strata_hdf5 **out,
                                               strata_error *err);
void strata_hdf5_close(strata_hdf5 *file); /* NULL is fine */
/* Reads a data set as f32, for example "layers/dense/vars/0". It must have `n` elements. Fails: DATA. */
STRATA_MUST_USE strata_status strata_hdf5_read(strata_hdf5 *file, const char *path, int64_t n, float *out, strata_error *err);
/* Whether the bytes begin as an HDF5 file does. */
bool strata_hdf5_matches(const void *bytes, size_t n_bytes);
/* Reads text number `index` of an attribute of a group ("/": the root), which the caller frees. An attribute of one text has
 * number 0. Fails: DATA if there is no such attribute or text. */
STRATA_MUST_USE strata_status strata_hdf5_text(strata_hdf5 *file, const char *group, const char *attribute, int64_t index,
                                               char **out_text, strata_error *err);

/* ---- writing ---- */

/* Adds a data set, for example "layers/dense/vars/0", and the groups in its path. */
STRATA_MUST_USE strata_status strata_hdf5_write(strata_hdf5 *file, const char *path, strata_shape shape, const float *data,
                                                strata_error *err);
/* Returns the file's bytes, which the caller frees. */
STRATA_MUST_USE strata_status strata_hdf5_take(strata_hdf5 *file, void **out_bytes, size_t *out_n_bytes, strata_error *err);

#endif
