/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers: arrays of JAX on the device. Their elements are in host memory, from where each run copies them. */
#include <inttypes.h>

#include "core/frontend/pjrt/plugin.h"

/* By PJRT_TYPE: NumPy's name, and Strata's element type, or -1. */
static const struct {
    const char *name;
    int dtype;
} types[] = {[PJRT_TYPE_PRED] = {"bool", STRATA_DTYPE_BOOL},
             [PJRT_TYPE_S8] = {"int8", -1},
             [PJRT_TYPE_S16] = {"int16", -1},
             [PJRT_TYPE_S32] = {"int32", STRATA_DTYPE_I32},
             [PJRT_TYPE_S64] = {"int64", STRATA_DTYPE_I64},
             [PJRT_TYPE_U8] = {"uint8", STRATA_DTYPE_U8},
             [PJRT_TYPE_U16] = {"uint16", -1},
             [PJRT_TYPE_U32] = {"uint32", -1},
             [PJRT_TYPE_U64] = {"uint64", -1},
             [PJRT_TYPE_F16] = {"float16", STRATA_DTYPE_F16},
             [PJRT_TYPE_F32] = {"float32", STRATA_DTYPE_F32},
             [PJRT_TYPE_F64] = {"float64", -1},
             [PJRT_TYPE_BF16] = {"bfloat16", STRATA_DTYPE_BF16},
             [PJRT_TYPE_C64] = {"complex64", -1},
             [PJRT_TYPE_C128] = {"complex128", -1}};
enum { N_TYPES = sizeof types / sizeof types[0] };

static int type_of(strata_dtype dtype) {
    int type = PJRT_TYPE_PRED;
    while (type < N_TYPES - 1 && types[type].dtype != (int)dtype) type++;
    return type;
}

static strata_status find_dtype(int type, strata_dtype *out, strata_error *err) {
    const bool is_known = type >= PJRT_TYPE_PRED && type < N_TYPES;
    if (!is_known || types[type].dtype < 0)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "an array of %s (type %d of PJRT) cannot be on the device: Strata's element types are bool, uint8, "
                           "int32, int64, float16, bfloat16 and float32",
                           is_known ? types[type].name : "another type", type);
    *out = (strata_dtype)types[type].dtype;
    return STRATA_OK;
}

/* ---- buffers ---- */

/* A buffer of the values, whose reference it takes, also on failure. */
static strata_status new_buffer(pjrt_api_client *client, strata_jax_values *values, pjrt_api_buffer **out_buffer,
                                strata_error *err) {
    pjrt_api_buffer *buffer = strata_zeroed(1, sizeof *buffer);
    *out_buffer = buffer;
    if (!buffer) {
        strata_jax_values_release(values);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for an array");
    }
    const strata_array *array = &values->array;
    buffer->client = client;
    buffer->type = type_of(array->dtype);
    buffer->dtype = array->dtype;
    buffer->shape = array->shape;
    buffer->values = values;
    pthread_mutex_init(&buffer->lock, NULL);
    strata_jax_client_retain(client);
    return STRATA_OK;
}

strata_status strata_jax_buffer_create(pjrt_api_client *client, strata_dtype dtype, strata_shape shape,
                                       pjrt_api_buffer **out_buffer, strata_error *err) {
    strata_jax_values *values;
    *out_buffer = NULL;
    STRATA_TRY(STRATA_NEW(values, 1, err, "no host memory for an array"));
    values->references = 1;
    const strata_status status = strata_array_create(dtype, shape, &values->array, err);
    if (!status) return new_buffer(client, values, out_buffer, err);
    strata_jax_values_release(values);
    return status;
}

strata_jax_values *strata_jax_buffer_values(pjrt_api_buffer *buffer) {
    STRATA_LOCKED(&buffer->lock);
    if (buffer->values) atomic_fetch_add(&buffer->values->references, 1);
    return buffer->values;
}

void strata_jax_values_release(strata_jax_values *values) {
    if (!values || atomic_fetch_sub(&values->references, 1) > 1) return;
    strata_array_finish(&values->array);
    free(values);
}

void strata_jax_buffer_delete(pjrt_api_buffer *buffer) {
    pthread_mutex_lock(&buffer->lock);
    strata_jax_values *values = strata_released(&buffer->values);
    pthread_mutex_unlock(&buffer->lock);
    strata_jax_values_release(values);
}

bool strata_jax_buffer_is_deleted(pjrt_api_buffer *buffer) {
    STRATA_LOCKED(&buffer->lock);
    return !buffer->values;
}

size_t strata_jax_buffer_bytes(const pjrt_api_buffer *buffer) {
    return (size_t)strata_shape_elements(buffer->shape) * strata_dtype_bytes(buffer->dtype);
}

void strata_jax_buffer_destroy(pjrt_api_buffer *buffer) {
    if (!buffer) return;
    strata_jax_buffer_delete(buffer);
    pthread_mutex_destroy(&buffer->lock);
    strata_jax_client_release(buffer->client);
    free(buffer);
}

strata_status strata_jax_Buffer_Destroy(pjrt_object_args *args, strata_error *err) {
    (void)err;
    strata_jax_buffer_destroy(args->object);
    return STRATA_OK;
}

strata_status strata_jax_Buffer_Delete(pjrt_object_args *args, strata_error *err) {
    (void)err;
    strata_jax_buffer_delete(args->object);
    return STRATA_OK;
}

/* ---- copies ---- */

static strata_status no_values(strata_error *err) {
    return strata_fail(err, STRATA_INVALID, "the array was deleted or donated");
}

