/* SPDX-License-Identifier: Apache-2.0
 *
 * The child's side of `strata plugin-check`: loads the plugin, opens a device, and compares each op that it claims with the
 * op's reference, over the rows of the conformance suite. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/plugin/plugin.h"
#include "core/op/ops.h"
#include "core/run/device.h"
#include "plugin_check.h"
#include "strata/executable.h"
#include "tests/conformance/case.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

enum { MOST_REASON = 1200, CASE_BYTES = 400 };

/* ---- units ---- */

static const op_row *row_of(int unit, strata_dtype *out_dtype) {
    int n = CHECK_FIRST_ROW;
    for (const op_table *const *table = case_tables; *table; table++)
        for (int r = 0; r < (*table)->n_rows; r++)
            for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
                if ((*table)->rows[r].dtypes >> d & 1 && n++ == unit) {
                    *out_dtype = (strata_dtype)d;
                    return &(*table)->rows[r];
                }
    return NULL;
}

int check_n_units(void) {
    int n = CHECK_FIRST_ROW;
    strata_dtype dtype;
    while (row_of(n, &dtype)) n++;
    return n;
}

const char *check_unit_op(int unit) {
    strata_dtype dtype;
    const op_row *row = unit < CHECK_FIRST_ROW ? NULL : row_of(unit, &dtype);
    return row ? row->op : NULL;
}

void check_unit_name(int unit, char *out_name, int bytes) {
    strata_dtype dtype;
    const op_row *row = unit < CHECK_FIRST_ROW ? NULL : row_of(unit, &dtype);
    if (row)
        snprintf(out_name, (size_t)bytes, "%s %s%s%s", row->op, strata_dtype_name(dtype), row->variant ? ", " : "",
                 row->variant ? row->variant : "");
    else
        snprintf(out_name, (size_t)bytes, "%s",
                 unit == CHECK_UNIT_OPEN     ? "opening"
                 : unit == CHECK_UNIT_MEMORY ? "memory"
                                             : "training");
}

/* ---- messages ---- */

typedef struct checker {
    const check_options *options;
    strata_device *device;
    /* The id of another device of the plugin; "": there is none. */
    char other[32];
    int pipe, unit;
} checker;

static void send(const checker *c, check_kind kind, int n, const char *text) {
    check_message message = {.kind = kind, .unit = c->unit, .n = n};
    snprintf(message.text, sizeof message.text, "%s", text ? text : "");
    if (write(c->pipe, &message, sizeof message) != (ssize_t)sizeof message) _exit(1); /* the parent has ended */
}

/* ---- one case ---- */

/* The graph of an instance, the values of its leaves, and the device's result. */
typedef struct trial {
    const op_row *row;
    const case_instance *instance;
    strata_dtype dtype;
    strata_graph *graph;
    strata_tensor *x[CASE_INPUTS], *y;
    strata_array values[CASE_INPUTS], got, want, magnitude;
    strata_variable *variables[CASE_INPUTS];
    char names[CASE_INPUTS][16];
} trial;

static strata_status build(const checker *c, trial *t, strata_error *err) {
    STRATA_TRY(strata_graph_create(&t->graph, err));
    for (int i = 0; i < t->row->n_operands; i++) {
        const case_operand *operand = &t->row->operands[i];
        const strata_dtype own = operand->dtype ? (strata_dtype)(operand->dtype - 1) : t->dtype;
        t->values[i] = case_operand_value(operand, own, t->instance->shapes[i], 1000 + (uint64_t)i);
        snprintf(t->names[i], sizeof t->names[i], "x%d", i);
        if (operand->variable) {
            STRATA_TRY(strata_variable_create(c->device, t->names[i], own, t->values[i].shape, &t->variables[i], err));
            STRATA_TRY(strata_variable_set(t->variables[i], &t->values[i], err));
            t->x[i] = strata_variable_read(t->graph, t->variables[i]);
        } else {
            t->x[i] = strata_input(t->graph, t->names[i], own, t->values[i].shape);
        }
    }
    t->y = t->row->build ? t->row->build(t->x, t->instance->p, t->dtype)
                         : strata_node(NULL, t->row->generic, t->row->n_operands, t->x, NULL);
    return strata_graph_check(t->graph, err);
}

static bool is_needed(const strata_tensor *root, const strata_tensor *node) {
    if (root == node) return true;
    for (int i = 0; i < root->n_inputs; i++)
        if (root->inputs[i]->id >= node->id && is_needed(root->inputs[i], node)) return true;
    return false;
}

