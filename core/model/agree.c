/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the workers of a job train the same model, with the same data, in the same way. Different counts or shapes fail
 * in the first sum anyway. A different batch, learning rate or order of examples would not fail, and would train a model that
 * no worker described.
 *
 * Everything that a step computes from is described by lines of text, the *terms*: "name\tvalue". A value may be a JSON object,
 * whose members are compared one by one, or begin with STRATA_HASH_MARK. All workers get the terms of all, and find the same
 * first difference. */
#include "core/model/agree.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/json.h"
#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/data/describe.h"
#include "core/data/stage/stage.h"
#include "core/model/mesh_spec.h"
#include "strata/version.h"

#define NOTE_PREFIX "strata." /* of the keys of notes */

/* Of each array of data, up to DATA_BLOCKS hashes of MOST_HASHED bytes in all are compared. */
enum { MESSAGE_BYTES = 1024, DATA_BLOCKS = 256 };
static const int64_t MOST_HASHED = INT64_C(256) << 20;

/* ---- the terms ---- */

/* Adds a term whose value has no limit of length. */
static void add_long(strata_text *t, const char *name, const char *prefix, const char *value) {
    strata_text_add(t, "%s%s\t", prefix, name);
    const size_t begin = t->n_bytes;
    strata_text_add(t, "%s", value);
    if (t->failed) return;
    for (size_t i = begin; i < t->n_bytes; i++)
        if ((unsigned char)t->bytes[i] < ' ') t->bytes[i] = ' ';
    strata_text_add(t, "\n");
}

static void add_frozen(strata_text *t, const strata_layer_list *list) {
    for (int i = 0; i < list->n; i++) {
        const strata_layer *layer = &list->layers[i];
        char name[128];
        snprintf(name, sizeof name, "training of layer \"%.80s\"", layer->name);
        strata_text_add_term(t, name, "%s", layer->frozen ? "off" : "on");
        for (int b = 0; b < STRATA_MAX_BRANCHES; b++) add_frozen(t, &layer->branches[b]);
    }
}

static void add_class_weights(strata_text *t, const strata_fit_options *opts) {
    char name[48];
    strata_text_add_term(t, "number of class weights", "%" PRId64, opts->class_weights ? (int64_t)opts->n_class_weights : 0);
    for (int64_t i = 0; opts->class_weights && i < opts->n_class_weights; i++) {
        snprintf(name, sizeof name, "weight of class %" PRId64, i);
        strata_text_add_term(t, name, "%.9g", (double)opts->class_weights[i]);
    }
}

strata_status strata_model_add_data_terms(strata_text *t, const strata_dataset *dataset, const char *what,
                                          strata_auto_shard policy, uint64_t seed, strata_error *err) {
    static const char *const policies[] = {
        [STRATA_SHARD_DATA] = "DATA", [STRATA_SHARD_FILE] = "FILE", [STRATA_SHARD_HINT] = "HINT", [STRATA_SHARD_OFF] = "OFF"};
    policy = strata_auto_shard_resolve(dataset, policy);
    const bool all_rows = policy == STRATA_SHARD_DATA; /* all workers read the same examples */
    char name[96];
    snprintf(name, sizeof name, "auto_shard policy for the %s", what);
    strata_text_add_term(t, name, "%s", (unsigned)policy <= STRATA_SHARD_OFF ? policies[policy] : "unknown");
    snprintf(name, sizeof name, "number of examples of the %s", what);
    if (all_rows) strata_text_add_term(t, name, "%" PRId64, strata_dataset_size(dataset));
    const strata_describe_options opts = {
        .what = what, .pipeline = true, .seed = seed, .rows = all_rows, .n_blocks = DATA_BLOCKS, .most_bytes = MOST_HASHED};
    return strata_dataset_describe(dataset, &opts, t, err);
}

/* What determines which part of the model each device has, and when it computes it. */
static void add_mesh(strata_text *t, const strata_strategy *strategy) {
    strata_text_add_term(t, "mesh", "%s", strata_mesh_text(&strategy->mesh).text);
    strata_text_add_term(t, "layout", "%s", strategy->layout ? strategy->layout : "chosen");
    strata_text_add_term(t, "schedule", "%s", strategy->schedule);
    strata_text_add_term(t, "number of micro-batches", "%d", strategy->microbatches);
    strata_text_add_term(t, "level of zero", "%d", strategy->zero);
}

