/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies by name: which devices, opening and closing them, shares of a batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "strategies/kinds.h"

static const strata_strategy_kind *const kinds[] = {
#define STRATA_STRATEGY(name) &strata_strategy_##name,
#include "strategies/strategies.def"
#undef STRATA_STRATEGY
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

const char *const strata_strategy_names[] = {
#define STRATA_STRATEGY(name) #name,
#include "strategies/strategies.def"
#undef STRATA_STRATEGY
    NULL};

static strata_status find_kind(const char *name, const strata_strategy_kind **out_kind, strata_error *err) {
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(kinds[i]->name, name)) {
            *out_kind = kinds[i];
            return STRATA_OK;
        }
    const char *near = strata_nearest_name(name, strata_strategy_names, N_KINDS);
    if (near) return strata_fail(err, STRATA_INVALID, "there is no strategy \"%s\"; did you mean \"%s\"?", name, near);
    return strata_fail(err, STRATA_INVALID, "there is no strategy \"%s\"; there are: default, one_device, mirrored, auto",
                       name);
}

/* ---- devices ---- */

static strata_status open_one(strata_strategy *strategy, const char *which, const strata_device_options *opts,
                              strata_error *err) {
    strata_device *device = NULL;
    STRATA_TRY(strata_device_open(which, opts, &device, err));
    const char *id = strata_device_get_info(device)->id;
    for (int i = 0; i < strategy->n_replicas; i++) {
        if (strcmp(strata_device_get_info(strategy->devices[i])->id, id)) continue;
        strata_status status =
            strata_fail(err, STRATA_INVALID, "strategy %s: device %s is named twice (\"%s\")", strategy->name, id, which);
        strata_device_close(device);
        return status;
    }
    strategy->devices[strategy->n_replicas++] = device;
    return STRATA_OK;
}

static strata_status open_all(strata_strategy *strategy, const char *const *which, int n, const strata_device_options *opts,
                              strata_error *err) {
    strategy->devices = calloc((size_t)n + 1, sizeof(*strategy->devices));
    if (!strategy->devices) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d devices", n);
    for (int i = 0; i < n; i++) STRATA_TRY(open_one(strategy, which[i], opts, err));
    return STRATA_OK;
}

static strata_status open_chosen(strata_strategy *strategy, const strata_device_choice *choice,
                                 const strata_device_options *opts, strata_error *err) {
    const char **ids = calloc((size_t)choice->n + 1, sizeof(*ids));
    if (!ids) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d devices", choice->n);
    for (int i = 0; i < choice->n; i++) ids[i] = choice->ids[i];
    strata_status status = open_all(strategy, ids, choice->n, opts, err);
    free(ids);
    return status;
}

/* The devices that the kind chooses by itself; strategy->name becomes what it stands for. */
static strata_status choose(strata_strategy *strategy, const strata_strategy_kind *kind, const strata_device_options *opts,
                            char reason[128], strata_error *err) {
    strata_device_info *rows = NULL;
    int n_rows = 0;
    strata_device_choice choice = {0};
    STRATA_TRY(strata_devices_list(&rows, &n_rows, err));
    strata_status status = kind->choose(rows, n_rows, &choice, &kind, err);
    strategy->name = kind->name;
    if (!status) status = open_chosen(strategy, &choice, opts, err);
    memcpy(reason, choice.reason, sizeof choice.reason);
    free(choice.ids);
    strata_devices_free(rows);
    return status;
}

static void describe(strata_strategy *strategy, const char *reason) {
    size_t used = (size_t)snprintf(strategy->choice, sizeof strategy->choice, "%s on ", strategy->name);
    for (int i = 0; i < strategy->n_replicas && used < sizeof strategy->choice; i++)
        used += (size_t)snprintf(strategy->choice + used, sizeof strategy->choice - used, "%s%s", i ? ", " : "",
                                 strata_device_get_info(strategy->devices[i])->id);
    if (used < sizeof strategy->choice) snprintf(strategy->choice + used, sizeof strategy->choice - used, ": %s", reason);
}

static strata_status create(strata_strategy *strategy, const strata_strategy_kind *kind, const strata_strategy_options *opts,
                            strata_error *err) {
    char reason[128] = "as asked for";
    const int n = opts->devices ? opts->n_devices : 0;
    strategy->name = kind->name;
    if (kind->most_devices >= 0 && n > kind->most_devices)
        return strata_fail(err, STRATA_INVALID, "strategy %s takes %s; %d devices are named", kind->name,
                           kind->most_devices ? "one device" : "no device by name", n);
    if (n && kind == &strata_strategy_auto)
        strategy->name = n > 1 ? strata_strategy_mirrored.name : strata_strategy_one_device.name;
    if (n)
        STRATA_TRY(open_all(strategy, opts->devices, n, opts->device_options, err));
    else
        STRATA_TRY(choose(strategy, kind, opts->device_options, reason, err));
    describe(strategy, reason);
    return STRATA_OK;
}

strata_status strata_strategy_create(const char *name, const strata_strategy_options *opts, strata_strategy **out_strategy,
                                     strata_error *err) {
    static const strata_strategy_options defaults = {0};
    const strata_strategy_kind *kind = NULL;
    STRATA_TRY(find_kind(name ? name : "default", &kind, err));
    strata_strategy *strategy = calloc(1, sizeof *strategy);
    if (!strategy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory");
    strata_status status = create(strategy, kind, opts ? opts : &defaults, err);
    if (status)
        strata_strategy_destroy(strategy);
    else
        *out_strategy = strategy;
    return status;
}

strata_status strata_strategy_from_devices(strata_device *const *devices, int n_devices, strata_strategy **out_strategy,
                                           strata_error *err) {
    strata_strategy *strategy = n_devices > 0 ? calloc(1, sizeof *strategy) : NULL;
    if (strategy) strategy->devices = calloc((size_t)n_devices, sizeof(*strategy->devices));
    if (!strategy || !strategy->devices) {
        free(strategy);
        for (int i = 0; i < n_devices; i++) strata_device_close(devices[i]);
        if (n_devices < 1) return strata_fail(err, STRATA_INVALID, "strategy: %d devices; it needs at least one", n_devices);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d devices", n_devices);
    }
    strategy->name = strata_strategy_mirrored.name;
    memcpy(strategy->devices, devices, (size_t)n_devices * sizeof(*devices));
    strategy->n_replicas = n_devices;
    describe(strategy, "given");
    *out_strategy = strategy;
    return STRATA_OK;
}

void strata_strategy_destroy(strata_strategy *strategy) {
    if (!strategy) return;
    for (int i = 0; i < strategy->n_replicas; i++) strata_device_close(strategy->devices[i]);
    free(strategy->devices);
    free(strategy);
}

/* ---- what it is ---- */

const char *strata_strategy_name(const strata_strategy *strategy) {
    return strategy->name;
}

const char *strata_strategy_choice(const strata_strategy *strategy) {
    return strategy->choice;
}

int strata_strategy_num_replicas_in_sync(const strata_strategy *strategy) {
    return strategy->n_replicas;
}

strata_device *strata_strategy_device(const strata_strategy *strategy, int replica) {
    return replica >= 0 && replica < strategy->n_replicas ? strategy->devices[replica] : NULL;
}

void strata_strategy_share(const strata_strategy *strategy, int64_t global_batch, int replica, int64_t *out_first,
                           int64_t *out_n) {
    const int64_t n = strategy->n_replicas, share = global_batch / n, larger = global_batch % n;
    *out_n = share + (replica < larger);
    *out_first = replica * share + (replica < larger ? replica : larger);
}
