/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a folder that contains a folder of pictures for each class. The pixels are stored in memory as u8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/format/picture.h"
#include "core/data/format/picture_folder.h"

enum { MOST_CLASSES = 65536 };

typedef struct entry {
    char *name;  /* the path in the folder, for example "cat/1.png" */
    char *place; /* the whole path, for messages */
    unsigned char *bytes;
    size_t n_bytes;
} entry;

typedef struct folder {
    entry *entries;
    int64_t n, capacity;
} folder;

static strata_status take_picture(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                                  strata_error *err) {
    folder *f = user;
    entry added = {strdup(name), strdup(place), bytes, n_bytes};
    bool room = f->n < f->capacity;
    if (!room) {
        int64_t capacity = f->capacity ? 2 * f->capacity : 256;
        entry *larger = realloc(f->entries, (size_t)capacity * sizeof *larger);
        if (larger) f->entries = larger, f->capacity = capacity;
        room = larger != NULL;
    }
    if (added.name && added.place && room) {
        f->entries[f->n++] = added;
        return STRATA_OK;
    }
    free(added.name);
    free(added.place);
    free(bytes);
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", place);
}

static int by_name(const void *a, const void *b) {
    return strata_tree_compare_names(((const entry *)a)->name, ((const entry *)b)->name);
}

/* Decodes the pictures, which must all have the size of the first one. */
static strata_status decode_all(const folder *f, int channels, strata_array *out_images, strata_error *err) {
    size_t bytes = 0;
    strata_shape first = {0};
    for (int64_t i = 0; i < f->n; i++) {
        const entry *e = &f->entries[i];
        strata_array pixels;
        strata_status status = strata_picture_parse(e->place, e->bytes, e->n_bytes, channels, &pixels, err);
        if (status) return status;
        if (i == 0) {
            first = pixels.shape;
            bytes = strata_array_bytes(&pixels);
            status = strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(f->n, first.dims[0], first.dims[1], channels),
                                         out_images, err);
        } else if (!strata_shape_equal(pixels.shape, first)) {
            status =
                strata_fail(err, STRATA_DATA, "%s: has %lld x %lld pixels, but %s has %lld x %lld; resize them to one size",
                            e->place, (long long)pixels.shape.dims[1], (long long)pixels.shape.dims[0], f->entries[0].place,
                            (long long)first.dims[1], (long long)first.dims[0]);
        }
        if (!status) memcpy((uint8_t *)out_images->data + (size_t)i * bytes, pixels.data, bytes);
        strata_array_finish(&pixels);
        if (status) return status;
    }
    return STRATA_OK;
}

/* Finds the labels and the names of the classes. The entries are sorted by name, so the pictures of a class follow each other.
 * Each entry's name is shortened to that of its class. */
static strata_status label_all(folder *f, int32_t *labels, const char **class_names, int *out_n, strata_error *err) {
    int n = 0;
    for (int64_t i = 0; i < f->n; i++) {
        *strchr(f->entries[i].name, '/') = 0;
        if (n && !strcmp(f->entries[i].name, class_names[n - 1])) {
            labels[i] = n - 1;
            continue;
        }
        if (n == MOST_CLASSES)
            return strata_fail(err, STRATA_DATA, "%s: more than %d folders of classes", f->entries[i].place, MOST_CLASSES);
        class_names[n] = f->entries[i].name;
        labels[i] = n++;
    }
    *out_n = n;
    return STRATA_OK;
}

/* left_out: what was left out, for the line about the source; NULL: nothing. */
static strata_status to_dataset(folder *f, const char *path, int channels, const char *left_out, strata_dataset **out_dataset,
                                strata_error *err) {
    strata_array images = {0}, labels = {0};
    strata_dataset *dataset = NULL;
    char source[1024];
    int64_t *ends = NULL;
    int n_classes = 0;
    strata_status status = STRATA_OK;
    const char **class_names = calloc((size_t)f->n, sizeof *class_names);
    if (!class_names) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    qsort(f->entries, (size_t)f->n, sizeof *f->entries, by_name);
    STRATA_TRY_GOTO(decode_all(f, channels, &images, err));
    STRATA_TRY_GOTO(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(f->n), &labels, err));
    STRATA_TRY_GOTO(label_all(f, labels.data, class_names, &n_classes, err));
    STRATA_TRY_GOTO(strata_dataset_take_arrays(&images, &labels, 1.0 / 255, &dataset, err));
    ends = malloc((size_t)f->n * sizeof *ends);
    if (!ends) STRATA_TRY_GOTO(strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path));
    for (int64_t i = 0; i < f->n; i++) ends[i] = i + 1; /* each picture is a separate file */
    STRATA_TRY_GOTO(strata_dataset_set_files(dataset, ends, f->n, err));
    snprintf(source, sizeof source, "%.400s: %lld pictures of %d classes%s%s", path, (long long)f->n, n_classes,
             left_out ? "; " : "", left_out ? left_out : "");
    STRATA_TRY_GOTO(strata_dataset_set_source(dataset, source, err));
    STRATA_TRY_GOTO(strata_dataset_set_class_names(dataset, class_names, n_classes, err));
    *out_dataset = dataset;
    dataset = NULL;
cleanup:
    strata_dataset_destroy(dataset);
    free(ends);
    strata_array_finish(&images);
    strata_array_finish(&labels);
    free(class_names);
    return status;
}

strata_status strata_dataset_image_folder(const char *path, int channels, strata_dataset **out_dataset, strata_error *err) {
    folder f = {0};
    strata_text left_out = {0};
    strata_picture_folder visited = {.classes = true, .take = take_picture, .user = &f};
    strata_status status = strata_picture_folder_visit(path, &visited, err);
    strata_picture_folder_describe(&visited, &left_out);
    if (!status) status = to_dataset(&f, path, channels ? channels : 3, left_out.bytes, out_dataset, err);
    strata_text_finish(&left_out);
    for (int64_t i = 0; i < f.n; i++) {
        free(f.entries[i].name);
        free(f.entries[i].place);
        free(f.entries[i].bytes);
    }
    free(f.entries);
    return status;
}
