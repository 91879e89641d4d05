/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes one piece of all nodes of a graph. Its places have only the arena of each tensor, with one arena for each
 * variable, since only the values that the program reads and writes become buffers. */
#include "backends/pjrt/lower.h"
#include "core/compile/passes.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"

enum { INPUT, OUTPUT, WORK, CONSTANT, FIRST_VARIABLE };

static strata_support supports(void *user, const strata_tensor *node) {
    const char *reason;
    (void)user;
    return strata_pjrt_lowers(node, &reason) ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}

typedef struct whole {
    strata_graph *graph;
    bool *live, *output;
    const strata_tensor **nodes;
    strata_place *places;
    strata_arena *arenas;
    const strata_variable **variables;
    int n_nodes, n_arenas;
} whole;

static int arena_of(whole *w, const strata_tensor *node) {
    if (w->output[node->id]) return OUTPUT;
    if (node->op == &strata_op_input) return INPUT;
    if (node->op == &strata_op_constant) return CONSTANT;
    if (node->op != &strata_op_read) return WORK;
    const strata_variable *variable = ((const strata_read_attrs *)node->attrs)->variable;
    int arena = FIRST_VARIABLE;
    while (arena < w->n_arenas && w->variables[arena] != variable) arena++;
    if (arena == w->n_arenas) {
        w->arenas[arena].kind = STRATA_ARENA_VARIABLE;
        w->variables[w->n_arenas++] = variable;
    }
    return arena;
}

/* Fills the piece. No two places of an arena overlap. */
static void fill(whole *w) {
    static const strata_arena_kind kinds[] = {STRATA_ARENA_INPUT, STRATA_ARENA_OUTPUT, STRATA_ARENA_WORK,
                                              STRATA_ARENA_CONSTANT};
    for (int i = 0; i < FIRST_VARIABLE; i++) w->arenas[i].kind = kinds[i];
    w->n_arenas = FIRST_VARIABLE;
    for (int id = 0; id < w->graph->n_nodes; id++) {
        const strata_tensor *node = w->graph->nodes[id];
        w->places[id].arena = -1;
        if (!w->live[id]) continue;
        strata_arena *arena = &w->arenas[w->places[id].arena = arena_of(w, node)];
        w->places[id].bytes = strata_shape_elements(node->shape) * (int64_t)strata_dtype_bytes(node->dtype);
        w->places[id].offset = arena->kind == STRATA_ARENA_VARIABLE ? 0 : arena->bytes;
        arena->bytes += w->places[id].bytes;
        if (!(node->op->flags & STRATA_OP_LEAF) && (!strata_is_view(node, NULL) || w->output[id]))
            w->nodes[w->n_nodes++] = node;
    }
}

static strata_status lower(whole *w, pjrt_lower_options options, pjrt_module *out_module, strata_error *err) {
    fill(w);
    const strata_piece piece = {.nodes = w->nodes,
                                .n_nodes = w->n_nodes,
                                .places = w->places,
                                .n_places = w->graph->n_nodes,
                                .arenas = w->arenas,
                                .n_arenas = w->n_arenas};
    return strata_pjrt_lower(&piece, options, out_module, err);
}

strata_status strata_pjrt_lower_graph(strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                                      int n_updates, pjrt_lower_options options, pjrt_module *out_module, strata_error *err) {
    const strata_device_query query = {.supports = supports};
    whole w = {0};
    STRATA_FINISHED(strata_draft) draft = {0};
    *out_module = (pjrt_module){0};
    STRATA_TRY(strata_draft_begin(&draft, outputs, n_outputs, updates, n_updates, err));
    STRATA_TRY(strata_passes_run(&draft, &query, options.n_replicas <= 1, err));
    w.graph = draft.graph;
    const size_t n = (size_t)w.graph->n_nodes + FIRST_VARIABLE + 1;
    w.live = strata_graph_alloc(w.graph, n * sizeof *w.live);
    w.output = strata_graph_alloc(w.graph, n * sizeof *w.output);
    w.nodes = strata_graph_alloc(w.graph, n * sizeof(*w.nodes));
    w.places = strata_graph_alloc(w.graph, n * sizeof *w.places);
    w.arenas = strata_graph_alloc(w.graph, n * sizeof *w.arenas);
    w.variables = strata_graph_alloc(w.graph, n * sizeof(*w.variables));
    STRATA_TRY(strata_graph_check(w.graph, err));
    for (int i = 0; i < n_outputs; i++) w.output[draft.outputs[i]->id] = true;
    strata_mark_live(&draft, w.live, NULL);
    return lower(&w, options, out_module, err);
}
