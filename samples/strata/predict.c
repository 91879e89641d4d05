/* SPDX-License-Identifier: Apache-2.0
 *
 * strata predict: class and probability (or number) for what a person has: pictures, a line of text, rows of a CSV, arrays. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/data/format/picture.h"
#include "core/data/format/stream.h"
#include "picture.h"
#include "rows.h"
#include "samples.h"

typedef struct predict_options {
    const char *input, *text, *row, *columns, *precision;
    device_flags device;
    int64_t batch;
    bool invert, json;
} predict_options;

static const option_row rows[] = {
    {"input", "FILE", "PNG, PGM, PPM, .npy, IDX, CSV (its header may be left out), or a document a line; maybe .gz",
     OPTION_TEXT, offsetof(predict_options, input), 0, 0},
    {"row", "1,2,...", "the numbers themselves, in the order of the columns that the model learned from", OPTION_TEXT,
     offsetof(predict_options, row), 0, 0},
    {"text", "LINE", "the text itself", OPTION_TEXT, offsetof(predict_options, text), 0, 0},
    {"columns", "A,B,...", "CSV: the columns to take (those that the model learned from)", OPTION_TEXT,
     offsetof(predict_options, columns), 0, 0},
    {"invert", NULL, "pictures: dark on bright, where bright on dark was trained", OPTION_FLAG,
     offsetof(predict_options, invert), 0, 0},
    {"batch", "N", "examples a step (100)", OPTION_INT, offsetof(predict_options, batch), 1, 1e12},
    {"precision", "TYPE", "what activations are stored in: f32, f16 or bf16 (as the model was trained)", OPTION_TEXT,
     offsetof(predict_options, precision), 0, 0},
    {"json", NULL, "a line of JSON a row", OPTION_FLAG, offsetof(predict_options, json), 0, 0},
    DEVICE_OPTION_ROWS(predict_options, device),
    {0}};

/* ---- what is to be judged ---- */

static strata_status open_picture(const char *path, const strata_model *model, bool invert, strata_dataset **out,
                                  strata_error *err) {
    strata_array features = {0};
    STRATA_TRY(picture_read(path, strata_model_input_shape(model), invert, &features, err));
    features.shape.rank = strata_model_input_shape(model).rank + 1;
    return strata_dataset_take_arrays(&features, NULL, 0, out, err);
}

/* The columns that --columns names, else those that the model learned from, else all. */
static strata_status choose(const predict_options *options, const csv_schema *schema, chosen_columns *out_chosen,
                            strata_error *err) {
    const data_options wanted = {.columns = options->columns};
    STRATA_TRY(choose_columns(&(sample){0}, &wanted, schema, out_chosen, err));
    out_chosen->csv.label = NULL;
    out_chosen->csv.n_labels = 0;
    return STRATA_OK;
}

static strata_status read_rows(const predict_options *options, const strata_model *model, const csv_schema *schema,
                               strata_csv **out_csv, strata_error *err) {
    if (options->row) return rows_parse("--row", options->row, model, schema, out_csv, err);
    if (options->columns) return strata_csv_read(options->input, 0, out_csv, err); /* names need a header */
    return rows_read(options->input, model, schema, out_csv, err);
}

static strata_status open_table_rows(const predict_options *options, const strata_model *model, const csv_schema *schema,
                                     strata_dataset **out, strata_error *err) {
    strata_csv *csv = NULL;
    chosen_columns columns = {0};
    strata_status status = choose(options, schema, &columns, err);
    if (!status) status = read_rows(options, model, schema, &csv, err);
    if (!status) status = strata_dataset_from_csv(csv, &columns.csv, out, err);
    strata_csv_destroy(csv);
    chosen_columns_finish(&columns);
    return status;
}

static strata_status open_numbers(const predict_options *options, const strata_model *model, const csv_schema *schema,
                                  strata_dataset **out, strata_error *err) {
    unsigned char head[16] = {0};
    if (options->row || is_table(options->input)) return open_table_rows(options, model, schema, out, err);
    size_t n = 0;
    STRATA_TRY(strata_stream_peek_file(options->input, head, sizeof head, &n, err));
    if (strata_picture_matches(head, n)) return open_picture(options->input, model, options->invert, out, err);
    if (n > 1 && memcmp(head, "\x93N", 2) && memcmp(head, "\0\0", 2))
        return strata_fail(err, STRATA_DATA,
                           "%s: is neither a picture (PNG, PGM, PPM) nor an array (.npy, IDX) nor called .csv", options->input);
    return strata_dataset_from_file(options->input, strata_model_input_shape(model), out, err);
}

static strata_status read_texts(const predict_options *options, const csv_schema *schema, strata_texts **out_texts,
                                strata_error *err) {
    strata_csv *csv = NULL;
    chosen_columns columns = {0};
    if (!is_table(options->input)) return strata_texts_lines(options->input, out_texts, err);
    strata_status status = choose(options, schema, &columns, err);
    if (!status) status = strata_csv_read(options->input, 0, &csv, err);
    if (!status) status = strata_texts_from_csv(csv, &columns.csv, out_texts, err);
    strata_csv_destroy(csv);
    chosen_columns_finish(&columns);
    return status;
}

static strata_status open_texts(const predict_options *options, const csv_schema *schema, const strata_tokenizer *tokenizer,
                                int64_t length, strata_dataset **out, strata_error *err) {
    strata_texts *texts = NULL;
    if (options->text) return strata_dataset_from_text(options->text, tokenizer, length, out, err);
    STRATA_TRY(read_texts(options, schema, &texts, err));
    strata_status status = strata_dataset_from_texts(texts, tokenizer, length, out, err);
    strata_texts_destroy(texts);
    return status;
}

