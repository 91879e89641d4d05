/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct of a variable, which graphs read and update. core/run/variable.c creates it and copies its value. */
#ifndef STRATA_CORE_VARIABLE_H
#define STRATA_CORE_VARIABLE_H

#include "strata/device.h"
#include "strata/executable.h"

/* Device memory. Each backend defines the struct for itself. */
typedef struct strata_buffer strata_buffer;

/* A variable: one buffer on one device (strategies make copies on others). */
struct strata_variable {
    strata_device *device;
    char *name;
    strata_dtype dtype;
    strata_shape shape;
    strata_buffer *buffer;
};

/* Its memory, where the host reads and writes the very bytes that programs use (strata_device_api.buffer_memory); NULL where it
 * does not. No program that uses the variable may be running meanwhile. */
void *strata_variable_memory(const strata_variable *variable);

/* Sets `to` to `value`, which `from`, of the same dtype and shape, has been set to already. Devices that have a link of their
 * own (strata_device_transfers.copy) copy over it; others get the value from the host. from NULL: as strata_variable_set. */
STRATA_MUST_USE strata_status strata_variable_set_as(strata_variable *to, strata_variable *from, const strata_array *value,
                                                     strata_error *err);

#endif
