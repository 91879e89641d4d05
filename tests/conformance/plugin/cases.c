/* SPDX-License-Identifier: Apache-2.0
 *
 * The child's side of `strata plugin-check`: loads the plugin, opens a device, and compares each op that it claims with the
 * op's reference, over the rows of the conformance suite. */
#include "tests/conformance/plugin/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/plugin/plugin.h"
#include "core/op/ops.h"
#include "core/run/device.h"
#include "strata/executable.h"
#include "tests/conformance/plugin/witness.h"
#include "tests/support/eval.h"

enum { MOST_REASON = 1200, CASE_BYTES = 400 };

/* ---- units ---- */

static const op_row *row_of(int unit, strata_dtype *out_dtype) {
    int n = STRATA_CHECK_FIRST_ROW;
    for (const op_table *const *table = case_tables; *table; table++)
        for (int r = 0; r < (*table)->n_rows; r++)
            for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
                if ((*table)->rows[r].dtypes >> d & 1 && n++ == unit) {
                    *out_dtype = (strata_dtype)d;
                    return &(*table)->rows[r];
                }
    return NULL;
}

static int counts_unit(void) {
    int n = STRATA_CHECK_FIRST_ROW;
    strata_dtype dtype;
    while (row_of(n, &dtype)) n++;
    return n;
}

static int training_unit(void) {
    return counts_unit() + 1;
}

int strata_check_n_units(void) {
    return training_unit() + 1;
}

const char *strata_check_unit_op(int unit) {
    strata_dtype dtype;
    const op_row *row = unit < STRATA_CHECK_FIRST_ROW ? NULL : row_of(unit, &dtype);
    return row ? row->op : NULL;
}

void strata_check_unit_name(int unit, char *out_name, int bytes) {
    strata_dtype dtype;
    const op_row *row = unit < STRATA_CHECK_FIRST_ROW ? NULL : row_of(unit, &dtype);
    if (row)
        snprintf(out_name, (size_t)bytes, "%s %s%s%s", row->op, strata_dtype_name(dtype), row->variant ? ", " : "",
                 row->variant ? row->variant : "");
    else
        snprintf(out_name, (size_t)bytes, "%s",
                 unit == STRATA_CHECK_UNIT_OPEN     ? "opening"
                 : unit == STRATA_CHECK_UNIT_MEMORY ? "memory"
                 : unit == counts_unit()            ? "counts"
                                                    : "training");
}

/* ---- messages ---- */

static void send(const checker *c, strata_check_kind kind, int n, const char *text) {
    strata_check_message message = {.kind = kind, .unit = c->unit, .n = n};
    snprintf(message.text, sizeof message.text, "%s", text ? text : "");
    if (write(c->pipe, &message, sizeof message) != (ssize_t)sizeof message) _exit(1); /* the parent has ended */
}

/* ---- one case ---- */

/* The graph of an instance, the values of its leaves, and the results of the device and of the reference. The results are the
 * output, or, for an op that updates variables, these. */
typedef struct trial {
    const op_row *row;
    const case_instance *instance;
    const case_operand *operands;
    strata_dtype dtype;
    /* All sums are exact: the results must equal the reference's. */
    bool exact;
    strata_graph *graph;
    strata_tensor *x[CASE_INPUTS], *y;
    strata_array values[CASE_INPUTS], got[CASE_INPUTS], want[CASE_INPUTS], first[CASE_INPUTS], squares;
    strata_variable *variables[CASE_INPUTS];
    char names[CASE_INPUTS][16];
} trial;

/* A trial runs a program several times, with other values in between: results that are left over from an earlier run, or that
 * differ from run to run, are found by it. */
static const uint64_t run_seeds[] = {1000, 5000, 1000, 1000};
enum { N_RUNS = sizeof run_seeds / sizeof *run_seeds };