/* Finds whether the device runs the tested op and every other node, and if not, its reason. If the case has no elements, the op
 * may be missing from its program, which then shows nothing about the claim. */
static check_kind find_claim(const checker *c, const trial *t, char *reason) {
    check_kind kind = CHECK_RIGHT;
    bool there = false;
    for (int i = 0; i < t->graph->n_nodes; i++) {
        const strata_tensor *node = t->graph->nodes[i];
        const char *why = "without a reason";
        there |= !strcmp(node->op->name, t->row->op) && is_needed(t->y, node);
        if ((node->op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW)) && strcmp(node->op->name, t->row->op)) continue;
        if (node->op->flags & STRATA_OP_VIEW || !is_needed(t->y, node) || c->device->api->supports(c->device, node, &why))
            continue;
        snprintf(reason, MOST_REASON, "%s %s: %s", node->op->name, strata_shape_text(node->shape).text, why);
        if (!strcmp(node->op->name, t->row->op)) return CHECK_NOT_CLAIMED;
        kind = CHECK_BLOCKED;
    }
    if (there) return kind;
    *reason = '\0';
    return CHECK_NOT_CLAIMED;
}

static strata_status run_trial(const checker *c, trial *t, strata_error *err) {
    strata_executable *exe = NULL;
    const char *names[CASE_INPUTS];
    strata_array inputs[CASE_INPUTS];
    int n = 0;
    const strata_executable_options opts = {.no_fusion = true, .n_slots = 1};
    /* For an op that updates a variable, the variable is compared instead of the output. */
    const int n_updates = t->variables[0] ? 1 : 0, n_outputs = 1 - n_updates;
    STRATA_TRY(strata_executable_create(c->device, &t->y, n_outputs, &t->y, n_updates, &opts, &exe, err));
    for (int i = 0; i < t->row->n_operands; i++) {
        if (t->variables[i]) continue;
        names[n] = t->names[i];
        inputs[n++] = t->values[i];
    }
    strata_status status = n_outputs ? strata_array_create(t->y->dtype, t->y->shape, &t->got, err) : STRATA_OK;
    if (!status) status = strata_executable_run(exe, names, inputs, n, &t->got, n_outputs, err);
    strata_executable_destroy(exe);
    return status;
}

static strata_status evaluate(trial *t, strata_tensor *y, strata_array *out_value, strata_error *err) {
    strata_test_feed feeds[CASE_INPUTS];
    for (int i = 0; i < t->row->n_operands; i++)
        feeds[i] = (strata_test_feed){t->variables[i] ? (const void *)t->variables[i] : t->x[i], &t->values[i]};
    return strata_test_eval(&y, 1, feeds, t->row->n_operands, out_value, err);
}

/* ---- products of rounded operands ---- */

static bool is_product(const char *op) {
    static const char *const products[] = {"matmul", "conv2d", "conv2d_input_grad", "conv2d_filter_grad"};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (!strcmp(products[i], op)) return true;
    return false;
}

/* Computes for each element the sum of the absolute values of its products. If operands have a relative rounding error u, an
 * element may differ by (2 u + u^2) times this sum. */
static strata_status find_magnitude(trial *t, strata_error *err) {
    for (int i = 0; i < 2; i++) {
        strata_array *value = &t->values[i];
        for (int64_t k = 0; k < strata_shape_elements(value->shape); k++)
            strata_element_set(value->dtype, value->data, k, fabs(strata_element_get(value->dtype, value->data, k)));
    }
    /* The sum of the product alone; an op that may be fused into it does not enlarge the error. */
    strata_tensor *product = t->y;
    while (!is_product(product->op->name) && product->n_inputs) product = product->inputs[0];
    return evaluate(t, product, &t->magnitude, err);
}

static strata_test_result compare_product(trial *t, double u, strata_test_tolerance tolerance) {
    strata_error err = {0};
    if (find_magnitude(t, &err)) return strata_test_bad("%s", err.message);
    for (int64_t i = 0; i < strata_shape_elements(t->want.shape); i++) {
        const double got = strata_element_get(t->got.dtype, t->got.data, i);
        const double want = strata_element_get(t->want.dtype, t->want.data, i);
        const double more = (2 * u + u * u) * strata_element_get(t->magnitude.dtype, t->magnitude.data, i);
        tolerance.absolute += more;
        const bool close = strata_test_close(got, want, tolerance);
        tolerance.absolute -= more;
        if (!close)
            return strata_test_bad(
                "element %lld of %s differs by more than products of operands rounded to %s may: got %.9g, "
                "expected %.9g, allowed %.3g",
                (long long)i, strata_shape_text(t->want.shape).text, u > 0x1p-10 ? "bf16" : "f16", got, want, more);
    }
    return strata_test_ok();
}

