/* SPDX-License-Identifier: Apache-2.0
 *
 * An accelerator for Strata: the plugin of a device called "no-such-file". It computes in host memory and runs two ops, matmul and add.
 * This is enough to train: Strata composes other ops from those that a device has, and --allow-fallback host runs the rest on
 * the host. Replace the parts of this file by code for your device, one after the other. strata/plugin.h is the manual.
 *
 * In the order of this file:
 *   1. the device's memory: buffers
 *   2. which ops it runs
 *   3. programs, which compile makes from Strata's tables
 *   4. running and waiting
 *   5. the device, and the plugin */
#include <stdio.h>
#include <stdlib.h>
#include <strata/plugin.h>
#include <string.h>

enum { MOST_RANK = 8, ARENA_ALIGNMENT = 64 };

/* Strata knows only the names of these structs. The plugin defines their contents, which are whatever a device needs. */
struct strata_plugin_device {
    uint64_t last_ticket;
};

/* A call that fails returns a status, which shows the user what can be done, and sets a message with the values. */
static strata_plugin_status fail(strata_plugin_error *error, strata_plugin_status status, const char *what, long long value) {
    snprintf(error->message, sizeof error->message, what, value);
    return status;
}

/* ---- 1. memory ---------------------------------------------------------------------------------------------------------- */

/* Device memory. A real device allocates it through its driver, and stores the driver's handle here. */
struct strata_plugin_buffer {
    char *bytes;
};

/* A new buffer must be filled with 0. */
static strata_plugin_status buffer_create(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out_buffer,
                                          strata_plugin_error *error) {
    (void)device;
    strata_plugin_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) buffer->bytes = calloc(1, (size_t)bytes);
    if (!buffer || !buffer->bytes) {
        free(buffer);
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no memory for a buffer of %lld bytes", (long long)bytes);
    }
    *out_buffer = buffer;
    return STRATA_PLUGIN_OK;
}

static void buffer_destroy(strata_plugin_device *device, strata_plugin_buffer *buffer) {
    (void)device;
    free(buffer->bytes);
    free(buffer);
}

/* A copy must begin after all runs that were submitted before it have ended, and must be complete when it returns. Here runs
 * end before they return. */
static strata_plugin_status upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, strata_plugin_error *error) {
    (void)device, (void)error;
    memcpy(buffer->bytes + offset, source, (size_t)bytes);
    return STRATA_PLUGIN_OK;
}

static strata_plugin_status download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, strata_plugin_error *error) {
    (void)device, (void)error;
    memcpy(target, buffer->bytes + offset, (size_t)bytes);
    return STRATA_PLUGIN_OK;
}

/* ---- 2. ops ------------------------------------------------------------------------------------------------------------- */

/* Finds an attribute of a node by its name. */
static const strata_plugin_attribute *find_attribute(const strata_plugin_node *node, const char *name) {
    for (int32_t i = 0; i < node->n_attributes; i++)
        if (!strcmp(node->attributes[i]->name, name)) return node->attributes[i];
    return NULL;
}

static int64_t int_attribute(const strata_plugin_node *node, const char *name) {
    const strata_plugin_attribute *attribute = find_attribute(node, name);
    return attribute && attribute->type == STRATA_PLUGIN_INTS && attribute->n ? attribute->ints[0] : 0;
}

static int is_text(const strata_plugin_node *node, const char *name, const char *text) {
    const strata_plugin_attribute *attribute = find_attribute(node, name);
    return !attribute || (attribute->type == STRATA_PLUGIN_TEXT && !strcmp(attribute->text, text));
}

/* Strata fuses a bias, an activation or a gradient into a product if the device runs the fused node. This device runs only the
 * plain product. It refuses the fused node, and Strata then uses separate nodes. */
static int is_plain_product(const strata_plugin_node *node) {
    return !int_attribute(node, "has_bias") && is_text(node, "activation", "linear") && is_text(node, "aux", "none");
}

/* Strata calls this for each node before it compiles a program. The answer depends on the node's op, attributes, dtypes and
 * shapes. The reason is shown to the user. */
