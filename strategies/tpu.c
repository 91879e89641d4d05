/* SPDX-License-Identifier: Apache-2.0
 *
 * tpu: a replica on each core of one system, a TPU board or a similar one of another vendor. It trains as mirrored does, with
 * these differences: the devices are the cores of the system, they are ordered by their numbers in the system (in which their
 * collectives add up), and a single worker needs no communicator. Opening the cores initializes the system, closing them shuts
 * it down. Whether cores support collectives and several steps in one call is queried from the devices (core/run/device.h) for
 * every kind of strategy.
 *
 * An address names the system: "local", the name of a system or of its plugin, or the name of the TPU to which this host
 * belongs according to the environment (TPU_NAME). Hosts of a pod are workers, each with its own system: cluster/resolver/tpu.c
 * finds them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/run/device.h"
#include "strategies/kinds.h"

static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice, strata_error *err) {
    (void)err;
    for (int i = 0; i < n_rows; i++)
        if (!rows[i].skipped[0] && rows[i].device_class == STRATA_DEVICE_ACCELERATOR) choice->ids[choice->n++] = rows[i].id;
    return STRATA_OK;
}

const strata_strategy_kind strata_strategy_tpu = {
    .name = "tpu", .most_devices = -1, .mesh = STRATA_MESH_OF_SYSTEM, .choose = choose};

/* ---- finding the system ---- */

/* An empty environment variable counts as not set. */
static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool same_system(strata_device *a, strata_device *b) {
    const strata_topology *x = strata_device_get_topology(a), *y = strata_device_get_topology(b);
    return x && y && !strcmp(x->system, y->system) && !strcmp(a->info.backend, b->info.backend);
}

/* Whether device i is the first of its system. */
static bool is_first(const strata_strategy *strategy, int i) {
    for (int k = 0; k < i; k++)
        if (same_system(strategy->devices[k], strategy->devices[i])) return false;
    return strata_device_get_topology(strategy->devices[i]) != NULL;
}

static bool is_called(strata_device *device, const char *name) {
    const strata_topology *topology = strata_device_get_topology(device);
    return topology && (!strcmp(topology->system, name) || !strcmp(device->info.backend, name));
}

/* "board 0" of systolic, "board 1" of systolic */
static void list_systems(const strata_strategy *strategy, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < strategy->n_devices && used < size; i++)
        if (is_first(strategy, i))
            used +=
                (size_t)snprintf(text + used, size - used, "%s\"%s\" of %s", used ? ", " : "",
                                 strata_device_get_topology(strategy->devices[i])->system, strategy->devices[i]->info.backend);
}

static strata_status no_cores(strata_error *err) {
    const char *type = variable("TPU_ACCELERATOR_TYPE");
    return strata_fail(err, STRATA_UNAVAILABLE,
                       "strategy tpu: no device of this machine is a core of a TPU or of an accelerator like it%s%s; name its "
                       "plugin with --plugin FILE or in STRATA_PLUGINS; `strata devices` lists what there is",
                       type ? ", though TPU_ACCELERATOR_TYPE is " : "", type ? type : "");
}

/* Finds a device of the system that the address names; if it names none, of the system with the number local_rank. */
static strata_status find_system(const strata_strategy *strategy, const char *address, int local_rank, strata_device **out_core,
                                 strata_error *err) {
    const char *given = address ? address : variable("TPU_NAME"), *here = variable("TPU_NAME");
    int n = 0;
    if (address && strchr(address, ':'))
        return strata_fail(
            err, STRATA_UNSUPPORTED,
            "strategy tpu: the address \"%s\" is that of another host's TPU; Strata runs on the TPU's own hosts: "
            "start it on each of them (strata launch --hosts, or the pod's job), with the address local",
            address);
    for (int i = 0; i < strategy->n_devices; i++) n += is_first(strategy, i);
    if (!n) return no_cores(err);
    for (int i = 0; given && i < strategy->n_devices; i++)
        if (is_called(strategy->devices[i], given)) {
            *out_core = strategy->devices[i];
            return STRATA_OK;
        }
    if (address && strcmp(address, "local") != 0 && !(here && !strcmp(address, here))) {
        char systems[256];
        list_systems(strategy, systems, sizeof systems);
        return strata_fail(err, STRATA_UNAVAILABLE, "strategy tpu: there is no TPU \"%s\" here; there are: local, %s", address,
                           systems);
    }
    for (int i = 0, number = local_rank % n; i < strategy->n_devices; i++)
        if (is_first(strategy, i) && !number--) *out_core = strategy->devices[i];
    return STRATA_OK;
}

/* ---- choosing cores ---- */

