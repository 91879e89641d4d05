/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads f32 data sets of HDF5 files by libhdf5, which is opened at run time: a program without Keras files does not need it. */
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

#endif
