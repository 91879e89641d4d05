/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the chief share: chief.c, leases.c and epochs.c. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_CHIEF_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_CHIEF_H

#include "strategies/parameter_server/task.h"

/* The sums from which the means of a load are computed. */
typedef struct strata_ps_load_sums {
    int64_t staleness, leases, asks;
} strata_ps_load_sums;

/* A finished step, which is reported to the callback. */
typedef struct strata_ps_finished_step {
    double loss, rate, norm;
    int64_t examples;
} strata_ps_finished_step;

typedef struct strata_ps_chief {
    strata_ps_fit *fit;
    strata_ps_task *task;
    strata_ps_watch watch;
    int n_workers;
    int64_t n_sums;
    strata_memory memory;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* The lock guards all fields from here on. */
    strata_ps_pace *pace;
    /* The evaluation of the validation data. */
    struct {
        bool running;
        /* The leases of their batches, the sums of each batch (n_visits, n_sums) and its examples [n_visits]. */
        strata_ps_pace *pace;
        float *sums;
        int64_t *examples;
    } visits;
    /* [n_workers] The state of each worker. */
    struct worker {
        /* connected: it has a connection. came: its terms (see strata_ps_fit) equal the chief's. heard: it has been connected
         * at some time. */
        bool connected, came, heard;
        uint64_t incarnation;
        /* It ended before it came, and is not started again. */
        bool ended;
        /* Seconds of its steps, a moving mean. */
        double seconds;
        /* When the chief replied to its last request. Since then the worker has been computing. */
        double answered;
        /* How many units that reply leased. */
        int n_given;
        /* When its connection broke last; 0: it is connected, or ended normally. */
        double lost_at;
        /* How often it has given its batches back since it last finished one, because it could not reach a server while the
         * servers were well, and when it first did. left_out: too often, so its requests are refused. */
        int n_returned;
        double first_returned;
        bool left_out;
    } * workers;
    /* begun: all workers have connected and the servers have their values. over: the training is over. */
    bool begun, over;
    struct {
        /* The status with which the training fails; OK: it has not failed. */
        strata_status status;
        char message[sizeof((strata_error *)0)->message];
        /* The last message of a worker that failed, and its status. */
        char of_worker[sizeof((strata_error *)0)->message];
        strata_status worker_status;
        /* The batch or tensor whose gradients were left out last. */
        char refused[200];
    } failure;
    /* When the last worker was lost; 0: at least one worker is connected. */
    double alone;
    struct {
        /* The optimizer's count of updates before the epoch; the epoch; and a serial number, which grows each time an epoch is
         * begun. The first one of a chief is above those of earlier chiefs: of all that servers and workers report, the
         * greatest one with its last SERIAL_BITS bits left out, plus 1 in the bit above. Before `begun`: the greatest that was
         * reported. */
        int64_t t, number, serial;
        /* Its sums and examples. */
        double *sums;
        int64_t examples;
        /* Its steps that made no update, as their gradients were not finite. */
        int64_t n_left_out;
    } epoch;
    /* A worker could not reach a server, so the chief must check the servers. */
    bool doubted;
    /* A server was lost. Nothing is leased until it has its values again. */
    bool recovering;
    /* The open synchronous step: the sums and examples of its shares, (n_shares, n_sums) and [n_shares], and its own. */
    struct {
        float *sums;
        int64_t *examples, whole;
        double rate;
    } step;
    /* The last synchronous step: the scale and the learning rate of strata_ps_close. */
    struct {
        double scale, rate;
    } closed;
    /* The learning rate that was set in place of the schedule's, as in strata_ps_gradients. */
    double rate;
    struct {
        /* running: the callback runs for finished steps; with wait_each_step no unit is leased meanwhile. settling: the
         * callback waits until all leased units are finished. */
        bool running, settling;
        strata_ps_finished_step *steps;
        int n;
    } tell;
    struct {
        /* The sums for the means of the load, over the training and over the epoch. */
        strata_ps_load_sums training, epoch;
        /* The bytes that workers pushed and pulled, and the number of units for which they did. */
        int64_t bytes, n_units;
    } load;
} strata_ps_chief;

