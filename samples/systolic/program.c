/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles a piece (a part of a graph, as Strata passes it) to a program: its values get places in memory, and its nodes
 * become steps. Also runs programs. The numbers are computed here, on the host, one step after the other; schedule.c computes
 * the time that the chip would need. */
#include <stdlib.h>
#include <string.h>

#include "systolic.h"

/* In bytes: temporaries are aligned to LINE; CAST_SCRATCH is the scratch memory of the op "cast". */
enum { LINE = 64, CAST_SCRATCH = 1 << 13 };

/* ---- reading a piece ---- */

/* A piece that is not valid is a mistake of the library or of a test. It is reported, and nothing beyond the given sizes is
 * read. */
static const char *read_array(const strata_plugin_value *from, array *to) {
    const int32_t rank = GET(from, strata_plugin_value, rank);
    const int64_t *dims = GET(from, strata_plugin_value, dims);
    *to = (array){.dtype = GET(from, strata_plugin_value, dtype), .rank = rank, .n = 1};
    if (!dtype_bytes(to->dtype)) return "a value has a dtype that plugin.h does not have";
    if (rank < 0 || rank > MOST_AXES || (rank && !dims)) return "a value has not 0 to 8 dimensions";
    for (int d = 0; d < rank; d++) {
        if (dims[d] < 0 || __builtin_mul_overflow(to->n, dims[d], &to->n)) return "a value has a dimension that cannot be";
        to->dims[d] = dims[d];
    }
    int64_t bytes;
    if (__builtin_mul_overflow(to->n, dtype_bytes(to->dtype), &bytes) || bytes != GET(from, strata_plugin_value, bytes))
        return "a value's bytes are not its elements times the bytes of one";
    return NULL;
}

static strata_plugin_attribute *copy_attribute(const strata_plugin_attribute *from, pool *pool) {
    strata_plugin_attribute *to = pool_take(pool, sizeof *to);
    const char *name = GET(from, strata_plugin_attribute, name), *text = GET(from, strata_plugin_attribute, text);
    if (!to || !name) return NULL;
    to->size = sizeof *to;
    to->type = GET(from, strata_plugin_attribute, type);
    to->n = GET(from, strata_plugin_attribute, n);
    if (to->n < 0) return NULL;
    char *own_name = pool_take(pool, (int64_t)strlen(name) + 1),
         *own_text = text ? pool_take(pool, (int64_t)strlen(text) + 1) : NULL;
    if (!own_name || (text && !own_text)) return NULL;
    to->name = strcpy(own_name, name);
    if (text) to->text = strcpy(own_text, text);
    const bool ints = to->type == STRATA_PLUGIN_INTS, floats = to->type == STRATA_PLUGIN_FLOATS;
    const void *numbers = ints ? (const void *)GET(from, strata_plugin_attribute, ints)
                               : (const void *)GET(from, strata_plugin_attribute, floats);
    if (!ints && !floats) return to;
    void *own = pool_take(pool, to->n * 8);
    if (!own || (to->n && !numbers)) return NULL;
    if (to->n) memcpy(own, numbers, (size_t)to->n * 8);
    if (ints)
        to->ints = own;
    else
        to->floats = own;
    return to;
}

