/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates nodes to a module. The addresses of the piece matter only for values that enter or leave it; inside, each
 * node's value is a value of the text. The effects of memory are kept, though: reading a variable returns its value at
 * this point of the schedule, and an update sets a new value for the root of each operand that it writes. */
#include "backends/pjrt/lower.h"

#include <assert.h>

#include "core/compile/walk.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"

enum { NONE = -1, UNSET = INT32_MIN, INLINE_BYTES = 64 };

/* What is known of a tensor. */
typedef struct pjrt_tensor {
    /* Its id is UNSET if there is none yet. A variable's value is stored for its first read. */
    hlo_value value;
    /* The index of the parameter that the tensor is; NONE: it is not a parameter. */
    int parameter;
    /* Whether the piece computes the tensor, and whether it sets a new value for it although another piece computes it. */
    bool inside, changed;
    /* Whether it is in output memory but the host does not read it, and whether nodes of other pieces read it. */
    bool hidden, read;
} pjrt_tensor;

typedef struct pjrt_lowering {
    hlo h; /* the first member, so that a pointer to it is also one to the lowering */
    const strata_piece *piece;
    pjrt_lower_options options;
    pjrt_module *module;
    /* [tensor id] */
    pjrt_tensor *tensors;
    /* [arena] The id of the first read of the variable in the arena; NONE: it has not been read. */
    int *reads;
    int n_ids;
} pjrt_lowering;

/* ---- attributes ---- */

static const void *attribute(const strata_tensor *node, const char *name, strata_attr_kind kind) {
    const strata_attr_field *field = node->op->attrs;
    while (field->name && strcmp(field->name, name) != 0) field++;
    assert(field->name && field->kind == kind);
    (void)kind;
    return (const char *)node->attrs + field->offset;
}

int64_t strata_pjrt_int(const strata_tensor *node, const char *name) {
    return *(const int64_t *)attribute(node, name, STRATA_ATTR_INT);
}

double strata_pjrt_float(const strata_tensor *node, const char *name) {
    return *(const double *)attribute(node, name, STRATA_ATTR_FLOAT);
}

const int64_t *strata_pjrt_ints(const strata_tensor *node, const char *name) {
    return attribute(node, name, STRATA_ATTR_INTS);
}

int strata_pjrt_axis(const strata_tensor *node) {
    const int64_t axis = strata_pjrt_int(node, "axis");
    return (int)(axis < 0 ? axis + node->inputs[0]->shape.rank : axis);
}

/* ---- roots ---- */

/* Whether the tensor is in the memory of its first operand: an update, or a view that the piece does not compute. */
static bool lies_in_operand(const pjrt_lowering *l, const strata_tensor *node) {
    const bool computed = node->id < l->n_ids && l->tensors[node->id].inside;
    return (node->op->flags & STRATA_OP_UPDATE) || (strata_is_view(node, NULL) && !computed);
}

static const strata_tensor *root_of(const pjrt_lowering *l, const strata_tensor *node) {
    while (lies_in_operand(l, node)) node = node->inputs[0];
    return node;
}

/* The id for which the root's value is stored. All reads of a variable have the same one. */
static int key_of(pjrt_lowering *l, const strata_tensor *root) {
    if (root->op != &strata_op_read) return root->id;
    int *first = &l->reads[l->piece->places[root->id].arena];
    if (*first == NONE) *first = root->id;
    return *first;
}

/* ---- ports ---- */

static pjrt_port port_of(const pjrt_lowering *l, const strata_tensor *root) {
    const strata_place place = l->piece->places[root->id];
    return (pjrt_port){.dtype = root->dtype,
                       .shape = root->shape,
                       .arena = place.arena,
                       .offset = place.offset,
                       .bytes = strata_shape_elements(root->shape) * (int64_t)strata_dtype_bytes(root->dtype),
                       .donor = NONE};
}

/* Adds a parameter. The array has been allocated with room for every tensor. */
static hlo_value parameter(pjrt_lowering *l, const strata_tensor *root, int key) {
    const int index = l->module->n_parameters++;
    l->module->parameters[index] = port_of(l, root);
    l->tensors[key].parameter = index;
    return (hlo_value){-index - 1, (int)root->dtype, root->shape};
}

