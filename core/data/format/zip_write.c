/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing zip archives: the members, each after its header, then the directory. Members are not compressed. Each has the
 * earliest date that a zip archive can have, so that the same members give the same bytes. */
#include <string.h>
#include <zlib.h>

#include "core/base/file.h"
#include "core/data/format/zip.h"

enum { LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22, VERSION = 20, FIRST_DAY = 0x21 /* 1980-01-01 */ };

static unsigned char *put16(unsigned char *at, size_t value) {
    at[0] = (unsigned char)value, at[1] = (unsigned char)(value >> 8);
    return at + 2;
}
static unsigned char *put32(unsigned char *at, size_t value) {
    return put16(put16(at, value & 0xffff), value >> 16);
}

/* Writes the fields that a local header and an entry of the directory have in common, which begin with the version that is
 * needed to extract the member. */
static unsigned char *put_member(unsigned char *at, const strata_zip_content *m) {
    at = put16(put16(put16(at, VERSION), 0), 0); /* no flags; method 0: stored */
    at = put16(put16(at, 0), FIRST_DAY);
    at = put32(at, crc32_z(0, m->bytes, m->n_bytes));
    at = put32(put32(at, m->n_bytes), m->n_bytes);
    return put16(put16(at, strlen(m->name)), 0);
}

static strata_status add_all(strata_file_writer *file, const char *path, const strata_zip_content *members, int n,
                             strata_error *err) {
    unsigned char head[ENTRY_BYTES] = "PK\3\4";
    size_t place = 0, first[STRATA_ZIP_MOST_CONTENTS], directory = 0;
    for (int i = 0; i < n; i++) {
        const size_t n_name = strlen(members[i].name);
        first[i] = place;
        if (members[i].n_bytes > UINT32_MAX - 65536 - place)
            return strata_fail(err, STRATA_UNSUPPORTED, "%s: it would have more than 4 GiB, which a zip archive cannot have",
                               path);
        put_member(head + 4, &members[i]);
        STRATA_TRY(strata_file_writer_add(file, head, LOCAL_BYTES, err));
        STRATA_TRY(strata_file_writer_add(file, members[i].name, n_name, err));
        STRATA_TRY(strata_file_writer_add(file, members[i].bytes, members[i].n_bytes, err));
        place += LOCAL_BYTES + n_name + members[i].n_bytes;
    }
    for (int i = 0; i < n; i++) {
        const size_t n_name = strlen(members[i].name);
        memcpy(head, "PK\1\2", 4);
        memset(put_member(put16(head + 4, VERSION), &members[i]), 0, 10); /* no comment, disk 0, no attributes */
        put32(head + ENTRY_BYTES - 4, first[i]);
        STRATA_TRY(strata_file_writer_add(file, head, ENTRY_BYTES, err));
        STRATA_TRY(strata_file_writer_add(file, members[i].name, n_name, err));
        directory += ENTRY_BYTES + n_name;
    }
    memcpy(head, "PK\5\6\0\0\0\0", 8);
    put16(put32(put32(put16(put16(head + 8, (size_t)n), (size_t)n), directory), place), 0);
    return strata_file_writer_add(file, head, END_BYTES, err);
}

strata_status strata_zip_write(const char *path, const strata_zip_content *members, int n, const strata_file_check *check,
                               strata_error *err) {
    strata_file_writer *file = NULL;
    STRATA_TRY(strata_file_writer_create(path, &file, err));
    strata_status status = add_all(file, path, members, n, err);
    if (!status) status = strata_file_writer_commit_checked(file, check, err);
    strata_file_writer_destroy(file);
    return status;
}
