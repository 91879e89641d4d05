/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the null backend, which is the smallest one: it compiles every piece and runs nothing, so
 * outputs are zeros. To begin a backend, copy this folder; README.md says what to replace. */
#ifndef STRATA_BACKENDS_NULL_H
#define STRATA_BACKENDS_NULL_H

#include "core/run/device.h"

/* The first member of a device is the struct that the rest of Strata uses. The members after it are the backend's own,
 * for example the objects of its driver. */
typedef struct null_device {
    strata_device base;
    uint64_t last_ticket;
} null_device;

/* memory.c: the functions of strata_device_api with these names. */
strata_status strata_null_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
void strata_null_buffer_destroy(strata_device *device, strata_buffer *buffer);
strata_status strata_null_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err);
strata_status strata_null_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err);

/* program.c: the functions of strata_device_api with these names. */
strata_support strata_null_supports(strata_device *device, const strata_tensor *node, const char **reason);
strata_status strata_null_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                  strata_error *err);
void strata_null_program_destroy(strata_program *program);
void *strata_null_program_input(strata_program *program, int slot);
const void *strata_null_program_output(strata_program *program, int slot);
strata_status strata_null_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);

#endif
