/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `strata tune`: the settings that are searched (tune_space.c), the trials, each of them a process of `strata
 * train` (tune_trials.c), and the journal of finished trials (tune_log.c). tune.c has the options and the search.
 */
#ifndef STRATA_SAMPLES_TUNE_H
#define STRATA_SAMPLES_TUNE_H

#include "train.h"

enum { MOST_RANGES = 32, MOST_CHOICES = 32, MOST_DEVICES = 64, SETTING_BYTES = 256 };

/* ---- tune_space.c: what is searched ---- */

/* One setting, and the values that it may have: a list of choices, or all numbers from `least` to `most`. */
typedef struct tune_range {
    /* A path in the model's JSON, as --set has it; or "batch" or "model", which are options of train. */
    char path[128];
    /* As the user wrote it or the default says: "1e-4..1e-2", "32|64". */
    char text[128];
    /* n_choices > 0: one of these. They are pieces of `pieces`. */
    const char *choices[MOST_CHOICES];
    int n_choices;
    char pieces[128];
    double least, most;
    /* Only whole numbers. */
    bool whole;
    /* Each factor is as likely as every other: where `most` is ten times `least` or more. */
    bool logarithmic;
} tune_range;

typedef struct tune_space {
    tune_range ranges[MOST_RANGES];
    int n;
} tune_space;

/* Reads the --set options. Returns an exit code, after a message. */
int tune_space_read(const text_list *settings, tune_space *out);
/* Adds the ranges that suit the model, unless the user has given a range: learning rate, batch, units and filters, dropout,
 * weight decay. batch: of a training without one. */
int tune_space_add_defaults(const strata_model *model, const train_options *options, int64_t batch, int64_t n_examples,
                            tune_space *space);
/* Whether the model takes the settings: the first and the last value of each range. */
int tune_space_check(const tune_space *space, const train_options *options, const strata_model *model);
/* The value of a range in a trial, which only the seed, the trial's number and the path decide. */
void tune_space_value(const tune_range *range, uint64_t seed, int trial, char out[SETTING_BYTES]);
/* "batch=32 optimizer.learning_rate=0.002" */
void tune_space_text(const tune_space *space, uint64_t seed, int trial, char *out, size_t room);
/* The option of train that a setting is given by: "--batch"; "--set" for those that have none of their own. */
const char *tune_option_of(const tune_range *range);

/* ---- trials ---- */

typedef struct tune_trial {
    int number; /* from 1 */
    /* Epochs that are done; 0: none. */
    int epochs;
    /* The least loss on validation data of these epochs, the accuracy in that epoch, and which it was. accuracy is NaN where
     * answers are no classes. */
    double val_loss, val_accuracy;
    int best_epoch;
    /* Of all its processes. */
    double seconds;
    char device[64];
    /* It ended before the epochs that it was given, by --patience: it has nothing more to run. */
    bool ended;
    /* Why it failed; "": it did not. A failed trial is not tried again. */
    char failure[512];
    int failure_code;
} tune_trial;

typedef struct tune_log {
    FILE *file; /* NULL: nothing is written */
    const char *path;
} tune_log;

typedef struct tune_options {
    train_options train;
    handed_options handed;
    text_list set;
    const char *search, *objective, *log, *devices, *device;
    int64_t trials;
    bool json;
} tune_options;

typedef struct tuner {
    tune_options options;
    const char *name; /* what is trained, as train takes it */
    tune_space space;
    uint64_t seed;
    int epochs; /* of a whole training */
    int64_t batch;
    bool halving, by_accuracy, classifies;
    tune_trial *trials; /* [n_trials] */
    int n_trials;
    char devices[MOST_DEVICES][64];
    int n_devices;
    /* Of the trials' files; whether it is removed at the end. */
    char folder[4096];
    bool temporary;
    char self[4096]; /* the command's own file */
    tune_log log;
    bool interrupted;
    /* For the line of progress: trials that ended, of how many, in this round. */
    int n_done, n_round;
} tuner;

/* Trains trials[of[i]] up to `epochs` epochs, side by side, one on each device. Trials that have as many behind them are
 * passed over. Returns an exit code. */
int tune_run(tuner *t, const int *of, int n, int epochs);
/* The arguments of train for a trial, from "train" on: handed to add() one by one. device NULL: it is left to train. */
void tune_arguments(const tuner *t, int trial, const char *device, void (*add)(const char *word, void *user), void *user);
/* Removes what trials need to go on. */
void tune_remove_checkpoints(const tuner *t);
/* Whether a is better than b. Failed trials are the worst, then those with fewer epochs. */
bool tune_better(const tuner *t, const tune_trial *a, const tune_trial *b);
/* A trial's object as JSON, without an end of line. */
void tune_print_trial(FILE *file, const tuner *t, const tune_trial *trial);

/* ---- tune_log.c ---- */
/* Opens the journal and takes over the trials that are in it. One that was made by another search is an error that says what
 * differs. */
int tune_log_open(tuner *t);
/* Called whenever a trial has reached the epochs of a round, or failed. */
int tune_log_add(tuner *t, const tune_trial *trial);
int tune_log_close(tuner *t);

#endif