/* Converts a node to a step. arrays: [n_values] those of all values. Returns NULL, or why it cannot be done. */
static const char *read_node(const strata_plugin_node *node, int number, const array *arrays, int n_values, pool *pool,
                             step *s) {
    static const char no_memory[] = "there is no host memory";
    const char *name = GET(node, strata_plugin_node, op);
    const int32_t *inputs = GET(node, strata_plugin_node, inputs), *writes = GET(node, strata_plugin_node, writes);
    const int32_t n_inputs = GET(node, strata_plugin_node, n_inputs), output = GET(node, strata_plugin_node, output);
    const int32_t n_attributes = GET(node, strata_plugin_node, n_attributes),
                  n_writes = GET(node, strata_plugin_node, n_writes);
    const int32_t n_parts = GET(node, strata_plugin_node, n_parts);
    const strata_plugin_attribute *const *attributes = GET(node, strata_plugin_node, attributes);
    *s = (step){.node = number, .n_inputs = n_inputs, .out_id = output, .n_attributes = n_attributes};
    if (!name || n_inputs < 0 || (n_inputs && !inputs) || output < 0 || output >= n_values || n_attributes < 0 ||
        (n_attributes && !attributes) || n_writes < 0 || (n_writes && !writes) || n_parts < 0)
        return "a node's table is not complete";
    s->op = op_find(name);
    if (!s->op) return "the chip does not have this op";
    const array **own_inputs = pool_take(pool, n_inputs * (int64_t)sizeof(*own_inputs));
    int32_t *ids = pool_take(pool, n_inputs * (int64_t)sizeof *ids);
    const strata_plugin_attribute **own = pool_take(pool, n_attributes * (int64_t)sizeof(*own));
    if (!own_inputs || !ids || !own) return no_memory;
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] < 0 || inputs[i] >= n_values) return "a node reads a value that the piece does not have";
        ids[i] = inputs[i];
        own_inputs[i] = &arrays[inputs[i]];
        if (i < MOST_INPUTS) s->in[i] = own_inputs[i];
    }
    for (int i = 0; i < n_attributes; i++) {
        own[i] = attributes[i] ? copy_attribute(attributes[i], pool) : NULL;
        if (!own[i]) return "an attribute of a node is not complete, or there is no host memory";
    }
    for (int i = 0; i < n_writes; i++)
        if (writes[i] >= 0 && writes[i] < 32) s->writes |= UINT32_C(1) << writes[i];
    s->inputs = own_inputs;
    s->in_ids = ids;
    s->attributes = own;
    s->out = &arrays[output];
    if (n_inputs < s->op->least_inputs || (s->op->most_inputs >= 0 && n_inputs > s->op->most_inputs))
        return "the op does not take this many inputs";
    if (n_inputs && !(s->op->dtypes >> s->inputs[0]->dtype & 1)) return "the op does not take this dtype";
    /* A fused node is run as a whole. Only for a chain the parts are needed, since they define what it computes. */
    const strata_plugin_node *const *parts = GET(node, strata_plugin_node, parts);
    if (strcmp(name, "chain") || !n_parts || !parts) return NULL;
    step *own_parts = pool_take(pool, n_parts * (int64_t)sizeof *own_parts);
    if (!own_parts) return no_memory;
    for (int i = 0; i < n_parts; i++) {
        const char *why =
            parts[i] ? read_node(parts[i], number, arrays, n_values, pool, &own_parts[i]) : "a part of a node is NULL";
        if (why) return why;
    }
    s->parts = own_parts;
    s->n_parts = n_parts;
    return NULL;
}

static const char *check_step(const step *s) {
    return s->op->refuse ? s->op->refuse(s) : NULL;
}

/* Returns the arrays of all values. NULL: *out_why has the reason. */
static array *read_arrays(const strata_plugin_piece *piece, pool *pool, const char **out_why) {
    const int32_t n = GET(piece, strata_plugin_piece, n_values);
    const strata_plugin_value *const *values = GET(piece, strata_plugin_piece, values);
    *out_why = "the piece has no values";
    if (n < 0 || (n && !values)) return NULL;
    array *arrays = pool_take(pool, n * (int64_t)sizeof *arrays);
    *out_why = "there is no host memory";
    for (int i = 0; arrays && i < n; i++) {
        *out_why = values[i] ? read_array(values[i], &arrays[i]) : "a value's table is NULL";
        if (*out_why) return NULL;
    }
    return arrays;
}

strata_plugin_support program_supports(const strata_plugin_piece *piece, int32_t node, const char **out_reason) {
    const strata_plugin_node *const *nodes = GET(piece, strata_plugin_piece, nodes);
    const char *why = "there is no such node";
    pool pool = {0};
    step s;
    if (nodes && node >= 0 && node < GET(piece, strata_plugin_piece, n_nodes) && nodes[node]) {
        const array *arrays = read_arrays(piece, &pool, &why);
        if (arrays) why = read_node(nodes[node], node, arrays, GET(piece, strata_plugin_piece, n_values), &pool, &s);
        if (arrays && !why) why = check_step(&s);
    }
    pool_free(&pool);
    *out_reason = why;
    return why ? STRATA_PLUGIN_NO : STRATA_PLUGIN_YES;
}

