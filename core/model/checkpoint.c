/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files and checkpoints. A model file is a safetensors file with an F32 tensor for each parameter; the metadata have the
 * model's JSON, under "strata.model", and its notes. A checkpoint is a model file with additional tensors "checkpoint/..." that
 * are needed to continue the training, the *items*. A checkpoint in a folder (checkpoint_folder.c) has the same tensors, in one
 * file or in a file for each worker. Rank 0 reads for all workers. */
#include "core/model/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/model/agree.h"
#include "core/model/data.h"
#include "core/model/loop.h"
#include "core/model/metrics.h"
#include "core/model/shards.h"

typedef enum item_kind {
    /* The optimizer's slots, in the layout of the parameters. */
    SLOTS,
    /* What each replica has, one after the other (strata_model_gather_own), under a strategy whose replicas have their own
     * parameters. The parameters and slots of the checkpoint are then the means. */
    OWN = SLOTS + STRATA_MAX_OPTIMIZER_SLOTS,
    COUNTS,
    /* The position within the next epoch at which training was stopped, and the epoch's sums so far. */
    POSITION,
    SUMS,
    /* The number of workers that read their own batches, if they do. */
    READERS,
    /* The state of the callbacks, if they have one. With several workers it is the state of all of them, concatenated, and the
     * number of bytes of each. */
    CALLBACKS,
    CALLBACK_BYTES,
    /* The bits of the learning rate that was set instead of the schedule's. */
    RATE,
    /* 1, in the last checkpoint of a training that is over, so that an evaluator does not wait for another one. */
    OVER,
    /* The best epoch so far, if there is one: its number and the bits of its loss; and its parameters, if they are kept. */
    BEST_COUNTS,
    BEST_VALUES,
    N_ITEMS
} item_kind;
enum { EPOCHS, STEPS, SCALE_STEPS, SCALE_BITS, SEED, PRECISION, N_COUNTS };
enum { EPOCH_STEPS, EPOCH_EXAMPLES, N_POSITION };
enum { BEST_EPOCHS, BEST_LOSS_BITS, N_BEST };

static const struct {
    const char *name;
    strata_dtype dtype;
} kinds[N_ITEMS] = {
    [SLOTS] = {STRATA_CHECKPOINT_PREFIX "slot_0", STRATA_DTYPE_F32},
    [SLOTS + 1] = {STRATA_CHECKPOINT_PREFIX "slot_1", STRATA_DTYPE_F32},
    [SLOTS + 2] = {STRATA_CHECKPOINT_PREFIX "slot_2", STRATA_DTYPE_F32},
    [OWN] = {STRATA_CHECKPOINT_PREFIX "replicas", STRATA_DTYPE_F32},
    [COUNTS] = {STRATA_CHECKPOINT_PREFIX "counts", STRATA_DTYPE_I64},
    [POSITION] = {STRATA_CHECKPOINT_PREFIX "position", STRATA_DTYPE_I64},
    [SUMS] = {STRATA_CHECKPOINT_PREFIX "sums", STRATA_DTYPE_F32},
    [READERS] = {STRATA_CHECKPOINT_PREFIX "readers", STRATA_DTYPE_I64},
    [CALLBACKS] = {STRATA_CHECKPOINT_PREFIX "callbacks", STRATA_DTYPE_U8},
    [CALLBACK_BYTES] = {STRATA_CHECKPOINT_PREFIX "callback_bytes", STRATA_DTYPE_I64},
    [RATE] = {STRATA_CHECKPOINT_PREFIX "learning_rate", STRATA_DTYPE_I64},
    [OVER] = {STRATA_CHECKPOINT_PREFIX "over", STRATA_DTYPE_I64},
    [BEST_COUNTS] = {STRATA_CHECKPOINT_PREFIX "best_counts", STRATA_DTYPE_I64},
    [BEST_VALUES] = {STRATA_CHECKPOINT_PREFIX "best_values", STRATA_DTYPE_F32},
};

const char *strata_checkpoint_slot_name(int slot) {
    return kinds[SLOTS + slot].name;
}

typedef struct state {
    /* (all_size) The parameters and the states of layers. */
    float *parameters;
    /* The items; data is NULL where the checkpoint does not have one. */
    struct {
        int64_t n;
        void *data;
    } items[N_ITEMS];
    /* The description of the training; NULL: there is none. Only rank 0 reads it. */
    char *training;
} state;

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
}

static void finish(state *s) {
    free(s->parameters);
    for (int k = 0; k < N_ITEMS; k++) free(s->items[k].data);
    free(s->training);
}

