/* SPDX-License-Identifier: Apache-2.0
 *
 * parameter_server: the kind of strategy, its options, and the fit of each task. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/data/batches.h"
#include "core/data/stage/stage.h"
#include "core/model/agree.h"
#include "core/model/data.h"
#include "core/model/loop.h"
#include "strategies/kinds.h"
#include "strategies/parameter_server/task.h"

enum { DEFAULT_CONNECT_SECONDS = 60 };

const strata_strategy_kind strata_strategy_parameter_server = {
    .name = "parameter_server", .most_devices = 1, .mesh = STRATA_MESH_OF_TASK, .choose = strata_choose_best};

/* ---- options ---- */

strata_status strata_parameter_server_check(const strata_strategy_options *opts, strata_error *err) {
    static const strata_parameter_server_options defaults = {0};
    const strata_parameter_server_options *own = opts->parameter_server ? opts->parameter_server : &defaults;
    const char *wrong = opts->communicator                                      ? "a communicator"
                        : opts->tpu_address                                     ? "a TPU address"
                        : opts->split || opts->auto_split                       ? "a split"
                        : opts->cross_device_ops                                ? "cross-device ops"
                        : opts->shard_optimizer == STRATA_SHARD_OPTIMIZER_YES   ? "a sharded optimizer"
                        : opts->compress && opts->compress != STRATA_DTYPE_BF16 ? "another compress than bf16"
                                                                                : NULL;
    if (wrong) return strata_fail(err, STRATA_INVALID, "strategy parameter_server does not take %s", wrong);
    if ((unsigned)own->pace > STRATA_PACE_SYNCHRONOUS)
        return strata_fail(err, STRATA_INVALID,
                           "strategy parameter_server: pace is %d; it is ASYNCHRONOUS, BOUNDED or SYNCHRONOUS", (int)own->pace);
    if (own->pace == STRATA_PACE_BOUNDED ? own->staleness < 1 : own->staleness != 0)
        return strata_fail(
            err, STRATA_INVALID,
            "strategy parameter_server: staleness is %lld; it is at least 1 with the pace BOUNDED, and 0 with others",
            (long long)own->staleness);
    if (own->backup < 0 || (own->backup && own->pace != STRATA_PACE_SYNCHRONOUS))
        return strata_fail(err, STRATA_INVALID,
                           "strategy parameter_server: backup is %d; it is 0 or more workers, with the pace SYNCHRONOUS",
                           own->backup);
    if (own->replicas < 0 || own->replicas > 1)
        return strata_fail(err, STRATA_INVALID, "strategy parameter_server: replicas is %d; it is 0 or 1", own->replicas);
    if ((unsigned)own->old_gradients > STRATA_OLD_GRADIENTS_PLAIN)
        return strata_fail(err, STRATA_INVALID, "strategy parameter_server: old_gradients is %d; it is CORRECTED or PLAIN",
                           (int)own->old_gradients);
    if (own->old_gradients && own->pace == STRATA_PACE_SYNCHRONOUS)
        return strata_fail(
            err, STRATA_INVALID,
            "strategy parameter_server: old_gradients is PLAIN, and with the pace SYNCHRONOUS no gradient is old");
    strata_partitioner ignored;
    return strata_partitioner_parse(own->partitioner, &ignored, err);
}

static strata_status check_cluster(const strata_cluster_spec *spec, const strata_parameter_server_options *opts,
                                   strata_error *err) {
    const int workers = spec->jobs[STRATA_TASK_WORKER].n_tasks, servers = spec->jobs[STRATA_TASK_PS].n_tasks;
    if (!strcmp(spec->source, "none"))
        return strata_fail(err, STRATA_INVALID,
                           "strategy parameter_server: nothing says which tasks there are; start them with strata launch "
                           "--workers 2 --ps 1, or name them by --cluster \"chief=HOST:PORT;worker=...;ps=...\" or TF_CONFIG");
    if (!spec->jobs[STRATA_TASK_CHIEF].n_tasks || workers < 1 || servers < 1)
        return strata_fail(err, STRATA_INVALID,
                           "strategy parameter_server: %s has %d chief, %d worker%s and %d ps; it needs a chief, at least one "
                           "worker and at least one ps (strata launch --workers 2 --ps 1, or --cluster "
                           "\"chief=HOST:PORT;worker=...;ps=...\")",
                           spec->source, spec->jobs[STRATA_TASK_CHIEF].n_tasks, workers, workers == 1 ? "" : "s", servers);
    if (workers > STRATA_PS_MOST_SHARES || servers > STRATA_PS_MOST_SHARES)
        return strata_fail(err, STRATA_INVALID, "strategy parameter_server: %d workers and %d ps; there may be %d of each",
                           workers, servers, STRATA_PS_MOST_SHARES);
    if (opts->backup >= workers)
        return strata_fail(
            err, STRATA_INVALID,
            "strategy parameter_server: backup is %d with %d workers; at least one worker's gradients must count", opts->backup,
            workers);
    if (opts->replicas && (servers < 2 || servers > STRATA_PS_MOST_REPLICATED))
        return strata_fail(
            err, STRATA_INVALID,
            "strategy parameter_server: with replicas (--ps-replicas 1) each server's shards are also on another "
            "server, which takes 2 to %d servers; the cluster has %d",
            STRATA_PS_MOST_REPLICATED, servers);
    for (int type = 0; type < STRATA_TASK_TYPES; type++)
        if (spec->jobs[type].n_tasks && !spec->jobs[type].addresses)
            return strata_fail(err, STRATA_INVALID,
                               "strategy parameter_server: %s does not say the tasks' addresses; give them with --cluster or "
                               "TF_CONFIG",
                               spec->source);
    return STRATA_OK;
}

