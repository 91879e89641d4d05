/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds are numbers that the host passes to a replica's function in addition to its inputs: the size of the global batch,
 * a model's random state, and an optimizer's numbers. They are inputs of the graph, but not arguments of the function. */
#include <stdio.h>

#include "core/graph/graph.h"
#include "core/model/loop.h"
#include "strategies/context.h"

void strata_feed_name(int index, char out_name[16]) {
    snprintf(out_name, 16, "feed%d", index);
}

static bool same(const strata_feed *a, const strata_feed *b) {
    return a->kind == b->kind && a->model == b->model && a->optimizer == b->optimizer && a->before == b->before;
}

strata_tensor *strata_replica_feed(strata_replica_context *replica, strata_feed feed) {
    static const struct {
        strata_dtype dtype;
        int64_t n;
    } specs[] = {[STRATA_FEED_BATCH] = {STRATA_DTYPE_F32, 2},
                 [STRATA_FEED_RANDOM] = {STRATA_DTYPE_I32, STRATA_RNG_WORDS},
                 [STRATA_FEED_STEP] = {STRATA_DTYPE_F32, STRATA_STEP_WORDS}};
    char name[16];
    for (int i = 0; i < replica->n_feeds; i++)
        if (same(&replica->feeds[i], &feed)) return replica->fed[i];
    if (replica->n_feeds == STRATA_MAX_FEEDS)
        return strata_graph_poison(replica->graph, NULL, STRATA_INVALID,
                                   "a replica's function uses at most %d models and optimizers' updates", STRATA_MAX_FEEDS);
    const int index = replica->n_feeds++;
    strata_feed_name(index, name);
    replica->feeds[index] = feed;
    return replica->fed[index] = strata_input(replica->graph, name, specs[feed.kind].dtype, STRATA_SHAPE(specs[feed.kind].n));
}

void strata_feed_write(const strata_feed *feed, const strata_run_rows *rows, void *out) {
    float batch[2] = {0};
    float words[STRATA_STEP_WORDS];
    switch (feed->kind) {
        case STRATA_FEED_BATCH:
            if (rows->global) batch[0] = 1 / (float)rows->global, batch[1] = (float)((double)rows->own / (double)rows->global);
            memcpy(out, batch, sizeof batch);
            return;
        case STRATA_FEED_RANDOM:
            strata_model_random_state(feed->model, feed->model->optimizer_steps + 1, rows->first, out);
            return;
        case STRATA_FEED_STEP: {
            const strata_distributed_optimizer *o = feed->optimizer;
            strata_optimizer_step(o->kind, &o->settings, o->steps + 1 + feed->before, words);
            memcpy(out, words, sizeof words);
            return;
        }
    }
}

void strata_feeds_count(const strata_feed *feeds, int n_feeds) {
    for (int i = 0; i < n_feeds; i++) {
        if (feeds[i].kind == STRATA_FEED_RANDOM) feeds[i].model->optimizer_steps++;
        if (feeds[i].kind == STRATA_FEED_STEP) feeds[i].optimizer->steps++;
    }
}