static strata_status build(const checker *c, trial *t, strata_error *err) {
    STRATA_TRY(strata_graph_create(&t->graph, err));
    for (int i = 0; i < t->row->n_operands; i++) {
        const case_operand *operand = &t->operands[i];
        const strata_dtype own = operand->dtype ? (strata_dtype)(operand->dtype - 1) : t->dtype;
        const strata_shape shape = t->instance->shapes[i];
        snprintf(t->names[i], sizeof t->names[i], "x%d", i);
        if (operand->variable) {
            STRATA_TRY(strata_variable_create(c->device, t->names[i], own, shape, &t->variables[i], err));
            t->x[i] = strata_variable_read(t->graph, t->variables[i]);
        } else {
            t->x[i] = strata_input(t->graph, t->names[i], own, shape);
        }
    }
    t->y = t->row->build ? t->row->build(t->x, t->instance->p, t->dtype)
                         : strata_node(NULL, t->row->generic, t->row->n_operands, t->x, NULL);
    return strata_graph_check(t->graph, err);
}

static strata_status set_values(trial *t, uint64_t seed, strata_error *err) {
    for (int i = 0; i < t->row->n_operands; i++) {
        strata_array_finish(&t->values[i]);
        t->values[i] = case_operand_value(&t->operands[i], t->x[i]->dtype, t->instance->shapes[i], seed + (uint64_t)i);
        if (t->variables[i]) STRATA_TRY(strata_variable_set(t->variables[i], &t->values[i], err));
    }
    return STRATA_OK;
}

static bool is_needed(const strata_tensor *root, const strata_tensor *node) {
    if (root == node) return true;
    for (int i = 0; i < root->n_inputs; i++)
        if (root->inputs[i]->id >= node->id && is_needed(root->inputs[i], node)) return true;
    return false;
}

/* Finds whether the device runs the tested op and every other node, and if not, its reason. If the case has no elements, the op
 * may be missing from its program, which then shows nothing about the claim. */
static strata_check_kind find_claim(const checker *c, const trial *t, char *reason) {
    strata_check_kind kind = STRATA_CHECK_RIGHT;
    bool there = false;
    for (int i = 0; i < t->graph->n_nodes; i++) {
        const strata_tensor *node = t->graph->nodes[i];
        const char *why = "without a reason";
        there |= !strcmp(node->op->name, t->row->op) && is_needed(t->y, node);
        if ((node->op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW)) && strcmp(node->op->name, t->row->op)) continue;
        if (node->op->flags & STRATA_OP_VIEW || !is_needed(t->y, node) || c->device->api->supports(c->device, node, &why))
            continue;
        snprintf(reason, MOST_REASON, "%s %s: %s", node->op->name, strata_shape_text(node->shape).text, why);
        if (!strcmp(node->op->name, t->row->op)) return STRATA_CHECK_NOT_CLAIMED;
        kind = STRATA_CHECK_BLOCKED;
    }
    if (there) return kind;
    *reason = '\0';
    return STRATA_CHECK_NOT_CLAIMED;
}

static strata_status create_program(const checker *c, trial *t, strata_executable **out_exe, strata_error *err) {
    const strata_executable_options opts = {.no_fusion = true, .n_slots = 2};
    /* For an op that updates a variable, the variable is compared instead of the output. */
    const int n_updates = t->variables[0] ? 1 : 0;
    return strata_executable_create(c->device, &t->y, 1 - n_updates, &t->y, n_updates, &opts, out_exe, err);
}

/* Runs the program with the values, and reads the results. */
static strata_status run_program(trial *t, strata_executable *exe, strata_error *err) {
    const char *names[CASE_INPUTS];
    strata_array inputs[CASE_INPUTS];
    int n = 0;
    for (int i = 0; i < t->row->n_operands; i++) {
        if (t->variables[i]) continue;
        names[n] = t->names[i];
        inputs[n++] = t->values[i];
    }
    for (int i = 0; i < CASE_INPUTS; i++) strata_array_finish(&t->got[i]);
    if (!t->variables[0]) {
        STRATA_TRY(strata_array_create(t->y->dtype, t->y->shape, &t->got[0], err));
        return strata_executable_run(exe, names, inputs, n, t->got, 1, err);
    }
    STRATA_TRY(strata_executable_run(exe, names, inputs, n, NULL, 0, err));
    for (int i = 0; i < t->row->n_operands; i++) {
        if (!t->variables[i]) continue;
        STRATA_TRY(strata_array_create(t->x[i]->dtype, t->x[i]->shape, &t->got[i], err));
        STRATA_TRY(strata_variable_get(t->variables[i], &t->got[i], err));
    }
    return STRATA_OK;
}

