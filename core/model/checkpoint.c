/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: what a model file has, and besides what training needs to go on, in tensors "checkpoint/...": the optimizer's
 * slots, laid out as the parameters are, and counts. A checkpoint is one file, or a folder (checkpoint_folder.h), whose parts
 * may have been written by several tasks. Rank 0 reads it for all workers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/data/format/safetensors.h"
#include "core/model/checkpoint_folder.h"
#include "core/model/model.h"

/* Checkpoints of a folder that stay: this one and the one before. */
enum { KEPT = 2 };

/* The best epoch so far: its own number of epochs, and its loss's bits; there only where there is one, as is what was learned
 * by then. */
enum { BEST_EPOCHS, BEST_LOSS_BITS, N_BEST };
static const char BEST_COUNTS[] = STRATA_CHECKPOINT_PREFIX "best_counts",
                  BEST_VALUES[] = STRATA_CHECKPOINT_PREFIX "best_values";

/* Where in the next epoch training was stopped, and the epoch's sums so far; there only where it was stopped within one. */
enum { EPOCH_STEPS, EPOCH_EXAMPLES, N_POSITION };
static const char POSITION[] = STRATA_CHECKPOINT_PREFIX "position", SUMS[] = STRATA_CHECKPOINT_PREFIX "sums";

/* The learning rate that was set in place of the schedule's, its bits; there only where one was. */
static const char RATE[] = STRATA_CHECKPOINT_PREFIX "learning_rate";

enum { EPOCHS, STEPS, SCALE_STEPS, SCALE_BITS, SEED, PRECISION, N_COUNTS };
static const char COUNTS[] = STRATA_CHECKPOINT_PREFIX "counts";

typedef struct state {
    int n_slots;
    float *parameters; /* (all_size) and states */
    float *slots;      /* (n_slots, flat_size), in the same memory */
    float *sums;       /* (n_sums) of the epoch, in the same memory */
    int64_t counts[N_COUNTS], best_counts[N_BEST], position[N_POSITION];
    float *best_values; /* (all_size); NULL: none */
    double rate;        /* as model->rate.own */
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
}

static float *slot_values(const strata_model *model, const state *s, int slot) {
    return s->slots + slot * model->parameters.flat_size;
}

/* ---- saving ---- */

/* folder: the checkpoint is begun there; NULL: it is a file. path NULL: of another worker than rank 0. */
static strata_status write_state(strata_model *model, state *s, int epochs, const char *path, strata_checkpoint_folder *folder,
                                 strata_error *err) {
    const strata_model_best *best = &model->best;
    strata_named_array extra[STRATA_MAX_OPTIMIZER_SLOTS + 6];
    int n = 0;
    for (int i = 0; i < s->n_slots && !(folder && folder->has_parts); i++) {
        STRATA_TRY(strata_shards_read_slot(model, i, slot_values(model, s, i), err));
        extra[n++] = (strata_named_array){
            strata_checkpoint_slot_name(i),
            strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.flat_size), slot_values(model, s, i))};
    }
    if (!path) return STRATA_OK;
    s->counts[EPOCHS] = epochs;
    s->counts[STEPS] = model->optimizer_steps;
    s->counts[SCALE_STEPS] = model->scale.steps;
    s->counts[PRECISION] = model->precision;
    memcpy(&s->counts[SCALE_BITS], &model->scale.value, sizeof model->scale.value);
    memcpy(&s->counts[SEED], &model->seed, sizeof model->seed);
    extra[n++] = (strata_named_array){COUNTS, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(N_COUNTS), s->counts)};
    if (model->position.steps) {
        STRATA_TRY(strata_model_read_sums(model, err));
        s->position[EPOCH_STEPS] = model->position.steps;
        s->position[EPOCH_EXAMPLES] = model->position.examples;
        for (int64_t i = 0; i < model->metrics.n_sums; i++) s->sums[i] = (float)model->metrics.sums[i];
        extra[n++] = (strata_named_array){POSITION, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(N_POSITION), s->position)};
        extra[n++] =
            (strata_named_array){SUMS, strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->metrics.n_sums), s->sums)};
    }
    int64_t rate_bits;
    memcpy(&rate_bits, &model->rate.own, sizeof rate_bits);
    if (model->rate.own >= 0)
        extra[n++] = (strata_named_array){RATE, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(1), &rate_bits)};
    if (best->epochs) {
        s->best_counts[BEST_EPOCHS] = best->epochs;
        memcpy(&s->best_counts[BEST_LOSS_BITS], &best->loss, sizeof best->loss);
        extra[n++] =
            (strata_named_array){BEST_COUNTS, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(N_BEST), s->best_counts)};
        const strata_shape all = STRATA_SHAPE(strata_model_all_size(model));
        if (best->values)
            extra[n++] = (strata_named_array){BEST_VALUES, strata_array_view(STRATA_DTYPE_F32, all, best->values)};
    }
    return folder ? strata_checkpoint_folder_end(model, path, folder, extra, n, KEPT, err)
                  : strata_model_write(model, path, extra, n, err);
}

