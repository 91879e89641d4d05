/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator with workers that are processes: results, the limit of the queue, errors that are raised once, workers
 * and coordinators that are killed and start again, workers that run another program, and invalid arguments. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strata/strata.h"
#include "tests/support/fork_server.h"
#include "tests/support/ports.h"

enum { WORKERS = 3, MOST_CLOSURES = 512 };
static const char secret[] = "between chief and workers";

/* Memory that all processes of a test share. */
typedef struct board {
    /* The number of closures that are running, in total and on each worker, and the largest number that a worker ran at one
     * time. */
    atomic_int running, running_on[WORKERS], most_on[WORKERS];
    /* How often the closure of each number was completed, and how many closures each worker completed. */
    atomic_int runs[MOST_CLOSURES], ran_on[WORKERS];
    atomic_int objects_made[WORKERS], objects_live;
    atomic_bool release;
    /* The interval of heartbeats of all tasks. */
    double heartbeat_seconds;
} board;

static board *shared;
static char addresses[WORKERS][32];
static const char *const workers[WORKERS] = {addresses[0], addresses[1], addresses[2]};
static test_fork_server fork_server;

/* ---- the program of all tasks ---- */

static strata_status add_up(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    const strata_array *a = &call->inputs[0].array, *b = &call->inputs[1].array;
    if (n != 2 || call->n_inputs != 2 || !strata_shape_equal(a->shape, b->shape))
        return strata_fail(err, STRATA_INVALID, "shapes");
    STRATA_TRY(strata_array_create(a->dtype, a->shape, &results[0], err));
    for (int64_t i = 0; i < strata_shape_elements(a->shape); i++)
        strata_element_set(a->dtype, results[0].data, i,
                           strata_element_get(a->dtype, a->data, i) + strata_element_get(b->dtype, b->data, i));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(), &results[1], err));
    *(int32_t *)results[1].data = call->worker;
    return STRATA_OK;
}

/* Sleeps for inputs[0] milliseconds, or for -1 until `release` is set. Fails if inputs[1] is 1. */
static strata_status work(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    const int ms = ((int32_t *)call->inputs[0].array.data)[0], fails = ((int32_t *)call->inputs[0].array.data)[1];
    const int on = atomic_fetch_add(&shared->running_on[call->worker], 1) + 1;
    (void)results, (void)n;
    if (on > atomic_load(&shared->most_on[call->worker])) atomic_store(&shared->most_on[call->worker], on);
    atomic_fetch_add(&shared->running, 1);
    for (const double end = test_seconds() + (ms < 0 ? TEST_PATIENCE : ms / 1000.0); test_seconds() < end;) {
        if (ms < 0 && atomic_load(&shared->release)) break;
        usleep(1000);
    }
    atomic_fetch_sub(&shared->running, 1);
    atomic_fetch_sub(&shared->running_on[call->worker], 1);
    atomic_fetch_add(&shared->ran_on[call->worker], 1);
    atomic_fetch_add(&shared->runs[call->closure % MOST_CLOSURES], 1);
    return fails ? strata_fail(err, STRATA_DATA, "closure %llu was told to fail", (unsigned long long)call->closure)
                 : STRATA_OK;
}

static strata_status make_counter(const strata_remote_call *call, void **out_object, strata_error *err) {
    int *counter = malloc(sizeof *counter);
    if (!counter) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory");
    *counter = *(int32_t *)call->inputs[0].array.data;
    atomic_fetch_add(&shared->objects_made[call->worker], 1);
    atomic_fetch_add(&shared->objects_live, 1);
    *out_object = counter;
    return STRATA_OK;
}

static void free_counter(void *object, void *user) {
    (void)user;
    atomic_fetch_sub(&shared->objects_live, 1);
    free(object);
}

/* Returns the next number of the counter object, and the number of the worker. */
static strata_status next(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    (void)n;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(2), &results[0], err));
    ((int32_t *)results[0].data)[0] = (*(int *)call->inputs[0].object)++;
    ((int32_t *)results[0].data)[1] = call->worker;
    usleep(2000);
    return STRATA_OK;
}

static strata_status make_nothing(const strata_remote_call *call, void **out_object, strata_error *err) {
    (void)out_object;
    return strata_fail(err, STRATA_UNAVAILABLE, "%s has no data", call->task);
}

static strata_status forget_result(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    (void)call, (void)n, (void)err;
    results[0].shape = STRATA_SHAPE(3);
    return STRATA_OK;
}

