/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread runs the model. Callers add their examples to its queue and wait for their part of the predictions. Each number of
 * examples needs a compiled program, so batches are padded with zeros to the next power of two. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "answers.h"
#include "cli.h"
#include "serve.h"

/* The examples of one caller. The job is on the caller's stack, and the caller waits until it is `done`. */
typedef struct job {
    const strata_array *examples;
    strata_array *predictions;
    strata_status status;
    strata_error *err;
    bool done;
    struct job *next;
} job;

struct batches {
    const served_model *served;
    int64_t batch, most_waiting;
    double seconds;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t added, answered;
    job *first, **last;
    /* How many calls are waiting in the queue, and are in the queue or being computed; and the most that were there
     * together since a batch last waited in vain. */
    int queued, inside, together;
    batch_counts counts;
    bool ending, started;
};

static int64_t examples_of(const strata_array *a) {
    return a->shape.dims[0];
}

static size_t example_bytes(const strata_array *a) {
    return strata_array_bytes(a) / (size_t)examples_of(a);
}

/* How many examples a run has that is padded to contain n: a power of two up to `batch`, then a multiple of `batch`. */
static int64_t padded_size(int64_t n, int64_t batch) {
    int64_t size = 1;
    while (size < n && size < batch) size *= 2;
    if (size > batch) size = batch;
    return n <= size ? size : (n + batch - 1) / batch * batch;
}

/* Makes a dataset of the examples. For a model with several inputs, the examples are divided into `parts`, an array for each
 * input, which must outlive the dataset. */
static strata_status make_dataset(const served_model *served, const strata_array *together, strata_array parts[MOST_ARRAYS],
                                  strata_dataset **out, strata_error *err) {
    if (!served->several) return strata_dataset_from_arrays(together, NULL, 0, out, err);
    strata_data_column inputs[MOST_ARRAYS];
    const int n_inputs = strata_model_n_inputs(served->model);
    const int64_t n = together->shape.dims[0], width = together->shape.dims[1];
    int64_t at = 0;
    if (n_inputs > MOST_ARRAYS) return strata_fail(err, STRATA_UNSUPPORTED, "the model has more than %d inputs", MOST_ARRAYS);
    for (int k = 0; k < n_inputs; k++) {
        const strata_model_port port = strata_model_input_port(served->model, k);
        const int64_t own = strata_shape_elements(port.shape);
        strata_shape shape = {.rank = port.shape.rank + 1, .dims = {n}};
        memcpy(shape.dims + 1, port.shape.dims, sizeof(int64_t) * (size_t)port.shape.rank);
        STRATA_TRY(strata_array_create(port.dtype, shape, &parts[k], err));
        for (int64_t i = 0; i < n; i++) /* elements of all types have 4 bytes */
            memcpy((char *)parts[k].data + 4 * i * own, (const char *)together->data + 4 * (i * width + at), (size_t)(4 * own));
        inputs[k] = (strata_data_column){.name = port.name, .array = &parts[k]};
        at += own;
    }
    return strata_dataset_from_columns(inputs, n_inputs, NULL, 0, out, err);
}

/* Runs the model on all examples of the list, n in all. */
static strata_status predict_all(batches *all, const job *list, int64_t n, strata_array *out, strata_error *err) {
    const int64_t size = padded_size(n, all->batch);
    strata_shape shape = list->examples->shape;
    shape.dims[0] = size;
    strata_array together = {0}, parts[MOST_ARRAYS] = {{0}};
    strata_dataset *data = NULL;
    STRATA_TRY(strata_array_create(list->examples->dtype, shape, &together, err)); /* filled with 0, which is the padding */
    char *at = together.data;
    for (const job *j = list; j; j = j->next) {
        memcpy(at, j->examples->data, strata_array_bytes(j->examples));
        at += strata_array_bytes(j->examples);
    }
    strata_status status = make_dataset(all->served, &together, parts, &data, err);
    if (!status) status = predict_outputs(all->served->model, data, size < all->batch ? size : all->batch, out, err);
    strata_dataset_destroy(data);
    for (int k = 0; k < MOST_ARRAYS; k++) strata_array_finish(&parts[k]);
    strata_array_finish(&together);
    if (!status && all->served->preprocessing) strata_preprocessing_restore(all->served->preprocessing, out);
    return status;
}

/* Copies to each caller its part of the predictions. */
static void answer(job *list, const strata_array *predictions, strata_status status, const strata_error *err) {
    const size_t bytes = status ? 0 : example_bytes(predictions);
    const char *at = status ? NULL : predictions->data;
    for (job *j = list; j; j = j->next) {
        j->status = status;
        if (status) {
            strata_fail(j->err, status, "%s", err->message);
            continue;
        }
        strata_shape shape = predictions->shape;
        shape.dims[0] = examples_of(j->examples);
        j->status = strata_array_create(predictions->dtype, shape, j->predictions, j->err);
        if (!j->status) memcpy(j->predictions->data, at, bytes * (size_t)shape.dims[0]);
        at += bytes * (size_t)shape.dims[0];
    }
}

/* Whether a batch that waits may get more examples. */
static bool may_grow(const batches *all) {
    return all->counts.waiting < all->batch && (all->counts.announced || all->queued < all->together) && !all->ending;
}

/* Waits for a first job, then as long as others may join it and the time is not over. Removes jobs from the queue as
 * long as their examples fit in a batch; the first job is removed in any case. */
