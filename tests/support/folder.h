/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of its own for each test that makes files, and the folder of real data where there is one. */
#ifndef STRATA_TESTS_SUPPORT_FOLDER_H
#define STRATA_TESTS_SUPPORT_FOLDER_H

#include <stddef.h>

/* As .init and .fini of a suite: TestSuite(x, .init = test_folder_make, .fini = test_folder_remove). */
void test_folder_make(void);
void test_folder_remove(void);
const char *test_folder(void);
/* Path of a name in the folder; the last 8 stay valid. */
const char *test_path(const char *name);
/* Makes a file of these bytes there and returns its path. */
const char *test_file(const char *name, const void *bytes, size_t n_bytes);
int test_folder_count(void); /* entries in it */

/* $STRATA_TEST_DATA/<name>, or ../shared/data/<name> beside the source; NULL when it isn't there. For a visible skip:
 * if (!test_data("mnist")) cr_skip_test("no real data: set STRATA_TEST_DATA"); */
const char *test_data(const char *name);

#endif