static const strata_remote_function functions[] = {
    {.name = "add up", .run = add_up, .n_results = 2, .graph_hash = 7},
    {.name = "work", .run = work},
    {.name = "counter", .make = make_counter, .unmake = free_counter},
    {.name = "next", .run = next, .n_results = 1},
    {.name = "nothing", .make = make_nothing},
    {.name = "forget", .run = forget_result, .n_results = 1},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static strata_communicator_options cluster = {
    .secret = secret, .secret_bytes = sizeof secret, .connect_seconds = TEST_PATIENCE};

static bool is_released(void *user) {
    (void)user;
    return atomic_load(&shared->release);
}

static int be_worker(int number, int other_program) {
    strata_remote_function table[FUNCTIONS];
    memcpy(table, functions, sizeof table);
    if (other_program) table[0].graph_hash = 8;
    cluster.heartbeat_seconds = shared->heartbeat_seconds;
    const strata_coordinator_worker_options opts = {.worker = number,
                                                    .n_workers = WORKERS,
                                                    .address = addresses[number],
                                                    .cluster = &cluster,
                                                    .functions = table,
                                                    .n_functions = FUNCTIONS,
                                                    .coordinator_seconds = TEST_PATIENCE};
    strata_error err = {0};
    const strata_status status = strata_coordinator_serve(&opts, &err);
    if (status) fprintf(stderr, "worker %d: %s\n", number, err.message);
    return (int)status;
}

static void start_worker(int number, bool other_program) {
    cr_assert(test_fork_server_start(&fork_server, number, other_program));
}

static void kill_worker(int number) {
    kill(test_fork_server_pid(&fork_server, number), SIGKILL);
}

/* How the worker's call of serve ended: 1 + its status. 0: it did not end. */
static int end_of(int number) {
    return test_fork_server_wait(&fork_server, number);
}

static void set_up(void) {
    unsigned next = 0;
    shared = test_shared_memory(sizeof *shared);
    cr_assert(shared);
    shared->heartbeat_seconds = cluster.heartbeat_seconds = TEST_CALM_HEARTBEAT;
    if (!test_addresses(&next, WORKERS, addresses)) cr_skip_test("no sockets here");
    cr_assert(test_fork_server_open(&fork_server, be_worker));
}

TestSuite(coordinator, .init = set_up, .timeout = 300);

static strata_coordinator *create(const strata_coordinator_options *more) {
    strata_coordinator_options opts = more ? *more : (strata_coordinator_options){0};
    strata_coordinator *coordinator = NULL;
    strata_error err = {0};
    opts.workers = workers;
    opts.n_workers = WORKERS;
    opts.cluster = &cluster;
    opts.functions = functions;
    opts.n_functions = FUNCTIONS;
    cr_assert_eq(strata_coordinator_create(&opts, &coordinator, &err), STRATA_OK, "%s", err.message);
    return coordinator;
}

static strata_coordinator *create_with_workers(const strata_coordinator_options *more) {
    for (int i = 0; i < WORKERS; i++) start_worker(i, false);
    return create(more);
}

/* Schedules the function "work". value may be NULL. */
static strata_status schedule_work(strata_coordinator *c, int ms, bool fails, strata_remote_value **value, strata_error *err) {
    int32_t numbers[2] = {ms, fails};
    const strata_array array = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(2), numbers);
    const strata_remote_arg arg = {.array = &array};
    return strata_coordinator_schedule(c, "work", &arg, 1, value, err);
}

#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)
#define FAILS(call, wanted, text)                                \
    do {                                                         \
        const strata_status got = call;                          \
        cr_assert_eq(got, wanted, "%d: %s", got, err.message);   \
        cr_assert(strstr(err.message, text), "%s", err.message); \
    } while (0)

/* ---- results ---- */

