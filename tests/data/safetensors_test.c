/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: files of other tools, writing and reading back, atomic saves, and each kind of malformed file. */
#include "core/data/format/safetensors.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/file.h"
#include "tests/support/folder.h"

static size_t build(unsigned char *out, const char *header, size_t n_data) {
    size_t n_header = strlen(header);
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)((uint64_t)n_header >> 8 * i);
    memcpy(out + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++) out[8 + n_header + i] = (unsigned char)i;
    return 8 + n_header + n_data;
}

static void fails(const char *header, size_t n_data, const char *message) {
    static unsigned char bytes[4096];
    strata_safetensors file;
    strata_error err = {0};
    size_t n = build(bytes, header, n_data);
    cr_assert_eq(strata_safetensors_parse("f", bytes, n, &file, &err), STRATA_DATA, "accepted: %s", header);
    if (message) cr_assert_str_eq(err.message, message);
    cr_assert(!file.tensors && !file.header.node);
}

#define F32(shape, begin, end) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

Test(safetensors, reads_tensors_and_metadata) {
    unsigned char bytes[500];
    strata_safetensors file;
    strata_error err = {0};
    size_t n = build(bytes,
                     "{\"b\":" F32("[2,1]", 4, 12) ",\"__metadata__\":{\"format\":\"pt\"},\"a\":" F32("[]", 0, 4) ",\"e\":" F32(
                         "[0,3]", 4, 4) "}  ",
                     12);
    cr_assert_eq(strata_safetensors_parse("f", bytes, n, &file, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(file.n_tensors, 3);
    cr_assert_str_eq(file.tensors[0].name, "a");
    cr_assert_str_eq(file.tensors[1].name, "e");
    cr_assert_str_eq(file.tensors[2].name, "b");
    const strata_safetensor *b = strata_safetensors_find(&file, "b");
    cr_assert(b && b->n_bytes == 8 && b->dtype == STRATA_DTYPE_F32 && strata_shape_equal(b->shape, STRATA_SHAPE(2, 1)));
    cr_assert_null(strata_safetensors_find(&file, "B"));
    cr_assert_str_eq(strata_safetensors_metadata(&file, "format"), "pt");
    cr_assert_null(strata_safetensors_metadata(&file, "none"));

    float data[2] = {0};
    const unsigned char wanted[] = {4, 5, 6, 7, 8, 9, 10, 11};
    cr_assert_eq(strata_safetensors_copy(&file, "b", STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), data, &err), STRATA_OK);
    cr_assert_eq(memcmp(data, wanted, 8), 0);
    cr_assert_eq(strata_safetensors_copy(&file, "b", STRATA_DTYPE_F32, STRATA_SHAPE(2), data, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: tensor \"b\" is f32 (2,1), but f32 (2) is needed");
    cr_assert_eq(strata_safetensors_copy(&file, "c", STRATA_DTYPE_F32, STRATA_SHAPE(2), data, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: has no tensor \"c\" among its 3");
    strata_array array;
    cr_assert_eq(strata_safetensors_load(&file, "e", &array, &err), STRATA_OK);
    cr_assert(strata_shape_equal(array.shape, STRATA_SHAPE(0, 3)));
    strata_array_finish(&array);
    strata_safetensors_finish(&file);
    strata_safetensors_finish(&file);
}

Test(safetensors, a_dtype_that_strata_lacks_fails_only_when_asked_for) {
    unsigned char bytes[500];
    strata_safetensors file;
    strata_error err = {0};
    strata_array array;
    size_t n = build(bytes,
                     "{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],"
                     "\"data_offsets\":"
                     "[8,10]},\"c\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[10,12]}}",
                     12);
    cr_assert_eq(strata_safetensors_parse("f", bytes, n, &file, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_safetensors_load(&file, "a", &array, &err), STRATA_UNSUPPORTED);
    cr_assert_str_eq(err.message, "f: tensor \"a\" has dtype F64, which Strata does not have; convert it to F32");
    cr_assert_eq(strata_safetensors_load(&file, "b", &array, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: element 0 of tensor \"b\" is 8; a bool must be 0 or 1");
    cr_assert_null(array.data);
    strata_safetensors_finish(&file);
}

Test(safetensors, a_bad_bool_is_named_wherever_it_is) {
    enum { N = 5 };
    unsigned char bytes[500];
    strata_error err = {0};
    for (int bad = 0; bad < N; bad++)
        for (int value = 2; value < 256; value += 253) { /* 2 and 255 */
            strata_safetensors file;
            strata_array array;
            char message[100];
            size_t n = build(bytes, "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[5],\"data_offsets\":[0,5]}}", N);
            for (int i = 0; i < N; i++) bytes[n - N + (size_t)i] = (unsigned char)(i == bad ? value : i % 2);
            snprintf(message, sizeof message, "f: element %d of tensor \"b\" is %d; a bool must be 0 or 1", bad, value);
            cr_assert_eq(strata_safetensors_parse("f", bytes, n, &file, &err), STRATA_OK, "%s", err.message);
            cr_assert_eq(strata_safetensors_load(&file, "b", &array, &err), STRATA_DATA, "element %d", bad);
            cr_expect_str_eq(err.message, message);
            unsigned char copy[N];
            cr_assert_eq(strata_safetensors_copy(&file, "b", STRATA_DTYPE_BOOL, STRATA_SHAPE(N), copy, &err), STRATA_DATA);
            cr_expect_str_eq(err.message, message);
            strata_safetensors_finish(&file);
        }
}

Test(safetensors, rejects_a_wrong_length) {
    unsigned char bytes[200];
    strata_safetensors file;
    strata_error err;
    size_t n = build(bytes, "{\"a\":" F32("[1]", 0, 4) "}", 4);
    for (size_t cut = 0; cut < n; cut++) cr_assert_eq(strata_safetensors_parse("f", bytes, cut, &file, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: a.data_offsets[1]: must be an integer 0..3, is 4");
    cr_assert_eq(strata_safetensors_parse("f", bytes, 7, &file, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: has 7 bytes; a safetensors file begins with 8 bytes of length");
    cr_assert_eq(strata_safetensors_parse("f", bytes, 20, &file, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: says that its header has 54 bytes, but only 12 follow: it is cut off");
    cr_assert_eq(strata_safetensors_parse("f", bytes, n + 1, &file, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: the tensors end at data byte 4, but the file has 5 bytes of data");
    bytes[7] = 0x80;
    cr_assert_eq(strata_safetensors_parse("f", bytes, n, &file, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "f: says that its header has 9223372036854775862 bytes; at most 16777216 are allowed");
    fails("", 0, "f: its header of 0 bytes does not begin with '{'");
    fails(" {}", 0, "f: its header of 3 bytes does not begin with '{'");
    fails("[]", 0, "f: its header of 2 bytes does not begin with '{'");
    fails("{}", 1, "f: the tensors end at data byte 0, but the file has 1 bytes of data");
}

Test(safetensors, rejects_spans_that_do_not_tile_the_data) {
    fails("{\"a\":" F32("[2]", 0, 8) ",\"b\":" F32("[2]", 4, 12) "}", 12,
          "f: tensor \"b\" begins at data byte 4, but the one before it (\"a\") ends at 8: they overlap");
    fails("{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 8, 12) "}", 12,
          "f: tensor \"b\" begins at data byte 8, but the one before it (\"a\") ends at 4: there is a gap");
    fails("{\"a\":" F32("[1]", 4, 8) "}", 8,
          "f: tensor \"a\" begins at data byte 4, but the one before it ends at 0: there is a gap");
    fails("{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 0, 4) "}", 4, NULL);
    fails("{\"a\":" F32("[1]", 0, 4) "}", 8, "f: the tensors end at data byte 4, but the file has 8 bytes of data");
    fails("{\"a\":" F32("[1]", 4, 0) "}", 4, "f: a.data_offsets[1]: must be an integer 4..4, is 0");
    fails("{\"a\":" F32("[1]", 0, 8) "}", 8, "f: a: F32 (1) has 1 elements of 32 bits, but data_offsets [0, 8] have 8 bytes");
    fails("{\"a\":" F32("[3]", 0, 8) "}", 8, "f: a: F32 (3) has 3 elements of 32 bits, but data_offsets [0, 8] have 8 bytes");
    fails("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, NULL);
}

Test(safetensors, rejects_malformed_entries) {
    fails("{\"a\":" F32("[1]", 0, 4) ",\"a\":" F32("[1]", 4, 8) "}", 8, "f:1:55: key \"a\" is given twice in one object");
    fails("{\"a\":5}", 0, "f: a: must be an object, is 5");
    fails("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "f: a: \"data_offsets\" is missing");
    fails("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, NULL);
    fails("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "f: a: the format has no dtype \"F33\"");
    fails("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "f: a.dtype: must be a string, is 1");
    fails("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "f: a.shape: must be an array, is 1");
    fails("{\"a\":" F32("[-1]", 0, 4) "}", 4, "f: a.shape[0]: must be an integer 0..281474976710655, is -1");
    fails("{\"a\":" F32("[1.5]", 0, 4) "}", 4, "f: a.shape[0]: must be an integer 0..281474976710655, is 1.5");
    fails("{\"a\":" F32("[281474976710656]", 0, 4) "}", 4, NULL);
    fails("{\"a\":" F32("[281474976710655,281474976710655]", 0, 4) "}", 4, NULL);
    fails("{\"a\":" F32("[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "f: a.shape: has rank 9; at most 8 is possible");
    fails("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,2,4]}}", 4,
          "f: a.data_offsets: must be [begin, end], has 3 elements");
    fails("{\"a\":" F32("[1]", 0, 4) "} x", 4, NULL);
    fails("{\"__metadata__\":[]}", 0, "f: __metadata__: must be an object, is an array");
    fails("{\"__metadata__\":{\"a\":1}}", 0, "f: __metadata__.a: must be a string, is 1");
    fails("{\"\xFF\":" F32("[1]", 0, 4) "}", 4, "f:1:3: byte 0xFF is not valid UTF-8");
}

TestSuite(safetensors_file, .init = test_folder_make, .fini = test_folder_remove);

static strata_named_array sample[3];
static const strata_metadata sample_metadata[] = {{"z", "1"}, {"model", "{\"layers\": [\"\xE2\x82\xAC\"]}"}};

static void make_sample(void) {
    static float weights[6] = {1, -2, 3.5f, 0, 1e-40f, -0.0f};
    static uint8_t flags[3] = {1, 0, 1};
    static int64_t steps[1] = {-5};
    sample[0] = (strata_named_array){"flags", strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(3), flags)};
    sample[1] = (strata_named_array){"dense/w", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), weights)};
    sample[2] = (strata_named_array){"step", strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), steps)};
}

Test(safetensors_file, what_is_written_is_read_again) {
    make_sample();
    const char *path = test_path("a.strata");
    strata_safetensors file;
    strata_error err = {0};
    cr_assert_eq(strata_safetensors_write(path, sample, 3, sample_metadata, 2, NULL, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_safetensors_read(path, &file, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(file.n_tensors, 3);
    cr_assert_str_eq(file.tensors[0].name, "step");
    for (int i = 0; i < 3; i++) {
        strata_array array;
        cr_assert_eq(strata_safetensors_load(&file, sample[i].name, &array, &err), STRATA_OK, "%s", err.message);
        cr_assert(array.dtype == sample[i].array.dtype && strata_shape_equal(array.shape, sample[i].array.shape));
        cr_assert_eq(memcmp(array.data, sample[i].array.data, strata_array_bytes(&array)), 0);
        strata_array_finish(&array);
        cr_assert_eq((size_t)(strata_safetensors_find(&file, sample[i].name)->data - file.owned) %
                         strata_dtype_bytes(sample[i].array.dtype),
                     0);
    }
    cr_assert_str_eq(strata_safetensors_metadata(&file, "model"), sample_metadata[1].value);
    strata_safetensors_finish(&file);
}

/* The order of a file: tensors by falling element size, then by name; metadata by key; the header is padded to 8 bytes. */
Test(safetensors_file, the_bytes_do_not_depend_on_the_order_given) {
    make_sample();
    strata_named_array turned[] = {sample[2], sample[0], sample[1]};
    strata_metadata turned_metadata[] = {sample_metadata[1], sample_metadata[0]};
    unsigned char *a, *b;
    size_t n_a, n_b;
    cr_assert_eq(strata_safetensors_write(test_path("a"), sample, 3, sample_metadata, 2, NULL, NULL), STRATA_OK);
    cr_assert_eq(strata_safetensors_write(test_path("b"), turned, 3, turned_metadata, 2, NULL, NULL), STRATA_OK);
    cr_assert_eq(strata_file_read(test_path("a"), 10000, &a, &n_a, NULL), STRATA_OK);
    cr_assert_eq(strata_file_read(test_path("b"), 10000, &b, &n_b, NULL), STRATA_OK);
    cr_assert(n_a == n_b && memcmp(a, b, n_a) == 0);
    const char header[] =
        "{\"__metadata__\":{\"model\":\"{\\\"layers\\\": [\\\"\xE2\x82\xAC\\\"]}\",\"z\":\"1\"},"
        "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"dense/w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"flags\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[32,35]}}";
    cr_assert_eq(memcmp(a + 8, header, sizeof header - 1), 0);
    cr_assert_eq(a[0] % 8, 0);
    free(a);
    free(b);
}

Test(safetensors_file, an_empty_file_has_no_tensors) {
    strata_safetensors file;
    cr_assert_eq(strata_safetensors_write(test_path("a"), NULL, 0, NULL, 0, NULL, NULL), STRATA_OK);
    cr_assert_eq(strata_safetensors_read(test_path("a"), &file, NULL), STRATA_OK);
    cr_assert_eq(file.n_tensors, 0);
    cr_assert_null(strata_safetensors_find(&file, "a"));
    strata_safetensors_finish(&file);
}

Test(safetensors_file, refuses_names_that_no_reader_would_take) {
    make_sample();
    strata_error err;
    strata_named_array twice[] = {sample[0], sample[0]};
    cr_assert_eq(strata_safetensors_write(test_path("a"), twice, 2, NULL, 0, NULL, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "key \"flags\" is given twice"), "%s", err.message);
    strata_metadata keys[] = {{"k", "1"}, {"k", "2"}};
    cr_assert_eq(strata_safetensors_write(test_path("a"), sample, 3, keys, 2, NULL, &err), STRATA_INVALID);
    strata_named_array reserved[] = {sample[0]}, bad[] = {sample[0]};
    reserved[0].name = "__metadata__";
    cr_assert_eq(strata_safetensors_write(test_path("a"), reserved, 1, NULL, 0, NULL, &err), STRATA_INVALID);
    bad[0].name = "\xFF";
    cr_assert_eq(strata_safetensors_write(test_path("a"), bad, 1, NULL, 0, NULL, &err), STRATA_INVALID);
    cr_assert_eq(test_folder_count(), 0);
}

Test(safetensors_file, a_save_without_room_keeps_the_old_file) {
    make_sample();
    const char *path = test_path("a.strata");
    strata_error err = {0};
    cr_assert_eq(strata_safetensors_write(path, sample, 3, NULL, 0, NULL, NULL), STRATA_OK);
    strata_array large;
    cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(100000), &large, NULL), STRATA_OK);
    strata_named_array tensors[] = {{"large", large}};
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 100000;
    setrlimit(RLIMIT_FSIZE, &limit);
    strata_status status = strata_safetensors_write(path, tensors, 1, NULL, 0, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    strata_array_finish(&large);
    cr_assert_eq(status, STRATA_OUT_OF_DISK, "%s", err.message);
    cr_assert_eq(test_folder_count(), 1);
    strata_safetensors file;
    cr_assert_eq(strata_safetensors_read(path, &file, NULL), STRATA_OK);
    cr_assert_not_null(strata_safetensors_find(&file, "dense/w"));
    strata_safetensors_finish(&file);
}

Test(safetensors_file, reads_what_other_tools_wrote) {
    const struct {
        const char *name;
        size_t n_tensors;
        const char *tensor;
        strata_dtype dtype;
        strata_shape shape;
    } cases[] = {{"interop/iree_empty.safetensors", 0, NULL, STRATA_DTYPE_F32, STRATA_SHAPE()},
                 {"interop/iree_single.safetensors", 1, "tensor0", STRATA_DTYPE_F32, STRATA_SHAPE(2, 2)},
                 {"interop/iree_multiple.safetensors", 3, "tensor2", STRATA_DTYPE_F32, STRATA_SHAPE(4, 3)},
                 {"interop/iree_parameter_weight_bias_1.safetensors", 2, "weight", STRATA_DTYPE_F32, STRATA_SHAPE(30, 20)},
                 {"interop/mnist_pytorch.safetensors", 20, "norm1.num_batches_tracked", STRATA_DTYPE_I64, STRATA_SHAPE()},
                 {"interop/mnist_pytorch.safetensors", 20, "fc1.weight", STRATA_DTYPE_F32, STRATA_SHAPE(32, 11616)}};
    if (!test_data("interop")) cr_skip_test("no files of other tools: set STRATA_TEST_DATA to a folder with interop/ in it");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        strata_safetensors file;
        strata_error err = {0};
        const char *path = test_data(cases[i].name);
        cr_assert_not_null(path, "%s", cases[i].name);
        cr_assert_eq(strata_safetensors_read(path, &file, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(file.n_tensors, cases[i].n_tensors);
        if (cases[i].tensor) {
            strata_array array;
            cr_assert_eq(strata_safetensors_load(&file, cases[i].tensor, &array, &err), STRATA_OK, "%s", err.message);
            cr_assert(array.dtype == cases[i].dtype && strata_shape_equal(array.shape, cases[i].shape));
            strata_array_finish(&array);
        }
        strata_safetensors_finish(&file);
    }
}
