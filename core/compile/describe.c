/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts nodes, places and arenas to the tables of strata/plugin.h. All memory of a description belongs to a scratch
 * graph, in which the parts of nodes are built too. */
#include "core/compile/describe.h"

#include <stdio.h>

#include "core/compile/walk.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"

enum { NONE = -1 };

/* The values of the two enums are equal, so dtypes are copied without conversion. */
_Static_assert((int)STRATA_DTYPE_F32 == STRATA_PLUGIN_F32 && (int)STRATA_DTYPE_F16 == STRATA_PLUGIN_F16 &&
                   (int)STRATA_DTYPE_BF16 == STRATA_PLUGIN_BF16 && (int)STRATA_DTYPE_I32 == STRATA_PLUGIN_I32 &&
                   (int)STRATA_DTYPE_I64 == STRATA_PLUGIN_I64 && (int)STRATA_DTYPE_U8 == STRATA_PLUGIN_U8 &&
                   (int)STRATA_DTYPE_BOOL == STRATA_PLUGIN_BOOL && STRATA_DTYPE_COUNT == 7,
               "strata/plugin.h and strata/tensor.h number dtypes alike");

typedef struct writer {
    const strata_piece *piece;
    strata_describe_buffer *buffer_of;
    /* The scratch graph, which owns all memory and the nodes of which parts consist. */
    strata_graph *memory;
    /* By a tensor's id: the number of its value; NONE: it has none yet. One array for tensors of the piece, one for those of
     * the scratch graph that the present node's parts consist of, from id first_scratch on. */
    int *value_of, *scratch_value_of;
    int first_scratch;
    strata_plugin_value **values;
    /* [n_values] The tensor that each value describes. */
    const strata_tensor **tensors;
    int n_values;
} writer;

static void *take(writer *w, size_t n, size_t bytes) {
    return strata_graph_alloc(w->memory, n * bytes);
}

/* ---- attributes ---- */

static const char *word_of(const strata_op *op, const char *name, int64_t value) {
    for (const strata_attr_words *row = op->words; row && row->attribute; row++) {
        if (strcmp(row->attribute, name)) continue;
        for (int64_t i = 0; row->words[i]; i++)
            if (i == value) return row->words[i];
    }
    return NULL;
}

static int64_t int_attribute(const strata_tensor *node, const char *name, int64_t otherwise) {
    for (const strata_attr_field *field = node->op->attrs; field->name; field++)
        if (field->kind == STRATA_ATTR_INT && !strcmp(field->name, name))
            return *(const int64_t *)(const void *)((const char *)node->attrs + field->offset);
    return otherwise;
}

/* The number of entries of an attribute of the kind LIST. */
static int64_t list_length(const strata_tensor *node, const char *name) {
    char counter[64];
    snprintf(counter, sizeof counter, "n_%s", name);
    return int_attribute(node, counter, int_attribute(node, "n", node->n_inputs));
}

static void set_ints(writer *w, strata_plugin_attribute *attribute, const int64_t *ints, int64_t n) {
    int64_t *own = take(w, (size_t)n, sizeof *own);
    if (own && n) memcpy(own, ints, (size_t)n * sizeof *own);
    attribute->type = STRATA_PLUGIN_INTS;
    attribute->ints = own;
    attribute->n = (int32_t)n;
}

