/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of an OpenCL device: buffers, and copies between them and the host. */
#include <sys/mman.h>

#include "backends/opencl/opencl.h"

enum {
    ROUND_UP = 64, /* buffers are a multiple of this many bytes */
    HUGE_PAGE = 2 << 20,
};

static size_t rounded(int64_t bytes) {
    return ((size_t)bytes + ROUND_UP - 1) / ROUND_UP * ROUND_UP;
}

static strata_status out_of_memory(const opencl_device *device, int64_t bytes, strata_error *err) {
    uint64_t used = device->base.counters.allocated_bytes, all = device->base.info.memory_bytes;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: %lld bytes wanted, %llu free of %llu; the largest buffer is %llu bytes",
                       device->base.info.id, (long long)bytes, (unsigned long long)(all > used ? all - used : 0),
                       (unsigned long long)all, (unsigned long long)device->base.info.max_allocation_bytes);
}

/* Some drivers allocate more memory than the device has and fail later, so this checks the sum of all buffers. */
static bool has_room(const opencl_device *device, int64_t bytes) {
    const strata_device_info *info = &device->base.info;
    return (uint64_t)bytes <= info->max_allocation_bytes &&
           (uint64_t)bytes <= info->memory_bytes - device->base.counters.allocated_bytes;
}

strata_status strata_opencl_allocate(opencl_device *device, cl_mem_flags flags, int64_t bytes, void *host, cl_mem *out_memory,
                                     strata_error *err) {
    if (!has_room(device, bytes)) return out_of_memory(device, bytes, err);
    cl_int code;
    cl_mem memory = device->cl.CreateBuffer(device->context, flags, rounded(bytes), host, &code);
    if (code == CL_OUT_OF_RESOURCES || code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_INVALID_BUFFER_SIZE)
        return out_of_memory(device, bytes, err);
    if (code != CL_SUCCESS) return strata_opencl_fail(device, code, "making a buffer", err);
    device->base.counters.allocations++;
    device->base.counters.allocated_bytes += (uint64_t)bytes;
    *out_memory = memory;
    return STRATA_OK;
}

/* The rows of a large matrix are on different pages. With pages of 4 KiB, a product of 1024 x 1024 matrices loses a
 * tenth of its time to address translation, so huge pages are requested. They are requested only for the part of a
 * buffer that fills whole huge pages, so that its end does not occupy another one. */
strata_status strata_opencl_allocate_shared(opencl_device *device, int64_t bytes, void **out_host, cl_mem *out_memory,
                                            strata_error *err) {
    if (!has_room(device, bytes)) return out_of_memory(device, bytes, err);
    const size_t whole = rounded(bytes);
    void *host;
    if (posix_memalign(&host, whole < HUGE_PAGE ? OPENCL_PAGE : HUGE_PAGE, whole))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %lld bytes", device->base.info.id,
                           (long long)bytes);
#ifdef MADV_HUGEPAGE
    if (whole >= HUGE_PAGE) madvise(host, whole / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* the system may refuse this */
#endif
    memset(host, 0, whole);
    strata_status status =
        strata_opencl_allocate(device, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, host, out_memory, err);
    if (status)
        free(host);
    else
        *out_host = host;
    return status;
}

void strata_opencl_release(opencl_device *device, cl_mem memory, int64_t bytes) {
    if (!memory) return;
    device->cl.ReleaseMemObject(memory);
    device->base.counters.allocated_bytes -= (uint64_t)bytes;
}

void strata_opencl_buffer_destroy(strata_device *base, strata_buffer *buffer) {
    if (!buffer) return;
    opencl_device *device = (opencl_device *)base;
    if (device->lost == STRATA_TIMEOUT) return; /* a run that hangs uses it */
    STRATA_DRIVER_CALL(base, FREE);
    if (buffer->host) device->cl.Finish(device->queue);
    strata_opencl_release(device, buffer->memory, buffer->bytes);
    free(buffer->host);
    free(buffer);
}

/* Oclgrind 21.10 tracks initialised memory correctly only if one write covers a whole buffer, not after a fill or the write of
 * a part. So this writes the whole buffer, with `bytes` at `offset` changed. Returns CL_SUCCESS or an error code. */
