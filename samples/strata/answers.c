/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers as a table, as CSV and as lines of JSON. */
#include "answers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

static void add_json_number(answers *a, const char *format, double value) {
    char number[32];
    snprintf(number, sizeof number, format, value);
    strata_text_add(&a->text, "%s", isfinite(value) ? number : "null");
}

static void add_json_string(answers *a, const char *text) {
    strata_json_writer writer = {0};
    char *string = NULL;
    strata_json_write_string(&writer, text);
    if (!strata_json_take(&writer, &string, NULL, NULL)) strata_text_add(&a->text, "%s", string);
    free(string);
}

/* A cell of a table: in CSV with quotes where it needs them. */
static void add_cell(answers *a, const char *cell) {
    strata_text_add(&a->text, a->csv ? "," : "\t");
    if (!a->csv || !strpbrk(cell, ",\"\n\r")) {
        strata_text_add(&a->text, "%s", cell);
        return;
    }
    strata_text_add(&a->text, "\"");
    for (; *cell; cell++) strata_text_add(&a->text, *cell == '"' ? "\"\"" : "%c", *cell);
    strata_text_add(&a->text, "\"");
}

static const char *class_word(const answers *a, int64_t class, char number[24]) {
    const char *name = class_name(a->sample, a->preprocessing, class);
    snprintf(number, 24, "%lld", (long long)class);
    return name ? name : number;
}

static int64_t n_classes_of(const answers *a) {
    return a->width > 1 ? a->width : 2;
}

void add_header(answers *a) {
    char number[24];
    if (a->json) return;
    strata_text_add(&a->text, "index");
    if (a->classes) {
        add_cell(a, "class");
        add_cell(a, "probability");
        for (int64_t c = 0; c < n_classes_of(a) && a->probabilities; c++) add_cell(a, class_word(a, c, number));
    } else if (a->preprocessing && (a->csv || a->width > 1)) {
        for (int i = 0; i < strata_preprocessing_n_labels(a->preprocessing); i++)
            add_cell(a, strata_preprocessing_label(a->preprocessing, i));
    } else {
        add_cell(a, a->width == 1 ? "value" : "values");
    }
    strata_text_add(&a->text, "\n");
}

static void add_numbers(answers *a, const float *row, int64_t index) {
    char number[32];
    if (a->json) {
        strata_text_add(&a->text, "{\"index\":%lld,%s", (long long)index, a->width == 1 ? "\"value\":" : "\"values\":[");
        for (int64_t i = 0; i < a->width; i++)
            strata_text_add(&a->text, "%s", i ? "," : ""), add_json_number(a, "%.9g", (double)row[i]);
        strata_text_add(&a->text, a->width == 1 ? "}\n" : "]}\n");
        return;
    }
    strata_text_add(&a->text, "%lld", (long long)index);
    for (int64_t i = 0; i < a->width; i++) {
        snprintf(number, sizeof number, a->csv ? "%.9g" : "%.6g", (double)row[i]);
        add_cell(a, number);
    }
    strata_text_add(&a->text, "\n");
}

static double probability_of(const answers *a, const float *row, int64_t class) {
    return (double)(a->width > 1 ? row[class] : class ? row[0] : 1 - row[0]);
}

static void add_class_json(answers *a, const float *row, int64_t index, int64_t best, bool known) {
    const char *name = known ? class_name(a->sample, a->preprocessing, best) : NULL;
    strata_text_add(&a->text, "{\"index\":%lld,\"class\":", (long long)index);
    add_json_number(a, "%.0f", known ? (double)best : NAN);
    if (name) strata_text_add(&a->text, ",\"name\":"), add_json_string(a, name);
    strata_text_add(&a->text, ",\"probability\":");
    add_json_number(a, "%.6f", known ? probability_of(a, row, best) : NAN);
    if (a->probabilities) {
        strata_text_add(&a->text, ",\"probabilities\":[");
        for (int64_t c = 0; c < n_classes_of(a); c++)
            strata_text_add(&a->text, "%s", c ? "," : ""), add_json_number(a, "%.6f", probability_of(a, row, c));
        strata_text_add(&a->text, "]");
    }
    strata_text_add(&a->text, "}\n");
}

/* One example's probabilities; a single one is that of class 1. Where one is no number, as of an input too large, there is no
 * answer. */
static void add_class(answers *a, const float *row, int64_t index) {
    char number[24];
    int64_t best = 0;
    bool known = true;
    for (int64_t c = 0; c < n_classes_of(a); c++) {
        known &= !isnan(probability_of(a, row, c));
        if (probability_of(a, row, c) > probability_of(a, row, best) || (a->width == 1 && c && row[0] == 0.5F)) best = c;
    }
    if (a->json) {
        add_class_json(a, row, index, best, known);
        return;
    }
    strata_text_add(&a->text, "%lld", (long long)index);
    add_cell(a, known ? class_word(a, best, number) : "-");
    snprintf(number, sizeof number, a->csv ? "%.6f" : "%.4f", known ? probability_of(a, row, best) : NAN);
    add_cell(a, number);
    for (int64_t c = 0; c < n_classes_of(a) && a->probabilities; c++) {
        snprintf(number, sizeof number, a->csv ? "%.6f" : "%.4f", probability_of(a, row, c));
        add_cell(a, number);
    }
    strata_text_add(&a->text, "\n");
}

void add_answer(answers *a, const float *row, int64_t index) {
    (a->classes ? add_class : add_numbers)(a, row, index);
}
