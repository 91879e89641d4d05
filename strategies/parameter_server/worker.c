/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of a worker: it requests a unit (a batch, or a share of one) from the chief, pulls parameters, computes gradients,
 * and pushes them. While the device computes one unit, the parameters for the next one are pulled, if the pace allows that. */
#include "strategies/parameter_server/worker.h"

#include <stdio.h>
#include <time.h>

/* The chief waits a little longer than this for workers that fetch the final parameters (dismiss_workers in chief.c). */
static const double LAST_SECONDS = 8;

strata_status strata_ps_worker_no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a worker of parameter_server");
}

strata_status strata_ps_reserve(void **memory, size_t bytes, strata_error *err) {
    void *grown = realloc(*memory, bytes + 4);
    if (!grown) return strata_ps_worker_no_memory(err);
    *memory = grown;
    return STRATA_OK;
}

/* Records that a server was lost, if the status shows this. Returns the status. */
static strata_status of_server(strata_ps_worker *w, strata_status status) {
    w->links.lost_server |= status == STRATA_PEER_LOST;
    return status;
}

/* The unit that the worker computes next: its examples and rows are read, and its pull is started. */
static strata_status begin_unit(strata_ps_worker *w, const strata_ps_unit *unit, strata_ps_job *j, strata_error *err) {
    j->unit = *unit;
    j->lease = w->lease.reply;
    j->ahead = w->task->corrects;
    if (j->lease.evaluates) return STRATA_OK;
    STRATA_TRY(strata_ps_read_unit(w, j, err));
    STRATA_TRY(strata_ps_find_rows(w, j, err));
    /* a later pull makes the gradient less stale, so it waits for the push of the previous unit */
    return w->task->pulls_late ? STRATA_OK : of_server(w, strata_ps_start_pull(w, j, err));
}

/* Called when the worker's unit is finished: stores its report, which is sent with the next request to the chief. */
static void keep_report(strata_ps_worker *w) {
    const int64_t n_sums = w->model->metrics.n_sums;
    memcpy(w->reports.sums + w->reports.n * n_sums, w->unit.sums, (size_t)n_sums * sizeof *w->unit.sums);
    w->reports.finished[w->reports.n++] = w->reports.now;
    w->reports.now = (strata_ps_next_ask){.unit.index = -1};
}

static void forget_units(strata_ps_worker *w) {
    w->reports.n = w->lease.n_begun = w->lease.reply.n_more = 0;
    w->reports.now = (strata_ps_next_ask){.unit.index = -1};
}

/* Reports finished units, if any, and requests more; waits at most `seconds` for the reply. The last unit is not finished while
 * its push is in progress. */
static strata_status ask_chief(strata_ps_worker *w, bool waits, double seconds, strata_error *err) {
    const int n_finished = w->reports.n - w->push.running, n = n_finished ? n_finished : 1;
    const size_t sums_bytes = (size_t)w->model->metrics.n_sums * sizeof *w->reports.sums;
    strata_ps_next_ask none = {.unit.index = -1, .gives_back = w->reports.now.gives_back},
                       *reports = n_finished ? w->reports.finished : &none;
    memcpy(none.what, w->reports.now.what, sizeof none.what);
    reports[n - 1].waits = waits;
    const struct iovec body = {w->reports.sums, (size_t)n * sums_bytes};
    strata_rpc_ask ask = strata_ps_ask(STRATA_PS_NEXT, reports, &body, 1);
    ask.head_bytes *= (size_t)n;
    strata_rpc_answer answer = {.head = &w->lease.reply, .head_bytes = sizeof w->lease.reply};
    w->lease.reply = (strata_ps_next_reply){0};
    w->lease.n_begun = 0;
    const strata_status status = strata_rpc_client_call(w->links.chief, &ask, &answer, seconds, err);
    w->links.lost_chief = status == STRATA_PEER_LOST;
    if (status) return status;
    w->reports.n -= n_finished;
    if (n_finished && w->reports.n) {
        w->reports.finished[0] = w->reports.finished[n_finished];
        memcpy(w->reports.sums, (char *)w->reports.sums + (size_t)n_finished * sums_bytes, sums_bytes);
    }
    w->reports.now.gives_back = false;
    w->fit->route = w->lease.reply.route;
    if (w->lease.reply.unit.epoch > w->fit->serial) w->fit->serial = w->lease.reply.unit.epoch;
    return STRATA_OK;
}