static strata_status evaluate(trial *t, strata_tensor *y, strata_array *out_value, strata_error *err) {
    strata_test_feed feeds[CASE_INPUTS];
    for (int i = 0; i < t->row->n_operands; i++)
        feeds[i] = (strata_test_feed){t->variables[i] ? (const void *)t->variables[i] : t->x[i], &t->values[i]};
    return strata_test_eval(&y, 1, feeds, t->row->n_operands, out_value, err);
}

/* Computes the results of the reference. */
static strata_status find_wanted(trial *t, strata_error *err) {
    strata_array y = {0};
    for (int i = 0; i < CASE_INPUTS; i++) strata_array_finish(&t->want[i]);
    STRATA_TRY(evaluate(t, t->y, t->variables[0] ? &y : &t->want[0], err));
    strata_array_finish(&y);
    for (int i = 0; i < t->row->n_operands; i++) { /* the reference has updated the values of the variables */
        if (!t->variables[i]) continue;
        t->want[i] = t->values[i];
        t->values[i] = (strata_array){0};
    }
    return STRATA_OK;
}

/* ---- sums ----
 * Let p_i be the n terms of a sum in f32, u = 2^-24, and s the sum. A device may add them in any order, also one after the
 * other. The partial sum of k terms is then about k mean(p) plus a random walk, and its addition has a rounding error of u /
 * sqrt(3) times it at most. The standard deviation of all errors together is
 *     u / sqrt(3) sqrt(sum of squared partial sums) <= u / sqrt(3) sqrt(c n (s^2 / 3 + c q / 2)),   q = sum of p_i^2
 * c is 1 if the terms are independent. If c terms that follow each other are equal, the walk has 1 / c as many steps, each c
 * times as long, and the c additions of a step have the same rounding error.
 * If operands of products are rounded with a relative error r, each p_i has an error of 2 r |p_i| at most. A rounding that is
 * biased changes s by 2 r |s| at most, and the rest of the errors add up like a random walk; together they are not above
 * 2 r sum of |p_i| <= 2 r sqrt(n q). q is what the op computes from squared operands, since these ops are linear in each. */

/* Errors of six standard deviations come once in 5 10^8 elements. */
static const double DEVIATIONS = 6;

static bool is_product(const char *op) {
    static const char *const products[] = {"matmul", "conv2d", "conv2d_input_grad", "conv2d_filter_grad"};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (!strcmp(products[i], op)) return true;
    return false;
}

static bool is_sum(const char *op) {
    static const char *const sums[] = {"reduce_sum",  "reduce_mean", "gather_grad",    "gather_mean",
                                       "segment_sum", "avg_pool2d",  "avg_pool2d_grad"};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (!strcmp(sums[i], op)) return true;
    return is_product(op);
}

/* Computes the op of squared operands. */
static strata_status find_squares(trial *t, strata_error *err) {
    for (int i = 0; i < t->row->n_operands; i++) {
        strata_array *value = &t->values[i];
        for (int64_t k = 0; strata_dtype_is_float(value->dtype) && k < strata_shape_elements(value->shape); k++) {
            const double x = strata_element_get(value->dtype, value->data, k);
            strata_element_set(value->dtype, value->data, k, x * x);
        }
    }
    /* The sum alone; an op that may be fused into it does not enlarge the error. */
    strata_tensor *sum = t->y;
    while (!is_sum(sum->op->name) && sum->n_inputs) sum = sum->inputs[0];
    return evaluate(t, sum, &t->squares, err);
}

/* c: how many terms of a sum may be equal. The gradient of a gather may be a tensor that is broadcast along the last axis of
 * the indices; then indices that are equal along this axis add the same element. */
static int64_t most_equal_terms(const trial *t) {
    const strata_array *indices = &t->values[1], *dy = &t->values[2];
    const int axis = (int)t->instance->p[0] + indices->shape.rank - 1; /* that of dy that is broadcast */
    if (strcmp(t->row->op, "gather_grad") != 0 || dy->shape.dims[axis] != 1) return 1;
    const int64_t n = indices->shape.dims[indices->shape.rank - 1], n_rows = strata_shape_elements(indices->shape) / n;
    int64_t most = 1;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < n; i++) {
            int64_t count = 0;
            for (int64_t k = 0; k < n; k++)
                count += strata_element_get(indices->dtype, indices->data, r * n + k) ==
                         strata_element_get(indices->dtype, indices->data, r * n + i);
            if (count > most) most = count;
        }
    return most;
}

