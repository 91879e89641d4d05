/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph as one module, without a device: for compilers that are asked ahead of time. */
#ifndef STRATA_BACKENDS_PJRT_WHOLE_H
#define STRATA_BACKENDS_PJRT_WHOLE_H

#include "backends/pjrt/lower.h"
#include "core/base/export.h"

STRATA_EXPORT_BEGIN

/* The graph after the same passes as strata_executable_create runs, communication among options.n_replicas replicas inside of
 * the program. Fails: as strata_pjrt_lower. The caller finishes the module; its ports have no arenas that mean anything. */
STRATA_MUST_USE strata_status strata_pjrt_lower_graph(strata_tensor *const *outputs, int n_outputs,
                                                      strata_tensor *const *updates, int n_updates, pjrt_lower_options options,
                                                      pjrt_module *out_module, strata_error *err);

STRATA_EXPORT_END

#endif
