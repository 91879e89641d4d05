/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to calls that change files: tests/crash/README.md. */
#ifndef STRATA_TESTS_CRASH_SHIM_H
#define STRATA_TESTS_CRASH_SHIM_H

#include <stdint.h>

/* Nothing out of the ordinary, except that fsync does nothing, always: no test cuts a machine's power. */
void crash_reset(void);
/* From event k on (from 1, counted from now) calls succeed and change nothing. INT64_MAX: all events are counted. */
void crash_cut_at(int64_t k);
int64_t crash_events(void); /* since then */
/* SIGKILL before the n-th call, from 1, of this name ("write") on a path that contains `part`. */
void crash_kill_at(const char *call, const char *part, int n);
/* So many bytes may be written from now on. */
void crash_fill_disk(int64_t bytes);

#endif
