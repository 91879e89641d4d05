/* SPDX-License-Identifier: Apache-2.0
 *
 * A job of strata_model_fit under parameter_server for tests: every task is a process of its own, as is the training on one
 * device that it is compared with. A test that begins with ps_set_up says what to train in a ps_job, runs it with ps_run and
 * ps_run_alone, and reads what they found. */
#ifndef STRATA_TESTS_STRATEGIES_PS_JOB_H
#define STRATA_TESTS_STRATEGIES_PS_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "strata/strata.h"

enum {
    PS_MOST_WORKERS = 3,
    PS_MOST_SERVERS = 3,
    PS_MOST_TASKS = 1 + PS_MOST_WORKERS + PS_MOST_SERVERS,
    PS_MOST_VALUES = 4096,
    /* Of the training data. */
    PS_EXAMPLES = 96,
};

/* What the chief, or the one device, found. */
typedef struct ps_result {
    int status;
    pid_t pid;
    char message[400];
    int64_t n_steps, callbacks, epoch_ends, first_step, spread, n_refused;
    /* The last one of the chief. */
    char notice[200];
    /* n_built: how often the own metric's graph was built in fit; n_buckets: of the task's gradient programs. */
    int n_buckets, n_values, n_losses, n_epochs, best_epoch, n_built;
    float values[PS_MOST_VALUES], losses[100];
    double rates[100], norms[100];
    strata_metrics train[8], validation[8];
    /* The first metric besides loss and accuracy: of the validation data, of the training. */
    double more[8], labels[8];
} ps_result;

typedef struct ps_job {
    /* NULL: a model of two dense layers, for ps_make_data's first input and target. */
    strata_status (*make_model)(strata_model **out_model, strata_error *err);
    /* NULL: ps_make_data. task: NULL on one device. */
    strata_status (*make_own_data)(const char *task, strata_dataset **out_dataset, strata_error *err);
    strata_compile_options compile;
    strata_fit_options fit;
    /* How many elements there are besides for validation; 0: none. */
    int validation;
    /* A checkpoint that training goes on from; one that is made after the fit. */
    const char *load, *save;
    strata_parameter_server_options servers;
    /* As in strata_strategy_options; not of the one device. */
    int64_t bytes_per_pack;
    strata_dtype compress;
    /* 0: 2. */
    int n_workers, n_servers;
} ps_job;

/* [PS_MOST_TASKS + 1] Memory that all processes share: of the chief, of the workers and servers behind it, and last of one
 * device. */
extern ps_result *ps_results;

/* What a test changes of the tasks; they have it as it is when they start. */
extern struct ps_hooks {
    /* Called on the chief, or the one device, after each step and epoch; NULL: nothing is. */
    strata_status (*callback)(const strata_progress *progress, strata_error *err);
    /* Of this process, for callbacks. */
    strata_strategy *strategy;
    /* How often this process has built the graph of its own metric. */
    int n_built;
    /* The first process that begins with the rest of the validation data is killed. */
    bool ends_at_rest;
    /* A callback kills a server; what was killed starts again. */
    bool kills_server, restarts;
} ps_hooks;

extern const strata_parameter_server_options ps_together; /* synchronous */

void ps_set_up(void);

/* A number from -1 to 1 for each i and salt. */
float ps_number(int64_t i, int64_t salt);
/* Inputs "x" (n, 6), "z" (n, 3) and tokens "words" (n, 4) below 11; targets "y" (n, 1) and "kind" (n) below 3. all: false: "x"
 * and "y" alone. Elements are numbered from `first`. */
strata_status ps_make_data(int64_t n, int64_t first, bool all, strata_dataset **out_dataset, strata_error *err);
/* Three inputs, of which two go through one layer, and two outputs with losses of their own; a sparse table with a row for each
 * of `vocabulary` words. */
strata_status ps_make_with_words(int64_t vocabulary, strata_model **out_model, strata_error *err);
/* A batch has more words than the table has rows: its gradient is that of all rows. */
strata_status ps_make_functional(strata_model **out_model, strata_error *err);

/* Runs all tasks, and returns what the chief found. Each of the others must have ended as the chief did. */
const ps_result *ps_run(const ps_job *job);
const ps_result *ps_run_alone(const ps_job *job);
/* The buckets of the workers' programs. At their own pace a worker may get no batch, and then has no program. */
int ps_most_buckets(void);

void ps_assert_near(double a, double b, const char *what, int i);
/* Losses of the first steps and all parameters are those of one device; what the chief found. */
const ps_result *ps_assert_as_alone(const ps_job *job);
/* The mean of the first three losses, and of the last three. */
double ps_first_loss(const ps_result *r);
double ps_last_loss(const ps_result *r);

#endif
