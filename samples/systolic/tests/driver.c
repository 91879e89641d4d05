/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of driver.h. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(2);
}

static void log_message(const char *message) {
    (void)message;
}

const strata_plugin *load_plugin(const char *file, const char *options, int32_t *out_n_devices) {
    static const strata_plugin_host host = {sizeof host, STRATA_PLUGIN_VERSION_MAJOR, STRATA_PLUGIN_VERSION_MINOR, log_message};
    strata_plugin_error error = {.size = sizeof error};
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) give_up(file, dlerror());
    strata_plugin_entry *entry;
    void *symbol = dlsym(library, STRATA_PLUGIN_ENTRY);
    if (!symbol) give_up(file, "it has no symbol " STRATA_PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    const strata_plugin *plugin = entry(&host);
    if (!plugin) give_up(file, "its entry returned NULL");
    const strata_plugin_status status = plugin->start(options, out_n_devices, &error);
    if (status == STRATA_PLUGIN_UNAVAILABLE) {
        printf("skipped: %s\n", error.message);
        exit(77);
    }
    if (status) give_up(file, error.message);
    return plugin;
}

machine open_machine(const strata_plugin *plugin, int index) {
    strata_plugin_error error = {.size = sizeof error};
    machine m = {.plugin = plugin};
    if (plugin->device_open(index, &m.device, &m.calls, &error)) give_up("device_open", error.message);
    return m;
}

void sketch_init(sketch *s, int n_slots) {
    memset(s, 0, sizeof *s);
    s->piece =
        (strata_plugin_piece){.size = sizeof s->piece, .nodes = s->node_list, .values = s->value_list, .n_slots = n_slots};
}

int sketch_value(sketch *s, strata_plugin_role role, strata_plugin_dtype dtype, const int64_t *dims) {
    static const int64_t dtype_bytes[] = {4, 2, 2, 4, 8, 1, 1};
    const int id = s->piece.n_values++;
    strata_plugin_value *v = &s->values[id];
    *v = (strata_plugin_value){.size = sizeof *v,
                               .dtype = dtype,
                               .role = role,
                               .dims = s->dims[id],
                               .bytes = dtype_bytes[dtype],
                               .alias_of = -1,
                               .first_node = -1,
                               .last_node = -1};
    for (; dims[v->rank] >= 0; v->rank++) {
        s->dims[id][v->rank] = dims[v->rank];
        v->bytes *= dims[v->rank];
    }
    int64_t *arena = role == STRATA_PLUGIN_INPUT    ? &s->piece.input_bytes
                     : role == STRATA_PLUGIN_OUTPUT ? &s->piece.output_bytes
                                                    : NULL;
    if (arena) {
        v->arena_offset = *arena;
        *arena += (v->bytes + 63) / 64 * 64;
    }
    s->value_list[id] = v;
    return id;
}

int sketch_node(sketch *s, const char *op, const int *inputs, int output) {
    const int id = s->piece.n_nodes++;
    strata_plugin_node *node = &s->nodes[id];
    *node = (strata_plugin_node){.size = sizeof *node,
                                 .op = op,
                                 .inputs = s->inputs[id],
                                 .output = output,
                                 .attributes = s->attribute_list[id],
                                 .writes = s->writes[id]};
    for (; inputs[node->n_inputs] >= 0; node->n_inputs++) s->inputs[id][node->n_inputs] = inputs[node->n_inputs];
    s->node_list[id] = node;
    return id;
}

static strata_plugin_attribute *add_attribute(sketch *s, int node, const char *name, strata_plugin_attribute_type type) {
    const int at = s->nodes[node].n_attributes++;
    strata_plugin_attribute *a = &s->attributes[node][at];
    *a = (strata_plugin_attribute){.size = sizeof *a, .name = name, .type = type};
    s->attribute_list[node][at] = a;
    return a;
}

void sketch_ints(sketch *s, int node, const char *name, int n, const int64_t *ints) {
    const int at = s->nodes[node].n_attributes;
    strata_plugin_attribute *a = add_attribute(s, node, name, STRATA_PLUGIN_INTS);
    memcpy(s->ints[node][at], ints, (size_t)n * sizeof *ints);
    a->ints = s->ints[node][at];
    a->n = n;
}

void sketch_float(sketch *s, int node, const char *name, double x) {
    const int at = s->nodes[node].n_attributes;
    strata_plugin_attribute *a = add_attribute(s, node, name, STRATA_PLUGIN_FLOATS);
    s->floats[node][at] = x;
    a->floats = &s->floats[node][at];
    a->n = 1;
}

void sketch_text(sketch *s, int node, const char *name, const char *text) {
    add_attribute(s, node, name, STRATA_PLUGIN_TEXT)->text = text;
}

void sketch_finish(sketch *s) {
    for (int k = 0; k < s->piece.n_nodes; k++) {
        strata_plugin_value *out = &s->values[s->nodes[k].output];
        if (out->first_node < 0) out->first_node = k;
        for (int i = 0; i < s->nodes[k].n_inputs; i++)
            if (s->inputs[k][i] < s->piece.n_values)
                s->values[s->inputs[k][i]].last_node = k; /* a test has a node with an input that does not exist */
    }
}

strata_plugin_program *sketch_compile(machine m, sketch *s, strata_plugin_error *message) {
    strata_plugin_program *program = NULL;
    message->size = sizeof *message;
    message->message[0] = 0;
    sketch_finish(s);
    return m.calls->compile(m.device, &s->piece, &program, message) ? NULL : program;
}

void *sketch_memory(machine m, const sketch *s, strata_plugin_program *program, int slot, int value) {
    const strata_plugin_value *v = &s->values[value];
    char *arena =
        v->role == STRATA_PLUGIN_INPUT ? m.calls->program_input(program, slot) : (char *)m.calls->program_output(program, slot);
    return arena + v->arena_offset;
}

float next_random(void) {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(int32_t)(state >> 32) * 0x1p-31f;
}
