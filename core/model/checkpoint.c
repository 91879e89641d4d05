/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a model file that has besides what training needs to go on, in tensors "checkpoint/...": the optimizer's slots, laid out as the parameters
 * are, and counts. Rank 0 reads it for all workers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/data/safetensors.h"
#include "core/model/model.h"

enum { EPOCHS, STEPS, SCALE_STEPS, SCALE_BITS, SEED, PRECISION, N_COUNTS };
static const char COUNTS[] = STRATA_CHECKPOINT_PREFIX "counts";
static const char *const slot_names[STRATA_MAX_OPTIMIZER_SLOTS] = {
    STRATA_CHECKPOINT_PREFIX "slot_0", STRATA_CHECKPOINT_PREFIX "slot_1", STRATA_CHECKPOINT_PREFIX "slot_2"};

typedef struct state {
    int n_slots;
    float *parameters; /* (all_size) and states */
    float *slots;      /* (n_slots, flat_size), in the same memory */
    int64_t counts[N_COUNTS];
} state;

static strata_status allocate(const strata_model *model, state *out, strata_error *err) {
    const int64_t size = strata_model_all_size(model);
    *out = (state){.n_slots = model->optimizer_kind->n_slots(&model->optimizer)};
    out->parameters = calloc((size_t)(size + out->n_slots * model->flat_size), sizeof *out->parameters);
    if (!out->parameters) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    out->slots = out->parameters + size;
    return STRATA_OK;
}

static strata_array slot_view(const strata_model *model, const state *s, int slot) {
    return strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->flat_size), s->slots + slot * model->flat_size);
}

/* ---- saving ---- */

static strata_status write_state(strata_model *model, state *s, int epochs, const char *path, strata_error *err) {
    const strata_model_replica *root = &model->replicas[strata_strategy_root(model->strategy)];
    strata_named_array extra[STRATA_MAX_OPTIMIZER_SLOTS + 1];
    for (int i = 0; i < s->n_slots; i++) {
        extra[i] = (strata_named_array){slot_names[i], slot_view(model, s, i)};
        STRATA_TRY(strata_variable_get(root->slots[i], &extra[i].array, err));
    }
    s->counts[EPOCHS] = epochs;
    s->counts[STEPS] = model->optimizer_steps;
    s->counts[SCALE_STEPS] = model->scale_steps;
    s->counts[PRECISION] = model->precision;
    memcpy(&s->counts[SCALE_BITS], &model->loss_scale, sizeof model->loss_scale);
    memcpy(&s->counts[SEED], &model->seed, sizeof model->seed);
    extra[s->n_slots] = (strata_named_array){COUNTS, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(N_COUNTS), s->counts)};
    return strata_model_write(model, path, extra, s->n_slots + 1, err);
}

strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "save_checkpoint", err));
    if (epochs < 1) return strata_fail(err, STRATA_INVALID, "save_checkpoint: epochs is %d; it must be at least 1", epochs);
    state s;
    STRATA_TRY(allocate(model, &s, err));
    const strata_status status = write_state(model, &s, epochs, path, err);
    free(s.parameters);
    return status;
}

/* ---- loading ---- */

static strata_status check_same(const strata_model *model, const strata_safetensors *file, const char *path,
                                strata_error *err) {
    const char *theirs = strata_safetensors_metadata(file, STRATA_MODEL_METADATA);
    char *ours = NULL;
    if (!strata_safetensors_find(file, COUNTS))
        return strata_fail(err, STRATA_DATA, "%s is no checkpoint: there is no \"%s\" in it", path, COUNTS);
    STRATA_TRY(strata_model_to_json(model, &ours, err));
    const bool same = theirs && !strcmp(ours, theirs);
    free(ours);
    if (same) return STRATA_OK;
    return strata_fail(
        err, STRATA_DATA,
        "%s is a checkpoint of another model, optimizer or loss; remove it to begin again, or train as it was made", path);
}

static strata_status take(const strata_model *model, const strata_safetensors *file, const char *path, state *s,
                          strata_error *err) {
    STRATA_TRY(check_same(model, file, path, err));
    STRATA_TRY(strata_model_take_parameters(model, file, s->parameters, err));
    for (int i = 0; i < s->n_slots; i++)
        STRATA_TRY(strata_safetensors_copy(file, slot_names[i], STRATA_DTYPE_F32, STRATA_SHAPE(model->flat_size),
                                           s->slots + i * model->flat_size, err));
    STRATA_TRY(strata_safetensors_copy(file, COUNTS, STRATA_DTYPE_I64, STRATA_SHAPE(N_COUNTS), s->counts, err));
    if (s->counts[EPOCHS] < 1 || s->counts[EPOCHS] > INT32_MAX || s->counts[STEPS] < 0 || s->counts[SCALE_STEPS] < 0)
        return strata_fail(err, STRATA_DATA, "%s: counts of epochs or steps that cannot be", path);
    if (memcmp(&s->counts[SEED], &model->seed, sizeof model->seed) != 0)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with seed %lld, this is %llu", path,
                           (long long)s->counts[SEED], (unsigned long long)model->seed);
    if (s->counts[PRECISION] != (int64_t)model->precision)
        return strata_fail(err, STRATA_DATA, "%s: the checkpoint was made with another precision than %s", path,
                           strata_dtype_name(model->precision));
    return STRATA_OK;
}

/* A file that is not there leaves counts of 0. */
static strata_status read_state(const strata_model *model, const char *path, state *s, strata_error *err) {
    strata_safetensors file = {0};
    if (access(path, F_OK) && errno == ENOENT) return STRATA_OK;
    STRATA_TRY(strata_safetensors_read(path, &file, err));
    const strata_status status = take(model, &file, path, s, err);
    strata_safetensors_finish(&file);
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
    if (!s->counts[EPOCHS]) return STRATA_OK;
    return workers->broadcast(workers, STRATA_DTYPE_F32, s->parameters,
                              strata_model_all_size(model) + s->n_slots * model->flat_size, err);
}

static strata_status put(strata_model *model, const state *s, strata_error *err) {
    const strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->flat_size), s->parameters);
    const strata_array states =
        strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->state_size), s->parameters + model->flat_size);
    for (int r = 0; r < model->strategy->n_devices; r++) {
        const strata_model_replica *own = &model->replicas[r];
        STRATA_TRY(strata_variable_set(own->flat, &flat, err));
        if (own->state) STRATA_TRY(strata_variable_set(own->state, &states, err));
        for (int i = 0; i < s->n_slots && strata_strategy_updates(model->strategy, r); i++) {
            const strata_array slot = slot_view(model, s, i);
            STRATA_TRY(strata_variable_set(own->slots[i], &slot, err));
        }
    }
    model->optimizer_steps = s->counts[STEPS];
    model->scale_steps = s->counts[SCALE_STEPS];
    memcpy(&model->loss_scale, &s->counts[SCALE_BITS], sizeof model->loss_scale);
    return STRATA_OK;
}

strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs, strata_error *err) {
    *out_epochs = 0;
    STRATA_TRY(strata_model_check_compiled(model, "load_checkpoint", err));
    state s;
    STRATA_TRY(allocate(model, &s, err));
    strata_status status = model->strategy->workers.rank == 0 ? read_state(model, path, &s, err) : STRATA_OK;
    status = share(model, status, path, &s, err);
    if (!status && s.counts[EPOCHS]) status = put(model, &s, err);
    if (!status) *out_epochs = (int)s.counts[EPOCHS];
    free(s.parameters);
    return status;
}
