/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading zip archives from memory, with members that are stored or deflated, and writing archives with stored members. The
 * source of the format is PKWARE's APPNOTE. Encryption, several disks and archives of more than 4 GiB are not supported. */
#ifndef STRATA_CORE_DATA_ZIP_H
#define STRATA_CORE_DATA_ZIP_H

#include "core/base/file.h"
#include "strata/formats.h"

enum { STRATA_ZIP_LONGEST_NAME = 256 };

typedef struct strata_zip_member {
    char name[STRATA_ZIP_LONGEST_NAME];
    /* 0: stored, 8: deflated. */
    unsigned method;
    uint32_t crc;
    /* The size in the archive, and decompressed, in bytes. */
    size_t packed, size;
    /* The offset of its local header. */
    size_t local;
} strata_zip_member;

typedef struct strata_zip {
    /* The archive's name in messages; borrowed. */
    const char *name;
    const unsigned char *bytes;
    size_t n_bytes;
    strata_zip_member *members;
    int n_members;
    strata_error *err;
} strata_zip;

/* Reads the directory. name, bytes and err are borrowed until finish. Fails: DATA, with the offset of the damage; UNSUPPORTED
 * for a member of more than 4 GiB. */
STRATA_MUST_USE strata_status strata_zip_open(const char *name, const void *bytes, size_t n_bytes, strata_zip *out,
                                              strata_error *err);
void strata_zip_finish(strata_zip *zip);
/* NULL: there is no such member. */
const strata_zip_member *strata_zip_find(const strata_zip *zip, const char *name);
/* *out_bytes: the member->size bytes of a member, after comparing their checksum. The bytes of a stored member are in the
 * archive. Those of a deflated member are in *out_expanded, which the caller frees, also on failure. Fails: DATA for a damaged
 * member; UNSUPPORTED for other compression methods. */
STRATA_MUST_USE strata_status strata_zip_unpack(const strata_zip *zip, const strata_zip_member *member,
                                                const unsigned char **out_bytes, unsigned char **out_expanded);

/* ---- writing ---- */

/* A member to write; name and bytes are borrowed. */
typedef struct strata_zip_content {
    const char *name;
    const void *bytes;
    size_t n_bytes;
} strata_zip_content;
/* Writes n members, at most STRATA_ZIP_MOST_CONTENTS, without compression, through a temporary file (core/base/file.h),
 * which `check` (NULL: none) reads back before it is renamed. The same members give the same bytes. Fails: UNSUPPORTED for
 * more than 4 GiB; as core/base/file.h. */
STRATA_MUST_USE strata_status strata_zip_write(const char *path, const strata_zip_content *members, int n,
                                               const strata_file_check *check, strata_error *err);

#endif
