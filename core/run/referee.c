/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a new program of a device with the same program on the host, its referee, where the values of the device's own nodes
 * cannot be read one by one (plugins).
 *
 * A *trial* runs both programs once, on the same generated inputs and the variables' present values, and compares the outputs,
 * the operands of exchanges, and the changes of variables. If something differs by more than the tolerance, the referee runs
 * once more on values that are changed by the tolerance: this shows how far rounding can change the results. The device's
 * variables and inputs have their former values at the end.
 *
 * A new program is tried on generated inputs. While a program is in use, the first trial takes the inputs of a step. */
#include <float.h>
#include <math.h>

#include "core/compile/passes.h"
#include "core/op/communication.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "core/run/compare.h"
#include "core/run/executable.h"

enum {
    /* A program that differed is tried again with other inputs, in so many trials in all; it is wrong if it differed in
     * LEAST_WRONG of them. */
    TRIALS = 3,
    LEAST_WRONG = 2,
    /* The changes of a variable are compared in parts of so many elements: several layers may lie in one variable, and
     * change by different amounts. */
    PART = 1024
};
/* The most operations and bytes of a program that is compared: half a minute of the host, on a slow core. */
static const double MOST_WORK = 1e11;

/* A value that both programs leave: an output, the operand of an exchange, or a variable. */
typedef struct value {
    const char *name;
    /* The bytes on the device and on the referee. A variable has buffers, all others tensors. */
    const strata_tensor *tensor, *own_tensor;
    strata_buffer *buffer, *own_buffer;
    strata_dtype dtype;
    int64_t n;
    bool is_variable;
    /* Before the run, and before that of the referee with changed values. */
    void *before, *moved_before;
    /* After the device's run, the referee's run, and that with changed values. */
    void *got, *want, *moved;
} value;

typedef struct trial {
    strata_memory memory;
    strata_executable *exe, *referee;
    /* The slot of the device's program. */
    int slot;
    uint32_t random;
    /* [exe->plan.n_inputs] What the inputs of the slot were, and whether this trial takes them. */
    void **inputs;
    bool on_inputs;
    /* The coarsest tolerance of the program's dtypes. */
    double tolerance;
    value *values;
    int n_values;
    /* The largest error of this trial, relative to the largest value, and where; NULL: there is none. */
    double error;
    const char *where;
} trial;

static strata_status no_memory(const trial *t, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory to compare a program of %d nodes with the host",
                       t->exe->device->info.id, t->exe->plan.n_schedule);
}

static size_t bytes_of(const value *v) {
    return (size_t)v->n * strata_dtype_bytes(v->dtype);
}

/* ---- which values ---- */
static bool is_same_exchange(const strata_tensor *a, const strata_tensor *b) {
    const strata_team x = ((const strata_communication_attrs *)a->attrs)->team,
                      y = ((const strata_communication_attrs *)b->attrs)->team;
    return a->op == b->op && strata_team_equal(x, y);
}

/* The referee's part in the exchange that is the device's communication k; NULL: it has none. */
static const strata_communication *find_exchange(const trial *t, int k) {
    const strata_plan *plan = &t->exe->plan, *own = &t->referee->plan;
    int before = 0;
    for (int i = 0; i <= k; i++) before += is_same_exchange(plan->communications[i].node, plan->communications[k].node);
    for (int i = 0; i < own->n_communications; i++)
        if (is_same_exchange(own->communications[i].node, plan->communications[k].node) && !--before)
            return &own->communications[i];
    return NULL;
}

static void add_tensors(trial *t, const strata_tensor *tensor, const strata_tensor *own) {
    t->values[t->n_values++] = (value){.name = strata_tensor_name(tensor),
                                       .tensor = tensor,
                                       .own_tensor = own,
                                       .dtype = tensor->dtype,
                                       .n = strata_shape_elements(tensor->shape)};
}

static void add_variable(trial *t, int arena) {
    const strata_variable *variable = t->exe->plan.arena_variables[arena];
    for (int i = 0; variable && i < t->referee->plan.n_arenas; i++)
        if (t->referee->plan.arena_variables[i] == variable)
            t->values[t->n_values++] = (value){.name = variable->name,
                                               .buffer = variable->buffer,
                                               .own_buffer = t->referee->plan.arenas[i].buffer,
                                               .dtype = variable->dtype,
                                               .n = strata_shape_elements(variable->shape),
                                               .is_variable = true};
}

