/* SPDX-License-Identifier: Apache-2.0
 *
 * strata convert: converts a model file to another format. The formats are given by the endings of the files' names. */
#include <stdio.h>
#include <string.h>

#include "samples.h"
#include "strata/interchange.h"
#include "strata/preprocessing.h"
#include "strata/tokenizer.h"

typedef struct convert_options {
    const char *map, *model;
    bool whole;
} convert_options;

static const option_row rows[] = {
    {"map", "FILE",
     "with .safetensors: a file that assigns its names to parameters, with lines \"THEIR.NAME OUR/NAME [linear|conv2d|..]\", "
     "or "
     "\"THEIR.NAME -\" for a tensor that is not used",
     OPTION_INPUT, offsetof(convert_options, map), 0, 0},
    {"model", "MODEL", "with .safetensors: the model that the weights belong to, a .json, .strata, .onnx or .keras file",
     OPTION_INPUT, offsetof(convert_options, model), 0, 0},
    {"whole", NULL, "with .onnx: axis 0 of its inputs is not a batch; the model takes one example at a time", OPTION_FLAG,
     offsetof(convert_options, whole), 0, 0},
    {0}};

static strata_status load_strata(const char *path, const convert_options *options, strata_model **out, strata_error *err) {
    (void)options;
    return strata_model_load(path, out, err);
}

static strata_status load_json(const char *path, const convert_options *options, strata_model **out, strata_error *err) {
    (void)options;
    return strata_model_read_json(path, out, err);
}

static strata_status load_onnx(const char *path, const convert_options *options, strata_model **out, strata_error *err) {
    return strata_model_load_onnx(path, (strata_onnx_options){.whole = options->whole}, out, err);
}

static strata_status load_keras(const char *path, const convert_options *options, strata_model **out, strata_error *err) {
    (void)options;
    return strata_model_load_keras(path, out, err);
}

static strata_status load_state_dict(const char *path, const convert_options *options, strata_model **out, strata_error *err);

static strata_status save_strata(strata_model *model, const char *path, const convert_options *options, strata_error *err) {
    (void)options;
    return strata_model_save(model, path, err);
}

static strata_status save_onnx(strata_model *model, const char *path, const convert_options *options, strata_error *err) {
    (void)options;
    return strata_model_save_onnx(model, path, err);
}

static strata_status save_keras(strata_model *model, const char *path, const convert_options *options, strata_error *err) {
    (void)options;
    return strata_model_save_keras(model, path, err);
}

static strata_status save_state_dict(strata_model *model, const char *path, const convert_options *options, strata_error *err) {
    if (!options->map)
        return strata_fail(err, STRATA_INVALID, "%s: give --map, which contains the names for the weights", path);
    return strata_model_save_state_dict(model, path, options->map, err);
}

/* The formats, and the functions that read and write them. A model.json has no weights, so it can only be the value of
 * --model. */
static const struct {
    const char *ending;
    strata_status (*load)(const char *path, const convert_options *options, strata_model **out, strata_error *err);
    strata_status (*save)(strata_model *model, const char *path, const convert_options *options, strata_error *err);
} formats[] = {{".strata", load_strata, save_strata},
               {".onnx", load_onnx, save_onnx},
               {".keras", load_keras, save_keras},
               {".h5", load_keras, NULL},
               {".hdf5", load_keras, NULL},
               {".safetensors", load_state_dict, save_state_dict},
               {".json", load_json, NULL}};
enum { N_FORMATS = sizeof formats / sizeof *formats, JSON_FORMAT = N_FORMATS - 1 };

/* The index of the format with the path's ending; -1: there is none. */
static int format_of(const char *path) {
    for (int i = 0; i < N_FORMATS; i++) {
        const size_t n = strlen(path), k = strlen(formats[i].ending);
        if (n > k && !strcmp(path + n - k, formats[i].ending)) return i;
    }
    return -1;
}

