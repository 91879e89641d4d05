/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the two processes of `strata plugin-check` share: plugin_check.c starts the child and reports,
 * plugin_cases.c runs in the child. */
#ifndef STRATA_SAMPLES_PLUGIN_CHECK_H
#define STRATA_SAMPLES_PLUGIN_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/check.h"

typedef enum check_kind {
    /* The child begins with this unit or case. */
    CHECK_BEGIN,
    /* The description of the device. */
    CHECK_DEVICE,
    CHECK_RIGHT,
    /* The device does not run the op; text: its reason. */
    CHECK_NOT_CLAIMED,
    /* The device runs the op, but not others that the case has around it. */
    CHECK_BLOCKED,
    CHECK_WRONG,
    /* The last message of the child: all units are done. */
    CHECK_END
} check_kind;

/* A message in the pipe. It is shorter than PIPE_BUF, so it is written and read as a whole. */
typedef struct check_message {
    check_kind kind;
    int unit;
    /* The number of cases that were right; for BEGIN the index of the case. */
    int n;
    char text[1500];
} check_message;

/* A unit is one row of the conformance suite in one dtype. Units before them check how the device is opened, its memory, and
 * training, which comes last in time. */
enum { CHECK_UNIT_OPEN = 0, CHECK_UNIT_MEMORY = 1, CHECK_UNIT_TRAINING = 2, CHECK_FIRST_ROW = 3 };
int check_n_units(void);
/* Writes the name of a unit, for example "matmul f32", for messages and the report. */
void check_unit_name(int unit, char *out_name, int bytes);
/* The op of a unit; NULL: the unit does not check an op. */
const char *check_unit_op(int unit);

typedef struct check_options {
    /* FILE[,key=value]. */
    const char *plugin;
    /* "NAME:1"; NULL: the plugin's first. */
    const char *device;
    /* Seconds that the whole check may take, and one case. */
    double limit_s, case_s;
    /* Ops to check, "matmul,add"; NULL: all. */
    const char *ops;
} check_options;

/* Trains a small model on the device and on the host, and compares them (plugin_training.c). rounding: the relative rounding
 * error of the operands of products, 2^-8 for bf16; 0: they are not rounded. */
strata_test_result check_training(const char *device, double limit_s, double rounding);

/* Runs units from `first` on in this process and writes messages to the pipe; the plugin may end the process. */
void check_run(const check_options *options, int first, int pipe);

#endif
