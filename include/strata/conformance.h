/* SPDX-License-Identifier: Apache-2.0
 *
 * The library libstrata_conformance: compares the ops of a device, or of a vendor's plugin, with the ops' references, over the
 * rows of the conformance suite. It is a static library, which contains what it needs of the library's inside; a program links
 * it beside libstrata's static library. `strata devices --check` and `strata plugin-check` use it.
 *
 * A plugin may end the process or hang. So strata_check_run runs in a child process and writes messages to a pipe; the parent
 * process reads them and, after a crash, starts another child with the next unit (samples/strata/plugin_check.c). */
#ifndef STRATA_CONFORMANCE_H
#define STRATA_CONFORMANCE_H

#include "strata/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_check_kind {
    /* The child begins with this unit or case. */
    STRATA_CHECK_BEGIN,
    /* The description of the device. */
    STRATA_CHECK_DEVICE,
    STRATA_CHECK_RIGHT,
    /* The device does not run the op; text: its reason. */
    STRATA_CHECK_NOT_CLAIMED,
    /* The device runs the op, but not others that the case has around it. */
    STRATA_CHECK_BLOCKED,
    STRATA_CHECK_WRONG,
    /* The last message of the child: all units are done. */
    STRATA_CHECK_END
} strata_check_kind;

/* A message in the pipe. It is shorter than PIPE_BUF, so it is written and read as a whole. */
typedef struct strata_check_message {
    strata_check_kind kind;
    int unit;
    /* The number of cases that were right; for BEGIN the index of the case. */
    int n;
    char text[1500];
} strata_check_message;

/* A unit is one row of the conformance suite in one dtype. Units before them check how the device is opened and its memory. The
 * last two check what is left in use when calls are repeated, and training. */
enum { STRATA_CHECK_UNIT_OPEN = 0, STRATA_CHECK_UNIT_MEMORY = 1, STRATA_CHECK_FIRST_ROW = 2 };
int strata_check_n_units(void);
/* Writes the name of a unit, for example "matmul f32", for messages and the report. */
void strata_check_unit_name(int unit, char *out_name, int bytes);
/* The op of a unit; NULL: the unit does not check an op. */
const char *strata_check_unit_op(int unit);

typedef struct strata_check_options {
    /* FILE[,key=value]. */
    const char *plugin;
    /* "NAME:1"; NULL: the plugin's first. */
    const char *device;
    /* Seconds that the whole check may take, and one case. */
    double limit_s, case_s;
    /* Ops to check, "matmul,add"; NULL: all. */
    const char *ops;
    /* Leave out the shapes that accelerators have. */
    bool quick;
    /* The time, in seconds of CLOCK_MONOTONIC, after which no more of these shapes are begun. */
    double large_until;
} strata_check_options;

/* Runs units from `first` on in this process and writes messages to the pipe; the plugin may end the process. */
void strata_check_run(const strata_check_options *options, int first, int pipe);

/* ---- one device ---- */

/* Sorted from the best to the worst. */
typedef enum strata_verdict {
    STRATA_VERDICT_NOT_RUN,
    STRATA_VERDICT_RIGHT,
    /* A kernel of the device was wrong, and the library used another one. */
    STRATA_VERDICT_REPLACED,
    STRATA_VERDICT_REFUSED,
    STRATA_VERDICT_WRONG
} strata_verdict;

/* An op in one dtype: the worst verdict of its cases. */
typedef struct strata_op_verdict {
    const char *op;
    strata_verdict verdict;
    /* The reason of a verdict that is worse than RIGHT. */
    char why[STRATA_ERROR_MESSAGE_BYTES];
} strata_op_verdict;

/* Compares every op on the device with its reference, in each dtype that the device has.
 *   id            of the device, as strata_device_open
 *   begin         called before each row with the name of its op; NULL: not needed
 *   out_info      the description of the open device
 *   out_verdicts  [n_ops * STRATA_DTYPE_COUNT], for each op the dtypes; the caller frees them
 * Fails: as strata_device_open; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_check_device(const char *id, void (*begin)(const char *op, void *user), void *user,
                                                  strata_device_info *out_info, strata_op_verdict **out_verdicts,
                                                  int *out_n_ops, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
