/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles for a machine that is not here: a plugin's compiler estimates what a program costs on a topology of chips. */
#ifndef STRATA_BACKENDS_PJRT_AOT_H
#define STRATA_BACKENDS_PJRT_AOT_H

#include "backends/pjrt/plugin.h"
#include "core/base/export.h"

STRATA_EXPORT_BEGIN

typedef struct pjrt_topology {
    pjrt_plugin plugin;
    pjrt_api_topology *topology;
    int n_devices;
} pjrt_topology;

/* The compiler's estimates for a program on one chip. Numbers that it does not report are negative. */
typedef struct pjrt_estimate {
    double code_bytes, argument_bytes, output_bytes, alias_bytes, temporary_bytes, peak_bytes;
    /* For one run, as the compiler counts. */
    double flops, transcendentals, bytes_accessed;
    /* The time of a run without those ops for which the compiler has no time, and the number of these ops. */
    double seconds;
    int n_untimed;
} pjrt_estimate;

/* name: in the plugin's notation, for example "v5e:2x2". Fails: with the plugin's error, and TIMEOUT if the plugin hangs. */
STRATA_MUST_USE strata_status strata_pjrt_topology_create(const pjrt_plugin *plugin, const char *name,
                                                          pjrt_topology *out_topology, strata_error *err);
void strata_pjrt_topology_destroy(pjrt_topology *topology);
/* Compiles StableHLO text for n_replicas of the topology's devices. Fails: UNSUPPORTED with the compiler's message, TIMEOUT
 * after `seconds`; the topology must then not be destroyed. */
STRATA_MUST_USE strata_status strata_pjrt_compile_ahead(const pjrt_topology *topology, const char *text, size_t n_bytes,
                                                        int n_replicas, double seconds, pjrt_estimate *out_estimate,
                                                        strata_error *err);

/* Reads the numbers of a compiler's cost analysis into the estimate. Numbers that it lacks stay unchanged.
 *
 * XLA adds up "optimal_seconds" over the program's ops. One of its own ops for which it has no time (a custom call such
 * as ConcatBitcast, which moves no data) counts as -1 s. So a sum of -2.9998 means three such ops and 0.0002 s for all
 * others. In f32, such a sum is exact to 0.1 us. */
void strata_pjrt_read_costs(const pjrt_cost_args *costs, pjrt_estimate *estimate);

STRATA_EXPORT_END

#endif
