/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a plugin of a built-in backend, to test that the plugin interface is complete. It turns the tables that a plugin
 * receives into a graph and a piece of a program, which the backend compiles like its own. ADAPTER_NAME is the plugin's
 * name and ADAPTER_DEVICE the backend's device.
 *
 * Options: device=ID chooses another device; memory=own makes the plugin plan the memory of temporaries, each of which then
 * has its own bytes; fused=no makes it reject fused nodes, so that it gets their parts; lie=OP makes it compute this op
 * wrongly, with above=N only operands of more than N elements: an operand takes the place of the next one of its shape;
 * after=N makes it fill a variable of the program with zeros in each run but its first N; devices=N makes so many devices,
 * each of which has bytes=N bytes of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/describe.h"
#include "core/op/attrs.h"
#include "core/op/chain.h"
#include "core/op/epilogue.h"
#include "core/op/ops.h"
#include "core/run/device.h"
#include "strata/device.h"

enum { FIRST_ARENA = STRATA_ARENA_OUTPUT + 1, ID_BYTES = 32, NONE = -1 };

struct strata_plugin_device {
    strata_device *device;
    int64_t used; /* bytes of buffers */
};

struct strata_plugin_buffer {
    strata_buffer *buffer;
    int64_t bytes;
};

struct strata_plugin_program {
    strata_device *device;
    strata_graph *graph;
    strata_program *program;
    /* Memory for constants, and for temporaries when the plugin plans their memory. */
    strata_buffer *constants, *work;
    int64_t constants_bytes, work_bytes;
    /* A variable of the program, and the number of its runs. */
    strata_buffer *variable;
    int64_t variable_bytes, n_runs;
};

static char device_id[ID_BYTES] = ADAPTER_DEVICE;
static bool own_memory, no_fused;
static char lie[32];
static int64_t lie_above, lie_after = INT64_MAX, most_bytes;
static strata_device_info found;
static strata_plugin_device_info info;

static strata_plugin_status failed(strata_plugin_error *error, strata_status status, const strata_error *err) {
    snprintf(error->message, sizeof error->message, "%s", err->message);
    switch (status) { /* plugin.h has fewer status values */
        case STRATA_DATA:
        case STRATA_OUT_OF_DISK:
        case STRATA_PEER_LOST:
        case STRATA_INTERRUPTED:
            return STRATA_PLUGIN_INTERNAL;
        default:
            return (strata_plugin_status)status;
    }
}

/* ---- from tables to nodes ---- */

typedef struct reader {
    const strata_plugin_piece *piece;
    strata_device *device;
    strata_graph *graph;
    /* Reads a single node, without the nodes that compute its operands. */
    bool alone;
    /* Indexed by value. NULL: no node of the piece reads or computes it. */
    strata_tensor **tensors;
} reader;

static strata_shape shape_of(const strata_plugin_value *value) {
    strata_shape shape = {.rank = value->rank};
    memcpy(shape.dims, value->dims, (size_t)value->rank * sizeof *shape.dims);
    return shape;
}

static strata_tensor *read_leaf(reader *r, const strata_plugin_value *value) {
    const strata_shape shape = shape_of(value);
    if (value->role == STRATA_PLUGIN_CONSTANT) {
        const strata_array array = strata_array_view((strata_dtype)value->dtype, shape, (void *)value->data);
        return strata_constant(r->graph, &array);
    }
    if (value->role == STRATA_PLUGIN_VARIABLE || value->role == STRATA_PLUGIN_CARRIED) {
        strata_variable *variable = strata_graph_alloc(r->graph, sizeof *variable);
        if (!variable) return &r->graph->poison;
        *variable = (strata_variable){.device = r->device, .dtype = (strata_dtype)value->dtype, .shape = shape};
        return strata_variable_read(r->graph, variable);
    }
    strata_tensor *leaf = strata_node(r->graph, &strata_op_input, 0, NULL, NULL);
    if (strata_tensor_is_poison(leaf)) return leaf;
    leaf->dtype = (strata_dtype)value->dtype;
    leaf->shape = shape;
    return leaf;
}

static int64_t word_value(const strata_op *op, const char *name, const char *text) {
    for (const strata_attr_words *row = op->words; row && row->attribute; row++)
        for (int64_t i = 0; !strcmp(row->attribute, name) && row->words[i]; i++)
            if (!strcmp(row->words[i], text)) return i;
    return NONE;
}

