/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host and the devices did when, as the host saw it (a segment from its submission to when the host knew that it was
 * over): spans of time on rows, written as JSON for a trace viewer (chrome://tracing, ui.perfetto.dev; the Trace Event Format).
 * Threads: one at a time. */
#ifndef STRATA_CORE_TRACE_H
#define STRATA_CORE_TRACE_H

#include <stdint.h>

#include "strata/status.h"

typedef struct strata_trace strata_trace;

enum { STRATA_TRACE_HOST = 0 }; /* the host's row; replica r has row r + 1 */

/* Of a file, which is not there, or as it was, until write. Fails: DATA where it can't be written, OUT_OF_MEMORY,
 * OUT_OF_DISK. */
STRATA_MUST_USE strata_status strata_trace_create(const char *path, strata_trace **out_trace, strata_error *err);
void strata_trace_destroy(strata_trace *trace); /* NULL is fine */

/* Seconds of a steady clock, from an unknown beginning. */
double strata_trace_now(void);
/* "<what> <number>", from began to ended. what: static memory. The first 200,000 spans are kept. NULL trace: nothing. */
void strata_trace_add(strata_trace *trace, const char *what, int number, int row, int64_t step, double began, double ended);
/* What a unit of replica r's device did, on a row of its own: "<name>". name, unit: copied; bytes that JSON would have to
 * escape are left out. At most 256 names and units, 16 units a device; spans of others are left out. NULL trace: nothing. */
void strata_trace_add_unit(strata_trace *trace, int replica, const char *unit, const char *name, double began, double ended);
/* Row r + 1 is called "replica r <device>", and those of its units "replica r <device> <unit>"; device: borrowed. */
STRATA_MUST_USE strata_status strata_trace_write(const strata_trace *trace, const char *const *devices, int n_devices,
                                                 strata_error *err);

#endif
