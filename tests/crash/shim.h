/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates power cuts, kills and full disks in calls that change files. tests/crash/README.md explains them. */
#ifndef STRATA_TESTS_CRASH_SHIM_H
#define STRATA_TESTS_CRASH_SHIM_H

#include <stdint.h>

/* Ends all simulated faults. fsync never does anything, since no test cuts a machine's real power. */
void crash_reset(void);
/* From event k on, calls succeed without changing anything. Events are counted from now, and the first one is 1. INT64_MAX:
 * events are only counted. */
void crash_cut_at(int64_t k);
int64_t crash_events(void); /* since then */
/* Kills the process before the n-th call of this name ("write") on a path that contains `part`. The first call is 1. */
void crash_kill_at(const char *call, const char *part, int n);
/* From now on only so many bytes can be written. */
void crash_fill_disk(int64_t bytes);

#endif
