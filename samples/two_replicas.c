/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a custom training loop with Adam on two replicas, each of which computes half of a batch. */
#include <stdio.h>
#include <strata/strata.h>
static strata_model *model;
static strata_distributed_optimizer *adam;

/* Builds the graph of a replica's step, once. Gradients are added up over the replicas before the update. */
static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    strata_tensor *outputs = strata_model_apply(model, replica, inputs[0], true);
    strata_tensor *loss = strata_replica_average_loss(replica, strata_example_losses(user, NULL, outputs, inputs[1]));
    strata_optimizer_minimize(replica, adam, loss, strata_model_variables(model));
    strata_replica_return(replica, loss);
    return strata_graph_check(strata_replica_graph(replica), err);
}

#define TRY(call) \
    if (call) return fprintf(stderr, "two_replicas: %s\n", err.message), 1
int main(void) {
    strata_error err = {0};
    strata_strategy *strategy;
    strata_dataset *data;
    strata_distributed_batches *batches;
    strata_function *function;
    strata_per_replica inputs[2] = {0};
    const strata_strategy_options devices = {.devices = (const char *const[]){"host", "host"}, .n_devices = 2};
    TRY(strata_strategy_create("mirrored", &devices, &strategy, &err));
    TRY(strata_strategy_enter(strategy, &err));
    TRY(strata_model_create(STRATA_SHAPE(10), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    TRY(strata_model_build(model, NULL, &(strata_compile_options){.strategy = strategy}, &err));
    TRY(strata_distributed_optimizer_create(&(strata_optimizer){.name = "adam"}, &adam, &err));
    TRY(strata_strategy_exit(strategy, &err));
    TRY(strata_dataset_random(STRATA_SHAPE(10), STRATA_SHAPE(1), 6400, 1, &data, &err));
    TRY(strata_distributed_batches_create(strategy, data, NULL, &batches, &err));
    TRY(strata_function_create(strategy, step, "mse", &function, &err));
    double loss = 0;
    for (int64_t i = 0, n = 1; n; i++) { /* n is 0 at the end of the epoch */
        TRY(strata_distributed_batches_next(batches, inputs, &n, &err));
        if (n) TRY(strata_strategy_run_scalar(function, inputs, 2, STRATA_REDUCE_SUM, &loss, &err));
        if (n && i % 50 == 0) printf("step %lld: loss %.4f\n", (long long)i, loss);
    }
    strata_strategy_destroy(strategy); /* also destroys everything that was created with it */
}
