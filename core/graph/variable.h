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

#endif
