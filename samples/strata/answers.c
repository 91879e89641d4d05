/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes answers as a table, as CSV, or as lines of JSON. */
#include "answers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/dataset.h"
#include "strata/json.h"

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

/* Adds a cell of a table. In CSV a cell gets quotes if it needs them. */
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

static const char *name_of_element(const answers *a, int64_t index) {
    return a->data ? strata_dataset_element_name(a->data, index) : NULL;
}

/* Begins an answer with the index of its example. */
static void add_index(answers *a, int64_t index) {
    const char *name = name_of_element(a, index);
    strata_text_add(&a->text, a->json ? "{\"index\":%lld" : "%lld", (long long)index);
    if (!name) return;
    if (a->json)
        strata_text_add(&a->text, ",\"file\":"), add_json_string(a, name);
    else
        add_cell(a, name);
}

/* Writes all digits of an f32 to a file, six digits on the screen; without an exponent unless the number is very large or
 * small. */
static void print_number(const answers *a, double value, char out[32]) {
    const bool plain = fabs(value) >= 1e6 && fabs(value) < 1e12;
    snprintf(out, 32, a->csv ? "%.9g" : plain ? "%.0f" : "%.6g", value);
}

static const char *class_word(const answers *a, int64_t class, char number[24]) {
    const char *name = class_name(a->sample, a->preprocessing, class);
    snprintf(number, 24, "%lld", (long long)class);
    return name ? name : number;
}

static int64_t n_classes_of(const answers *a) {
    return a->width > 1 ? a->width : 2;
}

/* ---- several outputs ---- */

strata_status predict_outputs(strata_model *model, const strata_dataset *data, int64_t batch, strata_array *out,
                              strata_error *err) {
    strata_array outputs[MOST_ARRAYS] = {{0}};
    const int n_outputs = strata_model_n_outputs(model);
    int64_t width = 0, at = 0;
    if (n_outputs == 1) return strata_model_predict(model, data, batch, out, err);
    if (n_outputs > MOST_ARRAYS)
        return strata_fail(err, STRATA_UNSUPPORTED, "the model has %d outputs; at most %d are possible", n_outputs,
                           MOST_ARRAYS);
    STRATA_TRY(strata_model_predict_all(model, data, batch, outputs, err));
    const int64_t n = outputs[0].shape.dims[0];
    for (int k = 0; k < n_outputs; k++) width += strata_shape_elements(outputs[k].shape) / n;
    strata_status status = strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, width), out, err);
    for (int k = 0; k < n_outputs; k++) {
        const int64_t own = strata_shape_elements(outputs[k].shape) / n;
        for (int64_t i = 0; i < n && !status; i++)
            memcpy((float *)out->data + i * width + at, (const float *)outputs[k].data + i * own, (size_t)own * sizeof(float));
        at += own;
        strata_array_finish(&outputs[k]);
    }
    return status;
}

static bool has_outputs(const answers *a) {
    return strata_model_n_outputs(a->model) > 1;
}

/* The columns "name", or "name.0", "name.1", ... of an output of several numbers. */
static void add_output_names(answers *a) {
    char name[128];
    for (int k = 0; k < strata_model_n_outputs(a->model); k++) {
        const strata_model_port port = strata_model_output_port(a->model, k);
        const int64_t width = strata_shape_elements(port.shape);
        for (int64_t i = 0; i < width; i++) {
            snprintf(name, sizeof name, width > 1 ? "%.80s.%lld" : "%.80s", port.name, (long long)i);
            add_cell(a, name);
        }
    }
}

static void add_outputs(answers *a, const float *row, int64_t index) {
    char number[32];
    add_index(a, index);
    for (int k = 0; k < strata_model_n_outputs(a->model); k++) {
        const strata_model_port port = strata_model_output_port(a->model, k);
        const int64_t width = strata_shape_elements(port.shape);
        if (a->json) strata_text_add(&a->text, ","), add_json_string(a, port.name);
        for (int64_t i = 0; i < width; i++) {
            if (a->json) {
                strata_text_add(&a->text, i ? "," : width > 1 ? ":[" : ":");
                add_json_number(a, "%.9g", (double)row[i]);
            } else {
                print_number(a, (double)row[i], number);
                add_cell(a, number);
            }
        }
        if (a->json && width > 1) strata_text_add(&a->text, "]");
        row += width;
    }
    strata_text_add(&a->text, a->json ? "}\n" : "\n");
}

/* ---- one output ---- */

void add_header(answers *a) {
    char number[24];
    if (a->json) return;
    strata_text_add(&a->text, "index");
    if (name_of_element(a, 0)) add_cell(a, "file");
    if (has_outputs(a)) {
        add_output_names(a);
    } else if (a->classes) {
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
        add_index(a, index);
        strata_text_add(&a->text, a->width == 1 ? ",\"value\":" : ",\"values\":[");
        for (int64_t i = 0; i < a->width; i++)
            strata_text_add(&a->text, "%s", i ? "," : ""), add_json_number(a, "%.9g", (double)row[i]);
        strata_text_add(&a->text, a->width == 1 ? "}\n" : "]}\n");
        return;
    }
    add_index(a, index);
    for (int64_t i = 0; i < a->width; i++) {
        print_number(a, (double)row[i], number);
        add_cell(a, number);
    }
    strata_text_add(&a->text, "\n");
}

static double probability_of(const answers *a, const float *row, int64_t class) {
    return (double)(a->width > 1 ? row[class] : class ? row[0] : 1 - row[0]);
}

/* "class" is the name of the class, as in a table, or its number if classes have no names; "class_index" is its number. */
static void add_class_json(answers *a, const float *row, int64_t index, int64_t best, bool known) {
    const char *name = known ? class_name(a->sample, a->preprocessing, best) : NULL;
    add_index(a, index);
    strata_text_add(&a->text, ",\"class\":");
    if (name)
        add_json_string(a, name);
    else
        add_json_number(a, "%.0f", known ? (double)best : NAN);
    strata_text_add(&a->text, ",\"class_index\":");
    add_json_number(a, "%.0f", known ? (double)best : NAN);
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

/* Adds one example's probabilities; a single probability is that of class 1. If several classes are equally probable, the
 * answer is the first of them, as in the accuracy. If a probability is NaN, for example for an input that is too large, there
 * is no answer. */
static void add_class(answers *a, const float *row, int64_t index) {
    char number[24];
    int64_t best = 0;
    bool known = true;
    for (int64_t c = 0; c < n_classes_of(a); c++) {
        known &= !isnan(probability_of(a, row, c));
        if (probability_of(a, row, c) > probability_of(a, row, best)) best = c;
    }
    if (a->json) {
        add_class_json(a, row, index, best, known);
        return;
    }
    add_index(a, index);
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
    (has_outputs(a) ? add_outputs : a->classes ? add_class : add_numbers)(a, row, index);
}
