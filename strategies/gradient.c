/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients with respect to variables in a replica's function: to the parameters of models, and to values that
 * strata_replica_read returned. */
#include <string.h>

#include "core/graph/graph.h"
#include "strategies/context.h"

/* The tensors with respect to which gradients are computed, and room for the gradients. */
typedef struct sources {
    strata_tensor **tensors, **gradients;
    int n;
} sources;

/* Adds to `s` the tensors that strata_replica_read has returned for a variable, as many as fit. Returns how many there are. */
static int add_readings(const strata_replica_context *replica, const strata_distributed_variable *variable, sources *s) {
    int n = 0;
    for (const strata_replica_reading *r = replica->readings; r; r = r->next) {
        if (r->variable != variable) continue;
        if (s->tensors) s->tensors[s->n + n] = r->value;
        n++;
    }
    s->n += n;
    return n;
}

/* Does the same for the parts of a model's block of parameters. */
static int add_parts(const strata_replica_context *replica, const strata_distributed_variable *variable, sources *s) {
    const strata_model_use *use = strata_model_use_find(replica, variable->model);
    if (!use) return 0;
    const strata_parameter_block *at = &variable->model->parameters.blocks[variable->block];
    strata_tensor *const *parts = strata_model_use_parts(use);
    int n = 0;
    for (int i = at->first_part; i < at->first_part + at->n_parts; i++) {
        if (!parts[i]) continue;
        if (s->tensors) s->tensors[s->n + n] = parts[i];
        n++;
    }
    s->n += n;
    return n;
}

static int add_sources(const strata_replica_context *replica, const strata_distributed_variable *variable, sources *s) {
    return variable->model ? add_parts(replica, variable, s) : add_readings(replica, variable, s);
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
        if (strata_model_use_parts(use)[i]) gradients[i] = *(*next)++;
    return strata_model_use_pack(use, variable->block, gradients);
}

static strata_tensor *unused(strata_replica_context *replica, const strata_distributed_variable *variable) {
    return strata_graph_poison(replica->graph, NULL, STRATA_INVALID,
                               "strata_replica_gradients: the function has not read variable %s before",
                               variable->model ? "of the model's parameters" : strata_variable_name(variable->copies[0]));
}

strata_tensor *const *strata_replica_gradients(strata_replica_context *replica, strata_tensor *loss,
                                               strata_variables variables) {
    strata_tensor **out = strata_graph_alloc(replica->graph, (size_t)variables.n * sizeof *out);
    sources s = {0};
    if (!out || !loss || !strata_need_replica(replica, "strata_replica_gradients")) return out;
    for (int i = 0; i < variables.n; i++)
        if (!add_sources(replica, variables.items[i], &s)) out[i] = unused(replica, variables.items[i]);
    s.tensors = strata_graph_alloc(replica->graph, (size_t)s.n * sizeof *s.tensors);
    s.gradients = strata_graph_alloc(replica->graph, (size_t)s.n * sizeof *s.gradients);
    if (!s.tensors || !s.gradients || strata_tensor_is_poison(loss)) return out;
    s.n = 0;
    for (int i = 0; i < variables.n; i++) add_sources(replica, variables.items[i], &s);
    if (s.n) strata_gradients(loss, NULL, s.tensors, s.n, s.gradients);
    strata_tensor *const *next = s.gradients;
    for (int i = 0; i < variables.n; i++) {
        sources none = {0};
        if (out[i]) continue;
        if (variables.items[i]->model) {
            out[i] = of_block(replica, variables.items[i], &next);
            continue;
        }
        for (int k = add_sources(replica, variables.items[i], &none); k > 0; k--, next++)
            out[i] = out[i] ? strata_add(out[i], *next) : *next;
    }
    return out;
}
