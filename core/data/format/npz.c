/* SPDX-License-Identifier: Apache-2.0
 *
 * .npz: the central directory at the end of the archive says where each member is, how long, and how it is compressed. */
#include "core/data/format/npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/format/npy.h"

enum { END_BYTES = 22, ENTRY_BYTES = 46, LOCAL_BYTES = 30, LONGEST_NAME = 256, MOST_MEMBERS = 4096 };

typedef struct member {
    char name[LONGEST_NAME]; /* without .npy */
    unsigned method;         /* 0 stored, 8 deflated */
    uint32_t crc;
    size_t packed, size; /* bytes */
    size_t local;        /* offset of its local header */
} member;

typedef struct archive {
    const char *name;
    const unsigned char *bytes;
    size_t n_bytes;
    member *members;
    int n_members;
    strata_error *err;
} archive;

static uint32_t u16(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8;
}
static uint32_t u32(const unsigned char *at) {
    return u16(at) | u16(at + 2) << 16;
}

static strata_status damaged(const archive *a, size_t offset, const char *what) {
    return strata_fail(a->err, STRATA_DATA, "%s: at byte %zu of %zu: %s; it is cut off, or no .npz file", a->name, offset,
                       a->n_bytes, what);
}

/* ---- the directory ---- */

/* The end record is the last thing but for a comment of at most 65535 bytes. */
static strata_status find_end(const archive *a, size_t *out_end) {
    if (a->n_bytes < END_BYTES) return damaged(a, a->n_bytes, "a zip archive has at least 22 bytes");
    size_t last = a->n_bytes - END_BYTES, least = last > 65535 ? last - 65535 : 0;
    for (size_t at = last + 1; at-- > least;)
        if (!memcmp(a->bytes + at, "PK\5\6", 4) && at + END_BYTES + u16(a->bytes + at + 20) == a->n_bytes) {
            *out_end = at;
            return STRATA_OK;
        }
    return damaged(a, a->n_bytes, "there is no end of a zip directory");
}

static strata_status read_entry(archive *a, size_t *at, size_t end) {
    if (end - *at < ENTRY_BYTES || memcmp(a->bytes + *at, "PK\1\2", 4))
        return damaged(a, *at, "a zip directory entry is missing");
    const unsigned char *e = a->bytes + *at;
    size_t n_name = u16(e + 28), bytes = ENTRY_BYTES + n_name + u16(e + 30) + u16(e + 32);
    member *m = &a->members[a->n_members];
    if (end - *at < bytes) return damaged(a, *at, "a zip directory entry is cut off");
    if (n_name >= LONGEST_NAME) return damaged(a, *at, "a name of more than 255 bytes");
    *m = (member){.method = u16(e + 10), .crc = u32(e + 16), .packed = u32(e + 20), .size = u32(e + 24), .local = u32(e + 42)};
    memcpy(m->name, e + ENTRY_BYTES, n_name);
    if (n_name > 4 && !strcmp(m->name + n_name - 4, ".npy")) m->name[n_name - 4] = 0;
    if (m->packed == UINT32_MAX || m->size == UINT32_MAX || m->local == UINT32_MAX)
        return strata_fail(a->err, STRATA_UNSUPPORTED, "%s: \"%s\" has more than 4 GiB; save it as .npy", a->name, m->name);
    a->n_members++;
    *at += bytes;
    return STRATA_OK;
}

