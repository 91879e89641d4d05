/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes what a model knows about the columns of a table as C: the type of a row, the computation of its features, the
 * names of classes, and the conversion of standardised labels back to the numbers of the table. The C code does not
 * divide texts into words: a model of texts gets tokens. */
#include <stdio.h>
#include <string.h>

#include "core/interchange/c_export.h"
#include "strata/preprocessing.h"

enum { MOST_FIELD = 48 };

/* Writes a string literal. Other characters than plain ASCII become octal escapes of three digits, so that a digit that
 * follows cannot become a part of one. */
static void add_string(strata_text *out, const char *text) {
    strata_text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at < ' ' || *at > 126 || *at == '?')
            strata_text_add(out, "\\%03o", *at);
        else
            strata_text_add(out, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    }
    strata_text_add(out, "\"");
}

typedef struct field {
    char text[MOST_FIELD + 16];
} field;

/* The name of a column's field. It begins with "c_", so that it cannot be a keyword of C. If several columns have the
 * same name, the column's index is appended. */
static field field_of(const strata_preprocessing *p, int column) {
    field out;
    char own[MOST_FIELD], other[MOST_FIELD];
    const char *name = strata_preprocessing_column(p, column).name;
    strata_c_identifier(name ? name : "", own, sizeof own);
    snprintf(out.text, sizeof out.text, "c_%s", own);
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        name = strata_preprocessing_column(p, i).name;
        strata_c_identifier(name ? name : "", other, sizeof other);
        if (i != column && !strcmp(own, other)) snprintf(out.text, sizeof out.text, "c_%s_%d", own, column);
    }
    return out;
}

static void add_row_type(const strata_preprocessing *p, const char *name, strata_text *out) {
    strata_text_add(
        out, "\n/* A row of the table. A number that is missing is NAN, a word NULL or \"\". */\ntypedef struct %s_row {\n",
        name);
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_DATE)
            strata_text_add(out, "    /* Days since 1970-01-01, with a fraction for the time of day. */\n");
        if (column.kind != STRATA_COLUMN_TEXT)
            strata_text_add(out, "    %s%s;\n",
                            column.kind == STRATA_COLUMN_WORDS && !column.numeric ? "const char *" : "double ",
                            field_of(p, i).text);
    }
    strata_text_add(out, "} %s_row;\n", name);
}

static void add_cycle(const char *value, double days, strata_text *out) {
    strata_text_add(out, "    turn = 2 * 3.14159265358979323846 * (%s / ", value);
    strata_c_add_double(out, days);
    strata_text_add(out, " - floor(%s / ", value);
    strata_c_add_double(out, days);
    strata_text_add(out, "));\n    *x++ = isnan(%s) ? 0 : (float)sin(turn);\n    *x++ = isnan(%s) ? 0 : (float)cos(turn);\n",
                    value, value);
}

static void add_number(const strata_column_info *column, const char *name, strata_text *out) {
    char value[MOST_FIELD + 32];
    snprintf(value, sizeof value, "row->%s", name);
    strata_text_add(out, "    *x++ = isnan(%s) ? 0 : (float)((%s - ", value, value);
    strata_c_add_double(out, column->mean);
    strata_text_add(out, ") / ");
    strata_c_add_double(out, column->deviation);
    strata_text_add(out, ");\n");
    if (column->has_missing) strata_text_add(out, "    *x++ = isnan(%s) ? 1 : 0;\n", value);
    if (column->kind != STRATA_COLUMN_DATE) return;
    add_cycle(value, 365.2425, out);
    add_cycle(value, 7, out);
    if (column->has_time) add_cycle(value, 1, out);
}

/* Writes the condition that the row has this word. */
static void add_condition(const strata_column_info *column, const char *name, const char *word, strata_text *out) {
    double number = 0;
    if (column->numeric && strata_cell_number(word, column->format, &number)) {
        strata_text_add(out, "row->%s == ", name);
        strata_c_add_double(out, number);
    } else if (column->numeric) { /* "", a missing number */
        strata_text_add(out, "isnan(row->%s)", name);
    } else {
        strata_text_add(out, "!strcmp(row->%s ? row->%s : \"\", ", name, name);
        add_string(out, word);
        strata_text_add(out, ")");
    }
}

/* Writes one feature for each word, and one for all rare words. */
static void add_words(const strata_column_info *column, const char *name, strata_text *out) {
    for (int k = 0; k < column->n_words; k++) {
        strata_text_add(out, "    *x++ = ");
        add_condition(column, name, column->words[k], out);
        strata_text_add(out, " ? 1 : 0;\n");
    }
    for (int k = 0; k < column->n_rare; k++) {
        strata_text_add(out, k ? " ||\n           " : "    *x++ = ");
        add_condition(column, name, column->rare[k], out);
    }
    if (column->n_rare) strata_text_add(out, " ? 1 : 0;\n");
}