static strata_status check_named(const strata_strategy *strategy, const char *address, strata_device *core, strata_error *err) {
    for (int i = 0; i < strategy->n_devices; i++) {
        strata_device *device = strategy->devices[i];
        const bool is_half = device->info.device_class == STRATA_DEVICE_CPU; /* of a CPU */
        if (is_half || !strata_device_get_topology(device))
            return strata_fail(err, STRATA_INVALID,
                               "strategy tpu: %s is no core of a TPU or of an accelerator like it; mirrored takes any devices",
                               device->info.id);
        if (!same_system(device, core))
            return strata_fail(err, STRATA_INVALID, "strategy tpu: %s is a core of \"%s\" of %s, not of \"%s\" of %s%s%s",
                               device->info.id, strata_device_get_topology(device)->system, device->info.backend,
                               strata_device_get_topology(core)->system, core->info.backend,
                               address ? ", which is the address " : " as the first one",
                               address ? address : "; mirrored takes any devices");
    }
    return STRATA_OK;
}

/* Closes the devices that are not of the core's system. */
static void keep_system(strata_strategy *strategy, strata_device *core) {
    int n = 0;
    for (int i = 0; i < strategy->n_devices; i++) {
        strata_device *device = strategy->devices[i];
        if (same_system(device, core))
            strategy->devices[n++] = device;
        else
            strata_device_close(device);
    }
    strategy->n_devices = strategy->n_replicas = n;
}

static int by_number(const void *a, const void *b) {
    const int x = strata_device_get_topology(*(strata_device *const *)a)->core,
              y = strata_device_get_topology(*(strata_device *const *)b)->core;
    return (x > y) - (x < y);
}

strata_status strata_tpu_arrange(strata_strategy *strategy, const strata_strategy_options *opts, bool named, char reason[128],
                                 strata_error *err) {
    strata_device *core = NULL;
    /* without an address, the devices that the user names determine the system */
    if (named && !opts->tpu_address && strata_device_get_topology(strategy->devices[0]))
        core = strategy->devices[0];
    else if (!named || opts->tpu_address)
        STRATA_TRY(find_system(strategy, opts->tpu_address, opts->local_rank, &core, err));
    if (named)
        STRATA_TRY(check_named(strategy, opts->tpu_address, core, err));
    else
        keep_system(strategy, core);
    qsort(strategy->devices, (size_t)strategy->n_devices, sizeof(*strategy->devices), by_number);
    const strata_topology *topology = strata_device_get_topology(strategy->devices[0]);
    snprintf(reason, 128, "%d of %d cores of %s", strategy->n_devices, topology->n_cores, topology->system);
    return STRATA_OK;
}

/* ---- collectives and steps of the cores ---- */

strata_status strata_strategy_find_cores(strata_strategy *strategy, strata_error *err) {
    strata_cores *cores = &strategy->cores;
    const bool alike = !strategy->update.at && strategy->n_devices == strategy->n_replicas && strategy->n_devices > 1;
    /* Other cross-device ops add in another order than the cores. With auto_split each core's own time is measured, and cores
     * that wait for each other have the same. */
    if (!alike || strategy->cross_device != strata_cross_device_host || strategy->auto_split) return STRATA_OK;
    uint32_t sum_dtypes = UINT32_MAX;
    for (int i = 0; i < strategy->n_devices; i++)
        if (!same_system(strategy->devices[i], strategy->devices[0]) ||
            (i && by_number(&strategy->devices[i - 1], &strategy->devices[i]) >= 0))
            return STRATA_OK;
    const strata_device_api *api = strategy->devices[0]->api;
    bool same_api = true; /* another kind of device may wrap some of them */
    for (int i = 0; i < strategy->n_devices; i++) same_api = same_api && strategy->devices[i]->api == api;
    if (api->connect && same_api) STRATA_TRY(api->connect(strategy->devices, strategy->n_devices, err));
    for (int i = 0; i < strategy->n_devices; i++) {
        const strata_device_collectives *own = strata_device_get_collectives(strategy->devices[i]);
        if (!own) return STRATA_OK;
        sum_dtypes &= own->sum_dtypes;
    }
    cores->numbers = calloc((size_t)strategy->n_devices, sizeof *cores->numbers);
    if (!cores->numbers)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d cores", strategy->n_devices);
    for (int i = 0; i < strategy->n_devices; i++) cores->numbers[i] = strata_device_get_topology(strategy->devices[i])->core;
    cores->n = strategy->n_devices;
    cores->first = strategy->workers.first_replica;
    cores->sum_dtypes = sum_dtypes;
    cores->has_workers = strata_strategy_has_workers(strategy);
    return STRATA_OK;
}
