/* SPDX-License-Identifier: Apache-2.0
 *
 * A core of the board, which is opened as a device. It has a thread of its own, which takes jobs from a queue. So `run`
 * returns at once, the runs of one call follow each other without the host, and cores can meet in collectives while the host's
 * thread waits for one of them. Copies are jobs in the same queue. A ticket is the number of a run or copy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "systolic.h"

/* The most jobs in the queue, and the most spans that are stored. */
enum { MOST_JOBS = 1024, MOST_SPANS = 1 << 16 };

/* A job: n runs of a program or, if `program` is NULL, a copy of `bytes` bytes. */
typedef struct job {
    strata_plugin_program *program;
    int first_slot, n;
    void *target;
    const void *source;
    int64_t bytes;
} job;

struct strata_plugin_device {
    board *board;
    int index;
    pthread_t thread;
    /* Guards all fields below. */
    pthread_mutex_t lock;
    /* work: a job was added, or the core closes. done: a run or copy has ended. */
    pthread_cond_t work, done;
    job jobs[MOST_JOBS];
    uint64_t jobs_put, jobs_taken;
    /* The numbers of runs and copies that were submitted, and that have ended. */
    uint64_t submitted, finished;
    bool closing;
    /* The status and message of the first run that failed. */
    strata_plugin_status failed;
    strata_plugin_error why;
    int64_t memory_used;
    int64_t opened_ns;
    /* Spans are stored only while they are wanted. device_ns: the simulated time at which the last run ended. */
    bool keeps_spans;
    strata_plugin_span *spans;
    int n_spans, spans_capacity;
    int64_t device_ns;
    /* The contents of the tables "spaces" and "topology". */
    strata_plugin_space space[2];
    const strata_plugin_space *space_list[2];
    strata_plugin_spaces spaces;
    strata_plugin_topology topology;
    int32_t dims[1], coordinates[1];
};

int core_index(const struct strata_plugin_device *core) {
    return core->index;
}