static strata_status save_folder(strata_model *model, state *s, int epochs, const char *path, strata_error *err) {
    strata_checkpoint_folder folder;
    STRATA_TRY(strata_checkpoint_folder_begin(model, path, &folder, err));
    const strata_status status = write_state(model, s, epochs, path, &folder, err);
    strata_checkpoint_folder_finish(&folder);
    return status;
}

strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "save_checkpoint", err));
    const bool is_folder = path && strata_checkpoint_is_folder(path);
    const strata_trainer *trainer = model->strategy->trainer;
    if (trainer && trainer->settle && !is_folder) STRATA_TRY(trainer->settle(model, err));
    if (epochs < (model->position.steps ? 0 : 1))
        return strata_fail(err, STRATA_INVALID, "save_checkpoint: epochs is %d; it must be at least 1", epochs);
    state s;
    STRATA_TRY(allocate(model, &s, err));
    const strata_status status =
        is_folder ? save_folder(model, &s, epochs, path, err) : write_state(model, &s, epochs, path, NULL, err);
    finish(&s);
    return status;
}

/* ---- loading ---- */

/* What a checkpoint is read from: a file, or a folder's manifest. */
typedef struct source {
    strata_safetensors file;
    strata_checkpoint_found found;
    bool is_folder;
} source;

static bool has(const source *from, const char *name) {
    return from->is_folder ? strata_manifest_find(&from->found.manifest, name) != NULL
                           : strata_safetensors_find(&from->file, name) != NULL;
}

static strata_status copy(source *from, const char *name, strata_dtype dtype, strata_shape shape, void *out,
                          strata_error *err) {
    return from->is_folder ? strata_manifest_copy(&from->found.reader, name, dtype, shape, out, err)
                           : strata_safetensors_copy(&from->file, name, dtype, shape, out, err);
}

static strata_status copy_parameters(const strata_model *model, source *from, float *out, strata_error *err) {
    if (!from->is_folder) return strata_model_take_parameters(model, &from->file, out, err);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        STRATA_TRY(strata_manifest_copy(&from->found.reader, p->name, STRATA_DTYPE_F32, p->shape,
                                        out + strata_model_place(model, p), err));
    }
    return STRATA_OK;
}

static strata_status check_same(const strata_model *model, const source *from, const char *path, strata_error *err) {
    const char *theirs =
        from->is_folder ? from->found.manifest.model : strata_safetensors_metadata(&from->file, STRATA_MODEL_METADATA);
    char *ours = NULL;
    if (!has(from, COUNTS)) return strata_fail(err, STRATA_DATA, "%s is no checkpoint: there is no \"%s\" in it", path, COUNTS);
    STRATA_TRY(strata_model_to_json(model, &ours, err));
    const bool same = theirs && !strcmp(ours, theirs);
    free(ours);
    if (same) return STRATA_OK;
    return strata_fail(
        err, STRATA_DATA,
        "%s is a checkpoint of another model, optimizer or loss; remove it to begin again, or train as it was made", path);
}

