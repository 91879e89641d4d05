/* SPDX-License-Identifier: Apache-2.0
 *
 * strata predict: prints class and probability (or number) for the user's pictures, lines of text, rows of a CSV, or arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "own.h"
#include "picture.h"
#include "strata/file.h"
#include "strata/formats.h"
#include "strata/interchange.h"
#include "strata/json.h"

typedef struct predict_options {
    text_list inputs;
    const char *input, *text, *row, *columns, *precision, *to;
    table_flags table;
    device_flags device;
    int64_t batch;
    bool invert, json, probabilities, whole;
    const char *arrays;
} predict_options;

static const option_row rows[] = {
    {"input", "FILE", "the same as the argument FILE", OPTION_INPUTS, offsetof(predict_options, inputs), 0, 0},
    {"row", "1,2,...", "one row of numbers, in the order of the columns that the model was trained on", OPTION_TEXT,
     offsetof(predict_options, row), 0, 0},
    {"text", "LINE", "one text", OPTION_TEXT, offsetof(predict_options, text), 0, 0},
    {"columns", "A,B,...", "CSV: the columns of the features (those that the model was trained on)", OPTION_TEXT,
     offsetof(predict_options, columns), 0, 0},
    TABLE_OPTION_ROWS(predict_options, table),
    {"to", "FILE", "write the answers to this file: lines of JSON if it ends in .json or .jsonl, else CSV", OPTION_OUTPUT,
     offsetof(predict_options, to), 0, 0},
    {"whole", NULL, "with a .onnx file: evaluate the graph once, with the arrays of --inputs, whose axis 0 is no batch",
     OPTION_FLAG, offsetof(predict_options, whole), 0, 0},
    {"inputs", "FILE.npz", "with --whole: an array for each input, by its name; --to FILE.npz gets one for each output",
     OPTION_INPUT, offsetof(predict_options, arrays), 0, 0},
    {"probabilities", NULL, "also the probabilities of all classes, and not only of the answer", OPTION_FLAG,
     offsetof(predict_options, probabilities), 0, 0},
    {"invert", NULL,
     "pictures: invert the brightness, for a dark drawing on white when the model was trained on bright ones on black",
     OPTION_FLAG, offsetof(predict_options, invert), 0, 0},
    {"batch", "N", "examples per step (100)", OPTION_INT, offsetof(predict_options, batch), 1, 1e12},
    {"precision", "TYPE", "the type in which activations are stored: f32, f16 or bf16 (as in the training)", OPTION_TEXT,
     offsetof(predict_options, precision), 0, 0},
    {"json", NULL, "print one line of JSON for each row", OPTION_FLAG, offsetof(predict_options, json), 0, 0},
    DEVICE_OPTION_ROWS(predict_options, device),
    {0}};

/* ---- reading the examples ---- */

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
    const data_options data = {
        .path = options->input, .row = options->row, .columns = options->columns, .table = options->table};
    if (options->row || is_table(options->input) || !strcmp(options->input, "-"))
        return open_as_they_are(model, &data, out, err);
    size_t n = 0;
    STRATA_TRY(strata_stream_peek_file(options->input, head, sizeof head, &n, err));
    if (strata_picture_matches(head, n)) return open_picture(options->input, model, options->invert, out, err);
    if (n > 1 && (!memcmp(head, "\x93N", 2) || !memcmp(head, "PK", 2))) return open_as_they_are(model, &data, out, err);
    if (n > 1 && memcmp(head, "\0\0", 2))
        return strata_fail(err, STRATA_DATA,
                           "%s: is neither a picture (" STRATA_PICTURE_FORMATS
                           ") nor an array (.npy, .npz, IDX) nor called .csv",
                           options->input);
    return strata_dataset_from_file(options->input, strata_model_input_shape(model), out, err);
}

/* Whether each line of the file is a document; otherwise it is a table. */
static bool has_lines(const char *path) {
    return strcmp(path, "-") && (!is_table(path) || ends_with(path, ".txt"));
}

/* Opens texts: the text of --text, a file of lines, or for the model of a sample a table whose columns are all text. */
static strata_status open_texts(const predict_options *options, const strata_tokenizer *tokenizer, int64_t length,
                                strata_dataset **out, strata_error *err) {
    strata_texts *texts = NULL;
    const strata_csv_options opts = {.features = options->columns ? &options->columns : NULL, .n_features = !!options->columns};
    if (options->text) return strata_dataset_from_text(options->text, tokenizer, length, out, err);
    STRATA_TRY(has_lines(options->input) ? strata_texts_lines(options->input, &texts, err)
                                         : strata_texts_csv(options->input, &opts, &texts, err));
    strata_status status = strata_dataset_from_texts(texts, tokenizer, length, out, err);
    strata_texts_destroy(texts);
    return status;
}

