/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of the chief: it connects to the servers and waits for the workers, runs the epochs, and ends all tasks. It computes
 * no gradients.
 *
 * Threads: the handler of leases.c runs in a thread for each worker, and the fit in the caller's thread. They share the struct
 * of the chief under its lock. */
#include "strategies/parameter_server/chief.h"

#include <stdio.h>

#include "core/base/locale.h"
#include "core/model/loop.h"

/* A chief may begin 2^SERIAL_BITS epochs. A server knows only the first serial number of the last chief. */
enum { SERIAL_BITS = 32 };

/* ---- reports ---- */

void strata_ps_load_add_staleness(strata_parameter_server_load *load, strata_ps_load_sums *sums,
                                  const strata_ps_next_ask *ask) {
    load->pushes += ask->n_staleness;
    sums->staleness += ask->staleness_sum;
    if (ask->staleness_max > load->staleness_max) load->staleness_max = ask->staleness_max;
    for (int i = 0; i < STRATA_STALENESS_BINS; i++) load->staleness_histogram[i] += ask->staleness_bins[i];
    if (!load->pushes) return;
    load->staleness_mean = (double)sums->staleness / (double)load->pushes;
    load->stale_share = 1 - (double)load->staleness_histogram[0] / (double)load->pushes;
}

void strata_ps_load_add_leases(strata_parameter_server_load *load, strata_ps_load_sums *sums, int leases) {
    sums->leases += leases;
    sums->asks++;
    load->leases_mean = (double)sums->leases / (double)sums->asks;
    if (leases > load->leases_max) load->leases_max = leases;
}