static void read_attribute(reader *r, const strata_op *op, const strata_attr_field *field,
                           const strata_plugin_attribute *attribute, void *at) {
    const size_t ints = (size_t)attribute->n * sizeof(int64_t);
    switch (field->kind) {
        case STRATA_ATTR_INT:
            *(int64_t *)at =
                attribute->type == STRATA_PLUGIN_TEXT ? word_value(op, field->name, attribute->text) : attribute->ints[0];
            break;
        case STRATA_ATTR_FLOAT:
            *(double *)at = attribute->floats[0];
            break;
        case STRATA_ATTR_INTS:
        case STRATA_ATTR_PAIR:
        case STRATA_ATTR_QUAD:
            memcpy(at, attribute->ints, ints);
            break;
        case STRATA_ATTR_SHAPE:
            ((strata_shape *)at)->rank = attribute->n;
            memcpy(((strata_shape *)at)->dims, attribute->ints, ints);
            break;
        case STRATA_ATTR_LIST: {
            int64_t *list = strata_graph_alloc(r->graph, ints + 1);
            if (list) memcpy(list, attribute->ints, ints);
            *(int64_t **)at = list;
            break;
        }
        case STRATA_ATTR_CODES:
        case STRATA_ATTR_POINTER:
            break;
    }
}

/* The steps of a chain are the parts of the plugin's node. */
static void read_chain(const strata_plugin_node *node, strata_chain_attrs *attrs) {
    attrs->n_steps = 0;
    for (int s = 0; s < node->n_parts; s++) {
        const strata_plugin_node *part = node->parts[s];
        int arguments[STRATA_CHAIN_ARGUMENTS] = {0};
        for (int i = 0; i < part->n_inputs; i++) {
            for (int k = 0; k < node->n_inputs; k++)
                if (node->inputs[k] == part->inputs[i]) arguments[i] = k;
            for (int k = 0; k < s; k++)
                if (node->parts[k]->output == part->inputs[i]) arguments[i] = STRATA_CHAIN_OPERANDS + k;
        }
        strata_chain_add(attrs, strata_op_find(part->op), arguments);
    }
}

/* Builds a node without calling its op's rule, because the rule may inspect the nodes that computed the operands. */
static strata_tensor *bare_node(reader *r, const strata_op *op, const strata_plugin_node *node, strata_tensor **inputs,
                                const void *attrs, const strata_plugin_value *value) {
    strata_tensor *built = strata_node(r->graph, &strata_op_input, 0, NULL, NULL);
    if (strata_tensor_is_poison(built)) return built;
    built->op = op;
    built->inputs = inputs;
    built->n_inputs = node->n_inputs;
    built->attrs = attrs;
    built->dtype = (strata_dtype)value->dtype;
    built->shape = shape_of(value);
    return built;
}

static void tell_lie(const strata_op *op, strata_tensor **inputs, int n) {
    if (strcmp(op->name, lie) != 0) return;
    for (int i = n - 1; i > 0; i--) {
        if (inputs[i - 1]->dtype != inputs[i]->dtype || !strata_shape_equal(inputs[i - 1]->shape, inputs[i]->shape) ||
            strata_shape_elements(inputs[i]->shape) <= lie_above)
            continue;
        inputs[i] = inputs[i - 1];
        return;
    }
}