/* ---- values ---- */

/* Whether the elements are 0, 1, 2, ... */
static bool is_count(const strata_tensor *node, const int32_t *elements, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (node->dtype != STRATA_DTYPE_I32 || elements[i] != i) return false;
    return node->shape.rank == 1;
}

static bool all_equal(const char *elements, size_t bytes, int64_t n) {
    for (int64_t i = 1; i < n; i++)
        if (memcmp(elements, elements + (size_t)i * bytes, bytes) != 0) return false;
    return n > 0;
}

/* Small constants, and those whose elements are all equal or count, become part of the text, so that the compiler can use
 * their values. */
static hlo_value constant(pjrt_lowering *l, const strata_tensor *node) {
    const char *data = ((const strata_constant_attrs *)node->attrs)->data;
    const size_t bytes = strata_dtype_bytes(node->dtype);
    const int64_t n = strata_shape_elements(node->shape);
    const bool exact = node->dtype != STRATA_DTYPE_I64; /* a double can represent each value of the other types */
    if (n == 0) return strata_hlo_fill(&l->h, (int)node->dtype, node->shape, 0);
    if (exact && all_equal(data, bytes, n))
        return strata_hlo_fill(&l->h, (int)node->dtype, node->shape, strata_element_get(node->dtype, data, 0));
    if (is_count(node, (const int32_t *)data, n)) return strata_hlo_iota(&l->h, HLO_I32, node->shape, 0);
    if ((size_t)n * bytes <= INLINE_BYTES && node->dtype != STRATA_DTYPE_BOOL)
        return strata_hlo_data(&l->h, (int)node->dtype, node->shape, data);
    return parameter(l, node, node->id);
}

static hlo_value value_of(pjrt_lowering *l, const strata_tensor *node) {
    if (lies_in_operand(l, node)) {
        const hlo_value whole = value_of(l, node->inputs[0]);
        if (node->op != &strata_op_slice) return strata_hlo_reshape(&l->h, whole, node->shape);
        const strata_slice_attrs *slice = node->attrs;
        return strata_hlo_slice(&l->h, whole, slice->begin, slice->size, NULL);
    }
    const int key = key_of(l, node);
    hlo_value *value = &l->tensors[key].value;
    if (value->id == UNSET) *value = node->op == &strata_op_constant ? constant(l, node) : parameter(l, node, key);
    return *value;
}

int strata_pjrt_n_replicas(const hlo *h) {
    const int n = ((const pjrt_lowering *)h)->options.n_replicas;
    return n > 1 ? n : 1;
}

hlo_value strata_pjrt_operand(hlo *h, const strata_tensor *node, int i) {
    return value_of((pjrt_lowering *)h, node->inputs[i]);
}

hlo_value strata_pjrt_number(hlo *h, const strata_tensor *node, int i) {
    const hlo_value x = strata_pjrt_operand(h, node, i);
    return strata_dtype_is_float(node->inputs[i]->dtype) ? strata_hlo_convert(h, x, HLO_F32) : x;
}

hlo_value strata_pjrt_round(hlo *h, hlo_value x, strata_dtype dtype) {
    return strata_hlo_convert(h, x, (int)dtype);
}

void strata_pjrt_write(hlo *h, const strata_tensor *node, int i, hlo_value value) {
    pjrt_lowering *l = (pjrt_lowering *)h;
    const int key = key_of(l, root_of(l, node->inputs[i]));
    l->tensors[key].value = value;
    l->tensors[key].changed = true;
}

/* ---- nodes ---- */

const pjrt_row *strata_pjrt_row_of(const strata_op *op) {
    static const pjrt_row *const lists[] = {strata_pjrt_elementwise, strata_pjrt_places,  strata_pjrt_index,
                                            strata_pjrt_products,    strata_pjrt_windows, strata_pjrt_folds,
                                            strata_pjrt_random,      strata_pjrt_updates};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const pjrt_row *row = lists[i]; row->op; row++)
            if (row->op == op) return row;
    return NULL;
}