board *core_board(struct strata_plugin_device *core) {
    return core->board;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- spans: the schedule of a run, shifted to the time at which the run began ---- */

static void add_span(struct strata_plugin_device *core, const strata_plugin_span *span) {
    if (core->n_spans == core->spans_capacity) {
        const int capacity = core->spans_capacity ? 2 * core->spans_capacity : 1024;
        strata_plugin_span *spans = capacity <= MOST_SPANS ? realloc(core->spans, (size_t)capacity * sizeof *spans) : NULL;
        if (!spans) return; /* new spans are dropped until the stored ones are fetched */
        core->spans = spans;
        core->spans_capacity = capacity;
    }
    core->spans[core->n_spans++] = *span;
}

static void add_spans(struct strata_plugin_device *core, const strata_plugin_program *program, int64_t began_ns) {
    static const char *const units[UNITS] = {"matrix", "vector", "ring", "dma in", "dma out"};
    const double ns = 1e9 / core->board->chip->hertz;
    const int64_t since_open = began_ns - core->opened_ns, begin = since_open > core->device_ns ? since_open : core->device_ns;
    core->device_ns = begin + (int64_t)(program->cycles * ns);
    if (!core->keeps_spans) return;
    for (int k = 0; k < program->n_steps; k++) {
        const timing *t = &program->timings[k];
        for (int u = 0; u < UNITS; u++)
            if (t->end[u] > t->begin[u])
                add_span(core, &(strata_plugin_span){.size = sizeof(strata_plugin_span),
                                                     .name = program->steps[k].op->name,
                                                     .unit = units[u],
                                                     .begin_ns = begin + (int64_t)(t->begin[u] * ns),
                                                     .end_ns = begin + (int64_t)(t->end[u] * ns)});
    }
}

static void profile_enable(strata_plugin_device *core, int32_t on) {
    pthread_mutex_lock(&core->lock);
    core->keeps_spans = on != 0;
    if (!on) core->n_spans = 0;
    pthread_mutex_unlock(&core->lock);
}

static int by_begin(const void *a, const void *b) {
    const strata_plugin_span *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static void profile_drain(strata_plugin_device *core, void (*take)(void *user, const strata_plugin_span *span), void *user) {
    pthread_mutex_lock(&core->lock);
    strata_plugin_span *spans = core->spans;
    const int n = core->n_spans;
    core->spans = NULL;
    core->n_spans = core->spans_capacity = 0;
    pthread_mutex_unlock(&core->lock);
    if (n) qsort(spans, (size_t)n, sizeof *spans, by_begin);
    for (int i = 0; i < n; i++) take(user, &spans[i]);
    free(spans);
}

static int64_t profile_now(strata_plugin_device *core) {
    return now_ns() - core->opened_ns;
}

/* ---- the thread ---- */

/* Executes run i of the job, or its copy, unless the core has failed. The copy is made under the lock, so that no copy is in
 * progress when a wait has ended with a timeout. */
static strata_plugin_status carry_out(struct strata_plugin_device *core, const job *next, int i, strata_plugin_error *error) {
    pthread_mutex_lock(&core->lock);
    const strata_plugin_status failed = core->failed;
    if (!failed && next->bytes) memcpy(next->target, next->source, (size_t)next->bytes);
    pthread_mutex_unlock(&core->lock);
    if (failed || !next->program) return failed;
    return program_run(next->program, (next->first_slot + i) % next->program->n_slots, error);
}

static void run_job(struct strata_plugin_device *core, const job *next) {
    strata_plugin_error error = {.size = sizeof error};
    for (int i = 0; i < next->n; i++) {
        const int64_t began = now_ns();
        const strata_plugin_status status = carry_out(core, next, i, &error);
        if (status) ring_set_lost(core->board, core->index, true);
        pthread_mutex_lock(&core->lock);
        if (status && !core->failed) {
            core->failed = status;
            core->why = error;
        }
        if (!status && next->program) add_spans(core, next->program, began);
        core->finished++;
        pthread_cond_broadcast(&core->done);
        pthread_mutex_unlock(&core->lock);
    }
}

static void *work_on(void *user) {
    struct strata_plugin_device *core = user;
    pthread_mutex_lock(&core->lock);
    for (;;) {
        while (core->jobs_taken == core->jobs_put && !core->closing) pthread_cond_wait(&core->work, &core->lock);
        if (core->jobs_taken == core->jobs_put) break;
        const job next = core->jobs[core->jobs_taken++ % MOST_JOBS];
        pthread_mutex_unlock(&core->lock);
        run_job(core, &next);
        pthread_mutex_lock(&core->lock);
    }
    pthread_mutex_unlock(&core->lock);
    return NULL;
}

/* Waits for the ticket. The lock must be held. timeout_ns below 0: no timeout. */
static bool await(struct strata_plugin_device *core, uint64_t ticket, int64_t timeout_ns) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    if (timeout_ns > 0) {
        if (timeout_ns > INT64_C(1) << 60) timeout_ns = INT64_C(1) << 60;
        const int64_t ns = deadline.tv_nsec + timeout_ns % 1000000000;
        deadline.tv_sec += (time_t)(timeout_ns / 1000000000 + ns / 1000000000);
        deadline.tv_nsec = (long)(ns % 1000000000);
    }
    while (core->finished < ticket && timeout_ns) {
        if (timeout_ns < 0)
            pthread_cond_wait(&core->done, &core->lock);
        else if (pthread_cond_timedwait(&core->done, &core->lock, &deadline) == ETIMEDOUT)
            break;
    }
    return core->finished >= ticket;
}

static strata_plugin_status submit(struct strata_plugin_device *core, const job *what, uint64_t *out_ticket,
                                   strata_plugin_error *error) {
    pthread_mutex_lock(&core->lock);
    while (!core->failed && core->jobs_put - core->jobs_taken == MOST_JOBS) pthread_cond_wait(&core->done, &core->lock);
    const strata_plugin_status status = core->failed;
    if (status) {
        fail(error, status, "%s", core->why.message);
    } else {
        core->jobs[core->jobs_put++ % MOST_JOBS] = *what;
        core->submitted += (uint64_t)what->n;
        *out_ticket = core->submitted;
        pthread_cond_signal(&core->work);
    }
    pthread_mutex_unlock(&core->lock);
    return status;
}

static strata_plugin_status core_run(strata_plugin_program *program, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                     strata_plugin_error *error) {
    if (n < 1 || n > program->n_slots || first_slot < 0 || first_slot >= program->n_slots)
        return fail(error, STRATA_PLUGIN_INVALID, "%d runs from slot %d on; there are %d slots", n, first_slot,
                    program->n_slots);
    return submit(program->core, &(job){.program = program, .first_slot = first_slot, .n = n}, out_ticket, error);
}

/* Waits for a ticket. After a timeout the core is lost, so that nothing that was submitted before is executed later. With 0 ns
 * it only checks. */
static strata_plugin_status core_wait(strata_plugin_device *core, uint64_t ticket, int64_t timeout_ns,
                                      strata_plugin_error *error) {
    pthread_mutex_lock(&core->lock);
    const bool ended = await(core, ticket, timeout_ns < 0 ? 0 : timeout_ns);
    strata_plugin_status status = core->failed;
    if (status)
        fail(error, status, "%s", core->why.message);
    else if (!ended)
        status = fail(error, STRATA_PLUGIN_TIMEOUT, "run or copy %llu of core %d has not ended; %llu of %llu have",
                      (unsigned long long)ticket, core->index, (unsigned long long)core->finished,
                      (unsigned long long)core->submitted);
    if (status == STRATA_PLUGIN_TIMEOUT && timeout_ns > 0) {
        core->failed = STRATA_PLUGIN_DEVICE_LOST;
        core->why = *error;
    }
    pthread_mutex_unlock(&core->lock);
    return status;
}

/* ---- memory ---- */

static strata_plugin_status core_buffer_create(strata_plugin_device *core, int64_t bytes, strata_plugin_buffer **out_buffer,
                                               strata_plugin_error *error) {
    const int64_t all = core->board->chip->hbm_bytes;
    *out_buffer = NULL;
    if (bytes < 1)
        return fail(error, STRATA_PLUGIN_INVALID, "a buffer of %lld bytes; it must have at least 1", (long long)bytes);
    pthread_mutex_lock(&core->lock);
    const bool fits = bytes <= all - core->memory_used;
    if (fits) core->memory_used += bytes;
    const int64_t used = core->memory_used;
    pthread_mutex_unlock(&core->lock);
    if (!fits)
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY,
                    "a buffer of %lld bytes does not fit: %lld of the core's %lld are in use", (long long)bytes,
                    (long long)used, (long long)all);
    strata_plugin_buffer *buffer = malloc(sizeof *buffer);
    void *data = NULL;
    if (!buffer || posix_memalign(&data, 64, (size_t)bytes)) {
        free(buffer);
        pthread_mutex_lock(&core->lock);
        core->memory_used -= bytes;
        pthread_mutex_unlock(&core->lock);
        return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "the host has no %lld bytes for a buffer", (long long)bytes);
    }
    memset(data, 0, (size_t)bytes);
    *buffer = (strata_plugin_buffer){data, bytes};
    *out_buffer = buffer;
    return STRATA_PLUGIN_OK;
}

