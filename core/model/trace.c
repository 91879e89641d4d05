/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a model in a trace of its training (core/base/trace.h). */
#include <stdio.h>
#include <stdlib.h>

#include "core/model/model.h"
#include "core/run/device.h"

strata_status strata_model_trace_devices(strata_model *model, strata_trace *trace, const int *tracks, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    strata_status status = STRATA_OK;
    strata_model_free_programs(model);
    for (int r = 0; r < strategy->n_devices; r++) {
        strata_device *device = strategy->devices[r];
        if (!device->api->set_trace) continue;
        strata_status own = strata_device_enter(device, err);
        if (!own) {
            own = device->api->set_trace(device, trace, trace ? tracks[r] : 0, err);
            strata_device_leave(device);
        }
        if (!status) status = own;
    }
    return status;
}

strata_status strata_model_trace_begin(strata_model *model, strata_trace *trace, int **out_tracks, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    char name[200];
    *out_tracks = calloc((size_t)strategy->n_devices, sizeof **out_tracks);
    if (!*out_tracks) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a trace");
    for (int r = 0; r < strategy->n_devices; r++) {
        const strata_device_info *info = strata_device_get_info(strategy->devices[r]);
        snprintf(name, sizeof name, "replica %d %s queue (%.100s)", r, info->id, info->name);
        (*out_tracks)[r] = strata_trace_add_track(trace, name);
    }
    return strata_model_trace_devices(model, trace, *out_tracks, err);
}
