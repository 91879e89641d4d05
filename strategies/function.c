/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of replicas: a function is traced once for each replica and set of input shapes, compiled to a group of
 * executables, and then this group is run. */
#include <stdio.h>

#include "core/compile/passes.h"
#include "core/graph/graph.h"
#include "core/run/device.h"
#include "core/run/group.h"
#include "strategies/context.h"

enum { MOST_INPUTS = 16 };

/* The type and shape of an input or output on a replica. */
typedef struct input_spec {
    strata_dtype dtype;
    strata_shape shape;
} input_spec;

/* The function for one set of input shapes. */
typedef struct trace {
    strata_memory memory;
    int n_inputs, n_outputs;
    input_spec *outputs; /* [replica * n_outputs + output] */
    uint64_t elsewhere;  /* a hash of the input shapes of all workers; 0: these do not matter */
    strata_feed *feeds;  /* [n_feeds], the same on all replicas */
    int n_feeds;
    strata_group *group;
    struct trace *next;
    input_spec specs[]; /* [replica * n_inputs + input] */
} trace;

struct strata_function {
    strata_strategy *strategy;
    strata_replica_function body;
    void *user;
    trace *traces;
    bool gathers; /* there is an all_gather, so traces depend on the input shapes of all workers */
    strata_owned owned;
};

static void destroy_owned(void *function) {
    strata_function_destroy(function);
}

static strata_status check_strategy(const strata_strategy *strategy, strata_error *err) {
    if (strategy->trainer)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "strategy %s has no functions of one's own; train with strata_model_fit or strata/coordinator.h",
                           strategy->name);
    if (strategy->microbatches <= 1) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "strategy %s: microbatches is %d, but a function of one's own computes a batch in one piece; leave "
                       "microbatches out, or train with strata_model_fit",
                       strategy->name, strategy->microbatches);
}

strata_status strata_function_create(strata_strategy *strategy, strata_replica_function body, void *user,
                                     strata_function **out_function, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_function_create", "make functions before the run", err));
    STRATA_TRY(check_strategy(strategy, err));
    strata_function *function = calloc(1, sizeof *function);
    if (!function) return strata_fail(err, STRATA_OUT_OF_MEMORY, "function: no host memory");
    *function = (strata_function){.strategy = strategy, .body = body, .user = user};
    strata_strategy_own(strategy, &function->owned, destroy_owned, function);
    *out_function = function;
    return STRATA_OK;
}

static void destroy_trace(trace *t) {
    strata_group_destroy(t->group);
    strata_memory_finish(&t->memory);
    free(t);
}

void strata_function_destroy(strata_function *function) {
    if (!function) return;
    strata_owned_forget(&function->owned);
    for (trace *t = function->traces, *next; t; t = next) {
        next = t->next;
        destroy_trace(t);
    }
    free(function);
}

strata_communication_totals strata_function_communication(const strata_function *function) {
    strata_group_totals totals = {0};
    for (const trace *t = function->traces; t; t = t->next)
        strata_group_add(t->group, function->strategy->n_replicas, true, &totals);
    return strata_group_total(&totals);
}

/* ---- tracing ---- */

/* specs: [n_inputs] the replica's inputs. */
static strata_status build(const strata_function *function, const input_spec *specs, int n_inputs,
                           strata_replica_context *replica, strata_error *err) {
    strata_tensor *inputs[MOST_INPUTS];
    for (int i = 0; i < n_inputs; i++) {
        char name[16];
        snprintf(name, sizeof name, "input%d", i);
        inputs[i] = strata_input(replica->graph, name, specs[i].dtype, specs[i].shape);
    }
    const strata_replica_context *before = strata_set_replica(replica);
    strata_status status = function->body(replica, inputs, function->user, err);
    strata_set_replica(before);
    return status ? status : strata_graph_check(replica->graph, err);
}

