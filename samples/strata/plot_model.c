/* SPDX-License-Identifier: Apache-2.0
 *
 * Plots of a trained model: its confusion matrix on data, and the distribution of its weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plot.h"

static int load(const char *path, strata_model **out_model) {
    strata_error err = {0};
    const strata_status status = load_trained(path, out_model, &err);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* The shade for a share from 0 to 1, from light to dark. */
static const char *shade(const look *look, double share) {
    static const char *const blocks[] = {" ", "░", "▒", "▓", "█"}, *const characters[] = {" ", ".", ":", "+", "#"};
    const int level = share <= 0 ? 0 : share >= 1 ? 4 : 1 + (int)(share * 3.999);
    return (look->utf8 ? blocks : characters)[level > 4 ? 4 : level];
}

/* ---- the confusion matrix ---- */

enum { CLASS_NAME = 24 };

typedef struct confusion {
    const int64_t *counts; /* (n, n): how many examples have this label (row) and this answer (column) */
    int64_t n;
    char (*names)[CLASS_NAME];
    double accuracy;
    int64_t examples;
} confusion;

static int64_t row_sum(const confusion *c, int64_t row) {
    int64_t sum = 0;
    for (int64_t k = 0; k < c->n; k++) sum += c->counts[row * c->n + k];
    return sum;
}

static double share_of(const confusion *c, int64_t row, int64_t column) {
    const int64_t sum = row_sum(c, row);
    return sum ? (double)c->counts[row * c->n + column] / (double)sum : 0;
}

/* Prints a count. Its background is darker for a larger count, and green on the diagonal, whose answers are right. */
static void print_cell(const confusion *c, const look *look, int64_t row, int64_t column, int width) {
    const int64_t count = c->counts[row * c->n + column];
    const double share = share_of(c, row, column);
    if (look->colours && count) {
        static const int right[] = {22, 28, 34}, wrong[] = {52, 88, 160};
        const int level = share < 0.1 ? 0 : share < 0.5 ? 1 : 2;
        printf("\033[97;48;5;%dm", (row == column ? right : wrong)[level]);
    }
    printf("%*lld%s", width, (long long)count, look->colours && count ? "\033[0m" : "");
}

static int digits_of(int64_t number) {
    char text[24];
    return snprintf(text, sizeof text, "%lld", (long long)number);
}

/* Prints the most frequent mistakes, at most n. */
static void print_mistakes(const confusion *c, int n) {
    int64_t below = INT64_MAX, below_at = -1;
    for (int i = 0; i < n; i++) {
        int64_t most = 0, at = -1;
        for (int64_t k = 0; k < c->n * c->n; k++) {
            const bool later = c->counts[k] < below || (c->counts[k] == below && k > below_at);
            if (k / c->n != k % c->n && later && c->counts[k] > most) most = c->counts[k], at = k;
        }
        if (at < 0) return;
        if (!i) printf("most frequent mistakes\n");
        printf("  %s taken for %s: %lld (%.1f %% of it)\n", c->names[at / c->n], c->names[at % c->n], (long long)most,
               100 * share_of(c, at / c->n, at % c->n));
        below = most, below_at = at;
    }
}

static void print_confusion_plot(const confusion *c, const look *look) {
    int name = 5, width = 4;
    for (int64_t k = 0; k < c->n; k++) name = (int)strlen(c->names[k]) > name ? (int)strlen(c->names[k]) : name;
    if (name > look->columns / 4) name = look->columns / 4;
    for (int64_t k = 0; k < c->n * c->n; k++) width = digits_of(c->counts[k]) + 1 > width ? digits_of(c->counts[k]) + 1 : width;
    const bool numbers = name + 1 + (width * c->n) <= look->columns;
    const int cell = numbers ? width : name + 1 + 2 * c->n <= look->columns ? 2 : 1;
    const int64_t shown = numbers || name + 1 + c->n <= look->columns ? c->n : look->columns - name - 1;
    printf("%lld examples, accuracy %.2f %%\na row for each label, a column for each answer\n", (long long)c->examples,
           100 * c->accuracy);
    if (numbers) {
        printf("%*s ", name, "");
        for (int64_t k = 0; k < c->n; k++) printf(" %*.*s", cell - 1, cell - 1, c->names[k]);
        printf("\n");
    }
    for (int64_t row = 0; row < c->n; row++) {
        printf("%*.*s ", name, name, c->names[row]);
        for (int64_t k = 0; k < shown; k++) {
            if (numbers)
                print_cell(c, look, row, k, cell);
            else
                for (int i = 0; i < cell; i++)
                    printf("%s%s%s", look->colours ? row == k ? "\033[32m" : "\033[31m" : "", shade(look, share_of(c, row, k)),
                           look_plain(look));
        }
        printf("\n");
    }
    print_mistakes(c, 5);
}

