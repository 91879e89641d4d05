/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom training loops under a mesh of the devices of several workers. Every worker must get the losses and parameters of one
 * device. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/cluster/workers.h"

enum { FEATURES = 5, EXAMPLES = 19, BATCH = 8, STEPS = 3, UNITS = 256, MOST_PARAMETERS = 4000 };

/* What a worker ends with. */
typedef struct outcome {
    double losses[STEPS];
    float total, parameters[MOST_PARAMETERS];
    int64_t n_parameters;
} outcome;

typedef struct job {
    int workers, devices; /* of each worker */
    const char *mesh, *layout;
    int zero;
    /* Of worker 1; 0: as the others. */
    double other_rate;
    outcome outcomes[MOST_WORKERS];
} job;

typedef struct parts {
    strata_model *model;
    strata_distributed_optimizer *optimizer;
    strata_distributed_variable *total; /* of the losses */
} parts;

static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *err) {
    const parts *p = user;
    strata_tensor *y = strata_model_apply(p->model, replica, inputs[0], true);
    strata_tensor *loss = strata_replica_average_loss(replica, strata_example_losses("mse", NULL, y, inputs[1]));
    strata_optimizer_minimize(replica, p->optimizer, loss, strata_model_variables(p->model));
    strata_replica_assign(replica, p->total, strata_add(strata_replica_read(replica, p->total), loss));
    strata_replica_return(replica, loss);
    return strata_graph_check(strata_replica_graph(replica), err);
}

static strata_status make_parts(strata_strategy *strategy, double rate, parts *p, strata_error *err) {
    const strata_optimizer sgd = {.name = "sgd", .learning_rate = rate, .momentum = 0.9, .clip_global_norm = 0.5};
    const strata_distributed_options summed = {STRATA_ON_READ, STRATA_AGGREGATION_SUM, NULL};
    const strata_compile_options opts = {.strategy = strategy, .seed = 3};
    STRATA_TRY(strata_strategy_enter(strategy, err));
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), &p->model, err));
    strata_model_add_dense(p->model, (strata_dense_options){.units = UNITS, .activation = "relu"});
    strata_model_add_batch_norm(p->model, (strata_batch_norm_options){0});
    strata_model_add_dropout(p->model, (strata_dropout_options){.rate = 0.25});
    strata_model_add_dense(p->model, (strata_dense_options){.units = 1});
    STRATA_TRY(strata_model_build(p->model, NULL, &opts, err));
    STRATA_TRY(strata_distributed_optimizer_create(&sgd, &p->optimizer, err));
    STRATA_TRY(strata_distributed_create("total", STRATA_DTYPE_F32, STRATA_SHAPE(), &summed, &p->total, err));
    return strata_strategy_exit(strategy, err);
}

static strata_status read_parameters(strata_model *model, outcome *out, strata_error *err) {
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        const strata_shape shape = strata_model_parameter(model, i).shape;
        strata_array value = strata_array_view(STRATA_DTYPE_F32, shape, out->parameters + out->n_parameters);
        out->n_parameters += strata_shape_elements(shape);
        if (out->n_parameters > MOST_PARAMETERS) return strata_fail(err, STRATA_INTERNAL, "the model is too large");
        STRATA_TRY(strata_model_get_parameter(model, i, &value, err));
    }
    return STRATA_OK;
}

static strata_status run_steps(strata_strategy *strategy, const strata_dataset *dataset, double rate, outcome *out,
                               strata_error *err) {
    const strata_distributed_batches_options opts = {.global_batch = BATCH, .shuffle = true, .seed = 5};
    parts p = {0};
    strata_distributed_batches *batches = NULL;
    strata_function *function = NULL;
    strata_per_replica inputs[2] = {{0}};
    strata_array total = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &out->total);
    STRATA_TRY(make_parts(strategy, rate, &p, err));
    STRATA_TRY(strata_distributed_batches_create(strategy, dataset, &opts, &batches, err));
    STRATA_TRY(strata_function_create(strategy, step, &p, &function, err));
    for (int i = 0; i < STEPS; i++) {
        int64_t n = 0;
        STRATA_TRY(strata_distributed_batches_next(batches, inputs, &n, err));
        STRATA_TRY(strata_strategy_run_scalar(function, inputs, 2, STRATA_REDUCE_SUM, &out->losses[i], err));
    }
    STRATA_TRY(strata_distributed_get(p.total, &total, err));
    return read_parameters(p.model, out, err);
}

/* comm NULL: one device. */
static strata_status train(const job *j, strata_communicator *comm, outcome *out, strata_error *err) {
    static const char *const hosts[] = {"host", "host"};
    const strata_strategy_options opts = {.devices = hosts,
                                          .n_devices = comm ? j->devices : 1,
                                          .communicator = comm,
                                          .mesh = comm ? j->mesh : NULL,
                                          .layout = comm ? j->layout : NULL,
                                          .zero = comm ? j->zero : 0};
    const double rate = comm && j->other_rate > 0 && strata_communicator_rank(comm) == 1 ? j->other_rate : 0.1;
    strata_strategy *strategy = NULL;
    strata_dataset *dataset = NULL;
    STRATA_TRY(strata_dataset_random(STRATA_SHAPE(FEATURES), STRATA_SHAPE(1), EXAMPLES, 1, &dataset, err));
    strata_status status = strata_strategy_create(comm ? "model_parallel" : "one_device", &opts, &strategy, err);
    if (!status) status = run_steps(strategy, dataset, rate, out, err);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(dataset);
    return status;
}