static int open_input(const predict_options *options, const strata_model *model, const strata_preprocessing *preprocessing,
                      sample_data *opened) {
    strata_dataset **out = &opened->dataset;
    strata_error err = {0};
    strata_tokenizer *tokenizer = NULL;
    const data_options data = {
        .path = options->input, .row = options->row, .columns = options->columns, .table = options->table};
    opened->model = model;
    if (has_several_ports(model) && !preprocessing) return open_named_arrays(&data, "test", false, opened);
    strata_status status = strata_model_tokenizer(model, &tokenizer, &err);
    const bool table = preprocessing && strata_preprocessing_get_kind(preprocessing) == STRATA_PREPROCESSING_TABLE;
    const bool texts = !status && !table; /* in a table, texts may be some of several columns */
    int code = EXIT_OK;
    if (texts && options->row)
        code = usage_error("--row: the model learned from texts. Give --text LINE, or a FILE");
    else if (!texts && options->text)
        code = usage_error(table ? "--text: the model learned from the columns of a table. Give a FILE, or --row 1,2,..."
                                 : "--text: the model has no vocabulary; it was not trained on texts. Give a FILE");
    else if (preprocessing && !(texts && (options->text || has_lines(options->input))))
        code = open_unlabelled(preprocessing, &data, out);
    else {
        if (texts)
            status = open_texts(options, tokenizer, strata_model_input_shape(model).dims[0], out, &err);
        else if (status == STRATA_UNAVAILABLE)
            status = open_numbers(options, model, out, &err);
        if (status) code = report(FAILING_DATA, status, &err);
    }
    strata_tokenizer_destroy(tokenizer);
    return code;
}

/* ---- writing the answers ---- */

/* Writes the answers to the file of --to, or to standard output. */
static int write_answers(answers *a, const char *to, int64_t n) {
    strata_error err = {0};
    char *bytes = NULL;
    size_t n_bytes = 0;
    strata_status status = strata_text_take(&a->text, &bytes, &n_bytes, &err);
    if (!status && to) status = strata_file_write(to, bytes, n_bytes, &err);
    if (!status && !to) fwrite(bytes, 1, n_bytes, stdout);
    free(bytes);
    if (status) return report(FAILING_DATA, status, &err);
    if (to) printf("%lld answer%s in %s\n", (long long)n, n == 1 ? "" : "s", to);
    return EXIT_OK;
}

static int predict(const predict_options *options, strata_model *model, const strata_preprocessing *preprocessing,
                   strata_device *device, strata_dataset *data) {
    strata_error err = {0};
    strata_array predictions = {0};
    strata_status status = strata_model_build(model, device, NULL, &err);
    fallback_report fallback = {0};
    if (!status && options->device.allow_fallback)
        status = say_what_the_host_runs(model, STRATA_PART_PREDICTION, options->batch, 0, device, &fallback, &err);
    if (!status) status = predict_outputs(model, data, options->batch, &predictions, &err);
    if (status) return report(FAILING_RUN, status, &err);
    say_what_it_copied(&fallback, "batch");
    const char *to = options->to;
    const int64_t n = predictions.shape.dims[0];
    answers a = {.model = model,
                 .data = data,
                 .sample = sample_of_model(model, &(data_options){0}),
                 .preprocessing = preprocessing,
                 .json = options->json || (to && (ends_with(to, ".json") || ends_with(to, ".jsonl"))),
                 .csv = to != NULL,
                 .classes = predicts_classes(model),
                 .probabilities = options->probabilities,
                 .width = strata_shape_elements(predictions.shape) / n};
    if (preprocessing) strata_preprocessing_restore(preprocessing, &predictions);
    add_header(&a);
    for (int64_t i = 0; i < n; i++) add_answer(&a, (const float *)predictions.data + i * a.width, i);
    strata_array_finish(&predictions);
    return write_answers(&a, to, n);
}

/* ---- an ONNX graph ---- */

static strata_status set_inputs(const char *path, strata_onnx_graph *graph, strata_error *err) {
    unsigned char *bytes;
    size_t n_bytes;
    strata_status status = STRATA_OK;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(36), &bytes, &n_bytes, err));
    for (int i = 0; !status && strata_onnx_graph_input(graph, i); i++) {
        const char *name = strata_onnx_graph_input(graph, i);
        strata_array array = {0};
        status = strata_npz_parse(path, bytes, n_bytes, name, &array, err);
        if (!status) status = strata_onnx_graph_set(graph, name, &array, err);
        strata_array_finish(&array);
    }
    free(bytes);
    return status;
}