/* An item's size in words of 8 bytes, of which messages between workers consist. */
static int64_t words_of(int kind, int64_t n) {
    return n * (int64_t)strata_dtype_bytes(kinds[kind].dtype) / 8 + 1;
}

/* Adds an item of n zeros. */
static strata_status make(state *s, int kind, int64_t n, strata_error *err) {
    s->items[kind].n = n;
    s->items[kind].data = n < 0 ? NULL : calloc((size_t)words_of(kind, n), 8);
    return s->items[kind].data ? STRATA_OK : no_memory(err);
}

static strata_status make_from(state *s, int kind, int64_t n, const void *data, strata_error *err) {
    STRATA_TRY(make(s, kind, n, err));
    memcpy(s->items[kind].data, data, (size_t)n * strata_dtype_bytes(kinds[kind].dtype));
    return STRATA_OK;
}

/* The integers of an item; NULL: there is no such item. */
static int64_t *integers(const state *s, int kind) {
    return s->items[kind].data;
}

static float *floats(const state *s, int kind) {
    return s->items[kind].data;
}

static int64_t own_elements(const strata_model *model) {
    return strata_strategy_num_replicas_in_sync(model->strategy) * strata_model_own_size(model);
}

/* ---- saving ---- */

struct strata_checkpoint {
    const strata_model *model; /* for the names of the parameters */
    state s;
    /* The model and its texts, copied because a callback may change those. */
    strata_manifest manifest;
    bool has_parameters, has_counts;
    /* The elements of the slots that this worker writes. */
    int64_t begin, end;
};

strata_manifest *strata_checkpoint_manifest(strata_checkpoint *checkpoint) {
    return &checkpoint->manifest;
}

void strata_checkpoint_destroy(strata_checkpoint *c) {
    if (!c) return;
    finish(&c->s);
    strata_manifest_finish(&c->manifest);
    free(c);
}

static strata_status take_slots(strata_checkpoint *c, strata_model *model, bool shards, strata_error *err) {
    c->end = model->parameters.flat_size;
    if (shards) strata_shards_own_range(model, &c->begin, &c->end);
    for (int i = 0; i < strata_model_n_slots(model); i++) {
        STRATA_TRY(make(&c->s, SLOTS + i, model->parameters.flat_size, err));
        STRATA_TRY((shards ? strata_shards_read_own_slot : strata_shards_read_slot)(model, i, floats(&c->s, SLOTS + i), err));
    }
    return STRATA_OK;
}

static strata_status take_texts(strata_checkpoint *c, const strata_model *model, strata_error *err) {
    STRATA_FREED char *json = NULL;
    STRATA_TRY(strata_model_to_json(model, &json, err));
    STRATA_TRY(strata_manifest_add_text(&c->manifest, STRATA_MODEL_METADATA, json, err));
    for (int i = 0; i < model->notes.n; i++)
        STRATA_TRY(strata_manifest_add_text(&c->manifest, model->notes.items[i].key, model->notes.items[i].text, err));
    return STRATA_OK;
}

static strata_status take_training(strata_checkpoint *c, strata_model *model, strata_error *err) {
    const char *training = NULL, *json = strata_manifest_find_text(&c->manifest, STRATA_MODEL_METADATA);
    STRATA_OWNED(strata_model) *again = NULL;
    STRATA_TRY(strata_training_of(model, &training, err));
    if (training) STRATA_TRY(strata_manifest_add_text(&c->manifest, STRATA_TRAINING_METADATA, training, err));
    /* A checkpoint that could not be read would be noticed only when it is needed. */
    return strata_model_from_json_with(model->registry, json, strlen(json), "the checkpoint's model", &again, err);
}

static strata_status take_counts(state *s, strata_model *model, int epochs, strata_error *err) {
    const strata_model_position *at = &model->position;
    int64_t counts[N_COUNTS] = {[EPOCHS] = epochs,
                                [STEPS] = model->optimizer_steps,
                                [SCALE_STEPS] = model->scale.steps,
                                [PRECISION] = model->precision};
    memcpy(&counts[SCALE_BITS], &model->scale.value, sizeof model->scale.value);
    memcpy(&counts[SEED], &model->seed, sizeof model->seed);
    STRATA_TRY(make_from(s, COUNTS, N_COUNTS, counts, err));
    if (at->steps) {
        STRATA_TRY(strata_model_read_sums(model, err));
        STRATA_TRY(make_from(s, POSITION, N_POSITION, (int64_t[N_POSITION]){at->steps, at->examples}, err));
        STRATA_TRY(make(s, SUMS, model->metrics.n_sums, err));
        for (int64_t i = 0; i < model->metrics.n_sums; i++) floats(s, SUMS)[i] = (float)model->metrics.sums[i];
        if (at->readers) STRATA_TRY(make_from(s, READERS, 1, &at->readers, err));
    }
    return model->rate.own >= 0 ? make_from(s, RATE, 1, &model->rate.own, err) : STRATA_OK;
}