/* Nobody writes to the elements of a buffer, so a copy on the same device shares them. */
strata_status strata_jax_Buffer_CopyToDevice(pjrt_copy_args *args, strata_error *err) {
    pjrt_api_client *client = args->buffer->client;
    args->copy = NULL;
    if (args->target != &client->device && args->target != &client->device.memory)
        return strata_fail(err, STRATA_INVALID, "an array is copied to a device of another client");
    strata_jax_values *values = strata_jax_buffer_values(args->buffer);
    return values ? new_buffer(client, values, &args->copy, err) : no_values(err);
}

strata_status strata_jax_Buffer_CopyToMemory(pjrt_copy_args *args, strata_error *err) {
    return strata_jax_Buffer_CopyToDevice(args, err);
}

/* Fails unless the layout, which may be NULL, is row-major. */
static strata_status check_layout(const pjrt_layout *layout, int rank, strata_error *err) {
    if (!layout) return STRATA_OK;
    bool is_row_major = STRATA_JAX_HAS(layout, type) && !layout->type && !layout->tiled.n_tiles &&
                        layout->tiled.minor_to_major_size == (size_t)rank;
    for (int d = 0; is_row_major && d < rank; d++) is_row_major = layout->tiled.minor_to_major[d] == rank - 1 - d;
    return is_row_major ? STRATA_OK
                        : strata_fail(err, STRATA_UNSUPPORTED, "an array is row-major, without tiles; no other layout");
}

/* The shape of the caller's array, and its strides in bytes unless it is empty. */
static strata_status read_shape(const pjrt_from_host_args *args, size_t element_bytes, strata_shape *shape, int64_t *strides,
                                strata_error *err) {
    if (args->n_dims > STRATA_MAX_RANK)
        return strata_fail(err, STRATA_UNSUPPORTED, "an array has %zu dimensions; Strata's have at most %d", args->n_dims,
                           STRATA_MAX_RANK);
    if (args->n_byte_strides && args->n_byte_strides != args->n_dims)
        return strata_fail(err, STRATA_INVALID, "an array has %zu dimensions and %zu strides", args->n_dims,
                           args->n_byte_strides);
    *shape = (strata_shape){.rank = (int)args->n_dims};
    for (int d = 0; d < shape->rank; d++) shape->dims[d] = args->dims[d];
    STRATA_TRY(strata_shape_check(*shape, err));
    int64_t stride = (int64_t)element_bytes;
    const bool is_empty = !strata_shape_elements(*shape);
    for (int d = shape->rank - 1; d >= 0 && !is_empty; stride *= shape->dims[d--])
        strides[d] = args->n_byte_strides ? args->byte_strides[d] : stride;
    return STRATA_OK;
}

/* Copies the part of an array whose indices below `axis` are fixed. A stride may be negative or 0: JAX passes on flipped and
 * broadcast arrays as NumPy has them. Returns the end of what was written. */
static char *copy_strided(char *to, const char *from, const strata_shape *shape, const int64_t *strides, int axis,
                          size_t element_bytes) {
    const bool is_last = axis >= shape->rank - 1;
    const int64_t n = shape->rank ? shape->dims[axis] : 1, stride = shape->rank ? strides[axis] : 0;
    if (is_last && stride == (int64_t)element_bytes) return (char *)memcpy(to, from, (size_t)n * element_bytes) + n * stride;
    for (int64_t i = 0; i < n; i++) {
        if (is_last)
            to = (char *)memcpy(to, from + i * stride, element_bytes) + element_bytes;
        else
            to = copy_strided(to, from + i * stride, shape, strides, axis + 1, element_bytes);
    }
    return to;
}

strata_status strata_jax_Client_BufferFromHostBuffer(pjrt_from_host_args *args, strata_error *err) {
    pjrt_api_client *client = args->client;
    strata_dtype dtype = STRATA_DTYPE_COUNT;
    strata_shape shape;
    int64_t strides[STRATA_MAX_RANK];
    args->buffer = NULL;
    args->done = NULL;
    if ((args->device && args->device != &client->device) || (args->memory && args->memory != &client->device.memory))
        return strata_fail(err, STRATA_INVALID, "an array is copied to a device of another client");
    STRATA_TRY(find_dtype(args->type, &dtype, err));
    const size_t element_bytes = strata_dtype_bytes(dtype);
    STRATA_TRY(read_shape(args, element_bytes, &shape, strides, err));
    STRATA_TRY(check_layout(args->layout, shape.rank, err));
    if (!args->data && strata_shape_elements(shape)) return strata_fail(err, STRATA_INVALID, "an array has no memory");
    STRATA_TRY(strata_jax_buffer_create(client, dtype, shape, &args->buffer, err));
    if (strata_shape_elements(shape))
        copy_strided(args->buffer->values->array.data, args->data, &shape, strides, 0, element_bytes);
    args->done = &strata_jax_ready;
    return STRATA_OK;
}

strata_status strata_jax_Buffer_ToHostBuffer(pjrt_to_host_args *args, strata_error *err) {
    const size_t bytes = strata_jax_buffer_bytes(args->buffer);
    args->done = NULL;
    if (!args->target) {
        args->target_size = bytes;
        return STRATA_OK;
    }
    STRATA_TRY(check_layout(args->layout, args->buffer->shape.rank, err));
    if (args->target_size < bytes)
        return strata_fail(err, STRATA_INVALID, "an array has %zu bytes, the memory for it has %zu", bytes, args->target_size);
    strata_jax_values *values = strata_jax_buffer_values(args->buffer);
    if (!values) return no_values(err);
    if (bytes) memcpy(args->target, values->array.data, bytes);
    strata_jax_values_release(values);
    args->done = &strata_jax_ready;
    return STRATA_OK;
}
