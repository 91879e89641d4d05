/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint as a folder: FOLDER/step-000000000120 has the files of one checkpoint and its manifest (manifest.h). It is
 * written under a hidden name and renamed when all of it is on the disk, so a checkpoint is there whole or not at all, and the
 * one before is deleted only afterwards. */
#ifndef STRATA_CORE_MODEL_CHECKPOINT_FOLDER_H
#define STRATA_CORE_MODEL_CHECKPOINT_FOLDER_H

#include "core/model/manifest.h"
#include "core/model/model.h"

/* Of a tensor's name, and of a path, with the NUL. */
enum { STRATA_CHECKPOINT_NAME_BYTES = 512, STRATA_CHECKPOINT_PATH_BYTES = 4096 };

/* One that is written. Zero-initialize. */
typedef struct strata_checkpoint_folder {
    char temporary[STRATA_CHECKPOINT_PATH_BYTES];
    strata_manifest manifest;
    /* Other tasks have written parameters, states and slots. */
    bool has_parts;
} strata_checkpoint_folder;

/* Whether a checkpoint's path names a folder: one that is there, or a name that ends in '/'. */
bool strata_checkpoint_is_folder(const char *path);
/* Begins a checkpoint in the folder, which is made where it is not there. Parts that other tasks have are written now
 * (strata_trainer.write_parts). */
STRATA_MUST_USE strata_status strata_checkpoint_folder_begin(strata_model *model, const char *path,
                                                             strata_checkpoint_folder *folder, strata_error *err);
/* Writes the rest: the model's parameters and states unless others have, and `extra`; then the manifest. The checkpoint has the
 * number of the optimizer's updates. The newest `keep` checkpoints of the folder stay. */
STRATA_MUST_USE strata_status strata_checkpoint_folder_end(strata_model *model, const char *path,
                                                           strata_checkpoint_folder *folder, const strata_named_array *extra,
                                                           int n_extra, int keep, strata_error *err);
/* Frees it, and deletes what was written where it did not come to its end. */
void strata_checkpoint_folder_finish(strata_checkpoint_folder *folder);

/* One that is read: not to be moved. */
typedef struct strata_checkpoint_found {
    strata_manifest manifest;
    strata_manifest_reader reader;
    /* Its own folder; NULL: there is none. */
    char *folder;
} strata_checkpoint_found;

/* Opens the newest checkpoint of the folder whose files are whole: one that is damaged is passed over for the one before.
 * Fails: DATA, as the newest does, where all are damaged. close also after a failure. */
STRATA_MUST_USE strata_status strata_checkpoint_folder_open(const char *path, strata_checkpoint_found *out_found,
                                                            strata_error *err);
void strata_checkpoint_folder_close(strata_checkpoint_found *found); /* a zeroed one is fine */

STRATA_EXPORT_BEGIN
/* "checkpoint/slot_0": the optimizer's slot, (flat_size). */
const char *strata_checkpoint_slot_name(int slot);
/* The length and the SHA-256 of a file. */
STRATA_MUST_USE strata_status strata_checkpoint_hash_file(const char *path, int64_t *out_bytes,
                                                          char out_sha256[STRATA_SHA256_TEXT_BYTES], strata_error *err);
STRATA_EXPORT_END

#endif