static void svg_confusion(const confusion *c, strata_text *svg) {
    enum { LEFT = 140, TOP = 90, RIGHT = 30, BOTTOM = 30 };
    const double cell = c->n <= 12 ? 48 : c->n <= 30 ? 26 : 480.0 / (double)c->n;
    const double width = LEFT + RIGHT + cell * (double)c->n, height = TOP + BOTTOM + cell * (double)c->n;
    char text[96];
    svg_begin(svg, width < 420 ? 420 : width, height);
    snprintf(text, sizeof text, "confusion of %lld examples, accuracy %.2f %%", (long long)c->examples, 100 * c->accuracy);
    svg_text(svg, 16, 24, 14, "start", text);
    svg_text(svg, 16, TOP - 8, 11, "start", "label, answer →");
    for (int64_t row = 0; row < c->n; row++) {
        const double y = TOP + cell * (double)row;
        if (cell >= 9) svg_text(svg, LEFT - 6, y + cell / 2 + 4, 11, "end", c->names[row]);
        if (cell >= 9) {
            strata_text_add(svg, "<g transform=\"translate(%.1f %d) rotate(-40)\">", LEFT + cell * ((double)row + 0.5),
                            TOP - 6);
            svg_text(svg, 0, 0, 11, "start", c->names[row]);
            strata_text_add(svg, "</g>\n");
        }
        for (int64_t k = 0; k < c->n; k++) {
            const double x = LEFT + cell * (double)k, share = share_of(c, row, k);
            strata_text_add(svg,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" fill-opacity=\"%.3f\" "
                            "stroke=\"#ddd\" stroke-width=\"0.5\"/>\n",
                            x, y, cell, cell, row == k ? "#009e73" : "#d55e00", share > 0 ? 0.12 + 0.88 * share : 0);
            snprintf(text, sizeof text, "%lld", (long long)c->counts[row * c->n + k]);
            if (cell >= 24) svg_text(svg, x + cell / 2, y + cell / 2 + 4, cell >= 40 ? 12 : 9, "middle", text);
        }
    }
    svg_end(svg);
}

static int name_classes(confusion *c, const sample *sample, const strata_preprocessing *preprocessing) {
    c->names = calloc((size_t)c->n, sizeof *c->names);
    if (!c->names) return usage_error("plot: not enough memory"), EXIT_DEVICE;
    for (int64_t k = 0; k < c->n; k++) {
        const char *name = class_name(sample, preprocessing, k);
        if (name)
            snprintf(c->names[k], CLASS_NAME, "%s", name);
        else
            snprintf(c->names[k], CLASS_NAME, "%lld", (long long)k);
    }
    return EXIT_OK;
}

static int evaluate(strata_model *model, strata_device *device, const sample_data *data, strata_metrics *out_metrics,
                    strata_array *out_counts) {
    strata_error err = {0};
    const strata_compile_options compile = {.metrics = "confusion_matrix", .loss = choose_loss(model, NULL, data->dataset)};
    strata_status status = strata_model_compile(model, device, &compile, &err);
    if (!status) status = strata_model_evaluate(model, data->dataset, 0, out_metrics, &err);
    if (!status) status = strata_model_confusion_matrix(model, out_counts, &err);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

int plot_confusion(const plot_options *options, const char *path, const plot_target *target) {
    strata_model *model = NULL;
    strata_device *device = NULL;
    sample_data data = {.whole = true};
    strata_array counts = {0};
    strata_metrics metrics = {0};
    confusion c = {0};
    const sample *sample = NULL;
    int code = load(path, &model);
    if (!code && !classifies(model))
        code = usage_error(
            "plot: %s learns numbers or has several outputs, but a confusion matrix needs classes; strata evaluate %s DATA "
            "measures it",
            path, path);
    if (!code) sample = sample_of_model(model, &options->data);
    if (!code) code = recall_data(model, sample, &data);
    if (!code) code = open_data(sample, &options->data, "test", &data);
    if (!code) code = open_device(&options->device, &device);
    if (!code) code = evaluate(model, device, &data, &metrics, &counts);
    if (!code) {
        c = (confusion){
            .counts = counts.data, .n = counts.shape.dims[0], .accuracy = metrics.accuracy, .examples = metrics.examples};
        code = name_classes(&c, sample, data.preprocessing);
    }
    if (!code && target->svg) svg_confusion(&c, target->svg);
    if (!code && !target->svg) print_confusion_plot(&c, &target->look);
    free(c.names);
    strata_array_finish(&counts);
    strata_model_destroy(model);
    strata_device_close(device);
    close_data(&data);
    return code;
}

/* ---- weights ---- */

enum { BINS = 32 };

typedef struct weights {
    double mean, deviation, least, most;
    int64_t n, not_finite, bins[BINS], fullest;
} weights;

static weights measure(const float *values, int64_t n) {
    weights w = {.least = INFINITY, .most = -INFINITY, .n = n};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            w.not_finite++;
            continue;
        }
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        w.least = fmin(w.least, (double)values[i]);
        w.most = fmax(w.most, (double)values[i]);
    }
    const double finite = (double)(n - w.not_finite);
    if (finite < 1) w.least = w.most = 0;
    w.mean = finite > 0 ? sum / finite : 0;
    w.deviation = finite > 0 ? sqrt(fmax(0, squares / finite - w.mean * w.mean)) : 0;
    const double range = w.most > w.least ? w.most - w.least : 1;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) continue;
        int bin = (int)(((double)values[i] - w.least) / range * BINS);
        w.bins[bin < BINS ? bin : BINS - 1]++;
    }
    for (int i = 0; i < BINS; i++) w.fullest = w.bins[i] > w.fullest ? w.bins[i] : w.fullest;
    return w;
}

