/* SPDX-License-Identifier: Apache-2.0
 *
 * Converting the rows of tables and arrays to datasets, as a preprocessing describes. */
#include <float.h>
#include <math.h>

#include "core/base/locale.h"
#include "core/data/dataset.h"
#include "core/data/prepare/preprocessing.h"
#include "core/data/text/tokenizer.h"

/* The examples that are converted. */
typedef struct source {
    const strata_preprocessing *p;
    strata_examples examples;
    const strata_apply_options *opts;
    /* [p->n_columns], [p->n_labels] Where the values of the columns and labels are: the columns of the table, or the positions
     * in a row of the arrays. Both are one block of memory. Tables: the column with the weights. */
    int *columns, *labels, weight;
    /* [n_rows] The rows that are used. */
    int64_t *rows, n_rows;
} source;

static int64_t count_rows(const source *s) {
    return s->examples.csv ? strata_csv_n_rows(s->examples.csv) : s->examples.x->shape.dims[0];
}

static void source_finish(source *s) {
    free(s->columns);
    free(s->rows);
}

/* Finds the columns, and how the numbers of the table are written, from those of numbers. Only the first three fields of the
 * source are set before. */
static strata_status open_source(source *s, strata_error *err) {
    const strata_preprocessing *p = s->p;
    const strata_csv *csv = s->examples.csv;
    const strata_apply_options *opts = s->opts;
    const int n_columns = p->n_columns, n_labels = p->n_labels;
    int n = 0;
    STRATA_TRY(STRATA_NEW(s->columns, 2 * (n_columns + n_labels) + 1, err, "%s: no host memory", s->examples.name));
    s->labels = s->columns + n_columns;
    int *const numbers = s->labels + n_labels;
    for (int i = 0; i < n_columns && !csv; i++) s->columns[i] = i;
    if (!csv) return STRATA_OK;
    if (opts->n_columns && opts->n_columns != n_columns)
        return strata_fail(err, STRATA_INVALID, "csv: %d column%s named; the model takes %d", opts->n_columns,
                           opts->n_columns == 1 ? " is" : "s are", n_columns);
    for (int i = 0; i < n_columns; i++) {
        STRATA_TRY(strata_csv_find(csv, opts->n_columns ? opts->columns[i] : p->columns[i].name, &s->columns[i], err));
        if (p->columns[i].kind == STRATA_COLUMN_NUMBER) numbers[n++] = s->columns[i];
    }
    for (int i = 0; i < n_labels && !opts->unlabelled; i++) {
        STRATA_TRY(strata_csv_find(csv, p->labels[i].name, &s->labels[i], err));
        if (p->labels[i].kind == STRATA_COLUMN_NUMBER || p->labels[i].numeric) numbers[n++] = s->labels[i];
    }
    if (p->weight && !opts->unlabelled) {
        STRATA_TRY(strata_csv_find(csv, p->weight, &s->weight, err));
        numbers[n++] = s->weight;
    }
    return strata_reading_of_later(p, csv, numbers, n, &s->examples.reading, err);
}

/* Element i of the features or labels of arrays. */
static double feature_at(const source *s, int64_t i) {
    const strata_examples *e = &s->examples;
    return e->exact_x ? e->exact_x[i] : strata_element_get(e->x->dtype, e->x->data, i);
}
static double label_at(const source *s, int64_t i) {
    const strata_examples *e = &s->examples;
    return e->exact_y ? e->exact_y[i] : strata_element_get(e->y->dtype, e->y->data, i);
}

static bool has_label(const source *s, int64_t row) {
    const strata_preprocessing *p = s->p;
    for (int i = 0; i < p->n_labels; i++)
        if (s->examples.csv ? strata_column_is_missing(&p->labels[i], s->examples.csv, row, s->labels[i])
                            : isnan(label_at(s, row * p->n_labels + i)))
            return false;
    return true;
}