Test(coordinator, results_of_closures_come_back) {
    strata_coordinator *c = create_with_workers(NULL);
    strata_error err = {0};
    strata_remote_value *values[40];
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_I32, STRATA_DTYPE_BF16, STRATA_DTYPE_I64};
    static const strata_shape shapes[] = {
        {.rank = 0}, {.rank = 1, .dims = {5}}, {.rank = 2, .dims = {0, 3}}, {.rank = 3, .dims = {2, 3, 500}}};
    for (int i = 0; i < 40; i++) {
        strata_array a, b;
        OK(strata_array_create(dtypes[i % 4], shapes[i / 4 % 4], &a, &err));
        OK(strata_array_create(dtypes[i % 4], shapes[i / 4 % 4], &b, &err));
        for (int64_t k = 0; k < strata_shape_elements(a.shape); k++) {
            strata_element_set(a.dtype, a.data, k, (double)(k % 50));
            strata_element_set(b.dtype, b.data, k, i);
        }
        const strata_remote_arg args[] = {{.array = &a}, {.array = &b}};
        OK(strata_coordinator_schedule(c, "add up", args, 2, &values[i], &err));
        strata_array_finish(&a); /* the coordinator has copied it */
        strata_array_finish(&b);
    }
    OK(strata_coordinator_join(c, &err));
    bool done = false;
    OK(strata_coordinator_done(c, &done, &err));
    cr_assert(done);
    for (int i = 0; i < 40; i++) {
        strata_array results[2];
        OK(strata_remote_value_fetch(values[i], results, 2, &err));
        cr_assert(results[0].dtype == dtypes[i % 4] && strata_shape_equal(results[0].shape, shapes[i / 4 % 4]));
        for (int64_t k = 0; k < strata_shape_elements(results[0].shape); k++)
            cr_assert_eq(strata_element_get(results[0].dtype, results[0].data, k), (double)(k % 50 + i));
        cr_assert_eq(strata_remote_value_attempts(values[i]), 1);
        for (int k = 0; k < 2; k++) strata_array_finish(&results[k]);
        FAILS(strata_remote_value_fetch(values[i], results, 1, &err), STRATA_INVALID, "2 results");
    }
    const strata_coordinator_counts counts = strata_coordinator_count(c);
    cr_assert(counts.ended == 40 && !counts.queued && !counts.running && !counts.repeated && counts.workers == WORKERS);
    strata_coordinator_destroy(c);
    /* values can be released after the coordinator was destroyed */
    for (int i = 0; i < 40; i++) strata_remote_value_release(values[i]);
    for (int i = 0; i < WORKERS; i++) cr_assert(end_of(i) == 1 + STRATA_OK);
}

Test(coordinator, per_worker_values_are_made_on_each_worker) {
    strata_coordinator *c = create_with_workers(NULL);
    strata_error err = {0};
    strata_per_worker *counter = NULL, *other = NULL;
    strata_remote_value *values[60];
    int32_t start = 100;
    int seen[WORKERS] = {0}, n_seen = 0;
    const strata_array from = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(1), &start);
    OK(strata_per_worker_create(c, "counter", &from, 1, &counter, &err));
    for (const double end = test_seconds() + TEST_PATIENCE; n_seen < WORKERS && test_seconds() < end;) {
        for (int i = 0; i < 60; i++)
            OK(strata_coordinator_schedule(c, "next", &(strata_remote_arg){.per_worker = counter}, 1, &values[i], &err));
        OK(strata_coordinator_join(c, &err));
        for (int i = 0; i < 60; i++) {
            strata_array result;
            OK(strata_remote_value_fetch(values[i], &result, 1, &err));
            const int32_t *numbers = result.data;
            cr_assert(numbers[1] >= 0 && numbers[1] < WORKERS);
            n_seen += !seen[numbers[1]];
            /* Each worker has its own object, and runs one closure at a time. */
            cr_assert_eq(numbers[0], 100 + seen[numbers[1]]++);
            strata_array_finish(&result);
            strata_remote_value_release(values[i]);
        }
    }
    cr_assert_eq(n_seen, WORKERS, "%d of %d workers had closures", n_seen, WORKERS);
    /* An object that a worker cannot create is an error, which is raised once. */
    OK(strata_per_worker_create(c, "nothing", NULL, 0, &other, &err));
    for (const double end = test_seconds() + TEST_PATIENCE; test_seconds() < end && !err.status; usleep(2000)) {
        const strata_status status = strata_coordinator_join(c, &err);
        cr_assert(!status || status == STRATA_UNAVAILABLE);
    }
    cr_assert(strstr(err.message, "has no data"), "%s", err.message);
    /* Each schedule with this value fails. Each of the other workers may raise its own error first, which is the same. */
    for (int i = 0; i < 3; i++) {
        FAILS(strata_coordinator_schedule(c, "next", &(strata_remote_arg){.per_worker = other}, 1, NULL, &err),
              STRATA_UNAVAILABLE, "has no data");
    }
    strata_coordinator_destroy(c);
    for (int i = 0; i < WORKERS; i++) cr_assert(end_of(i));
    cr_assert_eq(atomic_load(&shared->objects_live), 0);
}

/* ---- the queue ---- */

