/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers whose values the backward pass computes again instead of keeping them from the forward pass
 * (strata_compile_options.recompute): reading the option, and `auto`, which chooses the layers of a program by its memory. */
#include "core/model/recompute.h"

#include <errno.h>

#include "core/compile/walk.h"

/* ---- the option ---- */

static void mark_all(strata_layer_list *list, bool recomputed) {
    for (int i = 0; i < list->n; i++) {
        list->layers[i].recomputed = recomputed;
        for (int b = 0; b < STRATA_MAX_BRANCHES; b++) mark_all(&list->layers[i].branches[b], recomputed);
    }
}

/* Reads "auto" or "auto:BYTES". *out_bytes: INT64_MAX without a number; 0: the text is neither. */
static strata_status read_auto(const char *text, int64_t *out_bytes, strata_error *err) {
    *out_bytes = !strcmp(text, "auto") ? INT64_MAX : 0;
    if (strncmp(text, "auto:", 5) != 0) return STRATA_OK;
    char *end = NULL;
    errno = 0;
    const long long amount = strtoll(text + 5, &end, 10);
    const char *unit = *end ? strchr("KMG", *end) : NULL;
    const int shift = unit ? 10 * (int)(1 + (unit - "KMG")) : 0;
    if (end == text + 5 || (*end && (!unit || end[1])) || errno || amount < 1 || amount > INT64_MAX >> (shift + 1))
        return strata_fail(err, STRATA_INVALID,
                           "recompute \"%.60s\": auto takes the bytes that a program may have, such as auto:512M", text);
    *out_bytes = (int64_t)amount << shift;
    return STRATA_OK;
}

/* Marks the layers of a list "A,B". */
static strata_status mark_named(strata_model *model, char *list, strata_error *err) {
    for (char *name = strsep(&list, ","); name; name = strsep(&list, ",")) {
        strata_layer *layer;
        STRATA_TRY(strata_model_find_any_layer(model, "recompute", name, &layer, err));
        layer->recomputed = true;
    }
    return STRATA_OK;
}

strata_status strata_recompute_set(strata_model *model, const char *text, const strata_strategy *strategy, strata_error *err) {
    STRATA_FREED char *kept = NULL, *list = NULL;
    int64_t bytes = 0;
    if (text && *text) {
        STRATA_TRY(read_auto(text, &bytes, err));
        if (bytes && strategy && strata_strategy_has_workers(strategy) && !strategy->trainer)
            return strata_fail(
                err, STRATA_UNSUPPORTED,
                "recompute: auto chooses by the memory of one worker's devices, and all workers of %s run the same "
                "step; name the layers",
                strategy->name);
        kept = strdup(text);
        list = strdup(text);
        if (!kept || !list) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for names of layers");
    }
    mark_all(&model->list, false);
    const strata_status status = list && !bytes ? mark_named(model, list, err) : STRATA_OK;
    if (status) mark_all(&model->list, false);
    free(model->recompute.text);
    model->recompute.text = status ? NULL : strata_released(&kept);
    model->recompute.most_bytes = status ? 0 : bytes;
    return status;
}

/* ---- auto ---- */

static const strata_tensor *root_of(const strata_tensor *tensor) {
    while (strata_is_view(tensor, NULL)) tensor = tensor->inputs[0];
    return tensor;
}

/* The call that computes the value, which is not the call's output; NULL: there is none. */
static strata_layer_cost *inside_of(const strata_tensor *value, strata_layer_cost *calls, int n) {
    for (int i = 0; i < n && calls[i].first <= value->id; i++)
        if (value->id < calls[i].end) return value == root_of(calls[i].y) ? NULL : &calls[i];
    return NULL;
}