static strata_status list_values(trial *t, strata_error *err) {
    const strata_plan *plan = &t->exe->plan;
    t->values = strata_memory_take(&t->memory, t->exe->n_outputs + plan->n_communications + plan->n_arenas, sizeof *t->values);
    t->inputs = strata_memory_take(&t->memory, plan->n_inputs, sizeof(*t->inputs));
    if (t->memory.failed) return no_memory(t, err);
    for (int i = 0; i < t->exe->n_outputs; i++) add_tensors(t, t->exe->draft.outputs[i], t->referee->draft.outputs[i]);
    for (int k = 0; k < plan->n_communications; k++) {
        const strata_communication *c = &plan->communications[k], *own = find_exchange(t, k);
        if (c->after >= 0 && own && own->after >= 0) add_tensors(t, c->node->inputs[0], own->node->inputs[0]);
    }
    for (int i = 0; i < plan->n_arenas; i++) add_variable(t, i);
    for (int i = 0; i < t->n_values; i++) {
        value *v = &t->values[i];
        void **parts[] = {&v->before, &v->moved_before, &v->got, &v->want, &v->moved};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            *parts[k] = strata_memory_take(&t->memory, (int64_t)bytes_of(v), 1);
    }
    for (int i = 0; i < plan->n_inputs; i++)
        t->inputs[i] = strata_memory_take(&t->memory, strata_tensor_bytes(plan->inputs[i]), 1);
    return t->memory.failed ? no_memory(t, err) : STRATA_OK;
}

/* The coarsest tolerance of what the program computes. */
static double find_tolerance(const strata_executable *exe) {
    double most = strata_check_tolerance(exe->device->product_dtype);
    for (int i = 0; i < exe->plan.n_schedule; i++) most = fmax(most, strata_check_tolerance(exe->plan.schedule[i]->dtype));
    return most;
}

/* ---- running ---- */
static char *memory_of(const trial *t, const strata_executable *exe, const strata_tensor *tensor, bool written) {
    return strata_executable_memory(exe, exe->is_referee ? 0 : t->slot, tensor, written);
}

/* Copies a value from a device to `data`. */
static strata_status read_value(const trial *t, const strata_executable *exe, const value *v, void *data, strata_error *err) {
    const strata_device_api *api = exe->device->api;
    const size_t bytes = bytes_of(v);
    if (!bytes) return STRATA_OK;
    if (v->is_variable)
        return api->download(exe->device, exe->is_referee ? v->own_buffer : v->buffer, 0, data, (int64_t)bytes, err);
    memcpy(data, memory_of(t, exe, exe->is_referee ? v->own_tensor : v->tensor, false), bytes);
    return STRATA_OK;
}

static strata_status write_variable(const strata_executable *exe, const value *v, const void *data, strata_error *err) {
    if (!v->is_variable || !v->n) return STRATA_OK;
    return exe->device->api->upload(exe->device, exe->is_referee ? v->own_buffer : v->buffer, 0, data, (int64_t)bytes_of(v),
                                    err);
}

/* Writes generated values to memory that the host writes. moved: changed by the tolerance. */
static void generate(const trial *t, const strata_executable *exe, const strata_tensor *tensor, uint32_t number, bool moved) {
    const strata_piece piece = strata_executable_piece(t->referee); /* the host has ops that tell how integers are used */
    void *data = memory_of(t, exe, tensor, true);
    const size_t bytes = (size_t)strata_tensor_bytes(tensor);
    if (!bytes) return;
    memset(data, 0, bytes);
    if (strata_is_communication(tensor) && !strata_dtype_is_float(tensor->dtype)) return;
    strata_check_generate(&piece, tensor, t->random + number * 2654435761u, data);
    if (moved) strata_check_move(tensor, t->tolerance, data, number + 1);
}

static int index_of_input(const strata_executable *exe, const strata_tensor *input) {
    return strata_executable_input_index(exe, ((const strata_input_attrs *)input->attrs)->name);
}

/* Writes the inputs. Those that are generated are generated from the referee's node, whose uses it knows. */
static void write_inputs(const trial *t, bool of_referee, bool moved) {
    for (int i = 0; i < t->referee->plan.n_inputs; i++) {
        const strata_tensor *own = t->referee->plan.inputs[i];
        const int index = index_of_input(t->exe, own);
        const size_t bytes = (size_t)strata_tensor_bytes(own);
        void *data = memory_of(t, t->referee, own, true);
        if (!bytes) continue;
        if (t->on_inputs && index >= 0) {
            memcpy(data, t->inputs[index], bytes);
            if (moved) strata_check_move(own, t->tolerance, data, (uint32_t)i + 1);
        } else {
            generate(t, t->referee, own, (uint32_t)i, moved);
        }
        if (!of_referee && index >= 0) memcpy(memory_of(t, t->exe, t->exe->plan.inputs[index], true), data, bytes);
    }
}

