/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of a fit, which its files share: fit.c (epochs), fit_steps.c (steps). */
#ifndef STRATA_CORE_MODEL_FIT_H
#define STRATA_CORE_MODEL_FIT_H

#include "core/base/clock.h"
#include "core/data/worker_batches.h"
#include "core/model/checkpoint.h"
#include "core/model/loop.h"
#include "core/model/metrics.h"
#include "strata/callbacks.h"

/* A run of a program that was prepared or submitted and whose result was not read yet. It is one training step. With
 * accumulated gradients it is one batch of a step, or the update at the end of a step. */
typedef struct strata_fit_run {
    strata_model_program *program;
    int slot;
    /* The step's number in the epoch, from 0. */
    int64_t step;
    /* The first and the last batch that this worker read for the step. */
    int64_t first, last;
    /* How many batches the step has so far, and how many examples all workers and this worker's replicas have in them. */
    int64_t n, examples, own;
    /* Its scale is 0 until it is chosen. */
    strata_run_numbers numbers;
} strata_fit_run;

struct strata_fit {
    strata_model *model;
    const strata_dataset *dataset;
    strata_model_feed feed;
    strata_fit_options opts;
    strata_history history;
    double began;
    int64_t n_begun;
    strata_progress progress;
    struct {
        bool open;
        strata_worker_batches *batches;
        /* How many examples were submitted together with their updates. */
        int64_t n_examples;
        /* The scores of its examples, for exact metrics. */
        strata_model_scores scores;
        /* [metrics.n_sums] The sums of progress.metrics, and how many examples they have. */
        double *sums;
        /* [metrics.n_sums + 2] For replicas with parameters of their own: the output of a step, added up over this worker's. */
        float *added;
        int64_t n_measured;
        /* How many examples at its beginning the batches leave out, since an earlier fit trained on them. */
        int64_t n_skipped;
        /* When it began, and when the metrics were updated last, in seconds. */
        double began, metrics_read;
        /* Seconds in which new programs were compared with references. That is no training, so it does not count as such. */
        double compared;
    } epoch;
    /* What a step consists of. */
    struct {
        strata_batch_form form;
        strata_program_kind kind;
        int64_t n_batches;
        /* How many batches of the step were submitted. */
        int64_t n_submitted;
        /* The step whose batches are being submitted: step, first, last, n, examples and the scale are used. n is 0 between two
         * steps. */
        strata_fit_run open;
        /* How many examples that step has if all its batches are as large as the first. */
        int64_t expected_examples;
    } step;
    /* The runs whose results were not read yet. */
    struct {
        /* The most steps that devices get in one call now, and at any time of the fit. */
        int per_call, most_per_call;
        /* When step FIRST_MEASURED ended, in seconds. */
        double measured_from;
        /* [most] The oldest run at [0]. */
        strata_fit_run *runs;
        int n, most;
        /* How many of the newest runs are prepared but not submitted yet. They have the same program. */
        int n_unsubmitted;
        /* The newest submitted run, if it was started but its exchanges were not performed yet; else its program is NULL. */
        strata_fit_run unfinished;
    } queue;
    struct {
        /* The caller makes the steps (strata_fit_begin). */
        bool wanted;
        /* [n] The finished steps and ends of epochs that were not reported yet, the oldest first. They fit in `events`: at most
         * all runs of the queue end before the caller gets the oldest of them. */
        strata_progress *events;
        int n;
        /* The event that the caller got last. */
        strata_progress last;
        /* The message of the fit's failure, while older events are reported. */
        strata_error failed;
    } reports;
    /* Whether and why the fit ends. */
    struct {
        /* There are no more steps: all were made, the fit was stopped, or it failed. */
        bool reached;
        strata_status failure;
        /* End after this epoch, as validation, a callback or another worker decided. */
        bool after_epoch;
        /* wanted: a callback requested an end before the next step. now: all workers end the epoch before the same step. */
        bool wanted, now;
        /* Of the first callback that failed; the fit then stops after the current step. */
        strata_error of_callback;
        /* The callbacks were called with STRATA_EVENT_TRAIN_BEGIN. */
        bool began_callbacks;
    } end;
    /* What is done from time to time. */
    struct {
        /* With several workers: in how many steps they exchange whether to stop, how many steps lie between two such exchanges,
         * and when the last one took place. */
        int64_t steps_until_poll, poll_interval;
        double last_poll;
        /* The folder to which checkpoints are written; NULL: none. */
        strata_checkpoint_folder *checkpoints;
        /* Rank 0 has requested a checkpoint from all workers. */
        bool save_now;
        /* A checkpoint is being written under a trainer. */
        bool saving;
        /* The step of the fit before which the shares of the replicas are adapted next. */
        int64_t next_balance;
    } due;
    struct {
        /* The trace that the caller requested. `now` is the same while steps are being traced, else NULL. */
        strata_trace *trace, *now;
        /* [devices] The tracks of the devices in the trace. */
        int *tracks;
    } tracing;
    /* Under a trainer (parameter_server): the caller's callback, which fit's own callback calls. */
    struct {
        strata_progress_callback on_progress;
        void *user;
    } users;
};

