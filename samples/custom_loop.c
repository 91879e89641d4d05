/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a training loop of one's own, the same under every strategy. A line is fitted to made data.
 *
 *     custom_loop                                 the best device
 *     custom_loop mirrored opencl:0 host          a replica on each
 *     custom_loop central_storage opencl:0.0 opencl:0.1
 *     strata launch -n 2 -- custom_loop multi_worker_mirrored host */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>
#include <string.h>

enum { EXAMPLES = 100, FEATURES = 3, BATCH = 16, EPOCHS = 20 };

typedef struct line {
    strata_distributed_variable *weights, *velocity, *seen; /* seen: examples, summed when it is read */
} line;

/* One replica's step: the graph that is traced once and replayed. inputs: its examples x (n, 3) and y (n, 1); then the numbers
 * that all share. */
static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const line *l = user;
    strata_tensor *x = inputs[0], *y = inputs[1], *share = inputs[2], *words = inputs[3];
    strata_tensor *w = strata_replica_read(replica, l->weights), *dw;
    strata_tensor *errors = strata_square(strata_sub(strata_matmul(x, w, false, false), y));
    strata_tensor *loss =
        strata_mul(strata_reduce_sum(errors, NULL, 0, false), share); /* the sum over examples / the global batch */
    (void)err;
    strata_gradients(loss, NULL, &w, 1, &dw);
    dw = strata_replica_all_reduce(replica, dw, STRATA_REDUCE_SUM);
    strata_replica_update(replica, l->weights,
                          strata_sgd(strata_replica_read(replica, l->weights), strata_replica_read(replica, l->velocity), dw,
                                     words, NULL, 0.5, false));
    strata_tensor *n = strata_scalar(strata_replica_graph(replica), STRATA_DTYPE_F32, (double)strata_tensor_shape(x).dims[0]);
    strata_replica_assign(replica, l->seen, strata_add(strata_replica_read(replica, l->seen), n));
    strata_replica_return(replica, loss);
    return STRATA_OK;
}

static strata_status make_variables(strata_strategy *strategy, line *l, strata_error *err) {
    const strata_distributed_options summed = {.synchronization = STRATA_ON_READ, .aggregation = STRATA_AGGREGATION_SUM};
    STRATA_TRY(strata_strategy_enter(strategy, err));
    STRATA_TRY(strata_distributed_create("weights", STRATA_DTYPE_F32, STRATA_SHAPE(FEATURES, 1), NULL, &l->weights, err));
    STRATA_TRY(strata_distributed_create("velocity", STRATA_DTYPE_F32, STRATA_SHAPE(FEATURES, 1), NULL, &l->velocity, err));
    STRATA_TRY(strata_distributed_create("seen", STRATA_DTYPE_F32, STRATA_SHAPE(), &summed, &l->seen, err));
    return strata_strategy_exit(strategy, err);
}

/* One epoch; the mean loss of its steps. */
static strata_status train(strata_strategy *strategy, strata_function *function, const strata_dataset *data, int epoch,
                           double *out_loss, strata_error *err) {
    float share, words[STRATA_STEP_WORDS] = {[STRATA_STEP_LEARNING_RATE] = 0.1f};
    strata_array shared[2] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &share),
                              strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), words)};
    strata_per_replica inputs[4] = {[2] = {1, &shared[0]}, [3] = {1, &shared[1]}}, losses = {0};
    strata_distributed_batches *batches = NULL;
    const strata_distributed_batches_options opts = {
        .global_batch = BATCH, .shuffle = true, .seed = 1, .epoch = (uint64_t)epoch};
    strata_status status = strata_distributed_batches_create(strategy, data, &opts, &batches, err);
    int64_t n = 0, steps = 0;
    *out_loss = 0;
    while (!status && !(status = strata_distributed_batches_next(batches, inputs, &n, err)) && n) {
        strata_array loss = {0};
        share = 1 / (float)n;
        status = strata_strategy_run(function, inputs, 4, &losses, 1, err);
        if (!status) status = strata_strategy_reduce(strategy, &losses, STRATA_REDUCE_SUM, STRATA_NO_AXIS, &loss, err);
        if (!status) *out_loss += (double)*(float *)loss.data;
        strata_array_finish(&loss);
        steps++;
    }
    if (steps) *out_loss /= (double)steps;
    strata_per_replica_finish(&losses);
    strata_distributed_batches_destroy(batches);
    return status;
}

