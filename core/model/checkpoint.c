/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints. A checkpoint is a model file with additional tensors "checkpoint/..." that are needed to continue the training:
 * the optimizer's slots, in the layout of the parameters, and counts. A checkpoint in a folder (checkpoint_folder.c) has the
 * same tensors, in one file or in a file for each worker. Rank 0 reads for all workers. */
#include "core/model/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/data/format/safetensors.h"
#include "core/model/data.h"
#include "core/model/metrics.h"
#include "core/model/own.h"
#include "core/model/shards.h"
#include "core/model/training.h"
#include "core/model/validation.h"

/* The best epoch so far: its number, and the bits of its loss. This tensor and the parameters of that epoch are present only if
 * there is a best epoch. */
enum { BEST_EPOCHS, BEST_LOSS_BITS, N_BEST };
static const char BEST_COUNTS[] = STRATA_CHECKPOINT_PREFIX "best_counts",
                  BEST_VALUES[] = STRATA_CHECKPOINT_PREFIX "best_values";

/* The position within the next epoch at which training was stopped, and the epoch's sums so far. Present only if it was stopped
 * within an epoch. */
enum { EPOCH_STEPS, EPOCH_EXAMPLES, N_POSITION };
/* READERS: the number of workers that read their own batches; present only if they do. POSITION and SUMS: the position
 * and the sums. */
static const char READERS[] = STRATA_CHECKPOINT_PREFIX "readers", POSITION[] = STRATA_CHECKPOINT_PREFIX "position",
                  SUMS[] = STRATA_CHECKPOINT_PREFIX "sums";

/* The state of the callbacks, as bytes. Present only if callbacks have state. With several workers it is the state of all of
 * them, concatenated, and the number of bytes of each. */
static const char CALLBACKS[] = STRATA_CHECKPOINT_PREFIX "callbacks",
                  CALLBACK_BYTES[] = STRATA_CHECKPOINT_PREFIX "callback_bytes";

/* The bits of the learning rate that was set instead of the schedule's. Present only if one was set. */
static const char RATE[] = STRATA_CHECKPOINT_PREFIX "learning_rate";

/* What each replica has, one after the other (strata_model_gather_own). Present only under a strategy whose replicas have their
 * own parameters. The parameters and slots of the checkpoint are then the means. */
static const char OWN[] = STRATA_CHECKPOINT_PREFIX "replicas";

/* 1. Present only in the last checkpoint of a training that is over, so that an evaluator does not wait for another one. */
static const char OVER[] = STRATA_CHECKPOINT_PREFIX "over";

enum { EPOCHS, STEPS, SCALE_STEPS, SCALE_BITS, SEED, PRECISION, N_COUNTS };
static const char COUNTS[] = STRATA_CHECKPOINT_PREFIX "counts";
static const char *const slot_names[STRATA_MAX_OPTIMIZER_SLOTS] = {
    STRATA_CHECKPOINT_PREFIX "slot_0", STRATA_CHECKPOINT_PREFIX "slot_1", STRATA_CHECKPOINT_PREFIX "slot_2"};

const char *strata_checkpoint_slot_name(int slot) {
    return slot_names[slot];
}

typedef struct state {
    int n_slots;
    float *parameters; /* (all_size) also contains the states */
    float *slots;      /* (n_slots, flat_size), in the same memory */
    float *sums;       /* (n_sums) the sums of the epoch, in the same memory */
    int64_t counts[N_COUNTS], best_counts[N_BEST], position[N_POSITION], readers, rate_bits;
    float *best_values; /* (all_size); NULL if there is no best epoch */
    double rate;        /* the set learning rate, as in model->rate.own */
    int64_t over;       /* 1: this is the last checkpoint of the training */
    /* (replicas, own_size) what each replica has (strata_model_gather_own); NULL: they do not have their own. */
    float *own;
    strata_callback_states callbacks;
    /* The description of the training; NULL: there is none. Only rank 0 reads it. */
    char *training;
} state;

static strata_status allocate(const strata_model *model, state *out, strata_error *err) {
    const int64_t size = strata_model_all_size(model);
    *out = (state){.n_slots = strata_model_n_slots(model), .rate = STRATA_SCHEDULED_RATE};
    out->parameters =
        calloc((size_t)(size + out->n_slots * model->parameters.flat_size + model->metrics.n_sums), sizeof *out->parameters);
    if (!out->parameters) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    out->slots = out->parameters + size;
    out->sums = out->slots + out->n_slots * model->parameters.flat_size;
    return STRATA_OK;
}