/* Each worker sends the others the lengths that its replicas gather, and whether these have changed. */
static strata_status share_lengths(const strata_strategy *strategy, strata_gather_lengths *gathers, int n_gathers,
                                   strata_error *err) {
    const strata_workers *workers = &strategy->workers;
    const int n = workers->n_replicas, first = workers->first_replica;
    int64_t *lengths = gathers->lengths;
    for (int i = 0; i < n_gathers * n; i++) /* the other workers report theirs */
        if (i % n < first || i % n >= first + strategy->n_replicas) lengths[i] = 0;
    lengths[n_gathers * n] = gathers->differ;
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I64, STRATA_DTYPE_F32, lengths, lengths, n_gathers * n + 1, err));
    gathers->differ = lengths[n_gathers * n] > 0;
    lengths[n_gathers * n] = 0;
    return STRATA_OK;
}

/* Builds the graphs of all contexts. Builds them again if an all_gather got new lengths from other replicas while they were
 * built. */
static strata_status build_all(const strata_function *function, const trace *t, strata_replica_context *replicas,
                               strata_gather_lengths *gathers, strata_error *err) {
    const int n = strata_strategy_n_functions(function->strategy);
    do {
        gathers->differ = false;
        for (int r = 0; r < n; r++) {
            strata_graph_destroy(replicas[r].graph);
            replicas[r] = (strata_replica_context){.strategy = function->strategy, .id = r, .gathers = gathers};
            STRATA_TRY(strata_graph_create(&replicas[r].graph, err));
            strata_status status = build(function, t->specs + r * t->n_inputs, t->n_inputs, &replicas[r], err);
            if (!status && replicas[r].n_outputs != replicas[0].n_outputs)
                status = strata_fail(err, STRATA_INVALID, "it returns %d values, replica 0 returns %d", replicas[r].n_outputs,
                                     replicas[0].n_outputs);
            if (status) return strata_fail_in(err, status, "replica %d", r);
        }
        if (replicas[0].n_gathers && strata_strategy_has_workers(function->strategy))
            STRATA_TRY(share_lengths(function->strategy, gathers, replicas[0].n_gathers, err));
    } while (gathers->differ);
    return STRATA_OK;
}

/* Keeps every exchange in the program, also one whose result this replica does not use, because the other replicas wait for
 * it. */
static strata_status keep_exchanges(strata_replica_context *replica, strata_error *err) {
    const strata_graph *graph = replica->graph;
    for (int id = 0; id < graph->n_nodes; id++) {
        strata_tensor *node = graph->nodes[id];
        bool kept = !strata_is_communication(node);
        for (int i = 0; i < replica->n_updates && !kept; i++) kept = replica->updates[i] == node;
        if (kept) continue;
        if (replica->n_updates == STRATA_MAX_FUNCTION_NODES)
            return strata_fail(err, STRATA_INVALID, "it has more than %d updates and exchanges", STRATA_MAX_FUNCTION_NODES);
        replica->updates[replica->n_updates++] = node;
    }
    return STRATA_OK;
}

static strata_status compile(const strata_strategy *strategy, int device, int n_slots, strata_tensor *const *outputs,
                             int n_outputs, strata_tensor *const *updates, int n_updates, strata_executable **out,
                             strata_error *err) {
    const strata_executable_options opts = {.n_slots = n_slots};
    const strata_core_place place = strata_strategy_core_place(strategy, device, NULL);
    const strata_status status = strata_executable_create_replica(strategy->devices[device], outputs, n_outputs, updates,
                                                                  n_updates, &opts, &place, out, err);
    return status ? strata_fail_in(err, status, "replica %d", device) : STRATA_OK;
}

/* Compiles the part of each device of a mesh. A device without updates may have nothing to compute, but a program needs an
 * output. */
static strata_status compile_parts(const strata_replica_context *whole, const trace *t, int n_slots,
                                   strata_executable **executables, strata_error *err) {
    const strata_strategy *strategy = whole->strategy;
    STRATA_OWNED(strata_partition) *partition = NULL;
    STRATA_TRY(strata_function_divide(whole, t->n_inputs ? t->specs[0].shape : STRATA_SHAPE(), &partition, err));
    for (int d = 0; d < partition->n_devices; d++) {
        const strata_device_part *part = &partition->parts[d];
        const bool is_empty = !whole->n_outputs && !part->n_updates;
        strata_tensor *zero = is_empty ? strata_scalar(part->graph, STRATA_DTYPE_F32, 0) : NULL;
        STRATA_TRY(compile(strategy, d, n_slots, zero ? &zero : part->outputs, zero ? 1 : whole->n_outputs, part->updates,
                           part->n_updates, &executables[d], err));
    }
    return STRATA_OK;
}

