/* SPDX-License-Identifier: Apache-2.0
 *
 * strata summary: prints a model's layers, their shapes and parameters, and the cost of a training step; with --times the time
 * of its nodes on a device. It needs no data and, without --times, no accelerator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"
#include "terminal.h"

typedef struct summary_options {
    device_flags device;
    const char *precision, *mesh, *layout, *schedule, *recompute;
    int64_t batch, microbatches, zero;
    bool json, times, placement, memory;
} summary_options;

static const option_row rows[] = {
    {"batch", "N", "examples per step (64)", OPTION_INT, offsetof(summary_options, batch), 1, 1e12},
    {"times", NULL, "measure the nodes of a training step on the device", OPTION_FLAG, offsetof(summary_options, times), 0, 0},
    {"placement", NULL, "list which device runs each node of a training step, and why --device does not run it", OPTION_FLAG,
     offsetof(summary_options, placement), 0, 0},
    {"memory", NULL, "list what is in memory at the moment of a training step that needs most memory", OPTION_FLAG,
     offsetof(summary_options, memory), 0, 0},
    {"mesh", "AXES", "list how a mesh of devices divides a training step, for example data=2,tensor=4", OPTION_TEXT,
     offsetof(summary_options, mesh), 0, 0},
    {"layout", "FILE|auto", "with --mesh: how parameters are divided, as for train (auto)", OPTION_TEXT,
     offsetof(summary_options, layout), 0, 0},
    {"microbatches", "N", "with --mesh: in how many parts stages compute a batch (1)", OPTION_INT,
     offsetof(summary_options, microbatches), 1, 65536},
    {"zero", "N", "with --mesh: the devices along data divide 1: slots, 2: also gradients, 3: also parameters (0)", OPTION_INT,
     offsetof(summary_options, zero), 0, 3},
    {"schedule", "NAME", "with --mesh: print the actions of each stage: gpipe, 1f1b, interleaved:V or zero_bubble", OPTION_TEXT,
     offsetof(summary_options, schedule), 0, 0},
    DEVICE_OPTION_ROWS(summary_options, device),
    {"precision", "TYPE", "the type in which activations are stored: f32, f16 or bf16", OPTION_TEXT,
     offsetof(summary_options, precision), 0, 0},
    {"recompute", "A,B|auto", "the step is one in which the backward pass computes these layers again, as in train (none)",
     OPTION_TEXT, offsetof(summary_options, recompute), 0, 0},
    {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(summary_options, json), 0, 0},
    {0}};

static strata_status compile_model(const summary_options *options, strata_model *model, strata_device *device,
                                   strata_error *err) {
    const strata_compile_options opts = {.loss = loss_for_description(model), .recompute = options->recompute};
    return strata_model_compile(model, device, &opts, err);
}

/* ---- tables ---- */

/* The cells with text, at the left of a row. */
typedef struct cells {
    char text[3][192];
} cells;

/* The width of each column, which is that of its widest cell. */
typedef struct columns {
    int width[3];
} columns;

static cells cells_of(const char *first, const char *second, const char *third) {
    const char *const texts[] = {first, second, third};
    cells row;
    for (int i = 0; i < 3; i++) snprintf(row.text[i], sizeof row.text[i], "%s", texts[i]);
    return row;
}

/* Makes the cells of a node, for example "f32(64,10)". */
static cells node_cells(const char *name, const char *op, strata_dtype dtype, strata_shape output) {
    char value[192];
    snprintf(value, sizeof value, "%s%s", strata_dtype_name(dtype), strata_shape_text(output).text);
    return cells_of(*name ? name : "-", op, value);
}

static void columns_take(columns *c, cells row) {
    for (int i = 0; i < 3; i++) {
        const int n = (int)strlen(row.text[i]);
        if (n > c->width[i]) c->width[i] = n;
    }
}

