/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin that hangs in a call: what the library returns, what it reports by strata_driver_options.on_failure, and that
 * nothing waits for the call. Each test case is a process of its own. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strata/executable.h"
#include "strata/ops.h"
#include "strata/strata.h"
#include "tests/support/patience.h"

TestSuite(hang, .timeout = 300);

static strata_error err;
static atomic_int n_failures;
static strata_status failure;
static char failed[1024];
/* The fault from now on; NULL: it stays. */
static const char *fault_then;

static void take_failure(strata_status status, const char *message, void *user) {
    (void)user;
    failure = status;
    snprintf(failed, sizeof failed, "%s", message);
    if (fault_then) setenv("STRATA_FAULTY", fault_then, 1);
    atomic_fetch_add(&n_failures, 1);
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void configure(double seconds) {
    const strata_driver_options opts = {.seconds = seconds, .on_failure = take_failure};
    cr_assert_eq(strata_drivers_configure(&opts, &err), STRATA_OK, "%s", err.message);
}

/* Opens the device, which misbehaves from then on. */
static strata_device *open_faulty(const char *fault, strata_device_options opts) {
    strata_device *device = NULL;
    setenv("STRATA_FAULTY", "", 1);
    cr_assert_eq(strata_plugin_load(STRATA_TEST_PLUGINS "/libstrata_faulty_plugin.so", &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_device_open("faulty:0", &opts, &device, &err), STRATA_OK, "%s", err.message);
    setenv("STRATA_FAULTY", fault, 1);
    return device;
}

/* Computes x + x. */
static strata_status add(strata_device *device) {
    float x[] = {1, 2, 3}, y[3] = {0};
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), x),
                 output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), y);
    const char *name = "x";
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    STRATA_TRY(strata_graph_create(&graph, &err));
    strata_tensor *leaf = strata_input(graph, name, STRATA_DTYPE_F32, input.shape), *sum = strata_add(leaf, leaf);
    strata_status status = strata_executable_create(device, &sum, 1, NULL, 0, NULL, &exe, &err);
    if (!status) status = strata_executable_run(exe, &name, &input, 1, &output, 1, &err);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    if (!status) cr_expect_float_eq(y[2], 6, 1e-6);
    return status;
}

Test(hang, a_compiler_of_a_plugin_has_the_limit_of_the_user) {
    strata_device *device = open_faulty("hangs:compile", (strata_device_options){.compile_seconds = 0.3});
    const double began = now_seconds();
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(add(device), STRATA_TIMEOUT);
        cr_expect(
            strstr(err.message, "faulty:0") && strstr(err.message, "within 0.3 s") && strstr(err.message, "compile_seconds"),
            "%s", err.message);
    }
    strata_device_close(device);
    cr_expect(strata_drivers_hang());
    cr_expect_lt(now_seconds() - began, TEST_PATIENCE);
}

