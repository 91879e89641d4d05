/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiling for a machine that is not here: a plugin's compiler is asked what a program costs on a topology of chips. */
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

/* What the compiler says of a program on one chip. Numbers that it does not tell are negative. */
typedef struct pjrt_estimate {
    double code_bytes, argument_bytes, output_bytes, alias_bytes, temporary_bytes, peak_bytes;
    /* Per run, as the compiler counts. */
    double flops, transcendentals, bytes_accessed;
    /* Of a run, without the ops that the compiler has no time for, and how many these are. */
    double seconds;
    int n_untimed;
} pjrt_estimate;

/* name: as the plugin takes it, "v5e:2x2". Fails: what the plugin says. */
STRATA_MUST_USE strata_status strata_pjrt_topology_create(const pjrt_plugin *plugin, const char *name,
                                                          pjrt_topology *out_topology, strata_error *err);
void strata_pjrt_topology_destroy(pjrt_topology *topology);
/* Compiles StableHLO text for n_replicas of the topology's devices. Fails: UNSUPPORTED with what the compiler says. */
STRATA_MUST_USE strata_status strata_pjrt_compile_ahead(const pjrt_topology *topology, const char *text, size_t n_bytes,
                                                        int n_replicas, pjrt_estimate *out_estimate, strata_error *err);

/* Takes what a compiler's cost analysis says into the estimate; properties that it lacks leave the estimate as it was. XLA
 * adds up "optimal_seconds" over the program's ops, and an op of its own that it has no time for (a custom call, as
 * ConcatBitcast, which moves nothing) counts as -1 s. So a sum of -2.9998 is three such ops, and 0.0002 s for all others. f32
 * holds it to 0.1 us. */
void strata_pjrt_read_costs(const pjrt_cost_args *costs, pjrt_estimate *estimate);

STRATA_EXPORT_END

#endif
