/* SPDX-License-Identifier: Apache-2.0
 *
 * A model whose parameters are on the servers, for closures of a coordinator (strata/coordinator.h): servers, messages and
 * gradients are those of fit, but there is no chief of a fit, since the coordinator decides which worker computes what. With
 * replicas the chief's model has a thread that monitors the servers. Workers have no connection to the chief; when a server is
 * lost they query another server for the holder of its shards. */
#include <time.h>

#include "core/base/text.h"
#include "core/loss/loss.h"
#include "core/model/data.h"
#include "strata/coordinator.h"
#include "strata/sha256.h"
#include "strategies/parameter_server/worker.h"

struct strata_remote_model {
    strata_ps_fit fit;
    /* For the chief. With replicas a thread monitors the servers, under `lock`, until `closing` is set. */
    strata_ps_watch watch;
    bool is_chief, watching, closing;
    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* For a worker; NULL: another task. */
    strata_ps_worker *worker;
};

/* ---- a worker's steps: pull, gradients and push of a batch that the caller gives ---- */

/* Queries a server for the route (which server has which shards), and uses it if it is newer. */
static strata_status ask_route(strata_ps_worker *w, int server, double seconds, strata_error *err) {
    strata_ps_hello_reply reply = {0};
    STRATA_TRY(strata_ps_say_hello(w->fit, w->links.servers[server], seconds, &reply, err));
    if (reply.route.number > w->fit->route.number) w->fit->route = reply.route;
    return STRATA_OK;
}

/* With replicas: connects to the server that has the shards of each bundle. A server that was lost before this worker began is
 * not waited for, since the other servers know that it was lost. */