static strata_status take_callbacks(state *s, const strata_callback_states *all, strata_error *err) {
    if (all->total) STRATA_TRY(make_from(s, CALLBACKS, all->total, all->all, err));
    return all->total && all->n > 1 ? make_from(s, CALLBACK_BYTES, all->n, all->bytes, err) : STRATA_OK;
}

static strata_status take_best(state *s, const strata_model *model, strata_error *err) {
    const strata_model_best *best = &model->best;
    int64_t counts[N_BEST] = {[BEST_EPOCHS] = best->epochs};
    if (!best->epochs) return STRATA_OK;
    memcpy(&counts[BEST_LOSS_BITS], &best->loss, sizeof best->loss);
    STRATA_TRY(make_from(s, BEST_COUNTS, N_BEST, counts, err));
    return best->values ? make_from(s, BEST_VALUES, strata_model_all_size(model), best->values, err) : STRATA_OK;
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

static strata_status take_own(state *s, strata_model *model, strata_error *err) {
    const int64_t size = strata_model_all_size(model), flat = model->parameters.flat_size;
    STRATA_FREED float *own = NULL;
    if (!strata_strategy_has_own(model->strategy)) return STRATA_OK;
    if (!model->interrupted) STRATA_TRY(strata_model_gather_own(model, &own, err));
    STRATA_TRY(make_from(s, OWN, own_elements(model), own ? own : model->interrupted, err));
    if (model->apart) average(model, floats(s, OWN), 0, size, s->parameters);
    for (int i = 0; i < strata_model_n_slots(model); i++)
        average(model, floats(s, OWN), size + i * flat, flat, floats(s, SLOTS + i));
    return STRATA_OK;
}

static strata_status take_all(strata_checkpoint *c, strata_model *model, int epochs, strata_checkpoint_scope scope,
                              const strata_callback_states *callbacks, strata_error *err) {
    const bool shards = scope == STRATA_CHECKPOINT_SHARDS, trains = scope != STRATA_CHECKPOINT_MODEL;
    c->has_counts = !shards || model->strategy->workers.rank == 0;
    c->has_parameters = c->has_counts && scope != STRATA_CHECKPOINT_COUNTS;
    STRATA_TRY(STRATA_NEW(c->s.parameters, strata_model_all_size(model), err, "checkpoint: no host memory"));
    if (trains && scope != STRATA_CHECKPOINT_COUNTS) STRATA_TRY(take_slots(c, model, shards, err));
    if (!c->has_counts) return STRATA_OK;
    STRATA_TRY(take_texts(c, model, err));
    if (c->has_parameters) STRATA_TRY(strata_model_read_all(model, c->s.parameters, err));
    if (!trains) return STRATA_OK;
    STRATA_TRY(take_training(c, model, err));
    STRATA_TRY(take_own(&c->s, model, err));
    STRATA_TRY(take_counts(&c->s, model, epochs, err));
    if (scope == STRATA_CHECKPOINT_LAST) STRATA_TRY(make_from(&c->s, OVER, 1, &(int64_t){1}, err));
    STRATA_TRY(take_callbacks(&c->s, callbacks, err));
    return take_best(&c->s, model, err);
}

strata_status strata_checkpoint_take(strata_model *model, int epochs, strata_checkpoint_scope scope,
                                     const strata_callback_states *callbacks, strata_checkpoint **out_checkpoint,
                                     strata_error *err) {
    STRATA_OWNED(strata_checkpoint) *copy = NULL;
    STRATA_TRY(STRATA_NEW(copy, 1, err, "checkpoint: no host memory"));
    copy->model = model;
    STRATA_TRY(take_all(copy, model, epochs, scope, callbacks, err));
    *out_checkpoint = strata_released(&copy);
    return STRATA_OK;
}

static bool is_slot(int kind) {
    return kind < SLOTS + STRATA_MAX_OPTIMIZER_SLOTS;
}

typedef struct part_name {
    char text[64];
} part_name;

/* The item as a tensor of the file. Where the worker writes only a part of the slots, the name has the elements. */
static strata_named_array tensor_of(const strata_checkpoint *c, int kind, part_name *name) {
    const int64_t n = c->s.items[kind].n, begin = is_slot(kind) ? c->begin : 0, end = is_slot(kind) ? c->end : n;
    char *data = c->s.items[kind].data;
    snprintf(name->text, sizeof name->text, "%s", kinds[kind].name);
    if (end - begin < n)
        snprintf(name->text, sizeof name->text, "%s[%lld:%lld]", kinds[kind].name, (long long)begin, (long long)end);
    data += begin * (int64_t)strata_dtype_bytes(kinds[kind].dtype);
    return (strata_named_array){name->text, strata_array_view(kinds[kind].dtype, STRATA_SHAPE(end - begin), data)};
}

/* Whether this worker writes the item. */
static bool is_written(const strata_checkpoint *c, int kind) {
    return c->s.items[kind].data && (is_slot(kind) ? c->end > c->begin : c->has_counts);
}

strata_status strata_checkpoint_write(const strata_checkpoint *c, const char *path, const strata_file_check *check,
                                      char out_sha256[STRATA_SHA256_TEXT_BYTES], int64_t *out_bytes, strata_error *err) {
    const strata_parameter_set *parameters = &c->model->parameters;
    const int n_texts = c->manifest.n_texts;
    part_name names[N_ITEMS];
    size_t n = 0;
    STRATA_FREED strata_named_array *tensors = calloc((size_t)parameters->n + N_ITEMS, sizeof *tensors);
    STRATA_FREED strata_metadata *metadata = calloc((size_t)n_texts + 1, sizeof *metadata);
    if (!tensors || !metadata) return no_memory(err);
    for (int i = 0; i < parameters->n && c->has_parameters; i++) {
        const strata_parameter_spec *p = &parameters->items[i];
        float *values = c->s.parameters + strata_model_place(c->model, p);
        tensors[n++] = (strata_named_array){p->name, strata_array_view(STRATA_DTYPE_F32, p->shape, values)};
    }
    for (int k = 0; k < N_ITEMS; k++)
        if (is_written(c, k)) tensors[n++] = tensor_of(c, k, &names[k]);
    for (int i = 0; i < n_texts; i++) metadata[i] = (strata_metadata){c->manifest.texts[i].key, c->manifest.texts[i].text};
    const strata_safetensors_writing how = {.check = check, .sha256 = out_sha256, .bytes = out_bytes};
    return strata_safetensors_write(path, tensors, n, metadata, (size_t)n_texts, &how, err);
}

strata_status strata_checkpoint_describe(strata_checkpoint *c, strata_error *err) {
    const strata_model *model = c->model;
    const strata_workers *workers = &model->strategy->workers;
    const bool shards = c->manifest.n_files > 1;
    for (int i = 0; i < model->parameters.n && c->has_parameters; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_manifest_piece whole = {0, 0, strata_shape_elements(p->shape)};
        STRATA_TRY(strata_manifest_add_piece(&c->manifest, p->name, STRATA_DTYPE_F32, p->shape, whole, err));
    }
    for (int k = 0; k < N_ITEMS; k++)
        for (int w = 0; w < (shards && is_slot(k) ? workers->n : 1) && c->s.items[k].data; w++) {
            const int64_t n = c->s.items[k].n, *begins = model->shards.begins;
            strata_manifest_piece piece = {0, 0, n};
            if (shards && is_slot(k))
                piece = (strata_manifest_piece){w, begins[workers->first_replicas[w]], begins[workers->first_replicas[w + 1]]};
            if (piece.end > piece.begin)
                STRATA_TRY(strata_manifest_add_piece(&c->manifest, kinds[k].name, kinds[k].dtype, STRATA_SHAPE(n), piece, err));
        }
    return STRATA_OK;
}

/* Reads a model file back, and compares its parameters and states bit by bit, so that NaN are compared too. */
static strata_status read_back(const char *path, void *context, strata_error *err) {
    const strata_checkpoint *written = context;
    const strata_model *own = written->model;
    STRATA_OWNED(strata_model) *model = NULL;
    STRATA_TRY(strata_model_load_with(own->registry, path, &model, err));
    bool same = model->parameters.n == own->parameters.n;
    for (int i = 0; i < model->parameters.n && same; i++) {
        const strata_parameter_spec *a = &own->parameters.items[i], *b = &model->parameters.items[i];
        const float *x = written->s.parameters + strata_model_place(own, a), *y = model->loaded + strata_model_place(model, b);
        same = strata_shape_equal(a->shape, b->shape) && !memcmp(x, y, (size_t)strata_shape_elements(a->shape) * sizeof *x);
    }
    return same ? STRATA_OK : strata_fail(err, STRATA_INTERNAL, "its parameters are not those of the model");
}

/* path NULL: nothing is written. */
static strata_status save(strata_model *model, const char *verb, int epochs, strata_checkpoint_scope scope, const char *path,
                          strata_error *err) {
    const strata_trainer *trainer = model->strategy ? model->strategy->trainer : NULL;
    const bool trains = scope != STRATA_CHECKPOINT_MODEL;
    STRATA_FINISHED(strata_callback_states) callbacks = {0};
    STRATA_OWNED(strata_checkpoint) *copy = NULL;
    STRATA_TRY(trains ? strata_model_check_compiled(model, verb, err) : strata_model_check_readable(model, verb, err));
    if (!trains) STRATA_TRY(strata_model_check_idle(model, verb, err)); /* checkpoints are saved by all workers */
    if (!path && !trains && !(model->strategy && strata_strategy_mesh_has_workers(model->strategy))) return STRATA_OK;
    if (trainer && trainer->settle) STRATA_TRY(trainer->settle(model, true, err));
    if (trains && epochs < (model->position.steps ? 0 : 1))
        return strata_fail(err, STRATA_INVALID, "%s: epochs is %d; it must be at least 1", verb, epochs);
    if (trains) STRATA_TRY(strata_callback_states_take(model, false, &callbacks, err));
    STRATA_TRY(strata_checkpoint_take(model, epochs, scope, &callbacks, &copy, err));
    const strata_file_check check = {read_back, copy};
    return path ? strata_checkpoint_write(copy, path, trains ? NULL : &check, NULL, NULL, err) : STRATA_OK;
}

strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path, strata_error *err) {
    return save(model, "save_checkpoint", epochs, STRATA_CHECKPOINT_ALL, path, err);
}

