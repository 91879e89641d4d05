/* SPDX-License-Identifier: Apache-2.0
 *
 * strata summary: a model's layers, their shapes and parameters, and what a training step costs. Needs no data and no accelerator. */
#include <stdio.h>

#include "samples.h"

typedef struct summary_options {
    int64_t batch;
    bool json;
} summary_options;

static const option_row rows[] = {{"batch", "N", "examples a step (64)", OPTION_INT, offsetof(summary_options, batch), 1, 1e12},
                                  {"json", NULL, "one line of JSON", OPTION_FLAG, offsetof(summary_options, json), 0, 0},
                                  {0}};

static void print_text(const strata_model_summary *s) {
    printf("%-24s %-18s %-22s %12s %14s\n", "layer", "kind", "output", "parameters", "FLOPs");
    for (int i = 0; i < s->n_layers; i++) {
        const strata_layer_summary *layer = &s->layers[i];
        printf("%-24s %-18s %-22s %12lld %14s\n", layer->name, layer->kind, strata_shape_text(layer->output).text,
               (long long)layer->parameters, readable(layer->flops).text);
    }
    printf("parameters      %lld (%sB)\n", (long long)s->parameters, readable((double)s->parameters * 4).text);
    printf("forward         %sFLOP, %s an example\n", readable(s->forward_flops).text,
           readable(s->forward_flops / (double)s->batch).text);
    printf("a training step %sFLOP, %sB read and written, %sB of memory\n", readable(s->step_flops).text,
           readable(s->step_bytes).text, readable((double)s->step_memory_bytes).text);
}

static void print_json(const strata_model_summary *s, const char *name) {
    printf("{\"model\":");
    print_json_string(name);
    printf(",\"batch\":%lld,\"layers\":[", (long long)s->batch);
    for (int i = 0; i < s->n_layers; i++) {
        const strata_layer_summary *layer = &s->layers[i];
        printf("%s{\"name\":", i ? "," : "");
        print_json_string(layer->name);
        printf(",\"kind\":\"%s\",\"output\":", layer->kind);
        print_json_shape(layer->output);
        printf(",\"parameters\":%lld,\"flops\":%.0f}", (long long)layer->parameters, layer->flops);
    }
    printf("],\"parameters\":%lld,\"forward_flops\":%.0f,\"step_flops\":%.0f,\"step_bytes\":%.0f,\"step_memory_bytes\":%lld}\n",
           (long long)s->parameters, s->forward_flops, s->step_flops, s->step_bytes, (long long)s->step_memory_bytes);
}

static int summarize(const summary_options *options, const char *name, strata_model *model, strata_device *host) {
    strata_error err = {0};
    strata_model_summary summary = {0};
    strata_status status = strata_model_compile(model, host, NULL, &err);
    if (!status) status = strata_model_summarize(model, options->batch, &summary, &err);
    if (status) return report(FAILING_RUN, status, &err);
    if (options->json) {
        print_json(&summary, name);
    } else {
        printf("%s, batch %lld\n", name, (long long)summary.batch);
        print_text(&summary);
    }
    strata_model_summary_finish(&summary);
    return EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    summary_options options = {.batch = 64};
    const char *name = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &name, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    strata_model *model = NULL;
    strata_device *host = NULL;
    code = open_model(name, true, &model);
    if (!code) code = open_device(&(device_flags){.which = "host"}, &host);
    if (!code) code = summarize(&options, name, model, host);
    strata_model_destroy(model);
    strata_device_close(host);
    return code;
}

const command command_summary = {
    .name = "summary",
    .arguments = "NAME|MODEL.json|MODEL.strata",
    .summary = "layers, shapes, parameters and the cost of a training step",
    .details = "FLOPs are additions and multiplications of a batch, a multiply-add counting two.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run};