/* ---- comparing ---- */

static strata_test_result compare(const checker *c, trial *t) {
    const plugin_device *device = (const plugin_device *)c->device;
    const strata_test_tolerance tolerance =
        strata_test_tolerance_of(t->want.dtype, t->instance->terms ? t->instance->terms : 1);
    if (t->row->exact) return strata_test_same(&t->got, &t->want);
    if (is_product(t->row->op) && t->dtype == STRATA_DTYPE_F32 && device->product_dtype != STRATA_PLUGIN_F32)
        return compare_product(t, device->product_dtype == STRATA_PLUGIN_F16 ? 0x1p-11 : 0x1p-8, tolerance);
    return strata_test_compare(&t->got, &t->want, tolerance);
}

/* Compares the variables that the node updated in place. */
static strata_test_result compare_variables(trial *t) {
    for (int i = 0; i < t->row->n_operands; i++) {
        strata_array got = {0};
        strata_error err = {0};
        if (!t->variables[i]) continue;
        if (strata_array_create(t->values[i].dtype, t->values[i].shape, &got, &err) ||
            strata_variable_get(t->variables[i], &got, &err)) {
            strata_array_finish(&got);
            return strata_test_bad("operand %d cannot be read back: %s", i, err.message);
        }
        const strata_test_tolerance tolerance =
            strata_test_tolerance_of(got.dtype, t->instance->terms ? t->instance->terms : 1);
        const strata_test_result result =
            t->row->exact ? strata_test_same(&got, &t->values[i]) : strata_test_compare(&got, &t->values[i], tolerance);
        strata_array_finish(&got);
        if (!result.ok) return strata_test_bad("operand %d after the update: %.600s", i, result.text);
    }
    return strata_test_ok();
}

