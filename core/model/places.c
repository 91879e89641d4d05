/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which device runs each node of a model's programs, and which other devices could run it: the rows of a placement
 * report. */
#include <stdio.h>
#include <stdlib.h>

#include "core/model/data.h"
#include "strata/summary.h"

enum { DEFAULT_BATCH = 32, MOST_OTHERS = 32 };

typedef struct collector {
    strata_model_places *places;
    int capacity;
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
    if (places->n_nodes == c->capacity) {
        const int capacity = c->capacity ? 2 * c->capacity : 64;
        strata_node_place *nodes = realloc(places->nodes, (size_t)capacity * sizeof *nodes);
        if (!nodes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "places: no host memory for %d nodes", capacity);
        places->nodes = nodes;
        c->capacity = capacity;
    }
    strata_node_place *row = &places->nodes[places->n_nodes++];
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
    static const strata_program_kind kinds[] = {[STRATA_PART_TRAINING] = STRATA_PROGRAM_TRAIN,
                                                [STRATA_PART_EVALUATION] = STRATA_PROGRAM_EVALUATE,
                                                [STRATA_PART_PREDICTION] = STRATA_PROGRAM_PREDICT};
    collector c = {.places = out_places, .others = others, .n_others = n_others};
    *out_places = (strata_model_places){0};
    STRATA_TRY(part == STRATA_PART_PREDICTION ? strata_model_check_built(model, "place", err)
                                              : strata_model_check_compiled(model, "place", err));
    if (batch < 0) return strata_fail(err, STRATA_INVALID, "place: batch is %lld; it must be at least 1", (long long)batch);
    if (replica < 0 || replica >= model->strategy->n_replicas)
        return strata_fail(err, STRATA_INVALID, "place: replica is %d; there are %d", replica, model->strategy->n_replicas);
    if (n_others < 0 || n_others > MOST_OTHERS || part < STRATA_PART_TRAINING || part > STRATA_PART_PREDICTION)
        return strata_fail(err, STRATA_INVALID, "place: part is %d, with %d other devices; a part is 0..2, devices are 0..%d",
                           (int)part, n_others, MOST_OTHERS);
    const strata_status status =
        strata_model_visit(model, kinds[part], replica, batch ? batch : DEFAULT_BATCH, collect, &c, err);
    if (status) strata_model_places_finish(out_places);
    return status;
}

void strata_model_places_finish(strata_model_places *places) {
    if (!places) return;
    free(places->nodes);
    *places = (strata_model_places){0};
}