Test(hang, a_device_that_does_not_open_is_a_timeout) {
    configure(0.3);
    setenv("STRATA_FAULTY", "hangs:device_open", 1);
    strata_device *device = NULL;
    cr_assert_eq(strata_plugin_load(STRATA_TEST_PLUGINS "/libstrata_faulty_plugin.so", &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_device_open("faulty:0", NULL, &device, &err), STRATA_TIMEOUT);
    cr_expect(strstr(err.message, "its call to open the device has not returned for 0.3 s"), "%s", err.message);
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    strata_device_close(device);
    cr_expect_eq(n_failures, 0, "what a function returns is not reported again");
}

Test(hang, a_plugin_that_does_not_start_is_named_and_not_called_again) {
    setenv("STRATA_FAULTY", "hangs:start", 1);
    for (int again = 0; again < 2; again++) {
        configure(again ? 10 * TEST_PATIENCE : 0.3); /* a second call would hang for longer than the test waits */
        const double began = now_seconds();
        cr_assert_eq(strata_plugin_load(STRATA_TEST_PLUGINS "/libstrata_faulty_plugin.so", &err), STRATA_TIMEOUT);
        cr_expect(strstr(err.message, "libstrata_faulty_plugin.so") && strstr(err.message, "its call to start"), "%s",
                  err.message);
        cr_expect_lt(now_seconds() - began, TEST_PATIENCE);
    }
}

Test(hang, a_run_that_hangs_is_reported_once_and_goes_on_if_it_returns) {
    configure(1);
    strata_device *device = open_faulty("hangs:run", (strata_device_options){.stall_seconds = 0.3});
    fault_then = "";
    cr_assert_eq(add(device), STRATA_OK, "%s", err.message);
    cr_expect_eq(n_failures, 1);
    cr_expect_eq(failure, STRATA_TIMEOUT);
    cr_expect(strstr(failed, "faulty:0") && strstr(failed, "its call to submit a run has not returned for 0.3 s") &&
                  strstr(failed, "stall_seconds"),
              "%s", failed);
    cr_assert_eq(add(device), STRATA_OK, "%s", err.message);
    cr_expect_eq(n_failures, 1);
    strata_device_close(device);
}

Test(hang, calls_that_are_slow_within_the_limit_are_not_reported) {
    configure(TEST_PATIENCE);
    strata_device *device = open_faulty("slow:60", (strata_device_options){.stall_seconds = 0.5});
    for (int i = 0; i < 15; i++) cr_assert_eq(add(device), STRATA_OK, "%s", err.message); /* 0.9 s in all */
    cr_expect_eq(n_failures, 0, "%s", failed);
    strata_device_close(device);
}

static char warning[1024];

static void take_warning(const char *message, void *user) {
    (void)user;
    snprintf(warning, sizeof warning, "%s", message);
}

Test(hang, a_close_that_hangs_ends_and_is_a_warning_without_on_failure) {
    const strata_driver_options opts = {.seconds = 0.3};
    cr_assert_eq(strata_drivers_configure(&opts, &err), STRATA_OK);
    strata_device *device = open_faulty("hangs:close", (strata_device_options){.on_warning = take_warning});
    const double began = now_seconds();
    strata_device_close(device);
    cr_expect_lt(now_seconds() - began, TEST_PATIENCE);
    cr_expect(strstr(warning, "its call to close the device has not returned for 0.3 s"), "%s", warning);
}

Test(hang, closing_after_a_run_that_hung_waits_for_nothing) {
    configure(10 * TEST_PATIENCE);
    strata_device *device = open_faulty("hang+hangs:close+hangs:buffer_destroy+hangs:program_destroy",
                                        (strata_device_options){.stall_seconds = 0.2});
    const double began = now_seconds();
    cr_assert_eq(add(device), STRATA_TIMEOUT);
    cr_expect(strstr(err.message, "has not ended for 0.2 s"), "%s", err.message);
    strata_device_close(device);
    cr_expect_lt(now_seconds() - began, TEST_PATIENCE);
    cr_expect_eq(n_failures, 0, "%s", failed);
}

/* A process that calls exit(0) in a call of the plugin: on_failure ends it with another code. */
static void end_with_7(strata_status status, const char *message, void *user) {
    (void)user;
    _exit(status == STRATA_DEVICE_LOST && strstr(message, "it called exit in its call to submit a run") ? 7 : 8);
}

Test(hang, exit_in_a_call_is_reported) {
    int status = 0;
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (!child) {
        const strata_driver_options opts = {.on_failure = end_with_7};
        if (strata_drivers_configure(&opts, &err)) _exit(1);
        strata_device *device = open_faulty("exits:run", (strata_device_options){0});
        const strata_status ended = add(device);
        _exit(ended ? 2 : 3);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %x", (unsigned)status);
}

/* The time during which a process is stopped is not the driver's. */
Test(hang, a_stopped_process_does_not_hang) {
    int status = 0, ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (!child) {
        const strata_driver_options opts = {.on_failure = end_with_7};
        if (strata_drivers_configure(&opts, &err)) _exit(1);
        strata_device *device = open_faulty("slow:500", (strata_device_options){.stall_seconds = 1.2});
        if (write(ready[1], "r", 1) != 1) _exit(1);
        _exit(add(device) ? 2 : 0);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    usleep(100 * 1000);
    kill(child, SIGSTOP);
    usleep(2000 * 1000);
    kill(child, SIGCONT);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

Test(hang, limits_that_make_no_sense_are_refused) {
    const double wrong[] = {-1, 1e-3, 1e10};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const strata_driver_options opts = {.seconds = wrong[i]};
        cr_expect_eq(strata_drivers_configure(&opts, &err), STRATA_INVALID);
        cr_expect(strstr(err.message, "seconds"), "%s", err.message);
    }
}
