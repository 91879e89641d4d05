/* SPDX-License-Identifier: Apache-2.0
 *
 * The placement rule of each op. Every instance of the conformance tables is computed whole, and then divided by the
 * partitioner: each dimension of each operand in two and in three uneven parts, alone, and with all other operands that its
 * rule divides together with it. Operands are also placed at one coordinate, alone and together. The references compute the
 * parts, so the results differ only by the order of sums. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/partition.h"
#include "core/op/ops.h"
#include "tests/conformance/case.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"
#include "tests/support/parts.h"

enum { MOST_PARTS = 3, MOST_ELEMENTS = 4000, MOST_UPDATES = 24 };
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* One node with its operands, whole and in parts. */
typedef struct trial {
    const op_row *row;
    const case_instance *instance;
    strata_dtype dtype;
    strata_graph *graph;
    strata_tensor *leaves[CASE_INPUTS], *output;
    strata_array values[CASE_INPUTS];
    strata_variable variables[CASE_INPUTS];
    strata_mesh mesh;
    strata_placement placements[CASE_INPUTS], result;
    /* The variable of each device's part. */
    strata_variable parts[CASE_INPUTS][MOST_PARTS];
    int64_t lengths[2 * CASE_INPUTS + 2][MOST_PARTS];
} trial;

static void begin(trial *t) {
    strata_tensor *x[CASE_INPUTS];
    OK(strata_graph_create(&t->graph, &err));
    for (int i = 0; i < t->row->n_operands; i++) {
        const case_operand *operand = &t->row->operands[i];
        const strata_dtype own = operand->dtype ? (strata_dtype)(operand->dtype - 1) : t->dtype;
        t->values[i] = case_operand_value(operand, own, t->instance->shapes[i], 77 + (uint64_t)i);
        static const char *const names[CASE_INPUTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
        t->variables[i] = strata_test_variable(names[i], own, t->values[i].shape);
        x[i] = operand->variable ? strata_variable_read(t->graph, &t->variables[i])
                                 : strata_input(t->graph, names[i], own, t->values[i].shape);
        t->leaves[i] = x[i];
    }
    t->output = t->row->build ? t->row->build(x, t->instance->p, t->dtype)
                              : strata_node(NULL, t->row->generic, t->row->n_operands, x, NULL);
    cr_assert_eq(strata_graph_check(t->graph, &err), STRATA_OK, "%s: %s", t->row->op, err.message);
}

static void end(trial *t) {
    for (int i = 0; i < t->row->n_operands; i++) strata_array_finish(&t->values[i]);
    strata_graph_destroy(t->graph);
}

static int operand_of(const trial *t, const strata_tensor *leaf) {
    for (int i = 0; i < t->row->n_operands; i++)
        if (t->leaves[i] == leaf) return i;
    return -1;
}

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    static const strata_placement whole = {0};
    const trial *t = user;
    const int i = operand_of(t, leaf);
    return i < 0 ? &whole : &t->placements[i];
}

static strata_variable *variable_of(void *user, strata_variable *whole, int device) {
    trial *t = user;
    const int i = (int)(whole - t->variables);
    t->parts[i][device] = strata_test_variable(whole->name, whole->dtype,
                                               strata_placement_part(&t->mesh, &t->placements[i], whole->shape, device, NULL));
    return &t->parts[i][device];
}

static void assert_same(const trial *t, const strata_array *got, const strata_array *want, const char *what) {
    /* A sum in parts is rounded once more for each part, and where its terms cancel, relative to the terms. */
    strata_test_tolerance tolerance = strata_test_tolerance_of(want->dtype, (t->instance->terms ? t->instance->terms : 1) + 8);
    tolerance.absolute += (want->dtype == STRATA_DTYPE_F32 ? 4 : 32) * tolerance.relative;
    const strata_test_result same =
        strata_dtype_is_float(want->dtype) ? strata_test_compare(got, want, tolerance) : strata_test_same(got, want);
    char placements[1024] = "";
    for (int i = 0; i < t->row->n_operands; i++)
        snprintf(placements + strlen(placements), sizeof placements - strlen(placements), " %s",
                 strata_placement_text(&t->mesh, &t->placements[i], t->leaves[i]->shape).text);
    cr_assert(same.ok, "%s %s, %s, operands%s: %s", t->row->op, t->row->variant ? t->row->variant : "", what, placements,
              same.text);
}

