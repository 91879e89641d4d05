/* SPDX-License-Identifier: Apache-2.0
 *
 * strata plot: curves of training runs, and pictures of a model, in the terminal or as SVG. */
#include "plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "strata/file.h"
#include "terminal.h"

enum { MOST_FILES = 8 };

static const option_row rows[] = {
    {"svg", "FILE", "write the plot as a picture to this file", OPTION_OUTPUT, offsetof(plot_options, svg), 0, 0},
    {"show", "A,B",
     "the curves of runs: loss, accuracy, learning_rate, gradient_norm, weight_norm, samples_per_s, ... (loss,accuracy)",
     OPTION_TEXT, offsetof(plot_options, show), 0, 0},
    {"steps", NULL, "runs: plot each step instead of each epoch", OPTION_FLAG, offsetof(plot_options, steps), 0, 0},
    {"width", "N", "the width in columns (the terminal's)", OPTION_INT, offsetof(plot_options, width), 20, 1000},
    {"height", "N", "runs: the height of a chart in lines (fits the terminal)", OPTION_INT, offsetof(plot_options, height), 2,
     200},
    {"confusion", "DATA", "plot a model's confusion matrix on these data, which are given as for strata evaluate", OPTION_INPUT,
     offsetof(plot_options, data.path), 0, 0},
    {"label", "COLUMN", "with --confusion and a CSV: the column with the labels", OPTION_TEXT,
     offsetof(plot_options, data.label), 0, 0},
    {"columns", "A,B,...", "with --confusion and a CSV: the columns of the model's features", OPTION_TEXT,
     offsetof(plot_options, data.columns), 0, 0},
    TABLE_OPTION_ROWS(plot_options, data.table),
    {"weights", NULL, "plot the distribution of a model's weights", OPTION_FLAG, offsetof(plot_options, weights), 0, 0},
    DEVICE_OPTION_ROWS(plot_options, device),
    {0}};

static int write_svg(const char *path, strata_text *svg) {
    strata_error err = {0};
    char *text = NULL;
    size_t bytes = 0;
    strata_status status = strata_text_take(svg, &text, &bytes, &err);
    if (!status) status = strata_file_write(path, text, bytes, &err);
    free(text);
    if (status) return report(FAILING_DATA, status, &err);
    printf("wrote %s\n", path);
    return EXIT_OK;
}

static bool is_log(const char *path) {
    return ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".csv");
}

static int plot(const plot_options *options, const char *const *files, int n, const plot_target *target) {
    const bool of_model = options->data.path || options->weights;
    int n_logs = 0;
    for (int i = 0; i < n; i++) n_logs += is_log(files[i]);
    if (options->data.path && options->weights) return usage_error("plot: give --confusion or --weights, not both");
    if (of_model && (n != 1 || n_logs))
        return usage_error("plot: --%s is of one model, as strata train --save FILE.strata writes it",
                           options->weights ? "weights" : "confusion");
    if (!of_model && n_logs < n)
        return usage_error(
            "plot: a run's file ends in .jsonl or .csv (strata train --log FILE); for a model, give --confusion DATA or "
            "--weights");
    if (options->data.path) return plot_confusion(options, files[0], target);
    if (options->weights) return plot_weights(options, files[0], target);
    return plot_logs(options, files, n, target);
}

static int run(const command *command, int argc, char **argv) {
    plot_options options = {0};
    const char *files[MOST_FILES] = {NULL};
    int n = 0;
    int code = read_options(command, argc, argv, &options, files, &n);
    if (code) return code < 0 ? EXIT_OK : code;
    strata_text svg = {0};
    const plot_target target = {.look = {.columns = options.width ? (int)options.width : terminal_columns(STDOUT_FILENO),
                                         .rows = terminal_rows(STDOUT_FILENO),
                                         .colours = terminal_has_colours(STDOUT_FILENO),
                                         .utf8 = locale_is_utf8()},
                                .rows = (int)options.height,
                                .svg = options.svg ? &svg : NULL};
    code = plot(&options, files, n, &target);
    if (!code && options.svg) code = write_svg(options.svg, &svg);
    strata_text_finish(&svg);
    return code;
}

const command command_plot = {.name = "plot",
                              .arguments = "RUN.jsonl...|MODEL.strata",
                              .summary = "draw curves of runs, a confusion matrix, or weights",
                              .details =
                                  "  strata train mnist --log run.jsonl --validation-split 0.1 --save mnist.strata\n"
                                  "  strata plot run.jsonl                         loss and accuracy, in the terminal\n"
                                  "  strata plot run.jsonl other.jsonl --svg a.svg\n"
                                  "  strata plot mnist.strata --confusion DIR\n"
                                  "  strata plot mnist.strata --weights\n",
                              .options = rows,
                              .least_arguments = 1,
                              .most_arguments = MOST_FILES,
                              .files = "r",
                              .run = run};