/* Fills in *out. Returns false if the attribute is not part of descriptions. */
static bool describe_attribute(writer *w, const strata_tensor *node, const strata_attr_field *field,
                               strata_plugin_attribute *out) {
    const void *at = (const char *)node->attrs + field->offset;
    const int rank = node->n_inputs ? node->inputs[0]->shape.rank : node->shape.rank;
    *out = (strata_plugin_attribute){.size = sizeof *out, .name = field->name};
    switch (field->kind) {
        case STRATA_ATTR_INT: {
            int64_t value = *(const int64_t *)at;
            out->text = word_of(node->op, field->name, value);
            if (out->text) {
                out->type = STRATA_PLUGIN_TEXT;
                return true;
            }
            if (!strcmp(field->name, "axis") && value < 0) value += rank; /* counted from the end */
            set_ints(w, out, &value, 1);
            return true;
        }
        case STRATA_ATTR_FLOAT: {
            double *value = take(w, 1, sizeof *value);
            if (value) *value = *(const double *)at;
            out->type = STRATA_PLUGIN_FLOATS;
            out->floats = value;
            out->n = 1;
            return true;
        }
        case STRATA_ATTR_INTS:
            set_ints(w, out, at, rank);
            return true;
        case STRATA_ATTR_PAIR:
        case STRATA_ATTR_QUAD:
            set_ints(w, out, at, field->kind == STRATA_ATTR_PAIR ? 2 : 4);
            return true;
        case STRATA_ATTR_SHAPE:
            set_ints(w, out, ((const strata_shape *)at)->dims, ((const strata_shape *)at)->rank);
            return true;
        case STRATA_ATTR_LIST:
            set_ints(w, out, *(const int64_t *const *)at, list_length(node, field->name));
            return true;
        case STRATA_ATTR_CODES:
        case STRATA_ATTR_POINTER:
            break;
    }
    return false;
}

static void describe_attributes(writer *w, const strata_tensor *node, strata_plugin_node *out) {
    strata_plugin_attribute **attributes = take(w, STRATA_MAX_ATTR_FIELDS, sizeof(*attributes));
    for (const strata_attr_field *field = node->op->attrs; attributes && field->name; field++) {
        strata_plugin_attribute *attribute = take(w, 1, sizeof *attribute);
        if (!attribute || !describe_attribute(w, node, field, attribute)) continue;
        attributes[out->n_attributes++] = attribute;
    }
    out->attributes = (const strata_plugin_attribute *const *)attributes;
}

/* ---- values ---- */

static int *value_slot(writer *w, const strata_tensor *tensor) {
    return tensor->graph == w->memory ? &w->scratch_value_of[tensor->id - w->first_scratch] : &w->value_of[tensor->id];
}

static const strata_place *place_of(const writer *w, const strata_tensor *tensor) {
    return tensor->graph != w->memory && w->piece->places ? &w->piece->places[tensor->id] : NULL;
}

/* The tensor whose memory this one shares, as a view of it or an update of it; NULL: none. */
static const strata_tensor *shared_with(const writer *w, const strata_tensor *tensor, int64_t *out_offset) {
    *out_offset = 0;
    if (!tensor->n_inputs) return NULL;
    const strata_tensor *input = tensor->inputs[0];
    const bool view = strata_is_view(tensor, out_offset);
    if (tensor->op->flags & STRATA_OP_UPDATE) return input;
    const strata_place *own = place_of(w, tensor), *other = place_of(w, input);
    if (!view) return NULL;
    if (!own) return tensor->graph == w->memory ? input : NULL; /* without places, the tensor is described as a node */
    return own->bytes && own->arena == other->arena && own->offset == other->offset + *out_offset ? input : NULL;
}

static int add_value(writer *w, const strata_tensor *tensor) {
    int *slot = value_slot(w, tensor);
    if (*slot != NONE || w->memory->status) return *slot;
    if (!strata_grow(&w->values, w->n_values, sizeof(*w->values)) ||
        !strata_grow(&w->tensors, w->n_values, sizeof(*w->tensors))) {
        strata_graph_poison(w->memory, NULL, STRATA_OUT_OF_MEMORY, "describe: no memory for %d values", w->n_values + 1);
        return NONE;
    }
    strata_plugin_value *value = take(w, 1, sizeof *value);
    int64_t *dims = take(w, STRATA_MAX_RANK, sizeof *dims);
    if (!value || !dims) return NONE;
    memcpy(dims, tensor->shape.dims, sizeof tensor->shape.dims);
    *value = (strata_plugin_value){.size = sizeof *value,
                                   .dtype = (strata_plugin_dtype)tensor->dtype,
                                   .role = STRATA_PLUGIN_TEMPORARY,
                                   .rank = tensor->shape.rank,
                                   .dims = dims,
                                   .bytes = strata_tensor_bytes(tensor),
                                   .name = tensor->name,
                                   .alias_of = NONE,
                                   .first_node = NONE,
                                   .last_node = NONE};
    const int index = w->n_values++;
    w->values[index] = value;
    w->tensors[index] = tensor;
    *slot = index;
    const strata_tensor *root = shared_with(w, tensor, &value->alias_offset);
    if (root)
        value->alias_of = add_value(w, root);
    else
        value->alias_offset = 0;
    return index;
}

