/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds the operations of a device's units over time to a trace. The device reports them in its table "profile". */
#include <stdio.h>

#include "backends/plugin/plugin.h"

enum { MOST_UNITS = 16, MOST_NAMES = 256 };

/* Copies the device's table. Returns false if it has none or an incomplete one. */
static bool profile_of(plugin_device *device, strata_plugin_profile *out) {
    const strata_plugin_profile *given = !device->lost && !strata_bridge_is_gone(device) && device->calls.table
                                             ? device->calls.table(device->device, "profile")
                                             : NULL;
    if (!given || given->size < sizeof given->size) return false;
    strata_bridge_copy_struct(out, sizeof *out, given);
    return out->enable && out->drain && out->now;
}

/* The state while spans are copied from a device to the trace. */
typedef struct taker {
    strata_trace *trace;
    const char *id;
    /* The time of strata_trace_now at which the device's clock was 0. */
    double zero;
    int n_units, n_names;
    struct {
        char name[48];
        int track;
    } units[MOST_UNITS];
    const strata_trace_label *names[MOST_NAMES];
} taker;

/* The track of the unit; STRATA_TRACE_HOST if there are too many units. */
static int track_of(taker *t, const char *unit) {
    char name[96];
    for (int i = 0; i < t->n_units; i++)
        if (!strncmp(t->units[i].name, unit, sizeof t->units[i].name - 1)) return t->units[i].track;
    if (t->n_units == MOST_UNITS) return STRATA_TRACE_HOST;
    snprintf(t->units[t->n_units].name, sizeof t->units[t->n_units].name, "%s", unit);
    snprintf(name, sizeof name, "%s %s", t->id, t->units[t->n_units].name);
    return t->units[t->n_units++].track = strata_trace_add_track(t->trace, name);
}

/* The label of this name; NULL if there are too many names. */
static const strata_trace_label *label_of(taker *t, const char *name) {
    for (int i = 0; i < t->n_names; i++)
        if (!strcmp(t->names[i]->name, name)) return t->names[i];
    if (t->n_names == MOST_NAMES) return NULL;
    const strata_trace_label *label = strata_trace_add_label(t->trace, name, "", 0, 0);
    if (label) t->names[t->n_names++] = label;
    return label;
}

static void take_span(void *user, const strata_plugin_span *given) {
    taker *t = user;
    strata_plugin_span span;
    if (given->size < sizeof given->size) return;
    strata_bridge_copy_struct(&span, sizeof span, given);
    if (!span.name || !span.unit || span.end_ns < span.begin_ns) return;
    const int track = track_of(t, span.unit);
    if (track != STRATA_TRACE_HOST)
        strata_trace_add(t->trace, track, label_of(t, span.name), 0, t->zero + (double)span.begin_ns * 1e-9,
                         t->zero + (double)span.end_ns * 1e-9);
}

strata_status strata_bridge_set_trace(strata_device *base, strata_trace *trace, int track, strata_error *err) {
    plugin_device *device = (plugin_device *)base;
    strata_plugin_profile profile;
    (void)err;
    STRATA_DRIVER_CALL(base, ASK);
    if (!profile_of(device, &profile)) return STRATA_OK;
    if (base->trace) {
        taker t = {
            .trace = base->trace, .id = base->info.id, .zero = strata_trace_now() - (double)profile.now(device->device) * 1e-9};
        profile.drain(device->device, take_span, &t);
    }
    profile.enable(device->device, trace != NULL);
    base->trace = trace;
    base->trace_track = track;
    return STRATA_OK;
}