static strata_status allocate_best(const strata_model *model, state *s, strata_error *err) {
    s->best_values = calloc((size_t)strata_model_all_size(model), sizeof *s->best_values);
    return s->best_values ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
}

static void finish(state *s) {
    free(s->parameters);
    free(s->best_values);
    free(s->own);
    strata_callback_states_finish(&s->callbacks);
    free(s->training);
}

static float *slot_values(const strata_model *model, const state *s, int slot) {
    return s->slots + slot * model->parameters.flat_size;
}

/* ---- saving ---- */

enum { MOST_EXTRAS = STRATA_MAX_OPTIMIZER_SLOTS + 11 };

struct strata_checkpoint {
    const strata_model *model; /* for the names of the parameters */
    state s;
    char *json;
    /* Copies of the model's notes, because a callback may change those. */
    strata_manifest_text *notes;
    int n_notes;
    bool has_parameters, has_counts;
    /* This is the last checkpoint of the training. */
    bool over;
    /* [n_extras] Tensors other than the parameters; their values are in `s`. part_names: the names of those that are
     * parts of slots. */
    strata_named_array extras[MOST_EXTRAS];
    int n_extras;
    char part_names[STRATA_MAX_OPTIMIZER_SLOTS][64];
};

void strata_checkpoint_destroy(strata_checkpoint *c) {
    if (!c) return;
    finish(&c->s);
    free(c->json);
    for (int i = 0; i < c->n_notes; i++) {
        free(c->notes[i].key);
        free(c->notes[i].text);
    }
    free(c->notes);
    free(c);
}

int64_t strata_checkpoint_steps(const strata_checkpoint *checkpoint) {
    return checkpoint->s.counts[STEPS];
}

static void add(strata_checkpoint *c, const char *name, strata_dtype dtype, int64_t n, void *data) {
    c->extras[c->n_extras++] = (strata_named_array){name, strata_array_view(dtype, STRATA_SHAPE(n), data)};
}

/* Adds the slots: all of them, or this worker's part, under a name that has the index of the part. */
static strata_status take_slots(strata_checkpoint *c, strata_model *model, bool shards, strata_error *err) {
    int64_t begin = 0, end = model->parameters.flat_size;
    if (shards) strata_shards_own_range(model, &begin, &end);
    for (int i = 0; i < c->s.n_slots; i++) {
        float *values = slot_values(model, &c->s, i);
        const char *name = slot_names[i];
        STRATA_TRY(shards ? strata_shards_read_own_slot(model, i, values, err)
                          : strata_shards_read_slot(model, i, values, err));
        if (end - begin < model->parameters.flat_size) {
            snprintf(c->part_names[i], sizeof *c->part_names, "%s[%lld:%lld]", name, (long long)begin, (long long)end);
            name = c->part_names[i];
        }
        if (end > begin) add(c, name, STRATA_DTYPE_F32, end - begin, values + begin);
    }
    return STRATA_OK;
}

static strata_status add_note(strata_checkpoint *c, const char *key, const char *text, strata_error *err) {
    strata_manifest_text *note = &c->notes[c->n_notes++];
    note->key = strdup(key);
    note->text = strdup(text);
    return note->key && note->text ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
}

