/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of a worker: it requests a unit (a batch, or a share of one) from the chief, pulls parameters, computes gradients,
 * and pushes them. While the device computes one unit, the parameters for the next one are pulled, if the pace allows that. */
#include "strategies/parameter_server/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The chief waits a little longer than this for workers that fetch the final parameters (dismiss_workers in chief.c). */
static const double LAST_SECONDS = 8;

strata_status strata_ps_worker_no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a worker of parameter_server");
}

/* Records that a server was lost, if the status shows this. Returns the status. */
static strata_status of_server(strata_ps_worker *w, strata_status status) {
    w->lost_server |= status == STRATA_PEER_LOST;
    return status;
}

/* The unit that the worker computes next: its examples and rows are read, and its pull is started. */
static strata_status begin_unit(strata_ps_worker *w, const strata_ps_unit *unit, strata_ps_job *j, strata_error *err) {
    const strata_ps_next_reply *given = &w->given;
    j->unit = *unit;
    j->epoch = given->epoch;
    j->t = given->t;
    j->rate = given->rate;
    j->evaluates = given->evaluates;
    j->ahead = w->task->corrects;
    j->has_close = given->has_close;
    j->close = given->close;
    if (j->evaluates) return STRATA_OK;
    STRATA_TRY(strata_ps_read_unit(w, j, err));
    STRATA_TRY(strata_ps_find_rows(w, j, err));
    /* a later pull makes the gradient less stale, so it waits for the push of the previous unit */
    return w->task->pulls_late ? STRATA_OK : of_server(w, strata_ps_start_pull(w, j, err));
}

/* Called when the worker's unit is finished: stores its report, which is sent with the next request to the chief. */
static void keep_report(strata_ps_worker *w) {
    const int64_t n_sums = w->model->metrics.n_sums;
    memcpy(w->report_sums + w->n_reports * n_sums, w->unit_sums, (size_t)n_sums * sizeof *w->unit_sums);
    w->reports[w->n_reports++] = w->report;
    w->report = (strata_ps_next_ask){.unit.index = -1};
}

/* Forgets all leased and finished units. */
static void forget_units(strata_ps_worker *w) {
    w->n_reports = w->n_begun = w->given.n_more = 0;
    w->report = (strata_ps_next_ask){.unit.index = -1};
}

/* Reports finished units, if any, and requests more; waits at most `seconds` for the reply. The last unit is not finished while
 * its push is in progress. */
static strata_status ask_chief(strata_ps_worker *w, bool waits, double seconds, strata_error *err) {
    const int n_finished = w->n_reports - w->pushing, n = n_finished ? n_finished : 1;
    const size_t sums_bytes = (size_t)w->model->metrics.n_sums * sizeof *w->report_sums;
    strata_ps_next_ask none = {.unit.index = -1, .gives_back = w->report.gives_back},
                       *reports = n_finished ? w->reports : &none;
    memcpy(none.what, w->report.what, sizeof none.what);
    reports[n - 1].waits = waits;
    const struct iovec body = {w->report_sums, (size_t)n * sums_bytes};
    const strata_rpc_ask ask = {.method = STRATA_PS_NEXT,
                                .head = reports,
                                .head_bytes = (size_t)n * sizeof *reports,
                                .body = &body,
                                .n_body = 1,
                                .what = "the next batch"};
    strata_rpc_answer answer = {.head = &w->given, .head_bytes = sizeof w->given};
    w->given = (strata_ps_next_reply){0};
    w->n_begun = 0;
    const strata_status status = strata_rpc_client_call(w->chief, &ask, &answer, seconds, err);
    w->lost_chief = status == STRATA_PEER_LOST;
    if (status) return status;
    w->n_reports -= n_finished;
    if (n_finished && w->n_reports) {
        w->reports[0] = w->reports[n_finished];
        memcpy(w->report_sums, (char *)w->report_sums + (size_t)n_finished * sums_bytes, sums_bytes);
    }
    w->report.gives_back = false;
    w->fit->route = w->given.route;
    if (w->given.unit.epoch > w->fit->serial) w->fit->serial = w->given.unit.epoch;
    return STRATA_OK;
}

/* Waits for the push in progress, if there is one. Its unit is then finished. */
static strata_status finish_push(strata_ps_worker *w, strata_error *err) {
    return w->pushing ? of_server(w, strata_ps_finish_push(w, &w->reports[w->n_reports - 1], err)) : STRATA_OK;
}

