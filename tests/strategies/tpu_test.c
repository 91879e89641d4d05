/* SPDX-License-Identifier: Apache-2.0
 *
 * The strategy tpu on simulated boards of cores (tests/support/cores.h). It must give the same bits as the strategy
 * mirrored on as many host devices, where the host makes the same exchanges in the same order; the losses of one device;
 * and the same bits for any number of steps in one call. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/fallback/fallback.h"
#include "core/model/model.h"
#include "strata/strata.h"
#include "strategies/kinds.h"
#include "tests/strategies/strategies_case.h"
#include "tests/support/cores.h"
#include "tests/support/restricted.h"

enum { FEATURES = 6, MOST = 8 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)
#define FAILS(call, status, ...)                                                                     \
    do {                                                                                             \
        const char *const words[] = {__VA_ARGS__};                                                   \
        cr_assert_eq((call), (status), "%s", err.message);                                           \
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)                                    \
            cr_assert(strstr(err.message, words[w]), "\"%s\" is not in: %s", words[w], err.message); \
    } while (0)

/* ---- strategies ---- */

static strata_strategy *mirrored_hosts(int n, strata_strategy_options opts) {
    const char *const hosts[MOST] = {"host", "host", "host", "host", "host", "host", "host", "host"};
    strata_strategy *strategy = NULL;
    opts.devices = hosts;
    opts.n_devices = n;
    OK(strata_strategy_create("mirrored", &opts, &strategy, &err));
    return strategy;
}

/* numbers: the numbers of the n cores. NULL: 0 .. n - 1. */
static strata_status try_cores(test_cores *cores, const int *numbers, int n, const strata_strategy_options *opts,
                               strata_strategy **out) {
    strata_device *devices[MOST];
    for (int i = 0; i < n; i++) OK(test_cores_open(cores, numbers ? numbers[i] : i, &devices[i], &err));
    return strata_strategy_of_devices(&strata_strategy_tpu, devices, n, opts, out, &err);
}

static strata_strategy *on_cores(test_cores *cores, const int *numbers, int n, const strata_strategy_options *opts) {
    strata_strategy *strategy = NULL;
    OK(try_cores(cores, numbers, n, opts, &strategy));
    return strategy;
}

/* ---- training ---- */

typedef struct training {
    /* For the model. */
    bool synchronized;
    strata_optimizer optimizer;
    /* For the fit. together: the number of steps in one call. */
    int64_t n, batch, together;
} training;

typedef struct trained {
    char sha256[65];
    float losses[64];
    int n_losses;
    double loss;
    /* Whether the partitioner divided a program (core/model/divide.c). */
    bool divided;
} trained;

static strata_model *make_model(strata_strategy *strategy, const training *what) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 9, .activation = "relu"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.synchronized = what->synchronized});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.1});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    strata_compile_options opts = {.optimizer = what->optimizer, .seed = 5, .strategy = strategy};
    if (!opts.optimizer.name) opts.optimizer = strata_adam_optimizer(0.02);
    OK(strata_model_compile(model, NULL, &opts, &err));
    return model;
}

static trained train(strata_strategy *strategy, const training *what) {
    test_classes data = test_classes_make(what->n, FEATURES);
    strata_model *model = make_model(strategy, what);
    strata_history history = {0};
    trained t = {0};
    const strata_fit_options opts = {.epochs = 2, .batch = what->batch, .seed = 3, .steps_per_execution = what->together};
    OK(strata_model_fit(model, data.dataset, &opts, &history, &err));
    OK(strata_model_sha256(model, t.sha256, &err));
    for (const strata_model_program *p = model->programs; p; p = p->next) t.divided |= p->divided;
    t.n_losses = history.n_losses;
    cr_assert_leq(t.n_losses, (int)(sizeof t.losses / sizeof *t.losses));
    memcpy(t.losses, history.losses, (size_t)t.n_losses * sizeof *t.losses);
    t.loss = history.epochs[1].loss;
    strata_history_finish(&history);
    strata_model_destroy(model);
    test_classes_free(&data);
    return t;
}

