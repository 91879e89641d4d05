/* SPDX-License-Identifier: Apache-2.0
 *
 * A small lowering, of additions and products of f32 without calls, until the whole one takes its place. */
#include "core/frontend/pjrt/lower.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "strata/ops.h"

static strata_status shape_of(const strata_program *program, int value, strata_shape *out, strata_error *err) {
    const strata_program_type *type = &program->types[program->values[value]];
    strata_dtype dtype;
    if (type->kind != STRATA_PROGRAM_TYPE_TENSOR || type->rank > STRATA_MAX_RANK)
        return strata_fail(err, STRATA_UNSUPPORTED, "a value is no tensor of at most %d dimensions", STRATA_MAX_RANK);
    STRATA_TRY(strata_lower_dtype(&program->types[type->element], &dtype, err));
    *out = (strata_shape){.rank = type->rank};
    for (int d = 0; d < type->rank; d++) out->dims[d] = type->dims[d];
    return strata_shape_check(*out, err);
}

strata_status strata_lower_dtype(const strata_program_type *element, strata_dtype *out, strata_error *err) {
    *out = STRATA_DTYPE_F32;
    if (element->name && !strcmp(element->name, "f32")) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED, "elements of the type %s", element->name ? element->name : "that is no scalar");
}

static strata_tensor *constant(const strata_program *program, const strata_program_op *op, strata_graph *graph,
                               strata_shape shape) {
    const strata_program_attribute *value = strata_program_find(program, op, "value");
    const size_t bytes = (size_t)strata_shape_elements(shape) * sizeof(float);
    float splat;
    if (value && value->is_splat && value->n_bytes == sizeof splat) {
        memcpy(&splat, value->data, sizeof splat);
        return strata_broadcast_to(strata_scalar(graph, STRATA_DTYPE_F32, (double)splat), shape);
    }
    if (!value || value->n_bytes != bytes) return strata_graph_fail(graph, STRATA_DATA, "a constant has not all elements");
    STRATA_FREED float *copy = strata_zeroed(bytes, 1);
    if (!copy) return strata_graph_fail(graph, STRATA_OUT_OF_MEMORY, "no host memory for a constant");
    memcpy(copy, value->data, bytes);
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, shape, copy);
    return strata_constant(graph, &array);
}

static strata_tensor *lower_op(const strata_program *program, const strata_program_op *op, strata_graph *graph,
                               strata_tensor *const *values, strata_shape shape) {
    strata_tensor *a = op->n_operands > 0 ? values[op->operands[0]] : NULL,
                  *b = op->n_operands > 1 ? values[op->operands[1]] : NULL;
    if (!strcmp(op->name, "constant")) return constant(program, op, graph, shape);
    if (!strcmp(op->name, "add") && a && b) return strata_add(a, b);
    if (!strcmp(op->name, "multiply") && a && b) return strata_mul(a, b);
    if (!strcmp(op->name, "broadcast_in_dim") && a && !strata_tensor_shape(a).rank) return strata_broadcast_to(a, shape);
    return strata_graph_fail(graph, STRATA_UNSUPPORTED, "the operation %s.%s is not lowered", op->dialect, op->name);
}

static void read_aliases(const strata_program *program, const strata_program_op *func, strata_lowered *out) {
    const strata_program_attribute *all = strata_program_find(program, func, "arg_attrs");
    for (int i = 0; i < out->n_inputs; i++) {
        out->aliases[i] = -1;
        if (!all || i >= all->n_items) continue;
        const strata_program_attribute *own = &program->attributes[all->items[i]];
        for (int k = 0; k + 1 < own->n_items; k += 2) {
            const char *name = program->attributes[own->items[k]].text;
            if (name && !strcmp(name, "tf.aliasing_output"))
                out->aliases[i] = (int)program->attributes[own->items[k + 1]].integer;
        }
    }
}

static strata_status lower_main(const strata_program *program, const strata_program_op *func, strata_lowered *out,
                                strata_error *err) {
    const strata_program_block *block = &func->regions[0].blocks[0];
    STRATA_FREED strata_tensor **values = strata_zeroed((size_t)program->n_values, sizeof(strata_tensor *));
    STRATA_TRY(strata_graph_create(&out->graph, err));
    out->n_inputs = block->n_arguments;
    out->inputs = strata_zeroed((size_t)out->n_inputs, sizeof *out->inputs);
    out->aliases = strata_zeroed((size_t)out->n_inputs, sizeof *out->aliases);
    if (!values || !out->inputs || !out->aliases) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a graph");
    read_aliases(program, func, out);
    for (int i = 0; i < out->n_inputs; i++) {
        char name[12];
        strata_shape shape;
        snprintf(name, sizeof name, "%d", i);
        STRATA_TRY(shape_of(program, block->arguments[i], &shape, err));
        values[block->arguments[i]] = out->inputs[i] = strata_input(out->graph, name, STRATA_DTYPE_F32, shape);
    }
    for (int k = 0; k < block->n_ops; k++) {
        const strata_program_op *op = &program->ops[block->ops[k]];
        if (!strcmp(op->name, "return")) {
            out->n_outputs = op->n_operands;
            out->outputs = strata_zeroed((size_t)op->n_operands, sizeof *out->outputs);
            for (int i = 0; out->outputs && i < op->n_operands; i++) out->outputs[i] = values[op->operands[i]];
            continue;
        }
        strata_shape shape = {0};
        if (op->n_results == 1) STRATA_TRY(shape_of(program, op->results[0], &shape, err));
        strata_tensor *result = lower_op(program, op, out->graph, values, shape);
        if (op->n_results == 1) values[op->results[0]] = result;
    }
    return strata_graph_check(out->graph, err);
}

strata_status strata_lower(const strata_program *program, strata_lowered *out, strata_error *err) {
    *out = (strata_lowered){0};
    for (int i = 0; i < program->n_ops; i++) {
        const strata_program_op *op = &program->ops[i];
        const strata_program_attribute *name = strata_program_find(program, op, "sym_name");
        if (strcmp(op->name, "func") || !name || !name->text || strcmp(name->text, "main") || !op->n_regions) continue;
        const strata_status status = lower_main(program, op, out, err);
        if (status) strata_lowered_finish(out);
        return status;
    }
    return strata_fail(err, STRATA_DATA, "the program has no function main");
}

void strata_lowered_finish(strata_lowered *lowered) {
    strata_graph_destroy(lowered->graph);
    free(lowered->inputs);
    free(lowered->outputs);
    free(lowered->aliases);
    *lowered = (strata_lowered){0};
}