static strata_status take_notes(strata_checkpoint *c, strata_model *model, strata_error *err) {
    const char *training = NULL;
    strata_model *again = NULL;
    STRATA_TRY(strata_training_of(model, &training, err));
    STRATA_TRY(strata_model_to_json(model, &c->json, err));
    /* A checkpoint that could not be read would be noticed only when it is needed. */
    const strata_status readable =
        strata_model_from_json_with(model->registry, c->json, strlen(c->json), "the checkpoint's model", &again, err);
    strata_model_destroy(again);
    if (readable) return readable;
    c->notes = calloc((size_t)model->notes.n + 2, sizeof *c->notes);
    if (!c->notes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    for (int i = 0; i < model->notes.n; i++)
        STRATA_TRY(add_note(c, model->notes.items[i].key, model->notes.items[i].text, err));
    return training ? add_note(c, STRATA_TRAINING_METADATA, training, err) : STRATA_OK;
}

static strata_status take_counts(strata_checkpoint *c, strata_model *model, int epochs, strata_error *err) {
    state *s = &c->s;
    s->counts[EPOCHS] = epochs;
    s->counts[STEPS] = model->optimizer_steps;
    s->counts[SCALE_STEPS] = model->scale.steps;
    s->counts[PRECISION] = model->precision;
    memcpy(&s->counts[SCALE_BITS], &model->scale.value, sizeof model->scale.value);
    memcpy(&s->counts[SEED], &model->seed, sizeof model->seed);
    add(c, COUNTS, STRATA_DTYPE_I64, N_COUNTS, s->counts);
    if (model->position.steps) {
        STRATA_TRY(strata_model_read_sums(model, err));
        s->position[EPOCH_STEPS] = model->position.steps;
        s->position[EPOCH_EXAMPLES] = model->position.examples;
        s->readers = model->position.readers;
        for (int64_t i = 0; i < model->metrics.n_sums; i++) s->sums[i] = (float)model->metrics.sums[i];
        add(c, POSITION, STRATA_DTYPE_I64, N_POSITION, s->position);
        add(c, SUMS, STRATA_DTYPE_F32, model->metrics.n_sums, s->sums);
        if (s->readers) add(c, READERS, STRATA_DTYPE_I64, 1, &s->readers);
    }
    if (!s->callbacks.n) STRATA_TRY(strata_callback_states_take(model, false, &s->callbacks, err));
    if (s->callbacks.total) add(c, CALLBACKS, STRATA_DTYPE_U8, s->callbacks.total, s->callbacks.all);
    if (s->callbacks.total && s->callbacks.n > 1) add(c, CALLBACK_BYTES, STRATA_DTYPE_I64, s->callbacks.n, s->callbacks.bytes);
    memcpy(&s->rate_bits, &model->rate.own, sizeof s->rate_bits);
    if (model->rate.own >= 0) add(c, RATE, STRATA_DTYPE_I64, 1, &s->rate_bits);
    s->over = c->over;
    if (s->over) add(c, OVER, STRATA_DTYPE_I64, 1, &s->over);
    return STRATA_OK;
}

static strata_status take_best_of(strata_checkpoint *c, const strata_model *model, strata_error *err) {
    const strata_model_best *best = &model->best;
    state *s = &c->s;
    if (!best->epochs) return STRATA_OK;
    s->best_counts[BEST_EPOCHS] = best->epochs;
    memcpy(&s->best_counts[BEST_LOSS_BITS], &best->loss, sizeof best->loss);
    add(c, BEST_COUNTS, STRATA_DTYPE_I64, N_BEST, s->best_counts);
    if (!best->values) return STRATA_OK;
    STRATA_TRY(allocate_best(model, s, err));
    memcpy(s->best_values, best->values, (size_t)strata_model_all_size(model) * sizeof *s->best_values);
    add(c, BEST_VALUES, STRATA_DTYPE_F32, strata_model_all_size(model), s->best_values);
    return STRATA_OK;
}

static int64_t own_elements(const strata_model *model) {
    return strata_strategy_num_replicas_in_sync(model->strategy) * strata_model_own_size(model);
}

/* Sets n values to the mean over the replicas of the values at `begin` of each. */
static void average(const strata_model *model, const float *own, int64_t begin, int64_t n, float *out) {
    const int n_replicas = strata_strategy_num_replicas_in_sync(model->strategy);
    const int64_t size = strata_model_own_size(model);
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < n_replicas; r++) sum += own[r * size + begin + i];
        out[i] = sum / (float)n_replicas;
    }
}

static strata_status take_own(strata_checkpoint *c, strata_model *model, strata_error *err) {
    const int64_t size = strata_model_all_size(model), flat = model->parameters.flat_size;
    if (!strata_strategy_has_own(model->strategy)) return STRATA_OK;
    if (model->interrupted) {
        c->s.own = malloc((size_t)own_elements(model) * sizeof *c->s.own);
        if (!c->s.own) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
        memcpy(c->s.own, model->interrupted, (size_t)own_elements(model) * sizeof *c->s.own);
    } else {
        STRATA_TRY(strata_model_gather_own(model, &c->s.own, err));
    }
    add(c, OWN, STRATA_DTYPE_F32, own_elements(model), c->s.own);
    if (model->apart) average(model, c->s.own, 0, size, c->s.parameters);
    for (int i = 0; i < c->s.n_slots; i++) average(model, c->s.own, size + i * flat, flat, slot_values(model, &c->s, i));
    return STRATA_OK;
}

static strata_status take_all(strata_checkpoint *c, strata_model *model, int epochs, strata_checkpoint_scope scope,
                              strata_callback_states *callbacks, strata_error *err) {
    const bool shards = scope == STRATA_CHECKPOINT_SHARDS;
    c->has_counts = !shards || model->strategy->workers.rank == 0;
    c->has_parameters = c->has_counts && scope != STRATA_CHECKPOINT_COUNTS;
    STRATA_TRY(allocate(model, &c->s, err));
    if (callbacks) {
        c->s.callbacks = *callbacks;
        *callbacks = (strata_callback_states){0};
    }
    if (scope != STRATA_CHECKPOINT_COUNTS) STRATA_TRY(take_slots(c, model, shards, err));
    if (!c->has_counts) {
        c->s.counts[STEPS] = model->optimizer_steps;
        return STRATA_OK;
    }
    STRATA_TRY(take_notes(c, model, err));
    if (c->has_parameters) STRATA_TRY(strata_model_read_all(model, c->s.parameters, err));
    STRATA_TRY(take_own(c, model, err));
    STRATA_TRY(take_counts(c, model, epochs, err));
    return take_best_of(c, model, err);
}

