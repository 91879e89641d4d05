/* SPDX-License-Identifier: Apache-2.0
 *
 * A device of a plugin: implements Strata's device table by the plugin's calls. Every result of the plugin is checked here, and
 * calls are counted. A device that was lost stays lost, and no wait is longer than stall_seconds. */
#include <math.h>
#include <stdio.h>

#include "backends/plugin/plugin.h"

static const double DEFAULT_STALL_SECONDS = 600;

/* ---- results of the plugin's calls ---- */

strata_status strata_bridge_check_lost(const plugin_device *device, strata_error *err) {
    const strata_error *gone = &device->base.given_up;
    if (gone->status && !device->lost) return strata_fail(err, gone->status, "%s", gone->message);
    if (!device->lost) return STRATA_OK;
    return strata_fail(err, STRATA_DEVICE_LOST, "%s was lost before: %s", device->base.info.id, device->why.message);
}

static strata_status lose(plugin_device *device, strata_status status, strata_error *err) {
    if (!device->lost) device->why = *err;
    device->lost = true;
    if (status == STRATA_TIMEOUT) device->base.given_up = *err; /* a run is still active: see strata_bridge_is_gone */
    return status;
}

bool strata_bridge_is_gone(const plugin_device *device) {
    return device->base.given_up.status != STRATA_OK;
}

strata_status strata_bridge_result(plugin_device *device, const char *call, strata_plugin_status status,
                                   strata_plugin_error *message, strata_error *err) {
    strata_error own = {0};
    if (status == STRATA_PLUGIN_OK) return STRATA_OK;
    message->message[sizeof message->message - 1] = 0;
    const strata_status known = strata_bridge_status(status);
    if (known == STRATA_INTERNAL && status != STRATA_PLUGIN_INTERNAL)
        strata_fail(&own, known, "%s: the plugin's %s returned the status %d, which plugin.h does not have: %.800s",
                    device->base.info.id, call, (int)status, message->message);
    else if (message->message[0])
        strata_fail(&own, known, "%s: %s", device->base.info.id, message->message);
    else
        strata_fail(&own, known, "%s: the plugin's %s failed (%s) and gives no reason", device->base.info.id, call,
                    strata_status_name(known));
    if (err) *err = own;
    return own.status == STRATA_DEVICE_LOST ? lose(device, own.status, &own) : own.status;
}

strata_status strata_bridge_broke(const plugin_device *device, strata_error *err, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    strata_fail_v(err, STRATA_INTERNAL, format, arguments);
    va_end(arguments);
    return strata_fail_in(err, STRATA_INTERNAL, "%s: its plugin breaks a rule of plugin.h", device->base.info.id);
}

/* ---- memory ---- */

static strata_status create_buffer(strata_device *base, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    plugin_device *device = (plugin_device *)base;
    STRATA_TRY(strata_bridge_check_lost(device, err));
    STRATA_FREED strata_buffer *buffer = NULL;
    STRATA_TRY(STRATA_NEW(buffer, 1, err, "%s: no host memory for a buffer", base->info.id));
    strata_plugin_error message = {.size = sizeof message};
    STRATA_DRIVER_CALL(base, ALLOCATE);
    STRATA_TRY(strata_bridge_result(
        device, "buffer_create", device->calls.buffer_create(device->device, bytes, &buffer->buffer, &message), &message, err));
    if (!buffer->buffer) return strata_bridge_broke(device, err, "buffer_create succeeded, and its buffer is NULL");
    buffer->bytes = bytes;
    base->counters.allocations++;
    base->counters.allocated_bytes += (uint64_t)bytes;
    *out_buffer = strata_released(&buffer);
    return STRATA_OK;
}

static void destroy_buffer(strata_device *base, strata_buffer *buffer) {
    plugin_device *device = (plugin_device *)base;
    if (!buffer) return;
    /* A run that has not ended may use the buffer. */
    const bool used = device->lost && device->n_pending;
    STRATA_DRIVER_CALL(base, FREE);
    if (!strata_bridge_is_gone(device) && !used) device->calls.buffer_destroy(device->device, buffer->buffer);
    base->counters.allocated_bytes -= (uint64_t)buffer->bytes;
    free(buffer);
}

