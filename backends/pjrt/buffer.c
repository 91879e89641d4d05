/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory. A strata_buffer is host memory. The parts of it that programs read and write are *regions*: each is a typed
 * buffer of the plugin that stays on the device between runs. Regions that overlap, such as a pack and a part of it that
 * one program reads, have the content of the host memory: what is written drops all others. */
#include <inttypes.h>

#include "backends/pjrt/pjrt.h"

/* ---- transfers ---- */

static int type_of(strata_dtype dtype) {
    static const int types[STRATA_DTYPE_COUNT] = {
        [STRATA_DTYPE_F32] = PJRT_TYPE_F32,  [STRATA_DTYPE_F16] = PJRT_TYPE_F16, [STRATA_DTYPE_BF16] = PJRT_TYPE_BF16,
        [STRATA_DTYPE_I32] = PJRT_TYPE_S32,  [STRATA_DTYPE_I64] = PJRT_TYPE_S64, [STRATA_DTYPE_U8] = PJRT_TYPE_U8,
        [STRATA_DTYPE_BOOL] = PJRT_TYPE_PRED};
    return types[dtype];
}

strata_status strata_pjrt_from_host(pjrt_device *device, const pjrt_port *port, const void *data, pjrt_api_buffer **out_buffer,
                                    pjrt_api_event **out_done, strata_error *err) {
    pjrt_from_host_args args = {.head = {PJRT_SIZE(pjrt_from_host_args, buffer), NULL},
                                .client = device->client,
                                .data = data,
                                .type = type_of(port->dtype),
                                .dims = port->shape.dims,
                                .n_dims = (size_t)port->shape.rank,
                                .semantics = out_done ? PJRT_HOST_UNTIL_DONE : PJRT_HOST_DURING_CALL,
                                .device = device->device};
    STRATA_TRY(strata_pjrt_call(&device->plugin, PJRT_FUNCTION_Client_BufferFromHostBuffer, &args, "copy to the device",
                                STRATA_DEVICE_LOST, err));
    device->base.counters.upload_bytes += (uint64_t)port->bytes;
    *out_buffer = args.buffer;
    if (out_done) {
        *out_done = args.done;
        return STRATA_OK;
    }
    const strata_status status = strata_pjrt_await(&device->plugin, args.done, "copy to the device", STRATA_DEVICE_LOST, err);
    if (status) strata_pjrt_destroy(&device->plugin, PJRT_FUNCTION_Buffer_Destroy, args.buffer);
    return status;
}

/* Copies in row-major order, whatever the layout on the device is. target NULL: sets only *bytes. */
static strata_status to_host(const pjrt_device *device, const pjrt_port *port, pjrt_api_buffer *buffer, void *target,
                             size_t *bytes, pjrt_api_event **out_done, strata_error *err) {
    int64_t order[STRATA_MAX_RANK];
    for (int d = 0; d < port->shape.rank; d++) order[d] = port->shape.rank - 1 - d;
    pjrt_layout layout = {.head = {PJRT_SIZE(pjrt_layout, type), NULL},
                          .tiled = {.head = {PJRT_SIZE(struct pjrt_tiled_layout, n_tiles), NULL},
                                    .minor_to_major = order,
                                    .minor_to_major_size = (size_t)port->shape.rank}};
    pjrt_to_host_args args = {.head = {PJRT_SIZE(pjrt_to_host_args, done), NULL},
                              .buffer = buffer,
                              .layout = &layout,
                              .target = target,
                              .target_size = *bytes};
    STRATA_TRY(strata_pjrt_call(&device->plugin, PJRT_FUNCTION_Buffer_ToHostBuffer, &args, "copy from the device",
                                STRATA_DEVICE_LOST, err));
    *bytes = args.target_size;
    *out_done = args.done;
    return STRATA_OK;
}

strata_status strata_pjrt_to_host(const pjrt_device *device, const pjrt_port *port, pjrt_api_buffer *buffer, void *target,
                                  pjrt_api_event **out_done, strata_error *err) {
    size_t bytes = (size_t)port->bytes;
    return to_host(device, port, buffer, target, &bytes, out_done, err);
}

strata_status strata_pjrt_check_bytes(const pjrt_device *device, const pjrt_port *port, pjrt_api_buffer *buffer,
                                      strata_error *err) {
    size_t bytes = 0;
    pjrt_api_event *done = NULL;
    STRATA_TRY(to_host(device, port, buffer, NULL, &bytes, &done, err));
    STRATA_TRY(strata_pjrt_await(&device->plugin, done, "size of a result", STRATA_DEVICE_LOST, err));
    if (bytes == (size_t)port->bytes) return STRATA_OK;
    return strata_fail(err, STRATA_DEVICE_LOST, "pjrt: a result of %s %s has %zu bytes; it should have %" PRId64 " (%s)",
                       strata_dtype_name(port->dtype), strata_shape_text(port->shape).text, bytes, port->bytes,
                       device->plugin.path);
}

/* ---- regions ---- */

static void drop(const pjrt_device *device, strata_buffer *buffer, int index) {
    strata_pjrt_destroy(&device->plugin, PJRT_FUNCTION_Buffer_Destroy, buffer->regions[index].buffer);
    buffer->regions[index] = buffer->regions[--buffer->n_regions];
}