/* Waits for the push in progress, if there is one. Its unit is then finished. */
static strata_status finish_push(strata_ps_worker *w, strata_error *err) {
    return w->push.running ? of_server(w, strata_ps_finish_push(w, &w->reports.finished[w->reports.n - 1], err)) : STRATA_OK;
}

/* Gets the next unit: one that is already leased, else the chief is asked for one. */
static strata_status next_unit(strata_ps_worker *w, bool waits, strata_ps_job *j, int32_t *out_grant, strata_error *err) {
    const strata_ps_unit *unit = &w->lease.reply.unit;
    if (w->lease.n_begun < w->lease.reply.n_more) {
        unit = &w->lease.reply.more[w->lease.n_begun++];
    } else {
        const double began = strata_trace_now();
        STRATA_TRY(ask_chief(w, waits, STRATA_PS_CALL_SECONDS, err));
        strata_ps_trace_slice(w, waits ? "wait for a batch" : "ask for the next batch", j, began);
    }
    const bool granted = w->lease.reply.grant == STRATA_PS_GRANTED;
    *out_grant = w->lease.reply.grant;
    strata_trace_add_counter(w->fit->trace, "queue depth",
                             !waits + (granted ? 1 + w->lease.reply.n_more - w->lease.n_begun : 0), strata_trace_now());
    return granted ? begin_unit(w, unit, j, err) : STRATA_OK;
}

/* Computes the unit's gradients. While the device computes its first batch, the next unit may be prepared in `ahead`. A device
 * that computes in this thread computes after that, while the servers answer the pull for the next unit (strata_ps_submit). */
static strata_status compute(strata_ps_worker *w, strata_ps_job *j, strata_ps_job *ahead, int32_t *out_grant,
                             strata_error *err) {
    *out_grant = STRATA_PS_WAIT;
    STRATA_TRY(strata_ps_upload(w, j, err));
    bool asked = w->task->pace.n_shares > 0; /* a synchronous step needs the parameters of the previous one */
    bool cleared = false;
    for (int i = 0; i < j->n_batches; i++) {
        strata_model_program *program = NULL;
        int slot = 0;
        strata_status status = STRATA_OK;
        if (!j->batches[i].own) {
            if (cleared) strata_ps_skip_batch(w);
            continue;
        }
        /* Buckets are copied to the sums while the program runs. The push in progress may be sent from there once more. */
        if (w->buckets.layout && w->buckets.layout->n_buckets) STRATA_TRY(finish_push(w, err));
        STRATA_TRY(strata_ps_submit(w, j, i, &program, &slot, err));
        w->push.n_slots = strata_group_n_slots(program->group);
        if (!asked) status = next_unit(w, false, ahead, out_grant, err);
        asked = true;
        const strata_status computed = strata_ps_finish_batch(w, j, program, slot, status ? NULL : err);
        if (status || computed) return status ? status : computed;
        STRATA_TRY(finish_push(w, err)); /* the memory of the gradients in that push is overwritten below */
        if (!cleared) strata_ps_clear_sums(w, j);
        cleared = true;
        STRATA_TRY(strata_ps_take_outputs(w, j, i, program, slot, err));
    }
    STRATA_TRY(finish_push(w, err));
    if (!cleared) strata_ps_clear_sums(w, j);
    return STRATA_OK;
}

/* Whether the next unit may be computed while the replies to a push are pending. The gradients of the push stay in their slot,
 * and those of the next unit are written to another slot; `compute` finishes the push before it overwrites other gradients.
 * Otherwise each unit is finished before the next one begins. */
static bool may_overlap(const strata_ps_worker *w, int32_t grant) {
    const bool own_pace = w->task->pace.pace == STRATA_PACE_ASYNCHRONOUS;
    return own_pace && grant == STRATA_PS_GRANTED && !w->lease.reply.evaluates && !w->buckets.n_parts && w->push.n_slots > 1;
}

/* Copies all values of the servers to the model. */
static strata_status take_all(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    for (int k = 0; k < w->sparse.n; k++) {
        j->renumbered[k] = false;
        strata_ps_row_set_clear(&j->rows[k]);
        for (int32_t row = 0; row < j->rows[k].n_rows; row++) strata_ps_row_set_add(&j->rows[k], row);
    }
    j->ahead = false;
    STRATA_TRY(of_server(w, strata_ps_pull_now(w, j, err)));
    return strata_ps_upload(w, j, err);
}

