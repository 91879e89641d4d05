/* SPDX-License-Identifier: Apache-2.0
 *
 * .npy files: each dtype and version, bytes that NumPy wrote, and each kind of malformed file. */
#include "core/data/format/npy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/folder.h"
#include "tests/support/npy.h"

/* Makes a file of this version with this header text and elements. Returns its length. */
static size_t build(unsigned char *out, int version, const char *header, const void *data, size_t n_data) {
    size_t n_header = strlen(header), start = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    memset(out + 6, 0, 6);
    out[6] = (unsigned char)version;
    out[8] = (unsigned char)n_header;
    out[9] = (unsigned char)(n_header >> 8);
    memcpy(out + start, header, n_header);
    memcpy(out + start + n_header, data, n_data);
    return start + n_header + n_data;
}

static void fails(const void *bytes, size_t n_bytes, strata_status wanted, const char *message) {
    strata_array array;
    strata_error err = {0};
    cr_assert_eq(strata_npy_parse("f", bytes, n_bytes, &array, &err), wanted, "%s", err.message);
    if (message) cr_assert_str_eq(err.message, message);
    cr_assert_null(array.data);
}

static void header_fails(const char *header, size_t n_data, strata_status wanted, const char *message) {
    static unsigned char bytes[4096], zeros[1024];
    fails(bytes, build(bytes, 1, header, zeros, n_data), wanted, message);
}