/* Sets `release` in 0.3 s, while this process makes a call that waits for closures to end. */
static void release_soon(void) {
    const pid_t parent = getpid();
    if (fork()) return;
    usleep(300000);
    atomic_store(&shared->release, getppid() == parent);
    _exit(0);
}

Test(coordinator, schedule_blocks_only_when_the_queue_is_full) {
    strata_coordinator *c = create_with_workers(&(strata_coordinator_options){.queue_bound = 4});
    strata_error err = {0};
    for (int i = 0; i < WORKERS; i++) OK(schedule_work(c, -1, false, NULL, &err));
    cr_assert(test_wait_for(&shared->running, WORKERS));
    for (int i = 0; i < 4; i++) OK(schedule_work(c, 1, false, NULL, &err)); /* no closure ends until `release` is set */
    bool done = true;
    OK(strata_coordinator_done(c, &done, &err));
    cr_assert(!done);
    release_soon();
    OK(schedule_work(c, 1, false, NULL, &err)); /* the queue is full, so the fifth call waits */
    cr_assert(atomic_load(&shared->release));
    OK(strata_coordinator_join(c, &err));
    for (int i = 0; i < WORKERS; i++)
        cr_assert_eq(atomic_load(&shared->most_on[i]), 1, "closures of a worker ran side by side");
    strata_coordinator_destroy(c);
}

typedef struct joiner {
    pthread_t thread;
    atomic_int tid;
    strata_coordinator *coordinator;
    atomic_int joined;
    strata_status status;
} joiner;

static void *join_all(void *user) {
    joiner *j = user;
    atomic_store(&j->tid, gettid());
    j->status = strata_coordinator_join(j->coordinator, NULL);
    atomic_store(&j->joined, 1);
    return NULL;
}

/* Returns when the thread has slept for a while, so that it waits for something that takes longer than a lock. */
static void wait_until_asleep(int tid) {
    char path[64], state;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int naps = 0; naps < 50; naps = state == 'S' ? naps + 1 : 0) {
        usleep(5000);
        FILE *file = fopen(path, "r");
        cr_assert(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
    }
}

Test(coordinator, schedule_blocks_while_another_thread_joins) {
    joiner j = {.coordinator = create_with_workers(NULL)};
    strata_error err = {0};
    OK(schedule_work(j.coordinator, -1, false, NULL, &err));
    cr_assert(test_wait_for(&shared->running, 1));
    cr_assert_eq(pthread_create(&j.thread, NULL, join_all, &j), 0);
    cr_assert(test_wait_for(&j.tid, 1));
    wait_until_asleep(atomic_load(&j.tid)); /* in join */
    cr_assert_eq(atomic_load(&j.joined), 0);
    release_soon();
    OK(schedule_work(j.coordinator, 1, false, NULL, &err));
    cr_assert(atomic_load(&shared->release));
    pthread_join(j.thread, NULL);
    cr_assert_eq(j.status, STRATA_OK);
    OK(strata_coordinator_join(j.coordinator, &err));
    strata_coordinator_destroy(j.coordinator);
}

/* ---- errors ---- */

/* Schedules 12 closures, of which number n fails. `how` chooses the call that must raise the error. When number 0 fails, the
 * others run for so long that most of them have not started by then. */
static void fail_at(strata_coordinator *c, int n, int how) {
    strata_error err = {0}, none = {0};
    strata_remote_value *values[12] = {NULL};
    strata_status status = STRATA_OK;
    int n_scheduled = 0, n_cancelled = 0;
    bool done = false;
    for (; n_scheduled < 12 && !status; n_scheduled++)
        status = schedule_work(c, n || !n_scheduled ? 5 : 200, n_scheduled == n, &values[n_scheduled], &err);
    if (how == 0 && !status) status = strata_coordinator_join(c, &err);
    while (how == 1 && !status) status = schedule_work(c, 1, false, NULL, &err);
    while (how == 2 && !status) {
        usleep(1000);
        status = strata_coordinator_done(c, &done, &err);
    }
    cr_assert_eq(status, STRATA_DATA, "%d %d: %d %s", n, how, status, err.message);
    cr_assert(strstr(err.message, "was told to fail") && strstr(err.message, "worker:"), "%s", err.message);
    cr_assert_eq(atomic_load(&shared->running), 0, "closures run after the error was raised");
    int before = 0, after = 0;
    for (int i = 0; i < WORKERS; i++) before += atomic_load(&shared->ran_on[i]);
    usleep(20000);
    for (int i = 0; i < WORKERS; i++) after += atomic_load(&shared->ran_on[i]);
    cr_assert_eq(before, after, "closures ran after the error was raised");
    OK(strata_coordinator_join(c, &err)); /* the error has been raised already */
    OK(strata_coordinator_done(c, &done, &err));
    cr_assert(done);
    for (int i = 0; i < 12 && values[i]; i++) {
        const strata_status own = strata_remote_value_fetch(values[i], NULL, 0, &none);
        n_cancelled += own == STRATA_INTERRUPTED;
        cr_assert_eq(own == STRATA_DATA, i == n);
        cr_assert(own == STRATA_OK || own == STRATA_INTERRUPTED || own == STRATA_DATA);
        cr_assert_eq(strata_remote_value_fetch(values[i], NULL, 0, &none), own); /* fetching again gives the same status */
        strata_remote_value_release(values[i]);
    }
    if (n == 0 && n_scheduled == 12) cr_assert_gt(n_cancelled, 0);
}