/* The epochs of a fit. */
typedef struct strata_ps_loop {
    strata_ps_chief *c;
    strata_progress progress;
    bool stop, stop_now;
    /* Finished steps, and the index of the first one for which the callback has not been called. */
    strata_ps_finished_step *steps;
    int n_steps, next_step;
    /* The error of the callback if it failed for one of these steps while a checkpoint was written; the fit ends after that. */
    strata_error failure;
    /* Nothing new is leased until the callback returns. */
    bool paused;
    /* The step of the epoch whose values the chief's model has: the epoch's beginning, or the step of the last file that was
     * saved in it. When a server is lost, all later steps are computed again. */
    struct {
        int64_t step, examples, t;
        /* (n_sums) */
        double *sums;
    } base;
    /* The chief waits for a lost server; then the training continues from that step. */
    bool stands;
    double began, epoch_began;
} strata_ps_loop;

/* ---- chief.c ---- */

/* How far the tasks are apart: staleness of gradients, leases, queues of servers, slow workers. The caller has the lock of the
 * task. */

/* Adds a worker's report of the pushes of one unit. */
void strata_ps_load_add_staleness(strata_parameter_server_load *load, strata_ps_load_sums *sums, const strata_ps_next_ask *ask);
/* Adds how many leases were unfinished when a worker requested the next one. */
void strata_ps_load_add_leases(strata_parameter_server_load *load, strata_ps_load_sums *sums, int leases);
/* Adds a server's report of its queues. */
void strata_ps_load_add_queue(strata_parameter_server_load *load, const strata_ps_hello_reply *reply);
/* Finds the slow workers among the connected ones of workers[n], by their step_seconds: sets stragglers, slowest and
 * slowest_ratio. */
void strata_ps_load_find_stragglers(const strata_parameter_server_worker *workers, int n,
                                    strata_parameter_server_totals *totals);

/* Updates the reported totals of workers and leases. The caller has the lock. */
void strata_ps_chief_update_totals(strata_ps_chief *c);
/* Called after update_totals. */
void strata_ps_chief_note_leases(strata_ps_chief *c);
/* Makes the training fail. If it is called several times, the first reason counts. The caller has the lock. */
void strata_ps_chief_fail(strata_ps_chief *c, strata_status status, const char *message);
/* How many workers are connected. The caller has the lock. */
int strata_ps_chief_n_there(const strata_ps_chief *c);

/* Sends the values of the chief's model to all servers, and waits until the given time for servers that do not answer. */
STRATA_MUST_USE strata_status strata_ps_chief_spread_when_there(strata_ps_chief *c, int64_t serial, double until,
                                                                strata_error *err);

/* Workers fetch the final parameters from the servers. If a server was lost after the chief fetched them, its copy serves the
 * workers. If there is none, and the chief's model has the last parameters, the server gets them when it has started again. The
 * chief waits for that only a limited time, as its own model is complete; if the time is over, this does not fail. */
STRATA_MUST_USE strata_status strata_ps_chief_keep_for_workers(strata_ps_chief *c, bool has_last, strata_error *err);

/* ---- leases.c ---- */

/* The server's functions (cluster/rpc/rpc.h). */
void strata_ps_chief_on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why);
/* The end of the last synchronous step, for servers; false: there is none. The caller has the lock. */
bool strata_ps_chief_last_close(const strata_ps_chief *c, strata_ps_close *out_close);
STRATA_MUST_USE strata_status strata_ps_chief_handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply,
                                                     strata_error *err);

/* ---- epochs.c ---- */

/* All epochs of the fit. */
STRATA_MUST_USE strata_status strata_ps_chief_run_epochs(strata_ps_chief *c, strata_error *err);

#endif