bool strata_pjrt_lowers(const strata_tensor *node, const char **reason) {
    const pjrt_row *row = strata_pjrt_row_of(node->op);
    *reason = "the PJRT bridge has no lowering of this op to StableHLO";
    if (!row) return false;
    if (row->refuse) *reason = row->refuse(node);
    return !row->refuse || !*reason;
}

/* The element-wise op of the node's operands. */
static hlo_value elementwise(hlo *h, const strata_tensor *node) {
    hlo_value x[3];
    for (int i = 0; i < node->n_inputs; i++) x[i] = strata_pjrt_number(h, node, i);
    return strata_pjrt_apply(h, node->op, x);
}

static void lower_node(pjrt_lowering *l, const strata_tensor *node) {
    const pjrt_row *row = strata_pjrt_row_of(node->op);
    hlo_value value = row->lower ? row->lower(&l->h, node) : elementwise(&l->h, node);
    value = strata_hlo_reshape(&l->h, strata_pjrt_round(&l->h, value, node->dtype), node->shape);
    if (node->op->flags & STRATA_OP_UPDATE)
        strata_pjrt_write(&l->h, node, 0, value);
    else
        l->tensors[node->id].value = value;
}

static strata_status lower_nodes(pjrt_lowering *l, strata_error *err) {
    for (int i = 0; i < l->piece->n_nodes; i++) {
        const strata_tensor *node = l->piece->nodes[i];
        const char *reason;
        if (!strata_pjrt_lowers(node, &reason))
            return strata_fail(err, STRATA_UNSUPPORTED, "pjrt cannot run %s (%s %s): %s", strata_tensor_name(node),
                               strata_dtype_name(node->dtype), strata_shape_text(node->shape).text, reason);
        lower_node(l, node);
    }
    return STRATA_OK;
}

/* ---- results ---- */

static void result(pjrt_lowering *l, strata_text *returned, strata_text *types, const strata_tensor *root, int key) {
    pjrt_port *port = &l->module->results[l->module->n_results++];
    const hlo_value value = l->tensors[key].value;
    const char *comma = l->module->n_results > 1 ? ", " : "";
    *port = port_of(l, root);
    /* A result that replaces a value which was read takes over the memory of the parameter. */
    if (l->tensors[key].changed) port->donor = l->tensors[key].parameter;
    strata_text_add(returned, value.id < 0 ? "%s%%arg%d" : "%s%%%d", comma, value.id < 0 ? -value.id - 1 : value.id);
    strata_text_add(types, "%s", comma);
    strata_hlo_add_type(types, value.type, value.shape);
}

static strata_arena_kind kind_of(const pjrt_lowering *l, const strata_tensor *tensor) {
    return l->piece->arenas[l->piece->places[tensor->id].arena].kind;
}

/* Marks values that are in output memory but that the host does not read, because the program itself exchanges them with other
 * replicas. */
static void mark_hidden(const pjrt_lowering *l) {
    for (int k = 0; k < l->piece->n_nodes; k++) {
        const strata_tensor *node = l->piece->nodes[k];
        for (int i = 0; i < node->n_inputs && node->op->flags & STRATA_OP_COMMUNICATION; i++)
            l->tensors[node->inputs[i]->id].hidden = true;
    }
}

/* Marks the values that nodes of other pieces read. Nothing is known about nodes without an entry in `places`, so they
 * are assumed to be computed and to read their operands. */
static void mark_read_elsewhere(const pjrt_lowering *l) {
    const strata_graph *graph = l->piece->nodes[0]->graph;
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        const bool known = id < l->n_ids;
        if (known && (l->tensors[id].inside || l->piece->places[id].arena < 0)) continue;
        if (node->op->flags & STRATA_OP_LEAF ||
            (known && strata_is_view(node, NULL) && kind_of(l, node) != STRATA_ARENA_OUTPUT))
            continue;
        for (int i = 0; i < node->n_inputs; i++) {
            const strata_tensor *root = root_of(l, node->inputs[i]);
            if (root->id < l->n_ids) l->tensors[root->id].read = true;
        }
    }
}

/* Adds the results in the order of their ids: values that the host reads, values that other pieces read, and values
 * that were changed. */