static trained train_on(strata_strategy *strategy, const training *what) {
    const trained t = train(strategy, what);
    strata_strategy_destroy(strategy);
    return t;
}

static void expect_same(const trained *a, const trained *b) {
    cr_assert_str_eq(a->sha256, b->sha256);
    cr_assert_eq(a->n_losses, b->n_losses);
    cr_assert(!memcmp(a->losses, b->losses, (size_t)a->n_losses * sizeof *a->losses), "losses differ in bits");
    cr_assert(a->loss == b->loss);
}

/* Trains on n cores, whose programs exchange values, and on n hosts. Both must give the same. Returns the training on cores. */
static trained expect_as_mirrored(const training *what, int n, strata_strategy_options opts) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = n});
    const trained t = train_on(on_cores(cores, NULL, n, &opts), what), m = train_on(mirrored_hosts(n, opts), what);
    expect_same(&t, &m);
    cr_assert_gt(test_cores_counters(cores, n - 1).collectives, 0, "nothing was exchanged inside of programs");
    test_cores_destroy(cores);
    return t;
}

Test(tpu, cores_have_the_bits_of_mirrored_hosts) {
    const trained t = expect_as_mirrored(&(training){.n = 96, .batch = 12}, 3, (strata_strategy_options){0});
    cr_expect(t.divided, "the partitioner makes the programs of cores too");
    expect_as_mirrored(&(training){.n = 96, .batch = 16}, 8, (strata_strategy_options){.bytes_per_pack = 1});
}

Test(tpu, the_losses_are_those_of_one_device) {
    const training what = {.n = 96, .batch = 12, .synchronized = true, .optimizer = strata_sgd_optimizer(0.1, 0.9, false)};
    strata_strategy *one = NULL;
    OK(strata_strategy_create("one_device", &(strata_strategy_options){.devices = (const char *[]){"host"}, .n_devices = 1},
                              &one, &err));
    const trained t = expect_as_mirrored(&what, 4, (strata_strategy_options){0}), single = train_on(one, &what);
    cr_assert_eq(t.n_losses, single.n_losses);
    for (int i = 0; i < t.n_losses; i++) cr_assert_float_eq(t.losses[i], single.losses[i], 2e-5, "step %d", i);
}

/* With 4 cores and 5 examples or one, some cores have no examples. They must contribute nothing to sums and means. */
Test(tpu, uneven_and_empty_shares_are_exact) {
    expect_as_mirrored(&(training){.n = 23, .batch = 5}, 4, (strata_strategy_options){0});
    expect_as_mirrored(&(training){.n = 13, .batch = 3}, 4, (strata_strategy_options){0});
    expect_as_mirrored(&(training){.n = 4, .batch = 1}, 4, (strata_strategy_options){0});
    expect_as_mirrored(&(training){.n = 13, .batch = 3, .synchronized = true}, 4, (strata_strategy_options){0});
}

Test(tpu, an_optimizer_sharded_over_cores_has_the_same_bits) {
    const strata_strategy_options sharded = {.shard_optimizer = STRATA_SHARD_OPTIMIZER_YES};
    const training what = {.n = 60, .batch = 10};
    const trained t = expect_as_mirrored(&what, 3, sharded), whole = expect_as_mirrored(&what, 3, (strata_strategy_options){0});
    expect_same(&t, &whole);
}

Test(tpu, accumulated_gradients_have_the_same_bits) {
    strata_optimizer optimizer = strata_adam_optimizer(0.02);
    optimizer.gradient_accumulation_steps = 3;
    expect_as_mirrored(&(training){.n = 70, .batch = 8, .synchronized = true, .optimizer = optimizer}, 3,
                       (strata_strategy_options){0});
}

/* ---- steps per execution ---- */

