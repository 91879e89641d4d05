/* SPDX-License-Identifier: Apache-2.0
 *
 * What the units of a plugin's device did when, for traces: its table "profile". */
#include "backends/plugin/plugin.h"
#include "core/base/trace.h"

/* False: it has none, or an incomplete one. */
static bool profile_of(plugin_device *device, strata_plugin_profile *out) {
    const strata_plugin_profile *given =
        !device->lost && device->calls.table ? device->calls.table(device->device, "profile") : NULL;
    if (!given || given->size < sizeof given->size) return false;
    plugin_copy_struct(out, sizeof *out, given);
    return out->enable && out->drain && out->now;
}

void plugin_keep_spans(strata_device *base, bool on) {
    plugin_device *device = (plugin_device *)base;
    strata_plugin_profile profile;
    if (profile_of(device, &profile)) profile.enable(device->device, on);
}

typedef struct taker {
    strata_take_span *take;
    void *user;
    /* Of strata_trace_now, when the device's clock was 0. */
    double zero;
} taker;

static void take_span(void *user, const strata_plugin_span *given) {
    const taker *t = user;
    strata_plugin_span span;
    if (given->size < sizeof given->size) return;
    plugin_copy_struct(&span, sizeof span, given);
    if (span.name && span.unit && span.end_ns >= span.begin_ns)
        t->take(t->user, span.unit, span.name, t->zero + (double)span.begin_ns * 1e-9, t->zero + (double)span.end_ns * 1e-9);
}

void plugin_take_spans(strata_device *base, strata_take_span *take, void *user) {
    plugin_device *device = (plugin_device *)base;
    strata_plugin_profile profile;
    if (!profile_of(device, &profile)) return;
    taker t = {.take = take, .user = user, .zero = strata_trace_now() - (double)profile.now(device->device) * 1e-9};
    profile.drain(device->device, take_span, &t);
}
