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

typedef struct train_options {
    data_options data;
    const char *model, *write_model, *from, *freeze;
    text_list set;
    bool augment;
    const char *save, *checkpoint, *every, *plateau, *save_best, *metrics, *auto_shard, *class_weights, *precision, *trace,
        *validation, *log, *tensorboard, *debug, *profile;
    device_flags device;
    strategy_flags strategy;
    int64_t epochs, batch, global_batch, accumulate, together, steps_per_epoch, seed, check_every;
    int64_t patience, log_every, stop_after, keep;
    double learning_rate, validation_split, evaluator_wait_s;
    bool json, scale_lr, log_device_placement, restore_best, resume;
    /* The options of --debug. */
    bool debug_nan, debug_determinism;
    /* The steps of --profile; last 0: none. */
    int64_t profile_first, profile_last;
} train_options;

/* In the groups data, model, training, devices, distribution and output; of a train_options. */
extern const option_row train_rows[];

/* Replicas whose fallbacks are told of. */
enum { MOST_FALLBACKS = 32 };

/* Between the callbacks of a fit. */
typedef struct reporter {
    progress *line; /* NULL: stderr is no terminal */
    run_log log;    /* its file is NULL: none */
    int64_t log_every;
    board board; /* not open: none */
    bool quiet, json, classifies;
    int64_t patience, stop_after;
    strata_model *model;
    const strata_strategy *strategy;
    int64_t notices;        /* of the strategy, that were said */
    const char *checkpoint; /* a file; NULL: none, or a folder, which the fit itself writes */
    bool chief;             /* writes it */
    bool has_servers;       /* the strategy is parameter_server */
    bool has_evaluator;     /* which waits for a last checkpoint */
    double began;
    /* Steps that may still wait for kernels to be compiled; seconds of this epoch that did; when a step was reported last. */
    int settling;
    int64_t waited; /* how many they were in this epoch */
    double compiled, reported;
    int epoch;    /* of the newest step */
    int64_t step; /* in it */
} reporter;

/* What one run of the command holds, freed together. */
typedef struct training {
    train_options options;
    const sample *sample;
    const char *name; /* as the user gave it */
    opened_strategy opened;
    strata_strategy *strategy; /* of `opened` */
    strata_model *model;
    int64_t batch; /* of all replicas */
    strata_auto_shard auto_shard;
    sample_data train, test, validation;
    fallback_report fallbacks[MOST_FALLBACKS];
    scores test_scores;    /* of own data */
    double *class_weights; /* NULL: 1 each */
    int n_class_weights;
    strata_history history;
    strata_metrics test_metrics;
    strata_metrics val_metrics; /* of the weights that the model ended with */
    char sha256[65];
    bool replicas_equal;
    strata_plateau_options plateau;
    bool in_folder; /* checkpoints are in a folder, one after every so many steps or seconds; 0: each epoch */
    int64_t every_steps;
    double every_seconds;
    bool paused;             /* by --stop-after: there is no result yet */
    double began, fit_began; /* seconds, of the command and of the fit */
    reporter reporter;
    double data_seconds;   /* what reading the data took, between the two */
    char own_trace[256];   /* a file of --profile's own; "": none */
    char trace_file[4096]; /* where this worker's trace goes; "": nowhere */
} training;

/* "a/run.what.json" of "a/run.json" and "what". */
void name_beside(const char *file, const char *what, char *out, size_t room);
/* Whether the tasks are those of parameter_server. */
bool has_servers(const training *t);

/* ---- train_data.c ---- */
/* The model, and the training part of data of the user's own, which the model is made for. */
int open_what_is_trained(training *t);
/* All parts of the data. */
int open_all_data(training *t);
/* Epochs, and the batch of one replica, where no option says them. */
void choose_epochs_and_batch(training *t);

/* ---- train_report.c ---- */
/* Callbacks of the device's compiler and of fit; `user` is a reporter. */
void report_compile(const strata_compile_progress *compile, void *user);
STRATA_MUST_USE strata_status report_progress(const strata_progress *p, void *user, strata_error *err);
/* What has happened to workers and servers since the last call, on stderr. */
void say_notices(reporter *r);
/* From here on Ctrl-C, and with `terms` SIGTERM, end the fit after its step, and a second one the process. tells: the first one
 * is answered on stderr. */
void obey_interrupts(bool tells, bool terms);
bool was_interrupted(void);
/* strata_device_options.is_interrupted. */
bool is_interrupted(void *user);
/* The exit code of a training that was ended so, by this process's signal or another worker's. */
int interrupt_code(void);
/* What a fit warns of; `user` is a reporter. */
void report_warning(const char *text, void *user);

/* ---- train_profile.c ---- */
/* Reads --profile and finds a file for its trace where --trace names none. Returns an exit code, after a message. */
int read_profile(training *t);
/* Prints what the trace of the steps says in sum. A message says where that fails. */
void print_profile(training *t);
/* Where there are --tensorboard and --trace or --profile: the trace, for TensorBoard's profiler. */
void show_profile(const training *t);
/* Removes the files of --profile's own. */
void finish_profile(const training *t);

/* ---- train_evaluator.c ---- */
/* Whether the options suit a cluster that has an evaluator. Returns an exit code, after a message. */
int check_evaluator(const training *t);
/* What the evaluator does in place of the fit, with the compiled model. Returns an exit code. */
int evaluate_beside(training *t);

/* ---- train_result.c ---- */
/* One line before the training: what is trained on which device, and what the data are. */
void print_start(const training *t);
/* Of the weights that the model ended with; text or, with --json, one object. */
void print_result(const training *t);

#endif