/* Lists the rows that are used: all, or those that have a value for each label. Fails: DATA if there are none. */
static strata_status list_rows(source *s, strata_error *err) {
    const int64_t n = count_rows(s);
    STRATA_TRY(STRATA_NEW(s->rows, n, err, "%s: no host memory", s->examples.name));
    for (int64_t row = 0; row < n; row++)
        if (s->opts->unlabelled || has_label(s, row)) s->rows[s->n_rows++] = row;
    if (s->n_rows) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: has no row with a label in \"%s\"", s->examples.name, s->p->labels[0].name);
}

/* ---- labels ---- */

static strata_status unknown_class(const strata_column *label, const source *s, int64_t row, const char *word,
                                   strata_error *err) {
    char where[32] = "";
    if (s->examples.csv) snprintf(where, sizeof where, ":%lld", (long long)strata_csv_line(s->examples.csv, row));
    return strata_fail(err, STRATA_DATA, "%s%s: the label \"%.64s\" in column \"%s\" is not one of the %d classes%s",
                       s->examples.name, where, word, label->name, label->n_words,
                       strata_nearest_hint(word, label->words, label->n_words).text);
}

/* The class of a row, or its label i as a standardised number. */
static strata_status label_of(const source *s, int64_t row, int i, double *out, strata_error *err) {
    const strata_column *label = &s->p->labels[i];
    const strata_csv *csv = s->examples.csv;
    char text[32];
    const char *word = csv ? strata_csv_cell(csv, row, s->labels[i]) : text;
    double value = csv ? 0 : label_at(s, row * s->p->n_labels + i);
    if (!csv) strata_format(text, sizeof text, "%.15g", value);
    if (label->kind == STRATA_COLUMN_WORDS) {
        const int class = strata_column_word(label, word, csv ? &s->examples.reading.numbers : NULL);
        *out = class;
        return class < 0 ? unknown_class(label, s, row, word, err) : STRATA_OK;
    }
    if (csv) STRATA_TRY(strata_column_value(label, csv, &s->examples.reading, s->labels[i], row, &value, err));
    *out = (value - label->mean) / label->deviation;
    return STRATA_OK;
}

static strata_status fill_labels(const source *s, const int64_t *rows, int64_t n, strata_array *out, strata_error *err) {
    const strata_dtype dtype = strata_preprocessing_n_classes(s->p) ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32;
    const int n_labels = s->p->n_labels;
    STRATA_TRY(strata_array_create(dtype, n_labels == 1 ? STRATA_SHAPE(n) : STRATA_SHAPE(n, n_labels), out, err));
    for (int64_t i = 0; i < n * n_labels; i++) {
        double value = 0;
        STRATA_TRY(label_of(s, rows[i / n_labels], (int)(i % n_labels), &value, err));
        strata_element_set(dtype, out->data, i, value);
    }
    return STRATA_OK;
}

/* ---- features ---- */

/* The number or date of column i. */
static strata_status value_of(const source *s, int i, int64_t row, double *out, strata_error *err) {
    const strata_examples *e = &s->examples;
    if (e->csv) return strata_column_value(&s->p->columns[i], e->csv, &e->reading, s->columns[i], row, out, err);
    *out = feature_at(s, row * e->x->shape.dims[1] + i);
    return STRATA_OK;
}

static void count_unknown(const strata_column *column, const char *cell, strata_preprocessing_report *report) {
    if (!report) return;
    if (!report->n_unknown++) {
        snprintf(report->word, sizeof report->word, "%.60s", cell);
        snprintf(report->column, sizeof report->column, "%.60s", column->name);
    }
}