/* ---- places in memory ---- */

static strata_plugin_status read_value(strata_plugin_program *program, const strata_plugin_value *from, int index,
                                       strata_plugin_error *error) {
    value *v = &program->values[index];
    const int64_t arena_offset = GET(from, strata_plugin_value, arena_offset);
    strata_plugin_buffer *buffer = GET(from, strata_plugin_value, buffer);
    const int64_t buffer_offset = GET(from, strata_plugin_value, buffer_offset);
    const void *data = GET(from, strata_plugin_value, data);
    v->role = GET(from, strata_plugin_value, role);
    v->bytes = v->array.n * dtype_bytes(v->array.dtype);
    v->root = STRATA_PLUGIN_HAS(from, strata_plugin_value, alias_of) && from->alias_of >= 0 ? from->alias_of : -1;
    v->root_offset = GET(from, strata_plugin_value, alias_offset);
    if (v->root >= program->n_values || v->root == index)
        return fail(error, STRATA_PLUGIN_INVALID, "value %d is an alias of value %d; there are %d values", index, v->root,
                    program->n_values);
    const bool output = v->role == STRATA_PLUGIN_OUTPUT;
    const int64_t arena = output ? program->output_bytes : program->input_bytes;
    switch (v->role) {
        case STRATA_PLUGIN_INPUT:
        case STRATA_PLUGIN_OUTPUT:
            if (arena_offset < 0 || arena_offset > arena || v->bytes > arena - arena_offset)
                return fail(error, STRATA_PLUGIN_INVALID, "value %d lies at %lld of an arena of %lld bytes", index,
                            (long long)arena_offset, (long long)arena);
            v->place = (place){.kind = output ? IN_OUTPUT : IN_INPUT, .offset = arena_offset};
            break;
        case STRATA_PLUGIN_CONSTANT:
            if (v->bytes && !data) return fail(error, STRATA_PLUGIN_INVALID, "value %d is a constant without data", index);
            v->place.address = pool_take(&program->pool, v->bytes);
            if (!v->place.address) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for a constant");
            if (v->bytes) memcpy(v->place.address, data, (size_t)v->bytes);
            break;
        case STRATA_PLUGIN_VARIABLE:
        case STRATA_PLUGIN_CARRIED:
            if (!buffer || buffer_offset < 0 || buffer_offset > buffer->bytes || v->bytes > buffer->bytes - buffer_offset)
                return fail(error, STRATA_PLUGIN_INVALID, "value %d, of role %d, has %lld bytes at %lld of a buffer of %lld",
                            index, v->role, (long long)v->bytes, (long long)buffer_offset,
                            (long long)(buffer ? buffer->bytes : 0));
            v->place.address = buffer->data + buffer_offset;
            break;
        case STRATA_PLUGIN_TEMPORARY:
            break;
        default:
            return fail(error, STRATA_PLUGIN_INVALID, "value %d has the role %d, which plugin.h does not have", index, v->role);
    }
    return STRATA_PLUGIN_OK;
}

/* Reads a value that a step uses, and the values of which it is an alias. */
static strata_plugin_status read_used(strata_plugin_program *program, const strata_plugin_value *const *values, int index,
                                      strata_plugin_error *error) {
    strata_plugin_status status = STRATA_PLUGIN_OK;
    while (!status && index >= 0 && !program->values[index].is_used) {
        program->values[index].is_used = true;
        status = read_value(program, values[index], index, error);
        index = program->values[index].root;
    }
    return status;
}

/* Follows aliases to their roots. The life of a root begins with the first and ends with the last use of any value that shares
 * its bytes. */
