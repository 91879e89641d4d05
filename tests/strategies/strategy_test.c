/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies by name: which devices they use, what they refuse, and how they divide a batch. */
#include "strata/strategy.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategies/kinds.h"

static strata_strategy *create(const char *name, const char *const *devices, int n) {
    strata_strategy *strategy = NULL;
    strata_error err = {0};
    strata_strategy_options opts = {.devices = devices, .n_devices = n};
    cr_assert_eq(strata_strategy_create(name, &opts, &strategy, &err), STRATA_OK, "%s", err.message);
    return strategy;
}

static void expect_refused(const char *name, const char *const *devices, int n, strata_status status, const char *words) {
    strata_strategy *strategy = NULL;
    strata_error err = {0};
    strata_strategy_options opts = {.devices = devices, .n_devices = n};
    cr_assert_eq(strata_strategy_create(name, &opts, &strategy, &err), status, "%s", err.message);
    cr_assert_not_null(strstr(err.message, words), "\"%s\" is not in \"%s\"", words, err.message);
    cr_assert_null(strategy);
}

Test(strategy, one_device_is_the_device_that_is_named) {
    strata_strategy *strategy = create("one_device", (const char *[]){"host"}, 1);
    cr_assert_str_eq(strata_strategy_name(strategy), "one_device");
    cr_assert_eq(strata_strategy_num_replicas_in_sync(strategy), 1);
    cr_assert_str_eq(strata_device_get_info(strata_strategy_device(strategy, 0))->id, "host");
    cr_assert_null(strata_strategy_device(strategy, 1));
    cr_assert_not_null(strstr(strata_strategy_choice(strategy), "one_device on host"));
    strata_strategy_destroy(strategy);
}

Test(strategy, automatic_over_one_device_is_one_device) {
    strata_strategy *strategy = create("auto", (const char *[]){"host"}, 1);
    cr_assert_str_eq(strata_strategy_name(strategy), "one_device");
    strata_strategy_destroy(strategy);
}

Test(strategy, the_default_opens_what_opening_without_a_name_does) {
    strata_device *best = NULL;
    cr_assert_eq(strata_device_open(NULL, NULL, &best, NULL), STRATA_OK);
    strata_strategy *strategy = create(NULL, NULL, 0);
    cr_assert_str_eq(strata_device_get_info(strata_strategy_device(strategy, 0))->id, strata_device_get_info(best)->id);
    strata_strategy_destroy(strategy);
    strata_device_close(best);
}

Test(strategy, refuses_what_makes_no_sense) {
    const char *twice[] = {"host", "host"}, *missing[] = {"host", "opencl:77"};
    expect_refused("miror", NULL, 0, STRATA_INVALID, "did you mean \"mirrored\"");
    expect_refused("xyzzy", NULL, 0, STRATA_INVALID, "there are: default");
    expect_refused("mirrored", missing, 2, STRATA_UNAVAILABLE, "opencl:77");
    expect_refused("one_device", twice, 2, STRATA_INVALID, "2 devices");
    expect_refused("default", twice, 1, STRATA_INVALID, "no device by name");
    strata_strategy *strategy = NULL;
    cr_assert_eq(strata_strategy_from_devices(NULL, 0, &strategy, NULL), STRATA_INVALID);
}

Test(strategy, the_host_can_be_several_replicas) {
    strata_strategy *strategy = create("mirrored", (const char *[]){"host", "host", "host"}, 3);
    cr_assert_eq(strata_strategy_num_replicas_in_sync(strategy), 3);
    cr_assert_neq(strata_strategy_device(strategy, 0), strata_strategy_device(strategy, 1));
    strata_strategy_destroy(strategy);
}

Test(strategy, other_devices_are_named_once) {
    strata_device *device = NULL;
    if (strata_device_open("opencl:0", NULL, &device, NULL)) cr_skip_test("opencl:0 is not there");
    strata_device_close(device);
    expect_refused("mirrored", (const char *[]){"opencl:0", "opencl:0"}, 2, STRATA_INVALID, "named twice");
}

Test(strategy, shares_are_balanced_and_cover_the_batch) {
    strata_device *devices[20];
    strata_strategy *strategy = NULL;
    for (int n = 1; n <= 20; n++) {
        for (int i = 0; i < n; i++) cr_assert_eq(strata_device_open("host", NULL, &devices[i], NULL), STRATA_OK);
        cr_assert_eq(strata_strategy_from_devices(devices, n, &strategy, NULL), STRATA_OK);
        for (int64_t global = 0; global <= 41; global++) {
            int64_t next = 0, before = global;
            for (int r = 0; r < n; r++) {
                int64_t first = -1, share = -1;
                strata_strategy_share(strategy, global, r, &first, &share);
                cr_assert_eq(first, next);
                cr_assert(share == global / n || share == (global + n - 1) / n);
                cr_assert_leq(share, before, "the first replicas have the larger shares");
                next = first + share;
                before = share;
            }
            cr_assert_eq(next, global);
        }
        strata_strategy_destroy(strategy);
    }
}

