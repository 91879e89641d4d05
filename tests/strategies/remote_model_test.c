/* SPDX-License-Identifier: Apache-2.0
 *
 * Closures that train a model on parameter servers. The steps of a single worker must be those of one device, each step
 * must count once even if its worker is killed, and errors are reported. Workers and servers are processes. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/model/model.h"
#include "strata/strata.h"
#include "tests/support/fork_server.h"
#include "tests/support/ports.h"

enum { WORKERS = 2, SERVERS = 2, TASKS = 1 + WORKERS + SERVERS, FEATURES = 6, ROWS = 16, STEPS = 30 };
/* Bits of `variant`, the number with which the fork server starts a task. */
enum { OTHER_MODEL = 1, REPLICAS = 2 };
static const char secret[] = "between all tasks";

typedef struct board {
    atomic_int steps;
    char why[TASKS][256];
} board;

static board *shared;
static char addresses[TASKS][32], cluster_text[256];
static test_fork_server fork_server;
/* The number of copies of each server's shards, in this process. */
static int replicas;
static strata_remote_model *remote;

/* ---- the program of all tasks ---- */

/* Writes the features and labels of batch `number`, which are the same on all tasks. */
static void fill_batch(int number, float *x, float *y) {
    for (int i = 0; i < ROWS; i++) {
        y[i] = 0;
        for (int k = 0; k < FEATURES; k++) {
            x[i * FEATURES + k] = (float)((number * 7919 + i * 104729 + k * 1299709) % 1000) / 500 - 1;
            y[i] += x[i * FEATURES + k] * (float)(k - 2) / 4;
        }
    }
}

/* inputs[0] contains the number of the batch, how many ms to sleep before the step, and 1 to make a feature NaN or 2 to use
 * wrong shapes. */
static strata_status step(const strata_remote_call *call, strata_array *results, int n_results, strata_error *err) {
    const int32_t *order = call->inputs[0].array.data;
    float x[ROWS * FEATURES], y[ROWS];
    double loss = 0;
    (void)n_results;
    fill_batch(order[0], x, y);
    if (order[2] == 1) x[3] = NAN;
    usleep((useconds_t)order[1] * 1000);
    const strata_array features =
                           strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, order[2] == 2 ? FEATURES - 1 : FEATURES), x),
                       labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, 1), y);
    STRATA_TRY(strata_remote_model_step(remote, order[0], &features, &labels, &loss, err));
    atomic_fetch_add(&shared->steps, 1);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(), &results[0], err));
    *(float *)results[0].data = (float)loss;
    return STRATA_OK;
}

static const strata_remote_function functions[] = {{.name = "step", .run = step, .n_results = 1}};
static const strata_communicator_options security = {.secret = secret,
                                                     .secret_bytes = sizeof secret,
                                                     .connect_seconds = TEST_PATIENCE,
                                                     .heartbeat_seconds = TEST_CALM_HEARTBEAT};
static const char *const host[] = {"host"};

static strata_status make_model(const char *task, strata_pace pace, int units, strata_strategy **out_strategy,
                                strata_model **out_model, strata_error *err) {
    /* In asynchronous training one worker alone makes the steps of one device only if the correction for old gradients is
     * off. */
    const strata_old_gradients old =
        pace == STRATA_PACE_SYNCHRONOUS ? STRATA_OLD_GRADIENTS_CORRECTED : STRATA_OLD_GRADIENTS_PLAIN;
    const strata_parameter_server_options servers = {.cluster = cluster_text,
                                                     .task = task,
                                                     .pace = pace,
                                                     .old_gradients = old,
                                                     .partitioner = "fixed:2",
                                                     .communication = &security,
                                                     .replicas = replicas};
    const strata_strategy_options opts = {.devices = host, .n_devices = 1, .parameter_server = &servers};
    STRATA_TRY(strata_strategy_create(task ? "parameter_server" : "one_device",
                                      task ? &opts : &(strata_strategy_options){.devices = host, .n_devices = 1}, out_strategy,
                                      err));
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = units, .activation = "tanh"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    return strata_model_compile(
        *out_model, NULL,
        &(strata_compile_options){
            .strategy = *out_strategy, .optimizer = {.name = "adam", .learning_rate = 0.01f}, .loss = "mse", .seed = 3},
        err);
}

