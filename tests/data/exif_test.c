/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the orientation from Exif data, and turning pictures by it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/data/format/picture_formats.h"

static strata_error err;

/* Writes the marker SOI and a segment APP1 with one directory entry. Returns the number of bytes. */
static size_t put_exif(unsigned char *out, bool big_endian, int value) {
    static const unsigned char little[] = {0xFF, 0xD8, 0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0,
                                           0,    1,    0,    0x12, 1, 3,  0,   1,   0,   0,   0, 0, 0,   0,   0,  0, 0, 0, 0};
    static const unsigned char big[] = {0xFF, 0xD8, 0xFF, 0xE1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0,
                                        8,    0,    1,    1,    0x12, 0,  3,   0,   0,   0,   1, 0, 0,   0,   0, 0,  0, 0, 0};
    memcpy(out, big_endian ? big : little, sizeof little);
    out[big_endian ? 31 : 30] = (unsigned char)value;
    return sizeof little;
}

Test(exif, the_orientation_is_read_in_both_byte_orders) {
    unsigned char bytes[64];
    for (int value = 0; value < 10; value++)
        for (int big = 0; big < 2; big++) {
            const size_t n = put_exif(bytes, big, value);
            cr_assert_eq(strata_exif_orientation(bytes, n), value >= 1 && value <= 8 ? value : 1);
        }
}

Test(exif, damaged_data_are_no_orientation) {
    unsigned char bytes[64];
    for (int big = 0; big < 2; big++) {
        const size_t whole = put_exif(bytes, big, 6);
        for (size_t n = 0; n < whole; n++) cr_assert_eq(strata_exif_orientation(bytes, n), 1, "%zu bytes", n);
        /* no value of any byte may cause a read outside of the data, which AddressSanitizer would report */
        for (size_t at = 12; at < whole; at++) {
            put_exif(bytes, big, 6);
            bytes[at] = 0xFF;
            const int read = strata_exif_orientation(bytes, whole);
            cr_assert(read >= 1 && read <= 8);
        }
    }
}

/* A picture of 2 rows and 3 columns (1 2 3 / 4 5 6), and how it must look for each orientation (Exif 2.32, figure 21). */
Test(exif, pictures_are_turned_as_their_number_says) {
    static const struct {
        int64_t rows;
        const char *pixels;
    } wanted[] = {{2, "123456"}, {2, "321654"}, {2, "654321"}, {2, "456123"},
                  {3, "142536"}, {3, "415263"}, {3, "635241"}, {3, "362514"}};
    for (int o = 1; o <= 8; o++) {
        strata_array p;
        cr_assert_eq(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(2, 3, 1), &p, &err), STRATA_OK);
        memcpy(p.data, "123456", 6);
        cr_assert_eq(strata_exif_turn("p", o, &p, &err), STRATA_OK);
        cr_assert_eq(p.shape.dims[0], wanted[o - 1].rows);
        cr_assert(!memcmp(p.data, wanted[o - 1].pixels, 6), "%d: %.6s", o, (const char *)p.data);
        strata_array_finish(&p);
    }
}

#if STRATA_WITH_JPEG
Test(exif, a_jpeg_is_measured_and_read_upright) {
    unsigned char bytes[4096];
    char path[1024];
    strata_picture_size size;
    strata_array p;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/picture/photo.jpg", STRATA_TEST_SOURCE_DIR);
    FILE *file = fopen(path, "rb");
    cr_assert(file);
    const size_t n_exif = put_exif(bytes, true, 6); /* replaces the SOI of the file */
    unsigned char start[2];
    cr_assert_eq(fread(start, 1, 2, file), 2);
    const size_t n = n_exif + fread(bytes + n_exif, 1, sizeof bytes - n_exif, file);
    fclose(file);
    cr_assert_eq(strata_picture_measure("p", bytes, n, &size, &err), STRATA_OK, "%s", err.message);
    cr_assert(size.rows == 16 && size.columns == 8);
    cr_assert_eq(strata_picture_parse("p", bytes, n, 3, &p, &err), STRATA_OK, "%s", err.message);
    cr_assert(strata_shape_equal(p.shape, STRATA_SHAPE(16, 8, 3)));
    strata_array_finish(&p);
}
#endif
