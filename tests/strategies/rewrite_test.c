/* SPDX-License-Identifier: Apache-2.0
 *
 * Two strategies that are not in the library, each of which replaces one half of the step: majority vote on the signs of
 * gradients (Bernstein et al. 2018), and gossip, where each replica averages its parameters with those of one neighbour by
 * send and recv. */
#include <criterion/criterion.h>
#include <math.h>

#include "core/op/communication.h"
#include "strata/strata.h"
#include "strategies/kinds.h"

/* ---- the strategies ---- */

/* Each replica votes with the sign of its own gradient. The optimizer gets the sign of the majority. */
static strata_tensor *vote(const strata_step_replica *replica, strata_tensor *own, strata_tensor *share) {
    (void)replica, (void)share;
    return strata_sign(strata_all_reduce(strata_sign(own), STRATA_REDUCE_SUM));
}

static const strata_step_rewrite voting = {.gradients = vote};

/* Replica r sends its parameters to replica r + 1 in channel r, and averages its own with those of r - 1. All replicas send
 * and receive in the order of the channels. If each of them sent first, each would wait for the next one. */
static strata_tensor *gossip(const strata_step_replica *replica, strata_tensor *updated) {
    const int own = replica->index, next = (own + 1) % replica->n, before = (own + replica->n - 1) % replica->n;
    strata_graph *graph = strata_tensor_graph(updated);
    strata_tensor *theirs = NULL;
    for (int channel = 0; channel < replica->n; channel++) {
        if (channel == own) replica->keep(replica, strata_send(updated, channel, own, next));
        if (channel == before)
            theirs = strata_recv(graph, STRATA_DTYPE_F32, strata_tensor_shape(updated), channel, before, own);
    }
    return strata_mul(strata_add(updated, theirs), strata_scalar(graph, STRATA_DTYPE_F32, 0.5));
}

static const strata_step_rewrite gossiping = {.gradients = strata_rewrite_own_mean, .parameters = gossip};

static const strata_strategy_kind voters = {.name = "majority_vote", .most_devices = -1, .rewrite = &voting},
                                  gossipers = {.name = "gossip", .most_devices = -1, .rewrite = &gossiping};

/* ---- the test ---- */

enum { FEATURES = 10, EXAMPLES = 600, BATCH = 30 };
#define RATE 0.01

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

typedef struct trial {
    strata_strategy *strategy;
    strata_model *model;
} trial;

/* A linear model with `replicas` replicas on the host, ready to train. */
static trial begin(const strata_strategy_kind *kind, int replicas) {
    const char *const hosts[] = {"host", "host", "host"};
    trial t = {0};
    OK(strata_strategy_of_kind(kind, &(strata_strategy_options){.devices = hosts, .n_devices = replicas}, &t.strategy, &err));
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &t.model, &err));
    strata_model_add_dense(t.model, (strata_dense_options){.units = 1});
    const strata_compile_options opts = {
        .optimizer = strata_sgd_optimizer(RATE, 0, false), .loss = "mse", .seed = 1, .strategy = t.strategy};
    OK(strata_model_compile(t.model, NULL, &opts, &err));
    return t;
}

/* Writes the losses of the epochs, each on the first `examples` examples. */
static void train(trial t, int64_t examples, int epochs, double *out_losses) {
    strata_dataset *dataset = NULL;
    strata_history history = {0};
    OK(strata_dataset_random(STRATA_SHAPE(FEATURES), STRATA_SHAPE(1), examples, 1, &dataset, &err));
    OK(strata_model_fit(t.model, dataset, &(strata_fit_options){.epochs = epochs, .batch = BATCH}, &history, &err));
    for (int e = 0; e < epochs; e++) out_losses[e] = history.epochs[e].loss;
    strata_history_finish(&history);
    strata_dataset_destroy(dataset);
}

static bool replicas_are_equal(trial t) {
    bool equal = false;
    OK(strata_model_replicas_equal(t.model, &equal, &err));
    return equal;
}

static void get_kernel(trial t, float *out_values) {
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(FEATURES, 1), out_values);
    OK(strata_model_get_parameter(t.model, 0, &view, &err));
}

Test(rewrite, a_majority_vote_moves_each_parameter_by_the_learning_rate) {
    trial t = begin(&voters, 3);
    float before[FEATURES], after[FEATURES];
    double losses[5];
    get_kernel(t, before);
    train(t, BATCH, 1, losses);
    get_kernel(t, after);
    for (int i = 0; i < FEATURES; i++) cr_expect_float_eq(fabs((double)after[i] - (double)before[i]), RATE, 1e-6);
    train(t, EXAMPLES, 5, losses);
    cr_expect(replicas_are_equal(t));
    cr_expect_lt(losses[4], losses[0]);
    strata_strategy_destroy(t.strategy);
}

Test(rewrite, gossip_of_two_replicas_makes_them_equal) {
    trial t = begin(&gossipers, 2);
    double losses[5];
    train(t, EXAMPLES, 5, losses);
    cr_expect(replicas_are_equal(t));
    cr_expect_lt(losses[4], losses[0]);
    strata_strategy_destroy(t.strategy);
}

Test(rewrite, gossip_of_three_replicas_leaves_them_apart) {
    trial t = begin(&gossipers, 3);
    double losses[5];
    train(t, EXAMPLES, 5, losses);
    cr_expect_not(replicas_are_equal(t));
    cr_expect_lt(losses[4], losses[0]);
    strata_strategy_destroy(t.strategy);
}

Test(rewrite, a_kind_is_not_central_and_rewritten) {
    const strata_strategy_kind both = {.name = "both", .most_devices = -1, .central = true, .rewrite = &voting};
    strata_strategy *strategy = NULL;
    cr_expect_eq(strata_strategy_of_kind(&both, NULL, &strategy, &err), STRATA_INTERNAL);
    cr_expect_null(strategy);
}
