/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the workers of a job train the same model in the same way. Different counts or shapes fail in the first sum
 * anyway. A different batch, learning rate or order of examples would not fail, and would train a model that no worker
 * described. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/locale.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/data/stage/stage.h"
#include "core/model/model.h"

enum { MOST_TERMS = 24, VALUE_BYTES = 72 };

typedef struct terms {
    int n;
    const char *names[MOST_TERMS];
    char values[MOST_TERMS][VALUE_BYTES]; /* zeros follow the text, since all bytes are sent to other workers */
} terms;

static void add_text(terms *t, const char *name, const char *value) {
    assert(t->n < MOST_TERMS);
    t->names[t->n] = name;
    snprintf(t->values[t->n++], VALUE_BYTES, "%s", value);
}

static void add_int(terms *t, const char *name, int64_t value) {
    assert(t->n < MOST_TERMS);
    t->names[t->n] = name;
    snprintf(t->values[t->n++], VALUE_BYTES, "%" PRId64, value);
}

static void add_number(terms *t, const char *name, double value) {
    assert(t->n < MOST_TERMS);
    t->names[t->n] = name;
    strata_format(t->values[t->n++], VALUE_BYTES, "%.17g", value);
}

static strata_status add_bytes(terms *t, const char *name, const void *bytes, size_t n_bytes, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    STRATA_TRY(strata_sha256_of(bytes, n_bytes, hash, err));
    hash[12] = 0; /* 12 digits suffice for a message */
    add_text(t, name, hash);
    return STRATA_OK;
}

static strata_status collect(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts, terms *t,
                             strata_error *err) {
    static const char *const policies[] = {
        [STRATA_SHARD_DATA] = "DATA", [STRATA_SHARD_FILE] = "FILE", [STRATA_SHARD_HINT] = "HINT", [STRATA_SHARD_OFF] = "OFF"};
    const strata_auto_shard policy = strata_auto_shard_resolve(dataset, opts->auto_shard);
    const strata_optimizer *optimizer = &model->optimizer;
    const int64_t accumulates = optimizer->gradient_accumulation_steps;
    add_int(t, "batch", opts->batch);
    add_int(t, "number of epochs", opts->epochs);
    /* With a trainer the chief determines where training begins, and a worker may join later. */
    if (!model->strategy->trainer) add_int(t, "first epoch", opts->first_epoch);
    add_int(t, "number of steps an epoch may have", opts->steps_per_epoch);
    add_text(t, "auto_shard policy", (unsigned)policy <= STRATA_SHARD_OFF ? policies[policy] : "unknown");
    if (policy == STRATA_SHARD_DATA) { /* all workers read the same examples */
        add_int(t, "number of examples", strata_dataset_size(dataset));
        add_text(t, "shuffling", opts->no_shuffle ? "off" : "on");
        if (!opts->no_shuffle) add_int(t, "seed of the shuffles", (int64_t)opts->seed);
    }
    add_text(t, "optimizer", optimizer->name);
    /* With a trainer the chief determines the rate of each step; if it resumed from a checkpoint, its rate may differ from the
     * workers' rates. */
    add_number(t, "learning rate",
               model->strategy->trainer ? model->optimizer.learning_rate : strata_model_learning_rate(model));
    add_int(t, "number of accumulated batches", accumulates ? accumulates : 1);
    if (!model->strategy->trainer) add_int(t, "number of steps before", model->optimizer_steps);
    add_text(t, "sharding of the optimizer", model->shards.n ? "on" : "off");
    add_text(t, "restored epoch", opts->restore_best ? "the best one" : "none");
    add_text(t, "validation data", opts->validation ? "given" : "none");
    add_int(t, "patience", opts->patience);
    add_text(t, "trace", opts->trace ? "written" : "none");
    if (opts->class_weights)
        STRATA_TRY(add_bytes(t, "hash of the class weights", opts->class_weights,
                             (size_t)opts->n_class_weights * sizeof *opts->class_weights, err));
    else
        add_text(t, "hash of the class weights", "none");
    char *text = NULL;
    STRATA_TRY(strata_model_to_json(model, &text, err));
    strata_status status = add_bytes(t, "hash of the model's description", text, strlen(text), err);
    free(text);
    return status;
}

/* Every worker finds the same difference, the first in order of workers and terms. */
static strata_status compare(const terms *own, char (*all)[MOST_TERMS][VALUE_BYTES], int n_workers, strata_error *err) {
    for (int w = 1; w < n_workers; w++)
        for (int i = 0; i < own->n; i++)
            if (memcmp(all[w][i], all[0][i], VALUE_BYTES) != 0)
                return strata_fail(err, STRATA_INVALID,
                                   "fit: the %s is %.*s on worker %d and %.*s on worker 0; all workers must train the same",
                                   own->names[i], VALUE_BYTES, all[w][i], w, VALUE_BYTES, all[0][i]);
    return STRATA_OK;
}

strata_status strata_model_terms(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                                 char **out_text, strata_error *err) {
    strata_text text = {0};
    terms own = {0};
    STRATA_TRY(collect(model, dataset, opts, &own, err));
    for (int i = 0; i < own.n; i++) strata_text_add(&text, "%s\t%s\n", own.names[i], own.values[i]);
    return strata_text_take(&text, out_text, NULL, err);
}

strata_status strata_model_compare_terms(const char *own, const char *own_task, const char *other, const char *other_task,
                                         strata_error *err) {
    for (;;) {
        const size_t n = strcspn(own, "\n"), m = strcspn(other, "\n"), name = strcspn(own, "\t\n");
        if (n == m && !memcmp(own, other, n)) {
            if (!own[n] || !other[m]) {
                if (own[n] == other[m]) return STRATA_OK;
                return strata_fail(err, STRATA_INVALID, "fit: %s and %s are of different versions", own_task, other_task);
            }
            own += n + 1;
            other += m + 1;
            continue;
        }
        if (m <= name || memcmp(own, other, name) != 0)
            return strata_fail(err, STRATA_INVALID, "fit: %s and %s are of different versions", own_task, other_task);
        return strata_fail(err, STRATA_INVALID, "fit: the %.*s is %.*s on %s and %.*s on %s; all tasks must train the same",
                           (int)name, own, (int)(m - name - 1), other + name + 1, other_task, (int)(n - name - 1),
                           own + name + 1, own_task);
    }
}

strata_status strata_model_agree(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                                 strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    terms own = {0};
    if (!strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    STRATA_TRY(collect(model, dataset, opts, &own, err));
    char(*all)[MOST_TERMS][VALUE_BYTES] = calloc((size_t)workers->n, sizeof *all);
    if (!all) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d workers", workers->n);
    strata_status status = strata_workers_gather(workers, own.values, all, sizeof own.values, err);
    if (!status) status = compare(&own, all, workers->n, err);
    free(all);
    return status;
}