static strata_test_result run_worker(strata_communicator *comm, const void *user) {
    job *j = (job *)user;
    strata_error err = {0};
    TEST_TRY(train(j, comm, &j->outcomes[strata_communicator_rank(comm)], &err));
    return strata_test_ok();
}

static void expect_near(double got, double wanted, const char *mesh, int worker, const char *what, int64_t i) {
    cr_assert_float_eq(got, wanted, 1e-5 * (1 + fabs(wanted)), "%s, worker %d: %s %lld is %.9g, not %.9g", mesh, worker, what,
                       (long long)i, got, wanted);
}

Test(mesh_loop, a_custom_loop_over_workers_has_the_numbers_of_one_device, .timeout = 300) {
    static const char layout[] = "{\"dense/kernel\": [null, \"tensor\"], \"dense_1/kernel\": [\"tensor\", null]}";
    static const job jobs[] = {{.workers = 2, .devices = 1, .mesh = "data=2"},
                               {.workers = 2, .devices = 1, .mesh = "stage=2"},
                               {.workers = 2, .devices = 1, .mesh = "tensor=2", .layout = layout},
                               {.workers = 2, .devices = 2, .mesh = "data=2,tensor=2", .layout = layout},
                               {.workers = 4, .devices = 1, .mesh = "data=2,stage=2"},
                               {.workers = 2, .devices = 1, .mesh = "data=2", .zero = 1},
                               {.workers = 2, .devices = 1, .mesh = "data=2", .zero = 3}};
    strata_error err = {0};
    outcome one = {.n_parameters = 0};
    cr_assert_eq(train(&jobs[0], NULL, &one, &err), STRATA_OK, "%s", err.message);
    for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++) {
        job j = jobs[k];
        RUN(j.workers, run_worker, &j);
        for (int w = 0; w < j.workers; w++) {
            const outcome *got = &j.outcomes[w];
            expect_near((double)got->total, (double)one.total, j.mesh, w, "total", 0);
            cr_assert_eq(got->n_parameters, one.n_parameters);
            for (int i = 0; i < STEPS; i++) expect_near(got->losses[i], one.losses[i], j.mesh, w, "loss", i);
            for (int64_t i = 0; i < one.n_parameters; i++)
                expect_near((double)got->parameters[i], (double)one.parameters[i], j.mesh, w, "parameter", i);
        }
    }
}

/* ---- what is refused ---- */

static strata_test_result run_other(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    outcome out = {.n_parameters = 0};
    const strata_status status = train(user, comm, &out, &err);
    if (status == STRATA_INVALID && strstr(err.message, "learning_rate is 0.2 on worker 1")) return strata_test_ok();
    return strata_test_bad("%s: %s", strata_status_name(status), err.message);
}

Test(mesh_loop, workers_with_another_function_are_refused, .timeout = 300) {
    const job j = {.workers = 2, .devices = 1, .mesh = "stage=2", .other_rate = 0.2};
    RUN(2, run_other, &j);
}

static strata_status make_dataset(const strata_input_context *context, void *user, strata_dataset **out, strata_error *err) {
    (void)context, (void)user, (void)out;
    return strata_fail(err, STRATA_INTERNAL, "it is called");
}

static strata_test_result run_own_batches(strata_communicator *comm, const void *user) {
    static const char *const hosts[] = {"host"};
    const strata_strategy_options opts = {.devices = hosts, .n_devices = 1, .communicator = comm, .mesh = "data=2"};
    const strata_distributed_batches_options own = {.auto_shard = STRATA_SHARD_OFF};
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_distributed_batches *batches = NULL;
    TEST_TRY(strata_strategy_create("model_parallel", &opts, &strategy, &err));
    if (strata_distributed_batches_create(strategy, user, &own, &batches, &err) != STRATA_UNSUPPORTED)
        return strata_test_bad("create: %s", err.message);
    if (strata_distributed_batches_from_function(strategy, make_dataset, NULL, 0, 0, &batches, &err) != STRATA_UNSUPPORTED)
        return strata_test_bad("from_function: %s", err.message);
    strata_strategy_destroy(strategy);
    return strata_test_ok();
}

Test(mesh_loop, workers_with_batches_of_their_own_are_refused, .timeout = 300) {
    strata_error err = {0};
    strata_dataset *dataset = NULL;
    cr_assert_eq(strata_dataset_random(STRATA_SHAPE(FEATURES), STRATA_SHAPE(1), EXAMPLES, 1, &dataset, &err), STRATA_OK);
    RUN(2, run_own_batches, dataset);
    strata_dataset_destroy(dataset);
}
