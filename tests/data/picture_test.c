/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of all formats against what Pillow reads from them (tests/data/pictures/make.py), and folders of pictures. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/data/format/picture_formats.h"
#include "strata/dataset.h"
#include "strata/formats.h"
#include "strata/preprocessing.h"
#include "tests/support/folder.h"

TestSuite(picture, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static unsigned char *read_file(const char *path, size_t *out_n) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 16);
    cr_assert(file && bytes, "%s", path);
    *out_n = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

static const char *corpus(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/picture/%s", STRATA_TEST_SOURCE_DIR, name);
    return path;
}

static bool is_built_in(const char *name) {
    static const struct {
        const char *ending;
        bool built;
    } parts[] = {{".png", STRATA_WITH_PNG},
                 {".jpg", STRATA_WITH_JPEG},
                 {".webp", STRATA_WITH_WEBP},
                 {".gif", STRATA_WITH_GIF},
                 {".tif", STRATA_WITH_TIFF}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(strrchr(name, '.'), parts[i].ending)) return parts[i].built;
    return true;
}

/* Decoders of JPEG may round otherwise. */
static int tolerance_of(const char *name) {
    return strstr(name, ".jpg") || !strcmp(name, "tiff_jpeg.tif") ? 2 : 0;
}

static void compare(const char *name, const char *wanted_path) {
    size_t n, n_wanted;
    strata_array pixels = {0}, wanted = {0};
    strata_picture_size size = {0};
    unsigned char *bytes = read_file(corpus(name), &n), *ppm = read_file(wanted_path, &n_wanted);
    if (is_built_in(name)) {
        OK(strata_picture_parse(wanted_path, ppm, n_wanted, 3, &wanted, &err));
        OK(strata_picture_measure(name, bytes, n, &size, &err));
        OK(strata_picture_parse(name, bytes, n, 3, &pixels, &err));
        cr_assert(strata_shape_equal(pixels.shape, wanted.shape), "%s is %s, not %s", name,
                  strata_shape_text(pixels.shape).text, strata_shape_text(wanted.shape).text);
        cr_assert(size.rows == wanted.shape.dims[0] && size.columns == wanted.shape.dims[1], "%s is measured otherwise", name);
        for (int64_t i = 0; i < strata_shape_elements(pixels.shape); i++) {
            const int value = ((uint8_t *)pixels.data)[i], right = ((uint8_t *)wanted.data)[i];
            cr_assert(abs(value - right) <= tolerance_of(name), "%s: byte %d is %d, not %d", name, (int)i, value, right);
        }
        /* what remains of the file is no picture, or one of the same size, as a GIF without its last byte is */
        strata_array_finish(&pixels);
        if (!strata_picture_parse(name, bytes, n / 2, 3, &pixels, &err))
            cr_assert(strata_shape_equal(pixels.shape, wanted.shape), "%s: a half of it is read otherwise", name);
    } else {
        cr_assert_eq(strata_picture_parse(name, bytes, n, 3, &pixels, &err), STRATA_UNSUPPORTED);
        cr_assert(strstr(err.message, "this build has no lib"), "%s", err.message);
    }
    strata_array_finish(&pixels);
    strata_array_finish(&wanted);
    free(bytes);
    free(ppm);
}

Test(picture, all_formats_have_the_pixels_of_pillow) {
    static const char folder_path[] = STRATA_TEST_SOURCE_DIR "/tests/data/pictures";
    DIR *folder = opendir(folder_path);
    int n = 0;
    cr_assert(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[300], path[1024];
        const size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".ppm")) continue;
        snprintf(name, sizeof name, "%.*s", (int)length - 4, entry->d_name);
        snprintf(path, sizeof path, "%s/%s", folder_path, entry->d_name);
        compare(name, path);
        n++;
    }
    closedir(folder);
    cr_assert_geq(n, 80);
}