static strata_status meet_holders(strata_ps_worker *w, strata_error *err) {
    const double until = strata_clock_seconds() + w->task->connect_seconds, patience = 1;
    for (;;) {
        int missing = -1;
        for (int s = 0; s < w->links.n_servers; s++) {
            strata_status status = STRATA_OK;
            if (w->links.servers[s]) continue;
            status = strata_ps_connect(w->task, STRATA_TASK_PS, s, patience, strata_ps_plan_shared_bytes(&w->fit->plan),
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
        strata_ps_ignore(ask_route(w, s, patience, NULL));
    }
}

/* The gradients of the job's one batch, from parameters that are pulled for it. */
static strata_status compute_once(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    strata_model_program *program = NULL;
    int slot = 0;
    STRATA_TRY(strata_ps_find_rows(w, j, err));
    j->ahead = w->task->corrects;
    STRATA_TRY(strata_ps_pull_now(w, j, err));
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
    const strata_status started = strata_ps_start_push(w, j, err);
    /* also waits for requests that were started before a failure */
    const strata_status finished = strata_ps_finish_push(w, &w->reports.now, started ? NULL : err);
    return started ? started : finished;
}

/* ---- creating ---- */

/* Writes the terms: the settings that must be equal in all tasks. */
static strata_status make_terms(strata_ps_fit *fit, strata_error *err) {
    const strata_ps_task *task = fit->task;
    const strata_optimizer *optimizer = &fit->model->optimizer;
    char hash[STRATA_SHA256_TEXT_BYTES];
    STRATA_FREED char *json = NULL;
    strata_text text = {0};
    STRATA_TRY(strata_model_to_json(fit->model, &json, err));
    STRATA_TRY(strata_sha256_of(json, strlen(json), hash, err));
    hash[12] = 0; /* 12 hexadecimal digits are enough for people */
    strata_text_add(&text, "way of training\tclosures of a coordinator\noptimizer\t%s\nlearning rate\t%.17g\n", optimizer->name,
                    (double)optimizer->learning_rate);
    strata_text_add(&text,
                    "partitioner\t%s\ntype on the wire\t%s\nnumber of servers\t%d\nnumber of replicas\t%d\n"
                    "hash of the model's description\t%s\n",
                    task->partitioner_text, strata_dtype_name(task->wire), task->spec.jobs[STRATA_TASK_PS].n_tasks,
                    task->replicas, hash);
    return strata_text_take(&text, &fit->terms, NULL, err);
}

static strata_status prepare(strata_model *model, strata_ps_fit *fit, strata_error *err) {
    if (!model->strategy || strcmp(model->strategy->name, "parameter_server") != 0)
        return strata_fail(err, STRATA_INVALID, "a remote model must be compiled under the strategy parameter_server, not %s",
                           model->strategy ? model->strategy->name : "without one");
    *fit = (strata_ps_fit){.task = strata_ps_task_of(model), .model = model, .accumulate = 1};
    if (fit->task->pace.pace != STRATA_PACE_ASYNCHRONOUS)
        return strata_fail(
            err, STRATA_INVALID,
            "closures run when a worker is free: a remote model needs the pace ASYNCHRONOUS; other paces are for fit");
    if (strata_model_accumulates(model) > 1)
        return strata_fail(err, STRATA_INVALID, "gradient_accumulation_steps is %lld; a step of a remote model is one batch",
                           (long long)strata_model_accumulates(model));
    STRATA_TRY(
        strata_ps_plan_make(model, &fit->task->partitioner, fit->task->spec.jobs[STRATA_TASK_PS].n_tasks, &fit->plan, err));
    const strata_status status = make_terms(fit, err);
    if (status) strata_ps_plan_finish(&fit->plan);
    return status;
}

static void finish_fit(strata_ps_fit *fit) {
    free(fit->terms);
    strata_ps_plan_finish(&fit->plan);
}

strata_status strata_remote_model_serve(strata_model *model, strata_error *err) {
    strata_ps_fit fit;
    STRATA_TRY(prepare(model, &fit, err));
    const strata_status status =
        fit.task->spec.task_type == STRATA_TASK_PS
            ? strata_ps_fit_server(&fit, err)
            : strata_fail(err, STRATA_INVALID, "%s is no parameter server; only a task ps serves a model", fit.task->name);
    finish_fit(&fit);
    return status;
}

static void take_route(void *user, const strata_ps_route *route) {
    ((strata_remote_model *)user)->fit.route = *route;
}

/* Monitors the servers until the model is closed. Shards that no server has any more cannot be restored: steps and fetch fail
 * then. */
static void *look_after_servers(void *user) {
    const double patience = 0.5;
    strata_remote_model *r = user;
    STRATA_LOCKED(&r->lock);
    while (!r->closing) {
        strata_ps_ignore(strata_ps_watch_look(&r->watch, &(strata_error){0}));
        strata_wait_for(&r->changed, &r->lock, patience);
    }
    return NULL;
}

/* The chief connects to the servers and sends them the parameters. */
static strata_status open_chief(strata_remote_model *r, strata_error *err) {
    r->is_chief = true;
    r->watch = (strata_ps_watch){.on_route = take_route, .user = r};
    pthread_mutex_init(&r->lock, NULL);
    strata_clock_cond_init(&r->changed);
    STRATA_TRY(strata_ps_watch_make(&r->watch, &r->fit, err));
    STRATA_TRY(strata_ps_watch_meet(&r->watch, err));
    STRATA_TRY(strata_ps_watch_spread(&r->watch, 0, err));
    if (!r->fit.task->replicas) return STRATA_OK;
    r->watching = !pthread_create(&r->watcher, NULL, look_after_servers, r);
    return r->watching ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no thread to look after the servers");
}

static void close_chief(strata_remote_model *r) {
    if (r->watching) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->watcher, NULL);
    }
    if (r->watch.clients) strata_ps_dismiss_servers(&r->fit, r->watch.clients, STRATA_OK, "");
    strata_ps_watch_finish(&r->watch);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

static strata_status open_worker(strata_remote_model *r, strata_error *err) {
    strata_ps_fit *fit = &r->fit;
    strata_ps_worker *w = r->worker = calloc(1, sizeof *w);
    if (!w) return strata_ps_worker_no_memory(err);
    *w = (strata_ps_worker){.fit = fit, .task = fit->task, .model = fit->model, .links.n_servers = fit->plan.n_servers};
    STRATA_TRY(strata_ps_worker_make(w, err));
    return fit->task->replicas ? meet_holders(w, err) : strata_ps_meet_servers(w, err);
}

strata_status strata_remote_model_open(strata_model *model, strata_remote_model **out_remote, strata_error *err) {
    *out_remote = NULL;
    strata_remote_model *r = calloc(1, sizeof *r);
    if (!r) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a remote model");
    strata_status status = prepare(model, &r->fit, err);
    if (status) {
        free(r);
        return status;
    }
    const strata_task_type type = r->fit.task->spec.task_type;
    if (type == STRATA_TASK_CHIEF)
        status = open_chief(r, err);
    else if (type == STRATA_TASK_WORKER)
        status = open_worker(r, err);
    else
        status = strata_fail(err, STRATA_INVALID, "%s serves a model; only the chief and workers open one", r->fit.task->name);
    if (status)
        strata_remote_model_close(r);
    else
        *out_remote = r;
    return status;
}

/* Fails with INVALID if the array does not have n elements of this dtype. */
static strata_status check_array(const strata_array *array, const char *what, strata_dtype dtype, size_t element_bytes,
                                 int64_t n, strata_error *err) {
    if (array->dtype == dtype && array->shape.rank >= 1 && array->shape.dims[0] == n && n >= 1 &&
        strata_array_bytes(array) == (size_t)n * element_bytes)
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "a step's %s are %s %s; the model takes %s of %zu bytes for each of n examples",
                       what, strata_dtype_name(array->dtype), strata_shape_text(array->shape).text, strata_dtype_name(dtype),
                       element_bytes);
}