/* Gets the next unit: one that is already leased, else the chief is asked for one. */
static strata_status next_unit(strata_ps_worker *w, bool waits, strata_ps_job *j, int32_t *out_grant, strata_error *err) {
    const strata_ps_unit *unit = &w->given.unit;
    if (w->n_begun < w->given.n_more) {
        unit = &w->given.more[w->n_begun++];
    } else {
        const double began = strata_trace_now();
        STRATA_TRY(ask_chief(w, waits, STRATA_PS_CALL_SECONDS, err));
        strata_ps_trace_slice(w, waits ? "wait for a batch" : "ask for the next batch", j, began);
    }
    const bool granted = w->given.grant == STRATA_PS_GRANTED;
    *out_grant = w->given.grant;
    strata_trace_add_counter(w->fit->trace, "queue depth", !waits + (granted ? 1 + w->given.n_more - w->n_begun : 0),
                             strata_trace_now());
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
        if (w->layout && w->layout->n_buckets) STRATA_TRY(finish_push(w, err));
        STRATA_TRY(strata_ps_submit(w, j, i, &program, &slot, err));
        w->n_slots = strata_group_n_slots(program->group);
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
    return own_pace && grant == STRATA_PS_GRANTED && !w->given.evaluates && !w->n_parts && w->n_slots > 1;
}

/* Copies all values of the servers to the model. */
static strata_status take_all(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    for (int k = 0; k < w->n_sparse; k++) {
        j->renumbered[k] = false;
        strata_ps_row_set_clear(&j->rows[k]);
        for (int32_t row = 0; row < j->rows[k].n_rows; row++) strata_ps_row_set_add(&j->rows[k], row);
    }
    j->ahead = false;
    const strata_status started = strata_ps_start_pull(w, j, err);
    /* also waits for requests that were started before a failure */
    const strata_status pulled = strata_ps_finish_pull(w, j, started ? NULL : err);
    if (started || pulled) return of_server(w, started ? started : pulled);
    return strata_ps_upload(w, j, err);
}

/* Evaluates a batch. No worker pushes meanwhile, so the parameters are pulled once for all batches. */
static strata_status visit(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    int64_t n = 0;
    if (w->visits_epoch != j->unit.epoch) STRATA_TRY(take_all(w, j, err));
    w->visits_epoch = j->unit.epoch;
    STRATA_TRY(strata_ps_seek_visit(w, j->unit.index, &n, err));
    STRATA_TRY(strata_model_evaluate_batch(w->model, w->fit->opts->validation, &w->fit->validation_feed, w->visits, n,
                                           w->unit_sums, err));
    w->report.unit = j->unit;
    w->report.evaluates = true;
    w->report.examples = n;
    keep_report(w);
    return STRATA_OK;
}

static strata_status do_unit(strata_ps_worker *w, strata_ps_job *j, strata_ps_job *ahead, int32_t *out_grant,
                             strata_error *err) {
    const double began = strata_clock_seconds();
    *out_grant = STRATA_PS_WAIT;
    if (j->evaluates) return visit(w, j, err);
    if (!j->pulling) STRATA_TRY(of_server(w, strata_ps_start_pull(w, j, err)));
    STRATA_TRY(of_server(w, strata_ps_finish_pull(w, j, err)));
    STRATA_TRY(compute(w, j, ahead, out_grant, err));
    bool overflow = false;
    const char *wrong = strata_ps_prepare_push(w, &overflow);
    if (!wrong && j->examples) STRATA_TRY(of_server(w, strata_ps_start_push(w, j, err)));
    w->report.unit = j->unit;
    w->report.rate = w->rate;
    w->report.examples = j->examples;
    w->report.whole = j->whole;
    w->report.overflow = overflow;
    w->report.refused = wrong && !overflow;
    if (!w->report.refused || !strata_ps_name_wrong_data(w, j, w->report.what, sizeof w->report.what))
        snprintf(w->report.what, sizeof w->report.what, "%s", wrong ? wrong : "");
    w->report.seconds = strata_clock_seconds() - began;
    keep_report(w);
    return may_overlap(w, *out_grant) ? STRATA_OK : finish_push(w, err);
}

/* Waits for all requests in progress and ignores their results. */
static void drop_requests(strata_ps_worker *w) {
    strata_ps_next_ask none = {0};
    const strata_status ignored = strata_ps_finish_push(w, &none, NULL);
    (void)ignored;
    strata_ps_drop_pulls(w, &w->jobs[0]);
    strata_ps_drop_pulls(w, &w->jobs[1]);
}

/* Returns this worker's leases because a server could not be reached; the chief then checks that server. */
static void give_back(strata_ps_worker *w, const char *why) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    drop_requests(w);
    w->lost_server = false;
    forget_units(w);
    w->report.gives_back = true;
    snprintf(w->report.what, sizeof w->report.what, "%.*s", (int)sizeof w->report.what - 1, why);
    nanosleep(&pause, NULL);
}