/* over: this is the last checkpoint of the training. */
static strata_status take_checkpoint(strata_model *model, int epochs, strata_checkpoint_scope scope, bool over,
                                     strata_callback_states *callbacks, strata_checkpoint **out_checkpoint, strata_error *err) {
    *out_checkpoint = NULL;
    strata_checkpoint *c = calloc(1, sizeof *c);
    if (!c) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    c->model = model;
    c->over = over;
    const strata_status status = take_all(c, model, epochs, scope, callbacks, err);
    if (status)
        strata_checkpoint_destroy(c);
    else
        *out_checkpoint = c;
    return status;
}

strata_status strata_checkpoint_take(strata_model *model, int epochs, strata_checkpoint_scope scope,
                                     strata_callback_states *callbacks, strata_checkpoint **out_checkpoint, strata_error *err) {
    return take_checkpoint(model, epochs, scope, false, callbacks, out_checkpoint, err);
}

strata_status strata_checkpoint_write(const strata_checkpoint *c, const char *path, char out_sha256[STRATA_SHA256_TEXT_BYTES],
                                      int64_t *out_bytes, strata_error *err) {
    const strata_parameter_set *parameters = &c->model->parameters;
    const int n_parameters = c->has_parameters ? parameters->n : 0;
    strata_named_array *tensors = calloc((size_t)(n_parameters + c->n_extras) + 1, sizeof *tensors);
    strata_metadata *metadata = calloc((size_t)c->n_notes + 1, sizeof *metadata);
    strata_status status = STRATA_OK;
    if (!tensors || !metadata) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    for (int i = 0; i < n_parameters && !status; i++) {
        const strata_parameter_spec *p = &parameters->items[i];
        float *values = c->s.parameters + strata_model_place(c->model, p);
        tensors[i] = (strata_named_array){p->name, strata_array_view(STRATA_DTYPE_F32, p->shape, values)};
    }
    if (!status) {
        memcpy(tensors + n_parameters, c->extras, (size_t)c->n_extras * sizeof *tensors);
        if (c->json) metadata[0] = (strata_metadata){STRATA_MODEL_METADATA, c->json};
        for (int i = 0; i < c->n_notes; i++) metadata[i + 1] = (strata_metadata){c->notes[i].key, c->notes[i].text};
        status = strata_safetensors_write(path, tensors, (size_t)(n_parameters + c->n_extras), metadata,
                                          c->json ? (size_t)c->n_notes + 1 : 0,
                                          &(strata_safetensors_writing){.sha256 = out_sha256, .bytes = out_bytes}, err);
    }
    free(tensors);
    free(metadata);
    return status;
}

static bool is_slot(const char *name) {
    return !strncmp(name, STRATA_CHECKPOINT_PREFIX "slot_", sizeof STRATA_CHECKPOINT_PREFIX "slot_" - 1);
}

strata_status strata_checkpoint_describe(const strata_checkpoint *c, strata_manifest *manifest, strata_error *err) {
    const strata_model *model = c->model;
    const strata_workers *workers = &model->strategy->workers;
    const bool shards = manifest->n_files > 1;
    STRATA_TRY(strata_manifest_set_model(manifest, c->json, err));
    for (int i = 0; i < c->n_notes; i++) STRATA_TRY(strata_manifest_add_text(manifest, c->notes[i].key, c->notes[i].text, err));
    for (int i = 0; i < model->parameters.n && c->has_parameters; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_manifest_piece whole = {0, 0, strata_shape_elements(p->shape)};
        STRATA_TRY(strata_manifest_add_piece(manifest, p->name, STRATA_DTYPE_F32, p->shape, whole, err));
    }
    for (int i = 0; i < c->n_extras; i++) {
        const strata_array *array = &c->extras[i].array;
        const strata_manifest_piece whole = {0, 0, strata_shape_elements(array->shape)};
        if (!shards || !is_slot(c->extras[i].name))
            STRATA_TRY(strata_manifest_add_piece(manifest, c->extras[i].name, array->dtype, array->shape, whole, err));
    }
    for (int i = 0; i < c->s.n_slots && shards; i++)
        for (int w = 0; w < workers->n; w++) {
            const int64_t *begins = model->shards.begins;
            const strata_manifest_piece piece = {w, begins[workers->first_replicas[w]], begins[workers->first_replicas[w + 1]]};
            if (piece.end > piece.begin)
                STRATA_TRY(strata_manifest_add_piece(manifest, slot_names[i], STRATA_DTYPE_F32,
                                                     STRATA_SHAPE(model->parameters.flat_size), piece, err));
        }
    return STRATA_OK;
}

