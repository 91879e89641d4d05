/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and checks the tables "steps", "topology", "collectives", "transfers" and "spaces" of a plugin's device, once, when the
 * device is opened. "costs" and "profile" are read when they are needed (program.c, spans.c). */
#include <limits.h>
#include <stdio.h>

#include "backends/plugin/plugin.h"

enum { MOST_RANK = sizeof((strata_topology *)0)->dims / sizeof *((strata_topology *)0)->dims };

/* Copies the table with this name. Returns false if the device does not have it. */
static bool take_table(const plugin_device *device, const char *name, void *table, size_t bytes, strata_status *status,
                       strata_error *err) {
    const size_t *given = device->calls.table ? device->calls.table(device->device, name) : NULL;
    if (!given || *status) return false;
    if (*given < sizeof(size_t)) {
        *status = strata_bridge_broke(device, err, "its table \"%s\" says size %zu", name, *given);
        return false;
    }
    strata_bridge_copy_struct(table, bytes, given);
    return true;
}

static strata_status take_topology(plugin_device *device, const strata_plugin_topology *given, strata_error *err) {
    strata_topology *own = &device->topology;
    if (!given->system || !given->system[0] || strlen(given->system) >= sizeof own->system)
        return strata_bridge_broke(device, err, "the system of its table \"topology\" is %s; it must have 1 to %zu bytes",
                                   !given->system     ? "NULL"
                                   : given->system[0] ? "longer"
                                                      : "empty",
                                   sizeof own->system - 1);
    if (given->n_cores < 1 || given->core < 0 || given->core >= given->n_cores)
        return strata_bridge_broke(device, err, "its table \"topology\" says core %d of %d", (int)given->core,
                                   (int)given->n_cores);
    if (given->rank < 0 || given->rank > MOST_RANK || (given->rank && (!given->dims || !given->coordinates)))
        return strata_bridge_broke(
            device, err, "its table \"topology\" has rank %d%s; it must be 0 to %d, with dims and coordinates",
            (int)given->rank, given->rank && (!given->dims || !given->coordinates) ? " without its arrays" : "", MOST_RANK);
    *own = (strata_topology){.n_cores = given->n_cores, .core = given->core, .rank = given->rank};
    snprintf(own->system, sizeof own->system, "%s", given->system);
    for (int d = 0; d < own->rank; d++) {
        own->dims[d] = given->dims[d];
        own->coordinates[d] = given->coordinates[d];
        if (own->coordinates[d] < 0 || own->coordinates[d] >= own->dims[d])
            return strata_bridge_broke(device, err, "its table \"topology\" has coordinate %d of %d in dimension %d",
                                       own->coordinates[d], own->dims[d], d);
    }
    device->is_core = true;
    return STRATA_OK;
}

/* Checks a memory space of the table and stores it. */
static strata_status take_space(plugin_device *device, const strata_plugin_space *given, int index, strata_error *err) {
    strata_memory_space *own = &device->spaces[index];
    strata_plugin_space space;
    if (!given || given->size < sizeof given->size)
        return strata_bridge_broke(device, err, "space %d of its table \"spaces\" is NULL or has no size", index);
    strata_bridge_copy_struct(&space, sizeof space, given);
    if (!space.name || !space.name[0] || strlen(space.name) >= sizeof own->name)
        return strata_bridge_broke(device, err, "space %d of its table \"spaces\" has no name of 1 to %zu bytes", index,
                                   sizeof own->name - 1);
    if (space.bytes < 0 || !(space.bytes_per_second >= 0))
        return strata_bridge_broke(device, err, "its memory space \"%s\" has %lld bytes, and %g bytes a second", space.name,
                                   (long long)space.bytes, space.bytes_per_second);
    *own = (strata_memory_space){
        .bytes = (uint64_t)space.bytes, .buffers = space.buffers != 0, .bytes_per_second = space.bytes_per_second};
    snprintf(own->name, sizeof own->name, "%s", space.name);
    device->n_spaces = index + 1;
    return STRATA_OK;
}

static strata_status take_spaces(plugin_device *device, const strata_plugin_spaces *given, strata_error *err) {
    if (given->n < 0 || given->n > MOST_SPACES || (given->n && !given->spaces))
        return strata_bridge_broke(device, err, "its table \"spaces\" has %d spaces%s; there may be 0 to %d", (int)given->n,
                                   given->n && !given->spaces ? " and no list of them" : "", MOST_SPACES);
    for (int i = 0; i < given->n; i++) STRATA_TRY(take_space(device, given->spaces[i], i, err));
    return STRATA_OK;
}

static uint64_t reached(strata_device *base) {
    plugin_device *device = (plugin_device *)base;
    STRATA_DRIVER_CALL(base, ASK);
    const int64_t n = device->reached(device->device);
    return n > 0 ? (uint64_t)n : 0;
}

strata_status strata_bridge_read_tables(plugin_device *device, strata_error *err) {
    strata_plugin_steps steps;
    strata_plugin_topology topology;
    strata_plugin_collectives collectives;
    strata_plugin_transfers transfers;
    strata_plugin_spaces spaces;
    strata_status status = STRATA_OK;
    device->most_runs = 1;
    if (take_table(device, "steps", &steps, sizeof steps, &status, err)) {
        if (steps.most < 0)
            return strata_bridge_broke(device, err, "its table \"steps\" says %d runs at most", (int)steps.most);
        device->most_runs = steps.most ? steps.most : INT_MAX;
    }
    if (take_table(device, "topology", &topology, sizeof topology, &status, err))
        STRATA_TRY(take_topology(device, &topology, err));
    if (take_table(device, "collectives", &collectives, sizeof collectives, &status, err)) {
        if (!device->is_core)
            return strata_bridge_broke(device, err,
                                       "it has the table \"collectives\", and no \"topology\" that says between which cores");
        device->exchanges = true;
        device->reached = collectives.reached;
        device->collectives =
            (strata_device_collectives){.sum_dtypes = collectives.sum_dtypes, .reached = collectives.reached ? reached : NULL};
    }
    if (take_table(device, "transfers", &transfers, sizeof transfers, &status, err))
        STRATA_TRY(strata_bridge_take_transfers(device, &transfers, err));
    if (take_table(device, "spaces", &spaces, sizeof spaces, &status, err)) STRATA_TRY(take_spaces(device, &spaces, err));
    return status;
}

int strata_bridge_most_runs(strata_device *device) {
    return ((plugin_device *)device)->most_runs;
}

const strata_topology *strata_bridge_topology(strata_device *device) {
    return ((plugin_device *)device)->is_core ? &((plugin_device *)device)->topology : NULL;
}

const strata_device_collectives *strata_bridge_collectives(strata_device *device) {
    return ((plugin_device *)device)->exchanges ? &((plugin_device *)device)->collectives : NULL;
}

void strata_bridge_spaces(strata_device *base, strata_device_features *features) {
    const plugin_device *device = (const plugin_device *)base;
    features->n_spaces = device->n_spaces;
    memcpy(features->spaces, device->spaces, sizeof features->spaces);
}
