/* SPDX-License-Identifier: Apache-2.0
 *
 * random_uniform, random_normal and dropout, by Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3", SC 2011). Four consecutive elements share one block of four words. The block's counter is (element / 4, its
 * upper half, stream, step), and its key is the seed. `state` is i32 (8): the seed's low and high word, the step, and in words
 * 4 and 5 the index of the first row. A tensor may be a part of a whole batch; this is then the row of the whole at which the
 * part begins. A row is an index of the leading axis. */
#include "helpers.h"

enum { PHILOX_OPS = 40, STATE_WORDS = 8 };

typedef struct sequence {
    uint32_t key[2], stream, step;
    /* The index of the first element in the whole. */
    uint64_t first;
} sequence;

static sequence sequence_of(const step *s, const void *state) {
    uint32_t words[STATE_WORDS];
    memcpy(words, state, sizeof words);
    const uint64_t row = s->out->rank && s->out->dims[0] ? (uint64_t)(s->out->n / s->out->dims[0]) : 1;
    return (sequence){
        {words[0], words[1]}, (uint32_t)attribute_int(s, "stream", 0), words[2], ((uint64_t)words[5] << 32 | words[4]) * row};
}

static void philox(const sequence *s, uint64_t quad, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)quad, c1 = (uint32_t)(quad >> 32), c2 = s->stream, c3 = s->step, k0 = s->key[0], k1 = s->key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Returns a number in [0, 1), which is exact in f32. */
static float uniform_of(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

/* The function that is called for each element, with the four words of the element's block and its place in the block. */
typedef void random_element(const call *call, int64_t i, int place, const uint32_t words[4]);

static void random_run(const call *call, const void *state, random_element *element) {
    const sequence s = sequence_of(call->step, state);
    uint32_t words[4];
    uint64_t quad = UINT64_MAX;
    for (int64_t i = 0; i < call->step->out->n; i++) {
        const uint64_t at = s.first + (uint64_t)i;
        if (at / 4 != quad) philox(&s, quad = at / 4, words);
        element(call, i, (int)(at % 4), words);
    }
}

static const char *state_refuse(const array *state) {
    return state->dtype == STRATA_PLUGIN_I32 && state->n == STATE_WORDS ? NULL : "its state is not i32 (8)";
}

static const char *random_refuse(const step *s) {
    return s->out->dtype == STRATA_PLUGIN_F32 ? state_refuse(s->in[0]) : "its result is not f32";
}

static void random_cost(const step *s, work *work) {
    work->vector_ops = (double)s->out->n * PHILOX_OPS;
}

static void uniform_element(const call *call, int64_t i, int place, const uint32_t words[4]) {
    ((float *)call->out)[i] = uniform_of(words[place]);
}

static void random_uniform_run(const call *call) {
    random_run(call, call->in[0], uniform_element);
}

/* Box-Muller transform: words 0 and 1 of a block give two numbers, and words 2 and 3 give two more. */
static void normal_element(const call *call, int64_t i, int place, const uint32_t words[4]) {
    const uint32_t *pair = words + place / 2 * 2;
    const double radius = sqrt(-2 * log((double)uniform_of(pair[0]) + 0x1p-24));
    const double angle = 6.283185307179586476925 * (double)uniform_of(pair[1]);
    ((float *)call->out)[i] = (float)(radius * (place % 2 ? sin(angle) : cos(angle)));
}

static void random_normal_run(const call *call) {
    random_run(call, call->in[0], normal_element);
}

/* Inputs: x, state. */
static const char *dropout_refuse(const step *s) {
    const double rate = attribute_float(s, "rate", 0);
    if (!(rate >= 0 && rate < 1)) return "its rate is not at least 0 and below 1";
    if (!same_shape(s->in[0], s->out) || s->in[0]->dtype != s->out->dtype) return "its result is not like its operand";
    return state_refuse(s->in[1]);
}

static void dropout_run(const call *call) {
    const double given = attribute_float(call->step, "rate", 0);
    const float rate = (float)given, scale = (float)(1 / (1 - given)), *x = call->in[0];
    const sequence s = sequence_of(call->step, call->in[1]);
    float *y = call->out;
    uint32_t words[4];
    uint64_t quad = UINT64_MAX;
    for (int64_t i = 0; i < call->step->out->n; i++) {
        const uint64_t at = s.first + (uint64_t)i;
        if (at / 4 != quad) philox(&s, quad = at / 4, words);
        y[i] = uniform_of(words[at % 4]) >= rate ? x[i] * scale : 0;
    }
}
