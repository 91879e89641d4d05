/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers, which are host memory. A backend with its own memory calls its driver instead of calloc and memcpy. */
#include <stdlib.h>
#include <string.h>

#include "backends/null/null.h"

struct strata_buffer {
    int64_t bytes;
    char *memory;
};

strata_status strata_null_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    strata_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) *buffer = (strata_buffer){.bytes = bytes, .memory = calloc(1, (size_t)bytes)};
    if (!buffer || !buffer->memory) {
        free(buffer);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "null: no memory for a buffer of %lld bytes", (long long)bytes);
    }
    device->counters.allocations++;
    device->counters.allocated_bytes += (uint64_t)bytes;
    *out_buffer = buffer;
    return STRATA_OK;
}

void strata_null_buffer_destroy(strata_device *device, strata_buffer *buffer) {
    if (!buffer) return;
    device->counters.allocated_bytes -= (uint64_t)buffer->bytes;
    free(buffer->memory);
    free(buffer);
}

static strata_status check_range(const strata_buffer *buffer, int64_t offset, int64_t bytes, strata_error *err) {
    if (offset >= 0 && bytes >= 0 && offset <= buffer->bytes - bytes) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "null: %lld bytes at %lld are outside a buffer of %lld", (long long)bytes,
                       (long long)offset, (long long)buffer->bytes);
}

strata_status strata_null_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err) {
    STRATA_TRY(check_range(buffer, offset, bytes, err));
    memcpy(buffer->memory + offset, source, (size_t)bytes);
    device->counters.upload_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

strata_status strata_null_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err) {
    STRATA_TRY(check_range(buffer, offset, bytes, err));
    memcpy(target, buffer->memory + offset, (size_t)bytes);
    device->counters.download_bytes += (uint64_t)bytes;
    return STRATA_OK;
}