static strata_status be(const char *name, int index, bool is_worker, bool other_model, strata_error *err) {
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    const strata_coordinator_worker_options opts = {.worker = index,
                                                    .n_workers = WORKERS,
                                                    .address = addresses[1 + index % WORKERS],
                                                    .cluster = &security,
                                                    .functions = functions,
                                                    .n_functions = 1,
                                                    .coordinator_seconds = 20};
    strata_status status = make_model(name, STRATA_PACE_ASYNCHRONOUS, other_model ? 9 : 8, &strategy, &model, err);
    if (!status && !is_worker) status = strata_remote_model_serve(model, err);
    if (!status && is_worker) status = strata_remote_model_open(model, &remote, err);
    if (!status && is_worker) status = strata_coordinator_serve(&opts, err);
    strata_remote_model_close(remote);
    strata_strategy_destroy(strategy);
    return status;
}

/* Tasks 1 to WORKERS are workers, the next ones are servers. */
static int run_task(int t, int variant) {
    char name[24];
    strata_error err = {0};
    const bool is_worker = t <= WORKERS;
    const int index = is_worker ? t - 1 : t - 1 - WORKERS;
    snprintf(name, sizeof name, "%s:%d", is_worker ? "worker" : "ps", index);
    replicas = (variant & REPLICAS) != 0;
    const strata_status status = be(name, index, is_worker, variant & OTHER_MODEL, &err);
    snprintf(shared->why[t], sizeof shared->why[t], "%.255s", err.message);
    return (int)status;
}

static void start_task(int t, bool other_model) {
    cr_assert(test_fork_server_start(&fork_server, t, (other_model ? OTHER_MODEL : 0) | (replicas ? REPLICAS : 0)));
}

static void find_addresses(void) {
    unsigned next = 0;
    if (!test_addresses(&next, TASKS, addresses)) cr_skip_test("no sockets here");
    snprintf(cluster_text, sizeof cluster_text, "chief=%s;worker=%s,%s;ps=%s,%s", addresses[0], addresses[1], addresses[2],
             addresses[3], addresses[4]);
}

static void set_up(void) {
    shared = test_shared_memory(sizeof *shared);
    cr_assert(shared);
    find_addresses();
    cr_assert(test_fork_server_open(&fork_server, run_task));
}

TestSuite(remote_model, .init = set_up, .timeout = 300);

#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)
#define FAILS(call, wanted, text)                                \
    do {                                                         \
        const strata_status got = call;                          \
        cr_assert_eq(got, wanted, "%d: %s", got, err.message);   \
        cr_assert(strstr(err.message, text), "%s", err.message); \
    } while (0)

/* ---- the chief ---- */

typedef struct chief {
    strata_strategy *strategy;
    strata_model *model;
    strata_remote_model *remote;
    strata_coordinator *coordinator;
} chief;

/* Starts the chief of a job with this many workers. It does not wait for other workers. */
static chief begin(int n_workers) {
    static const char *const workers[WORKERS] = {addresses[1], addresses[2]};
    const strata_coordinator_options opts = {.workers = workers,
                                             .n_workers = WORKERS,
                                             .cluster = &security,
                                             .functions = functions,
                                             .n_functions = 1,
                                             .least_workers = n_workers};
    chief c = {0};
    strata_error err = {0};
    for (int t = 1; t < TASKS; t++)
        if (t <= n_workers || t > WORKERS) start_task(t, false);
    OK(make_model("chief", STRATA_PACE_ASYNCHRONOUS, 8, &c.strategy, &c.model, &err));
    OK(strata_remote_model_open(c.model, &c.remote, &err));
    OK(strata_coordinator_create(&opts, &c.coordinator, &err));
    return c;
}

static void schedule(chief *c, int number, int ms, int wrong, strata_remote_value **value) {
    int32_t order[3] = {number, ms, wrong};
    strata_error err = {0};
    const strata_array array = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(3), order);
    OK(strata_coordinator_schedule(c->coordinator, "step", &(strata_remote_arg){.array = &array}, 1, value, &err));
}

static void end(chief *c) {
    strata_coordinator_destroy(c->coordinator);
    strata_remote_model_close(c->remote);
    for (int t = 1 + WORKERS; t < TASKS; t++)
        cr_assert(test_fork_server_wait(&fork_server, t) == 1 + STRATA_OK, "%s", shared->why[t]);
    strata_strategy_destroy(c->strategy);
}

/* ---- steps and losses of tasks ---- */