static int evaluate_graph(const char *file, const predict_options *options, const char *arrays) {
    strata_onnx_graph *graph = NULL;
    strata_named_array outputs[STRATA_ZIP_MOST_CONTENTS];
    strata_error err = {0};
    int n = 0;
    if (!ends_with(file, ".onnx")) return usage_error("--whole: %s is no .onnx file", file);
    if (!arrays || !is_npz(arrays)) return usage_error("--whole: give --inputs FILE.npz, with an array for each input");
    if (!options->to || !ends_with(options->to, ".npz"))
        return usage_error("--whole: give --to FILE.npz, for the arrays of the outputs");
    strata_status status = strata_onnx_graph_open(file, &graph, &err);
    if (!status) status = set_inputs(arrays, graph, &err);
    if (!status) status = strata_onnx_graph_run(graph, &err);
    for (; !status && n < STRATA_ZIP_MOST_CONTENTS && strata_onnx_graph_output(graph, n).name; n++) {
        const strata_onnx_result y = strata_onnx_graph_output(graph, n);
        outputs[n] = (strata_named_array){y.name, y.array};
    }
    if (!status) status = strata_npz_write(options->to, outputs, n, &err);
    if (!status) printf("%d output%s in %s\n", n, n == 1 ? "" : "s", options->to);
    strata_onnx_graph_destroy(graph);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* Checks that the examples are given exactly once. */
static int check_options(predict_options *options, const char *file) {
    if (options->inputs.n + !!file > 1)
        return usage_error("predict takes one FILE; join them, or call it for each: \"%s\" and \"%s\" are two",
                           file ? file : options->inputs.items[0], options->inputs.items[file ? 0 : 1]);
    static const char *const others[] = {".parquet", ".npy", ".npz", ".xlsx", ".xls", ".ods", ".feather", ".h5"};
    for (size_t i = 0; options->to && i < sizeof others / sizeof *others; i++)
        if (ends_with(options->to, others[i])) return usage_error("--to %s: answers are written as .csv or .json", options->to);
    options->input = file ? file : options->inputs.n ? options->inputs.items[0] : NULL;
    const int n = !!options->input + !!options->text + !!options->row;
    if (n != 1)
        return usage_error("predict needs a FILE, --text LINE or --row 1,2,...%s; strata help predict",
                           n ? ", not more than one" : "");
    if (options->row && options->columns)
        return usage_error("--columns: a --row has no names; give all columns in their order");
    return EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    predict_options options = {0};
    const char *arguments[2] = {NULL, NULL};
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, arguments, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    if (options.whole) return evaluate_graph(arguments[0], &options, options.arrays ? options.arrays : arguments[1]);
    if (options.arrays) return usage_error("--inputs: it is for a .onnx file with --whole; give the data as FILE");
    code = check_options(&options, arguments[1]);
    if (code) return code;
    strata_error err = {0};
    strata_model *model = NULL;
    strata_device *device = NULL;
    sample_data data = {0};
    strata_preprocessing *preprocessing = NULL;
    strata_status status = load_trained(arguments[0], &model, &err);
    if (!status) status = recall_preprocessing(model, &preprocessing, &err);
    code = status ? report(FAILING_DATA, status, &err) : set_precision(model, options.precision);
    if (!code) code = check_ports(arguments[0], model, options.input);
    if (!code) code = open_input(&options, model, preprocessing, &data);
    if (!code) code = open_device(&options.device, &device);
    if (!code) code = predict(&options, model, preprocessing, device, data.dataset);
    strata_model_destroy(model);
    strata_device_close(device);
    close_data(&data);
    strata_preprocessing_destroy(preprocessing);
    return code;
}

const command command_predict = {
    .name = "predict",
    .arguments = "MODEL.strata [FILE]",
    .summary = "predict classes or numbers for pictures, texts, rows of tables or arrays",
    .details =
        "FILE is a table (CSV, with or without a header), a picture or a folder of pictures, an array (.npy, .npz, IDX), or a "
        "file\n"
        "with a text in each line; it may be compressed (.gz, .xz). - is a table on standard input.\n"
        "An ONNX graph whose inputs have no axis of examples is evaluated as it is:\n"
        "strata predict x.onnx --inputs x.npz --whole --to y.npz\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 2,
    .files = "rr",
    .run = run};