static strata_status add_terms(strata_text *t, const strata_model *model, const strata_dataset *dataset,
                               const strata_fit_options *opts, strata_error *err) {
    const strata_optimizer *optimizer = &model->optimizer;
    const int64_t accumulates = optimizer->gradient_accumulation_steps;
    /* With a trainer the chief determines where training begins and the rate of each step, and a worker may join later. */
    const bool in_step = !model->strategy->trainer;
    STRATA_FREED char *text = NULL;
    strata_text_add_term(t, "version of Strata", "%s", strata_version());
    strata_text_add_term(t, "strategy", "%s", model->strategy->name);
    if (model->strategy->average)
        strata_text_add_term(t, "number of steps between averages", "%" PRId64, model->strategy->every);
    if (strata_strategy_has_mesh(model->strategy)) add_mesh(t, model->strategy);
    strata_text_add_term(t, "batch", "%" PRId64, opts->batch);
    strata_text_add_term(t, "number of epochs", "%" PRId64, (int64_t)opts->epochs);
    if (in_step) strata_text_add_term(t, "first epoch", "%" PRId64, (int64_t)opts->first_epoch);
    strata_text_add_term(t, "number of steps an epoch may have", "%" PRId64, opts->steps_per_epoch);
    strata_text_add_term(t, "shuffling", "%s", opts->no_shuffle ? "off" : "on");
    if (!opts->no_shuffle) strata_text_add_term(t, "seed of the shuffles", "%" PRIu64, opts->seed);
    strata_text_add_term(t, "optimizer", "%s", optimizer->name);
    strata_text_add_term(t, "learning rate", "%.9g", in_step ? strata_model_learning_rate(model) : optimizer->learning_rate);
    strata_text_add_term(t, "number of accumulated batches", "%" PRId64, accumulates ? accumulates : 1);
    if (in_step) strata_text_add_term(t, "number of steps before", "%" PRId64, model->optimizer_steps);
    strata_text_add_term(t, "precision", "%s", strata_dtype_name(model->precision));
    strata_text_add_term(t, "list of recomputed layers", "%s", model->recompute.text ? model->recompute.text : "none");
    const bool shards = model->strategy->shard_optimizer == STRATA_SHARD_OPTIMIZER_YES;
    strata_text_add_term(t, "sharding of the optimizer", "%s", shards ? "on" : "off");
    strata_text_add_term(t, "restored epoch", "%s", opts->restore_best ? "the best one" : "none");
    strata_text_add_term(t, "validation data", "%s", opts->validation ? "given" : "none");
    strata_text_add_term(t, "patience", "%" PRId64, (int64_t)opts->patience);
    strata_text_add_term(t, "min_delta", "%.9g", opts->min_delta);
    strata_text_add_term(t, "trace", "%s", opts->trace ? "written" : "none");
    if (opts->trace) strata_text_add_term(t, "traced steps", "%" PRId64 " to %" PRId64, opts->trace_first, opts->trace_last);
    if (!in_step) strata_text_add_term(t, "seed of the model", "%" PRIu64, model->seed); /* else it is the chief's */
    if (in_step) { /* they determine which exchanges a worker makes */
        strata_text_add_term(t, "wait for each step", "%s", opts->wait_each_step ? "on" : "off");
        strata_text_add_term(t, "folder of checkpoints", "%s", opts->checkpoint ? "given" : "none");
        strata_text_add_term(t, "bytes_per_pack", "%" PRId64, model->strategy->bucket_bytes);
        strata_text_add_term(t, "type of gradients on the wire", "%s", strata_dtype_name(model->strategy->workers.wire));
    }
    add_class_weights(t, opts);
    STRATA_TRY(strata_model_to_json(model, &text, err));
    add_long(t, "model", "", text);
    for (int i = 0; i < model->notes.n; i++)
        add_long(t, model->notes.items[i].key + strlen(NOTE_PREFIX), "model's ", model->notes.items[i].text);
    add_frozen(t, &model->list);
    STRATA_TRY(strata_model_add_data_terms(t, dataset, "training data", opts->auto_shard, opts->seed, err));
    return opts->validation
               ? strata_model_add_data_terms(t, opts->validation, "validation data", opts->auto_shard, opts->seed, err)
               : STRATA_OK;
}

strata_status strata_model_terms(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                                 char **out_text, strata_error *err) {
    STRATA_FINISHED(strata_text) text = {0};
    STRATA_TRY(add_terms(&text, model, dataset, opts, err));
    return strata_text_take(&text, out_text, NULL, err);
}

/* ---- comparing ---- */

/* A line of terms. The name and the value are parts of the text, without a NUL at their ends. */
typedef struct term {
    const char *name, *value;
    int name_bytes, value_bytes;
} term;