static void core_buffer_destroy(strata_plugin_device *core, strata_plugin_buffer *buffer) {
    if (!buffer) return;
    pthread_mutex_lock(&core->lock);
    core->memory_used -= buffer->bytes;
    pthread_mutex_unlock(&core->lock);
    free(buffer->data);
    free(buffer);
}

static strata_plugin_status check_range(const strata_plugin_buffer *buffer, int64_t offset, int64_t bytes,
                                        strata_plugin_error *error) {
    if (offset >= 0 && bytes >= 0 && offset <= buffer->bytes && bytes <= buffer->bytes - offset) return STRATA_PLUGIN_OK;
    return fail(error, STRATA_PLUGIN_INVALID, "%lld bytes at %lld of a buffer of %lld", (long long)bytes, (long long)offset,
                (long long)buffer->bytes);
}

static strata_plugin_status begin_upload(strata_plugin_device *core, strata_plugin_buffer *buffer, int64_t offset,
                                         const void *source, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    const strata_plugin_status status = check_range(buffer, offset, bytes, error);
    const job copy = {.n = 1, .target = buffer->data + offset, .source = source, .bytes = bytes};
    return status ? status : submit(core, &copy, out_ticket, error);
}

static strata_plugin_status begin_download(strata_plugin_device *core, strata_plugin_buffer *buffer, int64_t offset,
                                           void *target, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    const strata_plugin_status status = check_range(buffer, offset, bytes, error);
    const job copy = {.n = 1, .target = target, .source = buffer->data + offset, .bytes = bytes};
    return status ? status : submit(core, &copy, out_ticket, error);
}

