/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a fit: fit.c (its epochs), fit_steps.c (its steps), fit_check.c, fit_trace.c. */
#ifndef STRATA_CORE_MODEL_FIT_H
#define STRATA_CORE_MODEL_FIT_H

#include "core/data/worker_batches.h"
#include "core/model/checkpoint.h"
#include "strata/callbacks.h"

/* A run that is submitted and whose result is not read yet: a step; or, with accumulated gradients, one batch of a step, or the
 * step's update. */
typedef struct strata_fit_flight {
    strata_model_program *program;
    int slot;
    int64_t step;        /* in the epoch */
    int64_t first, last; /* batches that this worker read for it */
    int64_t n, examples; /* batches of the step so far, and their examples, of all workers */
    int64_t t;           /* the optimizer's count, from 1 */
    double scale;        /* of its gradients; 0: not chosen yet */
    float words[STRATA_STEP_WORDS];
    int32_t rng[STRATA_RNG_WORDS];
} strata_fit_flight;

struct strata_fit {
    strata_model *model;
    const strata_dataset *dataset;
    strata_model_feed feed;
    strata_fit_options opts;
    strata_history history;
    strata_worker_batches *batches; /* of this epoch */
    int64_t next_step;              /* of this epoch */
    int64_t n_examples;             /* submitted in this epoch, with their updates */
    strata_program_kind kind;       /* of a batch's program */
    int64_t accumulate;             /* batches a step */
    strata_batch_form form;         /* of batches in this epoch */
    strata_fit_flight held;         /* the step that batches are accumulated for: step, first, last, n, examples */
    int64_t held_whole;             /* examples that it will have if all batches are like its first */
    int together;                   /* steps that devices get in one call, at most */
    strata_fit_flight *flights;     /* [most_in_flight] a queue: oldest at [0] */
    int n_flights, most_in_flight;
    int n_pending;                    /* the newest of them, of one program, that were not submitted yet */
    strata_model_program *unfinished; /* of the newest that was submitted, if it was only started; NULL */
    int unfinished_slot;
    int64_t unfinished_step; /* its t */
    strata_trace *trace;
    int *tracks; /* of the trace: [devices] */

    bool in_epoch; /* its batches are open */
    bool over;     /* there are no more steps: all were made, the fit was stopped, or it failed */
    strata_status failure;
    bool stop; /* behind this epoch: as validation, the callback or another worker says */
    /* The callback has asked for an end before the next step; the epoch was ended so, on all workers alike. */
    bool stop_now, stopped;
    bool check_now;                /* before the step that is filled is submitted */
    int64_t next_check;            /* before this step of the fit */
    double checked, check_seconds; /* when the newest check ended, and what it took; before it: the start, and a guess */
    /* With several workers: steps until they ask each other next, of `ask_every`, and when they asked last. */
    int64_t ask_in, ask_every;
    double asked;
    /* Checkpoints that are made; NULL: none. Rank 0 has asked all workers for one. */
    strata_checkpoint_folder *checkpoints;
    bool save_now;
    /* One of them is being made. */
    bool saving;
    /* Under a trainer: what the caller's options say, in whose place fit's own callback stands. */
    struct {
        strata_progress_callback on_progress;
        void *user;
    } callers;
    /* The first callback that failed: the fit is stopped behind the step. */
    strata_status callback_status;
    strata_error callback_error;
    /* Callbacks have been told that the training begins. */
    bool told;
    /* Steps of this fit that were begun; the trace of those that were asked for, once they are done. */
    int64_t n_begun;
    strata_trace *traced;
    /* Examples of the epoch, in its order, that the batches leave out, as they were trained on before. */
    int64_t skipped;
    /* Examples in progress.metrics' sums. */
    int64_t n_done;

    int64_t next_balance; /* step since the fit began */
    strata_progress progress;
    double began, epoch_began, metrics_read;
};

/* ---- fit_steps.c ---- */

/* Monotonic. */
double strata_fit_seconds(void);
/* The options of the epoch's batches from number `first` on. */
strata_batches_options strata_fit_batches_options(const strata_fit *fit, int64_t first);
/* Gathers and submits this worker's rows of a batch: with its update, as step `number` of the epoch; or for what is held. Waits
 * for the oldest step in flight where there is no free place. */
STRATA_MUST_USE strata_status strata_fit_submit(strata_fit *fit, int64_t number, const strata_worker_step *rows,
                                                strata_error *err);
STRATA_MUST_USE strata_status strata_fit_submit_to_hold(strata_fit *fit, const strata_worker_step *rows, strata_error *err);
/* The update from what replicas hold. Says what it is to be multiplied by, as batches may have been other than was thought at
 * the first. */
STRATA_MUST_USE strata_status strata_fit_submit_held(strata_fit *fit, strata_error *err);
/* Submits everything that was prepared. */
STRATA_MUST_USE strata_status strata_fit_catch_up(strata_fit *fit, strata_error *err);
/* Waits for the oldest step in flight and follows its result: loss, metrics, loss scale; tells the callbacks. */
STRATA_MUST_USE strata_status strata_fit_retire(strata_fit *fit, strata_error *err);
/* Waits for what is in flight without looking, after a failure. */
void strata_fit_drain(strata_fit *fit);
/* Calls the callbacks. One that fails stops the fit behind the steps that were submitted, on all workers. */
void strata_fit_call(strata_fit *fit, strata_event event);
/* The end of a step or of an epoch, as progress says, to callbacks and on_progress. */
STRATA_MUST_USE strata_status strata_fit_tell(strata_fit *fit, strata_error *err);
/* What the host did since `began`, where there is a trace. The step's number counts from 0, as devices' do. */
void strata_fit_add_to_trace(strata_fit *fit, const char *what, int64_t step, double began);
void strata_fit_add_epoch_to_trace(strata_fit *fit);

/* ---- fit_check.c ---- */

/* Whether the devices are checked before the next step. */
bool strata_fit_is_check_due(strata_fit *fit);
/* Where fit.check_now says so: has each device compare a random node of the step, which is submitted next, with the reference.
 * What is wrong is a warning of the device. */
STRATA_MUST_USE strata_status strata_fit_check_devices(strata_fit *fit, const strata_fit_flight *step, strata_error *err);

/* ---- fit_trace.c ---- */

/* Opens the trace, and has the devices add to it unless that begins with a later step. */
STRATA_MUST_USE strata_status strata_fit_begin_trace(strata_fit *fit, strata_error *err);
/* Before a step, with none in flight: begins or ends what is traced where the caller asked for some steps. */
bool strata_fit_trace_turns(const strata_fit *fit);
STRATA_MUST_USE strata_status strata_fit_turn_trace(strata_fit *fit, strata_error *err);
/* Writes the trace, of a training that failed too: then of this worker alone. */
STRATA_MUST_USE strata_status strata_fit_end_trace(strata_fit *fit, strata_status trained, strata_error *err);

#endif
