/* SPDX-License-Identifier: Apache-2.0
 *
 * A PJRT plugin: its shared object, its table of functions, and how to call them. */
#ifndef STRATA_BACKENDS_PJRT_PLUGIN_H
#define STRATA_BACKENDS_PJRT_PLUGIN_H

#include <string.h>

#include "backends/pjrt/api.h"
#include "strata/ahead.h"

/* It may be copied: it owns nothing. The plugin itself stays in the process, since plugins cannot be unloaded. */
typedef struct pjrt_plugin {
    const pjrt_api *api;
    /* Borrowed from the caller. */
    const char *path;
    /* The open device whose calls are marked (core/run/driver.h); NULL: they are made by a thread with a limit. */
    strata_device *device;
} pjrt_plugin;

/* Opens the shared object, checks its version and initializes it. It may be called again for the same file. A name
 * without a slash is searched by the dynamic loader. path: must exist as long as the plugin is used. Fails: UNAVAILABLE
 * if the file or GetPjrtApi is missing, if the version is too old or new (with both versions), or with the plugin's
 * error. */
STRATA_MUST_USE strata_status strata_pjrt_load(const char *path, pjrt_plugin *out_plugin, strata_error *err);

/* Calls a function of functions.def by its place. args begins with a pjrt_head whose size is set. `what` is the begin
 * of the error message, for example "compile". Error codes without a corresponding status become `otherwise`. Fails:
 * UNSUPPORTED if the plugin has no such function. */
STRATA_MUST_USE strata_status strata_pjrt_call(const pjrt_plugin *plugin, int function, void *args, const char *what,
                                               strata_status otherwise, strata_error *err);
/* Destroys an object of any kind; NULL is fine. Errors of the plugin are ignored, since the caller could do nothing
 * about them. */
void strata_pjrt_destroy(const pjrt_plugin *plugin, int function, void *object);
/* Waits for the event and destroys it; NULL is fine. */
STRATA_MUST_USE strata_status strata_pjrt_await(const pjrt_plugin *plugin, pjrt_api_event *event, const char *what,
                                                strata_status otherwise, strata_error *err);

/* A program of StableHLO text for the plugin's compilers. */
static inline pjrt_program_text strata_pjrt_program_text(char *text, size_t n_bytes) {
    return (pjrt_program_text){{PJRT_SIZE(pjrt_program_text, format_size), NULL}, text, n_bytes, "mlir", strlen("mlir")};
}

/* Writes the bytes of a CompileOptionsProto for replicas of one program and returns their number. */
enum { PJRT_COMPILE_OPTIONS_BYTES = 32 };
size_t strata_pjrt_compile_options(int n_replicas, char out[PJRT_COMPILE_OPTIONS_BYTES]);

/* Reads the numbers of a compiler's cost analysis into the estimate (aot.c). Numbers that it lacks stay unchanged.
 *
 * XLA adds up "optimal_seconds" over the program's ops. One of its own ops for which it has no time (a custom call such
 * as ConcatBitcast, which moves no data) counts as -1 s. So a sum of -2.9998 means three such ops and 0.0002 s for all
 * others. In f32, such a sum is exact to 0.1 us. */
void strata_pjrt_read_costs(const pjrt_cost_args *costs, strata_ahead_topology_estimate *estimate);

#endif
