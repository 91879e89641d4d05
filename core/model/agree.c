/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the workers of a job train the same model, with the same data, in the same way. Different counts or shapes fail
 * in the first sum anyway. A different batch, learning rate or order of examples would not fail, and would train a model that
 * no worker described.
 *
 * Everything that a step computes from is described by lines of text, the *terms*: "name\tvalue". A value may be a JSON object,
 * whose members are compared one by one, or begin with STRATA_HASH_MARK. Workers first exchange a hash of their terms. Only if
 * the hashes differ do they exchange the terms, and find the first difference. */
#include "core/model/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/data/describe.h"
#include "core/data/stage/stage.h"
#include "strata/sha256.h"
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

void strata_model_add_class_weights(strata_text *t, const strata_fit_options *opts) {
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

static strata_status add_terms(strata_text *t, const strata_model *model, const strata_dataset *dataset,
                               const strata_fit_options *opts, strata_error *err) {
    const strata_optimizer *optimizer = &model->optimizer;
    const int64_t accumulates = optimizer->gradient_accumulation_steps;
    /* With a trainer the chief determines where training begins and the rate of each step, and a worker may join later. */
    const bool in_step = !model->strategy->trainer;
    char *text = NULL;
    strata_text_add_term(t, "version of Strata", "%s", strata_version());
    strata_text_add_term(t, "strategy", "%s", model->strategy->name);
    if (model->strategy->average)
        strata_text_add_term(t, "number of steps between averages", "%" PRId64, model->strategy->every);
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
    strata_model_add_class_weights(t, opts);
    STRATA_TRY(strata_model_to_json(model, &text, err));
    add_long(t, "model", "", text);
    free(text);
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
    strata_text text = {0};
    const strata_status status = add_terms(&text, model, dataset, opts, err);
    if (!status) return strata_text_take(&text, out_text, NULL, err);
    strata_text_finish(&text);
    return status;
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

bool strata_terms_differ(const char *own, const char *own_place, const char *other, const char *other_place, char *out_text,
                         size_t room) {
    return find_difference(&(comparison){own, other, own_place, other_place, out_text, room});
}

bool strata_terms_find(const char *terms, const char *name, int64_t *out_value) {
    const term wanted = {.name = name, .name_bytes = (int)strlen(name)};
    term found;
    return find_term(terms, &wanted, &found) && strata_scan(found.value, "%" SCNd64, out_value) == 1;
}

strata_status strata_model_compare_terms(const char *own, const char *own_task, const char *other, const char *other_task,
                                         strata_error *err) {
    char text[MESSAGE_BYTES - 100], here[64], there[64];
    snprintf(here, sizeof here, "on %.60s", own_task);
    snprintf(there, sizeof there, "on %.60s", other_task);
    if (!strata_terms_differ(own, here, other, there, text, sizeof text)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "workers: %s; all tasks must train the same", text);
}

/* ---- several workers ---- */

/* Sends rank 0's terms to all workers. *out_text is the caller's to free. */
static strata_status share_terms(const strata_workers *workers, const char *own, char **out_text, strata_error *err) {
    int64_t bytes = (int64_t)strlen(own) + 1;
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &bytes, 1, err));
    *out_text = malloc((size_t)bytes);
    if (!*out_text)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %lld bytes of settings", (long long)bytes);
    if (!workers->rank) memcpy(*out_text, own, (size_t)bytes);
    return workers->broadcast(workers, STRATA_DTYPE_U8, *out_text, bytes, err);
}

/* Worker `w`, the first whose terms differ from rank 0's, finds the difference, and all workers fail with its message. */
static strata_status tell_difference(const strata_workers *workers, const char *own, int w, strata_error *err) {
    char *first = NULL, task[32], message[MESSAGE_BYTES] = {0};
    strata_error why = {0};
    size_t *bytes = calloc((size_t)workers->n, sizeof *bytes);
    if (!bytes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d workers", workers->n);
    strata_status status = share_terms(workers, own, &first, err);
    snprintf(task, sizeof task, "worker %d", w);
    if (!status && workers->rank == w) {
        (void)!strata_model_compare_terms(first, "worker 0", own, task, &why);
        snprintf(message, sizeof message, "%s", why.message[0] ? why.message : "workers: their settings differ");
    }
    bytes[w] = sizeof message;
    char all[MESSAGE_BYTES];
    if (!status) status = workers->all_gather(workers, message, all, bytes, err);
    free(first);
    free(bytes);
    return status ? status : strata_fail(err, STRATA_INVALID, "%.*s", MESSAGE_BYTES - 1, all);
}

strata_status strata_workers_compare_terms(const strata_workers *workers, const char *own, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    STRATA_TRY(strata_sha256_of(own, strlen(own), hash, err));
    char(*all)[STRATA_SHA256_TEXT_BYTES] = calloc((size_t)workers->n, sizeof *all);
    if (!all) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d workers", workers->n);
    strata_status status = strata_workers_gather(workers, hash, all, sizeof hash, err);
    int w = 1;
    while (!status && w < workers->n && !strcmp(all[w], all[0])) w++;
    free(all);
    return status || w == workers->n ? status : tell_difference(workers, own, w, err);
}

strata_status strata_model_agree(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                                 strata_error *err) {
    char *own = NULL;
    if (!strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    STRATA_TRY(strata_model_terms(model, dataset, opts, &own, err));
    strata_status status = strata_workers_compare_terms(&model->strategy->workers, own, err);
    free(own);
    /* Between averages replicas have parameters of their own; with a trainer the servers have them. */
    if (status || model->apart || model->strategy->trainer) return status;
    bool equal = false;
    STRATA_TRY(strata_model_replicas_equal((strata_model *)model, &equal, err));
    if (equal) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "workers: their models have different parameters; all tasks must begin with the same, from one file");
}
