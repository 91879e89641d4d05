/* SPDX-License-Identifier: Apache-2.0
 *
 * The null device: its row in the registry, opening and closing it. There is always one such device, and it is opened
 * only if the user names it. */
#include <stdlib.h>

#include "backends/null/null.h"
#include "backends/registry.h"

static void null_close(strata_device *device) {
    free(device);
}

/* A ticket is the number of a run. The run has ended when strata_null_run returns. */
static strata_status null_wait(strata_device *device, uint64_t ticket, strata_error *err) {
    const uint64_t last = ((null_device *)device)->last_ticket;
    if (ticket <= last) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "null: ticket %llu was never given out; the last is %llu",
                       (unsigned long long)ticket, (unsigned long long)last);
}

static const strata_device_api null_api = {
    .close = null_close,
    .buffer_create = strata_null_buffer_create,
    .buffer_destroy = strata_null_buffer_destroy,
    .upload = strata_null_upload,
    .download = strata_null_download,
    .supports = strata_null_supports,
    .compile = strata_null_compile,
    .program_destroy = strata_null_program_destroy,
    .program_input = strata_null_program_input,
    .program_output = strata_null_program_output,
    .run = strata_null_run,
    .wait = null_wait,
};

static strata_status null_open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                               strata_error *err) {
    (void)opts;
    null_device *device = calloc(1, sizeof *device);
    if (!device) return strata_fail(err, STRATA_OUT_OF_MEMORY, "null: no host memory for the device");
    device->base = (strata_device){.api = &null_api, .info = *info};
    *out_device = &device->base;
    return STRATA_OK;
}

static strata_status null_list(strata_device_list *list, strata_error *err) {
    static const strata_device_info info = {.id = "null",
                                            .backend = "null",
                                            .name = "a device that runs nothing",
                                            .vendor = "Strata",
                                            .driver = "built in",
                                            .device_class = STRATA_DEVICE_HOST,
                                            .max_allocation_bytes = INT64_MAX,
                                            .max_range_bytes = INT64_MAX,
                                            .compute_units = 1,
                                            .max_workgroup = 1,
                                            .vector_width = 1,
                                            .unified_memory = true,
                                            .dtypes = (1u << STRATA_DTYPE_COUNT) - 1};
    return strata_device_list_add(list, &info, err);
}

extern const strata_backend strata_backend_null;
const strata_backend strata_backend_null = {
    .name = "null", .is_built_in = true, .on_request = true, .list = null_list, .open = null_open};
