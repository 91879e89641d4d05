/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables: device memory that outlives a run. */
#include "core/run/device.h"

strata_status strata_variable_create(strata_device *device, const char *name, strata_dtype dtype, strata_shape shape,
                                     strata_variable **out_variable, strata_error *err) {
    STRATA_TRY(strata_shape_check(shape, err));
    if (!name || !*name) return strata_fail(err, STRATA_INVALID, "variable: it needs a name");
    if (!strata_dtype_bytes(dtype))
        return strata_fail(err, STRATA_INVALID, "variable %s: dtype %d is unknown", name, (int)dtype);
    strata_variable *variable;
    STRATA_TRY(STRATA_NEW(variable, 1, err, "variable %s: no host memory", name));
    *variable = (strata_variable){.device = device, .name = strdup(name), .dtype = dtype, .shape = shape};
    int64_t bytes = strata_shape_elements(shape) * (int64_t)strata_dtype_bytes(dtype);
    strata_status status =
        variable->name ? strata_device_enter(device, err) : strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory");
    if (!status) {
        status = device->api->buffer_create(device, bytes > 0 ? bytes : 4, &variable->buffer, err);
        strata_device_leave(device);
    }
    if (status) {
        strata_fail_in(err, status, "variable %s", name);
        strata_variable_destroy(variable);
        return status;
    }
    *out_variable = variable;
    return STRATA_OK;
}

void strata_variable_destroy(strata_variable *variable) {
    if (!variable) return;
    if (variable->buffer && !strata_device_enter(variable->device, NULL)) { /* it fails in a child of fork */
        variable->device->api->buffer_destroy(variable->device, variable->buffer);
        strata_device_leave(variable->device);
    }
    free(variable->name);
    free(variable);
}

static strata_status check_whole(const strata_variable *variable, const strata_array *value, strata_error *err) {
    if (strata_shape_elements(value->shape) == strata_shape_elements(variable->shape)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "variable %s is %s, the value is %s", variable->name,
                       strata_shape_text(variable->shape).text, strata_shape_text(value->shape).text);
}

static strata_status check_range(const strata_variable *variable, int64_t offset, const strata_array *value,
                                 strata_error *err) {
    int64_t element = (int64_t)strata_dtype_bytes(variable->dtype), all = strata_shape_elements(variable->shape) * element;
    if (value->dtype != variable->dtype)
        return strata_fail(err, STRATA_INVALID, "variable %s is %s, the value is %s", variable->name,
                           strata_dtype_name(variable->dtype), strata_dtype_name(value->dtype));
    if (offset < 0 || offset % element || offset > all - (int64_t)strata_array_bytes(value))
        return strata_fail(err, STRATA_INVALID, "variable %s has %lld bytes; %zu at %lld do not fit", variable->name,
                           (long long)all, strata_array_bytes(value), (long long)offset);
    return STRATA_OK;
}

/* Copies the value to the variable, or from it (get). */
static strata_status copy(strata_variable *variable, int64_t offset, const strata_array *value, bool get, strata_error *err) {
    strata_device *device = variable->device;
    STRATA_TRY(check_range(variable, offset, value, err));
    const int64_t bytes = (int64_t)strata_array_bytes(value);
    if (!bytes) return STRATA_OK;
    STRATA_TRY(strata_device_enter(device, err));
    const strata_status status = get ? device->api->download(device, variable->buffer, offset, value->data, bytes, err)
                                     : device->api->upload(device, variable->buffer, offset, value->data, bytes, err);
    strata_device_leave(device);
    return status;
}

strata_status strata_variable_set_range(strata_variable *variable, int64_t offset, const strata_array *value,
                                        strata_error *err) {
    return copy(variable, offset, value, false, err);
}

strata_status strata_variable_get_range(strata_variable *variable, int64_t offset, strata_array *value, strata_error *err) {
    return copy(variable, offset, value, true, err);
}

strata_status strata_variable_set(strata_variable *variable, const strata_array *value, strata_error *err) {
    STRATA_TRY(check_whole(variable, value, err));
    return strata_variable_set_range(variable, 0, value, err);
}

void *strata_variable_memory(const strata_variable *variable) {
    const strata_device_api *api = variable->device->api;
    return api->buffer_memory ? api->buffer_memory(variable->buffer) : NULL;
}

/* The functions that copy directly between the devices of the two variables; NULL: there are none. */
static const strata_device_transfers *link_of(const strata_variable *to, const strata_variable *from) {
    if (!from || from->device == to->device || from->device->api != to->device->api) return NULL;
    if (strcmp(from->device->info.backend, to->device->info.backend) != 0) return NULL;
    const strata_device_transfers *own = strata_device_get_transfers(to->device);
    return own && own->copy ? own : NULL;
}

strata_status strata_variable_set_as(strata_variable *to, strata_variable *from, const strata_array *value, strata_error *err) {
    const strata_device_transfers *link = link_of(to, from);
    if (!link) return strata_variable_set(to, value, err);
    STRATA_TRY(check_whole(to, value, err));
    STRATA_TRY(check_range(to, 0, value, err));
    const int64_t bytes = (int64_t)strata_array_bytes(value);
    if (!bytes) return STRATA_OK;
    /* The order of the two locks is the same in all threads. */
    strata_device *first = (uintptr_t)to->device < (uintptr_t)from->device ? to->device : from->device;
    strata_device *second = first == to->device ? from->device : to->device;
    STRATA_TRY(strata_device_enter(first, err));
    strata_status status = strata_device_enter(second, err);
    if (!status) {
        status = link->copy(to->device, to->buffer, 0, from->device, from->buffer, 0, bytes, err);
        strata_device_leave(second);
    }
    strata_device_leave(first);
    return status;
}

strata_status strata_variable_get(strata_variable *variable, strata_array *value, strata_error *err) {
    STRATA_TRY(check_whole(variable, value, err));
    return strata_variable_get_range(variable, 0, value, err);
}

const char *strata_variable_name(const strata_variable *variable) {
    return variable->name;
}
strata_dtype strata_variable_dtype(const strata_variable *variable) {
    return variable->dtype;
}
strata_shape strata_variable_shape(const strata_variable *variable) {
    return variable->shape;
}
