/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the gradients of a model on some examples, for users to examine, by a program of the kind GRADIENTS on the first
 * replica. They are returned in the layout of the parameters. */
#include <stdlib.h>
#include <string.h>

#include "core/data/batches.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "core/run/executable.h"

/* Writes the examples to the program's inputs. Inputs that the program does not use are written to temporary memory. */
static strata_status fill(strata_model *model, const strata_dataset *dataset, const strata_model_feed *parts,
                          strata_executable *exe, int slot, int64_t n, strata_error *err) {
    strata_batches_options opts = {.batch = n};
    strata_batches *batches = NULL;
    void *x[STRATA_MAX_INPUTS] = {NULL}, *y[STRATA_MAX_OUTPUTS] = {NULL}, *unused[STRATA_MAX_INPUTS + STRATA_MAX_OUTPUTS];
    int64_t got = 0;
    int n_unused = 0;
    strata_model_batch_parts(model, dataset, parts, true, &opts);
    strata_status status = strata_batches_create(dataset, &opts, &batches, err);
    for (int i = 0; i < model->n_inputs && !status; i++) {
        const int index = strata_executable_input_index(exe, strata_slot_name("x", i).text);
        x[i] = index >= 0 ? strata_executable_input(exe, slot, index)
                          : (unused[n_unused++] = malloc((size_t)n * strata_input_bytes(&model->inputs[i])));
        if (!x[i]) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "gradients: no host memory for %lld examples", (long long)n);
    }
    for (int i = 0; i < model->n_outputs && !status; i++) {
        const int index = strata_executable_input_index(exe, strata_slot_name("y", i).text);
        y[i] = index >= 0 ? strata_executable_input(exe, slot, index)
                          : (unused[n_unused++] = malloc((size_t)n * strata_label_bytes(&model->outputs[i])));
        if (!y[i]) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "gradients: no host memory for %lld examples", (long long)n);
    }
    if (!status) status = strata_batches_next(batches, &got, err);
    if (!status && got < n)
        status = strata_fail(err, STRATA_INVALID, "gradients: n is %lld; the dataset has %lld examples", (long long)n,
                             (long long)got);
    if (!status) strata_batches_write(batches, 0, n, x, y);
    for (int i = 0; i < model->n_outputs && !status; i++)
        strata_model_convert_labels(&model->outputs[i], dataset, parts->targets[i], n, y[i]);
    for (int i = 0; i < n_unused; i++) free(unused[i]);
    strata_batches_destroy(batches);
    return status;
}

static strata_status run(strata_model *model, const strata_dataset *dataset, const strata_model_feed *parts,
                         strata_executable *exe, int64_t n, int *out_slot, strata_error *err) {
    float words[STRATA_STEP_WORDS] = {0};
    int32_t rng[STRATA_RNG_WORDS] = {0};
    STRATA_TRY(strata_executable_acquire(exe, out_slot, err));
    STRATA_TRY(fill(model, dataset, parts, exe, *out_slot, n, err));
    strata_model_step_words(model, model->optimizer_steps + 1, words);
    words[STRATA_STEP_SHARE] = words[STRATA_STEP_SCALE] = 1;
    const uint64_t seeds[] = {model->seed, (uint64_t)model->optimizer_steps + 1};
    memcpy(rng, seeds, sizeof seeds);
    strata_executable_feed(exe, *out_slot, "step", words, sizeof words);
    strata_executable_feed(exe, *out_slot, "rng", rng, sizeof rng);
    const int weights = strata_executable_input_index(exe, "weights");
    for (int64_t i = 0; i < n && weights >= 0; i++)
        ((float *)strata_executable_input(exe, *out_slot, weights))[i] = 1.0f / (float)n;
    STRATA_TRY(strata_executable_submit(exe, *out_slot, err));
    return strata_executable_wait(exe, *out_slot, err);
}

/* Copies all gradients from the program's outputs (strata_gradient_layout) to the flat range. */
static void take(const strata_model *model, const strata_step *step, const strata_executable *exe, int slot, float *flat) {
    const strata_parameter_set *set = &model->parameters;
    memset(flat, 0, (size_t)set->flat_size * sizeof *flat);
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
    STRATA_TRY(strata_model_check_dataset(model, dataset, true, "gradients", &parts, err));
    if (n < 1) return strata_fail(err, STRATA_INVALID, "gradients: n is %lld; it must be at least 1", (long long)n);
    for (int i = 0; i < set->n; i++)
        if (gradients[i].dtype != STRATA_DTYPE_F32 || !strata_shape_equal(gradients[i].shape, set->items[i].shape))
            return strata_fail(err, STRATA_INVALID, "gradients: array %d must be f32 %s, as %s is", i,
                               strata_shape_text(set->items[i].shape).text, set->items[i].name);
    float *flat = malloc((size_t)(set->flat_size + 1) * sizeof *flat);
    if (!flat) return strata_fail(err, STRATA_OUT_OF_MEMORY, "gradients: no host memory");
    const strata_status status = compute(model, dataset, &parts, n, flat, err);
    for (int i = 0; i < set->n && !status; i++) {
        const size_t bytes = (size_t)strata_shape_elements(set->items[i].shape) * sizeof *flat;
        if (set->items[i].state)
            memset(gradients[i].data, 0, bytes);
        else
            memcpy(gradients[i].data, flat + set->items[i].offset, bytes);
    }
    free(flat);
    return status;
}
