/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: what a message holds, how it is cut, and how a prefix is put before it. */
#include "strata/status.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(status, every_status_has_its_name) {
    cr_assert_str_eq(strata_status_name(STRATA_OK), "OK");
    cr_assert_str_eq(strata_status_name(STRATA_DATA), "DATA");
    cr_assert_str_eq(strata_status_name(STRATA_INTERNAL), "INTERNAL");
    cr_assert_str_eq(strata_status_name((strata_status)99), "UNKNOWN");
    cr_assert_str_eq(strata_status_name((strata_status)-1), "UNKNOWN");
}

Test(status, fail_fills_the_error_and_returns_the_status) {
    strata_error err = {0};
    cr_assert_eq(strata_fail(&err, STRATA_INVALID, "batch is %d; it must be at least 1", 0), STRATA_INVALID);
    cr_assert_eq(err.status, STRATA_INVALID);
    cr_assert_str_eq(err.message, "batch is 0; it must be at least 1");
}

Test(status, fail_without_an_error_only_returns) {
    cr_assert_eq(strata_fail(NULL, STRATA_TIMEOUT, "x"), STRATA_TIMEOUT);
    cr_assert_eq(strata_fail_in(NULL, STRATA_TIMEOUT, "x"), STRATA_TIMEOUT);
}

Test(status, a_long_message_is_cut_and_terminated) {
    char text[3000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    strata_error err;
    strata_fail(&err, STRATA_DATA, "%s", text);
    cr_assert_eq(strlen(err.message), sizeof err.message - 1);
}

Test(status, a_cut_never_splits_a_utf8_character) {
    for (int ascii = 0; ascii < 4; ascii++) {
        char text[3000] = "aaa";
        size_t length = (size_t)ascii;
        while (length + 3 < sizeof text) length += (size_t)sprintf(text + length, "€");
        strata_error err;
        strata_fail(&err, STRATA_DATA, "%s", text);
        size_t cut = strlen(err.message);
        cr_assert_eq((cut - (size_t)ascii) % 3, 0, "%d ascii bytes: cut at %zu", ascii, cut);
        cr_assert_gt(cut, sizeof err.message - 5);
    }
}

Test(status, a_whole_last_character_stays_and_a_newline_goes) {
    strata_error err;
    strata_fail(&err, STRATA_DATA, "5 €");
    cr_assert_str_eq(err.message, "5 €");
    strata_fail(&err, STRATA_DATA, "two\nlines\n");
    cr_assert_str_eq(err.message, "two\nlines");
}

Test(status, a_prefix_is_put_before_and_the_status_stays) {
    strata_error err;
    strata_fail(&err, STRATA_DATA, "too short");
    cr_assert_eq(strata_fail_in(&err, STRATA_INTERNAL, "file %s", "a.npy"), STRATA_DATA);
    cr_assert_str_eq(err.message, "file a.npy: too short");
    cr_assert_eq(err.status, STRATA_DATA);
}

Test(status, the_message_may_quote_itself) {
    strata_error err;
    strata_fail(&err, STRATA_DATA, "inner");
    strata_fail(&err, STRATA_DATA, "outer (%s)", err.message);
    cr_assert_str_eq(err.message, "outer (inner)");
}