Test(strategy, shares_by_weights_cover_the_batch_and_follow_them) {
    const int64_t weights[][3] = {{1, 1, 1}, {3, 1, 1}, {1, 5, 2}, {999, 1, 1}};
    for (size_t k = 0; k < sizeof weights / sizeof *weights; k++) {
        const int64_t total = weights[k][0] + weights[k][1] + weights[k][2];
        strata_strategy strategy = {.n_replicas = 3, .weights = (int64_t *)weights[k]};
        for (int64_t global = 0; global <= 60; global++) {
            int64_t next = 0;
            for (int r = 0; r < 3; r++) {
                int64_t first = -1, share = -1;
                strata_strategy_share(&strategy, global, r, &first, &share);
                cr_assert_eq(first, next);
                cr_assert_lt(llabs(share * total - global * weights[k][r]), total,
                             "less than one example from its exact share");
                next = first + share;
            }
            cr_assert_eq(next, global);
        }
    }
}

Test(strategy, an_automatic_split_follows_the_measured_speeds) {
    int64_t weights[4] = {1, 1};
    strata_strategy strategy = {.n_replicas = 2, .weights = weights, .auto_split = true};
    int64_t first, share;
    cr_assert_not(strata_strategy_balance(&strategy, 40, (double[]){1.0, 1.05}), "a twentieth is no reason");
    cr_assert_not(strata_strategy_balance(&strategy, 40, (double[]){1.0, 0}), "one is not known");
    cr_assert(strata_strategy_balance(&strategy, 40, (double[]){1.0, 3.0}));
    strata_strategy_share(&strategy, 40, 0, &first, &share);
    cr_assert_eq(share, 30);
    cr_assert_not(strata_strategy_balance(&strategy, 40, (double[]){2.0, 2.0}));
}

/* ---- choosing ---- */

static strata_device_info row(const char *id, const char *name, strata_device_class device_class) {
    strata_device_info info = {.device_class = device_class, .memory_bytes = 1 << 20};
    snprintf(info.id, sizeof info.id, "%s", id);
    snprintf(info.backend, sizeof info.backend, "%.*s", (int)strcspn(id, ":"), id);
    snprintf(info.name, sizeof info.name, "%s", name);
    return info;
}

static void expect_chosen(const strata_strategy_kind *kind, const strata_device_info *rows, int n, const char *wanted,
                          const strata_strategy_kind *becomes) {
    const char *chosen[16];
    strata_device_choice choice = {.ids = chosen};
    strata_error err = {0};
    char ids[256] = "";
    cr_assert_eq((kind->choose ? kind->choose : strata_choose_accelerators)(rows, n, &choice, &err), STRATA_OK, "%s",
                 err.message);
    for (int i = 0; i < choice.n; i++) snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s ", choice.ids[i]);
    cr_assert_str_eq(ids, wanted);
    cr_assert_str_eq(strata_strategy_name_of(kind, choice.n), becomes->name);
}

Test(strategy, an_accelerator_that_two_apis_show_counts_once) {
    const strata_device_class gpu = STRATA_DEVICE_DISCRETE_GPU, cpu = STRATA_DEVICE_CPU;
    const strata_strategy_kind *mirrored = &strata_strategy_mirrored, *automatic = &strata_strategy_auto;
    const strata_device_info both[] = {row("host", "cpu", STRATA_DEVICE_HOST), row("opencl:0", "NVIDIA A1", gpu),
                                       row("opencl:1", "pocl", cpu),           row("opencl:1.0", "pocl", cpu),
                                       row("vulkan:0", "NVIDIA_A1", gpu),      row("vulkan:1", "Radeon", gpu)};
    expect_chosen(mirrored, both, 6, "opencl:0 vulkan:1 ", mirrored);
    expect_chosen(automatic, both, 6, "opencl:0 vulkan:1 ", mirrored);
    expect_chosen(automatic, both, 5, "opencl:0 ", &strata_strategy_one_device);
    const strata_device_info more[] = {row("opencl:0", "Arc", gpu), row("vulkan:0", "Arc", gpu), row("vulkan:1", "Arc", gpu)};
    expect_chosen(mirrored, more, 3, "vulkan:0 vulkan:1 ", mirrored);
    const strata_device_info none[] = {row("host", "cpu", STRATA_DEVICE_HOST), row("opencl:0", "pocl", cpu),
                                       row("vulkan:0", "llvmpipe", STRATA_DEVICE_SOFTWARE_GPU)};
    expect_chosen(mirrored, none, 3, "opencl:0 ", mirrored);
    expect_chosen(automatic, none, 3, "opencl:0 ", &strata_strategy_one_device);
}

/* Divides n accelerators 0, 1, ... among the workers of a machine, and expects these for worker `rank`. */
static void expect_part(int n, int rank, int workers, const char *wanted) {
    const char *all[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    strata_device_choice choice = {.ids = all, .n = n};
    char ids[256] = "";
    strata_choice_divide(&choice, rank, workers);
    for (int i = 0; i < choice.n; i++) snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s ", choice.ids[i]);
    cr_assert_str_eq(ids, wanted, "%d accelerators, worker %d of %d: %s", n, rank, workers, ids);
}

Test(strategy, workers_of_a_machine_divide_its_accelerators) {
    expect_part(8, 0, 4, "0 1 ");
    expect_part(8, 3, 4, "6 7 ");
    expect_part(5, 0, 2, "0 1 ");
    expect_part(5, 1, 2, "2 3 4 ");
    expect_part(2, 3, 4, "1 ");
    expect_part(1, 3, 4, "0 ");
    expect_part(3, 0, 0, "0 1 2 ");
}
