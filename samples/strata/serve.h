/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of strata serve: converting a request's JSON to examples (serve_inputs.c), combining the examples of several
 * requests to one batch (serve_batches.c), and the pages (serve.c) on a server of HTTP (http.h). */
#ifndef STRATA_SAMPLES_SERVE_H
#define STRATA_SAMPLES_SERVE_H

#include "samples.h"
#include "strata/text.h"

/* The model that is served. All threads may read it; only the thread of the batches runs the model. */
typedef struct served_model {
    strata_model *model;
    const sample *sample;
    strata_preprocessing *preprocessing; /* NULL: none */
    strata_tokenizer *tokenizer;         /* NULL: none */
    /* The shape of one example. */
    strata_shape element;
    strata_dtype dtype;
    /* The model has several inputs. An example is then f32 and contains all inputs, one after the other; the values of an i32
     * input are stored as they are, without converting them to f32. */
    bool several;
} served_model;

/* ---- serve_inputs.c ---- */
/* Reads the examples of a request's body as an array (n, element...), which the caller finishes. The body is one of:
 *   {"inputs": [[...], ...]}        numbers in the model's shape, one array per example; null is a missing value
 *   {"rows": [{"column": 5.1}, ...]} or [[5.1, ...], ...]     rows with the columns of the table that the model was trained on
 *   {"inputs": {"left": [[...], ...], "right": [[...], ...]}}     the inputs by name, for a model with several
 *   {"texts": ["...", ...]}
 * or a picture; with `picture` the body can be nothing else. Adds to *warnings what the client should know, as strata predict
 * prints it: a line for words that the training data did not have, and for each field that is no column of the table. Fails:
 * DATA, with the position in the JSON, if something does not fit the model. */
strata_status read_inputs(const served_model *served, const char *body, size_t n_bytes, bool picture, strata_array *out,
                          strata_text *warnings, strata_error *err);

/* ---- serve_batches.c ---- */
typedef struct batches batches;
typedef struct batch_counts {
    uint64_t batches, examples;
    /* How many examples are in the queue. */
    int64_t waiting;
    /* How many calls of predict_in_batch are announced. */
    int64_t announced;
} batch_counts;

/* Starts a thread that runs the model on the examples of all callers of predict_in_batch together. A batch waits for further
 * callers only while some are announced, or fewer are in the queue than were there together lately: until `batch` examples are
 * in the queue, or `seconds` have passed since the first was added. A client that is alone never waits. batches_create runs the
 * model once, so that the first request does not wait for the compilation of kernels. */
strata_status batches_create(const served_model *served, int64_t batch, double seconds, int64_t most_waiting, batches **out,
                             strata_error *err);
/* Announces a call of predict_in_batch; batches_withdraw says that it will not be made. */
void batches_announce(batches *all);
void batches_withdraw(batches *all);
/* Computes the predictions for the examples, f32 (n, ...), which the caller finishes. It must have been announced. Several
 * threads may call it at the same time.
 * Fails: UNAVAILABLE if too many examples are in the queue already; as strata_model_predict. */
strata_status predict_in_batch(batches *all, const strata_array *examples, strata_array *out_predictions, strata_error *err);
batch_counts count_batches(batches *all);
void batches_destroy(batches *all); /* after all callers returned; NULL is fine */

#endif
