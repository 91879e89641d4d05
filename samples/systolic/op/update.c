/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of variables in place. An optimizer has the inputs parameters, slots, gradients, step [, gate]. All are f32; there
 * may be fewer gradients than parameters. `step` contains numbers such as the learning rate. If the gate is not finite,
 * nothing changes. For a slot that the settings do not need, the parameters are passed a second time; such a slot is not
 * written. */
#include "helpers.h"

enum { RATE = 0, PLAIN_RATE = 1, CORRECTION_1 = 2, CORRECTION_2 = 3, STEP_WORDS = 8 };

/* ---- optimizers ---- */

static const char *optimizer_refuse(const step *s, int n_slots) {
    const int step_at = n_slots + 2;
    if (!inputs_are(s, 0, s->n_inputs, STRATA_PLUGIN_F32) || s->out->dtype != STRATA_PLUGIN_F32)
        return "its operands are not f32";
    for (int i = 1; i <= n_slots; i++)
        if (s->in[i]->n != s->in[0]->n) return "a slot is not as long as its parameters";
    if (s->in[n_slots + 1]->n > s->in[0]->n || s->out->n != s->in[0]->n) return "its gradients are longer than its parameters";
    if (s->in[step_at]->n != STEP_WORDS) return "its step has not 8 numbers";
    if (s->n_inputs > step_at + 1 && s->in[step_at + 1]->n != 1) return "its gate is not one number";
    return NULL;
}

static bool gate_is_open(const call *call, int gate_at) {
    return call->step->n_inputs <= gate_at || isfinite(*(const float *)call->in[gate_at]);
}

#define OPTIMIZER(name, slots)                        \
    static const char *name##_refuse(const step *s) { \
        return optimizer_refuse(s, slots);            \
    }

/* Operations for each element; roots and divisions count as several. */
static void optimizer_cost(const step *s, work *work) {
    const bool plain = !strcmp(s->op->name, "sgd");
    const double n = (double)s->in[0]->n;
    work->vector_ops = n * (plain ? 4 : 20);
}