static strata_status save(strata_model *model, const char *verb, int epochs, bool over, const char *path, strata_error *err) {
    const strata_trainer *trainer = model->strategy ? model->strategy->trainer : NULL;
    STRATA_TRY(strata_model_check_compiled(model, verb, err));
    if (trainer && trainer->settle) STRATA_TRY(trainer->settle(model, true, err));
    if (epochs < (model->position.steps ? 0 : 1))
        return strata_fail(err, STRATA_INVALID, "%s: epochs is %d; it must be at least 1", verb, epochs);
    strata_checkpoint *checkpoint;
    STRATA_TRY(take_checkpoint(model, epochs, STRATA_CHECKPOINT_ALL, over, NULL, &checkpoint, err));
    const strata_status status = path ? strata_checkpoint_write(checkpoint, path, NULL, NULL, err) : STRATA_OK;
    strata_checkpoint_destroy(checkpoint);
    return status;
}

strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path, strata_error *err) {
    return save(model, "save_checkpoint", epochs, false, path, err);
}

strata_status strata_model_save_last_checkpoint(strata_model *model, int epochs, const char *path, strata_error *err) {
    return save(model, "save_last_checkpoint", epochs, true, path, err);
}

/* ---- loading ---- */

enum { MOST_WORKERS = 1 << 20 };

/* The source of a checkpoint: a file, or the newest checkpoint of a folder. */
typedef struct source {
    const char *path;
    strata_safetensors file;
    strata_manifest manifest;
    strata_manifest_reader reader; /* reader.parts is NULL if the source is a file */
    char *newest;                  /* the path of the newest checkpoint in the folder */
} source;

static bool has(const source *from, const char *name) {
    return from->reader.parts ? strata_manifest_find(&from->manifest, name) != NULL
                              : strata_safetensors_find(&from->file, name) != NULL;
}

static strata_status copy(source *from, const char *name, strata_dtype dtype, strata_shape shape, void *out,
                          strata_error *err) {
    return from->reader.parts ? strata_manifest_copy(&from->reader, name, dtype, shape, out, err)
                              : strata_safetensors_copy(&from->file, name, dtype, shape, out, err);
}

static strata_status fail_with_difference(const char *path, const char *theirs, const char *ours, strata_error *err) {
    strata_json left = {0}, right = {0};
    char difference[400] = "the checkpoint does not describe its model";
    if (theirs && !strata_json_parse(path, theirs, strlen(theirs), STRATA_MANIFEST_MAX_BYTES, &left, NULL) &&
        !strata_json_parse(path, ours, strlen(ours), STRATA_MANIFEST_MAX_BYTES, &right, NULL) &&
        !strata_json_difference(&left, &right, difference, sizeof difference))
        snprintf(difference, sizeof difference, "the descriptions are written in different ways");
    strata_json_finish(&left);
    strata_json_finish(&right);
    return strata_fail(err, STRATA_DATA,
                       "%s is a checkpoint of another model, optimizer or loss: there %s. Other data can be the reason, if the "
                       "model was made for "
                       "them. Remove it to begin again, train as it was made, or train its model further (strata train --from)",
                       path, difference);
}

static const char *note_of(const source *from, const char *key) {
    const char *text = from->reader.parts ? NULL : strata_safetensors_metadata(&from->file, key);
    for (int i = 0; i < from->manifest.n_texts && !text; i++)
        if (!strcmp(from->manifest.texts[i].key, key)) text = from->manifest.texts[i].text;
    return text;
}

/* Compares how data are prepared, if the model and the checkpoint both say it: an evaluator or a training that goes on would
 * else feed the model other columns or words. */
