/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds whether a label is a class or a number. */
#include <math.h>

#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/data/prepare/preprocessing.h"

/* Labels that are whole numbers are classes, unless the user decides otherwise, if there are at most MOST_NUMERIC_CLASSES
 * different ones and each occurs in at least LEAST_ROWS_OF_CLASS rows on average. */
enum { MOST_NUMERIC_CLASSES = 20, LEAST_ROWS_OF_CLASS = 3, MOST_CLASSES = 65536 };

static strata_status one_class(const strata_examples *examples, const strata_column *label, strata_error *err) {
    return strata_fail(err, STRATA_DATA,
                       "%s: the label \"%s\" is \"%.64s\" in all rows; there is nothing to learn. Name another column "
                       "with the label (--label)",
                       examples->name, label->name, label->n_words ? label->words[0] : "");
}

static strata_status too_many_classes(const strata_examples *examples, const strata_column *label, int64_t n_classes, int64_t n,
                                      bool numeric, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "%s: the label \"%s\" has %lld different %s in %lld rows, too many for classes. %s",
                       examples->name, label->name, (long long)n_classes, numeric ? "numbers" : "words", (long long)n,
                       numeric ? "Learn it as a number instead (--learn regression), or name another label (--label)"
                               : "Name another column with the label (--label)");
}

/* Fails with the first cell of the column that is no number. */
static strata_status report_non_number(const strata_examples *examples, int index, int64_t n_numbers, int64_t n,
                                       const char *what, strata_error *err) {
    const strata_csv *csv = examples->csv;
    double value;
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        const char *cell = strata_csv_cell(csv, row, index);
        if (strata_csv_is_missing(csv, row, index) || strata_cell_number(cell, examples->reading.numbers, &value)) continue;
        if (!n_numbers)
            return strata_fail(err, STRATA_DATA, "%s:%lld: the labels are words (\"%.64s\", ...); %s", strata_csv_name(csv),
                               (long long)strata_csv_line(csv, row), cell, what);
        return strata_fail(err, STRATA_DATA,
                           "%s:%lld: column \"%s\" has the cell \"%.64s\", but %lld of its %lld cells are numbers; %s",
                           strata_csv_name(csv), (long long)strata_csv_line(csv, row), strata_csv_column(csv, index), cell,
                           (long long)n_numbers, (long long)n, what);
    }
    return strata_fail(err, STRATA_INTERNAL, "%s: all cells are numbers", strata_csv_name(csv));
}

/* Whether the column has no label: all cells are blank or the same word of missing values. */
static bool is_empty(const strata_csv *csv, int index) {
    const char *first = NULL;
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        const char *cell = strata_csv_cell(csv, row, index);
        if (!strata_csv_is_missing(csv, row, index)) return false;
        if (strata_cell_is_blank(cell)) continue;
        if (first && strcmp(first, cell) && !strata_csv_get_dialect(csv)->na) return false;
        first = cell;
    }
    return true;
}

static strata_status check_label_column(const strata_csv *csv, int index, const strata_column_stats *stats, strata_error *err) {
    const char *name = strata_csv_column(csv, index);
    if (is_empty(csv, index))
        return strata_fail(err, STRATA_DATA,
                           "%s: the label \"%s\" is missing in all rows; name another column with the label "
                           "(--label)",
                           strata_csv_name(csv), name);
    for (int f = 0; f < STRATA_DATE_FORMATS; f++)
        if (stats->n_dates[f] && stats->n_dates[f] == stats->n_rows - stats->n_missing)
            return strata_fail(err, STRATA_DATA,
                               "%s: the label \"%s\" is a date, which is neither a class nor a number; name "
                               "another column with the label (--label)",
                               strata_csv_name(csv), name);
    return STRATA_OK;
}