/* Sends this task's terms to the chief, which compares them, and replies with the route when all workers have connected. */
static strata_status greet_chief(strata_ps_worker *w, strata_error *err) {
    strata_ps_hello_reply reply = {0};
    STRATA_TRY(strata_ps_say_hello(w->fit, w->chief, 2 * w->task->connect_seconds, &reply, err));
    w->fit->route = reply.route;
    return STRATA_OK;
}

/* After the chief was lost: a chief that was started again begins the epoch again, so earlier leases do not count. */
static strata_status greet_again(strata_ps_worker *w, strata_error *err) {
    drop_requests(w);
    w->lost_chief = w->lost_server = false;
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
        if (status && w->lost_chief && strata_rpc_client_connected(w->chief)) {
            STRATA_TRY(greet_again(w, err));
            grant = STRATA_PS_WAIT;
            continue;
        }
        if (status && !w->lost_server) return strata_fail(err, status, "%s", own.message);
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
        w->jobs[0].has_close = false;
        const strata_status status = take_all(w, &w->jobs[0], &own);
        const double left = until - strata_clock_seconds();
        if (!status) return STRATA_OK;
        if (status != STRATA_PEER_LOST || left <= 0) return strata_fail(err, status, "%s", own.message);
        give_back(w, own.message);
        if (!strata_rpc_client_connected(w->chief)) continue;
        const strata_status ignored = ask_chief(w, false, left, NULL); /* for the route */
        (void)ignored;
    }
}

static strata_status make_job(const strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    j->batches = calloc((size_t)w->fit->accumulate, sizeof *j->batches);
    j->values = calloc((size_t)strata_model_all_size(w->model) + 1, sizeof *j->values);
    j->rows = calloc((size_t)w->n_sparse + 1, sizeof *j->rows);
    j->renumbered = calloc((size_t)w->n_sparse + 1, sizeof *j->renumbered);
    j->pulls = calloc((size_t)w->n_servers, sizeof *j->pulls);
    if (!j->batches || !j->values || !j->rows || !j->renumbered || !j->pulls) return strata_ps_worker_no_memory(err);
    for (int k = 0; k < w->n_sparse; k++)
        STRATA_TRY(strata_ps_row_set_make(&j->rows[k], &w->model->parameters.items[w->sparse[k]], err));
    return STRATA_OK;
}

strata_status strata_ps_worker_make(strata_ps_worker *w, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    w->attempt = (int64_t)(w->task->incarnation >> 2) + 1; /* a task that is started again has other numbers */
    w->servers = calloc((size_t)w->n_servers, sizeof(*w->servers));
    w->pushes = calloc((size_t)w->n_servers, sizeof *w->pushes);
    w->sparse = calloc((size_t)set->n + 1, sizeof *w->sparse);
    w->sums_of_dense = calloc((size_t)set->dense_size + 1, sizeof *w->sums_of_dense);
    w->states = calloc((size_t)set->state_size + 1, sizeof *w->states);
    w->rates = calloc((size_t)set->state_size + 1, sizeof *w->rates);
    w->unit_sums = calloc((size_t)w->model->metrics.n_sums + 1, sizeof *w->unit_sums);
    w->report_sums = calloc((size_t)(w->model->metrics.n_sums + 1) * STRATA_PS_MOST_REPORTS, sizeof *w->report_sums);
    if (!w->servers || !w->pushes || !w->sparse || !w->sums_of_dense || !w->states || !w->rates || !w->unit_sums ||
        !w->report_sums)
        return strata_ps_worker_no_memory(err);
    for (int i = 0; i < set->n; i++)
        if (set->items[i].sparse) w->sparse[w->n_sparse++] = i;
    w->sums = calloc((size_t)w->n_sparse + 1, sizeof *w->sums);
    w->tables = calloc((size_t)w->n_sparse + 1, sizeof(*w->tables));
    w->parts = calloc((size_t)w->n_servers * STRATA_MOST_BUCKETS + 1, sizeof *w->parts);
    w->n_parted = calloc((size_t)w->n_servers + 1, sizeof *w->n_parted);
    w->row_gradients = calloc((size_t)w->n_sparse + 1, sizeof *w->row_gradients);
    if (!w->sums || !w->tables || !w->row_gradients || !w->parts || !w->n_parted) return strata_ps_worker_no_memory(err);
    for (int k = 0; k < w->n_sparse; k++) STRATA_TRY(strata_ps_make_table(w, k, err));
    for (int k = 0; k < w->n_sparse; k++) STRATA_TRY(strata_ps_row_set_make(&w->sums[k], &set->items[w->sparse[k]], err));
    STRATA_TRY(make_job(w, &w->jobs[0], err));
    return make_job(w, &w->jobs[1], err);
}

