/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes precision, recall, F1, AUC and R2 on the host, from predictions and labels. */
#include "scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/metrics.h"
#include "strata/preprocessing.h"
#include "terminal.h"

enum { MOST_CLASSES = 4096, MOST_PRINTED = 40, MOST_AUC_CLASSES = 128, NAME_WIDTH = 24 };

void scores_finish(scores *s) {
    free(s->confusion);
    *s = (scores){0};
}

/* ---- classes ---- */

/* The probability of a class. If there is only one output, it is the probability of class 1. */
static float probability(const float *row, int64_t width, int64_t class) {
    return width > 1 ? row[class] : class ? row[0] : 1 - row[0];
}

static int64_t answer(const float *row, int64_t width, int64_t n_classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < n_classes; c++)
        if (probability(row, width, c) > probability(row, width, best)) best = c;
    return best;
}

static strata_status measure_auc(const float *predictions, const int32_t *labels, int64_t n, int64_t width, scores *s,
                                 strata_error *err) {
    double sum = 0;
    int64_t n_areas = 0;
    s->auc = NAN;
    if (s->n_classes > MOST_AUC_CLASSES) return STRATA_OK;
    strata_scored *examples = malloc((size_t)n * sizeof *examples);
    if (!examples) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %lld examples", (long long)n);
    for (int64_t c = s->n_classes == 2 ? 1 : 0; c < s->n_classes; c++) {
        for (int64_t i = 0; i < n; i++)
            examples[i] = (strata_scored){probability(predictions + i * width, width, c), labels[i] == c};
        const double found = strata_auc(examples, n);
        if (!isnan(found)) sum += found, n_areas++;
    }
    if (n_areas) s->auc = sum / (double)n_areas;
    free(examples);
    return STRATA_OK;
}

static strata_status compare_classes(const float *predictions, const int32_t *labels, int64_t n, int64_t width, scores *s,
                                     strata_error *err) {
    s->n_classes = width > 1 ? width : 2;
    if (s->n_classes > MOST_CLASSES)
        return strata_fail(err, STRATA_UNSUPPORTED, "%lld classes; at most %d are scored", (long long)s->n_classes,
                           MOST_CLASSES);
    s->confusion = calloc((size_t)(s->n_classes * s->n_classes), sizeof *s->confusion);
    if (!s->confusion) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the confusion matrix");
    for (int64_t i = 0; i < n; i++)
        if (labels[i] >= 0 && labels[i] < s->n_classes)
            s->confusion[labels[i] * s->n_classes + answer(predictions + i * width, width, s->n_classes)]++;
    return measure_auc(predictions, labels, n, width, s, err);
}

/* ---- numbers ---- */

/* How many units of its label a difference of 1 between two predictions is. Predictions and labels stay standardised, since f32
 * would round them off in the label's units: an hour of 2024, in seconds since 1970, would have 28 values. */
static double unit_of(const strata_preprocessing *p, int64_t label) {
    const bool numbers = p && !strata_preprocessing_n_classes(p) && strata_preprocessing_n_labels(p);
    return numbers ? strata_preprocessing_label_unit(p, (int)(label % strata_preprocessing_n_labels(p))) : 1;
}

static void compare_numbers(const float *predictions, const float *labels, int64_t n, int64_t width,
                            const strata_preprocessing *preprocessing, scores *s) {
    double absolute = 0, squares = 0, r2 = 0;
    for (int64_t k = 0; k < width; k++) {
        /* The mean is that of the differences to the first label, so that the spread of equal labels is exactly 0. */
        double mean = 0, sum = 0, off = 0, spread = 0;
        const double first = (double)labels[k], unit = unit_of(preprocessing, k);
        for (int64_t i = 0; i < n; i++) mean += ((double)labels[i * width + k] - first) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            const double label = (double)labels[i * width + k], error = (double)predictions[i * width + k] - label;
            sum += fabs(error);
            off += error * error;
            spread += (label - first - mean) * (label - first - mean);
        }
        absolute += sum * unit;
        squares += off * unit * unit;
        r2 += (spread > 0 ? 1 - off / spread : NAN) / (double)width;
    }
    s->r2 = r2;
    s->mae = absolute / (double)(n * width);
    s->rmse = sqrt(squares / (double)(n * width));
}

/* ---- measuring a model ---- */