/* Copies over the ring: the core `to` reads the memory of the core `from`, on which nothing may run meanwhile. */
static strata_plugin_status begin_copy(strata_plugin_device *to, strata_plugin_buffer *to_buffer, int64_t to_offset,
                                       strata_plugin_device *from, strata_plugin_buffer *from_buffer, int64_t from_offset,
                                       int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    (void)from;
    const strata_plugin_status status = check_range(from_buffer, from_offset, bytes, error);
    return status ? status : begin_upload(to, to_buffer, to_offset, from_buffer->data + from_offset, bytes, out_ticket, error);
}

/* Ends a blocking copy: it was submitted as a job, for which this waits. */
static strata_plugin_status finish(strata_plugin_device *core, strata_plugin_status submitted, uint64_t ticket,
                                   strata_plugin_error *error) {
    return submitted ? submitted : core_wait(core, ticket, INT64_MAX, error);
}

static strata_plugin_status core_upload(strata_plugin_device *core, strata_plugin_buffer *buffer, int64_t offset,
                                        const void *source, int64_t bytes, strata_plugin_error *error) {
    uint64_t ticket = 0;
    const strata_plugin_status status = begin_upload(core, buffer, offset, source, bytes, &ticket, error);
    return finish(core, status, ticket, error);
}

static strata_plugin_status core_download(strata_plugin_device *core, strata_plugin_buffer *buffer, int64_t offset,
                                          void *target, int64_t bytes, strata_plugin_error *error) {
    uint64_t ticket = 0;
    const strata_plugin_status status = begin_download(core, buffer, offset, target, bytes, &ticket, error);
    return finish(core, status, ticket, error);
}

/* ---- programs ---- */

static strata_plugin_support core_supports(strata_plugin_device *core, const strata_plugin_piece *piece, int32_t node,
                                           const char **out_reason) {
    (void)core;
    return program_supports(piece, node, out_reason);
}

static void *core_program_input(strata_plugin_program *program, int32_t slot) {
    return slot >= 0 && slot < program->n_slots ? program->inputs[slot] : NULL;
}

static const void *core_program_output(strata_plugin_program *program, int32_t slot) {
    return slot >= 0 && slot < program->n_slots ? program->outputs[slot] : NULL;
}

/* ---- tables ---- */

/* Copies a cost to the caller's struct, as many bytes as that has (its `size`). */
static void give_cost(const strata_plugin_cost *from, strata_plugin_cost *to) {
    const size_t size = to->size;
    memcpy(to, from, size < sizeof *from ? size : sizeof *from);
    to->size = size;
}

static double utilisation(const chip *chip, double macs, double cycles) {
    const double most = cycles * chip->side * chip->side * chip->arrays;
    return most > 0 ? macs / most : 0;
}

static strata_plugin_status cost_of_program(strata_plugin_program *program, strata_plugin_cost *out_cost,
                                            strata_plugin_error *error) {
    const chip *chip = program->core->board->chip;
    (void)error;
    give_cost(&(strata_plugin_cost){.seconds = program->cycles / chip->hertz,
                                    .cycles = program->cycles,
                                    .bytes = program->bytes,
                                    .utilisation = utilisation(chip, program->macs, program->cycles),
                                    .work_bytes = program->onchip_peak + program->spilled_bytes},
              out_cost);
    return STRATA_PLUGIN_OK;
}

/* The time from the step's first copy to its last one. Steps overlap, so the sum over all steps is more than the time of the
 * program. */
static strata_plugin_status cost_of_node(strata_plugin_program *program, int32_t node, strata_plugin_cost *out_cost,
                                         strata_plugin_error *error) {
    const chip *chip = program->core->board->chip;
    if (node < 0 || node >= program->n_steps)
        return fail(error, STRATA_PLUGIN_INVALID, "node %d of a program that has %d", node, program->n_steps);
    const timing *t = &program->timings[node];
    double begin = 0, end = 0;
    bool any = false;
    for (int u = 0; u < UNITS; u++) {
        if (t->end[u] <= t->begin[u]) continue;
        begin = any && begin < t->begin[u] ? begin : t->begin[u];
        end = any && end > t->end[u] ? end : t->end[u];
        any = true;
    }
    give_cost(&(strata_plugin_cost){.seconds = (end - begin) / chip->hertz,
                                    .cycles = end - begin,
                                    .bytes = t->bytes,
                                    .utilisation = utilisation(chip, t->macs, end - begin)},
              out_cost);
    return STRATA_PLUGIN_OK;
}

