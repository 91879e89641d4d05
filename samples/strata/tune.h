/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `strata tune`: the settings that are searched (tune_space.c), the trials, each of them a process of `strata
 * train` (tune_trials.c), and the journal of finished trials (tune_log.c). tune.c has the options and the search.
 */
#ifndef STRATA_SAMPLES_TUNE_H
#define STRATA_SAMPLES_TUNE_H

#include "train.h"

enum { MOST_RANGES = 32, MOST_CHOICES = 32, MOST_DEVICES = 64, SETTING_BYTES = 256 };

/* ---- tune_space.c: the settings that are searched ---- */

/* A setting and its possible values: a list of choices, or all numbers from `least` to `most`. */
typedef struct tune_range {
    /* A path in the model's JSON, as in --set; or "batch" or "model", which are options of train. */
    char path[128];
    /* The values as the user or the default gives them: "1e-4..1e-2", "32|64". */
    char text[128];
    /* If n_choices is above 0, the value is one of these, which are parts of `pieces`. */
    const char *choices[MOST_CHOICES];
    int n_choices;
    char pieces[128];
    double least, most;
    /* Values are whole numbers. */
    bool whole;
    /* The logarithm of the value is uniformly distributed, and not the value itself. This is used if `most` is at least ten
     * times `least`. */
    bool logarithmic;
} tune_range;

typedef struct tune_space {
    tune_range ranges[MOST_RANGES];
    int n;
} tune_space;

/* Reads the --set options. Returns an exit code, after a message. */
int tune_space_read(const text_list *settings, tune_space *out);
/* Unless the user has given a range, adds ranges around the model's values: learning rate, batch, units and filters, dropout,
 * weight decay. batch: the batch that a training without --batch would have. */
int tune_space_add_defaults(const strata_model *model, const train_options *options, int64_t batch, int64_t n_examples,
                            tune_space *space);
/* Checks that the model accepts the first and the last value of each range. Returns an exit code, after a message. */
int tune_space_check(const tune_space *space, const train_options *options, const strata_model *model);
/* The value of a setting in a trial. It depends only on the seed, the trial's number and the range. */
void tune_space_value(const tune_range *range, uint64_t seed, int trial, char out[SETTING_BYTES]);
/* Writes the values of a trial, for example "batch=32 optimizer.learning_rate=0.002". */
void tune_space_text(const tune_space *space, uint64_t seed, int trial, char *out, size_t room);
/* The option of train that sets this value, for example "--batch"; "--set" if there is no special one. */
const char *tune_option_of(const tune_range *range);

/* ---- trials ---- */

typedef struct tune_trial {
    int number; /* from 1 */
    /* How many epochs were trained. */
    int epochs;
    /* The smallest loss on validation data, the accuracy in the same epoch, and the number of that epoch. The accuracy is NaN
     * if the model does not predict classes. */
    double val_loss, val_accuracy;
    int best_epoch;
    /* The total time of its processes. */
    double seconds;
    char device[64];
    /* --patience has ended the training, so the trial is complete although it was trained for fewer epochs than planned. */
    bool ended;
    /* Why the trial failed; "": it did not fail. A failed trial is not repeated. */
    char failure[512];
    int failure_code;
} tune_trial;

typedef struct tune_log {
    FILE *file; /* NULL: there is no --log */
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
    const char *name; /* the sample, model or data to train, as the argument of train */
    tune_space space;
    uint64_t seed;
    int epochs; /* of a complete training */
    int64_t batch;
    bool halving, by_accuracy, classifies;
    tune_trial *trials; /* [n_trials] */
    int n_trials;
    char devices[MOST_DEVICES][64];
    int n_devices;
    /* The folder of the trials' files, and whether it is removed at the end. */
    char folder[4096];
    bool temporary;
    char self[4096]; /* the path of the running command, which trials run again */
    tune_log log;
    bool interrupted;
    /* For the line of progress: how many of this round's trials have ended, and how many there are. */
    int n_done, n_round;
} tuner;

/* Trains the trials trials[of[i]], i < n, until they have `epochs` epochs, one at a time on each device. Trials that have them
 * already are skipped. Returns an exit code. */
int tune_run(tuner *t, const int *of, int n, int epochs);
/* Calls add() with each argument of the command that trains a trial, beginning with "train". device NULL: train chooses the
 * device. */
void tune_arguments(const tuner *t, int trial, const char *device, void (*add)(const char *word, void *user), void *user);
/* Removes the trials' checkpoints and other files that are not needed after the search. */
void tune_remove_checkpoints(const tuner *t);
/* Whether a is better than b. Trials that failed are the worst, then those with fewer epochs. */
bool tune_better(const tuner *t, const tune_trial *a, const tune_trial *b);
/* Prints a trial as a JSON object, without an end of line. */
void tune_print_trial(FILE *file, const tuner *t, const tune_trial *trial);

/* ---- tune_log.c ---- */
/* Opens the journal and reads the trials in it. If another search wrote it, this is an error, and the message says what
 * differs. Returns an exit code. */
int tune_log_open(tuner *t);
/* Writes a trial that has reached the epochs of a round, or failed, to the journal, and prints it. */
int tune_log_add(tuner *t, const tune_trial *trial);
int tune_log_close(tuner *t);

#endif
