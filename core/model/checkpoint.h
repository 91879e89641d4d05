/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a copy in host memory of everything that is needed to continue a training (checkpoint.c), and the folder with
 * the newest checkpoints, which a thread writes while training continues (checkpoint_folder.c). */
#ifndef STRATA_CORE_MODEL_CHECKPOINT_H
#define STRATA_CORE_MODEL_CHECKPOINT_H

#include "core/model/manifest.h"
#include "core/model/model.h"

/* ---- callbacks.c ---- */

/* The states of the callbacks of n workers, concatenated in rank order. If n is 0, there is no state. */
typedef struct strata_callback_states {
    int n;
    /* [n] The number of bytes of each worker; NULL: there is one worker. */
    int64_t *bytes;
    int64_t total;
    /* (total) The states. */
    uint8_t *all;
} strata_callback_states;
/* Copies the state of this worker. gather: copies the states of all workers, all of which must then call it. */
STRATA_MUST_USE strata_status strata_callback_states_take(const strata_model *model, bool gather, strata_callback_states *out,
                                                          strata_error *err);
/* Restores the state of the model's callbacks. If the states were written by as many workers as there are now, each
 * worker restores its own, else that of rank 0. Callbacks whose state has another size are not changed. */
void strata_callback_states_give(const strata_model *model, const strata_callback_states *states);
void strata_callback_states_finish(strata_callback_states *states);

/* ---- checkpoint.c ---- */

/* The part of a checkpoint that one worker writes. Rank 0 writes the parameters, the states and the counts. Without
 * shards over workers, it also writes all slots of the optimizer; with them, each worker writes its part of the slots. */
typedef struct strata_checkpoint strata_checkpoint;
typedef enum strata_checkpoint_scope {
    /* Everything that the worker writes. With shards over workers, all workers must take their parts at once, because of
     * the slots. */
    STRATA_CHECKPOINT_ALL,
    /* The same, as the last checkpoint of the training. */
    STRATA_CHECKPOINT_LAST,
    /* Only this worker's part of the slots. */
    STRATA_CHECKPOINT_SHARDS,
    /* Everything except for parameters, states and slots, which other tasks write (strata_trainer.write_parts). */
    STRATA_CHECKPOINT_COUNTS,
    /* Only what a model file has. */
    STRATA_CHECKPOINT_MODEL
} strata_checkpoint_scope;
/* Copies the model's state. `epochs`, together with the model's position, is the progress of the training. callbacks: the
 * states that the worker stores. */
STRATA_MUST_USE strata_status strata_checkpoint_take(strata_model *model, int epochs, strata_checkpoint_scope scope,
                                                     const strata_callback_states *callbacks,
                                                     strata_checkpoint **out_checkpoint, strata_error *err);
/* The name of the tensor with a slot of the optimizer, (flat_size): "checkpoint/slot_0". */
const char *strata_checkpoint_slot_name(int slot);
void strata_checkpoint_destroy(strata_checkpoint *checkpoint); /* NULL is fine */
STRATA_OWNER(strata_checkpoint)
/* Writes a safetensors file; rank 0's is a model file. check: reads the file before it gets its name; out_sha256, out_bytes;
 * NULL: they are not needed. */
STRATA_MUST_USE strata_status strata_checkpoint_write(const strata_checkpoint *checkpoint, const char *path,
                                                      const strata_file_check *check, char out_sha256[STRATA_SHA256_TEXT_BYTES],
                                                      int64_t *out_bytes, strata_error *err);
/* The manifest of rank 0's checkpoint, with the model and its texts, to which the caller adds files. strata_checkpoint_describe
 * then adds all tensors; the workers' ranks are the indices of their files. */
strata_manifest *strata_checkpoint_manifest(strata_checkpoint *checkpoint);
STRATA_MUST_USE strata_status strata_checkpoint_describe(strata_checkpoint *checkpoint, strata_error *err);

/* ---- checkpoint_folder.c ---- */

/* A folder has the checkpoints step-000000000120, each a folder with manifest.json and part-0.safetensors, part-1... of the
 * workers. One that is being written is called .writing-step-..., and one that is being removed .removing-step-... */
typedef struct strata_checkpoint_folder strata_checkpoint_folder;
/* All workers of a fit call it. Creates the folder if it does not exist, locks it, and removes what a killed job has left
 * unfinished. Damaged checkpoints that are newer than the model are renamed. Fails: INVALID for valid checkpoints that are
 * newer than the model, which would be mixed with those of this training; UNAVAILABLE if another job has the lock. */
STRATA_MUST_USE strata_status strata_checkpoint_folder_open(strata_model *model, const strata_checkpoint_options *opts,
                                                            strata_checkpoint_folder **out_folder, strata_error *err);
/* Whether a checkpoint must be made now. epoch_end: an epoch has just ended. All workers get the same answer if it depends only
 * on the count of steps. */
bool strata_checkpoint_folder_due(const strata_checkpoint_folder *folder, bool epoch_end);
/* Whether the model has made updates since the newest checkpoint. */
bool strata_checkpoint_folder_is_new(const strata_checkpoint_folder *folder);
/* Whether all workers take part in a save, so that they must agree on the time. */
bool strata_checkpoint_folder_is_shared(const strata_checkpoint_folder *folder);
/* Copies the state of the training; a thread then writes the files. Waits for the previous save before. With a trainer
 * (strata_trainer), other tasks write their parts before this returns. A failure of the previous save is reported as a
 * warning. */
STRATA_MUST_USE strata_status strata_checkpoint_folder_save(strata_checkpoint_folder *folder, int epochs, strata_error *err);
/* Waits for the thread, and unlocks the folder; NULL is fine. */
STRATA_MUST_USE strata_status strata_checkpoint_folder_close(strata_checkpoint_folder *folder, strata_error *err);

/* Opens the newest valid checkpoint in the folder. *out_path: its folder, which the caller frees after the manifest; NULL:
 * there is none. Fails: DATA if there are checkpoints but all are damaged, with the damage of the newest one; UNSUPPORTED for
 * one of a newer version. */
STRATA_MUST_USE strata_status strata_checkpoint_folder_find(const char *folder, strata_manifest *out_manifest, char **out_path,
                                                            strata_error *err);

/* ---- the contents of files ---- */

#define STRATA_CHECKPOINT_PREFIX "checkpoint/" /* the names of tensors that are not parameters begin with this */
/* As strata_model_load_checkpoint. *out_over: the file is the last checkpoint of a training that has ended. */
STRATA_MUST_USE strata_status strata_checkpoint_load(strata_model *model, const char *path, int *out_epochs, bool *out_over,
                                                     strata_error *err);
/* Takes the notes among the texts of a file. */
STRATA_MUST_USE strata_status strata_model_read_notes(strata_model *model, const strata_manifest *file, strata_error *err);

#endif
