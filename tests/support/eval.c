/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates the nodes on which the outputs depend, in the order in which they were created. Each value has its own memory. A
 * read of a variable copies the variable's array, so that later updates do not change what was read before. */
#include "tests/support/eval.h"

#include <stdlib.h>
#include <string.h>

#include "core/op/ops.h"
#include "core/op/update.h"

enum { MAX_INPUTS = 256 };

typedef struct walk {
    const strata_test_feed *feeds;
    int n_feeds;
    /* [node id] */
    strata_array *values;
    bool *needed;
} walk;

strata_variable strata_test_variable(const char *name, strata_dtype dtype, strata_shape shape) {
    return (strata_variable){.name = (char *)name, .dtype = dtype, .shape = shape};
}

static strata_status feed_of(const walk *w, const strata_tensor *node, const void *leaf, strata_array **out_value,
                             strata_error *err) {
    for (int i = 0; i < w->n_feeds; i++) {
        if (w->feeds[i].leaf != leaf) continue;
        strata_array *value = w->feeds[i].value;
        if (value->dtype != node->dtype || !strata_shape_equal(value->shape, node->shape))
            return strata_fail(err, STRATA_INVALID, "%s is %s %s, but was fed %s %s", strata_tensor_name(node),
                               strata_dtype_name(node->dtype), strata_shape_text(node->shape).text,
                               strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
        *out_value = value;
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_INVALID, "%s is not fed", strata_tensor_name(node));
}

/* Sets *out_source to the elements of a leaf. It is NULL for a constant without elements. */
static strata_status leaf_source(const walk *w, const strata_tensor *node, const void **out_source, strata_error *err) {
    if (node->op == &strata_op_constant) {
        *out_source = ((const strata_constant_attrs *)node->attrs)->data;
        return STRATA_OK;
    }
    const strata_variable *variable = strata_variable_behind(node);
    strata_array *value = NULL;
    STRATA_TRY(feed_of(w, node, variable ? (const void *)variable : (const void *)node, &value, err));
    *out_source = value->data;
    return STRATA_OK;
}

/* The operands that an update writes are copies of variables. Replaces them by the arrays of the variables themselves. */
static strata_status bind_updated(const walk *w, const strata_tensor *node, const void **inputs, strata_error *err) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (i > 0 && !(node->op->also_writes >> i & 1)) continue;
        const strata_variable *variable = strata_variable_behind(node->inputs[i]);
        if (!variable) continue;
        strata_array *value = NULL;
        STRATA_TRY(feed_of(w, node->inputs[i], variable, &value, err));
        inputs[i] = value->data;
    }
    return STRATA_OK;
}

static strata_status step(walk *w, const strata_tensor *node, strata_error *err) {
    strata_array *value = &w->values[node->id];
    size_t bytes = strata_array_bytes(value);
    if (node->op->flags & STRATA_OP_LEAF) {
        const void *source = NULL;
        STRATA_TRY(leaf_source(w, node, &source, err));
        if (bytes) memcpy(value->data, source, bytes);
        return STRATA_OK;
    }
    if (node->op->flags & (STRATA_OP_VIEW | STRATA_OP_COMMUNICATION)) {
        if (bytes) memcpy(value->data, w->values[node->inputs[0]->id].data, bytes);
        return STRATA_OK;
    }
    if (node->n_inputs > MAX_INPUTS)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s has %d inputs; the tests' evaluator takes %d", node->op->name,
                           node->n_inputs, MAX_INPUTS);
    const void *inputs[MAX_INPUTS];
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = w->values[node->inputs[i]->id].data;
    strata_op_call call = {.node = node, .inputs = inputs, .output = value->data};
    if (!(node->op->flags & STRATA_OP_UPDATE)) return node->op->reference(&call, err);
    STRATA_TRY(bind_updated(w, node, inputs, err));
    call.output = (void *)inputs[0];
    STRATA_TRY(node->op->reference(&call, err));
    if (bytes) memcpy(value->data, call.output, bytes);
    return STRATA_OK;
}

static strata_status walk_nodes(walk *w, strata_graph *graph, int n_nodes, strata_error *err) {
    for (int id = n_nodes - 1; id >= 0; id--)
        for (int i = 0; w->needed[id] && i < graph->nodes[id]->n_inputs; i++) w->needed[graph->nodes[id]->inputs[i]->id] = true;
    for (int id = 0; id < n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        if (!w->needed[id]) continue;
        STRATA_TRY(strata_array_create(node->dtype, node->shape, &w->values[id], err));
        strata_status status = step(w, node, err);
        if (status) return strata_fail_in(err, status, "node %d", id);
    }
    return STRATA_OK;
}

static strata_status copy_out(const walk *w, strata_tensor *const *outputs, int n_outputs, strata_array *out_values,
                              strata_error *err) {
    for (int i = 0; i < n_outputs; i++) {
        const strata_array *value = &w->values[outputs[i]->id];
        STRATA_TRY(strata_array_create(value->dtype, value->shape, &out_values[i], err));
        memcpy(out_values[i].data, value->data, strata_array_bytes(value));
    }
    return STRATA_OK;
}

strata_status strata_test_eval(strata_tensor *const *outputs, int n_outputs, const strata_test_feed *feeds, int n_feeds,
                               strata_array *out_values, strata_error *err) {
    for (int i = 0; i < n_outputs; i++) out_values[i] = (strata_array){0};
    if (n_outputs < 1 || !outputs[0]) return strata_fail(err, STRATA_INVALID, "there is no output to evaluate");
    strata_graph *graph = outputs[0]->graph;
    STRATA_TRY(strata_graph_check(graph, err));

    size_t n_nodes = (size_t)graph->n_nodes;
    walk w = {.feeds = feeds,
              .n_feeds = n_feeds,
              .values = calloc(n_nodes, sizeof *w.values),
              .needed = calloc(n_nodes, sizeof *w.needed)};
    strata_status status = STRATA_OK;
    if (!w.values || !w.needed) {
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory to evaluate %zu nodes", n_nodes);
        goto cleanup;
    }
    for (int i = 0; i < n_outputs; i++) w.needed[outputs[i]->id] = true;
    STRATA_TRY_GOTO(walk_nodes(&w, graph, graph->n_nodes, err));
    STRATA_TRY_GOTO(copy_out(&w, outputs, n_outputs, out_values, err));
cleanup:
    for (size_t i = 0; w.values && i < n_nodes; i++) strata_array_finish(&w.values[i]);
    for (int i = 0; status && i < n_outputs; i++) strata_array_finish(&out_values[i]);
    free(w.values);
    free(w.needed);
    return status;
}
