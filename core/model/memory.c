/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists what is in memory at the moment when a model's program needs most memory. */
#include <stdio.h>
#include <stdlib.h>

#include "core/model/data.h"
#include "strata/summary.h"

enum { DEFAULT_BATCH = 32 };

static void copy_name(char out[64], const strata_tensor *node) {
    snprintf(out, 64, "%s", node->name ? node->name : "");
}

static strata_status collect(const strata_peak_value *value, void *user, strata_error *err) {
    strata_model_memory *memory = user;
    if (!(memory->n_values & (memory->n_values - 1))) { /* the number of values is a power of two: the array is full */
        const size_t capacity = memory->n_values ? 2 * (size_t)memory->n_values : 1;
        strata_value_memory *values = realloc(memory->values, capacity * sizeof *values);
        if (!values) return strata_fail(err, STRATA_OUT_OF_MEMORY, "memory: no host memory for %d values", memory->n_values);
        memory->values = values;
    }
    strata_value_memory *row = &memory->values[memory->n_values++];
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
    static const strata_program_kind kinds[] = {[STRATA_PART_TRAINING] = STRATA_PROGRAM_TRAIN,
                                                [STRATA_PART_EVALUATION] = STRATA_PROGRAM_EVALUATE,
                                                [STRATA_PART_PREDICTION] = STRATA_PROGRAM_PREDICT};
    *out_memory = (strata_model_memory){.at_op = ""};
    STRATA_TRY(part == STRATA_PART_PREDICTION ? strata_model_check_built(model, "memory", err)
                                              : strata_model_check_compiled(model, "memory", err));
    if (batch < 0) return strata_fail(err, STRATA_INVALID, "memory: batch is %lld; it must be at least 1", (long long)batch);
    if (part < STRATA_PART_TRAINING || part > STRATA_PART_PREDICTION)
        return strata_fail(err, STRATA_INVALID, "memory: part is %d; it is 0..2", (int)part);
    const int64_t flat = model->parameters.flat_size * (int64_t)sizeof(float);
    out_memory->parameter_bytes = flat;
    out_memory->slot_bytes = flat * strata_model_n_slots(model);
    out_memory->state_bytes = model->parameters.state_size * (int64_t)sizeof(float);
    const strata_status status =
        strata_model_visit_peak(model, kinds[part], batch ? batch : DEFAULT_BATCH, collect, out_memory, err);
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