static strata_status compile_all(const strata_function *function, trace *t, int n_slots, strata_replica_context *replicas,
                                 strata_executable **executables, strata_error *err) {
    const strata_strategy *strategy = function->strategy;
    const int n = strata_strategy_n_functions(strategy);
    t->n_outputs = replicas[0].n_outputs;
    STRATA_TRY(STRATA_TAKE(&t->memory, t->outputs, n * t->n_outputs, err, "function: no host memory"));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < t->n_outputs; i++) {
            const strata_tensor *output = replicas[r].outputs[i];
            t->outputs[r * t->n_outputs + i] = (input_spec){output->dtype, output->shape};
        }
    if (strata_strategy_has_mesh(strategy)) return compile_parts(&replicas[0], t, n_slots, executables, err);
    for (int r = 0; r < n; r++) {
        strata_replica_context *own = &replicas[r];
        STRATA_TRY(keep_exchanges(own, err));
        STRATA_TRY(
            compile(strategy, r, n_slots, own->outputs, own->n_outputs, own->updates, own->n_updates, &executables[r], err));
    }
    return STRATA_OK;
}

static strata_status take_feeds(trace *t, const strata_replica_context *replicas, int n, strata_error *err) {
    t->n_feeds = replicas[0].n_feeds;
    t->feeds = strata_memory_copy(&t->memory, replicas[0].feeds, (size_t)t->n_feeds * sizeof *t->feeds);
    if (!t->feeds) return strata_fail(err, STRATA_OUT_OF_MEMORY, "function: no host memory");
    for (int r = 1; r < n; r++)
        if (replicas[r].n_feeds != t->n_feeds)
            return strata_fail(err, STRATA_INVALID,
                               "replica %d applies other models or optimizers than replica 0; all must make the same calls", r);
    return STRATA_OK;
}

/* Either all traces of a function contain a gather or none does: workers exchange shapes before a run only where there are
 * gathers, so all of them must know this from the first trace on. */
static strata_status note_gathers(strata_function *function, trace *t, bool gathers, strata_error *err) {
    if (function->traces && gathers != function->gathers && strata_strategy_has_workers(function->strategy))
        return strata_fail(err, STRATA_INVALID,
                           "the function has an all_gather for some shapes of its inputs and not for others; with several "
                           "workers it must always have it");
    function->gathers = gathers;
    if (!gathers) t->elsewhere = 0;
    return STRATA_OK;
}

/* The types and shapes of a replica's inputs, as sent to the other workers. */
typedef struct sent_specs {
    int32_t n;
    input_spec specs[MOST_INPUTS];
} sent_specs;

static bool has_exchange(const strata_graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++)
        if (strata_is_communication(graph->nodes[id])) return true;
    return false;
}

/* Traces the function once more, for the shapes of worker 0's first replica, and compares this trace. */
static strata_status agree_as_first(const strata_function *function, const strata_replica_context *own, sent_specs *first,
                                    strata_error *err) {
    STRATA_FREED strata_replica_context *other = NULL;
    strata_error why = {0};
    STRATA_TRY(STRATA_NEW(other, 1, err, "function: no host memory"));
    *other = (strata_replica_context){.strategy = function->strategy, .gathers = own->gathers};
    strata_status status = strata_graph_create(&other->graph, &why);
    if (!status) status = build(function, first->specs, first->n, other, &why);
    status = strata_function_agree(own, status ? own : other, status ? &why : NULL, err);
    strata_graph_destroy(other->graph);
    return status;
}