/* Reads the term at *text and moves *text behind it. False at the end. */
static bool next_term(const char **text, term *out) {
    const char *line = *text;
    if (!*line) return false;
    const size_t bytes = strcspn(line, "\n"), name = strcspn(line, "\t\n");
    const size_t value = name < bytes ? name + 1 : bytes;
    *out = (term){line, line + value, (int)name, (int)(bytes - value)};
    *text = line + bytes + (line[bytes] == '\n');
    return true;
}

static bool same_name(const term *a, const term *b) {
    return a->name_bytes == b->name_bytes && !memcmp(a->name, b->name, (size_t)a->name_bytes);
}

static bool find_term(const char *text, const term *wanted, term *out) {
    while (next_term(&text, out))
        if (same_name(out, wanted)) return true;
    return false;
}

/* The two sides that are compared, and the text of their first difference. */
typedef struct comparison {
    const char *own, *other;
    /* Where they are: "on worker 0", "in the checkpoint". */
    const char *own_place, *other_place;
    char *text;
    size_t room;
} comparison;

static int shown(int bytes) {
    return bytes < 200 ? bytes : 200;
}

static bool only_one(const comparison *c, const term *t, const char *with, const char *without) {
    strata_format(c->text, c->room, "the %.*s is %.*s %s, and there is none %s", t->name_bytes, t->name, shown(t->value_bytes),
                  t->value, with, without);
    return true;
}

/* Compares JSON objects member by member. Their members may have another order. */
static bool json_differs(const comparison *c, const term *own, const term *other) {
    strata_json_change change;
    const bool model = own->name_bytes == 5 && !memcmp(own->name, "model", 5);
    const strata_json_comparison result =
        strata_json_compare(own->value, (size_t)own->value_bytes, other->value, (size_t)other->value_bytes, &change);
    if (result == STRATA_JSON_UNREADABLE)
        strata_format(c->text, c->room, "the %.*s %s or %s cannot be read", own->name_bytes, own->name, c->own_place,
                      c->other_place);
    else if (result == STRATA_JSON_DIFFERS)
        strata_format(c->text, c->room, "%s%.*s%s%s is %s %s and %s %s", model ? "" : "in the ", model ? 0 : own->name_bytes,
                      own->name, model ? "" : ", ", change.path, change.right, c->other_place, change.left, c->own_place);
    return result != STRATA_JSON_EQUAL;
}

static bool differ(const comparison *c, const term *own, const term *other) {
    if (own->value_bytes == other->value_bytes && !memcmp(own->value, other->value, (size_t)own->value_bytes)) return false;
    if (own->value[0] == '{' && other->value[0] == '{') return json_differs(c, own, other);
    if (own->value[0] == *STRATA_HASH_MARK)
        strata_format(c->text, c->room, "the %.*s are others %s than %s", own->name_bytes, own->name, c->other_place,
                      c->own_place);
    else
        strata_format(c->text, c->room, "the %.*s is %.*s %s and %.*s %s", own->name_bytes, own->name,
                      shown(other->value_bytes), other->value, c->other_place, shown(own->value_bytes), own->value,
                      c->own_place);
    return true;
}

/* Whether there is one. c->text: the first, "the batch is 4 on worker 1 and 6 on worker 0". */
static bool find_difference(const comparison *c) {
    const char *a = c->own, *b = c->other;
    term left, right, found;
    for (;;) {
        const bool has_left = next_term(&a, &left), has_right = next_term(&b, &right);
        if (!has_left && !has_right) return false;
        if (has_left && has_right && same_name(&left, &right)) {
            if (differ(c, &left, &right)) return true;
            continue;
        }
        if (has_left && !find_term(c->other, &left, &found)) return only_one(c, &left, c->own_place, c->other_place);
        if (has_right && !find_term(c->own, &right, &found)) return only_one(c, &right, c->other_place, c->own_place);
        strata_format(c->text, c->room, "the training is described in another order %s than %s", c->other_place, c->own_place);
        return true;
    }
}

strata_status strata_model_compare_terms(const char *own, const char *own_task, const char *other, const char *other_task,
                                         strata_error *err) {
    char text[MESSAGE_BYTES - 100], here[64], there[64];
    snprintf(here, sizeof here, "on %.60s", own_task);
    snprintf(there, sizeof there, "on %.60s", other_task);
    if (!find_difference(&(comparison){own, other, here, there, text, sizeof text})) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "workers: %s; all tasks must train the same", text);
}

/* ---- several workers ---- */

