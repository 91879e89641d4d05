/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading CIFAR-10: finding its files, which are called batches, in a folder or a tar archive, and converting their planes of
 * colours to pixels. */
#include <stdio.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/format/stream.h"
#include "core/data/format/tree.h"

enum {
    SIDE = STRATA_CIFAR10_SIDE,
    PLANE = SIDE * SIDE,
    RECORD = STRATA_CIFAR10_RECORD,
    MOST_BATCHES = 64,
    LONGEST_PATH = 4096
};

static const char *const class_names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};
static const char folder_name[] = "cifar-10-batches-bin", tar_name[] = "cifar-10-binary.tar.gz";

/* ---- one batch ---- */

static strata_status check_records(const char *name, const unsigned char *records, size_t n_bytes, strata_error *err) {
    size_t n = n_bytes / RECORD;
    if (n_bytes == 0) return strata_fail(err, STRATA_DATA, "%s: is empty; it must contain records of %d bytes", name, RECORD);
    if (n_bytes % RECORD)
        return strata_fail(err, STRATA_DATA,
                           "%s: has %zu bytes, which is %zu records of %d bytes and %zu bytes of another: it is cut off, or "
                           "not a CIFAR-10 batch",
                           name, n_bytes, n, RECORD, n_bytes % RECORD);
    for (size_t i = 0; i < n; i++)
        if (records[i * RECORD] >= STRATA_CIFAR10_CLASSES)
            return strata_fail(err, STRATA_DATA, "%s: the label of record %zu (byte %zu) is %d; labels are 0 to 9", name, i,
                               i * RECORD, records[i * RECORD]);
    return STRATA_OK;
}

/* Converts (3,32,32) to (32,32,3). */
static void interleave_planes(const unsigned char *planes, uint8_t *pixels) {
    for (int i = 0; i < PLANE; i++) {
        pixels[3 * i] = planes[i];
        pixels[3 * i + 1] = planes[PLANE + i];
        pixels[3 * i + 2] = planes[2 * PLANE + i];
    }
}

/* Copies n records, which were checked, to images and labels. */
static void store_records(const unsigned char *records, size_t n, uint8_t *images, uint8_t *labels) {
    for (size_t i = 0; i < n; i++) {
        labels[i] = records[i * RECORD];
        interleave_planes(records + i * RECORD + 1, images + i * 3 * PLANE);
    }
}

static strata_status create_arrays(int64_t n, strata_array *out_images, strata_array *out_labels, strata_error *err) {
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(n, SIDE, SIDE, 3), out_images, err));
    strata_status status = strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(n), out_labels, err);
    if (status) strata_array_finish(out_images);
    return status;
}

/* Decompresses a batch and checks its records. */
static strata_status expand(const char *name, const void *bytes, size_t n_bytes, unsigned char **out_records, size_t *out_n,
                            strata_error *err) {
    STRATA_FREED unsigned char *records = NULL;
    STRATA_TRY(strata_stream_expand(name, bytes, n_bytes, STRATA_BYTES_LIMIT(32), &records, out_n, err));
    STRATA_TRY(check_records(name, records, *out_n, err));
    *out_records = strata_released(&records);
    *out_n /= RECORD;
    return STRATA_OK;
}

strata_status strata_cifar10_parse(const char *name, const void *bytes, size_t n_bytes, strata_array *out_images,
                                   strata_array *out_labels, strata_error *err) {
    STRATA_FREED unsigned char *records = NULL;
    size_t n = 0;
    *out_images = *out_labels = (strata_array){0};
    STRATA_TRY(expand(name, bytes, n_bytes, &records, &n, err));
    STRATA_TRY(create_arrays((int64_t)n, out_images, out_labels, err));
    store_records(records, n, out_images->data, out_labels->data);
    return STRATA_OK;
}

/* ---- the batches of a split ---- */

typedef struct batch {
    char *name;             /* for example "data_batch_1.bin.xz" */
    unsigned char *records; /* decompressed and checked */
    size_t n;               /* the number of records */
} batch;

typedef struct batches {
    bool train;
    batch items[MOST_BATCHES];
    int n;
} batches;