static strata_status check_preparation(const strata_model *model, const source *from, strata_error *err) {
    static const char *const keys[] = {"preprocessing", "tokenizer"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "strata.%s", keys[i]);
        const char *ours = strata_model_note(model, keys[i]), *theirs = note_of(from, key);
        strata_json a = {0}, b = {0};
        strata_json_change change = {0};
        if (!ours || !theirs || !strcmp(ours, theirs)) continue;
        const bool read = !strata_json_parse(from->path, theirs, strlen(theirs), STRATA_MANIFEST_MAX_BYTES, &a, NULL) &&
                          !strata_json_parse(from->path, ours, strlen(ours), STRATA_MANIFEST_MAX_BYTES, &b, NULL);
        const bool differs = !read || strata_json_find_change(&a, &b, &change);
        strata_json_finish(&a);
        strata_json_finish(&b);
        if (!differs) continue;
        return strata_fail(
            err, STRATA_DATA,
            "%s is a checkpoint of a training with other data or options: in its %s, %s is %s, and here %s; all tasks of a "
            "job need the same; " STRATA_TRAINING_ADVICE,
            from->path, keys[i], change.path, change.left, change.right);
    }
    return STRATA_OK;
}

static strata_status check_same(const strata_model *model, const source *from, strata_error *err) {
    const char *theirs =
        from->reader.parts ? from->manifest.model : strata_safetensors_metadata(&from->file, STRATA_MODEL_METADATA);
    char *ours = NULL;
    if (!has(from, COUNTS))
        return strata_fail(err, STRATA_DATA, "%s is no checkpoint: there is no \"%s\" in it", from->path, COUNTS);
    STRATA_TRY(strata_model_to_json(model, &ours, err));
    const strata_status status =
        theirs && !strcmp(ours, theirs) ? STRATA_OK : fail_with_difference(from->path, theirs, ours, err);
    free(ours);
    return status ? status : check_preparation(model, from, err);
}

static strata_status take_best(const strata_model *model, source *from, state *s, strata_error *err) {
    if (!has(from, BEST_COUNTS)) return STRATA_OK;
    STRATA_TRY(copy(from, BEST_COUNTS, STRATA_DTYPE_I64, STRATA_SHAPE(N_BEST), s->best_counts, err));
    if (s->best_counts[BEST_EPOCHS] < 1 || s->best_counts[BEST_EPOCHS] > s->counts[EPOCHS])
        return strata_fail(err, STRATA_DATA, "%s: the best epoch is one that was not run", from->path);
    if (!has(from, BEST_VALUES)) return STRATA_OK;
    STRATA_TRY(allocate_best(model, s, err));
    return copy(from, BEST_VALUES, STRATA_DTYPE_F32, STRATA_SHAPE(strata_model_all_size(model)), s->best_values, err);
}

static strata_status take_position(const strata_model *model, source *from, state *s, strata_error *err) {
    if (!has(from, POSITION)) return STRATA_OK;
    STRATA_TRY(copy(from, POSITION, STRATA_DTYPE_I64, STRATA_SHAPE(N_POSITION), s->position, err));
    if (s->position[EPOCH_STEPS] < 1 || s->position[EPOCH_EXAMPLES] < 1)
        return strata_fail(err, STRATA_DATA, "%s: a place within an epoch that cannot be", from->path);
    if (has(from, READERS)) STRATA_TRY(copy(from, READERS, STRATA_DTYPE_I64, STRATA_SHAPE(1), &s->readers, err));
    if (s->readers < 0 || s->readers > INT32_MAX)
        return strata_fail(err, STRATA_DATA, "%s: a number of workers that cannot be", from->path);
    return copy(from, SUMS, STRATA_DTYPE_F32, STRATA_SHAPE(model->metrics.n_sums), s->sums, err);
}

static strata_status take_rate(source *from, state *s, strata_error *err) {
    if (!has(from, RATE)) return STRATA_OK;
    int64_t bits;
    STRATA_TRY(copy(from, RATE, STRATA_DTYPE_I64, STRATA_SHAPE(1), &bits, err));
    memcpy(&s->rate, &bits, sizeof s->rate);
    if (s->rate >= 0 && s->rate < 1e6) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: a learning rate that cannot be", from->path);
}

static int64_t elements(const source *from, const char *name) {
    return strata_shape_elements(from->reader.parts ? strata_manifest_find(&from->manifest, name)->shape
                                                    : strata_safetensors_find(&from->file, name)->shape);
}

