/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10: converting planes to pixels, the layouts of the folder, and errors with their position. The real files are
 * tested where they are installed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "strata/dataset.h"
#include "strata/formats.h"
#include "tests/support/folder.h"

TestSuite(cifar10, .init = test_folder_make, .fini = test_folder_remove);

enum { RECORD = STRATA_CIFAR10_RECORD };
static strata_error err;

/* Makes n records. Record i has the label first + i, and pixel p of its plane c is (p + 7 c + i) mod 256. */
static unsigned char *make_records(int n, int first) {
    unsigned char *bytes = malloc((size_t)n * RECORD);
    for (int i = 0; i < n; i++) {
        bytes[i * RECORD] = (unsigned char)((first + i) % 10);
        for (int k = 0; k < RECORD - 1; k++) bytes[i * RECORD + 1 + k] = (unsigned char)(k % 1024 + 7 * (k / 1024) + i);
    }
    return bytes;
}

static void write_batch(const char *name, int n, int first, bool packed) {
    unsigned char *bytes = make_records(n, first);
    if (packed) {
        gzFile file = gzopen(test_path(name), "wb");
        cr_assert(file && gzwrite(file, bytes, (unsigned)(n * RECORD)) == n * RECORD && gzclose(file) == Z_OK);
    } else {
        test_file(name, bytes, (size_t)n * RECORD);
    }
    free(bytes);
}

static strata_dataset *load(const char *path, const char *split) {
    strata_dataset *data = NULL;
    cr_assert_eq(strata_dataset_cifar10(path, split, &data, &err), STRATA_OK, "%s", err.message);
    return data;
}

Test(cifar10, planes_become_pixels) {
    unsigned char *bytes = make_records(2, 8);
    strata_array images, labels;
    cr_assert_eq(strata_cifar10_parse("b", bytes, 2 * RECORD, &images, &labels, &err), STRATA_OK, "%s", err.message);
    cr_assert(strata_shape_equal(images.shape, STRATA_SHAPE(2, 32, 32, 3)) &&
              strata_shape_equal(labels.shape, STRATA_SHAPE(2)));
    const uint8_t *pixels = images.data, *classes = labels.data;
    cr_assert(classes[0] == 8 && classes[1] == 9);
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 1024; p++)
            for (int c = 0; c < 3; c++) cr_assert_eq(pixels[(i * 1024 + p) * 3 + c], (uint8_t)(p + 7 * c + i));
    strata_array_finish(&images);
    strata_array_finish(&labels);
    free(bytes);
}

Test(cifar10, takes_the_batches_that_are_there_and_says_which) {
    write_batch("data_batch_2.bin.gz", 3, 3, true);
    write_batch("data_batch_1.bin", 2, 0, false);
    write_batch("test_batch_first4.bin", 4, 0, false);
    test_file("batches.meta.txt", "airplane\n", 9);
    test_file("data_batch_9.txt", "no", 2);
    strata_dataset *data = load(test_folder(), "train");
    cr_assert_str_eq(strata_dataset_source(data), "data_batch_1.bin, data_batch_2.bin.gz: 5 of 50000 images");
    cr_assert(strata_dataset_size(data) == 5 && strata_dataset_n_classes(data) == 10);
    cr_assert(strata_shape_equal(strata_dataset_element_shape(data), STRATA_SHAPE(32, 32, 3)));
    cr_assert_str_eq(strata_dataset_class_name(data, 3), "cat");
    static float x[5 * 3072];
    int32_t y[5];
    strata_order *order = NULL;
    cr_assert_eq(strata_order_create(5, false, 0, 0, &order, &err), STRATA_OK);
    strata_dataset_fetch(data, order, 0, 5, x, y);
    for (int i = 0; i < 5; i++) cr_assert_eq(y[i], i < 2 ? i : i + 1);
    cr_assert_eq(x[3 * 100 + 1], 107 * (float)(1.0 / 255));
    strata_order_destroy(order);
    strata_dataset_destroy(data);
    data = load(test_folder(), "test");
    cr_assert_str_eq(strata_dataset_source(data), "test_batch_first4.bin: 4 of 10000 images");
    strata_dataset_destroy(data);
}

Test(cifar10, finds_the_official_folder) {
    mkdir(test_path("cifar-10-batches-bin"), 0777);
    write_batch("cifar-10-batches-bin/test_batch.bin", 2, 0, false);
    strata_dataset *data = load(test_folder(), "test");
    cr_assert_eq(strata_dataset_size(data), 2);
    strata_dataset_destroy(data);
}