static strata_status read_node(reader *r, const strata_plugin_node *node, strata_error *err) {
    const strata_op *op = strata_op_find(node->op);
    if (!op) return strata_fail(err, STRATA_UNSUPPORTED, "there is no op %s", node->op);
    char *attrs = strata_graph_alloc(r->graph, op->attrs_bytes + 1);
    strata_tensor **inputs = strata_graph_alloc(r->graph, ((size_t)node->n_inputs + 1) * sizeof *inputs);
    STRATA_TRY(strata_graph_check(r->graph, err));
    for (const strata_attr_field *field = op->attrs; field->name; field++)
        for (int i = 0; i < node->n_attributes; i++)
            if (!strcmp(field->name, node->attributes[i]->name))
                read_attribute(r, op, field, node->attributes[i], attrs + field->offset);
    if (op == &strata_op_chain) read_chain(node, (strata_chain_attrs *)(void *)attrs);
    for (int i = 0; i < node->n_inputs; i++) {
        strata_tensor **tensor = &r->tensors[node->inputs[i]];
        if (!*tensor) *tensor = read_leaf(r, r->piece->values[node->inputs[i]]);
        inputs[i] = *tensor;
    }
    tell_lie(op, inputs, node->n_inputs);
    const strata_plugin_value *value = r->piece->values[node->output];
    strata_tensor *built =
        r->alone ? bare_node(r, op, node, inputs, attrs, value) : strata_node(r->graph, op, node->n_inputs, inputs, attrs);
    STRATA_TRY(strata_graph_check(r->graph, err));
    if ((strata_plugin_dtype)built->dtype != value->dtype || !strata_shape_equal(built->shape, shape_of(value)))
        return strata_fail(err, STRATA_INTERNAL, "%s gives %s %s, the tables say %s %s", node->op,
                           strata_dtype_name(built->dtype), strata_shape_text(built->shape).text,
                           strata_dtype_name((strata_dtype)value->dtype), strata_shape_text(shape_of(value)).text);
    r->tensors[node->output] = built;
    return STRATA_OK;
}

/* ---- from values to places ---- */

typedef struct layout {
    const strata_plugin_piece *piece;
    strata_plugin_program *program;
    strata_arena *arenas;
    int n_arenas;
    /* Indexed by value: its offset in the arena of constants or of temporaries. -1: it is in neither. */
    int64_t *offsets;
} layout;

static int64_t align_up(int64_t bytes) {
    return (bytes + STRATA_PLACE_ALIGNMENT - 1) / STRATA_PLACE_ALIGNMENT * STRATA_PLACE_ALIGNMENT;
}

static int arena_of(layout *l, strata_buffer *buffer, int64_t bytes, strata_arena_kind kind) {
    for (int i = FIRST_ARENA; i < l->n_arenas; i++)
        if (l->arenas[i].buffer == buffer) return i;
    l->arenas[l->n_arenas] = (strata_arena){.kind = kind, .bytes = bytes, .buffer = buffer};
    return l->n_arenas++;
}

static strata_place place_in(layout *l, const strata_plugin_buffer *buffer, int64_t offset, int64_t bytes,
                             strata_arena_kind kind) {
    return (strata_place){arena_of(l, buffer->buffer, buffer->bytes, kind), offset, bytes};
}

static strata_place place_of(layout *l, int v) {
    const strata_plugin_value *value = l->piece->values[v];
    if (!value->bytes) return (strata_place){STRATA_ARENA_INPUT, 0, 0};
    switch (value->role) {
        case STRATA_PLUGIN_INPUT:
            return (strata_place){STRATA_ARENA_INPUT, value->arena_offset, value->bytes};
        case STRATA_PLUGIN_OUTPUT:
            return (strata_place){STRATA_ARENA_OUTPUT, value->arena_offset, value->bytes};
        case STRATA_PLUGIN_VARIABLE:
            return place_in(l, value->buffer, value->buffer_offset, value->bytes, STRATA_ARENA_VARIABLE);
        case STRATA_PLUGIN_CARRIED:
            return place_in(l, value->buffer, value->buffer_offset, value->bytes, STRATA_ARENA_CARRIED);
        case STRATA_PLUGIN_CONSTANT:
            return (strata_place){arena_of(l, l->program->constants, l->program->constants_bytes, STRATA_ARENA_CONSTANT),
                                  l->offsets[v], value->bytes};
        default:
            break;
    }
    if (value->work) return place_in(l, value->work, value->work_offset, value->bytes, STRATA_ARENA_WORK);
    int64_t offset = 0;
    for (; l->piece->values[v]->alias_of != NONE; v = l->piece->values[v]->alias_of)
        offset += l->piece->values[v]->alias_offset;
    return (strata_place){arena_of(l, l->program->work, l->program->work_bytes, STRATA_ARENA_WORK), l->offsets[v] + offset,
                          value->bytes};
}

