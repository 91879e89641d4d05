/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes whole files. Reading has a limit. Writing is atomic: a reader sees the old file or the new one, and never a
 * part. */
#ifndef STRATA_FILE_H
#define STRATA_FILE_H

#include "strata/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 2^power bytes. If addresses have fewer bits: half of the address space, which is the most that one array can have. */
#define STRATA_BYTES_LIMIT(power) ((power) < 8 * sizeof(size_t) - 1 ? (size_t)(UINT64_C(1) << (power)) : SIZE_MAX / 2)

/* Reads all of `path` into memory that the caller frees; a NUL follows the last byte and isn't counted.
 * Fails: UNAVAILABLE when it can't be opened or read, DATA when it is a folder or longer than max_bytes, OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_file_read(const char *path, size_t max_bytes, unsigned char **out_bytes,
                                                          size_t *out_n_bytes, strata_error *err);
/* Writes a file of these bytes: first a temporary file in the same folder, which is synced and then renamed over `path`. An
 * existing file's permissions are kept, a symbolic link is followed. Fails: UNAVAILABLE when the folder is missing or not
 * writable, and for errors of the disk; INVALID when `path` is a folder or a device; OUT_OF_DISK; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_file_write(const char *path, const void *bytes, size_t n_bytes,
                                                           strata_error *err);
/* Reads a file back: `path` is the complete temporary file, before it gets its final name. */
typedef struct strata_file_check {
    strata_status (*read)(const char *path, void *context, strata_error *err);
    void *context;
} strata_file_check;
/* As strata_file_write, but renames the file only if `check` can read it; NULL: nothing is checked. Fails also: as check->read,
 * with a message that names `path`, UNSUPPORTED instead of DATA and INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_file_write_checked(const char *path, const void *bytes, size_t n_bytes,
                                                                   const strata_file_check *check, strata_error *err);
/* Fails with the status that corresponds to the errno of a file operation, and the message "<path>: cannot <verb>:
 * <reason>". */
STRATA_API strata_status strata_file_fail(strata_error *err, int error_number, const char *path, const char *verb);

#ifdef __cplusplus
}
#endif
#endif