/* ---- fit_steps.c ---- */

double strata_fit_epoch_seconds(const strata_fit *fit);
/* Copies this worker's rows of a batch to a free slot and submits them. The last batch of a step comes with the update. Waits
 * for the oldest run if the queue of runs is full. */
STRATA_MUST_USE strata_status strata_fit_submit(strata_fit *fit, const strata_worker_step *rows, strata_error *err);
/* Submits the update with the gradients that the replicas have accumulated. Its inputs contain the factor that corrects the
 * weights of the batches, if they were not all as large as the first. */
STRATA_MUST_USE strata_status strata_fit_submit_accumulated(strata_fit *fit, strata_error *err);
/* Submits the average of replicas with parameters of their own. */
STRATA_MUST_USE strata_status strata_fit_submit_average(strata_fit *fit, strata_error *err);
/* Submits all prepared runs, and performs the exchanges of the newest. */
STRATA_MUST_USE strata_status strata_fit_submit_prepared(strata_fit *fit, strata_error *err);
/* Waits for the oldest run, reads its loss and sums, updates metrics and loss scale, and calls the callbacks. */
STRATA_MUST_USE strata_status strata_fit_finish_oldest(strata_fit *fit, strata_error *err);
/* Waits for all runs and ignores their results, after a failure. */
void strata_fit_drain(strata_fit *fit);
/* Calls the callbacks. If one fails, all workers stop after the steps that are submitted. */
void strata_fit_call(strata_fit *fit, strata_event event);
/* Adds the progress at the end of a step or of an epoch to the events that strata_fit_step reports. call: also calls the
 * callbacks and on_progress. */
STRATA_MUST_USE strata_status strata_fit_report(strata_fit *fit, bool call, strata_error *err);
/* Adds a slice from `began` to now to the trace, if there is one. Steps are numbered from 0. */
void strata_fit_add_to_trace(strata_fit *fit, const char *what, int64_t step, double began);
void strata_fit_add_epoch_to_trace(strata_fit *fit);

/* ---- diagnose.c ---- */

/* Examples [first, first + n) of the current batch of a source, which are a whole step, with equal weights, or the examples of
 * one from number `row` on. */
typedef struct strata_examined_step {
    strata_example_source source;
    int64_t first, n, row;
    /* As in strata_batch_form. */
    float byte_scale;
    /* Their scale is 1. */
    strata_run_numbers numbers;
} strata_examined_step;
/* Runs an executable of the step, and waits for it. */
STRATA_MUST_USE strata_status strata_model_examine(const strata_model *model, strata_executable *exe,
                                                   const strata_examined_step *step, int *out_slot, strata_error *err);
/* Finds the first tensor of the step on the first replica that is not finite. Returns DATA, with a message "epoch .., step ..:
 * .." that describes this tensor and those from which it is computed; OK if all are finite. */
strata_status strata_model_diagnose(strata_model *model, const strata_examined_step *step, const char *where,
                                    strata_error *err);
/* Computes the step's loss and gradients twice on each replica's device. Fails: DATA, with the first tensor whose bits
 * differ. */
STRATA_MUST_USE strata_status strata_model_repeat(strata_model *model, const strata_examined_step *step, const char *where,
                                                  strata_error *err);

#endif