/* Creates the buffers of constants and temporaries. */
static strata_status make_memory(layout *l, strata_error *err) {
    strata_plugin_program *program = l->program;
    const strata_device_api *api = program->device->api;
    for (int v = 0; v < l->piece->n_values; v++) {
        const strata_plugin_value *value = l->piece->values[v];
        int64_t *bytes = value->role == STRATA_PLUGIN_CONSTANT ? &program->constants_bytes
                         : value->role == STRATA_PLUGIN_TEMPORARY && value->alias_of == NONE && !value->work
                             ? &program->work_bytes
                             : NULL;
        if (!bytes || !value->bytes) continue;
        l->offsets[v] = *bytes;
        *bytes += align_up(value->bytes);
    }
    if (program->work_bytes) STRATA_TRY(api->buffer_create(program->device, program->work_bytes, &program->work, err));
    if (!program->constants_bytes) return STRATA_OK;
    STRATA_TRY(api->buffer_create(program->device, program->constants_bytes, &program->constants, err));
    for (int v = 0; v < l->piece->n_values; v++) {
        const strata_plugin_value *value = l->piece->values[v];
        if (value->role == STRATA_PLUGIN_CONSTANT && value->bytes)
            STRATA_TRY(api->upload(program->device, program->constants, l->offsets[v], value->data, value->bytes, err));
    }
    return STRATA_OK;
}

static strata_status compile_read(reader *r, layout *l, strata_error *err) {
    strata_piece piece = {.n_nodes = r->piece->n_nodes, .n_slots = r->piece->n_slots, .arenas = l->arenas};
    for (int k = 0; k < r->piece->n_nodes; k++) STRATA_TRY(read_node(r, r->piece->nodes[k], err));
    STRATA_TRY(make_memory(l, err));
    strata_place *places = strata_graph_alloc(r->graph, (size_t)r->graph->n_nodes * sizeof *places);
    const strata_tensor **nodes = strata_graph_alloc(r->graph, ((size_t)piece.n_nodes + 1) * sizeof *nodes);
    STRATA_TRY(strata_graph_check(r->graph, err));
    for (int id = 0; id < r->graph->n_nodes; id++) places[id].arena = NONE;
    for (int v = 0; v < r->piece->n_values; v++)
        if (r->tensors[v]) places[r->tensors[v]->id] = place_of(l, v);
    for (int k = 0; k < piece.n_nodes; k++) nodes[k] = r->tensors[r->piece->nodes[k]->output];
    piece.nodes = nodes;
    piece.places = places;
    piece.n_places = r->graph->n_nodes;
    piece.n_arenas = l->n_arenas;
    for (int i = 0; i < l->n_arenas; i++)
        if (l->arenas[i].kind == STRATA_ARENA_VARIABLE && !l->program->variable)
            l->program->variable = l->arenas[i].buffer, l->program->variable_bytes = l->arenas[i].bytes;
    return r->device->api->compile(r->device, &piece, &l->program->program, err);
}

static void program_destroy(strata_plugin_program *program) {
    const strata_device_api *api = program->device->api;
    if (program->program) api->program_destroy(program->program);
    if (program->constants) api->buffer_destroy(program->device, program->constants);
    if (program->work) api->buffer_destroy(program->device, program->work);
    strata_graph_destroy(program->graph);
    free(program);
}

static strata_plugin_status compile(strata_plugin_device *device, const strata_plugin_piece *piece,
                                    strata_plugin_program **out_program, strata_plugin_error *error) {
    strata_error err = {0};
    strata_status status = STRATA_OK;
    strata_plugin_program *program = calloc(1, sizeof *program);
    reader r = {.piece = piece, .device = device->device};
    layout l = {.piece = piece, .program = program, .n_arenas = FIRST_ARENA};
    r.tensors = calloc((size_t)piece->n_values + 1, sizeof *r.tensors);
    l.arenas = calloc((size_t)piece->n_values + FIRST_ARENA + 2, sizeof *l.arenas);
    l.offsets = calloc((size_t)piece->n_values + 1, sizeof *l.offsets);
    if (program && r.tensors && l.arenas && l.offsets) {
        program->device = device->device;
        l.arenas[STRATA_ARENA_INPUT] = (strata_arena){.kind = STRATA_ARENA_INPUT, .bytes = piece->input_bytes};
        l.arenas[STRATA_ARENA_OUTPUT] = (strata_arena){.kind = STRATA_ARENA_OUTPUT, .bytes = piece->output_bytes};
        status = strata_graph_create(&program->graph, &err);
        r.graph = program->graph;
        if (!status) status = compile_read(&r, &l, &err);
    } else {
        status = strata_fail(&err, STRATA_OUT_OF_MEMORY, "no host memory for a program of %d nodes", (int)piece->n_nodes);
    }
    free(r.tensors);
    free(l.arenas);
    free(l.offsets);
    if (status) {
        if (program && program->device) program_destroy(program);
        return failed(error, status, &err);
    }
    *out_program = program;
    return STRATA_PLUGIN_OK;
}

