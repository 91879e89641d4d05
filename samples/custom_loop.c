/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a custom training loop over a model, which is the same under every strategy.
 *
 *     ./custom_loop                               the best device
 *     ./custom_loop mirrored opencl:0 host        a replica on each
 *     ./custom_loop central_storage opencl:0.0 opencl:0.1
 *     ./custom_loop model_parallel opencl:0 host  a layer on each
 *     strata launch -n 2 -- ./custom_loop multi_worker_mirrored host */
#include <stdio.h>
#include <strata/strata.h>

static strata_model *model;
static strata_distributed_optimizer *optimizer;

/* The step of one replica. It builds a graph, once for each size of the replica's part of a batch; later steps run this graph.
 * user: the name of the loss. */
static strata_status train_step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    strata_tensor *predictions = strata_model_apply(model, replica, inputs[0], true);
    strata_tensor *loss = strata_replica_average_loss(replica, strata_example_losses(user, NULL, predictions, inputs[1]));
    strata_optimizer_minimize(replica, optimizer, loss, strata_model_variables(model));
    strata_replica_return(replica, loss);
    return strata_graph_check(strata_replica_graph(replica), err);
}

/* If the call fails, prints the error and ends main. */
#define TRY(call) \
    if (call) return fprintf(stderr, "custom_loop: %s\n", err.message), 1

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_dataset *dataset = NULL;
    strata_distributed_batches *batches = NULL;
    strata_function *function = NULL;
    strata_per_replica inputs[2] = {0};
    const strata_strategy_options devices = {.devices = (const char *const *)argv + 2, .n_devices = argc > 2 ? argc - 2 : 0};

    TRY(strata_strategy_create(argc > 1 ? argv[1] : "default", &devices, &strategy, &err));
    TRY(strata_strategy_enter(strategy, &err));
    TRY(strata_model_create(STRATA_SHAPE(10), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 64, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    TRY(strata_model_build(model, NULL, &(strata_compile_options){.strategy = strategy}, &err));
    TRY(strata_distributed_optimizer_create(&(strata_optimizer){.name = "adam"}, &optimizer, &err));
    TRY(strata_strategy_exit(strategy, &err));
    TRY(strata_dataset_random(STRATA_SHAPE(10), STRATA_SHAPE(1), 1000, 1, &dataset, &err));
    TRY(strata_distributed_batches_create(strategy, dataset, NULL, &batches, &err));
    TRY(strata_function_create(strategy, train_step, "mse", &function, &err));
    for (int epoch = 1; epoch <= 5; epoch++) {
        double total_loss = 0, n_batches = 0, loss = 0;
        for (int64_t n = 0;; total_loss += loss, n_batches++) {
            TRY(strata_distributed_batches_next(batches, inputs, &n, &err));
            if (!n) break;
            TRY(strata_strategy_run_scalar(function, inputs, 2, STRATA_REDUCE_SUM, &loss, &err));
        }
        if (strata_strategy_is_chief(strategy)) printf("Epoch %d, Loss: %.4f\n", epoch, total_loss / n_batches);
    }
    strata_strategy_destroy(strategy); /* also destroys everything that was created with it */
    strata_dataset_destroy(dataset);
    return 0;
}
