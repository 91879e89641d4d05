/* SPDX-License-Identifier: Apache-2.0
 *
 * The function by which a program interrupts long calls of a model (strata_model_set_poll). */
#include "core/model/fit.h"

static const double SECONDS_BETWEEN_CALLS = 0.05;

void strata_model_set_poll(strata_model *model, strata_poll_callback poll, void *user) {
    model->poll.call = poll;
    model->poll.user = user;
}

strata_status strata_model_poll(strata_model *model, strata_error *err) {
    if (!model->poll.call) return STRATA_OK;
    const double now = strata_fit_seconds();
    if (now - model->poll.last < SECONDS_BETWEEN_CALLS) return STRATA_OK;
    model->poll.last = now;
    return model->poll.call(model->poll.user, err);
}