static strata_test_result compare_sums(trial *t, double rounding) {
    const double n = (double)(t->instance->terms ? t->instance->terms : 1);
    strata_test_tolerance tolerance = strata_test_tolerance_of(t->want->dtype, (int64_t)n);
    const double absolute = tolerance.absolute;
    strata_error err = {0};
    strata_test_result result = strata_test_compare(t->got, t->want, tolerance);
    if (result.ok) return result;
    if (find_squares(t, &err)) return strata_test_bad("%s", err.message);
    const double c = (double)most_equal_terms(t);
    for (int64_t i = 0; i < strata_shape_elements(t->want->shape); i++) {
        const double got = strata_element_get(t->got->dtype, t->got->data, i);
        const double want = strata_element_get(t->want->dtype, t->want->data, i);
        const double q = fabs(strata_element_get(t->squares.dtype, t->squares.data, i));
        tolerance.absolute = absolute + DEVIATIONS * 0x1p-24 / sqrt(3) * sqrt(c * n * (want * want / 3 + c * q / 2)) +
                             2 * rounding * (1 + rounding) * fmin(fabs(want) + DEVIATIONS / sqrt(3) * sqrt(q), sqrt(n * q));
        if (!strata_test_close(got, want, tolerance))
            return strata_test_bad(
                "element %lld of %s differs by more than sums in f32%s may: got %.9g, expected %.9g, allowed "
                "%.3g",
                (long long)i, strata_shape_text(t->want->shape).text,
                rounding == 0        ? ""
                : rounding > 0x1p-10 ? " of operands rounded to bf16"
                                     : " of operands rounded to f16",
                got, want, tolerance.absolute);
    }
    return strata_test_ok();
}

/* ---- comparing ---- */

/* The relative error of the operands of products. */
static double rounding_of(const checker *c, const trial *t) {
    const strata_dtype rounded = c->device->product_dtype;
    if (!is_product(t->row->op) || t->dtype != STRATA_DTYPE_F32) return 0;
    return rounded == STRATA_DTYPE_F16 ? 0x1p-11 : rounded == STRATA_DTYPE_BF16 ? 0x1p-8 : 0;
}

/* Compares the results with those of the reference. */
static strata_test_result compare(const checker *c, trial *t) {
    strata_test_result result = strata_test_ok();
    for (int i = 0; i < CASE_INPUTS && result.ok; i++) {
        if (!t->want[i].data && i > 0) continue;
        strata_test_tolerance tolerance =
            strata_test_tolerance_of(t->want[i].dtype, t->instance->terms ? t->instance->terms : 1);
        /* Sums in nonlinear ops: their terms are not known. */
        if (!is_sum(t->row->op) && t->instance->terms > 64) tolerance.absolute *= 4;
        if (t->row->exact)
            result = strata_test_same(&t->got[i], &t->want[i]);
        else if (t->exact)
            result = strata_test_compare(&t->got[i], &t->want[i], (strata_test_tolerance){0});
        else if (is_sum(t->row->op) && strata_dtype_is_float(t->want[i].dtype))
            result = compare_sums(t, rounding_of(c, t));
        else
            result = strata_test_compare(&t->got[i], &t->want[i], tolerance);
        if (!result.ok && t->variables[0]) result = strata_test_bad("operand %d after the update: %.600s", i, result.text);
    }
    return result;
}

/* Compares the results of a run with those of the first one, which had the same values. */
static strata_test_result compare_with_first(trial *t) {
    for (int i = 0; i < CASE_INPUTS; i++) {
        if (!t->first[i].data) continue;
        const strata_test_result result = strata_test_same(&t->got[i], &t->first[i]);
        if (!result.ok)
            return strata_test_bad("the same values give other bits when they are computed again: %.500s", result.text);
    }
    return strata_test_ok();
}

