/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the costs of programs, which the plugin reports in its table "costs". */
#include <math.h>

#include "backends/plugin/plugin.h"

/* The reported number, or 0 (not known) if it cannot be a cost. Reported numbers may be wrong. */
static double known(double x) {
    return isfinite(x) && x > 0 ? x : 0;
}

strata_status strata_bridge_cost(plugin_device *device, strata_plugin_program *program, int node, strata_device_cost *out_cost,
                                 strata_error *err) {
    strata_plugin_costs costs = {0};
    strata_plugin_cost cost = {.size = sizeof cost};
    strata_plugin_error message = {.size = sizeof message};
    *out_cost = (strata_device_cost){0};
    STRATA_TRY(strata_bridge_check_lost(device, err));
    STRATA_DRIVER_CALL(&device->base, ASK);
    const strata_plugin_costs *given = device->calls.table ? device->calls.table(device->device, "costs") : NULL;
    if (!given) return STRATA_OK;
    if (given->size < sizeof given->size)
        return strata_bridge_broke(device, err, "its table \"costs\" says size %zu", given->size);
    strata_bridge_copy_struct(&costs, sizeof costs, given);
    if (node < 0 && !costs.program)
        return strata_bridge_broke(device, err, "its table \"costs\" has NULL in the required slot program");
    if (node >= 0 && !costs.node) return STRATA_OK;
    const strata_plugin_status status =
        node < 0 ? costs.program(program, &cost, &message) : costs.node(program, node, &cost, &message);
    STRATA_TRY(strata_bridge_result(device, "costs", status, &message, err));
    *out_cost = (strata_device_cost){.seconds = known(cost.seconds),
                                     .cycles = known(cost.cycles),
                                     .bytes = known(cost.bytes),
                                     .utilisation = known(cost.utilisation) <= 1 ? known(cost.utilisation) : 0,
                                     .work_bytes = known((double)cost.work_bytes)};
    return STRATA_OK;
}