/* Makes the tensors that the plan has placed inside of a pack aliases of parts of the pack. */
static void find_parts_of_pack(writer *w, const strata_tensor *pack) {
    const strata_pack_attrs *attrs = pack->attrs;
    const strata_place *whole = place_of(w, pack);
    for (int i = 0; whole && i < pack->n_inputs; i++) {
        const strata_tensor *input = pack->inputs[i];
        const strata_place *place = place_of(w, input);
        const bool inside = place->bytes && place->arena == whole->arena &&
                            place->offset == whole->offset + attrs->offsets[i] * (int64_t)strata_dtype_bytes(pack->dtype);
        if (!inside) continue;
        int part = *value_slot(w, input);
        while (w->values[part]->alias_of != NONE) part = w->values[part]->alias_of;
        if (part == *value_slot(w, pack)) continue;
        w->values[part]->alias_of = *value_slot(w, pack);
        w->values[part]->alias_offset = place_of(w, w->tensors[part])->offset - whole->offset;
    }
}

static strata_plugin_role role_of(const strata_tensor *tensor, const strata_plugin_value *value, const strata_arena *arena) {
    if (!value->bytes) return tensor->op == &strata_op_input ? STRATA_PLUGIN_INPUT : STRATA_PLUGIN_TEMPORARY;
    static const strata_plugin_role roles[] = {[STRATA_ARENA_INPUT] = STRATA_PLUGIN_INPUT,
                                               [STRATA_ARENA_OUTPUT] = STRATA_PLUGIN_OUTPUT,
                                               [STRATA_ARENA_CARRIED] = STRATA_PLUGIN_CARRIED,
                                               [STRATA_ARENA_CONSTANT] = STRATA_PLUGIN_CONSTANT,
                                               [STRATA_ARENA_VARIABLE] = STRATA_PLUGIN_VARIABLE};
    if (arena->kind != STRATA_ARENA_WORK) return roles[arena->kind];
    if (tensor->op == &strata_op_read) return STRATA_PLUGIN_VARIABLE;
    /* If one node is timed alone, its arenas have buffers: its operands are not computed in the piece, and its result
     * is not read there. In a piece of a step, a value that nothing reads is a temporary too. */
    const bool elsewhere = arena->buffer && (value->first_node == NONE || value->last_node == NONE);
    return elsewhere ? STRATA_PLUGIN_CARRIED : STRATA_PLUGIN_TEMPORARY;
}

static void place_value(writer *w, int index) {
    strata_plugin_value *value = w->values[index];
    const strata_tensor *tensor = w->tensors[index];
    const strata_place *place = place_of(w, tensor);
    int root = index;
    int64_t offset = 0;
    for (; w->values[root]->alias_of != NONE; root = w->values[root]->alias_of) offset += w->values[root]->alias_offset;
    const strata_tensor *source = w->tensors[root];
    if (source->op == &strata_op_constant) {
        value->role = STRATA_PLUGIN_CONSTANT;
        value->data = (const char *)((const strata_constant_attrs *)source->attrs)->data + offset;
    }
    if (!place && source->op == &strata_op_read) value->role = STRATA_PLUGIN_VARIABLE;
    if (!place && source->op == &strata_op_input && source->graph != w->memory) value->role = STRATA_PLUGIN_INPUT;
    /* A part of a node that is a view of one of the node's operands has the memory of the operand. */
    const strata_place *of_root = place_of(w, source);
    const strata_place inside = {of_root ? of_root->arena : NONE, of_root ? of_root->offset + offset : 0, value->bytes};
    if (!place && root != index && of_root && of_root->arena != NONE) place = &inside;
    if (!place) return;
    const strata_arena *arena = &w->piece->arenas[place->arena];
    value->role = role_of(source, w->values[root], arena);
    strata_plugin_buffer *buffer = arena->buffer && w->buffer_of ? w->buffer_of(arena->buffer) : NULL;
    if (value->role == STRATA_PLUGIN_INPUT || value->role == STRATA_PLUGIN_OUTPUT) {
        value->arena_offset = place->offset;
    } else if (value->role == STRATA_PLUGIN_VARIABLE || value->role == STRATA_PLUGIN_CARRIED) {
        value->buffer = buffer;
        value->buffer_offset = place->offset;
        value->enters = value->role == STRATA_PLUGIN_CARRIED && w->values[root]->first_node == NONE;
    } else if (value->role == STRATA_PLUGIN_TEMPORARY && value->bytes) {
        value->work = buffer;
        value->work_offset = place->offset;
    }
}

