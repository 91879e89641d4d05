/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the workers of a job run the same custom loop: the same data, the same function, the same optimizers. A fit has
 * the same check (core/model/agree.c). Shapes and attributes of nodes are not compared, since the workers' shares of a batch
 * may have different sizes. */
#include "core/model/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/compile/passes.h"
#include "core/data/describe.h"
#include "core/graph/graph.h"
#include "core/graph/variable.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "strata/sha256.h"
#include "strata/version.h"
#include "strategies/context.h"

/* Compares the terms with those of the other workers, and frees them. */
static strata_status compare(const strata_strategy *strategy, strata_text *terms, strata_error *err) {
    char *text = NULL;
    STRATA_TRY(strata_text_take(terms, &text, NULL, err));
    const strata_status status = strata_workers_compare_terms(&strategy->workers, text, err);
    free(text);
    return status;
}

strata_status strata_batches_agree(const strata_strategy *strategy, const strata_dataset *dataset,
                                   const strata_distributed_batches_options *opts, strata_error *err) {
    strata_text terms = {0};
    strata_text_add_term(&terms, "version of Strata", "%s", strata_version());
    strata_text_add_term(&terms, "global batch", "%" PRId64, opts->global_batch);
    strata_text_add_term(&terms, "shuffling", "%s", opts->shuffle ? "on" : "off");
    strata_text_add_term(&terms, "seed of the shuffles", "%" PRIu64, opts->seed);
    strata_text_add_term(&terms, "epoch", "%" PRIu64, opts->epoch);
    const strata_status status =
        strata_model_add_data_terms(&terms, dataset, "distributed data", opts->auto_shard, opts->seed, err);
    if (!status) return compare(strategy, &terms, err);
    strata_text_finish(&terms);
    return status;
}

static strata_status add_optimizers(strata_text *terms, const strata_replica_context *replica, strata_error *err) {
    for (int i = 0; i < replica->n_feeds; i++) {
        const strata_distributed_optimizer *o = replica->feeds[i].optimizer;
        strata_json_writer writer = {0};
        char *text = NULL;
        if (replica->feeds[i].kind != STRATA_FEED_STEP) continue;
        strata_optimizer_write(&writer, &o->settings, o->kind);
        STRATA_TRY(strata_json_take(&writer, &text, NULL, err));
        strata_text_add(terms, "optimizer's settings\t%s\nupdates before\t%" PRId64 "\n", text, o->steps);
        free(text);
    }
    return STRATA_OK;
}

static strata_status add_models(strata_text *terms, const strata_replica_context *replica, strata_error *err) {
    for (int i = 0; i < replica->n_models; i++) {
        char *text = NULL;
        STRATA_TRY(strata_model_to_json(replica->models[i], &text, err));
        if (i)
            strata_text_add(terms, "model %d\t%s\n", i, text);
        else
            strata_text_add(terms, "model\t%s\n", text);
        free(text);
    }
    return STRATA_OK;
}

/* The value of an attribute as text. False: it is a pointer or determined by other attributes and shapes. */
static bool write_attribute(const strata_tensor *node, const strata_attr_field *field, strata_text *value) {
    const char *at = (const char *)node->attrs + field->offset;
    const strata_shape *shape = (const strata_shape *)(const void *)at;
    const int rank = node->n_inputs ? node->inputs[0]->shape.rank : node->shape.rank;
    const int n = field->kind == STRATA_ATTR_INT     ? 1
                  : field->kind == STRATA_ATTR_INTS  ? rank
                  : field->kind == STRATA_ATTR_PAIR  ? 2
                  : field->kind == STRATA_ATTR_QUAD  ? 4
                  : field->kind == STRATA_ATTR_SHAPE ? shape->rank
                                                     : 0;
    const int64_t *ints = field->kind == STRATA_ATTR_SHAPE ? shape->dims : (const int64_t *)(const void *)at;
    if (field->kind == STRATA_ATTR_FLOAT) strata_text_add(value, "%.17g", *(const double *)(const void *)at);
    for (int i = 0; i < n; i++) strata_text_add(value, "%s%" PRId64, i ? ", " : "", ints[i]);
    return field->kind <= STRATA_ATTR_SHAPE;
}

/* Adds the node's attributes. Those of an exchange that say which replica this one is are left out, and without `whole` those
 * that may depend on shapes. */