/* ---- the task ---- */

/* Copies the options, since they are used after the call has returned. */
static strata_status keep_communication(strata_ps_task *task, const strata_communicator_options *given, strata_error *err) {
    const char *variable = getenv("STRATA_SECRET");
    const strata_communicator_options of_environment = {.secret = variable, .secret_bytes = variable ? strlen(variable) : 0};
    strata_communicator_options *own = &task->communication;
    STRATA_TRY(strata_memory_copy_cluster(&task->memory, given ? given : &of_environment, own, err));
    if (!(own->connect_seconds > 0)) own->connect_seconds = DEFAULT_CONNECT_SECONDS;
    task->connect_seconds = own->connect_seconds;
    return STRATA_OK;
}

static void destroy_task(void *data) {
    strata_ps_task *task = data;
    strata_owned_forget(&task->owned);
    strata_cluster_spec_finish(&task->spec);
    strata_memory_free(&task->memory);
    pthread_mutex_destroy(&task->lock);
    free(task);
}

static strata_status fit_task(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                              strata_history *history, strata_error *err);

static const strata_trainer trainer = {
    .fit = fit_task, .settle = strata_ps_settle, .write_parts = strata_ps_write_parts, .take = strata_ps_take_bucket};

strata_status strata_parameter_server_join(strata_strategy *strategy, const strata_strategy_options *opts, strata_error *err) {
    static const strata_parameter_server_options defaults = {0};
    const strata_parameter_server_options *own = opts->parameter_server ? opts->parameter_server : &defaults;
    strata_ps_task *task = calloc(1, sizeof *task);
    if (!task) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory");
    pthread_mutex_init(&task->lock, NULL);
    strategy->trainer = &trainer;
    strategy->trainer_data = task;
    strata_strategy_own(strategy, &task->owned, destroy_task, task);
    strategy->n_in_sync = 1;
    const strata_cluster_options cluster = {.cluster = own->cluster, .task = own->task};
    STRATA_TRY(strata_cluster_spec_resolve(&cluster, &task->spec, err));
    STRATA_TRY(check_cluster(&task->spec, own, err));
    STRATA_TRY(keep_communication(task, own->communication, err));
    STRATA_TRY(strata_partitioner_parse(own->partitioner, &task->partitioner, err));
    const strata_cluster_spec *spec = &task->spec;
    const int workers = spec->jobs[STRATA_TASK_WORKER].n_tasks, servers = spec->jobs[STRATA_TASK_PS].n_tasks;
    const bool together = own->pace == STRATA_PACE_SYNCHRONOUS;
    snprintf(task->partitioner_text, sizeof task->partitioner_text, "%s", own->partitioner ? own->partitioner : "none");
    snprintf(task->name, sizeof task->name, "%s:%d", strata_task_type_name(spec->task_type), spec->task_index);
    snprintf(task->role, sizeof task->role, "%s %s a chief, %d worker%s and %d server%s", task->name,
             spec->task_type == STRATA_TASK_EVALUATOR ? "beside" : "of", workers, workers == 1 ? "" : "s", servers,
             servers == 1 ? "" : "s");
    task->incarnation = strata_rpc_incarnation();
    task->wire = opts->compress;
    task->replicas = own->replicas;
    task->corrects = own->old_gradients == STRATA_OLD_GRADIENTS_CORRECTED && !together;
    /* Gradients of two workers that pull ahead are no older than those of four that pull late. */
    task->pulls_late = task->corrects && workers != 2;
    task->staleness = task->corrects ? task->pulls_late ? workers - 1 : 2 * workers - 1 : 0;
    task->pace = (strata_ps_pace_options){.pace = own->pace,
                                          .staleness = own->staleness,
                                          .n_shares = together ? workers : 0,
                                          .backup = own->backup,
                                          .n_workers = workers};
    task->totals.servers = servers;
    task->totals.workers = workers;
    task->totals.slowest = -1;
    task->workers = strata_memory_take(&task->memory, workers, sizeof *task->workers);
    if (!task->workers) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d workers", workers);
    if (together) strategy->n_in_sync = workers;
    /* the evaluator does not connect to the other tasks and only reads checkpoints */
    const bool alone = spec->task_type == STRATA_TASK_CHIEF || spec->task_type == STRATA_TASK_EVALUATOR;
    strategy->workers.rank = alone ? 0 : 1 + spec->task_index;
    return STRATA_OK;
}

