/* SPDX-License-Identifier: Apache-2.0
 *
 * strata compile: compiles a model's training step for an accelerator that this machine does not have. The step is translated
 * to StableHLO, which a PJRT plugin's compiler compiles for a topology of chips. With --strategy tpu each chip has a replica,
 * and the chips add the gradients inside of the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/pjrt/aot.h"
#include "backends/pjrt/whole.h"
#include "core/model/model.h"
#include "samples.h"

typedef struct compile_options {
    const char *plugin, *target, *strategy, *precision;
    /* The format and the file of --emit. */
    const char *emit, *emit_to;
    int64_t batch;
    bool json, fast;
    double compile_seconds;
} compile_options;

static const option_row rows[] = {
    {"batch", "N", "examples per step, of all replicas together (64)", OPTION_INT, offsetof(compile_options, batch), 1, 1e12},
    {"plugin", "pjrt:FILE", "the PJRT plugin whose compiler is used (libtpu.so)", OPTION_TEXT,
     offsetof(compile_options, plugin), 0, 0},
    {"target", "NAME", "the accelerator to compile for: v4:2x2x1, v5e:2x2, v6e:2x4, ...", OPTION_TEXT,
     offsetof(compile_options, target), 0, 0},
    {"strategy", "tpu", "a replica on each chip of the target (one chip)", OPTION_TEXT, offsetof(compile_options, strategy), 0,
     0},
    {"emit", "stablehlo FILE", "write the program as text to this file", OPTION_OUTPUT, offsetof(compile_options, emit_to), 0,
     0},
    {"precision", "TYPE", "the type in which activations are stored: f32, f16 or bf16", OPTION_TEXT,
     offsetof(compile_options, precision), 0, 0},
    {"compile-seconds", "S", "the longest time in which the plugin may compile; more is an error (600)", OPTION_NUMBER,
     offsetof(compile_options, compile_seconds), 0.01, 1e9},
    {"driver-seconds", "S", "the longest time in which the plugin may start (60)", OPTION_DRIVER_SECONDS, 0, 0.01, 1e9},
    {"fast", NULL, "let the compiler multiply f32 with lower precision", OPTION_FLAG, offsetof(compile_options, fast), 0, 0},
    {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(compile_options, json), 0, 0},
    {0}};

/* ---- the target ---- */

/* The peak of a chip's matrix units in bf16, in FLOP/s, as published by Google. */
static const struct {
    const char *name;
    double peak;
} chips[] = {{"v4", 275e12}, {"v5e", 197e12}, {"v5p", 459e12}, {"v6e", 918e12}};

/* The peak of a chip of the target; 0: it is not known. */
static double peak_of(const char *target) {
    const size_t n = strcspn(target, ":");
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        if (strlen(chips[i].name) == n && !strncmp(chips[i].name, target, n)) return chips[i].peak;
    return 0;
}

/* ---- the step ---- */

/* Places the model on n devices that compute nothing, since only the step's graph is needed. */
static strata_status place_model(strata_model *model, int n, strata_device **out_device, strata_strategy **out_strategy,
                                 strata_error *err) {
    if (n == 1) {
        STRATA_TRY(strata_device_open("null", NULL, out_device, err));
        return strata_model_compile(model, *out_device, &(strata_compile_options){.loss = loss_for_description(model)}, err);
    }
    strata_device **devices = calloc((size_t)n, sizeof(*devices));
    if (!devices) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d replicas", n);
    strata_status status = STRATA_OK;
    int opened = 0;
    while (!status && opened < n) {
        status = strata_device_open("null", NULL, &devices[opened], err);
        if (!status) opened++;
    }
    if (!status) {
        status = strata_strategy_from_devices(devices, n, out_strategy, err);
        opened = 0; /* the strategy has taken the devices */
    }
    for (int i = 0; i < opened; i++) strata_device_close(devices[i]);
    free(devices);
    const strata_compile_options compile = {.strategy = *out_strategy, .loss = loss_for_description(model)};
    return status ? status : strata_model_compile(model, NULL, &compile, err);
}

