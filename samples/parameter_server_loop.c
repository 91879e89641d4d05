/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a custom training loop with parameter servers. The servers store the model's parameters, each worker makes steps at
 * its own speed, and the chief's coordinator schedules the steps. All tasks run this program:
 *
 *     strata launch --workers 2 --ps 1 -- parameter_server_loop                  on this machine
 *
 * The same by hand, each task in a terminal:
 *
 *     export STRATA_CLUSTER="chief=127.0.0.1:2220;worker=127.0.0.1:2221,127.0.0.1:2222;ps=127.0.0.1:2223"
 *     STRATA_TASK=ps:0 parameter_server_loop
 *     STRATA_TASK=worker:0 parameter_server_loop
 *     STRATA_TASK=worker:1 parameter_server_loop
 *     STRATA_TASK=chief parameter_server_loop
 *
 * TF_CONFIG, Slurm or Kubernetes can define the cluster instead (cluster/resolver). "parameter_server_loop host" computes on
 * the host; without an argument the best device of the machine is used. */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>
#include <string.h>

enum { EPOCHS = 5, STEPS_PER_EPOCH = 60 };

/* If the call fails, prints the error and ends the function. */
#define TRY(call)                                                                        \
    do {                                                                                 \
        if (call) return fprintf(stderr, "parameter_server_loop: %s\n", err.message), 1; \
    } while (0)

static strata_strategy *strategy;
static strata_remote_model *remote;

/* An iterator over the data of a worker. */
typedef struct iterator {
    strata_dataset *dataset;
    strata_distributed_batches *batches;
} iterator;

static void close_data(void *object, void *user) {
    iterator *it = object;
    (void)user;
    strata_distributed_batches_destroy(it->batches);
    strata_dataset_destroy(it->dataset);
    free(it);
}

static strata_status open_data(const strata_remote_call *call, void **out_object, strata_error *err) {
    iterator *it = calloc(1, sizeof *it);
    if (!it) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an iterator");
    strata_status status =
        strata_dataset_random(STRATA_SHAPE(10), STRATA_SHAPE(1), 1000, (uint64_t)call->worker, &it->dataset, err);
    /* a batch has 32 examples */
    if (!status) status = strata_distributed_batches_create(strategy, it->dataset, NULL, &it->batches, err);
    if (status)
        close_data(it, NULL);
    else
        *out_object = it;
    return status;
}

/* One step: the iterator's next batch, the gradients of its loss, and the servers' update. Its result is the loss. */
static strata_status step(const strata_remote_call *call, strata_array *results, int n_results, strata_error *err) {
    iterator *it = call->inputs[0].object;
    strata_per_replica inputs[2] = {0};
    double loss = 0;
    int64_t n = 0;
    (void)n_results;
    while (!n) STRATA_TRY(strata_distributed_batches_next(it->batches, inputs, &n, err)); /* 0 at the end of an epoch */
    STRATA_TRY(
        strata_remote_model_step(remote, (int64_t)call->closure, &inputs[0].arrays[0], &inputs[1].arrays[0], &loss, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(), &results[0], err));
    *(float *)results[0].data = (float)loss;
    return STRATA_OK;
}

/* The coordinator calls these functions by their names. All tasks have the same table, since code is not sent. */
static const strata_remote_function functions[] = {{.name = "data", .make = open_data, .unmake = close_data},
                                                   {.name = "step", .run = step, .n_results = 1}};

static int coordinate(const strata_cluster_spec *spec, const strata_communicator_options *security, strata_model *model) {
    const strata_cluster_job *workers = &spec->jobs[STRATA_TASK_WORKER];
    const strata_coordinator_options options = {.workers = (const char *const *)workers->addresses,
                                                .n_workers = workers->n_tasks,
                                                .cluster = security,
                                                .functions = functions,
                                                .n_functions = 2};
    strata_remote_value *losses[STEPS_PER_EPOCH];
    strata_coordinator *coordinator = NULL;
    strata_per_worker *data = NULL;
    strata_error err = {0};
    TRY(strata_remote_model_open(model, &remote, &err));
    TRY(strata_coordinator_create(&options, &coordinator, &err));
    TRY(strata_per_worker_create(coordinator, "data", NULL, 0, &data, &err));
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double sum = 0;
        for (int i = 0; i < STEPS_PER_EPOCH; i++)
            TRY(strata_coordinator_schedule(coordinator, "step", &(strata_remote_arg){.per_worker = data}, 1, &losses[i],
                                            &err));
        TRY(strata_coordinator_join(coordinator, &err));
        for (int i = 0; i < STEPS_PER_EPOCH; i++) {
            strata_array loss;
            TRY(strata_remote_value_fetch(losses[i], &loss, 1, &err));
            sum += *(float *)loss.data;
            strata_array_finish(&loss);
            strata_remote_value_release(losses[i]);
        }
        printf("Epoch %d, Loss: %.4f\n", epoch, sum / STEPS_PER_EPOCH);
    }
    strata_coordinator_destroy(coordinator);
    TRY(strata_remote_model_fetch(remote,
                                  &err)); /* the chief's model now has the trained parameters, and can be saved or evaluated */
    puts("Parameter server training completed");
    return 0;
}

static int serve_closures(const strata_cluster_spec *spec, const strata_communicator_options *security, strata_model *model) {
    const strata_cluster_job *workers = &spec->jobs[STRATA_TASK_WORKER];
    const strata_coordinator_worker_options options = {.worker = spec->task_index,
                                                       .n_workers = workers->n_tasks,
                                                       .address = workers->addresses[spec->task_index],
                                                       .cluster = security,
                                                       .functions = functions,
                                                       .n_functions = 2};
    strata_error err = {0};
    TRY(strata_remote_model_open(model, &remote, &err));
    TRY(strata_coordinator_serve(&options, &err));
    return 0;
}

int main(int argc, char **argv) {
    const char *secret = getenv("STRATA_SECRET");
    const strata_communicator_options security = {.secret = secret, .secret_bytes = secret ? strlen(secret) : 0};
    strata_cluster_spec spec;
    strata_model *model = NULL;
    strata_error err = {0};
    int result = 0;
    TRY(strata_cluster_spec_resolve(NULL, &spec, &err));
    const strata_strategy_options options = {.devices = (const char *const *)argv + 1, .n_devices = argc > 1};
    TRY(strata_strategy_create("parameter_server", &options, &strategy, &err));
    TRY(strata_model_create(STRATA_SHAPE(10), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 64, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 64, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    TRY(strata_model_compile(
        model, NULL, &(strata_compile_options){.strategy = strategy, .optimizer = {.name = "adam"}, .loss = "mse"}, &err));
    if (spec.task_type == STRATA_TASK_PS)
        TRY(strata_remote_model_serve(model, &err));
    else
        result =
            spec.task_type == STRATA_TASK_CHIEF ? coordinate(&spec, &security, model) : serve_closures(&spec, &security, model);
    strata_remote_model_close(remote);
    strata_strategy_destroy(strategy); /* also destroys everything that was created with it */
    strata_cluster_spec_finish(&spec);
    return result;
}
