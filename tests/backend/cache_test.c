/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk cache of compiled kernels. Entries that were stored are found again. Entries that are damaged, or that another
 * user could have written, are never used. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/kernel.h"
#include "tests/support/folder.h"

TestSuite(cache, .init = test_folder_make, .fini = test_folder_remove);

static const char key[] = "matmul f32 LOCAL_X=16", data[] = "binary \0 code";

static strata_cache open_cache(const char *dir, const char *driver) {
    strata_device_info info = {.backend = "opencl", .name = "a device"};
    snprintf(info.driver, sizeof info.driver, "%s", driver);
    strata_device_options opts = {.cache_dir = dir};
    strata_cache cache;
    strata_cache_open(&cache, &opts, &info);
    return cache;
}

static bool is_there(const strata_cache *cache) {
    size_t n = 0;
    char *back = strata_cache_load(cache, key, sizeof key, &n);
    bool same = back && n == sizeof data && !memcmp(back, data, n);
    cr_assert(!back || same, "what comes back is what was stored");
    free(back);
    return same;
}

/* Writes the path of the only file in the folder; "" when the folder is empty. */
static const char *only_file(const char *dir, char path[1024]) {
    DIR *folder = opendir(dir);
    cr_assert(folder);
    path[0] = '\0';
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (entry->d_name[0] != '.') snprintf(path, 1024, "%s/%s", dir, entry->d_name);
    closedir(folder);
    return path;
}

Test(cache, what_was_stored_comes_back) {
    strata_cache cache = open_cache(test_path("a/b"), "driver 1");
    cr_assert_not(is_there(&cache));
    strata_cache_store(&cache, key, sizeof key, data, sizeof data);
    cr_assert(is_there(&cache));
    cache = open_cache(test_path("a/b"), "driver 1");
    cr_assert(is_there(&cache));
}

Test(cache, another_driver_device_or_key_finds_nothing) {
    strata_cache cache = open_cache(test_path("c"), "driver 1");
    strata_cache_store(&cache, key, sizeof key, data, sizeof data);
    size_t n;
    cr_assert_null(strata_cache_load(&cache, "other", 5, &n));
    strata_cache other = open_cache(test_path("c"), "driver 2");
    cr_assert_not(is_there(&other));
    other = cache;
    snprintf(other.device, sizeof other.device, "another device");
    cr_assert_not(is_there(&other));
    cr_assert(is_there(&cache));
}

Test(cache, a_file_changed_in_any_byte_is_discarded) {
    strata_cache cache = open_cache(test_path("c"), "driver 1");
    strata_cache_store(&cache, key, sizeof key, data, sizeof data);
    char path[1024], rest[1024];
    only_file(test_path("c"), path);
    unsigned char file[4096];
    FILE *stream = fopen(path, "rb");
    size_t n = fread(file, 1, sizeof file, stream);
    fclose(stream);
    for (size_t i = 0; i < n; i++) {
        file[i] ^= 1;
        stream = fopen(path, "wb");
        fwrite(file, 1, n, stream);
        fclose(stream);
        file[i] ^= 1;
        cr_assert_not(is_there(&cache), "byte %zu of %zu", i, n);
        cr_assert_str_empty(only_file(test_path("c"), rest), "byte %zu: the bad file is removed", i);
    }
}

Test(cache, a_file_cut_or_lengthened_is_discarded) {
    strata_cache cache = open_cache(test_path("c"), "driver 1");
    strata_cache_store(&cache, key, sizeof key, data, sizeof data);
    char path[1024];
    only_file(test_path("c"), path);
    unsigned char file[4096] = {0};
    FILE *stream = fopen(path, "rb");
    size_t n = fread(file, 1, sizeof file, stream);
    fclose(stream);
    const size_t lengths[] = {0, 7, n / 2, n - 1, n + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        stream = fopen(path, "wb");
        fwrite(file, 1, lengths[i], stream);
        fclose(stream);
        cr_assert_not(is_there(&cache), "%zu of %zu bytes", lengths[i], n);
    }
}

Test(cache, a_folder_that_cannot_be_made_switches_it_off) {
    char below[512];
    snprintf(below, sizeof below, "%s/cache", test_file("file", "x", 1));
    strata_cache cache = open_cache(below, "driver 1");
    cr_assert_str_empty(cache.dir);
    strata_cache_store(&cache, key, sizeof key, data, sizeof data);
    cr_assert_not(is_there(&cache));
}

Test(cache, no_cache_makes_no_folder) {
    strata_device_info info = {.backend = "opencl"};
    strata_device_options opts = {.cache_dir = test_path("c"), .no_cache = true};
    strata_cache cache;
    strata_cache_open(&cache, &opts, &info);
    strata_cache_store(&cache, key, sizeof key, data, sizeof data);
    cr_assert_not(is_there(&cache));
    cr_assert_eq(test_folder_count(), 0);
}

Test(cache, the_folder_follows_xdg_then_home) {
    strata_device_info info = {.backend = "opencl"};
    strata_cache cache;
    char wanted[1024];
    setenv("XDG_CACHE_HOME", test_path("xdg"), 1);
    strata_cache_open(&cache, NULL, &info);
    snprintf(wanted, sizeof wanted, "%s/strata", test_path("xdg"));
    cr_assert_str_eq(cache.dir, wanted);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", test_path("home"), 1);
    strata_cache_open(&cache, NULL, &info);
    snprintf(wanted, sizeof wanted, "%s/.cache/strata", test_path("home"));
    cr_assert_str_eq(cache.dir, wanted);
    unsetenv("HOME");
    strata_cache_open(&cache, NULL, &info);
    cr_assert_str_empty(cache.dir);
}