/* Columns without cells are left out. */
static void print_cells(FILE *to, const columns *c, cells row) {
    for (int i = 0, n = 0; i < 3; i++)
        if (c->width[i]) fprintf(to, "%s%-*s", n++ ? "  " : "", c->width[i], row.text[i]);
}

static cells layer_cells(const strata_layer_summary *layer) {
    return cells_of(layer->name, layer->kind, strata_shape_text(layer->output).text);
}

static void print_text(const strata_model_summary *s) {
    const cells heading = cells_of("layer", "kind", "output");
    columns c = {0};
    line whole;
    columns_take(&c, heading);
    for (int i = 0; i < s->n_layers; i++) columns_take(&c, layer_cells(&s->layers[i]));
    FILE *to = line_begin(&whole);
    print_cells(to, &c, heading);
    fprintf(to, "  %10s  %8s", "parameters", "FLOPs");
    for (int i = 0; i < s->n_layers; i++) {
        const strata_layer_summary *layer = &s->layers[i];
        fputc('\n', to);
        print_cells(to, &c, layer_cells(layer));
        fprintf(to, "  %10lld  %8s", (long long)layer->parameters, readable(layer->flops).text);
        for (int k = 0; k < layer->n_inputs && k < STRATA_MAX_SUMMARY_INPUTS; k++)
            fprintf(to, "%s%s", k ? ", " : "  <- ", layer->inputs[k]);
    }
    fprintf(to, "\nparameters      %lld (%sB)", (long long)s->parameters, readable((double)s->parameters * 4).text);
    fprintf(to, "\nforward         %sFLOP, %s an example", readable(s->forward_flops).text,
            readable(s->forward_flops / (double)s->batch).text);
    fprintf(to, "\na training step %sFLOP, %sB read and written, %sB of memory", readable(s->step_flops).text,
            readable(s->step_bytes).text, readable((double)s->step_memory_bytes).text);
    line_end(&whole, 4);
}

/* Converts operations or bytes per microseconds to GFLOP/s or GB/s. */
static double rate(double amount, double us) {
    return us > 0 ? amount / us / 1e3 : 0;
}

/* Prints a number in its column, or "-" for 0, which means that it is not known or nothing runs. */
static void print_number(FILE *to, int width, int decimals, double value) {
    if (value > 0)
        fprintf(to, " %*.*f", width, decimals, value);
    else
        fprintf(to, " %*s", width, "-");
}

static double share(const strata_step_times *times, const strata_node_times *node) {
    return times->nodes_us > 0 ? node->us * node->count / times->nodes_us : 0;
}

static void print_times(const strata_step_times *times) {
    const bool tells = times->cycles > 0; /* the device reports its own clock cycles */
    const cells heading = cells_of("", "node", "output");
    columns c = {0};
    columns_take(&c, heading);
    for (int i = 0; i < times->n_nodes; i++) {
        const strata_node_times *node = &times->nodes[i];
        columns_take(&c, node_cells("", node->op, node->dtype, node->output));
    }
    c.width[0] = 0;
    line whole;
    FILE *to = line_begin(&whole);
    fputc('\n', to);
    print_cells(to, &c, heading);
    fprintf(to, " %3s %7s %5s %7s %6s", "n", "us each", "%", "GFLOP/s", "GB/s");
    if (tells) fprintf(to, " %10s %8s %10s", "cycles", "matrix %", "kB moved");
    for (int i = 0; i < times->n_nodes; i++) {
        const strata_node_times *node = &times->nodes[i];
        fputc('\n', to);
        print_cells(to, &c, node_cells("", node->op, node->dtype, node->output));
        fprintf(to, " %3d", node->count);
        print_number(to, 7, 2, node->us);
        print_number(to, 5, 1, 100 * share(times, node));
        print_number(to, 7, 2, rate(node->flops, node->us));
        print_number(to, 6, 2, rate(node->bytes, node->us));
        if (tells) {
            print_number(to, 10, 0, node->cycles);
            print_number(to, 8, 1, 100 * node->utilisation);
            print_number(to, 10, 1, node->device_bytes / 1e3);
        }
    }
    line_end(&whole, 4);
    printf("the nodes one by one %.1f us, a whole step %.1f us\n", times->nodes_us, times->step_us);
    if (tells)
        printf(
            "a step in the device's own time: %.0f cycles, %.1f us; %.1f %% of its matrix units, %.1f kB to and from its "
            "memory\n",
            times->cycles, times->device_us, 100 * times->utilisation, times->device_bytes / 1e3);
    if (times->work_bytes > 0) printf("the device's temporaries take %.1f kB at one time\n", times->work_bytes / 1e3);
}