static void add_results(pjrt_lowering *l, strata_text *returned, strata_text *types) {
    const strata_graph *graph = l->piece->nodes[0]->graph;
    mark_hidden(l);
    mark_read_elsewhere(l);
    for (int id = 0; id < l->n_ids; id++) {
        const strata_tensor *node = graph->nodes[id];
        if (l->tensors[id].value.id == UNSET || l->piece->places[id].arena < 0 || !strata_shape_elements(node->shape)) continue;
        const bool host = l->tensors[id].inside && kind_of(l, node) == STRATA_ARENA_OUTPUT && !l->tensors[id].hidden;
        const bool elsewhere = l->tensors[id].inside && kind_of(l, node) != STRATA_ARENA_OUTPUT && l->tensors[id].read;
        if (host || elsewhere || (l->tensors[id].changed && !l->tensors[id].inside)) result(l, returned, types, node, id);
    }
}

/* ---- the module ---- */

static void add_signature(strata_text *text, const pjrt_module *module) {
    strata_text_add(text, "module @strata {\n  func.func public @main(");
    for (int i = 0; i < module->n_parameters; i++) {
        strata_text_add(text, "%s%%arg%d: ", i ? ", " : "", i);
        strata_hlo_add_type(text, (int)module->parameters[i].dtype, module->parameters[i].shape);
        for (int k = 0; k < module->n_results; k++)
            if (module->results[k].donor == i) strata_text_add(text, " {tf.aliasing_output = %d : i32}", k);
    }
}

static strata_status finish_text(pjrt_lowering *l, strata_error *err) {
    strata_text text = {0}, returned = {0}, types = {0};
    add_results(l, &returned, &types);
    add_signature(&text, l->module);
    text.failed |= returned.failed || types.failed || l->h.text.failed;
    if (!text.failed) {
        const char *type_list = types.bytes ? types.bytes : "";
        strata_text_add(&text, ") -> (%s) {\n", type_list);
        strata_text_add_bytes(&text, l->h.text.bytes, l->h.text.n_bytes);
        strata_text_add(&text, "    \"func.return\"(%s) : (%s) -> ()\n  }\n}\n", returned.bytes ? returned.bytes : "",
                        type_list);
    }
    strata_text_finish(&returned);
    strata_text_finish(&types);
    return strata_text_take(&text, &l->module->text, &l->module->n_bytes, err);
}

static strata_status lower_all(pjrt_lowering *l, strata_error *err) {
    for (int i = 0; i < l->n_ids; i++) l->tensors[i].value.id = UNSET, l->tensors[i].parameter = NONE;
    for (int i = 0; i < l->piece->n_arenas; i++) l->reads[i] = NONE;
    for (int i = 0; i < l->piece->n_nodes; i++) l->tensors[l->piece->nodes[i]->id].inside = true;
    STRATA_TRY(lower_nodes(l, err));
    return finish_text(l, err);
}

void strata_pjrt_module_finish(pjrt_module *module) {
    free(module->text);
    free(module->parameters);
    free(module->results);
    *module = (pjrt_module){0};
}

strata_status strata_pjrt_lower(const strata_piece *piece, pjrt_lower_options options, pjrt_module *out_module,
                                strata_error *err) {
    *out_module = (pjrt_module){0};
    if (!piece->n_nodes) return STRATA_OK;
    const int n = piece->n_places;
    STRATA_FINISHED(strata_memory) memory = {0};
    pjrt_lowering l = {.piece = piece, .options = options, .module = out_module, .n_ids = piece->n_places};
    l.h.precision = options.fast ? "DEFAULT" : "HIGHEST";
    l.tensors = strata_memory_take(&memory, n, sizeof *l.tensors);
    l.reads = strata_memory_take(&memory, piece->n_arenas, sizeof *l.reads);
    out_module->parameters = calloc((size_t)n + 1, sizeof *out_module->parameters);
    out_module->results = calloc((size_t)n + 1, sizeof *out_module->results);
    const strata_status status =
        !memory.failed && out_module->parameters && out_module->results
            ? lower_all(&l, err)
            : strata_fail(err, STRATA_OUT_OF_MEMORY, "pjrt: no host memory for a program of %d nodes", piece->n_nodes);
    strata_text_finish(&l.h.text);
    if (status) strata_pjrt_module_finish(out_module);
    return status;
}