static void finish(trial *t) {
    for (int i = 0; i < CASE_INPUTS; i++) {
        strata_array_finish(&t->values[i]);
        strata_array_finish(&t->got[i]);
        strata_array_finish(&t->want[i]);
        strata_array_finish(&t->first[i]);
        strata_variable_destroy(t->variables[i]);
    }
    strata_array_finish(&t->squares);
    strata_graph_destroy(t->graph);
}

static void describe_case(const op_row *row, const case_instance *instance, strata_dtype dtype, char *out_text, size_t bytes) {
    size_t used = (size_t)snprintf(out_text, bytes, "operands");
    for (int i = 0; i < row->n_operands && used < bytes; i++) {
        const int own = row->operands[i].dtype;
        used += (size_t)snprintf(out_text + used, bytes - used, "%s %s %s", i ? "," : "",
                                 strata_dtype_name(own ? (strata_dtype)(own - 1) : dtype),
                                 strata_shape_text(instance->shapes[i]).text);
    }
}

/* Runs the program with each of the values, and compares. Returns a status if a run or the reference fails. */
static strata_status try_runs(const checker *c, trial *t, strata_test_result *out_result, strata_error *err) {
    strata_executable *exe = NULL;
    strata_status status = create_program(c, t, &exe, err);
    const int n_runs = t->operands == t->row->operands ? N_RUNS : N_RUNS - 1; /* large shapes take longer */
    for (int r = 0; r < n_runs && !status && out_result->ok; r++) {
        status = set_values(t, run_seeds[r], err);
        if (!status) status = run_program(t, exe, err);
        if (status) break;
        if (run_seeds[r] == run_seeds[0] && r > 0) {
            *out_result = compare_with_first(t);
            continue;
        }
        status = find_wanted(t, err);
        if (status) strata_fail_in(err, status, "the reference failed");
        if (!status) *out_result = compare(c, t);
        for (int i = 0; i < CASE_INPUTS && r == 0; i++) {
            t->first[i] = t->got[i];
            t->got[i] = (strata_array){0};
        }
    }
    strata_executable_destroy(exe);
    return status;
}

/* Checks one instance. *out_text: what is wrong, or why the op is not claimed. *out_lost: the device cannot run any more
 * programs. */
static strata_check_kind check_instance(const checker *c, trial *t, char *out_text, bool *out_lost) {
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    strata_status status = build(c, t, &err);
    char shapes[CASE_BYTES];
    strata_check_kind claim = STRATA_CHECK_RIGHT;
    *out_lost = false;
    describe_case(t->row, t->instance, t->dtype, shapes, sizeof shapes);
    *out_text = 0;
    if (status && t->operands != t->row->operands) return STRATA_CHECK_NOT_CLAIMED; /* no large shape of this kind */
    if (!status) {
        claim = find_claim(c, t, out_text);
        if (claim == STRATA_CHECK_NOT_CLAIMED) return claim;
        status = try_runs(c, t, &result, &err);
    }
    if (status == STRATA_UNSUPPORTED && claim == STRATA_CHECK_BLOCKED) return claim;
    if (status == STRATA_UNSUPPORTED && strata_op_find(t->row->op)->flags & STRATA_OP_VIEW) {
        snprintf(out_text, MOST_REASON, "%s: a view costs nothing, but the copy that the case makes of it is not run",
                 t->row->op);
        return STRATA_CHECK_NOT_CLAIMED;
    }
    if (status) {
        *out_lost = status == STRATA_DEVICE_LOST || status == STRATA_TIMEOUT;
        snprintf(out_text, MOST_REASON, "%s: %s: %.700s", shapes, strata_status_name(status), err.message);
        return STRATA_CHECK_WRONG;
    }
    if (!result.ok) snprintf(out_text, MOST_REASON, "%s: %s", shapes, result.text);
    return result.ok ? STRATA_CHECK_RIGHT : STRATA_CHECK_WRONG;
}

/* ---- units ---- */

/* The cases of a row in one dtype so far. */
typedef struct row_state {
    const op_row *row;
    strata_dtype dtype;
    strata_check_kind worst;
    int n_begun, n_right;
    bool lost;
    char text[MOST_REASON], reason[MOST_REASON];
} row_state;