strata_status strata_model_save_last_checkpoint(strata_model *model, int epochs, const char *path, strata_error *err) {
    return save(model, "save_last_checkpoint", epochs, STRATA_CHECKPOINT_LAST, path, err);
}

strata_status strata_model_save(strata_model *model, const char *path, strata_error *err) {
    return save(model, "save", 0, STRATA_CHECKPOINT_MODEL, path, err);
}

/* ---- reading model files ---- */

/* Checks that the file has every parameter with its shape, and no other tensors except those of a checkpoint. */
static strata_status check_parameters(const strata_model *model, const strata_manifest *file, strata_error *err) {
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_manifest_tensor *tensor = strata_manifest_find(file, p->name);
        if (!tensor || tensor->dtype != STRATA_DTYPE_F32 || !strata_shape_equal(tensor->shape, p->shape))
            return strata_manifest_copy(file, p->name, STRATA_DTYPE_F32, p->shape, NULL,
                                        err); /* the message distinguishes these cases */
    }
    for (int i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        bool known = !strncmp(name, STRATA_CHECKPOINT_PREFIX, sizeof STRATA_CHECKPOINT_PREFIX - 1);
        for (int k = 0; k < model->parameters.n && !known; k++) known = !strcmp(model->parameters.items[k].name, name);
        if (!known) return strata_fail(err, STRATA_DATA, "%s: the model has no parameter \"%s\"", file->path, name);
    }
    return STRATA_OK;
}

