/* SPDX-License-Identifier: Apache-2.0
 *
 * Callbacks of a model: functions that fit, evaluate and predict call at the beginning and end of each part of their work, and
 * ready-made callbacks.
 *
 *     strata_model_add_callback(model, strata_reduce_on_plateau((strata_plateau_options){.patience = 3}), &err);
 *     strata_model_add_callback(model, strata_model_saver((strata_saver_options){.path = "best.strata", .best = true}), &err);
 *     strata_model_add_callback(model, (strata_callback){.name = "mine", .on_event = mine, .user = &state}, &err);
 *
 * Some functions that other frameworks have as callbacks are options of fit here: early stopping and restoring the best epoch
 * (strata_fit_options.patience, min_delta, restore_best), schedules of the learning rate (strata/optimizers.h), and checkpoints
 * (strata_checkpoint_options). A loss that is not finite always ends a fit, with an error that names the first tensor that is
 * not finite.
 *
 * Threads: a callback is called by the thread that called fit, evaluate or predict. */
#ifndef STRATA_CALLBACKS_H
#define STRATA_CALLBACKS_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_event {
    /* The beginning and the end of a fit. TRAIN_END also follows a failure and a stop. */
    STRATA_EVENT_TRAIN_BEGIN,
    STRATA_EVENT_TRAIN_END,
    /* An epoch of a fit. At EPOCH_END progress->metrics and progress->validation are those of the epoch. An epoch that is
     * stopped has no EPOCH_END. */
    STRATA_EVENT_EPOCH_BEGIN,
    STRATA_EVENT_EPOCH_END,
    /* A step of a fit. BATCH_BEGIN comes before its first batch is prepared. BATCH_END comes when the step is done; a few later
     * steps may have begun before that (see strata_fit_options.wait_each_step). */
    STRATA_EVENT_BATCH_BEGIN,
    STRATA_EVENT_BATCH_END,
    /* An evaluation, also one of validation data. At TEST_END progress->validation has its metrics. */
    STRATA_EVENT_TEST_BEGIN,
    STRATA_EVENT_TEST_END,
    STRATA_EVENT_PREDICT_BEGIN,
    STRATA_EVENT_PREDICT_END,
    STRATA_EVENT_COUNT
} strata_event;

/* progress: as in strata_progress_callback. In evaluations and predictions outside of a fit only `model` and `validation` are
 * set. progress->stop and stop_now may be set at any event of a fit. strata_model_set_learning_rate may be called at
 * TRAIN_BEGIN, EPOCH_BEGIN and EPOCH_END, and at any event of a fit with wait_each_step. */
typedef strata_status (*strata_event_callback)(strata_event event, const strata_progress *progress, void *user,
                                               strata_error *err);

/* If a callback fails in a fit, all workers end the fit after the same step, as with stop_now. The parameters are those after
 * that step, and a fit with checkpoints writes one. The fit then returns the callback's status and message, and adds the
 * callback's name. evaluate and predict return a failure at once. */
typedef struct strata_callback {
    /* The name in messages; borrowed. NULL: "callback". */
    const char *name;
    /* NULL: the callback is only `state`, which the caller changes itself. */
    strata_event_callback on_event;
    void *user;
    /* Frees `user` when the model is destroyed or its callbacks are removed; NULL: `user` is not freed. */
    void (*destroy)(void *user);
    /* Memory that the callback needs to continue after a restart, for example a count of epochs. It must not contain pointers.
     * Checkpoints save a copy of it. Loading a checkpoint restores it, if the model's callbacks have the same number of state
     * bytes as when the checkpoint was saved. 0 bytes: none. With several workers, checkpoints of a fit
     * (strata_checkpoint_options) have the state of each worker. If the training is resumed with the same number of workers,
     * each gets its own state back; with another number, and from a checkpoint of strata_model_save_checkpoint, all get rank
     * 0's. Under parameter_server only the chief calls callbacks. */
    void *state;
    size_t state_bytes;
} strata_callback;

enum { STRATA_MAX_CALLBACKS = 16 };
/* Adds a callback. Callbacks are called in the order in which they were added. The model takes the callback, even on failure.
 * Must not be called in a callback.
 * Fails: INVALID for a callback with neither on_event nor state (the ready-made callbacks below return such a callback where
 * their options are wrong or memory ran out), and for more than STRATA_MAX_CALLBACKS. */
STRATA_API STRATA_MUST_USE strata_status strata_model_add_callback(strata_model *model, strata_callback callback,
                                                                   strata_error *err);
/* Removes all callbacks. Must not be called in a callback. */
STRATA_API void strata_model_clear_callbacks(strata_model *model);

/* `monitor` in the options below names a value of each epoch: "loss", "accuracy" or the name of a metric; with the prefix
 * "val_" the value of the validation data. NULL: "val_loss" where there are validation data, else "loss". Lower values are
 * better, except for accuracy, auc, precision and recall. If no such value is measured, the fit ends with INVALID after its
 * first epoch; the message lists the values that are. */

/* Saves the model to a file after each epoch. */
typedef struct strata_saver_options {
    /* Borrowed. "{epoch}" in it is replaced by the epoch's number, from 1. */
    const char *path;
    /* Save only if the monitored value is better than after every earlier epoch. */
    bool best;
    const char *monitor;
    /* Save after every so many epochs; 0: 1. */
    int every;
} strata_saver_options;
STRATA_API strata_callback strata_model_saver(strata_saver_options opts);

/* Multiplies the learning rate by `factor` when the monitored value has not improved by more than min_delta for `patience`
 * epochs. */
typedef struct strata_plateau_options {
    const char *monitor;
    /* At least 0 and below 1; 0: 0.1. */
    double factor;
    /* Epochs; 0: 10. STRATA_NO_EPOCHS: after each epoch without an improvement. */
    int patience;
    /* At least 0. */
    double min_delta;
    /* How many epochs after a change of the rate do not count for `patience`. */
    int cooldown;
    /* The lowest rate. */
    double least_rate;
} strata_plateau_options;
STRATA_API strata_callback strata_reduce_on_plateau(strata_plateau_options opts);

/* Sets the learning rate of each epoch to what `rate` returns. epoch: counted from 0; the second argument is the current rate.
 * */
STRATA_API strata_callback strata_rate_schedule(double (*rate)(int epoch, double rate, void *user), void *user);

/* Writes a CSV file with a row for each epoch: epoch, learning_rate, loss, accuracy, the other metrics, and, with the prefix
 * val_, the same of the validation data. A fit whose first_epoch is above 0 appends to the file. path: borrowed. */
STRATA_API strata_callback strata_csv_log(const char *path);

#ifdef __cplusplus
}
#endif
#endif