/* Evaluates the parts and compares them with the whole results. after: the variables after the whole graph ran. */
static void check_parts(trial *t, const strata_partition *partition, const strata_array *want, const strata_array *after) {
    const int n = partition->n_devices, n_operands = t->row->n_operands;
    strata_array values[MOST_PARTS][CASE_INPUTS], got[MOST_PARTS][MOST_UPDATES];
    strata_test_feed feeds[MOST_PARTS][CASE_INPUTS];
    strata_test_part parts[MOST_PARTS];
    strata_tensor *results[MOST_PARTS][MOST_UPDATES];
    for (int d = 0; d < n; d++) {
        int n_feeds = 0;
        strata_graph *graph = partition->parts[d].graph;
        for (int i = 0; i < n_operands; i++) {
            values[d][i] = strata_test_part_of(&t->mesh, &t->placements[i], &t->values[i], d);
            const void *leaf = &t->parts[i][d];
            for (int k = 0; k < graph->n_nodes && !t->row->operands[i].variable; k++)
                if (graph->nodes[k]->op == &strata_op_input &&
                    !strcmp(strata_tensor_name(graph->nodes[k]), strata_tensor_name(t->leaves[i])))
                    leaf = graph->nodes[k];
            feeds[d][n_feeds++] = (strata_test_feed){leaf, &values[d][i]};
        }
        const strata_device_part *part = &partition->parts[d];
        const int n_outputs = !t->row->operands[0].variable;
        cr_assert_leq(part->n_updates, MOST_UPDATES - 1);
        if (n_outputs) results[d][0] = part->outputs[0];
        if (part->n_updates) memcpy(results[d] + n_outputs, part->updates, (size_t)part->n_updates * sizeof(*results[d]));
        parts[d] = (strata_test_part){results[d], n_outputs + part->n_updates, feeds[d], n_feeds, got[d], NULL, NULL};
    }
    cr_assert_eq(strata_test_eval_parts(parts, n, &err), STRATA_OK, "%s: %s", t->row->op, err.message);
    for (int d = 0; d < n; d++) {
        for (int i = 0; i < n_operands; i++) {
            if (t->row->operands[i].variable && strata_placement_has(&t->mesh, &t->placements[i], d)) {
                strata_array part = strata_test_part_of(&t->mesh, &t->placements[i], &after[i], d);
                assert_same(t, &values[d][i], &part, "a variable");
                strata_array_finish(&part);
            }
            strata_array_finish(&values[d][i]);
        }
        if (!t->row->operands[0].variable) assert_same(t, &got[d][0], want, "the result");
        for (int i = 0; i < parts[d].n_outputs; i++) strata_array_finish(&got[d][i]);
    }
}

/* Partitions the node with the placements of the trial. */
static void check_division(trial *t) {
    strata_partition *partition = NULL;
    const bool updates = t->row->operands[0].variable;
    const strata_partition_options opts = {.mesh = &t->mesh,
                                           .place = place,
                                           .variable = variable_of,
                                           .user = t,
                                           .outputs = &t->output,
                                           .n_outputs = !updates,
                                           .updates = &t->output,
                                           .n_updates = updates};
    const strata_status status = strata_partition_create(&opts, &partition, &err);
    if (updates && status == STRATA_UNSUPPORTED) return;
    cr_assert_eq(status, STRATA_OK, "%s: %s", t->row->op, err.message);
    strata_array want, after[CASE_INPUTS];
    strata_test_feed feeds[CASE_INPUTS];
    for (int i = 0; i < t->row->n_operands; i++) {
        OK(strata_array_create(t->values[i].dtype, t->values[i].shape, &after[i], &err));
        memcpy(after[i].data, t->values[i].data, strata_array_bytes(&after[i]));
        feeds[i] = (strata_test_feed){t->row->operands[i].variable ? (const void *)&t->variables[i] : t->leaves[i], &after[i]};
    }
    OK(strata_test_eval(&t->output, 1, feeds, t->row->n_operands, &want, &err));
    check_parts(t, partition, &want, after);
    for (int i = 0; i < t->row->n_operands; i++) strata_array_finish(&after[i]);
    strata_array_finish(&want);
    strata_partition_destroy(partition);
}