static cl_int write_whole(opencl_device *device, const strata_buffer *buffer, int64_t offset, const void *source,
                          int64_t bytes) {
    const size_t all = rounded(buffer->bytes);
    STRATA_FREED char *whole = calloc(1, all);
    if (!whole) return CL_OUT_OF_HOST_MEMORY;
    cl_int code = CL_SUCCESS;
    if (source) {
        code = device->cl.EnqueueReadBuffer(device->queue, buffer->memory, CL_TRUE, 0, all, whole, 0, NULL, NULL);
        memcpy(whole + offset, source, (size_t)bytes);
    }
    if (code == CL_SUCCESS)
        code = device->cl.EnqueueWriteBuffer(device->queue, buffer->memory, CL_TRUE, 0, all, whole, 0, NULL, NULL);
    return code;
}

static cl_int clear(opencl_device *device, const strata_buffer *buffer) {
    const cl_uint zero = 0;
    if (device->is_oclgrind) return write_whole(device, buffer, 0, NULL, 0);
    return device->cl.EnqueueFillBuffer(device->queue, buffer->memory, &zero, sizeof zero, 0, rounded(buffer->bytes), 0, NULL,
                                        NULL);
}

strata_status strata_opencl_buffer_create(strata_device *base, int64_t bytes, strata_buffer **out_buffer, strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    STRATA_TRY(strata_opencl_check_alive(device, err));
    STRATA_DRIVER_CALL(base, ALLOCATE);
    STRATA_FREED strata_buffer *buffer = NULL;
    STRATA_TRY(STRATA_NEW(buffer, 1, err, "%s: no host memory for a buffer", base->info.id));
    buffer->bytes = bytes;
    const bool shared = device->host_memory == OPENCL_HOST_SHARED && bytes >= HUGE_PAGE;
    STRATA_TRY(shared ? strata_opencl_allocate_shared(device, bytes, &buffer->host, &buffer->memory, err)
                      : strata_opencl_allocate(device, CL_MEM_READ_WRITE, bytes, NULL, &buffer->memory, err));
    cl_int code = buffer->host ? CL_SUCCESS : clear(device, buffer);
    if (code != CL_SUCCESS) {
        strata_opencl_buffer_destroy(base, strata_released(&buffer));
        if (code == CL_OUT_OF_RESOURCES || code == CL_MEM_OBJECT_ALLOCATION_FAILURE) return out_of_memory(device, bytes, err);
        return strata_opencl_fail(device, code, "clearing a buffer", err);
    }
    *out_buffer = strata_released(&buffer);
    return STRATA_OK;
}

/* A copy waits for the runs that were submitted before it. */
static int runs_in_queue(const opencl_device *device) {
    return 1 + strata_opencl_runs_before(device, device->last_ticket);
}

strata_status strata_opencl_upload(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source,
                                   int64_t bytes, strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    STRATA_TRY(strata_opencl_check_alive(device, err));
    STRATA_TRY(strata_device_check_range(base, buffer->bytes, offset, bytes, err));
    if (!bytes) return STRATA_OK;
    STRATA_DRIVER_RUNS(base, COPY, runs_in_queue(device));
    cl_int code = device->is_oclgrind ? write_whole(device, buffer, offset, source, bytes)
                                      : device->cl.EnqueueWriteBuffer(device->queue, buffer->memory, CL_TRUE, (size_t)offset,
                                                                      (size_t)bytes, source, 0, NULL, NULL);
    if (code != CL_SUCCESS) return strata_opencl_fail(device, code, "an upload", err);
    base->counters.waits++;
    base->counters.upload_bytes += (uint64_t)bytes;
    return STRATA_OK;
}

strata_status strata_opencl_download(strata_device *base, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                     strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    STRATA_TRY(strata_opencl_check_alive(device, err));
    STRATA_TRY(strata_device_check_range(base, buffer->bytes, offset, bytes, err));
    if (!bytes) return STRATA_OK;
    STRATA_DRIVER_RUNS(base, COPY, runs_in_queue(device));
    cl_int code = device->cl.EnqueueReadBuffer(device->queue, buffer->memory, CL_TRUE, (size_t)offset, (size_t)bytes, target, 0,
                                               NULL, NULL);
    if (code != CL_SUCCESS) return strata_opencl_fail(device, code, "a download", err);
    base->counters.waits++;
    base->counters.download_bytes += (uint64_t)bytes;
    return STRATA_OK;
}
