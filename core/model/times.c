/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a training step: each kind of node of the compiled step by itself, and whole steps. The examples are random numbers,
 * and the learning rate is 0, so that the loss stays finite. */
#include <stdio.h>

#include "core/graph/graph.h"
#include "core/model/data.h"
#include "core/model/loop.h"
#include "core/op/epilogue.h"
#include "core/run/bench.h"

enum { OP_BYTES = sizeof(((strata_node_times *)0)->op) };

/* ---- whole steps ---- */

static void fill_slot(const strata_model *model, const strata_program_part *part, int slot) {
    strata_executable *exe = part->executable;
    strata_run_numbers numbers = strata_run_numbers_of(model, 1, 1);
    numbers.words[STRATA_STEP_LEARNING_RATE] = numbers.words[STRATA_STEP_PLAIN_RATE] = 0;
    strata_run_write_numbers(&numbers, part, slot, 0, part->n);
    for (int k = 0; k < model->n_inputs; k++) {
        float *x = strata_executable_input(exe, slot, part->x[k]);
        const bool floats = x && model->inputs[k].dtype == STRATA_DTYPE_F32;
        const int64_t n = floats ? part->n * strata_shape_elements(model->inputs[k].shape) : 0;
        for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 7919 % 251) / 251;
    }
}

static strata_status fill_slots(const strata_model *model, const strata_model_program *program, strata_error *err) {
    for (int i = 0; i < strata_group_n_slots(program->group); i++) {
        int slot = 0;
        STRATA_TRY(strata_group_acquire(program->group, &slot, err));
        fill_slot(model, &program->parts[0], slot);
    }
    return STRATA_OK;
}

static strata_status run_steps(void *context, int n, strata_error *err) {
    strata_group *group = context;
    int slot = 0;
    for (int i = 0; i < n; i++) {
        STRATA_TRY(strata_group_acquire(group, &slot, err));
        STRATA_TRY(strata_group_start(group, slot, i, err));
        STRATA_TRY(strata_group_finish(group, slot, NULL, err));
    }
    return strata_group_wait(group, slot, err);
}

/* ---- kinds of nodes ---- */

/* Writes the op with its integer attributes that are not 0, for example "matmul transpose_b=1 bias relu". */
static void describe(const strata_tensor *node, char out[OP_BYTES]) {
    static const char *const activations[] = {"", " relu", " tanh", " sigmoid"};
    static const char *const aux_forms[] = {"", " relu_grad", " tanh_grad", " sigmoid_grad", " add"};
    const strata_epilogue *epilogue = strata_epilogue_of(node);
    const char *attrs = node->attrs;
    int used = snprintf(out, OP_BYTES, "%s", node->op->name);
    for (const strata_attr_field *field = node->op->attrs; field->name && used < OP_BYTES; field++) {
        const bool folded =
            epilogue && field->offset >= node->op->epilogue && field->offset < node->op->epilogue + sizeof *epilogue;
        int64_t value = 0;
        if (field->kind == STRATA_ATTR_INT && !folded) memcpy(&value, attrs + field->offset, sizeof value);
        if (value) used += snprintf(out + used, (size_t)(OP_BYTES - used), " %s=%lld", field->name, (long long)value);
    }
    if (epilogue && used < OP_BYTES)
        snprintf(out + used, (size_t)(OP_BYTES - used), "%s%s%s", epilogue->has_bias ? " bias" : "",
                 activations[epilogue->activation], aux_forms[epilogue->aux]);
}

static bool same_type(const strata_tensor *a, const strata_tensor *b) {
    return a->dtype == b->dtype && strata_shape_equal(a->shape, b->shape);
}

static bool alike(const strata_tensor *a, const strata_tensor *b) {
    char of_a[OP_BYTES], of_b[OP_BYTES];
    if (a->op != b->op || a->n_inputs != b->n_inputs || !same_type(a, b)) return false;
    for (int i = 0; i < a->n_inputs; i++)
        if (!same_type(a->inputs[i], b->inputs[i])) return false;
    describe(a, of_a);
    describe(b, of_b);
    return !strcmp(of_a, of_b);
}

/* The row for nodes of the same kind as node `index`; times->n_nodes if it is the first node of its kind. first[r]: the
 * index of the first node of the kind of row r. */