static strata_status lower_step(const compile_options *options, strata_model *model, int n_replicas, pjrt_module *out_module,
                                strata_error *err) {
    strata_step step;
    const pjrt_lower_options lowering = {.n_replicas = n_replicas, .fast = options->fast};
    STRATA_TRY(strata_model_build_step(model, STRATA_PROGRAM_TRAIN, options->batch, &step, err));
    const strata_status status =
        strata_pjrt_lower_graph(&step.output, step.output != NULL, step.updates, step.n_updates, lowering, out_module, err);
    strata_graph_destroy(step.graph);
    return status;
}

/* ---- output ---- */

typedef struct number_row {
    const char *key, *label;
    double value;
    const char *unit;
} number_row;

static void print_numbers(const compile_options *options, const pjrt_estimate *e) {
    const double peak = peak_of(options->target);
    const double share = e->flops >= 0 && e->seconds > 0 && peak > 0 ? e->flops / (e->seconds * peak) : -1;
    const number_row numbers[] = {{"step_us", "a step", e->seconds < 0 ? -1 : e->seconds * 1e6, "us"},
                                  {"untimed_ops", "ops without a time in it", e->seconds < 0 ? -1 : e->n_untimed, ""},
                                  {"flops", "FLOPs", e->flops, "FLOP"},
                                  {"mxu_share", "of the chip's bf16 peak", share, NULL},
                                  {"transcendentals", "transcendentals", e->transcendentals, ""},
                                  {"hbm_bytes", "memory read and written", e->bytes_accessed, "B"},
                                  {"code_bytes", "code", e->code_bytes, "B"},
                                  {"argument_bytes", "arguments", e->argument_bytes, "B"},
                                  {"output_bytes", "outputs", e->output_bytes, "B"},
                                  {"alias_bytes", "of both, in place", e->alias_bytes, "B"},
                                  {"temporary_bytes", "temporaries", e->temporary_bytes, "B"}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const number_row *row = &numbers[i];
        if (options->json && row->value < 0) {
            printf(",\"%s\":null", row->key);
        } else if (options->json) {
            printf(",\"%s\":%.9g", row->key, row->value);
        } else if (row->value < 0) {
            printf("  %-24s the compiler gives none\n", row->label);
        } else if (!row->unit) {
            printf("  %-24s %.2f %%\n", row->label, 100 * row->value);
        } else if (!strcmp(row->unit, "us")) {
            printf("  %-24s %.2f us\n", row->label, row->value);
        } else {
            printf("  %-24s %s%s\n", row->label, readable(row->value).text, row->unit);
        }
    }
}

static void print_head(const compile_options *options, const char *name, int n_replicas) {
    const char *target = options->target ? options->target : "none";
    if (options->json) {
        printf("{\"model\":");
        print_json_string(name);
        printf(",\"target\":");
        print_json_string(target);
        printf(",\"replicas\":%d,\"batch\":%lld", n_replicas, (long long)options->batch);
    } else {
        printf("%s, batch %lld, for %s, %d replica%s\n", name, (long long)options->batch, target, n_replicas,
               n_replicas == 1 ? "" : "s");
    }
}

static strata_status write_text(const compile_options *options, const pjrt_module *module, strata_error *err) {
    FILE *file = fopen(options->emit_to, "wb");
    const bool written = file && fwrite(module->text, 1, module->n_bytes, file) == module->n_bytes;
    const bool closed = file && !fclose(file);
    return written && closed ? STRATA_OK : strata_fail(err, STRATA_DATA, "%s cannot be written", options->emit_to);
}

/* ---- the command ---- */

/* Destroys the model, as compile_with does. */
static int compile_for(const compile_options *options, const char *name, const pjrt_topology *topology, strata_model *model) {
    strata_error err = {0};
    strata_device *device = NULL;
    strata_strategy *strategy = NULL;
    pjrt_module module = {0};
    pjrt_estimate estimate;
    int n_chips = 1;
    if (options->target && strata_pjrt_check_topology(options->target, &n_chips, &err)) n_chips = 1; /* checked before */
    const int n = !options->strategy ? 1 : topology ? topology->n_devices : n_chips;
    if (n < 1 || options->batch % n) {
        strata_model_destroy(model);
        if (n < 1) return usage_error("--target %s: the plugin has no devices for it", options->target);
        return usage_error("--batch %lld on %d replicas: each has the same program, so %d must divide it",
                           (long long)options->batch, n, n);
    }
    strata_status status = place_model(model, n, &device, &strategy, &err);
    if (!status) status = lower_step(options, model, n, &module, &err);
    if (!status && options->emit_to) status = write_text(options, &module, &err);
    if (!status && topology)
        status = strata_pjrt_compile_ahead(topology, module.text, module.n_bytes, n, options->compile_seconds, &estimate, &err);
    if (!status) print_head(options, name, n);
    if (!status && options->emit_to && !options->json) printf("  %-24s %s\n", "StableHLO in", options->emit_to);
    if (!status && topology) print_numbers(options, &estimate);
    if (!status && options->json) printf("}\n");
    strata_pjrt_module_finish(&module);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    strata_device_close(device);
    return status ? report(status == STRATA_DATA ? FAILING_DATA : FAILING_RUN, status, &err) : EXIT_OK;
}

