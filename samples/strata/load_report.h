/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on the tasks of parameter_server: the staleness of updates, slow workers, and the length of queues. */
#ifndef STRATA_SAMPLES_LOAD_REPORT_H
#define STRATA_SAMPLES_LOAD_REPORT_H

#include <stdio.h>
#include <strata/strata.h>

enum { N_LOAD_VALUES = 10, LOAD_TEXT = 64 };

typedef struct load_value {
    const char *name;
    double value;
    /* The value is a whole number. */
    bool whole;
} load_value;

/* Writes the values of the last epoch, or of the whole training: [N_LOAD_VALUES]. */
void load_values(const strata_strategy *strategy, bool epoch, load_value *out_values);
/* Prints ",\"staleness_histogram\":[...],\"worker_steps\":[...],\"worker_samples_per_s\":[...]". seconds: the time of the
 * epoch, or of the training. */
void load_print_lists(FILE *file, const strata_strategy *strategy, bool epoch, double seconds);
/* Prints for example "  staleness 1.2  slow worker:1 9.8x", for the line of an epoch; the second part only if there is a slow
 * worker. */
void load_print_epoch(FILE *to, const strata_strategy *strategy);
/* Writes for example "stale 1.2 leases 3 queue 2 slow worker:1 10x", for the line of progress. */
void load_text(const strata_strategy *strategy, char out_text[LOAD_TEXT]);

#endif
