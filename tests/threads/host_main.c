/* SPDX-License-Identifier: Apache-2.0
 *
 * Each of several threads builds a graph and an executable and trains a model: first on its own host device, then all on one
 * device. All read one dataset. ThreadSanitizer reports state that the threads share by mistake. All threads must compute the
 * same bits. The models are destroyed in another thread than the one that made them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/strata.h"

enum { THREADS = 4, EXAMPLES = 96, FEATURES = 12, CLASSES = 4 };

static float features[EXAMPLES * FEATURES];
static int32_t labels[EXAMPLES];
static strata_dataset *dataset;
/* The device of all threads; NULL: each opens its own. */
static strata_device *shared;

typedef struct worker {
    pthread_t thread;
    strata_status status;
    strata_error err;
    char sha256[65];
    float sum;
    strata_device *device;
    strata_model *model;
} worker;

static strata_status run_graph(strata_device *device, strata_graph *graph, float *out_sum, strata_error *err) {
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, FEATURES));
    strata_tensor *y = strata_reduce_sum(strata_softmax(strata_matmul(x, x, false, true)), NULL, 0, false), *dx;
    strata_gradients(strata_square(y), NULL, &x, 1, &dx);
    y = strata_add(y, strata_reduce_sum(dx, NULL, 0, false));
    strata_executable *exe = NULL;
    STRATA_TRY(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, err));
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, FEATURES), features);
    strata_array output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), out_sum);
    strata_status status = STRATA_OK;
    for (int i = 0; i < 3 && !status; i++)
        status = strata_executable_run(exe, (const char *[]){"x"}, &input, 1, &output, 1, err);
    strata_executable_destroy(exe);
    return status;
}

static strata_status train(strata_device *device, char sha256[65], strata_model **out_model, strata_error *err) {
    strata_model *model = NULL;
    strata_metrics metrics;
    strata_array predictions = {0};
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), &model, err));
    *out_model = model;
    /* so large that the threads of the device share its products */
    strata_model_add_dense(model, (strata_dense_options){.units = 128, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 8, .activation = "relu"});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.1});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
    strata_status status = strata_model_compile(model, device, &(strata_compile_options){.seed = 5}, err);
    if (!status) status = strata_model_fit(model, dataset, &(strata_fit_options){.epochs = 2, .batch = 20}, NULL, err);
    if (!status) status = strata_model_evaluate(model, dataset, 32, &metrics, err);
    if (!status) status = strata_model_predict(model, dataset, 32, &predictions, err);
    if (!status) status = strata_model_sha256(model, sha256, err);
    strata_array_finish(&predictions);
    return status;
}

static strata_status work(worker *w) {
    strata_graph *graph = NULL;
    if (!shared) STRATA_TRY(strata_device_open("host", NULL, &w->device, &w->err));
    strata_device *device = shared ? shared : w->device;
    strata_status status = strata_graph_create(&graph, &w->err);
    if (!status) status = run_graph(device, graph, &w->sum, &w->err);
    if (!status) status = train(device, w->sha256, &w->model, &w->err);
    strata_graph_destroy(graph);
    (void)strata_device_get_counters(device); /* while other threads use the device */
    return status;
}

static void *start(void *user) {
    worker *w = user;
    w->status = work(w);
    return NULL;
}

static int check(const worker *workers) {
    for (int i = 0; i < THREADS; i++) {
        const worker *w = &workers[i];
        if (w->status) {
            fprintf(stderr, "thread %d: %s: %s\n", i, strata_status_name(w->status), w->err.message);
            return 1;
        }
        if (strcmp(w->sha256, workers[0].sha256) != 0 || w->sum != workers[0].sum) {
            fprintf(stderr, "thread %d has %s and %a, thread 0 %s and %a\n", i, w->sha256, w->sum, workers[0].sha256,
                    workers[0].sum);
            return 1;
        }
    }
    return 0;
}

static void *destroy(void *user) {
    worker *w = user;
    strata_model_destroy(w->model);
    strata_device_close(w->device);
    return NULL;
}

/* Starts the function in a thread for each worker, and returns whether all could be started. */
static bool run_threads(worker *workers, void *(*function)(void *)) {
    int n = 0;
    while (n < THREADS && !pthread_create(&workers[n].thread, NULL, function, &workers[n])) n++;
    for (int i = 0; i < n; i++) pthread_join(workers[i].thread, NULL);
    if (n < THREADS) fprintf(stderr, "only %d of %d threads could be started\n", n, THREADS);
    return n == THREADS;
}

static int run_all(void) {
    worker workers[THREADS] = {0};
    if (!run_threads(workers, start)) return 1;
    const int failed = check(workers);
    return run_threads(workers, destroy) ? failed : 1;
}

int main(void) {
    strata_error err = {0};
    for (int i = 0; i < EXAMPLES * FEATURES; i++) features[i] = (float)(i * 31 % 97) / 97 - 0.5f;
    for (int i = 0; i < EXAMPLES; i++) labels[i] = i % CLASSES;
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, FEATURES), features);
    strata_array y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(EXAMPLES), labels);
    if (strata_dataset_from_arrays(&x, &y, 0, &dataset, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int failed = run_all();
    if (!failed && strata_device_open("host", NULL, &shared, &err)) {
        fprintf(stderr, "%s\n", err.message);
        failed = 1;
    }
    if (!failed) failed = run_all();
    strata_device_close(shared);
    strata_dataset_destroy(dataset);
    return failed;
}
