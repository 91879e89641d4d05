/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a checkpoint folder: tensors that are divided among several files, and that every kind of damage is
 * detected. */
#include "core/model/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/data/format/safetensors.h"
#include "model_case.h"
#include "tests/support/folder.h"

TestSuite(manifest, .init = test_folder_make, .fini = test_folder_remove);

static char folder[512], path[1024];

static const char *in_folder(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void begin(void) {
    char name[40];
    snprintf(name, sizeof name, "manifest-%d", (int)getpid());
    snprintf(folder, sizeof folder, "%s", test_path(name));
    mkdir(folder, 0777);
}

static void add_file(strata_manifest *manifest, const char *name, const strata_named_array *tensors, size_t n) {
    strata_error err = {0};
    char hash[STRATA_SHA256_TEXT_BYTES];
    unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    OK(strata_safetensors_write(in_folder(name), tensors, n, NULL, 0, NULL, &err));
    OK(strata_file_read(in_folder(name), 1 << 20, &bytes, &n_bytes, &err));
    OK(strata_sha256_of(bytes, n_bytes, hash, &err));
    OK(strata_manifest_add_file(manifest, name, (int64_t)n_bytes, hash, &err));
    free(bytes);
}

/* The rows of w (3, 4) are divided between two files; b (2) is in the second file. */
static void write_two_files(void) {
    strata_error err = {0};
    static float w[12], b[2] = {20, 21};
    for (int i = 0; i < 12; i++) w[i] = (float)i;
    strata_manifest m = {0};
    OK(strata_manifest_add_text(&m, STRATA_MODEL_METADATA, "{\"layers\":[]}", &err));
    OK(strata_manifest_add_text(&m, "strata.note", "a \"quoted\" text", &err));
    add_file(&m, "part-0.safetensors",
             &(strata_named_array){"w[5:12]", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(7), w + 5)}, 1);
    const strata_named_array second[] = {{"w[0:5]", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(5), w)},
                                         {"b", strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), b)}};
    add_file(&m, "part-1.safetensors", second, 2);
    const strata_shape shape = STRATA_SHAPE(3, 4);
    OK(strata_manifest_add_piece(&m, "w", STRATA_DTYPE_F32, shape, (strata_manifest_piece){0, 5, 12}, &err));
    FAILS(strata_manifest_write(&m, folder, &err), STRATA_INVALID, "behind element 0");
    OK(strata_manifest_add_piece(&m, "w", STRATA_DTYPE_F32, shape, (strata_manifest_piece){1, 0, 5}, &err));
    OK(strata_manifest_add_piece(&m, "b", STRATA_DTYPE_F32, STRATA_SHAPE(2), (strata_manifest_piece){1, 0, 2}, &err));
    OK(strata_manifest_write(&m, folder, &err));
    strata_manifest_finish(&m);
}

static strata_status load(float *w, float *b, strata_error *err) {
    strata_manifest m;
    STRATA_TRY(strata_manifest_open(folder, &m, err));
    strata_status status = strata_manifest_copy(&m, "w", STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), w, err);
    if (!status) status = strata_manifest_copy(&m, "b", STRATA_DTYPE_F32, STRATA_SHAPE(2), b, err);
    strata_manifest_finish(&m);
    return status;
}

Test(manifest, puts_tensors_together_from_pieces_in_several_files) {
    strata_error err = {0};
    float w[12] = {0}, b[2] = {0};
    strata_manifest m;
    begin();
    write_two_files();
    OK(load(w, b, &err));
    for (int i = 0; i < 12; i++) cr_assert_eq(w[i], (float)i);
    cr_assert(b[0] == 20 && b[1] == 21);
    OK(strata_manifest_read(folder, &m, &err));
    cr_assert_str_eq(strata_manifest_find_text(&m, "strata.note"), "a \"quoted\" text");
    cr_assert_str_eq(strata_manifest_find_text(&m, STRATA_MODEL_METADATA), "{\"layers\":[]}");
    cr_assert_eq(strata_manifest_find(&m, "w")->n_pieces, 2);
    strata_manifest_finish(&m);
}

