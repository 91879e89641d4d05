/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates a whole graph to one module, without a device, for compilers that compile ahead of time. */
#ifndef STRATA_BACKENDS_PJRT_WHOLE_H
#define STRATA_BACKENDS_PJRT_WHOLE_H

#include "backends/pjrt/lower.h"

/* Translates the graph after the same passes that strata_executable_create runs. Communication among options.n_replicas
 * replicas is part of the program. Fails: as strata_pjrt_lower. The caller finishes the module. The arenas of its ports
 * have no meaning. */
STRATA_MUST_USE strata_status strata_pjrt_lower_graph(strata_tensor *const *outputs, int n_outputs,
                                                      strata_tensor *const *updates, int n_updates, pjrt_lower_options options,
                                                      pjrt_module *out_module, strata_error *err);

#endif
