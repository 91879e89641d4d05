/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports about a model's programs (strata/summary.h). They are computed from the graphs of a prediction and of a training
 * step, so they describe what runs, and no formula is written twice. */
#include <stdio.h>

#include "core/model/build.h"
#include "core/model/data.h"

/* ---- the layers ---- */

static int64_t parameters_of(const strata_model *model, const char *layer) {
    int64_t sum = 0;
    size_t n = strlen(layer);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (!strncmp(p->name, layer, n) && p->name[n] == '/') sum += strata_shape_elements(p->shape);
    }
    return sum;
}

/* Fills in a row for each call of a layer. If a layer is called several times, its parameters are in the row of the first
 * call. */
static void fill_layers(const strata_model *model, const strata_layer_cost *costs, strata_model_summary *summary) {
    for (int i = 0, row = 0; i < model->n_values; i++) {
        const strata_value *value = model->values[i];
        if (value->layer < 0) continue;
        const strata_layer *layer = &model->list.layers[value->layer];
        summary->layers[row] = (strata_layer_summary){.name = value->name,
                                                      .kind = layer->kind->name,
                                                      .output = costs[row].output,
                                                      .parameters = value->number == 1 ? parameters_of(model, layer->name) : 0,
                                                      .flops = costs[row].flops,
                                                      .n_inputs = model->functional ? value->n_inputs : 0};
        for (int k = 0; k < summary->layers[row].n_inputs && k < STRATA_MAX_SUMMARY_INPUTS; k++)
            summary->layers[row].inputs[k] = model->values[value->inputs[k]]->name;
        summary->parameters += summary->layers[row].parameters;
        summary->forward_flops += costs[row++].flops;
    }
}

static strata_program_kind program_of(strata_model_part part) {
    return part == STRATA_PART_TRAINING     ? STRATA_PROGRAM_TRAIN
           : part == STRATA_PART_EVALUATION ? STRATA_PROGRAM_EVALUATE
                                            : STRATA_PROGRAM_PREDICT;
}

/* What the first replica's program would cost, and each call of a layer in it (NULL: not needed). */
static strata_status measure(strata_model *model, strata_program_kind kind, int64_t batch, strata_layer_cost *out_layers,
                             strata_program_cost *out_cost, strata_error *err) {
    strata_step s;
    STRATA_TRY(strata_model_build_step(model, kind, batch, 0, out_layers, &s, err));
    STRATA_OWNED(strata_graph) *graph = s.graph;
    return strata_executable_measure(model->replicas[0].device, s.outputs, s.n_outputs, s.updates, s.n_updates, out_cost, err);
}

strata_status strata_model_summarize(strata_model *model, int64_t batch, strata_model_summary *out_summary, strata_error *err) {
    const int n = strata_model_n_calls(model);
    STRATA_FREED strata_layer_cost *costs = NULL;
    strata_program_cost forward, step = {0};
    *out_summary = (strata_model_summary){0};
    STRATA_TRY(strata_model_check_report(model, "summarize", "summarize", false, &batch, err));
    STRATA_TRY(STRATA_NEW(costs, n, err, "summarize: no host memory for %d layers", n));
    STRATA_TRY(measure(model, STRATA_PROGRAM_PREDICT, batch, costs, &forward, err));
    if (model->trains) STRATA_TRY(measure(model, STRATA_PROGRAM_TRAIN, batch, NULL, &step, err));
    *out_summary = (strata_model_summary){.batch = batch,
                                          .n_layers = n,
                                          .step_flops = step.flops,
                                          .step_bytes = step.moved_bytes,
                                          .step_memory_bytes = step.device_bytes};
    STRATA_TRY(STRATA_NEW(out_summary->layers, n, err, "summarize: no host memory for %d layers", n));
    fill_layers(model, costs, out_summary);
    return STRATA_OK;
}

void strata_model_summary_finish(strata_model_summary *summary) {
    if (!summary) return;
    free(summary->layers);
    *summary = (strata_model_summary){0};
}

/* ---- what is in memory at the moment when a program needs most memory ---- */

static void copy_name(char out[64], const strata_tensor *node) {
    snprintf(out, 64, "%s", node->name ? node->name : "");
}

static strata_status collect_peak(const strata_peak_value *value, void *user, strata_error *err) {
    strata_model_memory *memory = user;
    strata_value_memory *row = strata_grow(&memory->values, memory->n_values, sizeof *row);
    if (!row) return strata_fail(err, STRATA_OUT_OF_MEMORY, "memory: no host memory for %d values", memory->n_values);
    memory->n_values++;
    *row = (strata_value_memory){
        .op = value->node->op->name, .dtype = value->node->dtype, .output = value->node->shape, .bytes = value->bytes};
    copy_name(row->name, value->node);
    copy_name(memory->at, value->at);
    memory->at_op = value->at->op->name;
    memory->peak_bytes += value->bytes;
    return STRATA_OK;
}