static strata_plugin_status find_roots(strata_plugin_program *program, strata_plugin_error *error) {
    for (int i = 0; i < program->n_values; i++) {
        value *v = &program->values[i];
        int root = i, turns = 0;
        int64_t offset = 0;
        for (; program->values[root].root >= 0 && turns <= program->n_values; turns++) {
            /* Values before i were resolved already: their offset is the one in the root. */
            offset += program->values[root].root_offset;
            if (root < i) {
                root = program->values[root].root;
                break;
            }
            root = program->values[root].root;
        }
        if (turns > program->n_values) return fail(error, STRATA_PLUGIN_INVALID, "value %d is an alias of itself", i);
        const value *whole = &program->values[root];
        if (offset < 0 || offset > whole->bytes || v->bytes > whole->bytes - offset)
            return fail(error, STRATA_PLUGIN_INVALID, "value %d does not lie in value %d, whose bytes it has", i, root);
        v->root = root;
        v->root_offset = offset;
    }
    for (int k = 0; k < program->n_steps; k++) {
        const step *s = &program->steps[k];
        for (int i = -1; i < s->n_inputs; i++) {
            value *v = &program->values[program->values[i < 0 ? s->out_id : s->in_ids[i]].root];
            if (v->first < 0) v->first = k;
            v->last = k;
        }
    }
    return STRATA_PLUGIN_OK;
}

/* Allocates the host's memory for temporaries, the largest first. Each gets the lowest place that is free during its life. */
static int by_size(const void *a, const void *b) {
    const value *const x = *(const value *const *)a, *const y = *(const value *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1;
}

static strata_plugin_status place_temporaries(strata_plugin_program *program, strata_plugin_error *error) {
    value **sorted = malloc(((size_t)program->n_values + 1) * sizeof(*sorted));
    int n = 0;
    int64_t end = 0;
    if (!sorted) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for a plan of %d values", program->n_values);
    for (int i = 0; i < program->n_values; i++) {
        value *v = &program->values[i];
        if (v->role == STRATA_PLUGIN_TEMPORARY && v->root == i && v->first >= 0) sorted[n++] = v;
    }
    qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
    for (int i = 0; i < n; i++) {
        value *v = sorted[i];
        const int64_t bytes = (v->bytes + LINE - 1) / LINE * LINE;
        v->place.offset = 0;
        /* Moves the value behind each value that overlaps it and lives at the same time, until there is no such value. */
        for (int j = 0; j < i;) {
            const value *other = sorted[j];
            const int64_t other_end = other->place.offset + (other->bytes + LINE - 1) / LINE * LINE;
            if (other->first <= v->last && v->first <= other->last && other->place.offset < v->place.offset + bytes &&
                v->place.offset < other_end) {
                v->place.offset = other_end;
                j = 0;
            } else {
                j++;
            }
        }
        if (v->place.offset + bytes > end) end = v->place.offset + bytes;
    }
    char *memory = pool_take(&program->pool, end + LINE);
    for (int i = 0; i < n && memory; i++) sorted[i]->place.address = memory + sorted[i]->place.offset;
    free(sorted);
    if (!memory)
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for %lld bytes of temporaries", (long long)end);
    /* Sets the places of views of temporaries, and of values without bytes. */
    for (int i = 0; i < program->n_values; i++) {
        value *v = &program->values[i];
        if (v->role != STRATA_PLUGIN_TEMPORARY || (v->root == i && v->place.address)) continue;
        const place root = program->values[v->root].place;
        v->place = root;
        v->place.offset = (root.kind == IN_MEMORY ? 0 : root.offset) + v->root_offset;
        if (root.kind == IN_MEMORY) v->place.address = root.address ? root.address + v->root_offset : memory;
    }
    return STRATA_PLUGIN_OK;
}

/* ---- compile ---- */

/* Whether the op computes in f32, on copies of these 16-bit values. */
static bool is_widened(const step *s, const array *a) {
    return s->op->widens && (a->dtype == STRATA_PLUGIN_F16 || a->dtype == STRATA_PLUGIN_BF16);
}

static int64_t widened_bytes(const step *s) {
    int64_t bytes = is_widened(s, s->out) ? (s->out->n * 4 + LINE - 1) / LINE * LINE : 0;
    for (int i = 0; i < s->n_inputs; i++)
        if (is_widened(s, s->inputs[i])) bytes += (s->inputs[i]->n * 4 + LINE - 1) / LINE * LINE;
    return bytes;
}

static strata_plugin_status read_steps(strata_plugin_program *program, const strata_plugin_piece *piece, const array *arrays,
                                       strata_plugin_error *error) {
    const strata_plugin_node *const *nodes = GET(piece, strata_plugin_piece, nodes);
    int64_t scratch = 0;
    int widest = 1;
    for (int i = 0; i < program->n_steps; i++) {
        step *s = &program->steps[i];
        const char *why = nodes[i] ? read_node(nodes[i], i, arrays, program->n_values, &program->pool, s) : "its table is NULL";
        if (!why) why = check_step(s);
        if (why)
            return fail(error, STRATA_PLUGIN_UNSUPPORTED, "node %d (%s) cannot be compiled: %s", i,
                        nodes[i] && GET(nodes[i], strata_plugin_node, op) ? nodes[i]->op : "?", why);
        if (s->op->prepare && !s->op->prepare(s, &program->pool))
            return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for node %d (%s)", i, s->op->name);
        const int64_t wanted = widened_bytes(s) + s->scratch_bytes;
        if (wanted > scratch) scratch = wanted;
        if (s->n_inputs > widest) widest = s->n_inputs;
    }
    program->cast = op_find("cast");
    program->scratch = pool_take(&program->pool, CAST_SCRATCH + scratch);
    program->addresses = pool_take(&program->pool, widest * (int64_t)sizeof(*program->addresses));
    if (!program->scratch || !program->addresses)
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for %lld bytes of scratch", (long long)scratch);
    return STRATA_PLUGIN_OK;
}

static strata_plugin_status take_arenas(strata_plugin_program *program, strata_plugin_error *error) {
    program->inputs = pool_take(&program->pool, program->n_slots * (int64_t)sizeof(*program->inputs));
    program->outputs = pool_take(&program->pool, program->n_slots * (int64_t)sizeof(*program->outputs));
    for (int i = 0; i < program->n_slots && program->inputs && program->outputs; i++) {
        program->inputs[i] = pool_take(&program->pool, program->input_bytes);
        program->outputs[i] = pool_take(&program->pool, program->output_bytes);
        if (!program->inputs[i] || !program->outputs[i]) break;
        if (i == program->n_slots - 1) return STRATA_PLUGIN_OK;
    }
    return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for %d slots of %lld and %lld bytes", program->n_slots,
                (long long)program->input_bytes, (long long)program->output_bytes);
}