/* Writes the features of column i for all rows. `width` is the number of features of a row. */
static strata_status fill_column(const source *s, int i, const int64_t *rows, int64_t n, int64_t width, float *out,
                                 strata_error *err) {
    const strata_column *column = &s->p->columns[i];
    const strata_csv *csv = s->examples.csv;
    for (int64_t r = 0; r < n; r++, out += width) {
        double value = 0;
        if (column->kind != STRATA_COLUMN_WORDS) {
            STRATA_TRY(value_of(s, i, rows[r], &value, err));
            strata_column_encode_value(column, value, out);
            continue;
        }
        const bool missing = strata_column_is_missing(column, csv, rows[r], s->columns[i]);
        const char *cell = missing ? "" : strata_csv_cell(csv, rows[r], s->columns[i]);
        const int word = strata_column_word(column, cell, NULL);
        memset(out, 0, (size_t)strata_column_width(column) * sizeof *out);
        if (word >= 0)
            out[word] = 1;
        else
            count_unknown(column, cell, s->opts->report);
    }
    return STRATA_OK;
}

static strata_status fill_table(const source *s, const int64_t *rows, int64_t n, strata_array *out, strata_error *err) {
    const int64_t width = strata_preprocessing_element(s->p).dims[0];
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n, width), out, err));
    float *to = out->data;
    for (int i = 0; i < s->p->n_columns; i++) {
        if (s->p->columns[i].kind == STRATA_COLUMN_TEXT) continue;
        STRATA_TRY(fill_column(s, i, rows, n, width, to, err));
        to += strata_column_width(&s->p->columns[i]);
    }
    return STRATA_OK;
}

/* The mean and the deviation of examples of several axes if the training data are u8: such numbers are divided by 255. */
static const double BYTES_MEAN = 0, BYTES_DEVIATION = 255;

/* Copies examples of several axes. If the model learned from arrays of u8, those of u8 stay u8. All others are standardised by
 * the numbers of the training data. So an array of another type has the same features. */
static strata_status fill_elements(const source *s, const int64_t *rows, int64_t n, strata_array *out, strata_error *err) {
    const strata_array *x = s->examples.x;
    const strata_column *all = &s->p->columns[0];
    strata_shape shape = x->shape;
    const int64_t size = strata_shape_elements(s->p->element);
    const bool stays_u8 = x->dtype == STRATA_DTYPE_U8 && all->mean == BYTES_MEAN && all->deviation == BYTES_DEVIATION;
    shape.dims[0] = n;
    STRATA_TRY(strata_array_create(stays_u8 ? STRATA_DTYPE_U8 : STRATA_DTYPE_F32, shape, out, err));
    for (int64_t r = 0; r < n; r++) {
        if (stays_u8) {
            memcpy((uint8_t *)out->data + r * size, (const uint8_t *)x->data + rows[r] * size, (size_t)size);
            continue;
        }
        float *to = (float *)out->data + r * size;
        for (int64_t i = 0; i < size; i++) {
            const double value = feature_at(s, rows[r] * size + i);
            to[i] = isnan(value) ? 0 : (float)((value - all->mean) / all->deviation);
        }
    }
    return STRATA_OK;
}

/* ---- texts ---- */

static strata_status join_texts(const source *s, const int64_t *rows, int64_t n, strata_texts **out, strata_error *err) {
    const strata_csv *csv = s->examples.csv;
    STRATA_FREED const char **parts = NULL;
    STRATA_TRY(STRATA_NEW(parts, s->p->n_columns, err, "%s: no host memory", s->examples.name));
    STRATA_TRY(strata_texts_create(s->examples.name, NULL, 0, out, err));
    for (int64_t r = 0; r < n; r++) {
        int n_parts = 0;
        for (int i = 0; i < s->p->n_columns; i++)
            if (s->p->columns[i].kind == STRATA_COLUMN_TEXT) parts[n_parts++] = strata_csv_cell(csv, rows[r], s->columns[i]);
        STRATA_TRY(strata_texts_add(*out, parts, n_parts, -1, strata_csv_line(csv, rows[r]), err));
    }
    return STRATA_OK;
}

