/* SPDX-License-Identifier: Apache-2.0
 *
 * What the chief counts of how far apart the tasks are: staleness, leases, servers' queues, stragglers. The caller has a
 * lock. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_LOAD_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_LOAD_H

#include "strategies/parameter_server/task.h"

/* What the means of a load are made of. */
typedef struct strata_ps_load_sums {
    int64_t staleness, leases, asks;
} strata_ps_load_sums;

/* What a worker reports of the pushes of one unit. */
void strata_ps_load_add_staleness(strata_parameter_server_load *load, strata_ps_load_sums *sums, const strata_ps_next_ask *ask);
/* How many leases were out when a worker asked for the next. */
void strata_ps_load_add_leases(strata_parameter_server_load *load, strata_ps_load_sums *sums, int leases);
/* What a server says of its queues. */
void strata_ps_load_add_queue(strata_parameter_server_load *load, const strata_ps_hello_reply *reply);
/* Sets stragglers, slowest and slowest_ratio, by the step_seconds of those of workers[n] that are there. */
void strata_ps_load_find_stragglers(const strata_parameter_server_worker *workers, int n,
                                    strata_parameter_server_totals *totals);

#endif