static const strata_plugin_costs costs = {sizeof costs, cost_of_program, cost_of_node};
static const strata_plugin_profile profile = {sizeof profile, profile_enable, profile_drain, profile_now};
static const strata_plugin_steps steps = {sizeof steps, 0};
static const strata_plugin_transfers transfers = {sizeof transfers, begin_upload, begin_download, begin_copy};

static int64_t core_reached(strata_plugin_device *core) {
    return ring_reached(core->board, core->index);
}
static const strata_plugin_collectives collectives = {
    .size = sizeof collectives,
    .sum_dtypes = 1u << STRATA_PLUGIN_F32 | 1u << STRATA_PLUGIN_I32 | 1u << STRATA_PLUGIN_I64,
    .reached = core_reached};

static const void *core_table(strata_plugin_device *core, const char *name) {
    const struct {
        const char *name;
        const void *table;
    } tables[] = {{"costs", &costs},
                  {"profile", &profile},
                  {"steps", &steps},
                  {"collectives", &collectives},
                  {"transfers", &transfers},
                  {"spaces", &core->spaces},
                  {"topology", &core->topology}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (!strcmp(tables[i].name, name)) return tables[i].table;
    return NULL;
}

/* Fills the two tables whose contents depend on the chip and the board. */
static void describe(struct strata_plugin_device *core) {
    const chip *chip = core->board->chip;
    core->space[0] = (strata_plugin_space){sizeof *core->space, "HBM", chip->hbm_bytes, 1, chip->hbm_bytes_per_second};
    /* bandwidth: two operands and a result for each lane in each cycle */
    core->space[1] =
        (strata_plugin_space){sizeof *core->space, "on-chip", chip->onchip_bytes, 0, 3.0 * chip->lanes * 4 * chip->hertz};
    core->space_list[0] = &core->space[0];
    core->space_list[1] = &core->space[1];
    core->spaces = (strata_plugin_spaces){sizeof core->spaces, 2, core->space_list};
    core->dims[0] = core->board->n_cores;
    core->coordinates[0] = core->index;
    core->topology = (strata_plugin_topology){
        sizeof core->topology, "systolic board 0", core->board->n_cores, core->index, 1, core->dims, core->coordinates};
}

/* ---- opening and closing ---- */

static void core_close(strata_plugin_device *core) {
    pthread_mutex_lock(&core->lock);
    core->closing = true;
    pthread_cond_broadcast(&core->work);
    pthread_mutex_unlock(&core->lock);
    pthread_join(core->thread, NULL);
    pthread_cond_destroy(&core->work);
    pthread_cond_destroy(&core->done);
    pthread_mutex_destroy(&core->lock);
    free(core->spans);
    free(core);
}

static const strata_plugin_device_calls calls = {.size = sizeof calls,
                                                 .close = core_close,
                                                 .buffer_create = core_buffer_create,
                                                 .buffer_destroy = core_buffer_destroy,
                                                 .upload = core_upload,
                                                 .download = core_download,
                                                 .supports = core_supports,
                                                 .compile = program_compile,
                                                 .program_destroy = program_destroy,
                                                 .program_input = core_program_input,
                                                 .program_output = core_program_output,
                                                 .run = core_run,
                                                 .wait = core_wait,
                                                 .table = core_table};

strata_plugin_status core_open(board *board, int index, struct strata_plugin_device **out_core,
                               const strata_plugin_device_calls **out_calls, strata_plugin_error *error) {
    struct strata_plugin_device *core = calloc(1, sizeof *core);
    pthread_condattr_t monotonic;
    *out_core = NULL;
    *out_calls = &calls;
    if (!core) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for core %d", index);
    core->board = board;
    core->index = index;
    core->opened_ns = now_ns();
    describe(core);
    ring_set_lost(board, index, false);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&core->lock, NULL);
    pthread_cond_init(&core->work, &monotonic);
    pthread_cond_init(&core->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int code = pthread_create(&core->thread, NULL, work_on, core);
    if (code) {
        pthread_cond_destroy(&core->work);
        pthread_cond_destroy(&core->done);
        pthread_mutex_destroy(&core->lock);
        free(core);
        return fail(error, STRATA_PLUGIN_UNAVAILABLE, "no thread for core %d: %s", index, strerror(code));
    }
    *out_core = core;
    return STRATA_PLUGIN_OK;
}
