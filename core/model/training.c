/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a training's data and options, which is stored in its checkpoints. A checkpoint that is continued with
 * other data would train a model that nobody described, and its epoch would go on at the wrong example. The description has the
 * form of the terms that workers compare (agree.c). Its first term is the batch, which may change. */
#include "core/model/training.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/data/describe.h"
#include "core/model/agree.h"

/* Of each array of the data, up to BLOCKS hashes of HASHED_BYTES bytes in all are stored, so that a description takes no longer
 * than a few steps, and a checkpoint stays small. All examples of small data are hashed. */
enum { HASHED_BYTES = 1 << 18, BLOCKS = 32 };
static const char BATCH[] = "batch";

static strata_status describe(const strata_dataset *dataset, const strata_fit_options *opts, char **out_text,
                              strata_error *err) {
    const strata_describe_options data = {
        .what = "training data", .rows = true, .n_blocks = BLOCKS, .most_bytes = HASHED_BYTES};
    strata_text text = {0};
    strata_text_add_term(&text, BATCH, "%" PRId64, opts->batch);
    strata_text_add_term(&text, "number of examples of the training data", "%" PRId64, strata_dataset_size(dataset));
    strata_text_add_term(&text, "shuffling", "%s", opts->no_shuffle ? "off" : "on");
    if (!opts->no_shuffle) strata_text_add_term(&text, "seed of the shuffles", "%" PRIu64, opts->seed);
    strata_text_add_term(&text, "number of steps an epoch may have", "%" PRId64, opts->steps_per_epoch);
    strata_model_add_class_weights(&text, opts);
    const strata_status status = strata_dataset_describe(dataset, &data, &text, err);
    if (!status) return strata_text_take(&text, out_text, NULL, err);
    strata_text_finish(&text);
    return status;
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
    int64_t batch = 0;
    const bool known = model->continued && strata_terms_find(model->continued, BATCH, &batch) && batch > 0;
    return known ? batch : 0;
}

strata_status strata_training_compare(strata_model *model, strata_error *err) {
    char difference[700];
    const char *now = NULL, *before = model->continued ? behind_batch(model->continued) : NULL;
    STRATA_TRY(strata_training_of(model, &now, err));
    if (!before || !strata_terms_differ(before, "in the checkpoint", behind_batch(now), "now", difference, sizeof difference))
        return STRATA_OK;
    return strata_fail(err, STRATA_DATA,
                       "fit: the checkpoint is of a training with other data or options: %s; " STRATA_TRAINING_ADVICE,
                       difference);
}
