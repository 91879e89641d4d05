/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the locale that STRATA_TEST_LOCALE names before a test program begins, as a program of a user may do. tests/run.sh
 * makes one with a decimal comma, so that each suite also tests that the locale changes nothing. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void choose_locale(void) {
    const char *name = getenv("STRATA_TEST_LOCALE");
    if (!name || !*name || setlocale(LC_ALL, name)) return;
    fprintf(stderr, "the locale %s of STRATA_TEST_LOCALE cannot be loaded (LOCPATH is %s)\n", name,
            getenv("LOCPATH") ? getenv("LOCPATH") : "not set");
    exit(1);
}