static strata_plugin_status compile(strata_plugin_program *program, const strata_plugin_piece *piece,
                                    strata_plugin_error *error) {
    const strata_plugin_value *const *values = GET(piece, strata_plugin_piece, values);
    const char *why;
    strata_plugin_status status;
    const array *arrays = read_arrays(piece, &program->pool, &why);
    program->values = pool_take(&program->pool, program->n_values * (int64_t)sizeof *program->values);
    program->steps = pool_take(&program->pool, program->n_steps * (int64_t)sizeof *program->steps);
    program->timings = pool_take(&program->pool, program->n_steps * (int64_t)sizeof *program->timings);
    if (!arrays) return fail(error, STRATA_PLUGIN_INVALID, "the piece cannot be read: %s", why);
    if (!program->values || !program->steps || !program->timings)
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for a program of %d nodes", program->n_steps);
    if ((status = read_steps(program, piece, arrays, error))) return status;
    for (int i = 0; i < program->n_values; i++)
        program->values[i] = (value){.array = arrays[i], .role = STRATA_PLUGIN_TEMPORARY, .root = -1, .first = -1, .last = -1};
    /* Values that only the parts of fused nodes use get no place. */
    for (int k = 0; k < program->n_steps; k++) {
        const step *s = &program->steps[k];
        for (int i = -1; i < s->n_inputs; i++)
            if ((status = read_used(program, values, i < 0 ? s->out_id : s->in_ids[i], error))) return status;
    }
    if ((status = find_roots(program, error)) || (status = place_temporaries(program, error)) ||
        (status = take_arenas(program, error)))
        return status;
    if (!program_schedule(program, core_board(program->core)->chip))
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for a schedule of %d steps", program->n_steps);
    return STRATA_PLUGIN_OK;
}

