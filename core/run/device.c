/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for devices of all backends. backends/devices.c finds and opens devices. */
#include "core/run/device.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/base/locale.h"

static const char *const class_names[] = {
    [STRATA_DEVICE_HOST] = "host",
    [STRATA_DEVICE_SOFTWARE_GPU] = "software-gpu",
    [STRATA_DEVICE_CPU] = "cpu",
    [STRATA_DEVICE_INTEGRATED_GPU] = "integrated-gpu",
    [STRATA_DEVICE_DISCRETE_GPU] = "discrete-gpu",
    [STRATA_DEVICE_ACCELERATOR] = "accelerator",
};

const char *strata_device_class_name(strata_device_class device_class) {
    size_t n = sizeof class_names / sizeof *class_names;
    return (size_t)device_class < n ? class_names[device_class] : "unknown";
}

strata_status strata_device_list_add(strata_device_list *list, const strata_device_info *row, strata_error *err) {
    if (!strata_grow(&list->rows, list->n, sizeof *row))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "devices: no memory for %d rows", list->n + 1);
    list->rows[list->n++] = *row;
    return STRATA_OK;
}

strata_status strata_device_list_add_hung(strata_device_list *list, const char *backend, double seconds, strata_error *err) {
    strata_device_info row = {0};
    snprintf(row.id, sizeof row.id, "%s", backend);
    snprintf(row.backend, sizeof row.backend, "%s", backend);
    strata_format(row.skipped, sizeof row.skipped,
                  "a driver hangs: it has not listed its devices for %.3g s; more time: --driver-seconds", seconds);
    return strata_device_list_add(list, &row, err);
}

static void adopt(void *user) {
    strata_device *device = user;
    device->api->adopt(device);
}

static strata_status check_fork(strata_device *device, strata_error *err) {
    strata_lock *lock = device->lock;
    if (!lock || strata_lock_is_own(lock)) return STRATA_OK;
    if (!device->api->adopt)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "device %s was opened before this process was forked, and its driver does not work in a child of "
                           "fork; start processes by spawn (Python: multiprocessing.get_context(\"spawn\")), or open devices "
                           "only after the fork",
                           device->info.id);
    if (!strata_lock_adopt(lock, adopt, device))
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "device %s was in use by another thread when this process was forked; start processes by spawn "
                           "(Python: multiprocessing.get_context(\"spawn\"))",
                           device->info.id);
    return STRATA_OK;
}

strata_status strata_device_enter(strata_device *device, strata_error *err) {
    STRATA_TRY(check_fork(device, err));
    if (device->lock) strata_lock_take(device->lock);
    return STRATA_OK;
}

void strata_device_leave(strata_device *device) {
    if (device->lock) strata_lock_release(device->lock);
}

strata_status strata_device_enter_run(strata_device *device, strata_error *err) {
    return device->runs_in_threads ? check_fork(device, err) : strata_device_enter(device, err);
}

void strata_device_leave_run(strata_device *device) {
    if (!device->runs_in_threads) strata_device_leave(device);
}

strata_support strata_device_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    strata_error ignored;
    if (strata_device_enter(device, &ignored)) {
        *reason = "the process was forked after the device was opened";
        return STRATA_SUPPORT_NO;
    }
    const strata_support support = device->api->supports(device, node, reason);
    strata_device_leave(device);
    return support;
}

static void run_close(void *call) {
    strata_device *device = *(strata_device **)call;
    device->api->close(device);
}

/* A driver that hangs was reported before, and gets less time. */
static void close_driver(strata_device *device) {
    static const double SECONDS_AFTER_A_HANG = 2;
    strata_device copy = {.on_warning = device->on_warning, .on_compile_user = device->on_compile_user, .info = device->info};
    const bool reported = device->given_up.status;
    const double limit = strata_driver_seconds();
    const strata_driver_call call = {.what = {copy.info.id, copy.info.driver, STRATA_DRIVER_CLOSE},
                                     .run = run_close,
                                     .call = &device,
                                     .bytes = sizeof device};
    strata_error why = {0};
    strata_driver_watch_stop(device);
    const strata_status status = strata_driver_call_within(
        &call, reported && limit > SECONDS_AFTER_A_HANG ? SECONDS_AFTER_A_HANG : limit, NULL, NULL, &why);
    if (status && !reported) strata_driver_report(&copy, &why);
}

