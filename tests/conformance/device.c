/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_check_device: compares every op of a device, in each dtype that it supports, with the op's reference, over the rows
 * of the conformance suite. All cases of a row are compiled as one program, which is faster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/ops.h"
#include "strata/conformance.h"
#include "strata/executable.h"
#include "tests/conformance/case.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

typedef struct checker {
    strata_device *device;
    /* [op * STRATA_DTYPE_COUNT + dtype] */
    strata_op_verdict *cells;
    /* How many kernels of the current program were found to be wrong, and the last of them. */
    int n_warnings;
    char warning[STRATA_ERROR_MESSAGE_BYTES];
} checker;

static strata_op_verdict *cell_of(const checker *c, const char *op, strata_dtype dtype) {
    for (int i = 0; i < strata_n_ops; i++)
        if (!strcmp(strata_ops[i]->name, op)) return &c->cells[i * STRATA_DTYPE_COUNT + (int)dtype];
    return NULL;
}

static void settle(const checker *c, const char *op, strata_dtype dtype, strata_verdict verdict, const char *why) {
    strata_op_verdict *place = cell_of(c, op, dtype);
    if (!place || verdict <= place->verdict) return;
    place->verdict = verdict;
    snprintf(place->why, sizeof place->why, "%s", why);
}

static void take_warning(const char *message, void *user) {
    checker *c = user;
    c->n_warnings++;
    snprintf(c->warning, sizeof c->warning, "%s", message);
}

/* ---- one program: the instances of a row in some dtypes ---- */

typedef struct program {
    const op_row *row;
    strata_graph *graph;
    int n, n_leaves; /* the number of outputs, and of leaves from which they are computed */
    strata_tensor **outputs;
    strata_dtype *dtypes;
    int64_t *terms;
    strata_array *values, *got, *want;
    strata_variable **variables;
    strata_test_feed *feeds;
    char (*names)[16];
} program;

static void finish(program *p) {
    for (int i = 0; p->values && i < p->n_leaves; i++) {
        strata_array_finish(&p->values[i]);
        strata_variable_destroy(p->variables[i]);
    }
    for (int i = 0; p->got && i < p->n; i++) {
        strata_array_finish(&p->got[i]);
        strata_array_finish(&p->want[i]);
    }
    strata_graph_destroy(p->graph);
    free(p->outputs);
    free(p->dtypes);
    free(p->terms);
    free(p->values);
    free(p->got);
    free(p->want);
    free(p->variables);
    free(p->feeds);
    free(p->names);
}

static strata_status add_instance(const checker *c, program *p, const case_instance *instance, strata_dtype dtype,
                                  strata_error *err) {
    const op_row *row = p->row;
    strata_tensor *x[CASE_INPUTS];
    for (int i = 0; i < row->n_operands; i++) {
        const case_operand *operand = &row->operands[i];
        const int leaf = p->n_leaves++;
        const strata_dtype own = operand->dtype ? (strata_dtype)(operand->dtype - 1) : dtype;
        p->values[leaf] = case_operand_value(operand, own, instance->shapes[i], 1000 + (uint64_t)i);
        snprintf(p->names[leaf], sizeof p->names[leaf], "x%d", leaf);
        if (operand->variable) {
            STRATA_TRY(strata_variable_create(c->device, p->names[leaf], own, p->values[leaf].shape, &p->variables[leaf], err));
            STRATA_TRY(strata_variable_set(p->variables[leaf], &p->values[leaf], err));
            x[i] = strata_variable_read(p->graph, p->variables[leaf]);
        } else {
            x[i] = strata_input(p->graph, p->names[leaf], own, p->values[leaf].shape);
        }
        p->feeds[leaf] = (strata_test_feed){operand->variable ? (const void *)p->variables[leaf] : x[i], &p->values[leaf]};
    }
    p->dtypes[p->n] = dtype;
    p->terms[p->n] = instance->terms ? instance->terms : 1;
    p->outputs[p->n++] =
        row->build ? row->build(x, instance->p, dtype) : strata_node(NULL, row->generic, row->n_operands, x, NULL);
    return strata_graph_check(p->graph, err);
}

static strata_status build(const checker *c, program *p, unsigned dtypes, strata_error *err) {
    const size_t most = (size_t)p->row->n_instances * STRATA_DTYPE_COUNT + 1, leaves = most * CASE_INPUTS;
    p->outputs = calloc(most, sizeof(*p->outputs));
    p->dtypes = calloc(most, sizeof *p->dtypes);
    p->terms = calloc(most, sizeof *p->terms);
    p->got = calloc(most, sizeof *p->got);
    p->want = calloc(most, sizeof *p->want);
    p->values = calloc(leaves, sizeof *p->values);
    p->variables = calloc(leaves, sizeof(*p->variables));
    p->feeds = calloc(leaves, sizeof *p->feeds);
    p->names = calloc(leaves, sizeof *p->names);
    if (!p->outputs || !p->dtypes || !p->terms || !p->got || !p->want || !p->values || !p->variables || !p->feeds || !p->names)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %zu cases", most);
    STRATA_TRY(strata_graph_create(&p->graph, err));
    for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
        for (int i = 0; i < p->row->n_instances && dtypes >> d & 1; i++)
            STRATA_TRY(add_instance(c, p, &p->row->instances[i], (strata_dtype)d, err));
    return STRATA_OK;
}

