/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables, arrays and pictures of users: which columns and types are found in them, how features are computed, and that a
 * file stores all of this. */
#include "strata/preprocessing.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/data/prepare/cell.h"
#include "core/data/prepare/preprocessing.h"
#include "core/data/stage/stage.h"
#include "strata/formats.h"
#include "strata/tokenizer.h"
#include "tests/support/folder.h"

TestSuite(preprocessing, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static strata_csv *parse(const char *text, const strata_preprocessing *known) {
    strata_csv *csv = NULL;
    OK(strata_csv_parse_table("t", text, strlen(text), 0, known, &csv, &err));
    return csv;
}

/* Finds the columns of a table and measures them on all rows. */
static strata_preprocessing *learn(const char *text, const strata_preprocessing_options *opts, strata_dataset **out) {
    strata_csv *csv = parse(text, NULL);
    strata_preprocessing *p = NULL;
    strata_dataset *none = NULL;
    OK(strata_preprocessing_from_csv(csv, opts, &p, &err));
    OK(strata_preprocessing_split_csv(p, csv, 0, 0, out, &none, &err));
    cr_assert_null(none);
    strata_csv_destroy(csv);
    return p;
}

static strata_dataset *apply(const strata_preprocessing *p, const char *text, strata_preprocessing_report *report) {
    strata_dataset *dataset = NULL;
    strata_csv *csv = parse(text, p);
    OK(strata_preprocessing_apply_csv(p, csv, &(strata_apply_options){.unlabelled = true, .report = report}, &dataset, &err));
    strata_csv_destroy(csv);
    return dataset;
}

static void fetch(const strata_dataset *dataset, float *x, void *y) {
    strata_order *order = NULL;
    OK(strata_order_create(strata_dataset_size(dataset), false, 0, 0, &order, &err));
    strata_dataset_fetch(dataset, order, 0, strata_dataset_size(dataset), x, y);
    strata_order_destroy(order);
}

static void is_near(const float *found, const double *expected, int n) {
    for (int i = 0; i < n; i++) cr_assert_float_eq((double)found[i], expected[i], 1e-5, "number %d is %g", i, (double)found[i]);
}

Test(preprocessing, cells_are_numbers_dates_or_missing) {
    static const strata_number_format point = {'.', ','}, comma = {',', '.'}, no_groups_of_commas = {'.', 0};
    const char *const missing[] = {"NA", "n/a", "NaN", "null", "None", "?", "-", " -- "}, *const listed[] = {"x y", "-999"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        cr_assert(strata_cell_is_usual_marker(missing[i]) && !strata_cell_is_blank(missing[i]), "%s", missing[i]);
    cr_assert(strata_cell_is_blank("") && strata_cell_is_blank(" \t ") && !strata_cell_is_usual_marker(""));
    cr_assert(!strata_cell_is_usual_marker("0") && !strata_cell_is_usual_marker("nay") && !strata_cell_is_usual_marker("-1"));
    cr_assert(strata_cell_is_listed(" x y", listed, 2) && strata_cell_is_listed("-999.0", listed, 2) &&
              !strata_cell_is_listed("X y", listed, 2) && !strata_cell_is_listed("999", listed, 2));
    double value = 0;
    bool has_time = false;
    cr_assert(strata_cell_number(" 1.5e2 ", point, &value) && value == 150);
    cr_assert(strata_cell_number("-3,25", comma, &value) && value == -3.25);
    cr_assert(!strata_cell_number("3,25", point, &value) && !strata_cell_number("1e", point, &value) &&
              !strata_cell_number("inf", point, &value));
    cr_assert(strata_cell_number("-1,234,567.5", point, &value) && value == -1234567.5);
    static const char *const units[] = {"$1,234.5",   "1,234.5 €", " £ 1,234.5", "1,234.5%",
                                        "1,234.5 % ", "+₹1,234.5", "¥ +1,234.5"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        cr_assert(strata_cell_number(units[i], point, &value) && value == 1234.5 && strata_cell_has_groups(units[i], ','), "%s",
                  units[i]);
    static const char *const below_0[] = {"-$3", "$-3", "−3", "-3 %", "−€3"};
    for (size_t i = 0; i < sizeof below_0 / sizeof *below_0; i++)
        cr_assert(strata_cell_number(below_0[i], point, &value) && value == -3, "%s", below_0[i]);
    static const char *const no_numbers[] = {"$", "%", "%3", "3$$", "$3 kg", "3 %%", "-$-3", "$$3", "3 USD", "−"};
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++)
        cr_assert(!strata_cell_number(no_numbers[i], point, &value), "%s is %g", no_numbers[i], value);
    cr_assert(strata_cell_number("1.234.567,5", comma, &value) && value == 1234567.5);
    cr_assert(!strata_cell_number("1,234", no_groups_of_commas, &value));
    cr_assert(strata_cell_number("1\xc2\xa0"
                                 "234,5",
                                 comma, &value) &&
              value == 1234.5);
    cr_assert(strata_cell_number("12 345", point, &value) && value == 12345 && strata_cell_number("1'234.5", point, &value) &&
              value == 1234.5);
    static const char *const spaced[] = {"12 345 €",
                                         "12\xe2\x80\xaf"
                                         "345\xc2\xa0€",
                                         "12345\xe2\x80\xaf%",
                                         "$\xc2\xa0"
                                         "12345"};
    for (size_t i = 0; i < sizeof spaced / sizeof *spaced; i++)
        cr_assert(strata_cell_number(spaced[i], comma, &value) && value == 12345, "%s", spaced[i]);
    cr_assert(strata_cell_number("-12,34,567.5", point, &value) && value == -1234567.5 &&
              strata_cell_number("₹ 1,00,000", point, &value) && value == 100000 && strata_cell_has_groups("1,00,000", ','));
    const char *const no_groups[] = {"1,23",         "0,123",    "1,23,45",   "123,45,678", "1,23,456,789",
                                     "1,234,56,789", "1234,567", "1,234 567", "1,234,56",   "1,2345",
                                     ",123",         "1,234,",   "1,,234"};
    for (size_t i = 0; i < sizeof no_groups / sizeof *no_groups; i++)
        cr_assert(!strata_cell_number(no_groups[i], point, &value), "%s is %g", no_groups[i], value);
    /* GNU date prints 1709164800 for `date -u -d 2024-02-29 +%s`, which is 19782 days. */
    cr_assert(strata_cell_date("2024-02-29", 0, &value, &has_time) && value == 19782 && !has_time);
    cr_assert(strata_cell_date("29.2.2024", 3, &value, &has_time) && value == 19782);
    cr_assert(strata_cell_date("1969-12-31T12:00:00Z", 0, &value, &has_time) && value == -0.5 && has_time);
    cr_assert(strata_cell_date("2024-02-29 06:00:00+06:00", 0, &value, &has_time) && value == 19782);
    const char *const wrong[] = {"2023-02-29",  "2024-13-01", "2024-00-01",      "2024-1-0",
                                 "2024-02-29x", "24-02-29",   "2024-02-29T25:00"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert(!strata_cell_date(wrong[i], 0, &value, &has_time), "%s", wrong[i]);
}

Test(preprocessing, a_character_that_the_first_line_lacks_separates_nothing) {
    strata_dataset *dataset = NULL;
    strata_preprocessing *p = learn("text;label\nyes, no;a, b\nmore, less;c, d\nyes, no;c, d\n", NULL, &dataset);
    cr_assert(strstr(strata_preprocessing_found(p), "--separator ';'"), "%s", strata_preprocessing_found(p));
    strata_dataset_destroy(dataset);
    strata_preprocessing_destroy(p);
}

Test(preprocessing, columns_become_features) {
    strata_dataset *dataset = NULL;
    float x[3 * 8];
    int32_t y[3];
    strata_preprocessing *p =
        learn("n,w,when,kind\n1,red,2024-01-01,a\n3,blue,2024-01-03,b\n,red,2024-01-02,a\n", NULL, &dataset);
    cr_assert_str_eq(strata_preprocessing_found(p),
                     "1 number, 1 column of words, 1 date, 1 missing (1 empty), 2 classes\n"
                     "columns: \"n\" number, \"w\" words (2), \"when\" date YYYY-MM-DD\n"
                     "read with --header yes --separator , --quote '\"' --dates ymd --na 'NA,N/A,NaN,null,None,?,-,--'");
    cr_assert_eq(strata_preprocessing_element(p).dims[0], 2 + 2 + 5);
    strata_dataset_destroy(dataset);
    /* Without the dates: n is 1, 3 and missing, with mean 2 and deviation 1. The class blue comes before red. */
    const char *const names[] = {"n", "w"};
    strata_preprocessing_destroy(p);
    p = learn("n,w,when,kind\n1,red,2024-01-01,a\n3,blue,2024-01-03,b\n,red,2024-01-02,a\n",
              &(strata_preprocessing_options){.features = names, .n_features = 2}, &dataset);
    cr_assert_eq(strata_dataset_size(dataset), 3);
    fetch(dataset, x, y);
    for (int i = 0; i < 3; i++) { /* the rows are in random order */
        const double rows[3][4] = {{-1, 0, 0, 1}, {1, 0, 1, 0}, {0, 1, 0, 1}};
        const int row = x[4 * i] < -0.5F ? 0 : x[4 * i] > 0.5F ? 1 : 2;
        is_near(x + 4 * i, rows[row], 4);
        cr_assert_eq(y[i], row == 1);
    }
    strata_dataset_destroy(dataset);
    strata_preprocessing_destroy(p);
}

/* "1,234" is a number with a thousands separator, or a fraction where thousands cannot be separated by commas. */
Test(preprocessing, commas_are_read_as_the_other_cells_and_the_separator_say) {
    static const struct {
        const char *table;
        double mean_of_label;
    } cases[] = {{"x,price\n1,\"1,500\"\n3,\"2,500\"\n4,\"2,000\"\n7,\"2,000\"\n", 2000},
                 {"x;price\n1;1,500\n3;2,500\n4;2,000\n7;2,000\n", 2},
                 {"x;price\n1;1,500,000\n3;2,500\n4;2,000\n7;2,000\n", 376625},
                 {"x;price\n1;1.500,5\n3;500,5\n4;2\n7;1\n", 501}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_error err = {0};
        strata_csv *csv = NULL;
        const char *text = cases[i].table;
        cr_assert_eq(strata_csv_parse("test", text, strlen(text), &(strata_csv_dialect){.separator = text[1]}, &csv, &err),
                     STRATA_OK, "%s", err.message);
        strata_preprocessing *p = NULL;
        const strata_preprocessing_options opts = {.task = STRATA_TASK_REGRESSION};
        strata_dataset *all = NULL, *none = NULL;
        cr_assert_eq(strata_preprocessing_from_csv(csv, &opts, &p, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_preprocessing_split_csv(p, csv, 0, 0, &all, &none, &err), STRATA_OK, "%s", err.message);
        float number[1] = {0};
        strata_array zero = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1), number);
        strata_preprocessing_restore(p, &zero); /* 0 is the mean of the labels */
        cr_expect_float_eq((double)number[0], cases[i].mean_of_label, 1e-3, "case %zu: %g", i, (double)number[0]);
        strata_dataset_destroy(all);
        strata_preprocessing_destroy(p);
        strata_csv_destroy(csv);
    }
}

Test(preprocessing, a_date_has_its_place_in_year_and_week) {
    strata_dataset *dataset = NULL;
    float x[2 * 5];
    strata_preprocessing *p = learn("when,kind\n1970-01-01,a\n1970-01-03,b\n", NULL, &dataset);
    strata_dataset_destroy(dataset);
    dataset = apply(p, "when\n1970-01-01\n1970-01-03\n", NULL);
    fetch(dataset, x, NULL);
    const double turn = 2 * 3.14159265358979323846, year = 2 * turn / 365.2425, week = 2 * turn / 7;
    const double expected[] = {-1, 0, 1, 0, 1, 1, sin(year), cos(year), sin(week), cos(week)};
    is_near(x, expected, 10);
    strata_dataset_destroy(dataset);
    strata_preprocessing_destroy(p);
}

/* The numbers are the first input and the tokens the second one. JSON that has no column besides the text is refused. */
Test(preprocessing, texts_beside_other_columns_are_an_input_of_their_own) {
    static const char text[] =
        "n,t,y\n1,one two three four five six seven eight,a\n2,two two one nine ten three four five,b\n"
        "3,one three five seven nine two four six,a\n6,six five four three two one ten nine,b\n";
    strata_dataset *dataset = NULL, *later;
    strata_preprocessing *loaded = NULL, *p = learn(text, NULL, &dataset);
    float x[2];
    int32_t tokens[2][8];
    char *json = NULL;
    cr_assert_eq(strata_preprocessing_get_kind(p), STRATA_PREPROCESSING_TABLE);
    cr_assert(strata_preprocessing_element(p).dims[0] == 1 && strata_preprocessing_n_tokens(p) == 8);
    cr_assert(dataset->n_more == 1 && !strcmp(dataset->spec.names[0], "numbers") && !strcmp(dataset->spec.names[2], "text"));
    later = apply(p, "t,n\none unheard,3\n,5\n", NULL);
    fetch(later, x, NULL);
    is_near(x, (double[]){0, 2 / sqrt(3.5)}, 2); /* 1, 2, 3 and 6 have the mean 3 and the variance 14 / 4 */
    fetch(later->more[0], (float *)tokens, NULL);
    cr_assert(tokens[0][0] > STRATA_TOKEN_UNKNOWN && tokens[0][1] == STRATA_TOKEN_UNKNOWN && tokens[0][2] == 0);
    cr_assert(tokens[1][0] == STRATA_TOKEN_UNKNOWN && tokens[1][1] == 0);
    OK(strata_preprocessing_to_json(p, &json, &err));
    OK(strata_preprocessing_from_json(json, strlen(json), "json", &loaded, &err));
    cr_assert_eq(strata_preprocessing_n_tokens(loaded), 8);
    static const char no_number[] =
        "{\"kind\":\"table\",\"header\":[\"t\"],\"length\":8,\"columns\":[{\"name\":\"t\","
        "\"kind\":\"text\"}],\"labels\":[{\"name\":\"y\",\"kind\":\"words\",\"words\":[\"a\",\"b\"]}]}";
    strata_preprocessing *none = NULL;
    cr_assert_eq(strata_preprocessing_from_json(no_number, strlen(no_number), "json", &none, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "have no feature"), "%s", err.message);
    strata_dataset_destroy(dataset);
    strata_dataset_destroy(later);
    strata_preprocessing_destroy(p);
    strata_preprocessing_destroy(loaded);
    free(json);
}

Test(preprocessing, comes_back_from_json_with_the_same_bits) {
    static const char text[] =
        "n;w;when;y\n1,1;red;01.02.2023 10:00;1,5\n;blue;02.03.2023 11:00;2,5\n3,7;red;;4\n9;;05.06.2023 1:30;7\n";
    static const char later[] = "when;n;other;w\n07.08.2024 12:00;4,4;x;green\n;;x;blue\n";
    strata_dataset *dataset = NULL, *first, *second;
    strata_preprocessing *loaded = NULL, *p = learn(text, NULL, &dataset);
    strata_preprocessing_report report;
    float x[2][64];
    char *json = NULL;
    strata_dataset_destroy(dataset);
    OK(strata_preprocessing_to_json(p, &json, &err));
    OK(strata_preprocessing_from_json(json, strlen(json), "json", &loaded, &err));
    first = apply(p, later, &report);
    cr_assert(report.n_unknown == 1 && !strcmp(report.word, "green") && !strcmp(report.column, "w"));
    second = apply(loaded, later, NULL);
    const int64_t width = strata_preprocessing_element(p).dims[0];
    cr_assert(width == strata_preprocessing_element(loaded).dims[0] && 2 * width <= 64);
    fetch(first, x[0], NULL);
    fetch(second, x[1], NULL);
    cr_assert(!memcmp(x[0], x[1], (size_t)(2 * width) * sizeof(float)));
    strata_array prediction = {0};
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1), &prediction, &err));
    strata_preprocessing_restore(loaded, &prediction); /* 0 is the mean of the labels, (1.5 + 2.5 + 4 + 7) / 4 */
    cr_assert_float_eq((double)*(float *)prediction.data, 3.75, 1e-6);
    strata_array_finish(&prediction);
    strata_dataset_destroy(first);
    strata_dataset_destroy(second);
    strata_preprocessing_destroy(p);
    strata_preprocessing_destroy(loaded);
    free(json);
}