static strata_plugin_support supports(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                      const char **out_reason) {
    (void)device;
    const strata_plugin_node *asked = piece->nodes[node];
    if (piece->values[asked->output]->dtype != STRATA_PLUGIN_F32) {
        *out_reason = "no-such-file computes in f32";
        return STRATA_PLUGIN_NO;
    }
    if (!strcmp(asked->op, "add")) return STRATA_PLUGIN_YES;
    if (strcmp(asked->op, "matmul")) {
        *out_reason = "no-such-file runs matmul and add";
        return STRATA_PLUGIN_NO;
    }
    if (is_plain_product(asked)) return STRATA_PLUGIN_YES;
    *out_reason = "no-such-file has no fused products";
    return STRATA_PLUGIN_NO;
}

/* ---- 3. programs -------------------------------------------------------------------------------------------------------- */

/* The device's copy of what it needs of a value, since the tables that compile gets are not valid after it returns. */
typedef struct value {
    int rank;
    int64_t dims[MOST_RANK];
    /* Its bytes, at an address that does not change; NULL: they are at `offset` in the INPUT or OUTPUT arena of the running
     * slot. */
    char *bytes;
    strata_plugin_role role;
    int64_t offset;
} value;

typedef struct step {
    int is_matmul;
    int transpose_a, transpose_b;
    int32_t a, b, out;
} step;

struct strata_plugin_program {
    strata_plugin_device *device;
    value *values;
    step *steps;
    int32_t n_values, n_steps, n_slots;
    /* [values] The memory of temporaries and the copies of constants; NULL for other values. */
    char **owned;
    /* [slots] */
    char **inputs, **outputs;
};

static void program_destroy(strata_plugin_program *program) {
    for (int32_t i = 0; program->owned && i < program->n_values; i++) free(program->owned[i]);
    for (int32_t s = 0; program->inputs && s < program->n_slots; s++) free(program->inputs[s]);
    for (int32_t s = 0; program->outputs && s < program->n_slots; s++) free(program->outputs[s]);
    free(program->values);
    free(program->steps);
    free(program->owned);
    free(program->inputs);
    free(program->outputs);
    free(program);
}