/* ---- waiting ---- */

static strata_status await_oldest(plugin_device *device, strata_error *err) {
    strata_plugin_error message = {.size = sizeof message};
    const double runs = device->longest_call > 1 ? device->longest_call : 1;
    const double seconds =
        device->stall_seconds * runs < PLUGIN_MOST_STALL_SECONDS ? device->stall_seconds * runs : PLUGIN_MOST_STALL_SECONDS;
    STRATA_DRIVER_RUNS(&device->base, WAIT, (int)runs);
    const strata_plugin_status answer =
        device->calls.wait(device->device, device->pending[0], (int64_t)(seconds * 1e9), &message);
    if (answer == STRATA_PLUGIN_TIMEOUT) {
        strata_error own = {0};
        strata_fail(&own, STRATA_TIMEOUT,
                    "%s: a run has not ended for %.3g s (stall_seconds); the device counts as lost. Allow more time: "
                    "--stall-seconds, strata_device_options.stall_seconds",
                    device->base.info.id, seconds);
        if (err) *err = own;
        return lose(device, STRATA_TIMEOUT, &own);
    }
    STRATA_TRY(strata_bridge_result(device, "wait", answer, &message, err));
    device->n_pending--;
    for (int i = 0; i < device->n_pending; i++) device->pending[i] = device->pending[i + 1];
    return STRATA_OK;
}

strata_status strata_bridge_await(plugin_device *device, uint64_t ticket, int most, strata_error *err) {
    while (device->n_pending > most && device->pending[0] <= ticket) STRATA_TRY(await_oldest(device, err));
    return STRATA_OK;
}

strata_status strata_bridge_reserve_tickets(plugin_device *device, int n, strata_error *err) {
    const int wanted = device->n_slots + n;
    if (wanted > device->capacity) {
        uint64_t *pending = realloc(device->pending, (size_t)wanted * sizeof *pending);
        if (!pending)
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %d tickets", device->base.info.id, wanted);
        device->pending = pending;
        device->capacity = wanted;
    }
    device->n_slots = wanted;
    return STRATA_OK;
}

strata_status strata_bridge_make_room(plugin_device *device, strata_error *err) {
    return strata_bridge_await(device, device->last_ticket, device->capacity - 1, err);
}

strata_status strata_bridge_submitted(plugin_device *device, const char *call, uint64_t ticket, strata_error *err) {
    if (ticket <= device->last_ticket)
        return strata_bridge_broke(device, err, "%s gave the ticket %llu after %llu; tickets must grow", call,
                                   (unsigned long long)ticket, (unsigned long long)device->last_ticket);
    device->last_ticket = ticket;
    device->pending[device->n_pending++] = ticket;
    return STRATA_OK;
}

static strata_status wait_for(strata_device *base, uint64_t ticket, strata_error *err) {
    plugin_device *device = (plugin_device *)base;
    STRATA_TRY(strata_bridge_check_lost(device, err));
    if (ticket > device->last_ticket)
        return strata_fail(err, STRATA_INVALID, "%s: ticket %llu was never given out; the last is %llu", base->info.id,
                           (unsigned long long)ticket, (unsigned long long)device->last_ticket);
    base->counters.waits++;
    return strata_bridge_await(device, ticket, 0, err);
}

/* ---- opening and closing ---- */

static void close_device(strata_device *base) {
    plugin_device *device = (plugin_device *)base;
    if (device->device && !strata_bridge_is_gone(device)) device->calls.close(device->device);
    free(device->pending);
    free(device);
}

static void abandon(strata_device *base, const strata_error *why) {
    strata_error own = *why;
    lose((plugin_device *)base, why->status, &own);
}

static const strata_device_api plugin_api = {
    .close = close_device,
    .buffer_create = create_buffer,
    .buffer_destroy = destroy_buffer,
    .upload = strata_bridge_upload,
    .download = strata_bridge_download,
    .supports = strata_bridge_supports,
    .compile = strata_bridge_compile,
    .program_destroy = strata_bridge_program_destroy,
    .program_input = strata_bridge_program_input,
    .program_output = strata_bridge_program_output,
    .program_cost = strata_bridge_program_cost,
    .set_trace = strata_bridge_set_trace,
    .run = strata_bridge_run,
    .wait = wait_for,
    .most_runs = strata_bridge_most_runs,
    .run_many = strata_bridge_run_many,
    .topology = strata_bridge_topology,
    .collectives = strata_bridge_collectives,
    .transfers = strata_bridge_transfers,
    .spaces = strata_bridge_spaces,
    .abandon = abandon,
};