strata_plugin_status program_compile(struct strata_plugin_device *core, const strata_plugin_piece *piece,
                                     strata_plugin_program **out_program, strata_plugin_error *error) {
    const int32_t n_nodes = GET(piece, strata_plugin_piece, n_nodes), n_slots = GET(piece, strata_plugin_piece, n_slots);
    const int64_t input_bytes = GET(piece, strata_plugin_piece, input_bytes),
                  output_bytes = GET(piece, strata_plugin_piece, output_bytes);
    *out_program = NULL;
    if (n_nodes < 0 || (n_nodes && !GET(piece, strata_plugin_piece, nodes)) || n_slots < 1 || input_bytes < 0 ||
        output_bytes < 0)
        return fail(error, STRATA_PLUGIN_INVALID, "a piece of %d nodes, %d slots, %lld and %lld bytes of arenas cannot be",
                    n_nodes, n_slots, (long long)input_bytes, (long long)output_bytes);
    strata_plugin_program *program = calloc(1, sizeof *program);
    if (!program) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for a program");
    *program = (strata_plugin_program){.core = core,
                                       .n_values = GET(piece, strata_plugin_piece, n_values),
                                       .n_steps = n_nodes,
                                       .n_nodes = n_nodes,
                                       .n_slots = n_slots,
                                       .input_bytes = input_bytes,
                                       .output_bytes = output_bytes};
    const strata_plugin_status status = compile(program, piece, error);
    if (status)
        program_destroy(program);
    else
        *out_program = program;
    return status;
}

void program_destroy(strata_plugin_program *program) {
    if (!program) return;
    pool_free(&program->pool);
    free(program);
}

/* ---- running ---- */

static void *address_of(const strata_plugin_program *program, int slot, int32_t id) {
    const place *p = &program->values[id].place;
    if (p->kind == IN_MEMORY) return p->address;
    return (p->kind == IN_INPUT ? program->inputs : program->outputs)[slot] + p->offset;
}

static char *round_up(char *at, int64_t bytes) {
    return at + (bytes + LINE - 1) / LINE * LINE;
}

/* Converts between f32 and a 16-bit dtype, with the op "cast". */
static void convert(const op *cast, const array *from, strata_plugin_dtype to_dtype, const void *x, void *y, void *scratch) {
    array to = *from;
    to.dtype = to_dtype;
    const step s = {.op = cast, .n_inputs = 1, .in = {from}, .out = &to};
    cast->run(&(call){.step = &s, .in = &x, .out = y, .scratch = scratch});
}

static strata_plugin_status run_step(strata_plugin_program *program, const step *s, int slot, strata_plugin_error *error) {
    strata_plugin_status status = STRATA_PLUGIN_OK;
    void *out = address_of(program, slot, s->out_id), *target = out;
    char *scratch = program->scratch + CAST_SCRATCH;
    for (int i = 0; i < s->n_inputs; i++) {
        const array *a = s->inputs[i];
        const void *x = address_of(program, slot, s->in_ids[i]);
        if (is_widened(s, a)) {
            convert(program->cast, a, STRATA_PLUGIN_F32, x, scratch, program->scratch);
            x = scratch;
            scratch = round_up(scratch, a->n * 4);
        }
        program->addresses[i] = x;
    }
    if (is_widened(s, s->out)) {
        target = scratch;
        scratch = round_up(scratch, s->out->n * 4);
    }
    s->op->run(&(call){.step = s,
                       .in = program->addresses,
                       .out = target,
                       .scratch = scratch,
                       .core = program->core,
                       .status = &status,
                       .error = error});
    if (target != out) {
        array wide = *s->out;
        wide.dtype = STRATA_PLUGIN_F32;
        convert(program->cast, &wide, s->out->dtype, target, out, program->scratch);
    }
    return status;
}

strata_plugin_status program_run(strata_plugin_program *program, int slot, strata_plugin_error *error) {
    for (int i = 0; i < program->n_steps; i++) {
        const strata_plugin_status status = run_step(program, &program->steps[i], slot, error);
        if (status) return status;
    }
    return STRATA_PLUGIN_OK;
}