static strata_status take_best(const strata_model *model, source *from, const char *path, state *s, strata_error *err) {
    if (!has(from, BEST_COUNTS)) return STRATA_OK;
    STRATA_TRY(copy(from, BEST_COUNTS, STRATA_DTYPE_I64, STRATA_SHAPE(N_BEST), s->best_counts, err));
    if (s->best_counts[BEST_EPOCHS] < 1 || s->best_counts[BEST_EPOCHS] > s->counts[EPOCHS])
        return strata_fail(err, STRATA_DATA, "%s: the best epoch is one that was not run", path);
    if (!has(from, BEST_VALUES)) return STRATA_OK;
    STRATA_TRY(allocate_best(model, s, err));
    return copy(from, BEST_VALUES, STRATA_DTYPE_F32, STRATA_SHAPE(strata_model_all_size(model)), s->best_values, err);
}

static strata_status take_position(const strata_model *model, source *from, const char *path, state *s, strata_error *err) {
    if (!has(from, POSITION)) return STRATA_OK;
    STRATA_TRY(copy(from, POSITION, STRATA_DTYPE_I64, STRATA_SHAPE(N_POSITION), s->position, err));
    if (s->position[EPOCH_STEPS] < 1 || s->position[EPOCH_EXAMPLES] < 1)
        return strata_fail(err, STRATA_DATA, "%s: a place within an epoch that cannot be", path);
    return copy(from, SUMS, STRATA_DTYPE_F32, STRATA_SHAPE(model->metrics.n_sums), s->sums, err);
}

static strata_status take_rate(source *from, const char *path, state *s, strata_error *err) {
    if (!has(from, RATE)) return STRATA_OK;
    int64_t bits;
    STRATA_TRY(copy(from, RATE, STRATA_DTYPE_I64, STRATA_SHAPE(1), &bits, err));
    memcpy(&s->rate, &bits, sizeof s->rate);
    if (s->rate >= 0 && s->rate < 1e6) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: a learning rate that cannot be", path);
}

static strata_status take(const strata_model *model, source *from, const char *path, state *s, strata_error *err) {
    STRATA_TRY(check_same(model, from, path, err));
    STRATA_TRY(copy_parameters(model, from, s->parameters, err));
    for (int i = 0; i < s->n_slots; i++)
        STRATA_TRY(copy(from, strata_checkpoint_slot_name(i), STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.flat_size),
                        slot_values(model, s, i), err));
    STRATA_TRY(copy(from, COUNTS, STRATA_DTYPE_I64, STRATA_SHAPE(N_COUNTS), s->counts, err));
    STRATA_TRY(take_position(model, from, path, s, err));
    STRATA_TRY(take_rate(from, path, s, err));
    if (s->counts[EPOCHS] < (s->position[EPOCH_STEPS] ? 0 : 1) || s->counts[EPOCHS] > INT32_MAX || s->counts[STEPS] < 0 ||
        s->counts[SCALE_STEPS] < 0)
        return strata_fail(err, STRATA_DATA, "%s: counts of epochs or steps that cannot be", path);
    if (memcmp(&s->counts[SEED], &model->seed, sizeof model->seed) != 0)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with seed %lld, this is %llu", path,
                           (long long)s->counts[SEED], (unsigned long long)model->seed);
    if (s->counts[PRECISION] != (int64_t)model->precision)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with another precision than %s", path,
                           strata_dtype_name(model->precision));
    return take_best(model, from, path, s, err);
}

static void close_source(source *from) {
    strata_checkpoint_folder_close(&from->found);
    strata_safetensors_finish(&from->file);
}

static bool is_there(const state *s) {
    return s->counts[EPOCHS] || s->position[EPOCH_STEPS];
}