static int open_input(const predict_options *options, const strata_model *model, const csv_schema *schema,
                      strata_dataset **out) {
    strata_error err = {0};
    strata_tokenizer *tokenizer = NULL;
    strata_status status = strata_model_tokenizer(model, &tokenizer, &err);
    if (!status && options->row) {
        strata_tokenizer_destroy(tokenizer);
        return usage_error("--row: the model learned from texts. Give --text LINE, or --input FILE");
    }
    if (!status)
        status = open_texts(options, schema, tokenizer, strata_model_input_shape(model).dims[0], out, &err);
    else if (status == STRATA_UNAVAILABLE && options->text)
        return usage_error("--text: the model has no vocabulary; it was not trained on texts. Give --input FILE");
    else if (status == STRATA_UNAVAILABLE)
        status = open_numbers(options, model, schema, out, &err);
    strata_tokenizer_destroy(tokenizer);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* ---- what the model says ---- */

static void print_numbers(const float *row, int64_t n, int64_t index, bool json) {
    if (!json) {
        printf("%lld", (long long)index);
        for (int64_t i = 0; i < n; i++) printf("\t%.6g", (double)row[i]);
        putchar('\n');
        return;
    }
    printf("{\"index\":%lld,%s", (long long)index, n == 1 ? "\"value\":" : "\"values\":[");
    for (int64_t i = 0; i < n; i++) printf("%s", i ? "," : ""), print_json_number(row[i], "%.9g");
    printf(n == 1 ? "}\n" : "]}\n");
}

/* One example's probabilities; a single one is that of class 1. Where one is no number, as of an input too large, there is no
 * answer. */
static void print_class(const sample *sample, const csv_schema *schema, const float *row, int64_t n, int64_t index, bool json) {
    int64_t best = 0;
    for (int64_t i = 1; i < n && !isnan(row[best]); i++)
        if (row[i] > row[best] || isnan(row[i])) best = i;
    double probability = (double)row[best];
    const bool known = !isnan(probability);
    if (n == 1 && known) best = probability >= 0.5, probability = best ? probability : 1 - probability;
    const char *name = known ? class_name(sample, schema, best) : NULL;
    char number[24];
    snprintf(number, sizeof number, known ? "%lld" : json ? "null" : "-", (long long)best);
    if (!json) {
        printf("%lld\t%s\t%.4f\n", (long long)index, name ? name : number, known ? probability : NAN);
        return;
    }
    printf("{\"index\":%lld,\"class\":%s,", (long long)index, number);
    if (name) printf("\"name\":"), print_json_string(name), putchar(',');
    printf("\"probability\":"), print_json_number(probability, "%.6f"), printf("}\n");
}

static int predict(const predict_options *options, strata_model *model, const csv_schema *schema, strata_device *device,
                   strata_dataset *data) {
    strata_error err = {0};
    strata_array predictions = {0};
    strata_status status = strata_model_compile(model, device, NULL, &err);
    fallback_report fallback = {0};
    if (!status && options->device.allow_fallback)
        status = say_what_the_host_runs(model, STRATA_PART_PREDICTION, options->batch, 0, device, &fallback, &err);
    if (!status) status = strata_model_predict(model, data, options->batch, &predictions, &err);
    if (status) return report(FAILING_RUN, status, &err);
    say_what_it_copied(&fallback, "batch");
    const sample *sample = sample_of_model(model, &(data_options){0});
    int64_t n = predictions.shape.dims[0], width = strata_shape_elements(predictions.shape) / n;
    bool classes = classifies(model);
    if (!options->json) printf(classes ? "index\tclass\tprobability\n" : width == 1 ? "index\tvalue\n" : "index\tvalues\n");
    for (int64_t i = 0; i < n; i++)
        if (classes)
            print_class(sample, schema, (const float *)predictions.data + i * width, width, i, options->json);
        else
            print_numbers((const float *)predictions.data + i * width, width, i, options->json);
    strata_array_finish(&predictions);
    return EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    predict_options options = {0};
    const char *path = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &path, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    const int n_inputs = !!options.input + !!options.text + !!options.row;
    if (n_inputs != 1)
        return usage_error("predict needs --input FILE, --text LINE or --row 1,2,...%s; strata help predict",
                           n_inputs ? ", not more than one" : "");
    if (options.row && options.columns) return usage_error("--columns: a --row has no names; it is all columns in their order");
    strata_error err = {0};
    strata_model *model = NULL;
    strata_device *device = NULL;
    strata_dataset *data = NULL;
    csv_schema schema = {0};
    strata_status status = strata_model_load(path, &model, &err);
    if (!status) status = schema_read(model, &schema, &err);
    code = status ? report(FAILING_DATA, status, &err) : set_precision(model, options.precision);
    if (!code) code = open_input(&options, model, &schema, &data);
    if (!code) code = open_device(&options.device, &device);
    if (!code) code = predict(&options, model, &schema, device, data);
    strata_model_destroy(model);
    strata_device_close(device);
    strata_dataset_destroy(data);
    schema_finish(&schema);
    return code;
}

const command command_predict = {.name = "predict",
                                 .arguments = "MODEL.strata",
                                 .summary = "class and probability of pictures, texts, rows of numbers",
                                 .options = rows,
                                 .least_arguments = 1,
                                 .most_arguments = 1,
                                 .run = run};
