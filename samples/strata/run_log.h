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
    /* The header of a CSV was written. */
    bool begun;
    /* The model predicts classes, so that there are accuracies. */
    bool classifies;
    double began;
    /* The errno of the first row that could not be written; 0: all rows were written. */
    int error;
} run_log;

/* Values of a row that fit does not report; NaN: the row does not have this value. */
typedef struct run_log_more {
    double weight_norm, samples_per_s;
    /* The strategy parameter_server, for the numbers of its tasks in the row of an epoch; NULL: another strategy is used. */
    const strata_strategy *servers;
} run_log_more;

/* Checks that the name ends in .jsonl or .csv. Returns an exit code, after a message. */
int run_log_check(const char *path);
/* Opens the file. goes_on: rows are appended to those in it. Returns an exit code, after a message. */
int run_log_open(run_log *log, const char *path, bool goes_on, bool classifies);
/* Writes the row of a step, or of an epoch if p reports the end of one. */
void run_log_add(run_log *log, const strata_progress *p, const run_log_more *more);
/* Writes the row of the test data, at the end. servers: as in run_log_more. */
void run_log_add_test(run_log *log, const strata_metrics *test, const strata_strategy *servers);
/* Prints the row of an epoch on stdout, as JSON. */
void run_log_print_epoch(const strata_progress *p, const run_log_more *more, bool classifies, double seconds);
/* Closes the file. If a row could not be written, prints why. Returns an exit code. A zeroed log is fine. */
int run_log_close(run_log *log);

#endif