/* Reads the parameters and states of a file, which must be those of the model. out: (all_size). */
static strata_status take_parameters(const strata_model *model, const strata_manifest *file, float *out, strata_error *err) {
    STRATA_TRY(check_parameters(model, file, err));
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        STRATA_TRY(strata_manifest_copy(file, p->name, STRATA_DTYPE_F32, p->shape, out + strata_model_place(model, p), err));
    }
    return STRATA_OK;
}

static strata_status load_file(strata_registry *registry, const strata_manifest *file, strata_model **out_model,
                               strata_error *err) {
    const char *json = strata_manifest_find_text(file, STRATA_MODEL_METADATA);
    if (!json)
        return strata_fail(
            err, STRATA_DATA,
            "%s: a safetensors file without a model in it (no \"%s\" in its metadata); save one with strata train --save",
            file->path, STRATA_MODEL_METADATA);
    const strata_status status =
        strata_model_from_json_with(registry, json, strlen(json), STRATA_MODEL_METADATA, out_model, err);
    if (status) return strata_fail_in(err, status, "%s", file->path);
    strata_model *model = *out_model;
    STRATA_TRY(strata_model_read_notes(model, file, err));
    STRATA_TRY(check_parameters(model, file, err)); /* before memory is allocated, since a damaged file may describe any size */
    const int64_t size = strata_model_all_size(model);
    STRATA_TRY(STRATA_NEW(model->loaded, size, err, "load: no host memory for %lld parameters", (long long)size));
    return take_parameters(model, file, model->loaded, err);
}