/* Trains on one device, as each worker alone should do: on the batches one after the other. */
static void train_alone(strata_strategy **out_strategy, strata_model **out_model, float *out_first_loss) {
    float *x = malloc(STEPS * ROWS * FEATURES * sizeof *x), *y = malloc(STEPS * ROWS * sizeof *y);
    strata_dataset *dataset = NULL;
    strata_history history = {0};
    strata_error err = {0};
    for (int i = 0; i < STEPS; i++) fill_batch(i, x + i * ROWS * FEATURES, y + i * ROWS);
    const strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(STEPS * ROWS, FEATURES), x),
                       labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(STEPS * ROWS, 1), y);
    OK(make_model(NULL, 0, 8, out_strategy, out_model, &err));
    OK(strata_dataset_from_arrays(&features, &labels, 1, &dataset, &err));
    OK(strata_model_fit(*out_model, dataset, &(strata_fit_options){.epochs = 1, .batch = ROWS, .no_shuffle = true}, &history,
                        &err));
    *out_first_loss = history.losses[0];
    strata_history_finish(&history);
    strata_dataset_destroy(dataset);
    free(x);
    free(y);
}

Test(remote_model, one_workers_steps_are_those_of_a_device_alone) {
    chief c = begin(1);
    strata_strategy *alone = NULL;
    strata_model *model = NULL;
    strata_error err = {0};
    strata_remote_value *first = NULL;
    strata_array loss;
    float first_loss = 0;
    for (int i = 0; i < STEPS; i++) schedule(&c, i, 0, 0, i ? NULL : &first);
    OK(strata_coordinator_join(c.coordinator, &err));
    OK(strata_remote_model_fetch(c.remote, &err));
    train_alone(&alone, &model, &first_loss);
    OK(strata_remote_value_fetch(first, &loss, 1, &err));
    cr_assert_float_eq(*(float *)loss.data, first_loss, 1e-5);
    strata_array_finish(&loss);
    strata_remote_value_release(first);
    cr_assert_eq(c.model->optimizer_steps, STEPS);
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        strata_array got, want;
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &got, &err));
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(model, i).shape, &want, &err));
        OK(strata_model_get_parameter(c.model, i, &got, &err));
        OK(strata_model_get_parameter(model, i, &want, &err));
        for (int64_t k = 0; k < strata_shape_elements(got.shape); k++)
            cr_assert_float_eq(((float *)got.data)[k], ((float *)want.data)[k], 1e-5, "parameter %d element %lld", i,
                               (long long)k);
        strata_array_finish(&got);
        strata_array_finish(&want);
    }
    strata_strategy_destroy(alone);
    end(&c);
}

Test(remote_model, each_step_counts_once_when_a_worker_is_killed_and_comes_back) {
    enum { CLOSURES = 120 };
    chief c = begin(WORKERS);
    strata_error err = {0};
    for (int i = 0; i < CLOSURES; i++) schedule(&c, i, 10, 0, NULL);
    cr_assert(test_wait_for(&shared->steps, 20));
    kill(test_fork_server_pid(&fork_server, 2), SIGKILL);
    cr_assert(test_wait_for(&shared->steps, 40));
    start_task(2, false);
    OK(strata_coordinator_join(c.coordinator, &err));
    /* A step that is made again with the same number changes nothing. */
    for (int i = 0; i < 5; i++) schedule(&c, i, 0, 0, NULL);
    OK(strata_coordinator_join(c.coordinator, &err));
    OK(strata_remote_model_fetch(c.remote, &err));
    cr_assert_eq(c.model->optimizer_steps, CLOSURES, "%lld updates of %d steps", (long long)c.model->optimizer_steps, CLOSURES);
    const strata_coordinator_counts counts = strata_coordinator_count(c.coordinator);
    cr_assert(counts.lost == 1 && counts.workers == WORKERS && counts.ended == CLOSURES + 5);
    end(&c);
}

/* Kills a server during n steps. */
static void run_over_a_loss(chief *c, int first, int n, int server) {
    const int begin = atomic_load(&shared->steps);
    strata_error err = {0};
    for (int i = 0; i < n; i++) schedule(c, first + i, 5, 0, NULL);
    cr_assert(test_wait_for(&shared->steps, begin + n / 4));
    kill(test_fork_server_pid(&fork_server, 1 + WORKERS + server), SIGKILL);
    double last = test_seconds();
    for (int done = 0; done < begin + n;) {
        const int steps = atomic_load(&shared->steps);
        if (steps > done) {
            done = steps;
            last = test_seconds();
        }
        cr_assert_lt(test_seconds() - last, TEST_PATIENCE, "closures do not go on");
        usleep(2000);
    }
    OK(strata_coordinator_join(c->coordinator, &err));
}