Test(preprocessing, tables_are_read_as_they_are_written) {
    const struct {
        const char *text, *first;
        int n_columns;
        int64_t n_rows;
    } cases[] = {{"a,b\n1,2\n", "a", 2, 1},
                 {"a;b\n1,5;2,5\n", "a", 2, 1},
                 {"a\tb|c\n1\t2\n", "a", 2, 1},
                 {"a|b|c\n1|2|3\n", "a", 3, 1},
                 {"\"x,y\";b\n1;2\n", "x,y", 2, 1},
                 {"5.1,3.5,setosa\n4.9,3.0,setosa\n", "column 1", 3, 2},
                 {"1,1,1\n2,2,2\n", "column 1", 3, 2},
                 {"\xEF\xBB\xBF"
                  "a,b\r\n1,2\r\n",
                  "a", 2, 1},
                 {"1,2,price\n0.5,0.25,1\n", "1", 3, 1},
                 {"word\nx\n", "word", 1, 1},
                 {"0,1,label\n1.5,2.5,a\n2.5,3.5,b\n3.5,4.5,a\n4.5,5.5,b\n", "0", 3, 4},
                 {"0,1,2\n3,4,5\n6,7,8\n", "column 1", 3, 3},
                 {"0,1,1\n1,1,0\n1,0,1\n0,0,0\n", "column 1", 3, 4},
                 {"x,p\nb,e\nx,p\nb,e\nx,p\n", "column 1", 2, 5},
                 {"2,7;1,8;no\n4,2;2,5;no\n", "column 1", 3, 2},
                 {"a b;c\n1,5;\"x;y\"\n", "a b", 2, 1},
                 {"\"a\nb\",c\r\"x\",1\r\"y\nz\",2\r", "a\nb", 2, 2}}; /* CR ends lines, and cells have line feeds */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_csv *csv = parse(cases[i].text, NULL);
        cr_assert_str_eq(strata_csv_column(csv, 0), cases[i].first);
        cr_assert(strata_csv_n_columns(csv) == cases[i].n_columns && strata_csv_n_rows(csv) == cases[i].n_rows, "%s",
                  cases[i].text);
        strata_csv_destroy(csv);
    }
}

