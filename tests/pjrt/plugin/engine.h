/* SPDX-License-Identifier: Apache-2.0
 *
 * What runs the programs of the test plugin: our interpreter of the ops that Strata emits, or jaxlib in a child process. */
#ifndef STRATA_TESTS_PJRT_ENGINE_H
#define STRATA_TESTS_PJRT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_RANK = 8, MESSAGE_BYTES = 512 };

/* The first three have the numbers of strata_dtype. */
typedef enum element_type { F32, F16, BF16, I32, I64, UI8, I1, UI32, UI64, N_TYPES } element_type;

typedef struct tensor_type {
    element_type type;
    int rank;
    int64_t dims[MOST_RANK];
} tensor_type;

size_t element_bytes(element_type type);
int64_t n_elements(const tensor_type *type);

/* A program's text, and the types of what it takes and gives. */
typedef struct program {
    char *text;
    tensor_type *parameters, *results;
    int n_parameters, n_results;
    /* The engine's own. */
    void *compiled;
} program;

typedef struct engine {
    const char *name;
    /* Returns 0, or 1 with a message. */
    int (*compile)(program *program, char message[MESSAGE_BYTES]);
    /* arguments[i] and results[i]: packed row-major elements. */
    int (*run)(program *program, const void *const *arguments, void *const *results, char message[MESSAGE_BYTES]);
    void (*destroy)(program *program);
} engine;

extern const engine engine_interpreter, engine_jaxlib;

/* Reads "tensor<4x5xf32>" and moves *at behind it; 0 on success. */
int read_type(const char **at, tensor_type *out_type);

#endif
