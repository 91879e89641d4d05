/* SPDX-License-Identifier: Apache-2.0
 *
 * A temporary folder for each test that writes files, and the paths of real data sets, where they are installed. */
#ifndef STRATA_TESTS_SUPPORT_FOLDER_H
#define STRATA_TESTS_SUPPORT_FOLDER_H

#include <stddef.h>

/* A suite that uses the folder makes it before and removes it after each of its tests:
 * TestSuite(x, .init = test_folder_make, .fini = test_folder_remove); */
void test_folder_make(void);
void test_folder_remove(void);
/* The path of the folder. */
const char *test_folder(void);
/* The path of the file `name` in the folder. The results of the last 8 calls stay valid. */
const char *test_path(const char *name);
/* Writes a file into the folder and returns its path, as test_path. */
const char *test_file(const char *name, const void *bytes, size_t n_bytes);
/* The number of entries in the folder. */
int test_folder_count(void);

/* The path of $STRATA_TEST_DATA/NAME or, where the variable is not set, of ../shared/data/NAME beside the folder of the
 * sources. NULL when it does not exist. A test then skips itself, with the reason:
 * if (!test_data("mnist")) cr_skip_test("no real data: set STRATA_TEST_DATA"); */
const char *test_data(const char *name);

#endif