/* The model takes a alone; its table also has a label, and a column that is empty. */
Test(preprocessing, later_tables_are_divided_as_their_quotes_and_words_say) {
    const struct {
        const char *table, *first;
    } cases[] = {{"\"6,4\",yes\n\"2,7\",no\n\"0,4\",yes\n\"0,2\",no\n", "column 1"},
                 {"\"the \"\"best\"\"\",x,label\na b,,yes\nblue,,no\na b,,yes\nblue,,no\n", "the \"best\""},
                 {"True,per haps\nFalse,no\nTrue,no\nFalse,per haps\nTrue,no\n", "column 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_dataset *dataset = NULL;
        strata_preprocessing *p = learn(cases[i].table, NULL, &dataset);
        const int64_t n = strata_dataset_size(dataset);
        strata_dataset_destroy(dataset);
        strata_csv *csv = parse(cases[i].table, p);
        cr_assert_str_eq(strata_csv_column(csv, 0), cases[i].first);
        OK(strata_preprocessing_apply_csv(p, csv, NULL, &dataset, &err));
        cr_assert_eq(strata_dataset_size(dataset), n);
        strata_dataset_destroy(dataset);
        strata_csv_destroy(csv);
        strata_preprocessing_destroy(p);
    }
}

Test(preprocessing, words_of_missing_values_that_are_told_count_for_the_header) {
    const char *const na[] = {"missing"}, *text = "a,-1.5,no\nb,missing,yes\na,2.5,no\nb,3.5,yes\na,4.5,no\n";
    const strata_csv_dialect dialect = {.na = na, .n_na = 1};
    strata_csv *csv = NULL;
    OK(strata_csv_parse_table("t", text, strlen(text), &dialect, NULL, &csv, &err));
    cr_assert_eq(strata_csv_n_rows(csv), 5);
    strata_csv_destroy(csv);
}

/* Whether the first line is names or an example: each sign alone, and the same table without it. */
Test(preprocessing, a_first_line_is_a_header_when_it_differs_from_all_below) {
    static const struct {
        const char *table;
        bool header;
    } tables[] = {{"a,b\n1,2\n3,4\n", true},
                  {"a,2\n1,2\n3,4\n", true},
                  {"when,n\n2024-01-02,1.5\n2024-01-03,2.5\n", true},
                  {"2024-01-01,1.5\n2024-01-02,2.5\n2024-01-03,1.5\n", false},
                  {"NA,1.5\n2,2.5\n3,3.5\n", false},
                  {"red,1.5\nblue,2.5\nred,1.5\nblue,3.5\nred,2.5\n", false},
                  {"colour,kind\nred,a\nblue,b\nred,b\nblue,a\n", true},
                  {"red,a\nblue,b\nred,b\nblue,a\nred,a\n", false},
                  {"red,,a\nblue,,b\nred,,b\nblue,,a\nred,,a\n", false},
                  {"2020,label\n3,a\n4,b\n5,b\n6,a\n7,a\n8,b\n9,b\n10,a\n", true},
                  {"2020,a\n3,a\n4,b\n5,b\n6,a\n7,a\n8,b\n9,b\n10,a\n", false},
                  {"2020,c\n3,a\n4,b\n5,b\n6,a\n", false},
                  /* Numbers above numbers are names where they count the columns, as pandas writes them, and no row does. */
                  {"0,1,2\n1.5,2.5,1.5\n2.5,1.5,3.5\n", true},
                  {"1,2,3\n1.5,2.5,1.5\n2.5,1.5,3.5\n", true},
                  {"0,2,1\n1.5,2.5,1.5\n2.5,1.5,3.5\n", false},
                  {"0,1,3\n1.5,2.5,1.5\n2.5,1.5,3.5\n", false},
                  {"0.0,1.0,2.0\n1.5,2.5,1.5\n2.5,1.5,3.5\n", false},
                  {"0,1,2\n9,7,8\n3,4,5\n", true},
                  {"0,1,2\n3,4,5\n9,7,8\n", false},
                  {"0,1,2\n0,2,1\n1,1,2\n", false},
                  {"0,1,kind\n1.5,2.5,a\n1.5,3.5,b\n2.5,1.5,a\n3.5,2.5,b\n", true}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        strata_csv *csv = NULL;
        int64_t lines = 0;
        for (const char *at = tables[i].table; *at; at++) lines += *at == '\n';
        OK(strata_csv_parse_table("t", tables[i].table, strlen(tables[i].table), NULL, NULL, &csv, &err));
        cr_expect_eq(strata_csv_n_rows(csv), lines - tables[i].header, "%s", tables[i].table);
        strata_csv_destroy(csv);
    }
}

/* At most 15 words are counted one by one, and all further ones together. */
Test(preprocessing, words_of_missing_values_are_counted_each) {
    for (int n = 1; n <= 18; n++) {
        char words[18][8], text[400] = "x,y\n", wanted[400] = " (";
        const char *na[18];
        for (int i = 0; i < n; i++) {
            snprintf(words[i], sizeof words[i], "m%d", i);
            na[i] = words[i];
            for (int k = 0; k <= i % 2; k++) snprintf(text + strlen(text), sizeof text - strlen(text), "m%d,1.5\n", i);
            if (i < 15)
                snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s%d m%d", i ? ", " : "", 1 + i % 2, i);
        }
        /* of words 15, 16 and 17, those with an odd number stand twice */
        static const int others[] = {2, 3, 5};
        if (n > 15) snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), ", %d others", others[n - 16]);
        strcat(wanted, ")");
        strcat(text, "1.5,2.5\n2.5,1.5\n");
        const strata_csv_dialect dialect = {.na = na, .n_na = n, .header = STRATA_CSV_HEADER_YES};
        strata_csv *csv = NULL;
        strata_preprocessing *p = NULL;
        OK(strata_csv_parse_table("t", text, strlen(text), &dialect, NULL, &csv, &err));
        OK(strata_preprocessing_from_csv(csv, NULL, &p, &err));
        cr_expect(strstr(strata_preprocessing_found(p), wanted), "%s is not in %s", wanted, strata_preprocessing_found(p));
        strata_preprocessing_destroy(p);
        strata_csv_destroy(csv);
    }
}