Test(tpu, any_number_of_steps_in_a_call_gives_the_same_bits) {
    const int64_t together[] = {1, 2, 7, 50};
    enum { STEPS = 11 }; /* an epoch: 10 batches of 8 examples, and one of 5 */
    trained first = {0};
    for (int i = 0; i < 4; i++) {
        test_cores *cores = test_cores_create(&(test_cores_options){.n = 3});
        const trained t = train_on(on_cores(cores, NULL, 3, NULL), &(training){.n = 85, .batch = 8, .together = together[i]});
        if (!i) first = t;
        expect_same(&t, &first);
        cr_assert_eq(t.n_losses, 2 * STEPS);
        const test_core_counters c = test_cores_counters(cores, 1);
        const int full = (STEPS - 1) / (int)together[i], left = (STEPS - 1) % (int)together[i];
        cr_assert_eq(c.runs, 2 * STEPS);
        cr_assert_eq(c.calls, 2 * (full + (left > 0) + 1), "%d calls for %d steps in each", c.calls, (int)together[i]);
        if (together[i] > 1) cr_assert_eq(c.calls_of_many, 2 * (full + (left > 1)));
        test_cores_destroy(cores);
    }
}

/* The runs of the next call are submitted while a core still executes those of the last call. */
Test(tpu, the_host_fills_the_next_call_before_it_waits_for_the_last_one) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 2});
    train_on(on_cores(cores, NULL, 2, NULL), &(training){.n = 160, .batch = 8, .together = 4});
    cr_assert_eq(test_cores_counters(cores, 0).deepest, 8);
    test_cores_destroy(cores);
}

Test(tpu, a_core_takes_no_more_runs_than_it_says) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 2, .most_runs = 3});
    train_on(on_cores(cores, NULL, 2, NULL), &(training){.n = 80, .batch = 8, .together = 50});
    cr_assert_eq(test_cores_counters(cores, 0).calls, 2 * 4);
    test_cores_destroy(cores);
}

/* The inputs of 1000 examples with 6 features need more than 2 MiB in 200 slots. */
Test(tpu, steps_that_do_not_fit_into_memory_say_so) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 2, .memory = 2 << 20});
    strata_strategy *strategy = on_cores(cores, NULL, 2, NULL);
    strata_model *model = make_model(strategy, &(training){0});
    test_classes data = test_classes_make(4000, FEATURES);
    strata_fit_options opts = {.batch = 1000, .steps_per_execution = 100};
    FAILS(strata_model_fit(model, data.dataset, &opts, NULL, &err), STRATA_OUT_OF_MEMORY, "100 steps in one call of core:0",
          "fewer steps per execution");
    opts.steps_per_execution = 2;
    OK(strata_model_fit(model, data.dataset, &opts, NULL, &err));
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
    test_cores_destroy(cores);
}

/* Cores without collectives, without calls of several runs, and without both. */
Test(tpu, what_cores_do_not_offer_the_host_does) {
    const training what = {.n = 85, .batch = 8, .together = 4};
    const trained m = train_on(mirrored_hosts(3, (strata_strategy_options){0}), &what);
    for (int i = 0; i < 4; i++) {
        test_cores *cores = test_cores_create(&(test_cores_options){.n = 3, .no_collectives = i & 1, .no_many = i & 2});
        const trained t = train_on(on_cores(cores, NULL, 3, NULL), &what);
        expect_same(&t, &m);
        cr_assert_eq(test_cores_counters(cores, 2).collectives > 0, !(i & 1));
        cr_assert_eq(test_cores_counters(cores, 2).calls_of_many > 0, !i);
        test_cores_destroy(cores);
    }
}

Test(tpu, one_core_takes_several_steps_in_a_call_too) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 4});
    const training what = {.n = 85, .batch = 8, .together = 5};
    const trained t = train_on(on_cores(cores, (int[]){2}, 1, NULL), &what);
    const trained one = train_on(mirrored_hosts(1, (strata_strategy_options){0}), &what);
    expect_same(&t, &one);
    cr_assert_gt(test_cores_counters(cores, 2).calls_of_many, 0);
    test_cores_destroy(cores);
}

/* ---- cores with fallback to the host (strata_device_options.fallback_to_host) ---- */

/* Makes a device that runs nodes on the host if they are in `lacking`, ops that the inner device then lacks. NULL: it lacks
 * no op. */
static strata_device *with_host(strata_device *inner, const char *const *lacking) {
    strata_device *device = NULL;
    if (lacking) strata_test_restrict(inner, (strata_test_restriction){.ops = lacking, .answer = STRATA_SUPPORT_NO});
    OK(strata_fallback_create(inner, &device, &err));
    return device;
}

