/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a file in parts, and reads it back before it gets its name. The public header, strata/file.h, has reading and writing
 * in one call. Parsers of the bytes are in core/data/ and core/base/json.h. */
#ifndef STRATA_CORE_FILE_H
#define STRATA_CORE_FILE_H

#include "strata/file.h"

/* One file being written. The bytes go to a temporary file in the same folder; commit syncs it, renames it over `path` and
 * syncs the folder. Until commit has succeeded, `path` is what it was before; destroy without commit removes the temporary
 * file. An existing file's permissions are kept, a symbolic link is followed. */
typedef struct strata_file_writer strata_file_writer;

/* Fails: UNAVAILABLE when the folder is missing or not writable, INVALID when `path` is a folder or a device, OUT_OF_DISK,
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_file_writer_create(const char *path, strata_file_writer **out_writer, strata_error *err);
/* Fails: OUT_OF_DISK when the disk, the quota or the limit of file size is reached, UNAVAILABLE for
 * other errors of the disk. */
STRATA_MUST_USE strata_status strata_file_writer_add(strata_file_writer *writer, const void *bytes, size_t n_bytes,
                                                     strata_error *err);
/* Renames the file only if `check` can read it. NULL: nothing is checked.
 * Fails also: as check->read, with a message that names `path`, UNSUPPORTED instead of DATA and INVALID. */
STRATA_MUST_USE strata_status strata_file_writer_commit(strata_file_writer *writer, const strata_file_check *check,
                                                        strata_error *err);
void strata_file_writer_destroy(strata_file_writer *writer);

#endif