Test(remote_model, with_replicas_closures_go_on_after_each_servers_loss) {
    enum { CLOSURES = 80 };
    strata_error err = {0};
    replicas = 1;
    chief c = begin(WORKERS);
    run_over_a_loss(&c, 0, CLOSURES, 0);
    const strata_coordinator_counts counts = strata_coordinator_count(c.coordinator);
    cr_assert(counts.lost == 0 && counts.repeated == 0, "no worker was lost");
    /* A worker that starts now learns from the other server which server has the shards. */
    kill(test_fork_server_pid(&fork_server, 1), SIGKILL);
    start_task(1, false);
    for (int i = 0; i < 20; i++) schedule(&c, CLOSURES + i, 5, 0, NULL);
    OK(strata_coordinator_join(c.coordinator, &err));
    /* The restarted server gets its shards when the model is fetched. After that, the other one may be lost as well. */
    start_task(1 + WORKERS, false);
    for (int tries = 0; tries < 2000; tries++) {
        OK(strata_remote_model_fetch(c.remote, &err));
        const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(c.strategy);
        if (strstr(strata_strategy_parameter_server_notice(c.strategy, totals.notices - 1).text, "ps:0 is there again")) break;
        cr_assert_lt(tries, 1999, "ps:0 is not taken back");
        usleep(50 * 1000);
    }
    cr_assert_eq(c.model->optimizer_steps, CLOSURES + 20, "%lld updates", (long long)c.model->optimizer_steps);
    run_over_a_loss(&c, CLOSURES + 20, CLOSURES, 1);
    OK(strata_remote_model_fetch(c.remote, &err));
    cr_assert_eq(c.model->optimizer_steps, 2 * CLOSURES + 20, "%lld updates", (long long)c.model->optimizer_steps);
    start_task(1 + WORKERS + 1, false); /* both servers must run to end the job */
    end(&c);
}

/* Without copies the shards are lost with the server. The error must name the server, and be raised once. */
Test(remote_model, without_replicas_a_lost_server_is_an_error_that_names_it) {
    chief c = begin(1);
    strata_error err = {0};
    schedule(&c, 0, 0, 0, NULL);
    OK(strata_coordinator_join(c.coordinator, &err));
    kill(test_fork_server_pid(&fork_server, 1 + WORKERS), SIGKILL);
    schedule(&c, 1, 0, 0, NULL);
    FAILS(strata_coordinator_join(c.coordinator, &err), STRATA_PEER_LOST, "ps:0");
    OK(strata_coordinator_join(c.coordinator, &err)); /* the error has been raised already */
    start_task(1 + WORKERS, false);
    FAILS(strata_remote_model_fetch(c.remote, &err), STRATA_PEER_LOST, ""); /* the new server has no values */
    end(&c);
}

Test(remote_model, wrong_batches_are_told_and_not_pushed) {
    chief c = begin(1);
    strata_error err = {0};
    strata_array any = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, FEATURES), (float[FEATURES]){0});
    schedule(&c, 0, 0, 1, NULL);
    FAILS(strata_coordinator_join(c.coordinator, &err), STRATA_DATA, "of step 0 is not finite");
    schedule(&c, 1, 0, 2, NULL);
    FAILS(strata_coordinator_join(c.coordinator, &err), STRATA_INVALID, "a step's features are f32 (16,5)");
    schedule(&c, 2, 0, 0, NULL);
    OK(strata_coordinator_join(c.coordinator, &err));
    OK(strata_remote_model_fetch(c.remote, &err));
    cr_assert_eq(c.model->optimizer_steps, 1);
    FAILS(strata_remote_model_step(c.remote, 0, &any, &any, NULL, &err), STRATA_INVALID, "chief:0 makes no steps");
    FAILS(strata_remote_model_serve(c.model, &err), STRATA_INVALID, "chief:0 is no parameter server");
    end(&c);
}

Test(remote_model, another_model_strategy_or_pace_is_refused) {
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_remote_model *opened = NULL;
    strata_error err = {0};
    chief c = begin(1);
    start_task(2, true);
    cr_assert_eq(test_fork_server_wait(&fork_server, 2), 1 + STRATA_INVALID);
    cr_assert(strstr(shared->why[2], "hash of the model's description") && strstr(shared->why[2], "ps:0") &&
                  strstr(shared->why[2], "worker:1"),
              "%s", shared->why[2]);
    end(&c);
    OK(make_model(NULL, 0, 8, &strategy, &model, &err));
    FAILS(strata_remote_model_open(model, &opened, &err), STRATA_INVALID,
          "under the strategy parameter_server, not one_device");
    strata_strategy_destroy(strategy);
    OK(make_model("chief", STRATA_PACE_SYNCHRONOUS, 8, &strategy, &model, &err));
    FAILS(strata_remote_model_open(model, &opened, &err), STRATA_INVALID, "pace ASYNCHRONOUS");
    strata_strategy_destroy(strategy);
}
