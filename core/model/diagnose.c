/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the tensor of a training step at which an error begins. A separate program, without fusion, has every float tensor of
 * the step's graph before the update as an output, so that each value can be examined. It is searched for the first tensor that
 * is not finite, or the first one whose bits differ when the step is run again. */
#include <math.h>

#include "core/base/text.h"
#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "core/model/fit.h"
#include "core/model/parts.h"
#include "core/op/ops.h"
#include "core/run/executable.h"

enum { MOST_INPUTS_LISTED = 6 };

/* A training step of one replica whose tensors can be read. */
typedef struct dissection {
    strata_step step;
    /* [n] The tensors, in the order of the graph: each is before those that are computed from it. */
    strata_tensor **tensors;
    int n;
    strata_executable *executable;
} dissection;

static void list_tensors(dissection *d) {
    const strata_graph *graph = d->step.graph;
    for (int id = 0; id < graph->n_nodes; id++) {
        strata_tensor *node = graph->nodes[id];
        if (node->op->flags & STRATA_OP_UPDATE) return;
        if (node->op != &strata_op_constant && strata_dtype_is_float(node->dtype) && strata_shape_elements(node->shape))
            d->tensors[d->n++] = node;
    }
}

static void dissection_finish(dissection *d) {
    strata_executable_destroy(d->executable);
    free(d->tensors);
    strata_graph_destroy(d->step.graph);
}

/* Runs the step on one replica, without exchanges and update. */
static strata_status dissect(strata_model *model, int replica, const strata_examined_step *what, dissection *out,
                             strata_error *err) {
    const strata_step_options step = {.replica = replica, .batch = what->n, .form = {.byte_scale = what->byte_scale}};
    const strata_executable_options opts = {.n_slots = 2, .no_fusion = true};
    *out = (dissection){0};
    STRATA_TRY(strata_model_check_whole(model, "the search for the tensor", err));
    STRATA_TRY(strata_step_build(&out->step, model, STRATA_PROGRAM_TRAIN, &step, err));
    STRATA_TRY(STRATA_NEW(out->tensors, out->step.graph->n_nodes, err, "no host memory"));
    list_tensors(out);
    return strata_executable_create(model->replicas[replica].device, out->tensors, out->n, NULL, 0, &opts, &out->executable,
                                    err);
}

strata_status strata_model_examine(const strata_model *model, strata_executable *exe, const strata_examined_step *what,
                                   int *out_slot, strata_error *err) {
    strata_program_part part = {.executable = exe, .n = what->n};
    strata_program_find_inputs(model, &part);
    STRATA_TRY(strata_executable_acquire(exe, out_slot, err));
    strata_run_write_numbers(&what->numbers, &part, *out_slot, what->row, what->n);
    strata_part_write_examples(model, &part, *out_slot, &what->source, what->first);
    STRATA_TRY(strata_executable_submit(exe, *out_slot, err));
    return strata_executable_wait(exe, *out_slot, err);
}

/* ---- the first tensor that is not finite ---- */

typedef struct statistics {
    /* The smallest, the largest and the mean of the finite elements. */
    double least, most, mean;
    int64_t n_finite, n_nan, n_infinite;
} statistics;

static statistics look_at(const strata_tensor *tensor, const void *values) {
    statistics s = {0};
    const int64_t n = strata_shape_elements(tensor->shape);
    for (int64_t i = 0; i < n; i++) {
        const double value = strata_element_get(tensor->dtype, values, i);
        s.n_nan += isnan(value) != 0;
        s.n_infinite += isinf(value) != 0;
        if (!isfinite(value)) continue;
        if (!s.n_finite || value < s.least) s.least = value;
        if (!s.n_finite || value > s.most) s.most = value;
        s.mean += (value - s.mean) / (double)++s.n_finite;
    }
    return s;
}

static void describe(strata_text *text, const strata_tensor *tensor, const void *values) {
    const statistics s = look_at(tensor, values);
    strata_text_add(text, "%s %s %s", strata_tensor_name(tensor), strata_shape_text(tensor->shape).text,
                    strata_dtype_name(tensor->dtype));
    if (s.n_finite) strata_text_add(text, " from %.4g to %.4g, mean %.4g", s.least, s.most, s.mean);
    if (s.n_nan) strata_text_add(text, ", %lld NaN", (long long)s.n_nan);
    if (s.n_infinite) strata_text_add(text, ", %lld infinite", (long long)s.n_infinite);
}

static int index_of(const dissection *d, const strata_tensor *tensor) {
    for (int i = 0; i < d->n; i++)
        if (d->tensors[i] == tensor) return i;
    return -1;
}

/* Describes a tensor, for example "dense (4,8) f32 from 0 to 3, mean 1.2, 3 NaN, by op relu of x (4,3) f32 from 0 to 1, mean
 * 0.5; ...". */