static void print_weights(const weights *w, const strata_parameter *p, const look *look) {
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, *const characters[] = {" ", ".", ":",
                                                                                                            "-", "=", "+",
                                                                                                            "*", "%", "#"};
    char head[400];
    snprintf(head, sizeof head, "%s %s%s", p->name, strata_shape_text(p->shape).text, p->state ? ", a state" : "");
    printf("%.*s\n  %s", look->columns, head, look_colour(look, 0));
    int bins = look->columns >= 2 * BINS ? BINS : BINS / 2;
    for (int i = 0; i < bins; i++) {
        const int each = BINS / bins;
        int64_t count = 0;
        for (int k = 0; k < each; k++) count += w->bins[i * each + k];
        const int level = count ? 1 + (int)(7.999 * (double)count / (double)(w->fullest * each)) : 0;
        fputs((look->utf8 ? bars : characters)[level > 8 ? 8 : level], stdout);
    }
    printf("%s  %.3g .. %.3g", look_plain(look), w->least, w->most);
    if (look->columns < 3 * BINS) printf("\n");
    printf("  mean %.3g, std %.3g", w->mean, w->deviation);
    if (w->not_finite) printf(", %lld NOT FINITE", (long long)w->not_finite);
    printf("\n");
}

static void svg_weights(const weights *w, const strata_parameter *p, strata_text *svg, double x, double y) {
    enum { WIDE = 300, HIGH = 90, BAR = WIDE / BINS };
    char text[400];
    snprintf(text, sizeof text, "%s %s", p->name, strata_shape_text(p->shape).text);
    svg_text(svg, x, y + 14, 12, "start", text);
    for (int i = 0; i < BINS; i++) {
        const double high = w->fullest ? (double)w->bins[i] / (double)w->fullest * HIGH : 0;
        strata_text_add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"%s\"/>\n", x + i * BAR,
                        y + 22 + HIGH - high, BAR - 1, high, svg_colour(w->not_finite ? 1 : 0));
    }
    snprintf(text, sizeof text, "%.3g", w->least);
    svg_text(svg, x, y + 22 + HIGH + 14, 10, "start", text);
    snprintf(text, sizeof text, "%.3g", w->most);
    svg_text(svg, x + BINS * BAR, y + 22 + HIGH + 14, 10, "end", text);
    snprintf(text, sizeof text, "mean %.3g, std %.3g", w->mean, w->deviation);
    svg_text(svg, x + BINS * BAR / 2.0, y + 22 + HIGH + 14, 10, "middle", text);
}

static strata_status plot_parameters(strata_model *model, const plot_target *target, strata_error *err) {
    enum { CELL_WIDE = 340, CELL_HIGH = 150, ACROSS = 2 };
    const int n = strata_model_n_parameters(model);
    if (target->svg) svg_begin(target->svg, ACROSS * CELL_WIDE + 20, (n + ACROSS - 1) / ACROSS * CELL_HIGH + 10.0);
    for (int i = 0; i < n; i++) {
        const strata_parameter p = strata_model_parameter(model, i);
        strata_array value = {0};
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, p.shape, &value, err));
        const strata_status status = strata_model_get_parameter(model, i, &value, err);
        const weights w = measure(value.data, status ? 0 : strata_shape_elements(p.shape));
        strata_array_finish(&value);
        STRATA_TRY(status);
        if (target->svg)
            svg_weights(&w, &p, target->svg, 20 + i % ACROSS * CELL_WIDE, 10 + i / ACROSS * CELL_HIGH);
        else
            print_weights(&w, &p, &target->look);
    }
    if (target->svg) svg_end(target->svg);
    return STRATA_OK;
}

int plot_weights(const plot_options *options, const char *path, const plot_target *target) {
    strata_error err = {0};
    strata_model *model = NULL;
    strata_device *device = NULL;
    device_flags host = options->device;
    if (!host.which) host.which = "host"; /* no computation is needed, so the host suffices */
    int code = load(path, &model);
    if (!code) code = open_device(&host, &device);
    if (!code) {
        strata_status status = strata_model_build(model, device, NULL, &err);
        if (!status) status = plot_parameters(model, target, &err);
        if (status) code = report(FAILING_RUN, status, &err);
    }
    strata_model_destroy(model);
    strata_device_close(device);
    return code;
}