Test(coordinator, an_error_is_raised_once_and_nothing_runs_after_it) {
    strata_coordinator *c = create_with_workers(NULL);
    strata_error err = {0};
    for (int n = 0; n < 12; n++) fail_at(c, n, n % 3);
    /* The coordinator can be used again. */
    for (int i = 0; i < 6; i++) OK(schedule_work(c, 1, false, NULL, &err));
    OK(strata_coordinator_join(c, &err));
    /* A function that does not create its result. */
    OK(strata_coordinator_schedule(c, "forget", NULL, 0, NULL, &err));
    FAILS(strata_coordinator_join(c, &err), STRATA_INVALID, "result 0 was not created");
    strata_coordinator_destroy(c);
}

/* ---- lost workers ---- */

/* Schedules closures until the worker has completed one more. */
static void expect_closures_on(strata_coordinator *c, int worker) {
    const int before = atomic_load(&shared->ran_on[worker]);
    strata_error err = {0};
    for (const double end = test_seconds() + TEST_PATIENCE;
         test_seconds() < end && atomic_load(&shared->ran_on[worker]) == before;) {
        for (int i = 0; i < WORKERS; i++) OK(schedule_work(c, 10, false, NULL, &err));
        OK(strata_coordinator_join(c, &err));
    }
    cr_assert_gt(atomic_load(&shared->ran_on[worker]), before, "worker %d gets no closures", worker);
}

Test(coordinator, closures_of_a_killed_worker_run_again_and_it_may_come_back) {
    enum { CLOSURES = 60 };
    strata_coordinator *c = create_with_workers(NULL);
    strata_error err = {0};
    strata_remote_value *values[CLOSURES], *last;
    strata_per_worker *counter = NULL;
    strata_array result;
    int32_t start = 0;
    int n_again = 0;
    const strata_array from = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(1), &start);
    OK(strata_per_worker_create(c, "counter", &from, 1, &counter, &err));
    for (int i = 0; i < CLOSURES; i++) OK(schedule_work(c, i < WORKERS ? -1 : 30, false, &values[i], &err));
    cr_assert(test_wait_for(&shared->running, WORKERS));
    kill_worker(1); /* while it runs a closure */
    atomic_store(&shared->release, true);
    OK(strata_coordinator_join(c, &err));
    for (int i = 0; i < CLOSURES; i++) {
        OK(strata_remote_value_fetch(values[i], NULL, 0, &err));
        n_again += strata_remote_value_attempts(values[i]) > 1;
        cr_assert_geq(atomic_load(&shared->runs[i + 1]), 1, "closure %d was lost", i + 1);
        strata_remote_value_release(values[i]);
    }
    strata_coordinator_counts counts = strata_coordinator_count(c);
    cr_assert(n_again == 1 && counts.repeated == 1 && counts.lost == 1 && counts.workers == WORKERS - 1,
              "%d closures ran again, %lld workers lost", n_again, (long long)counts.lost);
    /* The worker starts again. Its object must be created again, and it must get closures. */
    const int made = atomic_load(&shared->objects_made[1]);
    atomic_store(&shared->running_on[1], 0); /* the killed worker could not decrement it */
    start_worker(1, false);
    cr_assert(test_wait_for(&shared->objects_made[1], made + 1));
    expect_closures_on(c, 1);
    for (int i = 0; i < 12; i++) {
        OK(strata_coordinator_schedule(c, "next", &(strata_remote_arg){.per_worker = counter}, 1, &last, &err));
        OK(strata_remote_value_fetch(last, &result, 1, &err));
        strata_array_finish(&result);
        strata_remote_value_release(last);
    }
    strata_coordinator_destroy(c);
}