void strata_ps_load_add_queue(strata_parameter_server_load *load, const strata_ps_hello_reply *reply) {
    if (reply->pulls > load->server_pulls_max) load->server_pulls_max = reply->pulls;
    if (reply->pushes > load->server_pushes_max) load->server_pushes_max = reply->pushes;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void strata_ps_load_find_stragglers(const strata_parameter_server_worker *workers, int n,
                                    strata_parameter_server_totals *totals) {
    STRATA_FREED double *known = calloc((size_t)n + 1, sizeof *known);
    double slowest = 0;
    int n_known = 0, which = -1;
    totals->stragglers = 0;
    totals->slowest = -1;
    totals->slowest_ratio = 0;
    for (int w = 0; known && w < n; w++) {
        if (!workers[w].present || workers[w].step_seconds <= 0) continue;
        known[n_known++] = workers[w].step_seconds;
        if (workers[w].step_seconds <= slowest) continue;
        slowest = workers[w].step_seconds;
        which = w;
    }
    if (n_known < 2) return;
    qsort(known, (size_t)n_known, sizeof *known, ascending);
    const double median = known[(n_known - 1) / 2];
    for (int i = 0; i < n_known; i++) totals->stragglers += known[i] > 2 * median;
    totals->slowest = which;
    totals->slowest_ratio = slowest / median;
}

/* The seconds of a worker's step: the mean, or the time of its present step if that is already longer. */
static double step_seconds(const strata_ps_chief *c, int w) {
    const struct worker *own = &c->workers[w];
    const bool computes = strata_ps_pace_started(c->pace, w) > strata_ps_pace_clock(c->pace, w);
    const double since =
        computes && own->seconds > 0 ? (strata_clock_seconds() - own->answered) / (own->n_given ? own->n_given : 1) : 0;
    return since > own->seconds ? since : own->seconds;
}

static void take_route(void *user, const strata_ps_route *route) {
    strata_ps_chief *c = user;
    STRATA_LOCKED(&c->lock);
    c->fit->route = *route; /* workers get the route with their next batch */
    pthread_cond_broadcast(&c->changed);
}

void strata_ps_chief_update_totals(strata_ps_chief *c) {
    strata_parameter_server_totals *totals = &c->task->totals;
    STRATA_LOCKED(&c->task->lock);
    totals->present = 0;
    for (int w = 0; w < c->n_workers; w++) {
        totals->present += c->workers[w].came;
        c->task->workers[w].present = c->workers[w].came;
        if (!c->over) c->task->workers[w].step_seconds = step_seconds(c, w);
    }
    strata_ps_pace_count(c->pace, totals);
    totals->bytes_per_step = c->load.n_units ? (double)c->load.bytes / (double)c->load.n_units : 0;
    if (!c->over) strata_ps_load_find_stragglers(c->task->workers, c->n_workers, totals);
}

void strata_ps_chief_note_leases(strata_ps_chief *c) {
    strata_parameter_server_totals *totals = &c->task->totals;
    strata_trace_add_counter(c->fit->trace, "queue depth", totals->running, strata_trace_now());
    STRATA_LOCKED(&c->task->lock);
    strata_ps_load_add_leases(&totals->training, &c->load.training, totals->running);
    strata_ps_load_add_leases(&totals->epoch, &c->load.epoch, totals->running);
}

void strata_ps_chief_fail(strata_ps_chief *c, strata_status status, const char *message) {
    if (c->failure.status) return;
    c->failure.status = status;
    snprintf(c->failure.message, sizeof c->failure.message, "%s", message);
    pthread_cond_broadcast(&c->changed);
}

int strata_ps_chief_n_there(const strata_ps_chief *c) {
    int n = 0;
    for (int w = 0; w < c->n_workers; w++) n += c->workers[w].came;
    return n;
}

/* ---- the start and the end ---- */

/* Writes the workers that have not connected: "worker:1, worker:3". */
static void list_absent(const strata_ps_chief *c, char *out, size_t room) {
    size_t used = 0;
    *out = '\0';
    for (int w = 0; w < c->n_workers && used < room; w++)
        if (!c->workers[w].came) used += (size_t)snprintf(out + used, room - used, "%sworker:%d", used ? ", " : "", w);
}

/* Takes note of a worker that ended before it came. If a signal ended it, the training begins without it. If it ended by
 * itself, its command or its host differs from those of the others, which the user should know. The caller has the lock. */
static void note_ended(strata_ps_chief *c, int w, int code, strata_rpc_server *rpc) {
    enum { SIGNALS = 128, LEAST_OWN_CODE = 160 };
    char text[sizeof c->failure.message];
    c->workers[w].ended = true;
    c->task->totals.lost++;
    if (code > SIGNALS && code < LEAST_OWN_CODE) {
        strata_ps_notice(c->task, "worker:%d ended (exit code %d) before it joined; the training begins without it", w, code);
        return;
    }
    snprintf(text, sizeof text, "fit: worker:%d ended (exit code %d) before it joined%s", w, code,
             strata_rpc_server_refused(rpc).text);
    strata_ps_chief_fail(c, STRATA_PEER_LOST, text);
}

/* How many workers are waited for. Those that ended before they came are not. The caller has the lock. */
static int n_awaited(strata_ps_chief *c, strata_rpc_server *rpc) {
    int n = 0, code = 0;
    for (int w = 0; w < c->n_workers; w++) {
        const struct worker *own = &c->workers[w];
        if (!own->came && !own->ended && strata_ps_has_ended(STRATA_TASK_WORKER, w, &code)) note_ended(c, w, code, rpc);
        n += !own->came && !own->ended;
    }
    return n;
}

static strata_status wait_for_workers(strata_ps_chief *c, strata_rpc_server *rpc, strata_error *err) {
    strata_patience patience = strata_patience_of(c->task->connect_seconds);
    char absent[256];
    STRATA_LOCKED(&c->lock);
    while (!c->failure.status && n_awaited(c, rpc) && strata_patience_left(&patience) > 0)
        strata_wait_for(&c->changed, &c->lock, 0.25);
    const bool some_absent = n_awaited(c, rpc) > 0;
    if (c->failure.status) return strata_fail(err, c->failure.status, "%s", c->failure.message);
    list_absent(c, absent, sizeof absent);
    if (some_absent)
        return strata_fail(err, STRATA_TIMEOUT, "fit: %s did not come to the chief in %.0f s%s", absent,
                           c->task->connect_seconds, strata_rpc_server_refused(rpc).text);
    if (strata_ps_chief_n_there(c)) return STRATA_OK;
    return strata_fail(err, STRATA_PEER_LOST, "fit: %s ended before they joined, and no worker is left", absent);
}

strata_status strata_ps_chief_spread_when_there(strata_ps_chief *c, int64_t serial, double until, strata_error *err) {
    const double began = strata_clock_seconds();
    strata_error found = {0};
    strata_status status;
    int code = 0;
    do {
        for (int s = 0; s < c->watch.n; s++) {
            do {
                const double left = until - strata_clock_seconds();
                status = strata_ps_say_hello(c->fit, c->watch.clients[s], left > 1 ? left : 1, NULL, &found);
            } while (status == STRATA_PEER_LOST && strata_clock_seconds() < until &&
                     !strata_ps_has_ended(STRATA_TASK_PS, s, &code));
            if (status == STRATA_PEER_LOST && strata_ps_has_ended(STRATA_TASK_PS, s, &code))
                return strata_fail(err, status, "fit: ps:%d ended (exit code %d), and no other server has its shards (%s)", s,
                                   code, found.message);
            if (status == STRATA_PEER_LOST)
                return strata_fail(err, status, "fit: ps:%d was lost and did not start again in %.0f s (%s)", s, until - began,
                                   found.message);
            if (status) return strata_fail(err, status, "%s", found.message);
        }
        strata_ps_watch_forget(&c->watch);
        status = strata_ps_watch_spread(&c->watch, serial, err);
    } while (status == STRATA_PEER_LOST && strata_clock_seconds() < until);
    return status;
}

static strata_status begin(strata_ps_chief *c, strata_rpc_server *rpc, strata_error *err) {
    STRATA_TRY(strata_ps_watch_meet(&c->watch, err));
    STRATA_TRY(wait_for_workers(c, rpc, err));
    pthread_mutex_lock(&c->lock);
    if (c->fit->serial > c->epoch.serial) c->epoch.serial = c->fit->serial;
    c->epoch.serial = ((c->epoch.serial >> SERIAL_BITS) + 1) << SERIAL_BITS;
    pthread_mutex_unlock(&c->lock);
    strata_status status = strata_ps_watch_spread(&c->watch, c->epoch.serial, err);
    if (status == STRATA_PEER_LOST) /* its connection broke, or it was started again and has no values yet */
        status = strata_ps_chief_spread_when_there(c, c->epoch.serial, strata_clock_seconds() + c->task->connect_seconds, err);
    if (status) return status;
    STRATA_LOCKED(&c->lock);
    c->begun = true;
    pthread_cond_broadcast(&c->changed);
    return STRATA_OK;
}

strata_status strata_ps_chief_keep_for_workers(strata_ps_chief *c, bool has_last, strata_error *err) {
    const double patience = 3;
    strata_status status = strata_ps_watch_look(&c->watch, err);
    if (status == STRATA_PEER_LOST && has_last) {
        strata_ps_notice(c->task, "a server was lost behind the last step (%.200s)", err->message);
        status = strata_ps_chief_spread_when_there(c, c->epoch.serial + 1, strata_clock_seconds() + patience, err);
    }
    return status == STRATA_PEER_LOST || status == STRATA_TIMEOUT ? STRATA_OK : status;
}

/* Waits, for a limited time, until the workers have fetched the final parameters and ended. A worker whose connection has just
 * broken, perhaps because this process was stopped, may connect again for them. If a worker cannot reach a server, the servers
 * are checked as during the training. If training does not begin, each worker gets the reason, also one that connects late,
 * unless the time in which all workers had to connect is over. */
static void dismiss_workers(strata_ps_chief *c, strata_status status, const char *message) {
    /* the model then has the parameters of the best epoch */
    const bool best = c->fit->opts->restore_best && c->fit->model->best.epochs;
    const double now = strata_clock_seconds(), until = now + 10, heard_until = now + 5, back_within = 4;
    STRATA_LOCKED(&c->lock);
    c->over = true;
    if (status) strata_ps_chief_fail(c, status, message);
    pthread_cond_broadcast(&c->changed);
    for (;;) {
        bool any = false;
        const bool waits = !c->begun && status != STRATA_TIMEOUT && strata_clock_seconds() < heard_until;
        for (int w = 0; w < c->n_workers; w++) {
            const struct worker *own = &c->workers[w];
            any |= own->connected || (waits && !own->heard && !own->ended);
            any |= own->lost_at > 0 && strata_clock_seconds() < own->lost_at + back_within;
        }
        if (!any || strata_clock_seconds() > until) return;
        if (c->doubted && !status) {
            strata_error own = {0};
            c->doubted = false;
            pthread_mutex_unlock(&c->lock);
            strata_ps_ignore(strata_ps_chief_keep_for_workers(c, !best, &own)); /* the chief's model is complete */
            pthread_mutex_lock(&c->lock);
        }
        strata_wait_for(&c->changed, &c->lock, 0.1);
    }
}

static strata_status make(strata_ps_chief *c, strata_error *err) {
    const strata_ps_pace_options visits = {.pace = STRATA_PACE_ASYNCHRONOUS, .n_workers = c->n_workers};
    strata_memory *memory = &c->memory;
    c->workers = strata_memory_take(memory, c->n_workers, sizeof *c->workers);
    c->epoch.sums = strata_memory_take(memory, c->n_sums, sizeof *c->epoch.sums);
    c->step.sums = strata_memory_take(memory, c->n_workers * c->n_sums, sizeof *c->step.sums);
    c->step.examples = strata_memory_take(memory, c->n_workers, sizeof *c->step.examples);
    c->visits.sums = strata_memory_take(memory, c->fit->n_visits * c->n_sums, sizeof *c->visits.sums);
    c->visits.examples = strata_memory_take(memory, c->fit->n_visits, sizeof *c->visits.examples);
    if (memory->failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d workers", c->n_workers);
    STRATA_TRY(strata_ps_watch_make(&c->watch, c->fit, err));
    STRATA_TRY(strata_ps_pace_create(&visits, &c->visits.pace, err));
    return strata_ps_pace_create(&c->task->pace, &c->pace, err);
}

static void finish(strata_ps_chief *c) {
    strata_ps_watch_finish(&c->watch);
    strata_ps_pace_destroy(c->pace);
    strata_ps_pace_destroy(c->visits.pace);
    free(c->tell.steps);
    strata_memory_finish(&c->memory);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

strata_status strata_ps_fit_chief(strata_ps_fit *fit, strata_error *err) {
    strata_ps_chief c = {.fit = fit,
                         .task = fit->task,
                         .watch.on_route = take_route,
                         .n_workers = fit->task->pace.n_workers,
                         .n_sums = fit->model->metrics.n_sums,
                         .rate = fit->model->rate.own,
                         .closed.scale = 1};
    strata_rpc_server *rpc = NULL;
    strata_error own = {0};
    c.watch.user = &c;
    pthread_mutex_init(&c.lock, NULL);
    strata_clock_cond_init(&c.changed);
    strata_status status = make(&c, &own);
    if (!status && !fit->opts->first_step) fit->model->position = (strata_model_position){0};
    if (!status) status = strata_validation_begin(fit->model, fit->opts, &own);
    if (!status) status = strata_ps_listen(fit->task, strata_ps_chief_handle, strata_ps_chief_on_peer, &c, &rpc, &own);
    if (!status) status = begin(&c, rpc, &own);
    if (!status) status = strata_ps_chief_run_epochs(&c, &own);
    if (rpc) dismiss_workers(&c, status, own.message);
    if (c.watch.clients) strata_ps_dismiss_servers(fit, c.watch.clients, status, own.message);
    strata_rpc_server_destroy(rpc);
    if (!status && !fit->history->stopped) strata_validation_forget(fit->model);
    finish(&c);
    return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
}
