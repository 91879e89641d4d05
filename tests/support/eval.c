/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates the nodes on which the outputs depend, in the order in which they were created. Each value has its own memory. A
 * read of a variable copies the variable's array, so that later updates do not change what was read before. */
#include "tests/support/eval.h"

#include <stdlib.h>
#include <string.h>

#include "core/op/communication.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "core/op/update.h"

enum { MAX_INPUTS = 256 };

/* The evaluation of one device's graph. */
typedef struct walk {
    const strata_test_part *part;
    strata_graph *graph;
    /* [node id] */
    strata_array *values;
    bool *needed;
    /* The next node. */
    int at;
} walk;

strata_variable strata_test_variable(const char *name, strata_dtype dtype, strata_shape shape) {
    return (strata_variable){.name = (char *)name, .dtype = dtype, .shape = shape};
}

static strata_status feed_of(const walk *w, const strata_tensor *node, const void *leaf, strata_array **out_value,
                             strata_error *err) {
    for (int i = 0; i < w->part->n_feeds; i++) {
        if (w->part->feeds[i].leaf != leaf) continue;
        strata_array *value = w->part->feeds[i].value;
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
    const bool updates = node->op->flags & STRATA_OP_UPDATE;
    if (updates) {
        STRATA_TRY(bind_updated(w, node, inputs, err));
        call.output = (void *)inputs[0];
    }
    STRATA_TRY(strata_reference(call, err));
    strata_array written = {.dtype = value->dtype, .shape = value->shape, .data = call.output};
    if (w->part->change) w->part->change(&written, w->part->context);
    if (updates && bytes) memcpy(value->data, call.output, bytes);
    return STRATA_OK;
}

/* ---- exchanges ---- */

static const strata_tensor *next_of(const walk *w) {
    return w->graph && w->at < w->graph->n_nodes ? w->graph->nodes[w->at] : NULL;
}

/* Whether all members of the team of `node` are at an exchange in this team. */
static bool is_ready(const walk *walks, int n, const strata_tensor *node) {
    const strata_team *team = &((const strata_communication_attrs *)node->attrs)->team;
    for (int d = 0; d < n; d++) {
        const strata_tensor *own = next_of(&walks[d]);
        if (!strata_team_has(*team, d)) continue;
        if (!own || own->op != node->op) return false;
        if (((const strata_communication_attrs *)own->attrs)->team.id != team->id) return false;
    }
    return true;
}

/* Copies a part of a value along an axis to its place in the whole, or back. */
static void copy_part(const strata_tensor *whole, const strata_parts_attrs *attrs, int64_t k, char *in_whole, char *part,
                      bool to_part) {
    const size_t bytes = strata_dtype_bytes(whole->dtype);
    int64_t outer = 1, inner = 1, first = 0, all = 0;
    for (int64_t i = 0; i < attrs->n; i++) {
        first += i < k ? attrs->lengths[i] : 0;
        all += attrs->lengths[i];
    }
    for (int i = 0; i < whole->shape.rank; i++)
        *(i < attrs->axis ? &outer : &inner) *= i == attrs->axis ? 1 : whole->shape.dims[i];
    const size_t run = (size_t)(attrs->lengths[k] * inner) * bytes;
    for (int64_t o = 0; o < outer && run; o++) {
        char *at = in_whole + (size_t)((o * all + first) * inner) * bytes, *own = part + (size_t)o * run;
        memcpy(to_part ? own : at, to_part ? at : own, run);
    }
}

static void add(strata_array *sum, const strata_array *x) {
    for (int64_t i = 0; i < strata_shape_elements(sum->shape); i++)
        if (strata_dtype_is_float(sum->dtype))
            strata_element_set(sum->dtype, sum->data, i,
                               strata_element_get(sum->dtype, sum->data, i) + strata_element_get(sum->dtype, x->data, i));
        else
            strata_integer_set(sum->dtype, sum->data, i,
                               strata_integer_get(sum->dtype, sum->data, i) + strata_integer_get(sum->dtype, x->data, i));
}

/* The exchange at which all members of the team of device d have arrived. */
static strata_status exchange(walk *walks, int n, int d, strata_error *err) {
    const strata_tensor *node = next_of(&walks[d]);
    const strata_team team = ((const strata_communication_attrs *)node->attrs)->team;
    strata_array sum = {0};
    for (int m = 0; m < n; m++) {
        if (!strata_team_has(team, m)) continue;
        const strata_tensor *own = next_of(&walks[m]);
        STRATA_TRY(strata_array_create(own->dtype, own->shape, &walks[m].values[own->id], err));
        if (node->op == &strata_op_all_gather || !own->n_inputs) continue;
        const strata_array *x = &walks[m].values[own->inputs[0]->id];
        if (!sum.data) {
            STRATA_TRY(strata_array_create(x->dtype, x->shape, &sum, err));
            memcpy(sum.data, x->data, strata_array_bytes(x));
        } else {
            add(&sum, x);
        }
    }
    if (node->op != &strata_op_all_gather && !sum.data)
        return strata_fail(err, STRATA_INVALID, "no device contributes to a %s", node->op->name);
    for (int m = 0; m < n; m++) {
        if (!strata_team_has(team, m)) continue;
        const strata_tensor *own = next_of(&walks[m]);
        const strata_parts_attrs *attrs = own->attrs;
        char *result = walks[m].values[own->id].data;
        const bool takes = own->op == &strata_op_all_reduce || attrs->common.takes;
        const bool one = own->op != &strata_op_all_gather && own->op != &strata_op_reduce_scatter;
        if (one && takes) memcpy(result, sum.data, strata_array_bytes(&sum));
        if (own->op == &strata_op_reduce_scatter) copy_part(own->inputs[0], attrs, attrs->own, sum.data, result, true);
        for (int k = 0; k < n && own->op == &strata_op_all_gather; k++) {
            if (!strata_team_has(team, k)) continue;
            const strata_tensor *other = next_of(&walks[k]);
            copy_part(own, attrs, ((const strata_parts_attrs *)other->attrs)->own, result,
                      walks[k].values[other->inputs[0]->id].data, false);
        }
    }
    strata_array_finish(&sum);
    for (int m = 0; m < n; m++) walks[m].at += strata_team_has(team, m);
    return STRATA_OK;
}

/* ---- all devices ---- */

static strata_status begin(walk *w, strata_error *err) {
    const strata_test_part *part = w->part;
    for (int i = 0; i < part->n_outputs; i++)
        if (part->outputs[i]) w->graph = part->outputs[i]->graph;
    if (!w->graph) return STRATA_OK;
    STRATA_TRY(strata_graph_check(w->graph, err));
    w->values = calloc((size_t)w->graph->n_nodes, sizeof *w->values);
    w->needed = calloc((size_t)w->graph->n_nodes, sizeof *w->needed);
    if (!w->values || !w->needed)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory to evaluate %d nodes", w->graph->n_nodes);
    for (int i = 0; i < part->n_outputs; i++)
        if (part->outputs[i]) w->needed[part->outputs[i]->id] = true;
    for (int id = w->graph->n_nodes - 1; id >= 0; id--)
        for (int i = 0; w->needed[id] && i < w->graph->nodes[id]->n_inputs; i++)
            w->needed[w->graph->nodes[id]->inputs[i]->id] = true;
    return STRATA_OK;
}

/* Evaluates nodes up to the next exchange. With one device, exchanges change nothing. */
static strata_status advance(walk *w, int n_devices, strata_error *err) {
    for (; next_of(w); w->at++) {
        const strata_tensor *node = w->graph->nodes[w->at];
        if (!w->needed[w->at]) continue;
        if (n_devices > 1 && node->op->flags & STRATA_OP_COMMUNICATION) return STRATA_OK;
        STRATA_TRY(strata_array_create(node->dtype, node->shape, &w->values[w->at], err));
        const strata_status status = step(w, node, err);
        if (status) return strata_fail_in(err, status, "node %d", w->at);
    }
    return STRATA_OK;
}

static strata_status walk_all(walk *walks, int n, strata_error *err) {
    for (int d = 0; d < n; d++) STRATA_TRY(begin(&walks[d], err));
    for (;;) {
        int waiting = -1, ready = -1;
        for (int d = 0; d < n; d++) STRATA_TRY(advance(&walks[d], n, err));
        for (int d = 0; d < n; d++) {
            if (!next_of(&walks[d])) continue;
            waiting = d;
            if (ready < 0 && is_ready(walks, n, next_of(&walks[d]))) ready = d;
        }
        if (waiting < 0) return STRATA_OK;
        if (ready < 0)
            return strata_fail(err, STRATA_INVALID, "device %d waits at node %d for an exchange that others never reach",
                               waiting, walks[waiting].at);
        STRATA_TRY(exchange(walks, n, ready, err));
    }
}

static strata_status copy_out(const walk *w, strata_error *err) {
    const strata_test_part *part = w->part;
    for (int i = 0; i < part->n_outputs; i++) {
        if (!part->outputs[i]) continue;
        const strata_array *value = &w->values[part->outputs[i]->id];
        STRATA_TRY(strata_array_create(value->dtype, value->shape, &part->out_values[i], err));
        if (strata_array_bytes(value)) memcpy(part->out_values[i].data, value->data, strata_array_bytes(value));
    }
    return STRATA_OK;
}

strata_status strata_test_eval_parts(const strata_test_part *parts, int n, strata_error *err) {
    walk *walks = calloc((size_t)n, sizeof *walks);
    strata_status status = walks ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d devices", n);
    for (int d = 0; d < n; d++) {
        for (int i = 0; i < parts[d].n_outputs; i++) parts[d].out_values[i] = (strata_array){0};
        if (walks) walks[d].part = &parts[d];
    }
    if (!status) status = walk_all(walks, n, err);
    for (int d = 0; d < n && !status; d++) status = copy_out(&walks[d], err);
    for (int d = 0; d < n && walks; d++) {
        for (int id = 0; walks[d].values && id < walks[d].graph->n_nodes; id++) strata_array_finish(&walks[d].values[id]);
        for (int i = 0; status && i < parts[d].n_outputs; i++) strata_array_finish(&parts[d].out_values[i]);
        free(walks[d].values);
        free(walks[d].needed);
    }
    free(walks);
    return status;
}

strata_status strata_test_eval(strata_tensor *const *outputs, int n_outputs, const strata_test_feed *feeds, int n_feeds,
                               strata_array *out_values, strata_error *err) {
    if (n_outputs < 1 || !outputs[0]) return strata_fail(err, STRATA_INVALID, "there is no output to evaluate");
    const strata_test_part part = {
        .outputs = outputs, .n_outputs = n_outputs, .feeds = feeds, .n_feeds = n_feeds, .out_values = out_values};
    return strata_test_eval_parts(&part, 1, err);
}