/* Prints what the device reports about itself; 0: it does not report this. */
static void print_json_device(double cycles, double utilisation, double bytes) {
    if (cycles > 0) printf(",\"cycles\":%.0f,\"utilisation\":%.5f,\"device_bytes\":%.0f", cycles, utilisation, bytes);
}

static void print_json_times(const strata_step_times *times) {
    printf(",\"nodes\":[");
    for (int i = 0; i < times->n_nodes; i++) {
        const strata_node_times *node = &times->nodes[i];
        printf("%s{\"op\":\"%s\",\"dtype\":\"%s\",\"output\":", i ? "," : "", node->op, strata_dtype_name(node->dtype));
        print_json_shape(node->output);
        printf(",\"count\":%d", node->count);
        if (node->us > 0)
            printf(",\"us\":%.3f,\"share\":%.5f,\"gflops\":%.3f,\"gbytes\":%.3f", node->us, share(times, node),
                   rate(node->flops, node->us), rate(node->bytes, node->us));
        else
            printf(",\"us\":null,\"share\":null,\"gflops\":null,\"gbytes\":null");
        print_json_device(node->cycles, node->utilisation, node->device_bytes);
        putchar('}');
    }
    printf("],\"nodes_us\":%.3f,\"step_us\":%.3f", times->nodes_us, times->step_us);
    if (times->cycles > 0) printf(",\"device_us\":%.3f", times->device_us);
    print_json_device(times->cycles, times->utilisation, times->device_bytes);
    if (times->work_bytes > 0) printf(",\"device_work_bytes\":%.0f", times->work_bytes);
}

static void print_json(const strata_model_summary *s, const strata_step_times *times, const char *name, const char *device) {
    printf("{\"model\":");
    print_json_string(name);
    printf(",\"device\":\"%s\",\"batch\":%lld,\"layers\":[", device, (long long)s->batch);
    for (int i = 0; i < s->n_layers; i++) {
        const strata_layer_summary *layer = &s->layers[i];
        printf("%s{\"name\":", i ? "," : "");
        print_json_string(layer->name);
        printf(",\"kind\":\"%s\",\"output\":", layer->kind);
        print_json_shape(layer->output);
        printf(",\"parameters\":%lld,\"flops\":%.0f", (long long)layer->parameters, layer->flops);
        for (int k = 0; k < layer->n_inputs && k < STRATA_MAX_SUMMARY_INPUTS; k++) {
            printf("%s", k ? "," : ",\"inputs\":[");
            print_json_string(layer->inputs[k]);
        }
        printf("%s}", layer->n_inputs ? "]" : "");
    }
    printf("],\"parameters\":%lld,\"forward_flops\":%.0f,\"step_flops\":%.0f,\"step_bytes\":%.0f,\"step_memory_bytes\":%lld",
           (long long)s->parameters, s->forward_flops, s->step_flops, s->step_bytes, (long long)s->step_memory_bytes);
    if (times->n_nodes) print_json_times(times);
    printf("}\n");
}

