/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the workers of a job run the same custom loop: the same data, the same function, the same optimizers. A fit has
 * the same check (core/model/agree.c). Shapes and attributes of nodes are not compared, since the workers' shares of a batch
 * may have different sizes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/compile/segments.h"
#include "core/data/describe.h"
#include "core/graph/graph.h"
#include "strata/version.h"
#include "strategies/optimizer.h"

/* Compares the terms with those of the other workers, and frees them. */
static strata_status compare(const strata_strategy *strategy, strata_text *terms, strata_error *err) {
    char *text = NULL;
    STRATA_TRY(strata_text_take(terms, &text, NULL, err));
    const strata_status status = strata_workers_compare_terms(&strategy->workers, text, err);
    free(text);
    return status;
}

strata_status strata_batches_agree(const strata_strategy *strategy, const strata_dataset *dataset,
                                   const strata_distributed_batches_options *opts, strata_error *err) {
    strata_text terms = {0};
    strata_text_add_term(&terms, "version of Strata", "%s", strata_version());
    strata_text_add_term(&terms, "global batch", "%" PRId64, opts->global_batch);
    strata_text_add_term(&terms, "shuffling", "%s", opts->shuffle ? "on" : "off");
    strata_text_add_term(&terms, "seed of the shuffles", "%" PRIu64, opts->seed);
    strata_text_add_term(&terms, "epoch", "%" PRIu64, opts->epoch);
    const strata_status status =
        strata_model_add_data_terms(&terms, dataset, "distributed data", opts->auto_shard, opts->seed, err);
    if (!status) return compare(strategy, &terms, err);
    strata_text_finish(&terms);
    return status;
}

static strata_status add_optimizers(strata_text *terms, const strata_replica_context *replica, strata_error *err) {
    for (int i = 0; i < replica->n_feeds; i++) {
        const strata_distributed_optimizer *o = replica->feeds[i].optimizer;
        strata_json_writer writer = {0};
        char *text = NULL;
        if (replica->feeds[i].kind != STRATA_FEED_STEP) continue;
        strata_optimizer_write(&writer, &o->settings, o->kind);
        STRATA_TRY(strata_json_take(&writer, &text, NULL, err));
        strata_text_add(terms, "optimizer's settings\t%s\nupdates before\t%" PRId64 "\n", text, o->steps);
        free(text);
    }
    return STRATA_OK;
}

strata_status strata_function_agree(const strata_replica_context *replica, strata_error *err) {
    const strata_graph *graph = replica->graph;
    strata_text terms = {0};
    bool exchanges = false;
    char name[48];
    strata_text_add_term(&terms, "version of Strata", "%s", strata_version());
    strata_status status = add_optimizers(&terms, replica, err);
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        exchanges = exchanges || strata_is_communication(node);
        snprintf(name, sizeof name, "node %d of the function", id);
        strata_text_add_term(&terms, name, "%s %s", node->op->name, strata_dtype_name(node->dtype));
    }
    if (!status && exchanges) return compare(replica->strategy, &terms, err);
    strata_text_finish(&terms);
    return status;
}