strata_status strata_model_load(const char *path, strata_model **out_model, strata_error *err) {
    return strata_model_load_with(NULL, path, out_model, err);
}

strata_status strata_model_load_with(strata_registry *registry, const char *path, strata_model **out_model, strata_error *err) {
    STRATA_FINISHED(strata_manifest) file = {0};
    STRATA_OWNED(strata_model) *model = NULL;
    STRATA_TRY(strata_manifest_open_file(path, &file, err));
    STRATA_TRY(load_file(registry, &file, &model, err));
    *out_model = strata_released(&model);
    return STRATA_OK;
}

/* ---- loading ---- */

enum { MOST_WORKERS = 1 << 20 };

/* Compares how data are prepared, if the model and the checkpoint both say it: an evaluator or a training that goes on would
 * else feed the model other columns or words. */
static strata_status check_preparation(const strata_model *model, const strata_manifest *from, strata_error *err) {
    static const char *const keys[] = {"preprocessing", "tokenizer"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "strata.%s", keys[i]);
        const char *ours = strata_model_note(model, keys[i]), *theirs = strata_manifest_find_text(from, key);
        strata_json_change change = {0};
        if (!ours || !theirs || !strcmp(ours, theirs)) continue;
        if (strata_json_compare(theirs, strlen(theirs), ours, strlen(ours), &change) == STRATA_JSON_EQUAL) continue;
        return strata_fail(
            err, STRATA_DATA,
            "%s is a checkpoint of a training with other data or options: in its %s, %s is %s, and here %s; all tasks of a "
            "job need the same; " STRATA_TRAINING_ADVICE,
            from->path, keys[i], change.path, change.left, change.right);
    }
    return STRATA_OK;
}

static strata_status fail_with_difference(const char *path, const char *theirs, const char *ours, strata_error *err) {
    strata_json_change change;
    const strata_json_comparison result =
        theirs ? strata_json_compare(theirs, strlen(theirs), ours, strlen(ours), &change) : STRATA_JSON_UNREADABLE;
    char difference[sizeof change + 32] = "the checkpoint does not describe its model";
    if (result == STRATA_JSON_EQUAL) strcpy(difference, "the descriptions are written in different ways");
    if (result == STRATA_JSON_DIFFERS)
        snprintf(difference, sizeof difference, "%s is %s, not %s", change.path, change.left, change.right);
    return strata_fail(err, STRATA_DATA,
                       "%s is a checkpoint of another model, optimizer or loss: there %s. Other data can be the reason, if the "
                       "model was made for "
                       "them. Remove it to begin again, train as it was made, or train its model further (strata train --from)",
                       path, difference);
}

static strata_status check_same(const strata_model *model, const strata_manifest *from, strata_error *err) {
    STRATA_FREED char *ours = NULL;
    if (!strata_manifest_find(from, kinds[COUNTS].name))
        return strata_fail(err, STRATA_DATA, "%s is no checkpoint: there is no \"%s\" in it", from->path, kinds[COUNTS].name);
    STRATA_TRY(strata_model_to_json(model, &ours, err));
    const char *theirs = strata_manifest_find_text(from, STRATA_MODEL_METADATA);
    if (!theirs || strcmp(ours, theirs) != 0) return fail_with_difference(from->path, theirs, ours, err);
    return check_preparation(model, from, err);
}

/* How many elements the item must have; -1: any number. */
static int64_t size_of(const strata_model *model, int kind) {
    const int64_t sizes[N_ITEMS] = {[OWN] = own_elements(model),
                                    [COUNTS] = N_COUNTS,
                                    [POSITION] = N_POSITION,
                                    [SUMS] = model->metrics.n_sums,
                                    [READERS] = 1,
                                    [CALLBACKS] = -1,
                                    [CALLBACK_BYTES] = -1,
                                    [RATE] = 1,
                                    [OVER] = 1,
                                    [BEST_COUNTS] = N_BEST,
                                    [BEST_VALUES] = strata_model_all_size(model)};
    return is_slot(kind) ? model->parameters.flat_size : sizes[kind];
}

