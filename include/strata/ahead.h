/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles a model's training step for an accelerator that this machine does not have. strata_model_lower translates the step
 * to StableHLO, which the compiler of a PJRT plugin compiles for a topology of chips and estimates. `strata compile` uses it.
 * */
#ifndef STRATA_AHEAD_H
#define STRATA_AHEAD_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Translates the step of a model that is compiled, after the same passes that strata_executable_create runs.
 *   batch       the examples of a step, of all replicas together
 *   n_replicas  replicas that run the program; more than one add their gradients within it
 *   fast        the compiler may multiply f32 values with less precision
 * The caller frees the text. Fails: UNSUPPORTED with the node and the reason; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_model_lower(strata_model *model, int64_t batch, int n_replicas, bool fast,
                                                            char **out_text, size_t *out_n_bytes, strata_error *err);

/* Opens a PJRT plugin and initializes it, so that a plugin that cannot be used is an error here. A name without a slash is
 * searched by the dynamic loader. The plugin stays in the process. Fails: UNAVAILABLE if the file or GetPjrtApi is missing, if
 * the version is too old or new (with both versions), or with the plugin's error. */
STRATA_API STRATA_MUST_USE strata_status strata_pjrt_open(const char *path, strata_error *err);

/* Checks the text of a topology, a chip and the sides of a grid of one to three axes: "v5e:2x2". Some compilers end the process
 * for other texts. out_n_chips may be NULL. Fails: INVALID, with the part that is wrong. */
STRATA_API STRATA_MUST_USE strata_status strata_ahead_topology_check(const char *name, int *out_n_chips, strata_error *err);

typedef struct strata_ahead_topology strata_ahead_topology;
/* The topology `name`, as above, of the compiler of a PJRT plugin, whose path is borrowed as long as the topology is used.
 * Fails: as strata_pjrt_open; INVALID where the name has another form; TIMEOUT if the plugin hangs; otherwise with the plugin's
 * error. */
STRATA_API STRATA_MUST_USE strata_status strata_ahead_topology_create(const char *plugin, const char *name,
                                                                      strata_ahead_topology **out_topology, strata_error *err);
/* NULL is fine. */
STRATA_API void strata_ahead_topology_destroy(strata_ahead_topology *topology);
/* How many devices it has. */
STRATA_API int strata_ahead_topology_n_devices(const strata_ahead_topology *topology);

/* The compiler's estimates for a program on one chip. Numbers that it does not report are negative. */
typedef struct strata_ahead_topology_estimate {
    double code_bytes, argument_bytes, output_bytes, alias_bytes, temporary_bytes, peak_bytes;
    /* For one run, as the compiler counts. */
    double flops, transcendentals, bytes_accessed;
    /* The time of a run without those ops for which the compiler has no time, and the number of these ops. */
    double seconds;
    int n_untimed;
} strata_ahead_topology_estimate;
/* Compiles StableHLO text for n_replicas of the topology's devices. Fails: UNSUPPORTED with the compiler's message; TIMEOUT
 * after `seconds`, and the topology must then not be destroyed. */
STRATA_API STRATA_MUST_USE strata_status strata_ahead_topology_compile(const strata_ahead_topology *topology, const char *text,
                                                                       size_t n_bytes, int n_replicas, double seconds,
                                                                       strata_ahead_topology_estimate *out_estimate,
                                                                       strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