Test(coordinator, a_stopped_worker_is_lost_and_used_again_when_it_goes_on) {
    shared->heartbeat_seconds = cluster.heartbeat_seconds = 1;
    strata_coordinator *c = create_with_workers(NULL);
    strata_error err = {0};
    for (int i = 0; i < 30; i++) OK(schedule_work(c, i < WORKERS ? -1 : 30, false, NULL, &err));
    cr_assert(test_wait_for(&shared->running, WORKERS));
    kill(test_fork_server_pid(&fork_server, 2), SIGSTOP);
    atomic_store(&shared->release, true);
    OK(strata_coordinator_join(c, &err));
    for (int i = 1; i <= 30; i++) cr_assert_geq(atomic_load(&shared->runs[i]), 1, "closure %d was lost", i);
    cr_assert_eq(strata_coordinator_count(c).lost, 1);
    kill(test_fork_server_pid(&fork_server, 2), SIGCONT);
    TEST_WAIT_UNTIL(strata_coordinator_count(c).workers == WORKERS);
    expect_closures_on(c, 2);
    strata_coordinator_destroy(c);
}

Test(coordinator, closures_fail_when_no_worker_is_there_for_long) {
    strata_coordinator *c = create_with_workers(&(strata_coordinator_options){.worker_seconds = 0.5});
    strata_error err = {0};
    OK(schedule_work(c, 1, false, NULL, &err));
    OK(strata_coordinator_join(c, &err));
    for (int i = 0; i < WORKERS; i++) kill_worker(i);
    OK(schedule_work(c, 1, false, NULL, &err));
    FAILS(strata_coordinator_join(c, &err), STRATA_PEER_LOST, "no worker was available for 0.5 s; worker:");
    OK(strata_coordinator_join(c, &err));
    start_worker(2, false);
    TEST_WAIT_UNTIL(strata_coordinator_count(c).workers > 0);
    OK(schedule_work(c, 1, false, NULL, &err));
    OK(strata_coordinator_join(c, &err));
    strata_coordinator_destroy(c);
}

Test(coordinator, a_closure_may_have_a_bound) {
    strata_coordinator *c = create_with_workers(&(strata_coordinator_options){.closure_seconds = 5});
    strata_error err = {0};
    OK(schedule_work(c, -1, false, NULL, &err));
    FAILS(strata_coordinator_join(c, &err), STRATA_TIMEOUT, "closure 1 (work)");
    atomic_store(&shared->release, true);
    for (int i = 0; i < 9; i++) OK(schedule_work(c, 1, false, NULL, &err));
    OK(strata_coordinator_join(c, &err));
    strata_coordinator_destroy(c);
}

Test(coordinator, a_new_coordinator_goes_on_with_the_workers) {
    for (int i = 0; i < WORKERS; i++) start_worker(i, false);
    const pid_t first = fork(); /* this process has no threads yet, so it may fork */
    if (!first) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        strata_coordinator *c = create(NULL);
        strata_error err = {0};
        strata_per_worker *counter = NULL;
        int32_t start = 0;
        const strata_array from = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(1), &start);
        if (strata_per_worker_create(c, "counter", &from, 1, &counter, &err)) _exit(1);
        for (int i = 0; i < 1000 && !schedule_work(c, 20, false, NULL, &err); i++) continue;
        for (;;) pause();
    }
    for (int i = 0; i < WORKERS; i++) cr_assert(test_wait_for(&shared->objects_made[i], 1));
    cr_assert(test_wait_for(&shared->running, 1));
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    strata_coordinator *c = create(NULL);
    strata_error err = {0};
    for (int i = 0; i < 12; i++) OK(schedule_work(c, 5, false, NULL, &err));
    OK(strata_coordinator_join(c, &err));
    cr_assert_eq(atomic_load(&shared->objects_live), 0); /* the objects of the first coordinator were destroyed */
    strata_coordinator_destroy(c);
    for (int i = 0; i < WORKERS; i++) cr_assert(end_of(i) == 1 + STRATA_OK);
}

/* ---- invalid arguments and programs ---- */

/* Waits until the first n workers listen. A coordinator that fails at once would not wait for a worker that starts later. */
static void wait_for_listeners(int n) {
    for (int i = 0; i < n; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        at.sin_port = htons((uint16_t)atoi(strrchr(addresses[i], ':') + 1));
        bool there = false;
        for (const double end = test_seconds() + TEST_PATIENCE; test_seconds() < end && !there; usleep(2000)) {
            const int fd = socket(AF_INET, SOCK_STREAM, 0);
            there = !connect(fd, (struct sockaddr *)&at, sizeof at);
            close(fd);
        }
        cr_assert(there, "worker %d does not listen", i);
    }
}