static size_t round_up(int64_t bytes) {
    return ((size_t)bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

/* Sets the memory of a value that is not an alias of another value. Aliases are set afterwards (place_alias). */
static int place_value(strata_plugin_program *program, int32_t index, const strata_plugin_value *given) {
    value *own = &program->values[index];
    own->rank = given->rank;
    memcpy(own->dims, given->dims, (size_t)given->rank * sizeof *own->dims);
    own->role = given->role;
    own->offset = given->arena_offset;
    switch (given->role) {
        case STRATA_PLUGIN_VARIABLE:
        case STRATA_PLUGIN_CARRIED:
            own->bytes = given->bytes ? given->buffer->bytes + given->buffer_offset : NULL;
            return 1;
        case STRATA_PLUGIN_CONSTANT:
        case STRATA_PLUGIN_TEMPORARY:
            if (given->alias_of >= 0 || !given->bytes) return 1;
            /* A real plugin would let temporaries share memory: each is needed from the node given->first_node to last_node. */
            own->bytes = program->owned[index] = calloc(1, (size_t)given->bytes);
            if (own->bytes && given->data) memcpy(own->bytes, given->data, (size_t)given->bytes);
            return own->bytes != NULL;
        default:
            return 1; /* INPUT and OUTPUT are in the arena of a slot */
    }
}

/* Sets the memory of an alias. Its bytes begin at alias_offset in those of another value, which may be an alias as well. */
static void place_alias(strata_plugin_program *program, const strata_plugin_piece *piece, int32_t index) {
    int64_t offset = 0;
    int32_t root = index;
    for (; piece->values[root]->alias_of >= 0; root = piece->values[root]->alias_of)
        offset += piece->values[root]->alias_offset;
    if (root != index && program->values[root].bytes) program->values[index].bytes = program->values[root].bytes + offset;
}

static int make_slots(strata_plugin_program *program, const strata_plugin_piece *piece) {
    for (int32_t s = 0; s < piece->n_slots; s++) {
        if (piece->input_bytes) {
            program->inputs[s] = aligned_alloc(ARENA_ALIGNMENT, round_up(piece->input_bytes));
            if (!program->inputs[s]) return 0;
            memset(program->inputs[s], 0, round_up(piece->input_bytes));
        }
        if (piece->output_bytes) {
            program->outputs[s] = aligned_alloc(ARENA_ALIGNMENT, round_up(piece->output_bytes));
            if (!program->outputs[s]) return 0;
            memset(program->outputs[s], 0, round_up(piece->output_bytes));
        }
    }
    return 1;
}

static int fill_program(strata_plugin_program *program, const strata_plugin_piece *piece) {
    program->n_values = piece->n_values;
    program->n_steps = piece->n_nodes;
    program->n_slots = piece->n_slots;
    program->values = calloc((size_t)piece->n_values + 1, sizeof *program->values);
    program->steps = calloc((size_t)piece->n_nodes + 1, sizeof *program->steps);
    program->owned = calloc((size_t)piece->n_values + 1, sizeof *program->owned);
    program->inputs = calloc((size_t)piece->n_slots + 1, sizeof *program->inputs);
    program->outputs = calloc((size_t)piece->n_slots + 1, sizeof *program->outputs);
    if (!program->values || !program->steps || !program->owned || !program->inputs || !program->outputs) return 0;
    for (int32_t i = 0; i < piece->n_values; i++)
        if (!place_value(program, i, piece->values[i])) return 0;
    for (int32_t i = 0; i < piece->n_values; i++) place_alias(program, piece, i);
    for (int32_t k = 0; k < piece->n_nodes; k++) {
        const strata_plugin_node *node = piece->nodes[k];
        program->steps[k] = (step){.is_matmul = !strcmp(node->op, "matmul"),
                                   .transpose_a = (int)int_attribute(node, "transpose_a"),
                                   .transpose_b = (int)int_attribute(node, "transpose_b"),
                                   .a = node->inputs[0],
                                   .b = node->inputs[1],
                                   .out = node->output};
    }
    return make_slots(program, piece);
}

/* A program is compiled once and runs in every step, so compile may take time to make it fast. */
static strata_plugin_status compile(strata_plugin_device *device, const strata_plugin_piece *piece,
                                    strata_plugin_program **out_program, strata_plugin_error *error) {
    strata_plugin_program *program = calloc(1, sizeof *program);
    if (!program || !fill_program(program, piece)) {
        if (program) program_destroy(program);
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no memory for a program of %lld nodes", piece->n_nodes);
    }
    program->device = device;
    *out_program = program;
    return STRATA_PLUGIN_OK;
}

/* The host writes and reads these between runs of the slot. */
static void *program_input(strata_plugin_program *program, int32_t slot) {
    return program->inputs[slot];
}

static const void *program_output(strata_plugin_program *program, int32_t slot) {
    return program->outputs[slot];
}

/* ---- 4. running --------------------------------------------------------------------------------------------------------- */

static float *address(const strata_plugin_program *program, int32_t index, int32_t slot) {
    const value *v = &program->values[index];
    if (v->role == STRATA_PLUGIN_INPUT) return (float *)(void *)(program->inputs[slot] + v->offset);
    if (v->role == STRATA_PLUGIN_OUTPUT) return (float *)(void *)(program->outputs[slot] + v->offset);
    return (float *)(void *)v->bytes;
}

static int64_t elements(const value *v) {
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++) n *= v->dims[d];
    return n;
}

/* out = a b, for each matrix of the leading axes. An operand without leading axes is the same for all matrices. */
static void run_matmul(const strata_plugin_program *program, const step *s, int32_t slot) {
    const value *a = &program->values[s->a], *b = &program->values[s->b], *out = &program->values[s->out];
    const float *x = address(program, s->a, slot), *y = address(program, s->b, slot);
    float *z = address(program, s->out, slot);
    const int64_t m = out->dims[out->rank - 2], n = out->dims[out->rank - 1];
    const int64_t k = a->dims[a->rank - (s->transpose_a ? 2 : 1)], n_matrices = m && n ? elements(out) / (m * n) : 0;
    for (int64_t matrix = 0; matrix < n_matrices; matrix++) {
        const float *left = x + (a->rank > 2 ? matrix * m * k : 0), *right = y + (b->rank > 2 ? matrix * k * n : 0);
        for (int64_t i = 0; i < m; i++, z += n) {
            for (int64_t j = 0; j < n; j++) z[j] = 0;
            for (int64_t l = 0; l < k; l++) {
                const float factor = s->transpose_a ? left[l * m + i] : left[i * k + l];
                for (int64_t j = 0; j < n; j++) z[j] += factor * (s->transpose_b ? right[j * k + l] : right[l * n + j]);
            }
        }
    }
}

/* strides[d]: the distance between elements of the operand along axis d of `out`; 0: the operand is repeated along this axis
 * (NumPy's broadcasting). */
static void find_strides(const value *v, const value *out, int64_t *strides) {
    int64_t distance = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        const int own = d - (out->rank - v->rank);
        strides[d] = own >= 0 && v->dims[own] > 1 ? distance : 0;
        if (own >= 0) distance *= v->dims[own];
    }
}