/* Compares the workers' functions at the first trace, which all workers make at the same time if the function has exchanges. */
static strata_status agree(const strata_function *function, const trace *t, const strata_replica_context *own,
                           strata_error *err) {
    const strata_workers *workers = &function->strategy->workers;
    sent_specs mine = {.n = t->n_inputs}, first;
    bool same = true;
    if (!has_exchange(own->graph) && !strata_strategy_has_mesh(function->strategy)) return STRATA_OK;
    for (int i = 0; i < t->n_inputs; i++) mine.specs[i] = t->specs[i];
    first = mine;
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_U8, &first, sizeof first, err));
    for (int i = 0; i < t->n_inputs && first.n == mine.n; i++)
        same = same && strata_shape_equal(first.specs[i].shape, mine.specs[i].shape);
    if (same || first.n != mine.n || own->n_gathers) return strata_function_agree(own, own, NULL, err);
    return agree_as_first(function, own, &first, err);
}

static strata_status make_group(strata_function *function, trace *t, int n_slots, strata_error *err) {
    const int n = function->strategy->n_replicas, n_functions = strata_strategy_n_functions(function->strategy);
    const int all = strata_strategy_num_replicas_in_sync(function->strategy);
    STRATA_FINISHED(strata_memory) memory = {0};
    strata_replica_context *replicas = strata_memory_take(&memory, n, sizeof *replicas);
    strata_executable **executables = strata_memory_take(&memory, n, sizeof(*executables));
    strata_gather_lengths gathers = {.lengths =
                                         strata_memory_take(&memory, all * STRATA_MAX_GATHERS + 1, sizeof *gathers.lengths)};
    strata_status status = STRATA_OK;
    if (memory.failed) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "function: no host memory for %d replicas", n);
    if (!status) status = build_all(function, t, replicas, &gathers, err);
    if (!status) status = note_gathers(function, t, replicas[0].n_gathers > 0, err);
    if (!status) status = take_feeds(t, replicas, n_functions, err);
    if (!status && !function->traces && strata_strategy_has_workers(function->strategy))
        status = agree(function, t, &replicas[0], err);
    if (!status) status = compile_all(function, t, n_slots, replicas, executables, err);
    if (!status)
        status =
            strata_group_create(executables, n, &function->strategy->workers, function->strategy->cross_device, &t->group, err);
    else
        for (int r = 0; executables && r < n; r++) strata_executable_destroy(executables[r]);
    for (int r = 0; replicas && r < n; r++) strata_graph_destroy(replicas[r].graph);
    return status;
}

/* ---- finding the trace of a run's inputs ---- */

static const strata_array *value_of(const strata_per_replica *values, int replica) {
    return &values->arrays[values->n == 1 ? 0 : replica];
}

/* FNV-1a (Fowler, Noll, Vo) */
static uint64_t hash(const void *data, size_t n_bytes) {
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n_bytes; i++) value = (value ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return value;
}

/* Computes a hash of the input shapes of all workers, which is the same on each worker. bytes: of this worker's. */
static strata_status hash_everywhere(const strata_workers *workers, const input_spec *specs, size_t bytes, uint64_t *out_hash,
                                     strata_error *err) {
    const uint64_t own = hash(specs, bytes);
    STRATA_FREED uint64_t *all = NULL;
    STRATA_TRY(STRATA_NEW(all, workers->n, err, "function: no host memory"));
    STRATA_TRY(strata_workers_gather(workers, &own, all, sizeof own, err));
    *out_hash = hash(all, (size_t)workers->n * sizeof *all) | 1;
    return STRATA_OK;
}

static strata_status check_inputs(const strata_function *function, const strata_per_replica *inputs, int n_inputs,
                                  strata_error *err) {
    const int n = strata_strategy_n_functions(function->strategy);
    if (n_inputs > MOST_INPUTS)
        return strata_fail(err, STRATA_INVALID, "run: %d inputs; there can be %d", n_inputs, MOST_INPUTS);
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i].n != 1 && inputs[i].n != n)
            return strata_fail(err, STRATA_INVALID, "run: input %d has %d values; there are %d replicas (1 is shared by all)",
                               i, inputs[i].n, n);
    return STRATA_OK;
}

