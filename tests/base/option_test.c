/* SPDX-License-Identifier: Apache-2.0
 *
 * Options in JSON (core/base/option.h). Their kinds and ranges are tested with the layers that use them. */
#include "core/base/option.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

enum { MANY = 50 };

typedef struct numbers {
    double a, b;
    int64_t n;
} numbers;
static const strata_option of_numbers[] = {{"a", STRATA_OPTION_NUMBER, offsetof(numbers, a), 0, 1, false},
                                           {"b", STRATA_OPTION_NUMBER, offsetof(numbers, b), 0, 1, true},
                                           {"n", STRATA_OPTION_COUNT, offsetof(numbers, n), -1, 9, false},
                                           {0}};

static strata_status read_text(const char *text, numbers *out, strata_error *err) {
    strata_json root;
    *out = (numbers){0};
    cr_assert_eq(strata_json_parse("t", text, strlen(text), 100, &root, err), STRATA_OK, "%s", err->message);
    const strata_status status = strata_options_read(&root, of_numbers, NULL, 0, out, err);
    strata_json_finish(&root);
    return status;
}

Test(option, a_zero_that_is_written_is_given_and_is_written_again) {
    static const struct {
        const char *text, *again;
        bool a_given;
    } rows[] = {{"{\"a\":0,\"b\":0}", "{\"a\":0,\"b\":0}", true},
                {"{\"a\":-0.0,\"b\":1}", "{\"a\":0,\"b\":1}", true},
                {"{\"b\":0,\"n\":-1}", "{\"b\":0,\"n\":-1}", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strata_error err = {0};
        numbers got;
        strata_json_writer w = {0};
        char *text = NULL;
        cr_assert_eq(read_text(rows[i].text, &got, &err), STRATA_OK, "%s", err.message);
        cr_expect_eq(strata_number_is_given(got.a), rows[i].a_given);
        cr_expect_eq(got.a, 0);
        cr_expect_eq(strata_number_or(got.a, 0.5), rows[i].a_given ? 0 : 0.5);
        cr_expect_eq(strata_options_check(of_numbers, &got, &err), STRATA_OK);
        strata_json_begin_object(&w);
        strata_options_write(&w, of_numbers, &got);
        strata_json_end_object(&w);
        cr_assert_eq(strata_json_take(&w, &text, NULL, &err), STRATA_OK);
        cr_expect_str_eq(text, rows[i].again);
        free(text);
    }
}

Test(option, a_count_of_zero_is_refused) {
    strata_error err = {0};
    numbers got;
    cr_assert_eq(read_text("{\"b\":1,\"n\":0}", &got, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "n: is 0; it must be -1..9 and not 0"), "%s", err.message);
}

Test(option, a_table_may_have_many_options) {
    static char names[MANY][8], text[2048] = "{\"kind\":\"own\"";
    strata_option table[MANY + 1] = {{0}};
    int64_t values[MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "o%d", i);
        snprintf(text + strlen(text), sizeof text - strlen(text), ",\"o%d\":%d", i, i + 1);
        table[i] = (strata_option){names[i], STRATA_OPTION_INT, (size_t)i * sizeof *values, 0, MANY, false};
    }
    strcat(text, "}");
    const char *const also[] = {"kind"};
    strata_json root;
    strata_error err = {0};
    cr_assert_eq(strata_json_parse("t", text, strlen(text), sizeof text, &root, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_options_read(&root, table, also, 1, values, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < MANY; i++) cr_assert_eq(values[i], i + 1);
    cr_assert_eq(strata_options_read(&root, table, NULL, 0, values, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "\"kind\""), "%s", err.message);
    table[MANY - 1] = (strata_option){0};
    cr_assert_eq(strata_options_read(&root, table, also, 1, values, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "\"o49\""), "%s", err.message);
    strata_json_finish(&root);
}