static void run_add(const strata_plugin_program *program, const step *s, int32_t slot) {
    const value *out = &program->values[s->out];
    const float *x = address(program, s->a, slot), *y = address(program, s->b, slot);
    float *z = address(program, s->out, slot);
    int64_t x_strides[MOST_RANK], y_strides[MOST_RANK], at[MOST_RANK] = {0}, x_at = 0, y_at = 0;
    const int64_t n = elements(out);
    find_strides(&program->values[s->a], out, x_strides);
    find_strides(&program->values[s->b], out, y_strides);
    for (int64_t i = 0; i < n; i++) {
        z[i] = x[x_at] + y[y_at];
        for (int d = out->rank - 1; d >= 0; d--) { /* advances to the next element in row-major order */
            x_at += x_strides[d], y_at += y_strides[d];
            if (++at[d] < out->dims[d]) break;
            x_at -= x_strides[d] * out->dims[d], y_at -= y_strides[d] * out->dims[d];
            at[d] = 0;
        }
    }
}

/* A real device submits the work and returns at once; Strata passes the ticket to `wait` later. n is 1, since this device has
 * no table "steps". */
static strata_plugin_status run(strata_plugin_program *program, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                strata_plugin_error *error) {
    (void)n, (void)error;
    for (int32_t k = 0; k < program->n_steps; k++) {
        const step *s = &program->steps[k];
        if (s->is_matmul)
            run_matmul(program, s, first_slot);
        else
            run_add(program, s, first_slot);
    }
    *out_ticket = ++program->device->last_ticket;
    return STRATA_PLUGIN_OK;
}

/* Waits until the run with this ticket has ended; returns TIMEOUT after timeout_ns. Here it has ended already. */
static strata_plugin_status wait_for(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns,
                                     strata_plugin_error *error) {
    (void)device, (void)ticket, (void)timeout_ns, (void)error;
    return STRATA_PLUGIN_OK;
}

/* ---- 5. the device and the plugin --------------------------------------------------------------------------------------- */

static void close_device(strata_plugin_device *device) {
    free(device);
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
                                                 .wait = wait_for};

/* Finds the devices. options: the text after the name of the file in --plugin libno-such-file.so,key=value. */
static strata_plugin_status start(const char *options, int32_t *out_n_devices, strata_plugin_error *error) {
    if (options) return fail(error, STRATA_PLUGIN_INVALID, "no-such-file has no options", 0);
    *out_n_devices = 1;
    return STRATA_PLUGIN_OK;
}

static const strata_plugin_device_info *device_info(int32_t index) {
    static const strata_plugin_device_info info = {.size = sizeof info,
                                                   .name = "No-such-file A1",
                                                   .vendor = "No-such-file",
                                                   .driver_version = "0.1",
                                                   /* A bit for each dtype of values. Labels and tokens are i32. */
                                                   .dtypes = 1u << STRATA_PLUGIN_F32 | 1u << STRATA_PLUGIN_I32,
                                                   .unified_memory = 1};
    (void)index;
    return &info;
}

static strata_plugin_status device_open(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error) {
    strata_plugin_device *device = calloc(1, sizeof *device);
    if (!device) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no memory for device %lld", index);
    *out_device = device;
    *out_calls = &calls;
    return STRATA_PLUGIN_OK;
}

/* The one symbol that the file exports. */
STRATA_PLUGIN_EXPORT const strata_plugin *strata_plugin_v1(const strata_plugin_host *host);
const strata_plugin *strata_plugin_v1(const strata_plugin_host *host) {
    static const strata_plugin plugin = {.size = sizeof plugin,
                                         .version_major = STRATA_PLUGIN_VERSION_MAJOR,
                                         .version_minor = STRATA_PLUGIN_VERSION_MINOR,
                                         .name = "no-such-file",
                                         .start = start,
                                         .device_info = device_info,
                                         .device_open = device_open};
    host->log("no-such-file: hello"); /* strata devices --verbose shows it */
    return &plugin;
}