strata_status strata_recompute_weigh(const strata_step *step, strata_layer_cost *calls, int n, strata_error *err) {
    strata_graph *graph = step->graph;
    bool *live = strata_graph_alloc(graph, (size_t)graph->n_nodes), *seen = strata_graph_alloc(graph, (size_t)graph->n_nodes);
    if (!live || !seen) return strata_graph_check(graph, err);
    strata_mark_live(&(strata_draft){.graph = graph,
                                     .outputs = step->outputs,
                                     .n_outputs = step->n_outputs,
                                     .updates = step->updates,
                                     .n_updates = step->n_updates},
                     live, NULL);
    for (int id = calls[n - 1].end; id < graph->n_nodes; id++)
        for (int i = 0; i < graph->nodes[id]->n_inputs && live[id]; i++) {
            const strata_tensor *value = root_of(graph->nodes[id]->inputs[i]);
            strata_layer_cost *call = value->op->flags & STRATA_OP_LEAF ? NULL : inside_of(value, calls, n);
            if (call && !seen[value->id]) call->kept_bytes += (double)strata_tensor_bytes(value);
            seen[value->id] = true;
        }
    return STRATA_OK;
}

/* A layer that may be computed again: the bytes that its calls would no longer keep, and the cost of these calls. */
typedef struct candidate {
    double bytes, flops;
    int layer;
    bool chosen;
} candidate;

/* The most bytes for each operation first; of equal ones the first layer. */
static int by_gain(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    const double gain_x = x->bytes * y->flops, gain_y = y->bytes * x->flops;
    if (gain_x != gain_y) return gain_x > gain_y ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* Lists the layers that keep something for the backward pass. list: [model->list.n]. Returns their number. */
static int list_candidates(const strata_model *model, const strata_layer_cost *calls, candidate *list) {
    int n = 0;
    for (int i = 0; i < model->list.n; i++) list[i].layer = i;
    for (int v = 0; v < model->n_values; v++) {
        if (model->values[v]->layer < 0) continue;
        list[model->values[v]->layer].bytes += calls->kept_bytes;
        list[model->values[v]->layer].flops += (calls++)->flops;
    }
    for (int i = 0; i < model->list.n; i++)
        if (list[i].bytes > 0) list[n++] = list[i];
    qsort(list, (size_t)n, sizeof *list, by_gain);
    return n;
}

/* Builds the program with the chosen candidates marked. *out_lack: as for strata_program_measure. */
static strata_status build_with(strata_model *model, strata_model_program *program, const candidate *list, int n,
                                strata_layer_cost *calls, strata_program_lack *out_lack, strata_error *err) {
    mark_all(&model->list, false);
    for (int i = 0; i < n; i++) model->list.layers[list[i].layer].recomputed = list[i].chosen;
    strata_program_clear_steps(program);
    STRATA_TRY(strata_model_divide(model, program, calls, err));
    return strata_program_measure(model, program, model->recompute.most_bytes, out_lack, err);
}

/* Chooses more and more candidates, until the program fits or all are chosen; then those with which it lacked least. From the
 * last to the first, leaves out again those without which it lacks no more. lack: without any. */
static strata_status choose(strata_model *model, strata_model_program *program, candidate *list, int n,
                            strata_program_lack lack, strata_error *err) {
    int64_t least = lack.bytes;
    int best = 0;
    for (int k = 0; k < n && least > 0; k++) {
        list[k].chosen = true;
        STRATA_TRY(build_with(model, program, list, k + 1, NULL, &lack, err));
        if (lack.bytes >= least) continue;
        least = lack.bytes > 0 ? lack.bytes : 0;
        best = k + 1;
    }
    for (int k = best - 2; k >= 0; k--) {
        list[k].chosen = false;
        STRATA_TRY(build_with(model, program, list, best, NULL, &lack, err));
        list[k].chosen = lack.bytes > least;
    }
    return n ? build_with(model, program, list, best, NULL, &lack, err) : STRATA_OK;
}

strata_status strata_recompute_choose(strata_model *model, strata_model_program *program, strata_layer_cost *layers,
                                      strata_error *err) {
    static const char no_memory[] = "model: no host memory to choose layers";
    const int n_calls = strata_model_n_calls(model);
    STRATA_FREED strata_layer_cost *calls = NULL;
    STRATA_FREED candidate *list = NULL;
    strata_program_lack lack;
    STRATA_TRY(STRATA_NEW(calls, n_calls, err, no_memory));
    STRATA_TRY(STRATA_NEW(list, model->list.n, err, no_memory));
    STRATA_TRY(build_with(model, program, NULL, 0, calls, &lack, err));
    if (layers) memcpy(layers, calls, (size_t)n_calls * sizeof *layers);
    return lack.bytes > 0 ? choose(model, program, list, list_candidates(model, calls, list), lack, err) : STRATA_OK;
}