static strata_strategy *helped_cores(test_cores *cores, int n, const char *const *lacking) {
    strata_device *devices[MOST], *inner = NULL;
    strata_strategy *strategy = NULL;
    for (int i = 0; i < n; i++) {
        OK(test_cores_open(cores, i, &inner, &err));
        devices[i] = with_host(inner, lacking);
    }
    OK(strata_strategy_of_devices(&strata_strategy_tpu, devices, n, NULL, &strategy, &err));
    return strategy;
}

static strata_strategy *helped_hosts(int n, const char *const *lacking) {
    strata_device *devices[MOST], *inner = NULL;
    strata_strategy *strategy = NULL;
    for (int i = 0; i < n; i++) {
        OK(strata_device_open("host", NULL, &inner, &err));
        devices[i] = with_host(inner, lacking);
    }
    OK(strata_strategy_of_devices(&strata_strategy_mirrored, devices, n, NULL, &strategy, &err));
    return strategy;
}

/* No node needs the host, so the cores run collectives and calls of several steps as they do without it. */
Test(tpu, cores_that_may_fall_back_and_need_not_train_as_before, .timeout = 300) {
    const training what = {.n = 85, .batch = 8, .together = 4};
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 3});
    strata_strategy *strategy = helped_cores(cores, 3, NULL);
    cr_assert(strstr(strata_strategy_choice(strategy), "3 of 3 cores of board 0, which add up by themselves"), "%s",
              strata_strategy_choice(strategy));
    const trained t = train_on(strategy, &what), m = train_on(mirrored_hosts(3, (strata_strategy_options){0}), &what);
    expect_same(&t, &m);
    cr_assert_gt(test_cores_counters(cores, 2).collectives, 0);
    cr_assert_gt(test_cores_counters(cores, 2).calls_of_many, 0);
    test_cores_destroy(cores);
}

/* The host runs nodes in the middle of a step, so it also makes the exchanges. */
Test(tpu, cores_that_lack_an_op_train_with_the_host, .timeout = 300) {
    static const char *const products[] = {"matmul", NULL};
    const training what = {.n = 85, .batch = 8, .together = 4};
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 3});
    strata_strategy *strategy = helped_cores(cores, 3, products);
    test_classes data = test_classes_make(85, FEATURES);
    strata_model *model = make_model(strategy, &what);
    OK(strata_model_fit(model, data.dataset, &(strata_fit_options){.batch = 8}, NULL, &err));
    cr_assert_gt(strata_device_get_counters(strata_strategy_device(strategy, 1)).host_nodes, 0);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
    cr_assert_eq(test_cores_counters(cores, 2).collectives, 0);
    test_cores_destroy(cores);
    cores = test_cores_create(&(test_cores_options){.n = 3});
    const trained t = train_on(helped_cores(cores, 3, products), &what), m = train_on(helped_hosts(3, products), &what);
    expect_same(&t, &m);
    test_cores_destroy(cores);
    /* A single core needs no exchange, so it can run several such steps in a call. */
    cores = test_cores_create(&(test_cores_options){.n = 1});
    const trained one = train_on(helped_cores(cores, 1, products), &what), host = train_on(helped_hosts(1, products), &what);
    expect_same(&one, &host);
    test_cores_destroy(cores);
}

/* ---- selection of cores ---- */

Test(tpu, some_cores_of_a_board_train_in_the_order_of_their_numbers) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 8});
    const training what = {.n = 60, .batch = 9};
    strata_strategy *strategy = on_cores(cores, (int[]){5, 0, 3}, 3, NULL);
    const int wanted[] = {0, 3, 5};
    for (int r = 0; r < 3; r++) {
        const strata_topology *t = strata_device_get_topology(strata_strategy_device(strategy, r));
        cr_assert(t && t->core == wanted[r] && t->n_cores == 8 && t->rank == 1 && t->coordinates[0] == wanted[r]);
    }
    cr_assert(strstr(strata_strategy_choice(strategy), "3 of 8 cores of board 0, which add up by themselves"), "%s",
              strata_strategy_choice(strategy));
    const trained t = train_on(strategy, &what), m = train_on(mirrored_hosts(3, (strata_strategy_options){0}), &what);
    expect_same(&t, &m);
    test_cores_destroy(cores);
}