/* Evaluates a batch. No worker pushes meanwhile, so the parameters are pulled once for all batches. */
static strata_status visit(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    int64_t n = 0;
    if (w->visits_epoch != j->unit.epoch) STRATA_TRY(take_all(w, j, err));
    w->visits_epoch = j->unit.epoch;
    STRATA_TRY(strata_ps_seek_visit(w, j->unit.index, &n, err));
    STRATA_TRY(strata_model_evaluate_batch(w->model, w->fit->opts->validation, &w->fit->validation_feed, w->visits.batches, n,
                                           w->unit.sums, err));
    w->reports.now.unit = j->unit;
    w->reports.now.evaluates = true;
    w->reports.now.examples = n;
    keep_report(w);
    return STRATA_OK;
}

static strata_status do_unit(strata_ps_worker *w, strata_ps_job *j, strata_ps_job *ahead, int32_t *out_grant,
                             strata_error *err) {
    const double began = strata_clock_seconds();
    *out_grant = STRATA_PS_WAIT;
    if (j->lease.evaluates) return visit(w, j, err);
    if (!j->pulling) STRATA_TRY(of_server(w, strata_ps_start_pull(w, j, err)));
    STRATA_TRY(of_server(w, strata_ps_finish_pull(w, j, err)));
    STRATA_TRY(compute(w, j, ahead, out_grant, err));
    bool overflow = false;
    const char *wrong = strata_ps_prepare_push(w, &overflow);
    if (!wrong && j->examples) STRATA_TRY(of_server(w, strata_ps_start_push(w, j, err)));
    w->reports.now.unit = j->unit;
    w->reports.now.rate = w->unit.rate;
    w->reports.now.examples = j->examples;
    w->reports.now.whole = j->whole;
    w->reports.now.overflow = overflow;
    w->reports.now.refused = wrong && !overflow;
    if (!w->reports.now.refused || !strata_ps_name_wrong_data(w, j, w->reports.now.what, sizeof w->reports.now.what))
        snprintf(w->reports.now.what, sizeof w->reports.now.what, "%s", wrong ? wrong : "");
    w->reports.now.seconds = strata_clock_seconds() - began;
    keep_report(w);
    return may_overlap(w, *out_grant) ? STRATA_OK : finish_push(w, err);
}

/* Waits for all requests in progress and ignores their results. */
static void drop_requests(strata_ps_worker *w) {
    strata_ps_ignore(strata_ps_finish_push(w, &(strata_ps_next_ask){0}, NULL));
    strata_ps_drop_pulls(w, &w->jobs[0]);
    strata_ps_drop_pulls(w, &w->jobs[1]);
}

/* Returns this worker's leases because a server could not be reached; the chief then checks that server. */
static void give_back(strata_ps_worker *w, const char *why) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    drop_requests(w);
    w->links.lost_server = false;
    forget_units(w);
    w->reports.now.gives_back = true;
    snprintf(w->reports.now.what, sizeof w->reports.now.what, "%.*s", (int)sizeof w->reports.now.what - 1, why);
    nanosleep(&pause, NULL);
}

/* Sends this task's terms to the chief, which compares them, and replies with the route when all workers have connected. */
static strata_status greet_chief(strata_ps_worker *w, strata_error *err) {
    strata_ps_hello_reply reply = {0};
    STRATA_TRY(strata_ps_say_hello(w->fit, w->links.chief, 2 * w->task->connect_seconds, &reply, err));
    w->fit->route = reply.route;
    return STRATA_OK;
}

/* After the chief was lost: a chief that was started again begins the epoch again, so earlier leases do not count. */
static strata_status greet_again(strata_ps_worker *w, strata_error *err) {
    drop_requests(w);
    w->links.lost_chief = w->links.lost_server = false;
    forget_units(w);
    return greet_chief(w, err);
}

static strata_status train(strata_ps_worker *w, strata_error *err) {
    int current = 0;
    int32_t grant = STRATA_PS_WAIT;
    for (;;) {
        strata_ps_job *j = &w->jobs[current], *ahead = &w->jobs[1 - current];
        strata_error own = {0};
        strata_status status = STRATA_OK;
        if (grant == STRATA_PS_NONE_LEFT) strata_ps_prepare_last(w); /* other workers finish the epoch meanwhile */
        while (grant != STRATA_PS_GRANTED && !status) {
            status = next_unit(w, true, j, &grant, &own);
            if (grant == STRATA_PS_TRAINING_OVER) return STRATA_OK;
        }
        if (!status) status = do_unit(w, j, ahead, &grant, &own);
        if (status && w->links.lost_chief && strata_rpc_client_connected(w->links.chief)) {
            STRATA_TRY(greet_again(w, err));
            grant = STRATA_PS_WAIT;
            continue;
        }
        if (status && !w->links.lost_server) return strata_fail(err, status, "%s", own.message);
        if (status) {
            give_back(w, own.message);
            grant = STRATA_PS_WAIT;
        } else if (grant == STRATA_PS_GRANTED) {
            current = 1 - current;
        }
    }
}