static void batches_finish(batches *b) {
    for (int i = 0; i < b->n; i++) free(b->items[i].name), free(b->items[i].records);
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The length of the name without .bin, .bin.gz or .bin.xz; 0: the name is not that of a batch of this split. */
static size_t batch_stem(const char *name, bool train) {
    static const char *const endings[] = {".bin", ".bin.gz", ".bin.xz"};
    const char *prefix = train ? "data_batch" : "test_batch";
    size_t length = strlen(name);
    if (strncmp(name, prefix, strlen(prefix))) return 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (length > n && !strcmp(name + length - n, endings[i])) return length - n;
    }
    return 0;
}

/* Accepts batches in the root or in the folder cifar-10-batches-bin. A batch of which there are several files, for example a
 * plain and a compressed one, is read once. */
static bool wants_batch(const char *path, void *user) {
    const batches *b = user;
    const char *name = last_part(path);
    size_t stem = batch_stem(name, b->train), folder = sizeof folder_name - 1;
    bool official = !strncmp(path, folder_name, folder) && path[folder] == '/' && name == path + folder + 1;
    if (!stem || !(name == path || official)) return false;
    for (int i = 0; i < b->n; i++)
        if (batch_stem(b->items[i].name, b->train) == stem && !strncmp(b->items[i].name, name, stem)) return false;
    return true;
}

static strata_status take_batch(const char *path, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                                strata_error *err) {
    batches *b = user;
    STRATA_FREED unsigned char *taken = bytes;
    if (b->n == MOST_BATCHES) return strata_fail(err, STRATA_DATA, "%s: more than %d batches", place, MOST_BATCHES);
    batch *item = &b->items[b->n++];
    if (!(item->name = strdup(last_part(path)))) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", place);
    return expand(place, taken, n_bytes, &item->records, &item->n, err);
}

/* Reads the batches from a tar archive, a folder with the batches, or a folder with the tar archive. */
static strata_status read_batches(const char *path, batches *b, strata_error *err) {
    const strata_tree_visitor visitor = {wants_batch, take_batch, b, .depth = 1};
    char tar[LONGEST_PATH];
    if (!strata_tree_is_folder(path) && strstr(last_part(path), ".tar")) return strata_tree_visit_tar(path, &visitor, err);
    STRATA_TRY(strata_tree_visit_folder(path, &visitor, err));
    if (b->n) return STRATA_OK;
    snprintf(tar, sizeof tar, "%s/%s", path, tar_name);
    return access(tar, R_OK) ? STRATA_OK : strata_tree_visit_tar(tar, &visitor, err);
}

/* Makes a dataset of all batches. Each batch's records are freed when they were copied, so that at most one batch is in memory
 * twice. */
static strata_status join(batches *b, strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(strata_array) images = {0}, labels = {0};
    STRATA_FINISHED(strata_text) source = {0};
    STRATA_FREED char *line = NULL;
    int64_t ends[MOST_BATCHES];
    size_t n = 0, first = 0;
    for (int i = 0; i < b->n; i++) n += b->items[i].n;
    STRATA_TRY(create_arrays((int64_t)n, &images, &labels, err));
    for (int i = 0; i < b->n; first += b->items[i++].n) {
        ends[i] = (int64_t)(first + b->items[i].n);
        store_records(b->items[i].records, b->items[i].n, (uint8_t *)images.data + first * 3 * PLANE,
                      (uint8_t *)labels.data + first);
        free(b->items[i].records);
        b->items[i].records = NULL;
        strata_text_add(&source, "%s%s", i ? ", " : "", b->items[i].name);
    }
    strata_text_add(&source, ": %zu of %d images", n, b->train ? 50000 : 10000);
    STRATA_TRY(strata_text_take(&source, &line, NULL, err));
    const strata_dataset_facts facts = {.scale = 1.0 / 255,
                                        .source = line,
                                        .class_names = class_names,
                                        .n_class_names = STRATA_CIFAR10_CLASSES,
                                        .file_ends = ends,
                                        .n_files = b->n};
    return strata_dataset_take_known(&images, &labels, &facts, out_dataset, err);
}

strata_status strata_dataset_cifar10(const char *path, const char *split, strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(batches) b = {0};
    STRATA_TRY(strata_split_check(split, &b.train, err));
    STRATA_TRY(read_batches(path, &b, err));
    if (!b.n)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "%s: has no %s*.bin, .bin.gz or .bin.xz, neither directly nor in %s/, and no %s; get them with: "
                           "strata data fetch cifar10",
                           path, b.train ? "data_batch" : "test_batch", folder_name, tar_name);
    qsort(b.items, (size_t)b.n, sizeof *b.items, strata_by_bytes);
    return join(&b, out_dataset, err);
}
