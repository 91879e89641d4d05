/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_model_lower: a training step as the text of a program. backends/pjrt/aot.c compiles it. */
#include "strata/ahead.h"

#include "backends/pjrt/lower.h"
#include "core/model/model.h"

strata_status strata_model_lower(strata_model *model, int64_t batch, int n_replicas, bool fast, char **out_text,
                                 size_t *out_n_bytes, strata_error *err) {
    strata_step step;
    pjrt_module module = {0};
    const pjrt_lower_options options = {.n_replicas = n_replicas, .fast = fast};
    STRATA_TRY(strata_model_build_step(model, STRATA_PROGRAM_TRAIN, batch, 0, NULL, &step, err));
    STRATA_OWNED(strata_graph) *graph = step.graph;
    const strata_status status = strata_pjrt_lower_graph(step.outputs, step.outputs[0] != step.scores, step.updates,
                                                         step.n_updates, options, &module, err);
    *out_text = module.text;
    *out_n_bytes = module.n_bytes;
    module.text = NULL;
    strata_pjrt_module_finish(&module);
    return status;
}
