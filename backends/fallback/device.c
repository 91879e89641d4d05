/* SPDX-License-Identifier: Apache-2.0
 *
 * The device with two sides: its buffers, their mirrors, and the copies between them (fallback.h defines the terms). */
#include "backends/fallback/fallback.h"
#include "backends/host/host.h"

void strata_fallback_count(fallback_device *device) {
    const strata_device_counters *host = &device->sides[FALLBACK_HOST]->counters;
    strata_device_counters *sum = &device->base.counters;
    *sum = device->sides[FALLBACK_DEVICE]->counters;
    sum->allocations += host->allocations;
    sum->compilations += host->compilations;
    sum->launches += host->launches;
    sum->host_nodes = device->host_nodes;
    sum->copies = device->copies;
    sum->copy_bytes = device->copy_bytes;
}

/* ---- buffers ---- */

strata_status strata_fallback_buffer_create(strata_device *base, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    fallback_device *device = (fallback_device *)base;
    strata_device *inner = device->sides[FALLBACK_DEVICE];
    STRATA_FREED strata_buffer *buffer = NULL;
    STRATA_TRY(STRATA_NEW(buffer, 1, err, "fallback: no host memory for a buffer"));
    *buffer = (strata_buffer){.device = device, .bytes = bytes};
    const strata_status status = inner->api->buffer_create(inner, bytes, &buffer->sides[FALLBACK_DEVICE], err);
    strata_fallback_count(device);
    if (!status) *out_buffer = strata_released(&buffer);
    return status;
}

void strata_fallback_buffer_destroy(strata_device *base, strata_buffer *buffer) {
    if (!buffer) return;
    fallback_device *device = (fallback_device *)base;
    const strata_status ignored = strata_fallback_await_copies(device, NULL); /* a lost device does not copy any more */
    (void)ignored;
    for (int side = 0; side < 2; side++)
        if (buffer->sides[side]) device->sides[side]->api->buffer_destroy(device->sides[side], buffer->sides[side]);
    free(buffer->freshness.intervals);
    free(buffer);
    strata_fallback_count(device);
}

strata_status strata_fallback_mirror(strata_buffer *buffer, strata_error *err) {
    strata_device *host = buffer->device->sides[FALLBACK_HOST];
    if (buffer->sides[FALLBACK_HOST]) return STRATA_OK;
    STRATA_TRY(host->api->buffer_create(host, buffer->bytes, &buffer->sides[FALLBACK_HOST], err));
    return strata_fallback_written(&buffer->freshness, 0, buffer->bytes, FALLBACK_DEVICE, err);
}

static strata_status copy(void *user, int64_t begin, int64_t end, fallback_side to, strata_error *err) {
    strata_buffer *buffer = user, *own = buffer->sides[FALLBACK_DEVICE];
    fallback_device *device = buffer->device;
    strata_device *inner = device->sides[FALLBACK_DEVICE];
    char *mirror = strata_host_buffer_memory(buffer->sides[FALLBACK_HOST]);
    device->copies++;
    device->copy_bytes += (uint64_t)(end - begin);
    const strata_device_transfers *transfers = strata_device_get_transfers(inner);
    if (transfers)
        return to == FALLBACK_HOST
                   ? transfers->download(inner, own, begin, mirror + begin, end - begin, &device->newest_copy, err)
                   : transfers->upload(inner, own, begin, mirror + begin, end - begin, &device->newest_copy, err);
    return to == FALLBACK_HOST ? inner->api->download(inner, own, begin, mirror + begin, end - begin, err)
                               : inner->api->upload(inner, own, begin, mirror + begin, end - begin, err);
}

strata_status strata_fallback_await_copies(fallback_device *device, strata_error *err) {
    strata_device *inner = device->sides[FALLBACK_DEVICE];
    const uint64_t ticket = device->newest_copy;
    device->newest_copy = 0;
    return ticket ? inner->api->wait(inner, ticket, err) : STRATA_OK;
}

strata_status strata_fallback_buffer_needed(strata_buffer *buffer, int64_t begin, int64_t end, fallback_side on,
                                            strata_error *err) {
    if (!buffer->sides[FALLBACK_HOST]) return STRATA_OK;
    return strata_fallback_needed(&buffer->freshness, begin, end, on, copy, buffer, err);
}

strata_status strata_fallback_buffer_written(strata_buffer *buffer, int64_t begin, int64_t end, fallback_side on,
                                             strata_error *err) {
    if (!buffer->sides[FALLBACK_HOST]) return STRATA_OK;
    return strata_fallback_written(&buffer->freshness, begin, end, on, err);
}

static strata_status fallback_upload(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source,
                                     int64_t bytes, strata_error *err) {
    strata_device *inner = ((fallback_device *)base)->sides[FALLBACK_DEVICE];
    STRATA_TRY(inner->api->upload(inner, buffer->sides[FALLBACK_DEVICE], offset, source, bytes, err));
    strata_fallback_count(buffer->device);
    return strata_fallback_buffer_written(buffer, offset, offset + bytes, FALLBACK_DEVICE, err);
}