static job *take_jobs(batches *all, int64_t *out_n) {
    while (!all->first && !all->ending) pthread_cond_wait(&all->added, &all->mutex);
    if (!all->first) return NULL;
    const struct timespec deadline = time_after(all->seconds);
    while (may_grow(all))
        if (pthread_cond_timedwait(&all->added, &all->mutex, &deadline) == ETIMEDOUT) {
            all->together = all->queued;
            break;
        }
    job *list = all->first, **end = &all->first;
    int64_t n = 0;
    for (job *j = list; j && (!n || n + examples_of(j->examples) <= all->batch); j = j->next) {
        n += examples_of(j->examples);
        end = &j->next;
        all->queued--;
    }
    all->first = *end;
    *end = NULL;
    if (!all->first) all->last = &all->first;
    all->counts.waiting -= n;
    *out_n = n;
    return list;
}

static void *run_batches(void *argument) {
    batches *all = argument;
    int64_t n = 0;
    pthread_mutex_lock(&all->mutex);
    for (job *list; (list = take_jobs(all, &n));) {
        pthread_mutex_unlock(&all->mutex);
        strata_array predictions = {0};
        strata_error err = {0};
        strata_status status = predict_all(all, list, n, &predictions, &err);
        answer(list, &predictions, status, &err);
        strata_array_finish(&predictions);
        pthread_mutex_lock(&all->mutex);
        all->counts.batches++;
        all->counts.examples += (uint64_t)n;
        for (job *j = list, *next; j; j = next) {
            next = j->next; /* the caller of a job that is done may return, and the job is then no longer valid */
            j->done = true;
        }
        pthread_cond_broadcast(&all->answered);
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

void batches_announce(batches *all) {
    pthread_mutex_lock(&all->mutex);
    all->counts.announced++;
    pthread_mutex_unlock(&all->mutex);
}

void batches_withdraw(batches *all) {
    pthread_mutex_lock(&all->mutex);
    all->counts.announced--;
    pthread_cond_signal(&all->added);
    pthread_mutex_unlock(&all->mutex);
}

strata_status predict_in_batch(batches *all, const strata_array *examples, strata_array *out_predictions, strata_error *err) {
    job own = {.examples = examples, .predictions = out_predictions, .err = err};
    pthread_mutex_lock(&all->mutex);
    all->counts.announced--;
    if (all->counts.waiting + examples_of(examples) > all->most_waiting && all->counts.waiting) {
        const int64_t waiting = all->counts.waiting;
        pthread_cond_signal(&all->added);
        pthread_mutex_unlock(&all->mutex);
        return strata_fail(err, STRATA_UNAVAILABLE, "%lld examples are waiting already; try again later", (long long)waiting);
    }
    *all->last = &own;
    all->last = &own.next;
    all->counts.waiting += examples_of(examples);
    all->queued++;
    all->inside++;
    if (all->inside > all->together) all->together = all->inside;
    pthread_cond_signal(&all->added);
    while (!own.done) pthread_cond_wait(&all->answered, &all->mutex);
    all->inside--;
    pthread_mutex_unlock(&all->mutex);
    return own.status;
}

batch_counts count_batches(batches *all) {
    pthread_mutex_lock(&all->mutex);
    const batch_counts counts = all->counts;
    pthread_mutex_unlock(&all->mutex);
    return counts;
}

/* Compiles the programs for a single example and for a whole batch, by running them. */
static strata_status warm_up(batches *all, strata_error *err) {
    for (int64_t n = 1;; n = all->batch) {
        strata_array examples = {0}, predictions = {0};
        strata_shape shape = {.rank = all->served->element.rank + 1, .dims = {n}};
        memcpy(shape.dims + 1, all->served->element.dims, sizeof(int64_t) * (size_t)all->served->element.rank);
        STRATA_TRY(strata_array_create(all->served->dtype, shape, &examples, err));
        const job alone = {.examples = &examples};
        strata_status status = predict_all(all, &alone, n, &predictions, err);
        strata_array_finish(&examples);
        strata_array_finish(&predictions);
        if (status || n == all->batch) return status;
    }
}

strata_status batches_create(const served_model *served, int64_t batch, double seconds, int64_t most_waiting, batches **out,
                             strata_error *err) {
    batches *all = calloc(1, sizeof *all);
    if (!all) return strata_fail(err, STRATA_OUT_OF_MEMORY, "serve: no host memory");
    *all = (batches){.served = served, .batch = batch, .seconds = seconds, .most_waiting = most_waiting};
    all->last = &all->first;
    pthread_mutex_init(&all->mutex, NULL);
    condition_init(&all->added);
    pthread_cond_init(&all->answered, NULL);
    strata_status status = warm_up(all, err);
    int failed = status ? 0 : pthread_create(&all->thread, NULL, run_batches, all);
    if (failed) status = strata_fail(err, STRATA_UNAVAILABLE, "serve: the system cannot start a thread: %s", strerror(failed));
    all->started = !status;
    if (status)
        batches_destroy(all);
    else
        *out = all;
    return status;
}

void batches_destroy(batches *all) {
    if (!all) return;
    if (all->started) {
        pthread_mutex_lock(&all->mutex);
        all->ending = true;
        pthread_cond_signal(&all->added);
        pthread_mutex_unlock(&all->mutex);
        pthread_join(all->thread, NULL);
    }
    pthread_cond_destroy(&all->added);
    pthread_cond_destroy(&all->answered);
    pthread_mutex_destroy(&all->mutex);
    free(all);
}