/* Uneven lengths that add up to n: of 7 in 3 parts 1, 4 and 2; the first part of few elements is empty. */
static void set_lengths(int64_t *lengths, int parts, int64_t n, int64_t unit) {
    const int64_t units = n / unit;
    lengths[0] = units / (parts + 2);
    lengths[parts - 1] = (units - lengths[0]) / parts;
    if (parts == 3) lengths[1] = units - lengths[0] - lengths[2];
    if (parts == 2) lengths[1] = units - lengths[0];
    for (int p = 0; p < parts; p++) lengths[p] *= unit;
}

/* Whether the node's operands are the leaves themselves. Some rows build several nodes. */
static bool takes_leaves(const trial *t) {
    bool same = t->output->n_inputs == t->row->n_operands;
    for (int i = 0; i < t->row->n_operands && same; i++) same = t->output->inputs[i] == t->leaves[i];
    return same;
}

/* Divides dimension dim of operand i, and, with `together`, all dimensions that have the same factor. */
static void check_dimension(trial *t, int i, int dim, int parts, bool together) {
    strata_factor_dims inputs[CASE_INPUTS];
    strata_factors factors = {.inputs = inputs};
    int used = 0;
    memset(t->placements, 0, sizeof t->placements);
    t->mesh = (strata_mesh){.n_axes = 1, .axes = {{"a", parts}}};
    if (together && takes_leaves(t)) {
        strata_factors_of(t->output, false, &factors);
        const int factor = inputs[i].factor[dim];
        if (factor < 0) return;
        for (int k = 0; k < t->row->n_operands; k++)
            for (int d = 0; d < t->leaves[k]->shape.rank; d++)
                if (inputs[k].factor[d] == factor) {
                    set_lengths(t->lengths[used], parts, t->leaves[k]->shape.dims[d], inputs[k].unit[d]);
                    t->placements[k].dims[d] = (strata_dim_split){.n_axes = 1, .axes = {0}, .lengths = t->lengths[used++]};
                }
    } else if (together) {
        return;
    } else {
        set_lengths(t->lengths[0], parts, t->leaves[i]->shape.dims[dim], 1);
        t->placements[i].dims[dim] = (strata_dim_split){.n_axes = 1, .axes = {0}, .lengths = t->lengths[0]};
    }
    check_division(t);
}

/* Operands at the last of two coordinates: operand i alone, or all, or, for i < 0, all that are variables, whose update is then
 * made there. */
static void check_coordinate(trial *t, int i) {
    memset(t->placements, 0, sizeof t->placements);
    t->mesh = (strata_mesh){.n_axes = 1, .axes = {{"a", 2}}};
    for (int k = 0; k < t->row->n_operands; k++) {
        const bool there = i < 0 ? t->row->operands[k].variable : i == t->row->n_operands || k == i;
        if (there) t->placements[k] = strata_placement_at(t->placements[k], 0, 1);
    }
    check_division(t);
}

static void check_row(const op_row *row) {
    const int most = row->n_instances < 12 ? row->n_instances : 12;
    for (int k = 0; k < most; k++) {
        trial t = {.row = row, .instance = &row->instances[k * row->n_instances / most]};
        bool small = true;
        while (!(row->dtypes >> t.dtype & 1)) t.dtype++;
        for (int i = 0; i < row->n_operands; i++) small &= strata_shape_elements(t.instance->shapes[i]) <= MOST_ELEMENTS;
        if (!small) continue;
        begin(&t);
        for (int i = 0; i < row->n_operands; i++)
            for (int d = 0; d < t.leaves[i]->shape.rank; d++)
                for (int parts = 2; parts <= MOST_PARTS; parts++)
                    for (int together = 0; together < 2; together++) check_dimension(&t, i, d, parts, together);
        for (int i = -1; i <= row->n_operands; i++) check_coordinate(&t, i);
        end(&t);
    }
}

Test(placement, each_dimension_of_each_op_can_be_divided) {
    for (int i = 0; case_tables[i]; i++)
        for (int r = 0; r < case_tables[i]->n_rows; r++) check_row(&case_tables[i]->rows[r]);
}
