/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading .npz archives: their arrays are .npy files in a zip archive, which core/data/format/zip.c reads. */
#include <stdio.h>

#include "core/base/file.h"
#include "core/data/dataset.h"
#include "core/data/format/npy.h"

enum { MOST_MEMBERS = 4096 };

/* Opens the archive, and removes ".npy" from the names of its members. */
static strata_status open_archive(const char *name, const void *bytes, size_t n_bytes, strata_zip *out, strata_error *err) {
    STRATA_TRY(strata_zip_open(name, bytes, n_bytes, out, err));
    for (int i = 0; i < out->n_members; i++) {
        char *own = out->members[i].name;
        const size_t n = strlen(own);
        if (n > 4 && !strcmp(own + n - 4, ".npy")) own[n - 4] = 0;
    }
    return STRATA_OK;
}

static strata_status find_member(const strata_zip *a, const char *wanted, const strata_zip_member **out) {
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

/* Reads the member's array into *out_array, if that is not NULL, and its description into *out_entry, if that is not NULL.
 * out_exact: as in strata_npy_parse_exact, or NULL. */
static strata_status read_member(const strata_zip *a, const strata_zip_member *m, strata_array *out_array, double **out_exact,
                                 strata_npz_entry *out_entry) {
    char place[2 * STRATA_ZIP_LONGEST_NAME];
    const unsigned char *bytes = NULL;
    STRATA_FREED unsigned char *expanded = NULL;
    STRATA_TRY(strata_zip_unpack(a, m, &bytes, &expanded));
    snprintf(place, sizeof place, "%.250s: %s", a->name, m->name);
    if (out_array) STRATA_TRY(strata_npy_parse_exact(place, bytes, m->size, out_array, out_exact, a->err));
    if (!out_entry) return STRATA_OK;
    out_entry->name = m->name;
    return strata_npy_describe(place, bytes, m->size, &out_entry->type, &out_entry->shape, &out_entry->n_bytes, a->err);
}

strata_status strata_npz_parse_exact(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                                     strata_array *out_array, double **out_exact, strata_error *err) {
    STRATA_FINISHED(strata_zip) a = {0};
    const strata_zip_member *m = NULL;
    *out_array = (strata_array){0};
    STRATA_TRY(open_archive(name, bytes, n_bytes, &a, err));
    STRATA_TRY(find_member(&a, array_name, &m));
    return read_member(&a, m, out_array, out_exact, NULL);
}

strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                               strata_array *out_array, strata_error *err) {
    return strata_npz_parse_exact(name, bytes, n_bytes, array_name, out_array, NULL, err);
}

strata_status strata_npz_list(const char *name, const void *bytes, size_t n_bytes, strata_npz_visitor visit, void *user,
                              strata_error *err) {
    STRATA_FINISHED(strata_zip) a = {0};
    STRATA_FREED strata_npz_entry *entries = NULL;
    STRATA_TRY(open_archive(name, bytes, n_bytes, &a, err));
    STRATA_TRY(STRATA_NEW(entries, a.n_members, err, "%s: no host memory", name));
    for (int i = 0; i < a.n_members; i++) STRATA_TRY(read_member(&a, &a.members[i], NULL, NULL, &entries[i]));
    for (int i = 0; i < a.n_members && visit; i++) visit(&entries[i], user);
    return STRATA_OK;
}

/* ---- writing ---- */

strata_status strata_npz_write(const char *path, const strata_named_array *arrays, int n, strata_error *err) {
    strata_zip_content members[STRATA_ZIP_MOST_CONTENTS] = {{0}};
    size_t n_bytes = 0;
    STRATA_FREED char *all = NULL;
    if (n > STRATA_ZIP_MOST_CONTENTS)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: %d arrays; at most %d", path, n, STRATA_ZIP_MOST_CONTENTS);
    for (int i = 0; i < n; i++)
        n_bytes += strlen(arrays[i].name) + sizeof ".npy" + STRATA_NPY_MOST_HEADER + strata_array_bytes(&arrays[i].array);
    STRATA_TRY(STRATA_NEW(all, n_bytes, err, "%s: no host memory for %zu bytes", path, n_bytes));
    char *at = all;
    for (int i = 0; i < n; i++) {
        const strata_array *array = &arrays[i].array;
        const size_t n_elements = strata_array_bytes(array);
        size_t n_header = 0;
        members[i].name = at;
        at = stpcpy(stpcpy(at, arrays[i].name), ".npy") + 1;
        STRATA_TRY(strata_npy_header(path, array, at, &n_header, err));
        if (n_elements) memcpy(at + n_header, array->data, n_elements);
        members[i].bytes = at;
        members[i].n_bytes = n_header + n_elements;
        at += members[i].n_bytes;
    }
    return strata_zip_write(path, members, n, NULL, err);
}

/* ---- datasets ---- */

strata_status strata_dataset_npz(const char *path, const char *features, const char *labels, strata_dataset **out_dataset,
                                 strata_error *err) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_FINISHED(strata_array) x = {0}, y = {0};
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(36), &bytes, &n_bytes, err));
    STRATA_TRY(strata_npz_parse(path, bytes, n_bytes, features, &x, err));
    if (labels) STRATA_TRY(strata_npz_parse(path, bytes, n_bytes, labels, &y, err));
    /* Some programs write labels as (n, 1); they become (n). */
    if (y.shape.rank == 2 && y.shape.dims[1] == 1) y.shape = STRATA_SHAPE(y.shape.dims[0]);
    const strata_dataset_facts facts = {.scale = x.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0, .source = path};
    return strata_dataset_take_known(&x, &y, &facts, out_dataset, err);
}
