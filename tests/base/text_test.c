/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing text and the nearest name. */
#include "core/base/text.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

Test(text, grows_as_it_is_added_to) {
    strata_text text = {0};
    for (int i = 0; i < 1000; i++) strata_text_add(&text, "%d,", i);
    strata_text_add_bytes(&text, "end", 3);
    char *string;
    size_t n_bytes;
    cr_assert_eq(strata_text_take(&text, &string, &n_bytes, NULL), STRATA_OK);
    cr_assert_eq(n_bytes, strlen(string));
    cr_assert_eq(n_bytes, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    cr_assert_str_eq(string + n_bytes - 7, "999,end");
    cr_assert_null(text.bytes);
    free(string);
}

Test(text, an_empty_text_is_an_empty_string) {
    strata_text text = {0};
    char *string;
    cr_assert_eq(strata_text_take(&text, &string, NULL, NULL), STRATA_OK);
    cr_assert_str_eq(string, "");
    free(string);
}

Test(text, remembers_that_memory_ran_out) {
    strata_text text = {0};
    strata_text_add(&text, "a");
    strata_text_add_bytes(&text, "", SIZE_MAX / 2);
    strata_text_add(&text, "b");
    char *string;
    strata_error err;
    cr_assert_eq(strata_text_take(&text, &string, NULL, &err), STRATA_OUT_OF_MEMORY);
    cr_assert_null(text.bytes);
    cr_assert(!text.failed);
}

Test(text, nearest_name_finds_what_was_meant) {
    static const char *const names[] = {"train", "evaluate", "predict", "devices", "bench", "help"};
    struct {
        const char *word, *nearest;
    } cases[] = {{"trian", "train"},
                 {"TRAIN", "train"},
                 {"tain", "train"},
                 {"eval", NULL},
                 {"evaluat", "evaluate"},
                 {"device", "devices"},
                 {"predcit", "predict"},
                 {"benhc", "bench"},
                 {"hlep", "help"},
                 {"xyzzy", NULL},
                 {"", NULL},
                 {"a", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = strata_nearest_name(cases[i].word, names, 6);
        cr_assert((!got && !cases[i].nearest) || (got && cases[i].nearest && strcmp(got, cases[i].nearest) == 0), "%s gives %s",
                  cases[i].word, got ? got : "nothing");
    }
    char longest[500];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_assert_null(strata_nearest_name(longest, names, 6));
}
