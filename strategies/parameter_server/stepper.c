/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of closures (remote_model.c): a worker's pull, gradients and push of a batch that the caller gives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/model/data.h"
#include "strategies/parameter_server/worker.h"

struct strata_ps_stepper {
    strata_ps_worker worker;
};

/* Queries a server for the route (which server has which shards), and uses it if it is newer. */
static strata_status ask_route(strata_ps_worker *w, int server, double seconds, strata_error *err) {
    strata_ps_hello_reply reply = {0};
    STRATA_TRY(strata_ps_say_hello(w->fit, w->links.servers[server], seconds, &reply, err));
    if (reply.route.number > w->fit->route.number) w->fit->route = reply.route;
    return STRATA_OK;
}

/* With replicas: connects to the server that has the shards of each group. A server that was lost before this worker began is
 * not waited for, since the other servers know that it was lost. */
static strata_status meet_holders(strata_ps_worker *w, strata_error *err) {
    const double until = strata_clock_seconds() + w->task->connect_seconds, patience = 1;
    for (;;) {
        int missing = -1;
        for (int s = 0; s < w->links.n_servers; s++) {
            strata_status status = STRATA_OK;
            if (w->links.servers[s]) continue;
            status = strata_ps_connect_within(w->task, STRATA_TASK_PS, s, patience, strata_ps_plan_shared_bytes(&w->fit->plan),
                                              &w->links.servers[s], err);
            if (!status) status = ask_route(w, s, w->task->connect_seconds, err);
            if (status && status != STRATA_TIMEOUT && status != STRATA_PEER_LOST) return status;
        }
        for (int g = 0; g < w->links.n_servers; g++) {
            const int server = strata_ps_server_of(&w->fit->route, g, w->links.n_servers);
            if (!w->links.servers[server]) missing = server;
        }
        if (missing < 0) return STRATA_OK;
        if (strata_clock_seconds() > until)
            return strata_fail(err, STRATA_TIMEOUT, "ps:%d did not come to %s in %.0f s", missing, w->task->name,
                               w->task->connect_seconds);
    }
}

/* After a server was lost: any other server knows which server has its shards now. */
static void find_holders(strata_ps_worker *w) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    const double patience = 1;
    strata_ps_drop_pulls(w, &w->jobs[0]);
    nanosleep(&pause, NULL);
    for (int s = 0; s < w->links.n_servers; s++) {
        if (!w->links.servers[s] || !strata_rpc_client_connected(w->links.servers[s])) continue;
        /* if this fails, server s was lost meanwhile, too */
        const strata_status ignored = ask_route(w, s, patience, NULL);
        (void)ignored;
    }
}

strata_status strata_ps_stepper_create(strata_ps_fit *fit, strata_ps_stepper **out_stepper, strata_error *err) {
    strata_ps_stepper *s = calloc(1, sizeof *s);
    *out_stepper = NULL;
    if (!s) return strata_ps_worker_no_memory(err);
    s->worker = (strata_ps_worker){.fit = fit, .task = fit->task, .model = fit->model, .links.n_servers = fit->plan.n_servers};
    strata_status status = strata_ps_worker_make(&s->worker, err);
    if (!status) status = fit->task->replicas ? meet_holders(&s->worker, err) : strata_ps_meet_servers(&s->worker, err);
    if (status)
        strata_ps_stepper_destroy(s);
    else
        *out_stepper = s;
    return status;
}

void strata_ps_stepper_destroy(strata_ps_stepper *s) {
    if (!s) return;
    strata_ps_worker_finish(&s->worker);
    free(s);
}

/* The gradients of the job's one batch, from parameters that are pulled for it. */
static strata_status compute_once(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    strata_model_program *program = NULL;
    int slot = 0;
    STRATA_TRY(strata_ps_find_rows(w, j, err));
    j->ahead = w->task->corrects;
    const strata_status started = strata_ps_start_pull(w, j, err);
    /* also waits for requests that were started before a failure */
    const strata_status pulled = strata_ps_finish_pull(w, j, started ? NULL : err);
    if (started || pulled) return started ? started : pulled;
    STRATA_TRY(strata_ps_upload(w, j, err));
    STRATA_TRY(strata_ps_submit(w, j, 0, &program, &slot, err));
    STRATA_TRY(strata_ps_finish_batch(w, j, program, slot, err));
    strata_ps_clear_sums(w, j);
    return strata_ps_take_outputs(w, j, 0, program, slot, err);
}

/* If only some servers have applied a push, it is repeated; the others ignore it by the unit's number. */
static strata_status make_step(strata_ps_worker *w, strata_ps_job *j, int64_t number, double *out_loss, strata_error *err) {
    STRATA_TRY(compute_once(w, j, err));
    bool overflow = false;
    const char *wrong = strata_ps_prepare_push(w, &overflow);
    if (out_loss) *out_loss = (double)w->unit.sums[0] / (double)j->examples;
    if (overflow) return STRATA_OK; /* as in fit: the next step has a smaller scale */
    if (wrong) {
        char of_data[200];
        return strata_fail(err, STRATA_DATA, "%s: %s of step %lld is not finite; the gradients were not pushed", w->task->name,
                           strata_ps_name_wrong_data(w, j, of_data, sizeof of_data) ? of_data : wrong, (long long)number);
    }
    return strata_ps_push_all(w, j, &w->reports.now, err);
}

strata_status strata_ps_stepper_step(strata_ps_stepper *s, int64_t number, const strata_array *x, const strata_array *y,
                                     int64_t n, double *out_loss, strata_error *err) {
    strata_ps_worker *w = &s->worker;
    strata_ps_job *j = &w->jobs[0];
    strata_ps_batch *b = &j->batches[0];
    b->n = b->own = n;
    STRATA_TRY(strata_ps_reserve_batch(w, b, err));
    for (int i = 0; i < w->model->n_inputs; i++) memcpy(b->x[i], x[i].data, (size_t)n * strata_ps_input_bytes(w, i));
    for (int i = 0; i < w->model->n_outputs; i++)
        memcpy(b->y[i], y[i].data, (size_t)n * strata_label_bytes(&w->model->outputs[i]));
    j->unit = (strata_ps_unit){.index = number};
    j->rate = w->model->rate.own;
    j->n_batches = 1;
    j->examples = j->whole = n;
    const double until = strata_clock_seconds() + w->task->connect_seconds;
    for (;;) {
        const strata_status status = make_step(w, j, number, out_loss, err);
        if (status != STRATA_PEER_LOST || !w->task->replicas || strata_clock_seconds() > until) return status;
        find_holders(w);
    }
}