/* Writes the function that computes the features, in the order of the columns. */
static void add_encoding(const strata_preprocessing *p, const char *name, strata_text *out) {
    bool dates = false;
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++)
        dates |= strata_preprocessing_column(p, i).kind == STRATA_COLUMN_DATE;
    strata_text_add(out, "\nvoid %s_features(const %s_row *row, float *x);\nvoid %s_features(const %s_row *row, float *x) {\n",
                    name, name, name, name);
    if (dates) strata_text_add(out, "    double turn;\n");
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_WORDS)
            add_words(&column, field_of(p, i).text, out);
        else if (column.kind != STRATA_COLUMN_TEXT)
            add_number(&column, field_of(p, i).text, out);
    }
    strata_text_add(out, "}\n");
}

static void add_classes(const strata_column_info *label, const char *name, strata_text *out) {
    strata_text_add(
        out,
        "\nconst char *%s_class(int index);\nconst char *%s_class(int index) {\n    static const char *const names[%d] = {",
        name, name, label->n_words);
    for (int i = 0; i < label->n_words; i++) {
        strata_text_add(out, i ? ", " : "");
        add_string(out, label->words[i]);
    }
    strata_text_add(out, "};\n    return index >= 0 && index < %d ? names[index] : NULL;\n}\n", label->n_words);
}

/* Writes the function that converts the labels back: y = y deviation + mean. */
static void add_restoring(const strata_preprocessing *p, const char *name, strata_text *out) {
    strata_text_add(out, "\nvoid %s_restore(float *y);\nvoid %s_restore(float *y) {\n", name, name);
    for (int i = 0; i < strata_preprocessing_n_labels(p); i++) {
        const strata_column_info label = strata_preprocessing_label_column(p, i);
        strata_text_add(out, "    y[%d] = (float)(y[%d] * ", i, i);
        strata_c_add_double(out, label.deviation);
        strata_text_add(out, " + ");
        strata_c_add_double(out, label.mean);
        strata_text_add(out, ");\n");
    }
    strata_text_add(out, "}\n");
}

static void add_array_scaling(const strata_column_info *column, const char *name, int64_t n, strata_text *out) {
    strata_text_add(out,
                    "\nvoid %s_standardize(float *x);\nvoid %s_standardize(float *x) {\n    for (int i = 0; i < %lld; i++) "
                    "x[i] = isnan(x[i]) ? 0 : (float)((x[i] - ",
                    name, name, (long long)n);
    strata_c_add_double(out, column->mean);
    strata_text_add(out, ") / ");
    strata_c_add_double(out, column->deviation);
    strata_text_add(out, ");\n}\n");
}

strata_status strata_c_add_columns(const strata_model *model, const char *name, strata_text *out, strata_text *usage,
                                   strata_error *err) {
    strata_preprocessing *p = NULL;
    if (!strata_model_note(model, "preprocessing")) {
        if (strata_model_note(model, "tokenizer"))
            strata_text_add(usage, " *\n * x has tokens: indices in the vocabulary, which is in the .strata file.\n");
        return STRATA_OK;
    }
    STRATA_TRY(strata_model_preprocessing(model, &p, err));
    const strata_preprocessing_kind kind = strata_preprocessing_get_kind(p);
    const strata_shape element = strata_preprocessing_element(p);
    const int n_columns = strata_preprocessing_n_columns(p), n_labels = strata_preprocessing_n_labels(p);
    const strata_column_info label = n_labels ? strata_preprocessing_label_column(p, 0) : (strata_column_info){0};
    const bool arrays = kind == STRATA_PREPROCESSING_ARRAYS && element.rank > 1, words = label.kind == STRATA_COLUMN_WORDS;
    const bool rows = !arrays && n_columns && kind != STRATA_PREPROCESSING_TEXTS && kind != STRATA_PREPROCESSING_PICTURES;
    strata_text_add(usage, " *\n");
    if (rows) {
        add_row_type(p, name, out);
        add_encoding(p, name, out);
        strata_text_add(
            usage, " *     void %s_features(const %s_row *row, float *x);    x of a row of the table; %s_row is near the end\n",
            name, name, name);
    }
    if (arrays) {
        const strata_column_info column = strata_preprocessing_column(p, 0);
        add_array_scaling(&column, name, strata_shape_elements(element), out);
        strata_text_add(usage, " *     void %s_standardize(float *x);    converts the numbers of an array to x, in place\n",
                        name);
    }
    if (kind == STRATA_PREPROCESSING_PICTURES) strata_text_add(usage, " * x has pixels from 0 to 1.\n");
    if (strata_preprocessing_vocabulary(p))
        strata_text_add(usage, " * Texts are given as tokens: indices in the vocabulary, which is in the .strata file.\n");
    if (n_labels == 1 && words) {
        add_classes(&label, name, out);
        strata_text_add(usage, " *     const char *%s_class(int index);    the name of a class; NULL: there is no such class\n",
                        name);
    }
    if (n_labels && !words) {
        add_restoring(p, name, out);
        strata_text_add(usage, " *     void %s_restore(float *y);    the label in the table's own numbers\n", name);
    }
    strata_preprocessing_destroy(p);
    return STRATA_OK;
}