/* ---- nodes ---- */

static void describe_node(writer *w, const strata_tensor *node, strata_plugin_node *out) {
    int32_t *inputs = take(w, (size_t)node->n_inputs, sizeof *inputs),
            *writes = take(w, (size_t)node->n_inputs, sizeof *writes);
    *out = (strata_plugin_node){.size = sizeof *out, .op = node->op->name, .n_inputs = node->n_inputs, .name = node->name};
    for (int i = 0; i < node->n_inputs && inputs && writes; i++) {
        inputs[i] = add_value(w, node->inputs[i]);
        if (strata_is_written(node, i)) writes[out->n_writes++] = i;
    }
    out->output = add_value(w, node);
    out->inputs = inputs;
    out->writes = writes;
    describe_attributes(w, node, out);
}

/* An array for the values of n tensors. */
static int *no_values(writer *w, int n) {
    int *values = take(w, (size_t)n, sizeof *values);
    for (int i = 0; i < n && values; i++) values[i] = NONE;
    return values;
}

/* Describes the node's parts. They are built in the scratch graph, from a copy of the node whose inputs are leaves that
 * represent the node's inputs. */
static void describe_parts(writer *w, const strata_tensor *node, strata_plugin_node *out) {
    if (!node->op->compose || w->memory->status) return;
    const int first = w->memory->n_nodes;
    strata_tensor **x = take(w, (size_t)node->n_inputs, sizeof(*x));
    for (int i = 0; i < node->n_inputs && x; i++)
        if (strata_tensor_is_poison(x[i] = strata_stand_in(w->memory, node->inputs[i]))) return;
    strata_tensor *whole = strata_stand_in(w->memory, node);
    if (!x || strata_tensor_is_poison(whole)) return;
    whole->op = node->op;
    whole->inputs = x;
    whole->n_inputs = node->n_inputs;
    whole->attrs = node->attrs;
    const int first_part = w->memory->n_nodes;
    strata_tensor *last = node->op->compose(whole);
    if (!last || strata_tensor_is_poison(last) || last->id < first_part) return;
    w->first_scratch = first;
    if (!(w->scratch_value_of = no_values(w, w->memory->n_nodes - first))) return;
    for (int i = 0; i < node->n_inputs; i++) w->scratch_value_of[i] = out->inputs[i];
    w->scratch_value_of[last->id - first] = out->output;
    const bool *needed = strata_find_needed(w->memory, first_part, last->id);
    strata_plugin_node **parts = take(w, (size_t)(last->id + 1 - first_part), sizeof(*parts));
    for (int id = first_part; id <= last->id && parts && needed; id++) {
        const strata_tensor *part = w->memory->nodes[id];
        int64_t inside;
        if (!needed[id - first_part] || (part->op->flags & STRATA_OP_LEAF) || shared_with(w, part, &inside)) continue;
        strata_plugin_node *described = take(w, 1, sizeof *described);
        if (!described) return;
        describe_node(w, part, described);
        parts[out->n_parts++] = described;
    }
    out->parts = (const strata_plugin_node *const *)parts;
}

/* Sets the positions of the first and the last node that use each value, or a value that shares its memory. */
static void find_lives(writer *w, strata_plugin_node *const *nodes, int n_nodes) {
    for (int k = 0; k < n_nodes; k++) {
        for (int i = -1; i < nodes[k]->n_inputs; i++) {
            int v = i < 0 ? nodes[k]->output : nodes[k]->inputs[i];
            for (; v != NONE; v = w->values[v]->alias_of) {
                if (i >= 0)
                    w->values[v]->last_node = k;
                else if (w->values[v]->first_node == NONE)
                    w->values[v]->first_node = k;
            }
        }
    }
}