static strata_status fill_tokens(const source *s, const int64_t *rows, int64_t n, strata_array *out, strata_error *err) {
    const int64_t length = s->p->length;
    STRATA_OWNED(strata_texts) *texts = NULL;
    STRATA_TRY(join_texts(s, rows, n, &texts, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n, length), out, err));
    for (int64_t r = 0; r < n; r++) {
        int32_t *ids = (int32_t *)out->data + r * length;
        int64_t n_tokens = 0;
        const char *text = strata_texts_get(texts, r);
        STRATA_TRY(strata_tokenizer_encode(s->p->tokenizer, text, strlen(text), length, ids, &n_tokens, err));
        /* A text without words gets one token, so that its row is kept and has a prediction. */
        if (!n_tokens) ids[0] = STRATA_TOKEN_UNKNOWN;
    }
    return STRATA_OK;
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Trains the tokenizer on these rows. If the number of tokens of an example is not given, it is chosen so that nine of
 * ten rows fit. */
static strata_status make_vocabulary(strata_preprocessing *p, const source *s, const int64_t *rows, int64_t n,
                                     strata_error *err) {
    enum { LEAST = 8, MOST = 400, WORDS = 20000 };
    STRATA_OWNED(strata_texts) *texts = NULL;
    strata_tokenizer *tokenizer = NULL;
    STRATA_FREED int64_t *sizes = NULL;
    const strata_tokenizer_options opts = {.kind = p->subwords ? STRATA_TOKENIZER_SUBWORDS : STRATA_TOKENIZER_WORDS,
                                           .vocabulary = p->vocabulary ? p->vocabulary : WORDS,
                                           .least_count = n > 1000 && !p->subwords ? 2 : 1};
    STRATA_TRY(STRATA_NEW(sizes, n, err, "%s: no host memory", s->examples.name));
    STRATA_TRY(join_texts(s, rows, n, &texts, err));
    STRATA_TRY(strata_tokenizer_train(texts, &opts, &tokenizer, err));
    strata_tokenizer_destroy(p->tokenizer);
    p->tokenizer = tokenizer;
    if (p->length) return STRATA_OK;
    for (int64_t r = 0; r < n; r++) {
        const char *text = strata_texts_get(texts, r);
        STRATA_TRY(strata_tokenizer_encode(tokenizer, text, strlen(text), 0, NULL, &sizes[r], err));
    }
    qsort(sizes, (size_t)n, sizeof *sizes, by_size);
    const int64_t size = sizes[n * 9 / 10];
    p->length = size < LEAST ? LEAST : size > MOST ? MOST : size;
    return STRATA_OK;
}

/* ---- means and deviations ---- */

static strata_status measure_features(strata_preprocessing *p, const source *s, const int64_t *rows, int64_t n, double *values,
                                      strata_error *err) {
    for (int i = 0; i < p->n_columns; i++) {
        if (p->columns[i].kind != STRATA_COLUMN_NUMBER && p->columns[i].kind != STRATA_COLUMN_DATE) continue;
        for (int64_t r = 0; r < n; r++) STRATA_TRY(value_of(s, i, rows[r], &values[r], err));
        strata_column_measure(&p->columns[i], values, n);
    }
    return STRATA_OK;
}

/* Examples of several axes have one mean and one deviation for all their numbers. For u8 they are constants. */
static void measure_elements(strata_preprocessing *p, const source *s, const int64_t *rows, int64_t n) {
    strata_column *all = &p->columns[0];
    const int64_t size = strata_shape_elements(p->element);
    double sum = 0, squares = 0;
    int64_t found = 0;
    if (s->examples.x->dtype == STRATA_DTYPE_U8) {
        all->mean = BYTES_MEAN;
        all->deviation = BYTES_DEVIATION;
        return;
    }
    for (int64_t i = 0; i < n * size; i++) {
        const double value = feature_at(s, rows[i / size] * size + i % size);
        if (!isnan(value)) sum += value, found++;
    }
    all->mean = found ? sum / (double)found : 0;
    /* The squares are those of the differences to the mean; the difference of two large squares would have no correct digit. */
    for (int64_t i = 0; i < n * size; i++) {
        const double away = feature_at(s, rows[i / size] * size + i % size) - all->mean;
        if (!isnan(away)) squares += away * away;
    }
    all->deviation = found ? sqrt(squares / (double)found) : 0;
    if (!(all->deviation > 1e-12 * fabs(all->mean))) all->deviation = 1; /* all are equal, except for rounding */
}

