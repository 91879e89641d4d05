/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts how far the tasks are apart: staleness of gradients, leases, queues of servers, slow workers. The caller must hold a
 * lock. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_LOAD_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_LOAD_H

#include "strategies/parameter_server/task.h"

/* The sums from which the means of a load are computed. */
typedef struct strata_ps_load_sums {
    int64_t staleness, leases, asks;
} strata_ps_load_sums;

/* Adds a worker's report of the pushes of one unit. */
void strata_ps_load_add_staleness(strata_parameter_server_load *load, strata_ps_load_sums *sums, const strata_ps_next_ask *ask);
/* Adds how many leases were unfinished when a worker requested the next one. */
void strata_ps_load_add_leases(strata_parameter_server_load *load, strata_ps_load_sums *sums, int leases);
/* Adds a server's report of its queues. */
void strata_ps_load_add_queue(strata_parameter_server_load *load, const strata_ps_hello_reply *reply);
/* Finds the slow workers among the connected ones of workers[n], by their step_seconds: sets stragglers, slowest and
 * slowest_ratio. */
void strata_ps_load_find_stragglers(const strata_parameter_server_worker *workers, int n,
                                    strata_parameter_server_totals *totals);

#endif