/* The order that is told is that of dates which have several; a date that begins with its year has one. */
Test(preprocessing, an_order_of_dates_leaves_those_that_begin_with_the_year) {
    const char *text = "d,e,y\n2024-01-30,25.04.1973,1.5\n2024-02-28,15.02.1985,2.5\n2024-03-17,20.04.1987,3.5\n";
    strata_csv_dialect dialect = {.dates = STRATA_DATE_DMY};
    strata_preprocessing *p = NULL;
    strata_csv *csv = NULL;
    OK(strata_csv_parse_table("t", text, strlen(text), &dialect, NULL, &csv, &err));
    OK(strata_preprocessing_from_csv(csv, NULL, &p, &err));
    cr_assert(strstr(strata_preprocessing_found(p), "2 dates"), "%s", strata_preprocessing_found(p));
    strata_preprocessing_destroy(p);
    strata_csv_destroy(csv);
    /* Dates that have another order than the one that is told are mistakes, not words. */
    dialect.dates = STRATA_DATE_MDY;
    OK(strata_csv_parse_table("t", text, strlen(text), &dialect, NULL, &csv, &err));
    cr_assert_eq(strata_preprocessing_from_csv(csv, NULL, &p, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "there is no such day"), "%s", err.message);
    strata_csv_destroy(csv);
}

