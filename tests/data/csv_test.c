/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: quotes, line breaks in cells, line ends, errors with their position, and datasets of numbers and classes. */
#include "strata/csv.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "strata/dataset.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(csv, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

static strata_csv *parse(const char *text) {
    strata_csv *csv = NULL;
    cr_assert_eq(strata_csv_parse("t.csv", text, strlen(text), 0, &csv, &err), STRATA_OK, "%s", err.message);
    return csv;
}

static void fails(const char *text, size_t n, const char *message) {
    strata_csv *csv = NULL;
    cr_assert_eq(strata_csv_parse("t.csv", text, n, 0, &csv, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, message);
    cr_assert_null(csv);
}
#define FAILS(text, message) fails(text, sizeof text - 1, message)

Test(csv, quoted_cells_may_hold_anything) {
    strata_csv *csv = parse(
        "\xEF\xBB\xBF"
        "a,\"b \"\"x\"\"\",c\r\n1,\"two\nlines, and a comma\",\n\n\"\",\"\"\"\", last");
    cr_assert(strata_csv_n_rows(csv) == 2 && strata_csv_n_columns(csv) == 3);
    cr_assert_str_eq(strata_csv_column(csv, 0), "a");
    cr_assert_str_eq(strata_csv_column(csv, 1), "b \"x\"");
    cr_assert_str_eq(strata_csv_cell(csv, 0, 0), "1");
    cr_assert_str_eq(strata_csv_cell(csv, 0, 1), "two\nlines, and a comma");
    cr_assert_str_eq(strata_csv_cell(csv, 0, 2), "");
    cr_assert_str_eq(strata_csv_cell(csv, 1, 0), "");
    cr_assert_str_eq(strata_csv_cell(csv, 1, 1), "\"");
    cr_assert_str_eq(strata_csv_cell(csv, 1, 2), " last");
    cr_assert(strata_csv_line(csv, 0) == 2 && strata_csv_line(csv, 1) == 5);
    strata_csv_destroy(csv);
}

Test(csv, the_last_line_may_end_with_half_of_a_line_end) {
    static const char *const texts[] = {"a,b\r\n1,x\r\n2,y\r\n", "a,b\r\n1,x\r\n2,y\r", "a,b\r\n1,x\r\n2,\"y\"\r",
                                        "a,b\n1,x\n2,y"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strata_csv *csv = parse(texts[i]);
        cr_assert_eq(strata_csv_n_rows(csv), 2);
        cr_assert_str_eq(strata_csv_cell(csv, 0, 1), "x");
        cr_assert_str_eq(strata_csv_cell(csv, 1, 1), "y");
        strata_csv_destroy(csv);
    }
}

Test(csv, says_where_it_is_wrong) {
    FAILS("a,b\n1\n", "t.csv:2:2: the record ends after 1 cells; the header names 2 columns");
    FAILS("a,b\n1,2\n3,4,5\n", "t.csv:3:5: cell 3 of a record; the header names 2 columns");
    FAILS("a,b\n1,  x\"y\n", "t.csv:2:6: a quote inside a cell that does not begin with one; double it and quote the cell");
    FAILS("a,b\n1,x\"y\n", "t.csv:2:4: a quote inside a cell that does not begin with one; double it and quote the cell");
    FAILS("a,b\n1,\"x\"y\n", "t.csv:2:6: text after a closing quote; a separator or a line end must follow");
    FAILS("a,b\n\"x\ny\",\"open\n", "t.csv:3:4: the quote that opens here is never closed");
    FAILS("a,b\n1,ab\xFF\n", "t.csv:2:5: byte 0xFF is not valid UTF-8 (is it Latin-1? iconv -f L1 -t UTF-8)");
    FAILS("a,b\n1,\"\n\xC0\x80\"\n", "t.csv:3:1: byte 0xC0 is not valid UTF-8 (is it Latin-1? iconv -f L1 -t UTF-8)");
    FAILS("a,b\n1,\0\n", "t.csv:2:3: a NUL; a CSV file is text (is it UTF-16? save it as UTF-8)");
    FAILS("a,b,a\n", "t.csv: columns 1 and 3 are both named \"a\"; rename one of them");
    FAILS("\n\n", "t.csv: is empty; its first line must name the columns");
}

Test(csv, a_wrong_column_shows_the_nearest) {
    strata_csv *csv = parse("id,tweet,label\n");
    int column = -1;
    cr_assert_eq(strata_csv_find(csv, "label", &column, &err), STRATA_OK);
    cr_assert_eq(column, 2);
    cr_assert_eq(strata_csv_find(csv, "twet", &column, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t.csv: has no column \"twet\"; did you mean \"tweet\"?");
    cr_assert_eq(strata_csv_find(csv, "zzzzzzz", &column, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t.csv: has no column \"zzzzzzz\"; it has: id, tweet, label");
    strata_csv_destroy(csv);
}

Test(csv, rows_without_a_header_take_the_names_that_are_given) {
    static const char text[] = "1,\"2\"\n\n3,4\n";
    const char *const names[] = {"a", "b"};
    strata_csv *csv = NULL;
    strata_error err = {0};
    int column = -1;
    cr_assert_eq(strata_csv_parse_rows("t", text, sizeof text - 1, 0, names, 2, &csv, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_csv_n_rows(csv), 2);
    cr_assert_eq(strata_csv_find(csv, "b", &column, &err), STRATA_OK);
    cr_assert_str_eq(strata_csv_cell(csv, 0, column), "2");
    cr_assert_str_eq(strata_csv_cell(csv, 1, 0), "3");
    cr_assert_eq(strata_csv_line(csv, 0), 1);
    cr_assert_eq(strata_csv_line(csv, 1), 3);
    strata_csv_destroy(csv);
    static const struct {
        const char *text, *message;
    } wrong[] = {{"1,2\n3\n", "t:2:2: the row ends after 1 cells; it must have 2"},
                 {"1,2,3\n", "t:1:5: cell 3 of a row; it must have 2"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(strata_csv_parse_rows("t", wrong[i].text, strlen(wrong[i].text), 0, names, 2, &csv, &err), STRATA_DATA);
        cr_assert_not_null(strstr(err.message, wrong[i].message), "%s", err.message);
    }
    cr_assert_eq(strata_csv_parse_rows("t", "1\n", 2, 0, names, 0, &csv, &err), STRATA_INVALID);
}

/* numpy.loadtxt and pandas.read_csv(header=None, quotechar="'", sep=";", decimal=",") read the same numbers. */
Test(csv, a_dialect_names_separator_quote_header_and_missing_values) {
    static const char text[] = "'1;5';2,5;x\n\"3\";-;-1\n";
    static const char *const na[] = {"-1", "x"};
    strata_csv *csv = NULL;
    strata_csv_dialect dialect = {
        .separator = ';', .quote = '\'', .header = STRATA_CSV_HEADER_NO, .na = na, .n_na = 2, .decimal = ','};
    cr_assert_eq(strata_csv_parse("t", text, sizeof text - 1, &dialect, &csv, &err), STRATA_OK, "%s", err.message);
    cr_assert(strata_csv_n_rows(csv) == 2 && strata_csv_n_columns(csv) == 3);
    cr_assert_str_eq(strata_csv_column(csv, 2), "column 3");
    cr_assert_str_eq(strata_csv_cell(csv, 0, 0), "1;5");
    cr_assert_str_eq(strata_csv_cell(csv, 1, 0), "\"3\"");
    cr_assert(strata_csv_is_missing(csv, 0, 2) && strata_csv_is_missing(csv, 1, 2) && !strata_csv_is_missing(csv, 1, 1));
    cr_assert_eq(strata_csv_get_dialect(csv)->decimal, ',');
    strata_csv_destroy(csv);
    const strata_csv_dialect wrong[] = {
        {.decimal = ';'}, {.thousands = 'x'}, {.decimal = '.', .thousands = '.'}, {.separator = '"'}, {.quote = '\n'}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_eq(strata_csv_parse("t", text, sizeof text - 1, &wrong[i], &csv, &err), STRATA_INVALID, "%zu", i);
}

Test(csv, another_separator) {
    strata_csv *csv = NULL;
    cr_assert_eq(strata_csv_parse("t", "a;b\n1,5;2\n", 10, &(strata_csv_dialect){.separator = ';'}, &csv, &err), STRATA_OK);
    cr_assert_str_eq(strata_csv_cell(csv, 0, 0), "1,5");
    strata_csv_destroy(csv);
}

/* ---- datasets ---- */

static strata_dataset *load(const char *text, strata_csv_options opts) {
    strata_dataset *data = NULL;
    const char *path = test_file("a.csv", text, strlen(text));
    cr_assert_eq(strata_dataset_csv(path, &opts, &data, &err), STRATA_OK, "%s", err.message);
    return data;
}

static void fetch(const strata_dataset *data, void *x, void *y) {
    strata_order *order = NULL;
    cr_assert_eq(strata_order_create(strata_dataset_size(data), false, 0, 0, &order, &err), STRATA_OK);
    strata_dataset_fetch(data, order, 0, strata_dataset_size(data), x, y);
    strata_order_destroy(order);
}

static void refuses(const char *text, strata_csv_options opts, strata_status status, const char *part) {
    strata_dataset *data = NULL;
    const char *path = test_file("a.csv", text, strlen(text));
    cr_assert_eq(strata_dataset_csv(path, &opts, &data, &err), status, "%s", err.message);
    cr_assert(strstr(err.message, part), "%s", err.message);
    cr_assert_null(data);
}

Test(csv, numbers_and_word_classes) {
    strata_dataset *data = load("x,kind,y\n1,b,-2.5\n .25e1 ,a,+3\n1e-3,b,004\n", (strata_csv_options){.label = "kind"});
    float x[6];
    int32_t y[3];
    fetch(data, x, y);
    const float wanted[] = {1, -2.5f, 2.5f, 3, 0.001f, 4};
    cr_assert(!memcmp(x, wanted, sizeof x));
    cr_assert(y[0] == 1 && y[1] == 0 && y[2] == 1);
    cr_assert_str_eq(strata_dataset_class_name(data, 1), "b");
    cr_assert_null(strata_dataset_class_name(data, 2));
    cr_assert(strstr(strata_dataset_source(data), "a.csv"));
    strata_dataset_destroy(data);
}

Test(csv, columns_in_the_order_asked_for_and_number_labels) {
    const char *const columns[] = {"c", "a"};
    strata_dataset *data =
        load("a,b,c\n1,2,3\n4,5.5,6\n", (strata_csv_options){.features = columns, .n_features = 2, .label = "b"});
    float x[4], y[2];
    cr_assert_eq(strata_dataset_label_dtype(data), STRATA_DTYPE_F32);
    fetch(data, x, y);
    cr_assert(x[0] == 3 && x[1] == 1 && x[2] == 6 && x[3] == 4 && y[0] == 2 && y[1] == 5.5f);
    strata_dataset_destroy(data);
    data = load("a,b\n1,0\n4,7\n", (strata_csv_options){.label = "b"});
    cr_assert(strata_dataset_label_dtype(data) == STRATA_DTYPE_I32 && strata_dataset_n_classes(data) == 8);
    strata_dataset_destroy(data);
}

Test(csv, several_labels_are_numbers_learned_together) {
    static const char text[] = "y,a,z,b\n1,2,3,4\n5,6,7.5,8\n";
    const char *const labels[] = {"z", "y"};
    strata_dataset *data = load(text, (strata_csv_options){.labels = labels, .n_labels = 2});
    float x[4], y[4];
    cr_assert_eq(strata_dataset_label_dtype(data), STRATA_DTYPE_F32);
    cr_assert(strata_shape_equal(strata_dataset_label_shape(data), STRATA_SHAPE(2)));
    fetch(data, x, y);
    cr_assert(x[0] == 2 && x[1] == 4 && x[2] == 6 && x[3] == 8);
    cr_assert(y[0] == 3 && y[1] == 1 && y[2] == 7.5f && y[3] == 5);
    strata_dataset_destroy(data);
    const char *const twice[] = {"z", "z"}, *const all[] = {"y", "a", "z", "b"}, *const wrong[] = {"z", "x"};
    const struct {
        strata_csv_options opts;
        strata_status status;
        const char *message;
    } cases[] = {{{.labels = twice, .n_labels = 2}, STRATA_INVALID, "\"z\" is named twice as a label"},
                 {{.labels = labels, .n_labels = 2, .label = "a"}, STRATA_INVALID, "a label too; give one of them"},
                 {{.labels = labels, .n_labels = 2, .weight = "y"}, STRATA_INVALID, "\"y\" is both the weight and the label"},
                 {{.labels = labels, .n_labels = 2, .features = twice, .n_features = 1},
                  STRATA_INVALID,
                  "\"z\" is both a feature and the label"},
                 {{.labels = all, .n_labels = 4}, STRATA_DATA, "has no column but the labels"},
                 {{.labels = wrong, .n_labels = 2}, STRATA_DATA, "has no column \"x\""}};
    strata_csv *csv = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_csv_parse("t", text, sizeof text - 1, 0, &csv, &err), STRATA_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(strata_dataset_from_csv(csv, &cases[i].opts, &data, &err), cases[i].status, "%s", err.message);
        cr_assert_not_null(strstr(err.message, cases[i].message), "%s", err.message);
    }
    strata_csv_destroy(csv);
}

Test(csv, given_classes_hold) {
    const char *const classes[] = {"real", "fake"};
    strata_csv_options opts = {.label = "y", .classes = classes, .n_classes = 2};
    strata_dataset *data = load("x,y\n1,fake\n2,real\n", opts);
    float x[2];
    int32_t y[2];
    fetch(data, x, y);
    cr_assert(y[0] == 1 && y[1] == 0);
    strata_dataset_destroy(data);
    refuses("x,y\n1,fake\n2,reel\n", opts, STRATA_DATA,
            "a.csv:3: the label \"reel\" in column \"y\" is not one of the 2 classes; the nearest is \"real\"");
}

Test(csv, a_weight_column_is_no_feature) {
    strata_csv_options opts = {.label = "y", .weight = "w"};
    strata_dataset *data = load("x,w,y\n1,0.5,2\n3,0,4\n", opts);
    float x[2], weights[2];
    int32_t y[2];
    strata_order *order = NULL;
    fetch(data, x, y);
    cr_assert(x[0] == 1 && x[1] == 3 && y[0] == 2 && y[1] == 4 && strata_dataset_has_weights(data));
    cr_assert_eq(strata_order_create(2, false, 0, 0, &order, &err), STRATA_OK);
    strata_dataset_fetch_weights(data, order, 0, 2, weights);
    cr_assert(weights[0] == 0.5f && weights[1] == 0);
    strata_order_destroy(order);
    strata_dataset_destroy(data);
    refuses("x,w,y\n1,-1,2\n", opts, STRATA_DATA, "the weight of example 0 is -1");
    refuses("x,w,y\n1,heavy,2\n", opts, STRATA_DATA, "a.csv:2: column \"w\" has the cell \"heavy\"");
    refuses("x,ww,y\n1,1,2\n", opts, STRATA_DATA, "no column \"w\"");
    refuses("w,y\n1,2\n", opts, STRATA_DATA, "no column but the label \"y\" and the weight");
    opts.weight = "y";
    refuses("x,y\n1,2\n", opts, STRATA_INVALID, "both the weight and the label");
}

/* "2,7;1,8" and "1.234,5" show by themselves how all numbers of the table are written. */
Test(csv, datasets_of_numbers_are_read_as_the_table_is_written) {
    static const struct {
        const char *text;
        float wanted[4];
    } cases[] = {{"a;b\n2,7;1.234\n1,8;5\n", {2.7F, 1234, 1.8F, 5}},
                 {"a,b\n2.7,\"1,234\"\n1.8,5\n", {2.7F, 1234, 1.8F, 5}},
                 {"2,7;1,8\n1,5;2\n", {2.7F, 1.8F, 1.5F, 2}},
                 {"0,1\n0.5,1.5\n2.5,3.5\n", {0.5F, 1.5F, 2.5F, 3.5F}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_dataset *data = load(cases[i].text, (strata_csv_options){0});
        float x[4];
        cr_assert_eq(strata_dataset_size(data), 2);
        fetch(data, x, NULL);
        cr_assert(!memcmp(x, cases[i].wanted, sizeof x), "%zu: %g %g %g %g", i, (double)x[0], (double)x[1], (double)x[2],
                  (double)x[3]);
        strata_dataset_destroy(data);
    }
    refuses("a;b\n2,7;1.5\n1,8;2.5\n", (strata_csv_options){0}, STRATA_DATA, "numbers have a decimal point in line 2");
}

Test(csv, refuses_what_is_no_number) {
    const char *const cells[] = {"", "x", "1x", "0x10", "nan", "inf", "1e", "1e99", "--1", ".", "1 2"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char text[64];
        snprintf(text, sizeof text, "a,b\n1,2\n\"%s\",2\n", cells[i]);
        refuses(text, (strata_csv_options){0}, STRATA_DATA, "a.csv:3: column \"a\" has the cell");
    }
    refuses("a,b\n", (strata_csv_options){0}, STRATA_DATA, "a header and no rows");
    refuses("a\n1\n", (strata_csv_options){.label = "a"}, STRATA_DATA, "no column but the label");
    const char *const columns[] = {"a"};
    refuses("a,b\n1,2\n", (strata_csv_options){.features = columns, .n_features = 1, .label = "a"}, STRATA_INVALID, "both");
    refuses("a,b\n1,2\n", (strata_csv_options){.features = columns, .n_features = 1, .label = "c"}, STRATA_DATA,
            "no column \"c\"");
}

Test(csv, reads_gzip_and_says_where_it_is_damaged) {
    const char text[] = "a,b\n1,2\n3,4\n";
    const char *path = test_path("a.csv.gz");
    gzFile file = gzopen(path, "wb");
    cr_assert(file && gzwrite(file, text, sizeof text - 1) == sizeof text - 1 && gzclose(file) == Z_OK);
    strata_csv *csv = NULL;
    cr_assert_eq(strata_csv_read(path, 0, &csv, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_csv_n_rows(csv), 2);
    strata_csv_destroy(csv);
    csv = NULL;
    cr_assert_eq(strata_csv_parse("cut.gz", "\x1F\x8B\x08\0\0\0\0\0\0\3", 10, 0, &csv, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "cut.gz: the gzip data is cut off at byte 10"), "%s", err.message);
}

Test(csv, reads_the_tweets_as_they_are) {
    if (!test_data("fake_news")) cr_skip_test("no real data: set STRATA_TEST_DATA to a folder with fake_news/ in it");
    const char *const names[] = {"fake_news/covid_train.csv.gz", "fake_news/covid_val.csv.gz", "fake_news/covid_test.csv.gz"};
    const int64_t rows[] = {6420, 2140, 2140};
    for (int i = 0; i < 3; i++) {
        strata_csv *csv = NULL;
        cr_assert_eq(strata_csv_read(test_data(names[i]), 0, &csv, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_csv_n_rows(csv), rows[i]);
        strata_csv_destroy(csv);
    }
}
