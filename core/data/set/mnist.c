/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the MNIST files in a folder, and checking that images and labels fit each other. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/data/set/image_set.h"
#include "strata/formats.h"

enum { LONGEST_PATH = 4096 };

static strata_status check_folder(const char *folder, strata_error *err) {
    struct stat info;
    if (stat(folder, &info) != 0) return strata_file_fail(err, errno, folder, "open this data folder");
    if (S_ISDIR(info.st_mode)) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: is not a folder; give the folder that contains the MNIST files", folder);
}

/* Finds the path of the first of the four possible names for which there is a file. */
static strata_status find_file(const char *folder, strata_mnist_split split, bool images, char path[LONGEST_PATH],
                               strata_error *err) {
    char candidates[4][48];
    for (int i = 0; i < 4; i++) {
        struct stat info;
        snprintf(candidates[i], sizeof candidates[i], "%s-%s%s-ubyte%s", split == STRATA_MNIST_TRAIN ? "train" : "t10k",
                 images ? "images" : "labels",
                 i < 2    ? (images ? "-idx3" : "-idx1")
                 : images ? ".idx3"
                          : ".idx1",
                 i % 2 ? ".gz" : "");
        int length = snprintf(path, LONGEST_PATH, "%s/%s", folder, candidates[i]);
        if (length < 0 || length >= LONGEST_PATH)
            return strata_fail(err, STRATA_INVALID, "the name of the data folder has %zu characters; at most %d are possible",
                               strlen(folder), LONGEST_PATH - 32);
        if (stat(path, &info) == 0) return STRATA_OK;
        if (errno != ENOENT) return strata_file_fail(err, errno, path, "open");
    }
    return strata_fail(err, STRATA_UNAVAILABLE, "%s: has none of %s, %s, %s, %s", folder, candidates[0], candidates[1],
                       candidates[2], candidates[3]);
}

static strata_status read_images(const char *path, strata_array *out_images, strata_error *err) {
    STRATA_TRY(strata_idx_read(path, out_images, err));
    const strata_shape shape = out_images->shape;
    if (out_images->dtype == STRATA_DTYPE_U8 && shape.rank == 3 && shape.dims[1] == STRATA_DIGIT_SIDE &&
        shape.dims[2] == STRATA_DIGIT_SIDE)
        return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: contains %s %s; images must be u8 (N,28,28)", path,
                       strata_dtype_name(out_images->dtype), strata_shape_text(shape).text);
}

static strata_status read_labels(const char *path, strata_array *out_labels, strata_error *err) {
    STRATA_TRY(strata_idx_read(path, out_labels, err));
    if (out_labels->dtype != STRATA_DTYPE_U8 || out_labels->shape.rank != 1)
        return strata_fail(err, STRATA_DATA, "%s: contains %s %s; labels must be u8 (N)", path,
                           strata_dtype_name(out_labels->dtype), strata_shape_text(out_labels->shape).text);
    const uint8_t *labels = out_labels->data;
    for (int64_t i = 0; i < out_labels->shape.dims[0]; i++) {
        if (labels[i] >= STRATA_DIGIT_CLASSES)
            return strata_fail(err, STRATA_DATA, "%s: label %" PRId64 " (counting from 0) is %d; labels must be 0 to 9", path,
                               i, labels[i]);
    }
    return STRATA_OK;
}

strata_status strata_mnist_load(const char *folder, strata_mnist_split split, strata_image_set *out_set, strata_error *err) {
    STRATA_FINISHED(strata_image_set) set = {0};
    *out_set = set;
    char images_path[LONGEST_PATH], labels_path[LONGEST_PATH];
    STRATA_TRY(check_folder(folder, err));
    STRATA_TRY(find_file(folder, split, true, images_path, err));
    STRATA_TRY(find_file(folder, split, false, labels_path, err));
    STRATA_TRY(read_images(images_path, &set.images, err));
    STRATA_TRY(read_labels(labels_path, &set.labels, err));
    int64_t n_images = set.images.shape.dims[0], n_labels = set.labels.shape.dims[0];
    if (n_images != n_labels)
        return strata_fail(err, STRATA_DATA,
                           "%s has %" PRId64 " images, but %s has %" PRId64 " labels; the files don't belong together",
                           images_path, n_images, labels_path, n_labels);
    *out_set = set;
    set = (strata_image_set){0};
    return STRATA_OK;
}