strata_status strata_remote_model_step(strata_remote_model *r, int64_t number, const strata_array *x, const strata_array *y,
                                       double *out_loss, strata_error *err) {
    const strata_model *model = r->fit.model;
    strata_ps_worker *w = r->worker;
    if (!w)
        return strata_fail(err, STRATA_INVALID, "%s makes no steps; schedule closures, in which workers do", r->fit.task->name);
    if (number < 0) return strata_fail(err, STRATA_INVALID, "step %lld: steps are numbered from 0", (long long)number);
    const int64_t n = x->shape.rank ? x->shape.dims[0] : 0;
    for (int i = 0; i < model->n_inputs; i++)
        STRATA_TRY(check_array(&x[i], "features", model->inputs[i].dtype, strata_input_bytes(&model->inputs[i]), n, err));
    for (int i = 0; i < model->n_outputs; i++)
        STRATA_TRY(check_array(&y[i], "labels", strata_loss_label_dtype(model->outputs[i].loss),
                               strata_label_bytes(&model->outputs[i]), n, err));
    strata_ps_job *j = &w->jobs[0];
    strata_ps_batch *b = &j->batches[0];
    b->n = b->own = n;
    STRATA_TRY(strata_ps_reserve_batch(w, b, err));
    for (int i = 0; i < model->n_inputs; i++) memcpy(b->x[i], x[i].data, (size_t)n * strata_ps_input_bytes(w, i));
    for (int i = 0; i < model->n_outputs; i++) memcpy(b->y[i], y[i].data, (size_t)n * strata_label_bytes(&model->outputs[i]));
    j->unit = (strata_ps_unit){.index = number};
    j->lease.rate = model->rate.own;
    j->n_batches = 1;
    j->examples = j->whole = n;
    const double until = strata_clock_seconds() + w->task->connect_seconds;
    for (;;) {
        const strata_status status = make_step(w, j, number, out_loss, err);
        if (status != STRATA_PEER_LOST || !w->task->replicas || strata_clock_seconds() > until) return status;
        find_holders(w);
    }
}

/* With replicas, a server that has just been lost is detected, and the server with its copy is used. */
static strata_status fetch(strata_remote_model *r, strata_error *err) {
    const double until = strata_clock_seconds() + r->fit.task->connect_seconds;
    for (;;) {
        const strata_status status = strata_ps_fetch_values(&r->fit, r->watch.clients, NULL, err);
        if (!r->fit.task->replicas || (status && status != STRATA_PEER_LOST) || strata_clock_seconds() > until) return status;
        /* No closure runs, so servers that were lost and are there again may take part again. */
        if (!status) return strata_ps_watch_take_back(&r->watch, 0, err);
        STRATA_TRY(strata_ps_watch_look(&r->watch, err));
    }
}

strata_status strata_remote_model_fetch(strata_remote_model *r, strata_error *err) {
    if (!r->is_chief) return strata_fail(err, STRATA_INVALID, "%s does not fetch a model; the chief does", r->fit.task->name);
    STRATA_LOCKED(&r->lock);
    return fetch(r, err);
}

void strata_remote_model_close(strata_remote_model *r) {
    if (!r) return;
    if (r->is_chief) close_chief(r);
    if (r->worker) strata_ps_worker_finish(r->worker);
    free(r->worker);
    finish_fit(&r->fit);
    free(r);
}