/* Whether fusion created the node. */
static bool is_fused(const strata_tensor *node) {
    return node->op == &strata_op_chain || (node->op->epilogue && !strata_epilogue_is_plain(strata_epilogue_of(node)));
}

static strata_plugin_support supports(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                      const char **out_reason) {
    static char reason[256];
    strata_error err = {0};
    reader r = {.piece = piece, .device = device->device, .alone = true};
    strata_plugin_support support = STRATA_PLUGIN_NO;
    if (strata_graph_create(&r.graph, &err)) return support;
    r.tensors = calloc((size_t)piece->n_values + 1, sizeof *r.tensors);
    if (r.tensors && !read_node(&r, piece->nodes[node], &err)) {
        const strata_tensor *built = r.tensors[piece->nodes[node]->output];
        const strata_support own = device->device->api->supports(device->device, built, out_reason);
        if (own == STRATA_SUPPORT_YES && !(no_fused && is_fused(built)))
            support = STRATA_PLUGIN_YES;
        else if (own)
            support = STRATA_PLUGIN_PARTS;
    } else {
        snprintf(reason, sizeof reason, "%.255s", err.message);
        *out_reason = reason;
    }
    free(r.tensors);
    strata_graph_destroy(r.graph);
    return support;
}

/* ---- calls that are passed to the backend ---- */

static void close_device(strata_plugin_device *device) {
    strata_device_close(device->device);
    free(device);
}

static strata_plugin_status buffer_create(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out_buffer,
                                          strata_plugin_error *error) {
    strata_error err = {0};
    strata_plugin_buffer *buffer = most_bytes && bytes > most_bytes - device->used ? NULL : calloc(1, sizeof *buffer);
    if (!buffer) return STRATA_PLUGIN_OUT_OF_MEMORY;
    buffer->bytes = bytes;
    strata_status status = device->device->api->buffer_create(device->device, bytes, &buffer->buffer, &err);
    if (status) {
        free(buffer);
        return failed(error, status, &err);
    }
    device->used += bytes;
    *out_buffer = buffer;
    return STRATA_PLUGIN_OK;
}

static void buffer_destroy(strata_plugin_device *device, strata_plugin_buffer *buffer) {
    device->used -= buffer->bytes;
    device->device->api->buffer_destroy(device->device, buffer->buffer);
    free(buffer);
}

static strata_plugin_status upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, strata_plugin_error *error) {
    strata_error err = {0};
    strata_status status = device->device->api->upload(device->device, buffer->buffer, offset, source, bytes, &err);
    return status ? failed(error, status, &err) : STRATA_PLUGIN_OK;
}

static strata_plugin_status download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, strata_plugin_error *error) {
    strata_error err = {0};
    strata_status status = device->device->api->download(device->device, buffer->buffer, offset, target, bytes, &err);
    return status ? failed(error, status, &err) : STRATA_PLUGIN_OK;
}

static void *program_input(strata_plugin_program *program, int32_t slot) {
    return program->device->api->program_input(program->program, slot);
}

static const void *program_output(strata_plugin_program *program, int32_t slot) {
    return program->device->api->program_output(program->program, slot);
}

static strata_plugin_status run(strata_plugin_program *program, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                strata_plugin_error *error) {
    strata_error err = {0};
    (void)n; /* n is 1, because there is no table "steps" */
    const strata_device_api *api = program->device->api;
    strata_status status = api->run(program->program, first_slot, out_ticket, &err);
    if (!status && ++program->n_runs > lie_after && program->variable) {
        void *zeros = calloc(1, (size_t)program->variable_bytes);
        if (!zeros) return STRATA_PLUGIN_OUT_OF_MEMORY;
        status = api->wait(program->device, *out_ticket, &err);
        if (!status) status = api->upload(program->device, program->variable, 0, zeros, program->variable_bytes, &err);
        free(zeros);
    }
    return status ? failed(error, status, &err) : STRATA_PLUGIN_OK;
}

