/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the chief share: chief.c, leases.c, epochs.c and settle.c. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_CHIEF_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_CHIEF_H

#include "strategies/parameter_server/load.h"
#include "strategies/parameter_server/task.h"

/* A step that is finished, for the callback. */
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
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Everything from here on is under the lock. */
    strata_ps_pace *pace;
    /* The validation data are evaluated: the leases of their batches, each one's sums (n_visits, n_sums) and examples
     * [n_visits]. */
    bool evaluating;
    strata_ps_pace *visits;
    float *visit_sums;
    int64_t *visit_examples;
    /* [n_workers] What is known of each. */
    struct worker {
        /* Its connection; its terms are those of the chief; it was connected at some time. */
        bool connected, came, heard;
        uint64_t incarnation;
        /* Seconds of its steps, a moving mean. */
        double seconds;
        /* When its last call was answered: since then it has been at its step. */
        double answered;
        /* How many units that answer gave. */
        int n_given;
        /* When its connection broke last; 0: it is there, or ended in order. */
        double lost_at;
    } * workers;
    /* All workers came and the servers have their values; the training is over. */
    bool begun, over;
    /* Why the training fails; OK: it does not. */
    strata_status status;
    char message[sizeof((strata_error *)0)->message];
    /* What a worker that failed said last. */
    char failure[sizeof((strata_error *)0)->message];
    strata_status failed;
    /* Whose gradients were left out last. */
    char refused[200];
    /* When the last worker was lost; 0: there is one. */
    double alone;
    /* The optimizer's count before the epoch; the epoch; a number that grows each time an epoch is begun, also by a chief that
     * started again, since it begins with the chief's incarnation. */
    int64_t t, epoch, serial;
    /* A worker could not reach a server. */
    bool doubted;
    /* A server was lost: nothing is leased until it has its values again. */
    bool recovering;
    /* The epoch's sums and examples; the open synchronous step's, (n_shares, n_sums) and [n_shares]. */
    double *sums;
    int64_t examples;
    /* Steps of the epoch that made no update, as their gradients were not finite. */
    int64_t n_left_out;
    float *share_sums;
    int64_t *share_examples, step_examples;
    double step_rate;
    /* Of the last synchronous step; its learning rate as in strata_ps_close. */
    double scale, closed_rate;
    /* The learning rate that was set in place of the schedule's, as in strata_ps_gradients. */
    double rate;
    /* The callback is told of steps: with wait_each_step no unit is given. It waits for those that were given. */
    bool telling, settling;
    strata_ps_finished_step *finished;
    int n_finished, room;
    /* Of the training and of the epoch: what the means of their loads are made of. */
    strata_ps_load_sums training, epoch_sums;
    /* What workers pushed and pulled, for how many units. */
    int64_t bytes, n_units;
} strata_ps_chief;

/* The epochs of a fit. */
typedef struct strata_ps_loop {
    strata_ps_chief *c;
    strata_progress progress;
    bool stop, stop_now;
    /* Steps that were finished, and the first of which the callback has not been told. */
    strata_ps_finished_step *steps;
    int n_steps, next_step;
    /* The callback failed for one of them while a checkpoint was made; the fit ends behind that. */
    strata_error failure;
    /* Until the callback returns nothing new is given. */
    bool paused;
    /* Where the model of the chief stands within the epoch: at the steps that were done before, or at those that it got for a
     * file that was saved. From there on steps are repeated when a server was lost. */
    struct {
        int64_t step, examples, t;
        /* (n_sums) */
        double *sums;
    } base;
    /* That happens now. */
    bool stands;
    double began, epoch_began;
} strata_ps_loop;

/* ---- chief.c ---- */

/* Whether batches are divided into shares. */
bool strata_ps_chief_synchronous(const strata_ps_chief *c);
/* Keeps a line for the user. */
__attribute__((format(printf, 2, 3))) void strata_ps_chief_notice(strata_ps_chief *c, const char *format, ...);
/* Brings what is reported of workers and leases up to date. With the lock. */
void strata_ps_chief_update_totals(strata_ps_chief *c);
/* After update_totals. */
void strata_ps_chief_note_leases(strata_ps_chief *c);
/* The training fails, for the first reason that is given. With the lock. */
void strata_ps_chief_fail(strata_ps_chief *c, strata_status status, const char *message);
/* How many workers are there. With the lock. */
int strata_ps_chief_n_there(const strata_ps_chief *c);

/* Gives all servers the values of the chief's model, and waits until then for those that do not answer. */
STRATA_MUST_USE strata_status strata_ps_chief_spread_when_there(strata_ps_chief *c, int64_t serial, double until,
                                                                strata_error *err);

/* ---- leases.c ---- */

/* The server's functions (cluster/rpc/rpc.h). */
void strata_ps_chief_on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why);
/* The end of the last synchronous step, for servers; false: there is none. With the lock. */
bool strata_ps_chief_last_close(const strata_ps_chief *c, strata_ps_close *out_close);
STRATA_MUST_USE strata_status strata_ps_chief_handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply,
                                                     strata_error *err);

/* ---- epochs.c ---- */

/* Why the training cannot go on while units are waited for. With the lock. */
STRATA_MUST_USE strata_status strata_ps_chief_check(strata_ps_chief *c, bool ended, strata_error *err);
/* In a call of the callback: calls it for the steps that were finished since. A failure is returned by the outer call. */
void strata_ps_chief_tell_rest(strata_ps_loop *l);
/* The model gets what the servers have. */
STRATA_MUST_USE strata_status strata_ps_chief_fetch(strata_ps_chief *c, strata_error *err);
/* All epochs of the fit. */
STRATA_MUST_USE strata_status strata_ps_chief_run_epochs(strata_ps_chief *c, strata_error *err);

#endif