static strata_status measure_labels(strata_preprocessing *p, const source *s, const int64_t *rows, int64_t n, double *values,
                                    strata_error *err) {
    for (int i = 0; i < p->n_labels; i++) {
        if (p->labels[i].kind == STRATA_COLUMN_WORDS) continue;
        p->labels[i].mean = 0;
        p->labels[i].deviation = 1;
        for (int64_t r = 0; r < n; r++) STRATA_TRY(label_of(s, rows[r], i, &values[r], err));
        strata_column_measure(&p->labels[i], values, n);
    }
    return STRATA_OK;
}

/* Computes means, deviations and vocabulary from these rows. p: the preprocessing of the source, which may be changed. */
static strata_status measure_rows(strata_preprocessing *p, const source *s, const int64_t *rows, int64_t n, strata_error *err) {
    STRATA_FREED double *values = NULL;
    p->measured = false;
    STRATA_TRY(STRATA_NEW(values, n, err, "%s: no host memory", s->examples.name));
    STRATA_TRY(measure_labels(p, s, rows, n, values, err));
    if (strata_preprocessing_has_texts(p)) STRATA_TRY(make_vocabulary(p, s, rows, n, err));
    if (p->kind == STRATA_PREPROCESSING_ARRAYS && p->element.rank > 1)
        measure_elements(p, s, rows, n);
    else
        STRATA_TRY(measure_features(p, s, rows, n, values, err));
    p->measured = true;
    return STRATA_OK;
}

/* ---- datasets ---- */

static strata_status fill_weights(const source *s, const int64_t *rows, int64_t n, strata_array *out, strata_error *err) {
    const strata_csv *csv = s->examples.csv;
    const strata_column column = {.kind = STRATA_COLUMN_NUMBER};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(n), out, err));
    for (int64_t r = 0; r < n; r++) {
        double value = 0;
        STRATA_TRY(strata_column_value(&column, csv, &s->examples.reading, s->weight, rows[r], &value, err));
        if (!(value >= 0 && value <= FLT_MAX))
            return strata_fail(err, STRATA_DATA,
                               "%s:%lld: the weight in column \"%s\" is \"%.64s\"; it must be a number of at least 0",
                               strata_csv_name(csv), (long long)strata_csv_line(csv, rows[r]), s->p->weight,
                               strata_csv_cell(csv, rows[r], s->weight));
        ((float *)out->data)[r] = (float)value;
    }
    return STRATA_OK;
}

/* name: the dataset's source; NULL: none. */
static strata_status to_dataset(const source *s, const int64_t *rows, int64_t n, const char *name, strata_dataset **out_dataset,
                                strata_error *err) {
    const strata_preprocessing *p = s->p;
    STRATA_FINISHED(strata_array) x = {0}, y = {0}, tokens = {0}, weights = {0};
    STRATA_OWNED(strata_dataset) *dataset = NULL;
    const bool mixed = p->kind == STRATA_PREPROCESSING_TABLE && strata_preprocessing_has_texts(p);
    const bool labelled = !s->opts->unlabelled;
    if (p->kind == STRATA_PREPROCESSING_TEXTS)
        STRATA_TRY(fill_tokens(s, rows, n, &x, err));
    else if (p->kind == STRATA_PREPROCESSING_ARRAYS && p->element.rank > 1)
        STRATA_TRY(fill_elements(s, rows, n, &x, err));
    else
        STRATA_TRY(fill_table(s, rows, n, &x, err));
    if (mixed) STRATA_TRY(fill_tokens(s, rows, n, &tokens, err));
    if (labelled) STRATA_TRY(fill_labels(s, rows, n, &y, err));
    if (labelled && p->weight) STRATA_TRY(fill_weights(s, rows, n, &weights, err));
    const strata_dataset_facts facts = {.scale = x.dtype == STRATA_DTYPE_U8 ? 1.0 / 255 : 0,
                                        .source = name,
                                        .weights = weights.data ? &weights : NULL,
                                        .class_names = (const char *const *)p->labels[0].words,
                                        .n_class_names = strata_preprocessing_n_classes(p)};
    STRATA_TRY(strata_dataset_take_known(&x, &y, &facts, &dataset, err));
    if (mixed) STRATA_TRY(strata_dataset_take_input(dataset, "numbers", "text", &tokens, err));
    *out_dataset = strata_released(&dataset);
    return STRATA_OK;
}

