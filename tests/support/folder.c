/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and removes temporary folders, and finds real data sets. */
#define _XOPEN_SOURCE 700
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

void test_folder_make(void) {
    strcpy(folder, "/tmp/strata_test_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

const char *test_folder(void) {
    return folder;
}

const char *test_path(const char *name) {
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    cr_assert(*folder, "%s: the test's suite does not have .init = test_folder_make", name);
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *test_file(const char *name, const void *bytes, size_t n_bytes) {
    const char *path = test_path(name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    cr_assert_eq(fclose(file), 0);
    return path;
}

int test_folder_count(void) {
    int n = 0;
    DIR *directory = opendir(folder);
    if (!directory) return 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        n++;
    }
    closedir(directory);
    return n;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at) {
    (void)status;
    (void)type;
    (void)at;
    return remove(path);
}

void test_folder_remove(void) {
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *test_data(const char *name) {
#ifdef STRATA_TEST_SOURCE_DIR
    static const char beside[] = STRATA_TEST_SOURCE_DIR "/../shared/data";
#else
    static const char beside[] = "../shared/data";
#endif
    static char path[1024];
    const char *root = getenv("STRATA_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s", root && root[0] ? root : beside, name);
    return access(path, R_OK) == 0 ? path : NULL;
}