/* scikit-learn's StandardScaler gives the same features for the same doubles. In f32, all of these numbers are equal. */
Test(preprocessing, arrays_are_centred_before_they_are_rounded) {
    enum { N = 4 };
    const double exact[N] = {1700000001, 1700000003, 1700000005, 1700000007};
    const double expected[N] = {-1.3416408, -0.4472136, 0.4472136, 1.3416408};
    float x[N], y[N] = {0, 1, 0, 1}, features[N];
    for (int i = 0; i < N; i++) x[i] = (float)exact[i];
    strata_array xs = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), x);
    strata_array ys = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), y);
    const strata_examples examples = {.x = &xs, .y = &ys, .exact_x = exact, .name = "doubles"};
    strata_preprocessing *p = NULL;
    strata_dataset *data = NULL;
    OK(strata_preprocessing_from_arrays(&xs, &ys, NULL, &p, &err));
    OK(strata_preprocessing_split_examples(p, &examples, 0, 0, &data, &(strata_dataset *){NULL}, &err));
    strata_dataset_destroy(data);
    OK(strata_preprocessing_apply_examples(p, &examples, &data, &err));
    fetch(data, features, y);
    is_near(features, expected, N);
    strata_dataset_destroy(data);
    strata_preprocessing_destroy(p);
}

/* The decisions on the training table come back from JSON and hold for later tables. */
Test(preprocessing, the_dialect_is_saved_and_checked) {
    strata_dataset *dataset = NULL;
    strata_preprocessing *loaded = NULL,
                         *p = learn("a;d;y\n1.234,5;13/01/2024;u\n7;01/02/2024;v\n1000;02/02/2024;u\n", NULL, &dataset);
    char *json = NULL;
    float x[2][16];
    OK(strata_preprocessing_to_json(p, &json, &err));
    cr_assert(strstr(json,
                     "\"dialect\":{\"separator\":\";\",\"quote\":\"\\\"\",\"header\":true,\"decimal\":\",\","
                     "\"thousands\":\".\",\"dates\":\"dmy\"}"),
              "%s", json);
    OK(strata_preprocessing_from_json(json, strlen(json), "json", &loaded, &err));
    strata_dataset_destroy(dataset);
    const char *const same[] = {"a;d\n1.234,5;01/02/2024\n", "a,d\n1234.5,2024-02-01\n", "d|a\n01/02/2024|1.234,50\n"};
    for (int i = 0; i < 3; i++) {
        strata_preprocessing_report report;
        dataset = apply(loaded, same[i], &report);
        cr_assert_eq(report.decimal, i == 1 ? '.' : 0);
        fetch(dataset, x[!!i], NULL);
        cr_assert(!memcmp(x[0], x[!!i], (size_t)strata_preprocessing_element(p).dims[0] * sizeof(float)), "%s", same[i]);
        strata_dataset_destroy(dataset);
    }
    static const struct {
        const char *text, *part;
    } wrong[] = {{"a,d\n1.234,01/02/2024\n", "which is 1.234 with a decimal point and 1234 with a decimal comma"},
                 {"a;d\n1,5;01/30/2024\n", "which is not a date DD/MM/YYYY"},
                 {"a;d\n1,5;01/02/2024\n2.5;01/02/2024\n", "(--decimal . reads this cell)"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_csv *csv = parse(wrong[i].text, loaded);
        const strata_apply_options opts = {.unlabelled = true};
        cr_assert_eq(strata_preprocessing_apply_csv(loaded, csv, &opts, &dataset, &err), STRATA_DATA, "%s", wrong[i].text);
        cr_assert(strstr(err.message, wrong[i].part), "%s", err.message);
        strata_csv_destroy(csv);
    }
    strata_preprocessing_destroy(p);
    strata_preprocessing_destroy(loaded);
    free(json);
}

Test(preprocessing, labels_are_classes_or_numbers) {
    const struct {
        const char *labels; /* separated by spaces; the table repeats them */
        int n_classes;
        const char *first;
        strata_task task;
    } cases[] = {{"yes no yes", 2, "no", 0},
                 {"None - NA", 3, "-", 0},
                 {"0 1 NA", 2, "0", 0},
                 {"-1 1 1", 2, "-1", 0},
                 {"7 3 3.0", 2, "3", 0},
                 {"10 9 8", 3, "8", 0},
                 {"0.5 1 2", 0, NULL, 0},
                 {"0.5 1 2", 3, "0.5", STRATA_TASK_CLASSIFICATION},
                 {"1 2 3", 0, NULL, STRATA_TASK_REGRESSION}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024] = "x,y\n";
        for (int row = 0; row < 12; row++) {
            char label[3][8];
            sscanf(cases[i].labels, "%7s %7s %7s", label[0], label[1], label[2]);
            snprintf(text + strlen(text), sizeof text - strlen(text), "%d,%s\n", row * row, label[row % 3]);
        }
        strata_dataset *dataset = NULL;
        strata_preprocessing *p = learn(text, &(strata_preprocessing_options){.task = cases[i].task}, &dataset);
        cr_assert_eq(strata_preprocessing_n_classes(p), cases[i].n_classes, "%s", cases[i].labels);
        if (cases[i].first) cr_assert_str_eq(strata_preprocessing_class_name(p, 0), cases[i].first);
        strata_dataset_destroy(dataset);
        strata_preprocessing_destroy(p);
    }
}

static void rejects(const char *text, const strata_preprocessing_options *opts, const char *part) {
    strata_csv *csv = NULL;
    strata_preprocessing *p = NULL;
    strata_status status = strata_csv_parse_table("t", text, strlen(text), 0, NULL, &csv, &err);
    if (!status) status = strata_preprocessing_from_csv(csv, opts, &p, &err);
    cr_assert(status && strstr(err.message, part), "%s", err.message);
    strata_csv_destroy(csv);
}