/* Changes one bit of each byte of all three files in turn. */
Test(manifest, detects_each_byte_that_changes_and_each_cut) {
    static const char *const names[] = {"manifest.json", "part-0.safetensors", "part-1.safetensors"};
    begin();
    write_two_files();
    for (int f = 0; f < 3; f++) {
        strata_error err = {0};
        unsigned char *bytes;
        size_t n;
        float w[12], b[2];
        OK(strata_file_read(in_folder(names[f]), 1 << 20, &bytes, &n, &err));
        for (size_t i = 0; i < n; i++) {
            FILE *file = fopen(in_folder(names[f]), "r+b");
            fseek(file, (long)i, SEEK_SET);
            fputc(bytes[i] ^ (1 << i % 8), file);
            fclose(file);
            cr_assert_eq(load(w, b, &err), STRATA_DATA, "%s, byte %zu", names[f], i);
            cr_assert(strstr(err.message, "is damaged"), "%s", err.message);
            file = fopen(in_folder(names[f]), "r+b");
            fseek(file, (long)i, SEEK_SET);
            fputc(bytes[i], file);
            fclose(file);
        }
        for (size_t i = 0; i < n; i++) {
            cr_assert_eq(truncate(in_folder(names[f]), (off_t)(n - 1 - i)), 0);
            cr_assert_eq(load(w, b, &err), STRATA_DATA, "%s, cut to %zu", names[f], n - 1 - i);
        }
        FILE *file = fopen(in_folder(names[f]), "wb");
        fwrite(bytes, 1, n, file);
        fclose(file);
        OK(load(w, b, &err));
        free(bytes);
    }
}

/* Writes a manifest with these fields and the correct hash. */
static void write_text(const char *body) {
    strata_error err = {0};
    char hash[STRATA_SHA256_TEXT_BYTES], text[4096];
    OK(strata_sha256_of(body, strlen(body), hash, &err));
    snprintf(text, sizeof text, "%s,\"sha256\":\"%s\"}\n", body, hash);
    OK(strata_file_write(in_folder(STRATA_MANIFEST_NAME), text, strlen(text), &err));
}

Test(manifest, says_what_does_not_fit_in_a_text_with_a_right_hash) {
    static const struct {
        const char *body, *says;
        strata_status status;
    } cases[] = {
        {"{\"format\":\"other\",\"version\":1", "is of the format \"other\"", STRATA_DATA},
        {"{\"format\":\"strata.checkpoint\",\"version\":2", "reads checkpoints up to version 1", STRATA_UNSUPPORTED},
        {"{\"format\":\"strata.checkpoint\",\"version\":1", "model", STRATA_DATA},
        {"{\"format\":\"strata.checkpoint\",\"version\":1,\"model\":\"\",\"texts\":{},\"files\":[{\"name\":\"../"
         "x\",\"bytes\":1,"
         "\"sha256\":\"\"}],\"tensors\":[]",
         "no name of a file", STRATA_DATA},
        {"{\"format\":\"strata.checkpoint\",\"version\":1,\"model\":\"\",\"texts\":{},\"files\":[],\"tensors\":[{\"name\":"
         "\"w\","
         "\"dtype\":\"F32\",\"shape\":[2],\"pieces\":[{\"file\":0,\"begin\":0,\"end\":2}]}]",
         "in file 0, of 0", STRATA_DATA},
        {"{\"format\":\"strata.checkpoint\",\"version\":1,\"model\":\"\",\"texts\":{},\"files\":[],\"tensors\":[{\"name\":"
         "\"w\","
         "\"dtype\":\"F32\",\"shape\":[70368744177664,70368744177664],\"pieces\":[]}]",
         "too many elements", STRATA_DATA},
        {"{\"format\":\"strata.checkpoint\",\"version\":1,\"model\":\"\",\"texts\":{},\"files\":[],\"tensors\":[{\"name\":"
         "\"w\","
         "\"dtype\":\"F7\",\"shape\":[2],\"pieces\":[]}]",
         "is no dtype", STRATA_DATA},
    };
    strata_error err = {0};
    strata_manifest m;
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(cases[i].body);
        FAILS(strata_manifest_read(folder, &m, &err), cases[i].status, cases[i].says);
    }
    unlink(in_folder(STRATA_MANIFEST_NAME));
    FAILS(strata_manifest_read(folder, &m, &err), STRATA_UNAVAILABLE, "manifest.json");
}