Test(tpu, devices_that_are_no_cores_are_refused) {
    strata_strategy *strategy = NULL;
    const char *const hosts[] = {"host", "host"};
    FAILS(strata_strategy_create("tpu", &(strata_strategy_options){.devices = hosts, .n_devices = 2}, &strategy, &err),
          STRATA_INVALID, "host is no core of a TPU", "mirrored");
    test_cores *boards[2];
    strata_device *devices[2];
    for (int i = 0; i < 2; i++) {
        boards[i] = test_cores_create(&(test_cores_options){.n = 2, .system = i ? "board 1" : "board 0"});
        OK(test_cores_open(boards[i], 0, &devices[i], &err));
    }
    FAILS(strata_strategy_of_devices(&strata_strategy_tpu, devices, 2, NULL, &strategy, &err), STRATA_INVALID,
          "core:0 is a core of \"board 1\" of core, not of \"board 0\" of core");
    for (int i = 0; i < 2; i++) test_cores_destroy(boards[i]);
}

static void refuse_address(const char *address, strata_status status, const char *word) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 2});
    strata_strategy *strategy = NULL;
    FAILS(try_cores(cores, NULL, 2, &(strata_strategy_options){.tpu_address = address}, &strategy), status, address, word);
    test_cores_destroy(cores);
}

static void take_address(const char *address) {
    test_cores *cores = test_cores_create(&(test_cores_options){.n = 2});
    strata_strategy_destroy(on_cores(cores, NULL, 2, &(strata_strategy_options){.tpu_address = address}));
    test_cores_destroy(cores);
}

Test(tpu, addresses_name_a_system_of_this_machine) {
    take_address("local");
    take_address("board 0");
    take_address("core");
    refuse_address("board 1", STRATA_UNAVAILABLE, "there are: local, \"board 0\" of core");
    refuse_address("grpc://10.0.0.2:8470", STRATA_UNSUPPORTED, "own hosts");
    setenv("TPU_NAME", "pod-7", 1);
    take_address(NULL);
    take_address("pod-7");
    refuse_address("pod-8", STRATA_UNAVAILABLE, "board 0");
    setenv("TPU_NAME", "", 1);
    refuse_address("pod-7", STRATA_UNAVAILABLE, "board 0");
    strata_strategy *strategy = NULL;
    FAILS(strata_strategy_create("mirrored", &(strata_strategy_options){.tpu_address = "local"}, &strategy, &err),
          STRATA_INVALID, "no TPU address");
}

Test(tpu, a_machine_without_a_tpu_says_so) {
    strata_strategy *strategy = NULL;
    setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8", 1);
    FAILS(strata_strategy_create("tpu", NULL, &strategy, &err), STRATA_UNAVAILABLE, "no device", "v5litepod-8", "--plugin");
}

/* ---- failures ---- */

/* helped: each core has the fallback to the host. */
static void expect_failure(test_cores_options opts, bool helped, int64_t together, strata_status status, const char *word) {
    opts.n = 4;
    opts.broken_core = 2;
    opts.breaks_at = 6;
    test_cores *cores = test_cores_create(&opts);
    strata_strategy *strategy = helped ? helped_cores(cores, 4, NULL) : on_cores(cores, NULL, 4, NULL);
    test_classes data = test_classes_make(96, FEATURES);
    strata_model *model = make_model(strategy, &(training){0});
    const strata_fit_options fit = {.batch = 8, .steps_per_execution = together};
    FAILS(strata_model_fit(model, data.dataset, &fit, NULL, &err), status, "core:2", word);
    cr_assert_neq(strata_model_fit(model, data.dataset, &fit, NULL, &err), STRATA_OK, "the board is of no use any more");
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&data);
    test_cores_destroy(cores);
}

Test(tpu, an_error_in_one_core_names_it, .timeout = 300) {
    expect_failure((test_cores_options){0}, false, 1, STRATA_DEVICE_LOST, "the test broke this core");
    expect_failure((test_cores_options){0}, false, 4, STRATA_DEVICE_LOST, "the test broke this core");
}

