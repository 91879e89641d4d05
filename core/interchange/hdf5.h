/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes f32 data sets of HDF5 files in memory, by libhdf5, which is opened at run time: a program without Keras'
 * files does not need it. */
#ifndef STRATA_CORE_INTERCHANGE_HDF5_H
#define STRATA_CORE_INTERCHANGE_HDF5_H

#include "strata/tensor.h"

typedef struct strata_hdf5 strata_hdf5;

/* Opens a file that lies in memory, which is borrowed until close. Fails: UNSUPPORTED where there is no libhdf5; DATA. */
STRATA_MUST_USE strata_status strata_hdf5_open(const char *name, const void *bytes, size_t n_bytes, strata_hdf5 **out,
                                               strata_error *err);
void strata_hdf5_close(strata_hdf5 *file); /* NULL is fine */
/* The data set "layers/dense/vars/0", which must have `n` elements, as f32. Fails: DATA. */
STRATA_MUST_USE strata_status strata_hdf5_read(strata_hdf5 *file, const char *path, int64_t n, float *out, strata_error *err);

/* ---- writing ---- */

/* A new file in memory, for write and take. Fails: UNSUPPORTED where there is no libhdf5; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_hdf5_create(const char *name, strata_hdf5 **out, strata_error *err);
/* Adds the data set "layers/dense/vars/0", and the groups on the way. */
STRATA_MUST_USE strata_status strata_hdf5_write(strata_hdf5 *file, const char *path, strata_shape shape, const float *data,
                                                strata_error *err);
/* The file's bytes, which the caller frees. */
STRATA_MUST_USE strata_status strata_hdf5_take(strata_hdf5 *file, void **out_bytes, size_t *out_n_bytes, strata_error *err);

#endif
