/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies from and to a plugin's buffers. A device with the table "transfers" copies asynchronously, so a copy that never ends
 * is detected by the wait for its ticket, like a run. Other devices copy by upload and download of their calls. The runs
 * before these are waited for first, so that a run that hangs is not taken for a copy that hangs. */
#include "backends/plugin/plugin.h"

/* The most tickets of copies, in addition to those of runs. */
enum { MOST_COPIES = 16 };

static strata_status check_range(const plugin_device *device, const strata_buffer *buffer, int64_t offset, int64_t bytes,
                                 strata_error *err) {
    STRATA_TRY(strata_device_check_range(&device->base, buffer->bytes, offset, bytes, err));
    return strata_bridge_check_lost(device, err);
}

/* ---- asynchronous copies ---- */

/* Exactly one of source and target is not NULL. */
static strata_status begin_copy(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source, void *target,
                                int64_t bytes, uint64_t *out_ticket, strata_error *err) {
    plugin_device *device = (plugin_device *)base;
    const strata_plugin_transfers *calls = &device->transfers;
    const char *call = source ? "upload" : "download";
    strata_plugin_error message = {.size = sizeof message};
    uint64_t ticket = 0;
    STRATA_TRY(check_range(device, buffer, offset, bytes, err));
    STRATA_TRY(strata_bridge_make_room(device, err));
    STRATA_DRIVER_CALL(base, COPY);
    const strata_plugin_status status =
        source ? calls->upload(device->device, buffer->buffer, offset, source, bytes, &ticket, &message)
               : calls->download(device->device, buffer->buffer, offset, target, bytes, &ticket, &message);
    STRATA_TRY(strata_bridge_result(device, call, status, &message, err));
    STRATA_TRY(strata_bridge_submitted(device, call, ticket, err));
    *(source ? &base->counters.upload_bytes : &base->counters.download_bytes) += (uint64_t)bytes;
    *out_ticket = ticket;
    return STRATA_OK;
}

static strata_status begin_upload(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                                  uint64_t *out_ticket, strata_error *err) {
    return begin_copy(base, buffer, offset, source, NULL, bytes, out_ticket, err);
}

static strata_status begin_download(strata_device *base, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                    uint64_t *out_ticket, strata_error *err) {
    return begin_copy(base, buffer, offset, NULL, target, bytes, out_ticket, err);
}

static strata_status copy_between(strata_device *to_base, strata_buffer *to_buffer, int64_t to_offset, strata_device *from_base,
                                  strata_buffer *from_buffer, int64_t from_offset, int64_t bytes, strata_error *err) {
    plugin_device *to = (plugin_device *)to_base, *from = (plugin_device *)from_base;
    strata_plugin_error message = {.size = sizeof message};
    uint64_t ticket = 0;
    STRATA_TRY(check_range(to, to_buffer, to_offset, bytes, err));
    STRATA_TRY(check_range(from, from_buffer, from_offset, bytes, err));
    STRATA_TRY(strata_bridge_await(from, from->last_ticket, 0, err));
    STRATA_TRY(strata_bridge_make_room(to, err));
    STRATA_DRIVER_CALL(to_base, COPY);
    STRATA_TRY(strata_bridge_result(to, "copy",
                                    to->transfers.copy(to->device, to_buffer->buffer, to_offset, from->device,
                                                       from_buffer->buffer, from_offset, bytes, &ticket, &message),
                                    &message, err));
    STRATA_TRY(strata_bridge_submitted(to, "copy", ticket, err));
    STRATA_TRY(strata_bridge_await(to, ticket, 0, err));
    to_base->counters.device_copy_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

strata_status strata_bridge_take_transfers(plugin_device *device, const strata_plugin_transfers *given, strata_error *err) {
    if (!given->upload || !given->download)
        return strata_bridge_broke(device, err, "its table \"transfers\" has NULL in the required slot %s",
                                   given->upload ? "download" : "upload");
    device->transfers = *given;
    device->copies = (strata_device_transfers){
        .upload = begin_upload, .download = begin_download, .copy = given->copy ? copy_between : NULL};
    return strata_bridge_reserve_tickets(device, MOST_COPIES, err);
}

const strata_device_transfers *strata_bridge_transfers(strata_device *base) {
    return ((plugin_device *)base)->copies.upload ? &((plugin_device *)base)->copies : NULL;
}

/* ---- synchronous copies ---- */

static strata_status copy_now(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source, void *target,
                              int64_t bytes, strata_error *err) {
    plugin_device *device = (plugin_device *)base;
    strata_plugin_error message = {.size = sizeof message};
    uint64_t ticket = device->last_ticket;
    STRATA_TRY(check_range(device, buffer, offset, bytes, err));
    if (bytes && device->copies.upload) STRATA_TRY(begin_copy(base, buffer, offset, source, target, bytes, &ticket, err));
    STRATA_TRY(strata_bridge_await(device, ticket, 0, err));
    if (!bytes || device->copies.upload) return STRATA_OK;
    STRATA_DRIVER_CALL(base, COPY);
    const strata_plugin_status status =
        source ? device->calls.upload(device->device, buffer->buffer, offset, source, bytes, &message)
               : device->calls.download(device->device, buffer->buffer, offset, target, bytes, &message);
    STRATA_TRY(strata_bridge_result(device, source ? "upload" : "download", status, &message, err));
    *(source ? &base->counters.upload_bytes : &base->counters.download_bytes) += (uint64_t)bytes;
    return STRATA_OK;
}

strata_status strata_bridge_upload(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source,
                                   int64_t bytes, strata_error *err) {
    return copy_now(base, buffer, offset, source, NULL, bytes, err);
}

strata_status strata_bridge_download(strata_device *base, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                     strata_error *err) {
    return copy_now(base, buffer, offset, NULL, target, bytes, err);
}
