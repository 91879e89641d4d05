/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation during a fit: the evaluation after an epoch, and the decisions that depend on its loss: which epoch is the best,
 * and whether training ends. The training steps do not depend on it. */
#include <math.h>

#include "core/data/batches.h"
#include "core/model/data.h"
#include "core/model/loop.h"

void strata_validation_forget(strata_model *model) {
    free(model->best.values);
    model->best = (strata_model_best){0};
}

static strata_status check(const strata_model *model, const strata_fit_options *opts, strata_error *err) {
    const char *verb = "fit, validation";
    if (opts->patience < 0)
        return strata_fail(err, STRATA_INVALID, "fit: patience is %d; it must be at least 1, or 0 for none", opts->patience);
    if (!(opts->min_delta >= 0 && isfinite(opts->min_delta)))
        return strata_fail(err, STRATA_INVALID, "fit: min_delta is %g; it must be at least 0", opts->min_delta);
    if (opts->validation) {
        strata_model_feed ignored;
        STRATA_TRY(strata_model_check_dataset(model, opts->validation, true, verb, &ignored, err));
        return strata_batches_check_size(opts->validation, verb, err);
    }
    if (!opts->patience && !opts->restore_best) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "fit: %s needs the loss on validation data, and there are none",
                       opts->patience ? "patience" : "restore_best");
}

strata_status strata_validation_begin(strata_model *model, const strata_fit_options *opts, strata_error *err) {
    STRATA_TRY(check(model, opts, err));
    /* If the parameters of the best epoch were not saved, they cannot be restored, so only later epochs are compared. */
    if (!opts->first_epoch || !opts->validation || (opts->restore_best && !model->best.values)) strata_validation_forget(model);
    if (!opts->restore_best || model->best.values) return STRATA_OK;
    return STRATA_NEW(model->best.values, strata_model_all_size(model), err, "fit: no host memory for the best parameters");
}

strata_status strata_validation_take(strata_model *model, const strata_fit_options *opts, int epoch,
                                     const strata_metrics *metrics, bool *out_stop, strata_error *err) {
    strata_model_best *best = &model->best;
    const double below = best->epochs ? best->loss - opts->min_delta : INFINITY;
    if (metrics->loss < below) { /* false for NaN */
        if (best->values) STRATA_TRY(strata_model_read_all(model, best->values, err));
        best->epochs = epoch + 1;
        best->loss = metrics->loss;
    }
    if (opts->patience && epoch + 1 - best->epochs >= opts->patience) *out_stop = true;
    return STRATA_OK;
}

bool strata_validation_is_over(const strata_model *model, const strata_fit_options *opts) {
    const int64_t best = model->best.epochs;
    return opts->validation && opts->patience && best && !opts->first_step && opts->first_epoch - best >= opts->patience;
}

strata_status strata_validation_run(strata_model *model, const strata_fit_options *opts, int epoch, strata_metrics *out_metrics,
                                    bool *out_stop, strata_error *err) {
    if (!opts->validation) return STRATA_OK;
    STRATA_TRY(strata_model_evaluate(model, opts->validation, opts->batch, out_metrics, err));
    /* All workers make the same decisions. */
    STRATA_TRY(strata_workers_share_double(&model->strategy->workers, &out_metrics->loss, err));
    return strata_validation_take(model, opts, epoch, out_metrics, out_stop, err);
}

strata_status strata_validation_restore(strata_model *model, const strata_fit_options *opts, strata_error *err) {
    return opts->restore_best && model->best.epochs ? strata_model_write_all(model, model->best.values, err) : STRATA_OK;
}