/* Copies the inputs of the slot to t->inputs, or back. */
static void copy_inputs(const trial *t, bool back) {
    for (int i = 0; i < t->exe->plan.n_inputs; i++) {
        const size_t bytes = (size_t)strata_tensor_bytes(t->exe->plan.inputs[i]);
        void *data = bytes ? memory_of(t, t->exe, t->exe->plan.inputs[i], true) : NULL;
        if (bytes) memcpy(back ? data : t->inputs[i], back ? t->inputs[i] : data, bytes);
    }
}

/* Runs all segments. The results of exchanges are generated. */
static strata_status run(const trial *t, bool of_referee, bool moved, strata_error *err) {
    const strata_executable *exe = of_referee ? t->referee : t->exe;
    const strata_plan *plan = &exe->plan;
    uint64_t ticket = 0;
    write_inputs(t, of_referee, moved);
    for (int k = 0; k < plan->n_segments; k++) {
        for (int c = 0; c < t->exe->plan.n_communications; c++) {
            const strata_communication *own = of_referee ? find_exchange(t, c) : &t->exe->plan.communications[c];
            if (own && own->before == k) generate(t, exe, own->node, 1000u + (uint32_t)c, moved);
        }
        int slot;
        strata_program *program = strata_executable_program(exe, of_referee ? 0 : t->slot, k, &slot);
        STRATA_TRY(exe->device->api->run(program, slot, &ticket, err));
        STRATA_TRY(exe->device->api->wait(exe->device, ticket, err));
    }
    return STRATA_OK;
}

/* Runs the referee on the variables' values in `before`, or in `moved_before`. */
static strata_status run_referee(trial *t, bool moved, strata_error *err) {
    for (int i = 0; i < t->n_values; i++) {
        const value *v = &t->values[i];
        STRATA_TRY(write_variable(t->referee, v, moved ? v->moved_before : v->before, err));
    }
    STRATA_TRY(run(t, true, moved, err));
    for (int i = 0; i < t->n_values; i++)
        STRATA_TRY(read_value(t, t->referee, &t->values[i], moved ? t->values[i].moved : t->values[i].want, err));
    return STRATA_OK;
}

static void move_variables(const trial *t) {
    for (int i = 0; i < t->n_values; i++) {
        const value *v = &t->values[i];
        const strata_tensor tensor = {.dtype = v->dtype, .shape = {.rank = 1, .dims = {v->n}}};
        if (!v->is_variable) continue;
        memcpy(v->moved_before, v->before, bytes_of(v));
        strata_check_move(&tensor, t->tolerance, v->moved_before, t->random + (uint32_t)i);
    }
}

/* ---- comparing ---- */
/* A part of a value, as changes from what it was before. */
typedef struct part {
    float got[PART], want[PART], moved[PART];
    int64_t n;
    /* The largest value of which these are changes. */
    double largest;
} part;

static void take_part(const value *v, int64_t first, part *out) {
    out->n = v->n - first < PART ? v->n - first : PART;
    out->largest = 0;
    for (int64_t i = 0; i < out->n; i++) {
        const double before = strata_element_get(v->dtype, v->before, first + i);
        const double want = strata_element_get(v->dtype, v->want, first + i);
        out->got[i] = (float)(strata_element_get(v->dtype, v->got, first + i) - before);
        out->want[i] = (float)(want - before);
        out->moved[i] = (float)(strata_element_get(v->dtype, v->moved, first + i) -
                                strata_element_get(v->dtype, v->moved_before, first + i));
        out->largest = fmax(out->largest, fmax(fabs(before), fabs(want)));
    }
}

/* Compares one value. with_moved: the referee has run on changed values; otherwise this is only a quick test.
 *
 * Adam's first change of a parameter has the sign of its gradient, which rounding decides where the terms of the gradient
 * cancel each other. In all parts together, SIGNS times as many elements may differ as the changed values make differ. */