/* Counts a case. Returns false after one that is wrong, which is reported. */
static bool take_case(const checker *c, row_state *s, strata_check_kind kind) {
    s->n_right += kind == STRATA_CHECK_RIGHT;
    if (kind == STRATA_CHECK_WRONG) {
        send(c, kind, s->n_right, s->text);
        return false;
    }
    if (kind != STRATA_CHECK_RIGHT && *s->text) snprintf(s->reason, sizeof s->reason, "%s", s->text);
    if (kind == STRATA_CHECK_BLOCKED && s->worst == STRATA_CHECK_NOT_CLAIMED) s->worst = kind;
    return true;
}

static bool check_case(const checker *c, row_state *s, trial *t) {
    describe_case(s->row, t->instance, s->dtype, s->text, CASE_BYTES);
    send(c, STRATA_CHECK_BEGIN, s->n_begun++, s->text);
    const strata_check_kind kind = check_instance(c, t, s->text, &s->lost);
    finish(t);
    return take_case(c, s, kind);
}

/* The same in the shapes that accelerators have. */
static bool check_large_cases(const checker *c, row_state *s) {
    case_instance instance;
    case_operand operands[CASE_INPUTS];
    bool more = !strcmp(s->row->op, "matmul"), right = true;
    for (int i = 0; right && has_time(c) && large_instance(s->row, s->dtype, i, &instance, operands); i++) {
        trial t = {.row = s->row, .instance = &instance, .operands = operands, .dtype = s->dtype};
        t.exact = memcmp(operands, s->row->operands, sizeof operands) != 0;
        right = check_case(c, s, &t);
    }
    for (int i = 0; right && more && has_time(c); i++) {
        s->text[0] = 0;
        send(c, STRATA_CHECK_BEGIN, s->n_begun++, "a large product");
        const strata_check_kind kind = check_large_product(c, s->dtype, i, s->text, MOST_REASON, &s->lost, &more);
        if (kind != STRATA_CHECK_NOT_CLAIMED) right = take_case(c, s, kind);
    }
    return right;
}

/* Checks a row in one dtype, and reports the first case that is wrong. Returns false if the device is lost. */
static bool check_row(const checker *c, const op_row *row, strata_dtype dtype) {
    row_state s = {.row = row, .dtype = dtype, .worst = STRATA_CHECK_NOT_CLAIMED};
    bool right = true;
    for (int i = 0; i < row->n_instances && right; i++) {
        trial t = {.row = row, .instance = &row->instances[i], .operands = row->operands, .dtype = dtype};
        right = check_case(c, &s, &t);
    }
    if (right && s.n_right) right = check_large_cases(c, &s);
    const bool in_time = !s.n_right || c->options->quick || has_time(c);
    if (right && s.n_right)
        send(c, STRATA_CHECK_RIGHT, s.n_right, in_time ? "" : ", not in all large shapes: the time was up");
    else if (right)
        send(c, s.worst, 0, s.reason);
    return !s.lost;
}

static void begin_case(const checker *c, int index) {
    send(c, STRATA_CHECK_BEGIN, index, NULL);
}

static void run_memory(const checker *c) {
    int n_right = 0;
    const strata_test_result result = check_memory(c, begin_case, &n_right);
    send(c, result.ok ? STRATA_CHECK_RIGHT : STRATA_CHECK_WRONG, n_right, result.text);
}

/* What is left in use when calls are repeated. The device is closed between both parts, and stays closed. */
static void run_counts(checker *c) {
    c->unit = counts_unit();
    begin_case(c, 0);
    strata_test_result result = check_counts(c);
    send(c, STRATA_CHECK_BEGIN, 1, "closing");
    strata_device_close(c->device);
    if (result.ok) result = check_openings(c);
    send(c, result.ok ? STRATA_CHECK_RIGHT : STRATA_CHECK_WRONG, 1, result.text);
}

