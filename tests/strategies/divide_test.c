/* SPDX-License-Identifier: Apache-2.0
 *
 * The training step of mirrored is one graph, which the partitioner divides (core/model/divide.c). It must have the bits of
 * the steps that are built for each replica by its role, for every layer that treats examples in a way of its own: batch norm,
 * dropout, penalties, recurrent layers, sparse embeddings; and where replicas have no examples. */
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
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";
static const char series[] =
    "{\"input\": [8], \"layers\": [{\"layer\": \"reshape\", \"shape\": [4, 2]}, {\"layer\": \"lstm\", \"units\": 5}, "
    "{\"layer\": \"layer_norm\"},"
    "{\"layer\": \"dense\", \"units\": 3}], \"loss\": \"sparse_categorical_crossentropy\"}";

/* What was trained, as a hash, and the losses of the epochs. */
typedef struct outcome {
    char sha[65];
    double losses[2];
    bool divided;
} outcome;

static outcome train(const char *json, int64_t batch, strata_dtype precision, bool by_roles) {
    test_classes classes = test_classes_make(22, 8);
    strata_strategy *strategy = test_strategy("mirrored", (const char *[]){"host", "host", "host", NULL}, false);
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

static void expect_same_bits(const char *json, int64_t batch, strata_dtype precision) {
    const outcome one = train(json, batch, precision, false), roles = train(json, batch, precision, true);
    cr_assert(one.divided);
    cr_assert(!roles.divided);
    cr_expect_str_eq(one.sha, roles.sha, "batch %d of %s: %s beside %s", (int)batch, json, one.sha, roles.sha);
    for (int e = 0; e < 2; e++)
        cr_expect_eq(one.losses[e], roles.losses[e], "batch %d of %s: %.9g beside %.9g", (int)batch, json, one.losses[e],
                     roles.losses[e]);
}

/* Batches of 10 are divided into 4, 3 and 3, and the last one of an epoch has 2 examples for 3 replicas. */
Test(divide, has_the_bits_of_steps_that_are_built_by_roles) {
    const char *const models[] = {dense, images, series};
    for (int i = 0; i < 3; i++) expect_same_bits(models[i], 10, STRATA_DTYPE_F32);
    expect_same_bits(dense, 2, STRATA_DTYPE_F32);
    expect_same_bits(dense, 10, STRATA_DTYPE_BF16);
}