Test(preprocessing, bad_tables_say_what_is_wrong) {
    static const char *const no_column[] = {"kidn"};
    rejects("", NULL, "is empty");
    rejects("a,b\n", NULL, "has a header and no rows");
    rejects("a,b\n1,2\n3\n", NULL, "the record ends after 1 cells");
    rejects("a,b\n1,x\n2,x\n", NULL, "is \"x\" in all rows");
    rejects("a,b\n1,\n2,NA\n", NULL, "is missing in all rows");
    rejects("a:b\n1:x\n2:y\n", NULL, "name them (--separator)");
    rejects("a,b\n1,2024-01-01\n2,2024-01-02\n", NULL, "is a date");
    rejects("a,kind\n1,x\n2,y\n", &(strata_preprocessing_options){.labels = no_column, .n_labels = 1},
            "did you mean \"kind\"?");
    rejects("a,b\n\xFF,1\n", NULL, "byte 0xFF is not valid UTF-8");
    strata_csv *csv = NULL;
    cr_assert_eq(strata_csv_parse_table("t", "PAR1abc", 7, 0, NULL, &csv, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "is Parquet, which cannot be read from standard input"), "%s", err.message);
    cr_assert_eq(strata_csv_parse_table("t", "a\0b", 3, 0, NULL, &csv, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "is not text"), "%s", err.message);
    char text[4096] = "a,b\n", words[8192] = "a,b\n";
    for (int i = 0; i < 40; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s,%d\n", i == 20 ? "oops" : "1", i % 2);
        snprintf(words + strlen(words), sizeof words - strlen(words), "%d,word%d\n", i, i);
    }
    rejects(text, NULL, "t:22: column \"a\" has the cell \"oops\", which is not a number");
    rejects(words, NULL, "has 40 different words in 40 rows, too many for classes");
}

Test(preprocessing, a_separator_is_not_chosen_of_two_that_divide_equally) {
    rejects("x,y;yes\nz,w;no\nx,w;yes\nz,y;no\n", NULL, "t: ',' and ';' divide its lines equally well");
    rejects("a;b|c\nd;e|f\n", NULL, "';' and '|' divide its lines equally well; name the character that separates its cells");
    rejects("a|b\tc\nd|e\tf\n", NULL, "tab and '|' divide its lines equally well");
    /* A third is better, or the cells of one are numbers; a blank after a comma is none. */
    const char *const clear[] = {"a,b;c|d|e\nf,g;h|i|j\n", "1,5;2\n3,5;4\n", "x, yes\nz, no\n"};
    for (size_t i = 0; i < sizeof clear / sizeof *clear; i++) {
        strata_csv *csv = NULL;
        OK(strata_csv_parse_table("t", clear[i], strlen(clear[i]), NULL, NULL, &csv, &err));
        cr_assert_eq(strata_csv_n_columns(csv), i ? 2 : 3);
        strata_csv_destroy(csv);
    }
    /* The separator of the model's table decides. */
    strata_dataset *dataset = NULL;
    strata_csv *csv = NULL;
    strata_preprocessing *p = learn("u;v;kind\nx,1;p;yes\nz,2;q;no\nx,1;q;yes\nz,2;p;no\n", NULL, &dataset);
    OK(strata_csv_parse_table("t", "x,1;p\nz,2;q\n", 12, NULL, p, &csv, &err));
    cr_assert(strata_csv_n_columns(csv) == 2 && !strcmp(strata_csv_cell(csv, 0, 0), "x,1"), "%s", strata_csv_cell(csv, 0, 0));
    strata_csv_destroy(csv);
    strata_dataset_destroy(dataset);
    strata_preprocessing_destroy(p);
}