/* n_steps: how many steps the caller would run in one call of the devices. */
static strata_status find_trace(strata_function *function, int n_steps, const strata_per_replica *inputs, int n_inputs,
                                trace **out_trace, strata_error *err) {
    const strata_strategy *strategy = function->strategy;
    const int n = strata_strategy_n_functions(strategy) * n_inputs, n_slots = strata_strategy_steps_per_call(strategy, n_steps);
    const size_t bytes = (size_t)n * sizeof(input_spec);
    trace *t = calloc(1, sizeof *t + bytes), *known = function->traces;
    if (!t) return strata_fail(err, STRATA_OUT_OF_MEMORY, "function: no host memory");
    t->n_inputs = n_inputs;
    for (int k = 0; k < n; k++) { /* what is not set stays zeros, so that specs can be compared as bytes */
        const strata_array *value = value_of(&inputs[k % n_inputs], k / n_inputs);
        t->specs[k].dtype = value->dtype;
        t->specs[k].shape.rank = value->shape.rank;
        for (int i = 0; i < value->shape.rank; i++) t->specs[k].shape.dims[i] = value->shape.dims[i];
    }
    strata_status status = STRATA_OK;
    if (strata_strategy_has_workers(strategy) && (function->gathers || !function->traces))
        status = hash_everywhere(&strategy->workers, t->specs, bytes, &t->elsewhere, err);
    while (known && (known->n_inputs != n_inputs || known->elsewhere != t->elsewhere || memcmp(known->specs, t->specs, bytes) ||
                     strata_group_n_slots(known->group) < n_slots))
        known = known->next;
    if (!status && !known) status = make_group(function, t, n_slots, err);
    if (status || known) {
        destroy_trace(t);
        *out_trace = known;
        return status;
    }
    t->next = function->traces;
    *out_trace = function->traces = t;
    return STRATA_OK;
}

/* ---- running ---- */

/* The bytes of a value that a device is given: all, or under a mesh the rows of its examples. */
static size_t part_of(const strata_strategy *strategy, const trace *t, int device, const strata_array *value,
                      const char **out_begin) {
    const size_t bytes = strata_array_bytes(value);
    *out_begin = value->data;
    if (!strata_strategy_has_mesh(strategy) || !strata_function_divides(value->shape, t->specs[0].shape)) return bytes;
    int64_t first, n;
    const size_t row = bytes / (size_t)value->shape.dims[0];
    strata_strategy_share(strategy, value->shape.dims[0], device, &first, &n);
    *out_begin += (size_t)first * row;
    return (size_t)n * row;
}

static void feed(const strata_strategy *strategy, const trace *t, int replica, int slot, const strata_per_replica *inputs) {
    strata_executable *exe = strata_group_replica(t->group, replica);
    for (int i = 0; i < t->n_inputs; i++) {
        char name[16];
        const char *begin;
        const size_t bytes = part_of(strategy, t, replica, value_of(&inputs[i], replica), &begin);
        snprintf(name, sizeof name, "input%d", i);
        const int index = strata_executable_input_index(exe, name);
        if (index >= 0 && bytes) memcpy(strata_executable_input(exe, slot, index), begin, bytes);
    }
}

/* Counts the examples of a run by its first input. If the input is not a batch of strata_distributed_batches_next, all examples
 * are on this worker's replicas. */
static strata_status count_rows(const strata_function *function, const strata_per_replica *inputs, int n_inputs,
                                strata_run_rows *out_rows, strata_error *err) {
    *out_rows = (strata_run_rows){0};
    if (!n_inputs) return STRATA_OK;
    *out_rows = (strata_run_rows){.global = inputs[0].n_rows, .first = inputs[0].first_row};
    if (inputs[0].n_rows) return STRATA_OK;
    if (strata_strategy_has_workers(function->strategy) && !strata_strategy_has_mesh(function->strategy))
        return strata_fail(err, STRATA_INVALID,
                           "run: the function needs the size of the global batch, which no worker knows alone: pass what "
                           "strata_distributed_batches_next gave, or set n_rows and first_row of the first input");
    for (int r = 0; r < strata_strategy_n_functions(function->strategy); r++) {
        const strata_shape shape = value_of(&inputs[0], r)->shape;
        if (shape.rank) out_rows->global += shape.dims[0];
    }
    return STRATA_OK;
}