static strata_status fallback_download(strata_device *base, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                       strata_error *err) {
    strata_device *inner = ((fallback_device *)base)->sides[FALLBACK_DEVICE];
    strata_status status = STRATA_OK;
    if (offset >= 0 && bytes >= 0 && offset <= buffer->bytes - bytes) /* otherwise the device reports the error */
        status = strata_fallback_buffer_needed(buffer, offset, offset + bytes, FALLBACK_DEVICE, err);
    if (!status) status = inner->api->download(inner, buffer->sides[FALLBACK_DEVICE], offset, target, bytes, err);
    strata_fallback_count(buffer->device);
    return status;
}

/* ---- the rest of the table ---- */

static strata_support fallback_supports(strata_device *base, const strata_tensor *node, const char **reason) {
    const fallback_device *device = (fallback_device *)base;
    strata_device *inner = device->sides[FALLBACK_DEVICE], *host = device->sides[FALLBACK_HOST];
    const char *ignored = NULL;
    const strata_support support = device->distrusted ? STRATA_SUPPORT_NO : inner->api->supports(inner, node, reason);
    if (support != STRATA_SUPPORT_NO) return support;
    return host->api->supports(host, node, &ignored) == STRATA_SUPPORT_NO ? STRATA_SUPPORT_NO : STRATA_SUPPORT_HOST;
}

static strata_status fallback_wait(strata_device *base, uint64_t ticket, strata_error *err) {
    fallback_device *device = (fallback_device *)base;
    strata_device *inner = device->sides[FALLBACK_DEVICE];
    const bool known = ticket + FALLBACK_TICKETS > device->last_ticket;
    const uint64_t own = device->device_tickets[(known ? ticket : device->last_ticket + 1) % FALLBACK_TICKETS];
    const strata_status status = own ? inner->api->wait(inner, own, err) : STRATA_OK;
    strata_fallback_count(device);
    return status;
}

/* ---- functions for cores: those of the device proper, unchanged ---- */

static int fallback_most_runs(strata_device *base) {
    return strata_device_most_runs(((fallback_device *)base)->sides[FALLBACK_DEVICE]);
}

static const strata_topology *fallback_topology(strata_device *base) {
    return strata_device_get_topology(((fallback_device *)base)->sides[FALLBACK_DEVICE]);
}

static uint64_t fallback_reached(strata_device *base) {
    strata_device *inner = ((fallback_device *)base)->sides[FALLBACK_DEVICE];
    return inner->api->collectives(inner)->reached(inner);
}

static const strata_device_collectives *fallback_collectives(strata_device *base) {
    fallback_device *device = (fallback_device *)base;
    strata_device *inner = device->sides[FALLBACK_DEVICE];
    const strata_device_collectives *own = strata_device_get_collectives(inner);
    if (!own) return NULL;
    device->collectives = *own;
    /* it is called with this device, not with the inner one */
    if (own->reached) device->collectives.reached = fallback_reached;
    device->collectives.take_seconds = NULL;
    return &device->collectives;
}

static void fallback_abandon(strata_device *base, const strata_error *why) {
    strata_device *inner = ((fallback_device *)base)->sides[FALLBACK_DEVICE];
    if (inner->api->abandon) inner->api->abandon(inner, why);
}

static void fallback_distrust(strata_device *base, const strata_error *why) {
    fallback_device *device = (fallback_device *)base;
    if (device->distrusted) return;
    device->distrusted = true;
    base->n_distrusted = ++device->sides[FALLBACK_DEVICE]->n_distrusted;
    strata_device_warn(device->sides[FALLBACK_DEVICE], "%s; the host runs all nodes", why->message);
}

static void fallback_close(strata_device *base) {
    fallback_device *device = (fallback_device *)base;
    for (int side = 0; side < 2; side++) strata_device_close(device->sides[side]);
    free(device);
}

static const strata_device_api fallback_api = {
    .close = fallback_close,
    .buffer_create = strata_fallback_buffer_create,
    .buffer_destroy = strata_fallback_buffer_destroy,
    .upload = fallback_upload,
    .download = fallback_download,
    .supports = fallback_supports,
    .compile = strata_fallback_compile,
    .program_destroy = strata_fallback_program_destroy,
    .program_input = strata_fallback_program_input,
    .program_output = strata_fallback_program_output,
    .program_cost = strata_fallback_program_cost,
    .run = strata_fallback_run,
    .wait = fallback_wait,
    .most_runs = fallback_most_runs,
    .run_many = strata_fallback_run_many,
    .topology = fallback_topology,
    .collectives = fallback_collectives,
    .abandon = fallback_abandon,
    .check = strata_fallback_check,
    .distrust = fallback_distrust,
};

strata_status strata_fallback_create(strata_device *inner, strata_device **out_device, strata_error *err) {
    STRATA_FREED fallback_device *device = NULL;
    STRATA_TRY(STRATA_NEW(device, 1, err, "fallback: no host memory for the device"));
    STRATA_TRY(strata_host_open(&device->sides[FALLBACK_HOST], err));
    device->sides[FALLBACK_DEVICE] = inner;
    device->base = (strata_device){
        .api = &fallback_api, .info = inner->info, .runs_at_once = inner->runs_at_once, .product_dtype = inner->product_dtype};
    strata_fallback_count(device);
    *out_device = strata_released(&device); /* its first member is the base */
    return STRATA_OK;
}