static void add_attributes(strata_text *terms, const strata_tensor *node, bool whole) {
    char name[96];
    for (const strata_attr_field *field = node->op->attrs; field->name; field++) {
        strata_text value = {0};
        const bool of_exchange = node->op->flags & STRATA_OP_COMMUNICATION;
        if (of_exchange && strcmp(field->name, "reduction") != 0 && strcmp(field->name, "axis") != 0) continue;
        if (!whole && field->kind != STRATA_ATTR_FLOAT) continue;
        snprintf(name, sizeof name, "%s of node %d (%s) of the function", field->name, node->id, node->op->name);
        if (write_attribute(node, field, &value) && value.n_bytes) strata_text_add_term(terms, name, "%s", value.bytes);
        terms->failed = terms->failed || value.failed;
        strata_text_finish(&value);
    }
}

/* Adds the value of a constant, or its hash if it has several elements. */
static strata_status add_constant(strata_text *terms, const strata_tensor *node, strata_error *err) {
    const void *data = ((const strata_constant_attrs *)node->attrs)->data;
    const int64_t n = strata_shape_elements(node->shape);
    char name[64], hash[STRATA_SHA256_TEXT_BYTES];
    snprintf(name, sizeof name, "constant at node %d of the function", node->id);
    if (n == 1) {
        strata_text_add_term(terms, name, "%.17g", strata_element_get(node->dtype, data, 0));
        return STRATA_OK;
    }
    STRATA_TRY(strata_sha256_of(data, (size_t)n * strata_dtype_bytes(node->dtype), hash, err));
    strata_text_add_term(terms, name, STRATA_HASH_MARK "%.16s", hash);
    return STRATA_OK;
}

/* whole: the node's shape and its constant are the same on all replicas. */
static strata_status add_node(strata_text *terms, const strata_tensor *node, bool whole, strata_error *err) {
    const strata_variable *variable = node->op == &strata_op_read ? ((const strata_read_attrs *)node->attrs)->variable : NULL;
    char name[96];
    snprintf(name, sizeof name, "node %d of the function", node->id);
    strata_text_add_term(terms, name, "%s %s", node->op->name, strata_dtype_name(node->dtype));
    /* Only the sender has the operand of a broadcast. */
    for (int i = 0; i < node->n_inputs && !strata_is_communication(node); i++) {
        snprintf(name, sizeof name, "operand %d of node %d (%s) of the function", i, node->id, node->op->name);
        strata_text_add_term(terms, name, "node %d", node->inputs[i]->id);
    }
    if (variable)
        snprintf(name, sizeof name, "shape of the variable \"%.40s\"", variable->name);
    else
        snprintf(name, sizeof name, "shape of node %d (%s) of the function", node->id, node->op->name);
    if (whole) strata_text_add_term(terms, name, "%s", strata_shape_text(node->shape).text);
    add_attributes(terms, node, whole);
    return whole && node->op == &strata_op_constant ? add_constant(terms, node, err) : STRATA_OK;
}

/* Adds what the function's inputs have in common on all workers. The sizes may differ, as shares of a batch do. */
static void add_inputs(strata_text *terms, const strata_graph *graph) {
    char name[96];
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        if (node->op != &strata_op_input) continue;
        snprintf(name, sizeof name, "\"%.32s\" of the function", ((const strata_input_attrs *)node->attrs)->name);
        strata_text_add_term(terms, name, "%s with %d dimensions", strata_dtype_name(node->dtype), node->shape.rank);
    }
}

strata_status strata_function_agree(const strata_replica_context *replica, const strata_replica_context *compared,
                                    const strata_error *failed, strata_error *err) {
    /* The shapes behind an all_gather are those of all replicas. */
    const bool whole = !replica->n_gathers && !compared->asks_id;
    const strata_graph *graph = compared->graph;
    strata_text terms = {0};
    strata_text_add_term(&terms, "version of Strata", "%s", strata_version());
    strata_status status = add_optimizers(&terms, replica, err);
    if (!status) status = add_models(&terms, replica, err);
    add_inputs(&terms, replica->graph);
    if (failed) strata_text_add_term(&terms, "function with the shapes of worker 0", "an error (%s)", failed->message);
    for (int id = 0; id < graph->n_nodes && !status && !failed; id++) status = add_node(&terms, graph->nodes[id], whole, err);
    if (!status) return compare(replica->strategy, &terms, err);
    strata_text_finish(&terms);
    return status;
}