/* Opens the plugin's first device, or that of --device. */
static strata_status open_device_of(checker *c, strata_error *err) {
    strata_device_info *rows = NULL;
    int n = 0, chosen = -1;
    unsetenv("STRATA_PLUGINS"); /* only this plugin is loaded */
    STRATA_TRY(strata_plugin_load(c->options->plugin, err));
    STRATA_TRY(strata_bridge_rows(c->options->plugin, &rows, &n, err));
    for (int i = 0; i < n && chosen < 0; i++)
        if (!c->options->device || !strcmp(rows[i].id, c->options->device)) chosen = i;
    for (int i = 0; i < n && !c->other[0]; i++)
        if (i != chosen && !rows[i].skipped[0]) snprintf(c->other, sizeof c->other, "%s", rows[i].id);
    strata_status status;
    if (chosen < 0)
        status = strata_fail(err, STRATA_UNAVAILABLE, "the plugin has %d devices, and none is %s", n,
                             c->options->device ? c->options->device : "there");
    else if (rows[chosen].skipped[0])
        status = strata_fail(err, STRATA_UNAVAILABLE, "%s: %s", rows[chosen].id, rows[chosen].skipped);
    else
        status = strata_device_open(
            rows[chosen].id, &(strata_device_options){.stall_seconds = c->options->case_s, .trust = true}, &c->device, err);
    strata_devices_free(rows);
    return status;
}

static bool is_wanted(const checker *c, const char *op) {
    const char *list = c->options->ops;
    const size_t n = strlen(op);
    for (; list && *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == n && !strncmp(list, op, n)) return true;
    return !c->options->ops;
}

static void train(checker *c, strata_dtype rounded) {
    c->unit = training_unit();
    send(c, STRATA_CHECK_BEGIN, 0, "two layers");
    const double rounding = rounded == STRATA_DTYPE_F16 ? 0x1p-11 : rounded == STRATA_DTYPE_BF16 ? 0x1p-8 : 0;
    const strata_test_result result = check_training(c->id, c->options->case_s, rounding);
    send(c, result.ok ? STRATA_CHECK_RIGHT : STRATA_CHECK_WRONG, 1, result.text);
}

/* The checker of this process, for report_fault. */
static const checker *running;

/* Called in a signal's handler. The process ends after it, and the parent starts another for the remaining units. */
static void report_fault(const char *text) {
    send(running, STRATA_CHECK_WRONG, 0, text);
}

static void describe_device(const checker *c) {
    const strata_device_info *info = strata_device_get_info(c->device);
    char text[512];
    snprintf(text, sizeof text, "%s, %s%s%s%s, driver %s", info->id, info->name, info->vendor[0] ? " (" : "", info->vendor,
             info->vendor[0] ? ")" : "", info->driver[0] ? info->driver : "?");
    send(c, STRATA_CHECK_DEVICE, 0, text);
}

void strata_check_run(const strata_check_options *options, int first, int pipe) {
    checker c = {.options = options, .pipe = pipe, .unit = STRATA_CHECK_UNIT_OPEN};
    strata_error err = {0};
    const int counts = counts_unit();
    bool go_on = true;
    running = &c;
    witness_begin(report_fault);
    begin_case(&c, 0);
    if (open_device_of(&c, &err)) {
        send(&c, STRATA_CHECK_WRONG, 0, err.message);
        send(&c, STRATA_CHECK_END, 0, NULL);
        return;
    }
    snprintf(c.id, sizeof c.id, "%s", strata_device_get_info(c.device)->id);
    describe_device(&c);
    witness_watch(c.device);
    if (first <= STRATA_CHECK_UNIT_OPEN) send(&c, STRATA_CHECK_RIGHT, 1, NULL);
    const strata_dtype rounded = c.device->product_dtype;
    for (int unit = first > STRATA_CHECK_UNIT_MEMORY ? first : STRATA_CHECK_UNIT_MEMORY; unit < counts && go_on; unit++) {
        strata_dtype dtype = STRATA_DTYPE_F32;
        const op_row *row = row_of(unit, &dtype);
        c.unit = unit;
        if (!row)
            run_memory(&c);
        else if (is_wanted(&c, row->op) && strata_device_get_info(c.device)->dtypes >> dtype & 1)
            go_on = check_row(&c, row, dtype);
    }
    if (!go_on) _exit(0); /* the device is lost; the parent starts another child for the remaining units */
    if (first <= counts)
        run_counts(&c);
    else
        strata_device_close(c.device);
    if (!options->ops) train(&c, rounded);
    send(&c, STRATA_CHECK_END, 0, NULL);
}
