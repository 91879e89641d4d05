/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation and the end of training with several workers. All workers must follow the decision of one of them in the same
 * epoch. */
#include <criterion/criterion.h>
#include <string.h>

#include "strata/strata.h"
#include "strategies/kinds.h"
#include "tests/cluster/ranks.h"

enum { WORKERS = 3, N = 12 };

/* Makes a dataset y = slope x, for x = -6/8 .. 5/8. */
static strata_status line(float slope, strata_dataset **out, strata_error *err) {
    strata_array x = {0}, y = {0};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), &x, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(N), &y, err));
    for (int i = 0; i < N; i++) {
        ((float *)x.data)[i] = (float)(i - N / 2) / 8;
        ((float *)y.data)[i] = slope * ((float *)x.data)[i];
    }
    return strata_dataset_take_arrays(&x, &y, 0, out, err);
}

/* What each worker is given, and the results. */
typedef struct job {
    /* stop_after: the callback of the last worker ends the training after this epoch. 0: it does not. */
    int patience, stop_after;
    float slopes[WORKERS]; /* slope of a worker's validation data; 0: it has none */
    const char *text;      /* fit must fail with this message; NULL: it must not fail */
    int epochs[WORKERS], best[WORKERS];
    double losses[WORKERS];
    char sha[WORKERS][65];
} job;

static strata_status stop_after(const strata_progress *p, void *user, strata_error *err) {
    (void)err;
    if (p->epoch_end && p->epoch + 1 == *(const int *)user) *p->stop = true;
    return STRATA_OK;
}

static strata_test_result train(strata_communicator *comm, const void *user) {
    job *j = (job *)user;
    const int w = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_device *device = NULL;
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *data = NULL, *validation = NULL;
    strata_history history = {0};
    TEST_TRY(line(2, &data, &err));
    if (j->slopes[w] != 0) TEST_TRY(line(j->slopes[w], &validation, &err));
    TEST_TRY(strata_device_open("host", NULL, &device, &err));
    TEST_TRY(strata_strategy_from_devices(&device, 1, &strategy, &err));
    TEST_TRY(strata_strategy_join(strategy, comm, &err));
    TEST_TRY(strata_model_create(STRATA_SHAPE(1), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    const strata_compile_options compile = {
        .optimizer = strata_sgd_optimizer(0.3, 0, false), .loss = "mse", .seed = 1, .strategy = strategy};
    TEST_TRY(strata_model_compile(model, NULL, &compile, &err));
    const strata_fit_options opts = {.epochs = 12,
                                     .batch = 6,
                                     .validation = validation,
                                     .patience = j->patience,
                                     .restore_best = j->patience > 0,
                                     .on_progress = j->stop_after && w == WORKERS - 1 ? stop_after : NULL,
                                     .user = &j->stop_after};
    const strata_status status = strata_model_fit(model, data, &opts, &history, &err);
    if (!status) TEST_TRY(strata_model_sha256(model, j->sha[w], &err));
    j->epochs[w] = history.n_epochs;
    j->best[w] = history.best_epoch;
    if (history.validation) j->losses[w] = history.validation[0].loss;
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    strata_dataset_destroy(data);
    strata_dataset_destroy(validation);
    if (!j->text) return status ? strata_test_bad("%s", err.message) : strata_test_ok();
    if (status == STRATA_INVALID && strstr(err.message, j->text)) return strata_test_ok();
    return strata_test_bad("\"%s\" is not in: %s", j->text, err.message);
}

static void run(job *j) {
    const strata_test_result result = test_ranks("inproc", WORKERS, NULL, train, j);
    cr_assert(result.ok, "%s", result.text);
    for (int w = 0; w < WORKERS && !j->text; w++) {
        cr_assert_eq(j->epochs[w], j->epochs[0], "worker %d ran %d epochs, worker 0 %d", w, j->epochs[w], j->epochs[0]);
        cr_assert_eq(j->best[w], j->best[0]);
        cr_assert_str_eq(j->sha[w], j->sha[0]);
    }
}

/* The training data have slope 2. Validation data with slope -2 get worse from the first epoch on, data with slope 2 better. */
Test(workers_validation, the_validation_loss_ends_training_on_all) {
    static job worse = {.patience = 2, .slopes = {-2, -2, -2}}, better = {.patience = 2, .slopes = {2, 2, 2}};
    run(&worse);
    cr_assert_eq(worse.epochs[0], worse.best[0] + 3);
    cr_assert_lt(worse.epochs[0], 12);
    run(&better);
    cr_assert_eq(better.epochs[0], 12);
    for (int w = 0; w < WORKERS; w++) cr_assert_eq(worse.losses[w], worse.losses[0]);
}

Test(workers_validation, any_workers_callback_ends_training_on_all) {
    static job ended = {.stop_after = 4};
    run(&ended);
    cr_assert_eq(ended.epochs[0], 4);
}

Test(workers_validation, data_that_some_do_not_have_are_refused_on_all) {
    static job some = {.slopes = {2, 0, 2}, .text = "the validation data is none on worker 1 and given on worker 0"};
    run(&some);
}