/* The file of "pjrt:FILE"; NULL: the plugin is of another kind. */
static const char *plugin_file(const char *plugin) {
    return strncmp(plugin, "pjrt:", 5) ? NULL : plugin + 5;
}

static int compile_with(const compile_options *options, const char *name, strata_model *model) {
    strata_error err = {0};
    pjrt_plugin plugin;
    pjrt_topology topology = {0};
    strata_status status = strata_pjrt_load(plugin_file(options->plugin), &plugin, &err);
    if (!status) status = strata_pjrt_topology_create(&plugin, options->target, &topology, &err);
    if (status) {
        strata_model_destroy(model);
        return report(FAILING_DEVICE, status, &err);
    }
    const int code = compile_for(options, name, &topology, model);
    if (!strata_drivers_hang()) strata_pjrt_topology_destroy(&topology);
    return code;
}

static int check(const compile_options *options) {
    if (options->strategy && strcmp(options->strategy, "tpu") != 0)
        return usage_error("--strategy %s: strata compile knows tpu, a replica on each chip", options->strategy);
    if (options->emit && strcmp(options->emit, "stablehlo") != 0)
        return usage_error("--emit %s: the format is stablehlo", options->emit);
    if (options->emit_to && !options->emit)
        return usage_error("--emit %s needs a format and a file: --emit stablehlo FILE", options->emit_to);
    if (options->plugin && !plugin_file(options->plugin))
        return usage_error("--plugin %s: strata compile needs pjrt:FILE, for example pjrt:libtpu.so", options->plugin);
    if (options->plugin && !options->target) return usage_error("--plugin needs a --target, as v5e:2x2");
    if (options->strategy && !options->target) return usage_error("--strategy tpu needs a --target, as v5e:2x2");
    strata_error err = {0};
    if (options->target && strata_pjrt_check_topology(options->target, NULL, &err))
        return usage_error("--target %s", err.message);
    if (!options->plugin && !options->emit)
        return usage_error("give --plugin pjrt:FILE and --target NAME, or --emit stablehlo FILE; strata help compile");
    return EXIT_OK;
}

/* Reads `--emit FORMAT FILE` and removes it from the arguments, since no other option has two values. */
static void take_emit(int *argc, char **argv, compile_options *options) {
    for (int i = 1; i + 2 < *argc; i++) {
        if (strcmp(argv[i], "--emit") != 0) continue;
        options->emit = argv[i + 1];
        options->emit_to = argv[i + 2];
        for (int k = i + 3; k <= *argc; k++) argv[k - 3] = argv[k];
        *argc -= 3;
        return;
    }
}

static int run(const command *command, int argc, char **argv) {
    compile_options options = {.batch = 64, .compile_seconds = 600};
    const char *name = NULL;
    int n_arguments = 0;
    take_emit(&argc, argv, &options);
    int code = read_options(command, argc, argv, &options, &name, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    code = check(&options);
    if (code) return code;
    strata_model *model = NULL;
    code = open_model(name, true, &model);
    if (!code) code = set_precision(model, options.precision);
    if (code) {
        strata_model_destroy(model);
        return code;
    }
    return options.plugin ? compile_with(&options, name, model) : compile_for(&options, name, NULL, model);
}

const command command_compile = {
    .name = "compile",
    .arguments = "NAME|MODEL.json|MODEL.strata",
    .summary = "compile a training step for an accelerator that this machine does not have",
    .details =
        "The step is lowered to StableHLO and compiled by the plugin for the target; no such chip is needed. Numbers are the\n"
        "compiler's estimates for one chip. With --strategy tpu the program is that of a replica, and it adds the gradients "
        "of\n"
        "the target's chips. --emit works without a plugin.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run};