strata_status strata_preprocessing_split_examples(strata_preprocessing *p, const strata_examples *examples, double fraction,
                                                  uint64_t seed, strata_dataset **out_train, strata_dataset **out_test,
                                                  strata_error *err) {
    STRATA_FREED int64_t *order = NULL;
    STRATA_FINISHED(strata_array) classes = {0}; /* by which the split is stratified; data NULL: the labels are numbers */
    STRATA_FINISHED(source) s = {.p = p, .examples = *examples, .opts = &(strata_apply_options){0}};
    STRATA_OWNED(strata_dataset) *train = NULL;
    int64_t first = 0;
    *out_train = *out_test = NULL;
    STRATA_TRY(open_source(&s, err));
    STRATA_TRY(list_rows(&s, err));
    const int64_t n = s.n_rows;
    STRATA_TRY(STRATA_NEW(order, n, err, "%s: no host memory", examples->name));
    if (strata_preprocessing_n_classes(p)) STRATA_TRY(fill_labels(&s, s.rows, n, &classes, err));
    STRATA_TRY(strata_split_order(classes.data, n, fraction, seed, order, &first, err));
    for (int64_t i = 0; i < n; i++) order[i] = s.rows[order[i]];
    STRATA_TRY(measure_rows(p, &s, order, first, err));
    STRATA_TRY(to_dataset(&s, order, first, NULL, &train, err));
    if (first < n) STRATA_TRY(to_dataset(&s, order + first, n - first, NULL, out_test, err));
    *out_train = strata_released(&train);
    return STRATA_OK;
}

strata_status strata_preprocessing_split_csv(strata_preprocessing *p, const strata_csv *csv, double fraction, uint64_t seed,
                                             strata_dataset **out_train, strata_dataset **out_test, strata_error *err) {
    const strata_examples examples = {.csv = csv, .name = strata_csv_name(csv)};
    return strata_preprocessing_split_examples(p, &examples, fraction, seed, out_train, out_test, err);
}

strata_status strata_preprocessing_split_arrays(strata_preprocessing *p, const strata_array *features,
                                                const strata_array *labels, double fraction, uint64_t seed,
                                                strata_dataset **out_train, strata_dataset **out_test, strata_error *err) {
    const strata_examples examples = {.x = features, .y = labels, .name = "arrays"};
    return strata_preprocessing_split_examples(p, &examples, fraction, seed, out_train, out_test, err);
}

/* Makes a dataset of all rows, or of those with labels unless s->opts->unlabelled. */
static strata_status apply(source *s, strata_dataset **out_dataset, strata_error *err) {
    const strata_apply_options *opts = s->opts;
    if (opts->report) *opts->report = (strata_preprocessing_report){0};
    if (!s->p->measured)
        return strata_fail(err, STRATA_INVALID,
                           "preprocessing: its means and vocabulary are not computed yet; call strata_preprocessing_split_csv "
                           "or _split_arrays");
    if (count_rows(s) < 1) return strata_fail(err, STRATA_DATA, "%s: has no rows", s->examples.name);
    STRATA_TRY(list_rows(s, err));
    if (opts->report) opts->report->n_unlabelled = count_rows(s) - s->n_rows;
    return to_dataset(s, s->rows, s->n_rows, s->examples.name, out_dataset, err);
}