void strata_device_close(strata_device *device) {
    if (!device) return;
    strata_lock *lock = device->lock;
    strata_device *referee = device->referee;
    if (check_fork(device, NULL)) return; /* what a driver has in a child of fork cannot be freed */
    if (device->has_driver)
        close_driver(device);
    else
        device->api->close(device);
    strata_device_close(referee);
    if (lock) strata_lock_finish(lock);
    free(lock);
}

const strata_device_info *strata_device_get_info(const strata_device *device) {
    return &device->info;
}

void strata_device_report_compile(const strata_device *device, bool tuning, int done, int total) {
    const strata_compile_progress progress = {.device = device->info.id, .tuning = tuning, .done = done, .total = total};
    if (device->on_compile) device->on_compile(&progress, device->on_compile_user);
}

void strata_device_warn(const strata_device *device, const char *format, ...) {
    char message[STRATA_ERROR_MESSAGE_BYTES];
    va_list arguments;
    if (!device->on_warning) return;
    va_start(arguments, format);
    strata_format_v(message, sizeof message, format, arguments);
    va_end(arguments);
    device->on_warning(message, device->on_compile_user);
}

const strata_topology *strata_device_get_topology(strata_device *device) {
    return device->api->topology ? device->api->topology(device) : NULL;
}

strata_status strata_device_check_range(const strata_device *device, int64_t size, int64_t offset, int64_t bytes,
                                        strata_error *err) {
    if (offset >= 0 && bytes >= 0 && offset <= size - bytes) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s: %lld bytes at %lld are outside a buffer of %lld", device->info.id,
                       (long long)bytes, (long long)offset, (long long)size);
}

int strata_device_most_runs(strata_device *device) {
    const strata_device_api *api = device->api;
    const int most = api->run_many && api->most_runs ? api->most_runs(device) : 1;
    return most > 1 ? most : 1;
}

const strata_device_collectives *strata_device_get_collectives(strata_device *device) {
    return device->api->collectives ? device->api->collectives(device) : NULL;
}

const strata_device_transfers *strata_device_get_transfers(strata_device *device) {
    return device->api->transfers ? device->api->transfers(device) : NULL;
}

strata_device_features strata_device_get_features(strata_device *device) {
    const strata_device_collectives *collectives = strata_device_get_collectives(device);
    const strata_device_transfers *transfers = strata_device_get_transfers(device);
    strata_device_features features = {.steps_per_call = strata_device_most_runs(device),
                                       .collectives = collectives != NULL,
                                       .sum_dtypes = collectives ? collectives->sum_dtypes : 0,
                                       .transfers = transfers != NULL,
                                       .device_copies = transfers && transfers->copy};
    if (device->api->spaces) device->api->spaces(device, &features);
    return features;
}

strata_device_counters strata_device_get_counters(const strata_device *device) {
    enum { N = sizeof(strata_device_counters) / sizeof(uint64_t) };
    union {
        strata_device_counters counters;
        uint64_t each[N];
    } now = {0};
    if (strata_device_enter((strata_device *)device, NULL)) return now.counters;
    /* `run` of some devices adds to counters without the lock. */
    for (int i = 0; i < N; i++) now.each[i] = __atomic_load_n((const uint64_t *)&device->counters + i, __ATOMIC_RELAXED);
    strata_device_leave((strata_device *)device);
    return now.counters;
}

strata_status strata_plugins_next(const char **at, bool is_pjrt, char **out_path, strata_error *err) {
    bool after_pjrt = false;
    *out_path = NULL;
    while (*at && **at) {
        const char *part = *at;
        const size_t n = strcspn(part, ":");
        const bool is_word = !after_pjrt && n == 4 && !strncmp(part, "pjrt", n),
                   wanted = n && !is_word && after_pjrt == is_pjrt;
        *at += n + (part[n] == ':');
        after_pjrt = is_word;
        if (!wanted) continue;
        *out_path = strndup(part, n);
        return *out_path ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "plugins: no host memory");
    }
    return STRATA_OK;
}