static void describe_node(strata_text *text, const dissection *d, int slot, int index) {
    const strata_tensor *node = d->tensors[index];
    describe(text, node, strata_executable_output(d->executable, slot, index));
    if (node->n_inputs) strata_text_add(text, ", by op %s", node->op->name);
    for (int i = 0, n_listed = 0; i < node->n_inputs && n_listed < MOST_INPUTS_LISTED; i++) {
        const int input = index_of(d, node->inputs[i]);
        if (input < 0) continue; /* integers, or a constant */
        strata_text_add(text, n_listed++ ? "; " : " of ");
        describe(text, node->inputs[i], strata_executable_output(d->executable, slot, input));
    }
}

static bool is_block(const dissection *d, const strata_model *model, const strata_tensor *tensor) {
    for (int k = 0; k < model->parameters.n_blocks; k++)
        if (d->step.blocks[k] == tensor) return true;
    return false;
}

/* Whether the tensor is the losses of the examples, or these are computed from it. Such tensors are before the gradients. */
static bool leads_to_loss(const dissection *d, int index) {
    for (int i = index; i < d->n; i++)
        if (!strcmp(strata_tensor_name(d->tensors[i]), "loss")) return true;
    return false;
}

static strata_status tell_not_finite(const strata_model *model, const dissection *d, int slot, const char *where,
                                     strata_error *err) {
    static const char earlier[] =
        ": in an earlier step the loss was finite, but its gradient was not (--debug nan, or strata_compile_options."
        "gradient_norm, ends in that step)";
    int first = 0;
    for (; first < d->n; first++) {
        const statistics s = look_at(d->tensors[first], strata_executable_output(d->executable, slot, first));
        if (s.n_nan || s.n_infinite) break;
    }
    if (first == d->n) return STRATA_OK;
    STRATA_FINISHED(strata_text) text = {0};
    describe_node(&text, d, slot, first);
    return strata_fail(
        err, STRATA_DATA,
        "the %s is not finite at %s; the first tensor that is not is %s%s. A smaller learning rate, or checking the "
        "data, may help",
        leads_to_loss(d, first) ? "loss" : "gradient", where, text.failed ? strata_tensor_name(d->tensors[first]) : text.bytes,
        is_block(d, model, d->tensors[first]) ? earlier : "");
}

strata_status strata_model_diagnose(strata_model *model, const strata_examined_step *what, const char *where,
                                    strata_error *err) {
    STRATA_FINISHED(dissection) d = {0};
    int slot = 0;
    strata_error reason = {0};
    strata_status status = dissect(model, 0, what, &d, &reason);
    if (!status) status = strata_model_examine(model, d.executable, what, &slot, &reason);
    if (!status) return tell_not_finite(model, &d, slot, where, err);
    return strata_fail(err, STRATA_DATA, "the loss is not finite at %s; where that began was not found: %s", where,
                       reason.message);
}

/* ---- the first tensor whose bits differ in a second run ---- */

static strata_status tell_difference(strata_model *model, int replica, const dissection *d, const int slots[2],
                                     const char *where, strata_error *err) {
    for (int i = 0; i < d->n; i++) {
        const char *first = strata_executable_output(d->executable, slots[0], i),
                   *second = strata_executable_output(d->executable, slots[1], i);
        const strata_tensor *node = d->tensors[i];
        const size_t bytes = strata_dtype_bytes(node->dtype);
        int64_t n = strata_shape_elements(node->shape), n_other = 0, at = -1;
        for (int64_t e = 0; e < n; e++)
            if (memcmp(first + (size_t)e * bytes, second + (size_t)e * bytes, bytes)) {
                n_other++;
                if (at < 0) at = e;
            }
        if (n_other)
            return strata_fail(
                err, STRATA_DATA,
                "at %s the step gives other bits on %s when it is run again: the first tensor that differs is %s "
                "%s%s, by op %s, in %lld of its elements; element %lld was %.9g, then %.9g",
                where, strata_device_get_info(model->replicas[replica].device)->id, strata_tensor_name(node),
                strata_dtype_name(node->dtype), strata_shape_text(node->shape).text, node->op->name, (long long)n_other,
                (long long)at, strata_element_get(node->dtype, first, at), strata_element_get(node->dtype, second, at));
    }
    return STRATA_OK;
}

strata_status strata_model_repeat(strata_model *model, const strata_examined_step *what, const char *where, strata_error *err) {
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        STRATA_FINISHED(dissection) d = {0};
        int slots[2] = {0, 0};
        STRATA_TRY(dissect(model, r, what, &d, err));
        for (int i = 0; i < 2; i++) STRATA_TRY(strata_model_examine(model, d.executable, what, &slots[i], err));
        STRATA_TRY(tell_difference(model, r, &d, slots, where, err));
    }
    return STRATA_OK;
}