/* Checks that the plugin has every required call. */
static strata_status check_calls(const plugin_device *device, size_t given_bytes, strata_error *err) {
    const strata_plugin_device_calls *calls = &device->calls;
    const struct {
        const char *name;
        bool there;
    } required[] = {{"close", calls->close != NULL},
                    {"buffer_create", calls->buffer_create != NULL},
                    {"buffer_destroy", calls->buffer_destroy != NULL},
                    {"upload", calls->upload != NULL},
                    {"download", calls->download != NULL},
                    {"supports", calls->supports != NULL},
                    {"compile", calls->compile != NULL},
                    {"program_destroy", calls->program_destroy != NULL},
                    {"program_input", calls->program_input != NULL},
                    {"program_output", calls->program_output != NULL},
                    {"run", calls->run != NULL},
                    {"wait", calls->wait != NULL}};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!required[i].there)
            return strata_bridge_broke(
                device, err,
                "its strata_plugin_device_calls (size %zu; version 1.0 has %zu bytes) has NULL in the required "
                "slot %s",
                given_bytes, offsetof(strata_plugin_device_calls, table) + sizeof calls->table, required[i].name);
    return STRATA_OK;
}

static strata_status open_plugin_device(plugin_device *device, const plugin *loaded, int index, strata_error *err) {
    const strata_plugin_device_calls *calls = NULL;
    strata_plugin_error message = {.size = sizeof message};
    strata_plugin_device *opened = NULL;
    STRATA_TRY(strata_bridge_result(device, "device_open", loaded->calls.device_open(index, &opened, &calls, &message),
                                    &message, err));
    if (!opened || !calls)
        return strata_bridge_broke(device, err, "device_open succeeded, and its %s NULL", opened ? "calls are" : "device is");
    if (calls->size < sizeof calls->size) return strata_bridge_broke(device, err, "its calls say size %zu", calls->size);
    strata_bridge_copy_struct(&device->calls, sizeof device->calls, calls);
    const strata_status status = check_calls(device, calls->size, err);
    if (!status)
        device->device = opened;
    else if (device->calls.close)
        device->calls.close(opened);
    return status ? status : strata_bridge_read_tables(device, err);
}

strata_status strata_bridge_device_open(const plugin *loaded, const strata_device_info *info, int index,
                                        const strata_device_options *opts, strata_device **out_device, strata_error *err) {
    strata_plugin_device_info given;
    strata_bridge_copy_struct(&given, sizeof given,
                              loaded->calls.device_info(index)); /* strata_bridge_device_row has checked it */
    double stall = opts->stall_seconds != 0   ? opts->stall_seconds
                   : given.stall_seconds != 0 ? given.stall_seconds
                                              : DEFAULT_STALL_SECONDS;
    if (!(stall >= PLUGIN_LEAST_STALL_SECONDS && stall <= PLUGIN_MOST_STALL_SECONDS))
        return strata_fail(err, STRATA_INVALID, "%s: stall_seconds is %g; it must be %g to %g", info->id, stall,
                           PLUGIN_LEAST_STALL_SECONDS, PLUGIN_MOST_STALL_SECONDS);
    plugin_device *device = NULL;
    STRATA_TRY(STRATA_NEW(device, 1, err, "%s: no host memory for the device", info->id));
    device->base =
        (strata_device){.api = &plugin_api, .info = *info, .plans_temporaries = !given.wants_arenas, .keeps_constants = true};
    device->stall_seconds = device->base.stall_seconds = stall;
    device->base.product_dtype = (strata_dtype)given.product_dtype; /* the enums' values are equal */
    const strata_status status = open_plugin_device(device, loaded, index, err);
    if (status)
        close_device(&device->base);
    else
        *out_device = &device->base;
    return status;
}
