/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `strata train`: opening the model and the data (train_data.c), reports during the training (train_report.c), and
 * the result (train_result.c). train.c has the options and runs these parts in order. */
#ifndef STRATA_SAMPLES_TRAIN_H
#define STRATA_SAMPLES_TRAIN_H

#include "board.h"
#include "own.h"
#include "progress.h"
#include "run_log.h"
#include "samples.h"
#include "scores.h"

/* The model that is trained. */
typedef struct train_model_options {
    const char *kind, *write, *from, *freeze, *precision, *recompute;
    text_list set;
} train_model_options;

typedef struct train_fit_options {
    int64_t epochs, batch, global_batch, accumulate, together, steps_per_epoch, seed, patience;
    double learning_rate, validation_split;
    const char *loss, *metrics, *class_weights, *auto_shard, *plateau, *validation;
    bool augment, scale_lr, restore_best;
} train_fit_options;

/* What is reported during the training and after it. */
typedef struct train_report_options {
    const char *log, *tensorboard, *trace, *debug, *profile;
    int64_t log_every, check_every;
    /* The options of --debug. */
    bool debug_nan, debug_determinism;
    /* The first and the last step of --profile; 0: there is no --profile. */
    int64_t profile_first, profile_last;
    bool json, log_device_placement;
} train_report_options;

typedef struct train_options {
    data_options data;
    train_model_options model;
    train_fit_options fit;
    train_report_options reports;
    device_flags device;
    strategy_flags strategy;
    const char *save, *checkpoint, *every, *checkpoint_every, *save_best;
    int64_t stop_after, keep;
    double evaluator_wait_s;
    bool resume;
} train_options;

/* The options of train, which are stored in a train_options. Their groups are data, model, training, devices, distribution and
 * output. */
extern const option_row train_rows[];

/* The nodes that the host runs are reported for at most so many replicas. */
enum { MOST_FALLBACKS = 32 };

/* What the callbacks of fit use. */
typedef struct reporter {
    progress *line; /* NULL: stderr is not a terminal */
    run_log log;    /* log.file NULL: there is no --log */
    int64_t log_every;
    board board; /* not open: there is no --tensorboard */
    bool quiet, json, classifies;
    const strata_preprocessing *preprocessing; /* of own data; else NULL */
    int64_t patience, stop_after;
    strata_model *model;
    const strata_strategy *strategy;
    int64_t notices;        /* how many notices of the strategy were printed */
    const char *checkpoint; /* the file of --checkpoint; NULL: there is none, or it is a folder, to which fit itself writes */
    bool chief;             /* this process writes the checkpoint */
    bool has_servers;       /* the strategy is parameter_server */
    bool has_evaluator;     /* the cluster has an evaluator, which waits for the last checkpoint */
    double began;
    /* How many of the next steps may still wait for kernels to be compiled; the seconds of such steps in this epoch; the
     * epoch's seconds when a step was reported last. */
    int settling;
    int64_t waited; /* how many steps of this epoch have waited for kernels */
    double compiled, reported;
    int epoch;    /* the epoch of the last step */
    int64_t step; /* the last step in this epoch */
} reporter;

/* The state of one run of the command. */
typedef struct training {
    train_options options;
    const sample *sample;
    const char *name; /* the argument: a sample, a model or data */
    opened_strategy opened;
    strata_strategy *strategy; /* opened.strategy */
    strata_model *model;
    int64_t batch; /* the batch of all replicas together */
    strata_auto_shard auto_shard;
    sample_data train, test, validation;
    fallback_report fallbacks[MOST_FALLBACKS];
    scores test_scores;    /* only for the user's own data */
    double *class_weights; /* NULL: all are 1 */
    int n_class_weights;
    strata_history history;
    strata_metrics test_metrics;
    strata_metrics val_metrics; /* of the model's final weights */
    char sha256[65];
    bool replicas_equal;
    strata_plateau_options plateau;
    /* in_folder: --checkpoint names a folder. A checkpoint is written to it after this many steps or seconds; 0: after each
     * epoch. */
    bool in_folder;
    int64_t every_steps;
    double every_seconds;
    bool paused;             /* --stop-after has ended this run, and there is no result yet */
    double began, fit_began; /* when the command and fit began, in seconds */
    reporter reporter;
    double data_seconds;   /* the time of reading the data, which is between the two */
    char own_trace[256];   /* the temporary file of --profile's trace; "": there is none */
    char trace_file[4096]; /* the file of this worker's trace; "": no trace is written */
} training;

/* Makes the name of another file in the same folder: of "a/run.json" and "what" it makes "a/run.what.json". */
void name_beside(const char *file, const char *what, char *out, size_t room);
/* Whether the strategy is parameter_server. */
bool has_servers(const training *t);

/* ---- train_data.c ---- */
/* Opens the model, and the training part of the user's own data, on which the model depends. Returns an exit code, after a
 * message. */
int open_what_is_trained(training *t);
/* Uses val.csv beside train.csv, or the folder val beside train and test, as --validation if none is given. `name` is that of
 * the data or the model. Returns the path, which the caller frees at the end; NULL: there is none. */
char *use_own_validation(const char *name, train_options *options);
/* Opens all parts of the data. Returns an exit code, after a message. */
int open_all_data(training *t);
/* Sets the epochs and the batch of one replica to their defaults, unless options give them. */
void choose_epochs_and_batch(training *t);

/* ---- train_report.c ---- */
/* The callbacks of the device's compiler and of fit; `user` is a reporter. */
void report_compile(const strata_compile_progress *compile, void *user);
STRATA_MUST_USE strata_status report_progress(const strata_progress *p, void *user, strata_error *err);
/* Prints on stderr what has happened to workers and servers since the last call. */
void say_notices(reporter *r);
/* After this call Ctrl-C, and SIGTERM if `terms`, ends the fit after its current step, and a second one ends the process.
 * tells: the first one prints a message on stderr. */
void obey_interrupts(bool tells, bool terms);
bool was_interrupted(void);
/* The function for strata_device_options.is_interrupted. */
bool is_interrupted(void *user);
/* The exit code of a training that a signal to this process or to another worker has ended. */
int interrupt_code(void);
/* Prints a warning of fit; `user` is a reporter. */
void report_warning(const char *text, void *user);

/* ---- train_profile.c ---- */
/* Reads --profile, and creates a temporary file for its trace unless there is --trace. Returns an exit code, after a
 * message. */
int read_profile(training *t);
/* Prints the summary of the trace, or a message if there is none. */
void print_profile(training *t);
/* Writes the trace for TensorBoard's profiler, if there are --tensorboard and --trace or --profile. */
void show_profile(const training *t);
/* Removes the temporary files of --profile. */
void finish_profile(const training *t);

/* ---- train_evaluator.c ---- */
/* Checks the options, if the cluster has an evaluator. Returns an exit code, after a message. */
int check_evaluator(const training *t);
/* Runs the evaluator task, which evaluates checkpoints instead of training. Returns an exit code. */
int evaluate_beside(training *t);

/* ---- train_result.c ---- */
/* Prints before the training what is trained on which device, and what the data are. */
void print_start(const training *t);
/* Prints the result, for the model's final weights, as text or with --json as an object. */
void print_result(const training *t);
/* After a lack of memory on the only device: prints on stderr on which devices of the machine the model fits, if it does. It
 * destroys the model. compile: the options of its compilation, which may have failed. */
void say_where_it_fits(training *t, const strata_compile_options *compile);

#endif