/* Makes a tar file with one batch in the folder of the official archive. */
static size_t make_tar(unsigned char *tar, int n, int first) {
    unsigned char *bytes = make_records(n, first);
    size_t size = (size_t)n * RECORD, padded = (size + 511) / 512 * 512;
    memset(tar, 0, 512 + padded + 1024);
    snprintf((char *)tar, 100, "cifar-10-batches-bin/data_batch_1.bin");
    snprintf((char *)tar + 124, 12, "%011o", (unsigned)size);
    memcpy(tar + 257,
           "ustar\0"
           "00",
           8);
    tar[156] = '0';
    memset(tar + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += tar[i];
    snprintf((char *)tar + 148, 8, "%06o", sum);
    memcpy(tar + 512, bytes, size);
    free(bytes);
    return 512 + padded + 1024;
}

Test(cifar10, reads_the_official_tar) {
    static unsigned char tar[16384];
    size_t n = make_tar(tar, 3, 1);
    gzFile file = gzopen(test_path("cifar-10-binary.tar.gz"), "wb");
    cr_assert(file && gzwrite(file, tar, (unsigned)n) == (int)n && gzclose(file) == Z_OK);
    strata_dataset *data = load(test_folder(), "train");
    cr_assert_eq(strata_dataset_size(data), 3);
    strata_dataset_destroy(data);
    data = load(test_path("cifar-10-binary.tar.gz"), "train");
    cr_assert_str_eq(strata_dataset_source(data), "data_batch_1.bin: 3 of 50000 images");
    strata_dataset_destroy(data);
    data = NULL;
    tar[3]++;
    const char *damaged = test_file("damaged.tar", tar, n);
    cr_assert_eq(strata_dataset_cifar10(damaged, "train", &data, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "damaged.tar: at expanded byte 0 there is no tar header: its checksum is wrong"), "%s",
              err.message);
    tar[3]--;
    const char *cut = test_file("cut.tar", tar, 2000);
    cr_assert_eq(strata_dataset_cifar10(cut, "train", &data, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "cut.tar"), "%s", err.message);
}

static void fails(const char *split, strata_status status, const char *part) {
    strata_dataset *data = NULL;
    cr_assert_eq(strata_dataset_cifar10(test_folder(), split, &data, &err), status, "%s", err.message);
    cr_assert(strstr(err.message, part), "%s", err.message);
    cr_assert_null(data);
}

Test(cifar10, says_what_is_wrong) {
    fails("train", STRATA_UNAVAILABLE,
          "has no data_batch*.bin, .bin.gz or .bin.xz, neither directly nor in cifar-10-batches-bin/");
    fails("validation", STRATA_INVALID, "there are: train, test");
    unsigned char *bytes = make_records(3, 0);
    test_file("data_batch_1.bin", bytes, 2 * RECORD + 5);
    fails("train", STRATA_DATA,
          "data_batch_1.bin: has 6151 bytes, which is 2 records of 3073 bytes and 5 bytes of another: it is cut off");
    bytes[RECORD] = 10;
    test_file("data_batch_1.bin", bytes, 3 * RECORD);
    fails("train", STRATA_DATA, "data_batch_1.bin: the label of record 1 (byte 3073) is 10; labels are 0 to 9");
    test_file("data_batch_1.bin", "", 0);
    fails("train", STRATA_DATA, "data_batch_1.bin: is empty");
    test_file("test_batch.bin.xz",
              "\xFD"
              "7zXZ\0\0\4\xE6\xD6\xB4\x46",
              12);
#if STRATA_WITH_XZ
    fails("test", STRATA_DATA, "test_batch.bin.xz: the xz data is cut off at byte 12");
    test_file("test_batch.bin.xz",
              "\xFD"
              "7zXZ\0\0\4\xE6\xD6\xB4\x47",
              12);
    fails("test", STRATA_DATA, "test_batch.bin.xz: the xz data is corrupt near byte 12 of 12");
#else
    fails("test", STRATA_UNSUPPORTED, "this build has no liblzma");
#endif
    free(bytes);
}

Test(cifar10, reads_the_real_files_as_they_are, .timeout = 300) {
    const int counts[] = {103, 89, 100, 103, 90, 86, 112, 102, 106, 109};
    int found[10] = {0};
    if (!test_data("cifar10")) cr_skip_test("no real data: set STRATA_TEST_DATA to a folder with cifar10/ in it");
    if (!STRATA_WITH_XZ) cr_skip_test("the files are .xz and this build has no liblzma");
    strata_dataset *data = load(test_data("cifar10"), "test");
    cr_assert_str_eq(strata_dataset_source(data), "test_batch_first1000.bin.xz: 1000 of 10000 images");
    static float x[3072];
    strata_order *order = NULL;
    cr_assert_eq(strata_order_create(1000, false, 0, 0, &order, &err), STRATA_OK);
    for (int i = 0; i < 1000; i++) {
        int32_t label;
        strata_dataset_fetch(data, order, i, 1, x, &label);
        found[label]++;
    }
    cr_assert(!memcmp(found, counts, sizeof counts));
    strata_order_destroy(order);
    strata_dataset_destroy(data);
}