static strata_status compare(strata_array *predictions, const strata_dataset *dataset,
                             const strata_preprocessing *preprocessing, bool classes, scores *s, strata_error *err) {
    const int64_t n = strata_dataset_size(dataset), width = strata_shape_elements(predictions->shape) / n;
    const int64_t n_labels = strata_shape_elements(strata_dataset_label_shape(dataset));
    const strata_dtype dtype = strata_dataset_label_dtype(dataset);
    strata_order *order = NULL;
    strata_array labels = {0};
    char *features = NULL;
    strata_status status = strata_array_create(dtype, STRATA_SHAPE(n, n_labels), &labels, err);
    if (!status) status = strata_order_create(n, false, 0, 0, &order, err);
    const size_t bytes = (size_t)strata_shape_elements(strata_dataset_element_shape(dataset)) * 4;
    if (!status && !(features = malloc(bytes)))
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for an example");
    for (int64_t i = 0; i < n && !status; i++)
        strata_dataset_fetch(dataset, order, i, 1, features, (char *)labels.data + (size_t)(4 * i * n_labels));
    if (!status && classes && dtype == STRATA_DTYPE_I32 && n_labels == 1) {
        status = compare_classes(predictions->data, labels.data, n, width, s, err);
    } else if (!status && !classes && n_labels == width) {
        for (int64_t i = 0; i < n * n_labels && dtype == STRATA_DTYPE_I32; i++)
            ((float *)labels.data)[i] = (float)((int32_t *)labels.data)[i];
        labels.dtype = STRATA_DTYPE_F32;
        compare_numbers(predictions->data, labels.data, n, width, preprocessing, s);
    } else if (!status) {
        s->n = 0;
    }
    free(features);
    strata_order_destroy(order);
    strata_array_finish(&labels);
    return status;
}

strata_status scores_measure(strata_model *model, const strata_dataset *dataset, const strata_preprocessing *preprocessing,
                             int64_t batch, scores *out, strata_error *err) {
    strata_array predictions = {0};
    *out = (scores){.n = strata_dataset_size(dataset), .auc = NAN};
    if (strata_model_n_outputs(model) > 1) out->n = 0; /* each output has metrics of its own instead */
    if (out->n < 1) return STRATA_OK;
    STRATA_TRY(strata_model_predict(model, dataset, batch, &predictions, err));
    strata_status status = compare(&predictions, dataset, preprocessing, predicts_classes(model), out, err);
    strata_array_finish(&predictions);
    return status;
}

void metrics_in_units(const strata_preprocessing *preprocessing, strata_metrics *metrics) {
    const int n = preprocessing ? strata_preprocessing_n_labels(preprocessing) : 0;
    const double unit = unit_of(preprocessing, 0);
    for (int k = 1; k < n; k++)
        if (unit_of(preprocessing, k) != unit) return;
    for (int i = 0; i < metrics->n; i++)
        if (!strcmp(metrics->more[i].name, "mae")) metrics->more[i].value *= unit;
}

/* ---- printing ---- */

/* For a class: how many examples have it as their label, how many as their answer, and how many as both. */
typedef struct class_counts {
    int64_t labels, answers, right;
    double precision, recall, f1;
} class_counts;

static class_counts count_class(const scores *s, int64_t class) {
    class_counts c = {.right = s->confusion[class * s->n_classes + class]};
    for (int64_t i = 0; i < s->n_classes; i++) {
        c.labels += s->confusion[class * s->n_classes + i];
        c.answers += s->confusion[i * s->n_classes + class];
    }
    c.precision = c.answers ? (double)c.right / (double)c.answers : 0;
    c.recall = c.labels ? (double)c.right / (double)c.labels : 0;
    c.f1 = c.labels + c.answers ? 2 * (double)c.right / (double)(c.labels + c.answers) : 0;
    return c;
}

/* The mean over the classes that are the label or the answer of an example. */
static class_counts mean_of_classes(const scores *s) {
    class_counts mean = {0};
    double n = 0;
    for (int64_t c = 0; c < s->n_classes; c++) {
        const class_counts one = count_class(s, c);
        if (!one.labels && !one.answers) continue;
        n++;
        mean.precision += one.precision, mean.recall += one.recall, mean.f1 += one.f1;
        mean.labels += one.labels;
    }
    if (n > 0) mean.precision /= n, mean.recall /= n, mean.f1 /= n;
    return mean;
}

static const char *name_of(const sample *sample, const strata_preprocessing *p, int64_t class, char out[NAME_WIDTH + 1]) {
    const char *name = class_name(sample, p, class);
    if (name)
        snprintf(out, NAME_WIDTH + 1, "%s", name);
    else
        snprintf(out, NAME_WIDTH + 1, "%lld", (long long)class);
    return out;
}

static int widest_name(const scores *s, const sample *sample, const strata_preprocessing *p) {
    char name[NAME_WIDTH + 1];
    int most = 4;
    for (int64_t c = 0; c < s->n_classes; c++) {
        const int length = (int)strlen(name_of(sample, p, c, name));
        if (length > most) most = length;
    }
    return most;
}

static void print_matrix(const scores *s, const sample *sample, const strata_preprocessing *p, int width) {
    char name[NAME_WIDTH + 1];
    int cell = 5;
    for (int64_t c = 0; c < s->n_classes; c++) {
        const int length = (int)strlen(name_of(sample, p, c, name));
        if (length > cell) cell = length > 10 ? 10 : length;
    }
    printf("confusion matrix, a row for each label and a column for each answer\n%*s", width, "");
    for (int64_t c = 0; c < s->n_classes; c++) printf("  %*.*s", cell, cell, name_of(sample, p, c, name));
    printf("\n");
    for (int64_t r = 0; r < s->n_classes; r++) {
        printf("%-*s", width, name_of(sample, p, r, name));
        for (int64_t c = 0; c < s->n_classes; c++) printf("  %*lld", cell, (long long)s->confusion[r * s->n_classes + c]);
        printf("\n");
    }
}