static strata_status read_item(const strata_model *model, const strata_manifest *from, int kind, state *s, strata_error *err) {
    const strata_manifest_tensor *tensor = strata_manifest_find(from, kinds[kind].name);
    const bool needed = is_slot(kind) ? kind - SLOTS < strata_model_n_slots(model) : kind == SUMS && s->items[POSITION].data;
    const int64_t found = tensor ? strata_shape_elements(tensor->shape) : 0;
    const int64_t n = size_of(model, kind) < 0 ? found : size_of(model, kind);
    if ((is_slot(kind) || !tensor) && !needed) return STRATA_OK;
    /* With another number of replicas, all of them continue from the means. */
    if (kind == OWN && (!strata_strategy_has_own(model->strategy) || found != n)) return STRATA_OK;
    STRATA_TRY(make(s, kind, n, err));
    return strata_manifest_copy(from, kinds[kind].name, kinds[kind].dtype, STRATA_SHAPE(n), s->items[kind].data, err);
}

static strata_status check_callbacks(const state *s, const char *path, strata_error *err) {
    const int64_t n = s->items[CALLBACK_BYTES].n, total = s->items[CALLBACKS].n, *bytes = integers(s, CALLBACK_BYTES);
    int64_t left = total;
    if (!s->items[CALLBACKS].data || !bytes) return STRATA_OK;
    if (n < 1 || n > MOST_WORKERS)
        return strata_fail(err, STRATA_DATA, "%s: has what callbacks of %lld workers keep, which cannot be", path,
                           (long long)n);
    for (int64_t w = 0; w < n && left >= 0; w++) left = bytes[w] < 0 || bytes[w] > left ? -1 : left - bytes[w];
    if (!left) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: what the workers' callbacks keep does not have the lengths that it says", path);
}

static double rate_of(const state *s) {
    return s->items[RATE].data ? *(const double *)s->items[RATE].data : STRATA_SCHEDULED_RATE;
}

static strata_status check_items(const strata_model *model, const state *s, const char *path, strata_error *err) {
    const int64_t *counts = integers(s, COUNTS), *position = integers(s, POSITION), *readers = integers(s, READERS),
                  *best = integers(s, BEST_COUNTS);
    const double rate = rate_of(s);
    if (position && (position[EPOCH_STEPS] < 1 || position[EPOCH_EXAMPLES] < 1))
        return strata_fail(err, STRATA_DATA, "%s: a place within an epoch that cannot be", path);
    if (readers && (*readers < 0 || *readers > INT32_MAX))
        return strata_fail(err, STRATA_DATA, "%s: a number of workers that cannot be", path);
    if (s->items[RATE].data && !(rate >= 0 && rate < 1e6))
        return strata_fail(err, STRATA_DATA, "%s: a learning rate that cannot be", path);
    STRATA_TRY(check_callbacks(s, path, err));
    if (counts[EPOCHS] < (position ? 0 : 1) || counts[EPOCHS] > INT32_MAX || counts[STEPS] < 0 || counts[SCALE_STEPS] < 0)
        return strata_fail(err, STRATA_DATA, "%s: counts of epochs or steps that cannot be", path);
    if (memcmp(&counts[SEED], &model->seed, sizeof model->seed) != 0)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with seed %lld, this is %llu", path,
                           (long long)counts[SEED], (unsigned long long)model->seed);
    if (counts[PRECISION] != (int64_t)model->precision)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with another precision than %s", path,
                           strata_dtype_name(model->precision));
    if (best && (best[BEST_EPOCHS] < 1 || best[BEST_EPOCHS] > counts[EPOCHS]))
        return strata_fail(err, STRATA_DATA, "%s: the best epoch is one that was not run", path);
    return STRATA_OK;
}

static strata_status take(const strata_model *model, const strata_manifest *from, state *s, strata_error *err) {
    const char *training = strata_manifest_find_text(from, STRATA_TRAINING_METADATA);
    STRATA_TRY(check_same(model, from, err));
    STRATA_TRY(take_parameters(model, from, s->parameters, err));
    for (int k = 0; k < N_ITEMS; k++) STRATA_TRY(read_item(model, from, k, s, err));
    STRATA_TRY(check_items(model, s, from->path, err));
    s->training = training ? strdup(training) : NULL;
    return !training || s->training ? STRATA_OK : no_memory(err);
}

