/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a training for other programs, with a row for each step or epoch: a file of JSON lines or CSV (--log), and epochs
 * on stdout (--json). The prefix of a name is the split of its number: train_loss, val_accuracy, test_loss. */
#ifndef STRATA_SAMPLES_RUN_LOG_H
#define STRATA_SAMPLES_RUN_LOG_H

#include <stdio.h>
#include <strata/strata.h>

typedef struct run_log {
    FILE *file;
    const char *path;
    bool csv;
    /* A CSV's first row is the names, which the first row that is written knows. */
    bool begun;
    /* Answers are right or wrong, so that there are accuracies. */
    bool classifies;
    double began;
    /* The errno of the first row that could not be written; 0: all could. */
    int error;
} run_log;

/* What a row has besides what fit reports; NaN: it does not have it. */
typedef struct run_log_more {
    double weight_norm, samples_per_s;
    /* parameter_server, of whose tasks an epoch's row says how far apart they were; NULL: another strategy. */
    const strata_strategy *servers;
} run_log_more;

/* Whether the name's ending is one of a log, .jsonl or .csv; else prints what is wrong. Returns an exit code. */
int run_log_check(const char *path);
/* goes_on: rows are written behind those that are there. Returns an exit code, after a message. */
int run_log_open(run_log *log, const char *path, bool goes_on, bool classifies);
/* A row of a step, or of an epoch where p says that one has ended. */
void run_log_add(run_log *log, const strata_progress *p, const run_log_more *more);
/* A row of the test data, at the end. servers: as in run_log_more. */
void run_log_add_test(run_log *log, const strata_metrics *test, const strata_strategy *servers);
/* One such row of an epoch on stdout, as JSON. */
void run_log_print_epoch(const strata_progress *p, const run_log_more *more, bool classifies, double seconds);
/* Prints what is wrong where not all could be written. Returns an exit code. A zeroed log is fine. */
int run_log_close(run_log *log);

#endif
