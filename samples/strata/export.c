/* SPDX-License-Identifier: Apache-2.0
 *
 * strata export: writes a trained model as a file of C that needs no library. */
#include <stdio.h>
#include <string.h>

#include "samples.h"
#include "strata/interchange.h"

typedef struct export_options {
    const char *to, *name;
    int64_t most_mib;
    bool c;
} export_options;

static const option_row rows[] = {
    {"c", NULL, "write one file of C, which needs only libm", OPTION_FLAG, offsetof(export_options, c), 0, 0},
    {"to", "FILE", "the file to write", OPTION_OUTPUT, offsetof(export_options, to), 0, 0},
    {"name", "NAME", "the beginning of the names of its functions (made from the name of FILE)", OPTION_TEXT,
     offsetof(export_options, name), 0, 0},
    {"most-mib", "N", "the largest size of the file (64 MiB)", OPTION_INT, offsetof(export_options, most_mib), 1, 1 << 20},
    {0}};

static int run(const command *command, int argc, char **argv) {
    export_options options = {.most_mib = 64};
    const char *file = NULL;
    int n_files = 0;
    strata_error err = {0};
    strata_model *model = NULL;
    const int code = read_options(command, argc, argv, &options, &file, &n_files);
    if (code) return code < 0 ? EXIT_OK : code;
    if (!options.c) return usage_error("export needs --c, which is the only format; strata convert writes ONNX");
    if (!options.to) return usage_error("export needs --to FILE");
    strata_status status = load_trained(file, &model, &err);
    if (!status)
        status = strata_model_save_c(model, options.to,
                                     (strata_c_options){.name = options.name, .most_bytes = options.most_mib << 20}, &err);
    if (!status) printf("wrote %s; the comment at its beginning describes its functions\n", options.to);
    strata_model_destroy(model);
    return status ? report(status == STRATA_INVALID ? FAILING_USAGE : FAILING_DATA, status, &err) : EXIT_OK;
}

const command command_export = {
    .name = "export",
    .arguments = "MODEL.strata",
    .summary = "write a trained model as a file of C, without dependencies",
    .details =
        "  strata export digits.strata --c --to digits.c\n"
        "  cc -O3 -o program main.c -lm        with #include \"digits.c\" in main.c\n"
        "The file has the function void digits_predict(const float *x, float *y) for one example. For a model of a table it "
        "also has a function that converts a row to x. The results are those of strata predict, in f32.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run,
};
