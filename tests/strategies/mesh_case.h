/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of model_parallel: small models with random data, meshes, and runs whose results are compared. The
 * functions fail the running test on an error. */
#ifndef STRATA_TESTS_STRATEGIES_MESH_CASE_H
#define STRATA_TESTS_STRATEGIES_MESH_CASE_H

#include <criterion/criterion.h>
#include <string.h>

#include "strata/strata.h"

enum { MOST_COLUMNS = 2, MOST_LOSSES = 60, N_MESHES = 8 };

/* The error of the newest call that failed. */
extern strata_error mesh_error;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s: %s", #call, mesh_error.message)
#define FAILS(call, status, text)                                                                                       \
    do {                                                                                                                \
        const strata_status got_status = (call);                                                                        \
        cr_assert_eq(got_status, status, "%s: status %d: %s", #call, (int)got_status, mesh_error.message);              \
        cr_assert_not_null(strstr(mesh_error.message, text), "%s: \"%s\" without %s", #call, mesh_error.message, text); \
    } while (0)

/* Meshes of each axis alone and of several together. */
extern const char *const mesh_names[N_MESHES];

/* An input or a target: random numbers from -1 to 1, or, with n_classes, from 0 to n_classes - 1. */
typedef struct mesh_column {
    const char *name;
    strata_shape shape; /* of one example */
    int64_t n_classes;
    double scale; /* of the random numbers; 0: 1 */
} mesh_column;

typedef struct mesh_job {
    const char *model; /* JSON */
    mesh_column inputs[MOST_COLUMNS], targets[MOST_COLUMNS];
    strata_optimizer optimizer;
    const char *metrics;
    strata_dtype precision;
    bool weighted; /* examples and classes have weights */
    int64_t n, batch;
    int epochs;
} mesh_job;

/* mesh_dense: one dense layer after another. mesh_pictures: convolutions, with batch norm and dropout. mesh_recurrent and
 * mesh_attention: tokens, some of which are padding. mesh_functional: two inputs, two outputs, a value that is added again some
 * calls later, and a layer that is called at the beginning and near the end. mesh_penalized: L2 penalties of several layers.
 * mesh_wide: dense layers whose kernels are large enough that ZeRO divides them. */
extern const mesh_job mesh_dense, mesh_wide, mesh_pictures, mesh_recurrent, mesh_attention, mesh_functional, mesh_penalized;
/* The beginning of a model of tokens in JSON: its embedding. */
#define TOKENS                                                                                                            \
    "\"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 12, \"units\": 8, \"mask_zero\": " \
    "true},"
typedef struct mesh_data {
    strata_array arrays[2 * MOST_COLUMNS];
    int n_arrays;
    strata_dataset *dataset;
} mesh_data;
/* n examples; the same seed gives the same ones. */
mesh_data mesh_data_make(const mesh_job *job, int64_t n, uint64_t seed);
void mesh_data_free(mesh_data *data);

/* A mesh, and how it computes; mesh NULL: one device. devices NULL: all are the host. */
typedef struct mesh_setup {
    const char *mesh;
    int microbatches;
    const char *schedule, *layout;
    int zero;
    const char *const *devices;
} mesh_setup;
strata_strategy *mesh_strategy(const mesh_setup *setup);
strata_model *mesh_model(const mesh_job *job, strata_strategy *strategy);
strata_fit_options mesh_fit_options(const mesh_job *job);

/* Numbers that a run ends with. */
typedef struct mesh_numbers {
    float *values;
    int64_t n;
} mesh_numbers;

typedef struct mesh_outcome {
    int n_losses;
    float losses[MOST_LOSSES];
    int64_t n_skipped;
    strata_metrics trained, evaluated;
    mesh_numbers predictions, parameters;
    bool equal;
} mesh_outcome;
void mesh_outcome_free(mesh_outcome *outcome);
/* The model's parameters and states, one after another; the caller frees them. */
mesh_numbers mesh_parameters(strata_model *model);
/* Evaluates, predicts and reads the parameters. */
void mesh_look(strata_model *model, const mesh_data *data, mesh_outcome *out);
/* Trains the job under the setup. */
mesh_outcome mesh_run(const mesh_job *job, const mesh_setup *setup);

/* Whether got differs from wanted by at most tolerance (1 + |wanted|). */
bool mesh_near(double got, double wanted, double tolerance);
/* what, kind: for the message. */
void mesh_expect_numbers(const mesh_numbers *got, const mesh_numbers *wanted, double tolerance, const char *what,
                         const char *kind);
void mesh_expect_metrics(const strata_metrics *got, const strata_metrics *wanted, double tolerance, const char *what);

#endif