static void finish_job(const strata_ps_worker *w, strata_ps_job *j) {
    if (j->pulls) strata_ps_drop_pulls(w, j);
    for (int s = 0; s < w->n_servers && j->pulls; s++) {
        strata_ps_pull *p = &j->pulls[s];
        free(p->rooms);
        free(p->head);
        free(p->ids);
        free(p->narrow);
        free(p->rows);
    }
    for (int64_t i = 0; i < w->fit->accumulate && j->batches; i++) {
        for (int k = 0; k < STRATA_MAX_INPUTS; k++) free(j->batches[i].x[k]);
        for (int k = 0; k < STRATA_MAX_OUTPUTS; k++) free(j->batches[i].y[k]);
        free(j->batches[i].weights);
    }
    for (int k = 0; k < w->n_sparse && j->rows; k++) strata_ps_row_set_finish(&j->rows[k]);
    free(j->batches);
    free(j->values);
    free(j->rows);
    free(j->renumbered);
    free(j->pulls);
}

void strata_ps_worker_finish(strata_ps_worker *w) {
    strata_ps_next_ask none = {0};
    const strata_status pushed = strata_ps_finish_push(w, &none, NULL), parts = strata_ps_finish_parts(w, NULL);
    (void)pushed, (void)parts;
    w->task->sink.worker = NULL;
    finish_job(w, &w->jobs[0]);
    finish_job(w, &w->jobs[1]);
    for (int s = 0; s < w->n_servers && w->pushes; s++) {
        free(w->pushes[s].head);
        free(w->pushes[s].pieces);
        free(w->pushes[s].ids);
        free(w->pushes[s].narrow);
    }
    free(w->pushes);
    for (int s = 0; s < w->n_servers && w->servers; s++) strata_rpc_client_destroy(w->servers[s]);
    strata_rpc_client_destroy(w->chief);
    for (int k = 0; k < w->n_sparse && w->sums; k++) strata_ps_row_set_finish(&w->sums[k]);
    for (int k = 0; k < w->n_sparse && w->tables; k++) free(w->tables[k]);
    strata_batches_destroy(w->batches);
    strata_batches_destroy(w->visits);
    free(w->tables);
    free(w->row_gradients);
    free(w->parts);
    free(w->n_parted);
    free(w->servers);
    free(w->sparse);
    free(w->sums_of_dense);
    free(w->states);
    free(w->rates);
    free(w->sums);
    free(w->unit_sums);
    free(w->report_sums);
}

strata_status strata_ps_meet_servers(strata_ps_worker *w, strata_error *err) {
    strata_rpc_client *ignored = NULL;
    for (int g = 0; g < w->n_servers; g++) {
        const strata_status status = strata_ps_reach(w, g, &ignored, err);
        if (status && !(status == STRATA_PEER_LOST && w->task->replicas)) return status;
    }
    return STRATA_OK;
}

static strata_status meet(strata_ps_worker *w, strata_error *err) {
    const size_t shared_bytes = 64 << 10; /* requests for batches and their replies are short */
    STRATA_TRY(strata_ps_connect(w->task, STRATA_TASK_CHIEF, 0, shared_bytes, &w->chief, err));
    STRATA_TRY(greet_chief(w, err));
    return strata_ps_meet_servers(w, err);
}

/* Sends the chief the reason why this worker ends. */
static void say_failure(const strata_ps_worker *w, strata_status status, const char *message) {
    const int32_t head = (int32_t)status;
    const struct iovec body = {(char *)message, strlen(message)};
    const strata_rpc_ask ask = {
        .method = STRATA_PS_FAIL, .head = &head, .head_bytes = sizeof head, .body = &body, .n_body = 1, .what = "a failure"};
    /* the chief may be the task that failed */
    const strata_status ignored = strata_rpc_client_call(w->chief, &ask, NULL, 5, NULL);
    (void)ignored;
}

strata_status strata_ps_fit_worker(strata_ps_fit *fit, strata_error *err) {
    strata_ps_worker w = {.fit = fit,
                          .task = fit->task,
                          .model = fit->model,
                          .n_servers = fit->plan.n_servers,
                          .form = {.weighted = strata_model_weighs(fit->dataset, fit->opts->class_weights)},
                          .visits_epoch = -1,
                          .report = {.unit.index = -1}};
    strata_error own = {0};
    strata_status status = strata_ps_worker_make(&w, &own);
    if (!status) status = meet(&w, &own);
    if (!status) status = train(&w, &own);
    if (!status) status = take_last(&w, &own);
    if (status && w.chief) say_failure(&w, status, own.message);
    strata_ps_worker_finish(&w);
    return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
}
