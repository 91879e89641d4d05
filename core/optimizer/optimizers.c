/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of optimizers, and functions that several optimizers use. */
#include <math.h>
#include <string.h>

#include "core/optimizer/optimizer.h"

static const strata_optimizer_kind *const kinds[] = {
#define STRATA_OPTIMIZER(name) &strata_optimizer_##name,
#include "core/optimizer/optimizers.def"

#undef STRATA_OPTIMIZER
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

strata_status strata_optimizer_find(const char *name, const strata_optimizer_kind **out_kind, strata_error *err) {
    char names[256] = "";
    for (int i = 0; i < N_KINDS; i++) {
        if (!strcmp(kinds[i]->name, name)) {
            *out_kind = kinds[i];
            return STRATA_OK;
        }
        if (i) strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, kinds[i]->name, sizeof names - strlen(names) - 1);
    }
    return strata_fail(err, STRATA_INVALID, "there is no optimizer \"%s\"; there are: %s", name, names);
}

double strata_optimizer_default_rate(const char *name) {
    const strata_optimizer_kind *kind = NULL;
    return strata_optimizer_find(name, &kind, NULL) ? 0 : kind->learning_rate;
}

static strata_status check_clipping(const strata_optimizer *settings, strata_error *err) {
    const struct {
        const char *name;
        double value;
    } clips[] = {{"clip_value", settings->clip_value},
                 {"clip_norm", settings->clip_norm},
                 {"clip_global_norm", settings->clip_global_norm}};
    int given = 0;
    for (int i = 0; i < 3; i++) {
        if (!(clips[i].value >= 0 && isfinite(clips[i].value)))
            return strata_fail(err, STRATA_INVALID, "%s: %s is %g; it must be above 0, or 0 for none", settings->name,
                               clips[i].name, clips[i].value);
        given += clips[i].value > 0;
    }
    if (given <= 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "%s: at most one of clip_value, clip_norm and clip_global_norm can be given; %d are", settings->name,
                       given);
}

/* Sets numbers that are not given to their defaults, and checks all of them. */
static strata_status choose_numbers(const strata_optimizer_kind *kind, strata_optimizer *settings, strata_error *err) {
    for (const strata_optimizer_number *n = kind->numbers; n->name; n++) {
        double *value = (double *)(void *)((char *)settings + n->offset);
        *value = strata_number_or(*value, n->otherwise);
        if (*value >= 0 && isfinite(*value) && (*value < 1 || !n->share)) continue;
        return strata_fail(err, STRATA_INVALID, "%s: %s is %g; it must be at least 0%s", kind->name, n->name, *value,
                           n->share ? " and below 1" : "");
    }
    return STRATA_OK;
}

int strata_optimizer_momentum_slots(const strata_optimizer *settings) {
    return settings->momentum > 0;
}

int strata_optimizer_n_slots(const strata_optimizer_kind *kind, const strata_optimizer *settings) {
    return kind->n_slots + (kind->more_slots ? kind->more_slots(settings) : 0);
}

strata_status strata_optimizer_check(strata_optimizer *settings, const strata_optimizer_kind **out_kind, strata_error *err) {
    const strata_optimizer_kind *kind = NULL;
    STRATA_TRY(strata_optimizer_find(settings->name, &kind, err));
    settings->name = kind->name;
    settings->learning_rate = strata_number_or(settings->learning_rate, kind->learning_rate);
    if (!(settings->learning_rate >= 0 && settings->learning_rate < 1e6))
        return strata_fail(err, STRATA_INVALID, "%s: learning_rate is %g; it must be at least 0 and below 1e6", kind->name,
                           settings->learning_rate);
    STRATA_TRY(strata_schedule_check(&settings->schedule, err));
    STRATA_TRY(check_clipping(settings, err));
    if (settings->gradient_accumulation_steps < 0 || settings->gradient_accumulation_steps > STRATA_MOST_ACCUMULATED)
        return strata_fail(err, STRATA_INVALID, "%s: gradient_accumulation_steps is %lld; it must be 1..%d", kind->name,
                           (long long)settings->gradient_accumulation_steps, STRATA_MOST_ACCUMULATED);
    STRATA_TRY(choose_numbers(kind, settings, err));
    if (kind->check) STRATA_TRY(kind->check(settings, err));
    *out_kind = kind;
    return STRATA_OK;
}

strata_optimizer strata_optimizer_with_rate(const strata_optimizer *settings, double rate) {
    strata_optimizer changed = *settings;
    if (rate < 0) return changed;
    changed.learning_rate = rate;
    changed.schedule = (strata_schedule){0};
    return changed;
}

void strata_optimizer_step(const strata_optimizer_kind *kind, const strata_optimizer *settings, int64_t t, float *out_words) {
    double words[STRATA_STEP_WORDS] = {0};
    double rate = strata_schedule_rate(&settings->schedule, settings->learning_rate, t - 1);
    words[STRATA_STEP_LEARNING_RATE] = words[STRATA_STEP_PLAIN_RATE] = rate;
    words[STRATA_STEP_SHARE] = 1;
    if (kind->fill_step) kind->fill_step(settings, t, words);
    for (int i = 0; i < STRATA_STEP_WORDS; i++) out_words[i] = (float)words[i];
}
