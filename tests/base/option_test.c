/* SPDX-License-Identifier: Apache-2.0
 *
 * Options in JSON (core/base/option.h). Their kinds and ranges are tested with the layers that use them. */
#include "core/base/option.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"

enum { MANY = 50 };

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