/* A file that is not there leaves counts of 0. */
static strata_status read_state(const strata_model *model, const char *path, state *s, strata_error *err) {
    source from = {.is_folder = strata_checkpoint_is_folder(path)};
    if (access(path, F_OK) && errno == ENOENT) return STRATA_OK;
    strata_status status =
        from.is_folder ? strata_checkpoint_folder_open(path, &from.found, err) : strata_safetensors_read(path, &from.file, err);
    const bool none = from.is_folder && !from.found.folder; /* the folder has none yet */
    if (!status && !none) status = take(model, &from, path, s, err);
    close_source(&from);
    return status;
}

/* What rank 0 has read, or that it failed. */
static strata_status share(const strata_model *model, strata_status status, const char *path, state *s, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    if (workers->n <= 1) return status;
    int32_t told = (int32_t)status;
    strata_error lost = {0}; /* err keeps what rank 0 found */
    strata_status sent = workers->broadcast(workers, STRATA_DTYPE_I32, &told, 1, &lost);
    if (status) return status;
    if (sent) return strata_fail(err, sent, "%s", lost.message);
    if (told) return strata_fail(err, (strata_status)told, "rank 0 cannot go on from the checkpoint %s", path);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->counts, N_COUNTS, err));
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->position, N_POSITION, err));
    int64_t rate_bits;
    memcpy(&rate_bits, &s->rate, sizeof rate_bits);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &rate_bits, 1, err));
    memcpy(&s->rate, &rate_bits, sizeof s->rate);
    if (!is_there(s)) return STRATA_OK;
    const int64_t size = strata_model_all_size(model);
    const int64_t n = size + s->n_slots * model->parameters.flat_size + model->metrics.n_sums;
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_F32, s->parameters, n, err));
    int32_t kept = s->best_values != NULL; /* rank 0's */
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, s->best_counts, N_BEST, err));
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I32, &kept, 1, err));
    if (!kept) return STRATA_OK;
    if (!s->best_values) STRATA_TRY(allocate_best(model, s, err));
    return workers->broadcast(workers, STRATA_DTYPE_F32, s->best_values, size, err);
}

static strata_status put(strata_model *model, state *s, strata_error *err) {
    STRATA_TRY(strata_model_write_all(model, s->parameters, err));
    for (int i = 0; i < s->n_slots; i++) STRATA_TRY(strata_shards_write_slot(model, i, slot_values(model, s, i), err));
    model->optimizer_steps = s->counts[STEPS];
    model->rate.own = s->rate;
    model->scale.steps = s->counts[SCALE_STEPS];
    memcpy(&model->scale.value, &s->counts[SCALE_BITS], sizeof model->scale.value);
    strata_validation_forget(model);
    model->best = (strata_model_best){.epochs = s->best_counts[BEST_EPOCHS], .values = s->best_values};
    memcpy(&model->best.loss, &s->best_counts[BEST_LOSS_BITS], sizeof model->best.loss);
    s->best_values = NULL;
    model->position = (strata_model_position){s->position[EPOCH_STEPS], s->position[EPOCH_EXAMPLES]};
    for (int64_t i = 0; i < model->metrics.n_sums; i++) model->metrics.sums[i] = (double)s->sums[i];
    return strata_model_write_sums(model, err);
}

int64_t strata_model_epoch_steps(const strata_model *model) {
    return model->position.steps;
}

strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs, strata_error *err) {
    *out_epochs = 0;
    STRATA_TRY(strata_model_check_compiled(model, "load_checkpoint", err));
    state s;
    STRATA_TRY(allocate(model, &s, err));
    strata_status status = model->strategy->workers.rank == 0 ? read_state(model, path, &s, err) : STRATA_OK;
    status = share(model, status, path, &s, err);
    if (!status && is_there(&s)) status = put(model, &s, err);
    if (!status) *out_epochs = (int)s.counts[EPOCHS];
    finish(&s);
    return status;
}