static void print_row(const char *name, int width, const class_counts *c) {
    printf("%-*s  %9.4f  %7.4f  %7.4f  %8lld\n", width, name, c->precision, c->recall, c->f1, (long long)c->labels);
}

/* Prints an error in the unit of the label, for example "51.02" or "138200", without an exponent unless it is very large. */
static void print_error(FILE *to, const char *name, double value) {
    fprintf(to, value >= 1e4 && value < 1e12 ? "%s %.0f" : "%s %.4g", name, value);
}

void print_number_scores(const scores *s) {
    if (s->n_classes || !s->n) return;
    line whole;
    FILE *to = line_begin(&whole);
    if (!isnan(s->r2)) fprintf(to, "R2 %.4f, ", s->r2);
    print_error(to, "mean absolute error", s->mae);
    print_error(to, ", root mean squared error", s->rmse);
    line_end(&whole, 4);
}

void print_scores(const scores *s, const sample *sample, const strata_preprocessing *p) {
    char name[NAME_WIDTH + 1];
    print_number_scores(s);
    if (!s->n_classes) return;
    const int width = widest_name(s, sample, p);
    const class_counts mean = mean_of_classes(s);
    printf("%-*s  precision   recall       F1  examples\n", width, "");
    for (int64_t c = 0; c < s->n_classes && s->n_classes <= MOST_PRINTED; c++) {
        const class_counts one = count_class(s, c);
        print_row(name_of(sample, p, c, name), width, &one);
    }
    print_row("mean", width, &mean);
    if (!isnan(s->auc)) printf("AUC %.4f\n", s->auc);
    if (s->n_classes <= MOST_PRINTED) print_matrix(s, sample, p, width);
}

static void print_list(const char *key, const scores *s, size_t offset) {
    printf("\"%s\":[", key);
    for (int64_t c = 0; c < s->n_classes; c++) {
        const class_counts one = count_class(s, c);
        printf("%s%.6f", c ? "," : "", *(const double *)((const char *)&one + offset));
    }
    printf("],");
}

void print_scores_json(const scores *s, const sample *sample, const strata_preprocessing *p) {
    char name[NAME_WIDTH + 1];
    if (!s->n) return;
    printf(",\"scores\":{");
    if (!s->n_classes) {
        printf("\"r2\":"), print_json_number(s->r2, "%.9g");
        printf(",\"mae\":"), print_json_number(s->mae, "%.9g");
        printf(",\"rmse\":"), print_json_number(s->rmse, "%.9g");
        printf("}");
        return;
    }
    printf("\"classes\":[");
    for (int64_t c = 0; c < s->n_classes; c++) {
        const char *word = class_name(sample, p, c);
        printf("%s", c ? "," : "");
        print_json_string(word ? word : name_of(sample, p, c, name));
    }
    printf("],");
    print_list("precision", s, offsetof(class_counts, precision));
    print_list("recall", s, offsetof(class_counts, recall));
    print_list("f1", s, offsetof(class_counts, f1));
    printf("\"auc\":"), print_json_number(s->auc, "%.9g");
    printf(",\"confusion_matrix\":[");
    for (int64_t i = 0; i < s->n_classes * s->n_classes; i++)
        printf("%s%lld%s",
               i % s->n_classes ? ","
               : i              ? ",["
                                : "[",
               (long long)s->confusion[i], i % s->n_classes == s->n_classes - 1 ? "]" : "");
    printf("]}");
}

void print_hint(const scores *s, const sample *sample, const strata_preprocessing *p) {
    char name[NAME_WIDTH + 1];
    int64_t right = 0, best = 0, most = -1;
    if (!s->n) return;
    if (!s->n_classes) {
        if (s->r2 <= 0)
            fprintf(stderr,
                    "strata: this is not better than predicting the mean of the labels for all examples; try more --epochs, "
                    "another "
                    "--learning-rate, or other --columns\n");
        return;
    }
    for (int64_t c = 0; c < s->n_classes; c++) {
        const class_counts one = count_class(s, c);
        right += one.right;
        if (one.labels > most) most = one.labels, best = c;
    }
    const bool table = p && strata_preprocessing_get_kind(p) == STRATA_PREPROCESSING_TABLE;
    if (right <= most && right < s->n)
        fprintf(stderr,
                "strata: this is not better than predicting \"%s\" for all examples (%.2f %%); try more --epochs, another "
                "--learning-rate, "
                "or %s\n",
                name_of(sample, p, best, name), 100 * (double)most / (double)s->n, table ? "other --columns" : "more examples");
}
