/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a job of strata_model_fit under parameter_server for tests. Every task is a process of its own, and so is the
 * training on one device with which the job is compared. A test calls ps_set_up, describes the training in a ps_job, calls
 * ps_run and ps_run_alone, and reads the results. */
#ifndef STRATA_TESTS_STRATEGIES_PS_JOB_H
#define STRATA_TESTS_STRATEGIES_PS_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "strata/strata.h"

enum {
    PS_MOST_WORKERS = 3,
    PS_MOST_SERVERS = 3,
    PS_MOST_TASKS = 1 + PS_MOST_WORKERS + PS_MOST_SERVERS,
    PS_MOST_EPOCHS = 20,
    PS_MOST_VALUES = 4096,
    /* The number of training examples. */
    PS_EXAMPLES = 96,
};

/* Results of the chief, or of the training on one device. */
typedef struct ps_result {
    int status;
    pid_t pid;
    char message[400];
    int64_t n_steps, callbacks, epoch_ends, first_step, spread, n_refused;
    /* The chief's last notice. */
    char notice[200];
    /* n_built: how often fit built the graph of the test's own metric. n_buckets: number of buckets of the task's gradient
     * programs. */
    int n_buckets, n_values, n_losses, n_epochs, best_epoch, n_built;
    float values[PS_MOST_VALUES], losses[100];
    double rates[100], norms[100];
    /* The task's loss scale after the fit. */
    double loss_scale;
    strata_metrics train[PS_MOST_EPOCHS], validation[PS_MOST_EPOCHS];
    /* The first metric besides loss and accuracy: of the validation data (more), and of the training (labels). */
    double more[PS_MOST_EPOCHS], labels[PS_MOST_EPOCHS];
} ps_result;

typedef struct ps_job {
    /* NULL: a model of two dense layers for the first input and target of ps_make_data. */
    strata_status (*make_model)(strata_model **out_model, strata_error *err);
    /* NULL: ps_make_data. task: the task's name; NULL for the training on one device. */
    strata_status (*make_own_data)(const char *task, strata_dataset **out_dataset, strata_error *err);
    strata_compile_options compile;
    strata_fit_options fit;
    /* Number of validation examples, which are not among the training examples. 0: no validation. */
    int validation;
    /* load: a checkpoint from which the training continues. save: a checkpoint that is written after the fit. NULL: none. */
    const char *load, *save;
    strata_parameter_server_options servers;
    /* As in strata_strategy_options. The training on one device ignores them. */
    int64_t bytes_per_pack;
    strata_dtype compress;
    /* 0: 2 workers, 2 servers. */
    int n_workers, n_servers;
} ps_job;

/* [PS_MOST_TASKS + 1] Memory that all processes share: results of the chief, then of the workers, then of the servers, and
 * in the last row those of the training on one device. */
extern ps_result *ps_results;

/* Changes that a test makes to all tasks. Tasks have the values of the time at which they start. */
extern struct ps_hooks {
    /* The chief, or the training on one device, calls it after each step and epoch. NULL: nothing is called. */
    strata_status (*callback)(const strata_progress *progress, strata_error *err);
    /* The strategy of this process, for callbacks. */
    strata_strategy *strategy;
    /* How often this process has built the graph of its own metric. */
    int n_built;
    /* The first process that begins with the last, smaller batch of the validation data is killed. */
    bool ends_at_rest;
    /* kills_server: a callback kills a server. restarts: killed tasks start again. */
    bool kills_server, restarts;
} ps_hooks;

extern const strata_parameter_server_options ps_together; /* synchronous training */

void ps_set_up(void);

/* A pseudo-random number from -1 to 1, which i and salt determine. */
float ps_number(int64_t i, int64_t salt);
/* Makes n examples: inputs "x" (n, 6), "z" (n, 3) and "words" (n, 4), which are tokens below 11; targets "y" (n, 1) and
 * "kind" (n) below 3. all false: only "x" and "y". The first example has the number `first`. */
strata_status ps_make_data(int64_t n, int64_t first, bool all, strata_dataset **out_dataset, strata_error *err);
/* A model with three inputs, two of which use the same layer, and two outputs, each with its own loss. It has a sparse
 * table with a row for each of `vocabulary` words. */
strata_status ps_make_with_words(int64_t vocabulary, strata_model **out_model, strata_error *err);
/* Such a model, whose batches have more words than the table has rows, so that the gradient contains all rows. */
strata_status ps_make_functional(strata_model **out_model, strata_error *err);

/* Runs all tasks and returns the result of the chief. All other tasks must have ended with the chief's status. */
const ps_result *ps_run(const ps_job *job);
const ps_result *ps_run_alone(const ps_job *job);
/* The number of buckets of the workers' programs. A worker that trains at its own pace may get no batch, and then has no
 * program. */
int ps_most_buckets(void);

void ps_assert_near(double a, double b, const char *what, int i);
/* Runs both trainings. The losses of the first steps and all parameters must be equal. Returns the result of the chief. */
const ps_result *ps_assert_as_alone(const ps_job *job);
/* The mean of the first three losses. */
double ps_first_loss(const ps_result *r);
double ps_last_loss(const ps_result *r);

#endif
