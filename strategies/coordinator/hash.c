/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash of a graph, by which tasks check that they run the same program. Only the nodes that the outputs need are hashed, in
 * the order of their creation. They are numbered separately, so that other nodes of the graph do not change the hash. */
#include <stdlib.h>
#include <string.h>

#include "core/compile/describe.h"
#include "core/graph/graph.h"
#include "core/graph/variable.h"
#include "core/op/ops.h"
#include "strata/coordinator.h"

/* FNV-1a with 64 bits. */
static uint64_t add(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t add_number(uint64_t hash, int64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    return add(hash, bytes, sizeof bytes);
}

static uint64_t add_text(uint64_t hash, const char *text) {
    return text ? add(hash, text, strlen(text) + 1) : add_number(hash, -1);
}

/* Hashes the node's op, type, shape and attributes; its inputs are hashed by the caller. */
static strata_status add_node(const strata_tensor *t, uint64_t *hash, strata_error *err) {
    uint64_t h = add_text(*hash, t->op->name);
    h = add_number(add_number(h, t->dtype), t->shape.rank);
    for (int i = 0; i < t->shape.rank; i++) h = add_number(h, t->shape.dims[i]);
    if (t->op == &strata_op_constant) {
        const strata_constant_attrs *attrs = t->attrs;
        h = add(h, attrs->data, (size_t)strata_shape_elements(t->shape) * strata_dtype_bytes(t->dtype));
    } else if (t->op == &strata_op_read) {
        h = add_text(h, ((const strata_read_attrs *)t->attrs)->variable->name);
    } else if (t->op == &strata_op_input) {
        h = add_text(h, ((const strata_input_attrs *)t->attrs)->name);
    } else if (t->op->attrs_bytes) {
        strata_description description = {0};
        STRATA_TRY(strata_describe_node(t, &description, err));
        const strata_plugin_node *node = description.piece.nodes[0];
        for (int i = 0; i < node->n_attributes; i++) {
            const strata_plugin_attribute *a = node->attributes[i];
            h = add_text(add_text(h, a->name), a->text);
            for (int k = 0; k < a->n && a->ints; k++) h = add_number(h, a->ints[k]);
            for (int k = 0; k < a->n && a->floats; k++) {
                int64_t bits;
                memcpy(&bits, &a->floats[k], sizeof bits);
                h = add_number(h, bits);
            }
        }
        strata_description_finish(&description);
    }
    *hash = h;
    return STRATA_OK;
}

strata_status strata_remote_graph_hash(strata_tensor *const *outputs, int n_outputs, uint64_t *out_hash, strata_error *err) {
    if (n_outputs < 1)
        return strata_fail(err, STRATA_INVALID, "the hash of a graph needs at least one output, not %d", n_outputs);
    const strata_graph *graph = outputs[0] ? outputs[0]->graph : NULL;
    for (int i = 0; i < n_outputs; i++) {
        if (!outputs[i]) return strata_fail(err, STRATA_INVALID, "output %d of the graph is NULL", i);
        if (strata_tensor_is_poison(outputs[i])) return strata_graph_check(outputs[i]->graph, err);
        if (outputs[i]->graph != graph)
            return strata_fail(err, STRATA_INVALID, "output %d is of another graph than output 0", i);
    }
    /* Nodes are in topological order. A pass from the last to the first marks those that the outputs need; the second pass
     * numbers and hashes them from the first on. */
    int *number = calloc((size_t)graph->n_nodes + 1, sizeof *number), n = 0;
    if (!number) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a graph of %d nodes", graph->n_nodes);
    for (int i = 0; i < n_outputs; i++) number[outputs[i]->id] = 1;
    for (int i = graph->n_nodes - 1; i >= 0; i--)
        for (int k = 0; number[i] && k < graph->nodes[i]->n_inputs; k++) number[graph->nodes[i]->inputs[k]->id] = 1;
    uint64_t hash = 0xcbf29ce484222325u;
    strata_status status = STRATA_OK;
    for (int i = 0; i < graph->n_nodes && !status; i++) {
        if (!number[i]) continue;
        number[i] = ++n;
        status = add_node(graph->nodes[i], &hash, err);
        for (int k = 0; k < graph->nodes[i]->n_inputs; k++) hash = add_number(hash, number[graph->nodes[i]->inputs[k]->id]);
    }
    for (int i = 0; i < n_outputs; i++) hash = add_number(hash, number[outputs[i]->id]);
    free(number);
    if (!status) *out_hash = hash ? hash : 1;
    return status;
}