static void write_piece(writer *w, strata_plugin_piece *out) {
    const strata_piece *piece = w->piece;
    strata_plugin_node **nodes = take(w, (size_t)piece->n_nodes, sizeof(*nodes));
    for (int i = 0; i < piece->n_nodes && !w->memory->status; i++) {
        nodes[i] = take(w, 1, sizeof(**nodes));
        if (nodes[i]) describe_node(w, piece->nodes[i], nodes[i]);
    }
    for (int i = 0; i < piece->n_nodes && !w->memory->status; i++)
        if (piece->nodes[i]->op->flags & STRATA_OP_SLICES) find_parts_of_pack(w, piece->nodes[i]);
    if (!w->memory->status) find_lives(w, nodes, piece->n_nodes);
    for (int i = 0; i < piece->n_nodes && !w->memory->status; i++) describe_parts(w, piece->nodes[i], nodes[i]);
    for (int i = 0; i < w->n_values && !w->memory->status; i++) place_value(w, i);
    const strata_plugin_value **values = take(w, (size_t)w->n_values, sizeof(*values));
    if (values && w->n_values) memcpy(values, w->values, (size_t)w->n_values * sizeof(*values));
    *out = (strata_plugin_piece){.size = sizeof *out,
                                 .n_nodes = piece->n_nodes,
                                 .nodes = (const strata_plugin_node *const *)nodes,
                                 .n_values = w->n_values,
                                 .values = values,
                                 .n_slots = piece->n_slots};
    if (piece->arenas) {
        out->input_bytes = piece->arenas[STRATA_ARENA_INPUT].bytes;
        out->output_bytes = piece->arenas[STRATA_ARENA_OUTPUT].bytes;
    }
}

strata_status strata_describe(const strata_piece *piece, strata_describe_buffer *buffer_of, strata_description *out_description,
                              strata_error *err) {
    writer w = {.piece = piece, .buffer_of = buffer_of};
    *out_description = (strata_description){0};
    STRATA_TRY(strata_graph_create(&w.memory, err));
    w.value_of = no_values(&w, piece->n_places);
    if (w.value_of) write_piece(&w, &out_description->piece);
    out_description->memory = w.memory;
    const strata_status status = strata_graph_check(w.memory, err);
    free(w.values);
    free(w.tensors);
    if (status) strata_description_finish(out_description);
    return status;
}

strata_status strata_describe_node(const strata_tensor *node, strata_description *out_description, strata_error *err) {
    const strata_piece piece = {.nodes = &node, .n_nodes = 1, .n_places = node->graph->n_nodes, .n_slots = 1};
    return strata_describe(&piece, NULL, out_description, err);
}

static const void *copy(strata_graph *memory, const void *source, size_t bytes) {
    void *target = source ? strata_graph_alloc(memory, bytes ? bytes : 1) : NULL;
    if (target) memcpy(target, source, bytes);
    return target;
}

static const char *copy_text(strata_graph *memory, const char *text) {
    return text ? copy(memory, text, strlen(text) + 1) : NULL;
}

static void own_node(strata_graph *memory, strata_plugin_node *node) {
    node->name = copy_text(memory, node->name);
    for (int i = 0; i < node->n_parts; i++) own_node(memory, (strata_plugin_node *)node->parts[i]);
}

strata_status strata_description_own(strata_description *description, strata_error *err) {
    const strata_plugin_piece *piece = &description->piece;
    for (int i = 0; i < piece->n_nodes; i++) own_node(description->memory, (strata_plugin_node *)piece->nodes[i]);
    for (int i = 0; i < piece->n_values; i++) {
        strata_plugin_value *value = (strata_plugin_value *)piece->values[i]; /* it lies in the description's own memory */
        value->name = copy_text(description->memory, value->name);
        value->data = copy(description->memory, value->data, (size_t)value->bytes);
    }
    return strata_graph_check(description->memory, err);
}

void strata_description_finish(strata_description *description) {
    strata_graph_destroy(description->memory);
    *description = (strata_description){0};
}