static strata_status find_label(const strata_examples *examples, int index, strata_task task, strata_column *label,
                                strata_error *err) {
    const strata_csv *csv = examples->csv;
    strata_column_stats stats;
    int64_t others = 0;
    STRATA_TRY(strata_column_examine(csv, index, examples->reading.numbers, &stats, err));
    STRATA_TRY(check_label_column(csv, index, &stats, err));
    int64_t n = stats.n_rows - stats.n_missing;
    label->format = examples->reading.numbers;
    label->numeric = n && stats.n_numbers == n;
    label->kind = label->numeric && task == STRATA_TASK_REGRESSION ? STRATA_COLUMN_NUMBER : STRATA_COLUMN_WORDS;
    if (!label->numeric && task == STRATA_TASK_REGRESSION)
        return report_non_number(examples, index, stats.n_numbers, n,
                                 "a number is to be learned. Name another label (--label), or learn classes", err);
    if (label->numeric && task == STRATA_TASK_AUTO && stats.n_whole < n) label->kind = STRATA_COLUMN_NUMBER;
    if (label->kind == STRATA_COLUMN_NUMBER) return STRATA_OK;
    if (!label->numeric && stats.n_any * 10 > n * 9)
        return report_non_number(examples, index, stats.n_numbers, n, "correct it, or leave it empty to leave the row out",
                                 err);
    label->only_blank = !label->numeric && !strata_csv_get_dialect(csv)->na;
    STRATA_TRY(strata_column_find_words(label, csv, index, false, MOST_CLASSES, &others, err));
    const int64_t n_classes = label->n_words + label->n_rare;
    if (label->only_blank)
        for (int64_t row = n = 0; row < stats.n_rows; row++) n += !strata_column_is_missing(label, csv, row, index);
    if (n_classes == 1) return one_class(examples, label, err);
    if (label->numeric && task == STRATA_TASK_AUTO &&
        (n_classes > MOST_NUMERIC_CLASSES || n_classes * LEAST_ROWS_OF_CLASS > n)) {
        free(label->words);
        label->words = NULL;
        label->n_words = 0;
        label->numeric = false;
        label->kind = STRATA_COLUMN_NUMBER;
        label->whole = true;
        return STRATA_OK;
    }
    if (label->n_rare || (n_classes > MOST_NUMERIC_CLASSES && n_classes * 2 > n))
        return too_many_classes(examples, label, n_classes, n, label->numeric, err);
    return STRATA_OK;
}

/* ---- arrays ---- */

static int by_number(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static strata_status set_classes(strata_column *label, const double *values, int64_t n, strata_error *err) {
    STRATA_FREED char(*texts)[32] = NULL;
    STRATA_FREED const char **words = NULL;
    STRATA_TRY(STRATA_NEW(texts, n, err, "no host memory for %lld classes", (long long)n));
    STRATA_TRY(STRATA_NEW(words, n, err, "no host memory for %lld classes", (long long)n));
    for (int64_t i = 0; i < n; i++) {
        strata_format(texts[i], sizeof texts[i], "%.15g", values[i]);
        words[i] = texts[i];
    }
    STRATA_TRY(strata_names_copy(words, (int)n, &label->words, err));
    label->n_words = (int)n;
    label->numeric = true;
    label->format = strata_decimal_point;
    label->kind = STRATA_COLUMN_WORDS;
    return STRATA_OK;
}

static strata_status find_array_label(const strata_examples *examples, strata_task task, strata_column *label,
                                      strata_error *err) {
    const int64_t n = examples->y->shape.dims[0];
    int64_t n_classes = 0, n_known = 0;
    bool whole = true;
    STRATA_FREED double *values = NULL;
    if (task == STRATA_TASK_REGRESSION) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(values, n, err, "%s: no host memory for its labels", examples->name));
    for (int64_t i = 0; i < n; i++) {
        const double value =
            examples->exact_y ? examples->exact_y[i] : strata_element_get(examples->y->dtype, examples->y->data, i);
        if (isnan(value)) continue;
        values[n_known++] = value;
        whole &= value == floor(value);
    }
    qsort(values, (size_t)n_known, sizeof *values, by_number);
    for (int64_t i = 0; i < n_known; i++)
        if (!i || values[i] != values[n_classes - 1]) values[n_classes++] = values[i];
    const bool few = whole && n_classes <= MOST_NUMERIC_CLASSES && n_classes * LEAST_ROWS_OF_CLASS <= n_known;
    if (!few && task != STRATA_TASK_CLASSIFICATION) return STRATA_OK;
    if (n_classes > MOST_CLASSES || (n_classes > MOST_NUMERIC_CLASSES && n_classes * 2 > n_known))
        return too_many_classes(examples, label, n_classes, n_known, true, err);
    STRATA_TRY(set_classes(label, values, n_classes, err));
    return n_classes < 2 ? one_class(examples, label, err) : STRATA_OK;
}

strata_status strata_labels_find(strata_preprocessing *p, const strata_examples *examples, const int *indices, strata_task task,
                                 strata_error *err) {
    if (p->n_labels > 1 && task == STRATA_TASK_CLASSIFICATION)
        return strata_fail(err, STRATA_INVALID, "%s: %d labels are learned together as numbers, not as classes; name one",
                           examples->name, p->n_labels);
    if (p->n_labels > 1) task = STRATA_TASK_REGRESSION;
    for (int i = 0; i < p->n_labels; i++)
        STRATA_TRY(examples->csv ? find_label(examples, indices[i], task, &p->labels[i], err)
                                 : find_array_label(examples, task, &p->labels[i], err));
    return STRATA_OK;
}
