/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the PJRT backend: a device of a plugin's client, its buffers, its programs. README.md
 * describes which memory becomes a buffer. */
#ifndef STRATA_BACKENDS_PJRT_H
#define STRATA_BACKENDS_PJRT_H

#include "backends/pjrt/lower.h"
#include "backends/pjrt/plugin.h"
#include "core/run/device.h"

/* A run that was submitted and has not been waited for. */
typedef struct pjrt_run {
    uint64_t ticket;
    /* [n_events] The events that must have happened before the slot's memory may be accessed. */
    pjrt_api_event **events;
    int n_events;
    /* [n_copied] The results that are being copied to the slot's memory. */
    pjrt_api_buffer **copied;
    int n_copied;
    struct pjrt_run *next;
} pjrt_run;

typedef struct pjrt_device {
    strata_device base;
    char *path;
    pjrt_plugin plugin;
    pjrt_api_client *client;
    pjrt_api_device *device;
    bool fast;
    /* The plugin failed during a run, so the contents of the buffers are not known. */
    bool lost;
    uint64_t last_ticket;
    /* The submitted runs, in the order of their tickets. */
    pjrt_run *first, *last;
} pjrt_device;

/* A part of a strata_buffer that is a typed buffer of the plugin. */
typedef struct pjrt_region {
    strata_dtype dtype;
    strata_shape shape;
    int64_t offset, bytes;
    pjrt_api_buffer *buffer;
    /* A program wrote it after it was last copied to host memory. */
    bool newer;
} pjrt_region;

/* Host memory, and the parts of it that are on the device. */
struct strata_buffer {
    int64_t bytes;
    char *memory;
    pjrt_region *regions;
    int n_regions;
    int64_t capacity;
};

/* device.c */
strata_status strata_pjrt_check(const pjrt_device *device, strata_error *err);
/* Marks the device as lost if `status` is an error. Returns `status` unchanged. */
strata_status strata_pjrt_lose(pjrt_device *device, strata_status status);
strata_status strata_pjrt_finish_runs(pjrt_device *device, uint64_t ticket, strata_error *err);

/* buffer.c: functions of strata_device_api with these names, and the plugin's buffers. */
strata_status strata_pjrt_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
void strata_pjrt_buffer_destroy(strata_device *device, strata_buffer *buffer);
strata_status strata_pjrt_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err);
strata_status strata_pjrt_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err);
/* Returns the plugin's buffer of the port's part of the buffer, and creates it if needed. The strata_buffer owns it. */
strata_status strata_pjrt_region_get(pjrt_device *device, strata_buffer *buffer, const pjrt_port *port,
                                     pjrt_api_buffer **out_buffer, strata_error *err);
/* Makes api_buffer the content of the port's part of the buffer. The strata_buffer takes api_buffer, even on failure. */
strata_status strata_pjrt_region_put(pjrt_device *device, strata_buffer *buffer, const pjrt_port *port,
                                     pjrt_api_buffer *api_buffer, strata_error *err);
/* Creates a plugin's buffer with the content of host memory. out_done NULL: the memory may change as soon as the call
 * has returned. Otherwise it may change after the event, for which the caller must wait. */
strata_status strata_pjrt_from_host(pjrt_device *device, const pjrt_port *port, const void *data, pjrt_api_buffer **out_buffer,
                                    pjrt_api_event **out_done, strata_error *err);
/* Copies port->bytes to host memory. The copy has finished when the event has happened. */
strata_status strata_pjrt_to_host(const pjrt_device *device, const pjrt_port *port, pjrt_api_buffer *buffer, void *target,
                                  pjrt_api_event **out_done, strata_error *err);
/* Fails: INVALID if the plugin's buffer does not have as many bytes as the port. */
strata_status strata_pjrt_check_bytes(const pjrt_device *device, const pjrt_port *port, pjrt_api_buffer *buffer,
                                      strata_error *err);

/* program.c: functions of strata_device_api with these names. */
strata_support strata_pjrt_supports(strata_device *device, const strata_tensor *node, const char **reason);
strata_status strata_pjrt_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                  strata_error *err);
void strata_pjrt_program_destroy(strata_program *program);
void *strata_pjrt_program_input(strata_program *program, int slot);
const void *strata_pjrt_program_output(strata_program *program, int slot);
strata_status strata_pjrt_run_slot(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);

#endif
