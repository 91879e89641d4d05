/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that fixtures.py has written. */
#ifndef STRATA_TESTS_FRONTEND_FIXTURE_H
#define STRATA_TESTS_FRONTEND_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>

#include "core/base/file.h"

/* Returns the bytes of programs/NAMEENDING, which the caller frees. */
static inline unsigned char *read_fixture(const char *name, const char *ending, size_t *out_n_bytes) {
    char path[512];
    unsigned char *bytes = NULL;
    strata_error err = {0};
    snprintf(path, sizeof path, STRATA_TEST_SOURCE_DIR "/tests/frontend/programs/%s%s", name, ending);
    cr_assert_eq(strata_file_read(path, 1 << 20, &bytes, out_n_bytes, &err), STRATA_OK, "%s", err.message);
    return bytes;
}

#endif
