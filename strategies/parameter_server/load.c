/* SPDX-License-Identifier: Apache-2.0 */
#include "strategies/parameter_server/load.h"

#include <stdlib.h>

void strata_ps_load_add_staleness(strata_parameter_server_load *load, strata_ps_load_sums *sums,
                                  const strata_ps_next_ask *ask) {
    load->pushes += ask->n_staleness;
    sums->staleness += ask->staleness_sum;
    if (ask->staleness_max > load->staleness_max) load->staleness_max = ask->staleness_max;
    for (int i = 0; i < STRATA_STALENESS_BINS; i++) load->staleness_histogram[i] += ask->staleness_bins[i];
    if (!load->pushes) return;
    load->staleness_mean = (double)sums->staleness / (double)load->pushes;
    load->stale_share = 1 - (double)load->staleness_histogram[0] / (double)load->pushes;
}

void strata_ps_load_add_leases(strata_parameter_server_load *load, strata_ps_load_sums *sums, int leases) {
    sums->leases += leases;
    sums->asks++;
    load->leases_mean = (double)sums->leases / (double)sums->asks;
    if (leases > load->leases_max) load->leases_max = leases;
}

void strata_ps_load_add_queue(strata_parameter_server_load *load, const strata_ps_hello_reply *reply) {
    if (reply->pulls > load->server_pulls_max) load->server_pulls_max = reply->pulls;
    if (reply->pushes > load->server_pushes_max) load->server_pushes_max = reply->pushes;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void strata_ps_load_find_stragglers(const strata_parameter_server_worker *workers, int n,
                                    strata_parameter_server_totals *totals) {
    double *known = calloc((size_t)n + 1, sizeof *known), slowest = 0;
    int n_known = 0, which = -1;
    totals->stragglers = 0;
    totals->slowest = -1;
    totals->slowest_ratio = 0;
    for (int w = 0; known && w < n; w++) {
        if (!workers[w].present || workers[w].step_seconds <= 0) continue;
        known[n_known++] = workers[w].step_seconds;
        if (workers[w].step_seconds <= slowest) continue;
        slowest = workers[w].step_seconds;
        which = w;
    }
    if (n_known >= 2) {
        qsort(known, (size_t)n_known, sizeof *known, ascending);
        const double median = known[(n_known - 1) / 2];
        for (int i = 0; i < n_known; i++) totals->stragglers += known[i] > 2 * median;
        totals->slowest = which;
        totals->slowest_ratio = slowest / median;
    }
    free(known);
}
