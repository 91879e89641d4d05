/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the MNIST files in a folder, and checking that images and labels fit each other. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/data/set/image_set.h"
#include "strata/formats.h"

enum { LONGEST_PATH = 4096 };

/* The possible names by split and kind of file (images, labels), in the order in which they are tried. */
static const char *const names[2][2][4] = {
    [STRATA_MNIST_TRAIN] = {{"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte",
                             "train-images.idx3-ubyte.gz"},
                            {"train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz", "train-labels.idx1-ubyte",
                             "train-labels.idx1-ubyte.gz"}},
    [STRATA_MNIST_TEST] = {{"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz", "t10k-images.idx3-ubyte",
                            "t10k-images.idx3-ubyte.gz"},
                           {"t10k-labels-idx1-ubyte", "t10k-labels-idx1-ubyte.gz", "t10k-labels.idx1-ubyte",
                            "t10k-labels.idx1-ubyte.gz"}},
};

static strata_status check_folder(const char *folder, strata_error *err) {
    struct stat info;
    if (stat(folder, &info) != 0) return strata_file_fail(err, errno, folder, "open this data folder");
    if (S_ISDIR(info.st_mode)) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: is not a folder; give the folder that contains the MNIST files", folder);
}

/* Finds the path of the first of the four names for which there is a file. */
static strata_status find_file(const char *folder, const char *const candidates[4], char path[LONGEST_PATH],
                               strata_error *err) {
    for (int i = 0; i < 4; i++) {
        struct stat info;
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
    *out_set = (strata_image_set){0};
    char images_path[LONGEST_PATH], labels_path[LONGEST_PATH];
    STRATA_TRY(check_folder(folder, err));
    STRATA_TRY(find_file(folder, names[split][0], images_path, err));
    STRATA_TRY(find_file(folder, names[split][1], labels_path, err));
    strata_status status;
    STRATA_TRY_GOTO(read_images(images_path, &out_set->images, err));
    STRATA_TRY_GOTO(read_labels(labels_path, &out_set->labels, err));
    int64_t n_images = out_set->images.shape.dims[0], n_labels = out_set->labels.shape.dims[0];
    if (n_images != n_labels)
        status = strata_fail(err, STRATA_DATA,
                             "%s has %" PRId64 " images, but %s has %" PRId64 " labels; the files don't belong together",
                             images_path, n_images, labels_path, n_labels);
cleanup:
    if (status) strata_image_set_finish(out_set);
    return status;
}