static strata_status read_directory(archive *a) {
    size_t end = 0;
    STRATA_TRY(find_end(a, &end));
    unsigned n = u16(a->bytes + end + 10);
    size_t at = u32(a->bytes + end + 16);
    if (n > MOST_MEMBERS || at > end) return damaged(a, end, "the zip directory is not where this says");
    a->members = calloc(n + 1, sizeof *a->members);
    if (!a->members) return strata_fail(a->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", a->name);
    for (unsigned i = 0; i < n; i++) STRATA_TRY(read_entry(a, &at, end));
    return STRATA_OK;
}

/* ---- a member ---- */

static strata_status find_member(const archive *a, const char *wanted, const member **out) {
    const char *names[MOST_MEMBERS];
    size_t length = strlen(wanted);
    if (length > 4 && !strcmp(wanted + length - 4, ".npy")) length -= 4;
    for (int i = 0; i < a->n_members; i++) {
        names[i] = a->members[i].name;
        if (strlen(names[i]) != length || memcmp(names[i], wanted, length)) continue;
        *out = &a->members[i];
        return STRATA_OK;
    }
    const char *nearest = strata_nearest_name(wanted, names, (size_t)a->n_members);
    if (nearest)
        return strata_fail(a->err, STRATA_DATA, "%s: has no array \"%s\"; did you mean \"%s\"?", a->name, wanted, nearest);
    char list[400] = "";
    size_t n = 0;
    for (int i = 0; i < a->n_members && n < sizeof list - 80; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.64s", i ? ", " : "", names[i]);
    return strata_fail(a->err, STRATA_DATA, "%s: has no array \"%s\"; it has: %s", a->name, wanted, list);
}

/* Raw DEFLATE into exactly m->size bytes. */
static strata_status expand(const archive *a, const member *m, const unsigned char *packed, unsigned char *out) {
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

/* The member's own bytes, m->size of them, checked: the archive's, or in *out_expanded, which the caller frees. */
static strata_status unpack(const archive *a, const member *m, const unsigned char **out_bytes, unsigned char **out_expanded) {
    const size_t most_expansion = 1032;
    *out_expanded = NULL;
    if (m->local > a->n_bytes || a->n_bytes - m->local < LOCAL_BYTES || memcmp(a->bytes + m->local, "PK\3\4", 4))
        return damaged(a, m->local, "there is no zip member");
    const unsigned char *local = a->bytes + m->local;
    size_t skip = LOCAL_BYTES + u16(local + 26) + u16(local + 28), left = a->n_bytes - m->local;
    if (left < skip || left - skip < m->packed) return damaged(a, m->local, "this zip member is longer than the archive");
    if (m->method != 0 && m->method != 8)
        return strata_fail(a->err, STRATA_UNSUPPORTED,
                           "%s: \"%s\" is compressed by method %u; savez and savez_compressed can be read", a->name, m->name,
                           m->method);
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

/* The array, or what the file stores of it: one of them is not NULL. */
static strata_status load(const archive *a, const member *m, strata_array *out_array, strata_npz_entry *out_entry) {
    char place[2 * LONGEST_NAME];
    const unsigned char *bytes = NULL;
    unsigned char *expanded = NULL;
    strata_status status = unpack(a, m, &bytes, &expanded);
    snprintf(place, sizeof place, "%.250s: %s", a->name, m->name);
    if (!status && out_array) status = strata_npy_parse(place, bytes, m->size, out_array, a->err);
    if (!status && out_entry) {
        out_entry->name = m->name;
        status = strata_npy_describe(place, bytes, m->size, &out_entry->type, &out_entry->shape, &out_entry->n_bytes, a->err);
    }
    free(expanded);
    return status;
}

strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                               strata_array *out_array, strata_error *err) {
    archive a = {.name = name, .bytes = bytes, .n_bytes = n_bytes, .err = err};
    const member *m = NULL;
    *out_array = (strata_array){0};
    strata_status status = read_directory(&a);
    if (!status) status = find_member(&a, array_name, &m);
    if (!status) status = load(&a, m, out_array, NULL);
    free(a.members);
    return status;
}

strata_status strata_npz_list(const char *name, const void *bytes, size_t n_bytes, strata_npz_visitor visit, void *user,
                              strata_error *err) {
    archive a = {.name = name, .bytes = bytes, .n_bytes = n_bytes, .err = err};
    strata_status status = read_directory(&a);
    strata_npz_entry *entries = status ? NULL : calloc((size_t)a.n_members + 1, sizeof *entries);
    if (!status && !entries) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    for (int i = 0; i < a.n_members && !status; i++) status = load(&a, &a.members[i], NULL, &entries[i]);
    for (int i = 0; i < a.n_members && !status && visit; i++) visit(&entries[i], user);
    free(entries);
    free(a.members);
    return status;
}

/* ---- datasets ---- */

/* Labels of shape (n,1), as some tools write them, are (n). */
static void drop_axis(strata_array *labels) {
    if (labels->shape.rank == 2 && labels->shape.dims[1] == 1) labels->shape = STRATA_SHAPE(labels->shape.dims[0]);
}

strata_status strata_dataset_npz(const char *path, const char *features, const char *labels, strata_dataset **out_dataset,
                                 strata_error *err) {
    unsigned char *bytes;
    size_t n_bytes;
    strata_array x = {0}, y = {0};
    strata_dataset *dataset = NULL;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(36), &bytes, &n_bytes, err));
    strata_status status = strata_npz_parse(path, bytes, n_bytes, features, &x, err);
    if (!status && labels) status = strata_npz_parse(path, bytes, n_bytes, labels, &y, err);
    free(bytes);
    drop_axis(&y);
    if (status) {
        strata_array_finish(&x);
        strata_array_finish(&y);
        return status;
    }
    STRATA_TRY(strata_dataset_take_arrays(&x, labels ? &y : NULL, x.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0, &dataset, err));
    status = strata_dataset_set_source(dataset, path, err);
    if (status)
        strata_dataset_destroy(dataset);
    else
        *out_dataset = dataset;
    return status;
}