static int row_of(const strata_executable *exe, int index, const int *first, const strata_step_times *times) {
    const strata_tensor *node = strata_executable_get_node(exe, index).node;
    int k = 0;
    while (k < times->n_nodes && !alike(node, strata_executable_get_node(exe, first[k]).node)) k++;
    return k;
}

/* Adds the cost that the device reports for node `index` to the row of its kind. */
static strata_status add_device_cost(const strata_executable *exe, int index, strata_node_times *row, strata_error *err) {
    strata_device_cost cost;
    STRATA_TRY(strata_executable_device_cost(exe, index, &cost, err));
    const double cycles = row->cycles + cost.cycles;
    if (cycles > 0) row->utilisation = (row->utilisation * row->cycles + cost.utilisation * cost.cycles) / cycles;
    row->cycles = cycles;
    row->device_bytes += cost.bytes;
    return STRATA_OK;
}

static strata_status time_node(const strata_executable *exe, int index, strata_node_times *out, strata_error *err) {
    const strata_tensor *node = strata_executable_get_node(exe, index).node;
    *out = (strata_node_times){.dtype = node->dtype,
                               .output = node->shape,
                               .count = 1,
                               .flops = strata_node_flops(node),
                               .bytes = strata_node_moved_bytes(node)};
    describe(node, out->op);
    const strata_status status = strata_executable_time_node(exe, index, &out->us, err);
    if (status != STRATA_OUT_OF_MEMORY && status != STRATA_UNSUPPORTED) return status;
    out->us = 0;
    return STRATA_OK;
}

static int by_share(const void *a, const void *b) {
    const strata_node_times *x = a, *y = b;
    const double of_x = x->us * x->count, of_y = y->us * y->count;
    return (of_x < of_y) - (of_x > of_y);
}

static strata_status time_nodes(const strata_executable *exe, strata_step_times *times, strata_error *err) {
    const int n = exe->plan.n_schedule;
    STRATA_FREED int *first = NULL;
    STRATA_TRY(STRATA_NEW(first, n, err, "no host memory for the times of %d nodes", n));
    STRATA_TRY(STRATA_NEW(times->nodes, n, err, "no host memory for the times of %d nodes", n));
    for (int i = 0; i < n; i++) {
        const int row = row_of(exe, i, first, times);
        if (row < times->n_nodes) {
            times->nodes[row].count++;
        } else {
            first[times->n_nodes] = i;
            STRATA_TRY(time_node(exe, i, &times->nodes[times->n_nodes++], err));
        }
        STRATA_TRY(add_device_cost(exe, i, &times->nodes[row], err));
    }
    qsort(times->nodes, (size_t)times->n_nodes, sizeof *times->nodes, by_share);
    for (int k = 0; k < times->n_nodes; k++) times->nodes_us += times->nodes[k].us * times->nodes[k].count;
    return STRATA_OK;
}

strata_status strata_model_time_step(strata_model *model, int64_t batch, strata_step_times *out_times, strata_error *err) {
    *out_times = (strata_step_times){0};
    STRATA_TRY(strata_model_check_report(model, "time a step of", "time a step", true, &batch, err));
    if (model->strategy->n_devices > 1 || strata_strategy_has_workers(model->strategy))
        return strata_fail(err, STRATA_UNSUPPORTED, "time a step: the model is on several devices; compile it for one");
    strata_model_program *program = NULL;
    STRATA_TRY(strata_model_get_program(model, STRATA_PROGRAM_TRAIN, batch, (strata_batch_form){0}, &program, err));
    STRATA_TRY(fill_slots(model, program, err));
    STRATA_TRY(strata_bench_fastest(run_steps, program->group, STRATA_BENCH_ROUNDS, &out_times->step_us, err));
    strata_device_cost cost;
    strata_status status = strata_executable_device_cost(program->parts[0].executable, -1, &cost, err);
    if (!status) {
        out_times->device_us = cost.seconds * 1e6;
        out_times->cycles = cost.cycles;
        out_times->device_bytes = cost.bytes;
        out_times->utilisation = cost.utilisation;
        out_times->work_bytes = cost.work_bytes;
        status = time_nodes(program->parts[0].executable, out_times, err);
    }
    if (status) strata_step_times_finish(out_times);
    return status;
}

void strata_step_times_finish(strata_step_times *times) {
    if (!times) return;
    free(times->nodes);
    *times = (strata_step_times){0};
}