static strata_status take_callbacks(source *from, state *s, strata_error *err) {
    if (!has(from, CALLBACKS)) return STRATA_OK;
    const bool of_several = has(from, CALLBACK_BYTES);
    const int64_t total = elements(from, CALLBACKS), n = of_several ? elements(from, CALLBACK_BYTES) : 1;
    int64_t sum = 0;
    if (n < 1 || n > MOST_WORKERS)
        return strata_fail(err, STRATA_DATA, "%s: has what callbacks of %lld workers keep, which cannot be", from->path,
                           (long long)n);
    STRATA_TRY(strata_callback_states_allocate(&s->callbacks, (int)n, total, err));
    s->callbacks.bytes[0] = total;
    if (of_several) STRATA_TRY(copy(from, CALLBACK_BYTES, STRATA_DTYPE_I64, STRATA_SHAPE(n), s->callbacks.bytes, err));
    for (int64_t w = 0; w < n; w++) {
        const int64_t bytes = s->callbacks.bytes[w];
        sum = bytes < 0 || bytes > total - sum ? total + 1 : sum + bytes;
        if (sum > total) break;
    }
    if (sum != total)
        return strata_fail(err, STRATA_DATA, "%s: what the workers' callbacks keep does not have the lengths that it says",
                           from->path);
    return copy(from, CALLBACKS, STRATA_DTYPE_U8, STRATA_SHAPE(total), s->callbacks.all, err);
}

/* With another number of replicas, all of them continue from the means. */
static strata_status take_own_values(const strata_model *model, source *from, state *s, strata_error *err) {
    if (!has(from, OWN) || !strata_strategy_has_own(model->strategy) || elements(from, OWN) != own_elements(model))
        return STRATA_OK;
    s->own = calloc((size_t)own_elements(model), sizeof *s->own);
    if (!s->own) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    return copy(from, OWN, STRATA_DTYPE_F32, STRATA_SHAPE(own_elements(model)), s->own, err);
}

static strata_status take_values(const strata_model *model, source *from, float *out, strata_error *err) {
    if (!from->reader.parts) return strata_model_take_parameters(model, &from->file, out, err);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        STRATA_TRY(copy(from, p->name, STRATA_DTYPE_F32, p->shape, out + strata_model_place(model, p), err));
    }
    return STRATA_OK;
}

static strata_status take_training(const source *from, state *s, strata_error *err) {
    const char *text = note_of(from, STRATA_TRAINING_METADATA);
    s->training = text ? strdup(text) : NULL;
    return !text || s->training ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
}

static strata_status take(const strata_model *model, source *from, state *s, strata_error *err) {
    STRATA_TRY(check_same(model, from, err));
    STRATA_TRY(take_training(from, s, err));
    STRATA_TRY(take_values(model, from, s->parameters, err));
    for (int i = 0; i < s->n_slots; i++)
        STRATA_TRY(copy(from, slot_names[i], STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.flat_size),
                        slot_values(model, s, i), err));
    STRATA_TRY(copy(from, COUNTS, STRATA_DTYPE_I64, STRATA_SHAPE(N_COUNTS), s->counts, err));
    STRATA_TRY(take_position(model, from, s, err));
    STRATA_TRY(take_own_values(model, from, s, err));
    STRATA_TRY(take_rate(from, s, err));
    s->over = has(from, OVER);
    STRATA_TRY(take_callbacks(from, s, err));
    if (s->counts[EPOCHS] < (s->position[EPOCH_STEPS] ? 0 : 1) || s->counts[EPOCHS] > INT32_MAX || s->counts[STEPS] < 0 ||
        s->counts[SCALE_STEPS] < 0)
        return strata_fail(err, STRATA_DATA, "%s: counts of epochs or steps that cannot be", from->path);
    if (memcmp(&s->counts[SEED], &model->seed, sizeof model->seed) != 0)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with seed %lld, this is %llu", from->path,
                           (long long)s->counts[SEED], (unsigned long long)model->seed);
    if (s->counts[PRECISION] != (int64_t)model->precision)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with another precision than %s", from->path,
                           strata_dtype_name(model->precision));
    return take_best(model, from, s, err);
}

static bool is_there(const state *s) {
    return s->counts[EPOCHS] || s->position[EPOCH_STEPS];
}

/* If the file does not exist, or the folder has no checkpoint, the counts are 0. */
static strata_status read_state(const strata_model *model, const char *path, state *s, strata_error *err) {
    struct stat info = {0};
    source from = {.path = path};
    if (stat(path, &info) && errno == ENOENT) return STRATA_OK;
    if (S_ISDIR(info.st_mode)) {
        STRATA_TRY(strata_checkpoint_folder_find(path, &from.manifest, &from.reader, &from.newest, err));
        if (!from.newest) return STRATA_OK;
        from.path = from.newest;
    } else {
        STRATA_TRY(strata_safetensors_read(path, &from.file, err));
    }
    const strata_status status = take(model, &from, s, err);
    strata_manifest_close(&from.reader);
    strata_manifest_finish(&from.manifest);
    strata_safetensors_finish(&from.file);
    free(from.newest);
    return status;
}

