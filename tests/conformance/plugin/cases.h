/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the child's side of `strata plugin-check` shares: cases.c compares ops, large.c adds the
 * shapes that accelerators have, memory.c checks memory. */
#ifndef STRATA_CONFORMANCE_PLUGIN_CASES_H
#define STRATA_CONFORMANCE_PLUGIN_CASES_H

#include "strata/conformance.h"
#include "strata/device.h"
#include "tests/conformance/case.h"
#include "tests/support/check.h"

typedef struct checker {
    const strata_check_options *options;
    strata_device *device;
    /* The id of the device, and that of another device of the plugin; "": there is none. */
    char id[32], other[32];
    int pipe, unit;
} checker;

/* ---- memory.c ---- */

/* Checks buffers and copies. Calls `begin` with the number of each case; returns after the first one that is wrong.
 * *out_n_right: the number of cases before it. */
strata_test_result check_memory(const checker *c, void (*begin)(const checker *c, int index), int *out_n_right);
/* Repeats what a training repeats (buffers, copies, programs, runs), and measures what is left in use of memory, threads and
 * files. */
strata_test_result check_counts(const checker *c);
/* The same for opening and closing the device, which is closed before and after. */
strata_test_result check_openings(const checker *c);

/* ---- large.c ---- */

/* Makes instance number `index` of the row in shapes that accelerators have, from one of its own instances. Returns false
 * after the last one. */
bool large_instance(const op_row *row, strata_dtype dtype, int index, case_instance *out_instance, case_operand *out_operands);

/* Checks product number `index` of matmul. *out_more: there are more. Returns NOT_CLAIMED if the device does not run it. */
strata_check_kind check_large_product(const checker *c, strata_dtype dtype, int index, char *out_text, int text_bytes,
                                      bool *out_lost, bool *out_more);

/* Whether there is time for cases that take long. */
bool has_time(const checker *c);

/* ---- training.c ---- */

/* Trains a small model on the device and on the host, and compares them. rounding: the relative rounding
 * error of the operands of products, 2^-8 for bf16; 0: they are not rounded. */
strata_test_result check_training(const char *device, double limit_s, double rounding);

#endif
