/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between the cores of the board, over the ring (ring.c). */
#include "helpers.h"

/* Returns the cores that take part, a bit for each; 0: the attribute is missing or wrong. */
static uint64_t members_of(const step *s, int *out_n) {
    const strata_plugin_attribute *members = attribute_find(s, "members");
    uint64_t bits = 0;
    *out_n = 0;
    if (!members || members->type != STRATA_PLUGIN_INTS) return 0;
    for (int i = 0; i < members->n; i++) {
        const int64_t core = members->ints[i];
        if (core < 0 || core >= MOST_CORES || bits >> core) return 0; /* they must be ascending */
        bits |= UINT64_C(1) << core;
    }
    *out_n = members->n;
    return bits;
}

static bool is_mean(const step *s) {
    return !strcmp(attribute_text(s, "reduction", "sum"), "mean");
}

static const char *exchange_refuse(const step *s) {
    int n;
    if (!members_of(s, &n)) return "its members are not a list of the board's cores in ascending order";
    if (s->in[0]->dtype != s->out->dtype) return "its result is not of its operand's dtype";
    const char *reduction = attribute_text(s, "reduction", "sum");
    return strcmp(reduction, "sum") && strcmp(reduction, "mean") ? "it reduces by something else than a sum or a mean" : NULL;
}

static const char *all_reduce_refuse(const step *s) {
    return s->in[0]->n != s->out->n ? "its result is not like its operand" : exchange_refuse(s);
}

/* Returns the lengths of the members' parts along the axis; NULL: they do not add up to `whole`. */
static const int64_t *parts_of(const step *s, int n, int64_t whole) {
    const strata_plugin_attribute *lengths = attribute_find(s, "lengths");
    int64_t sum = 0;
    if (!lengths || lengths->type != STRATA_PLUGIN_INTS || lengths->n != n) return NULL;
    for (int i = 0; i < n; i++) {
        if (lengths->ints[i] < 0) return NULL;
        sum += lengths->ints[i];
    }
    return sum == whole ? lengths->ints : NULL;
}

static const char *all_gather_refuse(const step *s) {
    int n;
    const int axis = axis_of(s, s->out, "axis");
    const uint64_t members = members_of(s, &n);
    if (axis < 0 || s->in[0]->rank != s->out->rank) return "it has no such axis";
    if (members && !parts_of(s, n, s->out->dims[axis])) return "its parts do not make up its result";
    return exchange_refuse(s);
}

static const char *reduce_scatter_refuse(const step *s) {
    int n;
    const uint64_t members = members_of(s, &n);
    if (s->in[0]->rank < 1) return "its operand is a scalar";
    if (members && !parts_of(s, n, s->in[0]->dims[0])) return "its parts do not make up its operand";
    return exchange_refuse(s);
}

static void ring_cost(const step *s, work *work, double bytes, int rounds) {
    members_of(s, &work->members);
    work->ring_bytes = bytes;
    work->rounds = rounds;
    work->vector_ops = rounds == 2 ? (double)s->in[0]->n : 0;
}

static void all_reduce_cost(const step *s, work *work) {
    ring_cost(s, work, (double)(s->in[0]->n * dtype_bytes(s->in[0]->dtype)), 2);
}

static void all_gather_cost(const step *s, work *work) {
    ring_cost(s, work, (double)(s->out->n * dtype_bytes(s->out->dtype)), 1);
}

static void reduce_scatter_cost(const step *s, work *work) {
    ring_cost(s, work, (double)(s->in[0]->n * dtype_bytes(s->in[0]->dtype)), 1);
}

static void exchange_run(const call *call, contribution mine) {
    int n;
    mine.dtype = call->step->out->dtype;
    mine.members = members_of(call->step, &n);
    mine.in = call->in[0];
    mine.out = call->out;
    *call->status = ring_meet(call->core, &mine, call->error);
}

static void all_reduce_run(const call *call) {
    exchange_run(call, (contribution){.kind = is_mean(call->step) ? MEAN : SUM, .n = call->step->in[0]->n});
}

static void all_gather_run(const call *call) {
    const array *y = call->step->out;
    const int axis = axis_of(call->step, y, "axis");
    exchange_run(call, (contribution){.kind = GATHER,
                                      .n = y->n,
                                      .outer = product_of_dims(y, 0, axis),
                                      .inner = product_of_dims(y, axis + 1, y->rank),
                                      .lengths = attribute_find(call->step, "lengths")->ints});
}

static void reduce_scatter_run(const call *call) {
    const array *x = call->step->in[0];
    exchange_run(call, (contribution){.kind = is_mean(call->step) ? SCATTER_MEAN : SCATTER_SUM,
                                      .n = x->n,
                                      .outer = 1,
                                      .inner = product_of_dims(x, 1, x->rank),
                                      .lengths = attribute_find(call->step, "lengths")->ints});
}
