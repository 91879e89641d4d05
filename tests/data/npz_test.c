/* SPDX-License-Identifier: Apache-2.0
 *
 * .npz archives that numpy.savez and savez_compressed wrote, and damaged archives. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "strata/dataset.h"
#include "strata/formats.h"
#include "tests/support/folder.h"

TestSuite(npz, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* The path of an archive in tests/fuzz/corpus/npz with x: u8 (2,3) 0..5; y: i64 (2,1) 1, 0; w: f32 (2) 0.5, -1. */
static const char *sample(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/npz/%s", STRATA_TEST_SOURCE_DIR, name);
    return path;
}

static size_t load(const char *name, unsigned char **out) {
    size_t n;
    OK(strata_file_read(sample(name), 1 << 20, out, &n, &err));
    return n;
}

Test(npz, reads_stored_and_deflated_members) {
    const char *const names[] = {"stored", "deflated"};
    for (int i = 0; i < 2; i++) {
        unsigned char *bytes;
        strata_array array;
        size_t n = load(names[i], &bytes);
        OK(strata_npz_parse("a", bytes, n, "w", &array, &err));
        cr_assert(array.dtype == STRATA_DTYPE_F32 && strata_shape_equal(array.shape, STRATA_SHAPE(2)));
        cr_assert(((float *)array.data)[0] == 0.5f && ((float *)array.data)[1] == -1);
        strata_array_finish(&array);
        OK(strata_npz_parse("a", bytes, n, "x.npy", &array, &err));
        for (int k = 0; k < 6; k++) cr_assert_eq(((uint8_t *)array.data)[k], k);
        strata_array_finish(&array);
        free(bytes);
    }
}

Test(npz, becomes_a_dataset) {
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    float x[6];
    int32_t y[2];
    OK(strata_dataset_npz(sample("deflated"), "x", "y", &data, &err));
    OK(strata_order_create(2, false, 0, 0, &order, &err));
    strata_dataset_fetch(data, order, 0, 2, x, y);
    cr_assert(x[5] == 5 * (float)(1.0 / 255) && y[0] == 1 && y[1] == 0);
    strata_order_destroy(order);
    strata_dataset_destroy(data);
    data = NULL;
    cr_assert_eq(strata_dataset_npz(sample("stored"), "features", NULL, &data, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "has no array \"features\"; it has: x, y, w"), "%s", err.message);
    cr_assert_eq(strata_dataset_npz(sample("stored"), "xx", NULL, &data, &err), STRATA_DATA);
    cr_assert_eq(strata_dataset_npz(test_path("none.npz"), "x", NULL, &data, &err), STRATA_UNAVAILABLE);
    cr_assert_null(data);
}

/* When the file is cut off or any byte is changed, reading must fail, return the same array, or (when its name was changed)
 * not find the array. */
Test(npz, damage_is_an_error) {
    const char *const names[] = {"stored", "deflated"};
    for (int i = 0; i < 2; i++) {
        unsigned char *bytes;
        strata_array array;
        size_t n = load(names[i], &bytes);
        for (size_t cut = 0; cut < n; cut++)
            cr_assert_eq(strata_npz_parse("a", bytes, cut, "w", &array, &err), STRATA_DATA, "cut at %d", (int)cut);
        for (size_t at = 0; at < n; at++) {
            bytes[at] ^= 0x10;
            if (!strata_npz_parse("a", bytes, n, "w", &array, &err)) {
                cr_assert(((float *)array.data)[0] == 0.5f && ((float *)array.data)[1] == -1, "byte %d", (int)at);
                strata_array_finish(&array);
            }
            bytes[at] ^= 0x10;
        }
        free(bytes);
    }
}

typedef struct listed {
    int n;
    char text[160];
} listed;

static void list_entry(const strata_npz_entry *entry, void *user) {
    listed *l = user;
    const size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%s %s %s %zu; ", entry->name, entry->type,
             strata_shape_text(entry->shape).text, entry->n_bytes);
    l->n++;
}

Test(npz, lists_what_is_stored_or_nothing_of_a_damaged_one) {
    const char *const names[] = {"stored", "deflated"};
    for (int i = 0; i < 2; i++) {
        unsigned char *bytes;
        listed l = {0};
        size_t n = load(names[i], &bytes);
        OK(strata_npz_list("a", bytes, n, list_entry, &l, &err));
        cr_assert_str_eq(l.text, "x u8 (2,3) 6; y i64 (2,1) 16; w f32 (2) 8; ");
        l = (listed){0};
        for (size_t at = 0; at + 20 < n; at++)
            if (!memcmp(bytes + at, "PK\1\2", 4)) bytes[at + 16] ^= 1; /* changes the checksums in the directory */
        cr_assert_eq(strata_npz_list("a", bytes, n, list_entry, &l, &err), STRATA_DATA);
        cr_assert_not_null(strstr(err.message, "the checksum of"), "%s", err.message);
        cr_assert_eq(l.n, 0);
        free(bytes);
    }
}
