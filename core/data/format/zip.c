/* SPDX-License-Identifier: Apache-2.0
 *
 * Zip archives: the members, each after its header, and a directory that lists them: name, offset, sizes, compression method
 * and checksum. Members that are written are not compressed, and have the earliest date that a zip archive can have, so that
 * the same members give the same bytes. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/base/file.h"
#include "strata/formats.h"

enum {
    END_BYTES = 22,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MOST_MEMBERS = 4096,
    VERSION = 20,
    FIRST_DAY = 0x21 /* 1980-01-01 */
};

static uint32_t u16(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8;
}
static uint32_t u32(const unsigned char *at) {
    return u16(at) | u16(at + 2) << 16;
}

static strata_status damaged(const strata_zip *a, size_t offset, const char *what) {
    return strata_fail(a->err, STRATA_DATA, "%s: at byte %zu of %zu: %s; it is cut off, or not a zip archive", a->name, offset,
                       a->n_bytes, what);
}

/* ---- the directory ---- */

/* Finds the record that ends the directory. Only a comment of at most 65535 bytes may follow it. */
static strata_status find_end(const strata_zip *a, size_t *out_end) {
    if (a->n_bytes < END_BYTES) return damaged(a, a->n_bytes, "a zip archive has at least 22 bytes");
    size_t last = a->n_bytes - END_BYTES, least = last > 65535 ? last - 65535 : 0;
    for (size_t at = last + 1; at-- > least;)
        if (!memcmp(a->bytes + at, "PK\5\6", 4) && at + END_BYTES + u16(a->bytes + at + 20) == a->n_bytes) {
            *out_end = at;
            return STRATA_OK;
        }
    return damaged(a, a->n_bytes, "there is no end of a zip directory");
}

static strata_status read_entry(strata_zip *a, size_t *at, size_t end) {
    if (end - *at < ENTRY_BYTES || memcmp(a->bytes + *at, "PK\1\2", 4))
        return damaged(a, *at, "a zip directory entry is missing");
    const unsigned char *e = a->bytes + *at;
    size_t n_name = u16(e + 28), bytes = ENTRY_BYTES + n_name + u16(e + 30) + u16(e + 32);
    strata_zip_member *m = &a->members[a->n_members];
    if (end - *at < bytes) return damaged(a, *at, "a zip directory entry is cut off");
    if (n_name >= STRATA_ZIP_LONGEST_NAME) return damaged(a, *at, "a name of more than 255 bytes");
    *m = (strata_zip_member){
        .method = u16(e + 10), .crc = u32(e + 16), .packed = u32(e + 20), .size = u32(e + 24), .local = u32(e + 42)};
    memcpy(m->name, e + ENTRY_BYTES, n_name);
    if (m->packed == UINT32_MAX || m->size == UINT32_MAX || m->local == UINT32_MAX)
        return strata_fail(a->err, STRATA_UNSUPPORTED, "%s: \"%s\" has more than 4 GiB", a->name, m->name);
    a->n_members++;
    *at += bytes;
    return STRATA_OK;
}

static strata_status read_directory(strata_zip *a) {
    size_t end = 0;
    STRATA_TRY(find_end(a, &end));
    unsigned n = u16(a->bytes + end + 10);
    size_t at = u32(a->bytes + end + 16);
    if (n > MOST_MEMBERS || at > end) return damaged(a, end, "the zip directory is not at the offset that is written here");
    a->members = calloc(n + 1, sizeof *a->members);
    if (!a->members) return strata_fail(a->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", a->name);
    for (unsigned i = 0; i < n; i++) STRATA_TRY(read_entry(a, &at, end));
    return STRATA_OK;
}

/* Decompresses raw DEFLATE data to m->size bytes. */
static strata_status expand(const strata_zip *a, const strata_zip_member *m, const unsigned char *packed, unsigned char *out) {
    z_stream z = {.next_in = (unsigned char *)packed, .avail_in = (uInt)m->packed, .next_out = out, .avail_out = (uInt)m->size};
    if (inflateInit2(&z, -15) != Z_OK)
        return strata_fail(a->err, STRATA_OUT_OF_MEMORY, "%s: no host memory to expand it", a->name);
    int result = inflate(&z, Z_FINISH);
    size_t left = z.avail_out, at = (size_t)(z.next_in - a->bytes);
    inflateEnd(&z);
    if (result == Z_STREAM_END && !left) return STRATA_OK;
    return strata_fail(a->err, STRATA_DATA, "%s: \"%s\" is damaged near byte %zu, after %zu of %zu expanded bytes", a->name,
                       m->name, at, m->size - left, m->size);
}

strata_status strata_zip_unpack(const strata_zip *a, const strata_zip_member *m, const unsigned char **out_bytes,
                                unsigned char **out_expanded) {
    const size_t most_expansion = 1032;
    *out_expanded = NULL;
    if (m->local > a->n_bytes || a->n_bytes - m->local < LOCAL_BYTES || memcmp(a->bytes + m->local, "PK\3\4", 4))
        return damaged(a, m->local, "there is no zip member");
    const unsigned char *local = a->bytes + m->local;
    size_t skip = LOCAL_BYTES + u16(local + 26) + u16(local + 28), left = a->n_bytes - m->local;
    if (left < skip || left - skip < m->packed) return damaged(a, m->local, "this zip member is longer than the archive");
    if (m->method != 0 && m->method != 8)
        return strata_fail(a->err, STRATA_UNSUPPORTED,
                           "%s: \"%s\" is compressed by method %u; members that are stored or deflated can be read", a->name,
                           m->name, m->method);
    if ((m->method == 0 && m->size != m->packed) || m->size / most_expansion > m->packed)
        return damaged(a, m->local, "the sizes of this zip member disagree");
    *out_bytes = local + skip;
    if (m->method == 8) {
        *out_expanded = malloc(m->size + 1);
        if (!*out_expanded)
            return strata_fail(a->err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %zu bytes", a->name, m->size);
        *out_bytes = *out_expanded;
        STRATA_TRY(expand(a, m, local + skip, *out_expanded));
    }
    if (crc32(0, *out_bytes, (uInt)m->size) == m->crc) return STRATA_OK;
    return strata_fail(a->err, STRATA_DATA, "%s: the checksum of \"%s\" is wrong: it is damaged", a->name, m->name);
}

strata_status strata_zip_open(const char *name, const void *bytes, size_t n_bytes, strata_zip *out, strata_error *err) {
    *out = (strata_zip){.name = name, .bytes = bytes, .n_bytes = n_bytes, .err = err};
    const strata_status status = read_directory(out);
    if (status) strata_zip_finish(out);
    return status;
}

const strata_zip_member *strata_zip_find(const strata_zip *zip, const char *name) {
    for (int i = 0; i < zip->n_members; i++)
        if (!strcmp(zip->members[i].name, name)) return &zip->members[i];
    return NULL;
}

void strata_zip_finish(strata_zip *zip) {
    free(zip->members);
    zip->members = NULL;
    zip->n_members = 0;
}

/* ---- writing ---- */

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
    if (!status) status = strata_file_writer_commit(file, check, err);
    strata_file_writer_destroy(file);
    return status;
}
