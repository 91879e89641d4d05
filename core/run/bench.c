/* SPDX-License-Identifier: Apache-2.0
 *
 * Times one node alone on a device (bench.h). */
#include "core/run/bench.h"

#include <float.h>

#include "core/base/trace.h"

enum {
    /* The index of the first arena that contains operands. The arenas INPUT and OUTPUT before it stay empty: a program copies
     * them, and the time of these copies is not the node's. */
    FIRST_ARENA = STRATA_ARENA_OUTPUT + 1,
    /* The most runs that are submitted and have not ended. A slot is submitted again when its run has ended. */
    SLOTS = 3,
    /* The most times that a piece contains the node, on a GPU. */
    MOST_NODES = 16,
    MOST_RUNS = 256,
    /* The number of elements after which the contents of an operand repeat; a prime, so that rows differ. */
    FILL_PERIOD = 65521
};
/* WORTH_A_SUBMISSION is a number of FLOPs and bytes that takes tens of microseconds on the fastest devices, so that the cost
 * of a submission matters little. ROUND_SECONDS is the length of a round. Runs in the first WARM_UP_SECONDS are not
 * counted. */
static const double WORTH_A_SUBMISSION = 1e9, ROUND_SECONDS = 1e-3, WARM_UP_SECONDS = 5e-3;

/* ---- places ---- */

/* A range of bytes in an arena of the plan. Operands in the same range share memory. */
typedef struct span {
    int arena;
    int64_t begin, end;
} span;

/* Operand i of the node: one of its inputs, or, after the last input, the node itself. */
static const strata_tensor *operand(const strata_tensor *node, int i) {
    return i < node->n_inputs ? node->inputs[i] : node;
}

static span span_of(const strata_tensor *tensor, const strata_place *planned) {
    const strata_place place = planned ? planned[tensor->id] : (strata_place){.arena = tensor->id};
    return (span){place.arena, place.offset, place.offset + strata_tensor_bytes(tensor)};
}

static bool overlap(const span *a, const span *b) {
    return a->arena == b->arena && a->begin < b->end && b->begin < a->end;
}

/* Finds spans that do not overlap and that together contain all operands. Returns their number. */
static int find_spans(const strata_tensor *node, const strata_place *planned, span *spans) {
    int n = 0;
    for (int i = 0; i <= node->n_inputs; i++) {
        span own = span_of(operand(node, i), planned);
        if (own.begin == own.end) continue;
        for (int k = n - 1; k >= 0; k--) {
            if (!overlap(&own, &spans[k])) continue;
            if (spans[k].begin < own.begin) own.begin = spans[k].begin;
            if (spans[k].end > own.end) own.end = spans[k].end;
            spans[k] = spans[--n];
        }
        spans[n++] = own;
    }
    return n;
}

static strata_status fill(const strata_bench *bench, const strata_tensor *tensor, strata_error *err) {
    const int64_t n = strata_shape_elements(tensor->shape), bytes = strata_tensor_bytes(tensor);
    if (!n || !strata_dtype_is_float(tensor->dtype)) return STRATA_OK;
    STRATA_FREED char *data = NULL;
    STRATA_TRY(STRATA_NEW(data, bytes, err, "bench: no host memory for %lld bytes", (long long)bytes));
    uint32_t random = 12345;
    for (int64_t i = 0; i < n && i < FILL_PERIOD; i++) {
        random = random * 1664525u + 1013904223u;
        strata_element_set(tensor->dtype, data, i, (double)(random >> 8) / (1 << 23) - 1);
    }
    const int64_t period = FILL_PERIOD * (int64_t)strata_dtype_bytes(tensor->dtype);
    for (int64_t at = period; at < bytes; at += period)
        memcpy(data + at, data, (size_t)(bytes - at < period ? bytes - at : period));
    const strata_place *place = &bench->places[tensor->id];
    return bench->device->api->upload(bench->device, bench->arenas[place->arena].buffer, place->offset, data, bytes, err);
}

/* Creates an arena for each span, and places the operands in the arenas. */
static strata_status make_arenas(strata_bench *bench, const strata_place *planned, span *spans, strata_error *err) {
    const strata_tensor *node = bench->node;
    const int n = find_spans(node, planned, spans);
    for (int k = 0; k < n; k++) {
        strata_arena *arena = &bench->arenas[FIRST_ARENA + k];
        spans[k].begin -= spans[k].begin % STRATA_PLACE_ALIGNMENT;
        *arena = (strata_arena){.kind = STRATA_ARENA_WORK, .bytes = spans[k].end - spans[k].begin};
        STRATA_TRY(bench->device->api->buffer_create(bench->device, arena->bytes, &arena->buffer, err));
        bench->piece.n_arenas++;
    }
    for (int i = 0; i <= node->n_inputs; i++) {
        const strata_tensor *tensor = operand(node, i);
        const span own = span_of(tensor, planned);
        bench->places[tensor->id] = (strata_place){.arena = STRATA_ARENA_INPUT}; /* if it has no bytes */
        for (int k = 0; k < n; k++)
            if (overlap(&own, &spans[k]))
                bench->places[tensor->id] = (strata_place){FIRST_ARENA + k, own.begin - spans[k].begin, own.end - own.begin};
        if (tensor != node) STRATA_TRY(fill(bench, tensor, err));
    }
    return STRATA_OK;
}