/* Copies the final parameters to the model. If a server cannot be reached, the chief checks the servers: the copy of a lost
 * server's shards serves them, or it gets them again when it has started again. */
static strata_status take_last(strata_ps_worker *w, strata_error *err) {
    const double until = strata_clock_seconds() + LAST_SECONDS;
    for (;;) {
        strata_error own = {0};
        w->jobs[0].lease.has_close = false;
        const strata_status status = take_all(w, &w->jobs[0], &own);
        const double left = until - strata_clock_seconds();
        if (!status) return STRATA_OK;
        if (status != STRATA_PEER_LOST || left <= 0) return strata_fail(err, status, "%s", own.message);
        give_back(w, own.message);
        if (!strata_rpc_client_connected(w->links.chief)) continue;
        strata_ps_ignore(ask_chief(w, false, left, NULL)); /* for the route */
    }
}

static strata_status make_job(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    j->batches = strata_memory_take(&w->memory, w->fit->accumulate, sizeof *j->batches);
    j->values = strata_memory_take(&w->memory, strata_model_all_size(w->model), sizeof *j->values);
    j->rows = strata_memory_take(&w->memory, w->sparse.n, sizeof *j->rows);
    j->renumbered = strata_memory_take(&w->memory, w->sparse.n, sizeof *j->renumbered);
    j->pulls = strata_memory_take(&w->memory, w->links.n_servers, sizeof *j->pulls);
    if (w->memory.failed) return strata_ps_worker_no_memory(err);
    for (int k = 0; k < w->sparse.n; k++)
        STRATA_TRY(strata_ps_row_set_make(&j->rows[k], &w->model->parameters.items[w->sparse.parameters[k]], err));
    return STRATA_OK;
}

strata_status strata_ps_worker_make(strata_ps_worker *w, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const int64_t n_sums = w->model->metrics.n_sums, n_servers = w->links.n_servers;
    strata_memory *memory = &w->memory;
    w->buckets.attempt = (int64_t)(w->task->incarnation >> 2) + 1; /* a task that is started again has other numbers */
    for (int i = 0; i < set->n; i++) w->sparse.n += set->items[i].sparse;
    w->links.servers = strata_memory_take(memory, n_servers, sizeof(*w->links.servers));
    w->push.of_server = strata_memory_take(memory, n_servers, sizeof *w->push.of_server);
    w->buckets.parts = strata_memory_take(memory, n_servers * STRATA_MOST_BUCKETS, sizeof *w->buckets.parts);
    w->sparse.parameters = strata_memory_take(memory, w->sparse.n, sizeof *w->sparse.parameters);
    w->sparse.tables = strata_memory_take(memory, w->sparse.n, sizeof(*w->sparse.tables));
    w->unit.sums_of_rows = strata_memory_take(memory, w->sparse.n, sizeof *w->unit.sums_of_rows);
    w->unit.row_gradients = strata_memory_take(memory, w->sparse.n, sizeof *w->unit.row_gradients);
    w->unit.sums_of_dense = strata_memory_take(memory, set->dense_size, sizeof *w->unit.sums_of_dense);
    w->unit.states = strata_memory_take(memory, set->state_size, sizeof *w->unit.states);
    w->unit.rates = strata_memory_take(memory, set->state_size, sizeof *w->unit.rates);
    w->unit.sums = strata_memory_take(memory, n_sums, sizeof *w->unit.sums);
    w->reports.sums = strata_memory_take(memory, n_sums * STRATA_PS_MOST_REPORTS, sizeof *w->reports.sums);
    if (memory->failed) return strata_ps_worker_no_memory(err);
    for (int i = 0, k = 0; i < set->n; i++)
        if (set->items[i].sparse) w->sparse.parameters[k++] = i;
    for (int k = 0; k < w->sparse.n; k++) {
        STRATA_TRY(strata_ps_make_table(w, k, err));
        STRATA_TRY(strata_ps_row_set_make(&w->unit.sums_of_rows[k], &set->items[w->sparse.parameters[k]], err));
    }
    STRATA_TRY(make_job(w, &w->jobs[0], err));
    return make_job(w, &w->jobs[1], err);
}

