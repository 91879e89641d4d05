/* SPDX-License-Identifier: Apache-2.0
 *
 * The MNIST folder: file names, files that do not belong together, and labels out of range. The real files are tested where
 * they are installed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/data/set/image_set.h"
#include "strata/sha256.h"
#include "tests/support/folder.h"

static void write_images(const char *name, int n, int side) {
    size_t n_bytes = 16 + (size_t)(n * side * side);
    unsigned char *bytes = calloc(1, n_bytes);
    const unsigned char header[] = {
        0, 0, 8, 3, 0, 0, 0, (unsigned char)n, 0, 0, 0, (unsigned char)side, 0, 0, 0, (unsigned char)side};
    memcpy(bytes, header, sizeof header);
    for (size_t i = 16; i < n_bytes; i++) bytes[i] = (unsigned char)i;
    test_file(name, bytes, n_bytes);
    free(bytes);
}

static void write_labels(const char *name, int n, int bad, int bad_label) {
    unsigned char bytes[8 + 100] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)n};
    for (int i = 0; i < n; i++) bytes[8 + i] = (unsigned char)(i == bad ? bad_label : i % 10);
    test_file(name, bytes, 8 + (size_t)n);
}

static void fails(strata_status wanted, const char *part) {
    strata_image_set set;
    strata_error err = {0};
    cr_assert_eq(strata_mnist_load(test_folder(), STRATA_MNIST_TRAIN, &set, &err), wanted, "%s", err.message);
    cr_assert(strstr(err.message, part), "%s", err.message);
    cr_assert(!set.images.data && !set.labels.data);
}

TestSuite(mnist, .init = test_folder_make, .fini = test_folder_remove);

Test(mnist, loads_either_spelling) {
    strata_image_set set;
    write_images("train-images-idx3-ubyte", 12, 28);
    write_labels("train-labels-idx1-ubyte", 12, -1, 0);
    write_images("t10k-images.idx3-ubyte", 3, 28);
    write_labels("t10k-labels.idx1-ubyte", 3, -1, 0);
    cr_assert_eq(strata_mnist_load(test_folder(), STRATA_MNIST_TRAIN, &set, NULL), STRATA_OK);
    cr_assert(strata_shape_equal(set.images.shape, STRATA_SHAPE(12, 28, 28)));
    cr_assert_eq(((uint8_t *)set.images.data)[5], 21);
    cr_assert_eq(((uint8_t *)set.labels.data)[11], 1);
    strata_image_set_finish(&set);
    cr_assert_eq(strata_mnist_load(test_folder(), STRATA_MNIST_TEST, &set, NULL), STRATA_OK);
    cr_assert(strata_shape_equal(set.labels.shape, STRATA_SHAPE(3)));
    strata_image_set_finish(&set);
}

Test(mnist, says_which_names_it_looked_for) {
    fails(
        STRATA_UNAVAILABLE,
        "has none of train-images-idx3-ubyte, train-images-idx3-ubyte.gz, train-images.idx3-ubyte, train-images.idx3-ubyte.gz");
    write_images("train-images-idx3-ubyte", 2, 28);
    fails(STRATA_UNAVAILABLE, "has none of train-labels-idx1-ubyte,");
}

Test(mnist, a_folder_must_be_one) {
    strata_image_set set;
    strata_error err;
    cr_assert_eq(strata_mnist_load("/none/such", STRATA_MNIST_TRAIN, &set, &err), STRATA_UNAVAILABLE);
    cr_assert_str_eq(err.message, "/none/such: cannot open this data folder: No such file or directory");
    cr_assert_eq(strata_mnist_load("/dev/null", STRATA_MNIST_TRAIN, &set, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "/dev/null: is not a folder; give the folder that contains the MNIST files");
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_assert_neq(strata_mnist_load(longest, STRATA_MNIST_TRAIN, &set, &err), STRATA_OK);
}

Test(mnist, counts_must_agree) {
    write_images("train-images-idx3-ubyte", 12, 28);
    write_labels("train-labels-idx1-ubyte", 11, -1, 0);
    fails(STRATA_DATA, "has 12 images, but");
    fails(STRATA_DATA, "has 11 labels; the files don't belong together");
}

Test(mnist, images_must_be_28_by_28) {
    write_images("train-images-idx3-ubyte", 2, 27);
    write_labels("train-labels-idx1-ubyte", 2, -1, 0);
    fails(STRATA_DATA, "contains u8 (2,27,27); images must be u8 (N,28,28)");
    write_labels("train-images-idx3-ubyte", 2, -1, 0);
    fails(STRATA_DATA, "contains u8 (2); images must be u8 (N,28,28)");
}

Test(mnist, the_first_bad_label_is_named) {
    write_images("train-images-idx3-ubyte", 9, 28);
    write_labels("train-labels-idx1-ubyte", 9, 7, 10);
    fails(STRATA_DATA, "label 7 (counting from 0) is 10; labels must be 0 to 9");
    write_images("train-labels-idx1-ubyte", 9, 28);
    fails(STRATA_DATA, "contains u8 (9,28,28); labels must be u8 (N)");
}

Test(mnist, a_malformed_file_is_named) {
    write_labels("train-labels-idx1-ubyte", 9, -1, 0);
    test_file("train-images-idx3-ubyte.gz", "\x1F\x8Bxxxxxxxxxxxxxxxx", 18);
    fails(STRATA_DATA, "train-images-idx3-ubyte.gz: the gzip data is corrupt near byte");
}

/* The published hashes are those of the whole decompressed files, header and elements. */
static void hash_is(const strata_array *array, const char *wanted) {
    unsigned char header[4 + 4 * STRATA_MAX_RANK] = {0, 0, 8, (unsigned char)array->shape.rank};
    for (int i = 0; i < array->shape.rank; i++) {
        for (int byte = 0; byte < 4; byte++)
            header[4 + 4 * i + byte] = (unsigned char)(array->shape.dims[i] >> (24 - 8 * byte));
    }
    strata_sha256 sha;
    char text[STRATA_SHA256_TEXT_BYTES];
    cr_assert_eq(strata_sha256_init(&sha, NULL), STRATA_OK);
    cr_assert_eq(strata_sha256_update(&sha, header, 4 + 4 * (size_t)array->shape.rank, NULL), STRATA_OK);
    cr_assert_eq(strata_sha256_update(&sha, array->data, strata_array_bytes(array), NULL), STRATA_OK);
    cr_assert_eq(strata_sha256_final(&sha, text, NULL), STRATA_OK);
    strata_sha256_finish(&sha);
    cr_assert_str_eq(text, wanted);
}

Test(mnist, the_real_files_have_their_published_content) {
    const char *folder = test_data("mnist");
    if (!folder) cr_skip_test("no real MNIST files: set STRATA_TEST_DATA to a folder with mnist/ in it");
    strata_image_set set;
    strata_error err = {0};
    cr_assert_eq(strata_mnist_load(folder, STRATA_MNIST_TRAIN, &set, &err), STRATA_OK, "%s", err.message);
    cr_assert(strata_shape_equal(set.images.shape, STRATA_SHAPE(60000, 28, 28)));
    hash_is(&set.images, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db");
    hash_is(&set.labels, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5");
    strata_image_set_finish(&set);
    cr_assert_eq(strata_mnist_load(folder, STRATA_MNIST_TEST, &set, &err), STRATA_OK, "%s", err.message);
    hash_is(&set.images, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7");
    hash_is(&set.labels, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2");
    strata_image_set_finish(&set);
}
