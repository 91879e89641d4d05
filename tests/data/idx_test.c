/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX files: what can be read, and every way in which a file can contradict its header. */
#include "core/data/format/idx.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/support/folder.h"

/* An array of 2 x 3 bytes. */
static const unsigned char small[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60};

static size_t gzip(const void *bytes, size_t n_bytes, unsigned char *out, size_t out_bytes) {
    z_stream z = {.next_in = (unsigned char *)bytes, .avail_in = (uInt)n_bytes, .next_out = out, .avail_out = (uInt)out_bytes};
    cr_assert_eq(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void fails(const void *bytes, size_t n_bytes, strata_status wanted, const char *message) {
    strata_array array;
    strata_error err = {0};
    cr_assert_eq(strata_idx_parse("f", bytes, n_bytes, &array, &err), wanted, "%zu bytes: %s", n_bytes, err.message);
    if (message) cr_assert_str_eq(err.message, message);
    cr_assert_null(array.data);
}

static void holds_small(const strata_array *array) {
    cr_assert_eq(array->dtype, STRATA_DTYPE_U8);
    cr_assert(strata_shape_equal(array->shape, STRATA_SHAPE(2, 3)));
    cr_assert_arr_eq(array->data, small + 12, 6);
}

Test(idx, reads_plain_and_gzip) {
    strata_array array;
    unsigned char packed[100];
    cr_assert_eq(strata_idx_parse("f", small, sizeof small, &array, NULL), STRATA_OK);
    holds_small(&array);
    strata_array_finish(&array);
    cr_assert_eq(strata_idx_parse("f", packed, gzip(small, sizeof small, packed, sizeof packed), &array, NULL), STRATA_OK);
    holds_small(&array);
    strata_array_finish(&array);
}

Test(idx, reads_a_gzip_of_several_members) {
    unsigned char packed[200];
    strata_array array;
    size_t n = gzip(small, 7, packed, 100);
    n += gzip(small + 7, sizeof small - 7, packed + n, 100);
    cr_assert_eq(strata_idx_parse("f", packed, n, &array, NULL), STRATA_OK);
    holds_small(&array);
    strata_array_finish(&array);
}

Test(idx, reads_big_endian_words) {
    const unsigned char ints[] = {0, 0, 0x0C, 1, 0, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0xFE, 0, 1, 0, 2};
    const unsigned char floats[] = {0, 0, 0x0D, 1, 0, 0, 0, 2, 0x3F, 0xC0, 0, 0, 0xC2, 0xF7, 0, 0};
    strata_array array;
    cr_assert_eq(strata_idx_parse("f", ints, sizeof ints, &array, NULL), STRATA_OK);
    cr_assert(array.dtype == STRATA_DTYPE_I32 && ((int32_t *)array.data)[0] == -2 && ((int32_t *)array.data)[1] == 65538);
    strata_array_finish(&array);
    cr_assert_eq(strata_idx_parse("f", floats, sizeof floats, &array, NULL), STRATA_OK);
    cr_assert(array.dtype == STRATA_DTYPE_F32 && ((float *)array.data)[0] == 1.5f && ((float *)array.data)[1] == -123.5f);
    strata_array_finish(&array);
}

Test(idx, rejects_every_truncation) {
    for (size_t n = 0; n < sizeof small; n++) fails(small, n, STRATA_DATA, NULL);
    fails(small, 3, STRATA_DATA, "f: ends at byte 3, within the magic number; 1 bytes are missing");
    fails(small, 11, STRATA_DATA, "f: ends at byte 11, within the dimensions; 1 bytes are missing");
    fails(small, 17, STRATA_DATA, "f: has 17 bytes, but its header u8 (2,3) needs 18: it is cut off");
    unsigned char packed[100];
    size_t n_packed = gzip(small, sizeof small, packed, sizeof packed);
    for (size_t n = 0; n < n_packed; n++) fails(packed, n, STRATA_DATA, NULL);
    n_packed = gzip(small, sizeof small - 1, packed, sizeof packed);
    fails(packed, n_packed, STRATA_DATA, "f: ends at expanded byte 17, but its header u8 (2,3) needs 18: it is cut off");
}

Test(idx, rejects_trailing_bytes) {
    unsigned char longer[sizeof small + 1] = {0}, packed[100];
    memcpy(longer, small, sizeof small);
    fails(longer, sizeof longer, STRATA_DATA, "f: has 19 bytes, but its header u8 (2,3) needs 18: it is too long");
    size_t n = gzip(longer, sizeof longer, packed, sizeof packed);
    fails(packed, n, STRATA_DATA, "f: continues after expanded byte 18, where its header u8 (2,3) ends: it is too long");
    n = gzip(small, sizeof small, packed, sizeof packed);
    packed[n] = 'x';
    fails(packed, n + 1, STRATA_DATA, NULL);
}

Test(idx, rejects_a_wrong_header) {
    unsigned char bytes[sizeof small];
    memcpy(bytes, small, sizeof small);
    bytes[1] = 1;
    fails(bytes, sizeof bytes, STRATA_DATA, "f: begins with bytes 00 01 08 02; an IDX file begins with 00 00");
    bytes[1] = 0;
    bytes[2] = 0x0A;
    fails(bytes, sizeof bytes, STRATA_DATA, "f: the type at byte 2 is 0x0A; IDX has 0x08, 0x09 and 0x0B to 0x0E");
    bytes[2] = 0x0E;
    fails(bytes, sizeof bytes, STRATA_UNSUPPORTED, "f: has elements of type f64 (0x0E at byte 2); u8, i32 and f32 can be read");
    bytes[2] = 8;
    bytes[3] = 0;
    fails(bytes, sizeof bytes, STRATA_DATA, "f: the rank at byte 3 is 0; it must be 1 to 4");
    bytes[3] = 5;
    fails(bytes, sizeof bytes, STRATA_DATA, "f: the rank at byte 3 is 5; it must be 1 to 4");
    bytes[3] = 2;
    bytes[7] = 0;
    fails(bytes, sizeof bytes, STRATA_DATA, "f: dimension 0 (byte 4) is 0; there is no data");
    memset(bytes + 4, 0xFF, 8);
    fails(bytes, sizeof bytes, STRATA_DATA, "f: dimension 1 (byte 8) is 4294967295, which makes more than 2^40 elements");
}

Test(idx, rejects_corrupt_gzip) {
    unsigned char packed[100], broken[100];
    size_t n = gzip(small, sizeof small, packed, sizeof packed);
    fails("\x1F\x8B", 2, STRATA_DATA, "f: the gzip data is cut off at byte 2, after 0 expanded bytes");
    int n_caught = 0;
    /* each bit causes an error, unless it has no effect on the data: time, system, padding */
    for (size_t bit = 0; bit < 8 * n; bit++) {
        memcpy(broken, packed, n);
        broken[bit / 8] ^= (unsigned char)(1 << bit % 8);
        strata_array array;
        if (strata_idx_parse("f", broken, n, &array, NULL)) {
            n_caught++;
        } else {
            holds_small(&array);
        }
        strata_array_finish(&array);
    }
    cr_assert_geq(n_caught, (int)(8 * n) - 56);
    memcpy(broken, packed, n);
    broken[n - 8] ^= 1;
    fails(broken, n, STRATA_DATA, NULL);
}

/* A small gzip file whose header promises 2^40 elements must be refused before memory is allocated. A gzip file with far
 * more data than its header says must not be expanded beyond that. */
Test(idx, a_bomb_costs_nothing) {
    unsigned char huge[] = {0, 0, 8, 2, 0, 16, 0, 0, 0, 16, 0, 0, 1, 2, 3}, packed[100];
    fails(packed, gzip(huge, sizeof huge, packed, sizeof packed), STRATA_DATA, NULL);
    fails(huge, sizeof huge, STRATA_DATA,
          "f: has 15 bytes, but its header u8 (1048576,1048576) needs 1099511627788: it is cut off");
    size_t n_zeros = 64 << 20, room = 1 << 20;
    unsigned char *zeros = calloc(1, n_zeros), *bomb = malloc(room);
    memcpy(zeros, small, sizeof small);
    size_t n = gzip(zeros, n_zeros, bomb, room);
    cr_assert_lt(n, 70000);
    fails(bomb, n, STRATA_DATA, "f: continues after expanded byte 18, where its header u8 (2,3) ends: it is too long");
    free(zeros);
    free(bomb);
}

TestSuite(idx_file, .init = test_folder_make, .fini = test_folder_remove);

Test(idx_file, messages_name_the_file) {
    strata_array array;
    strata_error err;
    const char *path = test_file("x.idx", small, 10);
    cr_assert_eq(strata_idx_read(path, &array, &err), STRATA_DATA);
    cr_assert_eq(strncmp(err.message, path, strlen(path)), 0);
    cr_assert_eq(strata_idx_read(test_path("none"), &array, &err), STRATA_UNAVAILABLE);
    cr_assert_eq(strata_idx_read(test_file("y.idx", small, sizeof small), &array, &err), STRATA_OK);
    holds_small(&array);
    strata_array_finish(&array);
}
