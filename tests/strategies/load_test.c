/* SPDX-License-Identifier: Apache-2.0
 *
 * How the chief of parameter_server computes its reports on staleness, stragglers and queues, without a network; and the
 * evaluator task. Whole jobs are tested by tests/cli/ps_reports_test.sh and tests/cli/evaluator_test.sh. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "strata/strata.h"
#include "strategies/parameter_server/chief.h"

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

Test(load, each_staleness_has_its_bin) {
    const int64_t last[STRATA_STALENESS_BINS] = {0, 1, 2, 3, 7, 15, 31, INT64_MAX};
    for (int i = 0; i < STRATA_STALENESS_BINS; i++) {
        cr_assert_eq(strata_ps_staleness_bin(last[i]), i);
        if (i) cr_assert_eq(strata_ps_staleness_bin(last[i - 1] + 1), i);
    }
}

Test(load, staleness_of_reports_is_added_up) {
    strata_parameter_server_load load = {0};
    strata_ps_load_sums sums = {0};
    const strata_ps_next_ask first = {
        .n_staleness = 2, .staleness_sum = 5, .staleness_max = 5, .staleness_bins = {1, 0, 0, 0, 1}};
    const strata_ps_next_ask second = {.n_staleness = 2, .staleness_sum = 3, .staleness_max = 2, .staleness_bins = {0, 1, 1}};
    const strata_ps_next_ask none = {.unit.index = -1};
    strata_ps_load_add_staleness(&load, &sums, &none);
    cr_assert(load.pushes == 0 && load.staleness_mean == 0 && load.stale_share == 0);
    strata_ps_load_add_staleness(&load, &sums, &first);
    strata_ps_load_add_staleness(&load, &sums, &second);
    cr_assert(load.pushes == 4 && load.staleness_mean == 2 && load.staleness_max == 5 && load.stale_share == 0.75);
    const int64_t counts[STRATA_STALENESS_BINS] = {1, 1, 1, 0, 1, 0, 0, 0};
    cr_assert_arr_eq(load.staleness_histogram, counts, sizeof counts);
    strata_ps_load_add_leases(&load, &sums, 2);
    strata_ps_load_add_leases(&load, &sums, 5);
    strata_ps_load_add_leases(&load, &sums, 2);
    cr_assert(load.leases_mean == 3 && load.leases_max == 5);
    strata_ps_load_add_queue(&load, &(strata_ps_hello_reply){.pulls = 2, .pushes = 3});
    strata_ps_load_add_queue(&load, &(strata_ps_hello_reply){.pulls = 4, .pushes = 1});
    cr_assert(load.server_pulls_max == 4 && load.server_pushes_max == 3);
}

Test(load, the_slowest_worker_is_found_among_those_that_are_there) {
    strata_parameter_server_totals totals = {0};
    strata_parameter_server_worker workers[] = {{.present = true, .step_seconds = 2},   {.present = true, .step_seconds = 9},
                                                {.present = false, .step_seconds = 50}, {.present = true},
                                                {.present = true, .step_seconds = 3},   {.present = true, .step_seconds = 3}};
    strata_ps_load_find_stragglers(workers, 6, &totals);
    cr_assert(totals.slowest == 1 && totals.slowest_ratio == 3 && totals.stragglers == 1);
    workers[1].step_seconds = 6; /* a straggler takes more than twice the median, not exactly twice */
    strata_ps_load_find_stragglers(workers, 6, &totals);
    cr_assert(totals.slowest == 1 && totals.slowest_ratio == 2 && totals.stragglers == 0);
    strata_ps_load_find_stragglers(workers, 1, &totals);
    cr_assert(totals.slowest == -1 && totals.slowest_ratio == 0 && totals.stragglers == 0);
    strata_ps_load_find_stragglers(workers, 0, &totals);
    cr_assert_eq(totals.slowest, -1);
}

Test(load, an_evaluator_evaluates_and_does_not_train) {
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_metrics metrics;
    const char *const host[] = {"host"};
    const strata_parameter_server_options servers = {.cluster = "chief=a:1;worker=b:1,c:1;ps=d:1", .task = "evaluator"};
    const strata_strategy_options opts = {.devices = host, .n_devices = 1, .parameter_server = &servers};
    OK(strata_strategy_create("parameter_server", &opts, &strategy, &err));
    cr_assert(strata_strategy_is_chief(strategy)); /* the evaluator is the chief of its own strategy */
    cr_assert_not_null(strstr(strata_strategy_choice(strategy), "evaluator:0 beside a chief, 2 workers and 1 server"));
    OK(strata_model_create(STRATA_SHAPE(28, 28), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 10});
    OK(strata_model_compile(model, NULL, &(strata_compile_options){.strategy = strategy}, &err));
    OK(strata_dataset_mnist(NULL, "test", 1, &data, &err));
    OK(strata_model_evaluate(model, data, 0, &metrics, &err));
    cr_assert(metrics.examples > 0 && isfinite(metrics.loss));
    cr_assert_eq(strata_model_fit(model, data, NULL, NULL, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "strata_model_watch_checkpoints"), "%s", err.message);
    cr_assert_eq(strata_strategy_parameter_server_totals(strategy).workers, 2);
    cr_assert_eq(strata_strategy_parameter_server_worker(strategy, 2).steps, 0);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_strategy_destroy(strategy);
}
