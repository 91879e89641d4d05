/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates as functions of the number of the step, with the formulas of strata/optimizers.h. The host computes them
 * in double. A new schedule is a function and a row in this file. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/optimizer/optimizer.h"

static double constant(const strata_schedule *s, double rate, int64_t t) {
    (void)s, (void)t;
    return rate;
}

static double step(const strata_schedule *s, double rate, int64_t t) {
    for (int i = 0; i < s->boundaries.n && (double)t > s->boundaries.values[i]; i++) rate = s->values.values[i];
    return rate;
}

static double exponential(const strata_schedule *s, double rate, int64_t t) {
    double power = (double)t / (double)s->steps;
    return rate * pow(s->factor, s->staircase ? floor(power) : power);
}

static double cosine(const strata_schedule *s, double rate, int64_t t) {
    double done = t < s->steps ? (double)t / (double)s->steps : 1, last = rate * s->end;
    return last + (rate - last) * (1 + cos(3.14159265358979323846 * done)) / 2;
}

static double polynomial(const strata_schedule *s, double rate, int64_t t) {
    double steps = (double)s->steps, at = (double)t;
    if (s->cycle)
        steps *= t ? ceil(at / steps) : 1;
    else if (at > steps)
        at = steps;
    return s->end + (rate - s->end) * pow(1 - at / steps, strata_number_or(s->power, 1));
}

#define NUMBER(field, least, most) \
    { #field, STRATA_OPTION_NUMBER, offsetof(strata_schedule, field), least, most, false }
#define FLAG(field) \
    { #field, STRATA_OPTION_BOOL, offsetof(strata_schedule, field), 0, 0, false }
#define COUNT(field, least) \
    { #field, STRATA_OPTION_INT, offsetof(strata_schedule, field), least, 1e15, false }
#define LIST(field, most) \
    { #field, STRATA_OPTION_NUMBERS, offsetof(strata_schedule, field), 0, most, true }
/* The options of every schedule, besides its own. */
#define WARM_UP COUNT(warmup_steps, 0), NUMBER(warmup_from, 0, 1e6), COUNT(replicas, 1)

static const struct {
    const char *name;
    double (*rate)(const strata_schedule *s, double rate, int64_t t);
    bool needs_steps;
    strata_option options[9];
} schedules[] = {
    {"constant", constant, false, {WARM_UP}},
    {"step", step, false, {LIST(boundaries, 1e15), LIST(values, 1e6), WARM_UP}},
    {"exponential", exponential, true, {COUNT(steps, 1), NUMBER(factor, 0, 1e6), FLAG(staircase), WARM_UP}},
    {"cosine", cosine, true, {COUNT(steps, 1), NUMBER(end, 0, 1e6), WARM_UP}},
    {"polynomial", polynomial, true, {COUNT(steps, 1), NUMBER(end, 0, 1e6), NUMBER(power, 0, 1e3), FLAG(cycle), WARM_UP}},
};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

static int find(const char *name) {
    for (int i = 0; i < N_SCHEDULES; i++)
        if (!strcmp(schedules[i].name, name)) return i;
    return -1;
}

strata_status strata_schedule_find(const char *name, const char **out_name, const strata_option **out_options,
                                   strata_error *err) {
    int index = find(name);
    if (index < 0)
        return strata_fail(err, STRATA_INVALID,
                           "there is no schedule \"%s\"; there are: constant, step, exponential, cosine, polynomial", name);
    *out_name = schedules[index].name;
    *out_options = schedules[index].options;
    return STRATA_OK;
}

static strata_status check_points(const strata_schedule *s, strata_error *err) {
    if (s->boundaries.n != s->values.n || s->boundaries.n < 1 || s->boundaries.n > STRATA_MAX_NUMBERS)
        return strata_fail(err, STRATA_INVALID,
                           "schedule step: there are %d boundaries and %d values; there must be as many, 1 to %d",
                           s->boundaries.n, s->values.n, STRATA_MAX_NUMBERS);
    for (int i = 0; i < s->boundaries.n; i++) {
        double before = i ? s->boundaries.values[i - 1] : -1;
        if (!(s->boundaries.values[i] > before))
            return strata_fail(err, STRATA_INVALID, "schedule step: boundary %g comes after %g; they must ascend from 0",
                               s->boundaries.values[i], before);
        if (!(s->values.values[i] >= 0 && isfinite(s->values.values[i])))
            return strata_fail(err, STRATA_INVALID, "schedule step: value %g; rates must be at least 0", s->values.values[i]);
    }
    return STRATA_OK;
}

strata_status strata_schedule_check(strata_schedule *s, strata_error *err) {
    const strata_option *options;
    const char *name = s->name ? s->name : "constant";
    STRATA_TRY(strata_schedule_find(name, &name, &options, err));
    if (s->name) s->name = name; /* a name in static memory instead of the caller's */
    int index = find(name);
    if (schedules[index].needs_steps && s->steps < 1)
        return strata_fail(err, STRATA_INVALID, "schedule %s: steps is %lld; it must be at least 1", name, (long long)s->steps);
    if (schedules[index].rate == exponential && !(s->factor > 0 && isfinite(s->factor)))
        return strata_fail(err, STRATA_INVALID, "schedule exponential: factor is %g; it must be above 0", s->factor);
    if (schedules[index].rate == step) STRATA_TRY(check_points(s, err));
    if (!(s->end >= 0 && isfinite(s->end) && s->power >= 0 && isfinite(s->power)))
        return strata_fail(err, STRATA_INVALID, "schedule %s: end is %g, power %g; they must be at least 0", name, s->end,
                           s->power);
    if (s->warmup_steps < 0 || !(s->warmup_from >= 0 && isfinite(s->warmup_from)) || s->replicas < 0)
        return strata_fail(err, STRATA_INVALID,
                           "schedule %s: warmup_steps is %lld, warmup_from %g, replicas %lld; they must not be negative", name,
                           (long long)s->warmup_steps, s->warmup_from, (long long)s->replicas);
    return STRATA_OK;
}

double strata_schedule_rate(const strata_schedule *s, double rate, int64_t t) {
    int index = s->name ? find(s->name) : 0;
    const double scale = s->replicas > 0 ? (double)s->replicas : 1;
    rate = strata_number_shown(rate);
    if (t < s->warmup_steps) return scale * (s->warmup_from + (rate - s->warmup_from) * (double)t / (double)s->warmup_steps);
    return scale * schedules[index < 0 ? 0 : index].rate(s, rate, t - s->warmup_steps);
}