static strata_status feed_numbers(const strata_function *function, const trace *t, int slot, const strata_per_replica *inputs,
                                  strata_error *err) {
    strata_run_rows rows;
    if (!t->n_feeds) return STRATA_OK;
    STRATA_TRY(count_rows(function, inputs, t->n_inputs, &rows, err));
    for (int r = 0; r < function->strategy->n_replicas; r++) {
        strata_executable *exe = strata_group_replica(t->group, r);
        const strata_shape shape = t->n_inputs ? value_of(&inputs[0], r)->shape : STRATA_SHAPE();
        rows.own = shape.rank ? shape.dims[0] : 0;
        for (int i = 0; i < t->n_feeds; i++) {
            char name[16];
            strata_feed_name(i, name);
            const int index = strata_executable_input_index(exe, name);
            if (index >= 0) strata_feed_write(&t->feeds[i], &rows, strata_executable_input(exe, slot, index));
        }
        if (!strata_strategy_has_mesh(function->strategy)) rows.first += rows.own;
    }
    return STRATA_OK;
}

/* Copies output i of all replicas to the given arrays; arrays of another size are replaced. */
static strata_status take(const strata_function *function, const trace *t, int slot, int i, strata_per_replica *out,
                          strata_error *err) {
    const int n = strata_strategy_n_functions(function->strategy);
    if (out->n != n) {
        strata_per_replica_finish(out);
        STRATA_TRY(strata_per_replica_create(n, out, err));
    }
    for (int r = 0; r < n; r++) {
        const input_spec *spec = &t->outputs[r * t->n_outputs + i];
        strata_array *array = &out->arrays[r];
        if (!array->data || array->dtype != spec->dtype || !strata_shape_equal(array->shape, spec->shape)) {
            strata_array_finish(array);
            STRATA_TRY(strata_array_create(spec->dtype, spec->shape, array, err));
        }
        const size_t bytes = strata_array_bytes(array);
        if (bytes) memcpy(array->data, strata_executable_output(strata_group_replica(t->group, r), slot, i), bytes);
    }
    return STRATA_OK;
}

/* Acquires and fills a slot. */
static strata_status fill(const strata_function *function, const trace *t, const strata_per_replica *inputs, int *out_slot,
                          strata_error *err) {
    STRATA_TRY(strata_group_acquire(t->group, out_slot, err));
    for (int r = 0; r < function->strategy->n_replicas; r++) feed(function->strategy, t, r, *out_slot, inputs);
    return feed_numbers(function, t, *out_slot, inputs, err);
}

static strata_status take_all(const strata_function *function, const trace *t, int slot, strata_per_replica *outputs,
                              int n_outputs, strata_error *err) {
    STRATA_TRY(strata_group_wait(t->group, slot, err));
    for (int i = 0; i < n_outputs; i++) STRATA_TRY(take(function, t, slot, i, &outputs[i], err));
    return STRATA_OK;
}

static strata_status run_one(strata_function *function, const trace *t, const strata_per_replica *inputs,
                             strata_per_replica *outputs, int n_outputs, strata_error *err) {
    int slot = 0;
    STRATA_TRY(fill(function, t, inputs, &slot, err));
    STRATA_TRY(strata_group_start(t->group, slot, 0, err));
    STRATA_TRY(strata_group_finish(t->group, slot, NULL, err));
    STRATA_TRY(take_all(function, t, slot, outputs, n_outputs, err));
    strata_feeds_count(t->feeds, t->n_feeds);
    return STRATA_OK;
}

/* Checks that a run is allowed, and finds its trace. */
static strata_status begin_run(strata_function *function, int n_steps, const strata_per_replica *inputs, int n_inputs,
                               int n_outputs, trace **out_trace, strata_error *err) {
    STRATA_TRY(check_inputs(function, inputs, n_inputs, err));
    STRATA_TRY(find_trace(function, n_steps, inputs, n_inputs, out_trace, err));
    if (n_outputs <= (*out_trace)->n_outputs) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "run: %d outputs are asked for, the function returns %d", n_outputs,
                       (*out_trace)->n_outputs);
}