static strata_status wrong_kind(const strata_preprocessing *p, const char *name, const char *what, strata_error *err) {
    static const char *const takes[] = {"tables", "texts", "pictures", "arrays"};
    return strata_fail(err, STRATA_DATA, "%s: is %s, but the model was trained on %s", name, what, takes[p->kind]);
}

strata_status strata_preprocessing_apply_csv(const strata_preprocessing *p, const strata_csv *csv,
                                             const strata_apply_options *opts, strata_dataset **out_dataset,
                                             strata_error *err) {
    STRATA_FINISHED(source)
    s = {.p = p, .examples = {.csv = csv, .name = strata_csv_name(csv)}, .opts = opts ? opts : &(strata_apply_options){0}};
    if (p->kind != STRATA_PREPROCESSING_TABLE && p->kind != STRATA_PREPROCESSING_TEXTS)
        return wrong_kind(p, strata_csv_name(csv), "a table", err);
    STRATA_TRY(open_source(&s, err));
    STRATA_TRY(apply(&s, out_dataset, err));
    if (s.opts->report && p->dialect.decimal && p->dialect.decimal != s.examples.reading.numbers.decimal)
        s.opts->report->decimal = s.examples.reading.numbers.decimal;
    return STRATA_OK;
}

strata_status strata_preprocessing_apply_examples(const strata_preprocessing *p, const strata_examples *examples,
                                                  strata_dataset **out_dataset, strata_error *err) {
    const strata_array *x = examples->x, *y = examples->y;
    STRATA_FINISHED(source) s = {.p = p, .examples = *examples, .opts = &(strata_apply_options){.unlabelled = !y}};
    strata_shape shape = x->shape;
    if (p->kind != STRATA_PREPROCESSING_ARRAYS) return wrong_kind(p, "arrays", "an array", err);
    const int64_t n_labels = y ? (y->shape.rank == 2 ? y->shape.dims[1] : 1) : 0;
    bool same = shape.rank == p->element.rank + 1;
    for (int i = 0; same && i < p->element.rank; i++)
        same = shape.dims[i + 1] == (p->element.rank == 1 ? p->n_columns : p->element.dims[i]);
    if (!same)
        return strata_fail(err, STRATA_DATA, "the features are %s; the model takes (n, ...) of %s",
                           strata_shape_text(shape).text,
                           strata_shape_text(p->element.rank == 1 ? STRATA_SHAPE(p->n_columns) : p->element).text);
    const bool labels_fit =
        !y || ((y->shape.rank == 1 || y->shape.rank == 2) && n_labels == p->n_labels && y->shape.dims[0] == shape.dims[0]);
    if (!labels_fit)
        return strata_fail(err, STRATA_DATA, "the features are %s, the labels %s; the model has %d label%s for each example",
                           strata_shape_text(shape).text, strata_shape_text(y->shape).text, p->n_labels,
                           p->n_labels == 1 ? "" : "s");
    STRATA_TRY(open_source(&s, err));
    return apply(&s, out_dataset, err);
}

strata_status strata_preprocessing_apply_arrays(const strata_preprocessing *p, const strata_array *x, const strata_array *y,
                                                strata_dataset **out_dataset, strata_error *err) {
    return strata_preprocessing_apply_examples(p, &(strata_examples){.x = x, .y = y, .name = "arrays"}, out_dataset, err);
}

double strata_preprocessing_label_unit(const strata_preprocessing *p, int label) {
    return p->labels[label].deviation;
}

void strata_preprocessing_restore(const strata_preprocessing *p, strata_array *predictions) {
    const int64_t n = strata_shape_elements(predictions->shape);
    float *values = predictions->data;
    if (strata_preprocessing_n_classes(p) || !p->n_labels) return;
    for (int64_t i = 0; i < n; i++) {
        const strata_column *label = &p->labels[i % p->n_labels];
        values[i] = (float)((double)values[i] * label->deviation + label->mean);
    }
}
