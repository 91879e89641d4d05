/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading .npz archives: their arrays are .npy files in a zip archive, which core/data/format/zip.c reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/dataset.h"
#include "core/data/format/npy.h"
#include "strata/formats.h"

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
    unsigned char *expanded = NULL;
    strata_status status = strata_zip_unpack(a, m, &bytes, &expanded);
    snprintf(place, sizeof place, "%.250s: %s", a->name, m->name);
    if (!status && out_array)
        status = out_exact ? strata_npy_parse_exact(place, bytes, m->size, out_array, out_exact, a->err)
                           : strata_npy_parse(place, bytes, m->size, out_array, a->err);
    if (!status && out_entry) {
        out_entry->name = m->name;
        status = strata_npy_describe(place, bytes, m->size, &out_entry->type, &out_entry->shape, &out_entry->n_bytes, a->err);
    }
    free(expanded);
    return status;
}

strata_status strata_npz_parse_exact(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                                     strata_array *out_array, double **out_exact, strata_error *err) {
    strata_zip a;
    const strata_zip_member *m = NULL;
    *out_array = (strata_array){0};
    STRATA_TRY(open_archive(name, bytes, n_bytes, &a, err));
    strata_status status = find_member(&a, array_name, &m);
    if (!status) status = read_member(&a, m, out_array, out_exact, NULL);
    strata_zip_finish(&a);
    return status;
}

strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes, const char *array_name,
                               strata_array *out_array, strata_error *err) {
    return strata_npz_parse_exact(name, bytes, n_bytes, array_name, out_array, NULL, err);
}

strata_status strata_npz_list(const char *name, const void *bytes, size_t n_bytes, strata_npz_visitor visit, void *user,
                              strata_error *err) {
    strata_zip a;
    STRATA_TRY(open_archive(name, bytes, n_bytes, &a, err));
    strata_npz_entry *entries = calloc((size_t)a.n_members + 1, sizeof *entries);
    strata_status status = STRATA_OK;
    if (!entries) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
    for (int i = 0; i < a.n_members && !status; i++) status = read_member(&a, &a.members[i], NULL, NULL, &entries[i]);
    for (int i = 0; i < a.n_members && !status && visit; i++) visit(&entries[i], user);
    free(entries);
    strata_zip_finish(&a);
    return status;
}

/* ---- writing ---- */

strata_status strata_npz_write(const char *path, const strata_named_array *arrays, int n, strata_error *err) {
    strata_zip_content members[STRATA_ZIP_MOST_CONTENTS] = {{0}};
    char *names[STRATA_ZIP_MOST_CONTENTS] = {0};
    void *contents[STRATA_ZIP_MOST_CONTENTS] = {0};
    strata_status status = STRATA_OK;
    if (n > STRATA_ZIP_MOST_CONTENTS)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: %d arrays; at most %d", path, n, STRATA_ZIP_MOST_CONTENTS);
    for (int i = 0; i < n && !status; i++) {
        const strata_array *array = &arrays[i].array;
        const size_t n_name = strlen(arrays[i].name) + sizeof ".npy", n_elements = strata_array_bytes(array);
        size_t n_header = 0;
        names[i] = malloc(n_name);
        char *bytes = contents[i] = malloc(STRATA_NPY_MOST_HEADER + n_elements);
        if (!names[i] || !bytes) {
            status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %zu bytes", path, n_elements);
            break;
        }
        snprintf(names[i], n_name, "%s.npy", arrays[i].name);
        status = strata_npy_header(path, array, bytes, &n_header, err);
        if (!status && n_elements) memcpy(bytes + n_header, array->data, n_elements);
        members[i] = (strata_zip_content){names[i], bytes, n_header + n_elements};
    }
    if (!status) status = strata_zip_write(path, members, n, NULL, err);
    for (int i = 0; i < n; i++) {
        free(names[i]);
        free(contents[i]);
    }
    return status;
}

/* ---- datasets ---- */

/* Some programs write labels as (n, 1); they become (n). */
static void drop_last_axis(strata_array *labels) {
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
    drop_last_axis(&y);
    if (status) {
        strata_array_finish(&x);
        strata_array_finish(&y);
        return status;
    }
    STRATA_TRY(strata_dataset_take_arrays(&x, labels ? &y : NULL, x.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0, &dataset, err));
    status = strata_dataset_set_source(dataset, path, err);
    return strata_dataset_give(status, dataset, out_dataset);
}
