/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of strata serve: converting a request's JSON to examples (serve_inputs.c), combining the examples of several
 * requests to one batch (serve_batches.c), and HTTP (serve.c). */
#ifndef STRATA_SAMPLES_SERVE_H
#define STRATA_SAMPLES_SERVE_H

#include "samples.h"

/* The model that is served. Read by any number of threads; only the thread of the batches runs it. */
typedef struct served_model {
    strata_model *model;
    const sample *sample;
    strata_preprocessing *preprocessing; /* NULL: none */
    strata_tokenizer *tokenizer;         /* NULL: none */
    /* Of one example, as the model takes it. */
    strata_shape element;
    strata_dtype dtype;
    /* Of a model with several inputs: an example is f32, all inputs end to end in their order, an i32 input by its bits. */
    bool several;
} served_model;

/* ---- serve_inputs.c ---- */
/* The examples of a request's body as an array (n, element...), which the caller finishes.
 *   {"inputs": [[...], ...]}        numbers of the model's shape, one array an example; null is a missing value
 *   {"rows": [{"column": 5.1}, ...]} or [[5.1, ...], ...]     rows of the table that the model learned from
 *   {"inputs": {"left": [[...], ...], "right": [[...], ...]}}     the same of a model with several inputs, by their names
 *   {"texts": ["...", ...]}
 * or, with `picture`, the bytes of a picture. Fails: DATA for what does not fit, with the place in the JSON. */
strata_status read_inputs(const served_model *served, const char *body, size_t n_bytes, bool picture, strata_array *out,
                          strata_error *err);

/* ---- serve_batches.c ---- */
typedef struct batches batches;
typedef struct batch_counts {
    uint64_t batches, examples;
    /* Examples that wait. */
    int64_t waiting;
} batch_counts;

/* A thread that runs the model on the examples of all callers of predict_in_batch together: as soon as `batch` of them wait, or
 * `seconds` after the first came. batches_create runs the model once, so that the first request does not wait for kernels. */
strata_status batches_create(const served_model *served, int64_t batch, double seconds, int64_t most_waiting, batches **out,
                             strata_error *err);
/* Answers to the examples, f32 (n, ...), which the caller finishes. Any number of threads at once. Fails: UNAVAILABLE where too
 * many examples wait already; what predicting fails with. */
strata_status predict_in_batch(batches *all, const strata_array *examples, strata_array *out_predictions, strata_error *err);
batch_counts count_batches(batches *all);
void batches_destroy(batches *all); /* after all callers returned; NULL is fine */

#endif
