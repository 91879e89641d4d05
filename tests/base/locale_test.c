/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and words are the same in all locales: with a decimal comma (German), with a decimal point of two bytes (Persian),
 * and where "I" is no capital of "i" (Turkish). tests/run.sh makes these locales. */
#include "core/base/locale.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/ascii.h"
#include "core/base/json.h"
#include "core/base/text.h"

static void choose(const char *name) {
    if (!setlocale(LC_ALL, name)) cr_skip_test("the locale %s is not installed, and localedef did not make it", name);
}

static void check_numbers(void) {
    char text[64], *end, *taken;
    double number = 0;
    strata_error err = {0};
    strata_text growing = {0};
    strata_format(text, sizeof text, "%.3f %g %e", 1234.5, 0.5, 0.25);
    cr_assert_str_eq(text, "1234.500 0.5 2.500000e-01");
    cr_assert(strata_scan_number("0.5x", &end) == 0.5 && *end == 'x');
    cr_assert(strata_scan("key 2.25", "%*s %lf", &number) == 1 && number == 2.25);
    strata_fail(&err, STRATA_DATA, "%g", 0.5);
    cr_assert_str_eq(err.message, "0.5");
    strata_text_add(&growing, "%.9g", 0.5);
    cr_assert_eq(strata_text_take(&growing, &taken, NULL, &err), STRATA_OK);
    cr_assert_str_eq(taken, "0.5");
    free(taken);
}

static void check_json(void) {
    static const char wanted[] = "[0.5,-1.25e-07,0.10000000000000001]";
    strata_json_writer w = {0};
    strata_json root = {0}, item;
    strata_error err = {0};
    char *text;
    const double numbers[] = {0.5, -1.25e-7, 0.1}, *next = numbers;
    double number = 0;
    strata_json_begin_array(&w);
    strata_json_write_number(&w, 0.5);
    strata_json_write_number(&w, -1.25e-7);
    strata_json_write_double(&w, 0.1);
    strata_json_end_array(&w);
    cr_assert_eq(strata_json_take(&w, &text, NULL, &err), STRATA_OK);
    cr_assert_str_eq(text, wanted);
    cr_assert_eq(strata_json_parse("t", text, strlen(text), 1000, &root, &err), STRATA_OK, "%s", err.message);
    for (bool more = strata_json_first(&root, &item); more; more = strata_json_next(&item)) {
        cr_assert_eq(strata_json_to_number(&item, -1, 1, &number, &err), STRATA_OK);
        cr_assert_eq(number, *next, "%.17g", number);
        next++;
    }
    cr_assert_eq(next - numbers, 3);
    strata_json_finish(&root);
    free(text);
}

Test(locale, a_decimal_comma_changes_nothing) {
    choose("de_DE.UTF-8");
    check_numbers();
    check_json();
    cr_assert_str_eq(setlocale(LC_ALL, NULL), "de_DE.UTF-8"); /* the program's locale is the one that it chose */
    cr_assert_eq(localeconv()->decimal_point[0], ',');
}

Test(locale, a_decimal_point_of_two_bytes_changes_nothing) {
    choose("fa_IR.UTF-8");
    check_numbers();
    check_json();
}

Test(locale, letters_are_compared_alike_in_turkish) {
    choose("tr_TR.UTF-8");
    const char *const names[] = {"ID", "TITLE"};
    check_numbers();
    cr_assert(strata_ascii_same("TRAIN.TIFF", "train.tiff") && strata_ascii_same_n("IMAGE/png", "image/jpeg", 6));
    cr_assert(!strata_ascii_same("train", "trainx") && !strata_ascii_same("trainx", "train"));
    cr_assert_str_eq(strata_nearest_name("titel", names, 2), "TITLE");
}