Test(npy, reads_every_dtype) {
    const float f4[] = {1.5f, -INFINITY};
    const double f8[] = {0.1, 3e38}, too_large[] = {0, 1e39};
    const uint16_t f2[] = {0x3C00, 0xFC00};
    const int32_t i4[] = {-1, 7};
    const int64_t i8[] = {INT64_MIN, 5};
    const uint8_t u1[] = {0, 255}, b1[] = {0, 1}, not_bool[] = {1, 2};
    const float f8_as_f4[] = {0.1f, 3e38f};
    struct {
        const char *descr;
        const void *data;
        size_t n_data;
        strata_dtype dtype;
        const void *result;
    } cases[] = {{"<f4", f4, 8, STRATA_DTYPE_F32, f4},  {"<f8", f8, 16, STRATA_DTYPE_F32, f8_as_f4},
                 {"<f2", f2, 4, STRATA_DTYPE_F16, f2},  {"<i4", i4, 8, STRATA_DTYPE_I32, i4},
                 {"<i8", i8, 16, STRATA_DTYPE_I64, i8}, {"|u1", u1, 2, STRATA_DTYPE_U8, u1},
                 {"|b1", b1, 2, STRATA_DTYPE_BOOL, b1}, {"<u1", u1, 2, STRATA_DTYPE_U8, u1}};
    unsigned char bytes[300];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int version = 1; version <= 3; version++) {
            char header[128];
            snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }    \n", cases[i].descr);
            strata_array array;
            strata_error err = {0};
            size_t n = build(bytes, version, header, cases[i].data, cases[i].n_data);
            cr_assert_eq(strata_npy_parse("f", bytes, n, &array, &err), STRATA_OK, "%s", err.message);
            cr_assert(array.dtype == cases[i].dtype && strata_shape_equal(array.shape, STRATA_SHAPE(2)));
            cr_assert_eq(memcmp(array.data, cases[i].result, strata_array_bytes(&array)), 0, "%s", cases[i].descr);
            strata_array_finish(&array);
        }
    }
    size_t n = build(bytes, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", not_bool, 2);
    fails(bytes, n, STRATA_DATA, "f: element 1 is 2; a bool must be 0 or 1");
    const uint8_t first[] = {255, 1, 0};
    n = build(bytes, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", first, 3);
    fails(bytes, n, STRATA_DATA, "f: element 0 is 255; a bool must be 0 or 1");
    n = build(bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", too_large, 16);
    fails(bytes, n, STRATA_DATA, "f: element 1 is 1e+39, too large for f32");
}

Test(npy, doubles_can_be_read_without_rounding) {
    const double numbers[] = {1700000001, 1e39};
    const float singles[] = {1, 2};
    unsigned char bytes[300];
    strata_array array;
    strata_error err = {0};
    double *exact = NULL;
    size_t n = build(bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", numbers, sizeof numbers);
    cr_assert_eq(strata_npy_parse_exact("f", bytes, n, &array, &exact, &err), STRATA_OK, "%s", err.message);
    cr_assert(!memcmp(exact, numbers, sizeof numbers) && ((float *)array.data)[0] == 1700000001.F);
    strata_array_finish(&array);
    free(exact);
    n = build(bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", singles, sizeof singles);
    cr_assert_eq(strata_npy_parse_exact("f", bytes, n, &array, &exact, &err), STRATA_OK);
    cr_assert_null(exact);
    strata_array_finish(&array);
}

Test(npy, reads_every_shape_that_numpy_writes) {
    struct {
        const char *text;
        strata_shape shape;
    } cases[] = {{"()", STRATA_SHAPE()},           {"(3,)", STRATA_SHAPE(3)},
                 {"(2, 3)", STRATA_SHAPE(2, 3)},   {"(0, 5)", STRATA_SHAPE(0, 5)},
                 {"(2L, 1L)", STRATA_SHAPE(2, 1)}, {"(1,1,1,1,1,1,1,2)", STRATA_SHAPE(1, 1, 1, 1, 1, 1, 1, 2)}};
    unsigned char bytes[300], zeros[16] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[128];
        strata_array array;
        snprintf(header, sizeof header, "{\"shape\": %s, \"descr\":\"|u1\",\"fortran_order\":False}", cases[i].text);
        size_t n = build(bytes, 1, header, zeros, (size_t)strata_shape_elements(cases[i].shape));
        cr_assert_eq(strata_npy_parse("f", bytes, n, &array, NULL), STRATA_OK, "%s", cases[i].text);
        cr_assert(strata_shape_equal(array.shape, cases[i].shape));
        strata_array_finish(&array);
    }
}

#define REST ", 'fortran_order': False, 'shape': (2,), }"

Test(npy, refuses_what_it_cannot_hold_and_says_what_to_do) {
    header_fails("{'descr': '|O'" REST, 2, STRATA_UNSUPPORTED,
                 "f: contains Python objects, which are never loaded; save an array of numbers");
    header_fails("{'descr': [('a', '<f4')]" REST, 8, STRATA_UNSUPPORTED, "f: has structured elements; save plain numbers");
    header_fails("{'descr': '>f4'" REST, 8, STRATA_UNSUPPORTED,
                 "f: has dtype '>f4', which is not little-endian; save it with astype('<f4')");
    header_fails("{'descr': '<u2'" REST, 4, STRATA_UNSUPPORTED, "f: has dtype '<u2'; <f4 <f8 <f2 <i4 <i8 |u1 |b1 can be read");
    header_fails("{'descr': ''" REST, 4, STRATA_UNSUPPORTED, "f: has dtype ''; <f4 <f8 <f2 <i4 <i8 |u1 |b1 can be read");
    header_fails("{'descr': '<U1234567890123456789'" REST, 4, STRATA_UNSUPPORTED, NULL);
    header_fails("{'descr': '<f4', 'fortran_order': True, 'shape': (2,1)}", 8, STRATA_UNSUPPORTED,
                 "f: is in Fortran order; save numpy.ascontiguousarray of it");
}

Test(npy, rejects_a_malformed_header) {
    const char *headers[] = {"",
                             "{",
                             "{}",
                             "[]",
                             "{'descr': '<f4', 'fortran_order': False}",
                             "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}",
                             "{'descr': '<f4" REST,
                             "{'descr': 5" REST,
                             "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,2",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,4)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
                             "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
                             "{'descr' '<f4'" REST,
                             "{'de\x01scr': '<f4'" REST,
                             "{'descr': '<\\'f4'" REST};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) header_fails(headers[i], 8, STRATA_DATA, NULL);
    header_fails("{'descr': 5" REST, 8, STRATA_DATA, "f: at byte 20 of the header: expected the descr as a string");
}

Test(npy, rejects_sizes_that_disagree) {
    header_fails("{'descr': '<f4'" REST, 7, STRATA_DATA,
                 "f: has 7 bytes of elements, but its header <f4 (2) needs 8: it is cut off");
    header_fails("{'descr': '<f4'" REST, 9, STRATA_DATA,
                 "f: has 9 bytes of elements, but its header <f4 (2) needs 8: it is too long");
    header_fails("{'descr': '<f4', 'fortran_order': False, 'shape': (288230376151711744,)}", 8, STRATA_DATA, NULL);
    unsigned char bytes[300];
    size_t n = build(bytes, 1, "{'descr': '<f4'" REST, "12345678", 8);
    for (size_t cut = 0; cut < n; cut++) {
        strata_array array;
        cr_assert_eq(strata_npy_parse("f", bytes, cut, &array, NULL), STRATA_DATA, "%zu", cut);
    }
    fails("PK\3\4xxxxxxxx", 12, STRATA_DATA, "f: is no .npy file: it does not begin with \\x93NUMPY and a version");
    bytes[6] = 4;
    fails(bytes, n, STRATA_UNSUPPORTED, "f: is .npy version 4.0; 1.0, 2.0 and 3.0 can be read");
    n = build(bytes, 2, "{'descr': '<f4'" REST, "12345678", 8);
    bytes[11] = 1;
    fails(bytes, n, STRATA_DATA, NULL);
}

TestSuite(npy_file, .init = test_folder_make, .fini = test_folder_remove);

Test(npy_file, what_is_written_is_read_again) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        const strata_shape shapes[] = {STRATA_SHAPE(), STRATA_SHAPE(5), STRATA_SHAPE(2, 0), STRATA_SHAPE(3, 1, 7)};
        for (int s = 0; s < 4; s++) {
            strata_array array, back;
            strata_error err = {0};
            cr_assert_eq(strata_array_create((strata_dtype)dtype, shapes[s], &array, NULL), STRATA_OK);
            int64_t n = strata_shape_elements(shapes[s]);
            for (int64_t i = 0; i < n; i++) strata_element_set(array.dtype, array.data, i, (double)i);
            strata_status status = test_write_npy(test_path("a.npy"), &array, &err);
            if (dtype == STRATA_DTYPE_BF16) {
                cr_assert_eq(status, STRATA_UNSUPPORTED);
            } else {
                cr_assert_eq(status, STRATA_OK, "%s", err.message);
                cr_assert_eq(strata_npy_read(test_path("a.npy"), &back, &err), STRATA_OK, "%s", err.message);
                cr_assert(back.dtype == array.dtype && strata_shape_equal(back.shape, array.shape));
                cr_assert_eq(memcmp(back.data, array.data, strata_array_bytes(&array)), 0);
                strata_array_finish(&back);
            }
            strata_array_finish(&array);
        }
    }
    strata_array none;
    cr_assert_eq(strata_npy_read(test_path("none.npy"), &none, NULL), STRATA_UNAVAILABLE);
}

/* The bytes that numpy.save writes for numpy.arange(3, dtype='<f4').reshape(1, 3). */
Test(npy_file, the_bytes_are_those_that_numpy_writes) {
    char wanted[128 + 12];
    memset(wanted, ' ', 128);
    const char start[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }";
    memcpy(wanted, start, sizeof start - 1);
    wanted[127] = '\n';
    float data[] = {0, 1, 2};
    memcpy(wanted + 128, data, 12);
    strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), data);
    cr_assert_eq(test_write_npy(test_path("a.npy"), &array, NULL), STRATA_OK);
    char got[200];
    FILE *file = fopen(test_path("a.npy"), "rb");
    cr_assert_eq(fread(got, 1, sizeof got, file), sizeof wanted);
    fclose(file);
    cr_assert_arr_eq(got, wanted, sizeof wanted);
}