static void finish_transfers(strata_ps_transfer *transfers, int n) {
    for (int i = 0; transfers && i < n; i++) {
        strata_status ignored = STRATA_OK;
        strata_ps_wait(&transfers[i].message, &ignored, NULL);
        strata_rpc_answer_release(&transfers[i].message.answer);
        free(transfers[i].pieces);
        free(transfers[i].numbers);
        free(transfers[i].narrow);
        free(transfers[i].rows);
    }
}

static void finish_job(const strata_ps_worker *w, strata_ps_job *j) {
    finish_transfers(j->pulls, w->links.n_servers);
    for (int64_t i = 0; i < w->fit->accumulate && j->batches; i++) {
        for (int k = 0; k < STRATA_MAX_INPUTS; k++) free(j->batches[i].x[k]);
        for (int k = 0; k < STRATA_MAX_OUTPUTS; k++) free(j->batches[i].y[k]);
        free(j->batches[i].weights);
    }
    for (int k = 0; k < w->sparse.n && j->rows; k++) strata_ps_row_set_finish(&j->rows[k]);
}

void strata_ps_worker_finish(strata_ps_worker *w) {
    w->task->worker = NULL;
    finish_transfers(w->push.of_server, w->links.n_servers);
    finish_transfers(w->buckets.parts, w->links.n_servers * STRATA_MOST_BUCKETS);
    finish_job(w, &w->jobs[0]);
    finish_job(w, &w->jobs[1]);
    for (int s = 0; s < w->links.n_servers && w->links.servers; s++) strata_rpc_client_destroy(w->links.servers[s]);
    strata_rpc_client_destroy(w->links.chief);
    for (int k = 0; k < w->sparse.n && w->unit.sums_of_rows; k++) strata_ps_row_set_finish(&w->unit.sums_of_rows[k]);
    strata_batches_destroy(w->data.batches);
    strata_batches_destroy(w->visits.batches);
    strata_memory_finish(&w->memory);
}

strata_status strata_ps_meet_servers(strata_ps_worker *w, strata_error *err) {
    strata_rpc_client *ignored = NULL;
    for (int g = 0; g < w->links.n_servers; g++) {
        const strata_status status = strata_ps_reach(w, g, &ignored, err);
        if (status && !(status == STRATA_PEER_LOST && w->task->replicas)) return status;
    }
    return STRATA_OK;
}

static strata_status meet(strata_ps_worker *w, strata_error *err) {
    const size_t shared_bytes = 64 << 10; /* requests for batches and their replies are short */
    STRATA_TRY(strata_ps_connect(w->task, STRATA_TASK_CHIEF, 0, w->task->connect_seconds, shared_bytes, &w->links.chief, err));
    STRATA_TRY(greet_chief(w, err));
    return strata_ps_meet_servers(w, err);
}

/* Sends the chief the reason why this worker ends. */
static void say_failure(const strata_ps_worker *w, strata_status status, const char *message) {
    const int32_t head = (int32_t)status;
    const struct iovec body = {(char *)message, strlen(message)};
    const strata_rpc_ask ask = strata_ps_ask(STRATA_PS_FAIL, &head, &body, 1);
    /* the chief may be the task that failed */
    strata_ps_ignore(strata_rpc_client_call(w->links.chief, &ask, NULL, 5, NULL));
}

strata_status strata_ps_fit_worker(strata_ps_fit *fit, strata_error *err) {
    strata_ps_worker w = {.fit = fit,
                          .task = fit->task,
                          .model = fit->model,
                          .links.n_servers = fit->plan.n_servers,
                          .form = {.weighted = strata_model_weighs(fit->dataset, fit->opts->class_weights)},
                          .visits_epoch = -1,
                          .reports.now = {.unit.index = -1}};
    strata_error own = {0};
    strata_status status = strata_ps_worker_make(&w, &own);
    if (!status) status = meet(&w, &own);
    if (!status) status = train(&w, &own);
    if (!status) status = take_last(&w, &own);
    if (status && w.links.chief) say_failure(&w, status, own.message);
    strata_ps_worker_finish(&w);
    return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
}