/* Copies a region that a program wrote back to host memory. */
static strata_status flush(pjrt_device *device, strata_buffer *buffer, pjrt_region *region, strata_error *err) {
    pjrt_api_event *done = NULL;
    if (!region->newer) return STRATA_OK;
    const pjrt_port port = {.dtype = region->dtype, .shape = region->shape, .bytes = region->bytes};
    STRATA_TRY(strata_pjrt_check_bytes(device, &port, region->buffer, err));
    STRATA_TRY(strata_pjrt_to_host(device, &port, region->buffer, buffer->memory + region->offset, &done, err));
    STRATA_TRY(strata_pjrt_await(&device->plugin, done, "copy from the device", STRATA_DEVICE_LOST, err));
    device->base.counters.download_bytes += (uint64_t)region->bytes;
    region->newer = false;
    return STRATA_OK;
}

static bool overlaps(const pjrt_region *region, int64_t offset, int64_t bytes) {
    return region->offset < offset + bytes && offset < region->offset + region->bytes;
}

static bool covers(int64_t offset, int64_t bytes, const pjrt_region *region) {
    return offset <= region->offset && region->offset + region->bytes <= offset + bytes;
}

/* Prepares writing a range: removes all regions that overlap it. If a region is only partly in the range, its content
 * is copied to host memory first. */
static strata_status clear(pjrt_device *device, strata_buffer *buffer, int64_t offset, int64_t bytes, strata_error *err) {
    for (int i = buffer->n_regions - 1; i >= 0; i--) {
        pjrt_region *region = &buffer->regions[i];
        if (!overlaps(region, offset, bytes)) continue;
        if (!covers(offset, bytes, region)) STRATA_TRY(flush(device, buffer, region, err));
        drop(device, buffer, i);
    }
    return STRATA_OK;
}

/* Makes room for one more region, so that strata_pjrt_region_put cannot fail because memory runs out. */
static strata_status region_reserve(strata_buffer *buffer, strata_error *err) {
    if (strata_make_room(&buffer->regions, buffer->n_regions, &buffer->capacity, sizeof *buffer->regions)) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "pjrt: no host memory for %d regions of a buffer", buffer->n_regions);
}

static void add(strata_buffer *buffer, const pjrt_port *port, pjrt_api_buffer *api_buffer, bool newer) {
    buffer->regions[buffer->n_regions++] =
        (pjrt_region){port->dtype, port->shape, port->offset, port->bytes, api_buffer, newer};
}

strata_status strata_pjrt_region_get(pjrt_device *device, strata_buffer *buffer, const pjrt_port *port,
                                     pjrt_api_buffer **out_buffer, strata_error *err) {
    for (int i = buffer->n_regions - 1; i >= 0; i--) {
        pjrt_region *region = &buffer->regions[i];
        if (!overlaps(region, port->offset, port->bytes)) continue;
        if (region->offset == port->offset && region->dtype == port->dtype && strata_shape_equal(region->shape, port->shape)) {
            *out_buffer = region->buffer;
            return STRATA_OK;
        }
        STRATA_TRY(flush(device, buffer, region, err)); /* it may be another argument of this run, so it stays */
    }
    STRATA_TRY(region_reserve(buffer, err));
    STRATA_TRY(strata_pjrt_from_host(device, port, buffer->memory + port->offset, out_buffer, NULL, err));
    add(buffer, port, *out_buffer, false);
    return STRATA_OK;
}

strata_status strata_pjrt_region_put(pjrt_device *device, strata_buffer *buffer, const pjrt_port *port,
                                     pjrt_api_buffer *api_buffer, strata_error *err) {
    strata_status status = clear(device, buffer, port->offset, port->bytes, err);
    if (!status) status = region_reserve(buffer, err);
    if (status)
        strata_pjrt_destroy(&device->plugin, PJRT_FUNCTION_Buffer_Destroy, api_buffer);
    else
        add(buffer, port, api_buffer, true);
    return status;
}

/* ---- the table's functions ---- */

strata_status strata_pjrt_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    STRATA_FREED strata_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) *buffer = (strata_buffer){.bytes = bytes, .memory = calloc(1, (size_t)bytes)};
    if (!buffer || !buffer->memory)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "pjrt: no memory for a buffer of %" PRId64 " bytes", bytes);
    device->counters.allocations++;
    device->counters.allocated_bytes += (uint64_t)bytes;
    *out_buffer = strata_released(&buffer);
    return STRATA_OK;
}

void strata_pjrt_buffer_destroy(strata_device *device, strata_buffer *buffer) {
    if (!buffer) return;
    while (buffer->n_regions) drop((pjrt_device *)device, buffer, buffer->n_regions - 1);
    device->counters.allocated_bytes -= (uint64_t)buffer->bytes;
    free(buffer->regions);
    free(buffer->memory);
    free(buffer);
}

strata_status strata_pjrt_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err) {
    STRATA_TRY(strata_device_check_range(device, buffer->bytes, offset, bytes, err));
    STRATA_TRY(strata_pjrt_check((pjrt_device *)device, err));
    if (!bytes) return STRATA_OK;
    STRATA_TRY(clear((pjrt_device *)device, buffer, offset, bytes, err));
    memcpy(buffer->memory + offset, source, (size_t)bytes);
    return STRATA_OK;
}

strata_status strata_pjrt_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err) {
    STRATA_TRY(strata_device_check_range(device, buffer->bytes, offset, bytes, err));
    STRATA_TRY(strata_pjrt_check((pjrt_device *)device, err));
    for (int i = 0; i < buffer->n_regions; i++)
        if (overlaps(&buffer->regions[i], offset, bytes))
            STRATA_TRY(flush((pjrt_device *)device, buffer, &buffer->regions[i], err));
    if (bytes) memcpy(target, buffer->memory + offset, (size_t)bytes);
    return STRATA_OK;
}