static void finish(trial *t) {
    for (int i = 0; i < CASE_INPUTS; i++) {
        strata_array_finish(&t->values[i]);
        strata_variable_destroy(t->variables[i]);
    }
    strata_array_finish(&t->got);
    strata_array_finish(&t->want);
    strata_array_finish(&t->magnitude);
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

/* Checks one instance. *out_text: what is wrong, or why the op is not claimed. *out_lost: the device cannot run any more
 * programs. */
static check_kind check_instance(const checker *c, trial *t, char *out_text, bool *out_lost) {
    strata_error err = {0};
    strata_status status = build(c, t, &err);
    char shapes[CASE_BYTES];
    check_kind claim = CHECK_RIGHT;
    *out_lost = false;
    describe_case(t->row, t->instance, t->dtype, shapes, sizeof shapes);
    if (!status) {
        claim = find_claim(c, t, out_text);
        if (claim == CHECK_NOT_CLAIMED) return claim;
        status = run_trial(c, t, &err);
    }
    if (status == STRATA_UNSUPPORTED && claim == CHECK_BLOCKED) return claim;
    if (status == STRATA_UNSUPPORTED && strata_op_find(t->row->op)->flags & STRATA_OP_VIEW) {
        snprintf(out_text, MOST_REASON, "%s: a view costs nothing, but the copy that the case makes of it is not run",
                 t->row->op);
        return CHECK_NOT_CLAIMED;
    }
    if (status) {
        *out_lost = status == STRATA_DEVICE_LOST || status == STRATA_TIMEOUT;
        snprintf(out_text, MOST_REASON, "%s: %s: %.700s", shapes, strata_status_name(status), err.message);
        return CHECK_WRONG;
    }
    if (evaluate(t, t->y, &t->want, &err)) {
        snprintf(out_text, MOST_REASON, "%s: the reference failed: %.700s", shapes, err.message);
        return CHECK_WRONG;
    }
    const strata_test_result result = t->variables[0] ? compare_variables(t) : compare(c, t);
    if (!result.ok) snprintf(out_text, MOST_REASON, "%s: %s", shapes, result.text);
    return result.ok ? CHECK_RIGHT : CHECK_WRONG;
}

/* ---- units ---- */

/* Checks a row in one dtype, and reports the first case that is wrong. */
static bool check_row(const checker *c, const op_row *row, strata_dtype dtype) {
    char text[MOST_REASON] = "", reason[MOST_REASON] = "";
    check_kind worst = CHECK_NOT_CLAIMED;
    int n_right = 0;
    bool lost = false;
    for (int i = 0; i < row->n_instances && !lost; i++) {
        trial t = {.row = row, .instance = &row->instances[i], .dtype = dtype};
        describe_case(row, t.instance, dtype, text, CASE_BYTES);
        send(c, CHECK_BEGIN, i, text);
        const check_kind kind = check_instance(c, &t, text, &lost);
        finish(&t);
        n_right += kind == CHECK_RIGHT;
        if (kind == CHECK_WRONG) {
            send(c, kind, n_right, text);
            return !lost;
        }
        if (kind != CHECK_RIGHT && *text) snprintf(reason, sizeof reason, "%s", text);
        if (kind == CHECK_BLOCKED && worst == CHECK_NOT_CLAIMED) worst = kind;
    }
    send(c, n_right ? CHECK_RIGHT : worst, n_right, reason);
    return true;
}

/* Checks that new buffers contain zeros, and that parts of them can be written and read. */
static strata_test_result try_memory(strata_device *device, int64_t bytes) {
    const strata_device_api *api = device->api;
    strata_error err = {0};
    strata_buffer *buffer = NULL;
    strata_test_result result = strata_test_ok();
    const int64_t first = bytes / 3, n = bytes - first - bytes / 5;
    char *source = malloc((size_t)bytes), *target = malloc((size_t)bytes);
    if (!source || !target || api->buffer_create(device, bytes, &buffer, &err))
        result = strata_test_bad("a buffer of %lld bytes: %s", (long long)bytes, err.message);
    for (int64_t i = 0; i < bytes && source; i++) source[i] = (char)(i * 37 + 11);
    if (result.ok && api->download(device, buffer, 0, target, bytes, &err))
        result = strata_test_bad("downloading a new buffer of %lld bytes: %s", (long long)bytes, err.message);
    for (int64_t i = 0; i < bytes && result.ok; i++)
        if (target[i]) result = strata_test_bad("byte %lld of a new buffer of %lld is not 0", (long long)i, (long long)bytes);
    if (result.ok && n > 0 &&
        (api->upload(device, buffer, first, source, n, &err) || api->download(device, buffer, 0, target, bytes, &err)))
        result = strata_test_bad("writing %lld bytes at %lld: %s", (long long)n, (long long)first, err.message);
    for (int64_t i = 0; i < bytes && result.ok && n > 0; i++)
        if (target[i] != (i >= first && i < first + n ? source[i - first] : 0))
            result = strata_test_bad("byte %lld of a buffer of %lld is wrong after %lld bytes were written at %lld",
                                     (long long)i, (long long)bytes, (long long)n, (long long)first);
    if (buffer) api->buffer_destroy(device, buffer);
    free(source);
    free(target);
    return result;
}

static const strata_device_transfers *transfers_of(strata_device *device) {
    /* Every plugin's device has this function; it returns NULL if the plugin has no such table. */
    return device->api->transfers(device);
}

/* Checks the copies of the table "transfers": a copy must begin after the earlier copies, also without a wait between them.
 * other: a device of the same plugin, to which copies are made over the link between both; NULL: there is none. */
static strata_test_result try_transfers(strata_device *device, strata_device *other) {
    enum { BYTES = 70001 };
    const strata_device_transfers *transfers = transfers_of(device);
    strata_device *last = other ? other : device;
    strata_error err = {0};
    strata_buffer *buffer = NULL, *copy = NULL;
    uint64_t ticket = 0;
    strata_test_result result = strata_test_ok();
    char *first = malloc(BYTES), *second = malloc(BYTES), *target = calloc(1, BYTES);
    for (int i = 0; i < BYTES && first && second; i++) first[i] = (char)(i * 7 + 1), second[i] = (char)(i * 5 + 2);
    if (!first || !second || !target || device->api->buffer_create(device, BYTES, &buffer, &err) ||
        (other && other->api->buffer_create(other, BYTES, &copy, &err)) ||
        transfers->upload(device, buffer, 0, first, BYTES, &ticket, &err) ||
        transfers->upload(device, buffer, 0, second, BYTES, &ticket, &err) ||
        (other && transfers->copy(other, copy, 0, device, buffer, 0, BYTES, &err)) ||
        transfers->download(last, other ? copy : buffer, 0, target, BYTES, &ticket, &err) ||
        last->api->wait(last, ticket, &err))
        result = strata_test_bad("copies of the table \"transfers\"%s%s: %s", other ? " to " : "",
                                 other ? strata_device_get_info(other)->id : "", err.message);
    for (int i = 0; i < BYTES && result.ok; i++)
        if (target[i] != second[i])
            result = strata_test_bad(
                "byte %d of %d is not that of the last of two uploads, after a %sdownload of the table "
                "\"transfers\"; copies must come in the order in which they were submitted",
                i, BYTES, other ? "copy to another device and its " : "");
    if (buffer) device->api->buffer_destroy(device, buffer);
    if (copy) other->api->buffer_destroy(other, copy);
    free(first);
    free(second);
    free(target);
    return result;
}

static strata_test_result check_transfers(const checker *c) {
    strata_device *other = NULL;
    strata_error err = {0};
    if (!transfers_of(c->device)) return strata_test_ok();
    strata_test_result result = try_transfers(c->device, NULL);
    if (!result.ok || !transfers_of(c->device)->copy || !c->other[0]) return result;
    if (strata_device_open(c->other, NULL, &other, &err)) return strata_test_bad("%s", err.message);
    result = try_transfers(c->device, other);
    strata_device_close(other);
    return result;
}

static void check_memory(const checker *c) {
    static const int64_t sizes[] = {1, 4, 255, 4096, 100003};
    int n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        send(c, CHECK_BEGIN, (int)i, NULL);
        const strata_test_result result = try_memory(c->device, sizes[i]);
        if (!result.ok) {
            send(c, CHECK_WRONG, n, result.text);
            return;
        }
        n++;
    }
    send(c, CHECK_BEGIN, n, NULL);
    const strata_test_result result = check_transfers(c);
    send(c, result.ok ? CHECK_RIGHT : CHECK_WRONG, n, result.ok ? NULL : result.text);
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
        status =
            strata_device_open(rows[chosen].id, &(strata_device_options){.stall_seconds = c->options->case_s}, &c->device, err);
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

static void train(checker *c, const char *id, strata_plugin_dtype rounded) {
    c->unit = CHECK_UNIT_TRAINING;
    send(c, CHECK_BEGIN, 0, "two layers");
    const double rounding = rounded == STRATA_PLUGIN_F16 ? 0x1p-11 : rounded == STRATA_PLUGIN_BF16 ? 0x1p-8 : 0;
    const strata_test_result result = check_training(id, c->options->case_s, rounding);
    send(c, result.ok ? CHECK_RIGHT : CHECK_WRONG, 1, result.text);
}

void check_run(const check_options *options, int first, int pipe) {
    checker c = {.options = options, .pipe = pipe, .unit = CHECK_UNIT_OPEN};
    strata_error err = {0};
    const int n_units = check_n_units();
    bool go_on = true;
    send(&c, CHECK_BEGIN, 0, NULL);
    if (open_device_of(&c, &err)) {
        send(&c, CHECK_WRONG, 0, err.message);
        send(&c, CHECK_END, 0, NULL);
        return;
    }
    const strata_device_info *info = strata_device_get_info(c.device);
    char text[512];
    snprintf(text, sizeof text, "%s, %s%s%s%s, driver %s", info->id, info->name, info->vendor[0] ? " (" : "", info->vendor,
             info->vendor[0] ? ")" : "", info->driver[0] ? info->driver : "?");
    send(&c, CHECK_DEVICE, 0, text);
    if (first <= CHECK_UNIT_OPEN) send(&c, CHECK_RIGHT, 1, NULL);
    const strata_plugin_dtype rounded = ((const plugin_device *)c.device)->product_dtype;
    for (int unit = first > CHECK_UNIT_MEMORY ? first : CHECK_UNIT_MEMORY; unit < n_units && go_on; unit++) {
        if (unit == CHECK_UNIT_TRAINING) continue;
        strata_dtype dtype = STRATA_DTYPE_F32;
        const op_row *row = unit >= CHECK_FIRST_ROW ? row_of(unit, &dtype) : NULL;
        c.unit = unit;
        if (!row)
            check_memory(&c);
        else if (is_wanted(&c, row->op) && info->dtypes >> dtype & 1)
            go_on = check_row(&c, row, dtype);
    }
    if (!go_on) _exit(0); /* the device is lost; the parent starts another child for the remaining units */
    send(&c, CHECK_BEGIN, 0, "closing");
    char id[32];
    snprintf(id, sizeof id, "%s", info->id);
    strata_device_close(c.device);
    if (!options->ops) train(&c, id, rounded);
    send(&c, CHECK_END, 0, NULL);
}