Test(preprocessing, later_tables_must_have_what_training_had) {
    strata_dataset *dataset = NULL, *none = NULL;
    strata_preprocessing *p = learn("a,b,kind\n1,red,x\n2,blue,y\n", NULL, &dataset);
    strata_dataset_destroy(dataset);
    const struct {
        const char *text, *part;
    } cases[] = {{"a,kind\n1,x\n", "has no column \"b\""},
                 {"kind,a,b\nz,1,red\n", "the label \"z\" in column \"kind\" is not one of the 2 classes"},
                 {"kind,a,b\nx,many,red\n", "t:2: column \"a\" has the cell \"many\", which is not a number"},
                 {"a,b\n1,red\n", "has no column \"kind\""},
                 {"1\n", "has no header, and 1 column; the model takes 2: a, b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_csv *csv = NULL;
        strata_status status = strata_csv_parse_table("t", cases[i].text, strlen(cases[i].text), 0, p, &csv, &err);
        if (!status) status = strata_preprocessing_apply_csv(p, csv, NULL, &none, &err);
        cr_assert(status == STRATA_DATA && strstr(err.message, cases[i].part), "%s", err.message);
        strata_csv_destroy(csv);
    }
    /* Tables without a header have the columns of the model, or all columns of the original table. */
    const char *const rows[] = {"1,red\n", "1,red,x\n", "b,kind,a\nred,x,1\n"};
    float first[3], other[3];
    for (int i = 0; i < 3; i++) {
        dataset = apply(p, rows[i], NULL);
        fetch(dataset, i ? other : first, NULL);
        cr_assert(!i || !memcmp(first, other, sizeof first));
        strata_dataset_destroy(dataset);
    }
    strata_preprocessing_destroy(p);
}

Test(preprocessing, json_that_lies_is_refused) {
    const char *const wrong[] = {
        "{}",
        "{\"kind\":\"tables\"}",
        "{\"kind\":\"table\",\"header\":[],\"columns\":[],\"labels\":[]}",
        "{\"kind\":\"table\",\"header\":[],\"columns\":[{\"name\":\"a\",\"kind\":\"number\",\"mean\":0,\"deviation\":0}],"
        "\"labels\":[]}",
        "{\"kind\":\"table\",\"header\":[],\"columns\":[{\"name\":\"a\",\"kind\":\"words\",\"words\":[\"b\",\"a\"]}],"
        "\"labels\":[{\"name\":\"l\",\"kind\":\"number\",\"mean\":0,\"deviation\":1}]}",
        "{\"kind\":\"pictures\",\"header\":[],\"columns\":[],\"labels\":[{\"name\":\"l\",\"kind\":\"words\",\"words\":[\"a\"]}]"
        ","
        "\"element\":[2,2,2]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_preprocessing *p = NULL;
        cr_assert_eq(strata_preprocessing_from_json(wrong[i], strlen(wrong[i]), "j", &p, &err), STRATA_DATA, "%s", wrong[i]);
        cr_assert_null(p);
    }
}

Test(preprocessing, weights_have_decimal_commas_like_other_numbers) {
    static const char *const tables[] = {"x;w;y\n1;1,250;a\n2;2,500;b\n3;1,000;a\n", "x;w;y\n1;1,25;a\n2;2,5;b\n3;1;a\n",
                                         "x,w,y\n1,1.25,a\n2,2.5,b\n3,1,a\n"};
    const strata_preprocessing_options opts = {.weight = "w"};
    strata_order *order = NULL;
    strata_dataset *dataset = NULL;
    strata_preprocessing *p = NULL;
    float x[3], weights[3];
    int32_t y[3];
    OK(strata_order_create(3, false, 0, 0, &order, &err));
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        strata_csv *csv = parse(tables[i], NULL);
        OK(strata_preprocessing_from_csv(csv, &opts, &p, &err));
        OK(strata_preprocessing_split_csv(p, csv, 0, 0, &dataset, &(strata_dataset *){NULL}, &err));
        strata_dataset_destroy(dataset);
        OK(strata_preprocessing_apply_csv(p, csv, NULL, &dataset, &err));
        fetch(dataset, x, y);
        strata_dataset_fetch_weights(dataset, order, 0, 3, weights);
        is_near(weights, (const double[]){1.25, 2.5, 1}, 3);
        strata_dataset_destroy(dataset);
        strata_csv_destroy(csv);
        strata_preprocessing_destroy(p);
    }
    strata_order_destroy(order);
    strata_csv *csv = parse("x,w,y\n1,1,a\n2,-1,b\n3,1,a\n", NULL);
    OK(strata_preprocessing_from_csv(csv, &opts, &p, &err));
    cr_assert_eq(strata_preprocessing_split_csv(p, csv, 0, 5, &dataset, &(strata_dataset *){NULL}, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t:3: the weight in column \"w\" is \"-1\"; it must be a number of at least 0");
    strata_csv_destroy(csv);
    strata_preprocessing_destroy(p);
}

Test(preprocessing, arrays_have_any_integers_as_labels) {
    float x[12][2], features[12 * 3];
    int64_t y[12];
    int32_t labels[12];
    strata_preprocessing *p = NULL;
    strata_dataset *train = NULL, *test = NULL;
    for (int i = 0; i < 12; i++) x[i][0] = (float)i, x[i][1] = i ? 1 : NAN, y[i] = i % 2 ? 1000 : -5;
    const strata_array xs = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12, 2), x);
    const strata_array ys = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(12), y);
    OK(strata_preprocessing_from_arrays(&xs, &ys, NULL, &p, &err));
    OK(strata_preprocessing_split_arrays(p, &xs, &ys, 0, 0, &train, &test, &err));
    cr_assert_str_eq(strata_preprocessing_class_name(p, 0), "-5");
    /* the second column has a missing number, so it needs one more feature */
    cr_assert_eq(strata_preprocessing_element(p).dims[0], 3);
    strata_dataset_destroy(train);
    OK(strata_preprocessing_apply_arrays(p, &xs, &ys, &train, &err));
    fetch(train, features, labels);
    for (int i = 0; i < 12; i++) cr_assert(labels[i] == i % 2 && features[3 * i + 2] == (float)!i && features[3 * i + 1] == 0);
    const strata_array narrow = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(24, 1), x);
    cr_assert_eq(strata_preprocessing_apply_arrays(p, &narrow, NULL, &test, &err), STRATA_DATA);
    int64_t many[12 * 2 * 1] = {0};
    const strata_array deep = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(12, 2, 1), many);
    cr_assert_eq(strata_preprocessing_apply_arrays(p, &xs, &deep, &test, &err), STRATA_DATA, "two labels an example");
    strata_dataset_destroy(train);
    strata_preprocessing_destroy(p);
    for (int i = 0; i < 12; i++) features[i] = i % 2 ? INFINITY : 1;
    const strata_array infinite = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12), features);
    cr_assert_eq(strata_preprocessing_from_arrays(&xs, &infinite, NULL, &p, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "label 1 is inf; a label is a finite number, or NaN if it is missing");
}

/* Arrays of several axes have the same features as those of another type with the same numbers, whichever of the two types the
 * training data have. */
Test(preprocessing, arrays_of_another_type_have_the_same_features) {
    uint8_t bytes[12][2][2][1];
    float numbers[12][2][2][1], y[12], found[2][48];
    for (int i = 0; i < 48; i++) ((float *)numbers)[i] = ((uint8_t *)bytes)[i] = (uint8_t)(5 * i);
    for (int i = 0; i < 12; i++) y[i] = (float)i / 3;
    const strata_array ys = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12), y);
    const strata_array xs[2] = {strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(12, 2, 2, 1), bytes),
                                strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12, 2, 2, 1), numbers)};
    for (int learned = 0; learned < 2; learned++) {
        strata_preprocessing *p = NULL;
        strata_dataset *train = NULL, *test = NULL;
        OK(strata_preprocessing_from_arrays(&xs[learned], &ys, NULL, &p, &err));
        OK(strata_preprocessing_split_arrays(p, &xs[learned], &ys, 0, 0, &train, &test, &err));
        strata_dataset_destroy(train);
        for (int applied = 0; applied < 2; applied++) {
            OK(strata_preprocessing_apply_arrays(p, &xs[applied], NULL, &test, &err));
            fetch(test, found[applied], NULL);
            strata_dataset_destroy(test);
        }
        for (int i = 0; i < 48; i++)
            cr_assert_float_eq((double)found[0][i], (double)found[1][i], 1e-6, "number %d is %g as u8, %g as f32", i,
                               (double)found[0][i], (double)found[1][i]);
        const double expected = learned ? -1.69633 : 0; /* (0 - 117.5) / 69.267 */
        cr_assert_float_eq((double)found[0][0], expected, 1e-5, "%g", (double)found[0][0]);
        strata_preprocessing_destroy(p);
    }
}

