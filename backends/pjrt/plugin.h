/* SPDX-License-Identifier: Apache-2.0
 *
 * A PJRT plugin: its shared object, its table of functions, and calls of them. */
#ifndef STRATA_BACKENDS_PJRT_PLUGIN_H
#define STRATA_BACKENDS_PJRT_PLUGIN_H

#include "backends/pjrt/api.h"
#include "core/base/export.h"
#include "strata/status.h"

STRATA_EXPORT_BEGIN

/* A copy is as good: the plugin itself stays in the process, as plugins cannot be unloaded. */
typedef struct pjrt_plugin {
    const pjrt_api *api;
    /* Borrowed: the caller's. */
    const char *path;
} pjrt_plugin;

/* Opens the shared object, checks its version and initializes it; again is fine. A name without a slash is looked for as the
 * dynamic loader does. path: must live as long as the plugin is used.
 * Fails: UNAVAILABLE saying what is missing: the file, GetPjrtApi, the version (both are named), or what the plugin says. */
STRATA_MUST_USE strata_status strata_pjrt_load(const char *path, pjrt_plugin *out_plugin, strata_error *err);

/* Calls a function of functions.def by its place. args begin with a pjrt_head whose size is set. `what` begins the message:
 * "compile". Codes that mean nothing else give `otherwise`. UNSUPPORTED where the plugin has no such function. */
STRATA_MUST_USE strata_status strata_pjrt_call(const pjrt_plugin *plugin, int function, void *args, const char *what,
                                               strata_status otherwise, strata_error *err);
/* Of an object of any kind; NULL is fine. What the plugin says is not asked: there is nothing to be done about it. */
void strata_pjrt_destroy(const pjrt_plugin *plugin, int function, void *object);
/* Waits for the event, which it destroys; NULL is fine. */
STRATA_MUST_USE strata_status strata_pjrt_await(const pjrt_plugin *plugin, pjrt_api_event *event, const char *what,
                                                strata_status otherwise, strata_error *err);

/* The bytes of a CompileOptionsProto for replicas of one program; returns how many. */
enum { PJRT_COMPILE_OPTIONS_BYTES = 32 };
size_t strata_pjrt_compile_options(int n_replicas, char out[PJRT_COMPILE_OPTIONS_BYTES]);

STRATA_EXPORT_END

#endif