static void start_all(int other_program) {
    for (int i = 0; i < WORKERS; i++) {
        start_worker(i, i == other_program);
    }
    wait_for_listeners(WORKERS);
}

/* Expects that serve ended with this status on each worker. */
static void all_ended(strata_status status) {
    for (int i = 0; i < WORKERS; i++) cr_assert(end_of(i) == 1 + (int)status, "worker %d: %d", i, end_of(i));
}

Test(coordinator, another_program_is_refused_on_all_tasks) {
    strata_coordinator_options opts = {
        .workers = workers, .n_workers = WORKERS, .cluster = &cluster, .functions = functions, .n_functions = FUNCTIONS};
    strata_coordinator *c = NULL;
    strata_error err = {0};
    start_all(1);
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "function \"add up\" computes another graph on chief:0");
    cr_assert(
        strstr(err.message, "worker:1") && strstr(err.message, "0000000000000007") && strstr(err.message, "0000000000000008"),
        "%s", err.message);
    all_ended(STRATA_INVALID); /* also on the two other workers */
    cr_assert_null(c);
}

Test(coordinator, other_tables_of_functions_are_refused) {
    strata_remote_function table[FUNCTIONS];
    strata_coordinator_options opts = {
        .workers = workers, .n_workers = WORKERS, .cluster = &cluster, .functions = table, .n_functions = FUNCTIONS};
    strata_coordinator *c = NULL;
    strata_error err = {0};
    memcpy(table, functions, sizeof functions);
    table[3].n_results = 2;
    start_all(-1);
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "\"next\" runs with 2 results on chief:0");
    all_ended(STRATA_INVALID);
    table[3] = (strata_remote_function){.name = "more", .run = work};
    start_all(-1);
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "chief:0 has a function \"more\" and worker:");
    all_ended(STRATA_INVALID);
    opts.n_functions = 2;
    start_all(-1);
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "chief:0 has 2 functions and worker:");
    all_ended(STRATA_INVALID);
    opts.n_workers = 2;
    start_all(-1);
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "of 2 at this address, but this is worker");
    table[1].name = "add up";
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "two functions are named \"add up\"");
    table[1] = (strata_remote_function){.name = "idle"};
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_INVALID, "either run or make");
}

Test(coordinator, absent_workers_are_named_and_may_come_later) {
    strata_coordinator *c = NULL;
    strata_error err = {0};
    strata_coordinator_options opts = {
        .workers = workers, .n_workers = WORKERS, .cluster = &cluster, .functions = functions, .n_functions = FUNCTIONS};
    start_worker(0, false);
    wait_for_listeners(1);
    cluster.connect_seconds = 4;
    FAILS(strata_coordinator_create(&opts, &c, &err), STRATA_TIMEOUT,
          "1 of 3 workers were reached within 4 s; missing: worker:1, worker:2");
    cluster.connect_seconds = TEST_PATIENCE;
    cr_assert(end_of(0) == 1 + STRATA_TIMEOUT); /* this worker fails, too */
    start_worker(0, false);
    c = create(&(strata_coordinator_options){.least_workers = 1});
    start_worker(2, false);
    TEST_WAIT_UNTIL(strata_coordinator_count(c).workers == 2);
    expect_closures_on(c, 2);
    strata_coordinator_destroy(c);
}

Test(coordinator, wrong_arguments_say_what_is_wrong) {
    strata_coordinator *c = create_with_workers(NULL), *other = NULL;
    strata_error err = {0};
    strata_per_worker *value = NULL;
    const strata_array broken = {.dtype = (strata_dtype)99, .shape = STRATA_SHAPE(1)};
    FAILS(strata_coordinator_schedule(c, "unknown", NULL, 0, NULL, &err), STRATA_INVALID, "no function \"unknown\"");
    FAILS(strata_coordinator_schedule(c, "counter", NULL, 0, NULL, &err), STRATA_INVALID, "makes per-worker values");
    FAILS(strata_per_worker_create(c, "work", NULL, 0, &value, &err), STRATA_INVALID, "runs closures");
    FAILS(strata_coordinator_schedule(c, "work", &(strata_remote_arg){0}, 1, NULL, &err), STRATA_INVALID, "argument 0");
    FAILS(strata_coordinator_schedule(c, "work", &(strata_remote_arg){.array = &broken}, 1, NULL, &err), STRATA_INVALID,
          "not a valid array");
    FAILS(strata_coordinator_schedule(c, "work", NULL, 65, NULL, &err), STRATA_INVALID, "65 arguments");
    strata_coordinator_options opts = {.workers = workers, .n_workers = 0, .functions = functions, .n_functions = FUNCTIONS};
    FAILS(strata_coordinator_create(&opts, &other, &err), STRATA_INVALID, "at least one worker");
    opts.n_workers = WORKERS;
    opts.worker_seconds = -1;
    FAILS(strata_coordinator_create(&opts, &other, &err), STRATA_INVALID, "worker_seconds is -1");
    strata_coordinator_destroy(c);
    strata_coordinator_destroy(NULL);
}

