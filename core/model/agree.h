/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing what tasks train, and what a checkpoint was trained on, as lines of text (agree.c). */
#ifndef STRATA_CORE_MODEL_AGREE_H
#define STRATA_CORE_MODEL_AGREE_H

#include "core/model/model.h"

/* strata_model_add_data_terms adds the terms of a dataset that workers read, called `what` in messages. */
STRATA_MUST_USE strata_status strata_model_add_data_terms(strata_text *terms, const strata_dataset *dataset, const char *what,
                                                          strata_auto_shard policy, uint64_t seed, strata_error *err);
/* The terms are lines "name\tvalue" that describe everything from which a fit computes: the version, model, notes,
 * options, frozen layers and data. The caller frees them. */
STRATA_MUST_USE strata_status strata_model_terms(const strata_model *model, const strata_dataset *dataset,
                                                 const strata_fit_options *opts, char **out_text, strata_error *err);
/* Compares two tasks' terms. Fails with INVALID, the first difference and the names of both tasks. */
STRATA_MUST_USE strata_status strata_model_compare_terms(const char *own, const char *own_task, const char *other,
                                                         const char *other_task, strata_error *err);
/* Compares the terms of all workers; every worker must call it. Fails with the same INVALID on all workers. */
STRATA_MUST_USE strata_status strata_workers_compare_terms(const strata_workers *workers, const char *own, strata_error *err);
/* Checks that all workers are about to fit the same model with the same data in the same way, as
 * strata_workers_compare_terms. */
STRATA_MUST_USE strata_status strata_model_agree(const strata_model *model, const strata_dataset *dataset,
                                                 const strata_fit_options *opts, strata_error *err);

/* ---- the description of a training's data and options, which is stored in its checkpoints ---- */

/* The key of the description in the metadata of a checkpoint. */
#define STRATA_TRAINING_METADATA "strata.training"
/* What a user can do about a checkpoint of a training with other data or options. */
#define STRATA_TRAINING_ADVICE                                                                                               \
    "to begin again, give another checkpoint or remove this one; to train its model further on purpose, load it as a model " \
    "(strata train --from)"

/* The description of the model's training: of the fit that runs, of the last one, or of the checkpoint that was loaded. NULL:
 * there is none. It is made when it is needed for the first time, from model->fitted. Valid until the next fit. */
STRATA_MUST_USE strata_status strata_training_of(strata_model *model, const char **out_text, strata_error *err);
/* Fails with DATA, naming the first difference, if the fit that has begun cannot continue the training whose checkpoint was
 * loaded. Another batch can, also within an epoch, since examples are counted. */
STRATA_MUST_USE strata_status strata_training_compare(strata_model *model, strata_error *err);

#endif
