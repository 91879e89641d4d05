/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG and netpbm pictures, and a folder of pictures as a dataset. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#if STRATA_WITH_PNG
#include <png.h>
#endif

#include "strata/dataset.h"
#include "strata/formats.h"
#include "tests/support/folder.h"

TestSuite(image_folder, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static const char colours[] = "P6\n# two by one\n2 1\n255\n\xFF\0\0\0\0\xFF";
static const char grey[] = "P5 2 1 255\n\x0A\xFA";

Test(image_folder, reads_netpbm_in_grey_and_colours) {
    strata_array p;
    OK(strata_picture_parse("p", colours, sizeof colours - 1, 3, &p, &err));
    cr_assert(strata_shape_equal(p.shape, STRATA_SHAPE(1, 2, 3)) && !memcmp(p.data, "\xFF\0\0\0\0\xFF", 6));
    strata_array_finish(&p);
    OK(strata_picture_parse("p", colours, sizeof colours - 1, 1, &p, &err));
    cr_assert(((uint8_t *)p.data)[0] == 76 && ((uint8_t *)p.data)[1] == 29);
    strata_array_finish(&p);
    OK(strata_picture_parse("p", grey, sizeof grey - 1, 3, &p, &err));
    cr_assert(!memcmp(p.data, "\x0A\x0A\x0A\xFA\xFA\xFA", 6));
    strata_array_finish(&p);
    OK(strata_picture_parse("p", "P2 2 1 # text\n10 4 10", 21, 1, &p, &err));
    cr_assert(!memcmp(p.data, "\x66\xFF", 2));
    strata_array_finish(&p);
    OK(strata_picture_parse("p", "P3 1 1 255 255 0 0", 18, 3, &p, &err));
    cr_assert(!memcmp(p.data, "\xFF\0\0", 3));
    strata_array_finish(&p);
    OK(strata_picture_parse("p", "P5 2 1 65535\n\xFF\xFF\x80\0", 17, 1, &p, &err));
    cr_assert(!memcmp(p.data, "\xFF\x80", 2));
    strata_array_finish(&p);
}

static void fails(const char *bytes, size_t n, strata_status status, const char *part) {
    strata_array p;
    cr_assert_eq(strata_picture_parse("p", bytes, n, 3, &p, &err), status, "%s", err.message);
    cr_assert(strstr(err.message, part) && !p.data, "%s", err.message);
}

Test(image_folder, refuses_damaged_pictures) {
    for (size_t cut = 3; cut < sizeof grey - 1; cut++) fails(grey, cut, STRATA_DATA, "p: ");
    fails("P5 2 1 65536\n\0\0\0\0", 17, STRATA_DATA, "(1..65535)");
    fails("P5 2 1 9\n\x09\x0A", 11, STRATA_DATA, "pixel 1 of 2 is missing or above 9");
    fails("P5 2 1 255\n\0\0\0", 14, STRATA_DATA, "1 bytes too many");
    fails("P3 1 1 255 1 2", 14, STRATA_DATA, "pixel 0 of 1");
    fails("P5 0 1 255\n", 11, STRATA_DATA, "is 0 x 1 pixels");
    fails("P5 99999999 1 255\nx", 19, STRATA_DATA, "99999999 x 1 pixels");
    fails("XIF89a", 6, STRATA_UNSUPPORTED, "none of PNG, JPEG, WebP, GIF, TIFF, BMP, PBM, PGM, PPM");
    fails("", 0, STRATA_UNSUPPORTED, "is empty");
#if STRATA_WITH_PNG
    fails("\x89PNG\r\n\x1A\nxxxx", 12, STRATA_DATA, "its PNG header is damaged");
#else
    fails("\x89PNG\r\n\x1A\nxxxx", 12, STRATA_UNSUPPORTED, "this build has no libpng");
#endif
}

#if STRATA_WITH_PNG
Test(image_folder, reads_png_and_says_when_it_is_cut) {
    png_image image = {.version = PNG_IMAGE_VERSION, .width = 3, .height = 2, .format = PNG_FORMAT_RGB};
    unsigned char pixels[18], file[1024];
    png_alloc_size_t n = sizeof file;
    strata_array p;
    for (int i = 0; i < 18; i++) pixels[i] = (unsigned char)(i * 14);
    cr_assert(png_image_write_to_memory(&image, file, &n, 0, pixels, 0, NULL));
    OK(strata_picture_parse("p", file, n, 3, &p, &err));
    cr_assert(strata_shape_equal(p.shape, STRATA_SHAPE(2, 3, 3)) && !memcmp(p.data, pixels, sizeof pixels));
    strata_array_finish(&p);
    fails((const char *)file, n / 2, STRATA_DATA, "damaged");
}
#endif

Test(image_folder, a_folder_a_class) {
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    float x[3 * 2];
    int32_t y[3];
    mkdir(test_path("dog"), 0777), mkdir(test_path("cat"), 0777);
    test_file("dog/1.PGM", grey, sizeof grey - 1), test_file("cat/b.ppm", colours, sizeof colours - 1),
        test_file("cat/a.pgm", grey, sizeof grey - 1);
    test_file("cat/notes.txt", "x", 1), test_file("loose.pgm", "x", 1);
    OK(strata_dataset_image_folder(test_folder(), 1, &data, &err));
    cr_assert(strata_dataset_size(data) == 3 && strata_dataset_n_classes(data) == 2);
    cr_assert(strata_shape_equal(strata_dataset_element_shape(data), STRATA_SHAPE(1, 2, 1)));
    cr_assert_str_eq(strata_dataset_class_name(data, 0), "cat");
    OK(strata_order_create(3, false, 0, 0, &order, &err));
    strata_dataset_fetch(data, order, 0, 3, x, y);
    cr_assert(y[0] == 0 && y[1] == 0 && y[2] == 1 && x[0] == 10 * (float)(1.0 / 255) && x[2] == 76 * (float)(1.0 / 255) &&
              x[5] == 250 * (float)(1.0 / 255));
    strata_order_destroy(order);
    strata_dataset_destroy(data);
    data = NULL;
    test_file("dog/2.pgm", "P5 1 1 255\nx", 12);
    cr_assert_eq(strata_dataset_image_folder(test_folder(), 1, &data, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "dog/2.pgm: has 1 x 1 pixels, but") && strstr(err.message, "cat/a.pgm has 2 x 1"), "%s",
              err.message);
    cr_assert_eq(strata_dataset_image_folder(test_path("cat"), 1, &data, &err), STRATA_UNAVAILABLE);
    cr_assert_eq(strata_dataset_image_folder(test_folder(), 2, &data, &err), STRATA_INVALID);
    cr_assert_null(data);
}