static strata_status load_state_dict(const char *path, const convert_options *options, strata_model **out, strata_error *err) {
    const int format = options->model ? format_of(options->model) : -1;
    strata_model *model = NULL;
    if (!options->map || format < 0 || formats[format].load == load_state_dict)
        return strata_fail(
            err, STRATA_INVALID,
            "%s has weights alone: --model names the model that they are of (.json, .strata, .onnx or .keras), --map "
            "which weight is which parameter",
            path);
    STRATA_TRY(formats[format].load(options->model, options, &model, err));
    const strata_status status = strata_model_take_state_dict(model, path, options->map, err);
    if (status)
        strata_model_destroy(model);
    else
        *out = model;
    return status;
}

/* Says what the caller of the file must do, where the file does not do what `strata predict` does with the data. */
static void say_what_it_takes(const strata_model *model, const char *path) {
    strata_preprocessing *p = NULL;
    strata_tokenizer *tokenizer = NULL;
    if (!ends_with(path, ".onnx") && !ends_with(path, ".keras")) return;
    const bool known = strata_model_note(model, "preprocessing") && !strata_model_preprocessing(model, &p, NULL);
    if (known && strata_preprocessing_get_kind(p) == STRATA_PREPROCESSING_PICTURES)
        printf("note: it takes pictures as numbers from 0 to 1, %s: divide their bytes by 255, and resize them first\n",
               strata_shape_text(strata_model_input_shape(model)).text);
    if (!strata_model_tokenizer(model, &tokenizer, NULL))
        printf("note: it takes tokens, not texts; the vocabulary that makes them stays in the .strata file\n");
    strata_tokenizer_destroy(tokenizer);
    strata_preprocessing_destroy(p);
}

static int run_convert(const command *command, int argc, char **argv) {
    convert_options options = {0};
    const char *files[2];
    int n_files = 0;
    strata_error err = {0};
    strata_model *model = NULL;
    const int code = read_options(command, argc, argv, &options, files, &n_files);
    if (code) return code < 0 ? EXIT_OK : code;
    const int from = format_of(files[0]), to = format_of(files[1]);
    if (from == JSON_FORMAT)
        return usage_error("%s: describes a model without weights; strata train %s --save MODEL.strata trains it", files[0],
                           files[0]);
    if (from < 0 && foreign_model(files[0])) return usage_error("%s: %s", files[0], foreign_model(files[0]));
    for (int i = 0; i < 2; i++)
        if ((i ? to : from) < 0 || (i && !formats[to].save))
            return usage_error(
                "%s: the ending of a model's name gives its format; it must end in .strata, .onnx, .keras%s or .safetensors",
                files[i], i ? "" : ", .h5");
    strata_status status = formats[from].load(files[0], &options, &model, &err);
    if (!status) status = formats[to].save(model, files[1], &options, &err);
    if (!status) printf("%s: %d parameters, from %s\n", files[1], strata_model_n_parameters(model), files[0]);
    if (!status) say_what_it_takes(model, files[1]);
    strata_model_destroy(model);
    return status ? report(status == STRATA_INVALID ? FAILING_USAGE : FAILING_DATA, status, &err) : EXIT_OK;
}

const command command_convert = {
    .name = "convert",
    .arguments = "FROM TO",
    .summary = "convert model files of other programs, in both directions: ONNX, Keras, PyTorch's weights",
    .details =
        "The endings of the names give the formats: .strata, .onnx, .keras and .safetensors (only weights, with --map) are "
        "read\n"
        "and written, .h5 files of Keras only read. A model that was read has no loss and no preprocessing: its outputs are "
        "those\n"
        "of the file, and it gets data as they are. strata train --from MODEL.strata DATA --loss NAME continues its "
        "training.\n",
    .options = rows,
    .least_arguments = 2,
    .most_arguments = 2,
    .files = "rw",
    .run = run_convert,
};
