/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a .npy file: the library writes such arrays only to .npz archives. */
#ifndef TESTS_SUPPORT_NPY_H
#define TESTS_SUPPORT_NPY_H

#include "core/base/file.h"
#include "core/data/format/npy.h"

static inline strata_status test_write_npy(const char *path, const strata_array *array, strata_error *err) {
    char header[STRATA_NPY_MOST_HEADER];
    size_t n = 0;
    strata_file_writer *writer = NULL;
    STRATA_TRY(strata_npy_header(path, array, header, &n, err));
    STRATA_TRY(strata_file_writer_create(path, &writer, err));
    strata_status status = strata_file_writer_add(writer, header, n, err);
    if (!status) status = strata_file_writer_add(writer, array->data, strata_array_bytes(array), err);
    if (!status) status = strata_file_writer_commit(writer, NULL, err);
    strata_file_writer_destroy(writer);
    return status;
}

#endif