Test(tpu, a_core_that_hangs_is_named_by_the_watchdog, .timeout = 300) {
    const test_cores_options hangs = {.hangs = true, .stall_seconds = 2};
    expect_failure(hangs, false, 1, STRATA_TIMEOUT, "nothing has ended for 2 s");
    expect_failure(hangs, false, 4, STRATA_TIMEOUT, "nothing has ended for 2 s");
    expect_failure(hangs, true, 1, STRATA_TIMEOUT, "nothing has ended for 2 s");
}

/* ---- custom loops ---- */

typedef struct loop {
    strata_model *model;
    strata_distributed_optimizer *optimizer;
} loop;

static strata_status step(strata_replica_context *replica, strata_tensor *const *inputs, void *user, strata_error *error) {
    const loop *l = user;
    (void)error;
    strata_tensor *outputs = strata_model_apply(l->model, replica, inputs[0], true);
    strata_tensor *losses = strata_example_losses("sparse_categorical_crossentropy", NULL, outputs, inputs[1]);
    strata_tensor *loss = strata_replica_average_loss(replica, losses);
    strata_optimizer_minimize(replica, l->optimizer, loss, strata_model_variables(l->model));
    strata_replica_return(replica, strata_replica_all_reduce(replica, loss, STRATA_REDUCE_SUM));
    return STRATA_OK;
}

enum { LOOP_STEPS = 9 };

/* Trains with `together` steps in a call. Returns the hash of the parameters and each step's loss on replica 0. */
static trained run_loop(strata_strategy *strategy, int together) {
    test_classes data = test_classes_make(LOOP_STEPS * 10 - 3, FEATURES);
    strata_model *model = NULL;
    strata_function *function = NULL;
    strata_distributed_batches *batches = NULL;
    trained t = {0};
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 9, .activation = "tanh"});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    OK(strata_model_build(model, NULL, &(strata_compile_options){.strategy = strategy, .seed = 2}, &err));
    loop l = {.model = model};
    const strata_optimizer adam = strata_adam_optimizer(0.01);
    OK(strata_strategy_enter(strategy, &err));
    OK(strata_distributed_optimizer_create(&adam, &l.optimizer, &err));
    OK(strata_strategy_exit(strategy, &err));
    OK(strata_function_create(strategy, step, &l, &function, &err));
    const strata_distributed_batches_options opts = {.global_batch = 10};
    OK(strata_distributed_batches_create(strategy, data.dataset, &opts, &batches, &err));
    strata_per_replica outputs[LOOP_STEPS] = {0};
    for (int n = together; n == together;) {
        OK(strata_strategy_run_batches(function, batches, together, outputs, 1, &n, &err));
        for (int i = 0; i < n; i++) t.losses[t.n_losses++] = *(const float *)outputs[i].arrays[0].data;
    }
    OK(strata_model_sha256(model, t.sha256, &err));
    for (int i = 0; i < LOOP_STEPS; i++) strata_per_replica_finish(&outputs[i]);
    strata_strategy_destroy(strategy); /* also destroys what was created with it */
    test_classes_free(&data);
    return t;
}

Test(tpu, custom_loops_have_the_bits_of_mirrored_hosts_for_any_number_of_steps) {
    const trained m = run_loop(mirrored_hosts(3, (strata_strategy_options){0}), 1);
    const int together[] = {1, 2, 7, LOOP_STEPS};
    for (int i = 0; i < 4; i++) {
        test_cores *cores = test_cores_create(&(test_cores_options){.n = 3});
        const trained t = run_loop(on_cores(cores, NULL, 3, NULL), together[i]);
        expect_same(&t, &m);
        const test_core_counters c = test_cores_counters(cores, 0);
        cr_assert_eq(c.runs, LOOP_STEPS);
        cr_assert_gt(c.collectives, 0);
        /* The last batch is smaller, so its step needs a call of its own. */
        if (together[i] == LOOP_STEPS) cr_assert_eq(c.calls, 2);
        test_cores_destroy(cores);
    }
}
