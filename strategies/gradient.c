/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients with respect to variables in a replica's function: to the parameters of models, and to values that
 * strata_replica_read returned. */
#include "core/graph/graph.h"
#include "strategies/context.h"

/* The tensors with respect to which gradients are computed, and their gradients. */
typedef struct sources {
    strata_tensor **tensors, **gradients;
    int n;
} sources;

/* How many tensors a variable has at most: readings, or the parts of a model's block of parameters. */
static int count(const strata_replica_context *replica, const strata_distributed_variable *variable) {
    if (variable->model) return variable->model->parameters.blocks[variable->block].n_parts;
    int n = 0;
    for (const strata_replica_reading *r = replica->readings; r; r = r->next) n += r->variable == variable;
    return n;
}

/* Adds to `s` the parts of a model's block that layers use, or what strata_replica_read has returned for another variable.
 * Returns whether there are any. */
static bool add_sources(const strata_replica_context *replica, const strata_distributed_variable *variable, sources *s) {
    const int before = s->n;
    const strata_model_use *use = variable->model ? strata_model_use_find(replica, variable->model) : NULL;
    if (use) {
        const strata_parameter_block *at = &variable->model->parameters.blocks[variable->block];
        strata_tensor *const *parts = use->context.parts; /* NULL for one that no layer uses */
        for (int i = at->first_part; i < at->first_part + at->n_parts; i++)
            if (parts[i]) s->tensors[s->n++] = parts[i];
    }
    for (const strata_replica_reading *r = replica->readings; r && !variable->model; r = r->next)
        if (r->variable == variable) s->tensors[s->n++] = r->value;
    return s->n > before;
}

/* Combines the gradients of the parts of a model's block, from *next on, to the gradient of the block. */
static strata_tensor *of_block(strata_replica_context *replica, const strata_distributed_variable *variable,
                               strata_tensor *const **next) {
    strata_model_use *use = strata_model_use_find(replica, variable->model);
    const strata_parameter_set *set = &variable->model->parameters;
    const strata_parameter_block *at = &set->blocks[variable->block];
    strata_tensor **gradients = strata_graph_alloc(replica->graph, (size_t)set->n_parts * sizeof *gradients);
    if (!gradients) return NULL;
    for (int i = at->first_part; i < at->first_part + at->n_parts; i++)
        if (use->context.parts[i]) gradients[i] = *(*next)++;
    return strata_model_use_pack(use, variable->block, gradients);
}

static strata_tensor *unused(strata_replica_context *replica, const strata_distributed_variable *variable) {
    return strata_graph_poison(replica->graph, NULL, STRATA_INVALID,
                               "strata_replica_gradients: the function has not read variable %s before",
                               variable->model ? "of the model's parameters" : strata_variable_name(variable->whole));
}

strata_tensor *const *strata_replica_gradients(strata_replica_context *replica, strata_tensor *loss,
                                               strata_variables variables) {
    strata_tensor **out = strata_graph_alloc(replica->graph, (size_t)variables.n * sizeof *out);
    sources s = {0};
    size_t most = 0;
    if (!out || !loss || !strata_need_replica(replica, "strata_replica_gradients")) return out;
    for (int i = 0; i < variables.n; i++) most += (size_t)count(replica, variables.items[i]);
    s.tensors = strata_graph_alloc(replica->graph, most * sizeof *s.tensors);
    s.gradients = strata_graph_alloc(replica->graph, most * sizeof *s.gradients);
    if (!s.tensors || !s.gradients) return out;
    for (int i = 0; i < variables.n; i++)
        if (!add_sources(replica, variables.items[i], &s)) out[i] = unused(replica, variables.items[i]);
    if (strata_tensor_is_poison(loss)) return out;
    if (s.n) strata_gradients(loss, NULL, s.tensors, s.n, s.gradients);
    strata_tensor *const *next = s.gradients;
    for (int i = 0; i < variables.n; i++) {
        if (out[i]) continue;
        if (variables.items[i]->model) {
            out[i] = of_block(replica, variables.items[i], &next);
            continue;
        }
        for (int k = count(replica, variables.items[i]); k > 0; k--, next++)
            out[i] = out[i] ? strata_add(out[i], *next) : *next;
    }
    return out;
}
