/* SPDX-License-Identifier: Apache-2.0
 *
 * strata predict: class and probability (or number) for what a person has: pictures, a line of text, rows of a CSV, arrays. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/data/picture.h"
#include "core/file.h"
#include "picture.h"
#include "samples.h"

typedef struct predict_options {
    const char *input, *text, *columns, *precision;
    device_flags device;
    int64_t batch;
    bool invert, json;
} predict_options;

static const option_row rows[] = {
    {"input", "FILE", "PNG, PGM, PPM, .npy, IDX, CSV, or a document a line; maybe .gz", OPTION_TEXT,
     offsetof(predict_options, input), 0, 0},
    {"text", "LINE", "the text itself", OPTION_TEXT, offsetof(predict_options, text), 0, 0},
    {"columns", "A,B,...", "CSV: the columns to take (all)", OPTION_TEXT, offsetof(predict_options, columns), 0, 0},
    {"invert", NULL, "pictures: dark on bright, where bright on dark was trained", OPTION_FLAG,
     offsetof(predict_options, invert), 0, 0},
    {"batch", "N", "examples a step (100)", OPTION_INT, offsetof(predict_options, batch), 1, 1e12},
    {"precision", "TYPE", "what activations are stored in: f32, f16 or bf16 (as the model was trained)", OPTION_TEXT,
     offsetof(predict_options, precision), 0, 0},
    {"json", NULL, "a line of JSON a row", OPTION_FLAG, offsetof(predict_options, json), 0, 0},
    DEVICE_OPTION_ROWS(predict_options, device),
    {0}};

/* ---- what is to be judged ---- */

static bool is_table(const char *path) {
    return ends_with(path, ".csv") || ends_with(path, ".csv.gz") || ends_with(path, ".csv.xz");
}

static strata_status open_picture(const char *path, const strata_model *model, bool invert, strata_dataset **out,
                                  strata_error *err) {
    strata_array features = {0};
    STRATA_TRY(picture_read(path, strata_model_input_shape(model), invert, &features, err));
    features.shape.rank = strata_model_input_shape(model).rank + 1;
    return strata_dataset_take_arrays(&features, NULL, 0, out, err);
}

static strata_status open_numbers(const predict_options *options, const strata_model *model, strata_dataset **out,
                                  strata_error *err) {
    unsigned char head[16] = {0};
    if (is_table(options->input)) {
        column_list columns;
        STRATA_TRY(column_list_split(options->columns, &columns, err));
        strata_csv_options csv = {.features = columns.n ? columns.names : NULL, .n_features = columns.n};
        strata_status status = strata_dataset_csv(options->input, &csv, out, err);
        column_list_finish(&columns);
        return status;
    }
    FILE *file = fopen(options->input, "rb");
    if (!file) return strata_file_fail(err, errno, options->input, "open");
    size_t n = fread(head, 1, sizeof head, file);
    fclose(file);
    if (strata_picture_matches(head, n)) return open_picture(options->input, model, options->invert, out, err);
    return strata_dataset_from_file(options->input, strata_model_input_shape(model), out, err);
}

static strata_status open_texts(const predict_options *options, const strata_tokenizer *tokenizer, int64_t length,
                                strata_dataset **out, strata_error *err) {
    strata_texts *texts = NULL;
    if (options->text) return strata_dataset_from_text(options->text, tokenizer, length, out, err);
    if (is_table(options->input)) {
        column_list columns;
        STRATA_TRY(column_list_split(options->columns, &columns, err));
        strata_csv_options csv = {.features = columns.n ? columns.names : NULL, .n_features = columns.n};
        strata_status status = strata_texts_csv(options->input, &csv, &texts, err);
        column_list_finish(&columns);
        STRATA_TRY(status);
    } else {
        STRATA_TRY(strata_texts_lines(options->input, &texts, err));
    }
    strata_status status = strata_dataset_from_texts(texts, tokenizer, length, out, err);
    strata_texts_destroy(texts);
    return status;
}

static int open_input(const predict_options *options, const strata_model *model, strata_dataset **out) {
    strata_error err = {0};
    strata_tokenizer *tokenizer = NULL;
    strata_status status = strata_model_tokenizer(model, &tokenizer, &err);
    if (!status)
        status = open_texts(options, tokenizer, strata_model_input_shape(model).dims[0], out, &err);
    else if (status == STRATA_UNAVAILABLE && options->text)
        return usage_error("--text: the model has no vocabulary; it was not trained on texts. Give --input FILE");
    else if (status == STRATA_UNAVAILABLE)
        status = open_numbers(options, model, out, &err);
    strata_tokenizer_destroy(tokenizer);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* ---- what the model says ---- */

/* One example's outputs. A single probability is that of class 1. */
static void print_row(const sample *sample, const float *row, int64_t n, bool classifies, int64_t index, bool json) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    if (!classifies) {
        printf(json ? "{\"index\":%lld,\"value\":%.9g}\n" : "%lld\t%.6g\n", (long long)index, (double)row[0]);
        return;
    }
    double probability = (double)row[best];
    if (n == 1) best = probability >= 0.5, probability = best ? probability : 1 - probability;
    const char *name = class_name(sample, best);
    if (json) {
        printf("{\"index\":%lld,\"class\":%lld,", (long long)index, (long long)best);
        if (name) printf("\"name\":"), print_json_string(name), putchar(',');
        printf("\"probability\":%.6f}\n", probability);
    } else if (name) {
        printf("%lld\t%s\t%.4f\n", (long long)index, name, probability);
    } else {
        printf("%lld\t%lld\t%.4f\n", (long long)index, (long long)best, probability);
    }
}

static int predict(const predict_options *options, strata_model *model, strata_device *device, strata_dataset *data) {
    strata_error err = {0};
    strata_array predictions = {0};
    strata_status status = strata_model_compile(model, device, NULL, &err);
    if (!status) status = strata_model_predict(model, data, options->batch, &predictions, &err);
    if (status) return report(FAILING_RUN, status, &err);
    const sample *sample = sample_of_model(model, &(data_options){0});
    int64_t n = predictions.shape.dims[0], width = strata_shape_elements(predictions.shape) / n;
    bool classes = classifies(model);
    if (!options->json) printf(classes ? "index\tclass\tprobability\n" : "index\tvalue\n");
    for (int64_t i = 0; i < n; i++)
        print_row(sample, (const float *)predictions.data + i * width, width, classes, i, options->json);
    strata_array_finish(&predictions);
    return EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    predict_options options = {0};
    const char *path = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &path, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    if (!options.input == !options.text)
        return usage_error("predict needs --input FILE or --text LINE%s; strata help predict",
                           options.text ? ", not both" : "");
    strata_error err = {0};
    strata_model *model = NULL;
    strata_device *device = NULL;
    strata_dataset *data = NULL;
    strata_status status = strata_model_load(path, &model, &err);
    code = status ? report(FAILING_DATA, status, &err) : set_precision(model, options.precision);
    if (!code) code = open_input(&options, model, &data);
    if (!code) code = open_device(&options.device, &device);
    if (!code) code = predict(&options, model, device, data);
    strata_model_destroy(model);
    strata_device_close(device);
    strata_dataset_destroy(data);
    return code;
}

const command command_predict = {.name = "predict",
                                 .arguments = "MODEL.strata",
                                 .summary = "class and probability of pictures, texts, rows of numbers",
                                 .options = rows,
                                 .least_arguments = 1,
                                 .most_arguments = 1,
                                 .run = run};
