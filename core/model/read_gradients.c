/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the gradients of a model on some examples, for users to examine, by a program of the kind GRADIENTS on the first
 * replica. They are returned in the layout of the parameters. */
#include "core/model/data.h"
#include "core/model/fit.h"
#include "core/model/parts.h"

/* Runs the executable on the first n examples. */
static strata_status run(strata_model *model, const strata_dataset *dataset, const strata_model_feed *parts,
                         strata_executable *exe, int64_t n, int *out_slot, strata_error *err) {
    strata_batches_options opts = {.batch = n};
    STRATA_OWNED(strata_batches) *batches = NULL;
    int64_t got = 0;
    strata_model_batch_parts(model, dataset, parts, true, &opts);
    STRATA_TRY(strata_batches_create(dataset, &opts, &batches, err));
    const strata_examined_step what = {.source = {.batches = batches, .dataset = dataset, .feed = parts},
                                       .n = n,
                                       .numbers = strata_run_numbers_of(model, model->optimizer_steps + 1, 1)};
    STRATA_TRY(strata_batches_next(batches, &got, err));
    if (got < n)
        return strata_fail(err, STRATA_INVALID, "gradients: n is %lld; the dataset has %lld examples", (long long)n,
                           (long long)got);
    return strata_model_examine(model, exe, &what, out_slot, err);
}

/* Copies all gradients from the program's outputs (strata_gradient_layout) to the flat range, which is 0. */
static void take(const strata_model *model, const strata_step *step, const strata_executable *exe, int slot, float *flat) {
    const strata_parameter_set *set = &model->parameters;
    for (int k = 0; k < set->n_blocks; k++)
        if (set->blocks[k].dense_end > set->blocks[k].begin)
            memcpy(flat + set->blocks[k].begin, strata_executable_output(exe, slot, 1 + k),
                   (size_t)(set->blocks[k].dense_end - set->blocks[k].begin) * sizeof *flat);
    for (int k = 0; k < step->layout.n_sparse; k++) {
        const struct strata_sparse_gradient *from = &step->layout.sparse[k];
        const strata_parameter_spec *p = &set->items[from->parameter];
        const int64_t row = strata_shape_elements(p->shape) / p->shape.dims[0];
        /* NULL: all rows, in order. */
        const int32_t *ids = from->ids >= 0 ? strata_executable_output(exe, slot, from->ids) : NULL;
        const float *rows = (const float *)strata_executable_output(exe, slot, 1 + from->block) + from->place;
        for (int64_t i = 0; i < from->n_ids; i++) {
            const int64_t id = ids ? ids[i] : i;
            for (int64_t e = 0; e < row && id >= 0; e++) flat[p->offset + id * row + e] += rows[i * row + e];
        }
    }
}

static strata_status compute(strata_model *model, const strata_dataset *dataset, const strata_model_feed *parts, int64_t n,
                             float *flat, strata_error *err) {
    const strata_step_options of = {.batch = n};
    const strata_executable_options opts = {.n_slots = 1};
    strata_step step;
    strata_executable *exe = NULL;
    int slot = 0;
    STRATA_TRY(strata_step_build(&step, model, STRATA_PROGRAM_GRADIENTS, &of, err));
    strata_status status =
        strata_executable_create(model->replicas[0].device, step.outputs, step.n_outputs, NULL, 0, &opts, &exe, err);
    if (!status) status = run(model, dataset, parts, exe, n, &slot, err);
    if (!status) take(model, &step, exe, slot, flat);
    strata_executable_destroy(exe);
    strata_graph_destroy(step.graph);
    return status;
}

strata_status strata_model_get_gradients(strata_model *model, const strata_dataset *dataset, int64_t n, strata_array *gradients,
                                         strata_error *err) {
    const strata_parameter_set *set = &model->parameters;
    strata_model_feed parts;
    STRATA_TRY(strata_model_check_compiled(model, "gradients", err));
    STRATA_TRY(strata_model_check_whole(model, "gradients", err));
    STRATA_TRY(strata_model_check_dataset(model, dataset, true, "gradients", &parts, err));
    if (n < 1) return strata_fail(err, STRATA_INVALID, "gradients: n is %lld; it must be at least 1", (long long)n);
    for (int i = 0; i < set->n; i++)
        if (gradients[i].dtype != STRATA_DTYPE_F32 || !strata_shape_equal(gradients[i].shape, set->items[i].shape))
            return strata_fail(err, STRATA_INVALID, "gradients: array %d must be f32 %s, as %s is", i,
                               strata_shape_text(set->items[i].shape).text, set->items[i].name);
    STRATA_FREED float *flat = NULL;
    STRATA_TRY(STRATA_NEW(flat, set->flat_size, err, "gradients: no host memory"));
    STRATA_TRY(compute(model, dataset, &parts, n, flat, err));
    for (int i = 0; i < set->n; i++) {
        const size_t bytes = (size_t)strata_shape_elements(set->items[i].shape) * sizeof *flat;
        if (set->items[i].state)
            memset(gradients[i].data, 0, bytes);
        else
            memcpy(gradients[i].data, flat + set->items[i].offset, bytes);
    }
    return STRATA_OK;
}