Test(coordinator, a_worker_waits_for_a_coordinator_in_vain) {
    strata_coordinator_worker_options opts = {.worker = 0,
                                              .n_workers = 1,
                                              .address = addresses[0],
                                              .cluster = &cluster,
                                              .functions = functions,
                                              .n_functions = FUNCTIONS,
                                              .coordinator_seconds = 0.3};
    strata_error err = {0};
    FAILS(strata_coordinator_serve(&opts, &err), STRATA_TIMEOUT, "worker:0 waited 0.3 s for a coordinator");
    opts.stop_now = is_released;
    atomic_store(&shared->release, true);
    FAILS(strata_coordinator_serve(&opts, &err), STRATA_INTERRUPTED, "asked to stop");
    opts.worker = 1;
    FAILS(strata_coordinator_serve(&opts, &err), STRATA_INVALID, "worker 1 of 1");
}

Test(coordinator, a_worker_whose_coordinator_is_lost_waits_for_another_one_in_vain) {
    strata_error err = {0};
    const pid_t child = fork(); /* this process has no threads yet, so it may fork */
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const strata_coordinator_options opts = {
            .workers = workers, .n_workers = 1, .cluster = &cluster, .functions = functions, .n_functions = FUNCTIONS};
        strata_coordinator *c = NULL;
        const bool fails = strata_coordinator_create(&opts, &c, &err) || schedule_work(c, 1, false, NULL, &err) ||
                           strata_coordinator_join(c, &err);
        _exit(fails); /* without saying goodbye */
    }
    const strata_coordinator_worker_options opts = {.worker = 0,
                                                    .n_workers = 1,
                                                    .address = addresses[0],
                                                    .cluster = &cluster,
                                                    .functions = functions,
                                                    .n_functions = FUNCTIONS,
                                                    .coordinator_seconds = 4};
    int code = -1;
    FAILS(strata_coordinator_serve(&opts, &err), STRATA_TIMEOUT, "worker:0 waited 4 s for a coordinator: it was lost: ");
    cr_assert(waitpid(child, &code, 0) == child && !code, "the coordinator ended with %d", code);
}

/* ---- hashes of graphs ---- */

static uint64_t hash_of(const char *name, float constant, int64_t width, bool relu, bool more) {
    strata_graph *graph = NULL;
    strata_error err = {0};
    uint64_t hash = 0;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, name, STRATA_DTYPE_F32, STRATA_SHAPE(2, width));
    if (more) strata_exp(x); /* no output needs this node */
    const strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &constant);
    strata_tensor *y = strata_mul(x, strata_constant(graph, &value));
    if (relu) y = strata_relu(y);
    strata_tensor *sum = strata_reduce_sum(y, (int[]){1}, 1, false);
    OK(strata_remote_graph_hash(&sum, 1, &hash, &err));
    strata_graph_destroy(graph);
    return hash;
}

Test(coordinator, equal_graphs_have_equal_hashes_and_others_have_not) {
    const uint64_t hash = hash_of("x", 2, 3, true, false);
    strata_error err = {0};
    uint64_t none = 0;
    cr_assert_neq(hash, 0);
    cr_assert_eq(hash, hash_of("x", 2, 3, true, true));
    cr_assert_neq(hash, hash_of("y", 2, 3, true, false));
    cr_assert_neq(hash, hash_of("x", 3, 3, true, false));
    cr_assert_neq(hash, hash_of("x", 2, 4, true, false));
    cr_assert_neq(hash, hash_of("x", 2, 3, false, false));
    FAILS(strata_remote_graph_hash(NULL, 0, &none, &err), STRATA_INVALID, "at least one output");
    FAILS(strata_remote_graph_hash(&(strata_tensor *){NULL}, 1, &none, &err), STRATA_INVALID, "NULL");
}