static strata_plugin_status wait(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns,
                                 strata_plugin_error *error) {
    strata_error err = {0};
    (void)timeout_ns; /* built-in backends have their own time limit */
    strata_status status = device->device->api->wait(device->device, ticket, &err);
    return status ? failed(error, status, &err) : STRATA_PLUGIN_OK;
}

static const strata_plugin_device_calls calls = {.size = sizeof calls,
                                                 .close = close_device,
                                                 .buffer_create = buffer_create,
                                                 .buffer_destroy = buffer_destroy,
                                                 .upload = upload,
                                                 .download = download,
                                                 .supports = supports,
                                                 .compile = compile,
                                                 .program_destroy = program_destroy,
                                                 .program_input = program_input,
                                                 .program_output = program_output,
                                                 .run = run,
                                                 .wait = wait};

/* ---- the plugin ---- */

/* If the options contain key=value, copies the value to out_value and returns it, otherwise returns NULL. */
static const char *option(const char *options, const char *key, char *out_value, size_t bytes) {
    const size_t n = strlen(key);
    for (; options && *options; options += strcspn(options, ";"), options += *options == ';') {
        if (strncmp(options, key, n) || options[n] != '=') continue;
        const size_t length = strcspn(options + n + 1, ";");
        if (length >= bytes) continue;
        memcpy(out_value, options + n + 1, length);
        out_value[length] = 0;
        return out_value;
    }
    return NULL;
}

static strata_plugin_status start(const char *options, int32_t *out_n_devices, strata_plugin_error *error) {
    char value[ID_BYTES];
    strata_error err = {0};
    option(options, "device", device_id, sizeof device_id);
    own_memory = option(options, "memory", value, sizeof value) && !strcmp(value, "own");
    option(options, "lie", lie, sizeof lie);
    if (option(options, "above", value, sizeof value)) lie_above = atoll(value);
    if (option(options, "after", value, sizeof value)) lie_after = atoll(value);
    if (option(options, "bytes", value, sizeof value)) most_bytes = atoll(value);
    no_fused = option(options, "fused", value, sizeof value) && !strcmp(value, "no");
    strata_device *device = NULL;
    strata_status status = strata_device_open(device_id, NULL, &device, &err);
    if (status) return failed(error, status, &err);
    found = *strata_device_get_info(device);
    strata_device_close(device);
    const uint64_t largest =
        found.max_range_bytes < found.max_allocation_bytes ? found.max_range_bytes : found.max_allocation_bytes;
    info = (strata_plugin_device_info){.size = sizeof info,
                                       .name = found.name,
                                       .vendor = found.vendor,
                                       .driver_version = found.driver,
                                       .memory_bytes = most_bytes ? most_bytes : (int64_t)found.memory_bytes,
                                       .max_buffer_bytes = (int64_t)largest,
                                       .compute_units = (int32_t)found.compute_units,
                                       .dtypes = found.dtypes,
                                       .unified_memory = found.unified_memory,
                                       .wants_arenas = !own_memory};
    *out_n_devices = option(options, "devices", value, sizeof value) ? atoi(value) : 1;
    return STRATA_PLUGIN_OK;
}

static const strata_plugin_device_info *device_info(int32_t index) {
    (void)index;
    return &info;
}

static strata_plugin_status device_open(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error) {
    strata_error err = {0};
    (void)index;
    strata_plugin_device *device = calloc(1, sizeof *device);
    if (!device) return STRATA_PLUGIN_OUT_OF_MEMORY;
    strata_status status = strata_device_open(device_id, &(strata_device_options){.no_tune = true}, &device->device, &err);
    if (status) {
        free(device);
        return failed(error, status, &err);
    }
    *out_device = device;
    *out_calls = &calls;
    return STRATA_PLUGIN_OK;
}

STRATA_PLUGIN_EXPORT const strata_plugin *strata_plugin_v1(const strata_plugin_host *host);
const strata_plugin *strata_plugin_v1(const strata_plugin_host *host) {
    static const strata_plugin plugin = {.size = sizeof plugin,
                                         .version_major = STRATA_PLUGIN_VERSION_MAJOR,
                                         .version_minor = STRATA_PLUGIN_VERSION_MINOR,
                                         .name = ADAPTER_NAME,
                                         .start = start,
                                         .device_info = device_info,
                                         .device_open = device_open};
    host->log(ADAPTER_NAME ": a built-in backend of " ADAPTER_DEVICE);
    return &plugin;
}
