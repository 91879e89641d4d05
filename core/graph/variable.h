/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct of a variable, which graphs read and update. core/run/variable.c creates it and copies its value. */
#ifndef STRATA_CORE_VARIABLE_H
#define STRATA_CORE_VARIABLE_H

#include "strata/device.h"
#include "strata/executable.h"

/* Device memory. Each backend defines the struct for itself. */
typedef struct strata_buffer strata_buffer;

/* A variable: one buffer on one device. Strategies create a variable on each device. */
struct strata_variable {
    strata_device *device;
    char *name;
    strata_dtype dtype;
    strata_shape shape;
    strata_buffer *buffer;
};

/* The variable's memory, if the host can access the bytes that programs use (strata_device_api.buffer_memory); else NULL. The
 * host may access it only while no program that uses the variable runs. */
void *strata_variable_memory(const strata_variable *variable);

/* Sets `to` to `value`. `from` is a variable of the same dtype and shape that has this value already: if the two devices can
 * copy directly (strata_device_transfers.copy), the value is copied from it, else from the host. from NULL: as
 * strata_variable_set. */
STRATA_MUST_USE strata_status strata_variable_set_as(strata_variable *to, strata_variable *from, const strata_array *value,
                                                     strata_error *err);

#endif
