/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of engines, which run the programs of the test plugin. One is an interpreter of the ops that Strata
 * generates, the other one passes programs to jaxlib in a child process. */
#ifndef STRATA_TESTS_PJRT_ENGINE_H
#define STRATA_TESTS_PJRT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_RANK = 8, MESSAGE_BYTES = 512 };

/* The first three have the values of strata_dtype. */
typedef enum element_type { F32, F16, BF16, I32, I64, UI8, I1, UI32, UI64, N_TYPES } element_type;

typedef struct tensor_type {
    element_type type;
    int rank;
    int64_t dims[MOST_RANK];
} tensor_type;

size_t element_bytes(element_type type);
int64_t n_elements(const tensor_type *type);

/* The text of a program, and the types of its arguments and results. */
typedef struct program {
    char *text;
    tensor_type *parameters, *results;
    int n_parameters, n_results;
    /* Data of the engine. */
    void *compiled;
} program;

typedef struct engine {
    const char *name;
    /* Compiles the program. Returns 0, or 1 and a message. */
    int (*compile)(program *program, char message[MESSAGE_BYTES]);
    /* Runs the program. arguments[i] and results[i] are arrays in row-major order without gaps. */
    int (*run)(program *program, const void *const *arguments, void *const *results, char message[MESSAGE_BYTES]);
    void (*destroy)(program *program);
} engine;

extern const engine engine_interpreter, engine_jaxlib;

/* Reads a type such as "tensor<4x5xf32>" and advances *at behind it. Returns 0 on success. */
int read_type(const char **at, tensor_type *out_type);

#endif
