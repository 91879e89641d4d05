/* SPDX-License-Identifier: Apache-2.0
 *
 * strata evaluate: computes the quality of a saved model: loss, accuracy and other metrics. */
#include <stdio.h>

#include "own.h"
#include "scores.h"
#include "terminal.h"

typedef struct evaluate_options {
    data_options data;
    const char *metrics, *precision, *loss;
    device_flags device;
    int64_t batch;
    bool json;
} evaluate_options;

static const option_row rows[] = {
    DATA_OPTION_ROWS(evaluate_options, data),
    {"batch", "N", "examples per step (100)", OPTION_INT, offsetof(evaluate_options, batch), 1, 1e12},
    {"metrics", "A,B", "metrics besides loss and accuracy, as for strata train", OPTION_TEXT,
     offsetof(evaluate_options, metrics), 0, 0},
    {"loss", "NAME", "the loss that is measured (the model's; if it has none, one for the labels)", OPTION_TEXT,
     offsetof(evaluate_options, loss), 0, 0},
    {"precision", "TYPE", "the type in which activations are stored: f32, f16 or bf16 (as in the training)", OPTION_TEXT,
     offsetof(evaluate_options, precision), 0, 0},
    {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(evaluate_options, json), 0, 0},
    DEVICE_OPTION_ROWS(evaluate_options, device),
    {0}};

static void print_result(const strata_model *model, const strata_metrics *metrics, const scores *found, const sample *sample,
                         const strata_preprocessing *preprocessing) {
    line whole;
    FILE *to = line_begin(&whole);
    print_metrics(to, model, metrics);
    print_more(to, metrics, "");
    line_end(&whole, 4);
    if (!found->n_classes) print_confusion(model);
    print_scores(found, sample, preprocessing);
}

static void print_result_json(const strata_model *model, const strata_device *device, const strata_metrics *metrics,
                              const scores *found, const sample *sample, const strata_preprocessing *preprocessing) {
    printf("{\"examples\":%lld,\"loss\":", (long long)metrics->examples);
    print_json_number(metrics->loss, "%.9g");
    printf(",\"accuracy\":%.6f,\"device\":", metrics->accuracy);
    print_json_string(strata_device_get_info(device)->id);
    print_more_json(model, metrics);
    print_scores_json(found, sample, preprocessing);
    printf("}\n");
}

static int evaluate(const evaluate_options *options, strata_model *model, strata_device *device, const sample_data *test) {
    strata_error err = {0};
    strata_metrics metrics;
    scores found = {0};
    const sample *sample = sample_of_model(model, &options->data);
    const strata_compile_options compile = {.metrics = options->metrics,
                                            .loss = choose_loss(model, options->loss, test->dataset)};
    strata_status status = strata_model_compile(model, device, &compile, &err);
    fallback_report fallback = {0};
    if (!status && options->device.allow_fallback)
        status = say_what_the_host_runs(model, STRATA_PART_EVALUATION, options->batch, 0, device, &fallback, &err);
    if (!status) status = strata_model_evaluate(model, test->dataset, options->batch, &metrics, &err);
    if (!status) say_what_it_copied(&fallback, "batch");
    if (!status) status = scores_measure(model, test->dataset, test->preprocessing, options->batch, &found, &err);
    if (!status && options->json) print_result_json(model, device, &metrics, &found, sample, test->preprocessing);
    if (!status && !options->json) print_result(model, &metrics, &found, sample, test->preprocessing);
    scores_finish(&found);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

static int open_test_data(const strata_model *model, const data_options *options, sample_data *data) {
    const sample *sample = sample_of_model(model, options);
    int code = recall_data(model, sample, data);
    if (!code && data->preprocessing && !options->path)
        code =
            usage_error("evaluate: the model was trained on your own data; give the data: strata evaluate MODEL.strata DATA");
    return code ? code : open_data(sample, options, "test", data);
}

static int run(const command *command, int argc, char **argv) {
    evaluate_options options = {0};
    const char *arguments[2] = {NULL, NULL}, *path;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, arguments, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    path = arguments[0];
    if (arguments[1] && options.data.path) return usage_error("evaluate: give the data once, as %s or as --data", arguments[1]);
    if (arguments[1]) options.data.path = arguments[1];
    strata_error err = {0};
    strata_model *model = NULL;
    strata_device *device = NULL;
    sample_data test = {0};
    strata_status status = load_trained(path, &model, &err);
    code = status ? report(FAILING_DATA, status, &err) : set_precision(model, options.precision);
    if (!code) code = check_ports(path, model, options.data.path);
    if (!code) code = open_test_data(model, &options.data, &test);
    if (!code) code = open_device(&options.device, &device);
    if (!code) code = evaluate(&options, model, device, &test);
    strata_model_destroy(model);
    strata_device_close(device);
    close_data(&test);
    return code;
}

const command command_evaluate = {.name = "evaluate",
                                  .arguments = "MODEL.strata [DATA]",
                                  .summary = "measure a saved model on data with labels: all rows of DATA",
                                  .options = rows,
                                  .least_arguments = 1,
                                  .most_arguments = 2,
                                  .files = "rr",
                                  .run = run};