const char *strata_parameter_server_device(const strata_strategy *strategy, const strata_strategy_options *opts) {
    const strata_ps_task *task = strategy->trainer_data;
    if (task->spec.task_type != STRATA_TASK_PS) return NULL;
    return opts->parameter_device ? opts->parameter_device : "host";
}

const char *strata_parameter_server_role(const strata_strategy *strategy) {
    return ((const strata_ps_task *)strategy->trainer_data)->role;
}

strata_parameter_server_totals strata_strategy_parameter_server_totals(const strata_strategy *strategy) {
    strata_parameter_server_totals totals = {0};
    if (strategy->trainer != &trainer) return totals;
    strata_ps_task *task = strategy->trainer_data;
    pthread_mutex_lock(&task->lock);
    totals = task->totals;
    pthread_mutex_unlock(&task->lock);
    return totals;
}

strata_parameter_server_worker strata_strategy_parameter_server_worker(const strata_strategy *strategy, int worker) {
    strata_parameter_server_worker own = {0};
    if (strategy->trainer != &trainer) return own;
    strata_ps_task *task = strategy->trainer_data;
    if (worker < 0 || worker >= task->totals.workers) return own;
    pthread_mutex_lock(&task->lock);
    own = task->workers[worker];
    pthread_mutex_unlock(&task->lock);
    return own;
}

strata_parameter_server_notice strata_strategy_parameter_server_notice(const strata_strategy *strategy, int64_t number) {
    strata_parameter_server_notice notice = {""};
    if (strategy->trainer != &trainer) return notice;
    strata_ps_task *task = strategy->trainer_data;
    pthread_mutex_lock(&task->lock);
    if (number >= 0 && number < task->totals.notices && number >= task->totals.notices - STRATA_PS_MOST_NOTICES)
        notice = task->notices[number % STRATA_PS_MOST_NOTICES];
    pthread_mutex_unlock(&task->lock);
    return notice;
}

/* ---- the fit ---- */

/* The first layer that normalizes the whole batch; NULL: there is none. */
static const strata_layer *find_synchronized(const strata_layer_list *list) {
    for (int i = 0; i < list->n; i++) {
        const strata_layer *layer = &list->layers[i], *found = NULL;
        if (layer->kind == &strata_layer_batch_norm && ((const strata_batch_norm_options *)layer->options)->synchronized)
            return layer;
        for (int b = 0; b < STRATA_MAX_BRANCHES && !found; b++) found = find_synchronized(&layer->branches[b]);
        if (found) return found;
    }
    return NULL;
}

static strata_status check_fit(strata_ps_fit *fit, strata_error *err) {
    const strata_model *model = fit->model;
    const strata_layer *whole = fit->task->pace.pace == STRATA_PACE_SYNCHRONOUS && fit->task->pace.n_workers > 1
                                    ? find_synchronized(&model->list)
                                    : NULL;
    if (whole)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "fit: layer \"%s\" is a synchronized batch_norm, which exchanges sums between the workers in each "
                           "step; the workers of parameter_server exchange nothing. Leave \"synchronized\" out, or train with "
                           "multi_worker_mirrored",
                           whole->name);
    STRATA_TRY(strata_model_check_dataset(model, fit->dataset, true, "fit", &fit->feed, err));
    const strata_auto_shard policy = strata_auto_shard_resolve(fit->dataset, fit->opts->auto_shard);
    if (policy != STRATA_SHARD_DATA)
        return strata_fail(err, STRATA_INVALID,
                           "fit: with parameter_server all tasks read the same data, of which the chief gives them batches; "
                           "auto_shard is DATA then");
    if (fit->opts->check_repeats)
        return strata_fail(
            err, STRATA_UNSUPPORTED,
            "fit: parameter_server does not compute steps twice; leave out check_repeats (--debug determinism), or "
            "look at one worker's device with one_device");
    return STRATA_OK;
}

