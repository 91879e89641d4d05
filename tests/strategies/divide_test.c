/* SPDX-License-Identifier: Apache-2.0
 *
 * The training step of a strategy is one graph, which the partitioner divides (core/model/divide.c). It must have the bits of
 * the steps that are built for each replica by its role, for every layer that treats examples in a way of its own: batch norm,
 * dropout, penalties, recurrent layers, sparse embeddings; where replicas have no examples; and where one device makes the
 * update: one of the replicas' devices, as for central_storage and for a group of several kinds, or another one. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/model/model.h"
#include "strategies/kinds.h"
#include "tests/strategies/strategies_case.h"

static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

static const char dense[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"dense\", \"units\": 12, \"kernel_l2\": 0.01},"
    "{\"layer\": \"batch_norm\"}, {\"layer\": \"dropout\", \"rate\": 0.25},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
static const char images[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2, 1]}, {\"layer\": \"conv2d\", \"filters\": 4, "
    "\"kernel_size\": 2, \"padding\":"
    "\"same\"}, {\"layer\": \"max_pool2d\", \"size\": 2}, {\"layer\": \"flatten\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}, "
    "\"loss\": \"sparse_categorical_crossentropy\"}";
static const char series[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"lstm\", \"units\": 5}, "
    "{\"layer\": \"layer_norm\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";

static const char clipped[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"dense\", \"units\": 4, "
    "\"activation\": \"relu\"}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 3}], "
    "\"optimizer\": {\"name\": \"adam\", \"learning_rate\": 0.01, \"clip_global_norm\": 0.5}, "
    "\"loss\": \"sparse_categorical_crossentropy\"}";

/* What was trained, as a hash, and the losses of the epochs. */
typedef struct outcome {
    char sha[65];
    double losses[2];
    bool divided;
} outcome;

/* Which of three devices makes the updates (-1: each), and whether the last one only does that. */
typedef struct layout {
    int updater;
    bool stores;
} layout;

static const layout each = {-1, false}, layouts[] = {{0, false}, {2, false}, {2, true}};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* All devices are the host, so the strategy is made as one of mirrored, and then changed. */
static strata_strategy *make_strategy(layout how) {
    strata_strategy *strategy = test_strategy("mirrored", (const char *[]){"host", "host", "host", NULL}, false);
    strategy->updater = how.updater;
    strategy->n_replicas -= how.stores;
    if (how.updater >= 0) strategy->exchanges = &strata_exchanges_through_one;
    return strategy;
}

static outcome train(const char *json, layout how, int64_t batch, strata_dtype precision, bool by_roles) {
    test_classes classes = test_classes_make(22, 8);
    strata_strategy *strategy = make_strategy(how);
    strata_model *model = NULL;
    strata_history history = {0};
    outcome o = {.divided = false};
    strategy->by_roles = by_roles;
    OK(strata_model_from_json(json, strlen(json), "the test", &model, &err));
    OK(strata_model_compile(model, NULL, &(strata_compile_options){.strategy = strategy, .seed = 3, .precision = precision},
                            &err));
    OK(strata_model_fit(model, classes.dataset, &(strata_fit_options){.epochs = 2, .batch = batch, .seed = 5}, &history, &err));
    for (const strata_model_program *p = model->programs; p; p = p->next) o.divided |= p->divided;
    for (int e = 0; e < 2; e++) o.losses[e] = history.epochs[e].loss;
    OK(strata_model_sha256(model, o.sha, &err));
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
    test_classes_free(&classes);
    return o;
}

static void expect_same_bits(const char *json, layout how, int64_t batch, strata_dtype precision) {
    const outcome one = train(json, how, batch, precision, false), roles = train(json, how, batch, precision, true);
    cr_assert(one.divided);
    cr_assert(!roles.divided);
    cr_expect_str_eq(one.sha, roles.sha, "updater %d, batch %d of %s: %s beside %s", how.updater, (int)batch, json, one.sha,
                     roles.sha);
    for (int e = 0; e < 2; e++)
        cr_expect_eq(one.losses[e], roles.losses[e], "updater %d, batch %d of %s: %.9g beside %.9g", how.updater, (int)batch,
                     json, one.losses[e], roles.losses[e]);
}

/* Batches of 10 are divided into 4, 3 and 3, and the last one of an epoch has 2 examples for 3 replicas. */
Test(divide, has_the_bits_of_steps_that_are_built_by_roles) {
    const char *const models[] = {dense, images, series, clipped};
    for (int i = 0; i < 4; i++) expect_same_bits(models[i], each, 10, STRATA_DTYPE_F32);
    expect_same_bits(dense, each, 2, STRATA_DTYPE_F32);
    expect_same_bits(dense, each, 10, STRATA_DTYPE_BF16);
}

Test(divide, has_the_bits_of_roles_where_one_device_makes_the_update) {
    const char *const models[] = {dense, images, series, clipped};
    for (int k = 0; k < N_LAYOUTS; k++) {
        for (int i = 0; i < 4; i++) expect_same_bits(models[i], layouts[k], 10, STRATA_DTYPE_F32);
        expect_same_bits(dense, layouts[k], 1, STRATA_DTYPE_F32);
        expect_same_bits(dense, layouts[k], 10, STRATA_DTYPE_F16);
    }
}