static int summarize(const summary_options *options, const char *name, strata_model *model, strata_device *device) {
    const strata_device_info *info = strata_device_get_info(device);
    strata_error err = {0};
    strata_model_summary summary = {0};
    strata_step_times times = {0};
    strata_status status = compile_model(options, model, device, &err);
    if (!status) status = strata_model_summarize(model, options->batch, &summary, &err);
    if (!status && options->times) status = strata_model_time_step(model, options->batch, &times, &err);
    if (!status && options->json) {
        print_json(&summary, &times, name, info->id);
    } else if (!status) {
        printf("%s, batch %lld, on %s (%s)\n", name, (long long)summary.batch, info->id, info->name);
        print_text(&summary);
        if (options->times) print_times(&times);
    }
    strata_model_summary_finish(&summary);
    strata_step_times_finish(&times);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

/* ---- --placement ---- */

enum { MOST_OTHERS = 32 };

/* The other devices of the machine. */
typedef struct other_devices {
    strata_device *devices[MOST_OTHERS];
    int n;
} other_devices;

static void open_others(const strata_device_info *own, other_devices *out) {
    strata_device_info *rows = NULL;
    int n = 0;
    if (strata_devices_list(&rows, &n, NULL)) return;
    for (int i = 0; i < n && out->n < MOST_OTHERS; i++)
        if (!rows[i].skipped[0] && strcmp(rows[i].id, own->id) &&
            !strata_device_open(rows[i].id, &(strata_device_options){.no_tune = true}, &out->devices[out->n], NULL))
            out->n++;
    strata_devices_free(rows);
}

static void close_others(other_devices *others) {
    for (int i = 0; i < others->n; i++) strata_device_close(others->devices[i]);
}

static const char *other_id(const other_devices *others, int i) {
    return strata_device_get_info(others->devices[i])->id;
}

static cells place_cells(const strata_node_place *node) {
    return node_cells(node->name, node->op, node->dtype, node->output);
}

static void print_places(const strata_model_places *places, const other_devices *others, const char *device) {
    const cells heading = cells_of("node", "op", "output");
    columns c = {0};
    line whole;
    columns_take(&c, heading);
    for (int k = 0; k < places->n_nodes; k++) columns_take(&c, place_cells(&places->nodes[k]));
    FILE *to = line_begin(&whole);
    print_cells(to, &c, heading);
    fprintf(to, "  runs on");
    for (int k = 0; k < places->n_nodes; k++) {
        const strata_node_place *node = &places->nodes[k];
        fputc('\n', to);
        print_cells(to, &c, place_cells(node));
        fprintf(to, "  %s",
                node->placed == STRATA_PLACED_DEVICE ? device
                : node->placed == STRATA_PLACED_HOST ? "the host"
                                                     : "nothing");
        if (node->reason[0]) fprintf(to, ": %s", node->reason);
        if (node->placed != STRATA_PLACED_DEVICE && !node->others) fprintf(to, "; no other device runs it");
        for (int i = 0, named = 0; i < others->n; i++)
            if (node->others >> i & 1) fprintf(to, "%s%s", named++ ? ", " : "; it runs on ", other_id(others, i));
    }
    fprintf(to, "\n%d nodes: %d on %s, %d on the host for it, %d nowhere", places->n_nodes,
            places->n_nodes - places->n_host - places->n_nowhere, device, places->n_host, places->n_nowhere);
    line_end(&whole, 4);
}

static void print_json_places(const strata_model_places *places, const other_devices *others, const char *name,
                              const char *device, int64_t batch) {
    printf("{\"model\":");
    print_json_string(name);
    printf(",\"device\":\"%s\",\"batch\":%lld,\"nodes\":[", device, (long long)batch);
    for (int k = 0; k < places->n_nodes; k++) {
        const strata_node_place *node = &places->nodes[k];
        printf("%s{\"name\":", k ? "," : "");
        print_json_string(node->name);
        printf(",\"op\":\"%s\",\"dtype\":\"%s\",\"output\":", node->op, strata_dtype_name(node->dtype));
        print_json_shape(node->output);
        printf(",\"runs_on\":");
        if (node->placed == STRATA_PLACED_NOWHERE)
            printf("null");
        else
            printf("\"%s\"", node->placed == STRATA_PLACED_HOST ? "host" : device);
        printf(",\"reason\":");
        if (node->reason[0])
            print_json_string(node->reason);
        else
            printf("null");
        printf(",\"others\":[");
        for (int i = 0, named = 0; i < others->n; i++)
            if (node->others >> i & 1) printf("%s\"%s\"", named++ ? "," : "", other_id(others, i));
        printf("]}");
    }
    printf("],\"n_host\":%d,\"n_nowhere\":%d}\n", places->n_host, places->n_nowhere);
}

/* Other devices are opened only if the device does not run all nodes. */
static int place(const summary_options *options, const char *name, strata_model *model, strata_device *device) {
    const strata_device_info *info = strata_device_get_info(device);
    strata_error err = {0};
    strata_model_places places = {0};
    other_devices others = {0};
    strata_status status = compile_model(options, model, device, &err);
    if (!status) status = strata_model_list_places(model, STRATA_PART_TRAINING, options->batch, 0, NULL, 0, &places, &err);
    if (!status && places.n_host + places.n_nowhere) {
        open_others(info, &others);
        strata_model_places_finish(&places);
        status =
            strata_model_list_places(model, STRATA_PART_TRAINING, options->batch, 0, others.devices, others.n, &places, &err);
    }
    if (!status && options->json) {
        print_json_places(&places, &others, name, info->id, options->batch);
    } else if (!status) {
        printf("%s, batch %lld, on %s (%s)\n", name, (long long)options->batch, info->id, info->name);
        print_places(&places, &others, info->id);
    }
    strata_model_places_finish(&places);
    close_others(&others);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

/* ---- --memory ---- */

static cells value_cells(const strata_value_memory *value) {
    return node_cells(value->name, value->op, value->dtype, value->output);
}

static void print_memory(const strata_model_memory *m) {
    const cells heading = cells_of("node", "op", "output");
    columns c = {0};
    line whole;
    columns_take(&c, heading);
    for (int i = 0; i < m->n_values; i++) columns_take(&c, value_cells(&m->values[i]));
    FILE *to = line_begin(&whole);
    fprintf(to, "parameters %sB, optimizer slots %sB, states %sB\n", readable((double)m->parameter_bytes).text,
            readable((double)m->slot_bytes).text, readable((double)m->state_bytes).text);
    fprintf(to, "a training step's temporaries take %sB at most, at %s%s%s:\n", readable((double)m->peak_bytes).text, m->at_op,
            *m->at ? " " : "", m->at);
    print_cells(to, &c, heading);
    fprintf(to, "  %8s", "bytes");
    for (int i = 0; i < m->n_values; i++) {
        fputc('\n', to);
        print_cells(to, &c, value_cells(&m->values[i]));
        fprintf(to, "  %8s", readable((double)m->values[i].bytes).text);
    }
    line_end(&whole, 4);
}

static void print_json_memory(const strata_model_memory *m, const char *name, const char *device, int64_t batch) {
    printf("{\"model\":");
    print_json_string(name);
    printf(",\"device\":\"%s\",\"batch\":%lld,\"parameter_bytes\":%lld,\"slot_bytes\":%lld,\"state_bytes\":%lld", device,
           (long long)batch, (long long)m->parameter_bytes, (long long)m->slot_bytes, (long long)m->state_bytes);
    printf(",\"peak_bytes\":%lld,\"at\":\"%s\",\"values\":[", (long long)m->peak_bytes, m->at_op);
    for (int i = 0; i < m->n_values; i++) {
        const strata_value_memory *value = &m->values[i];
        printf("%s{\"name\":", i ? "," : "");
        print_json_string(value->name);
        printf(",\"op\":\"%s\",\"dtype\":\"%s\",\"output\":", value->op, strata_dtype_name(value->dtype));
        print_json_shape(value->output);
        printf(",\"bytes\":%lld}", (long long)value->bytes);
    }
    printf("]}\n");
}

static int list_memory(const summary_options *options, const char *name, strata_model *model, strata_device *device) {
    const strata_device_info *info = strata_device_get_info(device);
    strata_error err = {0};
    strata_model_memory memory = {0};
    strata_status status = compile_model(options, model, device, &err);
    if (!status) status = strata_model_list_memory(model, STRATA_PART_TRAINING, options->batch, &memory, &err);
    if (!status && options->json) {
        print_json_memory(&memory, name, info->id, options->batch);
    } else if (!status) {
        printf("%s, batch %lld, on %s (%s)\n", name, (long long)options->batch, info->id, info->name);
        print_memory(&memory);
    }
    strata_model_memory_finish(&memory);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

/* ---- --mesh ---- */

static cells mesh_cells(const strata_value_placement *value) {
    return cells_of(*value->name ? value->name : "-", value->op, strata_dtype_name(value->dtype));
}

static void print_mesh(const strata_model_mesh *mesh, bool schedule) {
    const cells heading = cells_of("node", "op", "type");
    columns c = {0};
    line whole;
    columns_take(&c, heading);
    for (int i = 0; i < mesh->n_values; i++) columns_take(&c, mesh_cells(&mesh->values[i]));
    FILE *to = line_begin(&whole);
    print_cells(to, &c, heading);
    fprintf(to, "  placement");
    for (int i = 0; i < mesh->n_values; i++) {
        fputc('\n', to);
        print_cells(to, &c, mesh_cells(&mesh->values[i]));
        fprintf(to, "  %s", mesh->values[i].placement);
    }
    fprintf(to, "\n%d devices, %d exchanges in a step", mesh->n_devices, mesh->n_exchanges);
    for (int i = 0; i < mesh->n_exchanges; i++) {
        const strata_mesh_exchange *x = &mesh->exchanges[i];
        fprintf(to, "\n%s of %s over %s, %sB%s%s", x->op, x->value, x->axes, readable((double)x->bytes).text,
                x->reader && strcmp(x->reader, x->op) ? ", for " : "", x->reader && strcmp(x->reader, x->op) ? x->reader : "");
    }
    for (int d = 0; d < mesh->n_devices; d++) {
        fprintf(to, "\ndevice %d: %sB of parameters, slots and states", d, readable((double)mesh->device_bytes[d]).text);
        if (mesh->step_bytes) fprintf(to, ", %sB for a step", readable((double)mesh->step_bytes[d]).text);
    }
    if (mesh->schedule) fprintf(to, "\nstages wait for %.0f %% of a step", 100 * mesh->bubble);
    if (mesh->schedule && schedule) fprintf(to, "\n%s", mesh->schedule);
    line_end(&whole, 4);
}

static void print_json_placements(const char *key, const strata_value_placement *rows, int n) {
    printf(",\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        printf("%s{\"name\":", i ? "," : "");
        print_json_string(rows[i].name);
        printf(",\"op\":\"%s\",\"dtype\":\"%s\",\"shape\":", rows[i].op, strata_dtype_name(rows[i].dtype));
        print_json_shape(rows[i].shape);
        printf(",\"placement\":");
        print_json_string(rows[i].placement);
        printf("}");
    }
    printf("]");
}

static void print_json_mesh(const strata_model_mesh *mesh, const char *name, int64_t batch) {
    printf("{\"model\":");
    print_json_string(name);
    printf(",\"batch\":%lld,\"n_devices\":%d", (long long)batch, mesh->n_devices);
    print_json_placements("parameters", mesh->parameters, mesh->n_parameters);
    print_json_placements("values", mesh->values, mesh->n_values);
    printf(",\"exchanges\":[");
    for (int i = 0; i < mesh->n_exchanges; i++) {
        const strata_mesh_exchange *x = &mesh->exchanges[i];
        printf("%s{\"op\":\"%s\",\"value\":", i ? "," : "", x->op);
        print_json_string(x->value);
        printf(",\"axes\":");
        print_json_string(x->axes);
        printf(",\"bytes\":%lld}", (long long)x->bytes);
    }
    printf("],\"device_bytes\":[");
    for (int d = 0; d < mesh->n_devices; d++) printf("%s%lld", d ? "," : "", (long long)mesh->device_bytes[d]);
    printf("],\"step_bytes\":%s", mesh->step_bytes ? "[" : "null");
    for (int d = 0; d < mesh->n_devices && mesh->step_bytes; d++)
        printf("%s%lld%s", d ? "," : "", (long long)mesh->step_bytes[d], d + 1 < mesh->n_devices ? "" : "]");
    printf(",\"bubble\":%.6f,\"schedule\":", mesh->bubble);
    if (mesh->schedule)
        print_json_string(mesh->schedule);
    else
        printf("null");
    printf("}\n");
}

static int list_mesh(const summary_options *options, const char *name, strata_model *model, strata_device *device) {
    strata_error err = {0};
    strata_model_mesh mesh = {0};
    char *layout = NULL;
    const int code = read_layout(options->layout, &layout);
    if (code) return code;
    const strata_strategy_options strategy = {.mesh = options->mesh,
                                              .layout = layout,
                                              .microbatches = (int)options->microbatches,
                                              .schedule = options->schedule,
                                              .zero = (int)options->zero};
    strata_status status = compile_model(options, model, device, &err);
    if (!status) status = strata_model_list_mesh(model, options->batch, &strategy, &mesh, &err);
    if (!status && options->json) {
        print_json_mesh(&mesh, name, options->batch);
    } else if (!status) {
        printf("%s, batch %lld, mesh %s\n", name, (long long)options->batch, options->mesh);
        print_mesh(&mesh, options->schedule != NULL);
    }
    strata_model_mesh_finish(&mesh);
    free(layout);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    summary_options options = {.batch = 64};
    const char *name = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &name, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    strata_model *model = NULL;
    strata_device *device = NULL;
    if (options.times + options.placement + options.memory + (options.mesh != NULL) > 1)
        return usage_error("give one of --times, --placement, --memory and --mesh");
    if (!options.mesh && (options.layout || options.microbatches || options.schedule || options.zero))
        return usage_error("--layout, --microbatches, --schedule and --zero are for --mesh");
    if (!options.times && !options.placement && !options.device.which) options.device.which = "host";
    code = open_model(name, true, &model);
    if (!code) code = set_precision(model, options.precision);
    if (!code) code = open_device(&options.device, &device);
    if (!code)
        code = (options.mesh        ? list_mesh
                : options.placement ? place
                : options.memory    ? list_memory
                                    : summarize)(&options, name, model, device);
    strata_model_destroy(model);
    strata_device_close(device);
    return code;
}

const command command_summary = {
    .name = "summary",
    .arguments = "NAME|MODEL.json|MODEL.strata",
    .summary = "show layers, shapes, parameters and the cost of a training step",
    .details =
        "FLOPs are the additions and multiplications of a batch; a multiply-add counts as two.\n"
        "\n"
        "--times runs each kind of node of the compiled step by itself, with random numbers, and also whole steps; \"-\" means "
        "that\n"
        "nothing runs. Without --times no accelerator is needed, and the device is the host.\n"
        "\n"
        "--placement lists the nodes that the device runs, those that it does not run and why, and which other devices of the\n"
        "machine run them. With --allow-fallback host the host runs them.\n"
        "\n"
        "--memory lists the values that are in memory at the moment when a step needs most memory, the largest first.\n"
        "\n"
        "--mesh divides the step among devices in a grid with the axes data, stage and tensor, as train --strategy\n"
        "model_parallel does it. It lists for each parameter and value which dimension is divided over which axis and at "
        "which\n"
        "stage it is, what is exchanged in each step, how many bytes each device has, and for a pipeline which part of a step\n"
        "its stages wait. --schedule also prints what each stage computes: F0 is the forward pass of micro-batch 0, B0 its\n"
        "backward pass, and W0 its gradients of parameters where they come later.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run};