/* Appends the strategy's terms to the model's (the settings that tasks compare). */
static strata_status add_terms(strata_ps_fit *fit, strata_error *err) {
    static const char *const paces[] = {"asynchronous", "bounded", "synchronous"};
    const strata_ps_task *task = fit->task;
    strata_text text = {0};
    char *own = NULL;
    STRATA_TRY(strata_model_terms(fit->model, fit->dataset, fit->opts, &own, err));
    strata_text_add(&text,
                    "%space\t%s\nstaleness\t%lld\nnumber of backup workers\t%d\nway with old gradients\t%s\npartitioner\t%s\n",
                    own, paces[task->pace.pace], (long long)task->pace.staleness, task->pace.backup,
                    task->corrects ? "corrected" : "plain", task->partitioner_text);
    strata_text_add(
        &text,
        "type on the wire\t%s\nnumber of workers\t%d\nnumber of servers\t%d\nnumber of replicas\t%d\nnumber of steps an "
        "epoch\t%lld\nnumber of batches of the validation data\t%lld\n",
        strata_dtype_name(task->wire), task->pace.n_workers, task->spec.jobs[STRATA_TASK_PS].n_tasks, task->replicas,
        (long long)fit->n_steps, (long long)fit->n_visits);
    free(own);
    return strata_text_take(&text, &fit->terms, NULL, err);
}

static strata_status count_steps(strata_ps_fit *fit, strata_error *err) {
    const int64_t n_batches = strata_batches_count(fit->dataset, fit->opts->batch);
    if (n_batches < 1 && !fit->opts->steps_per_epoch)
        return strata_fail(
            err, STRATA_INVALID,
            "fit: this pipeline does not know how many batches it has, by which parameter_server divides an epoch; give "
            "steps_per_epoch, or end it with a stage that knows, such as take or cache");
    fit->n_steps = strata_fit_count_steps(fit->opts, n_batches, fit->accumulate);
    if (!fit->opts->validation) return STRATA_OK;
    STRATA_TRY(
        strata_model_check_dataset(fit->model, fit->opts->validation, true, "fit, validation", &fit->validation_feed, err));
    const int64_t n_visits = strata_batches_count(fit->opts->validation, fit->opts->batch);
    fit->n_visits = n_visits > 0 ? n_visits : 0;
    return STRATA_OK;
}

/* ---- the trace: each task writes its own ---- */

static strata_status begin_trace(strata_ps_fit *fit, strata_error *err) {
    const strata_ps_task *task = fit->task;
    if (!fit->opts->trace) return STRATA_OK;
    STRATA_TRY(strata_trace_create(fit->opts->trace, task->spec.all_rank, task->name, &fit->trace, err));
    if (task->spec.task_type != STRATA_TASK_WORKER) return STRATA_OK;
    return strata_model_trace_begin(fit->model, fit->trace, &fit->tracks, err);
}

/* Writes the trace, also of a training that failed. */
static strata_status end_trace(strata_ps_fit *fit, strata_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    if (!fit->trace) return STRATA_OK;
    strata_status status = fit->tracks ? strata_model_trace_devices(fit->model, NULL, fit->tracks, err) : STRATA_OK;
    if (!status) status = strata_trace_events(fit->trace, &text, &bytes, err);
    if (!status) status = strata_trace_write(fit->trace, (const char *const[]){text}, 1, err);
    free(text);
    free(fit->tracks);
    strata_trace_destroy(fit->trace);
    return status;
}

static strata_status fit_task(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                              strata_history *history, strata_error *err) {
    strata_ps_fit fit = {.task = strata_ps_task_of(model),
                         .model = model,
                         .dataset = dataset,
                         .opts = opts,
                         .history = history,
                         .accumulate = strata_model_accumulates(model)};
    const strata_ps_task *task = fit.task;
    if (task->spec.task_type == STRATA_TASK_EVALUATOR)
        return strata_fail(err, STRATA_INVALID,
                           "fit: this task is the evaluator, which trains nothing; strata_model_watch_checkpoints evaluates "
                           "the checkpoints that the chief writes");
    STRATA_TRY(check_fit(&fit, err));
    STRATA_TRY(count_steps(&fit, err));
    strata_status status =
        strata_ps_plan_make(model, &task->partitioner, task->spec.jobs[STRATA_TASK_PS].n_tasks, &fit.plan, err);
    if (!status) status = add_terms(&fit, err);
    if (!status) status = begin_trace(&fit, err);
    if (!status && task->spec.task_type == STRATA_TASK_CHIEF) status = strata_ps_fit_chief(&fit, err);
    if (!status && task->spec.task_type == STRATA_TASK_WORKER) status = strata_ps_fit_worker(&fit, err);
    if (!status && task->spec.task_type == STRATA_TASK_PS) status = strata_ps_fit_server(&fit, err);
    const strata_status traced = end_trace(&fit, status ? NULL : err);
    if (!status) status = traced;
    free(fit.terms);
    strata_ps_plan_finish(&fit.plan);
    return status;
}