static void compare(trial *t, const value *v, bool with_moved) {
    enum { SIGNS = 4 };
    const strata_sample all = {0};
    const double tolerance = strata_dtype_is_float(v->dtype) ? t->tolerance : 0;
    const double unit = v->dtype == STRATA_DTYPE_BF16 ? 0x1p-8 : v->dtype == STRATA_DTYPE_F16 ? 0x1p-11 : FLT_EPSILON;
    strata_excess excess = {0};
    double error = 0;
    part p;
    if (!memcmp(v->got, v->want, bytes_of(v))) return;
    for (int64_t first = 0; first < v->n; first += PART) {
        take_part(v, first, &p);
        const strata_tensor tensor = {.dtype = STRATA_DTYPE_F32, .shape = {.rank = 1, .dims = {p.n}}};
        const double rounding = v->is_variable && strata_dtype_is_float(v->dtype) ? 2 * unit * p.largest : 0;
        if (!strata_check_is_finite(&tensor, &all, p.want)) continue;
        error = fmax(error, strata_check_difference(&tensor, &all, p.got, p.want));
        strata_check_count(&excess, &tensor, &all, tolerance, rounding, p.got, p.want, with_moved ? p.moved : p.want);
    }
    if (!strata_check_exceeds(&excess, SIGNS * excess.n_moved)) return;
    if (error > t->error || !t->where) t->error = error, t->where = v->name;
}

static void compare_all(trial *t, bool with_moved) {
    t->error = 0;
    t->where = NULL;
    for (int i = 0; i < t->n_values; i++) compare(t, &t->values[i], with_moved);
}

/* Restores the device's variables and inputs. */
static strata_status restore(const trial *t, strata_error *err) {
    for (int i = 0; i < t->n_values; i++) STRATA_TRY(write_variable(t->exe, &t->values[i], t->values[i].before, err));
    copy_inputs(t, true);
    return STRATA_OK;
}

/* Runs both programs and compares them: t->where is not NULL if they differ. */
static strata_status try_once(trial *t, strata_error *err) {
    STRATA_TRY(run(t, false, false, err));
    for (int i = 0; i < t->n_values; i++) STRATA_TRY(read_value(t, t->exe, &t->values[i], t->values[i].got, err));
    STRATA_TRY(restore(t, err));
    STRATA_TRY(run_referee(t, false, err));
    compare_all(t, false);
    if (!t->where) return STRATA_OK;
    move_variables(t);
    STRATA_TRY(run_referee(t, true, err));
    compare_all(t, true);
    return STRATA_OK;
}

static strata_status judge(trial *t, strata_error *err) {
    const strata_device *device = t->exe->device;
    double most = 0;
    const char *where = NULL;
    int n_trials = 0, n_wrong = 0;
    STRATA_TRY(list_values(t, err));
    copy_inputs(t, false);
    for (int i = 0; i < t->n_values; i++)
        if (t->values[i].is_variable) STRATA_TRY(read_value(t, t->exe, &t->values[i], t->values[i].before, err));
    do {
        STRATA_TRY(try_once(t, err));
        n_wrong += t->where != NULL;
        if (t->where && (t->error > most || !where)) most = t->error, where = t->where;
        t->random += 12345;
        t->on_inputs = false;
    } while (++n_trials < TRIALS && n_wrong);
    if (!n_wrong) return STRATA_OK;
    if (n_wrong < LEAST_WRONG) {
        strata_device_warn(device,
                           "%s: a program of %d nodes was wrong in 1 run of %d: %s was off by %.3g of its largest value; it is "
                           "used, but the device may be failing (driver %s)",
                           device->info.id, t->exe->plan.n_schedule, n_trials, where, most, device->info.driver);
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: a program of %d nodes computes wrongly: %s is off by %.3g of its largest value, compared with the "
                       "host (driver %s). `strata devices --check --device %s` compares its ops one by one",
                       device->info.id, t->exe->plan.n_schedule, where, most, device->info.driver, device->info.id);
}

bool strata_referee_can_compare(const strata_executable *referee) {
    const strata_plan *plan = &referee->plan;
    double work = 0;
    for (int i = 0; i < plan->n_schedule; i++)
        work += strata_node_flops(plan->schedule[i]) + strata_node_moved_bytes(plan->schedule[i]);
    return work <= MOST_WORK;
}

strata_status strata_referee_compare(strata_executable *exe, strata_executable *referee, int slot, bool on_inputs,
                                     uint32_t random, strata_error *err) {
    strata_device *device = exe->device;
    trial t = {.exe = exe,
               .referee = referee,
               .slot = slot,
               .on_inputs = on_inputs,
               .random = random,
               .tolerance = find_tolerance(exe)};
    const strata_device_counters before = device->counters;
    const strata_status status = judge(&t, err);
    device->counters = before;
    strata_memory_finish(&t.memory);
    return status;
}