static strata_status run(strata_strategy *strategy, const strata_dataset *data, line *l, strata_function **function, bool chief,
                         strata_error *err) {
    float weights[FEATURES], seen;
    strata_array w = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(FEATURES, 1), weights);
    strata_array s = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &seen);
    double loss = 0;
    STRATA_TRY(make_variables(strategy, l, err));
    STRATA_TRY(strata_function_create(strategy, step, l, function, err));
    for (int epoch = 0; epoch < EPOCHS; epoch++) STRATA_TRY(train(strategy, *function, data, epoch, &loss, err));
    STRATA_TRY(strata_distributed_get(l->weights, &w, err));
    STRATA_TRY(strata_distributed_get(l->seen, &s, err));
    if (!chief) return STRATA_OK;
    printf("%s\nloss %.3g after %.0f examples; weights %.4f %.4f %.4f (made with 1 -2 3)\n", strata_strategy_choice(strategy),
           loss, (double)seen, (double)weights[0], (double)weights[1], (double)weights[2]);
    return STRATA_OK;
}

/* The workers that `strata launch`, mpirun, srun, TF_CONFIG ... name. */
static strata_status join_workers(strata_strategy_options *opts, strata_error *err) {
    const char *secret = getenv("STRATA_SECRET");
    strata_cluster_spec spec = {0};
    STRATA_TRY(strata_cluster_spec_resolve(NULL, &spec, err));
    const strata_communicator_options communicator = {.rank = spec.rank,
                                                      .world = spec.world_size,
                                                      .store = spec.rendezvous,
                                                      .secret = secret,
                                                      .secret_bytes = secret ? strlen(secret) : 0};
    strata_status status = strata_communicator_create(&communicator, &opts->communicator, err);
    opts->local_rank = spec.local_rank;
    opts->local_size = spec.local_size;
    strata_cluster_spec_finish(&spec);
    return status;
}

int main(int argc, char **argv) {
    static float features[EXAMPLES * FEATURES], targets[EXAMPLES];
    const float truth[FEATURES] = {1, -2, 3};
    const bool workers = argc > 1 && !strcmp(argv[1], "multi_worker_mirrored");
    strata_strategy_options opts = {.devices = (const char *const *)argv + 2, .n_devices = argc - 2};
    strata_strategy *strategy = NULL;
    strata_dataset *data = NULL;
    strata_function *function = NULL;
    line l = {0};
    strata_error err = {0};
    for (int i = 0; i < EXAMPLES * FEATURES; i++) {
        features[i] = (float)(i * 37 % 101) / 50 - 1;
        targets[i / FEATURES] += truth[i % FEATURES] * features[i];
    }
    strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, FEATURES), features);
    strata_array y = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, 1), targets);
    if (argc <= 2) opts.devices = NULL;
    strata_status status = strata_dataset_from_arrays(&x, &y, 0, &data, &err);
    if (!status && workers) status = join_workers(&opts, &err);
    if (!status) status = strata_strategy_create(argc > 1 ? argv[1] : "default", &opts, &strategy, &err);
    if (!status)
        status = run(strategy, data, &l, &function, !workers || strata_communicator_rank(opts.communicator) == 0, &err);
    if (status) fprintf(stderr, "custom_loop: %s\n", err.message);
    strata_function_destroy(function);
    strata_distributed_destroy(l.weights);
    strata_distributed_destroy(l.velocity);
    strata_distributed_destroy(l.seen);
    strata_strategy_destroy(strategy);
    strata_communicator_destroy(opts.communicator);
    strata_dataset_destroy(data);
    return status ? 1 : 0;
}
