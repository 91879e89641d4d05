/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects of the PJRT plugin for JAX, and what its files share. functions.def lists the functions of the C API. Those that
 * do more than to return a value are strata_jax_<name>; they return a status, which plugin.c converts to an error object. */
#ifndef STRATA_FRONTEND_PLUGIN_H
#define STRATA_FRONTEND_PLUGIN_H

#include <stdatomic.h>

#include "backends/pjrt/api.h"
#include "core/base/alloc.h"
#include "core/base/locked.h"
#include "strata/executable.h"

struct pjrt_api_error {
    int code;
    char message[STRATA_ERROR_MESSAGE_BYTES];
};

struct pjrt_api_event {
    int unused;
};
/* All work is done when a call returns, so this one event is that of every call. It is ready and without an error. */
extern pjrt_api_event strata_jax_ready;

struct pjrt_api_memory {
    pjrt_api_client *client;
};

/* Also the pjrt_api_description of the device. */
struct pjrt_api_device {
    strata_device *device;
    pjrt_api_memory memory, *memories[1];
    /* What the driver calls the device, and what users of JAX see: "StrataDevice(id=0, opencl:0)". */
    char kind[128], text[64];
};

struct pjrt_api_client {
    /* The caller's, and one for each buffer and program. */
    atomic_int references;
    pjrt_api_device device, *devices[1];
};

struct pjrt_api_buffer {
    pjrt_api_client *client;
    /* PJRT_TYPE_F32 ... */
    int type;
    strata_dtype dtype;
    strata_shape shape;
    /* For `values`. */
    pthread_mutex_t lock;
    /* In host memory, row-major. NULL: the buffer was deleted, or a program took its memory (donation). */
    struct strata_jax_values *values;
};

/* The elements of a buffer. A program that reads them has a reference, so that another thread may delete the buffer. */
typedef struct strata_jax_values {
    atomic_int references;
    strata_array array;
} strata_jax_values;

struct pjrt_api_executable {
    size_t n_outputs;
    /* The module's: "jit_step". */
    char name[128];
};

struct pjrt_api_loaded {
    pjrt_api_client *client;
    char name[128];
    atomic_bool is_deleted;
    /* One run at a time. */
    pthread_mutex_t lock;
    /* NULL: the program has no outputs, so that there is nothing to run. */
    strata_executable *executable;
    int n_inputs, n_outputs;
    /* The inputs, then the outputs. */
    struct strata_jax_value {
        strata_dtype dtype;
        strata_shape shape;
        /* Of an input: its index in the executable, or -1 if no output depends on it. */
        int index;
        /* Of an input: the run deletes it, since its memory is meant for an output. */
        bool is_donated;
    } * values;
};

/* Whether a struct of the caller, which may be shorter than ours, contains a field. */
#define STRATA_JAX_HAS(args, field) \
    ((args)->head.struct_size >= (size_t)((const char *)(&(args)->field + 1) - (const char *)(args)))

static inline void strata_jax_text(pjrt_text_args *args, const char *text) {
    args->text = text;
    args->text_size = strlen(text);
}

static inline void strata_jax_list(pjrt_list_args *args, const void *list, size_t n) {
    args->list = list;
    args->n = n;
}

void strata_jax_client_retain(pjrt_api_client *client);
void strata_jax_client_release(pjrt_api_client *client); /* NULL is fine */

/* A buffer whose elements are 0. Fails: OUT_OF_MEMORY, and INVALID for a shape that strata_shape_check refuses. */
STRATA_MUST_USE strata_status strata_jax_buffer_create(pjrt_api_client *client, strata_dtype dtype, strata_shape shape,
                                                       pjrt_api_buffer **out_buffer, strata_error *err);
void strata_jax_buffer_destroy(pjrt_api_buffer *buffer); /* NULL is fine */
/* Deletes the elements, as soon as nobody reads them any more. */
void strata_jax_buffer_delete(pjrt_api_buffer *buffer);
bool strata_jax_buffer_is_deleted(pjrt_api_buffer *buffer);
size_t strata_jax_buffer_bytes(const pjrt_api_buffer *buffer);
/* Returns the elements with a reference for the caller; NULL: the buffer was deleted. */
strata_jax_values *strata_jax_buffer_values(pjrt_api_buffer *buffer);
void strata_jax_values_release(strata_jax_values *values); /* NULL is fine */

#define VALUE(place, name, arguments, last, assignment)
#define METHOD(place, name, arguments, last) FUNCTION(place, name, arguments, last)
#define FUNCTION(place, name, arguments, last) \
    STRATA_MUST_USE strata_status strata_jax_##name(arguments *args, strata_error *err);
#define MISSING(place, name)
#include "core/frontend/pjrt/functions.def"

#endif