strata_status strata_workers_compare_terms(const strata_workers *workers, const char *own, strata_error *err) {
    STRATA_FREED char *all = NULL;
    STRATA_FREED int64_t *sizes = NULL;
    STRATA_TRY(STRATA_NEW(sizes, workers->n, err, "fit: no host memory for %d workers", workers->n));
    STRATA_TRY(strata_workers_gather_parts(workers, own, strlen(own) + 1, &all, sizes, err));
    const char *other = all;
    for (int w = 1; w < workers->n; w++) {
        char task[32];
        other += sizes[w - 1];
        if (!strcmp(all, other)) continue;
        snprintf(task, sizeof task, "worker %d", w);
        STRATA_TRY(strata_model_compare_terms(all, "worker 0", other, task, err));
        return strata_fail(err, STRATA_INVALID, "workers: their settings differ");
    }
    return STRATA_OK;
}

strata_status strata_model_agree(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                                 strata_error *err) {
    STRATA_FREED char *own = NULL;
    if (!strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    STRATA_TRY(strata_model_terms(model, dataset, opts, &own, err));
    STRATA_TRY(strata_workers_compare_terms(&model->strategy->workers, own, err));
    /* Between averages replicas have parameters of their own; with a trainer the servers have them. */
    if (model->apart || model->strategy->trainer) return STRATA_OK;
    bool equal = false;
    STRATA_TRY(strata_model_replicas_equal((strata_model *)model, &equal, err));
    if (equal) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "workers: their models have different parameters; all tasks must begin with the same, from one file");
}

/* ---- the description of a training ----
 *
 * A checkpoint that is continued with other data would train a model that nobody described, and its epoch would go on at the
 * wrong example. The description has the form of terms. The first one is the batch, which may change. */

/* Of each array of the data, up to BLOCKS_KEPT hashes of HASHED_BYTES bytes in all are stored, so that a description takes no
 * longer than a few steps, and a checkpoint stays small. All examples of small data are hashed. */
enum { HASHED_BYTES = 1 << 18, BLOCKS_KEPT = 32 };
static const char BATCH[] = "batch";

static strata_status describe(const strata_dataset *dataset, const strata_fit_options *opts, char **out_text,
                              strata_error *err) {
    const strata_describe_options data = {
        .what = "training data", .rows = true, .n_blocks = BLOCKS_KEPT, .most_bytes = HASHED_BYTES};
    STRATA_FINISHED(strata_text) text = {0};
    strata_text_add_term(&text, BATCH, "%" PRId64, opts->batch);
    strata_text_add_term(&text, "number of examples of the training data", "%" PRId64, strata_dataset_size(dataset));
    strata_text_add_term(&text, "shuffling", "%s", opts->no_shuffle ? "off" : "on");
    if (!opts->no_shuffle) strata_text_add_term(&text, "seed of the shuffles", "%" PRIu64, opts->seed);
    strata_text_add_term(&text, "number of steps an epoch may have", "%" PRId64, opts->steps_per_epoch);
    add_class_weights(&text, opts);
    STRATA_TRY(strata_dataset_describe(dataset, &data, &text, err));
    return strata_text_take(&text, out_text, NULL, err);
}

strata_status strata_training_of(strata_model *model, const char **out_text, strata_error *err) {
    if (!model->training && model->fitted.dataset)
        STRATA_TRY(describe(model->fitted.dataset, model->fitted.opts, &model->training, err));
    *out_text = model->training ? model->training : model->continued;
    return STRATA_OK;
}

/* The terms behind the batch; NULL: the text is none of this version. */
static const char *behind_batch(const char *text) {
    const char *end = strchr(text, '\n');
    return end && !strncmp(text, BATCH, sizeof BATCH - 1) && text[sizeof BATCH - 1] == '\t' ? end + 1 : NULL;
}

int64_t strata_training_batch_before(const strata_model *model) {
    const term wanted = {.name = BATCH, .name_bytes = sizeof BATCH - 1};
    term found;
    int64_t batch = 0;
    const bool known = model->continued && find_term(model->continued, &wanted, &found) &&
                       strata_scan(found.value, "%" SCNd64, &batch) == 1 && batch > 0;
    return known ? batch : 0;
}

strata_status strata_training_compare(strata_model *model, strata_error *err) {
    char difference[700];
    const char *now = NULL, *before = model->continued ? behind_batch(model->continued) : NULL;
    STRATA_TRY(strata_training_of(model, &now, err));
    if (!before ||
        !find_difference(&(comparison){before, behind_batch(now), "in the checkpoint", "now", difference, sizeof difference}))
        return STRATA_OK;
    return strata_fail(err, STRATA_DATA,
                       "fit: the checkpoint is of a training with other data or options: %s; " STRATA_TRAINING_ADVICE,
                       difference);
}