Test(picture, formats_that_are_not_read_are_named) {
    static const struct {
        const char *bytes;
        size_t n;
        const char *name;
    } cases[] = {{"\0\0\0\x18"
                  "ftypheic\0\0\0\0",
                  16, "HEIC"},
                 {"\0\0\0\x1C"
                  "ftypavif\0\0\0\0",
                  16, "AVIF"},
                 {"\xFF\x0A\xFA\x1F", 4, "JPEG XL"},
                 {"8BPS\0\1", 6, "Photoshop"},
                 {"<svg xmlns=", 11, "SVG"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array pixels;
        cr_assert(strata_picture_matches(cases[i].bytes, cases[i].n));
        cr_assert_eq(strata_picture_parse("p", cases[i].bytes, cases[i].n, 3, &pixels, &err), STRATA_UNSUPPORTED);
        cr_assert(strstr(err.message, cases[i].name) && strstr(err.message, "convert it to PNG or JPEG"), "%s", err.message);
    }
}

Test(picture, a_table_is_no_picture) {
    static const char *const heads[] = {"BMI,age,sex,charges\n", "P2\tP3\tP5\n1\t2\t3\n", "GIFT,price\n1,2\n", "II,III\n1,2\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        cr_assert(!strata_picture_matches(heads[i], strlen(heads[i])), "%s", heads[i]);
}

static void put(const char *name, int value) {
    char bytes[32];
    const int n = snprintf(bytes, sizeof bytes, "P5 2 1 255\n%c%c", value, value);
    test_file(name, bytes, (size_t)n);
}

/* cats: 3 pictures, one in a folder and one behind a link; dogs: 2, of which one is in a folder behind a link. */
static void make_folder(void) {
    static const char *const folders[] = {"in", "in/cats", "in/cats/2024", "in/dogs", "in/.git", "in/__MACOSX", "elsewhere"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) mkdir(test_path(folders[i]), 0777);
    put("in/cats/1.pgm", 1), put("in/cats/2024/2.PGM", 2), put("elsewhere/3.pgm", 3), put("in/dogs/4.Pgm", 4);
    cr_assert(!symlink(test_path("elsewhere/3.pgm"), test_path("in/cats/3.pgm")));
    cr_assert(!symlink("../../elsewhere", test_path("in/dogs/more")));
    cr_assert(!symlink("../cats", test_path("in/cats/loop")));
    cr_assert(!symlink("..", test_path("in/dogs/up")));
    cr_assert(!symlink("nowhere.png", test_path("in/cats/gone.png")));
    cr_assert(!symlink("itself.png", test_path("in/cats/itself.png")));
    put("in/.git/5.pgm", 5), put("in/__MACOSX/6.pgm", 6), put("in/loose.pgm", 7), put("in/cats/.8.pgm", 8);
    test_file("in/dogs/.DS_Store", "", 0), test_file("in/cats/Thumbs.db", "", 0), test_file("in/dogs/notes.txt", "", 0);
    test_file("in/dogs/9.HEIC", "", 0);
}

/* The list is the same for training, evaluation and prediction, except for what is outside of the classes. */
static void has_list(const char *text, bool classes) {
    static const char *const parts[] = {"2 broken links (cats/",
                                        "picture of a format that is not read, to be converted to PNG or JPEG (dogs/9.HEIC)",
                                        "1 file that is not a picture (dogs/notes.txt)", "3 hidden files or folders (",
                                        "2 files or folders of operating systems ("};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) cr_assert(strstr(text, parts[i]), "%s: %s", parts[i], text);
    cr_assert_eq(strstr(text, "1 picture outside of the folders of classes (loose.pgm)") != NULL, classes, "%s", text);
    cr_assert(strstr(text, "to folders that were read already"), "%s", text);
}

Test(picture, folders_at_any_depth_and_links_are_read_and_what_is_left_out_is_counted) {
    strata_preprocessing *p = NULL;
    strata_preprocessing_report report;
    strata_dataset *dataset = NULL;
    make_folder();
    /* "up" leads from dogs to the root, which was entered: its pictures are not read again */
    OK(strata_preprocessing_from_pictures(test_path("in"), NULL, &p, &err));
    cr_assert(strstr(strata_preprocessing_found(p), "5 pictures, grey, 2 x 1, 2 classes"), "%s", strata_preprocessing_found(p));
    has_list(strata_preprocessing_found(p), true);
    for (int unlabelled = 0; unlabelled < 2; unlabelled++) {
        const strata_apply_options opts = {.unlabelled = unlabelled, .report = &report};
        OK(strata_preprocessing_apply_pictures(p, test_path("in"), &opts, &dataset, &err));
        cr_assert_eq(strata_dataset_size(dataset), 5 + unlabelled, "%lld", (long long)strata_dataset_size(dataset));
        has_list(report.left_out, !unlabelled);
        strata_dataset_destroy(dataset);
    }
    strata_preprocessing_destroy(p);
    OK(strata_dataset_image_folder(test_path("in"), 1, &dataset, &err));
    cr_assert_eq(strata_dataset_size(dataset), 5);
    has_list(strata_dataset_source(dataset), true);
    strata_dataset_destroy(dataset);
}

Test(picture, a_link_to_the_root_is_no_class) {
    strata_dataset *dataset = NULL;
    mkdir(test_path("a"), 0777);
    put("a/1.pgm", 1);
    cr_assert(!symlink(".", test_path("self")));
    OK(strata_dataset_image_folder(test_folder(), 1, &dataset, &err));
    cr_assert_eq(strata_dataset_size(dataset), 1);
    cr_assert(strstr(strata_dataset_source(dataset), "left out 1 link to a folder that was read already (self)"), "%s",
              strata_dataset_source(dataset));
    strata_dataset_destroy(dataset);
}

Test(picture, a_picture_is_read_whatever_its_name_says) {
    strata_dataset *dataset = NULL;
    mkdir(test_path("a"), 0777);
    put("a/1.jpg", 200);
    put("a/2.TIFF", 100);
    OK(strata_dataset_image_folder(test_folder(), 1, &dataset, &err));
    cr_assert_eq(strata_dataset_size(dataset), 2);
    strata_dataset_destroy(dataset);
}
