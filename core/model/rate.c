/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate of a step: that of the schedule, or the one that a program or a callback has set instead. */
#include "core/model/data.h"

static strata_optimizer settings_of(const strata_model *model) {
    return strata_optimizer_with_rate(&model->optimizer, model->rate.own);
}

void strata_model_step_words(const strata_model *model, int64_t t, float *words) {
    const strata_optimizer settings = settings_of(model);
    strata_optimizer_step(model->optimizer_kind, &settings, t, words);
}

double strata_model_learning_rate(const strata_model *model) {
    const strata_optimizer settings = settings_of(model);
    return model->trains ? strata_schedule_rate(&settings.schedule, settings.learning_rate, model->optimizer_steps) : 0;
}

strata_status strata_model_set_learning_rate(strata_model *model, double rate, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "set_learning_rate", err));
    if (rate != STRATA_SCHEDULED_RATE && !(rate >= 0 && rate < 1e6))
        return strata_fail(err, STRATA_INVALID,
                           "set_learning_rate: the rate is %g; it must be at least 0 and below 1e6, or STRATA_SCHEDULED_RATE",
                           rate);
    if (model->rate.locked)
        return strata_fail(err, STRATA_INVALID,
                           "set_learning_rate: the next steps were submitted already; set the rate when epoch_end is true, or "
                           "give fit wait_each_step, with which it may be set after each step");
    model->rate.own = rate;
    return STRATA_OK;
}

strata_status strata_model_share_rate(strata_model *model, strata_error *err) {
    return strata_workers_share_double(&model->strategy->workers, &model->rate.own, err);
}
