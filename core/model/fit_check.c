/* SPDX-License-Identifier: Apache-2.0
 *
 * From time to time a fit compares its devices with the reference, since a failing card may compute wrongly without reporting
 * an error. */
#include "core/model/fit.h"

enum { STEPS_BETWEEN_CHECKS = 10000 };
/* The largest share of the time that checks take, unless the caller sets how often there is one. */
static const double CHECKS_SHARE = 1e-3;

static int64_t steps_between(const strata_fit *f) {
    return f->opts.check_every ? f->opts.check_every : STEPS_BETWEEN_CHECKS;
}

bool strata_fit_is_check_due(strata_fit *f) {
    if (steps_between(f) < 0) return false;
    if (!f->next_check) f->next_check = steps_between(f);
    if (f->history.n_steps < f->next_check) return false;
    return f->opts.check_every || f->check_seconds <= CHECKS_SHARE * (strata_fit_seconds() - f->last_check);
}

strata_status strata_fit_check_devices(strata_fit *f, const strata_fit_run *step, strata_error *err) {
    if (!f->check_now) return STRATA_OK;
    f->check_now = false;
    const double began = strata_fit_seconds();
    const int64_t n = f->history.n_steps;
    const uint32_t random = (uint32_t)n * 2654435761u ^ (uint32_t)f->opts.seed;
    for (int i = 0; i < step->program->n_parts; i++)
        if (step->program->parts[i].n)
            STRATA_TRY(strata_executable_recheck(step->program->parts[i].executable, step->slot, random + (uint32_t)i, err));
    f->next_check = n + steps_between(f);
    f->last_check = strata_fit_seconds();
    f->check_seconds = f->last_check - began;
    return STRATA_OK;
}
