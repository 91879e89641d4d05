/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's summary. It is computed from the graphs of a prediction and of a training step, so it describes what runs, and no
 * formula is written twice. */
#include "strata/summary.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/build.h"
#include "core/model/data.h"

enum { DEFAULT_BATCH = 32 };

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

strata_status strata_model_summarize(strata_model *model, int64_t batch, strata_model_summary *out_summary, strata_error *err) {
    *out_summary = (strata_model_summary){.batch = batch ? batch : DEFAULT_BATCH, .n_layers = strata_model_n_calls(model)};
    STRATA_TRY(strata_model_check_built(model, "summarize", err));
    if (batch < 0) return strata_fail(err, STRATA_INVALID, "summarize: batch is %lld; it must be at least 1", (long long)batch);
    strata_layer_cost *costs = calloc((size_t)out_summary->n_layers, sizeof *costs);
    out_summary->layers = calloc((size_t)out_summary->n_layers, sizeof *out_summary->layers);
    strata_program_cost forward, step = {0};
    strata_status status = STRATA_OK;
    if (!costs || !out_summary->layers)
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "summarize: no host memory for %d layers", out_summary->n_layers);
    if (!status) status = strata_model_measure(model, STRATA_PROGRAM_PREDICT, out_summary->batch, costs, &forward, err);
    if (!status && model->trains)
        status = strata_model_measure(model, STRATA_PROGRAM_TRAIN, out_summary->batch, NULL, &step, err);
    if (!status) {
        fill_layers(model, costs, out_summary);
        out_summary->step_flops = step.flops;
        out_summary->step_bytes = step.moved_bytes;
        out_summary->step_memory_bytes = step.device_bytes;
    } else {
        strata_model_summary_finish(out_summary);
    }
    free(costs);
    return status;
}

void strata_model_summary_finish(strata_model_summary *summary) {
    if (!summary) return;
    free(summary->layers);
    *summary = (strata_model_summary){0};
}