strata_status strata_strategy_run(strata_function *function, const strata_per_replica *inputs, int n_inputs,
                                  strata_per_replica *outputs, int n_outputs, strata_error *err) {
    trace *t = NULL;
    STRATA_TRY(strata_need_cross_replica("strata_strategy_run", "a function runs no functions", err));
    STRATA_TRY(begin_run(function, 1, inputs, n_inputs, n_outputs, &t, err));
    return run_one(function, t, inputs, outputs, n_outputs, err);
}

/* ---- several steps in one call of the devices ---- */

/* Steps of one trace whose slots are filled but not submitted yet. */
typedef struct pending_steps {
    const trace *t;
    int first_slot, n;
    /* The outputs of the first of these steps. */
    strata_per_replica *outputs;
} pending_steps;

static strata_status run_pending(const strata_function *function, pending_steps *pending, int n_outputs, strata_error *err) {
    const int n = pending->n;
    pending->n = 0;
    if (!n) return STRATA_OK;
    STRATA_TRY(strata_group_run_steps(pending->t->group, pending->first_slot, n, 0, err));
    for (int s = 0; s < n; s++) {
        const int slot = (pending->first_slot + s) % strata_group_n_slots(pending->t->group);
        STRATA_TRY(take_all(function, pending->t, slot, pending->outputs + s * n_outputs, n_outputs, err));
    }
    return STRATA_OK;
}

/* Adds a step. It runs at once if the devices run one step per call. */
static strata_status add_step(strata_function *function, pending_steps *pending, const trace *t,
                              const strata_per_replica *inputs, strata_per_replica *outputs, int n_outputs, strata_error *err) {
    const int most = strata_group_most_steps(t->group);
    int slot = 0;
    if (pending->t != t || pending->n == most) STRATA_TRY(run_pending(function, pending, n_outputs, err));
    if (most == 1) return run_one(function, t, inputs, outputs, n_outputs, err);
    STRATA_TRY(fill(function, t, inputs, &slot, err));
    strata_feeds_count(t->feeds, t->n_feeds);
    if (!pending->n) *pending = (pending_steps){.t = t, .first_slot = slot, .outputs = outputs};
    pending->n++;
    return STRATA_OK;
}

strata_status strata_strategy_run_batches(strata_function *function, strata_distributed_batches *batches, int n_steps,
                                          strata_per_replica *outputs, int n_outputs, int *out_n_steps, strata_error *err) {
    strata_per_replica inputs[2] = {{0}}; /* the second one stays empty if there are no labels */
    pending_steps pending = {0};
    STRATA_TRY(strata_need_cross_replica("strata_strategy_run_batches", "a function runs no functions", err));
    if (n_steps < 1) return strata_fail(err, STRATA_INVALID, "run: %d steps; it must be 1 or more", n_steps);
    for (*out_n_steps = 0; *out_n_steps < n_steps; ++*out_n_steps) {
        trace *t = NULL;
        int64_t n = 0;
        STRATA_TRY(strata_distributed_batches_next(batches, inputs, &n, err));
        if (!n) break;
        STRATA_TRY(begin_run(function, n_steps, inputs, inputs[1].n ? 2 : 1, n_outputs, &t, err));
        strata_per_replica *own = n_outputs ? outputs + *out_n_steps * n_outputs : NULL;
        STRATA_TRY(add_step(function, &pending, t, inputs, own, n_outputs, err));
    }
    return run_pending(function, &pending, n_outputs, err);
}

strata_status strata_strategy_run_scalar(strata_function *function, const strata_per_replica *inputs, int n_inputs,
                                         strata_reduction reduction, double *out_value, strata_error *err) {
    STRATA_FINISHED(strata_per_replica) values = {0};
    STRATA_TRY(strata_strategy_run(function, inputs, n_inputs, &values, 1, err));
    return strata_strategy_reduce_scalar(function->strategy, &values, reduction, out_value, err);
}
