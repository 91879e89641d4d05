/* SPDX-License-Identifier: Apache-2.0
 *
 * Callbacks of a model: functions that fit, evaluate and predict call when something begins or ends, and ready-made ones.
 *
 *     strata_model_add_callback(model, strata_reduce_on_plateau((strata_plateau_options){.patience = 3}), &err);
 *     strata_model_add_callback(model, strata_model_saver((strata_saver_options){.path = "best.strata", .best = true}), &err);
 *     strata_model_add_callback(model, (strata_callback){.name = "mine", .on_event = mine, .user = &state}, &err);
 *
 * What a fit does without callbacks: it ends where the validation loss does not fall any more and restores the best epoch
 * (strata_fit_options.patience, min_delta, restore_best), it ends with an error that names the first value where a loss is not
 * finite, it follows the optimizer's schedule (strata/optimizers.h), and it makes checkpoints (strata_checkpoint_options).
 *
 * Threads: a callback is called by the thread that called fit, evaluate or predict. */
#ifndef STRATA_CALLBACKS_H
#define STRATA_CALLBACKS_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_event {
    /* A fit begins and ends; an end comes after a failure and a stop, too. */
    STRATA_EVENT_TRAIN_BEGIN,
    STRATA_EVENT_TRAIN_END,
    /* An epoch of it. At the end progress->metrics and progress->validation are those of the epoch. An epoch that is stopped
     * has no end. */
    STRATA_EVENT_EPOCH_BEGIN,
    STRATA_EVENT_EPOCH_END,
    /* A step: before its first batch is prepared, and when it is done, which may be some steps later
     * (strata_fit_options.wait_each_step). */
    STRATA_EVENT_BATCH_BEGIN,
    STRATA_EVENT_BATCH_END,
    /* An evaluation, also of validation data. At its end progress->validation has its metrics. */
    STRATA_EVENT_TEST_BEGIN,
    STRATA_EVENT_TEST_END,
    STRATA_EVENT_PREDICT_BEGIN,
    STRATA_EVENT_PREDICT_END,
    STRATA_EVENT_COUNT
} strata_event;

/* progress: as in strata_progress_callback; of evaluations and predictions outside of a fit only `model` and `validation` mean
 * something. progress->stop and stop_now may be set at any event of a fit. strata_model_set_learning_rate may be called when a
 * fit or an epoch begins and when an epoch ends, and where the fit has wait_each_step at any event. */
typedef strata_status (*strata_event_callback)(strata_event event, const strata_progress *progress, void *user,
                                               strata_error *err);

/* A callback that fails ends the fit behind the same step on all workers, as stop_now does: the parameters are those after that
 * step, and a checkpoint is made where the fit makes some. The fit then returns the callback's status and message, with its
 * name. A failure in evaluate or predict is returned at once. */
typedef struct strata_callback {
    /* Stands in messages, and is borrowed; NULL: "callback". */
    const char *name;
    /* NULL: there is state alone, which the caller changes. */
    strata_event_callback on_event;
    void *user;
    /* Frees `user` when the model is destroyed or its callbacks are removed; NULL: nothing is freed. */
    void (*destroy)(void *user);
    /* Memory that decides what the callback does later, as how long it has waited: checkpoints have a copy of it, and a
     * checkpoint that is loaded fills it, if the model's callbacks have as many bytes of state as they had. No pointers. 0
     * bytes: there is none.
     * Several workers: checkpoints of a fit (strata_checkpoint_options) have each worker's own. Where as many workers go on,
     * each gets its own back; other numbers, and those that strata_model_save_checkpoint wrote, all get rank 0's. Under
     * parameter_server it is the chief's callbacks that are called. */
    void *state;
    size_t state_bytes;
} strata_callback;

enum { STRATA_MAX_CALLBACKS = 16 };
/* Callbacks are called in the order in which they were added. The model takes the callback, even on failure. Not in a callback.
 * Fails: INVALID without on_event and state, which a ready-made callback has not got where its options are wrong or memory ran
 * out; and for one more than STRATA_MAX_CALLBACKS. */
STRATA_API STRATA_MUST_USE strata_status strata_model_add_callback(strata_model *model, strata_callback callback,
                                                                   strata_error *err);
/* Removes all of them. Not in a callback. */
STRATA_API void strata_model_clear_callbacks(strata_model *model);

/* Monitored values: "loss", "accuracy" or the name of a metric, with "val_" in front those of the validation data. A name that
 * is not measured ends the fit with INVALID after its first epoch, with those that are. Less is better, except for accuracy,
 * auc, precision and recall. NULL: "val_loss" where there are validation data, else "loss". */

/* Writes the model's file after each epoch. */
typedef struct strata_saver_options {
    /* Borrowed; "{epoch}" in it becomes the epoch's number, from 1. */
    const char *path;
    /* Write only when the monitored value is better than after all epochs before. */
    bool best;
    const char *monitor;
    /* Write after every so many epochs; 0: 1. */
    int every;
} strata_saver_options;
STRATA_API strata_callback strata_model_saver(strata_saver_options opts);

/* Multiplies the learning rate by `factor` when the monitored value has not improved by more than min_delta for `patience`
 * epochs. */
typedef struct strata_plateau_options {
    const char *monitor;
    /* Between 0 and 1; 0: 0.1. */
    double factor;
    /* Epochs; 0: 10. */
    int patience;
    /* At least 0. */
    double min_delta;
    /* After a change, so many epochs are not counted. */
    int cooldown;
    /* The rate is not reduced below this. */
    double least_rate;
} strata_plateau_options;
STRATA_API strata_callback strata_reduce_on_plateau(strata_plateau_options opts);

/* Sets the learning rate of each epoch: rate(epoch from 0, the rate so far, user). */
STRATA_API strata_callback strata_rate_schedule(double (*rate)(int epoch, double rate, void *user), void *user);

/* A table with a row an epoch: epoch, learning_rate, loss, accuracy and the other metrics, and with val_ those of the
 * validation data. A fit that goes on from a later epoch adds to the file. path: borrowed. */
STRATA_API strata_callback strata_csv_log(const char *path);

#ifdef __cplusplus
}
#endif
#endif
