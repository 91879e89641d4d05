/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate of a step: the schedule's, or one that was set in its place. */
#include <string.h>

#include "core/model/model.h"

/* The optimizer's settings, with the rate that was set as a constant. */
static strata_optimizer settings_of(const strata_model *model) {
    strata_optimizer settings = model->optimizer;
    if (model->rate.own < 0) return settings;
    settings.learning_rate = model->rate.own;
    settings.schedule = (strata_schedule){0};
    return settings;
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
    if (model->strategy->trainer)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "set_learning_rate: the servers of %s make the updates; give the optimizer a schedule",
                           strata_strategy_name(model->strategy));
    if (model->rate.locked)
        return strata_fail(err, STRATA_INVALID,
                           "set_learning_rate: the next steps were submitted already; set the rate when epoch_end is true, or "
                           "give fit wait_each_step, with which it may be set after each step");
    model->rate.own = rate;
    return STRATA_OK;
}

strata_status strata_model_share_rate(strata_model *model, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    int64_t bits;
    if (!strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    memcpy(&bits, &model->rate.own, sizeof bits);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &bits, 1, err));
    memcpy(&model->rate.own, &bits, sizeof bits);
    return STRATA_OK;
}