/* If the file does not exist, or the folder has no checkpoint, there are no items. */
static strata_status read_state(const strata_model *model, const char *path, state *s, strata_error *err) {
    struct stat info = {0};
    STRATA_FREED char *newest = NULL;
    STRATA_FINISHED(strata_manifest) from = {0};
    if (stat(path, &info) && errno == ENOENT) return STRATA_OK;
    const bool folder = S_ISDIR(info.st_mode);
    STRATA_TRY(folder ? strata_checkpoint_folder_find(path, &from, &newest, err) : strata_manifest_open_file(path, &from, err));
    return folder && !newest ? STRATA_OK : take(model, &from, s, err);
}

/* Sends what rank 0 has read, or its failure, to all workers. */
static strata_status share(const strata_model *model, strata_status status, const char *path, state *s, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    int64_t sizes[N_ITEMS];
    if (workers->n <= 1) return status;
    STRATA_TRY(strata_workers_share_status(workers, status, err, "rank 0 cannot go on from the checkpoint %s", path));
    for (int k = 0; k < N_ITEMS; k++) sizes[k] = s->items[k].data ? s->items[k].n : -1;
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, sizes, N_ITEMS, err));
    for (int k = 0; k < N_ITEMS; k++) {
        if (sizes[k] < 0) continue;
        if (!s->items[k].data) STRATA_TRY(make(s, k, sizes[k], err));
        STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->items[k].data, words_of(k, sizes[k]), err));
    }
    if (sizes[COUNTS] < 0) return STRATA_OK;
    return workers->broadcast(workers, STRATA_DTYPE_F32, s->parameters, strata_model_all_size(model), err);
}

static strata_status put(strata_model *model, state *s, strata_error *err) {
    const int64_t *counts = integers(s, COUNTS), *position = integers(s, POSITION), *best = integers(s, BEST_COUNTS);
    STRATA_TRY(strata_model_write_all(model, s->parameters, err));
    for (int i = 0; i < strata_model_n_slots(model); i++)
        STRATA_TRY(strata_shards_write_slot(model, i, floats(s, SLOTS + i), err));
    const strata_callback_states callbacks = {.n = integers(s, CALLBACK_BYTES) ? (int)s->items[CALLBACK_BYTES].n : 1,
                                              .bytes = integers(s, CALLBACK_BYTES),
                                              .total = s->items[CALLBACKS].n,
                                              .all = s->items[CALLBACKS].data};
    strata_callback_states_give(model, &callbacks);
    free(model->training);
    free(model->continued);
    model->training = NULL;
    model->continued = strata_released(&s->training);
    model->optimizer_steps = counts[STEPS];
    model->rate.own = rate_of(s);
    model->scale.steps = counts[SCALE_STEPS];
    memcpy(&model->scale.value, &counts[SCALE_BITS], sizeof model->scale.value);
    strata_validation_forget(model);
    if (best) {
        model->best = (strata_model_best){.epochs = best[BEST_EPOCHS], .values = s->items[BEST_VALUES].data};
        memcpy(&model->best.loss, &best[BEST_LOSS_BITS], sizeof model->best.loss);
        s->items[BEST_VALUES].data = NULL;
    }
    model->position = (strata_model_position){0};
    if (position) {
        const int64_t *readers = integers(s, READERS);
        model->position = (strata_model_position){position[EPOCH_STEPS], position[EPOCH_EXAMPLES], readers ? *readers : 0};
    }
    for (int64_t i = 0; i < model->metrics.n_sums; i++) model->metrics.sums[i] = position ? (double)floats(s, SUMS)[i] : 0;
    STRATA_TRY(strata_model_write_sums(model, err));
    return s->items[OWN].data ? strata_model_write_own(model, floats(s, OWN), err) : STRATA_OK;
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
    state s = {0};
    *out_epochs = 0;
    *out_over = false;
    STRATA_TRY(strata_model_check_compiled(model, "load_checkpoint", err));
    STRATA_TRY(STRATA_NEW(s.parameters, strata_model_all_size(model), err, "checkpoint: no host memory"));
    strata_status status = model->strategy->workers.rank == 0 ? read_state(model, path, &s, err) : STRATA_OK;
    status = share(model, status, path, &s, err);
    if (!status && integers(&s, COUNTS)) {
        status = put(model, &s, err);
        *out_epochs = status ? 0 : (int)integers(&s, COUNTS)[EPOCHS];
        *out_over = !status && s.items[OVER].data;
    }
    finish(&s);
    return status;
}