OPTIMIZER(sgd, 1)
static void sgd_run(const call *call) {
    const float momentum = (float)attribute_float(call->step, "momentum", 0), *g = call->in[2], *step = call->in[3];
    const bool nesterov = attribute_int(call->step, "nesterov", 0) != 0;
    const float rate = step[RATE];
    float *p = call->out, *v = (float *)call->in[1];
    const int64_t n = call->step->in[2]->n;
    if (!gate_is_open(call, 4)) return;
    if (momentum == 0) {
        for (int64_t i = 0; i < n; i++) p[i] -= rate * g[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        v[i] = momentum * v[i] + g[i];
        p[i] -= rate * (nesterov ? g[i] + momentum * v[i] : v[i]);
    }
}

OPTIMIZER(adam, 2)
static void adam_run(const call *call) {
    const float beta1 = (float)(1 - attribute_float(call->step, "beta1", 0.9));
    const float beta2 = (float)(1 - attribute_float(call->step, "beta2", 0.999));
    const float epsilon = (float)attribute_float(call->step, "epsilon", 1e-7), *g = call->in[3], *step = call->in[4];
    const float decay = (float)attribute_float(call->step, "decay", 0) * step[PLAIN_RATE], rate = step[RATE];
    float *restrict p = call->out, *restrict m = (float *)call->in[1], *restrict v = (float *)call->in[2];
    const int64_t n = call->step->in[3]->n;
    if (!gate_is_open(call, 5)) return;
    for (int64_t i = 0; i < n; i++) {
        m[i] += beta1 * (g[i] - m[i]);
        v[i] += beta2 * (g[i] * g[i] - v[i]);
        p[i] -= decay * p[i];
        p[i] -= rate * m[i] / (sqrtf(v[i]) + epsilon);
    }
}

OPTIMIZER(rmsprop, 3)
static void rmsprop_run(const call *call) {
    const float rho = (float)attribute_float(call->step, "rho", 0.9),
                rest = (float)(1 - attribute_float(call->step, "rho", 0.9));
    const float momentum = (float)attribute_float(call->step, "momentum", 0), *g = call->in[4], *step = call->in[5];
    const float epsilon = (float)attribute_float(call->step, "epsilon", 1e-7);
    const bool centered = attribute_int(call->step, "centered", 0) != 0;
    float *p = call->out, *square = (float *)call->in[1], *mean = (float *)call->in[2], *v = (float *)call->in[3];
    if (!gate_is_open(call, 6)) return;
    for (int64_t i = 0; i < call->step->in[4]->n; i++) {
        square[i] = rho * square[i] + rest * g[i] * g[i];
        float spread = square[i];
        if (centered) {
            mean[i] = rho * mean[i] + rest * g[i];
            spread -= mean[i] * mean[i];
        }
        float change = step[RATE] * g[i] / sqrtf(spread + epsilon);
        if (momentum != 0) change = v[i] = momentum * v[i] + change;
        p[i] -= change;
    }
}

OPTIMIZER(adagrad, 1)
static void adagrad_run(const call *call) {
    const float epsilon = (float)attribute_float(call->step, "epsilon", 1e-7), *g = call->in[2], *step = call->in[3];
    float *p = call->out, *sum = (float *)call->in[1];
    if (!gate_is_open(call, 4)) return;
    for (int64_t i = 0; i < call->step->in[2]->n; i++) {
        sum[i] += g[i] * g[i];
        p[i] -= step[RATE] * g[i] / sqrtf(sum[i] + epsilon);
    }
}

/* Inputs: direction, m, v, parameters, gradients, step [, gate]. It computes only the direction; other ops change the
 * parameters. */
OPTIMIZER(lamb, 3)
static void lamb_run(const call *call) {
    const float beta1 = (float)(1 - attribute_float(call->step, "beta1", 0.9));
    const float beta2 = (float)(1 - attribute_float(call->step, "beta2", 0.999));
    const float epsilon = (float)attribute_float(call->step, "epsilon", 1e-6),
                decay = (float)attribute_float(call->step, "decay", 0);
    const float *p = call->in[3], *g = call->in[4], *step = call->in[5];
    float *direction = call->out, *m = (float *)call->in[1], *v = (float *)call->in[2];
    if (!gate_is_open(call, 6)) return;
    for (int64_t i = 0; i < call->step->in[4]->n; i++) {
        m[i] += beta1 * (g[i] - m[i]);
        v[i] += beta2 * (g[i] * g[i] - v[i]);
        direction[i] = m[i] * step[CORRECTION_1] / (sqrtf(v[i] * step[CORRECTION_2]) + epsilon) + decay * p[i];
    }
}

/* ---- other updates ---- */

static const char *assign_refuse(const step *s) {
    return s->in[0]->n == s->in[1]->n && s->in[0]->dtype == s->in[1]->dtype ? NULL : "its value is not like its variable";
}

static void assign_run(const call *call) {
    const array *x = call->step->in[0];
    if (x->n) memmove(call->out, call->in[1], (size_t)(x->n * dtype_bytes(x->dtype)));
}

static void assign_add_run(const call *call) {
    const array *x = call->step->in[0];
    if (x->dtype == STRATA_PLUGIN_F32) {
        for (int64_t i = 0; i < x->n; i++) ((float *)call->out)[i] += ((const float *)call->in[1])[i];
        return;
    }
    for (int64_t i = 0; i < x->n; i++)
        whole_set(x->dtype, call->out, i,
                  (int64_t)((uint64_t)whole_get(x->dtype, call->out, i) + (uint64_t)whole_get(x->dtype, call->in[1], i)));
}

/* Inputs: state, value, rates [, gate]. state += rates (value - state). With a rate of 1 the state becomes the value, and with
 * a rate of 0 it does not change. */
static const char *moving_average_refuse(const step *s) {
    if (!inputs_are(s, 0, s->n_inputs, STRATA_PLUGIN_F32)) return "its operands are not f32";
    if (s->in[1]->n != s->in[0]->n || s->in[2]->n != s->in[0]->n) return "its operands are not alike";
    return s->n_inputs > 3 && s->in[3]->n != 1 ? "its gate is not one number" : NULL;
}

static void moving_average_run(const call *call) {
    const float *value = call->in[1], *rates = call->in[2];
    float *state = call->out;
    if (!gate_is_open(call, 3)) return;
    for (int64_t i = 0; i < call->step->in[0]->n; i++)
        if (rates[i] != 0) state[i] = rates[i] == 1 ? value[i] : state[i] + rates[i] * (value[i] - state[i]);
}