/* Sends the values of the replicas, if rank 0 has them. */
static strata_status share_own(const strata_model *model, state *s, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    int32_t there = s->own != NULL;
    if (!strata_strategy_has_own(model->strategy)) return STRATA_OK;
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I32, &there, 1, err));
    if (!there) return STRATA_OK;
    if (!s->own) s->own = calloc((size_t)own_elements(model), sizeof *s->own);
    if (!s->own) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    return workers->broadcast(workers, STRATA_DTYPE_F32, s->own, own_elements(model), err);
}

/* Sends what rank 0 has read, or its failure, to all workers. */
static strata_status share(const strata_model *model, strata_status status, const char *path, state *s, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    if (workers->n <= 1) return status;
    int32_t rank_0_status = (int32_t)status;
    strata_error lost = {0}; /* `err` already contains rank 0's error */
    strata_status sent = workers->broadcast(workers, STRATA_DTYPE_I32, &rank_0_status, 1, &lost);
    if (status) return status;
    if (sent) return strata_fail(err, sent, "%s", lost.message);
    if (rank_0_status)
        return strata_fail(err, (strata_status)rank_0_status, "rank 0 cannot go on from the checkpoint %s", path);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->counts, N_COUNTS, err));
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->position, N_POSITION, err));
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &s->readers, 1, err));
    int64_t rate_bits;
    memcpy(&rate_bits, &s->rate, sizeof rate_bits);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &rate_bits, 1, err));
    memcpy(&s->rate, &rate_bits, sizeof s->rate);
    if (!is_there(s)) return STRATA_OK;
    STRATA_TRY(strata_callback_states_share(workers, &s->callbacks, err));
    const int64_t size = strata_model_all_size(model);
    const int64_t n = size + s->n_slots * model->parameters.flat_size + model->metrics.n_sums;
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_F32, s->parameters, n, err));
    STRATA_TRY(share_own(model, s, err));
    int32_t kept = s->best_values != NULL; /* whether rank 0 has the parameters of a best epoch */
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->best_counts, N_BEST, err));
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I32, &kept, 1, err));
    if (!kept) return STRATA_OK;
    if (!s->best_values) STRATA_TRY(allocate_best(model, s, err));
    return workers->broadcast(workers, STRATA_DTYPE_F32, s->best_values, size, err);
}

static strata_status put(strata_model *model, state *s, strata_error *err) {
    STRATA_TRY(strata_model_write_all(model, s->parameters, err));
    for (int i = 0; i < s->n_slots; i++) STRATA_TRY(strata_shards_write_slot(model, i, slot_values(model, s, i), err));
    strata_callback_states_give(model, &s->callbacks);
    free(model->training);
    free(model->continued);
    model->training = NULL;
    model->continued = s->training;
    s->training = NULL;
    model->optimizer_steps = s->counts[STEPS];
    model->rate.own = s->rate;
    model->scale.steps = s->counts[SCALE_STEPS];
    memcpy(&model->scale.value, &s->counts[SCALE_BITS], sizeof model->scale.value);
    strata_validation_forget(model);
    model->best = (strata_model_best){.epochs = s->best_counts[BEST_EPOCHS], .values = s->best_values};
    memcpy(&model->best.loss, &s->best_counts[BEST_LOSS_BITS], sizeof model->best.loss);
    s->best_values = NULL;
    model->position = (strata_model_position){s->position[EPOCH_STEPS], s->position[EPOCH_EXAMPLES], s->readers};
    for (int64_t i = 0; i < model->metrics.n_sums; i++) model->metrics.sums[i] = (double)s->sums[i];
    STRATA_TRY(strata_model_write_sums(model, err));
    return s->own ? strata_model_write_own(model, s->own, err) : STRATA_OK;
}

int64_t strata_model_epoch_steps(const strata_model *model) {
    return model->position.steps;
}

strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs, strata_error *err) {
    bool ignored;
    return strata_checkpoint_load(model, path, out_epochs, &ignored, err);
}

strata_status strata_checkpoint_load(strata_model *model, const char *path, int *out_epochs, bool *out_over,
                                     strata_error *err) {
    *out_epochs = 0;
    *out_over = false;
    STRATA_TRY(strata_model_check_compiled(model, "load_checkpoint", err));
    state s;
    STRATA_TRY(allocate(model, &s, err));
    strata_status status = model->strategy->workers.rank == 0 ? read_state(model, path, &s, err) : STRATA_OK;
    status = share(model, status, path, &s, err);
    if (!status && is_there(&s)) status = put(model, &s, err);
    if (!status) *out_epochs = (int)s.counts[EPOCHS];
    if (!status) *out_over = s.over != 0;
    finish(&s);
    return status;
}