/* Integers that are large and close to each other, for example times in seconds, keep their deviation. */
Test(preprocessing, large_numbers_of_arrays_have_their_deviation) {
    int32_t numbers[12][2][2][1];
    float y[12], x[48];
    double squares = 0;
    strata_preprocessing *p = NULL;
    strata_dataset *train = NULL, *test = NULL;
    for (int i = 0; i < 48; i++) ((int32_t *)numbers)[i] = 2000000000 + i % 2;
    for (int i = 0; i < 12; i++) y[i] = (float)i / 3;
    const strata_array xs = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(12, 2, 2, 1), numbers);
    const strata_array ys = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(12), y);
    OK(strata_preprocessing_from_arrays(&xs, &ys, NULL, &p, &err));
    OK(strata_preprocessing_split_arrays(p, &xs, &ys, 0, 0, &train, &test, &err));
    fetch(train, x, NULL);
    for (int i = 0; i < 48; i++) squares += (double)x[i] * (double)x[i];
    cr_assert_float_eq(squares, 48, 1e-3, "%g", squares);
    strata_dataset_destroy(train);
    strata_preprocessing_destroy(p);
}

/* ---- pictures ---- */

static void put_picture(const char *name, int columns, int rows, int value) {
    char bytes[256];
    const int head = snprintf(bytes, sizeof bytes, "P5 %d %d 255\n", columns, rows);
    memset(bytes + head, value, (size_t)(columns * rows));
    test_file(name, bytes, (size_t)(head + columns * rows));
}

static void make_folder(const char *name) {
    cr_assert_eq(mkdir(test_path(name), 0755), 0);
}

Test(preprocessing, pictures_come_to_one_size) {
    strata_preprocessing *p = NULL;
    strata_dataset *dataset = NULL;
    float x[3 * 4];
    int32_t y[3];
    make_folder("cat");
    make_folder("dog");
    put_picture("cat/a.pgm", 2, 2, 255);
    put_picture("cat/b.pgm", 4, 6, 51);
    put_picture("dog/a.pgm", 2, 2, 0);
    OK(strata_preprocessing_from_pictures(test_folder(), NULL, &p, &err));
    cr_assert(strata_shape_equal(strata_preprocessing_element(p), STRATA_SHAPE(2, 2, 1)));
    OK(strata_preprocessing_apply_pictures(p, test_folder(), NULL, &dataset, &err));
    fetch(dataset, x, y);
    const double expected[] = {1, 1, 1, 1, 0.2, 0.2, 0.2, 0.2, 0, 0, 0, 0};
    is_near(x, expected, 12);
    cr_assert(y[0] == 0 && y[1] == 0 && y[2] == 1 && !strcmp(strata_preprocessing_class_name(p, 1), "dog"));
    strata_dataset_destroy(dataset);
    OK(strata_preprocessing_apply_pictures(p, test_path("cat/b.pgm"), &(strata_apply_options){.unlabelled = true}, &dataset,
                                           &err));
    cr_assert_eq(strata_dataset_size(dataset), 1);
    strata_dataset_destroy(dataset);
    strata_preprocessing_destroy(p);
}

/* The folders are in the order of their names, although the paths "cat 2/a.pgm" and "cat-big/a.pgm" are before "cat/a.pgm". */
Test(preprocessing, classes_are_in_the_order_of_the_folders) {
    static const char *const names[] = {"cat", "cat 2", "cat-big", "dog"};
    strata_preprocessing *p = NULL;
    strata_dataset *datasets[2] = {NULL};
    float x[4];
    int32_t y[4];
    for (int i = 3; i >= 0; i--) {
        char path[64];
        make_folder(names[i]);
        snprintf(path, sizeof path, "%s/a.pgm", names[i]);
        put_picture(path, 1, 1, 51 * i);
    }
    OK(strata_preprocessing_from_pictures(test_folder(), NULL, &p, &err));
    OK(strata_preprocessing_apply_pictures(p, test_folder(), NULL, &datasets[0], &err));
    OK(strata_dataset_image_folder(test_folder(), 1, &datasets[1], &err));
    for (int d = 0; d < 2; d++) {
        fetch(datasets[d], x, y);
        is_near(x, (const double[]){0, 0.2, 0.4, 0.6}, 4);
        for (int i = 0; i < 4; i++)
            cr_assert(y[i] == i && !strcmp(strata_dataset_class_name(datasets[d], i), names[i]), "%d is \"%s\"", y[i],
                      strata_dataset_class_name(datasets[d], i));
        strata_dataset_destroy(datasets[d]);
    }
    strata_preprocessing_destroy(p);
}

static void refuses_folder(const char *part) {
    strata_preprocessing *p = NULL;
    cr_assert(strata_preprocessing_from_pictures(test_folder(), NULL, &p, &err) && strstr(err.message, part), "%s",
              err.message);
}

Test(preprocessing, bad_folders_say_what_is_wrong) {
    refuses_folder("has no pictures in folders of classes");
    make_folder("cat");
    put_picture("cat/a.pgm", 2, 2, 1);
    refuses_folder("all pictures are of one class, \"cat\"");
    make_folder("dog");
    refuses_folder("the folder of a class has no pictures");
    test_file("dog/b.png", "no picture", 10);
    refuses_folder("repair or remove it");
}

Test(preprocessing, jpeg_and_webp_are_read) {
    static const char *const files[] = {"photo.jpg", "photo.webp"};
    const bool built[] = {STRATA_WITH_JPEG, STRATA_WITH_WEBP};
    for (int f = 0; f < 2; f++) {
        char path[1024];
        unsigned char bytes[4096];
        strata_array pixels = {0};
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/picture/%s", STRATA_TEST_SOURCE_DIR, files[f]);
        FILE *file = fopen(path, "rb");
        cr_assert(file);
        const size_t n = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        const strata_status status = strata_picture_parse(files[f], bytes, n, 3, &pixels, &err);
        cr_assert_eq(status, built[f] ? STRATA_OK : STRATA_UNSUPPORTED, "%s", err.message);
        if (status) continue;
        cr_assert(strata_shape_equal(pixels.shape, STRATA_SHAPE(8, 16, 3)));
        static const int colour[] = {200, 30, 60};
        for (int i = 0; i < 8 * 16 * 3; i++) cr_assert(abs(((uint8_t *)pixels.data)[i] - colour[i % 3]) <= 4);
        strata_array_finish(&pixels);
        cr_assert_eq(strata_picture_parse(files[f], bytes, n / 2, 3, &pixels, &err), STRATA_DATA, "%s", err.message);
    }
}