static int largest_first(const void *a, const void *b) {
    const strata_value_memory *x = a, *y = b;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

strata_status strata_model_list_memory(strata_model *model, strata_model_part part, int64_t batch,
                                       strata_model_memory *out_memory, strata_error *err) {
    *out_memory = (strata_model_memory){.at_op = ""};
    STRATA_TRY(strata_model_check_report(model, "memory", "memory", part != STRATA_PART_PREDICTION, &batch, err));
    if (part < STRATA_PART_TRAINING || part > STRATA_PART_PREDICTION)
        return strata_fail(err, STRATA_INVALID, "memory: part is %d; it is 0..2", (int)part);
    const int64_t flat = model->parameters.flat_size * (int64_t)sizeof(float);
    out_memory->parameter_bytes = flat;
    out_memory->slot_bytes = flat * strata_model_n_slots(model);
    out_memory->state_bytes = model->parameters.state_size * (int64_t)sizeof(float);
    strata_step s;
    STRATA_TRY(strata_model_build_step(model, program_of(part), batch, 0, NULL, &s, err));
    const strata_status status = strata_executable_visit_peak(model->replicas[0].device, s.outputs, s.n_outputs, s.updates,
                                                              s.n_updates, collect_peak, out_memory, err);
    strata_graph_destroy(s.graph);
    if (status)
        strata_model_memory_finish(out_memory);
    else if (out_memory->n_values)
        qsort(out_memory->values, (size_t)out_memory->n_values, sizeof *out_memory->values, largest_first);
    return status;
}

void strata_model_memory_finish(strata_model_memory *memory) {
    if (!memory) return;
    free(memory->values);
    *memory = (strata_model_memory){0};
}

/* ---- which device runs each node, and which other devices could run it ---- */

enum { MOST_OTHERS = 32 };

typedef struct collector {
    strata_model_places *places;
    strata_device *const *others;
    int n_others;
} collector;

static uint32_t who_runs(const collector *c, const strata_tensor *node) {
    uint32_t bits = 0;
    for (int i = 0; i < c->n_others; i++) {
        const char *reason = NULL;
        const strata_support support = strata_device_supports(c->others[i], node, &reason);
        if (support == STRATA_SUPPORT_YES || support == STRATA_SUPPORT_PARTS) bits |= 1u << i;
    }
    return bits;
}

static strata_status collect(const strata_node_support *placement, void *user, strata_error *err) {
    static const strata_placed placed[] = {[STRATA_SUPPORT_NO] = STRATA_PLACED_NOWHERE,
                                           [STRATA_SUPPORT_YES] = STRATA_PLACED_DEVICE,
                                           [STRATA_SUPPORT_PARTS] = STRATA_PLACED_DEVICE,
                                           [STRATA_SUPPORT_HOST] = STRATA_PLACED_HOST};
    collector *c = user;
    strata_model_places *places = c->places;
    const strata_tensor *node = placement->node;
    strata_node_place *row = strata_grow(&places->nodes, places->n_nodes, sizeof *row);
    if (!row) return strata_fail(err, STRATA_OUT_OF_MEMORY, "places: no host memory for %d nodes", places->n_nodes);
    places->n_nodes++;
    *row = (strata_node_place){
        .op = node->op->name, .dtype = node->dtype, .output = node->shape, .placed = placed[placement->support]};
    snprintf(row->name, sizeof row->name, "%s", node->name ? node->name : "");
    snprintf(row->reason, sizeof row->reason, "%s", placement->reason);
    if (row->placed != STRATA_PLACED_DEVICE) row->others = who_runs(c, node);
    places->n_host += row->placed == STRATA_PLACED_HOST;
    places->n_nowhere += row->placed == STRATA_PLACED_NOWHERE;
    return STRATA_OK;
}

strata_status strata_model_list_places(strata_model *model, strata_model_part part, int64_t batch, int replica,
                                       strata_device *const *others, int n_others, strata_model_places *out_places,
                                       strata_error *err) {
    collector c = {.places = out_places, .others = others, .n_others = n_others};
    *out_places = (strata_model_places){0};
    STRATA_TRY(strata_model_check_report(model, "place", "place", part != STRATA_PART_PREDICTION, &batch, err));
    if (replica < 0 || replica >= model->strategy->n_replicas)
        return strata_fail(err, STRATA_INVALID, "place: replica is %d; there are %d", replica, model->strategy->n_replicas);
    if (n_others < 0 || n_others > MOST_OTHERS || part < STRATA_PART_TRAINING || part > STRATA_PART_PREDICTION)
        return strata_fail(err, STRATA_INVALID, "place: part is %d, with %d other devices; a part is 0..2, devices are 0..%d",
                           (int)part, n_others, MOST_OTHERS);
    strata_step s;
    STRATA_TRY(strata_model_build_step(model, program_of(part), batch, replica, NULL, &s, err));
    const strata_status status = strata_executable_place(model->replicas[replica].device, s.outputs, s.n_outputs, s.updates,
                                                         s.n_updates, collect, &c, err);
    strata_graph_destroy(s.graph);
    if (status) strata_model_places_finish(out_places);
    return status;
}

void strata_model_places_finish(strata_model_places *places) {
    if (!places) return;
    free(places->nodes);
    *places = (strata_model_places){0};
}
