/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer print: y = x. It reports x under the layer's name in training, evaluation and prediction; each replica reports
 * its own part. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategies_case.h"

enum { MOST = 64 };
static char names[MOST][64], places[MOST][48];
static int64_t rows[MOST];
static int n_shown;

static void note(const strata_printed *printed, void *user) {
    (void)user;
    if (n_shown == MOST) return;
    snprintf(names[n_shown], sizeof names[0], "%s", printed->name);
    snprintf(places[n_shown], sizeof places[0], "%s", printed->place);
    rows[n_shown++] = printed->shape.dims[0];
}

static const char TWO[] =
    "{\"input\": [4], \"layers\": [{\"layer\": \"dense\", \"units\": 5}, {\"layer\": \"print\", \"every\": %d},"
    "{\"layer\": \"dropout\", \"rate\": 0.5}, {\"layer\": \"dense\", \"units\": 3}, {\"layer\": \"print\", \"name\": "
    "\"logits\"}]}";

static strata_model *make(int every) {
    char text[sizeof TWO + 16];
    strata_model *model = NULL;
    strata_error err = {0};
    snprintf(text, sizeof text, TWO, every);
    cr_assert_eq(strata_model_from_json(text, strlen(text), "m", &model, &err), STRATA_OK, "%s", err.message);
    return model;
}

static strata_strategy *make_strategy(const char *name, int n, strata_print_callback on_print) {
    strata_strategy *strategy = NULL;
    strata_error err = {0};
    const char *const devices[] = {"host", "host", "host"};
    const strata_device_options device = {.on_print = on_print};
    const strata_strategy_options opts = {.devices = devices, .n_devices = n, .device_options = &device};
    cr_assert_eq(strata_strategy_create(name, &opts, &strategy, &err), STRATA_OK, "%s", err.message);
    return strategy;
}

/* Trains one epoch of `examples` in batches of 8, and writes the hash of the parameters. */
static void train(strata_strategy *strategy, strata_model *model, int64_t examples, char out_sha256[65]) {
    strata_error err = {0};
    test_classes data = test_classes_make(examples, 4);
    cr_assert_eq(strata_model_compile(model, NULL, &(strata_compile_options){.strategy = strategy, .seed = 1}, &err), STRATA_OK,
                 "%s", err.message);
    n_shown = 0;
    cr_assert_eq(strata_model_fit(model, data.dataset, &(strata_fit_options){.batch = 8}, NULL, &err), STRATA_OK, "%s",
                 err.message);
    cr_assert_eq(strata_model_sha256(model, out_sha256, &err), STRATA_OK, "%s", err.message);
    test_classes_free(&data);
}

Test(print_layer, goes_through_json_and_back) {
    strata_model *model = make(7);
    strata_error err = {0};
    char *text = NULL;
    cr_assert_eq(strata_model_to_json(model, &text, &err), STRATA_OK, "%s", err.message);
    cr_assert(strstr(text, "{\"layer\":\"print\",\"name\":\"print\",\"every\":7}"), "%s", text);
    free(text);
    strata_model_destroy(model);
}

Test(print_layer, shows_each_step_under_its_name_and_learns_the_same) {
    char with[65], without[65];
    strata_strategy *strategy = make_strategy("one_device", 1, note), *silent = make_strategy("one_device", 1, NULL);
    strata_model *model = make(2), *quiet = make(2);
    train(strategy, model, 24, with); /* three steps */
    cr_assert_eq(n_shown, 5);
    static const char *const want[] = {"print", "logits", "logits", "print", "logits"};
    for (int i = 0; i < 5; i++) cr_assert(!strcmp(names[i], want[i]) && rows[i] == 8 && !*places[i], "%d: %s", i, names[i]);
    train(silent, quiet, 24, without);
    cr_assert_eq(n_shown, 0);
    cr_assert_str_eq(with, without);
    strata_model_destroy(model);
    strata_model_destroy(quiet);
    strata_strategy_destroy(strategy);
    strata_strategy_destroy(silent);
}

/* The last batch has one example, so only one replica reports it. */
Test(print_layer, replicas_name_themselves_and_show_their_own_part) {
    char sha256[65];
    strata_strategy *strategy = make_strategy("mirrored", 3, note);
    strata_model *model = make(1);
    int n_of[3] = {0}, n_rows = 0;
    train(strategy, model, 17, sha256);
    for (int i = 0; i < n_shown; i++) {
        int replica = -1;
        cr_assert_eq(sscanf(places[i], "replica %d", &replica), 1, "%s", places[i]);
        cr_assert(replica >= 0 && replica < 3);
        n_of[replica]++;
        n_rows += (int)rows[i];
    }
    cr_assert_eq(n_rows, 2 * 17, "each example is shown once by each layer, not %d / 2", n_rows);
    cr_assert(n_of[0] == 6 && n_of[1] == 4 && n_of[2] == 4, "%d %d %d", n_of[0], n_of[1], n_of[2]);
    strata_model_destroy(model);
    strata_strategy_destroy(strategy);
}