static strata_status run(const checker *c, program *p, strata_error *err) {
    strata_executable *exe = NULL;
    const strata_executable_options opts = {.no_fusion = true, .n_slots = 1};
    const bool updates = p->n_leaves > 0 && p->variables[0];
    const char **names = calloc((size_t)p->n_leaves + 1, sizeof *names);
    strata_array *inputs = calloc((size_t)p->n_leaves + 1, sizeof *inputs);
    strata_status status = STRATA_OK;
    int n = 0;
    if (!names || !inputs) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d operands", p->n_leaves);
    for (int i = 0; !status && i < p->n_leaves; i++) {
        if (p->variables[i]) continue;
        names[n] = p->names[i];
        inputs[n++] = p->values[i];
    }
    for (int i = 0; !status && i < p->n; i++)
        status = strata_array_create(p->outputs[i]->dtype, p->outputs[i]->shape, &p->got[i], err);
    if (!status)
        status = strata_executable_create(c->device, p->outputs, p->n, p->outputs, updates ? p->n : 0, &opts, &exe, err);
    if (!status) status = strata_executable_run(exe, names, inputs, n, p->got, p->n, err);
    strata_executable_destroy(exe);
    free(names);
    free(inputs);
    return status;
}

/* Runs a row in these dtypes. Fails with the device's error if the device refuses the whole program, which *why then
 * describes. */
static strata_status check_row(checker *c, const op_row *row, unsigned dtypes, strata_error *why) {
    program p = {.row = row};
    c->n_warnings = 0;
    strata_status status = build(c, &p, dtypes, why);
    if (!status && p.n) status = run(c, &p, why);
    if (!status && p.n) status = strata_test_eval(p.outputs, p.n, p.feeds, p.n_leaves, p.want, why);
    for (int i = 0; !status && i < p.n; i++) {
        const strata_test_result result =
            row->exact ? strata_test_same(&p.got[i], &p.want[i])
                       : strata_test_compare(&p.got[i], &p.want[i], strata_test_tolerance_of(p.want[i].dtype, p.terms[i]));
        settle(c, row->op, p.dtypes[i],
               !result.ok      ? STRATA_VERDICT_WRONG
               : c->n_warnings ? STRATA_VERDICT_REPLACED
                               : STRATA_VERDICT_RIGHT,
               !result.ok      ? result.text
               : c->n_warnings ? c->warning
                               : "");
    }
    finish(&p);
    return status;
}

/* If the program of all dtypes was refused, runs each dtype by itself to find which are. A dtype that the device does not have
 * is not an error. */
static void check_row_by_dtype(checker *c, const op_row *row, unsigned dtypes) {
    for (int d = 0; d < STRATA_DTYPE_COUNT; d++) {
        strata_error why = {0};
        if (!(dtypes >> d & 1) || !check_row(c, row, 1u << d, &why)) continue;
        const bool lacks = why.status == STRATA_UNSUPPORTED && !strstr(why.message, "wrongly");
        if (!lacks) settle(c, row->op, (strata_dtype)d, STRATA_VERDICT_REFUSED, why.message);
    }
}

strata_status strata_check_device(const char *id, void (*begin)(const char *op, void *user), void *user,
                                  strata_device_info *out_info, strata_op_verdict **out_verdicts, int *out_n_ops,
                                  strata_error *err) {
    checker c = {.cells = calloc((size_t)strata_n_ops * STRATA_DTYPE_COUNT, sizeof *c.cells)};
    const strata_device_options opts = {.no_tune = true, .check_again = true, .on_warning = take_warning, .user = &c};
    if (!c.cells) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for the verdicts", id);
    const strata_status status = strata_device_open(id, &opts, &c.device, err);
    if (status) {
        free(c.cells);
        return status;
    }
    for (int i = 0; i < strata_n_ops * STRATA_DTYPE_COUNT; i++) c.cells[i].op = strata_ops[i / STRATA_DTYPE_COUNT]->name;
    *out_info = *strata_device_get_info(c.device);
    for (const op_table *const *table = case_tables; *table; table++)
        for (int r = 0; r < (*table)->n_rows; r++) {
            const op_row *row = &(*table)->rows[r];
            const unsigned dtypes = row->dtypes & out_info->dtypes;
            strata_error why = {0};
            if (begin) begin(row->op, user);
            if (dtypes && check_row(&c, row, dtypes, &why)) check_row_by_dtype(&c, row, dtypes);
        }
    strata_device_close(c.device);
    *out_verdicts = c.cells;
    *out_n_ops = strata_n_ops;
    return STRATA_OK;
}