strata_status strata_bench_init(strata_bench *bench, strata_device *device, const strata_tensor *node,
                                const strata_place *planned, strata_error *err) {
    static const char no_memory[] = "bench: no host memory for a node of %d operands";
    const int n_places = node->id + 1, n_operands = node->n_inputs + 1; /* the inputs' ids are smaller */
    const double work = strata_node_flops(node) + strata_node_moved_bytes(node);
    int n_nodes = 1;
    const strata_device_class class = device->info.device_class;
    const bool is_gpu = class == STRATA_DEVICE_INTEGRATED_GPU || class == STRATA_DEVICE_DISCRETE_GPU;
    if (is_gpu && work <= WORTH_A_SUBMISSION)
        n_nodes = work * MOST_NODES <= WORTH_A_SUBMISSION ? MOST_NODES : (int)(WORTH_A_SUBMISSION / work);
    *bench = (strata_bench){.device = device, .node = node};
    STRATA_FREED span *spans = NULL;
    STRATA_TRY(STRATA_NEW(bench->nodes, n_nodes, err, no_memory, n_operands));
    STRATA_TRY(STRATA_NEW(bench->places, n_places, err, no_memory, n_operands));
    STRATA_TRY(STRATA_NEW(bench->arenas, FIRST_ARENA + n_operands, err, no_memory, n_operands));
    STRATA_TRY(STRATA_NEW(spans, n_operands, err, no_memory, n_operands));
    for (int i = 0; i < n_nodes; i++) bench->nodes[i] = node;
    for (int id = 0; id < n_places; id++) bench->places[id].arena = -1;
    bench->arenas[STRATA_ARENA_OUTPUT].kind = STRATA_ARENA_OUTPUT;
    bench->piece = (strata_piece){.nodes = bench->nodes,
                                  .n_nodes = n_nodes,
                                  .places = bench->places,
                                  .n_places = n_places,
                                  .arenas = bench->arenas,
                                  .n_arenas = FIRST_ARENA,
                                  .n_slots = SLOTS};
    return make_arenas(bench, planned, spans, err);
}

void strata_bench_finish(strata_bench *bench) {
    for (int i = FIRST_ARENA; i < bench->piece.n_arenas; i++)
        bench->device->api->buffer_destroy(bench->device, bench->arenas[i].buffer);
    free(bench->nodes);
    free(bench->places);
    free(bench->arenas);
    *bench = (strata_bench){0};
}

/* ---- times ---- */

strata_status strata_bench_fastest(strata_bench_run *run, void *context, int rounds, double *out_us, strata_error *err) {
    double best = DBL_MAX, began;
    STRATA_TRY(run(context, 1, err)); /* drivers compile or load code on the first run */
    const double ready = strata_trace_now();
    do { /* an idle GPU must first raise its clock */
        began = strata_trace_now();
        STRATA_TRY(run(context, 1, err));
    } while (strata_trace_now() - ready < WARM_UP_SECONDS);
    const double once = strata_trace_now() - began;
    const int n = once * MOST_RUNS <= ROUND_SECONDS ? MOST_RUNS : once < ROUND_SECONDS ? (int)(ROUND_SECONDS / once) : 1;
    for (int round = 0; round < rounds; round++) {
        began = strata_trace_now();
        STRATA_TRY(run(context, n, err));
        const double each = (strata_trace_now() - began) / n;
        if (each < best) best = each;
    }
    *out_us = best * 1e6;
    return STRATA_OK;
}

typedef struct runs {
    strata_device *device;
    strata_program *program;
} runs;

static strata_status run_program(void *context, int n, strata_error *err) {
    const runs *r = context;
    uint64_t tickets[SLOTS] = {0};
    for (int i = 0; i < n; i++) {
        uint64_t *ticket = &tickets[i % SLOTS];
        if (i >= SLOTS) STRATA_TRY(r->device->api->wait(r->device, *ticket, err));
        STRATA_TRY(r->device->api->run(r->program, i % SLOTS, ticket, err));
    }
    return r->device->api->wait(r->device, tickets[(n - 1) % SLOTS], err);
}

strata_status strata_bench_time(const strata_bench *bench, strata_program *program, int rounds, double *out_us,
                                strata_error *err) {
    runs r = {bench->device, program};
    STRATA_TRY(strata_bench_fastest(run_program, &r, rounds, out_us, err));
    *out_us /= bench->piece.n_nodes;
    return STRATA_OK;
}
